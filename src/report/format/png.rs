//! Every chart and timeline of a report as a PNG file of its own.

use super::svg::pictures;
use super::{File, Format};
use crate::report::RenderError;
use crate::report::chart::png::png;
use crate::report::content::Report;

/// PNG.
pub struct Png;

impl Format for Png {
    fn name(&self) -> &'static str {
        "png"
    }

    fn files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        pictures(report)
            .map(|(stem, svg)| {
                let bytes = png(&svg).map_err(|e| RenderError {
                    format: self.name(),
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
