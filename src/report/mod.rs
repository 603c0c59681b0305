//! What people and spreadsheets read: chapters make the content of a report (`chapters/`, and a file
//! here for each document of a verb), formats write it (`format/`). Pure: no I/O, no clock, no
//! terminal.

pub mod ablation;
pub mod calibration;
pub mod chapters;
pub mod chart;
pub mod cleaning;
pub mod compare;
pub mod content;
pub mod doctor;
pub mod documents;
pub mod estimate;
pub mod experiment;
pub mod facts;
mod figures;
pub mod format;
pub mod given;
pub mod graphs;
pub mod json;
pub mod lanes;
pub mod layout;
pub mod material;
pub mod page;
pub mod spreadsheet;
pub mod sweep;
mod tables;
pub mod terminal;
pub mod tune;
pub mod validation;
pub mod why;

/// Why a document could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the document could not be written as {format}")]
pub struct RenderError {
    /// The format: `json`.
    pub format: &'static str,
    /// What went wrong.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
