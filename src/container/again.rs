//! Repeats read-only questions to the daemon: connections break, answers get lost, and a restarting
//! daemon is away for some seconds.

use super::{Runtime, daemon_answer};
use crate::sync::lock_data;
use bollard::Docker;
use bollard::errors::Error;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Timeout of one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(15);

/// Total wait for an unreachable daemon, over all questions of a run.
const AWAY: Duration = Duration::from_secs(12);

/// How long a daemon that answers with errors is asked again.
const FAILING: Duration = Duration::from_secs(1);

/// Pause between two attempts: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Start of the daemon's outage; an outage is waited for only once.
#[derive(Debug, Default)]
pub(super) struct Away(Mutex<Option<Instant>>);

impl Runtime {
    /// Asks until there is an answer, or an error that will not pass.
    pub(super) async fn ask_again<'a, T, F>(
        &'a self,
        mut question: impl FnMut(&'a Docker) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let docker = self.daemon()?;
        let began = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let asked = timeout(ANSWER, question(docker)).await;
            let asked = asked.unwrap_or(Err(Error::RequestTimeoutError));
            let error = match asked {
                Err(e) if is_transient(&e) => e,
                answered => {
                    *lock_data(&self.shared.away.0) = None;
                    return answered;
                }
            };
            let tried = match &error {
                e if daemon_answer(e).is_some() || is_garbled(e) => began.elapsed() < FAILING,
                // There is time for one more attempt only.
                Error::RequestTimeoutError => began.elapsed() < ANSWER * 2,
                _ => {
                    let since = *lock_data(&self.shared.away.0).get_or_insert_with(Instant::now);
                    since.elapsed() < AWAY
                }
            };
            if !tried {
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// Whether the error may be transient. A refusal is final.
pub(super) fn is_transient(e: &Error) -> bool {
    match daemon_answer(e) {
        Some((code, _)) => code >= 500 && code != 501,
        None => is_broken(e) || is_garbled(e),
    }
}

/// Whether the connection broke or was never made.
fn is_broken(e: &Error) -> bool {
    matches!(
        e,
        Error::RequestTimeoutError
            | Error::IOError { .. }
            | Error::HttpClientError { .. }
            | Error::HyperResponseError { .. }
            | Error::HyperLegacyError { .. }
            | Error::SocketNotFoundError(_)
    )
}

/// Whether the answer is malformed, possibly truncated.
fn is_garbled(e: &Error) -> bool {
    matches!(
        e,
        Error::JsonDataError { .. } | Error::JsonSerdeError { .. }
    )
}
