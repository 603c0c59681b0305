//! TensorRT-LLM: its defaults and its sizing rule.

use super::Settings;
use crate::estimate::{Deployment, Model, Version};

/// The settings of a deployment (TensorRT-LLM's documentation of `KvCacheConfig` and `trtllm-serve`).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let old = deployment.is_before(Version::new(1, 0, 0));
    Settings {
        // `free_gpu_memory_fraction`: of what is left, not of all.
        fraction: deployment.memory_fraction.unwrap_or(0.9),
        batch_known: deployment.max_batched_tokens.is_some() && deployment.max_seqs.is_some(),
        ..Settings::with_defaults(model, deployment, 8192, 2048, if old { 64 } else { 32 })
    }
}
