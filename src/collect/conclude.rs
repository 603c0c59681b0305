//! Writes the profile of a finished capture, and reports how the run ended.

use super::Collected;
use crate::capture::{Capture, RunEnd};
use crate::error::{ExitCode, Failure};
use crate::profile;
use crate::progress::{Progress, Sink, Stage};
use crate::report::json::json_bytes;
use crate::store::{RunPaths, StoredCapture, write_atomically};

/// A run's profile, and how the run ended.
pub struct Concluded {
    /// The profile.
    pub profile: profile::Profile,
    /// The profile's JSON.
    pub document: Vec<u8>,
    /// Whether the capture was written.
    pub captured: Result<(), Failure>,
    /// Whether the profile was written.
    pub stored: Result<(), Failure>,
    /// The error, if the run did not end well.
    pub failure: Option<Failure>,
}

/// Derives the profile of a finished capture and writes it.
pub fn derive_and_store(
    progress: &Sink,
    paths: &RunPaths,
    collected: Collected,
) -> Result<Concluded, Failure> {
    progress(Progress::Stage(Stage::Derive));
    let Collected {
        capture,
        written,
        failure,
    } = collected;
    let profile = match StoredCapture::open(&paths.capture) {
        Ok(stored) => {
            profile::derive_profile(&capture, stored.read_samples()?, stored.read_lines()?)
        }
        // After a full disk only the figures without their streams are left.
        Err(_) => profile::derive_profile(&capture, [], []),
    };
    let document = json_bytes(&profile)
        .map_err(|e| Failure::bug("the profile cannot be written as JSON").caused_by(e))?;
    // An incomplete capture still has a profile: the reserved disk space is free now.
    let stored = write_atomically(&paths.profile, &document);
    let failure = failure.or_else(|| failure_of(&capture, &profile));
    let failure = failure.map(|failure| {
        // The last output of the engine and the bench is the best explanation.
        let log = paths.log_file();
        if failure.code == ExitCode::RunFailed && log.is_file() {
            failure.hint(format!("all that was printed is in `{}`", log.display()))
        } else {
            failure
        }
    });
    Ok(Concluded {
        profile,
        document,
        captured: written,
        stored,
        failure,
    })
}

/// The failure to report, if the run did not end well.
fn failure_of(capture: &Capture, profile: &profile::Profile) -> Option<Failure> {
    let failure = match &capture.end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => {
            return Some(Failure::new(
                ExitCode::Interrupted,
                "interrupted; the profile covers what was seen until then",
            ));
        }
        RunEnd::Deadline => {
            return Some(
                Failure::run(format!(
                    "the run took longer than {} s and was stopped; the profile covers what was seen until then",
                    capture.request.timeout_s
                ))
                .hint("give it longer with --timeout"),
            );
        }
        RunEnd::ContainerLost(why) | RunEnd::BenchFailed(why) => Failure::run(why.clone()),
        RunEnd::Failed(why) => Failure::environment(why.clone()),
    };
    Some(
        profile::advise_on_profile(profile)
            .into_iter()
            .fold(failure, Failure::hint),
    )
}
