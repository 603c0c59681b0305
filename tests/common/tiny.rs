//! A disk that is soon full.
#![allow(dead_code, missing_docs)]

use std::path::PathBuf;
use std::process::Command;

/// A file system of the test's own; unmounted when dropped.
pub struct Tiny(pub PathBuf, tempfile::TempDir);

impl Tiny {
    pub fn mount(options: &str) -> Result<Tiny, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let path = dir.path().join("tiny");
        std::fs::create_dir(&path).map_err(|e| e.to_string())?;
        let mount = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let out = Command::new("mount").args(mount).arg(&path).output();
        let out = out.map_err(|e| e.to_string())?;
        match out.status.success() {
            true => Ok(Tiny(path, dir)),
            false => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
        }
    }

    /// Gives it other options, as a larger size.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mount = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .status();
        assert!(mount.expect("mount").success(), "{options}");
    }

    pub fn arg(&self) -> String {
        format!("--results-dir={}", self.0.display())
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.0).output();
    }
}
