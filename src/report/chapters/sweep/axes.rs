//! What varies in a sweep: its axes, and which of them go together.

use super::read::SweepCell;
use std::collections::BTreeSet;

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

    /// A cell's value.
    pub fn value_in_cell(&self, cell: &SweepCell) -> String {
        let values: Vec<&str> = self
            .names
            .iter()
            .map(|name| cell_value(cell, name))
            .collect();
        values.join(" / ")
    }

    /// Whether this setting is among its.
    pub fn includes_setting(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }
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
    let names: BTreeSet<&str> = cells
        .iter()
        .flat_map(|c| c.settings.keys().map(String::as_str))
        .collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|n| ORDER.iter().position(|o| o == n).unwrap_or(ORDER.len()));
    let distinct = |pick: &dyn Fn(&SweepCell) -> (String, String)| {
        let all: BTreeSet<(String, String)> = cells.iter().map(|c| pick(c)).collect();
        all.len()
    };
    let mut axes: Vec<SweepAxis> = Vec::new();
    for name in names {
        let one = |cell: &SweepCell| (cell_value(cell, name).to_owned(), String::new());
        let own = distinct(&one);
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
            Some(axis) => axis.names.push(name.to_owned()),
            None => axes.push(SweepAxis {
                names: vec![name.to_owned()],
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
pub(in crate::report::chapters) fn order_values(
    values: impl Iterator<Item = String>,
) -> Vec<String> {
    let each: BTreeSet<String> = values.collect();
    let mut each: Vec<String> = each.into_iter().collect();
    each.sort_by(|a, b| sort_key(a).partial_cmp(&sort_key(b)).unwrap_or(a.cmp(b)));
    each
}

/// The numbers that a value is made of; words count as endless.
fn sort_key(value: &str) -> Vec<f64> {
    let number = |v: &str| v.parse::<f64>().ok().filter(|n| n.is_finite());
    value
        .split(" / ")
        .map(|v| number(v).unwrap_or(f64::MAX))
        .collect()
}

/// The same cells by what they have on these axes: words of it, and the cells.
pub(super) fn split_by_axes<'a>(
    cells: &[&'a SweepCell],
    axes: &[&SweepAxis],
) -> Vec<(String, Vec<&'a SweepCell>)> {
    let mut parts: Vec<(Vec<String>, Vec<&SweepCell>)> = Vec::new();
    let mut at: std::collections::HashMap<Vec<String>, usize> = std::collections::HashMap::new();
    for cell in cells {
        let values: Vec<String> = axes.iter().map(|axis| axis.value_in_cell(cell)).collect();
        let i = *at.entry(values.clone()).or_insert_with(|| {
            parts.push((values, Vec::new()));
            parts.len() - 1
        });
        if let Some(part) = parts.get_mut(i) {
            part.1.push(cell);
        }
    }
    parts.sort_by(|a, b| {
        let order = |v: &[String]| v.iter().flat_map(|v| sort_key(v)).collect::<Vec<f64>>();
        let sizes = order(&a.0).partial_cmp(&order(&b.0));
        sizes
            .unwrap_or(std::cmp::Ordering::Equal)
            .then(a.0.cmp(&b.0))
    });
    let words = |values: &[String]| {
        let pairs = axes.iter().zip(values);
        let each: Vec<String> = pairs
            .map(|(axis, v)| format!("{} {v}", axis.axis_title()))
            .collect();
        each.join(", ")
    };
    parts
        .into_iter()
        .map(|(values, cells)| (words(&values), cells))
        .collect()
}
