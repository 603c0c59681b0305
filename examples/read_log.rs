//! Reads an engine's log from standard input and prints what it says, as JSON; or, with the argument `signs`, every text
//! that the readers of all engines look for.
//!
//! `docker logs NAME 2>&1 | cargo run --release --example read_log`

#![allow(clippy::print_stdout)]

use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::vllm::log::VllmLogParser;
use plimsoll::engine::{EngineId, LogParser};
use std::collections::BTreeMap;
use std::io::{BufReader, stdin};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("signs") {
        let signs: BTreeMap<&str, Vec<&str>> = (EngineId::ALL.iter())
            .map(|engine| (engine.name, (engine.log_signs)()))
            .collect();
        println!("{}", serde_json::to_string(&signs)?);
        return Ok(());
    }
    let mut parser = VllmLogParser::default();
    let report = parse_reader(&mut parser, BufReader::with_capacity(256 * 1024, stdin()))?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    if let Some(cause) = parser.root_cause() {
        println!("root cause: {cause}");
    }
    Ok(())
}
