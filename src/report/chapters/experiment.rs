//! Experiments: one thing varied over a few levels, as curves and a table.

use super::Sources;
use super::document::{Figure, figure, flag, list, number, sentences, text};
use super::sweep::tables::{numeric, wordy};
use super::sweep::{capital, note};
use crate::engine::facts::Severity;
use crate::report::chart::{Axis, Chart, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{Block, Cell, Chapter, Grid};
use crate::report::layout;
use crate::report::layout::counted_words;
use crate::report::material::{Material, Stored};
use crate::units::GIB;
use serde_json::Value;

/// Levels that are read of one document.
const MOST: usize = 1000;

/// Memory: what the devices held, and of the KV cache what is reserved and what is used. An engine
/// that reserves a pool at its start makes the first two flat, whatever the load.
static MEMORY: [Figure; 5] = [
    figure("peak_bytes", "peak_gib", "peak memory", "GiB", GIB),
    figure(
        "kv_pool_bytes",
        "kv_pool_gib",
        "KV pool reserved",
        "GiB",
        GIB,
    ),
    figure(
        "kv_used_bytes",
        "kv_used_gib",
        "KV used at most",
        "GiB",
        GIB,
    ),
    figure(
        "peak_alloc_bytes",
        "torch_allocated_gib",
        "torch allocated",
        "GiB",
        GIB,
    ),
    figure(
        "peak_reserved_bytes",
        "torch_reserved_gib",
        "torch reserved",
        "GiB",
        GIB,
    ),
];

static THROUGHPUT: [Figure; 2] = [
    figure(
        "total_tokens_per_s",
        "total_tokens_per_second",
        "all requests together",
        "tokens/s",
        1.0,
    ),
    figure(
        "mean_tokens_per_s",
        "mean_tokens_per_second",
        "each request, mean",
        "tokens/s",
        1.0,
    ),
];

static LATENCY: [Figure; 3] = [
    figure("mean_latency_s", "mean_latency_s", "mean latency", "s", 1.0),
    figure(
        "p95_latency_s",
        "p95_latency_s",
        "latency, 95th percentile",
        "s",
        1.0,
    ),
    figure(
        "mean_ttft_s",
        "mean_ttft_s",
        "mean time to first token",
        "s",
        1.0,
    ),
];

static COUNTS: [Figure; 3] = [
    figure("successful", "successful", "answered", "", 1.0),
    figure("failed", "failed", "failed", "", 1.0),
    figure("error_rate", "error_percent", "failed", "%", 0.01),
];

/// A chapter for each experiment.
pub(super) fn write(material: &Material, _: &mut Sources) -> Vec<Chapter> {
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

fn chapter(stored: &Stored, id: String, several: bool) -> Chapter {
    let document = &stored.document;
    let kind = text(document, "/kind").unwrap_or_default();
    let across = match kind.as_str() {
        "concurrency" => "requests at once",
        "seqlen" => "prompt tokens",
        "mixed" => "prompt tokens, mean",
        _ => "level",
    };
    let levels: Vec<&Value> = list(document, "/levels", MOST)
        .filter(|l| l.is_object())
        .collect();
    let mut blocks = vec![Block::Text(what(stored, &levels, across))];
    if flag(document, "/simulated") {
        let words = "an engine or a device of this experiment only pretends";
        blocks.push(note(Severity::Warning, "simulated", words.into()));
    }
    if flag(document, "/interrupted") {
        blocks.push(note(
            Severity::Warning,
            "interrupted",
            "it was stopped before its end".into(),
        ));
    }
    blocks.extend(
        sentences(document, "/readings")
            .into_iter()
            .map(Block::Text),
    );
    let told = sentences(document, "/notes").into_iter();
    blocks.extend(told.map(|n| note(Severity::Info, "told_by_the_experiment", n)));
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
    let pictures: [(&str, &str, &'static [Figure]); 3] = [
        ("fig1_mem", "memory", &MEMORY),
        ("fig2_tps", "generated tokens per second", &THROUGHPUT),
        ("fig3_latency", "latency", &LATENCY),
    ];
    for (fig, title, figures) in pictures {
        let chart = curves(document, &levels, across, title, figures);
        blocks.extend(chart.map(|plot| {
            Block::Chart(Chart {
                id: format!("{prefix}{fig}_vs_{word}"),
                title: format!("{} over {across}", capital(title)),
                note: not_drawn(document, &levels, figures),
                simulated: flag(document, "/simulated"),
                plot: Plot::Curves(plot),
            })
        }));
    }
    blocks.push(Block::Table(table(document, &levels, across, &id)));
    Chapter {
        title: if several {
            format!("Experiment: {}", stored.name)
        } else {
            "The experiment".into()
        },
        id,
        blocks,
    }
}

fn what(stored: &Stored, levels: &[&Value], across: &str) -> String {
    let document = &stored.document;
    let word = |path: &str| text(document, path);
    let engine = match (word("/engine"), word("/engine_version")) {
        (Some(engine), Some(version)) => format!("{engine} {version}"),
        (Some(engine), None) => engine,
        _ => "an unknown engine".into(),
    };
    let done = levels.iter().filter(|l| is_done(l)).count();
    let mut said = format!(
        "{} on {engine}: {} varied over {}, {done} measured",
        word("/model").unwrap_or_else(|| "an unknown model".into()),
        across,
        counted_words(levels.len(), "level", "levels")
    );
    if let Some(of) = word("/memory_of") {
        said.push_str(&format!("; memory is {of}"));
    }
    if let Some(began) = word("/timestamp") {
        said.push_str(&format!("; begun {began}"));
    }
    said.push('.');
    said
}

fn is_done(level: &Value) -> bool {
    // A document without that field has figures where it has them.
    text(level, "/state").is_none_or(|s| s == "done")
}

fn value(level: &Value, figure: &Figure) -> Option<f64> {
    let value = figure.of(level)?;
    (value.is_finite() && is_done(level)).then_some(value)
}

fn curves(
    document: &Value,
    levels: &[&Value],
    across: &str,
    title: &str,
    figures: &'static [Figure],
) -> Option<Curves> {
    let curve = |figure: &Figure| {
        let dot = |level: &&Value| {
            Some(Dot {
                x: number(level, "/x")?,
                y: value(level, figure)?,
                range: None,
                label: text(level, "/name"),
            })
        };
        let mut points: Vec<Dot> = levels.iter().filter_map(dot).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve {
            label: figure.title.into(),
            points,
            joined: text(document, "/kind").as_deref() != Some("mixed"),
        }
    };
    let curves: Vec<Curve> = figures
        .iter()
        .map(curve)
        .filter(|c| !c.points.is_empty())
        .collect();
    let all = || curves.iter().flat_map(|c| &c.points).map(|p| p.x);
    let lowest = all().reduce(f64::min)?;
    let highest = all().reduce(f64::max)?;
    Some(Curves {
        x: Axis {
            title: across.into(),
            unit: String::new(),
            scale: if lowest > 0.0 && highest / lowest >= 8.0 {
                Scale::Log2
            } else {
                Scale::FromZero
            },
        },
        y: Axis {
            title: title.into(),
            unit: figures.first()?.unit.into(),
            scale: Scale::FromZero,
        },
        curves,
        levels: Vec::new(),
        x_names: Vec::new(),
    })
}

/// The reason that the document gives for a figure.
fn why(document: &Value, figure: &Figure) -> Option<String> {
    let reasons = document.get("not_measured")?;
    text(reasons.get(figure.key)?, "")
}

fn not_drawn(document: &Value, levels: &[&Value], figures: &[Figure]) -> Option<String> {
    let mut said: Vec<String> = figures
        .iter()
        .filter(|f| levels.iter().all(|l| value(l, f).is_none()))
        .filter_map(|f| Some(format!("{}: {}", f.title, why(document, f)?)))
        .collect();
    let without: Vec<String> = levels
        .iter()
        .filter(|l| !is_done(l))
        .filter_map(|l| {
            let cause = text(l, "/cause").or_else(|| text(l, "/state"));
            Some(format!(
                "{} ({})",
                text(l, "/name")?,
                cause?.replace('_', " ")
            ))
        })
        .collect();
    if !without.is_empty() {
        said.push(format!("levels without figures: {}", without.join(", ")));
    }
    (!said.is_empty()).then(|| format!("Not drawn: {}.", said.join("; ")))
}

fn table(document: &Value, levels: &[&Value], across: &str, id: &str) -> Grid {
    let all = MEMORY
        .iter()
        .chain(&THROUGHPUT)
        .chain(&LATENCY)
        .chain(&COUNTS);
    let figures: Vec<&Figure> = all
        .filter(|f| levels.iter().any(|l| value(l, f).is_some()))
        .collect();
    let asked = [
        ("concurrency", "at once"),
        ("prompt_tokens", "prompt tokens"),
        ("output_tokens", "generated tokens"),
        ("requests", "requests"),
        ("repeats", "repeats"),
    ];
    let mut columns = vec![wordy("level", "level"), numeric(across, "x")];
    columns.extend(asked.map(|(key, title)| numeric(title, key)));
    columns.push(wordy("state", "state"));
    columns.push(wordy("cause", "cause"));
    columns.extend(figures.iter().map(|f| numeric(f.head(), f.csv)));
    columns.push(wordy("message", "message"));
    columns.push(wordy("profile", "profile"));
    let count = |value: Option<f64>| match value {
        Some(value) => Cell::number(value, whole(value)),
        None => Cell::missing("the document does not have it"),
    };
    let row = |level: &&Value| {
        let word = |path: &str| Cell::text(text(level, path).unwrap_or_default());
        let mut row = vec![word("/name"), count(number(level, "/x"))];
        row.extend(asked.map(|(key, _)| count(number(level, &format!("/asked/{key}")))));
        row.push(Cell::text(
            text(level, "/state").unwrap_or_default().replace('_', " "),
        ));
        row.push(Cell::text(
            text(level, "/cause").unwrap_or_default().replace('_', " "),
        ));
        row.extend(figures.iter().map(|f| match value(level, f) {
            Some(value) => Cell::number(value, shown(f, value)),
            None if !is_done(level) => Cell::missing("the level was not measured"),
            None => Cell::missing(why(document, f).unwrap_or_else(|| "not measured".into())),
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

/// A number as short as it is.
fn whole(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        layout::unsigned_zero(format!("{value:.0}"))
    } else {
        layout::figure(value)
    }
}

fn shown(figure: &Figure, value: f64) -> String {
    match figure.unit {
        "GiB" => layout::unsigned_zero(format!("{value:.3}")),
        "" => whole(value),
        _ => layout::figure(value),
    }
}
