//! Tables of a sweep: why cells failed, the best of them, where memory ran out, all of them, and its groups as they were
//! measured against what is calculated of them, where the profiles of its cells were read beside it.

use super::axes::{server_axes, setting_label, varying_axes};
use super::read::{CellFigure, FIGURES, LATENCY, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT};
use crate::compare::calculated::Item;
use crate::compare::validate::RunValidation;
use crate::profile::stats::median_of;
use crate::report::content::{Grid, TableCell, TableColumn, number_column, text_column};
use crate::report::figures::{figure_cell, gib_cell, percent_cell};
use crate::report::layout::{format_figure, group_items};
use crate::report::material::ReportRun;
use crate::report::tables::{TableBuilder, word_or_reason};
use crate::units::GIB;
use std::collections::HashMap;

/// How many cells have no figures for which reason, with one sentence for each.
pub(super) fn causes_table(sweep: &SweepDocument, prefix: &str) -> Option<Grid> {
    let cells = sweep.cells.iter();
    let cells = cells.filter(|c| !c.is_done() && !c.is_interpolated());
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    let mut causes = group_items(cells, |c| {
        [c.status.clone(), word(&c.cause), word(&c.phase)]
    });
    causes.sort_by_key(|(_, cells)| std::cmp::Reverse(cells.len()));
    let example = |cells: &[&SweepCell]| {
        let mut messages = cells.iter().filter_map(|c| c.message.clone());
        messages.find(|m| !m.is_empty()).unwrap_or_default()
    };
    TableBuilder::of_items(&causes)
        .words("status", "status", |(words, _)| words[0].replace('_', " "))
        .words("cause", "cause", |(words, _)| words[1].replace('_', " "))
        .words("phase", "phase", |(words, _)| &words[2])
        .counts("cells", "cells", |(_, cells)| cells.len())
        .words("example", "message", |(_, cells)| example(cells))
        .grid_of_rows(
            format!("{prefix}_causes"),
            "Cells without figures, by cause",
        )
}

/// What the best is judged by: words, and the figure; its highest is the best.
type Contest = (&'static str, fn(&SweepCell) -> Option<f64>);

static CONTESTS: [Contest; 4] = [
    ("most tokens/s", |c| c.figure_value(THROUGHPUT)),
    ("most tokens/s per GiB of the peak", per_gib),
    ("shortest time to first token", |c| {
        Some(-c.figure_value(TTFT)?)
    }),
    ("shortest latency", |c| Some(-c.figure_value(LATENCY)?)),
];

fn per_gib(cell: &SweepCell) -> Option<f64> {
    let (tokens, peak) = (cell.figure_value(THROUGHPUT)?, cell.figure_value(PEAK)?);
    (peak > 0.0).then(|| tokens / peak)
}

/// The best cells of each model.
pub(super) fn best_table(sweep: &SweepDocument, prefix: &str) -> Option<Grid> {
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let axes = varying_axes(&cells);
    let mut best: Vec<(&str, &SweepCell)> = Vec::new();
    for (_, own) in sweep.cells_by_model() {
        for (words, judge) in &CONTESTS {
            let judged = own.iter().filter_map(|c| Some((judge(c)?, *c)));
            // The first of equals.
            let found = judged.reduce(|best, next| if next.0 > best.0 { next } else { best });
            best.extend(found.map(|(_, cell)| (*words, cell)));
        }
    }
    let settings = |cell: &SweepCell| {
        let words = axes.iter().map(|axis| axis.words_in_cell(cell));
        words.collect::<Vec<String>>().join(", ")
    };
    let figure =
        |f: &'static CellFigure| move |(_, cell): (&str, &SweepCell)| cell_or_reason(cell, f);
    let by_size = number_column("tokens/s per GiB", "tokens_per_second_per_gib");
    TableBuilder::of_items(best)
        .words("model", "model", |(_, cell)| &cell.model)
        .words("best by", "best_by", |(words, _)| words)
        .words("cell", "settings", |(_, cell)| settings(cell))
        .column(PEAK.table_column(), figure(PEAK))
        .column(THROUGHPUT.table_column(), figure(THROUGHPUT))
        .column(by_size, |(_, cell)| {
            figure_cell(per_gib(cell), "throughput or peak was not measured")
        })
        .column(TTFT.table_column(), figure(TTFT))
        .column(LATENCY.table_column(), figure(LATENCY))
        .words("id", "cell", |(_, cell)| &cell.id)
        .grid_of_rows(format!("{prefix}_best"), "The best cells of each model")
}

/// Causes that are a lack of memory, in the order of the table, and their heads.
const LACKS: [(&str, &str); 4] = [
    ("oom", "ran out"),
    ("implied_oom", "follows from these"),
    ("known_oom", "known from earlier"),
    ("does_not_fit", "does not fit"),
];

/// Whether a cell lacked memory.
pub fn lacked_memory(cell: &SweepCell) -> bool {
    let cause = cell.cause.as_deref();
    cause.is_some_and(|cause| LACKS.iter().any(|l| l.0 == cause))
}

/// For each server configuration where memory ran out: how far it went.
pub(super) fn out_of_memory(sweep: &SweepDocument, prefix: &str) -> Option<Grid> {
    let groups = group_items(&sweep.cells, |cell| cell.group.as_str()).into_iter();
    let groups = groups.filter(|(_, cells)| cells.iter().any(|c| lacked_memory(c)));
    let groups = groups.map(|(_, mut cells)| {
        let first = cells[0];
        cells.sort_by(|a, b| a.load_size().total_cmp(&b.load_size()));
        (first, cells)
    });
    let groups: Vec<_> = groups.collect();
    let all: Vec<&SweepCell> = sweep.cells.iter().collect();
    let axes = server_axes(&all);
    let names: Vec<&String> = axes.iter().flat_map(|axis| &axis.names).collect();
    let server = |cell: &SweepCell| {
        let settings = names.iter().filter_map(|name| {
            let value = cell.settings.get(*name)?;
            Some(format!("{} {value}", setting_label(name)))
        });
        settings.collect::<Vec<String>>().join(", ")
    };
    let is = |cell: &SweepCell, cause: &str| cell.cause.as_deref() == Some(cause);
    let largest = |cells: &[&SweepCell]| {
        let done = cells.iter().rfind(|c| c.is_done());
        word_or_reason(done.map(|c| c.load_words()), "no cell of it was measured")
    };
    let smallest = |cells: &[&SweepCell]| {
        let ran_out = cells.iter().find(|c| is(c, "oom"));
        word_or_reason(ran_out.map(|c| c.load_words()), "none was tried that did")
    };
    let largest_column = text_column("largest that was measured", "largest_measured");
    let mut table = TableBuilder::of_items(&groups)
        .words("model", "model", |(first, _)| &first.model)
        .words("settings", "settings", |(first, _)| server(first))
        .column(largest_column, |(_, cells)| largest(cells))
        .cells("smallest that ran out", "smallest_oom", |(_, cells)| {
            smallest(cells)
        });
    for (cause, title) in LACKS {
        table = table.counts(title, cause, |(_, cells)| {
            cells.iter().filter(|c| is(c, cause)).count()
        });
    }
    table.words("group", "group", |(first, _)| &first.group).grid_of_rows(
        format!("{prefix}_oom"),
        "Where memory ran out, by server configuration; loads by the tokens that they hold at once",
    )
}

fn cell_or_reason(cell: &SweepCell, figure: &CellFigure) -> TableCell {
    figure.table_cell(cell.figure_value(figure), &cell.failure_reason())
}

/// Every cell with its figures.
pub(super) fn all_cells_table(sweep: &SweepDocument, prefix: &str) -> Grid {
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let first = ["input_len", "output_len", "batch_size"];
    let mut names: Vec<String> = first.map(String::from).into();
    // Settings that only vary together add nothing to the first of them: they come behind.
    let mut behind: Vec<String> = Vec::new();
    for axis in varying_axes(&cells) {
        let is_tied = axis.names.len() > 1;
        behind.extend(axis.names.into_iter().filter(|n| !names.contains(n)));
        if !is_tied {
            names.extend(behind.pop());
        }
    }
    let add_settings = |mut table: TableBuilder<_>, names: &[String]| {
        for name in names {
            let column = TableColumn {
                title: setting_label(name),
                key: name.clone(),
                numeric: cells.iter().any(|c| c.setting_number(name).is_some()),
                is_share: false,
            };
            table = table.column(column, |cell: &SweepCell| TableCell {
                number: cell.setting_number(name),
                ..TableCell::text_cell(cell.settings.get(name).map_or("", String::as_str))
            });
        }
        table
    };
    let mut table =
        TableBuilder::of_items(cells.iter().copied()).words("model", "model", |c| &c.model);
    table = add_settings(table, &names).words("status", "status", |c| {
        let simulated = if c.simulated { " (simulated)" } else { "" };
        let cause = (c.cause.as_ref()).map_or(String::new(), |cause| format!(": {cause}"));
        format!("{}{cause}{simulated}", c.status).replace('_', " ")
    });
    // A figure that no cell has gets no column.
    let has = |figure: &&CellFigure| cells.iter().any(|c| c.figure_value(figure).is_some());
    for figure in FIGURES.iter().filter(has) {
        // Why a cell was not measured is in its row: status, cause and message.
        table = table.column(figure.table_column(), |c| {
            match figure.value_of(&c.figures) {
                _ if c.is_done() => cell_or_reason(c, figure),
                // No number, so that nothing that reads the table takes it for a measured one.
                Some(value) if c.is_interpolated() => {
                    TableCell::text_cell(format!("≈ {}", format_figure(value)))
                }
                _ => TableCell::default(),
            }
        });
    }
    add_settings(table, &behind)
        .known_words("engine", "engine", |c| c.engine.as_deref())
        .words("cell", "cell", |c| &c.id)
        .words("group", "group", |c| &c.group)
        .known_words("profile", "profile", |c| c.profile.as_deref())
        .known_words("message", "message", |c| c.message.as_deref())
        .grid(
            format!("{prefix}_cells"),
            format!("All cells of {}", sweep.name),
        )
}

/// The items of a group that say most.
const ITEMS: [Item; 4] = [Item::Weights, Item::KvPool, Item::Overhead, Item::Total];

/// An item of a group: medians over its cells.
#[derive(Clone, Copy)]
struct GroupItem<'a> {
    cell: &'a SweepCell,
    item: Item,
    cells: usize,
    measured: Option<f64>,
    calculated: Option<f64>,
    error_percent: Option<f64>,
}

/// A row for each group and item that both sides know. `place` is where the sweep's document lies.
pub(super) fn calculated_table(
    sweep: &SweepDocument,
    place: &str,
    runs: &[ReportRun],
    prefix: &str,
) -> Option<Grid> {
    let folder = place.rfind('/').map_or("", |at| &place[..=at]);
    let calculated = runs.iter().filter_map(|r| r.calculated.as_ref());
    let by_file: HashMap<&str, &RunValidation> = calculated.map(|c| (c.file.as_str(), c)).collect();
    let found = sweep.cells.iter().filter_map(|cell| {
        let file = format!("{folder}{}", cell.profile.as_ref()?);
        Some((cell, *by_file.get(file.as_str())?))
    });
    let groups = group_items(found, |(cell, _)| cell.group.as_str());
    let groups = groups.iter();
    let items = groups.flat_map(|(_, group)| ITEMS.map(|item| group_item(group, item)));
    TableBuilder::of_items(items.filter(|i| i.cells > 0))
        .words("model", "model", |i| &i.cell.model)
        .words("part", "item", |i| i.item.display_label())
        .counts("cells", "cells", |i| i.cells)
        .figures("measured, GiB", "measured_gib", |i| gib_cell(i.measured, ""))
        .figures("calculated, GiB", "calculated_gib", |i| gib_cell(i.calculated, ""))
        .figures("calculated less measured, %", "error_percent", |i| percent_cell(i.error_percent, ""))
        .words("group", "group", |i| &i.cell.group)
        .grid_of_rows(
            format!("{prefix}_calculated"),
            "Measured against calculated, by server configuration; medians of its cells, on the GPU with most of it",
        )
}

fn group_item<'a>(group: &[(&'a SweepCell, &RunValidation)], item: Item) -> GroupItem<'a> {
    let items = group.iter().flat_map(|(_, run)| &run.items);
    let items = items.filter(|i| i.item == item);
    let both =
        items.filter_map(|i| Some([i.measured? / GIB, i.calculated? as f64 / GIB, i.error_pct?]));
    let both: Vec<[f64; 3]> = both.collect();
    let median = |n: usize| median_of(both.iter().map(|b| b[n]).collect());
    GroupItem {
        cell: group[0].0,
        item,
        cells: both.len(),
        measured: median(0),
        calculated: median(1),
        error_percent: median(2),
    }
}
