//! Curves of a sweep: throughput, latency and memory over how much was asked for at once.

use super::axes::{SweepAxis, setting_label, split_by_axes, varying_axes};
use super::maps::capitalize_first;
use super::read::{LATENCY, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT};
use crate::report::chapters::document::DocumentFigure;
use crate::report::chart::{self, Chart, Curve, Curves, Dot, Plot, Scale};

static DRAWN: [&DocumentFigure; 4] = [&THROUGHPUT, &LATENCY, &TTFT, &PEAK];

/// What is across.
const ACROSS: [&str; 2] = ["batch_size", "request_rate"];

/// More lines in one picture cannot be distinguished.
pub(super) const MOST_LINES: usize = 8;
/// Most pictures of one sweep; more are counted in a note.
const MOST_CHARTS: usize = 36;

/// The charts, and how many were left out.
pub(super) fn sweep_curves(sweep: &SweepDocument, prefix: &str) -> (Vec<Chart>, usize) {
    let (mut charts, mut left_out) = (Vec::new(), 0);
    let all: Vec<&SweepCell> = sweep.cells.iter().collect();
    for name in ACROSS {
        let cells: Vec<&SweepCell> = all
            .iter()
            .copied()
            .filter(|c| c.setting_number(name).is_some())
            .collect();
        let axes = varying_axes(&cells);
        let Some(across) = axes.iter().find(|axis| axis.includes_setting(name)) else {
            continue;
        };
        let rest: Vec<&SweepAxis> = axes.iter().filter(|axis| *axis != across).collect();
        for (of, lines) in pictures(sweep, &cells, &rest) {
            for figure in DRAWN {
                let drawn: Vec<Curve> = lines
                    .iter()
                    .map(|(label, cells)| curve(label, cells, name, figure))
                    .filter(|curve| !curve.points.is_empty())
                    .collect();
                if drawn.iter().all(|curve| curve.points.len() < 2) {
                    continue;
                }
                if charts.len() >= MOST_CHARTS {
                    left_out += 1;
                    continue;
                }
                let mut title = format!(
                    "{} over {}",
                    capitalize_first(figure.title),
                    setting_label(name)
                );
                if !of.is_empty() {
                    title.push_str(&format!(": {of}"));
                }
                charts.push(Chart {
                    id: format!("{prefix}_curve{}_{}", charts.len() + 1, figure.csv),
                    title,
                    note: curve_note(across, name, &lines, figure),
                    simulated: lines.iter().any(|l| l.1.iter().any(|c| c.simulated)),
                    plot: Plot::Curves(Curves {
                        x: x_axis(name, &drawn),
                        y: chart::ChartAxis {
                            title: figure.title.into(),
                            unit: figure.unit.into(),
                            scale: Scale::FromZero,
                        },
                        curves: drawn,
                        ..Curves::default()
                    }),
                });
            }
        }
    }
    (charts, left_out)
}

type CurveLines<'a> = Vec<(String, Vec<&'a SweepCell>)>;

/// What goes into one picture: all lines where they are few, else those of one model, else of one
/// group, else this many at a time.
fn pictures<'a>(
    sweep: &SweepDocument,
    cells: &[&'a SweepCell],
    rest: &[&SweepAxis],
) -> Vec<(String, CurveLines<'a>)> {
    let models = sweep.model_names();
    let lines = |cells: &[&'a SweepCell], with_model: bool| -> CurveLines<'a> {
        let mut lines = Vec::new();
        for model in &models {
            let own: Vec<&SweepCell> = cells
                .iter()
                .copied()
                .filter(|c| c.model == *model)
                .collect();
            for (words, cells) in split_by_axes(&own, rest) {
                let parts: Vec<&str> = [*model, words.as_str()]
                    .into_iter()
                    .skip(usize::from(!with_model))
                    .filter(|w| !w.is_empty())
                    .collect();
                let label = if parts.is_empty() {
                    (*model).to_owned()
                } else {
                    parts.join(", ")
                };
                lines.push((label, cells));
            }
        }
        lines
    };
    let all = lines(cells, models.len() > 1);
    if all.len() <= MOST_LINES {
        return vec![(String::new(), all)];
    }
    let mut pictures = Vec::new();
    for model in &models {
        let own: Vec<&SweepCell> = cells
            .iter()
            .copied()
            .filter(|c| c.model == *model)
            .collect();
        let lines = lines(&own, false);
        let chunks = lines.len().div_ceil(MOST_LINES);
        for (i, chunk) in lines.chunks(MOST_LINES).enumerate() {
            let of = match chunks {
                1 => (*model).to_owned(),
                n => format!("{model}, {} of {n}", i + 1),
            };
            pictures.push((of, chunk.to_vec()));
        }
    }
    pictures
}

fn curve(label: &str, cells: &[&SweepCell], name: &str, figure: &DocumentFigure) -> Curve {
    let dot = |cell: &&SweepCell| {
        Some(Dot {
            x: cell.setting_number(name)?,
            y: cell.figure_value(figure)?,
            range: None,
            label: Some(format!("{} ({})", cell.load_words(), cell.id)),
        })
    };
    let mut points: Vec<Dot> = cells.iter().filter_map(dot).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Curve {
        label: label.to_owned(),
        points,
        joined: true,
    }
}

fn x_axis(name: &str, curves: &[Curve]) -> chart::ChartAxis {
    let all = || curves.iter().flat_map(|c| &c.points).map(|p| p.x);
    let lowest = all().fold(f64::INFINITY, f64::min);
    let highest = all().fold(f64::NEG_INFINITY, f64::max);
    chart::ChartAxis {
        title: setting_label(name),
        unit: String::new(),
        scale: if lowest > 0.0 && highest / lowest >= 8.0 {
            Scale::Log2
        } else {
            Scale::FromZero
        },
    }
}

/// What else changes along the line, and what could not be drawn.
fn curve_note(
    across: &SweepAxis,
    name: &str,
    lines: &CurveLines<'_>,
    figure: &DocumentFigure,
) -> Option<String> {
    let mut sentences = Vec::new();
    let others: Vec<String> = across
        .names
        .iter()
        .filter(|n| *n != name)
        .map(|n| setting_label(n))
        .collect();
    if !others.is_empty() {
        sentences.push(format!(
            "Along the lines changes as well: {}.",
            others.join(", ")
        ));
    }
    let cells = || lines.iter().flat_map(|line| &line.1);
    let mut causes: Vec<(String, usize)> = Vec::new();
    for cell in cells().filter(|c| c.figure_value(figure).is_none()) {
        let why = if cell.is_done() {
            "not measured".to_owned()
        } else {
            cell.failure_reason()
        };
        match causes.iter_mut().find(|c| c.0 == why) {
            Some(cause) => cause.1 += 1,
            None => causes.push((why, 1)),
        }
    }
    if !causes.is_empty() {
        let each: Vec<String> = causes.iter().map(|(why, n)| format!("{n} {why}")).collect();
        sentences.push(format!(
            "Without a figure, and not drawn: {}.",
            each.join(", ")
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}
