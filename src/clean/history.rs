//! Since when containers are idle, folded over looks. Pure: the caller reads the clock and keeps
//! the state, in a file where several runs share it.
//!
//! The time between two looks is not watched. For GPUs the gap is bridged where the looks are
//! close, or where the engine's own counter proves that no request came; for requests only by that
//! counter.
//!
//! Times are read from the boot clock: wall time jumps, and a jump must not count as idle time.

use super::facts::Activity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Looks further apart say nothing of the GPUs in between, nanoseconds.
const GAP_NS: i64 = 300 * SECOND_NS;
/// A container that was not seen for this time is forgotten, nanoseconds.
const FORGET_NS: i64 = 24 * 3600 * SECOND_NS;

const SECOND_NS: i64 = 1_000_000_000;

/// What shows at one look whether a running container does anything. `None` is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedContainer {
    /// Full id.
    pub id: String,
    /// When it was started last, nanoseconds since the epoch. Where that is not known, nothing is
    /// known of its past either.
    pub started_ns: Option<i64>,
    /// Utilisation of the busiest of the GPUs that it holds memory on, percent, whoever keeps it busy; 0 where it
    /// holds memory on none.
    pub gpu_percent: Option<u32>,
    /// Requests that its engine counted so far, or a figure that changes with every request.
    pub requests: Option<u64>,
    /// Requests that run or wait now.
    pub requests_now: Option<u64>,
    /// Time of its log's last line, nanoseconds since the epoch; its start where it wrote none.
    pub last_log_ns: Option<i64>,
}

/// When a look is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookTime {
    /// Id of this boot of the host; where it is not known (empty), nothing is remembered.
    pub boot: String,
    /// Since that boot, suspends included (`CLOCK_BOOTTIME`), nanoseconds.
    pub boot_ns: i64,
    /// Wall time, nanoseconds since the epoch.
    pub wall_ns: i64,
}

/// What is remembered from one look to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityHistory {
    /// The boot that the times are of.
    boot: String,
    /// By full id.
    containers: BTreeMap<String, ContainerHistory>,
}

/// Times are nanoseconds since the boot, unless noted otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ContainerHistory {
    /// As Docker reports it: since the epoch.
    started_ns: i64,
    seen_ns: i64,
    /// First of the looks at which the GPUs were idle, in a row.
    #[serde(default)]
    gpu_since_ns: Option<i64>,
    /// The look since which no request came and none ran.
    #[serde(default)]
    requests_since_ns: Option<i64>,
    /// The counter, as it was known last.
    #[serde(default)]
    requests: Option<u64>,
    /// Time of the log's last line, as Docker reports it: since the epoch.
    #[serde(default)]
    log_ns: Option<i64>,
    /// The look after which that line came.
    #[serde(default)]
    log_since_ns: i64,
}

impl ActivityHistory {
    /// Adds a look, and returns for each container since when it is idle.
    pub fn add_look(
        &mut self,
        at: &LookTime,
        observed: &[ObservedContainer],
    ) -> BTreeMap<String, Activity> {
        if at.boot.is_empty() || self.boot != at.boot {
            self.boot.clone_from(&at.boot);
            self.containers.clear();
        }
        let at_ns = at.boot_ns;
        let activities = observed
            .iter()
            .map(|container| (container.id.clone(), self.add_container(at, container)));
        let activities = activities.collect();
        (self.containers).retain(|_, e| e.seen_ns.abs_diff(at_ns) <= FORGET_NS.unsigned_abs());
        activities
    }

    fn add_container(&mut self, at: &LookTime, container: &ObservedContainer) -> Activity {
        let at_ns = at.boot_ns;
        let Some(started_ns) = container.started_ns else {
            self.containers.remove(&container.id);
            return Activity::default();
        };
        let before = self.containers.remove(&container.id).filter(|before| {
            let fell =
                matches!((before.requests, container.requests), (Some(b), Some(now)) if now < b);
            before.started_ns == started_ns && before.seen_ns <= at_ns && !fell
        });
        let before = before.as_ref();
        let entry = ContainerHistory {
            started_ns,
            seen_ns: at_ns,
            gpu_since_ns: gpu_since(at_ns, container, before),
            requests_since_ns: requests_since(at_ns, container, before),
            requests: container.requests.or(before.and_then(|b| b.requests)),
            log_ns: container.last_log_ns,
            log_since_ns: log_since(at_ns, container, before),
        };
        let activity = Activity {
            gpu_idle_s: container.gpu_percent.map(|_| {
                // Busy at this look is busy now.
                entry
                    .gpu_since_ns
                    .map_or(0, |since| seconds_between(since, at_ns))
            }),
            requests_idle_s: match (container.requests, container.requests_now) {
                (_, Some(1..)) => Some(0),
                (Some(_), Some(0)) => {
                    let since = entry.requests_since_ns;
                    Some(since.map_or(0, |since| seconds_between(since, at_ns)))
                }
                _ => None,
            },
            log_silent_s: silent_s(at, container, entry.log_since_ns),
        };
        self.containers.insert(container.id.clone(), entry);
        activity
    }
}

/// The look since which the GPUs are idle; `None`: they are busy now, or it is not known.
fn gpu_since(
    at_ns: i64,
    container: &ObservedContainer,
    before: Option<&ContainerHistory>,
) -> Option<i64> {
    if container.gpu_percent != Some(0) {
        return None;
    }
    let bridged = before.filter(|b| {
        let close = at_ns.saturating_sub(b.seen_ns) <= GAP_NS;
        close || container.requests.is_some() && container.requests == b.requests
    });
    Some(bridged.and_then(|b| b.gpu_since_ns).unwrap_or(at_ns))
}

/// The look since which no request came; `None`: one runs now, or it was never known.
fn requests_since(
    at_ns: i64,
    container: &ObservedContainer,
    before: Option<&ContainerHistory>,
) -> Option<i64> {
    let since = before.and_then(|b| b.requests_since_ns);
    match (container.requests, container.requests_now) {
        (_, Some(1..)) => None,
        // Whether one runs now is not known: it may be one that was counted when it came.
        (_, None) => None,
        // The counter covers the time in between as soon as it can be read again.
        (None, Some(0)) => since,
        (Some(now), Some(0)) => {
            let same = before.and_then(|b| b.requests) == Some(now);
            Some(since.filter(|_| same).unwrap_or(at_ns))
        }
    }
}

/// The look after which the log's last line came, as far as it was watched.
fn log_since(at_ns: i64, container: &ObservedContainer, before: Option<&ContainerHistory>) -> i64 {
    match before {
        Some(b) if b.log_ns.is_none() || container.last_log_ns.is_none() => at_ns,
        Some(b) if b.log_ns == container.last_log_ns => b.log_since_ns,
        Some(b) => b.seen_ns,
        None => at_ns,
    }
}

/// How long the log is silent: by its own times, and never for longer than it was watched without
/// a new line. Lines of before the last start do not count.
fn silent_s(at: &LookTime, container: &ObservedContainer, since_ns: i64) -> Option<u64> {
    let last = container.last_log_ns?;
    let line_age_s = seconds_between(last.max(container.started_ns.unwrap_or(last)), at.wall_ns);
    Some(line_age_s.min(seconds_between(since_ns, at.boot_ns)))
}

/// Whole seconds from one moment to a later one, 0 where it is not later.
fn seconds_between(from_ns: i64, to_ns: i64) -> u64 {
    let passed = to_ns.saturating_sub(from_ns).max(0);
    passed.unsigned_abs() / SECOND_NS.unsigned_abs()
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
