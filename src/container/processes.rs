//! The processes of one exec, found and ended from the host.
//!
//! Docker can start a process in a container but not end it, and dropping the stream ends nothing.
//! So we look at the container's cgroup through the host's `/proc` and signal what belongs to our
//! exec. What was there before the exec began is never touched.
//!
//! A process belongs to the exec when it is in the container's cgroup, was not there before, and
//! 1. is in the exec's session (the runtime calls `setsid` for an exec, and children inherit it) or
//!    in one that a process of the exec was seen in, or
//! 2. carries the exec's mark in its environment (a process may have overwritten that), or
//! 3. descends from one that belongs; it is remembered from then on, so a grandchild that left the
//!    session is found even after its parent is gone.
//!
//! What this misses: a process that leaves the session, clears its environment and loses its
//! parent, all between two looks.

use crate::host::processes::{
    ProcessId, Stat, all_pids, parse_cgroup, pids_in, pids_of, read_cgroups, tree_members,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// When a process of this host started, clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    // One that has ended and was not reaped yet owns nothing any more.
    Stat::read(pid).filter(Stat::is_alive).map(|s| s.id.started)
}

/// Order in which cgroup hierarchies are trusted to hold every process of a container.
pub(super) fn controller_rank(controllers: &str) -> u8 {
    match controllers {
        "memory" => 0,
        "pids" => 1,
        "" => 2,
        _ => 3,
    }
}

/// The container's own cgroup in `path`: up to the component that carries its id, so that a
/// process in a child cgroup (an init's `…/init`) leads to the whole container. `None` when no
/// component does: then this is not that container.
pub fn container_cgroup<'a>(path: &'a str, container_id: &str) -> Option<&'a str> {
    // A shorter one is the name of a service or slice, not of a container.
    let at = match container_id.len() {
        0 => return None,
        1..12 => path
            .find(&format!("/{container_id}"))
            .map(|slash| slash + 1)?,
        _ => path.find(container_id)?,
    };
    let rest = &path[at + container_id.len()..];
    let alone = rest.strip_prefix(".scope").unwrap_or(rest);
    if container_id.len() < 12 && !(alone.is_empty() || alone.starts_with('/')) {
        return None;
    }
    let end = path[at..].find('/').map_or(path.len(), |i| at + i);
    Some(&path[..end])
}

/// A container's processes as the host's `/proc` shows them.
#[derive(Debug, Clone)]
pub struct HostView {
    /// Whether only the first process and its descendants are meant: their cgroup is not theirs alone.
    tree: bool,
    /// Controllers of the hierarchy that we read; empty for v2.
    controllers: String,
    /// Path of the container's cgroup in that hierarchy.
    path: String,
    /// Where that cgroup is mounted; `None`: every process' cgroup line is read instead.
    dir: Option<PathBuf>,
    init: u32,
}

impl HostView {
    /// Looks for the container's cgroup by its process 1 (host pid). `None` when this host's `/proc`
    /// does not show the container: a remote daemon, a machine of its own, another pid namespace.
    pub fn open(init: u32, container_id: &str) -> Option<HostView> {
        if init <= 1 {
            return None;
        }
        if container_id.is_empty() {
            return Some(HostView {
                tree: true,
                controllers: String::new(),
                path: String::new(),
                dir: None,
                init,
            });
        }
        let text = fs::read_to_string(format!("/proc/{init}/cgroup")).ok()?;
        // With v1, membership in these is not changed by what runs in the container.
        let mut lines: Vec<_> = parse_cgroup(&text)
            .filter_map(|l| Some((l.controllers, container_cgroup(l.path, container_id)?)))
            .collect();
        lines.sort_by_key(|(c, _)| controller_rank(c));
        let (controllers, path) = *lines.first()?;
        let relative = path.trim_start_matches('/');
        let first = controllers
            .trim_start_matches("name=")
            .split(',')
            .next()
            .unwrap_or_default();
        let dir = [
            format!("/sys/fs/cgroup/{controllers}"),
            format!("/sys/fs/cgroup/{first}"),
            "/sys/fs/cgroup/unified".into(),
            "/sys/fs/cgroup".into(),
        ]
        .iter()
        .map(|mount| Path::new(mount).join(relative))
        .find(|dir| pids_of(dir).contains(&init));
        Some(HostView {
            tree: false,
            controllers: controllers.to_owned(),
            path: path.to_owned(),
            dir,
            init,
        })
    }

    /// Host pids of the container's processes.
    pub fn list_pids(&self) -> impl Iterator<Item = u32> {
        self.read_processes().into_iter().map(|p| p.id.pid)
    }

    /// The container's processes, each for ever distinct.
    pub fn distinct_processes(&self) -> impl Iterator<Item = ProcessId> {
        self.read_processes().into_iter().map(|p| p.id)
    }

    /// All processes of the container, zombies left out.
    fn read_processes(&self) -> Vec<Stat> {
        let stats = self.member_pids().into_iter().filter_map(Stat::read);
        stats.filter(Stat::is_alive).collect()
    }

    /// Host pids of the container's processes as its cgroup lists them. Zombies are not certain to
    /// be among them.
    pub fn member_pids(&self) -> Vec<u32> {
        match &self.dir {
            _ if self.tree => tree_members(Path::new("/proc"), self.init),
            Some(dir) => pids_in(dir),
            None => all_pids().filter(|pid| self.holds_pid(*pid)).collect(),
        }
    }

    /// Whether the process is in the container's cgroup or a child of it.
    fn holds_pid(&self, pid: u32) -> bool {
        parse_cgroup(&read_cgroups(pid))
            .find(|l| l.controllers == self.controllers)
            .and_then(|l| l.path.strip_prefix(self.path.as_str()))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whether no process of this host is in a cgroup of the container.
pub fn is_empty(container_id: &str) -> bool {
    !all_pids().any(|pid| {
        parse_cgroup(&read_cgroups(pid)).any(|l| container_cgroup(l.path, container_id).is_some())
    })
}

/// Follows the processes of one exec from before its start until the last of them is gone.
#[derive(Debug)]
pub struct Tracker {
    view: HostView,
    /// `NAME=value`, unique to the exec's environment.
    mark: Vec<u8>,
    before: BTreeSet<ProcessId>,
    root: Option<ProcessId>,
    /// Sessions that processes of the exec are in. One that was seen empty is forgotten: its number
    /// may then be used again.
    sessions: BTreeSet<u32>,
    /// Sessions of those from before.
    foreign: BTreeSet<u32>,
    known: BTreeSet<ProcessId>,
    /// Pids of processes of the exec, also former ones: only a session that one of them began is
    /// the exec's. (Before its `setsid`, the first process is still in the runtime's session.)
    led: BTreeSet<u32>,
    strangers: bool,
}

impl Tracker {
    /// Remembers what runs in the container now. To be called before the exec is started.
    pub fn before_exec(view: HostView, mark: &str) -> Self {
        let now = view.read_processes();
        Tracker {
            view,
            mark: mark.as_bytes().to_vec(),
            before: now.iter().map(|p| p.id).collect(),
            root: None,
            sessions: BTreeSet::new(),
            foreign: now.iter().map(|p| p.session).collect(),
            known: BTreeSet::new(),
            led: BTreeSet::new(),
            strangers: false,
        }
    }

    /// Of an exec that an earlier plimsoll started: known by its mark alone.
    pub fn of_mark(view: HostView, mark: &str) -> Self {
        Tracker {
            before: BTreeSet::new(),
            foreign: BTreeSet::new(),
            ..Tracker::before_exec(view, mark)
        }
    }

    /// Sets the exec's host pid, once the daemon has reported it.
    pub fn set_root(&mut self, pid: u32) {
        if pid <= 1
            || self.root.is_some()
            || self.foreign.contains(&pid)
            || self.before.iter().any(|b| b.pid == pid)
        {
            return;
        }
        match Stat::read(pid) {
            Some(stat) if self.view.holds_pid(pid) => self.root = Some(stat.id),
            // Another process has the number already.
            Some(stat) if stat.is_alive() => return,
            // It has ended; its children are in its session all the same.
            _ => {}
        }
        self.led.insert(pid);
        self.sessions.insert(pid);
    }

    /// Looks again; returns the exec's processes that are alive, in order of their pids. Cheap
    /// enough for once a second: it is how a grandchild is known before it leaves home.
    pub fn observe_processes(&mut self) -> Vec<ProcessId> {
        let now = self.view.read_processes();
        let by_pid: HashMap<u32, &Stat> = now.iter().map(|s| (s.id.pid, s)).collect();
        let candidates: Vec<&Stat> = now
            .iter()
            .filter(|s| s.id.pid > 1 && s.id.pid != self.view.init && !self.before.contains(&s.id))
            .collect();
        let mut ours: BTreeSet<ProcessId> = candidates
            .iter()
            // A process between fork and exec still shows its parent's environment; that is right too.
            .filter(|s| {
                Some(s.id) == self.root
                    || self.sessions.contains(&s.session)
                    || self.known.contains(&s.id)
                    || self.is_marked(s.id.pid)
            })
            .map(|s| s.id)
            .collect();
        // Children of ours, and theirs: whatever the order of the pids.
        loop {
            let more: Vec<ProcessId> = candidates
                .iter()
                .filter(|s| !ours.contains(&s.id))
                .filter(|s| by_pid.get(&s.parent).is_some_and(|p| ours.contains(&p.id)))
                .map(|s| s.id)
                .collect();
            if more.is_empty() {
                break;
            }
            ours.extend(more);
        }
        self.led.extend(ours.iter().map(|id| id.pid));
        let living = candidates
            .iter()
            .filter(|s| ours.contains(&s.id))
            .map(|s| s.session);
        let root = self.root.filter(|r| ours.contains(r)).map(|r| r.pid);
        self.sessions = living
            .chain(root)
            .filter(|s| self.led.contains(s) && !self.foreign.contains(s))
            .collect();
        self.strangers = candidates
            .iter()
            .any(|s| !ours.contains(&s.id) && !is_readable(s.id.pid));
        self.known = ours.clone();
        ours.into_iter().collect()
    }

    /// Whether the last scan found processes with an unreadable environment (plimsoll without root):
    /// a marked process that left the session is then invisible.
    pub fn has_unreadable_processes(&self) -> bool {
        self.strangers
    }

    /// Whether the exec's first process is alive; `None` while it is not known.
    pub fn root_alive(&self) -> Option<bool> {
        self.root.map(ProcessId::is_alive)
    }

    /// Signals these processes, as far as they are still who they were. Returns those that we may not signal from here,
    /// numbered as in their container.
    pub fn send_signal(&self, ids: &[ProcessId], signal: Signal) -> Vec<ProcessId> {
        let refused = ids.iter().filter(|id| !self.signal_one(**id, signal));
        let inside = refused.filter_map(|id| {
            let pid = pid_inside(id.pid)?;
            Some(ProcessId { pid, ..*id })
        });
        inside.collect()
    }

    /// False where we may not signal it; one that is gone needs no signal.
    fn signal_one(&self, id: ProcessId, signal: Signal) -> bool {
        let pid = i32::try_from(id.pid).ok().filter(|p| *p > 1);
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            return true;
        };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return true;
        };
        // The descriptor holds whoever has the number now; only then is it checked who that is.
        if !id.is_alive() || !self.view.holds_pid(id.pid) {
            return true;
        }
        pidfd_send_signal(&fd, signal) != Err(rustix::io::Errno::PERM)
    }

    fn is_marked(&self, pid: u32) -> bool {
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else {
            return false;
        };
        environ.split(|b| *b == 0).any(|entry| entry == self.mark)
    }
}

/// Whether we may read the process' environment; a process that is gone counts as readable.
fn is_readable(pid: u32) -> bool {
    !fs::File::open(format!("/proc/{pid}/environ"))
        .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The pid as the innermost namespace numbers it; `None` when it is gone or has no namespace of
/// its own (1 is never given out: that is the container's life).
fn pid_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace()
        .last()?
        .parse()
        .ok()
        .filter(|p| *p > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "71beb9bc82f1873508b7ad5d9782bf14a88c1aa338620ce6a6c5e8eb5c62c3a8";

    #[test]
    fn the_container_is_found_in_every_form_of_cgroup_path() {
        for (path, expected) in [
            (format!("/docker/{ID}"), Some(format!("/docker/{ID}"))),
            (
                format!("/system.slice/docker-{ID}.scope"),
                Some(format!("/system.slice/docker-{ID}.scope")),
            ),
            (
                format!("/system.slice/docker-{ID}.scope/init"),
                Some(format!("/system.slice/docker-{ID}.scope")),
            ),
            (
                format!(
                    "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"
                ),
                Some(format!(
                    "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"
                )),
            ),
            (
                format!("/docker/outer/docker/{ID}/a/b"),
                Some(format!("/docker/outer/docker/{ID}")),
            ),
            (format!("/../{ID}"), Some(format!("/../{ID}"))),
            ("/".into(), None),
            ("/docker/another".into(), None),
        ] {
            assert_eq!(
                container_cgroup(&path, ID).map(str::to_owned),
                expected,
                "{path}"
            );
        }
        assert_eq!(
            container_cgroup("/docker/", ""),
            None,
            "an empty id is in every path"
        );
    }

    #[test]
    fn our_own_process_is_in_no_container_of_that_id() {
        assert!(HostView::open(std::process::id(), ID).is_none());
        assert!(HostView::open(1, ID).is_none() && HostView::open(0, ID).is_none());
    }

    proptest! {
        #[test]
        fn cgroup_parsing_never_panics(text in "\\PC{0,200}", id in "[0-9a-f]{0,64}") {
            for line in parse_cgroup(&text) {
                if let Some(path) = container_cgroup(line.path, &id) {
                    prop_assert!(line.path.starts_with(path) && path.contains(&id));
                }
            }
        }
    }
}
