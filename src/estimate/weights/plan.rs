//! The allocations of one pipeline stage, in the order in which an engine makes them.

use super::super::format::{Bytes, Format, Padding, Scheme};
use super::super::{Deployment, EngineId, Mixer, Model, Tensor};
use super::allocator::Allocator;
use super::runtime;
use super::shard::{Shape, Shards};
use crate::estimate::{
    arithmetic::{product, sum},
    encoder,
    engines::llama_cpp,
    pooling, speculation,
};
use serde_json::Value;
use std::ops::Range;

/// One allocation, or several that are made together.
#[derive(Debug, Clone)]
pub struct Allocation {
    /// What it is for.
    pub role: &'static str,
    /// Bytes of its values and of its scales, which are apart.
    pub bytes: Bytes,
    /// Needed only while the next one is made: bytes of each.
    pub passing: [u64; 4],
}

impl Allocation {
    /// That lasts.
    pub fn of(role: &'static str, bytes: Bytes) -> Allocation {
        Allocation {
            role,
            bytes,
            passing: [0; 4],
        }
    }

    /// Of values alone.
    pub fn plain(role: &'static str, values: u64) -> Allocation {
        Allocation::of(role, Bytes { values, scales: 0 })
    }
}

/// Where a tensor outside of the layers is: with the first stage or the last.
pub fn is_last(role: &str) -> bool {
    matches!(
        role,
        "lm_head" | "lm_head_bias" | "final_norm" | "project_out"
    )
}

/// What a stage needs besides the model itself.
pub struct Context<'a> {
    /// The model.
    pub model: &'a Model,
    /// The deployment.
    pub deployment: &'a Deployment,
    /// The formats.
    pub scheme: &'a Scheme,
    /// The parts.
    pub shards: Shards,
    /// Bytes of a value that is not quantised.
    pub value_bytes: u64,
}

impl Context<'_> {
    /// The allocations of a stage from the model's tensors.
    pub fn stage(&self, layers: &Range<u64>, first: bool, last: bool) -> Vec<Allocation> {
        let mut made = Vec::new();
        let outside = |t: &&Tensor| t.layer.is_none();
        let tensors = &self.model.tensors;
        if first {
            let blind = self.deployment.language_only;
            let here = |t: &&Tensor| {
                !(is_last(t.role) || self.on_host(t.role) || blind && t.role == "vision")
            };
            let head = tensors.iter().filter(outside).filter(here);
            made.extend(head.map(|t| self.allocation(t)));
        }
        let mut roped = false;
        let mut of_layer = 0;
        let mut layer = None;
        for tensor in tensors {
            let Some(at) = tensor.layer.filter(|l| layers.contains(&u64::from(*l))) else {
                continue;
            };
            if llama_cpp::leaves_out(self.deployment, tensor.role, at.into()) {
                continue;
            }
            if layer != Some(at) {
                layer = Some(at);
                of_layer = made.len();
            }
            let allocation = match self.with_values(tensor) {
                Some(both) => self.allocation(&both),
                None => self.allocation(tensor),
            };
            // Engines fuse queries, keys and values.
            let fused = tensor.role == "kv" && self.fuses();
            let query = made[of_layer..].iter().position(|a| fused && a.role == "q");
            match query.and_then(|at| made.get_mut(of_layer + at)) {
                Some(query) => {
                    let (sum, more) = (&mut query.bytes, allocation.bytes);
                    sum.values = sum.values.saturating_add(more.values);
                    sum.scales = sum.scales.saturating_add(more.scales);
                    query.role = "qkv";
                }
                None => made.push(allocation),
            }
            if tensor.role == "o" && !roped {
                roped = true;
                made.extend(self.rope());
            }
            let copy = runtime::absorbed(
                self.model,
                self.deployment,
                self.scheme,
                &self.shards,
                tensor,
                self.value_bytes,
            );
            made.extend(copy.map(|bytes| Allocation::plain("absorbed", bytes)));
        }
        if last {
            let here = |t: &&Tensor| is_last(t.role) && !self.drops(t.role);
            let tail = tensors.iter().filter(outside).filter(here);
            made.extend(tail.map(|t| self.allocation(t)));
            if self.model.tied && !first {
                let embed = tensors.iter().find(|t| t.role == "embed");
                made.extend(embed.map(|t| self.allocation(t)));
            }
            made.extend(self.predictor());
        }
        made
    }

    /// The layers that predict further tokens, where the engine speculates with them. vLLM lets them use the model's
    /// embedding and output layer (v1/spec_decode); SGLang loads another of each before it does.
    pub fn predictor(&self) -> Vec<Allocation> {
        let head = speculation::head_bytes(self.model, self.deployment, self.value_bytes);
        if let Some([_, usual, _]) = head {
            return vec![Allocation::plain("draft_head", usual)];
        }
        if !speculation::loads_predictor(self.deployment) {
            return Vec::new();
        }
        let own = self.model.predictor.tensors.iter();
        let twice = self.model.tensors.iter().filter(|t| {
            let shared = matches!(t.role, "embed" | "lm_head");
            self.deployment.engine == EngineId::Sglang && shared
        });
        let all = own.chain(twice);
        all.map(|tensor| Allocation {
            role: "predictor",
            ..self.allocation(tensor)
        })
        .collect()
    }

    /// Whether it stays in the host's memory: llama.cpp looks tokens up there, where the output layer is another.
    pub fn on_host(&self, role: &str) -> bool {
        let llama_cpp = self.deployment.engine == EngineId::LlamaCpp;
        llama_cpp && !self.model.tied && matches!(role, "embed" | "pos_embed")
    }

    /// Whether it is an output layer, which what pools does not load (vLLM, model_executor/models/adapters.py).
    pub fn drops(&self, role: &str) -> bool {
        matches!(role, "lm_head" | "lm_head_bias")
            && pooling::is_computed(self.model, self.deployment)
    }

    /// Keys that are values too (Gemma 4) are loaded once as each (vLLM 0.33, models/gemma4.py).
    fn with_values(&self, tensor: &Tensor) -> Option<Tensor> {
        let at = usize::try_from(tensor.layer?).ok()?;
        let Mixer::Attention {
            kv_heads,
            key_dim,
            value_dim,
            ..
        } = *self.model.mixers.get(at)?
        else {
            return None;
        };
        let joined = tensor.role == "kv" && tensor.rows == kv_heads.saturating_mul(key_dim);
        (joined && self.fuses()).then(|| Tensor {
            rows: product([kv_heads, key_dim.saturating_add(value_dim)]),
            ..tensor.clone()
        })
    }

    fn fuses(&self) -> bool {
        !self.deployment.engine.takes_what_is_asked()
    }

    /// The tables of positions. They are computed in 32 bits, from angles, cosines and sines.
    pub fn rope(&self) -> Option<Allocation> {
        let bytes = runtime::rope(self.model, self.deployment)?;
        let half = bytes;
        Some(Allocation {
            passing: [half, half, half, bytes.saturating_mul(2)],
            ..Allocation::plain("rope", bytes)
        })
    }

    fn allocation(&self, tensor: &Tensor) -> Allocation {
        let shape = self.shards.shape(tensor);
        let bytes = if tensor.role == "vision" {
            Bytes {
                values: self.tower(tensor),
                scales: 0,
            }
        } else if let Some(file) = self.scheme.file_type {
            // A file's keys may have other blocks than its values.
            let [a, b] = self.scheme.blocks(file, tensor);
            let half = shape.rows / 2;
            let one = a.bytes(half, shape.columns, shape.count, self.value_bytes);
            let other = b.bytes(
                shape.rows - half,
                shape.columns,
                shape.count,
                self.value_bytes,
            );
            Bytes {
                values: one.total().saturating_add(other.total()),
                scales: 0,
            }
        } else {
            self.bytes(tensor, shape)
        };
        Allocation::of(tensor.role, bytes)
    }

    fn bytes(&self, tensor: &Tensor, shape: Shape) -> Bytes {
        let padded = self.padded(tensor, shape);
        if tensor.float32 {
            return Format::Plain.bytes(padded.rows, padded.columns, padded.count, 4);
        }
        let wide = self.scheme.padding == Padding::Triton
            && self.scheme.base == Format::Mxfp4
            && matches!(tensor.role, "exp_b13" | "exp_b2");
        let value = if wide { 4 } else { self.value_bytes };
        let format = self.scheme.format_from(tensor, self.model.predicts_from());
        format.bytes(padded.rows, padded.columns, padded.count, value)
    }

    /// The shape as the kernels want it.
    fn padded(&self, tensor: &Tensor, shape: Shape) -> Shape {
        let up = |n: u64, to: u64| n.checked_next_multiple_of(to).unwrap_or(n);
        let mut made = shape;
        if self.scheme.padding == Padding::None {
            return made;
        }
        match (self.scheme.padding, tensor.role) {
            (Padding::Triton, "exp_w13" | "exp_w2") => {
                made.rows = up(shape.rows, 256);
                made.columns = up(shape.columns, 128);
            }
            (Padding::To { hidden, width }, "exp_w13") => {
                made.rows = up(shape.rows.div_ceil(2), width).saturating_mul(2);
                made.columns = up(shape.columns, hidden);
            }
            (Padding::To { hidden, width }, "exp_w2") => {
                made.rows = up(shape.rows, hidden);
                made.columns = up(shape.columns, width);
            }
            (Padding::To { width, .. }, "exp_b13") => {
                made.rows = up(shape.rows.div_ceil(2), width).saturating_mul(2);
            }
            (Padding::To { hidden, .. }, "exp_b2") => made.rows = up(shape.rows, hidden),
            _ => {}
        }
        made
    }

    /// Bytes of a vision tower. vLLM splits its layers as those of the language model and repeats the rest (vLLM 0.8,
    /// model_executor/models/siglip.py; measured with gemma-3-27b on four GPUs).
    fn tower(&self, tensor: &Tensor) -> u64 {
        let whole = tensor.values().saturating_mul(self.value_bytes);
        if !self.splits_towers() {
            return whole;
        }
        let vision = self.model.config.get("vision_config");
        let number = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| vision?.get(key));
            found.and_then(Value::as_u64)
        };
        let parts = (
            number(&["num_hidden_layers", "depth", "num_layers"]),
            number(&["embed_dim", "hidden_size"]),
            number(&["intermediate_size"]),
        );
        let (Some(layers), Some(width), Some(inner)) = parts else {
            return whole;
        };
        let layers = layers.saturating_add(number(&["num_global_layers"]).unwrap_or(0));
        let gated = ["mistral3", "pixtral", "qwen2_5_vl", "gemma4"];
        let kind = self.model.config.get("model_type").and_then(Value::as_str);
        let matrices = if kind.is_some_and(|kind| gated.contains(&kind)) {
            3
        } else {
            2
        };
        let attention = product([width, width, 4]);
        let mlp = product([width, inner, matrices]);
        let split = product([sum([attention, mlp]), layers, self.value_bytes]).min(whole);
        whole - split + split.div_ceil(self.shards.tp)
    }

    /// Whether the layers of a vision tower are split over the GPUs: vLLM does, where its heads allow that.
    pub fn splits_towers(&self) -> bool {
        let vision = self.model.config.get("vision_config");
        let heads = vision.and_then(|v| {
            let keys = ["num_attention_heads", "num_heads", "attention_heads"];
            keys.iter().find_map(|key| v.get(key)?.as_u64())
        });
        self.shards.tp > 1
            && self.deployment.engine == EngineId::Vllm
            && !encoder::is_whole(self.model, self.deployment)
            && heads.is_none_or(|n| n % self.shards.tp == 0)
    }
}

/// A stage once its allocations are made.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// Bytes that the allocator counts.
    pub used: u64,
    /// Bytes that are gone from the device.
    pub reserved: u64,
    /// Bytes of each role, in the order in which they came.
    pub parts: Vec<(&'static str, u64)>,
}

/// Makes the allocations; `caching`: by PyTorch's allocator, with its rounding as a part of its own.
pub fn make(allocations: &[Allocation], caching: bool) -> Made {
    let mut memory = Allocator::default();
    let mut made = Made::default();
    let mut plain = 0u64;
    for allocation in allocations {
        let bytes = allocation.bytes.total();
        plain = plain.saturating_add(bytes);
        match made
            .parts
            .iter_mut()
            .find(|(role, _)| *role == allocation.role)
        {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => made.parts.push((allocation.role, bytes)),
        }
        if !caching {
            continue;
        }
        let passing: Vec<u64> = allocation
            .passing
            .iter()
            .filter(|b| **b > 0)
            .map(|b| memory.take(*b))
            .collect();
        for bytes in [allocation.bytes.values, allocation.bytes.scales] {
            if bytes > 0 {
                memory.take(bytes);
            }
        }
        for counted in passing {
            memory.release(counted);
        }
    }
    if caching {
        made.used = memory.used();
        made.reserved = memory.reserved();
        made.parts
            .push(("rounding", made.used.saturating_sub(plain)));
    } else {
        made.used = plain;
        made.reserved = plain;
    }
    made
}
