//! The answer that a report opens with: whether memory suffices, the device that binds, what to change.
//!
//! Every change is estimated with its new value first. Where the estimate of the present deployment does not agree with
//! what was measured, no change of a setting is advised.

use super::Sources;
use super::document::{number_at, sentences_at, text_at};
use super::figures::{SourcedFigures, gib_cell, reason_at_path};
use super::load_line::resource_words;
use super::summary::{LATENCY, TOKENS};
use super::sweep::read::{
    CellFigure, LATENCY as LATENCY_OF_CELL, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT,
};
use super::words;
use crate::breakdown::{Component, DeviceBreakdown, Part};
use crate::capture::{DeviceKind, LimitLevel, RunEnd};
use crate::compare::calculated::Item;
use crate::engine::facts::Severity;
use crate::estimate::question::{Reading, change_share, find_smaller_share};
use crate::estimate::{Deployment, Unknown, estimate};
use crate::headroom::{Headroom, SAFE_FROM_PERCENT};
use crate::profile::{Profile, advise_on_profile};
use crate::report::content::{
    Action, Answer, AnswerState, Gauge, KeyFigure, MOST_ACTIONS, TableCell,
};
use crate::report::estimate::describe_hold;
use crate::report::lanes::device_label;
use crate::report::layout::{counted_noun, counted_words, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun, RunPlan, StoredDocument};
use crate::units::{Bytes, GIB};

/// A pool of which less than this share was in use is larger than the load needs.
const SPARE_POOL: f64 = 0.5;
/// A pool of which more than this share was in use is full: requests wait for it.
const FULL_POOL: f64 = 0.95;
/// What a smaller pool must hold beyond what the load used.
const POOL_RESERVE: f64 = 1.25;
/// How far the estimate of the present pool may be off, percent, for advice that rests on it.
const TRUSTED_PERCENT: f64 = 5.0;

/// The answer to all that was read; `None` where nothing in it can be judged.
pub(super) fn answer_of_material(material: &Material, sources: &mut Sources) -> Option<Answer> {
    let mut answer = match material.runs.as_slice() {
        [] => Answer::default(),
        [run] => answer_of_run(run, fullest_device(run), sources, false),
        [before, after] if material.compare => answer_of_pair(before, after, sources),
        runs => answer_of_many(runs, sources),
    };
    let advice = (material.load_lines.iter()).flat_map(|l| sentences_at(&l.document, "/advice"));
    let free = MOST_ACTIONS.saturating_sub(answer.actions.len());
    answer.actions.extend(advice.take(free).map(advice_action));
    if sweeps_failed(material) {
        answer.state = AnswerState::Failed;
    }
    // What was asked for comes before the runs that it is made of; of several kinds the summary has the answers.
    let asked = document_answers(material);
    match (asked.as_slice(), material.document_counts().len()) {
        ([], _) => {}
        (_, 1) => {
            let sentences = asked.iter().map(|(_, _, sentence)| sentence.as_str());
            answer.verdict = sentences.collect::<Vec<_>>().join(" ");
        }
        ([(_, name, first), ..], _) if answer.verdict.is_empty() => {
            answer.verdict = format!("{name}: {first}");
        }
        _ => {}
    }
    let worst = (material.reports.iter()).filter_map(|(_, report)| report.answer.as_ref());
    if let Some(worst) = worst
        .max_by_key(|a| a.state)
        .filter(|w| w.state > answer.state)
    {
        answer.state = worst.state;
        answer.verdict.clone_from(&worst.verdict);
        answer.gauge.clone_from(&worst.gauge);
    }
    if answer.figures.is_empty() {
        answer.figures = sweep_figures(material);
    }
    (!answer.verdict.is_empty()).then_some(answer)
}

/// The answer of each document that is no run: its kind, where it was read, a sentence.
pub(super) fn document_answers(material: &Material) -> Vec<(&'static str, &str, String)> {
    type Sentence = fn(&StoredDocument) -> Option<String>;
    let kinds: [(&str, &[StoredDocument], Sentence); 3] = [
        ("sweep", &material.sweeps, sweep_sentence),
        ("experiment", &material.experiments, experiment_sentence),
        ("load line", &material.load_lines, load_line_sentence),
    ];
    let mut all = Vec::new();
    for (kind, documents, sentence) in kinds {
        let of_kind = documents.iter();
        all.extend(of_kind.filter_map(|d| Some((kind, d.name.as_str(), sentence(d)?))));
    }
    let reports = material.reports.iter().filter_map(|(name, report)| {
        let answer = report.answer.as_ref()?;
        let sentence = format!("{}: {}", report.title, answer.verdict);
        Some(("other document", name.as_str(), sentence))
    });
    all.extend(reports);
    all
}

/// The best of a sweep: throughput, latency, and its highest peak.
fn sweep_figures(material: &Material) -> Vec<KeyFigure> {
    let [stored] = material.sweeps.as_slice() else {
        return Vec::new();
    };
    let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
    let best = |label: &str, figure: &CellFigure, better: fn(f64, f64) -> f64| {
        let values = (sweep.cells.iter()).filter_map(|c| c.figure_value(figure));
        let value = values.reduce(better)?;
        Some(KeyFigure {
            label: label.into(),
            value: TableCell::number_cell(value, format_figure(value)),
            unit: figure.unit.into(),
        })
    };
    let all = [
        best("Best throughput", THROUGHPUT, f64::max),
        best("Lowest mean latency", LATENCY_OF_CELL, f64::min),
        best("Lowest time to first token", TTFT, f64::min),
        best("Highest peak", PEAK, f64::max),
    ];
    all.into_iter().flatten().collect()
}

/// One run: its end, or how near to the limit it came.
fn answer_of_run(
    run: &ReportRun,
    fullest: Option<FullestDevice>,
    sources: &mut Sources,
    many: bool,
) -> Answer {
    let p = &run.profile;
    let answer = Answer {
        figures: main_figures(run, fullest.as_ref(), sources, many),
        ..Answer::default()
    };
    match (failure_of(p), fullest) {
        (Some(why), fullest) => answer_of_failure(answer, run, why, fullest),
        (None, Some(fullest)) => answer_of_headroom(answer, run, fullest),
        (None, None) => {
            let reason = match p.memory_breakdown.total_measured_bytes {
                None => reason_at_path(p, "memory_breakdown.total_measured_gb"),
                Some(peak) => format!(
                    "the peak is {}, the size of the device is not known",
                    Bytes(peak)
                ),
            };
            Answer {
                verdict: format!("Headroom unknown: {reason}."),
                ..answer
            }
        }
    }
}

/// A run that failed: why, how far memory went, and what its log advises.
fn answer_of_failure(
    mut answer: Answer,
    run: &ReportRun,
    why: &str,
    fullest: Option<FullestDevice>,
) -> Answer {
    let p = &run.profile;
    answer.state = AnswerState::Failed;
    answer.verdict = format!("Failed: {}.", why.trim_end_matches('.'));
    answer.gauge = fullest.map(|f| f.gauge);
    if let Some(gauge) = &answer.gauge {
        let (used, total) = (Bytes(gauge.used), Bytes(gauge.total));
        let reached = format!(" Memory reached {used} of {total}.");
        answer.verdict.push_str(&reached);
    }
    let last = run.timeline.phases.last();
    let was_cut = p.memory_breakdown.total_measured_bytes.is_none();
    if let Some(phase) = last.filter(|_| was_cut) {
        let text = format!(
            " The last phase was {}, from second {:.1}.",
            phase.label, phase.from_s
        );
        answer.verdict.push_str(&text);
    }
    let advice = advise_on_profile(p).into_iter().take(MOST_ACTIONS);
    answer.actions = advice.map(advice_action).collect();
    answer
}

/// A run that ended well: how near to the limit it came, and what to change.
fn answer_of_headroom(mut answer: Answer, run: &ReportRun, fullest: FullestDevice) -> Answer {
    let p = &run.profile;
    let gauge = fullest.gauge;
    let headroom =
        Headroom::of_share(gauge.free_bytes(), gauge.total).unwrap_or(Headroom::Critical);
    let (state, word) = match headroom {
        Headroom::Safe => (AnswerState::Safe, "Safe"),
        Headroom::Tight => (AnswerState::Tight, "Tight"),
        Headroom::Critical => (AnswerState::Critical, "Critical"),
    };
    let peak = peak_sentence(p, &gauge, fullest.page_cache);
    // What was seen of a run that did not end, or that had no load, is no promise.
    let (state, verdict) = match (&p.metadata.outcome, p.parameters.bench.as_str()) {
        (RunEnd::Interrupted, _) if state == AnswerState::Safe => {
            (AnswerState::Unknown, format!("Interrupted: {peak}"))
        }
        (RunEnd::Deadline, _) if state == AnswerState::Safe => (
            AnswerState::Unknown,
            format!("Stopped at its deadline: {peak}"),
        ),
        (_, "none" | "") => (state, format!("{word} while it was watched: {peak}")),
        _ => (state, format!("{word}: {peak}")),
    };
    (answer.state, answer.verdict) = (state, verdict);
    let pool = &p.vllm_internal_metrics;
    if let Some(n) = pool.preemptions.filter(|n| *n > 0) {
        answer.state = answer.state.max(AnswerState::Tight);
        answer.verdict.push_str(&format!(
            " The KV pool ran full: {}.",
            counted_noun(n as usize, "preemption")
        ));
    }
    answer.actions = find_actions(run, &gauge, headroom);
    answer.gauge = Some(gauge);
    answer
}

/// Why the run failed, or what its log reports as an error though the run ended.
fn failure_of(p: &Profile) -> Option<&str> {
    let reported = || {
        let error = p.findings.iter().find(|f| f.severity == Severity::Error);
        let memory = p.findings.iter().find(|f| f.code == "oom");
        Some(memory.or(error)?.message.as_str())
    };
    match p.metadata.outcome.failure() {
        Some(why) => Some(why),
        None if p.memory_breakdown.total_measured_bytes.is_some() => reported(),
        None => None,
    }
}

/// `peak 2.28 GiB of 4.00 GiB (57 %), 1.72 GiB free`, with the device where there are several.
fn peak_sentence(p: &Profile, gauge: &Gauge, page_cache: u64) -> String {
    let on = match p.memory_breakdown.per_gpu.len() {
        0 | 1 => String::new(),
        n => format!(" on {} of {n}", gauge.label),
    };
    let free = gauge.free_bytes();
    let cache = match page_cache {
        n if n < gauge.total / 100 => String::new(),
        n => format!(" {} of page cache is not counted.", Bytes(n)),
    };
    format!(
        "peak {} of {}{on} ({:.0} %), {} free.{cache}",
        Bytes(gauge.used),
        Bytes(gauge.total),
        gauge.used_percent(),
        Bytes(free)
    )
}

/// The device that came nearest to its limit.
struct FullestDevice {
    index: u32,
    gauge: Gauge,
    /// Page cache at its peak, bytes: the kernel gives it back under pressure.
    page_cache: u64,
}

/// The device of which the largest share was in use; of a run without parts the one device at its highest sample.
fn fullest_device(run: &ReportRun) -> Option<FullestDevice> {
    let p = &run.profile;
    let devices = p.memory_breakdown.per_gpu.iter();
    let known = devices.filter_map(|d| device_gauge(p, d));
    let share = |f: &FullestDevice| f.gauge.used_percent();
    let fullest = known.max_by(|a, b| share(a).total_cmp(&share(b)));
    fullest.or_else(|| match p.gpu_info.devices.as_slice() {
        [only] => Some(FullestDevice {
            index: only.index,
            gauge: Gauge {
                label: device_label(only),
                used: (p.memory_timeline.max_gb? * GIB) as u64,
                total: only.total_bytes.filter(|t| *t > 0)?,
                parts: Vec::new(),
            },
            page_cache: 0,
        }),
        _ => fullest_lane(run),
    })
}

/// Of a run that was cut off before its parts were measured: the device whose samples came nearest to its size.
fn fullest_lane(run: &ReportRun) -> Option<FullestDevice> {
    let bytes = |gib: f64| (gib * GIB) as u64;
    let lanes = run.timeline.lanes.iter().filter(|lane| lane.memory);
    let gauges = lanes.filter_map(|lane| {
        let highest = lane.stretches.iter().map(|s| s.high).reduce(f64::max)?;
        Some(Gauge {
            label: lane.label.clone(),
            used: bytes(highest),
            total: lane.capacity.map(bytes).filter(|total| *total > 0)?,
            parts: Vec::new(),
        })
    });
    let fullest = gauges.max_by(|a, b| a.used_percent().total_cmp(&b.used_percent()))?;
    Some(FullestDevice {
        index: 0,
        gauge: fullest,
        page_cache: 0,
    })
}

/// What a device had in use at its peak, without what does not count against its limit.
fn device_gauge(p: &Profile, d: &DeviceBreakdown) -> Option<FullestDevice> {
    let facts = (p.gpu_info.devices.iter()).find(|facts| facts.index == d.gpu_id)?;
    // Swapped-out memory is in the peak, and does not count against the limit of memory.
    let is_held = |c: Component| c != Component::PageCache && c != Component::Swap;
    let (held, beside): (Vec<&Part>, Vec<&Part>) =
        d.parts.iter().partition(|part| is_held(part.component));
    let bytes = |part: &Part| part.bytes.max(0) as u64;
    let cache = |part: &&&Part| part.component == Component::PageCache;
    let gauge = Gauge {
        label: device_label(facts),
        used: d
            .peak_bytes
            .saturating_sub(beside.iter().copied().map(bytes).sum()),
        total: facts.total_bytes.filter(|t| *t > 0)?,
        parts: (held.iter().filter(|part| part.bytes > 0))
            .map(|part| (part.component, bytes(part)))
            .collect(),
    };
    Some(FullestDevice {
        index: d.gpu_id,
        gauge,
        page_cache: beside.iter().filter(cache).copied().map(bytes).sum(),
    })
}

/// Peak, weights and KV pool of the fullest device, and how fast it was.
fn main_figures(
    run: &ReportRun,
    fullest: Option<&FullestDevice>,
    sources: &mut Sources,
    many: bool,
) -> Vec<KeyFigure> {
    let p = &run.profile;
    let devices = &p.memory_breakdown.per_gpu;
    let one = fullest.filter(|_| devices.len() > 1);
    let device = one.and_then(|f| devices.iter().find(|d| d.gpu_id == f.index));
    let latency = p.latency_stats.as_ref();
    let mut f = SourcedFigures { sources, run, many };
    let figure = |label: &str, value: TableCell, unit: &str| KeyFigure {
        label: label.into(),
        value,
        unit: unit.into(),
    };
    let unit = match one {
        Some(f) => format!("GiB, {}", f.gauge.label),
        None => "GiB".into(),
    };
    let peak = match device {
        Some(d) => gib_cell(d.peak_bytes as i64).from(f.of_peak(Some(d.gpu_id))),
        None => f.peak_cell(),
    };
    let mut all = vec![figure("Peak", peak, &unit)];
    for component in [Component::ModelWeights, Component::KvCache] {
        let part = device.and_then(|d| {
            let part = d.parts.iter().find(|part| part.component == component)?;
            Some(gib_cell(part.bytes).from(f.of_part(Some(d.gpu_id), part)))
        });
        let cell = match device {
            Some(_) => part.unwrap_or_default(),
            None => f.part_cell(component),
        };
        all.push(figure(component.display_label(), cell, &unit));
    }
    let bench = "the bench's result";
    for (label, unit, value, path) in [
        (
            "Throughput",
            words::tokens_unit(p),
            latency.and_then(|l| l.tokens_per_second),
            TOKENS,
        ),
        (
            "Mean latency",
            words::latency_unit(p),
            latency.and_then(|l| l.mean_latency_ms),
            LATENCY,
        ),
    ] {
        if value.is_some() {
            all.push(figure(
                label,
                f.reported_cell(label, bench, (value, path)),
                unit,
            ));
        }
    }
    all.retain(|f| f.value.number.is_some());
    all.truncate(4);
    all
}

fn advice_action(effect: String) -> Action {
    Action {
        setting: String::new(),
        effect,
    }
}

/// What to change after a run that ended well.
fn find_actions(run: &ReportRun, gauge: &Gauge, headroom: Headroom) -> Vec<Action> {
    let p = &run.profile;
    let mut actions = Vec::new();
    let host = p
        .gpu_info
        .devices
        .iter()
        .all(|d| d.kind == DeviceKind::HostCgroup);
    if host {
        actions.extend(raise_limit(p, gauge).filter(|_| headroom != Headroom::Safe));
    } else if let Some(plan) = run.plan.as_ref().filter(|_| is_estimate_trusted(run)) {
        actions.extend(lower_share(plan, gauge, headroom));
        actions.extend(widen_pool(p, plan, gauge));
        if headroom == Headroom::Safe {
            actions.extend(shrink_pool(p, plan));
        }
    }
    actions.truncate(MOST_ACTIONS);
    actions
}

/// A limit that leaves a tenth free at this peak, where the container has a limit of its own.
fn raise_limit(p: &Profile, gauge: &Gauge) -> Option<Action> {
    let limited =
        (p.gpu_info.devices.iter()).any(|d| matches!(d.limit_level, Some(LimitLevel::Cgroup(_))));
    p.metadata
        .container
        .memory_limit_bytes
        .filter(|_| limited)?;
    let mib = (gauge.used as f64 / 0.9 / f64::from(1 << 20)).ceil() as u64;
    Some(Action {
        setting: format!("--memory {mib}m"),
        effect: "leaves 10 % of the container's limit free at this peak".into(),
    })
}

/// Whether the pool that is estimated for the run is the pool that it had.
fn is_estimate_trusted(run: &ReportRun) -> bool {
    let items = run.calculated.iter().flat_map(|c| &c.items);
    let pool = items
        .filter(|i| i.item == Item::KvTokens)
        .find_map(|i| i.error_pct);
    pool.is_some_and(|error| error.abs() <= TRUSTED_PERCENT)
}

/// Requests of the longest length that a deployment of the plan's model holds.
fn concurrency_of(plan: &RunPlan, deployment: &Deployment) -> Result<f64, Unknown> {
    let reading = Reading::of(&plan.model, deployment, &estimate(&plan.model, deployment))?;
    Ok(reading.on.map_or(0.0, |on| on.concurrency))
}

/// The deployment with the share of the GPU that is in force, where it decides the pool.
fn present_deployment(plan: &RunPlan) -> Option<Deployment> {
    let now = &plan.deployment;
    let fixed = now.kv_cache_memory.is_some() || now.gpu.is_none();
    let fraction = estimate(&plan.model, now).settings.fraction;
    (!fixed).then(|| Deployment {
        memory_fraction: Some(fraction),
        ..now.clone()
    })
}

/// A smaller share of a GPU that is nearly full.
fn lower_share(plan: &RunPlan, gauge: &Gauge, headroom: Headroom) -> Option<Action> {
    let present = present_deployment(plan).filter(|_| headroom != Headroom::Safe)?;
    let share = present.memory_fraction? + Headroom::spare_share(gauge.free_bytes(), gauge.total);
    let percent = (share * 100.0).floor();
    let found = change_share(&present, percent, &|d| concurrency_of(plan, d))?;
    let holds = describe_hold(&found, &plan.model);
    Some(Action {
        effect: format!("leaves {SAFE_FROM_PERCENT} % of the GPU free, {holds}"),
        setting: found.argument,
    })
}

/// More pool for a load that filled it, from memory that is free.
fn widen_pool(p: &Profile, plan: &RunPlan, gauge: &Gauge) -> Option<Action> {
    let pool = &p.vllm_internal_metrics;
    let used = pool.kv_cache_usage_peak;
    let is_full =
        pool.preemptions.is_some_and(|n| n > 0) || used.is_some_and(|used| used > FULL_POOL);
    let present = present_deployment(plan).filter(|_| is_full)?;
    let now = concurrency_of(plan, &present).ok()?;
    let spare = Headroom::spare_share(gauge.free_bytes(), gauge.total);
    let share = present.memory_fraction? + (spare >= 0.01).then_some(spare)?;
    let percent = (share * 100.0).floor();
    let found = change_share(&present, percent, &|d| concurrency_of(plan, d));
    let found = found.filter(|remedy| remedy.concurrency > now)?;
    let holds = describe_hold(&found, &plan.model);
    Some(Action {
        effect: format!("{holds} instead of {}", now.floor()),
        setting: found.argument,
    })
}

/// A smaller share for a load that used little of its pool.
fn shrink_pool(p: &Profile, plan: &RunPlan) -> Option<Action> {
    let pool = &p.vllm_internal_metrics;
    let used = pool
        .kv_cache_usage_peak
        .filter(|used| *used > 0.0 && *used < SPARE_POOL)?;
    let tokens = pool.total_gpu_kv_cache_tokens?;
    let present = present_deployment(plan)?;
    let longest = plan.deployment.max_model_len.or(plan.model.max_positions)?;
    let needed = used * tokens as f64 * POOL_RESERVE / longest.max(1) as f64;
    let holds = |d: &Deployment| concurrency_of(plan, d);
    let found = find_smaller_share(&plan.model, &present, needed.ceil().max(1.0) as u64, &holds)?;
    let gpu = present.gpu.as_ref()?;
    let less = present.memory_fraction? - found.deployment.memory_fraction?;
    Some(Action {
        effect: format!(
            "frees {}, still {}; this load used {:.0} % of the KV pool",
            Bytes((less * gpu.total as f64) as u64),
            describe_hold(&found, &plan.model),
            used * 100.0
        ),
        setting: found.argument,
    })
}

/// Of two runs that are compared: how the peak moved, and the headroom of the second.
fn answer_of_pair(before: &ReportRun, after: &ReportRun, sources: &mut Sources) -> Answer {
    let mut answer = answer_of_run(after, fullest_device(after), sources, true);
    let peak = |r: &ReportRun| r.profile.memory_breakdown.total_measured_bytes;
    if let Some((a, b)) = peak(before).zip(peak(after)) {
        let percent = (b as f64 - a as f64) / a.max(1) as f64 * 100.0;
        let moved = match b.cmp(&a) {
            std::cmp::Ordering::Equal => "The peak did not change.".to_owned(),
            std::cmp::Ordering::Greater => {
                format!("The peak rose by {} ({percent:+.1} %).", Bytes(b - a))
            }
            std::cmp::Ordering::Less => {
                format!("The peak fell by {} ({percent:+.1} %).", Bytes(a - b))
            }
        };
        answer.verdict = format!("{moved} {}", answer.verdict);
    }
    answer
}

/// Of several runs the one that came nearest to its limit.
fn answer_of_many(runs: &[ReportRun], sources: &mut Sources) -> Answer {
    let devices = runs.iter().map(|run| (run, fullest_device(run)));
    let share = |device: &Option<FullestDevice>| {
        (device.as_ref()).map_or(-1.0, |device| device.gauge.used_percent())
    };
    let nearest = devices.max_by(|(_, a), (_, b)| share(a).total_cmp(&share(b)));
    let Some((fullest, device)) = nearest else {
        return Answer::default();
    };
    let mut answer = answer_of_run(fullest, device, sources, true);
    let failed = runs
        .iter()
        .filter(|r| r.profile.metadata.outcome.failure().is_some())
        .count();
    let lost = match failed {
        0 => String::new(),
        n => format!(" {} failed.", grouped_count(n as u64)),
    };
    if failed > 0 && fullest.profile.metadata.outcome.failure().is_none() {
        answer.state = AnswerState::Failed;
    }
    answer.verdict = format!(
        "{}; the fullest is {}. {}{lost}",
        counted_noun(runs.len(), "run"),
        fullest.name,
        answer.verdict
    );
    answer
}

/// Cells measured, and where the throughput was highest.
fn sweep_sentence(stored: &StoredDocument) -> Option<String> {
    let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
    let measured = sweep.cells.iter().filter(|c| c.is_done()).count();
    let mut text = format!(
        "{measured} of {} measured",
        counted_noun(sweep.cells.len(), "cell")
    );
    let cells = (sweep.cells.iter()).filter_map(|c| Some((c, c.figure_value(THROUGHPUT)?)));
    if let Some((cell, _)) = cells.max_by(|a, b| a.1.total_cmp(&b.1)) {
        text.push_str(&format!("; best throughput: {}", cell.load_words()));
    }
    text.push('.');
    Some(text)
}

/// Whether cells were tried and none of them was measured.
fn sweeps_failed(material: &Material) -> bool {
    let sweeps = material.sweeps.iter();
    let cells: Vec<SweepCell> = sweeps
        .flat_map(|s| SweepDocument::read_sweep(&s.document, &s.name).cells)
        .collect();
    cells.iter().any(|c| c.status == "failed") && !cells.iter().any(SweepCell::is_done)
}

fn experiment_sentence(stored: &StoredDocument) -> Option<String> {
    let mut sentences = sentences_at(&stored.document, "/readings").into_iter();
    sentences.next()
}

fn load_line_sentence(stored: &StoredDocument) -> Option<String> {
    let document = &stored.document;
    let count = |path: &str| {
        number_at(document, path)
            .map(|n| counted_words(n as usize, "concurrent request", "concurrent requests"))
    };
    let text = match (
        count("/measured/concurrency"),
        number_at(document, "/measured/fails_at"),
    ) {
        (Some(holds), Some(fails)) => format!("Sustains {holds}; fails at {fails:.0}."),
        (Some(holds), None) => format!("Sustains {holds}, the most that was tried."),
        (None, Some(fails)) => format!("Does not sustain {fails:.0}; fewer were not tried."),
        (None, None) => format!("Predicted: {}.", count("/prediction/concurrency")?),
    };
    Some(match text_at(document, "/measured/limiting") {
        Some(limit) => format!("{text} Limited by the {}.", resource_words(&limit)),
        None => text,
    })
}
