//! Finding the memory cgroup of a process, and what its files say. Parsing takes text, so that
//! every layout can be tested anywhere; only [`find`] reads.

use crate::capture::HostSplit;
use std::io;
use std::path::{Path, PathBuf};

/// The two generations of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

impl Version {
    /// The file with the bytes charged now.
    pub fn usage_file(self) -> &'static str {
        match self {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        }
    }

    /// As it is called in texts.
    pub fn name(self) -> &'static str {
        match self {
            Version::V1 => "cgroup v1",
            Version::V2 => "cgroup v2",
        }
    }
}

/// A memory cgroup that may be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Generation.
    pub version: Version,
    /// Path within its hierarchy, as `/proc/<pid>/cgroup` has it.
    pub path: String,
    /// Where its files are.
    pub dir: PathBuf,
}

/// Why no memory cgroup was found.
#[derive(Debug)]
pub enum NotFound {
    /// `/proc/<pid>/cgroup` cannot be read.
    NoProcess(io::Error),
    /// There is a process of that number, but it is not in the container.
    ForeignProcess,
    /// The container's cgroups (these paths) have no memory files that are visible here.
    Invisible(Vec<String>),
}

/// The memory cgroup of the container that process `pid` belongs to. An empty `container_id`
/// takes the cgroup of the process itself.
pub fn find(pid: u32, container_id: &str) -> Result<Cgroup, NotFound> {
    let membership =
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(NotFound::NoProcess)?;
    // With a remote daemon the pid is one of another machine, and here it may be anybody's.
    if !container_id.is_empty() && !names_container(&membership, container_id) {
        return Err(NotFound::ForeignProcess);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let candidates = candidates(&membership, &mounts, container_id);
    match candidates
        .into_iter()
        .find(|c| c.dir.join(c.version.usage_file()).exists())
    {
        Some(cgroup) => Ok(cgroup),
        None => Err(NotFound::Invisible(
            lines(&membership)
                .map(|l| cut(l.path, container_id).to_owned())
                .collect(),
        )),
    }
}

/// Whether a process with this `/proc/<pid>/cgroup` is in the container. Hybrid hosts have the id
/// in the v1 lines only, so every line counts.
pub fn names_container(membership: &str, container_id: &str) -> bool {
    !container_id.is_empty()
        && lines(membership).any(|l| l.path.split('/').any(|c| is_of(c, container_id)))
}

/// The cgroups that could hold the container's memory charge, the likeliest first.
pub fn candidates(membership: &str, mountinfo: &str, container_id: &str) -> Vec<Cgroup> {
    let mounts = mounts(mountinfo);
    // A v1 memory controller comes first: where there is one, the v2 hierarchy does not have it.
    [Version::V1, Version::V2]
        .into_iter()
        .flat_map(|version| {
            lines(membership)
                .filter(move |l| l.version == Some(version))
                .map(move |l| (version, l))
        })
        .flat_map(|(version, line)| {
            let path = cut(line.path, container_id);
            let here = mounts.iter().filter(move |m| m.version == version);
            here.filter_map(move |m| {
                Some(Cgroup {
                    version,
                    path: path.to_owned(),
                    dir: m.resolve(path)?,
                })
            })
        })
        .collect()
}

struct Line<'a> {
    /// The generation whose memory controller the line may speak of; `None` for others.
    version: Option<Version>,
    path: &'a str,
}

fn lines(membership: &str) -> impl Iterator<Item = Line<'_>> {
    membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match (id, controllers) {
            ("0", "") => Some(Version::V2),
            (_, c) if c.split(',').any(|c| c == "memory") => Some(Version::V1),
            _ => None,
        };
        // The kernel appends this once the cgroup is removed under a zombie.
        Some(Line {
            version,
            path: path.strip_suffix(" (deleted)").unwrap_or(path),
        })
    })
}

/// Whether a component of a path names the container: `<id>`, `docker-<id>.scope`,
/// `kubepods-…:cri-containerd:<id>`. The monitor beside a container is named after it too.
fn is_of(component: &str, container_id: &str) -> bool {
    let name = component.strip_suffix(".scope").unwrap_or(component);
    match name.strip_suffix(container_id) {
        Some("") => true,
        Some(before) => before.ends_with(['-', ':']) && !before.ends_with("conmon-"),
        None => false,
    }
}

/// The path down to the container's own component. Process 1 may sit deeper: Podman has
/// `/container` below the scope, and an init system in the container makes cgroups of its own,
/// while the charge of all of them is the container's.
fn cut<'a>(path: &'a str, container_id: &str) -> &'a str {
    if container_id.is_empty() {
        return path;
    }
    let mut end = 0;
    for component in path.split('/') {
        end += component.len();
        if is_of(component, container_id) {
            return &path[..end];
        }
        end += 1;
    }
    path
}

struct Mount {
    version: Version,
    /// What of the hierarchy is mounted.
    root: String,
    at: String,
}

impl Mount {
    /// Where a cgroup is to be found under this mount.
    fn resolve(&self, path: &str) -> Option<PathBuf> {
        let below = if self.root == "/" {
            path
        } else {
            path.strip_prefix(self.root.as_str())?
        };
        // Outside our cgroup namespace paths begin with `/..`: only a mount whose own root does too shows them.
        if !(below.is_empty() || below.starts_with('/')) || below.split('/').any(|c| c == "..") {
            return None;
        }
        let at = Path::new(&self.at);
        match below.trim_start_matches('/') {
            "" => Some(at.to_owned()),
            below => Some(at.join(below)),
        }
    }
}

fn mounts(mountinfo: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, at) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, _source, options) = (
            right.next()?,
            right.next()?,
            right.next().unwrap_or_default(),
        );
        let version = match kind {
            "cgroup2" => Version::V2,
            "cgroup" if options.split(',').any(|o| o == "memory") => Version::V1,
            _ => return None,
        };
        Some(Mount {
            version,
            root: unescape(root),
            at: unescape(at),
        })
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// Undoes the octal escapes of mountinfo (`\040` is a space).
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let octal = bytes
            .get(i + 1..i + 4)
            .filter(|d| bytes[i] == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal
            .map(|d| d.iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0')))
            .and_then(|n| u8::try_from(n).ok())
        {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A file that holds one number. `max` (no limit) is `None`.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The kinds of memory in `memory.stat` and, on v1, `memory.kmem.usage_in_bytes`; on v2
/// `memory.swap.current`.
pub fn split(version: Version, stat: &str, beside: Option<u64>) -> HostSplit {
    let field = |name: &str| {
        stat.lines()
            .find_map(|l| number(l.strip_prefix(name)?.strip_prefix(' ')?))
    };
    match version {
        Version::V1 => {
            // Without hierarchy the `total_` lines are missing and the plain ones are the whole.
            let of = |total: &str| field(total).or_else(|| field(total.strip_prefix("total_")?));
            let shmem = of("total_shmem");
            HostSplit {
                anon_bytes: of("total_rss"),
                // The kernel counts shared memory as cache.
                file_bytes: of("total_cache")
                    .zip(shmem)
                    .map(|(cache, shmem)| cache.saturating_sub(shmem)),
                shmem_bytes: shmem,
                kernel_bytes: beside,
                swap_bytes: of("total_swap"),
            }
        }
        Version::V2 => {
            let shmem = field("shmem");
            // `kernel` came with Linux 5.18. Before, its parts are told one by one.
            let parts = || {
                let parts = ["slab", "kernel_stack", "pagetables", "percpu"].map(field);
                parts.iter().any(Option::is_some).then(|| {
                    parts
                        .iter()
                        .flatten()
                        .fold(0u64, |a, b| a.saturating_add(*b))
                })
            };
            HostSplit {
                anon_bytes: field("anon"),
                file_bytes: field("file")
                    .zip(shmem)
                    .map(|(file, shmem)| file.saturating_sub(shmem)),
                shmem_bytes: shmem,
                kernel_bytes: field("kernel").or_else(parts),
                swap_bytes: beside,
            }
        }
    }
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
