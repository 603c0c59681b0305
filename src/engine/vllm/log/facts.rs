//! From readings to facts: which are one figure, which are one per rank.

use super::readings::Reading;
use super::run::Run;
use crate::engine::facts::{Fact, FactValue};
use std::collections::BTreeMap;

/// Figures of each rank: several readings make a list, in rank order where the ranks are named.
const PER_RANK: &[&str] = &[
    "weights_gib",
    "weights_gib_in_summary_line",
    "kv_cache_gib",
    "kv_cache_tokens",
    "max_concurrency",
    "activation_peak_gib",
    "non_torch_gib",
    "consumed_gib",
    "non_kv_cache_gib",
    "peak_torch_memory_gib",
    "peak_memory_gib",
    "cuda_graph_gib",
    "cuda_graph_gib_in_summary_line",
];

/// Lines quoted for one list: the ranks of eight nodes.
const MOST_QUOTES: usize = 64;

/// Readings that only stand in for a figure that was not printed by itself.
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

/// Stand-ins that are no facts of their own.
const INTERNAL: &[&str] = &[
    "cuda_graph_estimated_gib_in_pool_line",
    "kv_cache_gib_in_error",
    "kv_cache_tokens_in_error",
    "total_gpu_memory_gib_in_error",
];

/// The facts of a start.
pub fn of(run: &Run) -> BTreeMap<String, Fact> {
    let mut facts = BTreeMap::new();
    for (key, fact) in run.settings.facts() {
        facts.insert(key.to_owned(), fact.clone());
    }
    for key in run.readings.keys() {
        add(&mut facts, key, &run.readings.of(key));
    }
    for (from, to) in STAND_INS {
        let readings = run.readings.of(from);
        if run.readings.of(to).is_empty() && !readings.is_empty() {
            // An error and its tracebacks repeat one figure.
            let readings = if from.ends_with("_in_error") {
                &readings[..1]
            } else {
                &readings[..]
            };
            add(&mut facts, to, readings);
        }
    }
    for key in INTERNAL {
        facts.remove(*key);
    }
    pools(run, &mut facts);
    folded_ranks(run, &mut facts);
    trouble(run, &mut facts);
    if let Some((_, fact)) = &run.peak_usage {
        facts.insert("kv_cache_usage_peak_pct".to_owned(), fact.clone());
    }
    if let Some((_, first)) = run.smi.first() {
        let fact = Fact {
            value: FactValue::List(run.smi.iter().map(|(used, _)| *used).collect()),
            quote: run.smi.iter().flat_map(|(_, f)| f.quote.clone()).collect(),
            at_ns: first.at_ns,
        };
        facts.insert("nvidia_smi_used_mib_per_gpu".to_owned(), fact);
    }
    facts
}

fn add(facts: &mut BTreeMap<String, Fact>, key: &str, readings: &[&Reading]) {
    let Some(first) = readings.first() else {
        return;
    };
    let values: Vec<f64> = readings.iter().map(|r| r.value).collect();
    let agree = values.iter().all(|v| v == &first.value);
    if values.len() > 1 && (PER_RANK.contains(&key) || !agree) {
        facts.insert(key.to_owned(), listed(readings));
    } else {
        facts.insert(key.to_owned(), fact(single(first), first));
    }
    // One figure for the run, and who printed it: both are asked for.
    if values.len() > 1
        && matches!(
            key,
            "cuda_graph_estimated_gib" | "cuda_graph_pool_actual_gib"
        )
    {
        facts.insert(format!("{key}_per_rank"), listed(readings));
    }
}

fn single(reading: &Reading) -> FactValue {
    if reading.whole {
        FactValue::Int(reading.value as i64)
    } else {
        FactValue::Float(reading.value)
    }
}

fn fact(value: FactValue, reading: &Reading) -> Fact {
    Fact {
        value,
        quote: vec![reading.quote.clone()],
        at_ns: reading.at,
    }
}

/// All of them, each with its line.
fn listed(readings: &[&Reading]) -> Fact {
    Fact {
        value: FactValue::List(readings.iter().map(|r| r.value).collect()),
        quote: readings
            .iter()
            .take(MOST_QUOTES)
            .map(|r| r.quote.clone())
            .collect(),
        at_ns: readings.first().and_then(|r| r.at),
    }
}

/// The pool that can be used: the smallest over the ranks of one engine, and one for each
/// data-parallel engine. These add up; the readings of ranks do not.
fn pools(run: &Run, facts: &mut BTreeMap<String, Fact>) {
    for (from, to) in [
        ("kv_cache_tokens", "kv_pool_tokens"),
        ("kv_cache_gib", "kv_pool_gib"),
        ("num_gpu_blocks", "kv_pool_blocks"),
        ("num_device_blocks", "kv_pool_blocks"),
    ] {
        let mut smallest: BTreeMap<u32, &Reading> = BTreeMap::new();
        for reading in run.readings.of(from) {
            let place = smallest.entry(reading.origin.engine()).or_insert(reading);
            if reading.value < place.value {
                *place = reading;
            }
        }
        let Some(first) = smallest.values().next() else {
            continue;
        };
        let fact = if smallest.len() > 1 {
            let readings: Vec<&Reading> = smallest.values().copied().collect();
            listed(&readings)
        } else {
            fact(single(first), first)
        };
        facts.insert(to.to_owned(), fact);
    }
}

/// Ray prints equal lines of several workers as one: how many ranks the weights were loaded on.
fn folded_ranks(run: &Run, facts: &mut BTreeMap<String, Fact>) {
    let readings = run.readings.of("weights_gib");
    if let Some(folded) = readings.iter().find(|r| r.stands_for > 1) {
        let ranks: u32 = readings
            .iter()
            .map(|r| r.stands_for)
            .fold(0, u32::saturating_add);
        facts.insert(
            "weights_print_count_true".to_owned(),
            fact(FactValue::Int(i64::from(ranks)), folded),
        );
    }
}

fn trouble(run: &Run, facts: &mut BTreeMap<String, Fact>) {
    let lack = run.trouble.lack_of_memory();
    let shown = lack.map(|w| (true, w.quote.clone(), w.at));
    let shown = shown.or_else(|| run.enough_memory().map(|(quote, at)| (false, quote, at)));
    if let Some((oom, quote, at_ns)) = shown {
        let fact = Fact {
            value: FactValue::Bool(oom),
            quote: vec![quote],
            at_ns,
        };
        facts.insert("oom".to_owned(), fact);
    }
    if let (Some((sizes, phase)), Some(witness)) = (&run.lack, lack) {
        for (key, fact) in sizes.facts() {
            facts.entry(key.clone()).or_insert_with(|| fact.clone());
        }
        let fact = Fact {
            value: FactValue::Text((*phase).to_owned()),
            quote: vec![witness.quote.clone()],
            at_ns: witness.at,
        };
        facts.insert("oom_phase".to_owned(), fact);
    }
    if let Some((failure, witness)) = run.trouble.failure() {
        let fact = Fact {
            value: FactValue::Text(failure),
            quote: vec![witness.quote.clone()],
            at_ns: witness.at,
        };
        facts.insert("failure".to_owned(), fact);
    }
    if let Some((count, witness)) = &run.trouble.preemptions_counted {
        let value = FactValue::Int(i64::try_from(*count).unwrap_or(i64::MAX));
        let fact = Fact {
            value,
            quote: vec![witness.quote.clone()],
            at_ns: witness.at,
        };
        facts.insert("preemptions_cumulative".to_owned(), fact);
    }
}
