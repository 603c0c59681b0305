//! The published schema: up to date, and true of every document that we ship or derive.

use crate::common::captures;
use plimsoll::profile::{SCHEMA_VERSION, profile_schema};
use plimsoll::report::json::json_bytes;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_schema_on_disk_is_the_schema_of_the_types() {
    let path = root().join(format!("docs/schema/profile-{SCHEMA_VERSION}.schema.json"));
    let fresh = serde_json::to_string_pretty(&profile_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &fresh).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == fresh,
        "{} is not what the types say: run `UPDATE_SCHEMA=1 cargo test --test offline schema` and look at the diff \
         (fields are added, never renamed or removed)",
        path.display()
    );
}

fn complaints(document: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&profile_schema()).unwrap();
    validator
        .iter_errors(document)
        .map(|e| format!("{}: {e}", e.instance_path))
        .collect()
}

#[test]
fn what_we_derive_is_valid() {
    for built in [
        captures::idle_reference(),
        captures::serving_host(),
        captures::two_gpus(),
        captures::Built::default(),
    ] {
        let bytes = json_bytes(&built.derive()).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(complaints(&document), Vec::<String>::new());
    }
}

#[test]
fn a_document_with_a_wrong_type_is_not_valid() {
    let mut document = serde_json::to_value(captures::idle_reference().derive()).unwrap();
    document["memory_breakdown"]["baseline_gb"] = "much".into();
    assert_eq!(complaints(&document).len(), 1);
}

/// Profiles among the files: JSON objects that carry a schema version.
fn profiles_under(dir: &Path, found: &mut Vec<(PathBuf, Value)>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            profiles_under(&path, found);
        } else if path.extension().is_some_and(|e| e == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            if let Ok(document) = serde_json::from_str::<Value>(&text) {
                if document.get("schema_version").is_some() {
                    found.push((path, document));
                }
            }
        }
    }
}

#[test]
fn every_example_is_valid() {
    let mut found = Vec::new();
    for dir in ["results/example", "tests/fixtures/profiles"] {
        profiles_under(&root().join(dir), &mut found);
    }
    for (path, document) in &found {
        let complaints = complaints(document);
        assert!(complaints.is_empty(), "{}: {complaints:#?}", path.display());
    }
}

/// Paths that scripts for the tools before us read with jq. They stay, whatever is added.
const PROMISED: &[&str] = &[
    "profiler_version",
    "schema_version",
    "metadata.timestamp",
    "model_info.name",
    "model_info.num_parameters",
    "model_info.num_layers",
    "model_info.dtype",
    "gpu_info",
    "parameters",
    "dtype_metadata",
    "memory_measurements.baseline.total_gb",
    "memory_measurements.baseline.per_gpu_details",
    "memory_measurements.post_warmup.total_gb",
    "memory_measurements.peak.total_gb",
    "memory_measurements.peak.per_gpu_details",
    "memory_measurements.memory_increase_gb",
    "memory_breakdown.total_measured_gb",
    "memory_breakdown.baseline_gb",
    "memory_breakdown.net_increase_gb",
    "memory_breakdown.model_weights_gb",
    "memory_breakdown.kv_cache_gb",
    "memory_breakdown.activations_gb",
    "memory_breakdown.framework_overhead_gb",
    "memory_breakdown.overhead_percentage",
    "memory_breakdown.estimation_method",
    "memory_breakdown.confidence_levels.overall",
    "memory_breakdown.confidence_levels.weights",
    "memory_breakdown.confidence_levels.kv_cache",
    "memory_breakdown.confidence_levels.activations",
    "memory_breakdown.confidence_levels.overhead",
    "memory_breakdown.vllm_reported_values_used.weights",
    "memory_breakdown.vllm_reported_values_used.kv_cache",
    "memory_breakdown.vllm_reported_values_used.activations",
    "vllm_internal_metrics.num_gpu_blocks",
    "vllm_internal_metrics.num_cpu_blocks",
    "vllm_internal_metrics.block_size",
    "vllm_internal_metrics.total_gpu_kv_cache_tokens",
    "vllm_internal_metrics.total_gpu_kv_cache_gb",
    "vllm_internal_metrics.attention_backend",
    "vllm_internal_metrics.model_weights_gb",
    "vllm_internal_metrics.activations_gb",
    "vllm_internal_metrics.total_allocated_gb",
    "vllm_internal_metrics.gpu_memory_utilization",
    "vllm_internal_metrics.max_model_len",
    "vllm_internal_metrics.cuda_graphs_enabled",
    "memory_timeline.min_gb",
    "memory_timeline.max_gb",
    "memory_timeline.mean_gb",
    "memory_timeline.median_gb",
    "memory_timeline.p95_gb",
    "memory_timeline.num_samples",
    "memory_timeline.timeline.0.timestamp",
    "memory_timeline.timeline.0.memory_gb",
    "memory_timeline.timeline.0.power_w",
    "memory_timeline.timeline.0.temp_c",
    "memory_timeline.extended.power.min_w",
    "memory_timeline.extended.power.max_w",
    "memory_timeline.extended.power.mean_w",
    "memory_timeline.extended.temperature.min_c",
    "memory_timeline.extended.temperature.max_c",
    "memory_timeline.extended.temperature.mean_c",
    "detailed_gpu_metrics.tool",
    "detailed_gpu_metrics.timestamp",
    "detailed_gpu_metrics.gpus.0.gpu_id",
    "detailed_gpu_metrics.gpus.0.vram_used_mb",
    "detailed_gpu_metrics.gpus.0.vram_free_mb",
    "detailed_gpu_metrics.gpus.0.vram_total_mb",
    "detailed_gpu_metrics.gpus.0.vram_percent",
    "detailed_gpu_metrics.gpus.0.power_watts",
    "detailed_gpu_metrics.gpus.0.hotspot_temp_c",
    "detailed_gpu_metrics.gpus.0.memory_temp_c",
    "detailed_gpu_metrics.gpus.0.gfx_utilization_pct",
    "detailed_gpu_metrics.gpus.0.mem_utilization_pct",
    "detailed_gpu_metrics.gpus.0.clock_gfx_mhz",
    "detailed_gpu_metrics.gpus.0.clock_mem_mhz",
    "detailed_gpu_metrics.gpus.0.processes.0.process_info",
    "detailed_gpu_metrics.gpus.0.processes.0.memory_usage.value",
    "detailed_gpu_metrics.gpus.0.processes.0.memory_usage.unit",
    "latency_stats.mean_latency_ms",
    "latency_stats.tokens_per_second",
    "engine_metadata.engine_type",
    "engine_metadata.engine_version",
    "raw_logs",
];

#[test]
fn old_paths_still_lead_somewhere() {
    let document = serde_json::to_value(captures::two_gpus().derive()).unwrap();
    let lost: Vec<&&str> = PROMISED
        .iter()
        .filter(|path| {
            let pointer = format!("/{}", path.replace('.', "/"));
            document.pointer(&pointer).is_none()
        })
        .collect();
    assert!(lost.is_empty(), "scripts read these: {lost:#?}");
}

/// What `schema check` says of a text in a file: its exit code and its words.
fn checked(dir: &Path, text: &str) -> (i32, String) {
    let file = dir.join("x.json");
    std::fs::write(&file, text).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let out = command
        .args(["schema", "check"])
        .arg(&file)
        .output()
        .unwrap();
    let words = [out.stdout, out.stderr].concat();
    (
        out.status.code().unwrap(),
        String::from_utf8(words).unwrap(),
    )
}

#[test]
fn schema_check_names_the_place_of_what_is_not_valid() {
    let dir = tempfile::tempdir().unwrap();
    let document = serde_json::to_value(captures::idle_reference().derive()).unwrap();
    let (code, words) = checked(dir.path(), &document.to_string());
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("valid, a profile of schema 4."), "{words}");

    let mut wrong = document.clone();
    wrong["memory_breakdown"]["baseline_gb"] = "much".into();
    let mut missing = document.clone();
    missing["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("run_id");
    let mut newer = document.clone();
    newer["schema_version"] = "9.0".into();
    for (text, said) in [
        (wrong.to_string(), "memory_breakdown.baseline_gb"),
        (missing.to_string(), "run_id"),
        (newer.to_string(), "newer plimsoll"),
        (document.to_string()[1..].to_owned(), "not JSON"),
        (r#"{"document": "sweep"}"#.to_owned(), "has no schema"),
        (r#"{"document": "loadline"}"#.to_owned(), "missing field"),
        (r#"{"capture_version": 1}"#.to_owned(), "missing field"),
        (
            r#"{"memory_breakdown": {"total_gb": 1.5}}"#.to_owned(),
            "before schema 4.0",
        ),
    ] {
        let (code, words) = checked(dir.path(), &text);
        assert_eq!(code, 2, "{said}: {words}");
        assert!(words.contains(said), "{said}: {words}");
    }
}
