//! Load lines: how much load an engine holds, predicted against measured, round by round.

mod charts;

use super::Sources;
use super::document::{list_at, read_document};
use super::words::{describe_begin, engine_words};
use crate::engine::facts::Severity;
use crate::engine::limits::Resource;
use crate::loadline::{Loadline, LoadlineRound, Objectives, RoundFailure};
use crate::report::content::{Chapter, ContentBlock, Grid, TableCell, note_block};
use crate::report::layout::counted_noun;
use crate::report::material::{Material, StoredDocument};
use crate::report::tables::{ItemFigure, TableBuilder, format_in_unit};
use serde::Deserialize;
use serde_json::Value;

/// Rounds that are read of one document.
const MOST: usize = 1000;

/// What decides first: a terminal may have no room for the rest.
#[rustfmt::skip]
static FIGURES: [ItemFigure<LoadlineRound>; 14] = [
    ItemFigure::new("tokens_per_second", "generated tokens", "tokens/s", |r| r.seen.result.output_tokens_per_second),
    ItemFigure::new("ttft_p95_ms", "TTFT p95", "ms", |r| r.seen.result.ttft_ms.get("p95").copied()),
    ItemFigure::new("itl_p95_ms", "ITL p95", "ms", |r| r.seen.result.itl_ms.get("p95").copied()),
    ItemFigure::new("kv_used_percent", "KV used", "%", |r| r.seen.kv_usage_most.map(|u| u * 100.0)),
    ItemFigure::new("queue_mean_s", "mean queueing", "s", |r| r.seen.queue_mean_s),
    ItemFigure::new("preemptions", "preemptions", "", |r| r.seen.preemptions.map(|n| n as f64)),
    ItemFigure::new("queued_long", "queued long", "", |r| r.seen.queued_long.map(|n| n as f64)),
    ItemFigure::new("together", "concurrent, seen", "", |r| r.seen.together.map(|n| n as f64)),
    ItemFigure::new("running_most", "running at most", "", |r| r.seen.running_most.map(|n| n as f64)),
    ItemFigure::new("completed", "answered", "", |r| Some(r.seen.completed as f64)),
    ItemFigure::new("failed", "failed", "", |r| Some(r.seen.failed as f64)),
    ItemFigure::new("mean_latency_ms", "mean latency", "ms", |r| r.seen.result.mean_latency_ms),
    ItemFigure::new("ttft_mean_ms", "mean TTFT", "ms", |r| r.seen.result.ttft_ms.get("mean").copied()),
    ItemFigure::new("tpot_mean_ms", "mean TPOT", "ms", |r| r.seen.result.tpot_ms.get("mean").copied()),
];

/// A load line as far as its document can be read.
pub(super) fn read_load_line(document: &Value) -> Loadline {
    let rounds = list_at(document, "/rounds", MOST).filter(|r| r.is_object());
    let objectives = list_at(document, "/objectives", MOST);
    Loadline {
        rounds: rounds.map(read_document).collect(),
        objectives: Objectives(
            (objectives.filter_map(|o| Deserialize::deserialize(o).ok())).collect(),
        ),
        ..read_document(document)
    }
}

/// A chapter for each load line.
pub(super) fn write_load_line_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let lines = &material.load_lines;
    super::document_chapters(lines, "load_line", "load line", load_line_blocks)
}

fn load_line_blocks(stored: &StoredDocument, id: &str) -> Vec<ContentBlock> {
    let line = &read_load_line(&stored.document);
    let mut blocks = vec![of_what(line).into(), describe_load_line(line).into()];
    let objectives = line.objectives.0.iter();
    let objectives: Vec<String> = objectives
        .map(|o| format!("{} {} {} ms", o.metric.as_str(), o.statistic, o.limit_ms))
        .collect();
    if !objectives.is_empty() {
        let all = objectives.join(", ");
        let text = format!("Limits on latency: {all}; latency is measured and not predicted.");
        blocks.push(text.into());
    }
    blocks.extend(line.outcome.describe().map(|end| {
        let text = format!("{end}: only the rounds before it count");
        note_block(Severity::Warning, "not_whole", text)
    }));
    let notes = line.notes.iter().chain(&line.prediction.notes).cloned();
    blocks.extend(notes.map(|n| note_block(Severity::Info, "load_line_note", n)));
    blocks.extend(limits_table(line, id).map(ContentBlock::Table));
    blocks.extend(line.prediction.out_of_step.map(|n| {
        format!(
            "KV pool under mixed traffic, where requests are half through their output: {n} in flight."
        )
        .into()
    }));
    let drawn = charts::load_line_charts(line, id).into_iter();
    blocks.extend(drawn.map(ContentBlock::Chart));
    if !line.rounds.is_empty() {
        blocks.push(ContentBlock::Table(rounds_table(line, id)));
    }
    blocks
}

fn of_what(line: &Loadline) -> String {
    let engine = engine_words(&line.engine, line.engine_version.as_deref());
    let (input, output) = (line.lengths.input, line.lengths.output);
    let lengths = (line.lengths.total_tokens() > 0)
        .then(|| format!(", requests of {input} prompt and {output} generated tokens"));
    let model = line.model.as_deref().unwrap_or("an unknown model");
    let began = describe_begin(&line.timestamp);
    let rest: String = lengths.into_iter().chain(began).collect();
    format!("{model} on {engine}{rest}.")
}

/// Predicted against measured in sentences.
fn describe_load_line(line: &Loadline) -> String {
    let behind =
        |what: Option<Resource>| what.map_or(String::new(), |r| format!(", limited by {r}"));
    let predicted = &line.prediction;
    let predicted = match predicted.concurrency {
        Some(n) => {
            let (n, limit) = (
                counted_noun(n as usize, "request"),
                behind(predicted.resource),
            );
            format!("Predicted: {n} in flight{limit}.")
        }
        None => "No load line was predicted.".to_owned(),
    };
    let measured = line.measured.clone().unwrap_or_default();
    let found = match (measured.concurrency, measured.fails_at) {
        (None, Some(fails)) => format!("Measured: failed at {fails}; fewer were not tried."),
        (None, None) => "No load line was measured.".to_owned(),
        (Some(holds), None) => {
            format!("Measured: sustained {holds}, the most that was tried; no limit was reached.")
        }
        (Some(holds), Some(fails)) => {
            let limit = behind(measured.limiting);
            let between = if measured.closed {
                ""
            } else {
                " The load line is between the two."
            };
            format!("Measured: sustained {holds}, failed at {fails}{limit}.{between}")
        }
    };
    let difference = line.difference_percent.map(|percent| {
        let side = if percent < 0.0 { "below" } else { "above" };
        match percent.abs() {
            0.0 => " The measured load line is as predicted.".to_owned(),
            by => format!(" The measured load line is {by:.1} % {side} the predicted one."),
        }
    });
    format!("{predicted} {found}{}", difference.unwrap_or_default())
}

fn limits_table(line: &Loadline, id: &str) -> Option<Grid> {
    TableBuilder::of_items(&line.prediction.limits)
        .words("limited by", "resource", |l| l.resource.label())
        .counts("requests in flight", "concurrency", |l| {
            l.concurrency as usize
        })
        .words("formula", "formula", |l| &l.formula)
        .words("from", "source", |l| &l.source)
        .grid_of_rows(format!("{id}_limits"), "Predicted limits, lowest first")
}

fn rounds_table(line: &Loadline, id: &str) -> Grid {
    let count = |n: u32| TableCell::number_cell(n.into(), format_in_unit(n.into(), ""));
    let mut table = TableBuilder::of_items(&line.rounds)
        .figures("round", "round", |r| count(r.number))
        .figures("requests in flight", "concurrency", |r| {
            count(r.concurrency)
        })
        .words("sustained", "held", |r| if r.held { "yes" } else { "no" });
    for f in &FIGURES {
        if line.rounds.iter().any(|r| f.value_of(r).is_some()) {
            let cell = |r| f.table_cell(f.value_of(r), "not reported");
            table = table.column(f.table_column(), cell);
        }
    }
    let faults = |r: &LoadlineRound| {
        let each = r.faults.iter().map(RoundFailure::describe_fault);
        each.collect::<Vec<String>>().join("; ")
    };
    table
        .words("why not", "faults", faults)
        .words("ran out", "ran_out", |r| {
            r.ran_out.map_or("", Resource::label)
        })
        .figures("requests", "requests", |r| count(r.requests))
        .words("profile", "profile", |r| &r.profile)
        .grid(format!("{id}_rounds"), "Every round")
}
