//! What must be known when reading the figures: findings of all runs, worst first.

use super::Sources;
use crate::engine::facts::{Finding, Severity};
use crate::report::content::{Chapter, ContentBlock, Note, plain_note};
use crate::report::layout::{counted_noun, group_items, join_first};
use crate::report::material::{Material, ReportRun};

/// Findings that are shown; a log of hundreds of runs has more.
const MOST: usize = 200;
/// Runs that a finding of several names.
const NAMED: usize = 4;

pub(super) fn write_findings_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    if material.runs.is_empty() {
        return Vec::new();
    }
    // The same of several runs is shown once.
    let of_runs = material.runs.iter();
    let of_runs = of_runs.flat_map(|run| run.profile.findings.iter().map(move |f| (f, run)));
    let mut all = group_items(of_runs, |(finding, _)| (&finding.code, &finding.message));
    all.sort_by_key(|(_, same)| std::cmp::Reverse(same[0].0.severity));
    let left = all.len().saturating_sub(MOST);
    let many = material.runs.len() > 1;
    let notes = all.into_iter().take(MOST).map(|(_, same)| {
        let finding = same[0].0;
        let of = many.then(|| name_runs(&same, material.runs.len()) + ": ");
        ContentBlock::Note(Note {
            severity: finding.severity,
            code: Some(finding.code.clone()),
            message: of.unwrap_or_default() + &finding.message,
            quote: finding.quote.clone(),
        })
    });
    let mut blocks: Vec<ContentBlock> = notes.collect();
    if blocks.is_empty() {
        let text = "nothing was found that the figures must be read with";
        blocks.push(plain_note(Severity::Info, text));
    }
    if left > 0 {
        let left = counted_noun(left, "finding");
        blocks.push(format!("{left} more, all of them no worse than these.").into());
    }
    Chapter::of_parts("findings", "Findings", blocks, Vec::new())
}

/// The runs that have a finding.
fn name_runs(runs: &[(&Finding, &ReportRun)], of: usize) -> String {
    if runs.len() == of {
        return format!("all {of} runs");
    }
    let name = |(_, run): &(&Finding, &ReportRun)| run.name.clone();
    join_first(runs, NAMED, ", ", name, |n| format!(" and {n} more"))
}
