//! Reading what others may have written: a file or a line that is longer than any of ours ends there.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, FileType};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// A longer document is none of ours, bytes.
const LONGEST_FILE: u64 = 512 << 20;
/// A longer line is none of ours, bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// A longer file of lines is none of ours, bytes: a sweep of the most cells has some hundred MiB.
const LONGEST_LINES: u64 = 2 << 30;

/// Opens what lies in folders and captures. A pipe, which would make us wait for its other end, or a
/// device, which need not end, is an error that says what it is.
pub fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    // Asked of what is open: a name can be given to something else meanwhile.
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false => Err(refused(format!("it is no regular file but {}", word(kind)))),
    }
}

/// Opens what the user named on the command line: that may be a pipe, as `<(docker logs llm)` is.
pub fn named(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// The whole of what the user named on the command line. Longer than `longest` bytes is an error.
pub fn named_bytes(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    all(named(path)?, longest)
}

/// A whole file. Longer than `longest` bytes is an error.
pub fn bytes(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    all(regular(path)?, longest)
}

/// The beginning of a file: at most so many bytes.
pub fn beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A whole document.
pub fn document(path: &Path) -> io::Result<Vec<u8>> {
    bytes(path, LONGEST_FILE)
}

/// A whole file of lines.
pub(super) fn lines(path: &Path) -> io::Result<Vec<u8>> {
    bytes(path, LONGEST_LINES)
}

/// A whole document as text.
pub(super) fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(document(path)?).map_err(|e| refused(e.to_string()))
}

fn all(file: File, longest: u64) -> io::Result<Vec<u8>> {
    let too_large = || Err(refused("it is too large for one".to_owned()));
    if file.metadata()?.len() > longest {
        return too_large();
    }
    let mut bytes = Vec::new();
    // Without its size before: it may grow while it is read, and a pipe has none.
    file.take(longest + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > longest {
        true => too_large(),
        false => Ok(bytes),
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// What it is that is no regular file.
pub(super) fn word(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
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

    #[test]
    fn a_pipe_is_not_waited_for_and_a_link_to_a_device_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let zero = dir.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        for (path, what) in [(&pipe, "a pipe"), (&zero, "a device")] {
            for said in [
                regular(path).map(drop),
                document(path).map(drop),
                lines(path).map(drop),
                beginning(path, 10).map(drop),
            ] {
                assert!(said.unwrap_err().to_string().ends_with(what));
            }
        }
        assert!(named_bytes(&zero, 1 << 16).is_err(), "it has no end");
    }
}
