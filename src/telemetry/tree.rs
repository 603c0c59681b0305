//! Host memory of a process and its descendants, for an engine that shares its cgroup with others. Pages that several
//! of them share count once, those shared with strangers in part (`smaps_rollup`, proportional share).
//!
//! Memory of the processes of one session or process tree inside a cgroup, from `/proc`.
//!
//! `statm` gives the same figure as `RssAnon` in `status` (resident less file-backed and shared
//! pages), from the same counters, at a sixth of the cost; `smaps_rollup` walks page tables and
//! costs a hundred times more.

use super::cgroup::{find_cgroup, read_at_start};
use super::host::memory_device;
use super::{MeasuredContainer, MemoryBackend, Reading, ReadingError, Wanted};
use crate::capture::{AtNs, BackendFacts, DeviceFacts, HostSplit, MemoryLimit, MemorySample};
use crate::clock::Clock;
use crate::error::Failure;
use crate::host::processes::{members, pids_in, tree_members};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum age of the shares, nanoseconds: the kernel walks the page tables for them. Between two readings of them
/// anonymous memory is followed, by a cheaper counter of the same pages.
const SHARE_AGE_NS: i64 = 1_000_000_000;

/// Reads the memory of a process tree.
pub struct TreeBackend {
    root: u32,
    limit: Option<MemoryLimit>,
    facts: BackendFacts,
    anonymous: SessionMemory,
    last: Option<SharesRead>,
    buffer: Vec<u8>,
}

/// The shares of the tree, as they were read last.
#[derive(Debug, Clone, Copy)]
struct SharesRead {
    at_ns: AtNs,
    sum: ShareOfProcess,
    /// What of them is not anonymous, bytes.
    others: u64,
    /// By how much the cheaper counter has more of the anonymous memory, bytes: processes share pages after a fork.
    counted_twice: u64,
}

impl TreeBackend {
    /// Opens the tree of the target's first process. `reason`: why this backend was chosen.
    pub fn open(target: &MeasuredContainer, reason: String) -> Result<TreeBackend, Failure> {
        let Some(root) = target.init_pid else {
            return Err(
                Failure::environment("the process has ended: it has no memory to measure")
                    .hint("name one that runs: `pgrep -af vllm`"),
            );
        };
        // The kernel checks the rights when the file is read, not when it is opened.
        if let Err(e) = std::fs::read(format!("/proc/{root}/smaps_rollup")) {
            return Err(Failure::environment(format!(
                "the memory of process {root} cannot be read"
            ))
            .hint("run plimsoll as the user of that process, or as root")
            .caused_by(e));
        }
        let cgroup = find_cgroup(root, "").ok();
        Ok(TreeBackend {
            root,
            limit: cgroup.and_then(|cgroup| cgroup.effective_limit(crate::host::memory_bytes())),
            facts: BackendFacts {
                name: "host".into(),
                version: Some("smaps_rollup".into()),
                simulated: false,
                reason: format!("{reason}; others share its cgroup, so its processes are measured"),
            },
            anonymous: SessionMemory::of_tree(root),
            last: None,
            buffer: Vec::new(),
        })
    }

    /// The shares as they were read last, and anonymous memory now, bytes.
    fn read(&mut self, now: AtNs, anew: bool) -> Result<(SharesRead, u64), ReadingError> {
        let root = self.root;
        let gone = || {
            ReadingError::Gone(format!(
                "process {root} and those that it started have ended"
            ))
        };
        let kept = self
            .last
            .filter(|last| !anew && now - last.at_ns < SHARE_AGE_NS);
        let mut anonymous = self.anonymous.read_bytes(now).ok_or_else(gone)?;
        let last = match kept {
            Some(last) => last,
            None => {
                let sum = self.sum_shares().ok_or_else(gone)?;
                let before = anonymous;
                anonymous = self.anonymous.read_bytes(now).ok_or_else(gone)?;
                // Before Linux 5.9 the shares are one number.
                let share = sum.anon.unwrap_or(before.min(sum.all));
                // The two counters are read at different moments, and memory may have changed between.
                let counted_twice = match (before == anonymous, &self.last) {
                    (true, _) => anonymous.saturating_sub(share),
                    (false, Some(last)) => last.counted_twice,
                    (false, None) => 0,
                };
                SharesRead {
                    at_ns: now,
                    sum,
                    others: (sum.all - share.min(sum.all)).saturating_add(sum.swap),
                    counted_twice,
                }
            }
        };
        self.last = Some(last);
        Ok((last, anonymous.saturating_sub(last.counted_twice)))
    }

    fn sum_shares(&mut self) -> Option<ShareOfProcess> {
        let mut sum: Option<ShareOfProcess> = None;
        for pid in tree_members(Path::new("/proc"), self.root) {
            let file = File::open(format!("/proc/{pid}/smaps_rollup"));
            let share = file.ok().and_then(|file| {
                let text = read_at_start(&file, &mut self.buffer).ok()?;
                ShareOfProcess::parse(text)
            });
            sum = match (sum, share) {
                (Some(sum), Some(share)) => Some(sum.plus(share)),
                (sum, share) => sum.or(share),
            };
        }
        sum
    }
}

impl MemoryBackend for TreeBackend {
    fn facts(&self) -> BackendFacts {
        self.facts.clone()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        let name = "memory of the processes (proportional share)".into();
        vec![memory_device(
            format!("pid {}", self.root),
            name,
            self.limit.as_ref(),
        )]
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        let (SharesRead { sum, others, .. }, anonymous) = self.read(clock.now(), wanted.detail)?;
        into.push(MemorySample {
            at_ns: clock.now(),
            used_bytes: others.saturating_add(anonymous),
            host: Some(HostSplit {
                anon_bytes: Some(anonymous),
                file_bytes: sum.file,
                shmem_bytes: sum.shmem,
                kernel_bytes: None,
                swap_bytes: Some(sum.swap),
                locked_bytes: Some(sum.locked),
            }),
            whole_host: crate::host::read_state(),
            ..MemorySample::default()
        });
        Ok(())
    }

    fn probe_floor(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        into.clear();
        // Never the shares: they are old at the next tick, and read there.
        let now = self.last.map_or(0, |last| last.at_ns);
        let (last, anonymous) = self.read(now, false)?;
        into.push(last.others.saturating_add(anonymous));
        Ok(())
    }
}

/// Figures of a `smaps_rollup`, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ShareOfProcess {
    all: u64,
    swap: u64,
    locked: u64,
    /// By kind since Linux 5.9.
    anon: Option<u64>,
    file: Option<u64>,
    shmem: Option<u64>,
}

impl ShareOfProcess {
    /// `None` for an ended process: its file is empty.
    fn parse(text: &str) -> Option<ShareOfProcess> {
        let field = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(ShareOfProcess {
            all: field("Pss:")?,
            swap: field("SwapPss:").unwrap_or(0),
            locked: field("Locked:").unwrap_or(0),
            anon: field("Pss_Anon:"),
            file: field("Pss_File:"),
            shmem: field("Pss_Shmem:"),
        })
    }

    fn plus(self, other: ShareOfProcess) -> ShareOfProcess {
        let known = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        ShareOfProcess {
            all: self.all.saturating_add(other.all),
            swap: self.swap.saturating_add(other.swap),
            locked: self.locked.saturating_add(other.locked),
            anon: known(self.anon, other.anon),
            file: known(self.file, other.file),
            shmem: known(self.shmem, other.shmem),
        }
    }
}

/// Maximum age of the process list, nanoseconds. Listing reads one file per process of the
/// container, which is too expensive for every tick.
const LIST_AGE_NS: i64 = 1_000_000_000;

/// The memory of the processes that an exec started, or of a process tree.
#[derive(Default)]
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
            ..SessionMemory::default()
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

    #[test]
    fn the_share_of_a_process_is_read_and_an_ended_one_has_none() {
        let text = "5581e0000000-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss: 600 kB\nPss_Anon: 400 kB\nPss_File: 150 kB\n\
            Pss_Shmem: 50 kB\nShared_Clean: 1 kB\nSwap: 20 kB\nSwapPss: 8 kB\nLocked: 4 kB\n";
        let share = ShareOfProcess::parse(text).unwrap();
        let sum = share.plus(ShareOfProcess::parse("Pss: 100 kB\n").unwrap());
        assert_eq!(
            (sum.all, sum.swap, sum.locked),
            (700 << 10, 8 << 10, 4 << 10)
        );
        assert_eq!(
            (sum.anon, sum.file, sum.shmem),
            (Some(400 << 10), Some(150 << 10), Some(50 << 10))
        );
        assert_eq!(ShareOfProcess::parse(""), None);
    }

    #[test]
    fn the_memory_of_this_process_is_measured_and_an_ended_one_is_gone() {
        const SIZE: u64 = 64 << 20;
        let target = |pid| MeasuredContainer {
            init_pid: Some(pid),
            ..MeasuredContainer::default()
        };
        let mut backend = TreeBackend::open(&target(std::process::id()), "a test".into()).unwrap();
        let (clock, mut samples) = (Clock::start(), Vec::new());
        backend
            .sample(&clock, Wanted::default(), &mut samples)
            .unwrap();
        let block = std::hint::black_box(vec![1u8; SIZE as usize]);
        backend
            .sample(&clock, Wanted::default(), &mut samples)
            .unwrap();
        let mut probed = Vec::new();
        backend.probe(&mut probed).unwrap();
        drop(block);
        assert!(probed[0] > samples[0].used_bytes + SIZE / 2, "{probed:?}");
        // Other tests of this process free memory meanwhile.
        assert!(
            samples[1].used_bytes > samples[0].used_bytes + SIZE / 2,
            "{samples:?}"
        );
        assert!(backend.facts().reason.contains("share its cgroup"));

        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut backend = TreeBackend::open(&target(child.id()), "a test".into()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = backend.sample(&clock, Wanted::default(), &mut samples);
        assert!(matches!(gone, Err(ReadingError::Gone(_))), "{gone:?}");
        let failure = TreeBackend::open(&target(u32::MAX), String::new())
            .map(drop)
            .unwrap_err();
        assert!(failure.hints[0].contains("as root"));
    }
}

#[cfg(test)]
mod process_tests {
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
