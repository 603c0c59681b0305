//! SGLang: recognising it, its settings, endpoints, benches and log.

mod bench;
mod endpoints;
pub mod log;
mod server;

use super::limits::{LoadLimits, Resource};
use super::{Engine, EngineId};

/// Words that only its lines hold.
const MARKS: &[&str] = &[
    "sglang",
    "server_args=",
    "Init torch distributed",
    "oad weight begin",
    "oad weight end",
    "avail mem=",
    "mem usage=",
    "KV Cache is allocated",
    "Using KV cache dtype",
    "SWAKVPool",
    "Mamba Cache is allocated",
    "Post-capture KV sizing",
    "Memory pool end",
    "max_total_num_token",
    "Capture cuda graph",
    "Capturing batches (",
    "Disable prefill CUDA graph",
    "Tree cache initialized",
    "fired up and ready to roll",
    "Prefill batch",
    "Decode batch",
    "mem-fraction-static",
    "hierarchical KV cache",
    "KV cache pool is full. Retract",
];

/// SGLang, releases 0.1 to 0.5.23.
pub static ENGINE: Engine = Engine {
    name: "sglang",
    aliases: &["sgl"],
    estimated_as: Some(EngineId::Sglang),
    load_limits: LoadLimits {
        sequences: Some("max_running_requests"),
        unkept_tokens: 1,
        raised_by: &[
            (
                Resource::KvPool,
                &[
                    "--mem-fraction-static: a larger pool",
                    "--kv-cache-dtype fp8_e5m2: twice the tokens in the same bytes, where the model bears it",
                ],
            ),
            (
                Resource::Sequences,
                &["--max-running-requests: more concurrent sequences"],
            ),
            (
                Resource::Prefill,
                &[
                    "--chunked-prefill-size and --max-prefill-tokens: more of the prompts in one step",
                ],
            ),
            (Resource::Length, &["--context-length, or shorter requests"]),
        ],
        ..LoadLimits::UNKNOWN
    },
    release_images: &["lmsysorg/sglang"],
    default_port: 30000,
    endpoints: endpoints::PATHS,
    identity: &[
        ("/server_info", "mem_fraction_static"),
        ("/get_server_info", "mem_fraction_static"),
    ],
    queue_histogram: Some("sglang:queue_time_seconds"),
    // Its lines also name modules of vLLM, some of which it uses.
    own_log_marks: MARKS,
    // Its images start nothing by themselves.
    serve: "python3 -m sglang.launch_server --model-path {model} --host 0.0.0.0 --port {port}",
    recognise: server::recognise,
    settings: server::read_settings,
    read_probes: endpoints::read,
    bench_help: |kind| Some(bench::question(kind)),
    bench_help_again: bench::question_again,
    read_bench: bench::read_result,
    bench_progress: bench::progress,
    log_signs: log::signs,
    ..Engine::defaults(|| Box::<log::SglangLogParser>::default(), bench::plan)
};
