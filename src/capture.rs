//! What was observed, with nothing interpreted: the words every other module shares.
//!
//! A capture lies beside its profile on disk, so a better parser can be re-applied to every old
//! run, and a test fixture is just a capture. Log lines and memory samples can be many, so they
//! are streamed to files of their own (see `store`) and handed to `derive` as iterators.

mod null_for_zero;
mod requests;
mod sampling;

pub use requests::{ErrorKind, LengthUnit, RequestError, RequestRow, TokenSource};
pub use sampling::{CallCost, DeviceEvent, SamplingFacts, Tenants};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the capture format on disk. A reader refuses a newer one.
pub const CAPTURE_VERSION: u32 = 1;

/// A moment on the capture's own clock: nanoseconds since the capture began, from one monotonic
/// clock. Negative for what happened before (old log lines).
pub type AtNs = i64;

/// Everything that one run observed, except the log lines and samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// [`CAPTURE_VERSION`] of the writer.
    pub capture_version: u32,
    /// `CARGO_PKG_VERSION` of the plimsoll that captured.
    pub plimsoll_version: String,
    /// Identifies the run; also the value of the `plimsoll.run` label and exec environment.
    pub run_id: String,
    /// Wall time of `AtNs` zero, nanoseconds since the Unix epoch.
    pub wall_start_ns: i64,
    /// Wall time minus monotonic time at the end, less the same at the start: a clock that was
    /// stepped during the run. Nanoseconds.
    pub wall_drift_ns: i64,
    /// How many threads of the host wanted a processor, on average over the last minute of the run:
    /// the kernel's load average. `None`: not reported, or a capture of an earlier release.
    #[serde(default)]
    pub host_load: Option<f64>,
    /// When the capture ended.
    pub ended_at_ns: AtNs,
    /// The host it ran on.
    pub host: HostFacts,
    /// The container, as inspected at the start.
    pub container: ContainerFacts,
    /// Name of the engine that was recognised or asked for (`EngineId::from_name`).
    pub engine: String,
    /// How the engine was found; a sentence.
    pub engine_evidence: String,
    /// How plimsoll met the container.
    pub mode: Mode,
    /// The start of the engine, where it serves several captures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_start: Option<SharedStart>,
    /// What the user asked for.
    pub request: Request,
    /// The memory devices that the samples speak of.
    pub devices: Vec<DeviceFacts>,
    /// The container's host memory, sampled beside its GPUs; `None` where it is the device itself or was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<DeviceFacts>,
    /// Which backend measured.
    pub backend: BackendFacts,
    /// Replies of the engine's HTTP endpoints, in the order they were asked.
    pub probes: Vec<Probe>,
    /// Gauges of the engine, read while the load ran.
    pub gauges: Vec<EngineGauges>,
    /// Small files of the model that could be read in the container: name → text
    /// (`config.json`, `model.safetensors.index.json`); of a weight file the JSON of its header.
    pub model_files: BTreeMap<String, String>,
    /// Sizes of the model's weight files in the container, bytes.
    pub model_file_sizes: BTreeMap<String, u64>,
    /// Why there are none, when there are none.
    pub model_files_error: Option<String>,
    /// Phases of the run as plimsoll went through them.
    pub marks: Vec<PhaseMark>,
    /// Commands run inside the container, in order.
    pub execs: Vec<ExecOutcome>,
    /// Docker events of the container.
    pub events: Vec<ContainerEvent>,
    /// Processes of the container that the kernel killed for lack of memory during the run, by the
    /// counters of its cgroup and of the host; `None` where these could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// How sampling went.
    pub sampling: SamplingFacts,
    /// How following the log went.
    pub log: LogFacts,
    /// How the run ended.
    pub end: RunEnd,
    /// State of the container when the run ended; `None` when it was gone.
    pub container_end: Option<ContainerState>,
}

/// How plimsoll met the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The engine was already serving when the capture began.
    #[default]
    Serving,
    /// The container was idle; the engine ran as part of the bench.
    Idle,
    /// plimsoll created and started the container, and saw the engine start.
    Started,
}

/// What the user asked for, after presets and defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Model asked for, as the engine knows it.
    pub model: Option<String>,
    /// `latency`, `throughput`, `serve`, `probe` or `none`.
    pub bench: String,
    /// Load.
    pub workload: Workload,
    /// Engine settings asked for by flag.
    pub settings: RequestedSettings,
    /// Extra engine arguments, passed on as they are.
    pub extra_engine_args: Vec<String>,
    /// What shares the GPUs with it, as the user named it, and the services that plimsoll started beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Figures of the model that the user gave, by key as in `num_layers`: for a model without a readable `config.json`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub architecture: BTreeMap<String, f64>,
    /// Interval between samples, nanoseconds.
    pub sample_interval_ns: u64,
    /// Whole-run deadline, seconds.
    pub timeout_s: f64,
}

impl Request {
    /// Sequences per batch, where the bench has such: a server makes its batches itself.
    pub fn batch_size(&self) -> Option<u32> {
        let of_a_server = matches!(self.bench.as_str(), "serve" | "builtin");
        self.workload.batch_size.filter(|_| !of_a_server)
    }

    /// The load as the bench made it, without what has no effect on it: a latency bench runs one batch again and again.
    pub fn effective_load(&self) -> Workload {
        let is_latency = self.bench == "latency";
        let load = &self.workload;
        Workload {
            batch_size: self.batch_size(),
            num_prompts: load.num_prompts.filter(|_| !is_latency),
            max_concurrency: load.max_concurrency.filter(|_| !is_latency),
            request_rate: load.request_rate.filter(|_| !is_latency),
            ..load.clone()
        }
    }
}

/// Engine settings the user named by flag; `None` leaves them to the engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestedSettings {
    /// Weights and activations type, the engine's own word (`bfloat16`, `auto`).
    pub dtype: Option<String>,
    /// Quantization method, the engine's own word.
    pub quantization: Option<String>,
    /// KV cache type, the engine's own word.
    pub kv_cache_dtype: Option<String>,
    /// Tensor parallel size.
    pub tensor_parallel_size: Option<u32>,
    /// No compilation, no CUDA graphs.
    pub enforce_eager: bool,
    /// Share of device memory the engine may take, 0 to 1.
    pub gpu_memory_utilization: Option<f64>,
    /// Longest sequence, tokens.
    pub max_model_len: Option<u64>,
}

macro_rules! requested_settings {
    (options: $($option:ident)*; flags: $($flag:ident)*) => {
        impl RequestedSettings {
            /// Their names, in the order of [`RequestedSettings::named`].
            pub const NAMES: &[&str] = &[$(stringify!($option),)* $(stringify!($flag),)*];

            /// A copy without the settings of these names.
            pub fn without(&self, names: &[&str]) -> RequestedSettings {
                let mut kept = self.clone();
                $(if names.contains(&stringify!($option)) {
                    kept.$option = None;
                })*
                $(if names.contains(&stringify!($flag)) {
                    kept.$flag = false;
                })*
                kept
            }

            /// The settings that are set: name and value.
            pub fn named(&self) -> Vec<(&'static str, String)> {
                // Destructured, so that a new setting cannot be forgotten here.
                let RequestedSettings { $($option,)* $($flag),* } = self;
                let all = [
                    $((stringify!($option), $option.as_ref().map(ToString::to_string)),)*
                    $((stringify!($flag), $flag.then(|| "true".to_owned())),)*
                ];
                let set = all.into_iter();
                set.filter_map(|(name, value)| Some((name, value?))).collect()
            }
        }
    };
}

requested_settings! {
    options: dtype quantization kv_cache_dtype tensor_parallel_size gpu_memory_utilization max_model_len;
    flags: enforce_eager
}

/// The host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub arch: String,
    /// Processors online.
    pub cpus: u32,
    /// Physical memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Docker server version.
    pub docker_version: Option<String>,
    /// Docker API version in use.
    pub docker_api_version: Option<String>,
    /// Boot id: distinguishes captures of different boots.
    pub boot_id: Option<String>,
}

/// A container as Docker describes it. Secrets are redacted before this is filled in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerFacts {
    /// Full id.
    pub id: String,
    /// Name without the leading slash.
    pub name: String,
    /// Image as named at creation.
    pub image: String,
    /// Image id (`sha256:…`).
    pub image_id: String,
    /// Image labels and container labels, merged.
    pub labels: BTreeMap<String, String>,
    /// Path and arguments of process 1: entrypoint and command together.
    pub argv: Vec<String>,
    /// Environment; values of secrets replaced by `[redacted]`.
    pub env: BTreeMap<String, String>,
    /// State at the time of inspection.
    pub state: ContainerState,
    /// Addresses on its networks.
    pub addresses: Vec<String>,
    /// Network mode (`bridge`, `host`, …).
    pub network_mode: String,
    /// Published ports: container port → host address and port.
    pub published_ports: BTreeMap<u16, String>,
    /// Memory limit, bytes; `None` when there is none.
    pub memory_limit_bytes: Option<u64>,
    /// `/dev/shm` size, bytes.
    pub shm_size_bytes: Option<u64>,
    /// GPU request as Docker holds it: a device id each, or `all`, or `count=N`.
    pub gpu_request: Vec<String>,
    /// Host devices passed through.
    pub devices: Vec<String>,
    /// Mount destinations (source → destination).
    pub mounts: Vec<String>,
    /// Whether it has a terminal: logs then carry no stream information.
    pub tty: bool,
    /// Where it was created, nanoseconds since the Unix epoch; `None` when unparsable.
    pub created_ns: Option<i64>,
}

/// State of a container at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerState {
    /// `running`, `exited`, `created`, `paused`, …
    pub status: String,
    /// Host pid of process 1; `None` when not running.
    pub pid: Option<u32>,
    /// Exit code of process 1, when it ended.
    pub exit_code: Option<i64>,
    /// Whether the kernel's OOM killer hit it.
    pub oom_killed: bool,
    /// Wall time of the start, nanoseconds since the Unix epoch.
    pub started_ns: Option<i64>,
    /// Wall time of the end, nanoseconds since the Unix epoch.
    pub finished_ns: Option<i64>,
    /// How often Docker restarted it.
    pub restart_count: i64,
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal: both.
    Console,
}

/// The source of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineSource {
    /// The container's own log (process 1).
    #[default]
    Container,
    /// The output of the exec with this index in [`Capture::execs`].
    Exec(u32),
}

/// One whole line of output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written (container log) or received (exec output).
    pub at_ns: AtNs,
    /// The owner.
    pub source: LineSource,
    /// Which stream.
    pub stream: Stream,
    /// The text without its newline, redacted.
    pub text: String,
}

/// How following the log went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogFacts {
    /// Lines kept on disk.
    pub lines: u64,
    /// Bytes kept on disk.
    pub bytes: u64,
    /// Lines that were dropped: the log outgrew its cap, or they came too fast.
    pub dropped_lines: u64,
    /// Times the follow had to be taken up again.
    pub reconnects: u32,
    /// Why the log could not be read, when it could not.
    pub error: Option<String>,
    /// Whether the runtime reports times of lines in whole seconds.
    #[serde(default)]
    pub whole_seconds: bool,
}

/// What kind of memory a device holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU's own memory.
    Gpu,
    /// The container's host memory (its cgroup).
    #[default]
    HostCgroup,
}

/// A device whose memory is sampled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFacts {
    /// Index in the samples.
    pub index: u32,
    /// Kind of memory.
    pub kind: DeviceKind,
    /// UUID of a GPU (its PCI address where it has none), or the cgroup's path.
    pub id: String,
    /// Product name, or `container memory (cgroup v1)`.
    pub name: String,
    /// PCI address of an NVIDIA GPU, as its driver writes it: `00000000:01:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Total memory, bytes; for a cgroup the smallest limit on its path, or the host's memory.
    pub total_bytes: Option<u64>,
    /// Which level of the cgroup's path limits `total_bytes`; absent for a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_level: Option<LimitLevel>,
    /// Whether a GPU has no memory of its own: what is in use is what the host has not available, the operating system and
    /// all processes included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_host: bool,
    /// Whether the samples count swapped-out memory as in use. Captures of earlier releases do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_swap: bool,
}

/// Which backend measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendFacts {
    /// `nvml`, `amd`, `intel`, `host`, `replay`.
    pub name: String,
    /// Version of the driver or kernel interface.
    pub version: Option<String>,
    /// True when the device is a simulation (tests). Shown wherever the numbers are.
    pub simulated: bool,
    /// Why this one was chosen; a sentence.
    pub reason: String,
}

impl BackendFacts {
    /// Why it names no owner of memory: what `reason` has behind the choice.
    pub fn why_no_owners(&self) -> &str {
        let behind = self.reason.split_once("; ");
        behind.map_or("the driver lists no processes", |(_, why)| why)
    }
}

/// One reading of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySample {
    /// When the reading ended.
    pub at_ns: AtNs,
    /// [`DeviceFacts::index`].
    pub device: u32,
    /// Memory in use, bytes. For a GPU as NVML v2 counts it (without `reserved`); for a cgroup the
    /// kernel's charge (anonymous, file and kernel memory), and swap ([`DeviceFacts::counts_swap`]).
    pub used_bytes: u64,
    /// Lowest use seen since the sample before, by faster probing in between; bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_bytes: Option<u64>,
    /// Highest use seen since the sample before, by faster probing in between; bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_bytes: Option<u64>,
    /// The kernel's own high-water mark since the cgroup exists, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_peak_bytes: Option<u64>,
    /// Memory the driver keeps for itself, bytes (NVML v2 `reserved`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
    /// Host memory by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSplit>,
    /// Memory of the whole host, of a sample of host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_host: Option<HostState>,
    /// Per-process memory where it was read at this tick (less often than every tick).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<ProcessMemory>>,
    /// Memory of the bench client that plimsoll runs in the container beside the engine, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench_client_bytes: Option<u64>,
    /// Power draw, milliwatts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// GPU temperature, °C (for AMD the edge of the die).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Temperature of the hottest spot of the die, °C, where there is such a sensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hotspot_temp_c: Option<u32>,
    /// Temperature of the memory, °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_temp_c: Option<u32>,
    /// GPU busy, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_pct: Option<u32>,
    /// Memory interface busy, percent. This is traffic, not how full the memory is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_utilization_pct: Option<u32>,
    /// Clock of the cores, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_gfx_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mem_mhz: Option<u32>,
    /// Energy used since the driver was loaded, millijoules. Only differences mean anything: over
    /// the time between two samples they give the mean power, which `power_mw` does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    /// Why the clocks are not higher, as the driver's own bits (NVML's clock event reasons).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u64>,
    /// Taken between two ticks, right after the edge of a phase. Such samples are denser than the
    /// others, so they count for levels and peaks and not for means over time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub burst: bool,
}

impl MemorySample {
    /// Takes every gauge that this sample lacks from another one.
    pub fn fill_gauges(&mut self, other: &MemorySample) {
        macro_rules! fill {
            ($($gauge:ident)*) => { $(self.$gauge = self.$gauge.or(other.$gauge);)* };
        }
        fill!(power_mw temperature_c hotspot_temp_c memory_temp_c utilization_pct);
        fill!(mem_utilization_pct clock_gfx_mhz clock_mem_mhz energy_mj throttle);
    }
}

/// Host memory of a cgroup by kind, bytes. `None`: not reported by the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostSplit {
    /// Anonymous memory: heaps, stacks, anonymous maps.
    pub anon_bytes: Option<u64>,
    /// Page cache, shared memory not included.
    pub file_bytes: Option<u64>,
    /// Shared memory and tmpfs.
    pub shmem_bytes: Option<u64>,
    /// Kernel memory charged to the cgroup.
    pub kernel_bytes: Option<u64>,
    /// Swapped out: in no other kind.
    pub swap_bytes: Option<u64>,
    /// Locked in memory by its processes (`mlock`), within the other kinds. What a GPU driver pins is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_bytes: Option<u64>,
}

impl HostSplit {
    /// Of `used` bytes those that count against a limit: neither page cache nor swap.
    pub fn held_of(&self, used: u64) -> u64 {
        let beside = [self.file_bytes, self.swap_bytes];
        used.saturating_sub(beside.into_iter().flatten().fold(0, u64::saturating_add))
    }
}

impl MemorySample {
    /// In use on a GPU; of host memory what counts against a limit, bytes.
    pub fn held_bytes(&self) -> u64 {
        self.host.unwrap_or_default().held_of(self.used_bytes)
    }
}

/// Memory of the whole host, from `/proc/meminfo` and `/proc/pressure/memory`. What the kernel does not report is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostState {
    /// `MemTotal`, bytes.
    pub total_bytes: u64,
    /// `MemAvailable`, bytes: what can be allocated without swapping.
    pub available_bytes: u64,
    /// Swapped out by anybody, bytes.
    pub swap_used_bytes: Option<u64>,
    /// Share of the last 10 s in which every task waited for memory, percent (`full avg10`).
    pub stalled_pct: Option<f64>,
}

/// Memory of one process on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessMemory {
    /// Host pid.
    pub pid: u32,
    /// Bytes; `None` where the driver does not say.
    pub used_bytes: Option<u64>,
    /// Whether the process is in the profiled container; `None`: unknown.
    pub ours: Option<bool>,
    /// The process' name, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Id of the container it runs in, the outermost where they are nested; `None` when it runs in
    /// none, or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Its peak in bytes, if the driver's accounting mode is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}

/// A phase of the run. The order is the order of a run.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Sampling before the engine or the load begins.
    Baseline,
    /// The container is started by us (mode `started`).
    Start,
    /// The bench command runs: its own start-up and warm-up.
    Warmup,
    /// The measured part of the bench.
    Bench,
    /// After the load.
    Cooldown,
}

/// The start of a phase, as plimsoll went through it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseMark {
    /// When.
    pub at_ns: AtNs,
    /// Which.
    pub phase: Phase,
    /// Repeat number, from 1, for warm-up and bench.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
}

/// Reply of one HTTP endpoint of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// When the reply was in.
    pub at_ns: AtNs,
    /// Path, such as `/metrics`.
    pub path: String,
    /// How it was reached: `published port`, `container address`, `exec curl`, `exec python3`.
    pub route: String,
    /// HTTP status; `None` when nothing answered.
    pub status: Option<u16>,
    /// Body, redacted.
    pub body: String,
    /// Why there is none.
    pub error: Option<String>,
}

/// A serving engine's gauges at one moment. Unknown is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineGauges {
    /// When the reply was in.
    pub at_ns: AtNs,
    /// Share of the KV pool in use, 0 to 1.
    pub kv_cache_usage: Option<f64>,
    /// Requests running.
    pub requests_running: Option<u64>,
    /// Requests waiting.
    pub requests_waiting: Option<u64>,
    /// Preemptions since the engine's start.
    pub preemptions: Option<u64>,
}

/// What a command inside the container was for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecRole {
    /// The bench (a repeat of it).
    #[default]
    Bench,
    /// Asking the bench for its flags.
    Help,
    /// Anything else.
    Other,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// With this exit code.
    Exited(i64),
    /// The program is not in the image; the runtime's message.
    NotFound(String),
    /// Stopped at its deadline.
    Deadline,
    /// Stopped because the user asked for it.
    Cancelled,
    /// The container ended or was removed under it.
    ContainerGone,
    /// The daemon did not answer; its message.
    #[default]
    Unknown,
}

/// One command that ran inside the container. Its output lines are in the log stream with
/// [`LineSource::Exec`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecOutcome {
    /// What it was for.
    pub role: ExecRole,
    /// Repeat number, from 1.
    pub repeat: Option<u32>,
    /// Arguments, redacted.
    pub argv: Vec<String>,
    /// Start.
    pub started_at_ns: AtNs,
    /// End.
    pub ended_at_ns: AtNs,
    /// How it ended.
    pub end: ExecEnd,
    /// The result file it wrote (the bench's JSON), redacted; `None` when there was none.
    pub result: Option<String>,
    /// Why there is none, when one was expected.
    pub result_error: Option<String>,
    /// Processes that had to be killed at the end.
    pub killed: u32,
    /// Processes of it that were still there after that.
    pub survivors: u32,
    /// Whether the connection to the daemon broke: later output is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether it ran in a process that had run such commands before, and had imported what they
    /// need.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// One Docker event of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEvent {
    /// When.
    pub at_ns: AtNs,
    /// `die`, `oom`, `restart`, `destroy`, `exec_die`, …
    pub action: String,
    /// Attributes that matter (`exitCode`, `signal`, `execID`; of an `oom` by the kernel's counters
    /// the `level` and `limit_bytes` that were reached).
    pub attributes: BTreeMap<String, String>,
}

/// How the run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// As planned.
    #[default]
    Completed,
    /// By Ctrl-C or SIGTERM; the capture is partial.
    Interrupted,
    /// The deadline passed.
    Deadline,
    /// The container ended, restarted or was removed; a sentence.
    ContainerLost(String),
    /// The bench failed; a sentence.
    BenchFailed(String),
    /// plimsoll could not go on; a sentence.
    Failed(String),
}

impl Capture {
    /// With these devices: host memory behind GPUs is a budget beside them, not a device of the load.
    pub fn with_devices(mut self, mut devices: Vec<DeviceFacts>) -> Capture {
        if devices.iter().any(|d| d.kind == DeviceKind::Gpu) {
            let host = devices
                .iter()
                .position(|d| d.kind == DeviceKind::HostCgroup);
            self.host_memory = host.map(|place| devices.remove(place));
        }
        self.devices = devices;
        self
    }

    /// Every device that the samples speak of.
    pub fn sampled_devices(&self) -> Vec<DeviceFacts> {
        (self.devices.iter())
            .chain(&self.host_memory)
            .cloned()
            .collect()
    }

    /// A device by its index.
    pub fn device(&self, index: u32) -> Option<&DeviceFacts> {
        self.devices.iter().find(|d| d.index == index)
    }

    /// The commands that ran a bench.
    pub fn benches(&self) -> impl Iterator<Item = &ExecOutcome> {
        self.execs.iter().filter(|e| e.role == ExecRole::Bench)
    }
}

impl RunEnd {
    /// Why a run that was neither completed nor stopped failed.
    pub fn failure(&self) -> Option<&str> {
        match self {
            RunEnd::ContainerLost(why) | RunEnd::BenchFailed(why) | RunEnd::Failed(why) => {
                Some(why)
            }
            RunEnd::Completed | RunEnd::Interrupted | RunEnd::Deadline => None,
        }
    }

    /// How a run that is not whole ended.
    pub fn describe(&self) -> Option<String> {
        match self {
            RunEnd::Completed => None,
            RunEnd::Interrupted => Some("the run was interrupted".into()),
            RunEnd::Deadline => Some("the run did not end within its deadline".into()),
            _ => self.failure().map(|why| format!("the run failed: {why}")),
        }
    }

    /// Why the figures of the load are missing.
    pub fn unmeasured(&self) -> Option<String> {
        let end = match self {
            RunEnd::Completed => return None,
            RunEnd::Interrupted => "the run was interrupted",
            RunEnd::Deadline => "the deadline passed",
            RunEnd::ContainerLost(_) => "the container was lost",
            RunEnd::BenchFailed(_) => "the bench failed",
            RunEnd::Failed(_) => "the run failed",
        };
        Some(format!("{end} before it was measured"))
    }
}

/// The load to put on the engine. `None` leaves a value to the engine's bench.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Prompt tokens per request; null where a prompt was given instead (0 in the type: no bench
    /// takes a prompt of nothing).
    #[serde(default, with = "null_for_zero")]
    #[schemars(with = "Option<u32>")]
    pub input_len: u32,
    /// Generated tokens per request.
    pub output_len: u32,
    /// Sequences per batch (latency bench).
    pub batch_size: Option<u32>,
    /// Measured iterations (latency bench).
    pub num_iters: Option<u32>,
    /// Warm-up iterations (latency bench) or requests (serve bench).
    pub num_iters_warmup: Option<u32>,
    /// Requests (throughput and serve bench).
    pub num_prompts: Option<u32>,
    /// Requests in flight at most (serve bench).
    pub max_concurrency: Option<u32>,
    /// Requests per second (serve bench); `None` is as fast as possible.
    pub request_rate: Option<f64>,
    /// Random seed handed to the bench.
    pub seed: Option<u64>,
    /// Text of the prompt (transformers probe); `None` is `input_len` random tokens.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Whether operators and layers are reported (transformers probe).
    #[serde(default)]
    pub per_layer: bool,
    /// The other prompts of a mixture, where `input_len` is the length of the long ones (builtin).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_prompts: Option<ShortPrompts>,
}

/// Short prompts among long ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShortPrompts {
    /// Tokens of a short prompt.
    pub input_len: u32,
    /// Share of the requests that have one, 0 to 1. Which they are follows from the seed.
    pub share: f64,
}

/// An engine was started once for several captures: its start-up was observed before this one, and
/// its samples are part of this capture too, at negative moments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedStart {
    /// Run that observed it.
    pub run_id: String,
    /// When the engine was started.
    pub began_at_ns: AtNs,
    /// When it served; between this and the capture's own beginning nothing was sampled.
    pub served_at_ns: AtNs,
}

/// Where a limit on the container's memory is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitLevel {
    /// The container's own cgroup (`docker run --memory`).
    Container,
    /// A cgroup above it, by its path: a systemd slice, a Slurm job, a Kubernetes pod.
    Cgroup(String),
    /// No cgroup: the host's physical memory.
    #[default]
    Host,
}

/// A limit on the container's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Where it is set.
    pub level: LimitLevel,
}

impl MemoryLimit {
    /// As attributes of an `oom` event.
    pub fn to_attributes(&self) -> [(String, String); 2] {
        let level = match &self.level {
            LimitLevel::Container => "container",
            LimitLevel::Cgroup(path) => path,
            LimitLevel::Host => "host",
        };
        [
            ("level".into(), level.into()),
            ("limit_bytes".into(), self.bytes.to_string()),
        ]
    }

    /// The limit that an `oom` event names; `None` for Docker's own events, which name none.
    pub fn from_event(event: &ContainerEvent) -> Option<MemoryLimit> {
        let level = match event.attributes.get("level")?.as_str() {
            "container" => LimitLevel::Container,
            "host" => LimitLevel::Host,
            path => LimitLevel::Cgroup(path.to_owned()),
        };
        let bytes = event.attributes.get("limit_bytes")?.parse().ok()?;
        Some(MemoryLimit { bytes, level })
    }
}
