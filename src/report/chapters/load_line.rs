//! Load lines: how much load an engine holds, predicted against measured, round by round.

use super::Sources;
use super::document::{flag_at, list_at, number_at, sentences_at, text_at};
use super::sweep::tables::{number_column, text_column};
use super::sweep::{capitalize_first, note_block};
use crate::engine::facts::Severity;
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{Chapter, ContentBlock, Grid, TableCell};
use crate::report::layout;
use crate::report::layout::counted_words;
use crate::report::material::{Material, StoredDocument};
use serde_json::Value;

/// Rounds that are read of one document.
const MOST: usize = 1000;

/// A figure of a round: path, key in CSV, words, unit, and what it is divided by.
type RoundFigure = (&'static str, &'static str, &'static str, &'static str, f64);

static FIGURES: [RoundFigure; 12] = [
    ("/seen/completed", "completed", "answered", "", 1.0),
    ("/seen/failed", "failed", "failed", "", 1.0),
    ("/seen/together", "together", "at once, seen", "", 1.0),
    (
        "/seen/running_most",
        "running_most",
        "running at most",
        "",
        1.0,
    ),
    ("/seen/preemptions", "preemptions", "preemptions", "", 1.0),
    ("/seen/queued_long", "queued_long", "queued long", "", 1.0),
    (
        "/seen/queue_mean_s",
        "queue_mean_s",
        "mean queueing",
        "s",
        1.0,
    ),
    (
        "/seen/kv_usage_most",
        "kv_used_percent",
        "KV pool used at most",
        "%",
        0.01,
    ),
    (
        "/seen/result/output_tokens_per_second",
        "tokens_per_second",
        "generated tokens",
        "tokens/s",
        1.0,
    ),
    (
        "/seen/result/mean_latency_ms",
        "mean_latency_ms",
        "mean latency",
        "ms",
        1.0,
    ),
    (
        "/seen/result/ttft_ms/mean",
        "ttft_mean_ms",
        "mean time to first token",
        "ms",
        1.0,
    ),
    (
        "/seen/result/tpot_ms/mean",
        "tpot_mean_ms",
        "mean time per further token",
        "ms",
        1.0,
    ),
];

/// Keys of what is drawn.
const DRAWN: [&str; 4] = [
    "tokens_per_second",
    "mean_latency_ms",
    "ttft_mean_ms",
    "kv_used_percent",
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
    if flag_at(document, "/simulated") {
        let words = "the engine or a device of this load line only pretends";
        blocks.push(note_block(Severity::Warning, "simulated", words.into()));
    }
    blocks.extend(
        sentences_at(document, "/advice")
            .into_iter()
            .map(ContentBlock::Text),
    );
    for path in ["/notes", "/prediction/notes"] {
        let told = sentences_at(document, path).into_iter();
        blocks.extend(told.map(|n| note_block(Severity::Info, "told_by_the_load_line", n)));
    }
    blocks.extend(limits_table(document, &id).map(ContentBlock::Table));
    let drawn = FIGURES.iter().filter(|f| DRAWN.contains(&f.1));
    blocks.extend(
        drawn
            .filter_map(|f| round_curves(document, &rounds, f, &id))
            .map(ContentBlock::Chart),
    );
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
    }
}

fn of_what(document: &Value) -> String {
    let word = |path: &str| text_at(document, path);
    let mut said = format!(
        "{} on {}",
        word("/model").unwrap_or_else(|| "an unknown model".into()),
        word("/engine").unwrap_or_else(|| "an unknown engine".into())
    );
    if let Some(version) = word("/engine_version") {
        said.push_str(&format!(" {version}"));
    }
    let tokens = |path: &str| number_at(document, path).map(|n| format!("{n:.0}"));
    if let Some((input, output)) = tokens("/lengths/input").zip(tokens("/lengths/output")) {
        said.push_str(&format!(", requests of {input} tokens in and {output} out"));
    }
    if let Some(began) = word("/timestamp") {
        said.push_str(&format!("; begun {began}"));
    }
    said.push('.');
    said
}

/// Predicted against measured in sentences.
fn describe_load_line(document: &Value) -> String {
    let count = |path: &str| number_at(document, path).filter(|n| *n >= 0.0);
    let resource = |path: &str| text_at(document, path).map(|r| words_of(&r));
    let behind = |what: Option<String>| what.map_or(String::new(), |r| format!(" ({r} runs out)"));
    let mut said = match count("/prediction/concurrency") {
        Some(n) => format!(
            "Predicted: {}{}.",
            counted_words(n as usize, "request in flight", "requests in flight"),
            behind(resource("/prediction/resource"))
        ),
        None => "No line was predicted.".to_owned(),
    };
    match (count("/measured/concurrency"), count("/measured/fails_at")) {
        (None, Some(fails)) => said.push_str(&format!(
            " Measured: it did not hold {fails:.0}, and fewer were not tried."
        )),
        (None, None) => said.push_str(" None was measured."),
        (Some(holds), None) => said.push_str(&format!(
            " Measured: it held {holds:.0}, the most that was tried; the line is not reached."
        )),
        (Some(holds), Some(fails)) => {
            said.push_str(&format!(
                " Measured: it held {holds:.0} and did not hold {fails:.0}{}.",
                behind(resource("/measured/limiting"))
            ));
            if !flag_at(document, "/measured/closed") {
                said.push_str(" The line lies somewhere between.");
            }
        }
    }
    if let Some(percent) = number_at(document, "/difference_percent") {
        let side = if percent < 0.0 { "below" } else { "above" };
        said.push_str(&if percent == 0.0 {
            " The measured line is as predicted.".to_owned()
        } else {
            format!(
                " The measured line is {:.1} % {side} the predicted one.",
                percent.abs()
            )
        });
    }
    said
}

fn words_of(word: &str) -> String {
    match word {
        "kv_pool" => "KV pool".into(),
        "sequences" => "sequences of the scheduler".into(),
        "batch_tokens" => "tokens of a batch".into(),
        word => word.replace('_', " "),
    }
}

fn limits_table(document: &Value, id: &str) -> Option<Grid> {
    let rows = list_at(document, "/prediction/limits", MOST).map(|limit| {
        let word = |path: &str| TableCell::text_cell(text_at(limit, path).unwrap_or_default());
        vec![
            TableCell::text_cell(words_of(&text_at(limit, "/resource").unwrap_or_default())),
            figure_cell(number_at(limit, "/concurrency"), ""),
            word("/formula"),
            word("/source"),
        ]
    });
    let rows: Vec<Vec<TableCell>> = rows.collect();
    (!rows.is_empty()).then(|| Grid {
        id: format!("{id}_limits"),
        caption: "Limits that are predicted, the least first".into(),
        columns: vec![
            text_column("what runs out", "resource"),
            number_column("requests in flight", "concurrency"),
            text_column("formula", "formula"),
            text_column("from", "source"),
        ],
        rows,
    })
}

fn figure_cell(value: Option<f64>, unit: &str) -> TableCell {
    match value {
        Some(value) if unit.is_empty() && value.fract() == 0.0 && value.abs() < 1e15 => {
            TableCell::number_cell(value, layout::unsigned_zero(format!("{value:.0}")))
        }
        Some(value) => TableCell::number_cell(value, layout::format_figure(value)),
        None => TableCell::missing_cell("nobody told"),
    }
}

fn round_value(round: &Value, figure: &RoundFigure) -> Option<f64> {
    number_at(round, figure.0).map(|v| v / figure.4)
}

/// Rounds that held and rounds that did not, and the predicted line.
fn round_curves(
    document: &Value,
    rounds: &[&Value],
    figure: &RoundFigure,
    id: &str,
) -> Option<Chart> {
    let (_, key, title, unit, _) = *figure;
    let dots = |held: bool| -> Vec<Dot> {
        let mut dots: Vec<Dot> = rounds
            .iter()
            .filter(|r| flag_at(r, "/held") == held)
            .filter_map(|r| {
                Some(Dot {
                    x: number_at(r, "/concurrency")?,
                    y: round_value(r, figure)?,
                    range: None,
                    label: number_at(r, "/number").map(|n| format!("round {n:.0}")),
                })
            })
            .collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        dots
    };
    let (held, failed) = (dots(true), dots(false));
    let highest = held.iter().chain(&failed).map(|d| d.y).reduce(f64::max)?;
    let curve = |label: &str, points: Vec<Dot>, joined| Curve {
        label: label.into(),
        points,
        joined,
    };
    let mut curves = vec![
        curve("held", held, true),
        curve("did not hold", failed, false),
    ];
    if let Some(x) = number_at(document, "/prediction/concurrency") {
        let ends = [0.0, highest].map(|y| Dot {
            x,
            y,
            ..Dot::default()
        });
        curves.push(curve("predicted line", ends.to_vec(), true));
    }
    curves.retain(|c| !c.points.is_empty());
    Some(Chart {
        id: format!("{id}_{key}"),
        title: format!("{} over requests in flight", capitalize_first(title)),
        note: None,
        simulated: flag_at(document, "/simulated"),
        plot: Plot::Curves(Curves {
            x: ChartAxis {
                title: "requests in flight".into(),
                unit: String::new(),
                scale: Scale::FromZero,
            },
            y: ChartAxis {
                title: title.into(),
                unit: unit.into(),
                scale: Scale::FromZero,
            },
            curves,
            levels: Vec::new(),
            x_names: Vec::new(),
        }),
    })
}

fn rounds_table(rounds: &[&Value], id: &str) -> Grid {
    let figures: Vec<&RoundFigure> = FIGURES
        .iter()
        .filter(|f| rounds.iter().any(|r| round_value(r, f).is_some()))
        .collect();
    let mut columns = vec![
        number_column("round", "round"),
        number_column("requests in flight", "concurrency"),
        number_column("requests", "requests"),
        text_column("held", "held"),
        text_column("why not", "faults"),
        text_column("ran out", "ran_out"),
    ];
    columns.extend(figures.iter().map(|(_, key, title, unit, _)| match *unit {
        "" => number_column(*title, key),
        unit => number_column(format!("{title}, {unit}"), key),
    }));
    columns.push(text_column("profile", "profile"));
    let row = |round: &&Value| {
        let faults: Vec<String> = list_at(round, "/faults", 10).map(fault).collect();
        let mut row = vec![
            figure_cell(number_at(round, "/number"), ""),
            figure_cell(number_at(round, "/concurrency"), ""),
            figure_cell(number_at(round, "/requests"), ""),
            TableCell::text_cell(if flag_at(round, "/held") { "yes" } else { "no" }),
            TableCell::text_cell(faults.join("; ")),
            TableCell::text_cell(
                text_at(round, "/ran_out")
                    .map(|r| words_of(&r))
                    .unwrap_or_default(),
            ),
        ];
        row.extend(
            figures
                .iter()
                .map(|f| figure_cell(round_value(round, f), f.3)),
        );
        row.push(TableCell::text_cell(
            text_at(round, "/profile").unwrap_or_default(),
        ));
        row
    };
    Grid {
        id: format!("{id}_rounds"),
        caption: "Every round".into(),
        columns,
        rows: rounds.iter().map(row).collect(),
    }
}

/// Why a round did not hold, in words.
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
