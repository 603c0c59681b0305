//! Memory of the host that a deployment takes for what does not lie on its GPUs: weights, caches, what it puts to sleep.

use super::{Deployment, EngineId, engines::vllm, settings::json_value, weights::Weights};
use crate::units::{Bytes, GIB};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is asked to lie in the host's memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostAsked {
    /// Weights of each GPU, bytes: vLLM's `--cpu-offload-gb`.
    pub weights: u64,
    /// Cache of each GPU, bytes: vLLM's `--swap-space`, SGLang's `--hicache-size`.
    pub cache: u64,
    /// Cache of all GPUs together, bytes: vLLM's `--kv-offloading-size`, or what its connector is given.
    pub shared_cache: u64,
    /// Cache of each GPU, as a multiple of its pool: SGLang's `--hicache-ratio`.
    pub times_pool: f64,
    /// Weights lie there while it sleeps: vLLM's `--enable-sleep-mode`, level 1.
    pub sleeps: bool,
}

/// One part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostPart {
    /// What it is: `weights kept on the host`.
    pub what: &'static str,
    /// Bytes, all GPUs of a replica together.
    pub bytes: u64,
}

/// SGLang's ratio of its cache on the host to the pool (0.5.23, `--hicache-ratio`).
const HICACHE_RATIO: f64 = 2.0;

impl HostAsked {
    /// The settings that are numbers, of GiB or, of the ratio, of pools.
    pub(super) const NUMBERS: [&str; 5] = [
        "cpu_offload_gb",
        "swap_space",
        "kv_offloading_size",
        "hicache_size",
        "hicache_ratio",
    ];

    /// As an engine's settings ask for it.
    pub fn read(engine: EngineId, values: &BTreeMap<String, String>) -> HostAsked {
        let number = |name: &str| {
            let value = values.get(name)?.trim().parse::<f64>().ok();
            value.filter(|n| n.is_finite() && *n > 0.0)
        };
        let is = |name| (values.get(name)).is_some_and(|v: &String| v.eq_ignore_ascii_case("true"));
        let gib = |name: &str| number(name).map_or(0, |n| (n * GIB) as u64);
        match engine {
            EngineId::Vllm => HostAsked {
                weights: gib("cpu_offload_gb"),
                cache: gib("swap_space"),
                // LMCache's server has a size of its own.
                shared_cache: match values.get("kv_offloading_backend").map(String::as_str) {
                    Some("lmcache") => 0,
                    _ => gib("kv_offloading_size").max(connector_bytes(values).unwrap_or(0)),
                },
                sleeps: is("enable_sleep_mode"),
                ..HostAsked::default()
            },
            EngineId::Sglang if is("enable_hierarchical_cache") || is("enable_hicache") => {
                // Its sizes are of 10^9 bytes.
                let cache = number("hicache_size").map_or(0, |n| (n * 1e9) as u64);
                let ratio = number("hicache_ratio").unwrap_or(HICACHE_RATIO);
                HostAsked {
                    cache,
                    times_pool: if cache > 0 { 0.0 } else { ratio },
                    ..HostAsked::default()
                }
            }
            _ => HostAsked::default(),
        }
    }
}

/// The bytes that vLLM's own connectors are given by `--kv-transfer-config` (0.32, `v1/kv_offload/cpu/spec.py`).
fn connector_bytes(values: &BTreeMap<String, String>) -> Option<u64> {
    let config = json_value(values, "kv_transfer_config");
    let connector = config["kv_connector"].as_str()?;
    let is_own = matches!(
        connector,
        "OffloadingConnector" | "SimpleCPUOffloadConnector"
    );
    let bytes = config["kv_connector_extra_config"]["cpu_bytes_to_use"].as_u64();
    bytes.filter(|_| is_own)
}

/// The weights that stay on a GPU: vLLM moves parameters of layers to the host, whole ones, until the asked bytes are there
/// (vLLM 0.19, model_executor/models/utils.py, `maybe_offload_to_cpu`).
pub(super) fn keep(mut weights: Weights, deployment: &Deployment) -> Weights {
    let outside = ["embed", "lm_head", "rope", "vision", "rounding", "lora"];
    let layers = weights.parts.iter().filter(|p| !outside.contains(&p.role));
    let movable: u64 = layers.map(|p| p.bytes).fold(0, u64::saturating_add);
    let moved = deployment.host.weights.min(movable);
    weights.bytes -= moved.min(weights.bytes);
    weights.band.low = weights.band.low.saturating_sub(moved);
    weights.band.high = weights.band.high.saturating_sub(moved);
    weights.on_host = weights.on_host.saturating_add(moved);
    weights
}

/// The parts of it, all GPUs of a replica together.
pub(super) fn of(
    deployment: &Deployment,
    weights: Option<&Weights>,
    pool: Option<u64>,
) -> Vec<HostPart> {
    let asked = &deployment.host;
    let gpus = deployment.gpus();
    let each = |bytes: u64| bytes.saturating_mul(gpus);
    // V1 swaps nothing.
    let swaps = deployment.engine != EngineId::Vllm || vllm::is_v0(deployment);
    let cache = if swaps { asked.cache } else { 0 };
    let times = (pool.unwrap_or(0) as f64 * asked.times_pool) as u64;
    let asleep = weights.filter(|_| asked.sleeps).map_or(0, |w| w.bytes);
    let on_host = weights.map_or(0, |w| w.on_host);
    let parts = [
        ("weights kept on the host", each(on_host)),
        ("cache kept on the host", each(cache.saturating_add(times))),
        // Reported of vLLM 0.2x: 1.92 times what was asked for, as shared memory (vllm#53042).
        (
            "cache kept on the host, of all GPUs; up to twice as much was reported, as shared memory",
            asked.shared_cache,
        ),
        ("weights while it sleeps", each(asleep)),
    ];
    let taken = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
    taken
        .map(|(what, bytes)| HostPart { what, bytes })
        .collect()
}

impl HostPart {
    /// A sentence without a full stop.
    pub(super) fn sentence(&self) -> String {
        format!(
            "{} of the host's memory are needed: {}",
            Bytes(self.bytes),
            self.what
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::estimate::model::from_config;
    use crate::estimate::settings::IllegalValue;
    use crate::estimate::{Component, Deployment, EngineId, Gpu, estimate};
    use serde_json::json;
    use std::collections::BTreeMap;

    fn found(engine: EngineId, flags: &[(&str, &str)]) -> crate::estimate::Estimate {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
            "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
        });
        let model = from_config("llama", &config, "test").unwrap();
        let values: BTreeMap<String, String> = flags
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let (mut deployment, _) =
            Deployment::from_settings(engine, &values, &values, IllegalValue::IsRefused).unwrap();
        deployment.gpu = Some(Gpu {
            name: "RTX 4090".into(),
            total: 23 << 30,
            in_use: 0,
        });
        estimate(&model, &deployment)
    }

    #[test]
    fn weights_on_the_host_leave_room_for_the_cache() {
        let plain = found(EngineId::Vllm, &[]);
        let moved = found(EngineId::Vllm, &[("cpu_offload_gb", "4")]);
        let bytes = |e: &crate::estimate::Estimate, c| e.bytes(c).unwrap();
        let four = 4u64 << 30;
        assert_eq!(
            bytes(&plain, Component::Weights),
            bytes(&moved, Component::Weights) + four
        );
        assert_eq!(
            bytes(&moved, Component::KvCache),
            bytes(&plain, Component::KvCache) + four
        );
        assert_eq!((moved.host.len(), moved.host[0].bytes), (1, four));
        assert!(moved.unmodelled.is_empty(), "{:?}", moved.unmodelled);
        // No more than the layers are.
        let all = found(EngineId::Vllm, &[("cpu_offload_gb", "400")]);
        assert!(all.host[0].bytes < 15 << 30 && bytes(&all, Component::Weights) > 1 << 30);
    }

    #[test]
    fn caches_on_the_host_are_counted_beside_the_gpu() {
        let two = found(
            EngineId::Vllm,
            &[
                ("tensor_parallel_size", "2"),
                ("kv_offloading_size", "8"),
                ("swap_space", "1"),
            ],
        );
        let bytes: Vec<u64> = two.host.iter().map(|p| p.bytes >> 30).collect();
        // Nothing is swapped by V1.
        assert_eq!(bytes, [8]);
        // The same by the connector itself; what LMCache's server keeps has another size.
        let connector = r#"{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"cpu_bytes_to_use":3221225472}}"#;
        let by_connector = found(EngineId::Vllm, &[("kv_transfer_config", connector)]);
        assert_eq!(by_connector.host[0].bytes, 3 << 30);
        let lmcache = found(
            EngineId::Vllm,
            &[
                ("kv_offloading_size", "8"),
                ("kv_offloading_backend", "lmcache"),
            ],
        );
        assert!(lmcache.host.is_empty(), "{:?}", lmcache.host);
        let ratio = found(
            EngineId::Sglang,
            &[
                ("enable_hierarchical_cache", "true"),
                ("mem_fraction_static", "0.85"),
            ],
        );
        assert_eq!(
            ratio.host[0].bytes,
            2 * ratio.bytes(Component::KvCache).unwrap()
        );
    }
}
