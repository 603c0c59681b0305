//! Messages about weights and the memory profile, of every backend.

use super::readings::{Line, Readings};
use super::settings::{Settings, Trust};
use crate::engine::facts::FactValue;
use crate::engine::log::figures::{
    after, fraction, gib, gib_after, holds, number, number_after, number_before,
};

/// Reads the weights and memory figures of `line`.
pub fn read(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) {
    if !holds(line.text, &["emory", "GiB", " GB", "Gib", " MB", "KVCACHE"]) {
        return;
    }
    weights(line, readings);
    profile_v0(line, readings);
    profile_v1(line, readings);
    summary(line, readings);
    set_by_hand(line, readings, settings);
    cpu(line, readings);
    other_devices(line, readings);
    utilization(line, settings);
}

/// Messages of the memory that the weights took.
pub const WEIGHTS: &[&str] = &[
    "Model loading took ",
    "Loading model weights took in total ",
    "Loading model weights took ",
];

fn weights(line: &Line<'_>, readings: &mut Readings) {
    // `Loading model weights took in total 14.97 GiB of device memory` is Gaudi's form.
    for needle in WEIGHTS {
        if let Some(value) = gib_after(line.text, needle) {
            readings.figure("weights_gib", Some(value), line, needle);
            break;
        }
    }
    // Size on disk of the whole checkpoint; a draft model's comes second.
    if readings.of("checkpoint_size_gib").is_empty() {
        readings.figure(
            "checkpoint_size_gib",
            gib_after(line.text, "Checkpoint size: "),
            line,
            "Checkpoint size: ",
        );
    }
    let needle = "Sleep mode freed ";
    if let Some(rest) = after(line.text, needle) {
        readings.figure("sleep_freed_gib", gib(rest).map(|p| p.0), line, needle);
        readings.figure(
            "sleep_in_use_gib",
            gib_after(rest, "memory, "),
            line,
            needle,
        );
    }
}

/// Parts of the memory profile, releases up to 0.6.
pub const PROFILE_0_6: &[(&str, &str)] = &[
    ("total_gpu_memory (", "total_gpu_memory_gib"),
    ("model weights take ", "weights_gib_in_summary_line"),
    ("non_torch_memory takes ", "non_torch_gib"),
    (
        "PyTorch activation peak memory takes ",
        "activation_peak_gib",
    ),
    ("memory reserved for KV Cache is ", "kv_cache_gib"),
];

/// Parts of `Memory profiling results`.
pub const RESULTS: &[(&str, &str)] = &[
    ("total_gpu_memory=", "total_gpu_memory_gib"),
    ("initial_memory_usage=", "initial_memory_usage_gib"),
    // Weights included, so this is no activation peak.
    ("peak_torch_memory=", "peak_torch_memory_gib"),
    ("non_torch_memory=", "non_torch_gib"),
    ("kv_cache_size=", "kv_cache_gib"),
];

fn profile_v0(line: &Line<'_>, readings: &mut Readings) {
    let text = line.text;
    for (needle, key) in PROFILE_0_6 {
        readings.figure(key, gib_after(text, needle), line, needle);
    }
    if let Some(rest) = after(text, "gpu_memory_utilization (") {
        readings.figure(
            "requested_gib",
            gib_after(rest, ") = "),
            line,
            "gpu_memory_utilization (",
        );
    }
    let results = "Memory profiling results: ";
    if let Some(rest) = after(text, results) {
        for (needle, key) in RESULTS {
            readings.figure(key, gib_after(rest, needle), line, results);
        }
    }
}

/// Parts of the memory profile since 0.8.
pub const PROFILE: &[(&str, &str)] = &[
    ("Available KV cache memory: ", "kv_cache_gib"),
    ("Total non KV cache memory: ", "non_kv_cache_gib"),
    ("torch peak memory increase: ", "activation_peak_gib"),
    ("non-torch forward increase memory: ", "non_torch_gib"),
    ("weights memory: ", "weights_gib_in_summary_line"),
    ("total consumed (from mem_get_info): ", "consumed_gib"),
    ("Free memory after profiling: ", "free_after_profile_gib"),
    ("Initial free memory: ", "free_at_start_gib"),
    ("requested GPU memory: ", "requested_gib"),
    (
        "Peak GPU memory after loading weights: ",
        "peak_loading_gib",
    ),
];

fn profile_v1(line: &Line<'_>, readings: &mut Readings) {
    let text = line.text;
    for (needle, key) in PROFILE {
        readings.figure(key, gib_after(text, needle), line, needle);
    }
    if let Some(rest) = after(text, "Requested memory: ") {
        readings.figure(
            "requested_gib",
            gib_after(rest, "(util), "),
            line,
            "Requested memory: ",
        );
    }
    // Another process gave memory back while this one was measured.
    if let Some(rest) = after(text, "Error in memory profiling. Initial free memory ") {
        for (rest, gib_key, bytes_key) in [
            (Some(rest), "free_at_start_gib", "free_at_start_bytes"),
            (
                after(rest, "current free memory "),
                "free_after_profile_gib",
                "free_after_profile_bytes",
            ),
        ] {
            let Some(rest) = rest else { continue };
            match gib(rest) {
                Some((value, _)) => readings.figure(gib_key, Some(value), line, "Error in memory"),
                // Bytes, before 0.9.1.
                None => readings.count(
                    bytes_key,
                    number(rest).map(|(n, _)| n.value),
                    line,
                    "Error in memory",
                ),
            }
        }
    }
}

/// Parts of the summary after warm-up, behind their figures.
pub const SUMMARY: &[(&str, &str)] = &[
    (" GiB for weight", "weights_gib_in_summary_line"),
    (" GiB for consumed memory", "consumed_gib"),
    (" GiB for peak activation", "activation_peak_gib"),
    (" GiB for non-torch memory", "non_torch_gib"),
    (
        " GiB for CUDAGraph memory",
        "cuda_graph_gib_in_summary_line",
    ),
];

/// `Free memory on device (a/b GiB) on startup. Desired GPU memory utilization is (u, r GiB). ...`:
/// the budget after warm-up, or the refusal to start.
fn summary(line: &Line<'_>, readings: &mut Readings) {
    let text = line.text;
    let needle = "Free memory on device";
    let Some(rest) = after(text, needle) else {
        return;
    };
    // Newer releases name the device first: `device cuda:0 (3.25/23.43 GiB)`.
    if let Some((free, total)) = after(rest, "(").and_then(fraction) {
        readings.figure("free_at_start_gib", Some(free), line, needle);
        readings.figure("total_gpu_memory_gib", Some(total), line, needle);
    }
    if let Some(budget) = after(rest, "memory utilization ").and_then(|r| after(r, "(")) {
        readings.figure("requested_gib", gib_after(budget, ", "), line, needle);
    }
    for (unit, key) in SUMMARY {
        readings.figure(key, number_before(rest, unit).map(|n| n.value), line, unit);
    }
    let flag = "--kv-cache-memory=";
    if let Some(fitting) = after(rest, flag) {
        readings.count(
            "suggested_kv_cache_memory_bytes",
            number(fitting).map(|p| p.0.value),
            line,
            flag,
        );
        readings.count(
            "suggested_kv_cache_memory_bytes_full",
            after(fitting, flag).and_then(number).map(|p| p.0.value),
            line,
            "to fully utilize",
        );
    }
    let in_use = "kv cache memory in use is ";
    if let Some(rest) = after(rest, in_use) {
        match gib(rest) {
            Some((value, _)) => readings.figure("kv_cache_in_use_gib", Some(value), line, in_use),
            None => readings.count(
                "kv_cache_in_use_bytes",
                number(rest).map(|p| p.0.value),
                line,
                in_use,
            ),
        }
    }
}

/// The pool's size was given, so nothing was measured; or it was changed after measuring.
fn set_by_hand(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) {
    let text = line.text;
    if text.contains("memory for KV Cache as specified by") {
        readings.figure(
            "kv_cache_gib",
            gib_after(text, "reserved "),
            line,
            "reserved ",
        );
        readings.figure(
            "free_at_start_gib",
            gib_after(text, "Initial free memory "),
            line,
            "Initial free memory ",
        );
    }
    let plan = "Applying persisted startup plan";
    if let Some(rest) = after(text, plan) {
        if let Some(rest) = after(rest, "kv_cache_memory_bytes=") {
            readings.figure("kv_cache_gib", gib_after(rest, "("), line, plan);
            settings.set_count(
                "kv_cache_memory_bytes",
                number(rest).map(|p| p.0.value),
                Trust::Adjusted,
                line,
                plan,
            );
        }
    }
    let reduced = "KV cache memory reduced to ";
    if let Some(value) = gib_after(text, reduced) {
        readings.forget("kv_cache_gib");
        readings.figure("kv_cache_gib", Some(value), line, reduced);
    }
}

fn cpu(line: &Line<'_>, readings: &mut Readings) {
    let text = line.text;
    for needle in ["Explicitly set (", "Auto set ("] {
        let Some(rest) = after(text, needle).filter(|r| r.contains("GiB for KV cache")) else {
            continue;
        };
        if let Some((pool, node)) = fraction(rest) {
            readings.figure("kv_cache_gib", Some(pool), line, needle);
            readings.figure("cpu_node_memory_gib", Some(node), line, needle);
        }
        readings.figure("requested_gib", gib_after(rest, ", with "), line, needle);
        let consumed = number_before(rest, " GiB memory was consumed by non-kv usages");
        readings.figure("non_kv_cache_gib", consumed.map(|n| n.value), line, needle);
    }
    let refused = "Available memory on node ";
    if let Some(rest) = after(text, refused) {
        let key = if rest.contains(" on startup") {
            "free_at_start_gib"
        } else {
            "free_at_kv_allocation_gib"
        };
        if let Some((free, node)) = after(rest, "(").and_then(fraction) {
            readings.figure(key, Some(free), line, refused);
            readings.figure("cpu_node_memory_gib", Some(node), line, refused);
        }
        if let Some(budget) = after(rest, "memory utilization (") {
            readings.figure("requested_gib", gib_after(budget, ", "), line, refused);
        }
        readings.figure(
            "kv_cache_needed_gib",
            gib_after(rest, "requested memory for kv ("),
            line,
            refused,
        );
    }
    let variable = "VLLM_CPU_KVCACHE_SPACE";
    if let Some(rest) = after(text, variable).filter(|r| r.contains("not set")) {
        if let Some(n) = number_after(&rest.to_lowercase(), "using ") {
            let key = "cpu_kvcache_space_gib";
            if n.whole {
                readings.count(key, Some(n.value), line, variable);
            } else {
                readings.figure(key, Some(n.value), line, variable);
            }
        }
    }
}

fn other_devices(line: &Line<'_>, readings: &mut Readings) {
    let text = line.text;
    // torch's own words (`capacty` in old ones) when an allocation fails.
    if let Some((_, rest)) = text.split_once("has a total capac") {
        let needle = "has a total capac";
        readings.figure(
            "total_gpu_memory_gib_in_error",
            gib_after(rest, " of "),
            line,
            needle,
        );
    }
    // Gaudi: `took X of device memory (a GiB/b GiB used)`.
    if let Some((_, rest)) = after(text, "of device memory (").and_then(gib) {
        let total = rest.strip_prefix('/').and_then(gib).map(|p| p.0);
        readings.figure("total_gpu_memory_gib", total, line, "of device memory (");
    }
    if text.contains("Free device memory: ") {
        let needle = "reserved for KV cache";
        if let Some(head) = text.find(needle).map(|at| &text[..at]) {
            let figure = head
                .rsplit_once(", ")
                .and_then(|(_, last)| gib(last))
                .map(|p| p.0);
            readings.figure("kv_cache_gib", figure, line, needle);
        }
    }
    // Intel GPUs say MB and mean MiB.
    if let Some(rest) = after(text, "Before memory profiling run, total GPU memory: ") {
        readings.figure(
            "total_gpu_memory_gib",
            gib(rest).map(|p| p.0),
            line,
            "Before memory",
        );
        readings.figure(
            "weights_gib_in_summary_line",
            gib_after(rest, "model load takes "),
            line,
            "Before memory",
        );
    }
    if let Some(rest) = after(text, "After memory profiling run, peak memory usage is ") {
        readings.figure(
            "peak_memory_gib",
            gib(rest).map(|p| p.0),
            line,
            "After memory",
        );
        readings.figure(
            "non_torch_gib",
            gib_after(rest, "non-torch mem is "),
            line,
            "After memory",
        );
    }
}

/// Messages that name the fraction of memory to use.
pub const UTILIZATION: &[&str] = &[
    "gpu_memory_utilization (",
    "GPU memory utilization is (",
    "GPU memory utilization (",
    "CPU memory utilization (",
    "The current --gpu-memory-utilization=",
    "increase --gpu-memory-utilization from ",
    "usable (gpu_memory_utilization=",
    "GiB gpu_memory_utilization=",
];

fn utilization(line: &Line<'_>, settings: &mut Settings) {
    for needle in UTILIZATION {
        if let Some(n) = number_after(line.text, needle) {
            settings.set(
                "gpu_memory_utilization",
                FactValue::Float(n.value),
                Trust::Used,
                line,
                needle,
            );
        }
    }
}
