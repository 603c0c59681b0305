//! vLLM's runner that pools: embeddings, scores and classes of a text that is read once, instead of tokens.
//!
//! Read in vLLM 0.11.0, 0.20.0 and 0.33.0: config/model.py (`_get_default_runner_type`, `attn_type`), v1/engine/core.py
//! (`_initialize_kv_caches`: without layers that keep something nothing is profiled), v1/worker/gpu_model_runner.py
//! (`_dummy_pooler_run`), config/vllm.py (graphs in pieces alone).

use super::engines::vllm;
use super::kv::text_value;
use super::settings::json_value;
use super::{Deployment, Mixer, Model, Version};
use serde_json::Value;
use std::collections::BTreeMap;

/// The first release whose rules were read: the V0 engine had a runner of its own for it.
const SINCE: Version = Version::new(0, 11, 0);

/// Ends of an architecture's name and whether it pools, the first that fits (`_SUFFIX_TO_DEFAULTS`; before it what the
/// registry has under `ChatGLMModel`).
const ENDS: [(&str, bool); 13] = [
    ("ChatGLMModel", false),
    ("ForCausalLM", false),
    ("ForConditionalGeneration", false),
    ("ChatModel", false),
    ("LMHeadModel", false),
    ("ForMaskedLM", true),
    ("ForTextEncoding", true),
    ("ForSequenceClassification", true),
    ("ForTokenClassification", true),
    ("ClassificationModel", true),
    ("ForRewardModeling", true),
    ("RewardModel", true),
    ("Model", true),
];

/// Whether a model embeds or scores by its own configuration, or because it is asked to.
pub fn is_asked(model: &Model, deployment: &Deployment) -> bool {
    let names = text_value(&model.config, "architectures").and_then(Value::as_array);
    let pools = |name: &str| {
        let end = ENDS.iter().find(|(end, _)| name.ends_with(end));
        end.is_some_and(|(_, pools)| *pools)
    };
    let mut names = (names.into_iter().flatten()).filter_map(Value::as_str);
    let own = || names.any(pools) || reads_whole(model);
    deployment.pools.unwrap_or_else(own)
}

/// Whether it runs by rules that were read.
pub fn is_computed(model: &Model, deployment: &Deployment) -> bool {
    vllm::is_from(deployment, SINCE) && is_asked(model, deployment)
}

/// Whether nothing of a token is kept: attention in both directions, for which vLLM makes no cache.
pub fn keeps_nothing(model: &Model, deployment: &Deployment) -> bool {
    let flag = |name| text_value(&model.config, name).and_then(Value::as_bool);
    let both_ways =
        flag("is_causal") == Some(false) || flag("use_bidirectional_attention") == Some(true);
    (reads_whole(model) || both_ways) && is_computed(model, deployment)
}

/// No layer keeps anything: an encoder of texts.
fn reads_whole(model: &Model) -> bool {
    !model.mixers.is_empty() && model.mixers.iter().all(|m| *m == Mixer::None)
}

/// Whether vLLM's flags ask for it; `None` where the model decides.
pub fn of_flags(values: &BTreeMap<String, String>) -> Option<bool> {
    let value = |name: &str| values.get(name).map(|v| v.trim());
    let overrides = json_value(values, "hf_overrides");
    let names = overrides.get("architectures").and_then(Value::as_array);
    let mut names = names.into_iter().flatten().filter_map(Value::as_str);
    let scores = names.any(|n| n.ends_with("ForSequenceClassification"));
    match (value("runner"), value("task"), value("convert")) {
        (Some("pooling"), ..) => Some(true),
        (Some("generate"), ..) | (_, Some("generate"), _) => Some(false),
        (_, Some("embed" | "embedding" | "score" | "classify" | "reward"), _) => Some(true),
        (_, _, Some("embed" | "classify" | "reward")) => Some(true),
        _ => scores.then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use crate::estimate::{Component, EngineId, Estimate, Gpu, estimate};
    use serde_json::json;

    const GIB: u64 = 1 << 30;

    /// BAAI/bge-m3.
    fn encoder() -> Model {
        let config = json!({
            "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024,
            "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 250_002,
            "type_vocab_size": 1, "max_position_embeddings": 8194, "torch_dtype": "float32",
        });
        from_config("bge-m3", &config, "test").unwrap()
    }

    /// Qwen3-Embedding-0.6B, with an output layer of its own.
    fn decoder(architecture: &str) -> Model {
        let config = json!({
            "model_type": "qwen3", "architectures": [architecture], "hidden_size": 1024, "intermediate_size": 3072,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 28,
            "vocab_size": 151_669, "max_position_embeddings": 32_768, "torch_dtype": "bfloat16",
        });
        from_config("qwen3", &config, "test").unwrap()
    }

    fn on(gib: u64, version: &str, flags: &[(&str, &str)]) -> Deployment {
        let flags = flags
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Deployment {
            version: Version::leading(version),
            pools: of_flags(&flags.collect()),
            gpu: Some(Gpu {
                name: "NVIDIA L4".into(),
                total: gib * GIB,
                in_use: 0,
            }),
            ..Deployment::with_defaults(EngineId::Vllm)
        }
    }

    fn sum(found: &Estimate) -> u64 {
        found.terms.iter().map(|t| *t.bytes.as_ref().unwrap()).sum()
    }

    #[test]
    fn attention_in_both_directions_keeps_no_cache_and_no_share_bounds_it() {
        let found = estimate(&encoder(), &on(22, "0.33.0", &[]));
        assert_eq!(found.bytes(Component::KvCache), Some(0));
        assert_eq!(
            (found.fits, found.total.clone()),
            (Some(true), Ok(sum(&found)))
        );
        // BGE-base printed 1.36 GiB of graphs on an RTX 5090 with vLLM 0.28.
        let mut terms = found.terms.iter();
        let graphs = terms.find(|t| t.component == Component::CudaGraphs);
        let high = graphs.and_then(|t| t.band.as_ref()).unwrap().high;
        assert!(high > GIB * 4 / 3, "{high}");
        // As many requests as a step has, each as long as the longest.
        assert_eq!(found.max_concurrency, Ok(256.0));
        assert_eq!(found.settings.batched_tokens, 8194);
        assert_eq!(
            estimate(&encoder(), &on(22, "0.11.0", &[]))
                .settings
                .batched_tokens,
            8194
        );
        // A share of 0.1 starts: nothing is sized by it. A GPU of 1 GiB holds the weights and nothing beside them.
        let small = Deployment {
            memory_fraction: Some(0.1),
            ..on(12, "0.33.0", &[])
        };
        assert_eq!(estimate(&encoder(), &small).fits, Some(true));
        assert_eq!(
            estimate(&encoder(), &on(1, "0.33.0", &[])).fits,
            Some(false)
        );
    }

    #[test]
    fn older_releases_and_other_engines_are_not_computed() {
        let old = estimate(&encoder(), &on(22, "0.9.0", &[]));
        assert_eq!(old.fits, None);
        assert!(old.reason.contains("a runner that pools"), "{}", old.reason);
        let other = Deployment {
            engine: EngineId::Sglang,
            version: None,
            ..on(22, "0.33.0", &[])
        };
        assert_eq!(estimate(&encoder(), &other).fits, None);
    }

    #[test]
    fn a_decoder_that_pools_has_a_cache_and_neither_sampler_nor_output_layer() {
        let plain = estimate(&decoder("Qwen3ForCausalLM"), &on(22, "0.33.0", &[]));
        // Without what a start that compiles holds, which has the same table.
        let activation = |architecture, flags| {
            let eager = Deployment {
                eager: Some(true),
                ..on(22, "0.33.0", flags)
            };
            let found = estimate(&decoder(architecture), &eager);
            found.bytes(Component::Activation).unwrap()
        };
        for (architecture, flags) in [
            ("Qwen3ForSequenceClassification", &[][..]),
            ("Qwen3ForCausalLM", &[("runner", "pooling")][..]),
            ("Qwen3ForCausalLM", &[("task", "embed")][..]),
            (
                "Qwen3ForCausalLM",
                &[(
                    "hf_overrides",
                    r#"{"architectures": ["Qwen3ForSequenceClassification"]}"#,
                )][..],
            ),
        ] {
            let found = estimate(&decoder(architecture), &on(22, "0.33.0", flags));
            assert_eq!(
                (found.fits, found.unmodelled.len()),
                (Some(true), 0),
                "{flags:?}"
            );
            let less = |part| plain.bytes(part).unwrap() - found.bytes(part).unwrap();
            assert_eq!(less(Component::Weights) >> 20, (151_680 * 1024 * 2) >> 20);
            let sampler = activation("Qwen3ForCausalLM", &[]) - activation(architecture, flags);
            assert!(sampler > GIB / 4);
            assert!(found.bytes(Component::KvCache) > plain.bytes(Component::KvCache));
        }
        // It attends in both directions where its configuration says so.
        let mut both = decoder("Qwen3Model");
        both.config["is_causal"] = false.into();
        assert_eq!(
            estimate(&both, &on(22, "0.33.0", &[])).bytes(Component::KvCache),
            Some(0)
        );
        let generates = on(22, "0.33.0", &[("runner", "generate")]);
        assert!(!is_asked(&decoder("Qwen3Model"), &generates));
    }
}
