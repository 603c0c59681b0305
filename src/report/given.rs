//! Profiles against figures that were calculated elsewhere: as a report, and for spreadsheets.

use super::RenderError;
use super::compare::describe_profile;
use super::content::{
    Answer, AnswerState, Chapter, ContentBlock, Grid, Report, TableCell, note_block, number_column,
    text_column,
};
use super::figures::{cell_by, change_cell, count_cell, gib_cell, gib_text, percent_cell};
use super::spreadsheet::{figure_cell, write_table};
use crate::compare::given::{GivenProfile, GivenReport, GivenRow, LOOK_PERCENT, WRONG_PERCENT};
use crate::engine::facts::Severity;

/// The report.
pub fn given_report(report: &GivenReport) -> Report {
    let mut chapters: Vec<Chapter> = (report.profiles.iter().enumerate())
        .map(|(i, p)| profile_chapter(i, p))
        .collect();
    if report.profiles.len() > 1 {
        chapters.push(summary_chapter(report));
    }
    Report {
        title: "Measured against calculated".into(),
        answer: limit_answer(report),
        chapters,
        ..Report::default()
    }
}

fn limit_answer(report: &GivenReport) -> Option<Answer> {
    let limit = report.limit.as_ref()?;
    let (state, mut verdict) = if limit.exceeded.is_empty() {
        let text = format!("No figure is off by more than {} %.", limit.percent);
        (AnswerState::Safe, text)
    } else {
        let exceeded = limit.exceeded.join(", ");
        let text = format!("OFF BY MORE THAN {} %: {exceeded}.", limit.percent);
        (AnswerState::Failed, text)
    };
    if !limit.not_judged.is_empty() {
        let unknown = limit.not_judged.join(", ");
        verdict.push_str(&format!(" Not judged, as not measured: {unknown}."));
    }
    Some(Answer {
        state,
        verdict,
        ..Answer::default()
    })
}

fn profile_chapter(i: usize, p: &GivenProfile) -> Chapter {
    let row = |row: &GivenRow| {
        let why = row.unknown.as_deref().unwrap_or("unknown");
        vec![
            TableCell::text_cell(&row.label),
            gib_cell(row.measured_gb, why),
            gib_cell(Some(row.calculated_gb), ""),
            change_cell(row.diff_gb, why, gib_text),
            percent_cell(row.error_pct, why),
            TableCell::text_cell(row.grade.map_or("", |g| g.display_label())),
            TableCell::text_cell(grade_mark(row)),
        ]
    };
    let mut blocks = vec![ContentBlock::Table(Grid {
        id: format!("given_{}", i + 1),
        caption: "GiB over all GPUs".into(),
        columns: vec![
            text_column("part", "part"),
            number_column("measured", "measured_gib"),
            number_column("calculated", "calculated_gib"),
            number_column("difference", "diff_gib"),
            number_column("%", "error_pct"),
            text_column("grade", "grade"),
            text_column("", "mark"),
        ],
        rows: p.rows.iter().map(row).collect(),
    })];
    let warnings = p.warnings.iter();
    blocks.extend(warnings.map(|w| note_block(Severity::Warning, "to_know", w.clone())));
    let measured = p.rows.iter().any(|r| r.measured_gb.is_some());
    if measured && p.recommendations.is_empty() {
        let text = format!("No part is off by more than {LOOK_PERCENT} %.");
        blocks.push(ContentBlock::Text(text));
    }
    blocks.extend(p.recommendations.iter().cloned().map(ContentBlock::Text));
    let id = format!("given{}", i + 1);
    Chapter::of_blocks(&id, describe_profile(&p.profile), blocks)
}

fn grade_mark(row: &GivenRow) -> &'static str {
    match (row.measured_gb, row.error_pct) {
        (None, _) => "",
        (Some(_), Some(e)) if e.abs() <= LOOK_PERCENT => "",
        (Some(_), Some(e)) if e.abs() <= WRONG_PERCENT => "worth a look",
        _ => "WRONG",
    }
}

fn summary_chapter(report: &GivenReport) -> Chapter {
    let rows = report.summary.iter().map(|s| {
        vec![
            TableCell::text_cell(&s.label),
            count_cell(s.n),
            percent_cell(s.median_error_pct, "nothing was compared"),
            cell_by(s.mean_abs_error_pct, "nothing was compared", |p| {
                format!("{p:.1}")
            }),
        ]
    });
    let grid = Grid {
        id: "given_summary".into(),
        caption: String::new(),
        columns: vec![
            text_column("part", "part"),
            number_column("compared", "compared"),
            number_column("median error, %", "median_error_pct"),
            number_column("mean size, %", "mean_abs_error_pct"),
        ],
        rows: rows.collect(),
    };
    let title = format!("Over {} profiles", report.profiles.len());
    Chapter::of_blocks("given_all", title, vec![ContentBlock::Table(grid)])
}

/// The table for spreadsheets.
///
/// # Errors
/// Why it could not be written.
pub fn given_csv(report: &GivenReport) -> Result<Vec<u8>, RenderError> {
    let head = [
        "profile",
        "component",
        "measured_gib",
        "calculated_gib",
        "diff_gib",
        "error_pct",
        "grade",
        "unknown",
    ];
    let rows: Vec<Vec<String>> = report
        .profiles
        .iter()
        .flat_map(|p| {
            p.rows.iter().map(|r| {
                vec![
                    p.profile.file.clone(),
                    r.component.clone(),
                    figure_cell(r.measured_gb),
                    figure_cell(Some(r.calculated_gb)),
                    figure_cell(r.diff_gb),
                    figure_cell(r.error_pct),
                    figure_cell(r.grade.map(|g| g.display_label())),
                    figure_cell(r.unknown.as_ref()),
                ]
            })
        })
        .collect();
    write_table(&head, &rows)
}
