//! Which lines may carry something: one pass over the bytes, before anything is parsed.

use crate::engine::log::words::Words;
use std::sync::LazyLock;

/// What a line may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// Nothing of interest.
    Nothing,
    /// The periodic statistics, and nothing else.
    Statistics,
    /// A message that is worth parsing.
    Message,
}

/// The mark of a statistics line: the one kind of interesting line that a serving log is full of.
const STATISTICS: &str = "cache usage: ";

/// Words that every line of interest holds one of, and busy lines (requests, statistics, progress
/// bars) hold none of. Four bytes and up, not over 64 of them: then the search is vectorised.
const WORDS: &[&str] = &[
    STATISTICS,
    " GiB",
    " MiB",
    "weights took",
    "weights take",
    "loading took",
    "emory profiling",
    "cache size",
    "Maximum concurrency",
    " blocks: ",
    "num_gpu_blocks",
    "LLM engine (",
    "version ",
    "  model ",
    "non-default args",
    "Namespace(",
    "backend",
    "in world size",
    "ax model len",
    "max seq len",
    "lock size",
    "block-size",
    "to load model",
    "Loading model from",
    "Loading drafter",
    "startup complete",
    "server process",
    "init engine (",
    // Of graphs, begun and finished.
    "apturing ",
    "bad_alloc",
    "received signal",
    "Resolved model",
    "Error",
    "error: ",
    "error, ",
    // `Exception`, and `the above exception`.
    "xception",
    "ut of memory",
    "OOM on device",
    "died",
    "exited unexpectedly",
    "failed to start",
    "EngineCore e",
    "preempt",
    "padding layers",
    "mamba page size",
    "KVCACHE_SPACE",
    "hutting down",
    "shutdown]",
    "gpu-memory-util",
    "gpu_memory_util",
    "store kv cache",
    "scaling factor",
    "KV cache format",
    "LinearMethod",
    "nvfp4.py",
    "vailable memory",
    "estimated maximum",
    "detected platform",
    "Worker",
    "vllm serve",
    "SIGTERM",
    "Segfault",
    "% Completed",
];

/// A search for [`WORDS`].
pub struct Filter {
    words: Words,
}

static FILTER: LazyLock<Filter> = LazyLock::new(|| Filter {
    words: Words::new(WORDS),
});

impl Filter {
    /// The filter, made once.
    pub fn shared() -> &'static Filter {
        &FILTER
    }

    /// What `line` may hold.
    pub fn candidate(&self, line: &[u8]) -> Candidate {
        let mut statistics = false;
        let mut from = 0;
        while let Some((word, end)) = self.words.find(&line[from..]) {
            if word != 0 {
                return Candidate::Message;
            }
            statistics = true;
            from += end;
        }
        if statistics {
            Candidate::Statistics
        } else {
            Candidate::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_lines_are_passed_over() {
        let filter = Filter::shared();
        for line in [
            r#"INFO:     127.0.0.1:34574 - "POST /v1/completions HTTP/1.1" 200 OK"#,
            "Processed prompts:  80%|████████  | 32/40 [00:00<00:00, 312.47it/s, est. speed input: 505.70 toks/s]",
            "(APIServer pid=1) INFO 11-21 01:33:08 [logger.py:40] Received request cmpl-1: prompt: 'Hello', params: SamplingParams(n=1)",
            "Loading safetensors checkpoint shards:  50% |█████     | 1/2 [00:01<00:01]",
        ] {
            assert_eq!(
                filter.candidate(line.as_bytes()),
                Candidate::Nothing,
                "{line}"
            );
        }
        let statistics = "(APIServer pid=1) INFO 11-21 01:33:08 [loggers.py:335] Engine 000: Avg prompt throughput: 256.1 tokens/s, Avg generation throughput: 128.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%";
        assert_eq!(
            filter.candidate(statistics.as_bytes()),
            Candidate::Statistics
        );
        let glued = format!("{statistics}\rINFO 1 [a.py:1] Available KV cache memory: 2.0 GiB");
        assert_eq!(filter.candidate(glued.as_bytes()), Candidate::Message);
    }

    #[test]
    fn the_search_stays_vectorised() {
        // A 65th word would silently fall back to the slow search.
        assert!(WORDS.len() <= 64, "{}", WORDS.len());
        assert!(WORDS.iter().all(|w| w.len() >= 4));
        #[cfg(target_arch = "x86_64")]
        assert!(Filter::shared().words.vectorised());
    }
}
