//! Correlations over the runs and within them; only where there are runs enough.

use super::Sources;
use crate::compare::correlate::{Correlation, Correlations, FEWEST_POINTS};
use crate::profile::Profile;
use crate::report::content::{
    Answer, AnswerState, Chapter, ContentBlock, FigureSource, Report, SourceDetail, SourceId,
    TableCell,
};
use crate::report::figures::cell_by;
use crate::report::layout::{counted_noun, unsigned_zero};
use crate::report::material::Material;
use crate::report::tables::TableBuilder;

pub(super) fn write_correlations_chapter(
    material: &Material,
    sources: &mut Sources,
) -> Vec<Chapter> {
    if material.runs.is_empty() {
        return Vec::new();
    }
    let profiles: Vec<&Profile> = material.runs.iter().map(|r| &*r.profile).collect();
    let found = Correlations::correlate_profiles(&profiles);
    let all = || found.across_runs.iter().chain(&found.within_runs);
    // A chapter that could only say that there are too few runs is left out.
    let is_known = all().any(|c| c.pearson.is_some());
    let enough = profiles.len() as u64 >= FEWEST_POINTS;
    let details = if is_known || enough {
        correlation_blocks(&found, enough, sources)
    } else {
        Vec::new()
    };
    Chapter::of_parts("correlations", "Correlations", Vec::new(), details)
}

/// The report of correlations alone.
pub fn correlations_report(found: &Correlations) -> Report {
    let mut sources = Sources::default();
    let blocks = correlation_blocks(found, true, &mut sources);
    let verdict = format!(
        "{} over the runs, {} within a run.",
        counted_noun(found.across_runs.len(), "correlation"),
        found.within_runs.len()
    );
    Report {
        title: format!(
            "Correlations in {}",
            counted_noun(found.profiles as usize, "profile")
        ),
        answer: Some(Answer::of_verdict(AnswerState::Unknown, verdict)),
        chapters: vec![Chapter::of_blocks("correlations", "Correlations", blocks)],
        sources: sources.all,
        ..Report::default()
    }
}

fn correlation_blocks(
    found: &Correlations,
    across: bool,
    sources: &mut Sources,
) -> Vec<ContentBlock> {
    let across = found.across_runs.iter().filter(|_| across);
    let all = (across.map(|c| ("over the runs", c)))
        .chain(found.within_runs.iter().map(|c| ("within a run", c)));
    let rows = all.map(|(of, c)| (of, c, sources.note_source(source_of(of, c))));
    let rows: Vec<_> = rows.collect();
    let cell = |value: Option<f64>, c: &Correlation, id: SourceId| {
        let why = c.unknown.as_deref().unwrap_or("no data");
        cell_by(value, why, |v| unsigned_zero(format!("{v:.2}"))).from(id)
    };
    let table = TableBuilder::of_items(&rows)
        .words("points of", "points", |(of, ..)| *of)
        .words("figure", "x", |(_, c, _)| &c.x)
        .words("with", "y", |(_, c, _)| &c.y)
        .figures("points", "n", |(_, c, id)| {
            TableCell::number_cell(c.n as f64, c.n.to_string()).from(*id)
        })
        .figures("along a line (Pearson)", "pearson", |(_, c, id)| {
            cell(c.pearson, c, *id)
        })
        .figures("in order (Spearman)", "spearman", |(_, c, id)| {
            cell(c.spearman, c, *id)
        })
        .grid(
            "correlations",
            "Coefficients from -1 to 1; within runs the median over them",
        );
    let text = "That two figures move together does not mean that one makes the other.";
    vec![ContentBlock::Table(table), ContentBlock::Text(text.into())]
}

fn source_of(of: &str, c: &Correlation) -> FigureSource {
    FigureSource {
        title: format!("{} with {}, {of}", c.x, c.y),
        value: format!("{} points of {}", c.n, counted_noun(c.runs as usize, "run")),
        confidence: None,
        witnesses: vec![SourceDetail {
            kind: "statistics".into(),
            value: format!("{} points", c.n),
            quote: match of {
                "over the runs" => "one point for each run that knows both figures".into(),
                _ => "one point for each moment of the profile's timeline; the median of the runs' coefficients".into(),
            },
            place: None,
            used: true,
        }],
    }
}
