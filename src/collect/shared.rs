//! An engine shared by several captures: its start-up, which each capture includes, and the log of
//! a server started by an exec.

use super::recorder::Recorder;
use crate::capture::{AtNs, LogFacts, MemorySample, RunEnd, SharedStart, Stream};
use crate::clock::Clock;
use crate::engine::{EngineId, LogParser};
use crate::sync::lock_data;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

/// Maximum size of the start-up output that is kept, bytes: it contains the engine's memory
/// figures.
const HEAD_BYTES: usize = 64 << 20;

/// Capacity for lines of a slowly writing capture; more are dropped and counted.
const WAITING_LINES: usize = 16 * 1024;

/// State shared between captures.
#[derive(Clone, Default)]
pub struct SharedRun {
    /// The start-up of the engine, if it was observed before this capture.
    pub startup: Option<Arc<Startup>>,
    /// The server started by an exec; without it the container's log is the engine's.
    pub server: Option<ServerLog>,
}

impl SharedRun {
    /// How the server started by an exec ended; `None` while it runs.
    pub fn server_end(&self) -> Option<String> {
        self.server.as_ref()?.end_reason()
    }
}

/// The sampled start-up of an engine.
pub struct Startup {
    /// Clock that the times below are of.
    pub(crate) clock: Clock,
    /// The run that captured it.
    pub(crate) run_id: String,
    /// Memory until the engine served.
    pub(crate) samples: Vec<MemorySample>,
    /// When the engine was started.
    pub(crate) began_ns: AtNs,
    /// When it served.
    pub(crate) served_ns: AtNs,
}

impl Startup {
    /// Reports the start to a later capture.
    pub(super) fn recall_start(&self, recorder: &Recorder) -> SharedStart {
        let earlier = recorder.clock.zero_of(&self.clock);
        for sample in &self.samples {
            recorder.record_sample(&MemorySample {
                at_ns: sample.at_ns.saturating_add(earlier),
                ..sample.clone()
            });
        }
        recorder.started_at(self.began_ns.saturating_add(earlier));
        SharedStart {
            run_id: self.run_id.clone(),
            began_at_ns: self.began_ns.saturating_add(earlier),
            served_at_ns: self.served_ns.saturating_add(earlier),
        }
    }
}

/// The output of a server started by an exec. Clones share it.
#[derive(Clone)]
pub struct ServerLog {
    /// Clock for its lines, because wall time may jump.
    clock: Clock,
    state: Arc<Mutex<ServerLogState>>,
    ended: watch::Sender<Option<String>>,
}

struct ServerLogState {
    /// Lines until the engine was ready.
    head: Vec<ServerLine>,
    head_bytes: usize,
    parser: Box<dyn LogParser>,
    live: broadcast::Sender<ServerLine>,
}

#[derive(Clone)]
struct ServerLine {
    at_ns: AtNs,
    stream: Stream,
    text: Arc<str>,
}

impl ServerLog {
    /// For a server without output yet.
    pub fn new(engine: EngineId) -> ServerLog {
        let state = ServerLogState {
            head: Vec::new(),
            head_bytes: 0,
            parser: crate::engine::parser_of(engine),
            live: broadcast::channel(WAITING_LINES).0,
        };
        ServerLog {
            clock: Clock::start(),
            state: Arc::new(Mutex::new(state)),
            ended: watch::channel(None).0,
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, ServerLogState> {
        lock_data(&self.state)
    }

    /// Records a line.
    pub fn add_line(&self, stream: Stream, text: String) {
        let line = ServerLine {
            at_ns: self.clock.now(),
            stream,
            text: text.into(),
        };
        let mut state = self.lock_state();
        if !state.parser.ready() && state.head_bytes < HEAD_BYTES {
            state.parser.line(line.text.as_bytes(), None);
            state.head_bytes += line.text.len();
            state.head.push(line.clone());
        }
        // The channel is closed between two captures.
        let _ = state.live.send(line);
    }

    /// Records that the server has ended; a sentence.
    pub fn note_end(&self, how: String) {
        self.ended.send_replace(Some(how));
    }

    /// How the server ended; `None` while it runs.
    pub fn end_reason(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Stops the run when the server ends.
    pub(super) async fn watch_end(self, stop: super::StopSignal) {
        let mut ended = self.ended.subscribe();
        if let Ok(how) = ended.wait_for(Option::is_some).await {
            stop.stop_because(RunEnd::ContainerLost(how.clone().unwrap_or_default()));
        }
    }

    /// Forwards the output until the engine was ready, then everything from now on.
    pub(super) async fn follow_lines(
        &self,
        clock: &Clock,
        cancel: &CancellationToken,
        mut take: impl FnMut(AtNs, Stream, &str),
    ) -> LogFacts {
        let (head, mut live) = {
            let state = self.lock_state();
            (state.head.clone(), state.live.subscribe())
        };
        let earlier = clock.zero_of(&self.clock);
        let mut hand_on = |line: &ServerLine| {
            let at_ns = line.at_ns.saturating_add(earlier);
            take(at_ns, line.stream, &line.text);
        };
        head.iter().for_each(&mut hand_on);
        let mut facts = LogFacts::default();
        loop {
            let line = tokio::select! {
                line = live.recv() => line,
                // Lines received so far belong to the capture.
                () = cancel.cancelled() => {
                    loop {
                        match live.try_recv() {
                            Ok(line) => hand_on(&line),
                            Err(TryRecvError::Lagged(lines)) => facts.dropped_lines += lines,
                            Err(TryRecvError::Empty | TryRecvError::Closed) => return facts,
                        }
                    }
                }
            };
            match line {
                Ok(line) => hand_on(&line),
                Err(RecvError::Lagged(lines)) => facts.dropped_lines += lines,
                Err(RecvError::Closed) => return facts,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that is held up misses lines, says how many, and has all that came after; also where
    /// it notices at its end only: which of the two comes first is chance.
    #[tokio::test]
    async fn lines_that_came_too_fast_are_counted() {
        let clock = Clock::start();
        for _ in 0..12 {
            let log = ServerLog::new(EngineId::Reference);
            log.add_line(Stream::Stdout, "reference-engine phase=ready".to_owned());
            let cancel = CancellationToken::new();
            let mut heard = 0_u64;
            let follow = log.follow_lines(&clock, &cancel, |_, _, _| heard += 1);
            let line_count = WAITING_LINES as u64 + 100;
            let speak = async {
                (0..line_count).for_each(|_| log.add_line(Stream::Stdout, "a line".to_owned()));
                cancel.cancel();
            };
            let (facts, ()) = tokio::join!(biased; follow, speak);
            // With the line of before.
            assert_eq!(
                (heard, facts.dropped_lines),
                (WAITING_LINES as u64 + 1, 100)
            );
        }
    }

    #[tokio::test]
    async fn a_later_capture_hears_the_start_and_what_comes_and_nothing_between() {
        let log = ServerLog::new(EngineId::Reference);
        let say = |text: &str| log.add_line(Stream::Stdout, text.to_owned());
        say("reference-engine phase=start");
        say("reference-engine phase=ready");
        say("a request of an earlier capture");
        let cancel = CancellationToken::new();
        let mut heard = Vec::new();
        let clock = Clock::start();
        let follow = log.follow_lines(&clock, &cancel, |_, _, text| {
            heard.push(text.to_owned());
        });
        let speak = async {
            // The follower is polled first and has subscribed.
            say("a request of this one");
            cancel.cancel();
        };
        tokio::join!(biased; follow, speak);
        assert_eq!(
            heard,
            [
                "reference-engine phase=start",
                "reference-engine phase=ready",
                "a request of this one"
            ]
        );
    }

    #[tokio::test]
    async fn the_end_of_the_server_ends_the_run() {
        let log = ServerLog::new(EngineId::Reference);
        let stop = super::super::StopSignal::new();
        log.note_end("the engine ended (exit 1)".into());
        log.watch_end(stop.clone()).await;
        assert_eq!(
            stop.stop_reason(),
            Some(RunEnd::ContainerLost("the engine ended (exit 1)".into()))
        );
    }
}
