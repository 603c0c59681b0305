//! Getting GPU memory back, end to end: the built `plimsoll clean`, real containers, and the
//! stand-in NVML that names their real processes.
//!
//! Each test has a view of the daemon of its own (`common/cleaning.rs`), and cleans all that it
//! sees there.
#![allow(missing_docs, clippy::print_stdout)]

use crate::common;
use crate::common::cleaning;
use cleaning::{
    Escaped, GPU, MIB, OBEYS, Own, World, document, entry, is_gone, lives, outcome, pid_of, state,
    text, verdict,
};
use common::e2e::{Live, wait_for};
use common::{docker, image, skip, unique};
use plimsoll::container::launch;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Applies, and says in JSON what came of it; what hangs is killed soon.
const APPLY: [&str; 4] = ["--apply", "--json", "--grace", "2s"];

fn words(act: &str, rule: &str) -> (String, String) {
    (act.to_owned(), rule.to_owned())
}

#[test]
fn a_container_whose_owner_was_killed_goes_and_is_struck_out() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let (lost, theirs) = (world.killed_run("lost"), world.theirs("theirs"));
    let (of_ours, of_theirs) = (pid_of(&lost.id), pid_of(&theirs.id));
    world.play(0, &[(of_ours, 7000), (of_theirs, 2000)]);
    let before = (state(&lost.id), state(&theirs.id));

    let dry = world.clean(&["-v"]).expect(0).stdout;
    for part in [
        "1 container to clean, 6.84 GiB",
        &lost.name,
        "[owner_dead]",
        "nothing was touched",
    ] {
        assert!(dry.contains(part), "{part}: {dry}");
    }
    assert_eq!((state(&lost.id), state(&theirs.id)), before, "a dry run");
    assert_eq!(world.ledger(), [lost.id.as_str()]);

    let given_back = || world.play(0, &[(of_theirs, 2000)]);
    let ended = world.clean_while(&APPLY, || is_gone(&lost.id), given_back);
    let all = document(&ended.expect(0));
    assert_eq!(verdict(&all, lost.id.as_str()), words("stop", "owner_dead"));
    let came = outcome(&all, lost.id.as_str());
    assert_eq!(
        (&came["done"], &came["freed_bytes"]),
        (&"cleaned".into(), &(7000 * MIB).into()),
        "{came:#}"
    );
    assert!(is_gone(&lost.id));
    assert_eq!(world.ledger(), Vec::<String>::new());
    assert_eq!(state(&theirs.id), before.1);
    let again = world.clean(&["--apply"]).expect(0).stdout;
    assert!(again.contains("Nothing to clean"), "{again}");
}

#[test]
fn an_engine_that_hangs_is_killed_after_its_grace() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let deaf = world.our_engine("deaf", &["--fault", "ignore-sigterm"]);
    let frozen = world.our_engine("frozen", &[]);
    docker(&["kill", "-s", "STOP", &frozen.id]).expect("SIGSTOP");
    world.play(0, &[(pid_of(&deaf.id), 3000), (pid_of(&frozen.id), 4000)]);
    let both = || is_gone(&deaf.id) && is_gone(&frozen.id);
    let ended = world.clean_while(&APPLY, both, || world.play(0, &[]));
    let all = document(&ended.expect(0));
    for (hung, mib) in [(&deaf, 3000), (&frozen, 4000)] {
        assert!(is_gone(&hung.id), "{}", hung.name);
        let came = outcome(&all, hung.id.as_str());
        assert_eq!(came["done"], "cleaned", "{came:#}");
        assert_eq!(came["freed_bytes"], mib * MIB, "{came:#}");
        let steps = text(&came["steps"]);
        assert!(steps.contains("killed after"), "{steps}");
        assert!(steps.ends_with("removed"), "{steps}");
    }
}

#[test]
fn what_a_killed_cleaner_began_the_next_one_finishes() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let deaf = world.our_engine("deaf", &["--fault", "ignore-sigterm"]);
    let theirs = world.theirs("theirs");
    let of_theirs = pid_of(&theirs.id);
    world.play(0, &[(pid_of(&deaf.id), 3000), (of_theirs, 2000)]);
    let before = state(&theirs.id);
    let cleaner = Live::start(world.command(&["--apply", "--grace", "60s"]));
    // It logs the signal that it ignores.
    deaf.wait_for_log("ignoring signal");
    cleaner.signal(Signal::KILL);
    cleaner.end();
    assert!(state(&deaf.id).starts_with("running"));

    let given_back = || world.play(0, &[(of_theirs, 2000)]);
    let ended = world.clean_while(&APPLY, || is_gone(&deaf.id), given_back);
    let all = document(&ended.expect(0));
    assert_eq!(outcome(&all, deaf.id.as_str())["done"], "cleaned");
    assert!(is_gone(&deaf.id));
    assert_eq!(state(&theirs.id), before);
}

/// A server with a worker below it, and a first process that outlives both.
const SERVER_AND_WORKER: &str = "trap 'exit 0' TERM; (sleep 7100 & exec sleep 7200) & \
                                 echo up $!; while true; do sleep 0.2; done";

#[test]
fn workers_whose_server_is_dead_go_with_their_whole_container() {
    needs!(Docker);
    let world = World::new();
    let (ours, theirs) = (
        world.ours("headless", &[], SERVER_AND_WORKER),
        world.theirs("theirs"),
    );
    let pid = |part: &str| {
        let found = wait_for("its processes", || ours.processes_with(part).pop());
        found.0
    };
    let (worker, server, first) = (pid("sleep 7100"), pid("sleep 7200"), pid_of(&ours.id));
    let log = docker(&["logs", &ours.id]).expect("log");
    let inside = log.split_whitespace().last().expect("its number inside");
    docker(&["exec", &ours.id, "sh", "-c", &format!("kill -9 {inside}")]).expect("kill");
    wait_for("the server's end", || (!lives(server)).then_some(()));
    assert!(lives(worker) && lives(first));

    let of_theirs = pid_of(&theirs.id);
    world.play(0, &[(worker, 5000), (of_theirs, 2000)]);
    let before = state(&theirs.id);
    let given_back = || world.play(0, &[(of_theirs, 2000)]);
    let ended = world.clean_while(&APPLY, || is_gone(&ours.id), given_back);
    let all = document(&ended.expect(0));
    let verdicts = all["verdicts"].as_array().expect("verdicts");
    let acts: Vec<&Value> = verdicts.iter().filter(|v| v["act"] != "keep").collect();
    assert_eq!(acts.len(), 1, "one act for the whole: {all:#}");
    assert_eq!(acts[0]["of"]["container"], ours.id.as_str());
    let came = outcome(&all, ours.id.as_str());
    assert_eq!(came["freed_bytes"], 5000 * MIB, "{came:#}");
    assert!(is_gone(&ours.id) && !lives(worker) && !lives(first));
    assert_eq!(state(&theirs.id), before);
}

/// A run that was killed, its container gone, and a worker of it that lives. `None` where that
/// cannot be staged, which is said.
fn escaped(test: &str, world: &World) -> Option<(cleaning::Lost, Escaped)> {
    let lost = world.killed_run("lost");
    match Escaped::from(&lost.id) {
        Some(escaped) => Some((lost, escaped)),
        None => {
            skip::skip(test, "no process can be moved into a container's cgroup");
            None
        }
    }
}

#[test]
fn a_worker_that_escaped_its_containers_removal_is_ended() {
    needs!(Docker, ReferenceEngine, Root);
    let world = World::new();
    let Some((lost, mut escaped)) = escaped(test_name!(), &world) else {
        return;
    };
    let (theirs, stranger) = (world.theirs("theirs"), Own::sleeping());
    let (pid, of_theirs) = (escaped.worker.pid(), pid_of(&theirs.id));
    let others = [(of_theirs, 2000), (stranger.pid(), 500)];
    world.play(0, &[&[(pid, 5000)], &others[..]].concat());

    let dry = document(&world.clean(&["--json"]).expect(0));
    assert_eq!(verdict(&dry, pid), words("end_process", "orphan"));
    assert_eq!(
        verdict(&dry, stranger.pid()),
        words("report", "foreign"),
        "it sleeps as well, and is nobody's business"
    );
    assert!(!escaped.worker.ended(), "a dry run");

    let worker = &mut escaped.worker;
    let ended = world.clean_while(&APPLY, || worker.ended(), || world.play(0, &others));
    let all = document(&ended.expect(0));
    let came = outcome(&all, pid);
    assert_eq!(
        (&came["done"], &came["freed_bytes"]),
        (&"cleaned".into(), &(5000 * MIB).into()),
        "{came:#}"
    );
    assert!(lives(stranger.pid()) && lives(of_theirs));
    // A look that finds nobody in it any more strikes it out.
    assert_eq!(world.ledger(), [lost.id.as_str()]);
    world.clean(&[]).expect(0);
    assert_eq!(world.ledger(), Vec::<String>::new());
}

#[test]
fn a_workers_memory_that_does_not_come_back_is_told_with_who_is_on_the_gpu() {
    needs!(Docker, ReferenceEngine, Root);
    let world = World::new();
    let Some((_lost, mut escaped)) = escaped(test_name!(), &world) else {
        return;
    };
    let theirs = world.theirs("theirs");
    let (pid, of_theirs) = (escaped.worker.pid(), pid_of(&theirs.id));
    world.play(0, &[(pid, 5000), (of_theirs, 2000)]);
    // The worker is gone, and the driver has its memory in use all the same.
    let worker = &mut escaped.worker;
    let kept = || world.play(5000, &[(of_theirs, 2000)]);
    let args = [&APPLY[..], &["--settle-timeout", "2s"]].concat();
    let ended = world.clean_while(&args, || worker.ended(), kept).expect(8);
    assert!(ended.error().contains("could not be cleaned"));
    let all = document(&ended);
    let came = outcome(&all, pid);
    assert_eq!(came["done"], "not_done", "{came:#}");
    assert_eq!(came["freed_bytes"], Value::Null);
    let problem = came["problem"].as_str().expect("problem");
    assert!(
        problem.contains("4.88 GiB more than expected") && problem.contains(GPU),
        "{problem}"
    );
    let holders = text(&came["holders"]);
    assert!(holders.contains(&theirs.name), "{holders}");
    assert!(lives(of_theirs));
}

#[test]
fn a_process_older_than_what_was_written_down_is_never_signalled() {
    needs!(Docker, ReferenceEngine, Root);
    let world = World::new();
    let Some((lost, mut escaped)) = escaped(test_name!(), &world) else {
        return;
    };
    let pid = escaped.worker.pid();
    world.play(0, &[(pid, 5000)]);
    // As if the container had begun after it: then whoever has the number was never in it.
    world.backdate(&lost.id, |started| started + 1_000_000_000);
    let all = document(&world.clean(&APPLY).expect(0));
    assert_eq!(verdict(&all, pid), words("keep", "pid_reused"));
    assert_eq!(all["outcomes"], Value::Array(vec![]));
    assert!(!escaped.worker.ended());
    // But for that it would have been ended.
    world.backdate(&lost.id, |started| started - 1_000_000_000);
    let all = document(&world.clean(&["--json"]).expect(0));
    assert_eq!(verdict(&all, pid), words("end_process", "orphan"));
}

#[test]
fn a_foreign_container_on_the_same_gpu_survives_everything_but_its_own_selection() {
    needs!(Docker);
    let world = World::new();
    let (ours, theirs) = (world.ours("ours", &[], OBEYS), world.theirs("theirs"));
    let stranger = Own::sleeping();
    let of_theirs = pid_of(&theirs.id);
    let others = [(of_theirs, 2000), (stranger.pid(), 500)];
    world.play(0, &[&[(pid_of(&ours.id), 7000)], &others[..]].concat());
    let before = state(&theirs.id);
    let untouched = |what: &str| {
        assert_eq!(state(&theirs.id), before, "{what}");
        assert!(lives(stranger.pid()), "{what}");
    };

    let ended = world.clean_while(&APPLY, || is_gone(&ours.id), || world.play(0, &others));
    ended.expect(0);
    assert!(is_gone(&ours.id));
    untouched("all that is stuck");

    for (args, code) in [
        (&["--apply"][..], 0),
        (&["--all-gpu-containers"], 0),
        (&["--all-gpu-containers", "--apply"], 2),
        (&["--idle", "1s", "--apply"], 2),
        // Its GPU is busy.
        (
            &["--all-gpu-containers", "--idle", "1s", "--apply", "--yes"],
            0,
        ),
        (&["--label", "plimsoll.run", "--apply", "--yes"], 0),
        (&["--image", "vllm/*", "--apply", "--yes"], 0),
    ] {
        let ended = world.clean(args).expect(code);
        if code == 2 {
            assert!(!ended.hints().is_empty(), "{args:?}");
        }
        untouched(&args.join(" "));
    }

    // Whoever asks for all of them gets all of them: stopped, and not removed.
    let args = [&APPLY[..], &["--all-gpu-containers", "--yes"]].concat();
    let stopped = || !lives(of_theirs);
    let given_back = || world.play(0, &[(stranger.pid(), 500)]);
    let ended = world.clean_while(&args, stopped, given_back).expect(0);
    let came = document(&ended);
    let came = outcome(&came, theirs.id.as_str());
    assert_eq!(came["freed_bytes"], 2000 * MIB, "{came:#}");
    assert!(state(&theirs.id).starts_with("exited"));
    assert!(lives(stranger.pid()));
}

#[test]
fn a_protected_container_is_kept_also_when_it_is_named() {
    needs!(Docker);
    let world = World::new();
    let kept = world.ours("kept", &["--label", "plimsoll.protect"], OBEYS);
    let not = world.ours("not", &["--label", "plimsoll.protect=false"], OBEYS);
    let (of_kept, of_not) = (pid_of(&kept.id), pid_of(&not.id));
    world.play(0, &[(of_kept, 7000), (of_not, 1000)]);
    let before = state(&kept.id);

    let given_back = || world.play(0, &[(of_kept, 7000)]);
    let ended = world.clean_while(&APPLY, || is_gone(&not.id), given_back);
    let all = document(&ended.expect(0));
    assert_eq!(verdict(&all, kept.id.as_str()), words("keep", "protected"));
    assert_eq!(outcome(&all, not.id.as_str())["done"], "cleaned");
    assert_eq!(state(&kept.id), before);

    let args = ["--all-gpu-containers", "--apply", "--yes"];
    world.clean(&args).expect(0);
    assert_eq!(state(&kept.id), before, "chosen with all others");
    let named = world.clean(&[&kept.name, "--apply"]).expect(8);
    assert!(named.error().contains("could not be cleaned"));
    assert!(
        named.stdout.contains("plimsoll.protect") && named.stdout.contains(&kept.name),
        "{}",
        named.stdout
    );
    assert_eq!(state(&kept.id), before);
}

#[test]
fn memory_that_a_foreign_process_keeps_is_told_with_its_holder() {
    needs!(Docker);
    let world = World::new();
    let (ours, theirs) = (world.ours("ours", &[], OBEYS), world.theirs("theirs"));
    let of_theirs = pid_of(&theirs.id);
    world.play(0, &[(pid_of(&ours.id), 7000), (of_theirs, 2000)]);
    let before = state(&theirs.id);
    // The driver lists nobody else, and has no less in use than before.
    let kept = || world.play(7000, &[(of_theirs, 2000)]);
    let args = ["--apply", "--grace", "2s", "--settle-timeout", "2s"];
    let ended = world
        .clean_while(&args, || is_gone(&ours.id), kept)
        .expect(8);
    assert!(ended.error().contains("could not be cleaned"));
    // However it is wrapped.
    let said = ended
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for part in [
        "6.84 GiB more than expected",
        GPU,
        &format!("container `{}`", theirs.name),
        "user root",
        &format!("pid {of_theirs}"),
        "1.95 GiB",
        "sleep 7000",
    ] {
        assert!(said.contains(part), "`{part}` is not in {said}");
    }
    assert!(is_gone(&ours.id), "what could be done is done");
    assert_eq!(state(&theirs.id), before);
}

/// Many containers, made and removed eight at a time; removed when dropped, also by a panic.
struct Herd(Mutex<Vec<String>>);

/// So many at a time.
const AT_A_TIME: usize = 8;

impl Herd {
    fn new() -> Herd {
        Herd(Mutex::new(Vec::new()))
    }

    /// `count` containers with these options; their ids.
    fn add(&self, world: &World, what: &str, count: usize, options: &[&str]) -> Vec<String> {
        let image = image().expect("busybox");
        let (begun, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let run = || {
            while begun.fetch_add(1, Ordering::Relaxed) < count {
                let name = unique(&world.what(what));
                let head = ["run", "-d", "--network=none", "--name", &name];
                let tail = ["--label=plimsoll.test=1", &image, "sh", "-c", OBEYS];
                let id = docker(&[&head[..], options, &tail].concat()).expect("a container");
                self.0.lock().expect("ids").push(id.clone());
                made.lock().expect("ids").push(id);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(run);
            }
        });
        made.into_inner().expect("ids")
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        let Ok(ids) = self.0.get_mut() else { return };
        for some in ids.chunks(AT_A_TIME) {
            let ids = some.iter().map(String::as_str);
            let _ = docker(&[&["rm", "-f", "-v"], &ids.collect::<Vec<_>>()[..]].concat());
        }
    }
}

/// How each is now, by its id; nothing of those that are gone.
fn states(ids: &[String]) -> BTreeSet<String> {
    let format = "{{.Id}} {{.State.Status}} {{.State.StartedAt}} {{.RestartCount}}";
    let mut args = vec!["inspect", "-f", format];
    args.extend(ids.iter().map(String::as_str));
    let out = std::process::Command::new("docker").args(args).output();
    let told = String::from_utf8(out.expect("docker").stdout).expect("text");
    let lines = told.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn of_a_hundred_containers_the_ten_that_are_stuck_go_and_only_they() {
    needs!(Docker);
    let world = World::new();
    let herd = Herd::new();
    let dead = cleaning::lost_labels();
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    let alive = format!("plimsoll.owner={}", launch::owner_label());
    let alive = ["--label", &alive, "--label", "plimsoll.run=r1"];
    let protected = [&dead[..], &["--label", "plimsoll.protect"]].concat();
    let began = Instant::now();
    let stuck = herd.add(&world, "stuck", 10, &dead);
    let mut others = herd.add(&world, "theirs", 70, &[]);
    others.extend(herd.add(&world, "alive", 10, &alive));
    others.extend(herd.add(&world, "protected", 10, &protected));
    let made = began.elapsed();

    // All of them are on the GPU.
    let on_gpu = |ids: &[String]| -> Vec<(u32, u64)> {
        let mut args = vec!["inspect", "-f", "{{.State.Pid}}"];
        args.extend(ids.iter().map(String::as_str));
        let pids = docker(&args).expect("inspect");
        let pids = pids.lines().map(|pid| pid.parse().expect("pid"));
        pids.map(|pid| (pid, 500)).collect()
    };
    let remaining = on_gpu(&others);
    world.play(0, &[on_gpu(&stuck), remaining.clone()].concat());
    let before = states(&others);
    assert_eq!((before.len(), states(&stuck).len()), (90, 10));

    let began = Instant::now();
    let gone = || states(&stuck).is_empty();
    let given_back = || world.play(0, &remaining);
    let ended = world.clean_while(&APPLY, gone, given_back).expect(0);
    println!(
        "100 made in {made:.1?}, 10 of them cleaned in {:.1?}",
        began.elapsed()
    );
    let all = document(&ended);
    let outcomes = all["outcomes"].as_array().expect("outcomes");
    assert_eq!(outcomes.len(), 10, "{all:#}");
    for id in &stuck {
        let came = outcome(&all, id.as_str());
        assert_eq!(came["done"], "cleaned", "{came:#}");
        assert_eq!(came["freed_bytes"], 500 * MIB, "{came:#}");
    }
    assert_eq!(states(&stuck), BTreeSet::new());
    assert_eq!(states(&others), before, "the ninety are as they were");
}

#[test]
fn two_cleaners_at_once_do_no_harm() {
    needs!(Docker);
    let world = World::new();
    let herd = Herd::new();
    let dead = cleaning::lost_labels();
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    let stuck = herd.add(&world, "stuck", 10, &dead);
    let others = herd.add(&world, "theirs", 4, &[]);
    let before = states(&others);
    assert_eq!((before.len(), states(&stuck).len()), (4, 10));
    let cleaners = [0, 1].map(|_| Live::start(world.command(&APPLY)));
    let mut done = 0;
    for cleaner in cleaners {
        let all = document(&cleaner.end().expect(0));
        for came in all["outcomes"].as_array().expect("outcomes") {
            let word = came["done"].as_str().expect("done");
            assert!(["cleaned", "already_gone"].contains(&word), "{came:#}");
            done += usize::from(word == "cleaned");
        }
    }
    assert_eq!(states(&stuck), BTreeSet::new());
    assert_eq!(states(&others), before);
    // Two can have had a hand in one end; nobody's work is counted as nobody's.
    assert!(done >= 10, "{done}");
}

#[test]
fn the_document_has_the_facts_of_every_verdict() {
    needs!(Docker);
    let world = World::new();
    let (ours, theirs) = (world.ours("ours", &[], OBEYS), world.theirs("theirs"));
    let stranger = Own::sleeping();
    let (of_ours, of_theirs) = (pid_of(&ours.id), pid_of(&theirs.id));
    let on_gpu = [(of_ours, 7000), (of_theirs, 2000), (stranger.pid(), 500)];
    world.play(1000, &on_gpu);
    let all = document(&world.clean(&["--json"]).expect(0));
    assert_eq!(all["simulated"], true);
    for verdict in all["verdicts"].as_array().expect("verdicts") {
        assert!(verdict["why"].as_str().is_some_and(|why| !why.is_empty()));
        assert!(verdict["evidence"].is_object(), "{verdict:#}");
    }
    let verdicts = &all["verdicts"];
    for (container, pid, mib, owner) in [
        (&ours, of_ours, 7000, "dead"),
        (&theirs, of_theirs, 2000, "unknown"),
    ] {
        let entry = entry(verdicts, &container.id.as_str().into());
        assert_eq!(entry["gpu_bytes"], mib * MIB, "{entry:#}");
        let facts = &entry["evidence"]["container"];
        assert_eq!(
            (&facts["owner"], &facts["status"], &facts["name"]),
            (
                &owner.into(),
                &"running".into(),
                &container.name.as_str().into()
            )
        );
        assert_eq!(facts["labels"]["plimsoll.test"], "1");
        let processes = facts["processes"].as_array().expect("processes");
        let first = processes
            .iter()
            .find(|p| p["pid"] == pid)
            .expect("its first");
        assert_eq!(first["gpu_bytes"][GPU], mib * MIB);
        assert!(first["started"].is_u64() && first["uid"] == 0, "{first:#}");
        assert!(
            first["cgroup"]
                .as_str()
                .is_some_and(|c| c.contains(&container.id)),
            "{first:#}"
        );
        assert!(
            first["command"]
                .as_str()
                .is_some_and(|c| c.contains("sleep 7000"))
        );
    }
    let stray = entry(verdicts, &stranger.pid().into());
    let facts = &stray["evidence"]["process"];
    assert_eq!(
        (&facts["command"], &facts["container"], &facts["record"]),
        (&"sleep 7300".into(), &Value::Null, &Value::Null)
    );
    let device = entry(verdicts, &GPU.into());
    let facts = &device["evidence"]["device"];
    assert_eq!(device["rule"], "unlisted_memory");
    assert_eq!(
        (&facts["unlisted_bytes"], &facts["used_bytes"]),
        (&(1000 * MIB).into(), &(10_500 * MIB).into())
    );
}
