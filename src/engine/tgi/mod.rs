//! TGI (text-generation-inference): recognising it, its settings, endpoints and log. It has no
//! bench that a program could use.

mod bench;
mod endpoints;
pub mod log;
mod recognise;
mod settings;

pub use log::TgiLogParser;

use super::limits::{LoadLimits, Resource, UnsetSequences};
use super::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, Dialect, Engine, EngineId,
    LoadKind, LogParser, PlanError, ProbeFacts, ReadError, Recognition, ServeJob, ServePlan,
    ServerSettings,
};
use crate::capture::{ContainerFacts, Probe};

/// TGI chooses the tokens of a batch by what memory is left.
const MORE_BATCH_TOKENS: &[&str] = &[
    "--max-batch-total-tokens, or --cuda-memory-fraction where TGI chooses it",
    "--kv-cache-dtype fp8_e5m2, where the model bears it",
];

const LOAD_LIMITS: LoadLimits = LoadLimits {
    sequences: Some("max_batch_size"),
    unset_sequences: UnsetSequences::NoLimit,
    unknown_pool: "TGI tells no pool; the tokens of a batch stand for it",
    raised_by: &[
        (Resource::BatchTokens, MORE_BATCH_TOKENS),
        (Resource::KvPool, MORE_BATCH_TOKENS),
        (
            Resource::Sequences,
            &["--max-batch-size: more sequences at once"],
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
};

/// TGI, releases 0.9 to 3.3.
pub struct Tgi;

impl Engine for Tgi {
    fn name(&self) -> &'static str {
        "tgi"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &[
            "text-generation-inference",
            "text-generation-launcher",
            "huggingface-tgi",
            "hf-tgi",
        ]
    }

    fn estimated_as(&self) -> Option<EngineId> {
        Some(EngineId::Tgi)
    }

    fn load_limits(&self) -> LoadLimits {
        LOAD_LIMITS
    }

    fn release_images(&self) -> &'static [&'static str] {
        &["huggingface/text-generation-inference"]
    }

    fn takes_all_gpus(&self) -> bool {
        true
    }

    fn recognise(&self, facts: &ContainerFacts) -> Option<Recognition> {
        recognise::recognise(facts)
    }

    fn settings(&self, facts: &ContainerFacts) -> ServerSettings {
        settings::read(facts)
    }

    /// The port that its images set in `PORT`; without that the launcher defaults to 3000.
    fn default_port(&self) -> u16 {
        80
    }

    fn identity(&self) -> &'static [(&'static str, &'static str)] {
        &[("/info", "\"validation_workers\"")]
    }

    fn endpoints(&self) -> &'static [&'static str] {
        &["/info", "/metrics"]
    }

    fn queue_histogram(&self) -> Option<&'static str> {
        Some("tgi_request_queue_duration")
    }

    fn read_probes(&self, probes: &[Probe]) -> ProbeFacts {
        endpoints::read(probes)
    }

    fn log_marks(&self) -> &'static [&'static str] {
        &[
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
        ]
    }

    fn log_parser(&self) -> Box<dyn LogParser> {
        Box::<TgiLogParser>::default()
    }

    fn default_bench(&self, serving: bool) -> LoadKind {
        if serving {
            LoadKind::Builtin
        } else {
            LoadKind::Latency
        }
    }

    fn dialect(&self) -> Dialect {
        Dialect::Tgi
    }

    fn bench_help(&self, _kind: BenchKind) -> Option<Vec<String>> {
        None
    }

    fn bench(&self, job: &BenchJob<'_>, _help: Option<&str>) -> Result<BenchPlan, PlanError> {
        Err(bench::none(job.kind))
    }

    fn read_bench(&self, _kind: BenchKind, _result: &str) -> Result<BenchResult, ReadError> {
        Err(ReadError::Missing("a result: TGI's bench writes none"))
    }

    fn bench_progress(&self, _kind: BenchKind, _line: &str) -> Option<BenchProgress> {
        None
    }

    fn program(&self) -> &'static [&'static str] {
        &["text-generation-launcher"]
    }

    fn serve(&self, job: &ServeJob<'_>) -> ServePlan {
        settings::serve(job)
    }
}
