//! A sweep's groups as they were measured against what is calculated of them, where the profiles
//! of its cells were read beside it.

use super::read::{SweepCell, SweepDocument};
use crate::compare::calculated::Item;
use crate::compare::validate::RunValidation;
use crate::profile::stats::quantile_of_sorted;
use crate::report::content::Grid;
use crate::report::figures::{gib_cell, percent_cell};
use crate::report::layout::group_items;
use crate::report::material::ReportRun;
use crate::report::tables::TableBuilder;
use crate::units::GIB;
use std::collections::HashMap;

/// The items of a group that say most.
const ITEMS: [Item; 4] = [Item::Weights, Item::KvPool, Item::Overhead, Item::Total];

/// An item of a group: medians over its cells.
#[derive(Clone, Copy)]
struct GroupItem<'a> {
    cell: &'a SweepCell,
    item: Item,
    cells: usize,
    measured: Option<f64>,
    calculated: Option<f64>,
    error_percent: Option<f64>,
}

/// A row for each group and item that both sides know. `place` is where the sweep's document lies.
pub(super) fn calculated_table(
    sweep: &SweepDocument,
    place: &str,
    runs: &[ReportRun],
    prefix: &str,
) -> Option<Grid> {
    let folder = place.rfind('/').map_or("", |at| &place[..=at]);
    let calculated = runs.iter().filter_map(|r| r.calculated.as_ref());
    let by_file: HashMap<&str, &RunValidation> = calculated.map(|c| (c.file.as_str(), c)).collect();
    let found = sweep.cells.iter().filter_map(|cell| {
        let file = format!("{folder}{}", cell.profile.as_ref()?);
        Some((cell, *by_file.get(file.as_str())?))
    });
    let groups = group_items(found, |(cell, _)| cell.group.as_str());
    let groups = groups.iter();
    let items = groups.flat_map(|(_, group)| ITEMS.map(|item| group_item(group, item)));
    TableBuilder::of_items(items.filter(|i| i.cells > 0))
        .words("model", "model", |i| &i.cell.model)
        .words("part", "item", |i| i.item.display_label())
        .counts("cells", "cells", |i| i.cells)
        .figures("measured, GiB", "measured_gib", |i| gib_cell(i.measured, ""))
        .figures("calculated, GiB", "calculated_gib", |i| gib_cell(i.calculated, ""))
        .figures("calculated less measured, %", "error_percent", |i| percent_cell(i.error_percent, ""))
        .words("group", "group", |i| &i.cell.group)
        .grid_of_rows(
            format!("{prefix}_calculated"),
            "Measured against calculated, by server configuration; medians of its cells, on the GPU with most of it",
        )
}

fn group_item<'a>(group: &[(&'a SweepCell, &RunValidation)], item: Item) -> GroupItem<'a> {
    let items = group.iter().flat_map(|(_, run)| &run.items);
    let items = items.filter(|i| i.item == item);
    let both =
        items.filter_map(|i| Some([i.measured? / GIB, i.calculated? as f64 / GIB, i.error_pct?]));
    let both: Vec<[f64; 3]> = both.collect();
    let median = |n: usize| {
        let mut all: Vec<f64> = both.iter().map(|b| b[n]).collect();
        all.sort_by(f64::total_cmp);
        quantile_of_sorted(&all, 0.5)
    };
    GroupItem {
        cell: group[0].0,
        item,
        cells: both.len(),
        measured: median(0),
        calculated: median(1),
        error_percent: median(2),
    }
}
