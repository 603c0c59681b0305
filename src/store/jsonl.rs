//! Lines that survive a crash: an append-only file with one JSON document per line.
//!
//! A line is written at once and synced before the next step, so a killed process or a host that
//! loses its power leaves at most one torn line, the last. It is cut off when the file is opened
//! again. Each line carries a checksum of its document, so that a line changed on disk does not
//! count as a result.

use super::{bounded, private, write_failure};
use crate::error::Failure;
use crate::redact;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::ser::Error as _;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

/// The lines of a file, read.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundLines<T> {
    /// What could be read, in order.
    pub records: Vec<T>,
    /// What could not; sentences with the number of the line.
    pub warnings: Vec<String>,
    /// Bytes of all whole lines; what follows them is torn.
    pub whole: u64,
}

/// A file of lines, open for appending. The caller ensures that nothing else opens it.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    /// Its length after the last line that was written whole.
    whole: u64,
}

/// What the record of a line takes in memory for each of its objects, bytes at most.
const RECORD_BYTES: u64 = 300;
/// Lines that are named where something is wrong with several.
const NAMED: usize = 20;

/// Separates a line's document from its checksum, as the last key of the same object.
const SUM: &str = ",\"crc32\":\"";
/// Bytes of the checksum with its key and the closing characters.
const SUM_BYTES: usize = SUM.len() + 8 + "\"}".len();

/// One value as a line, with its checksum.
pub fn json_line(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = redact::redact_bytes(&serde_json::to_vec(value)?).into_owned();
    let sum = crc32fast::hash(&line);
    if line.pop() != Some(b'}') {
        return Err(serde_json::Error::custom("a line is an object"));
    }
    line.extend(format!("{SUM}{sum:08x}\"}}\n").bytes());
    Ok(line)
}

/// The document of a line; `None` where its checksum is wrong.
pub fn line_document(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (document, right) = checked(line);
    (right != Some(false)).then_some(document)
}

/// A line's document, and whether its checksum is right; `None` where it has none.
fn checked(line: &[u8]) -> (Cow<'_, [u8]>, Option<bool>) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let Some((document, sum)) = line
        .len()
        .checked_sub(SUM_BYTES)
        .map(|at| line.split_at(at))
    else {
        return (line.into(), None);
    };
    let Some(sum) = sum.strip_prefix(SUM.as_bytes()) else {
        return (line.into(), None);
    };
    let document = [document, b"}"].concat();
    let right = format!("{:08x}\"}}", crc32fast::hash(&document)).as_bytes() == sum;
    (document.into(), Some(right))
}

impl JsonLines {
    /// Opens a file, which need not be there yet, reads it, and cuts off a torn last line.
    pub fn open<T: DeserializeOwned>(path: &Path) -> Result<(JsonLines, FoundLines<T>), Failure> {
        let found = read_lines(path)?;
        Ok((JsonLines::go_on(path, found.whole)?, found))
    }

    /// Opens a file that was just read, to go on after its whole lines: [`FoundLines::whole`].
    pub fn go_on(path: &Path, whole: u64) -> Result<JsonLines, Failure> {
        let open = || -> io::Result<File> {
            let file = private::open_to_append(path)?;
            if file.metadata()?.len() > whole {
                file.set_len(whole)?;
                file.sync_data()?;
            }
            if whole == 0 {
                // The name must survive too.
                File::open(super::folder_of(path))?.sync_all()?;
            }
            Ok(file)
        };
        Ok(JsonLines {
            file: open().map_err(|e| write_failure(path, e))?,
            path: path.to_owned(),
            whole,
        })
    }

    /// Adds a line. When this returns it survives whatever happens; when it fails nothing of it is
    /// left.
    pub fn append_value(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let written = json_line(value)
            .map_err(io::Error::from)
            .and_then(|line| self.add_line(&line));
        written.map_err(|e| {
            // Half a line on a full disk would spoil the next one.
            let _ = self.file.set_len(self.whole);
            write_failure(&self.path, e)
        })
    }

    fn add_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)?;
        self.file.sync_data()?;
        self.whole += line.len() as u64;
        Ok(())
    }
}

/// Adds a line to a file that other processes may add to as well, each under the file's lock.
pub fn append_shared(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let locked = private::open_to_append(path).map_err(|e| write_failure(path, e))?;
    match flock(&locked, FlockOperation::LockExclusive) {
        // A file system without locks has one user, or none that can be helped.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(e) => return Err(write_failure(path, e.into())),
    }
    let (mut lines, _) = JsonLines::open::<IgnoredAny>(path)?;
    lines.append_value(value)
}

/// Reads a file of lines without touching it; one that is not there has none.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<FoundLines<T>, Failure> {
    let read = match bounded::open_records(path, RECORD_BYTES) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => parse_lines(io::empty(), path),
        opened => opened.and_then(|reader| parse_lines(reader, path)),
    };
    read.map_err(|e| bounded::unreadable_file(path, e))
}

/// What the lines hold. Only the last line can be torn; another that cannot be read, or was damaged, was spoilt by
/// something else, and stays where it is.
fn parse_lines<T: DeserializeOwned>(
    mut reader: impl BufRead,
    path: &Path,
) -> io::Result<FoundLines<T>> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy();
    let mut found = FoundLines {
        records: Vec::new(),
        warnings: Vec::new(),
        whole: 0,
    };
    let (mut line, mut number, mut wrong) = (Vec::new(), 0, 0);
    let (mut with_sum, mut without) = (false, 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        let ended = line.ends_with(b"\n");
        let last = reader.fill_buf()?.is_empty();
        let (document, right) = checked(&line);
        let read = serde_json::from_slice::<T>(&document);
        // A document that is whole but unknown was written by another release: it is kept.
        let torn = last && (!ended || (right.is_none() && is_no_json(&document)));
        if !torn {
            found.whole += line.len() as u64;
        }
        with_sum |= right.is_some();
        let warning = match (right, read) {
            _ if torn => Some(format!(
                "line {number} of `{name}`, the last line, was not written to its end, and is left out"
            )),
            (None, _) if line.trim_ascii().is_empty() => None,
            (Some(true), Ok(record)) => {
                found.records.push(record);
                None
            }
            // Written by a release before there were checksums: these lines come first.
            (None, Ok(record)) if !with_sum => {
                without += 1;
                found.records.push(record);
                None
            }
            (Some(false), _) | (None, Ok(_)) => Some(format!(
                "line {number} of `{name}` was changed after it was written (its checksum is wrong), and is left out"
            )),
            (_, Err(e)) => Some(format!(
                "line {number} of `{name}` cannot be read, and is left out: {e}"
            )),
        };
        wrong += usize::from(warning.is_some());
        found.warnings.extend(warning.filter(|_| wrong <= NAMED));
    }
    if wrong > NAMED {
        let more = wrong - NAMED;
        found
            .warnings
            .push(format!("{more} more lines of `{name}` are left out"));
    }
    if without > 0 {
        found.warnings.push(format!(
            "{without} lines of `{name}` have no checksum, as an earlier release wrote them: damage to them does not show"
        ));
    }
    Ok(found)
}

fn is_no_json(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Word {
        word: String,
    }

    fn words(n: usize) -> Vec<Word> {
        (0..n)
            .map(|i| Word {
                word: "é".repeat(i),
            })
            .collect()
    }

    fn write(path: &Path, words: &[Word]) {
        let (mut lines, _) = JsonLines::open::<Word>(path).unwrap();
        words.iter().for_each(|w| lines.append_value(w).unwrap());
    }

    proptest! {
        #[test]
        fn a_file_cut_anywhere_loses_the_torn_line_only(n in 1..8usize, at in 0.0..1.0f64) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.jsonl");
            write(&path, &words(n));
            let bytes = std::fs::read(&path).unwrap();
            let cut = (at * (bytes.len() + 1) as f64) as usize;
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            let torn = cut > 0 && bytes[cut - 1] != b'\n';

            let (mut lines, found) = JsonLines::open::<Word>(&path).unwrap();
            prop_assert_eq!(&found.records, &words(n)[..whole]);
            prop_assert_eq!(found.warnings.len(), usize::from(torn));
            let next = Word { word: "next".into() };
            lines.append_value(&next).unwrap();
            let again = read_lines::<Word>(&path).unwrap();
            prop_assert_eq!(again.records.len(), whole + 1);
            prop_assert_eq!(again.records.last(), Some(&next));
            prop_assert!(again.warnings.is_empty());
        }
    }

    #[test]
    fn a_spoilt_line_in_the_middle_is_reported_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let text = "{\"word\":\"a\"}\n\0\0{\"wo\n{\"word\":\"b\"}\n{\"later\":1}\n";
        std::fs::write(&path, text).unwrap();
        let (mut lines, found) = JsonLines::open::<Word>(&path).unwrap();
        assert_eq!(found.records.len(), 2);
        assert!(found.warnings[0].starts_with("line 2 of `a.jsonl`"));
        assert!(found.warnings[1].starts_with("line 4 of `a.jsonl`"));
        lines.append_value(&Word { word: "c".into() }).unwrap();
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept.starts_with(&format!("{text}{{\"word\":\"c\",\"crc32\"")));
    }

    #[test]
    fn a_last_line_of_rubbish_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{\"word\":\"a\"}\n{\"word\":\n").unwrap();
        let (_, found) = JsonLines::open::<Word>(&path).unwrap();
        assert_eq!(found.records.len(), 1);
        assert!(found.warnings[0].contains("line 2 of `a.jsonl`, the last line"));
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"word\":\"a\"}\n");
    }

    #[test]
    fn a_line_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        write(&path, &words(2));
        let before = std::fs::read(&path).unwrap();
        // A file that is open for reading refuses the write, as a full disk does.
        let mut lines = JsonLines {
            file: File::open(&path).unwrap(),
            path: path.clone(),
            whole: before.len() as u64,
        };
        let e = lines.append_value(&words(1)[0]).unwrap_err();
        assert!(e.message.contains("cannot write"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn several_writers_do_not_mix_their_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shared.jsonl");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for word in words(10) {
                        append_shared(&path, &word).unwrap();
                    }
                });
            }
        });
        let found = read_lines::<Word>(&path).unwrap();
        assert_eq!((found.records.len(), found.warnings.len()), (40, 0));
    }
}
