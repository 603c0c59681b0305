//! Facts about this host.

use crate::capture::HostFacts;
use std::fs;

/// Facts of this host. Docker's part is filled in by the caller that asks Docker.
pub fn read_facts() -> HostFacts {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    HostFacts {
        hostname: text(uname.nodename()),
        kernel: text(uname.release()),
        arch: text(uname.machine()),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        memory_bytes: memory_bytes(),
        docker_version: None,
        docker_api_version: None,
        boot_id: boot_id(),
    }
}

/// Physical memory, bytes.
pub fn memory_bytes() -> Option<u64> {
    meminfo_field("MemTotal:")
}

/// Memory that can be allocated without swapping, by the kernel's estimate; bytes.
pub fn available_memory() -> Option<u64> {
    meminfo_field("MemAvailable:")
}

fn meminfo_field(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The kernel's load average over a minute: how many threads run, want a processor or wait for a disk.
pub fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Id of this boot.
pub fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .map(|s| s.trim().to_owned())
}

/// Limit of open files of this process; `None`: unlimited.
pub fn most_open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Lets this process have as many files open as the host permits it: a load of a thousand requests in flight is a
/// thousand connections, and shells begin programs with a limit of about that.
pub fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, most) {
        log::debug!("the limit of open files stays as it is: {e}");
    }
}
