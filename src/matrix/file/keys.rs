//! The keys of the file: their names, what each takes, and a sentence on each; and the schema that follows.

use super::super::expand::AxisKey;
use super::super::taken::ArgumentFlag;
use crate::tables::read_table;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The table of keys, `configs/sweep-keys.yaml`.
#[derive(Debug, Default, Deserialize)]
pub struct KeyTable {
    /// What a key takes: JSON Schema of its values.
    kinds: BTreeMap<String, Value>,
    /// Keys of the file itself.
    pub file: Vec<KeySpec>,
    /// Keys of an entry.
    pub entry: Vec<KeySpec>,
}

/// A key.
#[derive(Debug, Default, Deserialize)]
pub struct KeySpec {
    /// Its name.
    pub name: String,
    /// Other names that people write.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What it takes, one of the table's kinds; for the schema.
    kind: String,
    /// What it is; for the schema.
    about: String,
}

/// The table that ships.
pub static KEYS: LazyLock<KeyTable> =
    LazyLock::new(|| read_table(include_str!("../../../configs/sweep-keys.yaml")));

/// JSON Schema of the sweep file for editors, draft 2020-12. It holds less than the reader checks: nothing across keys.
pub fn sweep_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plimsoll sweep file",
        "type": "object",
        "required": ["models"],
        "additionalProperties": false,
        "properties": KEYS.properties(&KEYS.file),
        "$defs": {
            "entry": {
                "type": "object",
                "additionalProperties": false,
                "properties": KEYS.properties(&KEYS.entry),
            },
            "variable": {
                "type": "string",
                "pattern": "\\$\\{",
                "description": "A text with a variable: ${NAME} or ${NAME:-default}.",
            },
        },
    })
}

impl KeyTable {
    fn properties(&self, keys: &[KeySpec]) -> Value {
        let mut properties = Map::new();
        for key in keys {
            for name in key.aliases.iter().chain([&key.name]) {
                let mut schema = self.kinds.get(&key.kind).cloned().unwrap_or_default();
                schema["description"] = if *name == key.name {
                    key.about.clone().into()
                } else {
                    format!("{} The same as `{}`.", key.about, key.name).into()
                };
                properties.insert(name.clone(), schema);
            }
        }
        properties.into()
    }
}

/// Facts on a model, kept with the results.
pub const ARCHITECTURE: [&str; 6] = [
    "model_params",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_size",
];

/// How a container is started.
pub const RUN_OPTIONS: [&str; 8] = [
    "gpus", "amd", "shm_size", "memory", "ipc_host", "env", "volumes", "hf_cache",
];

/// The key of a name, or of another name for it.
pub fn find_key(keys: &'static [KeySpec], name: &str) -> Option<&'static KeySpec> {
    keys.iter()
        .find(|k| k.name == name || k.aliases.iter().any(|a| a == name))
}

/// Axes with keys of their own, in the order of [`AxisKey`]. `image` is `Place` as well.
const AXES: &[(&str, AxisKey)] = &[
    ("model_id", AxisKey::Model),
    ("container_name", AxisKey::Place),
    ("image", AxisKey::Place),
    ("tensor_parallel_size", AxisKey::TensorParallelSize),
    ("dtype", AxisKey::Dtype),
    ("quantization", AxisKey::Quantization),
    ("kv_cache_dtype", AxisKey::KvCacheDtype),
    ("gpu_memory_utilization", AxisKey::GpuMemoryUtilization),
    ("max_model_len", AxisKey::MaxModelLen),
    ("enforce_eager", AxisKey::EnforceEager),
    ("input_lengths", AxisKey::InputLen),
    ("output_lengths", AxisKey::OutputLen),
    ("batch_sizes", AxisKey::BatchSize),
    ("request_rates", AxisKey::RequestRate),
];

/// The axis of a key, by its first name.
pub fn axis_of(name: &str) -> Option<AxisKey> {
    AXES.iter()
        .find(|(n, _)| *n == name)
        .map(|(_, key)| key.clone())
}

/// Names of keys that are axes.
pub fn axis_names() -> impl Iterator<Item = &'static str> {
    AXES.iter().map(|(n, _)| *n)
}

/// The key of an axis, as an error names it.
pub fn name_of(axis: &AxisKey) -> String {
    match axis {
        AxisKey::Argument(flag) => format!("engine_args.{}", flag.as_str().trim_start_matches('-')),
        other => AXES
            .iter()
            .find(|(_, key)| key == other)
            .map_or(String::new(), |(n, _)| (*n).to_owned()),
    }
}

/// An argument's name as a flag: `max-num-seqs` → `--max-num-seqs`; what begins with a dash stays.
/// `None` for what can be no flag.
pub fn flag_of_name(name: &str) -> Option<ArgumentFlag> {
    let bare = name.trim_start_matches('-');
    let sound = !bare.is_empty() && !bare.contains(|c: char| c.is_whitespace() || c == '=');
    sound.then(|| {
        if name.starts_with('-') {
            name.into()
        } else {
            format!("--{name}").into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::cell::BenchWord;
    use super::*;

    #[test]
    fn every_kind_is_known_and_every_bench_is_named() {
        let keys = KEYS.file.iter().chain(&KEYS.entry);
        assert!(keys.clone().count() > 40);
        for key in keys {
            assert!(KEYS.kinds.contains_key(&key.kind), "{key:?}");
        }
        let benches = KEYS.kinds["bench"].pointer("/anyOf/0/anyOf/0/enum");
        let words = BenchWord::ALL.map(|(word, _)| word);
        assert_eq!(benches, Some(&json!(words)));
    }
}
