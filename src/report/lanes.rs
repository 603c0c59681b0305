//! From the samples of a capture, or the points of a profile, to a timeline: lanes, phases, events.

use super::chart::envelope::Envelope;
use super::chart::{ChartTimeline, Stretch, TimelineEvent, TimelineLane, TimelinePhase};
use crate::capture::{
    AtNs, Capture, DeviceFacts, DeviceKind, ExecRole, MemorySample, Mode, Phase as Part, RunEnd,
};
use crate::engine::facts::{EngineStep, StepMark};
use crate::profile::Profile;
use crate::units::to_gib;
use std::collections::BTreeMap;

/// Events that are shown at most; the first and the bad ones matter.
const MOST_EVENTS: usize = 100;

/// Of a timeline with aggregated samples.
const THINNED: &str =
    "Samples that lie close together are drawn as one stretch from their lowest to their highest.";
/// Of a timeline without a capture.
const NO_CAPTURE: &str = "The capture is not beside the profile: these are its own points, thinned to 2000, and phases are not known.";
/// A device of which less is in use would be drawn as a flat line at the bottom.
const WORTH_A_LINE: f64 = 0.2;

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
    told: &CaptureLog,
    profile: &Profile,
    most: usize,
) -> ChartTimeline {
    let from = capture.shared_start.as_ref().map_or(0, |s| s.began_at_ns);
    let range = (from.min(0), capture.ended_at_ns.max(from.min(0)));
    // What was read at the very edges belongs to it.
    let range_s = (
        capture_seconds(range.0) - 1.0,
        capture_seconds(range.1) + 1.0,
    );
    let devices = &capture.devices;
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
        put(LaneKind::Memory, device, at, low, high);
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
    let lanes = found
        .into_iter()
        .map(|((kind, device), envelope)| kind.lane(device_facts(devices, device), envelope));
    let mut lanes: Vec<TimelineLane> = lanes.collect();
    let empty = without_far_capacities(&mut lanes);
    let thinned = lanes.iter().any(|l| l.samples > l.stretches.len() as u64);
    let first = (lanes.iter().filter_map(|l| l.stretches.first()))
        .map(|s| s.from_s)
        .fold(f64::INFINITY, f64::min);
    ChartTimeline {
        title: "Memory over time".into(),
        note: sentences([thinned.then(|| THINNED.to_owned()), empty]),
        simulated: profile.metadata.simulated,
        origin: origin(capture.wall_start_ns),
        range_s: (first.min(0.0), capture_seconds(range.1)),
        phases: phases(capture, &told.steps, first),
        events: timeline_events(capture, told, profile),
        lanes,
        ..ChartTimeline::default()
    }
}

/// The timeline of a profile without its capture: its own points, summed over the devices.
pub fn of_profile(profile: &Profile) -> ChartTimeline {
    let points = &profile.memory_timeline.timeline;
    let began = profile.metadata.timestamp.parse::<jiff::Timestamp>();
    let origin_s = match &began {
        Ok(at) => at.as_nanosecond() as f64 / 1e9,
        Err(_) => points.first().map_or(0.0, |p| p.timestamp),
    };
    let lane = |kind: LaneKind,
                label: &str,
                pick: fn(&crate::profile::TimelinePoint) -> Option<(f64, f64)>| {
        let stretches: Vec<Stretch> = (points.iter())
            .filter_map(|p| {
                let (low, high) = pick(p)?;
                let at = p.timestamp - origin_s;
                let known = [low, high, at].iter().all(|v| v.is_finite());
                known.then_some(Stretch {
                    from_s: at,
                    to_s: at,
                    low,
                    high,
                })
            })
            .collect();
        let samples = match kind {
            LaneKind::Memory => profile.memory_timeline.num_samples,
            _ => stretches.len() as u64,
        };
        TimelineLane {
            label: label.into(),
            unit: kind.unit().into(),
            capacity: None,
            samples,
            stretches,
        }
    };
    let devices = &profile.gpu_info.devices;
    let label = match devices.as_slice() {
        [one] => format!("{} memory", device_label(one)),
        _ => "Memory of all devices".to_owned(),
    };
    let mut memory = lane(LaneKind::Memory, &label, |p| {
        Some((p.memory_gb, p.high_gb.max(p.memory_gb)))
    });
    if let [one] = devices.as_slice() {
        memory.capacity = LaneKind::Memory.capacity(Some(one));
    }
    let mut lanes = vec![
        memory,
        lane(LaneKind::Power, "Power of all devices", |p| {
            p.power_w.map(|w| (w, w))
        }),
        lane(LaneKind::Temperature, "Hottest device", |p| {
            p.temp_c.map(|t| (t, t))
        }),
    ];
    lanes.retain(|l| !l.stretches.is_empty());
    let empty = without_far_capacities(&mut lanes);
    let edge = |pick: fn(&Stretch) -> f64, of: fn(f64, f64) -> f64| {
        let all = lanes.iter().flat_map(|l| &l.stretches).map(pick);
        all.reduce(of).unwrap_or(0.0)
    };
    ChartTimeline {
        title: "Memory over time".into(),
        note: sentences([Some(NO_CAPTURE.to_owned()), empty]),
        simulated: profile.metadata.simulated,
        origin: began.is_ok().then(|| profile.metadata.timestamp.clone()),
        range_s: (edge(|s| s.from_s, f64::min), edge(|s| s.to_s, f64::max)),
        events: peak_event(profile).into_iter().collect(),
        lanes,
        ..ChartTimeline::default()
    }
}

/// Removes the line of a capacity that is far above all that was in use, with a note.
fn without_far_capacities(lanes: &mut [TimelineLane]) -> Option<String> {
    let mut told = None;
    for lane in lanes {
        let highest = lane.stretches.iter().map(|s| s.high).fold(0.0, f64::max);
        if let Some(capacity) = lane.capacity.filter(|c| highest < c * WORTH_A_LINE) {
            lane.capacity = None;
            told = Some(format!(
                "The device has {capacity:.3} GiB: far above, and not drawn."
            ));
        }
    }
    told
}

fn sentences(all: [Option<String>; 2]) -> Option<String> {
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// What a lane shows. The order is that of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaneKind {
    Memory,
    KvUsage,
    Running,
    Waiting,
    Power,
    Temperature,
}

impl LaneKind {
    fn unit(self) -> &'static str {
        match self {
            LaneKind::Memory => "GiB",
            LaneKind::KvUsage => "%",
            LaneKind::Running | LaneKind::Waiting => "",
            LaneKind::Power => "W",
            LaneKind::Temperature => "°C",
        }
    }

    fn capacity(self, device: Option<&DeviceFacts>) -> Option<f64> {
        let device = device.filter(|_| self == LaneKind::Memory)?;
        device.total_bytes.map(to_gib)
    }

    fn lane(self, facts: Option<&DeviceFacts>, envelope: Envelope) -> TimelineLane {
        let of = facts.map_or_else(|| "device".to_owned(), device_label);
        let label = match self {
            LaneKind::Memory => format!("{of} memory"),
            LaneKind::Power => format!("{of} power"),
            LaneKind::Temperature => format!("{of} temperature"),
            LaneKind::KvUsage => "KV pool in use".into(),
            LaneKind::Running => "Requests running".into(),
            LaneKind::Waiting => "Requests waiting".into(),
        };
        TimelineLane {
            label,
            unit: self.unit().into(),
            capacity: self.capacity(facts),
            samples: envelope.sample_count(),
            stretches: envelope.into_stretches(),
        }
    }
}

fn device_facts(devices: &[DeviceFacts], index: u32) -> Option<&DeviceFacts> {
    devices.iter().find(|d| d.index == index)
}

/// A device in words: `GPU 0`.
pub(super) fn device_label(facts: &DeviceFacts) -> String {
    match facts.kind {
        DeviceKind::Gpu => format!("GPU {}", facts.index),
        DeviceKind::HostCgroup => "Container".into(),
    }
}

/// The phases of a run: what plimsoll went through, and within a start-up what the engine did.
fn phases(capture: &Capture, steps: &[StepMark], first: f64) -> Vec<TimelinePhase> {
    let many = capture.marks.iter().any(|m| m.repeat > Some(1));
    let mut begins: Vec<(AtNs, String)> = (capture.marks.iter())
        .map(|m| {
            let word = match m.phase {
                Part::Baseline => "baseline",
                Part::Start => "start",
                Part::Warmup => "warm-up",
                Part::Bench => "load",
                Part::Cooldown => "after",
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

fn timeline_events(capture: &Capture, told: &CaptureLog, profile: &Profile) -> Vec<TimelineEvent> {
    let of_container = capture.events.iter().filter_map(|e| {
        let bad = matches!(e.action.as_str(), "die" | "oom" | "kill" | "destroy");
        let known = bad || matches!(e.action.as_str(), "start" | "restart" | "stop" | "pause");
        known.then(|| TimelineEvent {
            at_s: capture_seconds(e.at_ns),
            label: match e.attributes.get("exitCode") {
                Some(code) => format!("container: {}, exit code {code}", e.action),
                None => format!("container: {}", e.action),
            },
            bad,
        })
    });
    let of_devices = capture.sampling.events.iter().map(|e| TimelineEvent {
        at_s: capture_seconds(e.at_ns),
        label: e.message.clone(),
        bad: true,
    });
    let of_findings = told.findings.iter().map(|(at, code, bad)| TimelineEvent {
        at_s: capture_seconds(*at),
        label: code.replace('_', " "),
        bad: *bad,
    });
    let mut all: Vec<TimelineEvent> = of_container.chain(of_devices).chain(of_findings).collect();
    all.extend(peak_event(profile));
    if !matches!(capture.end, RunEnd::Completed) {
        all.push(TimelineEvent {
            at_s: capture_seconds(capture.ended_at_ns),
            label: super::chapters::outcome_label(&capture.end).to_owned(),
            bad: true,
        });
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

fn peak_event(profile: &Profile) -> Option<TimelineEvent> {
    let peak = profile.memory_measurements.peak.as_ref()?;
    Some(TimelineEvent {
        at_s: capture_seconds(peak.at_ns),
        label: format!("peak: {:.3} GiB", peak.total_gb),
        bad: false,
    })
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
    use crate::capture::{ExecOutcome, PhaseMark};

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
                mark(0, Part::Baseline),
                mark(24, Part::Warmup),
                mark(27, Part::Bench),
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
}
