//! The jq lines that people have in their scripts, run by the real jq on a profile.

use super::e2e::Results;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// A value, whatever was measured.
    Value,
    /// Null where container memory was measured, with the reason in `.unknown`.
    NullOnHost,
    /// Null from a bench in the engine's own process, which has no endpoint, with the reason.
    NullInProcess,
    /// Null, with the reason.
    Null,
}

use May::{Null, NullInProcess, NullOnHost, Value as Must};

/// Row of the checklist, path in the document, and what may come out. Metrics of a single device
/// stand under `detailed_gpu_metrics`, which is null as a whole where no GPU was measured.
pub const ROWS: &[(&str, &str, May)] = &[
    ("B58", ".profiler_version", Must),
    ("B59", ".schema_version", Must),
    ("B60", ".metadata.timestamp", Must),
    ("B61", ".model_info.name", Must),
    ("B62", ".model_info.num_parameters", Must),
    ("B63", ".model_info.num_layers", Must),
    ("B64", ".model_info.dtype", Must),
    ("B65", ".memory_measurements.baseline.total_gb", Must),
    ("B65", ".memory_measurements.baseline.per_gpu_details", Must),
    ("B66", ".memory_measurements.post_warmup.total_gb", Must),
    (
        "B66",
        ".memory_measurements.post_warmup.per_gpu_details",
        Must,
    ),
    ("B67", ".memory_measurements.peak.total_gb", Must),
    ("B67", ".memory_measurements.peak.per_gpu_details", Must),
    ("B68", ".memory_measurements.memory_increase_gb", Must),
    ("B69", ".memory_breakdown.total_measured_gb", Must),
    ("B70", ".memory_breakdown.model_weights_gb", Must),
    ("B71", ".memory_breakdown.kv_cache_gb", Must),
    ("B72", ".memory_breakdown.activations_gb", Must),
    ("B73", ".memory_breakdown.framework_overhead_gb", Must),
    ("B74", ".memory_breakdown.confidence_levels.overall", Must),
    ("B76", ".latency_stats.mean_latency_ms", Must),
    ("B77", ".latency_stats.tokens_per_second", Must),
    ("B78", ".engine_metadata.engine_version", Must),
    ("B79", ".engine_metadata.engine_type", Must),
    ("E03", ".memory_breakdown.components", Must),
    ("E04", ".memory_timeline.sample_interval_s", Must),
    ("E05", ".memory_timeline.timeline[0].memory_gb", Must),
    ("E07", ".memory_timeline.min_gb", Must),
    ("E07", ".memory_timeline.max_gb", Must),
    ("E07", ".memory_timeline.mean_gb", Must),
    ("E07", ".memory_timeline.median_gb", Must),
    ("E07", ".memory_timeline.p95_gb", Must),
    ("E07", ".memory_timeline.num_samples", Must),
    ("E11", ".memory_measurements.baseline.at_ns", Must),
    ("E17", ".memory_timeline.timeline[-1].memory_gb", Must),
    ("E18", ".raw_logs.engine", Must),
    ("E18", ".raw_logs.bench", Must),
    ("E19", ".model_info.architecture", Must),
    ("E20", ".model_info.num_heads", Must),
    ("E20", ".model_info.hidden_size", Must),
    ("E21", ".parameters.workload.input_len", Must),
    ("E21", ".parameters.workload.output_len", Must),
    ("E21", ".parameters.workload.batch_size", Null),
    ("E22", ".parameters.settings.tensor_parallel_size", Null),
    ("E23", ".parameters.settings.dtype", Null),
    ("E24", ".parameters.settings.kv_cache_dtype", Null),
    ("E25", ".parameters.settings.enforce_eager", Must),
    ("E26", ".parameters.workload.num_iters_warmup", Null),
    ("E27", ".parameters.workload.num_iters", Null),
    (
        "E28",
        ".vllm_internal_metrics.num_gpu_blocks",
        NullInProcess,
    ),
    // V1 engines have none.
    ("E29", ".vllm_internal_metrics.num_cpu_blocks", Null),
    ("E30", ".vllm_internal_metrics.block_size", NullInProcess),
    (
        "E31",
        ".vllm_internal_metrics.total_gpu_kv_cache_tokens",
        Must,
    ),
    ("E32", ".vllm_internal_metrics.total_gpu_kv_cache_gb", Must),
    (
        "E33",
        ".vllm_internal_metrics.attention_backend",
        NullOnHost,
    ),
    ("E34", ".vllm_internal_metrics.model_weights_gb", NullOnHost),
    ("E35", ".vllm_internal_metrics.activations_gb", NullOnHost),
    (
        "E36",
        ".vllm_internal_metrics.total_allocated_gb",
        NullOnHost,
    ),
    (
        "E37",
        ".vllm_internal_metrics.gpu_memory_utilization",
        NullInProcess,
    ),
    ("E38", ".vllm_internal_metrics.max_model_len", Must),
    ("E39", ".vllm_internal_metrics.cuda_graphs_enabled", Must),
    (
        "E41",
        ".vllm_internal_metrics.kv_cache_used_gb",
        NullInProcess,
    ),
    (
        "E41",
        ".vllm_internal_metrics.kv_cache_usage_peak",
        NullInProcess,
    ),
    ("E43", ".memory_timeline.timeline[0].timestamp", Must),
    ("E43", ".memory_timeline.timeline[0].power_w", NullOnHost),
    ("E43", ".memory_timeline.timeline[0].temp_c", NullOnHost),
    ("E44", ".memory_timeline.extended.power", NullOnHost),
    ("E45", ".memory_timeline.extended.temperature", NullOnHost),
    ("E46", ".detailed_gpu_metrics.tool", NullOnHost),
    ("E47", ".detailed_gpu_metrics.timestamp", NullOnHost),
    ("E48", ".detailed_gpu_metrics.gpus[0].gpu_id", NullOnHost),
    (
        "E49",
        ".detailed_gpu_metrics.gpus[0].vram_used_mb",
        NullOnHost,
    ),
    (
        "E50",
        ".detailed_gpu_metrics.gpus[0].vram_free_mb",
        NullOnHost,
    ),
    (
        "E51",
        ".detailed_gpu_metrics.gpus[0].vram_total_mb",
        NullOnHost,
    ),
    (
        "E52",
        ".detailed_gpu_metrics.gpus[0].vram_percent",
        NullOnHost,
    ),
    (
        "E53",
        ".detailed_gpu_metrics.gpus[0].power_watts",
        NullOnHost,
    ),
    (
        "E54",
        ".detailed_gpu_metrics.gpus[0].hotspot_temp_c",
        NullOnHost,
    ),
    (
        "E55",
        ".detailed_gpu_metrics.gpus[0].memory_temp_c",
        NullOnHost,
    ),
    (
        "E56",
        ".detailed_gpu_metrics.gpus[0].gfx_utilization_pct",
        NullOnHost,
    ),
    (
        "E57",
        ".detailed_gpu_metrics.gpus[0].mem_utilization_pct",
        NullOnHost,
    ),
    (
        "E58",
        ".detailed_gpu_metrics.gpus[0].clock_gfx_mhz",
        NullOnHost,
    ),
    (
        "E59",
        ".detailed_gpu_metrics.gpus[0].clock_mem_mhz",
        NullOnHost,
    ),
    ("E60", ".detailed_gpu_metrics.gpus[0].processes", NullOnHost),
    ("E62", ".memory_breakdown.baseline_gb", Must),
    ("E63", ".memory_breakdown.net_increase_gb", Must),
    ("E68", ".memory_breakdown.overhead_percentage", Must),
    ("E69", ".memory_breakdown.estimation_method", Must),
    ("E70", ".memory_breakdown.confidence_levels.weights", Must),
    ("E70", ".memory_breakdown.confidence_levels.kv_cache", Must),
    (
        "E70",
        ".memory_breakdown.confidence_levels.activations",
        Must,
    ),
    ("E70", ".memory_breakdown.confidence_levels.overhead", Must),
    (
        "E71",
        ".memory_breakdown.vllm_reported_values_used.weights",
        Must,
    ),
    (
        "E71",
        ".memory_breakdown.vllm_reported_values_used.kv_cache",
        Must,
    ),
    (
        "E71",
        ".memory_breakdown.vllm_reported_values_used.activations",
        Must,
    ),
    ("E72", ".memory_breakdown.per_gpu[0].peak_source", Must),
    ("E77", ".memory_timeline.under_load.range_percent", Must),
    ("E77", ".memory_timeline.under_load.shape", Null),
];

/// A folder as the seeds' lines expect it: `results/`, `profile.json`, `profile1.json`,
/// `profile2.json`.
pub struct Desk(tempfile::TempDir);

impl Desk {
    pub fn new(results: &Results, profile: &Path, other: &Path) -> Desk {
        let dir = tempfile::tempdir().expect("tempdir");
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, dir.path().join(name)).expect("link")
        };
        link(results.0.path(), "results");
        link(profile, "profile.json");
        link(profile, "profile1.json");
        link(other, "profile2.json");
        Desk(dir)
    }

    /// Runs a line as a shell would; its output and whether it ended well.
    fn shell(&self, line: &str) -> (String, bool) {
        let out = Command::new("sh")
            .args(["-c", line])
            .current_dir(self.0.path())
            .output()
            .expect("sh");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(complaint.is_empty(), "{line}\n{complaint}");
        (said, out.status.success())
    }

    /// Every value that a line prints; none of them null, however deep.
    #[track_caller]
    fn values(&self, line: &str) -> Vec<Value> {
        let (said, good) = self.shell(line);
        assert!(good, "{line}\n{said}");
        let values: Vec<Value> = serde_json::Deserializer::from_str(&said)
            .into_iter()
            .map(|v| v.expect("JSON"))
            .collect();
        assert!(!values.is_empty(), "{line} printed nothing");
        values
    }

    #[track_caller]
    fn no_nulls(&self, line: &str) -> Vec<Value> {
        let values = self.values(line);
        for value in &values {
            assert!(!value.is_null(), "{line} gave {values:?}");
            for (key, inner) in value.as_object().into_iter().flatten() {
                assert!(!inner.is_null(), "{line} gave null for {key}: {value:#}");
            }
        }
        values
    }

    /// B85 to B93 as they stand in the seeds, with the corrections that the checklist notes.
    #[track_caller]
    pub fn seeds_lines_answer(&self) {
        // B85: `.memory.total_gb` never existed.
        let newest = self.no_nulls(
            "jq '.memory_breakdown.total_measured_gb, .latency_stats.mean_latency_ms' \
             $(ls -t results/memory-profiles/*.json | head -1)",
        );
        assert_eq!(newest.len(), 2);
        assert!(
            newest.iter().all(|v| v.as_f64().is_some_and(|v| v > 0.0)),
            "{newest:?}"
        );
        // B86.
        assert!(self.values("jq '.' profile.json | cat")[0].is_object());
        // B87, the later of the two.
        let breakdown = self.no_nulls(
            "jq '.memory_breakdown | {
              weights: .model_weights_gb,
              kv_cache: .kv_cache_gb,
              activations: .activations_gb,
              overhead: .framework_overhead_gb,
              confidence: .confidence_levels.overall
            }' profile.json",
        );
        assert!(
            breakdown[0]["kv_cache"].is_number() && breakdown[0]["confidence"].is_string(),
            "{breakdown:?}"
        );
        // B88.
        let versions = self.no_nulls("jq '.profiler_version, .schema_version' profile.json");
        assert_eq!(versions, [env!("CARGO_PKG_VERSION"), "4.0"]);
        // B89.
        let summary = self.no_nulls(
            "jq '{
              baseline: .memory_measurements.baseline.total_gb,
              peak: .memory_measurements.peak.total_gb,
              increase: .memory_measurements.memory_increase_gb
            }' profile.json",
        );
        let gb = |key: &str| summary[0][key].as_f64().expect("number");
        assert!(
            (gb("peak") - gb("baseline") - gb("increase")).abs() < 1e-9,
            "{summary:?}"
        );
        // B90.
        self.no_nulls("jq '.memory_breakdown.confidence_levels.overall' profile.json");
        // B91.
        let devices = self.no_nulls("jq '.memory_measurements.peak.per_gpu_details' profile.json");
        assert!(
            devices[0].as_array().is_some_and(|d| !d.is_empty()),
            "{devices:?}"
        );
        // B92.
        let difference = self.no_nulls(
            "jq -s '.[0].memory_breakdown.total_measured_gb as $a |
                    .[1].memory_breakdown.total_measured_gb as $b |
                    {profile1: $a, profile2: $b, diff_gb: ($b - $a),
                     diff_pct: (($b - $a) / $a * 100)}' profile1.json profile2.json",
        );
        assert_eq!(difference[0].as_object().map(serde_json::Map::len), Some(4));
        // B93: with the version of this program, and with one that it is not.
        let ours = env!("CARGO_PKG_VERSION");
        for (version, answer) in [(ours, "yes\n"), ("2.0", "no\n")] {
            let line = format!(
                "jq -e '.profiler_version == \"{version}\"' profile.json >/dev/null && echo yes || echo no"
            );
            assert_eq!(self.shell(&line).0, answer);
        }
    }

    /// E80: what is compared with a calculator's figure.
    #[track_caller]
    pub fn the_pool_is_told(&self) {
        let pool = self.no_nulls("jq '.vllm_internal_metrics.total_gpu_kv_cache_gb' profile.json");
        assert!(pool[0].as_f64().is_some_and(|gb| gb > 0.0), "{pool:?}");
    }

    /// Every row of [`ROWS`] gives a value, or null where it may and the document says why.
    #[track_caller]
    pub fn every_row_answers(&self, in_process: bool) {
        let mut wrong = Vec::new();
        for (row, path, may) in ROWS {
            let value = self
                .values(&format!("jq -c '{path}' profile.json"))
                .remove(0);
            if !value.is_null() {
                continue;
            }
            let allowed = match may {
                May::Value => false,
                May::NullOnHost | May::Null => true,
                May::NullInProcess => in_process,
            };
            // The reason stands under the path, or under what it is part of.
            let mut reason_for = path
                .trim_start_matches('.')
                .replace("[0]", "[]")
                .replace("[-1]", "[]");
            let reason = loop {
                let filter = format!("jq -c '.unknown[\"{reason_for}\"]' profile.json");
                let reason = self.values(&filter).remove(0);
                match (reason.as_str(), reason_for.rfind('.')) {
                    (Some(reason), _) => break Some(reason.to_owned()),
                    (None, Some(dot)) => reason_for.truncate(dot),
                    (None, None) => break None,
                }
            };
            if !allowed || reason.is_none() {
                wrong.push(format!("{row} {path}: null, reason {reason:?}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
