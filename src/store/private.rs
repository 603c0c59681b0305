//! The only place that creates files and folders: only their owner can read them, whatever the
//! umask.
//!
//! Results hold an engine's whole log, its settings and the responses of its endpoints. Everything
//! that looks like a secret is removed, but no list of patterns is complete, so other users cannot
//! read them until the owner shares them. Existing files keep their mode.

use rustix::fs::{Mode, OFlags};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tempfile::{NamedTempFile, TempDir};

/// Mode of a new file.
const FILE: u32 = 0o600;
/// Mode of a new folder.
const FOLDER: u32 = 0o700;
/// Begins the name of a file that is being written.
const TEMPORARY: &str = ".plimsoll-";

/// A folder, and those above it that are missing.
pub fn create_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// A folder that is not there yet.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(path)
}

/// A file that is not there yet. A link in its place is an error, wherever it leads.
pub fn create_file(path: &Path) -> io::Result<File> {
    private_options().write(true).create_new(true).open(path)
}

/// A file to be added to, made where it is not there. A link in its place is not followed, and a
/// pipe's other end is not waited for.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    private_options()
        .append(true)
        .create(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(path)
}

/// A file that another program made for us and named, to be added to: links are followed, as the
/// name is its own.
pub fn open_named_to_append(path: &Path) -> io::Result<File> {
    private_options().append(true).create(true).open(path)
}

/// A file to be locked, made where it is not there; `writable` for network file systems, which lock
/// nothing else, and for who writes in it. A link in its place is not followed.
pub fn open_to_lock(path: &Path, writable: bool) -> io::Result<File> {
    let access = if writable {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let flags = access | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(FILE))?;
    Ok(File::from(file))
}

/// Opens an existing file for reading and writing; does not block on a pipe in its place.
pub fn open_there(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)
}

/// A file that never gets a name, and takes room until it is closed.
pub fn unnamed_file(folder: &Path) -> io::Result<File> {
    tempfile::tempfile_in(folder)
}

/// A file beside others, which goes when it is dropped.
pub fn temporary_file(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(TEMPORARY)
        .permissions(Permissions::from_mode(FILE))
        .tempfile_in(folder)
}

/// A file of these bytes: it is written and synced before it has its name, so that a process that is
/// killed leaves no half file and no temporary one. A link in its place is replaced and not followed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = super::folder_of(path);
    match nameless(folder) {
        Some(file) => write_nameless(file, folder, path, bytes)?,
        None => {
            let mut file = temporary_file(folder)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
        }
    }
    File::open(folder)?.sync_all()
}

/// A new file that has no name yet. `None`: this file system has none such, or it cannot be given a
/// name later.
fn nameless(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(FILE)).ok()?;
    let file = File::from(file);
    let shown = fs::exists(own_path(&file)).is_ok_and(|is| is);
    shown.then_some(file)
}

/// Where the kernel shows an open file.
fn own_path(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The file gets its name when it is whole. Only what takes the place of another one has a second
/// name for a moment, because the kernel replaces by renaming alone.
fn write_nameless(mut file: File, folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD};
    file.write_all(bytes)?;
    file.sync_all()?;
    let name = |path: &Path| -> io::Result<()> {
        let named = rustix::fs::linkat(CWD, own_path(&file), CWD, path, AtFlags::SYMLINK_FOLLOW);
        Ok(named?)
    };
    match name(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let mut second = tempfile::Builder::new();
            second
                .prefix(TEMPORARY)
                .make_in(folder, name)?
                .persist(path)?;
            Ok(())
        }
        named => named,
    }
}

/// A folder beside others, which goes when it is dropped.
pub fn temporary_folder(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(FOLDER))
        .tempdir_in(parent)
}

/// Copies a file's bytes, and nothing else of it, to one that is not there yet.
pub fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    io::copy(
        &mut super::bounded::open_regular(from)?,
        &mut create_file(to)?,
    )
    .map(drop)
}

/// Writes to an existing device or pipe: `/dev/stdout`, `/dev/null`. `None` if there is none, so
/// that a file must be made, and also if another user's link leads to one, which is then replaced
/// like any other file. Only our own and root's are written to.
pub fn write_to_device(path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
    let trusted = |owner: u32| owner == 0 || owner == rustix::process::getuid().as_raw();
    // The links of /dev and /proc/self/fd are root's or ours.
    let named = fs::symlink_metadata(path).ok()?;
    if named.is_symlink() && !trusted(named.uid()) {
        return None;
    }
    // Held before it is opened, since that waits for a pipe's other end, and so that what is looked
    // at is what is written to.
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let held = File::from(held);
    let found = held.metadata().ok()?;
    let kind = found.file_type();
    if !kind.is_char_device() && !kind.is_fifo() {
        return None;
    }
    let write = || -> io::Result<()> {
        if !trusted(found.uid()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is another user's pipe",
            ));
        }
        let mut device = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits() as i32)
            .open(own_path(&held))?;
        device.write_all(bytes)
    };
    Some(write())
}

/// Lets the processes that this one starts, and libraries, make nothing that others can read.
pub fn restrict_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_created_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        create_folders(&at("a/b/c")).unwrap();
        create_folder(&at("d")).unwrap();
        for folder in ["a", "a/b", "a/b/c", "d"] {
            assert_eq!(mode(&at(folder)), 0o700, "{folder}");
        }
        create_file(&at("new")).unwrap();
        open_to_append(&at("lines")).unwrap();
        open_named_to_append(&at("named")).unwrap();
        open_to_lock(&at("lock"), true).unwrap();
        fs::set_permissions(at("new"), Permissions::from_mode(0o644)).unwrap();
        copy_file(&at("new"), &at("copy")).unwrap();
        for file in ["lines", "named", "lock", "copy"] {
            assert_eq!(mode(&at(file)), 0o600, "{file}");
        }
        let file = temporary_file(dir.path()).unwrap();
        let folder = temporary_folder(dir.path(), "x").unwrap();
        assert_eq!((mode(file.path()), mode(folder.path())), (0o600, 0o700));
    }

    #[test]
    fn what_is_there_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(dir.path(), open).unwrap();
        create_folders(dir.path()).unwrap();
        create_folders(&dir.path().join("in")).unwrap();
        assert_eq!(mode(dir.path()), 0o755);
        let file = dir.path().join("lines");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        open_to_append(&file).unwrap();
        assert_eq!(mode(&file), 0o640);
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "keep").unwrap();
        let there = dir.path().join("there");
        symlink(&victim, &there).unwrap();
        let nowhere = dir.path().join("nowhere");
        symlink(dir.path().join("made"), &nowhere).unwrap();
        for link in [&there, &nowhere] {
            assert!(create_file(link).is_err());
            assert!(open_to_append(link).is_err());
            assert!(open_to_lock(link, true).is_err());
            assert!(create_folder(link).is_err());
            assert!(copy_file(&victim, link).is_err());
        }
        assert_eq!(fs::read(&victim).unwrap(), b"keep");
        assert!(!dir.path().join("made").exists());
    }

    /// Only root can give things to others; for everybody else there is nothing to see.
    #[test]
    fn another_users_pipe_is_not_waited_for_and_their_link_not_followed() {
        use rustix::fs::{AtFlags, CWD, FileType, Uid, chownat, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let link = dir.path().join("o.json");
        symlink("pipe", &link).unwrap();
        let other = Some(Uid::from_raw(1));
        let give = |path: &Path| chownat(CWD, path, other, None, AtFlags::SYMLINK_NOFOLLOW);
        if give(&link).is_err() {
            return;
        }
        // To a pipe without a reader: it would wait for ever.
        assert!(write_to_device(&link, b"x").is_none());
        write_whole(&link, b"x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        give(&pipe).unwrap();
        let ours = dir.path().join("ours.json");
        symlink("pipe", &ours).unwrap();
        for path in [&pipe, &ours] {
            let refused = write_to_device(path, b"x").unwrap().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn devices_take_bytes_and_files_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(write_to_device(&file, b"x").is_none());
        fs::write(&file, "keep").unwrap();
        assert!(write_to_device(&file, b"x").is_none());
        assert!(write_to_device(dir.path(), b"x").is_none());
        write_to_device(Path::new("/dev/null"), b"x")
            .unwrap()
            .unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"keep");
    }
}
