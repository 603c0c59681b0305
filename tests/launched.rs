//! Containers that others started, as `estimate` reads them; and what `run` asks before it starts one.

use crate::common::stage;
use crate::common::{self, TestContainer, docker};
use common::e2e::{Live, plimsoll, run};
use serde_json::{Value, json};

const SERVE: &str = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 -tp 2 --api-key sk-of-this-test";

#[test]
fn a_container_is_read_while_it_runs_and_when_it_is_dead() {
    needs!(Docker);
    let options = [
        "-e",
        "HF_TOKEN=hf_of-this-test",
        "-v",
        "/tmp:/models:ro",
        "--shm-size=64m",
    ];
    let running = TestContainer::run("estimate", &options, &format!("{SERVE} || sleep 300"));
    let dead = TestContainer::run("estimate", &options, &format!("{SERVE}; exit 1"));
    docker(&["wait", &dead.name]).expect("its end");
    for container in [&running, &dead] {
        let words = ["estimate", "--show-settings", "--json", "--container"];
        let ended = run(&[&words[..], &[&container.name]].concat()).expect(0);
        assert!(!ended.stdout.contains("of-this-test"), "{}", ended.stdout);
        let got: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(got["engine"], "vllm");
        assert_eq!(got["model"], "Qwen/Qwen3-8B");
        assert_eq!(
            got["settings"],
            json!({"max_model_len": 8192, "tensor_parallel_size": 2})
        );
        assert_eq!(got["shm"]["size_bytes"], 64 << 20);
        let answer = run(&["estimate", "--gpu", "H100", "--container", &container.name]).expect(0);
        assert!(answer.stdout.contains("Fits"), "{}", answer.stdout);
    }
    let missing = run(&[
        "estimate",
        "--gpu",
        "H100",
        "--container",
        "no-such-container",
    ])
    .expect(3);
    assert!(
        missing.stderr.contains("no-such-container"),
        "{}",
        missing.stderr
    );
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_pulled() {
    needs!(Docker);
    let dir = tempfile::tempdir().expect("a folder");
    let scenario = dir.path().join("scenario");
    let gpus = "gpu GPU-00000000-aaaa-0000-0000-000000000000 24564 364 NVIDIA GeForce RTX 4090\n\
                at 0 gpu 0 used=20000 power=1 temp=1 util=0\n";
    std::fs::write(&scenario, gpus).expect("a scenario");
    let start = |words: &[&str]| {
        let all = [
            "run",
            "--image",
            "plimsoll/no-such-image:dev",
            "--engine",
            "vllm",
            "--gpus",
            "all",
            "--model",
        ];
        let mut command = plimsoll(&[&all[..], words].concat());
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, &scenario);
        Live::start(command).end()
    };
    let refused = start(&["Qwen/Qwen3-32B"]).expect(6).stderr;
    assert!(
        refused.contains("--run-anyway") && refused.contains("oes not fit"),
        "{refused}"
    );
    // What is not known, and what is to be started all the same, comes as far as its image.
    let anyway = start(&["Qwen/Qwen3-32B", "--run-anyway"]).expect(3).stderr;
    assert!(
        anyway.contains("is not here") && anyway.contains("oes not fit"),
        "{anyway}"
    );
    let unknown = start(&["acme/no-such-model"]).expect(3).stderr;
    assert!(
        unknown.contains("is not here") && unknown.contains("whether it fits is not known"),
        "{unknown}"
    );
}
