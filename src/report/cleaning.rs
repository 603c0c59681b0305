//! What `clean` found, and what became of it, as a report.

use super::content::{
    Action, Answer, AnswerState, Chapter, ContentBlock, Grid, MOST_ACTIONS, Report, TableCell,
};
use super::figures::cell_by;
use super::layout::counted_noun;
use super::tables::{TableBuilder, format_in_unit};
use crate::profile::MemoryGauge;
use crate::units::{Bytes, to_gib};
use serde::Deserialize;

/// What of `clean --json` a report shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CleanFindings {
    simulated: bool,
    applied: bool,
    fullest_device: Option<MemoryGauge>,
    verdicts: Vec<CleanEntry>,
    outcomes: Vec<CleanOutcome>,
    blind: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CleanEntry {
    name: String,
    act: String,
    rule: String,
    why: String,
    advice: Option<String>,
    gpu_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CleanOutcome {
    verdict: CleanEntry,
    done: String,
    steps: Vec<String>,
    freed_bytes: Option<u64>,
    problem: Option<String>,
}

/// The report: what holds memory and should not, what was done, what stays.
pub fn clean_report(found: &CleanFindings) -> Report {
    let of_act = |acts: fn(&str) -> bool| {
        let entries = found.verdicts.iter().filter(move |v| acts(&v.act));
        entries.collect::<Vec<_>>()
    };
    let todo = of_act(|act| !matches!(act, "keep" | "report"));
    let tables = [
        ("to_clean", "To clean", entry_table("to_clean", &todo)),
        ("outcomes", "What was done", outcome_table(&found.outcomes)),
        (
            "reported",
            "Nothing that plimsoll may do helps",
            entry_table("reported", &of_act(|act| act == "report")),
        ),
        (
            "kept",
            "Kept",
            entry_table("kept", &of_act(|act| act == "keep")),
        ),
    ];
    let chapters = tables.into_iter().filter_map(|(id, title, grid)| {
        Some(Chapter::of_blocks(
            id,
            title,
            vec![ContentBlock::Table(grid?)],
        ))
    });
    let blind = Chapter::of_sentences("blind", "Not looked at", &found.blind);
    Report {
        title: "Leftovers on this host".into(),
        simulated: (found.simulated).then(|| "a GPU here is simulated".into()),
        answer: Some(answer_of_findings(found, &todo)),
        chapters: chapters.chain(blind).collect(),
        ..Report::default()
    }
}

fn answer_of_findings(found: &CleanFindings, todo: &[&CleanEntry]) -> Answer {
    let held: u64 = (todo.iter().filter_map(|v| v.gpu_bytes)).fold(0, u64::saturating_add);
    let memory = |bytes: u64| match bytes {
        0 => String::new(),
        bytes => format!(", {} of GPU memory", Bytes(bytes)),
    };
    let is_done = |o: &&CleanOutcome| matches!(o.done.as_str(), "cleaned" | "already_gone");
    let done = found.outcomes.iter().filter(is_done).count();
    let freed = found.outcomes.iter().filter_map(|o| o.freed_bytes);
    let freed = memory(freed.fold(0, u64::saturating_add));
    let all = found.outcomes.len();
    let (state, verdict) = match (found.applied, todo.len()) {
        (_, 0) => (AnswerState::Safe, "Nothing to clean.".to_owned()),
        (true, _) if done == all => (
            AnswerState::Safe,
            format!("Cleaned {done} of {all}{freed}."),
        ),
        (true, _) => (
            AnswerState::Failed,
            format!("Cleaned {done} of {all}{freed}."),
        ),
        (false, n) => {
            let (what, held) = (counted_noun(n, "leftover"), memory(held));
            (
                AnswerState::Tight,
                format!("{what} to clean{held}; nothing was touched."),
            )
        }
    };
    let apply = (!found.applied && !todo.is_empty()).then(|| Action {
        setting: "plimsoll clean --apply".into(),
        effect: "ends what is listed under To clean".into(),
    });
    let advice = found.verdicts.iter().filter_map(|v| v.advice.clone());
    let advice = advice.map(|effect| Action {
        setting: String::new(),
        effect,
    });
    Answer {
        state,
        verdict,
        gauge: found.fullest_device.clone(),
        no_gauge: Some("no GPU with a known size was found".into()),
        actions: apply.into_iter().chain(advice).take(MOST_ACTIONS).collect(),
        ..Answer::default()
    }
}

fn readable(word: &str) -> String {
    word.replace('_', " ")
}

fn gib_cell(bytes: Option<u64>) -> TableCell {
    cell_by(bytes.map(to_gib), "not known", |gib| {
        format_in_unit(gib, "GiB")
    })
}

fn entry_table(id: &str, entries: &[&CleanEntry]) -> Option<Grid> {
    TableBuilder::of_items(entries.iter().copied())
        .words("what", "name", |v| &v.name)
        .words("act", "act", |v| readable(&v.act))
        .figures("GPU memory, GiB", "gpu_gib", |v| gib_cell(v.gpu_bytes))
        .words("rule", "rule", |v| readable(&v.rule))
        .words("why", "why", |v| &v.why)
        .words("advice", "advice", |v| {
            v.advice.as_deref().unwrap_or_default()
        })
        .grid_of_rows(id, "")
}

fn outcome_table(outcomes: &[CleanOutcome]) -> Option<Grid> {
    TableBuilder::of_items(outcomes)
        .words("what", "name", |o| &o.verdict.name)
        .words("result", "done", |o| readable(&o.done))
        .figures("given back, GiB", "freed_gib", |o| gib_cell(o.freed_bytes))
        .words("steps", "steps", |o| o.steps.join("; "))
        .words("problem", "problem", |o| {
            o.problem.as_deref().unwrap_or_default()
        })
        .grid_of_rows("outcomes", "")
}
