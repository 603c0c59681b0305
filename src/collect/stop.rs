//! Why a run stops before its end: one reason, the first one, and everybody is told.

use crate::capture::RunEnd;
use crate::error::{ExitCode, Failure};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Shared by everything that works on a run.
#[derive(Debug, Clone)]
pub struct Stop {
    token: CancellationToken,
    reason: Arc<Mutex<Option<RunEnd>>>,
}

impl Stop {
    /// Nothing stops yet.
    pub fn new() -> Stop {
        Stop {
            token: CancellationToken::new(),
            reason: Arc::default(),
        }
    }

    /// Stops the run; the first reason counts.
    pub fn because(&self, reason: RunEnd) {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(reason);
        self.token.cancel();
    }

    /// Fires when the run stops.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The failure of work that was given up because the run stops.
    pub fn failure(&self) -> Failure {
        match self.reason() {
            Some(RunEnd::Deadline) => {
                Failure::run("the time of the run was up before the load began")
                    .hint("give it longer with --timeout")
            }
            _ => Failure::new(ExitCode::Interrupted, "interrupted"),
        }
    }

    /// Why it stopped, if it did.
    pub fn reason(&self) -> Option<RunEnd> {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Default for Stop {
    fn default() -> Self {
        Stop::new()
    }
}
