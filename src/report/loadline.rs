//! A load line as a page: predicted against measured, the rounds, and the setting to change.

use super::layout::{Align, TextTable, format_figure, grouped_count};
use super::page::TextPage;
use super::text::TextOptions;
use crate::capture::RunEnd;
use crate::loadline::{Loadline, LoadlineRound, MeasuredLine, Objective};
use std::collections::BTreeMap;

/// The page.
pub fn render_loadline(line: &Loadline, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    write_head(&mut page, line);
    write_answer(&mut page, line);
    write_limits(&mut page, line);
    rounds(&mut page, line);
    page.write_asides("Setting to change", &line.advice);
    let notes: Vec<String> = (line.prediction.notes.iter().chain(&line.notes))
        .cloned()
        .collect();
    page.write_asides("Notes", &notes);
    page.into_text()
}

fn write_head(page: &mut TextPage, line: &Loadline) {
    let mut title = format!("Load line of {}", line.container);
    if line.simulated {
        title.push_str("  SIMULATED");
    }
    page.write_line(&title);
    page.write_line(&format!(
        "{} {}, {}, {} prompt and {} output tokens a request",
        line.engine,
        line.engine_version.as_deref().unwrap_or("—"),
        line.model.as_deref().unwrap_or("model —"),
        grouped_count(line.lengths.input),
        grouped_count(line.lengths.output)
    ));
    if !line.objectives.0.is_empty() {
        let all: Vec<String> = line.objectives.0.iter().map(Objective::to_string).collect();
        page.write_line(&format!("limits on latency: {}", all.join(", ")));
    }
    match &line.outcome {
        RunEnd::Completed => {}
        RunEnd::Interrupted => page.write_line("interrupted: only the rounds before it count"),
        _ => page.write_line("ended before its end: only the rounds before it count"),
    }
}

fn write_answer(page: &mut TextPage, line: &Loadline) {
    page.write_line("");
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("in flight", Align::Right),
        ("", Align::Left),
    ]);
    let predicted = match line.prediction.concurrency {
        Some(n) => grouped_count(n),
        None => "—".into(),
    };
    let by = |resource: Option<crate::loadline::Resource>| {
        resource.map_or_else(String::new, |r| format!("limited by: {}", r.label()))
    };
    table.add_row(vec![
        "predicted".into(),
        predicted,
        by(line.prediction.resource),
    ]);
    if let Some(m) = &line.measured {
        table.add_row(vec!["measured".into(), describe_holds(m), by(m.limiting)]);
        table.add_row(vec!["".into(), "".into(), bracket(m, line)]);
    }
    if let Some(percent) = line.difference_percent {
        table.add_row(vec![
            "difference".into(),
            super::figures::format_percent(Some(percent)) + " %",
            String::new(),
        ]);
    }
    page.write_table(&table);
    if !line.objectives.0.is_empty() {
        page.write_aside("latency is not predicted, only measured: the prediction is of preemption and queueing alone");
    }
}

fn describe_holds(m: &MeasuredLine) -> String {
    match (m.concurrency, m.fails_at) {
        (Some(n), None) => format!(">= {}", grouped_count(n.into())),
        (Some(n), Some(f)) if !m.closed && f > n + 1 => {
            format!(
                "{} to {}",
                grouped_count(n.into()),
                grouped_count(u64::from(f) - 1)
            )
        }
        (Some(n), Some(_)) => grouped_count(n.into()),
        (None, Some(f)) => format!("< {}", grouped_count(f.into())),
        (None, None) => "not measured".into(),
    }
}

/// How sure the measured line is.
fn bracket(m: &MeasuredLine, line: &Loadline) -> String {
    match m.fails_at {
        None if m.concurrency >= Some(line.max_concurrency) => {
            "every round held, up to --max-concurrency".into()
        }
        None => "every round held: the line is above".into(),
        Some(f) if m.concurrency.is_none_or(|n| n == 0) => format!("no round held, down to {f}"),
        Some(f) if m.closed => format!("{f} did not hold"),
        Some(f) if line.outcome == RunEnd::Completed => {
            format!("{f} did not hold; the rounds were used up between the two")
        }
        Some(f) => format!("{f} did not hold; the search ended between the two"),
    }
}

fn write_limits(page: &mut TextPage, line: &Loadline) {
    if line.prediction.limits.is_empty() {
        return;
    }
    page.write_title("Limits by calculation");
    for limit in &line.prediction.limits {
        page.write_aside(&format!(
            "{}, {}: {} ({})",
            grouped_count(limit.concurrency),
            limit.resource.label(),
            limit.formula,
            limit.source
        ));
    }
    if let Some(n) = line.prediction.out_of_step {
        page.write_aside(&format!(
            "{}, KV pool, where requests are out of step, each half through its output: reached under mixed traffic, not where many start together",
            grouped_count(n)
        ));
    }
}

fn rounds(page: &mut TextPage, line: &Loadline) {
    if line.rounds.is_empty() {
        return;
    }
    page.write_title(&format!(
        "Rounds ({} requests for each in flight)",
        line.waves
    ));
    let mut table = TextTable::new(&[
        ("", Align::Right),
        ("in flight", Align::Right),
        ("held", Align::Left),
        ("preempted", Align::Right),
        ("queue, s", Align::Right),
        ("KV used", Align::Right),
        ("TTFT p95", Align::Right),
        ("ITL p95", Align::Right),
        ("tokens/s", Align::Right),
        ("", Align::Left),
    ]);
    for round in &line.rounds {
        table.add_row(round_cells(round));
    }
    page.write_table(&table);
    page.write_aside("queue: mean waiting in the engine; KV used: highest of all readings; latency in ms, by the client");
}

fn round_cells(round: &LoadlineRound) -> Vec<String> {
    let seen = &round.seen;
    let dash = || "—".to_owned();
    let p95 = |figures: &BTreeMap<String, f64>| {
        figures.get("p95").map_or_else(dash, |v| format_figure(*v))
    };
    let faults: Vec<String> = (round.faults.iter())
        .map(crate::loadline::RoundFailure::describe_fault)
        .collect();
    let held = match (round.held, round.again) {
        (true, false) => "yes",
        (true, true) => "yes, again",
        (false, false) => "no",
        (false, true) => "no, again",
    };
    vec![
        round.number.to_string(),
        grouped_count(round.concurrency.into()),
        held.into(),
        seen.preemptions.map_or_else(dash, grouped_count),
        seen.queue_mean_s.map_or_else(dash, format_figure),
        (seen.kv_usage_most).map_or_else(dash, |u| format!("{:.0} %", u * 100.0)),
        p95(&seen.result.ttft_ms),
        p95(&seen.result.itl_ms),
        (seen.result.output_tokens_per_second).map_or_else(dash, format_figure),
        faults.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Capture;
    use crate::loadline::{
        Objectives, Prediction, Resource, ResourceLimit, RoundFailure, RoundObservation,
        SearchOutcome, TokenLengths,
    };

    fn round(number: u32, concurrency: u32, faults: Vec<RoundFailure>) -> LoadlineRound {
        let mut seen = RoundObservation {
            completed: u64::from(concurrency) * 3,
            preemptions: Some(if faults.is_empty() { 0 } else { 4 }),
            queue_mean_s: Some(0.012),
            kv_usage_most: Some(0.987),
            ..RoundObservation::default()
        };
        seen.result.ttft_ms = [("p95".to_owned(), 312.4)].into();
        seen.result.itl_ms = [("p95".to_owned(), 21.7)].into();
        seen.result.output_tokens_per_second = Some(1234.5);
        LoadlineRound {
            number,
            concurrency,
            requests: concurrency * 3,
            again: number == 3,
            held: faults.is_empty(),
            faults,
            ran_out: None,
            seen,
            profile: format!("round-{number:02}-c{concurrency}.json"),
        }
    }

    fn line() -> (Loadline, crate::profile::Profile) {
        let mut capture = Capture {
            engine: "vllm".into(),
            ..Capture::default()
        };
        capture.container.name = "serve\u{1b}[2J".into();
        let look = crate::profile::derive_profile(&capture, [], []);
        let lengths = TokenLengths {
            input: 128,
            output: 256,
        };
        let mut line = Loadline::begin_document(&look, String::new(), lengths);
        line.engine_version = Some("0.32.0".into());
        line.model = Some("tiny-llama".into());
        (line.waves, line.max_rounds, line.max_concurrency) = (3, 9, 4096);
        line.prediction = Prediction {
            concurrency: Some(32),
            resource: Some(Resource::KvPool),
            limits: vec![ResourceLimit {
                resource: Resource::KvPool,
                concurrency: 32,
                formula: "floor(96 blocks / 3 a request)".into(),
                source: "as the engine tells them".into(),
            }],
            out_of_step: Some(48),
            notes: Vec::new(),
        };
        (line, look)
    }

    #[test]
    fn a_line_that_was_found() {
        let (mut line, look) = line();
        let fault = || vec![RoundFailure::Preemption { count: 4 }];
        line.add_round(round(1, 32, Vec::new()));
        line.add_round(round(2, 33, fault()));
        line.add_round(round(3, 33, fault()));
        let outcome = SearchOutcome {
            holds: 32,
            fails: Some(33),
            closed: true,
        };
        line.conclude_search(&look, outcome);
        let page = render_loadline(&line, TextOptions::default());
        assert!(!page.contains('\u{1b}'));
        insta::assert_snapshot!(page);
    }

    #[test]
    fn a_line_above_all_rounds_and_limits_on_latency() {
        let (mut line, look) = line();
        line.simulated = true;
        line.objectives = Objectives::parse_objectives(&["ttft=500ms".into()], 95).unwrap();
        line.outcome = RunEnd::Interrupted;
        line.add_round(round(1, 32, Vec::new()));
        let outcome = SearchOutcome {
            holds: 32,
            fails: None,
            closed: false,
        };
        line.conclude_search(&look, outcome);
        insta::assert_snapshot!(render_loadline(&line, TextOptions::default()));
    }
}
