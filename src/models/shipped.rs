//! The facts that ship: config.json's fields of well-known models (configs/models/*.jsonl).

use crate::error::Failure;
use serde_json::Value;

/// One JSON object on each line; the order of its keys is name, ids, source, note, config.
const FILES: &[&str] = &[
    include_str!("../../configs/models/deepseek.jsonl"),
    include_str!("../../configs/models/gemma.jsonl"),
    include_str!("../../configs/models/glm.jsonl"),
    include_str!("../../configs/models/kimi.jsonl"),
    include_str!("../../configs/models/llama.jsonl"),
    include_str!("../../configs/models/minimax.jsonl"),
    include_str!("../../configs/models/mistral.jsonl"),
    include_str!("../../configs/models/nemotron.jsonl"),
    include_str!("../../configs/models/other.jsonl"),
    include_str!("../../configs/models/qwen.jsonl"),
];

/// A model that ships.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// Its short name: `Meta-Llama-3.1-8B`.
    pub name: &'static str,
    /// As `"org/name","org/name"`.
    ids: &'static str,
    line: &'static str,
}

impl Shipped {
    /// From its line, of which only the beginning is read. `None` where the line is not ours.
    fn of(line: &'static str) -> Option<Self> {
        let (name, rest) = line.strip_prefix("{\"name\":\"")?.split_once('"')?;
        let (ids, _) = rest.strip_prefix(",\"ids\":[")?.split_once(']')?;
        Some(Shipped { name, ids, line })
    }

    /// The ids that the Hugging Face hub knows it by.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> {
        self.ids
            .split(',')
            .map(|id| id.trim_matches('"'))
            .filter(|id| !id.is_empty())
    }

    /// All names of it.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.ids())
    }

    /// Its config.json, as far as it is read; and its source.
    ///
    /// # Errors
    /// When the line cannot be parsed, which a test forbids.
    pub fn read(&self) -> Result<(Value, String), Failure> {
        let wrong = || Failure::bug("plimsoll's built-in table of models cannot be read");
        let mut value: Value = serde_json::from_str(self.line).map_err(|e| wrong().caused_by(e))?;
        let source = value.get("source").and_then(Value::as_str);
        let source = source.ok_or_else(wrong)?.to_owned();
        let config = value.get_mut("config").ok_or_else(wrong)?.take();
        Ok((config, source))
    }
}

/// Every model that ships.
pub fn all() -> impl Iterator<Item = Shipped> {
    FILES
        .iter()
        .flat_map(|file| file.lines())
        .filter_map(Shipped::of)
}

/// The model that is called so: as it is written, else whatever the case of the letters.
pub fn named(name: &str) -> Option<Shipped> {
    let exact = all().find(|m| m.names().any(|n| n == name));
    exact.or_else(|| all().find(|m| m.names().any(|n| n.eq_ignore_ascii_case(name))))
}

/// The names of all models.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    all().flat_map(|m| m.names().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model;
    use crate::wording::near_names;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_is_sound() {
        let lines: usize = FILES.iter().map(|f| f.lines().count()).sum();
        assert_eq!(all().count(), lines, "a line does not begin as the others");
        let mut names = BTreeSet::new();
        for shipped in all() {
            for name in shipped.names() {
                assert!(names.insert(name), "`{name}` is there twice");
                assert!(!name.contains('\\'), "`{name}` needs escapes");
            }
            let whole: Value = serde_json::from_str(shipped.line).unwrap();
            assert_eq!(whole["name"], shipped.name);
            let ids: Vec<&str> = shipped.ids().collect();
            assert_eq!(whole["ids"], serde_json::json!(ids));
            let (config, source) = shipped.read().unwrap();
            assert!(source.len() > 8, "{}: who says so?", shipped.name);
            assert!(config.is_object(), "{}", shipped.name);
            assert!(
                !shipped.line.contains(" more\""),
                "{}: a list was cut",
                shipped.name
            );
        }
        assert!(names.len() >= 199);
    }

    #[test]
    fn every_model_that_ships_is_understood() {
        for shipped in all() {
            let (config, source) = shipped.read().unwrap();
            let model = model::from_config(shipped.name, &config, &source);
            let model = model.unwrap_or_else(|e| panic!("{}: {e}", shipped.name));
            let parameters = model.parameters();
            assert!(
                (20_000_000..3_000_000_000_000).contains(&parameters),
                "{}: {parameters}",
                shipped.name
            );
            assert!(!model.mixers.is_empty(), "{}", shipped.name);
        }
    }

    #[test]
    fn a_model_is_found_by_any_of_its_names() {
        for name in [
            "Meta-Llama-3.1-8B",
            "meta-llama/Llama-3.1-8B",
            "META-LLAMA/llama-3.1-8b",
        ] {
            assert_eq!(named(name).unwrap().name, "Meta-Llama-3.1-8B");
        }
        // Two that differ only in case are distinct where they are written exactly.
        assert_eq!(named("qwen3-30b-a3b").unwrap().name, "qwen3-30b-a3b");
        assert_eq!(named("Qwen3-30B-A3B").unwrap().name, "Qwen3-30B-A3B");
        assert!(named("no-such-model").is_none());
    }

    #[test]
    fn a_misspelt_name_leads_to_the_right_one() {
        let near = |name| near_names(name, all_names(), 3);
        assert_eq!(
            near("meta-llama/Lama-3.1-8B-Instuct")[0],
            "meta-llama/Llama-3.1-8B-Instruct"
        );
        assert!(near("zzzzzz").is_empty());
    }
}
