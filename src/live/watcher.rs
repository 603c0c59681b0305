//! Scans the GPUs, their containers and the engines in those.

use super::{ContainerScan, GpuLook, MemoryScan, TenantLook};
use crate::capture::{ContainerFacts, DeviceFacts, LimitLevel, MemorySample, Probe, Tenants};
use crate::clock::{Clock, wall_now_ns};
use crate::container::Runtime;
use crate::container::events::ContainerNotice;
use crate::container::inspect::InspectedContainer;
use crate::container::process_log::LogSource;
use crate::container::process_target::{ProcessPlace, ProcessTarget};
use crate::engine::{self, EngineId};
use crate::error::{ExitCode, Failure};
use crate::host;
use crate::store::Recording;
use crate::telemetry::attribution::innermost_container;
use crate::telemetry::{
    self, BackendChoice, MeasuredContainer, MemoryBackend, ReplayBackend, Wanted,
};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Timeout of an engine's answer, so that all figures are of the same time.
const PATIENCE: Duration = Duration::from_millis(700);

/// The endpoint that carries the gauges.
const METRICS: &str = "/metrics";

/// Scans repeatedly, keeping its sources open.
pub struct MemoryWatcher {
    clock: Clock,
    gpus: Result<Box<dyn MemoryBackend>, String>,
    devices: Vec<DeviceFacts>,
    /// Figures of each device that are missing from some readings.
    last: Vec<Last>,
    runtime: Option<Runtime>,
    why_no_runtime: Option<String>,
    /// Whether a recording is played: this host's memory does not count then.
    plays: bool,
    known: HashMap<String, KnownContainer>,
    named: Vec<NamedProcess>,
    lives: Vec<LifeEvent>,
}

/// A start or an end that no daemon reports.
pub struct LifeEvent {
    /// What knows the engine.
    pub runtime: Runtime,
    /// The event.
    pub notice: ContainerNotice,
}

/// An engine that the user named by its process, its cgroup or its pod.
struct NamedProcess {
    place: ProcessPlace,
    /// Reads it while it lives.
    runtime: Option<Runtime>,
    /// Its id among the containers, and its name.
    id: String,
    name: String,
    /// Its processes at this scan.
    pids: Vec<u32>,
    /// Why it cannot be read now.
    absent: Option<String>,
    /// Whether it lived at an earlier scan.
    lived: bool,
}

impl NamedProcess {
    /// Finds it, or sees that it has ended. A start is an event where it is not the first one seen.
    async fn look_again(&mut self) -> Option<LifeEvent> {
        let is_new = self.runtime.is_none();
        if is_new {
            // Another process may have the number of one that ended.
            if self.lived && matches!(self.place, ProcessPlace::Pid(_)) {
                return None;
            }
            match ProcessTarget::find(&self.place, LogSource::Unnamed, innermost_container) {
                Ok(target) => self.runtime = Some(Runtime::of_process(target)),
                Err(failure) => self.absent = Some(failure.message),
            }
        }
        let runtime = self.runtime.clone()?;
        self.pids = runtime.named_pids();
        let found = runtime.inspect_container("").await.ok().flatten()?.facts;
        self.name.clone_from(&found.name);
        self.id = named_id(&found);
        let alive = found.state.pid.is_some();
        let action = if alive { "start" } else { "die" };
        let notice = ContainerNotice {
            id: self.id.clone(),
            name: found.name,
            wall_ns: wall_now_ns(),
            action: action.to_owned(),
            ..ContainerNotice::default()
        };
        self.absent = (!alive).then(|| format!("`{}` has ended", self.name));
        if !alive {
            self.runtime = None;
        }
        let restarted = is_new && std::mem::replace(&mut self.lived, true);
        (restarted || !alive).then_some(LifeEvent { runtime, notice })
    }
}

#[derive(Default, Clone)]
struct Last {
    sample: MemorySample,
    tenants: Option<Tenants>,
}

/// A container that was inspected.
struct KnownContainer {
    /// What knows it: the daemon, or this host's `/proc`.
    runtime: Runtime,
    found: InspectedContainer,
    engine: Option<EngineId>,
    serving: bool,
    /// Its cgroup.
    host: Option<Box<dyn MemoryBackend>>,
    /// Whether this host shows its process 1, which reveals a restart.
    visible: bool,
    /// Its engine did not answer at the last scan.
    is_silent: bool,
    /// Responses of its endpoints at the first scan; they contain the size of the pool.
    first: Vec<Probe>,
}

impl MemoryWatcher {
    /// Opens the GPUs and connects to the runtime. Either may be missing; the scans note it.
    pub async fn open() -> MemoryWatcher {
        let gpus = tokio::task::block_in_place(telemetry::open_host).map_err(|f| f.message);
        let mut watcher = MemoryWatcher::of_gpus(Clock::start(), gpus);
        watcher.reconnect().await;
        watcher
    }

    /// Reads these GPUs, without a runtime.
    fn of_gpus(clock: Clock, gpus: Result<Box<dyn MemoryBackend>, String>) -> MemoryWatcher {
        let devices = gpus.as_ref().map(|b| b.devices()).unwrap_or_default();
        MemoryWatcher {
            clock,
            last: vec![Last::default(); devices.len()],
            gpus,
            devices,
            runtime: None,
            why_no_runtime: None,
            plays: false,
            known: HashMap::new(),
            named: Vec::new(),
            lives: Vec::new(),
        }
    }

    /// Follows engines that the user names, too. Returns why some are not there yet: a cgroup or a pod is
    /// looked for at each scan.
    ///
    /// # Errors
    /// There is no such process, or no engine can be at such a place.
    pub fn follow_processes(&mut self, places: Vec<ProcessPlace>) -> Result<Vec<String>, Failure> {
        let mut absent = Vec::new();
        for place in places {
            let found = ProcessTarget::find(&place, LogSource::Unnamed, innermost_container);
            match found {
                Err(failure)
                    if failure.code == ExitCode::Usage || matches!(place, ProcessPlace::Pid(_)) =>
                {
                    return Err(failure);
                }
                Err(failure) => absent.push(failure.message),
                Ok(_) => {}
            }
            self.named.push(NamedProcess {
                place,
                runtime: None,
                id: String::new(),
                name: String::new(),
                pids: Vec::new(),
                absent: None,
                lived: false,
            });
        }
        Ok(absent)
    }

    /// Starts and ends of the engines that the user named, since the last scan; and what reads each.
    pub fn take_lives(&mut self) -> Vec<LifeEvent> {
        std::mem::take(&mut self.lives)
    }

    /// What reads a container of a scan.
    pub fn runtime_of(&self, container: &ContainerScan) -> Option<&Runtime> {
        Some(&self.known.get(&container.id)?.runtime)
    }

    /// Plays a recording of `record` from now on, without a daemon: containers have ids and no names.
    ///
    /// # Errors
    /// The file is not a recording, or has no sample.
    pub fn open_recording(path: &Path) -> Result<MemoryWatcher, Failure> {
        let Recording {
            header, samples, ..
        } = Recording::read_recording(path)?;
        let name = path.display().to_string();
        if samples.is_empty() {
            return Err(Failure::usage(format!(
                "the recording `{name}` has no readings: record for longer"
            )));
        }
        let clock = Clock::start();
        let replay =
            ReplayBackend::of_session(&clock, &header.backend, header.devices, samples, &name);
        Ok(MemoryWatcher {
            plays: true,
            ..MemoryWatcher::of_gpus(clock, Ok(Box::new(replay)))
        })
    }

    /// Looks for the daemon again, where none answered before.
    pub async fn reconnect(&mut self) {
        if self.runtime.is_some() || self.plays {
            return;
        }
        match Runtime::connect().await {
            Ok(runtime) => (self.runtime, self.why_no_runtime) = (Some(runtime), None),
            Err(failure) => self.why_no_runtime = Some(failure.message),
        }
    }

    /// The daemon, where one answered.
    pub fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// Why there is nothing to scan; `None` if there is something.
    pub fn why_blind(&self) -> Option<Failure> {
        match (&self.gpus, &self.why_no_runtime) {
            (Err(gpus), Some(runtime)) if self.named.is_empty() => Some(
                Failure::environment(format!("{gpus}; {runtime}"))
                    .hint("`plimsoll doctor` shows what is missing"),
            ),
            _ => None,
        }
    }

    /// Looks.
    pub async fn scan_memory(&mut self) -> MemoryScan {
        let mut notes = Vec::new();
        for process in &mut self.named {
            self.lives.extend(process.look_again().await);
            notes.extend(process.absent.clone());
        }
        let gpus = tokio::task::block_in_place(|| self.read_gpus(&mut notes));
        let (containers, all_listed) = self.scan_containers(&gpus, &mut notes).await;
        let mut look = MemoryScan {
            timestamp: (self.clock.wall_start_ns + self.clock.now()) as f64 / 1e9,
            backend: self.gpus.as_ref().ok().map(|b| b.facts()),
            gpus,
            host: host::read_state().filter(|_| !self.plays),
            containers,
            all_listed,
            notes,
        };
        for tenant in look.gpus.iter_mut().flat_map(|g| &mut g.tenants) {
            let id = tenant.container_id.as_ref();
            tenant.container_name = id
                .and_then(|id| self.known.get(id))
                .map(|k| k.found.facts.name.clone());
        }
        look
    }

    /// The GPUs alone, with the names of the containers on them, and what could not be read.
    pub async fn scan_gpus(&mut self) -> (Vec<GpuLook>, Vec<String>) {
        let mut notes = Vec::new();
        let mut gpus = tokio::task::block_in_place(|| self.read_gpus(&mut notes));
        let names = match &self.runtime {
            Some(runtime) => runtime.list_all().await.unwrap_or_default(),
            None => Vec::new(),
        };
        for tenant in gpus.iter_mut().flat_map(|gpu| &mut gpu.tenants) {
            let own = |c: &&ContainerFacts| Some(&c.id) == tenant.container_id.as_ref();
            tenant.container_name = names.iter().find(own).map(|c| c.name.clone());
        }
        (gpus, notes)
    }

    fn read_gpus(&mut self, notes: &mut Vec<String>) -> Vec<GpuLook> {
        let backend = match &mut self.gpus {
            Ok(backend) => backend,
            Err(why) => {
                notes.push(why.clone());
                return Vec::new();
            }
        };
        let wanted = Wanted {
            detail: true,
            bench_client: None,
        };
        let mut samples = Vec::new();
        if let Err(e) = backend.sample(&self.clock, wanted, &mut samples) {
            notes.push(e.to_string());
        }
        notes.extend(backend.unopened());
        notes.extend(backend.take_events().into_iter().map(|e| e.message));
        if !samples.is_empty()
            && samples.iter().all(|s| s.processes.is_none())
            && !self.last.iter().any(|l| l.tenants.is_some())
        {
            notes.push(format!(
                "the owners of the memory are unknown: {}",
                backend.facts().why_no_owners()
            ));
        }
        for sample in &mut samples {
            for process in sample.processes.iter_mut().flatten() {
                let is_its = |named: &&NamedProcess| named.pids.contains(&process.pid);
                if let Some(named) = self.named.iter().find(is_its) {
                    process.container_id = Some(named.id.clone());
                }
            }
            if let Some(last) = self.last.get_mut(sample.device as usize) {
                // Figures missing from this reading keep their last value.
                if sample.power_mw.is_some() || last.sample.power_mw.is_none() {
                    last.sample = sample.clone();
                }
                last.tenants = sample.memory_owners().or(last.tenants.take());
            }
        }
        self.devices
            .iter()
            .zip(&self.last)
            .map(|(device, last)| {
                let now = samples.iter().find(|s| s.device == device.index);
                gpu_look(device, now, last)
            })
            .collect()
    }

    /// The containers, and whether those are all.
    async fn scan_containers(
        &mut self,
        gpus: &[GpuLook],
        notes: &mut Vec<String>,
    ) -> (Vec<ContainerScan>, bool) {
        let mut running: Vec<(String, Runtime)> = Vec::new();
        let mut all_listed = self.runtime.is_some() || !self.named.is_empty();
        match &self.runtime {
            Some(runtime) => match runtime.list_running().await {
                Ok(listed) => {
                    let listed = listed.into_iter().map(|c| (c.id, runtime.clone()));
                    running.extend(listed);
                }
                Err(failure) => {
                    notes.push(failure.message);
                    all_listed = false;
                    // They live on where the daemon's restart spares them.
                    let is_visible =
                        |known: &&KnownContainer| known.visible && known.runtime.has_daemon();
                    let visible = self.known.values().filter(is_visible);
                    running.extend(visible.map(|k| (k.found.facts.id.clone(), runtime.clone())));
                }
            },
            None => notes.extend(self.why_no_runtime.clone()),
        }
        for named in &self.named {
            // The daemon knows more of a container than its processes show.
            let listed = running.iter().any(|(id, _)| *id == named.id);
            if let Some(runtime) = named.runtime.clone().filter(|_| !listed) {
                running.push((named.id.clone(), runtime));
            }
        }
        self.known
            .retain(|id, _| running.iter().any(|(c, _)| c == id));
        for (id, runtime) in &running {
            self.meet(runtime, id, notes).await;
        }
        let on_gpu = |id: &str| {
            gpus.iter()
                .flat_map(|g| &g.tenants)
                .any(|t| t.container_id.as_deref() == Some(id))
        };
        let clock = self.clock.clone();
        let mut looks = Vec::new();
        for (id, _) in &running {
            let Some(known) = self.known.get_mut(id) else {
                continue;
            };
            if known.engine.is_some() || !known.runtime.has_daemon() || on_gpu(id) {
                looks.push(known.scan_memory(id, &clock).await);
            }
        }
        (looks, all_listed)
    }

    /// Inspects a container that is new, or may have been restarted.
    async fn meet(&mut self, runtime: &Runtime, id: &str, notes: &mut Vec<String>) {
        let known = self.known.get(id);
        if known.is_some_and(|k| !k.may_be_outdated()) {
            return;
        }
        let found = match runtime.inspect_container(id).await {
            Ok(Some(found)) => found,
            // Its daemon is away, and it lives on.
            Err(_) if known.is_some_and(|k| k.visible && shows(&k.found.facts)) => return,
            _ => {
                self.known.remove(id);
                return;
            }
        };
        let recognised = engine::recognise(&found.facts);
        let host = tokio::task::block_in_place(|| {
            telemetry::open_backend(
                BackendChoice::Host,
                &MeasuredContainer::of_container(&found.facts),
            )
            .ok()
        });
        if recognised.is_none() && !runtime.has_daemon() {
            notes.push(format!(
                "no known engine in `{}`: its memory is followed, its parts are not",
                found.facts.name
            ));
        }
        let known = KnownContainer {
            runtime: runtime.clone(),
            visible: shows(&found.facts),
            engine: recognised.as_ref().map(|(engine, _)| *engine),
            serving: recognised.is_some_and(|(_, r)| r.serving),
            found,
            host,
            first: Vec::new(),
            is_silent: false,
        };
        self.known.insert(id.to_owned(), known);
    }
}

fn gpu_look(device: &DeviceFacts, now: Option<&MemorySample>, last: &Last) -> GpuLook {
    let gauge = now.map(|_| &last.sample);
    let tenants = now.and(last.tenants.as_ref());
    let mut held: Vec<TenantLook> = tenants
        .iter()
        .flat_map(|t| &t.containers)
        .map(|(id, bytes)| TenantLook {
            container_id: Some(id.clone()),
            container_name: None,
            used_bytes: *bytes,
        })
        .collect();
    if let Some(bytes) = tenants.map(|t| t.others_bytes).filter(|b| *b > 0) {
        held.push(TenantLook {
            used_bytes: bytes,
            ..TenantLook::default()
        });
    }
    GpuLook {
        index: device.index,
        uuid: device.id.clone(),
        name: device.name.clone(),
        pci_address: device.pci_address.clone(),
        total_bytes: device.total_bytes,
        shares_host: device.shares_host,
        used_bytes: now.map(|s| s.used_bytes),
        reserved_bytes: now.and_then(|s| s.reserved_bytes),
        tenants: held,
        // Beside a process without a figure what is left over may be that process's.
        unattributed_bytes: tenants
            .filter(|t| t.untold_processes == 0 || device.shares_host)
            .and_then(|t| t.unattributed_bytes),
        power_w: gauge.and_then(|s| s.power_mw).map(|mw| f64::from(mw) / 1e3),
        utilization_pct: gauge.and_then(|s| s.utilization_pct),
        temperature_c: gauge.and_then(|s| s.temperature_c),
        clock_gfx_mhz: gauge.and_then(|s| s.clock_gfx_mhz),
        clock_mem_mhz: gauge.and_then(|s| s.clock_mem_mhz),
    }
}

/// Identifies a named engine: a process tree has no id, and its name contains its pid.
fn named_id(facts: &ContainerFacts) -> String {
    match facts.id.as_str() {
        "" => facts.name.clone(),
        id => id.to_owned(),
    }
}

/// Whether this host shows the container's process 1.
fn shows(facts: &ContainerFacts) -> bool {
    telemetry::cgroup_directory(&MeasuredContainer::of_container(facts)).is_some()
}

impl KnownContainer {
    /// Whether the container may have been restarted: it keeps its id, but has another address, other
    /// processes, and a new pool. One that was looked at while it restarted shows no process, or does not answer.
    fn may_be_outdated(&self) -> bool {
        let lost = self.runtime.has_daemon() && (!self.visible || self.is_silent);
        lost || self.visible && !shows(&self.found.facts)
    }

    async fn scan_memory(&mut self, id: &str, clock: &Clock) -> ContainerScan {
        let mut host = Vec::new();
        if let Some(backend) = &mut self.host {
            // A container that has just ended uses no memory.
            let _ =
                tokio::task::block_in_place(|| backend.sample(clock, Wanted::default(), &mut host));
        }
        let limits = self
            .host
            .as_ref()
            .map(|backend| backend.devices())
            .unwrap_or_default();
        let limited = |d: &&DeviceFacts| d.limit_level != Some(LimitLevel::Host);
        let limit = limits.iter().find(limited).and_then(|d| d.total_bytes);
        let mut look = ContainerScan {
            id: id.to_owned(),
            name: self.found.facts.name.clone(),
            engine: self.engine.map(|e| e.name.to_owned()),
            simulated: self.engine.is_some_and(|e| e.simulated),
            host_bytes: host.first().map(|s| s.used_bytes),
            host: host.first().and_then(|s| s.host),
            host_peak_bytes: host.first().and_then(|s| s.kernel_peak_bytes),
            host_limit_bytes: limit.or(self.found.facts.memory_limit_bytes),
            ..ContainerScan::default()
        };
        if let Some(engine) = self.engine.filter(|_| self.serving) {
            self.ask_engine(clock, engine, &mut look).await;
            self.is_silent = !look.serving;
        }
        look
    }

    /// Reads the engine's pool and load.
    async fn ask_engine(&mut self, clock: &Clock, engine: EngineId, look: &mut ContainerScan) {
        let (runtime, facts) = (&self.runtime, &self.found.facts);
        let port = (engine.settings)(facts).port.unwrap_or(engine.default_port);
        if !self.first.iter().any(|p| p.status == Some(200)) {
            self.first.clear();
            for path in engine.endpoints.iter().filter(|p| **p != METRICS) {
                self.first
                    .extend(get_endpoint(runtime, facts, port, path, clock).await);
            }
        }
        let mut probes = self.first.clone();
        let asks_metrics = engine.endpoints.contains(&METRICS);
        if asks_metrics {
            probes.extend(get_endpoint(runtime, facts, port, METRICS, clock).await);
        }
        let facts = (engine.read_probes)(&probes);
        look.kv_pool_bytes = facts.kv_cache_bytes;
        look.kv_usage = facts.kv_cache_usage;
        look.kv_used_bytes = facts
            .kv_cache_bytes
            .zip(facts.kv_cache_usage)
            .map(|(pool, share)| (pool as f64 * share).round() as u64);
        look.requests_running = facts.requests_running;
        look.requests_waiting = facts.requests_waiting;
        look.preemptions = facts.preemptions;
        // The reading of the first scan is too old, where there is more to ask.
        let now = probes.last().filter(|p| p.path == METRICS || !asks_metrics);
        look.serving =
            now.is_some_and(|p| p.status.is_some()) && probes.iter().any(|p| p.status == Some(200));
    }
}

async fn get_endpoint(
    runtime: &Runtime,
    facts: &ContainerFacts,
    port: u16,
    path: &str,
    clock: &Clock,
) -> Option<Probe> {
    // Only from outside: a client inside the container every second would disturb it.
    let reply = tokio::time::timeout(PATIENCE, runtime.get_outside(facts, port, path));
    Some(reply.await.ok()?.into_probe(path, clock.now()))
}
