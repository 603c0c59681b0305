//! A sweep in a folder of its own, whose containers are gone when it is dropped.

use super::common::docker;
use super::with_state;
use plimsoll::sweep::{SWEEP_LABEL, SweepHistory};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of a sweep, and what it remembers of what it started.
pub(super) struct Sweep {
    pub(super) dir: tempfile::TempDir,
    folder: PathBuf,
    state: PathBuf,
}

impl Sweep {
    pub(super) fn new(text: &str, state: &Path) -> Sweep {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("sweep.yaml"), text).expect("file");
        Sweep {
            folder: dir.path().join("run"),
            dir,
            state: state.to_owned(),
        }
    }

    /// The same, whose results go to another place.
    pub(super) fn into(mut self, folder: PathBuf) -> Sweep {
        self.folder = folder;
        self
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Begins, or goes on.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let file = self.dir.path().join("sweep.yaml").display().to_string();
        let mut command = with_state(&["sweep", &file, "--memory-backend=host"], &self.state);
        command
            .arg(format!("--begin-or-resume={}", self.folder().display()))
            .arg(format!("--results-dir={}", self.dir.path().display()))
            .args(args);
        command
    }

    pub(super) fn history(&self) -> SweepHistory {
        SweepHistory::read_journal(&self.folder()).expect("journal")
    }

    /// Its containers.
    pub(super) fn left(&self) -> Vec<String> {
        let Ok(id) = std::fs::read_to_string(self.folder().join("id")) else {
            return Vec::new();
        };
        let filter = format!("label={SWEEP_LABEL}={}", id.trim());
        let list = docker(&["ps", "-aq", "--filter", &filter]).expect("docker ps");
        list.lines().map(str::to_owned).collect()
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        for id in self.left() {
            let _ = docker(&["rm", "-f", "-v", &id]);
        }
    }
}
