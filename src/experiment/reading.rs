//! What the figures show, in sentences. Each follows from figures of the levels and names them.

use super::{Experiment, ExperimentKind, ExperimentLevel, LevelState};
use crate::units::{Bytes, to_gib};

/// Below this change, of the larger of two figures, memory counts as flat.
const FLAT: f64 = 0.02;

/// The sentences.
pub(super) fn describe_results(e: &Experiment) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(describe_throughput(e));
    sentences.extend(describe_latency(e));
    sentences.extend(mixture(e));
    sentences.extend(describe_memory(e));
    sentences.extend(kv(e));
    sentences.extend(describe_incomplete_levels(e));
    sentences
}

/// A level that has a figure, and the figure.
type With<'a, T> = (&'a ExperimentLevel, T);

fn levels_with_figure<T>(
    e: &Experiment,
    pick: impl Fn(&ExperimentLevel) -> Option<T>,
) -> Vec<With<'_, T>> {
    e.completed_levels()
        .filter_map(|l| Some((l, pick(l)?)))
        .collect()
}

/// The first and the last of two or more.
fn ends<'a, T: Copy>(all: &[With<'a, T>]) -> Option<(With<'a, T>, With<'a, T>)> {
    (all.len() > 1)
        .then(|| (all.first().copied(), all.last().copied()))
        .and_then(|(a, b)| a.zip(b))
}

/// `with 8 at once`, `with 256 prompt tokens`, `in mixed`: where a figure was measured.
fn name_of_level(e: &Experiment, level: &ExperimentLevel) -> String {
    match e.kind {
        ExperimentKind::Concurrency => format!("at concurrency {}", level.name),
        ExperimentKind::Seqlen => format!("with {} prompt tokens", level.name),
        ExperimentKind::Mixed => format!("in `{}`", level.name),
    }
}

fn describe_throughput(e: &Experiment) -> Option<String> {
    let all = levels_with_figure(e, |l| l.total_tokens_per_s);
    let ((first, a), (last, b)) = ends(&all)?;
    let mut text = format!(
        "Total throughput: {a:.1} tok/s {}, {b:.1} tok/s {}",
        name_of_level(e, first),
        name_of_level(e, last)
    );
    if a > 0.0 {
        text.push_str(&format!(", {:.2} times as much", b / a));
        if e.kind == ExperimentKind::Concurrency && first.x > 0.0 {
            text.push_str(&format!(" for {:.1} times the requests", last.x / first.x));
        }
    }
    let best = all.iter().max_by(|x, y| x.1.total_cmp(&y.1))?;
    if best.0.name != last.name && best.0.name != first.name {
        text.push_str(&format!(
            "; the most is {:.1} tok/s {}",
            best.1,
            name_of_level(e, best.0)
        ));
    }
    Some(text + ".")
}

fn describe_latency(e: &Experiment) -> Option<String> {
    let all = levels_with_figure(e, |l| l.mean_latency_s);
    let ((first, a), (last, b)) = ends(&all)?;
    let mut text = format!(
        "Mean latency: {a:.3} s {}, {b:.3} s {}",
        name_of_level(e, first),
        name_of_level(e, last)
    );
    let ttft = levels_with_figure(e, |l| l.mean_ttft_s);
    if let Some(((f, a), (l, b))) = ends(&ttft) {
        if f.name == first.name && l.name == last.name {
            text.push_str(&format!("; time to first token {a:.3} s and {b:.3} s"));
        }
    }
    Some(text + ".")
}

/// What prompts of a length wait longer for in a mixture than among their like.
fn mixture(e: &Experiment) -> Vec<String> {
    if e.kind != ExperimentKind::Mixed {
        return Vec::new();
    }
    let mixed = e.completed_levels().find(|l| !l.by_prompt.is_empty());
    let lengths = mixed.iter().flat_map(|l| &l.by_prompt);
    lengths
        .filter_map(|length| {
            let alone = e.completed_levels().find(|l| {
                l.asked.short_prompts.is_none() && l.asked.prompt_tokens == length.prompt_tokens
            })?;
            Some(format!(
                "Prompts of {} tokens: mean latency {:.3} s among their like, {:.3} s in the mixture ({} of {} requests).",
                length.prompt_tokens,
                alone.mean_latency_s?,
                length.mean_latency_s?,
                length.successful,
                mixed?.successful?
            ))
        })
        .collect()
}

fn describe_memory(e: &Experiment) -> Option<String> {
    let all = levels_with_figure(e, |l| l.peak_bytes);
    let ((first, a), (last, b)) = ends(&all)?;
    let low = all.iter().map(|l| l.1).min()?;
    let high = all.iter().map(|l| l.1).max()?;
    let of = e.memory_of.as_deref().unwrap_or("memory");
    let range = high - low;
    let share = if high > 0 {
        range as f64 / high as f64
    } else {
        0.0
    };
    Some(if share < FLAT {
        format!(
            "Peak {of} is flat: between {:.3} and {:.3} GiB over all levels ({:.1} % apart).",
            to_gib(low),
            to_gib(high),
            share * 100.0
        )
    } else {
        format!(
            "Peak {of}: {:.3} GiB {}, {:.3} GiB {}; between {:.3} and {:.3} GiB over all levels.",
            to_gib(a),
            name_of_level(e, first),
            to_gib(b),
            name_of_level(e, last),
            to_gib(low),
            to_gib(high)
        )
    })
}

fn kv(e: &Experiment) -> Vec<String> {
    let mut sentences = Vec::new();
    let pools = levels_with_figure(e, |l| l.kv_pool_bytes);
    if let Some((_, pool)) = pools.first() {
        sentences.push(if pools.iter().all(|(_, p)| p == pool) { format!(
                "The engine reserved a KV pool of {:.3} GiB at its start, the same for every level: device memory includes the whole pool, used or not.",
                to_gib(*pool)
            ) } else { format!(
                "The engine's KV pool is not the same in all levels: {}.",
                list_level_bytes(e, &pools)
            ) });
    }
    let used = levels_with_figure(e, |l| l.kv_used_bytes);
    if used.is_empty() {
        let shares = levels_with_figure(e, |l| l.kv_used_share);
        if !shares.is_empty() {
            let one = |(l, share): &With<'_, f64>| {
                format!("{:.1} % {}", share * 100.0, name_of_level(e, l))
            };
            sentences.push(format!(
                "KV used, by the engine's own gauge, read about once a second: {} of its pool.",
                shares.iter().map(one).collect::<Vec<_>>().join(", ")
            ));
        }
    } else {
        let pool = pools.iter().map(|p| p.1).max().filter(|p| *p > 0);
        let most = used.iter().map(|u| u.1).max().unwrap_or(0);
        let share = pool.map(|pool| {
            format!(
                "; {:.1} % of the pool at most",
                most as f64 / pool as f64 * 100.0
            )
        });
        sentences.push(format!(
            "KV used, by the engine's own gauge, read about once a second: {}{}.",
            list_level_bytes(e, &used),
            share.unwrap_or_default()
        ));
    }
    sentences
}

/// `512.00 KiB with 1 at once, …`.
fn list_level_bytes(e: &Experiment, figures: &[With<'_, u64>]) -> String {
    let one =
        |(level, bytes): &With<'_, u64>| format!("{} {}", Bytes(*bytes), name_of_level(e, level));
    figures.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn describe_incomplete_levels(e: &Experiment) -> Vec<String> {
    let without = e.levels.iter().filter(|l| l.state != LevelState::Done);
    let mut sentences: Vec<String> = without
        .map(|l| {
            let why = l.message.as_deref().or(l.cause.as_deref());
            let why = why.map(|w| format!(": {w}")).unwrap_or_default();
            format!(
                "Level {} was {}{why}.",
                l.name,
                match l.state {
                    LevelState::Skipped => "skipped",
                    LevelState::NotRun => "not run",
                    _ => "tried and failed",
                }
            )
        })
        .collect();
    if e.interrupted {
        sentences.push("The experiment was stopped before its end.".to_owned());
    }
    sentences
}
