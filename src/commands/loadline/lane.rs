//! One engine that is met once, and the captures that are taken of it: a look, then rounds.

use super::KIND;
use crate::capture::{Mode, Request, RequestedSettings, RunEnd, Workload};
use crate::cli::LoadlineArgs;
use crate::clock::Clock;
use crate::collect::{
    self, Concluded, Deadline, Instruments, Plan, Setup, Stop, derive_and_store, found_with, run_id,
};
use crate::commands::load::choice;
use crate::console::Console;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::engine::{Engine, LoadKind};
use crate::error::Failure;
use crate::loadline::Observed;
use crate::profile::Profile;
use crate::store::{self, CaptureWriter, RunPaths, StoredCapture};
use crate::telemetry::{self, Target};
use crate::units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// How long a look takes: the log's history is read, and the engine says what it is.
const LOOK: Duration = Duration::from_millis(500);

/// Between two readings of the gauges: how many run at once is to be seen in short rounds too.
const GAUGES: Duration = Duration::from_millis(200);

/// An engine that serves, and its container.
pub struct Met {
    pub runtime: Runtime,
    pub found: Found,
    pub engine: &'static dyn Engine,
    pub evidence: String,
    pub mode: Mode,
}

/// What came of a round.
pub struct Made {
    pub seen: Observed,
    /// File name of its profile.
    pub profile: String,
    /// What went wrong beyond requests that failed.
    pub failure: Option<Failure>,
    /// Whether no round after this one can be made: the engine is gone, or the disk is full.
    pub over: bool,
}

/// One capture after the other on the same engine.
pub struct Lane<'a> {
    console: &'a Console,
    met: &'a Met,
    args: &'a LoadlineArgs,
    stop: &'a Stop,
    folder: PathBuf,
    /// What the look found out, for the rounds.
    setup: Option<Setup>,
    /// Of the prompts of round 0.
    seed: u64,
}

impl<'a> Lane<'a> {
    pub fn new(
        console: &'a Console,
        met: &'a Met,
        args: &'a LoadlineArgs,
        stop: &'a Stop,
        folder: PathBuf,
    ) -> Lane<'a> {
        Lane {
            console,
            met,
            args,
            stop,
            folder,
            setup: None,
            seed: args
                .seed
                .unwrap_or_else(|| jiff::Timestamp::now().as_millisecond().unsigned_abs()),
        }
    }

    /// A capture without a load: its profile and where that lies.
    pub async fn look(&mut self) -> Result<(Profile, PathBuf), Failure> {
        let (runtime, clock) = (&self.met.runtime, Clock::start());
        let stop = self.stop.part();
        let _deadline = Deadline::start(self.args.timeout.as_secs_f64(), &stop);
        // With the bench: what keeps rounds from being made is told before anything is.
        let planned = self.plan(Some(KIND), None);
        let mut setup =
            collect::inspect(runtime, &planned, &clock, &stop, &self.console.sink()).await?;
        setup.read_files(runtime).await;
        self.setup = Some(setup.again(&planned));
        let plan = Plan {
            watch: Some(LOOK),
            baseline: Duration::ZERO,
            cooldown: Duration::ZERO,
            ..self.plan(None, None)
        };
        setup.bench = None;
        let (paths, ended) = self.capture(plan, setup, "look", &clock, &stop).await?;
        ended.captured.and(ended.stored)?;
        match ended.failure {
            Some(failure) => Err(failure),
            None => Ok((ended.profile, paths.profile)),
        }
    }

    /// A round with so many in flight.
    pub async fn round(
        &mut self,
        number: u32,
        concurrency: u32,
        requests: u32,
    ) -> Result<Made, Failure> {
        let clock = Clock::start();
        let stop = self.stop.part();
        let _deadline = Deadline::start(self.args.timeout.as_secs_f64(), &stop);
        let plan = self.plan(Some(KIND), Some((number, concurrency, requests)));
        let setup = match &self.setup {
            Some(known) => known.again(&plan),
            None => {
                collect::inspect(
                    &self.met.runtime,
                    &plan,
                    &clock,
                    &stop,
                    &self.console.sink(),
                )
                .await?
            }
        };
        let stem = format!("round-{number:02}-c{concurrency}");
        let (paths, ended) = self.capture(plan, setup, &stem, &clock, &stop).await?;
        let stored = StoredCapture::open(&paths.capture)?;
        let rows: Vec<_> = stored.requests()?.collect();
        let seen = Observed::of(&stored.capture, &rows, &ended.profile);
        // Requests that fail are what a round is made to find out.
        let over = !matches!(
            ended.profile.metadata.outcome,
            RunEnd::Completed | RunEnd::BenchFailed(_)
        );
        let unwritten = ended.captured.and(ended.stored).err();
        Ok(Made {
            seen,
            profile: (paths.profile.file_name())
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default(),
            over: over || unwritten.is_some(),
            failure: unwritten.or(ended.failure),
        })
    }

    async fn capture(
        &self,
        plan: Plan,
        setup: Setup,
        stem: &str,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<(RunPaths, Concluded), Failure> {
        let memory = telemetry::open(
            choice(self.args.memory_backend),
            &Target::of(&plan.found.facts),
        )?;
        let log_cap: Bytes =
            (self.args.max_log)
                .parse()
                .map_err(|e: crate::units::ParseBytesError| {
                    Failure::usage(format!("--max-log: {e}"))
                })?;
        let paths = store::claim_numbered(&self.folder, stem, 1)?;
        let writer = CaptureWriter::create(&paths.capture, log_cap.0)?;
        let news = self.console.sink();
        let tools =
            Instruments::start(clock, memory, &plan, writer, stop, news)?.reading_gauges(GAUGES);
        let collected = collect::collect(&self.met.runtime, &plan, Some(setup), tools).await;
        let ended = derive_and_store(&self.console.sink(), &paths, collected)?;
        Ok((paths, ended))
    }

    /// `load`: number of the round, requests in flight, requests.
    fn plan(&self, kind: Option<LoadKind>, load: Option<(u32, u32, u32)>) -> Plan {
        let args = self.args;
        let request = Request {
            model: args.model.clone(),
            bench: kind.map_or("none", LoadKind::as_str).into(),
            workload: Workload {
                input_len: args.input_len,
                output_len: args.output_len,
                num_prompts: load.map(|(_, _, requests)| requests),
                max_concurrency: load.map(|(_, concurrency, _)| concurrency),
                // Each round has prompts of its own: no cache of prefixes answers for them.
                seed: load.map(|(number, ..)| self.seed.wrapping_add(u64::from(number))),
                ..Workload::default()
            },
            settings: RequestedSettings::default(),
            extra_engine_args: Vec::new(),
            sample_interval_ns: u64::try_from(args.sample_interval.as_nanos()).unwrap_or(u64::MAX),
            timeout_s: args.timeout.as_secs_f64(),
        };
        Plan {
            run_id: run_id(),
            found: found_with(self.met.found.clone(), &request),
            engine: self.met.engine,
            engine_evidence: self.met.evidence.clone(),
            mode: self.met.mode,
            request,
            kind,
            repeats: 1,
            baseline: args.baseline,
            watch: None,
            health: None,
            cooldown: collect::COOLDOWN,
            shared: collect::Shared::default(),
            workdir: None,
            kept: None,
            followed: false,
            made_of: None,
        }
    }
}
