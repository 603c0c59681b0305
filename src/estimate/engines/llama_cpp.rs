//! llama.cpp and Ollama: the cache has as many cells as the context that is asked for, whatever the GPU has.

use super::Settings;
use crate::engine::settings::argument_text;
use crate::estimate::{Deployment, EngineId, Model};
use crate::units::Bytes;

/// Ollama's own context, tokens, from so many GiB of all its GPUs on (Ollama 0.33, server/routes.go: 23 and 47 for what
/// its documentation calls 24 and 48). A model that reads less has less.
const OLLAMA_CONTEXTS: [(u64, u64); 3] = [(47, 262_144), (23, 32_768), (0, 4_096)];

/// Requests that llama-server serves at a time where nobody says (tools/server/server.cpp, `n_parallel = 4`).
const AUTO_SLOTS: u64 = 4;

/// Requests that are served at a time.
pub fn slots(deployment: &Deployment) -> u64 {
    let unasked = match deployment.named() {
        EngineId::LlamaCpp => AUTO_SLOTS,
        _ => 1,
    };
    deployment.max_seqs.unwrap_or(unasked).max(1)
}

/// The settings of a deployment (llama.cpp, common/arg.cpp: `-c`, `-b 2048`, `-ub 512`).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let mut settings = Settings {
        fraction: 1.0,
        block: 1,
        ..Settings::with_defaults(model, deployment, 512, 1, 1)
    };
    // Ollama takes no context above the model's, its own or an asked one (llm/server.go).
    let asked = (settings.max_model_len).filter(|_| deployment.named() == EngineId::Ollama);
    if let Some(context) = ollama_context(deployment).or(asked) {
        let most = model.max_positions.unwrap_or(context);
        settings.max_model_len = Some(context.min(most));
    }
    let longest = settings.max_model_len.unwrap_or(u64::MAX).max(1);
    settings.batched_tokens = settings.batched_tokens.min(longest);
    settings
}

/// Memory of all GPUs, bytes, where Ollama chooses its context by it.
fn decides(deployment: &Deployment) -> Option<u64> {
    let chooses = deployment.named() == EngineId::Ollama && deployment.max_model_len.is_none();
    let gpu = deployment.gpu.as_ref().filter(|_| chooses)?;
    Some(gpu.total.saturating_mul(deployment.gpus()))
}

fn ollama_context(deployment: &Deployment) -> Option<u64> {
    let memory = decides(deployment)?;
    let row = OLLAMA_CONTEXTS.iter().find(|(gib, _)| memory >> 30 >= *gib);
    row.map(|(_, tokens)| *tokens)
}

/// Where the context comes from, if Ollama chooses it: a sentence.
pub fn source_of_context(deployment: &Deployment, settings: &Settings) -> Option<String> {
    let memory = Bytes(decides(deployment)?);
    let context = settings.max_model_len?;
    let chosen = ollama_context(deployment)?;
    let other = argument_text(EngineId::Ollama, "max_model_len", "TOKENS")?;
    let limit = if chosen > context {
        format!(", and the model reads {context}")
    } else {
        format!("; set another with {other}")
    };
    Some(format!(
        "with {memory} of GPU memory Ollama chooses a context of {chosen} tokens{limit}"
    ))
}
