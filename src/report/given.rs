//! Profiles against figures that were calculated elsewhere: as a report, and for spreadsheets.

use super::compare::describe_profile;
use super::content::{Answer, AnswerState, Chapter, ContentBlock, Report, note_block};
use super::figures::{
    cell_by, change_cell, count_cell, gib_cell, gib_text, percent_cell, percent_text,
};
use super::json::joined;
use super::spreadsheet::write_fields;
use super::tables::TableBuilder;
use crate::compare::given::{GivenProfile, GivenReport, GivenRow, LOOK_PERCENT, WRONG_PERCENT};
use crate::engine::facts::Severity;
use serde_json::json;

/// The report.
pub fn given_report(report: &GivenReport) -> Report {
    let mut chapters: Vec<Chapter> = (report.profiles.iter().enumerate())
        .map(|(i, p)| profile_chapter(i, p))
        .collect();
    if report.profiles.len() > 1 {
        chapters.push(summary_chapter(report));
    }
    let title = "Measured against calculated";
    Report::of_chapters(title, answer_of_given(report), chapters)
}

/// The largest error; with a limit, whether it is kept.
fn answer_of_given(report: &GivenReport) -> Answer {
    let Some(limit) = &report.limit else {
        let rows = report.profiles.iter().flat_map(|p| &p.rows);
        let known = rows.filter_map(|row| Some((row, row.error_pct?)));
        let largest = known.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
        let verdict = match largest.map(|(row, error)| (&row.label, percent_text(error))) {
            Some((label, error)) => format!("The largest error is {error} %: {label}."),
            None => "Nothing could be compared.".into(),
        };
        return Answer::of_verdict(AnswerState::Unknown, verdict);
    };
    let most = limit.percent.unwrap_or_default();
    let (state, mut verdict) = if limit.exceeded.is_empty() {
        let text = format!("No figure is off by more than {most} %.");
        (AnswerState::Safe, text)
    } else {
        let exceeded = limit.exceeded.join(", ");
        let text = format!("OFF BY MORE THAN {most} %: {exceeded}.");
        (AnswerState::Failed, text)
    };
    if !limit.not_judged.is_empty() {
        let unknown = limit.not_judged.join(", ");
        verdict.push_str(&format!(" Not judged, as not measured: {unknown}."));
    }
    Answer::of_verdict(state, verdict)
}

fn profile_chapter(i: usize, p: &GivenProfile) -> Chapter {
    let why = |row: &GivenRow| row.unknown.clone().unwrap_or_else(|| "unknown".into());
    let grid = TableBuilder::of_items(&p.rows)
        .words("part", "part", |row| &row.label)
        .figures("measured", "measured_gib", |row| {
            gib_cell(row.measured_gb, &why(row))
        })
        .figures("calculated", "calculated_gib", |row| {
            gib_cell(Some(row.calculated_gb), "")
        })
        .figures("difference", "diff_gib", |row| {
            change_cell(row.diff_gb, &why(row), gib_text)
        })
        .figures("%", "error_pct", |row| {
            percent_cell(row.error_pct, &why(row))
        })
        .words("grade", "grade", |row| {
            row.grade.map_or("", |g| g.display_label())
        })
        .words("to check", "mark", grade_mark)
        .grid(format!("given_{}", i + 1), "GiB over all GPUs");
    let mut blocks = vec![ContentBlock::Table(grid)];
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
    let nothing = "nothing was compared";
    let grid = TableBuilder::of_items(&report.summary)
        .words("part", "part", |s| &s.label)
        .figures("compared", "compared", |s| count_cell(s.n))
        .figures("median error, %", "median_error_pct", |s| {
            percent_cell(s.median_error_pct, nothing)
        })
        .figures("mean size, %", "mean_abs_error_pct", |s| {
            cell_by(s.mean_abs_error_pct, nothing, |p| format!("{p:.1}"))
        })
        .grid("given_summary", "");
    let title = format!("Over {} profiles", report.profiles.len());
    Chapter::of_blocks("given_all", title, vec![ContentBlock::Table(grid)])
}

/// The table for spreadsheets.
pub fn given_csv(report: &GivenReport) -> Vec<u8> {
    let rows = report.profiles.iter().flat_map(|p| {
        p.rows.iter().map(|row| {
            let grade = row.grade.map(|g| g.display_label());
            let further = json!({"profile": p.profile.file, "grade": grade});
            joined([json!(row), further])
        })
    });
    write_fields(
        "profile component measured_gib=measured_gb calculated_gib=calculated_gb diff_gib=diff_gb \
         error_pct grade unknown",
        rows,
    )
}
