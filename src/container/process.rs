//! One process as shown by this host's `/proc`, and its uninterruptible threads.

use super::processes::controller_rank;
use super::{EXEC_VARIABLE, OWNER_VARIABLE, RUN_VARIABLE};
use crate::host::processes::{ProcessId, Stat, all_pids, numbers_in, parse_cgroup, parse_stat};
use crate::redact::Secrets;
use std::fs;
use std::path::Path;

/// `PF_KTHREAD`: a kernel thread.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Maximum length of a command line, bytes.
const LONGEST_COMMAND: usize = 4096;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    /// Pid and start time.
    pub id: ProcessId,
    /// Its name (`comm`).
    pub name: String,
    /// Its redacted command line; empty for zombies and kernel threads.
    pub command: String,
    /// Effective user id.
    pub uid: Option<u32>,
    /// Parent's host pid; `None` without a parent here.
    pub parent: Option<u32>,
    /// The kernel's letter: `R`, `S`, `D`, `Z`, …
    pub state: char,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// `/proc/PID/cgroup`; empty without permission.
    pub cgroups: String,
    /// Our marks in its environment; `None` if that may not be read.
    pub marks: Option<Marks>,
}

/// The environment variables that plimsoll gives its execs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Run id.
    pub run: Option<String>,
    /// Mark of one exec.
    pub exec: Option<String>,
    /// Its owner, in the form of the containers' label.
    pub owner: Option<String>,
}

/// A thread in state D.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uninterruptible {
    /// Thread id and start time.
    pub id: ProcessId,
    /// The kernel function in which it waits, if readable.
    pub waits_in: Option<String>,
    /// Its context switches so far: an unchanged count means the same wait.
    pub switches: Option<u64>,
}

impl HostProcess {
    /// Reads a process; `None` if it is gone or its pid was reused meanwhile.
    pub fn read(pid: u32) -> Option<HostProcess> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = parse_stat(pid, &text)?;
        let file = |name: &str| fs::read(format!("/proc/{pid}/{name}"));
        let cgroups = file("cgroup").unwrap_or_default();
        let status = file("status").unwrap_or_default();
        let process = HostProcess {
            id: stat.id,
            name: name_in(&text),
            command: command_text(&file("cmdline").unwrap_or_default()),
            uid: effective_uid(&String::from_utf8_lossy(&status)),
            parent: (stat.parent > 0).then_some(stat.parent),
            state: char::from(stat.state),
            kernel: stat.flags & KERNEL_THREAD != 0,
            cgroups: String::from_utf8_lossy(&cgroups).into_owned(),
            marks: file("environ").ok().map(|environ| marks(&environ)),
        };
        let still = Stat::read(pid)?;
        (still.id == process.id).then_some(process)
    }

    /// Path of its cgroup, in the hierarchy with the most containers in the path.
    pub fn cgroup_path(&self) -> Option<&str> {
        let lines = parse_cgroup(&self.cgroups);
        let best = lines.min_by_key(|l| (l.path == "/", controller_rank(l.controllers)));
        best.map(|l| l.path)
    }

    /// Its threads that nothing can interrupt.
    pub fn uninterruptible_threads(&self) -> Vec<Uninterruptible> {
        let tasks = format!("/proc/{}/task", self.id.pid);
        let mut found: Vec<Uninterruptible> = numbers_in(Path::new(&tasks))
            .filter_map(|tid| {
                let folder = format!("{tasks}/{tid}");
                let stat = fs::read(format!("{folder}/stat")).ok()?;
                let stat = parse_stat(tid, &stat)?;
                if stat.state != b'D' {
                    return None;
                }
                let text = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
                Some(Uninterruptible {
                    id: stat.id,
                    waits_in: text("wchan").and_then(|t| kernel_function(&t)),
                    switches: text("status").and_then(|t| switches(&t)),
                })
            })
            .collect();
        found.sort_by_key(|t| t.id);
        found
    }
}

/// Pids of the zombies on this host.
pub fn list_zombies() -> Vec<u32> {
    let stats = all_pids().filter_map(Stat::read);
    stats
        .filter(|s| s.state == b'Z')
        .map(|s| s.id.pid)
        .collect()
}

/// This process and those above it.
pub fn own_ancestors() -> Vec<u32> {
    let mut line = vec![std::process::id()];
    while let Some(stat) = line.last().and_then(|pid| Stat::read(*pid)) {
        if stat.parent == 0 || line.contains(&stat.parent) {
            break;
        }
        line.push(stat.parent);
    }
    line
}

/// The text between the outermost parentheses.
fn name_in(stat: &[u8]) -> String {
    let from = memchr::memchr(b'(', stat).map_or(0, |i| i + 1);
    let to = memchr::memrchr(b')', stat).unwrap_or(from).max(from);
    String::from_utf8_lossy(&stat[from..to]).into_owned()
}

/// A command line for people, without the secrets in it.
fn command_text(cmdline: &[u8]) -> String {
    let cut = &cmdline[..cmdline.len().min(LONGEST_COMMAND)];
    let argv: Vec<String> = cut
        .split(|b| *b == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let secrets = Secrets::gather_from([], &argv);
    let words = secrets.redactor().redact_argv(&argv);
    let joined = words.join(" ");
    // A process may write anything there, also what a terminal would obey.
    let plain: String = joined
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    plain.trim().to_owned()
}

fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn marks(environ: &[u8]) -> Marks {
    let value = |name: &str| {
        environ.split(|b| *b == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        })
    };
    Marks {
        run: value(RUN_VARIABLE),
        exec: value(EXEC_VARIABLE),
        owner: value(OWNER_VARIABLE),
    }
}

/// `0` and `-` stand for nothing.
fn kernel_function(wchan: &str) -> Option<String> {
    let word = wchan.trim();
    (!matches!(word, "" | "0" | "-")).then(|| word.to_owned())
}

fn switches(status: &str) -> Option<u64> {
    let count = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(count("voluntary_ctxt_switches:")? + count("nonvoluntary_ctxt_switches:")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_seen_with_all_that_is_its_own() {
        let me = HostProcess::read(std::process::id()).expect("this process");
        assert!(matches!(me.state, 'R' | 'S' | 'D'), "{}", me.state);
        assert_eq!(me.uid, Some(rustix::process::geteuid().as_raw()));
        assert!(!me.kernel && !me.name.is_empty() && !me.command.is_empty());
        assert!(me.cgroups.contains(':'), "{}", me.cgroups);
        assert!(me.marks.is_some(), "our own environment");
        let line = own_ancestors();
        assert_eq!(line.first(), Some(&std::process::id()));
        assert_eq!(line.get(1).copied(), me.parent);
    }

    #[test]
    fn a_zombie_is_a_process() {
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let process = loop {
            let process = HostProcess::read(child.id()).expect("there until it is waited for");
            if process.state == 'Z' {
                break process;
            }
            std::thread::yield_now();
        };
        assert_eq!(process.parent, Some(std::process::id()));
        assert_eq!(process.command, "");
        assert!(list_zombies().contains(&child.id()));
        child.wait().unwrap();
        assert_eq!(HostProcess::read(child.id()), None);
    }

    #[test]
    fn marks_are_read_from_the_environment() {
        let environ = b"A=1\0PLIMSOLL_RUN=r1\0PLIMSOLL_RUNNER=x\0PLIMSOLL_OWNER=b:7:9\0";
        let found = marks(environ);
        assert_eq!(found.run.as_deref(), Some("r1"));
        assert_eq!(found.owner.as_deref(), Some("b:7:9"));
        assert_eq!(found.exec, None);
        assert_eq!(marks(b""), Marks::default());
    }

    #[test]
    fn a_command_line_is_shown_without_its_secrets() {
        let shown = command_text(b"vllm\0serve\0m\0--api-key\0sesame123\0\x1b[2J\0");
        assert!(shown.starts_with("vllm serve m --api-key "), "{shown}");
        assert!(
            !shown.contains("sesame123") && !shown.contains('\x1b'),
            "{shown}"
        );
    }

    #[test]
    fn the_cgroup_is_the_one_that_names_a_container() {
        let mut process = HostProcess::read(std::process::id()).expect("this process");
        for (text, path) in [
            (
                "9:name=systemd:/s\n4:memory:/docker/x\n0::/\n",
                Some("/docker/x"),
            ),
            ("9:name=systemd:/s\n4:memory:/\n0::/\n", Some("/s")),
            ("0::/system.slice/a.scope\n", Some("/system.slice/a.scope")),
            ("0::/\n", Some("/")),
            ("", None),
        ] {
            process.cgroups = text.to_owned();
            assert_eq!(process.cgroup_path(), path, "{text}");
        }
    }

    #[test]
    fn what_the_files_say_is_read() {
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n";
        assert_eq!(effective_uid(status), Some(1001));
        assert_eq!(switches(status), Some(12));
        assert_eq!((effective_uid(""), switches("")), (None, None));
        assert_eq!(
            kernel_function("nfs_wait_bit_killable"),
            Some("nfs_wait_bit_killable".into())
        );
        assert_eq!((kernel_function("0"), kernel_function("")), (None, None));
        assert_eq!(name_in(b"7 (a) (b)) S 1"), "a) (b)");
        assert_eq!(name_in(b")("), "");
    }
}
