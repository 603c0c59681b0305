//! What one run teaches about overheads, and why another teaches nothing.

use super::settings;
use crate::breakdown::{Component, EvidenceSource};
use crate::capture::DeviceKind;
use crate::estimate::calibration::{CalibrationRun, Key, attention_kind, by_heads};
use crate::estimate::model::from_config;
use crate::profile::Profile;
use serde_json::Value;

/// What a run teaches.
///
/// `config` is the model's config.json where it was kept; `gpu_name` gives a GPU the name that it
/// has in the shipped facts.
///
/// # Errors
/// Why it teaches nothing, a sentence.
pub fn learn_from_run(
    profile: &Profile,
    config: Option<&Value>,
    gpu_name: impl Fn(&str) -> String,
) -> Result<CalibrationRun, String> {
    if let Some(why) = profile.metadata.outcome.describe() {
        return Err(why);
    }
    if profile.metadata.simulated {
        return Err("the engine or a device is simulated".into());
    }
    let gpus = profile.gpu_info.devices.iter();
    let Some(gpu) = gpus.clone().find(|d| d.kind == DeviceKind::Gpu) else {
        return Err("no GPU was measured".into());
    };
    let mut others = gpus.filter(|d| d.kind == DeviceKind::Gpu && d.name != gpu.name);
    if others.next().is_some() {
        return Err("it ran on GPUs of several kinds".into());
    }
    let Some(version) = &profile.engine_metadata.engine_version else {
        return Err("the engine's version is not known".into());
    };
    let Some(model) = &profile.model_info.name else {
        return Err("the model is not known".into());
    };
    let settings = settings::settings_of_profile(profile);
    let number = |name: &str| settings.get(name)?.trim().parse::<u64>().ok();
    let dtype = settings.get("weights_dtype");
    let run = CalibrationRun {
        run_id: profile.metadata.run_id.clone(),
        timestamp: profile.metadata.timestamp.clone(),
        key: Key {
            engine: profile.engine_metadata.engine_type.clone(),
            version: version.clone(),
            attention: attention_kind_of(profile, config).into(),
            dtype: dtype.map_or("unknown", String::as_str).into(),
            tp: number("tensor_parallel_size").unwrap_or(1),
            gpu: gpu_name(&gpu.name),
        },
        model: model.clone(),
        max_num_seqs: number("max_num_seqs"),
        max_num_batched_tokens: number("max_num_batched_tokens"),
        max_model_len: number("max_model_len"),
        eager: settings.get("enforce_eager").map(|v| v == "true"),
        // The engine's own profile run, and not what this load took.
        activation: best_evidence_bytes(profile, Component::Activations, true),
        non_torch: best_evidence_bytes(profile, Component::NonTorch, false),
        cuda_graphs: best_evidence_bytes(profile, Component::CudaGraphs, false),
    };
    match (run.activation, run.non_torch, run.cuda_graphs) {
        (None, None, None) => {
            Err("it reports neither activations, CUDA graphs nor memory outside torch".into())
        }
        _ => Ok(run),
    }
}

/// The best witness of a component on the GPU that has most of it, bytes.
fn best_evidence_bytes(profile: &Profile, component: Component, engines_word: bool) -> Option<u64> {
    let witnesses = profile.evidence.iter().filter(|e| e.component == component);
    use EvidenceSource::{Architecture, EngineInfo, EngineLog, Residual};
    let counts = |source: EvidenceSource| {
        if engines_word {
            matches!(source, EngineLog | EngineInfo)
        } else {
            !matches!(source, Residual | Architecture)
        }
    };
    witnesses
        .filter(|e| (e.used || engines_word) && counts(e.source))
        .filter_map(|e| u64::try_from(e.bytes).ok())
        .max()
}

/// What kind of attention the model has, by its configuration or its heads.
fn attention_kind_of(profile: &Profile, config: Option<&Value>) -> &'static str {
    if let Some(model) = config.and_then(|c| from_config("the model", c, "the run").ok()) {
        return attention_kind(&model);
    }
    let info = &profile.model_info;
    match (info.num_heads, info.num_kv_heads) {
        (Some(heads), Some(kv_heads)) => by_heads(heads, kv_heads),
        _ => "unknown",
    }
}
