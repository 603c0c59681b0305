//! What the user names as the engine: a container of a daemon, or processes of this host.

use super::stop::{StopSignal, unless_stopped};
use crate::container::Runtime;
use crate::container::process_log::LogSource;
use crate::container::process_target::{ProcessPlace, ProcessTarget};
use crate::error::Failure;
use crate::telemetry::attribution::innermost_container;

/// The engine that the user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineTarget {
    /// A container of the daemon, by name, id or label.
    Container(String),
    /// Processes of this host, and where their log is. No daemon is asked.
    Process(ProcessPlace, LogSource),
}

impl EngineTarget {
    /// A container by name, id or label.
    pub fn of_container(wanted: &str) -> EngineTarget {
        EngineTarget::Container(wanted.to_owned())
    }

    /// What the user named, as a container is looked for.
    pub fn wanted(&self) -> String {
        match self {
            EngineTarget::Process(ProcessPlace::Pid(pid), _) => format!("pid {pid}"),
            EngineTarget::Container(name)
            | EngineTarget::Process(ProcessPlace::Cgroup(name) | ProcessPlace::Pod(name), _) => {
                name.clone()
            }
        }
    }

    /// Connects to what knows the engine.
    ///
    /// # Errors
    /// No daemon answers, or no such process runs.
    pub async fn open_runtime(&self, stop: &StopSignal) -> Result<Runtime, Failure> {
        match self {
            EngineTarget::Container(_) => unless_stopped(stop, Runtime::connect()).await,
            EngineTarget::Process(place, log) => {
                let target = ProcessTarget::find(place, log.clone(), innermost_container)?;
                Ok(Runtime::of_process(target))
            }
        }
    }
}
