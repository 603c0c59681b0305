//! A capture laid out for explaining: when each phase was, which repeat peaked, which lines are
//! the engine's.

use super::neighbours::Neighbours;
use super::out_of_memory::{OomKill, OomVerdict};
use super::placement::Placement;
use super::ranks::EngineRanks;
use super::series::{DevicePeakReading, PeakSource, SampleSeries};
use super::stats::saturating_sum;
use crate::capture::{
    AtNs, Capture, DeviceKind, ExecRole, LimitLevel, LineSource, LogLine, MemorySample, Mode,
    Phase, RunEnd,
};
use crate::engine::facts::{EngineStep, LogReport};
use crate::engine::torch_probe::TorchReport;
use crate::engine::{EngineId, LoadKind, LogParser, ProbeFacts, ServerSettings};
use crate::wording::count_noun;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Bytes of output kept from the start and from the end.
const EXCERPT_BYTES: usize = 64 * 1024;

/// A line of output is with us at most so much after it was written, nanoseconds.
const LINE_DELAY_NS: AtNs = 50_000_000;
/// And so much on a machine that is busy with other things.
const LONGEST_DELAY_NS: AtNs = 300_000_000;
/// A level moves by less than this between two samples, bytes.
const LEVEL_BYTES: i64 = 4 << 20;

/// Less than this in swap changes no part, bytes.
const SWAPPED_BYTES: u64 = 1 << 20;
/// A kill is counted so much after it at most, nanoseconds.
const COUNTED_LATE_NS: AtNs = 1_000_000_000;

/// A stretch of time, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// Begin.
    pub from: AtNs,
    /// End.
    pub to: AtNs,
}

/// One repeat of the bench.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    /// From 1; `None` when there was no bench and the container was only watched.
    pub number: Option<u32>,
    /// From the bench's start (with its engine's start-up, for in-process benches) to its end, or
    /// the time of watching.
    pub window: TimeWindow,
    /// When the engine inside was loaded and the warm-up began, where seen.
    pub warmup_at: Option<AtNs>,
    /// When the measured part of the bench began, where seen.
    pub bench_at: Option<AtNs>,
    /// Peak of each device: in the measured part, where the engine was loaded before and that part was seen; else in
    /// the window. A warm-up compiles kernels and fills caches, which no later request does.
    pub peaks: Vec<DevicePeakReading>,
}

impl Repeat {
    /// Over all devices; `None` when nothing was sampled meanwhile.
    pub fn peak_bytes(&self) -> Option<u64> {
        (!self.peaks.is_empty()).then(|| saturating_sum(self.peaks.iter().map(|p| p.bytes)))
    }
}

/// Everything that the explaining rests on.
pub struct CaptureObservation<'a> {
    /// The capture.
    pub capture: &'a Capture,
    /// The engine, when this plimsoll knows it.
    pub engine: Option<EngineId>,
    /// The samples.
    pub series: SampleSeries,
    /// Those of the host memory beside the GPUs.
    pub host_series: SampleSeries,
    /// What others held on each device.
    neighbours: Vec<Neighbours>,
    /// What the engine's log reports (of the repeat that peaked, for in-process benches).
    pub log: LogReport,
    /// When the container's first line that there is was written.
    pub first_line_ns: Option<AtNs>,
    /// The line that explains a failure.
    pub root_cause: Option<String>,
    /// What the endpoints say.
    pub probes: ProbeFacts,
    /// What command and environment ask for.
    pub settings: ServerSettings,
    /// The repeats in order.
    pub repeats: Vec<Repeat>,
    /// Index of the repeat with the highest peak.
    pub top: Option<usize>,
    /// What a probe in the process saw, in the repeat that peaked.
    pub torch: Option<TorchReport>,
    /// Excerpts of engine and bench output.
    pub excerpts: (LogExcerpt, LogExcerpt),
}

/// Above this many threads per processor everything on a host is late. An engine and its load keep a few busy each.
const OVERLOADED: f64 = 4.0;

impl<'a> CaptureObservation<'a> {
    /// Lays a capture out.
    pub fn new(
        capture: &'a Capture,
        samples: impl IntoIterator<Item = MemorySample>,
        lines: impl IntoIterator<Item = LogLine>,
    ) -> CaptureObservation<'a> {
        let engine = EngineId::from_name(&capture.engine).ok();
        let beside = capture.host_memory.as_ref().map(|d| d.index);
        let mut host_samples = Vec::new();
        let samples = samples.into_iter().filter_map(|sample| {
            if Some(sample.device) != beside {
                return Some(with_swap(capture, sample));
            }
            host_samples.push(MemorySample {
                device: 0,
                ..sample
            });
            None
        });
        let series = SampleSeries::new(samples);
        let host_series = SampleSeries::new(host_samples);
        let mut repeats = repeats(capture, &series);
        reach_limit(capture, &mut repeats);
        let top = (0..repeats.len())
            .filter(|i| repeats[*i].peak_bytes().is_some())
            .max_by_key(|i| repeats[*i].peak_bytes());
        let mut reader = LineReader::new(capture, engine);
        let mut first_line_ns: Option<i64> = None;
        for line in lines {
            if line.source == LineSource::Container {
                first_line_ns = Some(first_line_ns.map_or(line.at_ns, |f| f.min(line.at_ns)));
            }
            reader.take_line(&line);
        }
        let number = top.and_then(|t| repeats[t].number);
        let (log, root_cause) = reader.report_for_repeat(number);
        let torch = engine.and_then(|e| torch_report(e, capture, number));
        let neighbours = (0..series.device_count())
            .map(|device| Neighbours::neighbours_on(&series, device))
            .collect();
        CaptureObservation {
            capture,
            engine,
            series,
            host_series,
            neighbours,
            log,
            first_line_ns,
            root_cause,
            probes: engine
                .map(|e| (e.read_probes)(&capture.probes))
                .unwrap_or_default(),
            settings: engine
                .map(|e| (e.settings)(&capture.container))
                .unwrap_or_default(),
            repeats,
            top,
            torch,
            excerpts: (reader.engine_excerpt, reader.bench_excerpt),
        }
    }

    /// The repeat with the highest peak; `None` when neither a bench nor watching began, or nothing
    /// was sampled meanwhile.
    pub fn top_repeat(&self) -> Option<&Repeat> {
        self.repeats.get(self.top?)
    }

    /// The stretch before the engine or the load: `None` when nothing was marked then. It ends
    /// with the next phase or with the bench's start, whichever comes first: a bench that loads
    /// its own engine warms up only once the engine is in memory.
    pub fn baseline_window(&self) -> Option<TimeWindow> {
        let from = mark_of_phase(self.capture, Phase::Baseline)?;
        let marks = self.capture.marks.iter();
        let phases = marks
            .filter(|m| m.phase != Phase::Baseline)
            .map(|m| m.at_ns);
        let benches = self.capture.benches().map(|e| e.started_at_ns);
        let to = phases
            .chain(benches)
            .filter(|at| *at > from)
            .min()
            .unwrap_or(self.capture.ended_at_ns);
        Some(TimeWindow { from, to })
    }

    /// The middle reading of the baseline on one device.
    pub fn baseline_sample(&self, device: usize) -> Option<MemorySample> {
        let before = self
            .baseline_window()
            .and_then(|w| self.series.median_sample(device, w.from, w.to));
        // A container that was only just started has no cgroup before; its first reading is as
        // near to nothing as there is.
        before.or_else(|| {
            self.series
                .rows_of_device(device)
                .first()
                .filter(|_| self.capture.mode == Mode::Started)
        })
    }

    /// The most memory of the container that was in swap, bytes; `None` where it was next to nothing.
    pub fn swapped_bytes(&self) -> Option<u64> {
        let devices = (0..self.series.device_count()).filter(|d| self.is_host(*d));
        let most = devices.filter_map(|d| self.series.rows_of_device(d).most_swapped());
        most.max().filter(|b| *b >= SWAPPED_BYTES)
    }

    /// What shows that the host was so busy that lines came later than is allowed for.
    pub fn host_overload(&self) -> Option<String> {
        let cpus = self.capture.host.cpus.max(1);
        let load = (self.capture.host_load).filter(|load| *load > OVERLOADED * f64::from(cpus));
        let threads = load.map(|load| {
            let processors = count_noun(cpus, "processor");
            format!("{load:.0} threads wanted its {processors}")
        });
        threads.or_else(|| {
            let late_s = self.longest_stall()? as f64 / 1e9;
            Some(format!(
                "while the engine loaded a reading of memory came {late_s:.1} s late"
            ))
        })
    }

    /// By how much a reading between the first and the last step of the engine came later than usual, nanoseconds, where
    /// that is more than a line is late at most.
    fn longest_stall(&self) -> Option<AtNs> {
        let steps = self.log.steps.iter().filter_map(|m| self.step_at(m.step));
        let (from, to) = (steps.clone().min()?, steps.max()?);
        let stalls = (0..self.series.device_count()).filter_map(|device| {
            let times = self.series.rows_in_window(device, from, to).sample_times();
            let longest = times.windows(2).map(|t| t[1] - t[0]).max()?;
            Some(longest - self.series.usual_gap(device)?)
        });
        stalls.max().filter(|late| *late > LONGEST_DELAY_NS)
    }

    /// Whether the steps of the engine's start are timed by a log in whole seconds.
    pub fn coarsely_timed(&self) -> bool {
        self.capture.log.whole_seconds && self.capture.mode == Mode::Started
    }

    /// How many ranks the engine runs on.
    pub fn engine_ranks(&self) -> EngineRanks {
        EngineRanks::ranks_of_engine(&self.log, &self.settings)
    }

    /// Which device holds which of them.
    pub fn rank_placement(&self) -> Placement {
        let ranks = self.engine_ranks().rank_count();
        Placement::place_ranks(self.capture, &self.settings, &self.series, ranks)
    }

    /// Whether the device is the container's host memory.
    pub fn is_host(&self, device: usize) -> bool {
        let device = self.capture.device(device as u32);
        device.is_none_or(|d| d.kind == DeviceKind::HostCgroup)
    }

    /// What others hold on a device.
    pub fn neighbours_of(&self, device: usize) -> &Neighbours {
        static NO_NEIGHBOURS: LazyLock<Neighbours> = LazyLock::new(Neighbours::default);
        self.neighbours.get(device).unwrap_or(&NO_NEIGHBOURS)
    }

    /// The engine's own memory in a reading: on a host, what is neither page cache nor our bench
    /// client; on a GPU, everything in use less what the processes of others hold, where that is
    /// known. Only differences of it are the engine's.
    pub fn engine_bytes(&self, device: usize, s: &MemorySample) -> i64 {
        if !self.is_host(device) {
            return s.used_bytes as i64 - self.neighbours_of(device).held_at(s.at_ns);
        }
        s.used_bytes as i64 - file_bytes(s) - s.bench_client_bytes.unwrap_or(0) as i64
    }

    /// The engine's memory once a step was passed: the level held until the next step or phase.
    /// Unknown where sampling began after the step: the first reading may show what came next. And
    /// where no sample lies between the two: lines that come together came late, or too fast.
    pub fn level_after_step(&self, device: usize, step: EngineStep) -> Option<i64> {
        let (at, next) = self.stretch(step)?;
        self.series.sample_before(device, at.saturating_add(1))?;
        Some(self.engine_bytes(device, &self.series.level_between(device, at, next)?))
    }

    /// The engine's memory just before a step that goes on until the next one; unknown as
    /// [`Observation::level`] is.
    pub fn before_step(&self, device: usize, step: EngineStep) -> Option<i64> {
        let (at, next) = self.stretch(step)?;
        self.series.level_between(device, at, next)?;
        self.level_before(device, at)
    }

    /// From a step until the next step or phase.
    fn stretch(&self, step: EngineStep) -> Option<(AtNs, AtNs)> {
        let at = self.step_at(step)?;
        let steps = (self.log.steps.iter()).filter_map(|m| Some((m.at_ns?, m.step)));
        // Of two at one moment the later one ends the stretch of the earlier.
        let steps = steps.filter(|m| *m > (at, step)).map(|(at, _)| at);
        let marks = self.capture.marks.iter().map(|m| m.at_ns);
        let next = steps.chain(marks.filter(|t| *t > at)).min();
        Some((at, next.unwrap_or(AtNs::MAX)))
    }

    /// The engine's memory just before a moment: a line takes some milliseconds to reach us, and
    /// what it announces may have begun meanwhile. Where memory rises already it is late.
    pub fn level_before(&self, device: usize, at: AtNs) -> Option<i64> {
        let calm = self
            .series
            .sample_before(device, at.saturating_sub(LINE_DELAY_NS));
        let sample = calm.or_else(|| self.series.sample_before(device, at))?;
        let earliest =
            at.saturating_sub(LONGEST_DELAY_NS + self.readings_late(device, sample.at_ns));
        let earlier = self.series.rows_in_window(device, earliest, sample.at_ns);
        let mut level = self.engine_bytes(device, &sample);
        // The first of them is the sample itself.
        for before in earlier.iter().rev().skip(1) {
            let before = self.engine_bytes(device, &before);
            if level - before <= LEVEL_BYTES {
                break;
            }
            level = before;
        }
        Some(level)
    }

    /// By how much longer than usual it took from the reading before to the one at a moment, nanoseconds, at most the
    /// longest delay: the machine was busy with other things then, and a line of those moments is as late.
    fn readings_late(&self, device: usize, at: AtNs) -> AtNs {
        let gap = self.series.sample_before(device, at).map(|b| at - b.at_ns);
        let usual = self.series.usual_gap(device);
        gap.zip(usual)
            .map_or(0, |(gap, usual)| (gap - usual).clamp(0, LONGEST_DELAY_NS))
    }

    /// Until when a repeat's engine holds what the load left: one that serves goes on after it. A
    /// load without a pause shows only then what stays.
    pub fn rest_until(&self, repeat: &Repeat) -> AtNs {
        if self.capture.mode == Mode::Idle || self.capture.end != RunEnd::Completed {
            return repeat.window.to;
        }
        self.repeats
            .iter()
            .map(|r| r.window.from)
            .filter(|from| *from > repeat.window.to)
            .min()
            .unwrap_or(self.capture.ended_at_ns)
    }

    /// Whether something shows that the engine had its model in memory: its log, an endpoint that
    /// answered, or a bench that came as far as measuring.
    pub fn engine_loaded(&self) -> bool {
        let logged = self
            .log
            .steps
            .iter()
            .any(|m| (EngineStep::WeightsLoaded..EngineStep::Stopping).contains(&m.step));
        let answered = self.capture.probes.iter().any(|p| p.status == Some(200));
        logged || answered || self.repeats.iter().any(|r| r.bench_at.is_some())
    }

    /// When a step was passed, if that lies within the capture.
    pub fn step_at(&self, step: EngineStep) -> Option<AtNs> {
        let from = match self.capture.mode {
            Mode::Serving => return None,
            Mode::Started => AtNs::MIN,
            Mode::Idle => self.top_repeat()?.window.from,
        };
        self.log.step_at(step).filter(|at| *at >= from)
    }
}

/// Page cache in a reading, bytes; 0 where the kernel does not report it.
pub fn file_bytes(s: &MemorySample) -> i64 {
    s.host.and_then(|h| h.file_bytes).unwrap_or(0) as i64
}

fn mark_of_phase(capture: &Capture, phase: Phase) -> Option<AtNs> {
    capture
        .marks
        .iter()
        .find(|m| m.phase == phase)
        .map(|m| m.at_ns)
}

fn repeats(capture: &Capture, series: &SampleSeries) -> Vec<Repeat> {
    let peaks = |w: TimeWindow| {
        (0..series.device_count())
            .filter_map(|d| series.peak_in_window(d, w.from, w.to))
            .collect::<Vec<_>>()
    };
    let mut repeats: Vec<Repeat> = capture
        .benches()
        .map(|e| {
            let at = |phase: Phase| {
                let run = e.started_at_ns..=e.ended_at_ns;
                let mut marks = capture.marks.iter();
                marks
                    .find(|m| m.phase == phase && run.contains(&m.at_ns))
                    .map(|m| m.at_ns)
            };
            // A bench may go on after its load, to look closer.
            let window = TimeWindow {
                from: e.started_at_ns,
                to: at(Phase::Cooldown).unwrap_or(e.ended_at_ns),
            };
            let bench_at = at(Phase::Bench);
            let measured = bench_at
                .filter(|_| capture.mode != Mode::Idle)
                .map(|from| peaks(TimeWindow { from, ..window }))
                .filter(|peaks| !peaks.is_empty());
            Repeat {
                number: e.repeat,
                window,
                warmup_at: at(Phase::Warmup),
                bench_at,
                peaks: measured.unwrap_or_else(|| peaks(window)),
            }
        })
        .collect();
    // Without a load of ours there is what was watched, and of an engine that ran out of memory
    // before its load what led to that; another bench that never began has nothing.
    if repeats.is_empty() {
        let to = mark_of_phase(capture, Phase::Cooldown).unwrap_or(AtNs::MAX);
        let watched = mark_of_phase(capture, Phase::Bench).filter(|_| observes_only(capture));
        let killed = matches!(OomVerdict::of_capture(capture), OomVerdict::Killed(_));
        let watched = watched.map(|from| TimeWindow { from, to });
        let start = TimeWindow {
            from: AtNs::MIN,
            to: AtNs::MAX,
        };
        if let Some(window) = watched.or(killed.then_some(start)) {
            repeats.push(Repeat {
                number: None,
                window,
                warmup_at: None,
                bench_at: None,
                peaks: peaks(window),
            });
        }
    }
    repeats
}

/// A sample that counts swap as in use. Those of earlier releases do not, nor do their readings in
/// between, of which it is not known what was in swap then.
fn with_swap(capture: &Capture, sample: MemorySample) -> MemorySample {
    let swap = sample.host.and_then(|h| h.swap_bytes).unwrap_or(0);
    if swap == 0 || capture.device(sample.device).is_some_and(|d| d.counts_swap) {
        return sample;
    }
    MemorySample {
        used_bytes: sample.used_bytes.saturating_add(swap),
        low_bytes: None,
        high_bytes: None,
        kernel_peak_bytes: None,
        ..sample
    }
}

/// Where the kernel killed a process because the container had reached its own limit, the peak is
/// that limit at least, however short the moment was.
fn reach_limit(capture: &Capture, repeats: &mut [Repeat]) {
    let OomVerdict::Killed(OomKill {
        at_ns: Some(at),
        limit: Some(limit),
    }) = OomVerdict::of_capture(capture)
    else {
        return;
    };
    let is_host = |index| {
        let device = capture.device(index);
        device.is_some_and(|d| d.kind == DeviceKind::HostCgroup)
    };
    let peaks = repeats
        .iter_mut()
        .filter(|r| limit.level == LimitLevel::Container && r.window.from <= at)
        .filter(|r| at <= r.window.to.saturating_add(COUNTED_LATE_NS))
        .flat_map(|r| &mut r.peaks);
    for peak in peaks.filter(|p| is_host(p.nearest.device) && p.bytes < limit.bytes) {
        peak.bytes = limit.bytes;
        peak.source = PeakSource::KernelPeak;
    }
}

/// Feeds each line to the parser that it concerns.
struct LineReader<'a> {
    capture: &'a Capture,
    engine: Option<EngineId>,
    container: Option<Box<dyn LogParser>>,
    execs: BTreeMap<u32, Box<dyn LogParser>>,
    engine_excerpt: LogExcerpt,
    bench_excerpt: LogExcerpt,
}

impl<'a> LineReader<'a> {
    fn new(capture: &'a Capture, engine: Option<EngineId>) -> Self {
        LineReader {
            capture,
            engine,
            container: engine.map(crate::engine::parser_of),
            execs: BTreeMap::new(),
            engine_excerpt: LogExcerpt::default(),
            bench_excerpt: LogExcerpt::default(),
        }
    }

    fn take_line(&mut self, line: &LogLine) {
        match line.source {
            LineSource::Container => {
                self.engine_excerpt.push_line(&line.text);
                if let Some(parser) = &mut self.container {
                    parser.line(line.text.as_bytes(), Some(line.at_ns));
                }
            }
            LineSource::Exec(index) => {
                let exec = self.capture.execs.get(index as usize);
                if exec.is_none_or(|e| e.role != ExecRole::Bench) {
                    return;
                }
                self.bench_excerpt.push_line(&line.text);
                // Beside a serving engine the bench is a client: its words are not the engine's.
                if self.capture.mode == Mode::Idle {
                    if let Some(engine) = self.engine {
                        self.execs
                            .entry(index)
                            .or_insert_with(|| crate::engine::parser_of(engine))
                            .line(line.text.as_bytes(), Some(line.at_ns));
                    }
                }
            }
        }
    }

    /// The report of the engine that this repeat loaded, else of the container.
    fn report_for_repeat(&self, repeat: Option<u32>) -> (LogReport, Option<String>) {
        let exec = self
            .execs
            .iter()
            .find(|(i, _)| {
                let exec = self.capture.execs.get(**i as usize);
                repeat.is_some() && exec.is_some_and(|e| e.repeat == repeat)
            })
            .or_else(|| self.execs.iter().next_back())
            .map(|(_, parser)| parser);
        match exec.or(self.container.as_ref()) {
            Some(parser) => (parser.report(), parser.root_cause()),
            None => {
                let engine = self.capture.engine.clone();
                (
                    LogReport {
                        engine,
                        ..Default::default()
                    },
                    None,
                )
            }
        }
    }
}

/// Start and end of an output, bounded.
#[derive(Debug, Clone, Default)]
pub struct LogExcerpt {
    head: String,
    tail: std::collections::VecDeque<String>,
    tail_bytes: usize,
    omitted: u64,
}

impl LogExcerpt {
    fn push_line(&mut self, line: &str) {
        if self.tail.is_empty() && self.head.len() + line.len() < EXCERPT_BYTES {
            self.head.push_str(line);
            self.head.push('\n');
            return;
        }
        self.tail_bytes += line.len() + 1;
        self.tail.push_back(line.to_owned());
        while self.tail_bytes > EXCERPT_BYTES {
            let Some(gone) = self.tail.pop_front() else {
                break;
            };
            self.tail_bytes -= gone.len() + 1;
            self.omitted += gone.len() as u64 + 1;
        }
    }

    /// The text, and how many bytes it leaves out in the middle.
    pub fn into_text(self) -> (String, u64) {
        let mut text = self.head;
        if self.omitted > 0 {
            text.push_str(&format!("[… {} bytes left out …]\n", self.omitted));
        }
        for line in self.tail {
            text.push_str(&line);
            text.push('\n');
        }
        (text, self.omitted)
    }
}

/// Whether the user asked to watch, and for no load.
pub fn observes_only(capture: &Capture) -> bool {
    matches!(capture.request.bench.as_str(), "" | "none")
}

/// The probe's result of the repeat that peaked.
fn torch_report(engine: EngineId, capture: &Capture, repeat: Option<u32>) -> Option<TorchReport> {
    let kind = load_kind(capture)?.of_engine()?;
    let mut results = capture
        .benches()
        .filter(|e| e.repeat == repeat)
        .filter_map(|e| e.result.as_deref());
    results.find_map(|text| (engine.read_memory)(kind, text))
}

/// The bench that the request asks for.
pub fn load_kind(capture: &Capture) -> Option<LoadKind> {
    LoadKind::ALL
        .into_iter()
        .find(|k| k.as_str() == capture.request.bench)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_keeps_both_ends_and_counts_the_rest() {
        let mut excerpt = LogExcerpt::default();
        let line = "x".repeat(999);
        for i in 0..1000 {
            excerpt.push_line(&format!("{i} {line}"));
        }
        let (text, omitted) = excerpt.into_text();
        assert!(text.starts_with("0 x") && text.contains("999 x"));
        assert!(text.len() < 2 * EXCERPT_BYTES + 100);
        let kept: usize = text
            .lines()
            .filter(|l| l.ends_with('x'))
            .map(|l| l.len() + 1)
            .sum();
        let all: usize = (0..1000).map(|i| format!("{i} {line}").len() + 1).sum();
        assert_eq!(kept as u64 + omitted, all as u64);
    }
}
