//! The log of TensorRT-LLM, 0.5 to mid-2026, of both backends: engine, pools, profile, graphs,
//! failures. Its `MB` and `GB` count in 1024.
//!
//! | key | meaning, and the line that states it |
//! |---|---|
//! | `kv_cache_gib`, `kv_cache_tokens` | the pool: `Allocated x GiB for max tokens in paged KV cache (N)`, of several the last; a list where ranks printed one each |
//! | `num_gpu_blocks`, `num_cpu_blocks`, `block_size` | its blocks on the device, on the host, tokens in each |
//! | `estimation_pool` | the small pool that the PyTorch backend profiles with; a log of it that ends before the profile has the finding `kv_cache_may_be_estimation` |
//! | `draft_kv_cache_gib`, `draft_kv_cache_tokens`, `draft_num_gpu_blocks`, `draft_kv_blocks_estimation` | the same of a draft model |
//! | `engine_size_gib` | a serialised engine: `Loaded engine size` (a list of ranks) |
//! | `tensorrt_managed_gib` | what TensorRT holds: about the weights |
//! | `execution_context_gib`, `runtime_buffers_gib`, `decoder_gib` | activations, buffers, sampling |
//! | `weights_gib` | PyTorch's memory after loading, an upper bound: warm-up workspaces are in it |
//! | `weights_outside_torch_gib` | device memory beside PyTorch's at that moment |
//! | `activation_peak_gib` | what the profile run took on top |
//! | `non_torch_gib` | outside PyTorch in the profile: NCCL, CUDA graphs, and the pool of the profile |
//! | `profiled_peak_gib`, `kv_available_gib`, `kv_estimated_gib`, `temporary_kv_gib`, `kv_bytes_per_token`, `free_gpu_memory_fraction` | how the pool's size was found |
//! | `device_total_gib`, `device_free_gib`, `device_used_gib` | of the whole device |
//! | `torch_memory_fraction`, `torch_memory_limit_gib` | the allocator's limit |
//! | `weights_hint_gb` | the checkpoint as printed before loading; the unit's base is not known |
//! | `build_weights_gib`, `build_activation_gib`, `build_scratch_gib` | of the builder |
//! | `cuda_graphs`, `cuda_graph_batch_sizes`, `cuda_graph_draft_lens`, `draft_cuda_graphs` | graphs of the last series, each batch size, draft length, label and length once |
//! | `cuda_graph_batch_sizes_configured`, `cuda_graphs_planned`, `cuda_graphs_skipped`, `cuda_graphs_piecewise` | what was to be captured, what was not, what else was |
//! | `max_seq_len`, `max_num_requests`, `max_num_tokens`, `max_batch_size`, `max_num_sequences` | limits |
//! | `world_size`, `rank_gpus`, `tensor_parallel_size`, `pipeline_parallel_size` | ranks |
//! | `oom_component`, `free_before_failed_component_gib`, `components_free_gib` | the component that failed, and free memory before and after each component |
//! | `gpu_mem_usage_gib`, `cpu_mem_usage_gib`, `pinned_mem_usage_gib`, `free_num_blocks`, `used_num_blocks` | from the body of `GET /metrics` |
//! | `attention_backend`, `backend`, `kv_cache_dtype`, `oom`, `oom_phase`, … | as in every engine |

mod graphs;
mod identity;
mod memory;
mod pools;
mod table;
mod trouble;

pub(super) use identity::iteration;

use crate::engine::facts::EngineStep;
use crate::engine::log::figures::{number, number_after};
use crate::engine::log::said::{text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use std::sync::LazyLock;

/// A parser of TensorRT-LLM's log.
pub type TrtLlmLogParser = SheetParser<TrtLlmMessages>;

/// More ranks than any machine has; a larger number is not a rank.
const MOST_RANKS: f64 = 65_536.0;

/// Every line of interest contains one of these.
const WORDS: &[&str] = &[
    "MemUsageChange",
    "KV cache",
    "k/v cache",
    "paged kv cache",
    "Number of tokens per block",
    "Loaded engine size",
    "execution context memory",
    "TRTGptModel ",
    "MPI size: ",
    " is using GPU ",
    "TensorRT-LLM version",
    "TensorRT-LLM Version",
    "Engine version ",
    "for model weights",
    "memory usage profiling",
    "free_gpu_memory_fraction",
    "max_seq_len=",
    "maxSequenceLen",
    "PyTorch memory fraction",
    "PyTorchConfig",
    "PyTorch backend",
    "attn_backend",
    "max_concurrency",
    "estimation dry run",
    "CUDA graph",
    "Dynamic draft length",
    "MPI_ABORT was invoked",
    "Total Activation Memory",
    "Total Weights Memory",
    "Total Scratch Memory",
    "Loading weights",
    "Loading safetensors",
    "Executor creation failed",
    "The following component",
    "Total GPU memory (GiB)",
    "Free GPU memory before",
    "Previously created components",
    "out of memory",
    "OutOfMemory",
    "bad_alloc",
    "allocate memory",
    "not enough memory",
    "ALLOC_FAILED",
    "Requested amount of GPU memory",
    "Application startup complete",
    "Uvicorn running on",
    "successfully loaded 'tensorrt_llm",
    "Shutting down",
    "TP Size:",
    "PP Size:",
    "\"gpuMemUsage\"",
    "\"kvCacheStats\"",
    "[ERROR]",
    "[E] ",
    "Error",
    "Exception",
];

/// Every sign of the tables of this log.
#[cfg(test)]
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let mut signs = WORDS.to_vec();
    for table in [
        PROFILE_ENDS,
        SERVES,
        trouble::LACK,
        trouble::CAUSES,
        trouble::CONSEQUENCES,
        trouble::REFUSAL,
        graphs::MAX_CONCURRENCY,
        crate::engine::cuda_graphs::CAPTURED,
        crate::engine::log::torch::LACK,
    ] {
        signs.extend(table);
    }
    signs.extend(identity::CONFIG.iter().map(|(sign, _)| *sign));
    signs.extend(table::MESSAGES.iter().map(|row| row.sign));
    signs.extend(STEPS.iter().map(|(sign, _)| *sign));
    signs.extend(memory::ALLOCATED);
    signs
}

/// State of the reader of TensorRT-LLM's messages.
#[derive(Default)]
pub struct TrtLlmMessages {
    pools: pools::Pools,
    graphs: graphs::Graphs,
    memory: memory::Memory,
    refusal: trouble::Refusal,
    ranks: Ranks,
}

/// Number of ranks, as far as the lines show.
#[derive(Default, Clone, Copy)]
struct Ranks {
    known: u64,
}

impl Ranks {
    fn at_least(&mut self, ranks: u64) {
        self.known = self.known.max(ranks);
    }
}

impl Messages for TrtLlmMessages {
    const ENGINE: &'static str = "tensorrt_llm";

    fn words() -> &'static Words {
        static SHARED: LazyLock<Words> = LazyLock::new(|| Words::new(WORDS));
        &SHARED
    }

    fn awaits_more(&self) -> bool {
        self.refusal.is_open()
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        if begins(line.text) && (sheet.ready() || sheet.root_cause().is_some()) {
            sheet.restart();
            *self = TrtLlmMessages::default();
        }
        if identity::metrics(line, sheet) || self.refusal.read(line, sheet) {
            return;
        }
        // A bar that shows how far the weights are may share the line with the failure.
        let profiled = if sheet.ready() {
            None
        } else {
            milestones(line, sheet)
        };
        if trouble::read(line, sheet) {
            self.graphs.interrupted();
        }
        // Once the server is ready, such lines can only be text of requests.
        if !sheet.ready() {
            let rank = rank_of(line.text);
            if let Some(rank) = rank {
                self.ranks.at_least(rank + 1);
            }
            if let Some(end) = profiled {
                let first = self.pools.estimated(end, rank, self.ranks.known);
                self.graphs.estimated(first, rank);
            }
            self.ranks.at_least(identity::read(line, sheet));
            self.memory.read(line, sheet);
            self.pools.read(line, rank, sheet);
            self.graphs.read(line, rank, sheet);
        }
        ready(line, sheet);
    }

    fn conclude(&self, sheet: &mut Sheet) {
        self.memory.conclude(self.ranks.known, sheet);
        self.pools.conclude(self.ranks.known, sheet);
        self.graphs.conclude(sheet);
    }
}

/// Whether the line is the first of a start. Every process prints it.
fn begins(text: &str) -> bool {
    text_after_any(text, &["TensorRT-LLM version: ", "MPI size: "]).is_some()
}

/// The rank in a record's prefix: `[TRT-LLM] [RANK 1] [E]`, `[batchmgr][RANK 0]`.
fn rank_of(text: &str) -> Option<u64> {
    let n = number_after(text, "[RANK ")?;
    (n.whole && (0.0..MOST_RANKS).contains(&n.value)).then_some(n.value as u64)
}

/// A whole number that `text` begins with.
fn whole(text: &str) -> Option<u64> {
    let (n, _) = number(text)?;
    (n.whole && (0.0..9e15).contains(&n.value)).then_some(n.value as u64)
}

/// Messages that pass a step before the server serves.
const STEPS: &[(&str, EngineStep)] = &[
    ("TensorRT-LLM version: ", EngineStep::Started),
    ("MPI size: ", EngineStep::Started),
    ("Loading weights concurrently:", EngineStep::LoadingWeights),
    ("Loading weights:", EngineStep::LoadingWeights),
    (
        "Loading safetensors weights in parallel",
        EngineStep::LoadingWeights,
    ),
    ("Loaded engine size: ", EngineStep::LoadingWeights),
    (
        "[MemUsageChange] TensorRT-managed allocation in engine deserialization",
        EngineStep::WeightsLoaded,
    ),
    (
        "Memory used after loading model weights",
        EngineStep::WeightsLoaded,
    ),
    (
        "Max KV cache blocks per sequence: ",
        EngineStep::WeightsLoaded,
    ),
    (
        "Memory usage when calculating max tokens in paged kv cache",
        EngineStep::Profiled,
    ),
];

/// Messages that end the memory profile. Both are printed in sequence; nothing is allocated between
/// them.
const PROFILE_ENDS: &[&str] = &[
    "Estimated max memory in KV cache",
    "Peak memory during memory usage profiling",
];

/// Messages of a server that serves. Triton's are in quotes.
const SERVES: &[&str] = &["Application startup complete", "Uvicorn running on"];
const TRITON_LOADED: &str = "successfully loaded 'tensorrt_llm";

/// Notes the steps before the server serves. Returns the message by which the line ends the memory
/// profile.
fn milestones(line: &Line<'_>, sheet: &mut Sheet) -> Option<&'static str> {
    let text = line.text;
    for (needle, step) in STEPS {
        if text_after_sign(text, needle).is_some() {
            sheet.step(*step, line, needle);
        }
    }
    let (needle, _) = text_after_any(text, PROFILE_ENDS)?;
    sheet.step(EngineStep::Profiled, line, needle);
    Some(needle)
}

fn ready(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    let needle = match text_after_any(text, SERVES) {
        Some((needle, _)) => needle,
        None if text.contains("model_lifecycle.cc") && text.contains(TRITON_LOADED) => {
            TRITON_LOADED
        }
        None => {
            if text_after_sign(text, "Shutting down").is_some() {
                sheet.step(EngineStep::Stopping, line, "Shutting down");
            }
            return;
        }
    };
    sheet.enough_memory(line, needle);
    sheet.step(EngineStep::Ready, line, needle);
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
