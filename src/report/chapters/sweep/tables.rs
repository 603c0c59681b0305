//! Tables of a sweep: why cells failed, the best of them, where memory ran out, and all of them.

use super::axes::{varying, words};
use super::read::{FIGURES, LATENCY, PEAK, Sweep, THROUGHPUT, TTFT, Tried};
use crate::report::chapters::document::Figure;
use crate::report::content::{Cell, Column, Grid};
use crate::report::layout;

/// A column of words.
pub(crate) fn wordy(title: &str, key: &str) -> Column {
    Column {
        title: title.into(),
        key: key.into(),
        numeric: false,
    }
}

/// A column of figures.
pub(crate) fn numeric(title: impl Into<String>, key: &str) -> Column {
    Column {
        title: title.into(),
        key: key.into(),
        numeric: true,
    }
}

/// A figure as a cell of a table, in the unit of the column.
fn shown(figure: &Figure, value: f64) -> Cell {
    let text = match figure.unit {
        "GiB" => layout::unsigned_zero(format!("{value:.3}")),
        "tokens" | "" => layout::unsigned_zero(format!("{value:.0}")),
        _ => layout::figure(value),
    };
    Cell::number(value, text)
}

fn count(n: usize) -> Cell {
    Cell::number(n as f64, layout::count(n as u64))
}

/// How many cells have no figures for which reason, with one sentence for each.
pub(super) fn causes(sweep: &Sweep, prefix: &str) -> Option<Grid> {
    let mut causes: Vec<(&str, &str, &str, usize, &str)> = Vec::new();
    for cell in sweep.cells.iter().filter(|c| !c.done()) {
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
                Cell::text(status.replace('_', " ")),
                Cell::text(cause.replace('_', " ")),
                Cell::text(phase),
                count(n),
                Cell::text(message),
            ]
        });
    Some(Grid {
        id: format!("{prefix}_causes"),
        caption: "Cells without figures, by cause".into(),
        columns: vec![
            wordy("status", "status"),
            wordy("cause", "cause"),
            wordy("phase", "phase"),
            numeric("cells", "cells"),
            wordy("one of them says", "message"),
        ],
        rows: rows.collect(),
    })
    .filter(|grid| !grid.rows.is_empty())
}

/// What the best is judged by: words, and the figure; its highest is the best.
type Contest = (&'static str, fn(&Tried) -> Option<f64>);

static CONTESTS: [Contest; 4] = [
    ("most tokens/s", |c| c.figure(&THROUGHPUT)),
    ("most tokens/s per GiB of the peak", per_gib),
    ("shortest time to first token", |c| Some(-c.figure(&TTFT)?)),
    ("shortest latency", |c| Some(-c.figure(&LATENCY)?)),
];

fn per_gib(cell: &Tried) -> Option<f64> {
    let (tokens, peak) = (cell.figure(&THROUGHPUT)?, cell.figure(&PEAK)?);
    (peak > 0.0).then(|| tokens / peak)
}

/// The best cells of each model.
pub(super) fn best(sweep: &Sweep, prefix: &str) -> Option<Grid> {
    let cells: Vec<&Tried> = sweep.cells.iter().collect();
    let axes = varying(&cells);
    let mut rows = Vec::new();
    for model in sweep.models() {
        for (words, judge) in &CONTESTS {
            let own = cells.iter().filter(|c| c.model == model);
            let judged = own.filter_map(|c| Some((judge(c)?, *c)));
            // The first of equals.
            let best = judged.reduce(|best, next| if next.0 > best.0 { next } else { best });
            let Some((_, cell)) = best else { continue };
            let setting: Vec<String> = axes
                .iter()
                .map(|axis| format!("{} {}", axis.title(), axis.of(cell)))
                .collect();
            let mut row = vec![
                Cell::text(model),
                Cell::text(*words),
                Cell::text(setting.join(", ")),
            ];
            row.extend([&PEAK, &THROUGHPUT].map(|f| told(cell, f)));
            row.push(match per_gib(cell) {
                Some(value) => Cell::number(value, layout::figure(value)),
                None => Cell::missing("throughput or peak was not measured"),
            });
            row.extend([&TTFT, &LATENCY].map(|f| told(cell, f)));
            row.push(Cell::text(cell.id.clone()));
            rows.push(row);
        }
    }
    let mut columns = vec![
        wordy("model", "model"),
        wordy("best by", "best_by"),
        wordy("cell", "settings"),
    ];
    columns.extend([&PEAK, &THROUGHPUT].map(|f| numeric(f.head(), f.csv)));
    columns.push(numeric("tokens/s per GiB", "tokens_per_second_per_gib"));
    columns.extend([&TTFT, &LATENCY].map(|f| numeric(f.head(), f.csv)));
    columns.push(wordy("id", "cell"));
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
pub(super) fn lacked(cell: &Tried) -> bool {
    let cause = cell.cause.as_deref();
    cause.is_some_and(|cause| LACKS.contains(&cause))
}

/// For each server configuration where memory ran out: how far it went.
pub(super) fn out_of_memory(sweep: &Sweep, prefix: &str) -> Option<Grid> {
    let mut groups: Vec<(&str, Vec<&Tried>)> = Vec::new();
    for cell in &sweep.cells {
        match groups.iter_mut().find(|g| g.0 == cell.group) {
            Some(group) => group.1.push(cell),
            None => groups.push((&cell.group, vec![cell])),
        }
    }
    let all: Vec<&Tried> = sweep.cells.iter().collect();
    let axes = varying(&all);
    let of_load = |name: &String| {
        const OF_LOAD: [&str; 4] = ["input_len", "output_len", "batch_size", "request_rate"];
        OF_LOAD.contains(&name.as_str())
    };
    let rows = groups
        .iter()
        .filter(|g| g.1.iter().any(|c| lacked(c)))
        .map(|(id, cells)| {
            let first = cells.first();
            let server: Vec<String> = axes
                .iter()
                .flat_map(|axis| &axis.names)
                .filter(|name| !of_load(name))
                .filter_map(|name| {
                    let value = first?.settings.get(name)?;
                    Some(format!("{} {value}", words(name)))
                })
                .collect();
            let by_size = |pick: &dyn Fn(&Tried) -> bool| -> Vec<&Tried> {
                let mut cells: Vec<&Tried> = cells.iter().copied().filter(|c| pick(c)).collect();
                cells.sort_by(|a, b| a.size().total_cmp(&b.size()));
                cells
            };
            let went = by_size(&|c| c.done());
            let ran_out = by_size(&|c| c.cause.as_deref() == Some("oom"));
            let mut row = vec![
                Cell::text(first.map_or_else(String::new, |c| c.model.clone())),
                Cell::text(server.join(", ")),
                match went.last() {
                    Some(cell) => Cell::text(cell.load_words()),
                    None => Cell::missing("no cell of it was measured"),
                },
                match ran_out.first() {
                    Some(cell) => Cell::text(cell.load_words()),
                    None => Cell::missing("none was tried that did"),
                },
            ];
            for lack in LACKS {
                row.push(count(by_size(&|c| c.cause.as_deref() == Some(lack)).len()));
            }
            row.push(Cell::text(*id));
            row
        });
    Some(Grid {
        id: format!("{prefix}_oom"),
        caption: "Where memory ran out, by server configuration; loads by the tokens that they hold at once".into(),
        columns: vec![
            wordy("model", "model"),
            wordy("settings", "settings"),
            wordy("largest that was measured", "largest_measured"),
            wordy("smallest that ran out", "smallest_oom"),
            numeric("ran out", "oom"),
            numeric("follows from these", "implied_oom"),
            numeric("known from earlier", "known_oom"),
            numeric("does not fit", "does_not_fit"),
            wordy("group", "group"),
        ],
        rows: rows.collect(),
    })
    .filter(|grid| !grid.rows.is_empty())
}

fn told(cell: &Tried, figure: &Figure) -> Cell {
    match cell.figure(figure) {
        Some(value) => shown(figure, value),
        None if cell.done() => Cell::missing("not measured"),
        None => Cell::missing(cell.why()),
    }
}

/// Every cell with its figures.
pub(super) fn all(sweep: &Sweep, prefix: &str) -> Grid {
    let cells: Vec<&Tried> = sweep.cells.iter().collect();
    let mut names: Vec<String> = ["input_len", "output_len", "batch_size"]
        .map(String::from)
        .to_vec();
    for name in varying(&cells).into_iter().flat_map(|axis| axis.names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // A figure that no cell has gets no column.
    let figures: Vec<&&Figure> = FIGURES
        .iter()
        .filter(|f| cells.iter().any(|c| c.figure(f).is_some()))
        .collect();
    let mut columns = vec![wordy("cell", "cell"), wordy("model", "model")];
    columns.extend(names.iter().map(|name| Column {
        title: words(name),
        key: name.clone(),
        numeric: cells.iter().any(|c| c.number(name).is_some()),
    }));
    columns.push(wordy("status", "status"));
    columns.push(wordy("cause", "cause"));
    columns.extend(figures.iter().map(|f| numeric(f.head(), f.csv)));
    columns.extend([
        wordy("engine", "engine"),
        wordy("group", "group"),
        wordy("profile", "profile"),
        wordy("message", "message"),
    ]);
    let row = |cell: &&Tried| {
        let mut row = vec![Cell::text(&*cell.id), Cell::text(&*cell.model)];
        row.extend(names.iter().map(|name| {
            let words = cell.settings.get(name).cloned().unwrap_or_default();
            Cell {
                number: cell.number(name),
                ..Cell::text(words)
            }
        }));
        let simulated = if cell.simulated { " (simulated)" } else { "" };
        row.push(Cell::text(format!(
            "{}{simulated}",
            cell.status.replace('_', " ")
        )));
        row.push(Cell::text(cell.cause.clone().unwrap_or_default()));
        row.extend(figures.iter().map(|f| told(cell, f)));
        for text in [
            &cell.engine,
            &Some(cell.group.clone()),
            &cell.profile,
            &cell.message,
        ] {
            row.push(Cell::text(text.clone().unwrap_or_default()));
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
