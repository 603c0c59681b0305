//! Tensors of attention: plain, and latent with its indexer.

use super::facts::Facts;
use super::families::{Bias, Pattern, QkNorm};
use super::mixers::Layer;
use super::table::Table;
use super::{Mixer, Split};
use crate::estimate::Unknown;

/// Biases of queries, keys and values; and of the output.
fn biases(f: &Facts<'_>) -> (bool, bool) {
    let v = &f.view;
    match f.family.bias {
        Bias::Never => (false, false),
        Bias::Qkv => (true, false),
        Bias::AllUnless => {
            let has = v.flag(&f.family.bias_field) != Some(false);
            (has, has)
        }
        Bias::AllIf => {
            let has = v.is(&f.family.bias_field);
            (has, has)
        }
        Bias::Configured => {
            let attention = v.is("attention_bias");
            let qkv = ["qkv_bias", "use_qkv_bias", "add_qkv_bias"];
            (
                attention || qkv.iter().any(|name| v.is(name)),
                attention && (f.family.bias_output || v.is("attention_out_bias")),
            )
        }
    }
}

/// One layer of attention with keys and values for each head.
pub(super) fn attention(t: &mut Table, f: &Facts<'_>, i: u64, layer: &Layer) {
    let Mixer::Attention {
        kv_heads,
        key_dim,
        value_dim,
        shares,
        ..
    } = layer.mixer
    else {
        return;
    };
    let v = &f.view;
    let heads = layer.heads;
    let gate = if f.family.output_gate && v.flag("attn_output_gate") != Some(false) {
        2
    } else {
        1
    };
    t.linear("q", gate * heads * key_dim, f.hidden, Split::Columns);
    let own_values = if layer.joined { 0 } else { value_dim };
    let kv = kv_heads * (key_dim + own_values);
    // A layer that shares another's keys has no projection for them.
    if !shares {
        t.linear("kv", kv, f.hidden, Split::KvHeads);
    }
    t.linear("o", f.hidden, heads * value_dim, Split::Rows);
    let (qkv_bias, o_bias) = biases(f);
    if qkv_bias {
        t.split_vector("q_bias", heads * key_dim, Split::Columns);
        t.split_vector("kv_bias", kv, Split::KvHeads);
    }
    if o_bias {
        t.vector("o_bias", f.hidden);
    }
    let normed = v.is("use_qk_norm");
    let norm = match f.family.qk_norm {
        QkNorm::Head => 2 * key_dim,
        QkNorm::HeadIfUsed if normed => 2 * key_dim,
        QkNorm::Wide => (heads + kv_heads) * key_dim,
        QkNorm::WideIfUsed if normed => (heads + kv_heads) * key_dim,
        _ => 0,
    };
    t.vector("qk_norm", norm);
    let windowed = layer.mixer.window().is_some();
    let sinks = f.family.sinks
        || windowed && v.is("add_swa_attention_sink_bias")
        || !windowed && v.is("add_full_attention_sink_bias");
    // Llama 3.2 Vision's layers that look at the image: norms of a head, and two gates.
    let crossed = f.family.pattern == Pattern::Crossed && v.lists("cross_attention_layers", i);
    if crossed {
        t.vector("qk_norm", 2 * key_dim);
        t.vector("cross_gates", 2);
    }
    if sinks {
        t.split_vector("sinks", heads, Split::Columns);
    }
    // A gate of Step and Laguna: one value for each head, or for each value of a head.
    let per_element = f.kind == "laguna" && v.words(&["gating"]) == Some("per-element");
    let per_head =
        f.kind == "laguna" && (v.is("gating") || v.words(&["gating"]) == Some("per-head"));
    if per_element {
        t.linear("attn_gate", heads * value_dim, f.hidden, Split::Columns);
    } else if per_head || v.is("use_head_wise_attn_gate") {
        t.linear("attn_gate", heads, f.hidden, Split::Columns);
    }
}

/// One layer of multi-head latent attention.
///
/// # Errors
/// When the configuration lacks one of its widths.
pub(super) fn latent(
    t: &mut Table,
    f: &Facts<'_>,
    rank: u64,
    rope: u64,
    index: Option<u64>,
) -> Result<(), Unknown> {
    let v = &f.view;
    let nope = v.needed(&["qk_nope_head_dim"])?;
    let value = v.needed(&["v_head_dim"])?;
    let query = v.count(&["q_lora_rank"])?.filter(|n| *n > 0);
    match query {
        Some(query) => {
            t.linear("q_a", query, f.hidden, Split::Replicated);
            t.vector("q_a_norm", query);
            t.linear("q_b", f.heads * (nope + rope), query, Split::Columns);
        }
        None => t.linear("q", f.heads * (nope + rope), f.hidden, Split::Columns),
    }
    t.linear("kv_a", rank + rope, f.hidden, Split::Replicated);
    t.vector("kv_a_norm", rank);
    t.linear("kv_b", f.heads * (nope + value), rank, Split::Columns);
    t.linear("o", f.hidden, f.heads * value, Split::Rows);
    if v.is("mla_use_output_gate") {
        t.linear("o_gate", f.heads * value, f.hidden, Split::Columns);
    }
    if let Some(dim) = index {
        let heads = v.needed(&["index_n_heads"])?;
        let from = query.unwrap_or(f.hidden);
        t.linear("idx_wq_b", heads * dim, from, Split::Replicated);
        t.linear("idx_wk", dim, f.hidden, Split::Replicated);
        t.vector("idx_knorm", 2 * dim);
        t.plain("idx_w", heads, f.hidden, Split::Replicated);
    }
    Ok(())
}
