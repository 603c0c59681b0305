//! A signal at a random moment of whatever plimsoll does: what is there afterwards is whole or says
//! that it is not, and what was started is gone, or goes with the next `clean` or run.

use super::common::e2e::{Ended, Engine, Live, REFERENCE_IMAGE, Results, read};
use super::common::{docker, unique};
use super::{Found, SMALL, Sweep, Tally, Theirs, idle_args, outcome, to_its_end, told_once};
use super::{cleaning, tries, with_state};
use cleaning::{OBEYS, World};
use plimsoll::matrix::RowStatus;
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// How a run was cut short.
struct Cut {
    ended: Ended,
    signal: Signal,
    /// For a message.
    when: String,
}

/// What became of a run that got a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// It had no ear for it yet: nothing had begun.
    Early,
    /// It ended in order, by code 130.
    InOrder,
    /// It was over before.
    Over,
    /// SIGKILL.
    Killed,
}

impl Cut {
    /// Runs `command` and sends the signal after this part of `whole`.
    fn at(command: Command, whole: Duration, part: f64, signal: Signal) -> Cut {
        let life = whole.mul_f64(part);
        let mut live = Live::start(command);
        live.signal_after(life, signal);
        let ended = live.end();
        let when = format!("{signal:?} after {life:?}\n{}", ended.stderr);
        Cut {
            ended,
            signal,
            when,
        }
    }

    /// Fails where it ended in any other way than it may; `well` are the codes of a whole run.
    #[track_caller]
    fn came(&self, well: &[i32]) -> Came {
        match (self.ended.status.signal(), self.ended.status.code()) {
            (Some(9), _) if self.signal == Signal::KILL => Came::Killed,
            (Some(n), _) if n == self.signal.as_raw() => {
                assert_eq!(self.ended.stderr, "", "it had no ear yet: {}", self.when);
                Came::Early
            }
            (_, Some(130)) if self.signal != Signal::KILL => {
                told_once(&self.ended, &self.when);
                Came::InOrder
            }
            (_, Some(code)) if well.contains(&code) => Came::Over,
            other => panic!("{other:?}: {}", self.when),
        }
    }
}

/// The signals, each as often as the others, each at a moment of its own.
fn moments(what: &str) -> impl Iterator<Item = (Signal, f64)> {
    let mut random = super::random(what);
    let signals = [Signal::INT, Signal::TERM, Signal::KILL];
    (0..tries(3)).map(move |n| (signals[n % 3], random.part() * 1.02))
}

/// How long it takes when nobody disturbs it; the second time, when all is warm.
fn undisturbed(mut run: impl FnMut()) -> Duration {
    run();
    let begin = Instant::now();
    run();
    begin.elapsed()
}

/// After one profile was cut short: its documents.
#[track_caller]
fn documents(came: Came, results: &Results, cut: &Cut) -> &'static str {
    let found = Found::under(results.0.path());
    found.only_whole(&cut.when);
    let outcomes: Vec<String> = found.profiles.iter().map(|p| outcome(&read(p))).collect();
    if came != Came::Killed {
        assert!(found.unfinished.is_empty(), "{found:?} {}", cut.when);
        assert_eq!(found.whole.len(), found.profiles.len(), "{}", cut.when);
    }
    match (
        came,
        outcomes.iter().map(String::as_str).collect::<Vec<_>>()[..].as_ref(),
    ) {
        (Came::Early | Came::InOrder, []) => "nothing had begun: nothing is kept",
        (Came::InOrder, ["interrupted"]) => "a profile that says it was interrupted",
        (Came::Over, ["completed"]) => "over before: the whole profile",
        (Came::Killed, ["completed"]) => "killed after the whole profile was there",
        (Came::Killed, []) if found.whole.len() == 1 => "killed with the whole capture there",
        (Came::Killed, []) if found.unfinished.is_empty() => "killed before anything was kept",
        (Came::Killed, []) => "killed: a capture that says it is unfinished",
        (came, outcomes) => panic!("{came:?} {outcomes:?}: {}", cut.when),
    }
}

/// A profile of somebody's container, again and again.
fn of_theirs(what: &str, world: &World, theirs: &Theirs, args: &dyn Fn(&str) -> Vec<String>) {
    let state = world.state();
    let command = |results: &Results| {
        let args = args(&results.arg());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        with_state(&args, &state)
    };
    let whole = undisturbed(|| {
        to_its_end(command(&Results::new())).expect(0);
    });
    let mut tally = Tally::default();
    for (signal, part) in moments(what) {
        let results = Results::new();
        let cut = Cut::at(command(&results), whole, part, signal);
        let came = cut.came(&[0]);
        let kept = documents(came, &results, &cut);
        if came == Came::Killed {
            let cleaned = world.clean(&["--apply", "--grace=2s"]).expect(0);
            let what = format!("{}{}", cut.when, cleaned.stdout);
            if theirs.is_tidied_by_the_next_run(&state, &what) {
                tally.add("a folder that the next run removed");
            }
        }
        theirs.is_clean(&cut.when);
        tally.add(format!("{signal:?}: {kept}"));
    }
    tally.tell(what);
}

#[test]
fn a_profile_of_an_idle_container() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let theirs = Theirs::idle(&world.what("idle"));
    let extra = format!("--extra-engine-args={SMALL}");
    let args = |dir: &str| {
        let args = idle_args(&theirs.engine.name, dir, &extra);
        args.into_iter().map(str::to_owned).collect()
    };
    of_theirs("profile of an idle container", &world, &theirs, &args);
}

#[test]
fn a_profile_of_a_serving_container() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let small: Vec<&str> = SMALL.split(' ').collect();
    let engine = Engine::serving(&world.what("serving"), &[], &small);
    let theirs = Theirs::of(engine);
    let args = |dir: &str| {
        let words = [
            "profile",
            &theirs.engine.name,
            "--baseline=200ms",
            "--num-prompts=32",
            dir,
        ];
        words.map(str::to_owned).to_vec()
    };
    of_theirs("profile of a serving container", &world, &theirs, &args);
}

#[test]
fn a_container_of_ours() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let state = world.state();
    let extra = format!("--extra-engine-args={SMALL}");
    let command = |name: &str, results: &Results| {
        let mut run = with_state(&["run", "--preset=reference", "--name", name], &state);
        run.args([
            "--baseline=200ms",
            "--num-prompts=16",
            &extra,
            &results.arg(),
        ]);
        run
    };
    let next = || unique(&world.what("run"));
    let whole = undisturbed(|| {
        to_its_end(command(&next(), &Results::new())).expect(0);
    });
    let mut tally = Tally::default();
    for (signal, part) in moments("run") {
        let (name, results) = (next(), Results::new());
        let _removed = Removed(name.clone());
        let cut = Cut::at(command(&name, &results), whole, part, signal);
        let came = cut.came(&[0]);
        tally.add(format!("{signal:?}: {}", documents(came, &results, &cut)));
        if came == Came::Killed {
            // Docker may still be making what a process asked for that is dead.
            for _ in 0..3 {
                let was_there = docker(&["inspect", &name]).is_ok();
                world.clean(&["--apply", "--grace=2s"]).expect(0);
                if was_there {
                    tally.add("a container that `clean --apply` removed");
                    break;
                }
            }
        }
        assert!(docker(&["inspect", &name]).is_err(), "{}", cut.when);
        assert_eq!(world.ledger(), Vec::<String>::new(), "{}", cut.when);
    }
    tally.tell("run");
}

/// Removes the container when dropped.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", "-v", &self.0]);
    }
}

// ---- sweeps

pub(super) const QUICK: [&str; 2] = ["--baseline=20ms", "--sample-interval=20ms"];

/// Six cells: on an engine of ours, on a server of ours in somebody's container, and on benches in it.
pub(super) fn cells(container: &str) -> String {
    let words: Vec<&str> = SMALL.split(' ').collect();
    let extra = format!("    extra_engine_args: {words:?}\n");
    let inside = format!("    container_name: {container}\n{extra}");
    [
        "name: moments\nhealth_timeout: 20s\ndefaults:\n  engine: reference\n  input_lengths: [16]\n",
        "  output_lengths: [4]\n  batch_sizes: [1, 2]\n  num_iters: 2\nmodels:\n",
        &format!("  - model_id: reference/own\n    image: {REFERENCE_IMAGE}\n{extra}"),
        &format!("  - model_id: reference/inside\n{inside}"),
        &format!("  - model_id: reference/alone\n    bench: latency\n{inside}"),
    ]
    .concat()
}

#[test]
fn a_sweep() {
    needs!(Docker, ReferenceEngine);
    let state = tempfile::tempdir().expect("tempdir");
    let theirs = Theirs::idle("moments-sweep");
    let sweep = || Sweep::new(&cells(&theirs.engine.name), state.path());
    let whole = undisturbed(|| {
        to_its_end(sweep().command(&QUICK)).expect(0);
    });
    let mut tally = Tally::default();
    for (signal, part) in moments("sweep") {
        let sweep = sweep();
        let cut = Cut::at(sweep.command(&QUICK), whole, part, signal);
        let came = cut.came(&[0]);
        Found::under(sweep.dir.path()).only_whole(&cut.when);
        if came != Came::Killed {
            assert_eq!(sweep.left(), Vec::<String>::new(), "{}", cut.when);
            theirs.is_clean(&cut.when);
        }
        let begun = sweep.folder().join("journal.jsonl").exists();
        let before = begun.then(|| sweep.history().rows);
        let finished = before.as_ref().map_or(0, |rows| rows.len());
        let resumed = to_its_end(sweep.command(&QUICK)).expect(0);
        let history = sweep.history();
        assert_eq!(history.rows.len(), 6, "{}{}", cut.when, resumed.stderr);
        assert!(history.rows.values().all(|r| r.status == RowStatus::Done));
        // What had its row keeps it: neither lost nor measured again.
        for (cell, row) in before.iter().flatten() {
            assert_eq!(&history.rows[cell], row, "{}", cut.when);
        }
        Found::under(sweep.dir.path()).only_whole(&cut.when);
        assert_eq!(sweep.left(), Vec::<String>::new(), "{}", cut.when);
        theirs.is_clean(&cut.when);
        let cells = if finished == 1 { "cell" } else { "cells" };
        let came = match came {
            Came::Early => "before it listened".to_owned(),
            Came::Over => "over before".to_owned(),
            _ => format!("went on after {finished} finished {cells}"),
        };
        tally.add(format!("{signal:?}: {came}"));
    }
    tally.tell("sweep");
}

// ---- the cleaner

/// Hears nothing but SIGKILL.
const IGNORES: &str = "trap '' TERM; echo up; while true; do sleep 0.1; done";

#[test]
fn the_cleaner() {
    needs!(Docker);
    let world = World::new();
    let theirs = world.theirs("theirs");
    let state = cleaning::state(&theirs.id);
    let ours = || {
        [
            world.ours("obeys", &[], OBEYS),
            world.ours("ignores", &[], IGNORES),
        ]
    };
    let args = ["--apply", "--grace=1s"];
    let first = ours();
    let begin = Instant::now();
    world.clean(&args).expect(0);
    let whole = begin.elapsed();
    drop(first);
    let mut left = ours();
    let mut tally = Tally::default();
    for (signal, part) in moments("clean --apply") {
        let cut = Cut::at(world.command(&args), whole, part, signal);
        let came = cut.came(&[0]);
        let ends: Vec<String> = left.iter().map(|c| cleaning::state(&c.id)).collect();
        let gone = ends.iter().filter(|s| *s == "gone").count();
        if came != Came::Killed {
            // What was begun was brought to its end, what was not is as it was.
            let whole = |s: &String| s == "gone" || s.starts_with("running");
            assert!(ends.iter().all(whole), "{ends:?} {}", cut.when);
        }
        let again = world.clean(&args).expect(0);
        assert!(
            left.iter().all(|c| cleaning::is_gone(&c.id)),
            "{}{:?}\n--- then\n{}{}",
            cut.when,
            left.iter()
                .map(|c| docker(&["inspect", "-f", "{{json .State}}", &c.id]))
                .collect::<Vec<_>>(),
            again.stdout,
            again.stderr
        );
        assert_eq!(cleaning::state(&theirs.id), state, "nobody's but theirs");
        tally.add(format!("{signal:?}: {gone} of 2 gone, {came:?}"));
        left = ours();
    }
    tally.tell("clean --apply");
}
