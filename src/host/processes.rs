//! The processes of this host, as its `/proc` shows them.

use std::fs;
use std::path::{Path, PathBuf};

/// A process, safe from its number being used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// Host pid.
    pub pid: u32,
    /// Start time, clock ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// Whether this very process is alive; a zombie is not.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|s| s.id == self && s.is_alive())
    }
}

/// Fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The process or thread.
    pub id: ProcessId,
    /// The kernel's letter: `R`, `S`, `D`, `Z`, ...
    pub state: u8,
    /// Parent's pid; 0 without one here.
    pub parent: u32,
    /// Pid of the session's first process.
    pub session: u32,
    /// The kernel's `PF_` bits.
    pub flags: u32,
}

impl Stat {
    /// Reads those of a process; `None` if it is gone.
    pub fn read(pid: u32) -> Option<Stat> {
        Stat::read_in(Path::new("/proc"), pid)
    }

    fn read_in(proc: &Path, pid: u32) -> Option<Stat> {
        parse_stat(pid, &fs::read(proc.join(format!("{pid}/stat"))).ok()?)
    }

    /// Not a zombie: those hold nothing and cannot be signalled away.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The fields in the text of a `stat`.
pub fn parse_stat(pid: u32, stat: &[u8]) -> Option<Stat> {
    // The name in parentheses may hold anything, also `) R 1`.
    let after = &stat[memchr::memrchr(b')', stat)? + 1..];
    let text = std::str::from_utf8(after).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    Some(Stat {
        id: ProcessId {
            pid,
            started: fields.get(19)?.parse().ok()?,
        },
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        flags: fields.get(6)?.parse().ok()?,
    })
}

/// One line of `/proc/<pid>/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLine<'a> {
    /// Controllers (`memory`, `cpu,cpuacct`, `name=systemd`); empty for the v2 hierarchy.
    pub controllers: &'a str,
    /// Path below the hierarchy's mount.
    pub path: &'a str,
}

/// The lines of `/proc/<pid>/cgroup`.
pub fn parse_cgroup(text: &str) -> impl Iterator<Item = CgroupLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        Some(CgroupLine { controllers, path })
    })
}

/// The cgroups of a process, as its `/proc/PID/cgroup` has them; empty where that cannot be read.
pub fn read_cgroups(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// The name of a process (`comm`); empty where it cannot be read.
pub fn read_name(pid: u32) -> String {
    let mut name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.truncate(name.trim_end_matches('\n').len());
    name
}

/// The entries of a folder whose names are numbers: the processes of a `/proc`, the open files of a process.
pub fn numbers_in(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the open files of a process are links to, as far as they may be read.
pub fn open_files(pid: u32) -> impl Iterator<Item = PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    links.filter_map(|link| fs::read_link(link.ok()?.path()).ok())
}

/// Every process that this host's `/proc` shows.
pub fn all_pids() -> impl Iterator<Item = u32> {
    numbers_in(Path::new("/proc"))
}

/// The processes of a cgroup, by its folder. A threaded v2 cgroup names none; its processes are listed by its parent.
pub fn pids_of(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    // The kernel writes pid 0 for a process that is not visible in our pid namespace.
    pids.filter(|pid| *pid > 0).collect()
}

/// The processes of a cgroup and of those below it.
pub fn pids_in(folder: &Path) -> Vec<u32> {
    let mut pids = Vec::new();
    collect_pids(folder, 0, &mut pids);
    pids
}

fn collect_pids(folder: &Path, depth: u32, into: &mut Vec<u32>) {
    into.extend(pids_of(folder));
    // A container may make its own cgroups, but rarely nests them deeply.
    if depth > 8 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            collect_pids(&entry.path(), depth + 1, into);
        }
    }
}

/// The processes of the session of `leader`, and those that descend from it, whatever their cgroups.
pub fn tree_members(proc: &Path, leader: u32) -> Vec<u32> {
    members(proc, numbers_in(proc), leader)
}

/// Of these processes, those in the session of `leader` or descending from it.
pub fn members(proc: &Path, pids: impl IntoIterator<Item = u32>, leader: u32) -> Vec<u32> {
    let pids = pids.into_iter();
    let table: Vec<Stat> = pids.filter_map(|pid| Stat::read_in(proc, pid)).collect();
    members_of(&table, leader)
}

/// The processes in the session of `leader` or descending from it. A daemon that left the session
/// is found while its parent lives, an orphan while it is in the session.
fn members_of(table: &[Stat], leader: u32) -> Vec<u32> {
    let mut found: Vec<u32> = table
        .iter()
        .filter(|r| r.id.pid == leader || r.session == leader)
        .map(|r| r.id.pid)
        .collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        for row in table.iter().filter(|r| r.parent == parent) {
            if !found.contains(&row.id.pid) {
                found.push(row.id.pid);
            }
        }
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(pid: u32, parent: u32, session: u32) -> Stat {
        Stat {
            id: ProcessId { pid, started: 0 },
            state: b'S',
            parent,
            session,
            flags: 0,
        }
    }

    #[test]
    fn kinship_is_read_behind_the_strangest_name() {
        let stat = b"4242 (tmux: (a) 7 R 1) S 17 4242 9000 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 0 1\n";
        assert_eq!(parse_stat(4242, stat), Some(row(4242, 17, 9000)));
        assert_eq!(parse_stat(4242, b"4242 (sh"), None);
        assert_eq!(parse_stat(4242, b""), None);
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
        let mut found = members_of(&table, 200);
        found.sort_unstable();
        assert_eq!(found, [200, 201, 202, 203, 204]);
        assert_eq!(members_of(&table, 999), [0u32; 0]);
        // A table read while pids were reused may hold a ring.
        assert_eq!(members_of(&[row(5, 6, 5), row(6, 5, 6)], 5), [5, 6]);
    }

    #[test]
    fn cgroup_lines_of_v1_and_v2_are_read() {
        let lines: Vec<_> =
            parse_cgroup("9:name=systemd:/x\n4:memory:/docker/a:b\n0::/y\nbroken\n").collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            CgroupLine {
                controllers: "memory",
                path: "/docker/a:b"
            }
        );
        assert_eq!(
            lines[2],
            CgroupLine {
                controllers: "",
                path: "/y"
            }
        );
    }

    #[test]
    fn stat_is_read_past_a_hostile_name() {
        let stat = b"42 (a) R 1 (x) S 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 2 3";
        assert_eq!(
            parse_stat(42, stat),
            Some(Stat {
                id: ProcessId {
                    pid: 42,
                    started: 987_654
                },
                state: b'S',
                parent: 7,
                session: 41,
                flags: 4_194_560
            })
        );
        assert_eq!(parse_stat(1, b"1 (x"), None);
        assert_eq!(parse_stat(1, b""), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = parse_stat(1, text.as_bytes());
        }
    }
}
