//! What the bench measured, over all repeats.

use super::observation::CaptureObservation;
use super::stats::Spread;
use super::unknown::{NullReasons, null_reasons};
use crate::engine::{BenchResult, LoadKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Latency and throughput from the engine's own bench, or from plimsoll's own client (`builtin`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyStats {
    /// The bench that ran.
    pub bench: LoadKind,
    /// Mean over the repeats, milliseconds: of a batch (latency bench) or of a request (serve).
    pub mean_latency_ms: Option<f64>,
    /// Generated tokens per second, mean over the repeats. The latency bench does not print it:
    /// there it is batch × output length / mean latency. A throughput bench prints prompt and
    /// generated tokens together: there it is both.
    pub tokens_per_second: Option<f64>,
    /// Requests per second, mean over the repeats.
    pub requests_per_second: Option<f64>,
    /// Spread of `mean_latency_ms` over the repeats.
    pub mean_latency_spread: Option<Spread>,
    /// Spread of `tokens_per_second` over the repeats.
    pub tokens_per_second_spread: Option<Spread>,
    /// Spread of the peak memory over the repeats, bytes.
    pub peak_bytes_spread: Option<Spread>,
    /// Each repeat.
    pub repeats: Vec<RepeatResult>,
}

/// One repeat of the bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatResult {
    /// From 1.
    pub repeat: u32,
    /// Peak memory during it, bytes over all devices.
    pub peak_bytes: Option<u64>,
    /// From its result file.
    pub result: BenchResult,
    /// What must be known of these figures, sentences: such as that prompt lengths are in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why a figure of the bench is null, or the section is.
pub(super) fn note_null_reasons(
    stats: Option<&LatencyStats>,
    o: &CaptureObservation<'_>,
    out: &mut NullReasons,
) {
    let (c, at) = (o.capture, "latency_stats");
    let Some(stats) = stats else {
        return out.note_if_null(true, at.into(), || {
            let error = c.benches().find_map(|e| e.result_error.as_ref());
            let no_result = || match error {
                Some(error) => format!("the bench's result could not be read: {error}"),
                None => c
                    .end
                    .unmeasured()
                    .unwrap_or_else(|| "the bench left no result that could be read".into()),
            };
            o.no_bench_or(no_result)
        });
    };
    let silent = || format!("a {} bench does not report it", c.request.bench);
    // A latency bench's rate is calculated: batch size times output length, divided by the latency.
    let no_batch = || match (c.request.bench.as_str(), c.request.batch_size()) {
        ("latency", None) => "it is only known with --batch-size".to_owned(),
        _ => silent(),
    };
    null_reasons!(out, at, stats;
        mean_latency_ms, requests_per_second, mean_latency_spread => silent();
        tokens_per_second, tokens_per_second_spread => no_batch();
        peak_bytes_spread => o.not_sampled();
    );
    for (key, spread) in [
        ("mean_latency_spread", &stats.mean_latency_spread),
        ("tokens_per_second_spread", &stats.tokens_per_second_spread),
        ("peak_bytes_spread", &stats.peak_bytes_spread),
    ] {
        if let Some(spread) = spread {
            null_reasons!(out, format_args!("{at}.{key}"), spread; stddev => "one repeat has no spread";);
        }
    }
    for repeat in &stats.repeats {
        null_reasons!(out, "latency_stats.repeats[]", repeat;
            peak_bytes => o.not_sampled();
            result.mean_latency_ms, result.output_tokens_per_second, result.total_tokens_per_second,
            result.requests_per_second, result.duration_s, result.completed, result.failed,
            result.total_input_tokens, result.total_output_tokens => silent();
        );
    }
}

impl LatencyStats {
    /// Requests that failed, of how many, over the repeats; `None` where the bench counts none.
    pub(super) fn failed_requests(&self) -> Option<(u64, u64)> {
        let sum = |pick: fn(&BenchResult) -> Option<u64>| {
            let figures = self.repeats.iter().filter_map(|r| pick(&r.result));
            figures.reduce(u64::saturating_add)
        };
        let failed = sum(|r| r.failed)?;
        let completed = sum(|r| r.completed).unwrap_or(0);
        Some((failed, failed.saturating_add(completed)))
    }

    /// Whether its tokens per second are those of prompts, too: a throughput bench that reports no others.
    pub fn counts_prompts(&self) -> bool {
        let known = |r: &RepeatResult| r.result.output_tokens_per_second.is_some();
        self.bench == LoadKind::Throughput && !self.repeats.iter().any(known)
    }

    /// Over these repeats; `None` of none. `batch_tokens` is batch × output length, for the
    /// latency bench.
    pub(super) fn stats_of_repeats(
        bench: LoadKind,
        repeats: Vec<RepeatResult>,
        batch_tokens: Option<f64>,
    ) -> Option<LatencyStats> {
        if repeats.is_empty() {
            return None;
        }
        let all = |pick: &dyn Fn(&RepeatResult) -> Option<f64>| -> Option<Spread> {
            Spread::spread_of(&repeats.iter().filter_map(pick).collect::<Vec<_>>())
        };
        let latency = all(&|r| r.result.mean_latency_ms);
        let tokens = all(&|r| match (bench, r.result.output_tokens_per_second) {
            (_, Some(t)) => Some(t),
            (LoadKind::Latency, None) => {
                Some(batch_tokens? / (r.result.mean_latency_ms.filter(|ms| *ms > 0.0)? / 1e3))
            }
            (_, None) => r
                .result
                .total_tokens_per_second
                .filter(|_| bench == LoadKind::Throughput),
        });
        Some(LatencyStats {
            bench,
            mean_latency_ms: latency.map(|s| s.mean),
            tokens_per_second: tokens.map(|s| s.mean),
            requests_per_second: all(&|r| r.result.requests_per_second).map(|s| s.mean),
            mean_latency_spread: latency,
            tokens_per_second_spread: tokens,
            peak_bytes_spread: all(&|r| r.peak_bytes.map(|b| b as f64)),
            repeats,
        })
    }
}
