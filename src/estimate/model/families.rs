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

/// Llama, and what most others start from.
const LLAMA: Family = Family {
    kinds: &[],
    tied: false,
    always_tied: false,
    norm: Norm::Weight,
    norms: 2,
    bias: Bias::Said,
    bias_output: false,
    qk_norm: QkNorm::None,
    gated: true,
    mlp_bias: false,
    output_gate: false,
    positions: Positions::Rotary,
    pattern: Pattern::Full,
    experts: Experts::FirstDense,
    correction: false,
    head_bias: false,
};

/// GPT-2 and its like.
const GPT: Family = Family {
    norm: Norm::WeightAndBias,
    bias: Bias::AllUnless(""),
    gated: false,
    mlp_bias: true,
    ..LLAMA
};

const QWEN3: Family = Family {
    qk_norm: QkNorm::Head,
    pattern: Pattern::WindowIfUsed,
    experts: Experts::Step,
    ..LLAMA
};

const DEEPSEEK: Family = Family {
    pattern: Pattern::Latent,
    correction: true,
    ..LLAMA
};

/// All that are known.
const FAMILIES: &[Family] = &[
    Family {
        kinds: &["llama", "granite", "granitemoe", "arcee"],
        bias_output: true,
        ..LLAMA
    },
    Family {
        kinds: &[
            "yi",
            "internlm2",
            "internlm3",
            "minicpm",
            "mixtral",
            "granitemoeshared",
        ],
        ..LLAMA
    },
    Family {
        kinds: &["seed_oss"],
        ..LLAMA
    },
    Family {
        kinds: &["mistral", "ministral3", "phi3"],
        pattern: Pattern::Window,
        ..LLAMA
    },
    Family {
        kinds: &["baichuan"],
        ..LLAMA
    },
    Family {
        kinds: &["internlm"],
        bias: Bias::AllUnless("bias"),
        ..LLAMA
    },
    Family {
        kinds: &["orion"],
        norm: Norm::WeightAndBias,
        ..LLAMA
    },
    Family {
        kinds: &["smollm3"],
        tied: true,
        ..LLAMA
    },
    Family {
        kinds: &["chatglm"],
        ..LLAMA
    },
    Family {
        kinds: &["glm"],
        ..LLAMA
    },
    Family {
        kinds: &["glm4"],
        norms: 4,
        ..LLAMA
    },
    Family {
        kinds: &["qwen"],
        bias: Bias::Qkv,
        ..LLAMA
    },
    Family {
        kinds: &[
            "mimo",
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen2_5_omni_text",
        ],
        bias: Bias::Qkv,
        pattern: Pattern::WindowIfUsed,
        experts: Experts::Step,
        ..LLAMA
    },
    Family {
        kinds: &[
            "qwen3",
            "qwen3_moe",
            "qwen3_vl",
            "qwen3_vl_text",
            "qwen3_vl_moe",
            "qwen3_vl_moe_text",
            "qwen3_omni_moe_text",
        ],
        ..QWEN3
    },
    Family {
        kinds: &[
            "qwen3_next",
            "qwen3_5",
            "qwen3_5_text",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
        ],
        output_gate: true,
        pattern: Pattern::DeltaNet,
        ..QWEN3
    },
    Family {
        kinds: &["stablelm"],
        norm: Norm::WeightAndBias,
        ..LLAMA
    },
    Family {
        kinds: &["olmo"],
        norm: Norm::Bare,
        ..LLAMA
    },
    Family {
        kinds: &["olmo2", "olmoe", "olmo3"],
        qk_norm: QkNorm::Wide,
        ..LLAMA
    },
    Family {
        kinds: &["gemma"],
        tied: true,
        always_tied: true,
        ..LLAMA
    },
    Family {
        kinds: &["gemma2"],
        tied: true,
        always_tied: true,
        norms: 4,
        pattern: Pattern::EvenWindow,
        ..LLAMA
    },
    Family {
        kinds: &["gemma3", "gemma3_text"],
        tied: true,
        norms: 4,
        qk_norm: QkNorm::Head,
        pattern: Pattern::LastOf(6, "sliding_window_pattern"),
        ..LLAMA
    },
    Family {
        kinds: &["gemma4", "gemma4_text"],
        tied: true,
        norms: 4,
        qk_norm: QkNorm::Head,
        pattern: Pattern::Gemma4,
        experts: Experts::Beside,
        ..LLAMA
    },
    Family {
        kinds: &["cohere"],
        tied: true,
        always_tied: true,
        norms: 1,
        bias: Bias::Never,
        qk_norm: QkNorm::WideIfSaid,
        ..LLAMA
    },
    Family {
        kinds: &["cohere2"],
        tied: true,
        always_tied: true,
        norms: 1,
        qk_norm: QkNorm::WideIfSaid,
        pattern: Pattern::LastOf(4, "sliding_window_pattern"),
        ..LLAMA
    },
    Family {
        kinds: &["gpt2"],
        tied: true,
        always_tied: true,
        positions: Positions::Learned(0),
        ..GPT
    },
    Family {
        kinds: &["gpt_bigcode"],
        tied: true,
        positions: Positions::Learned(0),
        ..GPT
    },
    Family {
        kinds: &["opt"],
        tied: true,
        bias: Bias::AllUnless("enable_bias"),
        positions: Positions::Learned(2),
        ..GPT
    },
    Family {
        kinds: &["bloom"],
        tied: true,
        always_tied: true,
        positions: Positions::None,
        ..GPT
    },
    Family {
        kinds: &["gpt_neox"],
        ..GPT
    },
    Family {
        kinds: &["gptj"],
        norms: 1,
        bias: Bias::Never,
        head_bias: true,
        ..GPT
    },
    Family {
        kinds: &["phi", "phi-msft"],
        norms: 1,
        head_bias: true,
        ..GPT
    },
    Family {
        kinds: &["falcon"],
        tied: true,
        bias: Bias::AllIf("bias"),
        mlp_bias: false,
        ..GPT
    },
    Family {
        kinds: &["starcoder2"],
        tied: true,
        bias: Bias::AllUnless("use_bias"),
        pattern: Pattern::Window,
        ..GPT
    },
    Family {
        kinds: &["mpt"],
        tied: true,
        always_tied: true,
        norm: Norm::Weight,
        bias: Bias::Never,
        gated: false,
        positions: Positions::None,
        ..LLAMA
    },
    Family {
        kinds: &["nemotron"],
        norm: Norm::WeightAndBias,
        gated: false,
        ..LLAMA
    },
    Family {
        kinds: &["dbrx"],
        ..LLAMA
    },
    Family {
        kinds: &["phimoe"],
        norm: Norm::WeightAndBias,
        bias_output: true,
        ..LLAMA
    },
    Family {
        kinds: &["gpt_oss"],
        bias: Bias::AllUnless("attention_bias"),
        pattern: Pattern::EvenWindow,
        ..LLAMA
    },
    Family {
        kinds: &["ernie4_5"],
        ..LLAMA
    },
    Family {
        kinds: &["ernie4_5_moe"],
        experts: Experts::Range,
        correction: true,
        ..LLAMA
    },
    Family {
        kinds: &["deepseek"],
        ..LLAMA
    },
    Family {
        kinds: &["deepseek_v2", "minicpm3"],
        pattern: Pattern::Latent,
        ..LLAMA
    },
    Family {
        kinds: &[
            "deepseek_v3",
            "deepseek_v32",
            "kimi_k2",
            "glm_moe_dsa",
            "glm4_moe_lite",
        ],
        ..DEEPSEEK
    },
    Family {
        kinds: &["kimi_linear"],
        pattern: Pattern::Kimi,
        ..DEEPSEEK
    },
    Family {
        kinds: &["glm4_moe"],
        qk_norm: QkNorm::HeadIfSaid,
        correction: true,
        ..LLAMA
    },
    Family {
        kinds: &["minimax_m2"],
        qk_norm: QkNorm::Wide,
        correction: true,
        ..LLAMA
    },
    Family {
        kinds: &["minimax_m3", "minimax_m3_vl"],
        qk_norm: QkNorm::HeadIfSaid,
        correction: true,
        ..LLAMA
    },
    Family {
        kinds: &["minimax_text_01", "minimax_m1", "minimax"],
        pattern: Pattern::Lightning,
        ..LLAMA
    },
    Family {
        kinds: &["llama4", "llama4_text"],
        pattern: Pattern::ChunksButLastOf(4, "no_rope_layer_interval"),
        experts: Experts::Interleaved,
        ..LLAMA
    },
    Family {
        kinds: &["nemotron-nas"],
        pattern: Pattern::Blocks,
        ..LLAMA
    },
    Family {
        kinds: &["nemotron_h"],
        gated: false,
        positions: Positions::None,
        pattern: Pattern::NemotronH,
        ..LLAMA
    },
    Family {
        kinds: &["jamba"],
        positions: Positions::None,
        pattern: Pattern::Jamba,
        experts: Experts::Period,
        ..LLAMA
    },
    Family {
        kinds: &["bamba"],
        pattern: Pattern::Bamba,
        ..LLAMA
    },
    Family {
        kinds: &["mamba", "falcon_mamba"],
        tied: true,
        norms: 1,
        positions: Positions::None,
        pattern: Pattern::Mamba1,
        ..LLAMA
    },
    Family {
        kinds: &["mamba2"],
        norms: 1,
        positions: Positions::None,
        pattern: Pattern::Mamba2,
        ..LLAMA
    },
    Family {
        kinds: &["mimo_v2_flash"],
        pattern: Pattern::MiMo,
        correction: true,
        ..LLAMA
    },
    Family {
        kinds: &["step3p5", "step3p7"],
        qk_norm: QkNorm::Head,
        correction: true,
        ..LLAMA
    },
];

/// The family that is called so.
pub(super) fn family(kind: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.kinds.contains(&kind))
}

/// Every `model_type` that is known.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|f| f.kinds.iter().copied())
}
