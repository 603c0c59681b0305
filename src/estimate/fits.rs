//! Whether a deployment starts and holds one request of its longest length, and why.

use super::{
    Deployment, EngineId, Estimate, Model, Unknown, Version,
    engines::{self, llama_cpp, vllm},
    non_torch,
    pool::Layout,
    pooling, speculation, unmodelled,
    weights::shard,
};
use crate::engine::settings::{Setting, argument_text};
use crate::units::GIB;
use crate::wording::count_noun;

/// The first release of vLLM in which Turing has no backend for a cache in fp8, as was read.
const NO_FP8_CACHE_ON_TURING: Version = Version::new(0, 32, 0);

/// The row of the least compute capability for a cache in fp8, where one is asked for.
fn fp8_cache(model: &Model, deployment: &Deployment) -> Option<&'static str> {
    let dtype = deployment.kv_dtype.as_deref()?;
    if !dtype.starts_with("fp8") {
        None
    } else if model.is_latent() || unmodelled::computes_by_triton(deployment.engine, &model.kind) {
        Some("fp8_cache_triton")
    } else {
        (vllm::version(deployment) >= NO_FP8_CACHE_ON_TURING).then_some("fp8_cache")
    }
}

/// Why it does not start whatever the memory is.
pub(super) fn refusal(model: &Model, deployment: &Deployment) -> Option<String> {
    if deployment.on_cpu {
        return None;
    }
    if let Some(lacks) = deployment.lacking_flags.first() {
        return Some(lacks.clone());
    }
    let needed = deployment.gpus();
    if let Some(given) = deployment.given_gpus.filter(|given| *given < needed) {
        return Some(format!(
            "the engine gets {} and needs {needed}",
            count_noun(given, "GPU")
        ));
    }
    let engine = deployment.engine;
    let method = deployment.quantization.as_deref().or(model.quant_method());
    let dtype = deployment.dtype.as_deref().unwrap_or("auto");
    let cache = fp8_cache(model, deployment);
    let needing = [Some("any"), method, Some(dtype), cache];
    for name in needing.into_iter().flatten() {
        let Some(least) = unmodelled::missing_compute(deployment, name) else {
            continue;
        };
        let gpu = engines::gpu_model(deployment)?;
        let (what, instead) = match name {
            "any" => (String::new(), "; llama.cpp and Ollama run on it"),
            name if cache == Some(name) => (" for a KV cache in fp8 of this model".into(), ""),
            name => (format!(" for {name}"), ""),
        };
        return Some(format!(
            "{} needs a GPU of compute capability {least:.1} or more{what}, and {} has {:.1}{instead}",
            engine.shown(),
            gpu.name,
            gpu.compute_capability()?
        ));
    }
    if matches!(dtype, "half" | "float16") && unmodelled::lacks_float16(deployment, &model.kind) {
        return Some(format!(
            "{} does not compute {} in float16: leave --dtype out",
            engine.shown(),
            model.kind
        ));
    }
    if let Some(refused) = shard::refused_blocks(model, deployment) {
        return Some(refused.what);
    }
    if let Some(refused) = llama_cpp::refused_cache_type(model, deployment) {
        return Some(refused);
    }
    let length = refused_length(model, deployment);
    length
        .or_else(|| refused_step(model, deployment))
        .or_else(|| speculation::lacks_head(deployment))
}

/// Why it does not start: a length beyond the model's positions, where the engine has a variable that allows it (vLLM,
/// config/model.py; SGLang, model_config.py) and that is not set.
pub fn refused_length(model: &Model, deployment: &Deployment) -> Option<String> {
    let engine = deployment.engine;
    let variable = Setting::named("longer_allowed")?.names(engine).next()?;
    let (asked, most) = (deployment.max_model_len?, model.longest()?);
    let argument = argument_text(engine, "max_model_len", &asked.to_string())?;
    (asked > most && !deployment.longer_allowed).then(|| {
        format!("{argument} is more than the model's {most} positions; {variable}=1 allows it")
    })
}

/// Why vLLM (config/scheduler.py) does not start: a step with fewer tokens than sequences, or than a prompt that it does not
/// split.
fn refused_step(model: &Model, deployment: &Deployment) -> Option<String> {
    let tokens = (deployment.max_batched_tokens).filter(|_| deployment.engine == EngineId::Vllm)?;
    let is_whole = deployment.whole_prompts || pooling::keeps_nothing(model, deployment);
    let longest = vllm::settings(model, deployment).max_model_len;
    let least = match (deployment.max_seqs, longest) {
        (Some(seqs), _) if tokens < seqs => format!("--max-num-seqs {seqs}"),
        (_, Some(longest)) if is_whole && tokens < longest => {
            format!("a prompt of {longest} tokens, which vLLM does not split here")
        }
        _ => return None,
    };
    Some(format!(
        "--max-num-batched-tokens {tokens} is less than {least}"
    ))
}

/// Sequences that need a block of the cache each for their states, before vLLM captures CUDA graphs. From 0.20: 0.17.1 starts
/// with fewer blocks, 0.20.0 refuses ("max_num_seqs exceeds available Mamba cache blocks").
pub(super) fn sequences_with_states(estimate: &Estimate, deployment: &Deployment) -> Option<u64> {
    let layout = estimate.layout.as_ref().ok()?;
    let refuses = vllm::is_from(deployment, Version::new(0, 20, 0))
        && !estimate.settings.eager
        && !deployment.on_cpu
        && layout.keeps_states();
    refuses.then_some(estimate.settings.sequences)
}

/// Whether it fits, and why. `for_cache`: bytes that are left for the cache; `before`: taken before the engine looks.
pub(super) fn verdict(
    estimate: &Estimate,
    deployment: &Deployment,
    for_cache: &Result<i128, Unknown>,
    before: u64,
) -> (Option<bool>, String) {
    let Some(gpu) = &deployment.gpu else {
        return (None, "the GPU is not known".into());
    };
    let gib = |bytes: f64| format!("{:.2} GiB", bytes / GIB);
    let of = |bytes: u64| gib(bytes as f64);
    let left = match for_cache {
        Ok(left) => *left,
        Err(why) => return (None, why.what.clone()),
    };
    if deployment.engine.takes_what_is_asked() {
        return match (&estimate.total, estimate.budget) {
            (Ok(total), Some(room)) => {
                let why = format!("{} are needed of {}", of(*total), of(room));
                (Some(*total <= room), why)
            }
            (Err(why), _) => (None, why.what.clone()),
            (_, None) => (None, "the GPU is not known".into()),
        };
    }
    // vLLM refuses to start where its share is more than what is free (`request_memory`, since 0.9.1, also with
    // --kv-cache-memory-bytes), or runs out of memory where it looks at its own increase alone (V0).
    let share = (gpu.total as f64 * estimate.settings.fraction) as u64;
    let free = gpu.total.saturating_sub(gpu.in_use).saturating_sub(before);
    let of_total = deployment.engine == EngineId::Vllm
        && match vllm::rule(deployment) {
            vllm::Rule::FreeMemory => false,
            vllm::Rule::Absolute => vllm::version(deployment) >= Version::new(0, 9, 1),
            _ => true,
        };
    if of_total && gpu.in_use > 0 && share > free {
        let (share, free) = (of(share), of(free));
        let why = format!("its share of {share} is more than the {free} that are free");
        return (Some(false), why);
    }
    // Of a GPU that others use, what is taken beside the share must find room as well.
    let others = match vllm::rule(deployment) {
        // They are within its share.
        vllm::Rule::Absolute => 0,
        _ => gpu.in_use,
    };
    let outside = before.saturating_add(estimate.warm_up);
    // The context of an H100 is the largest that was measured.
    let context = before.max((non_torch::CONTEXT_GIB * GIB) as u64);
    let beside = (context.saturating_add(estimate.warm_up))
        .saturating_sub(gpu.total.saturating_sub(others).saturating_sub(share));
    let shared = deployment.engine == EngineId::Vllm
        && !vllm::is_v0(deployment)
        && gpu.in_use > 0
        && deployment.kv_cache_memory.is_none()
        && beside > 0;
    // Bytes that were asked for are taken, whatever is there.
    let room = gpu.total.saturating_sub(gpu.in_use);
    if estimate.layout.as_ref().is_ok_and(Layout::keeps_nothing) {
        let needed = match &estimate.total {
            Ok(total) => total.saturating_add(outside),
            Err(why) => return (None, why.what.clone()),
        };
        let all = of(needed);
        let why = format!("{all} are needed of {}, and it keeps no cache", of(room));
        return (Some(needed <= room), why);
    }
    if let (Some(asked), Ok(total)) = (deployment.kv_cache_memory, &estimate.total) {
        let needed = total.saturating_add(outside);
        if needed > room {
            let why = format!(
                "{} are needed with the {} that are asked for the cache, and the GPU has {}",
                of(needed),
                of(asked),
                of(room)
            );
            return (Some(false), why);
        }
    }
    if left <= 0 {
        let missing = gib(-(left as f64));
        let why = format!("{missing} are missing before the cache has any");
        return (Some(false), why);
    }
    let states = sequences_with_states(estimate, deployment);
    if let (Some(sequences), Ok(pool)) = (states, &estimate.pool) {
        if pool.blocks < sequences {
            let default = deployment.max_seqs.map_or(" (default)", |_| "");
            let why = format!(
                "each sequence keeps a state in a block of the cache: --max-num-seqs {sequences}{default} needs as many, and there are {}",
                pool.blocks
            );
            return (Some(false), why);
        }
    }
    match (&estimate.max_concurrency, estimate.settings.max_model_len) {
        (Ok(c), Some(longest)) if *c < 1.0 => (
            // SGLang starts with any pool, and refuses single requests that are longer.
            (deployment.engine != EngineId::Sglang).then_some(false),
            format!("the cache holds {c:.2} of one request of {longest} tokens"),
        ),
        (Ok(_), Some(_)) if shared => (
            None,
            format!(
                "others hold {}, and its share leaves {} too little for the driver's context",
                of(gpu.in_use),
                of(beside)
            ),
        ),
        (Ok(c), Some(longest)) => (
            Some(true),
            format!("the cache holds {c:.2} requests of {longest} tokens"),
        ),
        (Err(why), _) => (None, why.what.clone()),
        (_, None) => (None, "the longest length is not known".into()),
    }
}
