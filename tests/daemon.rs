//! A daemon's bad days: it is restarted, killed, or stays away while plimsoll works with it. What
//! comes is right, or says what it is; and nothing stays that is not told and cannot be cleaned.
//!
//! The daemon is the test's own. One try of three rows by default; `PLIMSOLL_FAULT_TRIES` says how
//! many of all, and `PLIMSOLL_FAULT_TABLE` names a file for what was counted.

use crate::common;
use crate::common::daemon;
use crate::common::watched::Watched;
use common::e2e::{
    Ended, Live, REFERENCE_IMAGE, Results, codes, parts_sum_to_the_peak, read, skip, wait_for,
};
use common::random::{Random, seed};
use common::unique;
use daemon::{Daemon, Goes};
use plimsoll::container::leftovers::boot_id;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the engines take, MiB.
const WEIGHTS: f64 = 64.0;
const POOL: f64 = 32.0;
/// The promise: within 1 % or so much, MiB.
const TOLERANCE: f64 = 4.0;
/// A load of some seconds. Ten plimsolls at once keep a small machine busy: what a step takes is told
/// late, and has to be there to be seen for as long.
const ENGINE: &str = "--weights 64MiB --kv-pool 32MiB --activation 8MiB --activation-ms 5 \
                      --start-ms 500 --load-ms 400 --settle-ms 1200";
/// So many tries share an end of the daemon.
const AT_ONCE: u32 = 2;
/// What hangs longer than this hangs.
const BOUND: Duration = Duration::from_secs(240);

/// What happens to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    words: &'static str,
    goes: Goes,
    /// Whether its containers outlive an ordered end.
    live_restore: bool,
    /// Whether it begins again before plimsoll has ended.
    comes_back: bool,
}

/// What plimsoll is doing then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Attach,
    Idle,
    Run,
    Sweep,
    Clean,
}

const VERBS: [Verb; 5] = [
    Verb::Attach,
    Verb::Idle,
    Verb::Run,
    Verb::Sweep,
    Verb::Clean,
];

impl Verb {
    fn words(self) -> &'static str {
        match self {
            Verb::Attach => "profile, a serving container",
            Verb::Idle => "profile, an idle container",
            Verb::Run => "run",
            Verb::Sweep => "sweep",
            Verb::Clean => "clean --apply",
        }
    }

    /// What it says once it has begun to work with the daemon.
    fn begun(self) -> &'static str {
        match self {
            Verb::Attach | Verb::Idle => "baseline",
            Verb::Run => "wait until healthy",
            // Silent until they end.
            Verb::Sweep | Verb::Clean => "",
        }
    }
}

/// How a try came out.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Correct,
    Partial,
    Told,
    Corrupt(String),
}

/// Tries of one verb.
#[derive(Debug, Default)]
struct Row {
    tries: u32,
    correct: u32,
    partial: u32,
    told: u32,
    corrupt: Vec<String>,
    leaked: Vec<String>,
}

impl Row {
    fn count(&mut self, came: Came) {
        self.tries += 1;
        match came {
            Came::Correct => self.correct += 1,
            Came::Partial => self.partial += 1,
            Came::Told => self.told += 1,
            Came::Corrupt(why) => self.corrupt.push(why),
        }
    }

    fn line(&self, fault: &str, verb: &str) -> String {
        let Row {
            tries,
            correct,
            partial,
            told,
            ..
        } = self;
        let (corrupt, leaked) = (self.corrupt.len(), self.leaked.len());
        format!(
            "| {fault} | {verb} | {tries} | {correct} | {partial} | {told} | {corrupt} | {leaked} |"
        )
    }
}

/// A row for each verb.
type Rows = [Row; 5];

fn tries() -> u32 {
    let set = std::env::var("PLIMSOLL_FAULT_TRIES").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Adds lines to the file that `PLIMSOLL_FAULT_TABLE` names.
fn write_table(lines: &[String]) {
    let Some(path) = std::env::var_os("PLIMSOLL_FAULT_TABLE") else {
        return;
    };
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("PLIMSOLL_FAULT_TABLE names a file that can be written");
    let mut text = String::new();
    if file.metadata().is_ok_and(|m| m.len() == 0) {
        text.push_str("| the daemon is | verb | tries | correct | partial | failed, said so | lost or corrupt | leaked |\n");
        text.push_str("|---|---|---|---|---|---|---|---|\n");
    }
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    file.write_all(text.as_bytes()).expect("table");
}

/// A daemon of the test's own, or the test is skipped; where it is demanded, it fails.
macro_rules! own_daemon {
    ($($option:expr),*) => {{
        needs!(Docker, ReferenceEngine, OwnDaemon);
        match Daemon::start(&[$($option),*]) {
            Ok(daemon) => daemon,
            Err(why) => {
                let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
                assert!(!required.contains("own-daemon"), "{why}");
                return skip(test_name!(), &format!("no Docker daemon of its own: {why}"));
            }
        }
    }};
}

/// A row that is like its neighbours and takes its minute: only where tries are asked for.
macro_rules! asked_for {
    () => {
        if std::env::var_os("PLIMSOLL_FAULT_TRIES").is_none() {
            return skip(test_name!(), "asked for by PLIMSOLL_FAULT_TRIES=N");
        }
    };
}

// ---- five verbs at once, and the daemon goes

/// A verb at work, and where it writes.
struct Work {
    verb: Verb,
    live: Live,
    results: Results,
    /// Its container's name.
    name: String,
}

/// A container's name for a verb, and the container where it takes one that is there.
fn prepare(daemon: &Daemon, verb: Verb) -> String {
    let name = unique("daemon");
    let created = |options: &[&str], words: &[&str]| {
        let mut args = vec!["run", "-d", "--name", &name, "--stop-timeout", "1"];
        args.extend(options);
        args.push(REFERENCE_IMAGE);
        args.extend(words);
        daemon.docker(&args).expect("container");
    };
    match verb {
        Verb::Attach => {
            let mut words = vec!["serve", "--model", "reference/test"];
            words.extend(ENGINE.split_whitespace());
            created(&[], &words);
            wait_for("the engine", || {
                let log = daemon.docker(&["logs", &name]).ok()?;
                log.contains("phase=ready").then_some(())
            });
        }
        Verb::Idle => created(&[], &["idle"]),
        Verb::Run | Verb::Sweep => {}
        Verb::Clean => {
            let owner = format!("plimsoll.owner={}:4194303:1", boot_id());
            let options = ["--label", "plimsoll.run=lost", "--label", &owner];
            let words = "serve --model m --weights 4MiB --kv-pool 4MiB --fault ignore-sigterm";
            created(&options, &words.split(' ').collect::<Vec<_>>());
        }
    }
    name
}

fn begin(daemon: &Daemon, verb: Verb, name: String) -> Work {
    let results = Results::new();
    let dir = results.arg();
    let extra = format!("--extra-engine-args={ENGINE}");
    let common = ["--memory-backend=host", "--baseline=300ms", &dir];
    let with = |args: &[&str]| daemon.plimsoll(&[args, &common].concat());
    let live = Live::start(match verb {
        Verb::Attach => with(&["profile", &name, "--num-prompts=1500"]),
        Verb::Idle => {
            let extra = format!("{extra} --num-iters 1000");
            with(&["profile", &name, "-m", "reference/test", &extra])
        }
        Verb::Run => {
            let load = "--num-prompts=1000";
            with(&["run", "--preset=reference", "--name", &name, load, &extra])
        }
        Verb::Sweep => {
            let folder = results.0.path();
            let file = folder.join("sweep.yaml").display().to_string();
            let words: Vec<&str> = ENGINE.split_whitespace().collect();
            let text = format!(
                "name: daemon\nhealth_timeout: 20s\ndefaults:\n  engine: reference\n  input_lengths: [16]\n  \
                 output_lengths: [4, 8]\n  batch_sizes: [1, 2]\n  num_iters: 100\nmodels:\n  - model_id: reference/test\n    \
                 image: {REFERENCE_IMAGE}\n    extra_engine_args: {words:?}\n"
            );
            std::fs::write(&file, text).expect("sweep file");
            let resume = format!("--begin-or-resume={}", folder.join("run").display());
            with(&["sweep", &file, &resume])
        }
        Verb::Clean => daemon.plimsoll(&["clean", &name, "--apply", "--yes", "--grace=8s"]),
    });
    Work {
        verb,
        live,
        results,
        name,
    }
}

/// Tries of one fault that meet the same end of a daemon: all five verbs in each, begun at moments of
/// their own.
fn tries_at_once(
    daemon: &mut Daemon,
    fault: Fault,
    count: u32,
    dice: &mut Random,
    rows: &mut Rows,
) {
    daemon.live_restore(fault.live_restore);
    daemon.begin().expect("the test's own daemon begins");
    let here = &*daemon;
    let prepared: Vec<(Verb, String)> = std::thread::scope(|scope| {
        let each = (0..count).flat_map(|_| VERBS);
        let each = each.map(|verb| scope.spawn(move || (verb, prepare(here, verb))));
        let all: Vec<_> = each.collect();
        all.into_iter()
            .map(|thread| thread.join().expect("containers"))
            .collect()
    });
    let mut works: Vec<Work> = Vec::new();
    for (verb, name) in prepared {
        works.push(begin(here, verb, name));
        if works.len() % VERBS.len() == 0 {
            std::thread::sleep(Duration::from_millis(dice.below(2000)));
        }
    }
    // The last ones; those before them are further on.
    for work in works.iter_mut().rev().take(VERBS.len()) {
        work.live.until(work.verb.begun());
    }
    // Not to wait for anything: the moment is what is tried.
    std::thread::sleep(Duration::from_millis(dice.below(8000)));
    // What had ended before met no fault.
    works.retain_mut(|work| work.live.is_running());
    daemon.end(fault.goes);
    if fault.comes_back {
        std::thread::sleep(Duration::from_millis(dice.below(2000)));
        daemon.begin().expect("the test's own daemon begins again");
    }
    let ended: Vec<(Verb, String, Results, Result<Ended, String>)> = works
        .into_iter()
        .map(|work| (work.verb, work.name, work.results, finish(work.live)))
        .collect();
    if !fault.comes_back {
        daemon.begin().expect("the test's own daemon begins again");
    }
    let mut left = daemon.labelled();
    let marked = marked_processes();
    for (verb, name, results, ended) in &ended {
        let row = &mut rows[*verb as usize];
        let said = match ended {
            Ok(ended) => format!("{}{}", ended.stdout, ended.stderr),
            Err(said) => said.clone(),
        };
        row.count(match ended {
            Err(_) => Came::Corrupt(format!("it hangs:\n{said}")),
            Ok(ended) => judge(*verb, ended, results).unwrap_or_else(|why| {
                Came::Corrupt(format!("{why}\n--- exit {}\n{said}", ended.code()))
            }),
        });
        row.leaked.extend(scraps(results.0.path()));
        let id = daemon.field(name, "{{.Id}}");
        if id.is_empty() {
            continue;
        }
        let cleaned = ended.as_ref().is_ok_and(|ended| ended.code() == 0);
        if *verb == Verb::Clean && cleaned {
            row.leaked
                .push(format!("{name} is there after exit 0:\n{said}"));
        }
        if left.contains(&id) {
            left.retain(|l| *l != id);
            if !said.contains(name) {
                row.leaked
                    .push(format!("{name} is left and not told:\n{said}"));
            }
        }
        for process in marked.iter().filter(|p| p.contains(&id)) {
            row.leaked
                .push(format!("a process is left: {process}\n{said}"));
        }
    }
    // The others are the sweeps'.
    let swept = ended.iter().filter(|e| e.0 == Verb::Sweep);
    let swept: Vec<&str> = swept
        .filter_map(|e| Some(e.3.as_ref().ok()?.stderr.as_str()))
        .collect();
    for id in &left {
        let name = daemon.field(id, "{{.Name}}").replace('/', "");
        if !swept.iter().any(|said| said.contains(&name)) {
            let why = format!("{name} is left and not told:\n{swept:#?}");
            rows[Verb::Sweep as usize].leaked.push(why);
        }
    }
    // Whatever was left, told or not, one call gets rid of.
    let command = daemon.plimsoll(&["clean", "--apply", "--yes", "--grace=1s"]);
    let cleaned = finish(Live::start(command));
    let left = daemon.labelled();
    if !left.is_empty() {
        let row = &mut rows[Verb::Clean as usize];
        row.leaked
            .push(format!("{left:?} cannot be cleaned:\n{cleaned:?}"));
    }
    daemon.empty();
    daemon.end(Goes::Ordered);
}

/// Waits for its end, or gives what it said until then.
fn finish(mut live: Live) -> Result<Ended, String> {
    let began = Instant::now();
    while live.is_running() {
        if began.elapsed() > BOUND {
            return Err(live.stderr());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(live.end())
}

/// Processes that carry the mark of a run, each with its cgroups: only root sees them all.
fn marked_processes() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in processes {
        let file = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let environ = file("environ");
        if environ
            .split(|b| *b == 0)
            .any(|v| v.starts_with(b"PLIMSOLL_EXEC="))
        {
            let text = |name: &str| String::from_utf8_lossy(&file(name)).replace('\0', " ");
            found.push(format!("{} {}", text("cmdline"), text("cgroup")));
        }
    }
    found
}

/// Temporary files that a run left in its results.
fn scraps(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            found.extend(scraps(&entry.path()));
        } else if name.starts_with(".tmp") || name.ends_with(".tmp") {
            found.push(format!("a temporary file is left: {name}"));
        }
    }
    found
}

/// What came of a verb. `Err`: something that must not be.
fn judge(verb: Verb, ended: &Ended, results: &Results) -> Result<Came, String> {
    let said = &ended.stderr;
    if said.contains("panicked") || said.contains("bug in plimsoll") {
        return Err("a bug".into());
    }
    every_document_is_whole(results.0.path())?;
    match verb {
        Verb::Attach | Verb::Idle | Verb::Run => judge_profile(verb, ended, results),
        Verb::Sweep => judge_sweep(ended, results),
        Verb::Clean => match ended.code() {
            0 => Ok(Came::Correct),
            3 | 8
                if said.contains("error: ")
                    || said.contains("warning: ")
                    || !ended.stdout.is_empty() =>
            {
                Ok(Came::Told)
            }
            code => Err(format!("exit {code}")),
        },
    }
}

fn judge_profile(verb: Verb, ended: &Ended, results: &Results) -> Result<Came, String> {
    let errors = ended.stderr.lines().filter(|l| l.starts_with("error: "));
    match (ended.code(), errors.count()) {
        (0, 0) | (3 | 4, 1) => {}
        (code, errors) => return Err(format!("exit {code} with {errors} errors")),
    }
    let profiles = results.profiles();
    let [profile] = &profiles[..] else {
        return match ended.code() {
            0 => Err(format!("exit 0 and {} profiles", profiles.len())),
            _ => Ok(Came::Told),
        };
    };
    let document = read(profile);
    let completed = document["metadata"]["outcome"] == "completed";
    match (completed, ended.code()) {
        (true, 0) => right(verb, &document),
        // All was measured; that its container could not be removed is the failure.
        (true, 3) if verb == Verb::Run && ended.stderr.contains("could not be removed") => {
            right(verb, &document)?;
            Ok(Came::Told)
        }
        (false, 3 | 4) if says_why(&document) => Ok(Came::Partial),
        (_, code) => Err(format!(
            "exit {code} and {:#}",
            document["metadata"]["outcome"]
        )),
    }
}

/// Whether a finding tells more than that the engine is the simulated one.
fn says_why(document: &Value) -> bool {
    let codes = codes(document);
    codes.iter().any(|code| *code != "simulated_engine")
}

/// The figures are the engine's, or some are unknown and say why, or are of low confidence beside a
/// finding: the rule of the faulty sockets.
fn right(verb: Verb, document: &Value) -> Result<Came, String> {
    parts_sum_to_the_peak(document);
    let breakdown = &document["memory_breakdown"];
    let mib = |key: &str| breakdown[key].as_f64().map(|gb| gb * 1024.0);
    let doubted = |key: &str| {
        let level = &breakdown["confidence_levels"]
            [key.trim_end_matches("_gb").trim_start_matches("model_")];
        level
            .as_str()
            .is_some_and(|level| level.starts_with("low_"))
    };
    let is = |key: &str, truth: f64| match mib(key) {
        Some(measured) if (measured - truth).abs() <= TOLERANCE => Ok(Came::Correct),
        Some(_) if doubted(key) && says_why(document) => Ok(Came::Partial),
        None => Ok(Came::Partial),
        other => Err(format!(
            "{key} is {other:?} MiB and not {truth}: {breakdown:#}"
        )),
    };
    match verb {
        // Its start was not seen: what it took is known as a whole only.
        Verb::Attach => match mib("total_measured_gb") {
            Some(total) if (WEIGHTS + POOL..=WEIGHTS + POOL + 40.0).contains(&total) => {
                Ok(Came::Correct)
            }
            other => Err(format!("the total is {other:?} MiB")),
        },
        _ => match (is("model_weights_gb", WEIGHTS)?, is("kv_cache_gb", POOL)?) {
            (Came::Correct, Came::Correct) => Ok(Came::Correct),
            _ => Ok(Came::Partial),
        },
    }
}

fn judge_sweep(ended: &Ended, results: &Results) -> Result<Came, String> {
    let document = read(&results.0.path().join("run/results.json"));
    let cells = document["cells"].as_array().ok_or("no cells")?;
    let (mut done, mut unknown) = (0, 0);
    for cell in cells {
        let row = &cell["row"];
        match cell["status"].as_str() {
            Some("done") => {
                done += 1;
                for (part, truth) in [("model_weights_bytes", WEIGHTS), ("kv_cache_bytes", POOL)] {
                    // What was not seen on a busy machine is unknown, and no figure.
                    let Some(bytes) = row["figures"][part].as_f64() else {
                        unknown += 1;
                        continue;
                    };
                    let mib = bytes / f64::from(1 << 20);
                    let component = part.trim_end_matches("_bytes");
                    let doubted = row["figures"]["low_confidence"].as_array();
                    let off = (mib - truth).abs() > TOLERANCE;
                    if off && doubted.is_some_and(|parts| parts.iter().any(|p| p == component)) {
                        unknown += 1;
                    } else if off {
                        return Err(format!("{part} of {mib} MiB in {cell:#}"));
                    }
                }
            }
            _ if row["message"].is_string() || row.is_null() => {}
            _ => return Err(format!("a row without a reason: {cell:#}")),
        }
    }
    match (ended.code(), done == cells.len()) {
        (0, true) if unknown == 0 => Ok(Came::Correct),
        (0, true) | (5, false) => Ok(Came::Partial),
        (3 | 4 | 8, false) => Ok(Came::Told),
        (3, true) => Ok(Came::Told),
        (code, _) => Err(format!("exit {code} with {done} of {} cells", cells.len())),
    }
}

fn every_document_is_whole(folder: &Path) -> Result<(), String> {
    for path in files(folder) {
        let is = |ending: &str| path.extension().is_some_and(|e| e == ending);
        let text =
            || std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()));
        if is("json") && serde_json::from_str::<Value>(&text()?).is_err() {
            return Err(format!("{} is no whole document", path.display()));
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// All tries of one fault; says what must not be only after all were made.
fn all_tries(daemon: &mut Daemon, fault: Fault) {
    daemon.end(Goes::Ordered);
    let mut rows = Rows::default();
    let seed = seed();
    let mut dice = Random(seed.wrapping_add(fault.words.len() as u64));
    // A verb that had ended before the daemon did met no fault: there are more rounds for it.
    let rounds = tries().div_ceil(AT_ONCE);
    let most = if tries() > 1 { rounds * 2 } else { 1 };
    for round in 0..most {
        if round >= rounds && rows.iter().all(|row| row.tries >= tries()) {
            break;
        }
        tries_at_once(daemon, fault, AT_ONCE.min(tries()), &mut dice, &mut rows);
    }
    let lines: Vec<String> = VERBS
        .iter()
        .map(|verb| rows[*verb as usize].line(fault.words, verb.words()))
        .collect();
    write_table(&lines);
    let bad: Vec<&String> = rows
        .iter()
        .flat_map(|r| r.corrupt.iter().chain(&r.leaked))
        .collect();
    assert!(
        bad.is_empty(),
        "PLIMSOLL_FAULT_SEED={seed}\n{}\n{bad:#?}",
        lines.join("\n")
    );
}

#[test]
fn a_daemon_that_is_restarted() {
    let mut daemon = own_daemon!();
    let fault = Fault {
        words: "restarted",
        goes: Goes::Ordered,
        live_restore: false,
        comes_back: true,
    };
    all_tries(&mut daemon, fault);
}

#[test]
fn a_daemon_that_is_restarted_and_keeps_its_containers() {
    let mut daemon = own_daemon!();
    let fault = Fault {
        words: "restarted, live-restore",
        goes: Goes::Ordered,
        live_restore: true,
        comes_back: true,
    };
    all_tries(&mut daemon, fault);
}

#[test]
fn a_daemon_that_is_killed() {
    asked_for!();
    let mut daemon = own_daemon!();
    let fault = Fault {
        words: "killed and begun again",
        goes: Goes::Killed,
        live_restore: false,
        comes_back: true,
    };
    all_tries(&mut daemon, fault);
}

#[test]
fn a_daemon_that_is_killed_and_keeps_its_containers() {
    let mut daemon = own_daemon!();
    let fault = Fault {
        words: "killed and begun again, live-restore",
        goes: Goes::Killed,
        live_restore: true,
        comes_back: true,
    };
    all_tries(&mut daemon, fault);
}

#[test]
fn a_daemon_that_stays_away() {
    asked_for!();
    let mut daemon = own_daemon!();
    let fault = Fault {
        words: "killed for good",
        goes: Goes::Killed,
        live_restore: true,
        comes_back: false,
    };
    all_tries(&mut daemon, fault);
}

// ---- a daemon that is begun again under `watch`

#[test]
fn watch_goes_on_when_its_daemon_is_begun_again() {
    let mut daemon = own_daemon!("--live-restore");
    let name = unique("watched");
    let serve = ["serve", "--model", "reference/watched"];
    let engine = [&["run", "-d", "--name", &name, REFERENCE_IMAGE][..], &serve].concat();
    daemon.docker(&engine).expect("an engine");
    let state = tempfile::tempdir().expect("tempdir");
    let host = daemon.host();
    let watched = Watched::start_with(state.path(), &[], |command| {
        command.env("DOCKER_HOST", &host);
    });
    let line = |metric: &str| format!("plimsoll_container_{metric}{{container=\"{name}\"}}");
    watched.wait_for(&line("running"), |v| v == 1.0);
    let problems = watched.scrape()["plimsoll_scan_problems"];
    for goes in [Goes::Killed, Goes::Ordered] {
        daemon.end(goes);
        let ended = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let ended = ended.expect("a time").as_secs_f64();
        // It outlives its daemon, and its memory is read meanwhile.
        watched.wait_for("plimsoll_scan_timestamp_seconds", |at| at > ended);
        let page = watched.scrape();
        assert_eq!(page.get(&line("running")), Some(&1.0), "{page:#?}");
        daemon.begin().expect("it begins again");
        watched.wait_for("plimsoll_scan_problems", |n| n <= problems);
    }
    daemon.docker(&["kill", &name]).expect("killed");
    let deaths = |page: BTreeMap<String, f64>| -> f64 {
        let deaths = page.into_iter().filter(|(line, _)| {
            line.starts_with("plimsoll_container_deaths_total") && line.contains(&name)
        });
        deaths.map(|(_, count)| count).sum()
    };
    wait_for("its death", || {
        (deaths(watched.scrape()) > 0.0).then_some(())
    });
    assert_eq!(deaths(watched.scrape()), 1.0);
}

// ---- two daemons with one ID

/// The container of a `plimsoll run` that was killed once its engine served.
fn lost_run(daemon: &Daemon, state: &Path) -> String {
    let name = unique("twin");
    let results = Results::new();
    let mut command = daemon.plimsoll(&[
        "run",
        "--preset=reference",
        "--bench=none",
        "--duration=600s",
        "--memory-backend=host",
        "--name",
        &name,
        &results.arg(),
    ]);
    command.env("XDG_STATE_HOME", state);
    let mut live = Live::start(command);
    let records = state.join("plimsoll/started");
    wait_for("its engine", || {
        assert!(live.is_running(), "{}", live.stderr());
        let id = daemon.field(&name, "{{.Id}}");
        let noted = records.join(format!("{id}.json")).exists();
        let log = daemon.docker(&["logs", &name]).ok()?;
        (noted && log.contains("phase=ready")).then_some(())
    });
    live.signal(rustix::process::Signal::KILL);
    live.end();
    name
}

/// Two daemons with one ID share a user's records. What the first one runs is unknown to the second,
/// and that is no reason to end it, nor what somebody else runs in its pid namespace.
#[test]
fn a_daemon_ends_nothing_of_another_one_with_its_id() {
    let first = own_daemon!();
    let second = Daemon::start_as(Some(&first), &[]).expect("a second daemon");
    assert_eq!(first.id(), second.id(), "else the test shows nothing");
    let state = tempfile::tempdir().expect("tempdir");
    let clean = |daemon: &Daemon| {
        let mut command = daemon.plimsoll(&["clean", "--apply", "--yes", "--memory-backend=host"]);
        command.env("XDG_STATE_HOME", state.path());
        Live::start(command).end()
    };
    for _ in 0..tries().max(3) {
        let lost = lost_run(&first, state.path());
        let (sharer, namespace) = (unique("sharer"), format!("container:{lost}"));
        let args = ["run", "-d", "--name", &sharer, "--pid", &namespace];
        let words = [REFERENCE_IMAGE, "idle"];
        first.docker(&[&args[..], &words].concat()).expect("sharer");
        let states = || {
            let format = "{{.State.Status}} {{.State.Pid}} {{.State.StartedAt}}";
            [&lost, &sharer].map(|name| first.field(name, format))
        };
        let before = states();
        assert!(
            before.iter().all(|s| s.starts_with("running")),
            "{before:?}"
        );

        let ended = clean(&second).expect(0);
        assert_eq!(states(), before, "{}", ended.stdout);
        assert!(!ended.stdout.contains(&lost), "{}", ended.stdout);
        // The first one knows them, and the sharer keeps both.
        let ended = clean(&first).expect(8);
        assert_eq!(states(), before, "{}", ended.stdout);
        assert!(ended.stdout.contains(&sharer), "{}", ended.stdout);

        first.docker(&["rm", "-f", &sharer]).expect("removed");
        clean(&first).expect(0);
        assert_eq!(first.field(&lost, "{{.Id}}"), "", "it is removed");
    }
}
