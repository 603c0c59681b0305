//! Endpoints of a running Ollama. `size_vram` is an estimate up to 0.11, a sum of allocations in
//! its new engine, and read from its runner's log since 0.30; never by GPU.

use crate::capture::Probe;
use crate::engine::ProbeFacts;
use crate::engine::endpoints::{Replies, text};
use serde_json::Value;

/// Paths to ask. The first one SGLang does not answer.
pub const PATHS: &[&str] = &["/api/version", "/api/ps", "/api/tags", "/v1/models"];

/// Reads the replies.
pub fn read(probes: &[Probe]) -> ProbeFacts {
    let mut facts = ProbeFacts::default();
    let replies = Replies(probes);
    facts.engine_version = replies
        .json("/api/version")
        .and_then(|v| text(&v, "version"));
    let list = |path: &str| match replies.json(path)?.get_mut("models")?.take() {
        Value::Array(models) => Some(models),
        _ => None,
    };
    let loaded = list("/api/ps").unwrap_or_default();
    let known = list("/api/tags").unwrap_or_default();
    // The loaded model; else the only one that it could load.
    let model = match (loaded.as_slice(), known.as_slice()) {
        ([first, ..], _) => Some(first),
        ([], [only]) => Some(only),
        _ => None,
    };
    if let Some(model) = model {
        facts.model = text(model, "name").or_else(|| text(model, "model"));
        facts.served_model_name = facts.model.clone();
        for key in ["parameter_size", "quantization_level", "family"] {
            if let Some(value) = model.get("details").and_then(|d| text(d, key)) {
                facts.values.insert(key.to_owned(), value);
            }
        }
    }
    if let [first, ..] = loaded.as_slice() {
        facts.max_model_len = first.get("context_length").and_then(Value::as_u64);
        let sum = |key: &str| -> Option<u64> {
            let all = loaded.iter().map(|m| m.get(key)?.as_u64());
            all.sum()
        };
        // Only loaded models take memory.
        for (name, key) in [("size", "size_bytes"), ("size_vram", "size_vram_bytes")] {
            if let Some(bytes) = sum(name) {
                facts.values.insert(key.to_owned(), bytes.to_string());
            }
        }
        let count = loaded.len().to_string();
        facts.values.insert("models_loaded".to_owned(), count);
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::reply as probe;

    #[test]
    fn what_is_loaded() {
        let f = read(&[
            probe("/api/version", r#"{"version":"0.13.5"}"#),
            probe(
                "/api/ps",
                r#"{"models":[{"name":"a:1b","size":10,"size_vram":7,"context_length":4096,"details":{"quantization_level":"Q4_K_M"}},{"name":"b","size":5,"size_vram":5}]}"#,
            ),
        ]);
        assert_eq!(f.engine_version.as_deref(), Some("0.13.5"));
        assert_eq!(
            (f.model.as_deref(), f.max_model_len),
            (Some("a:1b"), Some(4096))
        );
        assert_eq!(
            (
                f.values["size_vram_bytes"].as_str(),
                f.values["models_loaded"].as_str()
            ),
            ("12", "2")
        );
        let f = read(&[
            probe("/api/ps", r#"{"models":[]}"#),
            probe("/api/tags", r#"{"models":[{"name":"a"}]}"#),
        ]);
        assert_eq!((f.model.as_deref(), f.values.len()), (Some("a"), 0));
        for body in ["", "null", "[]", "{\"models\":3}", "<html>"] {
            let all: Vec<Probe> = PATHS.iter().map(|p| probe(p, body)).collect();
            assert_eq!(read(&all), ProbeFacts::default(), "{body}");
        }
    }
}
