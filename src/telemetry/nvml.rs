//! NVIDIA GPUs through NVML; the only user of nvml-wrapper. The library is loaded on first use, so
//! plimsoll runs without it.

mod calls;
mod events;
mod gpu;
mod library;
mod lists;

pub use library::{LIBRARY_VARIABLE, is_named, use_library};

use super::attribution;
use super::attribution::Attribution;
use super::costs::CallLedger;
use super::gpus::{self, ContainerGpuRequest, GpuRequestItem, Listed};
use super::{MeasuredContainer, MemoryBackend, Reading, ReadingError, Wanted};
use crate::capture::{BackendFacts, CallCost, DeviceEvent, DeviceFacts, MemorySample};
use crate::clock::{Clock, to_nanos};
use crate::error::Failure;
use crate::wording::count_noun;
use calls::{ListedDevice, list_devices};
use events::EventWatch;
use gpu::{MemoryCall, NvmlGpu};
use library::loaded_library;
use lists::{ListTrouble, ProcessLists};
use nvml_wrapper::Nvml;
use std::time::Duration;

/// Only our simulated library has driver versions with this prefix.
const SIMULATED_PREFIX: &str = "fake-";

/// Reads the GPUs that a container can see, or all of the host.
pub struct NvmlBackend {
    gpus: Vec<NvmlGpu>,
    facts: BackendFacts,
    lists: ListQuality,
    attribution: Attribution,
    watch: Option<EventWatch>,
    costs: CallLedger,
    happened: Vec<DeviceEvent>,
    unopened: Vec<String>,
}

/// Whether the driver's process lists can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListQuality {
    Good,
    /// Unusable from the start; `reason` explains why.
    Useless,
    /// Found to be nonsense while sampling.
    Spoilt,
}

impl NvmlBackend {
    /// Opens the GPUs of `request`, or without one those on which the container has a process.
    pub fn open_for(
        target: &MeasuredContainer,
        request: Option<&ContainerGpuRequest>,
    ) -> Result<Box<dyn MemoryBackend>, Failure> {
        let nvml = loaded_library()?;
        let driver = nvml.sys_driver_version().ok();
        let (devices, mut notes) = list_devices(nvml)?;
        let (chosen, found) = match request {
            Some(request) => {
                let (chosen, why_not) = asked_for(request, &devices)?;
                notes.extend(why_not);
                let found_in = request.found_in;
                let found = format!(
                    "the container has {} according to {found_in}",
                    count_noun(chosen.len(), "GPU")
                );
                (chosen, found)
            }
            None => {
                let chosen = if broken_lists(driver.as_deref()) {
                    Vec::new()
                } else {
                    in_use(nvml, target, &devices)
                };
                if chosen.is_empty() {
                    return Err(Failure::environment(
                        "it asks for no GPU, and none of its processes is on one",
                    ));
                }
                let found = format!(
                    "a process of the container is on {}",
                    count_noun(chosen.len(), "GPU")
                );
                (chosen, found)
            }
        };
        let of_interest = (target.init_pid).map(|pid| (pid, target.container_id.as_str()));
        let attribution = Attribution::new(of_interest);
        let backend = Self::open_chosen(devices, &chosen, found, notes, attribution)?;
        Ok(Box::new(backend))
    }

    /// Opens every GPU of the host, for all its containers; with the `items` for slices, every slice.
    pub fn of_host(items: GpuRequestItem) -> Result<Box<dyn MemoryBackend>, Failure> {
        let (devices, notes) = list_devices(loaded_library()?)?;
        let all = ContainerGpuRequest {
            items: vec![items],
            found_in: "",
            doubtful: false,
        };
        let (chosen, _) = asked_for(&all, &devices)?;
        let found = format!("the host has {}", count_noun(chosen.len(), "GPU"));
        let unknown = notes.clone();
        let mut backend =
            Self::open_chosen(devices, &chosen, found, notes, Attribution::new(None))?;
        backend.unopened.extend(unknown);
        Ok(Box::new(backend))
    }

    fn open_chosen(
        devices: Vec<ListedDevice>,
        chosen: &[u32],
        found: String,
        mut notes: Vec<String>,
        attribution: Attribution,
    ) -> Result<NvmlBackend, Failure> {
        let nvml = loaded_library()?;
        let driver = nvml.sys_driver_version().ok();
        let ask_lists = attribution.refusal().is_none() && !broken_lists(driver.as_deref());
        let mut gpus = Vec::new();
        let mut unopened = Vec::new();
        for (device, listed) in devices
            .into_iter()
            .filter(|(_, l)| chosen.contains(&l.index))
        {
            match NvmlGpu::open(nvml, device, &listed, gpus.len() as u32, ask_lists) {
                Ok(gpu) => gpus.push(gpu),
                Err(why) => {
                    unopened.push(why.clone());
                    notes.push(why);
                }
            }
        }
        if gpus.is_empty() {
            return Err(Failure::environment(format!(
                "no GPU of the container can be read: {}",
                notes.join("; ")
            )));
        }
        let lists = describe_readings(&gpus, driver.as_deref(), &attribution, &mut notes);
        let whole = gpus
            .iter()
            .filter_map(|g| nvml.device_by_uuid(g.facts.id.as_str()).ok());
        let watch = EventWatch::start_watching(nvml, whole.collect());
        notes.insert(0, found);
        let simulated = (driver.as_deref()).is_some_and(|d| d.starts_with(SIMULATED_PREFIX));
        Ok(NvmlBackend {
            gpus,
            facts: BackendFacts {
                name: "nvml".into(),
                version: driver,
                simulated,
                reason: notes.join("; "),
            },
            lists,
            attribution,
            watch,
            costs: CallLedger::default(),
            happened: Vec::new(),
            unopened,
        })
    }

    /// Collects the events of the watch thread.
    fn listen(&mut self, clock: &Clock) {
        let Some(watch) = &self.watch else { return };
        for event in watch.take_events() {
            let gpu = event
                .uuid
                .as_ref()
                .and_then(|uuid| self.gpus.iter().find(|g| g.facts.id == *uuid));
            let called = gpu.map_or("a GPU".to_owned(), NvmlGpu::display_name);
            self.happened.push(DeviceEvent {
                at_ns: clock.now() - to_nanos(event.at.elapsed()),
                device: gpu.map_or(0, |g| g.facts.index),
                code: event.code.into(),
                message: format!("{called}: {}", event.message),
            });
        }
        // A failing GPU repeats its events for hours; the first ones suffice.
        self.happened.truncate(MOST_EVENTS);
    }
}

/// Maximum number of events kept per run.
const MOST_EVENTS: usize = 200;

fn broken_lists(driver: Option<&str>) -> bool {
    driver.is_some_and(attribution::has_broken_lists)
}

/// Adds to `notes` what is read in an unusual way or not at all.
fn describe_readings(
    gpus: &[NvmlGpu],
    driver: Option<&str>,
    attribution: &Attribution,
    notes: &mut Vec<String>,
) -> ListQuality {
    if gpus.iter().any(|g| g.layout == MemoryCall::V1) {
        notes.push("used memory includes what the driver reserves, because this driver does not report it separately".into());
    }
    for gpu in gpus.iter().filter(|g| g.facts.shares_host) {
        notes.push(format!(
            "{} has no memory of its own and shares the host's: the operating system and all processes count as in use",
            gpu.display_name()
        ));
    }
    for gpu in gpus.iter().filter(|g| g.sliced) {
        notes.push(format!(
            "{} is split into MIG slices: its memory and processes are those of all slices together, and its utilisation is not reported",
            gpu.display_name()
        ));
    }
    if gpus.iter().any(|g| g.slice) {
        notes.push("of a MIG slice memory and processes are read; power, temperature, clocks and utilisation are those of the whole GPU and are left out".into());
    }
    if gpus.iter().any(|g| g.accounting) {
        notes.push("the driver's accounting is on, so the highest use of each process is its own account of it".into());
    }
    if let Some(refusal) = attribution.refusal() {
        notes.push(refusal.into());
        return ListQuality::Useless;
    }
    if broken_lists(driver) {
        notes.push("memory per process is left out, because the process lists of this driver version are broken".into());
        return ListQuality::Useless;
    }
    if gpus.iter().all(|g| g.lists.is_none()) {
        notes.push("this driver lists no processes".into());
        return ListQuality::Useless;
    }
    ListQuality::Good
}

/// The GPUs of a request, by index, and the reasons for missing ones.
fn asked_for(
    request: &ContainerGpuRequest,
    devices: &[ListedDevice],
) -> Result<(Vec<u32>, Vec<String>), Failure> {
    let listed: Vec<Listed> = devices.iter().map(|(_, listed)| listed.clone()).collect();
    let (chosen, why_not) = gpus::select_gpus(request, &listed);
    if chosen.is_empty() {
        let why = why_not.join("; ");
        return Err(Failure::environment(format!(
            "the container can see none of the host's GPUs: {why}"
        )));
    }
    Ok((chosen, why_not))
}

/// The GPUs on which the container has a process.
fn in_use(nvml: &Nvml, target: &MeasuredContainer, devices: &[ListedDevice]) -> Vec<u32> {
    let Some(init) = target.init_pid else {
        return Vec::new();
    };
    let mut attribution = Attribution::new(Some((init, &target.container_id)));
    if attribution.refusal().is_some() {
        return Vec::new();
    }
    let used = devices.iter().filter(|(device, listed)| {
        listed.slice.is_none()
            && ProcessLists::for_device(nvml, device)
                .and_then(|mut lists| lists.read_lists(nvml, device, u64::MAX).ok())
                .is_some_and(|raw| {
                    attribution
                        .identify_processes(&raw)
                        .iter()
                        .any(|p| p.ours == Some(true))
                })
    });
    used.map(|(_, listed)| listed.index).collect()
}

/// Driver version and GPUs of this host, on one line.
pub fn survey_gpus() -> Result<String, Failure> {
    let nvml = loaded_library()?;
    let (found, _) = list_devices(nvml)?;
    let driver = nvml
        .sys_driver_version()
        .unwrap_or_else(|_| "of unknown version".into());
    let names: Vec<String> = found
        .iter()
        .filter(|(_, l)| l.slice.is_none())
        .map(|(d, l)| format!("GPU {} {}", l.index, d.name().unwrap_or_default()))
        .collect();
    Ok(format!(
        "driver {driver}, {}: {}",
        count_noun(names.len(), "GPU"),
        names.join(", ")
    ))
}

impl MemoryBackend for NvmlBackend {
    fn facts(&self) -> BackendFacts {
        let mut facts = self.facts.clone();
        if self.lists == ListQuality::Spoilt {
            facts.reason +=
                "; the driver's process lists turned out to be nonsense and are left out";
        }
        facts
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.gpus.iter().map(|g| g.facts.clone()).collect()
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        let mut errors = Vec::new();
        self.attribution.begin_reading();
        for gpu in self.gpus.iter_mut().filter(|g| !g.lost) {
            match gpu.read_sample(clock, wanted.detail, &mut self.costs) {
                Ok(mut sample) => {
                    if self.lists == ListQuality::Good
                        && gpu.processes_are_due(sample.at_ns, wanted.detail)
                    {
                        match gpu.read_processes(clock, &mut self.attribution, &mut self.costs) {
                            Ok(processes) => sample.processes = processes,
                            Err(ListTrouble::Nonsense) => self.lists = ListQuality::Spoilt,
                            Err(ListTrouble::Driver(_)) => {}
                        }
                    }
                    into.push(sample);
                }
                Err(e) => {
                    let message = gpu.note_failure(&e);
                    if gpu.lost {
                        self.happened.push(DeviceEvent {
                            at_ns: clock.now(),
                            device: gpu.facts.index,
                            code: "gpu_lost".into(),
                            message: message.clone(),
                        });
                    }
                    errors.push(message);
                }
            }
        }
        self.listen(clock);
        if self.gpus.iter().all(|g| g.lost) && errors.is_empty() {
            return Err(ReadingError::Gone(
                "every GPU of the container is lost".into(),
            ));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ReadingError::Failed(errors.join("; ")))
        }
    }

    fn probe_floor(&self) -> Option<Duration> {
        // The memory call takes some ten microseconds, but under a lock of the driver: no more
        // often than full readings.
        Some(super::SamplerOptions::SHORTEST)
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        into.clear();
        let used = |gpu: &NvmlGpu| {
            if gpu.lost {
                0
            } else {
                gpu.read_memory().map_or(0, |m| m.used)
            }
        };
        into.extend(self.gpus.iter().map(used));
        Ok(())
    }

    fn costs(&self) -> Vec<CallCost> {
        self.costs.report_costs()
    }

    fn unopened(&self) -> Vec<String> {
        self.unopened.clone()
    }

    fn take_events(&mut self) -> Vec<DeviceEvent> {
        std::mem::take(&mut self.happened)
    }
}
