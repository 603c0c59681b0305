//! Memory of the processes of one session or process tree inside a cgroup, from `/proc`.
//!
//! `statm` gives the same figure as `RssAnon` in `status` (resident less file-backed and shared
//! pages), from the same counters, at a sixth of the cost; `smaps_rollup` walks page tables and
//! costs a hundred times more.

use crate::capture::AtNs;
use crate::telemetry::cgroup::read_at_start;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum age of the process list, nanoseconds. Listing reads one file per process of the
/// container, which is too expensive for every tick.
const LIST_AGE_NS: i64 = 1_000_000_000;

/// The memory of the processes that an exec started, or of a process tree.
pub struct SessionMemory {
    leader: u32,
    /// Where its processes are; `None`: anywhere.
    cgroup: Option<PathBuf>,
    /// `statm` of each process, kept open: after the pid is reused the old file reads as an error.
    members: Vec<File>,
    listed_at: Option<AtNs>,
    buffer: Vec<u8>,
}

impl SessionMemory {
    /// For the exec with this first process, in the cgroup with this directory.
    pub fn new(leader: u32, cgroup: &Path) -> SessionMemory {
        SessionMemory {
            cgroup: Some(cgroup.to_owned()),
            ..SessionMemory::of_tree(leader)
        }
    }

    /// For a process and its descendants, whatever their cgroups.
    pub fn of_tree(leader: u32) -> SessionMemory {
        SessionMemory {
            leader,
            cgroup: None,
            members: Vec::new(),
            listed_at: None,
            buffer: Vec::new(),
        }
    }

    /// First process of the exec.
    pub fn leader(&self) -> u32 {
        self.leader
    }

    /// Anonymous memory of all its processes, bytes; `None` when none is left.
    pub fn read_bytes(&mut self, now: AtNs) -> Option<u64> {
        if self.listed_at.is_none_or(|at| now - at >= LIST_AGE_NS) {
            self.list_members(now);
        }
        let page = rustix::param::page_size() as u64;
        let mut sum = None;
        let mut lost = false;
        for file in &self.members {
            match read_at_start(file, &mut self.buffer)
                .ok()
                .and_then(anonymous_pages)
            {
                Some(pages) => {
                    sum = Some(
                        sum.unwrap_or(0u64)
                            .saturating_add(pages.saturating_mul(page)),
                    )
                }
                None => lost = true,
            }
        }
        if lost {
            // An ended process may have left children; list again at the next tick.
            self.listed_at = None;
        }
        sum
    }

    fn list_members(&mut self, now: AtNs) {
        self.listed_at = Some(now);
        let members = match &self.cgroup {
            Some(cgroup) => {
                let mut pids = Vec::new();
                pids_below(cgroup, 0, &mut pids);
                members(&rows_of(Path::new("/proc"), pids), self.leader)
            }
            None => tree_members(Path::new("/proc"), self.leader),
        };
        self.members = members
            .into_iter()
            .filter_map(|pid| File::open(format!("/proc/{pid}/statm")).ok())
            .collect();
    }
}

/// The processes of a cgroup and its sub-cgroups.
pub(super) fn pids_below(dir: &Path, depth: u32, into: &mut Vec<u32>) {
    if let Ok(text) = std::fs::read_to_string(dir.join("cgroup.procs")) {
        // The kernel writes pid 0 for a process that is not visible in our pid namespace.
        into.extend(
            text.lines()
                .filter_map(|l| l.parse::<u32>().ok())
                .filter(|&pid| pid > 0),
        );
    }
    // A container may make its own cgroups, but rarely nests them deeply.
    if depth < 8 {
        if let Ok(entries) = std::fs::read_dir(dir) {
            for entry in entries
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            {
                pids_below(&entry.path(), depth + 1, into);
            }
        }
    }
}

/// Family relations of a process, from `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessRow {
    pid: u32,
    parent: u32,
    session: u32,
}

impl ProcessRow {
    fn parse(stat: &str) -> Option<ProcessRow> {
        // The name may contain spaces and parentheses: the fields begin after the last one.
        let (pid, _) = stat.split_once(' ')?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        Some(ProcessRow {
            pid: pid.parse().ok()?,
            parent,
            session,
        })
    }
}

/// The processes in the session of `leader` or descending from it. A daemon that left the session
/// is found while its parent lives, an orphan while it is in the session.
fn members(table: &[ProcessRow], leader: u32) -> Vec<u32> {
    let mut found: Vec<u32> = table
        .iter()
        .filter(|r| r.pid == leader || r.session == leader)
        .map(|r| r.pid)
        .collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        for row in table.iter().filter(|r| r.parent == parent) {
            if !found.contains(&row.pid) {
                found.push(row.pid);
            }
        }
        next += 1;
    }
    found
}

/// The processes of the session of `leader`, and those that descend from it, whatever their cgroups.
pub(super) fn tree_members(proc: &Path, leader: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    members(&rows_of(proc, pids), leader)
}

fn rows_of(proc: &Path, pids: impl IntoIterator<Item = u32>) -> Vec<ProcessRow> {
    let stats =
        (pids.into_iter()).filter_map(|pid| std::fs::read(proc.join(format!("{pid}/stat"))).ok());
    let rows = stats.filter_map(|stat| ProcessRow::parse(&String::from_utf8_lossy(&stat)));
    rows.collect()
}

/// Pages of anonymous memory in a `statm`: resident less shared. For an ended process or a zombie
/// the file is empty or all zeros.
fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut fields = statm
        .split_ascii_whitespace()
        .map(|f| f.parse::<u64>().ok());
    let (_size, resident, shared) = (fields.next()??, fields.next()??, fields.next()??);
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::{Command, Stdio};

    fn row(pid: u32, parent: u32, session: u32) -> ProcessRow {
        ProcessRow {
            pid,
            parent,
            session,
        }
    }

    #[test]
    fn kinship_is_read_behind_the_strangest_name() {
        let stat = "4242 (tmux: (a) 7 R 1) S 17 4242 9000 0 -1 4194560 1\n";
        assert_eq!(ProcessRow::parse(stat), Some(row(4242, 17, 9000)));
        assert_eq!(ProcessRow::parse("4242 (sh"), None);
        assert_eq!(ProcessRow::parse(""), None);
    }

    #[test]
    fn the_session_and_its_descendants_are_members_and_the_engine_is_not() {
        let table = [
            row(100, 1, 100),   // the container's process 1
            row(101, 100, 100), // the engine
            row(200, 1, 200),   // the exec
            row(201, 200, 200), // its worker
            row(202, 201, 202), // which left the session
            row(203, 100, 200), // an orphan, adopted by process 1
            row(204, 203, 204), // and its child
        ];
        let mut found = members(&table, 200);
        found.sort_unstable();
        assert_eq!(found, [200, 201, 202, 203, 204]);
        assert_eq!(members(&table, 999), [0u32; 0]);
        // A table read while pids were reused may hold a ring.
        assert_eq!(members(&[row(5, 6, 5), row(6, 5, 6)], 5), [5, 6]);
    }

    #[test]
    fn statm_gives_anonymous_pages() {
        assert_eq!(anonymous_pages("765 435 407 5 0 123 0\n"), Some(28));
        assert_eq!(anonymous_pages("0 0 0 0 0 0 0\n"), Some(0));
        assert_eq!(anonymous_pages("1 2 3"), Some(0));
        assert_eq!(anonymous_pages(""), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*") {
            let _ = (ProcessRow::parse(&text), anonymous_pages(&text));
        }
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn the_memory_of_a_child_is_read_until_it_ends() {
        let Ok(cgroup) = super::super::cgroup::find_cgroup(std::process::id(), "") else {
            eprintln!("SKIPPED: no memory cgroup is visible here");
            return;
        };
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut memory = SessionMemory::new(child.id(), &cgroup.dir);
        let read = memory.read_bytes(0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(read.is_some_and(|bytes| bytes < 1 << 30), "{read:?}");
        assert_eq!(memory.read_bytes(1), None, "it has ended");
    }
}
