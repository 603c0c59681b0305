//! Configuration that the log names: from the engine's banner, the argument line, the command line.

use super::VllmLog;
use super::readings::RankLine;
use crate::engine::facts::{Fact, FactKey, FactValue, key};
use crate::engine::log::figures::number;
use crate::engine::log::sheet::Sheet;
use memchr::memmem;
use std::collections::BTreeMap;

/// How well a line knows a setting; of two lines the higher one is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Concluded from something else.
    Inferred,
    /// Named in passing by a message.
    Mentioned,
    /// On the command line.
    Command,
    /// Among the arguments that the server repeats.
    Arguments,
    /// Printed by the component that uses it.
    Used,
    /// In the engine's own configuration.
    Banner,
    /// Changed afterwards by the engine.
    Adjusted,
}

/// Settings read so far.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    by_key: BTreeMap<FactKey, (Trust, Fact)>,
    /// Continuation lines that a banner may still have.
    banner_lines_left: u32,
    /// Whether the line of non-default arguments was seen.
    pub arguments_logged: bool,
    /// Whether a draft model is configured.
    pub speculative: bool,
}

/// Lines that a banner which is broken over lines may have.
const MOST_BANNER_LINES: u32 = 40;

/// Banner: key there, key here.
const BANNER_KEYS: &[(&str, FactKey)] = &[
    ("model", key::model),
    ("dtype", key::dtype),
    ("quantization", key::quantization),
    ("kv_cache_dtype", key::kv_cache_dtype),
    ("max_seq_len", key::max_model_len),
    ("tensor_parallel_size", key::tensor_parallel_size),
    ("pipeline_parallel_size", key::pipeline_parallel_size),
    ("data_parallel_size", key::data_parallel_size),
    (
        "decode_context_parallel_size",
        key::decode_context_parallel_size,
    ),
    ("enforce_eager", key::enforce_eager),
    ("device_config", key::device),
    ("served_model_name", key::served_model_name),
    ("enable_prefix_caching", key::enable_prefix_caching),
    ("chunked_prefill_enabled", key::enable_chunked_prefill),
    ("enable_chunked_prefill", key::enable_chunked_prefill),
];

/// Argument line: keys as they are here.
const ARGUMENT_KEYS: &[FactKey] = &[
    key::model,
    key::dtype,
    key::quantization,
    key::kv_cache_dtype,
    key::max_model_len,
    key::tensor_parallel_size,
    key::pipeline_parallel_size,
    key::data_parallel_size,
    key::decode_context_parallel_size,
    key::gpu_memory_utilization,
    key::enforce_eager,
    key::served_model_name,
    key::block_size,
    key::swap_space,
    key::cpu_offload_gb,
    key::kv_cache_memory_bytes,
    key::num_gpu_blocks_override,
    key::max_num_seqs,
    key::max_num_batched_tokens,
    key::enable_prefix_caching,
    key::enable_chunked_prefill,
];

impl Settings {
    /// Sets a value unless a better source set it. Of equal sources the first one wins.
    pub fn set(
        &mut self,
        key: FactKey,
        value: FactValue,
        trust: Trust,
        line: &RankLine<'_>,
        needle: &str,
    ) {
        // No name is that long; it is a log gone wrong.
        if matches!(&value, FactValue::Text(text) if text.len() > 1024) {
            return;
        }
        match self.by_key.get(&key) {
            Some((known, _)) if *known >= trust && trust != Trust::Adjusted => {}
            _ => {
                self.by_key.insert(key, (trust, line.fact(value, needle)));
            }
        }
    }

    /// Sets a size inferred from the ranks seen so far, which grows as higher ranks are seen.
    pub fn infer_size(&mut self, key: FactKey, size: u32, line: &RankLine<'_>) {
        if self
            .by_key
            .get(&key)
            .is_none_or(|(known, _)| *known == Trust::Inferred)
        {
            self.by_key.remove(&key);
            self.set(
                key,
                FactValue::Int(i64::from(size)),
                Trust::Inferred,
                line,
                "",
            );
        }
    }

    /// Whether a value was concluded, not printed.
    pub fn is_inferred(&self, key: FactKey) -> bool {
        self.by_key
            .get(&key)
            .is_some_and(|(trust, _)| *trust == Trust::Inferred)
    }

    /// The settings as facts.
    pub fn facts(&self) -> impl Iterator<Item = (FactKey, &Fact)> {
        self.by_key.iter().map(|(key, (_, fact))| (*key, fact))
    }

    /// The value of a setting.
    pub fn get(&self, key: FactKey) -> Option<&FactValue> {
        self.by_key.get(&key).map(|(_, fact)| &fact.value)
    }

    /// Whether a banner is going on: some copies break it into many lines.
    pub fn banner_open(&self) -> bool {
        self.banner_lines_left > 0
    }

    /// Reads a line below an open banner. `record`: whether it begins a new record.
    pub fn continue_banner(&mut self, line: &RankLine<'_>, record: bool) {
        if record {
            self.banner_lines_left = 0;
            return;
        }
        let left = self.banner_lines_left - 1;
        self.banner(line, line.text);
        self.banner_lines_left = left.min(self.banner_lines_left);
    }

    fn banner(&mut self, line: &RankLine<'_>, text: &str) {
        // Whole banners name the device; one that does not is broken over lines.
        self.banner_lines_left = if line.text.contains("device_config=") {
            0
        } else {
            MOST_BANNER_LINES
        };
        for (theirs, ours) in BANNER_KEYS {
            if let Some(value) = value_of(text, theirs, "=", "") {
                self.take(
                    *ours,
                    value,
                    Trust::Banner,
                    line,
                    &format!("{theirs}={value}"),
                );
            }
        }
        self.speculative |=
            value_of(text, "speculative_config", "=", "").is_some_and(|v| v != "None");
    }

    fn arguments(&mut self, line: &RankLine<'_>, text: &str, separator: &str, mark: &str) {
        self.arguments_logged = true;
        for key in ARGUMENT_KEYS {
            if let Some(value) = value_of(text, key.name(), separator, mark) {
                self.take(
                    *key,
                    value,
                    Trust::Arguments,
                    line,
                    &format!("{key}{separator}"),
                );
            }
        }
        // The old `vllm serve MODEL` leaves `model` at its default and sets model_tag.
        if let Some(value) = value_of(text, "model_tag", separator, mark) {
            if value != "None" {
                self.by_key
                    .retain(|key, (trust, _)| *key != key::model || *trust > Trust::Arguments);
                self.take(key::model, value, Trust::Arguments, line, "model_tag");
            }
        }
        self.speculative |=
            value_of(text, "speculative_config", separator, mark).is_some_and(|v| v != "None");
    }

    /// A command that a script echoed: `vllm serve MODEL --flag value`, `text` after `serve`.
    fn command(&mut self, line: &RankLine<'_>, text: &str) {
        let before = line.text.split("vllm serve ").next().unwrap_or_default();
        // Prose mentions `vllm serve` too; a command is alone, or after a prompt or a time.
        if !before.trim_end().is_empty() && !before.trim_end().ends_with([']', '$', '+', '#']) {
            return;
        }
        let mut words = text.split_whitespace();
        let Some(model) = words.next().filter(|m| !m.starts_with(['-', '['])) else {
            return;
        };
        self.take(key::model, model, Trust::Command, line, "vllm serve ");
        while let Some(flag) = words.next() {
            let Some(name) = flag.strip_prefix("--") else {
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, value),
                None => (
                    name,
                    words
                        .clone()
                        .next()
                        .filter(|v| !v.starts_with("--"))
                        .unwrap_or("True"),
                ),
            };
            let name = name.replace('-', "_");
            if let Some(key) = ARGUMENT_KEYS.iter().find(|k| k.name() == name) {
                self.take(*key, value, Trust::Command, line, flag);
            }
        }
    }

    fn take(&mut self, key: FactKey, value: &str, trust: Trust, line: &RankLine<'_>, needle: &str) {
        let value = value.trim().trim_matches(['\'', '"']);
        if value.is_empty() || value == "None" {
            return;
        }
        let value = match key {
            key::dtype => FactValue::Text(value.trim_start_matches("torch.").to_owned()),
            key::model
            | key::quantization
            | key::kv_cache_dtype
            | key::device
            | key::served_model_name => FactValue::Text(value.to_owned()),
            _ => match (value, number(value)) {
                ("True", _) => FactValue::Bool(true),
                ("False", _) => FactValue::Bool(false),
                (_, Some((n, ""))) if n.whole => FactValue::Int(n.value as i64),
                (_, Some((n, ""))) => FactValue::Float(n.value),
                _ => return,
            },
        };
        // `auto` is a request, not a type.
        if trust < Trust::Banner && key == key::dtype && value == FactValue::Text("auto".to_owned())
        {
            return;
        }
        self.set(key, value, trust, line, needle);
    }
}

/// `Initializing a V1 LLM engine (v0.25.0) with config: model='/m', …`.
pub fn read_banner(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    log.settings.banner(line, rest);
}

/// `non-default args: {'model': '/m', …}`.
pub fn read_arguments(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    log.settings.arguments(line, rest, "': ", "'");
}

/// `args: Namespace(model='/m', …)`.
pub fn read_namespace(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    log.settings.arguments(line, rest, "=", "");
}

/// `vllm serve /m --flag value`.
pub fn read_command(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    log.settings.command(line, rest);
}

/// The value of `key` in a Python repr: `key=value` or `'key': value`.
fn value_of<'a>(text: &'a str, key: &str, separator: &str, mark: &str) -> Option<&'a str> {
    let needle = format!("{mark}{key}{separator}");
    let is_whole = |at: &usize| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
    };
    let at = memmem::find_iter(text.as_bytes(), &needle).find(is_whole)?;
    let start = at + needle.len();
    let rest = &text[start..];
    let value = rest.trim_start_matches('[');
    let end = match value.chars().next()? {
        quote @ ('\'' | '"') => value[1..].find(quote).map_or(value.len(), |i| i + 2),
        _ => value.find([',', ')', '}', ']', ' ']).unwrap_or(value.len()),
    };
    Some(&value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::LogParser;
    use crate::engine::vllm::log::VllmLogParser;

    fn read(texts: &[&str]) -> BTreeMap<String, FactValue> {
        let mut parser = VllmLogParser::default();
        for text in texts {
            parser.line(text.as_bytes(), None);
        }
        let facts = parser.report().facts;
        facts
            .into_iter()
            .map(|(k, f)| (k.to_string(), f.value))
            .collect()
    }

    #[test]
    fn nested_objects_do_not_shadow_the_engine() {
        let facts = read(&[
            "Initializing a V1 LLM engine (v0.25.0) with config: model='/m', speculative_config=SpeculativeConfig(method='mtp', model='/draft'), dtype=torch.bfloat16, max_seq_len=8192, quantization=None, quantization_config=None, kv_cache_dtype=fp8, device_config=cuda",
        ]);
        assert_eq!(facts["model"], FactValue::Text("/m".into()));
        assert_eq!(facts["dtype"], FactValue::Text("bfloat16".into()));
        assert_eq!(facts["kv_cache_dtype"], FactValue::Text("fp8".into()));
        assert_eq!(facts["max_model_len"], FactValue::Int(8192));
        assert!(!facts.contains_key("quantization"));
    }

    #[test]
    fn the_banner_beats_the_arguments() {
        let facts = read(&[
            "args: Namespace(model_tag='org/m', model='facebook/opt-125m', dtype='auto', max_model_len=None, gpu_memory_utilization=0.9, block_size=16)",
            "Initializing an LLM engine (v0.6.2) with config: model='org/m', dtype=torch.float16, max_seq_len=4096, device_config=cuda",
        ]);
        assert_eq!(facts["model"], FactValue::Text("org/m".into()));
        assert_eq!(facts["gpu_memory_utilization"], FactValue::Float(0.9));
        assert_eq!(facts["block_size"], FactValue::Int(16));
        assert_eq!(facts["max_model_len"], FactValue::Int(4096));
    }

    #[test]
    fn a_key_is_a_whole_word() {
        let facts = read(&[
            "Initializing an LLM engine (v0.6.2) with config: kv_cache_dtype=fp8, dtype=torch.float16, device_config=cuda",
        ]);
        assert_eq!(facts["dtype"], FactValue::Text("float16".into()));
    }

    #[test]
    fn prose_about_the_command_is_no_command() {
        assert!(read(&["Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."]).is_empty());
        let facts = read(&[
            "[2025-01-05 11:32:46] vllm serve org/m --tensor-parallel-size 8 --gpu-memory-utilization 0.95",
        ]);
        assert_eq!(facts["tensor_parallel_size"], FactValue::Int(8));
        assert_eq!(facts["gpu_memory_utilization"], FactValue::Float(0.95));
    }
}
