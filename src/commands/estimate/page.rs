//! An estimate laid out for the page.

use super::asked::Asked;
use crate::engine::settings::Setting;
use crate::engine::settings::argument_text;
use crate::estimate::engines::vllm;
use crate::estimate::question::{Risk, find_remedies};
use crate::estimate::{Deployment, EngineId, Estimate};
use crate::report::content::{Action, MOST_ACTIONS};
use crate::report::estimate::{
    ESTIMATE_DOCUMENT, EngineSetting, EstimatePage, PoolFigures, describe_hold,
};
use crate::report::layout::grouped_count;
use crate::units::{Bytes, to_gib};

/// The content of the page.
pub fn build_page(
    asked: &Asked,
    deployment: &Deployment,
    estimate: &Estimate,
    concurrency: u64,
    solution: Option<String>,
) -> EstimatePage {
    let queued = deployment.max_seqs.filter(|most| *most < concurrency);
    let queued = queued.map(|most| {
        format!("of {concurrency} requests the engine runs {most} at a time by its own limit; the others wait")
    });
    let warnings = estimate.warnings.iter().chain(&asked.warnings).cloned();
    let warnings = warnings.chain(queued);
    EstimatePage {
        outside_bytes: estimate.outside,
        warm_up_bytes: estimate.warm_up,
        document: ESTIMATE_DOCUMENT.into(),
        model: asked.model.name.clone(),
        parameters: asked.model.parameters(),
        source: asked.model.source.clone(),
        engine: engine(deployment),
        gpus: gpus(deployment),
        gpu_count: deployment.gpus(),
        settings: settings(deployment, estimate),
        terms: estimate.terms.clone(),
        pool: estimate.pool.as_ref().ok().map(|p| PoolFigures {
            bytes: p.bytes,
            tokens: p.tokens,
        }),
        per_token: estimate.kv_bytes_per_token.clone().into(),
        longest: estimate.settings.max_model_len,
        concurrency,
        reason: estimate.reason.clone(),
        reading: asked.reading(deployment).into(),
        warnings: warnings.collect(),
        gpu: deployment.gpu.clone(),
        actions: actions(asked, deployment, concurrency),
        solution,
        shared: None,
    }
}

/// What makes a deployment fit that does not, or not surely.
fn actions(asked: &Asked, deployment: &Deployment, concurrency: u64) -> Vec<Action> {
    let risk_of = |d: &Deployment| asked.reading(d).ok()?.risk(concurrency);
    let is_sure = risk_of(deployment).is_some_and(|risk| risk < Risk::High);
    if is_sure || deployment.gpu.is_none() {
        return Vec::new();
    }
    let host_bytes = |d: &Deployment| -> u64 {
        let host = asked.estimated(d).map_or(Vec::new(), |found| found.host);
        host.iter().map(|part| part.bytes).sum()
    };
    let read = |d: &Deployment| asked.reading(d);
    let found = find_remedies(&asked.model, deployment, concurrency, &read);
    let remedies = found.into_iter().take(MOST_ACTIONS).map(|remedy| {
        let gpus = match remedy.deployment.gpus() {
            1 => String::new(),
            n => format!(" on {n} GPUs"),
        };
        let risk = match risk_of(&remedy.deployment) {
            Some(Risk::High) => ", risk high",
            _ => "",
        };
        let more = host_bytes(&remedy.deployment).saturating_sub(host_bytes(deployment));
        let host = match more {
            0 => String::new(),
            bytes => format!(", with {} more in the host's memory", Bytes(bytes)),
        };
        let holds = describe_hold(&remedy, &asked.model);
        let effect = format!("{holds}{gpus}{host}{risk}");
        // Where nobody names a length, the engine would choose another one anew.
        let kept = (asked.fitted_length).filter(|n| remedy.deployment.max_model_len == Some(*n));
        let kept = kept.and_then(|n| {
            let engine = remedy.deployment.named();
            argument_text(engine, "max_model_len", &n.to_string())
        });
        let mut arguments = remedy.arguments;
        arguments.extend(kept);
        Action {
            effect,
            setting: arguments.join(" "),
        }
    });
    remedies.collect()
}

/// The engine with the version for the rules.
pub fn engine(deployment: &Deployment) -> String {
    match (deployment.engine, deployment.version) {
        (EngineId::Vllm, version) => {
            let used = vllm::version(deployment);
            match version {
                Some(_) => format!("vllm {used}"),
                None => format!("vllm {used} (assumed: the newest that is known)"),
            }
        }
        // Its releases are builds, numbers of three digits and more (`llama_cpp::build_of`).
        (_, Some(v)) if deployment.named() == EngineId::LlamaCpp && v.minor >= 100 => {
            format!("{} b{}", deployment.named().shown(), v.minor)
        }
        (_, Some(v)) => format!("{} {v}", deployment.named().shown()),
        (_, None) => deployment.named().shown().into(),
    }
}

/// `2 x H100 SXM 80GB, 79.18 GiB each`.
pub fn gpus(deployment: &Deployment) -> Option<String> {
    let gpu = deployment.gpu.as_ref()?;
    let (count, each) = match deployment.gpus() {
        1 => (String::new(), ""),
        n => (format!("{n} x "), " each"),
    };
    let used = match gpu.in_use {
        0 => String::new(),
        b => format!(", {:.2} GiB in use", to_gib(b)),
    };
    Some(format!(
        "{count}{}, {:.2} GiB{each}{used}",
        gpu.name,
        to_gib(gpu.total)
    ))
}

/// Settings in force, in the engine's words, and whether each is a default.
fn settings(deployment: &Deployment, estimate: &Estimate) -> Vec<EngineSetting> {
    let s = &estimate.settings;
    let mut all = Vec::new();
    let mut put = |name: &str, value: Option<String>, default: bool| {
        all.extend(value.map(|value| EngineSetting {
            name: name.to_owned(),
            value,
            default,
        }));
    };
    let more = |n: u64| (n > 1).then(|| n.to_string());
    put("tensor parallel", more(deployment.tp), false);
    put("pipeline parallel", more(deployment.pp), false);
    put("data parallel", more(deployment.dp), false);
    put("expert parallel", more(deployment.ep), false);
    put("decode context parallel", more(deployment.dcp), false);
    put("dtype", deployment.dtype.clone(), false);
    put("quantization", deployment.quantization.clone(), false);
    put("kv_cache_dtype", deployment.kv_dtype.clone(), false);
    let default = deployment.max_model_len.is_none();
    put("max_model_len", s.max_model_len.map(grouped_count), default);
    let fraction = Setting::named("gpu_memory_utilization");
    let fraction = fraction.and_then(|s| s.names(deployment.engine).next());
    if let Some(fraction) = fraction.filter(|_| deployment.kv_cache_memory.is_none()) {
        let default = deployment.memory_fraction.is_none();
        let (flag, own) = match deployment.engine {
            // Its share is a part of that of TGI_WIGGLE_ROOM.
            EngineId::Tgi => {
                let flag = deployment.memory_fraction.unwrap_or(1.0);
                (flag, Some(format!("{:.2}", s.fraction / flag)))
            }
            _ => (s.fraction, None),
        };
        // SGLang computes its default: rounded, it can read as a larger one.
        let decimals = if default && deployment.engine == EngineId::Sglang {
            3
        } else {
            2
        };
        put(fraction, Some(format!("{flag:.decimals$}")), default);
        put("TGI_WIGGLE_ROOM", own, true);
    }
    if deployment.engine == EngineId::Vllm {
        put(
            "max_num_batched_tokens",
            Some(grouped_count(s.batched_tokens)),
            deployment.max_batched_tokens.is_none(),
        );
        put(
            "max_num_seqs",
            Some(grouped_count(s.sequences)),
            deployment.max_seqs.is_none(),
        );
        put("eager", s.eager.then(|| "yes".into()), false);
    }
    all
}
