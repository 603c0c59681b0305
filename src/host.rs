//! Facts about this host.

pub mod processes;

use crate::capture::{HostFacts, HostState};
use std::fs;
use std::path::Path;

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

/// Names of this host's distribution, its own first, then those that it is like; empty where it has none.
pub fn distribution() -> Vec<String> {
    let places = ["/etc/os-release", "/usr/lib/os-release"];
    let text = places
        .iter()
        .find_map(|place| fs::read_to_string(place).ok());
    distribution_in(&text.unwrap_or_default())
}

fn distribution_in(release: &str) -> Vec<String> {
    let value = |key: &str| release.lines().find_map(|line| line.strip_prefix(key));
    let words = ["ID=", "ID_LIKE="].into_iter().filter_map(value);
    let words = words.flat_map(|text| text.trim_matches(['"', '\'']).split_whitespace());
    words.map(str::to_owned).collect()
}

/// Physical memory, bytes.
pub fn memory_bytes() -> Option<u64> {
    field_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Memory of this host as the kernel reports it now; `None` where it does not.
pub fn read_state() -> Option<HostState> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    // Since Linux 4.20, where it is compiled in and not switched off.
    let pressure = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    state_in(&meminfo, &pressure)
}

fn state_in(meminfo: &str, pressure: &str) -> Option<HostState> {
    let swap = [
        field_of(meminfo, "SwapTotal:"),
        field_of(meminfo, "SwapFree:"),
    ];
    let full = pressure.lines().find_map(|l| l.strip_prefix("full avg10="));
    Some(HostState {
        total_bytes: field_of(meminfo, "MemTotal:")?,
        available_bytes: field_of(meminfo, "MemAvailable:")?,
        swap_used_bytes: swap[0]
            .zip(swap[1])
            .map(|(all, free)| all.saturating_sub(free)),
        stalled_pct: full.and_then(|rest| rest.split(' ').next()?.parse().ok()),
    })
}

/// A figure of `/proc/meminfo`, bytes.
fn field_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|l| l.starts_with(name))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The kernel's load average over a minute: how many threads run, want a processor or wait for a disk.
pub fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The trimmed text of a small file; `None` when it is missing or empty.
pub fn text_in(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Id of this boot.
pub fn boot_id() -> Option<String> {
    text_in(Path::new("/proc/sys/kernel/random/boot_id"))
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
        log::debug!("the limit of open files was not raised: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_named_with_those_that_it_is_like() {
        let mint = "NAME=\"Linux Mint\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=22\n";
        assert_eq!(distribution_in(mint), ["linuxmint", "ubuntu", "debian"]);
        assert_eq!(distribution_in(""), [""; 0]);
    }

    #[test]
    fn what_the_kernel_does_not_report_is_unknown() {
        let meminfo = "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 40 kB\nSwapTotal: 8 kB\nSwapFree: 5 kB\n";
        let pressure = "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.75 avg60=0.00 avg300=0.00 total=1\n";
        let state = state_in(meminfo, pressure).unwrap();
        assert_eq!(
            (state.total_bytes, state.available_bytes),
            (100 << 10, 40 << 10)
        );
        assert_eq!(
            (state.swap_used_bytes, state.stalled_pct),
            (Some(3 << 10), Some(0.75))
        );
        let bare = state_in("MemTotal: 100 kB\nMemAvailable: 40 kB\n", "").unwrap();
        assert_eq!((bare.swap_used_bytes, bare.stalled_pct), (None, None));
        assert_eq!(state_in("MemTotal: 100 kB\n", ""), None);
    }
}
