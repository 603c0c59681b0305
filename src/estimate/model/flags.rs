//! A model of which only a few figures are known: what the flags say.

use super::table::Table;
use super::{Mixer, Model, Split, from_config};
use crate::estimate::{Component, Moves, Unknown, Unmodelled};
use crate::units::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the flags say of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--model-params`: parameters.
    pub parameters: Option<u64>,
    /// `--num-layers`
    pub layers: Option<u64>,
    /// `--num-heads`: query heads.
    pub heads: Option<u64>,
    /// `--num-kv-heads`; as many as query heads where it is not given.
    pub kv_heads: Option<u64>,
    /// `--head-dim`; the width by the heads where it is not given.
    pub head_dim: Option<u64>,
    /// `--hidden-size`
    pub hidden: Option<u64>,
    /// `--vocab-size`
    pub vocab: Option<u64>,
    /// `--intermediate-size`
    pub intermediate: Option<u64>,
}

/// KV heads that most models with grouped heads have.
const USUAL_KV_HEADS: u64 = 8;

/// Bytes of a token in the cache by both readings of a model without its number of key and value heads, a sentence
/// without a full stop; `None` where a figure is missing or both agree.
pub fn describe_kv_readings(layers: u64, heads: u64, head_dim: u64) -> Option<String> {
    let other = if heads > USUAL_KV_HEADS {
        USUAL_KV_HEADS
    } else {
        1
    };
    let token = |kv_heads: u64| {
        // Keys and values, of two bytes.
        let bytes = [2, 2, layers, kv_heads, head_dim];
        Some(Bytes(bytes.into_iter().try_fold(1u64, u64::checked_mul)?))
    };
    (heads > 1).then_some(format!(
        "--num-kv-heads is not given: in 16 bits a token takes {} of cache with one for each of the {heads} attention heads, {} with {other}",
        token(heads)?,
        token(other)?
    ))
}

impl Flags {
    /// By the keys of a sweep file: `num_layers`.
    pub fn of_figures(figures: &BTreeMap<String, f64>) -> Flags {
        let figure = |key: &str| figures.get(key).map(|n| n.round() as u64);
        Flags {
            parameters: figure("model_params"),
            layers: figure("num_layers"),
            heads: figure("num_heads"),
            kv_heads: figure("num_kv_heads"),
            head_dim: figure("head_dim"),
            hidden: figure("hidden_size"),
            ..Flags::default()
        }
    }

    /// None is given.
    pub fn is_empty(&self) -> bool {
        *self == Flags::default()
    }
}

/// A model of which only the flags are known: plain attention in each layer. With
/// `--model-params` the parameters are one matrix; without it they are counted as Llama's, for
/// which `--vocab-size` and `--intermediate-size` are needed.
///
/// # Errors
/// When a flag is missing that the layers or the parameters need, or a number makes no sense.
pub fn from_flags(name: &str, flags: &Flags) -> Result<Model, Unknown> {
    let missing: Vec<&str> = [
        ("--num-layers", flags.layers.is_none()),
        ("--num-heads", flags.heads.is_none()),
        (
            "--hidden-size",
            flags.hidden.is_none() && (flags.head_dim.is_none() || flags.parameters.is_none()),
        ),
        (
            "--model-params",
            flags.parameters.is_none() && (flags.vocab.is_none() || flags.intermediate.is_none()),
        ),
    ]
    .into_iter()
    .filter_map(|(flag, missing)| missing.then_some(flag))
    .collect();
    let (Some(layers), Some(heads), true) = (flags.layers, flags.heads, missing.is_empty()) else {
        return Err(Unknown::new(format!(
            "a model given by figures needs {}",
            missing.join(", ")
        ))
        .hint("or give its config.json with --config FILE"));
    };
    let hidden = flags
        .hidden
        .or_else(|| heads.checked_mul(flags.head_dim.unwrap_or(0)))
        .unwrap_or(u64::MAX);
    // Checked as a configuration's are.
    let mut config = json!({
        "model_type": "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": hidden,
        "vocab_size": flags.vocab.unwrap_or(1),
        "intermediate_size": flags.intermediate.unwrap_or(1),
        "tie_word_embeddings": false,
    });
    let more = [
        ("num_key_value_heads", flags.kv_heads.or(flags.heads)),
        ("head_dim", flags.head_dim),
    ];
    for (field, value) in more {
        if let Some(value) = value {
            config[field] = Value::from(value);
        }
    }
    let mut model = from_config(name, &config, "flags")?;
    model.kind = "given by flags".to_owned();
    model.vocab = flags.vocab.unwrap_or(0);
    model.config = Value::Null;
    if flags.kv_heads.is_none() {
        model.unmodelled.push(Unmodelled::new(
            "grouped key and value heads, as --num-kv-heads is not given and one for each attention head is taken",
            Moves::Down,
            &[Component::KvCache],
        ));
        let head_dim = flags.head_dim.or_else(|| hidden.checked_div(heads));
        let readings = head_dim.and_then(|dim| describe_kv_readings(layers, heads, dim));
        model.warnings.extend(readings);
    }
    if let Some(parameters) = flags.parameters {
        model.tensors = whole(&model, parameters, flags.intermediate)?;
        model.warnings.push(
            "the parameters are taken as one matrix that tensor parallelism splits evenly".into(),
        );
    }
    debug_assert!(
        model
            .mixers
            .iter()
            .all(|m| matches!(m, Mixer::Attention { .. }))
    );
    Ok(model)
}

/// The parameters as one matrix, beside the embedding where the vocabulary is known and the MLPs where their width
/// is: a forward pass holds what is as wide as those.
fn whole(
    model: &Model,
    parameters: u64,
    intermediate: Option<u64>,
) -> Result<Vec<super::Tensor>, Unknown> {
    let mut t = Table::default();
    let embedding = model.vocab.saturating_mul(model.hidden);
    let rest = match model.vocab {
        0 => parameters,
        _ => parameters
            .checked_sub(embedding.saturating_mul(2))
            .ok_or_else(|| {
                Unknown::new(format!(
                    "{parameters} parameters are too few for a vocabulary of {} entries",
                    model.vocab
                ))
            })?,
    };
    if model.vocab > 0 {
        t.plain("embed", model.vocab, model.hidden, Split::Vocabulary);
        t.plain("lm_head", model.vocab, model.hidden, Split::Vocabulary);
    }
    let layers = model.mixers.len() as u64;
    let mlps = intermediate.and_then(|inner| {
        inner
            .checked_mul(3)?
            .checked_mul(model.hidden)?
            .checked_mul(layers)
    });
    let mut rest = rest;
    if let (Some(inner), Some(left)) = (intermediate, mlps.and_then(|n| rest.checked_sub(n))) {
        rest = left;
        for layer in 0..model.mixers.len() {
            t.enter(u32::try_from(layer).ok());
            t.linear(
                "gate_up",
                inner.saturating_mul(2),
                model.hidden,
                Split::Columns,
            );
            t.linear("down", model.hidden, inner, Split::Rows);
        }
        t.enter(None);
    }
    // As wide as the model, in whole blocks of any format: scales are of many values, not of each.
    let width = model.hidden.max(1).next_multiple_of(256);
    if rest >= width {
        t.linear("all", rest / width, width, Split::Columns);
    }
    t.vector("norm", rest % width);
    Ok(t.tensors)
}
