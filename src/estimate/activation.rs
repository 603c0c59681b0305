//! The peak of the engine's profile run beside the weights: a forward pass of a full step, or the sampler after it.
//!
//! Which of the two is larger decides; what one leaves behind for the other counts in both.

use super::{
    Deployment, EngineId, Mixer, Model, Tensor, Version, compute_buffer,
    encoder::{self, Encoder},
    engines::{self, Generation, Settings, vllm},
    format::{Format, Scheme},
    kv::value_bytes,
    pooling,
    speculation::{self, Proposer, Speculation},
};
use crate::estimate::arithmetic::{count_if, product, sum};

/// The parts of the peak, bytes on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation {
    /// Largest layer of a forward pass, with the residual stream.
    pub forward: u64,
    /// The sampler, with the hidden states that it reads.
    pub sampler: u64,
    /// Held during both: a library's workspace, an encoder's results, a kernel's kept buffers.
    pub kept: u64,
    /// Which sampler it is.
    pub kind: Sampler,
    /// What the sampler takes after the pool was sized, outside the engine's share.
    pub warm_up: u64,
    /// The encoder of images, before the forward pass; 0 where there is none or its peak is not known.
    pub encoding: u64,
    /// What a start that compiles holds while it tries kernels; 0 where nothing is compiled.
    pub compiling: u64,
    /// What is known of the encoder.
    pub encoder: Encoder,
    /// The least and the most that it may be, where it depends on what is not known; `None`: see the bands.
    pub range: Option<[u64; 2]>,
}

/// How the top of the logits is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// PyTorch's sort.
    Sort,
    /// vLLM's own kernel, without a sort.
    Triton,
    /// FlashInfer's.
    Flashinfer,
    /// The largest logit only.
    Greedy,
    /// vLLM's second model runner before 0.33: the profile run draws from logits in the model's own type.
    Unprocessed,
    /// None on the GPU: logits of every token of a step, in 32 bits (llama.cpp, llama-context.cpp: the worst-case graph).
    EveryToken,
    /// The same of one token for each sequence (llama.cpp of June 2026 on).
    EachSequence,
    /// No logits: what pools makes embeddings of hidden states.
    Pooler,
}

/// Bytes for each logit of the sampler's warm-up: a copy in 32 bits and its processed form. vLLM 0.25.1 on an H100 took
/// 1.00 GiB more after its graphs, 1,024 sequences of 128,256 logits. vLLM 0.33 profiles it (`for_sampler_warmup`).
const WARM_UP: u64 = 8;

impl Sampler {
    /// Bytes for each logit of the vocabulary and the sequence.
    ///
    /// Counted from vLLM's v1/sample/: logits in 16 and in 32 bits, probabilities and the noise beside them are 14;
    /// a sort keeps values (4), indices (8) and its workspace (12) instead of the noise: 38. Thirteen runs of vLLM
    /// 0.14 on H100 and eleven of 0.7 to 0.10 on T4 to H100 print 38.0 +- 0.1; twenty-four of 0.19 print 14.0 +- 0.1.
    fn bytes_of_logit(self) -> u64 {
        match self {
            Sampler::Sort => 38,
            Sampler::Triton | Sampler::Flashinfer => 14,
            Sampler::Greedy => 10,
            Sampler::Unprocessed => 2,
            Sampler::EveryToken | Sampler::EachSequence => 4,
            Sampler::Pooler => 0,
        }
    }
}

impl Activation {
    /// The peak, bytes.
    pub fn peak(&self) -> u64 {
        self.warm_peak().max(self.compiling)
    }

    /// The peak of a start whose kernels were compiled before, bytes.
    pub fn warm_peak(&self) -> u64 {
        sum([self.forward.max(self.sampler), self.kept]).max(self.encoding)
    }
}

/// Bytes for each logit where proposed tokens are verified: of one proposed token for each sequence the profile run has
/// two rows in 16 bits, the row of the last one in 16 and 32 bits, that of the proposed one in 16 and twice in 32 bits, and
/// its probabilities with the noise beside them (vLLM 0.22, v1/sample/rejection_sampler.py).
const REJECTION: u64 = 4 + 6 + 10 + 8;

/// Bytes for each hidden value of a step where an embedding is made of every token, which the profile run tries with whatever
/// can: what each request keeps in 16 bits, and its embedding in 32 (vLLM 0.33, model_executor/layers/pooler/tokwise).
const POOLED: u64 = 2 + 4;

/// The peak of a deployment's profile run.
pub fn of(model: &Model, deployment: &Deployment, settings: &Settings) -> Activation {
    if deployment.engine == EngineId::LlamaCpp {
        return compute_buffer::of(model, deployment, settings);
    }
    let tokens = settings.batched_tokens;
    let sequences = settings.sequences.min(tokens).max(1);
    let value = value_bytes(deployment);
    let hidden = model.hidden.saturating_mul(value);
    let step = tokens.saturating_mul(hidden);
    let kind = sampler(model, deployment);
    let gpu = engines::gpu_model(deployment);

    // Sampler: the step's hidden states; of each sequence the last one, twice (as it is and drawn at random).
    let drawn = product([sequences, hidden, 2]);
    let workspace = library_workspace(engines::generation_of(deployment));
    let logits = sequences.saturating_mul(model.vocab);
    let verifying = speculation::tokens(deployment) > 0 && kind != Sampler::Pooler;
    let of_logit = kind.bytes_of_logit().max(count_if(verifying, REJECTION));
    let mut sampling = sum([product([logits, of_logit]), step, drawn]);
    if kind == Sampler::Triton {
        // One row of logits for each multiprocessor (vLLM, v1/sample/ops/topk_topp_triton.py).
        let rows = gpu.map_or(132, |g| g.sms).min(sequences);
        sampling = sampling.saturating_add(product([rows, model.vocab, 4]));
    }
    if kind == Sampler::Pooler {
        sampling = sampling.saturating_add(product([tokens, model.hidden, POOLED]));
    }
    let experts = expert_workspace(model, deployment, tokens, value);
    let encoding = encoder::of(model, deployment, settings, value);
    let mut kept = sum([encoding.left, workspace]);
    let vllm = deployment.engine == EngineId::Vllm;
    let keeps_experts = vllm::is_from(deployment, Version::new(0, 15, 0));
    if keeps_experts {
        // Buffers of fused experts come from a workspace that stays (vLLM 0.19, v1/worker/workspace.py).
        kept = kept.saturating_add(experts);
    }
    if vllm {
        kept = sum([
            kept,
            sparse_workspace(model, deployment, settings),
            proposer_inputs(deployment, step),
        ]);
    }
    if deployment.engine == EngineId::Tgi {
        // The forward pass's blocks are too small for them: the allocator keeps both.
        let each = engines::tgi::prompt_logit_bytes(deployment);
        kept = kept.saturating_add(product([tokens, model.vocab, each]));
    }
    let layer = sum([
        widest_layer(model, deployment, tokens, value),
        byte_copies(model, deployment, tokens),
    ])
    .max(if keeps_experts { 0 } else { experts })
    .max(latent_context(model, deployment, settings, value))
    .max(sparse_logits(model, deployment));
    // The residual stream, the layer's input and its output; an all-reduce writes one more.
    let stream = if deployment.tp > 1 { 4 } else { 3 };
    let streams = sum([
        product([step, stream]),
        held_by_nccl(model, deployment, step),
        product([step, layers_read(deployment)]),
    ]);
    let forward = streams.saturating_add(layer);
    let others = forward.max(sampling).saturating_add(kept);
    let compiling = compiled_inputs(model, deployment, settings);
    let measured = !engines::is_foreign(deployment);
    let range = match encoding.range {
        Some(ends) => Some(ends.map(|end| end.max(others))),
        None if measured && compiling > others.max(encoding.peak) => {
            Some([others, compiling.saturating_add(forward)])
        }
        None => None,
    };
    Activation {
        forward,
        sampler: sampling,
        kept,
        kind,
        warm_up: count_if(kind == Sampler::Unprocessed, product([logits, WARM_UP])),
        encoding: encoding.peak,
        encoder: encoding.known,
        compiling,
        range,
    }
}

/// The largest input of what Inductor compiles, the embedding's table: vLLM lets it try combined kernels on tensors of the
/// inputs' sizes (`benchmark_combo_kernel`, config/compilation.py, in 0.12 to 0.33), within the profile run. A start from a
/// kept compile cache does not. Embeddings that images are mixed into are made outside of what is compiled.
///
/// Eleven starts of vLLM 0.28 to 0.30 on RTX 3090 and L40S leave the table and 0.2 to 0.4 GiB, graphs among them; one prints
/// 1.04 GiB for a table of 1.015; two starts that compiled had 0.94 and 1.2 GiB more than the next, for tables of 0.98 and
/// 1.16.
fn compiled_inputs(model: &Model, deployment: &Deployment, settings: &Settings) -> u64 {
    let compiles = vllm::is_from(deployment, Version::new(0, 12, 0)) && !settings.eager;
    if !compiles || (encoder::has_encoder(model) && !deployment.language_only) {
        return 0;
    }
    let tables = model
        .tensors
        .iter()
        .filter(|t| matches!(t.role, "embed" | "embed_per_layer"));
    let value = value_bytes(deployment);
    let bytes = tables.map(|t| product([split(t.rows, deployment.tp), t.columns, value]));
    bytes.max().unwrap_or(0)
}

/// The sampler that a deployment's profile run takes.
///
/// vLLM: the kernel without a sort came with pull request 33538 (0.17); FlashInfer's is the default where it is
/// installed from 0.23 (vllm/envs.py). Up to 0.11.0 it was used where it was installed: in images, not from pip.
pub fn sampler(model: &Model, deployment: &Deployment) -> Sampler {
    if deployment.engine != EngineId::Vllm {
        return Sampler::Greedy;
    }
    let v = vllm::version(deployment);
    if pooling::is_computed(model, deployment) {
        return Sampler::Pooler;
    }
    if v < Version::new(0, 33, 0) && vllm::runs_second_runner(model, deployment) {
        return Sampler::Unprocessed;
    }
    match deployment.flashinfer_sampler {
        Some(true) => Sampler::Flashinfer,
        None if v >= Version::new(0, 23, 0) => Sampler::Flashinfer,
        _ if v >= Version::new(0, 17, 0) => Sampler::Triton,
        _ => Sampler::Sort,
    }
}

/// cuBLAS's workspace, which PyTorch allocates at the first product: 32 MiB from Hopper on, 8.1 MiB before
/// (PyTorch, CUDABlas: `:4096:2:16:8` and 32 MiB).
fn library_workspace(generation: Option<Generation>) -> u64 {
    match generation {
        None | Some(Generation::Hopper | Generation::Blackwell | Generation::GeforceBlackwell) => {
            32 << 20
        }
        Some(_) => 8_519_680,
    }
}

/// Columns of a split tensor on one GPU.
fn split(values: u64, tp: u64) -> u64 {
    values.div_ceil(tp.max(1))
}

/// The most that a tensor of some roles has in any layer; 0 where there is none.
fn widest(model: &Model, roles: &[&str], size: fn(&Tensor) -> u64) -> u64 {
    let in_layers = model.tensors.iter().filter(|t| t.layer.is_some());
    let wanted = in_layers.filter(|t| roles.contains(&t.role));
    wanted.map(size).max().unwrap_or(0)
}

/// What the widest layer holds besides the residual stream: an MLP's two halves and their product, or attention's
/// queries, keys, values and output.
pub(super) fn widest_layer(model: &Model, deployment: &Deployment, tokens: u64, value: u64) -> u64 {
    let tp = deployment.tp.max(1);
    let rows = |wanted: &[&str]| widest(model, wanted, |t| t.rows);
    let columns = |wanted: &str| widest(model, &[wanted], |t| t.columns);
    let mlp = split(rows(&["gate_up"]), tp).saturating_add(split(columns("down"), tp));
    let recurrent = rows(&["in_qkvz", "in_proj", "in_qkv"]).saturating_mul(2);
    let recurrent = split(recurrent, tp);
    // Of all layers at once, not again for each of them.
    let latent = split(rows(&["q_b", "q"]), tp).saturating_add(split(columns("o"), tp));
    let tp_heads = split(model.heads, tp);
    let of_mixer = |mixer: &Mixer| match *mixer {
        Mixer::Attention {
            kv_heads,
            key_dim,
            value_dim,
            ..
        } => {
            let heads = sum([tp_heads, split(kv_heads, tp)]);
            product([heads, sum([key_dim, value_dim])])
        }
        Mixer::Latent { .. } => latent,
        _ => 0,
    };
    let heads = model.mixers.iter().map(of_mixer).max().unwrap_or(0);
    let heads = heads.saturating_add(model.hidden);
    product([tokens, value, mlp.max(recurrent).max(heads)])
}

/// Copies of a layer's inputs in 8 bits, where products are done in 8 bits: the MLP's product and the residual stream.
fn byte_copies(model: &Model, deployment: &Deployment, tokens: u64) -> u64 {
    let named = deployment.quantization.as_ref();
    let eight = match named.map(|name| name.to_ascii_lowercase()) {
        Some(name) => name.starts_with("fp8") || name.starts_with("int8") || name.contains("w8a8"),
        None => model.quant_method() == Some("fp8"),
    };
    let inner = split(widest(model, &["down"], |t| t.columns), deployment.tp);
    count_if(eight, product([tokens, sum([inner, model.hidden])]))
}

/// Buffers of fused experts: for each token and each of its experts, the wider of the first product and the output,
/// and the activated product (vLLM, fused_moe: `workspace13`, `workspace2`).
fn expert_workspace(model: &Model, deployment: &Deployment, tokens: u64, value: u64) -> u64 {
    let Some(chosen) = model.experts_per_token.filter(|k| *k > 0) else {
        return 0;
    };
    // gpt-oss's kernels on Hopper fuse the products and keep no such buffers: 2.87 GiB measured are the sampler's.
    if model.kind == "gpt_oss" {
        return 0;
    }
    let tp = if deployment.ep > 1 {
        1
    } else {
        deployment.tp.max(1)
    };
    let experts = (model.tensors.iter()).filter(|t| t.role.starts_with("exp_w13"));
    let Some((rows, columns)) = experts.map(|t| (t.rows, t.columns)).max() else {
        return 0;
    };
    let first = split(rows, tp);
    // A step was done in chunks until 0.18 (pull request 34086), but for Marlin's experts.
    const CHUNK: u64 = 16_384;
    let is_marlin = || {
        let scheme = Scheme::of(model, deployment);
        scheme.is_ok_and(|s| matches!(s.base, Format::Awq { .. } | Format::Gptq { .. }))
    };
    let chunks = !vllm::is_from(deployment, Version::new(0, 18, 0));
    let at_once = if tokens > CHUNK && chunks && !is_marlin() {
        CHUNK
    } else {
        tokens
    };
    product([
        at_once,
        chosen,
        value,
        first.max(columns).saturating_add(first / 2),
    ])
}

/// Keys and values of a chunked context that latent attention writes out: the profile run allocates the most
/// (vLLM 0.19, mla_attention.py: 8 sequences of full length, 65,536 tokens at most).
fn latent_context(model: &Model, deployment: &Deployment, settings: &Settings, value: u64) -> u64 {
    let rows = widest(model, &["kv_b"], |t| t.rows);
    let long = settings.max_model_len.unwrap_or(8192).saturating_mul(8);
    let paged = product([settings.sequences, settings.block, 4]);
    let tokens = long
        .max(paged)
        .min(65_536)
        .max(settings.sequences.saturating_mul(settings.block));
    let bytes = product([tokens, split(rows, deployment.tp), value]);
    count_if(deployment.engine == EngineId::Vllm, bytes)
}

/// What NCCL kept of each layer: PyTorch does not reuse a tensor that was all-reduced before the GPU is done with
/// it, and in the profile run the host is far ahead of the GPU. So the outputs of attention and of the MLP of every
/// layer lay side by side, and the free memory that was counted lacked them, until vLLM 0.2.6 set
/// TORCH_NCCL_AVOID_RECORD_STREAMS (worker/worker.py).
fn held_by_nccl(model: &Model, deployment: &Deployment, step: u64) -> u64 {
    let keeps = deployment.engine == EngineId::Vllm
        && deployment.tp > 1
        && vllm::version(deployment) < Version::new(0, 2, 6);
    count_if(keeps, product([step, 2, model.mixers.len() as u64]))
}

/// What a proposer with weights keeps of a step: hidden states and embeddings (vLLM 0.33, v1/spec_decode/
/// llm_base_proposer.py). It is made before the profile run, whose increase it was no part of until 0.21.
fn proposer_inputs(deployment: &Deployment, step: u64) -> u64 {
    let speculation = deployment.speculation.as_ref();
    let loaded = speculation.is_some_and(|s| s.proposer != Proposer::Lookup)
        && vllm::version(deployment) >= Version::new(0, 21, 0);
    count_if(loaded, step.saturating_mul(2))
}

/// Layers whose results are kept beside for the head of EAGLE 3 (vLLM 0.33, `aux_hidden_states`).
fn layers_read(deployment: &Deployment) -> u64 {
    let asked = deployment.speculation.as_ref();
    let third = |s: &&Speculation| s.proposer == Proposer::Head && s.method.ends_with('3');
    asked.filter(third).map_or(0, |_| 3)
}

/// Logits of a sparse indexer: the profile run allocates the most that they may take, 512 MiB (vLLM 0.19,
/// model_executor/layers/sparse_attn_indexer.py; VLLM_SPARSE_INDEXER_MAX_LOGITS_MB).
fn sparse_logits(model: &Model, deployment: &Deployment) -> u64 {
    let since = Version::new(0, 19, 0);
    count_if(
        model.is_indexed() && vllm::is_from(deployment, since),
        512 << 20,
    )
}

/// Workspaces of sparse latent attention: 40 sequences of full length for the indexer's keys; where the cache is in 8
/// bits, 5 for the rows in 16 bits, beside a step's queries (vLLM 0.19, v1/attention/backends/mla/indexer.py and
/// flashmla_sparse.py).
fn sparse_workspace(model: &Model, deployment: &Deployment, settings: &Settings) -> u64 {
    let sparse = model.mixers.iter().find_map(|m| match *m {
        Mixer::Latent {
            rank,
            rope,
            index: Some(index),
        } => Some((rank.saturating_add(rope), index)),
        _ => None,
    });
    let (Some((row, index)), Some(longest)) = (sparse, settings.max_model_len) else {
        return 0;
    };
    let keys = product([longest, 40, index.saturating_add(4)]);
    let queries = product([settings.batched_tokens, split(model.heads, deployment.tp)]);
    let kept = deployment.kv_dtype.as_ref();
    let eight = kept.is_some_and(|k| k.starts_with("fp8"));
    let written = count_if(eight, longest.saturating_mul(5));
    let rows = product([sum([queries, written]), row, 2]);
    // The workspace is one: the larger of its uses.
    keys.max(rows)
}
