//! TensorRT-LLM: recognising it, its settings, endpoints, benches and log.

mod bench;
mod bench_result;
mod endpoints;
pub mod log;
mod recognise;
mod settings;

pub use log::TrtLlmLogParser;

use super::limits::{LoadLimits, Resource};
use super::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, Engine, EngineDescription,
    EngineId, LogParser, PlanError, ProbeFacts, ReadError, Recognition, ServerSettings,
};
use crate::capture::{ContainerFacts, Probe};

const DESCRIPTION: EngineDescription = EngineDescription {
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
    ..EngineDescription::UNKNOWN
};

/// TensorRT-LLM, releases 0.5 to 1.2, with `trtllm-serve` or under Triton.
pub struct TensorRtLlm;

impl Engine for TensorRtLlm {
    fn description(&self) -> &'static EngineDescription {
        &DESCRIPTION
    }

    fn recognise(&self, facts: &ContainerFacts) -> Option<Recognition> {
        recognise::recognise(facts)
    }

    fn settings(&self, facts: &ContainerFacts) -> ServerSettings {
        settings::read(facts)
    }

    fn gauges_endpoint(&self) -> Option<&'static str> {
        // `/metrics` is a queue that reading empties.
        Some("/prometheus/metrics")
    }

    fn read_probes(&self, probes: &[Probe]) -> ProbeFacts {
        endpoints::read(probes)
    }

    fn log_parser(&self) -> Box<dyn LogParser> {
        Box::<TrtLlmLogParser>::default()
    }

    fn bench(&self, job: &BenchJob<'_>, _help: Option<&str>) -> Result<BenchPlan, PlanError> {
        bench::plan(job)
    }

    fn read_bench(&self, kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
        bench_result::read(kind, result)
    }

    fn bench_progress(&self, kind: BenchKind, line: &str) -> Option<BenchProgress> {
        bench::progress(kind, line)
    }
}
