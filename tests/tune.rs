//! `plimsoll tune` on real containers of the reference engine, whose latency model has a known optimum.

use crate::common;
use common::docker;
use common::e2e::{Ended, Engine, Live, REFERENCE_IMAGE, plimsoll, read, run};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// An engine that is quick and needs little; a token takes 15 ms alone, so that a busy host changes little.
const SMALL: &str = "--weights 16MiB --kv-pool 8MiB --activation 4096 --activation-ms 0 --start-ms 20 --load-ms 20 \
                     --settle-ms 20 --token-us 15000";

/// A place for the results of one test.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Desk {
        Desk(tempfile::tempdir().unwrap())
    }

    /// `plimsoll tune` of the reference engine with this latency seed.
    fn args(&self, seed: u64, more: &[&str]) -> Vec<String> {
        let engine = format!("{SMALL} --latency-seed {seed}");
        let results = format!("--results-dir={}", self.0.path().display());
        let own = [
            "tune",
            "--image",
            REFERENCE_IMAGE,
            "--engine",
            "reference",
            "--model",
            "reference/tuned",
            "--extra-engine-args",
            &engine,
            "--concurrency",
            "2,8",
            "--gen-toks",
            "12",
            "--input-len",
            "16",
            "--baseline",
            "100ms",
            "--num-iters-warmup",
            "0",
            &results,
        ];
        own.iter()
            .chain(more)
            .map(|word| (*word).to_owned())
            .collect()
    }

    #[track_caller]
    fn run(&self, seed: u64, more: &[&str], code: i32) -> Ended {
        let args = self.args(seed, more);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>()).expect(code)
    }

    fn start(&self, seed: u64, more: &[&str]) -> Live {
        let args = self.args(seed, more);
        Live::start(plimsoll(
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
        ))
    }

    /// The folder of the latest run, and its answer.
    fn answer(&self) -> (PathBuf, Value) {
        let runs = std::fs::read_dir(self.0.path().join("tune/tuned")).unwrap();
        let mut runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
        runs.sort();
        let folder = runs.pop().unwrap();
        let answer = read(&folder.join("tune.json"));
        (folder, answer)
    }
}

/// Nothing of ours for this model is left.
#[track_caller]
fn nothing_is_left(folder: &std::path::Path) {
    let id = std::fs::read_to_string(folder.join("id")).unwrap();
    let filter = format!("label=plimsoll.sweep={}", id.trim());
    assert_eq!(docker(&["ps", "-aq", "--filter", &filter]).unwrap(), "");
}

/// Settings that differ so much that noise does not decide.
const FAR_APART: [&str; 2] = ["--set", "max-num-seqs=4,16"];

#[test]
fn tune_finds_the_known_optimum_in_a_fifth_of_the_starts() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = Desk::new();
    let ended = desk.run(
        7,
        &[
            "--set",
            "max-num-seqs=8,16,32,64",
            "--set",
            "max-num-batched-tokens=512,1024,2048,4096",
            "--set",
            "num-scheduler-steps=1,2,4",
            "--slo",
            "ttft=2s",
            "--seed",
            "1",
        ],
        0,
    );
    assert!(
        ended.stdout.contains("Best of what was tried: "),
        "{}",
        ended.stdout
    );
    let (folder, answer) = desk.answer();
    assert_eq!(
        (&answer["candidates"], &answer["starts"]),
        (&48.into(), &9.into())
    );
    let best = &answer["best"];
    assert_eq!(best["load"]["repeats"].as_array().unwrap().len(), 3);
    let command = best["command"].as_str().unwrap();
    assert!(
        command.starts_with("docker run -d") && command.contains(REFERENCE_IMAGE),
        "{command}"
    );
    let tried = answer["trials"].as_array().unwrap().len();
    assert_eq!(tried + answer["not_tried"].as_array().unwrap().len(), 48);
    nothing_is_left(&folder);

    // The engine itself knows how far its settings are from the best.
    let settings = best["settings"].as_object().unwrap().iter();
    let settings = settings.map(|(name, value)| format!("--{name}={}", value.as_str().unwrap()));
    let mut words: Vec<String> = SMALL.split_whitespace().map(str::to_owned).collect();
    words.extend(["--latency-seed".to_owned(), "7".to_owned()]);
    words.extend(settings);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let engine = Engine::serving("tuned", &[], &words);
    let truth = http_get(&format!("{}:8000", engine.address()), "/truth");
    let slowdown = truth["slowdown"].as_f64().unwrap();
    assert!(slowdown < 1.10, "{slowdown}: {:#}", answer["trials"]);
}

/// The JSON that a server answers.
fn http_get(address: &str, path: &str) -> Value {
    use std::io::Read;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

/// So many kills where `PLIMSOLL_KILLS` does not say.
const KILLS: u32 = 3;

#[test]
fn tune_that_is_killed_goes_on_to_the_same_answer_and_measures_nothing_twice() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let kills = std::env::var("PLIMSOLL_KILLS").ok();
    let kills = kills.map_or(KILLS, |n| n.parse().unwrap());
    let seed = common::random::seed();
    eprintln!("PLIMSOLL_FAULT_SEED={seed}");
    let mut random = common::random::Random(seed);
    let mut killed = 0;
    while killed < kills {
        killed += kill_and_resume(&mut random, kills - killed);
    }
}

/// One run, killed so often at most at random moments until it is complete; gives how often it was.
fn kill_and_resume(random: &mut common::random::Random, most: u32) -> u32 {
    let desk = Desk::new();
    let choice = [
        FAR_APART[0],
        FAR_APART[1],
        "--set",
        "num-scheduler-steps=1,4",
        "--seed",
        "3",
    ];
    let resumed = [&choice[..], &["--resume"]].concat();
    let mut live = desk.start(5, &choice);
    live.until("start 1: ");
    let mut killed = 0;
    loop {
        live.signal_after(
            Duration::from_millis(random.between(50, 10_000)),
            Signal::KILL,
        );
        let ended = live.end();
        if ended.status.signal() != Some(Signal::KILL.as_raw()) {
            break;
        }
        killed += 1;
        if killed == most {
            break;
        }
        live = desk.start(5, &resumed);
    }
    let ended = desk.run(5, &resumed, 0);
    assert!(!ended.stderr.contains("earlier run"), "{}", ended.stderr);
    let (folder, answer) = desk.answer();
    assert_eq!(answer["best"]["settings"]["max-num-seqs"], "16");
    assert_eq!(answer["trials"].as_array().unwrap().len(), 4);
    let journal = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    let done: Vec<&str> = journal
        .lines()
        .filter(|l| l.contains("\"status\":\"done\""))
        .collect();
    let cell = |line: &&&str| line[line.find("\"cell\"").unwrap()..][..24].to_owned();
    assert_eq!(
        done.iter().map(|l| cell(&l)).collect::<BTreeSet<_>>().len(),
        done.len()
    );
    nothing_is_left(&folder);

    // All of it is known now: the same question starts no engine, and comes to the same answer.
    let again = desk.run(5, &choice, 0);
    assert!(
        again.stderr.contains("by an earlier run"),
        "{}",
        again.stderr
    );
    let (_, second) = desk.answer();
    assert_eq!(second["starts"], 0);
    assert_eq!(second["best"]["settings"], answer["best"]["settings"]);
    assert_eq!(second["best"]["score"], answer["best"]["score"]);
    killed
}

#[test]
fn tune_says_which_part_of_a_goal_nothing_meets_and_by_how_much() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = Desk::new();
    let words: Vec<&str> = SMALL.split_whitespace().collect();
    let file = desk.0.path().join("tuned.yaml");
    let text = format!(
        "defaults: {{engine: reference, input_len: 16, output_len: 12, batch_sizes: [2, 8]}}\nmodels:\n  - \
         {{model_id: reference/tuned, image: '{REFERENCE_IMAGE}', engine_args: {{max-num-seqs: [4, 16]}}, \
         extra_engine_args: {words:?}}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let results = format!("--results-dir={}", desk.0.path().display());
    let limits = ["--slo", "ttft=1ms,e2e=9s", "--json", "--num-iters-warmup=0"];
    let ended = run(&[&["tune", &file, &results][..], &limits].concat()).expect(4);
    let error = ended.error();
    assert!(
        error.contains("ttft p95 is ") && error.contains(" times as much"),
        "{error}"
    );
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["best"], Value::Null);
    assert_eq!(printed["nearest"]["missed"][0]["part"], "ttft p95");
    // Its document is one that `report` takes from standard input.
    let mut report = plimsoll(&["report", "-", "--format", "md", "-o", "-"]);
    let mut child = report
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(ended.stdout.as_bytes())
        .unwrap();
    let written = child.wait_with_output().unwrap();
    let page = String::from_utf8_lossy(&written.stdout).into_owned();
    assert!(
        written.status.success() && page.contains("No settings that were tried"),
        "{page}"
    );
}

#[test]
fn tune_that_is_stopped_keeps_what_it_measured() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = Desk::new();
    let mut live = desk.start(5, &FAR_APART);
    live.until("start 2: ");
    live.until("short load, 2 concurrent");
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(ended.stderr.contains("--resume="), "{}", ended.stderr);
    let (folder, answer) = desk.answer();
    assert_eq!(answer["outcome"], "interrupted");
    assert_eq!(answer["trials"].as_array().unwrap().len(), 1);
    nothing_is_left(&folder);
}

#[test]
fn tune_refuses_what_it_cannot_measure_before_anything_starts() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = Desk::new();
    let with = |more: &[&str]| desk.run(0, more, 2).error().to_owned();
    let refused = with(&[&FAR_APART[..], &["--slo", "ttft=1s", "--bench", "latency"]].concat());
    assert!(refused.contains("does not measure ttft p95"), "{refused}");
    assert!(with(&[]).contains("no settings to choose among"));
    assert!(with(&["--set", "max-num-seqs=4"]).contains("one combination"));
    assert!(with(&["--set", "port=1,2"]).contains("cannot be varied"));
    assert!(with(&[&FAR_APART[..], &["--resume"]].concat()).contains("no earlier run"));
    let engine = Engine::serving("serves", &[], &["--weights", "16MiB"]);
    let line = ["tune", &engine.name, FAR_APART[0], FAR_APART[1]];
    let serving = run(&line).expect(2);
    assert!(
        serving.error().contains("serves already"),
        "{}",
        serving.stderr
    );
    assert!(!desk.0.path().join("tune").exists());
}
