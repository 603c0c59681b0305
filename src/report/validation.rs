//! Measured against calculated over many runs: the report, and the table for spreadsheets.

use super::RenderError;
use super::content::{
    Answer, AnswerState, Chapter, ContentBlock, Grid, Report, TableCell, number_column, text_column,
};
use super::figures::{cell_by, count_cell, gib_cell, percent_cell};
use super::layout::{counted_noun, grouped_count};
use super::spreadsheet::{figure_cell, write_table};
use crate::compare::calculated::Item;
use crate::compare::validate::{Group, ItemRow, RunValidation, Validation};
use crate::units::GIB;

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
    chapters.extend(groups.enumerate().map(group_chapter));
    let skipped: Vec<String> = (validation.skipped.iter())
        .map(|s| format!("{}: {}", s.file, s.why))
        .collect();
    chapters.extend(Chapter::of_sentences(
        "recommendations",
        "Recommendations",
        &validation.recommendations,
    ));
    chapters.extend(Chapter::of_sentences("skipped", "Not validated", &skipped));
    Report {
        title: format!("Measured against calculated: {}", counted_noun(n, "run")),
        answer: limit_answer(validation),
        chapters,
        ..Report::default()
    }
}

fn limit_answer(validation: &Validation) -> Option<Answer> {
    let limit = validation.limit.as_ref()?;
    let most = match limit.percent {
        Some(p) => format!("{p} %"),
        None => "its tolerance".into(),
    };
    let judged = limit.judged;
    let (state, verdict) = match (judged, limit.exceeded.len()) {
        (0, _) => (AnswerState::Unknown, "Nothing could be judged.".into()),
        (_, 0) => (
            AnswerState::Safe,
            format!("None of {judged} figures is off by more than {most}."),
        ),
        (_, off) => {
            let all = limit.exceeded.join("; ");
            let text = format!("OFF BY MORE THAN {most}: {off} of {judged} figures: {all}.");
            (AnswerState::Failed, text)
        }
    };
    Some(Answer {
        state,
        verdict,
        ..Answer::default()
    })
}

fn run_chapter((i, run): (usize, &RunValidation)) -> Chapter {
    let version = run
        .engine_version
        .as_deref()
        .unwrap_or("of unknown version");
    let model = run.model.as_deref().unwrap_or("model unknown");
    let mut blocks = Vec::new();
    if !run.basis.is_empty() {
        let text = format!("Calculated from {}.", run.basis);
        blocks.push(ContentBlock::Text(text));
    }
    let row = |row: &ItemRow| {
        let why = row.unknown.as_deref().unwrap_or("unknown");
        let band = match row.in_band {
            Some(true) => "inside",
            Some(false) => "OUTSIDE",
            None => "",
        };
        vec![
            TableCell::text_cell(row.item.display_label()),
            item_cell(row.item, row.measured, why),
            item_cell(row.item, row.calculated.map(|c| c as f64), why),
            percent_cell(row.error_pct, why),
            TableCell::number_cell(row.tolerance_pct, row.tolerance_pct.to_string()),
            TableCell::text_cell(judgement(row)),
            TableCell::text_cell(band),
        ]
    };
    blocks.push(ContentBlock::Table(Grid {
        id: format!("validation_{}", i + 1),
        caption: "GiB on the fullest GPU".into(),
        columns: vec![
            text_column("part", "item"),
            number_column("measured", "measured"),
            number_column("calculated", "calculated"),
            number_column("error, %", "error_pct"),
            number_column("allowed", "tolerance_pct"),
            text_column("grade", "grade"),
            text_column("band", "band"),
        ],
        rows: run.items.iter().map(row).collect(),
    }));
    blocks.extend(run.warnings.iter().cloned().map(ContentBlock::Text));
    let title = format!("{}: {} {version}, {model}", run.file, run.engine);
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

fn group_chapter((i, g): (usize, &Group)) -> Chapter {
    let title = match g.by.as_str() {
        "all" => "All".to_owned(),
        "engine" => format!("Engine {}", g.name),
        _ => format!("Family {}", g.name),
    };
    let size = |v: Option<f64>| cell_by(v, "nothing was compared", |e| format!("{e:.1}"));
    let rows = g.items.iter().map(|i| {
        vec![
            TableCell::text_cell(i.item.display_label()),
            count_cell(i.n),
            count_cell(i.within_tolerance),
            percent_cell(i.median_error_pct, "nothing was compared"),
            size(i.mean_abs_error_pct),
            size(i.max_abs_error_pct),
            match i.banded {
                0 => TableCell::missing_cell("no band is known"),
                n => TableCell::text_cell(format!("{} of {n}", i.in_band)),
            },
        ]
    });
    let grid = Grid {
        id: format!("group_{}", i + 1),
        caption: String::new(),
        columns: vec![
            text_column("part", "item"),
            number_column("compared", "compared"),
            number_column("within tolerance", "within_tolerance"),
            number_column("median error, %", "median_error_pct"),
            number_column("mean size, %", "mean_abs_error_pct"),
            number_column("largest, %", "max_abs_error_pct"),
            number_column("in band", "in_band"),
        ],
        rows: rows.collect(),
    };
    let title = format!("{title}, {}", counted_noun(g.runs as usize, "run"));
    Chapter::of_blocks(
        &format!("group{}", i + 1),
        title,
        vec![ContentBlock::Table(grid)],
    )
}

/// The table for spreadsheets: a row for each item of each run.
///
/// # Errors
/// Why it could not be written.
pub fn validation_csv(validation: &Validation) -> Result<Vec<u8>, RenderError> {
    let head = [
        "file",
        "run_id",
        "model",
        "family",
        "engine",
        "engine_version",
        "item",
        "unit",
        "measured",
        "calculated",
        "error_pct",
        "tolerance_pct",
        "within_tolerance",
        "grade",
        "in_band",
        "measured_source",
        "unknown",
    ];
    let rows: Vec<Vec<String>> = validation
        .runs
        .iter()
        .flat_map(|run| {
            run.items.iter().map(|r| {
                vec![
                    run.file.clone(),
                    run.run_id.clone(),
                    figure_cell(run.model.as_ref()),
                    run.family.clone(),
                    run.engine.clone(),
                    figure_cell(run.engine_version.as_ref()),
                    r.item.document_key().into(),
                    if r.item == Item::KvTokens {
                        "tokens"
                    } else {
                        "bytes"
                    }
                    .into(),
                    figure_cell(r.measured),
                    figure_cell(r.calculated),
                    figure_cell(r.error_pct),
                    figure_cell(Some(r.tolerance_pct)),
                    figure_cell(r.within_tolerance),
                    figure_cell(r.grade.map(|g| g.display_label())),
                    figure_cell(r.in_band),
                    figure_cell(r.measured_source.as_ref()),
                    figure_cell(r.unknown.as_ref()),
                ]
            })
        })
        .collect();
    write_table(&head, &rows)
}
