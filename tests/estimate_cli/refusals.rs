//! What `estimate` refuses, and what it reads although it is written oddly.

use super::*;

/// A batch's answers.
#[track_caller]
fn answers(text: &[u8]) -> Vec<Value> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    let ended = told(&["--batch", file.path().to_str().unwrap(), "--json"]).expect(0);
    let lines = ended.stdout.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn values_after_the_dashes_are_held_to_the_same_ranges() {
    for value in [
        "--gpu-memory-utilization=2",
        "--gpu-memory-utilization=-1",
        "--gpu-memory-utilization=nan",
        "--max-num-seqs=-4",
    ] {
        let said = refused(
            &["--gpu", "H100", "--", "vllm", "serve", LLAMA_8B, value],
            2,
        );
        assert!(said.contains("must be"), "{value}: {said}");
    }
}

#[test]
fn counts_that_are_solved_for_are_counts() {
    for what in ["max-concurrency", "max-model-len", "max-batch", "min-gpus"] {
        let d = document(&[
            LLAMA_8B,
            "--gpu",
            "H100",
            "--max-model-len",
            "8192",
            "--solve",
            what,
        ]);
        assert!(d["solve"]["value"].is_u64(), "{what}: {}", d["solve"]);
    }
}

#[test]
fn what_would_be_ignored_is_refused() {
    let said = refused(
        &[
            LLAMA_8B, "--gpu", "H100", "--solve", "min-gpus", "--tp", "2",
        ],
        2,
    );
    assert!(said.contains("min-gpus"), "{said}");
    refused(&[LLAMA_8B, "--recommend-gpu", "--tp", "2"], 2);
    refused(&[LLAMA_8B, "--recommend-gpu", "--pp", "2"], 2);
    for words in [
        &["--gpu", "H100"][..],
        &["--max-model-len", "8192"],
        &["--engine", "vllm"],
        &["--concurrency", "4"],
        &["--explain"],
    ] {
        let mut all = vec!["--batch", "/nowhere/cases.jsonl", "--json"];
        all.extend(words);
        let said = refused(&all, 2);
        assert!(said.contains("cannot be used with"), "{words:?}: {said}");
    }
    let said = refused(&[LLAMA_8B, "--gpu", "H100", "--concurrency", "1,2"], 2);
    assert!(said.contains("add --table"), "{said}");
    let said = refused(&[LLAMA_8B, "--gpu", "H100", "--pp", "37"], 2);
    assert!(said.contains("is 32 at most here"), "{said}");
}

#[test]
fn memory_in_no_unit_is_refused() {
    let said = refused(&[LLAMA_8B, "--gpu-memory", "80"], 2);
    assert!(said.contains("80GiB?"), "{said}");
    for value in ["0", "24"] {
        let words = [LLAMA_8B, "--gpu", "H100", "--kv-cache-memory-bytes", value];
        assert!(
            refused(&words, 2).contains("must be 1 MiB or more"),
            "{value}"
        );
    }
}

#[test]
fn a_batch_is_read_as_editors_and_tables_write_it() {
    let case = |more: &str| format!("{{\"id\": 1, \"gpu\": \"H100\", {more}}}\n");
    let mut text = format!("\u{feff}{}", case("\"model\": \"meta-llama/Llama-3.1-8B\""));
    text += &case("\"model\": \"meta-llama/Llama-3.1-8B\", \"max_model_len\": NaN, \"tp\": 2.0");
    let own = std::fs::read_to_string(config(json!({})).path()).unwrap();
    text += &case(&format!("\"config\": {own}"));
    text += &case("\"model\": \"meta-llama/Llama-3.1-8B\", \"max_model_len\": \"8k\"");
    text += &format!("\"{}\"\n", "x".repeat(9 << 20));
    let answers = answers(text.as_bytes());
    assert_eq!(answers.len(), 5);
    for answer in &answers[..3] {
        assert!(answer["per_gpu"]["weights_gib"].is_f64(), "{answer}");
    }
    assert_eq!(answers[2]["per_gpu"]["kv_bytes_per_token"], 12_288);
    assert_eq!(
        answers[3]["error"],
        "`max_model_len` is \"8k\", not a whole number, 1 or more"
    );
    assert_eq!(answers[4]["error"], "the line is longer than 8 MiB");
}

#[test]
fn a_broken_gguf_ends_as_a_broken_configuration_does() {
    let mut file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    file.write_all(b"GGUF\x03\0\0\0").unwrap();
    let path = file.path().to_str().unwrap();
    let said = refused(&[path], 3);
    assert_eq!(said.matches(path).count(), 1, "{said}");
}

#[test]
fn a_database_that_cannot_be_read_is_told_and_kept() {
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("plimsoll");
    std::fs::create_dir(&folder).unwrap();
    let database = folder.join("calibration.json");
    std::fs::write(&database, "{\"document\": \"calibr").unwrap();
    let mut estimate = command(&[LLAMA_8B, "--gpu", "H100", "--max-model-len", "8192"]);
    estimate.env("XDG_STATE_HOME", state.path());
    let ended = Live::start(estimate).end().expect(0);
    assert!(ended.stderr.contains("cannot be read"), "{}", ended.stderr);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/results/example");
    let mut calibrate = plimsoll(&["calibrate", example]);
    calibrate.env("XDG_STATE_HOME", state.path());
    let ended = Live::start(calibrate).end().expect(2);
    assert!(ended.stderr.contains("--fresh"), "{}", ended.stderr);
    let kept = std::fs::read_to_string(&database).unwrap();
    assert_eq!(kept, "{\"document\": \"calibr");
}

#[test]
fn sizes_and_suffixes_of_a_gpus_name_are_not_passed_over() {
    for (gpu, said) in [
        ("RTX 4090 48GB", "known of this name: 24 GB"),
        ("RTX 5090 Ti", "did you mean `RTX 5090`?"),
        ("H1000", "did you mean `H100`?"),
    ] {
        let message = refused(&[LLAMA_8B, "--gpu", gpu], 2);
        assert!(message.contains(said), "{gpu}: {message}");
    }
    let small = document(&[LLAMA_8B, "--gpu", "RTX 4060 Ti 8GB"]);
    assert!(small["gpu"]["total_bytes"].as_u64().unwrap() < 8 << 30);
    let either = document(&[LLAMA_8B, "--gpu", "A100"]);
    let warnings = either["warnings"].to_string();
    assert!(warnings.contains("name `A100 40GB`"), "{warnings}");
}

#[test]
fn what_cannot_start_does_not_fit() {
    let docker = |gpus: &[&str], tp: &str| {
        let mut words = vec!["--gpu", "H100", "--", "docker", "run"];
        words.extend(gpus);
        words.extend(["vllm/vllm-openai:v0.11.0", "--model", LLAMA_8B, "-tp", tp]);
        document(&words)
    };
    let few = docker(&["--gpus", "\"device=0\""], "2");
    assert_eq!(few["fits"], json!(false));
    assert_eq!(few["reason"], "the engine gets 1 GPU and needs 2");
    assert_eq!(
        docker(&["--gpus", "\"device=0,1\""], "2")["fits"],
        json!(true)
    );
    assert_eq!(docker(&["--gpus", "all"], "2")["fits"], json!(true));
    let visible = ["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=0"];
    assert_eq!(docker(&visible, "2")["fits"], json!(false));
    let none = docker(&[], "1")["warnings"].to_string();
    assert!(none.contains("gives the container no GPU"), "{none}");
    let given = docker(&["--gpus", "all"], "1")["warnings"].to_string();
    assert!(!given.contains("gives the container no GPU"), "{given}");

    // The widths of the experts' fp8 blocks: 1,536 / 8 is no multiple of 128.
    let blocks = |more: &[&str]| {
        let words = [
            "MiniMaxAI/MiniMax-M2.7",
            "--gpu=H100",
            "--max-model-len=8192",
        ];
        let found = document(&[&words[..], more].concat());
        found["fits"].clone()
    };
    assert_eq!(blocks(&["--tp", "8"]), json!(false));
    assert_eq!(
        blocks(&["--tp", "8", "--enable-expert-parallel"]),
        json!(true)
    );
    assert_eq!(blocks(&["--tp", "4"]), json!(true));

    // A replica of SGLang has all experts; those of vLLM share them.
    let replicas = |engine: &str, dp: &str| {
        let words = ["Qwen/Qwen3-235B-A22B", "--gpu", "H100", "--tp", "4"];
        let more = ["--engine", engine, "--dp", dp];
        document(&[&words[..], &more].concat())["fits"].clone()
    };
    assert_eq!(replicas("sglang", "1"), json!(false));
    assert_eq!(replicas("sglang", "2"), json!(false));

    let old = |engine: &str, gpu: &str| {
        let words = ["Qwen/Qwen3-0.6B", "--gpu", gpu, "--engine", engine];
        document(&words)["fits"].clone()
    };
    assert_eq!(old("vllm", "P40"), json!(false));
    assert_eq!(old("llama_cpp", "P40"), json!(true));
    assert_eq!(old("vllm", "V100"), json!(true));
    // What these cards do not compute.
    let t4 =
        |more: &[&str]| document(&[&["--gpu", "T4", "--max-model-len", "2048"], more].concat());
    let wide = t4(&["Qwen/Qwen3-0.6B", "--dtype", "bfloat16"]);
    assert_eq!(wide["fits"], json!(false), "{}", wide["reason"]);
    assert_eq!(t4(&["Qwen/Qwen3-0.6B"])["fits"], json!(true));
    let line = ["--gpu", "V100", "Qwen/Qwen3-8B-AWQ"];
    assert_eq!(document(&line)["fits"], json!(false));
    // Gemma has no float16, and without bfloat16 it is computed in 32 bits.
    let gemma = |gpu: &str| {
        let found = document(&[
            "--gpu",
            gpu,
            "google/gemma-3-1b-it",
            "--max-model-len",
            "2048",
        ]);
        term_bytes(&found, "weights") as f64
    };
    let ratio = gemma("T4") / gemma("L4");
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
    let few = ["--max-num-batched-tokens", "512", "--max-num-seqs", "1024"];
    let few = document(&[&["--gpu", "H100", LLAMA_8B], &few[..]].concat());
    assert_eq!(few["fits"], json!(false), "{}", few["reason"]);
    let dcp = [
        "--gpu",
        "H100",
        "--tp",
        "4",
        "meta-llama/Llama-3.3-70B-Instruct",
    ];
    let refusal = refused(&[&dcp[..], &["--dcp", "4"]].concat(), 2);
    assert!(refusal.contains("key and value heads"), "{refusal}");
    let cards = told(&["Qwen/Qwen3-0.6B", "--recommend-gpu"])
        .expect(0)
        .stdout;
    assert!(!cards.contains("P100") && cards.contains("V100"), "{cards}");
}

#[test]
fn lengths_steps_and_heads_that_engines_refuse_do_not_start() {
    let fits = |line: &str| {
        let words = ["--gpu", "H100", "--"].into_iter().chain(line.split(' '));
        document(&words.collect::<Vec<_>>())["fits"].clone()
    };
    let eagle =
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --speculative-config ";
    for (starts, line) in [
        (false, "vllm serve Qwen/Qwen3-8B --max-model-len 65536"),
        (false, "sglang serve Qwen/Qwen3-8B --context-length 65536"),
        (true, "vllm serve Qwen/Qwen3-8B --max-model-len 40960"),
        (
            true,
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve Qwen/Qwen3-8B --max-model-len 65536",
        ),
        (
            false,
            "vllm serve BAAI/bge-m3 --max-num-batched-tokens 4096 --max-num-seqs 8",
        ),
        (
            true,
            "vllm serve BAAI/bge-m3 --max-num-batched-tokens 8194 --max-num-seqs 8",
        ),
        (
            false,
            "vllm serve Qwen/Qwen3-8B --no-enable-chunked-prefill --max-num-batched-tokens 4096",
        ),
        (
            false,
            &format!(r#"{eagle}{{"method":"eagle3","num_speculative_tokens":3}}"#),
        ),
        (
            true,
            &format!(
                r#"{eagle}{{"method":"eagle3","num_speculative_tokens":3,"model":"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}}"#
            ),
        ),
    ] {
        assert_eq!(fits(line), json!(starts), "{line}");
    }
    // A relative's own positions may be more than those that are lent to it.
    let lent = "vllm serve Qwen/Qwen3-8B-Base --max-model-len 65536";
    assert_eq!(fits(lent), json!(true));
    let words = ["--gpu", "H100", "--"].into_iter().chain(lent.split(' '));
    let page = document(&words.collect::<Vec<_>>());
    let warnings = page["warnings"].to_string();
    assert!(warnings.contains("this one may have more"), "{warnings}");
    // It can be another release, where none is named.
    let task = "vllm serve BAAI/bge-m3 --task embed";
    assert_eq!(fits(task), Value::Null);
    let named = ["--gpu=H100", "--engine-version=0.33.0", "--"];
    let words: Vec<&str> = named.into_iter().chain(task.split(' ')).collect();
    assert_eq!(document(&words)["fits"], json!(false));
}

#[test]
fn flags_are_taken_as_engines_call_them() {
    for (engine, flag) in [
        ("sglang", "--context-length"),
        ("tgi", "--max-total-tokens"),
        ("tensorrt_llm", "--max_seq_len"),
        ("llama_cpp", "--ctx-size"),
    ] {
        let words = [LLAMA_8B, "--gpu=H100", "--engine", engine, flag, "8192"];
        assert_eq!(document(&words)["max_model_len"], 8192, "{flag}");
    }
}

#[test]
fn the_default_length_before_a_long_rope_is_that_of_the_release() {
    for (version, tokens) in [("0.11.0", 131_072), ("0.11.1", 4096), ("0.33.0", 4096)] {
        let page = document(&[
            "microsoft/Phi-4-mini-instruct",
            "--gpu=H100",
            "--engine-version",
            version,
        ]);
        assert_eq!(page["max_model_len"], tokens, "{version}");
    }
}

#[test]
fn what_names_no_engine_says_what_is_missing() {
    for (words, said) in [
        (
            &[LLAMA_8B, "--show-settings"][..],
            "nothing is given that starts an engine",
        ),
        (&[LLAMA_8B, "--service", "foo"], "--compose FILE"),
        (&["--", "docker", "compose", "up"], "--compose FILE"),
        (&["--", "vllm", "serv", LLAMA_8B], "`vllm serve MODEL` does"),
    ] {
        let message = refused(words, 2);
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn flags_that_the_engine_does_not_have_are_named() {
    let page = |flags: &[&str]| {
        let mut words = vec!["--gpu", "H100", "--", "vllm", "serve", LLAMA_8B, "-tp", "2"];
        words.extend(flags);
        told(&words).expect(0).stdout
    };
    let mistyped = page(&["--max-modellen", "8192", "--foo", "bar"]);
    let mistyped = mistyped.split_whitespace().collect::<Vec<_>>().join(" ");
    for flag in [
        "--foo (unknown flag)",
        "--max-modellen (vllm has no such flag: did you mean --max-model-len?)",
    ] {
        assert!(mistyped.contains(flag), "{mistyped}");
    }
    let right = [
        "--port",
        "8000",
        "--no-enable-prefix-caching",
        "-O.mode=3",
        "--api-key",
        "x",
    ];
    let right = page(&right);
    assert!(!right.contains("not modelled"), "{right}");
}

#[test]
fn a_quantisation_that_the_checkpoint_has_not_is_refused() {
    let file = config(
        json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}),
    );
    let path = file.path().to_str().unwrap();
    let ask = |method| {
        [
            &["--config", path, "--gpu", "H100", "--quantization"][..],
            &[method],
        ]
        .concat()
    };
    let said = refused(&ask("fp8"), 2);
    assert!(
        said.contains("contradicts") && said.contains("`awq`"),
        "{said}"
    );
    told(&ask("awq_marlin")).expect(0);
    // Quantised by the engine while it loads.
    let plain = config(json!({}));
    let path = plain.path().to_str().unwrap();
    told(&["--config", path, "--gpu", "H100", "--quantization", "fp8"]).expect(0);
}

#[test]
fn what_is_not_computed_with_is_named_for_every_engine() {
    let words = [
        "--gpu",
        "H100",
        "--",
        "text-generation-launcher",
        "--model-id",
        LLAMA_8B,
        "--speculate",
        "3",
        "--port",
        "80",
    ];
    let page = told(&words).expect(0).stdout;
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("not modelled: speculative decoding (3)"),
        "{page}"
    );
    assert!(!page.contains("--port"), "{page}");
}

#[test]
fn a_draft_of_another_vocabulary_is_noted() {
    let d = document(&[
        LLAMA_8B,
        "--gpu",
        "H100",
        "--draft-model",
        "Qwen/Qwen3-0.6B",
        "--max-model-len",
        "4096",
    ]);
    let notes = d["warnings"].to_string();
    assert!(
        notes.contains("a vocabulary of 151,936 entries and the model one of 128,256"),
        "{notes}"
    );
}

#[test]
fn what_a_gpu_has_room_for_is_not_what_a_fixed_cache_holds() {
    let words = [
        "--gpu",
        "H100",
        "--",
        "llama-server",
        "-m",
        LLAMA_8B,
        "-c",
        "8192",
    ];
    let page = told(&words).expect(0).stdout;
    assert!(page.contains("tokens, where a cache for them is"), "{page}");
    let small = told(&[
        LLAMA_8B,
        "--gpu-memory",
        "17GiB",
        "--max-model-len",
        "100000",
    ])
    .expect(0)
    .stdout;
    assert!(
        small.contains("0 concurrent requests of 100,000 tokens"),
        "{small}"
    );
}

#[test]
fn an_engine_that_keeps_layers_on_the_processor_starts_where_not_all_fits() {
    let line = |more: &[&str]| {
        let words = [
            "--gpu",
            "RTX4090",
            "--check-oom",
            "--",
            "llama-server",
            "-m",
            "Qwen/Qwen3-32B",
            "-c",
            "8192",
        ];
        told(&[&words[..], more].concat())
    };
    for left_to_it in [&[][..], &["-ngl", "auto"]] {
        let page = line(left_to_it).expect(0).stdout;
        assert!(page.contains("Not all of it fits by"), "{page}");
        assert!(page.contains("layers on the processor"), "{page}");
    }
    for asked in [["-ngl", "99"], ["-ngl", "all"], ["-fit", "off"]] {
        let page = line(&asked).expect(6).stdout;
        assert!(page.contains("Does not fit by"), "{asked:?}: {page}");
    }
    let none = line(&["-ngl", "0"]);
    let page = &none.stdout;
    assert!(
        page.contains("no layer with a cache is on the GPU"),
        "{page}"
    );
}
