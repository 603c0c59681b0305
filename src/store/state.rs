//! What runs remember for each other: small files in the user's state folder, changed by one at a
//! time.

use super::lock::own_folder;
use super::{FileLock, LockRefusal, bounded, private, write_atomically};
use crate::error::Failure;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A longer file is none of ours, bytes.
const LONGEST: u64 = 64 << 20;
/// Whoever changes a file is done in less.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(10);

/// A file locked for exclusive use while this value lives.
#[derive(Debug)]
pub struct SharedFile {
    path: PathBuf,
    _lock: FileLock,
}

impl SharedFile {
    /// Opens and locks a file of this name in the state folder; `None` if there is no writable
    /// state folder, or another process holds the lock for too long.
    pub fn open_locked(name: &str) -> Option<SharedFile> {
        SharedFile::open_in(&state_folder()?, name)
    }

    fn open_in(folder: &Path, name: &str) -> Option<SharedFile> {
        own_folder(folder).ok()?;
        let until = Instant::now() + PATIENCE;
        let lock = loop {
            // Beside it: the file itself is replaced when it is written.
            let path = folder.join(format!("{name}.lock"));
            match FileLock::take_lock(private::open_to_lock(&path, false).ok()?) {
                Ok(lock) => break lock,
                Err(LockRefusal::Cannot(_)) => return None,
                Err(LockRefusal::Held(_)) if Instant::now() >= until => return None,
                Err(LockRefusal::Held(_)) => std::thread::sleep(AGAIN),
            }
        };
        Some(SharedFile {
            path: folder.join(name),
            _lock: lock,
        })
    }

    /// What is in a file of this name, for who only looks: it is replaced as a whole.
    pub fn read_unlocked(name: &str) -> Option<Vec<u8>> {
        read_bytes(&state_folder()?.join(name))
    }

    /// Where it lies.
    pub fn file_path(&self) -> &Path {
        &self.path
    }

    /// What is in it; `None` where there is nothing that could be read.
    pub fn read_bytes(&self) -> Option<Vec<u8>> {
        read_bytes(&self.path)
    }

    /// Writes it, whole or not at all.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        write_atomically(&self.path, bytes)
    }
}

fn read_bytes(path: &Path) -> Option<Vec<u8>> {
    let found = std::fs::symlink_metadata(path).ok()?;
    let ours = found.is_file() && found.len() <= LONGEST;
    ours.then(|| bounded::read_bytes(path, LONGEST).ok())
        .flatten()
}

/// `$XDG_STATE_HOME/plimsoll`, or in `~/.local/state`.
pub(super) fn state_folder() -> Option<PathBuf> {
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// Plimsoll's folder below the one in this variable, or else below `in_home` in the home.
pub(super) fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))?;
    Some(base.join("plimsoll"))
}

// What is kept between runs because it takes long to find out again: texts by a key, in the user's cache folder. Nothing
// depends on it: what cannot be read or written is found out again.

/// A longer text is none of ours, bytes. The longest are the tensors of a model with many experts, some 10 MiB.
const LONGEST_CACHED: u64 = 64 << 20;

/// The text that was kept under a key.
pub fn read_cached(kind: &str, key: &str) -> Option<String> {
    let file = cache_file(kind, key)?;
    String::from_utf8(bounded::read_bytes(&file, LONGEST_CACHED).ok()?).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_next_reads() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/plimsoll");
        let open = || SharedFile::open_in(&folder, "x.json").unwrap();
        assert_eq!(open().read_bytes(), None);
        open().write_bytes(b"one").unwrap();
        assert_eq!(open().read_bytes().as_deref(), Some(&b"one"[..]));
    }

    #[test]
    fn two_that_add_one_each_add_two() {
        let dir = tempfile::tempdir().unwrap();
        let add = || {
            let file = SharedFile::open_in(dir.path(), "n").unwrap();
            let n = file.read_bytes().map_or(0, |bytes| bytes.len());
            file.write_bytes(&vec![b'x'; n + 1]).unwrap();
        };
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..5).for_each(|_| add()));
            }
        });
        let all = SharedFile::open_in(dir.path(), "n").unwrap().read_bytes();
        assert_eq!(all.map(|bytes| bytes.len()), Some(20));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_none() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        assert!(SharedFile::open_in(dir.path(), "x").is_none());
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(SharedFile::open_in(&file, "x").is_none());
    }
}
