//! Which mixer each layer has.

use super::config::{LARGEST, MOST_LAYERS, missing, whole};
use super::facts::Facts;
use super::families::Pattern;
use super::{Mixer, Window};
use crate::estimate::Unknown;
use serde_json::Value;

/// What one layer is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    /// What mixes its tokens.
    pub mixer: Mixer,
    /// Query heads, of attention.
    pub heads: u64,
    /// Keys are values: one projection makes both.
    pub joined: bool,
    /// Its MLP, where the mixers' pattern decides it.
    pub mlp: Mlp,
}

/// What a layer has for an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mlp {
    /// By the other fields of the configuration.
    Configured,
    /// None: the layer is a mixer.
    None,
    /// Dense.
    Dense,
    /// Experts.
    Experts,
}

impl From<Mixer> for Layer {
    fn from(mixer: Mixer) -> Self {
        Layer {
            mixer,
            heads: 0,
            joined: false,
            mlp: Mlp::Configured,
        }
    }
}

/// Every layer's mixer, in order.
pub(super) fn layers(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let mut layers = match f.family.pattern {
        Pattern::Latent => every(f, |i| latent_at(f, i).map(Layer::from))?,
        Pattern::Compressed => super::compressed::layers(f)?,
        Pattern::Jamba => {
            let period = v.count(&["attn_layer_period"])?.unwrap_or(8).max(1);
            let offset = v.count(&["attn_layer_offset"])?.unwrap_or(4);
            every(f, |i| {
                if i % period == offset {
                    f.attention(None)
                } else {
                    mamba1(f).map(Layer::from)
                }
            })?
        }
        Pattern::Bamba => bamba(f)?,
        Pattern::ParallelMamba2 => parallel_mamba2(f)?,
        Pattern::Mamba1 => every(f, |_| mamba1(f).map(Layer::from).map(alone))?,
        Pattern::Mamba2 => every(f, |_| mamba2(f).map(Layer::from).map(alone))?,
        Pattern::NemotronH => nemotron_h(f)?,
        Pattern::Blocks => blocks(f)?,
        Pattern::DeltaNet => delta_net(f)?,
        Pattern::Convolutions => convolutions(f)?,
        Pattern::Lightning => lightning(f)?,
        Pattern::Kimi => kimi(f)?,
        Pattern::MiMo => mimo(f)?,
        Pattern::Gemma4 => gemma4(f)?,
        _ => windows(f)?,
    };
    // Laguna: windowed layers have more query heads.
    let name = "num_attention_heads_per_layer";
    let heads = v.per_layer(name, f.layers)?;
    for (layer, heads) in layers
        .iter_mut()
        .zip(heads.filter(|_| f.kind == "laguna").unwrap_or_default())
    {
        layer.heads = positive(whole(heads, name, LARGEST)?, name)?;
    }
    // The last layers use the keys and values of earlier ones (Gemma 3n and 4).
    let sharing = v.count(&["num_kv_shared_layers"])?.unwrap_or(0);
    let from = (layers.len() as u64).saturating_sub(sharing);
    for (_, layer) in (0..).zip(layers.iter_mut()).filter(|(i, _)| *i >= from) {
        if let Mixer::Attention { shares, .. } = &mut layer.mixer {
            *shares = true;
        }
    }
    Ok(layers)
}

fn every(
    f: &Facts<'_>,
    one: impl FnMut(u64) -> Result<Layer, Unknown>,
) -> Result<Vec<Layer>, Unknown> {
    (0..f.layers).map(one).collect()
}

fn alone(layer: Layer) -> Layer {
    Layer {
        mlp: Mlp::None,
        ..layer
    }
}

/// Attention in all layers, some of them windowed.
fn windows(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let window = window(f)?;
    let chunk = v
        .tokens(&["attention_chunk_size"])?
        .filter(|n| *n > 0)
        .map(Window::Chunked);
    if let Some(types) = v.per_layer("layer_types", f.layers)? {
        return types
            .iter()
            .map(|kind| match kind.as_str() {
                Some("full_attention" | "attention") => f.attention(None),
                Some("sliding_attention") => f.attention(window),
                Some("chunked_attention") => f.attention(chunk),
                _ => Err(unknown_layer(kind)),
            })
            .collect();
    }
    let pattern = f.family.pattern;
    let period = |name: &str| Ok::<_, Unknown>(v.count(&[name])?.unwrap_or(f.family.period).max(1));
    match pattern {
        Pattern::Window => every(f, |_| f.attention(window)),
        Pattern::WindowIfUsed if v.is("use_sliding_window") => {
            // The first max_window_layers see all tokens.
            let first = v.count(&["max_window_layers"])?.unwrap_or(0);
            every(f, |i| f.attention(window.filter(|_| i >= first)))
        }
        Pattern::LastOf => {
            let n = period("sliding_window_pattern")?;
            every(f, |i| f.attention(window.filter(|_| (i + 1) % n != 0)))
        }
        Pattern::EvenWindow => every(f, |i| f.attention(window.filter(|_| i % 2 == 0))),
        Pattern::ChunksButLastOf => {
            let n = period("no_rope_layer_interval")?;
            every(f, |i| f.attention(chunk.filter(|_| (i + 1) % n != 0)))
        }
        _ => every(f, |_| f.attention(None)),
    }
}

/// The window, unless it holds the whole context anyway.
fn window(f: &Facts<'_>) -> Result<Option<Window>, Unknown> {
    let names = ["sliding_window", "sliding_window_size"];
    let tokens = f.view.tokens(&names)?.filter(|n| *n > 0);
    Ok(tokens
        .filter(|n| f.max_positions.is_none_or(|most| *n < most))
        .map(Window::Sliding))
}

fn unknown_layer(kind: &Value) -> Unknown {
    let kind = kind.as_str().unwrap_or("no word");
    let kind: String = kind.chars().take(40).collect();
    Unknown::new(format!("a layer of the kind `{kind}` is not known"))
        .hint("give the size of its KV cache with --num-layers, --num-kv-heads and --head-dim")
}

/// Multi-head latent attention, with its indexer unless it uses that of an earlier layer.
fn latent_at(f: &Facts<'_>, i: u64) -> Result<Mixer, Unknown> {
    let v = &f.view;
    let types = v.per_layer("indexer_types", f.layers)?;
    let kind = types.and_then(|t| t.get(i as usize));
    let shared = kind.and_then(Value::as_str) == Some("shared");
    Ok(Mixer::Latent {
        rank: v.needed(&["kv_lora_rank"])?,
        rope: v
            .count(&["qk_rope_head_dim"])?
            .ok_or_else(|| missing("qk_rope_head_dim"))?,
        index: v.count(&["index_head_dim"])?.filter(|n| *n > 0 && !shared),
    })
}

fn mamba2(f: &Facts<'_>) -> Result<Mixer, Unknown> {
    let v = &f.view;
    let heads = v.needed(&[
        "mamba_num_heads",
        "mamba_n_heads",
        "n_mamba_heads",
        "num_heads",
    ])?;
    // mamba_d_head may be the word "auto".
    let names = [
        "mamba_head_dim",
        "mamba_d_head",
        "mamba_headdim",
        "head_dim",
    ];
    let head_dim = match v.count(&names).ok().flatten() {
        Some(n) => n,
        None => v.count(&["mamba_expand", "expand"])?.unwrap_or(2) * f.hidden / heads,
    };
    let groups = ["n_groups", "mamba_n_groups", "mamba_ngroups"];
    let state = ["ssm_state_size", "mamba_d_state", "state_size"];
    Ok(Mixer::Mamba2 {
        heads,
        head_dim: positive(head_dim, "mamba_head_dim")?,
        groups: v.count(&groups)?.unwrap_or(1),
        state: v.count(&state)?.unwrap_or(128),
        conv: v.count(&["conv_kernel", "mamba_d_conv"])?.unwrap_or(4),
    })
}

fn mamba1(f: &Facts<'_>) -> Result<Mixer, Unknown> {
    let v = &f.view;
    let expand = v.count(&["mamba_expand", "expand"])?.unwrap_or(2);
    let inner = match v.count(&["mamba_intermediate_size", "intermediate_size"])? {
        // Jamba's intermediate_size is its MLP's.
        Some(inner) if f.family.pattern == Pattern::Mamba1 => inner,
        _ => expand * f.hidden,
    };
    Ok(Mixer::Mamba1 {
        inner: positive(inner, "mamba_expand")?,
        state: v.count(&["mamba_d_state", "state_size"])?.unwrap_or(16),
        conv: v.count(&["mamba_d_conv", "conv_kernel"])?.unwrap_or(4),
    })
}

fn bamba(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    if let Some(types) = f.view.per_layer("layer_types", f.layers)? {
        let kind = |kind: &Value| match kind.as_str() {
            Some("attention") => f.attention(None),
            Some("mamba") => mamba2(f).map(Layer::from),
            _ => Err(unknown_layer(kind)),
        };
        return types.iter().map(kind).collect();
    }
    every(f, |i| {
        if f.view.lists("attn_layer_indices", i) {
            f.attention(None)
        } else {
            mamba2(f).map(Layer::from)
        }
    })
}

/// Two mixers for each layer: vLLM numbers and pools them as two layers.
fn parallel_mamba2(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let mamba = alone(Layer::from(mamba2(f)?));
    let attention = f.attention(None)?;
    let pairs = (0..f.layers).flat_map(|_| [mamba.clone(), attention.clone()]);
    Ok(pairs.collect())
}

/// `hybrid_override_pattern`, or `layers_block_type` in words.
fn nemotron_h(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    if let Some(pattern) = v.words(&["hybrid_override_pattern"]) {
        return lettered(f, pattern);
    }
    match v.per_layer("layers_block_type", f.layers)? {
        Some(types) => types
            .iter()
            .map(|kind| one_of(f, kind.as_str().unwrap_or("")))
            .collect(),
        None => Err(missing("hybrid_override_pattern")),
    }
}

/// Layers by a pattern of one letter for each.
pub(super) fn lettered(f: &Facts<'_>, pattern: &str) -> Result<Vec<Layer>, Unknown> {
    pattern
        .split("")
        .filter(|l| !l.is_empty())
        .take(MOST_LAYERS as usize)
        .map(|letter| one_of(f, letter))
        .collect()
}

/// A layer of Nemotron-H by its letter or word.
fn one_of(f: &Facts<'_>, word: &str) -> Result<Layer, Unknown> {
    let mlp = |mlp| Layer {
        mlp,
        ..Layer::from(Mixer::None)
    };
    match word {
        "M" | "mamba" => mamba2(f).map(Layer::from).map(alone),
        "*" | "attention" => f.attention(None).map(alone),
        "-" | "mlp" => Ok(mlp(Mlp::Dense)),
        "E" | "moe" => Ok(mlp(Mlp::Experts)),
        other => Err(unknown_layer(&Value::from(other))),
    }
}

/// Nemotron's searched architectures: each layer's attention by itself.
fn blocks(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let list = f
        .view
        .per_layer("block_configs", f.layers)?
        .ok_or_else(|| missing("block_configs"))?;
    list.iter()
        .map(|block| {
            let attention = block.get("attention").unwrap_or(&Value::Null);
            let is = |name| attention.get(name).and_then(Value::as_bool) == Some(true);
            if is("no_op") || is("replace_with_linear") {
                return Ok(Layer::from(Mixer::None));
            }
            let group = attention.get("n_heads_in_group").unwrap_or(&Value::Null);
            let name = "n_heads_in_group";
            let group = positive(whole(group, name, f.heads)?, name)?;
            let dim = f.head_dim;
            Ok(attend(f.heads, f.heads / group, dim, dim, None))
        })
        .collect()
}

fn delta_net(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let conv = v.count(&["linear_conv_kernel_dim"])?.unwrap_or(4);
    let linear = Layer::from(Mixer::DeltaNet {
        key_heads: v.needed(&["linear_num_key_heads"])?,
        value_heads: v.needed(&["linear_num_value_heads"])?,
        key_dim: v.needed(&["linear_key_head_dim"])?,
        value_dim: v.needed(&["linear_value_head_dim"])?,
        conv,
    });
    if let Some(types) = v.per_layer("layer_types", f.layers)? {
        return types
            .iter()
            .map(|kind| match kind.as_str() {
                Some("full_attention") => f.attention(None),
                Some("linear_attention") => Ok(linear.clone()),
                _ => Err(unknown_layer(kind)),
            })
            .collect();
    }
    let n = v.count(&["full_attention_interval"])?.unwrap_or(4).max(1);
    every(f, |i| match (i + 1) % n {
        0 => f.attention(None),
        _ => Ok(linear.clone()),
    })
}

/// LFM2: a convolution of a few tokens in most layers.
fn convolutions(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let short = Layer::from(Mixer::Convolution {
        inner: f.hidden,
        conv: v.count(&["conv_L_cache"])?.unwrap_or(3),
    });
    if let Some(types) = v.per_layer("layer_types", f.layers)? {
        let kind = |kind: &Value| match kind.as_str() {
            Some("full_attention") => f.attention(None),
            Some("conv") => Ok(short.clone()),
            _ => Err(unknown_layer(kind)),
        };
        return types.iter().map(kind).collect();
    }
    let name = "full_attn_idxs";
    v.list(name).ok_or_else(|| missing(name))?;
    every(f, |i| {
        if v.lists(name, i) {
            f.attention(None)
        } else {
            Ok(short.clone())
        }
    })
}

fn lightning(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let linear = Layer::from(Mixer::Lightning {
        heads: f.heads,
        head_dim: f.head_dim,
    });
    let (name, types) = match v.per_layer("attn_type_list", f.layers)? {
        Some(types) => ("attn_type_list", Some(types)),
        None => ("layer_types", v.per_layer("layer_types", f.layers)?),
    };
    types
        .ok_or_else(|| missing(name))?
        .iter()
        .map(|kind| match (kind.as_u64(), kind.as_str()) {
            (Some(1), _) | (_, Some("full_attention")) => f.attention(None),
            (Some(0), _) | (_, Some("linear_attention")) => Ok(linear.clone()),
            _ => Err(unknown_layer(kind)),
        })
        .collect()
}

fn kimi(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let linear = f.view.part("linear_attn_config");
    let linear = linear.ok_or_else(|| missing("linear_attn_config"))?;
    let heads = linear.needed(&["num_heads"])?;
    let dim = linear.needed(&["head_dim"])?;
    let delta = Layer::from(Mixer::DeltaNet {
        key_heads: heads,
        value_heads: heads,
        key_dim: dim,
        value_dim: dim,
        conv: linear.count(&["short_conv_kernel_size"])?.unwrap_or(4),
    });
    every(f, |i| {
        // Layers are counted from 1 here.
        if linear.lists("kda_layers", i + 1) {
            Ok(delta.clone())
        } else {
            latent_at(f, i).map(Layer::from)
        }
    })
}

/// MiMo V2: windowed layers have heads of their own, and values are narrower than keys.
fn mimo(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let name = "hybrid_layer_pattern";
    let pattern = (v.per_layer(name, f.layers)?).ok_or_else(|| missing(name))?;
    let value_dim = v.count(&["v_head_dim"])?.unwrap_or(f.head_dim);
    let tokens = v.tokens(&["sliding_window", "sliding_window_size"])?;
    let window = tokens.filter(|n| *n > 0).map(Window::Sliding);
    let windowed = attend(
        v.count(&["swa_num_attention_heads"])?.unwrap_or(f.heads),
        v.count(&["swa_num_key_value_heads"])?.unwrap_or(f.kv_heads),
        v.count(&["swa_head_dim"])?.unwrap_or(f.head_dim),
        v.count(&["swa_v_head_dim"])?.unwrap_or(value_dim),
        window,
    );
    pattern
        .iter()
        .map(|kind| {
            Ok(match kind.as_u64() {
                Some(1) => windowed.clone(),
                Some(0) => attend(f.heads, f.kv_heads, f.head_dim, value_dim, None),
                _ => return Err(unknown_layer(kind)),
            })
        })
        .collect()
}

/// Gemma 4: global layers are wider, have fewer key heads, and may use keys as values.
fn gemma4(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let window = window(f)?;
    let dim = v.count(&["global_head_dim"])?.unwrap_or(f.head_dim);
    let kv_heads = v.count(&["num_global_key_value_heads"])?;
    let global = Layer {
        joined: v.is("attention_k_eq_v"),
        ..attend(f.heads, kv_heads.unwrap_or(f.kv_heads), dim, dim, None)
    };
    let local = f.attention(window)?;
    let types = v.per_layer("layer_types", f.layers)?;
    every(f, |i| {
        let Some(kind) = types.and_then(|t| t.get(i as usize)) else {
            let is_global = (i + 1) % 6 == 0;
            let layer = if is_global { &global } else { &local };
            return Ok(layer.clone());
        };
        match kind.as_str() {
            Some("full_attention") => Ok(global.clone()),
            Some("sliding_attention") => Ok(local.clone()),
            _ => Err(unknown_layer(kind)),
        }
    })
}

/// A layer of attention.
pub(super) fn attend(
    heads: u64,
    kv_heads: u64,
    key_dim: u64,
    value_dim: u64,
    window: Option<Window>,
) -> Layer {
    Layer {
        heads,
        ..Layer::from(Mixer::Attention {
            kv_heads,
            key_dim,
            value_dim,
            window,
            shares: false,
        })
    }
}

fn positive(n: u64, name: &str) -> Result<u64, Unknown> {
    match n {
        0 => Err(Unknown::new(format!("`{name}` is 0"))),
        n => Ok(n),
    }
}
