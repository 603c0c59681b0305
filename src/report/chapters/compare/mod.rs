//! Two runs, or two sweeps, side by side: what differs in the request, then in the results.

mod runs;
mod sweeps;
#[cfg(test)]
mod tests;

pub(super) use runs::{compare_runs, incomparable_sentence};
pub(in crate::report) use runs::{fullest_peaks, pair_blocks, pair_sentence};

use super::Sources;
use crate::compare::difference_percent;
use crate::engine::facts::Severity;
use crate::report::content::{Chapter, TableCell, note_block};
use crate::report::figures::percent_cell;
use crate::report::layout::counted_noun;
use crate::report::material::Material;

/// The chapter, where a comparison is asked for.
pub(super) fn write_compare_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    if !material.compare {
        return Vec::new();
    }
    let (blocks, details) = match (material.sweeps.as_slice(), material.runs.as_slice()) {
        // The runs beside two sweeps are their cells.
        ([a, b, ..], _) => (sweeps::sweep_blocks(a, b), Vec::new()),
        (_, [a, b, ..]) => runs::run_blocks(a, b),
        (sweeps, runs) => {
            let runs = counted_noun(runs.len(), "run");
            let sweeps = counted_noun(sweeps.len(), "sweep");
            let text =
                format!("a comparison takes two runs or two sweeps; {runs} and {sweeps} were read");
            let note = note_block(Severity::Warning, "nothing_to_compare", text);
            (vec![note], Vec::new())
        }
    };
    Chapter::of_parts("compare", "Side by side", blocks, details)
}

/// Of a difference of figures that are not both known.
const ONE_SIDED: &str = "not known of both";

/// The second less the first in percent of the first, or why there is none.
fn change_in_percent(a: Option<f64>, b: Option<f64>) -> TableCell {
    let why = match a.zip(b) {
        Some(_) => "a change from 0 has no percentage",
        None => ONE_SIDED,
    };
    let both = a.zip(b);
    percent_cell(both.and_then(|(a, b)| difference_percent(a, b)), why)
}
