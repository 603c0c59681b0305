//! Two runs, or two sweeps, side by side: what differs in the request, then in the results.

mod runs;
mod sweeps;
#[cfg(test)]
mod tests;

use super::Sources;
use super::sweep::note_block;
use crate::engine::facts::Severity;
use crate::report::content::{Chapter, TableCell};
use crate::report::layout;
use crate::report::layout::counted_words;
use crate::report::material::Material;

/// The chapter, where a comparison is asked for.
pub(super) fn write_compare_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    if !material.compare {
        return Vec::new();
    }
    let blocks = match (material.sweeps.as_slice(), material.runs.as_slice()) {
        // The runs beside two sweeps are their cells.
        ([a, b, ..], _) => sweeps::sweep_blocks(a, b),
        (_, [a, b, ..]) => runs::run_blocks(a, b),
        (sweeps, runs) => vec![note_block(
            Severity::Warning,
            "nothing_to_compare",
            format!(
                "a comparison takes two runs or two sweeps; {} and {} were read",
                counted_words(runs.len(), "run", "runs"),
                counted_words(sweeps.len(), "sweep", "sweeps")
            ),
        )],
    };
    vec![Chapter {
        id: "compare".into(),
        title: "Side by side".into(),
        blocks,
    }]
}

/// GiB, or why they are unknown.
fn gib_cell(value: Option<f64>, why: &str) -> TableCell {
    match value {
        Some(gib) => TableCell::number_cell(gib, layout::unsigned_zero(format!("{gib:.3}"))),
        None => TableCell::missing_cell(why),
    }
}

/// A figure, or why it is unknown.
fn figure_cell(value: Option<f64>, why: &str) -> TableCell {
    match value {
        Some(value) => TableCell::number_cell(value, layout::format_figure(value)),
        None => TableCell::missing_cell(why),
    }
}

/// Percent with a sign.
fn percent_cell(value: Option<f64>) -> TableCell {
    match value {
        Some(percent) => TableCell::number_cell(
            percent,
            crate::report::figures::format_percent(Some(percent)),
        ),
        None => TableCell::missing_cell(ONE_SIDED),
    }
}

/// A difference with a sign, written by `text`.
fn difference(value: Option<f64>, text: fn(f64) -> String) -> TableCell {
    match value {
        Some(value) => {
            TableCell::number_cell(value, crate::report::figures::with_plus(value, text(value)))
        }
        None => TableCell::missing_cell(ONE_SIDED),
    }
}

/// GiB with three decimals.
fn gib_text(gib: f64) -> String {
    layout::unsigned_zero(format!("{gib:.3}"))
}

/// Of a difference of figures that are not both known; of nothing there is no percent either.
const ONE_SIDED: &str = "not known of both";

/// The second less the first in percent of the first.
fn change(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let (a, b) = a.zip(b)?;
    (a != 0.0).then(|| (b - a) / a.abs() * 100.0)
}
