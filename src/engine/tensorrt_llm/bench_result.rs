//! The result files of TensorRT-LLM's benches: the report of `trtllm-bench`, and the client's,
//! which has vLLM's keys.

use crate::engine::bench::{figure_at, percentiles};
use crate::engine::vllm::read_bench_result;
use crate::engine::{BenchKind, BenchResult, ReadError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reads a result file.
pub fn read(kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
    if kind == BenchKind::Serve {
        return read_bench_result(kind, result);
    }
    let report: Value = serde_json::from_str(result).map_err(|e| ReadError::Json(e.to_string()))?;
    let performance = report
        .get("performance")
        .ok_or(ReadError::Missing("performance"))?;
    let of_all = |key: &str| figure_at(performance, key);
    let duration_ms =
        of_all("total_latency_ms").ok_or(ReadError::Missing("performance.total_latency_ms"))?;
    let info = report.get("request_info");
    let count = |key: &str| info?.get(key)?.as_u64();
    let completed = count("num_requests");
    let average = |key: &str| Some(figure_at(info?, key)? * completed? as f64);
    let streaming = report.get("streaming_metrics");
    let mean_latency_ms = of_all("avg_request_latency_ms");
    Ok(BenchResult {
        mean_latency_ms,
        latency_percentiles_ms: percentiles(performance.get("request_latency_percentiles_ms"), 1.0),
        duration_s: Some(duration_ms / 1e3),
        completed,
        requests_per_second: of_all("request_throughput_req_s"),
        output_tokens_per_second: of_all("system_output_throughput_tok_s"),
        total_tokens_per_second: of_all("system_total_throughput_tok_s"),
        total_input_tokens: average("avg_input_length").map(|v| v.round() as u64),
        total_output_tokens: average("avg_output_length").map(|v| v.round() as u64),
        ttft_ms: streamed(streaming, "avg_ttft_ms", "ttft_percentiles"),
        tpot_ms: streamed(streaming, "avg_tpot_ms", "tpot_percentiles"),
        ..BenchResult::default()
    })
}

fn streamed(metrics: Option<&Value>, mean: &str, percent: &str) -> BTreeMap<String, f64> {
    let Some(metrics) = metrics else {
        return BTreeMap::new();
    };
    let mut found = percentiles(metrics.get(percent), 1.0);
    if let Some(ms) = figure_at(metrics, mean) {
        found.insert("mean".to_owned(), ms);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: &str = r#"{"engine":{"model":"m","version":"1.0.0"},
        "request_info":{"num_requests":40,"avg_num_concurrent_requests":4.0,"avg_input_length":128.0,"avg_output_length":16.0},
        "performance":{"total_latency_ms":2500.0,"avg_request_latency_ms":240.5,"request_throughput_req_s":16.0,
            "system_output_throughput_tok_s":256.0,"system_total_throughput_tok_s":2304.0,
            "request_latency_percentiles_ms":{"p50":230.0,"p90":260.0,"p99":300.0,"minimum":200.0,"average":240.5}},
        "streaming_metrics":{"avg_ttft_ms":20.0,"ttft_percentiles":{"p99":31.0},"avg_tpot_ms":9.0}}"#;

    #[test]
    fn a_report() {
        let result = read(BenchKind::Throughput, REPORT).unwrap();
        assert_eq!((result.duration_s, result.completed), (Some(2.5), Some(40)));
        assert_eq!(result.mean_latency_ms, Some(240.5));
        assert_eq!(result.latency_percentiles_ms["median"], 230.0);
        assert!(!result.latency_percentiles_ms.contains_key("minimum"));
        assert_eq!(result.output_tokens_per_second, Some(256.0));
        assert_eq!(result.total_tokens_per_second, Some(2304.0));
        assert_eq!(result.total_input_tokens, Some(5120));
        assert_eq!(
            (result.ttft_ms["mean"], result.ttft_ms["p99"]),
            (20.0, 31.0)
        );
        assert_eq!(result.tpot_ms["mean"], 9.0);
    }

    #[test]
    fn what_is_no_report() {
        assert!(matches!(
            read(BenchKind::Latency, "x"),
            Err(ReadError::Json(_))
        ));
        assert_eq!(
            read(BenchKind::Latency, "{}"),
            Err(ReadError::Missing("performance"))
        );
        let serve = r#"{"duration":1.5,"completed":3,"total_input_tokens":9,"output_throughput":4.0,"mean_ttft_ms":7.0}"#;
        let result = read(BenchKind::Serve, serve).unwrap();
        assert_eq!((result.completed, result.ttft_ms["mean"]), (Some(3), 7.0));
    }

    proptest! {
        #[test]
        fn never_panics(cut in 0..REPORT.len()) {
            let _ = read(BenchKind::Throughput, &REPORT[..cut]);
        }
    }
}
