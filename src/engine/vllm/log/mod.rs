//! The log of vLLM, 0.4 to 0.32 and its plugins: figures, settings, milestones, failures.
//!
//! Patterns go by the shape of a message, never by the version: banners of forks are wrong and
//! plugins copy old words. They are searched, never anchored: logs come with the prefixes of
//! docker compose, journald, Ray and others before the engine's own.

mod facts;
mod filter;
mod findings;
mod graphs;
mod identity;
mod memory;
mod milestones;
mod origin;
mod pool;
mod readings;
mod run;
mod settings;
mod trouble;

use crate::capture::AtNs;
use crate::engine::LogParser;
use crate::engine::facts::LogReport;
use crate::engine::log::text;
use filter::{Candidate, Filter};
use origin::Origin;
use readings::Line;
use run::Run;

/// Bytes of a line that are looked at.
const LONGEST_LINE: usize = crate::engine::lines::LONGEST_LINE;

/// Reads a vLLM log line by line.
#[derive(Default)]
pub struct VllmLogParser {
    /// The start of the engine that is being read: a container that restarts has many.
    run: Run,
    /// How many starts came before.
    earlier_runs: u32,
    /// Why the start before failed, if it did.
    earlier_cause: Option<String>,
    no: u64,
    buffer: String,
}

impl VllmLogParser {
    /// A parser that has read nothing.
    pub fn new() -> VllmLogParser {
        VllmLogParser::default()
    }

    /// Parses a line in full: each piece of one that was drawn anew.
    fn parse(&mut self, raw: &[u8], at: Option<AtNs>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        text::clean(raw, &mut buffer);
        for piece in buffer.split('\r').map(str::trim).filter(|p| !p.is_empty()) {
            let line = Line {
                text: piece,
                origin: Origin::of(piece),
                at,
                no: self.no,
            };
            if self.run.is_over(&line) {
                self.earlier_cause = self.run.root_cause().or(self.earlier_cause.take());
                self.earlier_runs = self.earlier_runs.saturating_add(1);
                self.run = Run::default();
            }
            self.run.read(&line);
        }
        self.buffer = buffer;
    }
}

impl LogParser for VllmLogParser {
    fn line(&mut self, raw: &[u8], at: Option<AtNs>) {
        self.no += 1;
        let raw = &raw[..raw.len().min(LONGEST_LINE)];
        match Filter::shared().candidate(raw) {
            Candidate::Nothing if !self.run.awaits_more() => {}
            Candidate::Statistics if !self.run.awaits_more() => {
                if self.run.statistics_are_news(raw) {
                    self.parse(raw, at);
                }
            }
            _ => self.parse(raw, at),
        }
    }

    fn steps_seen(&self) -> usize {
        self.run.steps()
    }

    fn report(&self) -> LogReport {
        let mut report = self.run.report();
        if self.earlier_runs > 0 {
            report.findings.push(findings::restarted(self.earlier_runs));
        }
        report
    }

    fn root_cause(&self) -> Option<String> {
        self.run
            .root_cause()
            .or_else(|| self.earlier_cause.clone().filter(|_| !self.run.is_ready()))
    }

    fn ready(&self) -> bool {
        self.run.is_ready()
    }
}
