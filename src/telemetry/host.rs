//! The container's host memory: what the kernel charges to its cgroup. For engines on the CPU, and
//! for GPUs without own memory.
//!
//! The GPUs of a container, and beside them its host memory as a device after the last of them.

use super::cgroup::{self, Cgroup, CgroupFiles, NotFound};
use super::tree::SessionMemory;
use super::{MeasuredContainer, MemoryBackend, Reading, ReadingError, Wanted, is_gone};
use crate::capture::{
    BackendFacts, CallCost, DeviceEvent, DeviceFacts, DeviceKind, MemoryLimit, MemorySample,
};
use crate::clock::Clock;
use crate::error::Failure;
use std::io;
use std::time::Duration;

/// Reads the memory files of one cgroup.
pub struct HostBackend {
    cgroup: Cgroup,
    files: CgroupFiles,
    limit: Option<MemoryLimit>,
    facts: BackendFacts,
    client: Option<SessionMemory>,
}

impl HostBackend {
    /// Opens the cgroup of a running container. `reason`: why this backend was chosen.
    pub fn open(target: &MeasuredContainer, reason: String) -> Result<HostBackend, Failure> {
        let Some(pid) = target.init_pid else {
            return Err(Failure::environment(
                "the container is not running, so it has no memory to measure",
            )
            .hint("start it, or let plimsoll start one"));
        };
        let cgroup =
            cgroup::find_cgroup(pid, &target.container_id).map_err(|e| not_found(e, pid))?;
        Self::open_cgroup(cgroup, reason)
    }

    fn open_cgroup(cgroup: Cgroup, reason: String) -> Result<HostBackend, Failure> {
        let files = CgroupFiles::open(&cgroup).map_err(|e| {
            Failure::environment(format!(
                "the container's memory files in `{}` cannot be read",
                cgroup.dir.display()
            ))
            .hint("has it just ended? else run plimsoll as root")
            .caused_by(e)
        })?;
        Ok(HostBackend {
            limit: cgroup.effective_limit(crate::host::memory_bytes()),
            facts: BackendFacts {
                name: "host".into(),
                version: Some(cgroup.version.name().into()),
                simulated: false,
                reason,
            },
            cgroup,
            files,
            client: None,
        })
    }

    fn read_usage(&mut self) -> Result<u64, ReadingError> {
        let first = self.files.used_bytes();
        // A removed cgroup returns ENODEV forever, even if the container has restarted under the
        // same path.
        let read = match first {
            Ok(bytes) => Ok(bytes),
            Err(_) => CgroupFiles::open(&self.cgroup).and_then(|files| {
                self.files = files;
                self.files.used_bytes()
            }),
        };
        read.map_err(|e| {
            if is_gone(&e) {
                let gone = "the container's cgroup is gone: the container is not running";
                return ReadingError::Gone(gone.into());
            }
            ReadingError::Failed(format!("the container's memory cannot be read: {e}"))
        })
    }

    fn client_bytes(&mut self, pid: Option<u32>, clock: &Clock) -> Option<u64> {
        let Some(pid) = pid else {
            self.client = None;
            return None;
        };
        if self.client.as_ref().is_none_or(|c| c.leader() != pid) {
            self.client = Some(SessionMemory::new(pid, &self.cgroup.dir));
        }
        self.client.as_mut()?.read_bytes(clock.now())
    }
}

impl MemoryBackend for HostBackend {
    fn facts(&self) -> BackendFacts {
        self.facts.clone()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        let name = format!("container memory ({})", self.cgroup.version.name());
        vec![memory_device(
            self.cgroup.path.clone(),
            name,
            self.limit.as_ref(),
        )]
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        // The total last, so that the sample's timestamp is that of the total.
        let host = self.files.read_split();
        let bench_client_bytes = self.client_bytes(wanted.bench_client, clock);
        let used_bytes = self.read_usage()?;
        let at_ns = clock.now();
        let kernel_peak_bytes = self.files.peak_bytes();
        into.push(MemorySample {
            at_ns,
            used_bytes,
            kernel_peak_bytes,
            host,
            whole_host: crate::host::read_state(),
            bench_client_bytes,
            ..MemorySample::default()
        });
        Ok(())
    }

    fn probe_floor(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        into.clear();
        into.push(self.read_usage()?);
        Ok(())
    }
}

/// Host memory as the only device.
pub(super) fn memory_device(id: String, name: String, limit: Option<&MemoryLimit>) -> DeviceFacts {
    DeviceFacts {
        kind: DeviceKind::HostCgroup,
        id,
        name,
        total_bytes: limit.map(|l| l.bytes),
        limit_level: limit.map(|l| l.level.clone()),
        counts_swap: true,
        ..DeviceFacts::default()
    }
}

/// Requirements for running plimsoll in a container (docs/INSTALL.md).
const CONTAINED: &str = "inside a container plimsoll needs `--pid=host`, `--cgroupns=host` and `-v /sys/fs/cgroup:/sys/fs/cgroup:ro`";

fn not_found(why: NotFound, pid: u32) -> Failure {
    match why {
        NotFound::NoProcess(e) => {
            let failure = Failure::environment(format!("process {pid} of the container is not visible here"));
            let failure = if e.kind() == io::ErrorKind::NotFound {
                failure
                    .hint("if the container has just ended, its log shows why")
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

/// Reads both.
struct BesideGpus {
    gpus: Box<dyn MemoryBackend>,
    host: Box<dyn MemoryBackend>,
    /// Index of the host memory in the samples.
    index: u32,
}

/// With the container's host memory beside its GPUs, where the backend reads GPUs and this host shows the container's
/// cgroup.
pub fn add_host_memory(
    gpus: Box<dyn MemoryBackend>,
    target: &MeasuredContainer,
) -> Box<dyn MemoryBackend> {
    let devices = gpus.devices();
    let all_gpus = devices.iter().all(|d| d.kind == DeviceKind::Gpu);
    if devices.is_empty() || !all_gpus {
        return gpus;
    }
    match super::host(target, "beside the GPUs".into()) {
        Ok(host) => Box::new(BesideGpus {
            gpus,
            host,
            index: devices.len() as u32,
        }),
        Err(_) => gpus,
    }
}

impl MemoryBackend for BesideGpus {
    fn facts(&self) -> BackendFacts {
        self.gpus.facts()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        let mut devices = self.gpus.devices();
        let index = self.index;
        devices.extend((self.host.devices().into_iter()).map(|d| DeviceFacts { index, ..d }));
        devices
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        let read = self.gpus.sample(clock, wanted, into);
        let first = into.len();
        // A container that has ended has no host memory; its GPUs are read on.
        let _ = self.host.sample(clock, wanted, into);
        for sample in into.iter_mut().skip(first) {
            sample.device = self.index;
        }
        read
    }

    fn probe_floor(&self) -> Option<Duration> {
        self.gpus.probe_floor()
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        self.gpus.probe(into)?;
        let mut host = Vec::new();
        into.push(match self.host.probe(&mut host) {
            Ok(()) => host.first().copied().unwrap_or(0),
            Err(_) => 0,
        });
        Ok(())
    }

    fn costs(&self) -> Vec<CallCost> {
        self.gpus.costs()
    }

    fn unopened(&self) -> Vec<String> {
        self.gpus.unopened()
    }

    fn take_events(&mut self) -> Vec<DeviceEvent> {
        self.gpus.take_events()
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
