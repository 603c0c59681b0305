//! From a capture to a profile. No I/O, no clock: the same capture gives the same profile.

use super::configuration::{compare_settings, engine_metadata};
use super::observation::{CaptureObservation, load_kind, observes_only};
use super::timeline::build_timeline;
use super::unknown::{NullReasons, null_reasons};
use super::*;
use crate::breakdown::{DevicePeak, explain_component};
use crate::capture::{Capture, LogLine, MemorySample};
use crate::engine::facts::key;
use crate::engine::{read_builtin, read_builtin_notes};

/// Derives the profile of a capture. `samples` and `lines` are those of the same run, in any
/// order that keeps each source's own; they are read once.
pub fn derive_profile(
    capture: &Capture,
    samples: impl IntoIterator<Item = MemorySample>,
    lines: impl IntoIterator<Item = LogLine>,
) -> Profile {
    let mut o = CaptureObservation::new(capture, samples, lines);
    let (engine_excerpt, bench_excerpt) = std::mem::take(&mut o.excerpts);
    let configuration = compare_settings(capture, &o.settings, &o.log, &o.probes);
    let asked = capture.request.model.as_deref();
    let name = asked
        .or(o.probes.model.as_deref())
        .or(o.settings.model.as_deref())
        .or_else(|| o.log.text(key::model))
        .map(str::to_owned);
    let mut model_info = ModelInfo::read_model_files(&capture.model_files, name);
    model_info.fill_given(&capture.request.architecture);
    let mut gpu_info = GpuInfo::gpu_info_of(capture);
    let dtype_metadata = dtypes(&o, &configuration, &model_info);
    let pool = pool::ExactPool::read_pool(&o, &model_info, &dtype_metadata);
    let mut metrics = InternalMetrics::reported_metrics(&o, &configuration.effective, &pool);
    model_info.dtype = dtype_metadata.weights.clone().or(model_info.dtype);
    torch::fill_from_probe(&o, &mut metrics, &mut model_info, &mut gpu_info);

    let evidence = witnesses::collect_evidence(&o, &model_info, &dtype_metadata, &pool);
    let peaks: Vec<series::DevicePeakReading> =
        o.top_repeat().map(|t| t.peaks.clone()).unwrap_or_default();
    let device_peaks: Vec<DevicePeak> = peaks
        .iter()
        .map(|p| DevicePeak {
            gpu_id: p.nearest.device,
            bytes: p.bytes,
            source: p.source,
        })
        .collect();
    let mut memory_breakdown = explain_component(
        &device_peaks,
        &evidence,
        &capture.engine,
        o.top_repeat().and_then(|t| t.number),
    );
    if o.host_overload().is_some() || o.coarsely_timed() || o.swapped_bytes().is_some() {
        memory_breakdown.doubt_differences();
    } else if findings::load_without_trace(&o, &memory_breakdown).is_some() {
        memory_breakdown.doubt_activations();
    }
    let latency_stats = collect_latency(&o);
    let findings = findings::collect_findings(
        &o,
        &evidence,
        &memory_breakdown,
        &configuration,
        &metrics,
        latency_stats.as_ref(),
    );
    let engine_metadata = engine_metadata(capture, o.engine, &o.log, &o.probes);

    let (engine, omitted_engine) = engine_excerpt.into_text();
    let (bench, omitted_bench) = bench_excerpt.into_text();
    let mut profile = Profile {
        profiler_version: env!("CARGO_PKG_VERSION").into(),
        schema_version: SCHEMA_VERSION.into(),
        metadata: metadata(capture, engine_metadata.simulated),
        model_info,
        gpu_info,
        parameters: taken_request(&capture.request, &configuration),
        dtype_metadata,
        memory_measurements: measurements(&o, &peaks),
        memory_breakdown,
        vllm_internal_metrics: metrics,
        host_memory: HostMemoryUse::use_in_capture(&o),
        memory_timeline: build_timeline(&o.series, capture, under_load::under_load(&o)),
        detailed_gpu_metrics: DetailedGpuMetrics::metrics_at_peak(capture, &o.series, &peaks),
        latency_stats,
        torch_memory: torch::torch_memory_of(&o),
        layer_profile: o.torch.as_ref().and_then(|t| t.layer_profile.clone()),
        engine_metadata,
        configuration,
        evidence,
        findings,
        unknown: BTreeMap::new(),
        raw_logs: RawLogs {
            engine,
            bench,
            omitted_bytes: omitted_engine + omitted_bench,
        },
    };
    profile.unknown = collect_null_reasons(&profile, &o).0;
    profile
}

/// The request without what the run did not take.
fn taken_request(request: &Request, configuration: &Configuration) -> Request {
    let ignored = configuration.ignored.iter();
    let names: Vec<&str> = ignored.map(|i| i.setting.as_str()).collect();
    Request {
        settings: request.settings.without(&names),
        ..request.clone()
    }
}

/// Why each null of the document is null.
fn collect_null_reasons(profile: &Profile, o: &CaptureObservation<'_>) -> NullReasons {
    let mut reasons = NullReasons::default();
    let out = &mut reasons;
    metadata_reasons(&profile.metadata, out);
    request_reasons(&profile.parameters, out);
    profile.gpu_info.note_null_reasons(o, out);
    profile.model_info.note_null_reasons(o, out);
    dtype_reasons(profile, o, out);
    profile.memory_measurements.note_null_reasons(o, out);
    breakdown_reasons(profile, o, out);
    (profile.vllm_internal_metrics).note_null_reasons(&profile.memory_breakdown, o, out);
    HostMemoryUse::note_null_reasons(profile.host_memory.as_ref(), o, out);
    profile.memory_timeline.note_null_reasons(o, out);
    measurements::gpu_reasons(profile.detailed_gpu_metrics.as_ref(), o, out);
    performance::note_null_reasons(profile.latency_stats.as_ref(), o, out);
    torch::note_null_reasons(profile.torch_memory.as_ref(), o, out);
    torch::layer_reasons(profile.layer_profile.as_ref(), o, out);
    null_reasons!(out, "engine_metadata", profile.engine_metadata;
        engine_version => o.not_reported();
    );
    reasons
}

fn metadata_reasons(metadata: &Metadata, out: &mut NullReasons) {
    let end = metadata.container_end.as_ref();
    null_reasons!(out, "metadata", metadata;
        container_end => "the container was gone when the run ended";
        container.memory_limit_bytes => "the container has no limit of its own";
        container.shm_size_bytes => "not reported by Docker";
        sampling.last_error, log.error => "nothing went wrong";
        sampling.probe_interval_ns => "nothing was probed between samples: the backend cannot, or samples are frequent enough";
        sampling.jitter_p99_ns => "too few samples were taken";
        sampling.cpu_ns => "the system does not report a thread's processor time, or the plimsoll of the capture did not read it";
        host.memory_bytes, host.docker_version, host.docker_api_version, host.boot_id,
        container.created_ns, memory_backend.version => "not reported by Docker or the host";
    );
    let start = ("metadata.container.state", &metadata.container.state);
    for (at, state) in [start]
        .into_iter()
        .chain(end.map(|s| ("metadata.container_end", s)))
    {
        let ended = matches!(state.status.as_str(), "exited" | "dead");
        null_reasons!(out, at, state;
            exit_code, finished_ns => if ended { "not reported by Docker" } else { "the container had not ended" };
            pid => "no process of the container was running";
            started_ns => "the container had not been started, or Docker does not report it";
        );
    }
}

fn request_reasons(request: &Request, out: &mut NullReasons) {
    // A length of zero is written as null.
    let no_length = request.workload.input_len == 0;
    out.note_if_null(
        no_length,
        "parameters.workload.input_len".into(),
        || match request.bench.as_str() {
            "builtin" => {
                "no length was asked for; that of a given prompt is in the rows of the requests"
                    .into()
            }
            _ => "no length was asked for; that of a given prompt is counted in torch_memory.load"
                .into(),
        },
    );
    null_reasons!(out, "parameters", request;
        model => "not asked for: what the engine serves was taken";
        settings.dtype, settings.quantization, settings.kv_cache_dtype, settings.tensor_parallel_size,
        settings.gpu_memory_utilization, settings.max_model_len =>
            "not asked for by flag: left to the engine and to the container's own command";
        workload.prompt => "not asked for: the bench makes its own prompts";
        workload.request_rate => "not asked for: requests are sent as fast as the bench can";
        workload.batch_size, workload.num_iters, workload.num_iters_warmup, workload.num_prompts,
        workload.max_concurrency, workload.seed =>
            "not asked for: a default applies where the bench has such a setting";
    );
}

fn breakdown_reasons(profile: &Profile, o: &CaptureObservation<'_>, out: &mut NullReasons) {
    let (breakdown, at) = (&profile.memory_breakdown, "memory_breakdown");
    if o.top_repeat().is_none() {
        null_reasons!(out, at, breakdown;
            total_measured_bytes, total_measured_gb, baseline_gb, net_increase_gb, model_weights_gb, kv_cache_gb,
            activations_gb, framework_overhead_gb, overhead_percentage, unexplained_bytes, repeat => o.no_peak();
        );
        return;
    }
    let serving = o.capture.mode == Mode::Serving;
    // A figure that is reported and not used is of a rank on an unknown device.
    let not_reported = |component: Component| {
        if profile.evidence.iter().any(|e| e.component == component) {
            return "which device holds which rank of the engine is not known".to_owned();
        }
        o.not_reported()
    };
    // Why it was not measured from outside either.
    let unseen = if serving {
        "the engine had started before the capture began"
    } else {
        "its log has no time of the allocation, or no sample lies between its times"
    };
    let simulated_pool = o.probes.values.contains_key("kv_cache_memory_bytes")
        && o.engine.is_some_and(|e| e.simulated);
    null_reasons!(out, at, breakdown;
        baseline_gb, net_increase_gb => if serving {
            "the engine was loaded before the capture began, and its processes' device memory is not known"
        } else {
            "no sample was taken before the engine started"
        };
        model_weights_gb => format!(
            "{}; {unseen}; what the checkpoint takes in memory is not known",
            not_reported(Component::ModelWeights)
        );
        kv_cache_gb => if simulated_pool {
            format!("the engine's own figures are ignored: it is the reference engine; {unseen}")
        } else {
            format!("{}; {unseen}", not_reported(Component::KvCache))
        };
        activations_gb => {
            let why = if observes_only(o.capture) {
                "there was no load of ours, and what varied meanwhile is in memory_timeline".into()
            } else {
                o.no_load("no sample shows the load")
            };
            format!("{}; {why}", not_reported(Component::Activations))
        };
        repeat => o.no_bench_or(|| o.capture.end.unmeasured().unwrap_or_else(|| "no bench ran".into()));
        total_measured_bytes, total_measured_gb, framework_overhead_gb, overhead_percentage, unexplained_bytes =>
            o.not_sampled();
    );
}

fn dtype_reasons(profile: &Profile, o: &CaptureObservation<'_>, out: &mut NullReasons) {
    let quantization = o
        .log
        .text(key::quantization)
        .or_else(|| o.probes.values.get("quantization").map(String::as_str));
    let logs = &profile.raw_logs;
    let printed_none = || {
        [&logs.engine, &logs.bench]
            .iter()
            .any(|l| l.contains("quantization=None"))
    };
    null_reasons!(out, "dtype_metadata", profile.dtype_metadata;
        quantization => match quantization {
            Some("None") => "the engine runs unquantized",
            None if printed_none() => "the engine runs unquantized",
            _ => "the engine named no quantization method",
        };
        weights, activations, kv_cache => o.not_reported();
    );
}

fn metadata(capture: &Capture, simulated_engine: bool) -> Metadata {
    let started = jiff::Timestamp::from_nanosecond(capture.wall_start_ns.into());
    Metadata {
        run_id: capture.run_id.clone(),
        timestamp: started.map(|t| format!("{t:.3}")).unwrap_or_default(),
        duration_s: capture.ended_at_ns as f64 / 1e9,
        mode: capture.mode,
        shared_start: capture.shared_start.clone(),
        outcome: capture.end.clone(),
        simulated: simulated_engine || capture.backend.simulated,
        host: capture.host.clone(),
        container: capture.container.clone(),
        container_end: capture.container_end.clone(),
        memory_backend: capture.backend.clone(),
        sampling: capture.sampling.clone(),
        log: capture.log.clone(),
    }
}

fn measurements(o: &CaptureObservation<'_>, peaks: &[series::DevicePeakReading]) -> Measurements {
    let devices = &o.capture.devices;
    let each = 0..o.series.device_count();
    let baseline = Point::of_samples(each.clone().filter_map(|d| o.baseline_sample(d)), devices);
    let post_warmup = o
        .top_repeat()
        .and_then(|t| t.bench_at)
        .and_then(|at| Point::of_samples(each.filter_map(|d| o.series.sample_at(d, at)), devices));
    let peak = Point::of_peaks(peaks, devices);
    let memory_increase_gb = peak
        .as_ref()
        .zip(baseline.as_ref())
        .map(|(p, b)| crate::units::gib_signed(p.total_bytes as i64 - b.total_bytes as i64));
    Measurements {
        baseline_includes_engine: baseline.is_some() && o.capture.mode == Mode::Serving,
        baseline,
        post_warmup,
        peak,
        memory_increase_gb,
    }
}

fn dtypes(
    o: &CaptureObservation<'_>,
    configuration: &Configuration,
    model: &ModelInfo,
) -> DtypeMetadata {
    // In force, else asked for; `auto` names no format by itself.
    let get = |key: &str| {
        [&configuration.effective, &configuration.requested]
            .into_iter()
            .filter_map(|settings| settings.get(key))
            .map(|v| v.trim_start_matches("torch.").to_owned())
            .find(|v| v != "auto")
            .filter(|v| v != "None")
    };
    let dtype = get("dtype").or_else(|| {
        // What is stored in 32 bits some engines halve when nothing is asked for.
        let stored = model.checkpoint_dtype.clone();
        stored.filter(|d| checkpoint::element_bytes(d) != Some(4))
    });
    let kv = o
        .probes
        .kv_cache_dtype
        .clone()
        .or_else(|| configuration.effective.get("kv_cache_dtype").cloned())
        .or_else(|| o.torch.as_ref()?.memory.kv_cache.dtype.clone())
        .filter(|v| v != "None");
    DtypeMetadata {
        quantization: get("quantization"),
        kv_cache: match kv.as_deref() {
            // `auto` is the model's type, unless the checkpoint brings its own KV scheme.
            Some("auto") if get("quantization").is_none() => dtype.clone(),
            _ => kv,
        },
        activations: dtype.clone(),
        weights: dtype,
    }
}

fn collect_latency(o: &CaptureObservation<'_>) -> Option<LatencyStats> {
    let kind = load_kind(o.capture)?;
    let repeats: Vec<RepeatResult> = o
        .capture
        .benches()
        .filter_map(|e| {
            let repeat = e.repeat?;
            let text = e.result.as_deref()?;
            // What our own client found does not depend on the engine's being known.
            let (result, notes) = match kind.of_engine() {
                Some(bench) => ((o.engine?.read_bench)(bench, text).ok()?, Vec::new()),
                None => (read_builtin(text).ok()?, read_builtin_notes(text)),
            };
            let peak = o
                .repeats
                .iter()
                .find(|r| r.number == Some(repeat))
                .and_then(observation::Repeat::peak_bytes);
            Some(RepeatResult {
                repeat,
                peak_bytes: peak,
                result,
                notes,
            })
        })
        .collect();
    let w = &o.capture.request.workload;
    LatencyStats::stats_of_repeats(
        kind,
        repeats,
        w.batch_size.map(|b| f64::from(b) * f64::from(w.output_len)),
    )
}
