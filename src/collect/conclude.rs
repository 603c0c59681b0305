//! From what was collected to the profile on disk, and how the run's end is told.

use super::Collected;
use crate::capture::{Capture, RunEnd};
use crate::error::{ExitCode, Failure};
use crate::profile::KILLED_FROM_OUTSIDE;
use crate::progress::{Progress, Sink, Stage};
use crate::report::Renderer;
use crate::store::{RunPaths, StoredCapture, write_atomically};
use crate::{profile, report};

/// A run's profile, and how the run ended.
pub struct Concluded {
    /// The profile.
    pub profile: profile::Profile,
    /// The same as it lies on the disk.
    pub document: Vec<u8>,
    /// Whether the capture could be written down.
    pub captured: Result<(), Failure>,
    /// Whether the profile could.
    pub stored: Result<(), Failure>,
    /// What went wrong, when the run came to no good end.
    pub failure: Option<Failure>,
}

/// From what was collected to the profile on disk.
pub fn derive_and_store(
    news: &Sink,
    paths: &RunPaths,
    collected: Collected,
) -> Result<Concluded, Failure> {
    news(Progress::Stage(Stage::Derive));
    let Collected {
        capture,
        written,
        failure,
    } = collected;
    let profile = match StoredCapture::open(&paths.capture) {
        Ok(stored) => profile::derive(&capture, stored.samples()?, stored.lines()?),
        // A disk that is full to the last byte: the figures without their streams.
        Err(_) => profile::derive(&capture, [], []),
    };
    let document = report::json::Json.render(&profile).map_err(|e| {
        Failure::new(ExitCode::Internal, "the profile cannot be written as JSON").caused_by(e)
    })?;
    // A capture that is not whole still has a profile: the space held back for it is free now.
    let stored = write_atomically(&paths.profile, &document);
    let failure = failure.or_else(|| failure_of(&capture, &profile));
    let failure = failure.map(|failure| {
        // What the engine and the bench printed says more than any sentence of ours.
        let log = paths.log();
        match failure.code == ExitCode::RunFailed && log.is_file() {
            true => failure.hint(format!("all that was printed is in `{}`", log.display())),
            false => failure,
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

/// How the run's end is told, when it was no good end.
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
                    "the run did not end within {} s and was stopped",
                    capture.request.timeout_s
                ))
                .hint("give it longer with --timeout"),
            );
        }
        RunEnd::ContainerLost(why) | RunEnd::BenchFailed(why) => Failure::run(why.clone()),
        RunEnd::Failed(why) => Failure::environment(why.clone()),
    };
    Some(
        advice(&failure.message, &profile.raw_logs)
            .iter()
            .copied()
            .fold(failure, Failure::hint),
    )
}

/// Advice for failures that everybody meets.
fn advice(message: &str, logs: &profile::RawLogs) -> &'static [&'static str] {
    let said = |words: &[&str]| {
        words
            .iter()
            .any(|w| message.contains(w) || logs.bench.contains(w) || logs.engine.contains(w))
    };
    if message.contains(KILLED_FROM_OUTSIDE) {
        &[
            "find what sent SIGKILL: the journal of systemd-oomd, the scheduler's log, other users of this host",
        ]
    } else if said(&["No available memory for the cache blocks"]) {
        &[
            "nothing is left for the KV cache: a higher --gpu-memory-utilization, a shorter --max-model-len, or more GPUs (--tensor-parallel-size)",
            FITS,
        ]
    } else if said(&["exit 137", "out of memory", "OutOfMemory"]) {
        &[
            "use less: --batch-size, --input-len, --max-model-len or --gpu-memory-utilization; use more GPUs: --tensor-parallel-size; or give the container more memory",
            FITS,
        ]
    } else if said(&["gated repo", "401 Client Error", "GatedRepoError"]) {
        &["the model is gated: accept its terms and give the container HF_TOKEN"]
    } else if said(&[
        "is not a local folder and is not a valid model identifier",
        "HFValidationError",
        "Repo id must be in the form",
        "OfflineModeIsEnabled",
        "couldn't connect to 'https://",
        "LocalEntryNotFoundError",
        "RepositoryNotFoundError",
        "Repository Not Found",
    ]) {
        &[
            "the container does not have this model: mount it, or let it download with HF_TOKEN and without HF_HUB_OFFLINE",
            "--model is an id, or a path as it is inside the container: `docker inspect` shows what is mounted where",
        ]
    } else if ["is no valid JSON", "yet it wrote no"]
        .iter()
        .any(|w| message.contains(w))
    {
        &[
            "is the engine whole in this image, and a release that its bench is known of? --bench builtin and --bench none do without its bench",
        ]
    } else {
        &[]
    }
}

/// Where to look before the next try.
const FITS: &str = "`plimsoll estimate` tells before a start what fits, `plimsoll top --once` whose memory it is now";
