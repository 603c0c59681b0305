//! Sweeps: what was swept and its results, as sentences, maps, curves and tables.

mod axes;
mod charts;
pub(super) mod read;
mod tables;
#[cfg(test)]
mod tests;

use super::{Sources, numbered_id};
use crate::breakdown::Component;
use crate::engine::facts::{Finding, Severity};
use crate::matrix::RowStatus;
use crate::report::content::{Chapter, ContentBlock, note_block};
use crate::report::layout::{
    counted_words, distinct_items, format_duration, format_moment, group_items, grouped_count,
};
use crate::report::material::Material;
use axes::varying_axes;
pub(super) use axes::{describe_cell, order_values};
use charts::ChartList;
use read::{SweepCell, SweepDocument};
use std::collections::BTreeSet;
pub(super) use tables::lacked_memory;

/// Warnings of profiles that a sweep names.
const MOST_WARNINGS: usize = 5;

/// The chapters of every sweep.
pub(super) fn write_sweep_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let several = material.sweeps.len() > 1;
    let mut chapters = Vec::new();
    for (i, stored) in material.sweeps.iter().enumerate() {
        let prefix = numbered_id("sweep", i, several);
        let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
        let of = several.then(|| format!(": {}", sweep.name));
        let of = of.unwrap_or_default();
        let best = tables::best_table(&sweep, &prefix);
        let calculated = tables::calculated_table(&sweep, &stored.name, &material.runs, &prefix);
        let details = best.into_iter().chain(calculated);
        chapters.push(Chapter {
            id: prefix.clone(),
            title: format!("The sweep{of}"),
            blocks: overview(&sweep, &prefix),
            details: details.map(ContentBlock::Table).collect(),
        });
        let all = tables::all_cells_table(&sweep, &prefix);
        let pareto = charts::pareto_charts(&sweep, &prefix);
        let curves = charts::sweep_curves(&sweep, &prefix);
        let by_load = drawn_blocks(vec![pareto, curves]);
        let maps = drawn_blocks(vec![charts::sweep_maps(&sweep, &prefix)]);
        for (id, words, blocks) in [
            ("curves", "Throughput, latency and memory by load", by_load),
            ("maps", "Maps", maps),
            ("all", "All cells", vec![ContentBlock::Table(all)]),
        ] {
            let (id, title) = (format!("{prefix}_{id}"), format!("{words}{of}"));
            chapters.extend(Chapter::of_parts(&id, title, blocks, Vec::new()));
        }
    }
    chapters
}

/// Charts, and how many were left out; nothing without any.
fn drawn_blocks(lists: Vec<ChartList<'_>>) -> Vec<ContentBlock> {
    let left_out: usize = lists.iter().map(|list| list.left_out).sum();
    let drawn = lists.into_iter().flat_map(|list| list.charts);
    let mut blocks: Vec<ContentBlock> = drawn.map(ContentBlock::Chart).collect();
    if left_out > 0 && !blocks.is_empty() {
        blocks.push(format!("{left_out} more pictures are left out; their figures are in the table of all cells.").into());
    }
    blocks
}

/// What was swept and its results.
fn overview(sweep: &SweepDocument, prefix: &str) -> Vec<ContentBlock> {
    let mut blocks: Vec<ContentBlock> = vec![describe_results(sweep).into()];
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let models = sweep.cells_by_model().into_iter();
    let models: Vec<String> = models.map(|(model, _)| model.to_owned()).collect();
    let models = (models.len() > 1).then(|| format!("model: {}", list_few(&models)));
    let axes = varying_axes(&cells).into_iter();
    let axes = axes.map(|a| format!("{}: {}", a.axis_title(), list_few(&a.values)));
    let swept: Vec<String> = models.into_iter().chain(axes).collect();
    if !swept.is_empty() {
        blocks.push(format!("Swept: {}.", swept.join("; ")).into());
    }
    type CellWord = fn(&SweepCell) -> Option<&String>;
    let words: [(&str, &str, CellWord); 2] = [
        ("several_backends", "memory was measured by", |c| {
            c.backend.as_ref()
        }),
        ("several_engines", "engines", |c| c.engine.as_ref()),
    ];
    for (code, what, pick) in words {
        let done = cells.iter().filter(|c| c.is_done());
        let distinct = distinct_items(done.filter_map(|c| pick(c)).cloned());
        if distinct.len() > 1 {
            let text = format!("{what}: {}", list_few(&distinct));
            blocks.push(note_block(Severity::Info, code, text));
        }
    }
    blocks.extend(doubtful_parts(&cells));
    blocks.extend(warnings_of_cells(&cells));
    let notes = sweep.notes.iter().take(20);
    blocks.extend(notes.map(|n| note_block(Severity::Info, "sweep_note", n)));
    blocks.extend(tables::causes_table(sweep, prefix).map(ContentBlock::Table));
    let lacked = cells.iter().filter(|c| tables::lacked_memory(c)).count();
    if lacked > 0 {
        let words = counted_words(lacked, "cell has no figures", "cells have no figures");
        blocks.push(format!("{words} for lack of memory.").into());
        blocks.extend(tables::out_of_memory(sweep, prefix).map(ContentBlock::Table));
    }
    blocks
}

/// `2 cells have parts of low confidence (Model weights): their profiles say why`.
fn doubtful_parts(cells: &[&SweepCell]) -> Option<ContentBlock> {
    let parts = cells.iter().map(|c| &c.figures.low_confidence);
    let doubtful = parts.filter(|parts| !parts.is_empty());
    let count = doubtful.clone().count();
    let parts: BTreeSet<Component> = doubtful.flatten().copied().collect();
    let labels: Vec<&str> = parts.into_iter().map(Component::display_label).collect();
    (count > 0).then(|| {
        let cells = counted_words(count, "cell has", "cells have");
        let labels = labels.join(", ");
        let text =
            format!("{cells} parts of low confidence ({labels}): each profile has the reason");
        note_block(Severity::Warning, "low_confidence", text)
    })
}

/// What the profiles of cells warn of, each once with the number of cells; the most frequent first.
fn warnings_of_cells(cells: &[&SweepCell]) -> Vec<ContentBlock> {
    let all = cells.iter().flat_map(|c| &c.figures.warnings);
    let mut warnings: Vec<(&str, Vec<&Finding>)> = group_items(all, |f| f.code.as_str());
    warnings.sort_by_key(|w| std::cmp::Reverse(w.1.len()));
    let blocks = warnings.into_iter().take(MOST_WARNINGS);
    let blocks = blocks.map(|(_, same)| {
        let (finding, cells) = (same[0], counted_words(same.len(), "cell", "cells"));
        let text = format!("{cells}: {}", finding.message);
        note_block(finding.severity, &finding.code, text)
    });
    blocks.collect()
}

/// `small: 12 cells, 9 measured, 2 failed, 1 skipped; 2 h 07 min of work, begun …`.
fn describe_results(sweep: &SweepDocument) -> String {
    let mut parts = vec![counted_words(sweep.cells.len(), "cell", "cells")];
    let known = [
        ("done", "measured"),
        (RowStatus::Interpolated.as_str(), "interpolated"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("not_run", "not run"),
    ];
    let mut rest = sweep.cells.len();
    for (status, word) in known {
        let n = sweep.cells.iter().filter(|c| c.status == status).count();
        rest -= n;
        if n > 0 {
            parts.push(format!("{} {word}", grouped_count(n as u64)));
        }
    }
    if rest > 0 {
        parts.push(format!("{rest} that ended in a way unknown here"));
    }
    let took = sweep.took_s.filter(|s| *s > 0.0).map(format_duration);
    let took = took.map(|took| format!("; {took} of work"));
    let begun = sweep.started.as_deref().map(format_moment);
    let begun = begun.map(|moment| format!(", begun {moment}"));
    let rest: String = took.into_iter().chain(begun).collect();
    format!("{}: {}{rest}.", sweep.name, parts.join(", "))
}

/// The values, the middle left out where they are many.
pub(super) fn list_few(values: &[String]) -> String {
    match values {
        [first @ .., last] if values.len() > 12 => {
            let first = first.get(..10).unwrap_or(first).join(", ");
            format!("{first}, …, {last} ({} values)", values.len())
        }
        values => values.join(", "),
    }
}
