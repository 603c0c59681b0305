//! Memory given back: after an engine has ended, its devices must be where they were before it
//! started, or the next engine's figures begin with a remainder.

use crate::capture::{DeviceKind, MemorySample, ProcessMemory};
use crate::clock::Clock;
use crate::error::Failure;
use crate::telemetry::{self, BackendChoice, MemoryBackend, Target, Wanted};
use crate::units::Bytes;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A device counts as given back within this of its level before, bytes: drivers and kernels keep
/// a little.
const TOLERANCE: u64 = 256 << 20;
/// So many readings in a row must say so.
const READINGS: u32 = 3;
/// Between two readings.
const LOOK: Duration = Duration::from_millis(200);

/// Watches the devices that an engine used.
pub struct Gate {
    backend: Box<dyn MemoryBackend>,
    clock: Clock,
    /// In use before the engine started, per device, bytes.
    before: Vec<Option<u64>>,
    /// The container that was looked at.
    container: String,
}

/// Memory that was not given back.
#[derive(Debug)]
pub struct Held {
    /// What and by whom; a sentence.
    pub words: String,
}

impl Gate {
    /// Reads what is in use now on the devices of a container, before an engine starts on them.
    pub fn before(
        choice: BackendChoice,
        target: &Target,
        container: &str,
    ) -> Result<Gate, Failure> {
        let backend = telemetry::open(choice, target)?;
        let mut gate = Gate {
            backend,
            clock: Clock::start(),
            before: Vec::new(),
            container: container.to_owned(),
        };
        gate.before = gate.read(false).iter().map(|s| Some(used(s))).collect();
        Ok(gate)
    }

    fn read(&mut self, detail: bool) -> Vec<MemorySample> {
        let mut samples = Vec::new();
        let wanted = Wanted {
            detail,
            ..Wanted::default()
        };
        // What could be read is there; a device that could not is looked at again.
        let _ = self.backend.sample(&self.clock, wanted, &mut samples);
        samples
    }

    /// Waits until every device is back at its level; at the deadline names who holds what is
    /// missing. A container that is gone holds nothing.
    pub async fn wait(
        &mut self,
        deadline: Duration,
        cancel: &CancellationToken,
    ) -> Result<(), Held> {
        let until = Instant::now() + deadline;
        let mut good = 0;
        loop {
            let samples = self.read(false);
            let back = |s: &MemorySample| {
                let before = self.before.get(s.device as usize).copied().flatten();
                before.is_none_or(|before| used(s) <= before.saturating_add(TOLERANCE))
            };
            good = if samples.iter().all(back) {
                good + 1
            } else {
                0
            };
            if good >= READINGS || samples.is_empty() || cancel.is_cancelled() {
                return Ok(());
            }
            if Instant::now() >= until {
                let held = self.held(deadline);
                return Err(held);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn held(&mut self, deadline: Duration) -> Held {
        let samples = self.read(true);
        let devices = self.backend.devices();
        let parts: Vec<String> = samples
            .iter()
            .filter_map(|s| {
                let before = self.before.get(s.device as usize).copied().flatten()?;
                let more = used(s)
                    .checked_sub(before)
                    .filter(|more| *more > TOLERANCE)?;
                let device = devices.iter().find(|d| d.index == s.device);
                let place = match device {
                    Some(d) if d.kind == DeviceKind::Gpu => format!("on {}", d.id),
                    _ => format!("in container `{}`", self.container),
                };
                Some(format!("{} {place}{}", Bytes(more), holders(s)))
            })
            .collect();
        Held {
            words: format!(
                "{} more than before the engine started, {} s after its end",
                parts.join(", "),
                deadline.as_secs()
            ),
        }
    }
}

/// In use, bytes; of a host without page cache, which the kernel gives back when asked.
fn used(sample: &MemorySample) -> u64 {
    let cache = sample.host.and_then(|h| h.file_bytes).unwrap_or(0);
    sample.used_bytes.saturating_sub(cache)
}

/// Who is on a device: the largest first.
fn holders(sample: &MemorySample) -> String {
    let mut processes: Vec<&ProcessMemory> = sample.processes.iter().flatten().collect();
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
    match words.is_empty() {
        true => String::new(),
        false => format!(" (held by {})", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_named_with_its_container() {
        let process = |pid, bytes: Option<u64>, container: Option<&str>| ProcessMemory {
            pid,
            used_bytes: bytes,
            name: Some("python3".into()),
            container_id: container.map(str::to_owned),
            ..ProcessMemory::default()
        };
        let sample = MemorySample {
            processes: Some(vec![
                process(7, Some(1 << 30), None),
                process(8, Some(2 << 30), Some("0123456789abcdef")),
            ]),
            ..MemorySample::default()
        };
        assert_eq!(
            holders(&sample),
            " (held by pid 8 (python3 in container 0123456789ab) 2.00 GiB, pid 7 (python3) 1.00 GiB)"
        );
        assert_eq!(holders(&MemorySample::default()), "");
    }
}
