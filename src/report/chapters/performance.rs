//! What the bench measured: latency percentiles, throughput, each repeat.

use super::Sources;
use super::figures::{Figures, numbers, why, words as column};
use super::words::{latency_unit, tokens_unit};
use crate::profile::stats::{Spread, mean};
use crate::profile::{LatencyStats, RepeatResult};
use crate::report::content::{Block, Cell, Chapter, Grid};
use crate::report::layout::counted;
use crate::report::layout::{figure, unsigned_zero};
use crate::report::material::{Material, Run};
use crate::units::gib;
use std::collections::BTreeMap;

/// What the figures rest on.
const BENCH: &str = "the bench's result";
/// Columns that some bench gives, in their order.
const PERCENTILES: [&str; 9] = [
    "mean", "median", "p10", "p25", "p50", "p75", "p90", "p95", "p99",
];

pub(super) fn write(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let many = material.runs.len() > 1;
    let mut blocks = Vec::new();
    for (i, run) in material.runs.iter().enumerate().filter(|(_, r)| r.in_full) {
        let p = &run.profile;
        let Some(stats) = &p.latency_stats else {
            if !matches!(p.parameters.bench.as_str(), "" | "none") {
                let text = format!(
                    "{}: no result of the bench: {}",
                    run.name,
                    why(p, "latency_stats")
                );
                blocks.push(Block::Text(text));
            }
            continue;
        };
        let mut figures = Figures { sources, run, many };
        blocks.push(Block::Text(sentence(run, stats)));
        blocks.extend(percentiles(&mut figures, stats, i).map(Block::Table));
        blocks.push(Block::Table(repeats(&mut figures, stats, i)));
        let mut told: Vec<&str> = Vec::new();
        for note in stats.repeats.iter().flat_map(|r| &r.notes) {
            if !told.contains(&note.as_str()) {
                told.push(note);
                blocks.push(Block::Text(format!("Note: {note}.")));
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
    }]
}

/// The means over the repeats, with their spread.
fn sentence(run: &Run, stats: &LatencyStats) -> String {
    let p = &run.profile;
    let mut parts = Vec::new();
    if let Some(spread) = &stats.mean_latency_spread {
        parts.push(format!(
            "mean latency {} {}",
            plus_minus(spread),
            latency_unit(p)
        ));
    }
    if let Some(spread) = &stats.tokens_per_second_spread {
        parts.push(format!("{} {}", plus_minus(spread), tokens_unit(p)));
    }
    if let Some(rate) = stats.requests_per_second {
        parts.push(format!("{} requests/s", figure(rate)));
    }
    let repeats = counted(stats.repeats.len(), "repeat");
    let told = if parts.is_empty() {
        "no figure was told".to_owned()
    } else {
        parts.join(", ")
    };
    format!(
        "{}: {} bench, {repeats}: {told}.",
        run.name,
        stats.bench.as_str()
    )
}

fn plus_minus(s: &Spread) -> String {
    let mean = figure(s.mean);
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
type Kind = (
    &'static str,
    &'static str,
    fn(&RepeatResult) -> &BTreeMap<String, f64>,
);

/// Latency and its kin in the columns that the bench gives, means over the repeats.
fn percentiles(figures: &mut Figures<'_>, stats: &LatencyStats, i: usize) -> Option<Grid> {
    let end_to_end = stats.repeats.iter().any(|r| !r.result.e2el_ms.is_empty());
    let latency: Kind = if end_to_end {
        ("Latency, end to end", "e2el_ms", |r| &r.result.e2el_ms)
    } else {
        ("Latency", "latency_percentiles_ms", |r| {
            &r.result.latency_percentiles_ms
        })
    };
    let kinds: [Kind; 4] = [
        latency,
        ("Time to first token", "ttft_ms", |r| &r.result.ttft_ms),
        ("Time per output token", "tpot_ms", |r| &r.result.tpot_ms),
        ("Between tokens", "itl_ms", |r| &r.result.itl_ms),
    ];
    let has =
        |pick: &Kind, column: &str| stats.repeats.iter().any(|r| pick.2(r).contains_key(column));
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
        let mut row = vec![Cell::text(kind.0)];
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
            row.push(match mean(&told) {
                Some(ms) => {
                    let text = figure(ms);
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
                    Cell::number(ms, text).from(id)
                }
                None => Cell::missing("the bench does not tell it"),
            });
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return None;
    }
    let mut heads = vec![column("ms", "kind")];
    heads.extend(columns.iter().map(|c| numbers(c, &format!("{c}_ms"))));
    Some(Grid {
        id: super::numbered("latency", i, figures.many),
        caption: super::of_run("Latency, means over the repeats", figures.run, figures.many),
        columns: heads,
        rows,
    })
}

/// Each repeat on its own line.
fn repeats(figures: &mut Figures<'_>, stats: &LatencyStats, i: usize) -> Grid {
    let mut rows = Vec::new();
    for r in &stats.repeats {
        let result = &r.result;
        let mut cell = |title: &str, value: Option<f64>, key: &str, text: fn(f64) -> String| {
            let path = format!("latency_stats.repeats[].{key}");
            let Some(value) = value.filter(|v| v.is_finite()) else {
                return Cell::missing(why(&figures.run.profile, &path));
            };
            let shown = text(value);
            let id = figures.of_key(
                (&format!("{title}, repeat {}", r.repeat), shown.clone()),
                BENCH,
                (format!("{title}: {value}"), &path),
            );
            Cell::number(value, shown).from(id)
        };
        let whole = |n: Option<u64>| n.map(|n| n as f64);
        let count = |v: f64| unsigned_zero(format!("{v:.0}"));
        rows.push(vec![
            Cell::text(r.repeat.to_string()),
            cell("peak, GiB", r.peak_bytes.map(gib), "peak_bytes", |v| {
                format!("{v:.3}")
            }),
            cell(
                "mean latency, ms",
                result.mean_latency_ms,
                "result.mean_latency_ms",
                figure,
            ),
            cell(
                "generated tokens/s",
                result.output_tokens_per_second,
                "result.output_tokens_per_second",
                figure,
            ),
            cell(
                "all tokens/s",
                result.total_tokens_per_second,
                "result.total_tokens_per_second",
                figure,
            ),
            cell(
                "requests/s",
                result.requests_per_second,
                "result.requests_per_second",
                figure,
            ),
            cell(
                "requests",
                whole(result.completed),
                "result.completed",
                count,
            ),
            cell("failed", whole(result.failed), "result.failed", count),
            cell("seconds", result.duration_s, "result.duration_s", figure),
        ]);
    }
    // A figure that no repeat has gets no column.
    let heads = [
        column("repeat", "repeat"),
        numbers("peak, GiB", "peak_gib"),
        numbers("mean latency, ms", "mean_latency_ms"),
        numbers("generated tokens/s", "output_tokens_per_second"),
        numbers("prompt and generated tokens/s", "total_tokens_per_second"),
        numbers("requests/s", "requests_per_second"),
        numbers("requests", "completed"),
        numbers("failed", "failed"),
        numbers("measured, s", "duration_s"),
    ];
    let kept: Vec<usize> = (0..heads.len())
        .filter(|c| *c < 3 || rows.iter().any(|row| row[*c].missing.is_none()))
        .collect();
    Grid {
        id: super::numbered("repeats", i, figures.many),
        caption: super::of_run("Each repeat", figures.run, figures.many),
        columns: kept.iter().map(|c| heads[*c].clone()).collect(),
        rows: (rows.into_iter())
            .map(|row| kept.iter().map(|c| row[*c].clone()).collect())
            .collect(),
    }
}
