//! The result of a cell: one row of the results, with the figures of its profile.

use super::cell::{CellId, GroupId};
use crate::breakdown::Component;
use crate::capture::{LimitLevel, MemoryLimit};
use crate::engine::BenchResult;
use crate::engine::facts::{Finding, Severity};
use crate::profile::stats::{Spread, arithmetic_mean};
use crate::profile::{MemoryGauge, OomKill, Profile};
use crate::units::GIB;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// The result of one cell. Journal, CSV and JSON hold the same rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellRow {
    /// The cell.
    pub cell: CellId,
    /// Its group.
    pub group: GroupId,
    /// Whether there are figures.
    pub status: RowStatus,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RowCause>,
    /// Where in the cell's run that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RowPhase>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often the cell was begun, this time included.
    pub attempt: u32,
    /// When it ended, RFC 3339, UTC.
    pub ended: String,
    /// From its beginning to its end, seconds; the start of an engine that serves is not part of it,
    /// a failed start is: the journal has the starts by themselves.
    pub took_s: f64,
    /// Its profile, or that of the failed start, relative to the folder of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Figures of the profile.
    #[serde(default)]
    pub figures: RowFigures,
}

impl CellRow {
    /// Why it has no figures: `oom: …`.
    pub fn describe_cause(&self) -> String {
        let cause = self.cause.map_or("unknown", RowCause::as_str);
        format!("{cause}: {}", self.message.as_deref().unwrap_or_default())
    }
}

/// How a cell ended.
#[derive(Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowStatus {
    /// Measured.
    #[default]
    Done,
    /// Not measured: its figures lie between those of its neighbours.
    Interpolated,
    /// Tried, without figures.
    Failed,
    /// Not tried.
    Skipped,
}

/// Why a cell has no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RowCause {
    /// The engine or its bench ran out of memory.
    Oom,
    /// A cell that needs no more than this one ran out of memory in this run (skipped).
    ImpliedOom,
    /// The same in an earlier run (skipped).
    KnownOom,
    /// By the estimate its engine cannot start on the GPUs that are here (skipped).
    DoesNotFit,
    /// The engine or its container ended.
    EngineDied,
    /// The bench failed, or most of its requests did.
    BenchFailed,
    /// The time of the cell was up.
    Timeout,
    /// The engine did not serve in its time.
    NotReady,
    /// The engine or its bench refused the settings.
    Refused,
    /// A container, an image or a model that is not there.
    Missing,
    /// Memory of the engine before was not given back in time.
    MemoryHeld,
    /// Another plimsoll works on the container.
    Busy,
    /// Docker did not answer, or failed.
    Docker,
    /// The results could not be written.
    Storage,
}

impl RowCause {
    /// Whether the cause is in the surroundings and not in the cell: a resumed run tries such cells
    /// again. What does not fit may fit on the GPUs of then.
    pub fn is_environmental(self) -> bool {
        matches!(
            self,
            RowCause::DoesNotFit
                | RowCause::Missing
                | RowCause::MemoryHeld
                | RowCause::Busy
                | RowCause::Docker
                | RowCause::Storage
        )
    }

    /// Whether memory ran out: in this cell, or in one that needs no more.
    pub fn is_out_of_memory(self) -> bool {
        matches!(
            self,
            RowCause::Oom | RowCause::ImpliedOom | RowCause::KnownOom
        )
    }

    /// Whether the same cell may fare better at once: not the cell's fault, nor the engine's.
    pub fn is_transient(self) -> bool {
        matches!(self, RowCause::Docker)
    }
}

/// Where in a cell's run it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RowPhase {
    /// Before anything was started.
    Prepare,
    /// The engine started.
    Start,
    /// The load ran.
    Bench,
    /// The results were written.
    Store,
}

crate::wording::as_written!(RowStatus, RowCause, RowPhase);

/// Figures of a profile. Unknown is `None`; the profile has the reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowFigures {
    /// Peak of all devices, bytes.
    pub peak_bytes: Option<u64>,
    /// How full the device that came nearest to its limit was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullest_device: Option<MemoryGauge>,
    /// Limit of the container, where memory ran out by it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_reached_bytes: Option<u64>,
    /// Memory that was in use before, bytes.
    pub baseline_bytes: Option<u64>,
    /// Model weights, bytes.
    pub model_weights_bytes: Option<u64>,
    /// KV cache in the peak, bytes.
    pub kv_cache_bytes: Option<u64>,
    /// KV pool that the engine reserved, bytes.
    pub kv_pool_bytes: Option<u64>,
    /// Tokens that the pool holds.
    pub kv_pool_tokens: Option<u64>,
    /// KV in use at most while the load ran, by the engine, bytes.
    pub kv_used_bytes: Option<u64>,
    /// Activations, bytes.
    pub activations_bytes: Option<u64>,
    /// Overhead of known components: runtime, graphs and the like, bytes.
    pub overhead_bytes: Option<u64>,
    /// What nothing explains, bytes; negative where the parts claim more than the peak.
    pub unexplained_bytes: Option<i64>,
    /// Mean latency, milliseconds.
    pub mean_latency_ms: Option<f64>,
    /// Standard deviation of it over the repeats, milliseconds; unknown for one repeat.
    pub mean_latency_stddev_ms: Option<f64>,
    /// Generated tokens per second.
    pub tokens_per_second: Option<f64>,
    /// Standard deviation of it over the repeats; unknown for one repeat.
    pub tokens_per_second_stddev: Option<f64>,
    /// Standard deviation of the peak over the repeats, bytes; unknown for one repeat.
    pub peak_stddev_bytes: Option<f64>,
    /// Requests per second.
    pub requests_per_second: Option<f64>,
    /// Mean time to first token, milliseconds.
    pub ttft_mean_ms: Option<f64>,
    /// Mean time per output token after the first, milliseconds.
    pub tpot_mean_ms: Option<f64>,
    /// Requests that succeeded.
    pub completed: Option<u64>,
    /// Requests that failed.
    pub failed: Option<u64>,
    /// Which backend measured the memory; `simulated` is part of the name where it is.
    pub memory_backend: Option<String>,
    /// The engine that was recognised.
    pub engine: Option<String>,
    /// Version of the engine.
    pub engine_version: Option<String>,
    /// The bench that ran: what `auto` came to.
    pub bench: Option<String>,
    /// Parts of the peak whose figures are of low confidence; the profile has the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub low_confidence: Vec<Component>,
    /// What the profile warns of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Finding>,
    /// True for a simulated engine or device.
    pub simulated: bool,
}

impl RowFigures {
    /// Of a profile. What it does not know stays unknown.
    pub fn of_profile(profile: &Profile) -> RowFigures {
        let memory = &profile.memory_breakdown;
        let engine = &profile.vllm_internal_metrics;
        let backend = &profile.metadata.memory_backend;
        let part = |component: Component| {
            let part = memory
                .components
                .iter()
                .find(|p| p.component == component)?;
            u64::try_from(part.bytes).ok()
        };
        // All overhead with a known component: without the unexplained bytes.
        let is_known_overhead = |c: Component| c.is_overhead() && c != Component::Unexplained;
        let overhead = (memory.components.iter())
            .filter(|p| is_known_overhead(p.component))
            .map(|p| p.bytes)
            .reduce(i64::saturating_add);
        let load = profile.latency_stats.as_ref();
        let repeats = || load.iter().flat_map(|l| &l.repeats).map(|r| &r.result);
        let count = |pick: fn(&BenchResult) -> Option<u64>| {
            repeats().filter_map(pick).reduce(u64::saturating_add)
        };
        let mean_of = |pick: fn(&BenchResult) -> &BTreeMap<String, f64>| {
            let means = repeats().filter_map(|r| pick(r).get("mean").copied());
            arithmetic_mean(&means.collect::<Vec<f64>>())
        };
        let stddev = |spread: Option<Spread>| spread.and_then(|s| s.stddev);
        let named = |name: &str| Some(name.to_owned()).filter(|n| !n.is_empty());
        RowFigures {
            peak_bytes: memory.total_measured_bytes,
            fullest_device: profile.fullest_device().map(|device| device.gauge),
            limit_reached_bytes: limit_reached(profile),
            baseline_bytes: part(Component::Baseline),
            model_weights_bytes: part(Component::ModelWeights),
            kv_cache_bytes: part(Component::KvCache),
            kv_pool_bytes: engine
                .total_gpu_kv_cache_gb
                .map(|gib| (gib * GIB).round() as u64),
            kv_pool_tokens: engine.total_gpu_kv_cache_tokens,
            kv_used_bytes: engine
                .kv_cache_used_gb
                .map(|gib| (gib * GIB).round() as u64),
            activations_bytes: part(Component::Activations),
            overhead_bytes: overhead.and_then(|bytes| u64::try_from(bytes).ok()),
            unexplained_bytes: memory.unexplained_bytes,
            mean_latency_ms: load.and_then(|l| l.mean_latency_ms),
            mean_latency_stddev_ms: stddev(load.and_then(|l| l.mean_latency_spread)),
            tokens_per_second_stddev: stddev(load.and_then(|l| l.tokens_per_second_spread)),
            peak_stddev_bytes: stddev(load.and_then(|l| l.peak_bytes_spread)),
            tokens_per_second: load.and_then(|l| l.tokens_per_second),
            requests_per_second: load.and_then(|l| l.requests_per_second),
            ttft_mean_ms: mean_of(|r| &r.ttft_ms),
            tpot_mean_ms: mean_of(|r| &r.tpot_ms),
            completed: count(|r| r.completed),
            failed: count(|r| r.failed),
            memory_backend: match backend.simulated {
                _ if backend.name.is_empty() => None,
                true if !backend.name.contains("simulated") => {
                    Some(format!("{} (simulated)", backend.name))
                }
                _ => Some(backend.name.clone()),
            },
            engine: named(&profile.engine_metadata.engine_type),
            bench: named(&profile.parameters.bench).filter(|bench| bench != "none"),
            engine_version: profile.engine_metadata.engine_version.clone(),
            low_confidence: (memory.components.iter())
                .filter(|p| p.confidence.is_low())
                .map(|p| p.component)
                .collect(),
            warnings: (profile.findings.iter())
                .filter(|f| f.severity == Severity::Warning)
                .cloned()
                .collect(),
            simulated: profile.metadata.simulated,
        }
    }
}

/// The container's own limit, where memory ran out by it: on a host without GPUs, or by the kernel's word.
fn limit_reached(profile: &Profile) -> Option<u64> {
    let limit = profile.metadata.container.memory_limit_bytes?;
    let ooms =
        || (profile.findings.iter()).filter(|f| f.code == "oom" && f.severity == Severity::Error);
    let kill = OomKill {
        at_ns: None,
        limit: Some(MemoryLimit {
            bytes: limit,
            level: LimitLevel::Container,
        }),
    };
    let own = kill.describe_limit();
    let mut devices = profile.gpu_info.devices.iter();
    let counted = devices.any(|d| d.limit_level == Some(LimitLevel::Container));
    let reached = counted && ooms().next().is_some() || ooms().any(|f| f.message.contains(&own));
    reached.then_some(limit)
}
