//! What one look at the host found: containers, processes that hold GPU memory outside of any, and
//! devices. Data only; [`verdict`](super::verdict) judges it, and `clean --json` prints it as the
//! evidence.
//!
//! Unknown is `None`, and never reads as a reason to act.

use crate::container::leftovers::Owner;
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that one look found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Survey {
    /// When, RFC 3339.
    pub at: String,
    /// Containers, ended ones too.
    pub containers: Vec<ContainerLook>,
    /// Processes with GPU memory in no container that Docker knows.
    pub strays: Vec<ProcessLook>,
    /// GPUs, or none on a host without.
    pub devices: Vec<DeviceLook>,
    /// What could not be looked at, a sentence each.
    pub blind: Vec<String>,
    /// Names of containers with plimsoll's labels that Docker did not describe well enough to
    /// judge.
    #[serde(skip)]
    pub unseen: Vec<String>,
}

/// One container.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ContainerLook {
    /// Full id.
    pub id: String,
    /// Name without the leading slash.
    pub name: String,
    /// Image as named at creation.
    pub image: String,
    /// Labels of container and image.
    pub labels: BTreeMap<String, String>,
    /// Docker's word: `created`, `running`, `paused`, `restarting`, `removing`, `exited`, `dead`.
    pub status: String,
    /// How long it has been in `status`, seconds.
    pub status_for_s: Option<u64>,
    /// Whether plimsoll created it: it carries both of our labels.
    pub ours: bool,
    /// Whether the plimsoll that created it lives; [`Owner::Unknown`] for others'.
    pub owner: Owner,
    /// Seconds past the deadline that its owner gave it (label `plimsoll.deadline`); negative before.
    pub past_deadline_s: Option<i64>,
    /// Who rules it, where that is not Docker's user: Kubernetes, Slurm.
    pub ruled_by: Option<String>,
    /// Whether plimsoll itself runs in it.
    pub this_one: bool,
    /// What shares its pid namespace and is not ours: it ends with this one. Containers by name,
    /// processes of none as `pid 7 (sleep)`.
    pub shared_by: Vec<String>,
    /// Whether another plimsoll that lives works on it now (it holds the container's lock).
    pub locked: bool,
    /// Where it is thawed (`freezer.state`), while it is frozen and Docker does not answer about it.
    pub freezer: Option<String>,
    /// How the engine in it is.
    pub health: EngineHealth,
    /// Its processes, where the host shows them: `None` for one that runs where it does not, and
    /// then nothing is done to it. Empty for one in which none runs.
    pub processes: Option<Vec<ProcessLook>>,
    /// Memory held by device of `Survey::devices`, by UUID or PCI address, bytes. `None` where the
    /// driver does not report it.
    pub gpu_bytes: Option<BTreeMap<String, u64>>,
    /// Since when it does nothing.
    pub activity: Activity,
}

/// The whole memory held on GPUs, bytes.
pub fn total_bytes(gpu_bytes: &BTreeMap<String, u64>) -> u64 {
    (gpu_bytes.values()).fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Adds what something more holds on each GPU, bytes.
pub fn add_held(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (device, bytes) in more {
        let held = sum.entry(device.clone()).or_default();
        *held = held.saturating_add(*bytes);
    }
}

/// How the engine in a container is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineHealth {
    /// It answered, or Docker's own check reports it healthy.
    Well,
    /// It accepts no connection, answers nothing in time or a fault of its own, though it did not
    /// just start; seconds since the first of the looks in a row that found it so, or since Docker's
    /// check fails.
    Ill {
        /// For how long, seconds.
        for_s: u64,
    },
    /// It just started, or reports that it is not ready yet.
    Starting,
    /// Not known.
    #[default]
    Unknown,
}

/// One process, by the host's numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessLook {
    /// Host pid.
    pub pid: u32,
    /// Start time, clock ticks since boot; `None`: it was gone when looked at.
    pub started: Option<u64>,
    /// Its name (`comm`).
    pub name: String,
    /// Its command line, secrets left out.
    pub command: String,
    /// User id.
    pub uid: Option<u32>,
    /// Parent's host pid.
    pub parent: Option<u32>,
    /// The kernel's letter: `R`, `S`, `D`, `Z`, ...
    pub state: Option<char>,
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// Whether it is this process or one above it.
    pub ancestor: bool,
    /// Path of its cgroup.
    pub cgroup: Option<String>,
    /// Id of the container of its cgroup, known to Docker or not.
    pub container: Option<String>,
    /// The run in its environment (`PLIMSOLL_RUN`), and whether that run's plimsoll lives.
    pub mark: Option<RunMark>,
    /// What plimsoll wrote down when it started `container`, for containers that are gone.
    pub record: Option<StartRecord>,
    /// Of a process with a record: host pids outside its container that share its pid namespace.
    pub shared_by: Vec<u32>,
    /// GPU memory by device, bytes; devices without a figure from the driver are left out.
    pub gpu_bytes: BTreeMap<String, u64>,
    /// Threads that nothing can interrupt (state D).
    pub stuck: Vec<StuckThread>,
}

/// A run's mark in a process' environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunMark {
    /// The run.
    pub run_id: String,
    /// Whether its plimsoll lives.
    pub owner: Owner,
}

/// What plimsoll wrote down of a container that it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StartRecord {
    /// The container's full id.
    pub container: String,
    /// Its name.
    pub name: String,
    /// Whether the plimsoll that started it lives.
    pub owner: Owner,
    /// Start of the container's first process, clock ticks since boot; of another boot nothing is
    /// recorded. A process that is older was never in it.
    pub started: u64,
    /// The daemon that it was started with: its ID, its root directory and where that lies.
    pub daemon: String,
}

/// A thread in state D.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StuckThread {
    /// Thread id.
    pub tid: u32,
    /// Where in the kernel it waits, where that may be read.
    pub waits_in: Option<String>,
    /// Time that it was seen in this state, at least, seconds.
    pub for_s: u64,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceLook {
    /// UUID or PCI address.
    pub id: String,
    /// Product name.
    pub name: String,
    /// In use, bytes; `None`: it could not be read.
    pub used_bytes: Option<u64>,
    /// Capacity, bytes.
    pub total_bytes: Option<u64>,
    /// Used by no process that is listed, bytes: over all readings of the look the least.
    pub unlisted_bytes: Option<u64>,
    /// Readings in which that was so, in a row.
    pub unlisted_readings: u32,
    /// Processes that have the device open, of those that hold listed memory on none.
    pub open_by: Vec<ProcessLook>,
    /// Whether CUDA's MPS server runs on it: memory belongs to its clients.
    pub mps: bool,
    /// What is wrong with the device itself: lost, needs a reset, driver mismatch.
    pub broken: Option<String>,
    /// Whether the backend is a simulated one.
    pub simulated: bool,
}

/// Since when a container does nothing, each as far as it was looked at, seconds. `None`: not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Time that its GPUs were idle at every look; 0: busy now.
    pub gpu_idle_s: Option<u64>,
    /// Time without a request to its engine; 0: one runs or just came.
    pub requests_idle_s: Option<u64>,
    /// Time without a new line in its log. Shown, but not used as a condition: engines write a line
    /// for each look at their counters, and the counter of requests is more reliable.
    pub log_silent_s: Option<u64>,
}

impl Activity {
    /// Time without GPU use and without a request, seconds; `None` where one of the two is not
    /// known. A silent log does not replace a counter that could not be read.
    pub fn idle_s(&self) -> Option<u64> {
        Some(self.gpu_idle_s?.min(self.requests_idle_s?))
    }
}
