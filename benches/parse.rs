//! How fast a serving log is read. Prints MB/s and, because a machine's speed says little, the
//! ratio to counting the newlines of the same buffer (memchr) in the same run.
//!
//! `cargo bench --bench parse`

#![allow(clippy::print_stdout)]

use plimsoll::engine::facts::key;
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::log::auto::AutoParser;
use plimsoll::engine::log::unwrap::Unwrapped;
use plimsoll::engine::vllm::log::VllmLogParser;
use plimsoll::engine::{EngineId, LogParser, parser_of};
use std::hint::black_box;
use std::io::{BufReader, Write};
use std::time::{Duration, Instant};

/// Bytes of log.
const SIZE: usize = 64 << 20;
/// Times that each is measured; the fastest counts.
const ROUNDS: usize = 7;

fn main() {
    let log = serving_log(SIZE);
    // Every line a worker's, so every line is parsed: the slowest log there can be.
    let line = b"(Worker_TP0 pid=37) DEBUG 11-21 01:33:08 [v1/worker/gpu_worker.py:100] nothing of any interest to anybody at all\n";
    let worst = line.repeat(4 << 20 >> 7);
    // Nothing but start-up lines, most of which carry something.
    let starts = start_log().repeat(16 << 20 >> 13).into_bytes();
    // The first argument selects one of them, for a profiler.
    let only = std::env::args()
        .nth(1)
        .filter(|name| !name.starts_with('-'));
    let selected = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let engine = || parser_of(EngineId::Vllm);
    let auto = || Box::new(Unwrapped::new(Box::new(AutoParser::default()))) as Box<dyn LogParser>;
    type ParserOf<'a> = &'a dyn Fn() -> Box<dyn LogParser>;
    let cases: [(&str, &[u8], ParserOf); 4] = [
        ("parse", &log, &|| Box::new(VllmLogParser::default())),
        ("worst", &worst, &|| Box::new(VllmLogParser::default())),
        ("starts", &starts, &engine),
        ("auto", &starts, &auto),
    ];
    println!(
        "{} MB, {} bytes a line",
        log.len() / 1_000_000,
        log.len() / newlines(&log)
    );
    let counting = fastest(|| {
        black_box(newlines(black_box(&log)));
    });
    println!("newlines  {:>8.0} MB/s", rate(&log, counting));
    for (name, log, parser) in cases.into_iter().filter(|(name, ..)| selected(name)) {
        let time = fastest(|| {
            let mut parser = parser();
            let reader = BufReader::with_capacity(256 * 1024, black_box(log));
            let report = parse_reader(parser.as_mut(), reader).expect("memory can be read");
            assert!(name == "worst" || report.number(key::kv_cache_tokens) == Some(524_288.0));
            assert!(name != "parse" || report.number(key::kv_cache_usage_peak_pct) == Some(97.3));
            black_box(report);
        });
        println!("{name:<9} {:>8.0} MB/s", rate(log, time));
        if name == "parse" {
            let ratio = time.as_secs_f64() / counting.as_secs_f64();
            println!("ratio     {ratio:>8.2} times the newline count");
        }
    }
}

fn newlines(log: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', log).count()
}

fn rate(log: &[u8], time: Duration) -> f64 {
    log.len() as f64 / 1e6 / time.as_secs_f64()
}

fn fastest(mut run: impl FnMut()) -> Duration {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    (0..ROUNDS)
        .map(|_| time(&mut run))
        .min()
        .unwrap_or_default()
}

/// The lines of a real start.
fn start_log() -> String {
    let start =
        include_bytes!("../tests/fixtures/vllm/captured/serve-eager-then-worker-killed.log");
    let start = String::from_utf8_lossy(start);
    let start = start
        .split("INFO:     Application startup complete.")
        .next()
        .unwrap_or_default();
    start.replace("131,072 tokens", "524,288 tokens")
}

/// A real start, then what a busy server prints: requests, statistics, prompts, progress bars,
/// and now and then something that must be parsed.
fn serving_log(size: usize) -> Vec<u8> {
    let mut log = start_log().into_bytes();
    let mut seed = 7u32;
    let mut n = 0u64;
    while log.len() < size {
        // A small generator: the same log in every run.
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (dice, port) = (seed >> 16 & 127, 30_000 + (seed >> 20 & 4095));
        let usage = f64::from(seed >> 22 & 1023).min(972.0) / 10.0 + 0.1;
        n += 1;
        let _ = match dice {
            0..=69 => writeln!(log, "INFO:     172.17.0.1:{port} - \"POST /v1/completions HTTP/1.1\" 200 OK"),
            70..=95 => writeln!(
                log,
                "(APIServer pid=1) INFO 11-21 01:{:02}:{:02} [loggers.py:335] Engine 000: Avg prompt throughput: {n}.1 tokens/s, Avg generation throughput: 128.0 tokens/s, Running: {dice} reqs, Waiting: 0 reqs, GPU KV cache usage: {usage:.1}%, Prefix cache hit rate: 0.0%",
                n / 60 % 60,
                n % 60
            ),
            96..=111 => writeln!(
                log,
                "(APIServer pid=1) INFO 11-21 01:33:08 [logger.py:40] Received request cmpl-{n:x}: prompt: 'Once upon a time there was a ship, and the line on her side told how deep she lay.', params: SamplingParams(n=1, temperature=1.0, top_p=1.0, max_tokens=128), prompt_token_ids: None, lora_request: None."
            ),
            112..=126 => write!(
                log,
                "\rProcessed prompts:  {:>2}%|████████  | {dice}/128 [00:{:02}<00:10, 312.47it/s, est. speed input: 505.70 toks/s, output: 252.85 toks/s]",
                dice * 100 / 128,
                n % 60
            )
            .and_then(|()| if dice == 126 { writeln!(log) } else { Ok(()) }),
            _ => writeln!(log, "(EngineCore pid=26) WARNING 11-21 01:33:08 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead of the other backend."),
        };
    }
    log
}
