//! Correlations over the runs and within them; only where there are runs enough.

use super::Sources;
use crate::compare::correlate::{Correlation, Correlations, FEWEST_POINTS};
use crate::profile::Profile;
use crate::report::content::{
    Answer, Chapter, ContentBlock, FigureSource, Grid, Report, SourceDetail, TableCell,
    number_column, text_column,
};
use crate::report::layout::{counted_noun, unsigned_zero};
use crate::report::material::Material;

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
        return Vec::new();
    };
    vec![Chapter {
        id: "correlations".into(),
        title: "Correlations".into(),
        details,
        ..Chapter::default()
    }]
}

/// The report of correlations alone.
pub fn correlations_report(found: &Correlations) -> Report {
    let mut sources = Sources::default();
    let blocks = correlation_blocks(found, true, &mut sources);
    Report {
        title: format!(
            "Correlations in {}",
            counted_noun(found.profiles as usize, "profile")
        ),
        answer: Some(Answer {
            verdict: format!(
                "{} over the runs, {} within a run.",
                counted_noun(found.across_runs.len(), "correlation"),
                found.within_runs.len()
            ),
            ..Answer::default()
        }),
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
    let mut rows = Vec::new();
    if across {
        let across = found.across_runs.iter();
        rows.extend(across.map(|c| correlation_row("over the runs", c, sources)));
    }
    let within = found.within_runs.iter();
    rows.extend(within.map(|c| correlation_row("within a run", c, sources)));
    let table = Grid {
        id: "correlations".into(),
        caption: "Coefficients from -1 to 1; within runs the median over them".into(),
        columns: vec![
            text_column("points of", "points"),
            text_column("figure", "x"),
            text_column("with", "y"),
            number_column("points", "n"),
            number_column("along a line (Pearson)", "pearson"),
            number_column("in order (Spearman)", "spearman"),
        ],
        rows,
    };
    let text = "That two figures move together does not mean that one makes the other.";
    vec![ContentBlock::Table(table), ContentBlock::Text(text.into())]
}

fn correlation_row(of: &str, c: &Correlation, sources: &mut Sources) -> Vec<TableCell> {
    let id = sources.note_source(FigureSource {
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
    });
    let cell = |value: Option<f64>| match value {
        Some(value) => TableCell::number_cell(value, unsigned_zero(format!("{value:.2}"))).from(id),
        None => TableCell::missing_cell(c.unknown.clone().unwrap_or_else(|| "no data".into())),
    };
    vec![
        TableCell::text_cell(of),
        TableCell::text_cell(&c.x),
        TableCell::text_cell(&c.y),
        TableCell::number_cell(c.n as f64, c.n.to_string()).from(id),
        cell(c.pearson),
        cell(c.spearman),
    ]
}
