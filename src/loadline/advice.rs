//! The setting to change, in the engine's own words for it.

use super::predict::Resource;

/// What raises the line where `resource` ran out, the most effective first; sentences. Empty where
/// nothing is known of the engine.
pub fn advice(engine: &str, resource: Resource, on_cpu: bool) -> Vec<String> {
    let words: &[&str] = match (engine, resource) {
        ("vllm", Resource::KvPool) if on_cpu => {
            &["VLLM_CPU_KVCACHE_SPACE or --kv-cache-memory-bytes: a larger pool"]
        }
        ("vllm", Resource::KvPool) => &[
            "--gpu-memory-utilization or --kv-cache-memory-bytes: a larger pool",
            "--kv-cache-dtype fp8: twice the tokens in the same bytes, where the model bears it",
            "--tensor-parallel-size: more GPUs, more pool",
        ],
        ("vllm", Resource::Sequences) => &["--max-num-seqs: more sequences at once"],
        ("vllm", Resource::Prefill) => &[
            "--max-num-batched-tokens: more of the prompts in one step, at the price of the time between tokens",
        ],
        ("vllm", Resource::Latency) => &[
            "--max-num-seqs at the measured line keeps more requests from being run at once; they wait instead",
            "--max-num-batched-tokens: less shortens the time between tokens, more shortens the time to the first",
        ],
        ("vllm" | "sglang", Resource::Length) => {
            &["--max-model-len (SGLang: --context-length), or shorter requests"]
        }
        ("sglang", Resource::KvPool) => &[
            "--mem-fraction-static: a larger pool",
            "--kv-cache-dtype fp8_e5m2: twice the tokens in the same bytes, where the model bears it",
        ],
        ("sglang", Resource::Sequences) => &["--max-running-requests: more sequences at once"],
        ("sglang", Resource::Prefill) => {
            &["--chunked-prefill-size and --max-prefill-tokens: more of the prompts in one step"]
        }
        ("tgi", Resource::BatchTokens | Resource::KvPool) => &[
            "--max-batch-total-tokens, or --cuda-memory-fraction where TGI chooses it",
            "--kv-cache-dtype fp8_e5m2, where the model bears it",
        ],
        ("tgi", Resource::Sequences) => &["--max-batch-size: more sequences at once"],
        ("tgi", Resource::Connections) => &["--max-concurrent-requests: more requests taken in"],
        ("tgi", Resource::Prefill) => {
            &["--max-batch-prefill-tokens: more of the prompts in one step"]
        }
        ("tgi", Resource::Length) => &["--max-total-tokens, or shorter requests"],
        ("llama.cpp", Resource::Sequences) => &[
            "--parallel: more slots; the context is shared out among them, so raise --ctx-size with it",
        ],
        ("llama.cpp", Resource::Length | Resource::KvPool) => {
            &["--ctx-size: each slot has its part of it"]
        }
        ("llama.cpp", Resource::Prefill) => {
            &["--batch-size and --ubatch-size: more of the prompts in one step"]
        }
        ("ollama", Resource::Sequences) => {
            &["OLLAMA_NUM_PARALLEL: more slots; each takes a context of its own"]
        }
        ("tensorrt-llm", Resource::KvPool) => {
            &["kv_cache_config.free_gpu_memory_fraction: a larger pool"]
        }
        ("tensorrt-llm", Resource::Sequences) => &["--max_batch_size: more sequences at once"],
        ("tensorrt-llm", Resource::Prefill) => {
            &["--max_num_tokens: more of the prompts in one step"]
        }
        ("reference", Resource::KvPool) => &["--kv-pool: a larger pool (simulated)"],
        (_, Resource::Errors) => &[
            "see what the engine says of the failed requests: the capture of that round has its log",
        ],
        _ => &[],
    };
    words.iter().map(|w| (*w).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_the_engines_own() {
        let first = |engine, resource, cpu| {
            advice(engine, resource, cpu)
                .first()
                .cloned()
                .unwrap_or_default()
        };
        assert!(first("vllm", Resource::KvPool, true).contains("VLLM_CPU_KVCACHE_SPACE"));
        assert!(first("vllm", Resource::KvPool, false).contains("--gpu-memory-utilization"));
        assert!(first("vllm", Resource::Sequences, true).contains("--max-num-seqs"));
        assert!(first("sglang", Resource::KvPool, false).contains("--mem-fraction-static"));
        assert!(first("tgi", Resource::Connections, false).contains("--max-concurrent-requests"));
        assert!(first("llama.cpp", Resource::Sequences, true).contains("--parallel"));
        assert!(advice("nobody", Resource::KvPool, false).is_empty());
    }
}
