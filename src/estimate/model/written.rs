//! Which fields a family's config.json always has: where one is missing, the file is not whole.

use super::config::View;
use super::families::{Family, Pattern};
use serde_json::Value;

/// Kinds whose classes take as many key and value heads as query heads where nothing is said, or say it in
/// another way (transformers, configuration_*.py).
const HEADS_BY_DEFAULT: &[&str] = &[
    "llama",
    "granite",
    "arcee",
    "yi",
    "baichuan",
    "internlm",
    "orion",
    "minicpm",
    "qwen",
    "stablelm",
    "olmo",
    "olmo2",
    "olmoe",
    "phi3",
    "cohere",
    "gpt2",
    "gpt_bigcode",
    "opt",
    "bloom",
    "gpt_neox",
    "gptj",
    "phi",
    "phi-msft",
    "falcon",
    "mpt",
    "dbrx",
    "nemotron-nas",
];

/// Kinds whose classes take a multiple of the model's width for their MLP's, or say it layer by layer.
const WIDTH_BY_DEFAULT: &[&str] = &[
    "gpt2",
    "gpt_bigcode",
    "gptj",
    "bloom",
    "mpt",
    "falcon",
    "phi-msft",
    "dbrx",
    "nemotron-nas",
];

/// Kinds whose experts are as wide as `intermediate_size` says.
const ONE_WIDTH: &[&str] = &[
    "mixtral",
    "granitemoe",
    "granitemoeshared",
    "phimoe",
    "gpt_oss",
    "jamba",
    "llama4",
    "llama4_text",
    "minimax_m2",
    "minimax_m3",
    "minimax_m3_vl",
    "minimax_text_01",
    "minimax_m1",
    "minimax",
    "olmoe",
    "dbrx",
];

/// Whether `num_key_value_heads` may be left out. Latent attention has none.
pub(super) fn may_lack_kv_heads(v: &View<'_>, family: &Family, kind: &str) -> bool {
    let latent = matches!(
        family.pattern,
        Pattern::Latent | Pattern::Kimi | Pattern::Compressed
    );
    latent || HEADS_BY_DEFAULT.contains(&kind) && !(kind == "llama" && is_llama_3(v))
}

/// Llama 3 and later have fewer key heads than query heads in every size; Llama 1 did not have the field.
fn is_llama_3(v: &View<'_>) -> bool {
    let scaling = v.part("rope_scaling").or_else(|| v.part("rope_parameters"));
    let scaled = scaling.is_some_and(|s| s.words(&["rope_type", "type"]) == Some("llama3"));
    let entries = v.value(&["vocab_size"]).and_then(Value::as_u64);
    scaled || entries == Some(128_256)
}

/// Whether the width of the MLP may be left out.
pub(super) fn may_lack_width(kind: &str) -> bool {
    WIDTH_BY_DEFAULT.contains(&kind)
}

/// Whether the experts' width is the MLP's.
pub(super) fn has_one_width(kind: &str) -> bool {
    ONE_WIDTH.contains(&kind)
}

/// The field that says how many experts there are, where others say that there are some.
pub(super) fn experts_field(v: &View<'_>, kind: &str) -> Option<&'static str> {
    let signs = [
        "moe_intermediate_size",
        "num_experts_per_tok",
        "num_experts_per_token",
        "first_k_dense_replace",
    ];
    let some = |name: &&str| {
        let n = v.value(&[name]).and_then(Value::as_u64);
        n.is_some_and(|n| n > 0)
    };
    signs.iter().find(|name| some(name))?;
    let routed = ["deepseek", "glm", "nemotron", "kimi_k2", "mimo"];
    let starts = |names: &[&str]| names.iter().any(|start| kind.starts_with(start));
    Some(match kind {
        _ if starts(&routed) => "n_routed_experts",
        _ if starts(&["step", "ernie"]) => "moe_num_experts",
        _ if has_one_width(kind) => "num_local_experts",
        _ => "num_experts",
    })
}
