//! The processes of a pid namespace: they all end with its first process.

use super::processes::container_cgroup;
use crate::host::processes::{Stat, all_pids, parse_cgroup};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// A process in a pid namespace below that of this `/proc`.
#[derive(Debug, Clone)]
struct Member {
    parent: u32,
    /// Its pid in each of its namespaces, the outermost first.
    numbers: Vec<u32>,
    /// Its innermost namespace; `None` without permission to read it.
    namespace: Option<PathBuf>,
    cgroups: String,
}

impl Member {
    fn read(pid: u32) -> Option<Member> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
        let numbers: Vec<u32> = numbers
            .split_ascii_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        if numbers.len() < 2 {
            return None;
        }
        let namespace = match fs::read_link(format!("/proc/{pid}/ns/pid")) {
            Ok(link) => Some(link),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => None,
            Err(_) => return None,
        };
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let stat = Stat::read(pid).filter(Stat::is_alive)?;
        Some(Member {
            parent: stat.parent,
            numbers,
            namespace,
            cgroups,
        })
    }

    fn is_first(&self) -> bool {
        self.numbers.last() == Some(&1)
    }

    fn is_in(&self, container: &str) -> bool {
        parse_cgroup(&self.cgroups).any(|l| container_cgroup(l.path, container).is_some())
    }
}

/// The processes of this host in pid namespaces of their own, at one moment.
#[derive(Debug, Clone)]
pub struct Namespaces {
    members: BTreeMap<u32, Member>,
}

impl Namespaces {
    /// Reads all processes.
    pub fn read() -> Namespaces {
        let members = all_pids().filter_map(|pid| Some((pid, Member::read(pid)?)));
        Namespaces {
            members: members.collect(),
        }
    }

    /// Host pids of the processes outside a container's cgroup in the pid namespace of `pid`, or in
    /// one below it. `None` without permission to see them.
    pub fn pid_sharers(&self, pid: u32, container: &str) -> Option<Vec<u32>> {
        // The namespace of this `/proc` does not end with any of them.
        let Some(of) = self.members.get(&pid) else {
            return Some(Vec::new());
        };
        let mut found = Vec::new();
        for (other, member) in &self.members {
            let deep = member.numbers.len() >= of.numbers.len();
            if !deep || *other == pid || member.is_in(container) {
                continue;
            }
            match (&of.namespace, &member.namespace) {
                (Some(of), Some(_)) if self.is_below(*other, of) => found.push(*other),
                (Some(_), Some(_)) => {}
                _ if self.has_own_namespace(member) => {}
                _ => return None,
            }
        }
        Some(found)
    }

    /// As [`Self::pid_sharers`] for a container's first process; none if it is not the first
    /// of its namespace, which then outlives it.
    pub fn sharers_of_first(&self, init: u32, container: &str) -> Option<Vec<u32>> {
        if self.members.get(&init).is_some_and(Member::is_first) {
            self.pid_sharers(init, container)
        } else {
            Some(Vec::new())
        }
    }

    /// Whether a process or one of its ancestors is in the namespace: the creator of a nested
    /// namespace is.
    fn is_below(&self, pid: u32, namespace: &PathBuf) -> bool {
        let above = std::iter::successors(self.members.get(&pid), |m| self.members.get(&m.parent));
        let mut above = above.take(self.members.len());
        above.any(|m| m.namespace.as_ref() == Some(namespace))
    }

    /// Whether the first process of a namespace is in the same cgroup: then this is a container
    /// with its own namespace.
    fn has_own_namespace(&self, member: &Member) -> bool {
        let same = |m: &&Member| m.cgroups == member.cgroups;
        self.members.values().filter(same).any(Member::is_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pid, parent, its numbers from the outer namespace to the inner, its namespace, its cgroup.
    type Process<'a> = (u32, u32, &'a [u32], Option<&'a str>, &'a str);

    fn namespaces(of: &[Process]) -> Namespaces {
        let member = |(pid, parent, numbers, namespace, cgroup): &Process| {
            let member = Member {
                parent: *parent,
                numbers: numbers.to_vec(),
                namespace: namespace.map(PathBuf::from),
                cgroups: format!("4:memory:/docker/{cgroup}\n"),
            };
            (*pid, member)
        };
        Namespaces {
            members: of.iter().map(member).collect(),
        }
    }

    #[test]
    fn who_ends_with_a_first_process_is_known_whoever_runs_it() {
        let (own, other) = ("a".repeat(64), "b".repeat(64));
        let all = namespaces(&[
            (10, 1, &[10, 1], Some("n1"), &own),
            (11, 10, &[11, 2], Some("n1"), &own),
            // Its own below, which its process made; and one that came in from outside.
            (12, 11, &[12, 3, 1], Some("n2"), "inner"),
            (13, 12, &[13, 4, 2], Some("n2"), "inner"),
            (20, 1, &[20, 5], Some("n1"), "session"),
            (30, 1, &[30, 1], Some("n3"), &other),
        ]);
        assert_eq!(all.pid_sharers(10, &own), Some(vec![12, 13, 20]));
        assert_eq!(all.pid_sharers(30, &other), Some(vec![]));
        assert_eq!(all.sharers_of_first(10, &own), Some(vec![12, 13, 20]));
        // It may end, and its namespace goes on.
        assert_eq!(all.sharers_of_first(20, "session"), Some(vec![]));
        // In no namespace of its own.
        assert_eq!(all.pid_sharers(7, &own), Some(vec![]));
    }

    #[test]
    fn who_cannot_be_seen_is_none_only_in_a_container_with_its_own_namespace() {
        let (own, other) = ("a".repeat(64), "b".repeat(64));
        let containers = [
            (10, 1, &[10, 1][..], None, own.as_str()),
            (30, 1, &[30, 1], None, &other),
            (31, 30, &[31, 2], None, &other),
        ];
        assert_eq!(namespaces(&containers).pid_sharers(10, &own), Some(vec![]));
        let stranger = (20, 1, &[20, 5][..], None, "session");
        let all = [&containers[..], &[stranger]].concat();
        assert_eq!(namespaces(&all).pid_sharers(10, &own), None);
    }
}
