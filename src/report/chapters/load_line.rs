//! Load lines: how much load an engine holds, predicted against measured, round by round.

mod charts;

use super::Sources;
use super::document::{flag_at, list_at, number_at, sentences_at, text_at};
use crate::engine::facts::Severity;
use crate::report::content::{
    Chapter, ContentBlock, Grid, TableCell, note_block, number_column, text_column,
};
use crate::report::figures::cell_by;
use crate::report::layout::counted_words;
use crate::report::material::{Material, StoredDocument};
use crate::report::tables::format_in_unit;
use serde_json::Value;

/// Rounds that are read of one document.
const MOST: usize = 1000;

/// A figure of a round: path, key in CSV, words, unit, and what it is divided by.
type RoundFigure = (&'static str, &'static str, &'static str, &'static str, f64);

/// What decides first: a terminal may have no room for the rest.
#[rustfmt::skip]
static FIGURES: [RoundFigure; 14] = [
    ("/seen/result/output_tokens_per_second", "tokens_per_second", "generated tokens", "tokens/s", 1.0),
    ("/seen/result/ttft_ms/p95", "ttft_p95_ms", "TTFT p95", "ms", 1.0),
    ("/seen/result/itl_ms/p95", "itl_p95_ms", "ITL p95", "ms", 1.0),
    ("/seen/kv_usage_most", "kv_used_percent", "KV used", "%", 0.01),
    ("/seen/queue_mean_s", "queue_mean_s", "mean queueing", "s", 1.0),
    ("/seen/preemptions", "preemptions", "preemptions", "", 1.0),
    ("/seen/queued_long", "queued_long", "queued long", "", 1.0),
    ("/seen/together", "together", "at once, seen", "", 1.0),
    ("/seen/running_most", "running_most", "running at most", "", 1.0),
    ("/seen/completed", "completed", "answered", "", 1.0),
    ("/seen/failed", "failed", "failed", "", 1.0),
    ("/seen/result/mean_latency_ms", "mean_latency_ms", "mean latency", "ms", 1.0),
    ("/seen/result/ttft_ms/mean", "ttft_mean_ms", "mean TTFT", "ms", 1.0),
    ("/seen/result/tpot_ms/mean", "tpot_mean_ms", "mean TPOT", "ms", 1.0),
];

/// A chapter for each load line.
pub(super) fn write_load_line_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let several = material.load_lines.len() > 1;
    let each = material.load_lines.iter().enumerate();
    each.map(|(i, stored)| {
        let id = if several {
            format!("load_line{}", i + 1)
        } else {
            "load_line".to_owned()
        };
        chapter(stored, id, several)
    })
    .collect()
}

fn chapter(stored: &StoredDocument, id: String, several: bool) -> Chapter {
    let document = &stored.document;
    let rounds: Vec<&Value> = list_at(document, "/rounds", MOST)
        .filter(|r| r.is_object())
        .collect();
    let mut blocks = vec![
        ContentBlock::Text(of_what(document)),
        ContentBlock::Text(describe_load_line(document)),
    ];
    let objective = |o: &Value| {
        let (metric, statistic) = (text_at(o, "/metric")?, text_at(o, "/statistic")?);
        let limit = number_at(o, "/limit_ms")?;
        Some(format!("{metric} {statistic} {limit} ms"))
    };
    let objectives = list_at(document, "/objectives", MOST).filter_map(objective);
    let objectives: Vec<String> = objectives.collect();
    if !objectives.is_empty() {
        let text = format!(
            "Limits on latency: {}; latency is measured and not predicted.",
            objectives.join(", ")
        );
        blocks.push(ContentBlock::Text(text));
    }
    let end = text_at(document, "/outcome").filter(|end| end != "completed");
    blocks.extend(end.map(|end| {
        let text = format!(
            "{end}: only the rounds before it count",
            end = end.replace('_', " ")
        );
        note_block(Severity::Warning, "not_whole", text)
    }));
    for path in ["/notes", "/prediction/notes"] {
        let notes = sentences_at(document, path).into_iter();
        blocks.extend(notes.map(|n| note_block(Severity::Info, "load_line_note", n)));
    }
    blocks.extend(limits_table(document, &id).map(ContentBlock::Table));
    let spread = number_at(document, "/prediction/out_of_step").filter(|n| *n >= 0.0);
    blocks.extend(spread.map(|n| {
        ContentBlock::Text(format!(
            "KV pool under mixed traffic, where requests are half through their output: {n:.0} in flight."
        ))
    }));
    let drawn = charts::load_line_charts(document, &rounds, &id).into_iter();
    blocks.extend(drawn.map(ContentBlock::Chart));
    if !rounds.is_empty() {
        blocks.push(ContentBlock::Table(rounds_table(&rounds, &id)));
    }
    Chapter {
        title: if several {
            format!("Load line: {}", stored.name)
        } else {
            "The load line".into()
        },
        id,
        blocks,
        ..Chapter::default()
    }
}

fn of_what(document: &Value) -> String {
    let word = |path: &str| text_at(document, path);
    let mut text = format!(
        "{} on {}",
        word("/model").unwrap_or_else(|| "an unknown model".into()),
        word("/engine").unwrap_or_else(|| "an unknown engine".into())
    );
    if let Some(version) = word("/engine_version") {
        text.push_str(&format!(" {version}"));
    }
    let tokens = |path: &str| number_at(document, path).map(|n| format!("{n:.0}"));
    if let Some((input, output)) = tokens("/lengths/input").zip(tokens("/lengths/output")) {
        text.push_str(&format!(
            ", requests of {input} prompt and {output} generated tokens"
        ));
    }
    if let Some(began) = word("/timestamp") {
        text.push_str(&format!("; begun {began}"));
    }
    text.push('.');
    text
}

/// Predicted against measured in sentences.
fn describe_load_line(document: &Value) -> String {
    let count = |path: &str| number_at(document, path).filter(|n| *n >= 0.0);
    let resource = |path: &str| text_at(document, path).map(|r| resource_words(&r));
    let behind = |what: Option<String>| what.map_or(String::new(), |r| format!(", limited by {r}"));
    let mut text = match count("/prediction/concurrency") {
        Some(n) => format!(
            "Predicted: {}{}.",
            counted_words(n as usize, "request in flight", "requests in flight"),
            behind(resource("/prediction/resource"))
        ),
        None => "No load line was predicted.".to_owned(),
    };
    match (count("/measured/concurrency"), count("/measured/fails_at")) {
        (None, Some(fails)) => text.push_str(&format!(
            " Measured: failed at {fails:.0}; fewer were not tried."
        )),
        (None, None) => text.push_str(" No load line was measured."),
        (Some(holds), None) => text.push_str(&format!(
            " Measured: sustained {holds:.0}, the most that was tried; no limit was reached."
        )),
        (Some(holds), Some(fails)) => {
            text.push_str(&format!(
                " Measured: sustained {holds:.0}, failed at {fails:.0}{}.",
                behind(resource("/measured/limiting"))
            ));
            if !flag_at(document, "/measured/closed") {
                text.push_str(" The load line is between the two.");
            }
        }
    }
    if let Some(percent) = number_at(document, "/difference_percent") {
        let side = if percent < 0.0 { "below" } else { "above" };
        text.push_str(&if percent == 0.0 {
            " The measured load line is as predicted.".to_owned()
        } else {
            format!(
                " The measured load line is {:.1} % {side} the predicted one.",
                percent.abs()
            )
        });
    }
    text
}

pub(super) fn resource_words(word: &str) -> String {
    match word {
        "kv_pool" => "KV pool".into(),
        "sequences" => "scheduler sequences".into(),
        "batch_tokens" => "tokens per batch".into(),
        word => word.replace('_', " "),
    }
}

fn limits_table(document: &Value, id: &str) -> Option<Grid> {
    let rows = list_at(document, "/prediction/limits", MOST).map(|limit| {
        let word = |path: &str| TableCell::text_cell(text_at(limit, path).unwrap_or_default());
        vec![
            TableCell::text_cell(resource_words(
                &text_at(limit, "/resource").unwrap_or_default(),
            )),
            figure_cell(number_at(limit, "/concurrency"), ""),
            word("/formula"),
            word("/source"),
        ]
    });
    let rows: Vec<Vec<TableCell>> = rows.collect();
    (!rows.is_empty()).then(|| Grid {
        id: format!("{id}_limits"),
        caption: "Predicted limits, lowest first".into(),
        columns: vec![
            text_column("limited by", "resource"),
            number_column("requests in flight", "concurrency"),
            text_column("formula", "formula"),
            text_column("from", "source"),
        ],
        rows,
    })
}

fn figure_cell(value: Option<f64>, unit: &str) -> TableCell {
    cell_by(value, "not reported", |v| format_in_unit(v, unit))
}

fn round_value(round: &Value, figure: &RoundFigure) -> Option<f64> {
    number_at(round, figure.0).map(|v| v / figure.4)
}

fn rounds_table(rounds: &[&Value], id: &str) -> Grid {
    let figures: Vec<&RoundFigure> = FIGURES
        .iter()
        .filter(|f| rounds.iter().any(|r| round_value(r, f).is_some()))
        .collect();
    let mut columns = vec![
        number_column("round", "round"),
        number_column("requests in flight", "concurrency"),
        text_column("sustained", "held"),
    ];
    columns.extend(figures.iter().map(|(_, key, title, unit, _)| match *unit {
        "" => number_column(*title, key),
        unit => number_column(format!("{title}, {unit}"), key),
    }));
    columns.extend([
        text_column("why not", "faults"),
        text_column("ran out", "ran_out"),
        number_column("requests", "requests"),
        text_column("profile", "profile"),
    ]);
    let row = |round: &&Value| {
        let faults: Vec<String> = list_at(round, "/faults", 10).map(fault).collect();
        let mut row = vec![
            figure_cell(number_at(round, "/number"), ""),
            figure_cell(number_at(round, "/concurrency"), ""),
            TableCell::text_cell(if flag_at(round, "/held") { "yes" } else { "no" }),
        ];
        row.extend(
            figures
                .iter()
                .map(|f| figure_cell(round_value(round, f), f.3)),
        );
        let ran_out = text_at(round, "/ran_out").map(|r| resource_words(&r));
        row.extend([
            TableCell::text_cell(faults.join("; ")),
            TableCell::text_cell(ran_out.unwrap_or_default()),
            figure_cell(number_at(round, "/requests"), ""),
            TableCell::text_cell(text_at(round, "/profile").unwrap_or_default()),
        ]);
        row
    };
    Grid {
        id: format!("{id}_rounds"),
        caption: "Every round".into(),
        columns,
        rows: rounds.iter().map(row).collect(),
    }
}

/// Why a round was not sustained, in words.
fn fault(fault: &Value) -> String {
    let n = |path: &str| number_at(fault, path).map(|n| n as usize);
    match text_at(fault, "/kind").as_deref() {
        Some("errors") => {
            let first = text_at(fault, "/first").map_or(String::new(), |f| format!(" ({f})"));
            format!("{} failed{first}", n("/failed").unwrap_or(0))
        }
        Some("preemption") => counted_words(n("/count").unwrap_or(0), "preemption", "preemptions"),
        Some("queueing") => match (n("/together"), n("/of"), n("/queued_long")) {
            (Some(together), Some(of), _) if together < of => {
                format!("queueing: {together} of {of} at once")
            }
            (_, _, Some(long)) if long > 0 => format!("queueing: {long} waited long"),
            _ => "queueing".into(),
        },
        Some("latency") => {
            let metric = text_at(fault, "/metric").unwrap_or_else(|| "latency".into());
            let statistic = text_at(fault, "/statistic").unwrap_or_default();
            match number_at(fault, "/measured_ms").zip(number_at(fault, "/limit_ms")) {
                Some((measured, limit)) => {
                    format!("{metric} {statistic} {measured:.1} ms, over {limit} ms")
                }
                None => format!("{metric} {statistic} not measured"),
            }
        }
        Some(other) => other.replace('_', " "),
        None => "of an unknown kind".into(),
    }
}
