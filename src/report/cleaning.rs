//! What `clean` found, and what became of it, as a report.

use super::content::{Action, Answer, AnswerState, Chapter, ContentBlock, MOST_ACTIONS, Report};
use super::figures::cell_by;
use super::layout::{count_words, counted_noun};
use super::tables::{TableBuilder, format_in_unit};
use crate::profile::MemoryGauge;
use crate::units::{Bytes, to_gib};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Entries that a terminal lists one by one; all of them with `-v` and in files.
const MOST_LISTED: usize = 20;
/// Id of the chapter on results.
pub const OUTCOMES: &str = "outcomes";
const STUCK: &str = "Stuck, and nothing that plimsoll may do helps";
const FOREIGN: &str = "On a GPU, in no container, and not ours";

/// What of `clean --json` a report shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CleanFindings {
    simulated: bool,
    applied: bool,
    apply_command: Option<String>,
    fullest_device: Option<MemoryGauge>,
    verdicts: Vec<CleanEntry>,
    outcomes: Vec<CleanOutcome>,
    blind: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CleanEntry {
    of: BTreeMap<String, serde_json::Value>,
    name: String,
    named: bool,
    act: String,
    rule: String,
    why: String,
    advice: Option<String>,
    gpu_bytes: Option<u64>,
    /// The facts that the verdict rests on; a page shows those of containers.
    evidence: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CleanOutcome {
    verdict: CleanEntry,
    done: String,
    steps: Vec<String>,
    freed_bytes: Option<u64>,
    problem: Option<String>,
    holders: Vec<String>,
}

impl CleanEntry {
    /// What is done to it.
    fn act_words(&self) -> &'static str {
        match self.act.as_str() {
            "stop" if self.evidence["container"]["ours"] == true => "stop and remove",
            "stop" => "stop",
            "remove" => "remove",
            "end_process" => "end",
            "end_marked" => "end our commands in it",
            "report" => "report",
            _ => "keep",
        }
    }

    /// Why, by which rule, and what helps.
    fn reason_blocks(&self) -> Vec<ContentBlock> {
        let why = self.why.trim_end_matches('.');
        let mut reason = format!("{why} [{}]", self.rule);
        if !why.starts_with(&self.name) {
            reason = format!("{}: {reason}", self.name);
        }
        let advice = self.advice.as_ref().map(|a| format!("Advice: {a}"));
        let texts = [reason].into_iter().chain(advice);
        texts.map(ContentBlock::Text).collect()
    }
}

impl CleanOutcome {
    fn is_done(&self) -> bool {
        matches!(self.done.as_str(), "cleaned" | "already_gone")
    }

    /// `trainer: NOT DONE; SIGTERM; 3 of its processes are still there`.
    fn outcome_text(&self) -> String {
        let word = match self.done.as_str() {
            "cleaned" => "cleaned",
            "already_gone" => "was gone",
            "kept" => "kept",
            _ => "NOT DONE",
        };
        let freed = self.freed_bytes.filter(|b| *b > 0);
        let freed = freed.map(|b| format!("{} given back", Bytes(b)));
        let steps = self.steps.iter().cloned().chain(freed);
        let parts: Vec<String> = (std::iter::once(word.to_owned()).chain(steps))
            .chain(self.problem.clone())
            .chain(self.holders.iter().map(|h| format!("still there: {h}")))
            .collect();
        format!("{}: {}", self.verdict.name, parts.join("; "))
    }
}

/// The report: what holds memory and should not, what was done, what remains.
pub fn clean_report(found: &CleanFindings) -> Report {
    let of_act = |acts: fn(&CleanEntry) -> bool| {
        let entries = found.verdicts.iter().filter(move |v| acts(v));
        entries.collect::<Vec<_>>()
    };
    let mut todo = of_act(|v| !matches!(v.act.as_str(), "keep" | "report"));
    todo.sort_by_key(|v| std::cmp::Reverse(v.gpu_bytes));
    let helpless = of_act(|v| v.act == "report" && v.rule != "foreign");
    let foreign = of_act(|v| v.act == "report" && v.rule == "foreign");
    let outcome_blocks = |done: bool| {
        let outcomes = found.outcomes.iter().filter(move |o| o.is_done() == done);
        outcomes.map(|o| vec![ContentBlock::Text(o.outcome_text())])
    };
    // What went wrong is never left out.
    let failed: Vec<ContentBlock> = outcome_blocks(false).flatten().collect();
    let (first, rest) = todo.split_at(todo.len().min(MOST_LISTED));
    let table = entry_table("to_clean", first).into_iter().collect();
    let mut chapters = [
        listing_chapter("to_clean", "To clean", table, reasons(&todo)),
        listing_chapter(OUTCOMES, "What was done", failed, outcome_blocks(true)),
        listing_chapter("reported", STUCK, Vec::new(), reasons(&helpless)),
        listing_chapter("foreign", FOREIGN, Vec::new(), reasons(&foreign)),
        kept_chapter(&of_act(|v| v.act == "keep")),
        Chapter::of_sentences("blind", "Not looked at", &found.blind),
    ];
    if let Some(to_clean) = &mut chapters[0] {
        let more = entry_table("to_clean_more", rest);
        to_clean.details.splice(0..0, more);
    }
    let answer = answer_of_findings(found, &todo);
    let chapters = chapters.into_iter().flatten().collect();
    Report {
        simulated: (found.simulated).then(|| "a GPU here is simulated".into()),
        ..Report::of_chapters("Leftovers on this host", answer, chapters)
    }
}

/// The reasons of each entry.
fn reasons<'a>(entries: &'a [&CleanEntry]) -> impl Iterator<Item = Vec<ContentBlock>> + 'a {
    entries.iter().map(|entry| entry.reason_blocks())
}

/// A chapter of `first` and the blocks of each item; those beyond [`MOST_LISTED`] are details.
fn listing_chapter(
    id: &str,
    title: &str,
    first: Vec<ContentBlock>,
    items: impl Iterator<Item = Vec<ContentBlock>>,
) -> Option<Chapter> {
    let mut chapter = Chapter::of_blocks(id, title, first);
    let mut items = items.fuse();
    chapter
        .blocks
        .extend(items.by_ref().take(MOST_LISTED).flatten());
    let rest: Vec<Vec<ContentBlock>> = items.collect();
    if !rest.is_empty() {
        let more = format!("And {} more: -v lists them.", rest.len());
        chapter.blocks.push(ContentBlock::Text(more));
    }
    chapter.details = rest.into_iter().flatten().collect();
    (!chapter.blocks.is_empty()).then_some(chapter)
}

/// What is kept: whatever the user named, with its reason; the rest by rule.
fn kept_chapter(kept: &[&CleanEntry]) -> Option<Chapter> {
    let (named, others): (Vec<&CleanEntry>, Vec<&CleanEntry>) = kept.iter().partition(|v| v.named);
    let rules = count_words(others.iter().map(|entry| entry.rule.as_str())).into_iter();
    let rules: Vec<String> = rules.map(|(rule, n)| format!("{n} {rule}")).collect();
    let summary = format!("{}; -v shows the reasons.", rules.join(", "));
    let mut blocks: Vec<ContentBlock> = reasons(&named).flatten().collect();
    if !rules.is_empty() {
        blocks.push(ContentBlock::Text(summary));
    }
    (!blocks.is_empty()).then(|| Chapter {
        details: reasons(&others).flatten().collect(),
        ..Chapter::of_blocks("kept", "Kept", blocks)
    })
}

fn answer_of_findings(found: &CleanFindings, todo: &[&CleanEntry]) -> Answer {
    let of_memory = |bytes: u64| match bytes {
        0 => String::new(),
        bytes => format!(", {} of GPU memory", Bytes(bytes)),
    };
    // Where only our commands are ended in a container, the rest of it keeps its memory.
    let held = todo.iter().filter(|v| v.act != "end_marked");
    let held = held
        .filter_map(|v| v.gpu_bytes)
        .fold(0, u64::saturating_add);
    let done = found.outcomes.iter().filter(|o| o.is_done()).count();
    let freed = found.outcomes.iter().filter_map(|o| o.freed_bytes);
    let freed = of_memory(freed.fold(0, u64::saturating_add));
    let all = found.outcomes.len();
    let in_use = found.verdicts.iter().any(|v| v.rule == "owner_lives");
    let cleaned = format!("Cleaned {done} of {all}{freed}.");
    let (state, verdict) = match (found.applied, todo.len()) {
        (_, 0) if in_use => {
            let verdict = "Nothing to clean: what a running plimsoll uses is left alone.";
            (AnswerState::Safe, verdict.to_owned())
        }
        (_, 0) => (AnswerState::Safe, "Nothing to clean.".to_owned()),
        (true, _) if done == all => (AnswerState::Safe, cleaned),
        (true, _) => (AnswerState::Failed, cleaned),
        (false, n) => {
            let containers = todo.iter().filter(|v| v.of.contains_key("container"));
            let containers = containers.count();
            let counts = [(containers, "container"), (n - containers, "process")];
            let known = counts.into_iter().filter(|(n, _)| *n > 0);
            let known: Vec<String> = known.map(|(n, noun)| counted_noun(n, noun)).collect();
            let what = known.join(" and ");
            let held = of_memory(held);
            (
                AnswerState::Tight,
                format!("{what} to clean{held}; nothing was touched."),
            )
        }
    };
    let apply = (!found.applied && !todo.is_empty()).then(|| Action {
        setting: (found.apply_command.clone()).unwrap_or_else(|| "plimsoll clean --apply".into()),
        effect: "ends what is listed under To clean".into(),
    });
    // It has its reason if there is something to apply. Of what is kept only who named it wants any.
    let asked = found.verdicts.iter().filter(|v| v.named || v.act != "keep");
    let advice = asked.filter_map(|v| v.advice.clone());
    let advice = advice.filter(|_| todo.is_empty());
    let advice = advice.map(Action::of_advice);
    let holds_memory = found.verdicts.iter().any(|v| v.gpu_bytes > Some(0));
    Answer {
        state,
        verdict,
        gauge: found.fullest_device.clone(),
        no_gauge: holds_memory.then(|| "no GPU with a known size was found".into()),
        actions: apply.into_iter().chain(advice).take(MOST_ACTIONS).collect(),
        ..Answer::default()
    }
}

fn entry_table(id: &str, entries: &[&CleanEntry]) -> Option<ContentBlock> {
    let table = TableBuilder::of_items(entries.iter().copied())
        .words("what", "name", |v| &v.name)
        .words("act", "act", CleanEntry::act_words);
    // Not on a host without GPUs.
    let on_gpus = entries.iter().any(|v| v.gpu_bytes != Some(0));
    let table = if on_gpus {
        table.figures("GPU memory, GiB", "gpu_gib", |v| {
            cell_by(v.gpu_bytes.map(to_gib), "not known", |gib| {
                format_in_unit(gib, "GiB")
            })
        })
    } else {
        table
    };
    let table = table
        .words("image", "image", |v| {
            let image = &v.evidence["container"]["image"];
            image.as_str().unwrap_or_default()
        })
        .grid_of_rows(id, "");
    table.map(ContentBlock::Table)
}
