//! Reads a stored capture back: the facts at once, the streams one by one.

use super::{CAPTURE_FILE, LOG_FILE, REQUESTS_FILE, SAMPLES_FILE, bounded};
use crate::capture::{
    CAPTURE_VERSION, Capture, LineSource, LogLine, MemorySample, RequestRow, Stream,
};
use crate::error::Failure;
use crate::wording::count_noun;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What is kept of a sample when a profile is derived, bytes at most.
const SAMPLE_BYTES: u64 = 200;
/// What is kept of a request, bytes at most.
const REQUEST_BYTES: u64 = 400;

/// What is read of a capture first.
#[derive(Deserialize)]
struct CaptureHead {
    #[serde(default)]
    capture_version: Option<u64>,
}

/// A capture on disk.
#[derive(Debug)]
pub struct StoredCapture {
    folder: PathBuf,
    /// Its facts.
    pub capture: Capture,
}

impl StoredCapture {
    /// Opens the capture in a folder, or the one that a profile was derived from.
    pub fn open(path: &Path) -> Result<StoredCapture, Failure> {
        if path.is_file() {
            Self::of_profile(path)
        } else {
            Self::in_folder(path)
        }
    }

    /// The capture beside a profile, by the run that both speak of: a file that was written
    /// again has an older run's capture beside it too.
    fn of_profile(profile: &Path) -> Result<StoredCapture, Failure> {
        let shown = profile.display();
        let run = run_of_profile(profile)
            .ok_or_else(|| Failure::usage(format!("`{shown}` is not a profile")).hint("name a JSON file of `plimsoll profile` or `run`, or its folder that ends in `.capture`"))?;
        let own = profile.with_extension("capture");
        let beside = std::fs::read_dir(super::folder_of(profile))
            .into_iter()
            .flatten();
        let others = beside.flatten().map(|entry| entry.path());
        std::iter::once(own)
            .chain(others.filter(|p| p.extension().is_some_and(|e| e == "capture")))
            .filter_map(|folder| Self::in_folder(&folder).ok())
            .find(|stored| stored.capture.run_id == run)
            .ok_or_else(|| {
                Failure::usage(format!("the capture of `{shown}` is not beside it")).hint(format!(
                    "find the `.capture` folder whose capture.json names run {run}, and give that folder"
                ))
            })
    }

    /// Where a profile of this capture belongs: beside it. Refused where that is another run's.
    pub fn profile_path(&self) -> Result<PathBuf, Failure> {
        let folder = std::fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let path = folder.with_extension("json");
        match run_of_profile(&path) {
            Some(run) if run != self.capture.run_id => Err(Failure::usage(format!(
                "`{}` is the profile of another run",
                path.display()
            ))
            .hint("name another file with --output")),
            _ => Ok(path),
        }
    }

    fn in_folder(folder: &Path) -> Result<StoredCapture, Failure> {
        let file = folder.join(CAPTURE_FILE);
        let bytes = bounded::read_document(&file).map_err(|e| {
            if e.kind() == std::io::ErrorKind::InvalidData {
                return bounded::unreadable_input(&file, e);
            }
            if [SAMPLES_FILE, LOG_FILE].iter().any(|f| folder.join(f).is_file()) {
                return Failure::usage(format!(
                    "the capture in `{}` is incomplete: its run ended before `{CAPTURE_FILE}` was written",
                    folder.display()
                ))
                .hint("run it again; Ctrl-C once keeps a capture, twice leaves at once")
                .caused_by(e);
            }
            Failure::usage(format!("no capture in `{}`", folder.display()))
                .hint("give the folder that ends in `.capture`, or the profile beside it")
                .caused_by(e)
        })?;
        let broken = |e: serde_json::Error| {
            Failure::usage(format!(
                "`{}` is damaged, or is not the capture.json of a capture",
                file.display()
            ))
            .hint("copy the whole folder that ends in `.capture` again")
            .caused_by(e)
        };
        let CaptureHead { capture_version } = bounded::parse_json(&bytes).map_err(broken)?;
        if capture_version.is_some_and(|v| v > u64::from(CAPTURE_VERSION)) {
            return Err(bounded::newer_document(&file));
        }
        let capture = bounded::parse_json(&bytes).map_err(broken)?;
        Ok(StoredCapture {
            folder: folder.to_owned(),
            capture,
        })
    }

    /// The samples. A last line that was cut off by a crash or a full disk is left out; of other damaged lines a warning
    /// says how many they are.
    pub fn read_samples(&self) -> Result<impl Iterator<Item = MemorySample> + use<>, Failure> {
        let path = self.folder.join(SAMPLES_FILE);
        let lines = lines_of(&path, SAMPLE_BYTES)?;
        Ok(keep_readable(path, 1, lines, |line: &String| {
            serde_json::from_str(line).ok()
        }))
    }

    /// The requests of plimsoll's own load client; none where it did not run.
    pub fn read_requests(&self) -> Result<impl Iterator<Item = RequestRow> + use<>, Failure> {
        let path = self.folder.join(REQUESTS_FILE);
        let rows = path
            .exists()
            .then(|| lines_of(&path, REQUEST_BYTES))
            .transpose()?;
        let rows = rows.into_iter().flatten();
        Ok(keep_readable(path, 1, rows, |line: &String| {
            serde_json::from_str(line).ok()
        }))
    }

    /// The lines of output.
    pub fn read_lines(&self) -> Result<impl Iterator<Item = LogLine> + use<>, Failure> {
        let path = self.folder.join(LOG_FILE);
        let lines = lines_of(&path, 0)?;
        Ok(keep_readable(path, 1, lines, |line: &String| {
            parse_line(line)
        }))
    }
}

/// The run id in a profile; `None` for other files.
fn run_of_profile(profile: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct ProfileDocument {
        metadata: ProfileMetadata,
    }
    #[derive(Deserialize)]
    struct ProfileMetadata {
        run_id: String,
    }
    let bytes = bounded::read_document(profile).ok()?;
    let document: ProfileDocument = bounded::parse_json(&bytes).ok()?;
    Some(document.metadata.run_id)
}

/// What `read` makes of the lines of a file from number `first` on. Those that it cannot read are left out, and counted in a warning at the end;
/// the last may be torn.
pub(super) fn keep_readable<L, T>(
    path: PathBuf,
    first: u64,
    lines: impl Iterator<Item = L>,
    read: impl Fn(&L) -> Option<T>,
) -> impl Iterator<Item = T> {
    let mut lines = lines.zip(first..).peekable();
    let (mut damaged, mut first_damaged) = (0u64, None);
    std::iter::from_fn(move || {
        loop {
            let Some((line, number)) = lines.next() else {
                if let Some(first) = first_damaged.take() {
                    log::warn!(
                        "`{}` has {}, the first is line {first}: what they held is missing",
                        path.display(),
                        count_noun(damaged, "damaged line")
                    );
                }
                return None;
            };
            match read(&line) {
                Some(record) => return Some(record),
                None if lines.peek().is_some() => {
                    damaged += 1;
                    first_damaged.get_or_insert(number);
                }
                None => {}
            }
        }
    })
}

/// The lines of a stream; its records need `each` bytes in memory.
fn lines_of(path: &Path, each: u64) -> Result<impl Iterator<Item = String> + use<>, Failure> {
    let mut reader =
        bounded::open_records(path, each).map_err(|e| bounded::unreadable_input(path, e))?;
    Ok(std::iter::from_fn(move || {
        let line = bounded::read_line(&mut reader).ok().flatten()?;
        let text = String::from_utf8(line);
        Some(text.unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }))
}

fn parse_line(line: &str) -> Option<LogLine> {
    let mut fields = line.splitn(4, ' ');
    let at_ns = fields.next()?.parse().ok()?;
    let source = match fields.next()? {
        "c" => LineSource::Container,
        n => LineSource::Exec(n.parse().ok()?),
    };
    let stream = match fields.next()? {
        "o" => Stream::Stdout,
        "e" => Stream::Stderr,
        "c" => Stream::Console,
        _ => return None,
    };
    Some(LogLine {
        at_ns,
        source,
        stream,
        text: fields.next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::CaptureWriter;
    use super::*;
    use proptest::prelude::*;

    fn line() -> impl Strategy<Value = LogLine> {
        (
            any::<i64>(),
            proptest::option::of(0..9u32),
            0..3usize,
            "[^\n]{0,40}",
        )
            .prop_map(|(at_ns, exec, stream, text)| LogLine {
                at_ns,
                source: exec.map_or(LineSource::Container, LineSource::Exec),
                stream: [Stream::Stdout, Stream::Stderr, Stream::Console][stream],
                text,
            })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(lines in proptest::collection::vec(line(), 0..20), used in proptest::collection::vec(any::<u64>(), 0..20)) {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = CaptureWriter::create_folder(dir.path(), u64::MAX).unwrap();
            let samples: Vec<MemorySample> = used.into_iter().map(|used_bytes| MemorySample { used_bytes, ..Default::default() }).collect();
            lines.iter().for_each(|l| writer.add_line(l));
            samples.iter().for_each(|s| writer.write_sample(s));
            let capture = Capture { capture_version: CAPTURE_VERSION, run_id: "r".into(), ..Default::default() };
            writer.finish_capture(&capture).unwrap();
            let stored = StoredCapture::open(dir.path()).unwrap();
            prop_assert_eq!(&stored.capture, &capture);
            prop_assert_eq!(stored.read_lines().unwrap().collect::<Vec<_>>(), lines);
            prop_assert_eq!(stored.read_samples().unwrap().collect::<Vec<_>>(), samples);
        }
    }

    #[test]
    fn a_flood_does_not_fill_the_disk_and_its_last_words_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = CaptureWriter::create_folder(dir.path(), 1000).unwrap();
        for i in 0..40_000 {
            writer.add_line(&LogLine {
                source: LineSource::Exec(0),
                text: format!("{i:0>100}"),
                ..Default::default()
            });
        }
        let facts = writer.end_log();
        assert!(
            facts.bytes < 3 << 20 && facts.dropped_lines > 20_000,
            "{facts:?}"
        );
        assert_eq!(facts.lines + facts.dropped_lines, 40_000);
        writer.finish_capture(&Capture::default()).unwrap();
        let stored = StoredCapture::open(dir.path()).unwrap();
        let lines: Vec<String> = stored.read_lines().unwrap().map(|l| l.text).collect();
        assert_eq!(lines[0], format!("{:0>100}", 0));
        assert_eq!(*lines.last().unwrap(), format!("{:0>100}", 39_999));
    }

    #[test]
    fn a_profile_finds_the_capture_of_its_own_run() {
        let dir = tempfile::tempdir().unwrap();
        for (name, run) in [("a.capture", "first"), ("a-2.capture", "second")] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            let writer = CaptureWriter::create_folder(&dir.path().join(name), 1000).unwrap();
            let capture = Capture {
                run_id: run.into(),
                ..Default::default()
            };
            writer.finish_capture(&capture).unwrap();
        }
        let profile = dir.path().join("a.json");
        std::fs::write(&profile, r#"{"metadata": {"run_id": "second"}}"#).unwrap();
        assert_eq!(
            StoredCapture::open(&profile).unwrap().capture.run_id,
            "second"
        );
        // And the first run's capture must not overwrite the second's profile.
        let first = StoredCapture::open(&dir.path().join("a.capture")).unwrap();
        assert!(
            first
                .profile_path()
                .unwrap_err()
                .message
                .contains("another run")
        );
    }

    #[test]
    fn what_was_flushed_survives_a_writer_that_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = CaptureWriter::create_folder(dir.path(), u64::MAX).unwrap();
        writer.add_line(&LogLine::default());
        (0..7).for_each(|_| writer.write_sample(&MemorySample::default()));
        writer.flush_files();
        (0..3).for_each(|_| writer.write_sample(&MemorySample::default()));
        // As if the process had ended: nothing that it still holds is written.
        std::mem::forget(writer);
        std::fs::write(dir.path().join(CAPTURE_FILE), "{}").unwrap();
        let stored = StoredCapture {
            folder: dir.path().to_owned(),
            capture: Capture::default(),
        };
        assert_eq!(stored.read_samples().unwrap().count(), 7);
        assert_eq!(stored.read_lines().unwrap().count(), 1);
    }

    #[test]
    fn a_capture_of_the_future_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CAPTURE_FILE), r#"{"capture_version": 999}"#).unwrap();
        assert!(
            StoredCapture::open(dir.path())
                .unwrap_err()
                .message
                .contains("newer")
        );
        assert!(
            StoredCapture::open(&dir.path().join("nowhere"))
                .unwrap_err()
                .message
                .contains("no capture")
        );
    }
}
