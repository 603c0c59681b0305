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

/// Every sign of the tables above.
#[cfg(test)]
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let of = |table: &[(&'static str, &'static str)]| -> Vec<&'static str> {
        table.iter().map(|(sign, _)| *sign).collect()
    };
    let steps = [milestones::BEGINS, milestones::ENDS, milestones::POOL_TAKEN];
    let mut signs: Vec<&str> = steps.concat().iter().map(|(sign, _)| *sign).collect();
    for table in [
        memory::PROFILE_0_6,
        memory::RESULTS,
        memory::PROFILE,
        memory::SUMMARY,
        trouble::LACKS,
        trouble::FAILURES,
    ] {
        signs.extend(of(table));
    }
    signs.extend(pool::BLOCK_SIZE.iter().map(|(sign, _)| *sign));
    for table in [memory::WEIGHTS, memory::UTILIZATION, trouble::LINKER] {
        signs.extend(table);
    }
    signs.extend(crate::engine::log::torch::LACK);
    signs
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::facts::FactValue;

    fn read(log: &str) -> (LogReport, Option<String>) {
        let mut parser = VllmLogParser::new();
        log.lines().for_each(|l| parser.line(l.as_bytes(), None));
        (parser.report(), parser.root_cause())
    }

    fn oom(log: &str) -> Option<bool> {
        match read(log).0.facts.get("oom")? {
            fact if fact.quote.is_empty() => panic!("without a line: {fact:?}"),
            fact => Some(fact.value == FactValue::Bool(true)),
        }
    }

    const WEIGHTS: &str =
        "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Model loading took 1.25 GiB and 2.5 seconds\n";
    const POOL: &str = "INFO 01-02 03:04:06 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB\n\
         INFO 01-02 03:04:06 [kv_cache_utils.py:1] GPU KV cache size: 20,000 tokens\n";
    const CAPTURE: &str = "INFO 01-02 03:04:07 [gpu_model_runner.py:1] Capturing CUDA graph shapes:   0%|          | 0/2 [00:00<?, ?it/s]\n";
    const FAILED: &str = "ERROR 01-02 03:04:08 [core.py:1] EngineCore failed to start.\n";

    #[test]
    fn a_lack_in_graph_capture_is_of_that_phase() {
        let lack = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
        let (report, _) = read(&format!("{WEIGHTS}{POOL}{CAPTURE}{lack}"));
        assert_eq!(report.text("oom_phase"), Some("graph_capture"));
    }

    #[test]
    fn that_memory_sufficed_takes_a_line() {
        let ready = "INFO:     Application startup complete.\n";
        let unknown = "ERROR 01-02 03:04:08 [core.py:1] RuntimeError: r INTERNAL ASSERT FAILED\n";
        for (log, expected) in [
            (WEIGHTS.to_owned(), None),
            (format!("{WEIGHTS}{POOL}"), Some(false)),
            (format!("{WEIGHTS}{POOL}{FAILED}"), None),
            (format!("{WEIGHTS}{POOL}{CAPTURE}{FAILED}{unknown}"), None),
            (format!("{WEIGHTS}{POOL}{ready}"), Some(false)),
            (
                "RuntimeError: Cannot find any model weights with `m`".to_owned(),
                Some(false),
            ),
        ] {
            assert_eq!(oom(&log), expected, "{log}");
        }
    }

    #[test]
    fn a_lack_is_read_in_every_form() {
        for log in [
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB",
            "OutOfMemoryError: HIP out of",
            "ValueError: No available memory for\nthe cache blocks. Try increasing `gpu_memory_utilization`",
            "ERROR 01-02 03:04:08 [core.py:1] ValueError: To serve at least one request\nERROR 01-02 03:04:08 [core.py:1] with the model's max seq len (32000), (1.10 GiB KV cache is needed",
            "ValueError: The worker already uses 6.00 GiB (model weights and runtime), more than the 4.00 GiB of CPU memory reserved",
        ] {
            assert_eq!(oom(log), Some(true), "{log}");
        }
    }

    #[test]
    fn the_first_cause_is_the_root_and_no_consequence() {
        let library = "WARNING 01-02 03:04:05 [a.py:1] Failed to import from vllm._C with ImportError(\"/lib/libc.so.6: version `GLIBC_2.38' not found (required by /vllm/_C.abi3.so)\")\n";
        let (_, cause) = read(&format!(
            "{library}AttributeError: '_OpNamespace' '_C' object has no attribute 'silu_and_mul'"
        ));
        assert!(cause.is_some_and(|c| c.contains("GLIBC_2.38")));
        // Alone it is a warning; beside another error it is not the reason.
        assert_eq!(read(library).1, None);
        let (_, cause) = read(&format!("{library}ValueError: no such value"));
        assert_eq!(cause.as_deref(), Some("ValueError: no such value"));
    }

    #[test]
    fn a_failure_is_named_in_one_form() {
        let (report, _) = read(&format!("{WEIGHTS}{FAILED}"));
        assert_eq!(report.text("failure"), Some("start_failed"));
        let (report, _) = read("RuntimeError: Cannot find any model weights with `m`");
        assert_eq!(report.text("failure"), Some("model_weights_not_found"));
    }
}
