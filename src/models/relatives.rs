//! A model that does not ship by the name of one that does: quantised copies, mirrors and tunings of the same geometry.

use super::shipped::{self, Shipped};
use crate::estimate::format::FileType;
use crate::tables::read_table;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The table that ships.
const TABLE: &str = include_str!("../../configs/model-names.yaml");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    schemes: Vec<Ending>,
    tunings: Vec<String>,
    pooling: Vec<String>,
    prefixes: Vec<String>,
    own: Vec<OwnFacts>,
    usual_tags: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
    own_files: Vec<String>,
}

/// What names have otherwise than the model that they share the rest with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnFacts {
    /// The longest sequence, tokens.
    pub tokens: Option<u64>,
    /// The quantisation.
    pub quantization: Option<String>,
    /// It embeds or scores: it has no output layer.
    #[serde(default)]
    pools: bool,
    names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ending {
    end: String,
    quantization: String,
    owners: Option<Vec<String>>,
    /// Beginnings of the name behind its owner.
    #[serde(default)]
    of: Vec<String>,
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
    /// The one that ships is a quantised copy: its own format is not the asked one's.
    pub other_format: bool,
    /// The asked name differs in more than its format: `-thinking`, a date.
    pub is_tuned: bool,
}

/// The model that ships whose geometry one of this name has: `RedHatAI/Qwen3-8B-FP8-dynamic` is Qwen3-8B's.
/// `…-GGUF:Q4_K_M` is a file of that type, and `qwen3:8b` a tag of Ollama's library.
pub fn of(wanted: &str) -> Option<(Shipped, Relative)> {
    let read = read_name(wanted)?;
    let mut names = std::iter::once(read.name.as_str()).chain(without_owner(&read.name));
    let (model, other_format) = names.find_map(|name| alike(name, read.is_tag))?;
    let name = model.name;
    let quantization = read.quantization.or_else(|| own_quantization(wanted));
    let base = |name: &str| without_scheme(&last_part(name), "").0.to_owned();
    let own = without_owner(&read.name).unwrap_or(&read.name);
    Some((
        model,
        Relative {
            is_tuned: ![own, &read.name].contains(&base(name).as_str()) && !read.is_tag,
            name,
            quantization,
            other_format,
        },
    ))
}

/// What two names that are alike have in common.
type Key<'a> = &'a dyn Fn(&str) -> String;

/// The model that ships with the geometry of this name, and whether it is a quantised copy.
fn alike(name: &str, is_tag: bool) -> Option<(Shipped, bool)> {
    let all: Vec<(Shipped, String)> = shipped::all()
        .flat_map(|model| {
            model
                .names()
                .map(move |n| (model, last_part(n)))
                .collect::<Vec<_>>()
        })
        .collect();
    // The same without the format of those that are quantised copies.
    let copies = || {
        let base = |(model, n): &(Shipped, String)| {
            let (base, scheme) = without_scheme(n, "");
            scheme.map(|_| (*model, base.to_owned()))
        };
        all.iter().filter_map(base).collect::<Vec<_>>()
    };
    // Ollama writes `llama3.1:8b` for Llama-3.1-8B, and `qwen3:30b` for Qwen3-30B-A3B.
    let joined = |n: &str| plain(n).replace('-', "");
    let whole = |n: &str| without_active(plain(n)).replace('-', "");
    let keys: [(bool, Key<'_>); 4] = [
        (true, &|n| without_prefix(n).to_owned()),
        (true, &|n| plain(n).to_owned()),
        (is_tag, &joined),
        (is_tag, &whole),
    ];
    let first = |among: &[(Shipped, String)]| {
        keys.iter()
            .filter(|(counts, _)| *counts)
            .find_map(|(_, key)| {
                let wanted = key(name);
                let mut fit = among.iter().filter(|(_, n)| key(n) == wanted);
                let (model, found) = fit.next()?;
                // With two of that size it could be either.
                fit.all(|(_, n)| joined(n) == joined(found))
                    .then_some(*model)
            })
    };
    let own = first(&all).map(|model| (model, false));
    own.or_else(|| first(&copies()).map(|model| (model, true)))
}

fn ships(name: &str) -> bool {
    shipped::named(name).is_some()
}

/// A name in small letters, without its owner.
fn last_part(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase()
}

/// The quantisation that a name or a file's name means: Q4_K_M of `Qwen3-32B-Q4_K_M.gguf`.
pub fn named_quantization(wanted: &str) -> Option<String> {
    (read_name(wanted)?.quantization).or_else(|| own_quantization(wanted))
}

/// Whether a name without a tag is one of which Ollama's library has a usual one.
pub fn has_usual_tag(wanted: &str) -> bool {
    let name = wanted.to_ascii_lowercase();
    NAMES.usual_tags.contains_key(&name)
}

/// Whether the files of a repository of GGUF keep the format of the model's own configuration.
pub fn keeps_format(wanted: &str) -> bool {
    let name = last_part(wanted);
    let name = name.strip_suffix("-gguf").unwrap_or(&name);
    NAMES.own_files.contains(&plain(name))
}

/// What the config.json of a name has otherwise than that of the model that it is a copy of.
pub fn own_facts(wanted: &str) -> impl Iterator<Item = &'static OwnFacts> + use<> {
    let name = read_name(wanted).map(|read| read.name).unwrap_or_default();
    NAMES.own.iter().filter(move |row| {
        let has = |name: &str| row.names.iter().any(|own| own == name);
        has(&name) || without_owner(&name).is_some_and(has)
    })
}

/// bartowski writes `Qwen_Qwen3-8B-GGUF` of Qwen/Qwen3-8B.
fn without_owner(name: &str) -> Option<&str> {
    name.split_once('_').map(|(_, name)| name)
}

/// The quantisation that it states; files of Ollama's library have one of their own.
pub fn own_quantization(wanted: &str) -> Option<String> {
    if read_name(wanted).is_some_and(|read| read.is_tag) {
        return None;
    }
    own_facts(wanted).find_map(|own| own.quantization.clone())
}

/// The tag without `-cloud`, which names a model on Ollama's own servers: `gpt-oss:120b` of `gpt-oss:120b-cloud`.
pub fn without_cloud(wanted: &str) -> Option<&str> {
    let local = wanted.strip_suffix("cloud")?.strip_suffix(['-', ':'])?;
    (wanted.contains(':') && !local.is_empty()).then_some(local)
}

/// Whether a name is that of a model which embeds or scores.
pub fn does_pool(wanted: &str) -> bool {
    let name = last_part(wanted);
    NAMES
        .pooling
        .iter()
        .any(|part| name.contains(part.as_str()))
        || own_facts(wanted).any(|own| own.pools)
}

/// Whether one name may be a slip of the other: another family, another generation of it or a word more is another model,
/// however few letters differ.
pub fn is_near(wanted: &str, name: &str) -> bool {
    let is_slip = |one: &str, other: &str| {
        one == other || one.len() > 3 && strsim::damerau_levenshtein(one, other) <= 1
    };
    let words = |name: &str| {
        let name = last_part(name);
        let all = name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .map(str::to_owned);
        all.filter(|w| w.len() > 1 && w.bytes().all(|b| b.is_ascii_alphabetic()))
            .collect::<Vec<_>>()
    };
    let ((family, generation), (own, of)) = (family(wanted), self::family(name));
    let known = words(name);
    let each = |word: &String| known.iter().any(|own| is_slip(own, word));
    is_slip(&own, &family) && of == generation && words(wanted).iter().all(each)
}

/// The family and generation of a model's name: `qwen` and `3.5`, `deepseek` and `r1`, `mistral` and nothing.
fn family(name: &str) -> (String, String) {
    let name = last_part(name);
    let name = without_prefix(&name);
    let mut parts = name.split(['-', ':', '_']).filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default();
    let letters = first
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(first.len());
    let (family, rest) = first.split_at(letters);
    let is_size = |part: &str| {
        let number = part.strip_suffix(['b', 'm']).unwrap_or("");
        !number.is_empty()
            && number
                .bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'x'))
    };
    let own = |part: &&str| part.bytes().any(|b| b.is_ascii_digit()) && !is_size(part);
    let generation = match rest {
        "" => parts.next().filter(own).unwrap_or_default(),
        rest => rest,
    };
    (family.to_owned(), generation.to_owned())
}

/// What a name stands for.
struct Reading {
    /// The model's, in small letters, without its owner.
    name: String,
    /// The quantisation that it means.
    quantization: Option<String>,
    /// It is one of Ollama's.
    is_tag: bool,
}

impl Reading {
    fn of(name: &str, quantization: Option<String>) -> Reading {
        Reading {
            name: name.to_owned(),
            quantization,
            is_tag: false,
        }
    }
}

fn read_name(wanted: &str) -> Option<Reading> {
    let small = wanted.to_ascii_lowercase();
    let (path, tag) = match small.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (small.as_str(), None),
    };
    let (owner, name) = path.rsplit_once('/').unwrap_or(("", path));
    let owner = owner.rsplit('/').next().unwrap_or(owner);
    if owner.is_empty() && !name.ends_with("-gguf") {
        // DeepSeek-R1 alone is the model that ships.
        let usual = || (NAMES.usual_tags.get(name)).filter(|_| tag.is_some() || !ships(name));
        let given = tag.filter(|tag| *tag != "latest");
        if let Some(tag) = given.or_else(|| usual().map(String::as_str)) {
            return Some(read_tag(name, tag));
        }
    }
    if let Some(tag) = tag {
        let bare = name.strip_suffix("-gguf")?;
        let format = tag.strip_prefix("i1-").unwrap_or(tag);
        return Some(Reading::of(bare, Some(format.to_ascii_uppercase())));
    }
    // A file, `qwen3-8b-q4_k_m-00001-of-00002.gguf`, or a repository of one, `qwen3-8b-q8_0-gguf`. The cache of llama.cpp
    // writes the repository in front: `unsloth_qwen3-32b-gguf_qwen3-32b-q4_k_m.gguf`.
    let file = name.strip_suffix(".gguf");
    let file = file.map(|file| file.rsplit_once("-gguf_").map_or(file, |(_, file)| file));
    if let Some(stem) = file.or(name.strip_suffix("-gguf")) {
        let stem = without_part(stem);
        if let Some((stem, format)) = FileType::split_name(stem) {
            return Some(Reading::of(stem, Some(format.to_ascii_uppercase())));
        }
        let (bare, scheme) = without_scheme(stem, owner);
        if keeps_format(bare) {
            return Some(Reading::of(bare, scheme));
        }
    }
    let (name, quantization) = without_scheme(name, owner);
    Some(Reading::of(name, quantization))
}

/// A tag of Ollama's library: `8b`, `8b-instruct-q8_0`, `27b-it-qat`. The format stands last.
fn read_tag(name: &str, tag: &str) -> Reading {
    let (size, format) = match tag.rsplit_once('-') {
        Some((size, "fp16" | "f16" | "bf16")) => (size, Some("F16".to_owned())),
        // What is trained for four bits is kept in this type.
        Some((size, "qat")) => (size, Some("Q4_0".to_owned())),
        Some((size, format)) if FileType::of_name(format).is_some() => {
            (size, Some(format.to_ascii_uppercase()))
        }
        _ => (tag, None),
    };
    let whole = format!("{name}:{size}");
    let begins = |own: &str| {
        let rest = whole.strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let fit = NAMES.tags.iter().filter(|(own, _)| begins(own));
    let listed = fit.max_by_key(|(own, _)| own.len());
    Reading {
        name: listed.map_or_else(|| format!("{name}-{size}"), |(_, model)| last_part(model)),
        quantization: format,
        is_tag: true,
    }
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
        let begun = e.of.is_empty() || e.of.iter().any(|of| last_part(name).starts_with(of));
        owned && begun && name.len() > e.end.len() && name.ends_with(&e.end)
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
fn plain(name: &str) -> String {
    let mut name = without_prefix(name);
    let ends = |name: &str| {
        let tuning = NAMES.tunings.iter().find(|t| name.ends_with(t.as_str()));
        tuning.map(String::len).or_else(|| date_at_end(name))
    };
    while let Some(end) = ends(name).filter(|end| *end < name.len()) {
        name = &name[..name.len() - end];
    }
    let mut name = name.to_owned();
    for part in &NAMES.pooling {
        name = name.replace(part.as_str(), "");
    }
    name
}

/// Length of a release's date at the end of a name: `-0528` (month and day), `-2507` (year and month).
fn date_at_end(name: &str) -> Option<usize> {
    let (_, last) = name.rsplit_once('-')?;
    let is_date = last.len() == 4 && last.bytes().all(|b| b.is_ascii_digit());
    let number: u32 = last.parse().ok().filter(|_| is_date)?;
    let (first, second) = (number / 100, number % 100);
    let month_and_day = (1..=12).contains(&first) && (1..=31).contains(&second);
    let year_and_month = (23..=35).contains(&first) && (1..=12).contains(&second);
    (month_and_day || year_and_month).then_some(last.len() + 1)
}

/// A name without the part of its parameters that a token uses: `-a3b`.
fn without_active(name: String) -> String {
    let active = |end: &str| {
        let number = end.strip_prefix('a').and_then(|n| n.strip_suffix('b'));
        number.is_some_and(|n| n.parse::<f64>().is_ok())
    };
    match name.rsplit_once('-') {
        Some((base, end)) if active(end) => base.to_owned(),
        _ => name,
    }
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
        for (tag, model) in &names.tags {
            assert!(shipped::named(model).is_some(), "{tag}: {model}");
        }
        for (name, tag) in &names.usual_tags {
            assert!(of(name).is_some(), "{name}:{tag}");
        }
        assert!(
            names
                .own_files
                .iter()
                .all(|name| shipped::named(name).is_some())
        );
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
        // Ollama's deepseek-r1 is another one.
        assert_eq!(own_length("DeepSeek-R1"), None);
    }

    #[test]
    fn a_tag_of_ollamas_cloud_names_what_runs_here() {
        assert_eq!(without_cloud("gpt-oss:120b-cloud"), Some("gpt-oss:120b"));
        assert_eq!(without_cloud("glm-4.6:cloud"), Some("glm-4.6"));
        assert_eq!(without_cloud("acme/model-cloud"), None);
        assert_eq!(without_cloud("qwen3:8b"), None);
        // Its own quantisation is that of the hub's files.
        assert_eq!(named_quantization("devstral-small-2:24b"), None);
        let hub = "mistralai/Devstral-Small-2-24B-Instruct-2512";
        assert_eq!(named_quantization(hub).as_deref(), Some("fp8_tensor"));
    }

    #[test]
    fn tags_of_ollama_lead_to_a_model_and_its_format() {
        let is = |tag: &str| found(tag).map(|(name, scheme)| (name.to_lowercase(), scheme));
        assert_eq!(is("qwen3:8b").unwrap(), ("qwen3-8b".into(), None));
        let (name, scheme) = is("llama3.1:8b-instruct-q8_0").unwrap();
        assert!(name.starts_with("llama-3.1-8b"), "{name}");
        assert_eq!(scheme.as_deref(), Some("Q8_0"));
        assert_eq!(is("nothing:8b"), None);
        for (tag, name) in [
            ("qwen3:30b", "qwen3-30b-a3b"),
            ("qwen3-vl:30b", "qwen3-vl-30b-a3b-instruct"),
            ("gemma4:26b", "gemma-4-26b-a4b"),
            ("gemma4", "gemma-4-e4b"),
            ("qwq:latest", "qwen2.5-32b"),
            ("deepseek-r1:8b", "qwen3-8b"),
            ("deepseek-r1:latest", "qwen3-8b"),
            (
                "deepseek-r1:8b-llama-distill-q4_K_M",
                "deepseek-r1-distill-llama-8b",
            ),
            (
                "deepseek-r1:32b-qwen-distill",
                "deepseek-r1-distill-qwen-32b",
            ),
            ("phi4", "phi-4"),
        ] {
            assert_eq!(is(tag).unwrap().0, name, "{tag}");
        }
        let q4 = Some("Q4_0".to_owned());
        assert_eq!(is("gemma3:27b-it-qat"), Some(("gemma-3-27b".into(), q4)));
    }

    #[test]
    fn repositories_of_gguf_are_read_whoever_made_them() {
        let is = |wanted: &str, name: &str, scheme: Option<&str>| {
            let expected = Some((name, scheme.map(str::to_owned)));
            assert_eq!(found(wanted), expected, "{wanted}");
        };
        is(
            "bartowski/Qwen_Qwen3-30B-A3B-GGUF:Q4_K_M",
            "Qwen3-30B-A3B",
            Some("Q4_K_M"),
        );
        is(
            "mradermacher/Qwen3-8B-i1-GGUF:i1-Q4_K_M",
            "Qwen3-8B",
            Some("Q4_K_M"),
        );
        let cached = "unsloth_Qwen3-32B-GGUF_Qwen3-32B-Q4_K_M.gguf";
        is(cached, "Qwen3-32B", Some("Q4_K_M"));
        is(
            "google/gemma-3-27b-it-qat-q4_0-gguf",
            "gemma-3-27b",
            Some("Q4_0"),
        );
        is("hf.co/unsloth/Qwen3-8B-GGUF:Q8_0", "Qwen3-8B", Some("Q8_0"));
        // Their files keep the vendor's format.
        is("ggml-org/gpt-oss-120b-GGUF", "gpt-oss-120b", None);
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
        is("Qwen/Qwen3.6-27B-FP8", "Qwen3.5-27B", Some("fp8_block"));
        is(
            "cyankiwi/Qwen3.8-27B-AWQ-INT4",
            "Qwen3.5-27B",
            Some("w4a16_g32"),
        );
        is(
            "deepseek-ai/DeepSeek-V4-Flash-0731",
            "DeepSeek-V4-Flash",
            None,
        );
        is("Qwen/Qwen3-Embedding-8B", "Qwen3-8B", None);
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
