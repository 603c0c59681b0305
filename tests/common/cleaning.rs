//! A host of the test's own, for the cleaner: of Docker's containers it sees only the test's, its
//! GPU is the stand-in's, and what it remembers lies in a folder of the test's. So a test may clean
//! all there is, and what others do on this machine is not touched.
#![allow(dead_code, missing_docs)]

use crate::common::e2e::{Ended, Engine, Live, REFERENCE_IMAGE, plimsoll, wait_for};
use crate::common::faults::FaultySocket;
use crate::common::stage;
use crate::common::{TestContainer, docker};
use plimsoll::container::leftovers::boot_id;
use plimsoll::telemetry::{MeasuredContainer, cgroup_directory};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub const MIB: u64 = 1 << 20;
pub const GPU: &str = "GPU-00000000-aaaa-0000-0000-000000000000";

/// Waits for TERM and ends. Its one process sleeps: a hundred of these cost nothing.
pub const OBEYS: &str = "trap 'exit 0' TERM; echo up; sleep 7000 & wait";

pub struct World {
    /// In the names of all its containers.
    token: String,
    folder: tempfile::TempDir,
    socket: FaultySocket,
    _tokio: tokio::runtime::Runtime,
}

impl World {
    pub fn new() -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let token = format!("clean{}x{n}", std::process::id());
        let mut tokio = tokio::runtime::Builder::new_multi_thread();
        let tokio = tokio.worker_threads(2).enable_all().build().expect("tokio");
        let socket = {
            let _inside = tokio.enter();
            FaultySocket::showing(Some(&format!("plimsoll-test-{token}-")), &[])
        };
        let folder = tempfile::tempdir().expect("tempdir");
        let world = World {
            token,
            folder,
            socket,
            _tokio: tokio,
        };
        world.play(0, &[]);
        world
    }

    /// What to call a container so that this host has it.
    pub fn what(&self, what: &str) -> String {
        format!("{}-{what}", self.token)
    }

    /// Where plimsoll remembers what it started on this host: `XDG_STATE_HOME`.
    pub fn state(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn scenario(&self) -> PathBuf {
        self.folder.path().join("scenario")
    }

    /// From now on the GPU is busy, these processes (pid, MiB) are on it, and `unlisted` MiB are in
    /// use besides.
    pub fn play(&self, unlisted: u64, processes: &[(u32, u64)]) {
        let used = unlisted + processes.iter().map(|(_, mib)| mib).sum::<u64>();
        let mut text = format!(
            "gpu {GPU} 81559 551 NVIDIA H100 80GB HBM3\nat 0 gpu 0 used={used} power=690000 temp=66 util=100\n"
        );
        for (pid, mib) in processes {
            text.push_str(&format!("at 0 proc 0 {pid} {mib}\n"));
        }
        let next = self.scenario().with_extension("next");
        std::fs::write(&next, text).expect("scenario");
        std::fs::rename(next, self.scenario()).expect("scenario");
    }

    /// `plimsoll clean` on this host.
    pub fn command(&self, args: &[&str]) -> Command {
        self.any_command(&[&["clean"], args].concat())
    }

    /// Any command of plimsoll's on this host.
    pub fn any_command(&self, args: &[&str]) -> Command {
        let mut command = plimsoll(args);
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, self.scenario())
            .env("XDG_STATE_HOME", self.folder.path())
            .env("DOCKER_HOST", self.socket.host());
        command
    }

    pub fn clean(&self, args: &[&str]) -> Ended {
        Live::start(self.command(args)).end()
    }

    /// The same; once something has happened, the GPU is as `after` makes it.
    pub fn clean_while(
        &self,
        args: &[&str],
        mut happened: impl FnMut() -> bool,
        after: impl FnOnce(),
    ) -> Ended {
        let mut live = Live::start(self.command(args));
        while live.is_running() && !happened() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if happened() {
            after();
        }
        live.end()
    }

    /// A container that nobody of plimsoll's created.
    pub fn theirs(&self, what: &str) -> TestContainer {
        up(TestContainer::run(&self.what(what), &[], OBEYS))
    }

    /// One as a plimsoll that died left it.
    pub fn ours(&self, what: &str, more: &[&str], script: &str) -> TestContainer {
        let labels = lost_labels();
        let options: Vec<&str> = labels.iter().map(String::as_str).collect();
        up(TestContainer::run(
            &self.what(what),
            &[&options[..], more].concat(),
            script,
        ))
    }

    /// A serving reference engine as a plimsoll that died left it.
    pub fn our_engine(&self, what: &str, args: &[&str]) -> Engine {
        let labels = lost_labels();
        let options: Vec<&str> = labels.iter().map(String::as_str).collect();
        let words = ["serve", "--model", "reference/test", "--kv-pool", "16MiB"];
        let args = [&words[..], args].concat();
        let engine = Engine::run(&self.what(what), &options, REFERENCE_IMAGE, &args);
        engine.wait_for_log("phase=ready");
        engine
    }

    /// `plimsoll run`, killed by SIGKILL once its engine served.
    pub fn killed_run(&self, what: &str) -> Lost {
        let name = format!("plimsoll-test-{}", self.what(what));
        let results = self.folder.path().join("results");
        let mut command = plimsoll(&["run", "--preset=reference", "--bench=none"]);
        command
            .args(["--duration=600s", "--memory-backend=host", "--name", &name])
            .arg("--results-dir")
            .arg(results)
            .env("XDG_STATE_HOME", self.folder.path());
        let mut live = Live::start(command);
        // Its first word: then it is there to be removed, whatever comes.
        let id = wait_for("its container", || {
            assert!(live.is_running(), "{}", live.stderr());
            docker(&["inspect", "-f", "{{.Id}}", &name]).ok()
        });
        let lost = Lost { id, name };
        wait_for("its engine", || {
            let out = Command::new("docker").args(["logs", &lost.id]).output();
            let log = out.expect("docker logs").stdout;
            let noted = self.ledger().contains(&lost.id);
            (noted && String::from_utf8_lossy(&log).contains("phase=ready")).then_some(())
        });
        live.signal(Signal::KILL);
        live.end();
        lost
    }

    /// The containers that plimsoll has written down as started, by their ids.
    pub fn ledger(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.records()).into_iter().flatten();
        let names = files
            .flatten()
            .map(|f| f.file_name().to_string_lossy().into_owned());
        names
            .filter_map(|n| n.strip_suffix(".json").map(str::to_owned))
            .collect()
    }

    fn records(&self) -> PathBuf {
        self.folder.path().join("plimsoll/started")
    }

    /// Rewrites what is written down of a container: its first process started at `started`.
    pub fn backdate(&self, id: &str, started: impl FnOnce(u64) -> u64) {
        let path = self.records().join(format!("{id}.json"));
        let mut record: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("record")).expect("JSON");
        let before = record["started"].as_u64().expect("started");
        record["started"] = started(before).into();
        std::fs::write(&path, record.to_string()).expect("record");
    }
}

/// Labels of plimsoll's whose owner is dead: no number is so high.
pub fn lost_labels() -> [String; 4] {
    let label = || "--label".to_owned();
    [
        label(),
        format!("plimsoll.owner={}:4194303:1", boot_id()),
        label(),
        "plimsoll.run=lost".into(),
    ]
}

/// Once it has said its first word: its traps are set.
fn up(container: TestContainer) -> TestContainer {
    wait_for("its first word", || {
        let log = docker(&["logs", &container.id]).ok()?;
        log.contains("up").then_some(())
    });
    container
}

/// What a killed `plimsoll run` left; removed when dropped.
pub struct Lost {
    pub id: String,
    pub name: String,
}

impl Drop for Lost {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", "-v", &self.id]);
    }
}

/// Host pid of a container's first process.
#[track_caller]
pub fn pid_of(id: &str) -> u32 {
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", id]).expect("inspect");
    pid.parse().expect("pid")
}

/// Which incarnation of a container runs, or what else became of it.
pub fn state(id: &str) -> String {
    let format = "{{.State.Status}} {{.State.StartedAt}} {{.State.Pid}}";
    docker(&["inspect", "-f", format, id]).unwrap_or_else(|_| "gone".into())
}

pub fn is_gone(id: &str) -> bool {
    docker(&["inspect", "-f", "{{.Id}}", id]).is_err()
}

pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

pub fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).expect("one JSON document")
}

/// The one entry about a container or a process.
#[track_caller]
pub fn entry<'a>(list: &'a Value, of: &Value) -> &'a Value {
    let about = |e: &&Value| {
        let of_it = &e["of"]["container"];
        let process = &e["of"]["process"][0];
        of_it == of || process == of || e["of"]["device"] == *of
    };
    let mut found = list.as_array().expect("a list").iter().filter(about);
    let entry = found
        .next()
        .unwrap_or_else(|| panic!("nothing of {of} in {list:#}"));
    assert!(found.next().is_none(), "one of each: {list:#}");
    entry
}

/// What the document decided about it.
#[track_caller]
pub fn verdict(document: &Value, of: impl Into<Value>) -> (String, String) {
    let entry = entry(&document["verdicts"], &of.into());
    let word = |key: &str| entry[key].as_str().expect("a word").to_owned();
    (word("act"), word("rule"))
}

/// What came of it.
#[track_caller]
pub fn outcome(document: &Value, of: impl Into<Value>) -> &Value {
    // An outcome has its verdict in it.
    let of = of.into();
    let all = document["outcomes"].as_array().expect("outcomes");
    let about = |o: &&Value| {
        let it = &o["verdict"]["of"];
        it["container"] == of || it["process"][0] == of
    };
    let found: Vec<&Value> = all.iter().filter(about).collect();
    assert_eq!(found.len(), 1, "{document:#}");
    found[0]
}

/// A list of sentences in one.
pub fn text(sentences: &Value) -> String {
    let all = sentences.as_array().expect("sentences").iter();
    all.map(|s| s.as_str().expect("a sentence"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A process of the host's, ended when dropped.
pub struct Own(pub Child);

impl Own {
    pub fn sleeping() -> Own {
        let mut sleep = Command::new("sleep");
        Own(sleep
            .arg("7300")
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended; collects it.
    pub fn ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process in the cgroup of a container that is gone.
pub struct Escaped {
    pub worker: Own,
    cgroup: PathBuf,
}

impl Escaped {
    /// Lets a worker outlive a container by removing that. `None`: it cannot be moved here.
    pub fn from(id: &str) -> Option<Escaped> {
        let target = MeasuredContainer {
            init_pid: Some(pid_of(id)),
            container_id: id.to_owned(),
            ..MeasuredContainer::default()
        };
        let cgroup = cgroup_directory(&target)?;
        let enter = |worker: &Own| {
            let procs = cgroup.join("cgroup.procs");
            std::fs::write(procs, worker.pid().to_string()).ok()
        };
        let mut worker = Own::sleeping();
        enter(&worker)?;
        // It may complain of a cgroup that is not empty.
        let _ = docker(&["rm", "-f", "-v", id]);
        wait_for("the container's removal", || is_gone(id).then_some(()));
        let inside = |worker: &Own| {
            let of = std::fs::read_to_string(format!("/proc/{}/cgroup", worker.pid()));
            of.unwrap_or_default().contains(id)
        };
        if worker.ended() || !inside(&worker) {
            // Some runtimes end all that is in it.
            std::fs::create_dir_all(&cgroup).ok()?;
            worker = Own::sleeping();
            enter(&worker)?;
        }
        assert!(inside(&worker));
        Some(Escaped { worker, cgroup })
    }
}

impl Drop for Escaped {
    fn drop(&mut self) {
        let _ = self.worker.0.kill();
        let _ = self.worker.0.wait();
        let _ = std::fs::remove_dir(&self.cgroup);
    }
}
