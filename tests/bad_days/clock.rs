//! The wall clock steps while plimsoll runs: durations, order and sums are those of the monotonic
//! clock, and the step is told. libfaketime gives plimsoll a wall clock of the test's own; Docker
//! keeps the host's.

use super::common::e2e::{Engine, Live, REFERENCE_IMAGE, Results, codes, faketime};
use super::common::e2e::{parts_sum_to_the_peak, read};
use super::{Sweep, Tally, Theirs, idle_args, outcome, tries, with_state};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A wall clock that can be set.
struct WallClock(tempfile::TempDir);

impl WallClock {
    /// So many seconds beside the host's.
    fn at(offset_s: i64) -> WallClock {
        let clock = WallClock(tempfile::tempdir().expect("tempdir"));
        clock.set(offset_s);
        clock
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("offset")
    }

    /// Puts it to so many seconds beside the host's.
    fn set(&self, offset_s: i64) {
        let next = self.0.path().join("next");
        std::fs::write(&next, format!("{offset_s:+}\n")).expect("offset");
        std::fs::rename(next, self.file()).expect("offset");
    }

    /// Lets a command live by it.
    fn of(&self, mut command: Command) -> Command {
        command
            .env("LD_PRELOAD", faketime().expect("libfaketime"))
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_NO_CACHE", "1")
            .env("NO_FAKE_STAT", "1");
        command
    }
}

/// Slow enough for a busy machine to see its steps.
const ENGINE: &str =
    "--weights 16MiB --kv-pool 8MiB --activation 4MiB --load-ms 400 --settle-ms 300 --start-ms 300";

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// From where to where plimsoll's clock is put in the middle of the run, seconds beside the host's.
/// Where it ends with 0 its own clock and Docker's agree after the step, as they do when the host's
/// clock was stepped for both.
const STEPS: [(i64, i64); 6] = [
    (0, HOUR),
    (0, -HOUR),
    (-DAY, 0),
    (DAY, 0),
    (0, DAY),
    (HOUR, 0),
];

fn figure(document: &Value, pointer: &str) -> f64 {
    let value = document.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no {pointer} in {document:#}"))
}

/// Samples of a stored capture.
fn lines(capture: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(capture.join(file)).expect("stream");
    text.lines().map(str::to_owned).collect()
}

/// All that a capture says of time lies within the time that the test saw pass, and in order.
#[track_caller]
fn times_are_right(capture: &Path, took: Duration, what: &str) {
    let facts = read(&capture.join("capture.json"));
    let whole = i64::try_from(took.as_nanos()).expect("a duration");
    let ended = facts["ended_at_ns"].as_i64().expect("an end");
    assert!((0..=whole).contains(&ended), "{what}: ended at {ended}");
    let marks: Vec<i64> = facts["marks"]
        .as_array()
        .expect("marks")
        .iter()
        .map(|m| m["at_ns"].as_i64().expect("a moment"))
        .collect();
    assert!(marks.is_sorted() && marks.len() > 2, "{what}: {marks:?}");
    assert!(
        marks.iter().all(|at| (0..=ended).contains(at)),
        "{what}: {marks:?}"
    );
    let samples: Vec<i64> = lines(capture, "samples.jsonl")
        .iter()
        .map(|l| {
            serde_json::from_str::<Value>(l).expect("a sample")["at_ns"]
                .as_i64()
                .expect("at")
        })
        .collect();
    assert!(
        samples.windows(2).all(|w| w[0] < w[1]),
        "{what}: samples in order"
    );
    assert!(samples.iter().all(|at| (0..=whole).contains(at)), "{what}");
    // Ten a second, and none is missing: the sampler did not wait for a clock that was put back.
    let seconds = ended as f64 / 1e9;
    assert!(
        samples.len() as f64 > seconds * 5.0,
        "{what}: {} in {seconds} s",
        samples.len()
    );
    for exec in facts["execs"].as_array().into_iter().flatten() {
        let at = |key: &str| exec[key].as_i64();
        for moment in [at("started_at_ns"), at("ended_at_ns")]
            .into_iter()
            .flatten()
        {
            assert!((0..=whole).contains(&moment), "{what}: {exec:#}");
        }
    }
}

/// Moments of what Docker's own clock told: events, and lines of the container's log.
fn told_by_docker(capture: &Path) -> Vec<i64> {
    let facts = read(&capture.join("capture.json"));
    let events = facts["events"].as_array().into_iter().flatten();
    let of_lines = lines(capture, "log.txt").into_iter().filter_map(|l| {
        let mut fields = l.split(' ');
        let at = fields.next()?.parse().ok()?;
        (fields.next() == Some("c")).then_some(at)
    });
    let events = events.filter_map(|e| e["at_ns"].as_i64());
    events.chain(of_lines).collect()
}

#[track_caller]
fn is_right(document: &Value, took: Duration, step: i64, what: &str) {
    assert_eq!(outcome(document), "completed", "{what}");
    parts_sum_to_the_peak(document);
    let weights = figure(document, "/memory_breakdown/model_weights_gb") * 1024.0;
    assert!(
        (weights - 16.0).abs() < 8.0,
        "{what}: weights of {weights} MiB"
    );
    let duration = figure(document, "/metadata/duration_s");
    assert!(
        (0.0..=took.as_secs_f64()).contains(&duration),
        "{what}: {duration} s"
    );
    assert!(
        codes(document).contains(&"clock_stepped"),
        "{what}: {:#}",
        document["findings"]
    );
    let findings = document["findings"].as_array().expect("findings");
    let told = findings
        .iter()
        .find(|f| f["code"] == "clock_stepped")
        .expect("it");
    let told = told["message"].as_str().expect("words");
    assert!(told.contains(&format!("{step}.0 s")), "{what}: {told}");
}

/// The `nth` step comes as soon as a command of this results folder says `stage`. `also` gets what
/// Docker told of moments and how long all took, ns.
fn round(
    nth: usize,
    stage: &str,
    tally: &mut Tally,
    command: impl Fn(&str) -> Command,
    also: impl Fn(&[i64], i64, &str),
) {
    let (from, to) = STEPS[nth % STEPS.len()];
    let what = format!("from {from:+} s to {to:+} s");
    let (clock, results) = (WallClock::at(from), Results::new());
    let begin = Instant::now();
    let mut live = Live::start(clock.of(command(&results.arg())));
    // A timeout counted by the wall clock would be over, or never be.
    live.until(stage);
    clock.set(to);
    let ended = live.end().expect(0);
    let took = begin.elapsed();
    let whole = i64::try_from(took.as_nanos()).expect("a duration");
    let told = format!("{what}\n{}", ended.stderr);
    is_right(&results.document(), took, to - from, &told);
    let capture = &results.captures()[0];
    times_are_right(capture, took, &what);
    also(&told_by_docker(capture), whole, &what);
    tally.add(format!("{what}: right, and told"));
}

#[test]
fn it_steps_while_an_idle_container_is_profiled() {
    needs!(Docker, ReferenceEngine, Faketime);
    let theirs = Theirs::idle("clock-idle");
    let state = tempfile::tempdir().expect("tempdir");
    let extra = format!("--extra-engine-args={ENGINE}");
    let profile =
        |dir: &str| with_state(&idle_args(&theirs.engine.name, dir, &extra), state.path());
    let mut tally = Tally::default();
    for n in 0..tries(1) {
        round(
            n,
            "warm-up 1/1",
            &mut tally,
            profile,
            |told, whole, what| {
                assert!(told.iter().all(|at| *at <= whole), "{what}: {told:?}");
                theirs.is_clean(what);
            },
        );
    }
    tally.tell("clock, idle");
}

/// Here the engine's start-up is found by Docker's times of its log. It takes its time: what was
/// loaded before the first reading is not known.
#[test]
fn it_steps_while_a_container_of_ours_starts() {
    needs!(Docker, ReferenceEngine, Faketime);
    let state = tempfile::tempdir().expect("tempdir");
    let slow = (ENGINE.replace("-ms 300", "-ms 2500")).replace("-ms 400", "-ms 2500");
    let extra = format!("--extra-engine-args={slow}");
    let run = |dir: &str| {
        let words = ["run", "--preset=reference", "--timeout=120s"];
        let mut run = with_state(&words, state.path());
        run.args(["--baseline=200ms", "--num-prompts=16", &extra, dir]);
        run
    };
    let mut tally = Tally::default();
    for n in 0..tries(1) {
        let stage = "wait until healthy";
        round(n + 1, stage, &mut tally, run, |told, whole, what| {
            // Nothing that Docker told is of the future, and nothing of the run is of yesterday; but for what it
            // told before the step, where the test's clock was the wrong one.
            assert!(told.len() > 5, "{what}: {told:?}");
            let (from, _) = STEPS[(n + 1) % STEPS.len()];
            let before = from * 1_000_000_000;
            let is_near = |at: i64| (-whole..=whole).contains(&at);
            let near = told.iter().all(|at| is_near(*at) || is_near(at + before));
            assert!(near, "{what}: {told:?}");
        });
    }
    tally.tell("clock, run");
}

#[test]
fn it_steps_in_a_sweep() {
    needs!(Docker, ReferenceEngine, Faketime);
    let words: Vec<&str> = ENGINE.split(' ').collect();
    let text = format!(
        "name: clock\ndefaults:\n  engine: reference\n  input_lengths: [16]\n  output_lengths: [4]\n  \
         batch_sizes: [1, 2, 4]\nmodels:\n  - model_id: reference/own\n    image: {REFERENCE_IMAGE}\n    \
         extra_engine_args: {words:?}\n"
    );
    let mut tally = Tally::default();
    for n in 0..tries(1) {
        let (from, to) = STEPS[(n + 3) % STEPS.len()];
        sweep_through(&text, from, to);
        tally.add(format!("from {from:+} s to {to:+} s: right"));
    }
    tally.tell("clock, sweep");
}

/// A sweep after whose first row the clock steps.
fn sweep_through(text: &str, from: i64, to: i64) {
    let state = tempfile::tempdir().expect("tempdir");
    let sweep = Sweep::new(text, state.path());
    let (clock, folder) = (WallClock::at(from), sweep.folder());
    let command = sweep.command(&["--baseline=300ms"]);
    let begin = Instant::now();
    let live = Live::start(clock.of(command));
    super::common::e2e::wait_for("the first row", || {
        let journal = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap_or_default();
        journal.contains("\"end\"").then_some(())
    });
    clock.set(to);
    live.end().expect(0);
    let took = begin.elapsed().as_secs_f64();
    let results = read(&folder.join("results.json"));
    let cells = results["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 3);
    let mut sum = 0.0;
    for cell in cells {
        assert_eq!(cell["row"]["status"], "done", "{cell:#}");
        sum += cell["row"]["took_s"].as_f64().expect("a duration");
        let profile = folder.join(cell["row"]["profile"].as_str().expect("profile"));
        parts_sum_to_the_peak(&read(&profile));
    }
    assert!(sum > 0.3 && sum <= took, "{sum} of {took} s");
}

/// An engine that was started long before keeps its history, whatever our clock says later.
#[test]
fn it_steps_while_a_serving_container_is_profiled() {
    needs!(Docker, ReferenceEngine, Faketime);
    let small: Vec<&str> = ENGINE.split(' ').collect();
    let theirs = Theirs::of(Engine::serving("clock-serving", &[], &small));
    let state = tempfile::tempdir().expect("tempdir");
    let mut tally = Tally::default();
    for n in 0..tries(1) {
        let (from, to) = STEPS[(n + 1) % STEPS.len()];
        serve_through(&theirs, state.path(), from, to);
        tally.add(format!("from {from:+} s to {to:+} s: right, and told"));
    }
    tally.tell("clock, serving");
}

/// A profile of a serving container during whose load the clock steps.
fn serve_through(theirs: &Theirs, state: &Path, from: i64, to: i64) {
    let (clock, results) = (WallClock::at(from), Results::new());
    let dir = results.arg();
    let words = [
        "profile",
        &theirs.engine.name,
        "--baseline=200ms",
        "--num-prompts=32",
        &dir,
    ];
    let begin = Instant::now();
    let mut live = Live::start(clock.of(with_state(&words, state)));
    live.until("bench 1/1");
    clock.set(to);
    live.end().expect(0);
    let took = begin.elapsed();
    let document = results.document();
    assert!(codes(&document).contains(&"clock_stepped"));
    parts_sum_to_the_peak(&document);
    times_are_right(&results.captures()[0], took, "serving");
    theirs.is_clean("serving");
}
