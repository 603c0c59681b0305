//! `plimsoll experiment` on real containers: every kind, levels that fail, Ctrl-C, and what is
//! refused before anything is made.

use crate::common;
use common::docker;
use common::e2e::{Ended, Engine, Live, plimsoll, read, run};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const SMALL: [&str; 10] = [
    "--weights",
    "16MiB",
    "--kv-pool",
    "8MiB",
    "--activation",
    "4MiB",
    "--settle-ms",
    "100",
    "--start-ms",
    "100",
];

/// A place for the results of one test.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Desk {
        Desk(tempfile::tempdir().unwrap())
    }

    fn results(&self) -> PathBuf {
        self.0.path().join("results")
    }

    /// `plimsoll experiment`, with results of the test's own.
    fn args<'a>(&self, args: &[&'a str], results: &'a str) -> Vec<&'a str> {
        let mut all = vec!["experiment"];
        all.extend(args);
        all.push(results);
        all
    }

    #[track_caller]
    fn run(&self, args: &[&str], code: i32) -> Done {
        let results = format!("--results-dir={}", self.results().display());
        Done::of(run(&self.args(args, &results)).expect(code))
    }
}

/// An experiment that has ended.
struct Done {
    ended: Ended,
    folder: PathBuf,
    document: Value,
    requests: Vec<Value>,
}

impl Done {
    #[track_caller]
    fn of(ended: Ended) -> Done {
        let folder = (ended.stderr.lines()).find_map(|l| l.strip_prefix("results: "));
        let folder = PathBuf::from(folder.unwrap_or_else(|| panic!("{}", ended.stderr)));
        let rows = read(&folder.join("requests.json"));
        let done = Done {
            document: read(&folder.join("experiment.json")),
            requests: rows["rows"].as_array().unwrap().clone(),
            folder,
            ended,
        };
        done.figures_follow_from_the_rows();
        done.nothing_is_left();
        done
    }

    fn levels(&self) -> &[Value] {
        self.document["levels"].as_array().unwrap()
    }

    fn states(&self) -> Vec<String> {
        let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let levels = self.levels().iter();
        levels
            .map(|l| {
                let words = [word(&l["name"]), word(&l["state"]), word(&l["cause"])];
                words.join(" ").trim().to_owned()
            })
            .collect()
    }

    fn rows_of(&self, level: &str) -> Vec<&Value> {
        let rows = self.requests.iter();
        rows.filter(|r| r["level"] == level).collect()
    }

    /// Counts and means are those of the rows, in JSON and in CSV.
    #[track_caller]
    fn figures_follow_from_the_rows(&self) {
        for level in self.levels() {
            let rows = self.rows_of(level["name"].as_str().unwrap());
            let ok: Vec<&&Value> = rows.iter().filter(|r| r["error"].is_null()).collect();
            let Some(total) = level["total"].as_u64() else {
                assert_eq!(rows.len(), 0, "{level:#}");
                continue;
            };
            let count = |key: &str| level[key].as_u64().unwrap();
            assert_eq!(count("successful") + count("failed"), total);
            assert_eq!(count("successful"), ok.len() as u64);
            let latencies: Vec<f64> = (ok.iter())
                .map(|r| r["total_latency_s"].as_f64().unwrap())
                .collect();
            if let Some(mean) = level["mean_latency_s"].as_f64() {
                let by_rows = latencies.iter().sum::<f64>() / latencies.len() as f64;
                assert!((mean - by_rows).abs() < 1e-9, "{mean} {by_rows}");
            }
        }
        let mut table = csv::Reader::from_path(self.folder.join("requests.csv")).unwrap();
        let rows: Vec<BTreeMap<String, String>> = table.deserialize().map(Result::unwrap).collect();
        let ids = |key: &dyn Fn(usize) -> String| (0..rows.len()).map(key).collect::<Vec<_>>();
        assert_eq!(rows.len(), self.requests.len());
        assert_eq!(
            ids(&|i| rows[i]["request_id"].clone()),
            ids(&|i| self.requests[i]["request_id"].as_str().unwrap().to_owned())
        );
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        let id = std::fs::read_to_string(self.folder.join("id")).unwrap();
        let label = format!("label=plimsoll.sweep={}", id.trim());
        assert_eq!(docker(&["ps", "-aq", "--filter", &label]).unwrap(), "");
    }
}

fn is_figure(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| v > 0.0)
}

#[test]
fn more_and_more_at_once_in_a_container_that_serves() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::serving("exp-concurrency", &[], &SMALL);
    let before = engine.processes();
    let desk = Desk::new();
    let done = desk.run(
        &[
            "concurrency",
            &engine.name,
            "--levels",
            "1,4",
            "2",
            "--prompt-toks=24",
            "--gen-toks=8",
            "--num-prompts=12",
        ],
        0,
    );
    assert_eq!(done.states(), ["1 done", "2 done", "4 done"]);
    assert_eq!(done.requests.len(), 36);
    assert_eq!(done.document["simulated"], true);
    assert_eq!(done.document["model"], "reference/test");
    for level in done.levels() {
        for figure in [
            "mean_latency_s",
            "p95_latency_s",
            "mean_tokens_per_s",
            "total_tokens_per_s",
            "mean_ttft_s",
            "peak_bytes",
        ] {
            assert!(is_figure(&level[figure]), "{figure}: {level:#}");
        }
        // The truth: weights, pool and one spike.
        assert!(level["peak_bytes"].as_u64() > Some(24 << 20));
        assert!(level["peak_alloc_bytes"].is_null() && level["peak_reserved_bytes"].is_null());
    }
    let why = &done.document["not_measured"];
    assert!(why["peak_alloc_bytes"].is_string(), "{why:#}");
    let row = &done.requests[0];
    assert_eq!(row["model"], "reference/test");
    assert_eq!(row["backend"], "reference");
    assert_eq!(row["seq_generate"], 8);
    assert!(is_figure(&row["ttft_s"]) && row["peak_alloc_bytes"].is_null());
    let at: jiff::Timestamp = row["timestamp"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().duration_since(at).as_secs_f64();
    assert!((0.0..3600.0).contains(&age), "{age}");
    // A line for each level as it ends, and the page after all.
    for name in ["1", "2", "4"] {
        let line = format!("concurrency {name}: completed 12/12, latency ");
        assert!(done.ended.stderr.contains(&line), "{}", done.ended.stderr);
    }
    let page = &done.ended.stdout;
    assert!(
        page.contains("SIMULATED") && page.contains("Not measured"),
        "{page}"
    );
    assert!(!page.contains(" 0.00 ") && !page.contains(" 0 B"), "{page}");
    for name in ["report.txt", "summary.csv"] {
        assert!(done.folder.join(name).is_file(), "{name}");
    }
    for level in done.levels() {
        let profile = done.folder.join(level["profile"].as_str().unwrap());
        assert_eq!(read(&profile)["schema_version"], "4.0");
    }
    assert!(
        done.folder.starts_with(desk.results().join("experiments"))
            && done
                .folder
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("concurrency-"),
        "{:?}",
        done.folder
    );
    assert_eq!(engine.processes(), before);
}

/// One level that the server refuses costs no other.
#[test]
fn longer_and_longer_prompts_until_one_is_too_long() {
    needs!(Docker, ReferenceEngine);
    let mut args = SMALL.to_vec();
    args.extend(["--max-model-len", "100"]);
    let engine = Engine::serving("exp-seqlen", &[], &args);
    let desk = Desk::new();
    let out = desk.results().join("mine");
    let out = out.to_str().unwrap();
    let line = [
        "seqlen",
        "--container",
        &engine.name,
        "--seqlens",
        "16",
        "32",
        "400",
        "--gen-toks=8",
        "--requests=6",
        "--output-dir",
        out,
    ];
    let done = desk.run(&line, 5);
    assert_eq!(done.folder, Path::new(out));
    assert_eq!(done.states()[..2], ["16 done", "32 done"]);
    assert!(
        done.states()[2].starts_with("400 failed "),
        "{:?}",
        done.states()
    );
    let failed = &done.levels()[2];
    assert!(failed["mean_latency_s"].is_null(), "{failed:#}");
    let said = failed["message"].as_str().unwrap();
    assert!(said.contains("maximum context length"), "{said}");
    let told = "Level 400 was tried and failed: the engine did not answer";
    assert!(done.ended.stdout.contains(told), "{}", done.ended.stdout);
    // The figures stand in the folder, with the levels that there are.
    for figure in ["fig1_mem_vs_seqlen", "fig2_tps_vs_seqlen"] {
        let drawn = std::fs::read_to_string(done.folder.join(format!("{figure}.svg"))).unwrap();
        assert!(
            drawn.starts_with("<svg") || drawn.starts_with("<?xml"),
            "{drawn}"
        );
        assert!(
            drawn.contains("SIMULATED") || drawn.contains("simulated"),
            "{drawn}"
        );
        assert!(drawn.contains("400 (failed: "), "{drawn}");
    }
    // What the server counts follows what was asked for.
    let counted = |level: &str| -> BTreeSet<u64> {
        let rows = done.rows_of(level).into_iter();
        rows.filter_map(|r| r["seq_prompt"].as_u64()).collect()
    };
    let (short, long) = (counted("16"), counted("32"));
    assert!(short.last() < long.first(), "{short:?} {long:?}");
    // What is there is not written over.
    let results = format!("--results-dir={}", desk.results().display());
    let again = run(&desk.args(&line, &results)).expect(2);
    assert!(
        again.error().contains("holds a run already"),
        "{}",
        again.stderr
    );
    assert!(!again.stderr.contains("--resume"), "{}", again.stderr);
}

#[test]
fn short_prompts_long_ones_and_both_in_a_container_that_is_started() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let done = desk.run(
        &[
            "mixed",
            "--image=plimsoll/reference-engine:dev",
            "--engine=reference",
            "--model=tiny",
            "--short=16",
            "--long=64",
            "--ratio=0.25",
            "--concurrency=2",
            "--gen-toks=4",
            "--num-prompts=40",
            "--env=HF_TOKEN=hf_swordfishswordfish",
            "--extra-engine-args=--weights 16MiB --kv-pool 8MiB --activation 4MiB --fault secret",
        ],
        0,
    );
    assert_eq!(done.states(), ["short done", "mixed done", "long done"]);
    let lengths = done.levels()[1]["by_prompt"].as_array().unwrap();
    let counts: Vec<(u64, u64)> = lengths
        .iter()
        .map(|l| {
            (
                l["prompt_tokens"].as_u64().unwrap(),
                l["successful"].as_u64().unwrap(),
            )
        })
        .collect();
    let (short, long) = (counts[0], counts[1]);
    assert_eq!((short.0, long.0, short.1 + long.1), (16, 64, 40));
    assert!(
        short.1 >= 2 && long.1 > short.1,
        "a quarter is short: {counts:?}"
    );
    // One start for all levels.
    let journal = std::fs::read_to_string(done.folder.join("journal.jsonl")).unwrap();
    assert_eq!(journal.matches("{\"start\":").count(), 1, "{journal}");
    let profile = done
        .folder
        .join(done.levels()[1]["profile"].as_str().unwrap());
    let workload = &read(&profile)["parameters"]["workload"];
    assert_eq!(workload["input_len"], 64);
    assert_eq!(workload["short_prompts"]["input_len"], 16);
    no_file_has(&done.folder, "swordfish");
}

fn no_file_has(folder: &Path, secret: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            no_file_has(&path, secret);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(secret), "{}", path.display());
        }
    }
}

/// What was measured until then is kept, what was started is removed.
#[test]
fn stopped_in_the_second_level() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let results = format!("--results-dir={}", desk.results().display());
    let line = [
        "seqlen",
        "--image=plimsoll/reference-engine:dev",
        "--engine=reference",
        "--model=tiny",
        "--seqlens=16,32",
        "--gen-toks=4",
        "--num-prompts=5000",
        "--timeout=5s",
        "--extra-engine-args=--weights 16MiB --kv-pool 8MiB --activation 4MiB",
    ];
    let mut live = Live::start(plimsoll(&desk.args(&line, &results)));
    // The first has run out of time; the second is in its load.
    live.until("prompts of 16 tokens: ");
    live.until("input 32, output 4 tokens");
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(ended.error().starts_with("interrupted"), "{}", ended.stderr);
    let done = Done::of(ended);
    assert_eq!(done.states(), ["16 failed timeout", "32 not_run"]);
    assert_eq!(done.document["interrupted"], true);
    assert!(done.document["levels"][1]["total"].is_null());
}

#[test]
fn an_engine_that_does_not_start_leaves_no_figure() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let done = desk.run(
        &[
            "concurrency",
            "--image=plimsoll/reference-engine:dev",
            "--engine=reference",
            "--model=tiny",
            "--levels=1,2",
            "--memory=128MiB",
            "--extra-engine-args=--weights 16MiB --kv-pool 8MiB --activation 4MiB --fault oom@ready",
        ],
        4,
    );
    assert_eq!(done.states(), ["1 failed oom", "2 skipped implied_oom"]);
    assert!(done.requests.is_empty());
    for level in done.levels() {
        assert!(level["error_rate"].is_null() && level["peak_bytes"].is_null());
    }
}

/// Told before a folder is made or a container started.
#[test]
fn what_cannot_be_run_is_refused_at_once() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let results = format!("--results-dir={}", desk.results().display());
    let refused = |args: &[&str], code: i32| run(&desk.args(args, &results)).expect(code);
    let nowhere = refused(&["concurrency"], 2);
    assert!(
        nowhere.error().contains("where to measure"),
        "{}",
        nowhere.stderr
    );
    let absent = refused(&["concurrency", "plimsoll-no-such-container"], 3);
    assert!(absent.error().contains("plimsoll-no-such-container"));
    refused(&["concurrency", "x", "--levels", "0"], 2);
    refused(&["concurrency", "x", "--level", "1"], 2);
    refused(&["mixed", "x", "--short", "64", "--long", "64"], 2);
    let idle = Engine::idle("exp-idle");
    refused(&["concurrency", &idle.name], 2).says(&["is idle"], "--model");
    let started = refused(&["concurrency", &idle.name, "--model=m", "--gpus=all"], 2);
    assert!(
        started.error().contains("--gpus is for"),
        "{}",
        started.stderr
    );
    refused(&["mixed", &idle.name, "--model=m", "--bench=serve"], 2).says(&["mixture"], "--bench");
    refused(
        &[
            "concurrency",
            "--image=plimsoll/no-such-image:x",
            "--model=m",
            "--engine=vllm",
        ],
        3,
    )
    .says(&["is not here"], "--pull");
    let plan = refused(&["mixed", &idle.name, "--model=m", "--dry-run"], 0);
    assert!(
        plan.stdout
            .contains("level mixed: input 64 or 256 (50 % short)"),
        "{}",
        plan.stdout
    );
    assert!(!desk.results().exists());
}
