//! The results of a sweep as a document.

use super::{Counts, Outcome, Results};
use crate::matrix::{CellId, GroupId, Load, Row, Server};
use crate::report::RenderError;
use serde::Serialize;

/// Version of the document. Fields are added, never renamed.
pub const RESULTS_VERSION: &str = "1";

#[derive(Serialize)]
struct Document<'a> {
    document: &'static str,
    schema_version: &'static str,
    plimsoll_version: &'static str,
    name: &'a str,
    started: Option<&'a str>,
    took_s: Option<f64>,
    /// Whether any cell's engine or device is simulated; each cell has its own mark.
    simulated: bool,
    counts: Counts,
    notes: &'a [String],
    cells: Vec<CellDocument<'a>>,
}

#[derive(Serialize)]
struct CellDocument<'a> {
    cell: &'a CellId,
    group: &'a GroupId,
    #[serde(flatten)]
    server: &'a Server,
    load: &'a Load,
    status: &'static str,
    /// All that the journal holds of it; null: not run.
    row: Option<&'a Row>,
}

impl<'a> From<&'a Outcome> for CellDocument<'a> {
    fn from(outcome: &'a Outcome) -> CellDocument<'a> {
        let cell = &outcome.cell;
        CellDocument {
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
pub fn render(results: &Results) -> Result<Vec<u8>, RenderError> {
    let document = Document {
        document: "sweep",
        schema_version: RESULTS_VERSION,
        plimsoll_version: env!("CARGO_PKG_VERSION"),
        name: &results.name,
        started: results.started.as_deref(),
        // The sum of nothing is -0.0.
        took_s: results.took_s.map(|s| s + 0.0),
        simulated: results.simulated() > 0,
        counts: results.counts(),
        notes: &results.notes,
        cells: results.cells.iter().map(CellDocument::from).collect(),
    };
    bytes(&document)
}

/// A document as text that ends in a newline.
pub(super) fn bytes(document: &impl Serialize) -> Result<Vec<u8>, RenderError> {
    let mut bytes = serde_json::to_vec_pretty(document).map_err(|e| RenderError {
        format: "json",
        source: e.into(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
