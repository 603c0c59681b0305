//! Reading the memory of the devices that a container uses: the trait, and which backend to take.
//!
//! Everything here blocks and knows no container runtime: a container is a [`Target`], its facts.
//! A new kind of device is one new file and one arm in [`open`].

pub mod amd;
pub mod attribution;
mod cgroup;
mod costs;
mod gpu_process;
mod gpus;
mod host;
mod jitter;
mod nvml;
mod pace;
mod probing;
mod process;
mod replay;
mod sampler;
mod samples;
mod survey;

pub use cgroup::{OomLook, OomWatch};
pub use nvml::{LIBRARY_VARIABLE, use_library};
pub use replay::{Replay, Upset};
pub use sampler::{Options, Sampler, SamplerHandle, Stopped};
pub use samples::Samples;
pub use survey::{Survey, survey};

use crate::capture::{
    BackendFacts, CallCost, ContainerFacts, DeviceEvent, DeviceFacts, MemorySample,
};
use crate::clock::Clock;
use crate::error::Failure;
use gpus::Request;
use host::HostBackend;
use nvml::{NvmlBackend, Unusable};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Reads the memory of some devices. Used by one thread at a time, which it may block.
pub trait MemoryBackend: Send {
    /// Which backend this is and why it was chosen.
    fn facts(&self) -> BackendFacts;

    /// The devices that are read. [`DeviceFacts::index`] is the place in this list, and the list
    /// stays the same for the life of the backend.
    fn devices(&self) -> Vec<DeviceFacts>;

    /// One full reading of every device, added to `into`; each sample carries the time at which
    /// its device was read. After an error `into` still holds what could be read. What cannot be
    /// read is `None` in the sample, never 0.
    fn sample(
        &mut self,
        clock: &Clock,
        wanted: Wanted,
        into: &mut Vec<MemorySample>,
    ) -> Result<(), ReadingError>;

    /// The shortest interval at which [`MemoryBackend::probe`] may be called; `None` when it may
    /// not be called between full readings.
    fn probe_floor(&self) -> Option<Duration> {
        None
    }

    /// The cheapest reading of the used bytes per device, for probing between full readings:
    /// replaces the contents of `into` by one number per device. A device that cannot be read
    /// now counts as 0 here, and 0 is left out.
    fn probe(&mut self, into: &mut Vec<u64>) -> Result<(), ReadingError> {
        into.clear();
        Err(ReadingError::Failed(
            "this backend has no fast reading".into(),
        ))
    }

    /// What its calls have cost so far, by kind, where it keeps account.
    fn costs(&self) -> Vec<CallCost> {
        Vec::new()
    }

    /// Devices that are there and could not be opened, a sentence each.
    fn unopened(&self) -> Vec<String> {
        Vec::new()
    }

    /// What has happened to the devices since the last call.
    fn take_events(&mut self) -> Vec<DeviceEvent> {
        Vec::new()
    }
}

/// What a full reading shall hold beyond the memory of the devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Also what is too dear to be read at every tick (memory per process).
    pub detail: bool,
    /// Host pid of the bench client whose memory is wanted: process 1 of an exec.
    pub bench_client: Option<u32>,
}

/// Why a reading failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadingError {
    /// This reading, or one device of it. The next may succeed.
    #[error("{0}")]
    Failed(String),
    /// What was measured is not there at the moment: a container that ended. It may come back.
    #[error("{0}")]
    Gone(String),
    /// A replay is over; there will be no more.
    #[error("the replay is over")]
    Over,
}

/// The backend asked for by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// NVML when the container uses an NVIDIA GPU and NVML can read one, else AMD's GPUs when it
    /// was given one, the host's memory otherwise.
    #[default]
    Auto,
    /// NVIDIA GPUs.
    Nvml,
    /// AMD GPUs.
    Amd,
    /// The container's host memory (its cgroup).
    Host,
}

impl BackendChoice {
    /// The words that parse to a choice.
    pub const NAMES: [&'static str; 4] = ["auto", "nvml", "amd", "host"];
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BackendChoice::Auto => "auto",
            BackendChoice::Nvml => "nvml",
            BackendChoice::Amd => "amd",
            BackendChoice::Host => "host",
        })
    }
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(BackendChoice::Auto),
            "nvml" => Ok(BackendChoice::Nvml),
            "amd" => Ok(BackendChoice::Amd),
            "host" => Ok(BackendChoice::Host),
            other => Err(format!(
                "`{other}` is no memory backend: one of {}",
                Self::NAMES.join(", ")
            )),
        }
    }
}

/// The container to measure, as far as reading its memory needs to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Host pid of its process 1; `None` when it is not running.
    pub init_pid: Option<u32>,
    /// Full id, as it stands in the names of its cgroups. Empty: the pid alone tells.
    pub container_id: String,
    /// GPU request as Docker holds it: a device id each, or `all`, or `count=N`.
    pub gpu_request: Vec<String>,
    /// Value of `NVIDIA_VISIBLE_DEVICES` in its environment.
    pub visible_devices: Option<String>,
    /// Host devices passed through.
    pub devices: Vec<String>,
}

impl Target {
    /// The target that a container is.
    pub fn of(container: &ContainerFacts) -> Target {
        Target {
            init_pid: container.state.pid,
            container_id: container.id.clone(),
            gpu_request: container.gpu_request.clone(),
            visible_devices: container.env.get("NVIDIA_VISIBLE_DEVICES").cloned(),
            devices: container.devices.clone(),
        }
    }
}

/// The directory of a container's own cgroup, where this host shows it.
pub fn cgroup_directory(target: &Target) -> Option<std::path::PathBuf> {
    cgroup::find(target.init_pid?, &target.container_id)
        .ok()
        .map(|c| c.dir)
}

/// Counts the kernel's kills for lack of memory in a container, where this host shows its cgroup.
/// Where `since_start`, those before this call count too.
pub fn watch_oom_kills(target: &Target, since_start: bool) -> Option<OomWatch> {
    let cgroup = cgroup::find(target.init_pid?, &target.container_id).ok()?;
    Some(OomWatch::start(&cgroup, since_start))
}

/// Opens the backend that was asked for, or the one that fits.
pub fn open(choice: BackendChoice, target: &Target) -> Result<Box<dyn MemoryBackend>, Failure> {
    let request = gpus::request(target);
    match choice {
        BackendChoice::Host => host(target, "container memory was asked for".into()),
        BackendChoice::Nvml => match NvmlBackend::open(target, request.as_ref()) {
            Ok(backend) => Ok(Box::new(backend)),
            Err(why) => Err(unusable(why, request.is_none())),
        },
        BackendChoice::Amd => {
            amd::open(target, &amd::Roots::from_environment()).map_err(|why| unusable(why, false))
        }
        BackendChoice::Auto => {
            // A leftover of the image counts only where there is a GPU inside.
            let leftover =
                |r: &Request| r.doubtful && target.init_pid.and_then(gpus::inside) == Some(false);
            let request = request.filter(|r| !leftover(r));
            match NvmlBackend::open(target, request.as_ref()) {
                Ok(backend) => Ok(Box::new(backend)),
                Err(_) if amd::asks(target) => amd_or_host(target),
                Err(why) if request.is_some() => host(
                    target,
                    format!(
                        "the container asks for a GPU that cannot be read, so container memory is measured: {}",
                        why.message
                    ),
                ),
                Err(_) => match amd::open(target, &amd::Roots::from_environment()) {
                    // A privileged container was given nothing and has everything.
                    Ok(backend) => Ok(backend),
                    Err(_) => host(target, "the container uses no GPU".into()),
                },
            }
        }
    }
}

/// Opens every GPU of the host, whoever uses it: NVIDIA's, or else AMD's.
pub fn open_host() -> Result<Box<dyn MemoryBackend>, Failure> {
    let why = match NvmlBackend::of_host() {
        Ok(backend) => return Ok(Box::new(backend)),
        Err(why) => why,
    };
    // As a container that was given all of them.
    let all = Target {
        devices: vec!["/dev/kfd".into(), "/dev/dri".into()],
        ..Target::default()
    };
    amd::open(&all, &amd::Roots::from_environment()).map_err(|amd| {
        let failure = Failure::environment(format!(
            "no GPU can be read: {}; {}",
            why.message, amd.message
        ));
        why.hint.into_iter().fold(failure, Failure::hint)
    })
}

/// The same for one maker's GPUs; `Auto` takes either, and `Host` none.
pub fn open_host_as(choice: BackendChoice) -> Result<Box<dyn MemoryBackend>, Failure> {
    let all = || Target {
        devices: vec!["/dev/kfd".into(), "/dev/dri".into()],
        ..Target::default()
    };
    match choice {
        BackendChoice::Auto => open_host(),
        BackendChoice::Nvml => match NvmlBackend::of_host() {
            Ok(backend) => Ok(Box::new(backend)),
            Err(why) => Err(unusable(why, false)),
        },
        BackendChoice::Amd => {
            amd::open(&all(), &amd::Roots::from_environment()).map_err(|why| unusable(why, false))
        }
        BackendChoice::Host => Err(Failure::usage("the host's memory is on no GPU")),
    }
}

/// For a container that has ended: there is nothing to read.
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

    fn sample(
        &mut self,
        _: &Clock,
        _: Wanted,
        _: &mut Vec<MemorySample>,
    ) -> Result<(), ReadingError> {
        Err(ReadingError::Gone(ENDED.into()))
    }
}

const ENDED: &str = "the container ended before its memory could be read";

/// Whether this host shows signs of a GPU's driver, whether or not it can be read.
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

/// For a container that was given graphics devices, of whichever maker.
fn amd_or_host(target: &Target) -> Result<Box<dyn MemoryBackend>, Failure> {
    amd::open(target, &amd::Roots::from_environment()).or_else(|why| {
        let reason = format!(
            "the container was given graphics devices, but no GPU can be read, so container memory is measured: {}",
            why.message
        );
        host(target, reason)
    })
}

fn host(target: &Target, reason: String) -> Result<Box<dyn MemoryBackend>, Failure> {
    Ok(Box::new(HostBackend::open(target, reason)?))
}

fn unusable(why: Unusable, no_request: bool) -> Failure {
    let failure = Failure::environment(format!(
        "the GPUs of the container cannot be measured: {}",
        why.message
    ));
    match why.hint {
        Some(hint) => failure.hint(hint),
        None if no_request => failure
            .hint("give the container a GPU (`docker run --gpus all`), or measure its host memory: `--memory-backend host`"),
        None => failure.hint("to measure the container's host memory instead: `--memory-backend host`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_backend_parses_and_prints() {
        for name in BackendChoice::NAMES {
            assert_eq!(
                name.parse::<BackendChoice>().map(|c| c.to_string()),
                Ok(name.to_owned())
            );
        }
        assert!(
            "cuda"
                .parse::<BackendChoice>()
                .unwrap_err()
                .contains("auto, nvml, amd, host")
        );
    }
}
