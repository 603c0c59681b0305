//! The cache of huggingface_hub: which folder, and where in it a model's newest files lie.

use std::path::{Path, PathBuf};

/// The cache's folder.
pub(super) fn folder() -> Option<PathBuf> {
    hf_place("HF_HUB_CACHE", "hub")
}

/// A file or folder of huggingface_hub, by the variables that it reads. `own`: the one that names this alone.
pub(super) fn hf_place(own: &str, name: &str) -> Option<PathBuf> {
    let set = |name: &str| {
        let value = std::env::var_os(name).filter(|v| !v.is_empty());
        value.map(PathBuf::from)
    };
    let folder = || {
        set("HF_HOME")
            .or_else(|| Some(set("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(set("HOME")?.join(".cache/huggingface")))
    };
    set(own).or_else(|| Some(folder()?.join(name)))
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
