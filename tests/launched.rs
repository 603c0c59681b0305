//! Containers that others started, as `estimate` reads them; and what `run` asks before it starts one.

use crate::common::stage;
use crate::common::{self, TestContainer, docker};
use common::e2e::{Live, REFERENCE_IMAGE, Results, plimsoll, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

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

#[test]
fn what_is_no_server_of_its_engine_is_named_before_anything_is_run_in_it() {
    needs!(Docker);
    let script = "printf '#!/bin/sh\\nexec sleep 300\\n' >/bin/vllm; chmod 755 /bin/vllm; exec /bin/vllm preload --model m";
    let container = TestContainer::run("preload", &[], script);
    let refused = run(&["profile", &container.name, "-m", "m"]).expect(3);
    let named = format!(
        "container `{}` runs vllm-preload, which plimsoll cannot profile",
        container.name
    );
    assert!(refused.error().contains(&named), "{}", refused.stderr);
}

/// A Compose file of two reference engines; `embed` comes second, and `chat` needs it through a service that
/// is not started.
fn two_services(dir: &Path, embed: &str, chat: &str) -> String {
    let service = |name: &str, words: &str| {
        format!(
            "  {name}:\n    image: {REFERENCE_IMAGE}\n    entrypoint: [/reference-engine]\n    command: serve --model acme/{name} --weights 16MiB --kv-pool 8MiB --activation 4MiB {words}\n"
        )
    };
    let (chat, embed) = (service("chat", chat), service("embed", embed));
    let text = format!(
        "services:\n{chat}    depends_on: [db]\n  db: {{image: postgres, depends_on: [embed]}}\n{embed}"
    );
    let path = dir.join("compose.yaml");
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a path").to_owned()
}

fn start_services(file: &str, results: &Results, more: &[&str]) -> Live {
    let words = ["run", "--compose", file, &results.arg(), "--baseline=100ms"];
    Live::start(plimsoll(&[&words[..], more].concat()))
}

/// The profiles by service, whose containers are gone.
#[track_caller]
fn profiles(results: &Results) -> BTreeMap<String, Value> {
    let read = |path: &std::path::PathBuf| {
        let profile = common::e2e::read(path);
        let name = profile["metadata"]["container"]["name"]
            .as_str()
            .expect("a name");
        assert!(docker(&["inspect", name]).is_err(), "{name} is removed");
        let service = name.rsplit('-').next().expect("a service").to_owned();
        (service, profile)
    };
    results.profiles().iter().map(read).collect()
}

#[test]
fn services_of_a_file_start_in_order_and_each_is_profiled_beside_the_other() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let file = two_services(results.0.path(), "--load-ms 300", "--weights 32MiB");
    let ended = start_services(&file, &results, &["--num-prompts=3"])
        .end()
        .expect(0);
    let left = "service `db` is not started: no engine that can be profiled is known in `postgres`";
    assert!(ended.stderr.contains(left), "{}", ended.stderr);
    let turns: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|l| l.starts_with("service `"))
        .collect();
    let [embed, chat] = ["service `embed`", "service `chat`"];
    assert_eq!(turns, [embed, chat, embed, chat], "{}", ended.stderr);
    let all = profiles(&results);
    let captures = results.captures();
    let at = |service: &str, phase: &str| -> i64 {
        assert_eq!(all[service]["metadata"]["outcome"], "completed");
        let read = captures
            .iter()
            .map(|c| common::e2e::read(&c.join("capture.json")));
        let own = |c: &Value| c["request"]["model"] == format!("acme/{service}");
        let capture = read.into_iter().find(own).expect("its capture");
        let marks = capture["marks"].as_array().expect("marks");
        let mark = marks
            .iter()
            .find(|m| m["phase"] == phase)
            .expect("the phase");
        let ns = |of: &Value| of.as_i64().expect("nanoseconds");
        ns(&capture["wall_start_ns"]) + ns(&mark["at_ns"])
    };
    let weights = |service: &str| {
        all[service]["memory_breakdown"]["model_weights_gb"]
            .as_f64()
            .expect("weights")
            * 1024.0
    };
    assert!((weights("embed") - 16.0).abs() < 4.0 && (weights("chat") - 32.0).abs() < 4.0);
    assert_eq!(
        all["chat"]["parameters"]["beside"],
        json!(["embed: acme/embed"])
    );
    assert_eq!(
        all["embed"]["parameters"]["beside"],
        json!(["chat: acme/chat"])
    );
    // Both serve before the first is loaded, and the loads come one after the other.
    assert!(at("chat", "start") > at("embed", "start") + 300_000_000);
    assert!(at("embed", "warmup") > at("chat", "start"));
    assert!(at("chat", "warmup") >= at("embed", "cooldown"));
}

#[test]
fn where_one_service_dies_its_cause_is_told_and_the_rest_are_stopped() {
    needs!(Docker, ReferenceEngine);
    let crash = "--fault crash@weights_loaded";
    for (embed, chat, dead, other) in [
        // Before the other starts, while the other serves, and under load.
        (crash, "", "embed", None),
        ("", crash, "chat", Some("embed")),
        ("--fault exit-after-ready=4000", "", "embed", Some("chat")),
    ] {
        let results = Results::new();
        let file = two_services(results.0.path(), embed, chat);
        let ended = start_services(&file, &results, &["--num-prompts=100000"])
            .end()
            .expect(4);
        let begin = format!("service `{dead}`: the container ended during the run (exit ");
        assert!(ended.error().starts_with(&begin), "{}", ended.stderr);
        let all = profiles(&results);
        assert!(all[dead]["metadata"]["outcome"]["container_lost"].is_string());
        assert_eq!(
            all.len(),
            1 + usize::from(other.is_some()),
            "{}",
            ended.stderr
        );
        if let Some(other) = other {
            let outcome = all[other]["metadata"]["outcome"].to_string();
            assert!(
                outcome.contains(&format!("-{dead}` beside it ended")),
                "{outcome}"
            );
        }
    }
}

#[test]
fn a_load_that_fails_is_told_and_the_next_has_its_turn() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let file = two_services(
        results.0.path(),
        "\n    environment: {REFERENCE_FAULT: no-json}",
        "",
    );
    let ended = start_services(&file, &results, &["--num-prompts=3"])
        .end()
        .expect(4);
    assert!(
        ended.error().starts_with("service `embed`: "),
        "{}",
        ended.stderr
    );
    let all = profiles(&results);
    assert!(all["embed"]["metadata"]["outcome"]["bench_failed"].is_string());
    assert_eq!(all["chat"]["metadata"]["outcome"], "completed");
}

#[test]
fn services_are_stopped_by_ctrl_c_whatever_they_wait_for() {
    needs!(Docker, ReferenceEngine);
    for (until, embed) in [
        ("wait until healthy", "--fault hang@weights_loaded"),
        ("bench 1/1", ""),
    ] {
        let results = Results::new();
        let file = two_services(results.0.path(), embed, "");
        let mut live = start_services(&file, &results, &["--num-prompts=100000"]);
        live.until(until);
        live.signal(rustix::process::Signal::INT);
        let ended = live.end().expect(130);
        assert!(ended.error().starts_with("interrupted"), "{}", ended.stderr);
        for profile in profiles(&results).values() {
            assert_eq!(profile["metadata"]["outcome"], "interrupted");
        }
    }
}

#[test]
fn services_that_do_not_fit_together_are_refused_with_what_would_fit() {
    needs!(Docker);
    let dir = tempfile::tempdir().expect("a folder");
    let scenario = dir.path().join("scenario");
    let gpus = "gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 600 NVIDIA H100 80GB HBM3\n\
                at 0 gpu 0 used=600 power=1 temp=1 util=0\n";
    std::fs::write(&scenario, gpus).expect("a scenario");
    let service = |name: &str, model: &str| {
        format!(
            "  {name}:\n    image: vllm/vllm-openai:v0.19.1\n    command: --model {model}\n    gpus: all\n    pull_policy: never\n"
        )
    };
    let services = service("chat", "Qwen/Qwen3-8B") + &service("embed", "Qwen/Qwen3-0.6B");
    let file = dir.path().join("compose.yaml");
    std::fs::write(&file, format!("services:\n{services}")).expect("a file");
    let start = |more: &[&str]| {
        let words = ["run", "--compose", file.to_str().expect("a path")];
        let mut command = plimsoll(&[&words[..], more].concat());
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, &scenario);
        Live::start(command).end()
    };
    // By default each takes 0.9 of the GPU.
    let refused = start(&[]).expect(6).stderr;
    for words in [
        "These 2 models do not fit as asked for, but fit with the settings below",
        "for `embed`",
        "--gpu-memory-utilization 0.",
        "--run-anyway",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let anyway = start(&["--run-anyway"]).expect(3).stderr;
    assert!(
        anyway.contains("is not here") && anyway.contains("do not fit as asked for"),
        "{anyway}"
    );
    // One of them is asked about alone.
    let alone = start(&["--service", "chat"]).expect(3).stderr;
    assert!(
        alone.contains("is not here") && !alone.contains("2 models"),
        "{alone}"
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
