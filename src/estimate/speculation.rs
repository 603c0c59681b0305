//! Speculative decoding with what belongs to the model itself: its layers that predict further tokens, a head of one
//! layer that was trained for it, or a look-up of earlier tokens. A draft that is a model of its own: `draft`.

use super::{Deployment, EngineId, Mixer, Model};
use crate::estimate::arithmetic::{product, sum};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a deployment speculates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speculation {
    /// As it was asked for: `mtp`, `eagle3`, `ngram`.
    pub method: String,
    /// What proposes tokens.
    pub proposer: Proposer,
    /// Tokens that are proposed in a step.
    pub tokens: u64,
    /// A model that proposes is named beside it.
    pub names_model: bool,
}

/// What proposes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposer {
    /// The model's own layers for it (MTP, nextn).
    Predictor,
    /// A head of one layer (EAGLE): what it keeps of a token is the model's, its weights are as they usually are.
    Head,
    /// Earlier tokens (n-grams, suffixes), looked up on the host.
    Lookup,
}

/// Tokens that vLLM and SGLang propose by default with a model's own layers.
const TOKENS: u64 = 1;
/// The same of llama.cpp (common/arg.cpp of 2026, `--spec-draft-n-max`).
const LLAMA_TOKENS: u64 = 3;

/// The flags that name the model that proposes.
pub const MODELS: [&str; 2] = ["spec_model", "speculative_model"];
/// The flags that name the method, and those that say how many tokens.
pub const METHODS: [&str; 3] = ["spec_method", "speculative_algorithm", "spec_type"];
const COUNTS: [&str; 4] = [
    "spec_draft_n_max",
    "spec_tokens",
    "num_speculative_tokens",
    "speculative_num_draft_tokens",
];

impl Speculation {
    /// As an engine's settings ask for it; `None` where nothing is computed of the method. `config` is the value of
    /// `--speculative-config`.
    pub fn read(
        engine: EngineId,
        values: &BTreeMap<String, String>,
        config: &Value,
    ) -> Option<Speculation> {
        let flag = |names: &[&str]| names.iter().find_map(|name| values.get(*name)).cloned();
        let setting = |key: &str| config.get(key).filter(|v| !v.is_null());
        let method = setting("method")
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| flag(&METHODS))?;
        let known = method.to_ascii_lowercase();
        let proposer = match (engine, known.as_str()) {
            (EngineId::Vllm, "ngram" | "[ngram]" | "suffix") => Proposer::Lookup,
            (EngineId::Vllm, "eagle" | "eagle3") => Proposer::Head,
            (EngineId::Vllm, "mtp" | "nextn") => Proposer::Predictor,
            (EngineId::Vllm, name) if name.ends_with("_mtp") => Proposer::Predictor,
            (EngineId::Sglang, "mtp" | "nextn") => Proposer::Predictor,
            (EngineId::Sglang, "ngram") => Proposer::Lookup,
            // A list; a draft that is a model of its own is none of these.
            (EngineId::LlamaCpp, list) if list.split(',').all(|m| m.starts_with("ngram-")) => {
                Proposer::Lookup
            }
            (EngineId::LlamaCpp, "draft-mtp") => Proposer::Predictor,
            _ => return None,
        };
        let tokens = setting("num_speculative_tokens")
            .and_then(Value::as_u64)
            .or_else(|| flag(&COUNTS)?.trim().parse().ok());
        let usual = match engine {
            EngineId::LlamaCpp => LLAMA_TOKENS,
            _ => TOKENS,
        };
        Some(Speculation {
            method,
            proposer,
            names_model: setting("model").is_some() || flag(&MODELS).is_some(),
            // No model proposes as many as a file can name.
            tokens: tokens.unwrap_or(usual).clamp(1, 128),
        })
    }
}

/// Why vLLM (config/speculative.py) does not start: a head is a model of its own, and none is named.
pub(super) fn lacks_head(deployment: &Deployment) -> Option<String> {
    let asked = deployment.speculation.as_ref()?;
    let lacks = asked.proposer == Proposer::Head && !asked.names_model;
    lacks.then(|| {
        format!(
            "speculative decoding by `{}` needs a model for it: name its head in --speculative-config",
            asked.method
        )
    })
}

/// Tokens that are verified for each sequence of a step beside its own.
pub fn tokens(deployment: &Deployment) -> u64 {
    deployment.speculation.as_ref().map_or(0, |s| s.tokens)
}

/// The layers that propose with the model's own weights are loaded.
pub fn loads_predictor(deployment: &Deployment) -> bool {
    let speculation = deployment.speculation.as_ref();
    speculation.is_some_and(|s| s.proposer == Proposer::Predictor)
}

/// The layers that keep something of each token beside the model's: a head's attention is as the model's last one.
pub fn mixers(model: &Model, deployment: &Deployment) -> Vec<Mixer> {
    match deployment.speculation.as_ref().map(|s| s.proposer) {
        Some(Proposer::Predictor) => model.predictor.mixers.clone(),
        Some(Proposer::Head) => {
            let attends = |m: &&Mixer| {
                matches!(
                    m,
                    Mixer::Attention { shares: false, .. } | Mixer::Latent { .. }
                )
            };
            let last = model.mixers.iter().rev().find(attends).cloned();
            last.into_iter().map(without_window).collect()
        }
        _ => Vec::new(),
    }
}

/// Bytes of the weights of a draft's head on one GPU: the least, as it usually is, and the most; `None` where none is loaded.
///
/// Source: vLLM 0.33, models/llama_eagle3.py and llama_eagle.py: a layer that reads the embedding beside the hidden state (EAGLE 3)
/// and what joins the states of three layers, or of two. Its MLP's width and vocabulary are its own: as wide as the model's
/// dense ones, else four times its width, and 32,000 entries are usual. An embedding is shared where it is not another one.
pub fn head_bytes(model: &Model, deployment: &Deployment, value: u64) -> Option<[u64; 3]> {
    let asked = deployment.speculation.as_ref()?;
    if asked.proposer != Proposer::Head {
        return None;
    }
    let third = asked.method.ends_with('3');
    let (inputs, joined) = if third { (2, 3) } else { (1, 2) };
    let h = model.hidden;
    let queries = model.heads.saturating_mul(model.head_dim);
    let keys = product([model.kv_heads, model.head_dim, 2]);
    let attention = sum([
        product([queries.saturating_add(keys), inputs, h]),
        product([queries, h]),
    ]);
    let dense = model.tensors.iter().filter(|t| t.role == "down");
    let inner = dense.map(|t| t.columns).max();
    let own = inner.unwrap_or(h.saturating_mul(4));
    let entries = model.vocab.min(if third { 32_000 } else { 0 });
    let bytes = |inner: u64, entries: u64| {
        let split = sum([attention, product([inner, h, 3]), entries.saturating_mul(h)]);
        let whole = product([joined, h, h]);
        value.saturating_mul(split.div_ceil(deployment.tp.max(1)).saturating_add(whole))
    };
    let twice = model.vocab.saturating_mul(2);
    Some([
        bytes(own.min(h.saturating_mul(2)), 0),
        bytes(own, entries),
        bytes(own.max(h.saturating_mul(8)), twice),
    ])
}

fn without_window(mut mixer: Mixer) -> Mixer {
    if let Mixer::Attention { window, .. } = &mut mixer {
        *window = None;
    }
    mixer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use crate::estimate::{Component, Gpu, Version, estimate};
    use serde_json::json;

    /// The language model of Qwen3.6-27B: 16 layers of attention, 48 with a state, one that predicts.
    fn hybrid() -> Model {
        let config = json!({
            "model_type": "qwen3_5", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
            "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248_320,
            "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
            "max_position_embeddings": 262_144, "mtp_num_hidden_layers": 1, "torch_dtype": "bfloat16",
        });
        from_config("hybrid", &config, "test").unwrap()
    }

    fn deployment(engine: EngineId, method: Option<&str>) -> Deployment {
        let config = json!({"method": method, "num_speculative_tokens": 1});
        Deployment {
            speculation: Speculation::read(engine, &BTreeMap::new(), &config),
            version: Version::leading("0.20.0").filter(|_| engine == EngineId::Vllm),
            kv_dtype: Some("fp8".into()),
            max_model_len: Some(65_536),
            prefix_caching: Some(true),
            language_only: true,
            gpu: Some(Gpu {
                name: "H200".into(),
                total: 139 << 30,
                in_use: 0,
            }),
            ..Deployment::with_defaults(engine)
        }
    }

    #[test]
    fn tokens_are_as_an_engine_printed_them() {
        // vLLM 0.20 with one token ahead: 4.8 GiB, `GPU KV cache size: 36,432 tokens`, 1.82 times 65,536.
        let found = estimate(&hybrid(), &deployment(EngineId::Vllm, Some("mtp")));
        let layout = found.layout.unwrap();
        let pool = layout.pool((4.8 * f64::from(1 << 30)) as u64, Some(65_536));
        assert_eq!(pool.tokens, 36_432);
        let at_once = layout.concurrency(&pool, 65_536);
        assert!((1.81..1.83).contains(&at_once), "{at_once}");
    }

    #[test]
    fn layers_that_predict_are_loaded_only_where_they_propose() {
        let weights = |engine, method| {
            let found = estimate(&hybrid(), &deployment(engine, method));
            found.bytes(Component::Weights).unwrap() as f64 / f64::from(1 << 30)
        };
        let plain = weights(EngineId::Vllm, None);
        let with = weights(EngineId::Vllm, Some("qwen3_5_mtp"));
        // Attention with its gate, an MLP and the projection of two widths to one.
        let values = 5120.0 * (2.0 * 6144.0 + 2048.0 + 6144.0 + 3.0 * 17408.0 + 2.0 * 5120.0);
        let gib = values * 2.0 / f64::from(1 << 30);
        assert!((with - plain - gib).abs() < 0.01, "{with} {plain} {gib}");
        assert_eq!(weights(EngineId::Vllm, Some("ngram")), plain);
        // SGLang loads the embedding and the output layer again.
        let more = weights(EngineId::Sglang, Some("nextn")) - weights(EngineId::Sglang, None);
        assert!(more > gib + 4.7, "{more}");
    }

    #[test]
    fn a_head_keeps_its_part_of_each_token_and_its_weights_are_an_interval() {
        let mut asked = deployment(EngineId::Vllm, Some("eagle3"));
        asked.speculation.as_mut().unwrap().names_model = true;
        let found = estimate(&hybrid(), &asked);
        let plain = estimate(&hybrid(), &deployment(EngineId::Vllm, None));
        let per_token = |e: &crate::estimate::Estimate| e.kv_bytes_per_token.clone().unwrap();
        let more = per_token(&found) - per_token(&plain);
        assert_eq!(more, 2 * 4 * 256);
        assert_eq!(found.fits, Some(true));
        // A layer that reads two rows, what joins three, and 32,000 entries.
        let values =
            5120.0 * (2.0 * (6144.0 + 2048.0) + 6144.0 + 3.0 * 17408.0 + 3.0 * 5120.0 + 32_000.0);
        let term = |estimate: &crate::estimate::Estimate| {
            let of = |t: &&crate::estimate::Term| t.component == Component::Weights;
            estimate.terms.iter().find(of).cloned().unwrap()
        };
        let (with, without) = (term(&found), term(&plain));
        let head = with.bytes.unwrap() - without.bytes.unwrap();
        assert!((head as f64 - 2.0 * values).abs() < 1e7, "{head} {values}");
        // An embedding and an output layer of its own at most.
        let open = with.band.unwrap().high - without.band.unwrap().high - head;
        assert!(open > 2 * 5120 * (2 * 248_320 - 32_000), "{open}");
    }

    /// Llama 3.1 8B.
    fn llama() -> Model {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
            "max_position_embeddings": 131_072,
        });
        from_config("llama", &config, "test").unwrap()
    }

    #[test]
    fn a_head_is_as_large_as_those_that_are_published() {
        // yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: a layer of Llama 3.1 8B and 32,000 entries.
        let llama = llama();
        let of = |tp, method| {
            let asked = Deployment {
                tp,
                ..deployment(EngineId::Vllm, Some(method))
            };
            head_bytes(&llama, &asked, 2)
        };
        let [least, usual, most] = of(1, "eagle3").unwrap();
        assert_eq!(usual, 849_346_560);
        assert!(least < usual && usual < most);
        let [_, half, _] = of(2, "eagle3").unwrap();
        // What joins the states is whole on each.
        assert_eq!(2 * half - usual, 2 * 3 * 4096 * 4096);
        assert_eq!(of(1, "ngram"), None);
    }

    #[test]
    fn a_model_without_such_layers_is_not_answered() {
        let llama = llama();
        let found = estimate(&llama, &deployment(EngineId::Vllm, Some("mtp")));
        assert_eq!(found.fits, None);
        assert!(
            found.reason.contains("speculative decoding (mtp)"),
            "{}",
            found.reason
        );
    }
}
