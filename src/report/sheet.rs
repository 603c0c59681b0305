//! A page of lines, tables and wrapped sentences, as the comparing commands print them.

use super::layout::{Table, clean, unsigned_zero, wrap};
use super::text::TextOptions;

/// A page that grows from the top.
pub(super) struct Sheet {
    text: String,
    options: TextOptions,
}

impl Sheet {
    pub(super) fn new(options: TextOptions) -> Sheet {
        Sheet {
            text: String::new(),
            options,
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        let line = clean(line, self.options.unicode);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A heading with an empty line above it.
    pub(super) fn heading(&mut self, text: &str) {
        self.line("");
        self.line(text);
    }

    pub(super) fn table(&mut self, table: &Table) {
        for line in table.lines() {
            self.line(&format!("  {line}"));
        }
    }

    /// A sentence, wrapped.
    pub(super) fn aside(&mut self, text: &str) {
        let room = self.options.width.saturating_sub(4).max(24);
        for (i, part) in wrap(text, room).iter().enumerate() {
            let indent = if i == 0 { "  " } else { "    " };
            self.line(&format!("{indent}{part}"));
        }
    }

    /// Sentences under a heading; no sentence, no heading.
    pub(super) fn asides(&mut self, heading: &str, sentences: &[String]) {
        if sentences.is_empty() {
            return;
        }
        self.heading(heading);
        sentences.iter().for_each(|s| self.aside(s));
    }

    pub(super) fn end(self) -> String {
        self.text
    }
}

/// GiB with three decimals, or a dash.
pub(super) fn gib(figure: Option<f64>) -> String {
    figure.map_or_else(|| "—".into(), |g| unsigned_zero(format!("{g:.3}")))
}

/// GiB with its sign, or a dash.
pub(super) fn gib_change(figure: Option<f64>) -> String {
    figure.map_or_else(|| "—".into(), |g| plus(g, unsigned_zero(format!("{g:.3}"))))
}

/// Percent with its sign; of next to nothing everything is very many times as much.
pub(super) fn percent(figure: Option<f64>) -> String {
    match figure {
        None => "—".into(),
        Some(p) if p >= 1000.0 => "> 999".into(),
        Some(p) if p <= -1000.0 => "< -999".into(),
        Some(p) => plus(p, unsigned_zero(format!("{p:.1}"))),
    }
}

/// With a plus, unless it rounds to nothing.
pub(super) fn plus(value: f64, text: String) -> String {
    let nothing = text.chars().all(|c| c == '0' || c == '.');
    match value > 0.0 && !nothing {
        true => format!("+{text}"),
        false => text,
    }
}

/// Bytes as GiB.
pub(super) fn gib_of(bytes: Option<f64>) -> String {
    gib(bytes.map(|b| b / crate::units::GIB))
}
