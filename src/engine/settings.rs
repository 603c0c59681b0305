//! Every setting of an engine's server that plimsoll knows: declared once, in configs/engine-settings.yaml.
//!
//! From this table an engine's command line is read and written, a case of `estimate --batch` and the flags of
//! `estimate` are read, and runs are compared. A new setting needs a row there, a field of `estimate::Deployment`, and,
//! where `profile` and `sweep` set it, a field of `RequestedSettings`.

use super::EngineId;
use crate::capture::{Mode, RequestedSettings};
use crate::tables::read_table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Type of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// A word.
    Text,
    /// A whole number, 1 or more.
    Count,
    /// A count of tokens; vLLM and plimsoll read `8k` and `8K`.
    Tokens,
    /// Above 0, at most 1.
    Share,
    /// Bytes, 1 MiB or more.
    Bytes,
    /// On or off.
    Switch,
}

/// A setting of an engine's server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its name in results, in a sweep file and in a case of a batch.
    pub name: String,
    /// Further names in a case of a batch.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Type of its value.
    pub kind: ValueKind,
    /// How each engine that has it names it, by the engine's name.
    engines: BTreeMap<String, EngineSetting>,
    /// The flag of `plimsoll estimate`, where it has one.
    pub flag: Option<EstimateFlag>,
}

/// A setting as one engine has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EngineSetting {
    names: Vec<String>,
    written: String,
    /// Values that this engine calls otherwise: vLLM's name to its own.
    values: BTreeMap<String, String>,
    /// The only values that it takes, beside `auto`; none where that is not known, or differs by release.
    choices: Vec<String>,
}

/// A flag of `plimsoll estimate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EstimateFlag {
    /// Its other name.
    pub alias: Option<String>,
    /// What `--help` calls its value.
    #[serde(default)]
    pub value_name: String,
    /// What `--help` prints of it.
    pub help: String,
    /// The setting without which it means nothing.
    pub requires: Option<String>,
}

/// The settings, in the order in which people read them.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let table = include_str!("../../configs/engine-settings.yaml");
    read_table(table)
});

impl Setting {
    /// The setting of this name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|s| s.name == name)
    }

    /// The setting that an engine's flag (with underscores) or variable is.
    pub fn of_engine(engine: EngineId, name: &str) -> Option<&'static Setting> {
        let mut settings = SETTINGS.iter();
        settings.find(|s| s.names(engine).any(|n| n == name))
    }

    /// The engine's own names for it, the preferred one first; none if it has no such setting.
    pub fn names(&self, engine: EngineId) -> impl Iterator<Item = &str> {
        let own = self.engines.get(engine.name).into_iter();
        own.flat_map(|e| e.names.iter().map(String::as_str))
    }

    /// The flags that engines have for it, without dashes: each with hyphens, and with underscores as TensorRT-LLM has it.
    pub fn flags_of_engines(&self) -> BTreeSet<String> {
        let names = self.engines.values().flat_map(|e| &e.names);
        let is_flag = |name: &&String| !name.contains(|c: char| c.is_ascii_uppercase());
        let both = |name: &String| [name.clone(), name.replace('_', "-")];
        names.filter(is_flag).flat_map(both).collect()
    }

    /// The value, under plimsoll's name or one of the engine's, with the name that it has there.
    pub fn value<'a>(
        &'a self,
        engine: EngineId,
        values: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut names = vec![self.name.as_str()];
        names.extend(self.names(engine).filter(|n| *n != self.name));
        // llama.cpp's slots share the context: a reported `max_model_len` is the part of one slot.
        if engine == EngineId::LlamaCpp && self.name == "max_model_len" {
            names.rotate_left(1);
        }
        let value = |name: &'a str| Some((name, values.get(name)?.trim()));
        names.into_iter().filter_map(value)
    }

    /// Replaces the value, under whichever name it is set.
    pub fn replace(&self, engine: EngineId, values: &mut BTreeMap<String, String>, value: &str) {
        for name in self.names(engine) {
            values.remove(name);
        }
        values.insert(self.name.clone(), value.to_owned());
    }

    /// Whether `profile` and `sweep` have a flag or a key of their own for it.
    pub fn is_requested(&self) -> bool {
        RequestedSettings::NAMES.contains(&self.name.as_str())
    }

    /// What the engine calls a value: `fp8` of vLLM's KV cache is `q8_0` of llama.cpp's.
    pub fn engine_value<'a>(&'a self, engine: EngineId, value: &'a str) -> &'a str {
        let own = self.engines.get(engine.name);
        own.and_then(|e| e.values.get(value))
            .map_or(value, String::as_str)
    }

    /// The only values that an engine takes, beside `auto`; none where that is not known.
    pub fn choices(&self, engine: EngineId) -> &[String] {
        self.engines.get(engine.name).map_or(&[], |e| &e.choices)
    }

    /// The words that set it on the engine's command line, or the engine's variable as `NAME=value`.
    fn written(&self, engine: EngineId, value: &str) -> Vec<String> {
        let own = self.engines.get(engine.name);
        let value = self.engine_value(engine, value);
        let words = own.map_or("", |e| &e.written).split_whitespace();
        words.map(|word| word.replace("{}", value)).collect()
    }
}

/// All flags and variables of an engine that the tables of settings and of flags name.
pub fn flag_names(engine: EngineId) -> impl Iterator<Item = &'static str> {
    /// The flags of configs/engine-flags.yaml; what each does to memory, `estimate` reads.
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct FlagLists {
        model: String,
        no_memory: String,
        host: String,
        computed: String,
        not_modelled: Vec<FlagRow>,
    }
    #[derive(Deserialize)]
    struct FlagRow {
        flags: String,
    }
    #[derive(Deserialize, Default)]
    struct FlagTable {
        engines: BTreeMap<String, FlagLists>,
    }
    static FLAGS: LazyLock<FlagTable> =
        LazyLock::new(|| read_table(include_str!("../../configs/engine-flags.yaml")));
    let of_engine = |(name, _): &(&String, _)| EngineId::from_name(name) == Ok(engine);
    let lists = FLAGS.engines.iter().find(of_engine).map(|(_, lists)| lists);
    let words = lists.into_iter().flat_map(|lists| {
        let moved = lists.not_modelled.iter().map(|row| &row.flags);
        [&lists.model, &lists.no_memory, &lists.host, &lists.computed]
            .into_iter()
            .chain(moved)
            .flat_map(|list| list.split_whitespace())
    });
    words.chain(SETTINGS.iter().flat_map(move |s| s.names(engine)))
}

/// The argument that sets one setting of an engine, as a person types it: `--max-model-len 8192`;
/// `None` where the engine has no such setting.
pub fn argument_text(engine: EngineId, name: &str, value: &str) -> Option<String> {
    let words = Setting::named(name)?.written(engine, value);
    (!words.is_empty()).then(|| words.join(" "))
}

/// The arguments, each with its value, that set these settings of an engine; settings that the
/// engine lacks are left out.
pub fn arguments_of(engine: EngineId, settings: &RequestedSettings) -> Vec<Vec<String>> {
    let set = settings.named().into_iter();
    let arguments =
        set.filter_map(|(name, value)| Some(Setting::named(name)?.written(engine, &value)));
    arguments.filter(|words| !words.is_empty()).collect()
}

/// A setting that was asked for and that a run did not take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredSetting {
    /// Its name, with underscores.
    pub setting: String,
    /// What was asked for.
    pub requested: String,
    /// Why it was not taken, a clause.
    pub reason: String,
}

impl IgnoredSetting {
    /// A sentence without a full stop.
    pub fn sentence(&self) -> String {
        format!(
            "--{} {} is ignored: {}",
            self.setting.replace('_', "-"),
            self.requested,
            self.reason
        )
    }
}

/// Those of the settings asked for that a run in this mode does not take: a server that runs has its own, and an
/// engine may have no such setting.
pub fn ignored_settings(
    engine: EngineId,
    mode: Mode,
    settings: &RequestedSettings,
) -> Vec<IgnoredSetting> {
    let reason = |name: &str, value: &str| match mode {
        Mode::Serving => Some("the server was running already".to_owned()),
        _ if argument_text(engine, name, value).is_some() => None,
        _ => Some(format!("{} has no such setting", engine.shown())),
    };
    let set = settings.named().into_iter();
    set.filter_map(|(name, value)| {
        Some(IgnoredSetting {
            reason: reason(name, &value)?,
            setting: name.to_owned(),
            requested: value,
        })
    })
    .collect()
}

/// Whether a variable is a secret by its name.
pub fn looks_secret(name: &str) -> bool {
    ["KEY", "TOKEN", "SECRET", "PASSWORD"]
        .iter()
        .any(|w| name.split('_').any(|part| part == *w))
}

/// The variables that are settings: the engine's own by their beginnings, secrets left out, and
/// the others that are named.
pub fn variables(
    env: BTreeMap<String, String>,
    own: &[&str],
    foreign: &[&str],
) -> impl Iterator<Item = (String, String)> {
    env.into_iter().filter(|(name, _)| {
        let is_own = own.iter().any(|prefix| name.starts_with(prefix));
        (is_own && !looks_secret(name)) || foreign.contains(&name.as_str())
    })
}

/// Puts values in under their common names, too, where these are not given: pairs of an engine's
/// own name and the common one.
pub fn name_commonly(values: &mut BTreeMap<String, String>, pairs: &[(&str, &str)]) {
    for (own, common) in pairs {
        if let Some(value) = values.get(*own).cloned() {
            values.entry((*common).to_owned()).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EngineId::{LlamaCpp, Ollama, Sglang, Vllm};
    use super::*;
    use std::collections::BTreeSet;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn variables_that_are_settings() {
        let env = map(&[
            ("X_LEVEL", "1"),
            ("X_API_KEY", "2"),
            ("X_KEYS", "3"),
            ("CUDA_VISIBLE_DEVICES", "4"),
            ("PATH", "5"),
        ]);
        let kept: Vec<String> = variables(env, &["X_"], &["CUDA_VISIBLE_DEVICES"])
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, ["CUDA_VISIBLE_DEVICES", "X_KEYS", "X_LEVEL"]);
    }

    /// vLLM's `fp8` is no type of llama.cpp's cache: the server would refuse to start.
    #[test]
    fn a_value_is_written_as_its_engine_calls_it() {
        let written = |engine, value| argument_text(engine, "kv_cache_dtype", value).unwrap();
        assert_eq!(written(Vllm, "fp8"), "--kv-cache-dtype fp8");
        assert_eq!(written(LlamaCpp, "fp8"), "-ctk q8_0 -ctv q8_0");
        assert_eq!(written(LlamaCpp, "q4_0"), "-ctk q4_0 -ctv q4_0");
        assert_eq!(written(Ollama, "fp8"), "OLLAMA_KV_CACHE_TYPE=q8_0");
        assert_eq!(written(Sglang, "auto"), "--kv-cache-dtype auto");
    }

    #[test]
    fn a_given_common_name_is_kept() {
        let mut values = map(&[("tp", "2"), ("len", "8"), ("max_len", "9")]);
        let pairs = [
            ("tp", "tensor_parallel"),
            ("len", "max_len"),
            ("no", "none"),
        ];
        name_commonly(&mut values, &pairs);
        assert_eq!(
            (
                values["tensor_parallel"].as_str(),
                values["max_len"].as_str()
            ),
            ("2", "9")
        );
        assert_eq!(values.len(), 4);
    }

    #[test]
    fn each_name_is_one_setting_of_its_engine() {
        for engine in EngineId::ALL {
            let all: Vec<&str> = SETTINGS.iter().flat_map(|s| s.names(*engine)).collect();
            let distinct: BTreeSet<&str> = all.iter().copied().collect();
            assert_eq!(all.len(), distinct.len(), "{engine:?}");
        }
        let mut names: Vec<&String> = SETTINGS.iter().map(|s| &s.name).collect();
        names.extend(SETTINGS.iter().flat_map(|s| &s.aliases));
        let distinct: BTreeSet<&&String> = names.iter().collect();
        assert!(!names.is_empty(), "the table is read");
        assert_eq!(names.len(), distinct.len());
        for setting in SETTINGS.iter() {
            let requires = setting.flag.iter().filter_map(|f| f.requires.as_ref());
            requires.for_each(|name| assert!(Setting::named(name).is_some(), "{name}"));
            for engine in setting.engines.keys() {
                assert!(EngineId::ALL.iter().any(|e| e.name == engine), "{engine}");
            }
        }
    }

    #[test]
    fn what_profile_and_sweep_set_has_a_row() {
        let all = RequestedSettings {
            dtype: Some("half".into()),
            quantization: Some("fp8".into()),
            kv_cache_dtype: Some("fp8".into()),
            tensor_parallel_size: Some(2),
            enforce_eager: true,
            gpu_memory_utilization: Some(0.8),
            max_model_len: Some(4096),
        };
        assert_eq!(arguments_of(Vllm, &all).len(), all.named().len());
        let words = |engine| arguments_of(engine, &all).concat().join(" ");
        assert_eq!(
            words(Sglang),
            "--dtype half --quantization fp8 --kv-cache-dtype fp8_e4m3 --tp-size 2 --mem-fraction-static 0.8 \
             --context-length 4096 --disable-cuda-graph"
        );
        assert_eq!(words(LlamaCpp), "-ctk q8_0 -ctv q8_0 -c 4096");
        assert_eq!(
            words(Ollama),
            "OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_CONTEXT_LENGTH=4096"
        );
    }
}
