//! Takes one capture: samples, follows the log, runs the bench, and stops it all again. Whatever
//! happens meanwhile, what was seen until then is a capture.

mod bench;
mod builtin;
mod conclude;
mod ended;
mod ending;
mod endpoints;
mod find_models;
mod finish;
mod follow;
mod graph_probe;
mod kept;
mod launching;
mod model_files;
mod recognise;
mod recorder;
mod setup;
mod shared;
mod stop;

pub use conclude::{Concluded, derive_and_store};
pub use ended::{explain_end, find_running, open_memory};
pub use endpoints::Door;
pub use finish::Loaded;
pub use follow::Deadline;
pub use graph_probe::{ProbeJob, Probed, probe_graphs};
pub use kept::{Done, KeptBench};
pub use launching::{
    Launch, end, engine_of_image, gpu_request, gpu_words, launch, launch_spec, told_port,
};
pub use recognise::{engine_named, meet};
pub use setup::{BenchSetup, answers, describe, inspect, program_state};
pub use shared::{ServerLog, Shared, Startup};
pub use stop::{Stop, unless_stopped};

use crate::capture::{
    Capture, ContainerFacts, DeviceFacts, EngineGauges, ExecOutcome, Mode, Phase, Probe, Request,
    RunEnd, SharedStart,
};
use crate::clock::Clock;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::engine::{Engine, LoadKind, PlanError};
use crate::error::Failure;
use crate::progress::{Progress, Sink, Stage};
use crate::redact::Secrets;
use crate::store::{CaptureWriter, ContainerLock};
use crate::telemetry::{self, MemoryBackend, Options, Sampler, SamplerHandle, Target};
use bench::Bench;
use finish::Sampling;
pub use model_files::ModelFiles;
use recorder::Recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// Between two questions whether a started engine serves.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// Between two reports of an engine that does not serve yet.
const WAITING_REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Sampled on after the load, so that the fall is seen and the last lines are in.
pub const COOLDOWN: Duration = Duration::from_secs(1);

/// An id for a run: short, and different from every other on this host.
pub fn run_id() -> String {
    /// The last one of this process, milliseconds: runs side by side may begin in the same one.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let next = |last: u64| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    let mine = now.max(last.unwrap_or(0) + 1);
    format!("{mine:x}-{:x}", std::process::id())
}

/// Adds the secrets that stand in the request's own words to those of the container.
pub fn found_with(mut found: Found, request: &Request) -> Found {
    let ours = Secrets::gather([], &request.extra_engine_args);
    found.secrets.extend(&ours);
    found
}

/// Takes the container for this run alone.
pub fn lock(facts: &ContainerFacts) -> Result<ContainerLock, Failure> {
    let cgroup = telemetry::cgroup_directory(&Target::of(facts));
    let taken = ContainerLock::take(&facts.id, &facts.name, cgroup.as_deref());
    match cgroup {
        // It went with its container meanwhile.
        Some(gone) if taken.is_err() && !gone.exists() => {
            ContainerLock::take(&facts.id, &facts.name, None)
        }
        _ => taken,
    }
}

/// What to capture.
#[derive(Clone)]
pub struct Plan {
    /// Identifies the run.
    pub run_id: String,
    /// The container.
    pub found: Found,
    /// Its engine.
    pub engine: &'static dyn Engine,
    /// How it was recognised.
    pub engine_evidence: String,
    /// How we met it.
    pub mode: Mode,
    /// What was asked for.
    pub request: Request,
    /// Times to run the bench.
    pub repeats: u32,
    /// How long to sample before the load.
    pub baseline: Duration,
    /// The bench to run; `None` watches without a load.
    pub kind: Option<LoadKind>,
    /// How long to watch when no bench runs; `None` until interrupted.
    pub watch: Option<Duration>,
    /// What to wait for before anything else, for a container that was only just started.
    pub health: Option<Health>,
    /// How long to sample after the load; see [`COOLDOWN`].
    pub cooldown: Duration,
    /// What it shares with other captures.
    pub shared: Shared,
    /// A folder in the container that is there for this run alone, and that its owner removes;
    /// `None`: the run makes one and removes it.
    pub workdir: Option<String>,
    /// The bench's program, where it is kept running in the container for many runs.
    pub kept: Option<KeptBench>,
    /// Another run on the same engine begins as soon as the load is over: this one cools down while
    /// that samples its baseline, which takes as long at least.
    pub followed: bool,
    /// See [`program_state`]: what the container's programs report of their flags is cached by it.
    pub made_of: Option<String>,
}

/// When a started engine counts as serving.
#[derive(Debug, Clone, Copy)]
pub struct Health {
    /// Path that answers 200 then.
    pub path: &'static str,
    /// How long that may take.
    pub timeout: Duration,
}

/// What was found out about the engine before anything ran.
pub struct Setup {
    /// The bench, unless there is none.
    pub bench: Option<BenchSetup>,
    /// The model, where it is known.
    pub model: Option<String>,
    /// Where the engine listens.
    pub door: Door,
    /// Its endpoints' replies.
    pub probes: Vec<Probe>,
    /// Commands that were run to find out.
    pub execs: Vec<ExecOutcome>,
    /// The model's files, where they were read already.
    pub files: Option<ModelFiles>,
}

impl Setup {
    /// The same for another run on the same engine: asking a bench for its flags takes as long as
    /// loading an engine. What was asked belongs to the capture of the first run.
    pub fn again(&self, plan: &Plan) -> Setup {
        Setup {
            bench: self.bench.clone().map(|bench| BenchSetup {
                workdir: setup::workdir(plan),
                ..bench
            }),
            model: self.model.clone(),
            door: self.door.clone(),
            probes: Vec::new(),
            execs: Vec::new(),
            files: self.files.clone(),
        }
    }

    /// Reads the model's files now, so that runs after this one need not.
    pub async fn read_files(&mut self, runtime: &Runtime) {
        let facts = &self.door.facts;
        self.files = Some(ModelFiles::read(runtime, facts, self.model.as_deref()).await);
    }
}

/// What came of a run.
pub struct Collected {
    /// What was observed.
    pub capture: Capture,
    /// Whether it could be written down.
    pub written: Result<(), Failure>,
    /// What stopped the run, when plimsoll can tell more of it than [`Capture::end`] does.
    pub failure: Option<Failure>,
}

/// The instruments of a run, running.
pub struct Instruments {
    recorder: Arc<Recorder>,
    stop: Stop,
    sampler: Sampler,
    drain: std::thread::JoinHandle<()>,
    devices: Vec<DeviceFacts>,
    gauges_every: Duration,
}

impl Instruments {
    /// Reads the engine's gauges so often, instead of once a second.
    pub fn reading_gauges(mut self, every: Duration) -> Instruments {
        self.gauges_every = every;
        self
    }

    /// Starts sampling.
    pub fn start(
        clock: &Clock,
        backend: Box<dyn MemoryBackend>,
        plan: &Plan,
        writer: CaptureWriter,
        stop: &Stop,
        news: Sink,
    ) -> Result<Instruments, Failure> {
        let redactor = plan.found.secrets.redactor();
        let recorder = Arc::new(Recorder::new(
            clock.clone(),
            writer,
            redactor,
            plan.engine,
            stop.clone(),
            news,
        ));
        let devices = backend.devices();
        let options = Options {
            interval: Duration::from_nanos(plan.request.sample_interval_ns),
            ..Options::default()
        };
        let (sampler, samples) = Sampler::start(backend, clock, options)?;
        recorder.watch_edges(sampler.handle());
        let drain = recorder
            .drain(samples)
            .map_err(|e| Failure::environment("cannot start a thread").caused_by(e))?;
        Ok(Instruments {
            recorder,
            stop: stop.clone(),
            sampler,
            drain,
            devices,
            gauges_every: endpoints::GAUGE_INTERVAL,
        })
    }
}

/// Takes the capture and writes it down. Always returns one; how the run ended stands in
/// [`Capture::end`]. Without a `setup` the engine is waited for and asked first.
pub async fn collect(
    runtime: &Runtime,
    plan: &Plan,
    setup: Option<Setup>,
    tools: Instruments,
) -> Collected {
    load(runtime, plan, setup, tools).await.finish().await
}

/// The part of [`collect`] that the engine takes part in. What is left to do after it disturbs
/// nobody, and another run on the same engine may begin.
pub async fn load(
    runtime: &Runtime,
    plan: &Plan,
    setup: Option<Setup>,
    tools: Instruments,
) -> Loaded {
    let Instruments {
        recorder,
        stop,
        sampler,
        drain,
        devices,
        gauges_every,
    } = tools;

    // Each ends with `background`, which outlives `stop`: the last lines and the last events
    // belong to the capture.
    let background = CancellationToken::new();
    let log = tokio::spawn(follow::log(
        runtime.clone(),
        plan.clone(),
        Arc::clone(&recorder),
        background.clone(),
    ));
    let told = follow::events(
        runtime.clone(),
        plan.found.facts.id.clone(),
        Arc::clone(&recorder),
        stop.clone(),
        background.clone(),
    );
    let watch =
        telemetry::watch_oom_kills(&Target::of(&plan.found.facts), plan.mode == Mode::Started);
    let kills = follow::oom_kills(watch, Arc::clone(&recorder), background.clone());
    let events = tokio::spawn(async move { tokio::join!(told, kills) });
    let run = Run {
        runtime,
        plan,
        recorder: &recorder,
        stop: &stop,
        sampler: sampler.handle(),
        background: background.clone(),
        gauges_every,
    };
    if let Some(kept) = &plan.kept {
        // It is there before the load, and is not the engine.
        sampler.handle().set_bench_client(kept.pid());
    }
    let mut seen = Seen {
        shared_start: (plan.shared.startup.as_ref()).map(|startup| startup.recall(&recorder)),
        ..Seen::default()
    };
    let server = plan.shared.server.clone();
    let watch = server.map(|server| tokio::spawn(server.watch(stop.clone())));
    let failure = run.through(setup, &mut seen).await.err();
    watch.inspect(tokio::task::JoinHandle::abort);
    if let Some(failure) = &failure {
        stop.because(RunEnd::Failed(explained(failure)));
    }
    recorder.mark(Phase::Cooldown, None);
    let over_at = tokio::time::Instant::now();
    let mut loaded = Loaded {
        runtime: runtime.clone(),
        plan: plan.clone(),
        recorder,
        stop,
        sampler: Sampling::Running(sampler, drain),
        background,
        log,
        events,
        devices,
        seen,
        over_at,
        ended: None,
        failure,
    };
    if !plan.followed {
        loaded.cool_down().await;
    }
    loaded
}

/// What a run has seen so far.
#[derive(Default)]
struct Seen {
    door: Option<Door>,
    probes: Vec<Probe>,
    execs: Vec<ExecOutcome>,
    model: ModelFiles,
    gauges: Option<tokio::task::JoinHandle<Vec<EngineGauges>>>,
    shared_start: Option<SharedStart>,
}

/// A run on its way from the first reading to the end of the load.
struct Run<'a> {
    runtime: &'a Runtime,
    plan: &'a Plan,
    recorder: &'a Arc<Recorder>,
    stop: &'a Stop,
    sampler: SamplerHandle,
    background: CancellationToken,
    gauges_every: Duration,
}

impl Run<'_> {
    async fn through(&self, setup: Option<Setup>, seen: &mut Seen) -> Result<(), Failure> {
        let (plan, recorder, stop) = (self.plan, self.recorder, self.stop);
        if let Some(health) = plan.health {
            // The daemon reports a start after the engine's first lines; a container of ours is
            // created for its start.
            let created = plan
                .found
                .facts
                .created_ns
                .filter(|_| plan.shared.server.is_none());
            match created {
                Some(wall_ns) => recorder.started_at(recorder.clock.of_told(wall_ns)),
                None => recorder.mark(Phase::Start, None),
            }
            self.wait_until_healthy(health).await?;
        }
        let setup = match setup {
            Some(setup) => setup,
            None => inspect(self.runtime, plan, &recorder.clock, stop, recorder.sink()).await?,
        };
        if plan.mode != Mode::Started {
            recorder.mark(Phase::Baseline, None);
        }
        let baseline = tokio::time::Instant::now() + plan.baseline;
        seen.probes = match setup.probes.is_empty() && plan.mode != Mode::Idle {
            // Of an engine that served another run before: what it says now.
            true => self.ask(&setup.door).await,
            false => setup.probes,
        };
        seen.execs = setup.execs;
        seen.door = Some(setup.door.clone());
        seen.model = match setup.files {
            Some(files) => files,
            None => ModelFiles::read(self.runtime, &plan.found.facts, setup.model.as_deref()).await,
        };

        recorder.news(Progress::Stage(Stage::Baseline));
        // A client that makes its prompts first sends nothing yet, and the baseline goes on.
        match &setup.bench {
            Some(bench) if bench.target.is_some() => {}
            Some(_) if plan.kept.is_some() => {
                let begin = baseline.checked_sub(kept::PREPARING).unwrap_or(baseline);
                pause_until(begin, stop).await;
            }
            _ => pause_until(baseline, stop).await,
        }
        if plan.mode != Mode::Idle {
            let gauges = endpoints::watch_gauges(
                self.runtime.clone(),
                plan.engine,
                setup.door.clone(),
                self.gauges_every,
                Arc::clone(recorder),
                self.background.clone(),
            );
            seen.gauges = Some(tokio::spawn(gauges));
        }
        if stop.reason().is_some() {
            return Ok(());
        }
        match &setup.bench {
            Some(bench) => {
                let bench = Bench {
                    runtime: self.runtime,
                    plan,
                    setup: bench,
                    recorder,
                    stop,
                    sampler: &self.sampler,
                    door: &setup.door,
                    not_before: baseline,
                };
                bench.run(&mut seen.execs).await
            }
            None => {
                recorder.mark(Phase::Bench, None);
                recorder.news(Progress::Stage(Stage::Observe));
                match plan.watch {
                    Some(time) => pause(time, stop).await,
                    None => stop.token().cancelled().await,
                }
                Ok(())
            }
        }
    }

    async fn ask(&self, door: &Door) -> Vec<Probe> {
        ask(self.runtime, self.plan, self.recorder, door).await
    }

    /// Waits until the engine answers. A container that ends meanwhile stops the run.
    async fn wait_until_healthy(&self, health: Health) -> Result<(), Failure> {
        self.recorder.news(Progress::Stage(Stage::WaitHealthy));
        let facts = &self.plan.found.facts;
        let port = door_port(self.plan);
        let key = self.plan.found.secrets.api_key();
        let healthy = async {
            while self.runtime.get(facts, port, health.path, key).await.status != Some(200) {
                tokio::time::sleep(HEALTH_INTERVAL).await;
                self.stop_if_ended().await;
            }
        };
        tokio::select! {
            () = healthy => Ok(()),
            () = report_waiting(|| self.recorder.last_line(), self.recorder.sink()) => Ok(()),
            () = self.stop.token().cancelled() => Err(self.stop.failure()),
            () = tokio::time::sleep(health.timeout) => {
                let cause = self.recorder.root_cause().map(|c| format!(": {c}")).unwrap_or_default();
                Err(Failure::run(format!("the engine did not serve within {:?}{cause}", health.timeout)).hint("give it longer with --health-timeout"))
            }
        }
    }

    /// Stops the run where the container has ended: an event of its end may come late, or be lost.
    async fn stop_if_ended(&self) {
        // A server that was started by an exec is watched by itself.
        let state = self.runtime.state(&self.plan.found.facts.id).await;
        if let Ok(Some(state)) = state {
            if !ending::runs(&state) && state.status != "restarting" {
                let code = state.exit_code.map(|code| code.to_string());
                let lost = follow::loss("die", code.as_deref()).unwrap_or_default();
                self.stop.because(RunEnd::ContainerLost(lost));
            }
        }
    }
}

/// Reports from time to time what the engine printed last.
async fn report_waiting(last_line: impl Fn() -> Option<String>, news: &Sink) {
    let began = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(WAITING_REPORT_INTERVAL).await;
        let last = last_line();
        let last = last.map_or_else(|| ending::EMPTY_LOG.into(), |l| ending::last_line_words(&l));
        let waited = began.elapsed().as_secs();
        news(Progress::Note(format!(
            "the engine does not serve yet, after {waited} s; {last}"
        )));
    }
}

/// What the engine says of itself now.
async fn ask(runtime: &Runtime, plan: &Plan, recorder: &Recorder, door: &Door) -> Vec<Probe> {
    let Recorder {
        clock, redactor, ..
    } = recorder;
    endpoints::ask(runtime, plan.engine, door, clock, redactor).await
}

/// The port on which the container's engine listens, as its command says.
fn door_port(plan: &Plan) -> u16 {
    let settings = plan.engine.settings(&plan.found.facts);
    settings.port.unwrap_or(plan.engine.default_port())
}

/// Waits, unless the run stops.
async fn pause(time: Duration, stop: &Stop) {
    pause_until(tokio::time::Instant::now() + time, stop).await;
}

/// Waits for a moment, unless the run stops.
async fn pause_until(moment: tokio::time::Instant, stop: &Stop) {
    tokio::select! {
        () = tokio::time::sleep_until(moment) => {}
        () = stop.token().cancelled() => {}
    }
}

/// A failure with its cause, in one sentence.
fn explained(failure: &Failure) -> String {
    match &failure.source {
        Some(cause) => format!("{failure}: {cause}"),
        None => failure.to_string(),
    }
}

/// A plan that the engine refused, as a mistake of the user.
fn refused(e: PlanError) -> Failure {
    let hint = match &e {
        PlanError::Lacking(_) => {
            return Failure::environment(e.to_string()).hint("use an image that has it");
        }
        PlanError::UnknownFlags { .. } => {
            "leave the flag out, or use an image with another release of the engine"
        }
        PlanError::NoSuchBench { .. } => "choose another with --bench",
        PlanError::Invalid(_) => "see --help",
    };
    Failure::usage(e.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_serve_yet_is_reported_every_30_s() {
        let notes: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let into = Arc::clone(&notes);
        let news: Sink = Arc::new(move |note| into.lock().unwrap().push(note));
        let line = || Some("Loading weights: 40 %".to_owned());
        let waited = Duration::from_secs(95);
        let _ = tokio::time::timeout(waited, report_waiting(line, &news)).await;
        let notes = notes.lock().unwrap();
        let expected = [30, 60, 90].map(|s| {
            Progress::Note(format!(
                "the engine does not serve yet, after {s} s; the last line of its log is `Loading weights: 40 %`"
            ))
        });
        assert_eq!(*notes, expected);
    }
}
