//! Experiments: one thing varied over a few levels, as curves and a table.

use super::Sources;
use super::document::{list_at, read_document};
use super::words::{describe_begin, engine_words};
use crate::engine::facts::Severity;
use crate::experiment::{Experiment, ExperimentKind, ExperimentLevel, LevelState, RequestedLoad};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{Chapter, ContentBlock, Grid, TableCell, note_block};
use crate::report::layout::{capitalize_first, counted_noun};
use crate::report::material::{Material, StoredDocument};
use crate::report::tables::{ItemFigure, TableBuilder, format_in_unit};
use crate::units::to_gib;
use serde::Deserialize;
use serde_json::Value;

/// Levels that are read of one document.
const MOST: usize = 1000;

/// A figure of the levels, and its key in the document.
type LevelFigure = (&'static str, ItemFigure<ExperimentLevel>);

/// Memory: what the devices held, and of the KV cache what is reserved and what is used. An engine
/// that reserves a pool at its start makes the first two flat, whatever the load.
#[rustfmt::skip]
static MEMORY: [LevelFigure; 5] = [
    ("peak_bytes", ItemFigure::new("peak_gib", "peak memory", "GiB", |l| l.peak_bytes.map(to_gib))),
    ("kv_pool_bytes", ItemFigure::new("kv_pool_gib", "KV pool reserved", "GiB", |l| l.kv_pool_bytes.map(to_gib))),
    ("kv_used_bytes", ItemFigure::new("kv_used_gib", "KV used at most", "GiB", |l| l.kv_used_bytes.map(to_gib))),
    ("peak_alloc_bytes", ItemFigure::new("torch_allocated_gib", "torch allocated", "GiB", |l| l.peak_alloc_bytes.map(to_gib))),
    ("peak_reserved_bytes", ItemFigure::new("torch_reserved_gib", "torch reserved", "GiB", |l| l.peak_reserved_bytes.map(to_gib))),
];

#[rustfmt::skip]
static THROUGHPUT: [LevelFigure; 2] = [
    ("total_tokens_per_s", ItemFigure::new("total_tokens_per_second", "all requests together", "tokens/s", |l| l.total_tokens_per_s)),
    ("mean_tokens_per_s", ItemFigure::new("mean_tokens_per_second", "each request, mean", "tokens/s", |l| l.mean_tokens_per_s)),
];

#[rustfmt::skip]
static LATENCY: [LevelFigure; 4] = [
    ("mean_latency_s", ItemFigure::new("mean_latency_s", "mean latency", "s", |l| l.mean_latency_s)),
    ("p95_latency_s", ItemFigure::new("p95_latency_s", "latency, p95", "s", |l| l.p95_latency_s)),
    ("mean_ttft_s", ItemFigure::new("mean_ttft_s", "mean time to first token", "s", |l| l.mean_ttft_s)),
    ("p95_ttft_s", ItemFigure::new("p95_ttft_s", "time to first token, p95", "s", |l| l.p95_ttft_s)),
];

#[rustfmt::skip]
static ITL: [LevelFigure; 1] = [
    ("p95_itl_s", ItemFigure::new("p95_itl_ms", "time between tokens, p95", "ms", |l| l.p95_itl_s.map(|s| s * 1000.0))),
];

#[rustfmt::skip]
static COUNTS: [LevelFigure; 3] = [
    ("successful", ItemFigure::new("successful", "answered", "", |l| l.successful.map(|n| n as f64))),
    ("failed", ItemFigure::new("failed", "failed", "", |l| l.failed.map(|n| n as f64))),
    ("error_rate", ItemFigure::new("error_percent", "failed", "%", |l| l.error_rate.map(|share| share * 100.0))),
];

/// Every figure, in the order of the table.
fn all_figures() -> impl Iterator<Item = &'static LevelFigure> {
    let latencies = THROUGHPUT.iter().chain(&LATENCY).chain(&ITL);
    MEMORY.iter().chain(latencies).chain(&COUNTS)
}

/// What was asked for of a level: key in CSV, title.
type AskedFigure = (&'static str, &'static str, fn(&RequestedLoad) -> u32);

/// The load of a level, as it was asked for.
static ASKED: [AskedFigure; 5] = [
    ("concurrency", "concurrency", |asked| asked.concurrency),
    ("prompt_tokens", "prompt tokens", |a| a.prompt_tokens),
    ("output_tokens", "generated tokens", |a| a.output_tokens),
    ("requests", "requests", |asked| asked.requests),
    ("repeats", "repeats", |asked| asked.repeats),
];

/// An experiment as far as its document can be read.
pub(super) fn read_experiment(document: &Value) -> Experiment {
    let levels = list_at(document, "/levels", MOST).filter(|l| l.is_object());
    Experiment {
        levels: levels.map(read_document).collect(),
        ..read_document(document)
    }
}

/// A chapter for each experiment.
pub(super) fn write_experiment_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let several = material.experiments.len() > 1;
    let blocks = |stored: &StoredDocument, id: &str| experiment_blocks(stored, id, several);
    super::document_chapters(&material.experiments, "experiment", "experiment", blocks)
}

fn experiment_blocks(stored: &StoredDocument, id: &str, several: bool) -> Vec<ContentBlock> {
    let experiment = &read_experiment(&stored.document);
    // A kind of a later release is varied over levels of an unknown kind.
    let kind = stored.document.get("kind");
    let kind = kind.and_then(|kind| ExperimentKind::deserialize(kind).ok());
    let across = kind.map_or("level", ExperimentKind::axis_label);
    let levels = &experiment.levels;
    let mut blocks: Vec<ContentBlock> = vec![what(experiment, across).into()];
    if experiment.interrupted {
        let text = "it was stopped before its end";
        blocks.push(note_block(Severity::Warning, "interrupted", text));
    }
    blocks.extend(experiment.readings.iter().cloned().map(ContentBlock::Text));
    let notes = experiment.notes.iter().cloned();
    blocks.extend(notes.map(|n| note_block(Severity::Info, "experiment_note", n)));
    let asked = all_figures().filter(|(key, _)| *key != ITL[0].0);
    let lacking = asked.filter(|(_, f)| levels.iter().all(|l| level_value(l, f).is_none()));
    blocks.extend(lacking.filter_map(|(key, figure)| {
        let why = experiment.reason_for_figure(key)?;
        Some(format!("Not measured: {}: {why}.", figure.title).into())
    }));
    let word = kind.map_or("level", ExperimentKind::axis_word);
    let prefix = if several {
        format!("{id}_")
    } else {
        String::new()
    };
    // Of a latency its 95th percentile is what a limit is set for; where it is not known, its mean.
    let latencies = LATENCY.chunks(2).filter_map(|pair| {
        let known = |(_, f): &&LevelFigure| levels.iter().any(|l| level_value(l, f).is_some());
        pair.iter().rev().find(known).or(pair.last())
    });
    let speeds = THROUGHPUT.iter().collect();
    let pictures: [(&str, &str, Vec<&LevelFigure>); 4] = [
        ("fig1_mem", "memory", MEMORY.iter().collect()),
        ("fig2_tps", "generated tokens per second", speeds),
        ("fig3_latency", "latency", latencies.collect()),
        ("fig4_itl", "time between tokens", ITL.iter().collect()),
    ];
    let joined = kind != Some(ExperimentKind::Mixed);
    for (fig, title, figures) in pictures {
        let Some(plot) = level_curves(levels, joined, across, title, &figures) else {
            continue;
        };
        let id = format!("{prefix}{fig}_vs_{word}");
        let title = format!("{} over {across}", capitalize_first(title));
        let (note, plot) = (not_drawn(levels), Plot::Curves(plot));
        let chart = Chart::new_chart(id, title, note, experiment.simulated, plot);
        blocks.push(ContentBlock::Chart(chart));
    }
    blocks.push(ContentBlock::Table(levels_table(experiment, across, id)));
    blocks
}

fn what(experiment: &Experiment, across: &str) -> String {
    let name = experiment.engine.as_deref();
    let version = experiment.engine_version.as_deref();
    let version = version.filter(|_| name.is_some());
    let engine = engine_words(name.unwrap_or_default(), version);
    let model = match experiment.model.as_str() {
        "" => "an unknown model",
        model => model,
    };
    let levels = counted_noun(experiment.levels.len(), "level");
    let done = experiment.completed_levels().count();
    let memory = experiment.memory_of.iter();
    let memory = memory.map(|of| format!("; memory is {of}"));
    let rest: String = memory
        .chain(describe_begin(&experiment.timestamp))
        .collect();
    format!("{model} on {engine}: {across} varied over {levels}, {done} measured{rest}.")
}

fn level_value(level: &ExperimentLevel, figure: &ItemFigure<ExperimentLevel>) -> Option<f64> {
    let value = figure.value_of(level);
    value.filter(|_| level.state == LevelState::Done)
}

fn level_curves(
    levels: &[ExperimentLevel],
    joined: bool,
    across: &str,
    title: &str,
    figures: &[&LevelFigure],
) -> Option<Curves> {
    let curve = |(_, figure): &&LevelFigure| {
        let dot = |level: &ExperimentLevel| {
            let y = level_value(level, figure)?;
            Some(Dot::new_dot(level.x, y, Some(level.name.clone())))
        };
        let mut points: Vec<Dot> = levels.iter().filter_map(dot).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve::new_curve(figure.title, points, joined)
    };
    let curves = figures.iter().map(curve);
    let curves: Vec<Curve> = curves.filter(|c| !c.points.is_empty()).collect();
    if curves.is_empty() {
        return None;
    }
    Some(Curves {
        x: ChartAxis::axis_across(across, &curves),
        y: ChartAxis::new_axis(title, figures.first()?.1.unit, Scale::FromZero),
        curves,
        ..Curves::default()
    })
}

/// The levels that a picture lacks.
fn not_drawn(levels: &[ExperimentLevel]) -> Option<String> {
    let lost = levels.iter().filter(|l| l.state != LevelState::Done);
    let lost = lost.map(|l| {
        let cause = l.cause.as_ref();
        let cause = cause.map(|c| format!(": {}", c.replace('_', " ")));
        let cause = cause.unwrap_or_default();
        format!("{} ({}{cause})", l.name, l.state.as_str())
    });
    let lost: Vec<String> = lost.collect();
    (!lost.is_empty()).then(|| format!("Levels without figures: {}.", lost.join(", ")))
}

fn levels_table(experiment: &Experiment, across: &str, id: &str) -> Grid {
    let levels = &experiment.levels;
    let count = |n: f64| TableCell::number_cell(n, format_in_unit(n, ""));
    let mut table = TableBuilder::of_items(levels)
        .words("level", "level", |l| &l.name)
        .figures(across, "x", |l| count(l.x));
    for (key, title, asked) in &ASKED {
        table = table.figures(title, key, |l| count(asked(&l.asked).into()));
    }
    table = table
        .words("state", "state", |l| l.state.as_str())
        .words("cause", "cause", |l| {
            l.cause.as_deref().unwrap_or_default().replace('_', " ")
        });
    let is_known = |(_, f): &&LevelFigure| levels.iter().any(|l| level_value(l, f).is_some());
    for (key, f) in all_figures().filter(is_known) {
        table = table.column(f.table_column(), |l| {
            let why = match l.state {
                LevelState::Done => experiment.reason_for_figure(key).unwrap_or("not measured"),
                _ => "the level was not measured",
            };
            f.table_cell(level_value(l, f), why)
        });
    }
    table
        .known_words("message", "message", |l| l.message.as_deref())
        .known_words("profile", "profile", |l| l.profile.as_deref())
        .grid(format!("{id}_levels"), "All levels")
}
