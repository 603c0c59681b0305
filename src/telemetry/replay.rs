//! A backend that plays back samples on the clock it is read with: for tests and for replaying an
//! old capture.

use super::{MemoryBackend, Reading, ReadingError, Wanted};
use crate::capture::{AtNs, BackendFacts, DeviceFacts, MemorySample};
use crate::clock::Clock;
use std::time::Duration;

/// Plays back samples. A reading returns the last sample before its time; after the last sample the
/// replay is over.
pub struct ReplayBackend {
    clock: Clock,
    facts: BackendFacts,
    devices: Vec<DeviceFacts>,
    /// Per device, ordered by time.
    tracks: Vec<DeviceTrack>,
    ends_at: Option<AtNs>,
    /// Whether gauges appear as recorded, instead of at every reading.
    as_recorded: bool,
    probe_floor: Option<Duration>,
}

#[derive(Default)]
struct DeviceTrack {
    samples: Vec<MemorySample>,
    /// Number of samples already played.
    played: usize,
}

impl DeviceTrack {
    /// Number of samples up to a moment.
    fn upto(&self, now: AtNs) -> usize {
        self.samples.partition_point(|s| s.at_ns <= now)
    }
}

impl ReplayBackend {
    /// Plays `samples` of `devices` on `clock`, which the sampler must use too: probing asks it for
    /// the time.
    pub fn new(
        clock: &Clock,
        devices: Vec<DeviceFacts>,
        mut samples: Vec<MemorySample>,
    ) -> ReplayBackend {
        samples.sort_by_key(|s| s.at_ns);
        let facts = BackendFacts {
            name: "replay".into(),
            version: None,
            simulated: true,
            reason: "samples of an earlier capture are played back".into(),
        };
        let ends_at = samples.last().map(|s| s.at_ns);
        let mut tracks: Vec<DeviceTrack> = devices.iter().map(|_| DeviceTrack::default()).collect();
        for sample in samples {
            if let Some(place) = devices.iter().position(|d| d.index == sample.device) {
                tracks[place].samples.push(sample);
            }
        }
        ReplayBackend {
            clock: clock.clone(),
            facts,
            devices,
            tracks,
            ends_at,
            as_recorded: false,
            probe_floor: Some(Duration::from_millis(1)),
        }
    }

    /// Plays a recorded session from now on. The facts name the recorded backend, because the
    /// figures are as real as that backend's. `named`: the source of the session.
    pub fn of_session(
        clock: &Clock,
        recorded: &BackendFacts,
        devices: Vec<DeviceFacts>,
        mut samples: Vec<MemorySample>,
        named: &str,
    ) -> ReplayBackend {
        let first = samples.iter().map(|s| s.at_ns).min().unwrap_or(0);
        let shift = clock.now().saturating_sub(first);
        for sample in &mut samples {
            sample.at_ns = sample.at_ns.saturating_add(shift);
        }
        let version = recorded.version.as_deref().unwrap_or("of unknown version");
        let facts = BackendFacts {
            name: "replay".into(),
            version: Some(format!("{} {version}", recorded.name)),
            simulated: recorded.simulated,
            reason: format!(
                "the session recorded in `{named}` is played back; there {}",
                recorded.reason
            ),
        };
        ReplayBackend {
            facts,
            as_recorded: true,
            ..ReplayBackend::new(clock, devices, samples)
        }
    }

    /// Sets the shortest probe interval; `None` forbids probing.
    pub fn probed_every(mut self, floor: Option<Duration>) -> ReplayBackend {
        self.probe_floor = floor;
        self
    }
}

/// The memory figures alone, for a sample that was already played.
fn memory_of(sample: &MemorySample) -> MemorySample {
    MemorySample {
        used_bytes: sample.used_bytes,
        kernel_peak_bytes: sample.kernel_peak_bytes,
        reserved_bytes: sample.reserved_bytes,
        host: sample.host,
        ..MemorySample::default()
    }
}

/// A reading now: the last sample, completed by the samples passed since the previous reading.
fn joined(passed: &[MemorySample]) -> Option<MemorySample> {
    let (last, earlier) = passed.split_last()?;
    let mut sample = last.clone();
    for before in earlier.iter().rev() {
        let low = before.low_bytes.unwrap_or(before.used_bytes);
        let high = before.high_bytes.unwrap_or(before.used_bytes);
        sample.low_bytes = Some(sample.low_bytes.map_or(low, |l| l.min(low)));
        sample.high_bytes = Some(sample.high_bytes.map_or(high, |h| h.max(high)));
        sample.fill_gauges(before);
        if sample.processes.is_none() {
            sample.processes.clone_from(&before.processes);
        }
    }
    Some(sample)
}

impl MemoryBackend for ReplayBackend {
    fn facts(&self) -> BackendFacts {
        self.facts.clone()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.devices.clone()
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        let now = clock.now();
        // Samples between the last reading and the end belong to the session too.
        let rest = self.as_recorded && self.tracks.iter().any(|t| t.played < t.samples.len());
        if self.ends_at.is_none_or(|end| now > end) && !rest {
            return Err(ReadingError::Over);
        }
        for (device, track) in self.devices.iter().zip(&mut self.tracks) {
            let upto = track.upto(now);
            let last = upto.checked_sub(1).map(|last| &track.samples[last]);
            let sample = match joined(&track.samples[track.played.min(upto)..upto]) {
                _ if !self.as_recorded => last.cloned(),
                // Between two recorded samples only the memory is known.
                None => last.map(memory_of),
                joined => joined,
            };
            track.played = upto;
            let Some(mut sample) = sample else { continue };
            sample.at_ns = now;
            sample.device = device.index;
            sample.burst = false;
            if !self.as_recorded {
                // Like a real backend: only what was requested.
                sample.processes = sample.processes.filter(|_| wanted.detail);
                sample.bench_client_bytes = sample
                    .bench_client_bytes
                    .filter(|_| wanted.bench_client.is_some());
            }
            into.push(sample);
        }
        Ok(())
    }

    fn probe_floor(&self) -> Option<Duration> {
        self.probe_floor
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        let now = self.clock.now();
        into.clear();
        into.extend(
            self.tracks
                .iter()
                .map(|t| match t.upto(now).checked_sub(1) {
                    Some(last) => t.samples[last].used_bytes,
                    None => 0,
                }),
        );
        Ok(())
    }
}
