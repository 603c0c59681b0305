//! Measured against calculated over many runs: the report, and the table for spreadsheets.

use super::content::{Answer, AnswerState, Chapter, ContentBlock, Report, TableCell};
use super::figures::{cell_by, gib_cell, percent_cell};
use super::json::joined;
use super::layout::{counted_noun, grouped_count};
use super::spreadsheet::write_fields;
use super::tables::TableBuilder;
use crate::compare::calculated::Item;
use crate::compare::validate::{ErrorLimit, Group, ItemRow, RunValidation, Validation};
use crate::engine::shown_name;
use crate::units::GIB;
use serde_json::json;

/// More runs than this are shown in the table only.
const MOST_RUNS_IN_FULL: usize = 12;

/// The report.
pub fn validation_report(validation: &Validation) -> Report {
    let n = validation.runs.len();
    let mut chapters = Vec::new();
    if n <= MOST_RUNS_IN_FULL {
        chapters.extend(validation.runs.iter().enumerate().map(run_chapter));
    }
    // One run is shown above.
    let groups = (validation.groups.iter()).filter(|g| n > 1 && !g.items.is_empty());
    let groups: Vec<&Group> = groups.collect();
    // Where there is one engine, its table would say the same again.
    let distinct = groups.chunk_by(|a, b| a.items == b.items);
    chapters.extend(distinct.enumerate().map(group_chapter));
    let skipped = (validation.skipped.iter()).map(|s| format!("{}: {}", s.file, s.why));
    let skipped: Vec<String> = skipped.collect();
    let advice = &validation.recommendations;
    chapters.extend(Chapter::of_sentences(
        "recommendations",
        "Recommendations",
        advice,
    ));
    chapters.extend(Chapter::of_sentences("skipped", "Not validated", &skipped));
    let title = format!("Measured against calculated: {}", counted_noun(n, "run"));
    Report::of_chapters(title, answer_of_validation(validation), chapters)
}

/// How many figures are within their tolerance; with a limit, whether it is kept; how many lie in their interval.
fn answer_of_validation(validation: &Validation) -> Answer {
    let items = validation.runs.iter().flat_map(|run| &run.items);
    let count = |pick: fn(&ItemRow) -> Option<bool>| {
        let known: Vec<bool> = items.clone().filter_map(pick).collect();
        (known.iter().filter(|yes| **yes).count(), known.len())
    };
    let (state, mut verdict) = match &validation.limit {
        Some(limit) => answer_of_limit(limit),
        None => {
            let (within, all) = count(|i| i.within_tolerance);
            let text = match counted_noun(all, "figure") {
                _ if all == 0 => "Nothing could be compared.".to_owned(),
                figures => format!("{within} of {figures} within tolerance."),
            };
            (AnswerState::Unknown, text)
        }
    };
    if let (inside, all @ 1..) = count(|i| i.in_band) {
        let all = counted_noun(all, "measurement");
        verdict.push_str(&format!(
            " A second test: {inside} of {all} in the estimate's 90 % interval."
        ));
    }
    Answer::of_verdict(state, verdict)
}

fn answer_of_limit(limit: &ErrorLimit) -> (AnswerState, String) {
    let most = match limit.percent {
        Some(p) => format!("{p} %"),
        None => "its tolerance".into(),
    };
    let judged = limit.judged;
    match (judged, limit.exceeded.len()) {
        (0, _) => (AnswerState::Unknown, "Nothing could be judged.".into()),
        (_, 0) => {
            let text = format!("None of {judged} figures is off by more than {most}.");
            (AnswerState::Safe, text)
        }
        (_, off) => {
            let all = limit.exceeded.join("; ");
            let text = format!("OFF BY MORE THAN {most}: {off} of {judged} figures: {all}.");
            (AnswerState::Failed, text)
        }
    }
}

fn run_chapter((i, run): (usize, &RunValidation)) -> Chapter {
    let version = (run.engine_version.as_deref()).unwrap_or("of unknown version");
    let model = run.model.as_deref().unwrap_or("model unknown");
    let mut blocks = Vec::new();
    if !run.basis.is_empty() {
        let text = format!("Calculated from {}.", run.basis);
        blocks.push(ContentBlock::Text(text));
    }
    let why = |row: &ItemRow| row.unknown.clone().unwrap_or_else(|| "unknown".into());
    let grid = TableBuilder::of_items(&run.items)
        .words("part", "item", |row| row.item.display_label())
        .figures("measured", "measured", |row| {
            item_cell(row.item, row.measured, &why(row))
        })
        .figures("calculated", "calculated", |row| {
            item_cell(row.item, row.calculated.map(|c| c as f64), &why(row))
        })
        .figures("error, %", "error_pct", |row| {
            percent_cell(row.error_pct, &why(row))
        })
        .figures("allowed", "tolerance_pct", |row| {
            TableCell::number_cell(row.tolerance_pct, row.tolerance_pct.to_string())
        })
        .words("grade", "grade", judgement)
        .words("in interval", "band", |row| match row.in_band {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        })
        .grid(format!("validation_{}", i + 1), "GiB on the fullest GPU");
    blocks.push(ContentBlock::Table(grid));
    blocks.extend(run.warnings.iter().cloned().map(ContentBlock::Text));
    let (file, engine) = (&run.file, shown_name(&run.engine));
    let title = format!("{file}: {engine} {version}, {model}");
    Chapter::of_blocks(&format!("run{}", i + 1), title, blocks)
}

fn judgement(row: &ItemRow) -> String {
    match (row.grade, row.within_tolerance) {
        (Some(grade), Some(true)) => grade.display_label().into(),
        (Some(grade), Some(false)) => format!("{}, beyond its tolerance", grade.display_label()),
        _ => String::new(),
    }
}

/// Tokens, or GiB.
fn item_cell(item: Item, figure: Option<f64>, why: &str) -> TableCell {
    match item {
        Item::KvTokens => cell_by(figure, why, |tokens| {
            grouped_count(tokens.max(0.0).round() as u64)
        }),
        _ => gib_cell(figure.map(|bytes| bytes / GIB), why),
    }
}

/// Groups with the same figures, under the names of all.
fn group_chapter((i, same): (usize, &[&Group])) -> Chapter {
    let names = same.iter().map(|g| match g.by.as_str() {
        "all" => "All".to_owned(),
        "engine" => format!("Engine {}", shown_name(&g.name)),
        _ => format!("Family {}", g.name),
    });
    let title = names.collect::<Vec<_>>().join(", ");
    let g = same[0];
    let nothing = "nothing was compared";
    let size = |v: Option<f64>| cell_by(v, nothing, |e| format!("{e:.1}"));
    let grid = TableBuilder::of_items(&g.items)
        .words("part", "item", |i| i.item.display_label())
        .figures("within tolerance", "within_tolerance", |i| {
            TableCell::text_cell(format!("{} of {}", i.within_tolerance, i.n))
        })
        .figures("in interval", "in_band", |i| {
            TableCell::text_cell(match i.banded {
                0 => String::new(),
                n => format!("{} of {n}", i.in_band),
            })
        })
        .figures("median error, %", "median_error_pct", |i| {
            percent_cell(i.median_error_pct, nothing)
        })
        .figures("mean size, %", "mean_abs_error_pct", |i| {
            size(i.mean_abs_error_pct)
        })
        .figures("largest, %", "max_abs_error_pct", |i| {
            size(i.max_abs_error_pct)
        })
        .grid(format!("group_{}", i + 1), "");
    let title = format!("{title}, {}", counted_noun(g.runs as usize, "run"));
    let id = format!("group{}", i + 1);
    Chapter::of_blocks(&id, title, vec![ContentBlock::Table(grid)])
}

/// The table for spreadsheets: a row for each item of each run.
pub fn validation_csv(validation: &Validation) -> Vec<u8> {
    let rows = validation.runs.iter().flat_map(|run| {
        let mut of_run = json!(run);
        // A row needs its own item, not a copy of all.
        of_run["items"].take();
        run.items.iter().map(move |row| {
            let unit = match row.item {
                Item::KvTokens => "tokens",
                _ => "bytes",
            };
            let grade = row.grade.map(|g| g.display_label());
            let further = json!({"unit": unit, "grade": grade});
            joined([of_run.clone(), json!(row), further])
        })
    });
    write_fields(
        "file run_id model family engine engine_version item unit measured calculated error_pct \
         tolerance_pct within_tolerance grade in_band measured_source unknown",
        rows,
    )
}
