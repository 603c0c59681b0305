//! What a probe in the engine's process saw becomes evidence for the parts of the peak, and a section of the profile.

use crate::common::captures;
use crate::common::pages::profile_page;
use captures::*;
use plimsoll::breakdown::{Component, EvidenceSource};
use plimsoll::capture::*;
use plimsoll::engine::{BenchKind, EngineId, LoadKind};
use plimsoll::profile::Profile;
use plimsoll::report::page::TextOptions;

const CPU: &str = include_str!("fixtures/transformers/cpu-bfloat16.json");
const CPU_LOG: &str = include_str!("fixtures/transformers/cpu-bfloat16.log");
const PER_LAYER: &str = include_str!("fixtures/transformers/cpu-per-layer.json");
const GPUS: &str = include_str!("fixtures/transformers/written-two-gpus.json");

/// An idle container in which the probe ran from 2 s to 10 s.
fn probed(devices: Vec<DeviceFacts>, levels: &[u64], file: u64, result: &str) -> Built {
    let host = devices[0].kind == DeviceKind::HostCgroup;
    let mut samples = Vec::new();
    for tick in 0..=110i64 {
        let at_ms = tick * 100;
        let seen = (2_000..=10_000).contains(&at_ms);
        for (device, level) in levels.iter().enumerate() {
            let used = if seen { *level } else { 100 * MIB };
            samples.push(MemorySample {
                at_ns: at_ms * MS,
                device: device as u32,
                used_bytes: used,
                host: host.then(|| HostSplit {
                    anon_bytes: Some(used - file),
                    file_bytes: Some(file),
                    ..Default::default()
                }),
                ..Default::default()
            });
        }
    }
    let mark = |ms: i64, phase, repeat| PhaseMark {
        at_ns: ms * MS,
        phase,
        repeat,
    };
    let mut capture = Capture {
        capture_version: CAPTURE_VERSION,
        engine: "transformers".into(),
        mode: Mode::Idle,
        ended_at_ns: 11_000 * MS,
        devices,
        marks: vec![
            mark(0, Phase::Baseline, None),
            mark(6_000, Phase::Warmup, Some(1)),
            mark(7_000, Phase::Bench, Some(1)),
            mark(10_000, Phase::Cooldown, None),
        ],
        execs: vec![ExecOutcome {
            role: ExecRole::Bench,
            repeat: Some(1),
            started_at_ns: 2_000 * MS,
            ended_at_ns: 9_900 * MS,
            end: ExecEnd::Exited(0),
            result: Some(result.into()),
            ..Default::default()
        }],
        ..Default::default()
    };
    capture.request.bench = "probe".into();
    capture.sampling.ticks = samples.len() as u64;
    capture.sampling.interval_ns = 100_000_000;
    let mut at_ms = 2_000;
    let lines = CPU_LOG
        .lines()
        .map(|text| {
            at_ms += 700;
            LogLine {
                at_ns: at_ms * MS,
                source: LineSource::Exec(0),
                text: text.into(),
                ..Default::default()
            }
        })
        .collect();
    Built {
        capture,
        samples,
        lines,
    }
}

fn host() -> Vec<DeviceFacts> {
    vec![DeviceFacts {
        kind: DeviceKind::HostCgroup,
        total_bytes: Some(4 * GIB),
        ..Default::default()
    }]
}

/// Two GPUs; the driver lists them in another order than torch.
fn gpus() -> Vec<DeviceFacts> {
    let uuids = [
        "GPU-bbbbbbbb-0000-0000-0000-000000000002",
        "GPU-aaaaaaaa-0000-0000-0000-000000000001",
    ];
    let facts = uuids.iter().enumerate().map(|(i, id)| DeviceFacts {
        index: i as u32,
        kind: DeviceKind::Gpu,
        id: (*id).into(),
        total_bytes: Some(80 * GIB),
        ..Default::default()
    });
    facts.collect()
}

#[track_caller]
fn part(profile: &Profile, device: usize, component: Component) -> i64 {
    let parts = &profile.memory_breakdown.per_gpu[device].parts;
    let part = parts.iter().find(|p| p.component == component);
    part.map(|p| p.bytes)
        .unwrap_or_else(|| panic!("no {component:?}: {parts:#?}"))
}

#[track_caller]
fn sums(profile: &Profile) {
    for device in &profile.memory_breakdown.per_gpu {
        let sum: i64 = device.parts.iter().map(|p| p.bytes).sum();
        assert_eq!(sum, device.peak_bytes as i64);
    }
}

fn told(profile: &Profile, code: &str) -> bool {
    profile.findings.iter().any(|f| f.code == code)
}

#[test]
fn on_cpu_the_tensors_are_counted_and_the_activations_are_by_rss() {
    let file = 50 * MIB;
    let profile = probed(host(), &[GIB], file, CPU).derive();
    sums(&profile);
    assert_eq!(part(&profile, 0, Component::ModelWeights), 16_257_792);
    assert_eq!(
        part(&profile, 0, Component::KvCache),
        4 * 2 * 2 * 64 * 79 * 4 * 2
    );
    // The weights are mapped from the checkpoint: they are not page cache once more.
    let mapped = 16_257_536;
    assert_eq!(
        part(&profile, 0, Component::PageCache),
        file as i64 - mapped
    );
    assert!(told(&profile, "weights_mapped_from_files") && told(&profile, "torch_by_rss"));
    let levels = &profile.memory_breakdown.confidence_levels;
    assert_eq!(levels.weights.0, "high_from_torch_probe");
    assert_eq!(levels.activations.0, "medium_from_torch_probe_rss");
    assert_eq!(levels.overall.0, "medium_from_torch_probe_rss");
    let memory = profile.torch_memory.as_ref().expect("the section");
    assert_eq!(memory.devices[0].gpu_id, Some(0));
    assert_eq!(
        profile.engine_metadata.engine_version.as_deref(),
        Some("5.19.0")
    );
    assert_eq!(profile.dtype_metadata.weights.as_deref(), Some("bfloat16"));
    assert_eq!(profile.dtype_metadata.kv_cache.as_deref(), Some("bfloat16"));
    assert_eq!(profile.model_info.num_parameters, Some(8_128_768));
    assert_eq!(profile.gpu_info.multi_gpu_overhead_gb, None);
    assert!(profile.layer_profile.is_none());
    assert!(profile.unknown["layer_profile"].contains("--per-layer"));
    let latency = profile.latency_stats.expect("latency");
    assert_eq!(latency.bench, LoadKind::Probe);
    assert_eq!(latency.repeats[0].result.latencies_ms.len(), 3);
    assert_eq!(
        latency.repeats[0].result.total_output_tokens,
        Some(3 * 4 * 16)
    );
}

#[test]
fn each_gpu_has_its_own_figures_by_uuid() {
    // torch's cuda:0 is the driver's second: 8 GiB of weights and all that stands with them.
    let held = |gib: u64, activations: u64, unused: u64, outside: u64| {
        gib * GIB + (1 + 512 + activations + unused + outside) * MIB
    };
    let levels = [held(7, 900, 60, 560), held(8, 700, 100, 600)];
    let built = probed(gpus(), &levels, 0, GPUS);
    let profile = built.derive();
    sums(&profile);
    for (device, weights, activations, unused) in [(0, 7, 900, 61), (1, 8, 700, 101)] {
        let mib = |component| part(&profile, device, component) / MIB as i64;
        assert_eq!(mib(Component::ModelWeights), weights * 1024);
        assert_eq!(mib(Component::KvCache), 512);
        assert_eq!(mib(Component::Activations), activations);
        assert_eq!(mib(Component::WarmupGrowth), unused);
    }
    assert_eq!(part(&profile, 0, Component::NonTorch), 60 * MIB as i64);
    assert_eq!(part(&profile, 1, Component::NonTorch), 100 * MIB as i64);
    let used = |source| {
        profile
            .evidence
            .iter()
            .any(|e| e.used && e.source == source)
    };
    assert!(used(EvidenceSource::TorchProbe) && !used(EvidenceSource::TorchProbeRss));
    assert!(!told(&profile, "ranks_not_mapped") && !told(&profile, "torch_by_rss"));
    let overhead = profile.gpu_info.multi_gpu_overhead_gb.expect("overhead");
    assert_eq!(overhead, (700 + 60 + 560) as f64 / 1024.0);
    assert_eq!(
        profile.torch_memory.expect("section").devices[0].gpu_id,
        Some(1)
    );

    // Figures of a GPU explain nothing of a container's host memory.
    let elsewhere = probed(host(), &[GIB], 0, GPUS).derive();
    assert!(told(&elsewhere, "torch_device_not_measured"));
    assert!(
        elsewhere
            .evidence
            .iter()
            .all(|e| e.source != EvidenceSource::TorchProbe)
    );
    sums(&elsewhere);
}

#[test]
fn what_follows_the_load_is_not_in_its_peak() {
    let mut built = probed(host(), &[GIB], 0, PER_LAYER);
    for sample in built.samples.iter_mut().filter(|s| s.at_ns > 9_000 * MS) {
        sample.used_bytes = 3 * GIB;
    }
    assert_eq!(
        built.derive().memory_breakdown.total_measured_bytes,
        Some(3 * GIB)
    );
    built.capture.marks.push(PhaseMark {
        at_ns: 8_900 * MS,
        phase: Phase::Cooldown,
        repeat: Some(1),
    });
    assert_eq!(
        built.derive().memory_breakdown.total_measured_bytes,
        Some(GIB)
    );
}

#[test]
fn operators_and_layers_are_told() {
    let profile = probed(host(), &[GIB], 0, PER_LAYER).derive();
    let layers = profile.layer_profile.as_ref().expect("layers");
    let names: Vec<&str> = layers.layers.iter().map(|l| l.name.as_str()).collect();
    assert!(
        names.contains(&"model.layers.3") && names.contains(&"lm_head"),
        "{names:?}"
    );
    // Nothing is counted twice and nothing left out.
    let parameters: u64 = layers.layers.iter().map(|l| l.parameter_bytes).sum();
    let weights = &profile.torch_memory.as_ref().expect("memory").weights;
    assert_eq!(parameters, weights.bytes);
    let memory = layers
        .operators_by_memory
        .iter()
        .map(|o| o.self_memory_bytes);
    assert!(memory.clone().is_sorted_by(|a, b| a >= b) && memory.count() > 5);
    let page = profile_page(&profile, TextOptions::default());
    for text in [
        "Inside the process",
        "aten::",
        "model.layers.0",
        "in layer_profile",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // Every null has a reason that speaks of it.
    for path in [
        "layer_profile.layers[].peak_bytes",
        "torch_memory.model.quantization",
    ] {
        assert!(profile.unknown.contains_key(path), "{:#?}", profile.unknown);
    }
}

/// Puts a figure wherever a result has one.
fn everywhere(value: &mut serde_json::Value, figure: &serde_json::Value) {
    match value {
        serde_json::Value::Number(_) => *value = figure.clone(),
        serde_json::Value::Array(items) => items.iter_mut().for_each(|v| everywhere(v, figure)),
        serde_json::Value::Object(fields) => {
            let below = fields.iter_mut().filter(|(key, _)| *key != "schema");
            below.for_each(|(_, v)| everywhere(v, figure));
        }
        _ => {}
    }
}

#[test]
fn figures_that_cannot_be_are_survived() {
    for text in [CPU, PER_LAYER, GPUS] {
        for figure in [
            serde_json::json!(0),
            serde_json::json!(u64::MAX),
            serde_json::json!(i64::MAX),
            serde_json::json!(i64::MIN),
            serde_json::json!(1u64 << 50),
            serde_json::json!(0.5),
            serde_json::json!(null),
        ] {
            let mut result: serde_json::Value = serde_json::from_str(text).expect("a fixture");
            everywhere(&mut result, &figure);
            for devices in [host(), gpus()] {
                let levels = vec![GIB; devices.len()];
                let profile = probed(devices, &levels, 0, &result.to_string()).derive();
                sums(&profile);
                profile_page(&profile, TextOptions::default());
            }
        }
    }
}

#[test]
fn a_result_that_is_none_is_none() {
    let engine = EngineId::Transformers;
    let failed = include_str!("fixtures/transformers/no-such-model.json");
    for text in ["", "{}", "[1]", failed, r#"{"schema": 2}"#, &CPU[..400]] {
        assert!(
            (engine.read_memory)(BenchKind::Probe, text).is_none(),
            "{text}"
        );
        assert!(
            (engine.read_bench)(BenchKind::Probe, text).is_err(),
            "{text}"
        );
    }
    let profile = probed(host(), &[GIB], 0, failed).derive();
    assert!(profile.torch_memory.is_none());
    assert!(profile.unknown["torch_memory"].contains("no result that could be read"));
    sums(&profile);
}
