//! Test containers on the real daemon: a tiny image, unique names, and removal whatever happens.
#![allow(dead_code, missing_docs, clippy::print_stdout, clippy::print_stderr)]

pub mod browser;
pub mod captures;
pub mod cleaning;
pub mod cluster;
pub mod daemon;
pub mod docs;
#[macro_use]
pub mod e2e;
pub mod faults;
pub mod hub;
pub mod jq;
pub mod pages;
pub mod random;
pub mod recordings;
pub mod reports;
pub mod scripted;
pub mod secrets;
pub mod skip;
pub mod stage;
pub mod sweeps;
pub mod tiny;
pub mod watched;
pub mod wire;

use plimsoll::container::Runtime;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The image that the tests build when it is absent.
const TEST_IMAGE: &str = "plimsoll/test-busybox:dev";

/// An image that does as well where there is no busybox to build one from.
const OTHER_IMAGE: &str = "plimsoll-e2e/idle:latest";

/// Runs `docker` and returns what it says, or its complaint.
pub fn docker(args: &[&str]) -> Result<String, String> {
    said(Command::new("docker").args(args))
}

/// What a client of Docker's says, or its complaint.
pub fn said(client: &mut Command) -> Result<String, String> {
    let out = client
        .output()
        .map_err(|e| format!("no docker client: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
    }
}

/// Where the daemon listens that `docker` speaks to.
pub fn socket() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .and_then(|h| h.strip_prefix("unix://").map(str::to_owned))
        .unwrap_or_else(|| "/var/run/docker.sock".into())
}

/// Whether it is podman that answers as Docker does.
pub fn podman() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let format = "{{range .Server.Components}}{{.Name}} {{end}}";
        docker(&["version", "--format", format]).is_ok_and(|names| names.contains("Podman"))
    })
}

/// Whether the daemon is rootless: its containers are in a network that this host does not reach, but for published ports.
pub fn rootless() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        docker(&["info", "--format", "{{.SecurityOptions}}"]).is_ok_and(|o| o.contains("rootless"))
    })
}

/// Whether the daemon tells in whole seconds when a line of a log was written: then steps of a start
/// are timed coarsely, and its parts are of low confidence or unknown.
pub fn whole_seconds() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let format = "{{.Server.APIVersion}}";
        // Podman speaks more than this where it tells nanoseconds.
        podman() && docker(&["version", "--format", format]).is_ok_and(|v| v == "1.41")
    })
}

/// Host pid and command line of each process in a container; empty where there is none.
pub fn top(container: &str) -> Vec<(u32, String)> {
    // Podman runs the image's own `ps`, unless it is told columns by its own names.
    let columns: &[&str] = match podman() {
        true => &["hpid,args"],
        false => &["-eo", "pid,args"],
    };
    let table = docker(&[&["top", container], columns].concat()).unwrap_or_default();
    table
        .lines()
        .skip(1)
        .filter_map(|l| l.trim().split_once(char::is_whitespace))
        .filter_map(|(pid, args)| Some((pid.parse().ok()?, args.trim().to_owned())))
        .collect()
}

pub fn has_image(image: &str) -> bool {
    docker(&["image", "inspect", image]).is_ok()
}

/// A busybox image, or why there is none.
pub fn image() -> Result<String, String> {
    static IMAGE: OnceLock<Result<String, String>> = OnceLock::new();
    IMAGE.get_or_init(find_image).clone()
}

fn find_image() -> Result<String, String> {
    docker(&["version", "--format", "{{.Server.Version}}"])
        .map_err(|e| format!("no Docker daemon: {e}"))?;
    if has_image(TEST_IMAGE) {
        return Ok(TEST_IMAGE.to_owned());
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|p| Path::new(p).exists());
    if let Some(busybox) = busybox {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        std::fs::copy(busybox, dir.path().join("busybox")).map_err(|e| e.to_string())?;
        let file =
            "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nCMD [\"/bin/sh\"]\n";
        std::fs::write(dir.path().join("Dockerfile"), file).map_err(|e| e.to_string())?;
        docker(&[
            "build",
            "-q",
            "-t",
            TEST_IMAGE,
            &dir.path().to_string_lossy(),
        ])?;
        // A dynamically linked busybox does not run from scratch.
        if docker(&[
            "run",
            "--rm",
            "--label",
            "plimsoll.test=1",
            TEST_IMAGE,
            "sh",
            "-c",
            "true",
        ])
        .is_ok()
        {
            return Ok(TEST_IMAGE.to_owned());
        }
        let _ = docker(&["rmi", TEST_IMAGE]);
    }
    match has_image(OTHER_IMAGE) {
        true => Ok(OTHER_IMAGE.to_owned()),
        false => {
            Err("no static busybox to build a test image from (Debian: busybox-static)".to_owned())
        }
    }
}

/// The runtime, or `None` after saying why the test is skipped.
pub async fn runtime() -> Option<Runtime> {
    if !e2e::have(&this_test(), &[e2e::Need::Docker]) {
        return None;
    }
    Some(
        Runtime::connect()
            .await
            .expect("the daemon that `docker` speaks to"),
    )
}

/// Name of the test that runs: its thread is called so.
pub fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

pub fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "plimsoll-test-{what}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A container of the test's own; removed when dropped, also by a panic.
pub struct TestContainer {
    pub id: String,
    pub name: String,
}

impl TestContainer {
    /// Starts `sh -c script`, as process 1 without an init.
    pub fn run(what: &str, options: &[&str], script: &str) -> Self {
        Self::with("run", what, options, script)
    }

    pub fn create(what: &str, options: &[&str], script: &str) -> Self {
        Self::with("create", what, options, script)
    }

    /// A container that only waits.
    pub fn idle(what: &str) -> Self {
        Self::run(
            what,
            &[],
            "trap 'exit 0' TERM; while true; do sleep 0.2; done",
        )
    }

    fn with(verb: &str, what: &str, options: &[&str], script: &str) -> Self {
        Self::of(&image().expect("image"), verb, what, options, script)
    }

    /// A container of another image that has `/bin/sh`.
    pub fn of(image: &str, verb: &str, what: &str, options: &[&str], script: &str) -> Self {
        let name = unique(what);
        let mut args = vec![verb];
        if verb == "run" {
            args.push("-d");
        }
        args.extend([
            "--name",
            &name,
            "--label",
            "plimsoll.test=1",
            "--stop-timeout",
            "1",
            "--entrypoint",
            "/bin/sh",
        ]);
        args.extend(options);
        args.extend([image, "-c", script]);
        let id = docker(&args).expect("test container");
        TestContainer { id, name }
    }

    /// Command lines of the processes in the container, with their host pids.
    pub fn processes(&self) -> Vec<(u32, String)> {
        top(&self.id)
    }

    /// Processes whose command line contains `part`.
    pub fn processes_with(&self, part: &str) -> Vec<(u32, String)> {
        self.processes()
            .into_iter()
            .filter(|(_, args)| args.contains(part) && !args.contains("defunct"))
            .collect()
    }
}

impl Drop for TestContainer {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", "-v", &self.id]);
    }
}
