//! The page that the texts on a sweep are written on.

use crate::report::layout::{clean, wrap};
use crate::report::text::TextOptions;

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

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// The first few of a list: `a, b, c and 4 more`.
pub(super) fn first_few(items: &[String], few: usize) -> String {
    match items.len() {
        n if n > few => format!("{} and {} more", items[..few].join(", "), n - few),
        _ => items.join(", "),
    }
}
