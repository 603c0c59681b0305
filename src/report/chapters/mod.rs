//! The chapters of a report: one file each, and one line in [`ALL`]. A chapter is left out where
//! the material has nothing for it.

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
mod load_line;
mod logs;
mod older;
mod performance;
mod places;
mod runs;
#[cfg(test)]
mod samples;
mod summary;
mod sweep;
mod timeline;
mod trend;
mod words;

use super::content::{Chapter, Report, Source, SourceId};
use super::material::{Material, Run};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(super) use words::{mode, outcome};

/// Makes a chapter of what was read, and notes the sources of its figures.
pub type Write = fn(&Material, &mut Sources) -> Vec<Chapter>;

/// Every chapter, in the order of the report.
pub static ALL: &[Write] = &[
    summary::write,
    compare::write,
    experiment::write,
    load_line::write,
    sweep::write,
    breakdown::write,
    timeline::write,
    performance::write,
    trend::write,
    calculated::write,
    cost::write,
    findings::write,
    correlations::write,
    configuration::write,
    environment::write,
    logs::write,
];

/// The sources of a report's figures while it is made.
#[derive(Debug, Default)]
pub struct Sources {
    all: Vec<Source>,
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
    pub fn note(&mut self, mut source: Source) -> SourceId {
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

/// The whole report.
pub fn report(title: String, about: Vec<(String, String)>, material: &Material) -> Report {
    let mut sources = Sources {
        crowded: material.runs.len() > CROWD,
        ..Sources::default()
    };
    let chapters = ALL
        .iter()
        .flat_map(|write| write(material, &mut sources))
        .collect();
    Report {
        title,
        about,
        simulated: words::pretends(material),
        chapters,
        sources: sources.all,
    }
}

/// A word for links: with the number of its run where there are several.
fn numbered(word: &str, i: usize, many: bool) -> String {
    if many {
        format!("{word}-{}", i + 1)
    } else {
        word.to_owned()
    }
}

/// A title: with the name of its run where there are several.
fn of_run(title: &str, run: &Run, many: bool) -> String {
    if many {
        format!("{title}: {}", run.name)
    } else {
        title.to_owned()
    }
}

/// A title for a report of this material.
pub fn title(material: &Material) -> String {
    words::title(material)
}
