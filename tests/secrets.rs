//! No verb passes a secret on: neither from documents that somebody planted some in, nor from what
//! it measures itself.

use crate::common;
use crate::common::secrets;
use crate::common::stage;
use common::e2e::{Engine, REFERENCE_IMAGE, everything_in, wait_for};
use common::unique;
use secrets::{API_KEY, Home, PASSWORD, open_handed, shapes, tells_nothing};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A small engine that serves, and prints secrets as some do.
const SERVES: [&str; 9] = [
    "serve",
    "--model=toy",
    "--weights=4MiB",
    "--kv-pool=2MiB",
    "--activation=64KiB",
    "--settle-ms=50",
    "--fault=secret@loading_weights",
    "--fault=secret@ready",
    "--port=8000",
];

/// Names that are free text, in the documents that plimsoll writes.
const FREE: [&str; 9] = [
    "model", "model_id", "name", "image", "label", "driver", "hostname", "version", "served",
];

/// Puts a secret into every text of a document that is free, each time another one.
fn plant(value: &mut Value, key: &str, shapes: &mut impl Iterator<Item = String>) {
    match value {
        Value::String(text) if text.contains(' ') || FREE.contains(&key) => {
            let secret = shapes.next().unwrap();
            text.push_str(&format!(" {secret} postgres://me:{}@db", "pl1msollurlpw"));
        }
        Value::Array(all) => all.iter_mut().for_each(|v| plant(v, key, shapes)),
        Value::Object(all) => all.iter_mut().for_each(|(k, v)| plant(v, k, shapes)),
        _ => {}
    }
}

/// Plants them in every document below; gives how many there were.
fn plant_below(folder: &Path, shapes: &mut impl Iterator<Item = String>) -> usize {
    let mut planted = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if path.is_dir() {
            planted += plant_below(&path, shapes);
        } else if kind == "json" {
            let mut document: Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            plant(&mut document, "", shapes);
            std::fs::write(&path, document.to_string()).unwrap();
            planted += 1;
        } else if path.file_name().is_some_and(|n| n == "log.txt") {
            let mut log = std::fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap();
            for secret in shapes.take(20) {
                writeln!(log, "1 c INFO the token {secret} was read").unwrap();
            }
            planted += 1;
        }
    }
    planted
}

/// The one folder or file below that a run made.
fn made(results: &Path, kind: &str) -> PathBuf {
    let mut all = std::fs::read_dir(results.join(kind)).unwrap();
    all.next().unwrap().unwrap().path()
}

#[test]
fn every_verb_says_nothing_of_a_secret() {
    needs!(Docker, ReferenceEngine);
    let home = Home::new();
    let results = home.path().join("results");
    let at = format!("--results-dir={}", results.display());
    let env = [
        format!("HF_TOKEN={}", shapes()[0]),
        format!("MY_PASSWORD={PASSWORD}"),
        format!("API_KEY={API_KEY}"),
    ];
    let options: Vec<&str> = env.iter().flat_map(|e| ["-e", e.as_str()]).collect();
    let engine = Engine::run("secrets", &options, REFERENCE_IMAGE, &SERVES);
    engine.wait_for_log("phase=ready");
    assert!(engine.log().contains(&shapes()[0]), "it does print it");
    let idle = Engine::run("secrets-idle", &options, REFERENCE_IMAGE, &["idle"]);
    let run = |args: &[&str], code: i32| {
        let ended = home.run(args, code);
        let shown = args.join(" ");
        tells_nothing(&format!("the output of `{shown}`"), &ended.stdout);
        tells_nothing(&format!("stderr of `{shown}`"), &ended.stderr);
        ended
    };

    // What is measured, and what a bench prints.
    let small = ["--baseline=100ms", "--input-len=8", "--output-len=4", &at];
    let with = |args: &[&'static str], name: &str| -> Vec<String> {
        let all = args[..1]
            .iter()
            .copied()
            .chain([name])
            .chain(args[1..].iter().copied());
        all.map(str::to_owned).collect()
    };
    let words = |args: &[String], more: &[&str], code: i32| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(&[&args[..], more].concat(), code)
    };
    words(
        &with(
            &["profile", "--bench=serve", "--num-prompts=4", "-vv"],
            &engine.name,
        ),
        &small,
        0,
    );
    words(
        &with(&["loadline", "--max-rounds=2", "-vv"], &engine.name),
        &small,
        0,
    );
    let one = [
        "experiment",
        "concurrency",
        &engine.name,
        "--levels=1",
        "--num-prompts=4",
    ];
    run(&[&one[..], &["--baseline=100ms", "-vv", &at]].concat(), 0);
    let extra = "--extra-engine-args=--fault secret@loading_weights --fault secret@bench_start";
    let alone = [
        "profile",
        &idle.name,
        "-m",
        "reference/x",
        "--bench=latency",
    ];
    run(
        &[&alone[..], &["--baseline=100ms", extra, "-vv", &at]].concat(),
        0,
    );
    let arms = [
        "--a=--weights 4MiB --fault secret@loading_weights",
        "--b=--weights 8MiB --fault secret@bench_start",
        "--num-iters=1",
    ];
    let ablate = ["ablate", &idle.name, "-m=toy", "--repeats=1", "-vv", &at];
    run(&[&ablate[..], &arms].concat(), 0);
    let session = home.path().join("session.jsonl").display().to_string();
    let record = ["record", "-o", &session, "--container", &engine.name];
    run(&[&record[..], &["--duration=300ms"]].concat(), 0);
    tells_nothing("a file", &everything_in(home.path()));

    // What others have written.
    let mut endless = shapes().into_iter().cycle();
    assert!(plant_below(&results, &mut endless) >= 6);
    let profiles = results.join("memory-profiles");
    let of = |end: &str| {
        let mut all: Vec<String> = (std::fs::read_dir(&profiles).unwrap())
            .map(|e| e.unwrap().path().display().to_string())
            .filter(|p| p.ends_with(end))
            .collect();
        all.sort();
        all
    };
    let (documents, captures) = (of(".json"), of(".capture"));
    let experiment = made(&results, "experiments").display().to_string();
    let loadline = made(&results, "loadline").display().to_string();
    let out = home.path().join("out");
    let here = |name: &str| out.join(name).display().to_string();
    for format in ["html", "md", "txt", "csv", "svg", "png"] {
        let one = std::slice::from_ref;
        let of_kinds = [&documents[..], one(&experiment), one(&loadline)];
        for (n, what) in of_kinds.into_iter().enumerate() {
            let reports = here(&format!("{format}{n}/"));
            let mut args = vec!["report", "--format", format, "--output", &reports];
            args.extend(what.iter().map(String::as_str));
            run(&args, 0);
        }
    }
    run(
        &[
            "compare",
            &documents[0],
            &documents[1],
            "--csv",
            &here("c.csv"),
        ],
        0,
    );
    run(&["compare", &documents[0], &documents[1], "--json"], 0);
    let folder = profiles.display().to_string();
    run(
        &["validate", &folder, "--output-dir", &here("validation")],
        0,
    );
    run(&["validate", &folder, "--json"], 0);
    let database = here("calibration.json");
    run(&["calibrate", &folder, "-o", &database], 0);
    run(&["calibrate", &folder, "--correlations", "--json"], 0);
    for (n, capture) in captures.iter().enumerate() {
        run(
            &["derive", capture, "-o", &here(&format!("derived{n}.json"))],
            0,
        );
        run(&["derive", capture, "--json"], 0);
        run(&["replay", capture], 0);
        let log = Path::new(capture).join("log.txt").display().to_string();
        run(&["parse", "--engine=reference", "--json", &log], 0);
    }
    let secret = &shapes()[0];
    run(&["estimate", &format!("org/{secret}"), "--gpu=H100"], 2);
    let figures = [
        "--model-params=7e9",
        "--num-layers=32",
        "--num-heads=32",
        "--hidden-size=4096",
    ];
    let asked = [
        "estimate",
        "--gpu=H100",
        "--calibration",
        &database,
        "--json",
    ];
    run(
        &[
            &asked[..],
            &figures,
            &["--", "vllm", "serve", secret, "--api-key", secret],
        ]
        .concat(),
        0,
    );
    std::fs::remove_dir_all(&results).unwrap();
    let clean = ["clean", &idle.name, "--memory-backend=host", "--grace=1s"];
    run(&[&clean[..], &["--json"]].concat(), 0);
    run(&[&clean[..], &["--apply", "--yes", "-vv"]].concat(), 0);
    tells_nothing("a file", &everything_in(home.path()));
}

/// A container, or a process, can be called what it likes.
#[test]
fn top_tells_prometheus_no_secret() {
    needs!(Docker, ReferenceEngine);
    let name = format!("{}-{}", shapes()[0], unique("top"));
    let engine = Engine::run(
        "top-secret",
        &["--label", &format!("x={PASSWORD}")],
        REFERENCE_IMAGE,
        &SERVES,
    );
    engine.wait_for_log("phase=ready");
    common::docker(&["rename", &engine.id, &name]).unwrap();
    let pid = common::docker(&["inspect", "-f", "{{.State.Pid}}", &engine.id]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("scenario");
    let gpu = "gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3";
    let held = format!("{gpu}\nat 0 gpu 0 used=70000\nat 0 proc 0 {pid} 40000\n");
    std::fs::write(&scenario, held).unwrap();
    let look = |words: &[&str]| {
        let mut command = open_handed(words);
        command
            .env("HOME", dir.path())
            .arg("--nvml-lib")
            .arg(stage::library());
        command.env(stage::SCENARIO_VARIABLE, &scenario);
        command
    };
    for words in [&["top", "--once"][..], &["top", "--once", "--json"]] {
        let ended = common::e2e::Live::start(look(words)).end().expect(0);
        assert!(ended.stdout.contains("top"), "{}", ended.stdout);
        tells_nothing("top", &(ended.stdout + &ended.stderr));
    }
    let mut live = common::e2e::Live::start(look(&["watch", "--listen=127.0.0.1:0"]));
    live.until("/metrics");
    let stderr = live.stderr();
    let address = stderr
        .split("http://")
        .nth(1)
        .unwrap()
        .split("/metrics")
        .next()
        .unwrap();
    let page = wait_for("the figures", || {
        let mut stream = std::net::TcpStream::connect(address).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.contains("container").then_some(page)
    });
    assert!(page.contains("-top"), "{page}");
    tells_nothing("the page for Prometheus", &page);
    live.signal(rustix::process::Signal::TERM);
    let ended = live.end();
    tells_nothing("watch", &(ended.stdout + &ended.stderr));
}
