//! Two sweeps side by side, cell by cell: the same id, else the same model under the same load.

use super::{ONE_SIDED, change_in_percent};
use crate::compare::difference_percent;
use crate::engine::facts::Severity;
use crate::profile::stats::quantile_of_sorted;
use crate::report::chapters::sweep::read::{
    CellFigure, LATENCY, PEAK, SweepCell, SweepDocument, THROUGHPUT, TTFT,
};
use crate::report::chapters::sweep::{list_few, order_values};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{ContentBlock, Grid, note_block, number_column};
use crate::report::figures::{change_cell, percent_text};
use crate::report::layout::{capitalize_first, counted_noun, counted_words, join_first};
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
        format!("A is the sweep {} in {a_name}.", a.name).into(),
        format!("B is the sweep {} in {b_name}.", b.name).into(),
    ];
    let not_comparable = |why: &str| note_block(Severity::Error, "not_comparable", why);
    if a.is_simulated() != b.is_simulated() {
        blocks.push(not_comparable(
            "one of them is of a simulated engine or device",
        ));
    }
    if matched.pairs.is_empty() {
        blocks.push(not_comparable("they have no cell in common: neither an id, nor a model under the same load and settings"));
    } else {
        blocks.push(in_common(&matched).into());
        let moved = HELD.iter().filter_map(|f| moved(&matched, f));
        blocks.extend(moved.map(ContentBlock::Text));
    }
    blocks.extend(settings_table(&a, &b).map(ContentBlock::Table));
    let drawn = [PEAK, THROUGHPUT].into_iter();
    let drawn = drawn.filter_map(|f| against(&matched, f));
    blocks.extend(drawn.map(ContentBlock::Chart));
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
        let by = |key: &dyn Fn(&SweepCell) -> String| {
            let mut found: HashMap<String, Vec<usize>> = HashMap::new();
            for (i, cell) in b.cells.iter().enumerate().rev() {
                found.entry(key(cell)).or_default().push(i);
            }
            found
        };
        let mut by_id = by(&|c| c.id.clone());
        let with_same_id = |cell: &SweepCell| {
            let same = by_id.get_mut(&cell.id).filter(|_| !cell.id.is_empty());
            same.and_then(Vec::pop)
        };
        // For each cell of A the one of B. Those with the same id come before those with the same load.
        let mut others: Vec<Option<usize>> = a.cells.iter().map(with_same_id).collect();
        let mut taken: BTreeSet<usize> = others.iter().copied().flatten().collect();
        let by_id = taken.len();
        let mut by_load = by(&describe_load);
        for (cell, other) in a.cells.iter().zip(&mut others) {
            if other.is_none() {
                let same = by_load.entry(describe_load(cell)).or_default();
                same.retain(|j| !taken.contains(j));
                *other = same.pop();
                taken.extend(*other);
            }
        }
        let mut matched = Matched {
            by_load: taken.len() - by_id,
            ..Matched::default()
        };
        for (cell, other) in a.cells.iter().zip(others) {
            match other {
                Some(other) => matched.pairs.push((cell, &b.cells[other])),
                None => matched.only_a.push(cell),
            }
        }
        let alone = b.cells.iter().enumerate();
        let alone = alone.filter(|(i, _)| !taken.contains(i));
        matched.only_b = alone.map(|(_, cell)| cell).collect();
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
    let settings = settings.filter(|(name, _)| !PLACE.contains(&name.as_str()));
    let settings: Vec<String> = settings.map(|(n, v)| format!("{n}={v}")).collect();
    format!("{}\n{}", cell.model, settings.join("\n"))
}

fn in_common(matched: &Matched<'_>) -> String {
    let n = matched.pairs.len();
    let mut text = format!("{} in both", counted_words(n, "cell is", "cells are"));
    if matched.by_load > 0 {
        let n = matched.by_load;
        text += &format!(", {n} of them by model, settings and load: their ids differ");
    }
    let otherwise = matched.pairs.iter().filter(|(a, b)| a.status != b.status);
    let otherwise = otherwise.count();
    if otherwise > 0 {
        let ended = counted_words(otherwise, "cell ended", "cells ended");
        text += &format!("; {ended} otherwise in B than in A");
    }
    text + "."
}

/// How a figure moved over all cells, in a sentence.
fn moved(matched: &Matched<'_>, figure: &CellFigure) -> Option<String> {
    let both = matched.both(figure).into_iter();
    let changes = both.filter_map(|(a, b, _)| difference_percent(a, b));
    let mut changes: Vec<f64> = changes.collect();
    changes.sort_by(f64::total_cmp);
    let of_all = [0.5, 0.0, 1.0].map(|q| quantile_of_sorted(&changes, q).map(percent_text));
    let [Some(median), Some(lowest), Some(highest)] = of_all else {
        return None;
    };
    let (what, cells) = (
        capitalize_first(figure.title),
        counted_noun(changes.len(), "cell"),
    );
    Some(format!(
        "{what} moved by {median} % in the median of {cells} ({lowest} to {highest} %)."
    ))
}

/// Which settings were swept otherwise.
fn settings_table(a: &SweepDocument, b: &SweepDocument) -> Option<Grid> {
    let values = |sweep: &SweepDocument| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut put = |name: &str, value: &str| {
            let values = all.entry(name.to_owned()).or_default();
            values.insert(value.to_owned());
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
    let what = capitalize_first(figure.title);
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
        let text = |v: f64| format_in_unit(v, f.unit);
        let (head, key) = (f.column_head(), f.key);
        let difference = number_column(format!("{head} B - A"), &format!("diff_{key}"));
        table = table
            .figures(&format!("{head} A"), &format!("a_{key}"), |(a, _)| value(a))
            .figures(&format!("{head} B"), &format!("b_{key}"), |(_, b)| value(b))
            .column(difference, |(a, b)| {
                change_cell(moved(a, b), ONE_SIDED, text)
            })
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
    let name = |c: &&SweepCell| format!("{} {} ({})", c.model, c.load_words(), c.id);
    let named = join_first(cells, NAMED, "; ", name, |_| ", …".into());
    let counted = counted_words(cells.len(), "cell is", "cells are");
    (!cells.is_empty()).then(|| format!("{counted} in {letter} only: {named}."))
}
