//! The log parser against logs of many releases, read by hand. The logs lie outside the project
//! (they are other people's); without them the test says so and passes.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use crate::common::skip;
use plimsoll::engine::facts::{Fact, FactValue, LogReport};
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::log::auto::AutoParser;
use plimsoll::engine::vllm::log::VllmLogParser;
use plimsoll::engine::{EngineId, LogParser, parser_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

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
    (
        "sglang-109",
        "weights_gib",
        "one figure for six ranks that each print theirs",
    ),
    (
        "sglang-109",
        "kv_cache_gib",
        "one figure for three ranks that each print theirs",
    ),
    (
        "sglang-117",
        "kv_cache_tokens",
        "the number ends its line, so its last digits may be cut off",
    ),
    ("206", "model", "the log has the path /model alone"),
];

/// Where the cases of each kind lie.
const VLLM: [&str; 2] = ["vllm", "2026/vllm"];
const OTHER: [&str; 2] = ["other", "2026/other"];

/// The cases of some folders; `None` where the first of them is not there.
fn corpus_of(folders: [&str; 2]) -> Option<Vec<PathBuf>> {
    let mut cases = corpus(folders[0])?;
    cases.extend(corpus(folders[1]).unwrap_or_default());
    Some(cases)
}

/// The engine of a case: some name it as its maker writes it.
fn engine_of(truth: &Value) -> EngineId {
    let name = truth["engine"].as_str().unwrap_or("vllm");
    EngineId::from_name(name).expect("an engine of the corpus")
}

fn corpus(folder: &str) -> Option<Vec<PathBuf>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let dir = std::env::var_os("PLIMSOLL_CORPUS").map_or(beside, PathBuf::from);
    let mut cases: Vec<PathBuf> = fs::read_dir(dir.join(folder))
        .ok()?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    cases.sort();
    Some(cases)
}

fn report(mut parser: Box<dyn LogParser>, log: &[u8]) -> LogReport {
    let report = parse_reader(parser.as_mut(), log).expect("reading memory does not fail");
    let _ = parser.root_cause();
    report
}

#[test]
fn every_vllm_case_is_read_as_a_person_reads_it() {
    let Some(cases) = corpus_of(VLLM) else {
        return no_corpus("every_vllm_case_is_read_as_a_person_reads_it");
    };
    let mut table = Table::default();
    for case in &cases {
        let (id, truth, log) = read_case(case);
        let report = report(Box::new(VllmLogParser::default()), &log);
        for (key, expected) in truth["expected"].as_object().unwrap() {
            if DISPUTED.iter().any(|(i, k, _)| *i == id && k == key) {
                continue;
            }
            let got = report.facts.get(key.as_str());
            if expected.is_null() && got.is_some() {
                table
                    .wrong
                    .push(format!("{id} {key}: expected nothing, got {got:?}"));
            }
            table.compare("vllm", &id, key, expected, got);
        }
        named_in_the_log(&id, &truth, &report, &log, &mut table.wrong);
        table.all_witnessed(&id, &report);
    }
    table.judge(cases.len());
}

#[test]
fn every_other_case_is_read_as_a_person_reads_it() {
    let Some(cases) = corpus_of(OTHER) else {
        return no_corpus("every_other_case_is_read_as_a_person_reads_it");
    };
    let mut table = Table::default();
    for case in &cases {
        let (id, truth, log) = read_case(case);
        let engine = engine_of(&truth);
        let report = report(parser_of(engine), &log);
        for (key, expected) in truth["expected"].as_object().unwrap() {
            if DISPUTED.iter().any(|(i, k, _)| *i == id && k == key) {
                continue;
            }
            table.compare(
                engine.name,
                &id,
                key,
                expected,
                report.facts.get(key.as_str()),
            );
        }
        table.all_witnessed(&id, &report);
    }
    table.judge(cases.len());
}

#[test]
fn a_log_of_unknown_origin_finds_its_engine() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for folders in [VLLM, OTHER] {
        let Some(cases) = corpus_of(folders) else {
            return no_corpus("a_log_of_unknown_origin_finds_its_engine");
        };
        for case in &cases {
            let (id, truth, log) = read_case(case);
            let engine = engine_of(&truth);
            let told = report(Box::new(AutoParser::default()), &log).engine;
            seen += 1;
            if told != engine.name {
                wrong.push(format!("{id}: of {}, told as {told}", engine.name));
            }
        }
    }
    assert!(wrong.is_empty(), "of {seen} logs\n{}", wrong.join("\n"));
}

#[test]
fn every_carrier_gives_the_same_facts() {
    let mut differ = Vec::new();
    for folders in [VLLM, OTHER] {
        let Some(cases) = corpus_of(folders) else {
            return no_corpus("every_carrier_gives_the_same_facts");
        };
        for case in &cases {
            let (id, truth, log) = read_case(case);
            let engine = engine_of(&truth);
            // A body of an endpoint is no log.
            if log.starts_with(b"{") || log.starts_with(b"[{") {
                continue;
            }
            let plain = values(&report(parser_of(engine), &log));
            for (carrier, carried) in carried(&log) {
                let got = values(&report(parser_of(engine), &carried));
                if got != plain {
                    differ.push(format!("{id} in {carrier}: {got:?}\n  plain: {plain:?}"));
                }
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} differ\n{}",
        differ.len(),
        differ.join("\n")
    );
}

/// The same log as others would hand it over.
fn carried(log: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = String::from_utf8_lossy(log).into_owned();
    let lines = || text.lines();
    let each = |f: &dyn Fn(&str) -> String| lines().map(f).collect::<String>().into_bytes();
    let docker = |line: &str| {
        let record = |log: String| serde_json::json!({"log": log, "stream": "stderr", "time": "2026-01-01T00:00:00Z"});
        // Docker parts a line after 16 KiB; here after far less, so that every line is parted.
        let at = line.char_indices().nth(40).map_or(line.len(), |(at, _)| at);
        match line.split_at(at) {
            (all, "") => format!("{}\n", record(format!("{all}\n"))),
            (head, tail) => format!(
                "{}\n{}\n",
                record(head.to_owned()),
                record(format!("{tail}\n"))
            ),
        }
    };
    vec![
        ("CRLF", each(&|l| format!("{l}\r\n"))),
        ("docker json-file", each(&docker)),
        (
            "Kubernetes",
            each(&|l| format!("2026-01-01T00:00:00.000000001Z stderr F {l}\n")),
        ),
        (
            "colour as CloudWatch spells it",
            each(&|l| format!("#033[1m{l}#033[0m\n")),
        ),
        ("docker compose", each(&|l| format!("eng-1  | {l}\n"))),
    ]
}

fn values(report: &LogReport) -> BTreeMap<String, FactValue> {
    let pairs = report.facts.iter();
    pairs
        .map(|(k, f)| (k.to_string(), f.value.clone()))
        .collect()
}

fn no_corpus(test: &str) {
    let reason = "no corpus of logs beside the project (PLIMSOLL_CORPUS names another place)";
    skip::skip(test, reason);
}

fn read_case(case: &Path) -> (String, Value, Vec<u8>) {
    let id = case.file_stem().unwrap().to_string_lossy().into_owned();
    let truth = serde_json::from_slice(&fs::read(case).unwrap()).unwrap();
    (id, truth, fs::read(case.with_extension("log")).unwrap())
}

/// Fields by engine: right, wrong, missing, and told though nobody expected it.
#[derive(Default)]
struct Table {
    fields: BTreeMap<(String, String), [usize; 4]>,
    wrong: Vec<String>,
}

impl Table {
    fn compare(&mut self, engine: &str, id: &str, key: &str, expected: &Value, got: Option<&Fact>) {
        let place = match (expected, got) {
            (Value::Null, None) => return,
            // A line says so: the excerpt's reader left it out.
            (Value::Null, Some(_)) => 3,
            (_, None) => 2,
            (_, Some(fact)) => usize::from(!same(expected, &fact.value)),
        };
        let row = (engine.to_owned(), key.to_owned());
        self.fields.entry(row).or_default()[place] += 1;
        // A person reads from silence that nothing lacked; the parser needs a line.
        let silent = key == "oom" && expected == &Value::Bool(false) && got.is_none();
        if (place == 1 || place == 2) && !silent {
            let got = got.map(|f| &f.value);
            self.wrong
                .push(format!("{id} {key}: expected {expected}, got {got:?}"));
        }
    }

    fn all_witnessed(&mut self, id: &str, report: &LogReport) {
        for (key, fact) in &report.facts {
            if let Err(why) = witnessed(key.name(), fact) {
                self.wrong
                    .push(format!("{id} {key}: {why}: {:?}", fact.quote));
            }
        }
    }

    fn judge(&self, cases: usize) {
        println!(
            "{:14} {:34} right wrong missing unexpected",
            "engine", "field"
        );
        for ((engine, key), [right, wrong, missing, more]) in &self.fields {
            println!("{engine:14} {key:34} {right:5} {wrong:5} {missing:7} {more:10}");
        }
        let all = "\n".to_owned() + &self.wrong.join("\n");
        assert!(
            self.wrong.is_empty(),
            "{} in {cases} cases{all}",
            self.wrong.len()
        );
    }
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
        let disputed = DISPUTED.iter().any(|(i, k, _)| *i == id && *k == key);
        if expected.is_null() || absent.contains(&key) || disputed {
            continue;
        }
        let got = report.facts.get(key).map(|f| &f.value);
        let equal = match (key, expected.as_str(), got) {
            // Some cases name the model by the last part of its path, or say what the path is.
            ("model", Some(name), Some(FactValue::Text(path))) => {
                let name = name.split(" (").next().unwrap_or(name);
                path == name || path.ends_with(&format!("/{name}"))
            }
            _ => got.is_some_and(|got| same(expected, got)),
        };
        if !equal {
            wrong.push(format!("{id} {key}: expected {expected}, got {got:?}"));
        }
    }
    // Versions found by other means than the log's words are not in the log.
    if let (Some(version), Some("banner")) =
        (truth["version"].as_str(), truth["version_basis"].as_str())
    {
        if String::from_utf8_lossy(log).contains(&format!("version {version}"))
            | String::from_utf8_lossy(log).contains(&format!("(v{version})"))
            && report.engine_version.as_deref() != Some(version)
        {
            wrong.push(format!(
                "{id} engine_version: expected {version}, got {:?}",
                report.engine_version
            ));
        }
    }
}

fn same(expected: &Value, got: &FactValue) -> bool {
    // The corpus gives what is printed in MiB with four figures.
    let near = |a: &Value, b: f64| {
        a.as_f64()
            .is_some_and(|a| (a - b).abs() <= 6e-5_f64.max(6e-4 * b.abs().min(1.0)))
    };
    match (expected, got) {
        (Value::Bool(a), FactValue::Bool(b)) => a == b,
        (Value::String(a), FactValue::Text(b)) => label(a) == b,
        (Value::Number(a), FactValue::Int(b)) => a.as_f64() == Some(*b as f64),
        (a @ Value::Number(_), FactValue::Float(b)) => near(a, *b),
        (Value::Array(a), FactValue::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, *b))
        }
        (Value::Array(a), FactValue::Rows(b)) => {
            let row = |(a, b): (&Value, &BTreeMap<String, FactValue>)| {
                same(a, &FactValue::Record(b.clone()))
            };
            a.len() == b.len() && a.iter().zip(b).all(row)
        }
        (Value::Object(a), FactValue::Record(b)) => a
            .iter()
            .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b))),
        _ => false,
    }
}

/// Whether the quotes show the figure.
fn witnessed(key: &str, fact: &Fact) -> Result<(), String> {
    if fact.quote.iter().all(String::is_empty) {
        return Err("no quote".to_owned());
    }
    if let Some(long) = fact.quote.iter().find(|q| q.len() > 620) {
        return Err(format!("quote of {} bytes", long.len()));
    }
    let first = match &fact.value {
        FactValue::Int(v) => *v as f64,
        FactValue::Float(v) => *v,
        FactValue::List(v) => v[0],
        _ => return Ok(()),
    };
    let quote = fact.quote.join(" ");
    // Sizes concluded from ranks show the rank, one less.
    let concluded = key.ends_with("_parallel_size");
    let folded = key == "weights_print_count_true";
    let digits = quote.replace(',', "");
    let printed: Vec<f64> = digits
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .filter_map(|word| word.trim_matches('.').parse().ok())
        .collect();
    // In GB of 1e9 bytes, MiB, KiB or bytes, or as a sum or product of what the line shows, or as a count of items.
    let scales = [
        1.0,
        1.073_741_824,
        1024.0,
        1024.0 * 1024.0,
        1024.0 * 1024.0 * 1024.0,
    ];
    let shows = printed
        .iter()
        .any(|n| scales.iter().any(|s| (n / s - first.abs()).abs() < 1e-9))
        || printed.iter().any(|n| concluded && *n == first - 1.0)
        || pairs(&printed)
            .any(|(a, b)| (a + b - first).abs() < 1e-6 || (a * b - first).abs() < 1e-6)
        || printed.len() as f64 >= first;
    if shows || folded || concluded || quote.contains("GiB/") {
        Ok(())
    } else {
        Err(format!("quote without {first}"))
    }
}

/// A failure as the parser names it: some cases have a remark in their names.
fn label(expected: &str) -> &str {
    match expected {
        "EngineCore failed to start (cause not in the excerpt)" => "start_failed",
        "draft model weights not found (not memory)" => "draft_model_weights_not_found",
        "model weights not found (not memory)" => "model_weights_not_found",
        other => other,
    }
}

fn pairs(all: &[f64]) -> impl Iterator<Item = (f64, f64)> + '_ {
    all.iter()
        .enumerate()
        .flat_map(|(i, a)| all[i + 1..].iter().map(move |b| (*a, *b)))
}
