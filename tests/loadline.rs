//! `plimsoll loadline` on the simulated engine, whose pool is known to the block: the line is found,
//! what goes wrong is told, and Ctrl-C leaves what was measured.

use crate::common;
use common::e2e::{Engine, Live, REFERENCE_IMAGE, Results, plimsoll, run};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;

/// 40 blocks of 16 tokens.
const POOL: [&str; 20] = [
    "serve",
    "--model",
    "toy",
    "--weights",
    "4MiB",
    "--kv-pool",
    "1310720",
    "--activation",
    "64KiB",
    "--activation-ms",
    "1",
    "--load-ms",
    "0",
    "--settle-ms",
    "50",
    "--start-ms",
    "50",
    "--token-us",
    "20000",
    "--port=8000",
];

fn start(what: &str) -> Engine {
    let engine = Engine::run(what, &[], REFERENCE_IMAGE, &POOL);
    engine.wait_for_log("phase=ready");
    engine
}

trait Loadlines {
    /// Names of the folders of all runs.
    fn loadlines(&self) -> Vec<String>;
}

impl Loadlines for Results {
    fn loadlines(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.0.path().join("loadline"));
        let names = all.into_iter().flatten().flatten().map(|e| e.file_name());
        names.map(|n| n.to_string_lossy().into_owned()).collect()
    }
}

/// The one document of a run.
fn document(results: &Results) -> (PathBuf, Value) {
    let dir = results.arg();
    let dir = dir.strip_prefix("--results-dir=").expect("a folder");
    let all = PathBuf::from(dir).join("loadline");
    let mut folders = std::fs::read_dir(&all).expect("a folder of the run");
    let folder = folders.next().expect("a folder").expect("entry").path();
    let text = std::fs::read_to_string(folder.join("loadline.json")).expect("document");
    (folder, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn the_line_of_a_known_pool_is_predicted_and_measured() {
    needs!(Docker, ReferenceEngine);
    let engine = start("loadline-pool");
    let results = Results::new();
    let dir = results.arg();
    let ended = run(&[
        "loadline",
        &engine.name,
        &dir,
        "--input-len=32",
        "--output-len=32",
        "--waves=2",
        "--baseline=100ms",
    ])
    .expect(0);
    let (folder, line) = document(&results);
    assert_eq!(
        (&line["document"], &line["simulated"]),
        (&"loadline".into(), &true.into())
    );

    // What a prompt really has is what the server counts; a request takes whole blocks of it.
    let seen = &line["rounds"][0]["seen"];
    let input = seen["input_tokens"].as_f64().expect("counted").round() as u64;
    let each = (input + 32).div_ceil(16);
    let fits = 40 / each;
    assert_eq!(
        line["prediction"]["concurrency"].as_u64(),
        Some(fits),
        "{line:#}"
    );
    assert_eq!(line["prediction"]["resource"], "kv_pool");

    // Measured: prompts of words differ by a token or two, and with it by a block.
    let measured = &line["measured"];
    let holds = measured["concurrency"].as_u64().expect("a line");
    assert!(holds.abs_diff(fits) <= 1, "{holds} of {fits}: {line:#}");
    assert_eq!(measured["closed"], true);
    assert_eq!(line["limiting"], "kv_pool");
    assert!(
        line["advice"][0]
            .as_str()
            .is_some_and(|a| a.contains("--kv-pool"))
    );
    let rounds = line["rounds"].as_array().expect("rounds");
    assert!(rounds.len() < 10);
    for round in rounds {
        let beyond = round["concurrency"].as_u64() > Some(holds);
        assert_eq!(round["held"].as_bool(), Some(!beyond), "{round:#}");
        // Each leaves a profile and its capture.
        let profile = folder.join(round["profile"].as_str().expect("a name"));
        assert!(profile.is_file() && profile.with_extension("capture").is_dir());
    }
    let failed = rounds
        .iter()
        .find(|r| r["held"] == false)
        .expect("a round that failed");
    assert!(
        failed["seen"]["preemptions"].as_u64() > Some(0),
        "{failed:#}"
    );
    for word in ["SIMULATED", "Predicted", "Measured", "→ "] {
        assert!(ended.stdout.contains(word), "{word}:\n{}", ended.stdout);
    }
}

#[test]
fn limits_on_latency_are_measured_and_a_prediction_alone_sends_nothing() {
    needs!(Docker, ReferenceEngine);
    let engine = start("loadline-slo");
    let results = Results::new();
    let dir = results.arg();
    let lengths = ["--input-len=32", "--output-len=8", "--baseline=100ms"];
    let mut words = vec![
        "loadline",
        &engine.name,
        &dir,
        "--json",
        "--slo=tpot=1ms",
        "--max-rounds=2",
        "--start=2",
    ];
    words.extend(lengths);
    let ended = run(&words).expect(4);
    let ended = ended.says(&["keeps the limits on latency"], "ease that limit");
    let line: Value = serde_json::from_str(&ended.stdout).expect("JSON alone on stdout");
    // A token takes 20 ms whatever the load: nothing keeps 1 ms.
    // A single request was tried or not: no more than that is claimed.
    let claimed = &line["measured"]["concurrency"];
    assert!(*claimed == 0 || claimed.is_null(), "{claimed}");
    assert_eq!(line["limiting"], "latency");
    assert_eq!(line["rounds"][0]["faults"][0]["kind"], "latency");
    assert_eq!(
        line["difference_percent"],
        Value::Null,
        "latency is not predicted"
    );

    let results = Results::new();
    let dir = results.arg();
    let mut words = vec!["loadline", &engine.name, &dir, "--json", "--predict-only"];
    words.extend(lengths);
    let line: Value = serde_json::from_str(&run(&words).expect(0).stdout).expect("JSON");
    assert_eq!(
        (&line["measured"], &line["rounds"]),
        (&Value::Null, &Value::Array(Vec::new()))
    );
    assert_eq!(line["prediction"]["concurrency"], 40 / 3);
}

#[test]
fn what_cannot_be_is_refused_with_a_way_out() {
    needs!(Docker, ReferenceEngine);
    run(&["loadline", "no-such-container-of-ours"])
        .expect(3)
        .error();
    let said = run(&["loadline", "x", "--slo=ttft=500"]).expect(2);
    said.says(&["--slo", "no unit"], "--slo ttft=500ms");
    let engine = start("loadline-refused");
    let results = Results::new();
    let dir = results.arg();
    let long = run(&[
        "loadline",
        &engine.name,
        &dir,
        "--input-len=4000",
        "--output-len=500",
    ]);
    long.expect(2)
        .says(&["no request of these lengths fits", "4500"], "--input-len");
    // Flags that would have no effect, or no sense, are refused before anything is looked at.
    run(&["loadline", "x", "--start=10", "--max-concurrency=5"])
        .expect(2)
        .says(&["--start 10", "--max-concurrency 5"], "smaller --start");
    let alone = run(&["loadline", "x", "--slo-percentile=99"]).expect(2);
    assert!(alone.stderr.contains("--slo <LIMITS>"), "{}", alone.stderr);
    // Interrupted before there is anything to tell.
    let mut live = Live::start(plimsoll(&["loadline", &engine.name, &dir]));
    live.until("baseline");
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(
        ended.error().contains("nothing is kept"),
        "{}",
        ended.stderr
    );
    // None of these left a folder that nobody could read.
    assert_eq!(results.loadlines(), [""; 0]);
}

#[test]
fn ctrl_c_in_a_round_keeps_the_rounds_before_it() {
    needs!(Docker, ReferenceEngine);
    let engine = start("loadline-stopped");
    let results = Results::new();
    let dir = results.arg();
    let mut live = Live::start(plimsoll(&[
        "loadline",
        &engine.name,
        &dir,
        "--input-len=32",
        "--output-len=32",
        "--baseline=100ms",
        "--start=2",
    ]));
    live.until("round 1: 2 concurrent: sustained");
    live.until("round 2 of at most");
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(ended.stdout.contains("interrupted"), "{}", ended.stdout);
    let (_, line) = document(&results);
    assert_eq!(line["outcome"], "interrupted");
    assert_eq!(line["rounds"].as_array().map(Vec::len), Some(1));
    assert_eq!(line["measured"]["concurrency"], 2);
    assert_eq!(line["measured"]["closed"], false);
}
