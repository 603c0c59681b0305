//! The small files of a model as they lie in the container: architecture, weight index, headers of weight files.

use crate::capture::ContainerFacts;
use crate::container::Runtime;
use crate::estimate::headers::safetensors;
use std::collections::BTreeMap;

/// Largest file that is read, bytes: an index of a thousand shards has some MiB.
const FILE_LIMIT: usize = 32 << 20;

/// So much of a weight file holds most headers, bytes; a longer one is read again, up to `FILE_LIMIT`.
const FIRST_BYTES: usize = 64 << 10;

/// Maximum number of shards to read headers from: each takes two requests to Docker.
const MOST_SHARDS: usize = 64;

/// The file that lists which shard holds which tensor.
const WEIGHT_INDEX: &str = "model.safetensors.index.json";

/// What could be read of a model.
#[derive(Debug, Clone, Default)]
pub struct ModelFiles {
    /// Name → text; of a weight file the JSON of its header.
    pub texts: BTreeMap<String, String>,
    /// Weight files → size in bytes.
    pub sizes: BTreeMap<String, u64>,
    /// Why there is nothing, when there is nothing.
    pub error: Option<String>,
}

impl ModelFiles {
    /// Reads the files of a model that is a folder in the container, or that lies in the
    /// container's Hugging Face cache.
    pub async fn read(
        runtime: &Runtime,
        facts: &ContainerFacts,
        model: Option<&str>,
    ) -> ModelFiles {
        let failed = |error: String| ModelFiles {
            error: Some(error),
            ..Default::default()
        };
        let Some(model) = model else {
            return failed("the model is not known".into());
        };
        let Some(folder) = folder(runtime, facts, model).await else {
            return failed(format!(
                "`{model}` is neither a folder in the container nor in its Hugging Face cache"
            ));
        };
        let mut files = ModelFiles::default();
        for name in ["config.json", WEIGHT_INDEX] {
            if let Ok(Some(bytes)) = runtime
                .read_file(&facts.id, &format!("{folder}/{name}"), FILE_LIMIT)
                .await
            {
                files
                    .texts
                    .insert(name.into(), String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        if !files.texts.contains_key(WEIGHT_INDEX) {
            let name = "model.safetensors";
            if let Ok(Some(size)) = runtime
                .file_size(&facts.id, &format!("{folder}/{name}"))
                .await
            {
                files.sizes.insert(name.into(), size);
            }
        }
        for name in headers_needed(&files.texts) {
            let path = format!("{folder}/{name}");
            match header(runtime, &facts.id, &path).await {
                Some(json) => files.texts.insert(name, json),
                // One that is missing makes the others worthless.
                None => break,
            };
        }
        if !files.texts.contains_key("config.json") {
            files.error = Some(format!("there is no readable config.json in `{folder}`"));
        }
        files
    }
}

/// The weight files with headers worth reading: those of an index without a parameter count, or the
/// only one.
fn headers_needed(texts: &BTreeMap<String, String>) -> Vec<String> {
    let Some(index) = texts.get(WEIGHT_INDEX) else {
        return vec!["model.safetensors".to_owned()];
    };
    let parsed: serde_json::Value = serde_json::from_str(index).unwrap_or_default();
    if parsed.pointer("/metadata/total_parameters").is_some() {
        return Vec::new();
    }
    let shards = safetensors::index_files(index.as_bytes()).unwrap_or_default();
    if shards.len() > MOST_SHARDS {
        return Vec::new();
    }
    shards
}

/// The JSON of a safetensors file's header; `None` where there is no such file, or no header of a bearable size.
async fn header(runtime: &Runtime, container: &str, path: &str) -> Option<String> {
    let mut bytes = runtime
        .read_start(container, path, FIRST_BYTES)
        .await
        .ok()??;
    let end = usize::try_from(safetensors::length(&bytes).ok()?)
        .ok()?
        .checked_add(8)?;
    if end > bytes.len() && end <= FILE_LIMIT {
        bytes = runtime.read_start(container, path, end).await.ok()??;
    }
    String::from_utf8(bytes.get(8..end)?.to_vec()).ok()
}

/// The folder that holds the model's files.
async fn folder(runtime: &Runtime, facts: &ContainerFacts, model: &str) -> Option<String> {
    if model.starts_with('/') {
        return Some(model.trim_end_matches('/').to_owned());
    }
    // A cache keeps `refs/main`, which names the snapshot.
    let repository = format!("models--{}", model.replace('/', "--"));
    let home = facts.env.get("HOME").map_or("/root", String::as_str);
    let caches = [
        facts.env.get("HF_HUB_CACHE").cloned(),
        facts.env.get("HF_HOME").map(|h| format!("{h}/hub")),
        Some(format!("{home}/.cache/huggingface/hub")),
    ];
    for cache in caches.into_iter().flatten() {
        if let Ok(Some(bytes)) = runtime
            .read_file(&facts.id, &format!("{cache}/{repository}/refs/main"), 1024)
            .await
        {
            let revision = String::from_utf8_lossy(&bytes).trim().to_owned();
            if !revision.is_empty() && revision.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Some(format!("{cache}/{repository}/snapshots/{revision}"));
            }
        }
    }
    None
}
