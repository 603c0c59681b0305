//! Two profiles side by side: as a page, and as a table for spreadsheets.

use super::RenderError;
use super::figures::{format_gib, format_percent, gib_change, with_plus};
use super::layout::{Align, TextTable, format_figure};
use super::page::TextPage;
use super::spreadsheet::{figure_cell, write_table};
use super::text::TextOptions;
use crate::compare::Unit;
use crate::compare::profiles::{OtherRow, Pair, PairRow};
use crate::compare::subject::{Kind, Who};
use crate::units::GIB;

/// The page.
pub fn render_pair(pair: &Pair, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    for (letter, who) in [("A", &pair.profile1), ("B", &pair.profile2)] {
        page.write_aside(&format!("{letter} = {}", describe_profile(who)));
    }
    write_settings(&mut page, pair);
    page.write_asides("NOT COMPARABLE", &pair.incomparable);
    write_memory(&mut page, pair);
    others(&mut page, pair);
    page.write_asides("To know", &pair.warnings);
    page.write_asides("Unknown", &collect_reasons(pair));
    write_verdict(&mut page, pair);
    page.into_text()
}

/// `a.json: vllm 0.11.0, org/model, 2026-…  SIMULATED`.
pub(super) fn describe_profile(who: &Who) -> String {
    let engine = match (&who.engine, &who.engine_version) {
        (Some(engine), Some(version)) => format!("{engine} {version}"),
        (Some(engine), None) => format!("{engine} of unknown version"),
        (None, _) => "engine unknown".into(),
    };
    let model = who.model.as_deref().unwrap_or("model unknown");
    let mut text = format!("{}: {engine}, {model}", who.file);
    if let Some(timestamp) = &who.timestamp {
        text.push_str(&format!(", {timestamp}"));
    }
    if who.simulated {
        text.push_str("  SIMULATED");
    }
    text
}

fn write_settings(page: &mut TextPage, pair: &Pair) {
    page.write_title("Settings that differ");
    if pair.settings.is_empty() {
        page.write_line("  none that is known");
        return;
    }
    let mut table = TextTable::new(&[("", Align::Left), ("A", Align::Left), ("B", Align::Left)]);
    for d in &pair.settings {
        let word = |v: &Option<String>| v.clone().unwrap_or_else(|| "—".into());
        table.add_row(vec![
            d.setting.clone(),
            word(&d.profile1),
            word(&d.profile2),
        ]);
    }
    page.write_table(&table);
}

fn write_memory(page: &mut TextPage, pair: &Pair) {
    page.write_title("Memory at the peak, GiB");
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("B - A", Align::Right),
        ("%", Align::Right),
    ]);
    for row in &pair.components {
        let indent = match row.kind {
            Kind::Total => "",
            Kind::Part | Kind::Other => "  ",
            Kind::OfOverhead => "    ",
        };
        table.add_row(vec![
            format!("{indent}{}", row.label),
            format_gib(row.profile1_gb),
            format_gib(row.profile2_gb),
            gib_change(row.diff_gb),
            format_percent(row.diff_pct),
        ]);
    }
    page.write_table(&table);
}

fn others(page: &mut TextPage, pair: &Pair) {
    if pair.others.is_empty() {
        return;
    }
    page.write_title("Pool, latency, throughput");
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("B - A", Align::Right),
        ("%", Align::Right),
    ]);
    for row in &pair.others {
        let label = match row.unit {
            Unit::Bytes => format!("{}, GiB", row.label),
            _ => row.label.clone(),
        };
        let value = |v: Option<f64>| match row.unit {
            Unit::Bytes => format_gib(v.map(|b| b / GIB)),
            _ => v.map_or_else(|| "—".into(), format_figure),
        };
        let change = row
            .diff
            .map_or_else(|| "—".into(), |d| with_plus(d, value(Some(d))));
        table.add_row(vec![
            label,
            value(row.profile1),
            value(row.profile2),
            change,
            format_percent(row.diff_pct),
        ]);
    }
    page.write_table(&table);
}

/// Why figures are missing: each reason once, with all that it is the reason of.
fn collect_reasons(pair: &Pair) -> Vec<String> {
    let mut reasons: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for row in &pair.components {
        for (letter, why) in [("A", &row.profile1_unknown), ("B", &row.profile2_unknown)] {
            let Some(why) = why else { continue };
            match reasons
                .iter_mut()
                .find(|r| (r.0, r.1) == (letter, why.as_str()))
            {
                Some(reason) => reason.2.push(&row.label),
                None => reasons.push((letter, why, vec![&row.label])),
            }
        }
    }
    let sentence = |(letter, why, labels): (&str, &str, Vec<&str>)| {
        format!("{letter}, {}: {why}", labels.join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

fn write_verdict(page: &mut TextPage, pair: &Pair) {
    let Some(limit) = &pair.limit else { return };
    let labels = |keys: &[String]| {
        let rows = pair
            .components
            .iter()
            .filter(|r| keys.contains(&r.component));
        rows.map(|r| r.label.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    page.write_line("");
    if limit.exceeded.is_empty() {
        page.write_aside(&format!(
            "no component moved by more than {} %",
            limit.percent
        ))
    } else {
        page.write_aside(&format!(
            "MOVED BY MORE THAN {} %: {}",
            limit.percent,
            labels(&limit.exceeded)
        ))
    }
    if !limit.not_judged.is_empty() {
        page.write_aside(&format!(
            "not judged, because one side does not know them: {}",
            labels(&limit.not_judged)
        ));
    }
}

/// The table for spreadsheets.
///
/// # Errors
/// Why it could not be written.
pub fn pair_csv(pair: &Pair) -> Result<Vec<u8>, RenderError> {
    let head = [
        "component",
        "unit",
        "profile1",
        "profile2",
        "diff",
        "diff_pct",
        "profile1_source",
        "profile2_source",
    ];
    let component = |r: &PairRow| {
        vec![
            r.component.clone(),
            "GiB".into(),
            figure_cell(r.profile1_gb),
            figure_cell(r.profile2_gb),
            figure_cell(r.diff_gb),
            figure_cell(r.diff_pct),
            figure_cell(r.profile1_source.as_ref()),
            figure_cell(r.profile2_source.as_ref()),
        ]
    };
    let other = |r: &OtherRow| {
        let (unit, scale) = match r.unit {
            Unit::Bytes => ("GiB", GIB),
            Unit::Milliseconds => ("ms", 1.0),
            Unit::PerSecond => ("1/s", 1.0),
            Unit::Count => ("count", 1.0),
        };
        let value = |v: Option<f64>| figure_cell(v.map(|v| v / scale));
        vec![
            r.key.clone(),
            unit.into(),
            value(r.profile1),
            value(r.profile2),
            value(r.diff),
            figure_cell(r.diff_pct),
            String::new(),
            String::new(),
        ]
    };
    let setting = |d: &crate::compare::profiles::SettingDifference| {
        let mut row = vec![
            format!("setting:{}", d.setting),
            String::new(),
            figure_cell(d.profile1.as_ref()),
            figure_cell(d.profile2.as_ref()),
        ];
        row.resize(head.len(), String::new());
        row
    };
    let rows: Vec<Vec<String>> = (pair.settings.iter().map(setting))
        .chain(pair.components.iter().map(component))
        .chain(pair.others.iter().map(other))
        .collect();
    write_table(&head, &rows)
}
