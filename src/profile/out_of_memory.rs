//! Whether the kernel killed a process of the container for lack of memory, and which limit was
//! reached.

use crate::capture::{
    AtNs, Capture, ContainerEvent, ContainerFacts, LimitLevel, MemoryLimit, Mode, Phase,
};
use crate::units::Bytes;

/// Message on an end by SIGKILL where the kernel counted no kill for lack of memory.
pub const KILLED_FROM_OUTSIDE: &str = ": the kernel counted no kill for lack of memory, so it was killed from outside (systemd-oomd, a scheduler, an administrator)";

/// What is known of kills for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OomVerdict {
    /// The kernel killed a process of the container.
    Killed(OomKill),
    /// By its counters it killed none.
    NotKilled,
    /// Neither the counters nor the runtime say.
    Unknown,
}

/// A kill for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    /// When; `None` where only the state of the container shows it.
    pub at_ns: Option<AtNs>,
    /// The limit that was reached; `None` where it is not known.
    pub limit: Option<MemoryLimit>,
}

impl OomVerdict {
    /// By the kernel's counters, and where these could not be read by the runtime: its state of the
    /// container (`killed`) and its events. A state that reports a kill of a container with a limit of
    /// its own counts also where the counters were read a moment too early to have it.
    pub fn judge_kill(
        container: &ContainerFacts,
        killed: bool,
        events: &[ContainerEvent],
        oom_kills: Option<u64>,
    ) -> OomVerdict {
        if oom_kills == Some(0) && !(killed && container.memory_limit_bytes.is_some()) {
            return OomVerdict::NotKilled;
        }
        let ooms = || events.iter().filter(|e| e.action == "oom");
        let counted = ooms().find_map(|e| Some((e.at_ns, MemoryLimit::from_event(e)?)));
        let own = container.memory_limit_bytes.map(|bytes| MemoryLimit {
            bytes,
            level: LimitLevel::Container,
        });
        match (counted, ooms().next()) {
            (Some((at_ns, limit)), _) => OomVerdict::Killed(OomKill {
                at_ns: Some(at_ns),
                limit: Some(limit),
            }),
            (None, None) if !killed => OomVerdict::Unknown,
            (None, event) => OomVerdict::Killed(OomKill {
                at_ns: event.map(|e| e.at_ns),
                limit: own,
            }),
        }
    }

    /// The verdict on a capture.
    pub fn of_capture(c: &Capture) -> OomVerdict {
        let killed = |s: &crate::capture::ContainerState| s.oom_killed;
        let killed = c.container_end.as_ref().is_some_and(killed) && !c.container.state.oom_killed;
        OomVerdict::judge_kill(&c.container, killed, &c.events, c.oom_kills)
    }
}

impl OomKill {
    /// `the container's limit is 400.00 MiB`.
    pub fn describe_limit(&self) -> String {
        match &self.limit {
            Some(limit) => describe_limit(limit),
            None => "which limit was reached is not known".to_owned(),
        }
    }

    /// The same as the cause of an end, in the words that `engine::causes` looks for.
    pub fn describe_kill(&self) -> String {
        format!("out of memory, {}", self.describe_limit())
    }

    /// What the run was doing then: the phase, or `start` while a bench loads its engine.
    pub fn phase_of_kill(&self, c: &Capture) -> Option<String> {
        let at = self.at_ns?;
        let loading = if c.mode == Mode::Idle {
            Phase::Start
        } else {
            Phase::Warmup
        };
        let starts = c.benches().map(|e| (e.started_at_ns, loading));
        let marks = c.marks.iter().map(|m| (m.at_ns, m.phase));
        let phase = marks.chain(starts).filter(|(from, _)| *from <= at).max()?.1;
        Some(format!("{phase:?}").to_lowercase())
    }
}

/// `the limit of slice `llm.slice` is 400.00 MiB`.
pub fn describe_limit(limit: &MemoryLimit) -> String {
    let bytes = Bytes(limit.bytes);
    match &limit.level {
        LimitLevel::Container => format!("the container's limit is {bytes}"),
        LimitLevel::Cgroup(path) => format!("the limit of {} is {bytes}", describe_cgroup(path)),
        LimitLevel::Host => format!("the host has {bytes} and no more was free"),
    }
}

/// A level above the container, as people name it.
pub fn describe_cgroup(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    if path == "/.." {
        "a cgroup above that is not visible here".to_owned()
    } else if name.ends_with(".slice") {
        format!("slice `{name}`")
    } else {
        format!("cgroup `{path}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_that_the_counters_missed_is_known_by_the_state_of_a_limited_container() {
        let judge = |limit: Option<u64>, killed| {
            let container = ContainerFacts {
                memory_limit_bytes: limit,
                ..ContainerFacts::default()
            };
            OomVerdict::judge_kill(&container, killed, &[], Some(0))
        };
        let limited = judge(Some(64 << 20), true);
        assert!(
            matches!(&limited, OomVerdict::Killed(kill) if kill.describe_limit().contains("64.00 MiB")),
            "{limited:?}"
        );
        // Docker on cgroup v1 reports the kill of a neighbour below the same limit, too.
        assert_eq!(judge(None, true), OomVerdict::NotKilled);
        assert_eq!(judge(Some(64 << 20), false), OomVerdict::NotKilled);
    }
}
