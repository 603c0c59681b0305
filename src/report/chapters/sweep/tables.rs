//! Tables of a sweep: why cells failed, the best of them, where memory ran out, and all of them.

use super::axes::{setting_label, varying_axes};
use super::read::{FIGURES, LATENCY, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT};
use crate::report::chapters::document::DocumentFigure;
use crate::report::content::{Grid, TableCell, TableColumn, number_column, text_column};
use crate::report::layout;

/// A figure as a cell of a table, in the unit of the column.
fn figure_cell(figure: &DocumentFigure, value: f64) -> TableCell {
    let text = match figure.unit {
        "GiB" => layout::unsigned_zero(format!("{value:.3}")),
        "tokens" | "" => layout::unsigned_zero(format!("{value:.0}")),
        _ => layout::format_figure(value),
    };
    TableCell::number_cell(value, text)
}

fn count_cell(n: usize) -> TableCell {
    TableCell::number_cell(n as f64, layout::grouped_count(n as u64))
}

/// How many cells have no figures for which reason, with one sentence for each.
pub(super) fn causes_table(sweep: &SweepDocument, prefix: &str) -> Option<Grid> {
    let mut causes: Vec<(&str, &str, &str, usize, &str)> = Vec::new();
    for cell in sweep.cells.iter().filter(|c| !c.is_done()) {
        let cause = cell.cause.as_deref().unwrap_or_default();
        let phase = cell.phase.as_deref().unwrap_or_default();
        let message = cell.message.as_deref().unwrap_or_default();
        let same = causes
            .iter_mut()
            .find(|c| (c.0, c.1, c.2) == (cell.status.as_str(), cause, phase));
        match same {
            Some(cause) => {
                cause.3 += 1;
                if cause.4.is_empty() {
                    cause.4 = message;
                }
            }
            None => causes.push((&cell.status, cause, phase, 1, message)),
        }
    }
    causes.sort_by_key(|c| std::cmp::Reverse(c.3));
    let rows = causes
        .into_iter()
        .map(|(status, cause, phase, n, message)| {
            vec![
                TableCell::text_cell(status.replace('_', " ")),
                TableCell::text_cell(cause.replace('_', " ")),
                TableCell::text_cell(phase),
                count_cell(n),
                TableCell::text_cell(message),
            ]
        });
    Some(Grid {
        id: format!("{prefix}_causes"),
        caption: "Cells without figures, by cause".into(),
        columns: vec![
            text_column("status", "status"),
            text_column("cause", "cause"),
            text_column("phase", "phase"),
            number_column("cells", "cells"),
            text_column("one of them says", "message"),
        ],
        rows: rows.collect(),
    })
    .filter(|grid| !grid.rows.is_empty())
}

/// What the best is judged by: words, and the figure; its highest is the best.
type Contest = (&'static str, fn(&SweepCell) -> Option<f64>);

static CONTESTS: [Contest; 4] = [
    ("most tokens/s", |c| c.figure_value(&THROUGHPUT)),
    ("most tokens/s per GiB of the peak", per_gib),
    ("shortest time to first token", |c| {
        Some(-c.figure_value(&TTFT)?)
    }),
    ("shortest latency", |c| Some(-c.figure_value(&LATENCY)?)),
];

fn per_gib(cell: &SweepCell) -> Option<f64> {
    let (tokens, peak) = (cell.figure_value(&THROUGHPUT)?, cell.figure_value(&PEAK)?);
    (peak > 0.0).then(|| tokens / peak)
}

/// The best cells of each model.
pub(super) fn best_table(sweep: &SweepDocument, prefix: &str) -> Option<Grid> {
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let axes = varying_axes(&cells);
    let mut rows = Vec::new();
    for model in sweep.model_names() {
        for (words, judge) in &CONTESTS {
            let own = cells.iter().filter(|c| c.model == model);
            let judged = own.filter_map(|c| Some((judge(c)?, *c)));
            // The first of equals.
            let best = judged.reduce(|best, next| if next.0 > best.0 { next } else { best });
            let Some((_, cell)) = best else { continue };
            let setting: Vec<String> = axes
                .iter()
                .map(|axis| format!("{} {}", axis.axis_title(), axis.value_in_cell(cell)))
                .collect();
            let mut row = vec![
                TableCell::text_cell(model),
                TableCell::text_cell(*words),
                TableCell::text_cell(setting.join(", ")),
            ];
            row.extend([&PEAK, &THROUGHPUT].map(|f| cell_or_reason(cell, f)));
            row.push(match per_gib(cell) {
                Some(value) => TableCell::number_cell(value, layout::format_figure(value)),
                None => TableCell::missing_cell("throughput or peak was not measured"),
            });
            row.extend([&TTFT, &LATENCY].map(|f| cell_or_reason(cell, f)));
            row.push(TableCell::text_cell(cell.id.clone()));
            rows.push(row);
        }
    }
    let mut columns = vec![
        text_column("model", "model"),
        text_column("best by", "best_by"),
        text_column("cell", "settings"),
    ];
    columns.extend([&PEAK, &THROUGHPUT].map(|f| number_column(f.column_head(), f.csv)));
    columns.push(number_column(
        "tokens/s per GiB",
        "tokens_per_second_per_gib",
    ));
    columns.extend([&TTFT, &LATENCY].map(|f| number_column(f.column_head(), f.csv)));
    columns.push(text_column("id", "cell"));
    (!rows.is_empty()).then(|| Grid {
        id: format!("{prefix}_best"),
        caption: "The best cells of each model".into(),
        columns,
        rows,
    })
}

/// Causes that are a lack of memory, in the order of the table.
const LACKS: [&str; 4] = ["oom", "implied_oom", "known_oom", "does_not_fit"];

/// Whether a cell lacked memory.
pub(super) fn lacked_memory(cell: &SweepCell) -> bool {
    let cause = cell.cause.as_deref();
    cause.is_some_and(|cause| LACKS.contains(&cause))
}

/// For each server configuration where memory ran out: how far it went.
pub(super) fn out_of_memory(sweep: &SweepDocument, prefix: &str) -> Option<Grid> {
    let mut groups: Vec<(&str, Vec<&SweepCell>)> = Vec::new();
    for cell in &sweep.cells {
        match groups.iter_mut().find(|g| g.0 == cell.group) {
            Some(group) => group.1.push(cell),
            None => groups.push((&cell.group, vec![cell])),
        }
    }
    let all: Vec<&SweepCell> = sweep.cells.iter().collect();
    let axes = varying_axes(&all);
    let of_load = |name: &String| {
        const OF_LOAD: [&str; 4] = ["input_len", "output_len", "batch_size", "request_rate"];
        OF_LOAD.contains(&name.as_str())
    };
    let rows = groups
        .iter()
        .filter(|g| g.1.iter().any(|c| lacked_memory(c)))
        .map(|(id, cells)| {
            let first = cells.first();
            let server: Vec<String> = axes
                .iter()
                .flat_map(|axis| &axis.names)
                .filter(|name| !of_load(name))
                .filter_map(|name| {
                    let value = first?.settings.get(name)?;
                    Some(format!("{} {value}", setting_label(name)))
                })
                .collect();
            let by_size = |pick: &dyn Fn(&SweepCell) -> bool| -> Vec<&SweepCell> {
                let mut cells: Vec<&SweepCell> =
                    cells.iter().copied().filter(|c| pick(c)).collect();
                cells.sort_by(|a, b| a.model_size().total_cmp(&b.model_size()));
                cells
            };
            let went = by_size(&|c| c.is_done());
            let ran_out = by_size(&|c| c.cause.as_deref() == Some("oom"));
            let mut row = vec![
                TableCell::text_cell(first.map_or_else(String::new, |c| c.model.clone())),
                TableCell::text_cell(server.join(", ")),
                match went.last() {
                    Some(cell) => TableCell::text_cell(cell.load_words()),
                    None => TableCell::missing_cell("no cell of it was measured"),
                },
                match ran_out.first() {
                    Some(cell) => TableCell::text_cell(cell.load_words()),
                    None => TableCell::missing_cell("none was tried that did"),
                },
            ];
            for lack in LACKS {
                row.push(count_cell(
                    by_size(&|c| c.cause.as_deref() == Some(lack)).len(),
                ));
            }
            row.push(TableCell::text_cell(*id));
            row
        });
    Some(Grid {
        id: format!("{prefix}_oom"),
        caption: "Where memory ran out, by server configuration; loads by the tokens that they hold at once".into(),
        columns: vec![
            text_column("model", "model"),
            text_column("settings", "settings"),
            text_column("largest that was measured", "largest_measured"),
            text_column("smallest that ran out", "smallest_oom"),
            number_column("ran out", "oom"),
            number_column("follows from these", "implied_oom"),
            number_column("known from earlier", "known_oom"),
            number_column("does not fit", "does_not_fit"),
            text_column("group", "group"),
        ],
        rows: rows.collect(),
    })
    .filter(|grid| !grid.rows.is_empty())
}

fn cell_or_reason(cell: &SweepCell, figure: &DocumentFigure) -> TableCell {
    match cell.figure_value(figure) {
        Some(value) => figure_cell(figure, value),
        None if cell.is_done() => TableCell::missing_cell("not measured"),
        None => TableCell::missing_cell(cell.failure_reason()),
    }
}

/// Every cell with its figures.
pub(super) fn all_cells_table(sweep: &SweepDocument, prefix: &str) -> Grid {
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let mut names: Vec<String> = ["input_len", "output_len", "batch_size"]
        .map(String::from)
        .to_vec();
    // Settings that only vary together tell no more than the first of them: they come behind.
    let mut behind: Vec<String> = Vec::new();
    for axis in varying_axes(&cells) {
        let is_tied = axis.names.len() > 1;
        for name in axis.names.into_iter().filter(|n| !names.contains(n)) {
            behind.push(name);
        }
        if !is_tied {
            names.extend(behind.pop());
        }
    }
    // A figure that no cell has gets no column.
    let figures: Vec<&&DocumentFigure> = FIGURES
        .iter()
        .filter(|f| cells.iter().any(|c| c.figure_value(f).is_some()))
        .collect();
    let setting_column = |name: &String| TableColumn {
        title: setting_label(name),
        key: name.clone(),
        numeric: cells.iter().any(|c| c.setting_number(name).is_some()),
        is_share: false,
    };
    let mut columns = vec![text_column("cell", "cell"), text_column("model", "model")];
    columns.extend(names.iter().map(setting_column));
    columns.push(text_column("status", "status"));
    columns.push(text_column("cause", "cause"));
    columns.extend(
        figures
            .iter()
            .map(|f| number_column(f.column_head(), f.csv)),
    );
    columns.extend(behind.iter().map(setting_column));
    columns.extend([
        text_column("engine", "engine"),
        text_column("group", "group"),
        text_column("profile", "profile"),
        text_column("message", "message"),
    ]);
    let row = |cell: &&SweepCell| {
        let mut row = vec![
            TableCell::text_cell(&*cell.id),
            TableCell::text_cell(&*cell.model),
        ];
        let setting = |name: &String| {
            let words = cell.settings.get(name).cloned().unwrap_or_default();
            TableCell {
                number: cell.setting_number(name),
                ..TableCell::text_cell(words)
            }
        };
        row.extend(names.iter().map(setting));
        let simulated = if cell.simulated { " (simulated)" } else { "" };
        row.push(TableCell::text_cell(format!(
            "{}{simulated}",
            cell.status.replace('_', " ")
        )));
        row.push(TableCell::text_cell(cell.cause.clone().unwrap_or_default()));
        row.extend(figures.iter().map(|f| match cell.figure_value(f) {
            // Why a cell was not measured is in its row: status, cause and message.
            None if !cell.is_done() => TableCell::default(),
            _ => cell_or_reason(cell, f),
        }));
        row.extend(behind.iter().map(setting));
        for text in [
            &cell.engine,
            &Some(cell.group.clone()),
            &cell.profile,
            &cell.message,
        ] {
            row.push(TableCell::text_cell(text.clone().unwrap_or_default()));
        }
        row
    };
    Grid {
        id: format!("{prefix}_cells"),
        caption: format!("All cells of {}", sweep.name),
        columns,
        rows: cells.iter().map(row).collect(),
    }
}
