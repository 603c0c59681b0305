//! A model from a GGUF file's header: enough for keys and values, and its tensors as the file has them.

use super::gguf::Gguf;
use super::names::{self, Found};
use crate::estimate::model::{Predictor, RopeTables, Window};
use crate::estimate::{Mixer, Model, Tensor, Unknown};
use serde_json::{Map, Value, json};

/// Most layers that are believed.
const MOST_LAYERS: u64 = 4096;
/// Largest count or width that is believed.
const LARGEST: u64 = 1 << 32;

/// Settings under the architecture's name.
struct Settings<'a> {
    all: &'a Map<String, Value>,
    kind: &'a str,
}

impl Settings<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        self.all.get(&format!("{}.{key}", self.kind))
    }

    fn count(&self, key: &str) -> Option<u64> {
        let value = self.value(key)?;
        let one = value.as_u64().or_else(|| {
            let list = value.as_array()?;
            list.iter().filter_map(Value::as_u64).max()
        });
        one.filter(|n| *n <= LARGEST)
    }

    fn needed(&self, key: &str) -> Result<u64, Unknown> {
        self.count(key)
            .ok_or_else(|| Unknown::new(format!("the GGUF file lacks `{}.{key}`", self.kind)))
    }

    /// The setting of one layer, where each has its own.
    fn of_layer(&self, key: &str, layer: usize) -> Option<u64> {
        match self.value(key)? {
            Value::Array(list) => list.get(layer).and_then(Value::as_u64),
            one => one.as_u64(),
        }
        .filter(|n| *n <= LARGEST)
    }
}

/// The model that a file holds.
///
/// # Errors
///
/// A header without the architecture, or how many layers and heads there are.
pub fn model(file: &Gguf, name: &str, source: &str) -> Result<Model, Unknown> {
    let kind = file
        .settings
        .get("general.architecture")
        .and_then(Value::as_str)
        .ok_or_else(|| Unknown::new("the GGUF file lacks `general.architecture`"))?;
    let kind = kind.chars().take(64).collect::<String>();
    let s = Settings {
        all: &file.settings,
        kind: &kind,
    };
    let blocks = s.needed("block_count")?;
    // The last blocks may be for speculation.
    let layers = blocks.saturating_sub(s.count("nextn_predict_layers").unwrap_or(0));
    if layers == 0 || layers > MOST_LAYERS {
        return Err(Unknown::new(format!("the GGUF file has {layers} layers")));
    }
    let hidden = s.needed("embedding_length")?;
    let heads = s.count("attention.head_count").unwrap_or(0);
    let kv_heads = s.count("attention.head_count_kv").unwrap_or(heads);
    let plain = hidden.checked_div(heads).unwrap_or(0);
    let key = s.count("attention.key_length").unwrap_or(plain);
    let value = s.count("attention.value_length").unwrap_or(plain);
    let vocab = vocabulary(file, &s);
    let mixers = (0..layers as usize)
        .map(|layer| mixer(&s, layer, heads, key, value))
        .collect::<Result<Vec<_>, _>>()?;
    let max_positions = s.count("context_length");
    let tensors = tensors(file, layers);
    let tied = !tensors.iter().any(|t| t.role == "lm_head");
    let config = json!({
        "model_type": kind.clone(), "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": key,
        "vocab_size": vocab, "max_position_embeddings": max_positions,
        "num_experts": s.count("expert_count"),
    });
    Ok(Model {
        name: name.to_owned(),
        hidden,
        heads,
        kv_heads,
        head_dim: key,
        vocab,
        max_positions,
        lends_positions: false,
        tied,
        rope: max_positions.map(|positions| RopeTables {
            positions,
            dim: s.count("rope.dimension_count").unwrap_or(key),
            tables: 1,
            value_bytes: 2,
        }),
        mixers,
        tensors,
        experts_per_token: s.count("expert_used_count"),
        value_bytes: 2,
        predictor: Predictor::default(),
        quantization: None,
        config,
        unmodelled: Vec::new(),
        warnings: Vec::new(),
        source: source.to_owned(),
        kind,
    })
}

fn vocabulary(file: &Gguf, s: &Settings) -> u64 {
    let embedding = file.tensors.iter().find(|t| t.name == "token_embd.weight");
    let rows = embedding.and_then(|t| t.shape.first().copied());
    let list = || match file.settings.get("tokenizer.ggml.tokens")? {
        Value::Array(tokens) => Some(tokens.len() as u64),
        long => long.get("length").and_then(Value::as_u64),
    };
    rows.or_else(|| s.count("vocab_size"))
        .or_else(list)
        .unwrap_or(0)
}

/// What mixes tokens in a layer. Source: llama.cpp 2025, src/llama-hparams.cpp and llama-model.cpp.
fn mixer(s: &Settings, layer: usize, heads: u64, key: u64, value: u64) -> Result<Mixer, Unknown> {
    if let Some(rank) = s.count("attention.kv_lora_rank").filter(|r| *r > 0) {
        let rope = s.needed("rope.dimension_count")?;
        return Ok(Mixer::Latent {
            rank,
            rope,
            index: s.count("attention.indexer.key_length"),
        });
    }
    let kv_heads = s
        .of_layer("attention.head_count_kv", layer)
        .or_else(|| s.count("attention.head_count_kv"))
        .unwrap_or(heads);
    let recurrent = s.count("ssm.inner_size").filter(|inner| *inner > 0);
    let interval = s.count("full_attention_interval").filter(|i| *i > 0);
    let attends = match (recurrent, interval) {
        (None, _) => true,
        (Some(_), Some(interval)) => (layer as u64 + 1) % interval == 0,
        // Each layer has heads of its own, or none.
        (Some(_), None) => {
            matches!(s.value("attention.head_count_kv"), Some(Value::Array(_))) && kv_heads > 0
        }
    };
    if let (Some(inner), false) = (recurrent, attends) {
        return Ok(state(s, inner));
    }
    if kv_heads == 0 {
        return Ok(Mixer::None);
    }
    Ok(Mixer::Attention {
        kv_heads,
        key_dim: key,
        value_dim: value,
        window: window(s, layer),
        shares: s.count("attention.shared_kv_layers").is_some_and(|shared| {
            let all = s.count("block_count").unwrap_or(0);
            layer as u64 >= all.saturating_sub(shared)
        }),
    })
}

fn state(s: &Settings, inner: u64) -> Mixer {
    let conv = s.count("ssm.conv_kernel").unwrap_or(4);
    let state = s.count("ssm.state_size").unwrap_or(128);
    let rank = s.count("ssm.time_step_rank").unwrap_or(0);
    let groups = s.count("ssm.group_count").unwrap_or(0);
    let each = inner.checked_div(rank).unwrap_or(0);
    match s.kind {
        "qwen3next" | "qwen35" | "qwen35moe" => Mixer::DeltaNet {
            key_heads: groups,
            value_heads: rank,
            key_dim: state,
            value_dim: each,
            conv,
        },
        "mamba" | "jamba" => Mixer::Mamba1 { inner, state, conv },
        _ => Mixer::Mamba2 {
            heads: rank,
            head_dim: each,
            groups,
            state,
            conv,
        },
    }
}

/// The window of a layer: the file's pattern where it has one, else the architecture's.
fn window(s: &Settings, layer: usize) -> Option<Window> {
    let size = s.count("attention.sliding_window").filter(|w| *w > 0)?;
    let period = match s.value("attention.sliding_window_pattern") {
        Some(Value::Array(list)) => {
            let windowed = list.get(layer).and_then(Value::as_bool).unwrap_or(false);
            return windowed.then_some(Window::Sliding(size));
        }
        Some(one) => one.as_u64().unwrap_or(0),
        None => match s.kind {
            "gemma2" | "gpt-oss" => 2,
            "gemma3" => 6,
            "gemma3n" => 5,
            "cohere2" | "llama4" => 4,
            _ => 0,
        },
    };
    // The last of each period sees everything; without a period all layers have the window.
    let full = period > 0 && layer as u64 % period == period - 1;
    (!full).then_some(if s.kind == "llama4" {
        Window::Chunked(size)
    } else {
        Window::Sliding(size)
    })
}

/// The file's tensors as an estimate has them.
fn tensors(file: &Gguf, layers: u64) -> Vec<Tensor> {
    let mut made = Vec::new();
    for stored in &file.tensors {
        let Found::Here(place) = names::find(&stored.name, layers) else {
            continue;
        };
        let columns = stored.shape.last().copied().unwrap_or(1);
        let count = if place.expert && stored.shape.len() == 3 {
            stored.shape[0]
        } else {
            1
        };
        let rows = stored
            .values()
            .checked_div(columns.saturating_mul(count))
            .unwrap_or(0);
        let vector = stored.shape.len() < 2;
        made.push(Tensor {
            role: place.role,
            rows: if vector { columns } else { rows },
            columns: if vector { 1 } else { columns },
            count,
            layer: place.layer.and_then(|l| u32::try_from(l).ok()),
            split: place.split,
            quantizable: !vector && !matches!(place.role, "embed" | "lm_head" | "router"),
            float32: stored.dtype == "F32",
        });
    }
    made
}

#[cfg(test)]
mod tests {
    use super::super::gguf::{parse, tests::Maker};
    use super::*;

    #[test]
    fn a_file_has_heads_windows_and_tensors() {
        let bytes = Maker::new()
            .text("general.architecture", "gemma3")
            .number("gemma3.block_count", 12)
            .number("gemma3.embedding_length", 256)
            .number("gemma3.attention.head_count", 8)
            .number("gemma3.attention.head_count_kv", 4)
            .number("gemma3.attention.key_length", 64)
            .number("gemma3.attention.value_length", 64)
            .number("gemma3.attention.sliding_window", 512)
            .number("gemma3.context_length", 32768)
            .tensor("token_embd.weight", &[256, 1000], 12, 144_000)
            .tensor("blk.0.attn_q.weight", &[256, 512], 12, 73_728)
            .bytes();
        let model = model(&parse(&bytes, None).unwrap(), "x", "test").unwrap();
        assert_eq!(model.vocab, 1000);
        assert!(model.tied, "no output layer of its own");
        let windows = model.mixers.iter().filter(|m| {
            matches!(
                m,
                Mixer::Attention {
                    kv_heads: 4,
                    key_dim: 64,
                    window: Some(Window::Sliding(512)),
                    ..
                }
            )
        });
        assert_eq!(windows.count(), 10);
        assert_eq!(model.tensors[1].role, "qkv");
        assert_eq!(
            (model.tensors[1].rows, model.tensors[1].columns),
            (512, 256)
        );
    }

    #[test]
    fn latent_attention_and_states_are_distinguished() {
        let deepseek = Maker::new()
            .text("general.architecture", "deepseek2")
            .number("deepseek2.block_count", 27)
            .number("deepseek2.embedding_length", 2048)
            .number("deepseek2.attention.head_count", 16)
            .number("deepseek2.attention.kv_lora_rank", 512)
            .number("deepseek2.rope.dimension_count", 64)
            .bytes();
        let model_of = |bytes: &[u8]| model(&parse(bytes, None).unwrap(), "x", "test").unwrap();
        let latent = Mixer::Latent {
            rank: 512,
            rope: 64,
            index: None,
        };
        assert_eq!(model_of(&deepseek).mixers, vec![latent; 27]);
        let mamba = Maker::new()
            .text("general.architecture", "mamba2")
            .number("mamba2.block_count", 3)
            .number("mamba2.embedding_length", 2048)
            .number("mamba2.ssm.inner_size", 4096)
            .number("mamba2.ssm.time_step_rank", 64)
            .bytes();
        assert!(matches!(
            model_of(&mamba).mixers[0],
            Mixer::Mamba2 {
                heads: 64,
                head_dim: 64,
                ..
            }
        ));
    }

    #[test]
    fn a_file_without_its_layers_is_unknown() {
        let bytes = Maker::new().text("general.architecture", "llama").bytes();
        let unknown = model(&parse(&bytes, None).unwrap(), "x", "test").unwrap_err();
        assert!(unknown.what.contains("llama.block_count"), "{unknown}");
    }
}
