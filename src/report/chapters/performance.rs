//! What the bench measured: latency percentiles, throughput, each repeat.

use super::figures::{SourcedFigures, reason_at_path};
use super::words::{latency_unit, tokens_unit};
use super::{ShownRun, Sources};
use crate::profile::stats::{Spread, arithmetic_mean};
use crate::profile::{LatencyStats, RepeatResult};
use crate::report::content::{
    Chapter, ContentBlock, Grid, TableCell, number_column, text_column as column,
};
use crate::report::layout::{counted_noun, distinct_items, format_figure};
use crate::report::material::{Material, ReportRun};
use crate::report::tables::{TableBuilder, format_in_unit};
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
    let (mut blocks, mut details) = (Vec::new(), Vec::new());
    for at in material.shown_runs() {
        let run = at.run;
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
        let mut figures = at.figures(sources);
        blocks.push(ContentBlock::Text(sentence(run, stats)));
        blocks.extend(percentiles(&mut figures, stats, at).map(ContentBlock::Table));
        details.push(ContentBlock::Table(repeats(&mut figures, stats, at)));
        let notes = distinct_items(stats.repeats.iter().flat_map(|r| &r.notes));
        let notes = notes.into_iter().map(|note| format!("Note: {note}."));
        blocks.extend(notes.map(ContentBlock::Text));
    }
    Chapter::of_parts("performance", "Latency and throughput", blocks, details)
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
fn percentiles(
    figures: &mut SourcedFigures<'_>,
    stats: &LatencyStats,
    at: ShownRun<'_>,
) -> Option<Grid> {
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
            let values: Vec<f64> = (stats.repeats.iter())
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
            row.push(match arithmetic_mean(&values) {
                Some(ms) => {
                    let text = format_figure(ms);
                    let list: Vec<String> = values.iter().map(f64::to_string).collect();
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
                None => TableCell::missing_cell("not reported by the bench"),
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
        id: at.id("latency"),
        caption: at.title("Latency, means over the repeats"),
        columns: heads,
        rows,
    })
}

/// A figure of a repeat: its title, its key in CSV and in the profile, and its value.
type RepeatFigure = (
    &'static str,
    &'static str,
    &'static str,
    fn(&RepeatResult) -> Option<f64>,
);

/// The first two have a column even where no repeat has them.
#[rustfmt::skip]
static REPEAT_FIGURES: [RepeatFigure; 8] = [
    ("peak, GiB", "peak_gib", "peak_bytes", |r| r.peak_bytes.map(to_gib)),
    ("mean latency, ms", "mean_latency_ms", "result.mean_latency_ms", |r| r.result.mean_latency_ms),
    ("generated tokens/s", "output_tokens_per_second", "result.output_tokens_per_second", |r| r.result.output_tokens_per_second),
    ("prompt and generated tokens/s", "total_tokens_per_second", "result.total_tokens_per_second", |r| r.result.total_tokens_per_second),
    ("requests/s", "requests_per_second", "result.requests_per_second", |r| r.result.requests_per_second),
    ("requests", "completed", "result.completed", |r| r.result.completed.map(|n| n as f64)),
    ("failed", "failed", "result.failed", |r| r.result.failed.map(|n| n as f64)),
    ("measured, s", "duration_s", "result.duration_s", |r| r.result.duration_s),
];

/// Each repeat on its own line.
fn repeats(figures: &mut SourcedFigures<'_>, stats: &LatencyStats, at: ShownRun<'_>) -> Grid {
    let mut table =
        TableBuilder::of_items(&stats.repeats).words("repeat", "repeat", |r| r.repeat.to_string());
    for (n, (title, key, in_profile, value)) in REPEAT_FIGURES.iter().enumerate() {
        let known = |r: &RepeatResult| value(r).filter(|v| v.is_finite());
        if n >= 2 && stats.repeats.iter().all(|r| known(r).is_none()) {
            continue;
        }
        let path = format!("latency_stats.repeats[].{in_profile}");
        let unit = match *key {
            "peak_gib" => "GiB",
            "completed" | "failed" => "",
            _ => "of a rate or a time",
        };
        table = table.figures(title, key, |r| {
            let Some(value) = known(r) else {
                return TableCell::missing_cell(reason_at_path(&at.run.profile, &path));
            };
            let shown = format_in_unit(value, unit);
            let id = figures.of_key(
                (&format!("{title}, repeat {}", r.repeat), shown.clone()),
                BENCH,
                (format!("{title}: {value}"), &path),
            );
            TableCell::number_cell(value, shown).from(id)
        });
    }
    table.grid(at.id("repeats"), at.title("Each repeat"))
}
