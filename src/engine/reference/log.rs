//! The reference engine's log: milestones and errors. It omits sizes on purpose, so that memory is
//! found by measurement only.

use super::PHASE;
use crate::capture::AtNs;
use crate::engine::LogParser;
use crate::engine::bench::phase_words;
use crate::engine::facts::{EngineStep, Finding, LogReport, Severity, StepMark};

/// Milestones kept: a container that restarts forever must not fill memory.
const MAX_STEPS: usize = 256;
/// Errors kept, for the same reason.
const MAX_FINDINGS: usize = 16;
/// Longest line that is quoted, characters.
const MAX_QUOTE: usize = 500;

/// Reads the log of `reference-engine serve` and `bench`.
#[derive(Debug, Default)]
pub struct ReferenceLogParser {
    version: Option<String>,
    steps: Vec<StepMark>,
    errors: Vec<Finding>,
    ready: bool,
}

impl ReferenceLogParser {
    fn error(&mut self, line: &[u8], prefix: &str) {
        if self.errors.len() >= MAX_FINDINGS {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let quote: String = text.trim_end().chars().take(MAX_QUOTE).collect();
        self.errors.push(Finding {
            code: "engine_error".to_owned(),
            severity: Severity::Error,
            message: quote.strip_prefix(prefix).unwrap_or(&quote).to_owned(),
            quote: Some(quote),
        });
    }
}

impl LogParser for ReferenceLogParser {
    fn line(&mut self, line: &[u8], at: Option<AtNs>) {
        let Some(begin) = memchr::memmem::find(line, b"reference-engine") else {
            return;
        };
        if let Some(error) = memchr::memmem::rfind(&line[..begin], b"ERROR ") {
            return self.error(&line[error..], "ERROR ");
        }
        let text = String::from_utf8_lossy(&line[begin..]);
        let quote = || text.trim_end().chars().take(MAX_QUOTE).collect::<String>();
        if let Some(phase) = phase_words(&text, PHASE).next() {
            let step = match phase.1 {
                "start" => EngineStep::Started,
                "loading_weights" => EngineStep::LoadingWeights,
                "weights_loaded" => EngineStep::WeightsLoaded,
                "kv_cache_allocated" => EngineStep::KvCacheAllocated,
                "ready" => EngineStep::Ready,
                "stopping" => EngineStep::Stopping,
                _ => return,
            };
            self.ready = match step {
                EngineStep::Ready => true,
                // A restarted container continues the same log.
                EngineStep::Started | EngineStep::Stopping => false,
                _ => self.ready,
            };
            if self.steps.len() < MAX_STEPS {
                self.steps.push(StepMark {
                    step,
                    at_ns: at,
                    quote: quote(),
                });
            }
        } else if let Some((version, _)) = text
            .strip_prefix("reference-engine ")
            .and_then(|rest| rest.split_once(" (simulated engine)"))
        {
            self.version = Some(version.chars().take(40).collect());
        }
    }

    fn step_count(&self) -> usize {
        self.steps.len()
    }

    fn report(&self) -> LogReport {
        LogReport {
            engine: "reference".to_owned(),
            engine_version: self.version.clone(),
            steps: self.steps.clone(),
            findings: self.errors.clone(),
            ..LogReport::default()
        }
    }

    fn root_cause(&self) -> Option<String> {
        self.errors.first().and_then(|f| f.quote.clone())
    }

    fn ready(&self) -> bool {
        self.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &[&str]) -> ReferenceLogParser {
        let mut parser = ReferenceLogParser::default();
        for (at, line) in lines.iter().enumerate() {
            parser.line(line.as_bytes(), Some(at as AtNs));
        }
        parser
    }

    #[test]
    fn a_life() {
        let parser = read(&[
            "reference-engine 0.1.0 (simulated engine) model=toy pid=1",
            "reference-engine phase=start",
            "reference-engine phase=loading_weights",
            "noise",
            "eng-1  | reference-engine phase=weights_loaded t=3",
            "reference-engine phase=kv_cache_allocated",
            "reference-engine phase=ready\r",
            "reference-engine phase=bench_iteration n=1 of=2",
        ]);
        assert!(parser.ready());
        let report = parser.report();
        assert_eq!(report.engine_version.as_deref(), Some("0.1.0"));
        assert_eq!(report.step_at(EngineStep::WeightsLoaded), Some(4));
        assert_eq!(report.steps.len(), 5);
        assert!(report.facts.is_empty() && report.findings.is_empty());
        assert_eq!(report.steps[4].quote, "reference-engine phase=ready");
        assert_eq!(parser.root_cause(), None);
    }

    #[test]
    fn errors_and_restarts() {
        let parser = read(&[
            "reference-engine phase=ready",
            "ERROR reference-engine worker: cannot allocate",
            "ERROR reference-engine: giving up",
            "reference-engine phase=start",
        ]);
        assert_eq!(
            parser.root_cause().as_deref(),
            Some("ERROR reference-engine worker: cannot allocate")
        );
        assert!(!parser.ready());
        assert_eq!(parser.report().findings.len(), 2);
        assert!(
            read(&["reference-engine phase=ready"; 1000])
                .report()
                .steps
                .len()
                <= MAX_STEPS
        );
    }

    proptest! {
        #[test]
        fn never_panics(tail in proptest::collection::vec(any::<u8>(), 0..60), text in "(phase=)?\\PC{0,30}") {
            let mut parser = ReferenceLogParser::default();
            let mut line = b"reference-engine ".to_vec();
            line.extend(&tail);
            parser.line(&tail, None);
            parser.line(&line, None);
            parser.line(format!("reference-engine {text}").as_bytes(), Some(1));
            parser.line(format!("ERROR reference-engine{text}").as_bytes(), Some(1));
            parser.report();
        }
    }
}
