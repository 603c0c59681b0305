//! Measured against calculated: item by item for one run, group by group for many.

use super::figures::gib_text;
use super::words;
use super::{ShownRun, Sources};
use crate::compare::calculated::Item;
use crate::compare::validate::{ItemRow, RunValidation, Validation};
use crate::engine::facts::Severity;
use crate::report::chart::{Bar, BarPart, Bars, Chart, ChartAxis, Plot, Scale, Segment};
use crate::report::content::{
    Chapter, ContentBlock, FigureSource, Grid, SourceId, TableCell, plain_note,
};
use crate::report::figures::{cell_by, percent_text};
use crate::report::layout::{counted_noun, grouped_count};
use crate::report::material::Material;
use crate::report::tables::{TableBuilder, word_or_reason};
use crate::units::GIB;

pub(super) fn write_calculated_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let validations: Vec<&RunValidation> = (material.runs.iter())
        .filter_map(|r| r.calculated.as_ref())
        .collect();
    let compared = |v: &RunValidation| v.items.iter().any(|r| r.within_tolerance.is_some());
    let mut blocks = Vec::new();
    for at in material.shown_runs() {
        let Some(found) = at.run.calculated.as_ref() else {
            continue;
        };
        if !compared(found) {
            blocks.push(nothing(at, found).into());
            continue;
        }
        let simulated = words::simulated_parts(material).is_some();
        blocks.extend(calculated_bars(at, found, simulated, sources).map(ContentBlock::Chart));
        blocks.push(ContentBlock::Table(items_table(at, found, sources)));
        if !found.basis.is_empty() {
            blocks.push(format!("Calculated from: {}.", found.basis).into());
        }
    }
    if material.runs.len() > 1 && validations.iter().any(|v| compared(v)) {
        let all = Validation::validate_runs(validations.into_iter().cloned().collect(), Vec::new());
        blocks.push(ContentBlock::Table(groups(&all, sources)));
        let advice = all.recommendations.into_iter();
        blocks.extend(advice.map(|text| plain_note(Severity::Info, text)));
    }
    let title = "Measured against calculated";
    Chapter::of_parts("calculated", title, Vec::new(), blocks)
}

/// Why nothing could be held against the measurement.
fn nothing(at: ShownRun<'_>, found: &RunValidation) -> String {
    let why = found.items.iter().find_map(|r| r.unknown.as_deref());
    let (name, why) = (&at.run.name, why.unwrap_or("neither side has a figure"));
    format!("{name}: nothing could be compared: {why}.")
}

/// A figure of an item as people read it: GiB, or tokens.
fn format_item(item: Item, value: f64) -> (f64, String, &'static str) {
    match item {
        Item::KvTokens => (value, grouped_count(value.max(0.0) as u64), "tokens"),
        _ => (value / GIB, gib_text(value / GIB), "GiB"),
    }
}

fn items_table(at: ShownRun<'_>, found: &RunValidation, sources: &mut Sources) -> Grid {
    let why = |r: &ItemRow| r.unknown.clone().unwrap_or_else(|| "not known".into());
    let mut figure = |r: &ItemRow, value: Option<f64>, source: SourceOfItem| {
        let Some(value) = value.filter(|v| v.is_finite()) else {
            return TableCell::missing_cell(why(r));
        };
        let (number, text, _) = format_item(r.item, value);
        let id = sources.note_source(source(at, found, r, value));
        TableCell::number_cell(number, text).from(id)
    };
    let rows = found.items.iter().map(|r| {
        let measured = figure(r, r.measured, of_measured);
        let calculated = figure(r, r.calculated.map(|c| c as f64), of_calculated);
        (r, measured, calculated)
    });
    let rows: Vec<(&ItemRow, TableCell, TableCell)> = rows.collect();
    let yes = |is: bool| if is { "yes" } else { "no" };
    let grade = |r: &ItemRow| {
        let (word, percent) = (r.grade?.display_label().to_lowercase(), r.tolerance_pct);
        let within = yes(r.within_tolerance == Some(true));
        Some(format!("{word}, within {percent} %: {within}"))
    };
    let no_band = "the calculation gives no band, or one side is unknown";
    TableBuilder::of_items(&rows)
        .words("item", "item", |(r, ..)| r.item.display_label())
        .figures("measured", "measured", |(_, cell, _)| cell.clone())
        .figures("calculated", "calculated", |(.., cell)| cell.clone())
        .words("unit", "unit", |(r, ..)| format_item(r.item, 0.0).2)
        .figures("off by, %", "error_percent", |(r, _, calculated)| {
            TableCell {
                source: calculated.source.filter(|_| r.error_pct.is_some()),
                ..cell_by(r.error_pct, &why(r), percent_text)
            }
        })
        .cells("how good", "grade", |(r, ..)| {
            word_or_reason(grade(r), &why(r))
        })
        .cells("measured is in the band", "in_band", |(r, ..)| {
            word_or_reason(r.in_band.map(yes), no_band)
        })
        .grid(at.id("against"), at.title("Per GPU, the one that has most"))
}

/// Makes the source of an item's figure.
type SourceOfItem = fn(ShownRun, &RunValidation, &ItemRow, f64) -> FigureSource;

fn of_measured(at: ShownRun<'_>, _: &RunValidation, r: &ItemRow, value: f64) -> FigureSource {
    let (_, text, unit) = format_item(r.item, value);
    let title = format!("{}, measured, per GPU", r.item.display_label());
    let kind = r.measured_source.as_deref().unwrap_or("measured");
    let quote = "the witnesses stand in the breakdown, under the same part";
    FigureSource::of_one(at.title(&title), format!("{text} {unit}"), kind, quote)
}

fn of_calculated(at: ShownRun<'_>, found: &RunValidation, r: &ItemRow, value: f64) -> FigureSource {
    let (_, text, unit) = format_item(r.item, value);
    let title = at.title(&format!("{}, calculated", r.item.display_label()));
    let quote = format!(
        "calculated from {}; `plimsoll estimate --explain` shows the formula",
        found.basis
    );
    FigureSource {
        confidence: Some("high_calculated".into()),
        ..FigureSource::of_one(title, format!("{text} {unit}"), "the estimator", quote)
    }
}

/// The two bars of an item.
const SIDES: [&str; 2] = ["measured", "calculated"];

/// Two bars an item: what was measured above what was calculated.
fn calculated_bars(
    at: ShownRun<'_>,
    found: &RunValidation,
    simulated: bool,
    sources: &mut Sources,
) -> Option<Chart> {
    let mut all = Vec::new();
    for r in found.items.iter().filter(|r| r.item != Item::KvTokens) {
        let Some((measured, calculated)) = r.measured.zip(r.calculated) else {
            continue;
        };
        let sides: [(f64, SourceOfItem); 2] =
            [(measured, of_measured), (calculated as f64, of_calculated)];
        for (part, (value, source)) in sides.into_iter().enumerate() {
            all.push(Bar {
                label: format!("{}, {}", r.item.display_label(), SIDES[part]),
                segments: vec![Segment {
                    part,
                    value: value / GIB,
                    source: Some(sources.note_source(source(at, found, r, value))),
                    ..Segment::default()
                }],
                ..Bar::default()
            });
        }
    }
    if all.is_empty() {
        return None;
    }
    let plot = Plot::Bars(Bars {
        axis: ChartAxis::new_axis("per GPU", "GiB", Scale::FromZero),
        parts: SIDES.map(BarPart::plain_part).into(),
        bars: all,
    });
    let note = Some("Items that only one side knows have no bars.".into());
    let (id, title) = (
        at.id("measured_calculated"),
        at.title("Measured against calculated"),
    );
    Some(Chart::new_chart(id, title, note, simulated, plot))
}

/// How far off the items are over the runs of each group.
fn groups(all: &Validation, sources: &mut Sources) -> Grid {
    let groups = all.groups.iter();
    let items = groups.flat_map(|g| g.items.iter().map(move |i| (g, i)));
    let rows = items.map(|(group, item)| {
        let name = match group.by.as_str() {
            "all" => "all runs".to_owned(),
            by => format!("{by} {}", group.name),
        };
        let title = format!("{}, {name}", item.item.display_label());
        let value = format!("{} compared", counted_noun(item.n as usize, "run"));
        let quote = "calculated less measured, percent of what was measured, run by run";
        let source = FigureSource::of_one(title, value, "statistics over the runs", quote);
        (name, item, sources.note_source(source))
    });
    let rows: Vec<_> = rows.collect();
    let cell = |value: Option<f64>, id: SourceId| {
        let why = "no error has a percentage: nothing was measured there";
        cell_by(value.filter(|v| v.is_finite()), why, percent_text).from(id)
    };
    TableBuilder::of_items(&rows)
        .words("runs", "runs", |(name, ..)| name)
        .words("item", "item", |(_, i, _)| i.item.display_label())
        .figures("compared", "n", |(_, i, id)| {
            TableCell::number_cell(i.n as f64, i.n.to_string()).from(*id)
        })
        .figures("median, %", "median_error_percent", |(_, i, id)| {
            cell(i.median_error_pct, *id)
        })
        .figures("mean size, %", "mean_abs_error_percent", |(_, i, id)| {
            cell(i.mean_abs_error_pct, *id)
        })
        .figures("largest, %", "max_abs_error_percent", |(_, i, id)| {
            cell(i.max_abs_error_pct, *id)
        })
        .words("within tolerance", "within_tolerance", |(_, i, _)| {
            format!("{} of {}", i.within_tolerance, i.n)
        })
        .grid("against-groups", "How far off, over all runs and by kind")
}
