//! The parts of every engine's log parser: lines without their wrapping, words to search for,
//! figures, and the sheet that facts are written on.
//!
//! An engine's parser names the words that its messages contain ([`words::Words`]), gets each line
//! that contains one, cleaned ([`Line`]), and writes what it reads on a [`sheet::Sheet`].

pub mod auto;
pub mod figures;
pub mod heads;
#[cfg(test)]
pub mod laws_tests;
pub mod sheet;
#[cfg(test)]
mod signs_tests;
pub mod table;
pub mod text;
pub mod torch;
pub mod unwrap;
pub mod words;

use super::LogParser;
use super::facts::{Fact, FactValue, LogReport};
use super::lines::LONGEST_LINE;
use crate::capture::AtNs;
use memchr::memmem;
use sheet::Sheet;
use words::Words;

/// One line, as the readers of messages see it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line<'a> {
    /// The text without colour and control bytes, trimmed.
    pub text: &'a str,
    /// When it was written; `None` when read from a file.
    pub at: Option<AtNs>,
    /// Its number in the log, from 1.
    pub number: u64,
}

impl Line<'_> {
    /// The line as a fact quotes it; the part around `needle` stays visible.
    pub fn quote(&self, needle: &str) -> String {
        let is_cut = self.text.len() > text::LONGEST_QUOTE;
        let focus = is_cut.then(|| memmem::find(self.text.as_bytes(), needle.as_bytes()));
        text::quote(self.text, focus.flatten().unwrap_or(0))
    }

    /// A fact that this line alone shows.
    pub fn fact(&self, value: FactValue, needle: &str) -> Fact {
        Fact {
            value,
            quote: vec![self.quote(needle)],
            at_ns: self.at,
        }
    }
}

/// The messages of one engine's log: the part of a parser that differs from engine to engine.
pub trait Messages: Default + Send {
    /// The engine's name, as in `--engine`.
    const ENGINE: &'static str;

    /// Every line of interest contains one of these words; frequent other lines should contain
    /// none.
    fn words() -> &'static Words;

    /// Whether lines without any of the words may continue a message.
    fn awaits_more(&self) -> bool {
        false
    }

    /// Whether a line with one of the words repeats known facts. Called on the raw bytes of every
    /// such line, to skip the one kind that fills a serving engine's log.
    fn is_stale(&self, _raw: &[u8], _sheet: &Sheet) -> bool {
        false
    }

    /// Whether a line needs to be read. Called on the raw bytes of every line.
    fn needs_reading(&self, raw: &[u8], sheet: &Sheet) -> bool {
        Self::words().hold(raw) && !self.is_stale(raw, sheet)
    }

    /// Reads one line.
    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet);

    /// Adds facts that follow from all lines together. Called on a copy of the sheet for every
    /// report.
    fn conclude(&self, _sheet: &mut Sheet) {}

    /// The line that explains why the engine failed.
    fn root_cause(&self, sheet: &Sheet) -> Option<String> {
        sheet.root_cause()
    }

    /// Whether the engine announced that it is ready to serve.
    fn is_ready(&self, sheet: &Sheet) -> bool {
        sheet.ready()
    }
}

/// A parser made of [`Messages`] and a [`Sheet`].
#[derive(Default)]
pub struct SheetParser<M> {
    messages: M,
    sheet: Sheet,
    lines: u64,
    buffer: String,
}

impl<M: Messages> LogParser for SheetParser<M> {
    fn line(&mut self, raw: &[u8], at: Option<AtNs>) {
        self.lines += 1;
        let raw = &raw[..raw.len().min(LONGEST_LINE)];
        // The rest of a message may contain any words.
        if !self.messages.awaits_more() && !self.messages.needs_reading(raw, &self.sheet) {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        text::clean(raw, &mut buffer);
        // A progress bar and a message may share a line.
        for piece in buffer.split('\r').map(str::trim).filter(|p| !p.is_empty()) {
            let line = Line {
                text: piece,
                at,
                number: self.lines,
            };
            self.messages.read(&line, &mut self.sheet);
        }
        self.buffer = buffer;
    }

    fn step_count(&self) -> usize {
        self.sheet.step_count()
    }

    fn report(&self) -> LogReport {
        let mut sheet = self.sheet.clone();
        self.messages.conclude(&mut sheet);
        sheet.report(M::ENGINE)
    }

    fn root_cause(&self) -> Option<String> {
        self.messages.root_cause(&self.sheet)
    }

    fn ready(&self) -> bool {
        self.messages.is_ready(&self.sheet)
    }
}
