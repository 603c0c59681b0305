//! Bad days of the host: signals at random moments, limits, clocks that jump, and long runs. In
//! small by default; `scripts/reliability` runs the whole, and docs/dev/RELIABILITY.md has
//! its figures.

use crate::common;
use crate::common::cleaning;
mod clock;
mod limits;
mod moments;
mod soak;
mod sweep;
mod thousand;

use common::e2e::{Ended, Engine, Live, Results, plimsoll};
use common::random::{Random, seed};
use common::skip;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use sweep::Sweep;

/// A small engine.
const SMALL: &str =
    "--weights 16MiB --kv-pool 8MiB --activation 4MiB --load-ms 50 --settle-ms 50 --start-ms 50";

/// How often each thing is tried: `PLIMSOLL_FAULT_TRIES`, or a few times.
fn tries(few: usize) -> usize {
    number("PLIMSOLL_FAULT_TRIES").map_or(few, |n| n as usize)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Dice whose seed is told; a failure needs it to be looked into.
fn random(what: &str) -> Random {
    let seed = seed();
    say(&format!("{what}: PLIMSOLL_FAULT_SEED={seed}"));
    Random(seed)
}

/// What came of the tries, counted by words.
#[derive(Default)]
struct Tally(BTreeMap<String, usize>);

impl Tally {
    fn add(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn tell(&self, of: &str) {
        for (what, times) in &self.0 {
            say(&format!("{of}: {times} x {what}"));
        }
    }
}

/// What a long run tells meanwhile.
#[allow(clippy::print_stderr)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// `plimsoll ARGS`, remembering what it starts in a folder of the test's own.
fn with_state(args: &[&str], state: &Path) -> Command {
    let mut command = plimsoll(args);
    command.env("XDG_STATE_HOME", state);
    command
}

/// Words of a `plimsoll profile` of an idle engine that takes a second or two.
fn idle_args<'a>(name: &'a str, dir: &'a str, extra: &'a str) -> Vec<&'a str> {
    vec![
        "profile",
        name,
        "-m",
        "reference/test",
        "--baseline=200ms",
        "--bench=latency",
        "--num-iters=3",
        "--num-iters-warmup=1",
        extra,
        dir,
    ]
}

/// What lies in a results folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    profiles: Vec<PathBuf>,
    /// Captures that are whole.
    whole: Vec<PathBuf>,
    /// Captures without their facts.
    unfinished: Vec<PathBuf>,
    /// What nobody should meet: temporary files, ballast, half documents.
    rest: Vec<PathBuf>,
}

impl Found {
    /// Everything under `folder`, each document read.
    fn under(folder: &Path) -> Found {
        let mut found = Found::default();
        found.look(folder);
        found
    }

    fn look(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let read = || std::fs::read(&path).unwrap_or_default();
            let json = || serde_json::from_slice::<serde_json::Value>(&read());
            if name.starts_with('.') {
                self.rest.push(path);
            } else if name.ends_with(".capture") {
                let facts = std::fs::read(path.join("capture.json")).unwrap_or_default();
                let capture: Result<serde_json::Value, _> = serde_json::from_slice(&facts);
                match (capture.is_ok(), facts.is_empty()) {
                    (true, _) => self.whole.push(path.clone()),
                    // A file that is there must be whole.
                    (false, true) if !path.join("capture.json").exists() => {
                        self.unfinished.push(path.clone());
                    }
                    (false, _) => self.rest.push(path.clone()),
                }
                let inside = std::fs::read_dir(&path).into_iter().flatten().flatten();
                let hidden = |p: &PathBuf| {
                    p.file_name()
                        .is_some_and(|n| n.to_string_lossy().starts_with('.'))
                };
                self.rest.extend(inside.map(|e| e.path()).filter(hidden));
            } else if path.is_dir() {
                self.look(&path);
            } else if name.ends_with(".json") {
                match json() {
                    Ok(document) if document["memory_breakdown"].is_object() => {
                        self.profiles.push(path);
                    }
                    Ok(_) => {}
                    Err(_) => self.rest.push(path),
                }
            }
        }
    }

    /// Nothing half is under a name that promises a whole; what is unfinished is told so.
    #[track_caller]
    fn only_whole(&self, what: &str) {
        assert_eq!(self.rest, Vec::<PathBuf>::new(), "{what}");
        for capture in &self.unfinished {
            let ended = common::e2e::run(&["derive", &capture.display().to_string()]).expect(2);
            let told = ended.error();
            let empty = std::fs::read_dir(capture).map_or(0, Iterator::count) < 2;
            assert!(
                told.contains("is incomplete") || empty && told.contains("no capture in"),
                "{what}: {told}"
            );
        }
    }
}

/// A container of somebody's, and what runs in it when nothing of ours does.
struct Theirs {
    engine: Engine,
    before: Vec<String>,
}

impl Theirs {
    fn idle(what: &str) -> Theirs {
        Theirs::of(Engine::idle_with_shell(what, &[]))
    }

    fn of(engine: Engine) -> Theirs {
        let before = engine.processes();
        Theirs { engine, before }
    }

    /// After a kill and `clean --apply` no process of ours is in it; a folder by which nothing ran
    /// any more goes with the next run. Gives whether there was one.
    #[track_caller]
    fn is_tidied_by_the_next_run(&self, state: &Path, what: &str) -> bool {
        assert_eq!(self.engine.processes(), self.before, "{what}");
        if self.engine.leftovers().is_empty() {
            return false;
        }
        let dir = Results::new();
        let name = &self.engine.name;
        let watch = ["profile", name, "--bench=none", "--duration=50ms"];
        let mut next = with_state(&watch, state);
        next.args(["--baseline=50ms", &dir.arg()]);
        to_its_end(next).expect(0);
        true
    }

    /// Neither a process nor a file of ours is in it.
    #[track_caller]
    fn is_clean(&self, what: &str) {
        assert_eq!(self.engine.processes(), self.before, "{what}");
        assert_eq!(self.engine.leftovers(), [""; 0], "{what}");
    }
}

/// The outcome of a profile: a word, or the word of a sentence.
fn outcome(document: &serde_json::Value) -> String {
    let outcome = &document["metadata"]["outcome"];
    let word = outcome.as_str().map(str::to_owned);
    let key = || outcome.as_object()?.keys().next().cloned();
    word.or_else(key).unwrap_or_default()
}

/// It said one sentence of what went wrong, and no bug of ours was it.
#[track_caller]
fn told_once(ended: &Ended, what: &str) {
    let bug = ["panicked", "bug in plimsoll"];
    assert!(
        !bug.iter().any(|b| ended.stderr.contains(b)),
        "{what}: {}",
        ended.stderr
    );
    if ended.code() != 0 {
        ended.error();
    }
}

/// Its resident memory, KiB.
fn rss_kib(pid: u32) -> Option<u64> {
    of_status(pid, "VmRSS:")
}

/// A figure of `/proc/PID/status`.
fn of_status(pid: u32, key: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How many files it has open.
fn open_files(pid: u32) -> Option<usize> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    Some(open.flatten().count())
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// By how much `values` grow from one to the next: least squares.
fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let (mid, mean) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let over = |i: usize, y: f64| (i as f64 - mid) * (y - mean);
    let above: f64 = values.iter().enumerate().map(|(i, y)| over(i, *y)).sum();
    let below: f64 = (0..values.len()).map(|i| (i as f64 - mid).powi(2)).sum();
    above / below
}

/// Runs it to its end.
fn to_its_end(command: Command) -> Ended {
    Live::start(command).end()
}
