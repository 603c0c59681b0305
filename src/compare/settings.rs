//! The settings and the workload of a profile, under one name each.

use crate::capture::DeviceKind;
use crate::engine::same;
use crate::engine::settings::SETTINGS;
use crate::profile::Profile;
use serde_json::Value;
use std::collections::BTreeMap;

/// Settings by name; a name that is absent is unknown.
pub type ProfileSettings = BTreeMap<String, String>;

/// How a property of a run counts where runs are compared. Settings of the engine have no row here: they may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Where it differs the figures do not answer the same question.
    MustAgree,
    /// Where it differs, what was in use may differ for that alone.
    ShouldAgree,
    /// It is the same in all runs of a trend.
    SameInTrend,
    /// It identifies the run, and is not a setting.
    NamesRun,
    /// It is asked for and changes no figure.
    Idle,
}

/// What people look at before the settings of the engine, in their order.
const BEFORE_SETTINGS: &[(&str, Role)] = &[
    ("model", Role::SameInTrend),
    ("engine", Role::SameInTrend),
    ("engine_version", Role::NamesRun),
    // The engine chooses it by its version and the GPU.
    ("attention_backend", Role::NamesRun),
    ("memory", Role::MustAgree),
    ("gpu", Role::SameInTrend),
    ("gpus", Role::SameInTrend),
    ("weights_dtype", Role::MustAgree),
    ("quantization", Role::MustAgree),
    ("activations_dtype", Role::SameInTrend),
    ("kv_cache_dtype", Role::MustAgree),
    ("bench", Role::ShouldAgree),
    ("batch_size", Role::MustAgree),
    ("input_len", Role::MustAgree),
    ("output_len", Role::MustAgree),
    ("num_prompts", Role::ShouldAgree),
    ("max_concurrency", Role::ShouldAgree),
    ("request_rate", Role::ShouldAgree),
];

/// What they look at after these; all others follow by alphabet.
const AFTER_SETTINGS: &[(&str, Role)] = &[
    ("mode", Role::SameInTrend),
    ("image", Role::NamesRun),
    ("host", Role::Idle),
    ("port", Role::Idle),
    ("served_model_name", Role::Idle),
    ("api_key", Role::Idle),
    ("uvicorn_log_level", Role::Idle),
];

/// How a property counts; `None` for a setting of the engine.
pub fn role_of(name: &str) -> Option<Role> {
    let mut all = BEFORE_SETTINGS.iter().chain(AFTER_SETTINGS);
    all.find(|(n, _)| *n == name).map(|(_, role)| *role)
}

/// The place of a property among those that people look at first.
pub fn position_of(name: &str) -> usize {
    let before = BEFORE_SETTINGS.iter().map(|(n, _)| *n);
    let settings = SETTINGS.iter().map(|s| s.name.as_str());
    let after = AFTER_SETTINGS.iter().filter(|(_, r)| *r != Role::Idle);
    let mut all = before.chain(settings).chain(after.map(|(n, _)| *n));
    all.position(|n| n == name).unwrap_or(usize::MAX)
}

/// What was asked of the engine by its own flags and variables.
pub fn asked_flags(profile: &Profile) -> ProfileSettings {
    let mut asked = parse_flags(&profile.parameters.extra_engine_args);
    asked.extend(profile.configuration.requested.clone());
    asked
}

/// Settings in force, else asked for; the model, the engine, the GPUs and the load.
pub fn settings_of_profile(profile: &Profile) -> ProfileSettings {
    let mut all = ProfileSettings::new();
    for (name, value) in profile.parameters.settings.named() {
        put_known(&mut all, name, Some(value));
    }
    all.extend(asked_flags(profile));
    all.extend(profile.configuration.effective.clone());

    macro_rules! put {
        ($($name:literal: $value:expr;)*) => { $(put_known(&mut all, $name, $value);)* };
    }
    let metrics = &profile.vllm_internal_metrics;
    let types = &profile.dtype_metadata;
    let load = &profile.parameters.effective_load();
    put! {
        "max_model_len": metrics.max_model_len;
        "block_size": metrics.block_size;
        "gpu_memory_utilization": metrics.gpu_memory_utilization;
        "attention_backend": metrics.attention_backend.as_deref();
        "model": profile.model_info.name.as_deref();
        "engine": Some(&profile.engine_metadata.engine_type);
        "engine_version": profile.engine_metadata.engine_version.as_deref();
        "weights_dtype": types.weights.as_deref();
        "activations_dtype": types.activations.as_deref();
        "kv_cache_dtype": types.kv_cache.as_deref();
        "quantization": types.quantization.as_deref();
        "bench": Some(&profile.parameters.bench);
        "input_len": (load.input_len > 0).then_some(load.input_len);
        "output_len": Some(load.output_len);
        "batch_size": load.batch_size;
        "num_prompts": load.num_prompts;
        "max_concurrency": load.max_concurrency;
        "request_rate": load.request_rate;
        "mode": variant_name(&profile.metadata.mode);
        "image": Some(&profile.metadata.container.image);
    }

    let devices = &profile.gpu_info.devices;
    let on_host = devices.iter().any(|d| d.kind == DeviceKind::HostCgroup);
    let memory = match (devices.is_empty(), on_host) {
        (true, _) => None,
        (false, true) => Some("host"),
        (false, false) => Some("GPU"),
    };
    put_known(&mut all, "memory", memory);
    if !on_host {
        let mut names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
        names.dedup();
        // `put_known` leaves out an empty name.
        put_known(&mut all, "gpu", Some(names.join(", ")));
        put_known(&mut all, "gpus", Some(profile.gpu_info.num_gpus));
    }
    tidy(&mut all);
    all
}

/// Where documents of earlier schemas have their settings; of several places the first that is there.
const OLDER: [(&str, &str); 21] = [
    ("model", "/model_info/name"),
    ("model", "/model_info/model_name"),
    ("model", "/parameters/model"),
    ("engine", "/engine_metadata/engine_type"),
    ("engine", "/engine"),
    ("engine_version", "/engine_metadata/engine_version"),
    ("engine_version", "/engine_version"),
    ("weights_dtype", "/dtype_metadata/weights"),
    ("weights_dtype", "/model_info/dtype"),
    ("kv_cache_dtype", "/dtype_metadata/kv_cache"),
    ("kv_cache_dtype", "/parameters/kv_cache_dtype"),
    ("quantization", "/dtype_metadata/quantization"),
    ("quantization", "/parameters/quantization"),
    ("batch_size", "/parameters/batch_size"),
    ("batch_size", "/model_info/batch_size"),
    ("input_len", "/parameters/input_len"),
    ("input_len", "/model_info/prompt_length"),
    ("output_len", "/parameters/output_len"),
    ("tensor_parallel_size", "/parameters/tensor_parallel_size"),
    ("max_model_len", "/vllm_internal_metrics/max_model_len"),
    ("gpus", "/gpu_info/num_gpus"),
];

/// The same of a document of an earlier schema, as far as it goes.
pub fn of_older(document: &Value) -> ProfileSettings {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for (name, path) in OLDER {
        if let Some(value) = document.pointer(path).and_then(scalar) {
            found.entry(name).or_insert(value);
        }
    }
    let mut all = ProfileSettings::new();
    for (name, value) in found {
        put_known(&mut all, name, Some(value));
    }
    tidy(&mut all);
    all
}

/// Arguments as settings: `--a b`, `--a=b`, and `--a` alone, which is `true`.
pub fn parse_flags(words: &[String]) -> ProfileSettings {
    let mut found = ProfileSettings::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix("--") else {
            continue;
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = words.next_if(|next| !next.starts_with("--"));
                (name, value.cloned().unwrap_or_else(|| "true".to_owned()))
            }
        };
        found.insert(name.replace('-', "_"), value);
    }
    found
}

/// Adds a value that is known; an empty text is not.
fn put_known(all: &mut ProfileSettings, name: &str, value: Option<impl ToString>) {
    let known = value
        .map(|v| v.to_string())
        .filter(|v| !v.trim().is_empty());
    all.extend(known.map(|value| (name.to_owned(), value)));
}

/// One spelling for what means the same.
fn tidy(all: &mut ProfileSettings) {
    let types = [
        "weights_dtype",
        "activations_dtype",
        "kv_cache_dtype",
        "dtype",
    ];
    for name in types {
        if let Some(value) = all.get_mut(name) {
            *value = same::plain(value);
        }
    }
    if let Some(eager) = all.get_mut("enforce_eager") {
        *eager = eager.to_ascii_lowercase();
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// A unit variant's name.
pub(super) fn variant_name(value: &impl serde::Serialize) -> Option<String> {
    scalar(&serde_json::to_value(value).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_in_every_spelling() {
        let words = [
            "stray",
            "--max-num-seqs",
            "64",
            "--dtype=half",
            "--enforce-eager",
            "--x",
        ];
        let read = parse_flags(&words.map(str::to_owned));
        assert_eq!(read["max_num_seqs"], "64");
        assert_eq!(read["dtype"], "half");
        assert_eq!(read["enforce_eager"], "true");
        assert_eq!(read["x"], "true");
        assert_eq!(read.len(), 4);
    }

    #[test]
    fn names_of_torch_are_the_plain_ones() {
        let mut all = ProfileSettings::from([("weights_dtype".into(), "torch.Float16".into())]);
        tidy(&mut all);
        assert_eq!(all["weights_dtype"], "float16");
    }
}
