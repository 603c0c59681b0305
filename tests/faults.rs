//! Every command with a Docker daemon that fails: late, cut anywhere, wrong, silent, away, gone.
//! Each try must end in a right result, in one that says that it is partial, or in a sentence; with
//! nothing left behind.
//!
//! A small sample by default. `PLIMSOLL_FAULT_TRIES=20` tries each fault so often with each command
//! (`scripts/reliability sockets`), `PLIMSOLL_FAULT_TABLE=FILE` writes the table there, and
//! `PLIMSOLL_FAULT_SEED=N` chooses the same places again.
#![allow(missing_docs, clippy::print_stdout)]

use crate::common;
use crate::common::wire;
mod judge;
mod repairs;
mod table;
mod verbs;

use common::docker;
use common::e2e::{Ended, Engine, Live};
use common::random::{Random, seed};
use judge::{Kind, judge};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use table::{Table, Tried};
use verbs::{Verb, exists, settled};
use wire::{Asked, Fault, Place, Wire};

/// A try that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(150);

/// Tries side by side: they mostly wait.
const SIDE_BY_SIDE: usize = 6;

/// Tries of the sample.
const SAMPLE: usize = 8;

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// One try.
#[derive(Debug, Clone)]
struct Job {
    verb: Verb,
    fault: Fault,
    place: Place,
}

/// A container that tries of one thread use again, and what runs in it.
struct Ready {
    engine: Engine,
    base: Vec<String>,
}

/// What a thread has.
struct Desk<'a> {
    tokio: &'a tokio::runtime::Handle,
    number: usize,
    tries: usize,
    ready: BTreeMap<Verb, Ready>,
}

impl Desk<'_> {
    /// Runs a command by a wire. `None`: it hangs.
    fn live(
        &self,
        mut command: std::process::Command,
        patience: Duration,
        said: &mut String,
    ) -> Option<Ended> {
        command.stdin(std::process::Stdio::null());
        let mut live = Live::start(command);
        let begin = Instant::now();
        while live.is_running() {
            if begin.elapsed() > patience {
                *said = live.stderr();
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = live.end();
        // A cleaner's page says what could not be looked at.
        *said = format!("{}\n{}", ended.stderr, ended.stdout);
        Some(ended)
    }

    /// One run of a verb with a break; what came of it, and the requests that it made.
    fn run(&mut self, verb: Verb, breaks: Option<(Fault, Place)>) -> (Tried, Vec<Asked>) {
        self.tries += 1;
        let part = format!("fault{}x{}x{}", std::process::id(), self.number, self.tries);
        let fault = breaks.as_ref().map(|(fault, _)| *fault);
        let folder = tempfile::tempdir().expect("tempdir");
        if !verb.leaves_it() {
            self.ready.remove(&verb);
        }
        if let Entry::Vacant(place) = self.ready.entry(verb) {
            if let Some(engine) = verb.container(&part) {
                let base = engine.processes();
                place.insert(Ready { engine, base });
            }
        }
        let ready = self.ready.get(&verb);
        let name = match ready {
            Some(ready) => ready.engine.name.clone(),
            None => format!("plimsoll-test-{part}-own"),
        };
        // Of the others' containers on this machine a cleaner must not even hear.
        let wire = {
            let _inside = self.tokio.enter();
            Wire::start(
                Some(&part)
                    .filter(|_| verb == Verb::Clean)
                    .map(String::as_str),
                breaks.clone(),
            )
        };
        let begin = Instant::now();
        let mut said = String::new();
        // A sweep waits two minutes for a daemon that is gone.
        let waits = verb == Verb::Sweep && fault == Some(Fault::Gone);
        let patience = if waits { PATIENCE * 2 } else { PATIENCE };
        let command = verb.command(&wire, &name, folder.path());
        let ended = self.live(command, patience, &mut said);
        let took = begin.elapsed();
        let (met, asked) = (wire.met(), wire.asked());
        drop(wire);
        let kind = match &ended {
            None => Err("it hangs".to_owned()),
            Some(ended) => judge(verb, ended, folder.path()),
        };
        let leaked = self.left(verb, fault, &name, &said, folder.path(), &part);
        if leaked.is_some() || kind.is_err() || ended.is_none() {
            self.ready.remove(&verb);
        }
        let tried = Tried {
            met,
            hung: ended.is_none(),
            kind,
            leaked,
            took,
            said,
        };
        (tried, asked)
    }

    /// What was left behind that should not be, and is then removed.
    fn left(
        &self,
        verb: Verb,
        fault: Option<Fault>,
        name: &str,
        said: &str,
        desk: &Path,
        part: &str,
    ) -> Option<String> {
        let gone = fault == Some(Fault::Gone);
        match verb {
            Verb::Serving | Verb::Idle => {
                let ready = self.ready.get(&verb)?;
                let now = settled(&ready.engine, &ready.base);
                if now != ready.base {
                    return Some(format!("processes: {now:?}"));
                }
                let folders = ready.engine.leftovers();
                if folders.is_empty() {
                    return None;
                }
                for folder in &folders {
                    let path = format!("/tmp/{folder}");
                    let _ = docker(&["exec", &ready.engine.id, "rm", "-rf", &path]);
                }
                let told = folders.iter().all(|folder| said.contains(folder.as_str()));
                // Without a daemon nothing in a container can be removed; then it is said.
                (!(gone && told)).then(|| format!("folders: {folders:?}"))
            }
            Verb::Clean => {
                if !exists(name) {
                    return None;
                }
                // What one run could not do the next one does.
                self.clean_up(part, desk);
                let told = said.contains("error: ") || said.contains("is not known");
                (!told || exists(name)).then(|| "the container, and nothing says so".into())
            }
            Verb::Run => {
                if !exists(name) {
                    return None;
                }
                let told = gone && said.contains(name);
                self.clean_up(part, desk);
                let still = exists(name);
                let _ = docker(&["rm", "-f", "-v", name]);
                match (told, still) {
                    (true, false) => None,
                    (true, true) => Some(format!("`clean --apply` does not remove {name}")),
                    (false, _) => Some(format!("container {name}")),
                }
            }
            Verb::Sweep => {
                let ids = self.of_sweep(desk);
                if ids.is_empty() {
                    return None;
                }
                let told = gone
                    && ["could not be removed", "could not be determined"]
                        .iter()
                        .any(|words| said.contains(words));
                for id in &ids {
                    let _ = docker(&["rm", "-f", "-v", id]);
                }
                (!told).then(|| format!("containers {ids:?}"))
            }
        }
    }

    /// `clean --apply` with a daemon in good health, for containers with `part` in their names.
    fn clean_up(&self, part: &str, desk: &Path) {
        let wire = {
            let _inside = self.tokio.enter();
            Wire::start(Some(part), None)
        };
        let mut said = String::new();
        self.live(Verb::Clean.command(&wire, "", desk), PATIENCE, &mut said);
    }

    /// Containers of the sweep in a folder.
    fn of_sweep(&self, desk: &Path) -> Vec<String> {
        let mut ids = Vec::new();
        let runs = std::fs::read_dir(desk.join("results/faults"));
        for run in runs.into_iter().flatten().flatten() {
            let Ok(id) = std::fs::read_to_string(run.path().join("id")) else {
                continue;
            };
            let label = format!("label=plimsoll.sweep={}", id.trim());
            let list = docker(&["ps", "-aq", "--filter", &label]).unwrap_or_default();
            ids.extend(list.lines().map(str::to_owned));
        }
        ids
    }
}

/// The requests that each verb makes when nothing goes wrong.
fn recorded(tokio: &tokio::runtime::Handle, verbs: &[Verb]) -> BTreeMap<Verb, Vec<Asked>> {
    let one = |(number, verb): (usize, &Verb)| {
        let mut desk = Desk {
            tokio,
            number: 900 + number,
            tries: 0,
            ready: BTreeMap::new(),
        };
        let (tried, asked) = desk.run(*verb, None);
        assert_eq!(
            (tried.kind, tried.leaked),
            (Ok(Kind::Correct), None),
            "{verb:?} without a fault:\n{}",
            tried.said
        );
        (*verb, asked)
    };
    std::thread::scope(|scope| {
        let threads = verbs
            .iter()
            .enumerate()
            .map(|v| scope.spawn(move || one(v)));
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("a record"))
            .collect()
    })
}

/// Where a fault can strike a verb, all of these before any of them twice.
fn places(asked: &[Asked], fault: Fault, dice: &mut Random, tries: usize) -> Vec<Place> {
    let mut classes: BTreeMap<&str, Vec<&Asked>> = BTreeMap::new();
    for one in asked.iter().filter(|a| !fault.of_streams() || a.frames > 0) {
        classes.entry(&one.class).or_default().push(one);
    }
    // Most requests only ask whether a command still runs: each kind has its turn. How often that is
    // asked differs from run to run, so that a late one may not come.
    let mut classes: Vec<Vec<&Asked>> = classes.into_values().collect();
    for class in &mut classes {
        dice.shuffle(class);
    }
    dice.shuffle(&mut classes);
    let many = (0..tries).filter_map(|turn| {
        let class = classes.get(turn % classes.len().max(1))?;
        let one = class[(turn / classes.len()) % class.len()];
        Some(Place {
            class: one.class.clone(),
            nth: one.nth,
            frame: usize::try_from(dice.below(one.frames as u64)).unwrap_or_default(),
        })
    });
    many.collect()
}

#[test]
fn whatever_the_daemon_does_a_try_ends_well() {
    needs!(Docker, ReferenceEngine);
    let tries = number("PLIMSOLL_FAULT_TRIES");
    let seed = seed();
    println!("PLIMSOLL_FAULT_SEED={seed}");
    let side = number("PLIMSOLL_FAULT_SIDE").unwrap_or(SIDE_BY_SIDE);
    let only = std::env::var("PLIMSOLL_FAULT_ONLY").unwrap_or_default();
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    let tokio = tokio.worker_threads(2).enable_all().build().expect("tokio");
    common::e2e::shell_image();
    let recorded = recorded(tokio.handle(), &Verb::ALL);
    let mut dice = Random(seed);
    let mut jobs = Vec::new();
    for verb in Verb::ALL {
        let asked = &recorded[&verb];
        println!("{}: {} requests", verb.words(), asked.len());
        for fault in Fault::ALL {
            for place in places(asked, fault, &mut dice, tries.unwrap_or(1)) {
                jobs.push(Job { verb, fault, place });
            }
        }
    }
    jobs.retain(|j| format!("{:?} {:?} {}", j.verb, j.fault, j.place.class).contains(&only));
    dice.shuffle(&mut jobs);
    if tries.is_none() {
        // What waits longest begins first, and is no more than a few.
        jobs.truncate(SAMPLE);
        jobs.sort_by_key(|j| std::cmp::Reverse(j.fault == Fault::Silent));
    }
    let (next, table) = (AtomicUsize::new(0), Mutex::new(Table::default()));
    std::thread::scope(|scope| {
        for number in 0..side {
            let (next, table, jobs, handle) = (&next, &table, &jobs, tokio.handle());
            scope.spawn(move || {
                let mut desk = Desk {
                    tokio: handle,
                    number,
                    tries: 0,
                    ready: BTreeMap::new(),
                };
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let breaks = Some((job.fault, job.place.clone()));
                    let (tried, _) = desk.run(job.verb, breaks);
                    let at = format!(
                        "{} #{} frame {}",
                        job.place.class, job.place.nth, job.place.frame
                    );
                    table
                        .lock()
                        .expect("table")
                        .add(job.verb, job.fault, &at, tried);
                }
            });
        }
    });
    let table = table.into_inner().expect("table");
    println!("{}", table.markdown());
    if let Some(path) = std::env::var_os("PLIMSOLL_FAULT_TABLE") {
        std::fs::write(path, table.markdown()).expect("table");
    }
    assert!(
        table.bad().is_empty(),
        "PLIMSOLL_FAULT_SEED={seed}\n{}",
        table.bad().join("\n\n")
    );
    assert!(
        table.met() * 10 >= jobs.len() * 7,
        "most faults are met: {} of {}",
        table.met(),
        jobs.len()
    );
}
