//! The steps of a start, as the log passes through them.

use super::origin::Role;
use super::readings::Line;
use crate::engine::facts::{EngineStep, StepMark};

/// Signs of an API server.
const SERVER: &[&str] = &[
    "api_server.py",
    "API server version",
    "vLLM server version",
    "Started server process",
];

/// Messages that open a step: the first one counts.
pub const BEGINS: &[(&str, EngineStep)] = &[
    ("server version ", EngineStep::Started),
    ("non-default args: ", EngineStep::Started),
    ("args: Namespace(", EngineStep::Started),
    ("LLM engine (v", EngineStep::Started),
    ("Starting to load model", EngineStep::LoadingWeights),
    ("Loading model from scratch", EngineStep::LoadingWeights),
];

/// Messages that close a step: that of the last rank counts.
pub const ENDS: &[(&str, EngineStep)] = &[
    ("Model loading took ", EngineStep::WeightsLoaded),
    ("Loading model weights took ", EngineStep::WeightsLoaded),
    ("Available KV cache memory: ", EngineStep::Profiled),
    ("memory reserved for KV Cache is ", EngineStep::Profiled),
    ("Memory profiling results: ", EngineStep::Profiled),
    ("After memory profiling run", EngineStep::Profiled),
    ("Model profiling run took ", EngineStep::Profiled),
    ("GiB for KV cache on node", EngineStep::Profiled),
    ("memory for KV Cache as specified by", EngineStep::Profiled),
    // The pool's size is printed just before it is allocated.
    ("KV cache size: ", EngineStep::Profiled),
    (" blocks: ", EngineStep::Profiled),
    ("Graph capturing finished", EngineStep::GraphsCaptured),
];

/// Messages that follow the allocation of the pool, which itself prints nothing.
pub const POOL_TAKEN: &[(&str, EngineStep)] = &[
    ("Capturing CUDA graph", EngineStep::KvCacheAllocated),
    ("Capturing cudagraphs", EngineStep::KvCacheAllocated),
    ("init engine (", EngineStep::KvCacheAllocated),
];

/// Milestones passed so far.
#[derive(Debug, Clone, Default)]
pub struct Milestones {
    marks: Vec<Passed>,
    /// Something of an API server was seen: readiness is its to announce.
    server: bool,
}

#[derive(Debug, Clone)]
struct Passed {
    mark: StepMark,
    no: u64,
    /// A better witness may replace it.
    provisional: bool,
}

impl Milestones {
    /// Reads a line for a milestone.
    pub fn read(&mut self, line: &Line<'_>) {
        use EngineStep::{GraphsCaptured, Profiled, Ready, Stopping, WeightsLoaded};
        let text = line.text;
        self.server |=
            line.origin.role == Role::Server || SERVER.iter().any(|sign| text.contains(sign));
        for (sign, step) in BEGINS {
            if text.contains(sign) {
                self.first(*step, line, sign);
            }
        }
        for (sign, step) in ENDS {
            // `# X blocks: N` is the pool; other blocks are counted elsewhere in a log.
            if text.contains(sign) && (*sign != " blocks: " || text.contains("# ")) {
                self.last(*step, line, sign);
            }
        }
        // Seconds, not memory; on CPU the only word about the end of loading.
        if text.contains("Loading weights took ") {
            self.provisional(WeightsLoaded, line, "Loading weights took ");
        }
        // That it is allocated is said by what comes next.
        if self.passed(Profiled) && !self.passed(GraphsCaptured) {
            for (sign, step) in POOL_TAKEN {
                if text.contains(sign) {
                    self.first(*step, line, sign);
                }
            }
        }
        if text.contains("Application startup complete") {
            self.ready(line);
        } else if text.contains("init engine (") && !self.server {
            self.provisional(Ready, line, "init engine (");
        }
        if text.contains("Shutting down") || text.contains("[shutdown]") || text.contains("SIGTERM")
        {
            self.first(Stopping, line, "hut");
        }
    }

    /// Whether the engine announced that it is ready.
    pub fn is_ready(&self) -> bool {
        self.passed(EngineStep::Ready)
    }

    /// How many steps were passed.
    pub fn count(&self) -> usize {
        self.marks.len()
    }

    /// The marks in the order in which they were passed.
    pub fn marks(&self) -> Vec<StepMark> {
        let mut marks = self.marks.clone();
        marks.sort_by_key(|p| p.no);
        marks.into_iter().map(|p| p.mark).collect()
    }

    fn passed(&self, step: EngineStep) -> bool {
        self.marks.iter().any(|p| p.mark.step == step)
    }

    fn first(&mut self, step: EngineStep, line: &Line<'_>, sign: &str) {
        if !self.passed(step) {
            self.put(step, line, sign, false);
        }
    }

    /// Every rank ends a step; the step is over when the last one did, unless the next began.
    fn last(&mut self, step: EngineStep, line: &Line<'_>, sign: &str) {
        if !self
            .marks
            .iter()
            .any(|p| p.mark.step > step && p.mark.step != EngineStep::Stopping)
        {
            self.put(step, line, sign, false);
        } else {
            self.first(step, line, sign);
        }
    }

    fn provisional(&mut self, step: EngineStep, line: &Line<'_>, sign: &str) {
        if !self.passed(step) {
            self.put(step, line, sign, true);
        }
    }

    fn ready(&mut self, line: &Line<'_>) {
        if self
            .marks
            .iter()
            .all(|p| p.mark.step != EngineStep::Ready || p.provisional)
        {
            self.put(
                EngineStep::Ready,
                line,
                "Application startup complete",
                false,
            );
        }
    }

    fn put(&mut self, step: EngineStep, line: &Line<'_>, sign: &str, provisional: bool) {
        self.marks.retain(|p| p.mark.step != step);
        let mark = StepMark {
            step,
            at_ns: line.at,
            quote: line.quote(sign),
        };
        self.marks.push(Passed {
            mark,
            no: line.no,
            provisional,
        });
    }
}
