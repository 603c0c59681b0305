//! llama.cpp and Ollama: the cache has as many cells as the context that is asked for, whatever the GPU has.

use super::Settings;
use crate::estimate::{Deployment, Model};

/// The settings of a deployment (llama.cpp, common/arg.cpp: `-c`, `-b 2048`, `-ub 512`).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    Settings {
        fraction: 1.0,
        block: 1,
        ..Settings::with_defaults(model, deployment, 512, 1, 1)
    }
}
