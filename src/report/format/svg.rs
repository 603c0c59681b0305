//! Every chart and timeline of a report as an SVG file of its own.

use super::{File, ReportFormat};
use crate::report::RenderError;
use crate::report::chart::svg::{ChartStyle, chart_svg, timeline_svg};
use crate::report::content::{Chapter, ContentBlock, Report};

/// SVG.
pub struct Svg;

impl ReportFormat for Svg {
    fn format_name(&self) -> &'static str {
        "svg"
    }

    fn render_files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        let file = |(stem, svg): (&str, String)| File {
            stem: stem.to_owned(),
            bytes: svg.into_bytes(),
        };
        Ok(chart_pictures(report).map(file).collect())
    }
}

/// The id of each picture of a report, and the picture.
pub fn chart_pictures(report: &Report) -> impl Iterator<Item = (&str, String)> {
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    blocks.filter_map(|block| match block {
        ContentBlock::Chart(c) => Some((c.id.as_str(), chart_svg(c, ChartStyle::Standalone))),
        ContentBlock::Timeline(t) => Some((t.id.as_str(), timeline_svg(t, ChartStyle::Standalone))),
        _ => None,
    })
}
