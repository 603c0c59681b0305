//! What a family of models has that its config.json does not say: biases, norms, gating, tying.

/// Facts about a family, by `model_type`. Sources: the modelling code of transformers and of vLLM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// The values of `model_type`.
    pub kinds: &'static [&'static str],
    /// The output layer is the embedding where the configuration does not say.
    pub tied: bool,
    /// It is so whatever the configuration says.
    pub always_tied: bool,
    /// The norms.
    pub norm: Norm,
    /// Norms in a layer.
    pub norms: u64,
    /// Biases of the attention's projections.
    pub bias: Bias,
    /// Whether `attention_bias: true` adds one to the output projection as well.
    pub bias_output: bool,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// The MLP has a gate.
    pub gated: bool,
    /// The MLP has biases.
    pub mlp_bias: bool,
    /// Queries are twice as wide: half of them gates the output.
    pub output_gate: bool,
    /// Positions.
    pub positions: Positions,
    /// Which layers look back how far.
    pub pattern: Pattern,
    /// Which layers have experts.
    pub experts: Experts,
    /// The router has a bias that corrects the balance, kept in 32 bits.
    pub correction: bool,
    /// The output layer has a bias.
    pub head_bias: bool,
}

/// Values of a norm: none, one or two for each of its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    /// No parameters.
    Bare,
    /// A weight.
    Weight,
    /// A weight and a bias.
    WeightAndBias,
}

/// Biases of the attention's projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bias {
    /// As `attention_bias`, `qkv_bias` and `use_qkv_bias` say; else none.
    Said,
    /// Queries, keys and values.
    Qkv,
    /// All four, unless the field says no.
    AllUnless(&'static str),
    /// All four, where the field says so; those of the MLP too.
    AllIf(&'static str),
    /// None, whatever is said.
    Never,
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    /// None.
    None,
    /// One of a head's width for each.
    Head,
    /// One of all heads' width for each.
    Wide,
    /// As `Head`, where `use_qk_norm` is true.
    HeadIfSaid,
    /// As `Wide`, where `use_qk_norm` is true.
    WideIfSaid,
}

/// How positions are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// Rotary: a table beside the weights.
    Rotary,
    /// An embedding, with so many entries more than positions.
    Learned(u64),
    /// Nothing is kept.
    None,
}

/// Which layers look back how far, where `layer_types` does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All layers see all tokens.
    Full,
    /// All layers have the window that the configuration names.
    Window,
    /// The window counts only with `use_sliding_window: true`.
    WindowIfUsed,
    /// Of so many layers the last sees all tokens, unless the field says otherwise.
    LastOf(u64, &'static str),
    /// Even layers have the window.
    EvenWindow,
    /// Of so many layers the last sees all tokens, the others their chunk.
    ChunksButLastOf(u64, &'static str),
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
    /// Lightning attention where `attn_type_list` is 0, or `layer_types` says linear.
    Lightning,
    /// Kimi's delta attention in the layers of `linear_attn_config.kda_layers`.
    Kimi,
    /// `hybrid_layer_pattern`: 1 for a windowed layer with heads of its own.
    MiMo,
    /// Gemma 4: global layers have heads of their own.
    Gemma4,
}

/// Which layers have experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Experts {
    /// All, where there are any; but for `first_k_dense_replace` and `moe_layer_freq`.
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
