//! Memory of the processes of one session or process tree inside a cgroup, from `/proc`.
//!
//! `statm` gives the same figure as `RssAnon` in `status` (resident less file-backed and shared
//! pages), from the same counters, at a sixth of the cost; `smaps_rollup` walks page tables and
//! costs a hundred times more.

use crate::capture::AtNs;
use crate::host::processes::{members, pids_in, tree_members};
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
        let proc = Path::new("/proc");
        let members = match &self.cgroup {
            Some(cgroup) => members(proc, pids_in(cgroup), self.leader),
            None => tree_members(proc, self.leader),
        };
        self.members = members
            .into_iter()
            .filter_map(|pid| File::open(format!("/proc/{pid}/statm")).ok())
            .collect();
    }
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
            let _ = anonymous_pages(&text);
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
