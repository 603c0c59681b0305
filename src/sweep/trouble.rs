//! Why a cell has no figures: from a failure or a profile to the cause and phase of its row.

use crate::capture::RunEnd;
use crate::engine::facts::Severity;
use crate::error::{ExitCode, Failure};
use crate::matrix::{CellRow, RowCause, RowFigures, RowPhase, RowStatus};
use crate::profile::Profile;

/// What went wrong with a cell or with the start of its engine.
#[derive(Debug, Clone)]
pub struct CellTrouble {
    /// Why.
    pub cause: RowCause,
    /// Where.
    pub phase: RowPhase,
    /// The same in a sentence.
    pub message: String,
    /// The start that failed, where it was captured.
    pub start: Option<Box<FailedStart>>,
}

/// What is known of a failed start.
#[derive(Debug, Clone)]
pub struct FailedStart {
    /// Its profile, relative to the folder of the sweep.
    pub profile: String,
    /// What ran, and what measured.
    pub figures: RowFigures,
}

impl FailedStart {
    /// Of its profile.
    pub fn of_profile(profile: &Profile, path: String) -> FailedStart {
        let all = RowFigures::of_profile(profile);
        FailedStart {
            profile: path,
            figures: RowFigures {
                limit_reached_bytes: all.limit_reached_bytes,
                memory_backend: all.memory_backend,
                engine: all.engine,
                engine_version: all.engine_version,
                simulated: all.simulated,
                ..RowFigures::default()
            },
        }
    }
}

impl CellTrouble {
    /// A failure that means this cause.
    pub fn new(cause: RowCause, phase: RowPhase, failure: &Failure) -> CellTrouble {
        let mut message = failure.describe_with_cause();
        if let Some(hint) = failure.hints.first() {
            message.push_str(&format!(" ({hint})"));
        }
        CellTrouble {
            cause,
            phase,
            message,
            start: None,
        }
    }

    /// A failure before the load: what was asked for is wrong, or what is needed is not there.
    pub fn while_preparing(failure: &Failure) -> CellTrouble {
        let cause = match failure.code {
            ExitCode::Usage => RowCause::Refused,
            ExitCode::RunFailed => RowCause::Timeout,
            _ => RowCause::Missing,
        };
        CellTrouble::new(cause, RowPhase::Prepare, failure)
    }

    /// What failed before an engine's start could be seen.
    pub fn while_starting(failure: Failure) -> CellTrouble {
        CellTrouble {
            phase: RowPhase::Start,
            ..CellTrouble::while_preparing(&failure)
        }
    }

    /// What could not be written down.
    pub fn while_storing(failure: Failure) -> CellTrouble {
        CellTrouble::new(RowCause::Storage, RowPhase::Store, &failure)
    }

    /// What kept an engine from starting, by an earlier row.
    pub fn of_start(row: &CellRow) -> Option<CellTrouble> {
        let cause = row.cause.filter(|cause| !cause.is_environmental())?;
        (row.status == RowStatus::Failed && row.phase == Some(RowPhase::Start)).then(|| {
            CellTrouble {
                cause,
                phase: RowPhase::Start,
                message: row.message.clone().unwrap_or_default(),
                start: row.profile.clone().map(|profile| {
                    let figures = row.figures.clone();
                    Box::new(FailedStart { profile, figures })
                }),
            }
        })
    }

    /// Of a run that came to no good end. `phase`: what it was about.
    pub fn of_run(profile: &Profile, failure: &Failure, phase: RowPhase) -> CellTrouble {
        CellTrouble::new(cause(profile, failure, phase), phase, failure)
    }
}

fn cause(profile: &Profile, failure: &Failure, phase: RowPhase) -> RowCause {
    if out_of_memory(profile) {
        return RowCause::Oom;
    }
    match &profile.metadata.outcome {
        RunEnd::ContainerLost(_) => RowCause::EngineDied,
        RunEnd::Deadline => RowCause::Timeout,
        RunEnd::BenchFailed(_) => RowCause::BenchFailed,
        RunEnd::Failed(_) if failure.code == ExitCode::Usage => RowCause::Refused,
        RunEnd::Failed(_) if phase == RowPhase::Start => RowCause::NotReady,
        RunEnd::Failed(_) if failure.code == ExitCode::RunFailed => RowCause::NotReady,
        _ => RowCause::Missing,
    }
}

/// Whether memory ran out, by the kernel or the engine's own log.
fn out_of_memory(profile: &Profile) -> bool {
    let findings = &profile.findings;
    findings
        .iter()
        .any(|f| f.code == "oom" && f.severity == Severity::Error)
}
