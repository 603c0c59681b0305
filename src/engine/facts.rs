//! What an engine's log reports about memory: named values, each with its source lines.

use crate::capture::AtNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value read from a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FactValue {
    /// A flag.
    Bool(bool),
    /// A count, or bytes.
    Int(i64),
    /// A figure in the unit that its key names (`_gib`).
    Float(f64),
    /// A name.
    Text(String),
    /// One figure per rank or engine, where they were printed one by one.
    List(Vec<f64>),
    /// One value per rank, device or buffer, where the log names them: `{"CUDA0": 5.3}`.
    Record(BTreeMap<String, FactValue>),
    /// A table.
    Rows(Vec<BTreeMap<String, FactValue>>),
}

impl FactValue {
    /// A figure or count; `None` for everything else.
    pub fn number(&self) -> Option<f64> {
        match self {
            FactValue::Int(v) => Some(*v as f64),
            FactValue::Float(v) => Some(*v),
            _ => None,
        }
    }

    /// The figures of a list, or of the entries of a record, or the one figure.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            FactValue::List(v) => v.clone(),
            FactValue::Record(r) => r.values().filter_map(FactValue::number).collect(),
            other => other.number().into_iter().collect(),
        }
    }
}

impl std::fmt::Display for FactValue {
    /// As a person reads it: `1, 2` for a list, `CUDA0 5.3, CPU 1` for a record.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let record = |entries: &BTreeMap<String, FactValue>| {
            let pairs: Vec<String> = entries.iter().map(|(k, v)| format!("{k} {v}")).collect();
            pairs.join(", ")
        };
        match self {
            FactValue::Bool(v) => write!(f, "{v}"),
            FactValue::Int(v) => write!(f, "{v}"),
            FactValue::Float(v) => write!(f, "{v}"),
            FactValue::Text(v) => f.write_str(v),
            FactValue::List(v) => {
                let all: Vec<String> = v.iter().map(f64::to_string).collect();
                f.write_str(&all.join(", "))
            }
            FactValue::Record(entries) => f.write_str(&record(entries)),
            FactValue::Rows(rows) => {
                let all: Vec<String> = rows.iter().map(record).collect();
                f.write_str(&all.join("; "))
            }
        }
    }
}

/// A value with its witness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// The value.
    pub value: FactValue,
    /// The lines that say so, without colour and trimmed; one for each rank that printed its own.
    /// Empty where no line shows it (`oom` is false).
    pub quote: Vec<String>,
    /// When the first of them was written, on the capture's clock; `None` when read from a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_ns: Option<AtNs>,
}

impl Fact {
    /// A fact with the lines that show it.
    pub fn new(value: FactValue, quote: Vec<String>, at_ns: Option<AtNs>) -> Fact {
        Fact {
            value,
            quote,
            at_ns,
        }
    }
}

/// A milestone of an engine's life, seen in its log. Not every engine prints every one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EngineStep {
    /// The process announces itself.
    Started,
    /// Weights begin to load: everything before is the engine's own run-time.
    LoadingWeights,
    /// Weights are in memory.
    WeightsLoaded,
    /// The memory profile (dummy run) is done; the KV pool is about to be allocated.
    Profiled,
    /// The KV pool is allocated.
    KvCacheAllocated,
    /// CUDA graphs are captured.
    GraphsCaptured,
    /// Ready for requests.
    Ready,
    /// Shutting down.
    Stopping,
}

/// A milestone and when it was passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepMark {
    /// Which.
    pub step: EngineStep,
    /// When, on the capture's clock; `None` when read from a file.
    pub at_ns: Option<AtNs>,
    /// The line.
    pub quote: String,
}

/// Something worth telling that is no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Machine-readable, snake_case: `preemption_seen`, `oom`, `engine_died`, ….
    pub code: String,
    /// `info`, `warning` or `error`.
    pub severity: Severity,
    /// One sentence, no full stop.
    pub message: String,
    /// The line or figure it rests on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quote: Option<String>,
}

/// Code of the finding for a log without `gpu_memory_utilization` among the arguments: the
/// release's default applies.
pub const DEFAULT_UTILIZATION: &str = "gpu_memory_utilization_default";

/// How much a finding matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// The numbers must be read with care.
    Warning,
    /// The run failed, or a number is wrong.
    Error,
}

/// The contents of a log.
///
/// Keys of `facts` (unit in the name; GiB = 2^30). Memory: `weights_gib`, `kv_cache_gib`,
/// `kv_cache_tokens`, `num_gpu_blocks`, `num_cpu_blocks` (swap space), `num_device_blocks` (the
/// pool of a CPU engine), `block_size`, `attention_block_size`, `max_concurrency`,
/// `max_concurrency_tokens`, `activation_peak_gib`, `non_torch_gib`, `consumed_gib` (weights and
/// non-torch together), `non_kv_cache_gib`, `cuda_graph_gib`, `cuda_graph_estimated_gib`,
/// `cuda_graph_pool_actual_gib`, `total_gpu_memory_gib`, `requested_gib` (the engine's budget),
/// `free_at_start_gib`, `free_after_profile_gib`, `checkpoint_size_gib` (on disk),
/// `suggested_kv_cache_memory_bytes` and `…_full`, `kv_cache_in_use_gib`, `kv_cache_needed_gib`,
/// `cpu_node_memory_gib`, `kv_cache_usage_peak_pct` (largest use that the statistics showed).
/// `…_in_summary_line`: the same figure from the engine's closing summary.
///
/// A figure that ranks printed one by one is a list, equal or not. `kv_pool_tokens`,
/// `kv_pool_gib` and `kv_pool_blocks` are what can be used of it: the smallest over the ranks of
/// an engine; a list of them means data-parallel engines, with pools that add up.
///
/// Settings: `model`, `dtype`, `quantization`, `kv_cache_dtype`, `max_model_len`,
/// `tensor_parallel_size`, `pipeline_parallel_size`, `data_parallel_size`,
/// `gpu_memory_utilization`, `enforce_eager`, `attention_backend`, `engine_generation`, `device`, ….
/// Trouble: `oom` (vLLM: always there; others: once a line shows it), `oom_phase`,
/// `oom_requested_gib`, `cuda_free_gib`, `device_total_gib`, `torch_allocated_gib`,
/// `process_used_gib`, `failure` (its kind), `preemptions_cumulative`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogReport {
    /// `vllm`, ….
    pub engine: String,
    /// As the log announces it; banners of forks can be wrong.
    pub engine_version: Option<String>,
    /// Values with their lines. A key that is absent was not in the log.
    pub facts: BTreeMap<String, Fact>,
    /// Milestones in order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub steps: Vec<StepMark>,
    /// Things worth telling.
    pub findings: Vec<Finding>,
}

impl LogReport {
    /// A figure in its own unit, when it is one figure.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.facts.get(key)?.value.number()
    }

    /// A text value.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.facts.get(key)?.value {
            FactValue::Text(v) => Some(v),
            _ => None,
        }
    }

    /// When a milestone was first passed.
    pub fn step_at(&self, step: EngineStep) -> Option<AtNs> {
        self.steps
            .iter()
            .find(|m| m.step == step)
            .and_then(|m| m.at_ns)
    }
}
