//! The results of a sweep as a document.

use super::{CellOutcome, Results};
use crate::report::json::joined;
use serde_json::{Value, json};

/// Version of the document. Fields are added, never renamed.
pub const RESULTS_VERSION: &str = "1";

/// The document. `simulated`: whether any cell's engine or device is; each cell has its own mark.
pub fn results_document(results: &Results) -> Value {
    let cell = |o: &CellOutcome| {
        let (cell, server) = (&o.cell, &*o.cell.server);
        let head = json!({"cell": cell.id, "group": cell.group});
        // All that the journal holds of it; null: not run.
        let rest = json!({"load": cell.load, "status": o.status_word(), "row": o.row});
        joined([head, json!(server), rest])
    };
    json!({
        "document": "sweep",
        "schema_version": RESULTS_VERSION,
        "plimsoll_version": env!("CARGO_PKG_VERSION"),
        "name": results.name,
        "started": results.started,
        // The sum of nothing is -0.0.
        "took_s": results.took_s.map(|s| s + 0.0),
        "simulated": results.count_simulated() > 0,
        "counts": results.cell_counts(),
        "notes": results.notes,
        "cells": results.cells.iter().map(cell).collect::<Vec<_>>(),
    })
}
