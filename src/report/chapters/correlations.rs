//! Correlations over the runs and within them; only where there are runs enough.

use super::Sources;
use super::figures::{number_column, text_column as column};
use crate::compare::correlate::{Correlation, Correlations, FEWEST_POINTS};
use crate::profile::Profile;
use crate::report::content::{Chapter, ContentBlock, FigureSource, Grid, SourceDetail, TableCell};
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
    let known = all().filter(|c| c.pearson.is_some()).count();
    let enough = profiles.len() as u64 >= FEWEST_POINTS;
    let mut blocks = Vec::new();
    if known > 0 || enough {
        let rows = |of: &str, list: &[Correlation], sources: &mut Sources| -> Vec<Vec<TableCell>> {
            list.iter()
                .map(|c| correlation_row(of, c, sources))
                .collect()
        };
        let mut all = if enough {
            rows("over the runs", &found.across_runs, sources)
        } else {
            Vec::new()
        };
        all.extend(rows("within a run", &found.within_runs, sources));
        blocks.push(ContentBlock::Table(Grid {
            id: "correlations".into(),
            caption: "Coefficients from -1 to 1; within runs the median over them".into(),
            columns: vec![
                column("", "points"),
                column("", "x"),
                column("with", "y"),
                number_column("points", "n"),
                number_column("along a line (Pearson)", "pearson"),
                number_column("in order (Spearman)", "spearman"),
            ],
            rows: all,
        }));
        let text = "That two figures move together does not say that one makes the other.";
        blocks.push(ContentBlock::Text(text.into()));
    }
    // A chapter that could only say that there are too few runs is left out.
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Chapter {
        id: "correlations".into(),
        title: "Correlations".into(),
        blocks,
    }]
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
