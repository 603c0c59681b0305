//! Receives all observations: redacts them, writes them, and requests a sample when a line marks a
//! phase boundary.

use super::stop::StopSignal;
use crate::capture::{
    AtNs, Capture, LineSource, LogFacts, LogLine, MemorySample, Phase, PhaseMark, RequestRow,
    RunEnd, Stream,
};
use crate::clock::Clock;
use crate::engine::{EngineId, LogParser};
use crate::error::Failure;
use crate::progress::{Progress, Sink};
use crate::redact::{KeyBlock, Redactor};
use crate::store::CaptureWriter;
use crate::sync::lock_data;
use crate::telemetry::SamplerHandle;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of figures on the console, nanoseconds.
const SHOW_EVERY_NS: i64 = 250_000_000;

/// Interval of flushing the files.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Shared by the tasks of one run.
pub struct Recorder {
    /// The run's clock.
    pub clock: Clock,
    /// Removes secrets.
    pub redactor: Redactor,
    stop: StopSignal,
    progress: Sink,
    state: Mutex<RecorderState>,
}

struct RecorderState {
    /// `None` once the capture is finished.
    writer: Option<CaptureWriter>,
    marks: Vec<PhaseMark>,
    /// Detects phase boundaries in the engine's output.
    live: Box<dyn LogParser>,
    steps: usize,
    sampler: Option<SamplerHandle>,
    /// Later data belong to another run.
    closed_at: Option<AtNs>,
    /// State for a private key printed line by line.
    key: KeyBlock,
    /// The engine's last non-blank line, redacted.
    last_line: String,
}

impl Recorder {
    /// A recorder that writes to `writer`.
    pub fn new(
        clock: Clock,
        writer: CaptureWriter,
        redactor: Redactor,
        engine: EngineId,
        stop: StopSignal,
        progress: Sink,
    ) -> Recorder {
        let state = RecorderState {
            writer: Some(writer),
            marks: Vec::new(),
            live: crate::engine::parser_of(engine),
            steps: 0,
            sampler: None,
            closed_at: None,
            key: KeyBlock::default(),
            last_line: String::new(),
        };
        Recorder {
            clock,
            redactor,
            stop,
            progress,
            state: Mutex::new(state),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, RecorderState> {
        lock_data(&self.state)
    }

    /// Sets the sampler for samples at phase boundaries.
    pub fn watch_edges(&self, sampler: SamplerHandle) {
        self.lock_state().sampler = Some(sampler);
    }

    /// Records a line. `of_engine`: the engine's output, not a client's.
    pub fn record_line(
        &self,
        at_ns: AtNs,
        source: LineSource,
        stream: Stream,
        text: &str,
        of_engine: bool,
    ) {
        let redacted = self.redactor.redact_text(text);
        let mut state = self.lock_state();
        let line = LogLine {
            at_ns,
            source,
            stream,
            text: state.key.filter_line(text, redacted).into_owned(),
        };
        if state.closed_at.is_some_and(|end| at_ns > end) {
            return;
        }
        if of_engine {
            state.live.line(line.text.as_bytes(), Some(at_ns));
            if !line.text.trim().is_empty() {
                state.last_line.clone_from(&line.text);
            }
            let steps = state.live.step_count();
            // Boundaries in old lines can no longer be sampled.
            if std::mem::replace(&mut state.steps, steps) < steps && at_ns >= 0 {
                state.edge();
            }
        }
        self.write_capture(&mut state, |w| w.add_line(&line));
    }

    /// Records a request of our own client.
    pub fn record_request(&self, row: &RequestRow) {
        self.write_capture(&mut self.lock_state(), |w| w.add_request(row));
    }

    /// Ignores lines and samples after `at_ns` from now on.
    pub(super) fn close_at(&self, at_ns: AtNs) {
        self.lock_state().closed_at = Some(at_ns);
    }

    /// Records when the engine was started, before this capture began.
    pub(super) fn started_at(&self, at_ns: AtNs) {
        let mark = PhaseMark {
            at_ns,
            phase: Phase::Start,
            repeat: None,
        };
        self.lock_state().marks.push(mark);
    }

    /// Records a sample.
    pub(super) fn record_sample(&self, sample: &MemorySample) {
        let mut state = self.lock_state();
        if state.closed_at.is_some_and(|end| sample.at_ns > end) {
            return;
        }
        self.write_capture(&mut state, |w| w.write_sample(sample));
    }

    /// Writes the samples from `samples` until the channel closes.
    pub fn drain_samples(
        self: &Arc<Self>,
        samples: Receiver<Vec<MemorySample>>,
    ) -> std::io::Result<JoinHandle<()>> {
        let recorder = Arc::clone(self);
        std::thread::Builder::new()
            .name("samples".into())
            .spawn(move || {
                let mut shown = AtNs::MIN;
                // The peak between two reports is not lost.
                let mut peak = 0;
                let mut split = None;
                let mut flushed = Instant::now();
                loop {
                    // A killed plimsoll loses at most this much, lines included.
                    if flushed.elapsed() >= FLUSH_EVERY {
                        flushed = Instant::now();
                        recorder
                            .write_capture(&mut recorder.lock_state(), CaptureWriter::flush_files);
                    }
                    let read = match samples.recv_timeout(FLUSH_EVERY) {
                        Ok(read) => read,
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => return,
                    };
                    for sample in read {
                        recorder.record_sample(&sample);
                        if sample.device != 0 {
                            continue;
                        }
                        // Page cache does not count as used; it is not read with each sample.
                        split = sample.host.or(split);
                        let held = split.unwrap_or_default().held_of(sample.used_bytes);
                        peak = held.max(peak);
                        if sample.at_ns > shown.saturating_add(SHOW_EVERY_NS) {
                            shown = sample.at_ns;
                            (recorder.progress)(Progress::Memory(std::mem::take(&mut peak)));
                        }
                    }
                }
            })
    }

    /// Writes to the capture. A full disk ends the run; the data so far stay.
    fn write_capture(&self, state: &mut RecorderState, write: impl FnOnce(&mut CaptureWriter)) {
        let Some(writer) = &mut state.writer else {
            return;
        };
        write(writer);
        if let Some(failure) = writer.first_failure() {
            self.stop
                .stop_because(RunEnd::Failed(failure.describe_with_cause()));
        }
    }

    /// Marks the beginning of a phase, and requests a sample.
    pub fn mark_phase(&self, phase: Phase, repeat: Option<u32>) {
        let mut state = self.lock_state();
        state.marks.push(PhaseMark {
            at_ns: self.clock.now(),
            phase,
            repeat,
        });
        state.edge();
    }

    /// Reacts to a container event with a sample: memory may have changed hands.
    pub fn container_event(&self) {
        if let Some(sampler) = &self.lock_state().sampler {
            sampler.sample_now();
        }
    }

    /// Receiver of progress events for the console.
    pub fn sink(&self) -> &Sink {
        &self.progress
    }

    /// Sends a progress event to the console.
    pub fn report_progress(&self, progress: Progress) {
        (self.progress)(progress);
    }

    /// Whether the engine reported that it is ready.
    pub fn engine_ready(&self) -> bool {
        self.lock_state().live.ready()
    }

    /// The engine's output line that best explains its failure.
    pub fn root_cause(&self) -> Option<String> {
        self.lock_state().live.root_cause()
    }

    /// The engine's last output line, redacted.
    pub fn last_line(&self) -> Option<String> {
        Some(self.lock_state().last_line.clone()).filter(|line| !line.is_empty())
    }

    /// Resets the parser of the engine's output for a new engine process.
    pub fn new_engine(&self, engine: EngineId) {
        let mut state = self.lock_state();
        state.live = crate::engine::parser_of(engine);
        state.steps = 0;
    }

    /// Closes the streams and writes the capture that `build` makes from the marks and the kept
    /// log.
    pub fn finish_capture(
        &self,
        build: impl FnOnce(Vec<PhaseMark>, LogFacts) -> Capture,
    ) -> (Capture, Result<(), Failure>) {
        let mut state = self.lock_state();
        let marks = std::mem::take(&mut state.marks);
        let Some(mut writer) = state.writer.take() else {
            return (build(marks, LogFacts::default()), Ok(()));
        };
        drop(state);
        let capture = build(marks, writer.end_log());
        let written = writer.finish_capture(&capture);
        (capture, written)
    }
}

impl RecorderState {
    fn edge(&self) {
        if let Some(sampler) = &self.sampler {
            sampler.mark_edge();
        }
    }
}
