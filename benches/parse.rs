//! How fast a serving log is read. Prints MB/s and, because a machine's speed says little, the
//! ratio to counting the newlines of the same buffer (memchr) in the same run.
//!
//! `cargo bench --bench parse`

#![allow(clippy::print_stdout)]

use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::vllm::log::VllmLogParser;
use std::hint::black_box;
use std::io::{BufReader, Write};
use std::time::{Duration, Instant};

/// Bytes of log.
const SIZE: usize = 64 << 20;
/// Times that each is measured; the fastest counts.
const ROUNDS: usize = 7;

fn main() {
    let log = serving_log(SIZE);
    let lines = memchr::memchr_iter(b'\n', &log).count();
    println!(
        "{} MB in {lines} lines, {} bytes each",
        log.len() / 1_000_000,
        log.len() / lines
    );
    let newlines = fastest(|| {
        black_box(memchr::memchr_iter(b'\n', black_box(&log)).count());
    });
    let parse = fastest(|| {
        let mut parser = VllmLogParser::new();
        let reader = BufReader::with_capacity(256 * 1024, black_box(log.as_slice()));
        let report = parse_reader(&mut parser, reader).expect("reading memory does not fail");
        assert_eq!(report.number("kv_cache_tokens"), Some(524_288.0));
        assert_eq!(report.number("kv_cache_usage_peak_pct"), Some(97.3));
        black_box(report);
    });
    // Every line a worker's, so every line is parsed: the slowest log there can be.
    let line = b"(Worker_TP0 pid=37) DEBUG 11-21 01:33:08 [v1/worker/gpu_worker.py:100] nothing of any interest to anybody at all\n";
    let worst = line.repeat(4 << 20 >> 7);
    let parse_worst = fastest(|| {
        let mut parser = VllmLogParser::new();
        black_box(
            parse_reader(&mut parser, black_box(worst.as_slice()))
                .expect("reading memory does not fail"),
        );
    });
    let rate = |time: Duration| log.len() as f64 / 1e6 / time.as_secs_f64();
    println!("newlines  {:>8.0} MB/s", rate(newlines));
    println!("parse     {:>8.0} MB/s", rate(parse));
    println!(
        "worst     {:>8.0} MB/s",
        worst.len() as f64 / 1e6 / parse_worst.as_secs_f64()
    );
    println!(
        "ratio     {:>8.2} times the newline count",
        parse.as_secs_f64() / newlines.as_secs_f64()
    );
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

/// A real start, then what a busy server prints: requests, statistics, prompts, progress bars,
/// and now and then something that must be parsed.
fn serving_log(size: usize) -> Vec<u8> {
    let start =
        include_bytes!("../tests/fixtures/vllm/captured/serve-eager-then-worker-killed.log");
    let start = String::from_utf8_lossy(start);
    let start = start
        .split("INFO:     Application startup complete.")
        .next()
        .unwrap_or_default();
    let start = start.replace("131,072 tokens", "524,288 tokens");
    let mut log = start.into_bytes();
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
