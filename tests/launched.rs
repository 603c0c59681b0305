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

/// A GPU of 24 GB of which a container's process holds 18,000 MiB and something else 2,000.
fn with_holder(dir: &std::path::Path, holder: &TestContainer) -> std::path::PathBuf {
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &holder.name]).expect("its process");
    let scenario = dir.join("scenario");
    let text = format!(
        "gpu GPU-00000000-aaaa-0000-0000-000000000000 24564 364 NVIDIA GeForce RTX 4090\n\
         at 0 gpu 0 used=20000 power=1 temp=1 util=0\nat 0 proc 0 {} 18000 compute\n",
        pid.trim()
    );
    std::fs::write(&scenario, text).expect("a scenario");
    scenario
}

#[test]
fn what_others_hold_is_counted_and_not_what_the_container_holds_itself() {
    needs!(Docker);
    let dir = tempfile::tempdir().expect("a folder");
    let held = TestContainer::run("holder", &[], &format!("{SERVE} || sleep 300"));
    let scenario = with_holder(dir.path(), &held);
    let in_use = |words: &[&str]| -> u64 {
        let mut command = plimsoll(&[&["estimate", "--json"], words].concat());
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, &scenario);
        let ended = Live::start(command).end().expect(0);
        let document: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        document["gpu"]["in_use_bytes"].as_u64().expect("bytes") >> 20
    };
    let model = "Qwen/Qwen3-0.6B";
    assert_eq!(in_use(&[model, "--gpu", "detected"]), 20_000);
    // What runs here is in it already, what is still to come is not.
    let beside = [
        "--gpu", "detected", "--beside", &held.name, "--beside", "1GiB",
    ];
    assert_eq!(in_use(&[&[model][..], &beside].concat()), 21_024);
    // On a GPU that is planned for, the container's part alone.
    assert_eq!(
        in_use(&[model, "--gpu", "H100", "--beside", &held.name]),
        18_000
    );
    // It would have its own memory back.
    let own = ["--container", &held.name, "--gpu", "detected", "--tp", "1"];
    assert_eq!(in_use(&own), 2_000);
}

#[test]
fn a_bench_that_does_not_fit_is_not_loaded_in_an_idle_container() {
    needs!(Docker);
    let dir = tempfile::tempdir().expect("a folder");
    let gpu = ["--env=NVIDIA_VISIBLE_DEVICES=0"];
    let idle = TestContainer::run("idle-gpu", &gpu, "sleep 300");
    let scenario = with_holder(dir.path(), &idle);
    let profile = |words: &[&str]| {
        let model = [
            "--engine",
            "vllm",
            "--model",
            "Qwen/Qwen3-32B",
            "--bench",
            "latency",
        ];
        let mut command = plimsoll(&[&["profile", &idle.name], &model[..], words].concat());
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, &scenario);
        Live::start(command).end()
    };
    let refused = profile(&[]).expect(6).stderr;
    assert!(
        refused.contains("--run-anyway") && refused.contains("oes not fit"),
        "{refused}"
    );
    // Then it comes as far as the bench, which is not in the image.
    let anyway = profile(&["--run-anyway"]).expect(3).stderr;
    assert!(
        anyway.contains("oes not fit") && anyway.contains("is not in the image"),
        "{anyway}"
    );
}

/// What answers like Ollama, and has a model once it is pulled.
const OLLAMA: &str = r#"#!/bin/sh
www=/tmp/www
case "$1" in
serve)
    mkdir -p $www/api
    echo '{"version":"0.33.0"}' >$www/api/version
    echo 'Ollama is running' >$www/index.html
    exec busybox httpd -f -p 11434 -h $www ;;
show) test -e "/tmp/$2" ;;
pull)
    echo "pulling $2" >>/tmp/www/pulled
    case "$2" in
    good*) : >"/tmp/$2" ;;
    *) echo "Error: pull model manifest: file does not exist" >&2; exit 1 ;;
    esac ;;
esac
"#;

#[test]
fn a_model_that_ollama_has_not_is_pulled_once_it_serves() {
    use std::os::unix::fs::PermissionsExt;
    needs!(Docker);
    let dir = tempfile::tempdir().expect("a folder");
    let script = dir.path().join("ollama");
    std::fs::write(&script, OLLAMA).expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let image = common::image().expect("busybox");
    let volume = format!("{}:/bin/ollama:ro", script.display());
    let start = |model: &str| {
        let words = [
            "run", "--image", &image, "--engine", "ollama", "--model", model,
        ];
        let load = [
            "--volume",
            &volume,
            "--bench",
            "none",
            "--duration",
            "1s",
            "--baseline",
            "0",
        ];
        let results = ["--results-dir", dir.path().to_str().expect("a path")];
        run(&[&words[..], &load, &results].concat())
    };
    let ended = start("good:1b").expect(0);
    assert!(
        ended.stderr.contains("pulling the model good:1b"),
        "{}",
        ended.stderr
    );
    let ended = start("bad").expect(4);
    assert!(
        ended
            .stderr
            .contains("cannot be pulled: Error: pull model manifest"),
        "{}",
        ended.stderr
    );
}
