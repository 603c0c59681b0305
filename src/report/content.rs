//! The content of a report, whatever format it is written in: chapters of sentences, tables, charts and
//! timelines, and for its figures the sources they come from.
//!
//! Chapters make it (`chapters/`), formats write it (`format/`). Texts in it are as they came: a
//! format makes them harmless in its own way.

use super::chart::{Chart, ChartTimeline};
use crate::engine::facts::Severity;

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Title: what was measured.
    pub title: String,
    /// Facts under it: label and value.
    pub about: Vec<(String, String)>,
    /// Set where an engine or a device is simulated, with what; shown wherever figures are.
    pub simulated: Option<String>,
    /// Its parts, in order.
    pub chapters: Vec<Chapter>,
    /// Where figures come from; [`SourceId`] counts in it.
    pub sources: Vec<FigureSource>,
}

/// A part of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chapter {
    /// Word for links and file names, unique in the report: `breakdown`.
    pub id: String,
    /// Title.
    pub title: String,
    /// Its pieces, in order.
    pub blocks: Vec<ContentBlock>,
}

/// A piece of a chapter.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentBlock {
    /// A paragraph.
    Text(String),
    /// What to know when reading the figures.
    Note(Note),
    /// A table.
    Table(Grid),
    /// A picture.
    Chart(Chart),
    /// Memory over time; apart from other charts because it can be looked into.
    Timeline(ChartTimeline),
    /// Lines as they are: of a log, of a configuration.
    Listing(Listing),
}

/// What to know when reading the figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// How much it matters.
    pub severity: Severity,
    /// Machine-readable: `preemption_seen`.
    pub code: Option<String>,
    /// A sentence.
    pub message: String,
    /// The line or figure it rests on.
    pub quote: Option<String>,
}

/// Lines as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// What they are.
    pub title: String,
    /// The lines.
    pub text: String,
    /// Whether a reader has to open it first, where the format can.
    pub folded: bool,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Grid {
    /// Word for links and file names, unique in the report.
    pub id: String,
    /// What it shows.
    pub caption: String,
    /// Heads.
    pub columns: Vec<TableColumn>,
    /// Rows; each has a cell for each column.
    pub rows: Vec<Vec<TableCell>>,
}

/// The head of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableColumn {
    /// Words, with the unit: `peak, GiB`.
    pub title: String,
    /// Key in CSV: `peak_gib`.
    pub key: String,
    /// Whether its cells are figures: set right.
    pub numeric: bool,
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableCell {
    /// As people read it; empty where nothing is known.
    pub text: String,
    /// The figure, unrounded, for CSV and for sorting.
    pub number: Option<f64>,
    /// Where it comes from.
    pub source: Option<SourceId>,
    /// Why there is nothing.
    pub missing: Option<String>,
}

impl TableCell {
    /// Words.
    pub fn text_cell(text: impl Into<String>) -> TableCell {
        TableCell {
            text: text.into(),
            ..TableCell::default()
        }
    }

    /// A figure and how it is written.
    pub fn number_cell(number: f64, text: impl Into<String>) -> TableCell {
        TableCell {
            text: text.into(),
            number: Some(number),
            ..TableCell::default()
        }
    }

    /// Nothing, and why.
    pub fn missing_cell(why: impl Into<String>) -> TableCell {
        TableCell {
            missing: Some(why.into()),
            ..TableCell::default()
        }
    }

    /// The same with its source.
    pub fn from(self, source: SourceId) -> TableCell {
        TableCell {
            source: Some(source),
            ..self
        }
    }
}

/// Which of [`Report::sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub usize);

/// Where a figure comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FigureSource {
    /// What it is the source of: `Model weights, GPU 0`.
    pub title: String,
    /// The figure, as shown and in bytes: `14.960 GiB (16063569920 bytes)`.
    pub value: String,
    /// How sure, in the profile's word: `high_from_vllm_logs`.
    pub confidence: Option<String>,
    /// Every witness, the one that is used first.
    pub witnesses: Vec<SourceDetail>,
}

/// One witness of a figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceDetail {
    /// What kind: `engine log`.
    pub kind: String,
    /// Its figure, as shown.
    pub value: String,
    /// Its words: the log line, the metric, how a difference was taken.
    pub quote: String,
    /// Where that is: a file with its line, the second of a sample.
    pub place: Option<String>,
    /// Whether the figure rests on it.
    pub used: bool,
}
