//! CUDA graphs: what their capture takes, and what vLLM forecasts of it.
//!
//! The form is physical, its constants are fitted: a start, so much for each layer and capture, more of it where the
//! layer routes to experts, and the accumulators that attention splits its work into (FlashAttention 3: 32 splits of
//! 32-bit results for each head and token of the largest capture). Scored by leaving an architecture's runs out.

use super::{
    Deployment, EngineId, Mixer, Model, Version,
    arithmetic::count_if,
    engines::{
        self, Generation, Settings,
        vllm::{self, Captures},
    },
};
use crate::units::GIB;
use std::collections::BTreeSet;

/// Constants of one fit, GiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Whatever the model.
    pub start: f64,
    /// For each layer and 1,000 captures; a capture in pieces and one that is whole count alike.
    pub layer: f64,
    /// The same, besides, where a layer routes to experts.
    pub experts: f64,
    /// For each GiB of split accumulators.
    pub splits: f64,
    /// Runs that the fit is drawn from.
    pub runs: u64,
}

/// Measured: 29 runs of vLLM 0.19 on H100 in 8 architectures; 4.4 % mean error on an architecture left out, where
/// vLLM's own forecast errs by 18.5 %.
pub const MEASURED: Fit = Fit {
    start: 0.184,
    layer: 0.146,
    experts: 0.135,
    splits: 1.156,
    runs: 29,
};

/// What vLLM forecasts, of the same runs: two captures of each kind, which come in steps of 2 MiB.
pub const FORECAST: Fit = Fit {
    start: 0.099,
    layer: 0.173,
    experts: 0.144,
    splits: 0.240,
    runs: 29,
};

/// What the captures of V0 took, for each layer and 1,000 captures: 5 runs of 16-bit weights, 9 of bitsandbytes.
const V0_LAYER: f64 = 0.34;
const V0_LAYER_BNB: f64 = 0.86;
/// LoRA adds two products to every linear layer.
const LORA: f64 = 1.6;

/// What graphs need.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Graphs {
    /// Bytes that a capture takes.
    pub bytes: u64,
    /// Bytes that vLLM holds back for it, where its version does.
    pub forecast: u64,
    /// The graphs.
    pub captures: Captures,
    /// GiB of split accumulators, of layers and of routed layers: the formula's inputs.
    pub splits: f64,
    /// Layers that a capture runs through.
    pub layers: u64,
    /// Those that route to experts.
    pub routed: u64,
    /// Measurements behind it.
    pub runs: u64,
}

/// What the graphs of a deployment take; `None` where the engine captures none or nothing is known of it.
pub fn of(model: &Model, deployment: &Deployment, settings: &Settings) -> Option<Graphs> {
    if deployment.engine != EngineId::Vllm {
        return None;
    }
    if settings.eager {
        return Some(Graphs::default());
    }
    let captures = vllm::captures(model, deployment, settings);
    let layers = model.mixers.len() as u64;
    let routed = routed_layers(model);
    let count = (captures.piecewise + captures.full) as f64;
    if vllm::is_v0(deployment) {
        let bnb = quantised_by_bnb(model, deployment);
        let mut each = if bnb { V0_LAYER_BNB } else { V0_LAYER };
        if deployment.lora.is_none() && !bnb {
            each /= LORA;
        }
        return Some(Graphs {
            bytes: bytes(each * layers as f64 * count / 1000.0),
            captures,
            layers,
            routed,
            runs: 14,
            ..Graphs::default()
        });
    }
    let splits = split_accumulators(model, deployment, &captures);
    let lora = if deployment.lora.is_some() { LORA } else { 1.0 };
    let gib = |fit: &Fit| {
        fit.start
            + (fit.layer * layers as f64 + fit.experts * routed as f64) * count / 1000.0 * lora
            + fit.splits * splits
    };
    // The second model runner forecasts nothing before 0.29 (v1/worker/gpu/model_runner.py).
    let forecasts = vllm::version(deployment) >= Version::new(0, 29, 0)
        || !vllm::runs_second_runner(model, deployment);
    Some(Graphs {
        bytes: bytes(gib(&MEASURED)),
        forecast: count_if(forecasts, bytes(gib(&FORECAST))),
        captures,
        splits,
        layers,
        routed,
        runs: MEASURED.runs,
    })
}

/// GiB in bytes.
fn bytes(gib: f64) -> u64 {
    (gib.max(0.0) * GIB).min(1e15) as u64
}

/// Layers that send tokens to experts.
fn routed_layers(model: &Model) -> u64 {
    let experts = (model.tensors.iter()).filter(|t| t.role.starts_with("exp_w13"));
    let layers: BTreeSet<u32> = experts.filter_map(|t| t.layer).collect();
    layers.len() as u64
}

/// Weights are bitsandbytes'.
pub(super) fn quantised_by_bnb(model: &Model, deployment: &Deployment) -> bool {
    match deployment.quantization.as_deref() {
        Some(name) => {
            let name = name.to_ascii_lowercase();
            let own = ["nf4", "bitsandbytes", "bnb"];
            own.iter().any(|n| name.contains(n))
        }
        None => model.quant_method() == Some("bitsandbytes"),
    }
}

/// GiB of accumulators: 32 splits x heads x tokens x head size x 4 bytes (vLLM 0.19,
/// VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH), where FlashAttention 3 captures whole graphs: on Hopper, not with
/// images in the prompt that are attended to in both directions.
fn split_accumulators(model: &Model, deployment: &Deployment, captures: &Captures) -> f64 {
    let hopper = engines::generation_of(deployment) == Some(Generation::Hopper);
    if !hopper || captures.full == 0 || model.kind.starts_with("gemma3") {
        return 0.0;
    }
    let heads = model.heads.div_ceil(deployment.tp.max(1));
    let width = model.mixers.iter().map(|m| match *m {
        Mixer::Attention { value_dim, .. } => value_dim,
        Mixer::Latent { rank, .. } => rank,
        _ => 0,
    });
    let width = width.max().unwrap_or(0);
    32.0 * heads as f64 * width as f64 * captures.largest as f64 * 4.0 / GIB
}
