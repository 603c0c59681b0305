//! Memory of processes on a GPU, from the kernel's `/proc/PID/fdinfo` entries of their open devices: on AMD's those without the
//! compute driver (Vulkan), on Intel's all. The keys: the kernel's `Documentation/gpu/drm-usage-stats.rst`.

use crate::host::processes::numbers_in;
use crate::sync::lock_data;
use crate::telemetry::attribution::Raw;
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Shortest time between two scans of all processes.
const EVERY: Duration = Duration::from_secs(2);
/// Scanning takes at most one hundredth of the time.
const COST_FACTOR: u32 = 100;

/// One open GPU device of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The kernel's driver: `amdgpu`, `xe`, `i915`.
    pub driver: String,
    /// PCI address of the GPU.
    pub bdf: String,
    /// The kernel's client number: a device opened once and passed to another process is one
    /// client.
    pub id: u64,
    /// Its memory on the GPU, bytes; `None` where the kernel does not report it.
    pub vram_bytes: Option<u64>,
    /// Its host memory mapped for the GPU (GTT), bytes.
    pub gtt_bytes: Option<u64>,
}

impl Client {
    /// Parses an `fdinfo` file; `None` for other kinds of file or other drivers.
    pub fn parse_fdinfo(text: &str) -> Option<Client> {
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim())
        };
        let driver = field("drm-driver").filter(|name| ["amdgpu", "xe", "i915"].contains(name))?;
        let sum = |kind: &str, is_wanted: fn(&str) -> bool| {
            let regions = text.lines().filter_map(|line| {
                let (region, value) = line.strip_prefix(kind)?.split_once(':')?;
                is_wanted(region).then(|| value.parse::<Bytes>().ok())?
            });
            regions.map(|b| b.0).reduce(u64::saturating_add)
        };
        // Kernels from 6.13 report `resident`; before, `memory` meant the same.
        let memory =
            |is_wanted| sum("drm-resident-", is_wanted).or_else(|| sum("drm-memory-", is_wanted));
        Some(Client {
            driver: driver.to_owned(),
            bdf: field("drm-pdev")?.to_lowercase(),
            id: field("drm-client-id")?.parse().ok()?,
            vram_bytes: memory(is_on_gpu),
            gtt_bytes: memory(|region| region == "gtt"),
        })
    }
}

/// Whether a region is the GPU's own memory: `vram` of amdgpu, `vram0` of xe, `local0` and `stolen-local0` of i915.
fn is_on_gpu(region: &str) -> bool {
    ["vram", "local", "stolen-local"].iter().any(|name| {
        region
            .strip_prefix(name)
            .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Each process with its entry of an open graphics device, lowest pid first.
pub fn open_devices(proc: &Path) -> Vec<(u32, PathBuf)> {
    let mut pids: Vec<u32> = numbers_in(proc).collect();
    pids.sort_unstable();
    let mut entries = Vec::new();
    for pid in pids {
        let process = proc.join(pid.to_string());
        let open = process.join("fd");
        let devices = numbers_in(&open).filter(|fd| {
            // Reading the link is cheap, and most files are not devices.
            std::fs::read_link(open.join(fd.to_string()))
                .is_ok_and(|path| path.starts_with("/dev/dri"))
        });
        entries.extend(devices.map(|fd| (pid, process.join(format!("fdinfo/{fd}")))));
    }
    entries
}

/// The memory of each process on each GPU, by the GPU's PCI address. `of_driver`: which drivers' devices count, and
/// `integrated`: addresses of the GPUs that use host memory as their own.
pub fn read_processes(
    entries: &[(u32, PathBuf)],
    of_driver: fn(&str) -> bool,
    integrated: &[String],
) -> BTreeMap<String, Vec<Raw>> {
    let mut seen = Vec::new();
    let mut found: BTreeMap<String, Vec<Raw>> = BTreeMap::new();
    for (pid, entry) in entries {
        let text = std::fs::read_to_string(entry).unwrap_or_default();
        let Some(client) = Client::parse_fdinfo(&text).filter(|c| of_driver(&c.driver)) else {
            continue;
        };
        // A client shared by several processes is counted for the lowest pid.
        let key = (client.bdf.clone(), client.id);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let host = client
            .gtt_bytes
            .filter(|_| integrated.contains(&client.bdf));
        let Some(used) = [client.vram_bytes, host]
            .into_iter()
            .flatten()
            .reduce(u64::saturating_add)
        else {
            continue;
        };
        let list = found.entry(client.bdf).or_default();
        match list.iter_mut().find(|(p, _)| p == pid) {
            Some((_, sum)) => *sum = Some(sum.unwrap_or(0).saturating_add(used)),
            None => list.push((*pid, Some(used))),
        }
    }
    for list in found.values_mut() {
        list.retain(|(_, used)| used.is_some_and(|bytes| bytes > 0));
    }
    found
}

fn scan(proc: &Path, integrated: &[String]) -> BTreeMap<String, Vec<Raw>> {
    read_processes(&open_devices(proc), |driver| driver == "amdgpu", integrated)
}

/// Scans all processes periodically, on its own thread.
pub struct Clients {
    latest: Arc<Mutex<BTreeMap<String, Vec<Raw>>>>,
    /// Dropping it ends the thread.
    _end: Sender<()>,
}

impl Clients {
    /// Scans once before returning, then periodically; `None` if no thread can be started.
    pub fn start_watching(proc: &Path, integrated: Vec<String>) -> Option<Clients> {
        let proc = proc.to_owned();
        let latest = Arc::new(Mutex::new(scan(&proc, &integrated)));
        let shared = Arc::clone(&latest);
        let (_end, ended) = channel::<()>();
        std::thread::Builder::new()
            .name("amd-fdinfo".into())
            .spawn(move || {
                let mut wait = EVERY;
                while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    let start = Instant::now();
                    let found = scan(&proc, &integrated);
                    *lock_data(&shared) = found;
                    wait = EVERY.max(start.elapsed() * COST_FACTOR);
                }
            })
            .ok()?;
        Some(Clients { latest, _end })
    }

    /// Processes on a GPU at the last scan.
    pub fn on_gpu(&self, bdf: &str) -> Vec<Raw> {
        let latest = lock_data(&self.latest);
        latest.get(bdf).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:08:00.0\ndrm-client-id:\t217\ndrm-memory-vram:\t2068 KiB\ndrm-memory-gtt:\t1 MiB\n";

    #[test]
    fn both_spellings_and_all_units_are_read() {
        let old = Client::parse_fdinfo(OLD).unwrap();
        assert_eq!(
            (old.bdf.as_str(), old.id, old.vram_bytes, old.gtt_bytes),
            ("0000:08:00.0", 217, Some(2068 << 10), Some(1 << 20))
        );
        let new = OLD.replace(
            "drm-memory-vram:\t2068 KiB",
            "drm-total-vram:\t9 GiB\ndrm-resident-vram:\t4096",
        );
        assert_eq!(Client::parse_fdinfo(&new).unwrap().vram_bytes, Some(4096));
        assert_eq!(
            Client::parse_fdinfo(&OLD.replace("amdgpu", "nouveau")),
            None
        );
        assert_eq!(Client::parse_fdinfo("pos: 0\n"), None);
        let pages = OLD.replace("2068 KiB", "5 pages");
        assert_eq!(Client::parse_fdinfo(&pages).unwrap().vram_bytes, None);
    }

    /// The example of the kernel's `xe_drm_client.c`, and what i915 writes of an Arc: the regions of its
    /// `intel_memory_region.c`.
    #[test]
    fn regions_of_intel_are_distinguished() {
        let xe = "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-total-system:\t0\ndrm-resident-system:\t0\n\
            drm-total-gtt:\t192 KiB\ndrm-resident-gtt:\t192 KiB\ndrm-total-vram0:\t24 MiB\ndrm-shared-vram0:\t16 MiB\n\
            drm-resident-vram0:\t23992 KiB\ndrm-resident-vram1:\t8 KiB\ndrm-resident-stolen:\t4 KiB\n";
        let client = Client::parse_fdinfo(xe).unwrap();
        assert_eq!(client.vram_bytes, Some(24_000 << 10));
        let i915 = "drm-driver:\ti915\ndrm-client-id:\t11\ndrm-pdev:\t0000:03:00.0\ndrm-resident-system0:\t2048 KiB\n\
            drm-resident-local0:\t512 MiB\ndrm-resident-stolen-local0:\t8 MiB\ndrm-resident-stolen-system0:\t1 MiB\n";
        assert_eq!(
            Client::parse_fdinfo(i915).unwrap().vram_bytes,
            Some(520 << 20)
        );
        let integrated = i915.replace("local0", "system1");
        assert_eq!(
            Client::parse_fdinfo(&integrated).unwrap().vram_bytes,
            None,
            "not 0"
        );
    }

    #[test]
    fn a_client_counts_once_and_gtt_only_where_it_is_the_memory() {
        let proc = tempfile::tempdir().unwrap();
        let open = |pid: u32, fd: u32, to: &str, text: &str| {
            let dir = proc.path().join(pid.to_string());
            std::fs::create_dir_all(dir.join("fd")).unwrap();
            std::fs::create_dir_all(dir.join("fdinfo")).unwrap();
            std::os::unix::fs::symlink(to, dir.join(format!("fd/{fd}"))).unwrap();
            std::fs::write(dir.join(format!("fdinfo/{fd}")), text).unwrap();
        };
        open(10, 3, "/dev/dri/renderD128", OLD);
        open(10, 4, "/dev/dri/renderD128", OLD);
        open(11, 3, "/dev/dri/renderD128", OLD);
        open(10, 5, "/dev/dri/renderD128", &OLD.replace("217", "218"));
        open(12, 1, "/tmp/x", &OLD.replace("217", "219"));
        let bdf = "0000:08:00.0";
        assert_eq!(scan(proc.path(), &[])[bdf], [(10, Some(2 * (2068 << 10)))]);
        assert_eq!(
            scan(proc.path(), &[bdf.to_owned()])[bdf],
            [(10, Some(2 * ((2068 << 10) + (1 << 20))))]
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(\\PC|\\n|drm-driver:\tamdgpu\n|drm-memory-vram:)*") {
            let _ = Client::parse_fdinfo(&text);
        }
    }
}
