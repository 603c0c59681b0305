//! Tensors of the MLPs: dense, experts, shared experts, and the plan of which layer has which.

use super::Split;
use super::config::{View, missing, whole};
use super::facts::Facts;
use super::families::{Bias, Experts, Pattern};
use super::table::Table;
use crate::estimate::Unknown;
use serde_json::Value;

/// What the layers' MLPs are.
pub(super) struct Plan {
    /// Width of a dense one; 0 where it is not set.
    dense: u64,
    /// The field that sets it.
    wide: &'static str,
    /// The experts, where there are any.
    moe: Option<Moe>,
}

/// A layer of experts.
#[derive(Debug, Clone, Copy)]
struct Moe {
    experts: u64,
    inner: u64,
    /// Width of the shared experts together; 0: none.
    shared: u64,
    /// The shared expert has a gate of its own.
    shared_gate: bool,
    /// Width that the experts work on, where it is not the model's.
    latent: Option<u64>,
    correction: bool,
}

/// Experts that one token is sent to.
pub(super) fn experts_per_token(v: &View<'_>) -> Result<Option<u64>, Unknown> {
    let names = [
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_top_k",
        "moe_topk",
        "moe_k",
    ];
    match (v.count(&names)?, v.part("ffn_config")) {
        (Some(n), _) => Ok(Some(n)),
        (None, Some(part)) => part.count(&["moe_top_k"]),
        (None, None) => Ok(None),
    }
}

impl Plan {
    pub fn read(f: &Facts<'_>) -> Result<Self, Unknown> {
        let v = &f.view;
        let names = [
            "num_local_experts",
            "n_routed_experts",
            "num_experts",
            "moe_num_experts",
        ];
        let mut experts = v.count(&names)?;
        if let (None, Some(part)) = (experts, v.part("ffn_config")) {
            experts = part.count(&["moe_num_experts"])?;
        }
        if f.family.experts == Experts::Beside && !v.is("enable_moe_block") {
            experts = None;
        }
        let wide = f.family.dense_width_field.as_deref();
        let dense = match wide {
            _ if f.family.halved_mlp => f.inner / 2,
            Some(field) => v.count(&[field])?.unwrap_or(0),
            None => v.count(&["dense_intermediate_size"])?.unwrap_or(f.inner),
        };
        // Nemotron's pattern names the layers with experts, Gemma's flag whether there are any.
        let named = f.family.experts == Experts::Beside || f.family.pattern == Pattern::NemotronH;
        if experts.is_none() && !named {
            if let Some(field) = experts_field(f) {
                return Err(missing(field));
            }
        }
        let experts = experts.filter(|n| *n > 0);
        let moe = experts.map(|n| Moe::read(f, n)).transpose()?;
        let wide = wide.unwrap_or("intermediate_size");
        Ok(Plan { dense, wide, moe })
    }

    /// The MLP of layer `i` by the configuration.
    pub fn configured_mlp(&self, t: &mut Table, f: &Facts<'_>, i: u64) -> Result<(), Unknown> {
        match &self.moe {
            Some(moe) if f.family.experts == Experts::Beside => {
                self.dense(t, f)?;
                moe.tensors(t, f);
                // The router's scale, one scale for each expert, and three norms more (Gemma 4).
                t.vector("router_scale", f.hidden + moe.experts);
                t.vector("norm", 3 * f.hidden);
            }
            Some(moe) if has_experts(f, i)? => moe.tensors(t, f),
            _ if widened(f, i)? => mlp(t, f, 2 * self.dense, ["gate_up", "down"]),
            _ => self.dense(t, f)?,
        }
        Ok(())
    }

    /// Experts, where the mixers' pattern has them.
    pub fn experts(&self, t: &mut Table, f: &Facts<'_>) -> Result<(), Unknown> {
        let moe = self.moe.ok_or_else(|| missing("n_routed_experts"))?;
        moe.tensors(t, f);
        Ok(())
    }

    /// A dense MLP.
    ///
    /// # Errors
    /// When the configuration does not set its width.
    pub fn dense(&self, t: &mut Table, f: &Facts<'_>) -> Result<(), Unknown> {
        if self.dense == 0 {
            return Err(no_width(f, self.wide));
        }
        mlp(t, f, self.dense, ["gate_up", "down"]);
        Ok(())
    }
}

/// Gemma 4: layers that use the keys of earlier ones may have an MLP of twice the width.
fn widened(f: &Facts<'_>, i: u64) -> Result<bool, Unknown> {
    let v = &f.view;
    let sharing = v.count(&["num_kv_shared_layers"])?.unwrap_or(0);
    Ok(v.is("use_double_wide_mlp") && i >= f.layers.saturating_sub(sharing))
}

/// The field with the number of experts, where others are set that only models with experts have.
fn experts_field(f: &Facts<'_>) -> Option<&'static str> {
    let signs = [
        "moe_intermediate_size",
        "num_experts_per_tok",
        "num_experts_per_token",
        "first_k_dense_replace",
    ];
    let mut counts = signs.iter().filter_map(|name| f.view.number(name));
    let any = counts.any(|n| n > 0);
    any.then_some(f.family.experts_field.as_str())
}

/// Whether layer `i` has experts, in a model that has some.
fn has_experts(f: &Facts<'_>, i: u64) -> Result<bool, Unknown> {
    let v = &f.view;
    let at_least_1 =
        |name: &str, default: u64| Ok::<_, Unknown>(v.count(&[name])?.unwrap_or(default).max(1));
    match f.family.experts {
        Experts::Step => {
            let step = at_least_1("decoder_sparse_step", 1)?;
            Ok(!v.lists("mlp_only_layers", i) && (i + 1) % step == 0)
        }
        Experts::Interleaved => match v.list("moe_layers") {
            Some(list) if !list.is_empty() => Ok(v.lists("moe_layers", i)),
            _ => Ok((i + 1) % at_least_1("interleave_moe_layer_step", 1)? == 0),
        },
        Experts::Period => {
            let offset = v.count(&["expert_layer_offset"])?.unwrap_or(1);
            Ok(i % at_least_1("expert_layer_period", 2)? == offset)
        }
        Experts::Range => {
            let first = v.count(&["moe_layer_start_index"])?.unwrap_or(1);
            // -1 is the last layer.
            let last = v.number("moe_layer_end_index");
            Ok(i >= first && last.is_none_or(|last| i <= last))
        }
        Experts::Beside => Ok(true),
        Experts::FirstDense => {
            if let Some(types) = v.per_layer("mlp_layer_types", f.layers)? {
                let kind = types.get(i as usize).and_then(Value::as_str);
                return Ok(kind == Some("sparse"));
            }
            if let Some(sparse) = v.per_layer("is_moe_layer", f.layers)? {
                return Ok(sparse.get(i as usize) == Some(&Value::Bool(true)));
            }
            let first = v
                .count(&["first_k_dense_replace", "num_dense_layers"])?
                .unwrap_or(0);
            let turn = match v.value(&["moe_layer_freq"]) {
                Some(Value::Array(_)) => {
                    let list = v.per_layer("moe_layer_freq", f.layers)?.unwrap_or(&[]);
                    list.get(i as usize).and_then(Value::as_u64) == Some(1)
                }
                Some(n) => i % whole(n, "moe_layer_freq", f.layers)?.max(1) == 0,
                None => true,
            };
            Ok(i >= first && turn)
        }
    }
}

impl Moe {
    fn read(f: &Facts<'_>, experts: u64) -> Result<Self, Unknown> {
        let v = &f.view;
        let inner = v.count(&[
            "moe_intermediate_size",
            "expert_ffn_hidden_size",
            "moe_ffn_hidden_size",
        ])?;
        let inner = match inner {
            Some(inner) => inner,
            None if !f.family.experts_as_wide_as_mlp => {
                return Err(missing("moe_intermediate_size"));
            }
            None => f.inner,
        };
        if inner == 0 {
            return Err(no_width(f, "intermediate_size"));
        }
        let count = v.count(&[
            "n_shared_experts",
            "num_shared_experts",
            "num_shared_expert",
            "moe_num_shared_experts",
        ])?;
        let width = v.count(&["shared_expert_intermediate_size"])?;
        let (shared, shared_gate) = match (count.unwrap_or(0), width) {
            _ if f.family.experts == Experts::Interleaved => (f.inner, false),
            (0, Some(width)) => (width, true),
            (0, None) => {
                let width = v.count(&["shared_intermediate_size"])?;
                (width.unwrap_or(0), false)
            }
            (n, width) => {
                let names = ["moe_shared_expert_intermediate_size", "share_expert_dim"];
                let width = width.or(v.count(&names)?);
                (n * width.unwrap_or(inner), false)
            }
        };
        let router_bias = [
            "use_moe_router_bias",
            "use_routing_bias",
            "moe_router_enable_expert_bias",
        ];
        let correction = match router_bias.iter().find_map(|name| v.flag(name)) {
            Some(configured) => configured,
            None => f.family.correction && v.words(&["topk_method"]) != Some("greedy"),
        };
        Ok(Moe {
            experts,
            inner,
            shared,
            shared_gate,
            latent: v
                .count(&["moe_latent_size", "routed_expert_hidden_size"])?
                .filter(|n| *n > 0),
            correction,
        })
    }

    fn tensors(&self, t: &mut Table, f: &Facts<'_>) {
        let (n, h, inner) = (self.experts, f.hidden, self.inner);
        let stated = f.view.words(&["router_dtype"]);
        if f.family.float32_router || stated == Some("fp32") {
            t.float32("router", n, h, Split::Replicated)
        } else {
            t.plain("router", n, h, Split::Replicated)
        }
        if self.correction {
            t.float32("corr_bias", n, 1, Split::Replicated);
        }
        let width = self.latent.unwrap_or(h);
        if let Some(latent) = self.latent {
            t.linear("fc1_latent", latent, h, Split::Replicated);
            t.linear("fc2_latent", h, latent, Split::Replicated);
            if f.view.is("latent_moe_use_norm") {
                t.vector("norm", latent);
            }
        }
        let halves = if f.family.gated { 2 } else { 1 };
        if f.family.expert_bias {
            t.vector("router_b", n);
            t.expert_vectors("exp_b13", halves * inner, Split::ExpertColumns, n);
            t.expert_vectors("exp_b2", h, Split::ExpertReplicated, n);
        }
        t.experts("exp_w13", (halves * inner, width), Split::ExpertColumns, n);
        t.experts("exp_w2", (width, inner), Split::ExpertRows, n);
        if self.shared > 0 {
            mlp(t, f, self.shared, ["sh_gate_up", "sh_down"]);
        }
        if self.shared_gate {
            t.plain("sh_gate", 1, h, Split::Replicated);
        }
    }
}

/// A width that is 0 or not there.
fn no_width(f: &Facts<'_>, field: &str) -> Unknown {
    match f.view.value(&[field]) {
        Some(_) => Unknown::new(format!("`{field}` is 0, and layers have an MLP")),
        None => missing(field),
    }
}

/// A gated or plain MLP.
pub(super) fn mlp(t: &mut Table, f: &Facts<'_>, inner: u64, roles: [&'static str; 2]) {
    let halves = if f.family.gated { 2 } else { 1 };
    t.linear(roles[0], halves * inner, f.hidden, Split::Columns);
    t.linear(roles[1], f.hidden, inner, Split::Rows);
    let v = &f.view;
    let family = match f.family.bias {
        Bias::AllUnless => f.family.mlp_bias && v.flag(&f.family.bias_field) != Some(false),
        Bias::AllIf => v.is(&f.family.bias_field),
        _ => f.family.mlp_bias,
    };
    if family || v.is("mlp_bias") {
        t.split_vector("up_b", halves * inner, Split::Columns);
        t.vector("down_b", f.hidden);
    }
}
