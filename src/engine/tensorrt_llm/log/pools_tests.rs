//! Tests of the KV pools: which of several ranks' pools stay. Every line is written for them.

use crate::engine::LogParser;
use crate::engine::facts::LogReport;
use crate::engine::facts::key;
use crate::engine::lines::parse_reader;
use crate::engine::tensorrt_llm::log::TrtLlmLogParser;

fn report(log: &str) -> LogReport {
    let mut parser = TrtLlmLogParser::default();
    parse_reader(&mut parser, log.as_bytes()).unwrap();
    parser.report()
}

const TWO_RANKS: &str = "\
[TensorRT-LLM][INFO] MPI size: 2, rank: 0
[TensorRT-LLM][INFO] MPI size: 2, rank: 1
";

/// A pool as a rank prints it, without its number.
fn pool(blocks: u64, gib: &str) -> String {
    format!(
        "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 128 [window size=4096], tokens per block=32, primary blocks={blocks}, secondary blocks=0\n\
         [TensorRT-LLM][INFO] [MemUsageChange] Allocated {gib} GiB for max tokens in paged KV cache ({}).\n",
        blocks * 32
    )
}

/// The same with its number, as later releases have it.
fn pool_of(rank: u64, blocks: u64, gib: &str) -> String {
    let tag = format!("[TRT-LLM] [I] [batchmgr][RANK {rank}]");
    pool(blocks, gib).replace("[TensorRT-LLM][INFO]", &tag)
}

/// The end of a rank's profile.
fn end(rank: u64) -> String {
    format!(
        "[T] [TRT-LLM] [RANK {rank}] [I] Peak memory during memory usage profiling (torch + non-torch): 12.00 GiB, available KV cache memory when calculating max tokens: 20.00 GiB\n\
         [T] [TRT-LLM] [RANK {rank}] [I] Estimated max memory in KV cache : 20.00 GiB\n"
    )
}

/// Asserts that both final pools of 20 GiB are reported, and the one to profile with beside them.
fn assert_final(log: &str) {
    let report = report(log);
    let shown = |key: &str| report.facts.get(key).map(|f| f.value.numbers());
    assert_eq!(shown("kv_cache_gib"), Some(vec![20.0; 2]), "{log}");
    assert_eq!(shown("kv_cache_tokens"), Some(vec![163_840.0; 2]), "{log}");
    assert_eq!(shown("num_gpu_blocks"), Some(vec![5120.0; 2]), "{log}");
    assert_eq!(
        report.facts["estimation_pool"].value.to_string(),
        "kv_cache_gib 1.2, kv_cache_tokens 9600, num_gpu_blocks 300",
        "{log}"
    );
}

#[test]
fn a_rank_that_ends_its_profile_late_takes_no_final_pool_away() {
    let (first, last) = (pool(300, "1.20"), pool(5120, "20.00"));
    for order in [
        [&first, &first, &end(0), &end(1), &last, &last],
        [&first, &first, &end(0), &last, &last, &end(1)],
        [&first, &first, &end(1), &last, &last, &end(0)],
        [&first, &first, &end(0), &last, &end(1), &last],
        [&first, &end(0), &first, &end(1), &last, &last],
        [&first, &end(0), &first, &last, &end(1), &last],
    ] {
        let lines: String = order.into_iter().map(String::as_str).collect();
        assert_final(&format!("{TWO_RANKS}{lines}"));
    }
}

#[test]
fn ranks_with_numbers_end_their_profiles_one_by_one() {
    let (first, last) = (
        |rank| pool_of(rank, 300, "1.20"),
        |rank| pool_of(rank, 5120, "20.00"),
    );
    for order in [
        [first(0), first(1), end(0), last(0), last(1), end(1)],
        [first(0), first(1), end(0), last(0), end(1), last(1)],
        [first(0), end(0), last(0), first(1), end(1), last(1)],
    ] {
        assert_final(&order.concat());
    }
}

#[test]
fn a_second_profile_begins_anew() {
    let log = [
        pool(300, "1.20"),
        end(0),
        pool(400, "1.60"),
        end(0),
        pool(5120, "20.00"),
    ]
    .concat();
    assert_eq!(report(&log).number(key::kv_cache_gib), Some(20.0));
    let estimation = report(&log).facts["estimation_pool"].value.to_string();
    assert!(estimation.contains("num_gpu_blocks 400"), "{estimation}");
}

#[test]
fn a_log_that_ends_before_the_profile_does_is_in_doubt() {
    let doubted = |log: &str| {
        let findings = report(log).findings;
        findings
            .iter()
            .any(|f| f.code == "kv_cache_may_be_estimation")
    };
    let python = "[T] [TRT-LLM] [I] Using LLM with PyTorch backend\n";
    let first = pool(300, "1.20");
    let cut = format!("{python}{first}");
    assert!(doubted(&cut));
    assert_eq!(report(&cut).number(key::kv_cache_gib), Some(1.2));
    assert!(doubted(&format!(
        "{first}[T] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 8.75 GiB\n"
    )));
    // The blocks alone, before they are taken.
    assert!(doubted(&format!(
        "{python}{}\n",
        first.lines().next().unwrap()
    )));
    // No pool, no doubt; the engine backend makes one pool; a server that serves has its own.
    assert!(!doubted(python));
    assert!(!doubted(&first));
    assert!(!doubted(&format!(
        "{cut}INFO:     Application startup complete.\n"
    )));
    assert!(!doubted(&format!("{cut}{}", end(0))));
}
