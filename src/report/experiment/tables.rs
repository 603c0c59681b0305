//! The tables and documents of an experiment. Unknown is empty or null, never 0.

use crate::experiment::{Experiment, Level, Record};
use crate::report::RenderError;
use crate::report::spreadsheet::{cell, table};
use serde::Serialize;
use std::collections::BTreeMap;

/// Columns of the table of requests; new ones come at the end.
const REQUEST: [&str; 13] = [
    "request_id",
    "level",
    "seq_prompt",
    "seq_generate",
    "total_latency_s",
    "ttft_s",
    "tokens_per_s",
    "peak_alloc_bytes",
    "peak_reserved_bytes",
    "backend",
    "model",
    "timestamp",
    "error",
];

/// One row for each request.
pub fn requests_csv(records: &[Record]) -> Result<Vec<u8>, RenderError> {
    let row = |r: &Record| {
        vec![
            r.request_id.clone(),
            r.level.clone(),
            r.seq_prompt.to_string(),
            cell(r.seq_generate),
            r.total_latency_s.to_string(),
            cell(r.ttft_s),
            cell(r.tokens_per_s),
            cell(r.peak_alloc_bytes),
            cell(r.peak_reserved_bytes),
            cell(r.backend.as_ref()),
            r.model.clone(),
            cell(r.timestamp.as_ref()),
            cell(r.error.as_ref()),
        ]
    };
    table(&REQUEST, &records.iter().map(row).collect::<Vec<_>>())
}

/// The rows with why some of their fields are null.
#[derive(Serialize)]
struct Requests<'a> {
    document: &'static str,
    schema_version: &'a str,
    simulated: bool,
    not_measured: BTreeMap<&'a str, &'a str>,
    rows: &'a [Record],
}

/// The same rows as a document.
pub fn requests(e: &Experiment, records: &[Record]) -> Result<Vec<u8>, RenderError> {
    let fields = ["peak_alloc_bytes", "peak_reserved_bytes", "requests"];
    let why = fields.into_iter().filter_map(|f| Some((f, e.why(f)?)));
    json(&Requests {
        document: "experiment_requests",
        schema_version: &e.schema_version,
        simulated: e.simulated,
        not_measured: why.collect(),
        rows: records,
    })
}

/// The document.
pub fn document(e: &Experiment) -> Result<Vec<u8>, RenderError> {
    json(e)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, RenderError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| RenderError {
        format: "json",
        source: e.into(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A column: its name, and its content.
type Column = (&'static str, fn(&Level) -> String);

/// Columns of the table of levels; new ones come at the end.
const LEVEL: [Column; 25] = [
    ("level", |l| l.name.clone()),
    ("concurrency", |l| l.asked.concurrency.to_string()),
    ("prompt_tokens", |l| l.asked.prompt_tokens.to_string()),
    ("short_prompt_tokens", |l| {
        cell(l.asked.short_prompts.map(|s| s.input_len))
    }),
    ("short_share", |l| {
        cell(l.asked.short_prompts.map(|s| s.share))
    }),
    ("output_tokens", |l| l.asked.output_tokens.to_string()),
    ("requests_asked", |l| l.asked_requests().to_string()),
    ("status", |l| l.state.as_str().into()),
    ("cause", |l| cell(l.cause.as_ref())),
    ("message", |l| cell(l.message.as_ref())),
    ("total", |l| cell(l.total)),
    ("successful", |l| cell(l.successful)),
    ("failed", |l| cell(l.failed)),
    ("error_rate", |l| cell(l.error_rate)),
    ("mean_latency_s", |l| cell(l.mean_latency_s)),
    ("p95_latency_s", |l| cell(l.p95_latency_s)),
    ("mean_tokens_per_s", |l| cell(l.mean_tokens_per_s)),
    ("total_tokens_per_s", |l| cell(l.total_tokens_per_s)),
    ("mean_ttft_s", |l| cell(l.mean_ttft_s)),
    ("peak_bytes", |l| cell(l.peak_bytes)),
    ("kv_pool_bytes", |l| cell(l.kv_pool_bytes)),
    ("kv_used_bytes", |l| cell(l.kv_used_bytes)),
    ("kv_used_share", |l| cell(l.kv_used_share)),
    ("peak_alloc_bytes", |l| cell(l.peak_alloc_bytes)),
    ("peak_reserved_bytes", |l| cell(l.peak_reserved_bytes)),
];

/// One row for each level, and beside each whether it was simulated.
pub fn summary_csv(e: &Experiment) -> Result<Vec<u8>, RenderError> {
    let mut head: Vec<&str> = LEVEL.iter().map(|(name, _)| *name).collect();
    head.extend(["profile", "backend", "model", "simulated"]);
    let row = |level: &Level| {
        let mut row: Vec<String> = LEVEL.iter().map(|(_, write)| write(level)).collect();
        row.extend([
            cell(level.profile.as_ref()),
            cell(e.engine.as_ref()),
            e.model.clone(),
            e.simulated.to_string(),
        ]);
        row
    };
    table(&head, &e.levels.iter().map(row).collect::<Vec<_>>())
}
