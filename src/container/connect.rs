//! Finds a daemon: `DOCKER_HOST`, the Docker context, then the usual sockets.
//!
//! Identifies the daemon. Its ID alone is not enough: two daemons of a host share it if both use
//! one key file, and cloned machines and images share it too.

use super::again::is_transient;
use super::{DaemonVersion, Runtime, RuntimeState, Source};
use crate::error::Failure;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Oldest supported API version.
const OLDEST_API: (u32, u32) = (1, 41);

/// Newest API version supported by bollard 0.21.1.
const NEWEST_API: (u32, u32) = (1, 53);

/// Timeout of `ping` and `version`. Podman starts several programs to find its version, which takes
/// seconds on a busy host.
const HELLO: Duration = Duration::from_secs(15);

/// Pauses before further attempts, if the socket accepts connections: the daemon may still be
/// starting.
const AGAIN: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1200),
];

/// bollard's timeout for response headers, seconds. Pulling and stopping are slow.
const HEADERS: u64 = 120;

pub(super) async fn connect_runtime() -> Result<Runtime, Failure> {
    if let Some(host) = environment_variable("DOCKER_HOST") {
        return to_host(&host, "DOCKER_HOST").await;
    }
    if let Some((name, host)) = context_host() {
        return to_host(&host, &format!("the docker context `{name}`")).await;
    }
    let mut refused = None;
    let mut denial_reported = false;
    for path in usual_sockets() {
        match reach(&path) {
            Reached::Yes => match greet(unix(&path)?, None, Some(&path)).await {
                Ok(runtime) => return Ok(runtime),
                Err(failure) => refused = refused.or(Some(failure)),
            },
            // Report the first one: the others are in other users' homes.
            Reached::Denied if !denial_reported => {
                denial_reported = true;
                refused = Some(denied(&path));
            }
            Reached::Denied => {}
            Reached::Silent => {
                refused = refused.or(Some(no_daemon(&format!(
                    "nothing listens on `{}`",
                    path.display()
                ))))
            }
            Reached::Absent => {}
        }
    }
    Err(refused.unwrap_or_else(|| nothing_found(is_installed())))
}

fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.trim().is_empty())
}

pub(super) async fn to_host(host: &str, from: &str) -> Result<Runtime, Failure> {
    if let Some(path) = host.strip_prefix("unix://") {
        let path = Path::new(path);
        return match reach(path) {
            Reached::Yes => greet(unix(path)?, None, Some(path)).await,
            Reached::Denied => Err(denied(path)),
            Reached::Silent => {
                let what = format!("nothing listens on `{}`", path.display());
                Err(wrongly_named(&what, from))
            }
            Reached::Absent => {
                let what = format!("there is no socket `{}`", path.display());
                Err(wrongly_named(&what, from))
            }
        };
    }
    let plain = host
        .strip_prefix("tcp://")
        .or_else(|| host.strip_prefix("http://"));
    let Some(address) = plain.filter(|_| environment_variable("DOCKER_TLS_VERIFY").is_none())
    else {
        return Err(Failure::environment(format!("cannot use `{host}`, which {from} names: plimsoll speaks unix:// and plain tcp://"))
            .hint("forward the daemon's socket, for example with `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST`, and set DOCKER_HOST=unix:///tmp/docker.sock")
            .hint(BESIDE));
    };
    let name = address.split('/').next().unwrap_or_default();
    let name = name
        .rsplit_once(':')
        .map_or(name, |(n, _)| n)
        .trim_matches(['[', ']']);
    let remote = (!matches!(name, "localhost" | "127.0.0.1" | "::1" | "")).then(|| name.to_owned());
    let docker = Docker::connect_with_http(host, HEADERS, API_DEFAULT_VERSION).map_err(|e| {
        Failure::environment(format!("cannot use `{host}`, which {from} names")).caused_by(e)
    })?;
    let is_remote = remote.is_some();
    let answer = greet(docker, remote, None).await;
    answer.map_err(|failure| {
        if failure.source.is_none() {
            return failure;
        }
        let failure = wrongly_named(&format!("no Docker daemon answers at `{host}`"), from);
        if is_remote {
            failure.hint(BESIDE)
        } else {
            failure
        }
    })
}

/// Why a daemon on another machine is not enough.
const BESIDE: &str =
    "memory is read on the machine that plimsoll runs on: run it beside the containers";

enum Reached {
    Yes,
    Denied,
    Silent,
    Absent,
}

/// Whether the socket accepts connections. The client's own errors do not distinguish the causes.
fn reach(path: &Path) -> Reached {
    match UnixStream::connect(path) {
        Ok(_) => Reached::Yes,
        Err(e) => match e.kind() {
            ErrorKind::PermissionDenied => Reached::Denied,
            ErrorKind::NotFound | ErrorKind::NotADirectory => Reached::Absent,
            _ => Reached::Silent,
        },
    }
}

fn unix(path: &Path) -> Result<Docker, Failure> {
    Docker::connect_with_unix(&path.to_string_lossy(), HEADERS, API_DEFAULT_VERSION)
        .map_err(|e| no_daemon(&format!("cannot use the socket `{}`", path.display())).caused_by(e))
}

/// Whether a program of Docker's or Podman's is on this host.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = ["dockerd", "podman", "docker"];
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    let mut files = folders.flat_map(|folder| programs.map(|program| folder.join(program)));
    files.any(|file| file.is_file())
}

fn nothing_found(installed: bool) -> Failure {
    if installed {
        return no_daemon("no Docker socket was found");
    }
    Failure::environment(
        "no container runtime: neither Docker nor Podman is installed; `plimsoll profile --pid PID` works without them",
    )
    .hint("install Docker or Podman")
    .hint(ELSEWHERE)
}

const ELSEWHERE: &str = "if it listens elsewhere, set DOCKER_HOST=unix:///path/to/docker.sock";

/// Nobody answers where `from` points to.
fn wrongly_named(what: &str, from: &str) -> Failure {
    let mend = match from {
        "DOCKER_HOST" => "correct or unset DOCKER_HOST",
        _ if from.contains("context") => {
            "correct that context, or choose another with `docker context use`"
        }
        _ => "correct that address",
    };
    Failure::environment(format!("no container runtime: {what}, which {from} names"))
        .hint(format!("{mend}; if it is right, start its daemon"))
}

fn no_daemon(what: &str) -> Failure {
    Failure::environment(format!("no container runtime: {what}"))
        .hint("start it: `sudo systemctl start docker` (or `systemctl --user start podman.socket`)")
        .hint(ELSEWHERE)
}

fn denied(path: &Path) -> Failure {
    Failure::environment(format!("no permission to use the Docker socket `{}`", path.display()))
        .hint("run plimsoll with sudo, or join the group: `sudo usermod -aG docker $USER`, then log in again")
}

/// Usual sockets: Docker, rootless Docker, Docker Desktop, then podman.
fn usual_sockets() -> Vec<PathBuf> {
    let run = environment_variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let uid_run = PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw()));
    let home = environment_variable("HOME").map(PathBuf::from);
    let mut paths = vec![PathBuf::from("/var/run/docker.sock")];
    paths.extend(run.as_ref().map(|r| r.join("docker.sock")));
    paths.push(uid_run.join("docker.sock"));
    paths.extend(home.as_ref().map(|h| h.join(".docker/run/docker.sock")));
    paths.extend(home.as_ref().map(|h| h.join(".docker/desktop/docker.sock")));
    paths.extend(run.as_ref().map(|r| r.join("podman/podman.sock")));
    paths.push(uid_run.join("podman/podman.sock"));
    paths.push(PathBuf::from("/run/podman/podman.sock"));
    paths.dedup();
    paths
}

/// Name and host of the Docker context in use, unless it is the default one.
fn context_host() -> Option<(String, String)> {
    let dir = environment_variable("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(environment_variable("HOME")?).join(".docker")))?;
    let read = |path: PathBuf| {
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).ok()?).ok()
    };
    let name = environment_variable("DOCKER_CONTEXT")
        .or_else(|| {
            read(dir.join("config.json"))?
                .get("currentContext")?
                .as_str()
                .map(str::to_owned)
        })
        .filter(|n| n != "default" && !n.is_empty())?;
    let host = std::fs::read_dir(dir.join("contexts/meta"))
        .ok()?
        .flatten()
        .find_map(|entry| {
            let meta = read(entry.path().join("meta.json"))?;
            (meta.get("Name")?.as_str()? == name).then(|| {
                meta.pointer("/Endpoints/docker/Host")?
                    .as_str()
                    .map(str::to_owned)
            })?
        })?;
    Some((name, host))
}

/// Pings the daemon, reads its version, and pins it.
async fn greet(
    docker: Docker,
    remote_host: Option<String>,
    socket: Option<&Path>,
) -> Result<Runtime, Failure> {
    let hello = async {
        let mut pauses = AGAIN.iter();
        loop {
            let version = match docker.ping().await {
                Ok(_) => docker.version().await,
                Err(e) => Err(e),
            };
            match (version, pauses.next()) {
                (Err(e), Some(pause)) if is_transient(&e) => sleep(*pause).await,
                (version, _) => return version,
            }
        }
    };
    let version = match tokio::time::timeout(HELLO, hello).await {
        Ok(Ok(version)) => version,
        Ok(Err(e)) => return Err(no_daemon("the daemon does not answer").caused_by(e)),
        Err(_) => {
            return Err(no_daemon(&format!(
                "the daemon took longer than {} s to answer",
                HELLO.as_secs()
            ))
            .caused_by("timeout"));
        }
    };
    let podman = version
        .components
        .iter()
        .flatten()
        .any(|c| c.name.to_ascii_lowercase().contains("podman"));
    let server = version.version.unwrap_or_default();
    let offered = version.api_version.unwrap_or_default();
    let Some(api) = parse_api(&offered) else {
        return Err(Failure::environment(format!(
            "the daemon gives `{offered}` as its API version, which is no version"
        ))
        .hint("is DOCKER_HOST a Docker or Podman socket? `curl --unix-socket PATH http://d/version` shows its answer"));
    };
    if api < OLDEST_API {
        return Err(Failure::environment(format!(
            "the Docker daemon ({server}) speaks API {offered}; plimsoll needs {}.{} or newer (Docker 20.10)",
            OLDEST_API.0, OLDEST_API.1
        ))
        .hint("update Docker, or Podman"));
    }
    let used = api.min(NEWEST_API);
    let oldest = version.min_api_version.as_deref().and_then(parse_api);
    if oldest.is_some_and(|o| o > used) {
        return Err(Failure::environment(format!(
            "the Docker daemon ({server}) refuses API versions below {}.{}; this plimsoll speaks up to {}.{}",
            oldest.unwrap_or_default().0,
            oldest.unwrap_or_default().1,
            used.0,
            used.1
        ))
        .hint("update plimsoll"));
    }
    let forwarded = match socket {
        Some(socket) => is_forwarded(socket).await,
        None => false,
    };
    let api = format!("{}.{}", used.0, used.1);
    let docker = docker.with_request_modifier(versioned(format!("/v{api}")));
    let shared = RuntimeState {
        version: DaemonVersion {
            server,
            api,
            podman,
        },
        remote_host,
        socket: socket.map(Path::to_owned),
        forwarded,
        ..RuntimeState::default()
    };
    Ok(Runtime {
        source: Source::Daemon(docker),
        shared: Arc::new(shared),
    })
}

fn parse_api(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// bollard 0.21 drops the version from the path; Docker deprecates such requests.
fn versioned(prefix: String) -> impl Fn(BollardRequest) -> BollardRequest + Send + Sync + 'static {
    move |mut request| {
        if let Some(uri) = with_prefix(request.uri(), &prefix) {
            *request.uri_mut() = uri;
        }
        request
    }
}

fn with_prefix(uri: &http::Uri, prefix: &str) -> Option<http::Uri> {
    let path = uri.path_and_query()?.as_str();
    if path.starts_with("/v1.") {
        return None;
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{prefix}{path}").parse().ok()?);
    http::Uri::from_parts(parts).ok()
}

/// Timeout of the daemon's answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Runtime {
    /// The daemon's ID, its root directory, and that directory's device and inode as seen by the
    /// process behind the socket. It survives restarts and is unique, because two daemons cannot
    /// use one root directory. `None` if a part is not visible from here.
    pub async fn daemon_identity(&self) -> Option<String> {
        let asked = timeout(PATIENCE, self.daemon().ok()?.info()).await;
        let info = asked.ok()?.ok()?;
        // Podman invents another ID for every answer.
        let id = info
            .id
            .filter(|id| !id.is_empty() && !self.version().podman)?;
        if self.is_remote() {
            return None;
        }
        let root = info.docker_root_dir.filter(|root| root.starts_with('/'))?;
        let server = listener(self.shared.socket.as_deref()?).await?;
        let metadata = std::fs::metadata(format!("/proc/{server}/root{root}")).ok()?;
        Some(format!("{id} {root} {}:{}", metadata.dev(), metadata.ino()))
    }
}

/// The daemon's information besides its version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonFeatures {
    /// Names of its runtimes, sorted.
    pub runtimes: Vec<String>,
    /// The one that is used where none is named.
    pub default_runtime: String,
    /// Version of the kernel's control groups that it uses: 1 or 2.
    pub cgroup_version: String,
    /// Whether it gives containers the devices of CDI's specifications.
    pub has_cdi: bool,
}

impl Runtime {
    /// The daemon's information; `None` if it gives none.
    pub async fn daemon_features(&self) -> Option<DaemonFeatures> {
        let asked = timeout(PATIENCE, self.daemon().ok()?.info()).await;
        let info = asked.ok()?.ok()?;
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let version = info.cgroup_version.map(|version| version.to_string());
        Some(DaemonFeatures {
            runtimes,
            default_runtime: info.default_runtime.unwrap_or_default(),
            cgroup_version: version.unwrap_or_default(),
            has_cdi: info
                .cdi_spec_dirs
                .is_some_and(|folders| !folders.is_empty()),
        })
    }
}

/// Whether OpenSSH listens on a socket: then the daemon runs on another machine, with other boots
/// and processes.
pub(super) async fn is_forwarded(socket: &Path) -> bool {
    let Some(pid) = listener(socket).await else {
        return false;
    };
    crate::host::processes::read_name(pid).starts_with("ssh")
}

/// Pid of the process that listens on a socket; `None` if this host does not show it.
async fn listener(socket: &Path) -> Option<u32> {
    let stream = timeout(PATIENCE, tokio::net::UnixStream::connect(socket))
        .await
        .ok()?
        .ok()?;
    let pid = u32::try_from(stream.peer_cred().ok()?.pid()?).ok()?;
    (pid > 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_put_back_once() {
        let uri: http::Uri = "unix://2f76/containers/json?all=true".parse().expect("uri");
        let once = with_prefix(&uri, "/v1.41").expect("changed");
        assert_eq!(
            once.to_string(),
            "unix://2f76/v1.41/containers/json?all=true"
        );
        assert_eq!(with_prefix(&once, "/v1.41"), None);
    }

    #[test]
    fn where_nothing_is_installed_nothing_can_be_started() {
        let first = |installed| nothing_found(installed).hints[0].clone();
        assert!(first(true).starts_with("start it: "));
        assert_eq!(first(false), "install Docker or Podman");
        let message = nothing_found(false).message;
        assert!(
            message.contains("`plimsoll profile --pid PID`"),
            "{message}"
        );
    }

    #[test]
    fn api_versions_compare_as_numbers() {
        assert!(parse_api("1.9") < parse_api("1.41"));
        assert_eq!(parse_api("1.44.0"), Some((1, 44)));
        assert_eq!(parse_api(""), None);
    }
}
