//! Flags that name an engine without Docker: by its process, its cgroup or its pod.

use crate::collect::EngineTarget;
use crate::container::process_log::LogSource;
use crate::container::process_target::ProcessPlace;
use clap::Args;
use std::path::PathBuf;

/// Where the processes of an engine are.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "process", multiple = false)]
pub struct ProcessArgs {
    /// Process id of the engine on this host, instead of a container
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(2..), help_heading = WITHOUT_DOCKER)]
    pub pid: Option<u32>,
    /// Cgroup of the engine (service, scope or slice), instead of a container
    #[arg(long, value_name = "PATH", value_parser = super::some_text, help_heading = WITHOUT_DOCKER)]
    pub cgroup: Option<String>,
    /// Kubernetes pod on this node: [NAMESPACE/]POD[/CONTAINER]
    #[arg(long, value_name = "POD", value_parser = super::some_text, help_heading = WITHOUT_DOCKER)]
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
