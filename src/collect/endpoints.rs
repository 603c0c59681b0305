//! Reads a serving engine's endpoints: once for its facts, periodically for its gauges.

use super::recorder::Recorder;
use crate::capture::{ContainerFacts, EngineGauges, Probe};
use crate::clock::Clock;
use crate::container::Runtime;
use crate::engine::EngineId;
use crate::redact::Redactor;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Default interval between two readings of the gauges.
pub const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// Address of an engine, and its API key.
#[derive(Clone)]
pub struct EngineEndpoint {
    /// The container.
    pub facts: ContainerFacts,
    /// Port inside the container.
    pub port: u16,
    /// The engine's API key. Never stored.
    pub key: Option<String>,
}

/// Reads every endpoint of the engine once: the first finds the route, the others follow
/// concurrently.
pub async fn probe_endpoints(
    runtime: &Runtime,
    engine: EngineId,
    door: &EngineEndpoint,
    clock: &Clock,
    redactor: &Redactor,
) -> Vec<Probe> {
    let one = |path: &'static str| ask_one(runtime, door, path, clock, redactor);
    let mut paths = engine.endpoints.iter().copied();
    let mut probes = Vec::new();
    if let Some(first) = paths.next() {
        probes.push(one(first).await);
    }
    probes.extend(join_all(paths.map(one)).await);
    probes
}

async fn ask_one(
    runtime: &Runtime,
    door: &EngineEndpoint,
    path: &str,
    clock: &Clock,
    redactor: &Redactor,
) -> Probe {
    let reply = runtime
        .get_inside(&door.facts, door.port, path, door.key.as_deref())
        .await;
    let probe = reply.into_probe(path, clock.now());
    Probe {
        body: redactor.redact_text(&probe.body).into_owned(),
        error: (probe.error.as_ref()).map(|e| redactor.redact_text(e).into_owned()),
        ..probe
    }
}

/// Reads the gauges at this interval until cancelled. An engine without metrics yields none.
pub async fn watch_gauges(
    runtime: Runtime,
    engine: EngineId,
    door: EngineEndpoint,
    every: Duration,
    recorder: Arc<Recorder>,
    cancel: CancellationToken,
) -> Vec<EngineGauges> {
    let mut gauges = Vec::new();
    let Some(path) = engine.gauges_endpoint() else {
        return gauges;
    };
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return gauges,
            _ = ticks.tick() => {}
        }
        let probe = tokio::select! {
            () = cancel.cancelled() => return gauges,
            probe = ask_one(&runtime, &door, path, &recorder.clock, &recorder.redactor) => probe,
        };
        if probe.status != Some(200) {
            continue;
        }
        let at_ns = probe.at_ns;
        let facts = (engine.read_probes)(&[probe]);
        gauges.push(EngineGauges {
            at_ns,
            kv_cache_usage: facts.kv_cache_usage,
            requests_running: facts.requests_running,
            requests_waiting: facts.requests_waiting,
            preemptions: facts.preemptions,
        });
    }
}
