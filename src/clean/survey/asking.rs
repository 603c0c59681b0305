//! Asks a running engine from outside, briefly: whether it is well, and how many requests it has
//! had.

use super::containers::{ContainerDetails, seconds_since};
use crate::clean::facts::EngineHealth;
use crate::clean::history::ObservedContainer;
use crate::container::Runtime;
use crate::container::inspect::HealthStatus;
use crate::container::sockets::Listener;
use crate::engine::{self, EngineId, prometheus};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// An engine that does not answer in this time does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine that is process 1 of a container.
fn serving_engine(container: &ContainerDetails) -> Option<EngineId> {
    let (engine, recognition) = engine::recognise(&container.found.facts)?;
    recognition.serving.then_some(engine)
}

/// Its engine's port, unless another container answers there: on a shared network it may be a neighbour.
fn own_port(runtime: &Runtime, container: &ContainerDetails, engine: EngineId) -> Option<u16> {
    let facts = &container.found.facts;
    let port = ((engine.settings)(facts).port).unwrap_or(engine.default_port);
    let listener = tokio::task::block_in_place(|| runtime.port_listener(facts, port));
    (listener != Listener::Other).then_some(port)
}

/// Observed state of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineState {
    /// It is so.
    Is(EngineHealth),
    /// It did not answer. One look proves nothing: the duration follows from several.
    Silent,
}

/// A container's id and when it was started: one life of it.
pub type Life = (String, Option<i64>);

/// States of engines at earlier looks of this process.
#[derive(Debug, Default)]
pub struct HealthMemory {
    /// The last look at which it was well.
    well: HashMap<Life, Instant>,
    /// The first of the looks at which it was silent, in a row.
    silent: HashMap<Life, Instant>,
}

impl HealthMemory {
    /// Adds the states of all engines at one look, and returns the health of each by container id.
    pub fn note_states(
        &mut self,
        states: Vec<(Life, EngineState)>,
        now: Instant,
    ) -> BTreeMap<String, EngineHealth> {
        let before = std::mem::take(self);
        let mut healths = BTreeMap::new();
        for (life, state) in states {
            let well = before.well.get(&life).copied();
            let health = match state {
                EngineState::Silent => {
                    let since = before.silent.get(&life).copied().unwrap_or(now);
                    self.silent.insert(life.clone(), since);
                    let for_s = now.saturating_duration_since(since).as_secs();
                    EngineHealth::Ill { for_s }
                }
                EngineState::Is(EngineHealth::Ill { for_s }) => {
                    let most = well.map(|at| now.saturating_duration_since(at).as_secs());
                    let for_s = most.map_or(for_s, |most| for_s.min(most));
                    EngineHealth::Ill { for_s }
                }
                EngineState::Is(health) => health,
            };
            match health {
                EngineHealth::Well => drop(self.well.insert(life.clone(), now)),
                EngineHealth::Ill { .. } => {
                    if let Some(at) = well {
                        self.well.insert(life.clone(), at);
                    }
                }
                EngineHealth::Starting | EngineHealth::Unknown => {}
            }
            healths.insert(life.0, health);
        }
        healths
    }
}

/// How the engine in a running container is. One that is up for less than `starting` is not asked.
pub async fn engine_health(
    runtime: &Runtime,
    container: &ContainerDetails,
    now_ns: i64,
    starting: Duration,
) -> EngineState {
    let up = container.found.facts.state.started_ns;
    let up = up.and_then(|since| seconds_since(now_ns, since));
    if let Some(check) = container.found.check {
        return by_check(check, now_ns);
    }
    let (Some(engine), Some(up)) = (serving_engine(container), up) else {
        return EngineState::Is(EngineHealth::Unknown);
    };
    if up < starting.as_secs() {
        return EngineState::Is(EngineHealth::Starting);
    }
    let port = own_port(runtime, container, engine);
    let Some(port) = port.filter(|p| runtime.has_outside_route(&container.found.facts, *p)) else {
        return EngineState::Is(EngineHealth::Unknown);
    };
    let asked = runtime.get_outside(&container.found.facts, port, engine.health_path);
    by_answer(timeout(PATIENCE, asked).await.ok().and_then(|r| r.status))
}

/// State by Docker's own health check.
fn by_check(check: HealthStatus, now_ns: i64) -> EngineState {
    match check {
        HealthStatus::Starting => EngineState::Is(EngineHealth::Starting),
        HealthStatus::Healthy => EngineState::Is(EngineHealth::Well),
        HealthStatus::Unhealthy { since_ns } => {
            let for_s = since_ns.and_then(|since| seconds_since(now_ns, since));
            for_s.map_or(EngineState::Silent, |for_s| {
                EngineState::Is(EngineHealth::Ill { for_s })
            })
        }
    }
}

/// State by the status of a response. An engine that wants a key or does not know the path has
/// answered; 503 means that it still loads its model.
fn by_answer(status: Option<u16>) -> EngineState {
    match status {
        Some(503) => EngineState::Is(EngineHealth::Starting),
        Some(0..500) => EngineState::Is(EngineHealth::Well),
        _ => EngineState::Silent,
    }
}

/// What shows whether a running container does anything. `busy`: of its GPUs, percent.
pub async fn observe_container(
    runtime: &Runtime,
    container: &ContainerDetails,
    busy: Option<u32>,
    ill: bool,
) -> ObservedContainer {
    let mut observation = ObservedContainer {
        id: container.found.facts.id.clone(),
        started_ns: container.found.facts.state.started_ns,
        gpu_percent: busy,
        ..ObservedContainer::default()
    };
    let last = timeout(PATIENCE, runtime.log_last(&container.found.facts));
    observation.last_log_ns = last.await.ok().flatten();
    let Some(engine) = serving_engine(container).filter(|_| !ill) else {
        return observation;
    };
    let Some(path) = engine.gauges_endpoint() else {
        return observation;
    };
    let Some(port) = own_port(runtime, container, engine) else {
        return observation;
    };
    let asked = timeout(
        PATIENCE,
        runtime.get_outside(&container.found.facts, port, path),
    );
    if let Ok(reply) = asked.await {
        if reply.status == Some(200) {
            observation.requests = prometheus::requests_total(&reply.body);
            let probes = [reply.into_probe(path, 0)];
            observation.requests_now = (engine.read_probes)(&probes).requests_running;
        }
    }
    observation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_kind_is_life_and_one_that_loads_is_not_ill() {
        for (status, state) in [
            (Some(200), EngineState::Is(EngineHealth::Well)),
            (Some(401), EngineState::Is(EngineHealth::Well)),
            (Some(404), EngineState::Is(EngineHealth::Well)),
            (Some(503), EngineState::Is(EngineHealth::Starting)),
            (Some(500), EngineState::Silent),
            (None, EngineState::Silent),
        ] {
            assert_eq!(by_answer(status), state, "{status:?}");
        }
    }

    #[test]
    fn dockers_own_check_is_believed() {
        let since_ns = Some(40_000_000_000);
        let now = 100_000_000_000;
        let failing = HealthStatus::Unhealthy { since_ns };
        let ill = EngineState::Is(EngineHealth::Ill { for_s: 60 });
        assert_eq!(by_check(failing, now), ill);
        let failing = HealthStatus::Unhealthy { since_ns: None };
        assert_eq!(by_check(failing, now), EngineState::Silent);
        assert_eq!(
            by_check(HealthStatus::Healthy, now),
            EngineState::Is(EngineHealth::Well)
        );
        assert_eq!(
            by_check(HealthStatus::Starting, now),
            EngineState::Is(EngineHealth::Starting)
        );
    }

    /// What came of looks at one engine, each at so many seconds.
    fn looks(all: &[(u64, Option<EngineState>)]) -> Vec<Option<EngineHealth>> {
        let begin = Instant::now();
        let mut memory = HealthMemory::default();
        let each = all.iter().map(|(s, state)| {
            let states = state.map(|state| (("a".to_owned(), Some(1)), state));
            let states = states.into_iter().collect();
            let healths = memory.note_states(states, begin + Duration::from_secs(*s));
            healths.get("a").copied()
        });
        each.collect()
    }

    #[test]
    fn silence_counts_from_the_first_silent_look() {
        let ill = |for_s| Some(EngineHealth::Ill { for_s });
        let (silent, well) = (
            Some(EngineState::Silent),
            Some(EngineState::Is(EngineHealth::Well)),
        );
        assert_eq!(looks(&[(9000, silent)]), [ill(0)]);
        let healths = looks(&[(0, silent), (30, silent), (700, silent)]);
        assert_eq!(healths, [ill(0), ill(30), ill(700)]);
        // Any word in between ends it, and so does a look that could not ask.
        for between in [
            well,
            Some(EngineState::Is(EngineHealth::Starting)),
            Some(EngineState::Is(EngineHealth::Unknown)),
            None,
        ] {
            let healths = looks(&[(0, silent), (30, between), (700, silent), (710, silent)]);
            assert_eq!(healths[2..], [ill(0), ill(10)], "{between:?}");
        }
    }

    #[test]
    fn silence_of_a_life_before_does_not_count() {
        let begin = Instant::now();
        let mut memory = HealthMemory::default();
        let mut look = |started: i64, s: u64| {
            let states = vec![(("a".to_owned(), Some(started)), EngineState::Silent)];
            memory.note_states(states, begin + Duration::from_secs(s))["a"]
        };
        assert_eq!(look(1, 0), EngineHealth::Ill { for_s: 0 });
        assert_eq!(look(2, 900), EngineHealth::Ill { for_s: 0 });
    }

    #[test]
    fn who_was_well_is_ill_for_no_longer_than_since_then() {
        let ill = |for_s| Some(EngineHealth::Ill { for_s });
        let check = |for_s| Some(EngineState::Is(EngineHealth::Ill { for_s }));
        let well = Some(EngineState::Is(EngineHealth::Well));
        // The clock of Docker's log was set forward.
        let healths = looks(&[(0, well), (30, check(4000)), (60, check(4030))]);
        assert_eq!(healths[1..], [ill(30), ill(60)]);
        assert_eq!(looks(&[(0, check(4000))]), [ill(4000)]);
    }

    #[test]
    fn every_engine_names_its_health_endpoint() {
        for engine in EngineId::ALL {
            let path = engine.health_path;
            assert!(path.starts_with('/'), "{}: {path}", engine.name);
        }
    }
}
