//! The reference engine's log: milestones and errors. It omits sizes on purpose, so that memory is
//! found by measurement only.

use super::PHASE;
use crate::engine::bench::phase_words;
use crate::engine::facts::{EngineStep, Finding, Severity};
use crate::engine::log::sheet::{Sheet, Weight};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use std::sync::LazyLock;

/// Errors kept: a container that restarts forever must not fill memory.
const MAX_FINDINGS: usize = 16;

/// Reads the log of `reference-engine serve` and `bench`.
pub type ReferenceLogParser = SheetParser<ReferenceMessages>;

/// State of the reader of these lines.
#[derive(Debug, Default)]
pub struct ReferenceMessages {
    errors: usize,
    ready: bool,
}

/// What every line contains.
const NAME: &str = "reference-engine";

/// Phases, each the step that it begins with.
const PHASES: &[(&str, EngineStep)] = &[
    ("start", EngineStep::Started),
    ("loading_weights", EngineStep::LoadingWeights),
    ("weights_loaded", EngineStep::WeightsLoaded),
    ("kv_cache_allocated", EngineStep::KvCacheAllocated),
    ("ready", EngineStep::Ready),
    ("stopping", EngineStep::Stopping),
];

impl Messages for ReferenceMessages {
    const ENGINE: &'static str = "reference";

    fn words() -> &'static Words {
        static SEARCH: LazyLock<Words> = LazyLock::new(|| Words::new(&[NAME]));
        &SEARCH
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let Some(begin) = line.text.find(NAME) else {
            return;
        };
        let from = |at: usize| Line {
            text: &line.text[at..],
            ..*line
        };
        if let Some(error) = line.text[..begin].rfind("ERROR ") {
            return self.error(&from(error), sheet);
        }
        let line = from(begin);
        if let Some((_, phase)) = phase_words(line.text, PHASE).next() {
            let Some((_, step)) = PHASES.iter().find(|(name, _)| *name == phase) else {
                return;
            };
            sheet.step(*step, &line, "");
            // A restarted container continues the same log.
            let ends = matches!(step, EngineStep::Started | EngineStep::Stopping);
            self.ready = *step == EngineStep::Ready || self.ready && !ends;
        } else if let Some((version, _)) = line
            .text
            .strip_prefix("reference-engine ")
            .and_then(|rest| rest.split_once(" (simulated engine)"))
        {
            sheet.version(version);
        }
    }

    fn is_ready(&self, _: &Sheet) -> bool {
        self.ready
    }
}

impl ReferenceMessages {
    fn error(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        sheet.cause(Weight::Cause, line, "");
        self.errors += 1;
        if self.errors <= MAX_FINDINGS {
            let quote = line.quote("");
            sheet.note(Finding {
                code: "engine_error".to_owned(),
                severity: Severity::Error,
                message: quote.trim_start_matches("ERROR ").to_owned(),
                quote: Some(quote),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::AtNs;
    use crate::engine::LogParser;
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
                <= 256
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
