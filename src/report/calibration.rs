//! What was learned of overheads, as a report.

use super::content::{Answer, AnswerState, Chapter, ContentBlock, Grid, Report};
use super::figures::{count_cell, gib_cell};
use super::layout::counted_noun;
use super::tables::TableBuilder;
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
    let entries = calibration.entries.iter();
    let enough =
        entries.filter(|e| e.activation.figures.is_some() || e.non_torch.figures.is_some());
    let verdict = format!(
        "{} of {} have the {FEWEST_RUNS} runs that an estimate takes overheads from.",
        enough.count(),
        counted_noun(calibration.entries.len(), "deployment")
    );
    let answer = Answer::of_verdict(AnswerState::Unknown, verdict);
    Report::of_chapters(format!("Learned from {runs}"), answer, chapters)
}

fn overheads_table(calibration: &Calibration) -> Grid {
    TableBuilder::of_items(&calibration.entries)
        .words("engine", "engine", |e| {
            format!("{} {}", e.key.engine, e.key.version)
        })
        .words("attention", "attention", |e| &e.key.attention)
        .words("type", "dtype", |e| &e.key.dtype)
        .figures("TP", "tp", |e| count_cell(e.key.tp))
        .words("GPU", "gpu", |e| &e.key.gpu)
        .words("activation peak", "activation", |e| {
            describe_learned(&e.activation)
        })
        .words("non-torch", "non_torch", |e| describe_learned(&e.non_torch))
        .words("CUDA graphs", "cuda_graphs", |e| {
            describe_learned(&e.cuda_graphs)
        })
        .grid("overheads", "")
}

fn describe_learned(learned: &Learned) -> String {
    let gib = |bytes: u64| format!("{:.2}", to_gib(bytes));
    match learned.figures {
        Some(f) => {
            let [median, q1, q3] = [f.median, f.q1, f.q3].map(gib);
            format!("{median}, {q1} to {q3}, {}", learned.n)
        }
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
    let is_last = |r: &&CalibrationRun| same(r).is_some_and(|last| last.run_id == r.run_id);
    let last = calibration.runs.iter().filter(is_last);
    let grid = TableBuilder::of_items(last)
        .words("model", "model", |r| &r.model)
        .words("engine", "engine", |r| {
            format!("{} {}", r.key.engine, r.key.version)
        })
        .words("GPU", "gpu", |r| &r.key.gpu)
        .figures("TP", "tp", |r| count_cell(r.key.tp))
        .figures("GiB", "cuda_graphs_gib", |r| {
            gib_cell(r.cuda_graphs.map(to_gib), "no CUDA graphs were captured")
        })
        .words("when", "timestamp", |r| &r.timestamp)
        .grid_of_rows("last_starts", "")?;
    let (title, blocks) = (
        "CUDA graphs at the last start",
        vec![ContentBlock::Table(grid)],
    );
    Some(Chapter::of_blocks("last_starts", title, blocks))
}
