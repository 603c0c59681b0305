//! Figures of comparisons as cells: with signs, and the reason of what is unknown.

use super::content::TableCell;
use super::layout::{format_figure, unsigned_zero};

/// GiB with three decimals.
pub(super) fn gib_text(gib: f64) -> String {
    unsigned_zero(format!("{gib:.3}"))
}

/// Percent with its sign; of next to nothing everything is very many times as much.
pub(super) fn percent_text(percent: f64) -> String {
    match percent {
        p if p >= 1000.0 => "> 999".into(),
        p if p <= -1000.0 => "< -999".into(),
        p => with_plus(p, unsigned_zero(format!("{p:.1}"))),
    }
}

/// With a plus, unless it rounds to nothing.
pub(super) fn with_plus(value: f64, text: String) -> String {
    let nothing = text.chars().all(|c| c == '0' || c == '.');
    if value > 0.0 && !nothing {
        format!("+{text}")
    } else {
        text
    }
}

/// A figure written by `text`, or why it is unknown.
pub(super) fn cell_by(value: Option<f64>, why: &str, text: impl Fn(f64) -> String) -> TableCell {
    match value {
        Some(value) => TableCell::number_cell(value, text(value)),
        None => TableCell::missing_cell(why),
    }
}

/// GiB, or why they are unknown.
pub(super) fn gib_cell(gib: Option<f64>, why: &str) -> TableCell {
    cell_by(gib, why, gib_text)
}

/// Bytes as GiB with two decimals, as an estimate knows them.
pub(super) fn estimate_cell(bytes: u64) -> TableCell {
    let gib = crate::units::to_gib(bytes);
    TableCell::number_cell(gib, format!("{gib:.2}"))
}

/// A figure, or why it is unknown.
pub(super) fn figure_cell(value: Option<f64>, why: &str) -> TableCell {
    cell_by(value, why, format_figure)
}

/// Percent with a sign, or why they are unknown.
pub(super) fn percent_cell(percent: Option<f64>, why: &str) -> TableCell {
    cell_by(percent, why, percent_text)
}

/// A difference with a sign, written by `text`, or why it is unknown.
pub(super) fn change_cell(
    change: Option<f64>,
    why: &str,
    text: impl Fn(f64) -> String,
) -> TableCell {
    cell_by(change, why, |v| with_plus(v, text(v)))
}

/// A count.
pub(super) fn count_cell(count: u64) -> TableCell {
    TableCell::number_cell(count as f64, super::layout::grouped_count(count))
}
