//! The plain facts of a configuration: widths, heads, layers, checked before anything is built of them.

use super::config::{MOST_LAYERS, View, missing};
use super::families::{Family, Pattern, Positions};
use super::mixers::{Layer, attend};
use super::{RopeTables, Window};
use crate::estimate::Unknown;
use serde_json::Value;

/// The plain facts of a configuration.
pub(super) struct Facts<'a> {
    pub view: View<'a>,
    pub family: &'static Family,
    /// `model_type` that the family is known by.
    pub kind: String,
    pub hidden: u64,
    pub layers: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Width of a dense MLP; 0 where it is not set.
    pub inner: u64,
    pub vocab: u64,
    pub max_positions: Option<u64>,
    pub tied: bool,
}

impl<'a> Facts<'a> {
    /// Read from `view`, for a family.
    pub fn read(view: View<'a>, family: &'static Family, kind: &str) -> Result<Self, Unknown> {
        let v = &view;
        let hidden = v.needed(&["hidden_size", "n_embd", "d_model"])?;
        let layers = layers(v)?;
        let recurrent = matches!(family.pattern, Pattern::Mamba1 | Pattern::Mamba2);
        let (heads, head_dim, kv_heads) = if recurrent {
            (0, 0, 0)
        } else {
            let heads = v.needed(&["num_attention_heads", "n_head", "n_heads", "num_heads"])?;
            let head_dim = head_dim(v, family, hidden, heads)?;
            (heads, head_dim, kv_heads(v, family, kind, heads)?)
        };
        let facts = Facts {
            view,
            family,
            kind: kind.to_owned(),
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            inner: inner(v, family, hidden)?,
            vocab: vocabulary(v, family)?,
            max_positions: v
                .tokens(&[
                    "max_position_embeddings",
                    "n_positions",
                    "max_seq_len",
                    "seq_length",
                    "max_sequence_length",
                    "model_max_length",
                ])?
                .filter(|n| *n > 0),
            tied: tied(v, family),
        };
        Ok(facts)
    }

    /// A layer of attention as the configuration has them.
    pub fn attention(&self, window: Option<Window>) -> Result<Layer, Unknown> {
        let dim = self.head_dim;
        Ok(attend(self.heads, self.kv_heads, dim, dim, window))
    }

    /// Tables of rotary positions that an engine keeps: `positions * dim` values of each
    /// (vLLM 0.11, model_executor/layers/rotary_embedding).
    pub fn rope(&self) -> Result<Option<RopeTables>, Unknown> {
        let v = &self.view;
        let Some(most) = self.max_positions else {
            return Ok(None);
        };
        // ALiBi: Falcon by its flag, Baichuan's wide models always.
        let alibi = v.is("alibi") || self.kind == "baichuan" && self.hidden != 4096;
        if self.family.positions != Positions::Rotary || alibi || self.heads == 0 {
            return Ok(None);
        }
        let latent = v.count(&["qk_rope_head_dim"])?.filter(|n| *n > 0);
        let scaling = v.part("rope_scaling").or_else(|| v.part("rope_parameters"));
        // Set for each kind of layer: that of the layers without a window is the one that is scaled.
        let scaling = scaling.map(|s| s.part("full_attention").unwrap_or(s));
        let own = || scaling.and_then(|s| s.share(&["partial_rotary_factor"]));
        let share = v.share(&["partial_rotary_factor", "rotary_pct"]);
        let share = share.or_else(own).unwrap_or(1.0);
        let dim = match (latent, v.count(&["rotary_dim"])?.filter(|n| *n > 0)) {
            (Some(dim), _) | (None, Some(dim)) => dim,
            // Truncated, as the engine does.
            _ => (self.head_dim as f64 * share) as u64,
        };
        // Gemma 4: the layers without a window have wider heads, whose table is as wide.
        let windows = self.family.window_rope;
        let wide = v.count(&["global_head_dim"])?.filter(|_| windows);
        let dim = wide.map_or(dim, |wide| dim.saturating_add(wide) / 2);
        // One for layers with a window, which is never scaled, and one for the others.
        let kind = scaling.and_then(|s| s.words(&["rope_type", "type"]));
        let silent = ["rope_scaling", "rope_parameters"]
            .iter()
            .all(|name| !v.text.contains_key(*name) && !v.outer.contains_key(*name));
        let abridged = silent && most >= LONG_POSITIONS;
        let scaled = match self.family.long_rope_factor.filter(|_| abridged) {
            Some(factor) => most.saturating_mul(factor),
            None => positions(scaling, most),
        };
        let positions = if windows {
            scaled.saturating_add(most) / 2
        } else {
            scaled
        };
        Ok(Some(RopeTables {
            positions,
            dim,
            tables: if windows { 2 } else { 1 },
            // DeepSeek's scaled tables are kept in 32 bits.
            value_bytes: if latent.is_some() && matches!(kind, Some("yarn" | "deepseek_yarn")) {
                4
            } else {
                self.value_bytes()
            },
        }))
    }

    /// Bytes of a value by `torch_dtype`; 2 where it is not set, as engines serve 16 bits.
    pub fn value_bytes(&self) -> u64 {
        let dtype = self.view.anywhere(&["torch_dtype", "dtype"]);
        match dtype.and_then(Value::as_str) {
            Some("float32" | "torch.float32" | "float") => 4,
            _ => 2,
        }
    }
}

/// Positions from which a family's `long_rope_factor` counts.
const LONG_POSITIONS: u64 = 131_072;

/// A sentence where `torch_dtype` is unknown.
pub(super) fn odd_type(v: &View<'_>) -> Option<String> {
    let dtype = v.anywhere(&["torch_dtype", "dtype"])?;
    let known = [
        "float32", "float", "float16", "half", "bfloat16", "auto", "float64", "double",
    ];
    let word = dtype.as_str().map(|w| w.trim_start_matches("torch."));
    if word.is_some_and(|w| known.contains(&w)) {
        return None;
    }
    let dtype: String = word.unwrap_or("no word").chars().take(40).collect();
    Some(format!(
        "unknown `torch_dtype` {dtype:?}: 2 bytes per value are assumed"
    ))
}

/// Positions of a table: scaled ones are longer than what was trained with.
fn positions(scaling: Option<View<'_>>, most: u64) -> u64 {
    let Some(scaling) = scaling else { return most };
    let factor = (scaling.float("factor")).filter(|f| (1.0..=4096.0).contains(f));
    let original = scaling.tokens(&["original_max_position_embeddings"]);
    let original = original.ok().flatten();
    let kind = scaling.words(&["rope_type", "type"]).unwrap_or("default");
    match (kind, factor, original) {
        ("yarn" | "deepseek_yarn", Some(factor), Some(original)) => {
            (factor * original as f64) as u64
        }
        ("linear" | "dynamic", Some(factor), _) => (factor * most as f64) as u64,
        _ => most,
    }
}

fn layers(v: &View<'_>) -> Result<u64, Unknown> {
    let names = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
    let configured = v.count(&names)?;
    let pattern = v.words(&["hybrid_override_pattern"]);
    let listed = v.list("layers_block_type").map(<[Value]>::len);
    let counted = pattern.map(|p| p.chars().count()).or(listed);
    let layers = match (configured, counted) {
        (Some(layers), Some(counted)) if layers != counted as u64 => {
            return Err(Unknown::new(format!(
                "the configuration has num_hidden_layers {layers} but describes {counted} layers"
            )));
        }
        (Some(layers), _) => layers,
        (None, Some(counted)) => counted as u64,
        (None, None) => return Err(missing("num_hidden_layers")),
    };
    match layers {
        0 => Err(Unknown::new("the configuration has 0 layers")),
        n if n > MOST_LAYERS => Err(Unknown::new(format!(
            "the configuration has {n} layers, more than any model"
        ))),
        n => Ok(n),
    }
}

/// Values of a head: what is configured; of latent attention a whole key; else the width's share.
fn head_dim(v: &View<'_>, family: &Family, hidden: u64, heads: u64) -> Result<u64, Unknown> {
    if matches!(family.pattern, Pattern::Latent | Pattern::Kimi) {
        let nope = v.needed(&["qk_nope_head_dim"])?;
        let rope = v.count(&["qk_rope_head_dim"])?;
        return Ok(nope + rope.ok_or_else(|| missing("qk_rope_head_dim"))?);
    }
    let configured = v.count(&["head_dim", "kv_channels", "attention_head_dim"])?;
    match configured.or(family.head_dim) {
        Some(0) => Err(Unknown::new("`head_dim` is 0")),
        Some(dim) => Ok(dim),
        None if hidden.checked_rem(heads) == Some(0) => Ok(hidden / heads),
        None => Err(Unknown::new(format!(
            "a width of {hidden} is not divisible by {heads} heads"
        ))
        .hint("give --head-dim")),
    }
}

fn kv_heads(v: &View<'_>, family: &Family, kind: &str, heads: u64) -> Result<u64, Unknown> {
    let configured = v.count(&[
        "num_key_value_heads",
        "n_head_kv",
        "num_kv_heads",
        "multi_query_group_num",
        "n_kv_heads",
        "num_query_groups",
    ])?;
    let part = v.part("attn_config");
    let own = part.map(|part| part.count(&["kv_n_heads"])).transpose()?;
    let configured = own.flatten().or(configured);
    let multi_query = v.flag("multi_query").unwrap_or(true);
    let kv_heads = match kind {
        "gpt_bigcode" if multi_query => 1,
        "falcon" if v.is("new_decoder_architecture") => {
            v.count(&["num_kv_heads"])?.or(configured).unwrap_or(heads)
        }
        "falcon" if multi_query => 1,
        "falcon" => heads,
        _ => match configured {
            Some(configured) => configured,
            None if family.optional_kv_heads && !(kind == "llama" && is_llama_3(v)) => heads,
            None => return Err(missing("num_key_value_heads")),
        },
    };
    if kv_heads == 0 {
        return Err(Unknown::new("the configuration has 0 key and value heads"));
    }
    if heads % kv_heads != 0 {
        return Err(Unknown::new(format!(
            "{heads} query heads do not divide by {kv_heads} key and value heads"
        )));
    }
    Ok(kv_heads)
}

/// Llama 3 and later have fewer key heads than query heads in every size; Llama 1 did not have the field.
fn is_llama_3(v: &View<'_>) -> bool {
    let scaling = v.part("rope_scaling").or_else(|| v.part("rope_parameters"));
    let scaled = scaling.is_some_and(|s| s.words(&["rope_type", "type"]) == Some("llama3"));
    scaled || v.number("vocab_size") == Some(128_256)
}

fn inner(v: &View<'_>, family: &Family, hidden: u64) -> Result<u64, Unknown> {
    let names = [
        "block_ff_dim",
        "ffn_dim",
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "inner_hidden_size",
    ];
    if let Some(inner) = v.count(&names)? {
        let adjusts = family.pattern == Pattern::Convolutions
            && v.value(&["num_experts"]).is_none()
            && v.flag("block_auto_adjust_ff_dim") != Some(false);
        if !adjusts {
            return Ok(inner);
        }
        // LFM2 (transformers, Lfm2MLP): two thirds of it, times a factor, rounded up.
        let multiple = v.count(&["block_multiple_of"])?.unwrap_or(256).max(1);
        let factor = v.float("block_ffn_dim_multiplier");
        let width = (inner * 2 / 3) as f64 * factor.unwrap_or(1.0).clamp(0.0, 16.0);
        return Ok((width as u64).next_multiple_of(multiple));
    }
    if let Some(part) = v.part("ffn_config") {
        if let Some(inner) = part.count(&["ffn_hidden_size"])? {
            return Ok(inner);
        }
    }
    // What the classes without such a field multiply by.
    match v.count(&["expansion_ratio"])? {
        Some(times) => Ok(times.saturating_mul(hidden)),
        None if family.optional_mlp_width => Ok(hidden.saturating_mul(4)),
        None => Ok(0),
    }
}

fn vocabulary(v: &View<'_>, family: &Family) -> Result<u64, Unknown> {
    let padded = v.vocabulary(&["padded_vocab_size"])?;
    let unpadded = v.vocabulary(&["vocab_size"])?;
    let vocab = if family.padded_vocab {
        padded.or(unpadded)
    } else {
        unpadded.or(padded)
    };
    vocab
        .filter(|n| *n > 0)
        .ok_or_else(|| missing("vocab_size").hint("give --vocab-size"))
}

fn tied(v: &View<'_>, family: &Family) -> bool {
    let configured = v
        .flag("tie_word_embeddings")
        .or_else(|| v.outer.get("tie_word_embeddings").and_then(Value::as_bool));
    family.always_tied || configured.unwrap_or(family.tied)
}
