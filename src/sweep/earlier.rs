//! What earlier runs of a sweep teach about the time of the next.

use super::cells::Cells;
use super::folder::list_runs;
use super::journal::SweepHistory;
use crate::matrix::{Cell, CellId, Forecast, RowStatus};
use std::collections::HashMap;
use std::path::Path;

/// Most runs that are read: older ones were of other versions, other hosts.
const RUNS: usize = 5;

/// The times of the latest runs of a sweep. A run that cannot be read teaches nothing. `known`: the
/// folder of a run with a journal that was read already; a long one takes its time.
pub fn forecast_from_runs(
    results: &Path,
    name: &str,
    known: Option<(&Path, &SweepHistory)>,
) -> Forecast {
    let known = known.and_then(|(folder, history)| Some((folder.canonicalize().ok()?, history)));
    let mut forecast = Forecast::default();
    for run in list_runs(results, name).iter().take(RUNS) {
        let Ok(Some(cells)) = Cells::read_file(run) else {
            continue;
        };
        match &known {
            Some((folder, history)) if run.canonicalize().is_ok_and(|r| r == *folder) => {
                learn_from_run(&mut forecast, history, &cells);
            }
            _ => {
                if let Ok(history) = SweepHistory::read_journal(run) {
                    learn_from_run(&mut forecast, &history, &cells);
                }
            }
        }
    }
    forecast
}

/// Adds what one run took.
pub fn learn_from_run(forecast: &mut Forecast, history: &SweepHistory, cells: &Cells) {
    let known: HashMap<&CellId, &Cell> = cells.cells.iter().map(|c| (&c.id, c)).collect();
    for row in history
        .rows_in_order()
        .filter(|r| r.status == RowStatus::Done)
    {
        if let Some(cell) = known.get(&row.cell) {
            forecast.learn_cell(cell, row.took_s);
        }
    }
    for start in history.starts.iter().filter(|s| s.failed.is_none()) {
        forecast.learn_start(&start.group, start.took_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::samples::{cell, row};
    use crate::sweep::folder::of_name;
    use crate::sweep::journal::JOURNAL_FILE;

    #[test]
    fn a_run_that_is_known_teaches_by_what_is_known_of_it() {
        let results = tempfile::tempdir().unwrap();
        let run = of_name(results.path(), "s").join("20261121_100000");
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join(JOURNAL_FILE), "").unwrap();
        let one = cell("m", 128, 128, 1);
        let mut cells = Cells::default();
        cells.add_missing(std::iter::once(&one));
        cells.write_file(&run).unwrap();
        let mut history = SweepHistory::default();
        history.order.push(one.id.clone());
        (history.rows).insert(one.id.clone(), row(&one, RowStatus::Done));

        let unread = forecast_from_runs(results.path(), "s", None);
        assert_eq!(unread.cell_seconds(&one), None);
        // However the folder is named.
        let named = run.join("../20261121_100000");
        let known = forecast_from_runs(results.path(), "s", Some((&named, &history)));
        assert_eq!(known.cell_seconds(&one), Some(history.rows[&one.id].took_s));
        let other = forecast_from_runs(results.path(), "s", Some((results.path(), &history)));
        assert_eq!(other.cell_seconds(&one), None);
    }
}
