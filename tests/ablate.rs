//! `ablate` and `cuda-graphs` by the real binary: on the reference engine against a truth, and on
//! a stand-in for TensorRT-LLM in a container.

use crate::common;
use common::e2e::{Engine, Live, Results, codes, plimsoll, read, run, skip, vllm_image};
use common::{docker, has_image};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;

const MIB: f64 = 1024.0 * 1024.0;

/// JSON documents directly in a folder of the results.
fn documents(results: &Results, folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(results.0.path().join(folder));
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    found.sort();
    found
}

#[track_caller]
fn comparison(results: &Results) -> Value {
    let found = documents(results, "ablations");
    assert_eq!(found.len(), 1, "{found:?}");
    read(&found[0])
}

fn difference(document: &Value, key: &str) -> f64 {
    let rows = document["comparison"]["components"].as_array().unwrap();
    let row = rows.iter().find(|r| r["key"] == key).unwrap();
    row["difference"].as_f64().unwrap() / MIB
}

#[test]
fn the_difference_that_is_found_is_the_true_one() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("ablate-truth");
    engine.wait_for_process("/reference-engine idle");
    let before = engine.processes();
    let results = Results::new();
    let ended = run(&[
        "ablate",
        &engine.name,
        &results.arg(),
        "-m=reference/truth",
        "--extra-engine-args=--activation-ms 30 --settle-ms 600",
        "--a=--weights 64MiB --kv-pool 256MiB --activation 32MiB",
        "--b=--weights 160MiB --kv-pool 96MiB --activation 112MiB",
        "--a-name=small weights",
        "--b-name=large weights",
        "--num-iters=3",
        "--baseline=1s",
        "--repeats=3",
    ])
    .expect(0);
    assert_eq!(engine.processes(), before);

    let document = comparison(&results);
    for (key, truth) in [
        ("model_weights", 96.0),
        ("kv_cache", -160.0),
        ("activations", 80.0),
    ] {
        let found = difference(&document, key);
        assert!(
            (found - truth).abs() <= 2.0,
            "{key}: {found} MiB, {truth} true"
        );
    }
    // Every part together is the difference of the peaks.
    let c = &document["comparison"];
    let parts = c["components"].as_array().unwrap();
    let parts: f64 = parts.iter().filter_map(|r| r["difference"].as_f64()).sum();
    assert_eq!(
        Some(parts + c["remainder"]["difference"].as_f64().unwrap()),
        c["total"]["difference"].as_f64()
    );
    // In turn, each with a profile and a capture of its own.
    let orders = |arm: &str| -> Vec<u64> {
        let runs = document[arm]["runs"].as_array().unwrap();
        runs.iter().map(|r| r["order"].as_u64().unwrap()).collect()
    };
    assert_eq!((orders("a"), orders("b")), (vec![1, 3, 5], vec![2, 4, 6]));
    assert_eq!((results.profiles().len(), results.captures().len()), (6, 6));
    for arm in ["a", "b"] {
        for run in document[arm]["runs"].as_array().unwrap() {
            let file = results
                .0
                .path()
                .join("memory-profiles")
                .join(run["profile"].as_str().unwrap());
            assert!(file.is_file(), "{}", file.display());
        }
    }
    assert_eq!(document["simulated"], true);
    for words in [
        "SIMULATED",
        "A = small weights: --weights 64MiB",
        "Model weights",
        "+96.",
        "beyond noise",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
}

#[test]
fn a_container_that_serves_is_refused() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::serving(
        "ablate-serving",
        &[],
        &[
            "--weights",
            "8MiB",
            "--kv-pool",
            "8MiB",
            "--activation",
            "4MiB",
        ],
    );
    let results = Results::new();
    run(&[
        "ablate",
        &engine.name,
        &results.arg(),
        "--a=--weights 1MiB",
        "--b=",
    ])
    .expect(2)
    .says(&["serves already"], "start an idle container");
    results.is_empty();
    // What differs in nothing is no comparison; and this engine has no graphs.
    run(&["ablate", &engine.name, "--a=--x 1", "--b=--x  '1'"])
        .expect(2)
        .says(&["the arms do not differ"], "--a");
    run(&["cuda-graphs", &engine.name, "--model-path=/m"])
        .expect(2)
        .says(&["without CUDA graphs"], "plimsoll ablate");
}

#[test]
fn an_arm_that_fails_is_told_beside_the_other() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("ablate-fails");
    let results = Results::new();
    let small = "--weights 16MiB --kv-pool 16MiB --activation 8MiB";
    let failing = format!("--b={small} --fault crash@loading_weights");
    let ended = run(&[
        "ablate",
        &engine.name,
        &results.arg(),
        "-m=m",
        &format!("--a={small}"),
        &failing,
        "--num-iters=2",
        "--repeats=2",
    ])
    .expect(4);
    let document = comparison(&results);
    let runs = |arm: &str| document[arm]["runs"].as_array().unwrap().len();
    // It would fail again; the other arm goes on.
    assert_eq!((runs("a"), runs("b")), (2, 1), "{}", ended.stderr);
    let total = &document["comparison"]["total"];
    assert!(total["a"]["median"].as_f64().is_some());
    assert!(total["b"]["median"].is_null() && total["difference"].is_null());
    assert!(
        total["b"]["unknown"].as_str().unwrap().contains("failed"),
        "{total:#}"
    );
}

/// A container whose Python finds the stand-in; `None` where its image is not here.
fn stand_in(test: &str, what: &str, env: &[&str]) -> Option<Engine> {
    if !has_image(vllm_image()) {
        skip(
            test,
            "no image with Python: scripts/build-images vllm-cpu makes it",
        );
        return None;
    }
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/trtllm_stand_in"
    );
    let volume = format!("{folder}:/stand-in:ro");
    let mut options = vec![
        "-v",
        &volume,
        "-e",
        "PYTHONPATH=/stand-in",
        "--entrypoint",
        "sleep",
    ];
    options.extend(env.iter().flat_map(|e| ["-e", *e]));
    let engine = Engine::run(what, &options, vllm_image(), &["infinity"]);
    // Docker names it as running while it still sets it up.
    engine.wait_for_process("sleep infinity");
    Some(engine)
}

fn left_behind(engine: &Engine) -> bool {
    docker(&["exec", &engine.id, "sh", "-c", "ls -d /tmp/plimsoll*"]).is_ok()
}

const GRAPHS: [&str; 3] = [
    "--engine=trtllm",
    "--model_path=Llama-8B",
    "--max_batch_size=8",
];

#[test]
fn graphs_of_a_stand_in_for_tensorrt_llm() {
    needs!(Docker);
    let Some(engine) = stand_in(test_name!(), "graphs-stand-in", &["STAND_IN_ERA=D"]) else {
        return;
    };
    let before = engine.processes();
    let results = Results::new();
    let dir = results.arg();
    let mut command = vec![
        "cuda-graphs",
        &engine.name,
        &dir,
        "--low-mib=100",
        "--strong-mib=700",
    ];
    command.extend(GRAPHS);
    let ended = run(&command).expect(0);
    assert_eq!(engine.processes(), before);
    assert!(!left_behind(&engine), "a file is left");

    let found = documents(&results, "");
    assert_eq!(found.len(), 1, "{found:?}");
    let name = found[0].file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with("results_Llama-8B_2"), "{name}");
    let document = read(&found[0]);
    assert_eq!(document["simulated"], true);
    // Who shares the machine with other tests may be told of that.
    let mut told = codes(&document);
    told.retain(|code| *code != "host_overloaded");
    assert_eq!(told, ["simulated_engine"]);
    let arms = document["arms"].as_array().unwrap();
    assert_eq!(arms[0]["experiment"], "max_concurrency_None");
    assert_eq!(arms[0]["cuda_graphs_by_draft_len"]["draft_len_4"], 8);
    assert_eq!(arms[1]["experiment"], "max_concurrency_16");
    assert_eq!(arms[1]["num_cuda_graphs"], 16);
    for arm in arms {
        assert_eq!(
            arm["log"]["target"]["total"], arm["structure"]["total"],
            "{arm:#}"
        );
        assert!(arm["host"]["before_bytes"].as_u64().is_some(), "{arm:#}");
    }
    // 8 graphs of 100 MiB on the device, by what the stand-in says of it.
    let first = &document["analysis"]["overheads"][0];
    assert_eq!(first["overhead_mib"].as_f64(), Some(800.0));
    assert_eq!(first["mib_per_additional_graph"].as_f64(), Some(100.0));
    assert_eq!(document["analysis"]["reading"], "strong");
    for words in [
        "Running experiment: max_concurrency_None",
        "Running experiment: max_concurrency_16",
    ] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    for words in [
        "SIMULATED",
        "Analysis",
        "strong case",
        "above 700 MiB",
        "draft_len_0: 8",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
}

#[test]
fn trouble_of_a_stand_in_is_told_with_its_way_out() {
    needs!(Docker);
    for (fault, code, error, hint) in [
        ("oom", 4, "out of memory", "--max-batch-size"),
        ("missing", 3, "tensorrt_llm", "TensorRT-LLM image"),
    ] {
        let env = format!("STAND_IN_FAULT={fault}");
        let Some(engine) = stand_in(test_name!(), "graphs-trouble", &[&env]) else {
            return;
        };
        let results = Results::new();
        let dir = results.arg();
        let mut command = vec!["cuda-graphs", &engine.name, &dir];
        command.extend(GRAPHS);
        run(&command).expect(code).says(&[error], hint);
        assert!(!left_behind(&engine), "{fault}");
        let document = read(&documents(&results, "")[0]);
        assert!(document["arms"][0]["num_cuda_graphs"].is_null());
        assert!(document["analysis"]["reading"].is_null());
    }
}

#[test]
fn an_interrupted_probe_leaves_nothing_in_the_container() {
    needs!(Docker);
    let Some(engine) = stand_in(test_name!(), "graphs-hang", &["STAND_IN_FAULT=hang"]) else {
        return;
    };
    let before = engine.processes();
    let results = Results::new();
    let dir = results.arg();
    let mut command = vec!["cuda-graphs", &engine.name, &dir];
    command.extend(GRAPHS);
    let live = Live::start(plimsoll(&command));
    engine.wait_for_process("trtllm_cuda_graphs.py");
    live.signal(Signal::INT);
    live.end().expect(130);
    assert_eq!(engine.processes(), before);
    assert!(!left_behind(&engine));
    assert!(documents(&results, "").is_empty());
    // Neither does one that takes too long.
    command.push("--timeout=2s");
    run(&command).expect(4).says(&["within 2 s"], "--timeout");
    assert_eq!(engine.processes(), before);
    assert!(!left_behind(&engine));
}
