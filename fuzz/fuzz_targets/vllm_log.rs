//! Any bytes are a log: no panic, and a report of bounded size. The property test
//! `junk_is_read_without_panic_and_without_growing` in tests/vllm_log.rs runs the same body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::engine::LogParser;
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::vllm::log::VllmLogParser;

fuzz_target!(|log: &[u8]| {
    let mut parser = VllmLogParser::new();
    let report = parse_reader(&mut parser, log).expect("reading memory does not fail");
    let _ = (parser.root_cause(), parser.ready());
    let size: usize = report.facts.values().map(|fact| fact.quote.len()).sum();
    assert!(size < 200_000);
});
