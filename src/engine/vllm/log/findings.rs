//! What a reader of the log should know besides the figures: only certain findings.

use super::VllmLog;
use super::readings::Reading;
use crate::engine::facts::{DEFAULT_UTILIZATION, EngineStep, FactValue, Finding, Severity};
use crate::engine::log::Messages;
use crate::engine::log::sheet::Sheet;
use crate::engine::vllm::default_utilization_of;

const GIB: f64 = 1_073_741_824.0;

/// The findings of a start.
pub fn findings_of(log: &VllmLog, sheet: &Sheet) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(witness) = log.trouble.lack_of_memory() {
        let step = reached(sheet);
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
            "the fp8 KV cache runs with scaling factor 1.0: the checkpoint brings no scales"
                .to_owned(),
            Some(quote),
        ));
    }
    pool(log, &mut findings);
    if log.settings.arguments_seen && log.settings.get("gpu_memory_utilization").is_none() {
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
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
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
        message.to_owned(),
        Some(&trouble.root_cause(ready).unwrap_or(witness).quote),
    ));
}

fn pool(log: &VllmLog, findings: &mut Vec<Finding>) {
    // VLLM_CPU_KVCACHE_SPACE silently beats --kv-cache-memory-bytes.
    if let Some(FactValue::Int(asked)) = log.settings.get("kv_cache_memory_bytes") {
        if let Some(got) = log.readings.of("kv_cache_gib").first() {
            if (*asked as f64 / GIB - got.number()).abs() > 0.01 + 0.01 * got.number().abs() {
                findings.push(finding(
                    "kv_cache_memory_bytes_not_used",
                    Severity::Warning,
                    format!(
                        "kv_cache_memory_bytes asks for {asked} bytes, but the pool has {} GiB",
                        got.number()
                    ),
                    Some(&got.quote),
                ));
            }
        }
    }
    let smallest = |key: &str| log.readings.smallest(key).map(Reading::number);
    if let (Some(tokens), Some(blocks), Some(FactValue::Int(size))) = (
        smallest("kv_cache_tokens"),
        smallest("num_gpu_blocks"),
        log.settings.get("block_size"),
    ) {
        let product = blocks * *size as f64;
        // With context parallelism the tokens are those of all ranks; a hybrid model's attention
        // block size is another key, so it does not get here.
        let comparable = log.settings.get("kv_cache_tokens_of_all_ranks").is_none();
        if comparable && (tokens - product).abs() > 0.01 * product.max(1.0) {
            findings.push(finding(
                "kv_cache_size_disagrees",
                Severity::Warning,
                format!("the log says {tokens} tokens of KV cache, but {blocks} blocks of {size} tokens are {product}"),
                None,
            ));
        }
    }
    if let Some(concurrency) = log.readings.smallest("max_concurrency") {
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

/// Where the start had come to.
fn reached(sheet: &Sheet) -> &'static str {
    if sheet.passed(EngineStep::Ready) {
        "while serving"
    } else if sheet.passed(EngineStep::GraphsCaptured) || sheet.passed(EngineStep::KvCacheAllocated)
    {
        "while warming up"
    } else if sheet.passed(EngineStep::Profiled) {
        "when the KV cache was to be allocated"
    } else if sheet.passed(EngineStep::WeightsLoaded) {
        "while its memory was profiled"
    } else if sheet.passed(EngineStep::LoadingWeights) {
        "while it loaded weights"
    } else {
        "before it loaded weights"
    }
}

fn finding(code: &str, severity: Severity, message: String, quote: Option<&str>) -> Finding {
    Finding {
        code: code.to_owned(),
        severity,
        message,
        quote: quote.map(str::to_owned),
    }
}
