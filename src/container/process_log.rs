//! The log of an engine that no daemon keeps: a file that grows, or standard input. A line keeps the time
//! at its beginning (CRI, `--timestamps`); another one the time at which it came.

use super::lines::{LineCutter, parse_stamp};
use super::logs::LogHistory;
use crate::bounded;
use crate::capture::{LogFacts, Stream};
use crate::clock::wall_now_ns;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Between two looks at a file that has not grown.
const LOOK: Duration = Duration::from_millis(100);

/// How long lines of standard input are still accepted after cancellation.
const LAST_LINES: Duration = Duration::from_millis(300);

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Where an engine's log is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogSource {
    /// Not named: where the process itself writes it, if that is a file.
    #[default]
    Unnamed,
    /// A file.
    File(PathBuf),
    /// Standard input.
    Input,
}

/// A log that is read from its first line on: a file as often as it is asked for, standard input once.
#[derive(Debug)]
pub(super) struct ProcessLog {
    source: LogSource,
    reader: Mutex<Option<Reader>>,
}

impl ProcessLog {
    pub(super) fn new(source: LogSource) -> ProcessLog {
        ProcessLog {
            source,
            reader: Mutex::new(None),
        }
    }

    /// Reads the file (of standard input: all that comes), until `sink` breaks.
    pub(super) async fn read_history(
        &self,
        cap_bytes: u64,
        cancel: &CancellationToken,
        mut sink: impl FnMut(i64, Stream, String) -> ControlFlow<()> + Send,
    ) -> LogHistory {
        let mut history = LogHistory::default();
        let mut reader = self.reader.lock().await;
        if let LogSource::File(_) = &self.source {
            // One that was open can be read on where the file has lost its name.
            let again = Reader::open(&self.source).ok();
            *reader = again.or(reader.take());
        }
        let reader = match self.open(&mut reader) {
            Ok(reader) => reader,
            Err(why) => {
                history.facts.error = Some(why);
                return history;
            }
        };
        loop {
            while let Some((at_ns, line)) = reader.lines.pop_front() {
                history.last_ns = Some(at_ns);
                history.facts.lines += 1;
                history.facts.bytes += line.len() as u64 + 1;
                let full = history.facts.bytes >= cap_bytes;
                if sink(at_ns, Stream::Console, line).is_break() || full {
                    return history;
                }
            }
            let more = tokio::select! {
                more = reader.fill() => more,
                () = cancel.cancelled() => return history,
            };
            if !more {
                history.complete = true;
                return history;
            }
        }
    }

    /// Gives the lines from `from_ns` on until `cancel` fires.
    pub(super) async fn follow_lines(
        &self,
        from_ns: i64,
        cancel: &CancellationToken,
        mut sink: impl FnMut(i64, Stream, String) + Send,
    ) -> LogFacts {
        let mut facts = LogFacts::default();
        let mut reader = self.reader.lock().await;
        let reader = match self.open(&mut reader) {
            Ok(reader) => reader,
            Err(why) => {
                facts.error = Some(why);
                return facts;
            }
        };
        loop {
            for (at_ns, line) in reader
                .lines
                .drain(..)
                .filter(|(at_ns, _)| *at_ns >= from_ns)
            {
                facts.lines += 1;
                facts.bytes += line.len() as u64 + 1;
                sink(at_ns, Stream::Console, line);
            }
            if cancel.is_cancelled() {
                // What was written before the end may not have been read.
                let more = timeout(LAST_LINES, reader.fill()).await;
                if more != Ok(true) {
                    reader.finish_line();
                    if reader.lines.is_empty() {
                        return facts;
                    }
                }
                continue;
            }
            tokio::select! {
                more = reader.fill() => if !more {
                    tokio::select! {
                        () = sleep(LOOK) => {}
                        () = cancel.cancelled() => {}
                    }
                },
                () = cancel.cancelled() => {}
            }
        }
    }

    fn open<'a>(&self, reader: &'a mut Option<Reader>) -> Result<&'a mut Reader, String> {
        let opened = match reader.take() {
            Some(reader) => reader,
            None => Reader::open(&self.source)?,
        };
        Ok(reader.insert(opened))
    }
}

#[derive(Debug)]
struct Reader {
    from: OpenLog,
    cutter: LineCutter,
    /// Whole lines that were not taken yet, with their times.
    lines: VecDeque<(i64, String)>,
}

#[derive(Debug)]
enum OpenLog {
    File {
        path: PathBuf,
        file: File,
        /// Position in the file.
        read: u64,
        /// Size when it was opened, and when it was last written: lines in there are not newer.
        old: (u64, i64),
    },
    Input(mpsc::Receiver<Vec<u8>>),
}

impl Reader {
    fn open(source: &LogSource) -> Result<Reader, String> {
        let from = match source {
            LogSource::Unnamed => {
                return Err("its log goes to no file, and none was named: --log FILE".to_owned());
            }
            LogSource::Input => OpenLog::Input(read_input().map_err(|e| e.to_string())?),
            LogSource::File(path) => {
                let opened = open_log(path.clone());
                opened.map_err(|e| format!("the log `{}` cannot be read: {e}", path.display()))?
            }
        };
        Ok(Reader {
            from,
            cutter: LineCutter::default(),
            lines: VecDeque::new(),
        })
    }

    /// Reads on; false where there is no more now.
    async fn fill(&mut self) -> bool {
        let (bytes, came_ns) = match &mut self.from {
            OpenLog::Input(chunks) => match chunks.recv().await {
                Some(bytes) => (bytes, wall_now_ns()),
                None => return false,
            },
            OpenLog::File {
                path,
                file,
                read,
                old,
            } => {
                // A file of hundreds of MB leaves the others their turn.
                tokio::task::yield_now().await;
                let mut bytes = vec![0; CHUNK];
                let count = file.read(&mut bytes).unwrap_or(0);
                if count == 0 {
                    // Rotated: a new file has the name, or the old one was cut.
                    let Some(next) = rotated(path, file, *read) else {
                        return false;
                    };
                    self.from = next;
                    self.finish_line();
                    return true;
                }
                bytes.truncate(count);
                let before = *read;
                *read += count as u64;
                (bytes, if before < old.0 { old.1 } else { wall_now_ns() })
            }
        };
        let lines = &mut self.lines;
        (self.cutter).feed_bytes(&bytes, |line| {
            lines.push_back((time_of(&line, came_ns), line))
        });
        true
    }

    fn finish_line(&mut self) {
        let lines = &mut self.lines;
        self.cutter
            .finish_line(|line| lines.push_back((time_of(&line, wall_now_ns()), line)));
    }
}

fn open_log(path: PathBuf) -> io::Result<OpenLog> {
    let file = bounded::open_regular(&path)?;
    let metadata = file.metadata()?;
    let written = metadata.modified()?.duration_since(UNIX_EPOCH);
    let written = written.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    });
    Ok(OpenLog::File {
        path,
        file,
        read: 0,
        old: (metadata.len(), written.min(wall_now_ns())),
    })
}

/// The file that took the place of one which was read to its end.
fn rotated(path: &PathBuf, file: &File, read: u64) -> Option<OpenLog> {
    let (now, metadata) = (std::fs::metadata(path).ok()?, file.metadata().ok()?);
    let same = (now.dev(), now.ino()) == (metadata.dev(), metadata.ino());
    if same && now.len() >= read {
        return None;
    }
    open_log(path.clone()).ok()
}

/// Standard input, read by a thread of its own: a read of it cannot be interrupted.
fn read_input() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, chunks) = mpsc::channel(16);
    let read = move || {
        let mut input = io::stdin().lock();
        let mut bytes = vec![0; CHUNK];
        while let Ok(count) = input.read(&mut bytes) {
            if count == 0 || sender.blocking_send(bytes[..count].to_vec()).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().spawn(read)?;
    Ok(chunks)
}

/// The time at the beginning of a line, or the one at which it came.
fn time_of(line: &str, came_ns: i64) -> i64 {
    let word = line.split(' ').next().unwrap_or_default();
    parse_stamp(word.as_bytes()).unwrap_or(came_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn a_file_is_read_from_its_first_line_and_followed_over_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        std::fs::write(&path, "2026-11-26T01:02:03.5Z stdout F one\ntwo\nthree").unwrap();
        let log = ProcessLog::new(LogSource::File(path.clone()));
        let (cancel, mut lines) = (CancellationToken::new(), Vec::new());
        let before = wall_now_ns();
        let history = log
            .read_history(u64::MAX, &cancel, |at_ns, _, line| {
                lines.push((at_ns, line));
                match lines.len() {
                    1 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            })
            .await;
        assert!(!history.complete);
        assert_eq!(lines[0].0, 1_795_654_923_500_000_000);
        // Who asks again gets it whole again; what was read does not come to who follows then.
        let again = |at_ns: i64, _, line: String| {
            assert!(at_ns <= before + 60_000_000_000);
            lines.push((at_ns, line));
            ControlFlow::Continue(())
        };
        assert!(log.read_history(u64::MAX, &cancel, again).await.complete);
        assert_eq!(lines.len(), 3, "the third line has no end yet: {lines:?}");
        lines.remove(0);

        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        writeln!(file, " and more").unwrap();
        std::fs::rename(&path, folder.path().join("0.log.1")).unwrap();
        std::fs::write(&path, "four\nlast\n").unwrap();
        let mut lines = Vec::new();
        let stop = cancel.clone();
        let followed = log.follow_lines(0, &cancel, |_, _, line| {
            if line == "last" {
                stop.cancel();
            }
            lines.push(line);
        });
        let facts = followed.await;
        assert_eq!(lines, ["three and more", "four", "last"]);
        assert_eq!((facts.lines, facts.error), (3, None));
    }

    #[tokio::test]
    async fn lines_from_before_the_run_are_left_out_and_no_log_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "old\n2099-01-01T00:00:00Z new\n").unwrap();
        let log = ProcessLog::new(LogSource::File(path));
        let cancel = CancellationToken::new();
        cancel.cancel();
        let mut lines = Vec::new();
        let from = wall_now_ns() + 1_000_000_000;
        log.follow_lines(from, &cancel, |_, _, line| lines.push(line))
            .await;
        assert_eq!(lines, ["2099-01-01T00:00:00Z new"]);

        for source in [LogSource::Unnamed, LogSource::File("/no/such/file".into())] {
            let log = ProcessLog::new(source);
            let facts = log.follow_lines(0, &cancel, |_, _, _| {}).await;
            assert!(facts.error.is_some());
        }
    }
}
