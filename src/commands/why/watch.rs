//! `why --watch`: waits for a container's next death, and has its memory of the last minute.

use super::NamedDiagnosis;
use super::container::{diagnose_container, diagnose_removed};
use crate::capture::{DeviceFacts, MemorySample};
use crate::clock::{Clock, wall_now_ns};
use crate::collect::{StopSignal, unless_stopped};
use crate::console::Console;
use crate::container::Runtime;
use crate::container::events::ContainerNotice;
use crate::engine::diagnosis::LastReading;
use crate::error::Failure;
use crate::profile::DeviceGrowth;
use crate::telemetry::{
    BackendChoice, MeasuredContainer, MemorySampler, SamplerOptions, open_with_host,
};
use std::collections::VecDeque;
use std::thread::JoinHandle;

/// Readings that are kept, of all devices: a minute of eight GPUs at ten a second.
const MOST_READINGS: usize = 4800;
/// Seconds before the end of which a reading is shown.
const SHOWN_BEFORE_S: [f64; 9] = [60.0, 30.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.0];

/// The sampler of a life, with its last readings.
struct LifeWatch {
    clock: Clock,
    devices: Vec<DeviceFacts>,
    sampler: MemorySampler,
    ring: JoinHandle<(VecDeque<MemorySample>, DeviceGrowth)>,
}

/// Waits until the container that `wanted` names has died, and diagnoses it; keeps the evidence with `keep`.
///
/// # Errors
/// There is no such container, or a signal ended the wait.
pub async fn wait_for_death(
    console: &Console,
    runtime: &Runtime,
    wanted: &str,
    keep: bool,
    stop: &StopSignal,
) -> anyhow::Result<Vec<NamedDiagnosis>> {
    let since = wall_now_ns();
    let mut found = unless_stopped(stop, runtime.find_any(wanted)).await?;
    let id = found.facts.id.clone();
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<ContainerNotice>();
    let watch = runtime.watch_events(Some(&id), Some(since), None, stop.token(), move |event| {
        let _ = sender.send(event);
    });
    tokio::pin!(watch);
    console.print_note(&format!(
        "waiting for the next death of `{}`; Ctrl-C ends",
        found.facts.name
    ));
    let mut life = (found.facts.state.status == "running")
        .then(|| LifeWatch::start(&MeasuredContainer::of_container(&found.facts)))
        .flatten();
    let mut watch_ended = false;
    loop {
        if watch_ended && events.is_empty() {
            break;
        }
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            refused = &mut watch, if !watch_ended => {
                if let Some(why) = refused {
                    return Err(Failure::environment(why).into());
                }
                if stop.token().is_cancelled() {
                    return Err(stop.stop_failure().into());
                }
                watch_ended = true;
                continue;
            }
            () = stop.token().cancelled() => return Err(stop.stop_failure().into()),
        };
        match event.as_ref().map(|event| event.action.as_str()) {
            Some("start") => {
                if let Some(now) = runtime.inspect_container(&id).await? {
                    life = LifeWatch::start(&MeasuredContainer::of_container(&now.facts));
                }
            }
            Some("die") | None => break,
            Some(_) => {}
        }
    }
    let (readings, growth) = life.map(LifeWatch::end).unwrap_or_default();
    let name = found.facts.name.clone();
    let (mut diagnosis, kept) = match runtime.inspect_container(&id).await? {
        Some(now) => {
            found = now;
            diagnose_container(runtime, &found, keep).await
        }
        None => (
            diagnose_removed(runtime, &name).await.unwrap_or_default(),
            None,
        ),
    };
    diagnosis.last_readings = readings;
    diagnosis.now.extend(growth);
    Ok(vec![(name, diagnosis, kept)])
}

impl LifeWatch {
    /// Samples the memory of a container that runs; `None` where it cannot be read.
    fn start(container: &MeasuredContainer) -> Option<LifeWatch> {
        let clock = Clock::start();
        let backend = open_with_host(BackendChoice::Auto, container).ok()?;
        let devices = backend.devices();
        let (sampler, samples) =
            MemorySampler::start_thread(backend, &clock, SamplerOptions::default()).ok()?;
        let ring = std::thread::spawn(move || {
            let (mut ring, mut growth) = (VecDeque::new(), DeviceGrowth::default());
            for sample in samples.iter().flatten() {
                growth.add_sample(&sample);
                ring.push_back(sample);
                if ring.len() > MOST_READINGS {
                    ring.pop_front();
                }
            }
            (ring, growth)
        });
        Some(LifeWatch {
            clock,
            devices,
            sampler,
            ring,
        })
    }

    /// Ends it now, at the container's end.
    fn end(self) -> (Vec<LastReading>, Vec<String>) {
        let end_ns = self.clock.now();
        self.sampler.stop_thread();
        let (ring, growth) = self.ring.join().unwrap_or_default();
        let mut readings = Vec::new();
        for device in &self.devices {
            let mut last = None;
            for before_s in SHOWN_BEFORE_S {
                let until = end_ns - (before_s * 1e9) as i64;
                // After the end the cgroup is gone and reads as empty.
                let sample = (ring.iter().rev())
                    .find(|s| s.device == device.index && s.at_ns <= until && s.used_bytes > 0);
                let Some(sample) = sample.filter(|s| last != Some(s.at_ns)) else {
                    continue;
                };
                last = Some(sample.at_ns);
                readings.push(LastReading {
                    before_end_s: (end_ns - sample.at_ns) as f64 / 1e9,
                    device: device.name.clone(),
                    used_bytes: sample.used_bytes,
                });
            }
        }
        (readings, growth.describe_devices(&self.devices))
    }
}
