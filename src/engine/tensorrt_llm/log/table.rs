//! Every message of TensorRT-LLM that a value or a step is read from.

use super::TrtLlmMessages;
use crate::engine::facts::EngineStep::*;
use crate::engine::facts::key;
use crate::engine::log::table::Form::{self, *};
use crate::engine::log::table::Put::{self, *};
use crate::engine::log::table::{Row, Table, first_word};
use std::sync::LazyLock;

type TrtRow = Row<Put<TrtLlmMessages>>;

/// The messages, with the search for them.
pub static TABLE: LazyLock<Table<Put<TrtLlmMessages>>> =
    LazyLock::new(|| Table::new(MESSAGES, &[], &[]));

const SETTING_FRACTION: &str = "Setting PyTorch memory fraction to ";
const BOTH_SET: &str = "Both free_gpu_memory_fraction and max_tokens are set (to ";
const PAGED: &str = "Memory usage when calculating max tokens in paged kv cache: ";
const PEAK: &str = "Peak memory during memory usage profiling (torch + non-torch): ";
const LIMITS: &str = "max_seq_len=";
const LIMITS_TOO: &str = "max_num_requests=";

/// What PyTorch holds after loading.
pub const WEIGHTS: &str =
    "Memory used after loading model weights (inside torch) in memory usage profiling: ";

const ENGINE_READ: &str = "[MemUsageChange] TensorRT-managed allocation in engine deserialization";
const PROFILE_PEAK: &str = "Peak memory during memory usage profiling";
const ESTIMATED: &str = "Estimated max memory in KV cache";

const fn row(sign: &'static str, form: Form, target: Put<TrtLlmMessages>) -> TrtRow {
    Row::new(sign, form, target)
}

/// A text in quotes.
fn quoted(text: &str) -> Option<&str> {
    let (word, _) = text.strip_prefix(['\'', '"'])?.split_once(['\'', '"'])?;
    (word.len() < 64).then_some(word)
}

/// The rows, in the order in which those of one line are read. Sources: TensorRT-LLM 0.5 to mid-2026.
#[rustfmt::skip]
pub const MESSAGES: &[TrtRow] = &[
    // Its steps.
    row("TensorRT-LLM version: ", Flag, Step(Started)),
    row("MPI size: ", Flag, Step(Started)),
    row("Loading weights concurrently:", Flag, Step(LoadingWeights)),
    row("Loading weights:", Flag, Step(LoadingWeights)),
    row("Loading safetensors weights in parallel", Flag, Step(LoadingWeights)),
    row("Loaded engine size: ", Flag, Step(LoadingWeights)),
    row(ENGINE_READ, Flag, Step(WeightsLoaded)),
    row("Memory used after loading model weights", Flag, Step(WeightsLoaded)),
    row("Max KV cache blocks per sequence: ", Flag, Step(WeightsLoaded)),
    row("Memory usage when calculating max tokens in paged kv cache", Flag, Step(Profiled)),
    // Both end the memory profile. They are printed in sequence; nothing is allocated between them.
    row(ESTIMATED, Flag, Step(Profiled)),
    row(ESTIMATED, Flag, Read(|s, _, _, _| s.profile_ended(ESTIMATED))),
    row(PROFILE_PEAK, Flag, Step(Profiled)),
    row(PROFILE_PEAK, Flag, Read(|s, _, _, _| s.profile_ended(PROFILE_PEAK))),

    // Who wrote the log.
    row("TensorRT-LLM version: ", Flag, Read(TrtLlmMessages::version)),
    row("TensorRT-LLM Version: ", Flag, Read(TrtLlmMessages::version)),
    row("MPI size: ", Flag, Read(TrtLlmMessages::world_size)),
    row("Rank ", Flag, Read(TrtLlmMessages::gpu_of_rank)).when(" is using GPU "),
    row("Engine version ", Text(first_word), Last(key::engine_build_version)).when("found in the config file"),
    row("Using LLM with PyTorch backend", Is("pytorch"), Last(key::backend)),
    row("TP Size: ", Positive, Last(key::tensor_parallel_size)),
    row("PP Size: ", Positive, Last(key::pipeline_parallel_size)),

    // Limits of the PyTorch backend, and of the TensorRT backend.
    row(LIMITS, Whole, Last(key::max_seq_len)).when(LIMITS_TOO),
    row(LIMITS, Whole, Last(key::max_num_requests)).behind(&[LIMITS_TOO]).when(LIMITS_TOO),
    row(LIMITS, Whole, Last(key::max_num_tokens)).behind(&["max_num_tokens="]).when(LIMITS_TOO),
    row(LIMITS, Whole, Last(key::max_batch_size)).behind(&["max_batch_size="]).when(LIMITS_TOO),
    row("TRTGptModel maxNumSequences: ", Whole, Last(key::max_num_sequences)),
    row("TRTGptModel maxBatchSize: ", Whole, Last(key::max_batch_size)),
    row("TRTGptModel maxSequenceLen: ", Whole, Last(key::max_seq_len)),
    row("TRTGptModel maxNumTokens: ", Whole, Last(key::max_num_tokens)),
    row("TRTGptModel maxBeamWidth: ", Whole, Last(key::max_beam_width)),

    // The builder.
    row("Total Activation Memory: ", BytesAsGib, Last(key::build_activation_gib)),
    row("Total Weights Memory: ", BytesAsGib, Last(key::build_weights_gib)),
    row("Total Scratch Memory: ", BytesAsGib, Last(key::build_scratch_gib)),

    // The profile run.
    row(WEIGHTS, Gib, Last(key::weights_gib)),
    row("Memory used after loading model weights (outside torch) in memory usage profiling: ", Gib, Last(key::weights_outside_torch_gib)),
    row("Memory dynamically allocated during inference (inside torch) in memory usage profiling: ", Gib, Last(key::activation_peak_gib)),
    row("Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: ", Gib, Last(key::non_torch_gib)),
    row("Estimated max memory in KV cache : ", Gib, Last(key::kv_estimated_gib)),
    row("Estimated max memory in KV cache: ", Gib, Last(key::kv_estimated_gib)),

    // How the pool's size was found.
    row(PAGED, Gib, Last(key::device_total_gib)).then(&["total: "]),
    row(PAGED, Gib, Last(key::kv_available_gib)).then(&["available: "]),
    row(PEAK, Gib, Last(key::profiled_peak_gib)),
    row(PEAK, Gib, Last(key::kv_available_gib)).then(&["when calculating max tokens: "]),
    row(PEAK, Gib, Last(key::device_total_gib)).then(&["device total memory "]),
    row(PEAK, Float, Last(key::free_gpu_memory_fraction)).then(&["fraction is set "]),
    row(PEAK, Count, Last(key::kv_bytes_per_token)).then(&["kv size is "]),
    row(PEAK, Count, Last(key::kv_bytes_per_token)).then(&["kv size per token is "]),
    row(BOTH_SET, Float, Last(key::free_gpu_memory_fraction)),
    row(BOTH_SET, Whole, Last(key::max_tokens_requested)).then(&[" and "]),
    // GiB without a unit.
    row(BOTH_SET, Float, Last(key::device_free_gib)).then(&["free memory "]),
    row(BOTH_SET, Float, Last(key::device_total_gib)).then(&["total memory "]),
    row(SETTING_FRACTION, Float, Last(key::torch_memory_fraction)),
    row(SETTING_FRACTION, Gib, Last(key::torch_memory_limit_gib)).then(&["("]),
    row(WEIGHTS, Flag, Read(TrtLlmMessages::weights_upper_bound)),
    row(PROFILE_PEAK, Flag, Read(TrtLlmMessages::temporary_pool)),
    // The checkpoint, before it is loaded. Whether these GB count in 1000 or 1024 is not known.
    row("Use ", Float, Last(key::weights_hint_gb)).when(" GB for model weights"),
    row("Rank ", Flag, Read(TrtLlmMessages::checkpoint_of_rank)).when(" GB for model weights"),

    // What ranks print one by one, without their number.
    row("Loaded engine size: ", Flag, Read(|s, line, rest, _| s.memory.engine_size(line, rest))),
    row("Allocated ", Flag, Read(|s, line, rest, _| s.memory.allocated(line, rest))),
    row("[MemUsageChange] TensorRT-managed allocation in ", Flag, Read(|s, line, rest, _| s.memory.managed(line, rest))),
    row("[MemUsageChange] Init ", Flag, Read(TrtLlmMessages::device_used)),

    // The KV pools.
    row("Max KV cache blocks per sequence: ", Flag, Read(|s, line, rest, sheet| s.pools.blocks_by_window(line, rest, s.rank, sheet))),
    row("Number of blocks in KV cache primary pool: ", Flag, Read(|s, line, rest, _| s.pools.primary_pool(line, rest, s.rank))),
    row("Number of blocks in KV cache secondary pool: ", Whole, Last(key::num_cpu_blocks)),
    row("Number of tokens per block: ", Flag, Read(|s, line, rest, sheet| s.pools.block_size(line, rest, sheet))),
    row("[MemUsageChange] Allocated ", Flag, Read(|s, line, rest, sheet| s.pools.paged(line, rest, s.rank, sheet))),
    row("Allocate ", Flag, Read(|s, line, rest, _| s.pools.bytes(line, rest, s.rank))).when(" bytes for k/v cache"),
    row("Using ", Flag, Read(|s, line, rest, sheet| s.pools.tokens(line, rest, s.rank, sheet))).when(" tokens in paged KV cache"),
    row("Draft KV cache", Flag, Read(|s, _, _, _| s.pools.begin_draft())),
    row("Primary/secondary blocks for window sizes set to ", Flag, Read(|s, line, rest, sheet| s.pools.sized(line, rest, sheet))),

    // CUDA graphs.
    row("Creating CUDA graph instances for ", Whole, Last(key::cuda_graph_batch_sizes_configured)),
    row("Creating CUDA graph instances for ", Flag, Read(|s, _, rest, _| s.graphs.begin(rest, s.rank))),
    row("Run generation-only CUDA graph warmup", Flag, Read(|s, line, rest, _| s.graphs.captured(rest, s.rank, line))),
    row("Run generation only CUDA graph warmup", Flag, Read(|s, line, rest, _| s.graphs.captured(rest, s.rank, line))),
    row("Run piecewise CUDA graph warmup for ", Flag, Read(|s, line, rest, sheet| s.graphs.piecewise(line, rest, sheet))),
    row("Skipping CUDA graph warmup", Flag, Read(|s, line, _, sheet| s.graphs.skipped(line, sheet))),
    row("Dynamic draft length enabled for one-model path. Capturing ", Whole, Last(key::cuda_graphs_planned)),
];

/// Signs that may be anywhere in a line.
pub const ANYWHERE: &[TrtRow] =
    &[row("maxSequenceLen", Whole, Last(key::max_seq_len)).then(&["reduced to "])];

/// `PyTorchConfig(…, attn_backend='TRTLLM', use_cuda_graph=True, cuda_graph_batch_sizes=[1, 2], …)`
/// and the arguments that later releases print instead.
#[rustfmt::skip]
pub const CONFIG: &[TrtRow] = &[
    row("attn_backend=", Text(quoted), Last(key::attention_backend)),
    row("kv_cache_dtype=", Text(quoted), Last(key::kv_cache_dtype)),
    row("use_cuda_graph=True", Flag, Last(key::use_cuda_graph)),
    row("use_cuda_graph=False", Off, Last(key::use_cuda_graph)),
    row("cuda_graph_batch_sizes=", Counts, Last(key::cuda_graph_sizes_configured)),
];
