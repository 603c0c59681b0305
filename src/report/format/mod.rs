//! The formats that a report is written in: one file each, and one line in [`ALL`].

mod columns;
mod csv;
mod figures;
pub mod html;
mod markdown;
mod png;
mod svg;
pub mod text;
mod words;

use super::RenderError;
use super::content::Report;

/// A format of reports.
pub trait ReportFormat: Sync {
    /// The word of `--format`, and the extension of its files.
    fn format_name(&self) -> &'static str;

    /// The files of the report. The same report gives the same bytes.
    fn render_files(&self, report: &Report) -> Result<Vec<File>, RenderError>;
}

/// A file of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name without folder and extension: `report`, or a chart's id.
    pub stem: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Every format.
pub static ALL: &[&dyn ReportFormat] = &[
    &html::Html,
    &markdown::Markdown,
    &text::Text,
    &csv::Csv,
    &svg::Svg,
    &png::Png,
];

/// The format called `name`.
pub fn by_name(name: &str) -> Option<&'static dyn ReportFormat> {
    ALL.iter()
        .copied()
        .find(|format| format.format_name() == name)
}
