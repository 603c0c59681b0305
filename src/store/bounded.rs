//! Reading what others may have written: a file or a line that is longer than any of ours ends there.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

/// A longer document is none of ours, bytes.
const LONGEST_FILE: u64 = 512 << 20;
/// A longer line is none of ours, bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// A whole file as text. A pipe or a device, which need not end, is an error.
pub(super) fn text(path: &Path) -> io::Result<String> {
    let found = std::fs::metadata(path)?;
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if !found.is_file() {
        return refused("it is no regular file");
    }
    if found.len() > LONGEST_FILE {
        return refused("it is too large for one");
    }
    let mut text = String::new();
    File::open(path)?
        .take(LONGEST_FILE)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The next line without its end; `None` after the last, and after one that is too long.
pub(super) fn line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    line_within(reader, LONGEST_LINE)
}

fn line_within(reader: &mut impl BufRead, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(longest).read_until(b'\n', &mut line)?;
    let ended = line.last() == Some(&b'\n');
    if line.is_empty() || (!ended && line.len() as u64 == longest) {
        return Ok(None);
    }
    if ended {
        line.pop();
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_an_end_is_the_end() {
        let mut reader = io::BufReader::new(&b"ab\n\nabc\ncd"[..]);
        let mut next = || line_within(&mut reader, 4).unwrap();
        assert_eq!(next().as_deref(), Some(&b"ab"[..]));
        assert_eq!(next().as_deref(), Some(&b""[..]));
        assert_eq!(next().as_deref(), Some(&b"abc"[..]));
        assert_eq!(next().as_deref(), Some(&b"cd"[..]));
        assert_eq!(next(), None);
        let mut reader = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(line_within(&mut reader, 1 << 20).unwrap(), None);
    }

    #[test]
    fn what_need_not_end_is_not_read() {
        assert!(text(Path::new("/dev/zero")).is_err());
        let dir = tempfile::tempdir().unwrap();
        assert!(text(dir.path()).is_err());
        let giant = dir.path().join("giant");
        File::create(&giant).unwrap().set_len(1 << 40).unwrap();
        assert!(text(&giant).is_err());
    }
}
