//! Where a model's facts are found: a folder, the Hugging Face cache, a file, or what ships.

mod cache;
pub mod headers;
pub mod hub;
mod json;
pub mod relatives;
pub mod shipped;

pub use json::parse as parse_json;

use crate::error::Failure;
use crate::estimate::headers::Headers;
use crate::estimate::model::QUANTIZATION;
use crate::wording::did_you_mean;
use hub::{Facts, Hub, Keep};
use relatives::Relative;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What was found of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// As it was asked for.
    pub name: String,
    /// config.json, with hf_quant_config.json under `hf_quant_config` where it lies beside it;
    /// null where a GGUF file has all of it.
    pub config: Value,
    /// The folder with its weights, where there is one.
    pub directory: Option<PathBuf>,
    /// The GGUF file, where it is one.
    pub gguf: Option<PathBuf>,
    /// A path, or `configs/models: …` and its source, or the hub with its revision.
    pub source: String,
    /// The headers of its files, where a hub has them.
    pub headers: Option<Headers>,
    /// A note for the user.
    pub note: Option<String>,
    /// The quantisation that its name means, where the configuration is that of another copy.
    pub quantization: Option<String>,
    /// Its longest sequence is that of the model that it was tuned from, by their names: its own may be longer.
    pub lends_positions: bool,
}

/// How far a model is looked for.
pub struct Reach<'a> {
    /// Where a hub's answers are kept between runs.
    pub keep: &'a dyn Keep,
    /// Whether a hub may be asked. Without it nothing goes out of this host.
    pub online: bool,
}

/// The model that is called so: a folder, a GGUF or JSON file, an id in the Hugging Face cache, a
/// name that ships.
///
/// # Errors
/// When there is no such model, with the names that are near; when its files cannot be read.
pub fn find(wanted: &str) -> Result<Found, Failure> {
    find_in(wanted, cache::folder().as_deref())
}

/// [`find`], and then a hub's earlier answer, and then the hub itself where that is allowed.
///
/// # Errors
/// As [`find`], and as [`Hub::ask`].
pub fn find_with(wanted: &str, reach: &Reach<'_>) -> Result<Found, Failure> {
    let failure = match find(wanted) {
        Err(failure) if !Path::new(wanted).exists() && hub::is_id(wanted) => failure,
        other => return other,
    };
    let hub = Hub::from_env();
    if let Some(facts) = (hub.as_ref().ok()).and_then(|hub| hub.kept(wanted, reach.keep)) {
        return Ok(of_hub(wanted, facts));
    }
    if reach.online {
        Ok(of_hub(wanted, hub?.ask(wanted, reach.keep)?))
    } else {
        Err(failure.hint("--online fetches its configuration from the Hugging Face hub"))
    }
}

fn of_hub(name: &str, mut facts: Facts) -> Found {
    if relatives::does_pool(name) {
        mark_as_embedding(&mut facts.config);
    }
    Found {
        name: name.to_owned(),
        source: facts.source(),
        config: facts.config,
        headers: facts.headers,
        note: facts.note,
        ..Found::default()
    }
}

/// [`find`], with the cache's folder.
fn find_in(wanted: &str, cache: Option<&Path>) -> Result<Found, Failure> {
    let path = Path::new(wanted);
    if path.is_dir() {
        return in_folder(wanted, path)?.ok_or_else(|| {
            Failure::usage(format!("`{wanted}` has no config.json"))
                .hint("give the model's configuration with --config FILE")
        });
    }
    if path.is_file() {
        return match path.extension().and_then(|e| e.to_str()) {
            Some("gguf") => Ok(Found {
                name: wanted.to_owned(),
                gguf: Some(path.to_owned()),
                source: wanted.to_owned(),
                ..Found::default()
            }),
            _ => from_file(wanted, path),
        };
    }
    if let Some(local) = relatives::without_cloud(wanted) {
        let what =
            format!("`{wanted}` runs on Ollama's own servers: it takes no memory of a GPU here");
        return Err(Failure::usage(what).hint(format!("`{local}` is what runs here")));
    }
    if let Some(snapshot) = cache.and_then(|c| cache::snapshot(c, wanted)) {
        if let Some(found) = in_folder(wanted, &snapshot)? {
            return Ok(found);
        }
    }
    let found = shipped::named(wanted).map(|shipped| (shipped, None));
    let relative = || relatives::of(wanted).map(|(shipped, of)| (shipped, Some(of)));
    let Some((shipped, relative)) = found.or_else(relative) else {
        return Err(unknown(wanted));
    };
    let (mut config, source) = shipped.read()?;
    if relative.as_ref().is_some_and(|r| r.other_format) {
        remove_format(&mut config);
    }
    if relatives::does_pool(wanted) {
        remove_output(&mut config);
    }
    // The longest sequence, where the named model has another than the one it shares the rest with.
    let own_length = relatives::own_facts(wanted).find_map(|own| own.tokens);
    if let Some(tokens) = own_length {
        let text = match config.get("text_config") {
            Some(_) => &mut config["text_config"],
            None => &mut config,
        };
        text["max_position_embeddings"] = tokens.into();
    }
    let note = |relative: &Relative| {
        let scheme = relative
            .quantization
            .as_ref()
            .map_or(String::new(), |scheme| {
                format!(", quantised as `{scheme}` by its name")
            });
        format!(
            "`{wanted}` is treated as a copy of {}{scheme}: give its folder to read its own files",
            relative.name
        )
    };
    Ok(Found {
        name: wanted.to_owned(),
        config,
        source: format!("configs/models: {source}"),
        note: relative.as_ref().map(note),
        lends_positions: own_length.is_none() && relative.as_ref().is_some_and(|r| r.is_tuned),
        quantization: match relative {
            Some(relative) => relative.quantization,
            None => relatives::own_quantization(wanted),
        },
        ..Found::default()
    })
}

/// The configuration of a model and that of its language model within it.
fn each_part(config: &mut Value, change: impl Fn(&mut serde_json::Map<String, Value>)) {
    if let Some(part) = config.get_mut("text_config").and_then(Value::as_object_mut) {
        change(part);
    }
    if let Some(whole) = config.as_object_mut() {
        change(whole);
    }
}

/// Leaves the geometry of a quantised copy: its format is not that of what it was made of.
fn remove_format(config: &mut Value) {
    each_part(config, |part| {
        part.retain(|name, _| !QUANTIZATION.contains(&name.as_str()))
    });
}

/// What embeds or scores has the geometry without an output layer.
fn remove_output(config: &mut Value) {
    mark_as_embedding(config);
    each_part(config, |part| {
        part.insert("tie_word_embeddings".into(), true.into());
    });
}

fn mark_as_embedding(config: &mut Value) {
    each_part(config, |part| {
        let architectures = serde_json::json!(["EmbeddingModel"]);
        part.insert("architectures".into(), architectures);
    });
}

/// A model by its config.json alone (`--config FILE`).
///
/// # Errors
/// When the file is missing or not JSON.
pub fn from_file(name: &str, path: &Path) -> Result<Found, Failure> {
    let config = json::read(path)?.ok_or_else(|| {
        Failure::usage(format!("there is no file `{}`", path.display()))
            .hint("--config takes a model's config.json")
    })?;
    let says_format = config.get("quantization_config").is_some();
    Ok(Found {
        name: name.to_owned(),
        quantization: relatives::named_quantization(name).filter(|_| !says_format),
        config,
        source: path.display().to_string(),
        ..Found::default()
    })
}

/// A folder's config.json with hf_quant_config.json; `None` where it has none.
fn in_folder(name: &str, folder: &Path) -> Result<Option<Found>, Failure> {
    let path = folder.join("config.json");
    let Some(mut config) = json::read(&path)? else {
        return Ok(None);
    };
    // Sentence Transformers' list of modules: vLLM embeds with a model that has one.
    if folder.join("modules.json").is_file() {
        mark_as_embedding(&mut config);
    }
    let quantised = json::read(&folder.join("hf_quant_config.json"))?;
    if let (Some(quantised), Some(fields)) = (quantised, config.as_object_mut()) {
        fields.entry("hf_quant_config").or_insert(quantised);
    }
    Ok(Some(Found {
        name: name.to_owned(),
        config,
        directory: Some(folder.to_owned()),
        source: path.display().to_string(),
        ..Found::default()
    }))
}

fn unknown(wanted: &str) -> Failure {
    let failure = Failure::usage(format!("the model `{wanted}` is not known"));
    // Files of GGUF: another model's configuration does not apply.
    if let Some((name, quantization)) = wanted.rsplit_once(':').filter(|(n, _)| n.contains('/')) {
        return failure
            .hint("give the file itself, as in `plimsoll estimate FILE.gguf`")
            .hint(format!(
                "or the model that `{name}` was made of, with --quantization {quantization}"
            ));
    }
    let is_near = |name: &&str| relatives::is_near(wanted, name);
    let suggestion = did_you_mean(wanted, shipped::all_names().filter(is_near), 3);
    let failure = suggestion.into_iter().fold(failure, Failure::hint);
    failure
        .hint("`plimsoll models --search WORDS` lists those that ship")
        .hint("give its folder, its config.json with --config FILE, or --model-params, --num-layers, --num-heads, --num-kv-heads, --head-dim and --hidden-size")
}

#[cfg(test)]
#[path = "tests.rs"]
mod against;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A cache with one model in it.
    fn cache_with(config: &str) -> tempfile::TempDir {
        let cache = tempfile::tempdir().unwrap();
        let model = cache.path().join("models--acme--Tiny-1B");
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::create_dir_all(model.join("snapshots/abc123")).unwrap();
        std::fs::write(model.join("refs/main"), "abc123\n").unwrap();
        std::fs::write(model.join("snapshots/abc123/config.json"), config).unwrap();
        cache
    }

    #[test]
    fn a_model_of_the_cache_is_found_with_its_folder() {
        let cache = cache_with(r#"{"model_type": "llama"}"#);
        let found = find_in("acme/Tiny-1B", Some(cache.path())).unwrap();
        assert_eq!(found.config, json!({"model_type": "llama"}));
        assert!(found.directory.unwrap().ends_with("snapshots/abc123"));
    }

    #[test]
    fn the_cache_wins_over_what_ships() {
        let cache = cache_with(r#"{"model_type": "mine"}"#);
        let from = cache.path().join("models--acme--Tiny-1B");
        std::fs::rename(from, cache.path().join("models--Qwen--Qwen3-8B")).unwrap();
        let found = find_in("Qwen/Qwen3-8B", Some(cache.path())).unwrap();
        assert_eq!(found.config["model_type"], "mine");
        let shipped = find_in("Qwen/Qwen3-8B", None).unwrap();
        assert_eq!(shipped.config["model_type"], "qwen3");
        assert!(shipped.source.starts_with("configs/models: "));
    }

    #[test]
    fn no_name_leads_out_of_the_cache() {
        let cache = cache_with("{}");
        std::fs::write(cache.path().join("config.json"), "{}").unwrap();
        let model = cache.path().join("models--acme--Tiny-1B");
        for main in ["../../..", "/", "..", "abc123/../../..", ""] {
            std::fs::write(model.join("refs/main"), main).unwrap();
            std::fs::create_dir_all(model.join("snapshots/other")).unwrap();
            assert!(
                find_in("acme/Tiny-1B", Some(cache.path())).is_err(),
                "{main}"
            );
        }
        for name in ["../x", "acme/../x", "a/b/c", "acme/", "/", ""] {
            assert!(find_in(name, Some(cache.path())).is_err(), "{name}");
        }
    }

    #[test]
    fn a_folder_is_read_with_its_quantisation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        assert!(
            find_in(path, None)
                .unwrap_err()
                .message
                .contains("config.json")
        );
        std::fs::write(folder.path().join("config.json"), r#"{"a": 1}"#).unwrap();
        std::fs::write(folder.path().join("hf_quant_config.json"), r#"{"q": 2}"#).unwrap();
        let found = find_in(path, None).unwrap();
        assert_eq!(found.config, json!({"a": 1, "hf_quant_config": {"q": 2}}));
        assert_eq!(found.directory.as_deref(), Some(folder.path()));
    }

    #[test]
    fn an_unknown_name_is_answered_with_near_ones() {
        let failure = find_in("Qwen/Qwen3-9B", None).unwrap_err();
        assert!(
            failure.hints[0].contains("`Qwen/Qwen3-8B`"),
            "{:?}",
            failure.hints
        );
        // Another generation or family is no answer, however near its name is.
        for wanted in [
            "Qwen/Qwen3.8-Flash-Next",
            "gemma5:26b",
            "Qwen/Qwen4-7B",
            "zai-org/GLM-5.3-Flash",
        ] {
            let failure = find_in(wanted, None).unwrap_err();
            assert!(
                !failure.hints[0].contains("did you mean"),
                "{wanted}: {:?}",
                failure.hints
            );
        }
        let slip = find_in("meta-llama/Lama-3.1-8B-Instuct", None).unwrap_err();
        assert!(
            slip.hints[0].contains("Llama-3.1-8B-Instruct"),
            "{:?}",
            slip.hints
        );
    }

    #[test]
    fn a_copy_has_the_geometry_and_not_the_format_of_what_ships() {
        // Only NVIDIA's copies of these ship.
        let base = find_in("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", None).unwrap();
        assert_eq!(base.config["hf_quant_config"], Value::Null);
        assert_eq!(base.quantization.as_deref(), Some("bf16"));
        let older = find_in("zai-org/GLM-4.5V", None).unwrap();
        assert_eq!(
            older.config["text_config"]["max_position_embeddings"],
            65_536
        );
        let scorer = find_in("Qwen/Qwen3-Reranker-8B", None).unwrap();
        assert_eq!(scorer.config["tie_word_embeddings"], true);
        assert_eq!(scorer.config["hidden_size"], 4096);
    }
}
