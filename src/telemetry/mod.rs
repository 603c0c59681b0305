//! Reads the memory of the devices that a container uses: the trait, and the choice of the backend.
//!
//! Everything here blocks and is independent of the container runtime: a container is a [`MeasuredContainer`].
//! A new kind of device is one new file and one arm in [`open_backend`].

pub mod amd;
pub mod attribution;
mod cgroup;
mod costs;
pub mod fdinfo;
mod gpus;
mod host;
pub mod intel;
pub mod kernel_log;
mod nvml;
mod pace;
mod replay;
mod sampler;
pub mod toolkit;
mod tree;

pub use cgroup::{OomLook, OomWatch};
pub use nvml::{LIBRARY_VARIABLE, use_library};
pub use replay::ReplayBackend;
pub use sampler::{MemorySampler, SamplerHandle, SamplerOptions, Stopped};
pub use toolkit::survey_backends;

use crate::capture::{
    BackendFacts, CallCost, ContainerFacts, DeviceEvent, DeviceFacts, MemorySample,
};
use crate::clock::Clock;
use crate::error::Failure;
use gpus::{ContainerGpuRequest, GpuRequestItem};
use host::HostBackend;
use nvml::NvmlBackend;
use std::time::Duration;
use tree::TreeBackend;

/// Reads the memory of some devices. Used by one thread at a time, and may block it.
pub trait MemoryBackend: Send {
    /// Which backend this is, and why it was chosen.
    fn facts(&self) -> BackendFacts;

    /// The devices that are read. [`DeviceFacts::index`] is the position in this list, which stays
    /// the same for the life of the backend.
    fn devices(&self) -> Vec<DeviceFacts>;

    /// One full reading of every device, appended to `into`; each sample carries the time at which
    /// its device was read. After an error `into` still holds what could be read. A figure that
    /// cannot be read is `None`, never 0.
    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading;

    /// The shortest interval between calls of [`MemoryBackend::probe`]; `None` if it may not be
    /// called between full readings.
    fn probe_floor(&self) -> Option<Duration> {
        None
    }

    /// The cheapest reading of the used bytes per device, for probing between full readings.
    /// Replaces the contents of `into` by one number per device; 0 for a device that cannot be read
    /// now.
    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        into.clear();
        Err(ReadingError::Failed(
            "this backend has no fast reading".into(),
        ))
    }

    /// Costs of its calls so far, by kind, if it records them.
    fn costs(&self) -> Vec<CallCost> {
        Vec::new()
    }

    /// Devices that exist but could not be opened, a sentence each.
    fn unopened(&self) -> Vec<String> {
        Vec::new()
    }

    /// Events of the devices since the last call.
    fn take_events(&mut self) -> Vec<DeviceEvent> {
        Vec::new()
    }
}

/// What a full reading includes besides the memory of the devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Include what is too expensive for every tick (memory per process).
    pub detail: bool,
    /// Host pid of process 1 of the bench client's exec, to read its memory too.
    pub bench_client: Option<u32>,
}

/// The result of a reading.
pub type Reading = Result<(), ReadingError>;

/// Why a reading failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadingError {
    /// This reading, or one device of it, failed. The next may succeed.
    #[error("{0}")]
    Failed(String),
    /// The container has ended or the device is gone. It may come back.
    #[error("{0}")]
    Gone(String),
    /// A replay is over; there are no more readings.
    #[error("the recording has no more readings")]
    Over,
}

/// The requested backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// NVML if the container uses an NVIDIA GPU and NVML can read one, else AMD's or Intel's GPUs if it was
    /// given one, else the host's memory.
    #[default]
    Auto,
    /// NVIDIA GPUs.
    Nvml,
    /// AMD GPUs.
    Amd,
    /// Intel GPUs.
    Intel,
    /// The container's host memory (its cgroup).
    Host,
}

/// The facts of the container that reading its memory needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredContainer {
    /// Host pid of its process 1; `None` when it is not running.
    pub init_pid: Option<u32>,
    /// Full id, as in the names of its cgroups. If empty, it is the tree of that process: its cgroup is not its own.
    pub container_id: String,
    /// GPU request as Docker stores it: a device id each, or `all`, or `count=N`.
    pub gpu_request: Vec<String>,
    /// Value of `NVIDIA_VISIBLE_DEVICES` in its environment.
    pub visible_devices: Option<String>,
    /// Host devices passed through.
    pub devices: Vec<String>,
}

impl MeasuredContainer {
    /// The target for a container.
    pub fn of_container(container: &ContainerFacts) -> MeasuredContainer {
        MeasuredContainer {
            init_pid: container.state.pid,
            container_id: container.id.clone(),
            gpu_request: container.gpu_request.clone(),
            visible_devices: container.env.get("NVIDIA_VISIBLE_DEVICES").cloned(),
            devices: container.devices.clone(),
        }
    }
}

/// The directory of a container's own cgroup, if this host shows it.
pub fn cgroup_directory(target: &MeasuredContainer) -> Option<std::path::PathBuf> {
    Some(own_cgroup(target)?.dir)
}

/// `None` for a process tree too: the cgroup that it is in is others' as well.
fn own_cgroup(target: &MeasuredContainer) -> Option<cgroup::Cgroup> {
    let init = target
        .init_pid
        .filter(|_| !target.container_id.is_empty())?;
    cgroup::find_cgroup(init, &target.container_id).ok()
}

/// Counts OOM kills in a container, if this host shows its cgroup. With `since_start`, earlier
/// kills count too.
pub fn watch_oom_kills(target: &MeasuredContainer, since_start: bool) -> Option<OomWatch> {
    Some(OomWatch::start_counting(&own_cgroup(target)?, since_start))
}

/// Whether a container was given GPUs, by its request, its device files or its environment.
pub fn uses_gpus(target: &MeasuredContainer) -> bool {
    gpus::find_request(target).is_some() || requests_graphics(target)
}

/// Whether a container was given AMD's or Intel's GPUs, or graphics devices of any vendor.
fn requests_graphics(target: &MeasuredContainer) -> bool {
    let kinds = [amd::CDI_KIND, intel::CDI_KIND];
    (kinds.iter()).any(|kind| amd::choose::requests_gpus(target, kind))
}

/// Opens the requested backend, or the one that fits.
pub fn open_backend(
    choice: BackendChoice,
    target: &MeasuredContainer,
) -> Result<Box<dyn MemoryBackend>, Failure> {
    let request = gpus::find_request(target);
    match choice {
        BackendChoice::Host => host(target, "container memory was asked for".into()),
        BackendChoice::Nvml => NvmlBackend::open_for(target, request.as_ref())
            .map_err(|why| unusable(why, request.is_none())),
        BackendChoice::Amd | BackendChoice::Intel => {
            open_graphics(choice, target).map_err(|why| unusable(why, false))
        }
        BackendChoice::Auto => {
            // An environment variable set by the image counts only if there is a GPU inside.
            let leftover = |r: &ContainerGpuRequest| {
                r.doubtful && target.init_pid.and_then(gpus::has_gpu_inside) == Some(false)
            };
            let request = request.filter(|r| !leftover(r));
            match NvmlBackend::open_for(target, request.as_ref()) {
                Ok(backend) => Ok(backend),
                Err(_) if requests_graphics(target) => graphics_or_host(target),
                Err(why) if request.is_some() => host(
                    target,
                    format!(
                        "the container asks for a GPU that cannot be read, so container memory is measured: {}",
                        why.message
                    ),
                ),
                Err(_) => match open_graphics(choice, target) {
                    // A privileged container has every GPU without a request.
                    Ok(backend) => Ok(backend),
                    Err(_) => host(target, explain_no_gpu(target)),
                },
            }
        }
    }
}

/// As [`open_backend`], and beside GPUs the container's host memory as the last device.
pub fn open_with_host(
    choice: BackendChoice,
    target: &MeasuredContainer,
) -> Result<Box<dyn MemoryBackend>, Failure> {
    Ok(host::add_host_memory(open_backend(choice, target)?, target))
}

/// Opens every GPU of the host: NVIDIA's, or else AMD's.
pub fn open_host() -> Result<Box<dyn MemoryBackend>, Failure> {
    let why = match NvmlBackend::of_host(GpuRequestItem::All) {
        Ok(backend) => return Ok(backend),
        Err(why) => why,
    };
    open_graphics(BackendChoice::Auto, &all_graphics()).map_err(|others| {
        let message = format!("no GPU can be read: {}; {}", why.message, others.message);
        Failure { message, ..why }
    })
}

/// The whole host, as a container with all graphics cards.
fn all_graphics() -> MeasuredContainer {
    MeasuredContainer {
        devices: vec!["/dev/kfd".into(), "/dev/dri".into()],
        ..MeasuredContainer::default()
    }
}

/// Opens AMD's GPUs of a container, or else Intel's; or those of the maker that is chosen.
fn open_graphics(
    choice: BackendChoice,
    target: &MeasuredContainer,
) -> Result<Box<dyn MemoryBackend>, Failure> {
    let roots = amd::Roots::from_environment();
    let why = match choice {
        BackendChoice::Intel => None,
        _ => match amd::open_backend(target, &roots) {
            Err(why) if choice != BackendChoice::Amd => Some(why),
            opened => return opened,
        },
    };
    match intel::IntelBackend::open_backend(target, &roots) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(intel) => Err(match why {
            Some(amd) if intel::is_here(&roots) => Failure {
                message: format!("{}; {}", amd.message, intel.message),
                ..amd
            },
            Some(amd) => amd,
            None => intel,
        }),
    }
}

/// Why the container's host memory is measured: it has no GPU, or an accelerator that nothing here can read.
fn explain_no_gpu(target: &MeasuredContainer) -> String {
    let given = target.devices.iter().chain(&target.gpu_request);
    let found = given.into_iter().find_map(|name| {
        let maker = UNREADABLE.iter().find(|(sign, _)| name.starts_with(sign))?.1;
        Some(format!("plimsoll cannot read the memory of `{name}` ({maker}), which the container was given: container memory is measured"))
    });
    found.unwrap_or_else(|| "the container uses no GPU".to_owned())
}

/// Files and CDI devices of accelerators without a backend, with their makers.
const UNREADABLE: [(&str, &str); 8] = [
    ("/dev/davinci", "Huawei Ascend"),
    ("/dev/accel", "Intel Gaudi, Google TPU or an NPU"),
    ("/dev/hl", "Intel Gaudi"),
    ("/dev/neuron", "AWS Neuron"),
    ("habana.ai/", "Intel Gaudi"),
    ("huawei.com/", "Huawei Ascend"),
    ("google.com/tpu", "Google TPU"),
    ("aws.amazon.com/neuron", "AWS Neuron"),
];

/// Opens every MIG slice of the host; `None` where no GPU is split. A slice has the PCI address of its GPU.
pub fn open_slices() -> Option<Box<dyn MemoryBackend>> {
    NvmlBackend::of_host(GpuRequestItem::Slices).ok()
}

/// As [`open_host`] for one vendor's GPUs; `Auto` takes either, and `Host` none.
pub fn open_host_as(choice: BackendChoice) -> Result<Box<dyn MemoryBackend>, Failure> {
    match choice {
        BackendChoice::Auto => open_host(),
        BackendChoice::Nvml => {
            NvmlBackend::of_host(GpuRequestItem::All).map_err(|why| unusable(why, false))
        }
        BackendChoice::Amd | BackendChoice::Intel => {
            open_graphics(choice, &all_graphics()).map_err(|why| unusable(why, false))
        }
        BackendChoice::Host => Err(Failure::usage("--memory-backend host measures no GPU")
            .hint("leave it out, or name nvml, amd or intel")),
    }
}

/// A backend for a container that has ended: every reading fails.
pub fn ended_container() -> Box<dyn MemoryBackend> {
    Box::new(EndedContainer)
}

struct EndedContainer;

impl MemoryBackend for EndedContainer {
    fn facts(&self) -> BackendFacts {
        BackendFacts {
            name: "none".into(),
            reason: ENDED.into(),
            ..BackendFacts::default()
        }
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        Vec::new()
    }

    fn sample(&mut self, _: &Clock, _: Wanted, _: &mut Vec<MemorySample>) -> Reading {
        Err(ReadingError::Gone(ENDED.into()))
    }
}

const ENDED: &str = "the container ended before its memory could be read";

/// Whether this host shows signs of a GPU driver, readable or not.
pub fn has_driver() -> bool {
    let signs = [
        "/proc/driver/nvidia/version",
        "/dev/nvidiactl",
        "/dev/kfd",
        "/dev/dxg",
    ];
    nvml::is_named()
        || signs
            .iter()
            .any(|sign| std::fs::exists(sign).unwrap_or(false))
}

/// For a container that was given graphics devices of any vendor.
fn graphics_or_host(target: &MeasuredContainer) -> Result<Box<dyn MemoryBackend>, Failure> {
    open_graphics(BackendChoice::Auto, target).or_else(|why| {
        let reason = format!(
            "the container was given graphics devices, but no GPU can be read, so container memory is measured: {}",
            why.message
        );
        host(target, reason)
    })
}

/// Whether this error means that what a file of the kernel is about has gone: a GPU from its driver, a cgroup.
fn is_gone(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NODEV | Errno::NOENT | Errno::NXIO))
}

fn host(target: &MeasuredContainer, reason: String) -> Result<Box<dyn MemoryBackend>, Failure> {
    if target.container_id.is_empty() {
        Ok(Box::new(TreeBackend::open(target, reason)?))
    } else {
        Ok(Box::new(HostBackend::open(target, reason)?))
    }
}

fn unusable(mut why: Failure, no_request: bool) -> Failure {
    why.message = format!(
        "the GPUs of the container cannot be measured: {}",
        why.message
    );
    if !why.hints.is_empty() {
        return why;
    }
    why.hint(if no_request {
        "give the container a GPU (`docker run --gpus all`), or measure its host memory: `--memory-backend host`"
    } else {
        "to measure the container's host memory instead: `--memory-backend host`"
    })
}
