//! What was learned of overheads, as a report.

use super::content::{Chapter, ContentBlock, Grid, Report, TableCell, number_column, text_column};
use super::figures::{count_cell, gib_text};
use super::layout::counted_noun;
use crate::estimate::calibration::{Calibration, CalibrationRun, FEWEST_RUNS, Learned};
use crate::units::to_gib;

/// The report of the database. `skipped` are the runs that taught nothing, by reason.
pub fn calibration_report(calibration: &Calibration, skipped: &[(String, u64)]) -> Report {
    let mut chapters = Vec::new();
    if !calibration.entries.is_empty() {
        let blocks = vec![
            ContentBlock::Text(format!(
                "GiB on the fullest GPU: median, first to third quartile, runs; fewer than {FEWEST_RUNS} runs are no data."
            )),
            ContentBlock::Table(overheads_table(calibration)),
        ];
        chapters.push(Chapter::of_blocks("overheads", "Overheads", blocks));
    }
    chapters.extend(last_starts(calibration));
    let reasons: Vec<String> = (skipped.iter())
        .map(|(why, n)| format!("{n} of them: {why}"))
        .collect();
    chapters.extend(Chapter::of_sentences("skipped", "Not used", &reasons));
    let runs = counted_noun(calibration.runs.len(), "run");
    Report {
        title: format!("Learned from {runs}"),
        chapters,
        ..Report::default()
    }
}

fn overheads_table(calibration: &Calibration) -> Grid {
    let rows = calibration.entries.iter().map(|e| {
        vec![
            TableCell::text_cell(format!("{} {}", e.key.engine, e.key.version)),
            TableCell::text_cell(&e.key.attention),
            TableCell::text_cell(&e.key.dtype),
            count_cell(e.key.tp),
            TableCell::text_cell(&e.key.gpu),
            TableCell::text_cell(describe_learned(&e.activation)),
            TableCell::text_cell(describe_learned(&e.non_torch)),
            TableCell::text_cell(describe_learned(&e.cuda_graphs)),
        ]
    });
    Grid {
        id: "overheads".into(),
        caption: String::new(),
        columns: vec![
            text_column("engine", "engine"),
            text_column("attention", "attention"),
            text_column("type", "dtype"),
            number_column("TP", "tp"),
            text_column("GPU", "gpu"),
            text_column("activation peak", "activation"),
            text_column("non-torch", "non_torch"),
            text_column("CUDA graphs", "cuda_graphs"),
        ],
        rows: rows.collect(),
    }
}

fn describe_learned(learned: &Learned) -> String {
    let gib = |bytes: u64| format!("{:.2}", to_gib(bytes));
    match learned.figures {
        Some(f) => format!(
            "{}, {} to {}, {}",
            gib(f.median),
            gib(f.q1),
            gib(f.q3),
            learned.n
        ),
        None if learned.n == 0 => "no data".into(),
        None => format!("no data ({})", learned.n),
    }
}

/// CUDA graphs as each model last took them.
fn last_starts(calibration: &Calibration) -> Option<Chapter> {
    let same = |r: &CalibrationRun| {
        let k = &r.key;
        calibration.last_start(&r.model, |of| {
            (&of.engine, &of.version, &of.gpu, of.tp) == (&k.engine, &k.version, &k.gpu, k.tp)
        })
    };
    let last = calibration
        .runs
        .iter()
        .filter(|r| same(r).is_some_and(|last| last.run_id == r.run_id));
    let rows: Vec<Vec<TableCell>> = last
        .map(|r| {
            let gib = to_gib(r.cuda_graphs.unwrap_or_default());
            vec![
                TableCell::text_cell(&r.model),
                TableCell::text_cell(format!("{} {}", r.key.engine, r.key.version)),
                TableCell::text_cell(&r.key.gpu),
                count_cell(r.key.tp),
                TableCell::number_cell(gib, gib_text(gib)),
                TableCell::text_cell(&r.timestamp),
            ]
        })
        .collect();
    let grid = Grid {
        id: "last_starts".into(),
        caption: String::new(),
        columns: vec![
            text_column("model", "model"),
            text_column("engine", "engine"),
            text_column("GPU", "gpu"),
            number_column("TP", "tp"),
            number_column("GiB", "cuda_graphs_gib"),
            text_column("when", "timestamp"),
        ],
        rows,
    };
    let blocks = || vec![ContentBlock::Table(grid.clone())];
    let title = "CUDA graphs at the last start";
    (!grid.rows.is_empty()).then(|| Chapter::of_blocks("last_starts", title, blocks()))
}
