//! The document of `cuda-graphs` on TensorRT-LLM: two arms, their graphs by draft length, and what
//! the additional ones cost.

use super::graphs::{MIB, Reading, Thresholds};
use crate::engine::cuda_graphs::GraphLog;
use crate::engine::facts::{Finding, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the document.
pub const GRAPH_REPORT_VERSION: &str = "1.0";

/// Found in the version of a module that simulates TensorRT-LLM.
const STAND_IN: &str = "stand-in";

/// What was asked for; the same for both arms but for the concurrency.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphSettings {
    /// Largest batch that graphs are captured for.
    pub max_batch_size: u32,
    /// Longest draft, tokens.
    pub max_draft_len: u32,
    /// `max_concurrency` of the second arm; the first has none.
    pub max_concurrency_test: u32,
    /// Longest sequence, tokens.
    pub max_seq_len: u32,
}

/// Memory in the probe's process, bytes. Unknown is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProbeMemory {
    /// In tensors, as torch's allocator counts.
    pub allocated_bytes: Option<u64>,
    /// Held by torch's allocator, the private pools of graphs included.
    pub reserved_bytes: Option<u64>,
    /// Most that tensors ever took.
    pub max_allocated_bytes: Option<u64>,
    /// In use on the whole device, as the driver counts.
    pub device_used_bytes: Option<u64>,
}

/// The graphs in the engine's own structures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StructureCount {
    /// The attributes that led there.
    pub attribute: String,
    /// Graphs in all.
    pub total: u64,
    /// Graphs by draft length.
    pub by_draft_len: BTreeMap<u64, u64>,
    /// The keys as Python prints them, 512 at most.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// Why an arm has no figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeError {
    /// `missing_module`, `out_of_memory`, `model_path`, `unsupported`, `failed`.
    pub kind: String,
    /// The message.
    pub message: String,
}

/// What the probe wrote.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProbeResult {
    /// Version of TensorRT-LLM.
    pub tensorrt_llm: Option<String>,
    /// Version of torch.
    pub torch: Option<String>,
    /// Tokens that the KV pool was given: the same in both arms, so that it cannot make room.
    pub kv_cache_max_tokens: Option<u64>,
    /// Before the engine.
    pub memory_before: Option<ProbeMemory>,
    /// With the engine warmed up.
    pub memory_after: Option<ProbeMemory>,
    /// The graphs; null where the engine could not be reached.
    pub structure: Option<StructureCount>,
    /// Why not.
    pub structure_error: Option<String>,
    /// Why there are no figures.
    pub error: Option<ProbeError>,
}

/// Memory as the host saw it, bytes over the container's devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostMemory {
    /// Backend that read it.
    pub backend: String,
    /// Whether it is memory of GPUs; else it is the container's own.
    pub gpu: bool,
    /// Before the engine.
    pub before_bytes: u64,
    /// With the engine warmed up.
    pub after_bytes: u64,
    /// The highest in between.
    pub peak_bytes: u64,
}

/// Result of one arm.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArmOutcome {
    /// The arm's setting.
    pub max_concurrency: Option<u32>,
    /// What the probe wrote.
    pub probe: ProbeResult,
    /// What its output reports of graphs.
    pub log: Option<GraphLog>,
    /// Memory as the host saw it, or why not.
    pub host: Option<HostMemory>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphArm {
    /// `max_concurrency_None`, `max_concurrency_16`.
    pub experiment: String,
    /// The arm's setting.
    pub max_concurrency: Option<u32>,
    /// Why it has no figures; null where it has.
    pub error: Option<ProbeError>,
    /// Before the engine.
    pub memory_before: Option<MemoryMb>,
    /// With the engine warmed up.
    pub memory_after: Option<MemoryMb>,
    /// Memory as the host saw it.
    pub host: Option<HostMemory>,
    /// Graphs captured; null where unknown.
    pub num_cuda_graphs: Option<u64>,
    /// The same by draft length: `draft_len_4` → 32.
    pub cuda_graphs_by_draft_len: BTreeMap<String, u64>,
    /// `structure` or `log`; null where unknown.
    pub counted_from: Option<String>,
    /// The engine's own structures.
    pub structure: Option<StructureCount>,
    /// Why these could not be read; null where they were.
    pub structure_error: Option<String>,
    /// The lines of its log.
    pub log: Option<GraphLog>,
}

/// [`ProbeMemory`] in MiB (`_mb`, as the tools before us call it).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryMb {
    /// In tensors, MiB.
    pub allocated_mb: Option<f64>,
    /// Held by torch's allocator, MiB.
    pub reserved_mb: Option<f64>,
    /// Most that tensors ever took, MiB.
    pub max_allocated_mb: Option<f64>,
    /// In use on the whole device, MiB.
    pub device_used_mb: Option<f64>,
}

/// What the second arm takes more, by one witness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overhead {
    /// `device`, `reserved`, `allocated`, `host`.
    pub witness: String,
    /// What the engine took in the first arm, bytes.
    pub a_bytes: i64,
    /// In the second.
    pub b_bytes: i64,
    /// Second less first, MiB.
    pub overhead_mib: f64,
    /// The same in percent of the first; null where that is not above 0.
    pub overhead_percent: Option<f64>,
    /// The same for each additional graph, MiB; null where there is none.
    pub mib_per_additional_graph: Option<f64>,
}

/// What the two arms say together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// Every witness, the one that the reading rests on first.
    pub overheads: Vec<Overhead>,
    /// Graphs of the second arm less those of the first.
    pub additional_cuda_graphs: Option<i64>,
    /// How large the overhead is by the first witness.
    pub reading: Option<Reading>,
}

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphReport {
    /// `cuda_graphs`.
    pub document: String,
    /// [`GRAPH_REPORT_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Start, RFC 3339, UTC.
    pub timestamp: String,
    /// True when the module in the container simulates TensorRT-LLM.
    pub simulated: bool,
    /// The container's name.
    pub container: String,
    /// Its image.
    pub image: String,
    /// Version of TensorRT-LLM.
    pub engine_version: Option<String>,
    /// Version of torch.
    pub torch_version: Option<String>,
    /// Name of the model.
    pub model_name: String,
    /// Its path in the container.
    pub model_path: String,
    /// Kind of speculation.
    pub speculation: String,
    /// What was asked for.
    pub settings: GraphSettings,
    /// Tokens of the KV pool, the same in both arms.
    pub kv_cache_max_tokens: Option<u64>,
    /// What the overhead is read against.
    pub thresholds: Thresholds,
    /// Without `max_concurrency`, then with it.
    pub arms: Vec<GraphArm>,
    /// What they say together.
    pub analysis: Analysis,
    /// Things to know when reading the figures.
    pub findings: Vec<Finding>,
    /// Path of each missing figure → why.
    pub unknown: BTreeMap<String, String>,
}

impl GraphReport {
    /// From the results of the two arms, the one without `max_concurrency` first. `head` has what is known beside them:
    /// where it was made, and what was asked for.
    pub fn report_of_arms(head: GraphReport, outcomes: [ArmOutcome; 2]) -> GraphReport {
        let probes = || outcomes.iter().map(|o| &o.probe);
        let engine_version = probes().find_map(|p| p.tensorrt_llm.clone());
        let torch_version = probes().find_map(|p| p.torch.clone());
        let versions = [engine_version.as_deref(), torch_version.as_deref()];
        let simulated = (versions.iter().flatten()).any(|version| version.contains(STAND_IN));
        let mut unknown = BTreeMap::new();
        let analysis = analysis(&outcomes, &head.thresholds, &mut unknown);
        let mut findings = Vec::new();
        if simulated {
            findings.push(Finding::new_warning("simulated_engine", "TensorRT-LLM was simulated: the module in the container is a stand-in, so no figure is of a real engine",
            ));
        }
        for (i, outcome) in outcomes.iter().enumerate() {
            find_arm_problems(outcome, &head.settings, &mut findings);
            collect_arm_reasons(i, outcome, &mut unknown);
        }
        GraphReport {
            document: "cuda_graphs".into(),
            schema_version: GRAPH_REPORT_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            simulated,
            kv_cache_max_tokens: probes().find_map(|p| p.kv_cache_max_tokens),
            engine_version,
            torch_version,
            speculation: "NGram".into(),
            arms: outcomes.iter().map(arm).collect(),
            analysis,
            findings,
            unknown,
            ..head
        }
    }
}

/// `max_concurrency_None`, `max_concurrency_16`.
pub fn experiment_name(max_concurrency: Option<u32>) -> String {
    match max_concurrency {
        None => "max_concurrency_None".into(),
        Some(n) => format!("max_concurrency_{n}"),
    }
}

/// Graphs by draft length, and their source: the engine's own structures before its log.
fn counted(outcome: &ArmOutcome) -> Option<(&BTreeMap<u64, u64>, &'static str)> {
    let structure = outcome.probe.structure.as_ref();
    let of_log = || Some((&outcome.log.as_ref()?.target.by_draft_len, "log"));
    (structure.map(|s| (&s.by_draft_len, "structure"))).or_else(of_log)
}

fn arm(outcome: &ArmOutcome) -> GraphArm {
    let counted = counted(outcome);
    let by_draft_len = counted.map(|c| c.0);
    GraphArm {
        experiment: experiment_name(outcome.max_concurrency),
        max_concurrency: outcome.max_concurrency,
        error: outcome.probe.error.clone(),
        memory_before: outcome.probe.memory_before.map(MemoryMb::from),
        memory_after: outcome.probe.memory_after.map(MemoryMb::from),
        host: outcome.host.clone(),
        num_cuda_graphs: by_draft_len.map(|m| m.values().sum()),
        cuda_graphs_by_draft_len: (by_draft_len.into_iter().flatten())
            .map(|(len, n)| (format!("draft_len_{len}"), *n))
            .collect(),
        counted_from: counted.map(|c| c.1.into()),
        structure: outcome.probe.structure.clone(),
        structure_error: outcome.probe.structure_error.clone(),
        log: outcome.log.clone(),
    }
}

impl From<ProbeMemory> for MemoryMb {
    fn from(m: ProbeMemory) -> MemoryMb {
        let mib = |bytes: Option<u64>| bytes.map(|b| b as f64 / MIB);
        MemoryMb {
            allocated_mb: mib(m.allocated_bytes),
            reserved_mb: mib(m.reserved_bytes),
            max_allocated_mb: mib(m.max_allocated_bytes),
            device_used_mb: mib(m.device_used_bytes),
        }
    }
}

/// How to read what an engine took, by witness. The widest first: torch's allocator does not see
/// what the driver keeps of a graph, and its count of tensors does not see a graph's private pool.
type Usage = fn(&ArmOutcome) -> Option<i64>;
const WITNESSES: [(&str, Usage); 4] = [
    ("device", |o| grown(o, |m| m.device_used_bytes)),
    ("reserved", |o| grown(o, |m| m.reserved_bytes)),
    ("allocated", |o| grown(o, |m| m.allocated_bytes)),
    ("host", |o| {
        let whole_run = o.probe.error.is_none();
        let host = o.host.as_ref().filter(|h| h.gpu && whole_run)?;
        Some(saturate_to_signed(host.after_bytes) - saturate_to_signed(host.before_bytes))
    }),
];

fn grown(outcome: &ArmOutcome, pick: fn(&ProbeMemory) -> Option<u64>) -> Option<i64> {
    let before = pick(outcome.probe.memory_before.as_ref()?)?;
    let after = pick(outcome.probe.memory_after.as_ref()?)?;
    Some(saturate_to_signed(after) - saturate_to_signed(before))
}

fn saturate_to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 2)
}

fn analysis(
    [a, b]: &[ArmOutcome; 2],
    thresholds: &Thresholds,
    unknown: &mut BTreeMap<String, String>,
) -> Analysis {
    let graphs = |o| counted(o).map(|(m, _)| m.values().sum::<u64>());
    let additional = graphs(a).zip(graphs(b));
    let additional = additional.map(|(a, b)| saturate_to_signed(b) - saturate_to_signed(a));
    let overheads = WITNESSES.iter().filter_map(|(witness, usage)| {
        let (a_bytes, b_bytes) = (usage(a)?, usage(b)?);
        let more = (b_bytes - a_bytes) as f64;
        let graphs = additional.filter(|n| *n > 0);
        Some(Overhead {
            witness: (*witness).into(),
            a_bytes,
            b_bytes,
            overhead_mib: more / MIB,
            overhead_percent: (a_bytes > 0).then(|| more / a_bytes as f64 * 100.0),
            mib_per_additional_graph: graphs.map(|n| more / MIB / n as f64),
        })
    });
    let overheads: Vec<Overhead> = overheads.collect();
    let mut why = |path: &str, reason: &str| {
        unknown.insert(format!("analysis.{path}"), reason.into());
    };
    let per_graph = "overheads[].mib_per_additional_graph";
    match additional {
        None => {
            let reason = "the graphs of one arm could not be counted";
            why("additional_cuda_graphs", reason);
            why(per_graph, reason);
        }
        Some(n) if n <= 0 => why(per_graph, "the second arm captured no additional graph"),
        Some(_) => {}
    }
    if overheads.is_empty() {
        why("reading", "no memory is known of both arms");
    }
    let first = overheads.first();
    Analysis {
        reading: first.map(|o| thresholds.classify_overhead(o.overhead_mib * MIB)),
        overheads,
        additional_cuda_graphs: additional,
    }
}

/// What is to be known of one arm's figures.
fn find_arm_problems(outcome: &ArmOutcome, settings: &GraphSettings, findings: &mut Vec<Finding>) {
    let name = experiment_name(outcome.max_concurrency);
    let mut found = |code, severity, message: String| {
        findings.push(Finding::new(code, severity, format!("{name}: {message}")));
    };
    let structure = outcome.probe.structure.as_ref();
    if let (Some(structure), Some(log)) = (structure, &outcome.log) {
        if structure.by_draft_len != log.target.by_draft_len {
            let list_graphs = |m: &BTreeMap<u64, u64>| {
                let parts = m.iter().map(|(l, n)| format!("{n} of draft_len {l}"));
                match parts.collect::<Vec<_>>().join(", ") {
                    none if none.is_empty() => "none".to_owned(),
                    parts => parts,
                }
            };
            let seen = [&log.target.by_draft_len, &structure.by_draft_len].map(list_graphs);
            let message = format!(
                "the log has {}, the engine's structures have {}; the structures are used",
                seen[0], seen[1]
            );
            found("graph_counts_disagree", Severity::Warning, message);
        }
    }
    if let Some((graphs, _)) = counted(outcome) {
        let max = u64::from(settings.max_draft_len);
        let (is_set, has_zero) = (outcome.max_concurrency.is_some(), graphs.contains_key(&0));
        if is_set && !has_zero && graphs.contains_key(&max) {
            let message = "max_concurrency is set and no graph of draft_len 0 was captured: a known fault of releases of autumn 2025 \
                 (decoding falls back to eager above max_concurrency), and what was always so before mid-2025";
            found("draft_len_zero_missing", Severity::Warning, message.into());
        }
        if !is_set && has_zero {
            let message = "graphs of draft_len 0 were captured though max_concurrency is not set: releases until mid-2025 always do";
            found("draft_len_zero_unasked", Severity::Info, message.into());
        }
    }
    if let Some(log) = outcome.log.as_ref().filter(|l| l.skipped > 0) {
        let message = format!("{} graphs were skipped for want of KV cache", log.skipped);
        found("graphs_skipped", Severity::Warning, message);
    }
    if let Some(why) = &outcome.probe.structure_error {
        found("structure_unread", Severity::Info, why.clone());
    }
}

/// Why an arm's figures are missing.
fn collect_arm_reasons(index: usize, outcome: &ArmOutcome, unknown: &mut BTreeMap<String, String>) {
    let mut why = |path: &str, reason: String| {
        unknown.insert(format!("arms[{index}].{path}"), reason);
    };
    if let Some(error) = &outcome.probe.error {
        why("memory_after", error.message.clone());
    }
    if counted(outcome).is_none() {
        let reason = match (&outcome.probe.error, &outcome.probe.structure_error) {
            (Some(e), _) => e.message.clone(),
            (None, Some(e)) => format!("{e}; and its log has no graph"),
            (None, None) => "neither the engine's structures nor its log have graphs".into(),
        };
        why("num_cuda_graphs", reason);
    }
    if outcome.host.is_none() {
        why("host", "memory could not be read from the host".into());
    }
}
