//! Parameters of vision towers, as far as config.json describes them.

use super::config::{LARGEST, View, whole};
use crate::estimate::Unknown;
use serde_json::{Map, Value};

/// What is known of the tower.
pub(super) enum Tower {
    /// The model has none.
    None,
    /// Parameters, with its projector.
    Parameters(u64),
    /// It has one, and this is why it cannot be counted, where there is more to say.
    NotUnderstood(String),
}

impl Tower {
    fn of(parameters: Result<u128, Unknown>) -> Tower {
        match parameters {
            Ok(n) => Tower::Parameters(u64::try_from(n).unwrap_or(u64::MAX)),
            Err(unknown) => Tower::NotUnderstood(unknown.what),
        }
    }
}

impl View<'_> {
    /// A count that is needed, in 128 bits.
    fn wide(&self, name: &str) -> Result<u128, Unknown> {
        self.needed(&[name]).map(u128::from)
    }

    /// A count in 128 bits, or what it is where it is not there.
    fn wide_or(&self, name: &str, default: u64) -> Result<u128, Unknown> {
        Ok(self.count(&[name])?.unwrap_or(default).into())
    }
}

/// The widths of a tower; 128 bits so that no product of a hostile file overflows.
struct Widths {
    width: u128,
    layers: u128,
    inner: u128,
    patch: u128,
    text: u128,
}

impl Widths {
    fn read(v: &View<'_>, hidden: u64) -> Result<Self, Unknown> {
        // In Qwen2-VL's file hidden_size is the language model's width.
        let width = v.needed(&["embed_dim", "hidden_size"])?;
        let ratio = v.count(&["mlp_ratio"]).ok().flatten().unwrap_or(4);
        Ok(Widths {
            width: width.into(),
            layers: v
                .needed(&["num_hidden_layers", "depth", "num_layers"])?
                .into(),
            inner: match v.count(&["intermediate_size"])? {
                Some(inner) => inner.into(),
                None => u128::from(ratio) * u128::from(width),
            },
            patch: side(v, "patch_size")?.unwrap_or(14).max(1).into(),
            text: hidden.into(),
        })
    }

    /// The convolution that makes patches of an image.
    fn patches(&self) -> u128 {
        3 * self.patch * self.patch * self.width
    }

    /// Layers with biases and LayerNorm.
    fn layers(&self) -> u128 {
        let (h, i) = (self.width, self.inner);
        self.layers * (4 * h * h + 4 * h + 2 * h * i + i + h + 4 * h)
    }
}

/// A side of a square: a number, or InternVL's list of both.
fn side(v: &View<'_>, name: &str) -> Result<Option<u64>, Unknown> {
    match v.list(name).map(<[Value]>::first) {
        Some(Some(first)) => whole(first, name, LARGEST).map(Some),
        Some(None) => Err(Unknown::new(format!("`{name}` is an empty list"))),
        None => v.count(&[name]),
    }
}

/// The tower of a whole configuration, for a language model of width `hidden`.
pub(super) fn tower(view: &View<'_>, hidden: u64) -> Tower {
    let whole = with_towers(view);
    let kind = whole.get("model_type").and_then(Value::as_str);
    let kind = kind.unwrap_or_default().to_lowercase();
    let part = whole.get("vision_config").and_then(Value::as_object);
    let Some(part) = part else {
        return if MULTIMODAL.contains(&kind.as_str()) {
            Tower::NotUnderstood("the file does not describe it".into())
        } else {
            Tower::None
        };
    };
    let vision = View {
        outer: view.outer,
        text: part,
    };
    match parameters(&kind, &vision, hidden) {
        Ok(None) => Tower::NotUnderstood(format!(
            "that of `{}` is not known",
            kind.chars().take(40).collect::<String>()
        )),
        Ok(Some(n)) => Tower::of(Ok(n)),
        Err(unknown) => Tower::of(Err(unknown)),
    }
}

/// The part of a configuration that describes the towers: omni models have it within their thinker's.
fn with_towers<'a>(view: &View<'a>) -> &'a Map<String, Value> {
    let thinker = view.outer.get("thinker_config").and_then(Value::as_object);
    thinker.unwrap_or(view.outer)
}

/// Names of the part that describes what hears; the second is Granite Speech's.
pub const AUDIO_PARTS: &[&str] = &["audio_config", "encoder_config"];

/// The tower that hears, for a language model of width `hidden`.
pub(super) fn audio_tower(view: &View<'_>, hidden: u64) -> Tower {
    let parts = with_towers(view);
    let mut described = AUDIO_PARTS.iter().filter_map(|name| parts.get(*name));
    let Some(part) = described.find_map(Value::as_object) else {
        return Tower::None;
    };
    let hearing = View {
        outer: view.outer,
        text: part,
    };
    match hearing.words(&["model_type"]) {
        Some("gemma4_audio") => Tower::of(conformer(&hearing, hidden)),
        Some("gemma4_unified_audio") => {
            let width = hearing.wide("audio_embed_dim");
            Tower::of(width.map(|width| width * u128::from(hidden)))
        }
        _ => Tower::NotUnderstood(String::new()),
    }
}

/// Gemma 4's: two convolutions, layers of two MLPs, attention over relative positions and a gated convolution, and the
/// projections out of it. Counted so, gemma-4-E4B has the 7.996e9 values of its file, with the keys and values of the
/// layers that share others'.
fn conformer(v: &View<'_>, hidden: u64) -> Result<u128, Unknown> {
    let (h, heads) = (v.wide("hidden_size")?, v.wide("num_attention_heads")?);
    let out = v.wide("output_proj_dims")?;
    let channels = v.list("subsampling_conv_channels").unwrap_or_default();
    let channels: Vec<u64> = channels.iter().filter_map(Value::as_u64).collect();
    let [first, second] = channels.as_slice() else {
        return Err(Unknown::new(
            "`subsampling_conv_channels` is not two counts",
        ));
    };
    let [first, second] = [first, second].map(|n| u128::from(*n).min(1 << 20));
    // 128 bands of sound, halved by each convolution of 3 by 3, each with a norm.
    let bands = 32;
    let reduced = first * 9 + first + first * second * 9 + second + bands * second * h;
    let mlps = 2 * (8 * h * h + 2 * h);
    let attention = 5 * h * h + h / heads.max(1);
    let convolution = 3 * h * h + h * v.wide("conv_kernel_size")? + 2 * h;
    let layer = mlps + attention + convolution + 3 * h;
    Ok(reduced + v.wide("num_hidden_layers")? * layer + h * out + out + out * u128::from(hidden))
}

/// Kinds that always have a tower.
pub const MULTIMODAL: &[&str] = &[
    "gemma3",
    "gemma3n",
    "gemma4",
    "gemma4_unified",
    "glm4v",
    "glm4v_moe",
    "idefics3",
    "internvl",
    "internvl_chat",
    "kimi_k25",
    "kimi_k3",
    "llama4",
    "llava",
    "llava_next",
    "llava_onevision",
    "mistral3",
    "mllama",
    "phi4mm",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
];

fn parameters(kind: &str, v: &View<'_>, hidden: u64) -> Result<Option<u128>, Unknown> {
    match kind {
        "kimi_k25" | "kimi_k3" => return moon(v, hidden).map(Some),
        "mllama" => return tiled(v, hidden).map(Some),
        "gemma4_unified" => return embedder(v, hidden).map(Some),
        _ => {}
    }
    let w = Widths::read(v, hidden)?;
    let (h, i, text) = (w.width, w.inner, w.text);
    let grid = |default: u64| {
        let image = side(v, "image_size")?.unwrap_or(default);
        Ok::<_, Unknown>((u128::from(image) / w.patch).pow(2))
    };
    // Four patches become one on the way into the language model.
    let merged = 4 * h;
    let out =
        |text: u128| Ok::<_, Unknown>(v.count(&["out_hidden_size"])?.map_or(text, u128::from));
    Ok(Some(match kind {
        // SigLIP, and a projector with a norm.
        "gemma3" => {
            let embeddings = w.patches() + h + grid(896)? * h;
            embeddings + w.layers() + 2 * h + h * text + h
        }
        "mistral3" | "pixtral" | "ministral3" => {
            let layers = w.layers * (4 * h * h + 3 * h * i + 2 * h);
            let merger = if kind == "pixtral" { 0 } else { merged * h };
            w.patches() + h + layers + merger + h + h * text + text * text
        }
        // Its MLPs are as wide as the language model, and its merger's as `intermediate_size`.
        "glm4v" | "glm4v_moe" => {
            let out = out(text)?;
            let layers = w.layers * (4 * h * h + 3 * h * out + 2 * h);
            let merger = merged * out + out + out * out + 2 * out + 3 * out * i;
            2 * w.patches() + h + grid(336)? * h + layers + 2 * h + merger
        }
        // Layers with a scale of each branch, and a projector of four patches.
        "internvl" | "internvl_chat" => {
            let layers = w.layers() + w.layers * 2 * h;
            let projector = 2 * merged + merged * text + text + text * text + text;
            w.patches() + h + (grid(448)? + 2) * h + layers + projector
        }
        "qwen2_5_vl" | "qwen2_5_omni_thinker" => {
            let layer = 4 * h * h + 4 * h + 3 * h * i + 2 * i + h + 2 * h;
            let out = out(text)?;
            2 * w.patches() + w.layers * layer + h + merged * merged + merged + merged * out + out
        }
        "qwen2_vl" => {
            let merger = merged * merged + merged + merged * text + text;
            2 * w.patches() + w.layers() + 2 * h + merger
        }
        // A gated MLP, norms of queries and keys, two tables of positions.
        "gemma4" => {
            let dim = v.wide("head_dim")?;
            let positions = v.wide("position_embedding_size")?;
            let layer = 4 * h * h + 3 * h * i + 4 * h + 2 * dim;
            w.patches() + 2 * positions * h + w.layers * layer + 2 * h + h * text
        }
        _ if ["qwen3_vl", "qwen3_5", "qwen3_omni"]
            .iter()
            .any(|k| kind.starts_with(k)) =>
        {
            let out = out(text)?;
            let merger = merged * merged + merged + merged * out + out;
            let positions = v.wide_or("num_position_embeddings", 2304)?;
            let times = v.wide_or("temporal_patch_size", 2)?;
            // A merger more for each layer with an output into the language model's own layers.
            let deep = v.list("deepstack_visual_indexes").map_or(0, <[Value]>::len) as u128;
            let embeddings = times * w.patches() + h + positions * h;
            embeddings + w.layers() + merger + 2 * h + deep * (merger + 2 * merged)
        }
        // CLIP with a norm before its layers and one after; a projector of two matrices. LLaVA-NeXT has a vector at
        // the end of a row of tiles.
        "llava" | "llava_next" if v.words(&["model_type"]) == Some("clip_vision_model") => {
            let embeddings = w.patches() + (grid(336)? + 2) * h;
            let projector = h * text + text + text * text + text;
            let row_end = if kind == "llava_next" { text } else { 0 };
            embeddings + w.layers() + 4 * h + projector + row_end
        }
        // SigLIP; a projector of two matrices, and a vector at the end of a row of tiles.
        "llava_onevision" => {
            let embeddings = w.patches() + h + grid(384)? * h;
            embeddings + w.layers() + 2 * h + h * text + text + text * text + 2 * text
        }
        // SigLIP, and one matrix from a square of patches.
        "idefics3" => {
            let across = u128::from(merged_side(v)?);
            let embeddings = w.patches() + h + grid(364)? * h;
            embeddings + w.layers() + 2 * h + across * across * h * text
        }
        "llama4" => {
            let input = v.wide_or("projector_input_dim", 4096)?;
            let output = v.wide_or("projector_output_dim", 4096)?;
            let vision = v.wide_or("vision_output_dim", 4096)?;
            let embeddings = w.patches() + (grid(336)? + 1) * h + h;
            embeddings + w.layers() + 4 * h + i * input + input * output + vision * text
        }
        _ => return Ok(None),
    }))
}

/// Patches along a side of the square that Idefics 3 makes one token of; the whole configuration has it.
fn merged_side(v: &View<'_>) -> Result<u64, Unknown> {
    let scale = v.outer.get("scale_factor");
    scale.map_or(Ok(2), |n| whole(n, "scale_factor", 64))
}

/// Gemma 4 without a tower: a patch's pixels become a token by one matrix, with three norms and a table of positions
/// for each axis, and another matrix leads into the language model. Source: vLLM 0.32, models/gemma4_unified.py.
fn embedder(v: &View<'_>, hidden: u64) -> Result<u128, Unknown> {
    let (patch, width) = (v.wide("model_patch_size")?, v.wide("mm_embed_dim")?);
    let pixels = 3 * patch * patch;
    let positions = 2 * v.wide("mm_posemb_size")? * width;
    Ok(pixels * width + width + 2 * pixels + 4 * width + positions + width * u128::from(hidden))
}

/// MoonViT of Kimi K2.5: positions of a grid, and a projector of four patches. Kimi K3's has heads of another width, no
/// biases and norms with a weight alone. Source: vLLM 0.32, models/kimi_k25_vit.py.
fn moon(v: &View<'_>, hidden: u64) -> Result<u128, Unknown> {
    let w = Widths {
        width: v.wide("vt_hidden_size")?,
        layers: v.wide("vt_num_hidden_layers")?,
        inner: v.wide("vt_intermediate_size")?,
        patch: v.wide("patch_size")?,
        text: hidden.into(),
    };
    let h = w.width;
    let grid = v.wide("init_pos_emb_height")? * v.wide("init_pos_emb_width")?;
    let merged = 4 * h;
    if let Some(heads) = v.count(&["qkv_hidden_size"])? {
        let layers = w.layers * (4 * h * u128::from(heads) + 2 * h * w.inner + 2 * h);
        let projector = merged * merged + merged * w.text + w.text;
        return Ok(w.patches() + grid * h + layers + h + projector);
    }
    let projector = 2 * h + merged * merged + merged + merged * w.text + w.text;
    Ok(w.patches() + h + grid * h + w.layers() + 2 * h + projector)
}

/// Llama 3.2 Vision: tiles of an image, layers that are gated after those that are not, and the
/// outputs of some layers beside the last one's.
fn tiled(v: &View<'_>, hidden: u64) -> Result<u128, Unknown> {
    let (h, i) = (v.wide("hidden_size")?, v.wide("intermediate_size")?);
    let patch = v.wide("patch_size")?;
    let local = v.wide("num_hidden_layers")?;
    let global = v.wide_or("num_global_layers", 8)?;
    let layer = 4 * h * h + 2 * h * i + i + h + 4 * h;
    let patches = (v.wide("image_size")? / patch.max(1)).pow(2) + 1;
    let tiles = v.wide_or("max_num_tiles", 4)?;
    // One more than the ways in which tiles can lie.
    let shapes = u128::from(v.list("supported_aspect_ratios").map_or(8, <[Value]>::len) as u64) + 1;
    let positions = patches * h + shapes * tiles * patches * h + 1;
    let around = 2 * (shapes * tiles * h + 1);
    let outputs = v.wide_or("vision_output_dim", 7680)?;
    let projector = outputs * u128::from(hidden) + u128::from(hidden);
    let layers = (local + global) * layer + 2 * global;
    Ok(3 * patch * patch * h + h + positions + around + layers + 4 * h + projector)
}
