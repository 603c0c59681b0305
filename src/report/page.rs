//! The page that texts for people are written on: lines, sentences, tables, made harmless as they come.

use super::layout::{TextTable, clean_text, wrap_text};
use super::text::TextOptions;

/// Lines of text, made harmless as they come.
pub(super) struct TextPage {
    text: String,
    pub(super) options: TextOptions,
}

impl TextPage {
    pub(super) fn new(options: TextOptions) -> TextPage {
        TextPage {
            text: String::new(),
            options,
        }
    }

    pub(super) fn write_line(&mut self, line: &str) {
        let line = clean_text(line, self.options.unicode);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A title after an empty line.
    pub(super) fn write_title(&mut self, title: &str) {
        self.write_line("");
        self.write_line(title);
    }

    /// A sentence, wrapped, its first line as far in as `indent`, the others two further.
    pub(super) fn write_sentence(&mut self, indent: usize, text: &str) {
        let room = self.options.width.saturating_sub(indent + 2).max(24);
        for (i, part) in wrap_text(text, room).iter().enumerate() {
            let indent = " ".repeat(if i == 0 { indent } else { indent + 2 });
            self.write_line(&format!("{indent}{part}"));
        }
    }

    /// A table, two cells in.
    pub(super) fn write_table(&mut self, table: &TextTable) {
        for line in table.render_lines() {
            self.write_line(&format!("  {line}"));
        }
    }

    /// A sentence under a heading.
    pub(super) fn write_aside(&mut self, text: &str) {
        self.write_sentence(2, text);
    }

    /// Sentences under a heading; no sentence, no heading.
    pub(super) fn write_asides(&mut self, heading: &str, sentences: &[String]) {
        if sentences.is_empty() {
            return;
        }
        self.write_title(heading);
        sentences.iter().for_each(|s| self.write_aside(s));
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
