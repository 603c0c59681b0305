//! Endpoints of a running SGLang, under the names of all its releases.

use crate::capture::Probe;
use crate::engine::ProbeFacts;
use crate::engine::endpoints::{Replies, text};
use crate::engine::prometheus::samples;
use crate::engine::sglang::log::server_args::ARGUMENTS;
use crate::units::GIB;
use serde_json::Value;

/// Paths to ask: the newer and the older name of each.
pub const PATHS: &[&str] = &[
    "/health",
    "/server_info",
    "/get_server_info",
    "/model_info",
    "/get_model_info",
    "/v1/models",
    "/metrics",
];

/// Reads the replies.
pub fn read(probes: &[Probe]) -> ProbeFacts {
    let mut facts = ProbeFacts::default();
    let replies = Replies(probes);
    if let Some(models) = replies.json("/v1/models") {
        let first = models.pointer("/data/0");
        facts.served_model_name = first.and_then(|m| text(m, "id"));
        facts.max_model_len = first.and_then(|m| m.get("max_model_len")?.as_u64());
    }
    if let Some(info) = replies
        .json("/model_info")
        .or_else(|| replies.json("/get_model_info"))
    {
        facts.model = text(&info, "model_path");
    }
    if let Some(info) = replies
        .json("/server_info")
        .or_else(|| replies.json("/get_server_info"))
    {
        server_info(&info, &mut facts);
    }
    if let Some(metrics) = replies.body("/metrics") {
        gauges(metrics, &mut facts);
    }
    facts
}

fn server_info(info: &Value, facts: &mut ProbeFacts) {
    facts.engine_version = text(info, "version");
    facts.model = text(info, "model_path").or(facts.model.take());
    facts.served_model_name = facts
        .served_model_name
        .take()
        .or_else(|| text(info, "served_model_name"));
    facts.block_size = info.get("page_size").and_then(Value::as_u64);
    facts.max_model_len = facts
        .max_model_len
        .or_else(|| info.get("context_length")?.as_u64());
    facts.kv_cache_dtype = text(info, "kv_cache_dtype");
    for (name, key) in ARGUMENTS {
        let value = match info.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(s)) => s.clone(),
            Some(other @ (Value::Bool(_) | Value::Number(_))) => other.to_string(),
            Some(_) => continue,
        };
        facts.values.insert(key.name().to_owned(), value);
    }
    // Data-parallel attention shares the tensor-parallel ranks out; it adds none.
    if facts.values.get("enable_dp_attention").map(String::as_str) == Some("true") {
        if let Some(size) = facts.values.remove("data_parallel_size") {
            facts.values.insert("dp_attention_size".to_owned(), size);
        }
    }
    // One state for each data-parallel group: that of its first rank.
    let states = info.get("internal_states").and_then(Value::as_array);
    let usages: Vec<&Value> = states
        .into_iter()
        .flatten()
        .filter_map(|s| s.get("memory_usage"))
        .collect();
    let sum = |key: &str| -> Option<f64> {
        let all: Option<Vec<f64>> = usages
            .iter()
            .map(|u| u.get(key)?.as_f64().filter(|v| *v >= 0.0))
            .collect();
        all.filter(|v| !v.is_empty()).map(|v| v.iter().sum())
    };
    facts.kv_cache_bytes = sum("kvcache").map(|gib| (gib * GIB) as u64);
    facts.kv_cache_tokens = sum("token_capacity")
        .map(|n| n as u64)
        .or_else(|| info.get("max_total_num_tokens")?.as_u64());
    let Some(first) = usages.first() else { return };
    for (name, key) in [
        ("weight", "weights_gib"),
        ("startup_available", "avail_at_start_gib"),
        ("token_capacity_swa", "swa_tokens"),
        ("cuda_graph", "cuda_graph_gib"),
        ("graph", "cuda_graph_gib"),
    ] {
        let figure = match first.get(name) {
            // By phase since 0.5.18.
            Some(Value::Object(phases)) => {
                let all: Option<Vec<f64>> = phases.values().map(Value::as_f64).collect();
                all.map(|v| v.iter().sum())
            }
            Some(value) => value.as_f64(),
            None => None,
        };
        if let Some(v) = figure {
            facts.values.insert(key.to_owned(), v.to_string());
        }
    }
}

fn gauges(metrics: &str, facts: &mut ProbeFacts) {
    let (mut usage, mut tokens, mut kv) = (Vec::new(), Vec::new(), Vec::new());
    for s in samples(metrics) {
        let Some(name) = s.name.strip_prefix("sglang:") else {
            continue;
        };
        // Where every rank exports, the first one counts for its group.
        let beyond = |label| s.label(label).is_some_and(|r| r != "0");
        if !s.value.is_finite() || s.value < 0.0 || beyond("tp_rank") || beyond("pp_rank") {
            continue;
        }
        let count = s.value as u64;
        match name {
            "token_usage" => usage.push(s.value),
            "max_total_num_tokens" => tokens.push(count),
            "kv_cache_memory_usage_gb" => kv.push(s.value),
            "num_running_reqs" => {
                facts.requests_running = Some(facts.requests_running.unwrap_or(0) + count);
            }
            "num_queue_reqs" => {
                facts.requests_waiting = Some(facts.requests_waiting.unwrap_or(0) + count);
            }
            // Retraction is its word: a request gives its tokens back and is computed again.
            "num_retracted_requests_total" => {
                facts.preemptions = Some(facts.preemptions.unwrap_or(0).saturating_add(count));
            }
            // Its caches on the host, and the places for adapters.
            "hicache_host_used_tokens"
            | "hicache_host_total_tokens"
            | "lora_pool_slots_used"
            | "lora_pool_slots_total" => {
                facts.values.insert(name.to_owned(), count.to_string());
            }
            "page_size" => facts.block_size = facts.block_size.or(Some(count)),
            "context_len" => facts.max_model_len = facts.max_model_len.or(Some(count)),
            "weight_memory_usage_gb" => {
                let value = facts.values.entry("weights_gib".to_owned());
                value.or_insert_with(|| s.value.to_string());
            }
            _ => {}
        }
    }
    if !usage.is_empty() {
        facts.kv_cache_usage = Some(usage.iter().sum::<f64>() / usage.len() as f64);
    }
    if facts.kv_cache_tokens.is_none() && !tokens.is_empty() {
        facts.kv_cache_tokens = Some(tokens.iter().sum());
    }
    if facts.kv_cache_bytes.is_none() && !kv.is_empty() {
        facts.kv_cache_bytes = Some((kv.iter().sum::<f64>() * GIB) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::reply as probe;

    #[test]
    fn memory_of_every_generation() {
        let body = |usage: &str| {
            format!(
                r#"{{"version":"0.5.9","model_path":"/m","tp_size":2,"api_key":"sk-x","mem_fraction_static":0.8,"internal_states":[{{"memory_usage":{usage}}}]}}"#
            )
        };
        for (usage, graph) in [
            (
                r#"{"weight":3.5,"kvcache":2.5,"token_capacity":4096,"cuda_graph":0.25}"#,
                "0.25",
            ),
            (
                r#"{"weight":3.5,"kvcache":2.5,"token_capacity":4096,"graph":0.25}"#,
                "0.25",
            ),
            (
                r#"{"weight":3.5,"kvcache":2.5,"token_capacity":4096,"graph":{"decode":0.25,"prefill":0.5}}"#,
                "0.75",
            ),
        ] {
            let f = read(&[probe("/get_server_info", &body(usage))]);
            assert_eq!(f.kv_cache_bytes, Some(5 << 29), "{usage}");
            assert_eq!(f.kv_cache_tokens, Some(4096));
            assert_eq!(f.values["cuda_graph_gib"], graph);
            assert_eq!(f.values["weights_gib"], "3.5");
            assert_eq!(f.values["tensor_parallel_size"], "2");
            assert_eq!(f.engine_version.as_deref(), Some("0.5.9"));
            assert!(!format!("{f:?}").contains("sk-x"));
        }
        let f = read(&[probe(
            "/metrics",
            "sglang:token_usage{tp_rank=\"0\"} 0.25\nsglang:token_usage{tp_rank=\"1\"} 0.9\nsglang:num_running_reqs 3\nsglang:max_total_num_tokens 100\nsglang:num_retracted_requests_total 2\n",
        )]);
        assert_eq!(
            (f.kv_cache_usage, f.requests_running, f.kv_cache_tokens),
            (Some(0.25), Some(3), Some(100))
        );
        assert_eq!(f.preemptions, Some(2));
        for body in ["", "null", "[]", "{\"internal_states\":[{}]}", "<html>"] {
            let all: Vec<Probe> = PATHS.iter().map(|p| probe(p, body)).collect();
            assert_eq!(read(&all), ProbeFacts::default(), "{body}");
        }
    }
}
