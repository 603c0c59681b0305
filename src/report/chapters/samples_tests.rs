//! Material for tests of chapters, and a chapter as plain text.

use crate::breakdown::{Component, Confidence, Part};
use crate::capture::{Capture, RunEnd};
use crate::profile::{Profile, derive_profile};
use crate::report::chart::{Chart, Plot};
use crate::report::content::{Chapter, ContentBlock};
use crate::report::layout::{Align, pad_left_aligned, pad_right_aligned, text_width};
use crate::report::material::ReportRun;
use crate::units::GIB;
use std::fmt::Write as _;

/// A run with these changes to a profile that knows nothing.
pub(super) fn sample_run(name: &str, change: impl FnOnce(&mut Profile)) -> ReportRun {
    let capture = Capture::default();
    let mut profile = derive_profile(&capture, std::iter::empty(), std::iter::empty());
    profile.metadata.outcome = RunEnd::Completed;
    profile.model_info.name = Some("org/Tiny-1B".into());
    profile.engine_metadata.engine_type = "vllm".into();
    change(&mut profile);
    ReportRun::of_profile(name.into(), Box::new(profile))
}

/// Sets the peak and its parts, GiB; what the parts leave is unexplained.
pub(super) fn set_parts(profile: &mut Profile, peak: f64, parts: &[(Component, f64)]) {
    let bytes = |gib: f64| (gib * GIB).round() as i64;
    let breakdown = &mut profile.memory_breakdown;
    breakdown.total_measured_bytes = Some(bytes(peak) as u64);
    breakdown.total_measured_gb = Some(peak);
    let rest = peak - parts.iter().map(|p| p.1).sum::<f64>();
    let all = parts
        .iter()
        .copied()
        .chain([(Component::Unexplained, rest)]);
    breakdown.components = all
        .map(|(component, gib)| Part {
            component,
            bytes: bytes(gib),
            gb: gib,
            percent: gib / peak * 100.0,
            confidence: Confidence("medium_measured_delta".into()),
        })
        .collect();
    breakdown.unexplained_bytes = Some(bytes(rest));
}

/// Chapters as a text for snapshots.
pub(super) fn render_plain(chapters: &[Chapter]) -> String {
    let mut out = String::new();
    for chapter in chapters {
        let _ = writeln!(out, "== {} [{}]", chapter.title, chapter.id);
        for block in &chapter.blocks {
            match block {
                ContentBlock::Text(text) => {
                    let _ = writeln!(out, "{text}");
                }
                ContentBlock::Note(note) => {
                    let code = note.code.as_deref().unwrap_or("-");
                    let _ = writeln!(out, "! {:?} {code}: {}", note.severity, note.message);
                }
                ContentBlock::Table(grid) => {
                    let _ = writeln!(out, "table {} [{}]", grid.caption, grid.id);
                    let heads: Vec<(&str, Align)> = grid
                        .columns
                        .iter()
                        .map(|c| {
                            (
                                c.title.as_str(),
                                if c.numeric { Align::Right } else { Align::Left },
                            )
                        })
                        .collect();
                    let mut table = TextTable::new(&heads);
                    for row in &grid.rows {
                        assert_eq!(row.len(), grid.columns.len(), "{}", grid.id);
                        table.add_row(
                            row.iter()
                                .map(|c| match &c.missing {
                                    Some(why) => format!("({why})"),
                                    None => c.text.clone(),
                                })
                                .collect(),
                        );
                    }
                    for line in table.render_lines() {
                        let _ = writeln!(out, "  {line}");
                    }
                }
                ContentBlock::Chart(chart) => plain_chart(&mut out, chart),
                other => {
                    let _ = writeln!(out, "{other:?}");
                }
            }
        }
    }
    out
}

fn plain_chart(out: &mut String, chart: &Chart) {
    let simulated = if chart.simulated { " SIMULATED" } else { "" };
    let _ = writeln!(out, "chart {} [{}]{simulated}", chart.title, chart.id);
    match &chart.plot {
        Plot::Heat(heat) => {
            let mut heads = vec![(heat.y.0.as_str(), Align::Left)];
            heads.extend(heat.x.1.iter().map(|x| (x.as_str(), Align::Right)));
            let mut table = TextTable::new(&heads);
            for (y, squares) in heat.y.1.iter().zip(&heat.squares) {
                let mut row = vec![y.clone()];
                row.extend(squares.iter().map(|s| s.text.clone()));
                table.add_row(row);
            }
            let _ = writeln!(
                out,
                "  {} {} over {}",
                heat.figure.title, heat.figure.unit, heat.x.0
            );
            for line in table.render_lines() {
                let _ = writeln!(out, "  {line}");
            }
        }
        Plot::Curves(curves) => {
            let _ = writeln!(
                out,
                "  {} {} over {} ({:?})",
                curves.y.title, curves.y.unit, curves.x.title, curves.x.scale
            );
            for curve in &curves.curves {
                let points: Vec<String> = curve
                    .points
                    .iter()
                    .map(|p| match p.range {
                        Some((low, high)) => format!("{}: {:.2} ({low:.2} to {high:.2})", p.x, p.y),
                        None => format!("{}: {:.2}", p.x, p.y),
                    })
                    .collect();
                let _ = writeln!(out, "  {} = {}", curve.label, points.join(", "));
            }
            for (level, words) in &curves.levels {
                let _ = writeln!(out, "  line at {level}: {words}");
            }
        }
        // No run of these tests has samples.
        Plot::Timeline(timeline) => assert!(timeline.lanes.is_empty()),
        Plot::Bars(bars) => {
            for bar in &bars.bars {
                let segments: Vec<String> = bar
                    .segments
                    .iter()
                    .map(|s| format!("{} {:.3}", bars.parts[s.part].label, s.value))
                    .collect();
                let _ = writeln!(
                    out,
                    "  {}: {} limit {:?}",
                    bar.label,
                    segments.join(", "),
                    bar.limit
                );
            }
        }
    }
    if let Some(note) = &chart.note {
        let _ = writeln!(out, "  ({note})");
    }
}

/// Rows in columns, two spaces apart. The first row is the head.
#[derive(Debug, Clone)]
struct TextTable {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these columns.
    fn new(columns: &[(&str, Align)]) -> TextTable {
        TextTable {
            align: columns.iter().map(|c| c.1).collect(),
            rows: vec![columns.iter().map(|c| c.0.to_owned()).collect()],
        }
    }

    /// Adds a row.
    fn add_row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, the head first, without trailing spaces.
    fn render_lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.align.len())
            .map(|i| {
                self.rows
                    .iter()
                    .filter_map(|r| r.get(i))
                    .map(|cell| text_width(cell))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        self.rows
            .iter()
            .map(|row| {
                let cells: Vec<String> = row
                    .iter()
                    .zip(self.align.iter().zip(&widths))
                    .map(|(cell, (align, w))| match align {
                        Align::Left => pad_left_aligned(cell, *w),
                        Align::Right => pad_right_aligned(cell, *w),
                    })
                    .collect();
                cells.join("  ").trim_end().to_owned()
            })
            .collect()
    }
}
