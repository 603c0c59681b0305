//! A log of unknown origin: which engine wrote it, and what it says.

use super::words::Words;
use crate::capture::AtNs;
use crate::engine::facts::LogReport;
use crate::engine::{EngineId, LogParser};

/// Bytes after which the engine with the most lines is taken. Until then every engine's parser
/// reads along.
const ENOUGH_BYTES: usize = 1 << 20;

/// Lines by which an engine that is behind is out of it, once so many bytes were read.
const ENOUGH_LEAD: u64 = 8;

/// Reads a log as every engine's, until it is clear whose it is.
pub struct AutoParser {
    candidates: Vec<Candidate>,
    bytes: usize,
}

struct Candidate {
    engine: EngineId,
    marks: Words,
    /// Marks that count once more.
    own: Option<Words>,
    /// Lines that hold a mark.
    lines: u64,
    parser: Box<dyn LogParser>,
}

impl Default for AutoParser {
    fn default() -> AutoParser {
        AutoParser::new()
    }
}

impl AutoParser {
    /// A parser that has read nothing.
    pub fn new() -> AutoParser {
        let candidates = EngineId::ALL.iter().filter(|e| !e.log_marks().is_empty());
        AutoParser {
            candidates: candidates
                .map(|engine| Candidate {
                    engine: *engine,
                    marks: Words::new(engine.log_marks()),
                    own: (!engine.own_log_marks().is_empty())
                        .then(|| Words::new(engine.own_log_marks())),
                    lines: 0,
                    parser: engine.log_parser(),
                })
                .collect(),
            bytes: 0,
        }
    }

    /// The engine whose log it is, as far as the lines so far tell; `None` when none of them is
    /// any engine's.
    pub fn engine(&self) -> Option<EngineId> {
        Some(self.best()?.engine)
    }

    /// The one with the most lines; where two have as many (a log of only the lines that the
    /// runner of Ollama prints as llama.cpp does), the first in the list.
    fn best(&self) -> Option<&Candidate> {
        let mut best: Option<&Candidate> = None;
        for candidate in self.candidates.iter().filter(|c| c.lines > 0) {
            if best.is_none_or(|b| candidate.lines > b.lines) {
                best = Some(candidate);
            }
        }
        best
    }

    fn settle(&mut self) {
        // Two that stay together speak alike (Ollama and its runner); the others are out of it.
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

    fn steps_seen(&self) -> usize {
        self.best().map_or(0, |b| b.parser.steps_seen())
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
            let mut parser = AutoParser::new();
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
        let mut parser = AutoParser::new();
        let line = "(EngineCore pid=9) INFO 01-01 00:00:00 [x.py:1] ".to_owned() + &"y".repeat(900);
        for _ in 0..2 * ENOUGH_BYTES / 900 {
            parser.line(line.as_bytes(), None);
        }
        assert_eq!(parser.candidates.len(), 1);
        assert_eq!(parser.engine().map(|e| e.name()), Some("vllm"));
    }
}
