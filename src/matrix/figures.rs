//! The figures of a row, taken from a profile.

use super::row::RowFigures;
use crate::breakdown::Component;
use crate::capture::{LimitLevel, MemoryLimit};
use crate::engine::BenchResult;
use crate::engine::facts::Severity;
use crate::profile::stats::{Spread, arithmetic_mean};
use crate::profile::{OomKill, Profile};
use crate::units::GIB;
use std::collections::BTreeMap;

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
