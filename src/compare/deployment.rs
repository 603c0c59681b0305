//! How a profiled engine was deployed, in the estimator's words: settings in force, else asked for.

use super::settings::{self, Settings};
use crate::breakdown::Component;
use crate::capture::DeviceKind;
use crate::estimate::settings as estimator;
use crate::estimate::{Deployment, Gpu, Lora, Unknown, Version};
use crate::profile::Profile;

/// How the engine of this profile was deployed. What is not told is left to the engine's default.
///
/// # Errors
/// An engine whose rules are not known.
pub fn deployment_of(profile: &Profile) -> Result<Deployment, Unknown> {
    let name = profile.engine_metadata.engine_type.as_str();
    let engine = estimator::engine(name)
        .ok_or_else(|| Unknown::new(format!("no rules are known of the engine `{name}`")))?;
    let settings = settings::of(profile);
    let text = |name: &str| settings.get(name).map(|v| v.trim().to_owned());
    let count = |name: &str| text(name)?.parse::<u64>().ok();
    let size = |name: &str| count(name).filter(|n| *n > 0).unwrap_or(1);
    let fraction = [
        "gpu_memory_utilization",
        "mem_fraction_static",
        "free_gpu_memory_fraction",
        "kv_cache_free_gpu_memory_fraction",
        "cuda_memory_fraction",
    ];
    let tp = ["tensor_parallel_size", "tp_size", "num_shard"].map(size);
    let ep = match flag(&settings, "enable_expert_parallel") {
        Some(true) => tp.iter().copied().max().unwrap_or(1),
        _ => size("expert_parallel_size"),
    };
    Ok(Deployment {
        version: profile
            .engine_metadata
            .engine_version
            .as_deref()
            .and_then(Version::leading),
        gpu: gpu_of(profile),
        tp: tp.into_iter().max().unwrap_or(1),
        pp: size("pipeline_parallel_size"),
        ep,
        dp: size("data_parallel_size"),
        dcp: size("decode_context_parallel_size"),
        dtype: text("weights_dtype").or_else(|| text("dtype")),
        quantization: text("quantization").filter(|q| !q.eq_ignore_ascii_case("none")),
        kv_dtype: text("kv_cache_dtype"),
        max_model_len: count("max_model_len"),
        memory_fraction: fraction
            .iter()
            .find_map(|name| text(name)?.parse::<f64>().ok())
            .filter(|f| *f > 0.0 && *f <= 1.0),
        max_batched_tokens: count("max_num_batched_tokens"),
        max_seqs: count("max_num_seqs"),
        block_size: count("block_size"),
        eager: flag(&settings, "enforce_eager"),
        lora: flag(&settings, "enable_lora")
            .filter(|on| *on)
            .map(|_| Lora {
                rank: count("max_lora_rank").unwrap_or(16),
                slots: count("max_loras").unwrap_or(1),
            }),
        kv_cache_memory: count("kv_cache_memory_bytes"),
        flashinfer_sampler: flag(&settings, "VLLM_USE_FLASHINFER_SAMPLER"),
        on_cpu: (profile.gpu_info.devices.iter()).all(|d| d.kind != DeviceKind::Gpu),
        vllm_v0: flag(&settings, "VLLM_USE_V1").map(|v1| !v1),
        ..Deployment::of(engine)
    })
}

/// The load where it is known exactly how much of it is in flight at once: sequences, and tokens of
/// each at its end. Only the latency bench sends whole batches.
pub fn batch_of(profile: &Profile) -> Option<(u64, u64)> {
    let load = &profile.parameters.workload;
    let exact = profile.parameters.bench == "latency" && load.input_len > 0;
    let tokens = u64::from(load.input_len) + u64::from(load.output_len);
    exact.then_some((u64::from(load.batch_size?), tokens))
}

/// A flag in any of its spellings.
fn flag(settings: &Settings, name: &str) -> Option<bool> {
    match settings.get(name)?.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The GPU on which others held most: there the engine has least room.
fn gpu_of(profile: &Profile) -> Option<Gpu> {
    let gpus = profile.gpu_info.devices.iter();
    let others = |index: u32| {
        let devices = &profile.memory_breakdown.per_gpu;
        let device = devices.iter().find(|d| d.gpu_id == index)?;
        let part = |c| {
            device
                .parts
                .iter()
                .find(|p| p.component == c)
                .map_or(0, |p| p.bytes)
        };
        u64::try_from(part(Component::Baseline)).ok()
    };
    gpus.filter(|d| d.kind == DeviceKind::Gpu)
        .filter_map(|d| {
            Some(Gpu {
                name: d.name.clone(),
                total: d.total_bytes?,
                in_use: others(d.index).unwrap_or(0),
            })
        })
        .max_by_key(|gpu| gpu.in_use)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_engines_write_them() {
        for (text, version) in [
            ("0.11.0", Some((0, 11, 0))),
            ("v0.5.5.post1", Some((0, 5, 5))),
            ("0.19.1rc1.dev3+g1234", Some((0, 19, 1))),
            ("1.0rc2", Some((1, 0, 0))),
            ("0.8", Some((0, 8, 0))),
            ("b5432", None),
            ("", None),
            ("99999999999.1.1", None),
        ] {
            let expected = version.map(|(a, b, c)| Version::new(a, b, c));
            assert_eq!(Version::leading(text), expected, "{text}");
        }
    }
}
