//! One GPU or MIG slice, and when each kind of its readings is due.

use super::calls::{DeviceMemory, is_sliced, memory_v1, memory_v2};
use super::library::loaded_library;
use super::lists::{ListTrouble, ProcessLists};
use crate::capture::{AtNs, DeviceFacts, DeviceKind, LimitLevel, MemorySample, ProcessMemory};
use crate::clock::Clock;
use crate::telemetry::attribution::Attribution;
use crate::telemetry::costs::CallLedger;
use crate::telemetry::gpus::Listed;
use crate::telemetry::pace::Spacing;
use nvml_wrapper::enum_wrappers::device::{Clock as ClockKind, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_MEMORY_TEMP;
use nvml_wrapper::{Device, Nvml};

/// Power, temperature and utilisation are averages over a large part of a second.
const GAUGES_EVERY_NS: i64 = 200_000_000;
/// At a phase boundary the energy counter is needed at that moment.
const GAUGES_ON_REQUEST_EVERY_NS: i64 = 50_000_000;
/// The energy counter takes 3 to 15 ms, a hundred times a gauge (H100, driver 580), and delays the look at memory.
const ENERGY_EVERY_NS: i64 = 1_000_000_000;
/// Gauges take at most one twentieth of the time.
const GAUGES_COST_FACTOR: i64 = 20;
/// A process list takes milliseconds and a lock that users of the GPU need too.
const PROCESSES_EVERY_NS: i64 = 1_000_000_000;
const PROCESSES_ON_REQUEST_EVERY_NS: i64 = 200_000_000;
/// Process lists take at most one fiftieth of the time.
const PROCESSES_COST_FACTOR: i64 = 50;

/// Plausibility limits: larger figures are driver errors. Milliwatts, °C, MHz.
const MOST_MILLIWATTS: u32 = 20_000_000;
const MOST_DEGREES: u32 = 250;
const MOST_MHZ: u32 = 50_000;

/// A GPU or a slice.
pub struct NvmlGpu {
    pub device: Device<'static>,
    pub facts: DeviceFacts,
    pub layout: MemoryCall,
    /// Whether it is a MIG slice: it has memory and processes, but no gauges of its own.
    pub slice: bool,
    /// Whether it is split into slices.
    pub sliced: bool,
    /// Whether the driver records the peak memory of each process. Plimsoll never switches this on.
    pub accounting: bool,
    /// How its processes are listed; `None` when they are not.
    pub lists: Option<ProcessLists>,
    /// Whether it is no longer read.
    pub lost: bool,
    /// Gauges that it does not have, a bit each.
    absent: u16,
    gauges: Spacing,
    energy: Spacing,
    processes: Spacing,
}

/// Which of the two memory calls a device answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryCall {
    V2,
    /// Its `used` includes the driver's reserved memory.
    V1,
    /// None: it has no memory of its own, and the host's is read.
    Host,
}

impl NvmlGpu {
    /// Opens a GPU; `index` is its position in the samples. Process lists are tried only with
    /// `ask_lists`. The error is a sentence.
    pub fn open(
        nvml: &'static Nvml,
        device: Device<'static>,
        listed: &Listed,
        index: u32,
        ask_lists: bool,
    ) -> Result<NvmlGpu, String> {
        let name = device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned());
        let about = |what: String| format!("GPU {} ({name}): {what}", listed.index);
        let (layout, memory) = match memory_v2(&device) {
            Ok(memory) => (MemoryCall::V2, memory),
            Err(e) => match memory_v1(nvml, &device) {
                Ok(memory) => (MemoryCall::V1, memory),
                Err(NvmlError::NotSupported) => (MemoryCall::Host, DeviceMemory::default()),
                Err(_) => return Err(about(format!("its memory cannot be read: {e}"))),
            },
        };
        let (layout, memory) = match memory.total {
            0 => (
                MemoryCall::Host,
                host_memory().map_err(|_| about(UNREAD.to_owned()))?,
            ),
            _ => (layout, memory),
        };
        let shares_host = layout == MemoryCall::Host;
        let slice = listed.slice.is_some();
        let name = match listed.slice {
            Some((parent, place)) if !name.contains("MIG") => {
                format!("{name} (MIG slice {parent}:{place})")
            }
            _ => name,
        };
        // The driver knows no address of a slice: it is its GPU's.
        let parent = (listed.slice).and_then(|(parent, _)| nvml.device_by_index(parent).ok());
        Ok(NvmlGpu {
            facts: DeviceFacts {
                index,
                kind: DeviceKind::Gpu,
                id: listed.uuid.clone(),
                name,
                pci_address: (parent.as_ref().unwrap_or(&device).pci_info().ok())
                    .map(|pci| pci.bus_id),
                total_bytes: Some(memory.total),
                limit_level: shares_host.then_some(LimitLevel::Host),
                shares_host,
                ..DeviceFacts::default()
            },
            layout,
            slice,
            sliced: !slice && is_sliced(&device),
            accounting: device.is_accounting_enabled().unwrap_or(false),
            lists: ask_lists
                .then(|| ProcessLists::for_device(nvml, &device))
                .flatten(),
            lost: false,
            absent: 0,
            gauges: Spacing::new(
                GAUGES_EVERY_NS,
                GAUGES_ON_REQUEST_EVERY_NS,
                GAUGES_COST_FACTOR,
            ),
            energy: Spacing::new(
                ENERGY_EVERY_NS,
                GAUGES_ON_REQUEST_EVERY_NS,
                GAUGES_COST_FACTOR,
            ),
            processes: Spacing::new(
                PROCESSES_EVERY_NS,
                PROCESSES_ON_REQUEST_EVERY_NS,
                PROCESSES_COST_FACTOR,
            ),
            device,
        })
    }

    /// Its memory now; usage above the total is an error.
    pub fn read_memory(&self) -> Result<DeviceMemory, NvmlError> {
        let memory = self.query_memory()?;
        match self.facts.total_bytes {
            Some(total) if memory.used > total => Err(NvmlError::Unknown),
            _ => Ok(memory),
        }
    }

    fn query_memory(&self) -> Result<DeviceMemory, NvmlError> {
        match self.layout {
            MemoryCall::V2 => memory_v2(&self.device),
            MemoryCall::Host => host_memory(),
            MemoryCall::V1 => loaded_library()
                .map_err(|_| NvmlError::Uninitialized)
                .and_then(|nvml| memory_v1(nvml, &self.device)),
        }
    }

    /// Its memory, and its gauges where they are due.
    pub fn read_sample(
        &mut self,
        clock: &Clock,
        on_request: bool,
        costs: &mut CallLedger,
    ) -> Result<MemorySample, NvmlError> {
        let start = clock.now();
        let memory = self.read_memory()?;
        let at_ns = clock.now();
        costs.note_call("memory", at_ns - start);
        let mut sample = MemorySample {
            at_ns,
            device: self.facts.index,
            used_bytes: memory.used,
            reserved_bytes: memory.reserved,
            ..MemorySample::default()
        };
        if !self.slice && self.gauges.is_due(at_ns, on_request) {
            self.read_gauges(&mut sample);
            let read = clock.now();
            costs.note_call("gauges", self.gauges.note_reading(at_ns, read));
            if self.energy.is_due(read, on_request) {
                sample.energy_mj = self.ask_gauge(0, |d| d.total_energy_consumption());
                costs.note_call("energy", self.energy.note_reading(read, clock.now()));
            }
        }
        Ok(sample)
    }

    fn read_gauges(&mut self, sample: &mut MemorySample) {
        // Some drivers report nonsense while a GPU changes its state.
        let sane = |figure: Option<u32>, most: u32| figure.filter(|f| *f <= most);
        sample.power_mw = sane(self.ask_gauge(1, |d| d.power_usage()), MOST_MILLIWATTS);
        let temperature = self.ask_gauge(2, |d| d.temperature(TemperatureSensor::Gpu));
        sample.temperature_c = sane(temperature, MOST_DEGREES);
        if let Some(rates) = self.ask_gauge(3, |d| d.utilization_rates()) {
            sample.utilization_pct = Some(rates.gpu).filter(|pct| *pct <= 100);
            sample.mem_utilization_pct = Some(rates.memory).filter(|pct| *pct <= 100);
        }
        sample.clock_gfx_mhz = sane(self.ask_gauge(4, |d| d.clock_info(ClockKind::SM)), MOST_MHZ);
        sample.clock_mem_mhz = sane(
            self.ask_gauge(5, |d| d.clock_info(ClockKind::Memory)),
            MOST_MHZ,
        );
        sample.throttle = self.ask_gauge(6, |d| d.current_throttle_reasons().map(|r| r.bits()));
        sample.memory_temp_c = sane(self.ask_gauge(7, memory_temperature), MOST_DEGREES);
    }

    /// Reads a gauge, unless an earlier call showed that the GPU lacks it.
    fn ask_gauge<T>(
        &mut self,
        gauge: u16,
        read: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Option<T> {
        if self.absent & (1 << gauge) != 0 {
            return None;
        }
        let result = read(&self.device);
        if let Err(
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_),
        ) = result
        {
            self.absent |= 1 << gauge;
        }
        result.ok()
    }

    /// Whether its process list is due.
    pub fn processes_are_due(&self, now: AtNs, on_request: bool) -> bool {
        self.lists.is_some() && self.processes.is_due(now, on_request)
    }

    /// Its processes with their containers; `None` when it has no list.
    pub fn read_processes(
        &mut self,
        clock: &Clock,
        attribution: &mut Attribution,
        costs: &mut CallLedger,
    ) -> Result<Option<Vec<ProcessMemory>>, ListTrouble> {
        let (Some(lists), Ok(nvml)) = (&mut self.lists, loaded_library()) else {
            return Ok(None);
        };
        let start = clock.now();
        let total = self.facts.total_bytes.unwrap_or(u64::MAX);
        let raw = lists.read_lists(nvml, &self.device, total);
        let listed = clock.now();
        costs.note_call("processes", self.processes.note_reading(start, listed));
        let raw = raw?;
        let mut processes = attribution.identify_processes(&raw);
        costs.note_call("attribution", clock.now() - listed);
        if self.accounting {
            let start = clock.now();
            for process in &mut processes {
                process.peak_bytes = self.highest_of(process);
            }
            costs.note_call("accounting", clock.now() - start);
        }
        Ok(Some(processes))
    }

    /// The driver's record of a process's peak memory. Right after the start of a process it is
    /// still 0, and the list is right.
    fn highest_of(&self, process: &ProcessMemory) -> Option<u64> {
        let stats = self.device.accounting_stats_for(process.pid).ok()?;
        let sane = |b: &u64| *b > 0 && self.facts.total_bytes.is_none_or(|total| *b <= total);
        stats
            .max_memory_usage
            .filter(sane)
            .map(|b| b.max(process.used_bytes.unwrap_or(0)))
    }

    /// Notes a failed reading and describes it. A GPU that fell off the bus does not return, and
    /// asking it again can hang for seconds.
    pub fn note_failure(&mut self, error: &NvmlError) -> String {
        self.lost = matches!(
            error,
            NvmlError::GpuLost
                | NvmlError::ResetRequired
                | NvmlError::LibRmVersionMismatch
                | NvmlError::DriverNotLoaded
        );
        let end = if self.lost {
            "; it is not read any more"
        } else {
            ""
        };
        format!("{}: {error}{end}", self.display_name())
    }

    /// Its name in messages.
    pub fn display_name(&self) -> String {
        format!("GPU {} ({})", self.facts.index, self.facts.name)
    }
}

/// Error for a GPU without memory of its own on a host with unreadable memory.
const UNREAD: &str = "it has no memory of its own, and the host's cannot be read";

/// The host's memory as that of a GPU that shares it. What the kernel can reclaim at once is not in use.
fn host_memory() -> Result<DeviceMemory, NvmlError> {
    let host = crate::host::read_state().ok_or(NvmlError::NotSupported)?;
    Ok(DeviceMemory {
        total: host.total_bytes,
        used: host.total_bytes.saturating_sub(host.available_bytes),
        reserved: None,
    })
}

fn memory_temperature(device: &Device<'static>) -> Result<u32, NvmlError> {
    let fields = device.field_values_for(&[FieldId(NVML_FI_DEV_MEMORY_TEMP)])?;
    match fields.into_iter().next() {
        Some(field) => match field?.value? {
            SampleValue::U32(degrees) => Ok(degrees),
            _ => Err(NvmlError::NotSupported),
        },
        None => Err(NvmlError::NotSupported),
    }
}
