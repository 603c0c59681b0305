//! Takes one capture: samples, follows the log, runs the bench, and stops everything again. If it
//! is interrupted, the data so far are the capture.

mod attach;
mod bench;
mod builtin;
mod ending;
mod endpoints;
mod finish;
mod follow;
mod graph_probe;
mod kept;
mod launching;
mod model_files;
mod recorder;
mod session;
mod setup;
mod shared;
mod stop;
mod waiting;

pub use attach::{AttachedEngine, EngineTarget, lock_container};
pub use ending::{explain_end, find_running};
pub use endpoints::EngineEndpoint;
pub use finish::{Concluded, LoadedCapture, derive_and_store};
pub use follow::{Deadline, HISTORY_BYTES};
pub use graph_probe::{ProbeJob, Probed, probe_graphs};
pub use kept::{KeptBench, KeptRun};
pub use launching::{
    Launch, end_container, engine_of_image, gpu_request, launch_container, launch_spec,
};
pub use session::{
    COOLDOWN, CapturePlan, CaptureSession, Collected, HealthCheck, MemorySource, RunningCapture,
    run_id,
};
pub use setup::{BenchSetup, describe_setup};
pub use shared::{ServerLog, SharedRun, Startup};
pub use stop::{StopSignal, Turn, unless_stopped};

use crate::capture::{AtNs, EngineGauges, ExecOutcome, Mode, Phase, Probe, RunEnd, SharedStart};
use crate::container::Runtime;
use crate::engine::PlanError;
use crate::error::Failure;
use crate::progress::{Progress, Stage};
use crate::telemetry::{self, MeasuredContainer};
use bench::Bench;
use finish::Sampling;
pub use model_files::ModelFiles;
use recorder::Recorder;
use setup::inspect_setup;
use std::sync::Arc;
use std::time::Duration;
use waiting::{LastAnswer, answer_words, report_waiting};

/// Facts about the engine, gathered before anything runs.
pub struct Setup {
    /// The bench, unless there is none.
    pub bench: Option<BenchSetup>,
    /// The model, where it is known.
    pub model: Option<String>,
    /// Where the engine listens.
    pub door: EngineEndpoint,
    /// Responses of its endpoints.
    pub probes: Vec<Probe>,
    /// Commands run to gather the facts.
    pub execs: Vec<ExecOutcome>,
    /// The model's files, if they were read already.
    pub files: Option<ModelFiles>,
}

impl Setup {
    /// The same for another run on the same engine, because asking a bench for its flags takes as
    /// long as loading an engine. The commands and responses belong to the first run's capture.
    pub fn repeat_for(&self, plan: &CapturePlan) -> Setup {
        Setup {
            bench: self.bench.clone().map(|bench| BenchSetup {
                workdir: setup::bench_workdir(plan),
                ..bench
            }),
            model: self.model.clone(),
            door: self.door.clone(),
            probes: Vec::new(),
            execs: Vec::new(),
            files: self.files.clone(),
        }
    }

    /// Reads the model's files now, for this run and later ones.
    pub async fn read_files(&mut self, runtime: &Runtime) {
        let facts = &self.door.facts;
        self.files = Some(ModelFiles::read_files(runtime, facts, self.model.as_deref()).await);
    }
}

impl RunningCapture {
    /// The part of a capture that involves the engine. The remaining work needs no engine, so
    /// another run on it may begin.
    pub async fn run_load(self, setup: Option<Setup>) -> LoadedCapture {
        let (plan, recorder, stop) = (&self.plan, &self.recorder, &self.stop);
        let background = &self.background;
        let log = tokio::spawn(follow::follow_log(
            plan.clone(),
            Arc::clone(recorder),
            background.clone(),
        ));
        let container_events = follow::follow_events(
            plan.attached.runtime.clone(),
            plan.facts().id.clone(),
            Arc::clone(recorder),
            stop.clone(),
            background.clone(),
        );
        let watch = telemetry::watch_oom_kills(
            &MeasuredContainer::of_container(plan.facts()),
            plan.attached.mode == Mode::Started,
        );
        let kills = follow::oom_kills(watch, Arc::clone(recorder), background.clone());
        let events = tokio::spawn(async move { tokio::join!(container_events, kills) });
        if let Some(kept) = &plan.kept {
            // The kept client exists before the load, and is not the engine.
            self.sampler.handle().set_bench_client(kept.pid());
        }
        let mut observations = RunObservations {
            shared_start: (plan.shared.startup.as_ref())
                .map(|startup| startup.recall_start(recorder)),
            ..RunObservations::default()
        };
        let server = plan.shared.server.clone();
        let watch = server.map(|server| tokio::spawn(server.watch_end(stop.clone())));
        let failure = self.through(setup, &mut observations).await.err();
        watch.inspect(tokio::task::JoinHandle::abort);
        if failure.is_some() || stop.stop_reason().is_some() {
            recorder.report_progress(Progress::StageFailed);
        }
        if let Some(failure) = &failure {
            stop.stop_because(RunEnd::Failed(failure.describe_with_cause()));
        }
        recorder.mark_phase(Phase::Cooldown, None);
        if let Some(turn) = &plan.turn {
            turn.stay(stop).await;
        }
        let over_at = tokio::time::Instant::now();
        let mut loaded = LoadedCapture {
            plan: self.plan,
            recorder: self.recorder,
            stop: self.stop,
            sampler: Sampling::Running(self.sampler, self.drain),
            background: self.background,
            log,
            events,
            devices: self.devices,
            observations,
            over_at,
            ended: None,
            failure,
        };
        if !loaded.plan.followed {
            loaded.cool_down().await;
        }
        loaded
    }
}

/// Observations of a run so far.
#[derive(Default)]
struct RunObservations {
    door: Option<EngineEndpoint>,
    probes: Vec<Probe>,
    execs: Vec<ExecOutcome>,
    model: ModelFiles,
    gauges: Option<tokio::task::JoinHandle<Vec<EngineGauges>>>,
    shared_start: Option<SharedStart>,
}

/// Longest time between the creation of a container of ours and the start of its capture's clock, ns.
const LONGEST_LAUNCH_NS: AtNs = 120_000_000_000;

/// When a container of ours was created. A time from before it was requested means that the daemon's
/// clock differs from this host's, or that a clock was set: then the start of the capture is used.
fn bounded_creation(reported: AtNs) -> AtNs {
    if reported < -LONGEST_LAUNCH_NS {
        0
    } else {
        reported
    }
}

impl RunningCapture {
    /// From the first reading to the end of the load.
    async fn through(
        &self,
        setup: Option<Setup>,
        observations: &mut RunObservations,
    ) -> Result<(), Failure> {
        let (plan, recorder, stop) = (&self.plan, &self.recorder, &self.stop);
        if let Some(health) = plan.health {
            // The daemon reports a start after the engine's first lines, so the creation time is
            // used: our containers are created to be started.
            let created = plan
                .facts()
                .created_ns
                .filter(|_| plan.shared.server.is_none());
            match created {
                Some(wall_ns) => {
                    let reported = recorder.clock.from_reported(wall_ns);
                    recorder.started_at(bounded_creation(reported));
                }
                None => recorder.mark_phase(Phase::Start, None),
            }
            self.wait_until_healthy(health).await?;
            model_files::pull_model(plan, stop, recorder.sink()).await?;
            if let Some(turn) = &plan.turn {
                turn.serve(plan.kind.is_some(), stop).await;
            }
        }
        let setup = match setup {
            Some(setup) => setup,
            None => inspect_setup(plan, &recorder.clock, stop, recorder.sink()).await?,
        };
        if plan.attached.mode != Mode::Started {
            recorder.mark_phase(Phase::Baseline, None);
        }
        let baseline = tokio::time::Instant::now() + plan.baseline;
        observations.probes = if setup.probes.is_empty() && plan.attached.mode != Mode::Idle {
            // For an engine that served another run before: its current state.
            probe_engine(plan, recorder, &setup.door).await
        } else {
            setup.probes
        };
        observations.execs = setup.execs;
        observations.door = Some(setup.door.clone());
        observations.model = match setup.files {
            Some(files) => files,
            None => {
                ModelFiles::read_files(&plan.attached.runtime, plan.facts(), setup.model.as_deref())
                    .await
            }
        };

        recorder.report_progress(Progress::Stage(Stage::Baseline));
        // A client that first makes its prompts sends nothing yet, and the baseline continues.
        match &setup.bench {
            Some(bench) if bench.target.is_some() => {}
            Some(_) if plan.kept.is_some() => {
                let begin = baseline.checked_sub(kept::PREPARING).unwrap_or(baseline);
                pause_until(begin, stop).await;
            }
            _ => pause_until(baseline, stop).await,
        }
        if plan.attached.mode != Mode::Idle {
            let gauges = endpoints::watch_gauges(
                plan.attached.runtime.clone(),
                plan.attached.engine,
                setup.door.clone(),
                self.gauge_interval,
                Arc::clone(recorder),
                self.background.clone(),
            );
            observations.gauges = Some(tokio::spawn(gauges));
        }
        if stop.stop_reason().is_some() {
            return Ok(());
        }
        match &setup.bench {
            Some(bench) => {
                let bench = Bench {
                    plan,
                    setup: bench,
                    recorder,
                    stop,
                    sampler: &self.sampler.handle(),
                    door: &setup.door,
                    not_before: baseline,
                };
                bench.run_repeats(&mut observations.execs).await
            }
            None => {
                recorder.mark_phase(Phase::Bench, None);
                recorder.report_progress(Progress::Stage(Stage::Observe));
                match plan.watch {
                    Some(time) => pause(time, stop).await,
                    None => stop.token().cancelled().await,
                }
                Ok(())
            }
        }
    }

    /// Waits until the engine answers. A container that ends meanwhile stops the run.
    async fn wait_until_healthy(&self, health: HealthCheck) -> Result<(), Failure> {
        self.recorder
            .report_progress(Progress::Stage(Stage::WaitHealthy));
        let attached = &self.plan.attached;
        let answer = LastAnswer::default();
        let look = async || self.stop_if_ended().await;
        let healthy = attached.poll_health(health.path, &answer, look);
        let last_line = async || self.recorder.last_line();
        tokio::select! {
            () = healthy => Ok(()),
            () = report_waiting(&answer, last_line, self.recorder.sink()) => Ok(()),
            () = self.stop.token().cancelled() => Err(self.stop.stop_failure()),
            () = tokio::time::sleep(health.timeout) => {
                let why = self.recorder.root_cause().unwrap_or_else(|| answer_words(&answer));
                Err(Failure::run(format!("the engine did not serve within {:?}: {why}", health.timeout)).hint("give it longer with --health-timeout"))
            }
        }
    }

    /// Stops the run if the container has ended: the event of its end may be late, or lost.
    async fn stop_if_ended(&self) {
        // A server started by an exec is watched separately.
        let state = self.plan.attached.container_state().await;
        if let Ok(Some(state)) = state {
            if !ending::is_running(&state) && state.status != "restarting" {
                let code = state.exit_code.map(|code| code.to_string());
                let lost = follow::loss_from_event("die", code.as_deref()).unwrap_or_default();
                self.stop.stop_because(RunEnd::ContainerLost(lost));
            }
        }
    }
}

/// Reads the engine's endpoints now.
async fn probe_engine(
    plan: &CapturePlan,
    recorder: &Recorder,
    door: &EngineEndpoint,
) -> Vec<Probe> {
    let Recorder {
        clock, redactor, ..
    } = recorder;
    endpoints::probe_endpoints(
        &plan.attached.runtime,
        plan.attached.engine,
        door,
        clock,
        redactor,
    )
    .await
}

/// Waits for a time, unless the run stops.
async fn pause(time: Duration, stop: &StopSignal) {
    pause_until(tokio::time::Instant::now() + time, stop).await;
}

/// Waits for a moment, unless the run stops.
async fn pause_until(moment: tokio::time::Instant, stop: &StopSignal) {
    tokio::select! {
        () = tokio::time::sleep_until(moment) => {}
        () = stop.token().cancelled() => {}
    }
}

/// The failure for a plan that the engine refused.
fn refused_plan(e: PlanError) -> Failure {
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

    #[test]
    fn a_container_of_ours_was_not_created_before_it_was_requested() {
        const S: AtNs = 1_000_000_000;
        for (reported, at) in [(3 * S, 3 * S), (-20 * S, -20 * S), (-86_400 * S, 0)] {
            assert_eq!(bounded_creation(reported), at);
        }
    }
}
