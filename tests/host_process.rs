//! An engine without Docker's API: named by its process, its cgroup, or as containerd runs it. Docker's socket is out of
//! reach in all of these, and the engine is the same afterwards.

use crate::common;
use crate::common::watched::{Watched, parts_of};
use common::e2e::{
    Engine, Live, REFERENCE_IMAGE, Results, codes, everything_in, parts_sum_to_the_peak, plimsoll,
    program, wait_for,
};
use common::{docker, unique};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const MIB: f64 = 1024.0 * 1024.0;
/// Weights, pool and spike of the engine in these tests, MiB.
const SIZES: [&str; 6] = [
    "--weights",
    "128MiB",
    "--kv-pool",
    "64MiB",
    "--activation",
    "32MiB",
];
const PLATEAU: f64 = 192.0;
const PEAK: f64 = 224.0;

/// The reference engine's program, out of its image.
fn engine_file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap().keep();
        let id = docker(&["create", REFERENCE_IMAGE]).unwrap();
        let file = folder.join("reference-engine");
        docker(&[
            "cp",
            &format!("{id}:/reference-engine"),
            file.to_str().unwrap(),
        ])
        .unwrap();
        docker(&["rm", &id]).unwrap();
        file
    })
}

/// A reference engine that serves as a plain process and logs into a file; ended when dropped.
struct Plain {
    child: Child,
    folder: tempfile::TempDir,
}

impl Plain {
    fn serving(more: &[&str]) -> Plain {
        let folder = tempfile::tempdir().unwrap();
        // Two tests at one time must not have the same port.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(engine_file())
            .args(["serve", "--model", "reference/plain", "--port", &port])
            .args(SIZES)
            .args(more)
            .env("HF_TOKEN", "hf_sesame1234567890abcdefghij")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let plain = Plain { child, folder };
        wait_for("the engine", || {
            plain.log().contains("phase=ready").then_some(())
        });
        plain
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `plimsoll` without a daemon.
fn alone(args: &[&str]) -> Command {
    let mut command = plimsoll(args);
    command.env("DOCKER_HOST", "unix:///no/such/docker.sock");
    command
}

#[track_caller]
fn near(document: &Value, mib: f64) {
    let peak = document["memory_measurements"]["peak"]["total_bytes"]
        .as_f64()
        .expect("peak")
        / MIB;
    // Its own memory and the kernel's tables are 2 MiB.
    assert!(
        (peak - mib).abs() <= 4.0,
        "{peak} MiB at the peak, {mib} true: {:#}",
        document["memory_measurements"]
    );
    parts_sum_to_the_peak(document);
}

#[test]
fn a_plain_process_is_profiled_with_its_log_and_stays_as_it_was() {
    needs!(ReferenceEngine);
    let engine = Plain::serving(&["--activation-ms", "200"]);
    let before = std::fs::read_to_string(format!("/proc/{}/status", engine.pid())).unwrap();
    let results = Results::new();
    let dir = results.arg();
    let pid = engine.pid();
    let ended = Live::start(alone(&[
        "profile",
        "--pid",
        &pid,
        &dir,
        "--num-prompts",
        "4",
    ]))
    .end()
    .expect(0);
    let document = results.document();
    near(&document, PEAK);
    let activations = document["memory_breakdown"]["activations_gb"].as_f64();
    let activations = activations.unwrap_or_else(|| panic!("{document:#}")) * 1024.0;
    assert!(
        (activations - 32.0).abs() < 4.0,
        "{activations} MiB of activations"
    );
    let metadata = &document["metadata"];
    assert_eq!(metadata["container"]["name"], format!("pid {pid}"));
    assert_eq!(metadata["host"]["docker_version"], Value::Null);
    assert!(
        metadata["memory_backend"]["reason"]
            .as_str()
            .unwrap()
            .contains("share its cgroup"),
        "{metadata:#}"
    );
    assert!(codes(&document).contains(&"simulated_engine"));
    let kept = everything_in(results.0.path());
    assert!(
        kept.contains("phase=weights_loaded"),
        "the log of before is in the capture"
    );
    assert!(!kept.contains("sesame") && !ended.stdout.contains("sesame"));
    // It is the same process, and has no child.
    let after = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |text: &str, name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .map(str::to_owned)
    };
    for name in ["Pid:", "State:", "SigIgn:"] {
        assert_eq!(line(&before, name), line(&after, name));
    }
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert_eq!(children, "");
}

#[test]
fn nothing_is_started_beside_a_process() {
    needs!(ReferenceEngine);
    let engine = Plain::serving(&[]);
    let pid = engine.pid();
    let refused = Live::start(alone(&["profile", "--pid", &pid, "--bench", "serve"]))
        .end()
        .expect(2);
    refused.says(
        &["plimsoll starts nothing beside the engine"],
        "--bench builtin",
    );
    let gone = Live::start(alone(&["profile", "--pid", "4194304"]))
        .end()
        .expect(3);
    gone.says(&["no process 4194304"], "the number is this host's");
    let both = Live::start(alone(&["profile", "llm", "--pid", &pid])).end();
    assert_eq!(both.code(), 2);
    let log_alone = Live::start(alone(&["why", "llm", "--log", "x"])).end();
    assert_eq!(log_alone.code(), 2, "{}", log_alone.stderr);
}

#[test]
fn the_death_of_a_process_ends_the_run_with_its_log() {
    needs!(ReferenceEngine);
    let mut engine = Plain::serving(&[]);
    let results = Results::new();
    let (dir, pid) = (results.arg(), engine.pid());
    let mut watching = Live::start(alone(&["profile", "--pid", &pid, &dir, "--bench", "none"]));
    watching.until("observe");
    let log = engine.folder.path().join("log");
    let mut log = File::options().append(true).open(log).unwrap();
    writeln!(log, "ERROR reference-engine: the pool is broken").unwrap();
    // Reaped at once: its files in /proc are gone with it.
    engine.child.kill().unwrap();
    engine.child.wait().unwrap();
    let ended = watching.end().expect(4);
    for words in ["ended during the run", "the pool is broken"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn why_and_record_read_a_process_too() {
    needs!(ReferenceEngine);
    let engine = Plain::serving(&[]);
    let pid = engine.pid();
    let why = Live::start(alone(&["why", "--pid", &pid, "--json"]))
        .end()
        .expect(9);
    let found: Value = serde_json::from_str(&why.stdout).unwrap();
    assert!(
        !why.stdout.contains("Not read") && found.to_string().contains("no_failure"),
        "{found:#}"
    );

    // Of a log that is piped the cause is found as in a file.
    let mut piped = alone(&["why", "--pid", &pid, "--log", "-", "--json"]);
    let log = engine.folder.path().join("piped");
    std::fs::write(
        &log,
        "ValueError: Free memory on device cuda:0 (61.36/79.19 GiB) on startup is less than desired GPU memory utilization (0.92, 72.91 GiB).\n",
    )
    .unwrap();
    piped.stdin(File::open(&log).unwrap());
    let why = Live::start(piped).end().expect(0);
    assert!(why.stdout.contains("61.36/79.19"), "{}", why.stdout);

    let session = engine.folder.path().join("session.jsonl");
    let file = session.to_str().unwrap();
    Live::start(alone(&[
        "record",
        "--pid",
        &pid,
        "-o",
        file,
        "--duration",
        "300ms",
    ]))
    .end()
    .expect(0);
    let lines = std::fs::read_to_string(&session).unwrap();
    let sample = lines
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let used = sample
        .filter_map(|s| s["used_bytes"].as_f64())
        .fold(0.0, f64::max);
    assert!((used / MIB - PLATEAU).abs() < 4.0, "{used}: {lines}");
}

#[test]
fn watch_follows_a_process_to_its_end_without_a_daemon() {
    needs!(ReferenceEngine);
    let mut engine = Plain::serving(&[]);
    let pid = engine.pid();
    let state = tempfile::tempdir().unwrap();
    let watched = Watched::start_with(state.path(), &["--pid", &pid], |command| {
        command.env("DOCKER_HOST", "unix:///no/such/docker.sock");
    });
    let name = format!("pid {pid}");
    let parts = wait_for("its parts", || {
        Some(parts_of(&watched.scrape(), &name)).filter(|parts| !parts.is_empty())
    });
    // Its log has no times that would tell its phases apart.
    let held = parts.values().sum::<f64>() / MIB;
    assert!((held - PLATEAU).abs() <= 4.0, "{held} MiB: {parts:?}");
    let log = engine.folder.path().join("log");
    let mut log = File::options().append(true).open(log).unwrap();
    writeln!(log, "ValueError: Free memory on device cuda:0 (61.36/79.19 GiB) on startup is less than desired GPU memory utilization (0.92, 72.91 GiB).").unwrap();
    engine.child.kill().unwrap();
    engine.child.wait().unwrap();
    let deaths = format!("plimsoll_container_deaths_total{{container=\"{name}\",cause=");
    let death = wait_for("its death", || {
        let page = watched.scrape();
        let mut deaths = page
            .into_iter()
            .filter(|(line, _)| line.starts_with(&deaths));
        deaths.next()
    });
    assert!(death.1 == 1.0 && !death.0.contains("unknown"), "{death:?}");

    let gone = alone(&["watch", "--pid", "4194304"]);
    Live::start(gone)
        .end()
        .expect(3)
        .says(&["no process 4194304"], "the number is this host's");
    let root = alone(&["watch", "--cgroup", "/"]);
    assert_eq!(Live::start(root).end().code(), 2);
}

#[test]
fn a_container_is_profiled_by_its_process_and_its_cgroup_without_its_daemon() {
    needs!(ReferenceEngine);
    let engine = Engine::serving(
        "process",
        &[],
        &[&SIZES[..], &["--activation-ms", "200"]].concat(),
    );
    let inspected = docker(&["inspect", "-f", "{{.State.Pid}}", &engine.id]).unwrap();
    let pid = inspected.trim();
    if !Path::new(&format!("/proc/{pid}")).exists() {
        common::skip::skip(test_name!(), "the daemon's processes are not on this host");
        return;
    }
    if common::rootless() {
        common::skip::skip(
            test_name!(),
            "a container's address is not reached from this host",
        );
        return;
    }
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let cgroup = cgroups
        .lines()
        .find(|l| l.contains(":memory:") || l.starts_with("0::"))
        .unwrap();
    let cgroup = cgroup.splitn(3, ':').nth(2).unwrap();
    for named in [["--pid", pid], ["--cgroup", cgroup]] {
        let results = Results::new();
        let dir = results.arg();
        // The daemon's client writes the log; plimsoll reads it as it comes.
        let log = Command::new("docker")
            .args(["logs", "-f", &engine.id])
            .stdout(Stdio::piped())
            .spawn();
        let mut log = log.unwrap();
        let mut command = alone(&[
            "profile",
            &dir,
            "--num-prompts",
            "4",
            "--log",
            "-",
            named[0],
            named[1],
        ]);
        command.stdin(log.stdout.take().unwrap());
        Live::start(command).end().expect(0);
        let _ = log.kill();
        log.wait().unwrap();
        let document = results.document();
        near(&document, PEAK);
        assert!(everything_in(results.0.path()).contains("phase=kv_cache_allocated"));
        let reason = document["metadata"]["memory_backend"]["reason"]
            .as_str()
            .unwrap();
        assert!(!reason.contains("share its cgroup"), "{reason}");
    }
    assert_eq!(
        engine.processes().len(),
        1,
        "nothing was started in it: {:?}",
        engine.processes()
    );
}

#[test]
fn an_engine_of_containerds_own_client_is_profiled() {
    needs!(ReferenceEngine, Root);
    let own = std::env::var("CONTAINERD_ADDRESS").ok();
    let usual = [
        "/run/containerd/containerd.sock",
        "/run/docker/containerd/containerd.sock",
    ]
    .map(str::to_owned);
    let answers = |path: &String| std::os::unix::net::UnixStream::connect(path).is_ok();
    let socket = own.into_iter().chain(usual).find(answers);
    let Some(socket) = socket.filter(|_| program("ctr").is_some()) else {
        common::skip::skip(test_name!(), "no containerd with its client: ctr");
        return;
    };
    let id = unique("containerd");
    let ctr = |args: &[&str]| {
        let done = Command::new("ctr")
            .args(["-a", &socket, "-n", "plimsoll-test"])
            .args(args)
            .output()
            .unwrap();
        (
            done.status.success(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rootfs");
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(engine_file(), root.join("reference-engine")).unwrap();
    let log = folder.path().join("log");
    let sizes = SIZES.join(" ");
    let uri = format!("file://{}", log.display());
    let mut run = vec![
        "run",
        "--detach",
        "--rootfs",
        "--net-host",
        "--log-uri",
        &uri,
        root.to_str().unwrap(),
        &id,
    ];
    run.extend("/reference-engine serve --model m --port 18977 --activation-ms 200".split(' '));
    run.extend(sizes.split(' '));
    let (started, why) = ctr(&run);
    if !started {
        common::skip::skip(
            test_name!(),
            &format!("containerd starts nothing here: {why}"),
        );
        return;
    }
    let checked = std::panic::catch_unwind(|| {
        wait_for("the engine", || {
            std::fs::read_to_string(&log)
                .ok()?
                .contains("phase=ready")
                .then_some(())
        });
        if std::net::TcpStream::connect(("127.0.0.1", 18977)).is_err() {
            common::skip::skip(
                test_name!(),
                "containerd's network is not that of the tests",
            );
            return;
        }
        let results = Results::new();
        let (dir, cgroup) = (results.arg(), format!("/plimsoll-test/{id}"));
        let file = log.to_str().unwrap();
        let flags = [
            "profile",
            "--cgroup",
            &cgroup,
            "--log",
            file,
            "--num-prompts",
            "4",
            &dir,
        ];
        Live::start(alone(&flags)).end().expect(0);
        near(&results.document(), PEAK);
        assert_eq!(
            results.document()["metadata"]["container"]["name"],
            id.as_str()
        );
    });
    ctr(&["task", "kill", "--signal", "SIGKILL", &id]);
    wait_for("its end", || ctr(&["task", "delete", &id]).0.then_some(()));
    ctr(&["container", "delete", &id]);
    if let Err(panic) = checked {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn ctrl_c_ends_the_watching_and_not_the_process() {
    needs!(ReferenceEngine);
    let engine = Plain::serving(&[]);
    let results = Results::new();
    let (dir, pid) = (results.arg(), engine.pid());
    let mut watching = Live::start(alone(&["profile", "--pid", &pid, &dir, "--bench", "none"]));
    watching.until("observe");
    watching.signal(Signal::INT);
    watching.end().expect(130);
    assert_eq!(
        results.document()["metadata"]["container"]["name"],
        format!("pid {pid}")
    );
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(!state.contains(") Z "), "{state}");
}
