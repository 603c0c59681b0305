//! One case of `--batch`: a line of JSON as a model's name and a deployment.
//!
//! Its keys are those of the collected measurements; the columns of vLLM's benchmark tables are read too. Keys that
//! are flags of the engine and move memory are named as not modelled; other keys are left alone.

use super::engines::llama_cpp;
use super::fields::Fields;
use super::settings::IllegalValue;
use super::{Deployment, EngineId, Gpu, Unknown, Unmodelled, Version, unmodelled};
use crate::catalog;
use crate::engine::settings::SETTINGS;
use crate::units::GIB;
use serde_json::Value;
use std::collections::BTreeMap;

/// A case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// As the line calls itself; empty where it does not.
    pub id: String,
    /// The names to look the model's configuration up by, the surest first.
    pub models: Vec<String>,
    /// The model's configuration itself, where the line has it instead of a name.
    pub config: Option<Value>,
    /// How it is served.
    pub deployment: Deployment,
    /// What was taken as known and is not certain, in words.
    pub warnings: Vec<String>,
}

/// Reads a case.
///
/// # Errors
/// A missing model, an unknown name or an invalid value.
pub fn read(line: &Value) -> Result<Case, Unknown> {
    if !line.is_object() {
        return Err(Unknown::new("the line is not a JSON object"));
    }
    let fields = Fields(line);
    let config = fields.set(&["config"]).map(|(_, v)| v);
    let config = config.filter(|v| v.is_object()).cloned();
    let mut models = Vec::new();
    if config.is_none() {
        models.extend(fields.text(&["config"])?.map(str::to_owned));
    }
    models.extend(fields.text(&["model"])?.map(str::to_owned));
    if models.is_empty() && config.is_none() {
        return Err(Unknown::new("the case names no model").hint("give `model` or `config`"));
    }
    let named = EngineId::from_name(fields.text(&["engine"])?.unwrap_or("vllm"))?;
    // Ollama is estimated as llama.cpp.
    let engine = Deployment::of_engine(named)?.engine;
    let mut values = BTreeMap::new();
    for setting in SETTINGS.iter() {
        if let Some(value) = fields.setting(setting, engine)? {
            values.insert(setting.name.clone(), value);
        }
    }
    if line.get("hint").and_then(Value::as_str) == Some("flashinfer_sampler") {
        let sampler = values.entry("flashinfer_sampler".into());
        sampler.or_insert_with(|| "true".into());
    }
    if values.contains_key("max_lora_rank") {
        values.insert("enable_lora".into(), "true".into());
    }
    let asked = unmodelled::flags_of_case(engine, line);
    refuse_slips(line, engine, &asked)?;
    let (mut deployment, draft) =
        Deployment::from_settings(named, &values, &asked, IllegalValue::IsRefused)?;
    let drafts = draft.map(|draft| Unmodelled::speculation(&draft));
    deployment.unmodelled.extend(drafts);
    // A line describes a server and need not name its head.
    if let Some(speculation) = &mut deployment.speculation {
        speculation.names_model = true;
    }
    let version = fields.version(&["engine_version"])?;
    let mut warnings: Vec<String> = (version.iter())
        .filter_map(|text| deployment.set_version(text))
        .collect();
    deployment.gpu = gpu_of(&fields, &mut warnings)?;
    let id = line.get("id").and_then(Value::as_str).unwrap_or_default();
    Ok(Case {
        id: id.trim().to_owned(),
        models,
        config,
        deployment,
        warnings,
    })
}

/// The keys of a line besides settings.
const KEYS: &[&str] = &[
    "id",
    "model",
    "config",
    "engine",
    "engine_version",
    "gpu",
    "gpu_total_gib",
    "init_total_memory_gib",
    "gpu_in_use_gib",
    "hint",
    "speculative",
];

/// Refuses a key that is a slip away from one that is read: its value would be passed over. Other keys are
/// their author's own.
fn refuse_slips(
    line: &Value,
    engine: EngineId,
    asked: &BTreeMap<String, String>,
) -> Result<(), Unknown> {
    let known = || {
        let settings = SETTINGS.iter().flat_map(move |s| {
            let names = std::iter::once(&s.name)
                .chain(&s.aliases)
                .map(String::as_str);
            names.chain(s.names(engine))
        });
        KEYS.iter().copied().chain(settings)
    };
    for key in line.as_object().into_iter().flat_map(|map| map.keys()) {
        if asked.contains_key(key) || known().any(|k| k == key) {
            continue;
        }
        if let Some(near) = unmodelled::nearest(key, known()) {
            return Err(Unknown::new(format!("`{key}` is no key of a line"))
                .hint(format!("did you mean `{near}`?")));
        }
    }
    Ok(())
}

/// The GPU, with what its driver reports.
fn gpu_of(fields: &Fields<'_>, warnings: &mut Vec<String>) -> Result<Option<Gpu>, Unknown> {
    let name = fields.text(&["gpu"])?.filter(|n| *n != "unknown");
    let total = fields.gib(&["gpu_total_gib", "init_total_memory_gib"], 0.1)?;
    let in_use = fields.gib(&["gpu_in_use_gib"], 0.0)?;
    let bytes = |g: f64| (g * GIB) as u64;
    let in_use = in_use.map_or(0, bytes);
    let gpu = |name: &str, total: f64| Gpu {
        name: name.to_owned(),
        total: bytes(total),
        in_use,
    };
    match (name, total) {
        (None, None) => Ok(None),
        (name, Some(total)) => Ok(Some(gpu(name.unwrap_or("unknown"), total))),
        (Some(name), None) => {
            let (known, note) = catalog::resolve_gpu(name).map_err(|unknown| {
                let known = unknown.hint.map_or(String::new(), |h| format!("{h} "));
                let hint = format!("{known}or give `gpu_total_gib`, what its driver reports");
                Unknown::new(unknown.what).hint(hint)
            })?;
            warnings.extend(note);
            let total = known.reported_gib.unwrap_or_else(|| {
                warnings.push(format!(
                    "what the driver of {} reports is not known: its {} GiB less 2 % are assumed",
                    known.name, known.memory_gib
                ));
                known.memory_gib * 0.98
            });
            Ok(Some(gpu(name, total)))
        }
    }
}

/// A word `V0` or `V1` in a version.
pub(super) fn generation_of(version_text: &str) -> Option<bool> {
    version_text.split_whitespace().find_map(|w| match w {
        "V0" | "v0" => Some(true),
        "V1" | "v1" => Some(false),
        _ => None,
    })
}

/// A version as people write it: `0.9.2`, `0.14`, `0.8.5.post1`, `0.1x nightly 2026-02`, `V0 0.6.3`, `2026-04 fork`.
/// The second value: whether it names one release.
pub fn version_of(version_text: &str, engine: EngineId) -> (Option<Version>, bool) {
    if engine == EngineId::LlamaCpp {
        if let Some(build) = llama_cpp::build_of(version_text) {
            return (Some(build), true);
        }
    }
    let month = month_of(version_text);
    let dated = month.and_then(|m| by_month(engine, m));
    let numbered = version_text
        .split_whitespace()
        .map(|w| w.trim_start_matches(['v', 'V']))
        .find(|w| w.contains('.') && w.starts_with(|c: char| c.is_ascii_digit()));
    let Some(word) = numbered else {
        return (dated, false);
    };
    let mut parts = word.split('.').map(|p| {
        let digits: String = p.chars().take_while(char::is_ascii_digit).collect();
        (digits.parse::<u32>().ok(), p.len() == digits.len(), p)
    });
    let major = parts.next().and_then(|p| p.0);
    let minor = parts.next();
    let patch = parts.next();
    let post = parts.next().map_or("", |p| p.2);
    let (Some(major), Some((minor, _, minor_word))) = (major, minor) else {
        return (dated, false);
    };
    if minor_word.contains(['x', 'X']) {
        // `0.1x`: one of ten; `1.x`: of any. The date chooses among them.
        let chosen = minor.map_or(0, |tens| {
            let (low, high) = (tens.saturating_mul(10), tens.saturating_mul(10) + 9);
            let same = dated.filter(|d| d.major == major);
            same.map_or(low + 4, |d| d.minor.clamp(low, high))
        });
        return (Some(Version::new(major, chosen, 0)), false);
    }
    let Some(minor) = minor else {
        return (dated, false);
    };
    let patch_number = patch.and_then(|p| p.0);
    let exact = patch.is_none_or(|p| p.0.is_some());
    let version = Version::new(major, minor, patch_number.unwrap_or(0));
    (Some(version.after(post)), exact)
}

/// A month: `2026-02`, or `Feb 2026`; months since the year 0.
fn month_of(version_text: &str) -> Option<u32> {
    let words: Vec<&str> = version_text
        .split(|c: char| c.is_whitespace() || c == '(' || c == ')')
        .filter(|w| !w.is_empty())
        .collect();
    let year = |w: &str| w.parse::<u32>().ok().filter(|y| (2020..2100).contains(y));
    for (i, word) in words.iter().enumerate() {
        let mut parts = word.split('-');
        let numbered = parts.next().and_then(year);
        let m = parts.next().and_then(|m| m.parse::<u32>().ok());
        if let (Some(y), Some(m @ 1..=12)) = (numbered, m) {
            return Some(y * 12 + m - 1);
        }
        const MONTHS: [&str; 12] = [
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ];
        let small = word.to_ascii_lowercase();
        if let Some(m) = MONTHS.iter().position(|m| small.starts_with(m)) {
            if let Some(y) = words.get(i + 1).and_then(|w| year(w)) {
                return Some(y * 12 + m as u32);
            }
        }
    }
    None
}

/// The releases that a version may mean which names none: those of a year, of a month and its neighbours, of ten numbers.
pub fn versions_of(version_text: &str, engine: EngineId) -> Option<[Version; 2]> {
    let tens = version_text.split_whitespace().find_map(|word| {
        let minor = word.trim_start_matches(['v', 'V']).strip_prefix("0.")?;
        let tens = minor.strip_suffix(['x', 'X'])?.parse::<u32>().ok()?;
        tens.checked_mul(10)
    });
    if let Some(low) = tens.filter(|_| engine == EngineId::Vllm) {
        return Some([Version::new(0, low, 0), Version::new(0, low + 9, 0)]);
    }
    let year = version_text
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|w| w.parse::<u32>().ok().filter(|y| (2020..2100).contains(y)));
    let months = match (month_of(version_text), year) {
        (Some(month), _) => (month.saturating_sub(1), month + 1),
        (None, Some(year)) => (year * 12, year * 12 + 11),
        (None, None) => return None,
    };
    Some([by_month(engine, months.0)?, by_month(engine, months.1)?])
}

/// vLLM's releases, by the first month in which each was current, the newest first: 0.6 in September 2024, 0.11 in October
/// 2025, 0.14 in January 2026, two in most months since.
const VLLM: [(u32, u32, Version); 21] = [
    (2026, 11, Version::new(0, 33, 0)),
    (2026, 10, Version::new(0, 31, 0)),
    (2026, 9, Version::new(0, 29, 0)),
    (2026, 8, Version::new(0, 26, 0)),
    (2026, 7, Version::new(0, 24, 0)),
    (2026, 6, Version::new(0, 22, 0)),
    (2026, 5, Version::new(0, 20, 0)),
    (2026, 4, Version::new(0, 19, 0)),
    (2026, 3, Version::new(0, 17, 0)),
    (2026, 2, Version::new(0, 15, 0)),
    (2026, 1, Version::new(0, 14, 0)),
    (2025, 12, Version::new(0, 12, 0)),
    (2025, 10, Version::new(0, 11, 0)),
    (2025, 8, Version::new(0, 10, 0)),
    (2025, 6, Version::new(0, 9, 0)),
    (2025, 3, Version::new(0, 8, 0)),
    (2025, 1, Version::new(0, 7, 0)),
    (2024, 9, Version::new(0, 6, 0)),
    (2024, 6, Version::new(0, 5, 0)),
    (2024, 3, Version::new(0, 4, 0)),
    (2023, 12, Version::new(0, 3, 0)),
];
/// The same of SGLang.
const SGLANG: [(u32, u32, Version); 4] = [
    (2026, 8, Version::new(0, 5, 17)),
    (2026, 1, Version::new(0, 5, 9)),
    (2025, 9, Version::new(0, 5, 5)),
    (0, 1, Version::new(0, 4, 6)),
];

/// The version that was current in a month.
fn by_month(engine: EngineId, month: u32) -> Option<Version> {
    let table: &[_] = match engine {
        EngineId::Vllm => &VLLM,
        EngineId::Sglang => &SGLANG,
        _ => return None,
    };
    let current = table.iter().find(|(y, m, _)| month >= y * 12 + m - 1);
    current.map(|(.., version)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_as_people_write_them() {
        let vllm = |s| version_of(s, EngineId::Vllm);
        let v = |minor, patch| Some(Version::new(0, minor, patch));
        assert_eq!(vllm("0.14"), (v(14, 0), true));
        assert_eq!(vllm("0.9.2"), (v(9, 2), true));
        assert_eq!(vllm("v0.9.2"), (v(9, 2), true));
        let after = v(8, 5).map(|v| v.after("post1"));
        assert_eq!(vllm("0.8.5.post1"), (after, true));
        assert!(after > v(8, 5) && after < v(8, 6));
        assert_eq!(vllm("V0 0.6.3"), (v(6, 3), true));
        assert_eq!(vllm("0.7.0-dev V1"), (v(7, 0), true));
        assert_eq!(vllm("0.20.2rc1 (patched)"), (v(20, 2), true));
        assert_eq!(vllm("0.1x nightly 2026-02"), (v(15, 0), false));
        assert_eq!(vllm("0.1x (Feb 2026 runs)"), (v(15, 0), false));
        assert_eq!(vllm("0.1x 2026-05"), (v(19, 0), false));
        assert_eq!(vllm("0.1x"), (v(14, 0), false));
        assert_eq!(vllm("2026-04 fork"), (v(19, 0), false));
        assert_eq!(vllm("main"), (None, false));
        assert_eq!(
            version_of("1.x (TensorRT backend)", EngineId::TensorRtLlm),
            (Some(Version::new(1, 0, 0)), false)
        );
        assert_eq!(generation_of("0.7.0-dev V1"), Some(false));
        assert_eq!(generation_of("V0 0.6.3"), Some(true));
        assert_eq!(generation_of("0.9.2"), None);
    }

    #[test]
    fn what_names_no_release_means_several() {
        let vllm = |s| versions_of(s, EngineId::Vllm).map(|[a, b]| (a.minor, b.minor));
        assert_eq!(vllm("2026"), Some((14, 33)));
        assert_eq!(vllm("2026-05"), Some((19, 22)));
        assert_eq!(vllm("0.1x"), Some((10, 19)));
        assert_eq!(vllm("main"), None);
    }

    #[test]
    fn a_row_of_a_benchmark_table_is_a_case() {
        let case = read(&json!({
            "model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "H100-80GB", "tp": "2", "dtype": "torch.bfloat16",
            "quantization": "None", "kv_cache_dtype": "auto", "gpu_memory_utilization": "0.95",
            "max_model_len": "8192", "something": [1],
        }))
        .unwrap();
        assert_eq!(case.deployment.tp, 2);
        assert_eq!(case.deployment.dtype.as_deref(), Some("bfloat16"));
        assert_eq!(case.deployment.quantization, None);
        assert_eq!(case.deployment.memory_fraction, Some(0.95));
        assert_eq!(case.deployment.gpu.unwrap().total, (79.18 * GIB) as u64);
    }

    #[test]
    fn a_misspelt_key_is_refused_and_an_own_one_is_left_alone() {
        let line = |key: &str| json!({"model": "Qwen/Qwen3-8B", "gpu": "L4", key: 8192});
        let refused = read(&line("max_model_length")).unwrap_err();
        assert_eq!(refused.what, "`max_model_length` is no key of a line");
        assert_eq!(
            refused.hint.as_deref(),
            Some("did you mean `max_model_len`?")
        );
        for own in ["kv_pool_tokens", "note", "measured_gib", "something"] {
            assert!(read(&line(own)).is_ok(), "{own}");
        }
    }

    #[test]
    fn an_impossible_deployment_is_refused() {
        for line in [
            json!([]),
            json!({"gpu": "H100"}),
            json!({"model": "a", "tp": 0}),
            json!({"model": "a", "tp": 1.5}),
            json!({"model": "a", "max_model_len": -4}),
            json!({"model": "a", "gpu_memory_utilization": 1.2}),
            json!({"model": "a", "engine": "abacus"}),
            json!({"model": 7}),
            json!({"config": ["a"]}),
            json!({"model": "a", "gpu": "Voodoo 2"}),
        ] {
            assert!(read(&line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_mistyped_value_is_reported_with_its_key() {
        for (key, value) in [
            ("max_model_len", json!("8k")),
            ("max_model_len", json!("many")),
            ("max_num_seqs", json!([4])),
            ("tp", json!(8.5)),
            ("tp", json!(true)),
            ("max_loras", json!("two")),
            ("kv_cache_memory_bytes", json!("1g")),
            ("gpu_total_gib", json!(-5)),
            ("gpu_total_gib", json!(1e300)),
            ("gpu_total_gib", json!("80GB")),
            ("gpu_in_use_gib", json!(-1)),
            ("gpu_memory_utilization", json!("90%")),
            ("enforce_eager", json!("yes")),
            ("enforce_eager", json!(2)),
            ("flashinfer_sampler", json!([])),
            ("engine_version", json!([0, 19])),
            ("engine", json!(1)),
            ("quant", json!(7)),
            ("kv_dtype", json!(["fp8"])),
            ("dtype", json!(16)),
            ("gpu", json!(80)),
        ] {
            let message = read(&json!({"model": "a", key: value})).unwrap_err().what;
            let named = format!("`{key}` is {value}, not ");
            assert!(message.starts_with(&named), "{key} {value}: {message}");
        }
    }

    #[test]
    fn values_as_tables_write_them_are_read() {
        let case = |key: &str, value: Value| {
            let case = read(&json!({"model": "a", key: value})).unwrap();
            assert!(case.warnings.is_empty(), "{:?}", case.warnings);
            case.deployment
        };
        assert_eq!(case("tp", json!(8.0)).tp, 8);
        let version = case("engine_version", json!(0.19)).version;
        assert_eq!(version, Some(Version::new(0, 19, 0)));
        for yes in [
            json!(true),
            json!("True"),
            json!("true"),
            json!(1),
            json!("1.0"),
        ] {
            assert_eq!(
                case("enforce_eager", yes.clone()).eager,
                Some(true),
                "{yes}"
            );
        }
        for no in [json!(false), json!("False"), json!(0.0), json!("0")] {
            assert_eq!(case("enforce_eager", no.clone()).eager, Some(false), "{no}");
        }
        let plain = read(&json!({"model": "a"})).unwrap().deployment;
        for key in [
            "max_model_len",
            "enforce_eager",
            "quant",
            "gpu",
            "gpu_total_gib",
            "tp",
            "engine_version",
            "gpu_memory_utilization",
            "lora_rank",
            "engine",
        ] {
            for unset in [json!(null), json!(""), json!("None"), json!("nan")] {
                assert_eq!(case(key, unset.clone()), plain, "{key} {unset}");
            }
        }
    }

    #[test]
    fn a_case_may_bring_its_configuration() {
        let config = json!({"model_type": "llama"});
        let case = read(&json!({"config": config})).unwrap();
        assert_eq!((case.config, case.models.len()), (Some(config), 0));
    }
}
