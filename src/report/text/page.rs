//! A page of text under construction: headings, label and value, the characters and colours.

use super::TextOptions;
use crate::profile::Profile;
use crate::report::layout::{clean, left, truncate, unsigned_zero, width, wrap};
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
pub(super) struct Page {
    pub options: TextOptions,
    pub glyphs: Glyphs,
    pub theme: Theme,
    /// Decimals of figures in GiB: as many as the peak deserves, the same all over the page.
    decimals: usize,
    text: String,
}

impl Page {
    pub fn new(options: TextOptions, profile: &Profile) -> Page {
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
        Page {
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
    pub fn finish(self) -> String {
        self.text
    }

    /// Text from outside, made fit for this page.
    pub fn clean(&self, text: &str) -> String {
        clean(text, self.options.unicode)
    }

    pub fn paint(&self, style: Style, text: &str) -> String {
        if text.trim().is_empty() {
            text.to_owned()
        } else {
            format!("{style}{text}{style:#}")
        }
    }

    pub fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// An empty line and a heading.
    pub fn heading(&mut self, title: &str) {
        let title = self.paint(self.theme.title, title);
        self.line("");
        self.line(&title);
    }

    /// A label and its value, wrapped under itself.
    pub fn pair(&mut self, label: &str, value: &str) {
        let value = self.clean(value);
        let room = self.options.width.saturating_sub(LABEL + 4).max(24);
        let label = left(label, LABEL);
        for (i, part) in wrap(&value, room).iter().enumerate() {
            if i == 0 {
                let label = self.paint(self.theme.faint, &label);
                self.line(&format!("  {label}  {part}"));
            } else {
                self.line(&format!("  {:LABEL$}  {part}", ""));
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
            (Some(value), _) => self.pair(label, &value),
            (None, Some(why)) => {
                let text = format!("{} ({why})", self.glyphs.dash);
                self.pair(label, &text);
            }
            (None, None) => {
                let dash = self.glyphs.dash;
                self.pair(label, dash);
            }
        }
    }

    /// Lines of a table: the head faint.
    pub fn table(&mut self, lines: &[String]) {
        for (i, line) in lines.iter().enumerate() {
            if i == 0 {
                let head = self.paint(self.theme.faint, line);
                self.line(&format!("  {head}"));
            } else {
                self.line(&format!("  {line}"));
            }
        }
    }

    /// A faint remark, wrapped.
    pub fn aside(&mut self, text: &str) {
        let room = self.options.width.saturating_sub(4).max(24);
        for (i, part) in wrap(&self.clean(text), room).iter().enumerate() {
            let indent = if i == 0 { 2 } else { 4 };
            let part = self.paint(self.theme.faint, part);
            self.line(&format!("{:indent$}{part}", ""));
        }
    }

    /// A faint line of quoted text, cut at the page's edge.
    pub fn quote(&mut self, indent: usize, text: &str) {
        let room = self.options.width.saturating_sub(indent).max(24);
        let text = truncate(&self.clean(message(text)), room, self.glyphs.ellipsis);
        let text = self.paint(self.theme.faint, &text);
        self.line(&format!("{:indent$}{text}", ""));
    }

    /// GiB without the unit; unknown is a dash.
    pub fn gib(&self, gb: Option<f64>) -> String {
        match gb {
            Some(gb) => unsigned_zero(format!("{gb:.*}", self.decimals)),
            None => self.glyphs.dash.to_owned(),
        }
    }

    /// GiB with the unit.
    pub fn gib_unit(&self, gb: Option<f64>) -> String {
        match gb {
            Some(_) => format!("{} GiB", self.gib(gb)),
            None => self.glyphs.dash.to_owned(),
        }
    }

    /// A bar of a share (0 to 1) of `cells`.
    pub fn bar(&self, share: f64, cells: usize) -> String {
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
    pub fn room(&self, used: &str) -> usize {
        self.options.width.saturating_sub(width(used))
    }
}

/// A log line without the prefix of its message: process, level, time and `[file.py:12]`.
pub(super) fn message(line: &str) -> &str {
    match line.find(".py:").and_then(|at| {
        let rest = &line[at..];
        rest.find("] ").map(|end| at + end + 2)
    }) {
        Some(at) => &line[at..],
        None => line,
    }
}
