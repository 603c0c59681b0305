//! The plan of a sweep: as a report before anything is run, and as a document.

use super::{server_settings, server_title};
use crate::estimate::question::{Answer, Verdict};
use crate::matrix::{
    BenchWord, Cell, CellGroup, CellLoad, Forecast, GroupId, RowCause, SkippedCell, SweepPlan,
    TimeEstimate,
};
use crate::report::RenderError;
use crate::report::content::{Chapter, ContentBlock, Report, facts_block};
use crate::report::json::{joined, json_bytes};
use crate::report::layout::{counted_noun, format_duration, join_first};
use serde_json::json;

/// At most this many groups, and skipped cells, are on the page unless all are asked for.
const SHOWN: usize = 100;
/// An axis with more values than this is shown by its ends.
const VALUES: usize = 6;

/// The report. `every_cell`: each cell with its id, and every group.
pub fn plan_report(plan: &SweepPlan, forecast: &Forecast, every_cell: bool) -> Report {
    let shown = if every_cell { usize::MAX } else { SHOWN };
    let mut blocks = head_blocks(plan, &forecast.estimate_plan(plan));
    blocks.extend(unknown_fits(plan).map(ContentBlock::Text));
    let mut chapters = vec![Chapter::of_blocks("plan", "The plan", blocks)];
    for (i, group) in plan.groups.iter().take(shown).enumerate() {
        let mut chapter = group_chapter(i + 1, group, plan, forecast);
        if every_cell {
            let cells = group.cells.iter();
            let cells = cells.map(|c| (c.id.to_string(), c.describe_load()));
            let id = format!("group{}_cells", i + 1);
            chapter.blocks.push(facts_block(&id, cells));
        }
        chapters.push(chapter);
    }
    let more = more_text(plan.groups.len(), shown, "group");
    if let Some(last) = chapters.last_mut() {
        last.blocks.extend(more.map(ContentBlock::Text));
    }
    let skipped = skipped(plan);
    let mut lines: Vec<String> = skipped.iter().take(shown).cloned().collect();
    lines.extend(more_text(skipped.len(), shown, "skipped cell"));
    let title = format!("{} skipped", counted_noun(plan.skipped.len(), "cell"));
    chapters.extend(Chapter::of_sentences("skipped", &title, &lines));
    let part = plan.shard.map(|s| format!(", part {s} of it"));
    let part = part.unwrap_or_default();
    Report::of_chapters(format!("Sweep {}{part}", plan.name), None, chapters)
}

/// What is skipped, a sentence for each cell; one for all cells of an engine that does not fit.
fn skipped(plan: &SweepPlan) -> Vec<String> {
    let mut lines: Vec<(&GroupId, usize, String)> = Vec::new();
    for skip in &plan.skipped {
        let cell = &skip.cell;
        if skip.cause != RowCause::DoesNotFit {
            let (model, load) = (&cell.server.model, cell.describe_load());
            lines.push((&cell.group, 0, format!("{model}, {load}: {}", skip.why)));
            continue;
        }
        let last = lines.last_mut();
        match last.filter(|(g, n, _)| *g == &cell.group && *n > 0) {
            Some((_, cells, _)) => *cells += 1,
            None => {
                let server = cell.server.redacted();
                let settings = match server_settings(&server) {
                    none if none.is_empty() => none,
                    some => format!(", {some}"),
                };
                let line = format!("{}{settings}: {}", server_title(&server), skip.why);
                lines.push((&cell.group, 1, line));
            }
        }
    }
    let line = |(_, cells, line): (&GroupId, usize, String)| match cells {
        0 => line,
        cells => {
            let cells = counted_noun(cells, "cell");
            format!("{line} ({cells}; --run-anyway runs them)")
        }
    };
    lines.into_iter().map(line).collect()
}

/// The groups of which it is unknown whether they fit, in one sentence.
fn unknown_fits(plan: &SweepPlan) -> Option<String> {
    let whys = plan.groups.iter().filter_map(|group| {
        let verdict = plan.verdicts.get(&group.id)?;
        (verdict.answer == Answer::Unknown).then(|| verdict.why.clone())
    });
    let mut whys: Vec<String> = whys.collect();
    let groups = whys.len();
    whys.sort_unstable();
    whys.dedup();
    (!whys.is_empty()).then(|| {
        let all = counted_noun(groups, "group");
        let s = if groups == 1 { "s" } else { "" };
        format!(
            "Whether {all} fit{s} is not known: {}.",
            join_first(&whys, 2, ", ", String::clone, |n| format!(" and {n} more"))
        )
    })
}

/// Whether an engine fits, in words; nothing where it is unknown.
fn fit(verdict: &Verdict) -> Option<String> {
    let word = match verdict.answer {
        Answer::Fits => "fits",
        Answer::MayNotFit => "may not fit",
        Answer::DoesNotFit => "does not fit",
        Answer::Unknown => return None,
    };
    Some(format!("{word} by the estimate: {}", verdict.why))
}

fn head_blocks(plan: &SweepPlan, estimate: &TimeEstimate) -> Vec<ContentBlock> {
    let engines = if plan.fresh {
        "a process for each"
    } else {
        "an engine for each group"
    };
    let cells = counted_noun(plan.planned_cells().count(), "cell");
    let groups = counted_noun(plan.groups.len(), "group");
    let starts = counted_noun(plan.engine_starts(), "start");
    let mut sentences = vec![format!(
        "{cells} in {groups}, {engines}: {starts} of an engine."
    )];
    if plan.groups.is_empty() {
        let empty = match plan.shard {
            Some(_) if plan.skipped.is_empty() => {
                "No group falls to this part: it has nothing to run."
            }
            _ => "Nothing is left to be run.",
        };
        sentences.push(empty.into());
    } else {
        let in_turn = match plan.groups.len() {
            1 => "",
            _ => ", one group after the other",
        };
        let time = format_duration(estimate.seconds);
        let basis = estimate.basis.describe_basis();
        sentences.push(format!("About {time}{in_turn} ({basis})."));
    }
    sentences.into_iter().map(ContentBlock::Text).collect()
}

fn group_chapter(
    number: usize,
    group: &CellGroup,
    plan: &SweepPlan,
    forecast: &Forecast,
) -> Chapter {
    let server = group.server.redacted();
    let time = format_duration(forecast.estimate_group(group, plan.fresh).seconds);
    let cost = format!(
        "{}, {}, about {time}, group {}",
        counted_noun(group.cells.len(), "cell"),
        counted_noun(group.engine_starts(plan.fresh), "start"),
        group.id
    );
    let settings = Some(server_settings(&server)).filter(|s| !s.is_empty());
    let sentences = [
        settings,
        Some(axes(&group.cells)),
        plan.verdicts.get(&group.id).and_then(fit),
        Some(cost),
    ];
    let blocks = sentences.into_iter().flatten().map(ContentBlock::Text);
    let title = format!("{number}. {}", server_title(&server));
    Chapter::of_blocks(&format!("group{number}"), title, blocks.collect())
}

/// `input 128, 256; output 128; batch 1, 8, 32`.
fn axes(cells: &[Cell]) -> String {
    let axis = |name: &str, pick: &dyn Fn(&CellLoad) -> Option<f64>| {
        let mut values: Vec<f64> = cells.iter().filter_map(|c| pick(&c.load)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        (!values.is_empty()).then(|| format!("{name} {}", list_values(&values)))
    };
    let is_used = |bench| cells.iter().any(|c| c.load.bench == bench);
    let benches = BenchWord::ALL
        .into_iter()
        .filter(|(_, bench)| is_used(*bench));
    let benches: Vec<&str> = benches.map(|(name, _)| name).collect();
    let benches = (benches != ["auto"]).then(|| format!("bench {}", benches.join(", ")));
    let names = cells.first().map(|c| c.load.named_counts());
    let names = names.unwrap_or_default();
    let counts = names.iter().enumerate().filter_map(|(i, (name, _))| {
        let numbers = cells.iter().filter_map(|c| c.load.named_counts()[i].1);
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        (!numbers.is_empty()).then(|| format!("{name} {}", list_values(&numbers)))
    });
    let parts = [
        axis("input", &|l| Some(l.input_len.into())),
        axis("output", &|l| Some(l.output_len.into())),
        axis("batch", &|l| l.batch_size.map(f64::from)),
        axis("rate", &|l| l.request_rate),
        benches,
    ];
    let parts = parts.into_iter().flatten().chain(counts);
    parts.collect::<Vec<_>>().join("; ")
}

/// Values in order; many are shown by their ends.
fn list_values<T: ToString>(values: &[T]) -> String {
    match values {
        [first, .., last] if values.len() > VALUES => {
            let (first, last) = (first.to_string(), last.to_string());
            format!("{first} to {last} ({} values)", values.len())
        }
        values => (values.iter().map(T::to_string).collect::<Vec<_>>()).join(", "),
    }
}

fn more_text(all: usize, shown: usize, what: &str) -> Option<String> {
    (all > shown).then(|| format!("and {}", counted_noun(all - shown, &format!("more {what}"))))
}

/// The document, with every cell.
pub fn plan_json(plan: &SweepPlan, forecast: &Forecast) -> Result<Vec<u8>, RenderError> {
    let estimate = forecast.estimate_plan(plan);
    let group = |g: &CellGroup| {
        let cell = |c: &Cell| joined([json!({"cell": c.id}), json!(c.load)]);
        let cells: Vec<_> = g.cells.iter().map(cell).collect();
        let mut rest = json!({
            "starts": g.engine_starts(plan.fresh),
            "estimated_s": forecast.estimate_group(g, plan.fresh).seconds,
        });
        // Whether it fits by the estimate, where that was asked.
        if let Some(fit) = plan.verdicts.get(&g.id) {
            rest["fit"] = json!(fit);
        }
        rest["cells"] = json!(cells);
        joined([json!({"group": g.id}), json!(g.server.redacted()), rest])
    };
    let skip = |skip: &SkippedCell| {
        json!({
            "cell": skip.cell.id,
            "group": skip.cell.group,
            "model": skip.cell.server.model,
            "load": skip.cell.load,
            "cause": skip.cause,
            "why": skip.why,
        })
    };
    json_bytes(&json!({
        "document": "sweep_plan",
        "schema_version": "1",
        "plimsoll_version": env!("CARGO_PKG_VERSION"),
        "name": plan.name,
        "fresh": plan.fresh,
        "shard": plan.shard,
        "cells": plan.planned_cells().count(),
        "starts": plan.engine_starts(),
        "estimated_s": estimate.seconds,
        // What the estimate rests on.
        "estimate": estimate.basis.describe_basis(),
        "groups": plan.groups.iter().map(group).collect::<Vec<_>>(),
        "skipped": plan.skipped.iter().map(skip).collect::<Vec<_>>(),
    }))
}
