//! What of a tensor lies on one GPU: tensor and expert parallelism, pipeline stages, and what cannot be divided.

use super::super::{Deployment, EngineId, Model, Split, Tensor, Unknown};
use crate::estimate::format::{Format, Scheme};
use std::ops::Range;

/// A tensor's shape on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Outputs.
    pub rows: u64,
    /// Inputs.
    pub columns: u64,
    /// How many.
    pub count: u64,
}

/// Into how many parts things are divided.
#[derive(Debug, Clone, Copy)]
pub struct Shards {
    /// By tensor parallelism.
    pub tp: u64,
    /// Experts, as whole ones.
    pub experts: u64,
    /// Experts, by their width.
    pub width: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// To what the vocabulary is padded, entries.
    pub vocabulary: u64,
}

impl Shards {
    /// For a deployment.
    pub fn of(model: &Model, deployment: &Deployment) -> Shards {
        let one = |n: u64| n.max(1);
        let tp = one(deployment.tp);
        let experts = one(deployment.ep);
        let vocabulary = match deployment.engine {
            EngineId::Vllm | EngineId::Sglang => 64,
            _ => 1,
        };
        Shards {
            tp,
            experts,
            width: one(deployment.expert_ranks() / experts),
            kv_heads: tp.min(one(model.kv_heads)),
            vocabulary,
        }
    }

    /// What of the tensor is on one GPU.
    pub fn shape(&self, tensor: &Tensor) -> Shape {
        let mut shape = Shape {
            rows: tensor.rows,
            columns: tensor.columns,
            count: tensor.count,
        };
        match tensor.split {
            Split::Replicated => {}
            Split::Columns => shape.rows = shape.rows.div_ceil(self.tp),
            Split::Rows => shape.columns = shape.columns.div_ceil(self.tp),
            Split::KvHeads => shape.rows = shape.rows.div_ceil(self.kv_heads),
            Split::Vocabulary => {
                let padded = shape.rows.checked_next_multiple_of(self.vocabulary);
                shape.rows = padded.unwrap_or(shape.rows).div_ceil(self.tp);
            }
            Split::ExpertColumns => {
                shape.count = shape.count.div_ceil(self.experts);
                shape.rows = shape.rows.div_ceil(self.width);
            }
            Split::ExpertRows => {
                shape.count = shape.count.div_ceil(self.experts);
                shape.columns = shape.columns.div_ceil(self.width);
            }
            Split::ExpertReplicated => shape.count = shape.count.div_ceil(self.experts),
        }
        shape
    }
}

/// The layers of each pipeline stage. Source: vLLM 0.11, distributed/utils.py, `get_pp_indices`: what does not
/// divide goes to the stages before the last.
pub fn stages(layers: u64, pp: u64) -> Vec<Range<u64>> {
    let pp = pp.clamp(1, layers.max(1));
    let mut sizes = vec![layers / pp; usize::try_from(pp).unwrap_or(1)];
    let stages = sizes.len();
    let mut rest = layers % pp;
    let mut from_end = 2;
    while rest > 0 && from_end <= stages {
        sizes[stages - from_end] += 1;
        from_end += 1;
        rest -= 1;
    }
    if let Some(first) = sizes.first_mut() {
        *first += rest;
    }
    let mut begin = 0;
    sizes
        .into_iter()
        .map(|size| {
            let range = begin..begin + size;
            begin = range.end;
            range
        })
        .collect()
}

/// The layers that llama.cpp puts on the GPU where it does not put all there, and whether the output layer is among them:
/// it comes first, then the last of the others (llama.cpp of 2026, src/llama-model.cpp, `i_gpu_start`).
pub fn offloaded(layers: u64, deployment: &Deployment) -> Option<(Range<u64>, bool)> {
    let slots = deployment.gpu_layers.filter(|n| *n <= layers)?;
    let begin = (layers + 1 - slots).min(layers);
    Some((begin..layers, slots > 0))
}

/// Whether the engine would start with this division at all.
///
/// # Errors
///
/// A count that does not divide, in a sentence with both numbers.
pub fn check(model: &Model, deployment: &Deployment) -> Result<(), Unknown> {
    let layers = model.mixers.len() as u64;
    let tp = deployment.tp.max(1);
    if deployment.pp.max(1) > layers.max(1) {
        let what = format!(
            "{} pipeline stages are more than the model's {layers} layers",
            deployment.pp
        );
        return Err(Unknown::new(what).hint("take fewer stages"));
    }
    if deployment.engine.takes_what_is_asked() || model.heads == 0 {
        return Ok(());
    }
    let fits = |n: u64| {
        let all = (1..=64.min(n)).filter(|d| n % *d == 0);
        all.map(|d| d.to_string()).collect::<Vec<_>>().join(", ")
    };
    if model.heads % tp != 0 {
        let what = format!(
            "the model's {} attention heads cannot be divided among {tp} GPUs: vLLM refuses with `Total number of attention heads ({}) must be divisible by tensor parallel size ({tp})`",
            model.heads, model.heads
        );
        return Err(
            Unknown::new(what).hint(format!("tensor parallelism can be {}", fits(model.heads)))
        );
    }
    let kv = model.kv_heads.max(1);
    if !model.is_latent() && kv % tp != 0 && tp % kv != 0 {
        let what = format!(
            "the model's {kv} key and value heads can neither be divided among {tp} GPUs nor repeated evenly"
        );
        return Err(Unknown::new(what).hint(format!("tensor parallelism can be {}", fits(kv))));
    }
    refused_blocks(model, deployment).map_or(Ok(()), Err)
}

/// Why experts that are split by their width cannot be: a part is whole blocks of scales. Source: `create_weights` of the fp8
/// experts of vLLM and SGLang, in reports up to vLLM 0.25; their log: "is not divisible by weight quantization block_n".
pub fn refused_blocks(model: &Model, deployment: &Deployment) -> Option<Unknown> {
    let width = Shards::of(model, deployment).width;
    let mut experts = model.tensors.iter();
    let inner = experts.find(|t| t.split == Split::ExpertRows && t.role == "exp_w2")?;
    if width == 1 || !matches!(deployment.engine, EngineId::Vllm | EngineId::Sglang) {
        return None;
    }
    let Format::Fp8Block { rows, .. } = Scheme::of(model, deployment).ok()?.format(inner) else {
        return None;
    };
    if inner.columns % width == 0 && (inner.columns / width) % rows == 0 {
        return None;
    }
    let what = format!(
        "an expert's width of {} on {width} GPUs is no whole number of blocks of {rows}, which its fp8 scales need",
        inner.columns
    );
    let hint = "spread whole experts (--enable-expert-parallel, SGLang --ep), or take fewer GPUs";
    Some(Unknown::new(what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_do_not_divide_go_before_the_last_stage() {
        assert_eq!(stages(32, 1), Vec::from_iter([(0, 32)].map(|(a, b)| a..b)));
        assert_eq!(stages(30, 4), [0..7, 7..15, 15..23, 23..30]);
        assert_eq!(stages(2, 8), [0..1, 1..2]);
        assert_eq!(stages(0, 2), Vec::from_iter([(0, 0)].map(|(a, b)| a..b)));
    }
}
