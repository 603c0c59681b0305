//! Tests of what an experiment looks like: the page, the tables, the figures.

use super::*;
use crate::capture::ErrorKind;
use crate::experiment::samples::{
    level_without_profile, refused_request, sample_head, sample_level,
};
use crate::experiment::{ExperimentKind, LevelRun, LevelState};

fn runs() -> Vec<LevelRun> {
    let mut eight = sample_level(8, 20_100 << 20, None);
    eight.requests.push(refused_request(99, ErrorKind::Status));
    vec![
        sample_level(1, 20_000 << 20, Some(8 << 20)),
        sample_level(2, 20_050 << 20, Some(16 << 20)),
        eight,
        level_without_profile(16, LevelState::Failed, "oom", "CUDA out of memory"),
        level_without_profile(
            32,
            LevelState::Skipped,
            "implied_oom",
            "a cell that needs no more ran out of memory",
        ),
    ]
}

/// What was not measured is a word, not a nought.
#[test]
fn nothing_unknown_is_written_as_nought() {
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs());
    let summary = String::from_utf8(summary_csv(&e)).unwrap();
    let mut table = csv::Reader::from_reader(summary.as_bytes());
    let column = |name: &str, row: &csv::StringRecord, head: &csv::StringRecord| {
        let at = head.iter().position(|h| h == name).unwrap();
        row[at].to_owned()
    };
    let head = table.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 5);
    for figure in ["total", "mean_latency_s", "peak_bytes", "kv_used_bytes"] {
        assert_eq!(column(figure, &rows[3], &head), "", "{figure}");
    }
    assert_eq!(column("peak_alloc_bytes", &rows[0], &head), "");
    assert_eq!(
        column("kv_used_bytes", &rows[0], &head),
        (8 << 20).to_string()
    );
}

#[test]
fn a_spreadsheet_contains_no_formula() {
    let runs = runs();
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    let mut records = e.request_records(&runs);
    records[0].model = "=cmd|' /C calc'!A0".into();
    let text = String::from_utf8(requests_csv(&records)).unwrap();
    assert!(text.contains(",'=cmd|"), "{text}");
    let head = text.lines().next().unwrap();
    assert!(head.starts_with("request_id,level,seq_prompt,seq_generate,total_latency_s"));
    // Once, beside the rows.
    let json: serde_json::Value =
        serde_json::from_slice(&requests_json(&e, &records).unwrap()).unwrap();
    assert!(json["not_measured"]["peak_alloc_bytes"].is_string());
    assert_eq!(json["rows"].as_array().unwrap().len(), records.len());
    assert!(json["rows"][0]["peak_alloc_bytes"].is_null());
}

#[test]
fn the_line_of_a_level_names_what_was_not_measured() {
    let full = RowFigures {
        completed: Some(31),
        mean_latency_ms: Some(412.1),
        tokens_per_second: Some(77.54),
        peak_bytes: Some(3 << 29),
        kv_used_bytes: Some(12 << 20),
        ..RowFigures::default()
    };
    assert_eq!(
        level_line(&full, 32),
        "completed 31/32, latency 0.412 s, 77.5 tok/s, peak 1.50 GiB, KV used 12.00 MiB"
    );
    let empty = level_line(&RowFigures::default(), 0);
    assert_eq!(
        empty,
        "completed: not measured, latency not measured, throughput not measured, peak not measured, KV used not measured"
    );
}
