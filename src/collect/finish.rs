//! The end of a capture: determines who ended it, collects the last lines, and writes it.
//!
//! Writes the profile of a finished capture, and reports how the run ended.

use super::follow::{self, OomCount};
use super::recorder::Recorder;
use super::stop::StopSignal;
use super::{CapturePlan, Collected, RunObservations, ending, probe_engine};
use crate::capture::{
    AtNs, BackendFacts, CAPTURE_VERSION, Capture, ContainerEvent, ContainerState, DeviceFacts,
    LogFacts, Mode, Request, RunEnd, SamplingFacts, Workload,
};
use crate::error::{ExitCode, Failure};
use crate::profile::{self, OomVerdict};
use crate::progress::{Progress, Sink, Stage};
use crate::report::json::json_bytes;
use crate::store::{RunPaths, StoredCapture, write_atomically};
use crate::telemetry::{MemorySampler, Stopped};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time from a container's end until its cause is known.
const AFTERMATH: Duration = Duration::from_millis(700);

/// How often to check for the container's end after a failed bench: a large process takes a while
/// to exit.
const ENDINGS: u32 = 3;

/// A run after its load.
pub struct LoadedCapture {
    pub(super) plan: CapturePlan,
    pub(super) recorder: Arc<Recorder>,
    pub(super) stop: StopSignal,
    pub(super) sampler: Sampling,
    pub(super) background: CancellationToken,
    pub(super) log: JoinHandle<LogFacts>,
    pub(super) events: JoinHandle<(Vec<ContainerEvent>, OomCount)>,
    pub(super) devices: Vec<DeviceFacts>,
    pub(super) observations: RunObservations,
    /// End of the load.
    pub(super) over_at: Instant,
    /// End of the observation, and the container's state then.
    pub(super) ended: Option<(AtNs, Option<ContainerState>)>,
    pub(super) failure: Option<Failure>,
}

/// The sampler, or its results.
pub(super) enum Sampling {
    Running(MemorySampler, thread::JoinHandle<()>),
    Over(SamplingFacts, BackendFacts),
}

impl Sampling {
    fn stop(self) -> (SamplingFacts, BackendFacts) {
        match self {
            Sampling::Over(sampling, backend) => (sampling, backend),
            Sampling::Running(sampler, drain) => {
                let Stopped { sampling, backend } = sampler.stop_thread();
                // The thread ends with the sampler; a panic in it shows as missing samples.
                let _ = drain.join();
                (sampling, backend)
            }
        }
    }
}

impl LoadedCapture {
    /// Whether the load completed.
    pub fn went_well(&self) -> bool {
        self.stop.stop_reason().is_none()
    }

    /// Continues sampling for a while after the load, to see memory fall and collect the last
    /// lines, and ends the observation. Skipped if the container is gone or the user interrupted.
    pub async fn cool_down(&mut self) {
        if self.ended.is_some() || !self.went_well() {
            return;
        }
        let door = self.observations.door.as_ref();
        let last_word = async {
            match door.filter(|_| self.plan.attached.mode != Mode::Idle) {
                // The state after the load is the one that counts.
                Some(door) => probe_engine(&self.plan, &self.recorder, door).await,
                None => Vec::new(),
            }
        };
        // Independent of how long the engine takes to answer: later data belong to another run.
        let end = async {
            tokio::time::sleep_until(self.over_at + self.plan.cooldown).await;
            let now = self.recorder.clock.now();
            if self.went_well() {
                self.recorder.close_at(now);
            }
            now
        };
        let (last, now) = tokio::join!(last_word, end);
        let good = last.into_iter().filter(|p| p.status == Some(200));
        self.observations.probes.extend(good);
        if self.went_well() {
            self.close(now).await;
        }
    }

    /// Ends the observation. After a good end, later events belong to another run; after a bad one
    /// the last lines contain the reason.
    async fn close(&mut self, now: AtNs) {
        let state = self.plan.attached.container_state().await;
        let over = Sampling::Over(SamplingFacts::default(), BackendFacts::default());
        let (sampling, backend) = std::mem::replace(&mut self.sampler, over).stop();
        self.sampler = Sampling::Over(sampling, backend);
        self.background.cancel();
        self.ended = Some((now, state.ok().flatten()));
    }

    /// Waits for outstanding data, and writes the capture.
    pub async fn finish(mut self) -> Collected {
        self.cool_down().await;
        if self.ended.is_none() {
            self.aftermath().await;
            self.close(self.recorder.clock.now()).await;
        }
        let LoadedCapture {
            plan,
            recorder,
            stop,
            sampler,
            log,
            events,
            devices,
            observations,
            ended,
            failure,
            ..
        } = self;
        let facts = plan.facts();
        let (ended_at_ns, container_end) = ended.unwrap_or_else(|| (recorder.clock.now(), None));
        let log_facts = log.await.unwrap_or_default();
        let (mut events, counted) = events.await.unwrap_or_default();
        let killed =
            container_end.as_ref().is_some_and(|s| s.oom_killed) && !facts.state.oom_killed;
        let oom_kills = counted
            .add_to(&mut events, killed, ended_at_ns)
            .or_else(|| {
                follow::add_logged_kill(&mut events, facts, container_end.as_ref(), ended_at_ns)
            });
        if stop.stop_reason().is_none() {
            events.retain(|e| e.at_ns <= ended_at_ns);
        }
        // The last lines, with the reason, arrive after the end that they explain.
        let end = ending::explain_run_end(
            stop.stop_reason().unwrap_or_default(),
            ending::Causes {
                events: &events,
                out_of_memory: OomVerdict::judge_kill(facts, killed, &events, oom_kills),
                in_log: recorder.root_cause(),
                last_line: match (recorder.last_line(), &log_facts.error) {
                    (Some(line), _) => ending::last_line_words(&line),
                    (None, Some(error)) => error.clone(),
                    (None, None) => ending::EMPTY_LOG.to_owned(),
                },
                mode: plan.attached.mode,
                lost: ending::describe_loss(&facts.state, container_end.as_ref(), &events)
                    .or_else(|| plan.shared.server_end()),
            },
        );
        let mut gauges = match observations.gauges {
            Some(task) => task.await.unwrap_or_default(),
            None => Vec::new(),
        };
        gauges.retain(|g| stop.stop_reason().is_some() || g.at_ns <= ended_at_ns);
        let (sampling, backend) = sampler.stop();
        let host_load = crate::host::load_average();
        let mut host = crate::host::read_facts();
        let daemon = plan.attached.runtime.version();
        let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        host.docker_version = known(&daemon.server);
        host.docker_api_version = known(&daemon.api);
        let placed = Capture::default().with_devices(devices);
        let (capture, written) = recorder.finish_capture(|marks, kept| Capture {
            capture_version: CAPTURE_VERSION,
            plimsoll_version: env!("CARGO_PKG_VERSION").into(),
            run_id: plan.run_id.clone(),
            wall_start_ns: recorder.clock.wall_start_ns,
            wall_drift_ns: recorder.clock.wall_drift_ns(),
            host_load,
            ended_at_ns,
            host,
            container: facts.clone(),
            engine: plan.attached.engine.name.into(),
            engine_evidence: plan.attached.evidence.clone(),
            mode: plan.attached.mode,
            shared_start: observations.shared_start,
            request: Request {
                extra_engine_args: recorder
                    .redactor
                    .redact_argv(&plan.request.extra_engine_args),
                workload: Workload {
                    prompt: (plan.request.workload.prompt.as_deref())
                        .map(|p| recorder.redactor.redact_text(p).into_owned()),
                    ..plan.request.workload.clone()
                },
                ..plan.request.clone()
            },
            backend,
            probes: observations.probes,
            gauges,
            model_files: observations
                .model
                .texts
                .into_iter()
                .map(|(name, text)| (name, recorder.redactor.redact_text(&text).into_owned()))
                .collect(),
            model_file_sizes: observations.model.sizes,
            model_files_error: observations.model.error,
            marks,
            execs: observations.execs,
            events,
            oom_kills,
            sampling,
            log: followed_and_kept(log_facts, kept),
            end,
            container_end,
            ..placed
        });
        // The first reason counts; later failures are its consequence.
        let failure = failure.filter(|f| capture.end == RunEnd::Failed(f.describe_with_cause()));
        Collected {
            capture,
            written,
            failure,
        }
    }

    /// Whether the request was refused before anything was sent.
    fn is_usage(&self) -> bool {
        let code = self.failure.as_ref().map(|failure| failure.code);
        code == Some(ExitCode::Usage)
    }

    /// After a bad end: who caused it, and its effects, are reported after the end itself.
    async fn aftermath(&self) {
        match self.stop.stop_reason() {
            Some(RunEnd::ContainerLost(_)) => tokio::time::sleep(AFTERMATH).await,
            // The server may have ended too: connections break before the daemon knows of it.
            Some(RunEnd::BenchFailed(_) | RunEnd::Failed(_))
                if self.plan.attached.mode != Mode::Idle && !self.is_usage() =>
            {
                for _ in 0..ENDINGS {
                    tokio::time::sleep(AFTERMATH).await;
                    let state = self.plan.attached.container_state().await;
                    let runs = state.ok().flatten().is_some_and(|s| ending::is_running(&s));
                    if !runs || self.plan.shared.server_end().is_some() {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
}

/// Lines can be dropped in transit and again when stored.
fn followed_and_kept(followed: LogFacts, kept: LogFacts) -> LogFacts {
    LogFacts {
        dropped_lines: kept.dropped_lines.saturating_add(followed.dropped_lines),
        reconnects: followed.reconnects,
        error: followed.error,
        whole_seconds: followed.whole_seconds,
        ..kept
    }
}

/// A run's profile, and how the run ended.
pub struct Concluded {
    /// The profile.
    pub profile: profile::Profile,
    /// The profile's JSON.
    pub document: Vec<u8>,
    /// Whether the capture was written.
    pub captured: Result<(), Failure>,
    /// Whether the profile was written.
    pub stored: Result<(), Failure>,
    /// The error, if the run did not end well.
    pub failure: Option<Failure>,
}

/// Derives the profile of a finished capture and writes it.
pub fn derive_and_store(
    progress: &Sink,
    paths: &RunPaths,
    collected: Collected,
) -> Result<Concluded, Failure> {
    progress(Progress::Stage(Stage::Derive));
    let Collected {
        capture,
        written,
        failure,
    } = collected;
    let profile = match StoredCapture::open(&paths.capture) {
        Ok(stored) => {
            profile::derive_profile(&capture, stored.read_samples()?, stored.read_lines()?)
        }
        // After a full disk only the figures without their streams are left.
        Err(_) => profile::derive_profile(&capture, [], []),
    };
    let document = json_bytes(&profile)
        .map_err(|e| Failure::bug("the profile cannot be written as JSON").caused_by(e))?;
    // An incomplete capture still has a profile: the reserved disk space is free now.
    let stored = write_atomically(&paths.profile, &document);
    let failure = failure.or_else(|| failure_of(&capture, &profile));
    let failure = failure.map(|failure| {
        // The last output of the engine and the bench is the best explanation.
        let log = paths.log_file();
        if failure.code == ExitCode::RunFailed && log.is_file() {
            failure.hint(format!("all that was printed is in `{}`", log.display()))
        } else {
            failure
        }
    });
    Ok(Concluded {
        profile,
        document,
        captured: written,
        stored,
        failure,
    })
}

/// The failure to report, if the run did not end well.
fn failure_of(capture: &Capture, profile: &profile::Profile) -> Option<Failure> {
    let failure = match &capture.end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => {
            return Some(Failure::new(
                ExitCode::Interrupted,
                "interrupted; the profile covers what was seen until then",
            ));
        }
        RunEnd::Deadline => {
            return Some(
                Failure::run(format!(
                    "the run took longer than {} s and was stopped; the profile covers what was seen until then",
                    capture.request.timeout_s
                ))
                .hint("give it longer with --timeout"),
            );
        }
        RunEnd::ContainerLost(why) | RunEnd::BenchFailed(why) => Failure::run(why.clone()),
        RunEnd::Failed(why) => Failure::environment(why.clone()),
    };
    Some(
        profile::advise_on_profile(profile)
            .into_iter()
            .fold(failure, Failure::hint),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_never_came_are_counted_with_those_not_kept() {
        let followed = LogFacts {
            dropped_lines: 7,
            reconnects: 1,
            whole_seconds: true,
            ..LogFacts::default()
        };
        let kept = LogFacts {
            lines: 90,
            bytes: 4_000,
            dropped_lines: 3,
            ..LogFacts::default()
        };
        let log = followed_and_kept(followed, kept);
        assert_eq!((log.lines, log.dropped_lines, log.reconnects), (90, 10, 1));
        assert!(log.whole_seconds);
    }
}
