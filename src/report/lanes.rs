//! From the samples of a capture, or the points of a profile, to a timeline: lanes, phases, events.

use super::chart::envelope::Envelope;
use super::chart::{
    ChartTimeline, MemoryLayer, Stretch, TimelineEvent, TimelineLane, TimelinePhase,
};
use super::layout::join_sentences;
use crate::breakdown::{Component, Part};
use crate::capture::{AtNs, Capture, DeviceFacts, ExecRole, MemorySample, Mode, Phase, RunEnd};
use crate::engine::facts::{EngineStep, StepMark};
use crate::profile::{Profile, TimelinePoint, device_label};
use crate::units::to_gib;
use std::collections::BTreeMap;

/// Events that are shown at most; the first and the bad ones matter.
const MOST_EVENTS: usize = 100;

/// Of a timeline with aggregated samples.
const THINNED: &str =
    "Samples that lie close together are drawn as one stretch from their lowest to their highest.";
/// Of a timeline without a capture.
const NO_CAPTURE: &str = "The capture is not beside the profile: these are its own points, thinned to 2000. Without the times of its phases, memory is not divided into components.";
/// Of a timeline that cannot be divided into components.
const NO_MOMENTS: &str =
    "The log has no times of the start-up steps: memory is not divided into components.";
/// Of a timeline with unknown components.
const NO_PARTS: &str = "The size of no component is known: memory is not divided into components.";
/// An idle beginning of the axis longer than this share of it is left out.
const IDLE_SHARE: f64 = 0.2;
/// What is still shown before something happens, as a share of all that follows.
const LEAD_IN: f64 = 0.08;
/// A lane that moves by less than this share of its highest is idle.
const IDLE_BAND: f64 = 0.01;
/// Components from below: what is first in memory is lowest, what comes and goes is above.
const LAYERS: [Component; 12] = [
    Component::Baseline,
    Component::DriverReserved,
    Component::Runtime,
    Component::NonTorch,
    Component::ModelWeights,
    Component::KvCache,
    Component::CudaGraphs,
    Component::Swap,
    Component::WarmupGrowth,
    Component::PageCache,
    Component::BenchClient,
    Component::Activations,
];

/// What lies beside the samples: read from the log of the same capture.
#[derive(Debug, Default)]
pub struct CaptureLog {
    /// Milestones of the engine.
    pub steps: Vec<StepMark>,
    /// Moments of findings: code, and whether it is bad.
    pub findings: Vec<(AtNs, String, bool)>,
}

/// The timeline of a capture, of at most `most` stretches in all lanes together.
pub fn of_capture(
    capture: &Capture,
    samples: impl Iterator<Item = MemorySample>,
    log: &CaptureLog,
    profile: &Profile,
    most: usize,
) -> ChartTimeline {
    let from = capture.shared_start.as_ref().map_or(0, |s| s.began_at_ns);
    let range = (from.min(0), capture.ended_at_ns.max(from.min(0)));
    // What was read at the very edges belongs to it.
    let (begin, end) = (capture_seconds(range.0), capture_seconds(range.1));
    let range_s = (begin - 1.0, end + 1.0);
    let devices = &capture.sampled_devices();
    // Memory, power and temperature of each device, three gauges.
    let each = (most / (devices.len() * 3 + 3)).max(2);
    let mut found: BTreeMap<(LaneKind, u32), Envelope> = BTreeMap::new();
    let mut put = |kind, device, at: AtNs, low: f64, high: f64| {
        let lane = found.entry((kind, device));
        lane.or_insert_with(|| Envelope::new(range_s, each))
            .add(capture_seconds(at), low, high);
    };
    for sample in samples {
        if !devices.iter().any(|d| d.index == sample.device) {
            continue;
        }
        let (at, device) = (sample.at_ns, sample.device);
        // As the peak counts it: with what the driver keeps for itself.
        let whole = |bytes: u64| to_gib(bytes.saturating_add(sample.reserved_bytes.unwrap_or(0)));
        let used = whole(sample.used_bytes);
        let low = sample.low_bytes.map_or(used, |b| whole(b).min(used));
        let high = sample.high_bytes.map_or(used, |b| whole(b).max(used));
        let host = capture.host_memory.as_ref().filter(|d| d.index == device);
        let kind = host.map_or(LaneKind::Memory, |_| LaneKind::HostMemory);
        put(kind, device, at, low, high);
        if let Some(watts) = sample.power_mw.map(|mw| f64::from(mw) / 1e3) {
            put(LaneKind::Power, device, at, watts, watts);
        }
        if let Some(degrees) = sample.temperature_c.map(f64::from) {
            put(LaneKind::Temperature, device, at, degrees, degrees);
        }
    }
    for gauge in &capture.gauges {
        let figures = [
            (LaneKind::KvUsage, gauge.kv_cache_usage.map(|u| u * 100.0)),
            (LaneKind::Running, gauge.requests_running.map(|n| n as f64)),
            (LaneKind::Waiting, gauge.requests_waiting.map(|n| n as f64)),
        ];
        for (kind, value) in figures {
            if let Some(value) = value.filter(|v| v.is_finite()) {
                put(kind, 0, gauge.at_ns, value, value);
            }
        }
    }
    let moments = ComponentMoments::find_moments(capture, &log.steps);
    let lanes = found.into_iter().map(|((kind, device), envelope)| {
        let lane = kind.lane(device_facts(devices, device), envelope);
        let layers = match (kind, &moments) {
            (LaneKind::Memory, Some(moments)) => moments.layers(parts_of_device(profile, device)),
            _ => Vec::new(),
        };
        (kind, device, TimelineLane { layers, ..lane })
    });
    let lanes: Vec<(LaneKind, u32, TimelineLane)> = lanes.collect();
    let of_memory = lanes.iter().filter(|l| l.0 == LaneKind::Memory);
    let of_memory: Vec<(u32, &TimelineLane)> = of_memory.map(|l| (l.1, &l.2)).collect();
    let peak = fullest_device_peak(profile, &of_memory).or_else(|| peak_event(profile));
    let lanes: Vec<TimelineLane> = lanes.into_iter().map(|l| l.2).collect();
    let divided = lanes.iter().any(|l| !l.layers.is_empty());
    let why = moments.as_ref().map_or(NO_MOMENTS, |_| NO_PARTS);
    let undivided = (!divided).then_some(why);
    let thinned = lanes.iter().any(|l| l.samples > l.stretches.len() as u64);
    let first = (lanes.iter().filter_map(|l| l.stretches.first()))
        .map(|s| s.from_s)
        .fold(f64::INFINITY, f64::min);
    let timeline = ChartTimeline {
        note: join_sentences(thinned.then_some(THINNED).into_iter().chain(undivided)),
        simulated: profile.metadata.simulated,
        origin: origin(capture.wall_start_ns),
        range_s: (if first.is_finite() { first } else { 0.0 }, end),
        phases: phases(capture, &log.steps, first),
        events: timeline_events(capture, log, peak),
        lanes,
    };
    skip_idle_begin(timeline)
}

/// Begins the axis shortly before anything happens, where nothing does for a good part of it.
fn skip_idle_begin(timeline: ChartTimeline) -> ChartTimeline {
    let (first, end) = timeline.range_s;
    let idle = ["baseline", "start"];
    let begins = timeline.phases.iter();
    let moments = (begins.filter(|p| !idle.contains(&p.label.as_str())))
        .map(|p| p.from_s)
        .chain(timeline.events.iter().map(|e| e.at_s))
        .chain(timeline.lanes.iter().filter_map(first_change));
    let active = moments.filter(|at| *at >= first).fold(end, f64::min);
    let from = active - (end - active) * LEAD_IN;
    if from - first < (end - first) * IDLE_SHARE || active >= end {
        return timeline;
    }
    let skipped = format!(
        "The axis begins at {from:.1} s: in the {:.1} s before, memory and requests did not change.",
        from - first
    );
    let mut phases = timeline.phases;
    phases.retain(|p| p.to_s > from);
    ChartTimeline {
        range_s: (from, end),
        note: join_sentences([skipped].into_iter().chain(timeline.note)),
        phases,
        ..timeline
    }
}

/// When the load of a device or an engine first differs from how it began; power and temperature always move.
fn first_change(lane: &TimelineLane) -> Option<f64> {
    if matches!(lane.unit.as_str(), "W" | "°C") {
        return None;
    }
    let first = lane.stretches.first()?;
    let highest = lane.stretches.iter().map(|s| s.high).fold(0.0, f64::max);
    let band = highest * IDLE_BAND;
    let differs = |s: &&Stretch| s.high - first.low > band || first.high - s.low > band;
    Some(lane.stretches.iter().find(differs)?.from_s)
}

/// The timeline of a profile without its capture: its own points, summed over the devices.
pub fn of_profile(profile: &Profile) -> ChartTimeline {
    let points = &profile.memory_timeline.timeline;
    let began = profile.metadata.timestamp.parse::<jiff::Timestamp>();
    let origin_s = match &began {
        Ok(at) => at.as_nanosecond() as f64 / 1e9,
        Err(_) => points.first().map_or(0.0, |p| p.timestamp),
    };
    let devices = profile.gpu_info.devices.as_slice();
    let only = devices.first().filter(|_| devices.len() == 1);
    let lane = |kind: LaneKind, pick: fn(&TimelinePoint) -> Option<(f64, f64)>| {
        let mut envelope = Envelope::new((f64::MIN, f64::MAX), usize::MAX);
        for point in points {
            if let Some((low, high)) = pick(point) {
                envelope.add(point.timestamp - origin_s, low, high);
            }
        }
        kind.lane(only, envelope)
    };
    let mut memory = lane(LaneKind::Memory, |p| {
        Some((p.memory_gb, p.high_gb.max(p.memory_gb)))
    });
    memory.samples = profile.memory_timeline.num_samples;
    if only.is_none() {
        memory.label = "Memory of all devices".to_owned();
    }
    let mut power = lane(LaneKind::Power, |p| p.power_w.map(|w| (w, w)));
    power.label = "Power of all devices".to_owned();
    let mut temperature = lane(LaneKind::Temperature, |p| p.temp_c.map(|t| (t, t)));
    temperature.label = "Hottest device".to_owned();
    let mut lanes = vec![memory, power, temperature];
    lanes.retain(|l| !l.stretches.is_empty());
    let edge = |pick: fn(&Stretch) -> f64, of: fn(f64, f64) -> f64| {
        let all = lanes.iter().flat_map(|l| &l.stretches).map(pick);
        all.reduce(of).unwrap_or(0.0)
    };
    skip_idle_begin(ChartTimeline {
        note: Some(NO_CAPTURE.to_owned()),
        simulated: profile.metadata.simulated,
        origin: began.is_ok().then(|| profile.metadata.timestamp.clone()),
        range_s: (edge(|s| s.from_s, f64::min), edge(|s| s.to_s, f64::max)),
        events: peak_event(profile).into_iter().collect(),
        lanes,
        ..ChartTimeline::default()
    })
}

/// What a lane shows. The order is that of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaneKind {
    Memory,
    /// The container's, beside its GPUs.
    HostMemory,
    KvUsage,
    Running,
    Waiting,
    Power,
    Temperature,
}

impl LaneKind {
    fn lane(self, facts: Option<&DeviceFacts>, envelope: Envelope) -> TimelineLane {
        let of = facts.map_or_else(|| "device".to_owned(), device_label);
        let (label, unit) = match self {
            LaneKind::Memory => (format!("{of} memory"), "GiB"),
            LaneKind::HostMemory => ("Container's host memory".into(), "GiB"),
            LaneKind::Power => (format!("{of} power"), "W"),
            LaneKind::Temperature => (format!("{of} temperature"), "°C"),
            LaneKind::KvUsage => ("KV pool in use".into(), "%"),
            LaneKind::Running => ("Requests running".into(), ""),
            LaneKind::Waiting => ("Requests waiting".into(), ""),
        };
        let sized = facts.filter(|_| unit == "GiB");
        TimelineLane {
            label,
            unit: unit.into(),
            capacity: sized.and_then(|device| device.total_bytes).map(to_gib),
            samples: envelope.sample_count(),
            stretches: envelope.into_stretches(),
            memory: self == LaneKind::Memory,
            component: (self == LaneKind::KvUsage).then_some(Component::KvCache),
            layers: Vec::new(),
        }
    }
}

fn device_facts(devices: &[DeviceFacts], index: u32) -> Option<&DeviceFacts> {
    devices.iter().find(|d| d.index == index)
}

/// The phases of a run: what plimsoll went through, and within a start-up what the engine did.
fn phases(capture: &Capture, steps: &[StepMark], first: f64) -> Vec<TimelinePhase> {
    let many = capture.marks.iter().any(|m| m.repeat > Some(1));
    let mut begins: Vec<(AtNs, String)> = (capture.marks.iter())
        .map(|m| {
            let word = match m.phase {
                Phase::Baseline => "baseline",
                Phase::Start => "start",
                Phase::Warmup => "warm-up",
                Phase::Bench => "load",
                Phase::Cooldown => "after",
            };
            match m.repeat.filter(|_| many) {
                Some(n) => (m.at_ns, format!("{word} {n}")),
                None => (m.at_ns, word.to_owned()),
            }
        })
        .collect();
    // The start of a bench ends the baseline: it loads its own engine, or its client prepares requests.
    let benches = capture.execs.iter().filter(|e| e.role == ExecRole::Bench);
    begins.extend(benches.map(|e| {
        let word = match (capture.mode, e.repeat.filter(|_| many)) {
            (Mode::Idle, _) => "start".to_owned(),
            (_, Some(n)) => format!("warm-up {n}"),
            (_, None) => "warm-up".to_owned(),
        };
        (e.started_at_ns, word)
    }));
    // A step ends what is named after it.
    let mut before: Option<AtNs> = None;
    for step in steps {
        let Some(at) = step.at_ns else { continue };
        let word = match step.step {
            EngineStep::WeightsLoaded => "weights",
            EngineStep::Profiled => "profile run",
            EngineStep::KvCacheAllocated => "KV pool",
            EngineStep::GraphsCaptured => "CUDA graphs",
            EngineStep::Ready => "getting ready",
            EngineStep::Started | EngineStep::LoadingWeights | EngineStep::Stopping => "start",
        };
        if let Some(from) = before {
            begins.push((from, word.to_owned()));
        }
        before = (step.step != EngineStep::Ready).then_some(at);
        if step.step == EngineStep::Ready {
            begins.push((at, "ready".to_owned()));
        }
    }
    begins.sort_by_key(|(at, _)| *at);
    let ends = begins.iter().skip(1).map(|(at, _)| *at);
    let ends: Vec<AtNs> = ends.chain([capture.ended_at_ns]).collect();
    let mut all: Vec<TimelinePhase> = Vec::new();
    for ((from, label), to) in begins.into_iter().zip(ends) {
        // A stretch shorter than one sample interval is not a phase; what lies before the samples is unseen.
        if to - from < 1_000_000 || capture_seconds(to) <= first {
            continue;
        }
        match all.last_mut() {
            Some(last) if last.label == label => last.to_s = capture_seconds(to),
            _ => all.push(TimelinePhase {
                label,
                from_s: capture_seconds(from).max(first),
                to_s: capture_seconds(to),
            }),
        }
    }
    all
}

/// What a device holds at its peak; nothing where that is not known.
fn parts_of_device(profile: &Profile, device: u32) -> &[Part] {
    let devices = &profile.memory_breakdown.per_gpu;
    let found = devices.iter().find(|d| d.gpu_id == device);
    found.map_or(&[], |d| &d.parts)
}

/// When the components come into memory, seconds.
struct ComponentMoments {
    engine: f64,
    weights: f64,
    profiling: Option<(f64, f64)>,
    kv_pool: f64,
    graphs: f64,
    ready: f64,
    client: f64,
    load: f64,
}

impl ComponentMoments {
    /// Nothing where the start of the engine was seen and its log has no times.
    fn find_moments(capture: &Capture, steps: &[StepMark]) -> Option<ComponentMoments> {
        let at = |step: EngineStep| {
            let found = steps.iter().filter(|s| s.step == step);
            found.filter_map(|s| s.at_ns).map(capture_seconds).next()
        };
        let first_mark = |phases: &[Phase]| {
            let found = capture.marks.iter().filter(|m| phases.contains(&m.phase));
            found.map(|m| capture_seconds(m.at_ns)).reduce(f64::min)
        };
        let clients = capture.execs.iter().filter(|e| e.role == ExecRole::Bench);
        let client = clients.map(|e| e.started_at_ns).min().map(capture_seconds);
        // All of the engine was in memory before the first sample.
        let before = (capture.mode == Mode::Serving).then_some(f64::NEG_INFINITY);
        let loaded = at(EngineStep::WeightsLoaded).or(before)?;
        let engine = at(EngineStep::Started)
            .or(before)
            .or_else(|| first_mark(&[Phase::Start]))
            .or(client.filter(|_| capture.mode == Mode::Idle))
            .unwrap_or(f64::NEG_INFINITY);
        let profiled = at(EngineStep::Profiled);
        let kv_pool = profiled.unwrap_or(loaded);
        let graphs = at(EngineStep::KvCacheAllocated).unwrap_or(kv_pool);
        let ready = at(EngineStep::Ready)
            .or(at(EngineStep::GraphsCaptured))
            .unwrap_or(graphs);
        let load = first_mark(&[Phase::Warmup, Phase::Bench]).or(client);
        Some(ComponentMoments {
            engine,
            weights: at(EngineStep::LoadingWeights).unwrap_or(engine),
            profiling: profiled.map(|end| (loaded, end)),
            kv_pool,
            graphs,
            ready,
            client: client.unwrap_or(ready),
            load: load.map_or(ready, |at| at.max(ready)),
        })
    }

    /// The parts of a device at its peak, each from its own moment on.
    fn layers(&self, parts: &[Part]) -> Vec<MemoryLayer> {
        let mut layers = Vec::new();
        for component in LAYERS {
            let from = match component {
                Component::Baseline | Component::DriverReserved => f64::NEG_INFINITY,
                Component::ModelWeights => self.weights,
                Component::KvCache => self.kv_pool,
                Component::CudaGraphs => self.graphs,
                Component::WarmupGrowth => self.ready,
                Component::BenchClient => self.client,
                Component::Activations => self.load,
                _ => self.engine,
            };
            // The profiling run computes before there is a pool.
            let profiling = (self.profiling).filter(|_| component == Component::Activations);
            let spans = profiling.into_iter().chain([(from, f64::INFINITY)]);
            let mut known = parts.iter().filter(|p| p.bytes > 0);
            let Some(part) = known.find(|p| p.component == component) else {
                continue;
            };
            layers.extend(spans.map(|(from_s, to_s)| MemoryLayer {
                component,
                value: part.gb,
                from_s,
                to_s,
            }));
        }
        layers
    }
}

fn timeline_events(
    capture: &Capture,
    log: &CaptureLog,
    peak: Option<TimelineEvent>,
) -> Vec<TimelineEvent> {
    let of_container = capture.events.iter().filter_map(|e| {
        let bad = matches!(e.action.as_str(), "die" | "oom" | "kill" | "destroy");
        let known = bad || matches!(e.action.as_str(), "start" | "restart" | "stop" | "pause");
        let mut label = format!("container: {}", e.action);
        if let Some(code) = e.attributes.get("exitCode") {
            label.push_str(&format!(", exit code {code}"));
        }
        known.then(|| event_at(e.at_ns, label, bad))
    });
    let of_devices = capture.sampling.events.iter();
    let of_devices = of_devices.map(|e| event_at(e.at_ns, &e.message, true));
    let of_findings = log.findings.iter();
    let of_findings =
        of_findings.map(|(at, code, bad)| event_at(*at, code.replace('_', " "), *bad));
    let mut all: Vec<TimelineEvent> = of_container.chain(of_devices).chain(of_findings).collect();
    all.extend(peak);
    if !matches!(capture.end, RunEnd::Completed) {
        let outcome = super::chapters::outcome_label(&capture.end);
        all.push(event_at(capture.ended_at_ns, outcome, true));
    }
    all.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    if all.len() > MOST_EVENTS {
        let bad = all.iter().filter(|e| e.bad).count();
        let mut others = MOST_EVENTS.saturating_sub(bad);
        all.retain(|e| {
            let keep = e.bad || others > 0;
            others = others.saturating_sub(usize::from(!e.bad));
            keep
        });
        all.truncate(MOST_EVENTS);
    }
    all
}

/// The peak of the GPU with the least memory free, when its own lane has it; of a single device see [`peak_event`].
fn fullest_device_peak(profile: &Profile, lanes: &[(u32, &TimelineLane)]) -> Option<TimelineEvent> {
    if lanes.len() < 2 {
        return None;
    }
    let peaks = profile.memory_breakdown.per_gpu.iter().filter_map(|d| {
        let (_, lane) = lanes.iter().find(|l| l.0 == d.gpu_id)?;
        let peak = to_gib(d.peak_bytes);
        // The kernel's own high-water mark may be above all samples: it was reached at about the highest of them.
        let highest = lane.stretches.iter().map(|s| s.high).fold(0.0, f64::max);
        let reached = lane.stretches.iter().find(|s| s.high >= highest)?;
        let share = peak / lane.capacity.unwrap_or(f64::INFINITY);
        Some((share, peak, reached.to_s, d.gpu_id))
    });
    let order = |p: &(f64, f64, f64, u32)| (p.0, p.1);
    let (_, peak, at_s, gpu) = peaks.reduce(|a, b| if order(&b) > order(&a) { b } else { a })?;
    Some(TimelineEvent {
        at_s,
        label: format!("peak of GPU {gpu}: {peak:.3} GiB"),
        bad: false,
    })
}

fn peak_event(profile: &Profile) -> Option<TimelineEvent> {
    let peak = profile.memory_measurements.peak.as_ref()?;
    let label = format!("peak: {:.3} GiB", peak.total_gb);
    Some(event_at(peak.at_ns, label, false))
}

fn event_at(at: AtNs, label: impl Into<String>, bad: bool) -> TimelineEvent {
    TimelineEvent {
        at_s: capture_seconds(at),
        label: label.into(),
        bad,
    }
}

fn origin(wall_ns: i64) -> Option<String> {
    let at = jiff::Timestamp::from_nanosecond(wall_ns.into()).ok()?;
    Some(format!("{at:.3}"))
}

fn capture_seconds(at: AtNs) -> f64 {
    at as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakdown::Confidence;
    use crate::capture::{ExecOutcome, PhaseMark};

    fn flat_then_loaded(load_s: f64, idle: f64) -> ChartTimeline {
        let stretch = |n: u32| {
            let at = f64::from(n);
            let value = if at < load_s { idle } else { idle + 4.0 };
            Stretch {
                from_s: at,
                to_s: at,
                low: value,
                high: value,
            }
        };
        ChartTimeline {
            range_s: (0.0, 40.0),
            lanes: vec![TimelineLane {
                unit: "GiB".into(),
                stretches: (0..=40).map(stretch).collect(),
                ..TimelineLane::default()
            }],
            phases: vec![TimelinePhase {
                label: "baseline".into(),
                from_s: 0.0,
                to_s: load_s,
            }],
            ..ChartTimeline::default()
        }
    }

    #[test]
    fn the_axis_begins_shortly_before_the_first_change_and_is_marked() {
        let long = skip_idle_begin(flat_then_loaded(25.0, 70.0));
        assert_eq!(long.range_s, (25.0 - 15.0 * LEAD_IN, 40.0));
        assert_eq!(long.phases.len(), 1);
        assert_eq!(
            long.note.as_deref(),
            Some(
                "The axis begins at 23.8 s: in the 23.8 s before, memory and requests did not change."
            )
        );
        for same in [flat_then_loaded(5.0, 70.0), flat_then_loaded(99.0, 70.0)] {
            assert_eq!(skip_idle_begin(same.clone()), same);
        }
        // An event is never left out.
        let mut restarted = flat_then_loaded(25.0, 70.0);
        restarted.events.push(TimelineEvent {
            at_s: 1.0,
            label: "container: restart".into(),
            bad: false,
        });
        assert_eq!(skip_idle_begin(restarted.clone()), restarted);
    }

    #[test]
    fn the_peak_of_several_gpus_is_that_of_the_fullest_and_no_sum() {
        let device = |gpu_id, gib: u64| crate::breakdown::DeviceBreakdown {
            gpu_id,
            peak_bytes: gib << 30,
            peak_source: crate::breakdown::PeakSource::Sample,
            parts: Vec::new(),
        };
        let mut profile = crate::profile::derive_profile(&Capture::default(), [], []);
        profile.memory_breakdown.per_gpu = vec![device(0, 72), device(1, 74)];
        let lane = |highest: f64| TimelineLane {
            capacity: Some(80.0),
            stretches: [(1.0, 60.0), (7.0, highest), (9.0, 70.0)]
                .map(|(at, value)| Stretch {
                    from_s: at,
                    to_s: at,
                    low: value,
                    high: value,
                })
                .into(),
            ..TimelineLane::default()
        };
        let (a, b) = (lane(72.0), lane(74.0));
        let event = fullest_device_peak(&profile, &[(0, &a), (1, &b)]).unwrap();
        assert_eq!(
            (event.at_s, event.label.as_str()),
            (7.0, "peak of GPU 1: 74.000 GiB")
        );
        assert_eq!(fullest_device_peak(&profile, &[(0, &a)]), None);
    }

    /// A client of an attached engine that takes 22 seconds to start sending.
    #[test]
    fn the_start_of_a_client_is_warm_up_and_no_baseline() {
        let mark = |s: i64, phase| PhaseMark {
            at_ns: s * 1_000_000_000,
            phase,
            repeat: Some(1),
        };
        let capture = Capture {
            marks: vec![
                mark(0, Phase::Baseline),
                mark(24, Phase::Warmup),
                mark(27, Phase::Bench),
            ],
            execs: vec![ExecOutcome {
                role: ExecRole::Bench,
                repeat: Some(1),
                started_at_ns: 2_000_000_000,
                ..ExecOutcome::default()
            }],
            ended_at_ns: 40_000_000_000,
            ..Capture::default()
        };
        let drawn: Vec<(String, f64, f64)> = phases(&capture, &[], 0.0)
            .into_iter()
            .map(|p| (p.label, p.from_s, p.to_s))
            .collect();
        let phase = |label: &str, from, to| (label.to_owned(), from, to);
        let expected = [
            phase("baseline", 0.0, 2.0),
            phase("warm-up", 2.0, 27.0),
            phase("load", 27.0, 40.0),
        ];
        assert_eq!(drawn, expected);
    }

    fn second_of(step: EngineStep, s: i64) -> StepMark {
        StepMark {
            step,
            at_ns: Some(s * 1_000_000_000),
            quote: String::new(),
        }
    }

    #[test]
    fn a_component_is_drawn_from_the_moment_at_which_its_phase_begins() {
        let capture = Capture {
            mode: Mode::Started,
            marks: vec![PhaseMark {
                at_ns: 30_000_000_000,
                phase: Phase::Bench,
                repeat: None,
            }],
            ..Capture::default()
        };
        let steps = [
            second_of(EngineStep::Started, 2),
            second_of(EngineStep::LoadingWeights, 5),
            second_of(EngineStep::WeightsLoaded, 10),
            second_of(EngineStep::Profiled, 12),
            second_of(EngineStep::KvCacheAllocated, 14),
            second_of(EngineStep::Ready, 20),
        ];
        let moments = ComponentMoments::find_moments(&capture, &steps).unwrap();
        let part = |component| Part {
            component,
            bytes: 1 << 30,
            gb: 1.0,
            percent: 10.0,
            confidence: Confidence::unknown_confidence(),
        };
        let parts = [
            Component::ModelWeights,
            Component::KvCache,
            Component::Activations,
            Component::CudaGraphs,
            Component::Unexplained,
        ]
        .map(part);
        let layers: Vec<(Component, f64, f64)> = moments
            .layers(&parts)
            .into_iter()
            .map(|l| (l.component, l.from_s, l.to_s))
            .collect();
        let end = f64::INFINITY;
        let expected = [
            (Component::ModelWeights, 5.0, end),
            (Component::KvCache, 12.0, end),
            (Component::CudaGraphs, 14.0, end),
            // In the profiling run, and again under load.
            (Component::Activations, 10.0, 12.0),
            (Component::Activations, 30.0, end),
        ];
        assert_eq!(layers, expected);
        assert!(moments.layers(&[]).is_empty());
    }

    #[test]
    fn without_times_of_the_start_only_a_serving_engine_is_divided() {
        let untimed = StepMark {
            at_ns: None,
            ..second_of(EngineStep::WeightsLoaded, 0)
        };
        let find = |mode| {
            let capture = Capture {
                mode,
                ..Capture::default()
            };
            ComponentMoments::find_moments(&capture, std::slice::from_ref(&untimed))
        };
        assert!(find(Mode::Started).is_none() && find(Mode::Idle).is_none());
        assert_eq!(find(Mode::Serving).unwrap().kv_pool, f64::NEG_INFINITY);
    }
}
