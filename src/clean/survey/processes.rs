//! The host's part of a look: processes of containers, and those that are in none that Docker
//! knows.

use super::containers::ContainerDetails;
use super::devices::GpuReading;
use crate::clean::facts::{ProcessLook, RunMark, StartRecord, StuckThread};
use crate::container::leftovers::{Owner, owner_named};
use crate::container::namespace::Namespaces;
use crate::container::process::{HostProcess, Uninterruptible, own_ancestors};
use crate::container::processes::HostView;
use crate::container::stray::process_name;
use crate::host::processes::{ProcessId, all_pids, read_cgroups};
use crate::store::started::StartedContainer;
use crate::telemetry::attribution;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// Threads in state D, from look to look.
#[derive(Debug, Default)]
pub struct StuckThreads {
    since: HashMap<ProcessId, (Option<u64>, Instant)>,
    current: BTreeSet<ProcessId>,
}

impl StuckThreads {
    /// The threads with how long they have been in the same wait.
    fn note_threads(&mut self, threads: Vec<Uninterruptible>, now: Instant) -> Vec<StuckThread> {
        let mut looks = Vec::new();
        for thread in threads {
            let first = (thread.switches, now);
            let since = self.since.entry(thread.id).or_insert(first);
            // It ran in between: this is another wait.
            if since.0 != thread.switches {
                *since = first;
            }
            self.current.insert(thread.id);
            looks.push(StuckThread {
                tid: thread.id.pid,
                waits_in: thread.waits_in,
                for_s: now.saturating_duration_since(since.1).as_secs(),
            });
        }
        looks
    }

    /// A look is over: a thread that was not in state D is not stuck.
    pub fn end_look(&mut self) {
        let current = std::mem::take(&mut self.current);
        self.since.retain(|id, _| current.contains(id));
    }
}

/// What turns a process into its look.
pub struct ProcessLooker<'a> {
    /// Containers that Docker knows.
    pub known: &'a BTreeSet<String>,
    /// What plimsoll wrote down, by container.
    pub records: &'a BTreeMap<String, StartedContainer>,
    /// Who is on the GPUs.
    pub reading: &'a GpuReading,
    /// Threads in state D.
    pub stuck: &'a mut StuckThreads,
    above: Vec<u32>,
    owners: HashMap<String, Owner>,
    namespaces: Option<Namespaces>,
    now: Instant,
}

impl<'a> ProcessLooker<'a> {
    /// Eyes for one look.
    pub fn new(
        known: &'a BTreeSet<String>,
        records: &'a BTreeMap<String, StartedContainer>,
        reading: &'a GpuReading,
        stuck: &'a mut StuckThreads,
    ) -> ProcessLooker<'a> {
        ProcessLooker {
            known,
            records,
            reading,
            stuck,
            above: own_ancestors(),
            owners: HashMap::new(),
            namespaces: None,
            now: Instant::now(),
        }
    }

    fn owner(&mut self, label: &str) -> Owner {
        let owners = &mut self.owners;
        *owners
            .entry(label.to_owned())
            .or_insert_with(|| owner_named(label))
    }

    /// The container of a process: the one that Docker knows, else the outermost.
    pub fn container_of_process(&self, process: &HostProcess) -> Option<String> {
        container_of(&process.cgroups, self.known)
    }

    /// What shares the pid namespace of a container's first process, in no container of ours:
    /// containers by name, other processes as `pid 7 (sleep)`.
    pub fn namespace_sharers(
        &mut self,
        init: u32,
        container: &str,
        containers: &[ContainerDetails],
    ) -> Vec<String> {
        let all = self.namespaces.get_or_insert_with(Namespaces::read);
        let others = all.sharers_of_first(init, container).unwrap_or_default();
        let name = |pid: u32| {
            let cgroups = read_cgroups(pid);
            let id = container_of(&cgroups, self.known);
            match id.and_then(|id| containers.iter().find(|m| m.found.facts.id == id)) {
                Some(container) => (!container.ours).then(|| container.found.facts.name.clone()),
                None => Some(process_name(pid)),
            }
        };
        let mut names: Vec<String> = others.into_iter().filter_map(name).collect();
        names.sort();
        names.dedup();
        names
    }

    /// A process as facts have it.
    pub fn look_at_process(&mut self, process: HostProcess) -> ProcessLook {
        let container = self.container_of_process(&process);
        let marks = process.marks.clone().unwrap_or_default();
        let mark = marks.run.map(|run_id| RunMark {
            run_id,
            owner: marks.owner.map_or(Owner::Unknown, |o| self.owner(&o)),
        });
        let alone = in_one_container(&process);
        let gone = container.as_ref().filter(|id| !self.known.contains(*id));
        let record = gone
            .filter(|_| alone)
            .and_then(|id| self.records.get(id))
            .cloned();
        let record = record.map(|started| StartRecord {
            owner: self.owner(&started.owner),
            container: started.container,
            name: started.name,
            started: started.started,
            daemon: started.daemon,
        });
        let shared_by = match &record {
            Some(record) => {
                let all = self.namespaces.get_or_insert_with(Namespaces::read);
                all.pid_sharers(process.id.pid, &record.container)
            }
            None => None,
        };
        // Where it cannot be seen nothing is ended: it is looked at again before.
        let shared_by = shared_by.unwrap_or_default();
        let stuck = self
            .stuck
            .note_threads(process.uninterruptible_threads(), self.now);
        let on = self.reading.processes.get(&process.id.pid);
        ProcessLook {
            pid: process.id.pid,
            started: Some(process.id.started),
            cgroup: process.cgroup_path().map(str::to_owned),
            name: process.name,
            command: process.command,
            uid: process.uid,
            parent: process.parent,
            state: Some(process.state),
            kernel: process.kernel,
            ancestor: self.above.contains(&process.id.pid),
            container,
            mark,
            record,
            shared_by,
            gpu_bytes: on.map(|on| on.bytes.clone()).unwrap_or_default(),
            stuck,
        }
    }
}

/// The container that a process with these cgroups is in: the one that Docker knows, else the
/// outermost.
fn container_of(cgroups: &str, known: &BTreeSet<String>) -> Option<String> {
    let mut ids = attribution::containers_of(cgroups);
    let at = ids.iter().position(|id| known.contains(id)).unwrap_or(0);
    (!ids.is_empty()).then(|| ids.swap_remove(at))
}

/// Whether the cgroups of a process name no more than one container. Of several the inner one was
/// started by a daemon in the outer one, or was only put below it.
pub fn in_one_container(process: &HostProcess) -> bool {
    let mut ids = attribution::containers_of(&process.cgroups).into_iter();
    let first = ids.next();
    ids.all(|id| first.as_ref() == Some(&id))
}

/// The processes of a running container, zombies too, in order of their pids. `None`: this host
/// does not show it.
pub fn of_container(init: u32, id: &str, zombies: &[HostProcess]) -> Option<Vec<HostProcess>> {
    let members = HostView::open(init, id)?.member_pids();
    let mut all: BTreeMap<u32, HostProcess> = members
        .iter()
        .filter_map(|pid| Some((*pid, HostProcess::read(*pid)?)))
        .collect();
    // The kernel takes a zombie out of its cgroup's list, and may show it in none.
    for zombie in zombies {
        let named = zombie.cgroups.contains(id);
        if named
            || zombie
                .parent
                .is_some_and(|parent| members.contains(&parent))
        {
            all.insert(zombie.id.pid, zombie.clone());
        }
    }
    Some(all.into_values().collect())
}

/// Processes in cgroups of these containers, wherever on the host.
pub fn in_cgroups_of(ids: &BTreeSet<String>) -> Vec<HostProcess> {
    if ids.is_empty() {
        return Vec::new();
    }
    let in_one = |pid: &u32| {
        let containers = attribution::containers_of(&read_cgroups(*pid));
        containers.iter().any(|id| ids.contains(id))
    };
    let pids = all_pids().filter(in_one);
    pids.filter_map(HostProcess::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn thread(tid: u32, switches: u64) -> Uninterruptible {
        Uninterruptible {
            id: ProcessId {
                pid: tid,
                started: 100,
            },
            waits_in: Some("nfs_wait".into()),
            switches: Some(switches),
        }
    }

    #[test]
    fn a_thread_is_stuck_for_as_long_as_it_is_in_one_wait() {
        let mut stuck = StuckThreads::default();
        let begin = Instant::now();
        let mut look = |threads: Vec<Uninterruptible>, s: u64| -> Vec<u64> {
            let looks = stuck.note_threads(threads, begin + Duration::from_secs(s));
            stuck.end_look();
            looks.iter().map(|t| t.for_s).collect()
        };
        assert_eq!(look(vec![thread(7, 1)], 0), [0]);
        assert_eq!(look(vec![thread(7, 1), thread(8, 1)], 30), [30, 0]);
        // One of them ran meanwhile.
        assert_eq!(look(vec![thread(7, 2), thread(8, 1)], 90), [0, 60]);
        // It was found in another state.
        assert_eq!(look(vec![thread(7, 2)], 100), [10]);
        assert_eq!(look(vec![thread(7, 2), thread(8, 1)], 110), [20, 0]);
    }

    #[test]
    fn the_container_that_docker_knows_is_the_one() {
        let (outer, inner) = ("a".repeat(64), "b".repeat(64));
        let text = format!("0::/docker/{outer}/docker/{inner}\n");
        let known = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect();
        assert_eq!(container_of(&text, &known(&[&inner])), Some(inner.clone()));
        assert_eq!(container_of(&text, &known(&[&outer])), Some(outer.clone()));
        assert_eq!(container_of(&text, &known(&[])), Some(outer));
        assert_eq!(container_of("0::/user.slice\n", &known(&[])), None);
    }

    #[test]
    fn this_process_counts_as_one_that_must_live() {
        let (known, records) = (BTreeSet::new(), BTreeMap::new());
        let reading = GpuReading::default();
        let mut stuck = StuckThreads::default();
        let mut eyes = ProcessLooker::new(&known, &records, &reading, &mut stuck);
        let me = eyes.look_at_process(HostProcess::read(std::process::id()).expect("this process"));
        assert!(me.ancestor && !me.kernel && me.mark.is_none() && me.record.is_none());
        let above = me
            .parent
            .and_then(HostProcess::read)
            .expect("who started this");
        assert!(eyes.look_at_process(above).ancestor);
    }
}
