//! Deaths of the real vLLM (on CPU), and what `why` says of them. How long each call took is printed.

use crate::common;
use common::docker;
use common::e2e::{Engine, models, older_vllm, run, vllm_image};
use serde_json::Value;
use std::time::Instant;

/// A vLLM with the tiny model mounted, and these arguments.
fn started(args: &[&str]) -> Engine {
    let volume = format!("{}:/models:ro", models().display());
    let options = ["--shm-size", "1g", "--env=HF_HUB_OFFLINE=1", "-v", &volume];
    Engine::run("death-vllm", &options, vllm_image(), args)
}

#[track_caller]
fn answers(dead: &Engine, cause: &str, word: &str) {
    docker(&["wait", &dead.id]).expect("its end");
    let began = Instant::now();
    let answer = run(&["why", &dead.name, "--json"]).expect(0);
    println!("{:.2} s: {cause}", began.elapsed().as_secs_f64());
    let found: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!(found["cause"], cause, "{found:#}");
    assert!(answer.stdout.contains(word), "{found:#}");
}

#[test]
fn a_flag_that_vllm_does_not_have() {
    needs!(Vllm);
    let dead = started(&["/models/tiny-llama", "--no-such-flag"]);
    answers(&dead, "bad_flag", "--no-such-flag");
}

#[test]
fn a_model_that_vllm_does_not_find() {
    needs!(Vllm);
    let dead = started(&["/models/no-such-model"]);
    answers(&dead, "model_not_found_or_gated", "no-such-model");
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
    let log = server.log();
    let (_, named) = log.split_once("(EngineCore pid=").expect("its pid");
    let pid = named.split(')').next().expect("its pid");
    let kill = format!("kill -9 {pid}");
    docker(&["exec", &server.id, "sh", "-c", &kill]).expect("killed");
    docker(&["wait", &server.id]).expect("its end");
    // vLLM does not print how its core ended, and ends with 0 itself: no cause is named.
    let answer = run(&["why", &server.name, "--json"]).expect(9);
    let found: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!(found["abstained"], true, "{found:#}");
    let last = older_vllm().map_or("EngineDeadError", |_| "Engine core proc EngineCore died");
    assert!(answer.stdout.contains(last), "{found:#}");
}
