//! Endpoints of a running vLLM, in the forms of all its releases.

use crate::capture::Probe;
use crate::engine::ProbeFacts;
use crate::engine::endpoints::{Replies, text};
use crate::engine::prometheus::{Sample, samples};
use std::collections::BTreeMap;

/// How an engine calls its metrics.
pub struct Names {
    /// In front of every name.
    pub prefix: &'static str,
    /// Whether the KV pool's size in bytes may be read from the requested settings.
    pub trust_kv_bytes: bool,
}

/// vLLM's own.
pub const VLLM: Names = Names {
    prefix: "vllm:",
    trust_kv_bytes: true,
};

/// Reads the replies.
pub fn read(probes: &[Probe], names: &Names) -> ProbeFacts {
    let mut facts = ProbeFacts::default();
    let replies = Replies(probes);
    if let Some(version) = replies.json("/version") {
        facts.engine_version = text(&version, "version");
    }
    if let Some(models) = replies.json("/v1/models") {
        read_models(&models, &mut facts);
    }
    if let Some(metrics) = replies.body("/metrics") {
        read_metrics(metrics, names, &mut facts);
    }
    facts
}

fn read_models(models: &serde_json::Value, facts: &mut ProbeFacts) {
    let Some(list) = models.get("data").and_then(|d| d.as_array()) else {
        return;
    };
    // Adapters are listed too, each with the model it sits on as its parent.
    let base = list
        .iter()
        .find(|m| m.get("parent").is_none_or(serde_json::Value::is_null))
        .or(list.first());
    let Some(base) = base else {
        return;
    };
    facts.served_model_name = text(base, "id");
    facts.model = text(base, "root").or_else(|| facts.served_model_name.clone());
    facts.max_model_len = base
        .get("max_model_len")
        .and_then(serde_json::Value::as_u64);
}

fn read_metrics(metrics: &str, names: &Names, facts: &mut ProbeFacts) {
    let mut configs: BTreeMap<String, Sample<'_>> = BTreeMap::new();
    let mut usage: BTreeMap<String, f64> = BTreeMap::new();
    let mut old_usage: BTreeMap<String, f64> = BTreeMap::new();
    let mut preemptions = Sum::default();
    let mut running = Sum::default();
    let mut waiting = Sum::default();
    for sample in samples(metrics) {
        let Some(name) = sample.name.strip_prefix(names.prefix) else {
            continue;
        };
        let engine = sample.label("engine").unwrap_or("0").to_owned();
        match name {
            "cache_config_info" => {
                configs.insert(engine, sample);
            }
            // The same fact under its new and its old name; some releases had both.
            "kv_cache_usage_perc" => {
                usage.insert(engine, sample.value);
            }
            "gpu_cache_usage_perc" => {
                old_usage.insert(engine, sample.value);
            }
            "num_preemptions_total" | "num_preemptions" => preemptions.add(sample.value),
            "num_requests_running" => running.add(sample.value),
            "num_requests_waiting" => waiting.add(sample.value),
            // Host memory that V0 swapped whole sequences to, and that of SimpleCPUOffloadConnector.
            "cpu_cache_usage_perc" | "num_requests_swapped" | "simple_kv_offload_used_blocks" => {
                facts
                    .values
                    .insert(name.to_owned(), sample.value.to_string());
            }
            "simple_kv_offload_info" => {
                if let Some(blocks) = sample.label("capacity_blocks") {
                    let name = "simple_kv_offload_capacity_blocks".to_owned();
                    facts.values.insert(name, blocks.to_owned());
                }
            }
            "engine_sleep_state" if sample.value == 1.0 => {
                if let Some(state) = sample.label("sleep_state") {
                    facts.values.insert(name.to_owned(), state.to_owned());
                }
            }
            _ => {}
        }
    }
    facts.preemptions = preemptions.count();
    facts.requests_running = running.count();
    facts.requests_waiting = waiting.count();
    read_configs(&configs, names, facts);
    let usage = if usage.is_empty() { &old_usage } else { &usage };
    facts.kv_cache_usage = share_in_use(usage, &configs);
}

/// A sum that is unknown until something was added.
#[derive(Default)]
struct Sum(Option<f64>);

impl Sum {
    fn add(&mut self, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.0 = Some(self.0.unwrap_or(0.0) + value);
        }
    }

    fn count(&self) -> Option<u64> {
        self.0.map(|v| v.round() as u64)
    }
}

fn read_configs(configs: &BTreeMap<String, Sample<'_>>, names: &Names, facts: &mut ProbeFacts) {
    // Data-parallel engines have a pool each, so pools add up; one that does not say its size
    // makes the sum unknown.
    let sum = |label: &str| -> Option<u64> {
        let mut total: Option<u64> = None;
        for config in configs.values() {
            let pool = number(config, label)?;
            total = Some(total.unwrap_or(0).saturating_add(pool));
        }
        total
    };
    facts.num_gpu_blocks = sum("num_gpu_blocks");
    facts.num_cpu_blocks = sum("num_cpu_blocks");
    facts.kv_cache_tokens = sum("kv_cache_size_tokens");
    // Set by the user, or by a backend that fixes its pool in bytes; blocks alone give no bytes.
    facts.kv_cache_bytes = if names.trust_kv_bytes {
        // Of a CPU's pool, older releases (0.11, 0.19) take its space and ignore the flag (seen in 0.19.1; 0.32 with the flag alone takes the flag).
        let space = sum("cpu_kvcache_space_bytes").filter(|b| *b > 0);
        space.or_else(|| sum("kv_cache_memory_bytes"))
    } else {
        None
    };
    let Some(first) = configs.values().next() else {
        return;
    };
    facts.block_size = number(first, "block_size");
    facts.kv_cache_dtype = known(first, "cache_dtype").map(str::to_owned);
    facts.gpu_memory_utilization =
        known(first, "gpu_memory_utilization").and_then(|v| v.parse().ok());
    for config in configs.values() {
        for (label, value) in &config.labels {
            let joined = facts.values.entry((*label).to_owned()).or_default();
            // Where engines differ, each one's value in the engines' order.
            if joined.is_empty() {
                *joined = value.to_string();
            } else if !joined.split(", ").any(|v| v == value) {
                *joined = format!("{joined}, {value}");
            }
        }
    }
}

/// A label's value unless it is Python's `None` (0.8.0 to 0.8.5 say so of `num_gpu_blocks`).
fn known<'a>(sample: &'a Sample<'_>, label: &str) -> Option<&'a str> {
    sample
        .label(label)
        .filter(|v| !v.is_empty() && *v != "None")
}

fn number(sample: &Sample<'_>, label: &str) -> Option<u64> {
    let text = known(sample, label)?;
    // Some labels went through a float: `2048.0`.
    text.parse().ok().or_else(|| {
        let value = text.parse::<f64>().ok()?;
        (value >= 0.0 && value < u64::MAX as f64).then_some(value as u64)
    })
}

/// Use of all pools together: each engine's share weighs as its pool does.
fn share_in_use(
    usage: &BTreeMap<String, f64>,
    configs: &BTreeMap<String, Sample<'_>>,
) -> Option<f64> {
    let (mut used, mut all) = (0.0, 0.0);
    for (engine, share) in usage.iter().filter(|(_, share)| share.is_finite()) {
        let weight = configs
            .get(engine)
            .and_then(|c| number(c, "num_gpu_blocks"))
            .unwrap_or(1)
            .max(1) as f64;
        used += share * weight;
        all += weight;
    }
    (all > 0.0).then(|| used / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::reply as probe;

    fn metrics(body: &str) -> ProbeFacts {
        read(&[probe("/metrics", body)], &VLLM)
    }

    #[test]
    fn a_real_server() {
        let facts = read(
            &[
                probe("/health", ""),
                probe(
                    "/version",
                    include_str!("../../../tests/fixtures/vllm/json/version.json"),
                ),
                probe(
                    "/v1/models",
                    include_str!("../../../tests/fixtures/vllm/json/v1-models.json"),
                ),
                probe(
                    "/metrics",
                    include_str!("../../../tests/fixtures/vllm/metrics/metrics-eager-idle.prom"),
                ),
                probe(
                    "/metrics",
                    include_str!("../../../tests/fixtures/vllm/metrics/metrics-after-bench.prom"),
                ),
                Probe {
                    path: "/version".into(),
                    status: Some(503),
                    ..Probe::default()
                },
            ],
            &VLLM,
        );
        assert_eq!(facts.engine_version.as_deref(), Some("0.32.0"));
        assert_eq!(facts.model.as_deref(), Some("/models/tiny-llama"));
        assert_eq!(facts.served_model_name.as_deref(), Some("tiny-llama"));
        assert_eq!(facts.max_model_len, Some(4096));
        assert_eq!(facts.block_size, Some(128));
        assert_eq!(facts.num_gpu_blocks, Some(4096));
        assert_eq!(facts.num_cpu_blocks, None);
        assert_eq!(facts.kv_cache_tokens, Some(524_288));
        assert_eq!(facts.kv_cache_bytes, Some(1 << 30));
        assert_eq!(facts.kv_cache_usage, Some(0.0));
        assert_eq!(facts.kv_cache_dtype.as_deref(), Some("auto"));
        assert_eq!(facts.gpu_memory_utilization, Some(0.92));
        assert_eq!(
            (
                facts.preemptions,
                facts.requests_running,
                facts.requests_waiting
            ),
            (Some(0), Some(0), Some(0))
        );
        assert_eq!(facts.values["prefix_caching_hash_algo"], "sha256");
        assert_eq!(facts.values["engine_sleep_state"], "awake");
    }

    #[test]
    fn v0_with_swap_space() {
        let facts = metrics(
            "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",gpu_memory_utilization=\"0.9\",num_cpu_blocks=\"4096\",num_gpu_blocks=\"27857\",sliding_window=\"None\",swap_space_bytes=\"4294967296\"} 1.0\n\
             vllm:num_requests_running{model_name=\"m\"} 2.0\nvllm:num_requests_swapped{model_name=\"m\"} 1.0\n\
             vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\nvllm:cpu_cache_usage_perc{model_name=\"m\"} 0.5\n\
             vllm:num_preemptions_total{model_name=\"m\"} 3.0\n",
        );
        assert_eq!(
            (facts.num_gpu_blocks, facts.num_cpu_blocks, facts.block_size),
            (Some(27857), Some(4096), Some(16))
        );
        assert_eq!((facts.kv_cache_bytes, facts.kv_cache_tokens), (None, None));
        assert_eq!(
            (facts.kv_cache_usage, facts.preemptions),
            (Some(0.25), Some(3))
        );
        assert_eq!(
            (facts.requests_running, facts.requests_waiting),
            (Some(2), None)
        );
        assert_eq!(facts.values["cpu_cache_usage_perc"], "0.5");
        assert_eq!(facts.values["swap_space_bytes"], "4294967296");
    }

    /// The gauges of 0.32's `v1/simple_kv_offload/metrics.py`.
    #[test]
    fn the_offloaded_pool_is_read() {
        let facts = metrics(
            "vllm:simple_kv_offload_info{engine=\"0\",model_name=\"m\",backend=\"cpu\",capacity_blocks=\"4096\"} 1.0\nvllm:simple_kv_offload_used_blocks{engine=\"0\",model_name=\"m\"} 12.0\n",
        );
        assert_eq!(facts.values["simple_kv_offload_capacity_blocks"], "4096");
        assert_eq!(facts.values["simple_kv_offload_used_blocks"], "12");
    }

    #[test]
    fn early_v1_does_not_know_its_blocks() {
        let facts = metrics(
            "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"None\"} 1.0\n",
        );
        assert_eq!((facts.num_gpu_blocks, facts.block_size), (None, Some(16)));
        assert_eq!(facts.values["num_gpu_blocks"], "None");
    }

    #[test]
    fn older_releases_call_the_pool_of_a_cpu_its_space() {
        let facts = metrics(
            "vllm:cache_config_info{block_size=\"128\",cpu_kvcache_space_bytes=\"1073741824\",num_gpu_blocks=\"4095\"} 1.0\n",
        );
        assert_eq!(facts.kv_cache_bytes, Some(1 << 30));
        let ignored = metrics(
            "vllm:cache_config_info{cpu_kvcache_space_bytes=\"1073741824\",kv_cache_memory_bytes=\"268435456\"} 1.0\n",
        );
        assert_eq!(ignored.kv_cache_bytes, Some(1 << 30));
        let gpu = metrics("vllm:cache_config_info{cpu_kvcache_space_bytes=\"None\"} 1.0\n");
        assert_eq!(gpu.kv_cache_bytes, None);
    }

    #[test]
    fn data_parallel_pools_add_up() {
        let facts = metrics(
            "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"300\",kv_cache_size_tokens=\"4800\",kv_cache_memory_bytes=\"1000\"} 1\n\
             vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"100\",kv_cache_size_tokens=\"1600\",kv_cache_memory_bytes=\"1000\"} 1\n\
             vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.1\n\
             vllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.1\n\
             vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 4\n",
        );
        assert_eq!(
            (
                facts.num_gpu_blocks,
                facts.kv_cache_tokens,
                facts.kv_cache_bytes
            ),
            (Some(400), Some(6400), Some(2000))
        );
        assert_eq!(facts.kv_cache_usage, Some(0.4));
        assert_eq!(facts.requests_running, Some(7));
        assert_eq!(facts.values["num_gpu_blocks"], "300, 100");
        assert_eq!(facts.values["engine"], "0, 1");
        let half = metrics(
            "vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"300\"} 1\nvllm:cache_config_info{engine=\"1\",num_gpu_blocks=\"None\"} 1\n",
        );
        assert_eq!(half.num_gpu_blocks, None);
    }

    #[test]
    fn adapters_are_not_the_model() {
        let body = r#"{"data":[{"id":"lora","root":"/l","parent":"base"},{"id":"base","root":"/m","parent":null,"max_model_len":8}]}"#;
        let facts = read(&[probe("/v1/models", body)], &VLLM);
        assert_eq!(
            (facts.model.as_deref(), facts.served_model_name.as_deref()),
            (Some("/m"), Some("base"))
        );
    }

    #[test]
    fn nonsense_is_unknown() {
        assert_eq!(read(&[], &VLLM), ProbeFacts::default());
        for body in [
            "",
            "null",
            "[]",
            "{\"data\":{}}",
            "{\"data\":[]}",
            "<html>",
            "vllm:num_requests_running NaN",
        ] {
            let probes = ["/version", "/v1/models", "/metrics"].map(|p| probe(p, body));
            assert_eq!(read(&probes, &VLLM), ProbeFacts::default(), "{body}");
        }
    }
}
