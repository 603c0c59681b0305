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
mod memory;
mod pools;
mod table;
mod trouble;

use crate::engine::facts::{EngineStep, FactValue, Severity, key};
use crate::engine::log::figures::{self, after, gib, gib_after, number, number_after, whole_after};
use crate::engine::log::heads::{text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::table::{first_word, read_values};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use crate::units::GIB;
use serde_json::Value;
use std::sync::LazyLock;
use table::TABLE;

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
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let mut signs = WORDS.to_vec();
    for table in [
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
    for rows in [table::MESSAGES, table::ANYWHERE, table::CONFIG] {
        signs.extend(rows.iter().map(|row| row.sign));
    }
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
    /// Number of ranks, as far as the lines show.
    ranks: u64,
    /// The rank that the line names.
    rank: Option<u64>,
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
        if read_metrics(line, sheet) || self.refusal.read(line, sheet) {
            return;
        }
        let text = line.text;
        // Once the server is ready, such lines can only be text of requests.
        if !sheet.ready() {
            self.rank = rank_of(text);
            self.at_least(self.rank.map_or(0, |rank| rank + 1));
            // A bar that shows how far the weights are may share the line with the failure.
            TABLE.read_message(self, line, sheet);
            read_values(table::ANYWHERE, text, line, sheet);
            if ["PyTorchConfig(", "Args(", "LLM Args"]
                .iter()
                .any(|name| text.contains(name))
            {
                read_values(table::CONFIG, text, line, sheet);
            }
            self.graphs.max_concurrency(line);
        }
        if trouble::read(line, sheet) {
            self.graphs.interrupted();
        }
        ready(line, sheet);
    }

    fn conclude(&self, sheet: &mut Sheet) {
        self.memory.conclude(self.ranks, sheet);
        self.pools.conclude(self.ranks, sheet);
        self.graphs.conclude(sheet);
    }
}

impl TrtLlmMessages {
    fn at_least(&mut self, ranks: u64) {
        self.ranks = self.ranks.max(ranks);
    }

    fn profile_ended(&mut self, sign: &'static str) {
        let first = self.pools.estimated(sign, self.rank, self.ranks);
        self.graphs.estimated(first, self.rank);
    }

    fn version(&mut self, _: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let word = first_word(rest).unwrap_or_default();
        sheet.version(word.trim_end_matches(','));
    }

    fn world_size(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if let Some(n) = whole(rest).filter(|n| (1..=65_536).contains(n)) {
            sheet.count(key::world_size, n, line, "MPI size: ");
            self.at_least(n);
        }
    }

    fn gpu_of_rank(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let gpu = after(rest, " is using GPU ").and_then(whole);
        let gpu = gpu.and_then(|gpu| i64::try_from(gpu).ok());
        let rank = whole(rest).filter(|n| (*n as f64) < MOST_RANKS);
        if let (Some(gpu), Some(rank)) = (gpu, rank) {
            let label = format!("rank{rank}");
            sheet.entry(key::rank_gpus, &label, FactValue::Int(gpu), line);
            self.at_least(rank + 1);
        }
    }

    fn weights_upper_bound(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if gib(rest).is_some() {
            let message = "weights_gib is an upper bound: workspaces of the warm-up are in it";
            let code = "weights_upper_bound";
            sheet.finding(code, Severity::Info, message, line, table::WEIGHTS);
        }
    }

    fn temporary_pool(&mut self, line: &Line<'_>, _: &str, sheet: &mut Sheet) {
        let signs = ["temporary kv cache memory during profiling ", "tmp kv_mem "];
        let Some(size) = signs.iter().find_map(|sign| gib_after(line.text, sign)) else {
            return;
        };
        sheet.figure(key::temporary_kv_gib, size, line, "kv");
        if size > 0.0 {
            let message = "non_torch_gib was measured with the temporary KV pool of the profile (temporary_kv_gib) in place";
            let code = "profile_holds_temporary_kv";
            sheet.finding(code, Severity::Info, message, line, "Peak memory");
        }
    }

    /// `Rank 0 uses 8.46 GB for model weights.`
    fn checkpoint_of_rank(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let Some((rank, rest)) = number(rest).filter(|(rank, _)| rank.whole) else {
            return;
        };
        if let Some(n) = number_after(rest, " uses ") {
            let label = format!("rank{}", rank.value as u64);
            sheet.entry(
                key::weights_hint_gb,
                &label,
                FactValue::Float(n.value),
                line,
            );
        }
    }

    /// Of the whole device, including other processes.
    fn device_used(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if let Some(size) = memory::now_on_gpu(rest) {
            sheet.figure(key::device_used_gib, size, line, "now: ");
        }
    }
}

/// Whether the line is the first of a start. Every process prints it.
fn begins(text: &str) -> bool {
    text_after_any(text, &["TensorRT-LLM version: ", "MPI size: "]).is_some()
}

/// The rank in a record's prefix: `[TRT-LLM] [RANK 1] [E]`, `[batchmgr][RANK 0]`.
fn rank_of(text: &str) -> Option<u64> {
    whole_after(text, "[RANK ").filter(|rank| (*rank as f64) < MOST_RANKS)
}

/// A whole number that `text` begins with.
fn whole(text: &str) -> Option<u64> {
    figures::whole(text).map(|(n, _)| n)
}

/// Messages of a server that serves. Triton's are in quotes.
const SERVES: &[&str] = &["Application startup complete", "Uvicorn running on"];
const TRITON_LOADED: &str = "successfully loaded 'tensorrt_llm";

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

/// Reads the body of `GET /metrics`, a list of iterations, if the line is one: the last of them.
fn read_metrics(line: &Line<'_>, sheet: &mut Sheet) -> bool {
    if !line.text.starts_with(['[', '{'])
        || !line.text.contains("\"kvCacheStats\"") && !line.text.contains("\"gpuMemUsage\"")
    {
        return false;
    }
    let Ok(body) = serde_json::from_str::<Value>(line.text) else {
        return false;
    };
    let Some(last) = iteration(&body) else {
        return false;
    };
    for (pointer, key) in [
        ("/gpuMemUsage", key::gpu_mem_usage_gib),
        ("/cpuMemUsage", key::cpu_mem_usage_gib),
        ("/pinnedMemUsage", key::pinned_mem_usage_gib),
    ] {
        if let Some(bytes) = last.pointer(pointer).and_then(Value::as_u64) {
            sheet.figure(key, bytes as f64 / GIB, line, &pointer[1..]);
        }
    }
    for (pointer, key) in [
        ("/kvCacheStats/maxNumBlocks", key::num_gpu_blocks),
        ("/kvCacheStats/tokensPerBlock", key::block_size),
        ("/kvCacheStats/freeNumBlocks", key::free_num_blocks),
        ("/kvCacheStats/usedNumBlocks", key::used_num_blocks),
        ("/maxBatchSizeRuntime", key::max_batch_size),
        ("/maxNumTokensRuntime", key::max_num_tokens),
    ] {
        if let Some(n) = last.pointer(pointer).and_then(Value::as_u64) {
            sheet.count(key, n, line, "kvCacheStats");
        }
    }
    true
}

/// The latest iteration of a body: the last of a list, or the one.
pub(in crate::engine::tensorrt_llm) fn iteration(body: &Value) -> Option<&Value> {
    let one = match body {
        Value::Array(all) => all.last()?,
        one => one,
    };
    one.is_object().then_some(one)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
