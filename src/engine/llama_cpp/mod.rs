//! llama.cpp's server and its fork ik_llama.cpp: recognising it, settings, endpoints, benches, log.

mod bench;
mod endpoints;
pub mod log;
mod server;

use super::limits::{LoadLimits, Resource};
use super::{Engine, EngineId, LoadKind};

/// Words in log lines of llama.cpp, also under Ollama.
pub const MARKS: &[&str] = &[
    "llama_model_loader",
    "llm_load_",
    "load_tensors:",
    "llama_kv_cache",
    "llama_context:",
    "llama_new_context",
    "llama_init_from_model",
    "llama_model_load",
    "ggml_",
    "GGML_",
    "sched_reserve",
    "graph_reserve",
    "print_info: ",
    "common_init",
    "breakdown_print",
    "params_fit",
    "alloc_tensor_range",
    "KV self size",
    "model buffer size",
    "KV buffer size",
    "compute buffer size",
    "layers to GPU",
    "load_model: ",
    "update_slots",
    "llama-server",
    "llama.cpp",
    "CUDA error: out of memory",
    "VMM: ",
];

/// Whether a file's type is a quantization: `Q4_K - Medium` is, `F16` and `all F32` are not.
fn is_quantized(file_type: &str) -> bool {
    let plain = file_type
        .trim_start_matches("all ")
        .trim_end_matches(" (guessed)");
    !matches!(plain, "F16" | "BF16" | "F32" | "F64")
}

/// Why a server with separate slots reports no pool.
pub const NO_SHARED_POOL: &str =
    "each slot has its part of the context for itself: there is no pool that slots share";

const MORE_CONTEXT: &[&str] = &["--ctx-size: each slot has its part of it"];

/// llama.cpp's server, builds of 2024 to 2026.
pub static ENGINE: Engine = Engine {
    name: "llama_cpp",
    shown: Some("llama.cpp"),
    aliases: &["llama.cpp", "ik_llama.cpp", "llamacpp"],
    estimated_as: Some(EngineId::LlamaCpp),
    load_limits: LoadLimits {
        sequences: Some("parallel"),
        unknown_pool: NO_SHARED_POOL,
        raised_by: &[
            (
                Resource::Sequences,
                &[
                    "--parallel: more slots; the context is shared out among them, so raise --ctx-size with it",
                ],
            ),
            (Resource::Length, MORE_CONTEXT),
            (Resource::KvPool, MORE_CONTEXT),
            (
                Resource::Prefill,
                &["--batch-size and --ubatch-size: more of the prompts in one step"],
            ),
        ],
        ..LoadLimits::UNKNOWN
    },
    default_port: 8080,
    endpoints: endpoints::PATHS,
    identity: &[("/props", "default_generation_settings")],
    log_marks: MARKS,
    program: &["llama-server"],
    default_loads: (LoadKind::Builtin, LoadKind::Latency),
    // Builds of 2026 print the sizes of buffers at this level only; of others it has no effect.
    serve_env: &[("LLAMA_ARG_LOG_VERBOSITY", "4")],
    recognise: server::recognise,
    settings: server::read_settings,
    read_probes: endpoints::read,
    missing_log_detail: |log, _| {
        (!log.steps.is_empty() && !log.facts.contains_key("weights_gib")).then_some(
            "the log names no buffer: builds of 2026 tell weights, KV cache and compute buffers from verbosity 4 on; \
             restart the server with -lv 4",
        )
    },
    bench_help: bench::question,
    read_bench: bench::read,
    bench_progress: bench::progress,
    // Anything but a file is a repository to download from.
    serve: "-hf {model} --host 0.0.0.0 --port {port}",
    serve_file: Some("-m {model} --host 0.0.0.0 --port {port}"),
    log_signs: log::signs,
    ..Engine::defaults(|| Box::<log::LlamaCppLogParser>::default(), bench::plan)
};
