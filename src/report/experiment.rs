//! An experiment as tables and documents, and a line for each level as it ends. Unknown is empty or
//! null, never 0.

#[cfg(test)]
mod tests;

use super::RenderError;
use super::json::json_bytes;
use super::spreadsheet::{CsvColumn, figure_cell, write_columns};
use crate::experiment::{Experiment, ExperimentLevel, RequestRecord};
use crate::matrix::RowFigures;
use crate::units::Bytes;
use serde_json::json;
use std::collections::BTreeMap;

/// Columns of the table of requests; new ones come at the end.
const REQUEST: [CsvColumn<RequestRecord>; 13] = [
    ("request_id", |r| r.request_id.clone()),
    ("level", |r| r.level.clone()),
    ("seq_prompt", |r| r.seq_prompt.to_string()),
    ("seq_generate", |r| figure_cell(r.seq_generate)),
    ("total_latency_s", |r| r.total_latency_s.to_string()),
    ("ttft_s", |r| figure_cell(r.ttft_s)),
    ("tokens_per_s", |r| figure_cell(r.tokens_per_s)),
    ("peak_alloc_bytes", |r| figure_cell(r.peak_alloc_bytes)),
    ("peak_reserved_bytes", |r| {
        figure_cell(r.peak_reserved_bytes)
    }),
    ("backend", |r| figure_cell(r.backend.as_ref())),
    ("model", |r| r.model.clone()),
    ("timestamp", |r| figure_cell(r.timestamp.as_ref())),
    ("error", |r| figure_cell(r.error.as_ref())),
];

/// One row for each request.
pub fn requests_csv(records: &[RequestRecord]) -> Vec<u8> {
    write_columns(&REQUEST, records)
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
    // New ones come at the end.
    let columns: [CsvColumn<(&Experiment, &ExperimentLevel)>; 29] = [
        ("level", |(_, l)| l.name.clone()),
        ("concurrency", |(_, l)| l.asked.concurrency.to_string()),
        ("prompt_tokens", |(_, l)| l.asked.prompt_tokens.to_string()),
        ("short_prompt_tokens", |(_, l)| {
            figure_cell(l.asked.short_prompts.map(|s| s.input_len))
        }),
        ("short_share", |(_, l)| {
            figure_cell(l.asked.short_prompts.map(|s| s.share))
        }),
        ("output_tokens", |(_, l)| l.asked.output_tokens.to_string()),
        ("requests_asked", |(_, l)| {
            l.asked.all_requests().to_string()
        }),
        ("status", |(_, l)| l.state.as_str().into()),
        ("cause", |(_, l)| figure_cell(l.cause.as_ref())),
        ("message", |(_, l)| figure_cell(l.message.as_ref())),
        ("total", |(_, l)| figure_cell(l.total)),
        ("successful", |(_, l)| figure_cell(l.successful)),
        ("failed", |(_, l)| figure_cell(l.failed)),
        ("error_rate", |(_, l)| figure_cell(l.error_rate)),
        ("mean_latency_s", |(_, l)| figure_cell(l.mean_latency_s)),
        ("p95_latency_s", |(_, l)| figure_cell(l.p95_latency_s)),
        ("mean_tokens_per_s", |(_, l)| {
            figure_cell(l.mean_tokens_per_s)
        }),
        ("total_tokens_per_s", |(_, l)| {
            figure_cell(l.total_tokens_per_s)
        }),
        ("mean_ttft_s", |(_, l)| figure_cell(l.mean_ttft_s)),
        ("peak_bytes", |(_, l)| figure_cell(l.peak_bytes)),
        ("kv_pool_bytes", |(_, l)| figure_cell(l.kv_pool_bytes)),
        ("kv_used_bytes", |(_, l)| figure_cell(l.kv_used_bytes)),
        ("kv_used_share", |(_, l)| figure_cell(l.kv_used_share)),
        ("peak_alloc_bytes", |(_, l)| figure_cell(l.peak_alloc_bytes)),
        ("peak_reserved_bytes", |(_, l)| {
            figure_cell(l.peak_reserved_bytes)
        }),
        ("profile", |(_, l)| figure_cell(l.profile.as_ref())),
        ("backend", |(e, _)| figure_cell(e.engine.as_ref())),
        ("model", |(e, _)| e.model.clone()),
        ("simulated", |(e, _)| e.simulated.to_string()),
    ];
    write_columns(&columns, e.levels.iter().map(|level| (e, level)))
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
