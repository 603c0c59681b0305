//! What the bench measured: latency percentiles, throughput, each repeat.

use super::Sources;
use super::figures::{SourcedFigures, reason_at_path};
use super::words::{latency_unit, tokens_unit};
use crate::profile::stats::{Spread, arithmetic_mean};
use crate::profile::{LatencyStats, RepeatResult};
use crate::report::content::{
    Chapter, ContentBlock, Grid, TableCell, number_column, text_column as column,
};
use crate::report::layout::counted_noun;
use crate::report::layout::{format_figure, unsigned_zero};
use crate::report::material::{Material, ReportRun};
use crate::units::to_gib;
use std::collections::BTreeMap;

/// What the figures rest on.
const BENCH: &str = "the bench's result";
/// Columns that some bench gives, in their order.
const PERCENTILES: [&str; 9] = [
    "mean", "median", "p10", "p25", "p50", "p75", "p90", "p95", "p99",
];

pub(super) fn write_performance_chapter(
    material: &Material,
    sources: &mut Sources,
) -> Vec<Chapter> {
    let many = material.runs.len() > 1;
    let (mut blocks, mut details) = (Vec::new(), Vec::new());
    for (i, run) in material.runs.iter().enumerate().filter(|(_, r)| r.in_full) {
        let p = &run.profile;
        let Some(stats) = &p.latency_stats else {
            if !matches!(p.parameters.bench.as_str(), "" | "none") {
                let text = format!(
                    "{}: no result of the bench: {}",
                    run.name,
                    reason_at_path(p, "latency_stats")
                );
                blocks.push(ContentBlock::Text(text));
            }
            continue;
        };
        let mut figures = SourcedFigures { sources, run, many };
        blocks.push(ContentBlock::Text(sentence(run, stats)));
        blocks.extend(percentiles(&mut figures, stats, i).map(ContentBlock::Table));
        details.push(ContentBlock::Table(repeats(&mut figures, stats, i)));
        let mut notes: Vec<&str> = Vec::new();
        for note in stats.repeats.iter().flat_map(|r| &r.notes) {
            if !notes.contains(&note.as_str()) {
                notes.push(note);
                blocks.push(ContentBlock::Text(format!("Note: {note}.")));
            }
        }
    }
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Chapter {
        id: "performance".into(),
        title: "Latency and throughput".into(),
        blocks,
        details,
    }]
}

/// The means over the repeats, with their spread.
fn sentence(run: &ReportRun, stats: &LatencyStats) -> String {
    let p = &run.profile;
    let mut parts = Vec::new();
    if let Some(spread) = &stats.mean_latency_spread {
        parts.push(format!(
            "mean latency {} {}",
            plus_minus(spread),
            latency_unit(p)
        ));
    }
    match &stats.tokens_per_second_spread {
        Some(spread) => parts.push(format!("{} {}", plus_minus(spread), tokens_unit(p))),
        None => {
            let why = reason_at_path(p, "latency_stats.tokens_per_second");
            parts.push(format!("throughput unknown: {why}"));
        }
    }
    if let Some(rate) = stats.requests_per_second {
        parts.push(format!("{} requests/s", format_figure(rate)));
    }
    let repeats = counted_noun(stats.repeats.len(), "repeat");
    let figures = if parts.is_empty() {
        "no figure was reported".to_owned()
    } else {
        parts.join(", ")
    };
    format!(
        "{}: {} bench, {repeats}: {figures}.",
        run.name,
        stats.bench.as_str()
    )
}

fn plus_minus(s: &Spread) -> String {
    let mean = format_figure(s.mean);
    match s.stddev {
        // The spread with the mean's decimals: more would feign knowledge.
        Some(stddev) => {
            let decimals = mean.split_once('.').map_or(0, |(_, d)| d.len());
            format!("{mean} ± {stddev:.decimals$}")
        }
        None => mean,
    }
}

/// A kind of latency: its words, its key in a result, and its path there.
type LatencyKind = (
    &'static str,
    &'static str,
    fn(&RepeatResult) -> &BTreeMap<String, f64>,
);

/// Latency and its kin in the columns that the bench gives, means over the repeats.
fn percentiles(figures: &mut SourcedFigures<'_>, stats: &LatencyStats, i: usize) -> Option<Grid> {
    let end_to_end = stats.repeats.iter().any(|r| !r.result.e2el_ms.is_empty());
    let latency: LatencyKind = if end_to_end {
        ("Latency, end to end", "e2el_ms", |r| &r.result.e2el_ms)
    } else {
        ("Latency", "latency_percentiles_ms", |r| {
            &r.result.latency_percentiles_ms
        })
    };
    let kinds: [LatencyKind; 4] = [
        latency,
        ("Time to first token", "ttft_ms", |r| &r.result.ttft_ms),
        ("Time per output token", "tpot_ms", |r| &r.result.tpot_ms),
        ("Between tokens", "itl_ms", |r| &r.result.itl_ms),
    ];
    let has = |pick: &LatencyKind, column: &str| {
        stats.repeats.iter().any(|r| pick.2(r).contains_key(column))
    };
    let median = kinds.iter().any(|k| has(k, "median"));
    let columns: Vec<&str> = PERCENTILES
        .into_iter()
        .filter(|c| kinds.iter().any(|k| has(k, c)) || *c == "mean")
        // The same under two names.
        .filter(|c| !(*c == "p50" && median))
        .collect();
    let mut rows = Vec::new();
    for kind in &kinds {
        if stats.repeats.iter().all(|r| kind.2(r).is_empty()) {
            continue;
        }
        let mut row = vec![TableCell::text_cell(kind.0)];
        for column in &columns {
            let told: Vec<f64> = (stats.repeats.iter())
                .filter_map(|r| {
                    // Some benches report the mean beside their percentiles.
                    let beside = r
                        .result
                        .mean_latency_ms
                        .filter(|_| *column == "mean" && kind.1 == latency.1);
                    kind.2(r).get(*column).copied().or(beside)
                })
                .filter(|v| v.is_finite())
                .collect();
            row.push(match arithmetic_mean(&told) {
                Some(ms) => {
                    let text = format_figure(ms);
                    let list: Vec<String> = told.iter().map(f64::to_string).collect();
                    let path = format!("latency_stats.repeats[].result.{}", kind.1);
                    let id = figures.of_key(
                        (&format!("{}, {column}", kind.0), format!("{text} ms")),
                        BENCH,
                        (
                            format!("{column} of each repeat, ms: {}", list.join(", ")),
                            &path,
                        ),
                    );
                    TableCell::number_cell(ms, text).from(id)
                }
                None => TableCell::missing_cell("the bench does not tell it"),
            });
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return None;
    }
    let mut heads = vec![column("ms", "kind")];
    heads.extend(
        columns
            .iter()
            .map(|c| number_column(*c, &format!("{c}_ms"))),
    );
    Some(Grid {
        id: super::numbered_id("latency", i, figures.many),
        caption: super::of_run("Latency, means over the repeats", figures.run, figures.many),
        columns: heads,
        rows,
    })
}

/// Each repeat on its own line.
fn repeats(figures: &mut SourcedFigures<'_>, stats: &LatencyStats, i: usize) -> Grid {
    let mut rows = Vec::new();
    for r in &stats.repeats {
        let result = &r.result;
        let mut cell = |title: &str, value: Option<f64>, key: &str, text: fn(f64) -> String| {
            let path = format!("latency_stats.repeats[].{key}");
            let Some(value) = value.filter(|v| v.is_finite()) else {
                return TableCell::missing_cell(reason_at_path(&figures.run.profile, &path));
            };
            let shown = text(value);
            let id = figures.of_key(
                (&format!("{title}, repeat {}", r.repeat), shown.clone()),
                BENCH,
                (format!("{title}: {value}"), &path),
            );
            TableCell::number_cell(value, shown).from(id)
        };
        let whole = |n: Option<u64>| n.map(|n| n as f64);
        let count = |v: f64| unsigned_zero(format!("{v:.0}"));
        rows.push(vec![
            TableCell::text_cell(r.repeat.to_string()),
            cell("peak, GiB", r.peak_bytes.map(to_gib), "peak_bytes", |v| {
                format!("{v:.3}")
            }),
            cell(
                "mean latency, ms",
                result.mean_latency_ms,
                "result.mean_latency_ms",
                format_figure,
            ),
            cell(
                "generated tokens/s",
                result.output_tokens_per_second,
                "result.output_tokens_per_second",
                format_figure,
            ),
            cell(
                "all tokens/s",
                result.total_tokens_per_second,
                "result.total_tokens_per_second",
                format_figure,
            ),
            cell(
                "requests/s",
                result.requests_per_second,
                "result.requests_per_second",
                format_figure,
            ),
            cell(
                "requests",
                whole(result.completed),
                "result.completed",
                count,
            ),
            cell("failed", whole(result.failed), "result.failed", count),
            cell(
                "seconds",
                result.duration_s,
                "result.duration_s",
                format_figure,
            ),
        ]);
    }
    // A figure that no repeat has gets no column.
    let heads = [
        column("repeat", "repeat"),
        number_column("peak, GiB", "peak_gib"),
        number_column("mean latency, ms", "mean_latency_ms"),
        number_column("generated tokens/s", "output_tokens_per_second"),
        number_column("prompt and generated tokens/s", "total_tokens_per_second"),
        number_column("requests/s", "requests_per_second"),
        number_column("requests", "completed"),
        number_column("failed", "failed"),
        number_column("measured, s", "duration_s"),
    ];
    let kept: Vec<usize> = (0..heads.len())
        .filter(|c| *c < 3 || rows.iter().any(|row| row[*c].missing.is_none()))
        .collect();
    Grid {
        id: super::numbered_id("repeats", i, figures.many),
        caption: super::of_run("Each repeat", figures.run, figures.many),
        columns: kept.iter().map(|c| heads[*c].clone()).collect(),
        rows: (rows.into_iter())
            .map(|row| kept.iter().map(|c| row[*c].clone()).collect())
            .collect(),
    }
}
