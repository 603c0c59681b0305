//! The sampling thread: full readings at fixed times, cheap probes in between for short peaks, and
//! a count of missed readings.

use super::costs::CallLedger;
use super::costs::Histogram;
use super::pace::Pace;
use super::pace::Probing;
use super::{MemoryBackend, ReadingError, Wanted};
use crate::capture::{AtNs, BackendFacts, DeviceEvent, DeviceFacts, MemorySample, SamplingFacts};
use crate::clock::{Clock, to_nanos};
use crate::error::{ExitCode, Failure};
use crate::sync::lock_data;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Readings are delivered together after this time: waking the reader costs more than a reading.
const HOLD_NS: i64 = 250_000_000;
/// Channel capacity, in deliveries: about a minute of samples.
const WAITING: usize = 256;
/// Maximum number of events kept of a run, beyond the first of each kind and device. A failing GPU
/// repeats itself for hours.
const MOST_EVENTS: usize = 200;
/// Of the sampling thread, which needs little time but punctually.
const NICENESS: i32 = -10;

/// How to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Interval of full readings; 10 ms or more.
    pub interval: Duration,
    /// Interval of probes. There are none unless at least one fits between two full readings.
    ///
    /// Waking the thread costs some fifty times the reading (`benches/sampler.rs`): on an idle
    /// virtual machine 10 ms take 0.7 % of a core, 20 ms 0.4 %. The default is the longest that
    /// still sees whatever lasts 30 ms.
    pub probe_interval: Duration,
}

impl SamplerOptions {
    /// The shortest interval between full readings.
    pub const SHORTEST: Duration = Duration::from_millis(10);
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions {
            interval: Duration::from_millis(100),
            probe_interval: Duration::from_millis(25),
        }
    }
}

/// A running sampling thread. Dropped without [`MemorySampler::stop_thread`] it ends by itself soon.
pub struct MemorySampler {
    handle: SamplerHandle,
    thread: Option<JoinHandle<Stopped>>,
}

/// Result of a stopped sampler.
#[derive(Debug, Clone, PartialEq)]
pub struct Stopped {
    /// How sampling went.
    pub sampling: SamplingFacts,
    /// The backend, as it knows itself at the end.
    pub backend: BackendFacts,
}

/// Controls a running sampler from any thread, without waiting for it.
#[derive(Clone, Default)]
pub struct SamplerHandle {
    shared: Arc<SharedRequests>,
}

#[derive(Default)]
struct SharedRequests {
    requests: Mutex<SamplerRequests>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct SamplerRequests {
    stop: bool,
    sample_now: bool,
    burst: bool,
    bench_client: Option<u32>,
}

impl SamplerHandle {
    /// Requests one more full reading with all details, at a phase boundary. Several requests
    /// before the reading are one. A request made before [`MemorySampler::stop_thread`] is still served.
    pub fn sample_now(&self) {
        self.shared.change(|w| w.sample_now = true);
    }

    /// Marks a phase boundary: as [`SamplerHandle::sample_now`], and for some hundred milliseconds
    /// full readings come every 10 ms, if they are cheap enough. Those have [`MemorySample::burst`]
    /// set.
    pub fn mark_edge(&self) {
        self.shared.change(|w| {
            w.sample_now = true;
            w.burst = true;
        });
    }

    /// Sets the exec (host pid of its process 1) to be measured at every full reading, in
    /// addition to the engine's; `None` ends that.
    pub fn set_bench_client(&self, host_pid: Option<u32>) {
        self.shared.change(|w| w.bench_client = host_pid);
    }
}

impl SharedRequests {
    fn lock_requests(&self) -> MutexGuard<'_, SamplerRequests> {
        // Plain values: a panic elsewhere cannot leave them inconsistent.
        lock_data(&self.requests)
    }

    fn change(&self, change: impl FnOnce(&mut SamplerRequests)) {
        change(&mut self.lock_requests());
        self.changed.notify_one();
    }

    /// Waits at most until `due`, and returns the reason for returning.
    fn wait_until(&self, clock: &Clock, due: AtNs) -> Wake {
        let mut requests = self.lock_requests();
        loop {
            if std::mem::take(&mut requests.sample_now) {
                return Wake::Asked;
            }
            if requests.stop {
                return Wake::Stop;
            }
            if clock.is_manual() {
                clock.advance_to(due);
            }
            let left = due - clock.now();
            if left <= 0 {
                return Wake::Due;
            }
            let left = Duration::from_nanos(left.unsigned_abs());
            requests = self
                .changed
                .wait_timeout(requests, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits shortly for the reader of the samples; false when the sampler must stop instead.
    fn wait_for_reader(&self) -> bool {
        let requests = self.lock_requests();
        if requests.stop {
            return false;
        }
        let (requests, _) = self
            .changed
            .wait_timeout(requests, Duration::from_millis(5))
            .unwrap_or_else(PoisonError::into_inner);
        !requests.stop
    }
}

enum Wake {
    Due,
    Asked,
    Stop,
}

impl MemorySampler {
    /// Starts sampling. The samples arrive in the order they were taken, those of some time together; the channel
    /// closes with the sampler. When its reader falls far behind, the sampler waits and counts the missed
    /// ticks: memory stays bounded and no loss is hidden.
    pub fn start_thread(
        backend: Box<dyn MemoryBackend>,
        clock: &Clock,
        options: SamplerOptions,
    ) -> Result<(MemorySampler, Receiver<Vec<MemorySample>>), Failure> {
        if options.interval < SamplerOptions::SHORTEST {
            return Err(Failure::usage(format!(
                "a sample interval of {:?} is too short",
                options.interval
            ))
            .hint(format!("the shortest is {:?}", SamplerOptions::SHORTEST)));
        }
        let handle = SamplerHandle::default();
        let (samples, reader) = sync_channel(WAITING);
        let clock = clock.clone();
        let shared = Arc::clone(&handle.shared);
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || SamplerRun::new(backend, clock, options, shared, samples).run_loop())
            .map_err(|e| {
                Failure::new(
                    ExitCode::Environment,
                    "the sampling thread cannot be started",
                )
                .caused_by(e)
            })?;
        Ok((
            MemorySampler {
                handle,
                thread: Some(thread),
            },
            reader,
        ))
    }

    /// A handle for other threads.
    pub fn handle(&self) -> SamplerHandle {
        self.handle.clone()
    }

    /// Ends sampling after the reading in progress.
    pub fn stop_thread(mut self) -> Stopped {
        self.handle.shared.change(|w| w.stop = true);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(stopped)) => stopped,
            _ => Stopped {
                sampling: SamplingFacts {
                    last_error: Some("the sampling thread panicked".into()),
                    ..SamplingFacts::default()
                },
                backend: BackendFacts::default(),
            },
        }
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.handle.shared.change(|w| w.stop = true);
    }
}

/// Why a full reading is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Tick,
    Asked,
    Burst,
}

/// The next event before the next tick, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Probe(AtNs),
    Burst(AtNs),
}

impl Between {
    fn at(self) -> Option<AtNs> {
        match self {
            Between::Nothing => None,
            Between::Probe(at) | Between::Burst(at) => Some(at),
        }
    }
}

/// The state of the sampling thread.
struct SamplerRun {
    backend: Box<dyn MemoryBackend>,
    devices: Vec<DeviceFacts>,
    clock: Clock,
    options: SamplerOptions,
    shared: Arc<SharedRequests>,
    reader: SyncSender<Vec<MemorySample>>,
    facts: SamplingFacts,
    lateness: Histogram,
    probing: Probing,
    pace: Pace,
    costs: CallLedger,
    last_sample_at: Option<AtNs>,
    /// Reused between readings.
    batch: Vec<MemorySample>,
    /// Not handed on yet, and since when.
    held: Vec<MemorySample>,
    held_since: Option<AtNs>,
}

impl SamplerRun {
    fn new(
        backend: Box<dyn MemoryBackend>,
        clock: Clock,
        options: SamplerOptions,
        shared: Arc<SharedRequests>,
        reader: SyncSender<Vec<MemorySample>>,
    ) -> SamplerRun {
        let devices = backend.devices();
        let probing = Probing::new(backend.probe_floor(), options, devices.len());
        let facts = SamplingFacts {
            interval_ns: to_nanos(options.interval).unsigned_abs(),
            ..SamplingFacts::default()
        };
        SamplerRun {
            backend,
            devices,
            clock,
            options,
            shared,
            reader,
            facts,
            lateness: Histogram::default(),
            probing,
            pace: Pace::new(to_nanos(options.interval)),
            costs: CallLedger::default(),
            last_sample_at: None,
            batch: Vec::new(),
            held: Vec::new(),
            held_since: None,
        }
    }

    fn run_loop(mut self) -> Stopped {
        // When an engine keeps every core busy, a thread of normal priority wakes too late for
        // short intervals. Without permission it stays normal, and the jitter figures show it.
        if !self.clock.is_manual() {
            // None is this thread (setpriority(2), C library differences).
            let _ = rustix::process::setpriority_process(None, NICENESS);
        }
        self.sample_until_stopped();
        self.hand_on();
        if let Some(last) = self.last_sample_at {
            self.note_gap(last, self.clock.now());
        }
        self.facts.jitter_p99_ns = self.lateness.quantile(0.99);
        self.facts.calls = self.costs.report_costs();
        self.facts.calls.extend(self.backend.costs());
        if !self.clock.is_manual() {
            let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            self.facts.cpu_ns = Duration::try_from(cpu)
                .ok()
                .map(|d| to_nanos(d).unsigned_abs());
        }
        self.facts.probe_interval_ns = self
            .probing
            .used
            .then(|| self.probing.interval_ns.unsigned_abs());
        Stopped {
            sampling: self.facts,
            backend: self.backend.facts(),
        }
    }

    fn sample_until_stopped(&mut self) {
        let interval = to_nanos(self.options.interval);
        let mut due = self.clock.now();
        let mut between = Between::Nothing;
        loop {
            let wake_at = between.at().map_or(due, |at| at.min(due));
            let go_on = match self.shared.wait_until(&self.clock, wake_at) {
                Wake::Stop => false,
                Wake::Asked => {
                    if std::mem::take(&mut self.shared.lock_requests().burst) {
                        self.pace.begin_burst(self.clock.now());
                    }
                    self.take_reading(Reason::Asked)
                }
                Wake::Due if self.clock.now() < due => match between {
                    Between::Burst(_) => {
                        self.facts.burst_readings += 1;
                        self.take_reading(Reason::Burst)
                    }
                    Between::Nothing | Between::Probe(_) => {
                        let start = self.clock.now();
                        self.probing.make_probe(self.backend.as_mut(), &self.clock);
                        self.costs.note_call("probe", self.clock.now() - start);
                        true
                    }
                },
                Wake::Due => {
                    let late = self.clock.now() - due;
                    self.lateness.add_duration(late.unsigned_abs());
                    self.facts.ticks += 1;
                    let go_on = self.take_reading(Reason::Tick);
                    // What was missed is not made up for: a burst would only show the same memory again.
                    let passed = late / interval;
                    let (next, missed) =
                        next_due(due + passed * interval, interval, self.clock.now());
                    self.facts.missed_ticks += (passed + missed).unsigned_abs();
                    // The ticks that slow readings have missed already are not left out again.
                    let left_out = (self.pace.tick_stretch() - 1 - passed - missed).max(0);
                    self.facts.backed_off_ticks += left_out.unsigned_abs();
                    due = next + left_out * interval;
                    go_on
                }
            };
            if !go_on {
                return;
            }
            let now = self.clock.now();
            between = match self.pace.burst_due(now, due) {
                Some(at) => Between::Burst(at),
                None => self
                    .probing
                    .next(now, due)
                    .map_or(Between::Nothing, Between::Probe),
            };
        }
    }

    /// One full reading, handed on. False ends the sampling.
    fn take_reading(&mut self, reason: Reason) -> bool {
        let wanted = Wanted {
            detail: reason == Reason::Asked,
            bench_client: self.shared.lock_requests().bench_client,
        };
        self.batch.clear();
        let start = self.clock.now();
        let result = self.backend.sample(&self.clock, wanted, &mut self.batch);
        let cost = self.clock.now() - start;
        self.costs.note_call("reading", cost);
        self.pace.note_cost(cost);
        match result {
            Ok(()) => {}
            Err(ReadingError::Over) => return false,
            Err(e) => {
                self.facts.failed_readings += 1;
                self.facts.last_error = Some(e.to_string());
            }
        }
        self.note_events();
        if let (Some(first), Some(last)) = (self.batch.first(), self.batch.last()) {
            let (first, last) = (first.at_ns, last.at_ns);
            if let Some(before) = self.last_sample_at {
                self.note_gap(before, first);
            }
            self.last_sample_at = Some(last);
        }
        self.batch
            .retain(|s| (s.device as usize) < self.devices.len());
        for sample in &mut self.batch {
            self.probing.note_range(sample);
            sample.burst = reason == Reason::Burst;
        }
        self.held.append(&mut self.batch);
        let now = self.clock.now();
        let since = *self.held_since.get_or_insert(now);
        let next = now + to_nanos(self.options.interval).saturating_mul(self.pace.tick_stretch());
        if reason == Reason::Asked || next - since > HOLD_NS {
            return self.hand_on();
        }
        true
    }

    /// Keeps what happened to the devices, in bounded memory.
    fn note_events(&mut self) {
        for event in self.backend.take_events() {
            let same = |e: &DeviceEvent| e.device == event.device && e.code == event.code;
            if self.facts.events.len() < MOST_EVENTS || !self.facts.events.iter().any(same) {
                self.facts.events.push(event);
            }
        }
    }

    fn note_gap(&mut self, from: AtNs, to: AtNs) {
        self.facts.longest_gap_ns = self
            .facts
            .longest_gap_ns
            .max((to - from).max(0).unsigned_abs());
    }

    /// Hands what is held to the reader. False when there is no reader any more.
    fn hand_on(&mut self) -> bool {
        self.held_since = None;
        if self.held.is_empty() {
            return true;
        }
        let mut samples = std::mem::take(&mut self.held);
        loop {
            match self.reader.try_send(samples) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if self.shared.wait_for_reader() => samples = back,
                Err(TrySendError::Full(_)) => {
                    self.facts.failed_readings += 1;
                    self.facts.last_error =
                        Some("samples were lost at the end: the sample channel was closed".into());
                    return false;
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.facts.last_error =
                        Some("sampling ended early: the reader of the samples has stopped".into());
                    return false;
                }
            }
        }
    }
}

/// The tick after the one that was due at `due`, when it is `now`, and how many are left out. A
/// tick less than half an interval late is still worth taking.
fn next_due(due: AtNs, interval: i64, now: AtNs) -> (AtNs, i64) {
    let behind = now - (due + interval) - interval / 2;
    let missed = if behind > 0 {
        (behind + interval - 1) / interval
    } else {
        0
    };
    (due + (missed + 1) * interval, missed)
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
