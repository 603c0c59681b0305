//! A Docker daemon of the test's own, which may be ended and begun again at any moment: it shares
//! nothing with the machine's but the kernel.
#![allow(dead_code, missing_docs)]

use crate::common::e2e::{self, REFERENCE_IMAGE, wait_for};
use crate::common::said;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The daemon; it, its containers and its folder are gone when dropped, also by a panic.
pub struct Daemon {
    /// Short: the socket's path has room for a hundred bytes.
    dir: tempfile::TempDir,
    bridge: String,
    options: Vec<String>,
    child: Option<Child>,
}

/// How a daemon goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    /// By SIGTERM: it ends its containers first, unless they are to outlive it.
    Ordered,
    /// By SIGKILL: its containers run on.
    Killed,
}

impl Daemon {
    /// Starts one, with the reference engine's image in it; or why none can be had.
    pub fn start(options: &[&str]) -> Result<Daemon, String> {
        Daemon::start_as(None, options)
    }

    /// Starts one with another daemon's ID, as a copied key file gives it.
    pub fn start_as(other: Option<&Daemon>, options: &[&str]) -> Result<Daemon, String> {
        let dir = tempfile::Builder::new()
            .prefix("plimsoll-d")
            .tempdir()
            .map_err(|e| e.to_string())?;
        let mut daemon = Daemon {
            bridge: bridge()?,
            dir,
            options: options.iter().map(|o| (*o).to_owned()).collect(),
            child: None,
        };
        std::fs::write(daemon.path("daemon.json"), "{}").map_err(|e| e.to_string())?;
        if let Some(other) = other {
            // Docker 20.10 takes its ID from a file of the host, newer ones from this file.
            std::fs::create_dir(daemon.path("data")).map_err(|e| e.to_string())?;
            std::fs::write(daemon.path("data/engine-id"), other.id()?)
                .map_err(|e| e.to_string())?;
        }
        daemon.begin()?;
        daemon.load(REFERENCE_IMAGE)?;
        Ok(daemon)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What `DOCKER_HOST` would be.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    /// What it wrote since it last began.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Begins (again), and waits until it answers.
    pub fn begin(&mut self) -> Result<(), String> {
        // On a busy machine its containerd may not be quick enough for it.
        let mut begun = self.begin_once();
        for _ in 0..3 {
            if begun.is_ok() {
                break;
            }
            self.end(Goes::Killed);
            begun = self.begin_once();
        }
        begun
    }

    fn begin_once(&mut self) -> Result<(), String> {
        let program = e2e::program("dockerd").ok_or("no dockerd (Debian: docker.io)")?;
        let log = std::fs::File::create(self.path("log")).map_err(|e| e.to_string())?;
        let errors = log.try_clone().map_err(|e| e.to_string())?;
        // Whoever ended before may have left it, and then the next one does not begin.
        let _ = std::fs::remove_file(self.path("pid"));
        let child = Command::new(program)
            .arg("--config-file")
            .arg(self.path("daemon.json"))
            .arg("--data-root")
            .arg(self.path("data"))
            .arg("--exec-root")
            .arg(self.path("exec"))
            .arg("--pidfile")
            .arg(self.path("pid"))
            .args(["--host", &self.host(), "--bridge", &self.bridge])
            .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"])
            .arg("--userland-proxy=false")
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("dockerd does not start: {e}"))?;
        self.child = Some(child);
        let answers = wait_for("the test's own daemon", || {
            if self.docker(&["version"]).is_ok() {
                return Some(true);
            }
            let child = self.child.as_mut()?;
            child.try_wait().ok().flatten().map(|_| false)
        });
        match answers {
            true => Ok(()),
            false => Err(format!("dockerd ended: {}", last_lines(&self.log()))),
        }
    }

    /// Lets its containers outlive it from the next beginning on, or not.
    pub fn live_restore(&mut self, keep: bool) {
        self.options.retain(|o| o != "--live-restore");
        if keep {
            self.options.push("--live-restore".into());
        }
    }

    /// Ends it, and waits until it has ended.
    pub fn end(&mut self, how: Goes) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        match how {
            Goes::Killed => drop(child.kill()),
            Goes::Ordered => signal(child.id(), rustix::process::Signal::TERM),
        }
        let _ = child.wait();
        // Its containerd goes with it, a little later, and the next one must not meet it.
        wait_for("the end of its containerd", || {
            ours(self.dir.path(), "containerd").is_empty().then_some(())
        });
    }

    /// `docker`, spoken to this daemon.
    pub fn docker(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new("docker");
        said(command.env("DOCKER_HOST", self.host()).args(args))
    }

    /// Its ID.
    pub fn id(&self) -> Result<String, String> {
        self.docker(&["info", "-f", "{{.ID}}"])
    }

    /// `plimsoll`, spoken to this daemon.
    pub fn plimsoll(&self, args: &[&str]) -> Command {
        let mut command = e2e::plimsoll(args);
        // What it remembers of containers is of this daemon's alone.
        command
            .env("DOCKER_HOST", self.host())
            .env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Copies an image from the machine's daemon.
    pub fn load(&self, image: &str) -> Result<(), String> {
        let file = self.path("image.tar");
        crate::common::docker(&["save", "-o", &file.display().to_string(), image])?;
        self.docker(&["load", "-q", "-i", &file.display().to_string()])?;
        let _ = std::fs::remove_file(file);
        Ok(())
    }

    /// A container's field; empty where there is no container.
    pub fn field(&self, container: &str, format: &str) -> String {
        self.docker(&["inspect", "-f", format, container])
            .unwrap_or_default()
    }

    /// Containers that carry plimsoll's label, in whatever state.
    pub fn labelled(&self) -> Vec<String> {
        let list = ["ps", "-aq", "--no-trunc", "--filter", "label=plimsoll.run"];
        let list = self.docker(&list).expect("containers");
        list.lines().map(str::to_owned).collect()
    }

    /// Removes every container.
    pub fn empty(&self) {
        let list = self.docker(&["ps", "-aq"]).unwrap_or_default();
        for id in list.lines() {
            let _ = self.docker(&["rm", "-f", "-v", id]);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // With the daemon gone a frozen or a running container would be nobody's.
        if self.child.is_none() && self.path("docker.sock").exists() {
            let _ = self.begin();
        }
        if self.child.is_some() {
            self.empty();
        }
        self.end(Goes::Ordered);
        for pid in ours(self.dir.path(), "") {
            signal(pid, rustix::process::Signal::KILL);
        }
        let dir = self.dir.path().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below = mounts.lines().filter_map(|l| l.split(' ').nth(1));
        let mut below: Vec<&str> = below.filter(|m| m.starts_with(&dir)).collect();
        below.reverse();
        for mount in below {
            let _ = quiet(Command::new("umount").args(["-l", mount]));
        }
        let _ = quiet(Command::new("ip").args(["link", "delete", &self.bridge]));
    }
}

/// A bridge that no other test has, with addresses of its own.
fn bridge() -> Result<String, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A host has few networks in this range, and tests that run side by side have other numbers.
    for _ in 0..200 {
        let number = std::process::id().wrapping_mul(7) + NEXT.fetch_add(1, Ordering::Relaxed);
        let net = number % 4000;
        let name = format!("plimsoll-t{net}");
        let address = format!("10.{}.{}.1/24", 230 + net / 250, net % 250);
        let made = quiet(Command::new("ip").args(["link", "add", &name, "type", "bridge"]))?;
        if !made {
            continue;
        }
        let up = quiet(Command::new("ip").args(["address", "add", &address, "dev", &name]))?
            && quiet(Command::new("ip").args(["link", "set", &name, "up"]))?;
        if up {
            return Ok(name);
        }
        let _ = quiet(Command::new("ip").args(["link", "delete", &name]));
    }
    Err("no network bridge can be made".into())
}

fn quiet(command: &mut Command) -> Result<bool, String> {
    let program = command.get_program().to_owned();
    let ran = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ran.map(|status| status.success())
        .map_err(|e| format!("no {}: {e}", program.to_string_lossy()))
}

/// Processes whose command begins with `program` and names a file in `dir`.
fn ours(dir: &Path, program: &str) -> Vec<u32> {
    let dir = format!("{}/", dir.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let name = line.split('\0').next().unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            *pid != std::process::id()
                && line.contains(&dir)
                && (program.is_empty() || name == program)
        })
        .collect()
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
