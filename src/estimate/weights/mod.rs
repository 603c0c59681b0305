//! Bytes of weights on the GPU that has most of them, with what the engine keeps beside them.

pub mod allocator;
pub mod plan;
pub mod runtime;
pub mod shard;
pub mod stored;

pub use stored::from_headers;

use super::arithmetic::product;
use super::format::{Format, Scheme};
use super::headers::Headers;
use super::term::{Band, Component, Term};
use super::{Deployment, EngineId, Mixer, Model, Unknown, speculation, unmodelled};
use plan::{Allocation, Context, Made};
use serde_json::{Map, Value, json};
use shard::Shards;

/// Bytes of weights from the files' headers, where they were read and are whole; else from the configuration,
/// with a warning. A GGUF file has no other configuration than its header.
///
/// # Errors
///
/// As [`from_headers`] and [`of`].
pub fn best(
    model: &Model,
    headers: Option<&Headers>,
    deployment: &Deployment,
) -> Result<Weights, Unknown> {
    let Some(headers) = headers else {
        return of(model, deployment);
    };
    from_headers(model, headers, deployment).or_else(|why| {
        if headers.gguf {
            return Err(why);
        }
        let mut weights = of(model, deployment).map_err(|_| why.clone())?;
        let note = format!("{}: the weights are those of the configuration", why.what);
        weights.warnings.push(note);
        Ok(weights)
    })
}

/// Bytes of weights on the GPU that has most of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Bytes, as the engine itself prints them.
    pub bytes: u64,
    /// Bytes beside them that the engine makes with the weights and does not count as such: LoRA slots of
    /// vLLM before 0.8.
    pub beside: u64,
    /// Bytes of layers that lie in the host's memory instead, of each GPU.
    pub on_host: u64,
    /// Bytes by what they are for, which sum to `bytes` and what vLLM moves to the host.
    pub parts: Vec<Part>,
    /// How they are quantised, in words.
    pub scheme: String,
    /// Where nine of ten measurements lie.
    pub band: Band,
    /// The files' headers were read.
    pub from_files: bool,
    /// What is not sure about it.
    pub warnings: Vec<String>,
}

/// Bytes of one kind of tensor on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// As `Tensor::role` has it; or `rope`, `lora`, `absorbed`, `rounding`.
    pub role: &'static str,
    /// Bytes.
    pub bytes: u64,
}

impl Weights {
    /// Lets the interval hold the heads of drafts that are narrower and wider than is usual.
    pub(super) fn open_head(&mut self, context: &Context<'_>) {
        let head = speculation::head_bytes(context.model, context.deployment, context.value_bytes);
        if let Some([least, usual, most]) = head {
            self.band.low = self.band.low.saturating_sub(usual - least);
            self.band.high = self.band.high.saturating_add(most - usual);
            self.band.cases = 0;
        }
    }

    /// As a term of an estimate.
    pub fn term(&self) -> Term {
        let mut inputs = Map::new();
        inputs.insert("scheme".to_owned(), json!(self.scheme));
        for part in &self.parts {
            inputs.insert(part.role.to_owned(), Value::from(part.bytes));
        }
        let roles: Vec<&str> = self.parts.iter().map(|p| p.role).collect();
        Term {
            formula: roles.join(" + "),
            inputs,
            band: Some(self.band.clone()),
            ..Term::of(Component::Weights, Ok(self.bytes))
        }
    }
}

/// Bytes of weights, from what is known of the model's tensors.
///
/// # Errors
///
/// A quantisation that is not recognised; heads or layers that the parallelism does not divide.
pub fn of(model: &Model, deployment: &Deployment) -> Result<Weights, Unknown> {
    shard::check(model, deployment)?;
    let scheme = Scheme::of(model, deployment)?;
    let value_bytes = value_bytes(model, deployment)?;
    let context = Context {
        model,
        deployment,
        scheme: &scheme,
        shards: Shards::of(model, deployment),
        value_bytes,
    };
    let mut weights = largest(&context, |layers, first, last| {
        context.stage(layers, first, last)
    });
    let hybrid = (model.mixers.iter()).any(|m| matches!(m, Mixer::DeltaNet { .. }));
    let parts = model.experts_per_token.is_some() || model.config.get("vision_config").is_some();
    let trust = if scheme.plain_mlps > 0 {
        Trust::DYNAMIC
    } else if let Some(file) = scheme.file_type.filter(|file| file.is_dynamic()) {
        if file.base().is_under_four_bits() {
            Trust::SMALL_DYNAMIC_FILE
        } else {
            Trust::DYNAMIC_FILE
        }
    } else if scheme.by_name && scheme.is_small() && hybrid {
        Trust::NAMED_HYBRID
    } else if scheme.by_name && scheme.base == Format::Nvfp4 {
        Trust::NAMED_FLOAT
    } else if scheme.by_name && scheme.is_small() {
        Trust::NAMED_SMALL
    } else if scheme.by_name && parts
        || scheme.experts.is_some()
        || scheme.file_type.is_some()
        || !scheme.warnings.is_empty()
    {
        Trust::LOOSE
    } else if scheme.is_small() {
        Trust::SMALL
    } else {
        Trust::PLAIN
    };
    weights.band = trust.band(weights.bytes);
    weights.open_head(&context);
    weights.warnings.extend(scheme.warnings.iter().cloned());
    if model.tied && !scheme.is_plain() && scheme.file_type.is_none() {
        let note = "some quantised copies of models with a tied output layer store it separately: give the folder to read the files";
        weights.warnings.push(note.to_owned());
        // Seen of FP8 (0.72 GiB of Qwen3-VL-4B), and of no 4 bits.
        let head = product([model.vocab, model.hidden, model.value_bytes]) / deployment.tp.max(1);
        let more = if scheme.is_small() { 0 } else { head };
        weights.band.high = weights.band.high.saturating_add(more);
    }
    if deployment.engine == EngineId::Sglang {
        // It prints what free memory has become less: 0.07 and 0.10 GiB more than its tensors.
        weights.band.high = weights.band.high.saturating_add(SGLANG_BESIDE);
    }
    Ok(with_host_experts(weights, deployment, &|all| {
        of(model, all)
    }))
}

/// The same with the bytes of experts that llama.cpp keeps in the host's memory: what `weigh` finds more without them there.
fn with_host_experts(
    mut weights: Weights,
    deployment: &Deployment,
    weigh: &dyn Fn(&Deployment) -> Result<Weights, Unknown>,
) -> Weights {
    if deployment.llama.host_experts > 0 {
        let mut all = deployment.clone();
        all.llama.host_experts = 0;
        let bytes = weigh(&all).map_or(0, |all| all.bytes);
        weights.on_host = bytes.saturating_sub(weights.bytes);
    }
    weights
}

/// The stage that needs most.
fn largest(
    context: &Context<'_>,
    mut stage: impl FnMut(&std::ops::Range<u64>, bool, bool) -> Vec<Allocation>,
) -> Weights {
    let (model, deployment) = (context.model, context.deployment);
    let layers = model.mixers.len() as u64;
    let stages = match shard::offloaded(layers, deployment) {
        Some((layers, output)) => vec![(layers, false, output)],
        None => {
            let stages = shard::stages(layers, deployment.pp.max(1));
            let count = stages.len();
            let placed = stages.into_iter().enumerate();
            placed
                .map(|(at, layers)| (layers, at == 0, at + 1 == count))
                .collect()
        }
    };
    let caching = !matches!(
        deployment.engine,
        EngineId::LlamaCpp | EngineId::Transformers | EngineId::TensorRtLlm
    ) && !deployment.on_cpu;
    let counted = runtime::counts_lora(deployment);
    let mut best: Option<(u64, Made, u64)> = None;
    for (at, (layers, first, last)) in stages.iter().enumerate() {
        let mut allocations = stage(layers, *first, *last);
        let slots = runtime::lora(
            model,
            deployment,
            &context.shards,
            layers,
            context.value_bytes,
        );
        if at == 0 {
            let deep = runtime::deep_inputs(model, deployment, context.value_bytes);
            allocations.extend(deep.iter().map(|b| Allocation::plain("deepstack", *b)));
        }
        let beside = if counted {
            allocations.extend(slots.iter().map(|b| Allocation::plain("lora", *b)));
            0
        } else {
            slots.iter().fold(0u64, |sum, b| sum.saturating_add(*b))
        };
        let made = plan::make(&allocations, caching);
        // SGLang logs what is gone from the device.
        let bytes = if deployment.engine == EngineId::Sglang {
            made.reserved
        } else {
            made.used
        };
        if best.as_ref().is_none_or(|(most, ..)| bytes > *most) {
            best = Some((bytes, made, beside));
        }
    }
    let (bytes, made, beside) = best.unwrap_or_default();
    let mut parts: Vec<Part> = made
        .parts
        .into_iter()
        .map(|(role, bytes)| Part { role, bytes })
        .collect();
    let rest = bytes.saturating_sub(made.used);
    if let Some(rounding) = parts.iter_mut().find(|p| p.role == "rounding") {
        rounding.bytes = rounding.bytes.saturating_add(rest);
    }
    Weights {
        bytes,
        beside,
        on_host: 0,
        parts,
        scheme: context.scheme.name.clone(),
        band: Trust::PLAIN.band(bytes),
        from_files: false,
        warnings: Vec::new(),
    }
}

/// Bytes of a value that is not quantised.
///
/// # Errors
///
/// A type that is not known.
pub fn value_bytes(model: &Model, deployment: &Deployment) -> Result<u64, Unknown> {
    let dtype = deployment.dtype.as_deref().unwrap_or("auto");
    match dtype.trim().to_ascii_lowercase().as_str() {
        "bfloat16" | "bf16" | "float16" | "fp16" | "half" => Ok(2),
        "float32" | "fp32" | "float" => Ok(4),
        "auto" | "" => Ok(match deployment.engine {
            // They load a model of 32 bits in 16 by default.
            EngineId::Vllm | EngineId::Sglang | EngineId::Tgi | EngineId::TensorRtLlm => {
                // Where neither bfloat16 nor float16 can be had, vLLM takes the next (config/model.py, `_resolve_auto_dtype`).
                let lacks_bfloat16 = unmodelled::missing_compute(deployment, "bfloat16").is_some();
                if lacks_bfloat16 && unmodelled::lacks_float16(deployment, &model.kind) {
                    return Ok(4);
                }
                model.value_bytes.clamp(1, 2)
            }
            _ => model.value_bytes.max(1),
        }),
        other => Err(Unknown::new(format!("the type `{other}` is not known"))
            .hint("known types: bfloat16, float16, float32 and auto")),
    }
}

/// The most that SGLang's own figure of its weights was above them, bytes.
const SGLANG_BESIDE: u64 = 107 << 20;

/// How far an estimate is to be trusted: shares below and above that nine of ten measured deployments lay within, and how many
/// there were.
#[derive(Clone, Copy)]
struct Trust(f64, f64, u64);

impl Trust {
    /// The files' headers were read.
    const FILES: Trust = Trust(0.004, 0.006, 24);
    /// 16 and 8 bits.
    const PLAIN: Trust = Trust(0.006, 0.006, 27);
    /// 4 bits, described in full.
    const SMALL: Trust = Trust(0.01, 0.03, 11);
    /// The quantisation is not described in full.
    const LOOSE: Trust = Trust(0.05, 0.08, 11);
    /// 4 bits by name alone: in groups of 32 a value takes a twelfth more than in groups of 128.
    const NAMED_SMALL: Trust = Trust(0.03, 0.10, 6);
    /// NVFP4 by name alone: some copies leave attention in 16 bits.
    const NAMED_FLOAT: Trust = Trust(0.03, 0.30, 2);
    /// 4 bits of a model with gated delta nets by name alone: copies leave all, some or none of their states in 8 or 16 bits.
    const NAMED_HYBRID: Trust = Trust(0.11, 0.20, 6);
    /// A dynamic quantisation that does not list its choice.
    const DYNAMIC: Trust = Trust(0.08, 0.12, 5);
    /// A file with blocks that were chosen by layer.
    const DYNAMIC_FILE: Trust = Trust(0.08, 0.13, 4);
    /// Such a file of fewer than four bits: those of small models have much finer ones beside (Qwen3-30B-A3B's UD-IQ1_S is
    /// 9.05 GB, and 6.2 in plain IQ1_S).
    const SMALL_DYNAMIC_FILE: Trust = Trust(0.08, 0.50, 3);

    fn band(self, bytes: u64) -> Band {
        let Trust(below, above, cases) = self;
        let part = |share: f64| (bytes as f64 * share) as u64;
        let low = bytes.saturating_sub(part(below));
        let high = bytes.saturating_add(part(above));
        Band::new(low, high, cases, "built-in: weights that engines printed")
    }
}

#[cfg(test)]
mod tests;
