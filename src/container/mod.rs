//! Containers: connect, inspect, exec, logs, launch, copy, events. The only user of bollard.
//!
//! Errors are [`Failure`]s; those of the environment have [`ExitCode::Environment`].
//!
//! [`ExitCode::Environment`]: crate::error::ExitCode::Environment

mod again;
mod bound;
pub mod compile_cache;
pub mod connect;
pub mod copy;
mod ending;
pub mod events;
pub mod exec;
mod exec_state;
pub mod find;
mod frames;
pub mod freezer;
pub mod http;
mod inside;
pub mod inspect;
pub mod launch;
pub mod leftovers;
pub mod lines;
pub mod logs;
pub mod namespace;
mod observed;
pub mod process;
pub mod process_log;
pub mod process_target;
pub mod processes;
mod running;
pub mod sockets;
pub mod stray;
pub mod teardown;
pub mod written;

use crate::bounded::near_file;
use crate::capture::ContainerFacts;
use crate::error::Failure;
use bollard::Docker;
use bollard::errors::Error;
use bollard::exec::CreateExecOptions;
use process_target::ProcessTarget;
use processes::HostView;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Environment variable of every exec: the run's id.
pub const RUN_VARIABLE: &str = "PLIMSOLL_RUN";

/// Environment variable of one exec: its own mark.
pub const EXEC_VARIABLE: &str = "PLIMSOLL_EXEC";

/// Environment variable of every exec: its owner, in the form of [`OWNER_LABEL`].
pub const OWNER_VARIABLE: &str = "PLIMSOLL_OWNER";

/// Label of containers that plimsoll created: the run's id.
pub const RUN_LABEL: &str = "plimsoll.run";

/// Label of containers that plimsoll created: `<boot id>:<pid>:<start time>` of their owner.
pub const OWNER_LABEL: &str = "plimsoll.owner";

/// Label of containers that plimsoll created: latest time until which they are needed, seconds
/// since the Unix epoch.
pub const DEADLINE_LABEL: &str = "plimsoll.deadline";

/// Label of containers that plimsoll created and the user kept: from then on they belong to the
/// user.
pub const KEEP_LABEL: &str = "plimsoll.keep";

/// Label of containers that plimsoll created: creation time, RFC 3339.
pub const CREATED_LABEL: &str = "plimsoll.created";

/// Label that protects a container from the cleaner, with any value but `false`.
pub const PROTECT_LABEL: &str = "plimsoll.protect";

/// Whether a container with these labels is protected from the cleaner.
pub fn is_protected(labels: &BTreeMap<String, String>) -> bool {
    labels
        .get(PROTECT_LABEL)
        .is_some_and(|value| value != "false")
}

/// Version and platform reported by the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonVersion {
    /// Version of the server.
    pub server: String,
    /// API version in use, `1.41` or newer.
    pub api: String,
    /// Whether it is podman behind Docker's API.
    pub podman: bool,
}

/// A connected container runtime. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    source: Source,
    shared: Arc<RuntimeState>,
}

/// What a runtime asks.
#[derive(Clone)]
enum Source {
    /// Docker, or what speaks its API.
    Daemon(Docker),
    /// This host's `/proc`, about one engine.
    Process(Arc<ProcessTarget>),
}

/// HTTP status of what is forbidden, as a read-only proxy of the daemon's socket answers too.
const REFUSED: u16 = 403;

/// HTTP status of a method that is not allowed.
const NOT_ALLOWED: u16 = 405;

/// What a socket that refuses commands takes away.
pub const LOST_WITHOUT_COMMANDS: &str = "no bench runs in the container, no port is asked that only it reaches, and no file is read that is a link or on a tmpfs";

/// Why a process gets no command, no file and no signal.
const READ_ONLY: &str =
    "an engine that is named by its process or cgroup is only read: nothing runs, starts or stops";

#[derive(Default)]
struct RuntimeState {
    version: DaemonVersion,
    /// Name of the daemon's machine, if it is another one.
    remote_host: Option<String>,
    /// Socket of the daemon, if it is on this host.
    socket: Option<PathBuf>,
    /// Whether OpenSSH forwards that socket to another machine.
    forwarded: bool,
    /// The last working route to an engine's port, by container and port.
    routes: Mutex<HashMap<(String, u16), http::Route>>,
    /// The variant of `timeout`, by container.
    timeouts: Mutex<HashMap<String, bound::TimeoutProgram>>,
    away: again::Away,
    /// Whether a command was refused in a container.
    read_only: AtomicBool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Runtime")
            .field(&self.shared.version)
            .finish()
    }
}

impl Runtime {
    /// Connects to the daemon given by `DOCKER_HOST`, the Docker context or the usual sockets.
    pub async fn connect() -> Result<Runtime, Failure> {
        connect::connect_runtime().await
    }

    /// Connects to the daemon at `host` (`unix:///path`, `tcp://host:port`).
    pub async fn connect_to(host: &str) -> Result<Runtime, Failure> {
        connect::to_host(host, "the command line").await
    }

    /// Reads one engine by its processes, without a daemon. Nothing can be changed through it.
    pub fn of_process(target: ProcessTarget) -> Runtime {
        Runtime {
            source: Source::Process(Arc::new(target)),
            shared: Arc::default(),
        }
    }

    /// The daemon; without one the error is a refusal.
    fn daemon(&self) -> Result<&Docker, Error> {
        match &self.source {
            Source::Daemon(docker) => Ok(docker),
            Source::Process(_) => Err(Error::DockerResponseServerError {
                status_code: REFUSED,
                message: READ_ONLY.to_owned(),
            }),
        }
    }

    fn process(&self) -> Option<&ProcessTarget> {
        match &self.source {
            Source::Daemon(_) => None,
            Source::Process(target) => Some(target),
        }
    }

    /// Whether a command was refused in a container, as a read-only proxy of the daemon's socket does.
    pub fn is_read_only(&self) -> bool {
        self.shared.read_only.load(Ordering::Relaxed)
    }

    /// Asks whether commands may run in containers, by one for a container that there is not.
    pub async fn may_run_commands(&self) -> bool {
        let asked = self.create_exec("plimsoll-asks-only", CreateExecOptions::default());
        match tokio::time::timeout(again::ANSWER, asked).await {
            Ok(Err(e)) => !self.notes_refusal(&e),
            _ => true,
        }
    }

    /// Whether the error is that of a socket which only answers questions; that is kept.
    fn notes_refusal(&self, error: &Error) -> bool {
        let refused = matches!(daemon_answer(error), Some((REFUSED | NOT_ALLOWED, _)));
        self.shared.read_only.fetch_or(refused, Ordering::Relaxed);
        refused
    }

    /// Whether there is a daemon, which can run commands in the container.
    pub fn has_daemon(&self) -> bool {
        self.process().is_none()
    }

    /// Processes of an engine that is read without a daemon; none of a daemon's.
    pub fn named_pids(&self) -> Vec<u32> {
        self.process().map(ProcessTarget::pids).unwrap_or_default()
    }

    /// Host pid of a container's process 1; `None` if it does not run or the daemon is remote.
    fn local_pid(&self, facts: &ContainerFacts) -> Option<u32> {
        (facts.state.pid).filter(|_| self.shared.remote_host.is_none())
    }

    /// The container's processes as this host shows them.
    fn host_view(&self, facts: &ContainerFacts) -> Option<HostView> {
        HostView::open(self.local_pid(facts)?, &facts.id)
    }

    /// Whether the daemon runs on another machine: then the processes here are not its containers'.
    pub fn is_remote(&self) -> bool {
        self.shared.remote_host.is_some() || self.shared.forwarded
    }

    /// The daemon's version, as reported when connecting.
    pub fn version(&self) -> &DaemonVersion {
        &self.shared.version
    }
}

/// Status code and message of an error answer; `None` for other errors.
fn daemon_answer(error: &Error) -> Option<(u16, &str)> {
    match error {
        Error::DockerResponseServerError {
            status_code,
            message,
        } => Some((*status_code, message)),
        _ => None,
    }
}

fn is_not_found(error: &Error) -> bool {
    daemon_answer(error).is_some_and(|(code, _)| code == 404)
}

/// The failure for an error during `what` (`cannot inspect container `x``).
fn daemon_failure(what: impl Into<String>, error: Error) -> Failure {
    let what = what.into();
    match &error {
        // A proxy in front of the socket answers with a page of HTML; Docker itself gives its reason.
        Error::DockerResponseServerError {
            status_code: REFUSED | NOT_ALLOWED,
            message,
        } if message.trim().is_empty() || message.trim().starts_with('<') => {
            Failure::environment(format!("{what}: this Docker socket only answers questions"))
                .hint("use the daemon's own socket: DOCKER_HOST=unix:///var/run/docker.sock")
        }
        Error::DockerResponseServerError { message, .. } => {
            Failure::environment(format!("{what}: {}", message.trim()))
        }
        Error::JsonDataError { message, .. } => Failure::environment(format!(
            "{what}: the answer is not from a Docker daemon: {message}"
        ))
        .hint("if this is Podman, update it: newer versions answer as Docker does"),
        Error::RequestTimeoutError => {
            Failure::environment(format!("{what}: the daemon did not answer in time"))
                .hint("`docker ps` hangs too? Its log: `journalctl -u docker`")
        }
        _ => Failure::environment(what).caused_by(error),
    }
}

/// Whether `text` is a valid container name or id; only these are put into a URL.
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
        let failure = Failure::usage(format!("`{text}` is not a valid container name or id"));
        // A path was meant.
        Err(match near_file(Path::new(text)) {
            Some(near) => failure.hint(near),
            None => {
                failure.hint("names hold letters, digits, `_`, `.` and `-`; `docker ps` shows them")
            }
        })
    }
}
