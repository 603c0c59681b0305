//! Settings that make a deployment fit, or that give memory back. Each is estimated with its new value before it is
//! named: one that does not help, or of which that is unknown, is left out.

use super::solve::{Holds, What, solve, tensor_sizes};
use crate::engine::settings::{Setting, argument_text};
use crate::estimate::engines::llama_cpp;
use crate::estimate::{Deployment, EngineId, Model, estimate, fits, shared_host};

/// The largest share of a GPU that is advised: the driver's context and what the engine does not count lie beside it.
const MOST_SHARE: f64 = 0.95;
/// A context below this many tokens is not offered in place of a longer one.
const LEAST_TOKENS: u64 = 1024;

/// A change of one setting after which a deployment fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// The argument as a person types it: `--max-model-len 32992`.
    pub argument: String,
    /// The deployment with it.
    pub deployment: Deployment,
    /// Requests of the longest length that it then holds at once.
    pub concurrency: f64,
}

/// The engine's share of the GPU changed to this many percent, no more than is ever advised; `None` where the deployment would not hold one request, or the engine has no such share.
pub fn change_share(present: &Deployment, percent: f64, holds: &Holds<'_>) -> Option<Remedy> {
    let share = (percent / 100.0).min(MOST_SHARE);
    let deployment = Deployment {
        memory_fraction: Some(share),
        ..present.clone()
    };
    let concurrency = holds(&deployment).ok()?;
    let name = "gpu_memory_utilization";
    let argument = argument_text(present.engine, name, &format!("{share:.2}"))?;
    (share > 0.0 && concurrency >= 1.0).then_some(Remedy {
        argument,
        deployment,
        concurrency,
    })
}

/// What makes a deployment hold `concurrency` requests of the longest length that it does not hold: a larger share of
/// the GPU, a shorter context, a cache of 8 bits, more GPUs; in this order, one of each.
pub fn find_remedies(
    model: &Model,
    asked: &Deployment,
    concurrency: u64,
    holds: &Holds<'_>,
) -> Vec<Remedy> {
    let wanted = concurrency.max(1);
    // Only what is known to fit is a remedy.
    let holds: &Holds<'_> = &|d| Ok(holds(d).unwrap_or(0.0));
    let remedy = |name: &str, value: &str, deployment: Deployment| {
        let concurrency = holds(&deployment).ok()?;
        Some(Remedy {
            argument: argument_text(asked.named(), name, value)?,
            deployment,
            concurrency,
        })
        .filter(|_| concurrency >= wanted as f64)
    };
    let share = || {
        // Of a memory that the host shares the most that leaves it enough, where more is asked for.
        let most = shared_host::safe_share(asked);
        let asks_more = |most: &f64| estimate(model, asked).settings.fraction > *most;
        if let Some(most) = most.filter(asks_more) {
            let found = change_share(asked, most * 100.0, holds)?;
            return (found.concurrency >= wanted as f64).then_some(found);
        }
        let found = solve(What::GpuMemoryUtilization, model, asked, wanted, holds).ok()?;
        let value = found.value.filter(|share| *share <= MOST_SHARE)?;
        // Least and not most: the rest stays free.
        remedy(
            "gpu_memory_utilization",
            &format!("{value:.2}"),
            found.deployment,
        )
    };
    let context = || {
        let found = solve(What::MaxModelLen, model, asked, wanted, holds).ok()?;
        let whole = match asked.engine {
            EngineId::LlamaCpp => llama_cpp::PADDING,
            _ => 16,
        };
        let tokens = found.value? as u64 / whole * whole;
        let deployment = Deployment {
            max_model_len: Some(tokens),
            ..asked.clone()
        };
        (tokens >= LEAST_TOKENS)
            .then(|| remedy("max_model_len", &tokens.to_string(), deployment))?
    };
    let cache = || {
        let whole = matches!(
            asked.kv_dtype.as_deref(),
            None | Some("auto" | "bfloat16" | "float16")
        );
        let value = match asked.engine {
            EngineId::Vllm | EngineId::TensorRtLlm | EngineId::Sglang | EngineId::LlamaCpp => {
                Setting::named("kv_cache_dtype")?.engine_value(asked.named(), "fp8")
            }
            _ => return None,
        };
        let deployment = Deployment {
            kv_dtype: Some(value.into()),
            ..asked.clone()
        };
        whole.then(|| remedy("kv_cache_dtype", value, deployment))?
    };
    let gpus = || {
        let wider = tensor_sizes(model, 8)
            .into_iter()
            .filter(|tp| *tp > asked.tp);
        let with = |tp: u64| Deployment {
            tp,
            ..asked.clone()
        };
        let mut fitting =
            wider.filter_map(|tp| remedy("tensor_parallel_size", &tp.to_string(), with(tp)));
        fitting.next()
    };
    // States of sequences that are never there at once keep an engine from starting. The pool is estimated: some are
    // left out, and the engine itself prints how many it holds.
    let sequences = || {
        let found = estimate(model, asked);
        let kept = fits::sequences_with_states(&found, asked)?;
        let blocks = found.pool.as_ref().ok()?.blocks;
        let with = |n: u64| Deployment {
            max_seqs: Some(n),
            ..asked.clone()
        };
        let fewer = [4, 3, 2, 1].map(|fifths| blocks.saturating_mul(fifths) / 5 / 16 * 16);
        let mut fewer = fewer.into_iter().filter(|n| *n > 0 && blocks < kept);
        fewer.find_map(|n| remedy("max_num_seqs", &n.to_string(), with(n)))
    };
    let all = [sequences(), share(), context(), cache(), gpus()];
    all.into_iter().flatten().collect()
}

/// The smallest share of the GPU, in whole percents, that still holds `concurrency` requests of `tokens`, where it is
/// less than the present one by five percent or more.
///
/// Only engines that take a fixed share of the GPU at their start: a smaller share of others frees no memory.
pub fn find_smaller_share(
    model: &Model,
    present: &Deployment,
    concurrency: u64,
    holds: &Holds<'_>,
) -> Option<Remedy> {
    let share = present.memory_fraction?;
    let found = solve(
        What::GpuMemoryUtilization,
        model,
        present,
        concurrency,
        holds,
    )
    .ok()?;
    let value = found.value.filter(|value| *value + 0.05 <= share)?;
    change_share(present, (value * 100.0).round(), holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Gpu;
    use crate::estimate::model::from_config;
    use crate::estimate::question::Reading;
    use serde_json::json;

    /// Llama of 8 billion parameters: 15 GiB of bfloat16, 128 KiB a token.
    fn llama() -> Model {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
        });
        from_config("llama", &config, "test").unwrap()
    }

    fn on(engine: EngineId, gib: u64) -> Deployment {
        Deployment {
            gpu: Some(Gpu {
                name: "NVIDIA GeForce RTX 4090".into(),
                total: gib << 30,
                in_use: 0,
            }),
            ..Deployment::with_defaults(engine)
        }
    }

    #[test]
    fn every_remedy_fits_by_the_estimate_of_its_own_deployment() {
        let model = llama();
        let holds = |d: &Deployment| {
            Ok(Reading::of(&model, d, &estimate(&model, d))?
                .on
                .map_or(0.0, |on| on.concurrency))
        };
        for engine in [
            EngineId::Vllm,
            EngineId::Sglang,
            EngineId::TensorRtLlm,
            EngineId::LlamaCpp,
        ] {
            for gib in [12, 20, 24, 32] {
                for wanted in [1, 4] {
                    let asked = on(engine, gib);
                    for remedy in find_remedies(&model, &asked, wanted, &holds) {
                        assert!(
                            holds(&remedy.deployment).unwrap() >= wanted as f64,
                            "{remedy:?}"
                        );
                        assert!(remedy.argument.starts_with('-'), "{remedy:?}");
                    }
                }
            }
        }
        // A little in use, as on every real GPU, takes no share away but the highest.
        let mut used = Deployment {
            memory_fraction: Some(0.5),
            max_model_len: Some(8192),
            ..on(EngineId::Vllm, 24)
        };
        used.gpu.as_mut().unwrap().in_use = 300 << 20;
        let share = find_remedies(&model, &used, 1, &holds).remove(0).argument;
        assert!(share.starts_with("--gpu-memory-utilization 0."), "{share}");
        let found = find_remedies(&model, &on(EngineId::Vllm, 24), 1, &holds);
        let arguments: Vec<&str> = found.iter().map(|r| r.argument.as_str()).collect();
        assert!(
            arguments.iter().any(|a| a.starts_with("--max-model-len ")),
            "{arguments:?}"
        );
        assert!(
            arguments.contains(&"--tensor-parallel-size 2"),
            "{arguments:?}"
        );
        // Weights of 15 GiB stay larger than a GPU of 12, whatever the cache is.
        let small = find_remedies(&model, &on(EngineId::Vllm, 12), 1, &holds);
        assert!(
            small
                .iter()
                .all(|r| r.argument.starts_with("--tensor-parallel-size")),
            "{small:?}"
        );
    }

    #[test]
    fn a_smaller_share_still_holds_what_is_wanted() {
        let model = llama();
        let holds = |d: &Deployment| {
            Ok(Reading::of(&model, d, &estimate(&model, d))?
                .on
                .map_or(0.0, |on| on.concurrency))
        };
        let roomy = Deployment {
            memory_fraction: Some(0.92),
            max_model_len: Some(4096),
            ..on(EngineId::Vllm, 80)
        };
        let found = find_smaller_share(&model, &roomy, 8, &holds).unwrap();
        let share = found.deployment.memory_fraction.unwrap();
        assert!(share <= 0.87 && found.concurrency >= 8.0, "{found:?}");
        let tight = Deployment {
            memory_fraction: Some(share + 0.01),
            ..roomy
        };
        assert_eq!(find_smaller_share(&model, &tight, 8, &holds), None);
    }
}
