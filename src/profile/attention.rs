//! How many bytes a token takes in the KV cache, for models of plain attention.

use super::ModelInfo;
use super::checkpoint::element_bytes;
use serde_json::Value;
use std::collections::BTreeMap;

/// Parts of configuration keys that speak of a cache of another kind: latent, windowed, chunked,
/// shared between layers, of a state space, of an encoder. One that is switched off has no effect.
const OTHER_KINDS: &str = "kv_lora use_mla v_head_dim global_head_dim num_global index_topk \
    sliding_window attention_chunk global_attn full_attn full_attention linear_attn \
    linear_attention linear_num_ sparse_attn sparse_attention sparse_config blocksparse \
    compress_ratio attn_layer attn_type attn_config layers_block_type block_types block_configs \
    hybrid mamba ssm rwkv recurrent conv_l_cache kv_shared share_kv use_cla multi_query \
    is_encoder_decoder cross_attention";

/// 2 (key and value) × layers × KV heads × head size × bytes of the type, over all tensor-parallel
/// ranks of one engine. Where these are more than there are KV heads, every rank keeps one and some
/// are kept more than once. `None` where a figure is unknown, the heads cannot be shared out evenly,
/// or the model's attention is not known to be plain.
pub fn kv_bytes_per_token(
    files: &BTreeMap<String, String>,
    model: &ModelInfo,
    kv_dtype: Option<&str>,
    tensor_parallel: u64,
) -> Option<u64> {
    let Some(config) = files.get("config.json") else {
        // By figures that the user gave: of plain attention, as `estimate` takes them.
        return plain_bytes(model, model.num_kv_heads?, kv_dtype?, tensor_parallel);
    };
    let config: Value = serde_json::from_str(config).ok()?;
    let text = config.get("text_config");
    if ![Some(&config), text].into_iter().flatten().all(is_plain) {
        return None;
    }
    // Heads by layer, or under another name: the attention heads do not stand in for them.
    let text = text.unwrap_or(&config);
    let kv_heads = match text.get("num_key_value_heads") {
        None | Some(Value::Null) => model.num_heads,
        Some(_) => model.num_kv_heads,
    };
    plain_bytes(model, kv_heads?, kv_dtype?, tensor_parallel)
}

fn plain_bytes(
    model: &ModelInfo,
    kv_heads: u64,
    kv_dtype: &str,
    tensor_parallel: u64,
) -> Option<u64> {
    [
        model.num_layers?,
        heads_kept(kv_heads, tensor_parallel)?,
        model.head_dim?,
        kv_element_bytes(kv_dtype)?,
    ]
    .into_iter()
    .try_fold(2u64, u64::checked_mul)
}

/// KV heads that all ranks keep together; `None` where they cannot be shared out evenly.
fn heads_kept(kv_heads: u64, ranks: u64) -> Option<u64> {
    match ranks {
        0 | 1 => Some(kv_heads),
        _ if kv_heads % ranks == 0 => Some(kv_heads),
        _ if ranks % kv_heads == 0 => Some(ranks),
        _ => None,
    }
}

/// Whether no key of a configuration speaks of another kind of cache.
fn is_plain(config: &Value) -> bool {
    let Some(config) = config.as_object() else {
        return false;
    };
    let windowed = config.get("use_sliding_window") != Some(&Value::Bool(false));
    config.iter().all(|(key, value)| match key.as_str() {
        "layer_types" => is_off(value) || every_layer_is_full(value),
        "sliding_window" if !windowed => true,
        key => {
            let key = key.to_ascii_lowercase();
            is_off(value) || !OTHER_KINDS.split(' ').any(|kind| key.contains(kind))
        }
    })
}

fn every_layer_is_full(layers: &Value) -> bool {
    let full = |layer: &Value| layer.as_str() == Some("full_attention");
    layers.as_array().is_some_and(|all| all.iter().all(full))
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(true) => false,
    }
}

fn kv_element_bytes(dtype: &str) -> Option<u64> {
    match element_bytes(dtype) {
        Some(bytes) => bytes.try_into().ok(),
        None => {
            let dtype = dtype.trim_start_matches("torch.").to_ascii_lowercase();
            let one = dtype.starts_with("fp8") || dtype.starts_with("float8") || dtype == "int8";
            one.then_some(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a model with these keys beside those that every model has.
    fn bytes(keys: &str) -> Option<u64> {
        of(&format!(
            r#"{{"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, {keys}}}"#
        ))
    }

    fn of(config: &str) -> Option<u64> {
        on_ranks(config, 1)
    }

    fn on_ranks(config: &str, ranks: u64) -> Option<u64> {
        let files = BTreeMap::from([("config.json".to_owned(), config.to_owned())]);
        let model = ModelInfo::read_model_files(&files, None);
        kv_bytes_per_token(&files, &model, Some("torch.bfloat16"), ranks)
    }

    #[test]
    fn every_rank_keeps_a_head_where_there_are_fewer_heads_than_ranks() {
        let heads = |kv: u64| {
            format!(
                r#"{{"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "num_key_value_heads": {kv}}}"#
            )
        };
        let kept = |n: u64| Some(2 * 32 * n * 128 * 2);
        for (kv, ranks, expected) in [
            (8, 1, kept(8)),
            (8, 4, kept(8)),
            (8, 8, kept(8)),
            (8, 16, kept(16)),
            (2, 8, kept(8)),
            (1, 8, kept(8)),
            (6, 4, None),
            (0, 2, Some(0)),
        ] {
            assert_eq!(on_ranks(&heads(kv), ranks), expected, "{kv} on {ranks}");
        }
    }

    #[test]
    fn plain_attention_whatever_is_switched_off() {
        let plain = Some(2 * 32 * 8 * 128 * 2);
        let heads = r#""num_key_value_heads": 8"#;
        for off in [
            r#""vocab_size": 32000"#,
            r#""sliding_window": null"#,
            r#""sliding_window": 4096, "use_sliding_window": false, "max_window_layers": 28"#,
            r#""layer_types": ["full_attention", "full_attention"]"#,
            r#""is_encoder_decoder": false, "add_cross_attention": false, "cross_attention_hidden_size": null"#,
            r#""transformers_version": "4.52", "chunk_size_feed_forward": 0, "decoder_sparse_step": 1"#,
        ] {
            assert_eq!(bytes(&format!("{heads}, {off}")), plain, "{off}");
        }
        assert_eq!(bytes(r#""vocab_size": 1"#), Some(2 * 32 * 32 * 128 * 2));
        let tower = format!(
            r#"{{"text_config": {{"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, {heads}}}}}"#
        );
        assert_eq!(of(&tower), plain);
    }

    #[test]
    fn another_kind_of_cache_is_not_guessed() {
        for on in [
            r#""kv_lora_rank": 512, "sliding_window": null"#,
            r#""sliding_window": 4096"#,
            r#""sliding_window": 4096, "use_sliding_window": true"#,
            r#""sliding_window":4096"#,
            r#""sliding_window": null, "layer_types": ["linear_attention", "full_attention"]"#,
            r#""sliding_window": null, "mamba_d_state": 16"#,
            r#""ssm_cfg": {"layer": "Mamba2"}"#,
            r#""attn_layer_period": 8"#,
            r#""attn_type_list": [0, 1]"#,
            r#""linear_attn_config": {"head_dim": 128}"#,
            r#""hybrid_override_pattern": "M-M*-""#,
            r#""full_attention_interval": 4"#,
            r#""attention_chunk_size": 8192"#,
            r#""is_encoder_decoder": true"#,
            r#""cross_attention_layers": [3, 8]"#,
            r#""multi_query": true"#,
            r#""num_key_value_heads": [4, 8]"#,
        ] {
            assert_eq!(bytes(on), None, "{on}");
        }
        assert_eq!(of(r#"{"kv_lora_rank": 512, "text_config": {}}"#), None);
        assert_eq!(of("[]"), None);
        assert_eq!(of("no JSON"), None);
    }

    #[test]
    fn figures_that_no_model_has_are_unknown() {
        let huge = u64::MAX;
        assert_eq!(
            of(&format!(
                r#"{{"num_hidden_layers": {huge}, "num_attention_heads": 32, "hidden_size": 4096}}"#
            )),
            None
        );
    }
}
