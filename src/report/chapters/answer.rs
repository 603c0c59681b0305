//! The answer that a report opens with: whether memory suffices, the device that binds, what to change.
//!
//! Every change is estimated with its new value first. Where the estimate of the present deployment does not agree with
//! what was measured, no change of a setting is advised.

use super::Sources;
use super::compare::{compare_runs, incomparable_sentence};
use super::experiment::read_experiment;
use super::figures::{SourcedFigures, TOTAL, gib_cell, reason_at_path};
use super::load_line::read_load_line;
use super::summary::{BENCH, LATENCY, TOKENS};
use super::sweep::read::{
    LATENCY as LATENCY_OF_CELL, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT,
};
use super::sweep::{describe_cell, lacked_memory};
use super::words;
use crate::breakdown::{Component, Part};
use crate::capture::{DeviceKind, LimitLevel, RunEnd};
use crate::compare::calculated::Item;
use crate::engine::facts::Severity;
use crate::estimate::question::{Reading, Remedy, change_share, find_smaller_share};
use crate::estimate::{Deployment, Unknown, estimate};
use crate::experiment::{Experiment, ExperimentLevel};
use crate::headroom::{Headroom, SAFE_FROM_PERCENT};
use crate::loadline::{Loadline, LoadlineRound};
use crate::matrix::RowFigures;
use crate::profile::{FullestDevice, HostMemoryUse, MemoryGauge, Profile, advise_on_profile};
use crate::report::content::{Action, Answer, AnswerState, KeyFigure, MOST_ACTIONS, TableCell};
use crate::report::estimate::describe_hold;
use crate::report::layout::{
    count_words, counted_noun, format_figure, group_items, grouped_count, join_first,
    join_sentences,
};
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
    let documents = ReadDocuments::of_material(material);
    let mut answer = match material.runs.as_slice() {
        [] => answer_of_documents(material, &documents),
        [run] => {
            let answer = answer_of_run(run, fullest_device(run), sources, false);
            with_host_memory(answer, &run.profile)
        }
        [before, after] if material.compare => answer_of_pair(before, after, sources),
        runs => answer_of_many(runs, sources),
    };
    let nothing_measured = documents.lack_figures();
    if nothing_measured {
        answer.state = AnswerState::Failed;
    }
    // What was asked for comes before the runs that it is made of; of several kinds the summary has the answers.
    let asked = document_answers(material);
    match (asked.as_slice(), material.document_counts().len()) {
        ([], _) => {}
        (_, 1) => {
            let advice = documents.lines.iter().flat_map(|line| &line.advice);
            let advice = advice.cloned().map(advice_action);
            answer.actions.extend(advice);
            answer.actions.truncate(MOST_ACTIONS);
            // The same answer of several documents is given once.
            let distinct = group_items(asked, |(.., sentence)| sentence.clone());
            let several = distinct.len() > 1;
            let sentences = distinct.into_iter().map(|(sentence, of)| {
                let name = several.then(|| format!("{}: ", of[0].1));
                name.unwrap_or_default() + &sentence
            });
            // The documents leave out what failed, and runs of others that lie beside them; a run's gauge has its parts.
            let devices = documents.fullest_devices();
            let own = MemoryGauge::fullest_of(devices.iter().cloned());
            let is_own = |gauge: &MemoryGauge| {
                let sizes = |g: &MemoryGauge| (g.used_bytes, g.total_bytes);
                own.as_ref().is_none_or(|own| sizes(own) == sizes(gauge))
            };
            answer.gauge = answer.gauge.filter(is_own).or(own);
            let figures = document_figures(material, &documents);
            if !figures.is_empty() {
                answer.figures = figures;
            }
            // Figures of a failed run are no headroom.
            answer.gauge = answer.gauge.filter(|_| !nothing_measured);
            let failed = documents.has_failures();
            let headroom = answer.gauge.as_ref();
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
            if answer.state == AnswerState::Safe
                && documents.cells.iter().any(SweepCell::is_not_run)
            {
                answer.state = AnswerState::Unknown;
            }
        }
        ([(_, name, first), ..], _) if answer.verdict.is_empty() => {
            answer.verdict = format!("{name}: {first}");
        }
        _ => {}
    }
    let others = (material.reports.iter()).filter_map(|(_, report)| report.answer.as_ref());
    let worst = others.max_by_key(|a| a.state);
    if let Some(worst) = worst.filter(|w| w.state > answer.state) {
        answer.state = worst.state;
        answer.verdict.clone_from(&worst.verdict);
        answer.gauge.clone_from(&worst.gauge);
    }
    if answer.figures.is_empty() {
        answer.figures = document_figures(material, &documents);
    }
    (!answer.verdict.is_empty()).then_some(answer)
}

/// The answer of each document other than a run: its kind, where it was read, a sentence.
pub(super) fn document_answers(material: &Material) -> Vec<(&'static str, &str, String)> {
    type Sentence = fn(&StoredDocument) -> Option<String>;
    let sentences: [Sentence; 3] = [sweep_sentence, experiment_sentence, load_line_sentence];
    let mut all = Vec::new();
    for ((kind, documents), sentence) in material.asked_documents().into_iter().zip(sentences) {
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

/// Documents beside runs, as they are read.
struct ReadDocuments {
    /// The cells of all sweeps.
    cells: Vec<SweepCell>,
    experiments: Vec<Experiment>,
    lines: Vec<Loadline>,
}

impl ReadDocuments {
    fn of_material(material: &Material) -> ReadDocuments {
        let (sweeps, experiments) = (&material.sweeps, &material.experiments);
        let read_cells = |s: &StoredDocument| SweepDocument::read_sweep(&s.document, &s.name).cells;
        let experiments = experiments.iter().map(|s| read_experiment(&s.document));
        let lines = material.load_lines.iter();
        ReadDocuments {
            cells: sweeps.iter().flat_map(read_cells).collect(),
            experiments: experiments.collect(),
            lines: lines.map(|s| read_load_line(&s.document)).collect(),
        }
    }

    /// The figures of the cells that were measured.
    fn measured_cells(&self) -> impl Iterator<Item = &RowFigures> {
        let done = self.cells.iter().filter(|cell| cell.is_done());
        done.map(|cell| &cell.figures)
    }

    fn measured_levels(&self) -> impl Iterator<Item = &ExperimentLevel> {
        self.experiments.iter().flat_map(|e| e.completed_levels())
    }

    /// The fullest device of each cell, level and round that was measured.
    fn fullest_devices(&self) -> Vec<MemoryGauge> {
        let rounds = self.lines.iter().flat_map(|line| &line.rounds);
        (self.measured_cells().map(|row| &row.fullest_device))
            .chain(self.measured_levels().map(|level| &level.fullest_device))
            .chain(rounds.map(|round| &round.seen.fullest_device))
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether a cell of a sweep or a level of an experiment failed.
    fn has_failures(&self) -> bool {
        let mut failed_levels = self.experiments.iter().flat_map(|e| e.failed_levels());
        failed_levels.next().is_some() || self.cells.iter().any(SweepCell::is_failed)
    }

    /// Whether there are sweeps of which cells were tried or skipped, and none was measured; or such levels alone.
    fn lack_figures(&self) -> bool {
        let in_vain =
            |c: &SweepCell| matches!(c.status.as_str(), "failed" | "skipped") || c.is_not_run();
        if self.cells.is_empty() {
            return self.has_failures() && self.measured_levels().next().is_none();
        }
        self.cells.iter().any(in_vain) && self.measured_cells().next().is_none()
    }
}

/// How full the fullest device of documents without their runs was.
fn answer_of_documents(material: &Material, documents: &ReadDocuments) -> Answer {
    let kv_pool = |used: Option<u64>, pool: Option<u64>| {
        Some(MemoryGauge {
            label: KV_POOL.into(),
            used_bytes: used?,
            total_bytes: pool?,
            parts: [(Component::KvCache, used?)].into(),
        })
    };
    let cells = documents.measured_cells();
    let pools = cells.filter_map(|row| kv_pool(row.kv_used_bytes, row.kv_pool_bytes));
    let levels = documents.measured_levels();
    let pools = pools.chain(levels.filter_map(|l| kv_pool(l.kv_used_bytes, l.kv_pool_bytes)));
    let device = MemoryGauge::fullest_of(documents.fullest_devices());
    let headroom = device.as_ref().map(MemoryGauge::headroom_level);
    let answer = Answer {
        state: headroom.map_or_else(AnswerState::default, |level| state_of_headroom(level).0),
        ..Answer::default()
    };
    let asked = material.asked_documents();
    if asked.iter().all(|(_, of_kind)| of_kind.is_empty()) {
        return answer;
    }
    answer.with_gauge(device.or_else(|| MemoryGauge::fullest_of(pools)))
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
    let (percent, rest) = (gauge.used_percent(), gauge.describe_rest());
    let used = used_of_total(gauge);
    format!("{what}: {most} {used} in use ({percent:.0} %), {rest}.")
}

/// `2.28 GiB of 4.00 GiB`.
fn used_of_total(gauge: &MemoryGauge) -> String {
    let (used, total) = (Bytes(gauge.used_bytes), Bytes(gauge.total_bytes));
    format!("{used} of {total}")
}

/// The best figures of sweeps, of one experiment, or of one load line.
fn document_figures(material: &Material, documents: &ReadDocuments) -> Vec<KeyFigure> {
    let figure = |label: &str, value: Option<f64>, unit: &str| {
        let value = value.filter(|v| v.is_finite())?;
        let text = match unit {
            REQUESTS => grouped_count(value as u64),
            unit => format_in_unit(value, unit),
        };
        let cell = TableCell::number_cell(value, text);
        Some(KeyFigure::new_figure(label, cell, unit))
    };
    type Better = fn(f64, f64) -> f64;
    let (highest, lowest): (Better, Better) = (f64::max, f64::min);
    let (sweeps, lines) = (material.sweeps.as_slice(), documents.lines.as_slice());
    let all = match (sweeps, documents.experiments.as_slice(), lines) {
        ([_, ..], [], []) if !material.compare || sweeps.len() == 1 => [
            ("Best throughput", THROUGHPUT, highest),
            ("Lowest mean latency", LATENCY_OF_CELL, lowest),
            ("Lowest time to first token", TTFT, lowest),
            ("Highest peak", PEAK, highest),
        ]
        .map(|(label, of, better)| {
            let values = documents.cells.iter().filter_map(|c| c.figure_value(of));
            figure(label, values.reduce(better), of.unit)
        }),
        ([], [experiment], []) => {
            type LevelValue = fn(&ExperimentLevel) -> Option<f64>;
            let best = |label, pick: LevelValue, better, unit| {
                let values = experiment.completed_levels().filter_map(pick);
                figure(label, values.reduce(better), unit)
            };
            let used: LevelValue = |l| l.kv_used_bytes.map(to_gib);
            let speed: LevelValue = |l| l.total_tokens_per_s;
            [
                best("Highest peak", |l| l.peak_bytes.map(to_gib), highest, "GiB"),
                best("Most KV in use", used, highest, "GiB"),
                best("Best throughput", speed, highest, "tokens/s"),
                best("Lowest mean latency", |l| l.mean_latency_s, lowest, "s"),
            ]
        }
        ([], [], [line]) => {
            let held = line.measured.as_ref().and_then(|m| m.concurrency);
            let is_held = |r: &&LoadlineRound| r.held && Some(r.concurrency) == held;
            let round = line.rounds.iter().find(is_held);
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
            let reason = match p.memory_breakdown.total_measured_bytes.map(Bytes) {
                None => reason_at_path(p, TOTAL),
                Some(peak) => format!("the peak is {peak}, the size of the device is not known"),
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
        let reached = format!(" Memory reached {}.", used_of_total(gauge));
        answer.verdict.push_str(&reached);
    }
    let last = run.timeline.phases.last();
    let was_cut = p.memory_breakdown.total_measured_bytes.is_none();
    if let Some(phase) = last.filter(|_| was_cut) {
        let (label, second) = (&phase.label, phase.from_s);
        let text = format!(" The last phase was {label}, from second {second:.1}.");
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
        let preemptions = counted_noun(n as usize, "preemption");
        let text = format!(" The KV pool ran full: {preemptions}.");
        answer.verdict.push_str(&text);
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
            " {}: {}, {} ({:.0} %).",
            gauge.label,
            word.to_lowercase(),
            used_of_total(&gauge),
            gauge.used_percent()
        );
        let verdict = &answer.verdict;
        let rest = (verdict.strip_prefix("Safe")).or_else(|| verdict.strip_prefix("Tight"));
        if let Some(rest) = rest.filter(|_| state > answer.state) {
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
        p.memory_breakdown.total_measured_bytes?;
        let error = p.findings.iter().find(|f| f.severity == Severity::Error);
        let memory = p.findings.iter().find(|f| f.code == "oom");
        Some(memory.or(error)?.message.as_str())
    };
    p.metadata.outcome.failure().or_else(reported)
}

/// `peak 2.28 GiB of 4.00 GiB (57 %), 1.72 GiB free`, with the device where there are several.
fn peak_sentence(p: &Profile, fullest: &FullestDevice) -> String {
    let gauge = &fullest.gauge;
    let on = match p.memory_breakdown.per_gpu.len() {
        0 | 1 => String::new(),
        n => format!(" on {} of {n}", gauge.label),
    };
    // A few percent of the host are always in use by others.
    let limit = fullest.unreachable_limit;
    let limit = limit.filter(|limit| limit - gauge.total_bytes > limit / 20);
    let others = limit.map(|n| format!(" Others on the host use the rest of {}.", Bytes(n)));
    let cache = Some(fullest.page_cache).filter(|n| counts_page_cache(*n, gauge));
    let cache = cache.map(|n| format!(" {} of page cache is not counted.", Bytes(n)));
    let (percent, rest) = (gauge.used_percent(), gauge.describe_rest());
    let (used, beside) = (used_of_total(gauge), others.into_iter().chain(cache));
    let beside: String = beside.collect();
    format!("peak {used}{on} ({percent:.0} %), {rest}.{beside}")
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
    let stats = p.latency_stats.as_ref();
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
    let with_cache = if cache { " with page cache" } else { "" };
    let label = format!("Peak{with_cache}");
    let mut all = vec![KeyFigure::new_figure(&label, peak, &unit)];
    let parts = device.map_or(&p.memory_breakdown.components, |d| &d.parts);
    let mut parts: Vec<&Part> = parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    for part in parts.into_iter().take(2) {
        let cell = gib_cell(part.bytes).from(f.of_part(one.map(|f| f.index), part));
        let label = part.component.display_label();
        all.push(KeyFigure::new_figure(label, cell, &unit));
    }
    let rate = (stats.and_then(|l| l.tokens_per_second), TOKENS);
    let latency = (stats.and_then(|l| l.mean_latency_ms), LATENCY);
    for (label, unit, (value, path)) in [
        ("Throughput", words::tokens_unit(p), rate),
        ("Mean latency", words::latency_unit(p), latency),
    ] {
        if value.is_some() {
            let cell = f.reported_cell(label, BENCH, (value, path));
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
    let devices = p.gpu_info.devices.iter();
    if devices.clone().all(|d| d.kind == DeviceKind::HostCgroup) {
        // A higher limit of the container adds nothing that the host has.
        if headroom != Headroom::Safe && fullest.unreachable_limit.is_none() {
            let limits = devices.map(|d| d.limit_level.clone());
            actions.extend(raise_limit(p, limits, gauge));
        }
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
    let mut pools = items.filter(|i| i.item == Item::KvTokens);
    let pool = pools.find_map(|i| i.error_pct);
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

/// The share of the GPU that would be in safe use beyond what is; negative where too much is.
fn spare_share(gauge: &MemoryGauge) -> f64 {
    Headroom::spare_share(gauge.free_bytes(), gauge.total_bytes)
}

/// The deployment with so much more of the GPU, in whole percent.
fn share_with(plan: &RunPlan, present: &Deployment, more: f64) -> Option<Remedy> {
    let percent = ((present.memory_fraction? + more) * 100.0).floor();
    change_share(present, percent, &|d| concurrency_of(plan, d))
}

/// A smaller share of a GPU that is nearly full.
fn lower_share(plan: &RunPlan, gauge: &MemoryGauge, headroom: Headroom) -> Option<Action> {
    let present = present_deployment(plan).filter(|_| headroom != Headroom::Safe)?;
    let found = share_with(plan, &present, spare_share(gauge))?;
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
    let spare = Some(spare_share(gauge)).filter(|spare| *spare >= 0.01)?;
    let found = share_with(plan, &present, spare)?;
    if found.concurrency <= now {
        return None;
    }
    let holds = describe_hold(&found, &plan.model);
    Some(Action {
        effect: format!("{holds} instead of {}", now.floor()),
        setting: found.argument(),
    })
}

/// A smaller share for a load that used little of its pool.
fn shrink_pool(p: &Profile, plan: &RunPlan) -> Option<Action> {
    let pool = &p.vllm_internal_metrics;
    let used = pool.kv_cache_usage_peak;
    let used = used.filter(|used| *used > 0.0 && *used < SPARE_POOL)?;
    let tokens = pool.total_gpu_kv_cache_tokens?;
    let present = present_deployment(plan)?;
    let longest = plan.deployment.max_model_len.or(plan.model.max_positions)?;
    let needed = used * tokens as f64 * POOL_RESERVE / longest.max(1) as f64;
    let holds = |d: &Deployment| concurrency_of(plan, d);
    let found = find_smaller_share(&plan.model, &present, needed.ceil().max(1.0) as u64, &holds)?;
    let gpu = present.gpu.as_ref()?;
    let less = present.memory_fraction? - found.deployment.memory_fraction?;
    let freed = Bytes((less * gpu.total as f64) as u64);
    let (holds, percent) = (describe_hold(&found, &plan.model), used * 100.0);
    Some(Action {
        effect: format!(
            "frees {freed}, still {holds}; this load used {percent:.0} % of the KV pool"
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
        let verb = if b > a { "rose" } else { "fell" };
        let moved = match Bytes(b.abs_diff(a)) {
            Bytes(0) => "The peak did not change.".to_owned(),
            by => format!("The peak {verb} by {by} ({percent:+.1} %)."),
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
    let is_failed = |run: &&ReportRun| failure_of(&run.profile).is_some();
    let failed = runs.iter().filter(is_failed).count();
    // What failed comes before what was safe.
    let lost = match failed {
        0 => String::new(),
        n => format!(", {} failed", grouped_count(n as u64)),
    };
    if failed > 0 && !is_failed(&fullest) {
        answer.state = AnswerState::Failed;
    }
    let (all, name) = (counted_noun(runs.len(), "run"), &fullest.name);
    answer.verdict = format!("{all}{lost}; the fullest is {name}. {}", answer.verdict);
    answer
}

/// What failed by which causes, cells measured, and where the throughput was highest.
fn sweep_sentence(stored: &StoredDocument) -> Option<String> {
    let sweep = SweepDocument::read_sweep(&stored.document, &stored.name);
    let all = counted_noun(sweep.cells.len(), "cell");
    let cells_that = |has: &dyn Fn(&SweepCell) -> bool| -> Vec<&SweepCell> {
        sweep.cells.iter().filter(|c| has(c)).collect()
    };
    let measured = cells_that(&SweepCell::is_done).len();
    let failed = cells_that(&SweepCell::is_failed);
    let mut text = match (failed.len(), measured) {
        (0, _) => format!("{measured} of {all} measured"),
        (n, measured) => {
            let causes = count_causes(&failed);
            let none = Some("none".to_owned()).filter(|_| measured == 0);
            let measured = none.unwrap_or_else(|| measured.to_string());
            format!("{n} of {all} failed: {causes}; {measured} measured")
        }
    };
    let not_run = cells_that(&SweepCell::is_not_run).len();
    if not_run > 0 {
        text = format!("Unfinished: {text}, {not_run} not run");
    }
    let skipped = cells_that(&|c| c.status == "skipped" && lacked_memory(c));
    if !skipped.is_empty() {
        let limited = cells_that(&|c| c.figures.limit_reached_bytes.is_some());
        let limited: BTreeSet<&str> = limited.iter().map(|c| c.group.as_str()).collect();
        let more_than = if skipped.iter().all(|c| limited.contains(c.group.as_str())) {
            "their limit"
        } else {
            "there is"
        };
        let n = skipped.len();
        text += &format!(", {n} skipped for needing more memory than {more_than}");
    }
    let speeds = sweep.cells.iter();
    let speeds = speeds.filter_map(|c| Some((c, c.figure_value(THROUGHPUT)?)));
    let mut fastest: Vec<(&SweepCell, f64)> = speeds.collect();
    fastest.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some(best) = fastest.first().copied() {
        fastest.retain(|next| is_within_noise(best, *next));
        let words = |(cell, value): &(&SweepCell, f64)| {
            let (cell, value) = (describe_cell(&sweep, cell), format_figure(*value));
            format!("{value} tokens/s {cell}")
        };
        let noise = match fastest.len() {
            1 => "",
            _ => ", equal within noise",
        };
        let named = join_first(&fastest, 2, "; ", words, |n| format!("; {n} more"));
        text += &format!("; best throughput{noise}: {named}");
    }
    Some(text + ".")
}

/// `2 oom, 1 timeout`, the most frequent first.
fn count_causes(failed: &[&SweepCell]) -> String {
    let causes = failed.iter().map(|cell| cell.cause.as_deref());
    let causes = count_words(causes.map(|cause| cause.unwrap_or("cause unknown"))).into_iter();
    let words = causes.map(|(cause, n)| format!("{n} {cause}"));
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

/// `1 of 4 levels failed: 64 (oom).` and what the others show.
fn experiment_sentence(stored: &StoredDocument) -> Option<String> {
    let experiment = read_experiment(&stored.document);
    let failed = experiment.failed_levels().map(|level| {
        let cause = level.cause.as_ref().map(|cause| format!(" ({cause})"));
        level.name.clone() + &cause.unwrap_or_default()
    });
    let failed: Vec<String> = failed.collect();
    let failures = (!failed.is_empty()).then(|| {
        let all = counted_noun(experiment.levels.len(), "level");
        format!("{} of {all} failed: {}.", failed.len(), failed.join(", "))
    });
    let reading = experiment.readings.first().cloned();
    join_sentences(failures.into_iter().chain(reading))
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
