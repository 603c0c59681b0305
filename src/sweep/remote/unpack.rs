//! Unpacking an archive that another machine has made: files and folders, and nothing outside of
//! the folder that they are for.

use crate::error::Failure;
use crate::store::private;
use std::io::{self, Read};
use std::path::{Component, Path};
use tar::EntryType;

/// More than the results of any sweep, bytes: an archive that claims more is none.
const MOST: u64 = 256 << 30;

/// What came out of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files written.
    pub files: u64,
    /// Names of what is neither file nor folder (links, devices): left out.
    pub left_out: Vec<String>,
}

/// Unpacks into a folder, which is made where it is not there. A name that leads out of it is a
/// failure, and nothing after it is unpacked.
pub fn unpack(from: impl Read, into: &Path) -> Result<Unpacked, Failure> {
    let unwritable =
        |e| Failure::environment(format!("cannot write to `{}`", into.display())).caused_by(e);
    let unreadable = |e: io::Error| {
        Failure::environment("the results that came are no whole archive").caused_by(e)
    };
    private::create_folders(into).map_err(unwritable)?;
    let mut archive = tar::Archive::new(from);
    // Modes and owners are the other machine's business; times say when something was measured.
    archive.set_preserve_permissions(false);
    archive.set_preserve_ownerships(false);
    archive.set_mask(0o077);
    let mut done = Unpacked::default();
    let mut taken = 0u64;
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let path = entry.path().map_err(unreadable)?.into_owned();
        taken = taken.saturating_add(entry.size());
        if taken > MOST {
            return Err(Failure::run(format!(
                "the other machine sent more than {} GiB: nothing more of it is taken",
                MOST >> 30
            )));
        }
        let inside =
            (path.components()).all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !inside {
            return Err(Failure::run(format!(
                "the other machine sent `{}`, which leads out of the results' folder: nothing more of it is taken",
                path.display()
            )));
        }
        match entry.header().entry_type() {
            kind @ (EntryType::Directory
            | EntryType::Regular
            | EntryType::Continuous
            | EntryType::GNUSparse) => {
                // Also looks at what lies here already: no link of ours leads out either.
                match entry.unpack_in(into).map_err(unwritable)? {
                    true => done.files += u64::from(kind != EntryType::Directory),
                    false => done.left_out.push(path.display().to_string()),
                }
            }
            // Words about the archive, no entry of it.
            EntryType::XGlobalHeader => {}
            _ => done.left_out.push(path.display().to_string()),
        }
    }
    Ok(done)
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
        let done = unpack(tar.into_inner().unwrap().as_slice(), dir.path()).unwrap();
        assert_eq!(
            done,
            Unpacked {
                files: 2,
                left_out: vec![]
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
            let failure = unpack(
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
        let done = unpack(tar.into_inner().unwrap().as_slice(), &into).unwrap();
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
            assert!(unpack(tar.into_inner().unwrap().as_slice(), &into).is_err());
            assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn half_an_archive_is_told() {
        let mut tar = tar::Builder::new(Vec::new());
        entry(&mut tar, EntryType::Regular, "a", "", &[b'x'; 4000]);
        let bytes = tar.into_inner().unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert!(unpack(&bytes[..2000], dir.path()).is_err());
    }
}
