//! The transformers probe in a real container with torch and transformers (on CPU): its figures against
//! the model's own files and shapes. Slow: minutes.

use crate::common;
use common::docker;
use common::e2e::{Engine, Results, codes, models, parts_sum_to_the_peak, read, run, vllm_image};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};

const MODEL: &str = "/models/tiny-llama";

/// Of the tiny model: K and V, layers, key/value heads, size of a head.
const KV_ELEMENTS_PER_TOKEN: u64 = 2 * 4 * 2 * 64;

/// Each of these keeps every core busy.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn idle(what: &str) -> Engine {
    let volume = format!("{}:/models:ro", models().display());
    let options = ["-m", "4g", "-v", &volume, "--entrypoint", "sleep"];
    Engine::run(what, &options, vllm_image(), &["infinity"])
}

/// Bytes of all tensors, by the header of the checkpoint.
fn tensor_bytes() -> u64 {
    let file = std::fs::read(models().join("tiny-llama/model.safetensors")).expect("model");
    let length = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + length]).expect("header");
    let tensors = header.as_object().expect("object").values();
    tensors
        .filter_map(|t| {
            let at = |i: usize| t["data_offsets"][i].as_u64();
            Some(at(1)? - at(0)?)
        })
        .sum()
}

#[track_caller]
fn part(document: &Value, component: &str) -> u64 {
    let parts = document["memory_breakdown"]["components"]
        .as_array()
        .expect("components");
    let part = parts.iter().find(|p| p["component"] == component);
    part.and_then(|p| p["bytes"].as_u64())
        .unwrap_or_else(|| panic!("no {component}: {parts:#?}"))
}

#[track_caller]
fn nothing_is_left(engine: &Engine, before: &[String]) {
    assert_eq!(engine.processes(), before);
    let left = docker(&["exec", &engine.id, "sh", "-c", "ls -d /tmp/plimsoll*"]);
    assert!(left.is_err(), "a file is left: {left:?}");
}

#[test]
fn its_figures_are_those_of_the_models_files_and_shapes() {
    needs!(Docker, Vllm);
    let _alone = alone();
    let container = idle("probe");
    let before = container.processes();
    // The type of the weights decides both.
    for (dtype, size) in [("bfloat16", 2), ("float32", 4)] {
        let results = Results::new();
        let (dir, dtype_flag) = (results.arg(), format!("--dtype={dtype}"));
        let ended = run(&[
            "profile",
            &container.name,
            "--engine=transformers",
            "--model",
            MODEL,
            "--input-len=48",
            "--max-tokens=8",
            "--batch-size=3",
            "--num-iters=2",
            "--per-layer",
            &dtype_flag,
            &dir,
        ])
        .expect(0);
        nothing_is_left(&container, &before);

        let document = read(&results.profile());
        assert_eq!(document["metadata"]["outcome"], "completed");
        parts_sum_to_the_peak(&document);
        let memory = &document["torch_memory"];
        let stored = tensor_bytes();
        let weights = &memory["weights"];
        assert_eq!(weights["parameter_bytes"].as_u64(), Some(stored / 2 * size));
        assert_eq!(
            part(&document, "model_weights"),
            weights["bytes"].as_u64().expect("bytes")
        );
        let buffers = weights["buffer_bytes"].as_u64().expect("buffers");
        assert_eq!(
            part(&document, "model_weights"),
            stored / 2 * size + buffers
        );
        // The last generated token is in no cache.
        let kv = KV_ELEMENTS_PER_TOKEN * size * (48 + 8 - 1) * 3;
        assert_eq!(part(&document, "kv_cache"), kv);
        assert_eq!(memory["kv_cache"]["bytes"].as_u64(), Some(kv));
        let each = memory["kv_cache"]["bytes_per_token"].as_f64();
        assert_eq!(each, Some((KV_ELEMENTS_PER_TOKEN * size) as f64));

        assert_eq!(memory["measured_by"], "rss");
        let levels = &document["memory_breakdown"]["confidence_levels"];
        assert_eq!(levels["weights"], "high_from_torch_probe");
        // Where resident memory did not grow there is no figure, and a reason.
        if memory["activation_peak_bytes"].is_number() {
            assert_eq!(levels["activations"], "medium_from_torch_probe_rss");
        } else {
            assert!(document["unknown"]["torch_memory.activation_peak_bytes"].is_string());
        }
        assert!(codes(&document).contains(&"torch_by_rss"));
        assert!(!codes(&document).contains(&"witnesses_disagree"));
        assert_eq!(document["dtype_metadata"]["weights"], dtype);
        assert_eq!(
            document["model_info"]["num_parameters"].as_u64(),
            Some(stored / 2)
        );
        assert!(
            part(&document, "runtime") > 100 << 20,
            "torch and transformers"
        );

        let repeat = &document["latency_stats"]["repeats"][0]["result"];
        assert_eq!(repeat["latencies_ms"].as_array().map(Vec::len), Some(2));
        assert_eq!(repeat["total_output_tokens"].as_u64(), Some(2 * 3 * 8));
        let layers = document["layer_profile"]["layers"]
            .as_array()
            .expect("layers");
        let parameters: u64 = layers
            .iter()
            .filter_map(|l| l["parameter_bytes"].as_u64())
            .sum();
        assert_eq!(Some(parameters), weights["bytes"].as_u64());
        let operators = document["layer_profile"]["operators_by_memory"].as_array();
        assert!(operators.is_some_and(|o| !o.is_empty()));
        for block in ["Inside the process", "aten::", "Largest layers"] {
            assert!(ended.stdout.contains(block), "{block}: {}", ended.stdout);
        }
    }
}

#[test]
fn a_prompt_is_tokenized_and_shows_nowhere() {
    needs!(Docker, Vllm);
    let _alone = alone();
    let container = idle("probe-prompt");
    let results = Results::new();
    let dir = results.arg();
    let prompt = "Karomi ten sol, ver pli.";
    run(&[
        "profile",
        &container.name,
        "--engine=transformers",
        "--model",
        MODEL,
        "--prompt",
        prompt,
        "--max-tokens=4",
        "--num-iters=1",
        &dir,
    ])
    .expect(0);
    let document = read(&results.profile());
    let load = &document["torch_memory"]["load"];
    assert_eq!(load["prompt"], "given");
    let tokens = load["prompt_tokens"].as_u64().expect("tokens");
    assert!((2..=prompt.len() as u64).contains(&tokens), "{load}");
    let capture = results.profile().with_extension("capture");
    let stored: Value =
        serde_json::from_slice(&std::fs::read(capture.join("capture.json")).expect("capture"))
            .expect("json");
    let commands = stored["execs"].to_string();
    assert!(commands.contains("--prompt-file") && !commands.contains("Karomi"));
}

#[test]
fn what_cannot_be_run_is_told() {
    needs!(Docker, Vllm);
    let _alone = alone();
    let container = idle("probe-refused");
    let before = container.processes();
    let profile = |args: &[&str]| {
        let results = Results::new();
        let dir = results.arg();
        let mut command = vec!["profile", &container.name, "--engine=transformers", &dir];
        command.extend(args);
        run(&command)
    };
    // A model that is not there, in the probe's own words.
    profile(&["--model=/models/no-such-model"]).expect(4).says(
        &[
            "the bench ended with 4",
            "`/models/no-such-model` cannot be loaded",
        ],
        "the container does not have this model",
    );
    nothing_is_left(&container, &before);
    // A type that torch does not have; a bench that the engine does not have.
    let ended = profile(&["--model", MODEL, "--dtype=int3"]).expect(4);
    assert!(
        ended.error().contains("no floating point type"),
        "{}",
        ended.stderr
    );
    let ended = profile(&["--model", MODEL, "--bench=throughput"]).expect(2);
    assert!(
        ended.error().contains("has no throughput bench"),
        "{}",
        ended.stderr
    );
    // No torch: Debian's own Python in the same image has none.
    let options = ["-e", "PATH=/usr/bin:/bin", "--entrypoint", "sleep"];
    let bare = Engine::run("probe-bare", &options, vllm_image(), &["infinity"]);
    let results = Results::new();
    let dir = results.arg();
    let ended = run(&[
        "profile",
        &bare.name,
        "--engine=transformers",
        "--model=m",
        &dir,
    ]);
    let ended = ended.expect(3);
    assert!(
        ended.error().contains("has no torch and no transformers"),
        "{}",
        ended.stderr
    );
}

#[test]
fn elsewhere_its_flags_are_refused() {
    needs!(Docker, ReferenceEngine);
    let container = Engine::run(
        "probe-elsewhere",
        &[],
        common::e2e::REFERENCE_IMAGE,
        &["idle"],
    );
    for flags in [["--prompt=hello"], ["--per-layer"]] {
        let results = Results::new();
        let dir = results.arg();
        let mut command = vec!["profile", &container.name, "--model=m", &dir];
        command.extend(flags);
        let ended = run(&command).expect(2);
        assert!(
            ended.error().contains("is for the transformers probe"),
            "{}",
            ended.stderr
        );
    }
    // An image without any Python.
    let results = Results::new();
    let dir = results.arg();
    let command = [
        "profile",
        &container.name,
        "--engine=transformers",
        "--model=m",
        &dir,
    ];
    let ended = run(&command).expect(3);
    assert!(
        ended.error().contains("`python3` is not in the image"),
        "{}",
        ended.stderr
    );
}
