//! Deaths of the real vLLM (on CPU), and what `why` says of them. How long each call took is printed.

use crate::common;
use common::docker;
use common::e2e::{Engine, VLLM_IMAGE, models, run};
use serde_json::Value;
use std::time::Instant;

/// A vLLM with the tiny model mounted, and these arguments.
fn started(args: &[&str]) -> Engine {
    let volume = format!("{}:/models:ro", models().display());
    let options = ["--shm-size", "1g", "--env=HF_HUB_OFFLINE=1", "-v", &volume];
    Engine::run("death-vllm", &options, VLLM_IMAGE, args)
}

#[track_caller]
fn answers(dead: &Engine, causes: &[&str], word: &str) {
    docker(&["wait", &dead.id]).expect("its end");
    let began = Instant::now();
    let answer = run(&["why", &dead.name, "--json"]).expect(0);
    println!("{:.2} s: {}", began.elapsed().as_secs_f64(), causes[0]);
    let found: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let cause = found["cause"].as_str().unwrap_or_default();
    assert!(causes.contains(&cause), "{found:#}");
    assert!(answer.stdout.contains(word), "{found:#}");
}

#[test]
fn a_flag_that_vllm_does_not_have() {
    needs!(Vllm);
    let dead = started(&["/models/tiny-llama", "--no-such-flag"]);
    answers(&dead, &["bad_flag"], "--no-such-flag");
}

#[test]
fn a_model_that_vllm_does_not_find() {
    needs!(Vllm);
    let dead = started(&["/models/no-such-model"]);
    answers(&dead, &["model_not_found_or_gated"], "no-such-model");
}

#[test]
fn an_engine_core_that_is_killed_under_vllm() {
    needs!(Vllm);
    let args = [
        "/models/tiny-llama",
        "--enforce-eager",
        "--max-model-len=2048",
        // Of the host's memory, on a CPU.
        "--gpu-memory-utilization=0.15",
    ];
    let server = started(&args);
    server.wait_for_log("Application startup complete");
    let kill = "for p in /proc/[0-9]*; do grep -qs EngineCore $p/cmdline && kill -9 ${p#/proc/}; done; true";
    docker(&["exec", &server.id, "sh", "-c", kill]).expect("killed");
    // By whom, the kernel's log tells where it may be read.
    let causes = ["killed_by_user_or_orchestrator", "host_ram_oom_kernel"];
    answers(&server, &causes, "SIGKILL");
}
