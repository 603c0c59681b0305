//! The log: the probe's own lines, and what `transformers serve` and torch say of trouble.

use super::bench::words;
use crate::capture::AtNs;
use crate::engine::LogParser;
use crate::engine::facts::{EngineStep, Fact, FactValue, Finding, LogReport, Severity, StepMark};
use std::collections::BTreeMap;

/// Milestones kept: a container that restarts forever must not fill memory.
const MAX_STEPS: usize = 256;
/// Longest text that is kept of a line, characters.
const MAX_QUOTE: usize = 600;
/// Longest value that is kept, characters.
const MAX_VALUE: usize = 40;

/// Reads the output of the probe, or of `transformers serve`.
#[derive(Debug, Default)]
pub struct TransformersLogParser {
    version: Option<String>,
    facts: BTreeMap<String, Fact>,
    steps: Vec<StepMark>,
    /// The probe's own account of why it failed.
    error: Option<(String, String)>,
    /// torch's first word on memory that it did not get.
    out_of_memory: Option<String>,
    ready: bool,
}

impl TransformersLogParser {
    fn step(&mut self, step: EngineStep, at: Option<AtNs>, quote: &str) {
        self.ready = match step {
            EngineStep::Ready => true,
            EngineStep::Started | EngineStep::Stopping => false,
            _ => self.ready,
        };
        if self.steps.len() < MAX_STEPS {
            self.steps.push(StepMark {
                step,
                at_ns: at,
                quote: quote.to_owned(),
            });
        }
    }

    fn phase(&mut self, line: &str, at: Option<AtNs>) {
        let words: BTreeMap<&str, &str> = words(line).collect();
        let quote: String = line.trim_end().chars().take(MAX_QUOTE).collect();
        let step = match words.get("phase").copied() {
            Some("start") => EngineStep::Started,
            Some("load") => EngineStep::LoadingWeights,
            Some("loaded") => EngineStep::WeightsLoaded,
            Some("warmup") => EngineStep::Ready,
            Some("done") => EngineStep::Stopping,
            _ => return,
        };
        if let Some(version) = words.get("transformers") {
            self.version = Some(version.chars().take(40).collect());
        }
        if let Some(dtype) = words.get("dtype").filter(|v| **v != "None") {
            let fact = Fact {
                value: FactValue::Text(dtype.chars().take(MAX_VALUE).collect()),
                quote: quote.clone(),
                at_ns: at,
            };
            self.facts.insert("dtype".to_owned(), fact);
        }
        self.step(step, at, &quote);
    }
}

impl LogParser for TransformersLogParser {
    fn line(&mut self, line: &[u8], at: Option<AtNs>) {
        let line = &line[..line.len().min(crate::engine::lines::LONGEST_LINE)];
        let has = |words: &[u8]| memchr::memmem::find(line, words);
        if let Some(begin) = has(b"plimsoll-probe ") {
            let text = String::from_utf8_lossy(&line[begin..]);
            match text.strip_prefix("plimsoll-probe error kind=") {
                Some(told) => {
                    let (kind, message) = told.split_once(' ').unwrap_or((told, ""));
                    let message = message.trim().chars().take(MAX_QUOTE).collect();
                    self.error = Some((kind.to_owned(), message));
                }
                None => self.phase(&text, at),
            }
        } else if has(b"Application startup complete").is_some() {
            let text = String::from_utf8_lossy(line);
            self.step(EngineStep::Ready, at, text.trim());
        } else if self.out_of_memory.is_none()
            && (has(b"OutOfMemoryError: ").is_some() || has(b"CUDA out of memory").is_some())
        {
            let text = String::from_utf8_lossy(line);
            self.out_of_memory = Some(text.trim().chars().take(MAX_QUOTE).collect());
        }
    }

    fn steps_seen(&self) -> usize {
        self.steps.len()
    }

    fn report(&self) -> LogReport {
        let told = self.error.as_ref().filter(|(kind, _)| kind == "oom");
        let oom = told
            .map(|(_, message)| message)
            .or(self.out_of_memory.as_ref());
        let mut facts = self.facts.clone();
        let fact = Fact {
            value: FactValue::Bool(oom.is_some()),
            quote: oom.cloned().unwrap_or_default(),
            at_ns: None,
        };
        facts.insert("oom".to_owned(), fact);
        LogReport {
            engine: "transformers".to_owned(),
            engine_version: self.version.clone(),
            facts,
            steps: self.steps.clone(),
            findings: oom
                .map(|quote| Finding {
                    code: "oom".to_owned(),
                    severity: Severity::Error,
                    message: "torch did not get the memory that it asked for".to_owned(),
                    quote: Some(quote.clone()),
                })
                .into_iter()
                .collect(),
        }
    }

    fn root_cause(&self) -> Option<String> {
        self.error
            .as_ref()
            .map(|(_, message)| message.clone())
            .or_else(|| self.out_of_memory.clone())
    }

    fn ready(&self) -> bool {
        self.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &[&str]) -> TransformersLogParser {
        let mut parser = TransformersLogParser::default();
        for (at, line) in lines.iter().enumerate() {
            parser.line(line.as_bytes(), Some(at as AtNs));
        }
        parser
    }

    #[test]
    fn the_probes_life() {
        let text = include_str!("../../../tests/fixtures/transformers/cpu-bfloat16.log");
        let parser = read(&text.lines().collect::<Vec<_>>());
        let report = parser.report();
        let steps: Vec<EngineStep> = report.steps.iter().map(|m| m.step).collect();
        assert_eq!(
            steps,
            [
                EngineStep::Started,
                EngineStep::LoadingWeights,
                EngineStep::WeightsLoaded,
                EngineStep::Ready,
                EngineStep::Stopping
            ]
        );
        assert_eq!(report.engine_version.as_deref(), Some("5.19.0"));
        assert_eq!(report.text("dtype"), Some("bfloat16"));
        assert_eq!(report.facts["oom"].value, FactValue::Bool(false));
        assert!(report.findings.is_empty() && parser.root_cause().is_none());
    }

    #[test]
    fn why_it_failed() {
        let text = include_str!("../../../tests/fixtures/transformers/no-such-model.log");
        let cause = read(&text.lines().collect::<Vec<_>>())
            .root_cause()
            .expect("a cause");
        assert!(
            cause.starts_with("`/models/nothing` cannot be loaded: "),
            "{cause}"
        );
        let parser = read(&[
            "plimsoll-probe phase=start python=3.12",
            "plimsoll-probe error kind=oom OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ]);
        assert_eq!(parser.report().facts["oom"].value, FactValue::Bool(true));
        assert!(parser.root_cause().is_some_and(|c| c.contains("2.00 GiB")));
        let server = read(&[
            "INFO:     Application startup complete.",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        ]);
        assert!(server.ready() && server.root_cause().is_some());
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut parser = TransformersLogParser::default();
            let prefixed = [b"plimsoll-probe ".as_slice(), &line].concat();
            parser.line(&line, None);
            parser.line(&prefixed, None);
            let _ = (parser.report(), parser.root_cause());
        }
    }
}
