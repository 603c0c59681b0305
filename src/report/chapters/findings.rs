//! What must be known when reading the figures: findings of all runs, worst first.

use super::Sources;
use crate::engine::facts::{Finding, Severity};
use crate::report::content::{Chapter, ContentBlock, Note, plain_note};
use crate::report::layout::{counted_noun, join_first};
use crate::report::material::Material;

/// Findings that are shown; a log of hundreds of runs has more.
const MOST: usize = 200;
/// Runs that a finding of several names.
const NAMED: usize = 4;

pub(super) fn write_findings_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    if material.runs.is_empty() {
        return Vec::new();
    }
    // The same of several runs is shown once.
    let mut all: Vec<(&Finding, Vec<&str>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for run in &material.runs {
        for finding in &run.profile.findings {
            let key = (&finding.code, &finding.message);
            let at = *places.entry(key).or_insert(all.len());
            if at == all.len() {
                all.push((finding, Vec::new()));
            }
            all[at].1.push(&run.name);
        }
    }
    all.sort_by_key(|(finding, _)| std::cmp::Reverse(finding.severity));
    let left = all.len().saturating_sub(MOST);
    let many = material.runs.len() > 1;
    let notes = all.into_iter().take(MOST).map(|(finding, runs)| {
        let of = many.then(|| name_runs(&runs, material.runs.len()) + ": ");
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
fn name_runs(runs: &[&str], of: usize) -> String {
    if runs.len() == of {
        return format!("all {of} runs");
    }
    let name = |run: &&str| (*run).to_owned();
    join_first(runs, NAMED, ", ", name, |n| format!(" and {n} more"))
}
