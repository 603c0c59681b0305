//! Heat maps of a sweep: a figure for each pair of settings that vary, failed cells with their cause.

use super::axes::{SweepAxis, split_by_axes, varying_axes};
use super::read::{KV_USED, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT};
use crate::report::chapters::document::DocumentFigure;
use crate::report::chart::{self, Chart, Heat, Plot, Scale, Square};
use crate::report::layout;
use std::collections::HashMap;

/// What is drawn, and whether high figures are the bad ones.
static DRAWN: [(&DocumentFigure, bool); 4] = [
    (&PEAK, true),
    (&THROUGHPUT, false),
    (&TTFT, true),
    (&KV_USED, true),
];

/// Most maps of one sweep; more are counted in a note.
const MOST_MAPS: usize = 48;
/// Values along one side of a map.
const MOST_VALUES: usize = 40;
/// As many values of the other settings have a map each; of more, the highest figure is drawn.
const MOST_APART: usize = 4;

/// The maps, and how many were left out.
pub(super) fn sweep_maps(sweep: &SweepDocument, prefix: &str) -> (Vec<Chart>, usize) {
    let (mut charts, mut left_out) = (Vec::new(), 0);
    let models = sweep.model_names();
    for model in &models {
        let cells: Vec<&SweepCell> = sweep.cells.iter().filter(|c| c.model == *model).collect();
        let axes = varying_axes(&cells);
        for (x, y) in pairs(&axes) {
            if x.values.len() > MOST_VALUES || y.values.len() > MOST_VALUES {
                left_out += 1;
                continue;
            }
            let rest: Vec<&SweepAxis> = axes.iter().filter(|a| **a != *x && **a != *y).collect();
            let mut parts = split_by_axes(&cells, &rest);
            let all_in_one = parts.len() > MOST_APART;
            if all_in_one {
                let over: Vec<String> = rest.iter().map(|a| a.axis_title()).collect();
                parts = vec![(over.join(", "), cells.clone())];
            }
            for (words, cells) in &parts {
                for (figure, high_is_bad) in DRAWN {
                    // Where nothing was measured, only the map of memory has the reason.
                    if cells.iter().all(|c| c.figure_value(figure).is_none()) && *figure != PEAK {
                        continue;
                    }
                    if charts.len() >= MOST_MAPS {
                        left_out += 1;
                        continue;
                    }
                    let model = (models.len() > 1).then_some(*model);
                    let within = (!all_in_one && !words.is_empty()).then_some(words.as_str());
                    let of: Vec<&str> = model.into_iter().chain(within).collect();
                    let mut title = capitalize_first(figure.title);
                    if !of.is_empty() {
                        title.push_str(&format!(": {}", of.join(", ")));
                    }
                    let (heat, torn) = heat(cells, figure, x, y, high_is_bad);
                    charts.push(Chart {
                        id: format!("{prefix}_map{}_{}", charts.len() + 1, figure.csv),
                        title,
                        note: map_note(all_in_one.then_some(words.as_str()), torn),
                        simulated: cells.iter().any(|c| c.simulated),
                        plot: Plot::Heat(heat),
                    });
                }
            }
        }
    }
    (charts, left_out)
}

/// Each pair once, those of the first axes first.
fn pairs(axes: &[SweepAxis]) -> Vec<(&SweepAxis, &SweepAxis)> {
    let mut pairs: Vec<(usize, usize)> = (0..axes.len())
        .flat_map(|i| (i + 1..axes.len()).map(move |j| (i, j)))
        .collect();
    pairs.sort_by_key(|(i, j)| i + j);
    pairs
        .into_iter()
        .filter_map(|(i, j)| Some((axes.get(i)?, axes.get(j)?)))
        .collect()
}

fn map_note(over: Option<&str>, torn: usize) -> Option<String> {
    let mut sentences = Vec::new();
    if let Some(over) = over {
        sentences.push(format!(
            "Each square is the highest of its cells over {over}."
        ));
    }
    if torn > 0 {
        sentences.push("With *: some cells of the square have no figure.".to_owned());
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The map, and how many of its squares have cells with a figure and cells without.
fn heat(
    cells: &[&SweepCell],
    figure: &DocumentFigure,
    x: &SweepAxis,
    y: &SweepAxis,
    high_is_bad: bool,
) -> (Heat, usize) {
    let mut by_place: HashMap<(String, String), Vec<&SweepCell>> = HashMap::new();
    for cell in cells {
        let place = (x.value_in_cell(cell), y.value_in_cell(cell));
        by_place.entry(place).or_default().push(cell);
    }
    let mut torn = 0;
    let mut square = |x: &String, y: &String| {
        let Some(cells) = by_place.get(&(x.clone(), y.clone())) else {
            return Square::default();
        };
        let figures: Vec<f64> = cells
            .iter()
            .filter_map(|c| c.figure_value(figure))
            .collect();
        match figures.iter().copied().reduce(f64::max) {
            Some(highest) => {
                let whole = figures.len() == cells.len();
                torn += usize::from(!whole);
                Square {
                    value: Some(highest),
                    text: format!(
                        "{}{}",
                        format_short(figure, highest),
                        if whole { "" } else { "*" }
                    ),
                }
            }
            None => Square {
                value: None,
                text: list_reasons(cells),
            },
        }
    };
    // Up is more.
    let rows: Vec<&String> = y.values.iter().rev().collect();
    let squares = rows
        .iter()
        .map(|y| x.values.iter().map(|x| square(x, y)).collect())
        .collect();
    let heat = Heat {
        x: (x.axis_title(), x.values.clone()),
        y: (y.axis_title(), rows.into_iter().cloned().collect()),
        figure: chart::ChartAxis {
            title: figure.title.into(),
            unit: figure.unit.into(),
            scale: Scale::Linear,
        },
        squares,
        high_is_bad,
    };
    (heat, torn)
}

/// Why none of these has a figure, each word once: `oom`, `oom / timeout`. One that was measured
/// lacks this figure only.
fn list_reasons(cells: &[&SweepCell]) -> String {
    let mut words: Vec<String> = Vec::new();
    for cell in cells {
        let word = if cell.is_done() {
            "not measured".to_owned()
        } else {
            cell.failure_reason()
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(3);
    words.join(" / ")
}

fn format_short(figure: &DocumentFigure, value: f64) -> String {
    match figure.unit {
        "GiB" => layout::unsigned_zero(format!("{value:.2}")),
        _ => layout::format_figure(value),
    }
}

/// With a capital letter in front.
pub(in crate::report::chapters) fn capitalize_first(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}
