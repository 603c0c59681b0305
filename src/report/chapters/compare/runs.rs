//! Two runs side by side.

use super::{change, difference, figure_cell, gib_cell, gib_text, percent_cell};
use crate::capture::DeviceKind;
use crate::compare::Unit;
use crate::compare::profiles::{Pair, PairRow};
use crate::compare::subject::{Kind, Subject};
use crate::engine::facts::Severity;
use crate::matrix::RowFigures;
use crate::profile::Profile;
use crate::report::chapters::sweep::note_block;
use crate::report::chapters::sweep::tables::{number_column, text_column};
use crate::report::chart::{self, Bar, BarPart, Bars, Chart, Plot, Scale, Segment};
use crate::report::compare::describe_profile;
use crate::report::content::{ContentBlock, Grid, TableCell};
use crate::report::layout;
use crate::report::material::ReportRun;
use crate::units::{Bytes, GIB, to_gib};

pub(super) fn run_blocks(a: &ReportRun, b: &ReportRun) -> Vec<ContentBlock> {
    let pair = Pair::compare_subjects(
        &Subject::subject_of_profile(&a.profile, &a.name),
        &Subject::subject_of_profile(&b.profile, &b.name),
    );
    let mut blocks = vec![
        ContentBlock::Text(format!("A is {}.", describe_profile(&pair.profile1))),
        ContentBlock::Text(format!("B is {}.", describe_profile(&pair.profile2))),
        ContentBlock::Text(in_short(&pair)),
    ];
    let told = |severity, code: &str, sentences: &[String]| -> Vec<ContentBlock> {
        let each = sentences.iter();
        each.map(|s| note_block(severity, code, s.clone()))
            .collect()
    };
    blocks.extend(told(Severity::Error, "not_comparable", &pair.incomparable));
    blocks.extend(settings_blocks(&pair));
    blocks.extend(hosts(&a.profile, &b.profile));
    blocks.extend(comparison_bars(&pair, &a.profile, &b.profile).map(ContentBlock::Chart));
    blocks.push(ContentBlock::Table(memory_table(&pair)));
    blocks.push(ContentBlock::Table(performance(
        &pair, &a.profile, &b.profile,
    )));
    blocks.extend(told(Severity::Warning, "to_know", &pair.warnings));
    blocks
}

/// The peak of both in a sentence.
fn in_short(pair: &Pair) -> String {
    let total = pair.components.iter().find(|r| r.kind == Kind::Total);
    let both = total.and_then(|t| t.profile1_gb.zip(t.profile2_gb));
    let Some((a, b)) = both else {
        return "The peak is not known of both.".into();
    };
    let moved = match pair.diff_pct {
        _ if a == b => "as much as A".to_owned(),
        Some(p) => format!(
            "{} GiB ({:.1} %) {} than A",
            gib_text((b - a).abs()),
            p.abs(),
            if b > a { "more" } else { "less" }
        ),
        None => "and A nothing".to_owned(),
    };
    let mut text = format!("At its peak B held {} GiB, {moved}", gib_text(b));
    // What moved most, apart from the peak itself and the sum of the overhead.
    let parts = pair.components.iter().filter(|r| told_apart(pair, r));
    let most = parts
        .filter_map(|r| Some((r.diff_gb?, &r.label)))
        .max_by(|x, y| x.0.abs().total_cmp(&y.0.abs()))
        .filter(|(moved, _)| moved.abs() >= 0.001);
    if let Some((moved, label)) = most {
        let sign = if moved > 0.0 { "+" } else { "-" };
        text.push_str(&format!(
            "; {label} moved most ({sign}{} GiB)",
            gib_text(moved.abs())
        ));
    }
    text.push('.');
    text
}

/// Whether a row is a part that the others do not hold: those sum to the peak.
fn told_apart(pair: &Pair, row: &PairRow) -> bool {
    let inner = pair.components.iter().any(|r| r.kind == Kind::OfOverhead);
    match row.kind {
        Kind::Part => !(inner && row.component == "framework_overhead"),
        Kind::OfOverhead => true,
        Kind::Total | Kind::Other => false,
    }
}

fn settings_blocks(pair: &Pair) -> Vec<ContentBlock> {
    if pair.settings.is_empty() {
        return vec![ContentBlock::Text(
            "No setting that is known differs.".into(),
        )];
    }
    let cell = |value: &Option<String>| match value {
        Some(value) => TableCell::text_cell(value.clone()),
        None => TableCell::missing_cell("unknown"),
    };
    let rows = pair.settings.iter().map(|d| {
        vec![
            TableCell::text_cell(d.setting.clone()),
            cell(&d.profile1),
            cell(&d.profile2),
        ]
    });
    vec![ContentBlock::Table(Grid {
        id: "compare_settings".into(),
        caption: "Settings that differ".into(),
        columns: vec![
            text_column("setting", "setting"),
            text_column("A", "a"),
            text_column("B", "b"),
        ],
        rows: rows.collect(),
    })]
}

/// What is known of a host and of what measured on it.
fn host_facts(profile: &Profile) -> Vec<(&'static str, Option<String>)> {
    let meta = &profile.metadata;
    let host = &meta.host;
    let word = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
    let devices = &profile.gpu_info.devices;
    let mut names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
    names.dedup();
    let capacity = devices.iter().map(|d| d.total_bytes).sum::<Option<u64>>();
    vec![
        ("host", word(&host.hostname)),
        ("kernel", word(&host.kernel)),
        ("architecture", word(&host.arch)),
        ("processors", (host.cpus > 0).then(|| host.cpus.to_string())),
        ("memory", host.memory_bytes.map(|b| Bytes(b).to_string())),
        ("Docker", host.docker_version.clone()),
        ("devices", word(&names.join(", "))),
        (
            "memory of the devices",
            capacity
                .filter(|_| !devices.is_empty())
                .map(|b| Bytes(b).to_string()),
        ),
        ("measured by", word(&meta.memory_backend.name)),
        ("driver or interface", meta.memory_backend.version.clone()),
        ("image", word(&meta.container.image_id)),
    ]
}

fn hosts(a: &Profile, b: &Profile) -> Vec<ContentBlock> {
    let facts = host_facts(a).into_iter().zip(host_facts(b));
    let cell = |value: Option<String>| match value {
        Some(value) => TableCell::text_cell(value),
        None => TableCell::missing_cell("unknown"),
    };
    let rows: Vec<Vec<TableCell>> = facts
        .filter(|((_, a), (_, b))| a != b)
        .map(|((name, a), (_, b))| vec![TableCell::text_cell(name), cell(a), cell(b)])
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    vec![ContentBlock::Table(Grid {
        id: "compare_hosts".into(),
        caption: "Where they ran, as far as it differs".into(),
        columns: vec![
            text_column("", "fact"),
            text_column("A", "a"),
            text_column("B", "b"),
        ],
        rows,
    })]
}

/// Both peaks in their parts.
fn comparison_bars(pair: &Pair, a: &Profile, b: &Profile) -> Option<Chart> {
    let rows: Vec<&PairRow> = pair
        .components
        .iter()
        .filter(|r| told_apart(pair, r))
        .collect();
    let bar = |letter: &str, profile: &Profile, pick: fn(&PairRow) -> Option<f64>| {
        let segment = |(part, row): (usize, &&PairRow)| {
            let sure = confidence(profile, row);
            Some(Segment {
                part,
                value: pick(row).filter(|v| *v != 0.0)?,
                unsure: sure
                    .as_deref()
                    .is_some_and(crate::report::chapters::words::is_low_confidence),
                confidence: sure,
                source: None,
            })
        };
        Bar {
            label: letter.to_owned(),
            segments: rows.iter().enumerate().filter_map(segment).collect(),
            limit: device_capacity(profile),
        }
    };
    let bars = vec![
        bar("A", a, |r| r.profile1_gb),
        bar("B", b, |r| r.profile2_gb),
    ];
    if bars.iter().all(|bar| bar.segments.is_empty()) {
        return None;
    }
    let unknown = |pick: fn(&PairRow) -> Option<f64>| -> Vec<&str> {
        let missing = rows.iter().filter(|r| pick(r).is_none());
        missing.map(|r| r.label.as_str()).collect()
    };
    let notes: Vec<String> = [
        ("A", unknown(|r| r.profile1_gb)),
        ("B", unknown(|r| r.profile2_gb)),
    ]
    .into_iter()
    .filter(|(_, labels)| !labels.is_empty())
    .map(|(letter, labels)| format!("Not known of {letter}: {}.", labels.join(", ")))
    .collect();
    Some(Chart {
        id: "compare_memory".into(),
        title: "Memory at the peak, A and B".into(),
        note: (!notes.is_empty()).then(|| notes.join(" ")),
        simulated: pair.profile1.simulated || pair.profile2.simulated,
        plot: Plot::Bars(Bars {
            axis: chart::ChartAxis {
                title: "memory".into(),
                unit: "GiB".into(),
                scale: Scale::FromZero,
            },
            parts: rows
                .iter()
                .map(|r| BarPart {
                    label: r.label.clone(),
                    component: serde_json::from_value(r.component.as_str().into()).ok(),
                })
                .collect(),
            bars,
        }),
    })
}

/// How sure a part is, in the profile's word.
fn confidence(profile: &Profile, row: &PairRow) -> Option<String> {
    let parts = &profile.memory_breakdown.components;
    let part = parts
        .iter()
        .find(|p| p.component.display_label() == row.label)?;
    Some(part.confidence.0.clone())
}

/// What the devices have together.
fn device_capacity(profile: &Profile) -> Option<(f64, String)> {
    let devices = &profile.gpu_info.devices;
    let known = devices.iter().map(|d| d.total_bytes);
    let total = known.sum::<Option<u64>>().filter(|_| !devices.is_empty())?;
    let what = if devices.iter().all(|d| d.kind == DeviceKind::Gpu) {
        "capacity"
    } else {
        "limit of the container, or the host's memory"
    };
    Some((to_gib(total), what.to_owned()))
}

fn memory_table(pair: &Pair) -> Grid {
    let word = |v: &Option<String>| TableCell::text_cell(v.clone().unwrap_or_default());
    let why = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
    let rows = pair.components.iter().map(|r| {
        let indent = match r.kind {
            Kind::OfOverhead => "of it: ",
            Kind::Total | Kind::Part | Kind::Other => "",
        };
        vec![
            TableCell::text_cell(format!("{indent}{}", r.label)),
            gib_cell(r.profile1_gb, &why(&r.profile1_unknown)),
            gib_cell(r.profile2_gb, &why(&r.profile2_unknown)),
            difference(r.diff_gb, gib_text),
            percent_cell(r.diff_pct),
            word(&r.profile1_source),
            word(&r.profile2_source),
        ]
    });
    Grid {
        id: "compare_parts".into(),
        caption: "Memory at the peak".into(),
        columns: vec![
            text_column("part", "part"),
            number_column("A, GiB", "a_gib"),
            number_column("B, GiB", "b_gib"),
            number_column("B - A, GiB", "diff_gib"),
            number_column("B - A, %", "diff_pct"),
            text_column("A rests on", "a_source"),
            text_column("B rests on", "b_source"),
        ],
        rows: rows.collect(),
    }
}

fn performance(pair: &Pair, a: &Profile, b: &Profile) -> Grid {
    let row = |label: &str, first: Option<f64>, second: Option<f64>, per: f64| {
        let scaled = |v: Option<f64>| v.map(|v| v / per);
        let (first, second) = (scaled(first), scaled(second));
        vec![
            TableCell::text_cell(label),
            figure_cell(first, "not measured"),
            figure_cell(second, "not measured"),
            difference(first.zip(second).map(|(a, b)| b - a), layout::format_figure),
            percent_cell(change(first, second)),
        ]
    };
    let mut rows: Vec<Vec<TableCell>> = pair
        .others
        .iter()
        .map(|o| match o.unit {
            Unit::Bytes => row(&format!("{}, GiB", o.label), o.profile1, o.profile2, GIB),
            _ => row(&o.label, o.profile1, o.profile2, 1.0),
        })
        .collect();
    let (first, second) = (RowFigures::of_profile(a), RowFigures::of_profile(b));
    for (label, first, second) in [
        (
            "mean time to first token, ms",
            first.ttft_mean_ms,
            second.ttft_mean_ms,
        ),
        (
            "mean time per further token, ms",
            first.tpot_mean_ms,
            second.tpot_mean_ms,
        ),
    ] {
        if first.is_some() || second.is_some() {
            rows.push(row(label, first, second, 1.0));
        }
    }
    Grid {
        id: "compare_performance".into(),
        caption: "Pool, latency, throughput".into(),
        columns: vec![
            text_column("figure", "figure"),
            number_column("A", "a"),
            number_column("B", "b"),
            number_column("B - A", "diff"),
            number_column("B - A, %", "diff_pct"),
        ],
        rows,
    }
}
