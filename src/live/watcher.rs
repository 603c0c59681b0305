//! Scans the GPUs, their containers and the engines in those.

use super::{ContainerScan, GpuLook, MemoryScan, TenantLook};
use crate::capture::{ContainerFacts, DeviceFacts, LimitLevel, MemorySample, Probe, Tenants};
use crate::clock::Clock;
use crate::container::Runtime;
use crate::container::inspect::InspectedContainer;
use crate::engine::{self, EngineId};
use crate::error::Failure;
use crate::host;
use crate::store::Recording;
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
    /// Whether a recording is played: this host's memory says nothing then.
    plays: bool,
    known: HashMap<String, KnownContainer>,
}

#[derive(Default, Clone)]
struct Last {
    sample: MemorySample,
    tenants: Option<Tenants>,
}

/// A container that was inspected.
struct KnownContainer {
    found: InspectedContainer,
    engine: Option<EngineId>,
    serving: bool,
    /// Its cgroup.
    host: Option<Box<dyn MemoryBackend>>,
    /// Whether this host shows its process 1, which reveals a restart.
    visible: bool,
    /// Responses of its endpoints at the first scan; they contain the size of the pool.
    first: Vec<Probe>,
}

impl MemoryWatcher {
    /// Opens the GPUs and connects to the runtime. Either may be missing; the scans note it.
    pub async fn open() -> MemoryWatcher {
        let gpus = tokio::task::block_in_place(telemetry::open_host).map_err(|f| f.message);
        let devices = gpus.as_ref().map(|b| b.devices()).unwrap_or_default();
        let (runtime, why_no_runtime) = match Runtime::connect().await {
            Ok(runtime) => (Some(runtime), None),
            Err(failure) => (None, Some(failure.message)),
        };
        MemoryWatcher {
            clock: Clock::start(),
            last: vec![Last::default(); devices.len()],
            gpus,
            devices,
            runtime,
            why_no_runtime,
            plays: false,
            known: HashMap::new(),
        }
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
            return Err(Failure::usage(format!("there is no sample in `{name}`")));
        }
        let clock = Clock::start();
        let devices = header.devices.clone();
        let replay =
            ReplayBackend::of_session(&clock, &header.backend, header.devices, samples, &name);
        Ok(MemoryWatcher {
            clock,
            last: vec![Last::default(); devices.len()],
            gpus: Ok(Box::new(replay)),
            devices,
            runtime: None,
            why_no_runtime: None,
            plays: true,
            known: HashMap::new(),
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
            (Err(gpus), Some(runtime)) => Some(
                Failure::environment(format!("{gpus}; {runtime}"))
                    .hint("`plimsoll doctor` shows what is missing"),
            ),
            _ => None,
        }
    }

    /// Looks.
    pub async fn scan_memory(&mut self) -> MemoryScan {
        let mut notes = Vec::new();
        let gpus = tokio::task::block_in_place(|| self.read_gpus(&mut notes));
        let containers = self.containers(&gpus, &mut notes).await;
        let mut look = MemoryScan {
            timestamp: (self.clock.wall_start_ns + self.clock.now()) as f64 / 1e9,
            backend: self.gpus.as_ref().ok().map(|b| b.facts()),
            gpus,
            host: host::read_state().filter(|_| !self.plays),
            containers,
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
        notes.extend(backend.take_events().into_iter().map(|e| e.message));
        if !samples.is_empty()
            && samples.iter().all(|s| s.processes.is_none())
            && !self.last.iter().any(|l| l.tenants.is_some())
        {
            notes.push(format!(
                "the owners of the memory are unknown: {}",
                backend.facts().reason
            ));
        }
        for sample in &samples {
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

    async fn containers(
        &mut self,
        gpus: &[GpuLook],
        notes: &mut Vec<String>,
    ) -> Vec<ContainerScan> {
        let Some(runtime) = self.runtime.clone() else {
            notes.extend(self.why_no_runtime.clone());
            return Vec::new();
        };
        let running = match runtime.list_running().await {
            Ok(running) => running,
            Err(failure) => {
                notes.push(failure.message);
                return Vec::new();
            }
        };
        self.known
            .retain(|id, known| running.iter().any(|c| c.id == *id) && !known.was_restarted());
        for container in &running {
            self.meet(&runtime, container).await;
        }
        let on_gpu = |id: &str| {
            gpus.iter()
                .flat_map(|g| &g.tenants)
                .any(|t| t.container_id.as_deref() == Some(id))
        };
        let clock = self.clock.clone();
        let mut looks = Vec::new();
        for container in &running {
            let Some(known) = self.known.get_mut(&container.id) else {
                continue;
            };
            if known.engine.is_some() || on_gpu(&container.id) {
                looks.push(known.scan_memory(&runtime, &clock).await);
            }
        }
        looks
    }

    /// Inspects a new container.
    async fn meet(&mut self, runtime: &Runtime, container: &ContainerFacts) {
        if self.known.contains_key(&container.id) {
            return;
        }
        let Ok(Some(found)) = runtime.inspect_container(&container.id).await else {
            return;
        };
        let recognised = engine::recognise(&found.facts);
        let host = tokio::task::block_in_place(|| {
            telemetry::open_backend(
                BackendChoice::Host,
                &MeasuredContainer::of_container(&found.facts),
            )
            .ok()
        });
        let known = KnownContainer {
            visible: shows(&found.facts),
            engine: recognised.as_ref().map(|(engine, _)| *engine),
            serving: recognised.is_some_and(|(_, r)| r.serving),
            found,
            host,
            first: Vec::new(),
        };
        self.known.insert(container.id.clone(), known);
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
        unattributed_bytes: tenants.and_then(|t| t.unattributed_bytes),
        power_w: gauge.and_then(|s| s.power_mw).map(|mw| f64::from(mw) / 1e3),
        utilization_pct: gauge.and_then(|s| s.utilization_pct),
        temperature_c: gauge.and_then(|s| s.temperature_c),
        clock_gfx_mhz: gauge.and_then(|s| s.clock_gfx_mhz),
        clock_mem_mhz: gauge.and_then(|s| s.clock_mem_mhz),
    }
}

/// Whether this host shows the container's process 1.
fn shows(facts: &ContainerFacts) -> bool {
    telemetry::cgroup_directory(&MeasuredContainer::of_container(facts)).is_some()
}

impl KnownContainer {
    /// Whether the container was restarted: it keeps its id, but has another address, other
    /// processes, and a new pool.
    fn was_restarted(&self) -> bool {
        self.visible && !shows(&self.found.facts)
    }

    async fn scan_memory(&mut self, runtime: &Runtime, clock: &Clock) -> ContainerScan {
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
            id: self.found.facts.id.clone(),
            name: self.found.facts.name.clone(),
            engine: self.engine.map(|e| e.name().to_owned()),
            simulated: self.engine.is_some_and(|e| e.simulated()),
            host_bytes: host.first().map(|s| s.used_bytes),
            host: host.first().and_then(|s| s.host),
            host_peak_bytes: host.first().and_then(|s| s.kernel_peak_bytes),
            host_limit_bytes: limit.or(self.found.facts.memory_limit_bytes),
            ..ContainerScan::default()
        };
        if let Some(engine) = self.engine.filter(|_| self.serving) {
            self.ask_engine(runtime, clock, engine, &mut look).await;
        }
        look
    }

    /// Reads the engine's pool and load.
    async fn ask_engine(
        &mut self,
        runtime: &Runtime,
        clock: &Clock,
        engine: EngineId,
        look: &mut ContainerScan,
    ) {
        let facts = &self.found.facts;
        let port = engine.settings(facts).port.unwrap_or(engine.default_port());
        if !self.first.iter().any(|p| p.status == Some(200)) {
            self.first.clear();
            for path in engine.endpoints().iter().filter(|p| **p != METRICS) {
                self.first
                    .extend(get_endpoint(runtime, facts, port, path, clock).await);
            }
        }
        let mut probes = self.first.clone();
        let asks_metrics = engine.endpoints().contains(&METRICS);
        if asks_metrics {
            probes.extend(get_endpoint(runtime, facts, port, METRICS, clock).await);
        }
        let facts = engine.read_probes(&probes);
        look.kv_pool_bytes = facts.kv_cache_bytes;
        look.kv_usage = facts.kv_cache_usage;
        look.kv_used_bytes = facts
            .kv_cache_bytes
            .zip(facts.kv_cache_usage)
            .map(|(pool, share)| (pool as f64 * share).round() as u64);
        look.requests_running = facts.requests_running;
        look.requests_waiting = facts.requests_waiting;
        look.preemptions = facts.preemptions;
        // What was read at the first scan says nothing about now, where there is more to ask.
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
    let reply = reply.await.ok()?;
    Some(Probe {
        at_ns: clock.now(),
        path: path.to_owned(),
        route: reply.route,
        status: reply.status,
        body: reply.body,
        error: reply.error,
    })
}
