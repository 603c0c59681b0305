//! The measured breakdown against a truth: the reference engine takes exactly the bytes it is told
//! to, and its log and endpoints name none of them.

use crate::common;
use common::e2e::{
    Engine, Live, REFERENCE_IMAGE, Results, codes, parts_sum_to_the_peak, plimsoll, run,
};
use common::jq::Desk;
use common::{docker, whole_seconds};
use serde_json::Value;
use std::path::Path;

const MIB: f64 = 1024.0 * 1024.0;

/// What the engine is told to take.
#[derive(Debug, Clone, Copy)]
struct Truth {
    weights: u32,
    kv: u32,
    activation: u32,
}

/// The sizes that the project promises its accuracy for.
const PROMISED: Truth = Truth {
    weights: 512,
    kv: 256,
    activation: 128,
};

impl Truth {
    fn flags(self) -> [String; 8] {
        let Truth {
            weights,
            kv,
            activation,
        } = self;
        [
            "--weights".into(),
            format!("{weights}MiB"),
            "--kv-pool".into(),
            format!("{kv}MiB"),
            "--activation".into(),
            format!("{activation}MiB"),
            "--activation-ms".into(),
            "30".into(),
        ]
    }

    fn extra(self) -> String {
        format!("--extra-engine-args={}", self.flags().join(" "))
    }

    /// Every part within 1 % or 4 MiB of the truth, whichever is larger.
    #[track_caller]
    fn holds(self, document: &Value) {
        self.weights_and_pool_hold(document);
        self.activations_hold(document);
        let overhead = document["memory_breakdown"]["framework_overhead_gb"]
            .as_f64()
            .expect("overhead")
            * 1024.0;
        // The engine's own memory, its page tables and what its file takes of the page cache.
        assert!(
            overhead.abs() < 12.0 || is_coarse(document),
            "{overhead} MiB of overhead: {:#}",
            document["memory_breakdown"]
        );
    }

    #[track_caller]
    fn weights_and_pool_hold(self, document: &Value) {
        within(document, "model_weights", self.weights);
        within(document, "kv_cache", self.kv);
    }

    #[track_caller]
    fn activations_hold(self, document: &Value) {
        within(document, "activations", self.activation);
        parts_sum_to_the_peak(document);
    }
}

#[track_caller]
fn within(document: &Value, component: &str, truth: u32) {
    let parts = document["memory_breakdown"]["components"]
        .as_array()
        .expect("components");
    let measured = parts
        .iter()
        .find(|p| p["component"] == component)
        .and_then(|p| p["bytes"].as_f64());
    if component != "activations" && is_coarse(document) {
        return;
    }
    let Some(measured) = measured.map(|b| b / MIB) else {
        panic!("no {component}: {:#}", document["memory_breakdown"]);
    };
    let truth = f64::from(truth);
    let allowed = f64::max(truth / 100.0, 4.0);
    assert!(
        (measured - truth).abs() <= allowed,
        "{component}: {measured:.2} MiB measured, {truth} MiB true; evidence: {:#}\npeak: {:#}",
        document["evidence"],
        document["memory_measurements"]["peak"]
    );
}

/// Whether the parts of the engine's start are doubted in so many words, because the runtime tells the
/// times of a log in whole seconds.
fn is_coarse(document: &Value) -> bool {
    let told = codes(document).contains(&"log_times_coarse");
    assert!(!told || whole_seconds(), "{:#}", document["findings"]);
    told
}

/// Profiles with these flags and gives the document.
#[track_caller]
fn profile(container: &Engine, flags: &[&str]) -> Value {
    let results = Results::new();
    let dir = results.arg();
    let mut args = vec!["profile", &container.name, &dir];
    args.extend(flags);
    run(&args).expect(0);
    results.document()
}

/// Raises the kernel's high-water mark of the container far above all that will follow.
fn raise_the_mark(container: &Engine) {
    let huge = [
        "exec",
        &container.id,
        "/reference-engine",
        "bench",
        "latency",
        "--model",
        "m",
        "--weights",
        "1536MiB",
        "--kv-pool",
        "4MiB",
        "--activation",
        "4MiB",
        "--settle-ms",
        "1",
        "--num-iters",
        "1",
        "--num-iters-warmup",
        "0",
    ];
    docker(&huge).expect("a large bench");
}

#[test]
fn an_idle_container_three_times() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("truth-idle");
    let extra = PROMISED.extra();
    for _ in 0..3 {
        let document = profile(&engine, &["-m", "reference/truth", &extra]);
        PROMISED.holds(&document);
        assert_eq!(document["metadata"]["mode"], "idle");
        assert_eq!(document["metadata"]["memory_backend"]["name"], "host");
        assert!(
            codes(&document).contains(&"simulated_engine"),
            "said wherever the numbers are"
        );
    }
}

/// Whether the kernel resets `memory.peak` for one descriptor alone.
fn resets_peaks_for_itself() -> bool {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|n| n.parse().unwrap_or(0));
    v2 && (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

/// On a host that swaps, what is out counts, and is named.
#[test]
fn a_container_that_swaps() {
    needs!(Docker, ReferenceEngine, Swap);
    let page_out = ["--env=REFERENCE_PAGE_OUT=1"];
    let engine = Engine::run("truth-swap", &page_out, REFERENCE_IMAGE, &["idle"]);
    let truth = Truth {
        weights: 96,
        kv: 64,
        activation: 32,
    };
    let document = profile(&engine, &["-m", "reference/truth", &truth.extra()]);
    parts_sum_to_the_peak(&document);
    assert!(
        codes(&document).contains(&"memory_swapped"),
        "{:#}",
        document["findings"]
    );
    let peak = document["memory_breakdown"]["total_measured_bytes"].as_f64();
    let peak = peak.expect("peak") / MIB;
    assert!((192.0..208.0).contains(&peak), "{peak} MiB");
    truth.weights_and_pool_hold(&document);
}

/// The mark of an earlier, larger run is of no help: only what is read meanwhile can tell.
#[test]
fn a_container_that_once_held_more() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("truth-mark");
    raise_the_mark(&engine);
    let extra = PROMISED.extra();
    for _ in 0..3 {
        let document = profile(&engine, &["-m", "reference/truth", "--num-iters=5", &extra]);
        PROMISED.holds(&document);
        // From Linux 6.12 on a reader resets the mark for itself, and does not see the old one.
        if resets_peaks_for_itself() {
            continue;
        }
        assert_ne!(
            document["memory_breakdown"]["per_gpu"][0]["peak_source"],
            "kernel_peak"
        );
        assert!(
            codes(&document).contains(&"higher_peak_outside_load"),
            "{:?}",
            codes(&document)
        );
    }
}

#[test]
fn throughput_bench_of_an_idle_container() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("truth-throughput");
    let extra = PROMISED.extra();
    let document = profile(
        &engine,
        &[
            "-m",
            "reference/truth",
            "--bench=throughput",
            "--num-prompts=8",
            &extra,
        ],
    );
    PROMISED.holds(&document);
}

#[test]
fn small_parts_and_large_ones() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("truth-sizes");
    for truth in [
        Truth {
            weights: 64,
            kv: 1024,
            activation: 16,
        },
        Truth {
            weights: 900,
            kv: 32,
            activation: 512,
        },
    ] {
        let extra = truth.extra();
        truth.holds(&profile(
            &engine,
            &["-m", "reference/truth", "--num-iters=5", &extra],
        ));
    }
}

#[test]
fn every_sample_interval() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("truth-interval");
    // The mark of the first run is as high as the second's peak: no help there either.
    let extra = PROMISED.extra();
    for interval in ["--sample-interval=10ms", "--sample-interval=1s"] {
        let document = profile(
            &engine,
            &["-m", "reference/truth", "--num-iters=5", interval, &extra],
        );
        PROMISED.holds(&document);
    }
}

#[test]
fn three_repeats_and_their_spread() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("truth-repeats");
    let extra = PROMISED.extra();
    let document = profile(
        &engine,
        &[
            "-m",
            "reference/truth",
            "--repeats=3",
            "--num-iters=3",
            &extra,
        ],
    );
    PROMISED.holds(&document);
    let repeats = document["latency_stats"]["repeats"]
        .as_array()
        .expect("repeats");
    assert_eq!(repeats.len(), 3, "{:#}", document["latency_stats"]);
}

/// Weights and pool by what the start-up added, activations by the load.
#[test]
fn a_container_that_plimsoll_starts_three_times() {
    needs!(Docker, ReferenceEngine);
    for _ in 0..3 {
        let results = Results::new();
        let dir = results.arg();
        let ended = run(&[
            "run",
            "--preset=reference",
            "--num-prompts=6",
            "--max-concurrency=2",
            &dir,
        ])
        .expect(0);
        let document = results.document();
        PROMISED.holds(&document);
        assert_eq!(document["metadata"]["mode"], "started");
        let id = document["metadata"]["container"]["id"]
            .as_str()
            .expect("id");
        assert!(docker(&["inspect", id]).is_err(), "it is removed");
        let warned = ended.stderr.contains("warning");
        assert!(!warned || is_coarse(&document), "{}", ended.stderr);
    }
}

/// Attached to, an engine's past is not measurable: its parts are unknown with the reason, never
/// 0, and what the load adds is measured all the same.
#[test]
fn a_serving_container_whose_mark_stands_higher() {
    needs!(Docker, ReferenceEngine);
    let flags = PROMISED.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let engine = Engine::serving("truth-serving", &[], &flags);
    for mark in [false, true] {
        if mark {
            raise_the_mark(&engine);
        }
        // One request at a time, and few: each spike stands alone.
        let load = [
            "--num-prompts=4",
            "--max-concurrency=1",
            "--request-rate=4",
            "--num-iters-warmup=1",
        ];
        let document = profile(&engine, &load);
        PROMISED.activations_hold(&document);
        assert_eq!(document["metadata"]["mode"], "serving");
        let breakdown = &document["memory_breakdown"];
        for key in ["model_weights_gb", "kv_cache_gb"] {
            assert_eq!(breakdown[key], Value::Null, "{breakdown:#}");
            let path = format!("memory_breakdown.{key}");
            let reasons = document["unknown"].as_object().expect("unknown");
            assert!(
                reasons.contains_key(&path),
                "no reason for {path}: {reasons:#?}"
            );
        }
    }
}

/// A server whose weights are not there yet: it is found, and profiled once it answers.
#[test]
fn a_server_that_still_loads_is_waited_for() {
    needs!(Docker, ReferenceEngine);
    let serve = ["serve", "--model", "reference/slow", "--settle-ms", "2500"];
    let engine = Engine::run("slow", &[], REFERENCE_IMAGE, &serve);
    let load = ["--wait=1m", "--num-prompts=2", "--baseline=0"];
    let document = profile(&engine, &load);
    assert_eq!(document["metadata"]["mode"], "serving");
    assert!(engine.log().contains("phase=ready"));
    // Without a terminal nobody is kept waiting.
    let engine = Engine::run(
        "slow",
        &[],
        REFERENCE_IMAGE,
        &[&serve[..4], &["60000"]].concat(),
    );
    let results = Results::new();
    let ended = run(&["profile", &engine.name, &results.arg()]).expect(3);
    assert!(ended.stderr.contains("still loading"), "{}", ended.stderr);
    let waited = ["profile", &engine.name, &results.arg(), "--wait=1s"];
    let ended = run(&waited).expect(4);
    assert!(
        ended.stderr.contains("does not serve after 1s"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_server_that_dies_while_it_loads_is_explained() {
    needs!(Docker, ReferenceEngine);
    let serve = ["serve", "--model", "reference/dying", "--settle-ms", "3000"];
    let fault = "--env=REFERENCE_FAULT=crash@kv_cache_allocated";
    let engine = Engine::run("dying", &[fault], REFERENCE_IMAGE, &serve);
    let ended = run(&["profile", &engine.name, "--wait"]).expect(4);
    assert!(
        ended.stderr.contains("ended while its engine loaded"),
        "{}",
        ended.stderr
    );
    // What `why` answers, also where it knows no cause.
    let why = run(&["why", &engine.name]).stdout;
    let answer = why
        .lines()
        .rfind(|l| !l.trim().is_empty())
        .unwrap_or_default();
    assert!(
        !answer.is_empty() && ended.stdout.contains(answer),
        "{}\n{why}",
        ended.stdout
    );
}

/// The lines in people's scripts, on a result that takes seconds; on a real engine's in
/// `profile_vllm`.
#[test]
fn the_seeds_jq_lines_give_values() {
    needs!(Docker, ReferenceEngine, Jq);
    let engine = Engine::idle("jq");
    let results = Results::new();
    for weights in ["16MiB", "48MiB"] {
        let extra = format!(
            "--extra-engine-args=--weights {weights} --kv-pool 16MiB --activation 8MiB --num-iters 3"
        );
        run(&[
            "profile",
            &engine.name,
            "-m",
            "reference/jq",
            "--baseline=300ms",
            &extra,
            &results.arg(),
        ])
        .expect(0);
    }
    let profiles = results.profiles();
    Desk::new(&results, &profiles[0], &profiles[1]).seeds_lines_answer();
}

/// Watching without a load of our own: somebody else's is seen as well.
#[test]
fn somebody_elses_load_is_measured_too() {
    needs!(Docker, ReferenceEngine);
    let flags = PROMISED.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let engine = Engine::serving("truth-observe", &[], &flags);
    let results = Results::new();
    let dir = results.arg();
    let mut live = Live::start(plimsoll(&[
        "profile",
        &engine.name,
        "--bench=none",
        "--baseline=300ms",
        &dir,
    ]));
    live.until("observe");
    let load = [
        "exec",
        &engine.id,
        "/reference-engine",
        "bench",
        "serve",
        "--model",
        "reference/test",
        "--num-prompts",
        "5",
    ];
    docker(&load).expect("a load");
    live.signal(rustix::process::Signal::INT);
    live.end().expect(130);
    // Whose load it was is not known, so it is called by no component's name.
    let document = results.document();
    parts_sum_to_the_peak(&document);
    let increase = document["memory_measurements"]["memory_increase_gb"]
        .as_f64()
        .expect("increase")
        * 1024.0;
    let truth = f64::from(PROMISED.activation);
    assert!(
        (increase - truth).abs() <= 4.0,
        "{increase} MiB of {truth}: {:#}",
        document["memory_measurements"]
    );
    assert_eq!(document["memory_breakdown"]["activations_gb"], Value::Null);
}
