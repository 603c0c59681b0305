//! The first chapter: what ran, on what, when, and the figures that matter.

use super::Sources;
use super::figures::{
    SourcedFigures, find_part, number_column, percent_cell, text_column as column,
};
use super::words;
use super::words::confidence_level;
use crate::breakdown::Component;
use crate::capture::RunEnd;
use crate::engine::facts::Severity;
use crate::report::content::{Chapter, ContentBlock, Grid, Note, TableCell};
use crate::report::layout::format_duration;
use crate::report::material::{Material, ReportRun};

/// Path, title and unit of what engine and bench reported.
pub(super) const KV_TOKENS: &str = "vllm_internal_metrics.total_gpu_kv_cache_tokens";
const POOL: &str = "vllm_internal_metrics.total_gpu_kv_cache_gb";
const KV_USED: &str = "vllm_internal_metrics.kv_cache_used_gb";
pub(super) const LATENCY: &str = "latency_stats.mean_latency_ms";
pub(super) const TOKENS: &str = "latency_stats.tokens_per_second";

pub(super) fn write_summary_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let mut blocks = Vec::new();
    match material.runs.as_slice() {
        [] => {}
        [run] => write_run_summary(&mut blocks, run, sources),
        runs => {
            // Of very many, the findings chapter has the others.
            blocks.extend(runs.iter().filter_map(note_run_end).take(20));
            super::runs::add_run_blocks(&mut blocks, runs, sources);
        }
    }
    if !material.older.is_empty() {
        blocks.push(super::older::older_documents_table(&material.older));
    }
    blocks.extend(material.unread.iter().map(|sentence| {
        ContentBlock::Note(Note {
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
fn note_run_end(run: &ReportRun) -> Option<ContentBlock> {
    let end = &run.profile.metadata.outcome;
    let severity = match end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => Severity::Warning,
        _ => Severity::Error,
    };
    Some(ContentBlock::Note(Note {
        severity,
        code: Some("not_whole".into()),
        message: format!("{}: {}", run.name, words::outcome_label(end)),
        quote: end.failure().map(str::to_owned),
    }))
}

fn write_run_summary(blocks: &mut Vec<ContentBlock>, run: &ReportRun, sources: &mut Sources) {
    let p = &run.profile;
    blocks.extend(note_run_end(run));
    let facts = [
        ("model", words::model_label(p)),
        ("engine", words::engine_label(p)),
        ("load", words::load_label(p)),
        (
            "memory",
            format!("{}, {}", words::devices_label(p), words::backend_label(p)),
        ),
        (
            "container",
            format!(
                "{} ({})",
                p.metadata.container.name, p.metadata.container.image
            ),
        ),
        ("mode", words::mode_label(p).to_owned()),
        (
            "run",
            format!(
                "{}, {}, {}",
                p.metadata.timestamp,
                format_duration(p.metadata.duration_s),
                words::outcome_label(&p.metadata.outcome)
            ),
        ),
    ];
    blocks.push(ContentBlock::Table(Grid {
        id: "run".into(),
        caption: "The run".into(),
        columns: vec![column("fact", "fact"), column("value", "value")],
        rows: facts
            .into_iter()
            .map(|(label, value)| vec![TableCell::text_cell(label), TableCell::text_cell(value)])
            .collect(),
    }));
    blocks.push(ContentBlock::Table(figures_table(run, sources)));
}

/// The figures of one run: label, figure, unit, share of the peak, how sure.
fn figures_table(run: &ReportRun, sources: &mut Sources) -> Grid {
    let p = &run.profile;
    let (b, m, l) = (
        &p.memory_breakdown,
        &p.vllm_internal_metrics,
        p.latency_stats.as_ref(),
    );
    let mut f = SourcedFigures {
        sources,
        run,
        many: false,
    };
    let mut rows = Vec::new();
    let mut row = |label: &str, cell: TableCell, unit: &str, percent: Option<f64>, sure: &str| {
        let share = percent.map_or_else(TableCell::default, |share| TableCell {
            source: cell.source,
            ..percent_cell(share)
        });
        rows.push(vec![
            TableCell::text_cell(label),
            cell,
            TableCell::text_cell(unit),
            share,
            TableCell::text_cell(sure),
        ]);
    };
    let peak = b.total_measured_gb.map(|_| 100.0);
    row(
        "Peak",
        f.peak_cell(),
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
        let known = find_part(p, c);
        let sure = known.map_or("unknown", |part| confidence_level(&part.confidence.0));
        row(
            c.display_label(),
            f.part_cell(c),
            "GiB",
            known.map(|part| part.percent),
            sure,
        );
    }
    let sure = confidence_level(&b.confidence_levels.overhead.0);
    row(
        "Framework overhead",
        f.overhead_cell(),
        "GiB",
        b.overhead_percentage,
        sure,
    );
    if let Some(rest) = find_part(p, Component::Unexplained) {
        let cell = f.part_cell(Component::Unexplained);
        row(
            "Unexplained, in the overhead",
            cell,
            "GiB",
            Some(rest.percent),
            "residual",
        );
    }
    let engine = "the engine's own word";
    if m.total_gpu_kv_cache_gb.is_some() {
        let pool = f.reported_cell(
            "KV pool as reserved, GiB",
            engine,
            (m.total_gpu_kv_cache_gb, POOL),
        );
        row("KV pool as reserved", pool, "GiB", None, "");
    }
    let tokens = m.total_gpu_kv_cache_tokens.map(|n| n as f64);
    row(
        "KV pool",
        f.reported_cell("KV pool, tokens", engine, (tokens, KV_TOKENS)),
        "tokens",
        None,
        "",
    );
    row(
        "KV in use at most",
        f.reported_cell("KV in use, GiB", engine, (m.kv_cache_used_gb, KV_USED)),
        "GiB",
        None,
        "",
    );
    if !matches!(p.parameters.bench.as_str(), "" | "none") {
        let bench = "the bench's result";
        let tokens = f.reported_cell(
            "tokens/s",
            bench,
            (l.and_then(|l| l.tokens_per_second), TOKENS),
        );
        row("Throughput", tokens, words::tokens_unit(p), None, "");
        let latency = f.reported_cell(
            "mean latency, ms",
            bench,
            (l.and_then(|l| l.mean_latency_ms), LATENCY),
        );
        row("Mean latency", latency, words::latency_unit(p), None, "");
    }
    Grid {
        id: "figures".into(),
        caption: "Key metrics".into(),
        columns: vec![
            column("figure", "figure"),
            number_column("value", "value"),
            column("unit", "unit"),
            number_column("% of the peak", "percent_of_peak"),
            column("confidence", "confidence"),
        ],
        rows,
    }
}
