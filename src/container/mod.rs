//! Containers: connect, inspect, exec, logs, launch, copy, events. The only user of bollard.
//!
//! Errors are [`Failure`]s. What the outside world does wrong has [`ExitCode::Environment`].
//!
//! [`ExitCode::Environment`]: crate::error::ExitCode::Environment

mod again;
pub mod archive;
mod bound;
mod connect;
pub mod copy;
mod ending;
mod environment;
pub mod events;
pub mod exec;
pub mod find;
mod frames;
pub mod freezer;
pub mod http;
mod identity;
mod input;
pub mod inspect;
pub mod launch;
pub mod leftovers;
pub mod lines;
pub mod logs;
mod missing;
pub mod namespace;
pub mod ours;
pub mod process;
pub mod processes;
mod request;
mod running;
mod seen;
pub mod sockets;
mod starting;
pub mod stray;
pub mod teardown;
mod told;
mod top;

use crate::capture::ContainerFacts;
use crate::error::Failure;
use bollard::Docker;
use bollard::errors::Error;
use processes::HostView;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Environment variable that every exec carries: the run's id.
pub const RUN_VARIABLE: &str = "PLIMSOLL_RUN";

/// Environment variable that carries one exec's own mark.
pub const EXEC_VARIABLE: &str = "PLIMSOLL_EXEC";

/// Environment variable that every exec carries: who started it, as [`OWNER_LABEL`] has it.
pub const OWNER_VARIABLE: &str = "PLIMSOLL_OWNER";

/// Label of containers that plimsoll created: the run's id.
pub const RUN_LABEL: &str = "plimsoll.run";

/// Label of containers that plimsoll created: `<boot id>:<pid>:<start time>` of their owner.
pub const OWNER_LABEL: &str = "plimsoll.owner";

/// Label of containers that plimsoll created: when they are no longer wanted at the latest, seconds
/// since the Unix epoch.
pub const DEADLINE_LABEL: &str = "plimsoll.deadline";

/// Label of containers that plimsoll created and the user kept: from then on they belong to the
/// user.
pub const KEEP_LABEL: &str = "plimsoll.keep";

/// Label of containers that plimsoll created: when, RFC 3339.
pub const CREATED_LABEL: &str = "plimsoll.created";

/// Label by which a user keeps a container from the cleaner, with any value but `false`.
pub const PROTECT_LABEL: &str = "plimsoll.protect";

/// Whether a container with these labels is kept from the cleaner.
pub fn is_protected(labels: &BTreeMap<String, String>) -> bool {
    labels
        .get(PROTECT_LABEL)
        .is_some_and(|value| value != "false")
}

/// Version and platform reported by the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    /// Version of the server.
    pub server: String,
    /// API version in use, `1.41` or newer.
    pub api: String,
    /// Whether it is podman behind Docker's API.
    pub podman: bool,
}

/// A container runtime that answered. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    docker: Docker,
    shared: Arc<Shared>,
}

struct Shared {
    version: Version,
    /// Name of the daemon's machine, when it is another one.
    remote_host: Option<String>,
    /// Where the daemon listens, when that is a socket of this host.
    socket: Option<PathBuf>,
    /// Whether OpenSSH listens on that socket, for a daemon of another machine.
    forwarded: bool,
    /// How an engine's port was reached last time, by container and port.
    routes: Mutex<HashMap<(String, u16), http::Route>>,
    /// Which `timeout` a container's image has, by container.
    timeouts: Mutex<HashMap<String, bound::TimeoutProgram>>,
    away: again::Away,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Runtime")
            .field(&self.shared.version)
            .finish()
    }
}

impl Runtime {
    /// Connects to the daemon that `DOCKER_HOST`, the Docker context or the usual sockets lead to.
    pub async fn connect() -> Result<Runtime, Failure> {
        connect::connect().await
    }

    /// Connects to the daemon at `host` (`unix:///path`, `tcp://host:port`).
    pub async fn connect_to(host: &str) -> Result<Runtime, Failure> {
        connect::to_host(host, "the command line").await
    }

    fn new(
        docker: Docker,
        version: Version,
        remote_host: Option<String>,
        socket: Option<PathBuf>,
        forwarded: bool,
    ) -> Self {
        let shared = Shared {
            version,
            remote_host,
            socket,
            forwarded,
            routes: Mutex::default(),
            timeouts: Mutex::default(),
            away: again::Away::default(),
        };
        Runtime {
            docker,
            shared: Arc::new(shared),
        }
    }

    /// Host pid of a container's process 1; `None` if it does not run or the daemon is remote.
    fn local_pid(&self, facts: &ContainerFacts) -> Option<u32> {
        (facts.state.pid).filter(|_| self.shared.remote_host.is_none())
    }

    /// The container's processes as this host shows them.
    fn host_view(&self, facts: &ContainerFacts) -> Option<HostView> {
        HostView::open(self.local_pid(facts)?, &facts.id)
    }

    /// Whether the daemon's machine is another one: then the processes here are not its containers'.
    pub fn is_remote(&self) -> bool {
        self.shared.remote_host.is_some() || self.shared.forwarded
    }

    /// The daemon's version, as reported when connecting.
    pub fn version(&self) -> &Version {
        &self.shared.version
    }
}

/// The daemon's status code and message, when the daemon answered.
fn answer(error: &Error) -> Option<(u16, &str)> {
    match error {
        Error::DockerResponseServerError {
            status_code,
            message,
        } => Some((*status_code, message)),
        _ => None,
    }
}

fn is_not_found(error: &Error) -> bool {
    answer(error).is_some_and(|(code, _)| code == 404)
}

/// A failure for what the daemon answered to `what` (`cannot inspect container `x``).
fn failed(what: impl Into<String>, error: Error) -> Failure {
    let what = what.into();
    match &error {
        Error::DockerResponseServerError { message, .. } => {
            Failure::environment(format!("{what}: {}", message.trim()))
        }
        Error::JsonDataError { message, .. } => Failure::environment(format!(
            "{what}: the daemon's answer is not Docker's: {message}"
        ))
        .hint("is this podman? its newer versions answer as Docker does"),
        Error::RequestTimeoutError => {
            Failure::environment(format!("{what}: the daemon did not answer in time"))
        }
        _ => Failure::environment(what).caused_by(error),
    }
}

/// Whether `text` can be a container's name or id: only such reach a URL.
fn is_name(text: &str) -> bool {
    text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn checked_name(text: &str) -> Result<&str, Failure> {
    if is_name(text) {
        Ok(text)
    } else {
        Err(
            Failure::usage(format!("`{text}` is not a valid container name or id"))
                .hint("names hold letters, digits, `_`, `.` and `-`; `docker ps` shows them"),
        )
    }
}
