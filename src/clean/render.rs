//! A look and what follows of it, as text for people: short, and with the reason of everything.

use super::apply::{ActOutcome, ActResult};
use super::document::{Evidence, evidence_for, has_simulated_device};
use super::facts::Survey;
use super::scope;
use super::verdict::{self, CleanAct, CleanRequest, CleanRule, CleanVerdict, VerdictSubject};
use crate::report::layout::Align;
use crate::report::page::TextOptions;
use crate::report::page::{ColumnFit, StyledCell, TextPage, TextTable};
use crate::units::Bytes;
use std::collections::BTreeMap;

/// Entries listed one by one; more only with `-v`.
const LISTED: usize = 20;

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
        ([], []) if *plan.ask == CleanRequest::default() => {
            page.page.write_line("nothing is stuck")
        }
        ([], _) => page.page.write_line("nothing to clean"),
        _ => page
            .page
            .write_line(&format!("to clean: {}", totals(&todo, bytes))),
    }
    if !todo.is_empty() {
        page.page.write_line("");
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
        page.page.write_line("");
        page.page.write_line("nothing was touched: --apply does it");
    }
    for sentence in &plan.survey.blind {
        page.page.write_under("note: ", sentence);
    }
    page.page.into_text()
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
    page.page.write_line(&format!(
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
    page.page.into_text()
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
    page: TextPage,
    options: TextOptions,
}

impl CleanPage {
    fn new(options: TextOptions) -> CleanPage {
        CleanPage {
            page: TextPage::new(options),
            options,
        }
    }

    fn push_simulated(&mut self, survey: &Survey) {
        if has_simulated_device(survey) {
            self.page
                .write_line("SIMULATED GPUs: these figures say nothing about hardware");
        }
    }

    fn few(&self, all: usize, verbose: bool) -> usize {
        if verbose { all } else { all.min(LISTED) }
    }

    fn push_more(&mut self, left: usize) {
        if left > 0 {
            self.page
                .write_line(&format!("  and {left} more: -v lists them"));
        }
    }

    /// A row for each, and below it why.
    fn push_table(&mut self, survey: &Survey, verdicts: &[&CleanVerdict], verbose: bool) {
        let shown = self.few(verdicts.len(), verbose);
        let (verdicts, left) = (&verdicts[..shown], verdicts.len() - shown);
        let mut table = TextTable::new(&[
            ("CONTAINER", Align::Left, ColumnFit::Wrap),
            ("IMAGE", Align::Left, ColumnFit::Wrap),
            // Empty on a host without GPUs.
            ("GPU MEMORY", Align::Right, ColumnFit::Whole),
            ("ACT", Align::Left, ColumnFit::Whole),
        ]);
        for v in verdicts {
            let found = evidence_for(survey, &v.of);
            let image = match found {
                Some(Evidence::Container(c)) => c.image.as_str(),
                _ => "-",
            };
            let held = found.and_then(Evidence::gpu_bytes);
            let memory = match held {
                _ if survey.devices.is_empty() => StyledCell::default(),
                Some(bytes) => Bytes(bytes).to_string().into(),
                None => "-".into(),
            };
            let ours = matches!(found, Some(Evidence::Container(c)) if c.ours);
            let act = describe_act(v.act, ours);
            table.add_row(vec![(&v.name).into(), image.into(), memory, act.into()]);
        }
        let mut rows = table.render_rows(2, self.options).into_iter();
        self.page.write_rendered(&rows.next().unwrap_or_default());
        for (v, row) in verdicts.iter().zip(rows) {
            self.page.write_rendered(&row);
            self.page.write_under("      ", &reason_with_rule(v));
            if let Some(advice) = &v.advice {
                self.page.write_under("      advice: ", advice);
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
        self.page.write_under(&format!("  {word:<8}  "), &sentence);
        for holder in &outcome.holders {
            self.page.write_under("            still there: ", holder);
        }
    }

    fn section(&mut self, head: &str, verdicts: &[&CleanVerdict], verbose: bool) {
        if verdicts.is_empty() {
            return;
        }
        self.page.write_line("");
        self.page.write_line(head);
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
        self.page.write_under("  ", &sentence);
        if let Some(advice) = &v.advice {
            self.page.write_under("      advice: ", advice);
        }
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
        self.page.write_line("");
        self.page
            .write_under("kept: ", &format!("{}; -v says why", rules.join(", ")));
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
