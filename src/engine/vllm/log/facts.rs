//! What a start of the engine shows: facts (one figure, or one per rank) and findings.

use super::VllmLog;
use super::readings::{Reading, listed};
use crate::capture::AtNs;
use crate::engine::facts::{
    DEFAULT_UTILIZATION, EngineStep, Fact, FactKey, FactValue, Finding, Severity, key,
};
use crate::engine::log::Messages;
use crate::engine::log::sheet::Sheet;
use crate::engine::vllm::default_utilization_of;
use crate::units::GIB;
use std::collections::BTreeMap;

/// Readings that replace a figure that was not printed by itself.
const STAND_INS: &[(FactKey, FactKey)] = &[
    (key::weights_gib_in_summary_line, key::weights_gib),
    (
        key::cuda_graph_estimated_gib_in_pool_line,
        key::cuda_graph_estimated_gib,
    ),
    (key::kv_cache_gib_in_error, key::kv_cache_gib),
    (
        key::total_gpu_memory_gib_in_error,
        key::total_gpu_memory_gib,
    ),
    (key::kv_cache_tokens_in_error, key::kv_cache_tokens),
];

/// Figures of the whole engine that also have a list of the ranks' figures.
const ALSO_PER_RANK: [(FactKey, FactKey); 2] = [
    (
        key::cuda_graph_estimated_gib,
        key::cuda_graph_estimated_gib_per_rank,
    ),
    (
        key::cuda_graph_pool_actual_gib,
        key::cuda_graph_pool_actual_gib_per_rank,
    ),
];

/// The pools of ranks, and the pool that can be used.
const POOLS: [(FactKey, FactKey); 4] = [
    (key::kv_cache_tokens, key::kv_pool_tokens),
    (key::kv_cache_gib, key::kv_pool_gib),
    (key::num_gpu_blocks, key::kv_pool_blocks),
    (key::num_device_blocks, key::kv_pool_blocks),
];

/// Writes the facts of a start.
pub fn conclude(log: &VllmLog, sheet: &mut Sheet) {
    let mut put = |key: FactKey, fact: Option<Fact>| {
        if let Some(fact) = fact {
            sheet.conclude(key, fact);
        }
    };
    for (key, fact) in log.settings.facts() {
        put(key, Some(fact.clone()));
    }
    for key in log.readings.keys() {
        // Figures repeated in an error or in the pool's line are not separate facts.
        if !["_in_error", "_in_pool_line"]
            .iter()
            .any(|end| key.name().ends_with(end))
        {
            put(key, log.readings.fact(key));
        }
    }
    for (from, to) in STAND_INS {
        if log.readings.of(*to).is_empty() {
            let fact = match log.readings.of(*from).first() {
                // An error and its tracebacks repeat one figure.
                Some(first) if from.name().ends_with("_in_error") => {
                    Some(first.fact(first.value.clone()))
                }
                _ => log.readings.fact(*from),
            };
            put(*to, fact);
        }
    }
    for (key, per_rank) in ALSO_PER_RANK {
        let stand_in = STAND_INS.iter().find(|(_, to)| *to == key);
        let readings = match (log.readings.of(key), stand_in) {
            (readings, Some((from, _))) if readings.is_empty() => log.readings.of(*from),
            (readings, _) => readings,
        };
        put(per_rank, listed(&readings).filter(|_| readings.len() > 1));
    }
    for (from, to) in POOLS {
        put(to, usable_pool(log, from));
    }
    put(key::weights_print_count_true, folded_ranks(log));
    trouble(log, sheet);
}

/// The usable pool: the smallest over the ranks of one engine, and one for each data-parallel
/// engine. Pools of data-parallel engines add up; readings of ranks do not.
fn usable_pool(log: &VllmLog, key: FactKey) -> Option<Fact> {
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
    let readings = log.readings.of(key::weights_gib);
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
        shown.map(|(oom, quote, at)| (key::oom, FactValue::Bool(oom), quote, at)),
        (phase.zip(lack)).map(|(phase, w)| {
            let phase = FactValue::Text(phase.to_owned());
            (key::oom_phase, phase, w.quote.clone(), w.at)
        }),
        failure.map(|(kind, w)| (key::failure, FactValue::Text(kind), w.quote.clone(), w.at)),
        (log.trouble.preemptions_counted.as_ref()).map(|(count, w)| {
            let count = FactValue::Int(i64::try_from(*count).unwrap_or(i64::MAX));
            (key::preemptions_cumulative, count, w.quote.clone(), w.at)
        }),
    ];
    for (key, value, quote, at_ns) in values.into_iter().flatten() {
        sheet.conclude(key, Fact::new(value, vec![quote], at_ns));
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
        let fact = sheet.get(key::kv_cache_usage_peak_pct)?;
        Some((fact.quote.first()?.clone(), fact.at_ns))
    };
    // The pool's size is printed once it fits into the memory that the profile left.
    let pool = || {
        let keys = [
            key::kv_cache_tokens,
            key::num_gpu_blocks,
            key::num_device_blocks,
        ];
        let mut readings = keys.into_iter().flat_map(|key| log.readings.of(key));
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

/// The findings of a start.
pub fn findings_of(log: &VllmLog, sheet: &Sheet) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(witness) = log.trouble.lack_of_memory() {
        let step = reached_step(sheet);
        findings.push(finding(
            "oom",
            Severity::Error,
            format!("the engine ran out of memory {step}"),
            Some(&witness.quote),
        ));
    }
    death(log, sheet, &mut findings);
    if let Some((count, witness)) = &log.trouble.preemptions {
        findings.push(finding(
            "preemption_seen",
            Severity::Warning,
            format!("requests were thrown out and computed again for lack of KV cache, at least {count} times"),
            Some(&witness.quote),
        ));
    }
    if let Some(quote) = &log.unscaled_fp8 {
        findings.push(finding(
            "kv_cache_fp8_unscaled",
            Severity::Warning,
            "the fp8 KV cache runs with scaling factor 1.0: the checkpoint brings no scales",
            Some(quote),
        ));
    }
    if let Some(quote) = &log.compiled_again {
        findings.push(finding(
            "compiled_again",
            Severity::Info,
            "what an earlier start compiled ahead of time did not load, so the engine compiled again; with VLLM_USE_AOT_COMPILE=0 it keeps parts that load",
            Some(quote),
        ));
    }
    pool_findings(log, &mut findings);
    if log.settings.arguments_logged && log.settings.get(key::gpu_memory_utilization).is_none() {
        findings.push(finding(
            DEFAULT_UTILIZATION,
            Severity::Info,
            match log.version().and_then(|v| Some((default_utilization_of(&v)?, v))) {
                Some((share, version)) => format!("gpu_memory_utilization was not set; the default of {version} is {share:.2}"),
                None => "gpu_memory_utilization was not set, and the log names no version: the default is 0.90 before 0.21, 0.92 since".to_owned(),
            },
            None,
        ));
    }
    for key in [
        key::tensor_parallel_size,
        key::pipeline_parallel_size,
        key::data_parallel_size,
    ] {
        if log.settings.is_inferred(key) {
            findings.push(finding(
                "parallel_size_inferred",
                Severity::Info,
                format!(
                    "{key} was concluded from the ranks that printed something; more may exist"
                ),
                None,
            ));
        }
    }
    findings
}

fn death(log: &VllmLog, sheet: &Sheet, findings: &mut Vec<Finding>) {
    let trouble = &log.trouble;
    let ready = log.is_ready(sheet);
    let failed_to_start = trouble.start_failed().filter(|_| !ready);
    let (code, message, witness) = match (failed_to_start, &trouble.fatal) {
        (Some(wrapper), _) => (
            "engine_failed_to_start",
            "the engine failed to start",
            wrapper,
        ),
        (None, Some(fatal)) => ("engine_died", "the engine died", fatal),
        (None, None) => return,
    };
    findings.push(finding(
        code,
        Severity::Error,
        message,
        Some(&trouble.root_cause(ready).unwrap_or(witness).quote),
    ));
}

fn pool_findings(log: &VllmLog, findings: &mut Vec<Finding>) {
    // VLLM_CPU_KVCACHE_SPACE silently beats --kv-cache-memory-bytes.
    if let Some(FactValue::Int(asked)) = log.settings.get(key::kv_cache_memory_bytes) {
        if let Some(got) = log.readings.of(key::kv_cache_gib).first() {
            if (*asked as f64 / GIB - got.number()).abs() > 0.01 + 0.01 * got.number().abs() {
                findings.push(finding(
                    "kv_cache_memory_bytes_not_used",
                    Severity::Warning,
                    format!(
                        "kv_cache_memory_bytes asks for {asked} bytes, but the pool has {} GiB; on CPU VLLM_CPU_KVCACHE_SPACE wins over it",
                        got.number()
                    ),
                    Some(&got.quote),
                ));
            }
        }
    }
    let advised = log.readings.smallest(key::suggested_kv_cache_memory_bytes);
    if let Some(advised) = advised.filter(|bytes| bytes.number() < 0.0) {
        findings.push(finding(
            "suggested_pool_is_negative",
            Severity::Warning,
            "the engine advises a --kv-cache-memory below 0 beside the pool that it has: its figures contradict each other (it may count CUDA graphs twice); do not follow the advice",
            Some(&advised.quote),
        ));
    }
    let smallest = |key: FactKey| log.readings.smallest(key).map(Reading::number);
    if let (Some(tokens), Some(blocks), Some(FactValue::Int(size))) = (
        smallest(key::kv_cache_tokens),
        smallest(key::num_gpu_blocks),
        log.settings.get(key::block_size),
    ) {
        let product = blocks * *size as f64;
        // With context parallelism the tokens are those of all ranks; a hybrid model's attention
        // block size is another key, so it does not get here.
        let comparable = log
            .settings
            .get(key::kv_cache_tokens_of_all_ranks)
            .is_none();
        if comparable && (tokens - product).abs() > 0.01 * product.max(1.0) {
            findings.push(finding(
                "kv_cache_size_disagrees",
                Severity::Warning,
                format!("the log has {tokens} tokens of KV cache, but {blocks} blocks of {size} tokens are {product}"),
                None,
            ));
        }
    }
    if let Some(concurrency) = log.readings.smallest(key::max_concurrency) {
        if concurrency.number() < 1.0 {
            findings.push(finding(
                "one_request_does_not_fit",
                Severity::Warning,
                format!(
                    "the KV pool holds {} of one request of the longest length",
                    concurrency.number()
                ),
                Some(&concurrency.quote),
            ));
        }
    }
}

/// How far the start had come. What it did next its log does not always say: `why` reads the traceback for that.
fn reached_step(sheet: &Sheet) -> &'static str {
    let steps = [
        (EngineStep::Ready, "after it was ready to serve"),
        (
            EngineStep::GraphsCaptured,
            "after CUDA graphs were captured",
        ),
        (
            EngineStep::KvCacheAllocated,
            "after the KV pool was allocated",
        ),
        (EngineStep::Profiled, "after its memory was profiled"),
        (EngineStep::WeightsLoaded, "after its weights were loaded"),
        (EngineStep::LoadingWeights, "while it loaded weights"),
    ];
    let passed = steps.into_iter().find(|(step, _)| sheet.passed(*step));
    passed.map_or("before it loaded weights", |(_, words)| words)
}

fn finding(
    code: &str,
    severity: Severity,
    message: impl Into<String>,
    quote: Option<&str>,
) -> Finding {
    Finding {
        code: code.to_owned(),
        severity,
        message: message.into(),
        quote: quote.map(str::to_owned),
    }
}
