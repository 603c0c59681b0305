//! What a running engine says when it is asked from outside, briefly: whether it is well, and how
//! many requests it has had.

use super::Observation;
use super::containers::{Met, seconds};
use crate::capture::{Probe, RequestedSettings};
use crate::clean::facts::Health;
use crate::container::Runtime;
use crate::container::inspect::Check;
use crate::container::sockets::Listener;
use crate::engine::{self, Engine, ServeJob, prometheus};
use std::time::Duration;
use tokio::time::timeout;

/// An engine that does not answer in this time does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine that is process 1 of a container.
fn serving(met: &Met) -> Option<&'static dyn Engine> {
    let (engine, seen) = engine::recognise(&met.facts)?;
    seen.serving.then_some(engine)
}

fn port(engine: &dyn Engine, met: &Met) -> u16 {
    let told = engine.settings(&met.facts).port;
    told.unwrap_or(engine.default_port())
}

/// The path that answers 200 once an engine serves.
fn health_path(engine: &dyn Engine) -> &'static str {
    let job = ServeJob {
        model: "",
        port: engine.default_port(),
        settings: &RequestedSettings::default(),
        extra_engine_args: &[],
    };
    engine.serve(&job).health_path
}

/// How the engine in a running container is. One that is up for less than `starting` is not asked.
pub async fn health(runtime: &Runtime, met: &Met, now_ns: i64, starting: Duration) -> Health {
    let up = met.facts.state.started_ns;
    let up = up.and_then(|since| seconds(now_ns, since));
    if let Some(check) = met.check {
        return by_check(check, up, now_ns);
    }
    let (Some(engine), Some(up)) = (serving(met), up) else {
        return Health::Unknown;
    };
    if up < starting.as_secs() {
        return Health::Starting;
    }
    let port = port(engine, met);
    // On a shared network it may be a neighbour who answers.
    let listener = tokio::task::block_in_place(|| runtime.listener(&met.facts, port));
    if listener == Listener::Other || !runtime.has_outside_route(&met.facts, port) {
        return Health::Unknown;
    }
    let asked = runtime.get_outside(&met.facts, port, health_path(engine));
    let status = timeout(PATIENCE, asked).await.ok().and_then(|r| r.status);
    by_answer(status, up)
}

/// What Docker's own check says.
fn by_check(check: Check, up: Option<u64>, now_ns: i64) -> Health {
    match check {
        Check::Starting => Health::Starting,
        Check::Healthy => Health::Well,
        Check::Unhealthy { since_ns } => {
            let since = since_ns.and_then(|since| seconds(now_ns, since));
            match since.or(up) {
                Some(for_s) => Health::Ill { for_s },
                None => Health::Unknown,
            }
        }
    }
}

/// What the status of an answer says of an engine that is up for `up` seconds. One that wants a key
/// or knows no such path answers all the same.
fn by_answer(status: Option<u16>, up: u64) -> Health {
    match status {
        Some(0..500) => Health::Well,
        _ => Health::Ill { for_s: up },
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
    if let Ok(reply) = asked.await
        && reply.status == Some(200)
    {
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
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_kind_is_life_and_a_servers_fault_is_not() {
        for (status, well) in [
            (Some(200), true),
            (Some(401), true),
            (Some(404), true),
            (Some(500), false),
            (Some(503), false),
            (None, false),
        ] {
            let expected = match well {
                true => Health::Well,
                false => Health::Ill { for_s: 90 },
            };
            assert_eq!(by_answer(status, 90), expected, "{status:?}");
        }
    }

    #[test]
    fn dockers_own_check_is_believed() {
        let since_ns = Some(40_000_000_000);
        let now = 100_000_000_000;
        let failing = Check::Unhealthy { since_ns };
        assert_eq!(by_check(failing, Some(7), now), Health::Ill { for_s: 60 });
        let failing = Check::Unhealthy { since_ns: None };
        assert_eq!(by_check(failing, Some(7), now), Health::Ill { for_s: 7 });
        assert_eq!(by_check(Check::Healthy, None, now), Health::Well);
        assert_eq!(by_check(Check::Starting, Some(7), now), Health::Starting);
    }

    #[test]
    fn every_engine_says_where_its_health_is() {
        for engine in engine::ALL {
            let path = health_path(*engine);
            assert!(path.starts_with('/'), "{}: {path}", engine.name());
        }
    }
}
