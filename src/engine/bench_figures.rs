//! Figures of the result files that benches write, and the result of a client that loads a server:
//! vLLM's and SGLang's have one ancestor, and nearly all its keys.

use super::{BenchResult, ReadError};
use serde_json::{Map, Value};

/// A result file's JSON object.
pub type Object = Map<String, Value>;

/// The value of a JSON number that is not negative.
pub fn figure(value: &Value) -> Option<f64> {
    value.as_f64().filter(|v| v.is_finite() && *v >= 0.0)
}

/// The non-negative number under `key`.
pub fn number(object: &Object, key: &str) -> Option<f64> {
    figure(object.get(key)?)
}

/// The unsigned integer under `key`.
pub fn count(object: &Object, key: &str) -> Option<u64> {
    object.get(key)?.as_u64()
}

/// A number that every release writes. Null (NaN in the engine) is unknown; an absent key or
/// another type is an error: the file is not such a result.
pub fn required(object: &Object, key: &'static str) -> Result<Option<f64>, ReadError> {
    match object.get(key) {
        Some(Value::Null) => Ok(None),
        Some(value @ Value::Number(_)) => Ok(figure(value)),
        _ => Err(ReadError::Missing(key)),
    }
}

/// Whether a text is a percentile's number, 0 to 100.
pub fn is_percent(text: &str) -> bool {
    text.parse::<f64>()
        .is_ok_and(|p| (0.0..=100.0).contains(&p))
}

/// Reads a client's serving result; latencies in milliseconds. `total` is its key for total tokens
/// per second, `whole` its name for end-to-end latency.
///
/// # Errors
/// A key that every such result has is missing.
pub fn served(object: &Object, total: &str, whole: &str) -> Result<BenchResult, ReadError> {
    let duration = required(object, "duration")?;
    required(object, "completed")?;
    let completed = count(object, "completed");
    let mut result = BenchResult {
        duration_s: duration,
        completed,
        failed: count(object, "num_prompts").and_then(|asked| asked.checked_sub(completed?)),
        total_input_tokens: count(object, "total_input_tokens"),
        total_output_tokens: count(object, "total_output_tokens"),
        requests_per_second: number(object, "request_throughput"),
        output_tokens_per_second: number(object, "output_throughput"),
        total_tokens_per_second: number(object, total).or_else(|| {
            // Early releases gave the two halves.
            Some(number(object, "input_throughput")? + number(object, "output_throughput")?)
        }),
        ..BenchResult::default()
    };
    if completed == Some(0) {
        // Nothing was measured: zeros written then are not latencies.
        return Ok(result);
    }
    for (key, value) in object {
        let Some((statistic, metric)) = key.strip_suffix("_ms").and_then(|k| k.split_once('_'))
        else {
            continue;
        };
        let known = matches!(statistic, "mean" | "median" | "std")
            || statistic.strip_prefix('p').is_some_and(is_percent);
        let (true, Some(value)) = (known, figure(value)) else {
            continue;
        };
        let group = match metric {
            "ttft" => &mut result.ttft_ms,
            "tpot" => &mut result.tpot_ms,
            "itl" => &mut result.itl_ms,
            metric if metric == whole => &mut result.e2el_ms,
            _ => continue,
        };
        group.insert(statistic.to_owned(), value);
    }
    result.mean_latency_ms = result.e2el_ms.get("mean").copied();
    result.latency_percentiles_ms = result.e2el_ms.clone();
    result
        .latency_percentiles_ms
        .retain(|k, _| k.starts_with('p') || k == "median");
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BenchResult, ReadError> {
        let Value::Object(object) = serde_json::from_str(text).unwrap() else {
            panic!("no object: {text}");
        };
        served(&object, "all_throughput", "whole")
    }

    #[test]
    fn a_client() {
        let r = read(
            r#"{"duration":2.0,"completed":3,"num_prompts":4,"all_throughput":9.0,"mean_whole_ms":5.0,
                "p99_whole_ms":7.0,"std_whole_ms":1.0,"p101_ttft_ms":1.0,"mean_ttft_ms":-1.0,"median_itl_ms":2.0}"#,
        )
        .unwrap();
        assert_eq!((r.failed, r.total_tokens_per_second), (Some(1), Some(9.0)));
        assert_eq!(r.mean_latency_ms, Some(5.0));
        assert_eq!(r.e2el_ms.len(), 3);
        let percentiles: Vec<&String> = r.latency_percentiles_ms.keys().collect();
        assert_eq!(percentiles, ["p99"]);
        assert!(r.ttft_ms.is_empty(), "{:?}", r.ttft_ms);
        assert_eq!(r.itl_ms["median"], 2.0);
    }

    #[test]
    fn nothing_completed_is_no_latency() {
        let r = read(r#"{"duration":null,"completed":0,"mean_ttft_ms":0.0}"#).unwrap();
        assert_eq!((r.duration_s, r.completed, r.failed), (None, Some(0), None));
        assert!(r.ttft_ms.is_empty());
        assert_eq!(read("{}"), Err(ReadError::Missing("duration")));
        assert_eq!(
            read(r#"{"duration":1.0,"completed":"3"}"#),
            Err(ReadError::Missing("completed"))
        );
    }
}
