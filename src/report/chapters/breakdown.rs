//! Where every byte of the peak goes: bars for each device, and the parts with what they rest on.

use super::Sources;
use super::figures::{
    SourcedFigures, find_part, gib_cell, gib_text, number_column, percent_cell, reason_at_path,
    text_column as column, why_part,
};
use super::words;
use super::words::{confidence_level, is_low_confidence};
use crate::breakdown::{Component, Part};
use crate::compare::subject::source_word;
use crate::engine::facts::Severity;
use crate::report::chart::{Bar, BarPart, Bars, Chart, ChartAxis, Plot, Segment};
use crate::report::content::{Chapter, ContentBlock, Grid, Note, TableCell};
use crate::report::lanes::device_label;
use crate::report::layout::counted_noun;
use crate::report::material::{Material, ReportRun};
use crate::units::to_gib;
use std::collections::BTreeSet;

/// More bars than this are no picture any more.
const MOST_BARS: usize = 40;
/// Devices that get a column of their own in the table.
const MOST_COLUMNS: usize = 8;
/// A limit beyond this many times the peak would make the bar a dot before its line.
const FAR_LIMIT: u64 = 3;

pub(super) fn write_breakdown_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let runs = &material.runs;
    if runs.is_empty() {
        return Vec::new();
    }
    let many = runs.len() > 1;
    let mut blocks = Vec::new();
    blocks.extend(breakdown_bars(material, sources).map(ContentBlock::Chart));
    for (i, run) in runs.iter().enumerate().filter(|(_, r)| r.in_full) {
        let mut figures = SourcedFigures { sources, run, many };
        blocks.push(ContentBlock::Table(parts_table(&mut figures, i)));
    }
    blocks.extend(runs.iter().filter_map(torn).map(ContentBlock::Note));
    let measured = |r: &ReportRun| r.profile.memory_breakdown.total_measured_bytes.is_some();
    if runs.iter().any(measured) && runs.iter().all(|r| torn(r).is_none()) {
        let text = "Each device is taken at its own highest moment. The parts sum to the peak, exactly and in bytes; what no witness accounts for is unexplained, and negative where the witnesses claim more than was measured.";
        blocks.push(ContentBlock::Text(text.into()));
    }
    vec![Chapter {
        id: "breakdown".into(),
        title: "Memory breakdown".into(),
        blocks,
    }]
}

/// A document that was changed by hand.
fn torn(run: &ReportRun) -> Option<Note> {
    Some(Note {
        severity: Severity::Error,
        code: Some("parts_do_not_sum".into()),
        message: run.find_contradiction()?,
        quote: None,
    })
}

/// A bar for each device of each run; of many runs one for each run.
fn breakdown_bars(material: &Material, sources: &mut Sources) -> Option<Chart> {
    let runs = &material.runs;
    let many = runs.len() > 1;
    let known: Vec<&ReportRun> = (runs.iter())
        .filter(|r| !r.profile.memory_breakdown.per_gpu.is_empty())
        .collect();
    if known.is_empty() {
        return None;
    }
    let devices: usize = known
        .iter()
        .map(|r| r.profile.memory_breakdown.per_gpu.len())
        .sum();
    let by_device = devices <= MOST_BARS / 2 || !many;
    let kinds: BTreeSet<Component> = (known.iter())
        .flat_map(|r| &r.profile.memory_breakdown.components)
        .map(|p| p.component)
        .collect();
    let kinds: Vec<Component> = kinds.into_iter().collect();
    let (mut all, mut far) = (Vec::new(), None);
    for run in &known {
        let p = &run.profile;
        let mut figures = SourcedFigures { sources, run, many };
        if !by_device {
            let parts = &p.memory_breakdown.components;
            all.push(bar(&mut figures, run.name.clone(), None, parts, &kinds));
            continue;
        }
        for d in &p.memory_breakdown.per_gpu {
            let facts = p.gpu_info.devices.iter().find(|f| f.index == d.gpu_id);
            let of = facts.map_or_else(|| format!("device {}", d.gpu_id), device_label);
            let label = if many {
                format!("{}, {of}", run.name)
            } else {
                of
            };
            let mut bar = bar(&mut figures, label, Some(d.gpu_id), &d.parts, &kinds);
            if let Some(total) = facts.and_then(|f| f.total_bytes) {
                let words = format!("limit {} GiB", gib_text(to_gib(total)));
                if total <= d.peak_bytes.saturating_mul(FAR_LIMIT) {
                    bar.limit = Some((to_gib(total), words));
                } else {
                    far = Some(words);
                }
            }
            all.push(bar);
        }
    }
    let left_out = (runs.len() - known.len()) + all.len().saturating_sub(MOST_BARS);
    all.truncate(MOST_BARS);
    let mut notes = Vec::new();
    if left_out > 0 {
        notes.push(format!("{} left out: of too many runs the first are drawn, and runs without a peak have no bar.", counted_noun(left_out, "run")));
    }
    notes.extend(far.map(|limit| format!("The {limit} is off the scale.")));
    Some(Chart {
        id: "breakdown".into(),
        title: "Memory at the peak".into(),
        note: (!notes.is_empty()).then(|| notes.join(" ")),
        simulated: words::simulated_parts(material).is_some(),
        plot: Plot::Bars(Bars {
            axis: ChartAxis {
                title: "memory at the peak".into(),
                unit: "GiB".into(),
                ..ChartAxis::default()
            },
            parts: kinds
                .iter()
                .map(|c| BarPart::part_of_component(*c))
                .collect(),
            bars: all,
        }),
    })
}

fn bar(
    figures: &mut SourcedFigures<'_>,
    label: String,
    gpu: Option<u32>,
    parts: &[Part],
    kinds: &[Component],
) -> Bar {
    let segments = parts.iter().filter_map(|part| {
        Some(Segment {
            part: kinds.iter().position(|c| *c == part.component)?,
            value: part.gb,
            confidence: Some(confidence_level(&part.confidence.0).to_owned()),
            unsure: is_low_confidence(&part.confidence.0),
            source: Some(figures.of_part(gpu, part)),
        })
    });
    Bar {
        label,
        segments: segments.collect(),
        limit: None,
    }
}

/// The parts of one run, each with what it rests on; the devices in columns where there are several.
fn parts_table(figures: &mut SourcedFigures<'_>, i: usize) -> Grid {
    let (run, many) = (figures.run, figures.many);
    let b = &run.profile.memory_breakdown;
    let devices: Vec<_> = match b.per_gpu.len() {
        2..=MOST_COLUMNS => b.per_gpu.iter().collect(),
        _ => Vec::new(),
    };
    let mut columns = vec![
        column("part", "part"),
        number_column("GiB", "gib"),
        number_column("bytes", "bytes"),
        number_column("% of the peak", "percent"),
    ];
    for d in &devices {
        let facts = run
            .profile
            .gpu_info
            .devices
            .iter()
            .find(|f| f.index == d.gpu_id);
        let of = facts.map_or_else(|| format!("device {}", d.gpu_id), device_label);
        columns.push(number_column(
            &format!("{of}, GiB"),
            &format!("device_{}_gib", d.gpu_id),
        ));
    }
    columns.extend([
        column("how sure", "confidence"),
        column("rests on", "rests_on"),
    ]);
    let mut rows = Vec::new();
    let mut total = vec![TableCell::text_cell("Total at the peak")];
    match b.total_measured_bytes {
        Some(bytes) => {
            let id = figures.of_peak(None);
            total.push(gib_cell(bytes as i64).from(id));
            total.push(TableCell::number_cell(bytes as f64, bytes.to_string()).from(id));
            total.push(percent_cell(100.0).from(id));
        }
        None => {
            let why = reason_at_path(&run.profile, "memory_breakdown.total_measured_gb");
            total.extend((0..3).map(|_| TableCell::missing_cell(&why)));
        }
    }
    for d in &devices {
        let id = figures.of_peak(Some(d.gpu_id));
        total.push(gib_cell(d.peak_bytes as i64).from(id));
    }
    let sure = if b.total_measured_bytes.is_some() {
        "measured"
    } else {
        "unknown"
    };
    total.extend([
        TableCell::text_cell(sure),
        TableCell::text_cell("readings of the devices"),
    ]);
    rows.push(total);
    let mut kinds: BTreeSet<Component> = b.components.iter().map(|p| p.component).collect();
    // Those that every engine has are shown even where they are unknown.
    kinds.extend([
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::Activations,
    ]);
    for c in kinds {
        let name = TableCell {
            swatch: Some(c),
            ..TableCell::text_cell(c.display_label())
        };
        let Some(known) = find_part(&run.profile, c) else {
            let mut row = vec![name];
            let why = why_part(&run.profile, c);
            row.extend((0..3 + devices.len()).map(|_| TableCell::missing_cell(&why)));
            row.extend([TableCell::text_cell("unknown"), TableCell::text_cell("")]);
            rows.push(row);
            continue;
        };
        let id = figures.of_part(None, known);
        let mut row = vec![
            name,
            gib_cell(known.bytes).from(id),
            TableCell::number_cell(known.bytes as f64, known.bytes.to_string()).from(id),
            percent_cell(known.percent).from(id),
        ];
        for d in &devices {
            row.push(match d.parts.iter().find(|p| p.component == c) {
                Some(part) => gib_cell(part.bytes).from(figures.of_part(Some(d.gpu_id), part)),
                None => TableCell::missing_cell("no witness tells of it on this device"),
            });
        }
        row.push(TableCell::text_cell(confidence_level(&known.confidence.0)));
        row.push(TableCell::text_cell(rests_on(run, c)));
        rows.push(row);
    }
    Grid {
        id: super::numbered_id("parts", i, many),
        caption: super::of_run("The peak in parts", run, many),
        columns,
        rows,
    }
}

/// What kinds of witnesses a part rests on.
fn rests_on(run: &ReportRun, component: Component) -> String {
    let used = run.profile.evidence.iter();
    let mut words: Vec<&str> = Vec::new();
    for e in used.filter(|e| e.used && e.component == component) {
        let word = source_word(e.source);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if words.is_empty() {
        source_word(crate::breakdown::EvidenceSource::Residual).into()
    } else {
        words.join(" and ")
    }
}
