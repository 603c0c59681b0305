//! Tensors of mixers that keep a state: Mamba, gated delta net, Kimi's, lightning attention, LFM2's convolutions.

use super::facts::Facts;
use super::table::Table;
use super::{Mixer, Split};
use crate::estimate::Unknown;

/// One layer that keeps a state; nothing for any other.
///
/// # Errors
/// When a field that its widths need makes no sense.
pub(super) fn recurrent(t: &mut Table, f: &Facts<'_>, mixer: &Mixer) -> Result<(), Unknown> {
    let h = f.hidden;
    match *mixer {
        Mixer::Mamba2 {
            heads,
            head_dim,
            groups,
            state,
            conv,
        } => {
            let inner = heads * head_dim;
            let mixed = inner + 2 * groups * state;
            t.linear("in_proj", inner + mixed + heads, h, Split::Columns);
            t.plain("conv", mixed, conv, Split::Columns);
            let conv_bias = f.view.flag("mamba_conv_bias");
            if conv_bias.or(f.view.flag("use_conv_bias")).unwrap_or(true) {
                t.split_vector("conv_b", mixed, Split::Columns);
            }
            // A, D and the bias of dt.
            t.split_vector("A_D_dt", 3 * heads, Split::Columns);
            if f.view.flag("mamba_rms_norm") != Some(false) {
                t.split_vector("mnorm", inner, Split::Columns);
            }
            t.linear("out_proj", h, inner, Split::Rows);
        }
        Mixer::Mamba1 { inner, state, conv } => {
            let rank = rank(f)?;
            t.linear("in_proj", 2 * inner, h, Split::Columns);
            t.plain("conv", inner, conv, Split::Columns);
            t.split_vector("conv_b", inner, Split::Columns);
            t.linear("x_proj", rank + 2 * state, inner, Split::Rows);
            t.linear("dt_proj", inner, rank, Split::Columns);
            t.split_vector("dt_b", inner, Split::Columns);
            t.float32("A", inner, state, Split::Columns);
            t.split_vector("D", inner, Split::Columns);
            t.linear("out_proj", h, inner, Split::Rows);
            if f.family.dt_norms {
                t.vector("jnorms", rank + 2 * state);
            }
        }
        Mixer::DeltaNet {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            conv,
        } => {
            let keys = key_heads * key_dim;
            let values = value_heads * value_dim;
            if f.kind == "kimi_linear" {
                kimi(t, f, value_heads, value_dim, conv);
                return Ok(());
            }
            t.linear("in_qkvz", 2 * keys + 2 * values, h, Split::Columns);
            t.plain("in_ba", 2 * value_heads, h, Split::Columns);
            t.plain("conv", 2 * keys + values, conv, Split::Columns);
            t.split_vector("A_dt", 2 * value_heads, Split::Columns);
            t.vector("gnorm", value_dim);
            t.linear("out_proj", h, values, Split::Rows);
        }
        Mixer::Convolution { inner, conv } => {
            t.linear("in_proj", 3 * inner, h, Split::Columns);
            t.plain("conv", inner, conv, Split::Columns);
            if f.view.is("conv_bias") {
                t.split_vector("conv_b", inner, Split::Columns);
                t.split_vector("in_proj_b", 3 * inner, Split::Columns);
                t.vector("out_proj_b", h);
            }
            t.linear("out_proj", h, inner, Split::Rows);
        }
        Mixer::Lightning { heads, head_dim } => {
            let inner = heads * head_dim;
            t.linear("in_qkv", 3 * inner, h, Split::Columns);
            t.linear("out_gate", inner, h, Split::Columns);
            t.linear("out_proj", h, inner, Split::Rows);
            t.split_vector("lnorm", inner, Split::Columns);
        }
        Mixer::Attention { .. } | Mixer::Latent { .. } | Mixer::Compressed { .. } | Mixer::None => {
        }
    }
    Ok(())
}

/// Kimi's delta attention: a decay for each value of a key, by a projection of low rank.
fn kimi(t: &mut Table, f: &Facts<'_>, heads: u64, dim: u64, conv: u64) {
    let h = f.hidden;
    let inner = heads * dim;
    t.linear("in_qkv", 3 * inner, h, Split::Columns);
    t.plain("conv", 3 * inner, conv, Split::Columns);
    t.linear("f_a", dim, h, Split::Replicated);
    t.linear("f_b", inner, dim, Split::Columns);
    t.plain("in_ba", heads, h, Split::Columns);
    let full = f
        .view
        .part("linear_attn_config")
        .is_some_and(|p| p.is("use_full_rank_gate"));
    if full {
        t.linear("out_gate", inner, h, Split::Columns);
    } else {
        t.linear("g_a", dim, h, Split::Replicated);
        t.linear("g_b", inner, dim, Split::Columns);
    }
    t.float32("A_dt", heads + inner, 1, Split::Columns);
    t.vector("gnorm", dim);
    t.linear("out_proj", h, inner, Split::Rows);
}

/// Mamba 1's rank of dt: a number, or `auto` for a sixteenth of the width.
fn rank(f: &Facts<'_>) -> Result<u64, Unknown> {
    let names = ["mamba_dt_rank", "time_step_rank"];
    match f.view.words(&names) {
        Some(_) => Ok(f.hidden.div_ceil(16)),
        None => Ok(f.view.count(&names)?.unwrap_or(f.hidden.div_ceil(16))),
    }
}
