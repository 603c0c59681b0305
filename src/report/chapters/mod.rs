//! The chapters of a report: one file each, and one line in [`ALL`]. A chapter is left out where
//! the material has nothing for it.

mod answer;
mod breakdown;
mod calculated;
mod compare;
mod configuration;
mod correlations;
mod cost;
mod document;
#[cfg(test)]
mod documents_tests;
mod environment;
mod experiment;
mod figures;
mod findings;
mod host_memory;
mod load_line;
mod performance;
mod runs;
#[cfg(test)]
mod samples_tests;
mod summary;
mod sweep;
mod timeline;
mod torch;
mod trend;
mod words;

use super::content::{Chapter, ContentBlock, FigureSource, Report, SourceId};
use super::layout::capitalize_first;
use super::material::{Material, ReportRun, StoredDocument};
use figures::SourcedFigures;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(super) use compare::{fullest_peaks, pair_blocks, pair_sentence};
pub use correlations::correlations_report;
pub(super) use sweep::read::FIGURES as SWEEP_FIGURES;
pub(super) use words::outcome_label;

/// Makes a chapter of what was read, and notes the sources of its figures.
pub type Write = fn(&Material, &mut Sources) -> Vec<Chapter>;

/// Every chapter, in the order of the report.
pub static ALL: &[Write] = &[
    summary::write_summary_chapter,
    compare::write_compare_chapter,
    experiment::write_experiment_chapter,
    load_line::write_load_line_chapter,
    sweep::write_sweep_chapter,
    breakdown::write_breakdown_chapter,
    host_memory::write_host_memory_chapter,
    timeline::write_timeline_chapter,
    performance::write_performance_chapter,
    torch::write_torch_chapter,
    trend::write_trend_chapter,
    calculated::write_calculated_chapter,
    cost::write_cost_chapter,
    findings::write_findings_chapter,
    correlations::write_correlations_chapter,
    configuration::write_configuration_chapter,
    environment::write_environment_chapter,
    environment::write_logs_chapter,
    write_other_chapters,
];

/// The sources of a report's figures while it is made.
#[derive(Debug, Default)]
pub struct Sources {
    all: Vec<FigureSource>,
    /// By their words, so that a report of many runs does not look through all of them each time.
    known: HashMap<u64, Vec<usize>>,
    /// Whether there are too many runs to list the sources of each.
    crowded: bool,
}

/// More runs than these are a crowd.
const CROWD: usize = 50;

impl Sources {
    /// Notes one; the same source keeps its number. A source that is just the figure does not
    /// repeat it: a large report has thousands.
    pub fn note_source(&mut self, mut source: FigureSource) -> SourceId {
        for witness in &mut source.witnesses {
            if witness.value == source.value {
                witness.value.clear();
            }
        }
        let mut hasher = DefaultHasher::new();
        (&source.title, &source.value).hash(&mut hasher);
        let alike = self.known.entry(hasher.finish()).or_default();
        let found = alike.iter().find(|i| self.all.get(**i) == Some(&source));
        if let Some(found) = found {
            return SourceId(*found);
        }
        let id = self.all.len();
        alike.push(id);
        self.all.push(source);
        SourceId(id)
    }
}

/// The whole report, under its title.
pub fn build_report(about: Vec<(String, String)>, material: &Material) -> Report {
    if let ([(_, only)], [_], []) = (
        material.reports.as_slice(),
        material.document_counts().as_slice(),
        material.runs.as_slice(),
    ) {
        return Report {
            about,
            ..only.clone()
        };
    }
    let mut sources = Sources {
        crowded: material.runs.len() > CROWD,
        ..Sources::default()
    };
    let answer = answer::answer_of_material(material, &mut sources);
    let chapters = ALL.iter().flat_map(|write| write(material, &mut sources));
    let mut chapters: Vec<Chapter> = chapters.collect();
    // A comparison shows what differs first, and each run by itself behind it.
    for chapter in chapters.iter_mut().filter(|_| material.compare) {
        if chapter.id != "compare" {
            chapter.move_to_details();
        }
    }
    Report {
        title: words::default_title(material),
        about,
        simulated: words::simulated_parts(material),
        answer,
        chapters,
        sources: sources.all,
        is_brief: false,
    }
}

/// Chapters of documents with a report of their own, under their names.
fn write_other_chapters(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let mut all = Vec::new();
    for (i, (name, report)) in material.reports.iter().enumerate() {
        let mut chapters = report.chapters.clone();
        for chapter in &mut chapters {
            chapter.id = format!("document{}-{}", i + 1, chapter.id);
            chapter.title = format!("{}: {name}", chapter.title);
            for block in chapter.blocks.iter_mut().chain(&mut chapter.details) {
                let ContentBlock::Table(grid) = block else {
                    continue;
                };
                grid.id = format!("document{}_{}", i + 1, grid.id);
                for cell in grid.rows.iter_mut().flatten() {
                    let own = cell.source.and_then(|id| report.sources.get(id.0));
                    cell.source = own.map(|own| sources.note_source(own.clone()));
                }
            }
        }
        all.extend(chapters);
    }
    all
}

/// The report of one document that was made by this program.
///
/// # Errors
/// Why it is not JSON.
pub fn document_report(kind: &str, document: &impl Serialize) -> serde_json::Result<Report> {
    let material = Material::of_document(kind, document)?;
    Ok(build_report(Vec::new(), &material))
}

/// A run that is shown in full.
#[derive(Clone, Copy)]
struct ShownRun<'a> {
    run: &'a ReportRun,
    /// Its place among all runs.
    i: usize,
    /// Whether there are several.
    many: bool,
}

impl Material {
    /// The runs that are shown in full.
    fn shown_runs(&self) -> impl Iterator<Item = ShownRun<'_>> {
        let many = self.runs.len() > 1;
        let all = self.runs.iter().enumerate();
        let shown = all.filter(|(_, run)| run.in_full);
        shown.map(move |(i, run)| ShownRun { run, i, many })
    }
}

impl<'a> ShownRun<'a> {
    /// A word for links: with the number of the run where there are several.
    fn id(self, word: &str) -> String {
        let number = self.many.then(|| format!("-{}", self.i + 1));
        word.to_owned() + &number.unwrap_or_default()
    }

    /// A title: with the name of the run where there are several.
    fn title(self, title: &str) -> String {
        let name = self.many.then(|| format!(": {}", self.run.name));
        title.to_owned() + &name.unwrap_or_default()
    }

    /// Its figures; each notes its source.
    fn figures(self, sources: &'a mut Sources) -> SourcedFigures<'a> {
        SourcedFigures {
            sources,
            run: self.run,
            many: self.many,
        }
    }
}

/// A word for links: with its number where there are several.
fn numbered_id(word: &str, i: usize, several: bool) -> String {
    let number = several.then(|| (i + 1).to_string());
    word.to_owned() + &number.unwrap_or_default()
}

/// A chapter for each document of a kind: its word for links and its title; of several, with number and name.
fn document_chapters(
    documents: &[StoredDocument],
    word: &str,
    title: &str,
    blocks: impl Fn(&StoredDocument, &str) -> Vec<ContentBlock>,
) -> Vec<Chapter> {
    let several = documents.len() > 1;
    let each = documents.iter().enumerate().map(|(i, stored)| {
        let id = numbered_id(word, i, several);
        let title = if several {
            format!("{}: {}", capitalize_first(title), stored.name)
        } else {
            format!("The {title}")
        };
        Chapter::of_blocks(&id, title, blocks(stored, &id))
    });
    each.collect()
}

/// A sentence: with the name of its run where there are several.
fn of_run_text(sentence: &str, run: &ReportRun, many: bool) -> String {
    let name = many.then(|| format!("{}: ", run.name));
    name.unwrap_or_default() + sentence
}
