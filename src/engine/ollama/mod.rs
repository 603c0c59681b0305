//! Ollama: recognising it, its settings, endpoints and log. It has no bench.

mod endpoints;
pub mod log;
mod recognise;
mod settings;

use super::limits::{LoadLimits, Resource};
use super::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, Engine, EngineId, LoadKind,
    LogParser, PlanError, ProbeFacts, ReadError, Recognition, ServeJob, ServePlan, ServerSettings,
    llama_cpp,
};
use crate::capture::{ContainerFacts, Probe};
use std::sync::LazyLock;

/// Words in Ollama's own lines.
const OWN_MARKS: &[&str] = &[
    "[GIN] ",
    "[GIN-debug]",
    // Its records, of whichever file: those of 0.30 and later have other names.
    "level=DEBUG source=",
    "level=INFO source=",
    "level=WARN source=",
    "level=ERROR source=",
    "msg=offload ",
    "msg=\"offload",
    "msg=\"model weights\"",
    "msg=\"kv cache\"",
    "msg=\"compute graph\"",
    "msg=\"total memory\"",
    "msg=\"llama runner",
    "msg=\"starting llama",
    "msg=\"system memory\"",
    "msg=\"inference compute\"",
    "ollama  |",
    "ollama |",
    "ollama-1  |",
    "ollama[",
    "ollama serve",
    "ollama runner",
    "OLLAMA_",
];

const LOAD_LIMITS: LoadLimits = LoadLimits {
    sequences: Some("OLLAMA_NUM_PARALLEL"),
    unknown_pool: llama_cpp::NO_SHARED_POOL,
    raised_by: &[(
        Resource::Sequences,
        &["OLLAMA_NUM_PARALLEL: more slots; each takes a context of its own"],
    )],
    ..LoadLimits::UNKNOWN
};

/// Ollama, releases 0.1 to 0.33.
pub struct Ollama;

impl Engine for Ollama {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn estimated_as(&self) -> Option<EngineId> {
        Some(EngineId::LlamaCpp)
    }

    fn load_limits(&self) -> LoadLimits {
        LOAD_LIMITS
    }

    fn recognise(&self, facts: &ContainerFacts) -> Option<Recognition> {
        recognise::recognise(facts)
    }

    fn settings(&self, facts: &ContainerFacts) -> ServerSettings {
        settings::read(facts)
    }

    fn default_port(&self) -> u16 {
        11434
    }

    fn identity(&self) -> &'static [(&'static str, &'static str)] {
        &[("/", "Ollama is running")]
    }

    fn endpoints(&self) -> &'static [&'static str] {
        endpoints::PATHS
    }

    fn read_probes(&self, probes: &[Probe]) -> ProbeFacts {
        endpoints::read(probes)
    }

    fn log_marks(&self) -> &'static [&'static str] {
        // Its runner prints llama.cpp's lines, which count as Ollama's too.
        static ALL: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
            let all = OWN_MARKS.iter().chain(llama_cpp::MARKS);
            all.copied().collect()
        });
        &ALL
    }

    fn own_log_marks(&self) -> &'static [&'static str] {
        OWN_MARKS
    }

    fn log_parser(&self) -> Box<dyn LogParser> {
        Box::<log::OllamaLogParser>::default()
    }

    fn default_bench(&self, serving: bool) -> LoadKind {
        if serving {
            LoadKind::Builtin
        } else {
            LoadKind::Latency
        }
    }

    fn bench_help(&self, _kind: BenchKind) -> Option<Vec<String>> {
        None
    }

    fn bench(&self, job: &BenchJob<'_>, _help: Option<&str>) -> Result<BenchPlan, PlanError> {
        Err(PlanError::NoSuchBench {
            engine: "ollama",
            kind: job.kind.as_str(),
            reason: "Ollama comes with none; the built-in client loads the running server",
        })
    }

    fn read_bench(&self, _kind: BenchKind, _result: &str) -> Result<BenchResult, ReadError> {
        Err(ReadError::Missing("a bench: Ollama has none"))
    }

    fn bench_progress(&self, _kind: BenchKind, _line: &str) -> Option<BenchProgress> {
        None
    }

    fn program(&self) -> &'static [&'static str] {
        &["ollama"]
    }

    fn serve(&self, job: &ServeJob<'_>) -> ServePlan {
        settings::serve(job)
    }
}
