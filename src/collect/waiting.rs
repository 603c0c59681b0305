//! Waits until an engine serves: one that was started, or one that was found loading.

use super::ending::{self, is_running, last_line_words};
use super::setup::{engine_port, hint_unreached};
use super::stop::StopSignal;
use super::{AttachedEngine, HISTORY_BYTES};
use crate::clock::wall_now_ns;
use crate::container::Runtime;
use crate::container::http::HttpReply;
use crate::container::inspect::InspectedContainer;
use crate::error::Failure;
use crate::progress::{Progress, Sink, Stage};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Polling interval.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of reports about an engine that does not serve yet.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

impl AttachedEngine {
    async fn ask_health(&self, path: &str) -> HttpReply {
        let facts = &self.found.facts;
        let port = engine_port(self.engine, facts);
        let key = self.found.secrets.api_key();
        self.runtime.get_inside(facts, port, path, key).await
    }

    async fn waited_enough(&self, path: &str, longest: Duration) -> Failure {
        let reply = self.ask_health(path).await;
        let why = describe_answer(path, reply);
        let facts = &self.found.facts;
        Failure::run(format!(
            "the engine in `{}` does not serve after {longest:?}: {why}",
            self.name()
        ))
        .hint("wait longer with --wait=1h")
        .hint(hint_unreached(facts, engine_port(self.engine, facts)))
    }

    /// Returns once its health endpoint answers 200; `between` runs between two questions. `answer` has what came of the last.
    pub(super) async fn poll_health(
        &self,
        path: &str,
        answer: &LastAnswer,
        between: impl AsyncFn(),
    ) {
        loop {
            let reply = self.ask_health(path).await;
            if reply.status == Some(200) {
                return;
            }
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = describe_answer(path, reply);
            sleep(HEALTH_INTERVAL).await;
            between().await;
        }
    }

    /// Waits for a server that still loads, `longest` at most.
    ///
    /// # Errors
    /// It does not serve by then, it ended or was started again meanwhile, or the run is stopped.
    pub async fn wait_while_loading(
        &self,
        longest: Duration,
        stop: &StopSignal,
        progress: &Sink,
    ) -> Result<(), Failure> {
        let path = self.engine.health_path;
        if self.ask_health(path).await.status == Some(200) {
            return Ok(());
        }
        progress(Progress::Stage(Stage::WaitHealthy));
        let before = &self.found.facts.state;
        let ended = CancellationToken::new();
        let look = async || {
            // An unreadable state is not evidence.
            let Ok(Some(now)) = self.container_state().await else {
                return;
            };
            if !is_running(&now) || now.started_ns > before.started_ns {
                ended.cancel();
            }
        };
        let name = self.name();
        let answer = LastAnswer::default();
        tokio::select! {
            () = self.poll_health(path, &answer, look) => Ok(()),
            () = report_waiting(&answer, async || last_line(&self.runtime, &self.found).await, progress) => Ok(()),
            () = ended.cancelled() => Err(match self.runtime.has_daemon() {
                true => Failure::run(format!("container `{name}` ended while its engine loaded"))
                    .hint(format!("`plimsoll why {name}` shows the cause again")),
                false => Failure::run(format!("{name} ended while its engine loaded"))
                    .hint("`plimsoll why FILE` shows the cause again; FILE is its log"),
            }),
            () = stop.token().cancelled() => Err(stop.stop_failure()),
            () = sleep(longest) => Err(self.waited_enough(path, longest).await),
        }
    }
}

/// What the health endpoint answered last, or why nothing came.
pub(super) type LastAnswer = Mutex<String>;

/// It in words.
pub(super) fn answer_words(answer: &LastAnswer) -> String {
    let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
    match answer.as_str() {
        "" => "no answer yet".to_owned(),
        answer => answer.to_owned(),
    }
}

fn describe_answer(path: &str, reply: HttpReply) -> String {
    match reply.status {
        Some(status) => format!("{path} answers {status}"),
        None => reply.error.unwrap_or_default(),
    }
}

/// Reports the last answer and the engine's last output periodically.
pub(super) async fn report_waiting(
    answer: &LastAnswer,
    last_line: impl AsyncFn() -> Option<String>,
    progress: &Sink,
) {
    let began = Instant::now();
    loop {
        sleep(REPORT_INTERVAL).await;
        let last = last_line().await;
        let last = last.map_or_else(|| ending::EMPTY_LOG.into(), |l| last_line_words(&l));
        let waited = began.elapsed().as_secs();
        let answer = answer_words(answer);
        progress(Progress::Note(format!(
            "the engine does not serve yet, after {waited} s ({answer}); {last}"
        )));
    }
}

/// The last line that a container printed of late.
async fn last_line(runtime: &Runtime, found: &InspectedContainer) -> Option<String> {
    let of_late = i64::try_from(REPORT_INTERVAL.as_nanos()).unwrap_or(i64::MAX);
    let from = wall_now_ns().saturating_sub(of_late);
    let mut last = None;
    let take = |_, _, text: String| {
        if !text.trim().is_empty() {
            last = Some(text);
        }
        ControlFlow::Continue(())
    };
    let cancel = CancellationToken::new();
    let facts = &found.facts;
    let read = runtime.log_history(facts, Some(from), HISTORY_BYTES, &cancel, take);
    read.await;
    let redactor = found.secrets.redactor();
    last.map(|line| redactor.redact_text(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_serve_yet_is_reported_every_30_s() {
        let notes: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let into = Arc::clone(&notes);
        let progress: Sink = Arc::new(move |note| into.lock().unwrap().push(note));
        let line = async || Some("Loading weights: 40 %".to_owned());
        let waited = Duration::from_secs(95);
        let answer = LastAnswer::new("/health answers 503".into());
        let _ = tokio::time::timeout(waited, report_waiting(&answer, line, &progress)).await;
        let notes = notes.lock().unwrap();
        let expected = [30, 60, 90].map(|s| {
            Progress::Note(format!(
                "the engine does not serve yet, after {s} s (/health answers 503); the last line of its log is `Loading weights: 40 %`"
            ))
        });
        assert_eq!(*notes, expected);
    }
}
