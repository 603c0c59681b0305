//! A model as far as memory goes: its layers' mixers and every tensor, with how each is split.

mod attention;
mod build;
mod compressed;
mod config;
mod facts;
mod families;
mod ffn;
mod flags;
mod mixers;
mod recurrent;
mod table;
mod vision;

pub use build::{QUANTIZATION, from_config};
pub use flags::{Flags, describe_kv_readings, from_flags};
pub use vision::{AUDIO_PARTS, MULTIMODAL};

use super::kv::text_value;
use super::unmodelled::Unmodelled;
use crate::estimate::arithmetic::{product, sum};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A model as far as memory goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// As it was asked for: `Qwen/Qwen3-8B`, or a path.
    pub name: String,
    /// `model_type` of the language model: `qwen3`, `deepseek_v3`.
    pub kind: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Query heads of an attention layer; 0 where the model has no attention.
    pub heads: u64,
    /// Key and value heads of an attention layer.
    pub kv_heads: u64,
    /// Values of a head.
    pub head_dim: u64,
    /// Entries of the vocabulary, as the embedding has them.
    pub vocab: u64,
    /// Longest context that the configuration names, tokens.
    pub max_positions: Option<u64>,
    /// They are those of the model that it was tuned from: its own may be more.
    pub lends_positions: bool,
    /// The output layer is the embedding.
    pub tied: bool,
    /// Tables of rotary positions that an engine keeps beside the weights.
    pub rope: Option<RopeTables>,
    /// What mixes tokens in each layer, in order.
    pub mixers: Vec<Mixer>,
    /// Every parameter, by kind and layer.
    pub tensors: Vec<Tensor>,
    /// The layers that predict further tokens (MTP, nextn), which the files hold and no engine loads unless it
    /// speculates with them; among neither `tensors` nor `mixers`.
    pub predictor: Predictor,
    /// Experts that one token is sent to.
    pub experts_per_token: Option<u64>,
    /// Bytes of a value that is not quantised: 4 only where the configuration has
    /// float32 (which vLLM and SGLang load in 16 bits without `--dtype float32`).
    pub value_bytes: u64,
    /// `quantization_config` of config.json, whole; else `compression_config` or `hf_quant_config`.
    pub quantization: Option<Value>,
    /// config.json, whole: for what only one engine or one term reads of it.
    pub config: Value,
    /// What of the model moves memory and is not modelled.
    pub unmodelled: Vec<Unmodelled>,
    /// What to know about the facts, in whole sentences without a full stop.
    pub warnings: Vec<String>,
    /// Where the facts come from: a path, `configs/models`, flags.
    pub source: String,
}

/// Layers that predict further tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictor {
    /// Their parameters; their layers are counted on from the model's.
    pub tensors: Vec<Tensor>,
    /// What mixes tokens in each.
    pub mixers: Vec<Mixer>,
}

/// Tables of rotary positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RopeTables {
    /// Positions of each, on average.
    pub positions: u64,
    /// Values of a position.
    pub dim: u64,
    /// Tables of distinct settings.
    pub tables: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
}

/// What mixes tokens in one layer, and so what a sequence keeps there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Mixer {
    /// Attention with keys and values for each head.
    Attention {
        /// Key and value heads.
        kv_heads: u64,
        /// Values of a key.
        key_dim: u64,
        /// Values of a value.
        value_dim: u64,
        /// Tokens that it looks back at, where that is bounded.
        window: Option<Window>,
        /// Uses the keys and values of an earlier layer, and keeps none.
        shares: bool,
    },
    /// Multi-head latent attention: one compressed row for all heads.
    Latent {
        /// `kv_lora_rank`.
        rank: u64,
        /// `qk_rope_head_dim`.
        rope: u64,
        /// `index_head_dim`, where a sparse indexer keeps keys of its own.
        index: Option<u64>,
    },
    /// Mamba 2.
    Mamba2 {
        /// Heads.
        heads: u64,
        /// Values of a head.
        head_dim: u64,
        /// Groups of B and C.
        groups: u64,
        /// State of each value.
        state: u64,
        /// Width of the convolution.
        conv: u64,
    },
    /// Mamba 1.
    Mamba1 {
        /// Inner width.
        inner: u64,
        /// State of each value.
        state: u64,
        /// Width of the convolution.
        conv: u64,
    },
    /// Gated delta net, and Kimi's delta attention.
    DeltaNet {
        /// Key heads.
        key_heads: u64,
        /// Value heads.
        value_heads: u64,
        /// Values of a key.
        key_dim: u64,
        /// Values of a value.
        value_dim: u64,
        /// Width of the convolution.
        conv: u64,
    },
    /// A short convolution over gated inputs (LFM2).
    Convolution {
        /// Its inputs.
        inner: u64,
        /// Its width in tokens.
        conv: u64,
    },
    /// Lightning attention: a square state for each head.
    Lightning {
        /// Heads.
        heads: u64,
        /// Values of a head.
        head_dim: u64,
    },
    /// DeepSeek V4: a window of tokens, and one key for each `ratio` tokens, where that is more than 1.
    Compressed {
        /// Tokens of a key; 0 and 1: the window alone.
        ratio: u64,
        /// Values of a key, which is the value too.
        dim: u64,
        /// Values of a key of the indexer, where there is one.
        index: Option<u64>,
        /// Tokens of the window.
        window: u64,
    },
    /// Nothing is kept: a layer of only an MLP, a replaced or a left-out attention.
    None,
}

/// A bounded look back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// This number of last tokens.
    Sliding(u64),
    /// The chunk that a token is in, of this number of tokens.
    Chunked(u64),
}

/// One parameter, or several of the same shape in one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// What it is, by one short name for all models: `q`, `kv`, `o`, `gate_up`, `down`, `embed`, `lm_head`,
    /// `norm`, `router`, `exp_w13`, `exp_w2`, `q_a`, `kv_b`, `in_proj`, …
    pub role: &'static str,
    /// Rows: outputs of a linear layer.
    pub rows: u64,
    /// Columns: inputs of a linear layer; 1 for a vector.
    pub columns: u64,
    /// How many of them: the experts of a layer; else 1.
    pub count: u64,
    /// Its layer; `None` outside the layers.
    pub layer: Option<u32>,
    /// How tensor parallelism splits it.
    pub split: Split,
    /// A linear layer that a quantisation of the whole model takes.
    pub quantizable: bool,
    /// Kept in 32 bits whatever the model's type is.
    pub float32: bool,
}

impl Tensor {
    /// Values in it.
    pub fn values(&self) -> u64 {
        product([self.rows, self.columns, self.count])
    }
}

/// How a tensor is spread over the GPUs of tensor parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Whole on each.
    Replicated,
    /// By outputs.
    Columns,
    /// By inputs.
    Rows,
    /// By key and value heads: a head that does not go further is repeated.
    KvHeads,
    /// By entries of the (padded) vocabulary.
    Vocabulary,
    /// Experts: each by outputs, or whole experts under expert parallelism.
    ExpertColumns,
    /// Experts: each by inputs, or whole experts under expert parallelism.
    ExpertRows,
    /// Something of an expert that tensor parallelism repeats.
    ExpertReplicated,
}

impl Mixer {
    /// Tokens that attention looks back at, where that is bounded.
    pub fn window(&self) -> Option<Window> {
        match self {
            Mixer::Attention { window, .. } => *window,
            _ => None,
        }
    }

    /// A state is kept for each sequence, but for a convolution's few tokens.
    pub fn is_recurrent(&self) -> bool {
        use Mixer::{DeltaNet, Lightning, Mamba1, Mamba2};
        matches!(
            self,
            Mamba1 { .. } | Mamba2 { .. } | DeltaNet { .. } | Lightning { .. }
        )
    }

    /// Bytes that one token adds on one GPU without any parallelism, while no window is full;
    /// `None` where that is no whole number. An indexer's key is kept in 8 bits with a scale of 4 bytes
    /// whatever the others' type is.
    pub fn cache_bytes_per_token(&self, value_bytes: u64) -> Option<u64> {
        match self {
            Mixer::Compressed { .. } => None,
            Mixer::Attention {
                kv_heads,
                key_dim,
                value_dim,
                shares: false,
                ..
            } => Some(product([
                *kv_heads,
                key_dim.saturating_add(*value_dim),
                value_bytes,
            ])),
            Mixer::Latent { rank, rope, index } => Some(sum([
                product([rank.saturating_add(*rope), value_bytes]),
                index.map_or(0, |dim| dim.saturating_add(4)),
            ])),
            _ => Some(0),
        }
    }
}

impl Model {
    /// Tokens of the longest request that vLLM and SGLang take without being forced: the positions, scaled as the
    /// configuration says, or its `model_max_length` (vLLM 0.33, `get_and_verify_max_len`).
    pub fn longest(&self) -> Option<u64> {
        let most = self.max_positions.filter(|_| !self.lends_positions)?;
        let scaled = self.rope.as_ref().map_or(most, |rope| match rope.tables {
            // The mean of a table that is scaled and one that is not.
            2 => (2 * rope.positions).saturating_sub(most),
            _ => rope.positions,
        });
        let named = text_value(&self.config, "model_max_length").and_then(Value::as_u64);
        Some(most.max(scaled).max(named.unwrap_or(0)))
    }

    /// Bytes of keys and values that one token adds, as [`Mixer::cache_bytes_per_token`] has them.
    pub fn cache_bytes_per_token(&self, value_bytes: u64) -> Option<u64> {
        self.mixers.iter().try_fold(0u64, |sum, mixer| {
            Some(sum.saturating_add(mixer.cache_bytes_per_token(value_bytes)?))
        })
    }

    /// Whether a layer has multi-head latent attention.
    pub fn is_latent(&self) -> bool {
        let latent = |m: &Mixer| matches!(m, Mixer::Latent { .. });
        self.mixers.iter().any(latent)
    }

    /// Whether a layer has attention over compressed keys.
    pub fn is_compressed(&self) -> bool {
        let compressed = |m: &Mixer| matches!(m, Mixer::Compressed { .. });
        self.mixers.iter().any(compressed)
    }

    /// Whether a layer's latent attention has a sparse indexer.
    pub fn is_indexed(&self) -> bool {
        let indexed = |m: &Mixer| matches!(m, Mixer::Latent { index: Some(_), .. });
        self.mixers.iter().any(indexed)
    }

    /// Whether a layer keeps a state for each sequence.
    pub fn is_recurrent(&self) -> bool {
        self.mixers.iter().any(Mixer::is_recurrent)
    }

    /// `quant_method` of its quantisation.
    pub fn quant_method(&self) -> Option<&str> {
        self.quantization.as_ref()?.get("quant_method")?.as_str()
    }

    /// The first layer that predicts further tokens, as it is counted on.
    pub fn predicts_from(&self) -> u32 {
        u32::try_from(self.mixers.len()).unwrap_or(u32::MAX)
    }

    /// Parameters, as a model card counts them.
    pub fn parameters(&self) -> u64 {
        sum(self.tensors.iter().map(Tensor::values))
    }
}
