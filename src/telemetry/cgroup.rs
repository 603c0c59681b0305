//! The memory cgroup of a container, v1 and v2, from its own level up to the root: limits, usage,
//! swap, and the counters of OOM kills. Nothing is written to these files that another reader could notice: since Linux
//! 6.12 a peak is reset for one descriptor alone, and where that is not so no peak is reset.

use crate::capture::{HostSplit, LimitLevel, MemoryLimit};
use crate::host::processes::parse_cgroup;
use crate::host::text_in;
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The two generations of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// File names of one version. Each file holds one number, or `max` for no limit.
struct FileNames {
    usage: &'static str,
    peak: &'static str,
    limit: &'static str,
    /// Memory and swap together.
    usage_with_swap: Option<&'static str>,
    peak_with_swap: Option<&'static str>,
    /// Swap alone.
    swap: Option<&'static str>,
    swap_peak: Option<&'static str>,
    kernel: Option<&'static str>,
    /// Counts the killed processes of a cgroup (`oom_kill`), whichever limit was reached.
    kills: &'static str,
    /// Counters (numbers, or tables with `oom`) that grow when this level's own limit is reached;
    /// the most reliable first.
    reached: &'static [&'static str],
    /// Peak usage and its limit, for kernels that no longer update the counters above.
    highest: &'static [(&'static str, &'static str)],
}

const V1: FileNames = FileNames {
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    limit: "memory.limit_in_bytes",
    usage_with_swap: Some("memory.memsw.usage_in_bytes"),
    peak_with_swap: Some("memory.memsw.max_usage_in_bytes"),
    swap: None,
    swap_peak: None,
    kernel: Some("memory.kmem.usage_in_bytes"),
    kills: "memory.oom_control",
    // With swap, a limit on memory alone is reached all the time and kills nothing.
    reached: &["memory.memsw.failcnt", "memory.failcnt"],
    highest: &[
        (
            "memory.memsw.max_usage_in_bytes",
            "memory.memsw.limit_in_bytes",
        ),
        ("memory.max_usage_in_bytes", "memory.limit_in_bytes"),
    ],
};

const V2: FileNames = FileNames {
    usage: "memory.current",
    peak: "memory.peak",
    limit: "memory.max",
    usage_with_swap: None,
    peak_with_swap: None,
    swap: Some("memory.swap.current"),
    swap_peak: Some("memory.swap.peak"),
    kernel: None,
    // Includes sub-cgroups: an init system inside the container makes its own.
    kills: "memory.events",
    reached: &["memory.events.local"],
    highest: &[],
};

impl CgroupVersion {
    fn file_names(self) -> &'static FileNames {
        match self {
            CgroupVersion::V1 => &V1,
            CgroupVersion::V2 => &V2,
        }
    }

    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            CgroupVersion::V1 => "cgroup v1",
            CgroupVersion::V2 => "cgroup v2",
        }
    }
}

/// A candidate for the container's memory cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Generation.
    pub version: CgroupVersion,
    /// Path within its hierarchy, as `/proc/<pid>/cgroup` has it.
    pub path: String,
    /// Where its files are.
    pub dir: PathBuf,
    /// Mount point of its hierarchy: levels above are not visible.
    pub mount: PathBuf,
}

/// v1 writes "no limit" as a number of this size or more.
const NO_LIMIT_BYTES: u64 = 1 << 60;

impl Cgroup {
    /// Whether the kernel shows the memory of this cgroup.
    fn is_there(&self) -> bool {
        self.dir.join(self.version.file_names().usage).exists()
    }

    /// This cgroup and its visible ancestors, the innermost first.
    fn visible_levels(&self) -> Vec<Cgroup> {
        let mut levels = vec![self.clone()];
        let mut level = self.clone();
        while level.dir != level.mount && level.dir.pop() {
            let parent = level
                .path
                .rfind('/')
                .map_or("", |slash| &level.path[..slash]);
            level.path = parent.to_owned();
            // Old v1 hosts account some cgroups separately from their parents.
            if self.version == CgroupVersion::V1
                && text_in(&level.dir.join("memory.use_hierarchy")).as_deref() == Some("0")
            {
                break;
            }
            levels.push(level.clone());
        }
        levels
    }

    /// The limit set at this level, whatever the levels above allow.
    fn own_limit(&self) -> Option<u64> {
        number_of(&self.dir, self.version.file_names().limit).filter(|b| *b < NO_LIMIT_BYTES)
    }

    /// The smallest limit from this cgroup up to the root, or the host's memory.
    pub fn effective_limit(&self, host_bytes: Option<u64>) -> Option<MemoryLimit> {
        let limit = |bytes, level| MemoryLimit { bytes, level };
        let levels = self.visible_levels();
        let visible = levels.iter().enumerate().filter_map(|(place, level)| {
            Some(limit(level.own_limit()?, level.level_name(place == 0)))
        });
        // v1 reports the result even where levels above are not visible.
        let hidden = text_in(&self.dir.join("memory.stat"))
            .filter(|_| self.version == CgroupVersion::V1)
            .and_then(|stat| field(&stat, "hierarchical_memory_limit"))
            .filter(|b| *b < NO_LIMIT_BYTES)
            .map(|bytes| limit(bytes, LimitLevel::Cgroup("/..".into())));
        let host = host_bytes.map(|bytes| limit(bytes, LimitLevel::Host));
        // `min_by_key` takes the first of equal limits: the innermost.
        visible.chain(hidden).chain(host).min_by_key(|l| l.bytes)
    }

    fn level_name(&self, own: bool) -> LimitLevel {
        if own {
            LimitLevel::Container
        } else {
            LimitLevel::Cgroup(self.path.clone())
        }
    }
}

/// Counts OOM kills of the container's processes, and finds the level of its cgroup path that
/// reached its limit.
pub struct OomWatch {
    levels: Vec<Cgroup>,
    /// The container's own limit; kept because its files disappear with it.
    own_limit: Option<u64>,
    host_bytes: Option<u64>,
    kills: u64,
    /// All OOM kills on this host since boot.
    host_kills: Option<u64>,
    /// Those in the cgroup above and in all that it holds; v2 only.
    parent_kills: Option<u64>,
    /// The last observations, the oldest first; those before a kill are dropped.
    reached: VecDeque<LimitsReached>,
}

/// How often each level's limit was reached, by each of the version's counters.
type LimitsReached = Vec<Vec<Option<u64>>>;

/// A limit may be reached up to this many looks before its kill is counted, because reclaiming
/// takes time.
const RECLAIM_LOOKS: usize = 40;

/// Changes since the previous look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomLook {
    /// Killed processes of the container; `None` if its cgroup is gone and a host process may have
    /// been killed instead.
    pub kills: Option<u64>,
    /// The limit that was reached, if something was killed.
    pub limit: Option<MemoryLimit>,
    /// Whether the cgroup is gone.
    pub gone: bool,
}

impl OomWatch {
    /// Starts counting; with `since_start`, earlier kills in the container count too.
    pub fn start_counting(cgroup: &Cgroup, since_start: bool) -> OomWatch {
        let levels = cgroup.visible_levels();
        // Read before the container's own counter: a kill between the two readings must not be in
        // this one.
        let host_kills = host_kills();
        let parent_kills = parent_kills(&levels);
        let own = own_kills(cgroup);
        // Otherwise kills between the container's start and this call are included.
        let usable = |_: &u64| !since_start || own == Some(0);
        let mut reached = limits_reached(&levels);
        if let (true, CgroupVersion::V2, Some(first)) =
            (since_start, cgroup.version, reached.first_mut())
        {
            // A kill before this call moves no counter any more: its cgroup was new, and began at 0. (v1 counts there what
            // was reclaimed, too.)
            first.fill(Some(0));
        }
        OomWatch {
            own_limit: cgroup.own_limit(),
            host_bytes: crate::host::memory_bytes(),
            kills: own.filter(|_| !since_start).unwrap_or(0),
            host_kills: host_kills.filter(usable),
            parent_kills: parent_kills.filter(usable),
            reached: VecDeque::from([reached]),
            levels,
        }
    }

    /// Looks again.
    pub fn look_again(&mut self) -> OomLook {
        let before = host_kills();
        let above = parent_kills(&self.levels);
        let own = self.levels.first().and_then(own_kills);
        let reached = limits_reached(&self.levels);
        let kills = match own {
            Some(now) => Some(now.saturating_sub(self.kills)),
            None => self.kills_since_gone(),
        };
        // It can go between the two readings.
        let unread = own.is_none()
            || reached
                .first()
                .is_none_or(|l| l.iter().all(Option::is_none));
        let limit = (kills != Some(0)).then(|| self.limit_reached(&reached, unread));
        self.kills = own.unwrap_or(self.kills);
        if own.is_some() {
            self.host_kills = before;
            self.parent_kills = above;
        }
        if kills.is_some_and(|n| n > 0) {
            self.reached.clear();
        }
        self.reached.push_back(reached);
        if self.reached.len() > RECLAIM_LOOKS {
            self.reached.pop_front();
        }
        OomLook {
            kills,
            limit: limit.flatten(),
            gone: own.is_none(),
        }
    }

    /// Kills since the container's cgroup was last seen: those that the cgroup above counted, where the container has a
    /// limit that they can have come from, or none where the whole host had none.
    fn kills_since_gone(&self) -> Option<u64> {
        let above = parent_kills(&self.levels).zip(self.parent_kills);
        let counted = above
            .filter(|_| self.own_limit.is_some())
            .and_then(|(now, before)| now.checked_sub(before).filter(|n| *n > 0));
        let host = || host_kills().filter(|now| Some(*now) == self.host_kills);
        counted.or_else(|| host().map(|_| 0))
    }

    /// The innermost level with a changed counter, by the most reliable counter.
    fn limit_reached(&self, now: &LimitsReached, gone: bool) -> Option<MemoryLimit> {
        let earlier = self.reached.front()?;
        let counters = now.iter().map(Vec::len).max().unwrap_or(0);
        let moved = |place: usize, counter: usize| {
            let count = |all: &LimitsReached| *all.get(place)?.get(counter)?;
            matches!((count(earlier), count(now)), (Some(before), Some(now)) if now > before)
        };
        let place = (0..counters)
            .find_map(|counter| (0..self.levels.len()).find(|place| moved(*place, counter)))
            .or_else(|| self.level_at_limit());
        let own = self.own_limit.map(|bytes| MemoryLimit {
            bytes,
            level: LimitLevel::Container,
        });
        let host = || {
            self.host_bytes.map(|bytes| MemoryLimit {
                bytes,
                level: LimitLevel::Host,
            })
        };
        match place {
            Some(0) => own,
            Some(place) => {
                let level = self.levels.get(place)?;
                Some(MemoryLimit {
                    bytes: level.own_limit()?,
                    level: level.level_name(false),
                })
            }
            // Its counters are gone with it, and no level above was at its limit.
            None if gone && own.is_some() => own,
            None => host().filter(|_| now.iter().flatten().any(Option::is_some)),
        }
    }

    /// The innermost level that ever reached its limit.
    fn level_at_limit(&self) -> Option<usize> {
        let names = self.levels.first()?.version.file_names().highest;
        names.iter().find_map(|(highest, limit)| {
            self.levels.iter().position(|level| {
                let highest = number_of(&level.dir, highest);
                let limit = number_of(&level.dir, limit).filter(|b| *b < NO_LIMIT_BYTES);
                limit.is_some_and(|limit| highest.is_some_and(|b| b >= limit))
            })
        })
    }
}

fn own_kills(cgroup: &Cgroup) -> Option<u64> {
    let file = cgroup.dir.join(cgroup.version.file_names().kills);
    field(&text_in(&file)?, "oom_kill")
}

/// OOM kills in the cgroup above and in all that it holds (`memory.events`; v1 counts those of a cgroup alone).
fn parent_kills(levels: &[Cgroup]) -> Option<u64> {
    let parent = levels.get(1)?;
    own_kills(parent).filter(|_| parent.version == CgroupVersion::V2)
}

/// All OOM kills on this host since its boot.
fn host_kills() -> Option<u64> {
    field(&text_in(Path::new("/proc/vmstat"))?, "oom_kill")
}

fn limits_reached(levels: &[Cgroup]) -> LimitsReached {
    let count = |level: &Cgroup, name: &str| {
        let text = text_in(&level.dir.join(name))?;
        parse_number(&text).or_else(|| field(&text, "oom"))
    };
    let counts = |(place, level): (usize, &Cgroup)| {
        let names = level.version.file_names();
        let name = |name: &&'static str| match (place, level.version) {
            // Includes sub-cgroups: a limit inside the container counts as the container's own.
            (0, CgroupVersion::V2) => names.kills,
            _ => name,
        };
        let names = names.reached.iter();
        names.map(|n| count(level, name(n))).collect()
    };
    levels.iter().enumerate().map(counts).collect()
}

fn number_of(dir: &Path, name: &str) -> Option<u64> {
    parse_number(&text_in(&dir.join(name))?)
}

/// A line `name number` of a table.
fn field(table: &str, name: &str) -> Option<u64> {
    table
        .lines()
        .find_map(|l| parse_number(l.strip_prefix(name)?.strip_prefix(' ')?))
}

/// Opens a peak, on cgroup v2 as one of our own: a write resets it for the descriptor that is written to, whose peak is from
/// then on the highest usage since. Older kernels do not allow the file to be opened for that, nor does the kernel every user.
fn open_peak(cgroup: &Cgroup, name: &str) -> io::Result<File> {
    let path = cgroup.dir.join(name);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let own = rustix::fs::open(&path, flags, Mode::empty()).map(File::from);
    match own {
        Ok(own) if cgroup.version == CgroupVersion::V2 && is_of_the_kernel(&own) => {
            // Any text resets it; what refuses it can still be read.
            let _ = own.write_at(b"reset", 0);
            Ok(own)
        }
        _ => File::open(path),
    }
}

/// Whether a file is one of the kernel's, and not one of a test's tree.
fn is_of_the_kernel(file: &File) -> bool {
    /// `CGROUP2_SUPER_MAGIC` of the kernel.
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 == CGROUP2)
}

/// The files of one cgroup, kept open: reading one again costs a microsecond, opening it ten. All
/// usage figures include swap.
pub struct CgroupFiles {
    version: CgroupVersion,
    usage: File,
    swap: Option<File>,
    /// v1 always has it, v2 since Linux 5.19; includes swap on v1 only.
    peak: Option<File>,
    /// Since Linux 6.5.
    swap_peak: Option<File>,
    kernel: Option<File>,
    stat: Option<File>,
    /// Bytes both swapped out and in memory at the last split; v2 counts them twice.
    swap_cached: u64,
    /// Whether memory was ever in swap: then v2's memory peak is not the combined peak.
    swapped: bool,
    buffer: Vec<u8>,
}

impl CgroupFiles {
    /// Opens the files that exist.
    pub fn open(cgroup: &Cgroup) -> io::Result<CgroupFiles> {
        let names = cgroup.version.file_names();
        let open = |name: &str| File::open(cgroup.dir.join(name));
        let optional = |name: Option<&str>| open(name?).ok();
        Ok(CgroupFiles {
            version: cgroup.version,
            usage: match optional(names.usage_with_swap) {
                Some(both) => both,
                None => open(names.usage)?,
            },
            swap: optional(names.swap),
            peak: optional(names.peak_with_swap).or_else(|| open_peak(cgroup, names.peak).ok()),
            swap_peak: names
                .swap_peak
                .and_then(|name| open_peak(cgroup, name).ok()),
            kernel: optional(names.kernel),
            stat: optional(Some("memory.stat")),
            swap_cached: 0,
            swapped: false,
            buffer: Vec::new(),
        })
    }

    /// Memory and swap in use, bytes.
    pub fn used_bytes(&mut self) -> io::Result<u64> {
        let usage = number_in(&self.usage, &mut self.buffer)?;
        Ok(usage.saturating_add(self.swap().unwrap_or(0)))
    }

    /// Swap usage, where a separate file reports it; bytes.
    fn swap(&mut self) -> Option<u64> {
        let swap = number_in(self.swap.as_ref()?, &mut self.buffer).ok()?;
        self.swapped |= swap > 0;
        Some(swap.saturating_sub(self.swap_cached))
    }

    /// The kernel's peak of memory and swap together, bytes.
    pub fn peak_bytes(&mut self) -> Option<u64> {
        let swap_peak = self.swap_peak.as_ref();
        let swap_peak = swap_peak.and_then(|f| number_in(f, &mut self.buffer).ok());
        if self.swapped || swap_peak.is_some_and(|b| b > 0) {
            return None;
        }
        number_in(self.peak.as_ref()?, &mut self.buffer).ok()
    }

    /// The kinds of memory in use.
    pub fn read_split(&mut self) -> Option<HostSplit> {
        let kernel = self.kernel.as_ref();
        let kernel = kernel.and_then(|f| number_in(f, &mut self.buffer).ok());
        let stat = read_at_start(self.stat.as_ref()?, &mut self.buffer).ok()?;
        let split = read_split(self.version, stat, kernel);
        self.swap_cached = field(stat, "swapcached").unwrap_or(0);
        let swap_bytes = match self.version {
            CgroupVersion::V1 => split.swap_bytes,
            CgroupVersion::V2 => self.swap(),
        };
        Some(HostSplit {
            swap_bytes,
            ..split
        })
    }
}

/// Why no memory cgroup was found.
#[derive(Debug)]
pub enum NotFound {
    /// `/proc/<pid>/cgroup` cannot be read.
    NoProcess(io::Error),
    /// The process exists but is not in the container.
    ForeignProcess,
    /// The container's cgroups (these paths) have no memory files that are visible here.
    Invisible(Vec<String>),
}

/// The memory cgroup of the container of process `pid`. An empty `container_id` takes the process's
/// own cgroup.
pub fn find_cgroup(pid: u32, container_id: &str) -> Result<Cgroup, NotFound> {
    let membership =
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(NotFound::NoProcess)?;
    // With a remote daemon the pid belongs to another machine; here it may be any process.
    if !container_id.is_empty() && !names_container(&membership, container_id) {
        return Err(NotFound::ForeignProcess);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let candidates = candidate_cgroups(&membership, &mounts, container_id);
    match candidates.into_iter().find(Cgroup::is_there) {
        Some(cgroup) => Ok(cgroup),
        None => Err(NotFound::Invisible(
            membership_lines(&membership)
                .map(|l| container_path(l.path, container_id).to_owned())
                .collect(),
        )),
    }
}

/// Whether a process with this `/proc/<pid>/cgroup` is in the container. Hybrid hosts have the id
/// in the v1 lines only, so every line counts.
pub fn names_container(membership: &str, container_id: &str) -> bool {
    !container_id.is_empty()
        && membership_lines(membership).any(|l| l.path.split('/').any(|c| is_of(c, container_id)))
}

/// The cgroups that could hold the container's memory charge, the most likely first.
pub fn candidate_cgroups(membership: &str, mountinfo: &str, container_id: &str) -> Vec<Cgroup> {
    let mounts = mounts(mountinfo);
    // v1 first: if it has a memory controller, the v2 hierarchy does not.
    [CgroupVersion::V1, CgroupVersion::V2]
        .into_iter()
        .flat_map(|version| {
            membership_lines(membership)
                .filter(move |l| l.version == Some(version))
                .map(move |l| (version, l))
        })
        .flat_map(|(version, line)| {
            let path = container_path(line.path, container_id);
            let here = mounts.iter().filter(move |m| m.version == version);
            here.filter_map(move |m| {
                Some(Cgroup {
                    version,
                    path: path.to_owned(),
                    dir: m.resolve(path)?,
                    mount: PathBuf::from(&m.at),
                })
            })
        })
        .collect()
}

struct MembershipLine<'a> {
    /// The version of the memory controller in this line; `None` for other lines.
    version: Option<CgroupVersion>,
    path: &'a str,
}

fn membership_lines(membership: &str) -> impl Iterator<Item = MembershipLine<'_>> {
    parse_cgroup(membership).map(|line| MembershipLine {
        version: match line.controllers {
            "" => Some(CgroupVersion::V2),
            c if c.split(',').any(|c| c == "memory") => Some(CgroupVersion::V1),
            _ => None,
        },
        // The kernel appends " (deleted)" once the cgroup is removed under a zombie.
        path: line.path.strip_suffix(" (deleted)").unwrap_or(line.path),
    })
}

/// Whether a path component names the container: `<id>`, `docker-<id>.scope`,
/// `kubepods-…:cri-containerd:<id>`. The monitor next to a container also contains the id.
fn is_of(component: &str, container_id: &str) -> bool {
    let name = component.strip_suffix(".scope").unwrap_or(component);
    match name.strip_suffix(container_id) {
        Some("") => true,
        // The name of a unit, as `vllm.service`, may be the end of another one's.
        Some(_) if container_id.contains('.') => false,
        Some(before) => before.ends_with(['-', ':']) && !before.ends_with("conmon-"),
        None => false,
    }
}

/// The path down to the container's own component. Process 1 may be deeper: Podman has `/container`
/// below the scope, and an init system makes its own cgroups, all of them charged to the container.
fn container_path<'a>(path: &'a str, container_id: &str) -> &'a str {
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
    version: CgroupVersion,
    /// The mounted part of the hierarchy.
    root: String,
    at: String,
}

impl Mount {
    /// The directory of a cgroup under this mount.
    fn resolve(&self, path: &str) -> Option<PathBuf> {
        let below = if self.root == "/" {
            path
        } else {
            path.strip_prefix(self.root.as_str())?
        };
        // Outside our cgroup namespace paths begin with `/..`: only a mount with such a root
        // shows them.
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
            "cgroup2" => CgroupVersion::V2,
            "cgroup" if options.split(',').any(|o| o == "memory") => CgroupVersion::V1,
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

/// Undoes the escapes of mountinfo: the kernel writes blanks, tabs, newlines and backslashes in octal (`seq_path` in
/// `fs/proc_namespace.c`).
fn unescape(text: &str) -> String {
    let text = text.replace("\\040", " ").replace("\\011", "\t");
    text.replace("\\012", "\n").replace("\\134", "\\")
}

/// Parses a file with one number; `None` for `max` (no limit).
fn parse_number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The kinds of memory in `memory.stat`; `kernel` is v1's separate kernel memory figure.
fn read_split(version: CgroupVersion, stat: &str, kernel: Option<u64>) -> HostSplit {
    let field = |name: &str| field(stat, name);
    match version {
        CgroupVersion::V1 => {
            // Without hierarchy the `total_` lines are missing, and the plain ones are the total.
            let of = |total: &str| field(total).or_else(|| field(total.strip_prefix("total_")?));
            let shmem = of("total_shmem");
            HostSplit {
                anon_bytes: of("total_rss"),
                // The kernel counts shared memory as cache.
                file_bytes: of("total_cache")
                    .zip(shmem)
                    .map(|(cache, shmem)| cache.saturating_sub(shmem)),
                shmem_bytes: shmem,
                kernel_bytes: kernel,
                swap_bytes: of("total_swap"),
                locked_bytes: of("total_unevictable"),
            }
        }
        CgroupVersion::V2 => {
            let shmem = field("shmem");
            // `kernel` was added in Linux 5.18; before, only its parts are reported.
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
                swap_bytes: None,
                locked_bytes: field("unevictable"),
            }
        }
    }
}

/// Reads all of a small file. The kernel generates its text anew for every read at offset 0.
pub(super) fn read_at_start<'a>(file: &File, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
    if buffer.is_empty() {
        buffer.resize(4096, 0);
    }
    let mut length = 0;
    loop {
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if length < buffer.len() {
            break;
        }
        buffer.resize(length * 2, 0);
    }
    std::str::from_utf8(&buffer[..length])
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn number_in(file: &File, buffer: &mut Vec<u8>) -> io::Result<u64> {
    let text = read_at_start(file, buffer)?;
    parse_number(text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{}` is not a number", text.trim()),
        )
    })
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
