//! Reading what others may have written: a file or a line that is longer than any of ours ends there.

use crate::error::Failure;
use crate::wording::did_you_mean;
use rustix::fs::{Mode, OFlags};
use serde::de::{DeserializeOwned, Error as _};
use std::fs::{File, FileType};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// A longer document is not read, bytes. A profile has some MiB, the results of 10,000 cells some 30.
const LONGEST_DOCUMENT: u64 = 64 << 20;
/// What the values of a document may take in memory, bytes. With the document itself, and what is
/// made of it, a process stays under 512 MiB.
const MOST_VALUES: u64 = 256 << 20;
/// What a value takes at most, bytes: in a list, with its key, and a list or map with its first entry.
const IN_A_LIST: u64 = 80;
const WITH_ITS_KEY: u64 = 96;
const LIST_OR_MAP: u64 = 512;

/// A longer line is not read, bytes. A line of a log is cut at 64 KiB; the longest of ours are
/// requests with the times of all their tokens.
const LONGEST_LINE: u64 = 8 << 20;
/// What the records of a file of lines may take in memory, bytes.
const MOST_RECORDS: u64 = 448 << 20;
/// Longer files of lines come from runs of days: their records may take three times the file.
const LONG_RUN: u64 = 256 << 20;

/// Opens a file found in a folder or capture. A pipe, which would block, or a device, which may be
/// endless, is an error with its type.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    // Asked of what is open: a name can be given to something else meanwhile.
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        Ok(file)
    } else {
        Err(refused_input(format!(
            "it is not a regular file but {}",
            file_type_word(kind)
        )))
    }
}

/// Opens what the user named on the command line: that may be a pipe, as `<(docker logs llm)` is.
pub fn open_named(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// The whole of what the user named on the command line. Longer than `longest` bytes is an error.
pub fn named_bytes(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    read_all(open_named(path)?, longest)
}

/// A whole file. Longer than `longest` bytes is an error.
pub fn read_bytes(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path)?, longest)
}

/// The beginning of a file, at most `most` bytes.
pub fn read_beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A whole document from a stream, as standard input.
///
/// # Errors
///
/// It cannot be read, or is longer than any document.
pub fn read_stream_document(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(LONGEST_DOCUMENT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_DOCUMENT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is too large",
        ));
    }
    Ok(bytes)
}

/// A whole document.
pub fn read_document(path: &Path) -> io::Result<Vec<u8>> {
    read_bytes(path, LONGEST_DOCUMENT)
}

/// Parses untrusted JSON: checks first what its values would take in memory, then parses. Errors
/// contain the position in the document.
///
///
/// # Errors
///
/// Invalid JSON, another structure, or too large.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    check_weight(bytes)?;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let path = e.path().to_string();
        match (e.into_inner(), path.as_str()) {
            (error, "." | "?") => error,
            (error, _) if !error.is_data() => error,
            (error, path) => serde_json::Error::custom(format!("{path}: {error}")),
        }
    })?;
    reader.end()?;
    Ok(value)
}

/// Refuses JSON with values that take too much memory. Other bytes are left to the parser.
///
///
/// # Errors
///
/// More values than any plimsoll document has.
pub fn check_weight(bytes: &[u8]) -> Result<(), serde_json::Error> {
    let mut memory = 0;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        memory += match byte {
            b',' => IN_A_LIST,
            b':' => WITH_ITS_KEY,
            b'[' | b'{' => LIST_OR_MAP,
            b'"' => {
                at = end_of_string(bytes, at + 1);
                0
            }
            _ => 0,
        };
        at += 1;
        if memory > MOST_VALUES {
            return Err(serde_json::Error::custom(format!(
                "it holds more values than fit into {} MiB of memory",
                MOST_VALUES >> 20
            )));
        }
    }
    Ok(())
}

/// Where a string ends that begins here: the place of its closing quote.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        match bytes[at + found] {
            b'"' => return at + found,
            _ => at += found + 2,
        }
    }
    bytes.len()
}

/// Opens a file of lines with records to be kept in memory, `each` bytes for one JSON object (0:
/// nothing is kept). Counts its lines and objects first.
///
///
/// # Errors
///
/// A line that is too long, or more objects than fit.
pub fn open_records(path: &Path, each: u64) -> io::Result<BufReader<File>> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    let most = if size > LONG_RUN {
        size.saturating_mul(3)
    } else {
        MOST_RECORDS
    };
    let mut reader = BufReader::with_capacity(1 << 16, file);
    // The kept records and a part of their texts.
    let mut memory = size / 5 * 3;
    let (mut line, mut number) = (0, 1_u64);
    loop {
        let read = reader.fill_buf()?;
        if read.is_empty() {
            break;
        }
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', read).chain([read.len()]) {
            line += (end - begin) as u64;
            if line > LONGEST_LINE {
                let longest = LONGEST_LINE >> 20;
                return Err(refused_input(format!(
                    "line {number} is longer than {longest} MiB"
                )));
            }
            if end < read.len() {
                (line, begin, number) = (0, end + 1, number + 1);
            }
        }
        if each > 0 {
            memory += each * memchr::memchr_iter(b'{', read).count() as u64;
        }
        if each > 0 && memory > most {
            let most = most >> 20;
            return Err(refused_input(format!(
                "its records take more than {most} MiB of memory"
            )));
        }
        let length = read.len();
        reader.consume(length);
    }
    reader.rewind()?;
    Ok(reader)
}

fn read_all(file: File, longest: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        Err(refused_input(match longest >> 20 {
            0 => format!("it is too large: at most {longest} bytes are read"),
            mib => format!("it is too large: at most {mib} MiB are read"),
        }))
    };
    let size = file.metadata()?.len();
    if size > longest {
        return too_large();
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    // It may grow while it is read, and a pipe has no size.
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        too_large()
    } else {
        Ok(bytes)
    }
}

/// The error for an unreadable file; distinguishes invalid content from a host error.
pub fn unreadable_file(path: &Path, e: io::Error) -> Failure {
    let message = format!("cannot read `{}`", path.display());
    match e.kind() {
        io::ErrorKind::InvalidData => Failure::usage(message),
        _ => Failure::environment(message),
    }
    .caused_by(e)
}

/// A document of a version that this release does not know.
pub fn newer_document(path: &Path) -> Failure {
    let message = format!("`{}` was written by a newer plimsoll", path.display());
    Failure::usage(message).hint("update plimsoll")
}

/// A file that the user named and that cannot be read; one of its folder with nearly its name is asked after.
pub fn unreadable_input(path: &Path, e: io::Error) -> Failure {
    let failure = Failure::usage(format!("cannot read `{}`", path.display()));
    let failure = match near_file(path).filter(|_| e.kind() == io::ErrorKind::NotFound) {
        Some(near) => failure.hint(near),
        None => failure,
    };
    failure.caused_by(e)
}

/// Files of a folder that are looked at for a near name.
const MOST_NEIGHBOURS: usize = 1000;

/// ``did you mean `b.log`?``, where the folder of a path has a file of nearly its name.
pub(crate) fn near_file(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let names: Vec<String> = (entries.take(MOST_NEIGHBOURS).flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    did_you_mean(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
        1,
    )
}

fn refused_input(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The type of a file that is not regular.
pub(crate) fn file_type_word(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// The next line without its end; `None` after the last, and after one that is too long.
pub fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
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
        assert!(read_document(Path::new("/dev/zero")).is_err());
        let dir = tempfile::tempdir().unwrap();
        assert!(read_document(dir.path()).is_err());
        let giant = dir.path().join("giant");
        File::create(&giant).unwrap().set_len(1 << 40).unwrap();
        assert!(read_document(&giant).is_err());
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
            for result in [
                open_regular(path).map(drop),
                read_document(path).map(drop),
                open_records(path, 0).map(drop),
                read_beginning(path, 10).map(drop),
            ] {
                assert!(result.unwrap_err().to_string().ends_with(what));
            }
        }
        assert!(named_bytes(&zero, 1 << 16).is_err(), "it has no end");
    }

    #[test]
    fn what_a_document_takes_is_counted_before_it_is_parsed() {
        type Any = serde_json::Value;
        let many = |unit: &str, n: usize| format!("[{}0]", unit.repeat(n));
        for (unit, fits, too_many) in [
            ("0,", 3_000_000, 3_500_000),
            ("[0],", 400_000, 500_000),
            ("{\"\":0},", 350_000, 420_000),
        ] {
            assert!(check_weight(many(unit, fits).as_bytes()).is_ok(), "{unit}");
            let e = parse_json::<Any>(many(unit, too_many).as_bytes()).unwrap_err();
            assert!(e.to_string().contains("256 MiB"), "{unit}: {e}");
        }
        // What stands in strings is text.
        let text = serde_json::to_string(&"[{,:\"\\".repeat(100_000)).unwrap();
        assert!(parse_json::<Any>(text.as_bytes()).is_ok());
        assert!(parse_json::<Any>(b"[\"\\").is_err() && parse_json::<Any>(b"[0] 1").is_err());
        let e = parse_json::<Vec<Vec<u8>>>(b"[[1], [2, true]]").unwrap_err();
        assert!(e.to_string().starts_with("[1][1]: "), "{e}");
    }

    #[test]
    fn what_records_take_is_counted_before_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lines");
        let opened = |text: &str, each| {
            std::fs::write(&file, text).unwrap();
            open_records(&file, each).map(|mut reader| read_line(&mut reader).unwrap())
        };
        assert_eq!(opened("{}\n{}", 1000).unwrap().as_deref(), Some(&b"{}"[..]));
        let many = "{}\n".repeat(10_000);
        assert!(opened(&many, 1000).is_ok());
        let e = opened(&many, 100_000).unwrap_err();
        assert!(e.to_string().contains("448 MiB"), "{e}");
        let e = opened(&format!("a\n{}", "b".repeat(9 << 20)), 0).unwrap_err();
        assert!(e.to_string().contains("line 2 is longer"), "{e}");
    }
}
