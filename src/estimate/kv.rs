//! What one token, and one sequence, keeps in the cache on one GPU: by the mixer of each layer.

use super::{
    Deployment, EngineId, Mixer, Model, Unknown, Version, engines::llama_cpp,
    format::contradiction, model::Window, pool::compressed, pooling, speculation,
    weights::shard::offloaded,
};
use crate::estimate::arithmetic::{count_if, product, sum};
use serde_json::Value;

/// What the layers of a model keep on the GPU that holds most.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Layers that keep something of each token, in the model's order.
    pub layers: Vec<Layer>,
    /// Layers that keep a state of each sequence, in the model's order.
    pub states: Vec<State>,
    /// Values are kept in one byte, or in rows that mix bytes and 16 bits.
    pub format: Format,
}

/// What one layer keeps of a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// Bytes on one GPU.
    pub bytes: u64,
    /// Where the look back is bounded.
    pub window: Option<Window>,
    /// A compressed row for all heads.
    pub latent: bool,
    /// Bytes of keys that a sparse indexer keeps beside; contained in `bytes`.
    pub index: u64,
}

/// What one layer keeps of a sequence, whatever its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Bytes on one GPU.
    pub bytes: u64,
    /// Which mixer it is of: layers of one kind are grouped.
    pub kind: &'static str,
}

/// How values of the cache are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Bytes of one value.
    Bytes(u64),
    /// vLLM's `fp8_ds_mla`: 512 values of a byte, 4 scales, 64 values of two bytes for positions.
    DsMla,
    /// Blocks of 16 values of half a byte with a scale of a byte.
    Nvfp4,
    /// llama.cpp's blocks of 32 values: bytes of a block.
    Block32(u64),
    /// vLLM's `int8_per_token_head`: a byte a value, and a scale of 4 for each head.
    TokenHead,
}

impl Format {
    /// Bytes of `values`.
    fn of(self, values: u64) -> u64 {
        match self {
            Format::Bytes(b) => values.saturating_mul(b),
            Format::DsMla => values,
            Format::Nvfp4 => (values / 2).saturating_add(values.div_ceil(16)),
            Format::Block32(b) => values.div_ceil(32).saturating_mul(b),
            Format::TokenHead => values,
        }
    }

    /// Bytes of so many heads with a row of `dim` values each.
    fn of_heads(self, heads: u64, dim: u64) -> u64 {
        let scales = count_if(self == Format::TokenHead, heads.saturating_mul(4));
        self.of(heads.saturating_mul(dim)).saturating_add(scales)
    }
}

/// Bytes of a row of `fp8_ds_mla` (vLLM, v1/kv_cache_interface.py, MLAAttentionSpec).
const DS_MLA_ROW: u64 = 656;

impl Cache {
    /// Bytes that one token adds on one GPU while every layer still grows.
    pub fn bytes_per_token(&self) -> u64 {
        sum(self.layers.iter().map(|l| l.bytes))
    }

    /// Bytes of one sequence's recurrent states on one GPU.
    pub fn bytes_per_sequence(&self) -> u64 {
        sum(self.states.iter().map(|s| s.bytes))
    }

    /// Whether a sequence keeps less of some layers than of others: a window, or a state.
    pub fn is_bounded(&self) -> bool {
        !self.states.is_empty() || self.layers.iter().any(|l| l.window.is_some())
    }

    /// Bytes of a value at attention layers, for the formula's words.
    pub fn value_words(&self) -> String {
        match self.format {
            Format::Bytes(b) => format!("{b} bytes a value"),
            Format::DsMla => format!("{DS_MLA_ROW} bytes a row (fp8_ds_mla)"),
            Format::Nvfp4 => "half a byte a value and a scale for 16".into(),
            Format::Block32(b) => format!("{b} bytes for 32 values"),
            Format::TokenHead => "a byte a value and a scale of 4 for each head".into(),
        }
    }
}

/// What the layers of `model` keep in a deployment.
///
/// Sources: vLLM 0.19 `v1/kv_cache_interface.py` and `model_executor/layers/mamba/mamba_utils.py`.
/// Heads that tensor parallelism does not divide further are repeated; latent rows always are.
pub fn of(model: &Model, deployment: &Deployment) -> Result<Cache, Unknown> {
    let tp = deployment.tp.max(1);
    let dtype = deployment.kv_dtype.as_deref();
    let dtype = dtype.filter(|_| !llama_cpp::drops_cache_type(model, deployment));
    let format = format_of(model, deployment, dtype)?;
    let of_values = match &deployment.llama.values_dtype {
        Some(own) => format_of(model, deployment, Some(own))?,
        None => format,
    };
    // llama.cpp keeps both states in 32 bits: its log has `R (f32)` and `S (f32)`.
    let (conv_bytes, ssm_bytes) = match deployment.engine {
        EngineId::LlamaCpp => (4, Some(4)),
        _ => {
            let plain = value_bytes(deployment);
            let conv = match deployment.conv_dtype.as_deref() {
                Some("float32") => 4,
                Some("float16" | "bfloat16") => 2,
                _ => plain,
            };
            (conv, state_bytes(model, deployment, plain))
        }
    };
    let mut cache = Cache {
        layers: Vec::with_capacity(model.mixers.len()),
        states: Vec::new(),
        format,
    };
    if pooling::keeps_nothing(model, deployment) {
        return Ok(cache);
    }
    // A pipeline's largest stage decides; vLLM gives the first stages the layers that are left over.
    let stages = deployment.pp.max(1) as usize;
    let proposing = speculation::mixers(model, deployment);
    let here = match offloaded(model.mixers.len() as u64, deployment) {
        Some((layers, _)) => (model.mixers.get(layers.start as usize..)).unwrap_or_default(),
        None => &model.mixers[..],
    };
    let sparse = sparse_layers(model);
    let mut dense = model.mixers.len() as u64 - sparse.map_or(0, |(layers, _)| layers);
    let stage = largest_stage(here, stages);
    for (at, mixer) in stage.iter().chain(&proposing).enumerate() {
        let mut put = |bytes, window, index, latent| {
            cache.layers.push(Layer {
                bytes,
                window,
                latent,
                index,
            });
        };
        match *mixer {
            Mixer::Attention {
                kv_heads,
                key_dim,
                value_dim,
                window,
                shares,
            } => {
                if shares {
                    continue;
                }
                let window = window.filter(|_| !ignores_windows(model, deployment));
                let heads = kv_heads.div_ceil(tp).max(1);
                // The first layers are the dense ones, and a draft's have no index.
                let is_dense = dense > 0 || at >= stage.len();
                dense = dense.saturating_sub(1);
                let own = sparse.filter(|_| !is_dense);
                let index = own.map_or(0, |(_, dim)| format.of(dim));
                let keys = format.of_heads(heads, key_dim);
                let bytes = sum([keys, of_values.of_heads(heads, value_dim), index]);
                put(bytes, window, index, false);
            }
            Mixer::Latent { rank, rope, index } => {
                // The indexer's keys: a byte a value and a scale of 4 for each 128 (vLLM, DeepseekV32IndexerCache).
                let index =
                    index.map_or(0, |d| d.saturating_add(d.div_ceil(128).saturating_mul(4)));
                let row = match format {
                    Format::DsMla => DS_MLA_ROW,
                    other => other.of(rank.saturating_add(rope)),
                };
                put(row.saturating_add(index), None, index, true);
            }
            Mixer::Compressed {
                ratio,
                index,
                window,
                ..
            } => {
                if !compressed::is_known(model, deployment) {
                    return Err(Unknown::new(format!(
                        "the cache per token of a layer of `{}` is not known",
                        model.kind
                    )));
                }
                put(compressed::ROW, Some(Window::Sliding(window)), 0, true);
                if ratio > 1 {
                    let index = index.map_or(0, |_| compressed::INDEX_ROW.div_ceil(ratio));
                    put(compressed::ROW.div_ceil(ratio) + index, None, index, true);
                }
            }
            _ => {
                let ahead = match deployment.engine {
                    EngineId::Vllm => speculation::tokens(deployment),
                    _ => 0,
                };
                if let Some(state) = state_of(mixer, tp, ahead, conv_bytes, ssm_bytes) {
                    cache.states.push(state);
                }
            }
        }
    }
    Ok(cache)
}

/// Layers of MiniMax-M3 that choose blocks by keys of their own, and the values of such a key: one row a token, whole on
/// each rank. Measured: 38,528 bytes a token in 8 bits at tensor parallelism 2, of which 57 x 128 are they.
fn sparse_layers(model: &Model) -> Option<(u64, u64)> {
    let config = text_value(&model.config, "sparse_attention_config")?;
    let layers = config.get("sparse_attention_freq")?.as_array()?.iter();
    let count = layers.filter(|flag| flag.as_u64() == Some(1)).count() as u64;
    let dim = config.get("sparse_index_dim")?.as_u64()?;
    (count <= model.mixers.len() as u64).then_some((count, dim))
}

/// llama.cpp reads these families as its own `llama`, `qwen2` and `starcoder2`, of which it has no windows
/// (src/llama-model.cpp, `load_hparams`).
fn ignores_windows(model: &Model, deployment: &Deployment) -> bool {
    deployment.engine == EngineId::LlamaCpp
        && matches!(
            model.kind.as_str(),
            "mistral" | "mixtral" | "qwen2" | "qwen2_moe" | "qwen3" | "qwen3_moe" | "starcoder2"
        )
}

/// The layers of the stage that has most of them.
fn largest_stage(mixers: &[Mixer], stages: usize) -> &[Mixer] {
    if stages <= 1 || mixers.is_empty() {
        return mixers;
    }
    let each = mixers.len().div_ceil(stages);
    mixers
        .chunks(each)
        .max_by_key(|c| {
            c.iter()
                .filter(|m| !matches!(m, Mixer::None | Mixer::Attention { shares: true, .. }))
                .count()
        })
        .unwrap_or(mixers)
}

/// The state of a recurrent layer; `ahead`: tokens that are verified beside a sequence's own.
fn state_of(
    mixer: &Mixer,
    tp: u64,
    ahead: u64,
    conv_bytes: u64,
    ssm_bytes: Option<u64>,
) -> Option<State> {
    // conv: (width - 1) columns of the inputs in the model's type, and one for each token ahead; ssm: the state itself.
    let both = |kind, inputs: u64, conv: u64, values: u64, bytes: u64| {
        let columns = conv.saturating_sub(1).saturating_add(ahead);
        let conv = product([inputs.div_ceil(tp), columns, conv_bytes]);
        let ssm = values.div_ceil(tp).saturating_mul(bytes);
        Some(State {
            bytes: conv.saturating_add(ssm),
            kind,
        })
    };
    let of_state = ssm_bytes.unwrap_or(conv_bytes);
    match *mixer {
        Mixer::Mamba2 {
            heads,
            head_dim,
            groups,
            state,
            conv,
        } => {
            // Groups that tensor parallelism does not divide are repeated (vLLM, MambaMixer2).
            let groups = if groups % tp == 0 {
                groups
            } else {
                groups.max(tp)
            };
            let inner = heads.saturating_mul(head_dim);
            let inputs = inner.saturating_add(product([groups, state, 2]));
            let values = inner.saturating_mul(state);
            both("mamba2", inputs, conv, values, of_state)
        }
        Mixer::Mamba1 { inner, state, conv } => {
            let values = inner.saturating_mul(state);
            both("mamba1", inner, conv, values, ssm_bytes.unwrap_or(4))
        }
        Mixer::DeltaNet {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            conv,
        } => {
            let inputs = sum([
                product([key_heads, key_dim, 2]),
                value_heads.saturating_mul(value_dim),
            ]);
            let values = product([value_heads, key_dim, value_dim]);
            both("delta net", inputs, conv, values, of_state)
        }
        Mixer::Convolution { inner, conv } => both("convolution", inner, conv, 0, conv_bytes),
        Mixer::Lightning { heads, head_dim } => {
            both("lightning", 0, 1, product([heads, head_dim, head_dim]), 4)
        }
        Mixer::Attention { .. } | Mixer::Latent { .. } | Mixer::Compressed { .. } | Mixer::None => {
            None
        }
    }
}

/// Bytes of a value that nothing quantises. Nothing that serves keeps one in 32 bits because a checkpoint is stored so: vLLM's
/// `auto` casts it down.
pub(super) fn value_bytes(deployment: &Deployment) -> u64 {
    match deployment.dtype.as_deref() {
        Some("float32" | "fp32" | "float") => 4,
        _ => 2,
    }
}

/// Bytes of a value of a recurrent state, where the configuration sets them.
fn state_bytes(model: &Model, deployment: &Deployment, plain: u64) -> Option<u64> {
    let newer =
        deployment.engine != EngineId::Vllm || !deployment.is_before(Version::new(0, 13, 0));
    let named = ["mamba_ssm_cache_dtype", "mamba_ssm_dtype"];
    let configured = || named.iter().find_map(|key| text_value(&model.config, key));
    let asked = deployment.state_dtype.as_deref();
    if asked == Some("float32") {
        return Some(4);
    }
    let state_dtype = asked.or_else(|| configured().and_then(Value::as_str));
    match state_dtype {
        Some("float32") if newer => Some(4),
        Some("float16" | "bfloat16") => Some(2),
        Some(_) => Some(plain),
        None if model.kind.starts_with("qwen3_5") => Some(4),
        // SGLang, configs/mamba_utils.py, `mamba2_state_dtype`.
        None if deployment.engine == EngineId::Sglang => Some(4),
        None => None,
    }
}

/// A key of config.json, of the language model where there are several.
pub fn text_value<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    let nested = ["text_config", "llm_config", "language_config"]
        .iter()
        .find_map(|part| config.get(part)?.get(key));
    nested.or_else(|| config.get(key)).filter(|v| !v.is_null())
}

/// How the cache is stored.
fn format_of(
    model: &Model,
    deployment: &Deployment,
    dtype: Option<&str>,
) -> Result<Format, Unknown> {
    let plain = Format::Bytes(value_bytes(deployment));
    let kv_dtype = dtype.unwrap_or("auto");
    let rows = matches!(deployment.engine, EngineId::Vllm | EngineId::Sglang);
    let fp8 = if model.is_indexed() && rows {
        // vLLM has one format of 8 bits for attention with an indexer, and SGLang the same on Hopper.
        Format::DsMla
    } else {
        Format::Bytes(1)
    };
    match kv_dtype.trim().to_ascii_lowercase().as_str() {
        "" | "auto" | "none" => Ok(if has_fp8_cache_scheme(model, deployment) {
            fp8
        } else {
            plain
        }),
        "fp8" | "fp8_e4m3" | "fp8_e5m2" | "fp8_inc" | "fp8_e4m3fn" | "float8_e4m3fn"
        | "float8_e5m2" => Ok(fp8),
        "int8" | "u8" => Ok(Format::Bytes(1)),
        "int8_per_token_head" | "fp8_per_token_head" => Ok(Format::TokenHead),
        "fp8_ds_mla" => Ok(Format::DsMla),
        "bfloat16" | "float16" | "bf16" | "fp16" | "f16" | "half" => Ok(Format::Bytes(2)),
        "float32" | "fp32" | "f32" => Ok(Format::Bytes(4)),
        "nvfp4" | "fp4" | "fp4_e2m1" => Ok(Format::Nvfp4),
        // llama.cpp, ggml-common.h: bytes of a block of 32 values.
        "q8_0" => Ok(Format::Block32(34)),
        "q5_1" => Ok(Format::Block32(24)),
        "q5_0" => Ok(Format::Block32(22)),
        "q4_1" => Ok(Format::Block32(20)),
        "q4_0" | "iq4_nl" => Ok(Format::Block32(18)),
        other => Err(
            Unknown::new(format!("the cache's type `{other}` is not known"))
                .hint("give auto, fp8, bfloat16, float16 or the name the engine takes"),
        ),
    }
}

/// A checkpoint of ModelOpt with weights of 4 bits.
fn is_modelopt_4bit(model: &Model) -> bool {
    let beside = model.config.get("hf_quant_config");
    let mut named = (model.quantization.iter().chain(beside))
        .filter_map(|q| q.get("quant_algo").and_then(Value::as_str));
    named.any(|a| a.to_ascii_uppercase().contains("FP4"))
}

/// A checkpoint of ModelOpt that names 8 bits for the cache is taken at its word by vLLM from 0.12 where the flag
/// is `auto` (vLLM, `resolve_kv_cache_dtype_string`).
fn has_fp8_cache_scheme(model: &Model, deployment: &Deployment) -> bool {
    // With a quantisation by name the checkpoint is not the one of this configuration.
    let named = deployment.quantization.as_deref();
    let another = named.is_some_and(|name| !contradiction::reads_own(model, name));
    if !follows_checkpoint(model, deployment) || another {
        return false;
    }
    let beside = model.config.get("hf_quant_config");
    let method = model.quant_method();
    let modelopt = beside.is_some() || method.is_some_and(|m| m.starts_with("modelopt"));
    let is_fp8 = |quantization: &Value| {
        let algorithm = quantization
            .get("kv_cache_quant_algo")
            .and_then(Value::as_str)
            .is_some_and(|a| a.eq_ignore_ascii_case("fp8"));
        let scheme = quantization.get("kv_cache_scheme").is_some_and(|s| {
            s.get("num_bits").and_then(Value::as_u64) == Some(8)
                && s.get("type").and_then(Value::as_str) == Some("float")
        });
        algorithm || scheme
    };
    modelopt && model.quantization.iter().chain(beside).any(is_fp8)
}

/// Whether the engine takes the type of the cache that a checkpoint of ModelOpt names, where none is asked for.
pub fn follows_checkpoint(model: &Model, deployment: &Deployment) -> bool {
    match deployment.engine {
        EngineId::Vllm => !deployment.is_before(Version::new(0, 12, 0)),
        EngineId::TensorRtLlm => true,
        // SGLang, model_runner.py and modelopt_quant.py: 4-bit checkpoints first. Of sparse attention it is not.
        EngineId::Sglang => {
            let since = Version::new(0, 5, if is_modelopt_4bit(model) { 3 } else { 5 });
            !model.is_indexed() && !deployment.is_before(since)
        }
        _ => false,
    }
}
