//! Memory that a GPU shares with its host: what an engine's share leaves to the operating system and to the engine's own
//! processes, against what machines of the kind were seen to need.

use super::{Component, Deployment, EngineId, Estimate, engines, pool::Layout};
use crate::catalog::GpuModel;
use crate::units::{Bytes, GIB};

/// Judges what is left to the host, on machines of a kind that was measured.
pub(super) fn judge_rest(estimate: &mut Estimate, deployment: &Deployment) {
    let Some((fits, reason)) = rest_verdict(estimate, deployment) else {
        return;
    };
    estimate.warnings.push(reason.clone());
    if estimate.fits != Some(false) {
        (estimate.fits, estimate.reason) = (fits, reason);
    }
}

/// Whether what is left to the host lets it fit, and why; `None` where that decides nothing.
fn rest_verdict(
    estimate: &mut Estimate,
    deployment: &Deployment,
) -> Option<(Option<bool>, String)> {
    let model = engines::gpu_model(deployment)?;
    let (shared, gpu) = (model.shares_host?, deployment.gpu.as_ref()?);
    let (least, stopped) = (shared.least?, shared.stopped?);
    refuse_only_by_weights(estimate, model);
    // SGLang's share is of what is free, and ends lower; what the others take is their terms.
    let by_share = deployment.engine == EngineId::Vllm && deployment.kv_cache_memory.is_none();
    let keeps_nothing = estimate.layout.as_ref().is_ok_and(Layout::keeps_nothing);
    let share = estimate.budget.filter(|_| by_share && !keeps_nothing);
    let taken = share.or(estimate.total.as_ref().ok().copied())?;
    let rest = gpu.total.saturating_sub(taken);
    let gib = |figure: f64| (figure * GIB) as u64;
    let left = format!("{} are left for the host", Bytes(rest));
    if rest < gib(least) {
        let what = "which shares its memory with the GPU and took";
        Some((Some(false), format!("{left}, {what} {least} GiB at least")))
    } else if rest <= gib(stopped) {
        let evidence = format!("machines with up to {stopped} GiB left have stopped");
        Some((None, format!("{left}: {evidence}")))
    } else {
        None
    }
}

/// The largest share of a GPU, in hundredths, that leaves its host more than machines of the kind stopped with; `None`
/// where it shares no memory, or none of the kind was measured.
pub fn safe_share(deployment: &Deployment) -> Option<f64> {
    let stopped = engines::gpu_model(deployment)?.shares_host?.stopped?;
    let total = deployment.gpu.as_ref()?.total as f64 / GIB;
    let share = (1.0 - stopped / total) * 100.0;
    Some(share.floor() / 100.0).filter(|share| *share > 0.0)
}

/// Terms other than weights are those of cards: one machine served with a pool where they leave none.
fn refuse_only_by_weights(estimate: &mut Estimate, model: &GpuModel) {
    let weights = estimate.bytes(Component::Weights);
    let budget = estimate.budget.unwrap_or(u64::MAX);
    if estimate.fits == Some(false) && weights.is_some_and(|bytes| bytes < budget) {
        let why = std::mem::take(&mut estimate.reason);
        estimate.fits = None;
        estimate.reason = format!(
            "{why} by what cards of other kinds need; {} was measured too seldom to refuse it",
            model.name
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::estimate::model::from_config;
    use crate::estimate::{Deployment, EngineId, Gpu, estimate};
    use serde_json::json;

    #[test]
    fn a_share_that_starves_the_host_does_not_fit() {
        let config = json!({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
            "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
        });
        let model = from_config("llama", &config, "test").unwrap();
        let deployment = |name: &str, fraction| {
            let gib = |g: f64| (g * f64::from(1 << 30)) as u64;
            Deployment {
                memory_fraction: Some(fraction),
                version: crate::estimate::Version::leading("0.20.0"),
                gpu: Some(Gpu {
                    name: name.into(),
                    total: gib(121.69),
                    in_use: gib(11.32),
                }),
                ..Deployment::with_defaults(EngineId::Vllm)
            }
        };
        let on = |name: &str, fraction| estimate(&model, &deployment(name, fraction));
        let starved = on("NVIDIA GB10", 0.93);
        assert_eq!(starved.fits, Some(false), "{}", starved.reason);
        assert!(
            starved.reason.contains("left for the host"),
            "{}",
            starved.reason
        );
        // Machines were seen to serve and to stop with it.
        assert_eq!(on("NVIDIA GB10", 0.8).fits, None);
        assert_eq!(on("NVIDIA GB10", 0.89).fits, None);
        assert_eq!(on("NVIDIA GB10", 0.55).fits, Some(true));
        assert_eq!(
            on("B200", 0.89).fits,
            Some(true),
            "one with memory of its own"
        );
        // The terms of cards leave no pool; a machine of this kind may have one.
        let least = on("NVIDIA GB10", 0.13);
        assert_eq!(least.fits, None, "{}", least.reason);
        assert_eq!(on("NVIDIA GB10", 0.1).fits, Some(false), "weights alone");
        let asked = deployment("NVIDIA GB10", 0.89);
        assert_eq!(super::safe_share(&asked), Some(0.69));
        assert_eq!(on("NVIDIA GB10", 0.69).fits, Some(true));
        assert_eq!(super::safe_share(&deployment("B200", 0.89)), None);
    }
}
