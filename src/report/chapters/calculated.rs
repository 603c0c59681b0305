//! Measured against calculated: item by item for one run, group by group for many.

use super::Sources;
use super::figures::{gib_text, numbers, words as column};
use super::words;
use super::words::unsure;
use crate::compare::calculated::Item;
use crate::compare::validate::{ItemRow, RunValidation, Validation};
use crate::engine::facts::Severity;
use crate::report::chart::{Axis, Bar, Bars, Chart, Plot, Segment};
use crate::report::content::{Block, Cell, Chapter, Grid, Note, Source, Witness};
use crate::report::figures::percent;
use crate::report::layout::count;
use crate::report::layout::counted;
use crate::report::material::{Material, Run};
use crate::units::GIB;

pub(super) fn write(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let many = material.runs.len() > 1;
    let told: Vec<&RunValidation> = (material.runs.iter())
        .filter_map(|r| r.calculated.as_ref())
        .collect();
    if told.is_empty() {
        return Vec::new();
    }
    let compared = |v: &RunValidation| v.items.iter().any(|r| r.within_tolerance.is_some());
    let mut blocks = Vec::new();
    for (i, run) in material.runs.iter().enumerate().filter(|(_, r)| r.in_full) {
        let Some(found) = run.calculated.as_ref() else {
            continue;
        };
        if !compared(found) {
            blocks.push(Block::Text(nothing(run, found)));
            continue;
        }
        blocks.extend(bars(run, found, i, many, material, sources).map(Block::Chart));
        blocks.push(Block::Table(items(run, found, i, many, sources)));
        if !found.basis.is_empty() {
            blocks.push(Block::Text(format!("Calculated from: {}.", found.basis)));
        }
    }
    if many && told.iter().any(|v| compared(v)) {
        let all = Validation::of(told.into_iter().cloned().collect(), Vec::new());
        blocks.push(Block::Table(groups(&all, sources)));
        blocks.extend(all.recommendations.into_iter().map(|message| {
            Block::Note(Note {
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
        blocks,
    }]
}

/// Why nothing could be held against the measurement.
fn nothing(run: &Run, found: &RunValidation) -> String {
    let why = found.items.iter().find_map(|r| r.unknown.as_deref());
    format!(
        "{}: nothing could be compared: {}.",
        run.name,
        why.unwrap_or("neither side has a figure")
    )
}

/// A figure of an item as people read it: GiB, or tokens.
fn shown(item: Item, value: f64) -> (f64, String, &'static str) {
    match item {
        Item::KvTokens => (value, count(value.max(0.0) as u64), "tokens"),
        _ => (value / GIB, gib_text(value / GIB), "GiB"),
    }
}

fn items(run: &Run, found: &RunValidation, i: usize, many: bool, sources: &mut Sources) -> Grid {
    let rows = found.items.iter().map(|r| {
        let why = || r.unknown.clone().unwrap_or_else(|| "not known".into());
        let measured = match r.measured.filter(|v| v.is_finite()) {
            Some(value) => {
                let (number, text, _) = shown(r.item, value);
                Cell::number(number, text).from(sources.note(of_measured(run, r, value, many)))
            }
            None => Cell::missing(why()),
        };
        let (calculated, source) = match r.calculated {
            Some(value) => {
                let (number, text, _) = shown(r.item, value as f64);
                let id = sources.note(of_calculated(run, found, r, value, many));
                (Cell::number(number, text).from(id), Some(id))
            }
            None => (Cell::missing(why()), None),
        };
        let off = match r.error_pct {
            Some(off) => Cell {
                source,
                ..Cell::number(off, percent(Some(off)))
            },
            None => Cell::missing(why()),
        };
        let word = |known: Option<bool>, yes: &str, no: &str| match known {
            Some(true) => Cell::text(yes),
            Some(false) => Cell::text(no),
            None => Cell::missing("the calculation gives no band, or one side is unknown"),
        };
        vec![
            Cell::text(r.item.label()),
            measured,
            calculated,
            Cell::text(shown(r.item, 0.0).2),
            off,
            match r.grade {
                Some(grade) => Cell::text(format!(
                    "{}, within {} %: {}",
                    grade.label().to_lowercase(),
                    r.tolerance_pct,
                    if r.within_tolerance == Some(true) {
                        "yes"
                    } else {
                        "no"
                    }
                )),
                None => Cell::missing(why()),
            },
            word(r.in_band, "yes", "no"),
        ]
    });
    Grid {
        id: super::numbered("against", i, many),
        caption: super::of_run("Per GPU, the one that has most", run, many),
        columns: vec![
            column("item", "item"),
            numbers("measured", "measured"),
            numbers("calculated", "calculated"),
            column("unit", "unit"),
            numbers("off by, %", "error_percent"),
            column("how good", "grade"),
            column("measured lies in the band", "in_band"),
        ],
        rows: rows.collect(),
    }
}

fn of_measured(run: &Run, r: &ItemRow, value: f64, many: bool) -> Source {
    let (_, text, unit) = shown(r.item, value);
    let value = format!("{text} {unit}");
    Source {
        title: super::of_run(&format!("{}, measured, per GPU", r.item.label()), run, many),
        value: value.clone(),
        confidence: None,
        witnesses: vec![Witness {
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

fn of_calculated(run: &Run, found: &RunValidation, r: &ItemRow, value: u64, many: bool) -> Source {
    let (_, text, unit) = shown(r.item, value as f64);
    let value = format!("{text} {unit}");
    Source {
        title: super::of_run(&format!("{}, calculated", r.item.label()), run, many),
        value: value.clone(),
        confidence: Some("high_calculated".into()).filter(|c: &String| !unsure(c)),
        witnesses: vec![Witness {
            kind: "the estimator".into(),
            value,
            quote: format!(
                "calculated from {}; `plimsoll estimate` tells the formula",
                found.basis
            ),
            place: None,
            used: true,
        }],
    }
}

/// Two bars an item: what was measured above what was calculated.
fn bars(
    run: &Run,
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
        let mut bar = |word: &str, part: usize, value: f64, source: Source| {
            all.push(Bar {
                label: format!("{}, {word}", r.item.label()),
                segments: vec![Segment {
                    part,
                    value: value / GIB,
                    source: Some(sources.note(source)),
                    ..Segment::default()
                }],
                limit: None,
            });
        };
        bar("measured", 0, measured, of_measured(run, r, measured, many));
        let source = of_calculated(run, found, r, calculated, many);
        bar("calculated", 1, calculated as f64, source);
    }
    (!all.is_empty()).then(|| Chart {
        id: super::numbered("measured_calculated", i, many),
        title: super::of_run("Measured against calculated", run, many),
        note: Some("Items that only one side knows have no bars.".into()),
        simulated: words::pretends(material).is_some(),
        plot: Plot::Bars(Bars {
            axis: Axis {
                title: "per GPU".into(),
                unit: "GiB".into(),
                ..Axis::default()
            },
            parts: vec!["measured".into(), "calculated".into()],
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
            let id = sources.note(Source {
                title: format!("{}, {name}", item.item.label()),
                value: format!("{} compared", counted(item.n as usize, "run")),
                confidence: None,
                witnesses: vec![Witness {
                    kind: "statistics over the runs".into(),
                    value: format!("{} compared", counted(item.n as usize, "run")),
                    quote: "calculated less measured, percent of what was measured, run by run"
                        .into(),
                    place: None,
                    used: true,
                }],
            });
            let cell = |value: Option<f64>| match value.filter(|v| v.is_finite()) {
                Some(value) => Cell::number(value, percent(Some(value))).from(id),
                None => Cell::missing("no error has a percentage: nothing was measured there"),
            };
            rows.push(vec![
                Cell::text(&name),
                Cell::text(item.item.label()),
                Cell::number(item.n as f64, item.n.to_string()).from(id),
                cell(item.median_error_pct),
                cell(item.mean_abs_error_pct),
                cell(item.max_abs_error_pct),
                Cell::text(format!("{} of {}", item.within_tolerance, item.n)),
            ]);
        }
    }
    Grid {
        id: "against-groups".into(),
        caption: "How far off, over all runs and by kind".into(),
        columns: vec![
            column("runs", "runs"),
            column("item", "item"),
            numbers("compared", "n"),
            numbers("median, %", "median_error_percent"),
            numbers("mean size, %", "mean_abs_error_percent"),
            numbers("largest, %", "max_abs_error_percent"),
            column("within tolerance", "within_tolerance"),
        ],
        rows,
    }
}
