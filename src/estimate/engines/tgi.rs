//! Text Generation Inference: its defaults and its sizing rule.

use super::Settings;
use crate::estimate::{Deployment, Model, Version};

/// Part of the free memory that 3.x takes after its warm-up (`TGI_WIGGLE_ROOM`).
const WIGGLE: f64 = 0.90;
/// What 2.x took.
const WIGGLE_2: f64 = 0.95;

/// The settings of a deployment (TGI 3, server/text_generation_server/models/flash_causal_lm.py).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let wiggle = match deployment.version {
        Some(v) if v < Version::new(3, 0, 0) => WIGGLE_2,
        _ => WIGGLE,
    };
    Settings {
        // `--cuda-memory-fraction` is a part of that part.
        fraction: deployment.memory_fraction.unwrap_or(1.0) * wiggle,
        batch_known: deployment.max_batched_tokens.is_some(),
        ..Settings::with_defaults(model, deployment, 4096, 1, 1)
    }
}
