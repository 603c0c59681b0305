//! The page that texts for people are written on: lines, sentences, tables, made harmless as they come.

use super::content::{Answer, AnswerState, Gauge, KeyFigure};
use super::layout::{TextTable, clean_text, text_width, wrap_text};
use super::text::TextOptions;
use crate::units::Bytes;
use anstyle::{AnsiColor, Style};

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

    /// A line in a colour, where the page has colours.
    pub(super) fn write_painted(&mut self, style: Style, line: &str) {
        if !self.options.color {
            return self.write_line(line);
        }
        let line = clean_text(line, self.options.unicode);
        let line = line.trim_end();
        self.text.push_str(&format!("{style}{line}{style:#}\n"));
    }

    /// The answer: verdict, gauge, main figures, what to change.
    pub(super) fn write_answer(&mut self, answer: &Answer) {
        let colour = match answer.state {
            AnswerState::Safe => AnsiColor::Green,
            AnswerState::Tight => AnsiColor::Yellow,
            AnswerState::Critical | AnswerState::Failed => AnsiColor::Red,
            AnswerState::Unknown => AnsiColor::Cyan,
        };
        let room = self.options.width.saturating_sub(2).max(24);
        for line in wrap_text(&answer.verdict, room) {
            self.write_painted(colour.on_default().bold(), &line);
        }
        if let Some(gauge) = &answer.gauge {
            for line in gauge_lines(gauge, self.options) {
                self.write_painted(colour.on_default(), &line);
            }
        }
        let figures: Vec<String> = answer.figures.iter().map(figure_text).collect();
        if !figures.is_empty() {
            self.write_sentence(2, &figures.join(" · "));
        }
        for action in &answer.actions {
            self.write_sentence(2, &format!("→ {}", action.action_text()));
        }
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

/// `████░░░░ 57 % of 4.00 GiB, container`; where that is too wide, the words stand below the bar.
fn gauge_lines(gauge: &Gauge, options: TextOptions) -> Vec<String> {
    let percent = gauge.used_percent();
    let words = format!("{percent:.0} % of {}, {}", Bytes(gauge.total), gauge.label);
    let bar = |cells: usize| gauge_bar(percent, cells, options.unicode);
    let room = options.width.saturating_sub(text_width(&words) + 3);
    if room >= 10 {
        return vec![format!("  {} {words}", bar(room.min(40)))];
    }
    let below = wrap_text(&words, options.width.saturating_sub(2).max(20));
    let below = below.iter().map(|line| format!("  {line}"));
    let above = format!("  {}", bar(options.width.saturating_sub(4).clamp(10, 40)));
    std::iter::once(above).chain(below).collect()
}

/// The bar of a gauge in text, `cells` wide.
pub(super) fn gauge_bar(percent: f64, cells: usize, unicode: bool) -> String {
    let full = ((percent / 100.0).clamp(0.0, 1.0) * cells as f64).round() as usize;
    let (used, free) = if unicode { ("█", "░") } else { ("#", "-") };
    format!("{}{}", used.repeat(full), free.repeat(cells - full))
}

/// `model weights 14.96 GiB`.
pub(super) fn figure_text(figure: &KeyFigure) -> String {
    format!("{} {} {}", figure.label, figure.value.text, figure.unit)
}
