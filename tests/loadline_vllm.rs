//! The load line of a real vLLM (on CPU): predicted and measured within 10 % in under 10 rounds,
//! once where the KV pool is the limit and once where the scheduler is. Slow: minutes.

use crate::common;
use common::e2e::{Engine, Results, models, run, vllm_image};
use serde_json::Value;

/// Bytes of a block: 128 tokens of 2048 bytes.
const BLOCK: u64 = 128 * 2048;

/// Measures the line of an engine with these flags: the document.
fn line_of(what: &str, args: &[&str]) -> Value {
    let volume = format!("{}:/models:ro", models().display());
    let options = ["-m", "4g", "--shm-size", "1g", "-v", &volume];
    let common = [
        "/models/tiny-llama",
        "--enforce-eager",
        "--max-model-len=2048",
    ];
    let args: Vec<&str> = common.iter().chain(args).copied().collect();
    let server = Engine::run(what, &options, vllm_image(), &args);
    server.wait_for_log("Application startup complete");
    let results = Results::new();
    let dir = results.arg();
    let load = ["--input-len=128", "--output-len=256", "--waves=2", "--json"];
    let mut command = vec!["loadline", &server.name, &dir];
    command.extend(load);
    serde_json::from_str(&run(&command).expect(0).stdout).expect("JSON")
}

#[track_caller]
fn holds(line: &Value, predicted: u64, resource: &str) {
    assert_eq!(line["simulated"], false);
    assert_eq!(
        line["prediction"]["concurrency"].as_u64(),
        Some(predicted),
        "{:#}",
        line["prediction"]
    );
    assert_eq!(line["prediction"]["resource"], resource);
    let measured = &line["measured"];
    assert_eq!(measured["closed"], true, "{line:#}");
    let found = measured["concurrency"].as_u64().expect("a line");
    let off = found.abs_diff(predicted) as f64 / predicted as f64;
    assert!(
        off <= 0.10,
        "{found} measured of {predicted}: {:#}",
        line["rounds"]
    );
    assert!(line["rounds"].as_array().is_some_and(|r| r.len() < 10));
    assert_eq!(line["limiting"], resource, "{:#}", line["rounds"]);
}

#[test]
fn the_line_is_predicted_within_ten_percent() {
    needs!(Docker, Vllm);
    // 97 blocks, one of them never given away; a request takes 3.
    let pool = format!("--kv-cache-memory-bytes={}", 97 * BLOCK);
    let line = line_of("loadline-vllm-pool", &[&pool, "--max-num-seqs=256"]);
    holds(&line, 32, "kv_pool");
    let failed = line["rounds"]
        .as_array()
        .and_then(|all| all.iter().find(|r| r["held"] == false));
    let failed = failed.expect("a round that failed");
    assert!(
        failed["seen"]["preemptions"].as_u64() > Some(0),
        "{failed:#}"
    );

    let pool = format!("--kv-cache-memory-bytes={}", 1024 * BLOCK);
    let line = line_of("loadline-vllm-seqs", &[&pool, "--max-num-seqs=24"]);
    holds(&line, 24, "sequences");
    assert!(
        line["advice"][0]
            .as_str()
            .is_some_and(|a| a.contains("--max-num-seqs"))
    );
}
