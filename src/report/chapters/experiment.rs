//! Experiments: one thing varied over a few levels, as curves and a table.

use super::Sources;
use super::document::{
    DocumentFigure, flag_at, list_at, new_figure, number_at, sentences_at, text_at,
};
use crate::engine::facts::Severity;
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{
    Chapter, ContentBlock, Grid, TableCell, note_block, number_column, text_column,
};
use crate::report::layout::{capitalize_first, counted_words};
use crate::report::material::{Material, StoredDocument};
use crate::report::tables::format_in_unit;
use crate::units::GIB;
use serde_json::Value;

/// Levels that are read of one document.
const MOST: usize = 1000;

/// Memory: what the devices held, and of the KV cache what is reserved and what is used. An engine
/// that reserves a pool at its start makes the first two flat, whatever the load.
#[rustfmt::skip]
static MEMORY: [DocumentFigure; 5] = [
    new_figure("peak_bytes", "peak_gib", "peak memory", "GiB", GIB),
    new_figure("kv_pool_bytes", "kv_pool_gib", "KV pool reserved", "GiB", GIB),
    new_figure("kv_used_bytes", "kv_used_gib", "KV used at most", "GiB", GIB),
    new_figure("peak_alloc_bytes", "torch_allocated_gib", "torch allocated", "GiB", GIB),
    new_figure("peak_reserved_bytes", "torch_reserved_gib", "torch reserved", "GiB", GIB),
];

#[rustfmt::skip]
static THROUGHPUT: [DocumentFigure; 2] = [
    new_figure("total_tokens_per_s", "total_tokens_per_second", "all requests together", "tokens/s", 1.0),
    new_figure("mean_tokens_per_s", "mean_tokens_per_second", "each request, mean", "tokens/s", 1.0),
];

#[rustfmt::skip]
static LATENCY: [DocumentFigure; 4] = [
    new_figure("mean_latency_s", "mean_latency_s", "mean latency", "s", 1.0),
    new_figure("p95_latency_s", "p95_latency_s", "latency, p95", "s", 1.0),
    new_figure("mean_ttft_s", "mean_ttft_s", "mean time to first token", "s", 1.0),
    new_figure("p95_ttft_s", "p95_ttft_s", "time to first token, p95", "s", 1.0),
];

#[rustfmt::skip]
static ITL: [DocumentFigure; 1] = [
    new_figure("p95_itl_s", "p95_itl_ms", "time between tokens, p95", "ms", 0.001),
];

#[rustfmt::skip]
static COUNTS: [DocumentFigure; 3] = [
    new_figure("successful", "successful", "answered", "", 1.0),
    new_figure("failed", "failed", "failed", "", 1.0),
    new_figure("error_rate", "error_percent", "failed", "%", 0.01),
];

/// A chapter for each experiment.
pub(super) fn write_experiment_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let several = material.experiments.len() > 1;
    let each = material.experiments.iter().enumerate();
    each.map(|(i, stored)| {
        let id = if several {
            format!("experiment{}", i + 1)
        } else {
            "experiment".to_owned()
        };
        chapter(stored, id, several)
    })
    .collect()
}

fn chapter(stored: &StoredDocument, id: String, several: bool) -> Chapter {
    let document = &stored.document;
    let kind = text_at(document, "/kind").unwrap_or_default();
    let across = match kind.as_str() {
        "concurrency" => "requests at once",
        "seqlen" => "prompt tokens",
        "mixed" => "prompt tokens, mean",
        _ => "level",
    };
    let levels: Vec<&Value> = list_at(document, "/levels", MOST)
        .filter(|l| l.is_object())
        .collect();
    let mut blocks = vec![ContentBlock::Text(what(stored, &levels, across))];
    if flag_at(document, "/interrupted") {
        blocks.push(note_block(
            Severity::Warning,
            "interrupted",
            "it was stopped before its end",
        ));
    }
    blocks.extend(
        sentences_at(document, "/readings")
            .into_iter()
            .map(ContentBlock::Text),
    );
    let notes = sentences_at(document, "/notes").into_iter();
    blocks.extend(notes.map(|n| note_block(Severity::Info, "experiment_note", n)));
    let all = MEMORY
        .iter()
        .chain(&THROUGHPUT)
        .chain(&LATENCY)
        .chain(&COUNTS);
    let lacking = all.filter(|f| levels.iter().all(|l| level_value(l, f).is_none()));
    let lacking = lacking.filter_map(|f| {
        let why = reason_for_figure(document, f)?;
        Some(ContentBlock::Text(format!(
            "Not measured: {}: {why}.",
            f.title
        )))
    });
    blocks.extend(lacking);
    let word = match kind.as_str() {
        "seqlen" | "mixed" => "seqlen",
        "concurrency" => "concurrency",
        _ => "level",
    };
    let prefix = if several {
        format!("{id}_")
    } else {
        String::new()
    };
    // Of a latency its 95th percentile is what a limit is set for; where it is not known, its mean.
    let latencies = LATENCY.chunks(2).filter_map(|pair| {
        let known = |f: &&DocumentFigure| levels.iter().any(|l| level_value(l, f).is_some());
        pair.iter().rev().find(known).or(pair.last())
    });
    let pictures: [(&str, &str, Vec<&DocumentFigure>); 4] = [
        ("fig1_mem", "memory", MEMORY.iter().collect()),
        (
            "fig2_tps",
            "generated tokens per second",
            THROUGHPUT.iter().collect(),
        ),
        ("fig3_latency", "latency", latencies.collect()),
        ("fig4_itl", "time between tokens", ITL.iter().collect()),
    ];
    for (fig, title, figures) in pictures {
        let chart = level_curves(document, &levels, across, title, &figures);
        blocks.extend(chart.map(|plot| {
            ContentBlock::Chart(Chart {
                id: format!("{prefix}{fig}_vs_{word}"),
                title: format!("{} over {across}", capitalize_first(title)),
                note: not_drawn(&levels),
                simulated: flag_at(document, "/simulated"),
                plot: Plot::Curves(plot),
            })
        }));
    }
    blocks.push(ContentBlock::Table(levels_table(
        document, &levels, across, &id,
    )));
    Chapter {
        title: if several {
            format!("Experiment: {}", stored.name)
        } else {
            "The experiment".into()
        },
        id,
        blocks,
        ..Chapter::default()
    }
}

fn what(stored: &StoredDocument, levels: &[&Value], across: &str) -> String {
    let document = &stored.document;
    let word = |path: &str| text_at(document, path);
    let engine = match (word("/engine"), word("/engine_version")) {
        (Some(engine), Some(version)) => format!("{engine} {version}"),
        (Some(engine), None) => engine,
        _ => "an unknown engine".into(),
    };
    let done = levels.iter().filter(|l| is_done(l)).count();
    let mut text = format!(
        "{} on {engine}: {} varied over {}, {done} measured",
        word("/model").unwrap_or_else(|| "an unknown model".into()),
        across,
        counted_words(levels.len(), "level", "levels")
    );
    if let Some(of) = word("/memory_of") {
        text.push_str(&format!("; memory is {of}"));
    }
    if let Some(began) = word("/timestamp") {
        text.push_str(&format!("; begun {began}"));
    }
    text.push('.');
    text
}

fn is_done(level: &Value) -> bool {
    // A document without that field has figures where it has them.
    text_at(level, "/state").is_none_or(|s| s == "done")
}

fn level_value(level: &Value, figure: &DocumentFigure) -> Option<f64> {
    let value = figure.value_in_row(level)?;
    (value.is_finite() && is_done(level)).then_some(value)
}

fn level_curves(
    document: &Value,
    levels: &[&Value],
    across: &str,
    title: &str,
    figures: &[&DocumentFigure],
) -> Option<Curves> {
    let curve = |figure: &&DocumentFigure| {
        let dot = |level: &&Value| {
            Some(Dot {
                x: number_at(level, "/x")?,
                y: level_value(level, figure)?,
                range: None,
                label: text_at(level, "/name"),
            })
        };
        let mut points: Vec<Dot> = levels.iter().filter_map(dot).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve {
            label: figure.title.into(),
            points,
            joined: text_at(document, "/kind").as_deref() != Some("mixed"),
        }
    };
    let curves: Vec<Curve> = figures
        .iter()
        .map(curve)
        .filter(|c| !c.points.is_empty())
        .collect();
    if curves.is_empty() {
        return None;
    }
    Some(Curves {
        x: ChartAxis::axis_across(across, &curves),
        y: ChartAxis::new_axis(title, figures.first()?.unit, Scale::FromZero),
        curves,
        ..Curves::default()
    })
}

/// The reason that the document gives for a figure.
fn reason_for_figure(document: &Value, figure: &DocumentFigure) -> Option<String> {
    let reasons = document.get("not_measured")?;
    text_at(reasons.get(figure.key)?, "")
}

/// The levels that a picture lacks.
fn not_drawn(levels: &[&Value]) -> Option<String> {
    let without: Vec<String> = levels
        .iter()
        .filter(|l| !is_done(l))
        .filter_map(|l| {
            let state = text_at(l, "/state")?;
            let end = match text_at(l, "/cause") {
                Some(cause) => format!("{state}: {cause}"),
                None => state,
            };
            Some(format!(
                "{} ({})",
                text_at(l, "/name")?,
                end.replace('_', " ")
            ))
        })
        .collect();
    (!without.is_empty()).then(|| format!("Levels without figures: {}.", without.join(", ")))
}

fn levels_table(document: &Value, levels: &[&Value], across: &str, id: &str) -> Grid {
    let all = MEMORY
        .iter()
        .chain(&THROUGHPUT)
        .chain(&LATENCY)
        .chain(&ITL)
        .chain(&COUNTS);
    let figures: Vec<&DocumentFigure> = all
        .filter(|f| levels.iter().any(|l| level_value(l, f).is_some()))
        .collect();
    let asked = [
        ("concurrency", "at once"),
        ("prompt_tokens", "prompt tokens"),
        ("output_tokens", "generated tokens"),
        ("requests", "requests"),
        ("repeats", "repeats"),
    ];
    let mut columns = vec![text_column("level", "level"), number_column(across, "x")];
    columns.extend(asked.map(|(key, title)| number_column(title, key)));
    columns.push(text_column("state", "state"));
    columns.push(text_column("cause", "cause"));
    columns.extend(
        figures
            .iter()
            .map(|f| number_column(f.column_head(), f.csv)),
    );
    columns.push(text_column("message", "message"));
    columns.push(text_column("profile", "profile"));
    let count = |value: Option<f64>| match value {
        Some(value) => TableCell::number_cell(value, format_in_unit(value, "")),
        None => TableCell::missing_cell("the document does not have it"),
    };
    let row = |level: &&Value| {
        let word = |path: &str| TableCell::text_cell(text_at(level, path).unwrap_or_default());
        let mut row = vec![word("/name"), count(number_at(level, "/x"))];
        row.extend(asked.map(|(key, _)| count(number_at(level, &format!("/asked/{key}")))));
        row.push(TableCell::text_cell(
            text_at(level, "/state")
                .unwrap_or_default()
                .replace('_', " "),
        ));
        row.push(TableCell::text_cell(
            text_at(level, "/cause")
                .unwrap_or_default()
                .replace('_', " "),
        ));
        row.extend(figures.iter().map(|f| match level_value(level, f) {
            Some(value) => TableCell::number_cell(value, format_in_unit(value, f.unit)),
            None if !is_done(level) => TableCell::missing_cell("the level was not measured"),
            None => TableCell::missing_cell(
                reason_for_figure(document, f).unwrap_or_else(|| "not measured".into()),
            ),
        }));
        row.push(word("/message"));
        row.push(word("/profile"));
        row
    };
    Grid {
        id: format!("{id}_levels"),
        caption: "All levels".into(),
        columns,
        rows: levels.iter().map(row).collect(),
    }
}
