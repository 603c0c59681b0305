//! llama.cpp and Ollama: the cache has as many cells as the context that is asked for, whatever the GPU has.

use super::Settings;
use crate::estimate::{Deployment, Model};

/// The settings of a deployment (llama.cpp, common/arg.cpp: `-c`, `-b 2048`, `-ub 512`).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    Settings {
        fraction: 1.0,
        batched_tokens: deployment.max_batched_tokens.unwrap_or(512).max(1),
        sequences: deployment.max_seqs.unwrap_or(1).max(1),
        block: 1,
        max_model_len: deployment.max_model_len.or(model.max_positions),
        eager: deployment.eager.unwrap_or(false),
        batch_known: true,
    }
}
