//! The current memory of the devices by owner, scan by scan, for `top` and `watch`.

pub mod ledger;
pub mod metrics;
pub mod render;
pub mod screen;
pub mod serve;
mod watcher;

pub use watcher::{LifeEvent, MemoryWatcher};

use crate::capture::{BackendFacts, HostSplit, HostState};
use crate::engine::shown_name;
use serde::Serialize;

/// Result of one scan; unknown is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemoryScan {
    /// Seconds since the Unix epoch.
    pub timestamp: f64,
    /// Which backend read the GPUs; null where there are none.
    pub backend: Option<BackendFacts>,
    /// The GPUs.
    pub gpus: Vec<GpuLook>,
    /// Memory of this host; null where the kernel does not report it.
    pub host: Option<HostState>,
    /// Running containers that hold GPU memory or run a known engine.
    pub containers: Vec<ContainerScan>,
    /// Whether those are all. While the daemon does not answer, only those that this host still shows are
    /// among them.
    pub all_listed: bool,
    /// Sources that could not be read, and why; a sentence each.
    pub notes: Vec<String>,
}

/// A GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuLook {
    /// Place in the driver's list.
    pub index: u32,
    /// UUID.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Its PCI address, where the driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Memory in all, bytes.
    pub total_bytes: Option<u64>,
    /// In use, without the driver's reserved memory where it reports that separately; bytes. Null
    /// when the GPU could not be read in this scan.
    pub used_bytes: Option<u64>,
    /// Kept by the driver, bytes.
    pub reserved_bytes: Option<u64>,
    /// Owners of the memory.
    pub tenants: Vec<TenantLook>,
    /// Whether it has no memory of its own: total and in use are the host's.
    pub shares_host: bool,
    /// In use without a known process, bytes; null if the driver lists no processes.
    pub unattributed_bytes: Option<u64>,
    /// Power draw, watts.
    pub power_w: Option<f64>,
    /// GPU busy, percent.
    pub utilization_pct: Option<u32>,
    /// Temperature, °C.
    pub temperature_c: Option<u32>,
    /// Clock of the cores, MHz.
    pub clock_gfx_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub clock_mem_mhz: Option<u32>,
}

impl GpuLook {
    /// Total less used and reserved, bytes; `None` where one of the first two is unknown.
    pub fn free_bytes(&self) -> Option<u64> {
        let (total, used) = self.total_bytes.zip(self.used_bytes)?;
        let reserved = self.reserved_bytes.unwrap_or(0);
        Some(total.saturating_sub(used).saturating_sub(reserved))
    }
}

/// Memory of one container on one GPU, or of all processes outside containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TenantLook {
    /// Container's id; null for processes outside containers.
    pub container_id: Option<String>,
    /// Its name; null if the runtime does not know it.
    pub container_name: Option<String>,
    /// Bytes.
    pub used_bytes: u64,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ContainerScan {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
    /// Engine that was recognised in it.
    pub engine: Option<String>,
    /// Whether that engine is simulated.
    pub simulated: bool,
    /// Whether its endpoints answer.
    pub serving: bool,
    /// Host memory charged to it, page cache included; bytes.
    pub host_bytes: Option<u64>,
    /// The same by kind.
    pub host: Option<HostSplit>,
    /// The kernel's high-water mark of it since the container began, bytes.
    pub host_peak_bytes: Option<u64>,
    /// The smallest limit on it, its own or of a level above, bytes; null without one.
    pub host_limit_bytes: Option<u64>,
    /// KV pool on one device of each of its engines, bytes, if the engine reports it.
    pub kv_pool_bytes: Option<u64>,
    /// Share of the pool in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Of the pool in use, bytes.
    pub kv_used_bytes: Option<u64>,
    /// Requests running.
    pub requests_running: Option<u64>,
    /// Requests waiting.
    pub requests_waiting: Option<u64>,
    /// Preemptions since the engine started.
    pub preemptions: Option<u64>,
}

impl ContainerScan {
    /// Host memory that counts against its limit: page cache and swap do not.
    pub fn held_bytes(&self) -> Option<u64> {
        Some(self.host.unwrap_or_default().held_of(self.host_bytes?))
    }

    /// What its limit leaves, bytes; `None` without a limit. The kernel takes page cache back before
    /// a limit kills.
    pub fn headroom_bytes(&self) -> Option<u64> {
        Some(self.host_limit_bytes?.saturating_sub(self.held_bytes()?))
    }

    /// The engine's name, with a star where it is simulated.
    fn engine_words(&self) -> String {
        let star = if self.simulated { "*" } else { "" };
        let engine = self.engine.as_deref();
        or_unknown(engine, |e| format!("{}{star}", shown_name(e)))
    }

    /// The share of the KV pool in use.
    fn kv_percent(&self) -> String {
        or_unknown(self.kv_usage, |share| format!("{:.0} %", share * 100.0))
    }
}

/// Shown for what is unknown.
const UNKNOWN: &str = "-";

/// A value in words, or that it is unknown.
fn or_unknown<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), words)
}
