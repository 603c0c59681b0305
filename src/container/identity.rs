//! Identifies the daemon. Its ID alone is not enough: two daemons of a host share it if both use
//! one key file, and cloned machines and images share it too.

use super::Runtime;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

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
    let stream = timeout(PATIENCE, UnixStream::connect(socket))
        .await
        .ok()?
        .ok()?;
    let pid = u32::try_from(stream.peer_cred().ok()?.pid()?).ok()?;
    (pid > 0).then_some(pid)
}
