//! Throughput against latency: one chart for each workload of a sweep, one curve for each server configuration.

use super::axes::{SweepAxis, split_by_axes, varying_axes};
use super::curves::MOST_LINES;
use super::maps::capitalize_first;
use super::read::{LATENCY, SweepCell, SweepDocument, THROUGHPUT, TTFT};
use crate::report::chapters::document::DocumentFigure;
use crate::report::chart::front::{describe_front, is_on_front, pareto_front};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::layout::counted_words;

/// The latencies that are shown.
static LATENCIES: [&DocumentFigure; 2] = [&TTFT, &LATENCY];

/// Most charts of one sweep; more are counted in a note.
const MOST_CHARTS: usize = 12;

/// The charts, and how many were left out.
pub(super) fn pareto_charts(sweep: &SweepDocument, prefix: &str) -> (Vec<Chart>, usize) {
    let all: Vec<&SweepCell> = sweep.cells.iter().collect();
    let axes = varying_axes(&all);
    let is_load = |axis: &&SweepAxis| LOADS.iter().any(|l| axis.includes_setting(l.0));
    let is_workload = |axis: &&SweepAxis| {
        let lengths = ["input_len", "output_len"];
        !is_load(axis) && lengths.iter().any(|name| axis.includes_setting(name))
    };
    let workloads: Vec<&SweepAxis> = axes.iter().filter(is_workload).collect();
    let servers: Vec<&SweepAxis> = axes
        .iter()
        .filter(|axis| !is_load(axis) && !is_workload(axis))
        .collect();
    let models = sweep.model_names();
    let mut charts = Vec::new();
    for model in &models {
        let own: Vec<&SweepCell> = all.iter().copied().filter(|c| c.model == *model).collect();
        for (workload, cells) in split_by_axes(&own, &workloads) {
            let of: Vec<&str> = [*model, workload.as_str()]
                .into_iter()
                .skip(usize::from(models.len() < 2))
                .filter(|w| !w.is_empty())
                .collect();
            for figure in LATENCIES {
                let chart = pareto_chart(model, &cells, &servers, figure);
                charts.extend(chart.map(|chart| Chart {
                    id: format!("{prefix}_pareto{}_{}", charts.len() + 1, figure.csv),
                    title: if of.is_empty() {
                        chart.title
                    } else {
                        format!("{}: {}", chart.title, of.join(", "))
                    },
                    ..chart
                }));
            }
        }
    }
    let left_out = charts.len().saturating_sub(MOST_CHARTS);
    charts.truncate(MOST_CHARTS);
    (charts, left_out)
}

/// The settings that a load is raised by, and their words beside a point.
const LOADS: [(&str, &str); 2] = [("batch_size", "batch"), ("request_rate", "requests/s")];

/// `batch 8`.
fn load_label(cell: &SweepCell) -> Option<String> {
    let (name, word) = LOADS.iter().find(|l| cell.setting_number(l.0).is_some())?;
    Some(format!("{word} {}", cell.settings.get(*name)?))
}

fn pareto_chart(
    model: &str,
    cells: &[&SweepCell],
    servers: &[&SweepAxis],
    figure: &DocumentFigure,
) -> Option<Chart> {
    let curve = |(words, cells): (String, Vec<&SweepCell>)| {
        let mut points: Vec<(f64, Dot)> = (cells.iter())
            .filter_map(|cell| {
                let load = LOADS.iter().find_map(|l| cell.setting_number(l.0));
                let dot = Dot {
                    x: cell.figure_value(&THROUGHPUT)?,
                    y: cell.figure_value(figure)?,
                    range: None,
                    label: load_label(cell),
                };
                Some((load.unwrap_or(0.0), dot))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve {
            label: if words.is_empty() {
                model.to_owned()
            } else {
                words
            },
            points: points.into_iter().map(|p| p.1).collect(),
            joined: true,
        }
    };
    let lines = split_by_axes(cells, servers).into_iter().map(curve);
    let mut curves: Vec<Curve> = lines.filter(|c| !c.points.is_empty()).collect();
    if curves.iter().map(|c| c.points.len()).sum::<usize>() < 2 {
        return None;
    }
    let front = pareto_front(&curves);
    let mut note = describe_front(&curves, &front)?;
    // Of many configurations those on the front are drawn first.
    let misses_front = |c: &Curve| !c.points.iter().any(|d| is_on_front(&front, d));
    if curves.len() > MOST_LINES {
        curves.sort_by_key(misses_front);
        let dropped = curves.split_off(MOST_LINES).len();
        note.push_str(&format!(
            " {} not drawn.",
            counted_words(dropped, "more configuration is", "more configurations are")
        ));
    }
    let without = cells
        .iter()
        .filter(|c| c.figure_value(figure).is_none() || c.figure_value(&THROUGHPUT).is_none());
    let without = without.count();
    if without > 0 {
        note.push_str(&format!(
            " {} not drawn, for lack of these figures.",
            counted_words(without, "cell is", "cells are")
        ));
    }
    Some(Chart {
        title: format!(
            "{} against {}",
            capitalize_first(THROUGHPUT.title),
            figure.title
        ),
        note: Some(note),
        simulated: cells.iter().any(|c| c.simulated),
        id: String::new(),
        plot: Plot::Curves(Curves {
            x: axis(&THROUGHPUT),
            y: axis(figure),
            curves,
            front,
            ..Curves::default()
        }),
    })
}

fn axis(figure: &DocumentFigure) -> ChartAxis {
    ChartAxis {
        title: figure.title.into(),
        unit: figure.unit.into(),
        scale: Scale::FromZero,
    }
}
