//! Every chart and timeline of a report as a file of its own, SVG or PNG.

use super::File;
use crate::report::RenderError;
use crate::report::chart::png::png;
use crate::report::chart::svg::{ChartStyle, chart_svg};
use crate::report::content::{Chapter, ContentBlock, Report};

/// As SVG.
pub(super) fn render_svg(report: &Report) -> Vec<File> {
    let file = |(stem, svg)| File {
        stem,
        bytes: String::into_bytes(svg),
    };
    chart_pictures(report).map(file).collect()
}

/// As PNG.
pub(super) fn render_png(report: &Report) -> Result<Vec<File>, RenderError> {
    let file = |(stem, svg): (String, String)| {
        let bytes = png(&svg).map_err(|e| RenderError {
            format: "png",
            source: e.into(),
        })?;
        Ok(File { stem, bytes })
    };
    chart_pictures(report).map(file).collect()
}

/// The id of each picture of a report, and the picture as SVG.
fn chart_pictures(report: &Report) -> impl Iterator<Item = (String, String)> {
    let style = ChartStyle::Standalone;
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    blocks.filter_map(move |block| match block {
        ContentBlock::Chart(c) => Some((c.id.clone(), chart_svg(c, style))),
        _ => None,
    })
}
