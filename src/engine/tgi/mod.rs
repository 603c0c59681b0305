//! TGI (text-generation-inference): recognising it, its settings, endpoints and log. It has no
//! bench that a program could use.

mod endpoints;
pub mod log;
mod server;

pub use log::TgiLogParser;

use super::limits::{LoadLimits, Resource, UnsetSequences};
use super::{BenchKind, Dialect, Engine, EngineId, LoadKind, PlanError};

/// TGI chooses the tokens of a batch by what memory is left.
const MORE_BATCH_TOKENS: &[&str] = &[
    "--max-batch-total-tokens, or --cuda-memory-fraction where TGI chooses it",
    "--kv-cache-dtype fp8_e5m2, where the model bears it",
];

/// TGI, releases 0.9 to 3.3.
pub static ENGINE: Engine = Engine {
    name: "tgi",
    aliases: &[
        "text-generation-inference",
        "text-generation-launcher",
        "huggingface-tgi",
        "hf-tgi",
    ],
    estimated_as: Some(EngineId::Tgi),
    load_limits: LoadLimits {
        sequences: Some("max_batch_size"),
        unset_sequences: UnsetSequences::NoLimit,
        unknown_pool: "TGI reports no pool; the tokens of a batch are used instead",
        raised_by: &[
            (Resource::BatchTokens, MORE_BATCH_TOKENS),
            (Resource::KvPool, MORE_BATCH_TOKENS),
            (
                Resource::Sequences,
                &["--max-batch-size: more concurrent sequences"],
            ),
            (
                Resource::Connections,
                &["--max-concurrent-requests: more requests taken in"],
            ),
            (
                Resource::Prefill,
                &["--max-batch-prefill-tokens: more of the prompts in one step"],
            ),
            (
                Resource::Length,
                &["--max-total-tokens, or shorter requests"],
            ),
        ],
        ..LoadLimits::UNKNOWN
    },
    release_images: &["huggingface/text-generation-inference"],
    takes_all_gpus: true,
    // The port that its images set in `PORT`; without that the launcher defaults to 3000.
    default_port: 80,
    endpoints: &["/info", "/metrics"],
    identity: &[("/info", "\"validation_workers\"")],
    queue_histogram: Some("tgi_request_queue_duration"),
    log_marks: &[
        "text_generation_",
        "text-generation-",
        "Setting max batch total tokens to",
        "automatic max batch total tokens",
        "KV-cache blocks: ",
        "Cuda Graphs are enabled for sizes",
        "Cuda Graphs are disabled (CUDA_GRAPHS",
        "Default `max_",
        "max-batch-prefill-tokens",
        "Unable to warmup model",
        "Method Warmup encountered an error",
        "Request failed during generation: ",
        "Error: WebserverFailed",
        "Error: ShardCannotStart",
        "Shard ready in ",
        "\"docker_label\"",
        "\"max_best_of\"",
    ],
    program: &["text-generation-launcher"],
    dialect: Dialect::Tgi,
    default_loads: (LoadKind::Builtin, LoadKind::Latency),
    serve: "--model-id {model} --port {port}",
    recognise: server::recognise,
    settings: server::read_settings,
    read_probes: endpoints::read,
    log_signs: log::signs,
    ..Engine::defaults(
        || Box::<TgiLogParser>::default(),
        |job, _| Err(no_bench(job.kind)),
    )
};

/// Why its own bench is not run.
///
/// `text-generation-benchmark` draws on a terminal, ends at a key press and writes no file. It also
/// talks to the shards' sockets, past the router that admits requests, which can crash a live
/// server for lack of memory (huggingface/text-generation-inference issues 1286, 1831, 2952).
fn no_bench(kind: BenchKind) -> PlanError {
    PlanError::NoSuchBench {
        engine: "tgi",
        kind: kind.as_str(),
        reason: match kind {
            BenchKind::Serve => {
                "text-generation-benchmark needs a terminal, writes no result and goes past the \
                 router's admission, which can end a live server"
            }
            BenchKind::Probe => crate::engine::NO_PROBE,
            BenchKind::Latency | BenchKind::Throughput => {
                "nothing of it loads a model within a bench; load the running server instead"
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_reason() {
        let text = no_bench(BenchKind::Serve).to_string();
        assert!(
            text.starts_with("engine `tgi` has no serve bench: "),
            "{text}"
        );
        assert!(text.contains("terminal"), "{text}");
    }
}
