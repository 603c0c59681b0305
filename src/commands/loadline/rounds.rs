//! The captures of one serving engine for `loadline`: a look without a load, then rounds.

use super::KIND;
use crate::capture::{Request, RunEnd, Workload};
use crate::cli::LoadlineArgs;
use crate::collect::{
    AttachedEngine, CapturePlan, CaptureSession, Concluded, MemorySource, Setup, StopSignal,
};
use crate::commands::load::max_log_bytes;
use crate::console::Console;
use crate::error::Failure;
use crate::loadline::RoundObservation;
use crate::profile::Profile;
use crate::store::{self, CaptureWriter, RunPaths, StoredCapture};
use std::path::PathBuf;
use std::time::Duration;

/// Time of a look: the log's history is read, and the engine describes itself.
const LOOK: Duration = Duration::from_millis(500);

/// Between two readings of the gauges: short rounds need several.
const GAUGE_INTERVAL: Duration = Duration::from_millis(200);

/// Result of a round.
pub struct RoundResult {
    pub round: RoundObservation,
    /// File name of its profile.
    pub profile: String,
    /// What went wrong beyond requests that failed.
    pub failure: Option<Failure>,
    /// Whether no round after this one can be made: the engine is gone, or the disk is full.
    pub over: bool,
}

/// Takes one capture after the other of the same engine.
pub struct RoundRunner<'a> {
    console: &'a Console,
    attached: AttachedEngine,
    args: &'a LoadlineArgs,
    stop: &'a StopSignal,
    folder: PathBuf,
    memory: MemorySource,
    /// Most of the log that a capture keeps, bytes.
    max_log: u64,
    /// What the look found out, for the rounds.
    setup: Option<Setup>,
    /// Of the prompts of round 0.
    seed: u64,
}

impl<'a> RoundRunner<'a> {
    pub fn new(
        console: &'a Console,
        attached: AttachedEngine,
        args: &'a LoadlineArgs,
        stop: &'a StopSignal,
        folder: PathBuf,
    ) -> Result<RoundRunner<'a>, Failure> {
        let now = || jiff::Timestamp::now().as_millisecond().unsigned_abs();
        Ok(RoundRunner {
            console,
            attached,
            args,
            stop,
            folder,
            memory: MemorySource::Live(args.memory_backend),
            max_log: max_log_bytes(&args.max_log)?,
            setup: None,
            seed: args.seed.unwrap_or_else(now),
        })
    }

    /// A capture without a load: its profile and where that lies.
    pub async fn look_at_engine(&mut self) -> Result<(Profile, PathBuf), Failure> {
        let session = self.session();
        // With the bench, so that whatever prevents a round is reported before the first one.
        let planned = self.attached.plan_capture(Some(KIND), self.request());
        let mut setup = session.inspect_once(&planned, &mut self.setup).await?;
        setup.bench = None;
        let plan = CapturePlan {
            watch: Some(LOOK),
            cooldown: Duration::ZERO,
            ..self.attached.plan_capture(None, self.request())
        };
        let (paths, ended) = self.capture(&session, plan, setup, "look").await?;
        ended.captured.and(ended.stored)?;
        match ended.failure {
            Some(failure) => Err(failure),
            None => Ok((ended.profile, paths.profile)),
        }
    }

    /// A round of requests, `concurrency` of them in flight.
    pub async fn run_round(
        &mut self,
        number: u32,
        concurrency: u32,
        requests: u32,
    ) -> Result<RoundResult, Failure> {
        let session = self.session();
        let mut request = self.request();
        request.workload.num_prompts = Some(requests);
        request.workload.max_concurrency = Some(concurrency);
        // Each round has prompts of its own: no cache of prefixes answers for them.
        request.workload.seed = Some(self.seed.wrapping_add(u64::from(number)));
        let plan = CapturePlan {
            baseline: self.args.baseline,
            ..self.attached.plan_capture(Some(KIND), request)
        };
        let setup = session.inspect_once(&plan, &mut self.setup).await?;
        let stem = format!("round-{number:02}-c{concurrency}");
        let (paths, ended) = self.capture(&session, plan, setup, &stem).await?;
        let stored = StoredCapture::open(&paths.capture)?;
        let rows: Vec<_> = stored.read_requests()?.collect();
        let round = RoundObservation::observe_round(&stored.capture, &rows, &ended.profile);
        // Requests that fail are what a round is made to find out.
        let over = !matches!(
            ended.profile.metadata.outcome,
            RunEnd::Completed | RunEnd::BenchFailed(_)
        );
        let unwritten = ended.captured.and(ended.stored).err();
        Ok(RoundResult {
            round,
            profile: (paths.profile.file_name())
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default(),
            over: over || unwritten.is_some(),
            failure: unwritten.or(ended.failure),
        })
    }

    fn session(&self) -> CaptureSession {
        let timeout = Some(self.args.timeout);
        CaptureSession::begin_session(&self.stop.child_stop(), self.console.sink(), timeout)
    }

    async fn capture(
        &self,
        session: &CaptureSession,
        plan: CapturePlan,
        setup: Setup,
        stem: &str,
    ) -> Result<(RunPaths, Concluded), Failure> {
        let memory = session.open_memory(&plan, &self.memory).await?;
        let paths = store::claim_numbered(&self.folder, stem, 1)?;
        let writer = CaptureWriter::create_folder(&paths.capture, self.max_log)?;
        let capture = session
            .start_recording(plan, memory, writer)?
            .reading_gauges(GAUGE_INTERVAL);
        let ended = capture.conclude_capture(Some(setup), &paths).await?;
        self.console.finish_stage();
        Ok((paths, ended))
    }

    /// What all captures ask for.
    fn request(&self) -> Request {
        let args = self.args;
        Request {
            model: args.model.clone(),
            workload: Workload {
                input_len: args.input_len,
                output_len: args.output_len,
                ..Workload::default()
            },
            sample_interval_ns: u64::try_from(args.sample_interval.as_nanos()).unwrap_or(u64::MAX),
            timeout_s: args.timeout.as_secs_f64(),
            ..Request::default()
        }
    }
}
