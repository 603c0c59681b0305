//! Sentences to know when reading the numbers, each with a machine-readable code.

use super::elsewhere;
use super::neighbours;
use super::observation::{CaptureObservation, observes_only};
use super::out_of_memory::{KILLED_FROM_OUTSIDE, OomVerdict, describe_limit};
use super::placement::{self, Placement};
use super::series::PeakSource;
use super::ticks;
use super::{
    Breakdown, Configuration, Evidence, InternalMetrics, LatencyStats, Profile, replayed, torch,
};
use crate::breakdown::Component;
use crate::capture::{AtNs, DeviceEvent, ExecEnd, MemoryLimit, Mode, RunEnd};
use crate::engine;
use crate::engine::causes::advise_on_text;
use crate::engine::facts::{DEFAULT_UTILIZATION, EngineStep, Finding, Severity};
use crate::estimate::model::{Flags, describe_kv_readings};
use crate::units::{Bytes, signed_text};
use crate::wording::count_noun;

/// Two sources may differ by this share before it is reported.
const DISAGREEMENT_SHARE: f64 = 0.05;
/// And by at least this much, bytes: printed figures are rounded.
const DISAGREEMENT_BYTES: i64 = 64 << 20;
/// The same of two figures of a KV pool that are stated and not measured: more than their rounding.
const STATED_SHARE: f64 = 0.01;
const STATED_BYTES: i64 = 10 << 20;

/// More failed requests than this share make another load.
const FAILED_SHARE: f64 = 0.01;

/// Code of the finding for a model that was named and is not the one that is served.
const MODEL_DIFFERS: &str = "model_differs";

/// Code of the finding for a bench that loaded an engine beside one that serves.
pub const SECOND_ENGINE: &str = "second_engine";

/// All findings, worst first.
pub fn collect_findings(
    o: &CaptureObservation<'_>,
    evidence: &[Evidence],
    breakdown: &Breakdown,
    configuration: &Configuration,
    metrics: &InternalMetrics,
    latency: Option<&LatencyStats>,
) -> Vec<Finding> {
    let mut findings = o.log.findings.clone();
    if metrics.gpu_memory_utilization.is_some() {
        findings.retain(|f| f.code != DEFAULT_UTILIZATION);
    }
    find_run_end(o, &mut findings);
    findings.extend(requests(latency));
    torch::find_probe_problems(o, &mut findings);
    find_simulation(o, &mut findings);
    let placed = o.rank_placement() != Placement::Unknown;
    let speaks_of_its_device =
        |e: &&Evidence| placed || e.source.names_its_device() || o.is_host(e.gpu_id as usize);
    let (attributed, stray): (Vec<&Evidence>, Vec<&Evidence>) =
        evidence.iter().partition(speaks_of_its_device);
    not_mapped(o, &stray, &mut findings);
    disagreements(&attributed, &mut findings);
    sampling(o, &mut findings);
    findings.extend(overloaded(o));
    findings.extend(swapped(o));
    replayed::find_replay_problems(o, &mut findings);
    lost(o, &mut findings);
    peaks(o, &mut findings);
    neighbours::find_neighbours(o, &mut findings);
    elsewhere::find_memory_elsewhere(o, &mut findings);
    log(o, &mut findings);
    findings.extend(kv_heads_not_given(o));
    for d in &configuration.differences {
        if d.setting == "model" {
            let message = format!(
                "the run was configured for model `{}`, but the engine serves `{}`: calculated figures are for the first",
                d.requested, d.effective
            );
            findings.push(Finding::new_warning(MODEL_DIFFERS, message));
            continue;
        }
        let message = format!(
            "`{}` was asked to be {} and is {}",
            d.setting, d.requested, d.effective
        );
        findings.push(Finding::new_info("setting_differs", message));
    }
    let ignored = configuration.ignored.iter();
    findings.extend(ignored.map(|i| Finding::new_warning("setting_ignored", i.sentence())));
    let recognised = engine::recognise(&o.capture.container);
    if o.capture.mode == Mode::Idle && recognised.is_some_and(|(_, r)| r.serving) {
        let message = "an engine serves in this container: the bench loaded a second one beside it, and the baseline holds the first";
        findings.push(Finding::new_warning(SECOND_ENGINE, message));
    }
    if o.capture.mode == Mode::Serving {
        let quarter = breakdown.total_measured_bytes.map(|total| total as i64 / 4);
        let unexplained = breakdown.unexplained_bytes.zip(quarter);
        if let Some((unexplained, _)) = unexplained.filter(|(bytes, quarter)| bytes > quarter) {
            let message = format!(
                "{} is unexplained: the engine had started before the capture; use `plimsoll run` or an idle container to measure the start",
                signed_text(unexplained.into())
            );
            findings.push(Finding::new_info("startup_not_observed", message));
        }
        let on_gpu = (0..o.capture.devices.len()).any(|d| !o.is_host(d));
        let missing = o
            .engine
            .and_then(|e| (e.missing_log_detail)(&o.log, on_gpu));
        findings.extend(missing.map(|message| Finding::new_info("log_tells_less", message)));
    }
    if let Some(unexplained) = breakdown.unexplained_bytes.filter(|b| *b < -(32 << 20)) {
        let message = format!(
            "the sources report {} more than was measured: a reserved pool that is not touched, or a part counted twice",
            signed_text(-i128::from(unexplained))
        );
        findings.push(Finding::new_warning("negative_residual", message));
    }
    too_large(breakdown, evidence, &mut findings);
    findings.extend(load_without_trace(o, breakdown));
    let gauges = &o.capture.gauges;
    let ends = gauges.first().zip(gauges.last());
    let preemptions = ends.and_then(|(a, b)| Some(b.preemptions?.saturating_sub(a.preemptions?)));
    let reported = findings.iter().any(|f| f.code == "preemption_seen");
    if let Some(n) = preemptions.filter(|n| *n > 0 && !reported) {
        let message = format!(
            "{} during the load: the KV pool was too small for it",
            count_noun(n, "preemption")
        );
        findings.push(Finding::new_warning("preemption_seen", message));
    }
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    findings
}

impl Finding {
    /// Without a quote.
    pub fn new(code: &str, severity: Severity, message: impl Into<String>) -> Finding {
        Finding {
            code: code.into(),
            severity,
            message: message.into(),
            quote: None,
        }
    }

    pub(crate) fn new_error(code: &str, message: impl Into<String>) -> Finding {
        Finding::new(code, Severity::Error, message)
    }

    pub(crate) fn new_warning(code: &str, message: impl Into<String>) -> Finding {
        Finding::new(code, Severity::Warning, message)
    }

    pub(crate) fn new_info(code: &str, message: impl Into<String>) -> Finding {
        Finding::new(code, Severity::Info, message)
    }

    fn quoting(mut self, quote: Option<String>) -> Finding {
        self.quote = quote;
        self
    }
}

fn find_run_end(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let c = o.capture;
    let failed = |code: &str, message: String| {
        Finding::new_error(code, message).quoting(o.root_cause.clone())
    };
    let ended = c.end.describe().unwrap_or_default();
    findings.extend(match &c.end {
        RunEnd::Completed => None,
        RunEnd::Interrupted => Some(Finding::new_warning(
            "interrupted",
            format!("{ended}: the profile covers the time until then"),
        )),
        RunEnd::Deadline => Some(failed(
            "deadline",
            format!("{ended} of {} s and was stopped", c.request.timeout_s),
        )),
        RunEnd::ContainerLost(why) => Some(failed("container_lost", why.clone())),
        RunEnd::BenchFailed(why) => Some(failed("bench_failed", why.clone())),
        RunEnd::Failed(why) => Some(failed("run_failed", why.clone())),
    });
    let bench_137 = c.benches().any(|e| e.end == ExecEnd::Exited(137));
    match OomVerdict::of_capture(c) {
        OomVerdict::Killed(_) if findings.iter().any(|f| f.code == "oom") => {}
        OomVerdict::Killed(kill) => {
            let phase = kill.phase_of_kill(c).map(|p| format!(" in phase {p}"));
            let message = format!(
                "the kernel's OOM killer ended a process of the container{}: {}",
                phase.unwrap_or_default(),
                kill.describe_limit()
            );
            findings.push(Finding::new_error("oom", message));
        }
        verdict if bench_137 => {
            let why = if verdict == OomVerdict::NotKilled {
                KILLED_FROM_OUTSIDE
            } else {
                "; the out-of-memory killer is the usual reason, though no such event was seen"
            };
            let message = format!("the bench was killed (exit 137){why}");
            findings.push(Finding::new_error("bench_killed", message));
        }
        _ => {}
    }
    for e in c.execs.iter().filter(|e| e.survivors > 0) {
        let message = format!(
            "{} of the bench could not be ended and may still run in the container: restart it, or end them as root",
            count_noun(e.survivors, "process")
        );
        findings.push(
            Finding::new_error("bench_processes_left", message).quoting(Some(e.argv.join(" "))),
        );
    }
}

/// Requests that failed: the load was not the one that was asked for.
fn requests(latency: Option<&LatencyStats>) -> Option<Finding> {
    let (failed, all) = latency?.failed_requests().filter(|f| f.0 > 0)?;
    let severity = if failed as f64 > all as f64 * FAILED_SHARE {
        Severity::Error
    } else {
        Severity::Warning
    };
    let message = format!(
        "{failed} of {} failed: the load was not the one that was asked for",
        count_noun(all, "request")
    );
    Some(Finding::new("requests_failed", severity, message))
}

fn find_simulation(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    if o.engine.is_some_and(|e| e.simulated) {
        findings.push(Finding::new_warning(
            "simulated_engine",
            "the engine is simulated: its figures test plimsoll and hold for no real model",
        ));
    }
    if o.capture.backend.simulated {
        findings.push(Finding::new_warning(
            "simulated_gpu",
            "the GPU is simulated: its figures test plimsoll and hold for no real hardware",
        ));
    }
}

/// A label within a sentence: `Model weights` → `model weights`, but `KV cache pool` stays.
fn in_a_sentence(label: &str) -> String {
    let mut letters = label.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), &label[first.len_utf8()..])
        }
        _ => label.to_owned(),
    }
}

/// A part above the peak: of another device or rank, or of memory that was never touched.
fn too_large(breakdown: &Breakdown, evidence: &[Evidence], findings: &mut Vec<Finding>) {
    for device in &breakdown.per_gpu {
        let peak = i64::try_from(device.peak_bytes).unwrap_or(i64::MAX);
        for part in device.parts.iter().filter(|p| p.bytes > peak) {
            let mut sources = evidence.iter();
            let source = sources
                .find(|e| e.used && e.component == part.component && e.gpu_id == device.gpu_id);
            let message = format!(
                "{} on device {} is {}, above the measured peak of {}: it cannot all have been there, so its confidence is low",
                in_a_sentence(part.component.display_label()),
                device.gpu_id,
                signed_text(part.bytes.into()),
                Bytes(device.peak_bytes)
            );
            findings.push(
                Finding::new_warning("part_exceeds_peak", message)
                    .quoting(source.map(|e| e.quote.clone())),
            );
        }
    }
}

/// Figures that the engine reports of ranks on an unknown device.
fn not_mapped(o: &CaptureObservation<'_>, stray: &[&Evidence], findings: &mut Vec<Finding>) {
    if stray.is_empty() {
        return;
    }
    let why = if placement::numbers_are_open(o.capture, &o.settings) {
        "CUDA numbers GPUs of different models by their speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID, so it is not known which of them holds which rank"
    } else {
        "the ranks of the devices are unknown: neither CUDA_VISIBLE_DEVICES nor their processes identify them"
    };
    let message = format!(
        "the engine runs on {} and {} were measured; {why}. The engine's figures by rank are kept as evidence and not used",
        count_noun(o.engine_ranks().rank_count(), "rank"),
        count_noun(o.capture.devices.len(), "device"),
    );
    findings.push(
        Finding::new_warning("ranks_not_mapped", message)
            .quoting(stray.first().map(|e| e.quote.clone())),
    );
}

fn disagreements(evidence: &[&Evidence], findings: &mut Vec<Finding>) {
    for used in evidence.iter().filter(|e| e.used) {
        for other in evidence
            .iter()
            .filter(|e| !e.used && e.component == used.component && e.gpu_id == used.gpu_id)
        {
            let apart = used.bytes.saturating_sub(other.bytes).saturating_abs();
            let measured = |e: &Evidence| e.source.names_its_device();
            let (least, share) =
                if used.component == Component::KvCache && !measured(used) && !measured(other) {
                    (STATED_BYTES, STATED_SHARE)
                } else {
                    (DISAGREEMENT_BYTES, DISAGREEMENT_SHARE)
                };
            let larger = used.bytes.unsigned_abs().max(other.bytes.unsigned_abs());
            if apart > least && apart as f64 > larger as f64 * share {
                let message = format!(
                    "two witnesses of {} on device {} disagree: {} and {}",
                    in_a_sentence(used.component.display_label()),
                    used.gpu_id,
                    signed_text(used.bytes.into()),
                    signed_text(other.bytes.into()),
                );
                findings.push(
                    Finding::new_warning("witnesses_disagree", message)
                        .quoting(Some(format!("{} | {}", used.quote, other.quote))),
                );
            }
        }
    }
}

fn sampling(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let s = &o.capture.sampling;
    device_events(&s.events, findings);
    if s.ticks == 0 || o.series.device_count() == 0 {
        let what = if s.ticks == 0 {
            "memory was never sampled"
        } else {
            "the capture holds no sample of the memory"
        };
        let why = s.last_error.as_ref().map(|e| format!(": {e}"));
        let message = format!("{what}{}", why.unwrap_or_default());
        findings.push(Finding::new_error("no_samples", message));
        return;
    }
    gap(o, findings);
    if s.backed_off_ticks > 0 {
        let message = format!(
            "{} readings were skipped: they were too slow and would have disturbed the measurement",
            s.backed_off_ticks
        );
        findings.push(Finding::new_warning("sampling_backed_off", message));
    }
    if s.failed_readings > 0 {
        let message = format!(
            "{} of {} readings failed",
            s.failed_readings,
            s.ticks.saturating_add(s.failed_readings)
        );
        findings
            .push(Finding::new_warning("readings_failed", message).quoting(s.last_error.clone()));
    }
    if o.series.impossible > 0 {
        let message = format!(
            "{} left out: no device holds so much or is read at such a time",
            count_noun(o.series.impossible, "reading")
        );
        findings.push(Finding::new_warning("readings_impossible", message));
    }
    if o.capture.wall_drift_ns.unsigned_abs() > 100_000_000 {
        let drift_s = o.capture.wall_drift_ns as f64 / 1e9;
        let mut message = format!(
            "the host's clock was moved by {drift_s:.1} s during the run: samples and durations are not touched by that, but of Docker's times near that moment it is not sure whether they are from before or after it"
        );
        if drift_s < 0.0 {
            message += "; lines of the container's log from after it may be missing, because Docker chooses them by their time";
        }
        findings.push(Finding::new_warning("clock_stepped", message));
    }
}

/// Where everything waits for a processor, lines come late, and memory is put to the step before.
fn overloaded(o: &CaptureObservation<'_>) -> Option<Finding> {
    let why = o.host_overload()?;
    let message = format!(
        "the host was overloaded: {why}; what the engine prints comes late then, and memory may be put to the wrong step: no part that is a difference of readings is surer than low"
    );
    Some(Finding::new_warning("host_overloaded", message))
}

/// Pages that are swapped out leave and come back at times of the kernel's choice.
fn swapped(o: &CaptureObservation<'_>) -> Option<Finding> {
    let most = o.swapped_bytes()?;
    let limit = o.capture.devices.iter().find_map(|d| {
        let level = d.limit_level.clone()?;
        let bytes = d.total_bytes?;
        Some(describe_limit(&MemoryLimit { bytes, level }))
    });
    let limit = limit.map_or(String::new(), |l| format!(" ({l})"));
    let message = format!(
        "memory of the container was swapped out, up to {}{limit}: totals and parts include it, no part that is a difference of readings is surer than low, and latencies are those of an engine that waits for its swap",
        Bytes(most)
    );
    Some(Finding::new_warning("memory_swapped", message))
}

/// Figures of the model that the user gave, without one that a token's bytes depend on.
fn kv_heads_not_given(o: &CaptureObservation<'_>) -> Option<Finding> {
    let figures = Flags::of_figures(&o.capture.request.architecture);
    let unread = !o.capture.model_files.contains_key("config.json");
    let (layers, heads) = (figures.layers?, figures.heads?);
    let by_heads = figures.hidden.and_then(|size| size.checked_div(heads));
    let readings = describe_kv_readings(layers, heads, figures.head_dim.or(by_heads)?)?;
    (unread && figures.kv_heads.is_none())
        .then(|| Finding::new_warning("num_kv_heads_not_given", readings))
}

/// Activations below this are no trace of a load, bytes: what a reading moves by itself.
const TRACE_BYTES: i64 = 1 << 20;

/// A load under which memory was not higher than before it. Readings miss bursts between them; and of a load whose
/// beginning Docker answered late neither they nor the kernel's own mark may show anything.
pub(super) fn load_without_trace(o: &CaptureObservation<'_>, b: &Breakdown) -> Option<Finding> {
    o.top_repeat().filter(|t| t.bench_at.is_some())?;
    let part = b
        .components
        .iter()
        .find(|p| p.component == Component::Activations)?;
    let measured = part.confidence.0.ends_with("measured_delta");
    (measured && part.bytes < TRACE_BYTES).then(|| {
        Finding::new_warning(
            "load_without_trace",
            "memory did not grow under the load, so activations have low confidence: give more load (--num-prompts), or read more often (--sample-interval)",
        )
    })
}

/// The longest stretch without a sample, and what it means for the peak.
fn gap(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let (c, s) = (o.capture, &o.capture.sampling);
    let mut longest = s.longest_gap_ns;
    // Of a container that had ended, and after the end of a recording, nothing can be missed.
    let ended = matches!(c.end, RunEnd::ContainerLost(_))
        || c.container_end
            .as_ref()
            .is_none_or(|end| matches!(end.status.as_str(), "exited" | "dead"));
    if ended || replayed::recording_name(&c.backend).is_some() {
        longest = longest.min(gap_within(o));
    }
    if longest <= s.interval_ns.max(1).saturating_mul(5) || longest <= 500_000_000 {
        return;
    }
    let exact = o.top_repeat().is_some_and(|t| {
        let mut peaks = t.peaks.iter();
        peaks.all(|p| p.source == PeakSource::KernelPeak)
    });
    let (severity, meaning) = if exact {
        (
            Severity::Info,
            "the peak is exact all the same, for the kernel kept it; what lay below it is not known",
        )
    } else {
        (Severity::Warning, "a peak within may have been missed")
    };
    let message = format!(
        "sampling paused for {:.1} s at the longest; {meaning}",
        longest as f64 / 1e9
    );
    findings.push(Finding::new("sampler_gap", severity, message));
}

/// The longest stretch between two samples of a device, nanoseconds.
fn gap_within(o: &CaptureObservation<'_>) -> u64 {
    let apart = |times: &[AtNs]| times[1].saturating_sub(times[0]).unsigned_abs();
    (0..o.series.device_count())
        .filter_map(|d| {
            o.series
                .rows_of_device(d)
                .sample_times()
                .windows(2)
                .map(apart)
                .max()
        })
        .max()
        .unwrap_or(0)
}

/// Devices that are not in every sum.
fn lost(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let ended = ticks::lost_devices(&o.series, o.capture.sampling.interval_ns)
        .into_iter()
        .map(|(device, at)| {
            format!(
                "device {device} could not be read any more after {:.1} s: from there on the timeline sums up the others, its statistics end there, and a later peak of the device is not known",
                at as f64 / 1e9
            )
        });
    let unread = o
        .capture
        .devices
        .iter()
        .filter(|d| {
            o.series.device_count() > 0 && o.series.rows_of_device(d.index as usize).is_empty()
        })
        .map(|d| format!("device {} was never read: it is in no sum", d.index));
    for message in ended.chain(unread) {
        findings.push(
            Finding::new_error("device_lost", message)
                .quoting(o.capture.sampling.last_error.clone()),
        );
    }
}

/// What happened to the devices: each kind once per device, with how often it was reported.
fn device_events(events: &[DeviceEvent], findings: &mut Vec<Finding>) {
    for (place, event) in events.iter().enumerate() {
        let same = |e: &DeviceEvent| e.message == event.message;
        if events[..place].iter().any(same) {
            continue;
        }
        let times = events.iter().filter(|e| same(e)).count();
        let message = match times {
            1 => event.message.clone(),
            n => format!("{} ({n} times)", event.message),
        };
        findings.push(Finding::new_error(&event.code, message));
    }
}

/// A higher peak outside the load.
fn peaks(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let Some(top) = o.top_repeat() else { return };
    for peak in &top.peaks {
        let device = peak.nearest.device as usize;
        let ever = o
            .series
            .rows_of_device(device)
            .last()
            .and_then(|s| s.kernel_peak_bytes)
            .max(
                o.series
                    .peak_in_window(device, i64::MIN, i64::MAX)
                    .map(|p| p.bytes),
            );
        if let Some(ever) = ever.filter(|e| *e > peak.bytes + (16 << 20)) {
            let held = if o.is_host(device) {
                "the container's memory".to_owned()
            } else {
                format!("device {device}")
            };
            let when = if reached_looking_closer(o, device, ever) {
                "after the load, while plimsoll itself looked closer (--per-layer)"
            } else if reached_in_warm_up(o, device, ever) {
                "in the warm-up before it, when an engine compiles kernels and fills its caches"
            } else if o.is_host(device) {
                "at start-up or under another load"
            } else {
                "at another time"
            };
            let peak_of = if observes_only(o.capture) {
                "while it was watched"
            } else {
                "under this load"
            };
            let message = format!(
                "{held} once reached {}, above the peak {peak_of} ({}): {when}",
                Bytes(ever),
                Bytes(peak.bytes)
            );
            findings.push(Finding::new_info("higher_peak_outside_load", message));
        }
    }
}

/// Whether a level was reached between the start of a bench and its measured part.
fn reached_in_warm_up(o: &CaptureObservation<'_>, device: usize, bytes: u64) -> bool {
    let warm_ups = (o.repeats.iter()).filter_map(|r| Some((r.window.from, r.bench_at?)));
    let mut peaks = warm_ups.filter_map(|(from, to)| o.series.peak_in_window(device, from, to));
    peaks.any(|p| p.bytes >= bytes)
}

/// Whether a level was reached between a repeat's load and the end of its bench: a probe looks into
/// the layers then.
fn reached_looking_closer(o: &CaptureObservation<'_>, device: usize, bytes: u64) -> bool {
    o.capture
        .benches()
        .filter(|_| o.capture.request.workload.per_layer)
        .filter_map(|e| {
            let load = o.repeats.iter().find(|r| r.number == e.repeat)?;
            o.series
                .peak_in_window(device, load.window.to, e.ended_at_ns)
        })
        .any(|p| p.bytes >= bytes)
}

/// An engine prints its first line within this time, seconds.
const FIRST_WORDS_S: f64 = 120.0;

/// How long after the container's start the log of a serving engine begins, seconds, when its
/// start-up is not in it.
fn begins_late(o: &CaptureObservation<'_>) -> Option<f64> {
    let c = o.capture;
    let started_ns = c.container.state.started_ns?;
    let first_ns = o.first_line_ns?.saturating_add(c.wall_start_ns);
    let late_s = first_ns.saturating_sub(started_ns) as f64 / 1e9;
    (c.mode == Mode::Serving && o.log.steps.is_empty() && late_s > FIRST_WORDS_S).then_some(late_s)
}

fn log(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let l = &o.capture.log;
    if o.coarsely_timed() {
        findings.push(Finding::new_warning("log_times_coarse", "the log has times in whole seconds, so memory may be counted in the next phase: parts that were measured between two lines have low confidence. Docker, or Podman 5.8 and later, has exact times"
                .to_owned(),
        ));
    }
    if let Some(error) = &l.error {
        findings.push(Finding::new_warning(
            "log_unreadable",
            format!("the container's log could not be read, so what only the engine knows (weights, KV pool) may be unknown: {error}"),
        ));
    }
    if let Some(late_s) = begins_late(o) {
        findings.push(Finding::new_warning("log_begins_late", format!(
                "the log begins {late_s:.0} s after the container's start: earlier lines were rotated away (set a larger `max-size` or `max-file` of the logging driver)"
            ),
        ));
    }
    if l.dropped_lines > 0 {
        findings.push(Finding::new_warning("log_truncated", format!(
                "{} log lines were dropped: the log is longer than is kept, or they came too fast. What they reported may be unknown; --max-log keeps more",
                l.dropped_lines
            ),
        ));
    }
    let cut = o.capture.benches().filter(|e| e.cut);
    for repeat in cut.filter_map(|e| e.repeat) {
        let message = format!(
            "the connection to Docker broke while the bench ran (repeat {repeat}): later output of the bench and its engine is missing"
        );
        findings.push(Finding::new_warning("bench_output_cut", message));
    }
    let loading = o.step_at(EngineStep::LoadingWeights);
    let sampled = o
        .series
        .rows_of_device(0)
        .first()
        .map(|sample| sample.at_ns);
    let late = loading
        .zip(sampled)
        .map(|(loading, sampled)| sampled - loading);
    if let Some(late) = late.filter(|late| *late > 0 && o.capture.mode == Mode::Started) {
        let message = format!(
            "sampling began {:.1} s after the engine began to load its weights: growth before that is not measured",
            late as f64 / 1e9
        );
        findings.push(Finding::new_warning("start_not_sampled", message));
    }
    let restarted = o.capture.events.iter().any(|e| e.action == "start");
    if restarted && o.capture.mode != Mode::Started {
        findings.push(Finding::new_error(
            "container_restarted",
            "the container was restarted during the run: the figures mix the memory before and after it. `plimsoll why` finds the cause; then profile again",
        ));
    }
}

/// What to change, the first first; nothing where the cause is unknown.
pub fn advise_on_profile(profile: &Profile) -> Vec<String> {
    let Some(why) = profile.metadata.outcome.failure() else {
        return Vec::new();
    };
    let is_found = |code: &str| profile.findings.iter().any(|f| f.code == code);
    // The bench asks for the model that was named, which the engine does not serve.
    if is_found("bench_failed") && is_found(MODEL_DIFFERS) {
        return vec!["leave --model out, or name the model that the engine serves".to_owned()];
    }
    let mut texts = vec![why];
    // A line that the log's parser chose outweighs all other lines.
    let codes = ["container_lost", "bench_failed", "run_failed"];
    let mut failures = (profile.findings.iter()).filter(|f| codes.contains(&f.code.as_str()));
    match failures.find_map(|f| f.quote.as_deref()) {
        Some(quote) => texts.push(quote),
        None => texts.extend([&*profile.raw_logs.bench, &*profile.raw_logs.engine]),
    }
    let limit = profile.metadata.container.memory_limit_bytes;
    let mut advice = texts.into_iter().map(|text| advise_on_text(text, limit));
    advice.find(|a| !a.is_empty()).unwrap_or_default()
}
