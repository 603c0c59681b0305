//! Sweeps: what was swept and its results, as sentences, maps, curves and tables.

mod axes;
mod calculated;
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
        let grid = calculated::calculated_table(&sweep, &stored.name, &material.runs, &prefix);
        chapters.extend(sweep_chapters(
            &sweep,
            &prefix,
            several,
            grid.map(ContentBlock::Table),
        ));
    }
    chapters
}

fn sweep_chapters(
    sweep: &SweepDocument,
    prefix: &str,
    several: bool,
    calculated: Option<ContentBlock>,
) -> Vec<Chapter> {
    let of = if several {
        format!(": {}", sweep.name)
    } else {
        String::new()
    };
    let title = |words: &str| format!("{words}{of}");
    let bests = tables::best_table(sweep, prefix).map(ContentBlock::Table);
    let mut chapters = vec![Chapter {
        id: prefix.to_owned(),
        title: title("The sweep"),
        blocks: overview(sweep, prefix),
        details: bests.into_iter().chain(calculated).collect(),
    }];
    let by_load = [
        charts::pareto_charts(sweep, prefix),
        charts::sweep_curves(sweep, prefix),
    ];
    let maps = [charts::sweep_maps(sweep, prefix)];
    for (id, words, lists) in [
        (
            "curves",
            "Throughput, latency and memory by load",
            Vec::from(by_load),
        ),
        ("maps", "Maps", Vec::from(maps)),
    ] {
        let left_out: usize = lists.iter().map(|list: &ChartList<'_>| list.left_out).sum();
        let drawn = lists.into_iter().flat_map(|list| list.charts);
        let mut blocks: Vec<ContentBlock> = drawn.map(ContentBlock::Chart).collect();
        if blocks.is_empty() {
            continue;
        }
        if left_out > 0 {
            blocks.push(ContentBlock::Text(format!(
                "{left_out} more pictures are left out; their figures are in the table of all cells."
            )));
        }
        chapters.push(Chapter::of_blocks(
            &format!("{prefix}_{id}"),
            title(words),
            blocks,
        ));
    }
    let all = ContentBlock::Table(tables::all_cells_table(sweep, prefix));
    chapters.push(Chapter::of_blocks(
        &format!("{prefix}_all"),
        title("All cells"),
        vec![all],
    ));
    chapters
}

/// What was swept and its results.
fn overview(sweep: &SweepDocument, prefix: &str) -> Vec<ContentBlock> {
    let mut blocks = vec![ContentBlock::Text(describe_results(sweep))];
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let models: Vec<String> = sweep
        .cells_by_model()
        .iter()
        .map(|m| m.0.to_owned())
        .collect();
    let models = (models.len() > 1).then(|| format!("model: {}", list_few(&models)));
    let axes = varying_axes(&cells);
    let axes = axes
        .iter()
        .map(|a| format!("{}: {}", a.axis_title(), list_few(&a.values)));
    let swept: Vec<String> = models.into_iter().chain(axes).collect();
    if !swept.is_empty() {
        blocks.push(ContentBlock::Text(format!("Swept: {}.", swept.join("; "))));
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
        blocks.push(ContentBlock::Text(format!("{words} for lack of memory.")));
        blocks.extend(tables::out_of_memory(sweep, prefix).map(ContentBlock::Table));
    }
    blocks
}

/// `2 cells have parts of low confidence (Model weights): their profiles say why`.
fn doubtful_parts(cells: &[&SweepCell]) -> Option<ContentBlock> {
    let doubtful = cells
        .iter()
        .filter(|c| !c.figures.low_confidence.is_empty());
    let count = doubtful.clone().count();
    let parts: BTreeSet<Component> = doubtful
        .flat_map(|c| c.figures.low_confidence.clone())
        .collect();
    let labels: Vec<&str> = parts.into_iter().map(Component::display_label).collect();
    (count > 0).then(|| {
        let cells = counted_words(count, "cell has", "cells have");
        let text = format!(
            "{cells} parts of low confidence ({}): each profile has the reason",
            labels.join(", ")
        );
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
    let took = sweep.took_s.filter(|s| *s > 0.0);
    let took = took.map_or(String::new(), |s| {
        format!("; {} of work", format_duration(s))
    });
    let begun = sweep
        .started
        .as_ref()
        .map_or(String::new(), |s| format!(", begun {}", format_moment(s)));
    format!("{}: {}{took}{begun}.", sweep.name, parts.join(", "))
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
