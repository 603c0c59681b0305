//! The beginning of an exec where answers get lost: created again, and never started twice.

use super::again::{ANSWER, passes};
use super::frames::Frames;
use super::missing::is_missing_program;
use super::{Runtime, answer};
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::{sleep, timeout};

/// Attempts to start a command that has not begun.
const ATTEMPTS: u32 = 3;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(500);

/// How a start went.
pub(super) enum Started {
    /// Its output comes, and it reads what is written.
    Attached(Frames, Pin<Box<dyn AsyncWrite + Send>>),
    /// It has begun, or this is unknown, and its output has no reader.
    Unheard,
    /// It has not begun.
    Refused(Error),
}

impl Runtime {
    /// Creates an exec. If its id gets lost it is never started: nothing runs twice.
    pub(super) async fn create(
        &self,
        container: &str,
        options: CreateExecOptions<String>,
    ) -> Result<String, Error> {
        let create = || self.docker.create_exec(container, options.clone());
        Ok(self.again(create).await?.id)
    }

    /// Starts an exec. The daemon refuses to start one that has begun, so that asking again is
    /// safe; whether it has begun is looked at first all the same.
    pub(super) async fn start(&self, exec_id: &str) -> Started {
        let options = StartExecOptions {
            output_capacity: Some(64 * 1024),
            ..Default::default()
        };
        let mut attempt = 1;
        loop {
            let asked = timeout(ANSWER, self.docker.start_exec(exec_id, Some(options))).await;
            let error = match asked.unwrap_or(Err(Error::RequestTimeoutError)) {
                Ok(StartExecResults::Attached { output, input }) => {
                    return Started::Attached(output, input);
                }
                Ok(StartExecResults::Detached) => return Started::Unheard,
                Err(e) => e,
            };
            let refused = answer(&error).is_some_and(|(_, text)| is_missing_program(text));
            if refused || (attempt == 1 && !passes(&error)) {
                return Started::Refused(error);
            }
            match self.has_begun(exec_id).await {
                Some(false) if attempt < ATTEMPTS && passes(&error) => {}
                Some(false) => return Started::Refused(error),
                Some(true) | None => return Started::Unheard,
            }
            attempt += 1;
            sleep(PAUSE).await;
        }
    }

    /// Whether a command has begun; `None` if the daemon does not report it.
    async fn has_begun(&self, exec_id: &str) -> Option<bool> {
        let look = self.again(|| self.docker.inspect_exec(exec_id));
        let seen = look.await.ok()?;
        let runs = seen.running == Some(true) || seen.pid.is_some_and(|pid| pid > 0);
        Some(runs || seen.exit_code.is_some())
    }
}
