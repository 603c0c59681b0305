//! How each engine's image is started: configs/recipes.yaml.

use crate::engine::process::image_name;
use crate::estimate::Version;
use crate::tables::read_table;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The table, but for its presets, which are in [`crate::preset`].
#[derive(Debug, Default, Deserialize)]
pub struct Recipes {
    /// Variables that name the devices that a program sees.
    pub visible_env: Vec<String>,
    /// Variables of PyTorch that move memory.
    pub torch_env: Vec<String>,
    /// Parts of speculative decoding, each with its flags.
    pub speculation: Vec<(String, Vec<String>)>,
    /// By engine.
    pub engines: Vec<Recipe>,
}

/// How one engine is started.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// Its name.
    pub engine: String,
    /// The engine that defines the flags, if it is another.
    pub reads_as: Option<String>,
    /// Where its images keep what they download from Hugging Face, where that is a place of its own.
    cache: Option<Cache>,
    /// Its images.
    pub images: Vec<RecipeImage>,
    /// How its server's command begins, where no [`crate::engine::Engine`] reads it.
    pub program: Vec<String>,
    /// Programs that load a model as its server does.
    pub like_server: Vec<LikeServer>,
    /// The image's name is the model's.
    pub model_of_image: bool,
    /// Its flags and variables → the common names, where no [`crate::engine::Engine`] reads it.
    pub settings: BTreeMap<String, String>,
    /// Variables that move memory.
    pub memory_env: Vec<String>,
    /// What is not known of an engine without rules.
    pub missing: Option<String>,
    /// Variables that name the folders of what it compiles → names for these folders.
    pub compile_cache: BTreeMap<String, String>,
}

/// A program that loads a model for one user.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LikeServer {
    /// How its command begins.
    pub words: Vec<String>,
    /// The beginning of the server's.
    pub server: Vec<String>,
    /// The next word is the model, and no flags of the server follow.
    pub names_model: bool,
}

/// Images of one entrypoint.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecipeImage {
    /// Repositories.
    pub names: Vec<String>,
    /// How its tags begin, where not each is meant.
    pub tag: Option<String>,
    /// Its entrypoint.
    pub entrypoint: Vec<String>,
    /// What it runs without words.
    pub cmd: Vec<String>,
    /// The words begin with a program.
    pub words: bool,
    /// Its tags are the months of a release of all that is in it, not the engine's version.
    pub tags_are_months: bool,
    /// The entrypoint of releases before one.
    pub before: Option<Before>,
}

/// Where what is downloaded from Hugging Face is kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    path: String,
    hub_before: Option<String>,
}

/// The entrypoint of releases before one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    version: String,
    entrypoint: Vec<String>,
}

/// The recipes.
pub static RECIPES: LazyLock<Recipes> =
    LazyLock::new(|| read_table(include_str!("../../configs/recipes.yaml")));

/// The recipe of this engine.
pub fn recipe_of(engine: &str) -> Option<&'static Recipe> {
    let engine = engine.replace('_', "-");
    RECIPES.engines.iter().find(|r| r.engine == engine)
}

/// The mount of a host's cache of Hugging Face where this image looks for it.
pub fn cache_mount(image: &str, folder: &str) -> String {
    const USUAL: &str = "/root/.cache/huggingface";
    let Some(cache) = find_image(image).and_then(|(recipe, _)| recipe.cache.as_ref()) else {
        return format!("{folder}:{USUAL}");
    };
    let before = cache.hub_before.as_deref().and_then(Version::leading);
    let version = version_of_image(image);
    let version = version.as_deref().and_then(Version::leading);
    match before.zip(version) {
        Some((before, version)) if version < before => format!("{folder}/hub:{}", cache.path),
        _ => format!("{folder}:{}", cache.path),
    }
}

/// The recipe that has this image.
pub fn find_image(image: &str) -> Option<(&'static Recipe, &'static RecipeImage)> {
    let (repository, tag) = split_image(image);
    let fits = |own: &RecipeImage| {
        let named = own.names.iter().any(|name| {
            repository == name
                || repository.ends_with(&format!("/{name}"))
                || name.ends_with('/') && repository.contains(name.as_str())
        });
        named && own.tag.as_ref().is_none_or(|t| tag.starts_with(t.as_str()))
    };
    let mut all = RECIPES.engines.iter();
    all.find_map(|r| Some((r, r.images.iter().find(|i| fits(i))?)))
}

/// Repository and tag of an image's name.
pub fn split_image(image: &str) -> (&str, &str) {
    let name = image.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, ""),
    }
}

/// The engine's version, where the tag is one: `v0.7.2`, `3.0.1-rocm`, `server-cuda-b10236`, `…_vllm_0.23.0`.
pub fn version_of_image(image: &str) -> Option<String> {
    let tag = split_image(image).1;
    let words: Vec<&str> = tag.split(['-', '_']).collect();
    let build =
        |w: &&&str| w.len() > 4 && w.starts_with('b') && w[1..].bytes().all(|b| b.is_ascii_digit());
    if let Some(build) = words
        .iter()
        .find(build)
        .filter(|_| image_name(image).contains("llama"))
    {
        return Some((*build).to_owned());
    }
    if find_image(image).is_some_and(|(_, own)| own.tags_are_months) {
        return None;
    }
    let is_version = |w: &str| {
        w.contains('.')
            && w.starts_with(|c: char| c.is_ascii_digit())
            && Version::leading(w).is_some()
    };
    // AMD's tags hold the versions of all parts; the engine's is after its name.
    let named = ["vllm", "sglang"].iter().find_map(|name| {
        let at = words.iter().position(|w| w.starts_with(name))?;
        let glued = words[at].strip_prefix(name).filter(|v| !v.is_empty());
        glued.or_else(|| words.get(at + 1).copied())
    });
    let word = named.or(words.first().copied())?.trim_start_matches('v');
    is_version(word).then(|| word.to_owned())
}

impl RecipeImage {
    /// The entrypoint of an image of this version.
    pub fn entrypoint_of(&self, version: Option<&str>) -> &[String] {
        match (&self.before, version.and_then(Version::leading)) {
            (Some(before), Some(version))
                if Version::leading(&before.version).is_some_and(|b| version < b) =>
            {
                &before.entrypoint
            }
            _ => &self.entrypoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_for_one_user_load_a_model_as_their_server() {
        let loaded = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let server = crate::launch::read_line(&words).server()?;
            Some((server.engine, server.settings.model?))
        };
        let is = |engine: &str, model: &str| Some((engine.to_owned(), model.to_owned()));
        let tag = loaded("ollama run --verbose qwen3:30b");
        assert_eq!(tag, is("ollama", "qwen3:30b"));
        let file = loaded("/opt/llama-cli -m /m.gguf -c 8192");
        assert_eq!(file, is("llama-cpp", "/m.gguf"));
        assert_eq!(loaded("ollama pull qwen3:30b"), None);
    }

    #[test]
    fn every_recipe_is_whole() {
        for recipe in &RECIPES.engines {
            assert!(!recipe.engine.is_empty(), "{recipe:?}");
            let named = recipe.images.iter().all(|image| !image.names.is_empty());
            let like = (recipe.like_server.iter())
                .all(|like| !like.words.is_empty() && !like.server.is_empty());
            assert!(named && like, "{}", recipe.engine);
            assert!(
                !recipe.images.is_empty()
                    || recipe.reads_as.is_some()
                    || recipe.engine == "reference",
                "{}",
                recipe.engine
            );
        }
    }

    #[test]
    fn a_cache_is_mounted_where_the_image_reads_it() {
        let mount = |image: &str| cache_mount(image, "/c");
        assert_eq!(
            mount("vllm/vllm-openai:v0.19.1"),
            "/c:/root/.cache/huggingface"
        );
        let tgi = "ghcr.io/huggingface/text-generation-inference";
        assert_eq!(mount(&format!("{tgi}:3.3.7-rocm")), "/c:/data");
        assert_eq!(mount(&format!("{tgi}:2.2.0")), "/c/hub:/data");
        assert_eq!(mount("my/image"), "/c:/root/.cache/huggingface");
    }

    #[test]
    fn a_version_is_read_from_a_tag_that_is_one() {
        for (image, version) in [
            ("vllm/vllm-openai:v0.14.1-cu130", Some("0.14.1")),
            ("vllm/vllm-openai:nightly", None),
            (
                "rocm/vllm:rocm6.3.1_instinct_vllm0.8.3_20250410",
                Some("0.8.3"),
            ),
            (
                "rocm/vllm:rocm7.14.0_cdna_pytorch_2.11.0_vllm_0.23.0",
                Some("0.23.0"),
            ),
            (
                "ghcr.io/ggml-org/llama.cpp:server-cuda-b10752@sha256:00",
                Some("b10752"),
            ),
            ("nvcr.io/nvidia/vllm:25.11-py3", None),
            ("host:5000/vllm/vllm-openai", None),
        ] {
            assert_eq!(version_of_image(image).as_deref(), version, "{image}");
        }
    }
}
