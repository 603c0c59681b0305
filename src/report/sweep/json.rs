//! The results of a sweep as a document.

use super::{CellOutcome, Results, StatusCounts};
use crate::matrix::{CellId, CellLoad, CellRow, GroupId, ServerConfig};
use serde::Serialize;

/// Version of the document. Fields are added, never renamed.
pub const RESULTS_VERSION: &str = "1";

#[derive(Serialize)]
struct ResultsDocument<'a> {
    document: &'static str,
    schema_version: &'static str,
    plimsoll_version: &'static str,
    name: &'a str,
    started: Option<&'a str>,
    took_s: Option<f64>,
    /// Whether any cell's engine or device is simulated; each cell has its own mark.
    simulated: bool,
    counts: StatusCounts,
    notes: &'a [String],
    cells: Vec<ResultCellDocument<'a>>,
}

#[derive(Serialize)]
struct ResultCellDocument<'a> {
    cell: &'a CellId,
    group: &'a GroupId,
    #[serde(flatten)]
    server: &'a ServerConfig,
    load: &'a CellLoad,
    status: &'static str,
    /// All that the journal holds of it; null: not run.
    row: Option<&'a CellRow>,
}

impl<'a> From<&'a CellOutcome> for ResultCellDocument<'a> {
    fn from(outcome: &'a CellOutcome) -> ResultCellDocument<'a> {
        let cell = &outcome.cell;
        ResultCellDocument {
            cell: &cell.id,
            group: &cell.group,
            server: &cell.server,
            load: &cell.load,
            status: outcome.status_word(),
            row: outcome.row.as_ref(),
        }
    }
}

/// The document.
pub fn results_document(results: &Results) -> impl Serialize + '_ {
    ResultsDocument {
        document: "sweep",
        schema_version: RESULTS_VERSION,
        plimsoll_version: env!("CARGO_PKG_VERSION"),
        name: &results.name,
        started: results.started.as_deref(),
        // The sum of nothing is -0.0.
        took_s: results.took_s.map(|s| s + 0.0),
        simulated: results.count_simulated() > 0,
        counts: results.cell_counts(),
        notes: &results.notes,
        cells: results.cells.iter().map(ResultCellDocument::from).collect(),
    }
}
