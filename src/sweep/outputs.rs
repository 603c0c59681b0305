//! The results of a sweep on disk: the table under both its names, the document, the page.

use super::folder::ResultPaths;
use crate::error::Failure;
use crate::report::RenderError;
use crate::report::chapters::document_report;
use crate::report::content::Report;
use crate::report::format::text::file_text;
use crate::report::json::json_bytes;
use crate::report::sweep::{Results, csv, json};
use crate::store::write_atomically;

/// The report of the results.
pub fn results_report(results: &Results) -> Result<Report, Failure> {
    let report = document_report("sweep", &json::results_document(results));
    report.map_err(|source| {
        unrendered(RenderError {
            format: "json",
            source: source.into(),
        })
    })
}

/// Writes all of them; what an earlier part of the sweep wrote is replaced.
pub fn write_results(paths: &ResultPaths, results: &Results) -> Result<(), Failure> {
    let table = csv::render_csv(results);
    write_atomically(&paths.csv, &table)?;
    write_atomically(&paths.batch_csv, &table)?;
    let document = json_bytes(&json::results_document(results)).map_err(unrendered)?;
    write_atomically(&paths.json, &document)?;
    let page = file_text(&results_report(results)?);
    write_atomically(&paths.report, page.as_bytes())
}

fn unrendered(e: RenderError) -> Failure {
    Failure::bug(e.to_string()).caused_by(e)
}
