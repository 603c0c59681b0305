//! Sweeps: what was swept and its results, as sentences, maps, curves and tables.

mod axes;
mod calculated;
mod curves;
mod maps;
mod pareto;
pub(super) mod read;
pub(super) mod tables;
#[cfg(test)]
mod tests;

use super::Sources;
use crate::engine::facts::Severity;
use crate::report::chart::Chart;
use crate::report::content::{Chapter, ContentBlock, note_block};
use crate::report::layout;
use crate::report::layout::counted_words;
use crate::report::material::Material;
pub(super) use axes::order_values;
use axes::varying_axes;
pub(super) use maps::capitalize_first;
use read::{SweepCell, SweepDocument};

/// The chapters of every sweep.
pub(super) fn write_sweep_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let several = material.sweeps.len() > 1;
    let sweeps = material.sweeps.iter().enumerate();
    sweeps
        .flat_map(|(i, stored)| {
            let prefix = if several {
                format!("sweep{}", i + 1)
            } else {
                "sweep".to_owned()
            };
            let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
            let mut chapters = of_sweep(&sweep, &prefix, several);
            let grid = calculated::calculated_table(&sweep, &stored.name, &material.runs, &prefix);
            if let Some((first, grid)) = chapters.first_mut().zip(grid) {
                first.details.push(ContentBlock::Table(grid));
            }
            chapters
        })
        .collect()
}

fn of_sweep(sweep: &SweepDocument, prefix: &str, several: bool) -> Vec<Chapter> {
    let title = |words: &str| {
        if several {
            format!("{words}: {}", sweep.name)
        } else {
            words.to_owned()
        }
    };
    let bests = tables::best_table(sweep, prefix);
    let mut chapters = vec![Chapter {
        id: prefix.to_owned(),
        title: title("The sweep"),
        blocks: overview(sweep, prefix),
        details: bests.map(ContentBlock::Table).into_iter().collect(),
    }];
    let mut pictures = |id: &str, words: &str, (charts, left_out): (Vec<Chart>, usize)| {
        if charts.is_empty() {
            return;
        }
        let mut blocks: Vec<ContentBlock> = charts.into_iter().map(ContentBlock::Chart).collect();
        if left_out > 0 {
            blocks.push(ContentBlock::Text(format!(
                "{left_out} more pictures are left out; their figures are in the table of all cells."
            )));
        }
        chapters.push(Chapter {
            id: format!("{prefix}_{id}"),
            title: title(words),
            blocks,
            ..Chapter::default()
        });
    };
    let (mut charts, mut left_out) = pareto::pareto_charts(sweep, prefix);
    let by_load = curves::sweep_curves(sweep, prefix);
    charts.extend(by_load.0);
    left_out += by_load.1;
    pictures(
        "curves",
        "Throughput, latency and memory by load",
        (charts, left_out),
    );
    pictures("maps", "Maps", maps::sweep_maps(sweep, prefix));
    chapters.push(Chapter {
        id: format!("{prefix}_all"),
        title: title("All cells"),
        blocks: vec![ContentBlock::Table(tables::all_cells_table(sweep, prefix))],
        ..Chapter::default()
    });
    chapters
}

/// What was swept and its results.
fn overview(sweep: &SweepDocument, prefix: &str) -> Vec<ContentBlock> {
    let mut blocks = vec![ContentBlock::Text(came_of(sweep))];
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let models = sweep.model_names();
    let mut swept: Vec<String> = varying_axes(&cells)
        .iter()
        .map(|axis| format!("{}: {}", axis.axis_title(), list_few(&axis.values)))
        .collect();
    if models.len() > 1 {
        let models: Vec<String> = models.iter().map(|m| (*m).to_owned()).collect();
        swept.insert(0, format!("model: {}", list_few(&models)));
    }
    if !swept.is_empty() {
        blocks.push(ContentBlock::Text(format!("Swept: {}.", swept.join("; "))));
    }
    for (code, what, pick) in [
        (
            "several_backends",
            "memory was measured by",
            SweepCell::backend as fn(&SweepCell) -> Option<&str>,
        ),
        ("several_engines", "engines", SweepCell::engine_name),
    ] {
        let mut seen: Vec<String> = Vec::new();
        for word in cells.iter().filter(|c| c.is_done()).filter_map(|c| pick(c)) {
            if !seen.iter().any(|s| s == word) {
                seen.push(word.to_owned());
            }
        }
        if seen.len() > 1 {
            blocks.push(note_block(
                Severity::Info,
                code,
                format!("{what}: {}", list_few(&seen)),
            ));
        }
    }
    let notes = sweep.notes.iter().take(20);
    blocks.extend(notes.map(|n| note_block(Severity::Info, "sweep_note", n.clone())));
    blocks.extend(tables::causes_table(sweep, prefix).map(ContentBlock::Table));
    let lacked = sweep
        .cells
        .iter()
        .filter(|c| tables::lacked_memory(c))
        .count();
    if lacked > 0 {
        blocks.push(ContentBlock::Text(format!(
            "{} for lack of memory.",
            counted_words(lacked, "cell has no figures", "cells have no figures")
        )));
        blocks.extend(tables::out_of_memory(sweep, prefix).map(ContentBlock::Table));
    }
    blocks
}

/// `small: 12 cells, 9 measured, 2 failed, 1 skipped; 2 h 07 min of work, begun …`.
fn came_of(sweep: &SweepDocument) -> String {
    let count = |status: &str| sweep.cells.iter().filter(|c| c.status == status).count();
    let mut parts = vec![counted_words(sweep.cells.len(), "cell", "cells")];
    let known = [
        ("done", "measured"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("not_run", "not run"),
    ];
    let mut rest = sweep.cells.len();
    for (status, word) in known {
        let n = count(status);
        rest -= n;
        if n > 0 {
            parts.push(format!("{} {word}", layout::grouped_count(n as u64)));
        }
    }
    if rest > 0 {
        parts.push(format!("{rest} that ended in a way unknown here"));
    }
    let mut text = format!("{}: {}", sweep.name, parts.join(", "));
    if let Some(took) = sweep.took_s.filter(|s| *s > 0.0) {
        text.push_str(&format!("; {} of work", layout::format_duration(took)));
    }
    if let Some(started) = &sweep.started {
        text.push_str(&format!(", begun {started}"));
    }
    text.push('.');
    text
}

impl SweepCell {
    fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    fn engine_name(&self) -> Option<&str> {
        self.engine.as_deref()
    }
}

/// The values, the middle left out where they are many.
pub(super) fn list_few(values: &[String]) -> String {
    match values {
        [first @ .., last] if values.len() > 12 => {
            let first: Vec<&str> = first.iter().take(10).map(String::as_str).collect();
            format!("{}, …, {last} ({} values)", first.join(", "), values.len())
        }
        values => values.join(", "),
    }
}
