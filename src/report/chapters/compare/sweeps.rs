//! Two sweeps side by side, cell by cell: the same id, else the same model under the same load.

use super::{ONE_SIDED, change, change_in_percent};
use crate::engine::facts::Severity;
use crate::profile::stats::quantile_of_sorted;
use crate::report::chapters::sweep::read::{
    CellFigure, LATENCY, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT,
};
use crate::report::chapters::sweep::{list_few, order_values};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::note_block;
use crate::report::content::{ContentBlock, Grid};
use crate::report::figures::change_cell;
use crate::report::layout;
use crate::report::layout::counted_words;
use crate::report::material::StoredDocument;
use crate::report::tables::{TableBuilder, format_in_unit, word_or_reason};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is held against each other.
const HELD: [&CellFigure; 4] = [PEAK, THROUGHPUT, LATENCY, TTFT];

/// Cells of one side only that are named.
const NAMED: usize = 20;

pub(super) fn sweep_blocks(a: &StoredDocument, b: &StoredDocument) -> Vec<ContentBlock> {
    let (a_name, b_name) = (&a.name, &b.name);
    let (a, b) = (
        SweepDocument::read_sweep(&a.document, a_name),
        SweepDocument::read_sweep(&b.document, b_name),
    );
    let matched = Matched::match_cells(&a, &b);
    let mut blocks = vec![
        ContentBlock::Text(format!("A is the sweep {} in {a_name}.", a.name)),
        ContentBlock::Text(format!("B is the sweep {} in {b_name}.", b.name)),
    ];
    if a.is_simulated() != b.is_simulated() {
        blocks.push(note_block(
            Severity::Error,
            "not_comparable",
            "one of them is of a simulated engine or device",
        ));
    }
    if matched.pairs.is_empty() {
        blocks.push(note_block(
            Severity::Error,
            "not_comparable",
            "they have no cell in common: neither an id, nor a model under the same load and settings",
        ));
    } else {
        blocks.push(ContentBlock::Text(in_common(&matched)));
        blocks.extend(
            HELD.iter()
                .filter_map(|f| moved(&matched, f))
                .map(ContentBlock::Text),
        );
    }
    blocks.extend(settings_table(&a, &b).map(ContentBlock::Table));
    blocks.extend(
        [PEAK, THROUGHPUT]
            .into_iter()
            .filter_map(|f| against(&matched, f))
            .map(ContentBlock::Chart),
    );
    if !matched.pairs.is_empty() {
        blocks.push(ContentBlock::Table(cells_table(&matched)));
    }
    for (letter, alone) in [("A", &matched.only_a), ("B", &matched.only_b)] {
        blocks.extend(only(letter, alone).map(ContentBlock::Text));
    }
    blocks
}

/// Cells of both, and of one only.
#[derive(Default)]
struct Matched<'a> {
    pairs: Vec<(&'a SweepCell, &'a SweepCell)>,
    /// How many of them have not the same id.
    by_load: usize,
    only_a: Vec<&'a SweepCell>,
    only_b: Vec<&'a SweepCell>,
}

impl<'a> Matched<'a> {
    fn match_cells(a: &'a SweepDocument, b: &'a SweepDocument) -> Matched<'a> {
        let mut matched = Matched::default();
        let mut taken = vec![false; b.cells.len()];
        let by = |key: &dyn Fn(&SweepCell) -> String| {
            let mut found: HashMap<String, Vec<usize>> = HashMap::new();
            for (i, cell) in b.cells.iter().enumerate().rev() {
                found.entry(key(cell)).or_default().push(i);
            }
            found
        };
        let mut by_id = by(&|c| c.id.clone());
        let mut by_load = by(&describe_load);
        let mut left = Vec::new();
        let mut pairs: BTreeMap<usize, usize> = BTreeMap::new();
        for (i, cell) in a.cells.iter().enumerate() {
            let same = by_id.get_mut(&cell.id).filter(|_| !cell.id.is_empty());
            match same.and_then(Vec::pop) {
                Some(other) => {
                    if let Some(taken) = taken.get_mut(other) {
                        *taken = true;
                    }
                    pairs.insert(i, other);
                }
                None => left.push(i),
            }
        }
        for i in left {
            let Some(cell) = a.cells.get(i) else { continue };
            let same = by_load.entry(describe_load(cell)).or_default();
            same.retain(|j| taken.get(*j) == Some(&false));
            match same.pop() {
                Some(other) => {
                    if let Some(taken) = taken.get_mut(other) {
                        *taken = true;
                    }
                    matched.by_load += 1;
                    pairs.insert(i, other);
                }
                None => matched.only_a.push(cell),
            }
        }
        let cells = pairs.into_iter();
        matched.pairs = cells
            .filter_map(|(i, j)| a.cells.get(i).zip(b.cells.get(j)))
            .collect();
        let alone = b.cells.iter().zip(taken).filter(|(_, taken)| !taken);
        matched.only_b = alone.map(|(cell, _)| cell).collect();
        matched
    }

    /// The figures of the cells that both have measured.
    fn both(&self, figure: &CellFigure) -> Vec<(f64, f64, &'a SweepCell)> {
        let each = self.pairs.iter();
        each.filter_map(|(a, b)| Some((a.figure_value(figure)?, b.figure_value(figure)?, *a)))
            .collect()
    }
}

/// The model, its settings and its load in words; where it ran, and in which image, may differ.
fn describe_load(cell: &SweepCell) -> String {
    const PLACE: [&str; 2] = ["container", "image"];
    let settings = cell.settings.iter();
    let settings: Vec<String> = settings
        .filter(|(name, _)| !PLACE.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!("{}\n{}", cell.model, settings.join("\n"))
}

fn in_common(matched: &Matched<'_>) -> String {
    let n = matched.pairs.len();
    let mut text = format!("{} in both", counted_words(n, "cell is", "cells are"));
    if matched.by_load > 0 {
        text.push_str(&format!(
            ", {} of them by model, settings and load: their ids differ",
            matched.by_load
        ));
    }
    let otherwise = matched.pairs.iter().filter(|(a, b)| a.status != b.status);
    let otherwise = otherwise.count();
    if otherwise > 0 {
        text.push_str(&format!(
            "; {} otherwise in B than in A",
            counted_words(otherwise, "cell ended", "cells ended")
        ));
    }
    text.push('.');
    text
}

/// How a figure moved over all cells, in a sentence.
fn moved(matched: &Matched<'_>, figure: &CellFigure) -> Option<String> {
    let both = matched.both(figure);
    let changes = both
        .iter()
        .filter_map(|(a, b, _)| change(Some(*a), Some(*b)));
    let mut changes: Vec<f64> = changes.collect();
    changes.sort_by(f64::total_cmp);
    let median = quantile_of_sorted(&changes, 0.5)?;
    let (lowest, highest) = (changes.first()?, changes.last()?);
    let sign = |p: f64| crate::report::figures::percent_text(p);
    Some(format!(
        "{} moved by {} % in the median of {} ({} to {} %).",
        layout::capitalize_first(figure.title),
        sign(median),
        counted_words(changes.len(), "cell", "cells"),
        sign(*lowest),
        sign(*highest)
    ))
}

/// Which settings were swept otherwise.
fn settings_table(a: &SweepDocument, b: &SweepDocument) -> Option<Grid> {
    let values = |sweep: &SweepDocument| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut put = |name: &str, value: &str| {
            all.entry(name.to_owned())
                .or_default()
                .insert(value.to_owned());
        };
        for cell in &sweep.cells {
            put("model", &cell.model);
            for (name, value) in &cell.settings {
                put(name, value);
            }
            for (name, value) in [("engine", &cell.engine), ("measured by", &cell.backend)] {
                if let Some(value) = value.as_ref().filter(|_| cell.is_done()) {
                    put(name, value);
                }
            }
        }
        all
    };
    let (of_a, of_b) = (values(a), values(b));
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let cell = |values: Option<&BTreeSet<String>>| {
        let values = values.map(|values| list_few(&order_values(values.iter().cloned())));
        word_or_reason(values, "not set in any cell")
    };
    TableBuilder::of_items(names.into_iter().filter(|n| of_a.get(*n) != of_b.get(*n)))
        .words("setting", "setting", |n| n)
        .cells("A", "a", |n| cell(of_a.get(n)))
        .cells("B", "b", |n| cell(of_b.get(n)))
        .grid_of_rows("compare_settings", "Settings that differ")
}

/// A point for each cell: A across, B up.
fn against(matched: &Matched<'_>, figure: &CellFigure) -> Option<Chart> {
    let both = matched.both(figure);
    let highest = both.iter().map(|(a, b, _)| a.max(*b)).reduce(f64::max)?;
    let dots = both.iter().map(|(a, b, cell)| {
        let label = format!("{}, {} ({})", cell.model, cell.load_words(), cell.id);
        Dot::new_dot(*a, *b, Some(label))
    });
    let axis = |letter: &str| {
        let title = format!("{} in {letter}", figure.title);
        ChartAxis::new_axis(title, figure.unit, Scale::FromZero)
    };
    let equal = [0.0, highest].map(|v| Dot::new_dot(v, v, None));
    let without = matched.pairs.len() - both.len();
    let note = (without > 0).then(|| {
        let cells = counted_words(without, "cell is", "cells are");
        format!("{cells} not drawn: not measured in both.")
    });
    let what = layout::capitalize_first(figure.title);
    let title = format!("{what} of the same cells, B against A");
    let mut pairs = matched.pairs.iter();
    let simulated = pairs.any(|(a, b)| a.simulated || b.simulated);
    let plot = Plot::Curves(Curves {
        x: axis("A"),
        y: axis("B"),
        curves: vec![
            Curve::new_curve("cells", dots.collect(), false),
            Curve::new_curve("B as A", equal.to_vec(), true),
        ],
        ..Curves::default()
    });
    let id = format!("compare_{}", figure.key);
    Some(Chart::new_chart(id, title, note, simulated, plot))
}

fn cells_table(matched: &Matched<'_>) -> Grid {
    let status = |cell: &SweepCell| match cell.status.as_str() {
        "done" => "done".to_owned(),
        _ => cell.failure_reason(),
    };
    let mut table = TableBuilder::of_items(matched.pairs.iter().copied())
        .words("model", "model", |(a, _)| &a.model)
        .words("load", "load", |(a, _)| a.load_words())
        .words("A", "a_status", |(a, _)| status(a))
        .words("B", "b_status", |(_, b)| status(b));
    // A figure that no pair has gets no column.
    let known = |f: &&CellFigure| {
        let mut cells = matched.pairs.iter().flat_map(|(a, b)| [a, b]);
        cells.any(|cell| cell.figure_value(f).is_some())
    };
    for f in HELD.into_iter().filter(known) {
        let value = |cell: &SweepCell| f.table_cell(cell.figure_value(f), &cell.failure_reason());
        let moved = |a: &SweepCell, b: &SweepCell| Some(b.figure_value(f)? - a.figure_value(f)?);
        let (head, key) = (f.column_head(), f.key);
        table = table
            .figures(&format!("{head} A"), &format!("a_{key}"), |(a, _)| value(a))
            .figures(&format!("{head} B"), &format!("b_{key}"), |(_, b)| value(b))
            .figures(
                &format!("{head} B - A"),
                &format!("diff_{key}"),
                |(a, b)| change_cell(moved(a, b), ONE_SIDED, |v| format_in_unit(v, f.unit)),
            )
            .figures("%", &format!("diff_pct_{key}"), |(a, b)| {
                change_in_percent(a.figure_value(f), b.figure_value(f))
            });
    }
    table
        .words("cell A", "a_cell", |(a, _)| &a.id)
        .words("cell B", "b_cell", |(_, b)| &b.id)
        .grid("compare_cells", "Cells in both")
}

fn only(letter: &str, cells: &[&SweepCell]) -> Option<String> {
    let named: Vec<String> = cells
        .iter()
        .take(NAMED)
        .map(|c| format!("{} {} ({})", c.model, c.load_words(), c.id))
        .collect();
    let more = if cells.len() > NAMED { ", …" } else { "" };
    (!cells.is_empty()).then(|| {
        format!(
            "{} in {letter} only: {}{more}.",
            counted_words(cells.len(), "cell is", "cells are"),
            named.join("; ")
        )
    })
}
