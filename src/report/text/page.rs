//! A page of text under construction: headings, label and value, the characters and colours.

use super::TextOptions;
use crate::profile::Profile;
use crate::report::layout::{
    clean_text, pad_left_aligned, text_width, truncate_text, unsigned_zero, wrap_text,
};
use anstyle::{AnsiColor, Style};

/// Cells of the label before a value.
const LABEL: usize = 12;

/// Characters of the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glyphs {
    /// Unknown.
    pub dash: &'static str,
    /// Between items of a line.
    pub dot: &'static str,
    /// Spread.
    pub plus_minus: &'static str,
    /// Something was cut.
    pub ellipsis: &'static str,
    /// Multiplication.
    pub times: &'static str,
    /// A branch that is not the last.
    pub branch: &'static str,
    /// The last branch.
    pub last: &'static str,
    /// Bars: the full cell, then the parts of one from small to large.
    pub bar: &'static [&'static str],
}

const UNICODE: Glyphs = Glyphs {
    dash: "—",
    dot: " · ",
    plus_minus: "±",
    ellipsis: "…",
    times: "×",
    branch: "├─ ",
    last: "└─ ",
    bar: &["█", "▏", "▎", "▍", "▌", "▋", "▊", "▉"],
};

const ASCII: Glyphs = Glyphs {
    dash: "-",
    dot: " | ",
    plus_minus: "+/-",
    ellipsis: "...",
    times: "x",
    branch: "|- ",
    last: "`- ",
    bar: &["#"],
};

/// Colours by meaning. Without colour every style is empty.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Theme {
    pub title: Style,
    pub faint: Style,
    pub error: Style,
    pub warning: Style,
}

/// The page.
pub(super) struct ProfilePage {
    pub options: TextOptions,
    pub glyphs: Glyphs,
    pub theme: Theme,
    /// Decimals of figures in GiB: as many as the peak deserves, the same all over the page.
    decimals: usize,
    text: String,
}

impl ProfilePage {
    pub fn new(options: TextOptions, profile: &Profile) -> ProfilePage {
        let theme = if options.color {
            Theme {
                title: Style::new().bold(),
                faint: Style::new().dimmed(),
                error: AnsiColor::Red.on_default().bold(),
                warning: AnsiColor::Yellow.on_default(),
            }
        } else {
            Theme::default()
        };
        let peak = profile.memory_breakdown.total_measured_gb;
        ProfilePage {
            options,
            glyphs: if options.unicode { UNICODE } else { ASCII },
            theme,
            decimals: if peak.is_none_or(|gb| gb >= 8.0) {
                2
            } else {
                3
            },
            text: String::new(),
        }
    }

    /// The text, with one final newline.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Text from outside, made fit for this page.
    pub fn clean_text(&self, text: &str) -> String {
        clean_text(text, self.options.unicode)
    }

    pub fn paint_text(&self, style: Style, text: &str) -> String {
        if text.trim().is_empty() {
            text.to_owned()
        } else {
            format!("{style}{text}{style:#}")
        }
    }

    pub fn write_line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// An empty line and a heading.
    pub fn write_heading(&mut self, title: &str) {
        let title = self.paint_text(self.theme.title, title);
        self.write_line("");
        self.write_line(&title);
    }

    /// A label and its value, wrapped under itself.
    pub fn write_pair(&mut self, label: &str, value: &str) {
        let value = self.clean_text(value);
        let room = self.options.width.saturating_sub(LABEL + 4).max(24);
        let label = pad_left_aligned(label, LABEL);
        for (i, part) in wrap_text(&value, room).iter().enumerate() {
            if i == 0 {
                let label = self.paint_text(self.theme.faint, &label);
                self.write_line(&format!("  {label}  {part}"));
            } else {
                self.write_line(&format!("  {:LABEL$}  {part}", ""));
            }
        }
    }

    /// The value where it is known, else a dash and the reason.
    pub fn pair_or_reason(
        &mut self,
        label: &str,
        value: Option<String>,
        profile: &Profile,
        path: &str,
    ) {
        match (value, profile.unknown.get(path)) {
            (Some(value), _) => self.write_pair(label, &value),
            (None, Some(why)) => {
                let text = format!("{} ({why})", self.glyphs.dash);
                self.write_pair(label, &text);
            }
            (None, None) => {
                let dash = self.glyphs.dash;
                self.write_pair(label, dash);
            }
        }
    }

    /// Lines of a table: the head faint.
    pub fn write_table(&mut self, lines: &[String]) {
        for (i, line) in lines.iter().enumerate() {
            if i == 0 {
                let head = self.paint_text(self.theme.faint, line);
                self.write_line(&format!("  {head}"));
            } else {
                self.write_line(&format!("  {line}"));
            }
        }
    }

    /// A faint remark, wrapped.
    pub fn write_aside(&mut self, text: &str) {
        let room = self.options.width.saturating_sub(4).max(24);
        for (i, part) in wrap_text(&self.clean_text(text), room).iter().enumerate() {
            let indent = if i == 0 { 2 } else { 4 };
            let part = self.paint_text(self.theme.faint, part);
            self.write_line(&format!("{:indent$}{part}", ""));
        }
    }

    /// A faint line of quoted text, cut at the page's edge.
    pub fn write_quote(&mut self, indent: usize, text: &str) {
        let room = self.options.width.saturating_sub(indent).max(24);
        let text = truncate_text(
            &self.clean_text(message_of_line(text)),
            room,
            self.glyphs.ellipsis,
        );
        let text = self.paint_text(self.theme.faint, &text);
        self.write_line(&format!("{:indent$}{text}", ""));
    }

    /// GiB without the unit; unknown is a dash.
    pub fn format_gib(&self, gb: Option<f64>) -> String {
        match gb {
            Some(gb) => unsigned_zero(format!("{gb:.*}", self.decimals)),
            None => self.glyphs.dash.to_owned(),
        }
    }

    /// GiB with the unit.
    pub fn gib_unit(&self, gb: Option<f64>) -> String {
        match gb {
            Some(_) => format!("{} GiB", self.format_gib(gb)),
            None => self.glyphs.dash.to_owned(),
        }
    }

    /// A bar of a share (0 to 1) of `cells`.
    pub fn draw_bar(&self, share: f64, cells: usize) -> String {
        let Some(full) = self.glyphs.bar.first() else {
            return String::new();
        };
        let steps = self.glyphs.bar.len();
        let total = (share.clamp(0.0, 1.0) * (cells * steps) as f64).round() as usize;
        let mut bar = full.repeat(total / steps);
        if total % steps != 0 {
            bar.push_str(self.glyphs.bar[total % steps]);
        }
        bar
    }

    /// Cells left after `used`.
    pub fn room_left(&self, used: &str) -> usize {
        self.options.width.saturating_sub(text_width(used))
    }
}

/// A log line without the prefix of its message: process, level, time and `[file.py:12]`.
pub(super) fn message_of_line(line: &str) -> &str {
    match line.find(".py:").and_then(|at| {
        let rest = &line[at..];
        rest.find("] ").map(|end| at + end + 2)
    }) {
        Some(at) => &line[at..],
        None => line,
    }
}
