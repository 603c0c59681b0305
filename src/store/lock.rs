//! One at a time: the lock on a file, and the one on a container, whoever starts the run.

use super::private;
use crate::error::Failure;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is locked while this lives; the kernel lets go of it when the process ends, however
/// it ends.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

/// Why a file could not be locked.
#[derive(Debug)]
pub enum LockRefusal {
    /// Another process holds it; its pid if the kernel reports it.
    Held(Option<u32>),
    /// It cannot be locked at all.
    Cannot(io::Error),
}

impl FileLock {
    /// Locks a file, or reports at once who holds it.
    pub fn take_lock(file: File) -> Result<FileLock, LockRefusal> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(FileLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(LockRefusal::Held(holder(&file))),
            Err(e) => Err(LockRefusal::Cannot(e.into())),
        }
    }
}

/// Whether another process holds the lock on a container. Nothing is kept, and what this process
/// holds itself does not count.
pub fn is_locked(container_id: &str, cgroup: Option<&Path>) -> bool {
    let file = match cgroup {
        Some(directory) => File::open(directory),
        None => file_there(&lock_folder(), container_id),
    };
    let Ok(file) = file else {
        return false;
    };
    let holder = file.metadata().ok().and_then(|place| {
        let (major, minor) = (
            rustix::fs::major(place.dev()),
            rustix::fs::minor(place.dev()),
        );
        let wanted = format!("{major:02x}:{minor:02x}:{}", place.ino());
        listed_holder(|place| place == wanted)
    });
    match holder {
        Some(pid) => pid != std::process::id(),
        // The kernel does not list who is in another pid namespace. Shared, so that two who look
        // do not take each other for one who works.
        None => flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK),
    }
}

/// Held while a run works on a container.
#[derive(Debug)]
pub struct ContainerLock {
    _lock: FileLock,
}

impl ContainerLock {
    /// Locks a container, or reports who holds the lock.
    ///
    /// `cgroup` is the container's own directory in the cgroup file system: it is the same for all
    /// users of the host, no other user can create it, and nothing is left behind. If it is not
    /// visible (a remote daemon), the lock works only between the runs of one user.
    pub fn take_lock(
        container_id: &str,
        name: &str,
        cgroup: Option<&Path>,
    ) -> Result<Self, Failure> {
        match Self::try_lock(container_id, cgroup) {
            Ok(lock) => Ok(lock),
            Err(LockRefusal::Held(pid)) => {
                let who = pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
                let message = format!("container `{name}` is being profiled by another plimsoll");
                Err(Failure::environment(message + &who)
                    .hint("wait for it to end: two loads at once would spoil both figures"))
            }
            Err(LockRefusal::Cannot(e)) => {
                let message = format!("cannot lock container `{name}`");
                Err(Failure::environment(message).caused_by(e))
            }
        }
    }

    /// The same, for who can do something about a refusal.
    pub fn try_lock(container_id: &str, cgroup: Option<&Path>) -> Result<Self, LockRefusal> {
        let file = match cgroup {
            Some(directory) => File::open(directory),
            None => own_file(&lock_folder(), container_id),
        };
        let lock = FileLock::take_lock(file.map_err(LockRefusal::Cannot)?)?;
        Ok(ContainerLock { _lock: lock })
    }
}

/// Holder of the lock on a file, as reported by the kernel.
fn holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    listed_holder(|place| place.ends_with(&inode))
}

/// Holder of the first lock with a matching inode (`major:minor:inode`).
fn listed_holder(wanted: impl Fn(&str) -> bool) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.get(1) == Some(&"FLOCK") && fields.get(5).is_some_and(|f| wanted(f)))?
        .get(4)?
        .parse()
        .ok()
}

/// The user's own folder for locks.
fn lock_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("plimsoll"),
        None => {
            let uid = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("plimsoll-{uid}"))
        }
    }
}

/// A file to lock in a folder that is this user's alone. It is never written to.
fn own_file(folder: &Path, container_id: &str) -> io::Result<File> {
    own_folder(folder)?;
    private::open_to_lock(&folder.join(format!("{container_id}.lock")), false)
}

/// The same file where a run has left one; nothing is made, and nothing of another user's is opened.
fn file_there(folder: &Path, container_id: &str) -> io::Result<File> {
    is_own(folder)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = folder.join(format!("{container_id}.lock"));
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Makes a folder that is this user's alone, or makes sure that it is.
pub(super) fn own_folder(folder: &Path) -> io::Result<()> {
    private::create_folders(folder)?;
    is_own(folder)
}

/// Makes sure that a folder is this user's alone.
fn is_own(folder: &Path) -> io::Result<()> {
    // Another user may have made it first, with links in it to files that only we may open.
    let made = std::fs::symlink_metadata(folder)?;
    if !made.is_dir()
        || made.uid() != rustix::process::getuid().as_raw()
        || made.mode() & 0o022 != 0
    {
        let message = format!("`{}` is not a folder of this user alone", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt;

    #[test]
    fn a_second_run_is_refused_with_the_holder_of_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let first = ContainerLock::take_lock("c", "llm", Some(dir.path())).unwrap();
        let refused = ContainerLock::take_lock("c", "llm", Some(dir.path())).unwrap_err();
        let pid = format!("pid {}", std::process::id());
        assert!(refused.message.contains(&pid), "{refused}");
        drop(first);
        ContainerLock::take_lock("c", "llm", Some(dir.path())).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_is_looked_at_without_being_taken() {
        let dir = tempfile::tempdir().unwrap();
        let look = || is_locked("c", Some(dir.path()));
        assert!(!look(), "nobody holds it");
        let held = ContainerLock::take_lock("c", "llm", Some(dir.path())).unwrap();
        assert!(!look(), "this process is no other");
        drop(held);
        let mut other = std::process::Command::new("flock")
            .arg(dir.path())
            .args(["-c", "echo held; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut greeting = [0; 5];
        io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut greeting).unwrap();
        assert!(look(), "another process holds it");
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(!look());
        ContainerLock::take_lock("c", "llm", Some(dir.path())).unwrap();
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plimsoll-0");
        own_file(&folder, "first").unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "keep").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("c.lock")).unwrap();
        assert!(own_file(&folder, "c").is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"keep");
        let open_to_all = dir.path().join("shared");
        std::fs::DirBuilder::new()
            .mode(0o777)
            .create(&open_to_all)
            .unwrap();
        std::fs::set_permissions(
            &open_to_all,
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
        assert!(own_file(&open_to_all, "c").is_err());
    }

    #[test]
    fn a_planted_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plimsoll-0");
        own_file(&folder, "c").unwrap();
        assert!(file_there(&folder, "c").is_ok());
        assert!(file_there(&folder, "another").is_err());
        assert!(!folder.join("another.lock").exists(), "only looked at");
        let kind = rustix::fs::FileType::Fifo;
        let pipe = folder.join("pipe.lock");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, Mode::RUSR, 0).unwrap();
        // It need not be a refusal, but it must come at once.
        drop(file_there(&folder, "pipe"));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&folder, open).unwrap();
        assert!(file_there(&folder, "c").is_err());
        assert!(file_there(&folder, "pipe").is_err());
    }
}
