//! A container's log: its history, and following it across restarts without gaps or duplicates.

use super::frames::stream_parts;
use super::lines::{LogAssembler, LogEntry};
use super::observed::{LineReplay, ObservedLines, SECOND_NS, latest_time};
use super::{Runtime, checked_name, daemon_answer, is_not_found};
use crate::capture::{ContainerFacts, LogFacts, Stream};
use crate::clock::wall_now_ns;
use bollard::errors::Error;
use bollard::query_parameters::{LogsOptions, LogsOptionsBuilder};
use futures::StreamExt;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A follow that is silent this long is checked: some daemons stall when they rotate the log.
const SILENCE: Duration = Duration::from_secs(30);

/// Pause between two follows: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Timeout for reading the end of a log.
const LAST_READ: Duration = Duration::from_secs(5);

/// How often a temporary refusal (409, while a daemon starts) is retried.
const REFUSALS: u32 = 3;

/// How often an interrupted history is resumed.
const ATTEMPTS: u32 = 5;

/// How long lines are still accepted after cancellation.
const LAST_LINES: Duration = Duration::from_millis(300);

/// The first lines may be older than Docker's start time, which it records afterwards.
const START_SLACK_NS: i64 = 5_000_000_000;

/// Result of reading a log's history.
#[derive(Debug, Clone, Default)]
pub struct LogHistory {
    /// Counts and errors.
    pub facts: LogFacts,
    /// Whether the whole history was read: neither the caller nor the cap stopped it.
    pub complete: bool,
    /// Wall time of the last line that was read, nanoseconds since the Unix epoch.
    pub last_ns: Option<i64>,
    /// Its last lines, where following continues.
    lines: ObservedLines,
}

impl Runtime {
    /// Reads the existing log: from the start of the container's current life (or from `from_ns`)
    /// until `sink` breaks, `cap_bytes` have been read, or the log ends.
    ///
    /// `sink` receives wall time (nanoseconds since the Unix epoch), stream, and a whole line.
    pub async fn log_history(
        &self,
        facts: &ContainerFacts,
        from_ns: Option<i64>,
        cap_bytes: u64,
        cancel: &CancellationToken,
        mut sink: impl FnMut(i64, Stream, String) -> ControlFlow<()> + Send,
    ) -> LogHistory {
        if let Some(process) = self.process() {
            return process.log.read_history(cap_bytes, cancel, sink).await;
        }
        let mut history = LogHistory::default();
        let from = from_ns.unwrap_or_else(|| life_began(facts));
        history.lines.from_ns = from;
        let mut assembler = self.assembler(facts);
        let mut stopped = false;
        let mut take = |entry: LogEntry, history: &mut LogHistory| {
            if stopped || latest_time(entry.wall_ns) < from {
                return stopped;
            }
            history.last_ns = Some(entry.wall_ns);
            history.lines.is_new(&entry, &mut LineReplay::default());
            history.facts.whole_seconds = history.lines.whole_seconds();
            entry.each_line(|line| {
                if !stopped {
                    history.facts.lines += 1;
                    history.facts.bytes += line.len() as u64 + 1;
                    stopped = sink(entry.wall_ns, entry.stream, line).is_break()
                        || history.facts.bytes >= cap_bytes;
                }
            });
            stopped
        };
        let (Ok(id), Ok(docker)) = (checked_name(&facts.id), self.daemon()) else {
            return history;
        };
        // After a broken connection the next one repeats earlier lines.
        let mut lines = ObservedLines::new(from);
        let mut replay = lines.begin_replay();
        let (mut frames, mut attempts) = (docker.logs(id, Some(log_options(false, from))), 1);
        loop {
            let frame = tokio::select! {
                frame = timeout(SILENCE, frames.next()) => frame,
                () = cancel.cancelled() => return history,
            };
            let failure = match frame {
                Ok(Some(Ok(frame))) => {
                    let (stream, bytes) = stream_parts(&frame);
                    let mut stop = false;
                    assembler.feed_frame(stream, bytes, |entry| {
                        if lines.is_new(&entry, &mut replay) {
                            stop |= take(entry, &mut history);
                        }
                    });
                    if stop {
                        return history;
                    }
                    continue;
                }
                Ok(Some(Err(e))) => e,
                Ok(None) => break,
                Err(_) => Error::RequestTimeoutError,
            };
            if attempts == ATTEMPTS || !is_passing(&failure) {
                history.facts.error = Some(reason(&failure));
                return history;
            }
            attempts += 1;
            tokio::select! {
                () = sleep(PAUSE.1) => {}
                () = cancel.cancelled() => return history,
            }
            assembler.reset_streams();
            replay = lines.begin_replay();
            frames = docker.logs(id, Some(log_options(false, lines.since_ns())));
        }
        let mut stop = false;
        assembler.finish_entries(|entry| stop |= take(entry, &mut history));
        history.complete = !stop;
        history
    }

    /// Follows the log from `from_ns` (wall time, nanoseconds since the Unix epoch) until `cancel`
    /// fires, or until the container is removed. Survives restarts, at which Docker ends each
    /// follow.
    ///
    /// `sink` receives wall time, stream, and a whole line; every line once.
    pub async fn log_follow(
        &self,
        facts: &ContainerFacts,
        from_ns: i64,
        cancel: &CancellationToken,
        sink: impl FnMut(i64, Stream, String) + Send,
    ) -> LogFacts {
        let history = LogHistory {
            lines: ObservedLines::new(from_ns),
            ..LogHistory::default()
        };
        self.log_follow_after(facts, history, cancel, sink).await
    }

    /// As [`log_follow`](Self::log_follow), continuing after a completely read history.
    pub async fn log_follow_after(
        &self,
        facts: &ContainerFacts,
        history: LogHistory,
        cancel: &CancellationToken,
        mut sink: impl FnMut(i64, Stream, String) + Send,
    ) -> LogFacts {
        let mut lines = history.lines;
        if let Some(process) = self.process() {
            return process.log.follow_lines(lines.from_ns, cancel, sink).await;
        }
        let mut log = LogFacts {
            whole_seconds: lines.whole_seconds(),
            ..LogFacts::default()
        };
        let (Ok(id), Ok(docker)) = (checked_name(&facts.id), self.daemon()) else {
            return log;
        };
        let mut assembler = self.assembler(facts);
        let mut pause = PAUSE.0;
        let mut refusals = 0;
        let mut first = true;
        loop {
            if !first {
                log.reconnects += 1;
            }
            first = false;
            let mut replay = lines.begin_replay();
            let mut take = |entry: LogEntry, lines: &mut ObservedLines, log: &mut LogFacts| {
                if lines.is_new(&entry, &mut replay) {
                    give(&entry, lines, log, &mut sink);
                }
            };
            let lines_before = log.lines;
            let mut frames = docker.logs(id, Some(log_options(true, lines.since_ns())));
            let mut stopping: Option<Instant> = None;
            let ended = loop {
                let patience = match stopping {
                    Some(at) => at.saturating_duration_since(Instant::now()),
                    None => SILENCE,
                };
                tokio::select! {
                    frame = timeout(patience, frames.next()) => match frame {
                        Ok(Some(Ok(frame))) => {
                            let (stream, bytes) = stream_parts(&frame);
                            assembler.feed_frame(stream, bytes, |entry| take(entry, &mut lines, &mut log));
                        }
                        Ok(Some(Err(e))) => break FollowEnd::Failed(e),
                        Ok(None) => break FollowEnd::Stream,
                        Err(_) if stopping.is_some() => break FollowEnd::Cancelled,
                        Err(_) if self.stalled(id, &lines).await => break FollowEnd::Stream,
                        Err(_) => {}
                    },
                    () = cancel.cancelled(), if stopping.is_none() => stopping = Some(Instant::now() + LAST_LINES),
                }
            };
            if matches!(ended, FollowEnd::Cancelled) || stopping.is_some() {
                // The follow may have stalled, or a broken one may have left a partial line.
                if self.has_unseen(id, &lines).await != Some(false) {
                    let rest = self.rest(facts, &mut lines, &mut log, &mut sink).await;
                    log.error = rest.err();
                } else {
                    assembler.finish_entries(|entry| take(entry, &mut lines, &mut log));
                }
                return log;
            }
            let refused = matches!(&ended, FollowEnd::Failed(e) if !is_passing(e));
            // A container counts as gone only after two answers.
            let gone = match &ended {
                FollowEnd::Failed(e) if is_not_found(e) => {
                    matches!(self.container_state(id).await, Ok(None))
                }
                _ => false,
            };
            if let FollowEnd::Failed(e) = &ended {
                let given_up = !is_not_found(e) && (!passes_later(e) || refusals >= REFUSALS);
                if refused && (gone || given_up) {
                    if !gone {
                        log.error = Some(reason(e));
                    }
                    assembler.finish_entries(|entry| take(entry, &mut lines, &mut log));
                    return log;
                }
            }
            refusals += u32::from(refused);
            // A line truncated by the end of the stream is repeated whole by the next follow.
            let mut open = Vec::new();
            std::mem::replace(&mut assembler, self.assembler(facts))
                .finish_entries(|entry| open.push(entry));
            let found_lines = log.lines > lines_before;
            pause = if found_lines {
                PAUSE.0
            } else {
                (pause * 2).min(PAUSE.1)
            };
            // A follow of an ended container returns at once, so wait for its next start.
            loop {
                let next = self.wait_for_life(id, cancel, pause, &lines, &open, found_lines);
                match next.await {
                    Next::Follow => break,
                    // A line that is still open has no newline (podman reports that), and its
                    // timestamp may be too coarse to know whether there is more.
                    Next::Close => match self.rest(facts, &mut lines, &mut log, &mut sink).await {
                        Ok(true) => open.clear(),
                        Ok(false) => {}
                        Err(why) => log::debug!("the end of the log: {why}"),
                    },
                    Next::Over => {
                        let mut replay = lines.begin_replay();
                        open.retain(|entry| lines.is_new(entry, &mut replay));
                        for entry in &open {
                            give(entry, &lines, &mut log, &mut sink);
                        }
                        return log;
                    }
                }
            }
        }
    }

    /// Wall time of the log's last line, nanoseconds since the Unix epoch; `None` if there is no
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

    /// Waits until the log may have new lines. `open`: its incomplete lines. `found_lines`: the last
    /// follow brought complete ones; where it did not, the next would leave the same lines open.
    async fn wait_for_life(
        &self,
        id: &str,
        cancel: &CancellationToken,
        mut pause: Duration,
        lines: &ObservedLines,
        open: &[LogEntry],
        found_lines: bool,
    ) -> Next {
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                () = cancel.cancelled() => {
                    return match self.has_unseen(id, lines).await {
                        Some(false) => Next::Over,
                        _ => Next::Follow,
                    };
                }
            }
            match self.container_state(id).await {
                Ok(Some(state)) if state.status == "running" => return Next::Follow,
                // Its last output may have arrived after the follow ended.
                Ok(Some(_))
                    if (found_lines || open.is_empty())
                        && self.has_unseen(id, lines).await == Some(true) =>
                {
                    return Next::Follow;
                }
                Ok(Some(_)) if !open.is_empty() => return Next::Close,
                Ok(Some(_)) => {}
                Ok(None) => return Next::Over,
                // The daemon is away (restarting?), and its log with it.
                Err(_) => {}
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Whether a silent follow has missed lines.
    async fn stalled(&self, id: &str, lines: &ObservedLines) -> bool {
        match self.container_state(id).await {
            Ok(Some(state)) if state.status == "running" => {
                self.has_unseen(id, lines).await == Some(true)
            }
            _ => true,
        }
    }

    /// Whether the log's last line is newer than all seen lines; `None` if it cannot be read.
    async fn has_unseen(&self, id: &str, lines: &ObservedLines) -> Option<bool> {
        let mut unseen = false;
        let newer = |wall_ns| unseen |= wall_ns > lines.newest_ns && wall_ns >= lines.from_ns;
        let read = self.last_line(id, LogAssembler::new(false, true), newer);
        read.await.then_some(unseen)
    }

    /// Reads what a follow has missed. True if the log was read to its end, false if the container
    /// is gone; `Err` is the reason it could not be read.
    async fn rest(
        &self,
        facts: &ContainerFacts,
        lines: &mut ObservedLines,
        log: &mut LogFacts,
        sink: &mut (impl FnMut(i64, Stream, String) + Send),
    ) -> Result<bool, String> {
        let mut missed = Vec::new();
        let mut replay = lines.begin_replay();
        let mut assembler = self.assembler(facts);
        let read = async {
            let docker = self.daemon().map_err(|e| (false, reason(&e)))?;
            let mut frames = docker.logs(&facts.id, Some(log_options(false, lines.since_ns())));
            while let Some(frame) = frames.next().await {
                let frame = frame.map_err(|e| (is_not_found(&e), reason(&e)))?;
                let (stream, bytes) = stream_parts(&frame);
                assembler.feed_frame(stream, bytes, |entry| missed.push(entry));
            }
            assembler.finish_entries(|entry| missed.push(entry));
            Ok(())
        };
        let read = timeout(LAST_READ, read).await;
        for entry in missed {
            if lines.is_new(&entry, &mut replay) {
                give(&entry, lines, log, sink);
            }
        }
        match read {
            Ok(Ok(())) => Ok(true),
            Ok(Err((true, _))) => Ok(false),
            Ok(Err((false, why))) => Err(why),
            Err(_) => Err("the log could not be read to its end".into()),
        }
    }

    /// Reads when the log's last line was written; whether that could be read.
    async fn last_line(
        &self,
        id: &str,
        mut assembler: LogAssembler,
        mut take: impl FnMut(i64) + Send,
    ) -> bool {
        let last = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .tail("1")
            .build();
        let Ok(docker) = self.daemon() else {
            return false;
        };
        let mut frames = docker.logs(id, Some(last));
        let read = async {
            while let Some(frame) = frames.next().await {
                let Ok(frame) = frame else {
                    return false;
                };
                let (stream, bytes) = stream_parts(&frame);
                assembler.feed_frame(stream, bytes, |entry| take(entry.wall_ns));
            }
            assembler.finish_entries(|entry| take(entry.wall_ns));
            true
        };
        timeout(LAST_READ, read).await.unwrap_or(false)
    }
}

/// What to do after the end of a follow.
enum Next {
    /// Follow again: there may be more.
    Follow,
    /// The container has ended with incomplete lines; close them.
    Close,
    /// Stop: cancelled, or the container is gone.
    Over,
}

/// Passes on a line.
fn give(
    entry: &LogEntry,
    lines: &ObservedLines,
    log: &mut LogFacts,
    sink: &mut impl FnMut(i64, Stream, String),
) {
    log.whole_seconds = lines.whole_seconds();
    let written_ns = written(entry.wall_ns, wall_now_ns());
    entry.each_line(|line| {
        log.lines += 1;
        log.bytes += line.len() as u64 + 1;
        sink(written_ns, entry.stream, line);
    });
}

/// A line that arrives later than this after its second has an unknown delay.
const ON_ITS_WAY_NS: i64 = 500_000_000;

/// When a line with this timestamp that arrives now was written, all in wall nanoseconds. Docker's
/// timestamps have nanoseconds. Podman's API before 5.8 reports whole seconds; a line that arrives
/// within its second was written when it arrived.
fn written(stamp_ns: i64, now_ns: i64) -> i64 {
    let since = now_ns.saturating_sub(stamp_ns);
    if stamp_ns % SECOND_NS == 0 && (0..SECOND_NS + ON_ITS_WAY_NS).contains(&since) {
        stamp_ns + since.min(SECOND_NS - 1)
    } else {
        stamp_ns
    }
}

enum FollowEnd {
    Cancelled,
    Stream,
    Failed(Error),
}

/// Start of the container's current life, wall nanoseconds, a little early: never after its first
/// line, and not before the end of its previous life.
pub fn life_began(facts: &ContainerFacts) -> i64 {
    let state = &facts.state;
    let started = state.started_ns.unwrap_or_default();
    let early = started.saturating_sub(START_SLACK_NS).max(0);
    // A container that dies at once ends before Docker records its start: then this is the end of
    // its current life.
    let is_over = matches!(state.status.as_str(), "exited" | "dead" | "stopped");
    match state.finished_ns {
        Some(finished) if finished < started && !is_over => early.max(finished),
        _ => early,
    }
}

fn log_options(follow: bool, since_ns: i64) -> LogsOptions {
    // Docker's `since` has whole seconds; lines that are repeated are dropped later.
    let since = i32::try_from(since_ns.max(0) / 1_000_000_000).unwrap_or(i32::MAX);
    LogsOptionsBuilder::default()
        .follow(follow)
        .stdout(true)
        .stderr(true)
        .timestamps(true)
        .since(since)
        .build()
}

/// Errors after which following again makes sense: broken connections, and podman's late headers.
fn is_passing(e: &Error) -> bool {
    match daemon_answer(e) {
        Some((status, message)) => status >= 500 && status != 501 && !is_unreadable(message),
        None => !matches!(e, Error::DockerStreamError { .. }),
    }
}

/// Whether a refusal may come from a daemon that is still starting.
fn passes_later(e: &Error) -> bool {
    daemon_answer(e).is_some_and(|(code, message)| code != 501 && !is_unreadable(message))
}

fn is_unreadable(message: &str) -> bool {
    message.contains("does not support reading") || message.contains("'none' log driver")
}

fn reason(e: &Error) -> String {
    let text = e.to_string();
    match daemon_answer(e) {
        _ if is_unreadable(&text) => {
            "the container's logging driver keeps no log that Docker can read back (start it with `--log-driver json-file` or `local`)".to_owned()
        }
        Some((_, message)) => format!("the log cannot be read: {}", message.trim()),
        None => format!("the log cannot be read: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ContainerState;

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
        let mut died_at_once = facts(100 * s, Some(100 * s - 1));
        died_at_once.state.status = "exited".into();
        assert_eq!(life_began(&died_at_once), 95 * s);
    }

    #[test]
    fn a_stamp_of_a_whole_second_is_made_finer_while_it_lasts() {
        let s = SECOND_NS;
        assert_eq!(written(7 * s, 7 * s + 300), 7 * s + 300);
        assert_eq!(written(7 * s, 8 * s + 300), 8 * s - 1, "a little late");
        assert_eq!(written(7 * s, 10 * s), 7 * s, "read afterwards");
        assert_eq!(written(7 * s, 6 * s), 7 * s, "clocks differ");
        assert_eq!(
            written(7 * s + 5, 7 * s + 300),
            7 * s + 5,
            "it says it itself"
        );
    }
}
