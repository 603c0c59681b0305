//! Since when containers do nothing, remembered in a file that runs share: what a service has seen
//! helps whoever asks later.

use super::history::{ActivityHistory, LookTime};
use super::survey::HostLook;
use crate::container::leftovers::boot_id;
use crate::store::{SharedFile, bounded};
use rustix::time::{ClockId, clock_gettime};

/// Name of the file in the state folder.
const FILE: &str = "activity.json";

/// What is remembered.
#[derive(Debug, Default)]
pub struct ActivityMemory {
    /// What this process has seen, where there is no file.
    history: ActivityHistory,
    /// Whether the file could not be written: then it knows less than this process.
    alone: bool,
}

impl ActivityMemory {
    /// Adds a look of now, and completes it by since when each container does nothing. Reads and
    /// writes the file; without one only this process remembers.
    pub fn complete_look(&mut self, look: &mut HostLook) {
        let file = SharedFile::open_locked(FILE).filter(|_| !self.alone);
        let found = file.as_ref().and_then(SharedFile::read_bytes);
        if let Some(history) = found.and_then(|text| bounded::parse_json(&text).ok()) {
            self.history = history;
        }
        self.add_look(&current_moment(), look);
        if let (Some(file), Ok(text)) = (file, serde_json::to_vec(&self.history)) {
            self.alone = file.write_bytes(&text).is_err();
        }
    }

    fn add_look(&mut self, at: &LookTime, look: &mut HostLook) {
        let mut activities = self.history.add_look(at, &look.observations);
        for container in &mut look.survey.containers {
            container.activity = activities.remove(&container.id).unwrap_or_default();
        }
    }
}

fn current_moment() -> LookTime {
    let nanoseconds = |clock| {
        let time = clock_gettime(clock);
        let seconds = time.tv_sec.saturating_mul(1_000_000_000);
        seconds.saturating_add(time.tv_nsec)
    };
    LookTime {
        boot: boot_id(),
        boot_ns: nanoseconds(ClockId::Boottime),
        wall_ns: nanoseconds(ClockId::Realtime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::facts::{ContainerLook, Survey};
    use crate::clean::history::ObservedContainer;

    const SECOND: i64 = 1_000_000_000;

    fn look(requests: u64) -> HostLook {
        let container = |id: &str| ContainerLook {
            id: id.into(),
            ..ContainerLook::default()
        };
        HostLook {
            survey: Survey {
                containers: vec![container("a"), container("b")],
                ..Survey::default()
            },
            observations: vec![ObservedContainer {
                id: "a".into(),
                started_ns: Some(SECOND),
                gpu_percent: Some(0),
                requests_now: Some(0),
                requests: Some(requests),
                last_log_ns: Some(5 * SECOND),
            }],
        }
    }

    #[test]
    fn what_was_observed_is_remembered_from_look_to_look() {
        let mut memory = ActivityMemory::default();
        let mut at = |second: i64, requests: u64| {
            let mut look = look(requests);
            let moment = LookTime {
                boot: "boot".into(),
                boot_ns: second * SECOND,
                wall_ns: second * SECOND,
            };
            memory.add_look(&moment, &mut look);
            let idle = look.survey.containers[0].activity.idle_s();
            assert_eq!(
                look.survey.containers[1].activity.idle_s(),
                None,
                "never observed"
            );
            idle
        };
        assert_eq!(at(100, 7), Some(0));
        assert_eq!(at(160, 7), Some(60));
        assert_eq!(at(220, 8), Some(0), "a request came");
    }
}
