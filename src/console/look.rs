//! Style of messages: colours, marks and bars, with characters that the terminal has.

use crate::report::layout::truncate_middle;
use anstyle::{AnsiColor, Style};

/// Colours and marks on stderr.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TerminalStyle {
    pub(super) unicode: bool,
    pub(super) color: bool,
}

/// Result of a stage or a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultMark {
    Done,
    Failed,
    Skipped,
}

impl TerminalStyle {
    pub(super) fn paint_text(self, style: Style, text: &str) -> String {
        if self.color {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    pub(super) fn dim_text(self, text: &str) -> String {
        self.paint_text(Style::new().dimmed(), text)
    }

    pub(super) fn mark_sign(self, mark: ResultMark) -> String {
        let (sign, style) = match (mark, self.unicode) {
            (ResultMark::Done, true) => ("✓", AnsiColor::Green.on_default()),
            (ResultMark::Done, false) => ("*", AnsiColor::Green.on_default()),
            (ResultMark::Failed, true) => ("✗", AnsiColor::Red.on_default()),
            (ResultMark::Failed, false) => ("x", AnsiColor::Red.on_default()),
            (ResultMark::Skipped, _) => ("-", Style::new().dimmed()),
        };
        self.paint_text(style, sign)
    }

    /// The pictures of a spinner, the last one for its end.
    pub(super) fn spinner_ticks(self) -> &'static str {
        if self.unicode {
            "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "
        } else {
            "-\\|/ "
        }
    }

    /// Filled, the head, and what is left of a bar.
    pub(super) fn bar_characters(self) -> &'static str {
        if self.unicode { "━╸ " } else { "=> " }
    }

    /// Between two facts on one line.
    pub(super) fn fact_separator(self) -> &'static str {
        if self.unicode { " · " } else { " - " }
    }

    pub(super) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }

    /// A bar of `cells` cells. It is full only when all is done.
    pub(super) fn draw_meter(self, done: u64, of: u64, cells: usize) -> String {
        let filled = if of == 0 {
            0
        } else {
            let filled = cells as u128 * u128::from(done.min(of)) / u128::from(of);
            // No more than `cells`, so nothing is lost.
            filled as usize
        };
        let mut signs = self.bar_characters().chars();
        let (full, head) = (signs.next().unwrap_or(' '), signs.next().unwrap_or(' '));
        let mut meter: String = std::iter::repeat_n(full, filled).collect();
        let mut left = cells - filled;
        if done > 0 && left > 0 {
            meter.push(head);
            left -= 1;
        }
        meter.extend(std::iter::repeat_n(' ', left));
        meter
    }

    /// Cuts to at most `cells`. The end is kept, too: names that begin alike differ there.
    pub(super) fn cut_middle(self, text: &str, cells: usize) -> String {
        truncate_middle(text, cells, self.ellipsis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::layout::text_width;
    use proptest::prelude::*;

    const LOOK: TerminalStyle = TerminalStyle {
        unicode: true,
        color: false,
    };

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(
            LOOK.cut_middle("meta-llama/Llama-3.1-70B-Instruct in 256 out 128", 24),
            "meta-l…ct in 256 out 128"
        );
        assert_eq!(LOOK.cut_middle("short", 24), "short");
        assert_eq!(
            LOOK.cut_middle("量子計算量子計算量子計算", 13),
            "量子…量子計算"
        );
    }

    #[test]
    fn a_bar_is_full_only_when_all_is_done() {
        assert_eq!(LOOK.draw_meter(0, 8, 4), "    ");
        assert_eq!(LOOK.draw_meter(1, 8, 4), "╸   ");
        assert_eq!(LOOK.draw_meter(4, 8, 4), "━━╸ ");
        assert_eq!(LOOK.draw_meter(7, 8, 4), "━━━╸");
        assert_eq!(LOOK.draw_meter(8, 8, 4), "━━━━");
        assert_eq!(LOOK.draw_meter(3, 0, 4).chars().count(), 4);
    }

    proptest! {
        #[test]
        fn what_is_cut_fits(text in "\\PC{0,60}", cells in 0usize..40) {
            prop_assert!(text_width(&LOOK.cut_middle(&text, cells)) <= cells.max(1));
        }

        #[test]
        fn a_bar_has_its_length(done: u64, of: u64, cells in 0usize..40) {
            prop_assert_eq!(LOOK.draw_meter(done, of, cells).chars().count(), cells);
        }
    }
}
