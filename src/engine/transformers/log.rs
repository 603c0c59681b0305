//! The log: the probe's own lines, and what `transformers serve` and torch say of memory.
//!
//! | line | fact |
//! |---|---|
//! | `plimsoll-probe phase=…` | milestones, version, `dtype` |
//! | `Memory available for cache allocation: N MB` (MiB, continuous batching) | `kv_available_gib` |
//! | `Paged cache initialized: self.max_batch_tokens = N, …` | `max_batch_tokens` |
//! | `MemoryError: Memory footprint … is more than available memory …`, PyTorch's own words | `oom` |

use super::bench::PHASE;
use crate::engine::bench::phase_words;
use crate::engine::facts::{EngineStep, key};
use crate::engine::log::figures::number_after;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::sheet::{Weight, is_exception};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser, text, torch};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Longest value that is kept, characters.
const MAX_VALUE: usize = 40;

/// Reads the output of the probe, or of `transformers serve`.
pub type TransformersLogParser = SheetParser<TransformersMessages>;

/// Every line of interest contains one of these.
const WORDS: &[&str] = &[
    "plimsoll-probe ",
    "Application startup complete",
    "ut of memory",
    "allocate memory",
    "bad_alloc",
    "Error",
    "Exception",
    "Memory available for cache allocation",
    "Paged cache initialized",
];

/// Every sign of this log.
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let kinds = PHASES.iter().map(|(sign, _)| *sign);
    let own = ["Memory footprint ", "max_batch_tokens = ", "error kind="];
    [WORDS, &own, torch::LACK]
        .concat()
        .into_iter()
        .chain(kinds)
        .collect()
}

/// State of the reader of these lines.
#[derive(Default)]
pub struct TransformersMessages;

impl Messages for TransformersMessages {
    const ENGINE: &'static str = "transformers";

    fn words() -> &'static Words {
        static SHARED: LazyLock<Words> = LazyLock::new(|| Words::new(WORDS));
        &SHARED
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        if let Some(begin) = line.text.find("plimsoll-probe ") {
            return probe(&line.text[begin..], line, sheet);
        }
        if line.text.contains("Application startup complete") {
            sheet.step(EngineStep::Ready, line, "Application startup complete");
        }
        let cache = "Memory available for cache allocation: ";
        if let Some(mib) = number_after(line.text, cache) {
            sheet.figure(key::kv_available_gib, mib.value / 1024.0, line, cache);
        }
        let batch = "max_batch_tokens = ";
        if line.text.contains("Paged cache initialized") {
            if let Some(tokens) = number_after(line.text, batch) {
                sheet.count(key::max_batch_tokens, tokens.value as u64, line, batch);
            }
        }
        let footprint = "Memory footprint ";
        if line.text.contains("MemoryError: ") && line.text.contains(footprint) {
            sheet.out_of_memory(line, footprint);
        } else if !torch::read(line, sheet) && is_exception(text::bare(line.text)) {
            sheet.cause(Weight::Cause, line, "");
        }
    }
}

/// Phases of the probe, each the step that it begins with.
const PHASES: &[(&str, EngineStep)] = &[
    ("start", EngineStep::Started),
    ("load", EngineStep::LoadingWeights),
    ("loaded", EngineStep::WeightsLoaded),
    ("warmup", EngineStep::Ready),
    ("done", EngineStep::Stopping),
];

/// A line of the probe, from its mark on.
fn probe(message: &str, whole: &Line<'_>, sheet: &mut Sheet) {
    let line = &Line {
        text: message,
        ..*whole
    };
    if let Some(error) = message.strip_prefix("plimsoll-probe error kind=") {
        let (kind, message) = error.split_once(' ').unwrap_or((error, ""));
        let message = Line {
            text: message.trim(),
            ..*whole
        };
        if kind == "oom" {
            torch::figures(&message, sheet);
            sheet.out_of_memory(&message, "");
        } else {
            sheet.cause(Weight::Cause, &message, "");
        }
        return;
    }
    let words: BTreeMap<&str, &str> = phase_words(message, PHASE).collect();
    let phase = words.get("phase").copied();
    let Some((_, step)) = PHASES.iter().copied().find(|(name, _)| phase == Some(name)) else {
        return;
    };
    if let Some(version) = words.get("transformers") {
        sheet.version(version);
    }
    if let Some(dtype) = words.get("dtype").filter(|v| **v != "None") {
        let dtype: String = dtype.chars().take(MAX_VALUE).collect();
        sheet.text(key::dtype, &dtype, line, "dtype=");
    }
    if step == EngineStep::Ready {
        sheet.enough_memory(line, "");
    }
    sheet.step(step, line, "");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::AtNs;
    use crate::engine::LogParser;
    use crate::engine::facts::FactValue;
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
        assert_eq!(report.text(key::dtype), Some("bfloat16"));
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
