//! Hugging Face transformers: weights, and a cache that grows with what is generated.

use super::Settings;
use crate::estimate::{Deployment, Model};

/// The settings of a deployment: one sequence of the length that is asked for, unless more are.
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    // The prompt is prefilled whole.
    let longest = deployment.max_model_len.or(model.max_positions);
    Settings {
        fraction: 1.0,
        block: 1,
        eager: true,
        batch_known: deployment.max_model_len.is_some(),
        ..Settings::with_defaults(model, deployment, longest.unwrap_or(1), 1, 1)
    }
}
