//! The answer that a report opens with: whether memory suffices, the device that binds, what to change.
//!
//! Every change is estimated with its new value first. Where the estimate of the present deployment does not agree with
//! what was measured, no change of a setting is advised.

use super::Sources;
use super::document::{flag_at, number_at, sentences_at, text_at};
use super::figures::{SourcedFigures, gib_cell, reason_at_path};
use super::summary::{LATENCY, TOKENS};
use super::sweep::read::{PEAK, SweepDocument, THROUGHPUT};
use super::words;
use crate::breakdown::Component;
use crate::capture::{DeviceKind, LimitLevel, RunEnd};
use crate::compare::calculated::Item;
use crate::engine::facts::Severity;
use crate::estimate::question::{Reading, Remedy, find_smaller_share};
use crate::estimate::{Deployment, Unknown, estimate};
use crate::headroom::{Headroom, SAFE_FROM_PERCENT};
use crate::profile::{Profile, advise_on_profile};
use crate::report::content::{Action, Answer, AnswerState, Gauge, KeyFigure, TableCell};
use crate::report::lanes::device_label;
use crate::report::layout::{counted_noun, counted_words, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun, RunPlan};
use crate::units::{Bytes, GIB};

/// Changes that an answer names.
const MOST_ACTIONS: usize = 3;
/// A pool of which less than this share was in use is larger than the load needs.
const SPARE_POOL: f64 = 0.5;
/// A pool of which more than this share was in use is full: requests wait for it.
const FULL_POOL: f64 = 0.95;
/// What a smaller pool must hold beyond what the load used.
const POOL_RESERVE: f64 = 1.25;
/// Free share of a device from which it is safe.
const SAFE_SHARE: f64 = SAFE_FROM_PERCENT as f64 / 100.0;
/// How far the estimate of the present pool may be off, percent, for advice that rests on it.
const TRUSTED_PERCENT: f64 = 5.0;

/// The answer to all that was read; `None` where nothing in it can be judged.
pub(super) fn answer_of_material(material: &Material, sources: &mut Sources) -> Option<Answer> {
    let documents = [
        &material.sweeps,
        &material.experiments,
        &material.load_lines,
    ];
    let share = |r: &ReportRun| {
        let fullest = fullest_device(&r.profile);
        fullest.map_or(-1.0, |(_, gauge)| gauge.used_percent())
    };
    let fullest = (material.runs.iter()).max_by(|a, b| share(a).total_cmp(&share(b)));
    let mut answer = match (material.runs.as_slice(), fullest) {
        ([run], Some(_)) => answer_of_run(run, sources, false),
        ([before, after], Some(_)) if material.compare => answer_of_pair(before, after, sources),
        (runs, Some(run)) => answer_of_many(runs, run, sources),
        (_, None) => Answer::default(),
    };
    // What was asked for comes before the runs that it is made of.
    let sentences = [
        sweep_sentence(material),
        experiment_sentence(material),
        load_line_sentence(material),
    ];
    let asked: Vec<String> = sentences.into_iter().flatten().collect();
    if documents.iter().any(|d| !d.is_empty()) {
        let own = std::mem::take(&mut answer.verdict);
        answer.verdict = asked.join(" ");
        if answer.verdict.is_empty() || documents.iter().filter(|d| !d.is_empty()).count() > 1 {
            answer.verdict = [answer.verdict, own].join(" ").trim().to_owned();
        }
    }
    (!answer.verdict.is_empty()).then_some(answer)
}

/// One run: its end, or how near to the limit it came.
pub(in crate::report) fn answer_of_run(
    run: &ReportRun,
    sources: &mut Sources,
    many: bool,
) -> Answer {
    let p = &run.profile;
    let gauge = fullest_device(p).map(|(_, gauge)| gauge);
    let mut answer = Answer {
        figures: main_figures(run, sources, many),
        ..Answer::default()
    };
    if let Some(why) = failure_of(p) {
        answer.state = AnswerState::Failed;
        answer.verdict = format!("Failed: {}.", why.trim_end_matches('.'));
        if let Some(gauge) = &gauge {
            let reached = format!(
                " Memory reached {} of {}.",
                Bytes(gauge.used),
                Bytes(gauge.total)
            );
            answer.verdict.push_str(&reached);
        }
        let advice = advise_on_profile(p).into_iter().take(MOST_ACTIONS);
        answer.actions = advice.map(advice_action).collect();
        answer.gauge = gauge;
        return answer;
    }
    let Some(gauge) = gauge else {
        let reason = match p.memory_breakdown.total_measured_bytes {
            None => reason_at_path(p, "memory_breakdown.total_measured_gb"),
            Some(peak) => format!(
                "the peak is {}, the size of the device is not known",
                Bytes(peak)
            ),
        };
        answer.verdict = format!("Headroom unknown: {reason}.");
        return answer;
    };
    let headroom =
        Headroom::of_share(gauge.free_bytes(), gauge.total).unwrap_or(Headroom::Critical);
    let (state, word) = match headroom {
        Headroom::Safe => (AnswerState::Safe, "Safe"),
        Headroom::Tight => (AnswerState::Tight, "Tight"),
        Headroom::Critical => (AnswerState::Critical, "Critical"),
    };
    let peak = peak_sentence(p, &gauge);
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
fn peak_sentence(p: &Profile, gauge: &Gauge) -> String {
    let on = match p.memory_breakdown.per_gpu.len() {
        0 | 1 => String::new(),
        n => format!(" on {} of {n}", gauge.label),
    };
    let free = gauge.free_bytes();
    let cache = match page_cache(p) {
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

/// Page cache at the peak of the fullest device: the kernel gives it back under pressure.
fn page_cache(p: &Profile) -> u64 {
    let devices = p.memory_breakdown.per_gpu.iter();
    let parts = devices.flat_map(|d| &d.parts);
    let cached = parts.filter(|part| part.component == Component::PageCache);
    cached.map(|part| part.bytes.max(0) as u64).sum()
}

/// The device of which the largest share was in use; of a run without parts the one device at its highest sample.
fn fullest_device(p: &Profile) -> Option<(u32, Gauge)> {
    let facts = |index| p.gpu_info.devices.iter().find(|d| d.index == index);
    let gauges = p.memory_breakdown.per_gpu.iter().filter_map(|d| {
        let facts = facts(d.gpu_id)?;
        let total = facts.total_bytes.filter(|t| *t > 0)?;
        let held = |c: Component| c != Component::PageCache && c != Component::Swap;
        let parts: Vec<(Component, u64)> = (d.parts.iter())
            .filter(|part| part.bytes > 0 && held(part.component))
            .map(|part| (part.component, part.bytes as u64))
            .collect();
        // Swapped-out memory is in the peak, and does not count against the limit of memory.
        let beside: i64 = (d.parts.iter().filter(|part| !held(part.component)))
            .map(|part| part.bytes.max(0))
            .sum();
        let gauge = Gauge {
            label: device_label(facts),
            used: d.peak_bytes.saturating_sub(beside as u64),
            total,
            parts,
        };
        Some((d.gpu_id, gauge))
    });
    let fullest = gauges.max_by(|(_, a), (_, b)| a.used_percent().total_cmp(&b.used_percent()));
    fullest.or_else(|| match p.gpu_info.devices.as_slice() {
        [only] => {
            let gauge = Gauge {
                label: device_label(only),
                used: (p.memory_timeline.max_gb? * GIB) as u64,
                total: only.total_bytes.filter(|t| *t > 0)?,
                parts: Vec::new(),
            };
            Some((only.index, gauge))
        }
        _ => None,
    })
}

/// Peak, weights and KV pool of the fullest device, and how fast it was.
fn main_figures(run: &ReportRun, sources: &mut Sources, many: bool) -> Vec<KeyFigure> {
    let p = &run.profile;
    let fullest = fullest_device(p).map(|(index, gauge)| (index, gauge.label));
    let devices = &p.memory_breakdown.per_gpu;
    let one = fullest.filter(|_| devices.len() > 1);
    let device = one
        .as_ref()
        .and_then(|(index, _)| devices.iter().find(|d| d.gpu_id == *index));
    let latency = p.latency_stats.as_ref();
    let mut f = SourcedFigures { sources, run, many };
    let figure = |label: &str, value: TableCell, unit: &str| KeyFigure {
        label: label.into(),
        value,
        unit: unit.into(),
    };
    let unit = match &one {
        Some((_, label)) => format!("GiB, {label}"),
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

fn holds_sentence(concurrency: f64, plan: &RunPlan) -> String {
    let longest = plan.deployment.max_model_len.or(plan.model.max_positions);
    let of = longest.map_or(String::new(), |n| {
        format!(" of {} tokens", grouped_count(n))
    });
    let requests = concurrency.floor().max(0.0) as usize;
    format!(
        "holds {}{of}",
        counted_words(requests, "request", "requests")
    )
}

/// A change of the engine's share of the GPU, with the deployment that it makes, in whole percents.
fn with_share(plan: &RunPlan, present: &Deployment, share: f64) -> Option<Remedy> {
    let share = (share * 100.0).floor() / 100.0;
    let deployment = Deployment {
        memory_fraction: Some(share),
        ..present.clone()
    };
    let name = "gpu_memory_utilization";
    let argument =
        crate::engine::settings::argument_text(present.engine, name, &format!("{share:.2}"))?;
    let concurrency = concurrency_of(plan, &deployment).ok()?;
    (share > 0.0 && concurrency >= 1.0).then_some(Remedy {
        argument,
        deployment,
        concurrency,
    })
}

/// A smaller share of a GPU that is nearly full.
fn lower_share(plan: &RunPlan, gauge: &Gauge, headroom: Headroom) -> Option<Action> {
    let present = present_deployment(plan).filter(|_| headroom != Headroom::Safe)?;
    let free = gauge.free_bytes() as f64 / gauge.total as f64;
    let found = with_share(
        plan,
        &present,
        present.memory_fraction? - (SAFE_SHARE - free),
    )?;
    Some(Action {
        setting: found.argument,
        effect: format!(
            "leaves 5 % of the GPU free, {}",
            holds_sentence(found.concurrency, plan)
        ),
    })
}

/// More pool for a load that filled it: from memory that is free, or by a cache of 8 bits.
fn widen_pool(p: &Profile, plan: &RunPlan, gauge: &Gauge) -> Vec<Action> {
    let pool = &p.vllm_internal_metrics;
    let full = pool.preemptions.is_some_and(|n| n > 0)
        || pool
            .kv_cache_usage_peak
            .is_some_and(|used| used > FULL_POOL);
    let Some(present) = present_deployment(plan).filter(|_| full) else {
        return Vec::new();
    };
    let Ok(now) = concurrency_of(plan, &present) else {
        return Vec::new();
    };
    let spare = gauge.free_bytes() as f64 / gauge.total as f64 - SAFE_SHARE;
    let more = (spare >= 0.01)
        .then(|| with_share(plan, &present, present.memory_fraction? + spare))
        .flatten();
    let found = more.into_iter().filter(|r| r.concurrency > now);
    found
        .map(|r| Action {
            setting: r.argument,
            effect: format!(
                "{} instead of {}",
                holds_sentence(r.concurrency, plan),
                now.floor()
            ),
        })
        .collect()
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
        setting: found.argument,
        effect: format!(
            "frees {}, still {}; this load used {:.0} % of the KV pool",
            Bytes((less * gpu.total as f64) as u64),
            holds_sentence(found.concurrency, plan),
            used * 100.0
        ),
    })
}

/// Of two runs that are compared: how the peak moved, and the headroom of the second.
fn answer_of_pair(before: &ReportRun, after: &ReportRun, sources: &mut Sources) -> Answer {
    let mut answer = answer_of_run(after, sources, true);
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
fn answer_of_many(runs: &[ReportRun], fullest: &ReportRun, sources: &mut Sources) -> Answer {
    let mut answer = answer_of_run(fullest, sources, true);
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

/// Cells measured, where the throughput was highest, and the highest peak.
fn sweep_sentence(material: &Material) -> Option<String> {
    let stored = material.sweeps.first()?;
    let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
    let highest = |figure| {
        let figures = sweep
            .cells
            .iter()
            .filter_map(move |c| Some((c, c.figure_value(figure)?)));
        figures.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let measured = sweep.cells.iter().filter(|c| c.is_done()).count();
    let mut text = format!(
        "{measured} of {} measured",
        counted_noun(sweep.cells.len(), "cell")
    );
    if let Some((cell, best)) = highest(&THROUGHPUT) {
        let best = format_figure(best);
        text.push_str(&format!(
            "; best throughput {best} tokens/s ({})",
            cell.load_words()
        ));
    }
    if let Some((_, peak)) = highest(&PEAK) {
        text.push_str(&format!("; highest peak {} GiB", format_figure(peak)));
    }
    text.push('.');
    Some(text)
}

fn experiment_sentence(material: &Material) -> Option<String> {
    let document = &material.experiments.first()?.document;
    let mut sentences = sentences_at(document, "/readings").into_iter();
    sentences.next()
}

fn load_line_sentence(material: &Material) -> Option<String> {
    let document = &material.load_lines.first()?.document;
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
    let limit =
        text_at(document, "/measured/limiting").filter(|_| !flag_at(document, "/simulated"));
    Some(match limit {
        Some(limit) => format!("{text} Limited by {}.", limit.replace('_', " ")),
        None => text,
    })
}
