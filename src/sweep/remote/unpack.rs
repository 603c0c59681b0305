//! Unpacking an archive that another machine has made: files and folders, and nothing outside of
//! the folder that they are for.

use crate::error::Failure;
use crate::store::private;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Entry, EntryType};

/// More than the results of any sweep, bytes: an archive that claims more is none.
const MOST: u64 = 256 << 30;
/// More files and folders than a sweep of the most cells leaves.
const MOST_ENTRIES: u64 = 10_000_000;
/// A longer name, or words about an entry, is none, bytes.
const LONGEST_WORDS: u64 = 64 << 10;
/// Most of the left-out files that are named.
const NAMED: usize = 20;

/// What came out of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnpackedFiles {
    /// Files written.
    pub files: u64,
    /// Names of what is neither file nor folder (links, devices), or has a name that no file of ours
    /// has: left out. The first of them.
    pub left_out: Vec<String>,
    /// How many more were left out.
    pub more_left_out: u64,
}

impl UnpackedFiles {
    fn leave_out(&mut self, path: &Path) {
        if self.left_out.len() < NAMED {
            self.left_out.push(path.display().to_string())
        } else {
            self.more_left_out += 1
        }
    }
}

/// Unpacks into a folder, which is made where it is not there. A name that leads out of it is a
/// failure, and nothing after it is unpacked. Everything in it is its owner's alone.
pub fn unpack_archive(from: impl Read, into: &Path) -> Result<UnpackedFiles, Failure> {
    let unwritable = |e| {
        Failure::environment(format!(
            "cannot write the fetched results to `{}`",
            into.display()
        ))
        .caused_by(e)
    };
    let unreadable = |e: io::Error| {
        Failure::environment("the results arrived incomplete")
            .hint("they are kept on the other machine: try again with --resume")
            .caused_by(e)
    };
    private::create_folders(into).map_err(unwritable)?;
    let mut archive = tar::Archive::new(from);
    let mut done = UnpackedFiles::default();
    let (mut taken, mut entries) = (0u64, 0u64);
    let mut long_name: Option<PathBuf> = None;
    // Entries as they stand: the library would read a long name whole, however long it claims to be.
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        taken = taken.saturating_add(entry.size());
        entries += 1;
        if taken > MOST || entries > MOST_ENTRIES {
            return Err(Failure::run(format!(
                "the other machine sent more than {} GiB, or more than {MOST_ENTRIES} files: the transfer was stopped; look at its results folder there",
                MOST >> 30
            )));
        }
        let kind = entry.header().entry_type();
        if is_about_another(kind) {
            if entry.size() > LONGEST_WORDS {
                return Err(Failure::run(format!(
                    "the other machine sent a name of more than {} KiB: the transfer was stopped; look at its results folder there",
                    LONGEST_WORDS >> 10
                )));
            }
            if let Some(name) = name_of_the_next(&mut entry).map_err(unreadable)? {
                long_name = Some(name);
            }
            continue;
        }
        let path = match long_name.take() {
            Some(name) => name,
            None => entry.path().map_err(unreadable)?.into_owned(),
        };
        let inside =
            (path.components()).all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !inside {
            return Err(Failure::run(format!(
                "the other machine sent `{}`, which leads out of the results' folder: the transfer was stopped; look at its results folder there",
                path.display()
            )));
        }
        let plain = !path.to_string_lossy().chars().any(char::is_control);
        match kind {
            EntryType::Directory if plain => {
                folders(into, &path).map_err(unwritable)?;
            }
            EntryType::Regular | EntryType::Continuous if plain => {
                write_entry(&mut entry, into, &path).map_err(unwritable)?;
                done.files += 1;
            }
            _ => done.leave_out(&path),
        }
    }
    Ok(done)
}

/// Words about the entry that follows, or about all.
fn is_about_another(kind: EntryType) -> bool {
    kind.is_gnu_longname()
        || kind.is_gnu_longlink()
        || kind.is_pax_local_extensions()
        || kind.is_pax_global_extensions()
}

/// The name that words about the next entry give it.
fn name_of_the_next(entry: &mut Entry<'_, impl Read>) -> io::Result<Option<PathBuf>> {
    use std::os::unix::ffi::OsStrExt;
    let named = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let kind = entry.header().entry_type();
    if kind.is_gnu_longname() {
        let mut name = Vec::new();
        entry.read_to_end(&mut name)?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        return Ok(Some(named(&name[..end])));
    }
    let mut found = None;
    if kind.is_pax_local_extensions() {
        for words in entry.pax_extensions()?.into_iter().flatten() {
            let words = words?;
            match words.key_bytes() {
                b"path" => found = Some(named(words.value_bytes())),
                // The entry's own header would say another.
                b"size" => return Err(io::Error::other("a size is missing its entry")),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Makes the folders of a path below another one. What lies there already and is none, as a link
/// that leads out, is an error.
fn folders(into: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut folder = into.to_owned();
    for part in path.components() {
        let Component::Normal(name) = part else {
            continue;
        };
        folder.push(name);
        match private::create_folder(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&folder)?.is_dir() {
                    return Err(e);
                }
            }
            made => made?,
        }
    }
    Ok(folder)
}

/// Writes one file. What was fetched before is replaced; when it was measured stays known.
fn write_entry(entry: &mut Entry<'_, impl Read>, into: &Path, path: &Path) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("a file without a name"))?;
    let parent = path.parent().unwrap_or(Path::new(""));
    let place = folders(into, parent)?.join(name);
    let mut made = match private::create_file(&place) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&place)?;
            private::create_file(&place)?
        }
        made => made?,
    };
    let size = entry.size();
    if io::copy(entry, &mut made)? < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let at = Duration::from_secs(entry.header().mtime().unwrap_or(0));
    match SystemTime::UNIX_EPOCH.checked_add(at) {
        Some(at) => made.set_modified(at),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitCode;
    use std::fs;

    fn entry(
        tar: &mut tar::Builder<Vec<u8>>,
        kind: EntryType,
        name: &str,
        link: &str,
        text: &[u8],
    ) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        // Written as they are: the builder would refuse the very names that are tested here.
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        tar.append(&header, text).unwrap();
    }

    #[test]
    fn files_and_folders_come_out() {
        let mut tar = tar::Builder::new(Vec::new());
        entry(&mut tar, EntryType::Directory, "./", "", b"");
        entry(&mut tar, EntryType::Directory, "./cells/", "", b"");
        entry(&mut tar, EntryType::Regular, "./cells/a.json", "", b"{}");
        entry(&mut tar, EntryType::Regular, "deep/er/b", "", b"b");
        let dir = tempfile::tempdir().unwrap();
        let done = unpack_archive(tar.into_inner().unwrap().as_slice(), dir.path()).unwrap();
        assert_eq!(
            done,
            UnpackedFiles {
                files: 2,
                ..UnpackedFiles::default()
            }
        );
        assert_eq!(fs::read(dir.path().join("cells/a.json")).unwrap(), b"{}");
        assert_eq!(fs::read(dir.path().join("deep/er/b")).unwrap(), b"b");
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../b", "/tmp/plimsoll-never", "a/../../b", "./../b"] {
            let mut tar = tar::Builder::new(Vec::new());
            entry(&mut tar, EntryType::Regular, name, "", b"b");
            let outer = tempfile::tempdir().unwrap();
            let failure = unpack_archive(
                tar.into_inner().unwrap().as_slice(),
                &outer.path().join("in"),
            )
            .unwrap_err();
            assert_eq!(failure.code, ExitCode::RunFailed, "{name}");
            assert!(failure.message.contains(name), "{failure}");
            let beside: Vec<_> = fs::read_dir(outer.path()).unwrap().collect();
            assert_eq!(beside.len(), 1, "{name}: {beside:?}");
        }
    }

    #[test]
    fn links_are_left_out_and_lead_nowhere() {
        let outer = tempfile::tempdir().unwrap();
        let target = outer.path().join("target");
        fs::create_dir(&target).unwrap();
        let target_name = target.to_str().unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        entry(&mut tar, EntryType::Symlink, "out", target_name, b"");
        entry(&mut tar, EntryType::Regular, "out/file", "", b"x");
        entry(&mut tar, EntryType::Link, "hard", "/etc/passwd", b"");
        entry(&mut tar, EntryType::Fifo, "pipe", "", b"");
        let into = outer.path().join("in");
        let done = unpack_archive(tar.into_inner().unwrap().as_slice(), &into).unwrap();
        assert_eq!(done.left_out, ["out", "hard", "pipe"]);
        assert_eq!(fs::read(into.join("out/file")).unwrap(), b"x");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        assert!(!into.join("hard").exists());
    }

    #[test]
    fn a_link_that_lies_here_already_is_not_followed_out() {
        let outer = tempfile::tempdir().unwrap();
        let (target, into) = (outer.path().join("target"), outer.path().join("in"));
        fs::create_dir(&target).unwrap();
        fs::create_dir(&into).unwrap();
        std::os::unix::fs::symlink(&target, into.join("cells")).unwrap();
        for (kind, name) in [
            (EntryType::Regular, "cells/file"),
            (EntryType::Directory, "cells/folder/"),
        ] {
            let mut tar = tar::Builder::new(Vec::new());
            entry(&mut tar, kind, name, "", b"");
            assert!(unpack_archive(tar.into_inner().unwrap().as_slice(), &into).is_err());
            assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{name}");
        }
    }

    /// An entry that claims a size and brings nothing of it.
    fn claiming(kind: EntryType, size: u64) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    #[test]
    fn a_name_without_an_end_is_not_read() {
        for kind in [b'L', b'K', b'x', b'g'] {
            let head = claiming(EntryType::new(kind), 1 << 36);
            let dir = tempfile::tempdir().unwrap();
            // Were it read, this would not end.
            let failure = unpack_archive(head.chain(io::repeat(b'a')), dir.path()).unwrap_err();
            assert_eq!(failure.code, ExitCode::RunFailed);
            assert!(failure.message.contains("64 KiB"), "{failure}");
        }
    }

    #[test]
    fn long_names_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let folder = "f".repeat(90);
        let name = format!("{folder}/{folder}/a.json");
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mtime(1_700_000_000);
        header.set_mode(0o777);
        tar.append_data(&mut header, &name, &b"{}"[..]).unwrap();
        let pax = [("path", name.replace("a.json", "b.json"))];
        let pax = pax.iter().map(|(k, v)| (*k, v.as_bytes()));
        tar.append_pax_extensions(pax).unwrap();
        tar.append_data(&mut header, "short", &b"{}"[..]).unwrap();
        let bytes = tar.into_inner().unwrap();
        // A second time, as where a sweep is resumed.
        for _ in 0..2 {
            assert_eq!(
                unpack_archive(bytes.as_slice(), dir.path()).unwrap().files,
                2
            );
        }
        for name in [name.clone(), name.replace("a.json", "b.json")] {
            let about = fs::metadata(dir.path().join(name)).unwrap();
            use std::os::unix::fs::MetadataExt;
            assert_eq!(about.mode() & 0o7777, 0o600);
            assert_eq!(about.mtime(), 1_700_000_000);
        }
    }

    #[test]
    fn what_is_left_out_is_counted_and_names_do_nothing_to_a_terminal() {
        let mut tar = tar::Builder::new(Vec::new());
        entry(&mut tar, EntryType::Regular, "a\u{1b}[31m", "", b"x");
        for n in 0..100 {
            entry(&mut tar, EntryType::Fifo, &format!("p{n}"), "", b"");
        }
        let dir = tempfile::tempdir().unwrap();
        let done = unpack_archive(tar.into_inner().unwrap().as_slice(), dir.path()).unwrap();
        assert_eq!(
            (done.files, done.left_out.len(), done.more_left_out),
            (0, 20, 81)
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn half_an_archive_is_reported() {
        let mut tar = tar::Builder::new(Vec::new());
        entry(&mut tar, EntryType::Regular, "a", "", &[b'x'; 4000]);
        let bytes = tar.into_inner().unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert!(unpack_archive(&bytes[..2000], dir.path()).is_err());
    }
}
