//! Charts of a sweep: throughput against latency, curves over how much was asked for at once, and heat
//! maps for each pair of settings that vary.

use super::axes::{SweepAxis, setting_label, split_by_axes, varying_axes};
use super::read::{CellFigure, KV_USED, LATENCY, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT};
use crate::report::chart::front::{describe_front, is_on_front, pareto_front};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Heat, Plot, Scale, Square};
use crate::report::layout::{
    capitalize_first, counted_words, distinct_items, format_figure, group_items, join_sentences,
    unsigned_zero,
};
use std::collections::HashMap;

/// Cells, and the words of what they have in common.
type NamedCells<'a> = (String, Vec<&'a SweepCell>);

/// Charts of one kind, while they are made.
pub(super) struct ChartList<'a> {
    prefix: &'a str,
    kind: &'static str,
    most: usize,
    /// The charts.
    pub(super) charts: Vec<Chart>,
    /// How many were left out, because there are too many.
    pub(super) left_out: usize,
}

impl ChartList<'_> {
    fn new<'a>(prefix: &'a str, kind: &'static str, most: usize) -> ChartList<'a> {
        ChartList {
            prefix,
            kind,
            most,
            charts: Vec::new(),
            left_out: 0,
        }
    }

    /// Adds a chart of a figure; its title ends with what it is of.
    fn add(
        &mut self,
        figure: &CellFigure,
        (title, of): (String, &[&str]),
        cells: &[&SweepCell],
        draw: impl FnOnce() -> (Option<String>, Plot),
    ) {
        if self.charts.len() >= self.most {
            self.left_out += 1;
            return;
        }
        let of: Vec<&str> = of.iter().copied().filter(|w| !w.is_empty()).collect();
        let title = match of.as_slice() {
            [] => title,
            of => format!("{title}: {}", of.join(", ")),
        };
        let (prefix, kind, n) = (self.prefix, self.kind, self.charts.len() + 1);
        let id = format!("{prefix}_{kind}{n}_{}", figure.key);
        let simulated = cells.iter().any(|c| c.simulated);
        let (note, plot) = draw();
        let chart = Chart::new_chart(id, title, note, simulated, plot);
        self.charts.push(chart);
    }
}

/// What maps show, and whether high figures are the bad ones.
const MAPPED: [(&CellFigure, bool); 4] = [
    (PEAK, true),
    (THROUGHPUT, false),
    (TTFT, true),
    (KV_USED, true),
];
/// Most maps of one sweep.
const MOST_MAPS: usize = 48;
/// Values along one side of a map.
const MOST_VALUES: usize = 40;
/// As many values of the other settings have a map each; of more, the highest figure is drawn.
const MOST_APART: usize = 4;

/// The heat maps.
pub(super) fn sweep_maps<'a>(sweep: &SweepDocument, prefix: &'a str) -> ChartList<'a> {
    let mut list = ChartList::new(prefix, "map", MOST_MAPS);
    let models = sweep.cells_by_model();
    for (model, cells) in &models {
        let axes = varying_axes(cells);
        for (x, y) in axis_pairs(&axes) {
            if x.values.len() > MOST_VALUES || y.values.len() > MOST_VALUES {
                list.left_out += 1;
                continue;
            }
            let rest: Vec<&SweepAxis> = axes.iter().filter(|a| **a != *x && **a != *y).collect();
            let mut parts = split_by_axes(cells, &rest);
            let mut over = None;
            if parts.len() > MOST_APART {
                let names: Vec<String> = rest.iter().map(|a| a.axis_title()).collect();
                let names = names.join(", ");
                over = Some(format!(
                    "Each square is the highest of its cells over {names}."
                ));
                parts = vec![(String::new(), cells.clone())];
            }
            for (within, cells) in &parts {
                for (figure, high_is_bad) in MAPPED {
                    // Where nothing was measured, only the map of memory has the reason.
                    let unknown = cells.iter().all(|c| c.figure_value(figure).is_none());
                    if unknown && figure.key != PEAK.key {
                        continue;
                    }
                    let model = if models.len() > 1 { model } else { "" };
                    let title = capitalize_first(figure.title);
                    list.add(figure, (title, &[model, within]), cells, || {
                        let (heat, torn) = heat_map(cells, figure, (x, y), high_is_bad);
                        let torn =
                            torn.then_some("With *: some cells of the square have no figure.");
                        let notes = over.as_deref().into_iter().chain(torn);
                        (join_sentences(notes), Plot::Heat(heat))
                    });
                }
            }
        }
    }
    list
}

/// Each pair once, those of the first axes first.
fn axis_pairs(axes: &[SweepAxis]) -> Vec<(&SweepAxis, &SweepAxis)> {
    let each = axes.iter().enumerate();
    let mut pairs: Vec<_> = each
        .flat_map(|(i, x)| (axes.iter().enumerate().skip(i + 1)).map(move |(j, y)| (i + j, x, y)))
        .collect();
    pairs.sort_by_key(|pair| pair.0);
    pairs.into_iter().map(|(_, x, y)| (x, y)).collect()
}

/// The map, and whether some of its squares have cells with a figure and cells without.
fn heat_map(
    cells: &[&SweepCell],
    figure: &CellFigure,
    (x, y): (&SweepAxis, &SweepAxis),
    high_is_bad: bool,
) -> (Heat, bool) {
    let mut by_place: HashMap<(String, String), Vec<&SweepCell>> = HashMap::new();
    for cell in cells {
        let place = (x.value_in_cell(cell), y.value_in_cell(cell));
        by_place.entry(place).or_default().push(cell);
    }
    let mut torn = false;
    let mut square = |x: &String, y: &String| {
        let Some(cells) = by_place.get(&(x.clone(), y.clone())) else {
            return Square::default();
        };
        let known = || cells.iter().filter_map(|c| c.figure_value(figure));
        let value = known().reduce(f64::max);
        let text = match value {
            Some(highest) => {
                let is_torn = known().count() < cells.len();
                torn |= is_torn;
                let mark = if is_torn { "*" } else { "" };
                let short = match figure.unit {
                    "GiB" => unsigned_zero(format!("{highest:.2}")),
                    _ => format_figure(highest),
                };
                format!("{short}{mark}")
            }
            None => {
                // Each reason once: `oom`, `oom / timeout`.
                let mut words = distinct_items(cells.iter().map(|c| c.failure_reason()));
                words.truncate(3);
                words.join(" / ")
            }
        };
        Square { value, text }
    };
    // Up is more.
    let rows: Vec<&String> = y.values.iter().rev().collect();
    let squares = rows.iter();
    let squares = squares.map(|y| x.values.iter().map(|x| square(x, y)).collect());
    let squares = squares.collect();
    let heat = Heat {
        x: (x.axis_title(), x.values.clone()),
        y: (y.axis_title(), rows.into_iter().cloned().collect()),
        figure: ChartAxis::new_axis(figure.title, figure.unit, Scale::Linear),
        squares,
        high_is_bad,
    };
    (heat, torn)
}

const CURVED: [&CellFigure; 4] = [THROUGHPUT, LATENCY, TTFT, PEAK];
/// The settings that a load is raised by, and their words beside a point.
const LOADS: [(&str, &str); 2] = [("batch_size", "batch"), ("request_rate", "requests/s")];
/// More lines in one picture cannot be distinguished.
const MOST_LINES: usize = 8;
/// Most curves of one sweep.
const MOST_CURVES: usize = 36;

/// The curves.
pub(super) fn sweep_curves<'a>(sweep: &SweepDocument, prefix: &'a str) -> ChartList<'a> {
    let mut list = ChartList::new(prefix, "curve", MOST_CURVES);
    for (name, _) in LOADS {
        let cells = sweep.cells.iter();
        let cells: Vec<_> = cells.filter(|c| c.setting_number(name).is_some()).collect();
        let axes = varying_axes(&cells);
        let Some(across) = axes.iter().find(|axis| axis.includes_setting(name)) else {
            continue;
        };
        let rest: Vec<&SweepAxis> = axes.iter().filter(|axis| *axis != across).collect();
        let others = across.names.iter().filter(|n| *n != name);
        let others: Vec<String> = others.map(|n| setting_label(n)).collect();
        for (of, lines) in pictures(sweep, name, &rest) {
            let cells: Vec<_> = lines.iter().flat_map(|l| l.1.iter().copied()).collect();
            for figure in CURVED {
                let drawn = lines.iter();
                let drawn = drawn.map(|(label, cells)| load_curve(label, cells, name, figure));
                let drawn: Vec<Curve> = drawn.filter(|c| !c.points.is_empty()).collect();
                if drawn.iter().all(|curve| curve.points.len() < 2) {
                    continue;
                }
                let label = setting_label(name);
                let title = format!("{} over {label}", capitalize_first(figure.title));
                list.add(figure, (title, &[&of]), &cells, || {
                    let others = others.join(", ");
                    let along = (!others.is_empty())
                        .then(|| format!("Along the lines changes as well: {others}."));
                    let missing = missing_words(&cells, figure);
                    let curves = Curves {
                        x: ChartAxis::axis_across(label, &drawn),
                        y: figure.chart_axis(),
                        curves: drawn,
                        ..Curves::default()
                    };
                    let note = join_sentences(along.into_iter().chain(missing));
                    (note, Plot::Curves(curves))
                });
            }
        }
    }
    list
}

/// What goes into one picture: all lines where they are few, else those of one model, this many at a
/// time.
fn pictures<'a>(
    sweep: &'a SweepDocument,
    name: &str,
    rest: &[&SweepAxis],
) -> Vec<(String, Vec<NamedCells<'a>>)> {
    let mut models = sweep.cells_by_model();
    for (_, cells) in &mut models {
        cells.retain(|c| c.setting_number(name).is_some());
    }
    let lines = |(model, cells): &(&str, Vec<&'a SweepCell>), with_model: bool| {
        let line = |(words, cells): NamedCells<'a>| match (with_model, words.as_str()) {
            (_, "") => ((*model).to_owned(), cells),
            (true, _) => (format!("{model}, {words}"), cells),
            (false, _) => (words, cells),
        };
        let lines = split_by_axes(cells, rest).into_iter().map(line);
        lines.collect::<Vec<NamedCells<'a>>>()
    };
    let several = models.len() > 1;
    let all: Vec<_> = models.iter().flat_map(|m| lines(m, several)).collect();
    if all.len() <= MOST_LINES {
        return vec![(String::new(), all)];
    }
    let mut pictures = Vec::new();
    for model in &models {
        let lines = lines(model, false);
        let chunks = lines.len().div_ceil(MOST_LINES);
        for (i, chunk) in lines.chunks(MOST_LINES).enumerate() {
            let of = match chunks {
                1 => model.0.to_owned(),
                n => format!("{}, {} of {n}", model.0, i + 1),
            };
            pictures.push((of, chunk.to_vec()));
        }
    }
    pictures
}

fn load_curve(label: &str, cells: &[&SweepCell], name: &str, figure: &CellFigure) -> Curve {
    let dot = |cell: &&SweepCell| {
        let label = format!("{} ({})", cell.load_words(), cell.id);
        let (x, y) = (cell.setting_number(name)?, cell.figure_value(figure)?);
        Some(Dot::new_dot(x, y, Some(label)))
    };
    let mut points: Vec<Dot> = cells.iter().filter_map(dot).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Curve::new_curve(label, points, true)
}

/// What could not be drawn, and why.
fn missing_words(cells: &[&SweepCell], figure: &CellFigure) -> Option<String> {
    let without = cells.iter().filter(|c| c.figure_value(figure).is_none());
    let causes = group_items(without, |cell| cell.failure_reason()).into_iter();
    let each = causes.map(|(why, cells)| format!("{} {why}", cells.len()));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("Without a figure, and not drawn: {}.", each.join(", ")))
}

/// Most Pareto charts of one sweep.
const MOST_FRONTS: usize = 12;

/// Throughput against latency: one chart for each workload, one curve for each server configuration.
pub(super) fn pareto_charts<'a>(sweep: &SweepDocument, prefix: &'a str) -> ChartList<'a> {
    let mut list = ChartList::new(prefix, "pareto", MOST_FRONTS);
    let all: Vec<&SweepCell> = sweep.cells.iter().collect();
    let axes = varying_axes(&all);
    let has_any =
        |axis: &SweepAxis, names: [&str; 2]| names.iter().any(|n| axis.includes_setting(n));
    let is_load = |axis: &&SweepAxis| has_any(axis, LOADS.map(|l| l.0));
    let others = axes.iter().filter(|axis| !is_load(axis));
    let (workloads, servers): (Vec<_>, Vec<_>) =
        others.partition(|axis| has_any(axis, ["input_len", "output_len"]));
    let models = sweep.cells_by_model();
    for (model, cells) in &models {
        for (workload, cells) in split_by_axes(cells, &workloads) {
            for figure in [TTFT, LATENCY] {
                let Some((note, curves)) = pareto_curves(model, &cells, &servers, figure) else {
                    continue;
                };
                let model = if models.len() > 1 { model } else { "" };
                let title = format!("Throughput against {}", figure.title);
                let draw = || (Some(note), Plot::Curves(curves));
                list.add(figure, (title, &[model, &workload]), &cells, draw);
            }
        }
    }
    list
}

/// `batch 8`.
fn load_label(cell: &SweepCell) -> Option<String> {
    let (name, word) = LOADS.iter().find(|l| cell.setting_number(l.0).is_some())?;
    Some(format!("{word} {}", cell.settings.get(*name)?))
}

fn pareto_curves(
    model: &str,
    cells: &[&SweepCell],
    servers: &[&SweepAxis],
    figure: &CellFigure,
) -> Option<(String, Curves)> {
    let curve = |(words, mut cells): NamedCells<'_>| {
        let load = |cell: &SweepCell| LOADS.iter().find_map(|l| cell.setting_number(l.0));
        cells.sort_by(|a, b| load(a).unwrap_or(0.0).total_cmp(&load(b).unwrap_or(0.0)));
        let dot = |cell: &&SweepCell| {
            let (x, y) = (cell.figure_value(THROUGHPUT)?, cell.figure_value(figure)?);
            Some(Dot::new_dot(x, y, load_label(cell)))
        };
        let label = if words.is_empty() { model } else { &words };
        Curve::new_curve(label, cells.iter().filter_map(dot).collect(), true)
    };
    let lines = split_by_axes(cells, servers).into_iter().map(curve);
    let mut curves: Vec<Curve> = lines.filter(|c| !c.points.is_empty()).collect();
    let drawn: usize = curves.iter().map(|c| c.points.len()).sum();
    if drawn < 2 {
        return None;
    }
    let front = pareto_front(&curves);
    let mut note = describe_front(&curves, &front)?;
    if curves.len() > MOST_LINES {
        // Of many configurations those on the front are drawn first.
        curves.sort_by_key(|c| !c.points.iter().any(|d| is_on_front(&front, d)));
        let dropped = curves.split_off(MOST_LINES).len();
        let words = counted_words(dropped, "more configuration is", "more configurations are");
        note += &format!(" {words} not drawn.");
    }
    if drawn < cells.len() {
        let words = counted_words(cells.len() - drawn, "cell is", "cells are");
        note += &format!(" {words} not drawn, for lack of these figures.");
    }
    let curves = Curves {
        x: THROUGHPUT.chart_axis(),
        y: figure.chart_axis(),
        curves,
        front,
        ..Curves::default()
    };
    Some((note, curves))
}
