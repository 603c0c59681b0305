//! What must be known when reading the figures: findings of all runs, worst first.

use super::Sources;
use crate::engine::facts::{Finding, Severity};
use crate::report::content::{Chapter, ContentBlock, Note, plain_note};
use crate::report::layout::counted_noun;
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
            if let Some((_, runs)) = all.get_mut(at) {
                runs.push(&run.name);
            }
        }
    }
    all.sort_by_key(|(finding, _)| std::cmp::Reverse(finding.severity));
    let left = all.len().saturating_sub(MOST);
    let many = material.runs.len() > 1;
    let notes = all.into_iter().take(MOST).map(|(finding, runs)| {
        ContentBlock::Note(Note {
            severity: finding.severity,
            code: Some(finding.code.clone()),
            message: if many {
                format!(
                    "{}: {}",
                    name_runs(&runs, material.runs.len()),
                    finding.message
                )
            } else {
                finding.message.clone()
            },
            quote: finding.quote.clone(),
        })
    });
    let mut blocks: Vec<ContentBlock> = notes.collect();
    if blocks.is_empty() {
        let text = "nothing was found that the figures must be read with";
        blocks.push(plain_note(Severity::Info, text));
    }
    if left > 0 {
        blocks.push(ContentBlock::Text(format!(
            "{} more, all of them no worse than these.",
            counted_noun(left, "finding")
        )));
    }
    Chapter::of_parts("findings", "Findings", blocks, Vec::new())
}

/// The runs that have a finding.
fn name_runs(runs: &[&str], of: usize) -> String {
    match runs.len() {
        n if n == of => format!("all {n} runs"),
        n if n > NAMED => {
            let first = runs
                .iter()
                .take(NAMED)
                .copied()
                .collect::<Vec<_>>()
                .join(", ");
            format!("{first} and {} more", n - NAMED)
        }
        _ => runs.join(", "),
    }
}
