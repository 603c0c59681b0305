//! What the fuzz targets share: any bytes are a log, a reply, a result, a sweep file, the header of a model file.

use plimsoll::capture::Probe;
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::log::auto::AutoParser;
use plimsoll::engine::log::unwrap::Unwrapped;
use plimsoll::engine::{BenchKind, LogParser, by_name, parser_of};
use plimsoll::estimate::headers::{Headers, gguf, gguf_model, names, safetensors};
use plimsoll::estimate::{Deployment, EngineKind, weights};
use plimsoll::matrix;
use plimsoll::preset::Preset;
use std::collections::HashSet;

/// Reads `bytes` as `engine`'s log (`auto`: as anybody's): no panic, and a report of bounded size.
/// That time grows no faster than the log is for libFuzzer's `-timeout` to find.
pub fn log(engine: &str, bytes: &[u8]) {
    let mut parser: Box<dyn LogParser> = match by_name(engine) {
        Some(engine) => parser_of(engine),
        None => Box::new(Unwrapped::new(Box::new(AutoParser::new()))),
    };
    let report = parse_reader(parser.as_mut(), bytes).expect("reading memory does not fail");
    let _ = (parser.root_cause(), parser.ready(), parser.steps_seen());
    let quotes = report.facts.values().flat_map(|fact| &fact.quote);
    let size: usize = quotes.map(String::len).sum();
    assert!(size < 2_000_000, "{size} bytes of quotes");
    serde_json::to_vec(&report).expect("a report is JSON");
}

/// Reads `bytes` as the reply of each of `engine`'s endpoints, and as a bench's result and output.
pub fn replies(engine: &str, bytes: &[u8]) {
    let engine = by_name(engine).expect("an engine of the list");
    let text = String::from_utf8_lossy(bytes);
    let probes: Vec<Probe> = engine
        .endpoints()
        .iter()
        .map(|path| Probe {
            path: (*path).to_owned(),
            status: Some(200),
            body: text.clone().into_owned(),
            ..Probe::default()
        })
        .collect();
    let _ = engine.read_probes(&probes);
    for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
        let _ = engine.read_bench(kind, &text);
        for line in text.lines() {
            let _ = engine.bench_progress(kind, line);
        }
    }
}

/// The most cells that a file is multiplied out to here: more take time and find nothing.
const CELLS: usize = 2000;

/// Reads `bytes` as a sweep file: cells, each once, or a mistake with its place; no panic.
pub fn sweep_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let var = |name: &str| name.starts_with('A').then(|| "1,2".to_owned());
    match matrix::read_at_most(CELLS, "file", &text, &var, &|_| Ok(Preset::default())) {
        Ok(sweep) => {
            let ids: HashSet<_> = sweep.cells.iter().map(|cell| &cell.id).collect();
            assert!(!ids.is_empty() && ids.len() == sweep.cells.len());
            assert!(!sweep.name.is_empty() && !sweep.name.contains('/'));
        }
        Err(failure) => {
            let told = failure.message.strip_prefix("file:");
            let line = told.and_then(|t| t.split(':').next());
            let placed = line.is_some_and(|l| l.parse::<usize>().is_ok());
            assert!(placed || text.len() > 4 << 20, "{failure}");
            assert!(failure.message.len() < 4096, "{failure}");
        }
    }
}

/// Reads `bytes` as a safetensors file and as an index; what is read lies within the file.
pub fn safetensors_file(bytes: &[u8]) {
    let size = bytes.len() as u64;
    if let Ok(tensors) = safetensors::parse(bytes, Some(size)) {
        let sum: u64 = tensors.iter().map(|t| t.bytes).sum();
        assert!(sum <= size, "{sum} bytes of tensors in a file of {size}");
        for tensor in &tensors {
            let _ = names::find(&tensor.name, 4);
        }
    }
    // The same bytes as the JSON of a header.
    let mut whole = size.to_le_bytes().to_vec();
    whole.extend_from_slice(bytes);
    let _ = safetensors::parse(&whole, None);
    let _ = safetensors::index_files(bytes);
}

/// Reads `bytes` as a GGUF file, makes a model of it and counts its weights.
pub fn gguf_file(bytes: &[u8]) {
    for size in [None, Some(bytes.len() as u64)] {
        let Ok(read) = gguf::parse(bytes, size) else {
            continue;
        };
        let Ok(model) = gguf_model::model(&read, "fuzzed", "fuzzed") else {
            continue;
        };
        let headers = Headers {
            tensors: read.tensors,
            gguf: true,
            source: String::new(),
        };
        for (engine, tp) in [(EngineKind::LlamaCpp, 1), (EngineKind::Vllm, 2)] {
            let mut deployment = Deployment::of(engine);
            deployment.tp = tp;
            let _ = weights::from_headers(&model, &headers, &deployment);
        }
    }
}
