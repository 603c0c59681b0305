//! The result files of vLLM's benches, in the keys of every release since 0.4.

use crate::engine::bench::{Object, count, figure, number, percentiles, required, served};
use crate::engine::{BenchKind, BenchResult, ReadError};
use serde_json::Value;
use std::borrow::Cow;

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
    let latencies = milliseconds(object.get("latencies"));
    Ok(BenchResult {
        mean_latency_ms: mean.map(|s| s * 1e3),
        latency_percentiles_ms: percentiles(object.get("percentiles"), 1e3),
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
    let mut result = served(object, "total_token_throughput", "e2el")?;
    // Before 0.11 the failed ones are those that are missing.
    result.failed = count(object, "failed").or(result.failed);
    if result.completed != Some(0) {
        // Only in detailed results of the newest releases.
        result.latencies_ms = milliseconds(object.get("latencies"));
    }
    Ok(result)
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

/// Python writes values that JSON lacks: `NaN`, `Infinity`, lone surrogates. The former become
/// null, the latter the replacement character.
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
            // An escaped character, such as a quote, ends nothing.
            taken += rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if c == '"' {
            quoted = !quoted;
        } else if let Some(word) = ["NaN", "-Infinity", "Infinity"]
            .iter()
            .find(|w| !quoted && rest.starts_with(**w))
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
