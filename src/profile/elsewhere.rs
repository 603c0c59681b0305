//! Memory that an engine reports and that is not in its peak on the GPU: caches on the host, weights of another process, what
//! it gave up when it went to sleep.

use super::configuration::bytes_of_gib;
use super::observation::CaptureObservation;
use super::ranks::sum_of_parts;
use crate::engine::facts::{FactKey, Finding, Severity, key};
use crate::units::signed_text;

/// A figure of the log, whether each rank has as much, the finding's code, and where the memory is.
struct Owner(FactKey, bool, &'static str, &'static str);

const OWNERS: [Owner; 6] = [
    Owner(
        key::external_weights_gib,
        true,
        "weights_of_another_process",
        "of weights are held by another process (`vllm preload`) and mapped: they are baseline where it runs in another container, and unexplained where it runs in this one",
    ),
    Owner(
        key::kv_offload_gib,
        true,
        "kv_cache_on_host",
        "of KV cache are offloaded to the host's memory, beside the pool on the GPU",
    ),
    Owner(
        key::kv_offload_shared_gib,
        false,
        "kv_cache_on_host",
        "of KV cache are offloaded to shared memory of the host, beside the pool on the GPU",
    ),
    Owner(
        key::hicache_host_gib,
        true,
        "kv_cache_on_host",
        "of the host's memory are the hierarchical cache (HiCache), beside the pool on the GPU",
    ),
    Owner(
        key::lmcache_host_gib,
        true,
        "kv_cache_on_host",
        "of the host's memory may be taken by LMCache, beside the pool on the GPU",
    ),
    Owner(
        key::sleep_on_host_gib,
        true,
        "engine_slept",
        "were moved to the host's memory when the engine last went to sleep",
    ),
];

/// Whether the engine slept when it was asked: the weights and the pool of its log are not on the GPU then.
pub(super) fn is_asleep(o: &CaptureObservation<'_>) -> bool {
    let state = o.probes.values.get("engine_sleep_state");
    state.is_some_and(|state| state != "awake")
}

/// Names each of them that the log reports.
pub(super) fn find_memory_elsewhere(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let ranks = o.engine_ranks();
    for Owner(key, each_rank, code, place) in &OWNERS {
        let Some(fact) = o.log.fact(*key) else {
            continue;
        };
        let value = sum_of_parts(&fact.value);
        let gib = match each_rank {
            true => ranks.total_over_ranks(&value),
            false => value.number(),
        };
        if let Some(gib) = gib.filter(|gib| *gib > 0.0) {
            let bytes = bytes_of_gib(gib).unwrap_or_default();
            let message = format!("{} {place}", signed_text(bytes.into()));
            findings.push(Finding {
                quote: fact.quote.first().cloned(),
                ..Finding::new(code, Severity::Info, message)
            });
        }
    }
    if is_asleep(o) {
        findings.push(Finding::new_warning(
            "engine_asleep",
            "the engine was asleep (sleep mode) when it was measured: weights and KV pool that its log reports are not counted, and what is in use is unexplained",
        ));
    }
}
