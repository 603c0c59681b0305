//! Trouble on the real daemon: each gives one clear sentence, advice, its exit code, and loses
//! nothing of what was seen.

use crate::common;
use common::e2e::{
    Ended, Engine, Live, REFERENCE_IMAGE, Results, codes, command, everything_in, plimsoll, read,
    run, skip, wait_for,
};
use common::tiny::Tiny;
use common::{TestContainer, docker, image, podman, said, unique};
use std::path::Path;

/// A small engine, so that trouble comes soon.
const SMALL: &str =
    "--weights 16MiB --kv-pool 8MiB --activation 4MiB --load-ms 0 --settle-ms 100 --start-ms 100";

/// Steps that a busy machine sees one by one: parts between whose lines no sample lies are unknown.
const SLOW_STEPS: &str = "--start-ms 800 --load-ms 1200 --settle-ms 1200";

fn extra(more: &str) -> String {
    format!("--extra-engine-args={SMALL} {more}")
}

/// Profiles an idle engine that meets a fault.
#[track_caller]
fn profile(engine: &Engine, results: &Results, flags: &[&str]) -> Ended {
    let dir = results.arg();
    let mut args = vec![
        "profile",
        &engine.name,
        "-m",
        "reference/trouble",
        "--baseline=300ms",
        &dir,
    ];
    args.extend(flags);
    run(&args)
}

/// Nothing of a run is left in the container.
#[track_caller]
fn is_clean(engine: &Engine, before: &[String]) {
    assert_eq!(engine.processes(), before, "a process of the run is left");
    assert_eq!(engine.leftovers(), [""; 0], "a file of the run is left");
}

/// A partial profile and its whole capture are there, and name the trouble.
#[track_caller]
fn kept(results: &Results, outcome: &str, code: &str) -> serde_json::Value {
    let document = results.document();
    ended_as(&document, outcome);
    assert!(
        codes(&document).contains(&code),
        "{:#}",
        document["findings"]
    );
    // What was captured can be derived again.
    let again = run(&[
        "derive",
        "--json",
        &results.captures()[0].display().to_string(),
    ])
    .expect(0);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&again.stdout).expect("JSON"),
        document
    );
    document
}

/// How the run ended: a word, or a word with its sentence.
#[track_caller]
fn ended_as(document: &serde_json::Value, outcome: &str) {
    let seen = &document["metadata"]["outcome"];
    assert!(
        seen == outcome || seen.get(outcome).is_some(),
        "{seen:#} is not {outcome}"
    );
}

// ---- the way to the container

#[test]
fn no_daemon() {
    let dir = tempfile::tempdir().expect("tempdir");
    let socket = dir.path().join("docker.sock");
    let host = format!("unix://{}", socket.display());
    let ask = || {
        let mut command = plimsoll(&["profile", "llm"]);
        command.env("DOCKER_HOST", &host);
        Live::start(command).end().expect(3)
    };
    ask().says(
        &["no socket", "docker.sock", "DOCKER_HOST"],
        "correct or unset DOCKER_HOST",
    );
    // A daemon that died left its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("socket"));
    ask().says(
        &["nothing listens", "docker.sock"],
        "correct or unset DOCKER_HOST",
    );
}

#[test]
fn no_permission_on_the_socket() {
    needs!(Docker, Root);
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let as_nobody = |program: &Path, args: &[&str]| {
        let mut all: Vec<&str> = nobody.to_vec();
        let program = program.display().to_string();
        all.push(&program);
        all.extend(args);
        let mut command = command(Path::new("setpriv"), &all);
        command
            .env_remove("DOCKER_HOST")
            .env_remove("XDG_RUNTIME_DIR")
            .env("HOME", "/nonexistent");
        command
    };
    let socket = "/var/run/docker.sock";
    match as_nobody(Path::new("test"), &["-w", socket]).status() {
        Ok(status) if !status.success() && Path::new(socket).exists() => {}
        Ok(_) => return skip(test_name!(), "everybody may use the Docker socket"),
        Err(e) => return skip(test_name!(), &format!("no setpriv: {e}")),
    }
    // The build's own folder may be closed to others.
    let dir = tempfile::tempdir().expect("tempdir");
    let copy = dir.path().join("plimsoll");
    std::fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &copy).expect("copy");
    for path in [dir.path(), &copy] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("mode");
    }
    let ended = Live::start(as_nobody(&copy, &["profile", "llm"]))
        .end()
        .expect(3);
    ended.says(&["no permission", socket], "usermod -aG docker");
    // Doctor tells it too, and the rest besides.
    let ended = Live::start(as_nobody(&copy, &["doctor"])).end().expect(3);
    assert!(
        ended.stdout.contains("no permission") && ended.stdout.contains("platform"),
        "{}",
        ended.stdout
    );
}

#[test]
fn an_unknown_container_has_near_names() {
    needs!(Docker);
    let container = TestContainer::idle("near-name");
    let typo = container.name.replace("near-name", "near-nmae");
    run(&["profile", &typo]).expect(3).says(
        &["no container is named", &typo],
        &format!("did you mean `{}`", container.name),
    );
}

#[test]
fn a_container_that_does_not_run() {
    needs!(Docker);
    let created = TestContainer::create("created", &[], "true");
    run(&["profile", &created.name]).expect(3).says(
        &[&created.name, "never started"],
        &format!("docker start {}", created.name),
    );
    let exited = TestContainer::run("exited", &[], "exit 3");
    wait_for("its end", || {
        (docker(&["inspect", "-f", "{{.State.Status}}", &exited.id]).as_deref() == Ok("exited"))
            .then_some(())
    });
    run(&["profile", &exited.name])
        .expect(3)
        .says(&[&exited.name, "3"], "plimsoll why");
    let paused = TestContainer::idle("paused");
    docker(&["pause", &paused.id]).expect("pause");
    run(&["profile", &paused.name]).expect(3).says(
        &[&paused.name, "paused"],
        &format!("docker unpause {}", paused.name),
    );
}

#[test]
fn several_containers_of_one_label() {
    needs!(Docker);
    let label = format!("plimsoll.several={}", unique("l"));
    let options = ["--label", &label];
    let pair = [(); 2].map(|()| TestContainer::run("several", &options, "sleep 600"));
    let ended = run(&["profile", &format!("label={label}")]).expect(3);
    for container in &pair {
        assert!(
            ended.hints().iter().any(|h| h.contains(&container.name)),
            "{}",
            ended.stderr
        );
    }
    ended.says(&["2 containers", &label], "name one");
}

#[test]
fn an_engine_that_is_not_recognised() {
    needs!(Docker);
    let container = TestContainer::idle("unrecognised");
    run(&["profile", &container.name]).expect(3).says(
        &["no known engine", &container.name, &image().expect("image")],
        "--engine",
    );
    run(&["profile", &container.name, "--engine=vlmm"])
        .expect(2)
        .says(&["no engine `vlmm`"], "vllm");
}

#[test]
fn a_bench_that_is_not_in_the_image() {
    needs!(Docker);
    let container = TestContainer::run("no-bench", &[], "exec sleep 6000");
    let results = Results::new();
    // By their pids: the shell may not have become `sleep` yet.
    let pids = || -> Vec<u32> { container.processes().into_iter().map(|p| p.0).collect() };
    let before = pids();
    // vLLM's bench is asked for its flags first: nothing has begun, so nothing is kept.
    run(&[
        "profile",
        &container.name,
        "--engine=vllm",
        "-m",
        "m",
        &results.arg(),
    ])
    .expect(3)
    .says(
        &["vllm bench latency", "is not in the image"],
        "--bench none",
    );
    results.is_empty();
    // The simulated engine's is not asked.
    run(&[
        "profile",
        &container.name,
        "--engine=reference",
        "-m",
        "m",
        "--baseline=100ms",
        &results.arg(),
    ])
    .expect(4)
    .says(&["the bench is not in the image"], "log.txt");
    kept(&results, "bench_failed", "bench_failed");
    assert_eq!(pids(), before);
    assert!(docker(&["exec", &container.id, "sh", "-c", "ls -d /tmp/plimsoll*"]).is_err());
}

#[test]
fn what_an_idle_container_cannot_do() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("idle-cannot");
    let results = Results::new();
    run(&["profile", &engine.name, &results.arg()])
        .expect(2)
        .says(&["no engine serves", "model"], "--model");
    profile(&engine, &results, &["--bench=serve"])
        .expect(2)
        .says(&["no engine serves"], "--bench latency");
    results.is_empty();
}

// ---- the bench

#[test]
fn a_flag_that_the_bench_does_not_know() {
    needs!(Docker, ReferenceEngine);
    let (engine, results) = (Engine::idle_with_shell("flag", &[]), Results::new());
    let before = engine.processes();
    profile(&engine, &results, &[&extra("--no-such-flag 3")])
        .expect(4)
        .says(&["the bench ended with 2", "--no-such-flag"], "log.txt");
    kept(&results, "bench_failed", "bench_failed");
    is_clean(&engine, &before);
}

/// Flags changed over vLLM's releases: the installed one is asked, and what it does not know is
/// refused before anything is loaded.
#[test]
fn a_flag_that_the_installed_release_does_not_know() {
    needs!(Docker);
    let help = std::fs::read_to_string("tests/fixtures/vllm/help/help-bench-latency-all.txt")
        .expect("help");
    let old: String = help
        .lines()
        .filter(|l| !l.contains("--kv-cache-dtype"))
        .map(|l| format!("{l}\n"))
        .collect();
    let dir = tempfile::tempdir().expect("tempdir");
    let script = dir.path().join("vllm");
    std::fs::write(&script, format!("#!/bin/sh\ncat <<'END'\n{old}END\n")).expect("script");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("mode");
    let container = TestContainer::run("old-vllm", &[], "exec sleep 6000");
    docker(&[
        "cp",
        &script.display().to_string(),
        &format!("{}:/bin/vllm", container.id),
    ])
    .expect("cp");
    let results = Results::new();
    run(&[
        "profile",
        &container.name,
        "--engine=vllm",
        "-m",
        "m",
        "--kv-cache-dtype=fp8",
        &results.arg(),
    ])
    .expect(2)
    .says(&["has no --kv-cache-dtype"], "another release");
    results.is_empty();
}

/// The cause stands first in what an engine prints, far above the last line.
#[test]
fn a_bench_that_crashes() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("crash", &[]);
    let before = engine.processes();
    for (fault, code) in [
        ("crash@loading_weights", "ended with 1"),
        ("crash=7@bench_iteration:3", "ended with 7"),
        ("crash=0@bench_start", "reported success (exit code 0), but"),
    ] {
        let results = Results::new();
        profile(&engine, &results, &[&extra(&format!("--fault {fault}"))])
            .expect(4)
            .says(&[code, "layer 17 does not fit its shard"], "log.txt");
        let document = kept(&results, "bench_failed", "bench_failed");
        assert!(
            document["raw_logs"]["bench"]
                .as_str()
                .expect("log")
                .contains("resource 12 of 12")
        );
        is_clean(&engine, &before);
    }
}

#[test]
fn a_bench_that_runs_out_of_memory() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("oom", &["--memory=96m", "--memory-swap=96m"]);
    let results = Results::new();
    let before = engine.processes();
    let ended = profile(&engine, &results, &[&extra("--fault oom@bench_start")]).expect(4);
    ended.says(
        &[
            "the bench was killed (exit 137)",
            "out of memory",
            "limit is 96.00 MiB",
        ],
        "--batch-size",
    );
    let document = kept(&results, "bench_failed", "oom");
    let oom = document["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .find(|f| f["code"] == "oom")
        .expect("oom");
    assert!(
        oom["message"]
            .as_str()
            .expect("message")
            .contains("in phase bench"),
        "{oom}"
    );
    is_clean(&engine, &before);
}

/// A memory cgroup with a limit, for `--cgroup-parent`; removed when dropped. Where the host has swap, nothing in it swaps.
pub struct ParentCgroup {
    name: String,
    /// A slice of systemd, where that keeps the daemon's cgroups; else a folder.
    slice: bool,
}

impl ParentCgroup {
    pub fn new(limit: &str) -> Result<ParentCgroup, String> {
        let driver = docker(&["info", "--format", "{{.CgroupDriver}}"])?;
        // A dash in the name of a slice is a level above it.
        let name = unique("parent").replace('-', "_");
        if driver.trim() == "systemd" {
            let parent = ParentCgroup {
                name: format!("{name}.slice"),
                slice: true,
            };
            let limit = format!("MemoryMax={limit}");
            let limits = [&limit, "MemorySwapMax=0"];
            systemctl(&[&["set-property", "--runtime", &parent.name][..], &limits].concat())?;
            systemctl(&["start", &parent.name])?;
            return Ok(parent);
        }
        let parent = ParentCgroup { name, slice: false };
        let dir = parent.dir();
        std::fs::create_dir(&dir).map_err(|e| format!("no cgroup can be made: {e}"))?;
        let v2 = dir.join("memory.max");
        if v2.exists() {
            let _ = std::fs::write(dir.join("memory.swap.max"), "0");
            std::fs::write(v2, limit).map_err(|e| e.to_string())?;
        } else {
            std::fs::write(dir.join("memory.limit_in_bytes"), limit).map_err(|e| e.to_string())?;
            let _ = std::fs::write(dir.join("memory.memsw.limit_in_bytes"), limit);
        }
        Ok(parent)
    }

    pub fn flag(&self) -> String {
        let root = if self.slice { "" } else { "/" };
        format!("--cgroup-parent={root}{}", self.name)
    }

    /// As plimsoll names it.
    pub fn shown(&self) -> String {
        match self.slice {
            true => format!("slice `{}`", self.name),
            false => format!("cgroup `/{}`", self.name),
        }
    }

    fn dir(&self) -> std::path::PathBuf {
        let v1 = std::path::Path::new("/sys/fs/cgroup/memory");
        let root = v1.parent().filter(|_| !v1.is_dir()).unwrap_or(v1);
        root.join(&self.name)
    }
}

impl Drop for ParentCgroup {
    fn drop(&mut self) {
        if self.slice {
            let _ = systemctl(&["stop", &self.name]);
            let _ = systemctl(&["revert", &self.name]);
        } else {
            let _ = std::fs::remove_dir(self.dir());
        }
    }
}

fn systemctl(args: &[&str]) -> Result<String, String> {
    said(std::process::Command::new("systemctl").args(args))
}

#[test]
fn a_limit_above_the_container_is_named_when_it_kills() {
    needs!(Docker, ReferenceEngine, Root);
    let parent = match ParentCgroup::new("96M") {
        Ok(parent) => parent,
        Err(why) => return skip(test_name!(), &why),
    };
    let engine = Engine::idle_with_shell("parent", &[&parent.flag()]);
    let results = Results::new();
    let before = engine.processes();
    let ended = profile(&engine, &results, &[&extra("--weights 200MiB")]).expect(4);
    let level = format!("the limit of {} is 96.00 MiB", parent.shown());
    let ended = ended.says(
        &["the bench was killed (exit 137)", "out of memory", &level],
        "--batch-size",
    );
    let document = kept(&results, "bench_failed", "oom");
    let oom = document["findings"].as_array().expect("findings").iter();
    let oom = oom.filter(|f| f["code"] == "oom").collect::<Vec<_>>();
    let message = oom[0]["message"].as_str().expect("message");
    assert!(
        message.contains(&level) && message.contains("in phase start"),
        "{message}"
    );
    assert!(
        ended.stdout.contains("at most 96.00 MiB"),
        "{}",
        ended.stdout
    );
    is_clean(&engine, &before);
}

#[test]
fn a_bench_that_is_killed_from_outside_did_not_run_out_of_memory() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("outside", &[]);
    let results = Results::new();
    let before = engine.processes();
    let ended = profile(
        &engine,
        &results,
        &[&extra("--fault crash=137@bench_start")],
    )
    .expect(4);
    let ended = ended.says(&["(exit 137)", "from outside"], "SIGKILL");
    assert!(!ended.stderr.contains("out of memory"), "{}", ended.stderr);
    kept(&results, "bench_failed", "bench_killed");
    is_clean(&engine, &before);
}

#[test]
fn a_result_that_cannot_be_read() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("result", &[]);
    let before = engine.processes();
    for (fault, sentence) in [("bad-json", "that is not JSON"), ("no-json", "wrote no")] {
        let results = Results::new();
        let fault = extra(&format!("--fault {fault}"));
        profile(&engine, &results, &[&fault]).expect(4).says(
            &["reported success (exit code 0), but", sentence],
            "log.txt",
        );
        // The memory was measured all the same: weights and pool lie in the peak.
        let document = kept(&results, "bench_failed", "bench_failed");
        let peak = document["memory_breakdown"]["total_measured_bytes"].as_u64();
        assert!(peak > Some(24 << 20), "{peak:?}");
        is_clean(&engine, &before);
    }
}

#[test]
fn a_bench_that_hangs() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("hang", &[]);
    let before = engine.processes();
    for faults in [
        "--fault hang@bench_start",
        "--fault hang@loading_weights --fault ignore-sigterm",
        "--fault orphan=setsid@bench_start --fault ignore-sigterm --fault hang@bench_iteration",
    ] {
        let results = Results::new();
        profile(&engine, &results, &["--timeout=4s", &extra(faults)])
            .expect(4)
            .says(&["took longer than 4 s"], "--timeout");
        let document = kept(&results, "deadline", "deadline");
        assert!(!codes(&document).contains(&"bench_processes_left"));
        is_clean(&engine, &before);
    }
}

/// A bench that ends well and leaves a worker behind is no failure; the worker goes.
#[test]
fn a_bench_that_leaves_a_worker_behind() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle_with_shell("orphan", &[]);
    let before = engine.processes();
    for fault in ["orphan", "orphan=setsid"] {
        let results = Results::new();
        profile(
            &engine,
            &results,
            &[&extra(&format!(
                "--num-iters 2 --fault {fault}@bench_start"
            ))],
        )
        .expect(0);
        is_clean(&engine, &before);
    }
}

/// Everything that a bench prints is read, or it would block; and it is kept within bounds.
#[test]
fn a_bench_that_floods_its_output() {
    needs!(Docker, ReferenceEngine);
    let (engine, results) = (Engine::idle_with_shell("flood", &[]), Results::new());
    let before = engine.processes();
    profile(
        &engine,
        &results,
        &[&extra("--fault flood=40MiB@bench_start")],
    )
    .expect(0);
    assert!(std::fs::metadata(results.profile()).expect("profile").len() < 2 << 20);
    is_clean(&engine, &before);
}

#[test]
fn every_request_of_the_bench_fails() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let small: Vec<&str> = SMALL.split(' ').chain(["--max-model-len", "64"]).collect();
    let engine = Engine::serving("refused", &[], &small);
    // 256 and 128 tokens do not fit into 64.
    let ended = run(&["profile", &engine.name, "--baseline=300ms", &results.arg()]).expect(4);
    ended.says(&["the bench ended with 1"], "log.txt");
    kept(&results, "bench_failed", "bench_failed");
}

// ---- the container

#[test]
fn an_engine_that_dies_while_it_serves() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let mut args: Vec<&str> = SMALL.split(' ').collect();
    args.extend(["--fault", "exit-after-ready=4000"]);
    let engine = Engine::serving("dies", &[], &args);
    let ended = run(&[
        "profile",
        &engine.name,
        "--baseline=300ms",
        "--num-prompts=100000",
        &results.arg(),
    ])
    .expect(4);
    ended.says(&["exit 1", "layer 17 does not fit its shard"], "log.txt");
    kept(&results, "container_lost", "container_lost");
}

#[test]
fn a_container_that_is_taken_away() {
    needs!(Docker, ReferenceEngine);
    let small: Vec<&str> = SMALL.split(' ').collect();
    for (deed, sentence) in [
        (&["rm", "-f"][..], "was removed during the run"),
        (&["restart", "-t", "0"], "was restarted during the run"),
        (&["stop"], "was stopped during the run"),
        (&["kill"], "was killed (`docker kill`, signal 9)"),
    ] {
        // Podman does not always report a stop, and of a kill not which signal it was.
        let sentence = match (deed[0], podman()) {
            ("stop", true) => "the container ",
            ("kill", true) => "was killed (`docker kill`)",
            _ => sentence,
        };
        for serving in [true, false] {
            let results = Results::new();
            let dir = results.arg();
            let mut args = vec!["profile", "", "--baseline=300ms", &dir];
            let hang = extra("--fault hang@bench_start");
            let engine = if serving {
                args.push("--num-prompts=100000");
                Engine::serving("taken", &[], &small)
            } else {
                args.extend(["-m", "m", &hang]);
                Engine::idle("taken")
            };
            args[1] = &engine.name;
            let mut live = Live::start(plimsoll(&args));
            live.until("bench 1/1");
            let mut words = deed.to_vec();
            words.push(&engine.id);
            docker(&words).expect("deed");
            let ended = live.end().expect(4);
            ended.says(&[sentence], "log.txt");
            kept(&results, "container_lost", "container_lost");
        }
    }
}

/// A frozen process obeys nobody until it is thawed; that must be told, and not waited for.
#[test]
fn a_container_that_is_paused() {
    needs!(Docker, OwnsProcesses, ReferenceEngine);
    let (engine, results) = (Engine::idle("frozen"), Results::new());
    let before = engine.processes();
    let dir = results.arg();
    let hang = extra("--fault hang@bench_start");
    let args = [
        "profile",
        &engine.name,
        "-m",
        "m",
        "--baseline=300ms",
        &dir,
        &hang,
    ];
    let mut live = Live::start(plimsoll(&args));
    live.until("bench 1/1");
    docker(&["pause", &engine.id]).expect("pause");
    live.end()
        .expect(4)
        .says(&["the container was paused"], "log.txt");
    kept(&results, "container_lost", "container_lost");
    docker(&["unpause", &engine.id]).expect("unpause");
    // What was killed while it was frozen ends as soon as it is not.
    wait_for("the bench's end", || {
        (engine.processes() == before).then_some(())
    });
}

#[test]
fn two_runs_at_once_on_one_container() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("twice");
    let (first, second) = (Results::new(), Results::new());
    let dir = first.arg();
    let mut live = Live::start(plimsoll(&[
        "profile",
        &engine.name,
        "--bench=none",
        "--baseline=100ms",
        &dir,
    ]));
    live.until("observe");
    profile(&engine, &second, &[]).expect(3).says(
        &[
            &engine.name,
            "another plimsoll",
            &format!("pid {}", live.pid()),
        ],
        "wait",
    );
    second.is_empty();
    // Asking what would be done disturbs nobody.
    profile(&engine, &second, &["--dry-run"]).expect(0);
    live.signal(rustix::process::Signal::INT);
    live.end().expect(130);
}

// ---- the place for results

#[test]
fn results_that_cannot_be_written() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("unwritable");
    let before = engine.processes();
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").expect("file");
    // Not even root may make a folder there.
    for place in [
        file.as_path(),
        &file.join("below"),
        Path::new("/proc/nowhere"),
    ] {
        let place = place.display().to_string();
        let ended = run(&["profile", &engine.name, "-m", "m", "--results-dir", &place]).expect(3);
        assert!(
            !ended.stderr.contains("warm-up"),
            "told before anything runs: {}",
            ended.stderr
        );
        ended.says(&["cannot write results", &place], "--results-dir");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("file"), "mine");
    // Before a container is started, too.
    let name = unique("unwritable-run");
    let file = file.display().to_string();
    run(&[
        "run",
        "--preset=reference",
        "--name",
        &name,
        "--results-dir",
        &file,
    ])
    .expect(3)
    .says(&["cannot write results"], "--results-dir");
    assert!(docker(&["inspect", &name]).is_err());
    is_clean(&engine, &before);
}

#[test]
fn a_profile_goes_where_it_is_sent() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::idle("output");
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("deep/er/mine.json");
    let path = file.display().to_string();
    let small = extra("--num-iters 2");
    for number in ["", "-2"] {
        run(&[
            "profile",
            &engine.name,
            "-m",
            "m",
            "--baseline=100ms",
            "--output",
            &path,
            &small,
        ])
        .expect(0);
        assert!(
            file.with_file_name(format!("mine{number}.capture"))
                .is_dir(),
            "a capture is never written over"
        );
        assert_eq!(read(&file)["schema_version"], "4.0");
    }
}

#[test]
fn a_disk_that_fills_up() {
    needs!(Docker, ReferenceEngine, Root);
    let tiny = match Tiny::mount("size=6m") {
        Ok(tiny) => tiny,
        Err(e) => return skip(test_name!(), &format!("no tmpfs can be mounted: {e}")),
    };
    let engine = Engine::idle_with_shell("full", &[]);
    let before = engine.processes();
    let place = tiny.0.display().to_string();
    let flood = extra(&format!("--fault flood@bench_start {SLOW_STEPS}"));
    let ended = run(&[
        "profile",
        &engine.name,
        "-m",
        "m",
        "--baseline=300ms",
        "--results-dir",
        &place,
        &flood,
    ])
    .expect(3);
    ended.says(&["cannot write", "No space left"], "the disk is full");
    is_clean(&engine, &before);
    // What was seen until then is there: profile, capture, samples.
    let folder = tiny.0.join("memory-profiles");
    let profile = std::fs::read_dir(&folder)
        .expect("folder")
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "json"))
        .expect("a profile");
    let document = read(&profile);
    assert!(
        document["memory_breakdown"]["model_weights_gb"]
            .as_f64()
            .is_some(),
        "{:#}",
        document["memory_breakdown"]
    );
    assert!(
        codes(&document).contains(&"run_failed"),
        "{:#}",
        document["findings"]
    );
    let capture = profile.with_extension("capture");
    for file in ["capture.json", "samples.jsonl", "log.txt"] {
        assert!(
            std::fs::metadata(capture.join(file)).expect(file).len() > 0,
            "{file}"
        );
    }
}

#[test]
fn a_disk_that_is_full_from_the_start() {
    needs!(Docker, ReferenceEngine, Root);
    let tiny = match Tiny::mount("size=64k") {
        Ok(tiny) => tiny,
        Err(e) => return skip(test_name!(), &format!("no tmpfs can be mounted: {e}")),
    };
    std::fs::write(tiny.0.join("ballast"), vec![0; 60 << 10]).expect("ballast");
    let engine = Engine::idle("full-at-once");
    let before = engine.processes();
    let place = tiny.0.display().to_string();
    let ended = run(&[
        "profile",
        &engine.name,
        "-m",
        "m",
        "--baseline=300ms",
        "--results-dir",
        &place,
        &extra(""),
    ])
    .expect(3);
    ended.says(&["cannot write"], "full");
    is_clean(&engine, &before);
}

// ---- starting

#[test]
fn an_image_that_is_not_here() {
    needs!(Docker);
    let results = Results::new();
    let image = format!("{}:none", unique("nowhere"));
    run(&[
        "run",
        "--image",
        &image,
        "--engine=vllm",
        "-m",
        "m",
        &results.arg(),
    ])
    .expect(3)
    .says(&[&image, "is not here"], "--pull");
    results.is_empty();
}

#[test]
fn a_container_that_cannot_be_started() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let name = unique("refused-start");
    // No GPU here, or no NVIDIA runtime: Docker refuses at the start, after the container was made.
    let many = [
        "run",
        "--preset=reference",
        "--name",
        &name,
        "--gpus=device=77",
        &results.arg(),
    ];
    let ended = run(&many);
    assert_eq!(ended.code(), 3, "{}", ended.stderr);
    assert!(!ended.hints().is_empty(), "{}", ended.stderr);
    assert!(
        docker(&["inspect", &name]).is_err(),
        "what could not be started is removed"
    );
    results.is_empty();
    // A name that is taken is somebody else's container: it stays.
    let taken = Engine::idle("taken-name");
    run(&[
        "run",
        "--preset=reference",
        "--name",
        &taken.name,
        &results.arg(),
    ])
    .expect(3)
    .says(&[&taken.name], "another name");
    assert!(docker(&["inspect", &taken.id]).is_ok());
    results.is_empty();
}

#[test]
fn an_engine_that_does_not_come_up() {
    needs!(Docker, ReferenceEngine);
    for (fault, flags, sentences, hint, outcome) in [
        (
            "crash@weights_loaded",
            &[][..],
            &["exit 1", "layer 17 does not fit its shard"][..],
            "log.txt",
            "container_lost",
        ),
        (
            "crash=0@kv_cache_allocated",
            &[],
            &["exit 0", "layer 17"],
            "log.txt",
            "container_lost",
        ),
        (
            "hang@weights_loaded",
            &["--health-timeout=3s"],
            &["did not serve within 3s"],
            "--health-timeout",
            "failed",
        ),
        (
            "hang@weights_loaded",
            &["--timeout=3s"],
            &["took longer than 3 s"],
            "--timeout",
            "deadline",
        ),
        (
            "oom@weights_loaded",
            &["--memory=700MiB"],
            &["exit 137", "out of memory", "limit is 700.00 MiB"],
            "more memory",
            "container_lost",
        ),
    ] {
        let results = Results::new();
        let name = unique("startup");
        let (dir, env) = (results.arg(), format!("--env=REFERENCE_FAULT={fault}"));
        let mut args = vec!["run", "--preset=reference", "--name", &name, &env, &dir];
        args.extend(flags);
        run(&args).expect(4).says(sentences, hint);
        let document = results.document();
        ended_as(&document, outcome);
        assert!(
            docker(&["inspect", &name]).is_err(),
            "{fault}: it is removed"
        );
    }
}

/// How often each of the first failures is tried: `PLIMSOLL_FAULT_TRIES`, or once.
fn tries() -> usize {
    let tries = std::env::var("PLIMSOLL_FAULT_TRIES").ok();
    tries.and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// An image that prints the text of `$SAY` and ends with `$CODE`.
struct SpeakingImage(String);

impl SpeakingImage {
    fn build() -> SpeakingImage {
        let dir = tempfile::tempdir().expect("tempdir");
        let name = format!("{}:dev", unique("plimsoll-test-speaks"));
        let file = format!(
            "FROM {}\nLABEL plimsoll.test=1\n\
             ENTRYPOINT [\"/bin/sh\", \"-c\", \"exec >&2; for i in $(/bin/busybox seq 2000); do echo line $i; done; echo \\\"$SAY\\\"; exit $CODE\"]\n",
            image().expect("busybox")
        );
        std::fs::write(dir.path().join("Dockerfile"), file).expect("Dockerfile");
        let folder = dir.path().display().to_string();
        docker(&["build", "-q", "-t", &name, &folder]).expect("image");
        SpeakingImage(name)
    }
}

impl Drop for SpeakingImage {
    fn drop(&mut self) {
        let _ = docker(&["rmi", &self.0]);
    }
}

/// However soon the container of a run dies, its exit code, the cause and what to change open the
/// page, and its whole log is kept.
#[test]
fn a_container_that_dies_is_explained_whatever_the_moment() {
    needs!(Docker, ReferenceEngine);
    let speaking = SpeakingImage::build();
    let reference = |flags: &[&'static str]| -> Vec<String> {
        let flags = ["--preset=reference"].iter().chain(flags);
        flags.map(|f| (*f).to_owned()).collect()
    };
    let said = |line: &str, code: u8| -> Vec<String> {
        let flags = ["--engine=vllm", "-m=m", "--image", &speaking.0];
        let env = [format!("--env=SAY={line}"), format!("--env=CODE={code}")];
        flags.iter().map(|f| (*f).to_owned()).chain(env).collect()
    };
    let no_program = ["--engine=vllm", "-m=m", "--image", &image().expect("image")];
    let no_program = no_program.map(str::to_owned).to_vec();
    let model = "OSError: /models/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'";
    let library = "vllm: error while loading shared libraries: libgomp.so.1: cannot open shared object file: No such file or directory";
    let kinds: [(Vec<String>, &[&str], &str, &str); 9] = [
        (
            reference(&["--extra-engine-args=--no-such-flag"]),
            &["exit 2", "unrecognized arguments: --no-such-flag"],
            "`--no-such-flag`",
            "--no-such-flag",
        ),
        (
            reference(&["--env=REFERENCE_FAULT=crash"]),
            &["exit 1", "layer 17"],
            "log.txt",
            "resource 12 of 12",
        ),
        (
            reference(&["--env=REFERENCE_FAULT=crash=0@weights_loaded"]),
            &["exit 0", "layer 17"],
            "log.txt",
            "resource 12 of 12",
        ),
        (
            reference(&["--env=REFERENCE_FAULT=exit-after-ready=30"]),
            &["exit 1", "layer 17"],
            "log.txt",
            "resource 12 of 12",
        ),
        (
            reference(&["--env=REFERENCE_FAULT=oom", "--memory=64MiB"]),
            &["exit 137", "limit is 64.00 MiB"],
            "more memory than 64.00 MiB",
            "phase=start",
        ),
        if podman() {
            let sentences = &["exit 1", "failed to exec pid1"][..];
            (
                no_program,
                sentences,
                "the image has no program",
                "catatonit",
            )
        } else {
            let sentences = &["exit 127", "exec vllm failed"][..];
            (no_program, sentences, "the image has no program", "FATAL")
        },
        (
            said(model, 1),
            &["exit 1", "/models/none is not a local folder"],
            "mount it",
            "line 2000",
        ),
        (
            said(library, 127),
            &["exit 127", "libgomp.so.1"],
            "another image",
            "line 2000",
        ),
        (
            said("gave up", 3),
            &["exit 3", "the last line of its log is `gave up`"],
            "log.txt",
            "line 2000",
        ),
    ];
    for round in 0..tries() {
        for (flags, sentences, hint, logged) in &kinds {
            let (results, name) = (Results::new(), unique("first"));
            let dir = results.arg();
            let mut args = vec!["run", "--baseline=10ms", "--name", &name, &dir];
            args.extend(flags.iter().map(String::as_str));
            let ended = run(&args).expect(4).says(sentences, hint);
            let page: String = ended
                .stdout
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            for sentence in *sentences {
                let at = page
                    .find(sentence)
                    .unwrap_or_else(|| panic!("round {round}: {page}"));
                assert!(
                    at < page.find("Total at the peak").expect("breakdown"),
                    "{page}"
                );
            }
            let document = results.document();
            ended_as(&document, "container_lost");
            let log = std::fs::read_to_string(results.captures()[0].join("log.txt")).expect("log");
            assert!(log.contains(logged), "round {round}, {flags:?}: {log}");
            if flags.contains(&speaking.0) {
                assert_eq!(log.matches(" line ").count(), 2000, "round {round}");
            }
            assert!(docker(&["inspect", &name]).is_err(), "it is removed");
        }
    }
}

/// The same with the real engine.
#[test]
fn the_real_engine_that_dies_at_its_start_is_explained() {
    needs!(Docker, Vllm);
    let models = format!("--volume={}:/models:ro", common::e2e::models().display());
    for (flags, sentences, hint) in [
        (
            [
                "-m=/models/tiny-llama",
                "--extra-engine-args=--no-such-flag",
            ],
            ["exit 2", "unrecognized arguments: --no-such-flag"],
            "`--no-such-flag`",
        ),
        (
            ["-m=/models/none", "--env=HF_HUB_OFFLINE=1"],
            ["exit 1", "/models/none"],
            "mount it",
        ),
    ] {
        let results = Results::new();
        let dir = results.arg();
        let args = [
            "run",
            "--preset=vllm-cpu",
            &models,
            flags[0],
            flags[1],
            &dir,
        ];
        run(&args).expect(4).says(&sentences, hint);
        ended_as(&results.document(), "container_lost");
    }
}

/// A container that has died already: its log says why, and what to change.
#[test]
fn a_container_that_has_died_is_explained() {
    needs!(Docker, ReferenceEngine);
    let dead = Engine::run("dead", &[], REFERENCE_IMAGE, &["serve", "--no-such-flag"]);
    wait_for("its end", || {
        (docker(&["inspect", "-f", "{{.State.Status}}", &dead.id]).as_deref() == Ok("exited"))
            .then_some(())
    });
    let sentences = [
        "is not running",
        "exit code 2",
        "unrecognized arguments: --no-such-flag",
    ];
    for verb in ["profile", "loadline"] {
        run(&[verb, &dead.name])
            .expect(3)
            .says(&sentences, "`--no-such-flag`");
    }
}

/// The start of a run comes before the first line of its engine, however late Docker reports it.
#[test]
fn the_start_of_a_run_is_marked_before_its_engines_first_line() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let fault = "--env=REFERENCE_FAULT=crash@weights_loaded";
    run(&["run", "--preset=reference", fault, &results.arg()]).expect(4);
    let capture = &results.captures()[0];
    let marks = read(&capture.join("capture.json"))["marks"].clone();
    let marks = marks.as_array().expect("marks").iter();
    let mut starts = marks.filter(|m| m["phase"] == "start");
    let start = starts.next().expect("a start")["at_ns"].as_i64();
    let log = std::fs::read_to_string(capture.join("log.txt")).expect("log");
    let first = log.split(' ').next().and_then(|at| at.parse::<i64>().ok());
    assert!(
        start.expect("ns") <= first.expect("ns"),
        "{start:?} {first:?}"
    );
}

/// Asking a bench for its flags takes long: once for an image, again when its programs were changed.
#[test]
fn a_bench_is_asked_for_its_flags_once() {
    needs!(Docker);
    let script = "mkdir -p /usr/bin; printf '#!/bin/sh\necho asked >>/asked\necho --model --input-len\n' >/usr/bin/vllm; \
                  /bin/busybox chmod +x /usr/bin/vllm; exec /bin/busybox sleep 6000";
    let script = script.replace("mkdir", "/bin/busybox mkdir");
    let options = ["--env=PATH=/usr/bin:/bin"];
    let container = TestContainer::run("asked-once", &options, &script);
    let state = tempfile::tempdir().expect("tempdir");
    let shell = |script: &str| docker(&["exec", &container.id, "sh", "-c", script]);
    wait_for("its bench", || shell("test -x /usr/bin/vllm").ok());
    let profile = || {
        let args = [
            "profile",
            &container.name,
            "--engine=vllm",
            "-m=m",
            "--dry-run",
        ];
        let mut command = plimsoll(&args);
        command.env("XDG_CACHE_HOME", state.path());
        let ended = Live::start(command).end();
        let asked = shell("/bin/busybox cat /asked")
            .expect("asked")
            .lines()
            .count();
        (asked, ended.stderr.contains("for its flags"))
    };
    let (first, said) = profile();
    assert!(first > 0 && said, "a progress line while it is asked");
    assert_eq!(profile(), (first, false), "not asked again");
    shell("echo >/usr/bin/another").expect("a new program");
    let (again, said) = profile();
    assert!(again > first && said, "its programs were changed");
    // Another container of the image has another program at the same path.
    let other = TestContainer::run("asked-too", &options, &script);
    let shell = |script: &str| docker(&["exec", &other.id, "sh", "-c", script]);
    wait_for("its bench", || shell("test -x /usr/bin/vllm").ok());
    let mut command = plimsoll(&["profile", &other.name, "--engine=vllm", "-m=m", "--dry-run"]);
    command.env("XDG_CACHE_HOME", state.path());
    let ended = Live::start(command).end();
    assert!(ended.stderr.contains("for its flags"), "{}", ended.stderr);
}

/// The models in an idle container are listed; the only one is taken.
#[test]
fn the_models_in_an_idle_container_are_found() {
    needs!(Docker);
    let script = "/bin/busybox ln -s busybox /bin/find; /bin/busybox mkdir -p /models/tiny /models/large; \
                  echo '{}' >/models/tiny/config.json; exec /bin/busybox sleep 6000";
    let container = TestContainer::run("models-inside", &["--env=PATH=/bin"], script);
    let shell = |script: &str| docker(&["exec", &container.id, "sh", "-c", script]);
    wait_for("its model", || {
        shell("test -s /models/tiny/config.json").ok()
    });
    let args = ["profile", &container.name, "--engine=vllm", "--dry-run"];
    let ended = run(&args);
    assert!(
        ended.stderr.contains("model: /models/tiny, the only one"),
        "{}",
        ended.stderr
    );
    shell("echo '{}' >/models/large/config.json").expect("another");
    run(&args).expect(2).says(
        &["no engine serves", "model"],
        "/models/large, /models/tiny",
    );
}

// ---- secrets

/// A token in the container's environment, which the engine prints in its log, is in no file, in
/// no output, and in nothing that the daemon tells to others.
#[test]
fn a_token_is_nowhere() {
    needs!(Docker, ReferenceEngine);
    let token = format!("hf_{}", "Q7xPlimsollTestSecret".repeat(2));
    let env = format!("HF_TOKEN={token}");
    let began = wall_clock();
    let mut outputs = Vec::new();

    // Attached to, and in its own process.
    let small: Vec<&str> = SMALL
        .split(' ')
        .chain(["--fault", "secret@loading_weights"])
        .collect();
    let serving = Engine::serving("secret", &["-e", &env], &small);
    assert!(serving.log().contains(&token), "the engine does print it");
    let results = Results::new();
    outputs.push(
        run(&[
            "profile",
            &serving.name,
            "--baseline=300ms",
            "-vv",
            &results.arg(),
        ])
        .expect(0),
    );
    let idle = Engine::run("secret", &["-e", &env], REFERENCE_IMAGE, &["idle"]);
    let bench = extra("--num-iters 2 --fault secret@bench_start --fault crash@bench_end");
    outputs.push(profile(&idle, &results, &["-vv", &bench]).expect(4));

    // From this shell into a container that is started.
    let mut command = plimsoll(&[
        "run",
        "--preset=reference",
        "--env=REFERENCE_FAULT=secret@loading_weights,crash@kv_cache_allocated",
        "-vv",
        &results.arg(),
    ]);
    command.env("HF_TOKEN", &token);
    outputs.push(Live::start(command).end().expect(4));

    let files = everything_in(results.0.path());
    assert_eq!((results.profiles().len(), results.captures().len()), (3, 3));
    assert!(!files.contains(&token), "in a file");
    assert!(
        files.contains("HF_TOKEN"),
        "that there is one may be known: {files}"
    );
    for output in &outputs {
        assert!(
            !output.stdout.contains(&token) && !output.stderr.contains(&token),
            "in the output"
        );
    }
    for path in results.profiles() {
        let again = run(&["derive", "--json", &path.display().to_string()]).expect(0);
        assert!(!again.stdout.contains(&token));
    }
    // The daemon's events carry every exec's command line.
    let (until, word) = match podman() {
        // It leaves out what it has not written down yet, unless it waits.
        true => (ahead(2), "exec"),
        false => (wall_clock(), "exec_create"),
    };
    let events = docker(&["events", "--since", &began, "--until", &until]).expect("events");
    assert!(events.contains(word), "{events}");
    assert!(!events.contains(&token), "in an event");
}

/// Now, as `docker events` wants it; a second later, as `--until` is.
fn wall_clock() -> String {
    ahead(0)
}

fn ahead(seconds: u64) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("clock")
        + std::time::Duration::from_secs(seconds);
    format!("{}.{:09}", now.as_secs(), now.subsec_nanos())
}
