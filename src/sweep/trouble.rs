//! Why a cell has no figures: from a failure or a profile to the cause and phase of its row.

use crate::capture::RunEnd;
use crate::engine::facts::Severity;
use crate::error::{ExitCode, Failure};
use crate::matrix::{Cause, Row, RowPhase, Status};
use crate::profile::Profile;

/// What went wrong with a cell or with the start of its engine.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Why.
    pub cause: Cause,
    /// Where.
    pub phase: RowPhase,
    /// The same in a sentence.
    pub message: String,
}

impl Trouble {
    /// A failure that means this cause.
    pub fn new(cause: Cause, phase: RowPhase, failure: &Failure) -> Trouble {
        let mut message = failure.to_string();
        if let Some(source) = &failure.source {
            message.push_str(&format!(": {source}"));
        }
        if let Some(hint) = failure.hints.first() {
            message.push_str(&format!(" ({hint})"));
        }
        Trouble {
            cause,
            phase,
            message,
        }
    }

    /// A failure before the load: what was asked for is wrong, or what is needed is not there.
    pub fn preparing(failure: &Failure) -> Trouble {
        let cause = match failure.code {
            ExitCode::Usage => Cause::Refused,
            ExitCode::RunFailed => Cause::Timeout,
            _ => Cause::Missing,
        };
        Trouble::new(cause, RowPhase::Prepare, failure)
    }

    /// What failed before an engine's start could be seen.
    pub fn starting(failure: Failure) -> Trouble {
        Trouble {
            phase: RowPhase::Start,
            ..Trouble::preparing(&failure)
        }
    }

    /// What could not be written down.
    pub fn storing(failure: Failure) -> Trouble {
        Trouble::new(Cause::Storage, RowPhase::Store, &failure)
    }

    /// What kept an engine from starting, by an earlier row.
    pub fn of_start(row: &Row) -> Option<Trouble> {
        let cause = row.cause.filter(|cause| !cause.of_surroundings())?;
        (row.status == Status::Failed && row.phase == Some(RowPhase::Start)).then(|| Trouble {
            cause,
            phase: RowPhase::Start,
            message: row.message.clone().unwrap_or_default(),
        })
    }

    /// Of a run that came to no good end. `phase`: what it was about.
    pub fn of_run(profile: &Profile, failure: &Failure, phase: RowPhase) -> Trouble {
        Trouble::new(cause(profile, failure, phase), phase, failure)
    }
}

fn cause(profile: &Profile, failure: &Failure, phase: RowPhase) -> Cause {
    if out_of_memory(profile) {
        return Cause::Oom;
    }
    match &profile.metadata.outcome {
        RunEnd::ContainerLost(_) => Cause::EngineDied,
        RunEnd::Deadline => Cause::Timeout,
        RunEnd::BenchFailed(_) => Cause::BenchFailed,
        RunEnd::Failed(_) if failure.code == ExitCode::Usage => Cause::Refused,
        RunEnd::Failed(_) if phase == RowPhase::Start => Cause::NotReady,
        RunEnd::Failed(_) if failure.code == ExitCode::RunFailed => Cause::NotReady,
        _ => Cause::Missing,
    }
}

/// Whether memory ran out, by the kernel or the engine's own log.
fn out_of_memory(profile: &Profile) -> bool {
    let findings = &profile.findings;
    findings
        .iter()
        .any(|f| f.code == "oom" && f.severity == Severity::Error)
}
