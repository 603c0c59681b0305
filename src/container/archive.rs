//! Reads the one file in an archive from a container: names in it are not trusted, and nothing is
//! unpacked.

use std::io::Read;

/// Content of an archive for one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Archive {
    /// A regular file's bytes.
    File(Vec<u8>),
    /// A regular file above the limit.
    TooLarge,
    /// Nothing, or not a regular file: a link, a folder, a device.
    Other,
}

/// The first entry of an archive, if it is a regular file of at most `limit` bytes. Its name is
/// ignored, so it cannot point elsewhere.
pub fn first_file(bytes: &[u8], limit: usize) -> Archive {
    read_first(bytes, limit, false)
}

/// The first `most` bytes of the first file, however long it is.
pub fn start_of_first_file(bytes: &[u8], most: usize) -> Archive {
    read_first(bytes, most, true)
}

fn read_first(bytes: &[u8], limit: usize, cut: bool) -> Archive {
    let mut archive = tar::Archive::new(bytes);
    let Some(Ok(entry)) = archive.entries().ok().and_then(|mut e| e.next()) else {
        return Archive::Other;
    };
    // The declared size of a sparse file differs from its bytes in the archive.
    if !entry.header().entry_type().is_file() {
        return Archive::Other;
    }
    if entry.size() > limit as u64 && !cut {
        return Archive::TooLarge;
    }
    let mut content = Vec::new();
    match entry.take(limit as u64).read_to_end(&mut content) {
        Ok(_) => Archive::File(content),
        Err(_) => Archive::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tar::{EntryType, Header};

    /// An entry whose name and link are written as they are: the builder would refuse some.
    fn archive(kind: EntryType, name: &str, link: &str, size: u64, bytes: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        let mut tar = header.as_bytes().to_vec();
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
        tar
    }

    #[test]
    fn a_file_is_its_bytes_whatever_it_is_called() {
        for name in [
            "config.json",
            "../../etc/passwd",
            "/etc/shadow",
            "-rf",
            "a\nb",
            "\x1b[2J",
        ] {
            let tar = archive(EntryType::Regular, name, "", 2, b"{}");
            assert_eq!(first_file(&tar, 2), Archive::File(b"{}".to_vec()), "{name}");
            assert_eq!(first_file(&tar, 1), Archive::TooLarge);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_none() {
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Directory,
            EntryType::Char,
            EntryType::Block,
            EntryType::Fifo,
            EntryType::GNUSparse,
            EntryType::new(b'?'),
        ] {
            let tar = archive(kind, "a", "/etc/shadow", 0, b"");
            assert_eq!(first_file(&tar, 100), Archive::Other, "{kind:?}");
        }
        for rubbish in [&b""[..], b"{}", &[0; 1024], &[b'x'; 2048]] {
            assert_eq!(first_file(rubbish, 100), Archive::Other);
        }
    }

    #[test]
    fn a_size_that_is_a_lie_costs_nothing() {
        for size in [101, 1 << 30, u64::from(u32::MAX), 1 << 62, u64::MAX] {
            let tar = archive(EntryType::Regular, "a", "", size, b"{}");
            let read = first_file(&tar, 100);
            assert!(
                matches!(read, Archive::TooLarge | Archive::Other),
                "{size}: {read:?}"
            );
        }
        // One that ends too early.
        let tar = archive(EntryType::Regular, "a", "", 100, b"{}");
        assert!(!matches!(first_file(&tar[..600], 100), Archive::TooLarge));
    }

    proptest! {
        #[test]
        fn no_bytes_give_more_than_was_asked_for(
            mut tar in proptest::collection::vec(any::<u8>(), 0..2048),
            valid in any::<bool>(),
            limit in 0..2000usize,
        ) {
            if valid && tar.len() >= 512 {
                let mut header = Header::new_gnu();
                header.as_mut_bytes().copy_from_slice(&tar[..512]);
                header.set_cksum();
                tar[..512].copy_from_slice(header.as_bytes());
            }
            if let Archive::File(content) = first_file(&tar, limit) {
                prop_assert!(content.len() <= limit);
            }
        }
    }
}
