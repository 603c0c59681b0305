//! DeepSeek V4: attention over compressed keys, and several residual streams.
//!
//! Sources: the model's published inference code and vLLM's deepseek_v4: queries through a low
//! rank, one key that is the value too, outputs by groups through a low rank, a compressor in the
//! layers that have a ratio, and an indexer where the ratio is 4.

use super::facts::Facts;
use super::mixers::Layer;
use super::table::Table;
use super::{Mixer, Split};
use crate::estimate::Unknown;
use serde_json::Value;

/// Tokens of a window where the configuration names none (vLLM, models/deepseek_v4).
const WINDOW: u64 = 128;

/// All layers.
///
/// # Errors
/// When a ratio makes no sense.
pub(super) fn layers(f: &Facts<'_>) -> Result<Vec<Layer>, Unknown> {
    let v = &f.view;
    let window = v.tokens(&["sliding_window"])?.unwrap_or(WINDOW);
    let own = v.count(&["index_head_dim"])?;
    (0..f.layers)
        .map(|i| {
            let ratio = ratio(f, i)?;
            Ok(Layer {
                heads: f.heads,
                ..Layer::from(Mixer::Compressed {
                    ratio,
                    dim: f.head_dim,
                    index: own.filter(|_| ratio == 4),
                    window,
                })
            })
        })
        .collect()
}

/// Tokens of a key of layer `i`.
fn ratio(f: &Facts<'_>, i: u64) -> Result<u64, Unknown> {
    let ratios = f.view.per_layer("compress_ratios", f.layers)?;
    let ratio = ratios
        .and_then(|r| r.get(i as usize))
        .and_then(Value::as_u64);
    match ratio.unwrap_or(0) {
        ratio if ratio > 1 << 20 => Err(Unknown::new(format!(
            "`compress_ratios` has {ratio}: more than any model has"
        ))),
        ratio => Ok(ratio),
    }
}

/// The tensors of layer `i` but its experts.
///
/// # Errors
/// When the configuration lacks one of its widths.
pub(super) fn tensors(t: &mut Table, f: &Facts<'_>, i: u32) -> Result<(), Unknown> {
    let v = &f.view;
    let h = f.hidden;
    let query = v.needed(&["q_lora_rank"])?;
    let groups = v.needed(&["o_groups"])?;
    let rank = v.needed(&["o_lora_rank"])?;
    let wide = f.heads * f.head_dim;
    t.linear("q_a", query, h, Split::Replicated);
    t.vector("q_a_norm", query);
    t.linear("q_b", wide, query, Split::Columns);
    t.linear("kv_a", f.head_dim, h, Split::Replicated);
    t.vector("kv_a_norm", f.head_dim);
    // Each group has its own columns, so the matrix is as wide as one group.
    t.linear("o_a", groups * rank, wide / groups, Split::Columns);
    t.linear("o_b", h, groups * rank, Split::Rows);
    t.float32("sinks", f.heads, 1, Split::Columns);
    match ratio(f, i.into())? {
        0 => {}
        // Windows that overlap take twice the width.
        4 => {
            compressor(t, f, 2 * f.head_dim, f.head_dim, 4);
            let heads = v.needed(&["index_n_heads"])?;
            let dim = v.needed(&["index_head_dim"])?;
            t.linear("idx_wq_b", heads * dim, query, Split::Replicated);
            t.plain("idx_w", heads, h, Split::Replicated);
            compressor(t, f, 2 * dim, dim, 4);
        }
        ratio => compressor(t, f, f.head_dim, f.head_dim, ratio),
    }
    // The streams' maps for attention and for the experts.
    let streams = v.count(&["hc_mult"])?.unwrap_or(0);
    if streams > 0 {
        let maps = (2 + streams) * streams;
        for _ in 0..2 {
            t.float32("streams", maps, streams * h + 1, Split::Replicated);
            t.float32("streams", 3, 1, Split::Replicated);
        }
    }
    // The first layers choose experts by the token itself.
    if u64::from(i) < v.count(&["num_hash_layers"])?.unwrap_or(0) {
        let experts = v.count(&["num_experts_per_tok"])?.unwrap_or(0);
        t.float32("hash_table", f.vocab, experts, Split::Replicated);
    }
    Ok(())
}

/// Keys and gates of a window, its positions, and a norm.
fn compressor(t: &mut Table, f: &Facts<'_>, width: u64, dim: u64, ratio: u64) {
    t.plain("compressor", 2 * width, f.hidden, Split::Replicated);
    t.float32("compressor_ape", ratio, width, Split::Replicated);
    t.vector("compressor_norm", dim);
}

/// What joins the streams before the output layer.
pub(super) fn head(t: &mut Table, f: &Facts<'_>) -> Result<(), Unknown> {
    let streams = f.view.count(&["hc_mult"])?.unwrap_or(0);
    if streams > 0 {
        t.float32(
            "streams",
            streams,
            streams * f.hidden + 1,
            Split::Replicated,
        );
        t.float32("streams", 1, 1, Split::Replicated);
    }
    Ok(())
}
