//! Ollama: recognising it, its settings, endpoints and log. It has no bench.

mod endpoints;
pub mod log;
mod server;

use super::limits::{LoadLimits, Resource};
use super::{Engine, EngineId, LoadKind, llama_cpp};

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
    "model requires more system memory",
];

const NO_BENCH: &str = "Ollama comes with none; the built-in client loads the running server";

/// Ollama, releases 0.1 to 0.33.
pub static ENGINE: Engine = Engine {
    name: "ollama",
    estimated_as: Some(EngineId::LlamaCpp),
    load_limits: LoadLimits {
        sequences: Some("OLLAMA_NUM_PARALLEL"),
        unknown_pool: llama_cpp::NO_SHARED_POOL,
        raised_by: &[(
            Resource::Sequences,
            &["OLLAMA_NUM_PARALLEL: more slots; each takes a context of its own"],
        )],
        ..LoadLimits::UNKNOWN
    },
    default_port: 11434,
    endpoints: endpoints::PATHS,
    identity: &[("/", "Ollama is running")],
    // Its runner prints llama.cpp's lines, which count as Ollama's too.
    log_marks: llama_cpp::MARKS,
    own_log_marks: OWN_MARKS,
    program: &["ollama"],
    default_loads: (LoadKind::Builtin, LoadKind::Latency),
    // It loads a model when a request names it.
    serve: "serve",
    serve_env: &[("OLLAMA_HOST", "0.0.0.0:{port}")],
    health_path: "/api/version",
    recognise: server::recognise,
    settings: server::read_settings,
    read_probes: endpoints::read,
    pull_commands: Some([&["ollama", "show"], &["ollama", "pull"]]),
    log_signs: log::signs,
    ..Engine::defaults(
        || Box::<log::OllamaLogParser>::default(),
        |job, _| Err(job.no_such_bench("ollama", NO_BENCH)),
    )
};
