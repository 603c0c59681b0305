//! Heat maps of a sweep: a figure for each pair of settings that vary, failed cells with their cause.

use super::axes::{Axis, apart, varying};
use super::read::{KV_USED, PEAK, Sweep, THROUGHPUT, TTFT, Tried};
use crate::report::chapters::document::Figure;
use crate::report::chart::{self, Chart, Heat, Plot, Scale, Square};
use crate::report::layout;
use std::collections::HashMap;

/// What is drawn, and whether high figures are the bad ones.
static DRAWN: [(&Figure, bool); 4] = [
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
pub(super) fn maps(sweep: &Sweep, prefix: &str) -> (Vec<Chart>, usize) {
    let (mut charts, mut left_out) = (Vec::new(), 0);
    let models = sweep.models();
    for model in &models {
        let cells: Vec<&Tried> = sweep.cells.iter().filter(|c| c.model == *model).collect();
        let axes = varying(&cells);
        for (x, y) in pairs(&axes) {
            if x.values.len() > MOST_VALUES || y.values.len() > MOST_VALUES {
                left_out += 1;
                continue;
            }
            let rest: Vec<&Axis> = axes.iter().filter(|a| **a != *x && **a != *y).collect();
            let mut parts = apart(&cells, &rest);
            let all_in_one = parts.len() > MOST_APART;
            if all_in_one {
                let over: Vec<String> = rest.iter().map(|a| a.title()).collect();
                parts = vec![(over.join(", "), cells.clone())];
            }
            for (words, cells) in &parts {
                for (figure, high_is_bad) in DRAWN {
                    // Where nothing was measured, only the map of memory has the reason.
                    if cells.iter().all(|c| c.figure(figure).is_none()) && *figure != PEAK {
                        continue;
                    }
                    if charts.len() >= MOST_MAPS {
                        left_out += 1;
                        continue;
                    }
                    let model = (models.len() > 1).then_some(*model);
                    let within = (!all_in_one && !words.is_empty()).then_some(words.as_str());
                    let of: Vec<&str> = model.into_iter().chain(within).collect();
                    let mut title = capital(figure.title);
                    if !of.is_empty() {
                        title.push_str(&format!(": {}", of.join(", ")));
                    }
                    let (heat, torn) = heat(cells, figure, x, y, high_is_bad);
                    charts.push(Chart {
                        id: format!("{prefix}_map{}_{}", charts.len() + 1, figure.csv),
                        title,
                        note: note(all_in_one.then_some(words.as_str()), torn),
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
fn pairs(axes: &[Axis]) -> Vec<(&Axis, &Axis)> {
    let mut pairs: Vec<(usize, usize)> = (0..axes.len())
        .flat_map(|i| (i + 1..axes.len()).map(move |j| (i, j)))
        .collect();
    pairs.sort_by_key(|(i, j)| i + j);
    pairs
        .into_iter()
        .filter_map(|(i, j)| Some((axes.get(i)?, axes.get(j)?)))
        .collect()
}

fn note(over: Option<&str>, torn: usize) -> Option<String> {
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
fn heat(cells: &[&Tried], figure: &Figure, x: &Axis, y: &Axis, high_is_bad: bool) -> (Heat, usize) {
    let mut by_place: HashMap<(String, String), Vec<&Tried>> = HashMap::new();
    for cell in cells {
        let place = (x.of(cell), y.of(cell));
        by_place.entry(place).or_default().push(cell);
    }
    let mut torn = 0;
    let mut square = |x: &String, y: &String| {
        let Some(cells) = by_place.get(&(x.clone(), y.clone())) else {
            return Square::default();
        };
        let figures: Vec<f64> = cells.iter().filter_map(|c| c.figure(figure)).collect();
        match figures.iter().copied().reduce(f64::max) {
            Some(highest) => {
                let whole = figures.len() == cells.len();
                torn += usize::from(!whole);
                Square {
                    value: Some(highest),
                    text: format!("{}{}", short(figure, highest), if whole { "" } else { "*" }),
                }
            }
            None => Square {
                value: None,
                text: reasons(cells),
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
        x: (x.title(), x.values.clone()),
        y: (y.title(), rows.into_iter().cloned().collect()),
        figure: chart::Axis {
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
fn reasons(cells: &[&Tried]) -> String {
    let mut words: Vec<String> = Vec::new();
    for cell in cells {
        let word = if cell.done() {
            "not measured".to_owned()
        } else {
            cell.why()
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(3);
    words.join(" / ")
}

fn short(figure: &Figure, value: f64) -> String {
    match figure.unit {
        "GiB" => layout::unsigned_zero(format!("{value:.2}")),
        _ => layout::figure(value),
    }
}

/// With a capital letter in front.
pub(in crate::report::chapters) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}
