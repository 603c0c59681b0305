//! The answer that a report opens with: whether memory suffices, the device that binds, what to change.
//!
//! Every change is estimated with its new value first. Where the estimate of the present deployment does not agree with
//! what was measured, no change of a setting is advised.

use super::Sources;
use super::compare::{compare_runs, incomparable_sentence};
use super::experiment::read_experiment;
use super::figures::{SourcedFigures, gib_cell, reason_at_path};
use super::load_line::read_load_line;
use super::summary::{LATENCY, TOKENS};
use super::sweep::read::{
    LATENCY as LATENCY_OF_CELL, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT,
};
use super::sweep::{describe_cell, lacked_memory};
use super::words;
use crate::breakdown::{Component, Part};
use crate::capture::{DeviceKind, LimitLevel, RunEnd};
use crate::compare::calculated::Item;
use crate::engine::facts::Severity;
use crate::estimate::question::{Reading, change_share, find_smaller_share};
use crate::estimate::{Deployment, Unknown, estimate};
use crate::experiment::{ExperimentLevel, LevelState};
use crate::headroom::{Headroom, SAFE_FROM_PERCENT};
use crate::matrix::RowFigures;
use crate::profile::{FullestDevice, HostMemoryUse, MemoryGauge, Profile, advise_on_profile};
use crate::report::content::{Action, Answer, AnswerState, KeyFigure, MOST_ACTIONS, TableCell};
use crate::report::estimate::describe_hold;
use crate::report::layout::{count_words, counted_noun, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun, RunPlan, StoredDocument};
use crate::report::tables::format_in_unit;
use crate::units::{Bytes, GIB, to_gib};
use std::collections::BTreeSet;

/// The gauge of documents that have no size of a device.
const KV_POOL: &str = "KV pool";
/// The unit of what an engine sustains.
const REQUESTS: &str = "concurrent requests";
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
        [] => answer_of_documents(material),
        [run] => {
            let answer = answer_of_run(run, fullest_device(run), sources, false);
            with_host_memory(answer, &run.profile)
        }
        [before, after] if material.compare => answer_of_pair(before, after, sources),
        runs => answer_of_many(runs, sources),
    };
    let nothing_measured = nothing_measured(material);
    if nothing_measured {
        answer.state = AnswerState::Failed;
    }
    // What was asked for comes before the runs that it is made of; of several kinds the summary has the answers.
    let asked = document_answers(material);
    match (asked.as_slice(), material.document_counts().len()) {
        ([], _) => {}
        (_, 1) => {
            let lines = material.load_lines.iter();
            let advice = lines.flat_map(|line| read_load_line(&line.document).advice);
            let free = MOST_ACTIONS.saturating_sub(answer.actions.len());
            answer.actions.extend(advice.take(free).map(advice_action));
            let mut sentences: Vec<(&str, String)> = Vec::new();
            for (_, name, sentence) in asked {
                if sentences.iter().all(|(_, other)| *other != sentence) {
                    sentences.push((name, sentence));
                }
            }
            let several = sentences.len() > 1;
            let sentences = sentences.into_iter().map(|(name, sentence)| {
                if several {
                    format!("{name}: {sentence}")
                } else {
                    sentence
                }
            });
            // The documents leave out what failed, and runs of others that lie beside them; a run's gauge has its parts.
            let own = MemoryGauge::fullest_of(document_devices(material));
            let is_own = |gauge: &MemoryGauge| {
                let sizes = |g: &MemoryGauge| (g.used_bytes, g.total_bytes);
                own.as_ref().is_none_or(|own| sizes(own) == sizes(gauge))
            };
            answer.gauge = answer.gauge.filter(is_own).or(own);
            let figures = document_figures(material);
            if !figures.is_empty() {
                answer.figures = figures;
            }
            // Figures of a failed run are no headroom.
            answer.gauge = answer.gauge.filter(|_| !nothing_measured);
            let failed = has_failures(material);
            let headroom = answer.gauge.as_ref();
            let devices = document_devices(material);
            let totals = || devices.iter().map(|gauge| gauge.total_bytes);
            let (least, most) = (totals().min().unwrap_or(0), totals().max().unwrap_or(0));
            // What a host has left changes a little from cell to cell.
            let one_limit = most - least <= most / 20;
            let headroom = headroom.map(|gauge| describe_headroom(gauge, failed, one_limit));
            answer.verdict = sentences.chain(headroom).collect::<Vec<_>>().join(" ");
            // The word is the gauge's: so is the colour, whatever the fullest run met besides.
            let gauge = answer.gauge.as_ref().filter(|g| g.label != KV_POOL);
            if let Some(gauge) = gauge.filter(|_| answer.state != AnswerState::Failed) {
                answer.state = state_of_headroom(gauge.headroom_level()).0;
            }
            // What was not run may need more.
            if answer.state == AnswerState::Safe && cells_of(material).any(|c| c.is_not_run()) {
                answer.state = AnswerState::Unknown;
            }
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
        answer.figures = document_figures(material);
    }
    (!answer.verdict.is_empty()).then_some(answer)
}

/// The answer of each document other than a run: its kind, where it was read, a sentence.
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

/// The figures of the cells that were measured.
fn measured_cells(material: &Material) -> impl Iterator<Item = RowFigures> {
    let cells = cells_of(material);
    cells.filter(SweepCell::is_done).map(|cell| cell.figures)
}

fn measured_levels(material: &Material) -> impl Iterator<Item = ExperimentLevel> {
    let experiments = material.experiments.iter();
    let levels = experiments.flat_map(|stored| read_experiment(&stored.document).levels);
    levels.filter(|level| level.state == LevelState::Done)
}

/// The fullest device of each cell, level and round that was measured.
fn document_devices(material: &Material) -> Vec<MemoryGauge> {
    let lines = material.load_lines.iter();
    let rounds = lines.flat_map(|stored| read_load_line(&stored.document).rounds);
    (measured_cells(material).filter_map(|row| row.fullest_device))
        .chain(measured_levels(material).filter_map(|level| level.fullest_device))
        .chain(rounds.filter_map(|round| round.seen.fullest_device))
        .collect()
}

/// How full the fullest device of documents without their runs was.
fn answer_of_documents(material: &Material) -> Answer {
    let kv_pool = |used: Option<u64>, pool: Option<u64>| {
        Some(MemoryGauge {
            label: KV_POOL.into(),
            used_bytes: used?,
            total_bytes: pool?,
            parts: [(Component::KvCache, used?)].into(),
        })
    };
    let cells = measured_cells(material);
    let pools = cells.filter_map(|row| kv_pool(row.kv_used_bytes, row.kv_pool_bytes));
    let levels = measured_levels(material);
    let pools = pools.chain(levels.filter_map(|l| kv_pool(l.kv_used_bytes, l.kv_pool_bytes)));
    let device = MemoryGauge::fullest_of(document_devices(material));
    let state = device
        .as_ref()
        .map(|gauge| state_of_headroom(gauge.headroom_level()).0);
    let asked = material.sweeps.len() + material.experiments.len() + material.load_lines.len();
    let answer = Answer {
        state: state.unwrap_or_default(),
        ..Answer::default()
    };
    match asked {
        0 => answer,
        _ => answer.with_gauge(device.or_else(|| MemoryGauge::fullest_of(pools))),
    }
}

/// Whether a cell of a sweep or a level of an experiment failed.
fn has_failures(material: &Material) -> bool {
    let levels = |stored: &StoredDocument| {
        let experiment = read_experiment(&stored.document);
        experiment.failed_levels().next().is_some()
    };
    material.experiments.iter().any(levels) || cells_of(material).any(|c| c.is_failed())
}

/// `Safe: at most 1.38 GiB of 23.54 GiB in use (6 %), 22.16 GiB free.` Of a test in part failed: `The others are safe: …`.
/// Of several limits the one that came nearest, with which others may have used more bytes.
fn describe_headroom(gauge: &MemoryGauge, others_failed: bool, one_limit: bool) -> String {
    let level = state_of_headroom(gauge.headroom_level()).1;
    let what = match gauge.label.as_str() {
        KV_POOL => KV_POOL.to_owned(),
        _ if others_failed => format!("The others are {}", level.to_lowercase()),
        _ => level.to_owned(),
    };
    let most = if one_limit {
        "at most"
    } else {
        "the fullest had"
    };
    format!(
        "{what}: {most} {} of {} in use ({:.0} %), {}.",
        Bytes(gauge.used_bytes),
        Bytes(gauge.total_bytes),
        gauge.used_percent(),
        gauge.describe_rest()
    )
}

/// The best figures of sweeps, of one experiment, or of one load line.
fn document_figures(material: &Material) -> Vec<KeyFigure> {
    let figure = |label: &str, value: Option<f64>, unit: &str| {
        let value = value.filter(|v| v.is_finite())?;
        let text = match unit {
            REQUESTS => grouped_count(value as u64),
            unit => format_in_unit(value, unit),
        };
        let cell = TableCell::number_cell(value, text);
        Some(KeyFigure::new_figure(label, cell, unit))
    };
    let (highest, lowest) = (
        f64::max as fn(f64, f64) -> f64,
        f64::min as fn(f64, f64) -> f64,
    );
    let documents = (
        &material.sweeps[..],
        &material.experiments[..],
        &material.load_lines[..],
    );
    let all = match documents {
        ([_, ..], [], []) if !material.compare || material.sweeps.len() == 1 => {
            let cells: Vec<SweepCell> = cells_of(material).collect();
            [
                ("Best throughput", THROUGHPUT, highest),
                ("Lowest mean latency", LATENCY_OF_CELL, lowest),
                ("Lowest time to first token", TTFT, lowest),
                ("Highest peak", PEAK, highest),
            ]
            .map(|(label, of, better)| {
                let values = cells.iter().filter_map(|c| c.figure_value(of));
                figure(label, values.reduce(better), of.unit)
            })
        }
        ([], [stored], []) => {
            let experiment = read_experiment(&stored.document);
            let best = |pick: fn(&ExperimentLevel) -> Option<f64>, better| {
                experiment
                    .completed_levels()
                    .filter_map(pick)
                    .reduce(better)
            };
            let peak = best(|l| l.peak_bytes.map(to_gib), highest);
            let used = best(|l| l.kv_used_bytes.map(to_gib), highest);
            let speed = best(|l| l.total_tokens_per_s, highest);
            let latency = best(|l| l.mean_latency_s, lowest);
            [
                figure("Highest peak", peak, "GiB"),
                figure("Most KV in use", used, "GiB"),
                figure("Best throughput", speed, "tokens/s"),
                figure("Lowest mean latency", latency, "s"),
            ]
        }
        ([], [], [stored]) => {
            let line = read_load_line(&stored.document);
            let held = line.measured.as_ref().and_then(|m| m.concurrency);
            let round = line
                .rounds
                .iter()
                .find(|r| r.held && Some(r.concurrency) == held);
            let result = round.map(|r| &r.seen.result);
            let ttft = result.and_then(|r| r.ttft_ms.get("p95").copied());
            let speed = result.and_then(|r| r.output_tokens_per_second);
            let predicted = line.prediction.concurrency.map(|n| n as f64);
            [
                figure("Sustained", held.map(f64::from), REQUESTS),
                figure("Predicted", predicted, REQUESTS),
                figure("Throughput there", speed, "tokens/s"),
                figure("TTFT p95 there", ttft, "ms"),
            ]
        }
        _ => return Vec::new(),
    };
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
        let (used, total) = (Bytes(gauge.used_bytes), Bytes(gauge.total_bytes));
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
    let headroom = fullest.gauge.headroom_level();
    let preempted = p.vllm_internal_metrics.preemptions.filter(|n| *n > 0);
    let (state, word) = state_of_headroom(match preempted {
        Some(_) => headroom.max(Headroom::Tight),
        None => headroom,
    });
    let peak = peak_sentence(p, &fullest);
    // A run without an end or without a load promises nothing.
    let (state, verdict) = match (&p.metadata.outcome, p.parameters.bench.as_str()) {
        (RunEnd::Interrupted, _) if state == AnswerState::Safe => {
            let when = match p.memory_breakdown.total_measured_bytes {
                Some(_) => "Interrupted",
                None => "Interrupted before the peak was known",
            };
            (AnswerState::Unknown, format!("{when}: {peak}"))
        }
        (RunEnd::Deadline, _) if state == AnswerState::Safe => (
            AnswerState::Unknown,
            format!("Stopped at its deadline: {peak}"),
        ),
        (_, "none" | "") => (state, format!("{word} while it was watched: {peak}")),
        _ => (state, format!("{word}: {peak}")),
    };
    (answer.state, answer.verdict) = (state, verdict);
    if let Some(n) = preempted {
        answer.verdict.push_str(&format!(
            " The KV pool ran full: {}.",
            counted_noun(n as usize, "preemption")
        ));
    }
    answer.actions = find_actions(run, &fullest, headroom);
    answer.gauge = Some(fullest.gauge);
    answer
}

/// With the gauge of the host memory beside the GPUs, and a sentence where that is the nearer limit.
fn with_host_memory(mut answer: Answer, p: &Profile) -> Answer {
    let Some(gauge) = p.host_memory.as_ref().and_then(HostMemoryUse::gauge) else {
        return answer;
    };
    let headroom = gauge.headroom_level();
    let (state, word) = state_of_headroom(headroom);
    if headroom != Headroom::Safe {
        let sentence = format!(
            " {}: {}, {} of {} ({:.0} %).",
            gauge.label,
            word.to_lowercase(),
            Bytes(gauge.used_bytes),
            Bytes(gauge.total_bytes),
            gauge.used_percent()
        );
        let nearer = ["Safe", "Tight"]
            .into_iter()
            .filter(|_| state > answer.state);
        let rest = nearer.flat_map(|w| answer.verdict.strip_prefix(w)).next();
        if let Some(rest) = rest {
            answer.verdict = format!("{word}{rest}");
        }
        answer.verdict.push_str(&sentence);
        answer.state = answer.state.max(state);
        let limits = [p.host_memory.as_ref().and_then(|h| h.limit_level.clone())];
        answer.actions.extend(raise_limit(p, limits, &gauge));
        answer.actions.truncate(MOST_ACTIONS);
    }
    answer.host_gauge = Some(gauge);
    answer
}

fn state_of_headroom(headroom: Headroom) -> (AnswerState, &'static str) {
    match headroom {
        Headroom::Safe => (AnswerState::Safe, "Safe"),
        Headroom::Tight => (AnswerState::Tight, "Tight"),
        Headroom::Critical => (AnswerState::Critical, "Critical"),
    }
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
fn peak_sentence(p: &Profile, fullest: &FullestDevice) -> String {
    let gauge = &fullest.gauge;
    let on = match p.memory_breakdown.per_gpu.len() {
        0 | 1 => String::new(),
        n => format!(" on {} of {n}", gauge.label),
    };
    let cache = match fullest.page_cache {
        n if counts_page_cache(n, gauge) => {
            format!(" {} of page cache is not counted.", Bytes(n))
        }
        _ => String::new(),
    };
    // A few percent of the host are always in use by others.
    let others = match fullest.unreachable_limit {
        Some(limit) if limit - gauge.total_bytes > limit / 20 => {
            format!(" Others on the host use the rest of {}.", Bytes(limit))
        }
        _ => String::new(),
    };
    format!(
        "peak {} of {}{on} ({:.0} %), {}.{others}{cache}",
        Bytes(gauge.used_bytes),
        Bytes(gauge.total_bytes),
        gauge.used_percent(),
        gauge.describe_rest()
    )
}

/// Whether page cache is worth a word: the kernel gives it up where memory is short.
fn counts_page_cache(cache: u64, gauge: &MemoryGauge) -> bool {
    cache > gauge.total_bytes.min(gauge.used_bytes) / 100
}

/// The device of which the largest share was in use.
fn fullest_device(run: &ReportRun) -> Option<FullestDevice> {
    run.profile.fullest_device().or_else(|| fullest_lane(run))
}

/// The fullest device by its samples, of a run that was cut off before its parts were measured.
fn fullest_lane(run: &ReportRun) -> Option<FullestDevice> {
    let bytes = |gib: f64| (gib * GIB) as u64;
    let lanes = run.timeline.lanes.iter().filter(|lane| lane.memory);
    let gauges = lanes.filter_map(|lane| {
        let highest = lane.stretches.iter().map(|s| s.high).reduce(f64::max)?;
        Some(MemoryGauge {
            label: lane.label.clone(),
            used_bytes: bytes(highest),
            total_bytes: lane.capacity.map(bytes)?,
            ..MemoryGauge::default()
        })
    });
    Some(FullestDevice {
        index: 0,
        gauge: MemoryGauge::fullest_of(gauges)?,
        page_cache: 0,
        unreachable_limit: None,
    })
}

/// Peak and the two largest parts of the fullest device, and how fast it was.
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
    let unit = match one {
        Some(f) => format!("GiB, {}", f.gauge.label),
        None => "GiB".into(),
    };
    let peak = match device {
        Some(d) => gib_cell(d.peak_bytes as i64).from(f.of_peak(Some(d.gpu_id))),
        None => f.peak_cell(),
    };
    // The sentence above counts the peak without it.
    let cache = fullest.is_some_and(|f| counts_page_cache(f.page_cache, &f.gauge));
    let label = if cache {
        "Peak with page cache"
    } else {
        "Peak"
    };
    let mut all = vec![KeyFigure::new_figure(label, peak, &unit)];
    let mut parts: Vec<&Part> = device
        .map_or(&p.memory_breakdown.components, |d| &d.parts)
        .iter()
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    for part in parts.into_iter().take(2) {
        let cell = gib_cell(part.bytes).from(f.of_part(one.map(|f| f.index), part));
        let label = part.component.display_label();
        all.push(KeyFigure::new_figure(label, cell, &unit));
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
            let cell = f.reported_cell(label, bench, (value, path));
            all.push(KeyFigure::new_figure(label, cell, unit));
        }
    }
    all.retain(|f| f.value.number.is_some());
    all.truncate(4);
    all
}

/// A sentence of advice; one that begins with a setting names it apart: `--max-num-seqs: more at once`.
fn advice_action(advice: String) -> Action {
    match advice.split_once(": ") {
        Some((setting, effect)) if setting.starts_with("--") && !setting.contains(' ') => Action {
            setting: setting.to_owned(),
            effect: effect.to_owned(),
        },
        _ => Action::of_advice(advice),
    }
}

/// What to change after a run that ended well.
fn find_actions(run: &ReportRun, fullest: &FullestDevice, headroom: Headroom) -> Vec<Action> {
    let p = &run.profile;
    let gauge = &fullest.gauge;
    let mut actions = Vec::new();
    let host = p
        .gpu_info
        .devices
        .iter()
        .all(|d| d.kind == DeviceKind::HostCgroup);
    if host {
        // A higher limit of the container adds nothing that the host has.
        let limits = p.gpu_info.devices.iter().map(|d| d.limit_level.clone());
        let raise = raise_limit(p, limits, gauge);
        actions.extend(
            raise.filter(|_| headroom != Headroom::Safe && fullest.unreachable_limit.is_none()),
        );
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
fn raise_limit(
    p: &Profile,
    limits: impl IntoIterator<Item = Option<LimitLevel>>,
    gauge: &MemoryGauge,
) -> Option<Action> {
    let own = limits.into_iter().any(|l| l == Some(LimitLevel::Container));
    p.metadata.container.memory_limit_bytes.filter(|_| own)?;
    let mib = (gauge.used_bytes as f64 / 0.9 / f64::from(1 << 20)).ceil() as u64;
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
fn lower_share(plan: &RunPlan, gauge: &MemoryGauge, headroom: Headroom) -> Option<Action> {
    let present = present_deployment(plan).filter(|_| headroom != Headroom::Safe)?;
    let share =
        present.memory_fraction? + Headroom::spare_share(gauge.free_bytes(), gauge.total_bytes);
    let percent = (share * 100.0).floor();
    let found = change_share(&present, percent, &|d| concurrency_of(plan, d))?;
    let holds = describe_hold(&found, &plan.model);
    Some(Action {
        effect: format!("leaves {SAFE_FROM_PERCENT} % of the GPU free, {holds}"),
        setting: found.argument(),
    })
}

/// More pool for a load that filled it, from memory that is free.
fn widen_pool(p: &Profile, plan: &RunPlan, gauge: &MemoryGauge) -> Option<Action> {
    let pool = &p.vllm_internal_metrics;
    let used = pool.kv_cache_usage_peak;
    let is_full =
        pool.preemptions.is_some_and(|n| n > 0) || used.is_some_and(|used| used > FULL_POOL);
    let present = present_deployment(plan).filter(|_| is_full)?;
    let now = concurrency_of(plan, &present).ok()?;
    let spare = Headroom::spare_share(gauge.free_bytes(), gauge.total_bytes);
    let share = present.memory_fraction? + (spare >= 0.01).then_some(spare)?;
    let percent = (share * 100.0).floor();
    let found = change_share(&present, percent, &|d| concurrency_of(plan, d));
    let found = found.filter(|remedy| remedy.concurrency > now)?;
    let holds = describe_hold(&found, &plan.model);
    Some(Action {
        effect: format!("{holds} instead of {}", now.floor()),
        setting: found.argument(),
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
        setting: found.argument(),
    })
}

/// Of two runs that are compared: how the peak moved, and the headroom of the second.
fn answer_of_pair(before: &ReportRun, after: &ReportRun, sources: &mut Sources) -> Answer {
    let mut answer = answer_of_run(after, fullest_device(after), sources, true);
    let peak = |r: &ReportRun| match &r.profile.memory_breakdown {
        all if all.per_gpu.len() > 1 => Some(fullest_device(r)?.gauge.used_bytes),
        one => one.total_measured_bytes,
    };
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
    if let Some(sentence) = incomparable_sentence(&compare_runs(before, after)) {
        answer.verdict = format!("{sentence} {}", answer.verdict);
        if answer.state == AnswerState::Safe {
            answer.state = AnswerState::Unknown;
        }
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
        .filter(|r| failure_of(&r.profile).is_some())
        .count();
    // What failed comes before what was safe.
    let lost = match failed {
        0 => String::new(),
        n => format!(", {} failed", grouped_count(n as u64)),
    };
    if failed > 0 && failure_of(&fullest.profile).is_none() {
        answer.state = AnswerState::Failed;
    }
    answer.verdict = format!(
        "{}{lost}; the fullest is {}. {}",
        counted_noun(runs.len(), "run"),
        fullest.name,
        answer.verdict
    );
    answer
}

/// What failed by which causes, cells measured, and where the throughput was highest.
fn sweep_sentence(stored: &StoredDocument) -> Option<String> {
    let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
    let all = counted_noun(sweep.cells.len(), "cell");
    let measured = sweep.cells.iter().filter(|c| c.is_done()).count();
    let failed: Vec<&SweepCell> = sweep.cells.iter().filter(|c| c.is_failed()).collect();
    let not_run = sweep.cells.iter().filter(|c| c.is_not_run()).count();
    let (mut text, rest) = match not_run {
        0 => (String::new(), String::new()),
        n => ("Unfinished: ".to_owned(), format!(", {n} not run")),
    };
    text += &match failed.len() {
        0 => format!("{measured} of {all} measured"),
        n => {
            let causes = count_causes(&failed);
            let measured = match measured {
                0 => "none".to_owned(),
                measured => measured.to_string(),
            };
            format!("{n} of {all} failed: {causes}; {measured} measured")
        }
    };
    text += &rest;
    let is_skipped = |c: &&SweepCell| c.status == "skipped" && lacked_memory(c);
    let skipped: Vec<&SweepCell> = sweep.cells.iter().filter(is_skipped).collect();
    if !skipped.is_empty() {
        let limited = sweep.cells.iter();
        let limited = limited.filter(|c| c.figures.limit_reached_bytes.is_some());
        let limited: BTreeSet<&str> = limited.map(|c| c.group.as_str()).collect();
        let more_than = if skipped.iter().all(|c| limited.contains(c.group.as_str())) {
            "their limit"
        } else {
            "there is"
        };
        let n = skipped.len();
        text.push_str(&format!(
            ", {n} skipped for needing more memory than {more_than}"
        ));
    }
    let mut fastest: Vec<(&SweepCell, f64)> = (sweep.cells.iter())
        .filter_map(|c| Some((c, c.figure_value(THROUGHPUT)?)))
        .collect();
    fastest.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some(best) = fastest.first().copied() {
        let equal = fastest.iter().filter(|next| is_within_noise(best, **next));
        let words = |(cell, value): &(&SweepCell, f64)| {
            let (cell, value) = (describe_cell(&sweep, cell), format_figure(*value));
            format!("{value} tokens/s {cell}")
        };
        let rest = equal.clone().skip(2).count();
        let named: Vec<String> = equal.take(2).map(words).collect();
        let noise = match named.len() {
            1 => "",
            _ => ", equal within noise",
        };
        text.push_str(&format!("; best throughput{noise}: {}", named.join("; ")));
        if rest > 0 {
            text.push_str(&format!("; {rest} more"));
        }
    }
    text.push('.');
    Some(text)
}

/// `2 oom, 1 timeout`, the most frequent first.
fn count_causes(failed: &[&SweepCell]) -> String {
    let causes = failed
        .iter()
        .map(|cell| cell.cause.as_deref().unwrap_or("cause unknown"));
    let words = count_words(causes)
        .into_iter()
        .map(|(cause, n)| format!("{n} {cause}"));
    words.collect::<Vec<_>>().join(", ").replace('_', " ")
}

/// Two runs of one cell without repeats differ by about this share.
const NOISE: f64 = 0.01;

/// Whether a throughput is no lower than the best by more than repeats differ.
fn is_within_noise(best: (&SweepCell, f64), next: (&SweepCell, f64)) -> bool {
    let spread = |cell: &SweepCell| cell.figures.tokens_per_second_stddev;
    let spreads = spread(best.0).zip(spread(next.0));
    best.1 - next.1 <= spreads.map_or(best.1 * NOISE, |(a, b)| a + b)
}

/// Whether there are sweeps of which cells were tried or skipped, and none was measured.
fn nothing_measured(material: &Material) -> bool {
    let cells: Vec<SweepCell> = cells_of(material).collect();
    let in_vain =
        |c: &SweepCell| matches!(c.status.as_str(), "failed" | "skipped") || c.is_not_run();
    let no_cell = cells.iter().any(in_vain) && !cells.iter().any(SweepCell::is_done);
    no_cell
        || has_failures(material) && measured_levels(material).next().is_none() && cells.is_empty()
}

/// All cells of the sweeps.
fn cells_of(material: &Material) -> impl Iterator<Item = SweepCell> {
    let sweeps = material.sweeps.iter();
    sweeps.flat_map(|s| SweepDocument::read_sweep(&s.document, &s.name).cells)
}

/// `1 of 4 levels failed: 64 (oom).` and what the others show.
fn experiment_sentence(stored: &StoredDocument) -> Option<String> {
    let experiment = read_experiment(&stored.document);
    let failed = experiment.failed_levels().map(|level| match &level.cause {
        Some(cause) => format!("{} ({cause})", level.name),
        None => level.name.clone(),
    });
    let failed: Vec<String> = failed.collect();
    let failures = (!failed.is_empty()).then(|| {
        let all = counted_noun(experiment.levels.len(), "level");
        format!("{} of {all} failed: {}.", failed.len(), failed.join(", "))
    });
    let all: Vec<String> = failures
        .into_iter()
        .chain(experiment.readings.into_iter().next())
        .collect();
    (!all.is_empty()).then(|| all.join(" "))
}

fn load_line_sentence(stored: &StoredDocument) -> Option<String> {
    let line = read_load_line(&stored.document);
    let requests = |n: u64| counted_noun(n as usize, "concurrent request");
    let measured = line.measured.unwrap_or_default();
    let holds = measured.concurrency.map(|n| requests(n.into()));
    let text = match (holds, measured.fails_at) {
        (Some(holds), Some(fails)) => format!("Sustains {holds}; fails at {fails}."),
        (Some(holds), None) => format!("Sustains {holds}, the most that was tried."),
        (None, Some(fails)) => format!("Does not sustain {fails}; fewer were not tried."),
        (None, None) => format!("Predicted: {}.", requests(line.prediction.concurrency?)),
    };
    let limit = match measured.limiting {
        Some(limit) => format!(" Limited by {limit}."),
        None if measured.fails_at.is_some() => " What limits it is not known.".to_owned(),
        None => String::new(),
    };
    let early = match line.outcome {
        RunEnd::Completed => "",
        RunEnd::Interrupted => "Interrupted, so the line is not known. ",
        _ => "Ended early, so the line is not known. ",
    };
    let early = if measured.closed { "" } else { early };
    Some(format!("{early}{text}{limit}"))
}
