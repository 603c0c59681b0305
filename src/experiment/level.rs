//! One level: what came of its requests, and what memory it took.

use super::record::{Record, of_runs};
use super::{Asked, Kind};
use crate::capture::RequestRow;
use crate::engine::BenchResult;
use crate::engine::torch_probe::TorchMemory;
use crate::profile::Profile;
use crate::profile::stats::{mean, quantile};
use crate::units::GIB;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a level ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Measured.
    Done,
    /// Tried, and it failed.
    Failed,
    /// Not tried, for it would have failed.
    Skipped,
    /// Not begun, or not ended: the experiment was stopped before.
    NotRun,
}

impl State {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Done => "done",
            State::Failed => "failed",
            State::Skipped => "skipped",
            State::NotRun => "not run",
        }
    }
}

/// What was run of a level.
#[derive(Debug, Clone)]
pub struct LevelRun {
    /// Its name: `8`, `short`.
    pub name: String,
    /// Its load.
    pub asked: Asked,
    /// How it ended.
    pub state: State,
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

/// A level with its figures. Null is not measured; [`super::Experiment::not_measured`] says why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Its name: `8`, `short`.
    pub name: String,
    /// Where it stands on the axis of what is varied.
    pub x: f64,
    /// Its load, as asked for.
    pub asked: Asked,
    /// How it ended.
    pub state: State,
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
    /// Peak of all devices, bytes.
    pub peak_bytes: Option<u64>,
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
type Figure = (&'static str, fn(&Level) -> bool);

/// The figures of which the document says why they are null.
pub const FIGURES: [Figure; 13] = [
    ("total", |l| l.total.is_some()),
    ("mean_latency_s", |l| l.mean_latency_s.is_some()),
    ("p95_latency_s", |l| l.p95_latency_s.is_some()),
    ("mean_tokens_per_s", |l| l.mean_tokens_per_s.is_some()),
    ("total_tokens_per_s", |l| l.total_tokens_per_s.is_some()),
    ("mean_ttft_s", |l| l.mean_ttft_s.is_some()),
    ("peak_bytes", |l| l.peak_bytes.is_some()),
    ("kv_pool_bytes", |l| l.kv_pool_bytes.is_some()),
    ("kv_used_bytes", |l| l.kv_used_bytes.is_some()),
    ("kv_used_share", |l| l.kv_used_share.is_some()),
    ("peak_alloc_bytes", |l| l.peak_alloc_bytes.is_some()),
    ("peak_reserved_bytes", |l| l.peak_reserved_bytes.is_some()),
    ("requests", |l| l.total.is_some()),
];

impl Level {
    /// Of a run.
    pub fn of(kind: Kind, run: &LevelRun) -> Level {
        let profile = run.profile.as_deref();
        let engine = profile.map(|p| &p.vllm_internal_metrics);
        let torch = profile.and_then(|p| p.torch_memory.as_ref());
        let load = match run.requests.is_empty() {
            true => of_bench(profile),
            false => of_requests(&run.requests),
        };
        let bytes = |gib: f64| (gib * GIB).round() as u64;
        Level {
            name: run.name.clone(),
            x: match kind {
                Kind::Concurrency => f64::from(run.asked.concurrency),
                Kind::Seqlen | Kind::Mixed => {
                    mean_prompt(&run.requests).unwrap_or_else(|| run.asked.mean_prompt_tokens())
                }
            },
            asked: run.asked.clone(),
            state: run.state,
            cause: run.why.as_ref().map(|(cause, _)| cause.clone()),
            message: run.why.as_ref().map(|(_, message)| message.clone()),
            peak_bytes: profile.and_then(|p| p.memory_breakdown.total_measured_bytes),
            kv_pool_bytes: engine.and_then(|e| e.total_gpu_kv_cache_gb).map(bytes),
            kv_used_bytes: engine.and_then(|e| e.kv_cache_used_gb).map(bytes),
            kv_used_share: engine.and_then(|e| e.kv_cache_usage_peak),
            peak_alloc_bytes: torch.and_then(|t| over_devices(t, |d| d.peak_bytes)),
            peak_reserved_bytes: torch.and_then(|t| over_devices(t, |d| d.peak_reserved_bytes)),
            by_prompt: by_prompt(&run.requests),
            profile: run.profile_path.clone(),
            ..load
        }
    }

    /// Requests that were asked for, over all repeats.
    pub fn asked_requests(&self) -> u64 {
        self.asked.all_requests()
    }

    /// Its load: `in 128 out 64, 8 at once`.
    pub fn words(&self) -> String {
        let asked = &self.asked;
        format!(
            "in {} out {}, {} at once",
            asked.prompt_words(),
            asked.output_tokens,
            asked.concurrency
        )
    }
}

/// Figures without any.
fn nothing() -> Level {
    Level {
        name: String::new(),
        x: 0.0,
        asked: Asked {
            concurrency: 0,
            prompt_tokens: 0,
            short_prompts: None,
            output_tokens: 0,
            requests: 0,
            repeats: 0,
        },
        state: State::NotRun,
        cause: None,
        message: None,
        total: None,
        successful: None,
        failed: None,
        error_rate: None,
        mean_latency_s: None,
        p95_latency_s: None,
        mean_tokens_per_s: None,
        total_tokens_per_s: None,
        mean_ttft_s: None,
        peak_bytes: None,
        kv_pool_bytes: None,
        kv_used_bytes: None,
        kv_used_share: None,
        peak_alloc_bytes: None,
        peak_reserved_bytes: None,
        by_prompt: Vec::new(),
        profile: None,
    }
}

/// What the requests say: counts, latencies, throughput.
fn of_requests(requests: &[RequestRow]) -> Level {
    let whole: Vec<&RequestRow> = requests.iter().filter(|r| r.ok()).collect();
    let failed = requests.iter().filter(|r| r.failed()).count() as u64;
    let total = whole.len() as u64 + failed;
    let mut latencies: Vec<f64> = whole.iter().map(|r| r.e2e_ms() / 1e3).collect();
    latencies.sort_by(f64::total_cmp);
    let all = |pick: fn(&RequestRow) -> Option<f64>| -> Option<f64> {
        mean(&whole.iter().filter_map(|r| pick(r)).collect::<Vec<f64>>())
    };
    Level {
        total: Some(total),
        successful: Some(whole.len() as u64),
        failed: Some(failed),
        error_rate: (total > 0).then(|| failed as f64 / total as f64),
        mean_latency_s: mean(&latencies),
        p95_latency_s: quantile(&latencies, 0.95),
        mean_tokens_per_s: all(tokens_per_s),
        total_tokens_per_s: throughput(requests),
        mean_ttft_s: all(|r| r.ttft_ms().map(|ms| ms / 1e3)),
        ..nothing()
    }
}

/// Generated tokens per second of one request.
pub fn tokens_per_s(row: &RequestRow) -> Option<f64> {
    let seconds = row.e2e_ms() / 1e3;
    Some(row.output_tokens? as f64 / Some(seconds).filter(|s| *s > 0.0)?)
}

/// Generated tokens per second of all requests together, mean over the repeats: from the first
/// intended moment of a repeat to the end of its last request that ended by itself.
fn throughput(requests: &[RequestRow]) -> Option<f64> {
    let mut repeats: BTreeMap<u32, Vec<&RequestRow>> = BTreeMap::new();
    for row in requests {
        repeats.entry(row.repeat).or_default().push(row);
    }
    let one = |rows: &Vec<&RequestRow>| {
        let begin = rows.iter().map(|r| r.intended_at_ns).min()?;
        let ended = rows.iter().filter(|r| r.ok() || r.failed());
        let end = ended.map(|r| r.ended_at_ns).max()?;
        let whole = rows.iter().filter(|r| r.ok());
        // One answer that nobody counted makes the sum unknown.
        let tokens: Option<Vec<u64>> = whole.map(|r| r.output_tokens).collect();
        let tokens: u64 = tokens.filter(|t| !t.is_empty())?.iter().sum();
        let seconds = (end - begin) as f64 / 1e9;
        (seconds > 0.0).then(|| tokens as f64 / seconds)
    };
    mean(&repeats.values().filter_map(one).collect::<Vec<f64>>())
}

/// The same by the result of an engine's own bench, which has no rows.
fn of_bench(profile: Option<&Profile>) -> Level {
    let Some(load) = profile.and_then(|p| p.latency_stats.as_ref()) else {
        return nothing();
    };
    let results = || load.repeats.iter().map(|r| &r.result);
    let count = |pick: fn(&BenchResult) -> Option<u64>| {
        results().filter_map(pick).reduce(u64::saturating_add)
    };
    let figure = |pick: fn(&BenchResult) -> &BTreeMap<String, f64>, key: &str| {
        let figures: Vec<f64> = results()
            .filter_map(|r| pick(r).get(key).copied())
            .collect();
        mean(&figures).map(|ms| ms / 1e3)
    };
    let (successful, failed) = (count(|r| r.completed), count(|r| r.failed));
    let total = successful.map(|n| n + failed.unwrap_or(0));
    Level {
        total,
        successful,
        failed: failed.or(successful.map(|_| 0)),
        error_rate: failed
            .zip(total.filter(|n| *n > 0))
            .map(|(f, t)| f as f64 / t as f64),
        mean_latency_s: load.mean_latency_ms.map(|ms| ms / 1e3),
        total_tokens_per_s: load.tokens_per_second,
        mean_ttft_s: figure(|r| &r.ttft_ms, "mean"),
        ..nothing()
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
    mean(&asked.collect::<Vec<f64>>())
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
        let whole: Vec<&&RequestRow> = rows.iter().filter(|r| r.ok()).collect();
        let seconds = |pick: &dyn Fn(&RequestRow) -> Option<f64>| {
            let figures: Vec<f64> = whole.iter().filter_map(|r| pick(r)).collect();
            mean(&figures).map(|ms| ms / 1e3)
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

/// Why figures are null in levels that were measured; the first level's reason stands for all.
pub(super) fn not_measured(runs: &[&LevelRun], levels: &[Level]) -> BTreeMap<String, String> {
    let mut reasons = BTreeMap::new();
    for (figure, known) in FIGURES {
        let measured = runs.iter().zip(levels);
        let without = measured
            .filter(|(run, _)| run.state == State::Done && run.profile.is_some())
            .find(|(run, level)| match figure {
                "requests" => run.requests.is_empty(),
                _ => !known(level),
            });
        if let Some((run, _)) = without {
            if let Some(profile) = run.profile.as_deref() {
                reasons.insert(figure.to_owned(), why(figure, profile));
            }
        }
    }
    reasons
}

/// Why a figure of one level is not known.
fn why(figure: &str, profile: &Profile) -> String {
    let bench = &profile.parameters.bench;
    let torch = match (&profile.torch_memory, bench.as_str()) {
        (Some(_), _) => "torch keeps no account of memory on CPU".to_owned(),
        (None, _) => "only a probe within the engine's own process sees torch's allocator, and \
                      this load came from outside: the peak of the devices holds what it reserved"
            .to_owned(),
    };
    let by_path = |path: &str| unknown(profile, path);
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
fn unknown(profile: &Profile, path: &str) -> Option<String> {
    let mut path = path;
    loop {
        if let Some(why) = profile.unknown.get(path) {
            return Some(why.clone());
        }
        path = path.rsplit_once('.')?.0;
    }
}

/// What the loads' results say beside their figures, each sentence once.
pub(super) fn notes(runs: &[&LevelRun]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    for run in runs {
        let load = run.profile.iter().filter_map(|p| p.latency_stats.as_ref());
        let said = load.flat_map(|l| &l.repeats).flat_map(|r| &r.notes);
        for note in said {
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

impl super::Experiment {
    /// One row for each request of these runs.
    pub fn records(&self, runs: &[LevelRun]) -> Vec<Record> {
        of_runs(self, runs)
    }
}
