//! A container that has ended: its exit code, the line of its log that explains it, what to change.

use super::ending;
use super::follow::HISTORY_BYTES;
use crate::container::Runtime;
use crate::container::find::refuse_state;
use crate::container::inspect::Found;
use crate::engine::causes::find_cause;
use crate::engine::log::{auto::AutoParser, unwrap::Unwrapped};
use crate::engine::{self, LogParser};
use crate::error::Failure;
use crate::profile::OomVerdict;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A process may be gone this long before the daemon reports the end of its container.
const END_REPORTED_WITHIN: Duration = Duration::from_secs(2);
/// Between two questions.
const STATE_INTERVAL: Duration = Duration::from_millis(100);

/// The container that `wanted` names, running. For one that has ended the failure explains its end.
pub async fn find_running(runtime: &Runtime, wanted: &str) -> Result<Found, Failure> {
    let found = runtime.find_any(wanted).await?;
    match refuse_state(&found.facts) {
        None => Ok(found),
        Some(failure) => Err(with_end(runtime, &found, failure).await),
    }
}

/// A failure of work on a container. Where the container has ended meanwhile, that is the failure.
pub async fn explain_end(runtime: &Runtime, found: &Found, failure: Failure) -> Failure {
    match ended_state(runtime, found, END_REPORTED_WITHIN).await {
        Some(ended) => match refuse_state(&ended.facts) {
            Some(refused) => with_end(runtime, &ended, refused).await,
            None => failure,
        },
        None => failure,
    }
}

/// Whether a container does not run any more.
pub async fn has_ended(runtime: &Runtime, found: &Found) -> bool {
    ended_state(runtime, found, END_REPORTED_WITHIN)
        .await
        .is_some()
}

/// The container once it does not run any more; `None` where it runs on.
async fn ended_state(runtime: &Runtime, found: &Found, wait: Duration) -> Option<Found> {
    let until = tokio::time::Instant::now() + wait;
    loop {
        let now = runtime.inspect(&found.facts.id).await.ok().flatten()?;
        if !ending::runs(&now.facts.state) {
            return Some(now);
        }
        let process = now.facts.state.pid.map(|pid| format!("/proc/{pid}/cgroup"));
        let is_there = process.is_some_and(|file| std::fs::exists(file).unwrap_or(false));
        if is_there || tokio::time::Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(STATE_INTERVAL).await;
    }
}

/// Adds the end found in a container's log, and what to change.
async fn with_end(runtime: &Runtime, found: &Found, failure: Failure) -> Failure {
    let facts = &found.facts;
    if !matches!(
        facts.state.status.as_str(),
        "exited" | "dead" | "restarting" | "stopped"
    ) {
        return failure;
    }
    let mut parser: Box<dyn LogParser> = match engine::recognise(facts) {
        Some((engine, _)) => engine::parser_of(engine),
        None => Box::new(Unwrapped::new(Box::new(AutoParser::new()))),
    };
    let redactor = found.secrets.redactor();
    let mut last_line = None;
    let take = |_, _, text: String| {
        parser.line(redactor.text(&text).as_bytes(), None);
        if !text.trim().is_empty() {
            last_line = Some(text);
        }
        ControlFlow::Continue(())
    };
    let cancel = CancellationToken::new();
    let history = runtime
        .log_history(facts, None, HISTORY_BYTES, &cancel, take)
        .await;
    let cause = match (parser.root_cause(), last_line, history.facts.error) {
        (Some(cause), ..) => cause,
        (None, Some(line), _) => ending::last_line_words(&redactor.text(&line)),
        (None, None, Some(error)) => error,
        (None, None, None) => ending::EMPTY_LOG.to_owned(),
    };
    let message = format!("{failure}: {cause}");
    let text = match OomVerdict::judge(facts, facts.state.oom_killed, &[], None) {
        OomVerdict::Killed(kill) => kill.describe(),
        _ => cause,
    };
    let advice = find_cause(&text)
        .map(|(cause, line)| cause.advise(line, facts.memory_limit_bytes))
        .unwrap_or_default();
    Failure {
        message,
        hints: advice.into_iter().chain(failure.hints).collect(),
        ..failure
    }
}
