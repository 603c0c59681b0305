//! Every chart and timeline of a report as a PNG file of its own.

use super::svg::chart_pictures;
use super::{File, ReportFormat};
use crate::report::RenderError;
use crate::report::chart::png::png;
use crate::report::content::Report;

/// PNG.
pub struct Png;

impl ReportFormat for Png {
    fn format_name(&self) -> &'static str {
        "png"
    }

    fn render_files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        chart_pictures(report)
            .map(|(stem, svg)| {
                let bytes = png(&svg).map_err(|e| RenderError {
                    format: self.format_name(),
                    source: Box::new(e),
                })?;
                Ok(File {
                    stem: stem.to_owned(),
                    bytes,
                })
            })
            .collect()
    }
}
