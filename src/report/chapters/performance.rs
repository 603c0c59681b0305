//! What the bench measured: latency percentiles, throughput, each repeat.

use super::figures::{SourcedFigures, reason_at_path};
use super::summary::BENCH;
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
                let (name, why) = (&run.name, reason_at_path(p, "latency_stats"));
                blocks.push(format!("{name}: no result of the bench: {why}").into());
            }
            continue;
        };
        let mut figures = at.figures(sources);
        blocks.push(sentence(run, stats).into());
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
    let latency = stats.mean_latency_spread.as_ref().map(plus_minus);
    let latency = latency.map(|mean| format!("mean latency {mean} {}", latency_unit(p)));
    let speed = match &stats.tokens_per_second_spread {
        Some(spread) => format!("{} {}", plus_minus(spread), tokens_unit(p)),
        None => {
            let why = reason_at_path(p, "latency_stats.tokens_per_second");
            format!("throughput unknown: {why}")
        }
    };
    let rate = stats.requests_per_second.map(format_figure);
    let rate = rate.map(|rate| format!("{rate} requests/s"));
    let figures: Vec<String> = latency.into_iter().chain([speed]).chain(rate).collect();
    let repeats = counted_noun(stats.repeats.len(), "repeat");
    let (name, bench, figures) = (&run.name, stats.bench.as_str(), figures.join(", "));
    format!("{name}: {bench} bench, {repeats}: {figures}.")
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
    for (title, key, pick) in kinds {
        if stats.repeats.iter().all(|r| pick(r).is_empty()) {
            continue;
        }
        let path = format!("latency_stats.repeats[].result.{key}");
        let cells = columns.iter().map(|column| {
            // Some benches report the mean beside their percentiles.
            let has_mean = *column == "mean" && key == latency.1;
            let values = stats.repeats.iter().filter_map(|r| {
                let beside = r.result.mean_latency_ms.filter(|_| has_mean);
                pick(r).get(*column).copied().or(beside)
            });
            let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
            let Some(ms) = arithmetic_mean(&values) else {
                return TableCell::missing_cell("not reported by the bench");
            };
            let text = format_figure(ms);
            let list: Vec<String> = values.iter().map(f64::to_string).collect();
            let quote = format!("{column} of each repeat, ms: {}", list.join(", "));
            let title = format!("{title}, {column}");
            let id = figures.of_key((&title, format!("{text} ms")), BENCH, (quote, &path));
            TableCell::number_cell(ms, text).from(id)
        });
        rows.push(std::iter::once(title.into()).chain(cells).collect());
    }
    if rows.is_empty() {
        return None;
    }
    let heads = columns.iter();
    let heads = heads.map(|c| number_column(*c, &format!("{c}_ms")));
    Some(Grid {
        id: at.id("latency"),
        caption: at.title("Latency, means over the repeats"),
        columns: std::iter::once(column("ms", "kind")).chain(heads).collect(),
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
            let name = format!("{title}, repeat {}", r.repeat);
            let quote = format!("{title}: {value}");
            let id = figures.of_key((&name, shown.clone()), BENCH, (quote, &path));
            TableCell::number_cell(value, shown).from(id)
        });
    }
    table.grid(at.id("repeats"), at.title("Each repeat"))
}
