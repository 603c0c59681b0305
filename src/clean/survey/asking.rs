//! Asks a running engine from outside, briefly: whether it is well, and how many requests it has
//! had.

use super::Observation;
use super::containers::{Met, seconds};
use crate::capture::{Probe, RequestedSettings};
use crate::clean::facts::Health;
use crate::container::Runtime;
use crate::container::inspect::Check;
use crate::container::sockets::Listener;
use crate::engine::{self, EngineId, ServeJob, prometheus};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// An engine that does not answer in this time does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine that is process 1 of a container.
fn serving(met: &Met) -> Option<EngineId> {
    let (engine, seen) = engine::recognise(&met.facts)?;
    seen.serving.then_some(engine)
}

fn port(engine: EngineId, met: &Met) -> u16 {
    let told = engine.settings(&met.facts).port;
    told.unwrap_or(engine.default_port())
}

/// The path that answers 200 once an engine serves.
fn health_path(engine: EngineId) -> &'static str {
    let job = ServeJob {
        model: "",
        port: engine.default_port(),
        settings: &RequestedSettings::default(),
        extra_engine_args: &[],
    };
    engine.serve(&job).health_path
}

/// Observed state of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is so.
    Is(Health),
    /// It did not answer. One look proves nothing: the duration follows from several.
    Silent,
}

/// A container's id and when it was started: one life of it.
pub type Life = (String, Option<i64>);

/// States of engines at earlier looks of this process.
#[derive(Debug, Default)]
pub struct Memory {
    /// The last look at which it was well.
    well: HashMap<Life, Instant>,
    /// The first of the looks at which it was silent, in a row.
    silent: HashMap<Life, Instant>,
}

impl Memory {
    /// Adds the states of all engines at one look, and returns the health of each by container id.
    pub fn note(&mut self, told: Vec<(Life, Told)>, now: Instant) -> BTreeMap<String, Health> {
        let before = std::mem::take(self);
        let mut healths = BTreeMap::new();
        for (life, told) in told {
            let well = before.well.get(&life).copied();
            let health = match told {
                Told::Silent => {
                    let since = before.silent.get(&life).copied().unwrap_or(now);
                    self.silent.insert(life.clone(), since);
                    let for_s = now.saturating_duration_since(since).as_secs();
                    Health::Ill { for_s }
                }
                Told::Is(Health::Ill { for_s }) => {
                    let most = well.map(|at| now.saturating_duration_since(at).as_secs());
                    let for_s = most.map_or(for_s, |most| for_s.min(most));
                    Health::Ill { for_s }
                }
                Told::Is(health) => health,
            };
            match health {
                Health::Well => drop(self.well.insert(life.clone(), now)),
                Health::Ill { .. } => {
                    if let Some(at) = well {
                        self.well.insert(life.clone(), at);
                    }
                }
                Health::Starting | Health::Unknown => {}
            }
            healths.insert(life.0, health);
        }
        healths
    }
}

/// How the engine in a running container is. One that is up for less than `starting` is not asked.
pub async fn health(runtime: &Runtime, met: &Met, now_ns: i64, starting: Duration) -> Told {
    let up = met.facts.state.started_ns;
    let up = up.and_then(|since| seconds(now_ns, since));
    if let Some(check) = met.check {
        return by_check(check, now_ns);
    }
    let (Some(engine), Some(up)) = (serving(met), up) else {
        return Told::Is(Health::Unknown);
    };
    if up < starting.as_secs() {
        return Told::Is(Health::Starting);
    }
    let port = port(engine, met);
    // On a shared network it may be a neighbour who answers.
    let listener = tokio::task::block_in_place(|| runtime.listener(&met.facts, port));
    if listener == Listener::Other || !runtime.has_outside_route(&met.facts, port) {
        return Told::Is(Health::Unknown);
    }
    let asked = runtime.get_outside(&met.facts, port, health_path(engine));
    by_answer(timeout(PATIENCE, asked).await.ok().and_then(|r| r.status))
}

/// State by Docker's own health check.
fn by_check(check: Check, now_ns: i64) -> Told {
    match check {
        Check::Starting => Told::Is(Health::Starting),
        Check::Healthy => Told::Is(Health::Well),
        Check::Unhealthy { since_ns } => {
            let for_s = since_ns.and_then(|since| seconds(now_ns, since));
            for_s.map_or(Told::Silent, |for_s| Told::Is(Health::Ill { for_s }))
        }
    }
}

/// State by the status of a response. An engine that wants a key or does not know the path has
/// answered; 503 means that it still loads its model.
fn by_answer(status: Option<u16>) -> Told {
    match status {
        Some(503) => Told::Is(Health::Starting),
        Some(0..500) => Told::Is(Health::Well),
        _ => Told::Silent,
    }
}

/// What shows whether a running container does anything. `busy`: of its GPUs, percent.
pub async fn observe(runtime: &Runtime, met: &Met, busy: Option<u32>, ill: bool) -> Observation {
    let mut seen = Observation {
        container: met.facts.id.clone(),
        started_ns: met.facts.state.started_ns,
        gpu_busy_pct: busy,
        ..Observation::default()
    };
    let last = timeout(PATIENCE, runtime.log_last(&met.facts));
    seen.last_log_ns = last.await.ok().flatten();
    let Some(engine) = serving(met).filter(|_| !ill) else {
        return seen;
    };
    let Some(path) = engine.gauges_endpoint() else {
        return seen;
    };
    let port = port(engine, met);
    let listener = tokio::task::block_in_place(|| runtime.listener(&met.facts, port));
    if listener == Listener::Other {
        return seen;
    }
    let asked = timeout(PATIENCE, runtime.get_outside(&met.facts, port, path));
    if let Ok(reply) = asked.await {
        if reply.status == Some(200) {
            seen.requests_total = prometheus::requests_total(&reply.body);
            let probe = Probe {
                path: path.to_owned(),
                route: reply.route,
                status: reply.status,
                body: reply.body,
                ..Probe::default()
            };
            seen.requests_running = engine.read_probes(&[probe]).requests_running;
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_kind_is_life_and_one_that_loads_is_not_ill() {
        for (status, told) in [
            (Some(200), Told::Is(Health::Well)),
            (Some(401), Told::Is(Health::Well)),
            (Some(404), Told::Is(Health::Well)),
            (Some(503), Told::Is(Health::Starting)),
            (Some(500), Told::Silent),
            (None, Told::Silent),
        ] {
            assert_eq!(by_answer(status), told, "{status:?}");
        }
    }

    #[test]
    fn dockers_own_check_is_believed() {
        let since_ns = Some(40_000_000_000);
        let now = 100_000_000_000;
        let failing = Check::Unhealthy { since_ns };
        let ill = Told::Is(Health::Ill { for_s: 60 });
        assert_eq!(by_check(failing, now), ill);
        let failing = Check::Unhealthy { since_ns: None };
        assert_eq!(by_check(failing, now), Told::Silent);
        assert_eq!(by_check(Check::Healthy, now), Told::Is(Health::Well));
        assert_eq!(by_check(Check::Starting, now), Told::Is(Health::Starting));
    }

    /// What came of looks at one engine, each at so many seconds.
    fn looks(all: &[(u64, Option<Told>)]) -> Vec<Option<Health>> {
        let begin = Instant::now();
        let mut memory = Memory::default();
        let each = all.iter().map(|(s, told)| {
            let told = told.map(|told| (("a".to_owned(), Some(1)), told));
            let seen = memory.note(told.into_iter().collect(), begin + Duration::from_secs(*s));
            seen.get("a").copied()
        });
        each.collect()
    }

    #[test]
    fn silence_counts_from_the_look_that_first_met_it() {
        let ill = |for_s| Some(Health::Ill { for_s });
        let (silent, well) = (Some(Told::Silent), Some(Told::Is(Health::Well)));
        assert_eq!(looks(&[(9000, silent)]), [ill(0)]);
        let seen = looks(&[(0, silent), (30, silent), (700, silent)]);
        assert_eq!(seen, [ill(0), ill(30), ill(700)]);
        // Any word in between ends it, and so does a look that could not ask.
        for between in [
            well,
            Some(Told::Is(Health::Starting)),
            Some(Told::Is(Health::Unknown)),
            None,
        ] {
            let seen = looks(&[(0, silent), (30, between), (700, silent), (710, silent)]);
            assert_eq!(seen[2..], [ill(0), ill(10)], "{between:?}");
        }
    }

    #[test]
    fn silence_of_a_life_before_does_not_count() {
        let begin = Instant::now();
        let mut memory = Memory::default();
        let mut look = |started: i64, s: u64| {
            let told = vec![(("a".to_owned(), Some(started)), Told::Silent)];
            memory.note(told, begin + Duration::from_secs(s))["a"]
        };
        assert_eq!(look(1, 0), Health::Ill { for_s: 0 });
        assert_eq!(look(2, 900), Health::Ill { for_s: 0 });
    }

    #[test]
    fn who_was_well_is_ill_for_no_longer_than_since_then() {
        let ill = |for_s| Some(Health::Ill { for_s });
        let check = |for_s| Some(Told::Is(Health::Ill { for_s }));
        let well = Some(Told::Is(Health::Well));
        // The clock that Docker's log is told by was set forward.
        let seen = looks(&[(0, well), (30, check(4000)), (60, check(4030))]);
        assert_eq!(seen[1..], [ill(30), ill(60)]);
        assert_eq!(looks(&[(0, check(4000))]), [ill(4000)]);
    }

    #[test]
    fn every_engine_says_where_its_health_is() {
        for engine in EngineId::ALL {
            let path = health_path(*engine);
            assert!(path.starts_with('/'), "{}: {path}", engine.name());
        }
    }
}
