//! Takes one capture: samples, follows the log, runs the bench, and stops it all again. Whatever
//! happens meanwhile, what was seen until then is a capture.

mod bench;
mod builtin;
mod ending;
mod endpoints;
mod follow;
mod graph_probe;
mod model_files;
mod recognise;
mod recorder;
mod setup;
mod stop;

pub use endpoints::Door;
pub use follow::Deadline;
pub use graph_probe::{ProbeJob, Probed, probe_graphs};
pub use recognise::behind_its_command;
pub use setup::{BenchSetup, answers, describe, inspect};
pub use stop::Stop;

use crate::capture::{
    CAPTURE_VERSION, Capture, DeviceFacts, EngineGauges, ExecOutcome, LogFacts, Mode, Phase, Probe,
    Request, RunEnd, Workload,
};
use crate::clock::Clock;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::engine::{Engine, LoadKind, PlanError};
use crate::error::Failure;
use crate::progress::{Progress, Sink, Stage};
use crate::store::CaptureWriter;
use crate::telemetry::{MemoryBackend, Options, Sampler, SamplerHandle, Stopped};
use bench::Bench;
use model_files::ModelFiles;
use recorder::Recorder;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between two questions whether a started engine serves.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// Sampled on after the load, so that the fall is seen and the last lines are in.
const COOLDOWN: Duration = Duration::from_secs(1);

/// From the end of a container until it is known who ended it.
const AFTERMATH: Duration = Duration::from_millis(700);

/// So often that is waited for after a bench that failed: a large process takes a while to go.
const ENDINGS: u32 = 3;

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
}

impl Setup {
    /// The same for another run in the same idle container: asking a bench for its flags takes as
    /// long as loading an engine. What was asked belongs to the capture of the first run.
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
        }
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
}

impl Instruments {
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
    let Instruments {
        recorder,
        stop,
        sampler,
        drain,
        devices,
    } = tools;
    let facts = &plan.found.facts;

    // Each ends with `background`, which outlives `stop`: the last lines and the last events
    // belong to the capture.
    let background = CancellationToken::new();
    let log = tokio::spawn(follow::log(
        runtime.clone(),
        plan.clone(),
        Arc::clone(&recorder),
        background.clone(),
    ));
    let events = tokio::spawn(follow::events(
        runtime.clone(),
        facts.id.clone(),
        Arc::clone(&recorder),
        stop.clone(),
        background.clone(),
    ));
    let run = Run {
        runtime,
        plan,
        recorder: &recorder,
        stop: &stop,
        sampler: sampler.handle(),
        background: background.clone(),
    };
    let mut seen = Seen::default();
    let failure = run.through(setup, &mut seen).await.err();
    if let Some(failure) = &failure {
        stop.because(RunEnd::Failed(explained(failure)));
    }
    recorder.mark(Phase::Cooldown, None);
    // Not for a container that is gone, nor for somebody who wants out.
    if stop.reason().is_none() {
        tokio::time::sleep(COOLDOWN).await;
        if let (Some(door), true) = (&seen.door, plan.mode != Mode::Idle) {
            // The last word counts: what the engine holds now, after the load.
            let last = endpoints::ask(
                runtime,
                plan.engine,
                door,
                &recorder.clock,
                &recorder.redactor,
            )
            .await;
            seen.probes
                .extend(last.into_iter().filter(|p| p.status == Some(200)));
        }
    }
    match stop.reason() {
        // Who ended it, and what became of it, is told after the end itself.
        Some(RunEnd::ContainerLost(_)) => tokio::time::sleep(AFTERMATH).await,
        // So may its server have: connections break before the daemon knows of an end.
        Some(RunEnd::BenchFailed(_)) if plan.mode != Mode::Idle => {
            for _ in 0..ENDINGS {
                tokio::time::sleep(AFTERMATH).await;
                let state = runtime.state(&facts.id).await.ok().flatten();
                if !state.is_some_and(|s| ending::runs(&s)) {
                    break;
                }
            }
        }
        _ => {}
    }
    let container_end = runtime.state(&facts.id).await.ok().flatten();
    background.cancel();
    let log_facts = log.await.unwrap_or_default();
    let events = events.await.unwrap_or_default();
    // The last lines, which tell why, come after the end that they explain.
    let killed = container_end.as_ref().is_some_and(|s| s.oom_killed) && !facts.state.oom_killed;
    let end = ending::explained(
        stop.reason().unwrap_or_default(),
        ending::Causes {
            events: &events,
            out_of_memory: killed || events.iter().any(|e| e.action == "oom"),
            memory_limit: facts.memory_limit_bytes,
            in_log: recorder.root_cause(),
            mode: plan.mode,
            lost: ending::lost(&facts.state, container_end.as_ref(), &events),
        },
    );
    let gauges = match seen.gauges {
        Some(task) => task.await.unwrap_or_default(),
        None => Vec::new(),
    };
    let Stopped { sampling, backend } = sampler.stop();
    // The thread ends with the sampler; that it panicked shows in the samples that are missing.
    let _ = drain.join();

    let mut host = crate::host::facts();
    host.docker_version = Some(runtime.version().server.clone());
    host.docker_api_version = Some(runtime.version().api.clone());
    let (capture, written) = recorder.finish(|marks, kept| Capture {
        capture_version: CAPTURE_VERSION,
        plimsoll_version: env!("CARGO_PKG_VERSION").into(),
        run_id: plan.run_id.clone(),
        wall_start_ns: recorder.clock.wall_start_ns,
        wall_drift_ns: recorder.clock.wall_drift_ns(),
        ended_at_ns: recorder.clock.now(),
        host,
        container: facts.clone(),
        engine: plan.engine.name().into(),
        engine_evidence: plan.engine_evidence.clone(),
        mode: plan.mode,
        request: Request {
            extra_engine_args: recorder.redactor.argv(&plan.request.extra_engine_args),
            workload: Workload {
                prompt: (plan.request.workload.prompt.as_deref())
                    .map(|p| recorder.redactor.text(p).into_owned()),
                ..plan.request.workload.clone()
            },
            ..plan.request.clone()
        },
        devices,
        backend,
        probes: seen.probes,
        gauges,
        model_files: seen
            .model
            .texts
            .into_iter()
            .map(|(name, text)| (name, recorder.redactor.text(&text).into_owned()))
            .collect(),
        model_file_sizes: seen.model.sizes,
        model_files_error: seen.model.error,
        marks,
        execs: seen.execs,
        events,
        sampling,
        log: LogFacts {
            reconnects: log_facts.reconnects,
            error: log_facts.error,
            ..kept
        },
        end,
        container_end,
    });
    // A reason that came first stands; what failed after it is its consequence.
    let failure = failure.filter(|f| capture.end == RunEnd::Failed(explained(f)));
    Collected {
        capture,
        written,
        failure,
    }
}

/// What a run has seen so far.
#[derive(Default)]
struct Seen {
    door: Option<Door>,
    probes: Vec<Probe>,
    execs: Vec<ExecOutcome>,
    model: ModelFiles,
    gauges: Option<tokio::task::JoinHandle<Vec<EngineGauges>>>,
}

/// A run on its way from the first reading to the end of the load.
struct Run<'a> {
    runtime: &'a Runtime,
    plan: &'a Plan,
    recorder: &'a Arc<Recorder>,
    stop: &'a Stop,
    sampler: SamplerHandle,
    background: CancellationToken,
}

impl Run<'_> {
    async fn through(&self, setup: Option<Setup>, seen: &mut Seen) -> Result<(), Failure> {
        let (plan, recorder, stop) = (self.plan, self.recorder, self.stop);
        if let Some(health) = plan.health {
            recorder.mark(Phase::Start, None);
            self.wait_until_healthy(health).await?;
        }
        let setup = match setup {
            Some(setup) => setup,
            None => inspect(self.runtime, plan, &recorder.clock, stop).await?,
        };
        seen.probes = setup.probes;
        seen.execs = setup.execs;
        seen.door = Some(setup.door.clone());
        seen.model =
            ModelFiles::read(self.runtime, &plan.found.facts, setup.model.as_deref()).await;

        if plan.mode != Mode::Started {
            recorder.mark(Phase::Baseline, None);
        }
        recorder.news(Progress::Stage(Stage::Baseline));
        pause(plan.baseline, stop).await;
        if plan.mode != Mode::Idle {
            let gauges = endpoints::watch_gauges(
                self.runtime.clone(),
                plan.engine,
                setup.door.clone(),
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

    /// Waits until the engine answers. A container that ends meanwhile stops the run.
    async fn wait_until_healthy(&self, health: Health) -> Result<(), Failure> {
        self.recorder.news(Progress::Stage(Stage::WaitHealthy));
        let facts = &self.plan.found.facts;
        let port = door_port(self.plan);
        let key = self.plan.found.secrets.api_key();
        let healthy = async {
            while self.runtime.get(facts, port, health.path, key).await.status != Some(200) {
                tokio::time::sleep(HEALTH_INTERVAL).await;
            }
        };
        tokio::select! {
            () = healthy => Ok(()),
            () = self.stop.token().cancelled() => Err(self.stop.failure()),
            () = tokio::time::sleep(health.timeout) => {
                let cause = self.recorder.root_cause().map(|c| format!(": {c}")).unwrap_or_default();
                Err(Failure::run(format!("the engine did not serve within {:?}{cause}", health.timeout)).hint("give it longer with --health-timeout"))
            }
        }
    }
}

/// The port on which the container's engine listens, as its command says.
fn door_port(plan: &Plan) -> u16 {
    let settings = plan.engine.settings(&plan.found.facts);
    settings.port.unwrap_or(plan.engine.default_port())
}

/// Waits, unless the run stops.
async fn pause(time: Duration, stop: &Stop) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
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
