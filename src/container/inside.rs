//! The files of a container as this host sees them: below the root of its first process. No link leads out of it, where it
//! could name a file of this host that only root may read.
//!
//! Versions of the Python packages in a container, by the names of their metadata folders as this host sees them.
//! Nothing runs.

use super::Runtime;
use crate::capture::ContainerFacts;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::{fs, io};

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

impl Runtime {
    /// Name and version of those `wanted` packages that are in `folders` (below the container's root, or of its virtual
    /// environment). `None` where this host does not show the container's files to this user.
    pub fn python_packages(
        &self,
        facts: &ContainerFacts,
        wanted: &[String],
        folders: &[String],
    ) -> Option<BTreeMap<String, String>> {
        let root = Inside::root_of(self.local_pid(facts)?).ok()?;
        let own = facts.env.get("VIRTUAL_ENV").map(|place| {
            let place = place.trim_matches('/');
            format!("{place}/lib/python3*/site-packages")
        });
        let folders = own.iter().chain(folders);
        Some(packages_below(&root, wanted, folders))
    }
}

fn packages_below<'a>(
    root: &Inside,
    wanted: &[String],
    folders: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in folders.flat_map(|pattern| matching_folders(root, pattern)) {
        for name in root.names_in(&folder) {
            let Some((package, version)) = metadata_name(&name) else {
                continue;
            };
            if wanted.contains(&package) {
                // The first folder is the one that Python takes.
                found.entry(package).or_insert(version);
            }
        }
    }
    found
}

/// `torch-2.11.0+cpu.dist-info` as name and version.
fn metadata_name(folder: &str) -> Option<(String, String)> {
    let (name, version) = folder.strip_suffix(".dist-info")?.split_once('-')?;
    Some((
        name.to_ascii_lowercase().replace(['-', '.'], "_"),
        version.to_owned(),
    ))
}

/// The folders that a pattern names; a part that ends with `*` matches every name that begins so.
fn matching_folders(root: &Inside, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let below = |folder: &String, name: &str| format!("{folder}/{name}");
        found = match part.strip_suffix('*') {
            None => found.iter().map(|folder| below(folder, part)).collect(),
            Some(beginning) => {
                let named = |folder: &String| {
                    let names = root.names_in(&format!("{folder}/")).into_iter();
                    let fitting = names.filter(|name| name.starts_with(beginning));
                    fitting.map(|name| below(folder, &name)).collect::<Vec<_>>()
                };
                found.iter().flat_map(named).collect()
            }
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_packages_of_an_image_are_named_with_their_versions() {
        let root = tempfile::tempdir().unwrap();
        let folder = |path: &str| fs::create_dir_all(root.path().join(path)).unwrap();
        folder("usr/local/lib/python3.12/dist-packages/torch-2.11.0+cpu.dist-info");
        folder("usr/local/lib/python3.12/dist-packages/Text_Generation.Server-3.3.6.dist-info");
        folder("usr/local/lib/python3.12/dist-packages/numpy-2.0.dist-info");
        folder("usr/local/lib/python3.12/dist-packages/torch");
        folder("opt/venv/lib/python3.11/site-packages/torch-2.9.dist-info");
        let wanted = ["torch", "text_generation_server", "vllm"].map(str::to_owned);
        let folders = [
            "usr/local/lib/python3*/dist-packages",
            "opt/venv/lib/python3*/site-packages",
            "no/such*/folder",
            "opt/conda/lib/python3*/dist-packages",
        ];
        let folders = folders.map(str::to_owned);
        // A link to this host's packages leads nowhere.
        let link = root.path().join("opt/conda");
        std::os::unix::fs::symlink(root.path().join("usr/local"), link).unwrap();
        let inside = Inside::below(root.path()).unwrap();
        let found = packages_below(&inside, &wanted, folders.iter());
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            found,
            [("text_generation_server", "3.3.6"), ("torch", "2.11.0+cpu")]
        );
        assert!(matching_folders(&inside, "../../proc*/x").is_empty());
    }
}
