//! A sweep that is killed again and again: what was finished is neither lost nor repeated, and
//! nothing of it is left behind.

use crate::common;
use common::docker;
use common::e2e::{Engine, Live, REFERENCE_IMAGE, plimsoll, read, wait_for};
use common::random::Random;
use plimsoll::matrix::{CellRow, RowCause, RowStatus};
use plimsoll::sweep::{OomFile, SWEEP_LABEL, SweepHistory};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many kills where `PLIMSOLL_KILLS` does not say.
const KILLS: u32 = 10;
/// One sweep is killed so often at most.
const KILLS_EACH: u32 = 5;
/// So many sweeps at once; each is a process of its own with a container of its own.
const LANES: usize = 3;
/// Some cells failed, and some did not.
const PARTIAL: i32 = plimsoll::error::ExitCode::Partial as i32;

const DEFAULTS: &str = r#"
name: killed
health_timeout: 6s
defaults:
  engine: reference
  input_lengths: [16]
  output_lengths: [4]
  batch_sizes: [1, 2]
  num_iters: 2
models:
"#;

/// An entry for an image: `extra` are keys, `fault` is the engine's.
fn on_image(model: &str, extra: &str, fault: &str) -> String {
    format!(
        "  - model_id: reference/{model}\n    image: {REFERENCE_IMAGE}\n{extra}{}",
        small(fault)
    )
}

/// Arguments of an engine that is quick and needs little.
fn small(fault: &str) -> String {
    let mut words: Vec<&str> =
        "--weights 16MiB --kv-pool 8MiB --activation 4MiB --activation-ms 5 \
                                --start-ms 20 --load-ms 50 --settle-ms 20"
            .split_whitespace()
            .collect();
    if !fault.is_empty() {
        words.extend(["--fault", fault]);
    }
    format!("    extra_engine_args: {words:?}\n")
}

/// A server that the cells share, engines that crash, run out of memory and hang, and a user's
/// container, with a server of ours in it and with benches that load the engine themselves. Begins
/// with the `first`th, so that each is met early and late.
fn every_fault(container: &str, first: usize) -> String {
    let inside = format!("    container_name: {container}\n{}", small(""));
    let mut entries = [
        on_image("good", "    input_lengths: [16, 32]\n", ""),
        on_image("crash", "", "crash@ready"),
        on_image("oom", "    memory: 64MiB\n", "oom@ready"),
        on_image("hang", "", "hang@loading_weights"),
        format!("  - model_id: reference/inside\n{inside}"),
        format!("  - model_id: reference/alone\n    bench: latency\n{inside}"),
    ];
    let count = entries.len();
    entries.rotate_left(first % count);
    [DEFAULTS, &entries.concat()].concat()
}

/// A sweep's file and folder, and the user's container that it measures in.
struct Sweep {
    dir: tempfile::TempDir,
    /// The user's; nothing of ours may stay in it.
    container: Option<Engine>,
}

impl Sweep {
    fn new(what: &str, first: usize) -> Sweep {
        let container = Engine::idle_with_shell(what, &[]);
        let sweep = Sweep::of(&every_fault(&container.name, first));
        Sweep {
            container: Some(container),
            ..sweep
        }
    }

    fn of(text: &str) -> Sweep {
        let dir = tempfile::tempdir().expect("tempdir");
        let sweep = Sweep {
            dir,
            container: None,
        };
        sweep.write(text);
        sweep
    }

    fn write(&self, text: &str) {
        std::fs::write(self.dir.path().join("sweep.yaml"), text).expect("file");
    }

    /// Where it writes.
    fn folder(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn journal(&self) -> PathBuf {
        self.folder().join("journal.jsonl")
    }

    /// Begins, or goes on.
    fn command(&self) -> Command {
        plimsoll(&[
            "sweep",
            &self.dir.path().join("sweep.yaml").display().to_string(),
            &format!("--begin-or-resume={}", self.folder().display()),
            &format!("--results-dir={}", self.dir.path().display()),
            "--memory-backend=host",
            "--baseline=20ms",
            "--sample-interval=20ms",
        ])
    }

    fn history(&self) -> SweepHistory {
        SweepHistory::read_journal(&self.folder()).expect("journal")
    }

    /// The label of all its containers.
    fn label(&self) -> String {
        let id = std::fs::read_to_string(self.folder().join("id")).expect("id");
        format!("{SWEEP_LABEL}={}", id.trim())
    }

    /// What came of each cell: its model and load, status, cause, phase. Not its id: that follows
    /// from the container's name, and each sweep has a container of its own.
    fn came(&self) -> BTreeSet<String> {
        let document = read(&self.folder().join("results.json"));
        let cells = document["cells"].as_array().expect("cells");
        let ids: BTreeSet<&str> = cells.iter().filter_map(|c| c["cell"].as_str()).collect();
        assert_eq!(ids.len(), cells.len(), "each cell once");
        cells
            .iter()
            .map(|cell| {
                let row = &cell["row"];
                assert_eq!(row["cell"], cell["cell"], "it has its row: {cell:#}");
                let word = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
                let words = ["status", "cause", "phase"].map(word).join(" ");
                format!("{} {}: {words}", cell["model"], cell["load"])
            })
            .collect()
    }

    /// Its journal tells of every cell's end once, and nothing of it after that.
    #[track_caller]
    fn nothing_was_repeated(&self) {
        let text = std::fs::read_to_string(self.journal()).expect("journal");
        let mut ended = BTreeSet::new();
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).expect(line);
            let begun = record.pointer("/begin/cell").and_then(Value::as_str);
            let over = record.pointer("/end/row/cell").and_then(Value::as_str);
            for cell in begun.into_iter().chain(over) {
                assert!(!ended.contains(cell), "{cell} had ended:\n{text}");
            }
            ended.extend(over.map(str::to_owned));
        }
        assert_eq!(self.history().warnings, Vec::<String>::new());
    }

    /// Every measured cell has a profile that can be read.
    #[track_caller]
    fn profiles_are_whole(&self) {
        for row in self.history().rows_in_order() {
            if row.status == RowStatus::Done {
                let profile = self.folder().join(row.profile.as_ref().expect("profile"));
                assert!(read(&profile)["memory_breakdown"].is_object());
                assert!(
                    profile
                        .with_extension("capture")
                        .join("capture.json")
                        .is_file()
                );
            }
        }
    }

    /// No container of it, and no process or file of it in the user's.
    #[track_caller]
    fn nothing_is_left(&self) {
        let label = format!("label={}", self.label());
        let left = docker(&["ps", "-aq", "--filter", &label]).expect("docker ps");
        assert_eq!(left, "", "containers of {label}");
        let names = docker(&["ps", "-a", "--format", "{{.Names}}"]).expect("docker ps");
        let ours = self.history().run_ids;
        let ours: BTreeSet<String> = ours.iter().map(|id| format!("plimsoll-{id}")).collect();
        let left: Vec<&str> = names.lines().filter(|n| ours.contains(*n)).collect();
        assert_eq!(left, Vec::<&str>::new());
        if let Some(container) = &self.container {
            assert_eq!(container.processes(), ["/reference-engine idle"]);
            assert_eq!(container.leftovers(), Vec::<String>::new());
        }
    }
}

/// Kills it with SIGKILL after so long; `false` where it had ended by itself.
fn killed_after(mut live: Live, life: Duration) -> bool {
    live.signal_after(life, Signal::KILL);
    let ended = live.end();
    let killed = ended.status.signal() == Some(9);
    assert!(killed || ended.code() == PARTIAL, "{}", ended.stderr);
    killed
}

/// Kills that are left to do.
struct Budget(Mutex<u32>);

impl Budget {
    fn take(&self, wanted: u32) -> Option<u32> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = wanted.min(*left);
        *left -= taken;
        (taken > 0).then_some(taken)
    }

    fn give_back(&self, unused: u32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += unused;
    }
}

/// Kills a sweep so often, lets it end, and looks at all of it. Gives how often it was killed.
fn kill_and_check(
    random: &mut Random,
    kills: u32,
    whole: Duration,
    came: &BTreeSet<String>,
) -> Vec<String> {
    let sweep = Sweep::new("killed", random.next() as usize);
    let (mut moments, mut rows) = (Vec::new(), 0);
    for _ in 0..kills {
        // Any moment of what is left, as far as the rows tell how much that is.
        let left = came.len() - rows;
        let life = whole.mul_f64(random.part() * left as f64 / came.len() as f64);
        if !killed_after(Live::start(sweep.command()), life) {
            break;
        }
        rows = sweep.history().rows.len();
        moments.push(format!("{:.2} s ({rows} rows)", life.as_secs_f64()));
    }
    let ended = Live::start(sweep.command()).end().expect(PARTIAL);
    assert_eq!(&sweep.came(), came, "{moments:?}\n{}", ended.stderr);
    sweep.nothing_was_repeated();
    sweep.profiles_are_whole();
    sweep.nothing_is_left();
    moments
}

#[test]
fn killed_at_random_moments_it_ends_as_if_undisturbed() {
    needs!(Docker, ReferenceEngine);
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let kills = number("PLIMSOLL_KILLS").map_or(KILLS, |n| n as u32);
    let now = jiff::Timestamp::now().as_microsecond().unsigned_abs();
    let seed = number("PLIMSOLL_KILL_SEED").unwrap_or(now);
    say(&format!("seed: PLIMSOLL_KILL_SEED={seed}"));

    let undisturbed = Sweep::new("undisturbed", 0);
    let begin = Instant::now();
    Live::start(undisturbed.command()).end().expect(PARTIAL);
    let whole = begin.elapsed();
    let came = undisturbed.came();
    undisturbed.nothing_was_repeated();
    undisturbed.profiles_are_whole();
    undisturbed.nothing_is_left();
    for fault in ["engine_died", "oom", "implied_oom", "not_ready"] {
        let needle = format!(" {fault} ");
        assert!(
            came.iter().any(|c| c.contains(&needle)),
            "{fault}: {came:#?}"
        );
    }
    let done = came.iter().filter(|c| c.ends_with("done - -")).count();
    assert_eq!(done, 8, "{came:#?}");
    say(&format!(
        "undisturbed: {} cells in {:.1} s",
        came.len(),
        whole.as_secs_f64()
    ));

    let budget = Budget(Mutex::new(kills));
    let next = std::sync::atomic::AtomicU64::new(0);
    let lane = || {
        let mut killed = 0;
        while let Some(allowed) = budget.take(KILLS_EACH) {
            let nth = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut random = Random(seed.wrapping_add(nth));
            let wanted = allowed.min(2 + (random.next() % u64::from(KILLS_EACH - 1)) as u32);
            budget.give_back(allowed - wanted);
            let moments = kill_and_check(&mut random, wanted, whole, &came);
            budget.give_back(wanted - moments.len() as u32);
            say(&format!("sweep {nth}: killed after {}", moments.join(", ")));
            killed += moments.len() as u32;
        }
        killed
    };
    let killed: u32 = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().map(|l| l.join().expect("lane")).sum()
    });
    assert_eq!(killed, kills);
    say(&format!(
        "{killed} kills in {:.0} s",
        begin.elapsed().as_secs_f64()
    ));
}

/// What a failure needs to be looked into.
#[allow(clippy::print_stderr)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// A container as a sweep leaves it that dies between creating and starting it.
fn created(sweep_label: &str, owner: &str) -> Engine {
    Engine::create(
        "never-started",
        &[
            "--label",
            "plimsoll.run=never-started",
            "--label",
            &format!("plimsoll.owner={owner}"),
            "--label",
            sweep_label,
        ],
        REFERENCE_IMAGE,
        &["idle"],
    )
}

/// The journal up to the first row of this cause, and a piece of the line after it.
fn torn_after(text: &str, cause: &str) -> String {
    let mut kept = String::new();
    let needle = format!("\"cause\":\"{cause}\"");
    for line in text.split_inclusive('\n') {
        kept.push_str(line);
        if line.contains(&needle) {
            break;
        }
    }
    let next = text[kept.len()..].lines().next();
    let next = next.unwrap_or(r#"{"begin":{"cell":"0123456789ab"}}"#);
    kept + &next[..next.len() / 2]
}

#[test]
fn a_torn_line_and_a_container_that_never_started_are_put_in_order() {
    needs!(Docker, ReferenceEngine);
    let latency = "    bench: latency\n    memory: 64MiB\n    batch_sizes: [1, 2, 4]\n";
    let sweep = Sweep::of(
        &[
            DEFAULTS,
            &on_image("oom", latency, "oom@bench_iteration"),
            &on_image("good", "", ""),
        ]
        .concat(),
    );
    let live = Live::start(sweep.command());
    let pid = live.pid();
    wait_for("a row that ran out of memory", || {
        let text = std::fs::read_to_string(sweep.journal()).unwrap_or_default();
        text.contains(r#""cause":"oom""#).then_some(())
    });
    live.signal(Signal::KILL);
    live.end();
    // It died just as it wrote its next line, and before it told the runs to come of the memory.
    let text = std::fs::read_to_string(sweep.journal()).unwrap();
    std::fs::write(sweep.journal(), torn_after(&text, "oom")).unwrap();
    let _ = std::fs::remove_file(sweep.dir.path().join("killed/oom.jsonl"));
    let before = sweep.history();
    assert_eq!((before.warnings.len(), before.rows.len()), (1, 1));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let owner = format!("{}:{pid}:1", boot.trim());
    let ours = created(&sweep.label(), &owner);
    let others = created(&format!("{SWEEP_LABEL}=/somewhere/else"), &owner);

    let ended = Live::start(sweep.command()).end().expect(PARTIAL);
    let removed = format!("container `{}`", ours.name);
    let told = ended.stderr.lines().find(|l| l.contains(&removed));
    assert!(
        told.is_some_and(|l| l.contains("is removed")),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("was not written to its end"),
        "{}",
        ended.stderr
    );
    assert!(docker(&["inspect", &ours.id]).is_err());
    assert!(docker(&["inspect", &others.id]).is_ok(), "not this sweep's");
    let causes: Vec<Option<&str>> = (sweep.history().rows_in_order())
        .map(|r| r.cause.map(RowCause::as_str))
        .collect();
    let implied = Some("implied_oom");
    assert_eq!(causes, [Some("oom"), implied, implied, None, None]);
    for (cell, row) in &before.rows {
        assert_eq!(&sweep.history().rows[cell], row);
    }
    let remembered = std::fs::read_to_string(sweep.dir.path().join("killed/oom.jsonl"));
    assert_eq!(remembered.unwrap().lines().count(), 1, "for the next run");
    sweep.nothing_was_repeated();
    sweep.profiles_are_whole();
    sweep.nothing_is_left();

    // Asked to, it does try again: what it met itself is no reason not to.
    let mut again = sweep.command();
    again.arg("--retry-failed");
    Live::start(again).end().expect(PARTIAL);
    let tried = sweep.history();
    let tried: Vec<(u32, Option<RowCause>)> = tried
        .rows_in_order()
        .map(|r| (r.attempt, r.cause))
        .collect();
    let implied = (2, Some(RowCause::ImpliedOom));
    assert_eq!(tried[..3], [(2, Some(RowCause::Oom)), implied, implied]);
    sweep.nothing_is_left();
}

#[test]
fn another_file_of_the_same_name_adds_its_cells() {
    needs!(Docker, ReferenceEngine);
    let batches = |batches: &str| {
        let extra = format!("    batch_sizes: {batches}\n");
        [DEFAULTS, &on_image("good", &extra, "")].concat()
    };
    let sweep = Sweep::of(&batches("[1, 2]"));
    Live::start(sweep.command()).end().expect(0);
    let first = sweep.history();
    let profiles = contents(&sweep.folder(), first.rows.values());

    // An earlier run, on smaller devices, is said to have had no room for more.
    let cell = &read(&sweep.folder().join("results.json"))["cells"][1];
    let oom = serde_json::json!({"oom": {
        "group": cell["group"], "load": cell["load"], "cell": "0123456789ab",
        "when": "2026-01-01T00:00:00Z", "message": "out of memory",
    }});
    let memory = sweep.dir.path().join("killed");
    std::fs::create_dir_all(&memory).unwrap();
    std::fs::write(memory.join("oom.jsonl"), format!("{oom}\n")).unwrap();

    sweep.write(&batches("[2, 4]"));
    let mut other = sweep.command();
    other.arg("--retry-oom");
    Live::start(other).end().expect(0);
    let second = sweep.history();
    assert_eq!((first.rows.len(), second.rows.len()), (2, 3));
    for (cell, row) in &first.rows {
        assert_eq!(&second.rows[cell], row);
    }
    assert_eq!(contents(&sweep.folder(), first.rows.values()), profiles);
    assert_eq!(second.starts.len(), 2);
    assert_eq!(sweep.came().len(), 3, "the one that was left out too");
    let (came, remembered) = (
        sweep.came(),
        OomFile::open_for_sweep(sweep.dir.path(), "killed"),
    );
    assert!(came.iter().all(|c| c.contains(": done ")), "{came:?}");
    assert!(
        remembered.unwrap().memory.records().next().is_none(),
        "it fitted"
    );
    sweep.nothing_was_repeated();
    sweep.profiles_are_whole();
    sweep.nothing_is_left();
}

/// The profiles of rows.
fn contents<'a>(
    folder: &Path,
    rows: impl Iterator<Item = &'a CellRow>,
) -> BTreeMap<PathBuf, Vec<u8>> {
    rows.filter_map(|row| row.profile.as_ref())
        .map(|profile| {
            (
                folder.join(profile),
                std::fs::read(folder.join(profile)).expect("profile"),
            )
        })
        .collect()
}
