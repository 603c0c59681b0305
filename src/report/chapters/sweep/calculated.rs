//! A sweep's groups as they were measured against what is calculated of them, where the profiles
//! of its cells were read beside it.

use super::read::{SweepCell, SweepDocument};
use crate::compare::calculated::Item;
use crate::compare::validate::{ItemRow, RunValidation};
use crate::profile::stats::quantile_of_sorted;
use crate::report::content::{Grid, TableCell, number_column, text_column};
use crate::report::layout;
use crate::report::material::ReportRun;
use crate::units::GIB;
use std::collections::HashMap;

/// The items of a group that say most.
const ITEMS: [Item; 4] = [Item::Weights, Item::KvPool, Item::Overhead, Item::Total];

/// A row for each group and item that both sides know. `place` is where the sweep's document lies.
pub(super) fn calculated_table(
    sweep: &SweepDocument,
    place: &str,
    runs: &[ReportRun],
    prefix: &str,
) -> Option<Grid> {
    let folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
    let by_file: HashMap<&str, &RunValidation> = (runs.iter())
        .filter_map(|r| r.calculated.as_ref())
        .map(|c| (c.file.as_str(), c))
        .collect();
    let of_cell = |cell: &SweepCell| {
        let profile = cell.profile.as_ref()?;
        let file = match folder {
            "" => profile.clone(),
            folder => format!("{folder}/{profile}"),
        };
        by_file.get(file.as_str()).copied()
    };
    let mut groups: Vec<(&SweepCell, Vec<&RunValidation>)> = Vec::new();
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
    let rows: Vec<Vec<TableCell>> = (groups.iter())
        .flat_map(|(cell, runs)| {
            ITEMS
                .iter()
                .filter_map(|item| calculated_row(cell, runs, *item))
        })
        .collect();
    (!rows.is_empty()).then(|| Grid {
        id: format!("{prefix}_calculated"),
        caption: "Measured against calculated, by server configuration; medians of its cells, on the GPU with most of it".into(),
        columns: vec![
            text_column("model", "model"),
            text_column("part", "item"),
            number_column("cells", "cells"),
            number_column("measured, GiB", "measured_gib"),
            number_column("calculated, GiB", "calculated_gib"),
            number_column("calculated less measured, %", "error_percent"),
            text_column("group", "group"),
        ],
        rows,
    })
}

fn calculated_row(cell: &SweepCell, runs: &[&RunValidation], item: Item) -> Option<Vec<TableCell>> {
    let both: Vec<(f64, f64, f64)> = (runs.iter())
        .flat_map(|r| &r.items)
        .filter(|i| i.item == item)
        .filter_map(|i: &ItemRow| Some((i.measured?, i.calculated? as f64, i.error_pct?)))
        .collect();
    let median = |pick: fn(&(f64, f64, f64)) -> f64| {
        let mut all: Vec<f64> = both.iter().map(pick).collect();
        all.sort_by(f64::total_cmp);
        quantile_of_sorted(&all, 0.5)
    };
    let gib = |bytes: f64| {
        let gib = bytes / GIB;
        TableCell::number_cell(gib, layout::unsigned_zero(format!("{gib:.3}")))
    };
    let (measured, calculated) = (median(|b| b.0)?, median(|b| b.1)?);
    let error = median(|b| b.2)?;
    Some(vec![
        TableCell::text_cell(cell.model.clone()),
        TableCell::text_cell(item.display_label()),
        TableCell::number_cell(both.len() as f64, layout::grouped_count(both.len() as u64)),
        gib(measured),
        gib(calculated),
        TableCell::number_cell(error, crate::report::figures::percent_text(error)),
        TableCell::text_cell(cell.group.clone()),
    ])
}
