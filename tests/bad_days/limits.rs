//! Too little of something: open files, memory, disk, inodes, or the folder itself. Whatever is
//! lacking, the run ends with a result that is right or says what it lacks, by the right exit code,
//! and nothing of it is left in the container.

use super::common::e2e::wait_for;
use super::common::e2e::{
    Ended, Live, REFERENCE_IMAGE, Results, codes, command, parts_sum_to_the_peak, read,
};
use super::common::random::Random;
use super::common::tiny::Tiny;
use super::moments::{QUICK, cells};
use super::{Found, Sweep, Tally, Theirs, idle_args, outcome, skip, told_once, tries};
use super::{cleaning, to_its_end, with_state};
use cleaning::World;
use plimsoll::matrix::RowStatus;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An engine that loads for half a second and waits as long: a machine that is busy looks at memory within each all the
/// same.
const SETTLED: &str =
    "--weights 16MiB --kv-pool 8MiB --activation 4MiB --load-ms 500 --settle-ms 500 --start-ms 50";

/// What is in the profile of a run that was not disturbed.
#[track_caller]
fn is_right(document: &serde_json::Value, what: &str) {
    assert_eq!(outcome(document), "completed", "{what}");
    parts_sum_to_the_peak(document);
    let parts = &document["memory_breakdown"];
    let weights = &parts["model_weights_gb"];
    // Without memory to run in, the agent may miss that half second; then it says so.
    let missed = codes(document).contains(&"sampler_gap");
    assert!(
        weights.is_number() || missed,
        "no weights: {parts:#}\n{what}"
    );
    assert!(document["latency_stats"].is_object(), "no latency: {what}");
}

/// Judges a run under a limit; a sentence for the table.
#[track_caller]
fn judged(ended: &Ended, results: &Path, what: &str) -> String {
    let what = format!("{what}\n{}", ended.stderr);
    told_once(ended, &what);
    let found = Found::under(results);
    found.only_whole(&what);
    let documents: Vec<_> = found.profiles.iter().map(|p| read(p)).collect();
    match (ended.code(), &documents[..]) {
        (0, [document]) => {
            is_right(document, &what);
            assert_eq!(found.whole.len(), 1, "{what}");
            "0, the whole result".to_owned()
        }
        (code @ (3 | 4), []) => format!("{code}, no profile"),
        (code @ (3 | 4), [document]) => {
            let partial = outcome(document) != "completed";
            let told = ["run_failed", "bench_failed", "gap"];
            let partial_told = codes(document).iter().any(|c| told.contains(c));
            assert!(
                !partial || partial_told,
                "{what}: {:#}",
                document["findings"]
            );
            format!("{code}, a profile that says `{}`", outcome(document))
        }
        (code, documents) => panic!("code {code}, {} profiles: {what}", documents.len()),
    }
}

/// The same command under limits of the kernel's.
fn limited(limits: &[String], profile: &Command) -> Command {
    let mut args: Vec<String> = limits.to_vec();
    args.push(profile.get_program().to_string_lossy().into_owned());
    args.extend(profile.get_args().map(|a| a.to_string_lossy().into_owned()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut limited = command(Path::new("prlimit"), &args);
    for (name, value) in profile.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

#[test]
fn few_open_files() {
    needs!(Docker, ReferenceEngine);
    let theirs = Theirs::idle("few-files");
    let state = tempfile::tempdir().expect("tempdir");
    let extra = format!("--extra-engine-args={SETTLED}");
    let mut random = super::random("few open files");
    let mut tally = Tally::default();
    let named = [24, 32, 64];
    for n in 0..tries(2) {
        let files = named.get(n).copied().unwrap_or(random.between(8, 64));
        let results = Results::new();
        let dir = results.arg();
        let profile = with_state(&idle_args(&theirs.engine.name, &dir, &extra), state.path());
        let limit = [format!("--nofile={files}:{files}")];
        let ended = to_its_end(limited(&limit, &profile));
        let what = format!("{files} open files");
        let came = judged(&ended, results.0.path(), &what);
        theirs.is_clean(&format!("{what}: {}", ended.stderr));
        if files < 32 {
            assert!(
                ended.error().contains("files open at a time"),
                "{}",
                ended.stderr
            );
            assert!(!ended.stderr.contains("inspect"), "before anything began");
        }
        let range = files / 8 * 8;
        tally.add(format!("{range:2} to {:2}: {came}", range + 7));
    }
    tally.tell("open files");
}

/// What was not told because there was no memory to tell it: then it is as after SIGKILL.
fn starved(ended: &Ended) -> Option<&'static str> {
    match ended.status.signal() {
        Some(11) if ended.stderr.is_empty() => Some("not even loaded"),
        Some(9) => Some("killed by the kernel"),
        Some(6) => Some("aborted: an allocation failed"),
        _ => None,
    }
}

#[track_caller]
fn after_starving(
    ended: &Ended,
    results: &Results,
    world: &World,
    theirs: &Theirs,
    what: &str,
) -> String {
    let Some(how) = starved(ended) else {
        let came = judged(ended, results.0.path(), what);
        theirs.is_clean(&format!("{what}: {}", ended.stderr));
        return came;
    };
    let found = Found::under(results.0.path());
    found.only_whole(what);
    world.clean(&["--apply", "--grace=2s"]).expect(0);
    theirs.is_tidied_by_the_next_run(&world.state(), what);
    theirs.is_clean(what);
    how.to_owned()
}

#[test]
fn little_address_space() {
    needs!(Docker, ReferenceEngine);
    let world = World::new();
    let theirs = Theirs::idle(&world.what("address-space"));
    let extra = format!("--extra-engine-args={SETTLED}");
    let mut random = super::random("little address space");
    let mut tally = Tally::default();
    for _ in 0..tries(2) {
        let mib = random.between(24, 768);
        let results = Results::new();
        let dir = results.arg();
        let profile = with_state(
            &idle_args(&theirs.engine.name, &dir, &extra),
            &world.state(),
        );
        let limit = [format!("--as={}", mib << 20)];
        let ended = to_its_end(limited(&limit, &profile));
        let what = format!("{mib} MiB of address space");
        let came = match ended.code() {
            // The loader of programs, before any of ours.
            127 => "127: not even loaded".to_owned(),
            _ => after_starving(&ended, &results, &world, &theirs, &what),
        };
        let octave = 1 << mib.ilog2();
        tally.add(format!("{octave:4} to {:4} MiB: {came}", octave * 2));
    }
    tally.tell("address space");
}

/// A cgroup for memory; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(limit: u64) -> Result<Cgroup, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if !v1.is_dir() {
            return Err("no cgroup v1 for memory".into());
        }
        let path = v1.join(super::common::unique("memory"));
        std::fs::create_dir(&path).map_err(|e| format!("no cgroup can be made: {e}"))?;
        let group = Cgroup(path);
        let file = group.0.join("memory.limit_in_bytes");
        std::fs::write(file, limit.to_string()).map_err(|e| e.to_string())?;
        Ok(group)
    }

    fn enter(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("cgroup.procs");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn little_memory() {
    needs!(Docker, ReferenceEngine, Root);
    if let Err(why) = Cgroup::new(1 << 30) {
        return skip::skip(test_name!(), &why);
    }
    let world = World::new();
    let theirs = Theirs::idle(&world.what("memory"));
    let extra = format!("--extra-engine-args={SETTLED}");
    let mut random = super::random("little memory");
    let mut tally = Tally::default();
    for _ in 0..tries(2) {
        let kib = random.between(256, 32 << 10);
        let group = Cgroup::new(kib << 10).expect("cgroup");
        let results = Results::new();
        let dir = results.arg();
        let profile = with_state(
            &idle_args(&theirs.engine.name, &dir, &extra),
            &world.state(),
        );
        let live = Live::start(profile);
        group.enter(live.pid());
        let ended = live.end();
        let what = format!("{kib} KiB of memory");
        let came = after_starving(&ended, &results, &world, &theirs, &what);
        let octave = 1 << kib.ilog2();
        tally.add(format!("{octave:5} to {:5} KiB: {came}", octave * 2));
    }
    tally.tell("memory");
}

// ---- the place for results

/// Runs a profile on file systems made with `options`, as many as are to be tried; the tally's words
/// are what `options` names, and what came of it.
fn on_small_disks(
    what: &str,
    test: &str,
    mut options: impl FnMut(&mut Random) -> (String, String),
) {
    if let Err(why) = Tiny::mount("size=64k") {
        return skip::skip(test, &format!("no tmpfs can be mounted: {why}"));
    }
    let theirs = Theirs::idle("small-disk");
    let state = tempfile::tempdir().expect("tempdir");
    let extra = format!("--extra-engine-args={SETTLED} --fault flood=96KiB@bench_start");
    let mut random = super::random(what);
    let mut tally = Tally::default();
    for _ in 0..tries(2) {
        let (options, range) = options(&mut random);
        let tiny = Tiny::mount(&options).expect("tmpfs");
        let dir = tiny.arg();
        let ended = to_its_end(with_state(
            &idle_args(&theirs.engine.name, &dir, &extra),
            state.path(),
        ));
        let came = judged(&ended, &tiny.0, &options);
        if ended.code() == 3 {
            let told = ["No space left", "the disk is full", "cannot write"];
            assert!(
                told.iter().any(|t| ended.stderr.contains(t)),
                "{}",
                ended.stderr
            );
        }
        theirs.is_clean(&format!("{options}: {}", ended.stderr));
        tally.add(format!("{range}: {came}"));
    }
    tally.tell(what);
}

#[test]
fn a_disk_of_any_size() {
    needs!(Docker, ReferenceEngine, Root);
    on_small_disks("disk", test_name!(), |random| {
        let kib = random.between(4, 8 << 10);
        let octave = 1 << kib.ilog2();
        (
            format!("size={kib}k"),
            format!("{octave:4} to {:5} KiB", octave * 2),
        )
    });
}

/// What a sweep has measured outlives the full disk: once there is room it goes on.
#[test]
fn a_disk_of_any_size_under_a_sweep() {
    needs!(Docker, ReferenceEngine, Root);
    if let Err(why) = Tiny::mount("size=64k") {
        return skip::skip(test_name!(), &format!("no tmpfs can be mounted: {why}"));
    }
    let theirs = Theirs::idle("small-disk-sweep");
    let state = tempfile::tempdir().expect("tempdir");
    let mut random = super::random("disk, sweep");
    let mut tally = Tally::default();
    for _ in 0..tries(1) {
        let kib = random.between(8, 1 << 10);
        let tiny = Tiny::mount(&format!("size={kib}k")).expect("tmpfs");
        let cells = cells(&theirs.engine.name);
        let sweep = Sweep::new(&cells, state.path()).into(tiny.0.join("run"));
        let ended = to_its_end(sweep.command(&QUICK));
        let what = format!("{kib} KiB: code {}\n{}", ended.code(), ended.stderr);
        assert!(matches!(ended.code(), 0 | 3 | 5), "{what}");
        told_once(&ended, &what);
        Found::under(&tiny.0).only_whole(&what);
        assert_eq!(sweep.left(), Vec::<String>::new(), "{what}");
        theirs.is_clean(&what);
        let begun = sweep.folder().join("journal.jsonl").exists();
        let before = match begun {
            true => sweep.history().rows,
            false => Default::default(),
        };
        tiny.remount("size=64m");
        to_its_end(sweep.command(&QUICK)).expect(0);
        let history = sweep.history();
        assert_eq!(history.rows.len(), 6, "{what}");
        assert!(history.rows.values().all(|r| r.status == RowStatus::Done));
        let kept = before
            .iter()
            .filter(|(_, row)| row.status == RowStatus::Done);
        for (cell, row) in kept.clone() {
            assert_eq!(&history.rows[cell], row, "{what}");
        }
        let kept = kept.count();
        tally.add(format!("code {}, went on after {kept} of 6", ended.code()));
    }
    tally.tell("disk, sweep");
}

/// What cannot be written down of an engine's start is no word on the engine: no cell has a row for it.
#[test]
fn a_disk_that_fills_up_while_an_engine_starts() {
    needs!(Docker, ReferenceEngine, Root);
    let tiny = match Tiny::mount("size=500k") {
        Ok(tiny) => tiny,
        Err(why) => return skip::skip(test_name!(), &format!("no tmpfs can be mounted: {why}")),
    };
    let state = tempfile::tempdir().expect("tempdir");
    let flood = "[--weights, 16MiB, --fault, flood=600KiB@loading_weights]";
    let text = format!(
        "name: full\ndefaults: {{engine: reference, input_lengths: [16], output_lengths: [4], num_iters: 2}}\n\
         models: [{{model_id: reference/own, image: {REFERENCE_IMAGE}, batch_sizes: [1, 2], extra_engine_args: {flood}}}]\n"
    );
    let sweep = Sweep::new(&text, state.path()).into(tiny.0.join("run"));
    let ended = to_its_end(sweep.command(&QUICK)).expect(3);
    let ended = ended.says(&["cannot write", "log.txt"], "go on with --resume");
    assert_eq!(sweep.history().rows.len(), 0, "{}", ended.stderr);
    assert_eq!(sweep.left(), Vec::<String>::new());
    tiny.remount("size=64m");
    to_its_end(sweep.command(&QUICK)).expect(0);
    let rows = sweep.history().rows;
    assert_eq!(rows.len(), 2);
    assert!(rows.values().all(|row| row.status == RowStatus::Done));
}

#[test]
fn any_number_of_inodes() {
    needs!(Docker, ReferenceEngine, Root);
    on_small_disks("inodes", test_name!(), |random| {
        let inodes = random.between(2, 13);
        (
            format!("size=64m,nr_inodes={inodes}"),
            format!("{inodes:2} inodes"),
        )
    });
}

#[test]
fn results_that_may_only_be_read() {
    needs!(Docker, ReferenceEngine, Root);
    let tiny = match Tiny::mount("size=1m") {
        Ok(tiny) => tiny,
        Err(why) => return skip::skip(test_name!(), &format!("no tmpfs can be mounted: {why}")),
    };
    tiny.remount("ro");
    let theirs = Theirs::idle("read-only");
    let state = tempfile::tempdir().expect("tempdir");
    let (extra, dir) = (format!("--extra-engine-args={SETTLED}"), tiny.arg());
    let mut tally = Tally::default();
    for _ in 0..tries(1) {
        let args = idle_args(&theirs.engine.name, &dir, &extra);
        let ended = to_its_end(with_state(&args, state.path())).expect(3);
        assert!(
            ended.error().contains("cannot write results"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("warm-up"), "before anything ran");
        theirs.is_clean(&ended.stderr);
        tally.add("3, before anything ran");
    }
    tally.tell("read-only results");
}

/// A way to take somebody's folder away, and its name.
type Taking = (&'static str, fn(&Path));

#[test]
fn a_results_folder_that_disappears() {
    needs!(Docker, ReferenceEngine);
    let theirs = Theirs::idle("disappears");
    let state = tempfile::tempdir().expect("tempdir");
    let extra = format!("--extra-engine-args={SETTLED}");
    let ways: [Taking; 3] = [
        ("removed", |folder| {
            std::fs::remove_dir_all(folder).expect("removed")
        }),
        ("moved", |folder| {
            std::fs::rename(folder, folder.with_extension("moved")).expect("moved");
        }),
        ("a file in its place", |folder| {
            std::fs::remove_dir_all(folder).expect("removed");
            std::fs::write(folder, "").expect("a file");
        }),
    ];
    let mut random = super::random("a folder that disappears");
    let mut tally = Tally::default();
    for n in 0..tries(2) {
        let (how, take) = ways[n % ways.len()];
        let stages = ["baseline", "warm-up 1/1", "bench 1/1"];
        let stage = stages[random.next() as usize % stages.len()];
        let results = Results::new();
        let (dir, folder) = (results.arg(), results.0.path().join("memory-profiles"));
        let args = idle_args(&theirs.engine.name, &dir, &extra);
        let mut live = Live::start(with_state(&args, state.path()));
        live.until(stage);
        wait_for("its capture", || {
            let inside = std::fs::read_dir(&folder).ok()?;
            (inside.count() > 0).then_some(())
        });
        take(&folder);
        let ended = live.end().expect(3);
        let what = format!("{how} in phase {stage}\n{}", ended.stderr);
        told_once(&ended, &what);
        assert!(ended.error().contains("cannot write"), "{what}");
        // What was measured is shown all the same.
        assert!(
            ended.stdout.contains("Model weights"),
            "{what}{}",
            ended.stdout
        );
        theirs.is_clean(&what);
        tally.add(format!(
            "{how} in phase {stage}: 3, the figures on the terminal"
        ));
    }
    tally.tell("folder that disappears");
}
