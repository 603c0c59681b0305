//! The host's GPUs over a few readings: what is in use, by whom, and what no listed process holds.

use crate::capture::{DeviceFacts, MemorySample, ProcessMemory};
use crate::clean::facts::DeviceLook;
use crate::clock::Clock;
use crate::host::processes::{all_pids, open_files};
use crate::telemetry::{self, BackendChoice, MemoryBackend, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The name of CUDA's MPS server, as far as the kernel keeps it.
const MPS_SERVER: &str = "nvidia-cuda-mps";

/// Most readings made for each that is wanted: drivers list their processes less often than their
/// memory.
const TRIES: u32 = 3;

/// The host's GPUs, kept open.
pub struct HostGpus {
    backend: Option<Box<dyn MemoryBackend>>,
    clock: Clock,
    facts: Vec<DeviceFacts>,
    /// What is wrong with a device, by its place.
    broken: BTreeMap<u32, String>,
    /// What cannot be seen of them; a sentence each.
    blind: Vec<String>,
}

/// What the readings of one look say.
#[derive(Debug, Default)]
pub struct GpuReading {
    /// The devices; the processes that have them open are added later.
    pub devices: Vec<DeviceLook>,
    /// Processes on them, by host pid.
    pub processes: BTreeMap<u32, OnDevices>,
    /// Whether every device listed its processes, so that an unlisted one holds nothing.
    pub complete: bool,
    /// The most that a device was busy, percent, by its id.
    pub busy: BTreeMap<String, u32>,
    /// What could not be seen.
    pub blind: Vec<String>,
}

/// A process that the driver lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnDevices {
    /// Id of the outermost container of its cgroup.
    pub container: Option<String>,
    /// Bytes by device.
    pub bytes: BTreeMap<String, u64>,
    /// Whether the driver reports no figure on one of them.
    pub unreported: bool,
}

impl HostGpus {
    /// None at all.
    pub fn without_gpus() -> HostGpus {
        HostGpus {
            backend: None,
            clock: Clock::start(),
            facts: Vec::new(),
            broken: BTreeMap::new(),
            blind: Vec::new(),
        }
    }

    /// Opens every GPU of the host.
    pub fn open_gpus(choice: BackendChoice) -> HostGpus {
        let mut devices = HostGpus::without_gpus();
        match telemetry::open_host_as(choice) {
            _ if choice == BackendChoice::Host => {}
            Ok(backend) => {
                devices.facts = backend.devices();
                devices.backend = Some(backend);
            }
            // A host without a GPU is not blind.
            Err(failure) if choice != BackendChoice::Auto || telemetry::has_driver() => {
                devices.blind.push(failure.message);
            }
            Err(_) => {}
        }
        devices
    }

    /// Reads them `readings` times with `pause` in between.
    pub async fn read_gpus(&mut self, readings: u32, pause: Duration) -> GpuReading {
        let mut tracks: Vec<DeviceTrack> =
            self.facts.iter().map(|_| DeviceTrack::default()).collect();
        let mut errors = BTreeSet::new();
        let wanted = Wanted {
            detail: true,
            bench_client: None,
        };
        let mut made = 0;
        while let Some(backend) = &mut self.backend {
            let mut samples = Vec::new();
            let clock = &self.clock;
            let read = tokio::task::block_in_place(|| backend.sample(clock, wanted, &mut samples));
            for event in backend.take_events() {
                if event.code == "gpu_lost" {
                    errors.remove(&event.message);
                    self.broken.insert(event.device, event.message);
                }
            }
            if let Err(e) = read {
                errors.insert(e.to_string());
            }
            for sample in &samples {
                if let Some(track) = tracks.get_mut(sample.device as usize) {
                    track.take_sample(sample);
                }
            }
            made += 1;
            let enough = tracks.iter().all(|t| t.lists >= readings) && made >= readings;
            if enough || made >= readings.saturating_mul(TRIES) {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        // The error of a lost device is reported with the device.
        errors.retain(|e| !self.broken.values().any(|b| b == e));
        self.sum_up(&tracks, errors)
    }

    fn sum_up(&self, tracks: &[DeviceTrack], errors: BTreeSet<String>) -> GpuReading {
        let facts = self.backend.as_ref().map(|b| b.facts());
        let unopened = self.backend.as_ref().map(|b| b.unopened());
        // What is lost holds nothing that could be given back.
        let is_listed = |(device, track): (&DeviceFacts, &DeviceTrack)| {
            track.lists > 0 || self.broken.contains_key(&device.index)
        };
        let mut reading = GpuReading {
            complete: self.blind.is_empty() && self.facts.iter().zip(tracks).all(is_listed),
            blind: self.blind.clone(),
            ..GpuReading::default()
        };
        reading.blind.extend(errors);
        let (name, simulated) = facts
            .as_ref()
            .map_or(("", false), |f| (f.name.as_str(), f.simulated));
        for (device, track) in self.facts.iter().zip(tracks) {
            // Older drivers report their own reserve as in use.
            let reserve_known = name != "nvml" || track.reserved;
            reading.devices.push(DeviceLook {
                id: device.id.clone(),
                name: device.name.clone(),
                used_bytes: track.used,
                total_bytes: device.total_bytes,
                unlisted_bytes: track.unlisted.filter(|_| reserve_known),
                unlisted_readings: track.in_a_row,
                mps: (track.processes.iter()).any(|p| p.name.as_deref() == Some(MPS_SERVER)),
                broken: self.broken.get(&device.index).cloned(),
                simulated,
                ..DeviceLook::default()
            });
            reading
                .busy
                .extend(track.busy.map(|pct| (device.id.clone(), pct)));
            for process in &track.processes {
                let known = reading.processes.entry(process.pid).or_default();
                known.container.clone_from(&process.container_id);
                match process.used_bytes {
                    Some(bytes) => drop(known.bytes.insert(device.id.clone(), bytes)),
                    None => known.unreported = true,
                }
            }
        }
        for why in unopened.iter().flatten() {
            let name = why.split(':').next().unwrap_or("a GPU").to_owned();
            reading.devices.push(DeviceLook {
                id: name.clone(),
                name,
                broken: Some(why.clone()),
                simulated,
                ..DeviceLook::default()
            });
        }
        if let Some(facts) = facts.filter(|_| !tracks.is_empty() && !reading.complete) {
            reading.blind.push(format!(
                "the owner of the memory is unknown on some GPUs: {}",
                facts.why_no_owners()
            ));
        }
        reading
    }
}

/// One device over the readings.
#[derive(Debug, Default)]
struct DeviceTrack {
    used: Option<u64>,
    reserved: bool,
    /// Readings that came with a list of processes.
    lists: u32,
    /// The last list.
    processes: Vec<ProcessMemory>,
    /// In use by no listed process, the least so far.
    unlisted: Option<u64>,
    /// Consecutive readings in which that was known.
    in_a_row: u32,
    busy: Option<u32>,
}

impl DeviceTrack {
    fn take_sample(&mut self, sample: &MemorySample) {
        self.used = Some(sample.used_bytes);
        self.reserved |= sample.reserved_bytes.is_some();
        self.busy = self.busy.max(sample.utilization_pct);
        let Some(processes) = &sample.processes else {
            return;
        };
        self.lists += 1;
        self.processes.clone_from(processes);
        let mut listed = Some(0u64);
        for process in processes {
            listed = listed
                .zip(process.used_bytes)
                .map(|(a, b)| a.saturating_add(b));
        }
        match listed {
            Some(listed) => {
                // More than is in use: the two were read at two moments.
                let unlisted = sample.used_bytes.saturating_sub(listed);
                self.unlisted = Some(self.unlisted.unwrap_or(u64::MAX).min(unlisted));
                self.in_a_row += 1;
            }
            None => (self.unlisted, self.in_a_row) = (None, 0),
        }
    }
}

/// Host pids of those who have a GPU of the maker of device `id` open.
pub fn pids_with_open_gpu(id: &str) -> Vec<u32> {
    let nvidia = id.starts_with("GPU-") || id.starts_with("MIG-");
    all_pids()
        .filter(|pid| {
            open_files(*pid).any(|file| file.to_str().is_some_and(|path| is_device(path, nvidia)))
        })
        .collect()
}

/// Whether a path is that of a GPU; not that of a driver's control, which a mere look opens.
fn is_device(path: &str, nvidia: bool) -> bool {
    let numbered = |prefix: &str| {
        let number = path.strip_prefix(prefix).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    };
    if nvidia {
        numbered("/dev/nvidia")
    } else {
        path == "/dev/kfd" || numbered("/dev/dri/renderD")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(used: u64, listed: &[Option<u64>]) -> MemorySample {
        MemorySample {
            used_bytes: used,
            reserved_bytes: Some(1),
            utilization_pct: Some(used as u32 % 100),
            processes: Some(
                listed
                    .iter()
                    .zip(7..)
                    .map(|(bytes, pid)| ProcessMemory {
                        pid,
                        used_bytes: *bytes,
                        ..ProcessMemory::default()
                    })
                    .collect(),
            ),
            ..MemorySample::default()
        }
    }

    #[test]
    fn the_lowest_unlisted_memory_counts() {
        let mut track = DeviceTrack::default();
        track.take_sample(&sample(100, &[Some(20), Some(30)]));
        track.take_sample(&sample(110, &[Some(90)]));
        track.take_sample(&sample(90, &[Some(50)]));
        assert_eq!((track.unlisted, track.in_a_row), (Some(20), 3));
        assert_eq!(
            (track.used, track.busy, track.lists),
            (Some(90), Some(90), 3)
        );
        // A reading without a list does not count.
        let mut bare = sample(500, &[]);
        bare.processes = None;
        track.take_sample(&bare);
        assert_eq!((track.unlisted, track.used), (Some(20), Some(500)));
        // Figures of two moments.
        track.take_sample(&sample(10, &[Some(50)]));
        assert_eq!(track.unlisted, Some(0));
    }

    #[test]
    fn a_process_without_a_figure_leaves_the_rest_unknown() {
        let mut track = DeviceTrack::default();
        track.take_sample(&sample(100, &[Some(20)]));
        track.take_sample(&sample(100, &[Some(20), None]));
        assert_eq!((track.unlisted, track.in_a_row), (None, 0));
        track.take_sample(&sample(100, &[Some(30)]));
        assert_eq!((track.unlisted, track.in_a_row), (Some(70), 1));
    }

    #[test]
    fn only_a_gpu_itself_is_one() {
        for (path, nvidia, yes) in [
            ("/dev/nvidia0", true, true),
            ("/dev/nvidia12", true, true),
            ("/dev/nvidiactl", true, false),
            ("/dev/nvidia-uvm", true, false),
            ("/dev/nvidia", true, false),
            ("/dev/kfd", false, true),
            ("/dev/dri/renderD128", false, true),
            ("/dev/dri/card0", false, false),
            ("/dev/nvidia0", false, false),
            ("/home/x/dev/kfd", false, false),
        ] {
            assert_eq!(is_device(path, nvidia), yes, "{path}");
        }
    }
}
