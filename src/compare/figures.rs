//! Which figures of a profile are compared, and where they stand in it.

use crate::breakdown::Component;
use crate::profile::Profile;
use crate::units::GIB;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Unit of a compared figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Something per second.
    PerSecond,
    /// A count.
    Count,
}

/// A figure beside the parts of the peak.
pub(super) struct Other {
    pub key: &'static str,
    pub label: &'static str,
    pub unit: Unit,
    /// Where the document holds it, and its reason where it is null.
    pub path: &'static str,
    pub pick: fn(&Profile) -> Option<f64>,
}

/// In the order in which people read them.
pub(super) const OTHERS: &[Other] = &[
    Other {
        key: "kv_cache_reserved",
        label: "KV cache reserved",
        unit: Unit::Bytes,
        path: "vllm_internal_metrics.total_gpu_kv_cache_gb",
        pick: |p| Some((p.vllm_internal_metrics.total_gpu_kv_cache_gb? * GIB).round()),
    },
    Other {
        key: "kv_cache_tokens",
        label: "KV cache tokens",
        unit: Unit::Count,
        path: "vllm_internal_metrics.total_gpu_kv_cache_tokens",
        pick: |p| Some(p.vllm_internal_metrics.total_gpu_kv_cache_tokens? as f64),
    },
    Other {
        key: "mean_latency_ms",
        label: "mean latency, ms",
        unit: Unit::Milliseconds,
        path: "latency_stats.mean_latency_ms",
        pick: |p| p.latency_stats.as_ref()?.mean_latency_ms,
    },
    Other {
        key: "tokens_per_second",
        label: "tokens/s",
        unit: Unit::PerSecond,
        path: "latency_stats.tokens_per_second",
        pick: |p| {
            let stats = p.latency_stats.as_ref()?;
            stats.tokens_per_second.filter(|_| !stats.counts_prompts())
        },
    },
    Other {
        key: "total_tokens_per_second",
        label: "tokens/s with prompts",
        unit: Unit::PerSecond,
        path: "latency_stats.tokens_per_second",
        pick: |p| {
            let stats = p.latency_stats.as_ref()?;
            stats.tokens_per_second.filter(|_| stats.counts_prompts())
        },
    },
    Other {
        key: "requests_per_second",
        label: "requests/s",
        unit: Unit::PerSecond,
        path: "latency_stats.requests_per_second",
        pick: |p| p.latency_stats.as_ref()?.requests_per_second,
    },
];

/// The peak, bytes.
pub(super) fn peak_bytes(profile: &Profile) -> Option<f64> {
    Some(profile.memory_breakdown.total_measured_bytes? as f64)
}

/// One part of the peak, bytes.
pub(super) fn component_bytes(profile: &Profile, component: Component) -> Option<f64> {
    let part = profile.memory_breakdown.find_part(component)?;
    Some(part.bytes as f64)
}

/// The components that any of these profiles has, but the unexplained rest, in reading order.
pub(super) fn known_components<'a>(
    profiles: impl Iterator<Item = &'a Profile>,
) -> BTreeSet<Component> {
    profiles
        .flat_map(|p| &p.memory_breakdown.components)
        .map(|p| p.component)
        .filter(|c| *c != Component::Unexplained)
        .collect()
}

/// A component's name in documents: `model_weights`.
pub(super) fn component_key(component: Component) -> String {
    super::settings::variant_name(&component).unwrap_or_default()
}

/// The component of such a name.
pub(super) fn component_of_key(key: &str) -> Option<Component> {
    serde_json::from_value(key.into()).ok()
}

/// Path of a component's reason in a profile's `unknown`.
pub fn reason_path(component: Component) -> &'static str {
    match component {
        Component::Baseline => "memory_breakdown.baseline_gb",
        Component::ModelWeights => "memory_breakdown.model_weights_gb",
        Component::KvCache => "memory_breakdown.kv_cache_gb",
        Component::Activations => "memory_breakdown.activations_gb",
        Component::CudaGraphs => "vllm_internal_metrics.cuda_graphs_gb",
        _ => "",
    }
}
