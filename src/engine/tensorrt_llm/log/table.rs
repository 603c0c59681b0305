//! Every message of TensorRT-LLM that a value is read from and that needs no more than a row.

use crate::engine::log::table::Form::*;
use crate::engine::log::table::Row;

const SETTING_FRACTION: &str = "Setting PyTorch memory fraction to ";
const BOTH_SET: &str = "Both free_gpu_memory_fraction and max_tokens are set (to ";
const PAGED: &str = "Memory usage when calculating max tokens in paged kv cache: ";
const PEAK: &str = "Peak memory during memory usage profiling (torch + non-torch): ";
const LIMITS: &str = "max_seq_len=";
const LIMITS_TOO: &str = "max_num_requests=";

/// What PyTorch holds after loading.
pub const WEIGHTS: &str =
    "Memory used after loading model weights (inside torch) in memory usage profiling: ";

/// The rows, each with the key of its fact.
#[rustfmt::skip]
pub const MESSAGES: &[Row<&str>] = &[
    Row::new("Engine version ", Text(|t| t.split_whitespace().next()), "engine_build_version").when("found in the config file"),
    Row::new("Using LLM with PyTorch backend", Is("pytorch"), "backend"),
    Row::new("TP Size: ", Positive, "tensor_parallel_size"),
    Row::new("PP Size: ", Positive, "pipeline_parallel_size"),

    // Limits of the PyTorch backend, and of the TensorRT backend.
    Row::new(LIMITS, Whole, "max_seq_len").when(LIMITS_TOO),
    Row::new(LIMITS, Whole, "max_num_requests").behind(&[LIMITS_TOO]).when(LIMITS_TOO),
    Row::new(LIMITS, Whole, "max_num_tokens").behind(&["max_num_tokens="]).when(LIMITS_TOO),
    Row::new(LIMITS, Whole, "max_batch_size").behind(&["max_batch_size="]).when(LIMITS_TOO),
    Row::new("TRTGptModel maxNumSequences: ", Whole, "max_num_sequences"),
    Row::new("TRTGptModel maxBatchSize: ", Whole, "max_batch_size"),
    Row::new("TRTGptModel maxSequenceLen: ", Whole, "max_seq_len"),
    Row::new("TRTGptModel maxNumTokens: ", Whole, "max_num_tokens"),
    Row::new("TRTGptModel maxBeamWidth: ", Whole, "max_beam_width"),

    // The builder.
    Row::new("Total Activation Memory: ", BytesAsGib, "build_activation_gib"),
    Row::new("Total Weights Memory: ", BytesAsGib, "build_weights_gib"),
    Row::new("Total Scratch Memory: ", BytesAsGib, "build_scratch_gib"),

    // The profile run.
    Row::new(WEIGHTS, Gib, "weights_gib"),
    Row::new("Memory used after loading model weights (outside torch) in memory usage profiling: ", Gib, "weights_outside_torch_gib"),
    Row::new("Memory dynamically allocated during inference (inside torch) in memory usage profiling: ", Gib, "activation_peak_gib"),
    Row::new("Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: ", Gib, "non_torch_gib"),
    Row::new("Estimated max memory in KV cache : ", Gib, "kv_estimated_gib"),
    Row::new("Estimated max memory in KV cache: ", Gib, "kv_estimated_gib"),

    // How the pool's size was found.
    Row::new(PAGED, Gib, "device_total_gib").then(&["total: "]),
    Row::new(PAGED, Gib, "kv_available_gib").then(&["available: "]),
    Row::new(PEAK, Gib, "profiled_peak_gib"),
    Row::new(PEAK, Gib, "kv_available_gib").then(&["when calculating max tokens: "]),
    Row::new(PEAK, Gib, "device_total_gib").then(&["device total memory "]),
    Row::new(PEAK, Float, "free_gpu_memory_fraction").then(&["fraction is set "]),
    Row::new(PEAK, Count, "kv_bytes_per_token").then(&["kv size is "]),
    Row::new(PEAK, Count, "kv_bytes_per_token").then(&["kv size per token is "]),
    Row::new(BOTH_SET, Float, "free_gpu_memory_fraction"),
    Row::new(BOTH_SET, Whole, "max_tokens_requested").then(&[" and "]),
    // GiB without a unit.
    Row::new(BOTH_SET, Float, "device_free_gib").then(&["free memory "]),
    Row::new(BOTH_SET, Float, "device_total_gib").then(&["total memory "]),
    Row::new(SETTING_FRACTION, Float, "torch_memory_fraction"),
    Row::new(SETTING_FRACTION, Gib, "torch_memory_limit_gib").then(&["("]),
];
