//! `plimsoll clean --watch`: a look every interval, a JSON line for each decision that changed and
//! for the result of each act.

use super::{HostObserver, apply_options, check_names};
use crate::clean::apply::{ActOutcome, ActResult, apply_verdicts};
use crate::clean::document::{Evidence, evidence_for, has_simulated_device};
use crate::clean::facts::Survey;
use crate::clean::scope;
use crate::clean::verdict::{CleanRequest, CleanVerdict, bind_names, judge_survey};
use crate::clean::watch::{WatchLine, WatchService, verdicts_to_apply};
use crate::cli::CleanArgs;
use crate::collect::StopSignal;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::progress::Sink;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub async fn run_service(
    console: &Console,
    args: &CleanArgs,
    ask: &CleanRequest,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let every = args.interval.as_secs_f64();
    console.print_note(&if args.apply {
        format!("looking every {every} s; what is stuck is cleaned")
    } else {
        format!("looking every {every} s; nothing is touched without --apply")
    });
    let mut service = Service {
        console,
        args,
        asked: ask,
        ask: None,
        stop,
        watch: WatchService::new(args.apply, args.max_per_minute),
        began: Instant::now(),
        eyes: None,
        away: false,
        blind: BTreeSet::new(),
    };
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            _ = ticks.tick() => {}
        }
        if !service.turn().await? || stop.token().is_cancelled() {
            return Ok(ExitCode::Done);
        }
    }
}

struct Service<'a> {
    console: &'a Console,
    args: &'a CleanArgs,
    asked: &'a CleanRequest,
    /// The same with names that never come to mean others; there once it has looked.
    ask: Option<CleanRequest>,
    stop: &'a StopSignal,
    watch: WatchService,
    began: Instant,
    /// What it looks with, once the daemon was reached.
    eyes: Option<HostObserver>,
    /// Whether the daemon's absence was reported.
    away: bool,
    /// What was reported as not visible.
    blind: BTreeSet<String>,
}

/// A line of no verdict.
#[derive(Serialize)]
struct Daemon<'a> {
    at: String,
    event: &'static str,
    why: Option<&'a str>,
}

/// A line of a decision.
#[derive(Serialize)]
struct Decided<'a> {
    at: &'a str,
    #[serde(flatten)]
    line: &'a WatchLine,
    /// As in the document of `clean --json`; null where that is not known.
    gpu_bytes: Option<u64>,
    /// Whether any device is a simulated one.
    simulated: bool,
    /// Only with `--json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<Evidence<'a>>,
}

/// A line on the result of an act.
#[derive(Serialize)]
struct OutcomeLine<'a> {
    at: String,
    event: &'static str,
    #[serde(flatten)]
    verdict: &'a CleanVerdict,
    done: ActResult,
    steps: &'a [String],
    freed_bytes: Option<u64>,
    problem: Option<&'a str>,
    holders: &'a [String],
}

impl<'a> OutcomeLine<'a> {
    fn new(outcome: &'a ActOutcome) -> OutcomeLine<'a> {
        OutcomeLine {
            at: now_text(),
            event: "outcome",
            verdict: &outcome.verdict,
            done: outcome.done,
            steps: &outcome.steps,
            freed_bytes: outcome.freed_bytes,
            problem: outcome.problem.as_deref(),
            holders: &outcome.holders,
        }
    }
}

impl Service<'_> {
    /// One look and what follows. False once the reader of stdout is gone.
    async fn turn(&mut self) -> anyhow::Result<bool> {
        let found = tokio::select! {
            // A look that is given up leaves nothing behind.
            () = self.stop.token().cancelled() => return Ok(true),
            found = self.look_at_host() => found,
        };
        let mut survey = match found {
            Ok(survey) => survey,
            Err(failure) => return self.is_away(&failure),
        };
        if self.ask.is_none() {
            // Later a container that is named may come and go.
            check_names(&survey, self.asked)?;
        }
        let ask = (self
            .ask
            .get_or_insert_with(|| bind_names(&survey, self.asked)))
        .clone();
        scope::narrow_notes(&mut survey, &ask);
        if std::mem::take(&mut self.away) {
            self.watch.daemon_is_back();
            if !self.daemon("back", None)? {
                return Ok(false);
            }
        }
        for sentence in &survey.blind {
            if !self.blind.contains(sentence) {
                self.console.print_note(sentence);
            }
        }
        self.blind = survey.blind.iter().cloned().collect();
        let verdicts = scope::narrow_verdicts(&survey, &ask, judge_survey(&survey, &ask));
        let lines = self.watch.decide_lines(self.began.elapsed(), &verdicts);
        for line in &lines {
            if !self.report_decision(&survey, line)? {
                return Ok(false);
            }
        }
        let todo = verdicts_to_apply(&lines);
        let Some(eyes) = self.eyes.as_ref().filter(|_| !todo.is_empty()) else {
            return Ok(true);
        };
        let (options, cancel) = (apply_options(self.args), self.stop.token());
        // stdout has it all.
        let sink: Sink = Arc::new(|_| ());
        let outcomes = apply_verdicts(&eyes.runtime, &survey, &todo, &options, cancel, &sink).await;
        for outcome in &outcomes {
            if matches!(outcome.done, ActResult::Cleaned | ActResult::AlreadyGone) {
                self.watch.forget_cleaned(&outcome.verdict.of);
            }
            if !self.write_line(&OutcomeLine::new(outcome))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn look_at_host(&mut self) -> Result<Survey, Failure> {
        let eyes = match &mut self.eyes {
            Some(eyes) => eyes,
            none => none.insert(HostObserver::open_surveyor(self.args).await?),
        };
        eyes.look_once().await
    }

    fn is_away(&mut self, failure: &Failure) -> anyhow::Result<bool> {
        if std::mem::replace(&mut self.away, true) {
            Ok(true)
        } else {
            self.daemon("away", Some(&failure.message))
        }
    }

    fn daemon(&self, event: &'static str, why: Option<&str>) -> anyhow::Result<bool> {
        let at = now_text();
        self.write_line(&Daemon { at, event, why })
    }

    fn report_decision(&self, survey: &Survey, line: &WatchLine) -> anyhow::Result<bool> {
        let found = evidence_for(survey, &line.verdict.of);
        self.write_line(&Decided {
            at: &survey.at,
            line,
            gpu_bytes: found.and_then(Evidence::gpu_bytes),
            simulated: has_simulated_device(survey),
            evidence: found.filter(|_| self.args.json),
        })
    }

    fn write_line(&self, line: &impl Serialize) -> anyhow::Result<bool> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        Ok(self.console.stream_data(&text)?)
    }
}

fn now_text() -> String {
    jiff::Timestamp::now().to_string()
}
