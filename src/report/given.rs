//! Profiles against figures that were calculated elsewhere: as a page, and for spreadsheets.

use super::RenderError;
use super::compare::describe_profile;
use super::figures::{format_gib, format_percent, gib_change};
use super::layout::{Align, TextTable};
use super::page::TextPage;
use super::spreadsheet::{figure_cell, write_table};
use super::text::TextOptions;
use crate::compare::given::{GivenReport, GivenRow, LOOK_PERCENT, WRONG_PERCENT};

/// The page.
pub fn render_given(report: &GivenReport, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    for (i, p) in report.profiles.iter().enumerate() {
        if i > 0 {
            page.write_line("");
        }
        page.write_aside(&describe_profile(&p.profile));
        page.write_title("Measured against calculated, GiB over all GPUs");
        let mut table = TextTable::new(&[
            ("", Align::Left),
            ("measured", Align::Right),
            ("calculated", Align::Right),
            ("difference", Align::Right),
            ("%", Align::Right),
            ("", Align::Left),
            ("", Align::Left),
        ]);
        for row in &p.rows {
            table.add_row(vec![
                row.label.clone(),
                format_gib(row.measured_gb),
                format_gib(Some(row.calculated_gb)),
                gib_change(row.diff_gb),
                format_percent(row.error_pct),
                row.grade.map_or("", |g| g.display_label()).into(),
                grade_mark(row).into(),
            ]);
        }
        page.write_table(&table);
        page.write_asides("To know", &p.warnings);
        let why = |r: &GivenRow| Some(format!("{}: {}", r.label, r.unknown.as_ref()?));
        page.write_asides(
            "Unknown",
            &p.rows.iter().filter_map(why).collect::<Vec<_>>(),
        );
        if p.rows.iter().any(|r| r.measured_gb.is_some()) {
            let nothing = format!("none: no part is off by more than {LOOK_PERCENT} %");
            if p.recommendations.is_empty() {
                page.write_asides("Recommendations", &[nothing])
            } else {
                page.write_asides("Recommendations", &p.recommendations)
            }
        }
    }
    if report.profiles.len() > 1 {
        write_summary(&mut page, report);
    }
    if let Some(limit) = &report.limit {
        page.write_line("");
        if limit.exceeded.is_empty() {
            page.write_aside(&format!(
                "no figure is off by more than {} %",
                limit.percent
            ))
        } else {
            page.write_aside(&format!(
                "OFF BY MORE THAN {} %: {}",
                limit.percent,
                limit.exceeded.join(", ")
            ))
        }
        if !limit.not_judged.is_empty() {
            page.write_aside(&format!(
                "not judged, because not measured: {}",
                limit.not_judged.join(", ")
            ));
        }
    }
    page.into_text()
}

fn grade_mark(row: &GivenRow) -> &'static str {
    match (row.measured_gb, row.error_pct) {
        (None, _) => "",
        (Some(_), Some(e)) if e.abs() <= LOOK_PERCENT => "",
        (Some(_), Some(e)) if e.abs() <= WRONG_PERCENT => "worth a look",
        _ => "WRONG",
    }
}

fn write_summary(page: &mut TextPage, report: &GivenReport) {
    page.write_title(&format!("Over {} profiles", report.profiles.len()));
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("compared", Align::Right),
        ("median error, %", Align::Right),
        ("mean size, %", Align::Right),
    ]);
    for s in &report.summary {
        let size = s
            .mean_abs_error_pct
            .map_or_else(|| "—".into(), |e| format!("{e:.1}"));
        table.add_row(vec![
            s.label.clone(),
            s.n.to_string(),
            format_percent(s.median_error_pct),
            size,
        ]);
    }
    page.write_table(&table);
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
