//! The profile document: what a capture means, as schema 4.0.
//!
//! Keys ending in `_gb` hold GiB (2^30 bytes), unrounded, as the figures of the tools before us
//! do; `bytes` keys hold bytes. What is unknown is null, with its reason in [`Profile::unknown`].

mod attention;
mod checkpoint;
mod columns;
mod configuration;
mod derive;
mod elsewhere;
mod findings;
mod fullest;
mod growth;
mod host_memory;
mod measurements;
mod neighbours;
mod observation;
mod out_of_memory;
mod performance;
mod placement;
mod pool;
mod ranks;
mod replayed;
pub mod series;
pub mod stats;
mod ticks;
mod timeline;
mod torch;
mod under_load;
mod unknown;
mod witnesses;

pub use crate::breakdown::{Breakdown, Component, Confidence, Evidence, EvidenceSource};
pub use configuration::{Configuration, Difference, EngineMetadata, InternalMetrics, ModelInfo};
pub use derive::derive_profile;
pub use findings::{SECOND_ENGINE, advise_on_profile};
pub use fullest::{FullestDevice, MemoryGauge, device_label};
pub use growth::{DeviceGrowth, GrowthKind, GrowthSeries, MemoryGrowth};
pub use host_memory::{HostMemoryUse, HostPoint};
pub use measurements::{DetailedGpuMetrics, GpuInfo, Measurements, Point, PointDevice};
pub use out_of_memory::{KILLED_FROM_OUTSIDE, OomKill, OomVerdict, describe_cgroup};
pub use performance::{LatencyStats, RepeatResult};
pub use replayed::recording_name;
pub use timeline::{Timeline, TimelinePoint};
pub use under_load::{Shape, UnderLoad};

use crate::capture::{
    BackendFacts, ContainerFacts, ContainerState, HostFacts, LogFacts, Mode, Request, RunEnd,
    SamplingFacts, SharedStart,
};
use crate::engine::facts::Finding;
use crate::engine::torch_probe::{LayerProfile, TorchMemory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the document. Fields are added, never renamed.
pub const SCHEMA_VERSION: &str = "4.0";

/// A profile of one container under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Version of the plimsoll that derived it.
    pub profiler_version: String,
    /// [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// When, where, what was asked, how it ended.
    pub metadata: Metadata,
    /// The model.
    pub model_info: ModelInfo,
    /// The measured devices.
    pub gpu_info: GpuInfo,
    /// The load and the settings asked for.
    pub parameters: Request,
    /// Number formats.
    pub dtype_metadata: DtypeMetadata,
    /// Three points: baseline, post-warm-up, peak.
    pub memory_measurements: Measurements,
    /// Where every byte of the peak goes.
    pub memory_breakdown: Breakdown,
    /// What the engine reports of itself.
    pub vllm_internal_metrics: InternalMetrics,
    /// The container's host memory beside its GPUs; null where it is the measured device itself.
    #[serde(default)]
    pub host_memory: Option<HostMemoryUse>,
    /// Memory over time.
    pub memory_timeline: Timeline,
    /// GPU state at the peak; null where no GPU was measured.
    pub detailed_gpu_metrics: Option<DetailedGpuMetrics>,
    /// What the bench measured; null when no bench ran or its result could not be read.
    pub latency_stats: Option<LatencyStats>,
    /// What a probe in the engine's process saw of its memory; null where the bench is none.
    pub torch_memory: Option<TorchMemory>,
    /// Where within the model memory and time go; null unless `--per-layer` asked for it.
    pub layer_profile: Option<LayerProfile>,
    /// The engine.
    pub engine_metadata: EngineMetadata,
    /// Settings asked for and settings in force, and where they differ.
    pub configuration: Configuration,
    /// Every witness of every component, used or not.
    pub evidence: Vec<Evidence>,
    /// Things to know when reading the numbers.
    pub findings: Vec<Finding>,
    /// Path of each null → why it is unknown. A path covers everything below it.
    pub unknown: BTreeMap<String, String>,
    /// Pieces of the engine's log; the whole lies in the capture.
    pub raw_logs: RawLogs,
}

/// When, where, what was asked, how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Identifies the run.
    pub run_id: String,
    /// Start, RFC 3339, UTC.
    pub timestamp: String,
    /// From first to last observation, seconds.
    pub duration_s: f64,
    /// How plimsoll met the container.
    pub mode: Mode,
    /// The start of the engine, where it serves several runs: it was observed before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_start: Option<SharedStart>,
    /// How the run ended.
    pub outcome: RunEnd,
    /// True when an engine or a device is simulated: the figures calibrate plimsoll and mean
    /// nothing about a real model or GPU.
    pub simulated: bool,
    /// Host.
    pub host: HostFacts,
    /// Container at the start.
    pub container: ContainerFacts,
    /// Its state at the end; null when it was gone.
    pub container_end: Option<ContainerState>,
    /// Memory backend that measured.
    pub memory_backend: BackendFacts,
    /// How sampling went.
    pub sampling: SamplingFacts,
    /// How following the log went.
    pub log: LogFacts,
}

/// Number formats, the engine's own words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DtypeMetadata {
    /// Type of the weights.
    pub weights: Option<String>,
    /// Type of the activations.
    pub activations: Option<String>,
    /// Type of the KV cache; `auto` has been resolved where that is certain.
    pub kv_cache: Option<String>,
    /// Quantization method; null when there is none or it is unknown (see `unknown`).
    pub quantization: Option<String>,
}

/// Pieces of the engine's output, redacted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawLogs {
    /// Start and end of the engine's standard output and standard error, at most
    /// 64 KiB each way.
    pub engine: String,
    /// The same of the bench.
    pub bench: String,
    /// Bytes left out between start and end.
    pub omitted_bytes: u64,
}

/// The JSON Schema of the document, generated from the types.
pub fn profile_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Profile).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".into(), "plimsoll profile".into());
        object.insert(
            "$comment".into(),
            format!("schema_version {SCHEMA_VERSION}").into(),
        );
    }
    schema
}
