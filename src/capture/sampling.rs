//! How sampling went, what it cost, what happened to the devices, and the owners of memory in a sample.

use super::{AtNs, MemorySample, ProcessMemory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that happened to a device while it was sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceEvent {
    /// When.
    pub at_ns: AtNs,
    /// Index of the device in the capture: [`index`](super::DeviceFacts::index) of its facts.
    pub device: u32,
    /// `gpu_lost`, `gpu_xid`, `gpu_ecc_double_bit`, …
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// What one kind of call of the sampler cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallCost {
    /// `memory`, `gauges`, `processes`, …
    pub name: String,
    /// Calls made.
    pub calls: u64,
    /// Mean wall time of one, nanoseconds.
    pub mean_ns: u64,
    /// Wall time that 99 of 100 did not exceed, nanoseconds.
    pub p99_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

/// How sampling went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplingFacts {
    /// Interval asked for, nanoseconds.
    pub interval_ns: u64,
    /// Interval of the probing in between, nanoseconds; `None` when there was none.
    pub probe_interval_ns: Option<u64>,
    /// Ticks taken.
    pub ticks: u64,
    /// Ticks missed because a reading took too long or the machine was busy.
    pub missed_ticks: u64,
    /// 99th percentile of the distance between a tick and its due time, nanoseconds.
    pub jitter_p99_ns: Option<u64>,
    /// Longest stretch between two samples, nanoseconds.
    pub longest_gap_ns: u64,
    /// Readings that failed, with the last reason.
    pub failed_readings: u64,
    /// The last reason.
    pub last_error: Option<String>,
    /// Ticks left out on purpose, because readings took so long that they disturbed.
    #[serde(default)]
    pub backed_off_ticks: u64,
    /// Full readings between ticks, at the edges of phases.
    #[serde(default)]
    pub burst_readings: u64,
    /// Processor time that the sampling thread itself took, nanoseconds.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
    /// What its calls cost, by kind.
    #[serde(default)]
    pub calls: Vec<CallCost>,
    /// What happened to the devices meanwhile.
    #[serde(default)]
    pub events: Vec<DeviceEvent>,
}

/// The owners of a device's memory at one moment, as far as the driver reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tenants {
    /// Bytes of each container's processes, by its id.
    pub containers: BTreeMap<String, u64>,
    /// Bytes of processes in no container, or in an unknown one.
    pub others_bytes: u64,
    /// Processes without a figure of the driver.
    pub untold_processes: u32,
    /// In use and accounted to no process, bytes: contexts that the driver does not count, the
    /// processes without a figure, tenants that are not visible here. `None` when the processes'
    /// figures exceed what is in use, because they were read at another moment.
    pub unattributed_bytes: Option<u64>,
}

impl MemorySample {
    /// The owners of the memory; `None` if this sample has no process list.
    pub fn memory_owners(&self) -> Option<Tenants> {
        let processes = self.processes.as_ref()?;
        let mut tenants = Tenants::default();
        let mut known = 0u64;
        for ProcessMemory {
            used_bytes,
            container_id,
            ..
        } in processes
        {
            let Some(bytes) = used_bytes else {
                tenants.untold_processes += 1;
                continue;
            };
            known = known.saturating_add(*bytes);
            let held = match container_id {
                Some(id) => tenants.containers.entry(id.clone()).or_default(),
                None => &mut tenants.others_bytes,
            };
            *held = held.saturating_add(*bytes);
        }
        tenants.unattributed_bytes = self.used_bytes.checked_sub(known);
        Some(tenants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_accounts_for_is_unattributed() {
        let process = |pid, used_bytes, container: Option<&str>| ProcessMemory {
            pid,
            used_bytes,
            container_id: container.map(str::to_owned),
            ..ProcessMemory::default()
        };
        let mut sample = MemorySample {
            used_bytes: 100,
            ..MemorySample::default()
        };
        assert_eq!(sample.memory_owners(), None, "no list is not an empty list");
        sample.processes = Some(vec![
            process(1, Some(30), Some("a")),
            process(2, Some(10), Some("a")),
            process(3, Some(20), None),
            process(4, None, Some("b")),
        ]);
        let tenants = sample.memory_owners().unwrap();
        assert_eq!(tenants.containers, BTreeMap::from([("a".to_owned(), 40)]));
        assert_eq!((tenants.others_bytes, tenants.untold_processes), (20, 1));
        assert_eq!(tenants.unattributed_bytes, Some(40));
        sample.used_bytes = 50;
        assert_eq!(
            sample.memory_owners().unwrap().unattributed_bytes,
            None,
            "read at two moments"
        );
    }
}
