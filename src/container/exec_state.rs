//! Starts an exec where answers may get lost (created again, never started twice), and reads its
//! state from the daemon: its pid, its exit code, and whether its container has died.

use super::again::{ANSWER, is_transient};
use super::frames::Frames;
use super::frames::is_missing_program;
use super::processes::HostView;
use super::{Runtime, daemon_answer, is_not_found};
use crate::capture::ContainerFacts;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, sleep, timeout};

/// Attempts to start a command.
const ATTEMPTS: u32 = 3;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Result of starting an exec.
pub(super) enum StartedExec {
    /// Its output and its standard input.
    Attached(Frames, Pin<Box<dyn AsyncWrite + Send>>),
    /// It has begun, or this is unknown, and its output has no reader.
    Unheard,
    /// It has not begun.
    Refused(Error),
}

impl Runtime {
    /// Creates an exec. If its id gets lost it is never started: nothing runs twice.
    pub(super) async fn create_exec(
        &self,
        container: &str,
        options: CreateExecOptions<String>,
    ) -> Result<String, Error> {
        let created = self.ask_again(|docker| docker.create_exec(container, options.clone()));
        Ok(created.await?.id)
    }

    /// Starts an exec. The daemon refuses to start one that has begun, so repeating is safe; still,
    /// its state is checked first.
    pub(super) async fn start_exec(&self, exec_id: &str) -> StartedExec {
        let options = StartExecOptions {
            output_capacity: Some(64 * 1024),
            ..Default::default()
        };
        let mut attempt = 1;
        loop {
            let start = async { self.daemon()?.start_exec(exec_id, Some(options)).await };
            let asked = timeout(ANSWER, start).await;
            let error = match asked.unwrap_or(Err(Error::RequestTimeoutError)) {
                Ok(StartExecResults::Attached { output, input }) => {
                    return StartedExec::Attached(output, input);
                }
                Ok(StartExecResults::Detached) => return StartedExec::Unheard,
                Err(e) => e,
            };
            let refused = daemon_answer(&error).is_some_and(|(_, text)| is_missing_program(text));
            if refused || (attempt == 1 && !is_transient(&error)) {
                return StartedExec::Refused(error);
            }
            match self.has_begun(exec_id).await {
                Some(false) if attempt < ATTEMPTS && is_transient(&error) => {}
                Some(false) => return StartedExec::Refused(error),
                Some(true) | None => return StartedExec::Unheard,
            }
            attempt += 1;
            sleep(PAUSE).await;
        }
    }

    /// Whether a command has begun; `None` if the daemon does not report it.
    async fn has_begun(&self, exec_id: &str) -> Option<bool> {
        let look = self.ask_again(|docker| docker.inspect_exec(exec_id));
        let state = look.await.ok()?;
        let runs = state.running == Some(true) || state.pid.is_some_and(|pid| pid > 0);
        Some(runs || state.exit_code.is_some())
    }
}

/// Timeout of one question about a command's state.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A daemon that reports nothing about a command for this long never will.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);

/// A command without any sign of running for this long never began.
const UNBEGUN: Duration = Duration::from_secs(3);

/// The daemon's answer about the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Exited(i64),
    /// The daemon does not know the command, or its container does not run.
    Gone,
    Unreported,
}

impl Code {
    pub(super) fn exit_number(self) -> Option<i64> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Gone | Self::Unreported => None,
        }
    }
}

impl Runtime {
    /// The exec's host pid, as soon as the daemon reports it.
    pub(super) async fn host_pid(&self, exec_id: &str) -> Option<u32> {
        for _ in 0..40 {
            match self.ask_again(|docker| docker.inspect_exec(exec_id)).await {
                Ok(i) => match i.pid.and_then(|p| u32::try_from(p).ok()).filter(|p| *p > 1) {
                    Some(pid) => return Some(pid),
                    None if i.running == Some(false) && i.exit_code.is_some() => return None,
                    None => {}
                },
                Err(_) => return None,
            }
            sleep(Duration::from_millis(50)).await;
        }
        None
    }

    /// The exit code, once the daemon reports that the command has ended. Podman needs a moment for
    /// that after the output has ended.
    pub(super) async fn exit_code(&self, exec_id: &str) -> Code {
        let mut last_answer = Instant::now();
        let (mut unbegun, mut gone): (Option<Instant>, u32) = (None, 0);
        let mut pause = Duration::from_millis(10);
        loop {
            let state = async { self.daemon()?.inspect_exec(exec_id).await };
            match timeout(ANSWER_TIMEOUT, state).await {
                Ok(Ok(i)) => {
                    last_answer = Instant::now();
                    match (i.running, i.exit_code) {
                        (Some(false), Some(code)) => return Code::Exited(code),
                        (Some(false), None) => {
                            let since = *unbegun.get_or_insert(last_answer);
                            if since.elapsed() > UNBEGUN {
                                return Code::Unreported;
                            }
                        }
                        _ => unbegun = None,
                    }
                }
                // A daemon that was just started may not know it yet.
                Ok(Err(e)) if is_gone(&e) && gone > 0 => return Code::Gone,
                Ok(Err(e)) if is_gone(&e) => gone += 1,
                Ok(Err(_)) | Err(_) => {}
            }
            if last_answer.elapsed() > LONGEST_SILENCE {
                return Code::Unreported;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Whether the container has ended (or restarted) since the command began; `None` if the daemon
    /// does not report it. `viewed`: this host showed the container then. A process killed with its
    /// container ends shortly before the daemon knows of the container's end.
    pub(super) async fn died_under(&self, before: &ContainerFacts, viewed: bool) -> Option<bool> {
        let mut answered = false;
        for _ in 0..5 {
            match self.container_state(&before.id).await {
                Ok(Some(now))
                    if now.status == "running" && now.started_ns == before.state.started_ns =>
                {
                    answered = true;
                }
                Ok(_) => return Some(true),
                // Podman returns errors for a container that is being removed.
                Err(_) => {}
            }
            sleep(Duration::from_millis(200)).await;
        }
        // On a busy host podman reports it late; `/proc` shows it at once.
        let gone = |pid| HostView::open(pid, &before.id).is_none();
        if viewed && before.state.pid.is_some_and(gone) {
            Some(true)
        } else {
            answered.then_some(false)
        }
    }
}

/// Whether the error means that the exec, or its container, no longer exists.
pub(super) fn is_gone(e: &Error) -> bool {
    is_not_found(e)
        || daemon_answer(e).is_some_and(|(code, message)| {
            // Podman uses its own words for a container that does not run.
            (code == 409 && message.contains("not running"))
                || message.contains("container state improper")
        })
}
