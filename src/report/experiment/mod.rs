//! An experiment: as a page, as tables for spreadsheets, as documents, and as charts.

mod charts;
mod tables;
#[cfg(test)]
mod tests;

pub use charts::experiment_charts;
pub use tables::{document_json, requests_csv, requests_json, summary_csv};

use super::layout::{Align, TextTable, grouped_count};
use super::page::TextPage;
use super::text::TextOptions;
use crate::experiment::{Experiment, ExperimentKind, ExperimentLevel, LevelState, RequestedLoad};
use crate::units::Bytes;

/// Shown where a figure is not known.
const NOT_MEASURED: &str = "not measured";

/// The page.
pub fn render_experiment(e: &Experiment, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    write_head(&mut page, e);
    page.write_title("Levels");
    page.write_table(&requests_table(e));
    page.write_title("Memory");
    page.write_table(&memory_table(e));
    if let Some(table) = lengths_table(e) {
        page.write_title("Prompts of the mixture, by length");
        page.write_table(&table);
    }
    page.write_asides("What it shows", &e.readings);
    page.write_asides("To know", &e.notes);
    page.write_asides("Not measured", &collect_reasons(e));
    page.into_text()
}

/// What is not known and why; figures that lack for one reason stand together.
fn collect_reasons(e: &Experiment) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (figure, why) in &e.not_measured {
        // The share is shown with the bytes.
        if figure == "kv_used_share" {
            continue;
        }
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, figures)) => figures.push(figure_label(figure)),
            None => reasons.push((why, vec![figure_label(figure)])),
        }
    }
    reasons
        .into_iter()
        .map(|(why, figures)| format!("{}: {why}", figures.join(", ")))
        .collect()
}

fn write_head(page: &mut TextPage, e: &Experiment) {
    let place = e.container.as_deref().or(e.image.as_deref());
    let mut title = format!("Experiment {}: {}", e.kind.as_str(), e.model);
    if let Some(place) = place {
        title.push_str(&format!(" in {place}"));
    }
    if e.simulated {
        title.push_str("  SIMULATED");
    }
    page.write_line(&title);
    let engine = match (&e.engine, &e.engine_version) {
        (Some(engine), Some(version)) => format!("{engine} {version}"),
        (Some(engine), None) => engine.clone(),
        _ => "engine not known".into(),
    };
    let memory = match (&e.memory_backend, &e.memory_of) {
        (Some(backend), Some(of)) => format!("{of} read by {backend}"),
        _ => "memory not measured".into(),
    };
    page.write_line(&format!("{engine}, {} bench, {memory}", e.bench));
    if let Some(load) = load_words(e) {
        page.write_line(&load);
    }
    if e.simulated {
        page.write_sentence(0, "An engine or a device only pretends: these figures say nothing of a real model or GPU.");
    }
}

/// What the levels have in common, and what a level is.
fn load_words(e: &Experiment) -> Option<String> {
    let RequestedLoad {
        concurrency,
        prompt_tokens,
        output_tokens,
        ..
    } = &e.levels.first()?.asked;
    let mixture = e
        .levels
        .iter()
        .find_map(|l| Some((l, l.asked.short_prompts?)));
    let at_once = match concurrency {
        1 => "1 request at once".to_owned(),
        n => format!("{n} requests at once"),
    };
    Some(match (e.kind, mixture) {
        (ExperimentKind::Concurrency, _) => format!(
            "in {prompt_tokens} out {output_tokens} tokens; a level is a number of requests at once"
        ),
        (ExperimentKind::Seqlen, _) => {
            format!("out {output_tokens} tokens, {at_once}; a level is a number of prompt tokens")
        }
        (ExperimentKind::Mixed, Some((level, short))) => format!(
            "out {output_tokens} tokens, {at_once}; prompts of {} tokens, of {}, and mixed with {} % short ones",
            short.input_len,
            level.asked.prompt_tokens,
            short.share * 100.0
        ),
        (ExperimentKind::Mixed, None) => format!("out {output_tokens} tokens, {at_once}"),
    })
}

fn requests_table(e: &Experiment) -> TextTable {
    let mut table = TextTable::new(&[
        ("level", Align::Right),
        ("total", Align::Right),
        ("successful", Align::Right),
        ("failed", Align::Right),
        ("error rate", Align::Right),
        ("latency mean, s", Align::Right),
        ("p95, s", Align::Right),
        ("tok/s each", Align::Right),
        ("tok/s total", Align::Right),
        ("TTFT mean, s", Align::Right),
        ("", Align::Left),
    ]);
    for level in &e.levels {
        let mut row = vec![level.name.clone()];
        if level.state != LevelState::Done && level.total.is_none() {
            row.push(describe_level_end(level));
            table.add_row(row);
            continue;
        }
        row.extend([
            format_figure(level.total, grouped_count),
            format_figure(level.successful, grouped_count),
            format_figure(level.failed, grouped_count),
            format_figure(level.error_rate, |r| format!("{:.1} %", r * 100.0)),
            format_figure(level.mean_latency_s, format_seconds),
            format_figure(level.p95_latency_s, format_seconds),
            format_figure(level.mean_tokens_per_s, |t| format!("{t:.1}")),
            format_figure(level.total_tokens_per_s, |t| format!("{t:.1}")),
            format_figure(level.mean_ttft_s, format_seconds),
        ]);
        if level.state != LevelState::Done {
            row.push(describe_level_end(level));
        }
        table.add_row(row);
    }
    table
}

fn memory_table(e: &Experiment) -> TextTable {
    let mut table = TextTable::new(&[
        ("level", Align::Right),
        ("peak", Align::Right),
        ("KV pool reserved", Align::Right),
        ("KV used", Align::Right),
        ("torch allocated", Align::Right),
        ("torch reserved", Align::Right),
    ]);
    for level in &e.levels {
        let mut row = vec![level.name.clone()];
        if level.state != LevelState::Done && level.peak_bytes.is_none() {
            row.push(describe_level_end(level));
            table.add_row(row);
            continue;
        }
        row.extend([
            format_figure(level.peak_bytes, format_size),
            format_figure(level.kv_pool_bytes, format_size),
            kv_used(level),
            format_figure(level.peak_alloc_bytes, format_size),
            format_figure(level.peak_reserved_bytes, format_size),
        ]);
        table.add_row(row);
    }
    table
}

fn lengths_table(e: &Experiment) -> Option<TextTable> {
    let level = e.levels.iter().find(|l| !l.by_prompt.is_empty())?;
    let mut table = TextTable::new(&[
        ("prompt tokens", Align::Right),
        ("successful", Align::Right),
        ("latency mean, s", Align::Right),
        ("TTFT mean, s", Align::Right),
    ]);
    for length in &level.by_prompt {
        table.add_row(vec![
            grouped_count(length.prompt_tokens.into()),
            grouped_count(length.successful),
            format_figure(length.mean_latency_s, format_seconds),
            format_figure(length.mean_ttft_s, format_seconds),
        ]);
    }
    Some(table)
}

/// `failed: oom`.
fn describe_level_end(level: &ExperimentLevel) -> String {
    match &level.cause {
        Some(cause) => format!("{}: {cause}", level.state.as_str()),
        None => level.state.as_str().into(),
    }
}

/// Bytes; where the size of the pool is not known, its share.
fn kv_used(level: &ExperimentLevel) -> String {
    match (level.kv_used_bytes, level.kv_used_share) {
        (None, Some(share)) => format!("{:.1} % of it", share * 100.0),
        (bytes, _) => format_figure(bytes, format_size),
    }
}

fn format_figure<T>(figure: Option<T>, write: impl Fn(T) -> String) -> String {
    figure.map_or_else(|| NOT_MEASURED.into(), write)
}

fn format_seconds(s: f64) -> String {
    format!("{s:.3}")
}

/// With the unit that suits it: a pool is GiB, what is used of it may be KiB.
fn format_size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// `9/16 completed, 0.412 s, 77.5 tok/s, peak 1.23 GiB, KV used not measured`: one level in a
/// line, as it ends.
pub fn level_line(figures: &LevelLine) -> String {
    let latency = format_figure(figures.mean_latency_s, |s| format!("latency {s:.3} s"));
    let speed = format_figure(figures.tokens_per_s, |t| format!("{t:.1} tok/s"));
    let bytes = |what: &str, bytes: Option<u64>| match bytes {
        Some(b) => format!("{what} {}", Bytes(b)),
        None => format!("{what} {NOT_MEASURED}"),
    };
    let completed = match figures.completed {
        Some(n) => format!("completed {n}/{}", figures.asked),
        None => format!("completed: {NOT_MEASURED}"),
    };
    let or = |text: String, what: &str| {
        if text == NOT_MEASURED {
            format!("{what} {NOT_MEASURED}")
        } else {
            text
        }
    };
    [
        completed,
        or(latency, "latency"),
        or(speed, "throughput"),
        bytes("peak", figures.peak_bytes),
        bytes("KV used", figures.kv_used_bytes),
    ]
    .join(", ")
}

/// Figures of the line that is printed as a level ends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LevelLine {
    /// Requests that were answered whole.
    pub completed: Option<u64>,
    /// Requests asked for.
    pub asked: u64,
    /// Mean latency, seconds.
    pub mean_latency_s: Option<f64>,
    /// Generated tokens per second of all requests together.
    pub tokens_per_s: Option<f64>,
    /// Peak of all devices, bytes.
    pub peak_bytes: Option<u64>,
    /// KV in use at most, bytes.
    pub kv_used_bytes: Option<u64>,
}

/// A figure's key in words.
fn figure_label(key: &str) -> &str {
    match key {
        "total" => "counts of requests",
        "mean_latency_s" => "mean latency",
        "p95_latency_s" => "95th percentile of the latency",
        "mean_tokens_per_s" => "throughput of each request",
        "total_tokens_per_s" => "total throughput",
        "mean_ttft_s" => "time to first token",
        "peak_bytes" => "peak memory",
        "kv_pool_bytes" => "KV pool",
        "kv_used_bytes" => "KV used",
        "peak_alloc_bytes" => "peak allocated",
        "peak_reserved_bytes" => "peak reserved",
        "requests" => "rows of requests",
        other => other,
    }
}
