//! An experiment as tables and documents, and a line for each level as it ends. Unknown is empty or
//! null, never 0.

#[cfg(test)]
mod tests;

use super::RenderError;
use super::json::{joined, json_bytes};
use super::spreadsheet::write_fields;
use crate::experiment::{Experiment, ExperimentLevel, RequestRecord};
use crate::matrix::RowFigures;
use crate::units::Bytes;
use serde_json::json;
use std::collections::BTreeMap;

/// Columns of the table of requests; new ones come at the end.
const REQUEST: &str = "request_id level seq_prompt seq_generate total_latency_s ttft_s tokens_per_s \
    peak_alloc_bytes peak_reserved_bytes backend model timestamp error";

/// Columns of the table of levels; new ones come at the end.
const LEVEL: &str = "level=name concurrency prompt_tokens short_prompt_tokens short_share \
    output_tokens requests_asked status cause message total successful failed error_rate \
    mean_latency_s p95_latency_s mean_tokens_per_s total_tokens_per_s mean_ttft_s peak_bytes \
    kv_pool_bytes kv_used_bytes kv_used_share peak_alloc_bytes peak_reserved_bytes profile backend \
    model simulated";

/// One row for each request.
pub fn requests_csv(records: &[RequestRecord]) -> Vec<u8> {
    write_fields(REQUEST, records.iter().map(|record| json!(record)))
}

/// The same rows as a document, with why some of their fields are null.
pub fn requests_json(e: &Experiment, records: &[RequestRecord]) -> Result<Vec<u8>, RenderError> {
    let fields = ["peak_alloc_bytes", "peak_reserved_bytes", "requests"];
    let why = (fields.into_iter()).filter_map(|f| Some((f, e.reason_for_figure(f)?)));
    json_bytes(&json!({
        "document": "experiment_requests",
        "schema_version": e.schema_version,
        "simulated": e.simulated,
        "not_measured": why.collect::<BTreeMap<_, _>>(),
        "rows": records,
    }))
}

/// One row for each level, and beside each whether it was simulated.
pub fn summary_csv(e: &Experiment) -> Vec<u8> {
    let row = |level: &ExperimentLevel| {
        let short = level.asked.short_prompts;
        let further = json!({
            "short_prompt_tokens": short.map(|s| s.input_len),
            "short_share": short.map(|s| s.share),
            "requests_asked": level.asked.all_requests(),
            "status": level.state.as_str(),
            "backend": e.engine,
            "model": e.model,
            "simulated": e.simulated,
        });
        joined([json!(level.asked), json!(level), further])
    };
    write_fields(LEVEL, e.levels.iter().map(row))
}

/// `completed 9/16, latency 0.412 s, 77.5 tok/s, peak 1.23 GiB, KV used not measured`: one level in a
/// line, as it ends. `asked`: how many requests were asked for.
pub fn level_line(figures: &RowFigures, asked: u64) -> String {
    let or =
        |what: &str, text: Option<String>| text.unwrap_or_else(|| format!("{what} not measured"));
    let bytes =
        |what: &str, bytes: Option<u64>| or(what, bytes.map(|b| format!("{what} {}", Bytes(b))));
    let latency = figures.mean_latency_ms.map(|ms| ms / 1e3);
    let latency = latency.map(|s| format!("latency {s:.3} s"));
    let speed = figures.tokens_per_second.map(|t| format!("{t:.1} tok/s"));
    let completed = figures.completed.map(|n| format!("completed {n}/{asked}"));
    [
        or("completed:", completed),
        or("latency", latency),
        or("throughput", speed),
        bytes("peak", figures.peak_bytes),
        bytes("KV used", figures.kv_used_bytes),
    ]
    .join(", ")
}
