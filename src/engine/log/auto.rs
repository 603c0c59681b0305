//! Detects the engine of a log of unknown origin and parses the log.

use super::words::Words;
use crate::capture::AtNs;
use crate::engine::facts::LogReport;
use crate::engine::{EngineId, LogParser};

/// Candidates are compared each time this many bytes were read; the parsers of all remaining
/// candidates read along.
const ENOUGH_BYTES: usize = 1 << 20;

/// Lines behind the leader at which a comparison drops a candidate.
const ENOUGH_LEAD: u64 = 8;

/// Parses a log for every engine until one is identified.
pub struct AutoParser {
    candidates: Vec<Candidate>,
    bytes: usize,
}

struct Candidate {
    engine: EngineId,
    marks: Words,
    /// Marks that count twice.
    own: Option<Words>,
    /// Lines that contain a mark.
    lines: u64,
    parser: Box<dyn LogParser>,
}

impl Default for AutoParser {
    fn default() -> AutoParser {
        let marks = |engine: &EngineId| [engine.log_marks, engine.own_log_marks].concat();
        let candidates = EngineId::ALL.iter().map(|engine| (engine, marks(engine)));
        AutoParser {
            candidates: candidates
                .filter(|(_, marks)| !marks.is_empty())
                .map(|(engine, marks)| Candidate {
                    engine: *engine,
                    marks: Words::new(&marks),
                    own: (!engine.own_log_marks.is_empty())
                        .then(|| Words::new(engine.own_log_marks)),
                    lines: 0,
                    parser: (engine.log_parser)(),
                })
                .collect(),
            bytes: 0,
        }
    }
}

impl AutoParser {
    /// The most likely engine after the lines so far; `None` while no line matches any.
    pub fn engine(&self) -> Option<EngineId> {
        Some(self.best()?.engine)
    }

    /// The candidate with the most lines; on a tie (a log of only the lines that Ollama's runner
    /// prints as llama.cpp does), the first in the list.
    fn best(&self) -> Option<&Candidate> {
        let marked = self.candidates.iter().filter(|c| c.lines > 0);
        marked.rev().max_by_key(|c| c.lines)
    }

    fn settle(&mut self) {
        // Candidates this close print the same lines (Ollama and its runner); the others are
        // dropped.
        if let Some(lines) = self.best().map(|b| b.lines) {
            self.candidates.retain(|c| c.lines + ENOUGH_LEAD > lines);
        }
    }
}

impl LogParser for AutoParser {
    fn line(&mut self, raw: &[u8], at: Option<AtNs>) {
        if let [only] = self.candidates.as_mut_slice() {
            return only.parser.line(raw, at);
        }
        for candidate in &mut self.candidates {
            let own = candidate.own.as_ref().is_some_and(|own| own.hold(raw));
            candidate.lines += u64::from(own) + u64::from(candidate.marks.hold(raw));
            candidate.parser.line(raw, at);
        }
        let before = self.bytes / ENOUGH_BYTES;
        self.bytes = self.bytes.saturating_add(raw.len() + 1);
        if self.bytes / ENOUGH_BYTES > before {
            self.settle();
        }
    }

    fn step_count(&self) -> usize {
        self.best().map_or(0, |b| b.parser.step_count())
    }

    fn report(&self) -> LogReport {
        self.best().map_or_else(
            || LogReport {
                engine: "unknown".to_owned(),
                ..LogReport::default()
            },
            |b| b.parser.report(),
        )
    }

    fn root_cause(&self) -> Option<String> {
        self.best()?.parser.root_cause()
    }

    fn ready(&self) -> bool {
        self.best().is_some_and(|b| b.parser.ready())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_known_by_its_lines() {
        let engine = |text: &str| {
            let mut parser = AutoParser::default();
            for line in text.lines() {
                parser.line(line.as_bytes(), None);
            }
            parser.report().engine
        };
        assert_eq!(
            engine(
                "(EngineCore pid=9) INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: 2.0 GiB"
            ),
            "vllm"
        );
        for line in [
            "INFO 05-25 00:00:33 executor_base.py:111] # rocm blocks: 3333, # CPU blocks: 512",
            "INFO 05-25 00:00:33 [cuda.py:51] Using Flash Attention backend on V1 engine.",
            "To serve at least one request with the models's max seq len (32000), (1.1 GiB KV cache is needed, which is larger than the available KV cache memory (0.59 GiB).",
        ] {
            assert_eq!(engine(line), "vllm", "{line}");
        }
        assert_eq!(engine("reference-engine phase=start"), "reference");
        let runner = "load_tensors:        CUDA0 model buffer size =  1000.00 MiB";
        assert_eq!(engine(runner), "llama_cpp");
        assert_eq!(engine(&format!("ollama  | {runner}")), "ollama");
        assert_eq!(
            engine(&format!(
                "{runner}\ntime=2031-01-02T03:04:05.678Z level=INFO source=llama_server.go:7 msg=\"waiting for server\""
            )),
            "ollama"
        );
        assert_eq!(
            engine(&format!("{runner}\n[GIN] 2031/01/02 | 200 | GET")),
            "ollama"
        );
        assert_eq!(
            engine("[03:04:05 TP0] Memory pool end. avail mem=2.00 GB\nusing vllm kernels"),
            "sglang"
        );
        assert_eq!(engine("LOG:  database system is ready"), "unknown");
        assert_eq!(engine(""), "unknown");
    }

    #[test]
    fn a_long_log_is_read_by_one_parser() {
        let mut parser = AutoParser::default();
        let line = "(EngineCore pid=9) INFO 01-01 00:00:00 [x.py:1] ".to_owned() + &"y".repeat(900);
        for _ in 0..2 * ENOUGH_BYTES / 900 {
            parser.line(line.as_bytes(), None);
        }
        assert_eq!(parser.candidates.len(), 1);
        assert_eq!(parser.engine().map(|e| e.name), Some("vllm"));
    }
}
