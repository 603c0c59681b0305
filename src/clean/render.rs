//! A look and what follows of it, as text for people: short, and with the reason of everything.

use super::apply::{ActOutcome, ActResult};
use super::document::{Evidence, evidence_for, has_simulated_device};
use super::facts::Survey;
use super::scope;
use super::verdict::{self, CleanAct, CleanRequest, CleanRule, CleanVerdict, VerdictSubject};
use crate::report::layout::{Align, TextTable, clean_text, text_width, truncate_text, wrap_text};
use crate::report::text::TextOptions;
use crate::units::Bytes;
use std::collections::BTreeMap;

/// Entries listed one by one; more only with `-v`.
const LISTED: usize = 20;
/// Cells for the name of an image, and for the other columns of its row.
const IMAGE: std::ops::RangeInclusive<usize> = 16..=40;
const BESIDE_IMAGE: usize = 60;

/// What is to be rendered.
#[derive(Debug, Clone, Copy)]
pub struct CleanPlan<'a> {
    /// What was found.
    pub survey: &'a Survey,
    /// What was asked for.
    pub ask: &'a CleanRequest,
    /// What follows.
    pub verdicts: &'a [CleanVerdict],
    /// True for a dry run.
    pub dry: bool,
}

/// What would be done, what only people can do, and in a line what is kept.
pub fn render_plan(plan: CleanPlan, verbose: bool, options: TextOptions) -> String {
    let mut page = CleanPage::new(options);
    page.push_simulated(plan.survey);
    let mut todo: Vec<&CleanVerdict> = plan
        .verdicts
        .iter()
        .filter(|v| v.act.changes_anything())
        .collect();
    let bytes = |v: &CleanVerdict| evidence_for(plan.survey, &v.of).and_then(Evidence::gpu_bytes);
    todo.sort_by_key(|v| std::cmp::Reverse(bytes(v)));
    let reports = plan.verdicts.iter().filter(|v| v.act == CleanAct::Report);
    let (told, others): (Vec<&CleanVerdict>, Vec<&CleanVerdict>) =
        reports.partition(|v| scope::is_stuck(v));
    match (todo.as_slice(), told.as_slice()) {
        ([], []) if *plan.ask == CleanRequest::default() => page.push_line("nothing is stuck"),
        ([], _) => page.push_line("nothing to clean"),
        _ => page.push_line(&format!("to clean: {}", totals(&todo, bytes))),
    }
    if !todo.is_empty() {
        page.push_line("");
        page.push_table(plan.survey, &todo, verbose);
    }
    page.section(
        "stuck, and nothing that plimsoll may do helps:",
        &told,
        verbose,
    );
    page.section("on a GPU, in no container, and not ours:", &others, verbose);
    page.push_kept(plan, verbose);
    if plan.dry && !todo.is_empty() {
        page.push_line("");
        page.push_line("nothing was touched: --apply does it");
    }
    for sentence in &plan.survey.blind {
        page.under("note: ", sentence);
    }
    page.text
}

/// Results of the acts: a line for each, and what is left, if anything.
pub fn render_outcomes(outcomes: &[ActOutcome], verbose: bool, options: TextOptions) -> String {
    let mut page = CleanPage::new(options);
    let done = |o: &&ActOutcome| matches!(o.done, ActResult::Cleaned | ActResult::AlreadyGone);
    let (done, others): (Vec<&ActOutcome>, Vec<&ActOutcome>) = outcomes.iter().partition(done);
    let freed = outcomes.iter().filter_map(|o| o.freed_bytes);
    let freed = freed.fold(0, u64::saturating_add);
    let freed = match freed {
        0 => String::new(),
        bytes => format!(", {} of GPU memory given back", Bytes(bytes)),
    };
    page.push_line(&format!(
        "cleaned {} of {}{freed}",
        done.len(),
        outcomes.len()
    ));
    // What went wrong is never left out.
    for outcome in others {
        page.push_outcome(outcome);
    }
    let shown = page.few(done.len(), verbose);
    for outcome in &done[..shown] {
        page.push_outcome(outcome);
    }
    page.push_more(done.len() - shown);
    page.text
}

fn totals(todo: &[&CleanVerdict], bytes: impl Fn(&CleanVerdict) -> Option<u64>) -> String {
    let containers = todo
        .iter()
        .filter(|v| matches!(v.of, VerdictSubject::Container(_)));
    let of = |n: usize, one: &str, many: &str| match n {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    };
    let n = containers.count();
    // Where only our commands are ended in a container, the rest of it keeps its memory.
    let ended = todo.iter().filter(|v| v.act != CleanAct::EndMarked);
    let held = ended.filter_map(|v| bytes(v)).fold(0, u64::saturating_add);
    let parts = [
        of(n, "container", "containers"),
        of(todo.len() - n, "process", "processes"),
        (held > 0).then(|| format!("{} of GPU memory", Bytes(held))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

struct CleanPage {
    text: String,
    options: TextOptions,
}

impl CleanPage {
    fn new(options: TextOptions) -> CleanPage {
        CleanPage {
            text: String::new(),
            options,
        }
    }

    fn push_line(&mut self, line: &str) {
        let line = clean_text(line, self.options.unicode);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A sentence, wrapped under what it begins with.
    fn under(&mut self, head: &str, sentence: &str) {
        let indent = text_width(head);
        let room = self.options.width.saturating_sub(indent).max(30);
        for (i, part) in wrap_text(sentence, room).iter().enumerate() {
            match i {
                0 => self.push_line(&format!("{head}{part}")),
                _ => self.push_line(&format!("{}{part}", " ".repeat(indent))),
            }
        }
    }

    fn push_simulated(&mut self, survey: &Survey) {
        if has_simulated_device(survey) {
            self.push_line("SIMULATED GPUs: these figures say nothing about hardware");
        }
    }

    fn few(&self, all: usize, verbose: bool) -> usize {
        if verbose { all } else { all.min(LISTED) }
    }

    fn push_more(&mut self, left: usize) {
        if left > 0 {
            self.push_line(&format!("  and {left} more: -v lists them"));
        }
    }

    /// A row for each, and below it why.
    fn push_table(&mut self, survey: &Survey, verdicts: &[&CleanVerdict], verbose: bool) {
        let shown = self.few(verdicts.len(), verbose);
        let (verdicts, left) = (&verdicts[..shown], verdicts.len() - shown);
        // On a host without GPUs the column would be empty.
        let memory = (!survey.devices.is_empty()).then_some(("GPU MEMORY", Align::Right));
        let mut heads = vec![("CONTAINER", Align::Left), ("IMAGE", Align::Left)];
        heads.extend(memory);
        heads.push(("ACT", Align::Left));
        let mut table = TextTable::new(&heads);
        for v in verdicts {
            let found = evidence_for(survey, &v.of);
            let unknown = || "-".to_owned();
            let image = match found {
                Some(Evidence::Container(c)) => self.cut_image(&c.image),
                _ => unknown(),
            };
            let mut row = vec![clean_text(&v.name, self.options.unicode), image];
            if memory.is_some() {
                let held = found.and_then(Evidence::gpu_bytes);
                row.push(held.map_or_else(unknown, |b| Bytes(b).to_string()));
            }
            let ours = matches!(found, Some(Evidence::Container(c)) if c.ours);
            row.push(describe_act(v.act, ours).to_owned());
            table.add_row(row);
        }
        let mut lines = table.render_lines().into_iter();
        if let Some(head) = lines.next() {
            self.push_line(&format!("  {head}"));
        }
        for (v, row) in verdicts.iter().zip(lines) {
            self.push_line(&format!("  {row}"));
            self.under("      ", &reason_with_rule(v));
            if let Some(advice) = &v.advice {
                self.under("      advice: ", advice);
            }
        }
        self.push_more(left);
    }

    fn push_outcome(&mut self, outcome: &ActOutcome) {
        let word = match outcome.done {
            ActResult::Cleaned => "cleaned",
            ActResult::AlreadyGone => "was gone",
            ActResult::Kept => "kept",
            ActResult::NotDone => "NOT DONE",
        };
        let mut parts = outcome.steps.clone();
        let freed = outcome.freed_bytes.filter(|b| *b > 0);
        parts.extend(freed.map(|b| format!("{} given back", Bytes(b))));
        parts.extend(outcome.problem.clone());
        let colon = if parts.is_empty() { "" } else { ": " };
        let sentence = format!("{}{colon}{}", outcome.verdict.name, parts.join("; "));
        self.under(&format!("  {word:<8}  "), &sentence);
        for holder in &outcome.holders {
            self.under("            still there: ", holder);
        }
    }

    fn section(&mut self, head: &str, verdicts: &[&CleanVerdict], verbose: bool) {
        if verdicts.is_empty() {
            return;
        }
        self.push_line("");
        self.push_line(head);
        let shown = self.few(verdicts.len(), verbose);
        for v in &verdicts[..shown] {
            self.push_report(v);
        }
        self.push_more(verdicts.len() - shown);
    }

    fn push_report(&mut self, v: &CleanVerdict) {
        let sentence = if v.why.starts_with(&v.name) {
            reason_with_rule(v)
        } else {
            format!("{}: {}", v.name, reason_with_rule(v))
        };
        self.under("  ", &sentence);
        if let Some(advice) = &v.advice {
            self.under("      advice: ", advice);
        }
    }

    fn cut_image(&self, image: &str) -> String {
        let ellipsis = if self.options.unicode { "…" } else { "..." };
        let room = self.options.width.saturating_sub(BESIDE_IMAGE);
        let room = room.clamp(*IMAGE.start(), *IMAGE.end());
        truncate_text(&clean_text(image, self.options.unicode), room, ellipsis)
    }

    /// What is kept: whatever the user named, with its reason; the rest in one line.
    fn push_kept(&mut self, plan: CleanPlan, verbose: bool) {
        let ids = verdict::named_ids(plan.survey, plan.ask);
        let kept = plan.verdicts.iter().filter(|v| v.act == CleanAct::Keep);
        let (named, others): (Vec<&CleanVerdict>, Vec<&CleanVerdict>) =
            kept.partition(|v| verbose || scope::is_of(&ids, v));
        self.section("kept:", &named, true);
        if others.is_empty() {
            return;
        }
        let mut rules: BTreeMap<String, usize> = BTreeMap::new();
        for v in &others {
            *rules.entry(rule_name(v.rule)).or_default() += 1;
        }
        let mut rules: Vec<(String, usize)> = rules.into_iter().collect();
        rules.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let rules: Vec<String> = rules
            .iter()
            .map(|(rule, n)| format!("{n} {rule}"))
            .collect();
        self.push_line("");
        self.under("kept: ", &format!("{}; -v says why", rules.join(", ")));
    }
}

/// The reason, with its rule's name.
fn reason_with_rule(v: &CleanVerdict) -> String {
    format!("{} [{}]", v.why.trim_end_matches('.'), rule_name(v.rule))
}

/// A rule as programs see it.
pub fn rule_name(rule: CleanRule) -> String {
    match serde_json::to_value(rule) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{rule:?}"),
    }
}

fn describe_act(act: CleanAct, ours: bool) -> &'static str {
    match act {
        CleanAct::Keep => "keep",
        CleanAct::Stop if ours => "stop and remove",
        CleanAct::Stop => "stop",
        CleanAct::Remove => "remove",
        CleanAct::EndProcess => "end",
        CleanAct::EndMarked => "end our commands in it",
        CleanAct::Report => "tell",
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
