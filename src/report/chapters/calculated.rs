//! Measured against calculated: item by item for one run, group by group for many.

use super::Sources;
use super::figures::gib_text;
use super::words;
use super::words::is_low_confidence;
use crate::compare::calculated::Item;
use crate::compare::validate::{ItemRow, RunValidation, Validation};
use crate::engine::facts::Severity;
use crate::report::chart::{Bar, BarPart, Bars, Chart, ChartAxis, Plot, Segment};
use crate::report::content::{
    Chapter, ContentBlock, FigureSource, Grid, Note, SourceDetail, TableCell, number_column,
    text_column as column,
};
use crate::report::figures::percent_text;
use crate::report::layout::counted_noun;
use crate::report::layout::grouped_count;
use crate::report::material::{Material, ReportRun};
use crate::units::GIB;

pub(super) fn write_calculated_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let many = material.runs.len() > 1;
    let validations: Vec<&RunValidation> = (material.runs.iter())
        .filter_map(|r| r.calculated.as_ref())
        .collect();
    if validations.is_empty() {
        return Vec::new();
    }
    let compared = |v: &RunValidation| v.items.iter().any(|r| r.within_tolerance.is_some());
    let mut blocks = Vec::new();
    for (i, run) in material.runs.iter().enumerate().filter(|(_, r)| r.in_full) {
        let Some(found) = run.calculated.as_ref() else {
            continue;
        };
        if !compared(found) {
            blocks.push(ContentBlock::Text(nothing(run, found)));
            continue;
        }
        blocks.extend(
            calculated_bars(run, found, i, many, material, sources).map(ContentBlock::Chart),
        );
        blocks.push(ContentBlock::Table(items_table(
            run, found, i, many, sources,
        )));
        if !found.basis.is_empty() {
            blocks.push(ContentBlock::Text(format!(
                "Calculated from: {}.",
                found.basis
            )));
        }
    }
    if many && validations.iter().any(|v| compared(v)) {
        let all = Validation::validate_runs(validations.into_iter().cloned().collect(), Vec::new());
        blocks.push(ContentBlock::Table(groups(&all, sources)));
        blocks.extend(all.recommendations.into_iter().map(|message| {
            ContentBlock::Note(Note {
                severity: Severity::Info,
                code: None,
                message,
                quote: None,
            })
        }));
    }
    vec![Chapter {
        id: "calculated".into(),
        title: "Measured against calculated".into(),
        details: blocks,
        ..Chapter::default()
    }]
}

/// Why nothing could be held against the measurement.
fn nothing(run: &ReportRun, found: &RunValidation) -> String {
    let why = found.items.iter().find_map(|r| r.unknown.as_deref());
    format!(
        "{}: nothing could be compared: {}.",
        run.name,
        why.unwrap_or("neither side has a figure")
    )
}

/// A figure of an item as people read it: GiB, or tokens.
fn format_item(item: Item, value: f64) -> (f64, String, &'static str) {
    match item {
        Item::KvTokens => (value, grouped_count(value.max(0.0) as u64), "tokens"),
        _ => (value / GIB, gib_text(value / GIB), "GiB"),
    }
}

fn items_table(
    run: &ReportRun,
    found: &RunValidation,
    i: usize,
    many: bool,
    sources: &mut Sources,
) -> Grid {
    let rows = found.items.iter().map(|r| {
        let why = || r.unknown.clone().unwrap_or_else(|| "not known".into());
        let measured = match r.measured.filter(|v| v.is_finite()) {
            Some(value) => {
                let (number, text, _) = format_item(r.item, value);
                TableCell::number_cell(number, text)
                    .from(sources.note_source(of_measured(run, r, value, many)))
            }
            None => TableCell::missing_cell(why()),
        };
        let (calculated, source) = match r.calculated {
            Some(value) => {
                let (number, text, _) = format_item(r.item, value as f64);
                let id = sources.note_source(of_calculated(run, found, r, value, many));
                (TableCell::number_cell(number, text).from(id), Some(id))
            }
            None => (TableCell::missing_cell(why()), None),
        };
        let off = match r.error_pct {
            Some(off) => TableCell {
                source,
                ..TableCell::number_cell(off, percent_text(off))
            },
            None => TableCell::missing_cell(why()),
        };
        let word = |known: Option<bool>, yes: &str, no: &str| match known {
            Some(true) => TableCell::text_cell(yes),
            Some(false) => TableCell::text_cell(no),
            None => {
                TableCell::missing_cell("the calculation gives no band, or one side is unknown")
            }
        };
        vec![
            TableCell::text_cell(r.item.display_label()),
            measured,
            calculated,
            TableCell::text_cell(format_item(r.item, 0.0).2),
            off,
            match r.grade {
                Some(grade) => TableCell::text_cell(format!(
                    "{}, within {} %: {}",
                    grade.display_label().to_lowercase(),
                    r.tolerance_pct,
                    if r.within_tolerance == Some(true) {
                        "yes"
                    } else {
                        "no"
                    }
                )),
                None => TableCell::missing_cell(why()),
            },
            word(r.in_band, "yes", "no"),
        ]
    });
    Grid {
        id: super::numbered_id("against", i, many),
        caption: super::of_run("Per GPU, the one that has most", run, many),
        columns: vec![
            column("item", "item"),
            number_column("measured", "measured"),
            number_column("calculated", "calculated"),
            column("unit", "unit"),
            number_column("off by, %", "error_percent"),
            column("how good", "grade"),
            column("measured is in the band", "in_band"),
        ],
        rows: rows.collect(),
    }
}

fn of_measured(run: &ReportRun, r: &ItemRow, value: f64, many: bool) -> FigureSource {
    let (_, text, unit) = format_item(r.item, value);
    let value = format!("{text} {unit}");
    FigureSource {
        title: super::of_run(
            &format!("{}, measured, per GPU", r.item.display_label()),
            run,
            many,
        ),
        value: value.clone(),
        confidence: None,
        witnesses: vec![SourceDetail {
            kind: r
                .measured_source
                .clone()
                .unwrap_or_else(|| "measured".into()),
            value,
            quote: "the witnesses stand in the breakdown, under the same part".into(),
            place: None,
            used: true,
        }],
    }
}

fn of_calculated(
    run: &ReportRun,
    found: &RunValidation,
    r: &ItemRow,
    value: u64,
    many: bool,
) -> FigureSource {
    let (_, text, unit) = format_item(r.item, value as f64);
    let value = format!("{text} {unit}");
    FigureSource {
        title: super::of_run(
            &format!("{}, calculated", r.item.display_label()),
            run,
            many,
        ),
        value: value.clone(),
        confidence: Some("high_calculated".into()).filter(|c: &String| !is_low_confidence(c)),
        witnesses: vec![SourceDetail {
            kind: "the estimator".into(),
            value,
            quote: format!(
                "calculated from {}; `plimsoll estimate --explain` shows the formula",
                found.basis
            ),
            place: None,
            used: true,
        }],
    }
}

/// Two bars an item: what was measured above what was calculated.
fn calculated_bars(
    run: &ReportRun,
    found: &RunValidation,
    i: usize,
    many: bool,
    material: &Material,
    sources: &mut Sources,
) -> Option<Chart> {
    let mut all = Vec::new();
    for r in found.items.iter().filter(|r| r.item != Item::KvTokens) {
        let Some((measured, calculated)) = r.measured.zip(r.calculated) else {
            continue;
        };
        let mut bar = |word: &str, part: usize, value: f64, source: FigureSource| {
            all.push(Bar {
                label: format!("{}, {word}", r.item.display_label()),
                segments: vec![Segment {
                    part,
                    value: value / GIB,
                    source: Some(sources.note_source(source)),
                    ..Segment::default()
                }],
                ..Bar::default()
            });
        };
        bar("measured", 0, measured, of_measured(run, r, measured, many));
        let source = of_calculated(run, found, r, calculated, many);
        bar("calculated", 1, calculated as f64, source);
    }
    (!all.is_empty()).then(|| Chart {
        id: super::numbered_id("measured_calculated", i, many),
        title: super::of_run("Measured against calculated", run, many),
        note: Some("Items that only one side knows have no bars.".into()),
        simulated: words::simulated_parts(material).is_some(),
        plot: Plot::Bars(Bars {
            axis: ChartAxis {
                title: "per GPU".into(),
                unit: "GiB".into(),
                ..ChartAxis::default()
            },
            parts: ["measured", "calculated"].map(BarPart::plain_part).into(),
            bars: all,
        }),
    })
}

/// How far off the items are over the runs of each group.
fn groups(all: &Validation, sources: &mut Sources) -> Grid {
    let mut rows = Vec::new();
    for group in &all.groups {
        let name = match group.by.as_str() {
            "all" => "all runs".to_owned(),
            by => format!("{by} {}", group.name),
        };
        for item in &group.items {
            let id = sources.note_source(FigureSource {
                title: format!("{}, {name}", item.item.display_label()),
                value: format!("{} compared", counted_noun(item.n as usize, "run")),
                confidence: None,
                witnesses: vec![SourceDetail {
                    kind: "statistics over the runs".into(),
                    value: format!("{} compared", counted_noun(item.n as usize, "run")),
                    quote: "calculated less measured, percent of what was measured, run by run"
                        .into(),
                    place: None,
                    used: true,
                }],
            });
            let cell = |value: Option<f64>| match value.filter(|v| v.is_finite()) {
                Some(value) => TableCell::number_cell(value, percent_text(value)).from(id),
                None => {
                    TableCell::missing_cell("no error has a percentage: nothing was measured there")
                }
            };
            rows.push(vec![
                TableCell::text_cell(&name),
                TableCell::text_cell(item.item.display_label()),
                TableCell::number_cell(item.n as f64, item.n.to_string()).from(id),
                cell(item.median_error_pct),
                cell(item.mean_abs_error_pct),
                cell(item.max_abs_error_pct),
                TableCell::text_cell(format!("{} of {}", item.within_tolerance, item.n)),
            ]);
        }
    }
    Grid {
        id: "against-groups".into(),
        caption: "How far off, over all runs and by kind".into(),
        columns: vec![
            column("runs", "runs"),
            column("item", "item"),
            number_column("compared", "n"),
            number_column("median, %", "median_error_percent"),
            number_column("mean size, %", "mean_abs_error_percent"),
            number_column("largest, %", "max_abs_error_percent"),
            column("within tolerance", "within_tolerance"),
        ],
        rows,
    }
}
