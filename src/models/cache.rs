//! The cache of huggingface_hub: which folder, and where in it a model's newest files lie.

use std::path::{Path, PathBuf};

/// The cache's folder, by the variables that huggingface_hub reads.
pub(super) fn folder() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    set("HF_HUB_CACHE")
        .or_else(|| set("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

/// The snapshot of `main` of an id; where there is no such ref, the only snapshot there is.
pub(super) fn snapshot(cache: &Path, id: &str) -> Option<PathBuf> {
    let (owner, name) = id.split_once('/')?;
    if !is_word(owner) || !is_word(name) {
        return None;
    }
    let model = cache.join(format!("models--{owner}--{name}"));
    let snapshots = model.join("snapshots");
    match std::fs::read_to_string(model.join("refs/main")) {
        Ok(commit) => {
            let commit = commit.trim();
            is_word(commit).then(|| snapshots.join(commit))
        }
        Err(_) => {
            let mut all = std::fs::read_dir(&snapshots).ok()?.flatten();
            let only = all.next()?;
            all.next().is_none().then(|| only.path())
        }
    }
}

/// A name that stays in its folder.
fn is_word(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !word.is_empty() && !word.starts_with('.') && word.len() <= 200 && word.chars().all(plain)
}
