//! `estimate` as it is used: the real binary, models that ship or lie in files, questions, batches, mistakes.

use crate::common;
use crate::common::stage;
mod advice;
mod lines;
mod refusals;
mod sharing;

use common::e2e::{Ended, Live, plimsoll};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

const LLAMA_8B: &str = "meta-llama/Llama-3.1-8B";
const LLAMA_70B: &str = "meta-llama/Llama-3.1-70B";
const GIB: f64 = (1u64 << 30) as f64;

/// `estimate` with these words, where no cache of Hugging Face is.
fn command(words: &[&str]) -> Command {
    let mut all = vec!["estimate"];
    all.extend(words);
    let mut command = plimsoll(&all);
    command.env("HF_HUB_CACHE", "/nowhere");
    command
}

#[track_caller]
fn told(words: &[&str]) -> Ended {
    Live::start(command(words)).end()
}

#[track_caller]
fn document(words: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(words);
    serde_json::from_str(&told(&all).expect(0).stdout).unwrap()
}

/// Bytes of one term.
#[track_caller]
fn term_bytes(found: &Value, component: &str) -> u64 {
    let mut terms = found["terms"].as_array().unwrap().iter();
    let term = terms.find(|t| t["component"] == component).unwrap();
    term["bytes"].as_u64().unwrap()
}

/// A refusal: its exit code, and what it says.
#[track_caller]
fn refused(words: &[&str], code: i32) -> String {
    let ended = told(words).expect(code);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    ended.stderr
}

fn config(fields: Value) -> tempfile::NamedTempFile {
    let mut config = json!({
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16,
        "num_hidden_layers": 12, "num_key_value_heads": 4, "vocab_size": 32000,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    });
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    file.write_all(config.to_string().as_bytes()).unwrap();
    file
}

#[test]
fn the_cache_of_two_requests_is_what_the_geometry_says() {
    // 131,072 and 327,680 bytes a token: half a GiB for 2 x 2048, 0.625 for 2048.
    for (model, concurrency, gib) in [(LLAMA_8B, 2, 0.5), (LLAMA_70B, 1, 0.625)] {
        let table = document(&[
            model,
            "--table",
            "--concurrency",
            &concurrency.to_string(),
            "--lengths",
            "2048",
        ]);
        let cache = table["table"][0]["cache"].as_f64().unwrap() / GIB;
        assert_eq!(cache, gib, "{model}");
    }
}

#[test]
fn an_estimate_says_what_each_part_takes() {
    let words = [
        LLAMA_8B,
        "--gpu",
        "H100",
        "--engine-version",
        "0.19.0",
        "--max-model-len",
        "8192",
    ];
    let d = document(&words);
    let gpu = &d["per_gpu"];
    assert_eq!(gpu["kv_bytes_per_token"], 131_072);
    let weights = gpu["weights_gib"].as_f64().unwrap();
    assert!((14.9..15.1).contains(&weights), "{weights}");
    assert_eq!(d["fits"], true);
    assert_eq!(d["risk"], "low");
    assert!(d["max_concurrency"].as_f64().unwrap() > 40.0, "{d}");
    let names: Vec<&str> = d["terms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["component"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "weights",
            "kv_cache",
            "activation",
            "cuda_graphs",
            "non_torch"
        ]
    );

    let page = told(&words).expect(0);
    assert!(page.stderr.is_empty(), "{}", page.stderr);
    for part in [
        "weights",
        "KV cache",
        "activations",
        "non-torch",
        "8,192",
        "Fits; risk low",
    ] {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    assert!(!page.stdout.contains('\x1b'));
    let mut explained = words.to_vec();
    explained.push("--explain");
    let explained = told(&explained).expect(0).stdout;
    assert!(explained.lines().count() > page.stdout.lines().count() + 15);
    assert!(explained.contains("131,072"), "{explained}");
}

#[test]
fn the_end_tells_whether_it_fits() {
    let check = |words: &[&str]| {
        let mut all = vec![LLAMA_70B, "--check-oom", "--engine-version", "0.19.0"];
        all.extend(words);
        told(&all)
    };
    let one = check(&["--gpu", "H100"]).expect(6);
    assert!(one.stdout.contains("Does not fit"), "{}", one.stdout);
    check(&["--gpu", "H100", "--tp", "4"]).expect(0);
    // As many requests as nobody has room for.
    check(&["--gpu", "H100", "--tp", "4", "--concurrency", "100000"]).expect(6);
    let nowhere = check(&[]).expect(2);
    assert!(nowhere.stderr.contains("--gpu NAME"), "{}", nowhere.stderr);
    let risk = |words: &[&str]| {
        let mut all = vec![LLAMA_70B, "--risk", "--gpu", "H100", "--tp"];
        all.extend(words);
        told(&all).expect(0).stdout
    };
    assert_eq!(risk(&["1"]), "does-not-fit\n");
    assert_eq!(risk(&["8", "--max-model-len", "4096"]), "low\n");
}

#[test]
fn what_is_solved_for_fits_and_one_more_does_not() {
    let base = [
        LLAMA_8B,
        "--gpu",
        "L4",
        "--engine-version",
        "0.19.0",
        "--enforce-eager",
    ];
    let with = |more: &[&str]| {
        let mut all = base.to_vec();
        all.extend(more);
        document(&all)
    };
    let longest = with(&["--solve", "max-model-len", "--concurrency", "2"]);
    let n = longest["solve"]["value"].as_f64().unwrap() as u64;
    assert!((1000..131_072).contains(&n), "{longest}");
    let at = |n: u64| {
        with(&["--max-model-len", &n.to_string(), "--concurrency", "2"])["max_concurrency"]
            .as_f64()
            .unwrap()
    };
    assert!(
        at(n) >= 2.0 && at(n + 200) < 2.0,
        "{n}: {} {}",
        at(n),
        at(n + 200)
    );

    let gpus = document(&[
        LLAMA_70B,
        "--gpu",
        "H100",
        "--max-model-len",
        "8192",
        "--solve",
        "min-gpus",
    ]);
    assert_eq!(gpus["solve"]["value"], 2.0, "{gpus}");
    let share = with(&[
        "--max-model-len",
        "2048",
        "--solve",
        "gpu-memory-utilization",
    ]);
    let share = share["solve"]["value"].as_f64().unwrap();
    assert!((0.7..1.0).contains(&share), "{share}");
    let page = told(&[
        LLAMA_8B,
        "--gpu",
        "H100",
        "--max-model-len",
        "8192",
        "--solve",
        "max-concurrency",
    ])
    .expect(0);
    assert!(
        page.stdout.contains("\nmax-concurrency "),
        "{}",
        page.stdout
    );
    let batch = with(&["--max-model-len", "1024", "--solve", "max-batch"]);
    assert!(batch["solve"]["value"].as_f64().unwrap() >= 1.0, "{batch}");
    // On a card that is too small there is no answer, and that is one.
    let none = told(&[
        LLAMA_70B,
        "--gpu",
        "T4",
        "--max-model-len",
        "64",
        "--solve",
        "max-concurrency",
    ])
    .expect(0);
    assert!(
        none.stdout.contains("max-concurrency: none"),
        "{}",
        none.stdout
    );
}

#[test]
fn gpus_are_recommended_smallest_first() {
    let found = document(&[
        LLAMA_8B,
        "--recommend-gpu",
        "--max-model-len",
        "8192",
        "--concurrency",
        "4",
    ]);
    let found = found["recommend"].as_array().unwrap();
    assert!(found.len() > 10);
    let sizes: Vec<u64> = found
        .iter()
        .map(|c| c["memory"].as_u64().unwrap() * c["count"].as_u64().unwrap())
        .collect();
    assert!(sizes.is_sorted(), "{sizes:?}");
    for c in found {
        assert!(c["headroom"].as_f64().unwrap() >= 1.0, "{c}");
    }
    assert!(
        found
            .iter()
            .all(|c| c["gpu"] != "Tesla T4" || c["count"].as_u64() > Some(1)),
        "16 GB of weights"
    );
}

#[test]
fn a_command_line_of_the_engine_is_read() {
    let d = document(&[
        "--gpu",
        "H100",
        "--engine-version",
        "0.19.0",
        "--",
        "vllm",
        "serve",
        LLAMA_70B,
        "-tp",
        "4",
        "--max-model-len",
        "8K",
        "--kv-cache-dtype",
        "fp8",
    ]);
    // 8 heads over 4 GPUs, 80 layers, one byte.
    assert_eq!(d["per_gpu"]["kv_bytes_per_token"], 2 * 2 * 128 * 80);
    let said = refused(&["--gpu", "H100", "--", "ls", "-l"], 2);
    assert!(said.contains("starts no engine"), "{said}");
    let said = refused(
        &[
            "--gpu",
            "H100",
            "--",
            "vllm",
            "serve",
            LLAMA_8B,
            "--max-model-len",
            "many",
        ],
        2,
    );
    assert!(
        said.contains("invalid number in `--max-model-len many`"),
        "{said}"
    );
}

#[test]
fn flags_that_are_not_modelled_are_named_and_do_not_fit_for_sure() {
    let words = |more: &[&'static str]| {
        let mut all = vec![
            "--gpu",
            "H100",
            "--engine-version",
            "0.19.0",
            "--",
            "vllm",
            "serve",
            LLAMA_8B,
        ];
        all.extend(more);
        all
    };
    let plain = document(&words(&["--max-model-len", "8192", "--seed", "3"]));
    assert_eq!(
        (plain["fits"].clone(), plain["unmodelled"].clone()),
        (json!(true), json!([]))
    );
    for (flags, name) in [
        (
            &[
                "--speculative-config",
                "{\"method\":\"mtp\",\"num_speculative_tokens\":2}",
            ][..],
            "speculative decoding (mtp)",
        ),
        (&["--no-such-flag", "3"], "--no-such-flag (unknown flag)"),
        (
            &[
                "--compilation-config",
                "{\"pass_config\":{\"fuse_norm_quant\":true}}",
            ],
            "--compilation-config.pass-config",
        ),
    ] {
        let d = document(&words(flags));
        assert_eq!(d["fits"], Value::Null, "{flags:?}: {}", d["reason"]);
        assert_eq!(d["unmodelled"][0]["name"], name, "{flags:?}");
        assert!(d["reason"].as_str().unwrap().contains(name), "{d}");
        for term in d["unmodelled"][0]["terms"].as_array().unwrap() {
            let found = d["terms"]
                .as_array()
                .unwrap()
                .iter()
                .find(|t| t["component"] == *term);
            assert_eq!(
                (&found.unwrap()["band"], &found.unwrap()["bytes"]),
                (&Value::Null, &Value::Null),
                "{name}"
            );
        }
    }
    let mut check = vec!["--check-oom"];
    check.extend(words(&["--no-such-flag", "3"]));
    let ended = told(&check).expect(3);
    assert!(
        ended.stdout.contains("Unknown whether it fits"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.contains("--no-such-flag"), "{}", ended.stderr);
    // What is needed at least is more than there is: that is a no, whatever else is not known.
    let large = [
        "--check-oom",
        "--gpu",
        "H100",
        "--",
        "vllm",
        "serve",
        LLAMA_70B,
        "--no-such-flag",
        "3",
    ];
    let unsure = told(&large).expect(3);
    assert!(
        unsure.stderr.contains("--no-such-flag"),
        "an unknown flag may move the weights"
    );
    let large = [
        "--check-oom",
        "--gpu",
        "H100",
        "--",
        "vllm",
        "serve",
        LLAMA_70B,
        "--disable-chunked-mm-input",
    ];
    let page = told(&large).expect(6).stdout;
    assert!(
        page.contains("Does not fit") && page.contains("--disable-chunked-mm-input"),
        "{page}"
    );
}

#[test]
fn figures_without_their_key_and_value_heads_say_so() {
    let words = [
        "--model-params",
        "8.03B",
        "--num-layers",
        "32",
        "--num-heads",
        "32",
        "--head-dim",
        "128",
        "--hidden-size",
        "4096",
        "--vocab-size",
        "128256",
        "--max-model-len",
        "16384",
        "--gpu",
        "RTX 4090",
    ];
    let d = document(&words);
    assert!(
        d["unmodelled"][0]["name"]
            .as_str()
            .unwrap()
            .contains("--num-kv-heads"),
        "{d}"
    );
    assert_eq!(
        d["fits"],
        Value::Null,
        "grouped heads may make it fit: {}",
        d["reason"]
    );
    let readings = "in 16 bits a token takes 512.00 KiB of cache with one for each of the 32 attention heads, 128.00 KiB with 8";
    assert!(
        d["warnings"].to_string().contains(readings),
        "{}",
        d["warnings"]
    );
    let mut grouped = words.to_vec();
    grouped.extend(["--num-kv-heads", "8"]);
    let grouped = document(&grouped);
    assert_eq!(
        (grouped["fits"].clone(), grouped["unmodelled"].clone()),
        (json!(true), json!([]))
    );
    assert!(!grouped["warnings"].to_string().contains("--num-kv-heads"));
    // Without the vocabulary the weights and the cache of a token are known, and a GPU too small for these.
    let d = document(&[
        "--model-params",
        "70B",
        "--num-layers",
        "80",
        "--num-heads",
        "64",
        "--num-kv-heads",
        "8",
        "--head-dim",
        "128",
        "--hidden-size",
        "8192",
        "--max-model-len",
        "8192",
        "--gpu",
        "RTX 4090",
    ]);
    assert_eq!(d["fits"], false, "{}", d["reason"]);
    assert_eq!(d["per_gpu"]["kv_bytes_per_token"], 327_680);
}

#[test]
fn a_model_may_be_a_file_or_figures() {
    let file = config(json!({}));
    let path = file.path().to_str().unwrap();
    let d = document(&["--config", path]);
    // 2 * 4 heads * 64 * 12 layers * 2 bytes.
    assert_eq!(d["per_gpu"]["kv_bytes_per_token"], 12_288);
    assert_eq!(d["fits"], Value::Null, "no GPU is named");
    let page = told(&["--config", path]).expect(0).stdout;
    assert!(
        page.contains("name it with --gpu") || page.contains("give --gpu"),
        "{page}"
    );
    let d = document(&[
        "--model-params",
        "8.03B",
        "--num-layers",
        "32",
        "--num-heads",
        "32",
        "--num-kv-heads",
        "8",
        "--head-dim",
        "128",
        "--hidden-size",
        "4096",
        "--max-model-len",
        "2048",
        "--gpu-memory",
        "24GiB",
    ]);
    assert_eq!(d["per_gpu"]["kv_bytes_per_token"], 131_072);
    let said = refused(&["--num-layers", "32"], 3);
    assert!(said.contains("--num-heads"), "{said}");
    let said = refused(&["--config", path, "--num-layers", "3"], 2);
    assert!(said.contains("both describe the model"), "{said}");
}

#[test]
fn a_draft_model_takes_its_part() {
    let words = [
        LLAMA_70B,
        "--gpu",
        "H100",
        "--tp",
        "4",
        "--engine-version",
        "0.19.0",
        "--max-model-len",
        "8192",
    ];
    let alone = document(&words);
    let mut with = words.to_vec();
    with.extend(["--draft-model", LLAMA_8B]);
    let both = document(&with);
    let gib = |d: &Value, key: &str| d["per_gpu"][key].as_f64().unwrap();
    assert!((gib(&both, "weights_gib") - gib(&alone, "weights_gib")).abs() < 0.01);
    let less = gib(&alone, "kv_pool_gib") - gib(&both, "kv_pool_gib");
    assert!((3.7..4.3).contains(&less), "a quarter of 15 GiB: {less}");
    let per_token = |d: &Value| d["per_gpu"]["kv_bytes_per_token"].as_u64().unwrap();
    assert_eq!(per_token(&both) - per_token(&alone), 131_072 / 4);
    assert!(
        both["terms"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["component"] == "draft")
    );
}

#[test]
fn every_line_of_a_batch_has_its_answer() {
    let mut lines: Vec<String> = Vec::new();
    let case = |id: &str, more: Value| {
        let mut line = json!({"id": id, "model": LLAMA_8B, "engine": "vllm", "engine_version": "0.14", "gpu": "H100",
            "gpu_total_gib": 79.18, "max_model_len": 16000, "nobody_knows": {"this": [1]}});
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        line.to_string()
    };
    lines.push(case("first", json!({})));
    lines.push("{\"id\": \"torn".into());
    lines.push(case("no such model", json!({"model": "acme/nothing"})));
    lines.push(case("negative", json!({"max_model_len": -3})));
    lines.push(case("three of 32", json!({"tp": 3})));
    lines.push("[]".into());
    lines.push("  ".into());
    lines.push(format!("\"{}\"", "x".repeat(9 << 20)));
    lines.push(case("last", json!({"tp": 2})));
    let text = lines.join("\n");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let ended = told(&["--batch", file.path().to_str().unwrap(), "--json"]).expect(0);
    let answers: Vec<Value> = ended
        .stdout
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let ids: Vec<&Value> = answers.iter().map(|a| &a["id"]).collect();
    assert_eq!(
        ids,
        [
            &json!("first"),
            &Value::Null,
            &json!("no such model"),
            &json!("negative"),
            &json!("three of 32"),
            &Value::Null,
            &Value::Null,
            &json!("last")
        ]
    );
    for (i, answer) in answers.iter().enumerate() {
        let answered = i == 0 || i == 7;
        assert_eq!(answer["error"].is_null(), answered, "{answer}");
        assert_eq!(
            answer["per_gpu"]["weights_gib"].is_f64(),
            answered,
            "{answer}"
        );
    }
    // From standard input the same.
    let mut child = command(&["--batch", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), ended.stdout);
}

#[test]
fn mistakes_are_told_with_a_way_out() {
    let unknown = config(json!({"model_type": "abacus"}));
    let said = refused(&["--config", unknown.path().to_str().unwrap()], 3);
    assert!(
        said.contains("`abacus` is not known") && said.contains("--num-layers"),
        "{said}"
    );
    let mut broken = tempfile::NamedTempFile::new().unwrap();
    broken.write_all(b"{\"model_type\": \"llama\", ").unwrap();
    let said = refused(&["--config", broken.path().to_str().unwrap()], 3);
    assert!(said.contains("JSON"), "{said}");
    let said = refused(&["--config", "/nowhere/config.json"], 2);
    assert!(said.contains("/nowhere/config.json"), "{said}");
    let said = refused(&["acme/nothing", "--gpu", "H100"], 2);
    assert!(
        said.contains("acme/nothing") && said.contains("--config"),
        "{said}"
    );
    let said = refused(&[LLAMA_8B, "--gpu", "Voodoo 2"], 2);
    assert!(said.contains("plimsoll gpus"), "{said}");
    let said = refused(&[LLAMA_8B, "--gpu", "H100", "--tp", "3"], 2);
    assert!(said.contains("32 attention heads"), "{said}");
    for (flag, value) in [
        ("--max-model-len", "0"),
        ("--max-model-len", "-5"),
        ("--max-model-len", "many"),
        ("--tp", "0"),
        ("--gpu-memory-utilization", "1.5"),
        ("--gpu-memory", "big"),
        ("--model-params", "0"),
        ("--concurrency", "0"),
    ] {
        let said = refused(&[LLAMA_8B, &format!("{flag}={value}")], 2);
        assert!(
            said.contains("must be") || said.contains("invalid size"),
            "{flag} {value}: {said}"
        );
    }
    refused(&["--batch", "/nowhere/cases.jsonl", "--json"], 2);
    refused(&["--batch", "-"], 2);
    refused(&[], 2);
    // Beyond what the model reads is possible, and said.
    let page = told(&[LLAMA_8B, "--gpu", "H100", "--max-model-len", "200000"])
        .expect(0)
        .stdout;
    assert!(page.contains("131072 positions"), "{page}");
}

#[test]
fn figures_that_make_no_sense_end_in_words() {
    let huge = u64::MAX.to_string();
    for fields in [
        json!({"hidden_size": u64::MAX}),
        json!({"num_hidden_layers": 1u64 << 60}),
        json!({"vocab_size": -1}),
        json!({"num_attention_heads": 0}),
        json!({"num_key_value_heads": 0}),
        json!({"max_position_embeddings": u64::MAX}),
        json!({"intermediate_size": 1.5e300}),
        json!({"rope_scaling": {"factor": 1e300, "rope_type": "yarn"}}),
    ] {
        let file = config(fields.clone());
        let ended = told(&[
            "--config",
            file.path().to_str().unwrap(),
            "--gpu",
            "H100",
            "--concurrency",
            &huge,
        ]);
        let code = ended.code();
        assert!(
            [0, 2, 3].contains(&code),
            "{fields}: {code} {}",
            ended.stderr
        );
        assert!(
            !ended.stderr.contains("panicked") && !ended.stderr.contains("bug in"),
            "{fields}: {}",
            ended.stderr
        );
    }
    let most = told(&[
        "--model-params",
        "9e17",
        "--num-layers",
        "100000",
        "--num-heads",
        "64",
        "--head-dim",
        "4096",
        "--hidden-size",
        "262144",
        "--gpu-memory",
        "16EiB",
    ]);
    assert!([0, 2, 3].contains(&most.code()), "{}", most.stderr);
}

#[test]
fn the_gpu_that_is_here_is_planned_for() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("scenario");
    std::fs::write(
        &scenario,
        "gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3\nat 0 gpu 0 used=70000 power=1 temp=1 util=0\n",
    )
    .unwrap();
    let mut command = command(&[
        LLAMA_8B,
        "--gpu",
        "detected",
        "--max-model-len",
        "8192",
        "--check-oom",
    ]);
    command
        .arg("--nvml-lib")
        .arg(stage::library())
        .env(stage::SCENARIO_VARIABLE, &scenario);
    let ended = Live::start(command).end().expect(6);
    assert!(
        ended
            .stdout
            .contains("H100 80GB HBM3, 79.18 GiB, 68.36 GiB in use"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("Does not fit"), "{}", ended.stdout);
}

#[test]
fn graphs_that_are_switched_off_take_nothing() {
    for line in [
        "vllm serve Qwen/Qwen3-8B -O0",
        "vllm serve Qwen/Qwen3-8B --optimization-level 0",
        "vllm serve Qwen/Qwen3-8B -cc '{\"cudagraph_mode\": \"NONE\"}'",
        "vllm serve Qwen/Qwen3-8B --compilation-config.cudagraph_mode none",
        "sglang serve Qwen/Qwen3-8B --disable-cuda-graph",
        "sglang serve Qwen/Qwen3-8B --cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled",
        "text-generation-launcher --model-id Qwen/Qwen3-8B --cuda-graphs 0",
    ] {
        let d = document(&["--gpu", "H100", "--", line]);
        let graphs = d["terms"].as_array().unwrap().iter();
        let graphs = graphs.into_iter().find(|t| t["component"] == "cuda_graphs");
        assert_eq!(graphs.unwrap()["bytes"], 0, "{line}");
        assert_eq!(
            (&d["fits"], &d["unmodelled"]),
            (&json!(true), &json!([])),
            "{line}"
        );
    }
    let half = "sglang serve Qwen/Qwen3-8B --cuda-graph-backend-decode disabled";
    let d = document(&["--gpu", "H100", "--", half]);
    assert_eq!(d["unmodelled"][0]["name"], "--cuda-graph-backend-decode");
}

#[test]
fn engines_that_shorten_their_context_start() {
    // TGI and llama.cpp take what fits; vLLM refuses.
    let on_l4 = |engine: &str, more: &[&str]| {
        let words = ["Qwen/Qwen3-8B", "--gpu", "L4", "--engine", engine];
        document(&[&words[..], more].concat())
    };
    assert_eq!(on_l4("vllm", &[])["fits"], false);
    let tgi = on_l4("tgi", &[]);
    assert!(
        tgi["warnings"]
            .to_string()
            .contains("TGI takes the longest length that fits: 27,")
    );
    assert_ne!(tgi["fits"], json!(false));
    let given = on_l4("tgi", &["--max-model-len", "40960"]);
    assert_eq!(given["fits"], false);
    let words = [
        "Qwen/Qwen3-14B",
        "--gpu",
        "RTX 5090",
        "--engine",
        "llama.cpp",
    ];
    assert_eq!(document(&words)["fits"], true);
    let whole = document(&[&words[..], &["--max-model-len", "40960"]].concat());
    assert_eq!(whole["fits"], false, "a length that is given is kept");
    // `-c 0` is the model's own.
    let own = [
        "--gpu",
        "H100",
        "--",
        "llama-server",
        "-m",
        "Qwen/Qwen3-8B",
        "-c",
        "0",
    ];
    assert_eq!(document(&own)["max_model_len"], 40_960);
}

#[test]
fn a_tag_of_ollama_is_its_model_and_format() {
    // A model that is named wins over that of the command line, which may have none.
    let named = document(&["qwen3:8b", "--gpu", "RTX3090", "--", "ollama", "serve"]);
    let tagged = document(&["qwen3:8b", "--gpu", "RTX3090", "--engine", "ollama"]);
    assert_eq!(named["per_gpu"], tagged["per_gpu"]);
    let weights = |name: &str| {
        let found = document(&[name, "--engine", "ollama", "--gpu", "L4"]);
        found["per_gpu"]["weights_gib"].as_f64().unwrap()
    };
    // Ollama's pages list 5.2 and 8.5 GB, of which the embedding stays on the host.
    assert!((4.2..4.8).contains(&weights("qwen3:8b")));
    assert!((7.2..8.0).contains(&weights("llama3.1:8b-instruct-q8_0")));
    assert!(refused(&["qwen3:9b", "--engine", "ollama"], 2).contains("is not known"));
}

#[test]
fn the_document_fits_only_with_the_requests_that_are_asked_for() {
    let fits = |concurrency: &str| {
        let words = ["Qwen/Qwen3-8B", "--gpu", "L4", "--max-model-len", "8192"];
        document(&[&words[..], &["--concurrency", concurrency]].concat())["fits"].clone()
    };
    assert_eq!((fits("2"), fits("3")), (json!(true), json!(false)));
}

#[test]
fn a_start_that_compiles_holds_the_embedding_once_more() {
    let peak = |flags: &[&str]| {
        let page = document(&[flags, &["--max-model-len", "8192"]].concat());
        page["per_gpu"]["activation_gib"].as_f64().unwrap()
    };
    // vLLM printed a peak of 1.04 GiB on a card of 16 GB.
    let small = ["Qwen/Qwen2.5-7B-Instruct-AWQ", "--gpu", "RTX 4080"];
    assert!((1.0..1.06).contains(&peak(&small)));
    assert!(peak(&[&small[..], &["--enforce-eager"]].concat()) < 0.6);
    // The sampler of 1,024 requests takes more than a table of 1.16 GiB.
    let large = ["Qwen/Qwen3-8B", "--gpu", "H100"];
    let eager = peak(&[&large[..], &["--enforce-eager"]].concat());
    assert_eq!(peak(&large), eager);
}

#[test]
fn a_length_that_the_engine_chooses_is_the_longest_that_fits() {
    let words = [
        "--gpu",
        "RTX 4090",
        "--",
        "vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "--max-model-len",
    ];
    let auto = document(&[&words[..], &["auto"]].concat());
    assert_eq!(
        (&auto["fits"], &auto["unmodelled"]),
        (&json!(true), &json!([]))
    );
    let warning = auto["warnings"].to_string();
    let said = warning.split_once("that fits: ").unwrap().1;
    let tokens: u64 = said
        .split(' ')
        .next()
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap();
    assert!((8192..40_960).contains(&tokens), "{warning}");
    let fixed = |n: u64| document(&[&words[..], &[&n.to_string()]].concat())["fits"].clone();
    assert_eq!(
        (fixed(tokens), fixed(tokens + 64)),
        (json!(true), json!(false))
    );
}

#[test]
fn a_flag_that_the_release_does_not_have_is_named() {
    let warned = |version: &str, flag: &str| {
        let words = [
            "--gpu",
            "H100",
            "--engine-version",
            version,
            "--",
            "vllm",
            "serve",
            "Qwen/Qwen3-8B",
            flag,
            "4",
        ];
        let page = document(&words);
        format!("{} {}", page["reason"], page["warnings"])
    };
    assert!(
        warned("0.33.0", "--swap-space")
            .contains("vllm 0.33.0 has no --swap-space: it refuses to start")
    );
    assert!(!warned("0.9.2", "--swap-space").contains("has no"));
    assert!(warned("0.9.2", "--kv-offloading-size").contains("has no --kv-offloading-size"));
    assert!(!warned("0.19.1", "--kv-offloading-size").contains("has no"));
}

#[test]
fn the_share_of_tgi_is_the_one_that_is_given() {
    let line = "text-generation-launcher --model-id Qwen/Qwen3-8B --cuda-memory-fraction 0.9";
    let told = told(&["--gpu", "H100", "--", line]).expect(0).stdout;
    assert!(
        told.contains("cuda_memory_fraction 0.90, TGI_WIGGLE_ROOM 0.90"),
        "{told}"
    );
}

#[test]
fn the_gpus_that_a_line_asks_for_are_planned_with() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("scenario");
    std::fs::write(
        &scenario,
        "gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3\n\
         gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090\n\
         at 0 gpu 0 used=70000 power=1 temp=1 util=0\nat 0 gpu 1 used=12 power=1 temp=1 util=0\n",
    )
    .unwrap();
    let name = |ids: &str| {
        let library = stage::library();
        let line = format!("docker run --gpus {ids} vllm/vllm-openai:v0.19.1 Qwen/Qwen3-0.6B");
        let mut command = command(&[
            "--nvml-lib",
            library.to_str().unwrap(),
            "--json",
            "--gpu",
            "detected",
            "--",
            &line,
        ]);
        command.env(stage::SCENARIO_VARIABLE, &scenario);
        let ended = Live::start(command).end().expect(0);
        let d: Value = serde_json::from_str(&ended.stdout).unwrap();
        d["gpu"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name("device=1"), "NVIDIA GeForce RTX 4090");
    assert_eq!(name("GPU-00000000-aaaa"), "NVIDIA H100 80GB HBM3");
}

#[test]
fn the_forecast_of_graphs_is_the_one_that_is_asked_for() {
    let pool = |version: &str, environment: &str| {
        let line = format!("docker run {environment} vllm/vllm-openai:{version} Qwen/Qwen3-8B");
        let d = document(&["--gpu", "H100", "--", &line]);
        let graphs = d["terms"].as_array().unwrap().iter();
        let mut graphs = graphs.filter(|t| t["component"] == "cuda_graphs");
        assert!(graphs.next().unwrap()["bytes"].as_u64() > Some(0), "{line}");
        d["pool"]["bytes"].as_u64().unwrap()
    };
    for runner in ["0", "1"] {
        let with = |version: &str, forecast: &str| {
            let forecast = format!("-e VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS={forecast}");
            let runner = format!("-e VLLM_USE_V2_MODEL_RUNNER={runner}");
            pool(version, &format!("{forecast} {runner}"))
        };
        // On by default from 0.21, a switch from 0.18 to now; the second runner had no forecast before 0.29.
        for (version, known) in [
            ("v0.33.0", true),
            ("v0.25.0", runner == "0"),
            ("v0.19.1", runner == "0"),
            ("v0.17.0", false),
        ] {
            let (off, on) = (with(version, "0"), with(version, "1"));
            assert_eq!(on < off, known, "{version} {runner}: {on} {off}");
        }
    }
    assert_eq!(
        pool("v0.33.0", ""),
        pool("v0.33.0", "-e VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1")
    );
}
