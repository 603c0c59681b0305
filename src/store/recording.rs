//! A recorded session of device samples, one JSON document per line. The first describes what was
//! measured, the last how it went; all others are samples.

use super::reader::keep_readable;
use super::writer::write_json_line;
use super::{bounded, newer_plimsoll, private, write_failure};
use crate::capture::{BackendFacts, DeviceFacts, MemorySample, SamplingFacts};
use crate::error::Failure;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Version of the format. A reader refuses a newer one.
const VERSION: u32 = 1;
/// What is kept of a sample, and what is made of it, bytes at most.
const KEPT_BYTES: u64 = size_of::<MemorySample>() as u64 + 200;

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// Version of the format.
    pub plimsoll_recording: u32,
    /// `CARGO_PKG_VERSION` of the plimsoll that recorded.
    pub plimsoll_version: String,
    /// Wall time of the samples' zero, nanoseconds since the Unix epoch.
    pub wall_start_ns: i64,
    /// Time between samples that was asked for, nanoseconds.
    pub interval_ns: u64,
    /// Which backend measured.
    pub backend: BackendFacts,
    /// The devices; samples refer to their indexes.
    pub devices: Vec<DeviceFacts>,
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct Footer {
    sampling: SamplingFacts,
}

/// Whether a file begins as `plimsoll record` begins one. `head`: its first bytes.
pub fn begins_recording(head: &[u8]) -> bool {
    let head = &head[..head.len().min(4096)];
    String::from_utf8_lossy(head).contains("\"plimsoll_recording\"")
}

/// A recording, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// What was measured.
    pub header: RecordingHeader,
    /// The samples, in the order they were taken.
    pub samples: Vec<MemorySample>,
    /// How sampling went; `None` when the recording was cut off.
    pub sampling: Option<SamplingFacts>,
}

impl Recording {
    /// Reads a recording. A line that was cut off by a crash or a full disk is left out.
    pub fn read_recording(path: &Path) -> Result<Recording, Failure> {
        let cannot = |e| bounded::unreadable_input(path, e);
        let mut lines = bounded::open_records(path, KEPT_BYTES).map_err(cannot)?;
        let first = bounded::read_line(&mut lines)
            .map_err(cannot)?
            .unwrap_or_default();
        let header: RecordingHeader = serde_json::from_slice(&first).map_err(|e| {
            Failure::usage(format!("`{}` is not a recording", path.display()))
                .hint("`plimsoll record -o FILE` makes one")
                .caused_by(e)
        })?;
        if header.plimsoll_recording > VERSION {
            return Err(newer_plimsoll(path, "recorded"));
        }
        let mut recording = Recording {
            header,
            ..Recording::default()
        };
        let lines = std::iter::from_fn(|| bounded::read_line(&mut lines).ok().flatten());
        let read = |line: &Vec<u8>| {
            let sample = serde_json::from_slice::<MemorySample>(line).map(Ok);
            let record = sample.or_else(|_| serde_json::from_slice::<Footer>(line).map(Err));
            record.ok()
        };
        for record in keep_readable(path.to_owned(), 2, lines, read) {
            match record {
                Ok(sample) => recording.samples.push(sample),
                Err(Footer { sampling }) => recording.sampling = Some(sampling),
            }
        }
        Ok(recording)
    }
}

/// Writes a recording as it is made.
#[derive(Debug)]
pub struct RecordingWriter {
    path: PathBuf,
    out: BufWriter<File>,
}

impl RecordingWriter {
    /// Begins a file that is not there yet: a recording is never written over.
    pub fn create_file(
        path: &Path,
        mut header: RecordingHeader,
    ) -> Result<RecordingWriter, Failure> {
        header.plimsoll_recording = VERSION;
        let file = private::create_file(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::usage(format!("`{}` exists", path.display()))
                    .hint("choose another name: a recording is never written over")
            }
            _ => write_failure(path, e),
        })?;
        let mut writer = RecordingWriter {
            path: path.to_owned(),
            out: BufWriter::new(file),
        };
        writer.write_line(&header)?;
        writer.flush_file()?;
        Ok(writer)
    }

    /// Adds a sample.
    pub fn write_sample(&mut self, sample: &MemorySample) -> Result<(), Failure> {
        self.write_line(sample)
    }

    /// Hands everything to the system, so that it survives the end of this process.
    pub fn flush_file(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|e| write_failure(&self.path, e))
    }

    /// Ends the recording.
    pub fn finish_recording(mut self, sampling: SamplingFacts) -> Result<(), Failure> {
        self.write_line(&Footer { sampling })?;
        self.flush_file()
    }

    fn write_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        write_json_line(&mut self.out, value).map_err(|e| write_failure(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_sample(at_ns: i64) -> MemorySample {
        MemorySample {
            at_ns,
            used_bytes: 7,
            energy_mj: Some(3),
            ..MemorySample::default()
        }
    }

    #[test]
    fn what_was_recorded_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.jsonl");
        let header = RecordingHeader {
            interval_ns: 5,
            devices: vec![DeviceFacts::default()],
            ..RecordingHeader::default()
        };
        let mut writer = RecordingWriter::create_file(&path, header).unwrap();
        writer.write_sample(&write_sample(1)).unwrap();
        writer.write_sample(&write_sample(2)).unwrap();
        writer.flush_file().unwrap();
        let cut = Recording::read_recording(&path).unwrap();
        assert_eq!((cut.samples.len(), &cut.sampling), (2, &None));
        let sampling = SamplingFacts {
            ticks: 2,
            ..SamplingFacts::default()
        };
        writer.finish_recording(sampling.clone()).unwrap();
        let whole = Recording::read_recording(&path).unwrap();
        assert_eq!(whole.samples, [write_sample(1), write_sample(2)]);
        assert_eq!(whole.sampling, Some(sampling));
        assert_eq!(whole.header.interval_ns, 5);
        let again = RecordingWriter::create_file(&path, RecordingHeader::default()).unwrap_err();
        assert!(again.message.contains("exists"), "{again}");
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert!(Recording::read_recording(&path).is_err());
        for text in ["", "{}", "not json", "[1]"] {
            std::fs::write(&path, text).unwrap();
            let e = Recording::read_recording(&path).unwrap_err();
            assert!(e.message.contains("not a recording"), "{text}: {e}");
        }
        let newer = serde_json::to_string(&RecordingHeader {
            plimsoll_recording: 99,
            ..RecordingHeader::default()
        });
        std::fs::write(&path, newer.unwrap()).unwrap();
        assert!(
            Recording::read_recording(&path)
                .unwrap_err()
                .message
                .contains("newer")
        );
    }
}
