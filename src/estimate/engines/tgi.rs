//! Text Generation Inference: its defaults and its sizing rule.

use super::Settings;
use crate::estimate::{Deployment, Model, Version};

/// Part of the free memory that 3.x takes after its warm-up (`TGI_WIGGLE_ROOM`).
const WIGGLE: f64 = 0.90;
/// What 2.x took.
const WIGGLE_2: f64 = 0.95;
/// From here on it takes as many tokens as fit, where none are given (launcher/src/main.rs).
pub const FITS_LENGTH: Version = Version::new(2, 4, 1);
/// Before, the most that it takes of a model's positions by default (launcher/src/main.rs, `max_default`).
const DEFAULT_LENGTH: u64 = 4096;
/// Its defaults of 1.x: of a request and of its prompt.
const LENGTHS_1: (u64, u64) = (2048, 1024);
/// What a step of prompts has beyond the longest one.
const EDGE: u64 = 50;

/// Releases up to 2.x: the cache is sized by what is left of the whole GPU.
pub fn is_old(deployment: &Deployment) -> bool {
    deployment.is_before(Version::new(3, 0, 0))
}

/// The settings of a deployment (server/text_generation_server/models/flash_causal_lm.py, launcher/src/main.rs).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let wiggle = if is_old(deployment) { WIGGLE_2 } else { WIGGLE };
    let capped = model
        .max_positions
        .map_or(DEFAULT_LENGTH, |p| p.min(DEFAULT_LENGTH));
    // Without a length of its own a release takes what the model has.
    let (length, step) = if deployment.is_before(Version::new(2, 0, 0)) {
        (Some(LENGTHS_1.0), DEFAULT_LENGTH)
    } else if deployment.is_before(FITS_LENGTH) {
        let prompt = deployment.prompt_tokens.unwrap_or(capped.saturating_sub(1));
        let step = match deployment.max_seqs {
            Some(sequences) => sequences.saturating_mul(prompt),
            None => prompt.saturating_add(EDGE),
        };
        (Some(capped), step)
    } else {
        (None, capped)
    };
    let defaults = Settings::with_defaults(model, deployment, step, 1, 1);
    Settings {
        // `--cuda-memory-fraction` is a part of that part.
        fraction: deployment.memory_fraction.unwrap_or(1.0) * wiggle,
        batch_known: deployment.max_batched_tokens.is_some(),
        max_model_len: deployment.max_model_len.or(length).or(model.max_positions),
        ..defaults
    }
}

/// Bytes for each logit of every token of the warm-up's step, which asked for their probabilities: logits, and until 2.4 a
/// copy of their logarithms; from 3.0 on no request asks unless `--enable-prefill-logprobs`. Three public starts of 2.0 to 2.2 left 7.6, 7.8 and 6.9 bytes, one of 2.4 4.7.
pub fn prompt_logit_bytes(deployment: &Deployment) -> u64 {
    if deployment.is_before(Version::new(2, 4, 0)) {
        8
    } else if is_old(deployment) {
        5
    } else {
        0
    }
}

/// What 2.x lets itself take of a GPU of `total` bytes.
pub fn share(deployment: &Deployment, total: u64) -> u64 {
    (total as f64 * deployment.memory_fraction.unwrap_or(1.0)) as u64
}

/// Bytes for the cache of 2.x: a part of what a warm-up leaves of its share of the GPU, and the warm-up's own blocks, of
/// `first` bytes (flash_causal_lm.py, `warmup`).
pub fn left_by_warm_up(
    deployment: &Deployment,
    total: u64,
    in_use: u64,
    taken: i128,
    first: u64,
) -> i128 {
    let first = i128::from(first);
    let left = i128::from(share(deployment, total)) - i128::from(in_use) - taken - first;
    if left < 0 {
        return left;
    }
    (left as f64 * WIGGLE_2) as i128 + first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use crate::estimate::{Component, EngineId, Gpu, estimate};
    use serde_json::json;

    /// Llama-3.1-8B on an A10G, as a container printed it.
    #[test]
    fn a_start_without_a_length_takes_4096_tokens_before_2_4_1() {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
            "max_position_embeddings": 131_072, "torch_dtype": "bfloat16",
        });
        let model = from_config("llama", &config, "test").unwrap();
        let of = |version: &str| {
            let deployment = Deployment {
                version: Version::leading(version),
                gpu: Some(Gpu {
                    name: "NVIDIA A10G".into(),
                    total: 22_589 << 20,
                    in_use: 0,
                }),
                ..Deployment::with_defaults(EngineId::Tgi)
            };
            estimate(&model, &deployment)
        };
        let found = of("2.2.0");
        let s = &found.settings;
        assert_eq!((s.max_model_len, s.batched_tokens), (Some(4096), 4145));
        assert_eq!(found.fits, Some(true), "{}", found.reason);
        // `Setting max batch total tokens to 19056`.
        let pool = found.pool.as_ref().unwrap().tokens as f64 / 19_056.0;
        assert!((0.85..1.05).contains(&pool), "{pool}");
        let band = found.term(Component::KvCache).and_then(|t| t.band.clone());
        assert!(band.is_some_and(|b| b.low < 19_056 << 17 && b.high > 19_056 << 17));
        assert_eq!(of("2.4.1").settings.max_model_len, Some(131_072));
        let s = of("1.4.5").settings;
        assert_eq!((s.max_model_len, s.batched_tokens), (Some(2048), 4096));
    }
}
