//! What an engine keeps beside a model's own tensors: tables of positions, copies for latent attention, LoRA slots.

use super::super::format::{Format, Scheme};
use super::super::{Deployment, EngineId, Lora, Model, Tensor, Version, encoder, engines};
use super::shard::Shards;
use crate::estimate::arithmetic::{count_if, product};
use std::ops::Range;

/// Bytes of the tables of rotary positions; llama.cpp and transformers compute them as they go.
pub fn rope(model: &Model, deployment: &Deployment) -> Option<u64> {
    let keeps = matches!(
        deployment.engine,
        EngineId::Vllm | EngineId::Sglang | EngineId::TensorRtLlm
    );
    let rope = model.rope.filter(|_| keeps)?;
    // SGLang scales neither of Gemma 3's two (models/gemma3_causal.py): of gemma-3-4b it prints 8.13 GiB.
    let is_unscaled = deployment.engine == EngineId::Sglang
        && matches!(model.kind.as_str(), "gemma3" | "gemma3_text");
    let positions = match model.max_positions.filter(|_| is_unscaled) {
        Some(own) => rope.positions.min(own),
        None => rope.positions,
    };
    let values = product([positions, rope.dim, rope.tables]);
    Some(values.saturating_mul(rope.value_bytes))
}

/// Copies of `kv_b` that latent attention multiplies by: made where the stored one is quantised, views of it
/// where it is not. Source: vLLM 0.11, v1/attention/backends/mla/common.py, `process_weights_after_loading`.
pub fn absorbed(
    model: &Model,
    deployment: &Deployment,
    scheme: &Scheme,
    shards: &Shards,
    tensor: &Tensor,
    value_bytes: u64,
) -> Option<u64> {
    let engine = matches!(deployment.engine, EngineId::Vllm | EngineId::Sglang);
    if tensor.role != "kv_b"
        || !engine
        || !model.is_latent()
        || scheme.format(tensor) == Format::Plain
    {
        return None;
    }
    let shape = shards.shape(tensor);
    Some(product([shape.rows, shape.columns, value_bytes]))
}

/// Inputs of the layers that take the encoder's results besides the first: a step's rows for each, made with the model
/// (vLLM 0.11 to 0.24, models/qwen3_vl.py, `deepstack_input_embeds`).
pub fn deep_inputs(model: &Model, deployment: &Deployment, value_bytes: u64) -> Vec<u64> {
    if deployment.engine != EngineId::Vllm {
        return Vec::new();
    }
    let tokens = engines::settings(model, deployment).batched_tokens;
    let each = product([tokens, model.hidden, value_bytes]);
    // No model has as many as a file can name.
    let levels = encoder::deep_levels(model).min(model.mixers.len() as u64);
    vec![each; levels as usize]
}

/// Linear layers that take LoRA slots, and how many an engine fuses in each.
const LORA: &[(&str, u64, bool)] = &[
    ("q", 1, false),
    ("kv", 2, false),
    ("o", 1, true),
    ("gate_up", 2, false),
    ("down", 1, true),
    ("sh_gate_up", 2, false),
    ("sh_down", 1, true),
    ("q_a", 1, false),
    ("q_b", 1, false),
    ("kv_a", 1, false),
    ("in_qkvz", 1, false),
    ("out_proj", 1, true),
];

/// Models with slots for the embedding and the output layer too (`embedding_modules` of the class).
const LORA_EMBEDDING: &[&str] = &["llama", "mistral", "gemma", "mixtral"];
/// And those that have them in 0.33: 0.27.1 took 24 % more for a slot of Qwen3-4B than without.
const LATER_EMBEDDING: &[&str] = &["qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_text", "granite"];
/// Entries that an adapter may add to the vocabulary: until vLLM 0.12.
const EXTRA_VOCABULARY: u64 = 256;
/// To what the vocabulary is padded for LoRA's output layer.
const LORA_PADDING: u64 = 256;

/// Allocations of LoRA's slots for the layers of a stage, bytes each.
///
/// Source: vLLM 0.11, lora/layers/*.py, `create_lora_weights`: A is rank x inputs, B outputs x rank, in the
/// model's type; a layer that is split by inputs splits A, one that is split by outputs splits B.
pub fn lora(
    model: &Model,
    deployment: &Deployment,
    shards: &Shards,
    layers: &Range<u64>,
    value_bytes: u64,
) -> Vec<u64> {
    let Some(Lora { rank, slots }) = deployment.lora else {
        return Vec::new();
    };
    if !matches!(deployment.engine, EngineId::Vllm | EngineId::Sglang) {
        return Vec::new();
    }
    let each = |values: u64| product([values, rank, slots.max(1), value_bytes]);
    let mut made = Vec::new();
    let here = |t: &&Tensor| t.layer.is_some_and(|l| layers.contains(&u64::from(l)));
    for tensor in model.tensors.iter().filter(here) {
        let Some((_, fused, _)) = LORA.iter().find(|(role, ..)| *role == tensor.role) else {
            continue;
        };
        let shape = shards.shape(tensor);
        for _ in 0..*fused {
            made.push(each(shape.columns));
            made.push(each(shape.rows.div_ceil(*fused)));
        }
    }
    let later =
        deployment.engine == EngineId::Vllm && !deployment.is_before(Version::new(0, 27, 0));
    let kind = model.kind.as_str();
    if LORA_EMBEDDING.contains(&kind) || later && LATER_EMBEDDING.contains(&kind) {
        let old = deployment.is_before(Version::new(0, 12, 0));
        let extra = count_if(old, EXTRA_VOCABULARY);
        let entries = model.vocab.saturating_add(extra);
        let padded = entries
            .checked_next_multiple_of(LORA_PADDING)
            .unwrap_or(entries);
        made.extend([model.hidden, padded, model.hidden, entries].map(each));
        if extra > 0 {
            // The added entries themselves, for the embedding and for the output layer.
            let added = product([extra, model.hidden, value_bytes]);
            made.extend([added, added]);
        }
    }
    made
}

/// Whether the engine's own figure of weights has LoRA's slots in it. vLLM before 0.8 made them after it had
/// measured.
pub fn counts_lora(deployment: &Deployment) -> bool {
    deployment.engine != EngineId::Vllm || !deployment.is_before(Version::new(0, 8, 0))
}
