//! Names for documents that are written once, at the end of a command.

use std::path::{Path, PathBuf};

/// The first name in `folder` that nothing has yet: `<stem>.json`, `<stem>-2.json`, ….
pub fn free_name(folder: &Path, stem: &str) -> PathBuf {
    let named = |n: u32| match n {
        1 => folder.join(format!("{stem}.json")),
        n => folder.join(format!("{stem}-{n}.json")),
    };
    // A folder with this many documents of one second is not in normal use; then the last is
    // overwritten.
    (1..1000)
        .map(named)
        .find(|path| !path.exists())
        .unwrap_or_else(|| named(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let first = free_name(dir.path(), "a");
        assert!(first.ends_with("a.json"));
        std::fs::write(first, "x").unwrap();
        assert!(free_name(dir.path(), "a").ends_with("a-2.json"));
    }
}
