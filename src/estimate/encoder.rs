//! The encoder of images in the profile run of vLLM's V1: how many of the largest items it is given, what their
//! encoding takes, and what it leaves for the rest of the run.
//!
//! Read in vLLM 0.8.5, 0.9.2, 0.11.0, 0.14.1, 0.19.1, 0.20.2 and 0.24.0: v1/worker/gpu_model_runner.py (`profile_run`),
//! v1/core/encoder_cache_manager.py (the budget: a step's tokens, at least one item), model_executor/models/*.py (the
//! largest item of each family, and what its layers hold). Limits of a processor are those that the family's
//! processors ship with.

use super::{
    Deployment, EngineId, Model, Version,
    engines::{Settings, vllm},
    kv::text_value,
    model::MULTIMODAL,
};
use crate::estimate::arithmetic::{product, sum};
use serde_json::Value;

/// What is known of a model's encoder of images or sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// It has none.
    None,
    /// What it leaves and takes is counted, for items as large as the family's processor lets them be.
    Counted,
    /// llama.cpp's: its buffer is taken from a few that were printed: its interval is wide.
    Usual,
    /// Its peak is not known: it depends on limits of a processor that is not in the configuration.
    Unknown,
    /// The model has one, and the configuration does not describe it.
    Undescribed,
}

/// What the encoder takes, bytes on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// Its peak, with what it leaves; 0 where there is none or it is not known.
    pub peak: u64,
    /// What stays during the rest of the profile run: its results, and the items themselves.
    pub left: u64,
    /// What is known.
    pub known: Encoder,
}

/// The items of a profile run.
struct Items {
    /// How many.
    count: u64,
    /// Tokens of each, as the language model sees them.
    tokens: u64,
    /// Rows of each that the encoder's layers work on.
    rows: u64,
    /// Values that a row is made of: pixels in all colours and frames.
    row_values: u64,
}

/// Whether a model has an encoder of images or sound, described or not.
pub fn has_encoder(model: &Model) -> bool {
    let described = ["vision_config", "audio_config", "vision_tower"]
        .iter()
        .any(|part| model.config.get(part).is_some_and(|v| v.is_object()));
    described || MULTIMODAL.contains(&kind(model))
}

/// What the encoder of a deployment takes in the profile run.
pub fn of(model: &Model, deployment: &Deployment, settings: &Settings, value: u64) -> Encoding {
    let unknown = |left, known| Encoding {
        peak: 0,
        left,
        known,
    };
    let kind = kind(model);
    if deployment.language_only {
        return unknown(0, Encoder::None);
    }
    let Some(vision) = model.config.get("vision_config").filter(|v| v.is_object()) else {
        return if MULTIMODAL.contains(&kind) {
            unknown(0, Encoder::Undescribed)
        } else {
            unknown(0, Encoder::None)
        };
    };
    if deployment.engine == EngineId::LlamaCpp {
        return unknown(super::compute_buffer::ENCODER, Encoder::Usual);
    }
    if deployment.engine != EngineId::Vllm || vllm::is_v0(deployment) {
        return unknown(0, Encoder::Unknown);
    }
    let results = |tokens: u64| product([tokens, model.hidden, 1 + deep_levels(model), value]);
    let Some(items) = items(model, vision, kind, deployment, settings) else {
        return unknown(results(settings.batched_tokens), Encoder::Unknown);
    };
    let rows = items.count.saturating_mul(items.rows);
    let pixels = product([rows, items.row_values, value]);
    let left = results(items.count.saturating_mul(items.tokens)).saturating_add(pixels);
    let layer = layer(vision, kind, deployment.tp).unwrap_or(0);
    let peak = sum([product([rows, layer, value]), left]);
    Encoding {
        peak,
        left,
        known: Encoder::Counted,
    }
}

/// `model_type` of the whole configuration.
fn kind(model: &Model) -> &str {
    model
        .config
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or(&model.kind)
}

/// Layers of the language model that take results of the encoder besides the first: each has its own.
pub fn deep_levels(model: &Model) -> u64 {
    model
        .config
        .get("vision_config")
        .and_then(|v| v.get("deepstack_visual_indexes"))
        .and_then(Value::as_array)
        .map_or(0, |levels| levels.len() as u64)
}

/// A count of the encoder's configuration.
fn number(vision: &Value, key: &str) -> Option<u64> {
    vision.get(key).and_then(Value::as_u64)
}

/// The items that the profile run is given; `None` where the largest is not known.
fn items(
    model: &Model,
    vision: &Value,
    kind: &str,
    deployment: &Deployment,
    settings: &Settings,
) -> Option<Items> {
    let patch = number(vision, "patch_size").unwrap_or(14).max(1);
    let side = number(vision, "image_size")
        .or_else(|| model.config.get("image_size").and_then(Value::as_u64))
        .unwrap_or(0);
    let colours = 3 * patch * patch;
    let grid = (side / patch).saturating_mul(side / patch);
    let budget = settings.batched_tokens;
    match kind {
        "gemma3" => {
            let tokens = text_value(&model.config, "mm_tokens_per_image")
                .and_then(Value::as_u64)
                .unwrap_or(256)
                .max(1);
            Some(Items {
                count: (budget / tokens).max(1),
                tokens,
                rows: grid,
                row_values: colours,
            })
        }
        "mistral3" | "pixtral" => {
            // Mistral 3 merges 2 x 2 patches by default.
            let default = if kind == "mistral3" { 2 } else { 1 };
            let merge = number(vision, "spatial_merge_size")
                .or_else(|| {
                    let outer = model.config.get("spatial_merge_size");
                    outer.and_then(Value::as_u64)
                })
                .unwrap_or(default)
                .max(1);
            let across = side / patch.saturating_mul(merge).max(1);
            let tokens = across.saturating_mul(across);
            (tokens > 0).then(|| Items {
                count: (budget / tokens).max(1),
                tokens,
                rows: grid,
                row_values: colours,
            })
        }
        "llama4" => {
            // 16 tiles and the whole image once more; a class token beside each tile's patches.
            const TILES: u64 = 17;
            let ratio = vision
                .get("pixel_shuffle_ratio")
                .and_then(Value::as_f64)
                .filter(|r| *r > 0.0 && *r <= 1.0)
                .unwrap_or(0.5);
            let merged = (1.0 / (ratio * ratio)).round() as u64;
            let tokens = (grid / merged.max(1)).saturating_mul(TILES);
            (tokens > 0).then(|| Items {
                count: (budget / tokens).max(1),
                tokens,
                rows: (grid + 1).saturating_mul(TILES),
                row_values: colours,
            })
        }
        _ if is_qwen(kind) => {
            let merge = number(vision, "spatial_merge_size").unwrap_or(2).max(1);
            let frames = number(vision, "temporal_patch_size").unwrap_or(2).max(1);
            let (budgeted, given) = qwen_tokens(kind, deployment, settings);
            Some(Items {
                count: (budget / budgeted).max(1),
                tokens: given,
                rows: product([given, merge, merge]),
                row_values: colours.saturating_mul(frames),
            })
        }
        _ => None,
    }
}

/// Tokens of the largest image that Qwen's processors let through: 12,845,056 pixels of 28 x 28 a token, and
/// 16,777,216 of 32 x 32 from Qwen3-VL on.
const QWEN_IMAGE: u64 = 16_384;
/// Tokens of the largest video of Qwen3-VL: 25,165,824 pixels in two frames of a token.
const QWEN3_VIDEO: u64 = 12_288;

/// Tokens of the largest item of Qwen's families as it is budgeted, and as the profile run is given it.
///
/// A video of the largest frames is the largest item where two of its frames and more fit the longest length: it may
/// have 14 frames from 0.10 on, 16 before, and two make a token. Before 0.10 the profile run itself had only as many
/// frames as fit a step. Qwen3-VL's videos were budgeted so too, but made smaller by their processor; from 0.15 on
/// they are budgeted as they are, and an image is larger.
fn qwen_tokens(kind: &str, deployment: &Deployment, settings: &Settings) -> (u64, u64) {
    let v = vllm::version(deployment);
    let longest = settings.max_model_len.unwrap_or(32_768);
    let old = v < Version::new(0, 10, 0);
    let video = |reach: u64, most: u64| (reach / QWEN_IMAGE).clamp(1, most) * QWEN_IMAGE;
    match (kind.starts_with("qwen3"), old) {
        (true, _) if v < Version::new(0, 15, 0) => (video(longest, 1 << 20), QWEN3_VIDEO),
        (true, _) => (QWEN_IMAGE, QWEN_IMAGE),
        (false, true) => (
            video(longest.saturating_sub(QWEN_IMAGE), 8),
            video(settings.batched_tokens, 8),
        ),
        (false, false) => {
            let tokens = video(longest, 7);
            (tokens, tokens)
        }
    }
}

/// Families with Qwen's encoder of images.
fn is_qwen(kind: &str) -> bool {
    kind.starts_with("qwen2_vl")
        || kind.starts_with("qwen2_5_vl")
        || kind.starts_with("qwen3_vl")
        || kind.starts_with("qwen3_5")
}

/// Values that a layer holds for each row beside its pixels.
///
/// The residual stream as the loop over layers holds it and with attention's output added, the norm or the output:
/// three times the width, on each GPU. Split by tensor parallelism: in the MLP the first product (both halves where
/// it is gated) and the activated one; in attention queries, keys and values as one, queries and keys put together
/// for their rotation and rotated, and the result (3 + 2 + 2 + 1), or without rotation 3 + 1.
fn layer(vision: &Value, kind: &str, tp: u64) -> Option<u64> {
    // In Qwen2-VL's file hidden_size is the language model's width.
    let width = number(vision, "embed_dim").or_else(|| number(vision, "hidden_size"))?;
    let inner = number(vision, "intermediate_size").unwrap_or_else(|| {
        let ratio = number(vision, "mlp_ratio").unwrap_or(4);
        width.saturating_mul(ratio)
    });
    let gated = kind.starts_with("qwen2_5_vl") || matches!(kind, "mistral3" | "pixtral");
    let products = inner.saturating_mul(if gated { 3 } else { 2 });
    let attention = width.saturating_mul(if kind == "gemma3" { 4 } else { 8 });
    // Qwen's embeddings of positions stay beside.
    let beside = if kind.starts_with("qwen3") { 4 } else { 3 };
    let split = products.max(attention).div_ceil(tp.max(1));
    Some(width.saturating_mul(beside).saturating_add(split))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use serde_json::json;

    /// A small language model with an encoder of this kind.
    fn model(kind: &str, vision: Option<Value>) -> Model {
        let text = if kind.starts_with("gemma") {
            "gemma3_text"
        } else {
            "llama"
        };
        let mut config = json!({
            "model_type": kind, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
            "num_hidden_layers": 4, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
            "max_position_embeddings": 131_072, "torch_dtype": "bfloat16",
        });
        let text = json!({"model_type": text});
        config["text_config"] = config.clone();
        config["text_config"]["model_type"] = text["model_type"].clone();
        if let Some(vision) = vision {
            config["vision_config"] = vision;
        }
        from_config(kind, &config["text_config"], "test").map_or_else(
            |_| panic!("{kind}"),
            |mut m| {
                m.config = config;
                m
            },
        )
    }

    fn qwen25() -> Value {
        json!({"hidden_size": 1280, "intermediate_size": 3420, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2})
    }

    fn encoding(model: &Model, version: Version, longest: u64, batched: u64) -> Encoding {
        let mut d = Deployment::with_defaults(EngineId::Vllm);
        d.version = Some(version);
        d.max_model_len = Some(longest);
        d.max_batched_tokens = Some(batched);
        let settings = vllm::settings(model, &d);
        of(model, &d, &settings, 2)
    }

    #[test]
    fn a_video_is_larger_than_an_image_where_the_length_lets_it() {
        let m = model("qwen2_5_vl", Some(qwen25()));
        let at = |longest| encoding(&m, Version::new(0, 14, 0), longest, 8192);
        // vLLM budgets 114,688 tokens at 128,000: seven pairs of frames.
        let (short, long) = (at(16_384), at(128_000));
        assert_eq!(short.known, Encoder::Counted);
        assert_eq!(long.peak, 7 * short.peak);
        assert_eq!(at(131_072).peak, long.peak);
        assert_eq!(at(40_000).peak, 2 * short.peak);
        // Before 0.10 the profile run had as many frames as fit a step.
        let old = encoding(&m, Version::new(0, 9, 2), 128_000, 8192);
        assert_eq!(old.peak, short.peak);
    }

    #[test]
    fn qwen3_gives_an_image_of_16384_tokens_or_a_video_of_12288() {
        let vision = json!({"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "deepstack_visual_indexes": [8, 16, 24]});
        let m = model("qwen3_vl", Some(vision));
        let new = encoding(&m, Version::new(0, 20, 0), 262_144, 8192);
        let old = encoding(&m, Version::new(0, 14, 0), 262_144, 8192);
        assert_eq!(old.peak, new.peak / 4 * 3);
        // Results for the first layer and three deeper ones, and the pixels.
        let left = 16_384 * (4 * 2048 + 4 * 1536) * 2;
        assert_eq!(new.left, left);
    }

    #[test]
    fn as_many_images_as_fill_a_step() {
        let vision = json!({"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14, "image_size": 896});
        let m = model("gemma3", Some(vision));
        let (one, many) = (
            encoding(&m, Version::new(0, 19, 0), 8192, 256),
            encoding(&m, Version::new(0, 19, 0), 8192, 8192),
        );
        assert_eq!(many.peak, 32 * one.peak);
        assert_eq!(many.known, Encoder::Counted);
    }

    #[test]
    fn an_encoder_that_is_not_described_is_not_taken_for_none() {
        assert_eq!(
            encoding(&model("llama4", None), Version::new(0, 14, 0), 8192, 8192).known,
            Encoder::Undescribed
        );
        assert_eq!(
            encoding(&model("llama", None), Version::new(0, 14, 0), 8192, 8192).known,
            Encoder::None
        );
    }
}
