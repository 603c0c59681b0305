//! Memory tables by device: the projection of a dry run (nothing is allocated) and the usage when
//! the engine ended. Whole MiB, truncated and not rounded.

use crate::engine::facts::{FactValue, key};
use crate::engine::log::Line;
use crate::engine::log::figures::{number, number_after, number_before};
use crate::engine::log::sheet::Sheet;
use std::collections::BTreeMap;

/// A row kept until it is known whether it is a projection or an allocation.
#[derive(Debug, Clone)]
struct Row {
    label: String,
    figures: BTreeMap<String, FactValue>,
    quote: String,
    at: Option<i64>,
    unaccounted: Option<f64>,
}

/// The last table.
#[derive(Debug, Clone, Default)]
pub struct Breakdown {
    rows: Vec<Row>,
    /// The last table of a dry run, when another one followed.
    projected: Vec<Row>,
    /// Whether an engine with allocated memory printed it.
    real: bool,
    /// Parameters are being fitted to the devices by dry runs.
    pub fitting: bool,
    fitted: bool,
}

fn mib(value: f64) -> FactValue {
    FactValue::Float(value / 1024.0)
}

impl Breakdown {
    /// Fitting begins.
    pub fn fit_begins(&mut self) {
        (self.fitting, self.fitted) = (true, true);
    }

    /// A line of `memory_breakdown_print`. `allocated`: the log showed a model with its memory.
    pub fn table(&mut self, text: &str, line: &Line<'_>, allocated: bool) {
        let cells: Vec<&str> = text.split('|').map(str::trim).collect();
        let [_, name, figures, ..] = cells.as_slice() else {
            return;
        };
        if name.starts_with("memory breakdown") {
            if !self.rows.is_empty() && !self.is_real() {
                self.projected = std::mem::take(&mut self.rows);
            }
            self.rows.clear();
            self.real = allocated && !self.fitting;
            return;
        }
        let (Some(name), true) = (name.strip_prefix("- "), self.rows.len() < 128) else {
            return;
        };
        let label = name.split(" (").next().unwrap_or(name).trim();
        let mut numbers = Vec::new();
        let mut rest = *figures;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit() || c == '-') {
            let Some((n, tail)) = number(&rest[at..]) else {
                return;
            };
            numbers.push(n.value);
            rest = tail;
        }
        let (parts, unaccounted) = match numbers.as_slice() {
            [_, _, parts @ .., unaccounted] if parts.len() == 4 => (parts, Some(*unaccounted)),
            parts if parts.len() == 4 => (parts, None),
            // Cut off.
            _ => return,
        };
        let names = ["self_gib", "model_gib", "context_gib", "compute_gib"];
        let mut figures: BTreeMap<String, FactValue> = names
            .iter()
            .zip(parts)
            .map(|(name, v)| ((*name).to_owned(), mib(*v)))
            .collect();
        if let ([total, free, ..], Some(_)) = (numbers.as_slice(), unaccounted) {
            figures.insert("device_total_gib".to_owned(), mib(*total));
            figures.insert("device_free_gib".to_owned(), mib(*free));
        }
        self.rows.retain(|r| r.label != label);
        self.rows.push(Row {
            label: label.to_owned(),
            figures,
            quote: line.quote(label),
            at: line.at,
            unaccounted,
        });
    }

    /// A line of `params_fit_impl`.
    pub fn projection(&mut self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        self.fitted = true;
        if let Some(n) = number_after(rest, "projected to use ") {
            let key = if rest.contains("of host memory") {
                "host_gib"
            } else {
                "total_gib"
            };
            sheet.entry(key::projection, key, mib(n.value), line);
        } else if let (Some(at), Some(n)) = (rest.find("- "), number_before(rest, " used,")) {
            if let Some((device, _)) = rest[at + 2..].split_once([' ', ':']) {
                let key = format!("{device}_used_gib");
                sheet.entry(key::projection, &key, mib(n.value), line);
            }
        }
    }

    /// Whether the table shows allocated memory.
    fn is_real(&self) -> bool {
        // More than the device had free cannot have been allocated.
        let impossible = self
            .rows
            .iter()
            .any(|r| r.unaccounted.is_some_and(|n| n < -8.0));
        self.real || !(self.fitted || impossible)
    }

    /// Writes the tables: `projection`, and `memory_breakdown` of an engine that ended.
    pub fn conclude(&self, sheet: &mut Sheet) {
        let key = if self.is_real() {
            key::memory_breakdown
        } else {
            key::projection
        };
        for (key, rows) in [(key::projection, &self.projected), (key, &self.rows)] {
            for row in rows {
                // A quote is a line already.
                let line = Line {
                    text: &row.quote,
                    at: row.at,
                    ..Line::default()
                };
                let mut figures = row.figures.clone();
                if let (true, Some(more)) = (key == key::memory_breakdown, row.unaccounted) {
                    figures.insert("unaccounted_gib".to_owned(), mib(more));
                }
                sheet.entry(key, &row.label, FactValue::Record(figures), &line);
            }
        }
        if !self.is_real() {
            return;
        }
        // The buffers' own lines are finer; they are printed at a higher verbosity only.
        for (part, key) in [
            ("model_gib", key::weights_gib),
            ("context_gib", key::kv_cache_gib),
            ("compute_gib", key::activation_peak_gib),
        ] {
            if sheet.get(key).is_some() {
                continue;
            }
            for row in &self.rows {
                let line = Line {
                    text: &row.quote,
                    at: row.at,
                    ..Line::default()
                };
                if let Some(value) = row.figures.get(part) {
                    sheet.entry(key, &row.label, value.clone(), &line);
                }
            }
        }
    }
}
