//! vLLM: recognising it, its settings, endpoints, benches and log.

mod bench;
mod bench_result;
mod endpoints;
mod help;
pub mod log;
mod server;

pub(super) use bench::read_progress as read_bench_progress;
pub(super) use bench_result::read as read_bench_result;
pub(super) use endpoints::{Names, read as read_endpoints};
pub use log::VllmLogParser;

use super::limits::{LoadLimits, Resource, UnsetSequences};
use super::{Engine, EngineId};

/// Makes an engine that we start report its memory components, which releases 0.11 to 0.25 print at
/// this level only. Settings of the container, a preset or `--env` take precedence.
const DEBUG_LOG: &[(&str, &str)] = &[("VLLM_LOGGING_LEVEL", "DEBUG")];

/// `gpu_memory_utilization` of a release, where no flag sets it (vllm/config/cache.py).
pub const fn default_utilization(major: u32, minor: u32) -> f64 {
    if major > 0 || minor >= 21 { 0.92 } else { 0.90 }
}

/// The same, of a version as it is printed: `0.19.1rc1+cu128`.
fn default_utilization_of(version: &str) -> Option<f64> {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']);
    let (major, minor) = (numbers.next()?, numbers.next()?);
    Some(default_utilization(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// vLLM, releases 0.4 to 0.32.
pub static ENGINE: Engine = Engine {
    name: "vllm",
    without_graphs: Some(&["--enforce-eager"]),
    estimated_as: Some(EngineId::Vllm),
    load_limits: LoadLimits {
        sequences: Some("max_num_seqs"),
        unset_sequences: UnsetSequences::DefaultOfVersion,
        per_replica: true,
        unkept_tokens: 1,
        empty_blocks: 1,
        raised_by: &[
            (
                Resource::KvPool,
                &[
                    "--gpu-memory-utilization or --kv-cache-memory-bytes: a larger pool",
                    "--kv-cache-dtype fp8: twice the tokens in the same bytes, where the model bears it",
                    "--tensor-parallel-size: more GPUs, more pool",
                ],
            ),
            (
                Resource::Sequences,
                &["--max-num-seqs: more concurrent sequences"],
            ),
            (
                Resource::Prefill,
                &[
                    "--max-num-batched-tokens: more of the prompts in one step, at the price of the time between tokens",
                ],
            ),
            (
                Resource::Latency,
                &[
                    "--max-num-seqs at the measured line keeps more requests from being run at once; they wait instead",
                    "--max-num-batched-tokens: less shortens the time between tokens, more shortens the time to the first",
                ],
            ),
            (Resource::Length, &["--max-model-len, or shorter requests"]),
        ],
        raised_on_cpu_by: &[(
            Resource::KvPool,
            &["VLLM_CPU_KVCACHE_SPACE or --kv-cache-memory-bytes: a larger pool"],
        )],
        ..LoadLimits::UNKNOWN
    },
    release_images: &["vllm/vllm-openai", "vllm/vllm-openai-rocm"],
    endpoints: &["/health", "/version", "/v1/models", "/metrics"],
    identity: &[("/metrics", "vllm:")],
    queue_histogram: Some("vllm:request_queue_time_seconds"),
    log_marks: &[
        "EngineCore",
        "APIServer pid=",
        "(Worker",
        "VllmWorker",
        "vllm",
        "vLLM",
        "LLM engine (",
        "GPU blocks: ",
        "Available KV cache memory",
        "GPU KV cache size",
        "GPU KV cache usage",
        "model_runner.py:",
        "gpu_worker.py:",
        "Graph capturing finished",
        "Maximum concurrency for ",
        "Loading model weights took",
        "Model loading took",
        "loading weights took",
        "Memory profiling takes",
        "desired GPU memory utilization",
        "Error in memory profiling",
        "cuda blocks: ",
        "rocm blocks: ",
        "cpu blocks: ",
        "CPU blocks: ",
        "backend on V1 engine",
        "out of potential backends",
        "Using XFormers backend",
        "Using Flash Attention backend",
        "kv cache block size to",
        "persisted startup plan",
        "GiB for KV cache on node",
        "Before memory profiling run",
        "KV cache is needed, which is larger",
        "when warming up sampler",
        "OOM on device",
        "Desired GPU memory utilization is",
        "executor_base.py:",
        "llm_engine.py:",
        "[core.py:",
        "[cuda.py:",
        "[rocm.py:",
        "[selector.py:",
        "[kv_cache_utils.py:",
        "[cpu_worker.py:",
        "[arg_utils.py:",
    ],
    // Not the bare word: images up to 0.10 start the module, which accepts only the flag; later ones
    // start `vllm serve`, which accepts both.
    serve: "--model {model} --port {port}",
    // Some releases refuse `--model` here.
    serve_alone: Some("vllm serve {model} --port {port}"),
    serve_env: DEBUG_LOG,
    recognise: server::recognise,
    settings: server::read_settings,
    read_probes: |probes| endpoints::read(probes, &endpoints::VLLM),
    default_memory_fraction: default_utilization_of,
    missing_log_detail: |log, on_gpu| {
        let has = |key: &str| log.facts.contains_key(key);
        // A log that was cut off allows no conclusion.
        let started = has("weights_gib") || has("kv_cache_gib") || has("kv_cache_tokens");
        (on_gpu && started && !has("activation_peak_gib")).then_some(
            "the log has no activations and no non-torch memory: releases 0.11 to 0.25 tell them at debug level only; \
             restart the server with VLLM_LOGGING_LEVEL=DEBUG, or let `plimsoll run` start it",
        )
    },
    // The other benches load an engine, and one run must leave nothing to the next.
    kept_program: Some("vllm"),
    bench_help: |kind| Some(help::question(kind, "--help=all")),
    bench_help_again: |kind, first| {
        // Releases before 0.11 take `all` for a word to search for, or for an error.
        let another = help::Help::read(first).is_none() && !help::refused(kind, first);
        another.then(|| help::question(kind, "--help"))
    },
    read_bench: bench_result::read,
    bench_progress: bench::read_progress,
    log_signs: log::signs,
    ..Engine::defaults(|| Box::<VllmLogParser>::default(), bench::plan)
};
