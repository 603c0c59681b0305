//! The content of a report, whatever format it is written in: chapters of sentences, tables, charts and
//! timelines, and for its figures the sources they come from.
//!
//! Chapters make it (`chapters/`), formats write it (`format/`). Texts in it are as they came: a
//! format makes them harmless in its own way.

use super::chart::Chart;
use crate::engine::facts::Severity;
use crate::profile::MemoryGauge;
use strum::IntoStaticStr;

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Title: what was measured.
    pub title: String,
    /// Facts under it: label and value.
    pub about: Vec<(String, String)>,
    /// Set where an engine or a device is simulated, with what; shown wherever figures are.
    pub simulated: Option<String>,
    /// What a reader wants to know first; every format opens with it, a terminal ends with it.
    pub answer: Option<Answer>,
    /// Its parts, in order.
    pub chapters: Vec<Chapter>,
    /// Where figures come from; [`SourceId`] counts in it.
    pub sources: Vec<FigureSource>,
    /// Whether details, drawings and sources are left out.
    pub is_brief: bool,
}

/// Changes that an answer names.
pub const MOST_ACTIONS: usize = 3;

/// Whether memory suffices, how much is left, and what to change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// How good or bad it is.
    pub state: AnswerState,
    /// One sentence with the figure that decides.
    pub verdict: String,
    /// The device or limit that binds; `None` where its size is unknown.
    pub gauge: Option<MemoryGauge>,
    /// The container's host memory, where that is a budget beside the device's.
    pub host_gauge: Option<MemoryGauge>,
    /// Why there is no gauge, where one is to be expected: a sentence without its full stop.
    pub no_gauge: Option<String>,
    /// The main figures, four at most.
    pub figures: Vec<KeyFigure>,
    /// What to change, [`MOST_ACTIONS`] at most, the best first.
    pub actions: Vec<Action>,
}

impl Answer {
    /// A verdict without gauge and figures.
    pub(super) fn of_verdict(state: AnswerState, verdict: impl Into<String>) -> Answer {
        Answer {
            state,
            verdict: verdict.into(),
            ..Answer::default()
        }
    }

    /// Every gauge, that of the device first.
    pub fn gauges(&self) -> impl Iterator<Item = &MemoryGauge> {
        self.gauge.iter().chain(&self.host_gauge)
    }

    /// Why the headroom is unknown, in a sentence; `None` where there is a gauge.
    pub(super) fn unknown_headroom(&self) -> Option<String> {
        let why = self.no_gauge.as_ref().filter(|_| self.gauge.is_none())?;
        Some(format!("Headroom unknown: {why}."))
    }

    /// With the gauge of the fullest device that a document names; without one, the reason.
    pub(super) fn with_gauge(mut self, gauge: Option<MemoryGauge>) -> Answer {
        if gauge.is_none() {
            self.no_gauge = Some("the document has no peak of a device with its size".into());
        }
        self.gauge = gauge;
        self
    }
}

/// How good or bad an answer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerState {
    /// It cannot be decided.
    #[default]
    Unknown,
    /// Memory suffices.
    Safe,
    /// Memory suffices with little to spare.
    Tight,
    /// The next allocation may fail.
    Critical,
    /// It failed, or does not fit.
    Failed,
}

crate::wording::as_written!(AnswerState);

/// A main figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyFigure {
    /// What it is: `Model weights`.
    pub label: String,
    /// The figure.
    pub value: TableCell,
    /// Its unit: `GiB`.
    pub unit: String,
}

impl KeyFigure {
    /// A figure under its label, with its unit.
    pub(super) fn new_figure(label: &str, value: TableCell, unit: &str) -> KeyFigure {
        KeyFigure {
            label: label.to_owned(),
            value,
            unit: unit.to_owned(),
        }
    }
}

/// Something to change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Action {
    /// The setting with its value, as a person types it; empty if it is not a setting.
    pub setting: String,
    /// What it gives, or the advice itself: a sentence's end.
    pub effect: String,
}

impl Action {
    /// Advice that is not a setting.
    pub(super) fn of_advice(effect: impl Into<String>) -> Action {
        Action {
            setting: String::new(),
            effect: effect.into(),
        }
    }

    /// As one line: `--max-model-len 32992: holds 1 request of 32,992 tokens`.
    pub fn action_text(&self) -> String {
        if self.setting.is_empty() {
            self.effect.clone()
        } else {
            format!("{}: {}", self.setting, self.effect)
        }
    }
}

/// A part of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chapter {
    /// Word for links and file names, unique in the report: `breakdown`.
    pub id: String,
    /// Title.
    pub title: String,
    /// What answers a reader's first questions, in order: a terminal shows these.
    pub blocks: Vec<ContentBlock>,
    /// Details: shown by formats that show everything.
    pub details: Vec<ContentBlock>,
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
    /// Lines as they are: of a log, of a configuration.
    Listing(Listing),
}

impl<T: Into<String>> From<T> for ContentBlock {
    fn from(text: T) -> ContentBlock {
        ContentBlock::Text(text.into())
    }
}

/// The sentence of a report that was not measured on real hardware with a real engine.
pub(super) const SIMULATED_SENTENCE: &str = "an engine or a GPU here is simulated";

impl Report {
    /// A report of these chapters.
    pub(super) fn of_chapters(
        title: impl Into<String>,
        answer: impl Into<Option<Answer>>,
        chapters: Vec<Chapter>,
    ) -> Report {
        Report {
            title: title.into(),
            answer: answer.into(),
            chapters,
            ..Report::default()
        }
    }

    /// Adds the sentence on a simulated engine or device, where one is.
    pub(super) fn mark_simulated(mut self, is_simulated: bool) -> Report {
        self.simulated = is_simulated.then(|| SIMULATED_SENTENCE.to_owned());
        self
    }

    /// With all details among what answers first questions.
    pub fn show_details(mut self) -> Report {
        for chapter in &mut self.chapters {
            chapter.blocks.append(&mut chapter.details);
        }
        self
    }

    /// What answers a reader's first questions: without drawings, details and sources.
    pub fn brief_report(&self) -> Report {
        let is_drawing = |b: &ContentBlock| matches!(b, ContentBlock::Chart(_));
        let chapters = self.chapters.iter().map(|chapter| Chapter {
            id: chapter.id.clone(),
            title: chapter.title.clone(),
            blocks: (chapter.blocks.iter().filter(|b| !is_drawing(b)).cloned()).collect(),
            details: Vec::new(),
        });
        Report {
            chapters: chapters.filter(|c| !c.blocks.is_empty()).collect(),
            sources: Vec::new(),
            is_brief: true,
            ..self.clone()
        }
    }
}

impl Chapter {
    /// Its blocks, and their details.
    pub fn all_blocks(&self) -> impl Iterator<Item = &ContentBlock> {
        self.blocks.iter().chain(&self.details)
    }

    /// All of it comes behind what answers first questions.
    pub fn move_to_details(&mut self) {
        self.details.splice(..0, self.blocks.drain(..));
    }

    /// A chapter of a report; none where it would be empty.
    pub(super) fn of_parts(
        id: &str,
        title: impl Into<String>,
        blocks: Vec<ContentBlock>,
        details: Vec<ContentBlock>,
    ) -> Vec<Chapter> {
        if blocks.is_empty() && details.is_empty() {
            return Vec::new();
        }
        vec![Chapter {
            details,
            ..Chapter::of_blocks(id, title, blocks)
        }]
    }

    /// A chapter without details.
    pub fn of_blocks(id: &str, title: impl Into<String>, blocks: Vec<ContentBlock>) -> Chapter {
        Chapter {
            id: id.into(),
            title: title.into(),
            blocks,
            details: Vec::new(),
        }
    }

    /// Sentences under a title; `None` without a sentence.
    pub fn of_sentences(id: &str, title: &str, sentences: &[String]) -> Option<Chapter> {
        let blocks = sentences.iter().cloned().map(ContentBlock::Text);
        Chapter::of_parts(id, title, blocks.collect(), Vec::new()).pop()
    }
}

/// A note without a quote.
pub fn note_block(severity: Severity, code: &str, message: impl Into<String>) -> ContentBlock {
    note_with_code(severity, Some(code.to_owned()), message.into())
}

/// A note that has no word for programs, either.
pub(super) fn plain_note(severity: Severity, message: impl Into<String>) -> ContentBlock {
    note_with_code(severity, None, message.into())
}

fn note_with_code(severity: Severity, code: Option<String>, message: String) -> ContentBlock {
    ContentBlock::Note(Note {
        severity,
        code,
        message,
        quote: None,
    })
}

/// Lines as they are; `folded`: a reader has to open them first, where the format can.
pub(super) fn listing_block(
    title: impl Into<String>,
    text: impl Into<String>,
    folded: bool,
) -> ContentBlock {
    ContentBlock::Listing(Listing {
        title: title.into(),
        text: text.into(),
        folded,
    })
}

/// Labels and their values.
pub fn facts_block<L: Into<String>, V: Into<String>>(
    id: &str,
    facts: impl IntoIterator<Item = (L, V)>,
) -> ContentBlock {
    ContentBlock::Table(facts_grid(id, "", facts))
}

/// Labels and their values under a caption.
pub(super) fn facts_grid<L: Into<String>, V: Into<String>>(
    id: impl Into<String>,
    caption: impl Into<String>,
    facts: impl IntoIterator<Item = (L, V)>,
) -> Grid {
    let row =
        |(label, value): (L, V)| vec![TableCell::text_cell(label), TableCell::text_cell(value)];
    Grid {
        id: id.into(),
        caption: caption.into(),
        columns: vec![text_column("", "fact"), text_column("", "value")],
        rows: facts.into_iter().map(row).collect(),
    }
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
    /// Whether its figures are percent of one whole: a terminal with room draws them as bars.
    pub is_share: bool,
}

/// A column of words.
pub fn text_column(title: impl Into<String>, key: &str) -> TableColumn {
    TableColumn {
        title: title.into(),
        key: key.into(),
        ..TableColumn::default()
    }
}

/// A column of figures.
pub fn number_column(title: impl Into<String>, key: &str) -> TableColumn {
    TableColumn {
        numeric: true,
        ..text_column(title, key)
    }
}

/// A column of percent of one whole.
pub fn share_column(title: impl Into<String>, key: &str) -> TableColumn {
    TableColumn {
        is_share: true,
        ..number_column(title, key)
    }
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
    /// The component it names: shown with its colour.
    pub swatch: Option<crate::breakdown::Component>,
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

    /// The same with its source; what is not known has none.
    pub fn from(self, source: SourceId) -> TableCell {
        TableCell {
            source: Some(source).filter(|_| !self.text.is_empty()),
            ..self
        }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> TableCell {
        TableCell::text_cell(text)
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

impl FigureSource {
    /// Source of a figure that rests on one witness alone.
    pub(super) fn of_one(
        title: impl Into<String>,
        value: impl Into<String>,
        kind: impl Into<String>,
        quote: impl Into<String>,
    ) -> FigureSource {
        let value = value.into();
        FigureSource {
            title: title.into(),
            value: value.clone(),
            confidence: None,
            witnesses: vec![SourceDetail {
                kind: kind.into(),
                value,
                quote: quote.into(),
                place: None,
                used: true,
            }],
        }
    }
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
