//! Why a value is null. Every null of the document has a reason here, each a true sentence about
//! this run; a test checks that none is missing.

use super::checkpoint;
use super::configuration::{WEIGHT_INDEX, load_missed};
use super::observation::{Observation, observes_only};
use super::torch;
use super::under_load::{FEWEST_SAMPLES, SHORTEST_S};
use crate::capture::{Capture, ExecRole, Mode, RunEnd};
use serde_json::Value;
use std::collections::BTreeMap;

/// Path of each null → reason. Array elements are written `[]`.
pub fn reasons(document: &Value, o: &Observation<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(document, String::new(), &mut |path| {
        found
            .entry(path.to_owned())
            .or_insert_with(|| reason(path, o, document));
    });
    found
}

fn walk(value: &Value, path: String, null: &mut dyn FnMut(&str)) {
    match value {
        Value::Null => null(&path),
        Value::Array(items) => items
            .iter()
            .for_each(|v| walk(v, format!("{path}[]"), null)),
        Value::Object(fields) => fields.iter().for_each(|(k, v)| {
            let path = if path.is_empty() {
                k.clone()
            } else {
                format!("{path}.{k}")
            };
            walk(v, path, null)
        }),
        _ => {}
    }
}

fn reason(path: &str, o: &Observation<'_>, document: &Value) -> String {
    let (section, rest) = path.split_once('.').unwrap_or((path, ""));
    match section {
        "metadata" => metadata(rest, o.capture),
        "parameters" => parameters(rest),
        "gpu_info" => gpu_info(rest, o),
        "model_info" => model_info(rest, o),
        "dtype_metadata" => dtype(rest, o, document),
        "memory_measurements" => measurements(rest, o),
        "memory_breakdown" => breakdown(rest, o, document),
        "memory_timeline" => timeline(rest, o, document),
        "detailed_gpu_metrics" => gpu_metrics(rest, o),
        "vllm_internal_metrics" => internal(rest, o, document),
        "latency_stats" => latency(rest, o),
        "torch_memory" => torch::unknown(rest, o),
        "layer_profile" => torch::no_layers(rest, o),
        _ => unsaid(o),
    }
}

/// The engine is silent on it.
fn unsaid(o: &Observation<'_>) -> String {
    match o.engine {
        // No endpoints are asked where the engine runs inside the bench.
        Some(engine) if o.capture.mode == Mode::Idle => {
            format!("{} did not say it in its log", engine.name())
        }
        Some(engine) => format!(
            "{} did not say it, neither in its log nor by its endpoints",
            engine.name()
        ),
        None if o.capture.engine.is_empty() => "no engine was recognised".into(),
        None => format!("this plimsoll cannot read engine `{}`", o.capture.engine),
    }
}

/// Why the load's figures are missing.
pub(super) fn unmeasured(c: &Capture) -> Option<String> {
    let why = match &c.end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => "the run was interrupted before it was measured",
        RunEnd::Deadline => "the deadline passed before it was measured",
        RunEnd::ContainerLost(_) => "the container was lost before it was measured",
        RunEnd::BenchFailed(_) => "the bench failed before it was measured",
        RunEnd::Failed(_) => "the run failed before it was measured",
    };
    Some(why.into())
}

/// Why no sample tells it.
fn unsampled(c: &Capture) -> String {
    match &c.sampling.last_error {
        Some(e) if c.sampling.ticks == 0 => format!("memory could not be read: {e}"),
        _ => "no sample covers it".into(),
    }
}

/// Why the measured part of the bench shows nothing; `seen` where it was gone through.
fn no_load(o: &Observation<'_>, seen: &str) -> String {
    unmeasured(o.capture).unwrap_or_else(|| match o.top().map(|t| t.bench_at) {
        None => no_peak(o),
        Some(None) => "the bench did not tell when its measured part began".into(),
        Some(Some(_)) => seen.to_owned(),
    })
}

/// Why there is no peak.
fn no_peak(o: &Observation<'_>) -> String {
    if o.series.device_count() == 0 || !o.repeats.is_empty() {
        return unsampled(o.capture);
    }
    unmeasured(o.capture).unwrap_or_else(|| "no load ran".into())
}

fn metadata(rest: &str, c: &Capture) -> String {
    let ended = match rest.split('.').next() {
        Some("container_end") => c.container_end.as_ref(),
        _ => Some(&c.container.state),
    }
    .is_some_and(|s| matches!(s.status.as_str(), "exited" | "dead"));
    let last = rest.rsplit('.').next().unwrap_or(rest);
    match last {
        "container_end" => "the container was gone when the run ended",
        "exit_code" | "finished_ns" if ended => "Docker does not tell it",
        "exit_code" | "finished_ns" => "the container had not ended",
        "pid" => "no process of the container was running",
        "started_ns" => "the container had not been started, or Docker does not tell",
        "memory_limit_bytes" => "the container has no limit of its own",
        "shm_size_bytes" => "Docker does not tell it",
        "last_error" | "error" => "nothing went wrong",
        "probe_interval_ns" => {
            "nothing was probed between samples: the backend cannot, or samples are frequent enough"
        }
        "jitter_p99_ns" => "too few samples were taken",
        "cpu_ns" => "the system does not tell a thread's processor time, or the plimsoll that captured did not ask",
        _ => "neither Docker nor the host tells it",
    }
    .into()
}

fn parameters(rest: &str) -> String {
    match rest {
        "model" => "not asked for: what the engine serves was taken",
        _ if rest.starts_with("settings.") => {
            "not asked for by flag: left to the engine and to the container's own command"
        }
        "workload.input_len" => {
            "no length was asked for; that of a given prompt is counted in torch_memory.load"
        }
        "workload.prompt" => "not asked for: the bench makes its own prompts",
        "workload.request_rate" => "not asked for: requests are sent as fast as the bench can",
        _ => "not asked for: a default applies where the bench has such a setting",
    }
    .into()
}

fn gpu_info(rest: &str, o: &Observation<'_>) -> String {
    match rest {
        "multi_gpu_overhead_gb" if o.capture.devices.len() < 2 => {
            "only one device was measured".into()
        }
        "multi_gpu_overhead_gb" => "needs a second run of the same load on one GPU".into(),
        _ if o.is_host(0) => "the container has no limit and the host's memory is not known".into(),
        _ => "the driver does not tell it".into(),
    }
}

fn model_info(rest: &str, o: &Observation<'_>) -> String {
    let c = o.capture;
    let has = |file: &str| c.model_files.contains_key(file);
    let unread = |what: &str| match &c.model_files_error {
        Some(why) => format!("{what} could not be read: {why}"),
        None => format!("{what} was not found in the container"),
    };
    match rest {
        "name" => "neither the command line, the engine nor its log names it".into(),
        "num_parameters" if checkpoint::is_quantized(&c.model_files) => {
            "the checkpoint is quantized: its files hold packed values, and their number is not that of the parameters".into()
        }
        "num_parameters" | "checkpoint_bytes" if has(WEIGHT_INDEX) => {
            format!("{WEIGHT_INDEX} does not have it, and not every shard's header could be read")
        }
        "num_parameters" | "checkpoint_bytes" if has("model.safetensors") => {
            "the header of model.safetensors is damaged".into()
        }
        "num_parameters" | "checkpoint_bytes" => {
            unread(&format!("{WEIGHT_INDEX} (or a model.safetensors with a header)"))
        }
        _ if has("config.json") => "the model's config.json does not say".into(),
        _ => unread("the model's config.json"),
    }
}

fn dtype(rest: &str, o: &Observation<'_>, document: &Value) -> String {
    let quantization = o
        .log
        .text("quantization")
        .or_else(|| o.probes.values.get("quantization").map(String::as_str));
    let printed = |log: &str| {
        let text = document.pointer(log).and_then(Value::as_str);
        text.is_some_and(|t| t.contains("quantization=None"))
    };
    match (rest, quantization) {
        ("quantization", Some("None")) => "the engine runs unquantized".into(),
        ("quantization", None) if printed("/raw_logs/engine") || printed("/raw_logs/bench") => {
            "the engine runs unquantized".into()
        }
        ("quantization", _) => "the engine named no quantization method".into(),
        _ => unsaid(o),
    }
}

fn measurements(rest: &str, o: &Observation<'_>) -> String {
    let c = o.capture;
    let last = rest.rsplit('.').next().unwrap_or(rest);
    match last {
        "baseline" => match unmeasured(c).filter(|_| o.baseline_window().is_none()) {
            Some(why) => why,
            None => unsampled(c),
        },
        "post_warmup" if observes_only(c) => "no bench was asked for".into(),
        "post_warmup" => no_load(o, &unsampled(c)),
        "peak" => no_peak(o),
        "memory_increase_gb" => "needs both a baseline and a peak".into(),
        "host" | "swap_bytes" | "anon_bytes" | "file_bytes" | "shmem_bytes" | "kernel_bytes"
            if o.is_host(0) =>
        {
            "the kernel does not tell it".into()
        }
        "host" => "the device is a GPU".into(),
        "reserved_bytes" if o.is_host(0) => "host memory has no driver's share".into(),
        "reserved_bytes" => "only an NVIDIA driver of R510 or later tells it".into(),
        "total_gb" => "the size of the device is not known".into(),
        _ => unsampled(c),
    }
}

fn breakdown(rest: &str, o: &Observation<'_>, document: &Value) -> String {
    let c = o.capture;
    if o.top().is_none() {
        return no_peak(o);
    }
    // What is told and not used is told of a rank that nobody places.
    let evidence = document.get("evidence").and_then(Value::as_array);
    let told = |component: &str| {
        let mut all = evidence.into_iter().flatten();
        all.any(|e| e.get("component").is_some_and(|c| c == component))
    };
    let said = |component: &str| {
        if told(component) {
            "which device holds which rank of the engine is not known".to_owned()
        } else {
            unsaid(o)
        }
    };
    // What could have been measured, had it been seen.
    let unseen = match c.mode {
        Mode::Serving => "the engine had started before the capture began",
        Mode::Idle | Mode::Started => {
            "its log did not tell when that was allocated, or no sample lies between what it told"
        }
    };
    match rest {
        "baseline_gb" | "net_increase_gb" => match c.mode {
            Mode::Serving => {
                "the engine was loaded before the capture began, and its processes' device memory is not known"
            }
            Mode::Idle | Mode::Started => "no sample was taken before the engine started",
        }
        .into(),
        "model_weights_gb" => {
            format!(
                "{}; {unseen}; what the checkpoint takes in memory is not known",
                said("model_weights")
            )
        }
        "kv_cache_gb" if o.probes.values.contains_key("kv_cache_memory_bytes")
            && o.engine.is_some_and(|e| e.simulated()) => {
            format!("what the engine says of it is not believed, since it is there to be measured; {unseen}")
        }
        "kv_cache_gb" => format!("{}; {unseen}", said("kv_cache")),
        "activations_gb" if observes_only(c) => format!(
            "{}; there was no load of ours, and what varied meanwhile is in memory_timeline",
            said("activations")
        ),
        "activations_gb" => {
            format!("{}; {}", said("activations"), no_load(o, "no sample shows the load"))
        }
        "repeat" if observes_only(c) => "no bench was asked for".into(),
        "repeat" => unmeasured(c).unwrap_or_else(|| "no bench ran".into()),
        _ => unsampled(c),
    }
}

fn timeline(rest: &str, o: &Observation<'_>, document: &Value) -> String {
    let last = rest.rsplit('.').next().unwrap_or(rest);
    let never = document
        .pointer("/memory_timeline/extended")
        .is_none_or(Value::is_null);
    match last {
        "under_load" if observes_only(o.capture) => "no bench was asked for".into(),
        "under_load" => no_load(
            o,
            "no sample of every device lies in the measured part of the bench: a longer load (--num-iters, --num-prompts) or a shorter --sample-interval shows it",
        ),
        "shape" => format!(
            "the load was too short: a shape shows in {FEWEST_SAMPLES} samples over {SHORTEST_S} s at least"
        ),
        _ if o.capture.sampling.ticks == 0 => unsampled(o.capture),
        "extended" | "power_w" | "temp_c" if never => {
            "the backend reads neither power nor temperature".into()
        }
        "power" => "the backend reads no power".into(),
        "temperature" => "the backend reads no temperature".into(),
        "power_w" | "temp_c" => "not read with this sample".into(),
        "file_gb" if o.is_host(0) => "the kernel does not tell it".into(),
        "file_gb" => "the device is a GPU".into(),
        _ => unsampled(o.capture),
    }
}

fn gpu_metrics(rest: &str, o: &Observation<'_>) -> String {
    match rest.rsplit('.').next().unwrap_or(rest) {
        "" if o.capture.devices.is_empty() => "no device was measured".into(),
        "" if o.is_host(0) => {
            "no GPU was measured: the backend reads the container's host memory".into()
        }
        "" => no_peak(o),
        "memory_temp_c" | "mem_utilization_pct" | "clock_gfx_mhz" | "clock_mem_mhz" => {
            "the backend read none: the GPU has no such sensor, or its driver does not tell".into()
        }
        "in_container" => "whose process it is could not be told".into(),
        "container_id" => "it runs in no container, or in which one could not be told".into(),
        "container_name" => "it does not run in the profiled container".into(),
        "peak_memory_usage" => {
            "the driver's accounting is off, or has no figure; plimsoll never switches it on".into()
        }
        _ => "the driver does not tell it".into(),
    }
}

fn internal(rest: &str, o: &Observation<'_>, document: &Value) -> String {
    let c = o.capture;
    let elsewhere = match rest {
        "model_weights_gb" => "model_weights_gb",
        "activations_gb" => "activations_gb",
        "total_gpu_kv_cache_gb" => "kv_cache_gb",
        _ => "",
    };
    let measured = document
        .pointer(&format!("/memory_breakdown/{elsewhere}"))
        .is_some_and(Value::is_number);
    let usage_known = c.gauges.iter().any(|g| g.kv_cache_usage.is_some());
    match rest {
        "kv_cache_used_gb" | "kv_cache_usage_peak" if load_missed(c) && read_under_load(o) => {
            "no request was in flight when the engine's metrics were read: each was answered between two readings; longer ones (--output-len) or more at once (--request-rate) show it".into()
        }
        "kv_cache_used_gb" | "kv_cache_usage_peak" if load_missed(c) => {
            "the load was over before the engine's metrics were read a second later: a longer one (--num-prompts) shows it".into()
        }
        "kv_cache_used_gb" if usage_known => {
            "its share of the pool is known, the size of the pool is not".into()
        }
        "kv_cache_used_gb" | "kv_cache_usage_peak" | "preemptions" => match c.mode {
            Mode::Idle => "an in-process bench has no metrics endpoint to read it from".into(),
            Mode::Serving | Mode::Started if c.gauges.is_empty() => {
                "the engine's metrics were not read while the load ran".into()
            }
            Mode::Serving | Mode::Started => "the engine's metrics do not tell it".into(),
        },
        "num_cpu_blocks" => format!(
            "{}; engines of vLLM's V1 design have no blocks on the host",
            unsaid(o)
        ),
        "total_allocated_gb" => {
            let parts = [("model_weights_gb", "weights"), ("total_gpu_kv_cache_gb", "KV pool")];
            let missing = parts.into_iter().filter(|(key, _)| {
                let value = document.pointer(&format!("/vllm_internal_metrics/{key}"));
                value.is_none_or(Value::is_null)
            });
            let missing: Vec<&str> = missing.map(|(_, name)| name).collect();
            format!("needs the engine's own figures; unknown: {}", missing.join(" and "))
        }
        "block_size" if o.log.facts.contains_key("kv_cache_tokens") => format!(
            "{}; it prints the pool in tokens, and a block size only where --block-size sets one",
            unsaid(o)
        ),
        "cuda_graphs_gb" if o.is_host(0) => {
            format!("{}; on CPU there are none", unsaid(o))
        }
        "cuda_graphs_enabled"
            if o.log.facts.contains_key("enforce_eager")
                || o.probes.values.contains_key("enforce_eager") =>
        {
            "they are not switched off, and its log does not show that they were captured".into()
        }
        _ if measured => format!("{}; see memory_breakdown.{elsewhere}", unsaid(o)),
        _ => unsaid(o),
    }
}

/// Whether a reading of the gauges fell into the measured part of a load.
fn read_under_load(o: &Observation<'_>) -> bool {
    let loads = || {
        o.repeats
            .iter()
            .filter_map(|r| Some((r.bench_at?, r.window.to)))
    };
    let mut gauges = o.capture.gauges.iter();
    gauges.any(|g| loads().any(|(from, to)| (from..=to).contains(&g.at_ns)))
}

fn latency(rest: &str, o: &Observation<'_>) -> String {
    let c = o.capture;
    if rest.is_empty() {
        if observes_only(c) {
            return "no bench was asked for".into();
        }
        let error = c
            .execs
            .iter()
            .filter(|e| e.role == ExecRole::Bench)
            .find_map(|e| e.result_error.clone());
        return match (error, unmeasured(c)) {
            (Some(error), _) => format!("the bench's result could not be read: {error}"),
            (None, Some(why)) => why,
            (None, None) => "the bench left no result that could be read".into(),
        };
    }
    match rest.rsplit('.').next().unwrap_or(rest) {
        "stddev" => "one repeat has no spread".into(),
        "peak_bytes" | "peak_bytes_spread" => unsampled(c),
        _ => format!("a {} bench does not tell it", c.request.bench),
    }
}
