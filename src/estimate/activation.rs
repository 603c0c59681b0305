//! The peak of the engine's profile run beside the weights: a forward pass of a full step, or the sampler after it.
//!
//! Which of the two is larger decides; what one leaves behind for the other counts in both.

use super::{
    Deployment, EngineKind, Mixer, Model, Tensor, Version,
    engines::{self, Generation, Settings, vllm},
    kv::text_value,
};
use serde_json::Value;

/// The parts of the peak, bytes on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation {
    /// Largest layer of a forward pass, with the residual stream.
    pub forward: u64,
    /// The sampler, with the hidden states that it reads.
    pub sampler: u64,
    /// What is there during both: a library's workspace, an encoder's results, a kernel's kept buffers.
    pub kept: u64,
    /// Which sampler it is.
    pub kind: Sampler,
    /// The encoder of images, before the forward pass; 0 where there is none or its peak is not known.
    pub encoding: u64,
    /// What is known of the encoder.
    pub encoder: Encoder,
}

/// What is known of a model's encoder of images or sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// It has none.
    None,
    /// What it leaves and takes is counted, for images as large as the family's processor lets them be.
    Counted,
    /// Its peak is not known: it depends on limits of a processor that is not in the configuration.
    Unknown,
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
}

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
        }
    }
}

impl Activation {
    /// The peak, bytes.
    pub fn peak(&self) -> u64 {
        self.forward
            .max(self.sampler)
            .saturating_add(self.kept)
            .max(self.encoding)
    }
}

/// The peak of a deployment's profile run.
pub fn of(model: &Model, deployment: &Deployment, settings: &Settings) -> Activation {
    let tokens = settings.batched_tokens;
    let sequences = settings.sequences.min(tokens).max(1);
    let value = value_bytes(deployment);
    let hidden = model.hidden.saturating_mul(value);
    let step = tokens.saturating_mul(hidden);
    let kind = sampler(deployment);
    let gpu = engines::gpu_model(deployment);

    // Sampler: the step's hidden states; of each sequence the last one, twice (as it is and drawn at random).
    let logits = sequences.saturating_mul(model.vocab);
    let mut sampling = logits
        .saturating_mul(kind.bytes_of_logit())
        .saturating_add(step)
        .saturating_add(sequences.saturating_mul(hidden).saturating_mul(2));
    if kind == Sampler::Triton {
        // One row of logits for each multiprocessor (vLLM, v1/sample/ops/topk_topp_triton.py).
        let rows = gpu.map_or(132, |g| g.sms).min(sequences);
        sampling = sampling.saturating_add(rows.saturating_mul(model.vocab).saturating_mul(4));
    }
    let experts = expert_workspace(model, deployment, tokens, value);
    let (left, encoder) = encoder_left(model, deployment, tokens, hidden, value);
    let mut kept = left.saturating_add(library_workspace(gpu.map(engines::generation)));
    let vllm = deployment.engine == EngineKind::Vllm;
    let keeps_experts = vllm && vllm::version(deployment) >= Version::new(0, 15, 0);
    if keeps_experts {
        // Buffers of fused experts come from a workspace that stays (vLLM 0.19, v1/worker/workspace.py).
        kept = kept.saturating_add(experts);
    }
    if vllm {
        kept = kept.saturating_add(sparse_workspace(model, settings));
    }
    let layer = widest_layer(model, deployment, tokens, value)
        .saturating_add(byte_copies(model, deployment, tokens))
        .max(if keeps_experts { 0 } else { experts })
        .max(latent_context(model, deployment, settings, value));
    // The residual stream, the layer's input and its output; an all-reduce writes one more.
    let stream = if deployment.tp > 1 { 4 } else { 3 };
    Activation {
        forward: step.saturating_mul(stream).saturating_add(layer),
        sampler: sampling,
        kept,
        kind,
        encoding: encoding(model, deployment, tokens, value).saturating_add(left),
        encoder,
    }
}

/// Bytes of an activation.
fn value_bytes(deployment: &Deployment) -> u64 {
    match deployment.dtype.as_deref() {
        Some("float32" | "fp32" | "float") => 4,
        _ => 2,
    }
}

/// The sampler that a deployment's profile run takes.
///
/// vLLM: the kernel without a sort came with pull request 33538 (0.17); FlashInfer's is the default where it is
/// installed from 0.23 (vllm/envs.py). Up to 0.11.0 it was used where it was installed: in images, not from pip.
pub fn sampler(deployment: &Deployment) -> Sampler {
    if deployment.engine != EngineKind::Vllm {
        return Sampler::Greedy;
    }
    let v = vllm::version(deployment);
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
        None | Some(Generation::Hopper | Generation::Blackwell) => 32 << 20,
        Some(Generation::Turing | Generation::Ampere | Generation::Amd) => 8_519_680,
    }
}

/// Columns of a split tensor on one GPU.
fn split(values: u64, tp: u64) -> u64 {
    values.div_ceil(tp.max(1))
}

/// What the widest layer holds besides the residual stream: an MLP's two halves and their product, or attention's
/// queries, keys, values and output.
fn widest_layer(model: &Model, deployment: &Deployment, tokens: u64, value: u64) -> u64 {
    let tp = deployment.tp.max(1);
    let rows = |wanted: &[&str]| {
        model
            .tensors
            .iter()
            .filter(|t| t.layer.is_some() && wanted.contains(&t.role))
            .map(|t: &Tensor| t.rows)
            .max()
            .unwrap_or(0)
    };
    let columns = |wanted: &str| {
        model
            .tensors
            .iter()
            .filter(|t| t.layer.is_some() && t.role == wanted)
            .map(|t| t.columns)
            .max()
            .unwrap_or(0)
    };
    let mlp = split(rows(&["gate_up"]), tp).saturating_add(split(columns("down"), tp));
    let recurrent = split(
        rows(&["in_qkvz", "in_proj", "in_qkv"]).saturating_mul(2),
        tp,
    );
    // Of all layers at once, not again for each of them.
    let latent = split(rows(&["q_b", "q"]), tp).saturating_add(split(columns("o"), tp));
    let heads = model
        .mixers
        .iter()
        .map(|m| match *m {
            Mixer::Attention {
                kv_heads,
                key_dim,
                value_dim,
                ..
            } => split(model.heads, tp)
                .saturating_mul(key_dim.saturating_add(value_dim))
                .saturating_add(
                    split(kv_heads, tp).saturating_mul(key_dim.saturating_add(value_dim)),
                ),
            Mixer::Latent { .. } => latent,
            _ => 0,
        })
        .max()
        .unwrap_or(0)
        .saturating_add(model.hidden);
    tokens
        .saturating_mul(value)
        .saturating_mul(mlp.max(recurrent).max(heads))
}

/// Copies of a layer's inputs in 8 bits, where products are done in 8 bits: the MLP's product and the residual stream.
fn byte_copies(model: &Model, deployment: &Deployment, tokens: u64) -> u64 {
    let named = deployment
        .quantization
        .as_deref()
        .map(str::to_ascii_lowercase);
    let eight = match &named {
        Some(name) => name.starts_with("fp8") || name.starts_with("int8") || name.contains("w8a8"),
        None => model
            .quantization
            .as_ref()
            .is_some_and(|q| q.get("quant_method").and_then(Value::as_str) == Some("fp8")),
    };
    let inner = model
        .tensors
        .iter()
        .filter(|t| t.layer.is_some() && t.role == "down")
        .map(|t| t.columns)
        .max()
        .unwrap_or(0);
    match eight {
        true => tokens.saturating_mul(split(inner, deployment.tp).saturating_add(model.hidden)),
        false => 0,
    }
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
    let width = model
        .tensors
        .iter()
        .filter(|t| t.role.starts_with("exp_w13"))
        .map(|t| (t.rows, t.columns))
        .max();
    let Some((rows, columns)) = width else {
        return 0;
    };
    let first = split(rows, tp);
    // A step is done in chunks of 16,384 tokens at most.
    tokens
        .min(16_384)
        .saturating_mul(chosen)
        .saturating_mul(value)
        .saturating_mul(first.max(columns).saturating_add(first / 2))
}

/// Keys and values of a chunked context that latent attention writes out: the profile run allocates the most
/// (vLLM 0.19, mla_attention.py: 8 sequences of full length, 65,536 tokens at most).
fn latent_context(model: &Model, deployment: &Deployment, settings: &Settings, value: u64) -> u64 {
    let kv_b = model
        .tensors
        .iter()
        .filter(|t| t.role == "kv_b")
        .map(|t| t.rows)
        .max();
    let (Some(rows), EngineKind::Vllm) = (kv_b, deployment.engine) else {
        return 0;
    };
    let long = settings.max_model_len.unwrap_or(8192).saturating_mul(8);
    let paged = settings
        .sequences
        .saturating_mul(settings.block)
        .saturating_mul(4);
    let tokens = long
        .max(paged)
        .min(65_536)
        .max(settings.sequences.saturating_mul(settings.block));
    tokens
        .saturating_mul(split(rows, deployment.tp))
        .saturating_mul(value)
}

/// Workspaces of sparse latent attention: 40 sequences of full length for the indexer's keys, 5 for the rows
/// (vLLM 0.19, v1/attention/backends/mla/indexer.py and flashmla_sparse.py).
fn sparse_workspace(model: &Model, settings: &Settings) -> u64 {
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
    let keys = longest
        .saturating_mul(40)
        .saturating_mul(index.saturating_add(4));
    let rows = longest
        .saturating_mul(5)
        .saturating_mul(row)
        .saturating_mul(2);
    // The workspace is one: the larger of its uses.
    keys.max(rows)
}

/// What the encoder leaves for the rest of the profile run: its results, one for each token of a step, and the images
/// that it was given. The second: what is known of the encoder.
fn encoder_left(
    model: &Model,
    deployment: &Deployment,
    tokens: u64,
    hidden: u64,
    value: u64,
) -> (u64, Encoder) {
    let Some(vision) = model.config.get("vision_config").filter(|v| v.is_object()) else {
        return (0, Encoder::None);
    };
    if deployment.engine != EngineKind::Vllm || vllm::is_v0(deployment) {
        return (0, Encoder::Unknown);
    }
    let number = |key: &str| {
        vision
            .get(key)
            .or_else(|| model.config.get(key))
            .and_then(Value::as_u64)
    };
    let kind = model
        .config
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or(&model.kind);
    let side = number("image_size").unwrap_or(0);
    let patch = number("patch_size").unwrap_or(14).max(1);
    // Tokens of the largest image, where the configuration tells.
    let of_image = match kind {
        "gemma3" => text_value(&model.config, "mm_tokens_per_image")
            .and_then(Value::as_u64)
            .or(Some(256)),
        "mistral3" | "pixtral" => {
            // Mistral 3 merges 2 x 2 patches unless it says otherwise.
            let default = if kind == "mistral3" { 2 } else { 1 };
            let merge = number("spatial_merge_size").unwrap_or(default).max(1);
            let across = side / (patch * merge).max(1);
            Some(across.saturating_mul(across))
        }
        _ => None,
    };
    match of_image.filter(|t| *t > 0) {
        Some(of_image) => {
            let images = (tokens / of_image).max(1);
            let pixels = images
                .saturating_mul(3)
                .saturating_mul(side)
                .saturating_mul(side)
                .saturating_mul(value);
            let results = images.saturating_mul(of_image).saturating_mul(hidden);
            (pixels.saturating_add(results), Encoder::Counted)
        }
        None if is_qwen(kind) => {
            let results = QWEN_IMAGE.max(tokens).saturating_mul(hidden);
            (results, Encoder::Counted)
        }
        None => (tokens.saturating_mul(hidden), Encoder::Unknown),
    }
}

/// Tokens of the largest image that Qwen's processors let through: 12,845,056 pixels of 28 x 28 a token, and
/// 16,777,216 of 32 x 32 from Qwen3-VL on.
const QWEN_IMAGE: u64 = 16_384;

/// Families with Qwen's encoder of images.
fn is_qwen(kind: &str) -> bool {
    kind.starts_with("qwen2_vl")
        || kind.starts_with("qwen2_5_vl")
        || kind.starts_with("qwen3_vl")
        || kind.starts_with("qwen3_5")
}

/// The peak of Qwen's encoder: the profile run gives it images that fill a step, at least one of the largest.
/// Beside the patches themselves, an MLP holds the residual stream, its norm, the first product and the activated
/// one; attention holds the residual stream and its norm, queries, keys and values as one and apart (3 + 3), queries
/// and keys joined for their rotation and rotated (2 + 2).
///
/// Counted by hand, not yet checked against vLLM's qwen2_5_vl.py and qwen3_vl.py; four patches are one token.
/// Nobody logs it alone: of two runs of 0.24 what is left for the cache agrees to 0.3 GiB.
fn encoding(model: &Model, deployment: &Deployment, tokens: u64, value: u64) -> u64 {
    let kind = model
        .config
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or(&model.kind);
    let vision = model.config.get("vision_config");
    let number = |key: &str| vision.and_then(|v| v.get(key)).and_then(Value::as_u64);
    let known = deployment.engine == EngineKind::Vllm && !vllm::is_v0(deployment) && is_qwen(kind);
    let (Some(width), Some(inner), Some(patch), true) = (
        number("hidden_size"),
        number("intermediate_size"),
        number("patch_size"),
        known,
    ) else {
        return 0;
    };
    let merged = number("spatial_merge_size").unwrap_or(2);
    let frames = number("temporal_patch_size").unwrap_or(2);
    let patches = QWEN_IMAGE
        .max(tokens / QWEN_IMAGE * QWEN_IMAGE)
        .saturating_mul(merged.saturating_mul(merged));
    // Gated in Qwen2.5-VL: both halves and their product.
    let products = if kind.starts_with("qwen2_5_vl") { 3 } else { 2 };
    let pixels = patch
        .saturating_mul(patch)
        .saturating_mul(frames)
        .saturating_mul(3);
    let mlp = width
        .saturating_mul(2)
        .saturating_add(inner.saturating_mul(products));
    let row = width.saturating_mul(12).max(mlp).saturating_add(pixels);
    patches.saturating_mul(row).saturating_mul(value)
}
