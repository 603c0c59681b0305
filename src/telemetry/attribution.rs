//! Which container a process belongs to, from the names of its cgroups. Refuses where the driver's
//! pids differ from ours.
//!
//! Cleans up the driver's process lists: detects nonsense, merges lists, assigns processes to the
//! container.

use super::cgroup;
use crate::capture::ProcessMemory;
use crate::host::processes::{parse_cgroup, parse_stat, pids_in, tree_members};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Inode of the host's pid namespace: a constant of the kernel (`PROC_PID_INIT_INO`).
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Prefixes of container ids in cgroup names. The monitors next to containers (`libpod-conmon-…`) have other names
/// and are not listed.
const PREFIXES: [&str; 6] = [
    "docker",
    "cri-containerd",
    "containerd",
    "nerdctl",
    "crio",
    "libpod",
];

/// Ids of the containers of a process with this `/proc/PID/cgroup`, the outermost first. The host's daemon
/// knows only the outermost of nested ones.
pub fn containers_of(membership: &str) -> Vec<String> {
    // Hybrid hosts have the id in the v1 lines only: every line is checked, and the longest result
    // wins.
    let mut best = Vec::new();
    for line in parse_cgroup(membership) {
        let found = in_path(line.path.strip_suffix(" (deleted)").unwrap_or(line.path));
        if found.len() > best.len() {
            best = found;
        }
    }
    best
}

/// The container of a process with this `/proc/PID/cgroup`; of nested ones its own.
pub fn innermost_container(membership: &str) -> Option<String> {
    containers_of(membership).pop()
}

fn in_path(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: [&str; 2] = [""; 2];
    for part in path.split('/').filter(|p| !p.is_empty()) {
        found.extend(container_named(part, before).map(str::to_owned));
        before = [before[1], part];
    }
    found
}

/// The container that one component of a path names; `before` are the two components before it.
fn container_named<'a>(part: &'a str, before: [&str; 2]) -> Option<&'a str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return (!name.is_empty()).then_some(name);
    }
    // `kubepods-….slice:cri-containerd:<id>`, where two cgroup drivers were mixed up.
    let separator = if name.contains(':') { ':' } else { '-' };
    if let Some((prefix, id)) = name.rsplit_once(separator) {
        if is_id(id) {
            let prefix = prefix.rsplit(':').next().unwrap_or(prefix);
            return PREFIXES.contains(&prefix).then_some(id);
        }
    }
    if is_id(name) {
        return Some(name);
    }
    // Fargate: the task's id, then the task's id and the container's number.
    let fargate = before[0] == "ecs"
        && name.rsplit_once('-').is_some_and(|(task, number)| {
            task == before[1] && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        });
    fargate.then_some(name)
}

/// 64 lower-case hexadecimal digits; shorter names are not specific to containers.
fn is_id(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Why nothing can be attributed: the driver's pids are not those of this `/proc`. `None`: they are the host's, or those
/// of the container runtime, which may itself run in a container. `target` (pid of process 1, and id) is a container
/// reported by the runtime: if that pid is in the container here too, we see the runtime's pids.
fn refusal(proc: &Path, target: Option<(u32, &str)>) -> Option<&'static str> {
    let ours = std::fs::read_link(proc.join("self/ns/pid"));
    let of_host = ours.is_ok_and(|link| link.as_os_str() == HOST_PID_NAMESPACE);
    let of_runtime = || {
        target.is_some_and(|(pid, id)| {
            std::fs::read_to_string(proc.join(format!("{pid}/cgroup")))
                .is_ok_and(|text| cgroup::names_container(&text, id))
        })
    };
    (!of_host && !of_runtime()).then_some(
        "memory is attributed to no process or container, because plimsoll runs in a pid namespace of its own: start it on the host, or its container with --pid=host",
    )
}

/// What is cached about a process.
#[derive(Debug, Clone)]
struct CachedProcess {
    /// Start time, clock ticks since boot: together with the pid it identifies a process. Without
    /// it the process is never recognised.
    started: Option<u64>,
    name: Option<String>,
    /// `None` if they could not be read.
    containers: Option<Vec<String>>,
    /// Whether it is in the target container, whatever form that container's id has.
    in_target: bool,
    round: u64,
    /// Number of the device reading in which it was last recognised.
    reading: u64,
}

/// Assigns processes to containers, with a cache.
#[derive(Debug, Default)]
pub struct Attribution {
    proc: PathBuf,
    /// Why it attributes nothing.
    refusal: Option<&'static str>,
    /// The profiled container: id and its cgroup, where that is visible.
    target: Option<(String, Option<PathBuf>)>,
    /// First process of the profiled engine, where no cgroup is its own.
    root: Option<u32>,
    known: HashMap<u32, CachedProcess>,
    round: u64,
    /// Number of the current device reading; 0 if the caller never starts one.
    reading: u64,
    /// Pids in the target container during this reading.
    members: Option<Vec<u32>>,
    text: String,
    buffer: Vec<u8>,
}

impl Attribution {
    /// For a target container (process 1 and id). Without one, every container is treated alike.
    pub fn new(target: Option<(u32, &str)>) -> Attribution {
        let group = target.map(|(pid, id)| {
            let own = Some(pid).filter(|_| !id.is_empty());
            let found = own.and_then(|pid| cgroup::find_cgroup(pid, id).ok());
            (id.to_owned(), found.map(|c| c.dir))
        });
        Attribution {
            proc: "/proc".into(),
            refusal: refusal(Path::new("/proc"), target),
            target: group,
            root: target.filter(|(_, id)| id.is_empty()).map(|(pid, _)| pid),
            ..Attribution::default()
        }
    }

    /// For a target container known by its id alone, with another directory for `/proc`.
    pub fn for_container(proc: &Path, container_id: &str) -> Attribution {
        let target = (!container_id.is_empty()).then(|| (container_id.to_owned(), None));
        Attribution {
            proc: proc.to_owned(),
            target,
            ..Attribution::default()
        }
    }

    /// Why it attributes nothing; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// Starts a device reading: a process on several devices is looked up once for all of them.
    /// Without this call every list is looked up anew.
    pub fn begin_reading(&mut self) {
        self.reading += 1;
        self.members = None;
    }

    /// The processes (pid, bytes) with their names and containers, without those that have ended.
    /// Costs some ten microseconds for each new process, and about as much for recognising a known
    /// one.
    pub fn identify_processes(&mut self, raw: &[(u32, Option<u64>)]) -> Vec<ProcessMemory> {
        self.round += 1;
        let members = self.members.take().unwrap_or_else(|| self.members());
        let found = raw
            .iter()
            .filter_map(|&(pid, used_bytes)| {
                let process = self.look_at(pid)?;
                let ours_by_group = members.contains(&pid);
                let target = self.target.as_ref().map(|(id, _)| id.as_str());
                let (container_id, ours) = assign_container(&process, target, ours_by_group);
                Some(ProcessMemory {
                    pid,
                    used_bytes,
                    ours,
                    name: process.name,
                    container_id,
                    peak_bytes: None,
                })
            })
            .collect();
        if self.reading > 0 {
            self.members = Some(members);
        }
        let round = self.round;
        // The cache is shared by several GPUs; an entry that was not used lately has ended.
        self.known.retain(|_, k| round - k.round < 64);
        found
    }

    /// Pids in the container of interest, read from its cgroup: one file for all of them.
    fn members(&self) -> Vec<u32> {
        match (self.root, &self.target) {
            (Some(root), _) => tree_members(&self.proc, root),
            (None, Some((_, Some(dir)))) => pids_in(dir),
            _ => Vec::new(),
        }
    }

    fn look_at(&mut self, pid: u32) -> Option<CachedProcess> {
        if let Some(known) = self.known.get_mut(&pid) {
            if self.reading > 0 && known.reading == self.reading {
                known.round = self.round;
                return Some(known.clone());
            }
        }
        // An opened directory stays that of this process: if the pid is reused meanwhile, its files
        // fail to open.
        let process = self.open_process(pid)?;
        let (started, name) = self.stat(&process)?;
        if let Some(known) = self.known.get_mut(&pid) {
            if known.started == started && started.is_some() {
                (known.round, known.reading) = (self.round, self.reading);
                return Some(known.clone());
            }
        }
        let read = self.read_file(&process, "cgroup");
        // Empty where the process has just become a zombie.
        let containers = (read && !self.text.is_empty()).then(|| containers_of(&self.text));
        let in_target = read
            && self
                .target
                .as_ref()
                .is_some_and(|(id, _)| cgroup::names_container(&self.text, id));
        let known = CachedProcess {
            started,
            name,
            containers,
            in_target,
            round: self.round,
            reading: self.reading,
        };
        self.known.insert(pid, known.clone());
        Some(known)
    }

    /// Start time and name of a process.
    fn stat(&mut self, process: &OwnedFd) -> Option<(Option<u64>, Option<String>)> {
        if !self.read_file(process, "stat") {
            return None;
        }
        let (from, to) = (self.text.find('(')?, self.text.rfind(')')?);
        let name = self.text.get(from + 1..to).map(str::to_owned);
        let stat = parse_stat(0, self.text.as_bytes());
        Some((stat.map(|stat| stat.id.started), name))
    }

    /// The directory of a process.
    fn open_process(&self, pid: u32) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(self.proc.join(pid.to_string()), flags, Mode::empty()).ok()
    }

    /// Reads a file of a process into `text`. A process name may contain any bytes.
    fn read_file(&mut self, process: &OwnedFd, file: &str) -> bool {
        self.text.clear();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(process, file, flags, Mode::empty()) else {
            return false;
        };
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2 + 4096, 0);
            }
            match rustix::io::read(&file, &mut self.buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        self.text
            .push_str(&String::from_utf8_lossy(&self.buffer[..filled]));
        true
    }
}

/// The container of a process, and whether it is the one of interest.
fn assign_container(
    process: &CachedProcess,
    target: Option<&str>,
    in_group: bool,
) -> (Option<String>, Option<bool>) {
    if let Some(target) = target.filter(|_| in_group || process.in_target) {
        // A process tree is in no container.
        let container = Some(target.to_owned()).filter(|id| !id.is_empty());
        return (container, Some(true));
    }
    let Some(containers) = &process.containers else {
        return (None, None);
    };
    // The host's runtime knows the outermost of nested containers only.
    let container = containers.first().cloned();
    (container, target.map(|_| false))
}

/// Pid and memory in bytes of a process in the driver's list; `None` if the driver does not report
/// the memory.
pub type Raw = (u32, Option<u64>);

/// Whether the driver's process lists have another layout than its header: from the second process
/// on they are nonsense, and beyond the fifteenth they overflow the buffer. Versions 535.43 to
/// 535.97.
pub fn has_broken_lists(driver: &str) -> bool {
    let mut numbers = driver
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .split('.')
        .map(str::parse::<u32>);
    matches!(
        (numbers.next(), numbers.next()),
        (Some(Ok(535)), Some(Ok(43..=97)))
    )
}

/// Merges several lists (compute, graphics). A process in more than one has the larger figure,
/// because each list counts all of its memory. `None` when an entry is impossible, which makes the
/// other entries doubtful too.
pub fn merge_lists(lists: &[Vec<Raw>], total_bytes: u64) -> Option<Vec<Raw>> {
    let mut merged: Vec<Raw> = Vec::new();
    for &(pid, bytes) in lists.iter().flatten() {
        // The idle task and the host's init are never on a GPU.
        if pid <= 1 || i32::try_from(pid).is_err() || bytes.is_some_and(|b| b > total_bytes) {
            return None;
        }
        // A process with a context always has memory: some drivers write 0 for "not available".
        let bytes = bytes.filter(|b| *b > 0);
        match merged.iter_mut().find(|(known, _)| *known == pid) {
            Some((_, known)) => *known = bytes.max(*known),
            None => merged.push((pid, bytes)),
        }
    }
    merged.sort_unstable();
    Some(merged)
}

/// The processes with their names and containers from `proc`, without those that have ended. Keeps
/// no cache between two lists.
pub fn identify_in(proc: &Path, raw: Vec<Raw>, container_id: &str) -> Vec<ProcessMemory> {
    Attribution::for_container(proc, container_id).identify_processes(&raw)
}

#[cfg(test)]
#[path = "attribution_tests.rs"]
mod tests;

#[cfg(test)]
mod gpu_process_tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_broken_drivers_are_known() {
        for broken in [
            "535.43.02",
            "535.54.03",
            "535.86.10",
            "fake-535.54.03",
            "535.97",
        ] {
            assert!(has_broken_lists(broken), "{broken}");
        }
        for good in [
            "535.98",
            "535.104.05",
            "535.261.03",
            "525.60.13",
            "550.163.01",
            "fake-570.1",
            "",
            "fake",
            "535",
        ] {
            assert!(!has_broken_lists(good), "{good}");
        }
    }

    #[test]
    fn a_process_in_two_lists_counts_once() {
        let compute = vec![(20, Some(100)), (10, None), (30, Some(0))];
        let graphics = vec![(20, Some(90)), (10, Some(5)), (40, None)];
        let expected = vec![(10, Some(5)), (20, Some(100)), (30, None), (40, None)];
        assert_eq!(merge_lists(&[compute, graphics], 1000), Some(expected));
        assert_eq!(merge_lists(&[], 1000), Some(vec![]));
    }

    #[test]
    fn nonsense_spoils_the_whole_list() {
        for bad in [
            (0, Some(1002)),
            (1, Some(10)),
            (u32::MAX, Some(0)),
            (77, Some(1001)),
            (0x8000_0000, None),
        ] {
            assert_eq!(
                merge_lists(&[vec![(10, Some(1)), bad]], 1000),
                None,
                "{bad:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn merging_keeps_every_process_once(list in proptest::collection::vec((2u32..50, proptest::option::of(1u64..100)), 0..40)) {
            let merged = merge_lists(std::slice::from_ref(&list), 1000).unwrap();
            let mut pids: Vec<u32> = list.iter().map(|r| r.0).collect();
            pids.sort_unstable();
            pids.dedup();
            prop_assert_eq!(merged.iter().map(|r| r.0).collect::<Vec<_>>(), pids);
        }
    }
}
