//! The result files of SGLang's benches: one line of JSON per run; the last line is the current
//! run's.

use crate::engine::bench::{Object, count, number, required, served};
use crate::engine::{BenchKind, BenchResult, ReadError};
use std::collections::BTreeMap;

/// Reads a result file.
pub fn read(kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
    let line = result.lines().rev().find(|l| !l.trim().is_empty());
    // Python's words for what JSON has none for.
    let line = line
        .unwrap_or_default()
        .replace(": NaN", ": null")
        .replace(": Infinity", ": null");
    let object: Object = serde_json::from_str(&line).map_err(|e| ReadError::Json(e.to_string()))?;
    match kind {
        BenchKind::Latency => latency(&object),
        BenchKind::Throughput => throughput(&object),
        BenchKind::Serve | BenchKind::Probe => served(&object, "total_throughput", "e2e_latency"),
    }
}

/// One batch, measured once; seconds in, milliseconds out.
fn latency(object: &Object) -> Result<BenchResult, ReadError> {
    let total = required(object, "total_latency")?;
    let batch = number(object, "batch_size");
    let tokens = |key: &str| Some((batch? * number(object, key)?) as u64);
    let output = tokens("output_len");
    let figure = |key: &str| number(object, key).map(|s| s * 1e3);
    let one = |ms: Option<f64>, name: &str| -> BTreeMap<String, f64> {
        ms.map(|v| (name.to_owned(), v)).into_iter().collect()
    };
    Ok(BenchResult {
        mean_latency_ms: total.map(|s| s * 1e3),
        latencies_ms: total.map(|s| s * 1e3).into_iter().collect(),
        duration_s: total,
        total_tokens_per_second: number(object, "overall_throughput"),
        output_tokens_per_second: total
            .filter(|t| *t > 0.0)
            .zip(output)
            .map(|(t, n)| n as f64 / t),
        total_input_tokens: tokens("input_len"),
        total_output_tokens: output,
        ttft_ms: one(figure("prefill_latency"), "mean"),
        tpot_ms: one(figure("median_decode_latency"), "median"),
        ..BenchResult::default()
    })
}

fn throughput(object: &Object) -> Result<BenchResult, ReadError> {
    let duration = required(object, "total_latency")?;
    Ok(BenchResult {
        duration_s: duration,
        completed: count(object, "successful_requests"),
        requests_per_second: number(object, "request_throughput"),
        output_tokens_per_second: number(object, "output_throughput"),
        total_tokens_per_second: number(object, "total_throughput"),
        total_input_tokens: count(object, "total_input_tokens"),
        total_output_tokens: count(object, "total_output_tokens"),
        ..BenchResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind() {
        let r = read(
            BenchKind::Serve,
            "{\"old\": 1}\n{\"duration\": 2.0, \"completed\": 4, \"num_prompts\": 5, \"output_throughput\": 10.0, \"input_throughput\": 30.0, \"mean_ttft_ms\": 7.5, \"p99_itl_ms\": 3.0, \"mean_e2e_latency_ms\": 90.0, \"std_tpot_ms\": NaN}\n",
        )
        .unwrap();
        assert_eq!(
            (r.duration_s, r.completed, r.failed),
            (Some(2.0), Some(4), Some(1))
        );
        assert_eq!(r.total_tokens_per_second, Some(40.0));
        assert_eq!(
            (r.ttft_ms["mean"], r.itl_ms["p99"], r.mean_latency_ms),
            (7.5, 3.0, Some(90.0))
        );
        let r = read(
            BenchKind::Latency,
            r#"{"run_name":"x","batch_size":2,"input_len":16,"output_len":8,"prefill_latency":0.5,"median_decode_latency":0.01,"total_latency":2.0,"overall_throughput":24.0}"#,
        )
        .unwrap();
        assert_eq!(
            (r.mean_latency_ms, r.total_output_tokens),
            (Some(2000.0), Some(16))
        );
        assert_eq!(
            (r.output_tokens_per_second, r.tpot_ms["median"]),
            (Some(8.0), 10.0)
        );
        let r = read(
            BenchKind::Throughput,
            r#"{"total_latency":4.0,"total_input_tokens":10,"total_throughput":5.5}"#,
        )
        .unwrap();
        assert_eq!(
            (r.duration_s, r.total_tokens_per_second),
            (Some(4.0), Some(5.5))
        );
        for (kind, text) in [
            (BenchKind::Serve, ""),
            (BenchKind::Serve, "{}"),
            (BenchKind::Latency, "[1]"),
            (BenchKind::Throughput, "{\"x\":1}"),
        ] {
            assert!(read(kind, text).is_err(), "{text}");
        }
    }
}
