//! The vLLM log parser on our own fixtures: every log is read as a person reads it, however it
//! is cut into pieces, and whatever stands between its lines.

use plimsoll::engine::LogParser;
use plimsoll::engine::facts::key;
use plimsoll::engine::facts::{FactValue, LogReport};
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::vllm::log::VllmLogParser;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The fixtures: each log with what a person reads in it.
fn fixtures() -> Vec<(String, Vec<u8>, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm");
    let mut logs: Vec<PathBuf> = ["captured", "written"]
        .iter()
        .flat_map(|dir| fs::read_dir(root.join(dir)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs.into_iter()
        .map(|log| {
            let truth = fs::read(log.with_extension("json"))
                .unwrap_or_else(|e| panic!("{}: {e}", log.display()));
            let name = log.file_stem().unwrap().to_string_lossy().into_owned();
            (
                name,
                fs::read(&log).unwrap(),
                serde_json::from_slice(&truth).unwrap(),
            )
        })
        .collect()
}

fn read(log: &[u8]) -> (LogReport, Option<String>, bool) {
    let mut parser = VllmLogParser::default();
    let report = parse_reader(&mut parser, log).unwrap();
    (report, parser.root_cause(), parser.ready())
}

fn plain(value: &FactValue) -> Value {
    match value {
        FactValue::Bool(v) => json!(v),
        FactValue::Int(v) => json!(v),
        FactValue::Float(v) => json!(v),
        FactValue::Text(v) => json!(v),
        FactValue::List(v) => json!(v),
        FactValue::Record(_) | FactValue::Rows(_) => json!(value),
    }
}

/// Equal as figures: `[1, 2]` and `[1.0, 2.0]` are the same list.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        _ => a == b,
    }
}

#[test]
fn every_fixture_is_read_as_a_person_reads_it() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 30, "fixtures are missing");
    let mut wrong = Vec::new();
    for (name, log, truth) in &fixtures {
        let (report, cause, ready) = read(log);
        let mut differ = |what: &str, expected: &Value, got: Value| {
            if !equal(expected, &got) {
                wrong.push(format!("{name}: {what}: expected {expected}, got {got}"));
            }
        };
        let expected = truth["facts"].as_object().unwrap();
        for (key, value) in expected {
            differ(
                key,
                value,
                report
                    .facts
                    .get(key.as_str())
                    .map_or(Value::Null, |f| plain(&f.value)),
            );
        }
        for (key, fact) in report
            .facts
            .iter()
            .filter(|(key, _)| !expected.contains_key(key.name()))
        {
            differ(key.name(), &json!("nothing"), plain(&fact.value));
        }
        differ(
            "engine_version",
            &truth["engine_version"],
            json!(report.engine_version),
        );
        differ("ready", &truth["ready"], json!(ready));
        differ(
            "steps",
            &truth["steps"],
            json!(report.steps.iter().map(|m| m.step).collect::<Vec<_>>()),
        );
        differ(
            "findings",
            &truth["findings"],
            json!(report.findings.iter().map(|f| &f.code).collect::<Vec<_>>()),
        );
        let shown = match (truth["root_cause"].as_str(), &cause) {
            (Some(part), Some(cause)) => cause.contains(part),
            (None, None) => true,
            _ => false,
        };
        if !shown {
            differ("root_cause", &truth["root_cause"], json!(cause));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fact_quotes_a_line_of_the_log() {
    for (name, log, _) in fixtures() {
        let mut text = String::from_utf8_lossy(&log).into_owned();
        for colour in [
            "\u{1b}[1;36m",
            "\u{1b}[0;0m",
            "#033[1;36m",
            "#033[0;0m",
            "[1;36m",
            "[0;0m",
        ] {
            text = text.replace(colour, "");
        }
        for (key, fact) in read(&log).0.facts {
            assert!(!fact.quote.is_empty(), "{name}: {key}");
            let longest = fact.quote.iter().map(String::len).max();
            assert!(longest <= Some(620), "{name}: {key}: {longest:?} bytes");
            for part in fact.quote.iter().flat_map(|q| q.split(" … ")) {
                let part = part
                    .trim_end_matches(" …")
                    .split("[redacted]")
                    .next()
                    .unwrap_or_default();
                // A message that a terminal broke in two is quoted whole.
                let broken = part.contains("tokens per request: 244.14x");
                assert!(
                    broken || text.contains(part),
                    "{name}: {key}: no such line: {part}"
                );
            }
        }
    }
}

#[test]
fn no_secret_is_quoted() {
    let (_, log, _) = fixtures()
        .into_iter()
        .find(|(name, ..)| name == "v0-profile-in-three-lines")
        .unwrap();
    let report = serde_json::to_string(&read(&log).0).unwrap();
    assert!(
        String::from_utf8_lossy(&log).contains("sk-invented") && !report.contains("sk-invented")
    );
}

#[test]
fn a_step_carries_the_time_of_its_line() {
    use plimsoll::engine::facts::EngineStep;
    let mut parser = VllmLogParser::default();
    parser.line(
        b"INFO 05-09 22:20:50 [gpu_model_runner.py:1329] Starting to load model org/m...",
        Some(10),
    );
    parser.line(
        b"INFO 05-09 22:20:51 [loader.py:458] Loading weights took 0.17 seconds",
        Some(20),
    );
    parser.line(b"(Worker_TP0 pid=1) INFO 05-09 22:20:51 [a.py:1] Model loading took 1.0 GiB and 2.0 seconds", Some(30));
    parser.line(b"(Worker_TP1 pid=2) INFO 05-09 22:20:52 [a.py:1] Model loading took 1.0 GiB and 3.0 seconds", Some(40));
    assert!(!parser.ready());
    parser.line(b"INFO:     Application startup complete.", Some(50));
    assert!(parser.ready());
    let report = parser.report();
    assert_eq!(report.step_at(EngineStep::LoadingWeights), Some(10));
    // Weights are in when the last rank has them.
    assert_eq!(report.step_at(EngineStep::WeightsLoaded), Some(40));
    assert_eq!(report.step_at(EngineStep::Ready), Some(50));
}

#[test]
fn a_server_is_ready_when_the_server_says_so() {
    let init = "INFO 05-09 22:21:17 [core.py:159] init engine (profile, create kv cache, warmup model) took 26.22 seconds";
    // An offline run has nobody else to say it.
    assert!(read(init.as_bytes()).2);
    for server in [
        "INFO 05-09 22:20:00 [api_server.py:1043] vLLM API server version 0.8.5",
        "(APIServer pid=1) INFO 05-09 22:20:00 [model.py:733] Using max model len 4096",
    ] {
        assert!(!read(format!("{server}\n{init}").as_bytes()).2, "{server}");
    }
}

#[test]
fn a_line_that_ray_forwards_counts_once() {
    let weights =
        "INFO 01-01 00:00:00 [gpu_model_runner.py:1] Model loading took 14.0 GiB and 5.9 seconds";
    let log = format!(
        "(RayWorkerWrapper pid=44) {weights}\n(EngineCore_DP0 pid=9) (RayWorkerWrapper pid=44, ip=10.0.0.2) {weights}\n(RayWorkerWrapper pid=45) {weights}\n"
    );
    let report = read(log.as_bytes()).0;
    assert_eq!(
        report.facts["weights_gib"].value,
        FactValue::List(vec![14.0, 14.0])
    );
}

#[test]
fn of_a_chain_of_exceptions_the_last_explains() {
    let chain = "Traceback (most recent call last):\nrequests.exceptions.HTTPError: 404 Client Error: Not Found\n\nThe above exception was the direct cause of the following exception:\n\nOSError: org/m is not a local folder and is not a valid model identifier\n";
    let (report, cause, _) = read(chain.as_bytes());
    assert_eq!(
        cause.as_deref(),
        Some("OSError: org/m is not a local folder and is not a valid model identifier")
    );
    assert_eq!(report.text(key::failure), Some("model_not_found"));
    // Two errors that have nothing to do with each other: the first one came first.
    let (_, cause, _) = read(b"ValueError: one\nOSError: two\n");
    assert_eq!(cause.as_deref(), Some("ValueError: one"));
}

#[test]
fn the_estimate_of_graphs_is_taken_from_the_pool_line_when_it_stands_only_there() {
    let log = b"INFO 01-01 00:00:00 [gpu_worker.py:741] CUDA graph pool memory: 0.71 GiB (actual), 1.55 GiB (estimated), difference: 0.84 GiB (119.3%).";
    let report = read(log).0;
    assert_eq!(report.number(key::cuda_graph_estimated_gib), Some(1.55));
    assert_eq!(report.number(key::cuda_graph_pool_actual_gib), Some(0.71));
    assert_eq!(report.number(key::cuda_graph_gib), None);
}

/// Lines of a busy server that carry nothing.
const IRRELEVANT: &[&str] = &[
    r#"INFO:     127.0.0.1:34574 - "POST /v1/completions HTTP/1.1" 200 OK"#,
    "INFO 11-21 01:33:08 [loggers.py:335] Engine 000: Avg prompt throughput: 256.1 tokens/s, Avg generation throughput: 128.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
    "INFO 11-21 01:33:09 [logger.py:40] Received request cmpl-7: prompt: 'Model loading took 3.0 GiB and CUDA out of memory', params: SamplingParams(n=1)",
    "Processed prompts:  80%|████████  | 32/40 [00:00<00:00, 312.47it/s, est. speed input: 505.70 toks/s]",
    "Loading safetensors checkpoint shards:  20% Completed | 1/5 [00:02<00:09,  2.26s/it]",
    "",
];

fn facts(report: &LogReport) -> Map<String, Value> {
    report
        .facts
        .iter()
        // Two facts that lines of a busy server show: the fill of the pool, and that memory sufficed.
        .filter(|(key, fact)| {
            **key != key::kv_cache_usage_peak_pct
                && !(**key == key::oom && plain(&fact.value) == json!(false))
        })
        .map(|(key, fact)| (key.to_string(), json!([plain(&fact.value), fact.quote])))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_that_say_nothing_change_nothing(fixture in 0usize..30, places in prop::collection::vec((0usize..400, 0usize..IRRELEVANT.len()), 0..40)) {
        let fixtures = fixtures();
        let (name, log, _) = &fixtures[fixture % fixtures.len()];
        // Between the halves of a broken message nothing can stand.
        prop_assume!(name != "v1-0.8");
        let text = String::from_utf8_lossy(log).into_owned();
        let mut lines: Vec<&str> = text.split('\n').collect();
        for (place, irrelevant) in places {
            let place = place % (lines.len() + 1);
            lines.insert(place, IRRELEVANT[irrelevant]);
        }
        let (report, cause, ready) = read(lines.join("\n").as_bytes());
        let (plain_report, plain_cause, plain_ready) = read(text.as_bytes());
        prop_assert_eq!(facts(&report), facts(&plain_report));
        prop_assert_eq!((cause, ready), (plain_cause, plain_ready));
    }

    #[test]
    fn the_buffer_of_the_reader_changes_nothing(fixture in 0usize..40, buffer in 1usize..5000) {
        let fixtures = fixtures();
        let (_, log, _) = &fixtures[fixture % fixtures.len()];
        let mut parser = VllmLogParser::default();
        let report = parse_reader(&mut parser, BufReader::with_capacity(buffer, log.as_slice())).unwrap();
        prop_assert_eq!(report, read(log).0);
    }

    #[test]
    fn junk_is_read_without_panic_and_without_growing(log in junk()) {
        let (report, ..) = read(&log);
        let size = serde_json::to_vec(&report).unwrap().len();
        prop_assert!(size < 200_000, "a report of {size} bytes");
    }
}

/// Bytes of any kind, and lines that look like the engine's with the wrong things in them.
fn junk() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static str> = vec![
        "Model loading took ",
        "Available KV cache memory: ",
        "Maximum concurrency for ",
        " tokens per request: ",
        "GPU KV cache size: ",
        "# cuda blocks: ",
        ", # CPU blocks: ",
        "Free memory on device (",
        "/",
        " GiB",
        "GiB)",
        ") on startup. Desired GPU memory utilization is (",
        "--kv-cache-memory=",
        "Initializing a V1 LLM engine (v",
        " with config: model='",
        "non-default args: {'api_key': ['",
        "args: Namespace(",
        "(EngineCore_DP",
        "(Worker_TP",
        " pid=",
        ") ",
        "ERROR 01-01 00:00:00 [core.py:1] ",
        "ValueError: ",
        "Error in memory profiling. Initial free memory ",
        "\u{1b}[",
        "[1;36m",
        "#033[",
        "\r",
        "\n",
        "█ version ",
        "-",
        "9999999999999999999999999",
        "1,000",
        "0.5",
        "é",
        "[repeated ",
        "x across cluster]",
        "vllm serve ",
        "--block-size ",
        ": error: ",
        "KV cache usage: ",
        "%",
        "0, 1 MiB",
        "torch.OutOfMemoryError: CUDA out of memory",
        "Overriding num_gpu_blocks=",
        " with num_gpu_blocks_override=",
        "Auto set (",
        "in world size ",
        " is assigned as DP rank ",
    ];
    let piece = prop_oneof![
        4 => prop::sample::select(words).prop_map(|w| w.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => "[0-9.,-]{0,8}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..400).prop_map(|pieces| pieces.concat())
}

#[test]
fn memory_stays_bounded_however_many_ranks_print() {
    let mut parser = VllmLogParser::default();
    for n in 0..2_000u32 {
        let line = format!(
            "(Worker_TP{n} pid={n}) INFO 01-01 00:00:00 [a.py:1] Available KV cache memory: {n}.5 GiB {}",
            "y".repeat(2000)
        );
        parser.line(line.as_bytes(), None);
        parser.line(format!("(EngineCore_DP{n} pid={n}) INFO Initializing a V1 LLM engine (v1) with config: model='m'").as_bytes(), None);
        parser.line(
            format!("(RayWorkerWrapper pid={n}) {n} GiB").as_bytes(),
            None,
        );
    }
    let report = serde_json::to_vec(&parser.report()).unwrap();
    assert!(report.len() < 100_000, "{}", report.len());
}
