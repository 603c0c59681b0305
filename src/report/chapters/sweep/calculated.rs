//! A sweep's groups as they were measured against what is calculated of them, where the profiles
//! of its cells were read beside it.

use super::read::{Sweep, Tried};
use super::tables::{numeric, wordy};
use crate::compare::calculated::Item;
use crate::compare::validate::{ItemRow, RunValidation};
use crate::profile::stats::quantile;
use crate::report::content::{Cell, Grid};
use crate::report::layout;
use crate::report::material::Run;
use crate::units::GIB;
use std::collections::HashMap;

/// The items of a group that say most.
const ITEMS: [Item; 4] = [Item::Weights, Item::KvPool, Item::Overhead, Item::Total];

/// A row for each group and item that both sides know. `place` is where the sweep's document lies.
pub(super) fn table(sweep: &Sweep, place: &str, runs: &[Run], prefix: &str) -> Option<Grid> {
    let folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
    let by_file: HashMap<&str, &RunValidation> = (runs.iter())
        .filter_map(|r| r.calculated.as_ref())
        .map(|c| (c.file.as_str(), c))
        .collect();
    let of_cell = |cell: &Tried| {
        let profile = cell.profile.as_ref()?;
        let file = match folder {
            "" => profile.clone(),
            folder => format!("{folder}/{profile}"),
        };
        by_file.get(file.as_str()).copied()
    };
    let mut groups: Vec<(&Tried, Vec<&RunValidation>)> = Vec::new();
    let mut at: HashMap<&str, usize> = HashMap::new();
    for cell in &sweep.cells {
        let Some(calculated) = of_cell(cell) else {
            continue;
        };
        let i = *at.entry(&cell.group).or_insert_with(|| {
            groups.push((cell, Vec::new()));
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(i) {
            group.1.push(calculated);
        }
    }
    let rows: Vec<Vec<Cell>> = (groups.iter())
        .flat_map(|(cell, runs)| ITEMS.iter().filter_map(|item| row(cell, runs, *item)))
        .collect();
    (!rows.is_empty()).then(|| Grid {
        id: format!("{prefix}_calculated"),
        caption: "Measured against calculated, by server configuration; medians of its cells, on the GPU with most of it".into(),
        columns: vec![
            wordy("model", "model"),
            wordy("part", "item"),
            numeric("cells", "cells"),
            numeric("measured, GiB", "measured_gib"),
            numeric("calculated, GiB", "calculated_gib"),
            numeric("calculated less measured, %", "error_percent"),
            wordy("group", "group"),
        ],
        rows,
    })
}

fn row(cell: &Tried, runs: &[&RunValidation], item: Item) -> Option<Vec<Cell>> {
    let both: Vec<(f64, f64, f64)> = (runs.iter())
        .flat_map(|r| &r.items)
        .filter(|i| i.item == item)
        .filter_map(|i: &ItemRow| Some((i.measured?, i.calculated? as f64, i.error_pct?)))
        .collect();
    let median = |pick: fn(&(f64, f64, f64)) -> f64| {
        let mut all: Vec<f64> = both.iter().map(pick).collect();
        all.sort_by(f64::total_cmp);
        quantile(&all, 0.5)
    };
    let gib = |bytes: f64| {
        let gib = bytes / GIB;
        Cell::number(gib, layout::unsigned_zero(format!("{gib:.3}")))
    };
    let (measured, calculated) = (median(|b| b.0)?, median(|b| b.1)?);
    let error = median(|b| b.2)?;
    Some(vec![
        Cell::text(cell.model.clone()),
        Cell::text(item.label()),
        Cell::number(both.len() as f64, layout::count(both.len() as u64)),
        gib(measured),
        gib(calculated),
        Cell::number(error, crate::report::figures::percent(Some(error))),
        Cell::text(cell.group.clone()),
    ])
}
