//! Measured against calculated over many runs: the page, and the table for spreadsheets.

use super::RenderError;
use super::figures::{format_percent, gib_of};
use super::layout::{Align, TextTable, grouped_count};
use super::page::TextPage;
use super::spreadsheet::{figure_cell, write_table};
use super::text::TextOptions;
use crate::compare::calculated::Item;
use crate::compare::validate::{Group, ItemRow, RunValidation, Validation};

/// More runs than this are shown in the table only.
const MOST_RUNS_IN_FULL: usize = 12;

/// The page.
pub fn render_validation(validation: &Validation, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    let n = validation.runs.len();
    let runs = if n == 1 { "run" } else { "runs" };
    page.write_line(&format!("Measured against calculated: {n} {runs}"));
    if n <= MOST_RUNS_IN_FULL {
        validation.runs.iter().for_each(|r| write_run(&mut page, r));
    }
    for g in validation.groups.iter().filter(|g| !g.items.is_empty()) {
        // One run is shown above.
        if n > 1 {
            group(&mut page, g);
        }
    }
    page.write_asides("Recommendations", &validation.recommendations);
    let skipped = |s: &crate::compare::validate::Skipped| format!("{}: {}", s.file, s.why);
    page.write_asides(
        "Not validated",
        &validation.skipped.iter().map(skipped).collect::<Vec<_>>(),
    );
    if let Some(limit) = &validation.limit {
        page.write_line("");
        let most = match limit.percent {
            Some(p) => format!("{p} %"),
            None => "its tolerance".into(),
        };
        match (limit.judged, limit.exceeded.is_empty()) {
            (0, _) => page.write_aside("nothing could be judged"),
            (judged, true) => page.write_aside(&format!(
                "none of {judged} figures is off by more than {most}"
            )),
            (judged, false) => {
                let off = limit.exceeded.len();
                page.write_aside(&format!(
                    "OFF BY MORE THAN {most}: {off} of {judged} figures"
                ));
                limit.exceeded.iter().for_each(|e| page.write_aside(e));
            }
        }
    }
    page.into_text()
}

fn write_run(page: &mut TextPage, run: &RunValidation) {
    page.write_line("");
    let version = run
        .engine_version
        .as_deref()
        .unwrap_or("of unknown version");
    let model = run.model.as_deref().unwrap_or("model unknown");
    page.write_aside(&format!("{}: {} {version}, {model}", run.file, run.engine));
    if !run.basis.is_empty() {
        page.write_aside(&format!("calculated from {}", run.basis));
    }
    let mut table = TextTable::new(&[
        ("GiB on the fullest GPU", Align::Left),
        ("measured", Align::Right),
        ("calculated", Align::Right),
        ("error, %", Align::Right),
        ("allowed", Align::Right),
        ("", Align::Left),
        ("band", Align::Left),
    ]);
    for row in &run.items {
        table.add_row(vec![
            row.item.display_label().into(),
            format_value(row.item, row.measured),
            format_value(row.item, row.calculated.map(|c| c as f64)),
            format_percent(row.error_pct),
            format!("{}", row.tolerance_pct),
            judgement(row),
            match row.in_band {
                Some(true) => "inside".into(),
                Some(false) => "OUTSIDE".into(),
                None => String::new(),
            },
        ]);
    }
    page.write_table(&table);
    run.warnings.iter().for_each(|w| page.write_aside(w));
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &run.items {
        let Some(why) = &row.unknown else { continue };
        match said.iter_mut().find(|s| s.0 == why) {
            Some(s) => s.1.push(row.item.display_label()),
            None => said.push((why, vec![row.item.display_label()])),
        }
    }
    for (why, items) in said {
        page.write_aside(&format!("{}: {why}", items.join(", ")));
    }
}

fn judgement(row: &ItemRow) -> String {
    match (row.grade, row.within_tolerance) {
        (Some(grade), Some(true)) => grade.display_label().into(),
        (Some(grade), Some(false)) => format!("{}, beyond its tolerance", grade.display_label()),
        _ => String::new(),
    }
}

fn format_value(item: Item, figure: Option<f64>) -> String {
    match (item, figure) {
        (Item::KvTokens, Some(tokens)) => grouped_count(tokens.max(0.0).round() as u64),
        (_, figure) => gib_of(figure),
    }
}

fn group(page: &mut TextPage, g: &Group) {
    let title = match g.by.as_str() {
        "all" => "All".to_owned(),
        "engine" => format!("Engine {}", g.name),
        _ => format!("Family {}", g.name),
    };
    let runs = if g.runs == 1 { "run" } else { "runs" };
    page.write_title(&format!("{title}, {} {runs}", g.runs));
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("compared", Align::Right),
        ("within tolerance", Align::Right),
        ("median error, %", Align::Right),
        ("mean size, %", Align::Right),
        ("largest, %", Align::Right),
        ("in band", Align::Right),
    ]);
    let size = |v: Option<f64>| v.map_or_else(|| "—".into(), |e| format!("{e:.1}"));
    for i in &g.items {
        table.add_row(vec![
            i.item.display_label().into(),
            i.n.to_string(),
            i.within_tolerance.to_string(),
            format_percent(i.median_error_pct),
            size(i.mean_abs_error_pct),
            size(i.max_abs_error_pct),
            match i.banded {
                0 => "—".into(),
                n => format!("{} of {n}", i.in_band),
            },
        ]);
    }
    page.write_table(&table);
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
