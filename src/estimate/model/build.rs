//! From config.json to a model: the mixers, the tensor table, the tables of positions.

use super::config::{View, missing, whole};
use super::facts::{Facts, odd_type};
use super::families::{self, Family, Norm, Pattern, Positions};
use super::ffn::{self, Plan};
use super::mixers::{self, Layer, Mlp};
use super::table::Table;
use super::vision::{self, Tower};
use super::{Mixer, Model, Predictor, Split, attention, compressed, recurrent};
use crate::estimate::{Component, Moves, Unknown, Unmodelled};
use serde_json::Value;

/// What the user can give instead of a configuration.
const FLAGS: &str = "give --model-params, --num-layers, --num-heads, --num-kv-heads, --head-dim and --hidden-size instead";

/// A model from its config.json.
///
/// # Errors
/// When its architecture is not known, a field that it needs is missing, or a number makes no sense.
pub fn from_config(name: &str, config: &Value, source: &str) -> Result<Model, Unknown> {
    let view = View::of(config)?;
    let (kind, family) = family(&view)?;
    let f = Facts::read(view, family, &kind)?;
    let layers = mixers::layers(&f)?;
    let plan = Plan::read(&f)?;
    let mut t = Table::default();
    let warnings: Vec<String> = odd_type(&f.view).into_iter().collect();
    embeddings(&mut t, &f)?;
    for (i, layer) in (0u32..).zip(&layers) {
        t.enter(Some(i));
        match family.pattern {
            Pattern::Blocks => block(&mut t, &f, i, layer)?,
            _ => one_layer(&mut t, &f, &plan, i, layer)?,
        }
    }
    t.enter(None);
    if family.pattern == Pattern::Compressed {
        compressed::head(&mut t, &f)?;
    }
    let predictor = predictor(&f, &plan, &layers)?;
    let mut unmodelled = Vec::new();
    let mut uncounted = |name: String, moves| {
        unmodelled.push(Unmodelled::new(name, moves, &[Component::Weights]));
    };
    for (tower, named) in [
        (vision::tower(&f.view, f.hidden), "the vision tower"),
        (vision::audio_tower(&f.view, f.hidden), "the audio tower"),
    ] {
        match tower {
            Tower::None => {}
            Tower::Parameters(n) => t.vector("vision", n),
            Tower::NotUnderstood(why) if why.is_empty() => uncounted(named.into(), Moves::Up),
            Tower::NotUnderstood(why) => uncounted(format!("{named} ({why})"), Moves::Up),
        }
    }
    if f.kind.starts_with("gemma3n") {
        uncounted("the parallel streams of Gemma 3n".to_owned(), Moves::Up);
    }
    let quantization = quantization(&f.view);
    if let Some(kind) = f.view.words(&["expert_dtype"]) {
        let has = |q: &Value| q["quant_method"] == "fp8" && q.get("config_groups").is_none();
        let plain_fp8 = quantization.as_ref().is_some_and(has);
        if !(plain_fp8 && matches!(kind, "fp4" | "fp8")) {
            uncounted(format!("experts of the type `{kind}`"), Moves::Either);
        }
    }
    let first = layers.iter().find_map(|l| match l.mixer {
        Mixer::Attention { kv_heads, .. } => Some(kv_heads),
        _ => None,
    });
    Ok(Model {
        name: name.to_owned(),
        kind,
        hidden: f.hidden,
        heads: f.heads,
        kv_heads: first.unwrap_or(f.kv_heads),
        head_dim: f.head_dim,
        vocab: f.vocab,
        max_positions: f.max_positions,
        lends_positions: false,
        tied: f.tied,
        rope: f.rope()?,
        predictor,
        experts_per_token: ffn::experts_per_token(&f.view)?,
        value_bytes: f.value_bytes(),
        quantization,
        mixers: (layers.into_iter())
            .map(|l| if family.encoder { Mixer::None } else { l.mixer })
            .collect(),
        tensors: t.tensors,
        unmodelled,
        warnings,
        config: config.clone(),
        source: source.to_owned(),
    })
}

/// The family, by the language model's `model_type` or the whole model's.
fn family(view: &View<'_>) -> Result<(String, &'static Family), Unknown> {
    let kinds = view.kinds();
    let known = |kind: &String| Some((kind.clone(), families::family(kind)?));
    if let Some(known) = kinds.iter().find_map(known) {
        return Ok(known);
    }
    match kinds.first() {
        None => Err(missing("model_type")),
        Some(kind) => {
            let kind: String = kind.chars().take(60).collect();
            Err(Unknown::new(format!("the architecture `{kind}` is not known")).hint(FLAGS))
        }
    }
}

/// Where a configuration keeps its quantisation, the one that counts first.
pub const QUANTIZATION: [&str; 3] = [
    "quantization_config",
    "compression_config",
    "hf_quant_config",
];

/// `quantization_config`, by whichever name and in whichever part.
fn quantization(view: &View<'_>) -> Option<Value> {
    let found = QUANTIZATION.iter().find_map(|n| view.anywhere(&[n]))?;
    // hf_quant_config.json has it one level deeper.
    let found = found.get("quantization").unwrap_or(found);
    Some(found.clone()).filter(|v| !v.is_null())
}

/// Values of one norm of width `n`.
fn norm(f: &Facts<'_>, n: u64) -> u64 {
    match f.family.norm {
        Norm::Bare => 0,
        Norm::Weight => n,
        Norm::WeightAndBias => 2 * n,
    }
}

fn embeddings(t: &mut Table, f: &Facts<'_>) -> Result<(), Unknown> {
    let v = &f.view;
    let h = f.hidden;
    let width = match v.count(&["word_embed_proj_dim"])? {
        Some(width) if width != h && width > 0 => {
            t.plain("project_in", h, width, Split::Replicated);
            t.plain("project_out", width, h, Split::Replicated);
            width
        }
        _ => h,
    };
    // Llama 3.2 Vision has 8 entries more, which the output layer has not.
    let more = 8 * u64::from(f.family.pattern == Pattern::Crossed);
    t.plain("embed", f.vocab + more, width, Split::Vocabulary);
    if f.family.positions == Positions::Learned {
        let positions = f.max_positions;
        let positions = positions.ok_or_else(|| missing("max_position_embeddings"))?;
        let all = positions.saturating_add(f.family.extra_positions);
        t.plain("pos_embed", all, h, Split::Replicated);
    }
    if f.family.embed_norm {
        t.vector("embed_norm", norm(f, h));
    }
    if f.family.encoder {
        let kinds = v.count(&["type_vocab_size"])?.unwrap_or(0);
        t.plain("pos_embed", kinds, h, Split::Replicated);
        t.linear("pooler", h, h, Split::Replicated);
        t.vector("pooler", h);
    }
    let each = per_layer_width(f)?;
    if each > 0 {
        // Gemma's E models: a second embedding with a part for each layer, and what mixes it with the first.
        let all = each.saturating_mul(f.layers);
        let entries = v.vocabulary(&["vocab_size_per_layer_input"])?;
        let entries = entries.unwrap_or(f.vocab);
        t.plain("embed_per_layer", entries, all, Split::Vocabulary);
        t.linear("per_layer", all, h, Split::Columns);
        t.vector("norm", each);
    }
    // OPT-350m norms after each layer, and not at the end; encoders of texts never at the end.
    if v.flag("do_layer_norm_before") != Some(false) && !f.family.encoder {
        t.vector("final_norm", norm(f, h));
    }
    if !f.tied {
        t.plain("lm_head", f.vocab, width, Split::Vocabulary);
        if f.family.head_bias || v.is("lm_head_bias") {
            t.split_vector("lm_head_bias", f.vocab, Split::Vocabulary);
        }
    }
    Ok(())
}

fn one_layer(
    t: &mut Table,
    f: &Facts<'_>,
    plan: &Plan,
    i: u32,
    layer: &Layer,
) -> Result<(), Unknown> {
    match layer.mixer {
        Mixer::Attention { .. } => attention::attention(t, f, i.into(), layer),
        Mixer::Compressed { .. } => compressed::tensors(t, f, i)?,
        Mixer::Latent { rank, rope, index } => {
            attention::latent(t, f, rank, rope, index)?;
        }
        ref other => recurrent::recurrent(t, f, other)?,
    }
    match layer.mlp {
        Mlp::Configured => plan.configured_mlp(t, f, i.into())?,
        Mlp::None => {}
        Mlp::Dense => plan.dense(t, f)?,
        Mlp::Experts => plan.experts(t, f)?,
    }
    let each = per_layer_width(f)?;
    if each > 0 {
        t.linear("per_layer", each, f.hidden, Split::Replicated);
        t.linear("per_layer", f.hidden, each, Split::Replicated);
        t.vector("norm", f.hidden);
    }
    t.vector("norm", norm(f, f.hidden) * norms(f, layer));
    Ok(())
}

/// Width of the embedding that each layer has of its own; 0 where there is none.
fn per_layer_width(f: &Facts<'_>) -> Result<u64, Unknown> {
    let width = f.view.count(&["hidden_size_per_layer_input"])?;
    Ok(width.unwrap_or(0))
}

/// The layers that predict further tokens: each is like the last layer, unless the configuration describes it, with a
/// projection of two widths to one and three norms.
fn predictor(f: &Facts<'_>, plan: &Plan, layers: &[Layer]) -> Result<Predictor, Unknown> {
    let v = &f.view;
    let names = ["num_nextn_predict_layers", "mtp_num_hidden_layers"];
    // Qwen3-Next has one, and does not say so.
    let unnamed = u64::from(f.kind == "qwen3_next");
    let count = v.count(&names)?.unwrap_or(unnamed).min(64);
    let (1.., Some(last)) = (count, layers.last()) else {
        return Ok(Predictor::default());
    };
    let own = match v.words(&["mtp_hybrid_override_pattern"]) {
        Some(pattern) => mixers::lettered(f, pattern)?,
        None if f.family.dense_predictor => vec![Layer {
            mlp: Mlp::Dense,
            ..last.clone()
        }],
        None => vec![last.clone()],
    };
    let at = layers.len() as u32 - 1;
    let mut t = Table::default();
    let mut mixers = Vec::new();
    for i in 0..count as u32 {
        t.enter(Some(layers.len() as u32 + i));
        for layer in &own {
            one_layer(&mut t, f, plan, at, layer)?;
            mixers.push(layer.mixer.clone());
        }
        t.plain("mtp_proj", f.hidden, 2 * f.hidden, Split::Replicated);
        t.vector("norm", 3 * norm(f, f.hidden));
    }
    Ok(Predictor {
        tensors: t.tensors,
        mixers,
    })
}

/// Norms of the model's width in one layer.
fn norms(f: &Facts<'_>, layer: &Layer) -> u64 {
    let v = &f.view;
    match f.kind.as_str() {
        _ if layer.mlp != Mlp::Configured => 1,
        "falcon" if v.flag("parallel_attn") == Some(false) => 2,
        "falcon" => {
            let one = v.number("num_ln_in_parallel_attn") == Some(1);
            1 + u64::from(v.is("new_decoder_architecture") && !one)
        }
        "stablelm" if v.is("use_parallel_residual") => 1,
        _ => f.family.norms,
    }
}

/// A layer of a searched architecture: attention and MLP are each there, replaced or left out.
fn block(t: &mut Table, f: &Facts<'_>, i: u32, layer: &Layer) -> Result<(), Unknown> {
    let h = f.hidden;
    let blocks = f.view.per_layer("block_configs", f.layers)?;
    let block = blocks
        .and_then(|b| b.get(i as usize))
        .unwrap_or(&Value::Null);
    let part = |name: &str| block.get(name).unwrap_or(&Value::Null).clone();
    let is = |part: &Value, name: &str| part.get(name).and_then(Value::as_bool) == Some(true);
    let (mixer, mlp) = (part("attention"), part("ffn"));
    if is(&mixer, "replace_with_linear") {
        t.linear("attn_linear", h, h, Split::Columns);
        t.vector("norm", h);
    } else if !is(&mixer, "no_op") {
        attention::attention(t, f, i.into(), layer);
        t.vector("norm", h);
    }
    if is(&mlp, "replace_with_linear") {
        t.linear("mlp_linear", h, h, Split::Columns);
        t.vector("norm", h);
    } else if !is(&mlp, "no_op") {
        let intermediate = mlp.get("intermediate_size").filter(|n| !n.is_null());
        let inner = match intermediate {
            Some(n) => whole(n, "intermediate_size", 1 << 20)?,
            None => {
                let times = mlp
                    .get("ffn_mult")
                    .and_then(Value::as_f64)
                    .filter(|n| (0.0..=64.0).contains(n))
                    .ok_or_else(|| missing("ffn_mult"))?;
                // Two thirds, and up to a multiple of 256: as its modelling code does.
                ((2.0 * times * h as f64 / 3.0) as u64).next_multiple_of(256)
            }
        };
        ffn::mlp(t, f, inner, ["gate_up", "down"]);
        t.vector("norm", h);
    }
    Ok(())
}
