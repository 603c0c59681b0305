//! The encoder of images in the profile run of vLLM's V1: how many of the largest items it is given, what their
//! encoding takes, and what it leaves for the rest of the run.
//!
//! Read in vLLM 0.8.5, 0.9.2, 0.11.0, 0.14.1, 0.16.0, 0.19.1, 0.20.2, 0.24.0 and 0.33.0: v1/worker/gpu_model_runner.py (`profile_run`),
//! v1/core/encoder_cache_manager.py (the budget: a step's tokens, at least one item), model_executor/models/*.py (the
//! largest item of each family, and what its layers hold). Limits of a processor are those that the family's
//! processors ship with.

use super::{
    Deployment, EngineId, Model, Version,
    engines::{Settings, vllm},
    kv::text_value,
    model::{AUDIO_PARTS, MULTIMODAL},
};
use crate::estimate::arithmetic::{count_if, product, sum};
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
    /// The least and the most that the peak may be, where it depends on what is not known.
    pub range: Option<[u64; 2]>,
}

/// The items of a profile run.
struct Items {
    /// How many.
    count: u64,
    /// Tokens of each, as the language model sees them.
    tokens: u64,
    /// Tokens that the budget has for each.
    budgeted: u64,
    /// Rows of each that the encoder's layers work on.
    rows: u64,
    /// Values that a row is made of: pixels in all colours and frames.
    row_values: u64,
}

/// Whether a model has an encoder of images or sound, described or not.
pub fn has_encoder(model: &Model) -> bool {
    let described = ["vision_config", "vision_tower"]
        .iter()
        .chain(AUDIO_PARTS)
        .any(|part| model.config.get(part).is_some_and(|v| v.is_object()));
    described || MULTIMODAL.contains(&kind(model))
}

/// What the encoder of a deployment takes in the profile run.
pub fn of(model: &Model, deployment: &Deployment, settings: &Settings, value: u64) -> Encoding {
    let unknown = |left, known| Encoding {
        peak: 0,
        left,
        known,
        range: None,
    };
    let kind = kind(model);
    if deployment.language_only {
        return unknown(0, Encoder::None);
    }
    let Some(vision) = model.config.get("vision_config").filter(|v| v.is_object()) else {
        let undescribed = MULTIMODAL.contains(&kind);
        let known = if undescribed {
            Encoder::Undescribed
        } else {
            Encoder::None
        };
        return unknown(0, known);
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
    let kept = kept_tokens(&items, deployment, settings);
    let left = results(items.count.saturating_mul(kept)).saturating_add(pixels);
    // Whole items go to each GPU, whose results are gathered (model_executor/models/vision.py, `run_dp_sharded_`).
    let ranks = deployment.tp.max(1);
    let (rows, tp) = match is_whole(model, deployment) {
        // Its tiles do.
        true if kind == "llama4" => (rows.div_ceil(ranks), 1),
        true => (items.rows.saturating_mul(items.count.div_ceil(ranks)), 1),
        false => (rows, ranks),
    };
    let layer = layer(vision, kind, tp).unwrap_or(0);
    let range = match kind {
        "gemma4" => Some(in_parts(vision, deployment, rows, layer, left, value)),
        // From half of what its layers hold to half as much again.
        _ if is_unmeasured(kind) => {
            let half = product([rows, layer, value]) / 2;
            Some([1, 3].map(|halves| sum([left, product([half, halves])])))
        }
        _ => None,
    };
    let peak = match range {
        Some([low, high]) => low.midpoint(high),
        None => sum([product([rows, layer, value]), left]),
    };
    Encoding {
        peak,
        left,
        known: Encoder::Counted,
        range,
    }
}

/// Tokens of the results that stay of each item: those of the item, but that 0.11 made each as long as the whole budget and
/// 0.12 as the largest item (v1/worker/gpu_model_runner.py, `expanded`).
fn kept_tokens(items: &Items, deployment: &Deployment, settings: &Settings) -> u64 {
    let version = vllm::version(deployment);
    let least = if version < Version::new(0, 11, 0) || version >= Version::new(0, 13, 0) {
        0
    } else if version < Version::new(0, 12, 0) {
        settings.batched_tokens.max(items.budgeted)
    } else {
        items.budgeted
    };
    items.tokens.max(least)
}

/// Gemma 4's encoder, the least and the most. It works on one frame at a time in 0.20, and since (pull requests 43169 and
/// 43296, `_encoder_chunk`) on as many as a tenth of the GPU holds of `one_hot` of their positions, in 64 bits and twice.
/// transformers makes that (5.5) or not (5.19), and vLLM pins no release of it.
fn in_parts(
    vision: &Value,
    deployment: &Deployment,
    rows: u64,
    layer: u64,
    left: u64,
    value: u64,
) -> [u64; 2] {
    let layer = layer * value;
    let width = number(vision, "hidden_size").unwrap_or(0);
    let positions = number(vision, "position_embedding_size").unwrap_or(0);
    let one_hot = |rows: u64| product([rows, positions, 4 * 8]);
    let (part, in_layers) = if vllm::version(deployment) >= Version::new(0, 21, 0) {
        let gpu = deployment.gpu.as_ref();
        (gpu.map_or(u64::MAX, |gpu| gpu.total / 10), rows)
    } else {
        (0, GEMMA4_FRAME)
    };
    let results = product([rows, width, value]);
    let low = sum([left, product([GEMMA4_FRAME, layer])]);
    let at_once = one_hot(rows).min(part.max(one_hot(GEMMA4_FRAME)));
    let high = sum([left, results, at_once.max(product([in_layers, layer]))]);
    [low, high]
}

/// Patches of a frame of a video for Gemma 4: 70 tokens of 3 x 3; 32 frames of a video, each with 8 tokens around it
/// (vLLM 0.20 and 0.33, models/gemma4_mm.py).
const GEMMA4_FRAME: u64 = 70 * 9;
/// Rows of such a frame for Gemma 4 without a tower: one of a token (vLLM 0.32, models/gemma4_unified.py).
const UNIFIED_FRAME: u64 = 70;
const GEMMA4_FRAMES: u64 = 32;
/// Tokens of such a video, the largest item.
pub const GEMMA4_VIDEO: u64 = GEMMA4_FRAMES * (70 + 2 + 6);

/// Families whose encoder can be whole on each GPU (`supports_encoder_tp_data` of vLLM 0.11 to 0.33); it is split in others.
const WHOLE: [&str; 9] = [
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_5",
    "glm4v",
    "internvl",
    "llama4",
    "kimi_",
    "step3",
];

/// Tokens that a step has at least by default, as its largest item is not split (vLLM 0.33, engine/arg_utils.py,
/// `_get_min_mm_batched_tokens`); 0 where all are.
pub fn least_step(model: &Model, deployment: &Deployment) -> u64 {
    let whole =
        kind(model).starts_with("gemma4") && vllm::version(deployment) >= Version::new(0, 21, 0);
    let counts = whole && has_encoder(model) && !deployment.language_only;
    count_if(counts, GEMMA4_VIDEO)
}

/// Whether each GPU has the whole encoder.
pub fn is_whole(model: &Model, deployment: &Deployment) -> bool {
    let known = deployment.engine == EngineId::Vllm && !vllm::is_v0(deployment);
    known && deployment.whole_encoder && WHOLE.iter().any(|k| kind(model).starts_with(k))
}

/// `model_type` of the whole configuration.
pub(super) fn kind(model: &Model) -> &str {
    let own = model.config.get("model_type").and_then(Value::as_str);
    own.unwrap_or(&model.kind)
}

/// Layers of the language model that take results of the encoder besides the first: each has its own.
pub fn deep_levels(model: &Model) -> u64 {
    let vision = model.config.get("vision_config");
    let levels = vision.and_then(|v| v.get("deepstack_visual_indexes")?.as_array());
    levels.map_or(0, |levels| levels.len() as u64)
}

/// Most patches across an image, and most tiles of one, that are believed.
const MOST_ACROSS: u64 = 1 << 20;

/// A count of the encoder's configuration, or of the whole one; of two sides the first.
fn number(config: &Value, key: &str) -> Option<u64> {
    let value = config.get(key)?;
    value.as_u64().or_else(|| value.get(0)?.as_u64())
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
        .or_else(|| number(&model.config, "image_size"))
        .unwrap_or(0);
    let colours = 3 * patch * patch;
    let across = (side / patch).min(MOST_ACROSS);
    let grid = across * across;
    let items = |budgeted: u64, tokens: u64, rows: u64, row_values: u64| {
        (tokens > 0).then(|| Items {
            count: (settings.batched_tokens / budgeted).max(1),
            tokens,
            budgeted,
            rows,
            row_values,
        })
    };
    match kind {
        "gemma3" => {
            let tokens = text_value(&model.config, "mm_tokens_per_image").and_then(Value::as_u64);
            let tokens = tokens.unwrap_or(256).max(1);
            items(tokens, tokens, grid, colours)
        }
        "mistral3" | "pixtral" => {
            // Mistral 3 merges 2 x 2 patches by default.
            let default = if kind == "mistral3" { 2 } else { 1 };
            let merge = number(vision, "spatial_merge_size")
                .or_else(|| number(&model.config, "spatial_merge_size"))
                .unwrap_or(default)
                .max(1);
            let across = side / patch.saturating_mul(merge).max(1);
            let tokens = across.saturating_mul(across);
            items(tokens, tokens, grid, colours)
        }
        // A token for each patch, without CLIP's class token.
        "llava" if vision["model_type"] == "clip_vision_model" => {
            items(grid.max(1), grid, grid + 1, colours)
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
            items(tokens, tokens, (grid + 1).saturating_mul(TILES), colours)
        }
        "gemma4" => {
            let rows = GEMMA4_FRAMES * GEMMA4_FRAME;
            items(GEMMA4_VIDEO, GEMMA4_VIDEO, rows, colours)
        }
        "gemma4_unified" => {
            let side = number(vision, "model_patch_size").unwrap_or(48);
            let (rows, values) = (GEMMA4_FRAMES * UNIFIED_FRAME, product([3, side, side]));
            items(GEMMA4_VIDEO, GEMMA4_VIDEO, rows, values)
        }
        _ if is_internvl(kind) => {
            let tile = (grid / 4).max(1);
            let (budgeted, given) = internvl_tokens(model, tile, deployment, settings);
            // A class token beside each tile's patches.
            let rows = product([given / tile, grid + 1]);
            items(budgeted, given, rows, colours)
        }
        _ if is_qwen(kind) => {
            let merge = number(vision, "spatial_merge_size").unwrap_or(2).max(1);
            let frames = number(vision, "temporal_patch_size").unwrap_or(2).max(1);
            let (budgeted, given) = qwen_tokens(kind, deployment, settings);
            let rows = product([given, merge, merge]);
            items(budgeted, given, rows, colours.saturating_mul(frames))
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
        // With 12.5 tokens of a time for each (models/qwen3_vl.py, `get_max_video_tokens`).
        (true, _) if v < Version::new(0, 13, 0) => (QWEN3_VIDEO * 25 / 2, QWEN3_VIDEO),
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

/// Tokens of InternVL's largest item: as vLLM budgets it, and as the profile run is given it.
///
/// A video fills the longest length, with a tile for each frame; the budget leaves room for an image. Where an image is
/// larger, it counts: all its tiles, and a small copy of the whole. Language models without a token for videos take none
/// (models/internvl.py, `ctx_video_token`).
fn internvl_tokens(
    model: &Model,
    tile: u64,
    deployment: &Deployment,
    settings: &Settings,
) -> (u64, u64) {
    let tiles = number(&model.config, "max_dynamic_patch").unwrap_or(12);
    let tiles = tiles.min(MOST_ACROSS);
    let image = tile.saturating_mul(tiles + 1);
    let videos = ["qwen2", "qwen3", "qwen3_moe", "gpt_oss"].contains(&model.kind.as_str());
    let longest = settings.max_model_len.unwrap_or(32_768);
    let frames = |tokens: u64| (tokens / tile).max(1).saturating_mul(tile);
    let video = frames(longest.saturating_sub(image));
    if !videos || video < image {
        return (image, image);
    }
    // As of Qwen's videos, before 0.10 as many frames as fit a step.
    let old = vllm::version(deployment) < Version::new(0, 10, 0);
    let given = if old {
        settings.batched_tokens
    } else {
        longest
    };
    (video, frames(given))
}

/// Families whose encoder is computed from vLLM's code alone, without a measured start.
pub fn is_unmeasured(kind: &str) -> bool {
    is_internvl(kind) || kind == "llava"
}

/// InternVL, by the file of its vendor or of transformers.
fn is_internvl(kind: &str) -> bool {
    matches!(kind, "internvl" | "internvl_chat")
}

/// Families with Qwen's encoder of images.
fn is_qwen(kind: &str) -> bool {
    let own = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"];
    own.iter().any(|own| kind.starts_with(own))
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
    let ratio = number(vision, "mlp_ratio").unwrap_or(4);
    let inner = number(vision, "intermediate_size").unwrap_or(width.saturating_mul(ratio));
    let gated = kind.starts_with("qwen2_5_vl") || matches!(kind, "mistral3" | "pixtral" | "gemma4");
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
    fn a_video_of_internvl_fills_the_longest_length() {
        let vision = json!({"hidden_size": 1024, "intermediate_size": 4096, "patch_size": [14, 14], "image_size": [448, 448]});
        let mut m = model("internvl_chat", Some(vision));
        let at = |m: &Model, longest| encoding(m, Version::new(0, 33, 0), longest, 8192);
        // Llama has no token for videos: two images of 13 tiles of 256 tokens fill a step.
        assert_eq!(at(&m, 40_960).left, 2 * 13 * (256 * 2048 + 1025 * 588) * 2);
        m.kind = "qwen3".to_owned();
        let (short, long) = (at(&m, 6400), at(&m, 40_960));
        assert_eq!(short.left, at(&m, 4096).left);
        // 160 frames of a tile each.
        assert_eq!(long.left, 160 * (256 * 2048 + 1025 * 588) * 2);
        let held = 160 * 1025 * (3 * 1024 + 8 * 1024) * 2;
        let [low, high] = long.range.unwrap();
        assert_eq!(
            (low, high),
            (long.left + held / 2, long.left + held / 2 * 3)
        );
        assert_eq!(long.known, Encoder::Counted);
    }

    #[test]
    fn impossible_sizes_do_not_overflow() {
        let all = json!({"hidden_size": u64::MAX, "intermediate_size": u64::MAX, "patch_size": 1, "image_size": u64::MAX,
            "model_type": "clip_vision_model"});
        for kind in ["internvl", "llava", "llama4", "mistral3", "gemma3"] {
            let mut m = model(kind, Some(all.clone()));
            m.config["max_dynamic_patch"] = u64::MAX.into();
            m.kind = "qwen3".to_owned();
            assert!(
                encoding(&m, Version::new(0, 33, 0), u64::MAX, u64::MAX).peak > 1 << 60,
                "{kind}"
            );
        }
    }

    #[test]
    fn images_of_llava_have_a_token_for_each_patch() {
        let clip = |kind: &str| {
            let vision = json!({"hidden_size": 1024, "intermediate_size": 4096, "patch_size": 14, "image_size": 336,
                "model_type": kind});
            let m = model("llava", Some(vision));
            encoding(&m, Version::new(0, 33, 0), 4096, 8192)
        };
        let found = clip("clip_vision_model");
        assert_eq!(found.known, Encoder::Counted);
        assert_eq!(found.left, 14 * (576 * 2048 + 577 * 588) * 2);
        assert_eq!(clip("pixtral").known, Encoder::Unknown);
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

    #[test]
    fn an_encoder_that_is_whole_on_each_gpu_gets_a_part_of_the_items() {
        let m = model("qwen2_5_vl", Some(qwen25()));
        let of = |whole, kind: &str, batched| {
            let mut m = m.clone();
            m.config["model_type"] = kind.into();
            let mut d = Deployment::with_defaults(EngineId::Vllm);
            (d.tp, d.whole_encoder, d.max_batched_tokens) = (4, whole, Some(batched));
            d.max_model_len = Some(16_384);
            let settings = vllm::settings(&m, &d);
            of(&m, &d, &settings, 2)
        };
        // Four images, one on each GPU: what it leaves is all of them.
        let (split, whole) = (
            of(false, "qwen2_5_vl", 65_536),
            of(true, "qwen2_5_vl", 65_536),
        );
        assert_eq!(split.left, whole.left);
        assert!(whole.peak - whole.left < split.peak - split.left);
        // Of one image one GPU does all.
        let (split, whole) = (of(false, "qwen2_5_vl", 8192), of(true, "qwen2_5_vl", 8192));
        assert!(whole.peak > split.peak);
        // Mistral's cannot be whole.
        assert!(!is_whole(
            &model("mistral3", None),
            &Deployment {
                whole_encoder: true,
                ..Deployment::with_defaults(EngineId::Vllm)
            }
        ));
    }

    #[test]
    fn gemma_4_takes_frames_one_by_one_or_what_a_tenth_of_the_gpu_holds() {
        let vision = json!({"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16,
            "num_hidden_layers": 27, "position_embedding_size": 10_240, "pooling_kernel_size": 3});
        let m = model("gemma4", Some(vision));
        let at = |version: &str, gib: u64, batched| {
            let mut d = Deployment::with_defaults(EngineId::Vllm);
            d.version = Version::leading(version);
            d.max_batched_tokens = batched;
            d.gpu = Some(crate::estimate::Gpu {
                name: "B200".into(),
                total: gib << 30,
                in_use: 0,
            });
            let settings = vllm::settings(&m, &d);
            (settings.batched_tokens, of(&m, &d, &settings, 2))
        };
        let (_, old) = at("0.20.0", 80, Some(8192));
        let (_, new) = at("0.33.0", 80, Some(8192));
        let (old, new, left) = (old.range.unwrap(), new.range.unwrap(), new.left);
        // Three videos of 32 frames: one frame at a time, or 8 GiB of positions.
        assert_eq!(old[0], new[0]);
        assert!(old[1] - left < 1 << 30, "{old:?} {left}");
        assert!(
            new[1] - left > 8 << 30 && new[1] - left < 9 << 30,
            "{new:?} {left}"
        );
        assert!(at("0.33.0", 24, Some(8192)).1.peak < at("0.33.0", 80, Some(8192)).1.peak);
        // A step has room for a video, which is not split.
        assert_eq!(
            (at("0.33.0", 24, None).0, at("0.20.0", 24, None).0),
            (2496, 2048)
        );
    }
}
