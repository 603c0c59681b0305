//! The log of TGI, 0.9 to 3.3: capacities in tokens, the launcher's arguments, failures.
//!
//! TGI prints no bytes at INFO. Messages are recognised by their words, not by `file.rs:line`,
//! which changes with every release.
//!
//! | key | meaning, and the line that states it |
//! |---|---|
//! | `num_gpu_blocks`, `block_size` | blocks of rank 0 and tokens in each: `KV-cache blocks: N, size: B` (since 2.4) |
//! | `kv_cache_tokens_rank0` | their product |
//! | `max_batch_total_tokens` | what the router uses, the smallest over the shards: `Setting max batch total tokens to N` |
//! | `kv_cache_tokens` | the same, where a pool of blocks was announced |
//! | `max_batch_total_tokens_inferred` | false: a default, as the model cannot report it; true: measured |
//! | `max_batch_total_tokens_requested` | what the arguments ask for |
//! | `cuda_graphs`, `cuda_graph_sizes` | how many graphs, and their batch sizes; `…_configured`: the launcher's default |
//! | `cuda_graph_gib` | free memory before the first graph less that after the last (DEBUG) |
//! | `free_memory_gib`, `free_memory_real_gib` | what is left for the pool, with and without the margin (DEBUG; Gaudi: INFO) |
//! | `hpu_graph_reserved_gib` | Gaudi: kept for graphs |
//! | `max_input_tokens`, `max_total_tokens`, `max_batch_prefill_tokens`, `max_batch_size` | limits in force |
//! | `attention_backend`, `rocm_flash_attention`, `prefix_caching`, `prefill_chunking`, `tunable_op`, `scheduler` | how it computes |
//! | `tensor_parallel_size` | shards |
//! | `model`, `model_family`, `dtype`, `quantization`, `kv_cache_dtype`, `speculate`, `cuda_memory_fraction`, … | from `Args {…}`, `GET /info` and the router |
//! | `oom`, `oom_phase`, `oom_requested_gib`, … | as in every engine ([`crate::engine::log::torch`]) |

mod args;
mod identity;
mod memory;
mod trouble;

pub(super) use identity::{info_key, is_info};

use crate::engine::facts::EngineStep;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use std::sync::LazyLock;

/// A parser of TGI's log.
pub type TgiLogParser = SheetParser<TgiMessages>;

/// Every line of interest contains one of these.
const WORDS: &[&str] = &[
    "Args {",
    "\"model_id\"",
    "Warming up ",
    "max batch total tokens",
    "KV-cache blocks: ",
    "Cuda Graphs are ",
    "cuda graph",
    "Using Attention = ",
    "Using attention ",
    "Using prefix caching",
    "prefix caching because",
    "prefill chunking",
    "Using scheduler V",
    "Using backend V",
    "Using config ",
    "Default `max_",
    " tokens defaulted to ",
    "Sharding model on ",
    "Starting shard",
    "Shard ",
    "Starting Webserver",
    "Server started at",
    "ROCm: using",
    "TunableOp",
    "Detected system ",
    "Free memory ",
    "Free RAM ",
    "Not enough memory",
    "NotEnoughMemory",
    "out of memory",
    "OutOfMemory",
    "bad_alloc",
    "allocate memory",
    "not enough memory",
    "ALLOC_FAILED",
    "warmup{",
    "warmup model",
    "Webserver Crashed",
    "CANCELLED",
    "panicked at",
    "Connected",
    "Invalid hostname, defaulting to ",
    "Error",
    "error",
    "Exception",
    "Docker label: ",
    "pipeline tag found",
    "compute for card",
    "Shutting down shards",
    "graceful shutdown",
];

/// Every sign of the tables of this log.
#[cfg(test)]
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let mut signs = WORDS.to_vec();
    for table in [
        ENDS,
        IMPORTS,
        memory::ROUTER_GOES_ON,
        trouble::LACK,
        trouble::CAUSES,
        trouble::CONSEQUENCES,
        trouble::IN_WARM_UP,
        crate::engine::log::torch::LACK,
    ] {
        signs.extend(table);
    }
    for table in [
        memory::LIMITS,
        memory::WARM_UP,
        memory::REFUSED,
        identity::SWITCHES,
    ] {
        signs.extend(table.iter().map(|(sign, _)| *sign));
    }
    signs.extend(STEPS.iter().map(|(sign, _)| *sign));
    signs.extend(identity::NAMES.iter().map(|(sign, _, _)| *sign));
    signs.extend(args::FIELDS.iter().map(|(name, _, _)| *name));
    signs
}

/// State of the reader of TGI's messages.
#[derive(Default)]
pub struct TgiMessages {
    args: args::Block,
    memory: memory::Memory,
    shards: identity::Shards,
}

impl Messages for TgiMessages {
    const ENGINE: &'static str = "tgi";

    fn words() -> &'static Words {
        static SHARED: LazyLock<Words> = LazyLock::new(|| Words::new(WORDS));
        &SHARED
    }

    fn awaits_more(&self) -> bool {
        self.args.is_open()
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let inner = line.text.trim_matches(|c| c == '│' || c == '┃' || c == ' ');
        let line = &Line {
            text: inner,
            ..*line
        };
        if self.begins_anew(line, sheet) {
            sheet.restart();
            *self = TgiMessages::default();
        }
        if self.args.read(line, sheet) || identity::info(line, sheet) {
            return;
        }
        if trouble::in_warm_up(line.text) && !sheet.ready() {
            sheet.step(EngineStep::WeightsLoaded, line, "armup");
        }
        if trouble::read(line, sheet) {
            self.memory.failed(sheet);
        }
        // Once the server is ready, such lines can only be text of requests.
        if !sheet.ready() {
            self.shards.read(line, sheet);
            self.memory.read(line, sheet);
            identity::read(line, sheet);
        }
        milestones(line, self.shards.started(), sheet);
    }
}

impl TgiMessages {
    /// Whether a launcher starts after another one in the same log.
    fn begins_anew(&self, line: &Line<'_>, sheet: &Sheet) -> bool {
        args::begins(line.text) && !sheet.is_empty() || self.shards.starts_again(line.text)
    }
}

/// Messages of a server that ends.
const ENDS: &[&str] = &[
    "Shutting down shards",
    "signal received, starting graceful shutdown",
];

/// Messages of a shard that imports its model, before it loads the weights.
const IMPORTS: &[&str] = &[
    "Using prefix caching = ",
    "Using Attention = ",
    "Detected system ",
    "ROCm: using ",
];

/// Messages that pass a step.
const STEPS: &[(&str, EngineStep)] = &[
    ("Using prefill chunking = ", EngineStep::WeightsLoaded),
    (
        "Using experimental prefill chunking = ",
        EngineStep::WeightsLoaded,
    ),
    ("Server started at ", EngineStep::WeightsLoaded),
    ("Shard ready in ", EngineStep::WeightsLoaded),
    ("Warming up model", EngineStep::WeightsLoaded),
    // Printed before the pool is allocated.
    ("KV-cache blocks: ", EngineStep::Profiled),
    // The pool is allocated, graphs follow.
    ("Cuda Graphs are ", EngineStep::KvCacheAllocated),
    ("Free RAM before cuda graph", EngineStep::KvCacheAllocated),
    ("Warming up TunableOp", EngineStep::KvCacheAllocated),
];

fn milestones(line: &Line<'_>, shards_started: bool, sheet: &mut Sheet) {
    use crate::engine::log::said::{text_after_any, text_after_sign};
    let text = line.text;
    if let Some((needle, _)) = text_after_any(text, ENDS) {
        sheet.step(EngineStep::Stopping, line, needle);
    }
    if sheet.ready() {
        return;
    }
    // Shards print these while they import their models. The process that downloads the models
    // imports the same and holds no device memory.
    if shards_started {
        if let Some((needle, _)) = text_after_any(text, IMPORTS) {
            if !sheet.passed(EngineStep::WeightsLoaded) {
                sheet.step(EngineStep::LoadingWeights, line, needle);
            }
        }
    }
    for (needle, step) in STEPS {
        if text_after_sign(text, needle).is_some() {
            sheet.step(*step, line, needle);
        }
    }
    let warmed_up = "Setting max batch total tokens to ";
    if text_after_sign(text, warmed_up).is_some() {
        sheet.step(EngineStep::KvCacheAllocated, line, warmed_up);
        if sheet.get("cuda_graphs").is_some() {
            sheet.step(EngineStep::GraphsCaptured, line, warmed_up);
        }
    }
    if text_after_sign(text, "Connected").is_some_and(|rest| rest.trim().is_empty()) {
        sheet.step(EngineStep::Ready, line, "Connected");
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
