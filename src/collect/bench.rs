//! Runs the bench in the container, repeat by repeat, and evaluates each result.

use super::kept::KeptRun;
use super::recorder::Recorder;
use super::stop::StopSignal;
use super::{BenchSetup, CapturePlan, EngineEndpoint};
use crate::capture::{ExecEnd, ExecOutcome, ExecRole, LineSource, Mode, Phase, RunEnd, Stream};
use crate::container::exec::ExecRequest;
use crate::engine::{BenchProgress, BenchResult, read_builtin};
use crate::error::Failure;
use crate::progress::{Progress, Stage};
use crate::redact::Redactor;
use crate::telemetry::SamplerHandle;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A bench's result file is some KiB, with every request's figures some MiB.
const RESULT_LIMIT: usize = 64 << 20;

/// Maximum length of a quoted last line, characters.
const LONGEST_WORDS: usize = 500;

/// The inputs of the repeats.
pub struct Bench<'a> {
    pub plan: &'a CapturePlan,
    pub setup: &'a BenchSetup,
    pub recorder: &'a Arc<Recorder>,
    pub stop: &'a StopSignal,
    pub sampler: &'a SamplerHandle,
    pub door: &'a EngineEndpoint,
    /// Time before which no request may be sent: the baseline is sampled until then.
    pub not_before: Instant,
}

impl Bench<'_> {
    /// Runs every repeat, up to the first that fails. Each adds an outcome to `execs`.
    pub async fn run_repeats(&self, execs: &mut Vec<ExecOutcome>) -> Result<(), Failure> {
        let plan = self.plan;
        let runtime = &plan.attached.runtime;
        if self.setup.target.is_some() || plan.workdir.is_some() {
            // The built-in client needs no files in the container; otherwise a folder is given.
            return self.repeats(execs).await;
        }
        let id = &plan.facts().id;
        // After a lost answer the folder may exist.
        let done = match runtime.make_dir(id, &self.setup.workdir).await {
            Ok(()) => self.repeats(execs).await,
            Err(failure) => Err(failure),
        };
        // Our folder in the user's container is removed; the results are copied already.
        let removed = runtime.remove_dir(id, &self.setup.workdir).await;
        let lost = matches!(self.stop.stop_reason(), Some(RunEnd::ContainerLost(_)));
        if !removed && plan.attached.mode != Mode::Started && !lost {
            let why = if runtime.daemon_answers().await {
                "its image has no `rm`"
            } else {
                "Docker does not answer"
            };
            self.recorder.report_progress(Progress::Note(format!(
                "`{}` stays in the container: {why}",
                self.setup.workdir
            )));
        }
        done
    }

    async fn repeats(&self, execs: &mut Vec<ExecOutcome>) -> Result<(), Failure> {
        for repeat in 1..=self.plan.repeats {
            if self.stop.stop_reason().is_some() {
                break;
            }
            let index = execs.len() as u32;
            let (outcome, last_words) = self.repeat(repeat, index).await?;
            if let Some(end) = self.judge(&outcome, last_words) {
                self.stop.stop_because(end);
            }
            execs.push(outcome);
        }
        Ok(())
    }

    /// One run of the bench, and its last line on stderr.
    async fn repeat(
        &self,
        repeat: u32,
        index: u32,
    ) -> Result<(ExecOutcome, Option<String>), Failure> {
        let (plan, setup, recorder) = (self.plan, self.setup, self.recorder);
        let of = plan.repeats;
        recorder.report_progress(Progress::Stage(Stage::Warmup { repeat, of }));
        if let Some(target) = &setup.target {
            return Ok(self.builtin_repeat(target, repeat, index).await);
        }
        let planned = setup.plan_repeat(plan, self.door.port, repeat)?;
        // The notes name settings without effect; they had an effect if we started the server.
        if repeat == 1 && plan.attached.mode != Mode::Started {
            planned
                .notes
                .iter()
                .for_each(|n| recorder.report_progress(Progress::Warning(n.clone())));
        }
        let id = &plan.facts().id;
        for file in &planned.files {
            let path = format!("{}/{}", setup.workdir, file.name);
            let runtime = &plan.attached.runtime;
            runtime.write_file(id, &path, &file.bytes, false).await?;
        }
        let in_process = plan.attached.mode == Mode::Idle;
        if in_process {
            recorder.new_engine(plan.attached.engine);
        }

        let (pids, mut started) = watch::channel(Vec::new());
        let mut env: std::collections::BTreeMap<String, String> = planned.env.into_iter().collect();
        env.retain(|name, _| !plan.facts().env.contains_key(name));
        if let Some(key) = &self.door.key {
            env.insert("OPENAI_API_KEY".into(), key.clone());
        }
        let request = ExecRequest {
            argv: planned.argv.clone(),
            env,
            run_id: plan.run_id.clone(),
            deadline: Some(self.time_left()),
            pids: Some(pids),
            ..Default::default()
        };
        let mut measuring = false;
        let mut last_words = None;
        let sink = |stream, text: String| {
            let at_ns = recorder.clock.now();
            if stream == Stream::Stderr && !text.trim().is_empty() {
                last_words = Some(text.trim().to_owned());
            }
            recorder.record_line(at_ns, LineSource::Exec(index), stream, &text, in_process);
            match (plan.attached.engine.bench_progress)(setup.kind, &text) {
                Some(BenchProgress::Warmup) => recorder.mark_phase(Phase::Warmup, Some(repeat)),
                Some(BenchProgress::Measuring) if !measuring => {
                    measuring = true;
                    recorder.mark_phase(Phase::Bench, Some(repeat));
                    recorder.report_progress(Progress::Stage(Stage::Bench { repeat, of }));
                }
                Some(BenchProgress::Over) => recorder.mark_phase(Phase::Cooldown, Some(repeat)),
                Some(BenchProgress::Step { done, of }) => {
                    recorder.report_progress(Progress::Step { done, of })
                }
                _ => {}
            }
        };
        let started_at_ns = recorder.clock.now();
        // The client of a serving engine is measured separately; an in-process bench is the engine
        // itself. A kept client is known already, and stays.
        let kept = plan.kept_for(&planned.argv).is_some();
        let token = self.stop.token();
        let exec = plan.run_exec(request, Some(&planned.result_path), token, sink);
        let mut client_known = in_process || kept;
        let KeptRun {
            ended: result,
            written,
        } = {
            tokio::pin!(exec);
            loop {
                tokio::select! {
                    result = &mut exec => break result?,
                    Ok(()) = started.changed(), if !client_known => {
                        let root = started.borrow_and_update().first().copied();
                        client_known = root.is_some();
                        self.sampler.set_bench_client(root);
                    }
                }
            }
        };
        if !kept {
            self.sampler.set_bench_client(None);
        }
        let ended_at_ns = recorder.clock.now();

        let mut outcome = ExecOutcome {
            role: ExecRole::Bench,
            repeat: Some(repeat),
            argv: recorder.redactor.redact_argv(&planned.argv),
            started_at_ns,
            ended_at_ns,
            end: result.end,
            result: None,
            result_error: None,
            killed: result.killed,
            survivors: result.survivors,
            cut: result.cut,
            kept,
        };
        // If the connection broke, the result file shows whether the bench finished.
        let perhaps = outcome.cut && outcome.end == ExecEnd::Unknown;
        if outcome.end == ExecEnd::Exited(0) || perhaps {
            let read = match written {
                Some(text) => Ok(Some(text)),
                None => {
                    let path = &planned.result_path;
                    let read = plan
                        .attached
                        .runtime
                        .read_file(id, path, RESULT_LIMIT)
                        .await;
                    read.map(|b| b.map(|b| String::from_utf8_lossy(&b).into_owned()))
                }
            };
            match read {
                Ok(Some(text)) => {
                    outcome.result = Some(recorder.redactor.redact_text(&text).into_owned());
                }
                Ok(None) => {
                    outcome.result_error = Some(format!("it wrote no `{}`", planned.result_path))
                }
                Err(e) => outcome.result_error = Some(e.to_string()),
            }
        }
        Ok((outcome, last_words.map(|w| quoted(&recorder.redactor, &w))))
    }

    fn time_left(&self) -> Duration {
        let passed = Duration::from_nanos(self.recorder.clock.now().max(0) as u64);
        Duration::from_secs_f64(self.plan.request.timeout_s)
            .saturating_sub(passed)
            .max(Duration::from_millis(1))
    }

    /// Why the run cannot continue after this repeat; `None` if it can.
    fn judge(&self, outcome: &ExecOutcome, last_words: Option<String>) -> Option<RunEnd> {
        let failed = |what: String| Some(RunEnd::BenchFailed(what));
        match &outcome.end {
            ExecEnd::Exited(0) => match self.read_result(outcome) {
                Ok(result) if result.completed == Some(0) => {
                    let words = last_words
                        .filter(|_| self.setup.target.is_some())
                        .map(|w| format!(": {w}"))
                        .unwrap_or_default();
                    failed(format!("every request of the bench failed{words}"))
                }
                Ok(result) if mostly_failed(&result) => failed(format!(
                    "{} of {} requests of the bench failed",
                    result.failed.unwrap_or_default(),
                    result.failed.unwrap_or_default() + result.completed.unwrap_or_default()
                )),
                Ok(_) => None,
                Err(why) => failed(format!(
                    "the bench reported success (exit code 0), but {why}"
                )),
            },
            ExecEnd::Exited(137) => failed(format!("the bench {}", super::ending::KILLED)),
            // If the engine in it reported no cause, its last lines are the best explanation.
            ExecEnd::Exited(code) => {
                if let (Some(_), Some(words)) = (&self.setup.target, &last_words) {
                    return failed(words.clone());
                }
                let words = last_words
                    .filter(|_| self.recorder.root_cause().is_none())
                    .map(|w| format!(": {w}"))
                    .unwrap_or_default();
                failed(format!("the bench ended with {code}{words}"))
            }
            ExecEnd::NotFound(message) => {
                failed(format!("the bench is not in the image ({message})"))
            }
            ExecEnd::Deadline => Some(RunEnd::Deadline),
            // The canceller has set the reason already.
            ExecEnd::Cancelled => None,
            ExecEnd::ContainerGone => Some(RunEnd::ContainerLost(
                "the container ended while the bench ran".into(),
            )),
            ExecEnd::Unknown if outcome.cut && self.read_result(outcome).is_ok() => None,
            ExecEnd::Unknown => failed("the daemon did not report how the bench ended".into()),
        }
    }

    fn read_result(&self, outcome: &ExecOutcome) -> Result<BenchResult, String> {
        let text = outcome.result.as_deref().ok_or_else(|| {
            outcome
                .result_error
                .clone()
                .unwrap_or_else(|| "it wrote no result".into())
        })?;
        match self.setup.target {
            Some(_) => read_builtin(text),
            None => (self.plan.attached.engine.read_bench)(self.setup.kind, text),
        }
        .map_err(|e| e.to_string())
    }
}

/// A quote of the last line; redacted before shortening, so that no half of a secret remains.
fn quoted(redactor: &Redactor, words: &str) -> String {
    redactor
        .redact_text(words)
        .chars()
        .take(LONGEST_WORDS)
        .collect()
}

/// With more failures than successes, the figures describe an engine that rejects requests.
fn mostly_failed(result: &BenchResult) -> bool {
    result
        .failed
        .zip(result.completed)
        .is_some_and(|(failed, completed)| failed > completed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_at_the_end_of_the_last_words_is_not_halved() {
        let redactor = Redactor::new(["pl1msoll-key-of-nobody".to_owned()]);
        let words = format!("{} pl1msoll-key-of-nobody", "x".repeat(LONGEST_WORDS - 9));
        let quote = quoted(&redactor, &words);
        assert_eq!(quote.chars().count(), LONGEST_WORDS);
        assert!(!quote.contains("pl1m"), "{quote}");
    }
}
