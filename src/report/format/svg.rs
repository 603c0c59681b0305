//! Every chart and timeline of a report as an SVG file of its own.

use super::{File, Format};
use crate::report::RenderError;
use crate::report::chart::svg::{Look, chart, timeline};
use crate::report::content::{Block, Report};

/// SVG.
pub struct Svg;

impl Format for Svg {
    fn name(&self) -> &'static str {
        "svg"
    }

    fn files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        let file = |(stem, svg): (&str, String)| File {
            stem: stem.to_owned(),
            bytes: svg.into_bytes(),
        };
        Ok(pictures(report).map(file).collect())
    }
}

/// The id of each picture of a report, and the picture.
pub fn pictures(report: &Report) -> impl Iterator<Item = (&str, String)> {
    let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
    blocks.filter_map(|block| match block {
        Block::Chart(c) => Some((c.id.as_str(), chart(c, Look::Standalone))),
        Block::Timeline(t) => Some((t.id.as_str(), timeline(t, Look::Standalone))),
        _ => None,
    })
}
