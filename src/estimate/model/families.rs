//! What a family of models has that its config.json does not state: configs/model-families.yaml.

use crate::tables::read_table;
use serde::Deserialize;
use std::sync::LazyLock;

/// The table that ships.
const TABLE: &str = include_str!("../../../configs/model-families.yaml");

/// One family. The file describes each field.
#[derive(Debug, Default, Deserialize)]
#[serde(default = "llama", deny_unknown_fields)]
pub(super) struct Family {
    pub kinds: Vec<String>,
    pub tied: bool,
    pub always_tied: bool,
    pub norm: Norm,
    pub norms: u64,
    pub bias: Bias,
    pub bias_field: String,
    pub bias_output: bool,
    pub qk_norm: QkNorm,
    pub gated: bool,
    pub mlp_bias: bool,
    pub output_gate: bool,
    pub positions: Positions,
    pub extra_positions: u64,
    pub pattern: Pattern,
    pub period: u64,
    pub experts: Experts,
    pub experts_field: String,
    pub experts_as_wide_as_mlp: bool,
    pub dense_width_field: Option<String>,
    pub correction: bool,
    pub float32_router: bool,
    pub expert_bias: bool,
    pub sinks: bool,
    pub head_bias: bool,
    pub embed_norm: bool,
    pub dt_norms: bool,
    pub head_dim: Option<u64>,
    pub window_rope: bool,
    pub long_rope_factor: Option<u64>,
    pub halved_mlp: bool,
    pub padded_vocab: bool,
    pub dense_predictor: bool,
    pub encoder: bool,
    pub optional_kv_heads: bool,
    pub optional_mlp_width: bool,
}

/// Every family, read once; none where the file cannot be read, which a test rules out.
static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| read_table::<Table>(TABLE).families);

#[derive(Default, Deserialize)]
struct Table {
    families: Vec<Family>,
}

/// What a row of the table starts from.
fn llama() -> Family {
    Family {
        norms: 2,
        gated: true,
        period: 1,
        experts_field: "num_experts".to_owned(),
        ..Family::default()
    }
}

/// The family of a `model_type`.
pub(super) fn family(kind: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.kinds.iter().any(|k| k == kind))
}

/// Values of a norm: none, one or two for each of its width.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Norm {
    /// No parameters.
    Bare,
    /// A weight.
    #[default]
    Weight,
    /// A weight and a bias.
    WeightAndBias,
}

/// Biases of the attention's projections.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bias {
    /// As `attention_bias`, `qkv_bias` and `use_qkv_bias` set them; else none.
    #[default]
    Configured,
    /// Queries, keys and values.
    Qkv,
    /// All four, unless the family's `bias_field` is false.
    AllUnless,
    /// All four and those of the MLP, where the family's `bias_field` is true.
    AllIf,
    /// None, whatever is configured.
    Never,
}

/// Norms of queries and keys.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum QkNorm {
    /// None.
    #[default]
    None,
    /// One of a head's width for each.
    Head,
    /// One of all heads' width for each.
    Wide,
    /// As `Head`, where `use_qk_norm` is true.
    HeadIfUsed,
    /// As `Wide`, where `use_qk_norm` is true.
    WideIfUsed,
}

/// How positions are known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Positions {
    /// Rotary: a table beside the weights.
    #[default]
    Rotary,
    /// An embedding, with the family's `extra_positions` entries more than positions.
    Learned,
    /// Nothing is kept.
    None,
}

/// Which layers look back how far, where `layer_types` is not set.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pattern {
    /// All layers see all tokens.
    #[default]
    Full,
    /// All layers have the window that the configuration names.
    Window,
    /// The window counts only with `use_sliding_window: true`.
    WindowIfUsed,
    /// Of each period the last layer sees all tokens; `sliding_window_pattern` is another period.
    LastOf,
    /// Even layers have the window.
    EvenWindow,
    /// Of each period the last layer sees all tokens, the others their chunk; `no_rope_layer_interval` is
    /// another period.
    ChunksButLastOf,
    /// Multi-head latent attention.
    Latent,
    /// DeepSeek V4: keys compressed by `compress_ratios`.
    Compressed,
    /// Llama 3.2 Vision: the layers of `cross_attention_layers` look at the image.
    Crossed,
    /// Attention in one layer of a period, Mamba 1 in the others.
    Jamba,
    /// Attention in the layers of `attn_layer_indices`, Mamba 2 in the others.
    Bamba,
    /// Falcon-H1: each layer has attention and Mamba 2, side by side.
    ParallelMamba2,
    /// Mamba 1 in all.
    Mamba1,
    /// Mamba 2 in all.
    Mamba2,
    /// `hybrid_override_pattern`: one letter for each layer.
    NemotronH,
    /// `block_configs`: one entry for each layer.
    Blocks,
    /// Gated delta net but for each n-th layer.
    DeltaNet,
    /// LFM2: a short convolution where `layer_types` is `conv`, or in all layers but `full_attn_idxs`.
    Convolutions,
    /// Lightning attention where `attn_type_list` is 0, or `layer_types` is `linear_attention`.
    Lightning,
    /// Kimi's delta attention in the layers of `linear_attn_config.kda_layers`.
    Kimi,
    /// `hybrid_layer_pattern`: 1 for a windowed layer with heads of its own.
    #[serde(rename = "mimo")]
    MiMo,
    /// Gemma 4: global layers have heads of their own.
    Gemma4,
}

/// Which layers have experts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Experts {
    /// By `mlp_layer_types` or `is_moe_layer`; else all, but for `first_k_dense_replace` and `moe_layer_freq`.
    #[default]
    FirstDense,
    /// By `decoder_sparse_step` and `mlp_only_layers`.
    Step,
    /// By `interleave_moe_layer_step` or `moe_layers`; the others are wider.
    Interleaved,
    /// By `expert_layer_period` and `expert_layer_offset`.
    Period,
    /// By `moe_layer_start_index` and `moe_layer_end_index`.
    Range,
    /// Beside a dense MLP in each layer.
    Beside,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_read_and_each_kind_is_in_one() {
        serde_yaml::from_str::<Table>(TABLE).unwrap();
        let kinds = FAMILIES.iter().flat_map(|f| &f.kinds);
        let mut kinds: Vec<&str> = kinds.map(String::as_str).collect();
        let all = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), all, "a kind is in two rows");
        assert!(kinds.contains(&"llama") && kinds.contains(&"deepseek_v3"));
    }

    #[test]
    fn what_a_field_refers_to_is_set() {
        for f in FAMILIES.iter() {
            assert!(!f.kinds.is_empty(), "{f:?}");
            assert!(f.bias != Bias::AllIf || !f.bias_field.is_empty(), "{f:?}");
            let periodic = matches!(f.pattern, Pattern::LastOf | Pattern::ChunksButLastOf);
            assert_eq!(periodic, f.period > 1, "{f:?}");
        }
    }
}
