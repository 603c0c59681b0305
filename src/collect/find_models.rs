//! The models that lie in an idle container, for a command that names none.

use super::Plan;
use super::stop::Stop;
use crate::capture::ExecEnd;
use crate::container::exec::ExecRequest;
use crate::error::Failure;
use std::collections::BTreeSet;
use std::time::Duration;

/// Where images and their users put models.
const USUAL_FOLDERS: [&str; 6] = [
    "/models",
    "/model",
    "/data",
    "/workspace",
    "/root/.cache/huggingface/hub",
    "/root/.cache/llama.cpp",
];
/// Of a folder with models: `hub/models--ORG--NAME/snapshots/HASH/config.json`, and one above.
const MAX_DEPTH: &str = "5";
/// A disk may be slow, and a folder large.
const SEARCH_DEADLINE: Duration = Duration::from_secs(20);
/// More are not listed.
const MAX_MODELS: usize = 20;

/// The models in the container's usual folders and mounts, as `--model` takes them. Nothing where the
/// image has no `find`.
pub async fn find_models(plan: &Plan, stop: &Stop) -> Result<Vec<String>, Failure> {
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
    let search = plan.exec(request, None, stop.token(), sink).await?;
    match search.ended.end {
        ExecEnd::Exited(_) => Ok(models_of(&paths)),
        // Of a search that was cut short it is not known whether there are more.
        _ => Ok(Vec::new()),
    }
}

/// The models of files that were found.
fn models_of(paths: &[String]) -> Vec<String> {
    let mut folders: Vec<&str> = paths
        .iter()
        .filter_map(|p| p.strip_suffix("/config.json"))
        .collect();
    // A part of a model has a config.json of its own, below the model's.
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

/// The id of a model in Hugging Face's cache; the path of any other.
fn model_name(path: &str) -> String {
    let id = path.split_once("/hub/models--").and_then(|(cache, rest)| {
        let is_default = cache.ends_with("/.cache/huggingface");
        Some(rest.split_once('/')?.0.replacen("--", "/", 1)).filter(|_| is_default)
    });
    id.unwrap_or_else(|| path.to_owned())
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
