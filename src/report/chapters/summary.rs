//! The first chapter: what ran, on what, when, and the figures that matter.

use super::Sources;
use super::figures::{Figures, numbers, part, percent_cell, words as column};
use super::words;
use super::words::level;
use crate::breakdown::Component;
use crate::capture::RunEnd;
use crate::engine::facts::Severity;
use crate::report::content::{Block, Cell, Chapter, Grid, Note};
use crate::report::layout::duration;
use crate::report::material::{Material, Run};

/// Path, title and unit of what engine and bench reported.
pub(super) const KV_TOKENS: &str = "vllm_internal_metrics.total_gpu_kv_cache_tokens";
const POOL: &str = "vllm_internal_metrics.total_gpu_kv_cache_gb";
const KV_USED: &str = "vllm_internal_metrics.kv_cache_used_gb";
pub(super) const LATENCY: &str = "latency_stats.mean_latency_ms";
pub(super) const TOKENS: &str = "latency_stats.tokens_per_second";

pub(super) fn write(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let mut blocks = Vec::new();
    match material.runs.as_slice() {
        [] => {}
        [run] => one(&mut blocks, run, sources),
        runs => {
            // Of very many, the findings chapter has the others.
            blocks.extend(runs.iter().filter_map(ended).take(20));
            super::runs::blocks(&mut blocks, runs, sources);
        }
    }
    if !material.older.is_empty() {
        blocks.push(super::older::table(&material.older));
    }
    blocks.extend(material.unread.iter().map(|sentence| {
        Block::Note(Note {
            severity: Severity::Warning,
            code: Some("unread".into()),
            message: sentence.clone(),
            quote: None,
        })
    }));
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Chapter {
        id: "summary".into(),
        title: "Summary".into(),
        blocks,
    }]
}

/// A run that did not come to its end: what is to be known before any figure.
fn ended(run: &Run) -> Option<Block> {
    let end = &run.profile.metadata.outcome;
    let severity = match end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => Severity::Warning,
        _ => Severity::Error,
    };
    Some(Block::Note(Note {
        severity,
        code: Some("not_whole".into()),
        message: format!("{}: {}", run.name, words::outcome(end)),
        quote: end.failure().map(str::to_owned),
    }))
}

fn one(blocks: &mut Vec<Block>, run: &Run, sources: &mut Sources) {
    let p = &run.profile;
    blocks.extend(ended(run));
    let facts = [
        ("model", words::model(p)),
        ("engine", words::engine(p)),
        ("load", words::load(p)),
        (
            "memory",
            format!("{}, {}", words::devices(p), words::backend(p)),
        ),
        (
            "container",
            format!(
                "{} ({})",
                p.metadata.container.name, p.metadata.container.image
            ),
        ),
        ("mode", words::mode(p).to_owned()),
        (
            "run",
            format!(
                "{}, {}, {}",
                p.metadata.timestamp,
                duration(p.metadata.duration_s),
                words::outcome(&p.metadata.outcome)
            ),
        ),
    ];
    blocks.push(Block::Table(Grid {
        id: "run".into(),
        caption: "The run".into(),
        columns: vec![column("fact", "fact"), column("value", "value")],
        rows: facts
            .into_iter()
            .map(|(label, value)| vec![Cell::text(label), Cell::text(value)])
            .collect(),
    }));
    blocks.push(Block::Table(figures(run, sources)));
}

/// The figures of one run: label, figure, unit, share of the peak, how sure.
fn figures(run: &Run, sources: &mut Sources) -> Grid {
    let p = &run.profile;
    let (b, m, l) = (
        &p.memory_breakdown,
        &p.vllm_internal_metrics,
        p.latency_stats.as_ref(),
    );
    let mut f = Figures {
        sources,
        run,
        many: false,
    };
    let mut rows = Vec::new();
    let mut row = |label: &str, cell: Cell, unit: &str, percent: Option<f64>, sure: &str| {
        let share = percent.map_or_else(Cell::default, |share| Cell {
            source: cell.source,
            ..percent_cell(share)
        });
        rows.push(vec![
            Cell::text(label),
            cell,
            Cell::text(unit),
            share,
            Cell::text(sure),
        ]);
    };
    let peak = b.total_measured_gb.map(|_| 100.0);
    row(
        "Peak",
        f.peak(),
        "GiB",
        peak,
        if peak.is_some() {
            "measured"
        } else {
            "unknown"
        },
    );
    for c in [
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::Activations,
    ] {
        let known = part(p, c);
        let sure = known.map_or("unknown", |part| level(&part.confidence.0));
        row(
            c.label(),
            f.part(c),
            "GiB",
            known.map(|part| part.percent),
            sure,
        );
    }
    let sure = level(&b.confidence_levels.overhead.0);
    row(
        "Framework overhead",
        f.overhead(),
        "GiB",
        b.overhead_percentage,
        sure,
    );
    if let Some(rest) = part(p, Component::Unexplained) {
        let cell = f.part(Component::Unexplained);
        row(
            "Unexplained, in the overhead",
            cell,
            "GiB",
            Some(rest.percent),
            "the rest",
        );
    }
    let engine = "the engine's own word";
    if m.total_gpu_kv_cache_gb.is_some() {
        let pool = f.told(
            "KV pool as reserved, GiB",
            engine,
            (m.total_gpu_kv_cache_gb, POOL),
        );
        row("KV pool as reserved", pool, "GiB", None, "");
    }
    let tokens = m.total_gpu_kv_cache_tokens.map(|n| n as f64);
    row(
        "KV pool",
        f.told("KV pool, tokens", engine, (tokens, KV_TOKENS)),
        "tokens",
        None,
        "",
    );
    row(
        "KV in use at most",
        f.told("KV in use, GiB", engine, (m.kv_cache_used_gb, KV_USED)),
        "GiB",
        None,
        "",
    );
    if !matches!(p.parameters.bench.as_str(), "" | "none") {
        let bench = "the bench's result";
        let tokens = f.told(
            "tokens/s",
            bench,
            (l.and_then(|l| l.tokens_per_second), TOKENS),
        );
        row("Throughput", tokens, words::tokens_unit(p), None, "");
        let latency = f.told(
            "mean latency, ms",
            bench,
            (l.and_then(|l| l.mean_latency_ms), LATENCY),
        );
        row("Mean latency", latency, words::latency_unit(p), None, "");
    }
    Grid {
        id: "figures".into(),
        caption: "The figures that matter".into(),
        columns: vec![
            column("figure", "figure"),
            numbers("value", "value"),
            column("unit", "unit"),
            numbers("% of the peak", "percent_of_peak"),
            column("how sure", "confidence"),
        ],
        rows,
    }
}
