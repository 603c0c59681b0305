//! Endpoints of a running TGI: `/info` of every release since 0.9, and `/metrics`.

use super::log::{info_key, is_info};
use crate::capture::Probe;
use crate::engine::ProbeFacts;
use crate::engine::endpoints::Replies;
use crate::engine::prometheus::samples;
use serde_json::{Map, Value};

/// Reads the replies.
pub fn read(probes: &[Probe]) -> ProbeFacts {
    let mut facts = ProbeFacts::default();
    let replies = Replies(probes);
    if let Some(Value::Object(info)) = replies.json("/info") {
        read_info(&info, &mut facts);
    }
    if let Some(metrics) = replies.body("/metrics") {
        read_metrics(metrics, &mut facts);
    }
    facts
}

/// Several engines answer on `/info`; only TGI's answer is read.
fn read_info(info: &Map<String, Value>, facts: &mut ProbeFacts) {
    if !is_info(info) {
        return;
    }
    let text = |key: &str| info.get(key).and_then(Value::as_str).map(str::to_owned);
    facts.engine_version = text("version");
    facts.model = text("model_id");
    facts.max_model_len = info.get("max_total_tokens").and_then(Value::as_u64);
    for (name, value) in info {
        let value = match value {
            Value::String(v) => v.clone(),
            Value::Number(v) => v.to_string(),
            Value::Bool(v) => v.to_string(),
            _ => continue,
        };
        if name != "version" {
            facts.values.insert(info_key(name).to_owned(), value);
        }
    }
}

/// None of its gauges is memory. The router's capacity in tokens is not the pool's size: it is a
/// default for a model that cannot report it. The room left in a batch is not the pool's usage
/// either.
fn read_metrics(metrics: &str, facts: &mut ProbeFacts) {
    for sample in samples(metrics) {
        let Some(name) = sample.name.strip_prefix("tgi_") else {
            continue;
        };
        let value = sample.value;
        if !(0.0..1e18).contains(&value) {
            continue;
        }
        match name {
            "batch_current_size" => facts.requests_running = Some(value as u64),
            "queue_size" => facts.requests_waiting = Some(value as u64),
            "batch_max_total_tokens" => {
                let tokens = (value as u64).to_string();
                facts
                    .values
                    .insert("max_batch_total_tokens".to_owned(), tokens);
            }
            "batch_current_max_tokens" => {
                let tokens = (value as u64).to_string();
                facts.values.insert(name.to_owned(), tokens);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::reply as probe;

    #[test]
    fn info_of_two_eras() {
        let old = r#"{"model_id":"org/m","model_dtype":"torch.bfloat16","model_device_type":"cuda","max_best_of":2,"max_input_length":1024,"max_total_tokens":2048,"max_batch_total_tokens":77000,"version":"1.4.0"}"#;
        let facts = read(&[probe("/info", old)]);
        assert_eq!(facts.engine_version.as_deref(), Some("1.4.0"));
        assert_eq!(facts.max_model_len, Some(2048));
        assert_eq!(facts.values["dtype"], "torch.bfloat16");
        assert_eq!(facts.values["max_input_tokens"], "1024");
        assert_eq!(facts.values["max_batch_total_tokens"], "77000");
        assert_eq!(facts.kv_cache_tokens, None);
        let new = r#"{"model_id":"org/m","router":"text-generation-router","max_input_tokens":4095,"max_total_tokens":4096,"version":"3.3.1"}"#;
        let facts = read(&[probe("/info", new)]);
        assert_eq!(facts.values["max_input_tokens"], "4095");
    }

    #[test]
    fn gauges_and_other_engines() {
        let metrics = "# TYPE tgi_queue_size gauge\ntgi_queue_size 3\ntgi_batch_current_size 2\ntgi_batch_max_total_tokens 77000\ntgi_batch_current_max_tokens NaN\nother 1\n";
        let facts = read(&[probe("/metrics", metrics)]);
        assert_eq!(
            (facts.requests_running, facts.requests_waiting),
            (Some(2), Some(3))
        );
        assert_eq!(facts.values["max_batch_total_tokens"], "77000");
        assert_eq!(facts.kv_cache_usage, None);
        let other = read(&[probe("/info", r#"{"model_id":"m","max_total_tokens":9}"#)]);
        assert_eq!(other, ProbeFacts::default());
    }
}
