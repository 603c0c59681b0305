//! Leftovers of a plimsoll that died: containers with our labels without a living owner, and
//! commands in other containers with our mark.

use super::process::HostProcess;
use super::processes::{HostView, Tracker, start_time};
use super::{OWNER_LABEL, RUN_VARIABLE, Runtime};
use crate::capture::ContainerFacts;
use rustix::process::{Pid, Signal, test_kill_process};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time for processes to end after a signal.
const GRACE: Duration = Duration::from_secs(5);
/// Timeout of the daemon's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Whether a container's owner process is alive, from the container's label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// It is alive.
    Alive,
    /// It has ended, or this host was rebooted since.
    Dead,
    /// The label is missing or invalid, or the owner may be on another host.
    #[default]
    Unknown,
}

/// State of a container's owner, from the label that `launch::owner` writes.
pub fn owner_of(facts: &ContainerFacts) -> Owner {
    let label = facts.labels.get(OWNER_LABEL);
    label.map_or(Owner::Unknown, |label| owner_named(label))
}

/// State of the owner named in a label or mark.
pub fn owner_named(label: &str) -> Owner {
    let here = LocalHost {
        boot: boot_id(),
        namespace: own_namespace(),
        machine: machine_id(),
    };
    owner_alive(label, &here, start_time, is_hidden)
}

/// Id of the host's current boot; empty if it cannot be read.
pub fn boot_id() -> String {
    crate::host::boot_id().unwrap_or_default()
}

/// Identifies this host: a digest of its machine id, 12 hex digits; `None` without a machine id.
pub(super) fn machine_id() -> Option<String> {
    machine_of(&std::fs::read_to_string("/etc/machine-id").ok()?)
}

fn machine_of(id: &str) -> Option<String> {
    let id = id.trim();
    // Before an image's first boot it is `uninitialized` or empty.
    if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    // The machine id itself is confidential.
    let digest = Sha256::digest(format!("plimsoll owner {id}"));
    Some(digest.iter().take(6).map(|b| format!("{b:02x}")).collect())
}

/// Inode of the host's pid namespace: a constant of the kernel (`PROC_PID_INIT_INO`).
const HOST_NAMESPACE: &str = "4026531836";

/// Number of our pid namespace; `None` for the host's.
pub(super) fn own_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let link = link.to_string_lossy();
    let number = link.strip_prefix("pid:[")?.strip_suffix(']')?;
    (number != HOST_NAMESPACE).then(|| number.to_owned())
}

/// Whether a process exists although `/proc` hides it (mounted with `hidepid`).
fn is_hidden(pid: u32) -> bool {
    let shown = std::fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    !shown && pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Identity of this host and boot, against which owners are checked.
struct LocalHost {
    boot: String,
    namespace: Option<String>,
    machine: Option<String>,
}

fn owner_alive(
    label: &str,
    here: &LocalHost,
    started: impl Fn(u32) -> Option<u64>,
    hidden: impl Fn(u32) -> bool,
) -> Owner {
    let (label, machine) = match label.rsplit_once('@') {
        Some((label, machine)) => (label, Some(machine)),
        None => (label, None),
    };
    let parts: Vec<&str> = label.split(':').collect();
    let (theirs, pid, start, namespace) = match parts[..] {
        [boot, pid, start] => (boot, pid, start, None),
        [boot, pid, start, namespace] => (boot, pid, start, Some(namespace)),
        _ => return Owner::Unknown,
    };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else {
        return Owner::Unknown;
    };
    // In another pid namespace the pid means another process, or none.
    if here.boot.is_empty() || theirs.is_empty() || namespace != here.namespace.as_deref() {
        return Owner::Unknown;
    }
    // Another boot id is an earlier boot of this host, or another host's current one.
    let machines = (machine, here.machine.as_deref());
    if theirs != here.boot {
        return match machines {
            (Some(theirs), Some(here)) if theirs == here => Owner::Dead,
            _ => Owner::Unknown,
        };
    }
    let elsewhere = matches!(machines, (Some(theirs), Some(here)) if theirs != here);
    match started(pid) {
        Some(since) if since == start => Owner::Alive,
        _ if elsewhere => Owner::Unknown,
        None if hidden(pid) => Owner::Unknown,
        _ => Owner::Dead,
    }
}

/// Run ids in a container's own environment, set by its user or its first process. Commands in it
/// inherit that mark, so it does not identify our commands.
pub fn own_runs(facts: &ContainerFacts) -> BTreeSet<String> {
    let given = facts.env.get(RUN_VARIABLE).cloned();
    let first = facts.state.pid.and_then(HostProcess::read);
    let has = first.and_then(|p| p.marks?.run);
    given.into_iter().chain(has).collect()
}

/// Prefix of the run folders in a container.
const FOLDER: &str = "/tmp/plimsoll-";

/// Folder inside a container for a run's files.
pub fn run_folder(run_id: &str) -> String {
    format!("{FOLDER}{run_id}")
}

/// Pid of the process that made a run id (`<milliseconds>-<pid>`, both hexadecimal); `None` for an
/// invalid id.
fn maker(run_id: &str) -> Option<u32> {
    let (time, pid) = run_id.split_once('-')?;
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    (hex(time) && hex(pid)).then(|| u32::from_str_radix(pid, 16).ok())?
}

/// Runs with a folder in a container's `/tmp`, as its first process sees it, but without a living
/// process.
fn dead_folders(init: u32) -> Vec<String> {
    let names = std::fs::read_dir(format!("/proc/{init}/root/tmp"));
    let names = names.into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.to_owned());
    let prefix = FOLDER.trim_start_matches("/tmp/");
    names
        .filter_map(name)
        .filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned()))
        .filter(|run| maker(run).is_some_and(|pid| start_time(pid).is_none() && !is_hidden(pid)))
        .collect()
}

impl Runtime {
    /// Ends leftover processes of dead plimsolls in a container that is not ours, and removes their
    /// run folders. The caller must hold the container's lock. Returns how many processes were
    /// ended.
    pub async fn clear_dead(&self, facts: &ContainerFacts) -> usize {
        let (there, left) = self.end_orphans(facts).await;
        self.remove_dead_folders(facts).await;
        there.saturating_sub(left)
    }

    /// Removes run folders left by killed runs in a container. The caller must hold its lock, and
    /// the host must show the container's files.
    pub async fn remove_dead_folders(&self, facts: &ContainerFacts) {
        let init = self.local_pid(facts);
        for run_id in init.map_or_else(Vec::new, dead_folders) {
            self.remove_run_folder(&facts.id, &run_id).await;
        }
    }

    /// Removes the folder of a run in a container; best effort.
    pub async fn remove_run_folder(&self, id: &str, run_id: &str) {
        if maker(run_id).is_some() {
            self.remove_dir(id, &run_folder(run_id)).await;
        }
    }

    /// Whether the daemon answers now.
    pub async fn daemon_answers(&self) -> bool {
        let ping = async { self.daemon()?.ping().await };
        matches!(tokio::time::timeout(PATIENCE, ping).await, Ok(Ok(_)))
    }

    /// Ends processes started by this plimsoll, or by a dead one, in a container that is not ours.
    /// The caller must hold its lock; a plimsoll in another pid namespace has another lock and may
    /// live. Returns how many processes there were, and how many remain.
    pub async fn end_orphans(&self, facts: &ContainerFacts) -> (usize, usize) {
        let view = self.host_view(facts);
        let marks = (view.iter().flat_map(HostView::list_pids))
            .filter(|pid| Some(*pid) != facts.state.pid)
            .filter_map(|pid| HostProcess::read(pid)?.marks);
        let me = super::launch::owner_label();
        let over = |owner: &String| *owner == me || owner_named(owner) == Owner::Dead;
        let runs: BTreeSet<String> = marks
            .filter(|m| m.owner.as_ref().is_some_and(over))
            .filter_map(|m| m.run)
            .collect();
        let mut counts = (0, 0);
        for run_id in runs {
            let (there, left) = self.end_marked(facts, &run_id).await;
            counts = (counts.0 + there, counts.1 + left);
        }
        counts
    }

    /// Ends a run's processes in a container that is not ours: those with its mark in their
    /// environment, and their descendants. Returns how many there were, and how many remain. Does
    /// nothing if the host does not show the container, or if the mark is the container's own.
    pub async fn end_marked(&self, facts: &ContainerFacts, run_id: &str) -> (usize, usize) {
        // Nothing is ended in what is named by its process.
        let Some(view) = self.host_view(facts).filter(|_| self.has_daemon()) else {
            return (0, 0);
        };
        if own_runs(facts).contains(run_id) {
            return (0, 0);
        }
        let mut tracker = Tracker::of_mark(view, &format!("{RUN_VARIABLE}={run_id}"));
        let there = tracker.observe_processes().len();
        for signal in [Signal::TERM, Signal::KILL] {
            let now = tracker.observe_processes();
            if now.is_empty() {
                break;
            }
            tracker.send_signal(&now, signal);
            let until = tokio::time::Instant::now() + GRACE;
            while !tracker.observe_processes().is_empty() && tokio::time::Instant::now() < until {
                tokio::time::sleep(LOOK).await;
            }
        }
        (there, tracker.observe_processes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(boot: &str, namespace: Option<&str>) -> LocalHost {
        LocalHost {
            boot: boot.into(),
            namespace: namespace.map(str::to_owned),
            machine: Some("m1".into()),
        }
    }

    #[test]
    fn an_owner_is_its_boot_its_pid_and_its_start() {
        let now = |pid: u32| (pid == 7).then_some(100);
        let alive = |label: &str| owner_alive(label, &here("boot", None), now, |_| false);
        assert_eq!(alive("boot:7:100"), Owner::Alive);
        // The number was used again, the process ended, the host was booted.
        for label in ["boot:7:99", "boot:8:100", "boot:8:100@m1", "other:7:100@m1"] {
            assert_eq!(alive(label), Owner::Dead, "{label}");
        }
        // A label without certainty never makes a container an orphan.
        for label in [
            "",
            "boot",
            "boot:7",
            "boot:x:100",
            "boot:7:",
            ":7:99",
            "a:7:1:2",
            "other:7:100",
            "other:7:100@",
            "other:7@m1",
        ] {
            assert_eq!(alive(label), Owner::Unknown, "{label}");
        }
        let nowhere = owner_alive("boot:7:99", &here("", None), now, |_| false);
        assert_eq!(nowhere, Owner::Unknown);
    }

    #[test]
    fn only_an_id_of_a_run_becomes_a_path() {
        assert_eq!(maker("19a1b2c3d4e-1f"), Some(0x1f));
        for text in [
            "",
            "-",
            "a-",
            "-b",
            "sweep-0123456789ab",
            "a-b/../../etc",
            "a-b-c",
            "a_b",
        ] {
            assert_eq!(maker(text), None, "{text}");
        }
        assert_eq!(run_folder("a-b"), "/tmp/plimsoll-a-b");
    }

    #[test]
    fn an_owner_that_cannot_be_seen_from_here_is_not_dead() {
        let absent = |_: u32| None;
        let look = |label: &str, here: &LocalHost| owner_alive(label, here, absent, |pid| pid == 9);
        // Its number is one of another pid namespace, or `/proc` hides it.
        assert_eq!(look("boot:7:100:402", &here("boot", None)), Owner::Unknown);
        assert_eq!(look("boot:7:100", &here("boot", Some("5"))), Owner::Unknown);
        assert_eq!(look("boot:9:100", &here("boot", None)), Owner::Unknown);
        assert_eq!(look("boot:7:100:5", &here("boot", Some("5"))), Owner::Dead);
    }

    #[test]
    fn another_hosts_owner_is_not_dead() {
        let now = |pid: u32| (pid == 7).then_some(100);
        let look = |label: &str, machine: Option<&str>| {
            let here = LocalHost {
                machine: machine.map(str::to_owned),
                ..here("boot", None)
            };
            owner_alive(label, &here, now, |_| false)
        };
        // Another boot: of which host?
        assert_eq!(look("other:7:100@m2", Some("m1")), Owner::Unknown);
        assert_eq!(look("other:7:100", Some("m1")), Owner::Unknown);
        assert_eq!(look("other:7:100@m1", None), Owner::Unknown);
        assert_eq!(look("other:7:100", None), Owner::Unknown);
        assert_eq!(look("other:7:100@m1", Some("m1")), Owner::Dead);
        // The same boot is of one host, whatever a container's own file has.
        assert_eq!(look("boot:7:100@m2", Some("m1")), Owner::Alive);
        assert_eq!(look("boot:8:100@m2", Some("m1")), Owner::Unknown);
        for machine in [None, Some("m1")] {
            assert_eq!(look("boot:8:100", machine), Owner::Dead);
            assert_eq!(look("boot:8:100@m1", machine), Owner::Dead);
        }
    }

    #[test]
    fn a_machine_is_identified_by_a_digest_of_its_id() {
        let (a, b) = ("a".repeat(32), "b".repeat(32));
        let digest = machine_of(&format!("{a}\n")).expect("an id");
        assert_eq!(digest.len(), 12);
        assert!(!a.contains(&digest));
        assert_ne!(machine_of(&b), Some(digest));
        for none in ["", "\n", "uninitialized\n", "aaaa"] {
            assert_eq!(machine_of(none), None, "{none}");
        }
    }

    #[test]
    fn this_process_lives() {
        assert_eq!(
            owner_named(&crate::container::launch::owner_label()),
            Owner::Alive
        );
    }
}
