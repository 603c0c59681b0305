//! The probe's result file.

use crate::engine::torch_probe::TorchReport;
use crate::engine::{BenchResult, ReadError};
use std::collections::BTreeMap;

/// The newest form of the file that is understood.
const SCHEMA: u64 = 1;

/// The whole of it.
pub fn report(result: &str) -> Result<TorchReport, ReadError> {
    let value: serde_json::Value =
        serde_json::from_str(result).map_err(|e| ReadError::Json(e.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(1..=SCHEMA) => {}
        _ => return Err(ReadError::Missing("schema")),
    }
    if value.get("error").is_some_and(|e| !e.is_null()) {
        return Err(ReadError::Missing("weights"));
    }
    serde_json::from_value(value).map_err(|e| ReadError::Json(e.to_string()))
}

/// Latency and throughput, the part that every bench reports.
pub fn bench(result: &str) -> Result<BenchResult, ReadError> {
    let memory = report(result)?.memory;
    let (load, latency) = (&memory.load, &memory.latency);
    let latencies_ms: Vec<f64> = memory.iterations.iter().map(|i| i.ms).collect();
    let total_ms: f64 = latencies_ms.iter().sum();
    let iterations = latencies_ms.len() as u64;
    let sequences = load.batch_size.saturating_mul(iterations);
    let per_second = |tokens: u64| {
        let all = tokens.saturating_mul(sequences) as f64;
        (total_ms > 0.0).then(|| all / (total_ms / 1e3))
    };
    Ok(BenchResult {
        mean_latency_ms: (iterations > 0).then_some(latency.mean_ms),
        latency_percentiles_ms: BTreeMap::from([("median".to_owned(), latency.median_ms)]),
        latencies_ms,
        output_tokens_per_second: per_second(load.generated_tokens),
        total_tokens_per_second: per_second(load.total_tokens),
        duration_s: Some(total_ms / 1e3),
        total_input_tokens: Some(load.prompt_tokens.saturating_mul(sequences)),
        total_output_tokens: Some(load.generated_tokens.saturating_mul(sequences)),
        ttft_ms: latency
            .prefill_ms
            .map(|ms| ("mean".to_owned(), ms))
            .into_iter()
            .collect(),
        ..BenchResult::default()
    })
}
