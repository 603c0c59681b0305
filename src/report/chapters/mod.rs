//! The chapters of a report: one file each, and one line in [`ALL`]. A chapter is left out where
//! the material has nothing for it.

mod compare;
mod document;
mod experiment;
mod load_line;
#[cfg(test)]
mod samples;
mod sweep;
mod trend;

use super::content::{Chapter, Report, Source, SourceId};
use super::material::Material;

/// Makes a chapter of what was read, and notes the sources of its figures.
pub type Write = fn(&Material, &mut Sources) -> Vec<Chapter>;

/// Every chapter, in the order of the report.
pub static ALL: &[Write] = &[compare::write, sweep::write, trend::write];

/// The sources of a report's figures while it is made.
#[derive(Debug, Default)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// Notes one; the same source keeps its number.
    pub fn note(&mut self, source: Source) -> SourceId {
        let found = self.0.iter().position(|known| *known == source);
        SourceId(found.unwrap_or_else(|| {
            self.0.push(source);
            self.0.len() - 1
        }))
    }
}

/// The whole report.
pub fn report(title: String, about: Vec<(String, String)>, material: &Material) -> Report {
    let mut sources = Sources::default();
    let chapters = ALL
        .iter()
        .flat_map(|write| write(material, &mut sources))
        .collect();
    let pretends = material.runs.iter().any(|r| r.profile.metadata.simulated);
    Report {
        title,
        about,
        simulated: pretends.then(|| "an engine or a GPU here only pretends".to_owned()),
        chapters,
        sources: sources.0,
    }
}
