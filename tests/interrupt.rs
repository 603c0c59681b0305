//! Ctrl-C and SIGTERM in every phase: the bench is ended, what was seen is kept, what was started
//! is removed; asked twice, plimsoll leaves at once.

use crate::common;
use common::e2e::{Engine, Live, Results, codes, command, plimsoll, wait_for};
use common::{TestContainer, docker, unique};
use rustix::process::Signal;
use std::path::Path;

const SMALL: &str =
    "--weights 16MiB --kv-pool 8MiB --activation 4MiB --load-ms 0 --settle-ms 100 --start-ms 100";

/// The profile and the capture of an interrupted run.
#[track_caller]
fn kept(results: &Results) -> serde_json::Value {
    let document = results.document();
    assert_eq!(document["metadata"]["outcome"], "interrupted");
    assert!(
        codes(&document).contains(&"interrupted"),
        "{:#}",
        document["findings"]
    );
    document
}

#[track_caller]
fn interrupted(live: Live, signal: Signal) {
    live.signal(signal);
    let ended = live.end().expect(130);
    assert!(ended.error().starts_with("interrupted"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("press again to exit at once"),
        "{}",
        ended.stderr
    );
}

#[test]
fn in_every_phase_of_an_idle_containers_run() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("int-idle", &[]);
    let before = engine.processes();
    for (phase, baseline, bench, fault) in [
        ("baseline", "600s", "latency", ""),
        (
            "warm-up 1/1",
            "100ms",
            "latency",
            "--fault hang@loading_weights",
        ),
        (
            "warm-up 1/1",
            "100ms",
            "latency",
            "--fault hang@warmup_start",
        ),
        (
            "bench 1/1",
            "100ms",
            "latency",
            "--fault hang@bench_iteration:2 --fault ignore-sigterm",
        ),
        (
            "bench 1/1",
            "100ms",
            "throughput",
            "--fault hang@bench_start --fault orphan=setsid",
        ),
        ("observe", "100ms", "none", ""),
    ] {
        let results = Results::new();
        let (dir, baseline, bench) = (
            results.arg(),
            format!("--baseline={baseline}"),
            format!("--bench={bench}"),
        );
        let extra = format!("--extra-engine-args={SMALL} {fault}");
        let mut live = Live::start(plimsoll(&[
            "profile",
            &engine.name,
            "-m",
            "m",
            &dir,
            &baseline,
            &bench,
            &extra,
        ]));
        live.until(phase);
        if !fault.is_empty() {
            engine.wait_for_process("bench");
        }
        interrupted(live, Signal::INT);
        kept(&results);
        assert_eq!(engine.processes(), before, "{phase} {fault}");
        assert_eq!(engine.leftovers(), [""; 0], "{phase} {fault}");
    }
}

/// While the installed bench is asked for its flags: nothing has begun, so nothing is kept.
#[test]
fn while_the_bench_tells_its_flags() {
    needs!(Docker);
    let script = "mkdir -p /bin /tmp; printf '#!/bin/sh\\nsleep 6000\\n' > /bin/vllm; chmod 755 /bin/vllm; exec sleep 5000";
    let container = TestContainer::run("int-help", &[], script);
    wait_for("the script", || {
        docker(&["exec", &container.id, "sh", "-c", "test -x /bin/vllm"]).ok()
    });
    for signal in [Signal::INT, Signal::TERM] {
        let results = Results::new();
        let live = Live::start(plimsoll(&[
            "profile",
            &container.name,
            "--engine=vllm",
            "-m",
            "m",
            &results.arg(),
        ]));
        wait_for("the question", || {
            (!container.processes_with("sleep 6000").is_empty()).then_some(())
        });
        interrupted(live, signal);
        assert_eq!(container.processes_with("6000"), []);
        results.is_empty();
    }
}

#[test]
fn of_a_serving_containers_run() {
    needs!(Docker, OwnsProcesses, ReferenceEngine);
    let small: Vec<&str> = SMALL.split(' ').collect();
    let engine = Engine::serving("int-serving", &[], &small);
    let before = engine.processes();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let results = Results::new();
        let dir = results.arg();
        let mut live = Live::start(plimsoll(&[
            "profile",
            &engine.name,
            "--baseline=100ms",
            "--num-prompts=100000",
            &dir,
        ]));
        live.until("bench 1/1");
        interrupted(live, signal);
        let document = kept(&results);
        // Its load was measured until then.
        assert!(
            document["memory_breakdown"]["activations_gb"]
                .as_f64()
                .is_some()
        );
        assert_eq!(
            engine.processes(),
            before,
            "the server goes on, its client does not"
        );
    }
}

#[test]
fn while_a_container_of_ours_runs() {
    needs!(Docker, ReferenceEngine);
    for (phase, fault, flags) in [
        ("wait until healthy", "hang@weights_loaded", &[][..]),
        ("baseline", "none", &["--baseline=600s"]),
        ("warm-up 1/1", "hang@warmup_start", &["--baseline=100ms"]),
        ("bench 1/1", "hang@bench_start", &["--baseline=100ms"]),
    ] {
        let results = Results::new();
        let name = unique("int-run");
        let (dir, env) = (results.arg(), format!("--env=REFERENCE_FAULT={fault}"));
        let mut args = vec!["run", "--preset=reference", "--name", &name, &dir];
        if fault != "none" {
            args.push(&env);
        }
        args.extend(flags);
        let mut live = Live::start(plimsoll(&args));
        live.until(phase);
        interrupted(live, Signal::INT);
        kept(&results);
        assert!(
            docker(&["inspect", &name]).is_err(),
            "{phase}: it is removed"
        );
    }
}

/// Whatever is under way is left as it is; labels say whose it was.
#[test]
fn asked_twice_it_leaves_at_once() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let name = unique("int-twice");
    // An engine that takes no SIGTERM keeps the first Ctrl-C waiting for half a minute.
    let env = "--env=REFERENCE_FAULT=hang@weights_loaded,ignore-sigterm";
    let dir = results.arg();
    let mut live = Live::start(plimsoll(&[
        "run",
        "--preset=reference",
        "--name",
        &name,
        env,
        &dir,
    ]));
    live.until("wait until healthy");
    let left = scopeguard(&name);
    live.signal(Signal::INT);
    live.until("clean up");
    live.signal(Signal::INT);
    let ended = live.end();
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    let told = format!("`{name}` keeps running: docker rm -f {name}");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    // `stopping` is Podman's word for one that was told to end.
    let status = docker(&["inspect", "-f", "{{.State.Status}}", &name]).expect("it is there");
    assert!(
        ["running", "stopping"].contains(&status.as_str()),
        "{status}"
    );
    let labels = docker(&["inspect", "-f", "{{json .Config.Labels}}", &name]).expect("labels");
    for label in ["plimsoll.run", "plimsoll.owner", "plimsoll.created"] {
        assert!(labels.contains(label), "{labels}");
    }
    drop(left);
}

/// Removes the container when dropped.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", "-v", &self.0]);
    }
}

fn scopeguard(name: &str) -> Removed {
    Removed(docker(&["inspect", "-f", "{{.Id}}", name]).expect("id"))
}

/// `nohup` wants a run to outlive its terminal.
#[test]
fn a_run_under_nohup_goes_on() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("int-nohup");
    let results = Results::new();
    let dir = results.arg();
    let binary = env!("CARGO_BIN_EXE_plimsoll");
    let args = [
        binary,
        "profile",
        &engine.name,
        "--bench=none",
        "--baseline=100ms",
        &dir,
    ];
    let mut live = Live::start(command(Path::new("nohup"), &args));
    live.until("observe");
    live.signal(Signal::HUP);
    live.signal(Signal::HUP);
    assert!(live.is_running());
    interrupted(live, Signal::INT);
    kept(&results);
}

#[test]
fn a_container_to_be_kept_is_kept() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let name = unique("int-keep");
    let dir = results.arg();
    let args = [
        "run",
        "--preset=reference",
        "--name",
        &name,
        "--keep",
        "--baseline=600s",
        &dir,
    ];
    let mut live = Live::start(plimsoll(&args));
    live.until("baseline");
    let left = scopeguard(&name);
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(
        ended.stderr.contains(&format!("`{name}` keeps running")),
        "{}",
        ended.stderr
    );
    assert_eq!(
        docker(&["inspect", "-f", "{{.State.Running}}", &name]).as_deref(),
        Ok("true")
    );
    drop(left);
}

/// Killed outright it can tidy nothing up, and yet it is in nobody's way.
#[test]
fn a_lock_ends_with_its_holder() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("int-kill");
    let results = Results::new();
    let dir = results.arg();
    let args = [
        "profile",
        &engine.name,
        "--bench=none",
        "--baseline=100ms",
        &dir,
    ];
    let mut live = Live::start(plimsoll(&args));
    live.until("observe");
    live.signal(Signal::KILL);
    assert_eq!(live.end().code(), -1);
    // The next run is not refused, and the half capture of the first is not in its way.
    let mut live = Live::start(plimsoll(&args));
    live.until("observe");
    interrupted(live, Signal::INT);
    assert_eq!((results.profiles().len(), results.captures().len()), (1, 2));
}
