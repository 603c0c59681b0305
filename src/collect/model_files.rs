//! The small files of a model as they lie in the container: architecture and weight index.

use crate::capture::ContainerFacts;
use crate::container::Runtime;
use std::collections::BTreeMap;

/// Largest file that is read, bytes: an index of a thousand shards has some MiB.
const FILE_LIMIT: usize = 32 << 20;

/// What could be read of a model.
#[derive(Debug, Clone, Default)]
pub struct ModelFiles {
    /// Name → text.
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
        for name in ["config.json", "model.safetensors.index.json"] {
            if let Ok(Some(bytes)) = runtime
                .read_file(&facts.id, &format!("{folder}/{name}"), FILE_LIMIT)
                .await
            {
                files
                    .texts
                    .insert(name.into(), String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        if !files.texts.contains_key("model.safetensors.index.json") {
            let name = "model.safetensors";
            if let Ok(Some(size)) = runtime
                .file_size(&facts.id, &format!("{folder}/{name}"))
                .await
            {
                files.sizes.insert(name.into(), size);
            }
        }
        if !files.texts.contains_key("config.json") {
            files.error = Some(format!("there is no readable config.json in `{folder}`"));
        }
        files
    }
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
