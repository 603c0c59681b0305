//! The results of a sweep on disk: the table under both its names, the document, the page.

use super::folder::ResultPaths;
use crate::error::{ExitCode, Failure};
use crate::report::RenderError;
use crate::report::sweep::{Results, csv, json, text};
use crate::report::text::TextOptions;
use crate::store::write_atomically;

/// Width of the page on disk, cells.
const PAGE_WIDTH: usize = 120;

/// Writes all of them; what an earlier part of the sweep wrote is replaced.
pub fn write_results(paths: &ResultPaths, results: &Results) -> Result<(), Failure> {
    let table = csv::render_csv(results).map_err(unrendered)?;
    write_atomically(&paths.csv, &table)?;
    write_atomically(&paths.batch_csv, &table)?;
    write_atomically(
        &paths.json,
        &json::render_json(results).map_err(unrendered)?,
    )?;
    let options = TextOptions {
        width: PAGE_WIDTH,
        ..TextOptions::default()
    };
    write_atomically(
        &paths.report,
        text::render_results(results, options).as_bytes(),
    )
}

fn unrendered(e: RenderError) -> Failure {
    Failure::new(ExitCode::Internal, e.to_string()).caused_by(e)
}
