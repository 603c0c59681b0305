//! What happened over time: the timeline, and what the bench measured.

use super::page::ProfilePage;
use crate::engine::LoadKind;
use crate::profile::series::PeakSource;
use crate::profile::stats::{Spread, arithmetic_mean};
use crate::profile::{LatencyStats, Profile, RepeatResult, Shape, UnderLoad};
use crate::report::layout::counted_noun;
use crate::report::layout::{Align, TextTable, format_duration, format_figure, grouped_count};
use std::collections::BTreeMap;

/// Samples, their spread, the peak and how it was seen, and what that looks like.
pub(super) fn write_timeline(page: &mut ProfilePage, profile: &Profile) {
    let t = &profile.memory_timeline;
    page.write_heading("Timeline");
    let sampling = &profile.metadata.sampling;
    let mut samples = grouped_count(t.num_samples);
    if t.sample_interval_s > 0.0 {
        samples.push_str(&format!(
            " every {} ms",
            figure_ms(t.sample_interval_s * 1e3)
        ));
    }
    if sampling.missed_ticks > 0 {
        samples.push_str(&format!(
            ", {} missed",
            grouped_count(sampling.missed_ticks)
        ));
    }
    if sampling.longest_gap_ns > sampling.interval_ns.saturating_mul(2) {
        let gap = format_duration(sampling.longest_gap_ns as f64 / 1e9);
        samples.push_str(&format!(", longest gap {gap}"));
    }
    page.write_pair("samples", &samples);
    if t.num_samples > 0 {
        let mut table = TextTable::new(&[
            ("GiB", Align::Left),
            ("min", Align::Right),
            ("mean", Align::Right),
            ("median", Align::Right),
            ("p95", Align::Right),
            ("max", Align::Right),
        ]);
        table.add_row(vec![
            "whole run ".into(),
            page.format_gib(t.min_gb),
            page.format_gib(t.mean_gb),
            page.format_gib(t.median_gb),
            page.format_gib(t.p95_gb),
            page.format_gib(t.max_gb),
        ]);
        page.write_table(&table.render_lines());
    }
    let peak = profile.memory_measurements.peak.as_ref().map(|p| {
        let source = p
            .per_gpu_details
            .iter()
            .map(|d| d.source)
            .reduce(worse)
            .map_or("", seen_by);
        format!("{}, {source}", page.gib_unit(Some(p.total_gb)))
    });
    page.pair_or_reason("peak", peak, profile, "memory_measurements.peak");
    let shape = t.under_load.as_ref().map(|u| interpretation(page, u));
    page.pair_or_reason("under load", shape, profile, "memory_timeline.under_load");
}

fn figure_ms(ms: f64) -> String {
    if ms >= 1.0 && ms.fract() == 0.0 {
        grouped_count(ms as u64)
    } else {
        format_figure(ms)
    }
}

/// The less exact of two witnesses speaks for the sum.
fn worse(a: PeakSource, b: PeakSource) -> PeakSource {
    match (a, b) {
        (PeakSource::Sample, _) | (_, PeakSource::Sample) => PeakSource::Sample,
        (PeakSource::Probe, _) | (_, PeakSource::Probe) => PeakSource::Probe,
        _ => PeakSource::KernelPeak,
    }
}

fn seen_by(source: PeakSource) -> &'static str {
    match source {
        PeakSource::KernelPeak => "by the kernel's own high-water mark: exact",
        PeakSource::Probe => "seen by fast probing between two samples",
        PeakSource::Sample => "the highest sample: a shorter spike may have been missed",
    }
}

fn interpretation(page: &ProfilePage, u: &UnderLoad) -> String {
    let range = format!(
        "{} from lowest to peak ({:.1} % of the peak)",
        page.gib_unit(Some(u.peak_gb - u.min_gb)),
        u.range_percent
    );
    let Some(shape) = u.shape else {
        return format!("{range}, too short a load to say more");
    };
    let meaning = match shape {
        Shape::Stable => "stable, no spikes".to_owned(),
        Shape::Spiky => format!(
            "spiky, the peak stands {} above 95 % of the samples",
            page.gib_unit(Some(u.peak_gb - u.p95_gb))
        ),
        Shape::Growing => "still growing towards the end, a longer run may peak higher".to_owned(),
        Shape::Varying => "comes and goes with the load".to_owned(),
    };
    format!("{range}: {meaning}")
}

/// Latency and throughput; nothing where no bench was asked for.
pub(super) fn write_latency(page: &mut ProfilePage, profile: &Profile) {
    let asked = !matches!(profile.parameters.bench.as_str(), "" | "none");
    let Some(l) = &profile.latency_stats else {
        if asked {
            page.write_heading("Latency");
            page.pair_or_reason("result", None, profile, "latency_stats");
        }
        return;
    };
    let repeats = counted_noun(l.repeats.len(), "repeat");
    let title = format!("Latency ({} bench, {repeats})", l.bench.as_str());
    page.write_heading(&title);
    let of_what = match l.bench {
        LoadKind::Latency | LoadKind::Probe => "ms per batch",
        LoadKind::Throughput | LoadKind::Serve | LoadKind::Builtin => "ms per request",
    };
    if let Some(spread) = &l.mean_latency_spread {
        let text = format!("{} {of_what}", plus_minus(page, spread, 1.0));
        page.write_pair("mean", &text);
    }
    if let Some(spread) = &l.tokens_per_second_spread {
        let mut text = format!("{} {}", plus_minus(page, spread, 1.0), tokens_label(l));
        if let Some(r) = l.requests_per_second {
            text.push_str(&format!(
                "{}{} requests/s",
                page.glyphs.dot,
                format_figure(r)
            ));
        }
        page.write_pair("throughput", &text);
    }
    if let Some(spread) = &l.peak_bytes_spread {
        let text = format!("{} GiB", plus_minus(page, spread, crate::units::GIB));
        page.write_pair("peak memory", &text);
    }
    let (completed, failed) = requests(&l.repeats);
    if let Some(completed) = completed {
        let mut text = grouped_count(completed);
        if let Some(failed) = failed.filter(|f| *f > 0) {
            text.push_str(&format!(", {} failed", grouped_count(failed)));
        }
        page.write_pair("requests", &text);
    }
    // Each note once, however many repeats have it.
    let mut told: Vec<&str> = Vec::new();
    for note in l.repeats.iter().flat_map(|r| &r.notes) {
        if !told.contains(&note.as_str()) {
            told.push(note);
            page.write_pair("note", note);
        }
    }
    percentiles(page, &l.repeats);
}

fn tokens_label(l: &LatencyStats) -> &'static str {
    let generated = l
        .repeats
        .iter()
        .any(|r| r.result.output_tokens_per_second.is_some());
    match (l.bench, generated) {
        (LoadKind::Throughput, false) => "tokens/s (prompt and generated)",
        _ => "generated tokens/s",
    }
}

fn requests(repeats: &[RepeatResult]) -> (Option<u64>, Option<u64>) {
    let sum = |pick: fn(&RepeatResult) -> Option<u64>| {
        repeats.iter().filter_map(pick).reduce(u64::saturating_add)
    };
    (sum(|r| r.result.completed), sum(|r| r.result.failed))
}

fn plus_minus(page: &ProfilePage, s: &Spread, unit: f64) -> String {
    let mean = format_figure(s.mean / unit);
    match s.stddev {
        Some(stddev) => {
            // The spread with the mean's decimals: more would feign knowledge.
            let decimals = mean.split_once('.').map_or(0, |(_, d)| d.len());
            format!(
                "{mean} {} {:.decimals$}",
                page.glyphs.plus_minus,
                stddev / unit
            )
        }
        None => mean,
    }
}

/// Time to first token and its kin, in the columns that the bench gives; means over the repeats.
fn percentiles(page: &mut ProfilePage, repeats: &[RepeatResult]) {
    type Pick = fn(&RepeatResult) -> &BTreeMap<String, f64>;
    // A serve bench reports the latency of a request from end to end: one line for both.
    let end_to_end = repeats.iter().any(|r| !r.result.e2el_ms.is_empty());
    let kinds: [(&str, Pick); 4] = [
        (
            "latency",
            if end_to_end {
                |r| &r.result.e2el_ms
            } else {
                |r| &r.result.latency_percentiles_ms
            },
        ),
        ("TTFT", |r| &r.result.ttft_ms),
        ("TPOT", |r| &r.result.tpot_ms),
        ("ITL", |r| &r.result.itl_ms),
    ];
    let columns: Vec<&str> = ["mean", "median", "p75", "p90", "p95", "p99"]
        .into_iter()
        .filter(|c| {
            kinds
                .iter()
                .any(|(_, pick)| repeats.iter().any(|r| pick(r).contains_key(*c)))
        })
        .collect();
    if columns.is_empty() {
        return;
    }
    let mut heads = vec![("ms          ", Align::Left)];
    heads.extend(columns.iter().map(|c| (*c, Align::Right)));
    let mut table = TextTable::new(&heads);
    for (label, pick) in kinds {
        if repeats.iter().all(|r| pick(r).is_empty()) {
            continue;
        }
        let mut row = vec![label.to_owned()];
        row.extend(columns.iter().map(|c| {
            let figures: Vec<f64> = repeats
                .iter()
                .filter_map(|r| {
                    let told = pick(r).get(*c).copied();
                    // Some benches report the mean beside their percentiles.
                    told.or(r
                        .result
                        .mean_latency_ms
                        .filter(|_| label == "latency" && *c == "mean"))
                })
                .collect();
            arithmetic_mean(&figures).map_or_else(|| page.glyphs.dash.to_owned(), format_figure)
        }));
        table.add_row(row);
    }
    page.write_table(&table.render_lines());
}
