//! The log parser against logs of many releases, read by hand. The logs lie outside the project
//! (they are other people's); without them the test says so and passes.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use plimsoll::engine::LogParser;
use plimsoll::engine::facts::{FactValue, LogReport};
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::vllm::log::VllmLogParser;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "common/skip.rs"]
mod skip;

/// Expectations that the log's own text contradicts.
const DISPUTED: &[(&str, &str, &str)] = &[
    (
        "077",
        "weights_gib",
        "says null; the log says `Loading model weights took in total 14.97 GiB of device memory`",
    ),
    (
        "091",
        "cuda_graph_gib",
        "takes the summary line's figure, which 051 and 055 keep out of this key (it has one of its own)",
    ),
];

fn corpus() -> Option<Vec<PathBuf>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus/vllm");
    let dir = std::env::var_os("PLIMSOLL_CORPUS").map_or(dir, PathBuf::from);
    let mut cases: Vec<PathBuf> = fs::read_dir(dir)
        .ok()?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    cases.sort();
    Some(cases)
}

fn report(log: &[u8]) -> LogReport {
    let mut parser = VllmLogParser::new();
    let report = parse_reader(&mut parser, log).expect("reading memory does not fail");
    let _ = parser.root_cause();
    report
}

#[test]
fn every_case_is_read_as_a_person_reads_it() {
    let Some(cases) = corpus() else {
        skip::skip(
            "every_case_is_read_as_a_person_reads_it",
            "no corpus of vLLM logs beside the project (PLIMSOLL_CORPUS names another place)",
        );
        return;
    };
    let mut wrong = Vec::new();
    let mut right = 0;
    for case in &cases {
        let id = case.file_stem().unwrap().to_string_lossy().into_owned();
        let truth: Value = serde_json::from_slice(&fs::read(case).unwrap()).unwrap();
        let log = fs::read(case.with_extension("log")).unwrap();
        let report = report(&log);
        let before = wrong.len();
        for (key, expected) in truth["expected"].as_object().unwrap() {
            if DISPUTED.iter().any(|(i, k, _)| *i == id && k == key) {
                continue;
            }
            let got = report.facts.get(key).map(|f| &f.value);
            if !same(expected, got) {
                wrong.push(format!("{id} {key}: expected {expected}, got {got:?}"));
            }
        }
        named_in_the_log(&id, &truth, &report, &log, &mut wrong);
        for (key, fact) in &report.facts {
            if let Err(why) = witnessed(key, &fact.value, &fact.quote) {
                wrong.push(format!("{id} {key}: {why}: {:?}", fact.quote));
            }
        }
        right += usize::from(wrong.len() == before);
    }
    println!("{right} of {} cases", cases.len());
    assert!(
        wrong.is_empty(),
        "{right} of {} cases right\n{}",
        cases.len(),
        wrong.join("\n")
    );
}

/// Fields beside `expected` that the log itself names.
fn named_in_the_log(
    id: &str,
    truth: &Value,
    report: &LogReport,
    log: &[u8],
    wrong: &mut Vec<String>,
) {
    let absent: Vec<&str> = truth["metadata_not_in_log"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for key in [
        "model",
        "dtype",
        "quantization",
        "kv_cache_dtype",
        "max_model_len",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "gpu_memory_utilization",
        "engine_generation",
    ] {
        let expected = &truth[key];
        if expected.is_null() || absent.contains(&key) {
            continue;
        }
        let got = report.facts.get(key).map(|f| &f.value);
        let equal = match (key, expected.as_str(), got) {
            // Some cases name the model by the last part of its path, or say what the path is.
            ("model", Some(name), Some(FactValue::Text(path))) => {
                let name = name.split(" (").next().unwrap_or(name);
                path == name || path.ends_with(&format!("/{name}"))
            }
            _ => same(expected, got),
        };
        if !equal {
            wrong.push(format!("{id} {key}: expected {expected}, got {got:?}"));
        }
    }
    // Versions found by other means than the log's words are not in the log.
    if let (Some(version), Some("banner")) =
        (truth["version"].as_str(), truth["version_basis"].as_str())
        && String::from_utf8_lossy(log).contains(&format!("version {version}"))
            | String::from_utf8_lossy(log).contains(&format!("(v{version})"))
        && report.engine_version.as_deref() != Some(version)
    {
        wrong.push(format!(
            "{id} engine_version: expected {version}, got {:?}",
            report.engine_version
        ));
    }
}

fn same(expected: &Value, got: Option<&FactValue>) -> bool {
    match (expected, got) {
        (Value::Null, None) => true,
        (Value::Bool(a), Some(FactValue::Bool(b))) => a == b,
        (Value::String(a), Some(FactValue::Text(b))) => a == b,
        (Value::Number(a), Some(FactValue::Int(b))) => a.as_f64() == Some(*b as f64),
        (Value::Number(a), Some(FactValue::Float(b))) => a.as_f64() == Some(*b),
        (Value::Array(a), Some(FactValue::List(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.as_f64() == Some(*b))
        }
        _ => false,
    }
}

/// Whether the quote shows the figure.
fn witnessed(key: &str, value: &FactValue, quote: &str) -> Result<(), String> {
    if key == "oom" && *value == FactValue::Bool(false) {
        return if quote.is_empty() {
            Ok(())
        } else {
            Err("quotes a line for what did not happen".into())
        };
    }
    if quote.is_empty() {
        return Err("no quote".into());
    }
    if quote.len() > 620 {
        return Err(format!("quote of {} bytes", quote.len()));
    }
    let first = match value {
        FactValue::Int(v) => *v as f64,
        FactValue::Float(v) => *v,
        FactValue::List(v) => v[0],
        _ => return Ok(()),
    };
    // Sizes concluded from ranks show the rank, one less.
    let concluded = key.ends_with("_parallel_size");
    let folded = key == "weights_print_count_true";
    let digits = quote.replace(',', "");
    let shows = digits
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .any(|word| {
            let word = word.trim_matches('.');
            word.parse::<f64>()
                .is_ok_and(|n| n == first.abs() || (concluded && n == first - 1.0))
        });
    if shows || folded || concluded || quote.contains("GiB/") {
        Ok(())
    } else {
        Err(format!("quote without {first}"))
    }
}
