//! Writes a capture while it is taken: samples and lines as they come, the rest at the end.

use super::{
    CAPTURE_FILE, LOG_FILE, REQUESTS_FILE, SAMPLES_FILE, private, write_atomically, write_failure,
};
use crate::capture::{Capture, LineSource, LogFacts, LogLine, MemorySample, RequestRow, Stream};
use crate::error::Failure;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Held free on disk while the run goes on, so that a disk that fills up meanwhile (by our own
/// log, say) still has room for what must be written at the end: the most of these, bytes, that is no
/// more than three quarters of what is free, since the streams need some too.
const BALLAST_BYTES: [u64; 3] = [4 << 20, 1 << 20, 256 << 10];
/// Of a log that outgrows its cap so much is kept from its end, bytes.
const TAIL_BYTES: usize = 1 << 20;

/// The streams of one capture, open for writing.
#[derive(Debug)]
pub struct CaptureWriter {
    folder: PathBuf,
    /// It has no name: of who is killed nothing is left but what was captured.
    ballast: Option<File>,
    samples: BufWriter<File>,
    lines: BufWriter<File>,
    /// Only where a client of ours sends requests.
    requests: Option<BufWriter<File>>,
    log: LogFacts,
    log_cap_bytes: u64,
    /// The newest lines, once the log has outgrown its cap.
    tail: VecDeque<LogLine>,
    tail_bytes: usize,
    failure: Option<Failure>,
}

impl CaptureWriter {
    /// Opens the streams in an empty folder. Of the log at most `log_cap_bytes` are kept.
    pub fn create_folder(folder: &Path, log_cap_bytes: u64) -> Result<CaptureWriter, Failure> {
        let open = |name: &str| {
            let path = folder.join(name);
            private::create_file(&path).map_err(|e| write_failure(&path, e))
        };
        let (samples, lines) = (open(SAMPLES_FILE)?, open(LOG_FILE)?);
        // Where the file system cannot reserve, the run goes on without.
        let ballast = private::unnamed_file(folder).ok();
        if let Some(ballast) = &ballast {
            let whole = rustix::fs::FallocateFlags::empty();
            let free = rustix::fs::fstatvfs(ballast)
                .map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
            let holds = |bytes: &&u64| {
                **bytes <= free / 4 * 3 && rustix::fs::fallocate(ballast, whole, 0, **bytes).is_ok()
            };
            let _ = BALLAST_BYTES.iter().find(holds);
        }
        Ok(CaptureWriter {
            folder: folder.to_owned(),
            ballast,
            samples: BufWriter::new(samples),
            lines: BufWriter::new(lines),
            requests: None,
            log: LogFacts::default(),
            log_cap_bytes,
            tail: VecDeque::new(),
            tail_bytes: 0,
            failure: None,
        })
    }

    /// Adds a sample. After a failed write nothing more is written; see [`CaptureWriter::first_failure`].
    pub fn write_sample(&mut self, sample: &MemorySample) {
        if self.failure.is_none() {
            let written = write_json_line(&mut self.samples, sample);
            self.note_failure(written, SAMPLES_FILE);
        }
    }

    /// Adds a request with redacted texts.
    pub fn add_request(&mut self, row: &RequestRow) {
        if self.failure.is_none() {
            let written = self.write_request(row);
            self.note_failure(written, REQUESTS_FILE);
        }
    }

    fn write_request(&mut self, row: &RequestRow) -> std::io::Result<()> {
        let out = match &mut self.requests {
            Some(out) => out,
            none => {
                let file = private::create_file(&self.folder.join(REQUESTS_FILE))?;
                none.insert(BufWriter::new(file))
            }
        };
        write_json_line(out, row)
    }

    /// Adds a line that is redacted already.
    pub fn add_line(&mut self, line: &LogLine) {
        if self.failure.is_some() {
            return;
        }
        if self.log.bytes + line.text.len() as u64 <= self.log_cap_bytes && self.tail.is_empty() {
            self.keep_tail(line);
            return;
        }
        // Beyond the cap the newest lines are kept: they show how it ended.
        self.tail_bytes += line.text.len();
        self.tail.push_back(line.clone());
        while self.tail_bytes > TAIL_BYTES {
            let Some(oldest) = self.tail.pop_front() else {
                break;
            };
            self.tail_bytes -= oldest.text.len();
            self.log.dropped_lines += 1;
        }
    }

    fn keep_tail(&mut self, line: &LogLine) {
        self.log.lines += 1;
        self.log.bytes += line.text.len() as u64;
        let written = write_line(&mut self.lines, line);
        self.note_failure(written, LOG_FILE);
    }

    /// Hands everything to the system, so that it survives the end of this process. After a
    /// failed write it does nothing.
    pub fn flush_files(&mut self) {
        if self.failure.is_none() {
            let written = self.flush_streams();
            self.note_failure(written, LOG_FILE);
        }
    }

    fn flush_streams(&mut self) -> std::io::Result<()> {
        self.samples.flush()?;
        self.lines.flush()?;
        self.requests.as_mut().map_or(Ok(()), Write::flush)
    }

    /// Why writing stopped, if it did.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Writes what is left of the log; returns what was kept of it.
    pub fn end_log(&mut self) -> LogFacts {
        for line in std::mem::take(&mut self.tail) {
            self.keep_tail(&line);
        }
        self.log.clone()
    }

    fn note_failure(&mut self, written: std::io::Result<()>, file: &str) {
        if let Err(e) = written {
            self.failure
                .get_or_insert(write_failure(&self.folder.join(file), e));
        }
    }

    /// Ends the streams and writes the rest of the capture.
    pub fn finish_capture(mut self, capture: &Capture) -> Result<(), Failure> {
        self.ballast = None;
        // Buffers that could not be written for want of space may fit now.
        let written = self.flush_streams();
        self.note_failure(written, LOG_FILE);
        let path = self.folder.join(CAPTURE_FILE);
        let mut bytes =
            serde_json::to_vec_pretty(capture).map_err(|e| write_failure(&path, e.into()))?;
        bytes.push(b'\n');
        write_atomically(&path, &bytes)?;
        self.failure.map_or(Ok(()), Err)
    }
}

/// A value as one line of JSON.
pub(super) fn write_json_line(out: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// One line of the log file: moment, source, stream, text.
fn write_line(out: &mut impl Write, line: &LogLine) -> std::io::Result<()> {
    match line.source {
        LineSource::Container => write!(out, "{} c ", line.at_ns)?,
        LineSource::Exec(n) => write!(out, "{} {n} ", line.at_ns)?,
    }
    let stream: &[u8] = match line.stream {
        Stream::Stdout => b"o ",
        Stream::Stderr => b"e ",
        Stream::Console => b"c ",
    };
    out.write_all(stream)?;
    // A line holds no newline by its making; one that slipped in must not become two.
    out.write_all(line.text.replace('\n', " ").as_bytes())?;
    out.write_all(b"\n")
}
