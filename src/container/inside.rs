//! The files of a container as this host sees them: below the root of its first process. No link leads out of it, where it
//! could name a file of this host that only root may read.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The root of a container.
pub(super) struct Inside {
    root: OwnedFd,
}

impl Inside {
    /// That of a process.
    pub(super) fn root_of(pid: u32) -> io::Result<Inside> {
        Inside::below(Path::new(&format!("/proc/{pid}/root")))
    }

    /// That which lies in a folder.
    pub(super) fn below(folder: &Path) -> io::Result<Inside> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(folder, flags, Mode::empty())?;
        Ok(Inside { root })
    }

    /// Opens what is at a path inside.
    pub(super) fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(
            &self.root,
            path,
            flags,
            Mode::empty(),
            within,
        )?)
    }

    /// The names in a folder inside, sorted; none where there is no such folder.
    pub(super) fn names_in(&self, path: &str) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = self.open(path, flags) else {
            return Vec::new();
        };
        let entries = fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let entries = entries.into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}
