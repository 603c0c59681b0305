//! Docker's part of a look: every container, inspected, with its owner and its scheduler.

use crate::capture::ContainerFacts;
use crate::clean::facts::ContainerLook;
use crate::clean::never::ruler_of_cgroup;
use crate::container::inspect::InspectedContainer;
use crate::container::leftovers::{Owner, owner_of};
use crate::container::teardown::labels_are_its_own;
use crate::container::{DEADLINE_LABEL, KEEP_LABEL, OWNER_LABEL, RUN_LABEL, Runtime};
use crate::error::Failure;
use crate::telemetry::attribution;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// A daemon that does not list its containers in this time does not answer.
const LIST: Duration = Duration::from_secs(20);
/// Docker can hang on one container: time limit for each.
const INSPECT: Duration = Duration::from_secs(5);
/// Containers inspected concurrently.
const AT_A_TIME: usize = 8;

/// A container as Docker reports it.
#[derive(Default)]
pub struct ContainerDetails {
    /// What Docker reports. Where it could not be inspected, the facts of the list alone.
    pub found: InspectedContainer,
    /// Whether it was inspected.
    pub inspected: bool,
    /// Whether plimsoll created it.
    pub ours: bool,
    /// Whether Docker did not report the owner of its labels.
    pub owner_unreported: bool,
}

/// Every container. `Err`: the daemon does not answer.
pub async fn list_containers(
    runtime: &Runtime,
    blind: &mut Vec<String>,
) -> Result<Vec<ContainerDetails>, Failure> {
    let listed = timeout(LIST, runtime.list_all()).await.map_err(|_| {
        let s = LIST.as_secs();
        Failure::environment(format!("Docker did not list its containers in {s} s"))
            .hint("`docker ps` hangs too? Its log: `journalctl -u docker`")
    })??;
    let mut containers: Vec<ContainerDetails> = futures::stream::iter(listed)
        .map(|facts| async move {
            let found = timeout(INSPECT, looked_at(runtime, &facts.id)).await;
            (facts, found)
        })
        .buffered(AT_A_TIME)
        .filter_map(|(facts, found)| {
            let name = facts.name.clone();
            let (container, why) = match found {
                Ok(Ok(Some(found))) => (Some(ContainerDetails::inspected(found)), None),
                // Removed meanwhile.
                Ok(Ok(None)) => (None, None),
                Ok(Err(failure)) => (
                    Some(ContainerDetails::from_list(facts)),
                    Some(failure.to_string()),
                ),
                Err(_) => {
                    let s = INSPECT.as_secs();
                    let why =
                        format!("Docker did not answer about container `{name}` within {s} s");
                    (Some(ContainerDetails::from_list(facts)), Some(why))
                }
            };
            blind.extend(why);
            std::future::ready(container)
        })
        .collect()
        .await;
    settle_owners(runtime, &mut containers, blind).await;
    Ok(containers)
}

impl ContainerDetails {
    fn inspected(found: InspectedContainer) -> ContainerDetails {
        ContainerDetails {
            found,
            inspected: true,
            ..ContainerDetails::default()
        }
    }

    /// The same container, inspected again. Its owner does not change.
    pub fn inspected_again(self, now: InspectedContainer) -> ContainerDetails {
        ContainerDetails {
            ours: self.ours,
            owner_unreported: self.owner_unreported,
            ..ContainerDetails::inspected(now)
        }
    }

    fn from_list(facts: ContainerFacts) -> ContainerDetails {
        let found = InspectedContainer {
            facts,
            ..InspectedContainer::default()
        };
        ContainerDetails {
            found,
            ..ContainerDetails::default()
        }
    }

    /// Whether it runs, and its process 1 is known.
    pub fn is_running(&self) -> bool {
        self.inspected && self.found.facts.state.status == "running"
    }

    /// Docker's part of the look. `now_ns`: wall time. `remote`: the daemon is another machine's.
    pub fn docker_look(&self, now_ns: i64, remote: bool) -> ContainerLook {
        let facts = &self.found.facts;
        // Without the lock and the processes the owner is not assumed dead.
        let known = self.ours && self.inspected;
        ContainerLook {
            id: facts.id.clone(),
            name: facts.name.clone(),
            image: facts.image.clone(),
            labels: facts.labels.clone(),
            status: facts.state.status.clone(),
            status_for_s: status_since(facts).and_then(|since| seconds_since(now_ns, since)),
            ours: self.ours,
            owner: match owner_of(facts) {
                _ if !known => Owner::Unknown,
                // Processes of another machine cannot be checked from here.
                Owner::Dead if remote => Owner::Unknown,
                owner => owner,
            },
            past_deadline_s: past_deadline(facts, now_ns).filter(|_| self.ours),
            ruled_by: ruled_by(facts, self.found.cgroup_parent.as_deref()),
            ..ContainerLook::default()
        }
    }
}

/// Names of the containers that run in a container's pid namespace and are not ours: they end with
/// its first process. In the order of their names.
pub fn namespace_sharers(all: &[ContainerDetails], id: &str) -> Vec<String> {
    let in_it = |m: &&ContainerDetails| {
        let mut lives_in = m.found.lives_in.as_deref();
        // Who shares a sharer's namespace shares this one too; a loop cannot be.
        for _ in 0..all.len() {
            let Some(host) = lives_in.and_then(|w| all.iter().find(|m| is_called(m, w))) else {
                return false;
            };
            if host.found.facts.id == id {
                return true;
            }
            lives_in = host.found.lives_in.as_deref();
        }
        false
    };
    let lives =
        |m: &&ContainerDetails| matches!(m.found.facts.state.status.as_str(), "running" | "paused");
    let others = all.iter().filter(|m| !m.ours).filter(lives).filter(in_it);
    let mut names: Vec<String> = others.map(|m| m.found.facts.name.clone()).collect();
    names.sort();
    names
}

fn is_called(container: &ContainerDetails, word: &str) -> bool {
    container.found.facts.id == word || container.found.facts.name == word
}

/// A container on the list. That it is gone is accepted after two answers.
async fn looked_at(runtime: &Runtime, id: &str) -> Result<Option<InspectedContainer>, Failure> {
    match runtime.inspect_container(id).await? {
        Some(found) => Ok(Some(found)),
        None => runtime.inspect_container(id).await,
    }
}

/// Names of those with our labels that cannot be judged for want of an answer.
pub fn unanswered_names<'a>(containers: impl Iterator<Item = &'a ContainerDetails>) -> Vec<String> {
    let unseen = |m: &&ContainerDetails| labelled(m) && (!m.inspected || m.owner_unreported);
    let names = containers
        .filter(unseen)
        .map(|m| m.found.facts.name.clone());
    names.collect()
}

fn labelled(container: &ContainerDetails) -> bool {
    let has = |label: &str| container.found.facts.labels.contains_key(label);
    has(RUN_LABEL) && has(OWNER_LABEL) && !has(KEEP_LABEL)
}

/// Both labels can come with an image that was made of a container of ours: then they belong to
/// that container, and this one to another owner.
async fn settle_owners(runtime: &Runtime, all: &mut [ContainerDetails], blind: &mut Vec<String>) {
    let images: BTreeSet<String> = all
        .iter()
        .filter(|m| labelled(m))
        .map(|m| m.found.facts.image_id.clone())
        .collect();
    let labels: BTreeMap<String, Result<Option<BTreeMap<String, String>>, ()>> =
        futures::stream::iter(images)
            .map(|image| async move {
                let asked = timeout(INSPECT, runtime.image_labels(&image)).await;
                (image, asked.map_err(|_| ()).and_then(|l| l.map_err(|_| ())))
            })
            .buffered(AT_A_TIME)
            .collect()
            .await;
    for one in all.iter_mut().filter(|m| labelled(m)) {
        let answer = labels.get(&one.found.facts.image_id);
        one.owner_unreported = matches!(answer, Some(Err(())));
        let image = answer.and_then(|labels| labels.as_ref().ok());
        match image.and_then(Option::as_ref) {
            Some(image) => {
                one.ours = labels_are_its_own(&one.found.facts, image);
            }
            None => blind.push(format!(
                "the origin of the labels of container `{}` is unknown, because its image is missing: it counts as not created by plimsoll",
                one.found.facts.name
            )),
        }
    }
}

/// Since when it has its status, wall nanoseconds.
fn status_since(facts: &ContainerFacts) -> Option<i64> {
    let state = &facts.state;
    match state.status.as_str() {
        "running" => state.started_ns,
        "created" => facts.created_ns,
        "exited" | "dead" | "restarting" => state.finished_ns,
        // Docker does not report since when.
        _ => None,
    }
}

/// Whole seconds from one moment to another, 0 where the clocks disagree.
pub fn seconds_since(now_ns: i64, since_ns: i64) -> Option<u64> {
    u64::try_from(now_ns.saturating_sub(since_ns).max(0) / 1_000_000_000).ok()
}

fn past_deadline(facts: &ContainerFacts, now_ns: i64) -> Option<i64> {
    Some(match facts.labels.get(DEADLINE_LABEL)?.parse::<i64>() {
        Ok(deadline) => (now_ns / 1_000_000_000).saturating_sub(deadline),
        // One that cannot be read may be ahead, and shields as such.
        Err(_) => i64::MIN,
    })
}

/// Who else rules a container, by its labels and the cgroup that it is to be in.
fn ruled_by(facts: &ContainerFacts, cgroup: Option<&str>) -> Option<String> {
    let kubernetes = facts.labels.keys().any(|l| l.starts_with("io.kubernetes."));
    if kubernetes {
        Some("Kubernetes".to_owned())
    } else {
        cgroup.and_then(ruler_of_cgroup).map(str::to_owned)
    }
}

/// Ids of the containers that this process runs in.
pub fn own_ids() -> BTreeSet<String> {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let found = attribution::containers_of(&text("/proc/self/cgroup"));
    let mut ids = BTreeSet::from_iter(found);
    ids.extend(ids_in_mounts(&text("/proc/self/mountinfo")));
    ids
}

/// In a cgroup namespace of its own a process does not see its path. Docker mounts three files
/// from the container's folder into it.
fn ids_in_mounts(mountinfo: &str) -> impl Iterator<Item = String> {
    mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let ours = matches!(point, "/etc/hostname" | "/etc/hosts" | "/etc/resolv.conf");
        let id = root.split('/').find(|part| part.len() == 64)?;
        (ours && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ContainerState;
    use crate::container::launch;

    #[test]
    fn the_ruler_of_a_container_is_known_by_labels_and_cgroup() {
        let mut facts = ContainerFacts::default();
        assert_eq!(ruled_by(&facts, Some("/docker")), None);
        for (cgroup, who) in [
            ("/kubepods/burstable/pod1", Some("Kubernetes")),
            ("kubepods-besteffort-pod3.slice", Some("Kubernetes")),
            (
                "/kubelet.slice/kubelet-kubepods.slice/x",
                Some("Kubernetes"),
            ),
            ("/slurm/uid_1000/job_7/step_0", Some("Slurm")),
            ("0::/system.slice/slurmstepd.scope/job_3\n", Some("Slurm")),
            ("4:memory:/slurm_node1/uid_0/job_2\n", Some("Slurm")),
            ("/system.slice/docker-abc.scope", None),
            // It may be, and that protects.
            ("/user.slice/myslurm", Some("Slurm")),
        ] {
            assert_eq!(ruled_by(&facts, Some(cgroup)).as_deref(), who, "{cgroup}");
        }
        facts
            .labels
            .insert("io.kubernetes.pod.name".into(), "p".into());
        assert_eq!(ruled_by(&facts, None).as_deref(), Some("Kubernetes"));
    }

    #[test]
    fn who_lives_in_a_pid_namespace_is_known_by_name() {
        let one = |id: &str, lives_in: Option<&str>, status: &str, ours| {
            let mut facts = ContainerFacts {
                id: id.into(),
                name: format!("name-{id}"),
                ..ContainerFacts::default()
            };
            facts.state.status = status.into();
            let mut container = ContainerDetails::from_list(facts);
            container.found.lives_in = lives_in.map(str::to_owned);
            container.ours = ours;
            container
        };
        let containers = [
            one("a", None, "running", true),
            one("c", Some("b"), "paused", false),
            one("b", Some("a"), "running", false),
            one("d", Some("a"), "exited", false),
            one("e", Some("a"), "running", true),
            one("f", None, "running", false),
        ];
        assert_eq!(namespace_sharers(&containers, "a"), ["name-b", "name-c"]);
        assert_eq!(namespace_sharers(&containers, "b"), ["name-c"]);
        for alone in ["c", "d", "e", "f"] {
            assert_eq!(namespace_sharers(&containers, alone), [""; 0], "{alone}");
        }
    }

    #[test]
    fn a_deadline_is_counted_from_its_label() {
        let mut facts = ContainerFacts::default();
        assert_eq!(past_deadline(&facts, 0), None);
        facts.labels.insert(DEADLINE_LABEL.into(), "100".into());
        assert_eq!(past_deadline(&facts, 130_000_000_000), Some(30));
        assert_eq!(past_deadline(&facts, 90_000_000_000), Some(-10));
        facts.labels.insert(DEADLINE_LABEL.into(), "soon".into());
        let ahead = past_deadline(&facts, 130_000_000_000);
        assert!(ahead.is_some_and(|past| past < 0), "it may be ahead");
    }

    #[test]
    fn a_status_lasts_since_what_brought_it() {
        let mut facts = ContainerFacts {
            created_ns: Some(1),
            state: ContainerState {
                started_ns: Some(2),
                finished_ns: Some(3),
                ..ContainerState::default()
            },
            ..ContainerFacts::default()
        };
        for (status, since) in [
            ("running", Some(2)),
            ("created", Some(1)),
            ("exited", Some(3)),
            ("dead", Some(3)),
            ("paused", None),
            ("removing", None),
        ] {
            facts.state.status = status.into();
            assert_eq!(status_since(&facts), since, "{status}");
        }
        assert_eq!(seconds_since(5_900_000_000, 1_000_000_000), Some(4));
        assert_eq!(seconds_since(0, 1_000_000_000), Some(0));
    }

    #[test]
    fn a_process_in_a_container_finds_it_by_dockers_mounts() {
        let id = "7".repeat(64);
        let mounts = format!(
            "36 35 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n\
             37 35 0:52 / /var/lib/docker/containers/{}/mounts/shm rw - tmpfs shm rw\n\
             38 35 8:1 /data/{} /data rw - ext4 /dev/sda1 rw\n",
            "8".repeat(64),
            "9".repeat(64)
        );
        assert_eq!(ids_in_mounts(&mounts).collect::<Vec<_>>(), [id]);
    }

    /// Ours, of an owner of this boot that has ended.
    fn abandoned() -> ContainerDetails {
        let mut container = ContainerDetails::from_list(ContainerFacts::default());
        container.ours = true;
        // No pid is as great as this one.
        let owner =
            launch::owner_label().replace(&format!(":{}:", std::process::id()), ":4194305:");
        container
            .found
            .facts
            .labels
            .insert(OWNER_LABEL.into(), owner);
        container
    }

    #[test]
    fn of_a_container_that_docker_hangs_on_the_owner_is_not_known() {
        let mut container = abandoned();
        assert_eq!(container.docker_look(0, false).owner, Owner::Unknown);
        container.inspected = true;
        assert_eq!(container.docker_look(0, false).owner, Owner::Dead);
    }

    #[test]
    fn no_owner_on_another_machine_counts_as_dead() {
        let mut container = abandoned();
        container.inspected = true;
        assert_eq!(container.docker_look(0, true).owner, Owner::Unknown);
        container
            .found
            .facts
            .labels
            .insert(OWNER_LABEL.into(), launch::owner_label());
        assert_eq!(container.docker_look(0, true).owner, Owner::Alive);
    }
}
