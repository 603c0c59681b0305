//! The daemon's answers about a command: its pid, its exit code, and whether its container has
//! died.

use super::processes::HostView;
use super::{Runtime, answer, is_not_found};
use crate::capture::ContainerFacts;
use bollard::errors::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// For one answer to whether a command runs.
const TELL: Duration = Duration::from_secs(5);

/// A daemon that reports nothing about a command for this long never will.
const UNTOLD: Duration = Duration::from_secs(15);

/// A command that has neither run nor ended when this has passed never began.
const UNBEGUN: Duration = Duration::from_secs(3);

/// The daemon's answer about the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Exited(i64),
    /// It knows no such command, or its container does not run.
    Gone,
    Untold,
}

impl Code {
    pub(super) fn number(self) -> Option<i64> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Gone | Self::Untold => None,
        }
    }
}

impl Runtime {
    /// The exec's host pid, as soon as the daemon reports it.
    pub(super) async fn host_pid(&self, exec_id: &str) -> Option<u32> {
        for _ in 0..40 {
            match self.again(|| self.docker.inspect_exec(exec_id)).await {
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
        let mut told = Instant::now();
        let (mut unbegun, mut gone): (Option<Instant>, u32) = (None, 0);
        let mut pause = Duration::from_millis(10);
        loop {
            match timeout(TELL, self.docker.inspect_exec(exec_id)).await {
                Ok(Ok(i)) => {
                    told = Instant::now();
                    match (i.running, i.exit_code) {
                        (Some(false), Some(code)) => return Code::Exited(code),
                        (Some(false), None) => {
                            let since = *unbegun.get_or_insert(told);
                            if since.elapsed() > UNBEGUN {
                                return Code::Untold;
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
            if told.elapsed() > UNTOLD {
                return Code::Untold;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Whether the container's life that a command began in is over; `None` where the daemon does
    /// not say. `viewed`: this host showed the container then. A process that is killed with its
    /// container ends a moment before the daemon knows of the container's end.
    pub(super) async fn died_under(&self, before: &ContainerFacts, viewed: bool) -> Option<bool> {
        let mut told = false;
        for _ in 0..5 {
            match self.state(&before.id).await {
                Ok(Some(now))
                    if now.status == "running" && now.started_ns == before.state.started_ns =>
                {
                    told = true;
                }
                Ok(_) => return Some(true),
                // Podman has trouble with what is just being removed.
                Err(_) => {}
            }
            sleep(Duration::from_millis(200)).await;
        }
        // Podman takes longer to know where the host is busy; `/proc` shows it at once.
        let gone = |pid| HostView::open(pid, &before.id).is_none();
        if viewed && before.state.pid.is_some_and(gone) {
            Some(true)
        } else {
            told.then_some(false)
        }
    }
}

/// Whether the error means that the exec, or its container, no longer exists.
pub(super) fn is_gone(e: &Error) -> bool {
    is_not_found(e)
        || answer(e).is_some_and(|(code, message)| {
            // Podman's word for a container that does not run is its own.
            (code == 409 && message.contains("not running"))
                || message.contains("container state improper")
        })
}
