//! One start of the engine: everything that its lines said.

use super::identity::Identity;
use super::milestones::Milestones;
use super::readings::{Line, Readings};
use super::settings::Settings;
use super::trouble::{Trouble, is_lack};
use super::{facts, findings, graphs, memory, pool};
use crate::capture::AtNs;
use crate::engine::facts::{EngineStep, Fact, FactValue, LogReport};
use crate::engine::log::figures::{after, number, number_after};
use crate::engine::log::sheet::{Sheet, phase_after};
use crate::engine::log::text::{Level, bare, record};
use crate::engine::log::{self, torch};
use std::collections::BTreeSet;

/// Lines that a message broken over lines may go on for.
const MOST_CONTINUATIONS: u32 = 3;

/// Data-parallel engines whose banners are told apart.
const MOST_ENGINES: usize = 1024;

/// Everything read of one start.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub(super) readings: Readings,
    pub(super) settings: Settings,
    pub(super) identity: Identity,
    pub(super) milestones: Milestones,
    pub(super) trouble: Trouble,
    /// Largest share of the KV pool that the statistics showed, percent, and the line.
    pub(super) peak_usage: Option<(f64, Fact)>,
    /// `nvidia-smi` rows that somebody put below the log: GPU index, MiB, line.
    pub(super) smi: Vec<(f64, Fact)>,
    pub(super) unscaled_fp8: Option<String>,
    /// What the first lack of memory said of sizes, and what the engine was doing then.
    pub(super) lack: Option<(Sheet, &'static str)>,
    /// Engines whose banner was seen: data-parallel engines each have one.
    banners: BTreeSet<(u32, &'static str)>,
    /// A message whose end stands on the next line.
    broken: Option<(String, u32)>,
}

impl Run {
    /// Whether `line` begins another start of the engine.
    pub fn is_over(&self, line: &Line<'_>) -> bool {
        let Some(kind) = announcement(line.text) else {
            return false;
        };
        // The first lines of a start announce it several times, before anything is allocated. The
        // banner of the second data-parallel engine may come late.
        let begun =
            !self.readings.is_empty() || self.trouble.failure().is_some() || self.is_ready();
        begun && (kind == "server" || self.banners.contains(&(line.origin.engine(), kind)))
    }

    /// Whether lines that hold nothing by themselves may go on with a message.
    pub fn awaits_more(&self) -> bool {
        self.settings.banner_open() || self.broken.is_some()
    }

    /// Reads one line.
    pub fn read(&mut self, line: &Line<'_>) {
        let (level, message) = record(line.text);
        // Requests are quoted in the log, and a prompt can say anything.
        if [
            "Received request ",
            "Generated response ",
            "Dumping input data ",
        ]
        .iter()
        .any(|m| message.starts_with(m))
        {
            return;
        }
        if self.readings.forwarded_before(line) {
            return;
        }
        if self.settings.banner_open() {
            self.settings.continue_banner(line, level != Level::Unknown);
        }
        self.join_broken(line);
        if let Some(kind) = announcement(line.text) {
            if self.banners.len() < MOST_ENGINES {
                self.banners.insert((line.origin.engine(), kind));
            }
        }
        self.identity.read(line, &mut self.settings);
        self.settings.read(line);
        self.milestones.read(line);
        memory::read(line, &mut self.readings, &mut self.settings);
        pool::read(line, &mut self.readings, &mut self.settings);
        graphs::read(line, &mut self.readings);
        self.trouble
            .read(line, self.is_ready(), self.settings.speculative);
        if self.lack.is_none() && self.trouble.out_of_memory.is_some() {
            let mut sizes = Sheet::default();
            torch::figures(&log::Line::from(line), &mut sizes);
            self.lack = Some((sizes, phase_after(&self.milestones.marks())));
        }
        self.statistics(line);
        self.smi_row(line);
        if line
            .text
            .contains("Using KV cache scaling factor 1.0 for fp8")
        {
            self.unscaled_fp8
                .get_or_insert_with(|| line.quote("scaling factor"));
        }
    }

    /// A message that a narrow terminal or an author broke in two.
    fn join_broken(&mut self, line: &Line<'_>) {
        if let Some((begun, left)) = self.broken.take() {
            let joined = format!("{begun} {}", record(line.text).1);
            let whole = Line {
                text: &joined,
                ..*line
            };
            let complete = if begun.contains("Maximum concurrency for ") {
                pool::concurrency(&whole, &mut self.readings, &mut self.settings)
            } else if joined.contains("current free memory ") {
                memory::read(&whole, &mut self.readings, &mut self.settings);
                true
            } else if is_lack(&joined) && !is_lack(&begun) && !is_lack(line.text) {
                self.trouble.read(&whole, self.is_ready(), false);
                memory::read(&whole, &mut self.readings, &mut self.settings);
                pool::read(&whole, &mut self.readings, &mut self.settings);
                true
            } else {
                false
            };
            if !complete && left > 1 && joined.len() < 600 {
                self.broken = Some((joined, left - 1));
            }
        }
        let (_, message) = record(line.text);
        if message.starts_with("ValueError: ") && !is_lack(message) && message.len() < 300 {
            self.broken = Some((message.to_owned(), MOST_CONTINUATIONS));
        }
        for (begins, ends) in [
            ("Maximum concurrency for ", "request: "),
            ("Error in memory profiling. ", "current free memory "),
        ] {
            if let Some(at) = line.text.find(begins) {
                if after(&line.text[at..], ends).and_then(number).is_none()
                    && line.text.len() - at < 300
                {
                    self.broken = Some((line.text[at..].to_owned(), MOST_CONTINUATIONS));
                }
            }
        }
    }

    /// Whether a statistics line says more than those before. Runs on nearly every line of a
    /// serving log, so it looks at bytes only.
    pub fn statistics_are_news(&self, raw: &[u8]) -> bool {
        if memchr::memmem::find(raw, b"Preemptions: ").is_some() {
            return true;
        }
        let Some(at) = memchr::memmem::find(raw, b"KV cache usage: ") else {
            return false;
        };
        let digits = &raw[at + 16..];
        let end = digits.iter().take(12).position(|b| *b == b'%').unwrap_or(0);
        let usage = std::str::from_utf8(&digits[..end])
            .ok()
            .and_then(|t| t.parse::<f64>().ok());
        usage.is_some_and(|usage| {
            self.peak_usage
                .as_ref()
                .is_none_or(|(peak, _)| usage > *peak)
        })
    }

    fn statistics(&mut self, line: &Line<'_>) {
        let needle = "KV cache usage: ";
        if let Some(n) = number_after(line.text, needle) {
            if self
                .peak_usage
                .as_ref()
                .is_none_or(|(peak, _)| n.value > *peak)
            {
                let fact = Fact {
                    value: FactValue::Float(n.value),
                    quote: vec![line.quote(needle)],
                    at_ns: line.at,
                };
                self.peak_usage = Some((n.value, fact));
            }
        }
        if let Some(n) = number_after(line.text, ", Preemptions: ") {
            if n.value > 0.0 {
                self.trouble.preempted(n.value as u64, line);
            }
        }
    }

    /// `0, 86874 MiB`: a row of `nvidia-smi --query-gpu=index,memory.used`.
    fn smi_row(&mut self, line: &Line<'_>) {
        let Some((index, rest)) = number(bare(line.text)) else {
            return;
        };
        let Some((used, unit)) = rest.strip_prefix(", ").and_then(number) else {
            return;
        };
        if unit == " MiB"
            && index.whole
            && used.whole
            && index.value == self.smi.len() as f64
            && self.smi.len() < 64
        {
            let fact = Fact {
                value: FactValue::Float(used.value),
                quote: vec![line.quote("")],
                at_ns: line.at,
            };
            self.smi.push((used.value, fact));
        }
    }

    /// Whether the engine announced that it is ready.
    pub fn is_ready(&self) -> bool {
        self.milestones.is_ready()
    }

    /// The line that explains a failed start or a death.
    pub fn root_cause(&self) -> Option<String> {
        self.trouble
            .root_cause(self.is_ready())
            .map(|w| w.quote.clone())
    }

    /// How many steps the log passed.
    pub fn steps(&self) -> usize {
        self.milestones.count()
    }

    /// What this start said.
    pub fn report(&self) -> LogReport {
        LogReport {
            engine: "vllm".to_owned(),
            engine_version: self.identity.version(),
            facts: facts::of(self),
            steps: self.milestones.marks(),
            findings: findings::of(self),
        }
    }

    /// The line that shows that memory sufficed: the latest of readiness, graphs and pool, the
    /// statistics of a server, or a failure of another kind. `None` while no line shows it.
    pub(super) fn enough_memory(&self) -> Option<(String, Option<AtNs>)> {
        if self.trouble.may_lack_memory(self.is_ready()) {
            return None;
        }
        let marks = self.milestones.marks();
        let taken = marks.iter().filter(|m| {
            matches!(
                m.step,
                EngineStep::Ready | EngineStep::GraphsCaptured | EngineStep::KvCacheAllocated
            )
        });
        let mark = taken
            .max_by_key(|m| m.step)
            .map(|m| (m.quote.clone(), m.at_ns));
        let serving = || {
            let (_, fact) = self.peak_usage.as_ref()?;
            Some((fact.quote.first()?.clone(), fact.at_ns))
        };
        // The pool's size is printed once it fits into what the memory profile left.
        let pool = || {
            let keys = ["kv_cache_tokens", "num_gpu_blocks", "num_device_blocks"];
            let mut readings = keys.iter().flat_map(|key| self.readings.of(key));
            let fits = readings.rfind(|r| r.value > 0.0)?;
            Some((fits.quote.clone(), fits.at))
        };
        let other_failure = || {
            let (_, witness) = self.trouble.failure()?;
            Some((witness.quote.clone(), witness.at))
        };
        mark.or_else(serving).or_else(pool).or_else(other_failure)
    }

    /// Whether the log passed a step.
    pub(super) fn passed(&self, step: EngineStep) -> bool {
        self.milestones.marks().iter().any(|m| m.step == step)
    }
}

/// What kind of announcement a line is, if it is one.
fn announcement(text: &str) -> Option<&'static str> {
    if text.contains("non-default args: ") || text.contains("args: Namespace(") {
        Some("server")
    } else if text.contains("Initializing a") && text.contains("LLM engine (") {
        Some("engine")
    } else {
        None
    }
}
