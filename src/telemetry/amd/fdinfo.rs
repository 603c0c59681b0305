//! Memory of processes that use a GPU without the compute driver (Vulkan), from the kernel's
//! `/proc/PID/fdinfo` entries of their open devices.

use super::kfd::numbers_in;
use crate::sync::lock_data;
use crate::telemetry::gpu_process::Raw;
use std::collections::BTreeMap;
use std::path::Path;
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
        (field("drm-driver")? == "amdgpu").then_some(())?;
        // Kernels from 6.13 report `resident`; before, `memory` meant the same.
        let memory = |region: &str| {
            field(&format!("drm-resident-{region}"))
                .or_else(|| field(&format!("drm-memory-{region}")))
                .and_then(parse_bytes)
        };
        Some(Client {
            bdf: field("drm-pdev")?.to_lowercase(),
            id: field("drm-client-id")?.parse().ok()?,
            vram_bytes: memory("vram"),
            gtt_bytes: memory("gtt"),
        })
    }
}

/// `2068 KiB`, `2 MiB`, `4096`: without a unit, bytes.
fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The memory of each process on each GPU, by the GPU's PCI address. `integrated`: addresses of the
/// GPUs that use host memory as their own.
fn scan(proc: &Path, integrated: &[String]) -> BTreeMap<String, Vec<Raw>> {
    let mut seen = Vec::new();
    let mut found: BTreeMap<String, Vec<Raw>> = BTreeMap::new();
    let mut pids: Vec<u32> = numbers_in(proc).collect();
    // A client shared by several processes is counted for the lowest pid.
    pids.sort_unstable();
    for pid in pids {
        let process = proc.join(pid.to_string());
        for fd in numbers_in(&process.join("fd")) {
            // Reading the link is cheap, and most files are not devices.
            let is_device = std::fs::read_link(process.join(format!("fd/{fd}")))
                .is_ok_and(|path| path.starts_with("/dev/dri"));
            if !is_device {
                continue;
            }
            let Some(client) = std::fs::read_to_string(process.join(format!("fdinfo/{fd}")))
                .ok()
                .and_then(|text| Client::parse_fdinfo(&text))
            else {
                continue;
            };
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
            match list.iter_mut().find(|(p, _)| *p == pid) {
                Some((_, sum)) => *sum = Some(sum.unwrap_or(0).saturating_add(used)),
                None => list.push((pid, Some(used))),
            }
        }
    }
    for list in found.values_mut() {
        list.retain(|(_, used)| used.is_some_and(|bytes| bytes > 0));
    }
    found
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
        assert_eq!(Client::parse_fdinfo(&OLD.replace("amdgpu", "i915")), None);
        assert_eq!(Client::parse_fdinfo("pos: 0\n"), None);
        assert_eq!(parse_bytes("5 pages"), None);
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
            let _ = parse_bytes(&text);
        }
    }
}
