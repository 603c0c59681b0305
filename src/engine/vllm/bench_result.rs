//! The result files of vLLM's benches, in the keys of every release since 0.4.

use crate::engine::{BenchKind, BenchResult, ReadError};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

type Object = Map<String, Value>;

/// Reads a result file.
pub fn read(kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
    let value: Value =
        serde_json::from_str(&plain_json(result)).map_err(|e| ReadError::Json(e.to_string()))?;
    let Value::Object(object) = value else {
        return Err(ReadError::Json("not an object".to_owned()));
    };
    match kind {
        BenchKind::Latency => latency(&object),
        BenchKind::Throughput => throughput(&object),
        BenchKind::Serve => serve(&object),
        BenchKind::Probe => Err(ReadError::Missing("a bench of that kind")),
    }
}

/// Seconds in, milliseconds out.
fn latency(object: &Object) -> Result<BenchResult, ReadError> {
    let mean = required(object, "avg_latency")?;
    let mut percentiles = BTreeMap::new();
    if let Some(Value::Object(given)) = object.get("percentiles") {
        for (percent, value) in given {
            if let (true, Some(seconds)) = (is_percent(percent), figure(value)) {
                percentiles.insert(format!("p{percent}"), seconds * 1e3);
            }
        }
    }
    if let Some(median) = percentiles.get("p50").copied() {
        percentiles.insert("median".to_owned(), median);
    }
    let latencies = milliseconds(object.get("latencies"));
    Ok(BenchResult {
        mean_latency_ms: mean.map(|s| s * 1e3),
        latency_percentiles_ms: percentiles,
        // The iterations follow each other without a pause.
        duration_s: (!latencies.is_empty()).then(|| latencies.iter().sum::<f64>() / 1e3),
        latencies_ms: latencies,
        ..BenchResult::default()
    })
}

fn throughput(object: &Object) -> Result<BenchResult, ReadError> {
    let duration = required(object, "elapsed_time")?;
    required(object, "num_requests")?;
    Ok(BenchResult {
        duration_s: duration,
        completed: count(object, "num_requests"),
        requests_per_second: number(object, "requests_per_second"),
        total_tokens_per_second: number(object, "tokens_per_second"),
        ..BenchResult::default()
    })
}

fn serve(object: &Object) -> Result<BenchResult, ReadError> {
    let duration = required(object, "duration")?;
    required(object, "completed")?;
    let completed = count(object, "completed");
    let mut result = BenchResult {
        duration_s: duration,
        completed,
        // Before 0.11 the failed ones are those that are missing.
        failed: count(object, "failed")
            .or_else(|| count(object, "num_prompts")?.checked_sub(completed?)),
        total_input_tokens: count(object, "total_input_tokens"),
        total_output_tokens: count(object, "total_output_tokens"),
        requests_per_second: number(object, "request_throughput"),
        output_tokens_per_second: number(object, "output_throughput"),
        total_tokens_per_second: number(object, "total_token_throughput").or_else(|| {
            // 0.4 gave the two halves.
            Some(number(object, "input_throughput")? + number(object, "output_throughput")?)
        }),
        ..BenchResult::default()
    };
    if completed == Some(0) {
        // Nothing was measured: the zeros that vLLM writes then are no latencies.
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
            "e2el" => &mut result.e2el_ms,
            _ => continue,
        };
        group.insert(statistic.to_owned(), value);
    }
    result.mean_latency_ms = result.e2el_ms.get("mean").copied();
    result.latency_percentiles_ms = result.e2el_ms.clone();
    result
        .latency_percentiles_ms
        .retain(|k, _| k.starts_with('p') || k == "median");
    // Only in detailed results of the newest releases.
    result.latencies_ms = milliseconds(object.get("latencies"));
    Ok(result)
}

fn is_percent(text: &str) -> bool {
    text.parse::<f64>()
        .is_ok_and(|p| (0.0..=100.0).contains(&p))
}

/// A figure that can be one: no text, not below zero.
fn figure(value: &Value) -> Option<f64> {
    value.as_f64().filter(|v| v.is_finite() && *v >= 0.0)
}

fn number(object: &Object, key: &str) -> Option<f64> {
    figure(object.get(key)?)
}

fn count(object: &Object, key: &str) -> Option<u64> {
    object.get(key)?.as_u64()
}

/// A figure that every release writes: absent or of another type, the file is no such result;
/// null (once NaN), it is unknown.
fn required(object: &Object, key: &'static str) -> Result<Option<f64>, ReadError> {
    match object.get(key) {
        Some(Value::Null) => Ok(None),
        Some(value @ Value::Number(_)) => Ok(figure(value)),
        _ => Err(ReadError::Missing(key)),
    }
}

fn milliseconds(list: Option<&Value>) -> Vec<f64> {
    let list = list
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    list.iter()
        .filter_map(figure)
        .map(|seconds| seconds * 1e3)
        .collect()
}

/// Python writes what JSON has no word for: `NaN`, `Infinity`, halves of a character. The former
/// become null, the latter the replacement character.
fn plain_json(text: &str) -> Cow<'_, str> {
    let suspicious = ["NaN", "Infinity", "\\ud", "\\uD"];
    if !suspicious.iter().any(|s| text.contains(s)) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        if quoted && c == '\\' {
            let escape = rest.as_bytes();
            if matches!(
                escape,
                [
                    b'\\',
                    b'u',
                    b'd' | b'D',
                    b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
                    ..,
                ]
            ) && rest.is_char_boundary(6)
            {
                plain.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // Whatever is escaped, a quote above all, ends nothing.
            taken += rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if c == '"' {
            quoted = !quoted;
        } else if !quoted
            && let Some(word) = ["NaN", "-Infinity", "Infinity"]
                .iter()
                .find(|w| rest.starts_with(**w))
        {
            plain.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        plain.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Cow::Owned(plain)
}

#[cfg(test)]
#[path = "bench_result_tests.rs"]
mod tests;
