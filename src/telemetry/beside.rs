//! The GPUs of a container, and beside them its host memory as a device after the last of them.

use super::{MeasuredContainer, MemoryBackend, Reading, Wanted, host};
use crate::capture::{BackendFacts, CallCost, DeviceEvent, DeviceFacts, DeviceKind, MemorySample};
use crate::clock::Clock;
use std::time::Duration;

/// Reads both.
struct BesideGpus {
    gpus: Box<dyn MemoryBackend>,
    host: Box<dyn MemoryBackend>,
    /// Index of the host memory in the samples.
    index: u32,
}

/// With the container's host memory beside its GPUs, where the backend reads GPUs and this host shows the container's
/// cgroup.
pub fn add_host_memory(
    gpus: Box<dyn MemoryBackend>,
    target: &MeasuredContainer,
) -> Box<dyn MemoryBackend> {
    let devices = gpus.devices();
    let all_gpus = devices.iter().all(|d| d.kind == DeviceKind::Gpu);
    if devices.is_empty() || !all_gpus {
        return gpus;
    }
    match host(target, "beside the GPUs".into()) {
        Ok(host) => Box::new(BesideGpus {
            gpus,
            host,
            index: devices.len() as u32,
        }),
        Err(_) => gpus,
    }
}

impl MemoryBackend for BesideGpus {
    fn facts(&self) -> BackendFacts {
        self.gpus.facts()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        let mut devices = self.gpus.devices();
        let index = self.index;
        devices.extend((self.host.devices().into_iter()).map(|d| DeviceFacts { index, ..d }));
        devices
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        let read = self.gpus.sample(clock, wanted, into);
        let first = into.len();
        // A container that has ended has no host memory; its GPUs are read on.
        let _ = self.host.sample(clock, wanted, into);
        for sample in into.iter_mut().skip(first) {
            sample.device = self.index;
        }
        read
    }

    fn probe_floor(&self) -> Option<Duration> {
        self.gpus.probe_floor()
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        self.gpus.probe(into)?;
        let mut host = Vec::new();
        into.push(match self.host.probe(&mut host) {
            Ok(()) => host.first().copied().unwrap_or(0),
            Err(_) => 0,
        });
        Ok(())
    }

    fn costs(&self) -> Vec<CallCost> {
        self.gpus.costs()
    }

    fn unopened(&self) -> Vec<String> {
        self.gpus.unopened()
    }

    fn take_events(&mut self) -> Vec<DeviceEvent> {
        self.gpus.take_events()
    }
}
