//! A run with memory played back from a recording: which one, whether it is long enough and
//! of the same container.

use super::observation::CaptureObservation;
use crate::capture::{AtNs, BackendFacts, DeviceKind};
use crate::engine::facts::{Finding, Severity};

/// A recording that ends so shortly before the load does has its end, nanoseconds.
const SLACK_NS: AtNs = 1_000_000_000;
/// In intervals between samples.
const SLACK_INTERVALS: AtNs = 5;
/// Digits of a container's id.
const ID_DIGITS: usize = 64;

/// The recording that was played back, as the replay names it in its reason; `None` for a backend
/// that measured.
pub fn recording_name(backend: &BackendFacts) -> Option<&str> {
    if backend.name != "replay" {
        return None;
    }
    // A path may hold a backtick itself.
    let (_, rest) = backend.reason.split_once('`')?;
    rest.split_once("` is played back").map(|(name, _)| name)
}

/// Findings on a replayed recording: its memory is not this run's own measurement.
pub fn find_replay_problems(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let c = o.capture;
    if c.backend.name != "replay" {
        return;
    }
    let file = recording_name(&c.backend).unwrap_or("an earlier capture");
    let mut report = |code: &str, severity, message| {
        findings.push(Finding::new(code, severity, message));
    };
    report(
        "memory_replayed",
        Severity::Warning,
        format!(
            "the memory was not measured in this run: the session recorded in `{file}` was played back"
        ),
    );
    if let Some(other) = other_container(o) {
        let message = format!(
            "the recording `{file}` is of another container ({}): its memory is not used",
            other.get(..12).unwrap_or(&other)
        );
        report("replay_of_another", Severity::Error, message);
    }
    let last = (0..o.series.device_count())
        .filter_map(|d| o.series.rows_of_device(d).last())
        .map(|s| s.at_ns)
        .max();
    let end = o
        .repeats
        .iter()
        .map(|r| r.window.to.min(c.ended_at_ns))
        .max();
    let interval = AtNs::try_from(c.sampling.interval_ns).unwrap_or(AtNs::MAX);
    let slack = interval.saturating_mul(SLACK_INTERVALS).max(SLACK_NS);
    if let Some((last, end)) = last.zip(end) {
        if end.saturating_sub(last) > slack {
            let message = format!(
                "the recording `{file}` ended {:.1} s before the load did: no memory is known from there on, and a later peak is missed",
                end.saturating_sub(last) as f64 / 1e9
            );
            report("replay_ended_early", Severity::Error, message);
        }
    }
}

/// Id of the recorded container, where it is known and differs from this run's.
fn other_container(o: &CaptureObservation<'_>) -> Option<String> {
    let c = o.capture;
    let of_cgroups = c
        .devices
        .iter()
        .filter(|d| d.kind == DeviceKind::HostCgroup)
        .filter_map(|d| container_id(&d.id).map(str::to_owned));
    let of_processes = (0..o.series.device_count())
        .flat_map(|d| o.series.rows_of_device(d).process_lists())
        .flatten()
        .filter(|p| p.ours == Some(true))
        .filter_map(|p| p.container_id);
    let mut recorded = of_cgroups.chain(of_processes);
    recorded.find(|id| id.len() == ID_DIGITS && *id != c.container.id)
}

/// The id within a cgroup's path: `/docker/<id>`, `/system.slice/docker-<id>.scope`.
fn container_id(path: &str) -> Option<&str> {
    path.split(|ch: char| !ch.is_ascii_hexdigit())
        .find(|word| word.len() == ID_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::telemetry::{MemoryBackend, ReplayBackend};

    #[test]
    fn the_recording_is_the_one_that_the_replay_names() {
        let clock = Clock::manual(0);
        let recorded = BackendFacts {
            name: "host".into(),
            reason: "container memory was `asked` for".into(),
            ..BackendFacts::default()
        };
        let replay = ReplayBackend::of_session(&clock, &recorded, vec![], vec![], "a `b.jsonl");
        assert_eq!(recording_name(&replay.facts()), Some("a `b.jsonl"));
        assert_eq!(recording_name(&recorded), None);
    }

    #[test]
    fn a_container_is_named_in_either_form_of_its_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("/docker/{id}"),
            format!("/x.slice/docker-{id}.scope"),
        ] {
            assert_eq!(container_id(&path), Some(id.as_str()));
        }
        assert_eq!(container_id("/user.slice"), None);
    }
}
