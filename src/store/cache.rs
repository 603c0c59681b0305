//! What is kept between runs because it takes long to find out again: texts by a key, in the user's
//! cache folder. Nothing depends on it: what cannot be read or written is found out again.

use super::state::user_folder;
use super::{bounded, private, write_atomically};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// A longer text is none of ours, bytes. The longest are the tensors of a model with many experts, some 10 MiB.
const LONGEST: u64 = 64 << 20;

/// The text that was kept under a key.
pub fn read_cached(kind: &str, key: &str) -> Option<String> {
    let file = cache_file(kind, key)?;
    String::from_utf8(bounded::read_bytes(&file, LONGEST).ok()?).ok()
}

/// Keeps a text under a key.
pub fn write_cached(kind: &str, key: &str, text: &str) {
    let Some(file) = cache_file(kind, key) else {
        return;
    };
    let made = file.parent().map(private::create_folders);
    if made.is_some_and(|made| made.is_ok()) {
        // The next run asks again.
        let _ = write_atomically(&file, text.as_bytes());
    }
}

/// `$XDG_CACHE_HOME/plimsoll/<kind>/<hash of the key>`, or in `~/.cache`.
fn cache_file(kind: &str, key: &str) -> Option<PathBuf> {
    let base = user_folder("XDG_CACHE_HOME", ".cache")?;
    let digest = Sha256::digest(key.as_bytes());
    let word: String = digest.iter().take(16).map(|b| format!("{b:02x}")).collect();
    Some(base.join(kind).join(word))
}
