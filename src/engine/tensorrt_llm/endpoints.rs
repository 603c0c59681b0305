//! Endpoints of `trtllm-serve`. vLLM has a `/version` too; the metrics' names distinguish them.

use super::log::iteration;
use crate::capture::Probe;
use crate::engine::ProbeFacts;
use crate::engine::endpoints::{Replies, text};
use crate::engine::prometheus::samples;
use serde_json::Value;

/// Reads the replies.
pub fn read(probes: &[Probe]) -> ProbeFacts {
    let mut facts = ProbeFacts::default();
    let replies = Replies(probes);
    if let Some(version) = replies.json("/version") {
        facts.engine_version = text(&version, "version");
    }
    if let Some(models) = replies.json("/v1/models") {
        let id = models.pointer("/data/0/id").and_then(Value::as_str);
        facts.served_model_name = id.map(str::to_owned);
        facts.model = id.map(str::to_owned);
    }
    // Not requested by plimsoll, but other captures may contain it.
    if let Some(body) = replies.json("/metrics") {
        if let Some(stats) = iteration(&body) {
            read_iteration(stats, &mut facts);
        }
    }
    if let Some(metrics) = replies.body("/prometheus/metrics") {
        read_metrics(metrics, &mut facts);
    }
    facts
}

fn read_iteration(stats: &Value, facts: &mut ProbeFacts) {
    let number = |pointer: &str| stats.pointer(pointer).and_then(Value::as_u64);
    facts.num_gpu_blocks = number("/kvCacheStats/maxNumBlocks");
    facts.block_size = number("/kvCacheStats/tokensPerBlock");
    let used = number("/kvCacheStats/usedNumBlocks");
    facts.kv_cache_usage = used
        .zip(facts.num_gpu_blocks.filter(|n| *n > 0))
        .map(|(used, all)| used as f64 / all as f64);
    facts.requests_running = number("/numActiveRequests");
    facts.requests_waiting = number("/numQueuedRequests");
    for key in ["gpuMemUsage", "cpuMemUsage", "pinnedMemUsage"] {
        if let Some(bytes) = number(&format!("/{key}")) {
            facts.values.insert(key.to_owned(), bytes.to_string());
        }
    }
}

fn read_metrics(metrics: &str, facts: &mut ProbeFacts) {
    for sample in samples(metrics) {
        let Some(name) = sample
            .name
            .strip_prefix("trtllm_")
            .or(sample.name.strip_prefix("trtllm:"))
        else {
            continue;
        };
        let count = (0.0..1e18)
            .contains(&sample.value)
            .then_some(sample.value as u64);
        match name {
            "kv_cache_utilization" if (0.0..=1.0).contains(&sample.value) => {
                facts.kv_cache_usage = Some(sample.value);
            }
            "kv_cache_max_blocks" => facts.num_gpu_blocks = count,
            "num_requests_running" => facts.requests_running = count,
            "num_requests_waiting" => facts.requests_waiting = count,
            "cache_config_info" => {
                facts.block_size = sample.label("block_size").and_then(|v| v.parse().ok());
                for (label, value) in &sample.labels {
                    facts.values.insert((*label).to_owned(), value.to_string());
                }
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
    fn a_server() {
        let facts = read(&[
            probe("/version", r#"{"version":"1.1.0"}"#),
            probe(
                "/v1/models",
                r#"{"object":"list","data":[{"id":"org/m","object":"model"}]}"#,
            ),
            probe(
                "/prometheus/metrics",
                "trtllm_kv_cache_utilization 0.25\ntrtllm_num_requests_running 3\ntrtllm_num_requests_waiting 1\ntrtllm_cache_config_info{block_size=\"32\"} 1\ntrtllm_kv_cache_max_blocks 900\nvllm:num_requests_running 9\n",
            ),
        ]);
        assert_eq!(facts.engine_version.as_deref(), Some("1.1.0"));
        assert_eq!(facts.model.as_deref(), Some("org/m"));
        assert_eq!(
            (facts.block_size, facts.num_gpu_blocks),
            (Some(32), Some(900))
        );
        assert_eq!(
            (facts.requests_running, facts.requests_waiting),
            (Some(3), Some(1))
        );
        assert_eq!(facts.kv_cache_usage, Some(0.25));
    }

    #[test]
    fn iterations_and_nothing() {
        let body = r#"[{"gpuMemUsage":1},{"gpuMemUsage":5000000000,"kvCacheStats":{"maxNumBlocks":800,"usedNumBlocks":200,"tokensPerBlock":64}}]"#;
        let facts = read(&[probe("/metrics", body)]);
        assert_eq!(
            (facts.num_gpu_blocks, facts.kv_cache_usage),
            (Some(800), Some(0.25))
        );
        assert_eq!(facts.values["gpuMemUsage"], "5000000000");
        assert_eq!(
            read(&[probe("/metrics", "[]"), probe("/version", "x")]),
            ProbeFacts::default()
        );
    }
}
