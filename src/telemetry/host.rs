//! The container's host memory: what the kernel charges to its cgroup. For engines on the CPU,
//! and for GPUs that share the host's memory.

use super::cgroup::{self, Cgroup, NotFound, Version};
use super::process::SessionMemory;
use super::{MemoryBackend, ReadingError, Target, Wanted};
use crate::capture::{BackendFacts, DeviceFacts, DeviceKind, HostSplit, MemorySample};
use crate::clock::Clock;
use crate::error::Failure;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Reads the memory files of one cgroup. It never writes to them: resetting the kernel's peak
/// would spoil it for whoever else reads it.
pub struct HostBackend {
    cgroup: Cgroup,
    files: Files,
    total_bytes: Option<u64>,
    reason: String,
    client: Option<SessionMemory>,
    buffer: Vec<u8>,
}

/// The files, kept open: reading one again costs a microsecond, opening it ten.
struct Files {
    usage: File,
    stat: Option<File>,
    /// v1 always has it, v2 since Linux 5.19.
    peak: Option<File>,
    /// v1: kernel memory. v2: swap.
    beside: Option<File>,
}

impl Files {
    fn open(cgroup: &Cgroup) -> io::Result<Files> {
        let (peak, beside) = match cgroup.version {
            Version::V1 => ("memory.max_usage_in_bytes", "memory.kmem.usage_in_bytes"),
            Version::V2 => ("memory.peak", "memory.swap.current"),
        };
        let optional = |name: &str| File::open(cgroup.dir.join(name)).ok();
        Ok(Files {
            usage: File::open(cgroup.dir.join(cgroup.version.usage_file()))?,
            stat: optional("memory.stat"),
            peak: optional(peak),
            beside: optional(beside),
        })
    }
}

impl HostBackend {
    /// Opens the cgroup of a running container. `reason` says why this backend was chosen.
    pub fn open(target: &Target, reason: String) -> Result<HostBackend, Failure> {
        let Some(pid) = target.init_pid else {
            return Err(Failure::environment(
                "the container is not running, so it has no memory to measure",
            )
            .hint("start it, or let plimsoll start one"));
        };
        let cgroup = cgroup::find(pid, &target.container_id).map_err(|e| not_found(e, pid))?;
        Self::read(cgroup, target, reason)
    }

    fn read(cgroup: Cgroup, target: &Target, reason: String) -> Result<HostBackend, Failure> {
        let files = Files::open(&cgroup).map_err(|e| {
            Failure::environment(format!(
                "the container's memory files in `{}` cannot be read",
                cgroup.dir.display()
            ))
            .caused_by(e)
        })?;
        let limit = target.memory_limit_bytes.or_else(|| limit(&cgroup));
        let total_bytes = limit.into_iter().chain(host_memory()).min();
        Ok(HostBackend {
            cgroup,
            files,
            total_bytes,
            reason,
            client: None,
            buffer: Vec::new(),
        })
    }

    fn usage(&mut self) -> Result<u64, ReadingError> {
        let first = number_in(&self.files.usage, &mut self.buffer);
        // A cgroup that was removed answers ENODEV for ever, also when the container has started
        // again under the same path meanwhile.
        let read = match first {
            Ok(bytes) => Ok(bytes),
            Err(_) => Files::open(&self.cgroup).and_then(|files| {
                self.files = files;
                number_in(&self.files.usage, &mut self.buffer)
            }),
        };
        read.map_err(
            |e| match e.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::NODEV | rustix::io::Errno::NOENT) => ReadingError::Gone(
                    "the container's cgroup is gone: the container is not running".into(),
                ),
                _ => ReadingError::Failed(format!("the container's memory cannot be read: {e}")),
            },
        )
    }

    fn split(&mut self) -> Option<HostSplit> {
        let beside = self
            .files
            .beside
            .as_ref()
            .and_then(|f| number_in(f, &mut self.buffer).ok());
        let stat = read_at_start(self.files.stat.as_ref()?, &mut self.buffer).ok()?;
        Some(cgroup::split(self.cgroup.version, stat, beside))
    }

    fn client_bytes(&mut self, pid: Option<u32>, clock: &Clock) -> Option<u64> {
        let Some(pid) = pid else {
            self.client = None;
            return None;
        };
        if self.client.as_ref().is_none_or(|c| c.leader() != pid) {
            self.client = Some(SessionMemory::new(pid, &self.cgroup.dir));
        }
        self.client.as_mut()?.read(clock.now())
    }
}

impl MemoryBackend for HostBackend {
    fn facts(&self) -> BackendFacts {
        BackendFacts {
            name: "host".into(),
            version: Some(self.cgroup.version.name().into()),
            simulated: false,
            reason: self.reason.clone(),
        }
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        vec![DeviceFacts {
            index: 0,
            kind: DeviceKind::HostCgroup,
            id: self.cgroup.path.clone(),
            name: format!("container memory ({})", self.cgroup.version.name()),
            total_bytes: self.total_bytes,
        }]
    }

    fn sample(
        &mut self,
        clock: &Clock,
        wanted: Wanted,
        into: &mut Vec<MemorySample>,
    ) -> Result<(), ReadingError> {
        // The kinds first and the whole last, so that the time of the sample is that of the whole.
        let host = self.split();
        let bench_client_bytes = self.client_bytes(wanted.bench_client, clock);
        let used_bytes = self.usage()?;
        let at_ns = clock.now();
        let kernel_peak_bytes = self
            .files
            .peak
            .as_ref()
            .and_then(|f| number_in(f, &mut self.buffer).ok());
        into.push(MemorySample {
            at_ns,
            used_bytes,
            kernel_peak_bytes,
            host,
            bench_client_bytes,
            ..MemorySample::default()
        });
        Ok(())
    }

    fn probe_floor(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Result<(), ReadingError> {
        into.clear();
        into.push(self.usage()?);
        Ok(())
    }
}

/// What a plimsoll lacks that runs in a container itself (docs/INSTALL.md).
const CONTAINED: &str = "inside a container plimsoll needs `--pid=host`, `--cgroupns=host` and `-v /sys/fs/cgroup:/sys/fs/cgroup:ro`";

fn not_found(why: NotFound, pid: u32) -> Failure {
    match why {
        NotFound::NoProcess(e) => {
            let failure = Failure::environment(format!("process {pid} of the container is not visible here"));
            let failure = if e.kind() == io::ErrorKind::NotFound {
                failure
                    .hint("if the container has just ended, its log tells why")
                    .hint("plimsoll measures from the host that runs the container: run it there, not against a remote daemon")
                    .hint(CONTAINED)
            } else {
                failure
            };
            failure.caused_by(e)
        }
        NotFound::ForeignProcess => {
            Failure::environment(format!("process {pid} on this machine is not the container's"))
                .hint("plimsoll measures from the host that runs the container: run it there, not against a remote daemon")
                .hint("with Docker Desktop the containers run in a virtual machine: run plimsoll inside it")
                .hint(CONTAINED)
                .hint("rootless containers have a memory cgroup of their own with cgroup v2 only")
        }
        NotFound::Invisible(paths) => {
            let mut paths: Vec<String> = paths.iter().map(|p| format!("`{p}`")).collect();
            paths.sort_unstable();
            paths.dedup();
            Failure::environment(format!("no memory files of the container's cgroup are visible here ({})", paths.join(", ")))
                .hint("a rootless daemon needs the memory controller delegated to the user")
                .hint(CONTAINED)
        }
    }
}

fn limit(cgroup: &Cgroup) -> Option<u64> {
    let name = match cgroup.version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    cgroup::number(&std::fs::read_to_string(cgroup.dir.join(name)).ok()?)
}

/// The host's memory, bytes.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    cgroup::number(line.trim().strip_suffix("kB")?)?.checked_mul(1024)
}

/// The whole of a small file from its beginning. The kernel makes such a file's text anew for
/// every reading at offset 0.
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
    cgroup::number(text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{}` is no number", text.trim()),
        )
    })
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
