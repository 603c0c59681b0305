//! From a capture to a profile. No I/O, no clock: the same capture gives the same profile.

use super::configuration::{configuration, engine_metadata};
use super::observation::{Observation, load_kind};
use super::timeline::timeline;
use super::*;
use crate::breakdown::{DevicePeak, explain};
use crate::capture::{Capture, LogLine, MemorySample};
use crate::engine::{read_builtin, read_builtin_notes};

/// Derives the profile of a capture. `samples` and `lines` are those of the same run, in any
/// order that keeps each source's own; they are read once.
pub fn derive(
    capture: &Capture,
    samples: impl IntoIterator<Item = MemorySample>,
    lines: impl IntoIterator<Item = LogLine>,
) -> Profile {
    let mut o = Observation::new(capture, samples, lines);
    let (engine_excerpt, bench_excerpt) = std::mem::take(&mut o.excerpts);
    let configuration = configuration(capture, &o.settings, &o.log, &o.probes);
    let name = capture
        .request
        .model
        .clone()
        .or_else(|| o.probes.model.clone())
        .or_else(|| o.settings.model.clone())
        .or_else(|| o.log.text("model").map(str::to_owned));
    let mut model_info = ModelInfo::read(&capture.model_files, name);
    let mut gpu_info = GpuInfo::of(capture);
    let dtype_metadata = dtypes(&o, &configuration, &model_info);
    let pool = pool::ExactPool::read(&o, &model_info, &dtype_metadata);
    let mut metrics = InternalMetrics::of(&o, &configuration.effective, &pool);
    model_info.dtype = dtype_metadata.weights.clone().or(model_info.dtype);
    torch::fill(&o, &mut metrics, &mut model_info, &mut gpu_info);

    let evidence = witnesses::collect(&o, &model_info, &dtype_metadata, &pool);
    let peaks: Vec<series::Peak> = o.top().map(|t| t.peaks.clone()).unwrap_or_default();
    let device_peaks: Vec<DevicePeak> = peaks
        .iter()
        .map(|p| DevicePeak {
            gpu_id: p.nearest.device,
            bytes: p.bytes,
            source: p.source,
        })
        .collect();
    let mut memory_breakdown = explain(
        &device_peaks,
        &evidence,
        &capture.engine,
        o.top().and_then(|t| t.number),
    );
    if o.overload().is_some() || o.coarsely_timed() || o.swapped().is_some() {
        memory_breakdown.doubt_differences();
    }
    let latency_stats = latency(&o);
    let findings = findings::collect(
        &o,
        &evidence,
        &memory_breakdown,
        &configuration,
        &metrics,
        latency_stats.as_ref(),
    );
    let engine_metadata = engine_metadata(capture, o.engine, &o.log, &o.probes);

    let (engine, omitted_engine) = engine_excerpt.finish();
    let (bench, omitted_bench) = bench_excerpt.finish();
    let mut profile = Profile {
        profiler_version: env!("CARGO_PKG_VERSION").into(),
        schema_version: SCHEMA_VERSION.into(),
        metadata: metadata(capture, engine_metadata.simulated),
        model_info,
        gpu_info,
        parameters: capture.request.clone(),
        dtype_metadata,
        memory_measurements: measurements(&o, &peaks),
        memory_breakdown,
        vllm_internal_metrics: metrics,
        memory_timeline: timeline(&o.series, capture, under_load::under_load(&o)),
        detailed_gpu_metrics: DetailedGpuMetrics::of(capture, &o.series, &peaks),
        latency_stats,
        torch_memory: torch::memory(&o),
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
    if let Ok(document) = serde_json::to_value(&profile) {
        profile.unknown = unknown::reasons(&document, &o);
    }
    profile
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

fn measurements(o: &Observation<'_>, peaks: &[series::Peak]) -> Measurements {
    let devices = &o.capture.devices;
    let each = 0..o.series.device_count();
    let baseline = Point::of_samples(each.clone().filter_map(|d| o.baseline(d)), devices);
    let post_warmup = o
        .top()
        .and_then(|t| t.bench_at)
        .and_then(|at| Point::of_samples(each.filter_map(|d| o.series.at(d, at)), devices));
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

fn dtypes(o: &Observation<'_>, configuration: &Configuration, model: &ModelInfo) -> DtypeMetadata {
    // In force, else asked for; `auto` tells no format by itself.
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

fn latency(o: &Observation<'_>) -> Option<LatencyStats> {
    let kind = load_kind(o.capture)?;
    let repeats: Vec<RepeatResult> = o
        .capture
        .execs
        .iter()
        .filter(|e| e.role == crate::capture::ExecRole::Bench)
        .filter_map(|e| {
            let repeat = e.repeat?;
            let text = e.result.as_deref()?;
            // What our own client found does not depend on the engine's being known.
            let (result, notes) = match kind.of_engine() {
                Some(bench) => (o.engine?.read_bench(bench, text).ok()?, Vec::new()),
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
    LatencyStats::of(
        kind,
        repeats,
        w.batch_size.map(|b| f64::from(b) * f64::from(w.output_len)),
    )
}
