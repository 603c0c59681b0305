//! The freezer of cgroup v1. Frozen processes receive no signal, not even SIGKILL: a daemon that
//! waits for their end waits forever, and stops answering about that container.

use super::processes::container_cgroup;
use crate::host::processes::{all_pids, parse_cgroup};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where the hierarchy is mounted.
const MOUNT: &str = "/sys/fs/cgroup/freezer";

/// `freezer.state` of a container's own cgroup, if that is frozen and has processes.
pub fn frozen_state_file(container: &str) -> Option<PathBuf> {
    let path = all_pids().find_map(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let mut lines = parse_cgroup(&text).filter(|l| l.controllers == "freezer");
        let path = lines.find_map(|l| container_cgroup(l.path, container))?;
        Some(path.to_owned())
    })?;
    let folder = Path::new(MOUNT).join(path.trim_start_matches('/'));
    // `freezer.state` is FROZEN below a frozen parent too, but only the container's own cgroup is
    // thawed.
    let own = fs::read_to_string(folder.join("freezer.self_freezing")).ok()?;
    (own.trim() == "1").then(|| folder.join("freezer.state"))
}

/// Thaws the processes.
pub fn thaw_cgroup(state: &Path) -> io::Result<()> {
    fs::write(state, "THAWED")
}
