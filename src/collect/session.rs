//! One capture of an engine, step by step: plan, inspect, open the memory, record, and derive the
//! profile. Every measuring command uses it.

use super::attach::AttachedEngine;
use super::ending::has_ended;
use super::finish::{Concluded, derive_and_store};
use super::follow::Deadline;
use super::recorder::Recorder;
use super::setup::inspect_setup;
use super::{KeptBench, Setup, SharedRun, StopSignal, Turn, endpoints};
use crate::capture::{Capture, ContainerFacts, DeviceFacts, Request};
use crate::clock::Clock;
use crate::engine::LoadKind;
use crate::error::Failure;
use crate::progress::Sink;
use crate::redact::Secrets;
use crate::store::{CaptureWriter, Recording, RunPaths, StoredCapture};
use crate::telemetry::{
    self, BackendChoice, MeasuredContainer, MemoryBackend, MemorySampler, ReplayBackend,
    SamplerOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// How long sampling continues after the load, to see memory fall and collect the last lines.
pub const COOLDOWN: Duration = Duration::from_secs(1);

/// A short id for a run, unique on this host.
pub fn run_id() -> String {
    /// The last id's time in this process, milliseconds: concurrent runs may begin in the same one.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let next = |last: u64| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    let own = now.max(last.unwrap_or(0) + 1);
    format!("{own:x}-{:x}", std::process::id())
}

/// Plan of a capture.
#[derive(Clone)]
pub struct CapturePlan {
    /// Id of the run.
    pub run_id: String,
    /// The engine in its container.
    pub attached: AttachedEngine,
    /// The requested load and settings.
    pub request: Request,
    /// How often to run the bench.
    pub repeats: u32,
    /// How long to sample before the load.
    pub baseline: Duration,
    /// The bench to run; `None` watches without a load.
    pub kind: Option<LoadKind>,
    /// How long to watch when no bench runs; `None` until interrupted.
    pub watch: Option<Duration>,
    /// Health check to wait for, for a container that was just started.
    pub health: Option<HealthCheck>,
    /// How long to sample after the load; see [`COOLDOWN`].
    pub cooldown: Duration,
    /// State shared with other captures.
    pub shared: SharedRun,
    /// A folder in the container made for this run alone, and removed by its owner; `None`: the run
    /// makes one and removes it.
    pub workdir: Option<String>,
    /// The bench's program, if it is kept running in the container for many runs.
    pub kept: Option<KeptBench>,
    /// Another run on the same engine begins as soon as the load is over: this run's cooldown
    /// overlaps with that run's baseline, which is at least as long.
    pub followed: bool,
    /// Its place among runs side by side.
    pub turn: Option<Turn>,
}

impl AttachedEngine {
    /// A plan for one run of a load on this engine, with defaults for everything not requested.
    /// `kind`: the bench; `None` watches without a load.
    pub fn plan_capture(&self, kind: Option<LoadKind>, request: Request) -> CapturePlan {
        let mut attached = self.clone();
        // The requested arguments may contain secrets too.
        let requested = Secrets::gather_from([], &request.extra_engine_args);
        attached.found.secrets.extend(&requested);
        CapturePlan {
            run_id: run_id(),
            attached,
            request: Request {
                bench: kind.map_or("none", LoadKind::as_str).into(),
                ..request
            },
            repeats: 1,
            baseline: Duration::ZERO,
            kind,
            watch: None,
            health: None,
            cooldown: COOLDOWN,
            shared: SharedRun::default(),
            workdir: None,
            kept: None,
            followed: false,
            turn: None,
        }
    }
}

/// Criterion for a started engine to count as serving.
#[derive(Debug, Clone, Copy)]
pub struct HealthCheck {
    /// Path that answers 200 when the engine serves.
    pub path: &'static str,
    /// Maximum time until then.
    pub timeout: Duration,
}

impl CapturePlan {
    /// The container, as Docker describes it.
    pub fn facts(&self) -> &ContainerFacts {
        &self.attached.found.facts
    }
}

/// Source of a run's memory samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemorySource {
    /// A backend of this host.
    Live(BackendChoice),
    /// A recording, or the samples of a stored capture, played from the start of the run.
    Recorded(PathBuf),
}

impl MemorySource {
    /// Opens it for a container.
    pub fn open_backend(
        &self,
        clock: &Clock,
        facts: &ContainerFacts,
    ) -> Result<Box<dyn MemoryBackend>, Failure> {
        match self {
            MemorySource::Live(choice) => {
                telemetry::open_with_host(*choice, &MeasuredContainer::of_container(facts))
            }
            MemorySource::Recorded(path) => replay_of(path, clock),
        }
    }
}

fn replay_of(path: &Path, clock: &Clock) -> Result<Box<dyn MemoryBackend>, Failure> {
    let name = path.display().to_string();
    let (backend, devices, samples) = if path.is_dir() {
        let stored = StoredCapture::open(path)?;
        let samples = stored.read_samples()?.collect();
        let devices = stored.capture.sampled_devices();
        (stored.capture.backend, devices, samples)
    } else {
        let recording = Recording::read_recording(path)?;
        let header = recording.header;
        (header.backend, header.devices, recording.samples)
    };
    if samples.is_empty() {
        return Err(
            Failure::usage(format!("the recording `{name}` has no readings"))
                .hint("record for longer: `plimsoll record --container NAME -o FILE`"),
        );
    }
    let replay = ReplayBackend::of_session(clock, &backend, devices, samples, &name);
    Ok(Box::new(replay))
}

/// One run: its clock, its deadline, and its progress reports.
pub struct CaptureSession {
    /// The clock of the capture.
    pub clock: Clock,
    stop: StopSignal,
    progress: Sink,
    _deadline: Option<Deadline>,
}

impl CaptureSession {
    /// Starts the clock; the run is stopped after `timeout`.
    pub fn begin_session(
        stop: &StopSignal,
        progress: Sink,
        timeout: Option<Duration>,
    ) -> CaptureSession {
        CaptureSession {
            clock: Clock::start(),
            stop: stop.clone(),
            progress,
            _deadline: timeout.map(|time| Deadline::start(time, stop)),
        }
    }

    /// Gathers the facts that the run needs about the engine.
    pub async fn inspect_engine(&self, plan: &CapturePlan) -> Result<Setup, Failure> {
        inspect_setup(plan, &self.clock, &self.stop, &self.progress).await
    }

    /// As [`Self::inspect_engine`] for one of several runs on an engine: the first run's facts,
    /// with the model's files, are kept in `known` for the later ones.
    pub async fn inspect_once(
        &self,
        plan: &CapturePlan,
        known: &mut Option<Setup>,
    ) -> Result<Setup, Failure> {
        if let Some(known) = known {
            return Ok(known.repeat_for(plan));
        }
        let mut setup = self.inspect_engine(plan).await?;
        setup.read_files(&plan.attached.runtime).await;
        *known = Some(setup.repeat_for(plan));
        Ok(setup)
    }

    /// Opens the memory backend. A container started by plimsoll may have ended already: its log
    /// and exit code are still captured.
    pub async fn open_memory(
        &self,
        plan: &CapturePlan,
        source: &MemorySource,
    ) -> Result<Box<dyn MemoryBackend>, Failure> {
        let AttachedEngine { runtime, found, .. } = &plan.attached;
        match source.open_backend(&self.clock, &found.facts) {
            Err(_) if plan.health.is_some() && has_ended(runtime, found).await => {
                Ok(telemetry::ended_container())
            }
            opened => opened,
        }
    }

    /// Starts sampling.
    pub fn start_recording(
        &self,
        plan: CapturePlan,
        memory: Box<dyn MemoryBackend>,
        writer: CaptureWriter,
    ) -> Result<RunningCapture, Failure> {
        let recorder = Arc::new(Recorder::new(
            self.clock.clone(),
            writer,
            plan.attached.found.secrets.redactor(),
            plan.attached.engine,
            self.stop.clone(),
            self.progress.clone(),
        ));
        let devices = memory.devices();
        let options = SamplerOptions {
            interval: Duration::from_nanos(plan.request.sample_interval_ns),
            ..SamplerOptions::default()
        };
        let (sampler, samples) = MemorySampler::start_thread(memory, &self.clock, options)?;
        recorder.watch_edges(sampler.handle());
        let drain = recorder
            .drain_samples(samples)
            .map_err(|e| Failure::environment("cannot start a thread").caused_by(e))?;
        Ok(RunningCapture {
            plan,
            recorder,
            stop: self.stop.clone(),
            sampler,
            drain,
            devices,
            gauge_interval: endpoints::GAUGE_INTERVAL,
            background: CancellationToken::new(),
        })
    }
}

/// A capture with running instruments.
pub struct RunningCapture {
    pub(super) plan: CapturePlan,
    pub(super) recorder: Arc<Recorder>,
    pub(super) stop: StopSignal,
    pub(super) sampler: MemorySampler,
    pub(super) drain: std::thread::JoinHandle<()>,
    pub(super) devices: Vec<DeviceFacts>,
    pub(super) gauge_interval: Duration,
    /// Ends what runs beside the load. It outlives `stop`: the last lines and the last events belong to the capture.
    pub(super) background: CancellationToken,
}

impl RunningCapture {
    /// Reads the engine's gauges at this interval, instead of once a second.
    pub fn reading_gauges(mut self, interval: Duration) -> RunningCapture {
        self.gauge_interval = interval;
        self
    }

    /// Runs the capture and writes it. Always returns one; [`Capture::end`] holds how the run
    /// ended. Without a `setup` it first waits for the engine and reads its endpoints.
    pub async fn collect_capture(self, setup: Option<Setup>) -> Collected {
        self.run_load(setup).await.finish().await
    }

    /// As [`Self::collect_capture`], and derives the profile.
    pub async fn conclude_capture(
        self,
        setup: Option<Setup>,
        paths: &RunPaths,
    ) -> Result<Concluded, Failure> {
        let progress = self.recorder.sink().clone();
        derive_and_store(&progress, paths, self.collect_capture(setup).await)
    }
}

/// Result of a capture run.
pub struct Collected {
    /// The capture.
    pub capture: Capture,
    /// Whether it was written.
    pub written: Result<(), Failure>,
    /// What stopped the run, if plimsoll knows more about it than [`Capture::end`].
    pub failure: Option<Failure>,
}
