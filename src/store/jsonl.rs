//! Lines that survive a crash: a file of one JSON document a line, that is only ever added to.
//!
//! A line is written at once and synced before the next step is taken, so a process that is killed
//! or a host that loses its power leaves at most one torn line, the last. That one was never
//! finished; it is cut off when the file is opened again.

use super::{bounded, private, write_failure};
use crate::error::Failure;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::fs::File;
use std::io::{self, Write};
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

/// A file of lines, open to be added to. Who opens it sees to it that nobody else does.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    /// Its length after the last line that was written whole.
    whole: u64,
}

/// One value as a line.
pub fn json_line(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
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
    pub fn append(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let written = json_line(value)
            .map_err(io::Error::from)
            .and_then(|line| self.add(&line));
        written.map_err(|e| {
            // Half a line on a full disk would spoil the next one.
            let _ = self.file.set_len(self.whole);
            write_failure(&self.path, e)
        })
    }

    fn add(&mut self, line: &[u8]) -> io::Result<()> {
        let line = &crate::redact::harmless(line);
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
    lines.append(value)
}

/// Reads a file of lines without touching it; one that is not there has none.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<FoundLines<T>, Failure> {
    let bytes = match bounded::lines(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => {
            let message = format!("cannot read `{}`", path.display());
            return Err(Failure::environment(message).caused_by(e));
        }
    };
    Ok(parse(&bytes, path))
}

/// What the bytes hold. Only the last line can be torn; another that cannot be read was spoilt by
/// something else, and stays where it is.
fn parse<T: DeserializeOwned>(bytes: &[u8], path: &Path) -> FoundLines<T> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy();
    let mut found = FoundLines {
        records: Vec::new(),
        warnings: Vec::new(),
        whole: 0,
    };
    let mut lines = bytes
        .split_inclusive(|b| *b == b'\n')
        .enumerate()
        .peekable();
    while let Some((i, line)) = lines.next() {
        let ended = line.ends_with(b"\n");
        let read = serde_json::from_slice::<T>(line);
        let last = lines.peek().is_none();
        // A document that is whole but unknown was written by another release: it is kept.
        let torn = last && (!ended || is_no_json(line));
        if !torn {
            found.whole += line.len() as u64;
        }
        match read {
            _ if torn => found.warnings.push(format!(
                "the last line of `{name}` was not written to its end, and is left out"
            )),
            Ok(record) => found.records.push(record),
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(e) => found.warnings.push(format!(
                "line {} of `{name}` cannot be read, and is left out: {e}",
                i + 1
            )),
        }
    }
    found
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
        words.iter().for_each(|w| lines.append(w).unwrap());
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
            lines.append(&next).unwrap();
            let again = read_lines::<Word>(&path).unwrap();
            prop_assert_eq!(again.records.len(), whole + 1);
            prop_assert_eq!(again.records.last(), Some(&next));
            prop_assert!(again.warnings.is_empty());
        }
    }

    #[test]
    fn a_spoilt_line_in_the_middle_is_told_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let text = "{\"word\":\"a\"}\n\0\0{\"wo\n{\"word\":\"b\"}\n{\"later\":1}\n";
        std::fs::write(&path, text).unwrap();
        let (mut lines, found) = JsonLines::open::<Word>(&path).unwrap();
        assert_eq!(found.records.len(), 2);
        assert!(found.warnings[0].starts_with("line 2 of `a.jsonl`"));
        assert!(found.warnings[1].starts_with("line 4 of `a.jsonl`"));
        lines.append(&Word { word: "c".into() }).unwrap();
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, format!("{text}{{\"word\":\"c\"}}\n"));
    }

    #[test]
    fn a_last_line_of_rubbish_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{\"word\":\"a\"}\n{\"word\":\n").unwrap();
        let (_, found) = JsonLines::open::<Word>(&path).unwrap();
        assert_eq!((found.records.len(), found.warnings.len()), (1, 1));
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
        let e = lines.append(&words(1)[0]).unwrap_err();
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
