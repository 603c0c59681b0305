//! What the fuzz targets share: any bytes are a log, a reply, a result, a sweep file.

use plimsoll::capture::Probe;
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::log::auto::AutoParser;
use plimsoll::engine::log::unwrap::Unwrapped;
use plimsoll::engine::{BenchKind, LogParser, by_name, parser_of};
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
