//! The models inside a container: which ones an idle container has, and the small files of one
//! (architecture, weight index, headers of weight files).
//!
//! Has a server that was just started fetch a model that it does not have, where it does not do so itself.

use super::{CapturePlan, StopSignal};
use crate::capture::{ContainerFacts, ExecEnd};
use crate::container::Runtime;
use crate::container::exec::ExecRequest;
use crate::error::Failure;
use crate::estimate::headers::safetensors;
use crate::progress::{Progress, Sink};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum size of a file, bytes: an index of a thousand shards has some MiB.
const FILE_LIMIT: usize = 32 << 20;

/// This much of a weight file contains most headers, bytes; a longer header is read again, up to
/// `FILE_LIMIT`.
const FIRST_BYTES: usize = 64 << 10;

/// Maximum number of shards to read headers from: each takes two requests to Docker.
const MOST_SHARDS: usize = 64;

/// The file that maps tensors to shards.
const WEIGHT_INDEX: &str = "model.safetensors.index.json";

/// The readable files of a model.
#[derive(Debug, Clone, Default)]
pub struct ModelFiles {
    /// Name → text; for a weight file the JSON of its header.
    pub texts: BTreeMap<String, String>,
    /// Weight files → size in bytes.
    pub sizes: BTreeMap<String, u64>,
    /// Why files are missing.
    pub error: Option<String>,
}

impl ModelFiles {
    /// Reads the files of a model, given as a folder in the container or found in its Hugging Face
    /// cache.
    pub async fn read_files(
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
        let Some(folder) = find_folder(runtime, facts, model).await else {
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
                // Without one header the others are useless.
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

/// The JSON of a safetensors file's header; `None` without such a file, or with an oversized
/// header.
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

/// The folder with the model's files.
async fn find_folder(runtime: &Runtime, facts: &ContainerFacts, model: &str) -> Option<String> {
    if model.starts_with('/') {
        return Some(model.trim_end_matches('/').to_owned());
    }
    // The cache's `refs/main` names the snapshot.
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

/// Where images and users usually put models.
const USUAL_FOLDERS: [&str; 6] = [
    "/models",
    "/model",
    "/data",
    "/workspace",
    "/root/.cache/huggingface/hub",
    "/root/.cache/llama.cpp",
];
/// Depth of a model cache: `hub/models--ORG--NAME/snapshots/HASH/config.json`, and one level above.
const MAX_DEPTH: &str = "5";
/// Timeout of the search: disks may be slow, and folders large.
const SEARCH_DEADLINE: Duration = Duration::from_secs(20);
/// Maximum number of models listed.
const MAX_MODELS: usize = 20;

/// The models in the container's usual folders and mounts, in the form of `--model`. Empty if the
/// image has no `find`.
pub async fn find_models(plan: &CapturePlan, stop: &StopSignal) -> Result<Vec<String>, Failure> {
    let facts = plan.facts();
    let mounted = facts
        .mounts
        .iter()
        .filter_map(|m| Some(m.rsplit_once(" → ")?.1));
    let folders: BTreeSet<&str> = mounted.chain(USUAL_FOLDERS).filter(|f| *f != "/").collect();
    let mut argv = vec!["find"];
    argv.extend(folders);
    argv.extend(["-maxdepth", MAX_DEPTH]);
    argv.extend(["(", "-name", "config.json", "-o", "-name", "*.gguf", ")"]);
    let request = ExecRequest {
        argv: argv.into_iter().map(str::to_owned).collect(),
        run_id: plan.run_id.clone(),
        deadline: Some(SEARCH_DEADLINE),
        ..Default::default()
    };
    let mut paths = Vec::new();
    let sink = |_, line: String| {
        // Errors of `find` about missing folders begin with its name.
        if line.starts_with('/') && paths.len() < 50 * MAX_MODELS {
            paths.push(line);
        }
    };
    let search = plan.run_exec(request, None, stop.token(), sink).await?;
    match search.ended.end {
        ExecEnd::Exited(_) => Ok(models_of(&paths)),
        // An interrupted search may have missed models.
        _ => Ok(Vec::new()),
    }
}

/// The models among these files.
fn models_of(paths: &[String]) -> Vec<String> {
    let mut folders: Vec<&str> = paths
        .iter()
        .filter_map(|p| p.strip_suffix("/config.json"))
        .collect();
    // Parts of a model have their own config.json below the model's.
    let is_below = |part: &str, model: &&str| {
        let rest = part.strip_prefix(*model);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let all = folders.clone();
    folders.retain(|part| !all.iter().any(|model| is_below(part, model)));
    let files = paths
        .iter()
        .map(String::as_str)
        .filter(|p| p.ends_with(".gguf"));
    let models: BTreeSet<String> = folders.into_iter().chain(files).map(model_name).collect();
    models.into_iter().take(MAX_MODELS).collect()
}

/// The id of a model in the Hugging Face cache; the path of others.
fn model_name(path: &str) -> String {
    let id = path.split_once("/hub/models--").and_then(|(cache, rest)| {
        let is_default = cache.ends_with("/.cache/huggingface");
        Some(rest.split_once('/')?.0.replacen("--", "/", 1)).filter(|_| is_default)
    });
    id.unwrap_or_else(|| path.to_owned())
}

/// Fetches the model that is asked for.
///
/// # Errors
/// It cannot be fetched, or the run is stopped.
pub(super) async fn pull_model(
    plan: &CapturePlan,
    stop: &StopSignal,
    progress: &Sink,
) -> Result<(), Failure> {
    let commands = plan.attached.engine.pull_commands;
    let (Some([show, pull]), Some(model)) = (commands, plan.request.model.as_deref()) else {
        return Ok(());
    };
    let mut last = String::new();
    for (argv, fetches) in [(show, false), (pull, true)] {
        if fetches {
            progress(Progress::Note(format!("pulling the model {model}")));
        }
        let words = argv.iter().chain([&model]).map(|word| (*word).to_owned());
        let request = ExecRequest {
            run_id: plan.run_id.clone(),
            ..ExecRequest::for_command(words.collect())
        };
        let sink = |_, line: String| {
            if !line.trim().is_empty() {
                last = line;
            }
        };
        let ran = plan.run_exec(request, None, stop.token(), sink).await?;
        match ran.ended.end {
            ExecEnd::Exited(0) => return Ok(()),
            ExecEnd::Cancelled => return Err(stop.stop_failure()),
            _ => {}
        }
    }
    let redactor = plan.attached.found.secrets.redactor();
    let why = redactor.redact_text(last.trim()).into_owned();
    Err(
        Failure::run(format!("the model `{model}` cannot be pulled: {why}"))
            .hint("is its name right, and does the container reach the network?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_models_that_a_bench_can_load() {
        let paths = [
            "/models/tiny/config.json",
            "/models/tiny/text_encoder/config.json",
            "/models/tiny-2/config.json",
            "/models/q/q4.gguf",
            "/root/.cache/huggingface/hub/models--acme--small-1b/snapshots/0f/config.json",
            "/root/.cache/huggingface/hub/models--acme--small-1b/snapshots/1f/config.json",
            "/data/hub/models--acme--small-1b/snapshots/0f/config.json",
        ]
        .map(str::to_owned);
        assert_eq!(
            models_of(&paths),
            [
                "/data/hub/models--acme--small-1b/snapshots/0f",
                "/models/q/q4.gguf",
                "/models/tiny",
                "/models/tiny-2",
                "acme/small-1b",
            ]
        );
    }
}
