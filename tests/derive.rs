//! From capture to profile: the parts against a known truth, and what every profile must keep.

use crate::common::captures;
use captures::*;
use plimsoll::breakdown::{Component, Evidence, EvidenceSource};
use plimsoll::capture::*;
use plimsoll::engine::facts::Severity;
use plimsoll::profile::series::PeakSource;
use plimsoll::profile::{Breakdown, Profile, Shape};

fn everything() -> Vec<(&'static str, Built)> {
    let mut interrupted = idle_reference();
    interrupted.capture.end = RunEnd::Interrupted;
    interrupted.capture.marks.truncate(2);
    interrupted.capture.execs[0].result = None;
    interrupted.capture.execs[0].end = ExecEnd::Cancelled;
    let nothing = Built {
        capture: Capture {
            sampling: SamplingFacts {
                last_error: Some("memory.current: no such file".into()),
                failed_readings: 3,
                ..Default::default()
            },
            ..Default::default()
        },
        ..Default::default()
    };
    vec![
        ("never_began", never_began(serving_host())),
        ("watched_gpus", watched(two_gpus())),
        ("idle_reference", idle_reference()),
        ("serving_host", serving_host()),
        ("two_gpus", two_gpus()),
        ("interrupted", interrupted),
        ("watched", watched(serving_host())),
        ("nothing", nothing),
    ]
}

/// Without a load: the user asked for none.
fn watched(mut built: Built) -> Built {
    built.capture.execs.clear();
    built.capture.request.bench = "none".into();
    built.capture.marks.retain(|m| m.phase != Phase::Warmup);
    built
}

/// Interrupted while the baseline was taken.
fn never_began(mut built: Built) -> Built {
    built.capture.execs.clear();
    built.capture.gauges.clear();
    built.capture.marks = vec![
        mark(0, Phase::Baseline, None),
        mark(1_500, Phase::Cooldown, None),
    ];
    built.capture.end = RunEnd::Interrupted;
    built.capture.ended_at_ns = 1_500 * MS;
    built.samples.retain(|s| s.at_ns <= 1_500 * MS);
    built
}

fn bytes(breakdown: &Breakdown, component: Component) -> i64 {
    breakdown
        .components
        .iter()
        .find(|p| p.component == component)
        .map(|p| p.bytes)
        .unwrap_or_else(|| panic!("no {component:?} in {:#?}", breakdown.components))
}

fn near(what: &str, got: i64, truth: u64, tolerance: u64) {
    assert!(
        got.abs_diff(truth as i64) <= tolerance,
        "{what}: got {:.2} MiB, truth is {:.2} MiB",
        got as f64 / MIB as f64,
        truth as f64 / MIB as f64
    );
}

fn codes(profile: &Profile) -> Vec<&str> {
    profile.findings.iter().map(|f| f.code.as_str()).collect()
}

#[test]
fn parts_sum_to_the_peak_of_every_capture() {
    for (name, built) in everything() {
        let b = built.derive().memory_breakdown;
        let sum: i64 = b.components.iter().map(|p| p.bytes).sum();
        assert_eq!(sum, b.total_measured_bytes.unwrap_or(0) as i64, "{name}");
        for device in &b.per_gpu {
            let sum: i64 = device.parts.iter().map(|p| p.bytes).sum();
            assert_eq!(
                sum, device.peak_bytes as i64,
                "{name} device {}",
                device.gpu_id
            );
        }
    }
}

#[test]
fn the_same_capture_gives_the_same_bytes_also_through_a_file() {
    for (name, built) in everything() {
        let json = |b: &Built| serde_json::to_string_pretty(&b.derive()).unwrap();
        let first = json(&built);
        assert!(first == json(&built), "{name} differs when derived twice");
        assert!(
            first == json(&built.through_json()),
            "{name} differs through a file"
        );
        let read: Profile = serde_json::from_str(&first).unwrap();
        assert!(
            serde_json::to_string_pretty(&read).unwrap() == first,
            "{name} as a document"
        );
    }
}

#[test]
fn every_null_has_a_reason_and_every_reason_a_null() {
    for (name, built) in everything() {
        let profile = built.derive();
        let document = serde_json::to_value(&profile).unwrap();
        let mut nulls = std::collections::BTreeSet::new();
        nulls_of(&document, String::new(), &mut nulls);
        let reasons: std::collections::BTreeSet<String> = profile.unknown.keys().cloned().collect();
        assert_eq!(nulls, reasons, "{name}");
        for (path, reason) in &profile.unknown {
            assert!(reason.len() > 8, "{name}: {path}: {reason}");
            assert!(!reason.ends_with('.'), "{name}: {path}: {reason}");
        }
    }
}

fn nulls_of(value: &serde_json::Value, path: String, out: &mut std::collections::BTreeSet<String>) {
    use serde_json::Value;
    match value {
        Value::Null => {
            out.insert(path);
        }
        Value::Array(items) => items
            .iter()
            .for_each(|v| nulls_of(v, format!("{path}[]"), out)),
        Value::Object(fields) => fields.iter().for_each(|(k, v)| {
            let path = if path.is_empty() {
                k.clone()
            } else {
                format!("{path}.{k}")
            };
            nulls_of(v, path, out)
        }),
        _ => {}
    }
}

#[test]
fn an_idle_run_is_taken_apart_as_it_was_put_together() {
    let profile = idle_reference().derive();
    let b = &profile.memory_breakdown;
    let t = &IDLE;
    let all = t.baseline + t.runtime + t.weights + t.kv_pool + t.activations + t.spike;
    near("peak", b.total_measured_bytes.unwrap() as i64, all, 0);
    assert_eq!(b.per_gpu[0].peak_source, PeakSource::KernelPeak);
    let few = MIB;
    near("baseline", bytes(b, Component::Baseline), t.baseline, few);
    near("runtime", bytes(b, Component::Runtime), t.runtime, few);
    near("weights", bytes(b, Component::ModelWeights), t.weights, few);
    near("kv", bytes(b, Component::KvCache), t.kv_pool, few);
    near(
        "activations",
        bytes(b, Component::Activations),
        t.activations + t.spike,
        few,
    );
    near("unexplained", bytes(b, Component::Unexplained), 0, few);
    assert_eq!(b.confidence_levels.weights.0, "medium_measured_delta");
    let load = profile.memory_timeline.under_load.as_ref().unwrap();
    assert_eq!(load.shape, Some(Shape::Spiky));
    let low = (t.baseline + t.runtime + t.weights + t.kv_pool) as f64 / GIB as f64;
    assert!(
        (load.min_gb - low).abs() < 1e-6,
        "the engine's end is not the load's: {load:?}"
    );
    assert!(profile.metadata.simulated);
    assert!(codes(&profile).contains(&"simulated_engine"));
    assert_eq!(
        profile.engine_metadata.engine_version.as_deref(),
        Some("0.1.0")
    );
    let latency = profile.latency_stats.unwrap();
    assert_eq!(latency.mean_latency_ms, Some(200.0));
    assert_eq!(latency.tokens_per_second, Some(8.0 * 128.0 / 0.2));
}

/// As Podman's API before 5.8 tells them.
#[test]
fn a_log_whose_times_are_coarse_is_told_where_a_start_is_measured_by_it() {
    let mut built = idle_reference();
    built.capture.log.whole_seconds = true;
    let told = |built: &Built| {
        let profile = built.derive();
        let doubted = serde_json::to_string(&profile.memory_breakdown).expect("JSON");
        (
            codes(&profile).contains(&"log_times_coarse"),
            doubted.contains("low_measured_delta"),
        )
    };
    // An idle container's engine is a bench, whose lines come by another way.
    assert_eq!(told(&built), (false, false));
    built.capture.mode = Mode::Started;
    assert_eq!(told(&built), (true, true));
    built.capture.log.whole_seconds = false;
    assert_eq!(told(&built), (false, false));
}

#[test]
fn a_host_that_everybody_waits_for_is_named() {
    let mut built = idle_reference();
    let told = |built: &Built| {
        let profile = built.derive();
        let found = profile
            .findings
            .iter()
            .find(|f| f.code == "host_overloaded");
        found.map(|f| f.message.clone())
    };
    built.capture.host.cpus = 2;
    built.capture.host_load = Some(7.9);
    assert_eq!(told(&built), None);
    let calm = serde_json::to_string(&built.derive().memory_breakdown).expect("JSON");
    let calm = calm.matches("medium_measured_delta").count();
    assert!(
        calm > 6,
        "weights, KV cache, activations, overall, and parts"
    );
    built.capture.host_load = Some(43.2);
    let message = told(&built).expect("a finding");
    assert!(
        message.contains("43 threads wanted its 2 processors"),
        "{message}"
    );
    // What was measured by the times of its lines is no surer than low then, in every place that tells how sure.
    let doubted = serde_json::to_string(&built.derive().memory_breakdown).expect("JSON");
    assert!(!doubted.contains("medium_measured_delta"), "{doubted}");
    assert_eq!(
        doubted.matches("low_measured_delta").count(),
        calm,
        "{doubted}"
    );
    // Few threads, and yet nothing ran for a while.
    built.capture.host_load = Some(2.0);
    (built.samples).retain(|s| !(2_450 * MS..2_900 * MS).contains(&s.at_ns));
    let message = told(&built).expect("a finding");
    assert!(
        message.contains("a reading of memory came 0.4 s late"),
        "{message}"
    );
}

/// Where sampling began while the pool was filled, its growth is unknown, and not a part of it.
#[test]
fn a_growth_whose_beginning_no_sample_saw_is_no_witness() {
    let grown = |profile: &Profile| -> Vec<i64> {
        let of_pool = profile
            .evidence
            .iter()
            .filter(|e| e.component == Component::KvCache);
        of_pool
            .filter(|e| e.source == EvidenceSource::MeasuredDelta)
            .map(|e| e.bytes)
            .collect()
    };
    let mut built = idle_reference();
    assert_eq!(grown(&built.derive()).len(), 1);
    // The pool is filled from 3,550 to 3,850 ms.
    built.samples.retain(|s| s.at_ns >= 3_700 * MS);
    let profile = built.derive();
    assert_eq!(grown(&profile), [0_i64; 0]);
    assert!(profile.memory_breakdown.kv_cache_gb.is_none());
}

#[test]
fn a_bench_beside_an_engine_that_serves_is_told() {
    let mut built = idle_reference();
    let told = |built: &Built| codes(&built.derive()).contains(&"second_engine");
    assert!(!told(&built));
    let serves = ["reference-engine", "serve", "--model", "toy"];
    built.capture.container.argv = serves.map(str::to_owned).to_vec();
    assert!(told(&built));
}

/// Gauges read only before and after a load say nothing of it.
#[test]
fn a_load_that_no_reading_of_the_gauges_saw_leaves_their_peak_unknown() {
    let why = |late_ns: i64, end: RunEnd| {
        let mut built = serving_host();
        if end != RunEnd::Completed {
            built.capture.marks.retain(|m| m.phase != Phase::Bench);
            built.capture.end = end;
        }
        for gauge in &mut built.capture.gauges {
            gauge.at_ns += late_ns;
            gauge.kv_cache_usage = Some(0.0);
            gauge.requests_running = Some(0);
            gauge.requests_waiting = Some(0);
        }
        let mut profile = built.derive();
        assert_eq!(profile.vllm_internal_metrics.kv_cache_usage_peak, None);
        let path = "vllm_internal_metrics.kv_cache_usage_peak";
        profile.unknown.remove(path).unwrap()
    };
    let missed = why(6_000 * MS, RunEnd::Completed);
    assert!(missed.contains("a longer one"), "{missed}");
    let stopped = why(0, RunEnd::Interrupted);
    assert_eq!(stopped, "the run was interrupted before it was measured");
    let between = why(0, RunEnd::Completed);
    assert!(between.contains("no request was in flight"), "{between}");
}

/// A daemon that answers seconds late hands a whole start-up over at once: what took which part is
/// not known then, and none of them is 0.
#[test]
fn lines_that_come_together_measure_no_part() {
    let mut built = idle_reference();
    let phase = |line: &plimsoll::capture::LogLine, of: &str| line.text.contains(of);
    let late = (built.lines.iter())
        .find(|l| phase(l, "phase=ready"))
        .map(|l| l.at_ns)
        .unwrap();
    for line in built.lines.iter_mut().filter(|l| l.at_ns < late) {
        line.at_ns = late;
    }
    let profile = built.derive();
    let b = &profile.memory_breakdown;
    assert_eq!((b.model_weights_gb, b.kv_cache_gb), (None, None));
    let measured = |c| {
        (profile.evidence.iter())
            .any(|e| e.component == c && e.source == EvidenceSource::MeasuredDelta)
    };
    assert!(!measured(Component::Runtime));
    let why = &profile.unknown["memory_breakdown.model_weights_gb"];
    assert!(why.contains("no sample lies between"), "{why}");
}

/// A busy machine hands lines over when what they announce has long begun, and where it stands still our own readings
/// are as late.
#[test]
fn a_line_that_comes_late_moves_no_bytes_between_the_parts() {
    let measure = |late: i64, missed: std::ops::Range<i64>| {
        let mut built = idle_reference();
        for line in &mut built.lines {
            if line.text.ends_with("phase=loading_weights") {
                line.at_ns += late;
            }
        }
        (built.samples).retain(|s| !missed.contains(&s.at_ns));
        let b = built.derive().memory_breakdown;
        near("runtime", bytes(&b, Component::Runtime), IDLE.runtime, MIB);
        near(
            "weights",
            bytes(&b, Component::ModelWeights),
            IDLE.weights,
            MIB,
        );
    };
    measure(220 * MS, 0..0);
    measure(420 * MS, 2450 * MS..2800 * MS);
}

#[test]
fn a_serving_engine_our_client_and_the_page_cache_are_told_apart() {
    let profile = serving_host().derive();
    let b = &profile.memory_breakdown;
    let t = &SERVING;
    let all = t.engine + t.warmup_growth + t.activations + t.page_cache + t.client;
    near("peak", b.total_measured_bytes.unwrap() as i64, all, 0);
    near("client", bytes(b, Component::BenchClient), t.client, MIB);
    near(
        "page cache",
        bytes(b, Component::PageCache),
        t.page_cache,
        MIB,
    );
    near(
        "activations",
        bytes(b, Component::Activations),
        t.activations,
        MIB,
    );
    near(
        "growth",
        bytes(b, Component::WarmupGrowth),
        t.warmup_growth,
        MIB,
    );
    near(
        "unexplained",
        bytes(b, Component::Unexplained),
        t.engine,
        MIB,
    );
    assert_eq!(b.model_weights_gb, None, "nobody told, nobody saw it load");
    assert_eq!(
        b.baseline_gb,
        Some(0.0),
        "a cgroup holds its container only"
    );
    assert!(codes(&profile).contains(&"preemption_seen"));
    let latency = profile.latency_stats.unwrap();
    assert_eq!(latency.repeats[0].result.completed, Some(40));
}

/// Two GPUs, and the other tenant of the first takes 5 GiB more while the load runs.
fn grown_neighbour(told: bool) -> Built {
    let mut built = two_gpus();
    for s in built.samples.iter_mut().filter(|s| s.device == 0) {
        let more = if s.at_ns >= 20_000 * MS { 5 * GIB } else { 0 };
        s.used_bytes += more;
        for p in s.processes.iter_mut().flatten() {
            if p.ours == Some(false) {
                p.used_bytes = p.used_bytes.map(|b| b + more).filter(|_| told);
            }
        }
    }
    built
}

#[test]
fn what_a_neighbour_takes_under_load_is_not_the_engines() {
    let profile = grown_neighbour(true).derive();
    let (b, t) = (&profile.memory_breakdown, &GPU);
    let activations = bytes(b, Component::Activations);
    near("activations", activations, 2 * t.activations, 16 * MIB);
    let tenant = bytes(b, Component::Baseline);
    near("tenant", tenant, t.tenant + 5 * GIB, MIB);
    near("unexplained", bytes(b, Component::Unexplained), 0, 32 * MIB);
    let told = profile
        .findings
        .iter()
        .find(|f| f.code == "neighbours_grew");
    let message = &told.expect("told").message;
    assert!(message.contains("grew by 5.00 GiB"), "{message}");
    assert!(!codes(&two_gpus().derive()).contains(&"neighbours_grew"));
}

#[test]
fn a_neighbour_whose_memory_is_not_told_makes_activations_unsure() {
    let profile = grown_neighbour(false).derive();
    assert!(codes(&profile).contains(&"neighbours_untold"));
    let levels = &profile.memory_breakdown.confidence_levels;
    assert_eq!(levels.activations.0, "low_estimated");
    let sure = two_gpus().derive().memory_breakdown.confidence_levels;
    assert_eq!(sure.activations.0, "medium_measured_delta");
}

#[test]
fn a_peak_that_nobody_saw_is_unknown_and_not_nothing() {
    let mut built = serving_host();
    built.samples.clear();
    let profile = built.derive();
    assert!(codes(&profile).contains(&"no_samples"));
    let latency = profile.latency_stats.unwrap();
    assert_eq!(latency.peak_bytes_spread, None);
    assert_eq!(latency.repeats[0].peak_bytes, None);
    for path in [
        "latency_stats.peak_bytes_spread",
        "latency_stats.repeats[].peak_bytes",
    ] {
        assert_eq!(profile.unknown[path], "no sample covers it");
    }
}

/// A run whose memory was played back.
fn played_back(mut built: Built, cgroup: &str) -> Profile {
    built.capture.devices[0].id = cgroup.into();
    built.capture.backend = BackendFacts {
        name: "replay".into(),
        version: Some("host cgroup v2".into()),
        simulated: false,
        reason: "the session recorded in `old.jsonl` is played back; there a reason".into(),
    };
    built.derive()
}

#[test]
fn a_recording_that_is_not_this_runs_is_told() {
    let ours = format!("/docker/{}", serving_host().capture.container.id);
    let whole = played_back(serving_host(), &ours);
    assert!(codes(&whole).contains(&"memory_replayed"));
    let errors = |p: &Profile| {
        let errors = p.findings.iter().filter(|f| f.severity == Severity::Error);
        errors
            .map(|f| (f.code.clone(), f.message.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(errors(&whole), []);
    let mut short = serving_host();
    short.samples.retain(|s| s.at_ns < 4_690 * MS);
    short.capture.sampling.longest_gap_ns = 5_400_000_000;
    let short = played_back(short, &ours);
    let told = errors(&short);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, "replay_ended_early");
    assert!(
        told[0].1.contains("`old.jsonl` ended 4.1 s before"),
        "{told:?}"
    );
    assert!(!codes(&short).contains(&"sampler_gap"), "told once");
    let other = played_back(serving_host(), &format!("/docker/{}", "ab".repeat(32)));
    let told = errors(&other);
    assert_eq!(told[0].0, "replay_of_another");
    assert!(told[0].1.contains("abababababab"), "{told:?}");
}

#[test]
fn a_pause_spoils_no_peak_that_the_kernel_kept() {
    let gap = |mut built: Built| {
        built.capture.sampling.longest_gap_ns = 2_100_000_000;
        let findings = built.derive().findings;
        let gap = findings.into_iter().find(|f| f.code == "sampler_gap");
        gap.map(|f| (f.severity, f.message))
    };
    let (severity, exact) = gap(idle_reference()).unwrap();
    assert_eq!(severity, Severity::Info);
    assert!(!exact.contains("missed"), "{exact}");
    let (severity, missed) = gap(two_gpus()).unwrap();
    assert_eq!(severity, Severity::Warning);
    assert!(missed.contains("may have been missed"), "{missed}");
    // What follows a container's end is no pause.
    let mut died = two_gpus();
    died.capture.end = RunEnd::ContainerLost("it ended".into());
    assert_eq!(gap(died), None);
}

#[test]
fn a_higher_level_of_our_own_closer_look_is_told_as_such() {
    let why = |per_layer: bool| {
        let mut built = idle_reference();
        built.capture.request.workload.per_layer = per_layer;
        built.capture.marks[3] = mark(8_000, Phase::Cooldown, Some(1));
        let anon = Track::from(100 * MIB)
            .step(4_000, 900 * MIB)
            .step(9_000, 2_000 * MIB);
        built.samples = cgroup(12_000, 100, &anon, &Track::from(0), None);
        let findings = built.derive().findings;
        let found = findings
            .into_iter()
            .find(|f| f.code == "higher_peak_outside_load");
        found.expect("told").message
    };
    let closer = why(true);
    assert!(closer.contains("--per-layer"), "{closer}");
    assert!(why(false).contains("at start-up or under another load"));
}

#[test]
fn kv_reserved_and_kv_used_are_two_figures() {
    let profile = two_gpus().derive();
    let m = &profile.vllm_internal_metrics;
    assert_eq!(m.kv_cache_usage_peak, Some(0.11));
    let pool = profile.memory_breakdown.kv_cache_gb.unwrap();
    assert!((pool - 80.0).abs() < 0.2, "the pools of both GPUs: {pool}");
    assert_eq!(
        m.total_gpu_kv_cache_gb,
        Some(80.0),
        "the log prints it per rank"
    );
    assert_eq!(m.total_gpu_kv_cache_tokens, Some(436_904));
    assert!((m.kv_cache_used_gb.unwrap() - 8.8).abs() < 1e-9);
    assert_eq!(m.model_weights_gb, Some(30.5));
    assert_eq!(m.cuda_graphs_enabled, Some(true));
    let host = serving_host().derive();
    assert_eq!(
        host.vllm_internal_metrics.kv_cache_usage_peak,
        Some(SERVING.kv_usage)
    );
}

#[test]
fn graphs_that_were_captured_are_in_use_whether_or_not_their_size_is_told() {
    let with = |change: &dyn Fn(&mut LogLine)| {
        let mut built = two_gpus();
        built.lines.iter_mut().for_each(change);
        let profile = built.derive();
        let metrics = profile.vllm_internal_metrics;
        let why = profile.unknown;
        let path = "vllm_internal_metrics.cuda_graphs_enabled";
        (
            metrics.cuda_graphs_enabled,
            metrics.cuda_graphs_gb,
            why.get(path).cloned(),
        )
    };
    // As before vLLM 0.6.4, which prints the time alone.
    let old = with(&|l| l.text = l.text.replace(", took 0.50 GiB", "."));
    assert_eq!(old, (Some(true), None, None));
    let unseen = |l: &mut LogLine| l.text = l.text.replace("Graph capturing finished", "Done");
    let (enabled, _, why) = with(&unseen);
    assert_eq!(enabled, None, "not switched off is not captured");
    assert!(why.unwrap().contains("not show that they were captured"));
    let eager = with(&|l| {
        unseen(l);
        l.text = l.text.replace("enforce_eager=False", "enforce_eager=True");
    });
    assert_eq!(eager, (Some(false), None, None));
    let on_cpu = with(&|l| {
        unseen(l);
        let device = "enforce_eager=False, device_config=cpu";
        l.text = l.text.replace("enforce_eager=False", device);
    });
    assert_eq!(on_cpu.0, Some(false), "there are none on CPU");
}

#[test]
fn another_tenant_and_the_drivers_share_are_lines_of_their_own() {
    let profile = two_gpus().derive();
    let b = &profile.memory_breakdown;
    let t = &GPU;
    let own = t.reserved + t.runtime + t.weights + t.kv_pool + t.graphs + t.activations;
    near(
        "peak",
        b.total_measured_bytes.unwrap() as i64,
        2 * own + t.tenant,
        0,
    );
    near("tenant", bytes(b, Component::Baseline), t.tenant, MIB);
    near(
        "reserved",
        bytes(b, Component::DriverReserved),
        2 * t.reserved,
        0,
    );
    near("runtime", bytes(b, Component::Runtime), 2 * t.runtime, 0);
    near(
        "weights",
        bytes(b, Component::ModelWeights),
        2 * t.weights,
        16 * MIB,
    );
    near("kv", bytes(b, Component::KvCache), 2 * t.kv_pool, 16 * MIB);
    near(
        "activations",
        bytes(b, Component::Activations),
        2 * t.activations,
        16 * MIB,
    );
    assert!(codes(&profile).contains(&"gpu_shared"));
    assert!(!codes(&profile).contains(&"other_process_entered"));
    assert!(
        !codes(&profile).contains(&"witnesses_disagree"),
        "the pool is named before it is allocated: {:#?}",
        profile.findings
    );
    let gpus = &profile.detailed_gpu_metrics.as_ref().unwrap().gpus;
    assert_eq!(gpus.len(), 2);
    assert_eq!(gpus[0].processes.len(), 2);
    let free = gpus[1].vram_free_mb.unwrap();
    let truth = (81_559 * MIB - own) as f64 / MIB as f64;
    assert!((free - truth).abs() < 1.0, "{free} {truth}");
    assert_eq!(
        profile
            .memory_timeline
            .extended
            .as_ref()
            .unwrap()
            .temperature
            .as_ref()
            .unwrap()
            .max_c,
        56.0
    );
}

/// Memory that the log of vLLM 0.32 names and that is no part of the peak on the GPU.
#[test]
fn memory_that_lies_elsewhere_is_named() {
    let mut built = two_gpus();
    let said = |text: &str| line(12_000, LineSource::Container, text);
    for rank in ["Worker_TP0 pid=1", "Worker_TP1 pid=2"] {
        let head = format!("({rank}) INFO 11-21 10:00:12");
        built.lines.push(said(&format!("{head} [worker.py:213] SimpleCPUOffloadWorker [CPU]: 32 tensors, 4096 CPU blocks (8.00 GB)")));
        built.lines.push(said(&format!("{head} [utils.py:753] Weights are held outside this process: of the 72.00 GiB utilization budget, 15.25 GiB is externally held and 56.75 GiB remains for the engine's own allocations.")));
    }
    built.lines.push(said("(EngineCore_DP0 pid=100) INFO 11-21 10:00:12 [shared_offload_region.py:142] Created mmap file /dev/shm/vllm_offload.mmap (10.737418240 GB)"));
    let profile = built.derive();
    let say = |code: &str| -> Vec<&str> {
        let of_code = profile.findings.iter().filter(|f| f.code == code);
        of_code.map(|f| f.message.as_str()).collect()
    };
    let on_host = say("kv_cache_on_host");
    assert!(
        on_host.len() == 2
            && on_host[0].starts_with("16.00 GiB of KV cache")
            && on_host[1].starts_with("10.00 GiB of KV cache"),
        "each rank's own, and one of all: {on_host:?}"
    );
    let held = say("weights_of_another_process");
    assert!(
        held.len() == 1 && held[0].starts_with("30.50 GiB of weights"),
        "{held:?}"
    );
    let plain = two_gpus().derive();
    assert_eq!(
        plain.memory_breakdown.components, profile.memory_breakdown.components,
        "no part of the peak is another one for it"
    );

    // Asleep, neither weights nor pool are on the GPUs, whatever the log of the start says.
    assert!(bytes(&plain.memory_breakdown, Component::ModelWeights) > 0);
    built.capture.probes.push(Probe {
        path: "/metrics".into(),
        status: Some(200),
        body: "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0.0\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"weights_offloaded\"} 1.0\n".into(),
        ..Probe::default()
    });
    let asleep = built.derive();
    assert!(codes(&asleep).contains(&"engine_asleep"));
    let parts = asleep.memory_breakdown.components.iter();
    let claimed: Vec<Component> = (parts.filter(|p| p.bytes > 0))
        .map(|p| p.component)
        .collect();
    assert!(
        !claimed.contains(&Component::ModelWeights) && !claimed.contains(&Component::KvCache),
        "{claimed:?}"
    );
}

#[test]
fn findings_tell_what_spoils_the_figures() {
    let with = |change: &dyn Fn(&mut Built)| {
        let mut built = two_gpus();
        change(&mut built);
        built.derive()
    };
    let has = |code: &str, profile: &Profile| {
        assert!(
            codes(profile).contains(&code),
            "{code} is not in {:?}",
            codes(profile)
        );
    };
    has(
        "sampler_gap",
        &with(&|b| b.capture.sampling.longest_gap_ns = 2_100_000_000),
    );
    has(
        "simulated_gpu",
        &with(&|b| b.capture.backend.simulated = true),
    );
    assert!(
        with(&|b| b.capture.backend.simulated = true)
            .metadata
            .simulated
    );
    has(
        "interrupted",
        &with(&|b| b.capture.end = RunEnd::Interrupted),
    );
    has(
        "bench_failed",
        &with(&|b| b.capture.end = RunEnd::BenchFailed("the bench exited with 1".into())),
    );
    has(
        "other_process_entered",
        &with(&|b| {
            for s in b
                .samples
                .iter_mut()
                .filter(|s| s.device == 1 && s.at_ns > 20_000 * MS)
            {
                if let Some(list) = &mut s.processes {
                    list.push(process(31_337, GIB, false));
                }
            }
        }),
    );
    let oom = with(&|b| {
        b.capture.events.push(ContainerEvent {
            at_ns: 20_000 * MS,
            action: "oom".into(),
            ..Default::default()
        });
        b.capture.container_end = Some(ContainerState {
            status: "exited".into(),
            exit_code: Some(137),
            oom_killed: true,
            ..Default::default()
        });
        b.capture.end = RunEnd::ContainerLost("the container exited with code 137".into());
    });
    has("oom", &oom);
    let message = &oom
        .findings
        .iter()
        .find(|f| f.code == "oom")
        .unwrap()
        .message;
    assert!(message.contains("bench"), "tells the phase: {message}");
    has("no_samples", &Built::default().derive());
    let severities: Vec<_> = oom.findings.iter().map(|f| f.severity).collect();
    assert!(
        severities.is_sorted_by(|a, b| a >= b),
        "worst first: {severities:?}"
    );
}

/// Swaps `swapped` bytes of the memory that the samples from `from_ms` on hold.
fn swap_out(built: &mut Built, from_ms: i64, swapped: u64) {
    for sample in built.samples.iter_mut().filter(|s| s.at_ns >= from_ms * MS) {
        let host = sample.host.as_mut().unwrap();
        let anon = host.anon_bytes.unwrap();
        host.swap_bytes = Some(swapped.min(anon));
        host.anon_bytes = Some(anon.saturating_sub(swapped));
    }
}

#[test]
fn swapped_memory_is_in_the_peak_and_in_the_parts() {
    let whole = idle_reference().derive();
    let mut built = idle_reference();
    built.capture.devices[0].counts_swap = true;
    let swapped = 200 * MIB;
    swap_out(&mut built, 3_000, swapped);
    let profile = built.derive();
    let b = &profile.memory_breakdown;
    assert_eq!(
        b.total_measured_bytes,
        whole.memory_breakdown.total_measured_bytes
    );
    assert_eq!(b.model_weights_gb, whole.memory_breakdown.model_weights_gb);
    let sum: i64 = b.components.iter().map(|p| p.bytes).sum();
    assert_eq!(Some(sum as u64), b.total_measured_bytes);
    assert!(b.components.iter().any(|p| p.component == Component::Swap));
    assert!(
        b.confidence_levels.weights.0.starts_with("low"),
        "{:?}",
        b.confidence_levels
    );
    let finding = profile
        .findings
        .iter()
        .find(|f| f.code == "memory_swapped")
        .unwrap();
    assert!(
        finding.message.contains("200.00 MiB"),
        "{}",
        finding.message
    );
    // A capture of an earlier release counted memory alone.
    let mut earlier = idle_reference();
    swap_out(&mut earlier, 3_000, swapped);
    for sample in &mut earlier.samples {
        let out = sample.host.unwrap().swap_bytes.unwrap_or(0);
        sample.used_bytes -= out;
        sample.kernel_peak_bytes = sample.kernel_peak_bytes.map(|b| b - out);
    }
    let earlier = earlier.derive();
    let apart = earlier.memory_breakdown.total_measured_bytes.unwrap();
    let together = b.total_measured_bytes.unwrap();
    // Without the kernel's peak the highest sample counts.
    assert!(together - apart <= IDLE.spike, "{together} {apart}");
}

#[test]
fn what_was_swapped_before_plimsoll_looked_is_a_part() {
    let mut built = serving_host();
    built.lines.clear();
    built.capture.devices[0].counts_swap = true;
    swap_out(&mut built, i64::MIN / MS, 150 * MIB);
    let profile = built.derive();
    let parts = &profile.memory_breakdown.components;
    let swap = parts
        .iter()
        .find(|p| p.component == Component::Swap)
        .unwrap();
    assert_eq!(swap.bytes, 150 * MIB as i64);
    assert!(
        swap.confidence.0.starts_with("low"),
        "{:?}",
        swap.confidence
    );
    let sum: i64 = parts.iter().map(|p| p.bytes).sum();
    assert_eq!(
        Some(sum as u64),
        profile.memory_breakdown.total_measured_bytes
    );
}

#[test]
fn a_part_above_the_peak_is_low() {
    let mut built = two_gpus();
    for line in &mut built.lines {
        line.text = line.text.replace("took 15.2500 GiB", "took 150.00 GiB");
    }
    let profile = built.derive();
    let b = &profile.memory_breakdown;
    assert!(b.per_gpu[0].peak_bytes < 150 * GIB);
    assert_eq!(b.model_weights_gb, Some(300.0));
    assert_eq!(b.confidence_levels.weights.0, "low_from_vllm_logs");
    let findings = profile.findings.iter();
    let above = findings.filter(|f| f.code == "part_exceeds_peak");
    assert_eq!(above.count(), 2, "one for each device");
}

/// A kill that the kernel's counters saw.
fn oom_at(at_ms: i64, level: &str, limit: u64) -> ContainerEvent {
    let attributes = [
        ("level", level.to_owned()),
        ("limit_bytes", limit.to_string()),
    ];
    ContainerEvent {
        at_ns: at_ms * MS,
        action: "oom".into(),
        attributes: attributes.map(|(k, v)| (k.to_owned(), v)).into(),
    }
}

#[test]
fn the_limit_that_was_reached_is_named() {
    let message = |change: &dyn Fn(&mut Built)| {
        let mut built = idle_reference();
        change(&mut built);
        let findings = built.derive().findings;
        findings
            .into_iter()
            .find(|f| f.code == "oom")
            .map(|f| f.message)
    };
    // An engine that a bench loads is killed before its warm-up.
    let loading = |level: &'static str| {
        message(&|b| {
            let bench = b
                .capture
                .execs
                .iter()
                .find(|e| e.role == ExecRole::Bench)
                .unwrap();
            let at_ms = bench.started_at_ns / MS + 200;
            b.capture.events.push(oom_at(at_ms, level, 400 * MIB));
            b.capture.oom_kills = Some(1);
        })
        .unwrap()
    };
    let slice = loading("/llm.slice");
    assert!(
        slice.contains("limit of slice `llm.slice` is 400.00 MiB"),
        "{slice}"
    );
    assert!(slice.contains("in phase start"), "{slice}");
    let job = loading("/slurm/uid_0/job_5");
    assert!(job.contains("cgroup `/slurm/uid_0/job_5`"), "{job}");
    assert!(loading("container").contains("the container's limit is 400.00 MiB"));
    assert!(loading("host").contains("the host has"));
    // Docker's event alone names no limit, and the container may have none.
    let unnamed = |b: &mut Built| {
        b.capture.events.push(ContainerEvent {
            at_ns: 7_000 * MS,
            action: "oom".into(),
            ..Default::default()
        });
    };
    let unknown = message(&unnamed).unwrap();
    assert!(!unknown.contains("host"), "{unknown}");
    // v1 tells every container below a limit; by its own counters this one lost nothing.
    let neighbour = message(&|b| {
        unnamed(b);
        b.capture.oom_kills = Some(0);
    });
    assert_eq!(neighbour, None);
}

#[test]
fn what_was_killed_from_outside_did_not_run_out_of_memory() {
    let finding = |oom_kills| {
        let mut built = idle_reference();
        let execs = built.capture.execs.iter_mut();
        execs
            .filter(|e| e.role == ExecRole::Bench)
            .for_each(|e| e.end = ExecEnd::Exited(137));
        built.capture.oom_kills = oom_kills;
        let findings = built.derive().findings;
        let killed = findings.into_iter().find(|f| f.code == "bench_killed");
        killed.unwrap().message
    };
    let outside = finding(Some(0));
    assert!(outside.contains("from outside"), "{outside}");
    assert!(!outside.contains("usual reason"), "{outside}");
    assert!(finding(None).contains("usual reason"));
}

#[test]
fn the_peak_is_at_least_the_limit_that_was_reached() {
    let limit = 64 * GIB;
    let peak = |level: &str| {
        let mut built = idle_reference();
        built.capture.events.push(oom_at(7_000, level, limit));
        built.capture.oom_kills = Some(1);
        built
            .derive()
            .memory_breakdown
            .total_measured_bytes
            .unwrap()
    };
    assert_eq!(peak("container"), limit);
    assert!(peak("/llm.slice") < limit, "others share it");
    // Before any load: what was seen until then.
    let mut built = idle_reference();
    built.capture.execs.clear();
    built.capture.events.push(oom_at(7_000, "container", limit));
    built.capture.oom_kills = Some(1);
    built.capture.end = RunEnd::ContainerLost("the container was killed (exit 137)".into());
    let profile = built.derive();
    assert_eq!(profile.memory_breakdown.total_measured_bytes, Some(limit));
    built.capture.oom_kills = Some(0);
    let lost = built.derive();
    assert_eq!(lost.memory_breakdown.total_measured_bytes, None);
}

/// A log that was rotated has lost what the engine said first; one that is silent has not.
#[test]
fn a_log_that_begins_long_after_its_container_is_told() {
    let told = |change: &dyn Fn(&mut Built)| {
        let mut built = serving_host();
        change(&mut built);
        let found = built.derive().findings;
        let late = found.iter().find(|f| f.code == "log_begins_late");
        late.map(|f| f.message.clone())
    };
    let started_before = |built: &mut Built, s: i64| {
        built.capture.container.state.started_ns =
            Some(built.capture.wall_start_ns - s * 1_000_000_000);
    };
    let requests_only = |built: &mut Built| {
        built.lines.truncate(1);
        built.lines[0].text = "GET /v1/models 200".into();
    };
    let rotated = told(&|built| {
        requests_only(built);
        started_before(built, 7_260);
    });
    assert!(
        rotated.as_ref().is_some_and(|m| m.contains("7200 s")),
        "{rotated:?}"
    );
    assert_eq!(told(&|_| ()), None, "its start is in it");
    assert_eq!(
        told(&|built| built.lines.clear()),
        None,
        "it says nothing at all"
    );
    let soon = told(&|built| {
        requests_only(built);
        started_before(built, 90);
    });
    assert_eq!(
        soon, None,
        "an engine that began to speak after half a minute"
    );
}

#[test]
fn a_calm_run_has_no_warnings() {
    let profile = serving_host().derive();
    let mut quiet = serving_host();
    quiet
        .capture
        .gauges
        .iter_mut()
        .for_each(|g| g.preemptions = Some(0));
    let calm = quiet.derive();
    let rest: Vec<&str> = codes(&calm)
        .into_iter()
        .filter(|c| !["simulated_engine", "startup_not_observed"].contains(c))
        .collect();
    assert!(rest.is_empty(), "{rest:?}");
    assert!(codes(&profile).len() > codes(&calm).len());
}

/// As the NVML backend stamps: each device with its own reading of the clock.
fn stamped_one_by_one(mut built: Built) -> Built {
    for s in &mut built.samples {
        s.at_ns += i64::from(s.device) * 123_413;
    }
    built
}

#[test]
fn devices_read_one_after_the_other_make_one_timeline() {
    let together = two_gpus().derive();
    let apart = stamped_one_by_one(two_gpus()).derive();
    let (a, b) = (&together.memory_timeline, &apart.memory_timeline);
    assert_eq!(b.num_samples, 301);
    assert_eq!(
        (a.min_gb, a.median_gb, a.max_gb),
        (b.min_gb, b.median_gb, b.max_gb)
    );
    assert_eq!(a.timeline.len(), b.timeline.len());
    assert!(b.under_load.is_some());
}

#[test]
fn a_device_that_is_lost_leaves_the_timeline_of_the_others_and_is_told() {
    let mut built = stamped_one_by_one(two_gpus());
    built.capture.sampling.last_error = Some("GPU 1: fell off the bus".into());
    built
        .samples
        .retain(|s| s.device == 0 || s.at_ns < 20_000 * MS);
    let profile = built.derive();
    let t = &profile.memory_timeline;
    assert_eq!(t.timeline.len(), 301);
    assert_eq!(t.num_samples, 200);
    let whole = two_gpus().derive().memory_timeline;
    assert_eq!(t.min_gb, whole.min_gb, "one device is no low of the sum");
    let lost = profile.findings.iter().find(|f| f.code == "device_lost");
    let lost = lost.unwrap_or_else(|| panic!("not told: {:?}", codes(&profile)));
    assert!(lost.message.contains("device 1"), "{}", lost.message);
    assert_eq!(lost.quote.as_deref(), Some("GPU 1: fell off the bus"));
}

/// The second GPU and its rank taken out of [`two_gpus`], and the model's files put in; the log
/// tells when the weights were loaded and not how many they are.
fn one_gpu() -> Built {
    let mut built = two_gpus();
    built.samples.retain(|s| s.device == 0);
    built.capture.devices.truncate(1);
    built.capture.container.argv[4] = "1".into();
    built.lines.retain(|l| !l.text.contains("Worker_TP1"));
    for line in &mut built.lines {
        line.text = line
            .text
            .replace("tensor_parallel_size=2", "tensor_parallel_size=1")
            .replace("Model loading took 15.2500 GiB and", "Loading weights took");
    }
    let files = [
        ("config.json", r#"{"torch_dtype": "bfloat16"}"#.to_owned()),
        (
            "model.safetensors.index.json",
            format!(r#"{{"metadata": {{"total_size": {}}}}}"#, GPU.weights),
        ),
    ];
    built.capture.model_files = files.map(|(k, v)| (k.to_owned(), v)).into();
    built
}

fn calculated(profile: &Profile, component: Component) -> Vec<&Evidence> {
    let calculated =
        |e: &&Evidence| e.component == component && e.source == EvidenceSource::Architecture;
    profile.evidence.iter().filter(calculated).collect()
}

#[test]
fn a_checkpoint_tells_the_weights_as_they_were_loaded() {
    let weights = |built: &Built| {
        let profile = built.derive();
        let claims = calculated(&profile, Component::ModelWeights);
        claims.first().map(|e| (e.bytes as u64, e.quote.clone()))
    };
    let as_stored = one_gpu();
    let (bytes, quote) = weights(&as_stored).unwrap();
    assert_eq!(bytes, GPU.weights);
    assert!(!quote.contains("loaded as"), "{quote}");
    assert!(!codes(&as_stored.derive()).contains(&"witnesses_disagree"));

    let mut widened = one_gpu();
    widened.lines[0].text = widened.lines[0]
        .text
        .replace("torch.bfloat16", "torch.float32");
    let (bytes, quote) = weights(&widened).unwrap();
    assert_eq!(bytes, 2 * GPU.weights);
    assert!(quote.contains("loaded as float32: times 4/2"), "{quote}");
    assert!(
        codes(&widened.derive()).contains(&"witnesses_disagree"),
        "half of it was measured"
    );

    let mut quantized = one_gpu();
    quantized.lines[0].text = quantized.lines[0]
        .text
        .replace("quantization=None", "quantization=fp8");
    assert_eq!(weights(&quantized), None);
    // Nobody tells whether 32 bits were halved.
    let mut halved = one_gpu();
    halved.lines.remove(0);
    halved
        .capture
        .model_files
        .insert("config.json".into(), r#"{"dtype": "float32"}"#.into());
    assert_eq!(weights(&halved), None);
}

#[test]
fn an_engine_that_died_before_it_loaded_has_no_weights() {
    let mut built = one_gpu();
    built.capture.mode = Mode::Idle;
    built.capture.end = RunEnd::BenchFailed("the bench ended with 1".into());
    built.capture.marks = vec![mark(0, Phase::Baseline, None)];
    built.capture.probes.clear();
    built.lines.retain(|l| l.at_ns < 3_950 * MS);
    for line in &mut built.lines {
        line.source = LineSource::Exec(0);
    }
    let exec = &mut built.capture.execs[0];
    exec.started_at_ns = 2_500 * MS;
    exec.ended_at_ns = 3_950 * MS;
    exec.end = ExecEnd::Exited(1);
    exec.result = None;
    let profile = built.derive();
    assert_eq!(profile.memory_breakdown.model_weights_gb, None);
    assert!(calculated(&profile, Component::ModelWeights).is_empty());
}

#[test]
fn figures_by_hand_stand_for_a_configuration_that_cannot_be_read() {
    let mut built = one_gpu();
    built.capture.model_files.clear();
    let given = [
        ("num_layers", 32.0),
        ("num_heads", 32.0),
        ("hidden_size", 4096.0),
        ("model_params", 8.03e9),
    ];
    built.capture.request.architecture = given.map(|(k, v)| (k.to_owned(), v)).into();
    let profile = built.derive();
    let model = &profile.model_info;
    assert_eq!(
        (model.num_layers, model.num_heads, model.head_dim),
        (Some(32), Some(32), Some(128))
    );
    assert_eq!(
        (model.num_parameters, model.num_kv_heads),
        (Some(8_030_000_000), None)
    );
    assert!(!profile.unknown.contains_key("model_info.num_layers"));
    assert!(profile.unknown.contains_key("model_info.num_kv_heads"));
    let told = profile
        .findings
        .iter()
        .find(|f| f.code == "num_kv_heads_not_given");
    let told = told.unwrap_or_else(|| panic!("not told: {:?}", codes(&profile)));
    assert!(
        told.message.contains("512.00 KiB") && told.message.contains("128.00 KiB"),
        "{}",
        told.message
    );
    // With them there is nothing to tell, and what the files say goes before all of it.
    built
        .capture
        .request
        .architecture
        .insert("num_kv_heads".into(), 8.0);
    assert!(!codes(&built.derive()).contains(&"num_kv_heads_not_given"));
    let own = r#"{"num_hidden_layers": 30, "torch_dtype": "bfloat16"}"#;
    built
        .capture
        .model_files
        .insert("config.json".into(), own.into());
    assert_eq!(built.derive().model_info.num_layers, Some(30));
}

#[test]
fn a_checkpoint_that_is_far_from_what_was_measured_is_told() {
    let mut built = one_gpu();
    built.capture.model_files.insert(
        "model.safetensors.index.json".into(),
        format!(r#"{{"metadata": {{"total_size": {GIB}}}}}"#),
    );
    let profile = built.derive();
    let told = profile
        .findings
        .iter()
        .find(|f| f.code == "witnesses_disagree");
    let told = told.unwrap_or_else(|| panic!("not told: {:?}", codes(&profile)));
    assert!(told.message.contains("model weights"), "{}", told.message);
}

/// [`two_gpus`] as the last two of four: the first two are given to the container and hold nothing
/// of the engine.
fn four_gpus(visible: Option<&str>, processes: bool) -> Built {
    let mut built = two_gpus();
    for s in &mut built.samples {
        s.device += 2;
        if !processes {
            s.processes = None;
        }
    }
    let idle = built.samples.clone().into_iter().filter(|s| s.device == 2);
    let idle: Vec<MemorySample> = idle
        .flat_map(|s| [0, 1].map(|device| (device, s.at_ns)))
        .map(|(device, at_ns)| MemorySample {
            at_ns,
            device,
            used_bytes: 4 * MIB,
            ..Default::default()
        })
        .collect();
    built.samples.extend(idle);
    let device = built.capture.devices[0].clone();
    built.capture.devices = (0..4)
        .map(|index| DeviceFacts {
            index,
            id: format!("GPU-{index}{index}{index}"),
            ..device.clone()
        })
        .collect();
    let variable = visible.map(|v| ("CUDA_VISIBLE_DEVICES".to_owned(), v.to_owned()));
    built.capture.container.env.extend(variable);
    built
}

/// Devices on which the engine's word for its weights is used, and on which it is only kept.
fn weights_by_log(profile: &Profile) -> (Vec<u32>, Vec<u32>) {
    let all = profile.evidence.iter().filter(|e| {
        e.component == Component::ModelWeights && e.source == EvidenceSource::EngineLog
    });
    let (used, kept): (Vec<&Evidence>, Vec<&Evidence>) = all.partition(|e| e.used);
    let ids = |list: Vec<&Evidence>| list.iter().map(|e| e.gpu_id).collect();
    (ids(used), ids(kept))
}

#[test]
fn ranks_belong_to_the_devices_that_the_container_shows_them() {
    for (visible, processes) in [
        (Some("2,3"), false),
        (Some("GPU-222,GPU-333"), false),
        (None, true),
    ] {
        let profile = four_gpus(visible, processes).derive();
        assert_eq!(
            weights_by_log(&profile),
            (vec![2, 3], vec![]),
            "{visible:?}"
        );
        assert!(!codes(&profile).contains(&"ranks_not_mapped"));
        assert!(!codes(&profile).contains(&"witnesses_disagree"));
        let b = &profile.memory_breakdown;
        near(
            "kv",
            bytes(b, Component::KvCache),
            2 * GPU.kv_pool,
            16 * MIB,
        );
    }
    let swapped = four_gpus(Some("3,2"), false).derive();
    assert_eq!(weights_by_log(&swapped), (vec![2, 3], vec![]));
}

#[test]
fn figures_of_ranks_that_nobody_places_are_kept_and_not_used() {
    let profile = four_gpus(None, false).derive();
    assert_eq!(weights_by_log(&profile), (vec![], vec![0, 1]));
    assert!(codes(&profile).contains(&"ranks_not_mapped"));
    assert!(!codes(&profile).contains(&"witnesses_disagree"));
    let b = &profile.memory_breakdown;
    assert_eq!(b.confidence_levels.weights.0, "medium_measured_delta");
    near(
        "weights as measured",
        bytes(b, Component::ModelWeights),
        2 * GPU.weights,
        16 * MIB,
    );
    // Attached to, nothing is measured either, and the engine did say it.
    let mut attached = four_gpus(None, false);
    attached.capture.mode = Mode::Serving;
    let why = &attached.derive().unknown["memory_breakdown.model_weights_gb"];
    assert!(why.starts_with("which device holds which rank"), "{why}");
}

#[test]
fn a_checkpoint_lies_on_the_one_device_that_is_used() {
    let mut built = one_gpu();
    let mut device = built.capture.devices[0].clone();
    device.index = 1;
    built.capture.devices.push(device);
    let twins: Vec<MemorySample> = built
        .samples
        .iter()
        .map(|s| MemorySample {
            at_ns: s.at_ns,
            device: 1,
            ..Default::default()
        })
        .collect();
    built.samples.extend(twins);
    let profile = built.derive();
    let claims = calculated(&profile, Component::ModelWeights);
    assert_eq!(claims.iter().map(|e| e.gpu_id).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_short_load_has_no_trend() {
    let shape = |every: i64, until_ms: i64| {
        let mut built = serving_host();
        let growing = Track::from(GIB).ramp(3_400, 8_600, 2 * GIB);
        built.samples = cgroup(10_000, every, &growing, &Track::from(0), None);
        built.capture.execs[0].ended_at_ns = until_ms * MS;
        let profile = built.derive();
        let load = profile.memory_timeline.under_load.clone().unwrap();
        let why = profile.unknown.get("memory_timeline.under_load.shape");
        assert_eq!(load.shape.is_none(), why.is_some());
        load.shape
    };
    assert_eq!(shape(100, 8_690), Some(Shape::Growing));
    assert_eq!(shape(1_000, 8_690), None, "five samples");
    assert_eq!(shape(100, 6_000), None, "2.6 s");
}

#[test]
fn what_is_given_back_after_the_load_did_not_grow() {
    let shape = |after: u64| {
        let mut built = serving_host();
        let load = Track::from(GIB)
            .ramp(3_400, 8_600, 2 * GIB)
            .step(8_750, after);
        built.samples = cgroup(10_000, 100, &load, &Track::from(0), None);
        built.derive().memory_timeline.under_load.unwrap().shape
    };
    assert_eq!(shape(2 * GIB), Some(Shape::Growing));
    assert_eq!(shape(GIB + 8 * MIB), Some(Shape::Varying));
}

#[test]
fn without_a_load_nothing_is_said_of_one() {
    for built in [watched(serving_host()), watched(two_gpus())] {
        let highest = |samples: &[MemorySample], device| {
            let of = samples.iter().filter(|s| s.device == device);
            let used = of.map(|s| s.used_bytes + s.reserved_bytes.unwrap_or(0));
            used.max().unwrap_or(0)
        };
        let profile = built.derive();
        let (b, m) = (&profile.memory_breakdown, &profile.memory_measurements);
        let all = highest(&built.samples, 0) + highest(&built.samples, 1);
        assert_eq!(b.total_measured_bytes, Some(all), "the highest watched");
        assert!(m.peak.is_some() && m.memory_increase_gb.is_some());
        assert_eq!(b.activations_gb, None);
        let why = &profile.unknown["memory_breakdown.activations_gb"];
        assert!(why.contains("no load of ours"), "{why}");
        assert!(m.post_warmup.is_none() && profile.memory_timeline.under_load.is_none());
        let load = [Component::Activations, Component::WarmupGrowth];
        let claimed = profile
            .evidence
            .iter()
            .find(|e| load.contains(&e.component));
        assert_eq!(claimed, None);
    }
}

#[test]
fn a_run_that_ended_before_its_load_has_no_peak() {
    for built in [never_began(serving_host()), never_began(two_gpus())] {
        let profile = built.derive();
        let m = &profile.memory_measurements;
        assert!(m.peak.is_none() && m.memory_increase_gb.is_none());
        assert!(m.baseline.is_some() && profile.memory_timeline.max_gb.is_some());
        assert_eq!(profile.memory_breakdown.total_measured_bytes, None);
        let why = &profile.unknown["memory_measurements.peak"];
        assert!(why.contains("interrupted"), "{why}");
    }
}

#[test]
fn a_bench_that_never_measured_shows_no_activations() {
    let mut built = two_gpus();
    built.capture.marks.retain(|m| m.phase != Phase::Bench);
    let profile = built.derive();
    assert!(profile.memory_measurements.peak.is_some());
    assert_eq!(profile.memory_breakdown.activations_gb, None);
    for path in [
        "memory_breakdown.activations_gb",
        "memory_timeline.under_load",
    ] {
        let why = &profile.unknown[path];
        assert!(
            why.contains("did not report the start of its measured part"),
            "{why}"
        );
    }
}

#[test]
fn requests_that_fail_are_told() {
    let told = |completed: u64, failed: u64| {
        let mut built = serving_host();
        let exec = &mut built.capture.execs[0];
        let result = exec.result.as_deref().unwrap();
        let mut result: serde_json::Value = serde_json::from_str(result).unwrap();
        result["completed"] = completed.into();
        result["failed"] = failed.into();
        exec.result = Some(result.to_string());
        let profile = built.derive();
        assert!(profile.latency_stats.is_some(), "given all the same");
        let finding = profile
            .findings
            .into_iter()
            .find(|f| f.code == "requests_failed");
        finding.map(|f| (f.severity, f.message))
    };
    assert_eq!(told(40, 0), None);
    assert_eq!(told(199, 1).unwrap().0, Severity::Warning);
    let (severity, message) = told(2, 38).unwrap();
    assert_eq!(severity, Severity::Error);
    assert!(message.contains("38 of 40 requests"), "{message}");
}

#[test]
fn what_our_own_client_found_is_read_with_its_notes() {
    let mut built = captures::serving_host();
    built.capture.request.bench = "builtin".into();
    for exec in &mut built.capture.execs {
        if exec.role == ExecRole::Bench {
            exec.result = Some(
                r#"{"client":"plimsoll","duration":2.0,"completed":3,"failed":1,"total_output_tokens":96,
                    "output_throughput":48.0,"mean_ttft_ms":12.5,"p99_ttft_ms":20.0,"mean_e2el_ms":400.0,
                    "notes":["prompt lengths are in words, not tokens"]}"#
                    .into(),
            );
        }
    }
    // An engine that nobody knows any more makes no difference to what plimsoll itself measured.
    built.capture.engine = "of-the-future".into();
    let profile = built.derive();
    let stats = profile.latency_stats.expect("the client measured");
    assert_eq!(
        serde_json::to_value(stats.bench).unwrap(),
        serde_json::json!("builtin")
    );
    assert_eq!(
        (stats.mean_latency_ms, stats.tokens_per_second),
        (Some(400.0), Some(48.0))
    );
    let repeat = &stats.repeats[0];
    assert_eq!(repeat.notes, ["prompt lengths are in words, not tokens"]);
    assert_eq!(repeat.result.ttft_ms["p99"], 20.0);
    assert_eq!(repeat.result.failed, Some(1));
}

/// A daemon that takes long to start a container: its engine loads before it can be sampled.
#[test]
fn a_start_that_was_not_sampled_is_a_finding() {
    let mut built = serving_host();
    built.capture.mode = Mode::Started;
    let line = |text| line(0, LineSource::Container, text);
    built.lines = vec![line("reference-engine phase=loading_weights")];
    built.capture.engine = "reference".into();
    let found = |built: &Built| {
        let profile = built.derive();
        profile
            .findings
            .iter()
            .any(|f| f.code == "start_not_sampled")
    };
    assert!(!found(&built), "the first sample is as early");
    built.samples.retain(|s| s.at_ns >= 700 * MS);
    assert!(found(&built));
}

#[test]
fn the_pool_of_an_idle_vllm_is_exact_where_the_log_rounds_it() {
    let exact = 134_217_728;
    let pool = |built: &Built| {
        let profile = built.derive();
        let bytes = bytes(&profile.memory_breakdown, Component::KvCache);
        let internal = profile.vllm_internal_metrics.total_gpu_kv_cache_gb;
        let sure = profile
            .memory_breakdown
            .confidence_levels
            .kv_cache
            .0
            .clone();
        (bytes, internal, sure)
    };
    let by_log = "high_from_vllm_logs".to_owned();
    // The argument line has the bytes.
    let asked = idle_vllm();
    assert_eq!(pool(&asked), (exact, Some(0.125), by_log.clone()));
    assert!(!codes(&asked.derive()).contains(&"witnesses_disagree"));
    // Without it tokens times bytes per token give them.
    let mut sized = idle_vllm();
    sized.lines[0].text = sized.lines[0]
        .text
        .replace("'kv_cache_memory_bytes': 134217728, ", "");
    assert_eq!(pool(&sized), (exact, Some(0.125), by_log.clone()));
    // Nothing exact agrees with the log: its figure counts, and the difference is reported.
    let mut other = sized.clone();
    other.lines[5].text = other.lines[5].text.replace("65,536", "52,224");
    let (bytes, internal, sure) = pool(&other);
    assert_eq!((bytes, internal, sure), (128_849_019, Some(0.12), by_log));
    let profile = other.derive();
    let finding = profile
        .findings
        .iter()
        .find(|f| f.code == "witnesses_disagree");
    let finding = finding.unwrap_or_else(|| panic!("{:?}", codes(&profile)));
    assert!(
        finding.message.contains("KV cache pool"),
        "{}",
        finding.message
    );
}

#[test]
fn an_idle_vllm_has_what_its_log_gives_and_true_reasons_for_the_others() {
    let profile = idle_vllm().derive();
    let m = &profile.vllm_internal_metrics;
    assert_eq!(m.total_gpu_kv_cache_tokens, Some(65_536));
    assert_eq!(
        m.gpu_memory_utilization,
        Some(0.92),
        "the default of 0.32.0"
    );
    assert!(!codes(&profile).contains(&"gpu_memory_utilization_default"));
    let why = |path: &str| profile.unknown[path].clone();
    let block = why("vllm_internal_metrics.block_size");
    assert!(
        block.contains("log") && block.contains("--block-size"),
        "{block}"
    );
    let total = why("vllm_internal_metrics.total_allocated_gb");
    assert!(
        total.contains("weights") && !total.contains("pool,"),
        "{total}"
    );
    let quantization = why("dtype_metadata.quantization");
    assert_eq!(quantization, "the engine runs unquantized");
}

#[test]
fn compilers_of_the_warm_up_are_no_activations_of_the_load() {
    let mut built = serving_host();
    let (from, to, compilers) = (2_200 * MS, 3_000 * MS, 400 * MIB);
    let mut mark = 0;
    for s in &mut built.samples {
        if (from..to).contains(&s.at_ns) {
            s.used_bytes += compilers;
            let host = s.host.as_mut().unwrap();
            host.anon_bytes = host.anon_bytes.map(|b| b + compilers);
        }
        mark = mark.max(s.used_bytes).max(s.kernel_peak_bytes.unwrap());
        s.kernel_peak_bytes = Some(mark);
    }
    let (calm, profile) = (serving_host().derive(), built.derive());
    let b = &profile.memory_breakdown;
    near(
        "activations",
        bytes(b, Component::Activations),
        SERVING.activations,
        MIB,
    );
    assert_eq!(
        b.total_measured_bytes,
        calm.memory_breakdown.total_measured_bytes
    );
    let higher = profile
        .findings
        .iter()
        .find(|f| f.code == "higher_peak_outside_load");
    let higher = higher.unwrap_or_else(|| panic!("{:?}", codes(&profile)));
    assert!(higher.message.contains("warm-up"), "{}", higher.message);
}

/// The header of a checkpoint in one file: 4 + 2 values of 16 bits, and 3 integers that are no parameters.
const HEADER: &str = r#"{"__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
    "ids": {"dtype": "I64", "shape": [3], "data_offsets": [12, 36]},
    "b.weight": {"dtype": "BF16", "shape": [2], "data_offsets": [8, 12]}}"#;

#[test]
fn the_header_of_a_checkpoint_in_one_file_gives_its_parameters() {
    let mut built = one_gpu();
    let files = &mut built.capture.model_files;
    files.remove("model.safetensors.index.json");
    files.insert("model.safetensors".into(), HEADER.into());
    let profile = built.derive();
    let model = &profile.model_info;
    assert_eq!(
        (model.num_parameters, model.checkpoint_bytes),
        (Some(6), Some(36))
    );
    let weights = calculated(&profile, Component::ModelWeights);
    assert_eq!(weights[0].bytes, 36, "{}", weights[0].quote);
    // Shards beside an index that has their total size only.
    let files = &mut built.capture.model_files;
    files.insert("m-2.safetensors".into(), HEADER.into());
    files.insert(
        "model.safetensors.index.json".into(),
        r#"{"metadata": {"total_size": 72}, "weight_map": {"a": "model.safetensors", "b": "m-2.safetensors"}}"#.into(),
    );
    assert_eq!(built.derive().model_info.num_parameters, Some(12));
    built.capture.model_files.remove("m-2.safetensors");
    let partly = built.derive();
    assert_eq!(partly.model_info.num_parameters, None, "a shard is missing");
    // Packed values are no parameters.
    let files = &mut built.capture.model_files;
    files.remove("model.safetensors.index.json");
    files.insert(
        "config.json".into(),
        r#"{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "awq"}}"#.into(),
    );
    let packed = built.derive();
    assert_eq!(packed.model_info.num_parameters, None);
    assert_eq!(packed.model_info.checkpoint_bytes, Some(36));
    assert!(packed.unknown["model_info.num_parameters"].contains("quantized"));
}

#[test]
fn the_type_of_the_model_is_the_one_it_runs_in() {
    let mut built = one_gpu();
    built.lines[0].text = built.lines[0]
        .text
        .replace("torch.bfloat16", "torch.float16");
    let profile = built.derive();
    let document = serde_json::to_value(&profile).unwrap();
    assert_eq!(document["model_info"]["dtype"], "float16");
    assert_eq!(document["model_info"]["checkpoint_dtype"], "bfloat16");
    assert_eq!(
        calculated(&profile, Component::ModelWeights)[0].bytes as u64,
        GPU.weights
    );
}

#[test]
fn a_baseline_with_the_engine_in_it_is_marked_as_such() {
    let includes = |built: &Built| {
        let document = serde_json::to_value(built.derive()).unwrap();
        let measured = &document["memory_measurements"];
        assert!(measured["baseline"]["total_gb"].is_number());
        measured["baseline_includes_engine"].clone()
    };
    assert_eq!(includes(&serving_host()), true, "the engine served before");
    assert_eq!(includes(&idle_reference()), false);
    assert_eq!(includes(&two_gpus()), false);
}

/// What a stored capture is derived to.
fn derived(name: &str) -> plimsoll::profile::Profile {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/captures");
    let stored = plimsoll::store::StoredCapture::open(&folder.join(name)).unwrap();
    plimsoll::profile::derive_profile(
        &stored.capture,
        stored.read_samples().unwrap(),
        stored.read_lines().unwrap(),
    )
}

#[test]
fn a_load_that_left_no_trace_is_of_low_confidence_and_a_finding() {
    let found =
        |p: &plimsoll::profile::Profile| p.findings.iter().any(|f| f.code == "load_without_trace");
    let flat = derived("experiment-cell.capture");
    assert!(found(&flat), "{:?}", flat.findings);
    let levels = &flat.memory_breakdown.confidence_levels;
    assert!(levels.activations.0.starts_with("low"), "{levels:?}");
    let row = plimsoll::matrix::RowFigures::of_profile(&flat);
    assert!(
        row.low_confidence.contains(&Component::Activations),
        "{row:?}"
    );
    let grown = derived("vllm-two-gpus.capture");
    assert!(!found(&grown), "{:?}", grown.findings);
    // The kernel's own mark shows nothing either where the load ended before it was set back.
    let mut late = serving_host();
    let flat = late.samples[0].clone();
    for sample in &mut late.samples {
        *sample = plimsoll::capture::MemorySample {
            at_ns: sample.at_ns,
            device: sample.device,
            ..flat.clone()
        };
    }
    assert!(found(&late.derive()), "{:?}", late.derive().findings);
    assert!(!found(&serving_host().derive()));
}

#[test]
fn what_a_run_did_not_take_is_not_written_as_run() {
    let asked = RequestedSettings {
        dtype: Some("float16".into()),
        tensor_parallel_size: Some(2),
        enforce_eager: true,
        ..RequestedSettings::default()
    };
    for (mut built, why) in [
        (serving_host(), "the server was running already"),
        (idle_reference(), "reference has no such setting"),
    ] {
        let plain = built.derive();
        built.capture.request.settings = asked.clone();
        let profile = built.derive();
        let ignored = profile.configuration.ignored.iter();
        let names: Vec<(&str, &str)> = ignored
            .map(|i| (i.setting.as_str(), i.reason.as_str()))
            .collect();
        let expected = ["dtype", "tensor_parallel_size", "enforce_eager"];
        assert_eq!(names, expected.map(|name| (name, why)));
        // All else is that of the run without them.
        assert_eq!(profile.parameters, plain.parameters);
        assert_eq!(
            profile.configuration.requested,
            plain.configuration.requested
        );
        assert_eq!(profile.dtype_metadata, plain.dtype_metadata);
        let told = profile.findings.iter();
        let told: Vec<&str> = told
            .filter(|f| f.code == "setting_ignored")
            .map(|f| f.message.as_str())
            .collect();
        assert_eq!(told.len(), 3);
        assert_eq!(told[0], format!("--dtype float16 is ignored: {why}"));
    }
}
