//! The command line: help, mistakes, and what goes to which stream.

use crate::common;
use common::e2e::{Ended, Engine, Live, Results, plimsoll, run};
use std::io::{Read, Write};
use std::process::Stdio;

const LOG: &str = "tests/fixtures/vllm/captured/serve-eager.log";

#[test]
fn help_stands_under_every_subcommand() {
    let main = run(&["--help"]).expect(0);
    assert!(main.stderr.is_empty());
    for command in [
        "profile",
        "run",
        "loadline",
        "ablate",
        "cuda-graphs",
        "compare",
        "validate",
        "calibrate",
        "derive",
        "parse",
        "top",
        "clean",
        "gpus",
        "models",
        "record",
        "doctor",
        "estimate",
        "schema",
    ] {
        assert!(
            main.stdout.contains(&format!("\n  {command} ")),
            "{}",
            main.stdout
        );
        for args in [
            &[command, "--help"][..],
            &["help", command],
            &[command, "-h"],
        ] {
            let help = run(args).expect(0);
            assert!(
                help.stdout.contains(&format!("Usage: plimsoll {command}")),
                "{}",
                help.stdout
            );
            assert!(help.stderr.is_empty());
        }
    }
    assert!(main.stdout.contains("Exit codes: 0 done"));
    assert!(
        run(&["env", "--help"]).expect(0).stdout.contains("Docker"),
        "an alias"
    );
    let version = run(&["--version"]).expect(0).stdout;
    assert_eq!(version, format!("plimsoll {}\n", env!("CARGO_PKG_VERSION")));
    // Nothing at all is a question for help, and no success.
    let nothing = run(&[]).expect(2);
    assert!(nothing.stderr.contains("Usage: plimsoll") && nothing.stdout.is_empty());
}

#[test]
fn a_typo_is_answered_with_what_was_meant() {
    for (args, meant) in [
        (&["profil", "x"][..], "'profile'"),
        (&["docter"], "'doctor'"),
        (&["profile", "x", "--bactch-size", "3"], "'--batch-size'"),
        (&["run", "--imag", "x"], "'--image'"),
        (&["profile", "x", "--bench", "serv"], "serve"),
        (&["profile", "x", "--memory-backend", "nvlm"], "nvml"),
    ] {
        let ended = run(args).expect(2);
        assert!(
            ended.error().len() > 10 && ended.stderr.contains(meant),
            "{args:?}: {}",
            ended.stderr
        );
        assert!(ended.stdout.is_empty());
    }
}

#[test]
fn a_mistake_in_the_arguments_tells_no_secret() {
    let token = ["hf", "_Q7xPlimsoll0TestSecret9vB2kLmN4rT"].concat();
    let url = "https://me:pl1msollpw@host/";
    for args in [
        &["watch", "--listen", &token][..],
        &["profile", "x", "--bench", url],
        &[&token],
        &["profile", "x", &format!("--{token}")],
    ] {
        let ended = run(args).expect(2);
        assert!(
            ended.stderr.contains("[redacted]") && ended.stderr.contains("--help"),
            "{}",
            ended.stderr
        );
        for secret in [&token[4..], "pl1msollpw"] {
            assert!(!ended.stderr.contains(secret), "{}", ended.stderr);
        }
    }
}

/// What is wrong by itself is told at once, whatever the rest would do.
#[test]
fn impossible_values_are_refused_before_anything_is_touched() {
    for args in [
        &["profile", "x", "--sample-interval=1ms"][..],
        &["profile", "x", "--sample-interval=2m"],
        &["profile", "x", "--baseline=-1s"],
        &["profile", "x", "--timeout=soon"],
        &["profile", "x", "--repeats=0"],
        &["profile", "x", "--batch-size=0"],
        &["profile", "x", "--input-len=0"],
        &["profile", "x", "--input-len=10000001"],
        &["profile", "x", "--model="],
        &["profile", "x", "--engine=transformers", "--prompt= "],
        &["profile", "x", "--timeout=0"],
        &["profile", "x", "--bench=none", "--duration=0s"],
        &["loadline", "x", "--slo-percentile=99"],
        &["loadline", "x", "--start=10", "--max-concurrency=5"],
        &["compare", "a.json", "b.json", "--force"],
        &["compare", "a.json", "b.json", "--ignore-below=1GiB"],
        &["compare", "a.json", "--calc-weights=1", "--kv-basis=used"],
        &["run", "--image=i", "--model=m", "--health-timeout=0"],
        &["record", "-o", "/nowhere/x", "--duration=0"],
        &["derive", "x.capture", "--json", "-o", "x.json"],
        &["run", "--preset=./nope.yaml", "--model=m"],
        &["profile", "x", "--gpu-memory-utilization=1.5"],
        &["profile", "x", "--request-rate=0"],
        &["profile", "x", "--max-log=much"],
        &["profile", "x", "--extra-engine-args='open"],
        &["profile", "x", "y"],
        &["profile", "x", "--quiet", "--verbose"],
        &["run", "-m", "m"],
        &["run", "--image=i", "--memory=lots"],
        &["run", "--image=i", "--shm-size=-1"],
        &["parse"],
    ] {
        let mut command = plimsoll(args);
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock");
        let ended = Live::start(command).end().expect(2);
        assert!(
            !ended.error().is_empty() && ended.stdout.is_empty(),
            "{args:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn a_file_that_is_not_there() {
    let dir = tempfile::tempdir().expect("tempdir");
    let nowhere = dir.path().join("nowhere").display().to_string();
    for args in [
        &["parse", &nowhere][..],
        &["parse", &dir.path().display().to_string()],
        &["derive", &nowhere],
        &["derive", LOG],
    ] {
        let ended = run(args).expect(2);
        assert!(
            ended.error().contains(args[1]) || ended.error().contains("serve-eager"),
            "{}",
            ended.stderr
        );
        assert!(ended.stdout.is_empty());
    }
    run(&["derive", &nowhere])
        .expect(2)
        .says(&["no capture"], ".capture");
    run(&["parse", "--engine=vlmm", LOG])
        .expect(2)
        .says(&["no engine `vlmm`"], "vllm");
    // What was left in a hurry is told as that.
    let half = dir.path().join("half.capture");
    std::fs::create_dir(&half).expect("folder");
    std::fs::write(half.join("samples.jsonl"), "").expect("file");
    run(&["derive", &half.display().to_string()])
        .expect(2)
        .says(&["is incomplete"], "run it again");
    // What is no capture is not read as one.
    let broken = dir.path().join("broken.capture");
    std::fs::create_dir(&broken).expect("folder");
    for text in ["", "{", "[]", "{}", "\u{0}\u{1}"] {
        std::fs::write(broken.join("capture.json"), text).expect("file");
        let ended = run(&["derive", &broken.display().to_string()]).expect(2);
        assert!(
            ended.error().contains("not the capture.json of a capture"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn parse_tells_value_and_quote() {
    let ended = run(&["parse", "--json", LOG]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("pure JSON");
    assert_eq!(
        (report["engine"].as_str(), report["engine_version"].as_str()),
        (Some("vllm"), Some("0.32.0"))
    );
    assert!(report["findings"].is_array());
    let facts = report["facts"].as_object().expect("facts");
    assert!(facts.len() > 10);
    for (key, fact) in facts {
        let fact = fact.as_object().expect(key);
        assert!(
            fact.contains_key("value") && fact["quote"].is_array(),
            "{key}: {fact:?}"
        );
    }
    assert_eq!(facts["kv_cache_gib"]["value"], 0.25);
    assert!(
        facts["kv_cache_gib"]["quote"][0]
            .as_str()
            .expect("quote")
            .contains("(0.25/4.0) GiB for KV cache")
    );
    // The same through a pipe.
    let mut command = plimsoll(&["parse", "--json", "-"]);
    command.stdin(std::fs::File::open(LOG).expect("log"));
    assert_eq!(Live::start(command).end().expect(0).stdout, ended.stdout);
    // The same as the shell of Windows writes it.
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("utf16.log");
    let text = std::fs::read_to_string(LOG).expect("log");
    let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
    std::fs::write(&file, units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).expect("file");
    let file = file.display().to_string();
    assert_eq!(
        run(&["parse", "--json", &file]).expect(0).stdout,
        ended.stdout
    );
    // And for people.
    let plain = run(&["parse", LOG]).expect(0);
    assert!(
        plain.stdout.contains("kv_cache_gib") && plain.stdout.contains("vllm 0.32.0"),
        "{}",
        plain.stdout
    );
}

#[test]
fn a_file_that_is_no_log_is_told_as_such() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, b"").expect("file");
    run(&["parse", &file.display().to_string()])
        .expect(3)
        .says(&["is empty: nothing was read"], "docker logs");
    for bytes in [&b"nothing of the kind\n"[..], &[0xff, 0xfe, 0, 10, 13]] {
        std::fs::write(&file, bytes).expect("file");
        let ended = run(&["parse", &file.display().to_string()]).expect(0);
        assert!(
            ended.stderr.contains("has no lines about memory"),
            "{}",
            ended.stderr
        );
    }
}

/// `plimsoll … | head -1` is a way to read, and no failure.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [&["schema"][..], &["--help"], &["parse", LOG], &["doctor"]] {
        let mut child = plimsoll(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("plimsoll");
        let mut stderr = child.stderr.take().expect("stderr");
        // Closed before the first byte is written: the strictest reader there is.
        drop(child.stdout.take());
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("stderr");
        let status = child.wait().expect("wait");
        let code = status.code().expect("an exit code");
        // Doctor's own verdict stands.
        assert!(
            code == 0 || (args == ["doctor"] && code == 3),
            "{args:?}: {status}: {said}"
        );
        assert!(said.is_empty(), "{args:?}: {said}");
    }
}

/// A disk that is full is one, though, and so is a stdout that was closed.
#[test]
fn output_that_is_lost_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return common::e2e::skip(test_name!(), "no /dev/full");
    };
    let child = plimsoll(&["schema"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .expect("plimsoll");
    let output = child.wait_with_output().expect("wait");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("No space left") && !said.contains("bug"),
        "{said}"
    );
}

#[test]
fn colour_only_where_it_is_wanted() {
    let run = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = plimsoll(args);
        command.envs(env.iter().copied());
        Live::start(command).end()
    };
    let nowhere = ["derive", "/nowhere"];
    let coloured =
        |ended: &Ended| ended.stderr.contains('\u{1b}') || ended.stdout.contains('\u{1b}');
    assert!(!coloured(&run(&nowhere, &[])), "no terminal, no colour");
    let always = ["derive", "/nowhere", "--color=always"];
    assert!(coloured(&run(&always, &[])));
    for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!coloured(&run(&nowhere, &[env])));
        assert!(!coloured(&run(&["--help"], &[env])));
    }
}

#[test]
fn the_schema_is_the_one_in_the_documentation() {
    let printed = run(&["schema"]).expect(0).stdout;
    let written =
        std::fs::read_to_string("docs/schema/profile-4.0.schema.json").expect("docs/schema");
    assert_eq!(
        printed, written,
        "docs/schema is renewed by: plimsoll schema > docs/schema/profile-4.0.schema.json"
    );
}

#[test]
fn doctor_without_docker() {
    let doctor = |args: &[&str]| {
        let mut command = plimsoll(args);
        command
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
            .env("PLIMSOLL_NVML_LIBRARY", "/nowhere/nvml.so")
            .env("PLIMSOLL_SYSFS", "/nowhere/sys");
        Live::start(command).end().expect(3)
    };
    let ended = doctor(&["doctor"]);
    assert!(!ended.stdout.contains("libloading"), "{}", ended.stdout);
    assert!(ended.stdout.contains(" free for `"), "{}", ended.stdout);
    for word in [
        "platform",
        "Linux",
        "docker",
        "/nowhere/docker.sock",
        "docker: correct or unset DOCKER_HOST",
        "nvml",
        "host",
    ] {
        assert!(ended.stdout.contains(word), "{word}: {}", ended.stdout);
    }
    let checks: serde_json::Value =
        serde_json::from_str(&doctor(&["env", "--json"]).stdout).expect("pure JSON");
    assert_eq!(checks["ready"], false);
    let named = |name: &str| {
        let all = checks["checks"].as_array().expect("checks");
        all.iter().find(|c| c["name"] == name).expect("a check")
    };
    let docker = named("docker");
    assert_eq!(docker["ok"], false);
    assert!(docker["hint"].is_string() && docker["mend"].is_null());
    for absent in ["backend amd (AMD)", "backend intel (Intel)"] {
        assert!(named(absent)["hint"].is_null(), "{:#}", named(absent));
    }
}

#[test]
fn doctor_with_docker_sees_the_engines() {
    needs!(Docker, ReferenceEngine);
    let idle = Engine::idle("doctor");
    let ended = run(&["doctor"]).expect(0);
    // A line for each of them.
    let told = format!(
        "{} (reference, idle, simulated): image plimsoll/",
        idle.name
    );
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let first = words.iter().position(|w| *w == "engines");
    let theirs = words[first.expect("engines")..].join(" ");
    assert!(theirs.contains(&told), "{}", ended.stdout);
    assert!(ended.stdout.contains("cgroup v"), "{}", ended.stdout);
    let checks: serde_json::Value =
        serde_json::from_str(&run(&["doctor", "--json"]).expect(0).stdout).expect("JSON");
    assert_eq!(checks["ready"], true);
}

const SMALL: &str = "--extra-engine-args=--weights 16MiB --kv-pool 8MiB --activation 4MiB --load-ms 0 --num-iters 2";

/// stdout is data, stderr is talk.
#[test]
fn json_on_stdout_is_the_document_and_nothing_else() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("json");
    let results = Results::new();
    let ended = run(&[
        "profile",
        &engine.name,
        "-m",
        "m",
        "--baseline=100ms",
        "--json",
        "-v",
        SMALL,
        &results.arg(),
    ])
    .expect(0);
    let printed: serde_json::Value = serde_json::from_str(&ended.stdout).expect("pure JSON");
    assert_eq!(printed, results.document());
    assert_eq!(
        ended.stdout,
        std::fs::read_to_string(results.profile()).expect("profile")
    );
    for talk in [
        "inspect",
        "baseline",
        "warm-up 1/1",
        "bench 1/1",
        "derive",
        "profile: ",
    ] {
        assert!(ended.stderr.contains(talk), "{talk}: {}", ended.stderr);
    }
    assert!(
        !ended.stderr.contains('\u{1b}') && !ended.stderr.contains('\r'),
        "no bars off a terminal"
    );

    // Derived again it is the same, to the byte; printing leaves the file alone.
    let (profile, capture) = (results.profile(), results.captures()[0].clone());
    for from in [&profile, &capture] {
        assert_eq!(
            run(&["derive", "--json", &from.display().to_string()])
                .expect(0)
                .stdout,
            ended.stdout
        );
    }
    let copy = profile.with_file_name("copy.json").display().to_string();
    let summary = run(&["derive", &capture.display().to_string(), "--output", &copy]).expect(0);
    assert_eq!(std::fs::read_to_string(&copy).expect("copy"), ended.stdout);
    assert!(
        summary.stdout.contains("Total at the peak"),
        "{}",
        summary.stdout
    );
    // A folder that was moved away from its profile, and has a dot in its name.
    let moved = results.0.path().join("v1.2 moved.capture");
    std::fs::rename(&capture, &moved).expect("move");
    run(&["derive", &moved.display().to_string()]).expect(0);
    assert_eq!(
        std::fs::read_to_string(results.0.path().join("v1.2 moved.json")).expect("derived"),
        ended.stdout
    );
}

#[test]
fn quiet_says_only_what_must_be_known() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("quiet");
    let results = Results::new();
    let ended = run(&[
        "profile",
        &engine.name,
        "-m",
        "m",
        "--baseline=100ms",
        "--quiet",
        SMALL,
        &results.arg(),
    ])
    .expect(0);
    assert_eq!(ended.stderr, "");
    assert!(
        ended.stdout.contains("Total at the peak"),
        "the summary is data: {}",
        ended.stdout
    );
    run(&["profile", "no-such-container", "-q"])
        .expect(3)
        .says(&["no container is named"], "running");
}

#[test]
fn a_dry_run_tells_the_plan_and_leaves_nothing() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("dry");
    let results = Results::new();
    let dir = results.arg();
    let ended = run(&[
        "profile",
        &engine.name,
        "-m",
        "some/model",
        "--dry-run",
        "--repeats=3",
        &dir,
    ])
    .expect(0);
    for word in [
        &engine.name,
        "reference",
        "3 time(s)",
        "bench latency --model some/model",
    ] {
        assert!(ended.stdout.contains(word), "{word}: {}", ended.stdout);
    }
    let ended = run(&["run", "--preset=reference", "--dry-run", &dir]).expect(0);
    assert!(
        ended
            .stdout
            .contains("would start plimsoll/reference-engine:dev"),
        "{}",
        ended.stdout
    );
    results.is_empty();
    assert!(!results.0.path().join("memory-profiles").exists());
    let (name, secret) = (&engine.name, "plainsecret44");
    let words = format!("--extra-engine-args=--token {secret}");
    let arm = format!("--a=--api-key {secret}");
    for args in [
        &["profile", name, "-m=m", &words, "--dry-run"][..],
        &["ablate", name, "-m=m", &arm, "--dry-run"],
        &["run", "--preset=reference", &words, "--dry-run"],
    ] {
        let ended = run(args).expect(0);
        assert!(!ended.stdout.contains(secret), "{args:?}: {}", ended.stdout);
        assert!(ended.stdout.contains("[redacted]"), "{}", ended.stdout);
    }
}

/// A flag that would have no effect is refused: who gives it means something by it.
#[test]
fn a_request_for_gpus_that_means_none_or_nothing_is_refused() {
    for (gpus, way_out) in [
        ("0", "device=0"),
        ("two", "device=0,1"),
        ("all,0", "device=0,1"),
    ] {
        let args = ["run", "--preset=reference", "--dry-run", "--gpus", gpus];
        let out = common::e2e::run(&args);
        assert_eq!(out.code(), 2, "{gpus}: {}", out.stderr);
        assert!(out.stderr.contains(way_out), "{gpus}: {}", out.stderr);
    }
    let args = ["run", "--preset=reference", "--dry-run", "--gpus=device=0"];
    let out = common::e2e::run(&args);
    assert!(out.stdout.contains("GPUs: device=0"), "{}", out.stdout);
}

#[test]
fn flags_without_an_effect_are_refused() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::serving("no-effect", &[], &["--weights=4MiB", "--kv-pool=4MiB"]);
    let name = &engine.name;
    run(&["profile", name, "--duration=5s"])
        .expect(2)
        .says(&["--duration is for --bench none"], "--bench none");
    run(&["experiment", "concurrency", name, "--health-timeout=5s"])
        .expect(2)
        .says(&["--health-timeout", "serves already"], "leave it out");
}

#[test]
fn the_log_may_come_through_a_slow_pipe() {
    let mut child = plimsoll(&["parse", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("plimsoll");
    let mut stdin = child.stdin.take().expect("stdin");
    for half in [
        "INFO [kv_cache_utils.py:864] GPU KV cache ",
        "size: 1,024 tokens\n",
    ] {
        stdin.write_all(half.as_bytes()).expect("write");
        stdin.flush().expect("flush");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("wait");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["facts"]["kv_cache_tokens"]["value"], 1024);
}

#[test]
fn a_recording_of_a_container_that_ended_says_so() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("record-end");
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("r.jsonl").display().to_string();
    let name = &engine.name;
    let mut live = Live::start(plimsoll(&[
        "record",
        "-o",
        &file,
        "--container",
        name,
        "--memory-backend=host",
    ]));
    live.until("observe");
    common::docker(&["kill", name]).expect("it ran");
    live.signal(rustix::process::Signal::INT);
    let ended = live.end().expect(4);
    assert!(
        ended.error().contains("reading(s) failed"),
        "{}",
        ended.stderr
    );
}
