//! One level: the results of its requests, and the memory it took.

use super::{ExperimentKind, RequestedLoad};
use crate::capture::RequestRow;
use crate::engine::BenchResult;
use crate::engine::torch_probe::{MeasuredBy, TorchMemory};
use crate::profile::stats::{arithmetic_mean, quantile_of_sorted};
use crate::profile::{InternalMetrics, MemoryGauge, Profile};
use crate::units::GIB;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// Interval between readings of an engine's gauges, seconds.
const READING_S: f64 = 1.0;

/// Sequences of a batch that get a row each, at most.
const MOST_SEQUENCES: u64 = 10_000;

/// How a level ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LevelState {
    /// Measured.
    Done,
    /// Tried, and it failed.
    Failed,
    /// Not tried, for it would have failed.
    Skipped,
    /// Not begun, or not ended: the experiment was stopped before.
    #[default]
    #[strum(serialize = "not run")]
    NotRun,
}

crate::wording::as_written!(LevelState);

/// What was run of a level.
#[derive(Debug, Clone)]
pub struct LevelRun {
    /// Its name: `8`, `short`.
    pub name: String,
    /// Its load.
    pub asked: RequestedLoad,
    /// How it ended.
    pub state: LevelState,
    /// Why it has no figures: a word and a sentence.
    pub why: Option<(String, String)>,
    /// Its profile, where it has one.
    pub profile: Option<Box<Profile>>,
    /// Where that lies, relative to the folder of the experiment.
    pub profile_path: Option<String>,
    /// Its requests, where plimsoll's own client sent them.
    pub requests: Vec<RequestRow>,
    /// Wall time of the zero of their moments, nanoseconds since the Unix epoch.
    pub wall_start_ns: i64,
}

impl LevelRun {
    /// Its requests; of a bench of batches each sequence counts as one, and only how long it took is known.
    pub(super) fn request_rows(&self) -> Cow<'_, [RequestRow]> {
        match (&self.profile, self.requests.is_empty()) {
            (Some(profile), true) => Cow::Owned(of_batches(profile)),
            _ => Cow::Borrowed(&self.requests),
        }
    }
}

fn of_batches(profile: &Profile) -> Vec<RequestRow> {
    let torch = profile.torch_memory.as_ref().map(|t| &t.load);
    let workload = &profile.parameters.workload;
    let batch = match torch {
        Some(load) => load.batch_size,
        None => u64::from(workload.batch_size.unwrap_or(1)),
    };
    let counted = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let prompt = torch.map_or(workload.input_len, |l| counted(l.prompt_tokens));
    let output = torch.map_or(workload.output_len, |l| counted(l.generated_tokens));
    let mut rows = Vec::new();
    for repeat in profile.latency_stats.iter().flat_map(|l| &l.repeats) {
        let mut begin_ns = 0;
        for ms in &repeat.result.latencies_ms {
            let end_ns = begin_ns + (ms * 1e6) as i64;
            rows.extend((0..batch.min(MOST_SEQUENCES)).map(|_| RequestRow {
                repeat: repeat.repeat,
                intended_at_ns: begin_ns,
                sent_at_ns: Some(begin_ns),
                last_at_ns: Some(end_ns),
                ended_at_ns: end_ns,
                input_asked: prompt,
                input_tokens: torch.map(|l| l.prompt_tokens),
                output_asked: output,
                output_tokens: Some(u64::from(output)),
                ..RequestRow::default()
            }));
            begin_ns = end_ns;
        }
    }
    (rows.iter_mut().zip(0..)).for_each(|(row, number)| row.number = number);
    rows
}

/// How many prompts must have been in the pool at once, where the gauge, read once a second, saw less than they take.
fn missed_requests(
    run: &LevelRun,
    engine: &InternalMetrics,
    mean_latency_s: Option<f64>,
) -> Option<u32> {
    mean_latency_s.filter(|s| *s < READING_S)?;
    let (used, pool) = (engine.kv_cache_used_gb?, engine.total_gpu_kv_cache_gb?);
    let tokens = used / pool * engine.total_gpu_kv_cache_tokens? as f64;
    let asked = &run.asked;
    let shortest = asked
        .short_prompts
        .map_or(asked.prompt_tokens, |s| s.input_len);
    let together = asked.concurrency.min(asked.requests);
    let least = f64::from(together) * f64::from(shortest);
    (tokens < least * 0.99).then_some(together)
}

/// A level with its figures. Null is not measured, with the reason in [`super::Experiment::not_measured`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentLevel {
    /// Its name: `8`, `short`.
    pub name: String,
    /// Its place on the axis of what is varied.
    pub x: f64,
    /// Its load, as asked for.
    pub asked: RequestedLoad,
    /// How it ended.
    pub state: LevelState,
    /// Why there are no figures, in a word: `oom`.
    pub cause: Option<String>,
    /// The same in a sentence.
    pub message: Option<String>,
    /// Requests that came to an end of their own: successful and failed ones together.
    pub total: Option<u64>,
    /// Answered whole.
    pub successful: Option<u64>,
    /// Not answered, or not whole.
    pub failed: Option<u64>,
    /// Failed ones of all that ended, 0 to 1.
    pub error_rate: Option<f64>,
    /// Latency, mean over the successful ones, seconds: from the moment that a request was to be
    /// sent until its last token.
    pub mean_latency_s: Option<f64>,
    /// 95th percentile of it.
    pub p95_latency_s: Option<f64>,
    /// Generated tokens per second of one request, mean over the successful ones.
    pub mean_tokens_per_s: Option<f64>,
    /// Generated tokens per second of all together, mean over the repeats.
    pub total_tokens_per_s: Option<f64>,
    /// Time to first token, mean, seconds.
    pub mean_ttft_s: Option<f64>,
    /// 95th percentile of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ttft_s: Option<f64>,
    /// Time between two tokens, 95th percentile, mean over the repeats, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_itl_s: Option<f64>,
    /// Peak of all devices, bytes.
    pub peak_bytes: Option<u64>,
    /// How full the device that came nearest to its limit was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fullest_device: Option<MemoryGauge>,
    /// KV pool that the engine reserved, bytes.
    pub kv_pool_bytes: Option<u64>,
    /// KV in use at most while the load ran, by the engine, bytes.
    pub kv_used_bytes: Option<u64>,
    /// The same as a share of the pool, 0 to 1.
    pub kv_used_share: Option<f64>,
    /// Most that torch had allocated, all devices together, bytes.
    pub peak_alloc_bytes: Option<u64>,
    /// Most that torch had reserved, all devices together, bytes.
    pub peak_reserved_bytes: Option<u64>,
    /// The requests of each length, where there are several lengths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_prompt: Vec<OfLength>,
    /// Its profile, relative to the folder of the experiment.
    pub profile: Option<String>,
}

/// The successful requests with prompts of one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfLength {
    /// Prompt tokens asked for.
    pub prompt_tokens: u32,
    /// How many there were.
    pub successful: u64,
    /// Their latency, mean, seconds.
    pub mean_latency_s: Option<f64>,
    /// Their time to first token, mean, seconds.
    pub mean_ttft_s: Option<f64>,
}

/// A figure by its key, and whether a level has it.
type LevelFigure = (&'static str, fn(&ExperimentLevel) -> bool);

/// The figures with a reason in the document where they are null.
pub const FIGURES: [LevelFigure; 15] = [
    ("total", |l| l.total.is_some()),
    ("mean_latency_s", |l| l.mean_latency_s.is_some()),
    ("p95_latency_s", |l| l.p95_latency_s.is_some()),
    ("mean_tokens_per_s", |l| l.mean_tokens_per_s.is_some()),
    ("total_tokens_per_s", |l| l.total_tokens_per_s.is_some()),
    ("mean_ttft_s", |l| l.mean_ttft_s.is_some()),
    ("p95_ttft_s", |l| l.p95_ttft_s.is_some()),
    ("p95_itl_s", |l| l.p95_itl_s.is_some()),
    ("peak_bytes", |l| l.peak_bytes.is_some()),
    ("kv_pool_bytes", |l| l.kv_pool_bytes.is_some()),
    ("kv_used_bytes", |l| l.kv_used_bytes.is_some()),
    ("kv_used_share", |l| l.kv_used_share.is_some()),
    ("peak_alloc_bytes", |l| l.peak_alloc_bytes.is_some()),
    ("peak_reserved_bytes", |l| l.peak_reserved_bytes.is_some()),
    ("requests", |l| l.total.is_some()),
];

impl ExperimentLevel {
    /// Of a run.
    pub fn level_of_run(kind: ExperimentKind, run: &LevelRun) -> ExperimentLevel {
        let profile = run.profile.as_deref();
        let engine = profile.map(|p| &p.vllm_internal_metrics);
        let torch = profile.and_then(|p| p.torch_memory.as_ref());
        let by_bench = of_bench(profile);
        let load = match run.request_rows() {
            rows if rows.is_empty() => by_bench,
            rows => {
                let load = of_requests(&rows);
                let of_batches = run.requests.is_empty();
                ExperimentLevel {
                    mean_ttft_s: load
                        .mean_ttft_s
                        .or(by_bench.mean_ttft_s.filter(|_| of_batches)),
                    p95_ttft_s: load
                        .p95_ttft_s
                        .or(by_bench.p95_ttft_s.filter(|_| of_batches)),
                    // The rows have no moments between the first token and the last.
                    p95_itl_s: by_bench.p95_itl_s,
                    ..load
                }
            }
        };
        let bytes = |gib: f64| (gib * GIB).round() as u64;
        let gauge = engine.filter(|e| missed_requests(run, e, load.mean_latency_s).is_none());
        // On CPU the probe reads the memory of the whole process.
        let torch = torch.filter(|t| t.measured_by != MeasuredBy::Rss);
        ExperimentLevel {
            name: run.name.clone(),
            x: match kind {
                ExperimentKind::Concurrency => f64::from(run.asked.concurrency),
                ExperimentKind::Seqlen | ExperimentKind::Mixed => {
                    mean_prompt(&run.requests).unwrap_or_else(|| run.asked.mean_prompt_tokens())
                }
            },
            asked: run.asked.clone(),
            state: run.state,
            cause: run.why.as_ref().map(|(cause, _)| cause.clone()),
            message: run.why.as_ref().map(|(_, message)| message.clone()),
            peak_bytes: profile.and_then(|p| p.memory_breakdown.total_measured_bytes),
            fullest_device: profile.and_then(|p| Some(p.fullest_device()?.gauge)),
            kv_pool_bytes: engine.and_then(|e| e.total_gpu_kv_cache_gb).map(bytes),
            kv_used_bytes: gauge.and_then(|e| e.kv_cache_used_gb).map(bytes),
            kv_used_share: gauge.and_then(|e| e.kv_cache_usage_peak),
            peak_alloc_bytes: torch.and_then(|t| over_devices(t, |d| d.peak_bytes)),
            peak_reserved_bytes: torch.and_then(|t| over_devices(t, |d| d.peak_reserved_bytes)),
            by_prompt: by_prompt(&run.requests),
            profile: run.profile_path.clone(),
            ..load
        }
    }
}

/// What the requests say: counts, latencies, throughput.
fn of_requests(requests: &[RequestRow]) -> ExperimentLevel {
    let whole: Vec<&RequestRow> = requests.iter().filter(|r| r.is_ok()).collect();
    let failed = requests.iter().filter(|r| r.has_failed()).count() as u64;
    let total = whole.len() as u64 + failed;
    let mut latencies: Vec<f64> = whole.iter().map(|r| r.e2e_ms() / 1e3).collect();
    latencies.sort_by(f64::total_cmp);
    let first_tokens = whole.iter().filter_map(|r| r.ttft_ms());
    let mut first_tokens: Vec<f64> = first_tokens.map(|ms| ms / 1e3).collect();
    first_tokens.sort_by(f64::total_cmp);
    let all = |pick: fn(&RequestRow) -> Option<f64>| -> Option<f64> {
        arithmetic_mean(&whole.iter().filter_map(|r| pick(r)).collect::<Vec<f64>>())
    };
    ExperimentLevel {
        total: Some(total),
        successful: Some(whole.len() as u64),
        failed: Some(failed),
        error_rate: (total > 0).then(|| failed as f64 / total as f64),
        mean_latency_s: arithmetic_mean(&latencies),
        p95_latency_s: quantile_of_sorted(&latencies, 0.95),
        mean_tokens_per_s: all(tokens_per_s),
        total_tokens_per_s: mean_throughput(requests),
        mean_ttft_s: arithmetic_mean(&first_tokens),
        p95_ttft_s: quantile_of_sorted(&first_tokens, 0.95),
        ..ExperimentLevel::default()
    }
}

/// Generated tokens per second of one request.
pub fn tokens_per_s(row: &RequestRow) -> Option<f64> {
    let seconds = row.e2e_ms() / 1e3;
    Some(row.output_tokens? as f64 / Some(seconds).filter(|s| *s > 0.0)?)
}

/// Generated tokens per second of all requests together, mean over the repeats: from the first
/// intended moment of a repeat to the end of its last request that ended by itself.
fn mean_throughput(requests: &[RequestRow]) -> Option<f64> {
    let mut repeats: BTreeMap<u32, Vec<&RequestRow>> = BTreeMap::new();
    for row in requests {
        repeats.entry(row.repeat).or_default().push(row);
    }
    let one = |rows: &Vec<&RequestRow>| {
        let begin = rows.iter().map(|r| r.intended_at_ns).min()?;
        let ended = rows.iter().filter(|r| r.is_ok() || r.has_failed());
        let end = ended.map(|r| r.ended_at_ns).max()?;
        let whole = rows.iter().filter(|r| r.is_ok());
        // One answer without a count makes the sum unknown.
        let tokens: Option<Vec<u64>> = whole.map(|r| r.output_tokens).collect();
        let tokens: u64 = tokens.filter(|t| !t.is_empty())?.iter().sum();
        let seconds = (end - begin) as f64 / 1e9;
        (seconds > 0.0).then(|| tokens as f64 / seconds)
    };
    arithmetic_mean(&repeats.values().filter_map(one).collect::<Vec<f64>>())
}

/// The same by the result of an engine's own bench, which has no rows.
fn of_bench(profile: Option<&Profile>) -> ExperimentLevel {
    let Some(load) = profile.and_then(|p| p.latency_stats.as_ref()) else {
        return ExperimentLevel::default();
    };
    let results = || load.repeats.iter().map(|r| &r.result);
    let count = |pick: fn(&BenchResult) -> Option<u64>| {
        results().filter_map(pick).reduce(u64::saturating_add)
    };
    let figure = |pick: fn(&BenchResult) -> &BTreeMap<String, f64>, key: &str| {
        let figures: Vec<f64> = results()
            .filter_map(|r| pick(r).get(key).copied())
            .collect();
        arithmetic_mean(&figures).map(|ms| ms / 1e3)
    };
    let (successful, failed) = (count(|r| r.completed), count(|r| r.failed));
    let total = successful.map(|n| n + failed.unwrap_or(0));
    ExperimentLevel {
        total,
        successful,
        failed: failed.or(successful.map(|_| 0)),
        error_rate: failed
            .zip(total.filter(|n| *n > 0))
            .map(|(f, t)| f as f64 / t as f64),
        mean_latency_s: load.mean_latency_ms.map(|ms| ms / 1e3),
        total_tokens_per_s: load.tokens_per_second,
        mean_ttft_s: figure(|r| &r.ttft_ms, "mean"),
        p95_ttft_s: figure(|r| &r.ttft_ms, "p95"),
        p95_itl_s: figure(|r| &r.itl_ms, "p95"),
        ..ExperimentLevel::default()
    }
}

fn over_devices(
    torch: &TorchMemory,
    pick: fn(&crate::engine::torch_probe::TorchDevice) -> Option<u64>,
) -> Option<u64> {
    let all: Option<Vec<u64>> = torch.devices.iter().map(pick).collect();
    all.filter(|d| !d.is_empty()).map(|d| d.iter().sum())
}

/// Prompt tokens asked for, mean over all requests.
fn mean_prompt(requests: &[RequestRow]) -> Option<f64> {
    let asked = requests.iter().map(|r| f64::from(r.input_asked));
    arithmetic_mean(&asked.collect::<Vec<f64>>())
}

fn by_prompt(requests: &[RequestRow]) -> Vec<OfLength> {
    let mut lengths: BTreeMap<u32, Vec<&RequestRow>> = BTreeMap::new();
    for row in requests {
        lengths.entry(row.input_asked).or_default().push(row);
    }
    if lengths.len() < 2 {
        return Vec::new();
    }
    let of = |(prompt_tokens, rows): (u32, Vec<&RequestRow>)| {
        let whole: Vec<&&RequestRow> = rows.iter().filter(|r| r.is_ok()).collect();
        let seconds = |pick: &dyn Fn(&RequestRow) -> Option<f64>| {
            let figures: Vec<f64> = whole.iter().filter_map(|r| pick(r)).collect();
            arithmetic_mean(&figures).map(|ms| ms / 1e3)
        };
        OfLength {
            prompt_tokens,
            successful: whole.len() as u64,
            mean_latency_s: seconds(&|r| Some(r.e2e_ms())),
            mean_ttft_s: seconds(&|r| r.ttft_ms()),
        }
    };
    lengths.into_iter().map(of).collect()
}

/// Why figures are null in levels that were measured; the first level's reason is used for all.
pub(super) fn not_measured(
    runs: &[&LevelRun],
    levels: &[ExperimentLevel],
) -> BTreeMap<String, String> {
    let mut reasons = BTreeMap::new();
    for (figure, known) in FIGURES {
        let measured = runs.iter().zip(levels);
        let without = measured
            .filter(|(run, _)| run.state == LevelState::Done && run.profile.is_some())
            .find(|(run, level)| match figure {
                "requests" => run.request_rows().is_empty(),
                _ => !known(level),
            });
        if let Some((run, level)) = without {
            if let Some(profile) = run.profile.as_deref() {
                let engine = &profile.vllm_internal_metrics;
                let missed = missed_requests(run, engine, level.mean_latency_s)
                    .filter(|_| figure.starts_with("kv_used"));
                let reason = match missed {
                    Some(n) => format!(
                        "the engine's gauge is read once a second, and saw less in use than {n} prompts take together: longer answers show it"
                    ),
                    None => reason_for_figure(figure, profile),
                };
                reasons.insert(figure.to_owned(), reason);
            }
        }
    }
    reasons
}

/// Why a figure of one level is not known.
fn reason_for_figure(figure: &str, profile: &Profile) -> String {
    let bench = &profile.parameters.bench;
    let torch = match (&profile.torch_memory, bench.as_str()) {
        (Some(_), _) => "torch keeps no account of memory on CPU".to_owned(),
        (None, _) => "only a probe within the engine's own process sees torch's allocator, and \
                      this load came from outside: the peak of the devices holds what it reserved"
            .to_owned(),
    };
    let by_path = |path: &str| reason_on_path(profile, path);
    match figure {
        "kv_used_share" => by_path("vllm_internal_metrics.kv_cache_usage_peak"),
        "peak_alloc_bytes" | "peak_reserved_bytes" => Some(torch),
        "peak_bytes" => by_path("memory_breakdown.total_measured_bytes"),
        "kv_pool_bytes" => by_path("vllm_internal_metrics.total_gpu_kv_cache_gb"),
        "kv_used_bytes" => by_path("vllm_internal_metrics.kv_cache_used_gb"),
        "requests" => Some(format!(
            "the {bench} bench tells of no single request: --bench builtin does"
        )),
        _ => Some(format!("the {bench} bench does not report it"))
            .filter(|_| bench != "builtin")
            .or_else(|| Some("no request was answered with what it follows from".to_owned())),
    }
    .unwrap_or_else(|| "the engine does not report it".to_owned())
}

/// The profile's own reason for a null; that of the nearest part above it.
pub fn reason_on_path(profile: &Profile, path: &str) -> Option<String> {
    let mut path = path;
    loop {
        if let Some(why) = profile.unknown.get(path) {
            return Some(why.clone());
        }
        path = path.rsplit_once('.')?.0;
    }
}

/// What the loads' results say beside their figures, each sentence once.
pub(super) fn collect_notes(runs: &[&LevelRun]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    let batches = "a request is a sequence of a batch, and takes as long as its batch".to_owned();
    for run in runs {
        let load = run.profile.iter().filter_map(|p| p.latency_stats.as_ref());
        let reported = load.flat_map(|l| &l.repeats).flat_map(|r| &r.notes);
        let of_batches = run.requests.is_empty() && !run.request_rows().is_empty();
        for note in reported.chain(of_batches.then_some(&batches)) {
            match notes.iter_mut().find(|(known, _)| known == note) {
                Some((_, levels)) if !levels.contains(&run.name.as_str()) => levels.push(&run.name),
                Some(_) => {}
                None => notes.push((note.clone(), vec![&run.name])),
            }
        }
    }
    let all = runs.len();
    notes
        .into_iter()
        .map(|(note, levels)| match levels.len() {
            n if n == all => note,
            1 => format!("level {}: {note}", levels[0]),
            _ => format!("levels {}: {note}", levels.join(", ")),
        })
        .collect()
}
