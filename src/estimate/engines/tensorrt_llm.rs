//! TensorRT-LLM: its defaults and its sizing rule.

use super::Settings;
use crate::estimate::{Deployment, Model, Version};

/// The settings of a deployment (TensorRT-LLM's documentation of `KvCacheConfig` and `trtllm-serve`).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let old = deployment
        .version
        .is_some_and(|v| v < Version::new(1, 0, 0));
    Settings {
        // `free_gpu_memory_fraction`: of what is left, not of all.
        fraction: deployment.memory_fraction.unwrap_or(0.9),
        batched_tokens: deployment.max_batched_tokens.unwrap_or(8192).max(1),
        sequences: deployment.max_seqs.unwrap_or(2048).max(1),
        block: deployment
            .block_size
            .filter(|b| *b > 0)
            .unwrap_or(if old { 64 } else { 32 }),
        max_model_len: deployment.max_model_len.or(model.max_positions),
        eager: deployment.eager.unwrap_or(false),
        batch_known: deployment.max_batched_tokens.is_some() && deployment.max_seqs.is_some(),
    }
}

/// Bytes for the cache: a fraction of what the engine, its activations and its buffers leave free.
pub fn for_cache(
    deployment: &Deployment,
    settings: &Settings,
    weights: u64,
    activation: u64,
    non_torch: u64,
) -> i128 {
    let Some(gpu) = &deployment.gpu else { return 0 };
    let free = i128::from(gpu.total)
        - i128::from(gpu.in_use)
        - i128::from(weights)
        - i128::from(activation)
        - i128::from(non_torch);
    (free as f64 * settings.fraction) as i128
}
