//! `plimsoll tune` on real containers of the reference engine, whose latency model has a known optimum.

use crate::common;
use common::docker;
use common::e2e::{Ended, Engine, Live, REFERENCE_IMAGE, plimsoll, read, run, wait_for};
use common::sweeps;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// An engine that is quick and needs little; a token takes 15 ms alone, so that a busy host changes little. Its noise is
/// less than the model's own, whose effect on a search is tested without a host's.
const SMALL: &str = "--weights 16MiB --kv-pool 8MiB --activation 4096 --activation-ms 0 --start-ms 20 --load-ms 20 \
                     --settle-ms 20 --token-us 15000 --latency-noise 10";

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

/// A sweep file of the reference engine with these settings, under this latency seed.
pub fn settings_file(path: &Path, seed: u64, settings: &str) {
    let text = format!(
        "defaults: {{engine: reference, input_len: 16, output_len: 12, batch_sizes: [2, 8]}}\nmodels:\n  - \
         {{model_id: reference/tuned, image: '{REFERENCE_IMAGE}', engine_args: {{{settings}}}, \
         extra_engine_args: {SMALL} --latency-seed {seed}}}\n"
    );
    std::fs::write(path, text).unwrap();
}

/// What each way of searching parts has in common.
pub const QUICK: [&str; 3] = [
    "--slo=ttft=2s",
    "--num-iters-warmup=0",
    "--memory-backend=host",
];

/// The cells that a run measured.
pub fn measured(run: &Path) -> Vec<String> {
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let done = journal
        .lines()
        .filter(|l| l.contains("\"status\":\"done\""));
    done.map(|line| line[line.find("\"cell\"").unwrap()..][..24].to_owned())
        .collect()
}

/// How much slower settings are than the best, by the engine itself.
fn slowdown_of(settings: &Value, seed: u64) -> f64 {
    let settings = settings.as_object().unwrap().iter();
    let settings = settings.map(|(name, value)| format!("--{name}={}", value.as_str().unwrap()));
    let mut words: Vec<String> = SMALL.split_whitespace().map(str::to_owned).collect();
    words.extend(["--latency-seed".to_owned(), seed.to_string()]);
    words.extend(settings);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let engine = Engine::serving("tuned", &[], &words);
    let truth = http_get(&format!("{}:8000", engine.address()), "/truth");
    truth["slowdown"].as_f64().unwrap()
}

#[test]
fn tune_in_two_parts_learns_from_both_and_answers_without_docker() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = tempfile::tempdir().unwrap();
    let at = |name: &str| desk.path().join(name);
    settings_file(
        &at("tuned.yaml"),
        7,
        "max-num-seqs: [8, 16, 32, 64], max-num-batched-tokens: [512, 1024, 2048, 4096], num-scheduler-steps: [1, 2, 4]",
    );
    let command = |words: &[&str]| {
        let mut command = plimsoll(&[&["tune", "tuned.yaml"], &QUICK[..], words].concat());
        command.current_dir(desk.path());
        command
    };
    let part = |n: u32, way: &str| {
        let (shard, folder) = (format!("--shard={n}/2"), format!("{way}=run/shard-{n}"));
        Live::start(command(&[&shard, &folder]))
    };
    let first = part(1, "--output-dir");
    let mut second = part(2, "--output-dir");
    second.until("start 2: ");
    second.until("short load");
    second.signal(Signal::KILL);
    assert_eq!(second.end().status.signal(), Some(Signal::KILL.as_raw()));
    let second = part(2, "--begin-or-resume");
    let first = first.end().expect(0);
    let second = second.end().expect(0);
    assert!(!second.stderr.contains("start 1: "), "{}", second.stderr);

    let (one, two) = (measured(&at("run/shard-1")), measured(&at("run/shard-2")));
    let all: BTreeSet<&String> = one.iter().chain(&two).collect();
    assert_eq!(all.len(), one.len() + two.len(), "a load was sent twice");
    let answers = ["run/shard-1", "run/shard-2"].map(|run| read(&at(run).join("tune.json")));
    let starts: Vec<u64> = answers
        .iter()
        .map(|a| a["starts"].as_u64().unwrap())
        .collect();
    // A ninth each and one more; the first to begin may have been alone for some of its starts.
    assert!(
        starts.iter().all(|n| (6..=9).contains(n)),
        "{starts:?}: {}",
        first.stderr
    );

    let merge = |into: &str| {
        let mut merge = plimsoll(&["sweep", "merge", "run/shard-1", "run/shard-2", "-o", into]);
        merge.current_dir(desk.path());
        Live::start(merge).end().expect(0);
    };
    merge("merged");
    let answer = |from: &str, code| {
        let mut command = command(&[&format!("--resume={from}"), "--json"]);
        command.env("DOCKER_HOST", "unix:///nonexistent");
        Live::start(command).end().expect(code)
    };
    let joined: Value = serde_json::from_str(&answer("merged", 0).stdout).unwrap();
    assert_eq!(joined["starts"].as_u64(), Some(starts.iter().sum()));
    assert_eq!(joined, read(&at("merged/tune.json")));
    let scores = answers.iter().filter_map(|a| a["best"]["score"].as_f64());
    let best = scores.fold(0.0, f64::max);
    assert_eq!(joined["best"]["score"].as_f64(), Some(best));
    let slowdown = slowdown_of(&joined["best"]["settings"], 7);
    eprintln!("starts {starts:?}, slowdown {slowdown}");
    assert!(slowdown < 1.10, "{slowdown}: {:#}", joined["trials"]);

    // One part on another kind of host.
    let mut env = read(&at("run/shard-2/env.json"));
    env["host"]["cpus"] = 999.into();
    std::fs::write(at("run/shard-2/env.json"), env.to_string()).unwrap();
    merge("mixed");
    let refused = answer("mixed", 2);
    assert!(
        refused.error().contains("999 processors"),
        "{}",
        refused.stderr
    );
    let mut elsewhere = part(2, "--begin-or-resume");
    elsewhere.until("scores of different hosts are not compared");
    elsewhere.end().expect(2);
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
    let slowdown = slowdown_of(&best["settings"], 7);
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
    let done = measured(&folder);
    assert_eq!(done.iter().collect::<BTreeSet<_>>().len(), done.len());
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
    let file = desk.0.path().join("tuned.yaml");
    settings_file(&file, 0, "max-num-seqs: [4, 16]");
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
fn tune_starts_no_second_engine_with_a_flag_that_the_first_refused() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = Desk::new();
    let ended = desk.run(5, &["--set", "maxnumseqs=1,2"], 4);
    assert!(
        ended.stderr.contains("the engine refuses `--maxnumseqs`"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("leave out `--maxnumseqs`"),
        "{}",
        ended.stderr
    );
    let (_, answer) = desk.answer();
    assert_eq!(answer["starts"], 1);
    assert_eq!(answer["not_tried"].as_array().unwrap().len(), 1);
}

#[test]
fn tune_that_is_stopped_keeps_what_it_measured() {
    if !common::e2e::have(&common::this_test(), &[common::e2e::Need::ReferenceEngine]) {
        return;
    }
    let desk = Desk::new();
    let live = desk.start(5, &FAR_APART);
    wait_for("a load of the second start", || {
        let loads = live.stderr().matches("short load, 2 concurrent").count();
        (loads > 1).then_some(())
    });
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(ended.stderr.contains("--resume="), "{}", ended.stderr);
    let (folder, answer) = desk.answer();
    assert_eq!(answer["outcome"], "interrupted");
    assert_eq!(answer["trials"].as_array().unwrap().len(), 1);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("1 start unfinished, 1 load kept"), "{notes}");
    nothing_is_left(&folder);
}

/// Two GPUs of a stand-in for the driver.
const TWO_GPUS: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 81559 551 NVIDIA H100 80GB HBM3
at 0 gpu 0 used=1000 power=90000 temp=40 util=0
at 0 gpu 1 used=1000 power=90000 temp=40 util=0
";

#[test]
fn tune_starts_engines_on_different_gpus_side_by_side_and_goes_on_alike() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let dir = desk.0.path();
    let engines = ["0", "1"].map(|gpu| {
        let variable = format!("NVIDIA_VISIBLE_DEVICES={gpu}");
        Engine::run("tune-gpu", &["-e", &variable], REFERENCE_IMAGE, &["idle"])
    });
    let model = |name: &str| {
        format!(
            "  - {{model_id: reference/tuned, container_name: {name}, engine_args: {{max-num-seqs: [4, 8, 16]}}, \
             extra_engine_args: {SMALL} --latency-seed 5}}\n"
        )
    };
    let [zero, one] = engines.each_ref().map(|e| e.name.as_str());
    let text = format!(
        "defaults: {{engine: reference, input_len: 16, output_len: 12, batch_sizes: [2, 8]}}\nmodels:\n{}{}",
        model(zero),
        model(one)
    );
    let (file, scenario) = (dir.join("settings.yaml"), dir.join("scenario"));
    std::fs::write(&file, text).unwrap();
    std::fs::write(&scenario, TWO_GPUS).unwrap();
    let folder = dir.join("out");
    let tune = |place: &str| {
        let place = format!("{place}={}", folder.display());
        let results = format!("--results-dir={}", dir.display());
        let mut command = plimsoll(&[
            "tune",
            file.to_str().unwrap(),
            "--slo=ttft=2s",
            "--num-iters-warmup=0",
            "--baseline=100ms",
            "--memory-backend=nvml",
            &place,
            &results,
        ]);
        command.arg("--nvml-lib").arg(common::stage::library());
        command.env(common::stage::SCENARIO_VARIABLE, &scenario);
        Live::start(command).end().expect(0)
    };
    let ended = tune("--output-dir");
    let at = |words: &str| {
        ended
            .stderr
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {}", ended.stderr))
    };
    assert!(
        at("start 2: ") < at("start 1: measured"),
        "{}",
        ended.stderr
    );
    assert!(
        at("start 3: ") > at("start 2: measured"),
        "{}",
        ended.stderr
    );

    // Of the first two each ran while the other did.
    let journal = sweeps::journal(&folder);
    let time = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let rows = || {
        sweeps::records(&journal, "end")
            .into_iter()
            .map(|end| &end["row"])
    };
    let mut spans = BTreeMap::new();
    for begin in sweeps::records(&journal, "begin") {
        let row = rows().find(|row| row["cell"] == begin["cell"]).unwrap();
        let (from, to) = (time(&begin["at"]), time(&row["ended"]));
        let span = spans.entry(row["group"].to_string()).or_insert((from, to));
        *span = (span.0.min(from), span.1.max(to));
    }
    let mut spans: Vec<_> = spans.into_values().collect();
    spans.sort();
    assert_eq!(spans.len(), 4);
    assert!(
        spans[1].0 < spans[0].1 && spans[2].0 > spans[0].1,
        "{spans:?}"
    );

    let answer = read(&folder.join("tune.json"));
    assert_eq!(
        (&answer["candidates"], &answer["starts"]),
        (&6.into(), &4.into())
    );
    let before = measured(&folder);
    tune("--resume");
    assert_eq!(measured(&folder), before, "it measured again");
    assert_eq!(read(&folder.join("tune.json"))["starts"], 4);
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
