//! The formats that a report is written in: one file each, and one line in [`ALL`].

mod columns;
mod csv;
mod figures;
pub mod html;
mod markdown;
pub mod text;
mod words;

use super::RenderError;
use super::chart::png::png;
use super::chart::svg::{ChartStyle, chart_svg};
use super::content::{Chapter, ContentBlock, Report};

type RenderFiles = fn(&Report) -> Result<Vec<File>, RenderError>;

/// A format of reports.
#[derive(Debug)]
pub struct ReportFormat {
    name: &'static str,
    render: RenderFiles,
}

impl ReportFormat {
    const fn new(name: &'static str, render: RenderFiles) -> ReportFormat {
        ReportFormat { name, render }
    }

    /// The word of `--format`, and the extension of its files.
    pub fn format_name(&self) -> &'static str {
        self.name
    }

    /// The files of the report. The same report gives the same bytes.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn render_files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        (self.render)(report)
    }
}

/// A file of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name without folder and extension: `report`, or a chart's id.
    pub stem: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The only file of a report.
fn single_file(text: String) -> Vec<File> {
    vec![File {
        stem: "report".into(),
        bytes: text.into_bytes(),
    }]
}

/// Every format.
pub static ALL: &[ReportFormat] = &[
    ReportFormat::new("html", |r| Ok(single_file(html::page(r)))),
    ReportFormat::new("md", |r| Ok(single_file(markdown::markdown_text(r)))),
    ReportFormat::new("txt", |r| Ok(single_file(text::file_text(r)))),
    ReportFormat::new("csv", |r| Ok(csv::render_tables(r))),
    ReportFormat::new("svg", |r| Ok(render_svg(r))),
    ReportFormat::new("png", render_png),
];

/// The format called `name`.
pub fn by_name(name: &str) -> Option<&'static ReportFormat> {
    ALL.iter().find(|format| format.name == name)
}

/// Every chart and timeline as a file of its own, SVG.
fn render_svg(report: &Report) -> Vec<File> {
    let file = |(stem, svg)| File {
        stem,
        bytes: String::into_bytes(svg),
    };
    chart_pictures(report).map(file).collect()
}

/// The same as PNG.
fn render_png(report: &Report) -> Result<Vec<File>, RenderError> {
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
