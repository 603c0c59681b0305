//! What varies in a sweep: its axes, and which of them go together.

use super::read::{SweepCell, SweepDocument};
use std::collections::{BTreeMap, BTreeSet};

/// A setting that is not the same in all cells, or several that always change together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SweepAxis {
    /// Names of the settings.
    pub names: Vec<String>,
    /// Values as words, in order.
    pub values: Vec<String>,
}

/// The settings that people look at first; all others follow by alphabet.
const ORDER: &[&str] = &[
    "batch_size",
    "request_rate",
    "input_len",
    "output_len",
    "tensor_parallel_size",
    "gpu_memory_utilization",
    "max_model_len",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "enforce_eager",
];

/// Axes beyond this many are no axes of a picture.
const MOST: usize = 12;

/// Shown for a value that the file does not give.
const DEFAULT: &str = "default";

impl SweepAxis {
    /// Words: `batch size`, `prompt tokens / generated tokens`.
    pub fn axis_title(&self) -> String {
        let words: Vec<String> = self.names.iter().map(|n| setting_label(n)).collect();
        words.join(" / ")
    }

    /// Its title with a cell's value: `batch size 8`.
    pub fn words_in_cell(&self, cell: &SweepCell) -> String {
        format!("{} {}", self.axis_title(), self.value_in_cell(cell))
    }

    /// A cell's value.
    pub fn value_in_cell(&self, cell: &SweepCell) -> String {
        let values = self.names.iter().map(|name| cell_value(cell, name));
        values.collect::<Vec<&str>>().join(" / ")
    }

    /// Whether this setting is among its.
    pub fn includes_setting(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }
}

/// The settings of a cell's load.
const OF_LOAD: [&str; 4] = ["input_len", "output_len", "batch_size", "request_rate"];

/// Settings of a server that a sentence names.
const NAMED: usize = 3;

/// The axes that are settings of the server.
pub(super) fn server_axes(cells: &[&SweepCell]) -> Vec<SweepAxis> {
    let mut axes = varying_axes(cells);
    axes.retain(|axis| !axis.names.iter().all(|n| OF_LOAD.contains(&n.as_str())));
    axes
}

/// A cell among the others: `of org/A with dtype float16 at input 128, output 128 tokens, batch 8`. Of settings that
/// change together the first is named.
pub(crate) fn describe_cell(sweep: &SweepDocument, cell: &SweepCell) -> String {
    let cells: Vec<&SweepCell> = sweep.cells.iter().collect();
    let settings: Vec<String> = (server_axes(&cells).iter().take(NAMED))
        .filter_map(|axis| axis.names.first())
        .map(|name| format!("{} {}", setting_label(name), cell_value(cell, name)))
        .collect();
    let with = match settings.as_slice() {
        [] => String::new(),
        some => format!("with {} ", some.join(", ")),
    };
    let model = match sweep.cells_by_model().len() {
        0 | 1 => String::new(),
        _ => format!("of {} ", cell.model),
    };
    format!("{model}{with}at {}", cell.load_words())
}

fn cell_value<'a>(cell: &'a SweepCell, name: &str) -> &'a str {
    cell.settings.get(name).map_or(DEFAULT, String::as_str)
}

/// A setting in words.
pub(super) fn setting_label(name: &str) -> String {
    match name {
        "batch_size" => "batch size".into(),
        "request_rate" => "requests/s sent".into(),
        "input_len" => "prompt tokens".into(),
        "output_len" => "generated tokens".into(),
        name => name.replace('_', " "),
    }
}

/// Every setting that is not the same in all of these cells; those that change together are one.
pub(super) fn varying_axes(cells: &[&SweepCell]) -> Vec<SweepAxis> {
    let names: BTreeSet<&String> = cells.iter().flat_map(|c| c.settings.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_key(|n| ORDER.iter().position(|o| o == n).unwrap_or(ORDER.len()));
    let distinct = |pick: &dyn Fn(&SweepCell) -> (String, String)| {
        cells.iter().map(|c| pick(c)).collect::<BTreeSet<_>>().len()
    };
    let mut axes: Vec<SweepAxis> = Vec::new();
    for name in names {
        let own = distinct(&|c| (cell_value(c, name).to_owned(), String::new()));
        if own < 2 {
            continue;
        }
        if axes.len() >= MOST {
            break;
        }
        // As many pairs as values of either: each determines the other.
        let together = axes.iter_mut().find(|axis| {
            let pairs = distinct(&|c| (axis.value_in_cell(c), cell_value(c, name).to_owned()));
            pairs == own && pairs == distinct(&|c| (axis.value_in_cell(c), String::new()))
        });
        match together {
            Some(axis) => axis.names.push(name.clone()),
            None => axes.push(SweepAxis {
                names: vec![name.clone()],
                values: Vec::new(),
            }),
        }
    }
    for axis in &mut axes {
        axis.values = order_values(cells.iter().map(|c| axis.value_in_cell(c)));
    }
    axes
}

/// Each once: numbers by size, words by alphabet behind them.
pub(crate) fn order_values(values: impl Iterator<Item = String>) -> Vec<String> {
    let each: BTreeSet<String> = values.collect();
    let mut each: Vec<String> = each.into_iter().collect();
    each.sort_by(|a, b| sort_key(a).partial_cmp(&sort_key(b)).unwrap_or(a.cmp(b)));
    each
}

/// The numbers that a value is made of; words count as endless.
fn sort_key(value: &str) -> Vec<f64> {
    let number = |v: &str| v.parse::<f64>().ok().filter(|n| n.is_finite());
    let parts = value.split(" / ");
    parts.map(|v| number(v).unwrap_or(f64::MAX)).collect()
}

/// The same cells by what they have on these axes: words of it, and the cells.
pub(super) fn split_by_axes<'a>(
    cells: &[&'a SweepCell],
    axes: &[&SweepAxis],
) -> Vec<(String, Vec<&'a SweepCell>)> {
    let mut parts: BTreeMap<Vec<String>, Vec<&SweepCell>> = BTreeMap::new();
    for cell in cells {
        let values = axes.iter().map(|axis| axis.value_in_cell(cell)).collect();
        parts.entry(values).or_default().push(cell);
    }
    let order = |values: &[String]| -> Vec<f64> {
        let keys = values.iter().flat_map(|v| sort_key(v));
        keys.collect()
    };
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by(|a, b| {
        let sizes = order(&a.0).partial_cmp(&order(&b.0));
        sizes.unwrap_or(std::cmp::Ordering::Equal)
    });
    let parts = parts.into_iter().map(|(_, cells)| {
        let words = axes.iter().map(|axis| axis.words_in_cell(cells[0]));
        (words.collect::<Vec<String>>().join(", "), cells)
    });
    parts.collect()
}
