//! Endpoints of a running llama.cpp server. None of them reports device memory.

use crate::capture::Probe;
use crate::engine::ProbeFacts;
use crate::engine::endpoints::{Replies, text};
use crate::engine::prometheus::samples;
use serde_json::Value;

/// Paths to query. `/slots` can be switched off, `/metrics` has to be switched on.
pub const PATHS: &[&str] = &["/health", "/props", "/slots", "/v1/models", "/metrics"];

/// Reads the replies.
pub fn read(probes: &[Probe]) -> ProbeFacts {
    let mut facts = ProbeFacts::default();
    let replies = Replies(probes);
    if let Some(models) = replies.json("/v1/models") {
        let first = models.pointer("/data/0");
        facts.served_model_name = first.and_then(|m| text(m, "id"));
        if let Some(meta) = first.and_then(|m| m.get("meta")) {
            for (name, key) in [
                ("n_params", "n_params"),
                ("size", "model_size_bytes"),
                ("n_ctx_train", "n_ctx_train"),
            ] {
                if let Some(n) = meta.get(name).and_then(Value::as_u64) {
                    facts.values.insert(key.to_owned(), n.to_string());
                }
            }
        }
    }
    if let Some(props) = replies.json("/props") {
        facts.model = text(&props, "model_path");
        facts.engine_version = text(&props, "build_info");
        if let Some(alias) = text(&props, "model_alias") {
            facts.served_model_name.get_or_insert(alias);
        }
        // Of one slot.
        let n_ctx = props.pointer("/default_generation_settings/n_ctx");
        facts.max_model_len = n_ctx.and_then(Value::as_u64).filter(|n| *n > 0);
        if let Some(kind) = text(&props, "model_ftype").filter(|kind| super::is_quantized(kind)) {
            facts.values.insert("quantization".to_owned(), kind);
        }
        if let Some(n) = props.get("total_slots").and_then(Value::as_u64) {
            facts.values.insert("parallel".to_owned(), n.to_string());
        }
    }
    if let Some(Value::Array(slots)) = replies.json("/slots") {
        let busy = |s: &&Value| s.get("is_processing").and_then(Value::as_bool) == Some(true);
        if !slots.is_empty() {
            facts.requests_running = Some(slots.iter().filter(busy).count() as u64);
        }
        let first = slots.first().and_then(|s| s.get("n_ctx")?.as_u64());
        facts.max_model_len = facts.max_model_len.or(first);
    }
    for s in replies.body("/metrics").into_iter().flat_map(samples) {
        if !s.value.is_finite() || s.value < 0.0 {
            continue;
        }
        match s.name {
            "llamacpp:requests_processing" => facts.requests_running = Some(s.value as u64),
            "llamacpp:requests_deferred" => facts.requests_waiting = Some(s.value as u64),
            // Gone since 2025.
            "llamacpp:kv_cache_usage_ratio" => facts.kv_cache_usage = Some(s.value),
            _ => {}
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::reply as probe;

    #[test]
    fn a_real_server() {
        let f = read(&[
            probe(
                "/props",
                include_str!("../../../tests/fixtures/llama_cpp/props.json"),
            ),
            probe(
                "/slots",
                include_str!("../../../tests/fixtures/llama_cpp/slots.json"),
            ),
            probe(
                "/v1/models",
                include_str!("../../../tests/fixtures/llama_cpp/models.json"),
            ),
            probe("/metrics", "llamacpp:requests_deferred 2\n"),
        ]);
        assert_eq!(f.model.as_deref(), Some("tiny.gguf"));
        assert_eq!(
            (f.max_model_len, f.requests_running, f.requests_waiting),
            (Some(1024), Some(0), Some(2))
        );
        assert_eq!(f.values["parallel"], "2");
        for body in ["", "null", "[]", "{}", "<html>"] {
            let all: Vec<Probe> = PATHS.iter().map(|p| probe(p, body)).collect();
            assert_eq!(read(&all), ProbeFacts::default(), "{body}");
        }
    }
}
