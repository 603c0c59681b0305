//! Which environment variables of a container are recorded with their value. A variable can contain
//! a secret under any name, so only those that explain an engine's memory are.

/// Replaces values that are not recorded.
pub const NOT_KEPT: &str = "[not kept]";

/// Name prefixes of engines, their libraries and their devices.
const FAMILIES: &str = "AMD_ CUDA_ GGML_ GPU_ HF_ HIP_ HSA_ HUGGINGFACE_ KMP_ LLAMA_ MALLOC_ MKL_ NCCL_ NVIDIA_ \
    OLLAMA_ OMP_ ONEDNN_ OPENBLAS_ PLIMSOLL_ PYTHON PYTORCH_ REFERENCE_ ROCM_ ROCR_ SGLANG_ \
    SGL_ TGI_ TLLM_ TORCH TRANSFORMERS_ TRTLLM_ VLLM_";

/// Single names that decide where a model is and how a server is configured.
const NAMES: &str = "ATTENTION CUDA_GRAPHS CUDA_MEMORY_FRACTION DTYPE HOME HOSTNAME KV_CACHE_DTYPE LANG LC_ALL \
    LD_LIBRARY_PATH LD_PRELOAD MAX_BATCH_PREFILL_TOKENS MAX_BATCH_SIZE MAX_BATCH_TOTAL_TOKENS \
    MAX_CONCURRENT_REQUESTS MAX_INPUT_LENGTH MAX_INPUT_TOKENS MAX_MODEL_LEN MAX_TOTAL_TOKENS \
    MODEL MODEL_ID MODEL_NAME NUM_SHARD PATH PORT PREFILL_CHUNKING PREFIX_CACHING QUANTIZE \
    RAY_DEDUP_LOGS REVISION SHARDED SM_NUM_GPUS SPECULATE TENSOR_PARALLEL_SIZE \
    TOKENIZERS_PARALLELISM VIRTUAL_ENV ZE_AFFINITY_MASK";

/// Whether a variable's value is recorded. Variables that the command itself refers to (`$NAME`)
/// are settings of the engine.
pub fn is_kept(name: &str, argv: &[String]) -> bool {
    let mut families = FAMILIES.split_ascii_whitespace();
    families.any(|f| name.starts_with(f))
        || NAMES.split_ascii_whitespace().any(|n| n == name)
        || argv.iter().any(|word| refers_to(word, name))
}

fn refers_to(word: &str, name: &str) -> bool {
    let word_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    word.split('$').skip(1).any(|after| {
        let after = after.strip_prefix('{').unwrap_or(after);
        after.strip_prefix(name).is_some_and(word_end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_explains_an_engine_is_written_down() {
        for name in [
            "VLLM_CPU_KVCACHE_SPACE",
            "CUDA_VISIBLE_DEVICES",
            "HF_HOME",
            "MODEL_ID",
            "PATH",
        ] {
            assert!(is_kept(name, &[]), "{name}");
        }
        for name in [
            "DB_PASS",
            "GITHUB_PAT",
            "SESSION_COOKIE",
            "TS_AUTHKEY",
            "MY_JWT",
            "X",
            "",
        ] {
            assert!(!is_kept(name, &[]), "{name}");
        }
    }

    #[test]
    fn what_the_command_refers_to_is_a_setting() {
        let argv = [
            "sh".to_owned(),
            "-c".to_owned(),
            "serve ${WEIGHTS} --len $LEN".to_owned(),
        ];
        assert!(is_kept("WEIGHTS", &argv) && is_kept("LEN", &argv));
        assert!(!is_kept("LE", &argv) && !is_kept("serve", &argv));
    }
}
