//! From readings to facts: which are one figure, which are one per rank.

use super::VllmLog;
use super::readings::{Reading, listed};
use crate::capture::AtNs;
use crate::engine::facts::{EngineStep, Fact, FactValue};
use crate::engine::log::sheet::Sheet;
use std::collections::BTreeMap;

/// Readings that replace a figure that was not printed by itself.
const STAND_INS: &[(&str, &str)] = &[
    ("weights_gib_in_summary_line", "weights_gib"),
    (
        "cuda_graph_estimated_gib_in_pool_line",
        "cuda_graph_estimated_gib",
    ),
    ("kv_cache_gib_in_error", "kv_cache_gib"),
    ("total_gpu_memory_gib_in_error", "total_gpu_memory_gib"),
    ("kv_cache_tokens_in_error", "kv_cache_tokens"),
];

/// Figures of the whole engine that also have a list of the ranks' figures.
const ALSO_PER_RANK: [(&str, &str); 2] = [
    (
        "cuda_graph_estimated_gib",
        "cuda_graph_estimated_gib_per_rank",
    ),
    (
        "cuda_graph_pool_actual_gib",
        "cuda_graph_pool_actual_gib_per_rank",
    ),
];

/// The pools of ranks, and the pool that can be used.
const POOLS: [(&str, &str); 4] = [
    ("kv_cache_tokens", "kv_pool_tokens"),
    ("kv_cache_gib", "kv_pool_gib"),
    ("num_gpu_blocks", "kv_pool_blocks"),
    ("num_device_blocks", "kv_pool_blocks"),
];

/// Writes the facts of a start.
pub fn conclude(log: &VllmLog, sheet: &mut Sheet) {
    let mut put = |key: &str, fact: Option<Fact>| {
        if let Some(fact) = fact {
            sheet.conclude(key, fact);
        }
    };
    for (key, fact) in log.settings.facts() {
        put(key, Some(fact.clone()));
    }
    for key in log.readings.keys() {
        // Figures repeated in an error or in the pool's line are not separate facts.
        if !key.ends_with("_in_error") && !key.ends_with("_in_pool_line") {
            put(key, log.readings.fact(key));
        }
    }
    for (from, to) in STAND_INS {
        if log.readings.of(to).is_empty() {
            let fact = match log.readings.of(from).first() {
                // An error and its tracebacks repeat one figure.
                Some(first) if from.ends_with("_in_error") => Some(first.fact(first.value.clone())),
                _ => log.readings.fact(from),
            };
            put(to, fact);
        }
    }
    for (key, per_rank) in ALSO_PER_RANK {
        let stand_in = STAND_INS.iter().find(|(_, to)| *to == key);
        let readings = match (log.readings.of(key), stand_in) {
            (readings, Some((from, _))) if readings.is_empty() => log.readings.of(from),
            (readings, _) => readings,
        };
        put(per_rank, listed(&readings).filter(|_| readings.len() > 1));
    }
    for (from, to) in POOLS {
        put(to, usable_pool(log, from));
    }
    put("weights_print_count_true", folded_ranks(log));
    trouble(log, sheet);
}

/// The usable pool: the smallest over the ranks of one engine, and one for each data-parallel
/// engine. Pools of data-parallel engines add up; readings of ranks do not.
fn usable_pool(log: &VllmLog, key: &str) -> Option<Fact> {
    let mut smallest: BTreeMap<u32, &Reading> = BTreeMap::new();
    for reading in log.readings.of(key) {
        let place = smallest.entry(reading.origin.engine()).or_insert(reading);
        if reading.number() < place.number() {
            *place = reading;
        }
    }
    let readings: Vec<&Reading> = smallest.into_values().collect();
    match readings.as_slice() {
        [one] => Some(one.fact(one.value.clone())),
        several => listed(several),
    }
}

/// Ray prints equal lines of several workers as one: the number of ranks that loaded the weights.
fn folded_ranks(log: &VllmLog) -> Option<Fact> {
    let readings = log.readings.of("weights_gib");
    let folded = readings.iter().find(|r| r.processes > 1)?;
    let ranks = readings.iter().map(|r| i64::from(r.processes)).sum();
    Some(folded.fact(FactValue::Int(ranks)))
}

fn trouble(log: &VllmLog, sheet: &mut Sheet) {
    let lack = log.trouble.lack_of_memory();
    let shown = lack.map(|w| (true, w.quote.clone(), w.at));
    let shown = shown.or_else(|| enough_memory(log, sheet).map(|(quote, at)| (false, quote, at)));
    let phase = log.lack_phase.filter(|_| lack.is_some());
    let failure = log.trouble.failure();
    let values = [
        shown.map(|(oom, quote, at)| ("oom", FactValue::Bool(oom), quote, at)),
        (phase.zip(lack)).map(|(phase, w)| {
            let phase = FactValue::Text(phase.to_owned());
            ("oom_phase", phase, w.quote.clone(), w.at)
        }),
        failure.map(|(kind, w)| ("failure", FactValue::Text(kind), w.quote.clone(), w.at)),
        (log.trouble.preemptions_counted.as_ref()).map(|(count, w)| {
            let count = FactValue::Int(i64::try_from(*count).unwrap_or(i64::MAX));
            ("preemptions_cumulative", count, w.quote.clone(), w.at)
        }),
    ];
    for (key, value, quote, at_ns) in values.into_iter().flatten() {
        let quote = vec![quote];
        sheet.conclude(
            key,
            Fact {
                value,
                quote,
                at_ns,
            },
        );
    }
}

/// The line that shows that memory sufficed: the latest of readiness, graphs and pool, the
/// statistics of a server, or a failure of another kind. `None` if no line shows it.
fn enough_memory(log: &VllmLog, sheet: &Sheet) -> Option<(String, Option<AtNs>)> {
    use EngineStep::{GraphsCaptured, KvCacheAllocated, Ready};
    if log.trouble.may_lack_memory(sheet.passed(Ready)) {
        return None;
    }
    let taken = [Ready, GraphsCaptured, KvCacheAllocated];
    let mark = taken.iter().find_map(|step| sheet.mark(*step));
    let serving = || {
        let fact = sheet.get("kv_cache_usage_peak_pct")?;
        Some((fact.quote.first()?.clone(), fact.at_ns))
    };
    // The pool's size is printed once it fits into the memory that the profile left.
    let pool = || {
        let keys = ["kv_cache_tokens", "num_gpu_blocks", "num_device_blocks"];
        let mut readings = keys.iter().flat_map(|key| log.readings.of(key));
        let fits = readings.rfind(|r| r.number() > 0.0)?;
        Some((fits.quote.clone(), fits.at))
    };
    let other_failure = || {
        let (_, witness) = log.trouble.failure()?;
        Some((witness.quote.clone(), witness.at))
    };
    mark.map(|m| (m.quote.clone(), m.at_ns))
        .or_else(serving)
        .or_else(pool)
        .or_else(other_failure)
}
