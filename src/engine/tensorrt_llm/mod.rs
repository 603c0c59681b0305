//! TensorRT-LLM: recognising it, its settings, endpoints, benches and log.

mod bench;
mod endpoints;
pub mod log;
mod server;

pub use log::TrtLlmLogParser;

use super::limits::{LoadLimits, Resource};
use super::{Engine, EngineId};

/// TensorRT-LLM, releases 0.5 to 1.2, with `trtllm-serve` or under Triton.
pub static ENGINE: Engine = Engine {
    name: "tensorrt_llm",
    shown: Some("tensorrt-llm"),
    aliases: &["trtllm", "tensorrt-llm", "trt-llm", "trtllm-serve"],
    estimated_as: Some(EngineId::TensorRtLlm),
    load_limits: LoadLimits {
        sequences: Some("max_batch_size"),
        raised_by: &[
            (
                Resource::KvPool,
                &["kv_cache_config.free_gpu_memory_fraction: a larger pool"],
            ),
            (
                Resource::Sequences,
                &["--max_batch_size: more concurrent sequences"],
            ),
            (
                Resource::Prefill,
                &["--max_num_tokens: more of the prompts in one step"],
            ),
        ],
        ..LoadLimits::UNKNOWN
    },
    release_images: &["nvidia/tensorrt-llm/release"],
    // Excludes `/metrics`: it is a queue of iterations, and each read removes them for all other
    // clients. Prometheus' metrics have a separate path, which removes nothing.
    endpoints: &["/health", "/version", "/v1/models", "/prometheus/metrics"],
    identity: &[("/prometheus/metrics", "trtllm_")],
    log_marks: &[
        "[TensorRT-LLM]",
        "[TRT-LLM]",
        "TensorRT-LLM version",
        "tensorrt_llm",
        "trtllm-serve",
        "trtllm-bench",
        "[MemUsageChange]",
        "TRTGptModel ",
        "paged KV cache",
        "paged kv cache",
        "Max KV cache blocks per sequence",
        "in memory usage profiling",
        "Executor creation failed",
        "CUDA graph instances for",
        "CUDA graph warmup for batch size=",
        "\"gpuMemUsage\"",
        "\"kvCacheStats\"",
    ],
    // Its images' entrypoint only runs its arguments.
    serve: "trtllm-serve serve {model} --host 0.0.0.0 --port {port}",
    recognise: server::recognise,
    settings: server::read_settings,
    read_probes: endpoints::read,
    read_bench: bench::read_result,
    bench_progress: bench::progress,
    log_signs: log::signs,
    ..Engine::defaults(
        || Box::<TrtLlmLogParser>::default(),
        |job, _| bench::plan(job),
    )
};
