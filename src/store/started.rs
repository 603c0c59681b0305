//! The containers that plimsoll started, one small file each: so that a process that outlives its
//! container is known for ours when Docker knows nothing of it any more.

use super::lock::own_folder;
use super::{bounded, state, write_atomically};
use crate::error::Failure;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A longer file is none of ours, bytes.
const LONGEST: u64 = 16 << 10;

/// A container that plimsoll started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedContainer {
    /// Full id.
    pub container: String,
    /// Name.
    pub name: String,
    /// The daemon that it was started with, as `Runtime::daemon_identity` has it: another one never
    /// knew it. An older plimsoll wrote only an ID, which no daemon's identity is.
    pub daemon: String,
    /// Who started it, as the container's label has it.
    pub owner: String,
    /// Start of its first process, clock ticks since boot.
    pub started: u64,
    /// The boot of the host that this was in: ticks of another one mean nothing.
    pub boot: String,
}

/// Writes it down. Without a folder for that nothing is written.
pub fn note_started(started: &StartedContainer) -> Result<(), Failure> {
    match started_folder() {
        Some(folder) => note_in(&folder, started),
        None => Ok(()),
    }
}

/// Strikes a container out: it is gone, with all its processes.
pub fn forget_started(container: &str) {
    if let Some(folder) = started_folder() {
        forget_in(&folder, container);
    }
}

/// All that were started in this boot and not struck out. Those of other boots are struck out.
pub fn list_started(boot: &str) -> Vec<StartedContainer> {
    started_folder().map_or_else(Vec::new, |folder| all_in(&folder, boot))
}

/// `$XDG_STATE_HOME/plimsoll/started`, or in `~/.local/state`.
fn started_folder() -> Option<PathBuf> {
    Some(state::state_folder()?.join("started"))
}

/// Whether this can be a container's full id; only such become names of files.
fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn started_file(folder: &Path, container: &str) -> PathBuf {
    folder.join(format!("{container}.json"))
}

fn note_in(folder: &Path, started: &StartedContainer) -> Result<(), Failure> {
    if !is_id(&started.container) || started.boot.is_empty() || started.daemon.is_empty() {
        return Ok(());
    }
    own_folder(folder).map_err(|e| {
        let message = format!(
            "cannot write down what was started in `{}`",
            folder.display()
        );
        Failure::environment(message).caused_by(e)
    })?;
    let text = serde_json::to_vec(started).unwrap_or_default();
    write_atomically(&started_file(folder, &started.container), &text)
}

fn forget_in(folder: &Path, container: &str) {
    if is_id(container) {
        // What is not there need not go; what cannot go is looked at again.
        let _ = std::fs::remove_file(started_file(folder, container));
    }
}

fn all_in(folder: &Path, boot: &str) -> Vec<StartedContainer> {
    // Files that another user can write are not trusted.
    if boot.is_empty() || !folder.is_dir() || own_folder(folder).is_err() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let named = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        let small =
            std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= LONGEST);
        if !is_id(named) || !small {
            continue;
        }
        let read = bounded::read_bytes(&path, LONGEST)
            .ok()
            .and_then(|bytes| bounded::parse_json::<StartedContainer>(&bytes).ok())
            .filter(|s| s.container == named);
        match read {
            Some(started) if started.boot == boot => all.push(started),
            Some(_) => forget_in(folder, named),
            None => {}
        }
    }
    all.sort_by(|a, b| a.container.cmp(&b.container));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(digit: char, boot: &str) -> StartedContainer {
        StartedContainer {
            container: digit.to_string().repeat(64),
            name: "llm".into(),
            daemon: "d".into(),
            owner: "boot:7:9".into(),
            started: 100,
            boot: boot.into(),
        }
    }

    #[test]
    fn what_was_started_is_known_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plimsoll/started");
        assert_eq!(all_in(&folder, "boot"), []);
        let (one, two) = (started('1', "boot"), started('2', "boot"));
        note_in(&folder, &one).unwrap();
        note_in(&folder, &two).unwrap();
        note_in(&folder, &two).unwrap();
        assert_eq!(all_in(&folder, "boot"), [one.clone(), two.clone()]);
        forget_in(&folder, &one.container);
        forget_in(&folder, &one.container);
        assert_eq!(all_in(&folder, "boot"), [two]);
    }

    #[test]
    fn another_boot_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("started");
        note_in(&folder, &started('1', "before")).unwrap();
        assert_eq!(all_in(&folder, "now"), []);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("started");
        let one = started('1', "boot");
        note_in(&folder, &one).unwrap();
        // Another container's word under this name, a broken file, a name that is no id.
        let text = serde_json::to_vec(&started('3', "boot")).unwrap();
        std::fs::write(started_file(&folder, &"4".repeat(64)), &text).unwrap();
        std::fs::write(started_file(&folder, &"5".repeat(64)), "{").unwrap();
        std::fs::write(folder.join("notes.json"), &text).unwrap();
        assert_eq!(all_in(&folder, "boot"), [one]);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&folder, open).unwrap();
        assert_eq!(all_in(&folder, "boot"), []);
    }

    #[test]
    fn only_an_id_becomes_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut odd = started('1', "boot");
        odd.container = "../../etc/x".into();
        note_in(dir.path(), &odd).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
