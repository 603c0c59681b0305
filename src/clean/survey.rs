//! One look at the host after another: Docker's containers, their processes, the GPUs. It only
//! looks; what it found is judged elsewhere.

mod asking;
mod containers;
mod devices;
mod processes;

use super::facts::{ContainerLook, EngineHealth, ProcessLook, RunMark, Survey, add_held};
use super::history::ObservedContainer;
use super::never::ruler_of_cgroup;
use crate::container::Runtime;
use crate::container::freezer;
use crate::container::leftovers::{Owner, boot_id, own_runs, owner_of};
use crate::container::process::{HostProcess, list_zombies};
use crate::error::Failure;
use crate::store::{self, started, started::StartedContainer};
use crate::telemetry::{self, BackendChoice, MeasuredContainer};
use containers::ContainerDetails;
use devices::{GpuReading, HostGpus};
use futures::StreamExt;
use processes::{ProcessLooker, StuckThreads};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Engines that are asked at a time: those that hang are waited for side by side.
const ASKED_AT_A_TIME: usize = 16;

/// Below this much memory without a listed process it is not checked who has a GPU open, bytes.
const UNLISTED: u64 = 256 << 20;

/// Time limit for asking Docker again about a container that it did not list.
const PATIENCE: Duration = Duration::from_secs(5);

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurveyOptions {
    /// Which GPUs are read; [`BackendChoice::Host`]: none.
    pub memory: BackendChoice,
    /// Readings of the GPUs in each look.
    pub readings: u32,
    /// Between two readings. Drivers list their processes five times a second at most.
    pub pause: Duration,
    /// Whether it is looked at what each running container does.
    pub activity: bool,
    /// An engine that started so lately need not answer yet.
    pub starting: Duration,
}

impl Default for SurveyOptions {
    fn default() -> SurveyOptions {
        SurveyOptions {
            memory: BackendChoice::Auto,
            readings: 3,
            pause: Duration::from_millis(200),
            activity: false,
            starting: Duration::from_secs(60),
        }
    }
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostLook {
    /// The facts.
    pub survey: Survey,
    /// What each running container did, where that was asked for.
    pub observations: Vec<ObservedContainer>,
}

/// Looks at the host, and remembers what only several looks show.
pub struct Surveyor {
    runtime: Runtime,
    options: SurveyOptions,
    devices: HostGpus,
    boot: String,
    own: BTreeSet<String>,
    stuck: StuckThreads,
    engines: asking::HealthMemory,
}

impl Surveyor {
    /// Opens the GPUs. Each look reports what could not be opened.
    pub async fn open_devices(runtime: Runtime, options: SurveyOptions) -> Surveyor {
        let remote = runtime.is_remote();
        let (devices, own) = tokio::task::block_in_place(|| {
            if remote {
                (HostGpus::without_gpus(), BTreeSet::new())
            } else {
                (HostGpus::open_gpus(options.memory), containers::own_ids())
            }
        });
        Surveyor {
            runtime,
            options,
            devices,
            boot: boot_id(),
            own,
            stuck: StuckThreads::default(),
            engines: asking::HealthMemory::default(),
        }
    }

    /// Looks. `Err` only where Docker does not answer at all.
    pub async fn look_at_host(&mut self) -> Result<HostLook, Failure> {
        let mut blind = Vec::new();
        // Before the list: what is in it and not on the list is gone, and not just started.
        let records = self.records().await;
        let listed = containers::list_containers(&self.runtime, &mut blind).await?;
        let now = jiff::Timestamp::now();
        let now_ns = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        if self.runtime.is_remote() {
            blind.push("the daemon is another machine's: its containers' processes and GPUs are not visible from here".into());
        }
        let (options, healths) = (self.options, self.healths(&listed, now_ns).await);
        let mut reading = self
            .devices
            .read_gpus(options.readings.max(1), options.pause)
            .await;
        blind.append(&mut reading.blind);
        let known: BTreeSet<String> = listed.iter().map(|m| m.found.facts.id.clone()).collect();

        let mut stuck = std::mem::take(&mut self.stuck);
        let mut eyes = ProcessLooker::new(&known, &records, &reading, &mut stuck);
        let looks: Vec<ContainerLook> = tokio::task::block_in_place(|| {
            let zombies: Vec<HostProcess> = list_zombies()
                .into_iter()
                .filter_map(HostProcess::read)
                .collect();
            let look =
                |m: &ContainerDetails| self.look_at_container(m, now_ns, &zombies, &mut eyes);
            listed.iter().map(look).collect()
        });
        let looked = listed.into_iter().zip(looks);
        let (containers, mut looks) = self.once_more(looked, now_ns, &mut eyes, &mut blind).await;
        for (look, one) in looks.iter_mut().zip(&containers) {
            let health = healths.get(&look.id).filter(|_| one.is_running());
            look.health = health.copied().unwrap_or_default();
            look.gpu_bytes = gpu_bytes_of(look, &reading);
            let init = one
                .found
                .facts
                .state
                .pid
                .filter(|_| look.processes.is_some());
            let sharers = init.map(|pid| eyes.namespace_sharers(pid, &look.id, &containers));
            let shared = containers::namespace_sharers(&containers, &look.id).into_iter();
            let shared: BTreeSet<String> = shared.chain(sharers.into_iter().flatten()).collect();
            look.shared_by = shared.into_iter().collect();
        }
        let strays = self.strays(&mut eyes, &mut blind).await;
        let devices = tokio::task::block_in_place(|| opened_by(&mut eyes, &reading));
        stuck.end_look();
        self.stuck = stuck;

        let observations = self.observations(&containers, &looks, &reading).await;
        // Frozen containers, which Docker does not report, were looked at without it.
        let is_frozen = |m: &&ContainerDetails| {
            looks
                .iter()
                .any(|l| l.id == m.found.facts.id && l.freezer.is_some())
        };
        let unseen = containers::unanswered_names(containers.iter().filter(|m| !is_frozen(m)));
        let survey = Survey {
            at: now.to_string(),
            containers: looks,
            strays,
            devices,
            blind,
            unseen,
        };
        Ok(HostLook {
            survey,
            observations,
        })
    }

    /// What plimsoll started with this daemon in this boot, by container.
    async fn records(&self) -> BTreeMap<String, StartedContainer> {
        // At each look: behind the same socket another one may listen by now.
        let daemon = self.runtime.daemon_identity().await;
        let all = started::list_started(&self.boot).into_iter();
        all.filter(|s| Some(&s.daemon) == daemon.as_ref())
            .map(|s| (s.container.clone(), s))
            .collect()
    }

    /// One container, but for its health and its memory.
    fn look_at_container(
        &self,
        container: &ContainerDetails,
        now_ns: i64,
        zombies: &[HostProcess],
        eyes: &mut ProcessLooker<'_>,
    ) -> ContainerLook {
        let mut look = container.docker_look(now_ns, self.runtime.is_remote());
        let local = !self.runtime.is_remote();
        let init = container
            .found
            .facts
            .state
            .pid
            .filter(|_| container.inspected);
        let mut found = init
            .filter(|_| local)
            .and_then(|init| processes::of_container(init, &look.id, zombies));
        if !container.inspected && local {
            let state = freezer::frozen_state_file(&look.id);
            look.freezer = state.map(|path| path.display().to_string());
        }
        if look.freezer.is_some() {
            // Docker reports nothing, but the processes can be seen.
            found = Some(processes::in_cgroups_of(&BTreeSet::from([look.id.clone()])));
            look.owner = if look.ours {
                owner_of(&container.found.facts)
            } else {
                Owner::Unknown
            };
        }
        let any = found.iter().flatten().next().map(|p| p.id.pid);
        for process in found.iter().flatten() {
            let ruler = ruler_of_cgroup(&process.cgroups).map(str::to_owned);
            look.ruled_by = look.ruled_by.or(ruler);
        }
        let redactor = container.found.secrets.redactor();
        let shown = |mut process: HostProcess| {
            process.command = redactor.redact_text(&process.command).into_owned();
            eyes.look_at_process(process)
        };
        // In one that does not run there is none.
        let found = found.or_else(|| (container.inspected && init.is_none()).then(Vec::new));
        look.processes = found.map(|all| all.into_iter().map(shown).collect());
        without_own_marks(&mut look, &own_runs(&container.found.facts));
        let has_us = |p: &ProcessLook| p.pid == std::process::id();
        look.this_one = self.own.contains(&look.id) || look.processes.iter().flatten().any(has_us);
        let target = MeasuredContainer {
            init_pid: init.or(any),
            ..MeasuredContainer::of_container(&container.found.facts)
        };
        let cgroup = telemetry::cgroup_directory(&target);
        look.locked = store::is_locked(&look.id, cgroup.as_deref());
        look
    }

    /// A container that ended since it was listed is looked at again as it is now: there may be no
    /// next look. One that is gone, or being removed, is left out. One that runs with processes not
    /// visible from here is reported.
    async fn once_more(
        &self,
        looked: impl Iterator<Item = (ContainerDetails, ContainerLook)>,
        now_ns: i64,
        eyes: &mut ProcessLooker<'_>,
        blind: &mut Vec<String>,
    ) -> (Vec<ContainerDetails>, Vec<ContainerLook>) {
        let hidden = |container: &ContainerDetails, look: &ContainerLook| {
            let has_pid = container.inspected && container.found.facts.state.pid.is_some();
            has_pid && look.processes.is_none() && !self.runtime.is_remote()
        };
        let mut here = (Vec::new(), Vec::new());
        for (mut container, mut look) in looked {
            if hidden(&container, &look) {
                match self.runtime.inspect_container(&look.id).await {
                    Ok(None) => continue,
                    Ok(Some(now)) if now.facts.state.status == "removing" => continue,
                    Ok(Some(now)) if now.facts.state.pid != container.found.facts.state.pid => {
                        container = container.inspected_again(now);
                        let again = || self.look_at_container(&container, now_ns, &[], eyes);
                        look = tokio::task::block_in_place(again);
                    }
                    _ => {}
                }
            }
            if hidden(&container, &look) {
                blind.push(format!(
                    "the processes of container `{}` are not visible from here",
                    look.name
                ));
            }
            here.0.push(container);
            here.1.push(look);
        }
        here
    }

    /// How the engines are, by container.
    async fn healths(
        &mut self,
        containers: &[ContainerDetails],
        now_ns: i64,
    ) -> BTreeMap<String, EngineHealth> {
        let (runtime, starting) = (&self.runtime, self.options.starting);
        let states = futures::stream::iter(containers.iter().filter(|m| m.is_running()))
            .map(|m| async move {
                let life = (m.found.facts.id.clone(), m.found.facts.state.started_ns);
                (
                    life,
                    asking::engine_health(runtime, m, now_ns, starting).await,
                )
            })
            .buffer_unordered(ASKED_AT_A_TIME)
            .collect()
            .await;
        self.engines.note_states(states, Instant::now())
    }

    /// Processes on GPUs in no container that Docker knows, and those of recorded containers that
    /// are gone.
    async fn strays(
        &self,
        eyes: &mut ProcessLooker<'_>,
        blind: &mut Vec<String>,
    ) -> Vec<ProcessLook> {
        if self.runtime.is_remote() {
            return Vec::new();
        }
        let gone: BTreeSet<String> = eyes
            .records
            .keys()
            .filter(|id| !eyes.known.contains(*id))
            .cloned()
            .collect();
        let reading = eyes.reading;
        let (mut found, alive, inner) = tokio::task::block_in_place(|| {
            let on_gpus = reading
                .processes
                .keys()
                .filter_map(|pid| HostProcess::read(*pid));
            let mut found: BTreeMap<u32, HostProcess> = on_gpus.map(|p| (p.id.pid, p)).collect();
            let alive = processes::in_cgroups_of(&gone);
            // A container inside one of these belongs to another owner; its record is kept.
            let (alive, inner): (Vec<HostProcess>, Vec<HostProcess>) =
                alive.into_iter().partition(processes::in_one_container);
            found.extend(alive.iter().map(|p| (p.id.pid, p.clone())));
            (found, alive, inner)
        });
        // A recorded container without a process is over.
        let both = alive.iter().chain(&inner);
        let full: BTreeSet<String> = both.filter_map(|p| eyes.container_of_process(p)).collect();
        let empty = gone.iter().filter(|id| !full.contains(*id));
        let mut strange: BTreeSet<String> = empty.cloned().collect();
        strange.extend(found.values().filter_map(|p| eyes.container_of_process(p)));
        // A container started since the list is not a stray; one of unknown state is left out.
        let mut here = BTreeSet::new();
        for id in strange.into_iter().filter(|id| !eyes.known.contains(id)) {
            match tokio::time::timeout(PATIENCE, self.runtime.inspect_container(&id)).await {
                Ok(Ok(None)) if gone.contains(&id) && !full.contains(&id) => {
                    started::forget_started(&id)
                }
                Ok(Ok(None)) => {}
                Ok(Ok(Some(_))) => drop(here.insert(id)),
                Ok(Err(_)) | Err(_) => {
                    blind.push(format!(
                        "Docker did not answer whether it knows container {id}"
                    ));
                    here.insert(id);
                }
            }
        }
        found.retain(|_, process| {
            let container = eyes.container_of_process(process);
            container.is_none_or(|id| !eyes.known.contains(&id) && !here.contains(&id))
        });
        let strays = found.into_values();
        tokio::task::block_in_place(|| strays.map(|p| eyes.look_at_process(p)).collect())
    }

    /// What each running container does.
    async fn observations(
        &self,
        containers: &[ContainerDetails],
        looks: &[ContainerLook],
        reading: &GpuReading,
    ) -> Vec<ObservedContainer> {
        if !self.options.activity {
            return Vec::new();
        }
        let runtime = &self.runtime;
        let running = containers.iter().zip(looks).filter(|(m, _)| m.is_running());
        futures::stream::iter(running)
            .map(|(m, look)| async move {
                let ill = matches!(look.health, EngineHealth::Ill { .. });
                asking::observe_container(runtime, m, busy(look, reading), ill).await
            })
            .buffered(ASKED_AT_A_TIME)
            .collect()
            .await
    }
}

/// A mark that a process inherits from the container's own environment does not identify who
/// started it. The mark of a living plimsoll protects all the same.
fn without_own_marks(look: &mut ContainerLook, own: &BTreeSet<String>) {
    for process in look.processes.iter_mut().flatten() {
        let of_container =
            |mark: &RunMark| mark.owner != Owner::Alive && own.contains(&mark.run_id);
        process.mark = process.mark.take().filter(|mark| !of_container(mark));
    }
}

/// Memory of a container's processes by device; `None` where the driver does not report all of it.
fn gpu_bytes_of(look: &ContainerLook, reading: &GpuReading) -> Option<BTreeMap<String, u64>> {
    if !reading.complete {
        return None;
    }
    let pids: BTreeSet<u32> = look.processes.iter().flatten().map(|p| p.pid).collect();
    let mut sum: BTreeMap<String, u64> = BTreeMap::new();
    for (pid, on) in &reading.processes {
        if !pids.contains(pid) && on.container.as_ref() != Some(&look.id) {
            continue;
        }
        if on.unreported {
            return None;
        }
        add_held(&mut sum, &on.bytes);
    }
    Some(sum)
}

/// The busiest of the GPUs that a container holds memory on, percent.
fn busy(look: &ContainerLook, reading: &GpuReading) -> Option<u32> {
    let mut most = 0;
    for device in look.gpu_bytes.as_ref()?.keys() {
        most = most.max(*reading.busy.get(device)?);
    }
    Some(most)
}

/// The devices, each with the processes that have it open where much of it is unlisted.
fn opened_by(eyes: &mut ProcessLooker<'_>, reading: &GpuReading) -> Vec<super::facts::DeviceLook> {
    let mut devices = reading.devices.clone();
    for device in &mut devices {
        if device.unlisted_bytes.is_none_or(|bytes| bytes <= UNLISTED) {
            continue;
        }
        let holders = devices::pids_with_open_gpu(&device.id).into_iter();
        let unlisted = holders.filter(|pid| !reading.processes.contains_key(pid));
        let processes = unlisted.filter_map(HostProcess::read);
        device.open_by = processes.map(|p| eyes.look_at_process(p)).collect();
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use devices::OnDevices;

    /// A process, its container, what it holds by device, and whether more of it is unreported.
    type Listed<'a> = (u32, Option<&'a str>, &'a [(&'a str, u64)], bool);

    fn reading(of: &[Listed<'_>]) -> GpuReading {
        let processes = of.iter().map(|(pid, container, bytes, unreported)| {
            let on = OnDevices {
                container: container.map(str::to_owned),
                bytes: bytes.iter().map(|(d, b)| ((*d).to_owned(), *b)).collect(),
                unreported: *unreported,
            };
            (*pid, on)
        });
        GpuReading {
            processes: processes.collect(),
            complete: true,
            busy: BTreeMap::from([("GPU-a".into(), 3), ("GPU-b".into(), 70)]),
            ..GpuReading::default()
        }
    }

    fn container(pids: &[u32]) -> ContainerLook {
        let process = |pid: &u32| ProcessLook {
            pid: *pid,
            ..ProcessLook::default()
        };
        ContainerLook {
            id: "c".into(),
            processes: Some(pids.iter().map(process).collect()),
            ..ContainerLook::default()
        }
    }

    #[test]
    fn a_containers_memory_is_that_of_its_processes() {
        let all = reading(&[
            (7, Some("outer"), &[("GPU-a", 10), ("GPU-b", 1)], false),
            (8, Some("c"), &[("GPU-a", 5)], false),
            (9, None, &[("GPU-b", 100)], false),
        ]);
        let mut look = container(&[7]);
        look.gpu_bytes = gpu_bytes_of(&look, &all);
        let expected = BTreeMap::from([("GPU-a".to_owned(), 15), ("GPU-b".to_owned(), 1)]);
        assert_eq!(look.gpu_bytes, Some(expected));
        assert_eq!(busy(&look, &all), Some(70));
        let mut none = container(&[3]);
        none.id = "d".into();
        none.gpu_bytes = gpu_bytes_of(&none, &all);
        assert_eq!(none.gpu_bytes, Some(BTreeMap::new()));
        assert_eq!(busy(&none, &all), Some(0));
    }

    #[test]
    fn what_the_driver_does_not_report_is_unknown() {
        let mut all = reading(&[(7, Some("c"), &[("GPU-a", 10)], true)]);
        assert_eq!(gpu_bytes_of(&container(&[7]), &all), None);
        let mut other = container(&[]);
        other.id = "d".into();
        assert_eq!(gpu_bytes_of(&other, &all), Some(BTreeMap::new()));
        all.complete = false;
        assert_eq!(gpu_bytes_of(&other, &all), None);
        assert_eq!(busy(&other, &all), None);
    }
}
