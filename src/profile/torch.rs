//! What a probe in the engine's process saw, in the words of the profile: evidence for the parts of the
//! peak, the section of its own, findings, and why something of it is null.

use super::configuration::{InternalMetrics, ModelInfo};
use super::measurements::GpuInfo;
use super::observation::{CaptureObservation, load_kind};
use super::series::MOST_BYTES;
use super::unknown::{NullReasons, null_reasons};
use super::witnesses::EvidenceCollector;
use crate::breakdown::{Component, EvidenceSource};
use crate::capture::{DeviceFacts, DeviceKind};
use crate::engine::LoadKind;
use crate::engine::facts::{Finding, Severity};
use crate::engine::torch_probe::{LayerProfile, MeasuredBy, TorchDevice, TorchMemory};
use crate::units::{Bytes, gib_signed, to_gib};

/// The section of the profile, with the measured device of each of torch's.
pub fn torch_memory_of(o: &CaptureObservation<'_>) -> Option<TorchMemory> {
    let mut memory = o.torch.as_ref()?.memory.clone();
    let ids: Vec<Option<u32>> = (0..memory.devices.len())
        .map(|i| measured_device(o, &memory, i))
        .collect();
    for (device, id) in memory.devices.iter_mut().zip(ids) {
        device.gpu_id = id;
    }
    Some(memory)
}

/// Fills what only the process itself knows.
pub fn fill_from_probe(
    o: &CaptureObservation<'_>,
    metrics: &mut InternalMetrics,
    model: &mut ModelInfo,
    gpus: &mut GpuInfo,
) {
    let Some(memory) = o.torch.as_ref().map(|t| &t.memory) else {
        return;
    };
    let cache = memory.kv_cache.bytes;
    metrics.kv_cache_used_gb = Some(to_gib(cache)).filter(|_| cache > 0);
    metrics.model_weights_gb = Some(to_gib(memory.weights.bytes));
    metrics.activations_gb = memory.activation_peak_bytes.map(gib_signed);
    model.num_parameters = model.num_parameters.or(memory.model.num_parameters);
    gpus.multi_gpu_overhead_gb = memory.multi_gpu_overhead_bytes.map(gib_signed);
}

/// The index of the measured device that the probe's device is.
fn measured_device(o: &CaptureObservation<'_>, memory: &TorchMemory, place: usize) -> Option<u32> {
    let devices = &o.capture.devices;
    let device = memory.devices.get(place)?;
    if memory.measured_by == MeasuredBy::Rss {
        // The process is in the container's cgroup, and not alone there.
        let mut host = devices.iter().filter(|d| d.kind == DeviceKind::HostCgroup);
        return host.next().map(|d| d.index);
    }
    let gpus: Vec<&DeviceFacts> = devices
        .iter()
        .filter(|d| d.kind == DeviceKind::Gpu)
        .collect();
    let same = |d: &&&DeviceFacts| {
        let is = |id: &Option<String>| {
            let id = id.as_deref().map(plain_id).filter(|t| !t.is_empty());
            id.is_some_and(|t| plain_id(&d.id) == t)
        };
        is(&device.uuid) || is(&device.pci_bus_id)
    };
    if let Some(found) = gpus.iter().find(same) {
        return Some(found.index);
    }
    // A release of torch that names no UUID: in order, where there are as many.
    let unnamed = memory.devices.iter().all(|d| d.uuid.is_none());
    (unnamed && gpus.len() == memory.devices.len())
        .then(|| gpus.get(place).map(|d| d.index))
        .flatten()
}

/// An identity without a driver's prefix and without the zeros that one writes and another does not.
fn plain_id(id: &str) -> String {
    let id = id.trim().to_ascii_lowercase();
    let id = id.strip_prefix("gpu-").unwrap_or(&id);
    id.trim_start_matches('0').to_owned()
}

/// The probe's figures of one measured device.
fn probe_of_device<'a>(
    o: &'a CaptureObservation<'_>,
    device: usize,
) -> Option<(&'a TorchMemory, &'a TorchDevice)> {
    let memory = &o.torch.as_ref()?.memory;
    let place = (0..memory.devices.len())
        .find(|i| measured_device(o, memory, *i) == Some(device as u32))?;
    Some((memory, memory.devices.get(place)?))
}

/// Whether the model is on more than one device: then no device holds the whole checkpoint.
pub fn is_spread(o: &CaptureObservation<'_>) -> bool {
    o.torch.as_ref().is_some_and(|t| {
        let holding = |d: &&TorchDevice| d.weights_bytes > 0;
        t.memory.devices.iter().filter(holding).count() > 1
    })
}

/// Weights that are pages of the checkpoint's files, on a host, bytes; 0 where unknown.
pub fn file_mapped_bytes(o: &CaptureObservation<'_>, device: usize) -> i64 {
    probe_of_device(o, device)
        .filter(|_| o.is_host(device))
        .and_then(|(memory, _)| memory.weights.file_mapped_bytes)
        .and_then(|b| i64::try_from(b).ok())
        .filter(|b| *b <= MOST_BYTES as i64)
        .unwrap_or(0)
}

/// The probe's witnesses for one device.
pub(super) fn add_probe_evidence(w: &mut EvidenceCollector<'_, '_>) {
    let Some((memory, d)) = probe_of_device(w.o, w.device) else {
        return;
    };
    let rss = memory.measured_by == MeasuredBy::Rss;
    let whole = |bytes: u64| i64::try_from(bytes).ok();
    let place = &d.device;
    let (weights, cache) = (whole(d.weights_bytes), whole(d.kv_cache_bytes));
    w.add(
        Component::ModelWeights,
        weights.filter(|b| *b > 0),
        EvidenceSource::TorchProbe,
        format!("torch probe: parameters and buffers on {place}, shared memory counted once"),
    );
    let tokens = match memory.kv_cache.tokens {
        Some(tokens) => format!("{tokens} tokens of {} sequences", memory.load.batch_size),
        None => format!("{} sequences", memory.load.batch_size),
    };
    w.add(
        Component::KvCache,
        cache.filter(|_| memory.kv_cache.bytes > 0),
        EvidenceSource::TorchProbe,
        format!("torch probe: the cache's own tensors on {place}, {tokens}"),
    );
    let (source, quote) = if rss {
        (
            EvidenceSource::TorchProbeRss,
            "torch probe: growth of the process' resident memory in generate, less the KV cache"
                .to_owned(),
        )
    } else {
        (
            EvidenceSource::TorchProbe,
            format!("torch probe: highest allocated on {place}, less loaded and KV cache"),
        )
    };
    w.add(
        Component::Activations,
        d.activation_peak_bytes,
        source,
        quote,
    );
    if rss {
        return;
    }
    let reserved = d.peak_reserved_bytes.and_then(whole);
    let in_tensors = d
        .activation_peak_bytes
        .and_then(|a| a.checked_add(weights?)?.checked_add(cache?));
    w.add(
        Component::WarmupGrowth,
        reserved.zip(in_tensors).map(|(r, t)| r.saturating_sub(t)),
        EvidenceSource::TorchProbe,
        format!("torch probe: reserved by torch's allocator on {place} and in no tensor above"),
    );
    let outside = d.non_torch_bytes.zip(d.non_torch_before_load_bytes);
    w.add(
        Component::NonTorch,
        outside
            .map(|(end, before)| end.saturating_sub(before))
            .filter(|b| *b > 0),
        EvidenceSource::TorchProbe,
        format!("torch probe: growth on {place} outside torch's allocator since before the load"),
    );
}

/// What the probe has to say.
pub fn find_probe_problems(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let Some(memory) = o.torch.as_ref().map(|t| &t.memory) else {
        return;
    };
    let mut report = |code: &str, severity, message: String| {
        findings.push(Finding::new(code, severity, message));
    };
    if memory.measured_by == MeasuredBy::Rss {
        report(
            "torch_by_rss",
            Severity::Info,
            "torch has no account of memory on CPU: activations are the growth of the process' resident memory, which sees less than an allocator does".into(),
        );
    }
    if let Some(mapped) = memory.weights.file_mapped_bytes.filter(|b| *b > 0) {
        let message = format!(
            "{} of the weights are pages of the checkpoint's own files: they are counted as weights and not as page cache, and where another container read the files first they are charged there and not in this peak",
            Bytes(mapped)
        );
        report("weights_mapped_from_files", Severity::Info, message);
    }
    let placed = |i: usize| measured_device(o, memory, i).is_some();
    let stray: Vec<&str> = (0..memory.devices.len())
        .filter(|i| !placed(*i))
        .filter_map(|i| memory.devices.get(i).map(|d| d.device.as_str()))
        .collect();
    if !stray.is_empty() {
        let message = format!(
            "the probe's figures of {} are kept in torch_memory and explain no part of the peak: the memory that was measured is another's",
            stray.join(", ")
        );
        report("torch_device_not_measured", Severity::Warning, message);
    }
    let known = "torch sees no GPU";
    for note in memory.notes.iter().filter(|n| !n.starts_with(known)) {
        report("torch_probe_note", Severity::Info, note.clone());
    }
}

/// Why a value of `torch_memory` is null, or the section is.
pub fn note_null_reasons(
    memory: Option<&TorchMemory>,
    o: &CaptureObservation<'_>,
    out: &mut NullReasons,
) {
    let Some(memory) = memory else {
        return out.note_if_null(true, "torch_memory".into(), || no_probe(o));
    };
    let rss = memory.measured_by == MeasuredBy::Rss;
    let silent = if rss {
        "torch does not count memory on the CPU"
    } else {
        "not reported by this release of torch"
    };
    let no_growth = if rss {
        "resident memory did not grow by more than the KV cache: memory that was free in the process already was used again"
    } else {
        silent
    };
    let no_configuration = "the model's configuration does not say";
    let no_type = memory.model.kind.is_none();
    out.note_if_null(no_type, "torch_memory.model.type".into(), || {
        no_configuration.into()
    });
    null_reasons!(out, "torch_memory", memory;
        activation_peak_bytes, prefill_activation_peak_bytes => no_growth;
        multi_gpu_overhead_bytes, model.devices => "the model is on one device";
        kv_cache.bytes_per_token => "the cache does not grow with the tokens, or one token was generated";
        kv_cache.tokens => "the cache does not say how many tokens it holds";
        kv_cache.class, kv_cache.dtype => "no cache was found";
        versions.accelerate => "accelerate is not installed";
        versions.cuda, versions.hip => "torch uses none here";
        model.quantization => "the model is not quantized";
        model.class, model.dtype, model.num_layers, model.num_parameters => no_configuration;
        weights.file_mapped_bytes => "the kernel does not show the process' maps";
        rss.start_bytes, rss.imported_bytes, rss.loaded_bytes, rss.loaded_anon_bytes, rss.loaded_file_bytes,
        rss.before_bytes, rss.peak_bytes, rss.peak_by => "not reported by the kernel";
        versions.python, versions.torch, versions.transformers, weights.allocator_bytes,
        weights.allocator_difference_bytes, latency.prefill_ms => silent;
    );
    for device in &memory.devices {
        null_reasons!(out, "torch_memory.devices[]", device;
            gpu_id => "its memory was not measured";
            activation_peak_bytes, prefill_activation_peak_bytes => no_growth;
            other_processes => if rss { silent } else { "a container is not shown the processes on a GPU" };
            name, uuid, pci_bus_id, total_bytes, loaded_bytes, allocator_difference_bytes, peak_bytes,
            peak_reserved_bytes, reserved_minus_allocated_bytes, used_bytes, non_torch_bytes,
            non_torch_before_load_bytes => silent;
        );
    }
    for iteration in &memory.iterations {
        null_reasons!(out, "torch_memory.iterations[]", iteration;
            peak_bytes => silent;
            activation_peak_bytes => no_growth;
        );
    }
}

/// Why a value of `layer_profile` is null, or the section is.
pub fn layer_reasons(
    profile: Option<&LayerProfile>,
    o: &CaptureObservation<'_>,
    out: &mut NullReasons,
) {
    let Some(profile) = profile else {
        return out.note_if_null(true, "layer_profile".into(), || match o.torch {
            None => no_probe(o),
            Some(_) => "not asked for: --per-layer".into(),
        });
    };
    for (at, operators) in [
        (
            "layer_profile.operators_by_memory[]",
            &profile.operators_by_memory,
        ),
        (
            "layer_profile.operators_by_time[]",
            &profile.operators_by_time,
        ),
    ] {
        for operator in operators {
            null_reasons!(out, at, operator;
                self_memory_bytes, self_cpu_ms => "not reported by torch.profiler";
                self_device_ms => "no GPU was used";
            );
        }
    }
    for layer in &profile.layers {
        null_reasons!(out, "layer_profile.layers[]", layer;
            device => "the module has no weights";
            output_bytes, inner_bytes => "the module was not called, or returned no tensor";
            peak_bytes => "on CPU the peak of one module is not reported";
        );
    }
}

/// Why there is no result of a probe.
fn no_probe(o: &CaptureObservation<'_>) -> String {
    if load_kind(o.capture) != Some(LoadKind::Probe) {
        return "no probe ran in the engine's process: --engine transformers has one".into();
    }
    o.capture
        .end
        .unmeasured()
        .unwrap_or_else(|| "the probe left no result that could be read".into())
}
