//! What each engine does of itself: its defaults by version, and what it leaves for the cache.

pub mod llama_cpp;
pub mod sglang;
pub mod tgi;
pub mod vllm;

use super::{Deployment, EngineId, Model, Version};
pub use crate::catalog::Generation;
use crate::catalog::{self, GpuModel, Link};

/// Settings that an engine runs with: what was asked for, else its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Part of the GPU's memory that the engine takes, or of what is left of it: as the engine means it.
    pub fraction: f64,
    /// Tokens of one step.
    pub batched_tokens: u64,
    /// Sequences of one step.
    pub sequences: u64,
    /// Tokens of a block of the cache.
    pub block: u64,
    /// Longest sequence, tokens; `None` where neither the flags nor the model say.
    pub max_model_len: Option<u64>,
    /// No CUDA graphs.
    pub eager: bool,
    /// Tokens of a step and sequences were both asked for: nothing of the profile run is assumed.
    pub batch_known: bool,
}

impl Settings {
    /// What was asked for, and where nothing was: a step of `tokens`, `sequences` of it, blocks of `block` tokens.
    fn with_defaults(
        model: &Model,
        deployment: &Deployment,
        tokens: u64,
        sequences: u64,
        block: u64,
    ) -> Settings {
        let d = deployment;
        Settings {
            fraction: d.memory_fraction.unwrap_or(1.0),
            batched_tokens: d.max_batched_tokens.unwrap_or(tokens).max(1),
            sequences: d.max_seqs.unwrap_or(sequences).max(1),
            block: d.block_size.filter(|b| *b > 0).unwrap_or(block),
            max_model_len: d.max_model_len.or(model.max_positions),
            eager: d.eager.unwrap_or(false),
            batch_known: true,
        }
    }
}

/// The settings that `deployment` runs with.
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    match deployment.engine {
        EngineId::Vllm => vllm::settings(model, deployment),
        EngineId::Sglang => sglang::settings(model, deployment),
        EngineId::Tgi => tgi::settings(model, deployment),
        EngineId::TensorRtLlm => of_tensorrt_llm(model, deployment),
        EngineId::LlamaCpp => llama_cpp::settings(model, deployment),
        _ => of_transformers(model, deployment),
    }
}

/// TensorRT-LLM's (its documentation of `KvCacheConfig` and `trtllm-serve`).
fn of_tensorrt_llm(model: &Model, deployment: &Deployment) -> Settings {
    let old = deployment.is_before(Version::new(1, 0, 0));
    Settings {
        // `free_gpu_memory_fraction`: of what is left, not of all.
        fraction: deployment.memory_fraction.unwrap_or(0.9),
        batch_known: deployment.max_batched_tokens.is_some() && deployment.max_seqs.is_some(),
        ..Settings::with_defaults(model, deployment, 8192, 2048, if old { 64 } else { 32 })
    }
}

/// Those of Hugging Face transformers, whose cache grows with what is generated: what is asked for, and nothing of its own; one
/// sequence of the length that is asked for, unless more are.
fn of_transformers(model: &Model, deployment: &Deployment) -> Settings {
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

/// The facts that ship of the GPU of `deployment`.
pub fn gpu_model(deployment: &Deployment) -> Option<&'static GpuModel> {
    catalog::find_gpu(&deployment.gpu.as_ref()?.name)
}

/// Which generation the GPU of `deployment` is of, where it is known.
pub fn generation_of(deployment: &Deployment) -> Option<Generation> {
    gpu_model(deployment).map(|gpu| gpu.generation)
}

/// The GPU is known, and none of NVIDIA's, of which all measurements are.
pub fn is_foreign(deployment: &Deployment) -> bool {
    gpu_model(deployment).is_some_and(|gpu| gpu.vendor != "NVIDIA")
}

/// GPUs of one machine reach each other by NVLink; no, where the GPU is not known.
pub fn has_nvlink(deployment: &Deployment) -> bool {
    gpu_model(deployment).is_some_and(|gpu| gpu.link == Link::Nvlink)
}
