//! The families that are known, as data: what each has that its config.json does not say.

use super::families::{Bias, Experts, Family, Norm, Pattern, Positions, QkNorm};

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
        kinds: &["deepseek_v4", "deepseek_ref"],
        pattern: Pattern::Compressed,
        ..DEEPSEEK
    },
    Family {
        kinds: &["mllama", "mllama_text_model"],
        pattern: Pattern::Crossed,
        ..LLAMA
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
