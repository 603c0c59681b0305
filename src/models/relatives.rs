//! A model that does not ship by the name of one that does: quantised copies, mirrors and tunings of the same geometry.

use super::shipped::{self, Shipped};
use crate::estimate::format::FileType;
use crate::tables::read_table;
use serde::Deserialize;
use std::sync::LazyLock;

/// The table that ships.
const TABLE: &str = include_str!("../../configs/model-names.yaml");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    schemes: Vec<Ending>,
    tunings: Vec<String>,
    prefixes: Vec<String>,
    own: Vec<OwnFacts>,
}

/// What names have otherwise than the model that they share the rest with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnFacts {
    /// The longest sequence, tokens.
    pub tokens: Option<u64>,
    /// The quantisation.
    pub quantization: Option<String>,
    names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ending {
    end: String,
    quantization: String,
    owners: Option<Vec<String>>,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static NAMES: LazyLock<Names> = LazyLock::new(|| read_table(TABLE));

/// A model that ships with the geometry of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Relative {
    /// Its name.
    pub name: &'static str,
    /// The quantisation that the asked name means; `None`: as the one that ships.
    pub quantization: Option<String>,
}

/// The model that ships whose geometry one of this name has: `RedHatAI/Qwen3-8B-FP8-dynamic` is Qwen3-8B's.
/// `…-GGUF:Q4_K_M` is a file of that type, and `qwen3:8b` a tag of Ollama's library.
pub fn of(wanted: &str) -> Option<(Shipped, Relative)> {
    let (name, quantization) = read_name(wanted)?;
    let base = plain(&name);
    let all = || {
        shipped::all().flat_map(|model| model.names().map(move |n| (model, n)).collect::<Vec<_>>())
    };
    let last = |n: &str| n.rsplit('/').next().unwrap_or(n).to_ascii_lowercase();
    let exact = || all().find(|(_, n)| without_prefix(&last(n)) == without_prefix(&name));
    let alike = || all().find(|(_, n)| plain(&last(n)) == base);
    // Ollama writes `llama3.1:8b` for Llama-3.1-8B.
    let tag = !wanted.contains('/') && wanted.contains(':');
    let joined = |n: &str| plain(n).replace('-', "");
    let of_tag = || all().find(|(_, n)| tag && joined(&last(n)) == joined(&name));
    let (model, _) = exact().or_else(alike).or_else(of_tag)?;
    let name = model.name;
    let quantization = quantization.or_else(|| own_quantization(wanted));
    Some((model, Relative { name, quantization }))
}

/// The quantisation that a name or a file's name means: Q4_K_M of `Qwen3-32B-Q4_K_M.gguf`.
pub fn named_quantization(wanted: &str) -> Option<String> {
    (read_name(wanted)?.1).or_else(|| own_quantization(wanted))
}

/// What the config.json of a name has otherwise than that of the model that it is a copy of.
pub fn own_facts(wanted: &str) -> impl Iterator<Item = &'static OwnFacts> + use<> {
    let name = read_name(wanted).map(|(name, _)| name);
    let rows = NAMES.own.iter();
    rows.filter(move |row| name.as_ref().is_some_and(|name| row.names.contains(name)))
}

/// The quantisation that it states.
pub fn own_quantization(wanted: &str) -> Option<String> {
    own_facts(wanted).find_map(|own| own.quantization.clone())
}

/// A model's name in small letters, without its owner, and the quantisation that it means.
fn read_name(wanted: &str) -> Option<(String, Option<String>)> {
    let small = wanted.to_ascii_lowercase();
    let (path, tag) = match small.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (small.as_str(), None),
    };
    let (owner, name) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(tag) = tag else {
        // A file, `qwen3-8b-q4_k_m-00001-of-00002.gguf`, or a repository of one, `qwen3-8b-q8_0-gguf`.
        let stem = name.strip_suffix(".gguf");
        if let Some(stem) = stem.or(name.strip_suffix("-gguf")) {
            let stem = without_part(stem);
            if let Some((stem, format)) = FileType::split_name(stem) {
                return Some((stem.to_owned(), Some(format.to_ascii_uppercase())));
            }
        }
        let (name, quantization) = without_scheme(name, owner);
        return Some((name.to_owned(), quantization));
    };
    if let Some(bare) = name.strip_suffix("-gguf") {
        return Some((bare.to_owned(), Some(tag.to_ascii_uppercase())));
    }
    if !owner.is_empty() {
        return None;
    }
    // `8b-instruct-q8_0`: the format stands last.
    let (size, format) = match tag.rsplit_once('-') {
        Some((size, "fp16" | "f16" | "bf16")) => (size, Some("F16".to_owned())),
        Some((size, format)) if format.starts_with('q') => {
            (size, Some(format.to_ascii_uppercase()))
        }
        _ => (tag, None),
    };
    Some((format!("{name}-{size}"), format))
}

/// The name of a file in parts without the number of the part: `-00001-of-00003`.
fn without_part(stem: &str) -> &str {
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    let part = stem.rsplit_once("-of-").filter(|(_, all)| is_number(all));
    let before = part.and_then(|(before, _)| before.rsplit_once('-'));
    before
        .filter(|(_, n)| is_number(n))
        .map_or(stem, |(stem, _)| stem)
}

fn without_scheme<'a>(name: &'a str, owner: &str) -> (&'a str, Option<String>) {
    let of = |e: &&Ending| {
        let owned = e
            .owners
            .as_ref()
            .is_none_or(|o| o.iter().any(|o| o == owner));
        owned && name.len() > e.end.len() && name.ends_with(&e.end)
    };
    match NAMES.schemes.iter().find(of) {
        Some(e) => (
            &name[..name.len() - e.end.len()],
            Some(e.quantization.clone()),
        ),
        None => (name, None),
    }
}

fn without_prefix(name: &str) -> &str {
    let mut prefixes = NAMES.prefixes.iter();
    prefixes
        .find_map(|p| name.strip_prefix(p.as_str()))
        .unwrap_or(name)
}

/// A name without what changes no geometry.
fn plain(name: &str) -> &str {
    let mut name = without_prefix(name);
    while let Some(shorter) = NAMES
        .tunings
        .iter()
        .find_map(|t| name.strip_suffix(t.as_str()))
        .filter(|n| !n.is_empty())
    {
        name = shorter;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: &str) -> Option<(&'static str, Option<String>)> {
        of(wanted).map(|(_, r)| (r.name, r.quantization))
    }

    #[test]
    fn a_file_is_its_model_in_its_format() {
        let q4 = Some(("Qwen3-8B", Some("Q4_K_M".to_owned())));
        assert_eq!(found("/models/Qwen3-8B-Q4_K_M.gguf"), q4);
        assert_eq!(found("qwen3-8b.q4_k_m.gguf"), q4);
        assert_eq!(found("/models/Qwen3-8B-Q4_K_M-00001-of-00002.gguf"), q4);
        assert_eq!(found("user/Qwen3-8B-Q4_K_M-GGUF"), q4);
        assert_eq!(found("unsloth/Qwen3-8B-GGUF"), None);
        assert_eq!(found("/models/Qwen3-8B-mine.gguf"), None);
    }

    #[test]
    fn every_row_of_the_table_is_read_and_every_scheme_is_known() {
        let names: Names = serde_yaml::from_str(TABLE).unwrap();
        for ending in &names.schemes {
            let read = crate::estimate::format::named::read(
                &ending.quantization,
                crate::estimate::EngineId::Vllm,
            );
            assert!(read.is_ok(), "{ending:?}");
        }
    }

    #[test]
    fn names_have_their_own_longest_sequence() {
        for row in &NAMES.own {
            for name in &row.names {
                assert!(of(name).is_some(), "{name} leads to no model that ships");
            }
        }
        let own_length = |name: &str| own_facts(name).find_map(|own| own.tokens);
        assert_eq!(own_length("Qwen/QwQ-32B"), Some(40_960));
        assert_eq!(
            own_length("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8"),
            Some(262_144)
        );
        assert_eq!(own_length("Qwen/Qwen3-30B-A3B"), None);
    }

    #[test]
    fn tags_of_ollama_lead_to_a_model_and_its_format() {
        let is = |tag: &str| found(tag).map(|(name, scheme)| (name.to_lowercase(), scheme));
        assert_eq!(is("qwen3:8b").unwrap(), ("qwen3-8b".into(), None));
        let (name, scheme) = is("llama3.1:8b-instruct-q8_0").unwrap();
        assert!(name.starts_with("llama-3.1-8b"), "{name}");
        assert_eq!(scheme.as_deref(), Some("Q8_0"));
        assert_eq!(is("nothing:8b"), None);
    }

    #[test]
    fn copies_lead_to_what_they_were_made_of() {
        let is = |wanted: &str, name: &str, scheme: Option<&str>| {
            let expected = Some((name, scheme.map(str::to_owned)));
            let got = found(wanted);
            assert_eq!(
                got.as_ref().map(|(n, q)| (*n, q.clone())),
                expected,
                "{wanted}"
            );
        };
        is(
            "RedHatAI/Qwen3-8B-FP8-dynamic",
            "Qwen3-8B",
            Some("fp8_dynamic"),
        );
        is("Qwen/Qwen3-14B-FP8", "qwen3-14b", Some("fp8_block"));
        is("Qwen/Qwen3-32B-AWQ", "Qwen3-32B", Some("awq"));
        is(
            "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M",
            "llama-3.1-8b-instruct",
            Some("Q4_K_M"),
        );
        is("mirror/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B", None);
        // A copy in 16 bits of what its vendor quantised, and what a name's own configuration has otherwise.
        is("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b", Some("bf16"));
        is("zai-org/GLM-4.5-FP8", "glm-4.5", Some("fp8_channel"));
        is(
            "moonshotai/Kimi-K2-Thinking",
            "Kimi-K2-Instruct",
            Some("w4a16_experts"),
        );
    }

    #[test]
    fn what_is_another_model_leads_nowhere() {
        for wanted in [
            "Qwen/Qwen3-9B",
            "acme/own-model",
            "Qwen3-8B-GGUF",
            "x:y",
            "-fp8",
            "",
        ] {
            assert_eq!(found(wanted), None, "{wanted}");
        }
    }
}
