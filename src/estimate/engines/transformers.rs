//! Hugging Face transformers: weights, and a cache that grows with what is generated.

use super::Settings;
use crate::estimate::{Deployment, Model};

/// The settings of a deployment: one sequence of the length that is asked for, unless more are.
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let longest = deployment.max_model_len.or(model.max_positions);
    let sequences = deployment.max_seqs.unwrap_or(1).max(1);
    Settings {
        fraction: 1.0,
        // The prompt is prefilled whole.
        batched_tokens: deployment
            .max_batched_tokens
            .or(longest)
            .unwrap_or(1)
            .max(1),
        sequences,
        block: 1,
        max_model_len: longest,
        eager: true,
        batch_known: deployment.max_model_len.is_some(),
    }
}
