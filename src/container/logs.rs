//! A container's log: its history, and following it across restarts without gap or duplicate.

use super::lines::{LogAssembler, LogEntry};
use super::{Runtime, answer, checked_name, is_not_found};
use crate::capture::{ContainerFacts, LogFacts, Stream};
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::{LogsOptions, LogsOptionsBuilder};
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A follow that is silent this long is asked whether it still lives: some daemons stall when
/// they rotate the log.
const SILENCE: Duration = Duration::from_secs(30);

/// Between the end of a follow and the next, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// After cancellation, lines that are on their way are still taken for this long.
const LAST_LINES: Duration = Duration::from_millis(300);

/// The first lines may be older than the start that Docker reports: it notes it afterwards.
const START_SLACK_NS: i64 = 5_000_000_000;

/// How reading a log's history ended.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// How reading went.
    pub facts: LogFacts,
    /// Whether the whole history was read: neither the caller nor the cap stopped it.
    pub complete: bool,
    /// Wall time of the last line that was read, nanoseconds since the Unix epoch.
    pub last_ns: Option<i64>,
}

impl Runtime {
    /// Reads what is in the log already: from the start of the container's present life (or from
    /// `from_ns`) until `sink` breaks, `cap_bytes` have been read, or the log ends.
    ///
    /// `sink` gets wall time (nanoseconds since the Unix epoch), stream, and a whole line.
    pub async fn log_history(
        &self,
        facts: &ContainerFacts,
        from_ns: Option<i64>,
        cap_bytes: u64,
        cancel: &CancellationToken,
        mut sink: impl FnMut(i64, Stream, String) -> ControlFlow<()> + Send,
    ) -> History {
        let mut history = History::default();
        let from = from_ns.unwrap_or_else(|| life_began(facts));
        let mut assembler = self.assembler(facts);
        let mut stopped = false;
        let mut take = |entry: LogEntry, history: &mut History| {
            if stopped || entry.wall_ns < from {
                return stopped;
            }
            history.last_ns = Some(entry.wall_ns);
            entry.lines(|line| {
                if !stopped {
                    history.facts.lines += 1;
                    history.facts.bytes += line.len() as u64 + 1;
                    stopped = sink(entry.wall_ns, entry.stream, line).is_break()
                        || history.facts.bytes >= cap_bytes;
                }
            });
            stopped
        };
        let Ok(id) = checked_name(&facts.id) else {
            return history;
        };
        let mut frames = self.docker.logs(id, Some(options(false, from)));
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame,
                () = cancel.cancelled() => return history,
            };
            match frame {
                Some(Ok(frame)) => {
                    let (stream, bytes) = parts(&frame);
                    let mut stop = false;
                    assembler.feed(stream, bytes, |entry| stop |= take(entry, &mut history));
                    if stop {
                        return history;
                    }
                }
                Some(Err(e)) => {
                    history.facts.error = Some(reason(&e));
                    return history;
                }
                None => break,
            }
        }
        let mut stop = false;
        assembler.finish(|entry| stop |= take(entry, &mut history));
        history.complete = !stop;
        history
    }

    /// Follows the log from `from_ns` (wall time, nanoseconds since the Unix epoch) until `cancel`,
    /// or until the container is removed. Survives restarts: Docker ends a follow with every one.
    ///
    /// `sink` gets wall time, stream, and a whole line; every line once.
    pub async fn log_follow(
        &self,
        facts: &ContainerFacts,
        from_ns: i64,
        cancel: &CancellationToken,
        mut sink: impl FnMut(i64, Stream, String) + Send,
    ) -> LogFacts {
        let mut log = LogFacts::default();
        let Ok(id) = checked_name(&facts.id) else {
            return log;
        };
        let mut seen = Seen::new(from_ns);
        let mut assembler = self.assembler(facts);
        let mut pause = PAUSE.0;
        let mut first = true;
        loop {
            if !first {
                log.reconnects += 1;
            }
            first = false;
            let mut replay = seen.replay();
            let mut take = |entry: LogEntry, seen: &mut Seen, log: &mut LogFacts| {
                if seen.is_new(&entry, &mut replay) {
                    entry.lines(|line| {
                        log.lines += 1;
                        log.bytes += line.len() as u64 + 1;
                        sink(entry.wall_ns, entry.stream, line);
                    });
                }
            };
            let lines_before = log.lines;
            let mut frames = self.docker.logs(id, Some(options(true, seen.since_ns())));
            let mut stopping: Option<Instant> = None;
            let ended = loop {
                let patience = match stopping {
                    Some(at) => at.saturating_duration_since(Instant::now()),
                    None => SILENCE,
                };
                tokio::select! {
                    frame = timeout(patience, frames.next()) => match frame {
                        Ok(Some(Ok(frame))) => {
                            let (stream, bytes) = parts(&frame);
                            assembler.feed(stream, bytes, |entry| take(entry, &mut seen, &mut log));
                        }
                        Ok(Some(Err(e))) => break Ended::Failed(e),
                        Ok(None) => break Ended::Stream,
                        Err(_) if stopping.is_some() => break Ended::Cancelled,
                        Err(_) if self.stalled(id, &seen).await => break Ended::Stream,
                        Err(_) => {}
                    },
                    () = cancel.cancelled(), if stopping.is_none() => stopping = Some(Instant::now() + LAST_LINES),
                }
            };
            if matches!(ended, Ended::Cancelled) || stopping.is_some() {
                assembler.finish(|entry| take(entry, &mut seen, &mut log));
                return log;
            }
            if let Ended::Failed(e) = &ended
                && !is_passing(e)
            {
                if !is_not_found(e) {
                    log.error = Some(reason(e));
                }
                assembler.finish(|entry| take(entry, &mut seen, &mut log));
                return log;
            }
            // A line that the end of the stream cut is replayed whole by the next follow.
            let mut open = None;
            std::mem::replace(&mut assembler, self.assembler(facts))
                .finish(|entry| open = Some(entry));
            pause = if log.lines > lines_before {
                PAUSE.0
            } else {
                (pause * 2).min(PAUSE.1)
            };
            // A follow of a container that has ended returns at once, so wait for its next life.
            if !self.wait_for_life(id, cancel, pause, &seen).await {
                if let Some(entry) = open {
                    take(entry, &mut seen, &mut log);
                }
                return log;
            }
        }
    }

    /// Wall time of the log's last line, nanoseconds since the Unix epoch; `None` where there is no
    /// line, or the log cannot be read in 5 s.
    pub async fn log_last(&self, facts: &ContainerFacts) -> Option<i64> {
        let id = checked_name(&facts.id).ok()?;
        let mut newest = None;
        self.last_line(id, self.assembler(facts), |wall_ns| {
            newest = newest.max(Some(wall_ns));
        })
        .await;
        newest
    }

    fn assembler(&self, facts: &ContainerFacts) -> LogAssembler {
        LogAssembler::new(facts.tty, self.version().podman)
    }

    /// Waits until the log may have something new. `false`: cancelled, or the container is gone.
    async fn wait_for_life(
        &self,
        id: &str,
        cancel: &CancellationToken,
        mut pause: Duration,
        seen: &Seen,
    ) -> bool {
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                () = cancel.cancelled() => return self.has_unseen(id, seen).await,
            }
            match self.state(id).await {
                Ok(Some(state)) if state.status == "running" => return true,
                // What it said last may have come after the follow ended.
                Ok(Some(_)) if self.has_unseen(id, seen).await => return true,
                Ok(Some(_)) => {}
                Ok(None) => return false,
                // The daemon is away (restarted?): so is its log.
                Err(_) => {}
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Whether a silent follow misses something.
    async fn stalled(&self, id: &str, seen: &Seen) -> bool {
        match self.state(id).await {
            Ok(Some(state)) if state.status == "running" => self.has_unseen(id, seen).await,
            _ => true,
        }
    }

    /// Whether the log's last line is younger than all that was seen.
    async fn has_unseen(&self, id: &str, seen: &Seen) -> bool {
        let mut unseen = false;
        let newer = |wall_ns| unseen |= wall_ns > seen.newest_ns;
        self.last_line(id, LogAssembler::new(false, true), newer)
            .await;
        unseen
    }

    /// Tells when the log's last line was written.
    async fn last_line(
        &self,
        id: &str,
        mut assembler: LogAssembler,
        mut told: impl FnMut(i64) + Send,
    ) {
        let last = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .tail("1")
            .build();
        let mut frames = self.docker.logs(id, Some(last));
        let read = async {
            while let Some(Ok(frame)) = frames.next().await {
                let (stream, bytes) = parts(&frame);
                assembler.feed(stream, bytes, |entry| told(entry.wall_ns));
            }
            assembler.finish(|entry| told(entry.wall_ns));
        };
        let _ = timeout(Duration::from_secs(5), read).await;
    }
}

enum Ended {
    Cancelled,
    Stream,
    Failed(Error),
}

/// When the container's present life began, wall nanoseconds, a little early: never later than its
/// first line, and not before the end of its last life.
pub fn life_began(facts: &ContainerFacts) -> i64 {
    let state = &facts.state;
    let started = state.started_ns.unwrap_or_default();
    let early = started.saturating_sub(START_SLACK_NS).max(0);
    match state.finished_ns {
        Some(finished) if finished < started => early.max(finished),
        _ => early,
    }
}

fn options(follow: bool, since_ns: i64) -> LogsOptions {
    // Docker's `since` counts whole seconds here; what it replays too much is dropped by us.
    let since = i32::try_from(since_ns.max(0) / 1_000_000_000).unwrap_or(i32::MAX);
    LogsOptionsBuilder::default()
        .follow(follow)
        .stdout(true)
        .stderr(true)
        .timestamps(true)
        .since(since)
        .build()
}

fn parts(frame: &LogOutput) -> (Stream, &[u8]) {
    let stream = match frame {
        LogOutput::StdErr { .. } => Stream::Stderr,
        LogOutput::StdOut { .. } | LogOutput::StdIn { .. } => Stream::Stdout,
        LogOutput::Console { .. } => Stream::Console,
    };
    (stream, frame.as_ref())
}

/// Errors after which following again makes sense: connections, and podman's late headers.
fn is_passing(e: &Error) -> bool {
    match answer(e) {
        Some((status, message)) => status >= 500 && status != 501 && !is_unreadable(message),
        None => !matches!(e, Error::DockerStreamError { .. }),
    }
}

fn is_unreadable(message: &str) -> bool {
    message.contains("does not support reading")
}

fn reason(e: &Error) -> String {
    let text = e.to_string();
    match answer(e) {
        _ if is_unreadable(&text) => {
            "the container's logging driver keeps no log that Docker can read back (start it with `--log-driver json-file` or `local`)".to_owned()
        }
        Some((_, message)) => format!("the log cannot be read: {}", message.trim()),
        None => format!("the log cannot be read: {text}"),
    }
}

/// Which lines of the last seconds were seen, so that a replay is told from news.
///
/// The streams' lines are stored out of order by a hair, so the newest timestamp alone does not
/// tell: lines are counted by their nanosecond and stream.
#[derive(Debug)]
struct Seen {
    /// Lines before this are not asked for.
    from_ns: i64,
    newest_ns: i64,
    by_second: BTreeMap<i64, HashMap<(i64, u8), u32>>,
}

/// What a replay will repeat.
type Replay = HashMap<(i64, u8), u32>;

/// Seconds that are remembered before the newest.
const REMEMBERED: i64 = 2;

impl Seen {
    fn new(from_ns: i64) -> Self {
        Seen {
            from_ns,
            newest_ns: i64::MIN,
            by_second: BTreeMap::new(),
        }
    }

    /// From when the log is to be read again.
    fn since_ns(&self) -> i64 {
        match self.newest_ns {
            i64::MIN => self.from_ns,
            newest => (newest - (REMEMBERED - 1) * 1_000_000_000).max(self.from_ns),
        }
    }

    fn replay(&self) -> Replay {
        self.by_second
            .values()
            .flatten()
            .map(|(k, n)| (*k, *n))
            .collect()
    }

    fn is_new(&mut self, entry: &LogEntry, replay: &mut Replay) -> bool {
        let key = (entry.wall_ns, entry.stream as u8);
        if entry.wall_ns < self.from_ns {
            return false;
        }
        if let Some(n) = replay.get_mut(&key).filter(|n| **n > 0) {
            *n -= 1;
            return false;
        }
        let second = entry.wall_ns.div_euclid(1_000_000_000);
        *self
            .by_second
            .entry(second)
            .or_default()
            .entry(key)
            .or_default() += 1;
        if entry.wall_ns > self.newest_ns {
            self.newest_ns = entry.wall_ns;
            self.by_second = self.by_second.split_off(&(second - REMEMBERED));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ContainerState;
    use proptest::prelude::*;

    fn entry(wall_ns: i64, stream: Stream) -> LogEntry {
        LogEntry {
            wall_ns,
            stream,
            text: Vec::new(),
            cut: 0,
        }
    }

    #[test]
    fn a_life_begins_before_its_first_line_and_after_the_last_one() {
        let facts = |started, finished| ContainerFacts {
            state: ContainerState {
                started_ns: Some(started),
                finished_ns: finished,
                ..Default::default()
            },
            ..Default::default()
        };
        let s = 1_000_000_000;
        assert_eq!(life_began(&facts(100 * s, None)), 95 * s);
        assert_eq!(life_began(&facts(100 * s, Some(98 * s))), 98 * s);
        assert_eq!(life_began(&facts(100 * s, Some(120 * s))), 95 * s);
        assert_eq!(life_began(&ContainerFacts::default()), 0);
    }

    proptest! {
        /// Whatever the connection delivered before it broke, following again gives every line once.
        #[test]
        fn every_line_is_taken_once_over_any_breaks(
            steps in proptest::collection::vec((0i64..700_000_000, any::<bool>()), 1..60),
            breaks in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let mut at = 1_000_000_000_000_i64;
            let log: Vec<LogEntry> = steps.iter().map(|(step, err)| {
                at += step / 1000 * 1000;
                // Streams are stored out of order by a hair.
                entry(at - i64::from(*err) * 500, if *err { Stream::Stderr } else { Stream::Stdout })
            }).collect();
            let mut seen = Seen::new(0);
            let mut got = Vec::new();
            let mut ends: Vec<usize> = breaks.into_iter().filter(|b| *b <= log.len()).collect();
            ends.sort_unstable();
            ends.push(log.len());
            for end in ends {
                let since = seen.since_ns() / 1_000_000_000 * 1_000_000_000;
                let mut replay = seen.replay();
                for e in log[..end].iter().filter(|e| e.wall_ns >= since) {
                    if seen.is_new(e, &mut replay) {
                        got.push(e.clone());
                    }
                }
            }
            prop_assert_eq!(got, log);
        }
    }
}
