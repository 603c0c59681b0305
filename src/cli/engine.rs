//! Flags that commands share: an engine without Docker by its process, its cgroup or its pod; a container of our own; an
//! engine's settings.

use super::{arguments, gpus, share, size, some_text, some_time};
use crate::collect::EngineTarget;
use crate::container::process_log::LogSource;
use crate::container::process_target::ProcessPlace;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Where the processes of an engine are.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "process", multiple = false)]
pub struct ProcessArgs {
    /// Process id of the engine on this host, instead of a container
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(2..), help_heading = WITHOUT_DOCKER)]
    pub pid: Option<u32>,
    /// Cgroup of the engine (service, scope or slice), instead of a container
    #[arg(long, value_name = "PATH", value_parser = some_text, help_heading = WITHOUT_DOCKER)]
    pub cgroup: Option<String>,
    /// Kubernetes pod on this node: [NAMESPACE/]POD[/CONTAINER]
    #[arg(long, value_name = "POD", value_parser = some_text, help_heading = WITHOUT_DOCKER)]
    pub pod: Option<String>,
}

/// Where such an engine logs.
#[derive(Debug, Clone, Default, Args)]
pub struct LogArgs {
    /// Log file of such an engine, or - for standard input [default: the file that it writes]
    #[arg(long, value_name = "FILE", requires = "process", help_heading = WITHOUT_DOCKER)]
    pub log: Option<PathBuf>,
}

pub(super) const WITHOUT_DOCKER: &str = "Without Docker";

impl ProcessArgs {
    /// The place that is named, if one is.
    pub fn place(&self) -> Option<ProcessPlace> {
        let by_pid = self.pid.map(ProcessPlace::Pid);
        let by_cgroup = self.cgroup.clone().map(ProcessPlace::Cgroup);
        by_pid
            .or(by_cgroup)
            .or(self.pod.clone().map(ProcessPlace::Pod))
    }

    /// The engine that the flags or else the name of a container name.
    pub fn target(&self, container: Option<&str>, log: &LogArgs) -> Option<EngineTarget> {
        let log = match &log.log {
            None => LogSource::Unnamed,
            Some(file) if file.as_os_str() == "-" => LogSource::Input,
            Some(file) => LogSource::File(file.clone()),
        };
        match self.place() {
            Some(place) => Some(EngineTarget::Process(place, log)),
            None => container.map(EngineTarget::of_container),
        }
    }
}

/// A container of our own for an engine, beside its image.
#[derive(Debug, Clone, Args)]
pub struct StartArgs {
    /// GPUs: none, all, a count as in 2, or ids as in device=0 or device=0,1 [default: none]
    #[arg(long, value_name = "GPUS", value_parser = gpus)]
    pub gpus: Option<String>,
    /// Size of /dev/shm
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub shm_size: Option<String>,
    /// Memory limit of the container
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<String>,
    /// Hugging Face cache on the host, mounted into the container
    #[arg(long, value_name = "DIR", env = "HF_HOME", hide_env_values = true)]
    pub hf_cache: Option<PathBuf>,
    /// Mount, as docker's -v: SOURCE:TARGET or SOURCE:TARGET:ro
    #[arg(long, value_name = "SPEC")]
    pub volume: Vec<String>,
    /// Environment, as docker's -e: NAME=VALUE, or NAME to pass on the value of this shell
    #[arg(long, short, value_name = "ENV")]
    pub env: Vec<String>,
    /// Share the host's IPC namespace
    #[arg(long)]
    pub ipc_host: bool,
    /// Pull the image if it is missing
    #[arg(long)]
    pub pull: bool,
    /// Longest wait for the engine to serve [default: 20m]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub health_timeout: Option<Duration>,
}

impl StartArgs {
    /// How long the engine may take until it serves.
    pub fn health_timeout(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(20 * 60);
        self.health_timeout.unwrap_or(LONGEST)
    }
}

/// Settings of an engine, in the field's words.
#[derive(Debug, Clone, Args)]
pub struct EngineFlags {
    /// Type of weights and activations
    #[arg(long, value_name = "TYPE", help_heading = "Engine settings")]
    pub dtype: Option<String>,
    /// Quantization method
    #[arg(long, value_name = "METHOD", help_heading = "Engine settings")]
    pub quantization: Option<String>,
    /// Type of the KV cache
    #[arg(long, value_name = "TYPE", help_heading = "Engine settings")]
    pub kv_cache_dtype: Option<String>,
    /// Tensor parallel size
    #[arg(long, visible_alias = "tp", value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Engine settings")]
    pub tensor_parallel_size: Option<u32>,
    /// No compilation, no CUDA graphs
    #[arg(long, help_heading = "Engine settings")]
    pub enforce_eager: bool,
    /// Share of device memory that the engine may take, above 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Engine settings")]
    pub gpu_memory_utilization: Option<f64>,
    /// Longest sequence, prompt and output together
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Engine settings")]
    pub max_model_len: Option<u64>,
    /// More engine arguments, as one quoted string; may be repeated
    #[arg(long, value_name = "ARGS", value_parser = arguments, allow_hyphen_values = true, help_heading = "Engine settings")]
    pub extra_engine_args: Vec<String>,
}
