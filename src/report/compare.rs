//! Two profiles side by side: as a page, and as a table for spreadsheets.

use super::RenderError;
use super::figures::{gib, gib_change, percent, plus};
use super::layout::{Align, Table, figure};
use super::page::Page;
use super::spreadsheet::{cell, table};
use super::text::TextOptions;
use crate::compare::Unit;
use crate::compare::profiles::{OtherRow, Pair, PairRow};
use crate::compare::subject::{Kind, Who};
use crate::units::GIB;

/// The page.
pub fn render(pair: &Pair, options: TextOptions) -> String {
    let mut page = Page::new(options);
    for (letter, who) in [("A", &pair.profile1), ("B", &pair.profile2)] {
        page.aside(&format!("{letter} = {}", describe(who)));
    }
    settings(&mut page, pair);
    page.asides("NOT COMPARABLE", &pair.incomparable);
    memory(&mut page, pair);
    others(&mut page, pair);
    page.asides("To know", &pair.warnings);
    page.asides("Unknown", &unknown(pair));
    verdict(&mut page, pair);
    page.into_text()
}

/// `a.json: vllm 0.11.0, org/model, 2026-…  SIMULATED`.
pub(super) fn describe(who: &Who) -> String {
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

fn settings(page: &mut Page, pair: &Pair) {
    page.title("Settings that differ");
    if pair.settings.is_empty() {
        page.line("  none that is known");
        return;
    }
    let mut table = Table::new(&[("", Align::Left), ("A", Align::Left), ("B", Align::Left)]);
    for d in &pair.settings {
        let word = |v: &Option<String>| v.clone().unwrap_or_else(|| "—".into());
        table.row(vec![
            d.setting.clone(),
            word(&d.profile1),
            word(&d.profile2),
        ]);
    }
    page.table(&table);
}

fn memory(page: &mut Page, pair: &Pair) {
    page.title("Memory at the peak, GiB");
    let mut table = Table::new(&[
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
        table.row(vec![
            format!("{indent}{}", row.label),
            gib(row.profile1_gb),
            gib(row.profile2_gb),
            gib_change(row.diff_gb),
            percent(row.diff_pct),
        ]);
    }
    page.table(&table);
}

fn others(page: &mut Page, pair: &Pair) {
    if pair.others.is_empty() {
        return;
    }
    page.title("Pool, latency, throughput");
    let mut table = Table::new(&[
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
            Unit::Bytes => gib(v.map(|b| b / GIB)),
            _ => v.map_or_else(|| "—".into(), figure),
        };
        let change = row
            .diff
            .map_or_else(|| "—".into(), |d| plus(d, value(Some(d))));
        table.row(vec![
            label,
            value(row.profile1),
            value(row.profile2),
            change,
            percent(row.diff_pct),
        ]);
    }
    page.table(&table);
}

/// Why figures are missing: each reason once, with all that it is the reason of.
fn unknown(pair: &Pair) -> Vec<String> {
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

fn verdict(page: &mut Page, pair: &Pair) {
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
    page.line("");
    if limit.exceeded.is_empty() {
        page.aside(&format!(
            "no component moved by more than {} %",
            limit.percent
        ))
    } else {
        page.aside(&format!(
            "MOVED BY MORE THAN {} %: {}",
            limit.percent,
            labels(&limit.exceeded)
        ))
    }
    if !limit.not_judged.is_empty() {
        page.aside(&format!(
            "not judged, because one side does not know them: {}",
            labels(&limit.not_judged)
        ));
    }
}

/// The table for spreadsheets.
///
/// # Errors
/// Why it could not be written.
pub fn csv(pair: &Pair) -> Result<Vec<u8>, RenderError> {
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
            cell(r.profile1_gb),
            cell(r.profile2_gb),
            cell(r.diff_gb),
            cell(r.diff_pct),
            cell(r.profile1_source.as_ref()),
            cell(r.profile2_source.as_ref()),
        ]
    };
    let other = |r: &OtherRow| {
        let (unit, scale) = match r.unit {
            Unit::Bytes => ("GiB", GIB),
            Unit::Milliseconds => ("ms", 1.0),
            Unit::PerSecond => ("1/s", 1.0),
            Unit::Count => ("count", 1.0),
        };
        let value = |v: Option<f64>| cell(v.map(|v| v / scale));
        vec![
            r.key.clone(),
            unit.into(),
            value(r.profile1),
            value(r.profile2),
            value(r.diff),
            cell(r.diff_pct),
            String::new(),
            String::new(),
        ]
    };
    let setting = |d: &crate::compare::profiles::SettingDifference| {
        let mut row = vec![
            format!("setting:{}", d.setting),
            String::new(),
            cell(d.profile1.as_ref()),
            cell(d.profile2.as_ref()),
        ];
        row.resize(head.len(), String::new());
        row
    };
    let rows: Vec<Vec<String>> = (pair.settings.iter().map(setting))
        .chain(pair.components.iter().map(component))
        .chain(pair.others.iter().map(other))
        .collect();
    table(&head, &rows)
}
