//! Memory given back: after an end the devices must be at the level that is expected of them:
//! where they were before the engine started, or that of a look before the end without what was
//! ended.

use crate::capture::{DeviceFacts, DeviceKind, MemorySample, ProcessMemory};
use crate::clock::Clock;
use crate::error::Failure;
use crate::telemetry::{self, BackendChoice, MeasuredContainer, MemoryBackend, Wanted};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A device counts as given back within this of its level, bytes: drivers and kernels keep a
/// little.
pub const TOLERANCE: u64 = 256 << 20;
/// Consecutive readings required.
const READINGS: u32 = 3;
/// Between two readings.
const LOOK: Duration = Duration::from_millis(200);
/// Drivers do not list their processes at every reading; after the deadline a list is waited for
/// this long.
const LIST_PATIENCE: Duration = Duration::from_secs(5);

/// What is expected of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceLevel {
    /// In use, bytes.
    pub used_bytes: u64,
    /// Bytes of it listed with processes that go on; what these take more meanwhile is theirs.
    /// `None`: the driver did not report it.
    pub others_bytes: Option<u64>,
}

/// Whether a process belongs to what was ended.
pub type IsOwnProcess = Box<dyn Fn(&ProcessMemory) -> bool + Send>;

/// Watches devices.
pub struct MemoryGate {
    backend: Box<dyn MemoryBackend>,
    clock: Clock,
    /// By the device's index; `None`: anything will do.
    levels: Vec<Option<DeviceLevel>>,
    /// Devices that were to be watched and are not there any more.
    lost: Vec<String>,
    scope: GateScope,
    /// The last list of processes of each device, by its index.
    lists: BTreeMap<u32, Vec<ProcessMemory>>,
}

enum GateScope {
    /// The devices of this container, looked at before its engine starts.
    Container(String),
    /// Those of the host, looked at before an end.
    Ended(IsOwnProcess),
}

/// A device above its level.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldDevice {
    /// UUID or PCI address.
    pub id: String,
    /// How far above, bytes; `None`: it could not be read.
    pub more_bytes: Option<u64>,
    /// Who is on it, as far as the driver lists.
    pub processes: Vec<ProcessMemory>,
}

impl HeldDevice {
    /// A device that can no longer be read.
    pub fn unread(id: String) -> HeldDevice {
        HeldDevice {
            id,
            more_bytes: None,
            processes: Vec::new(),
        }
    }
}

impl MemoryGate {
    /// Reads what is in use now on the devices of a container, before an engine starts on them.
    pub fn before_start(
        choice: BackendChoice,
        target: &MeasuredContainer,
        container: &str,
    ) -> Result<MemoryGate, Failure> {
        Ok(MemoryGate::with_backend(
            telemetry::open_backend(choice, target)?,
            container,
        ))
    }

    /// The same with what reads the devices. One that cannot be read now has no level.
    pub fn with_backend(backend: Box<dyn MemoryBackend>, container: &str) -> MemoryGate {
        let devices = backend.devices().len();
        let mut gate = MemoryGate::new(backend, GateScope::Container(container.to_owned()));
        gate.levels = vec![None; devices];
        for sample in gate.read_samples(false) {
            if let Some(level) = gate.levels.get_mut(sample.device as usize) {
                *level = Some(DeviceLevel {
                    used_bytes: used_without_cache(&sample),
                    others_bytes: None,
                });
            }
        }
        gate
    }

    /// Watches GPUs of the host, by UUID or PCI address. What processes other than `is_own` take
    /// more than at the look counts as theirs.
    pub fn after_end(
        levels: &BTreeMap<String, DeviceLevel>,
        is_own: IsOwnProcess,
    ) -> Result<MemoryGate, Failure> {
        let mut gate = MemoryGate::new(telemetry::open_host()?, GateScope::Ended(is_own));
        let devices = gate.backend.devices();
        gate.levels = devices.iter().map(|d| levels.get(&d.id).copied()).collect();
        let there = |id: &String| devices.iter().any(|d| d.id == *id);
        gate.lost = levels.keys().filter(|id| !there(id)).cloned().collect();
        Ok(gate)
    }

    fn new(backend: Box<dyn MemoryBackend>, scope: GateScope) -> MemoryGate {
        MemoryGate {
            backend,
            clock: Clock::start(),
            levels: Vec::new(),
            lost: Vec::new(),
            scope,
            lists: BTreeMap::new(),
        }
    }

    fn read_samples(&mut self, detail: bool) -> Vec<MemorySample> {
        let mut samples = Vec::new();
        let wanted = Wanted {
            detail,
            ..Wanted::default()
        };
        // What could be read is there; a device that could not is looked at again.
        let _ = self.backend.sample(&self.clock, wanted, &mut samples);
        for sample in &samples {
            if let Some(list) = &sample.processes {
                self.lists.insert(sample.device, list.clone());
            }
        }
        samples
    }

    /// How far a device is above its level, bytes.
    fn bytes_above_level(&self, sample: &MemorySample) -> Option<u64> {
        let level = self.levels.get(sample.device as usize).copied().flatten()?;
        let grown = match &self.scope {
            GateScope::Container(_) => 0,
            GateScope::Ended(is_own) => grown(&level, sample, is_own),
        };
        Some(used_without_cache(sample).saturating_sub(level.used_bytes.saturating_add(grown)))
    }

    /// Whether a reading shows every device at its level.
    fn back(&self, samples: &[MemorySample]) -> bool {
        let good = samples.iter().all(|s| {
            self.bytes_above_level(s)
                .is_none_or(|more| more <= TOLERANCE)
        });
        match self.scope {
            // What is gone holds nothing.
            GateScope::Container(_) => good,
            // What was not read proves nothing.
            GateScope::Ended(_) => good && self.lost.is_empty() && self.unread(samples).is_empty(),
        }
    }

    /// The watched devices that a reading lacks, by index.
    fn unread(&self, samples: &[MemorySample]) -> Vec<usize> {
        let read = |i: usize| samples.iter().any(|s| s.device as usize == i);
        let watched = self.levels.iter().enumerate().filter(|(_, l)| l.is_some());
        watched.map(|(i, _)| i).filter(|i| !read(*i)).collect()
    }

    /// Whether a reading has, for every device, the share of the other processes. Without it a
    /// reading can prove that memory is back, but not that it is missing.
    fn has_all_lists(&self, samples: &[MemorySample]) -> bool {
        samples.iter().all(|s| {
            let level = self.levels.get(s.device as usize).copied().flatten();
            let compared = level.is_some_and(|level| level.others_bytes.is_some());
            !compared || s.processes.is_some()
        })
    }

    /// Waits until every device is back at its level; at the deadline gives those that are not,
    /// with who is on them. A container that is gone holds nothing. Cut short by `cancel`, it reports nothing.
    pub async fn wait_until_back(
        &mut self,
        deadline: Duration,
        cancel: &CancellationToken,
    ) -> Result<(), Vec<HeldDevice>> {
        let until = Instant::now() + deadline;
        let detail = matches!(self.scope, GateScope::Ended(_));
        let mut good = 0;
        loop {
            let samples = self.read_samples(detail);
            let whole = self.has_all_lists(&samples);
            good = match self.back(&samples) {
                true => good + 1,
                false if !whole => good,
                false => 0,
            };
            let nothing = samples.is_empty() && !detail;
            if good >= READINGS || nothing || cancel.is_cancelled() {
                return Ok(());
            }
            let late = Instant::now() >= until + LIST_PATIENCE;
            if Instant::now() >= until && (good == 0 && whole || late) {
                return Err(self.held_devices(samples));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The devices that are not at their level, by the last reading.
    fn held_devices(&mut self, mut samples: Vec<MemorySample>) -> Vec<HeldDevice> {
        if let GateScope::Container(_) = self.scope {
            samples = self.read_samples(true);
        }
        let devices = self.backend.devices();
        let id_of = |i: usize| devices.get(i).map_or_else(String::new, |d| d.id.clone());
        let mut held = Vec::new();
        for s in &samples {
            let more = self.bytes_above_level(s).filter(|more| *more > TOLERANCE);
            if more.is_some() {
                // An older list can still name the processes; that memory is held follows from the reading alone.
                let processes = s.processes.as_ref().or(self.lists.get(&s.device));
                held.push(HeldDevice {
                    id: id_of(s.device as usize),
                    more_bytes: more,
                    processes: processes.cloned().unwrap_or_default(),
                });
            }
        }
        if let GateScope::Ended(_) = self.scope {
            let unread = self.unread(&samples).into_iter().map(id_of);
            let unread = unread.chain(self.lost.iter().cloned());
            held.extend(unread.map(HeldDevice::unread));
        }
        held
    }

    /// The memory that is still held on each device after a container ended, and by which processes: a sentence.
    pub fn describe_held(&self, held: &[HeldDevice], waited: Duration) -> String {
        if held.is_empty() {
            return String::new();
        }
        let devices = self.backend.devices();
        let parts = held.iter().map(|held| {
            let is_gpu = |d: &DeviceFacts| d.id == held.id && d.kind == DeviceKind::Gpu;
            let place = match &self.scope {
                GateScope::Container(name) if !devices.iter().any(is_gpu) => {
                    format!("in container `{name}`")
                }
                _ => format!("on {}", held.id),
            };
            let more = Bytes(held.more_bytes.unwrap_or_default());
            format!("{more} {place}{}", holders(&held.processes))
        });
        format!(
            "{} more than before the engine started, {} s after its end",
            parts.collect::<Vec<_>>().join(", "),
            waited.as_secs()
        )
    }
}

/// What processes that go on take more than at the look, bytes.
fn grown(level: &DeviceLevel, sample: &MemorySample, is_own: &IsOwnProcess) -> u64 {
    let (Some(before), Some(processes)) = (level.others_bytes, &sample.processes) else {
        return 0;
    };
    let others = processes.iter().filter(|p| !is_own(p));
    let now: u64 = others.filter_map(|p| p.used_bytes).sum();
    now.saturating_sub(before)
}

/// In use, bytes; on a host without the page cache, which the kernel frees on demand.
fn used_without_cache(sample: &MemorySample) -> u64 {
    let cache = sample.host.and_then(|h| h.file_bytes).unwrap_or(0);
    sample.used_bytes.saturating_sub(cache)
}

/// Who is on a device: the largest first.
fn holders(processes: &[ProcessMemory]) -> String {
    let mut processes: Vec<&ProcessMemory> = processes.iter().collect();
    processes.sort_by_key(|p| std::cmp::Reverse(p.used_bytes));
    let words: Vec<String> = processes
        .iter()
        .take(3)
        .map(|p| {
            let name = p.name.as_deref().unwrap_or("a process");
            let bytes = p
                .used_bytes
                .map_or("unknown".to_owned(), |b| Bytes(b).to_string());
            let of = p.container_id.as_deref().map(|id| {
                let id: String = id.chars().take(12).collect();
                format!(" in container {id}")
            });
            format!("pid {} ({name}{}) {bytes}", p.pid, of.unwrap_or_default())
        })
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" (held by {})", words.join(", "))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::capture::BackendFacts;
    use crate::telemetry::ReadingError;

    /// Two GPUs, whose readings in turn are bytes in use; `None`: that one cannot be read.
    pub(crate) struct Readings(pub(crate) Vec<[Option<u64>; 2]>);

    impl MemoryBackend for Readings {
        fn facts(&self) -> BackendFacts {
            BackendFacts::default()
        }
        fn devices(&self) -> Vec<DeviceFacts> {
            let device = |index| DeviceFacts {
                index,
                id: format!("GPU-{index}"),
                kind: DeviceKind::Gpu,
                ..DeviceFacts::default()
            };
            vec![device(0), device(1)]
        }
        fn sample(
            &mut self,
            _: &Clock,
            _: Wanted,
            into: &mut Vec<MemorySample>,
        ) -> Result<(), ReadingError> {
            // The last one remains.
            let now = match self.0.len() {
                1 => self.0[0],
                _ => self.0.remove(0),
            };
            for (device, used) in (0..).zip(now) {
                into.extend(used.map(|used_bytes| MemorySample {
                    device,
                    used_bytes,
                    ..MemorySample::default()
                }));
            }
            if now.contains(&None) {
                Err(ReadingError::Failed("a device could not be read".into()))
            } else {
                Ok(())
            }
        }
    }

    #[tokio::test]
    async fn a_device_is_held_against_its_own_level() {
        const GIB: u64 = 1 << 30;
        let before = [None, Some(GIB)];
        let wait = |after: [u64; 2]| async move {
            let backend = Readings(vec![before, after.map(Some)]);
            let mut gate = MemoryGate::with_backend(Box::new(backend), "c");
            gate.wait_until_back(Duration::ZERO, &CancellationToken::new())
                .await
        };
        // What the first one held before is unknown.
        assert!(wait([20 * GIB, GIB]).await.is_ok());
        let held = wait([0, 9 * GIB]).await.unwrap_err();
        let ids: Vec<&str> = held.iter().map(|d| d.id.as_str()).collect();
        assert_eq!(ids, ["GPU-1"], "{held:?}");
        assert_eq!(held[0].more_bytes, Some(8 * GIB));
    }

    #[test]
    fn a_holder_is_named_with_its_container() {
        let process = |pid, bytes: Option<u64>, container: Option<&str>| ProcessMemory {
            pid,
            used_bytes: bytes,
            name: Some("python3".into()),
            container_id: container.map(str::to_owned),
            ..ProcessMemory::default()
        };
        let processes = [
            process(7, Some(1 << 30), None),
            process(8, Some(2 << 30), Some("0123456789abcdef")),
        ];
        assert_eq!(
            holders(&processes),
            " (held by pid 8 (python3 in container 0123456789ab) 2.00 GiB, pid 7 (python3) 1.00 GiB)"
        );
        assert_eq!(holders(&[]), "");
    }
}
