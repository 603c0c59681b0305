//! The page that texts for people are written on: lines, sentences, tables, made harmless as they come.

use super::layout::{Table, clean, wrap};
use super::text::TextOptions;

/// Lines of text, made harmless as they come.
pub(super) struct Page {
    text: String,
    pub(super) options: TextOptions,
}

impl Page {
    pub(super) fn new(options: TextOptions) -> Page {
        Page {
            text: String::new(),
            options,
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        let line = clean(line, self.options.unicode);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A title after an empty line.
    pub(super) fn title(&mut self, title: &str) {
        self.line("");
        self.line(title);
    }

    /// A sentence, wrapped, its first line as far in as `indent`, the others two further.
    pub(super) fn sentence(&mut self, indent: usize, text: &str) {
        let room = self.options.width.saturating_sub(indent + 2).max(24);
        for (i, part) in wrap(text, room).iter().enumerate() {
            let indent = " ".repeat(if i == 0 { indent } else { indent + 2 });
            self.line(&format!("{indent}{part}"));
        }
    }

    /// A table, two cells in.
    pub(super) fn table(&mut self, table: &Table) {
        for line in table.lines() {
            self.line(&format!("  {line}"));
        }
    }

    /// A sentence under a heading.
    pub(super) fn aside(&mut self, text: &str) {
        self.sentence(2, text);
    }

    /// Sentences under a heading; no sentence, no heading.
    pub(super) fn asides(&mut self, heading: &str, sentences: &[String]) {
        if sentences.is_empty() {
            return;
        }
        self.title(heading);
        sentences.iter().for_each(|s| self.aside(s));
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
