//! Every message of vLLM that a value is read from. A new message is a row here, and a line in
//! `signs_tests.rs`.

use super::VllmLog;
use super::messages::{
    attention, blocks, blocks_forced, blocks_of_engine, compiled_again, concurrency, kv_tokens,
    logo, model_name, platform, preempted, quantized_for, server, server_version, smi_row,
    started_up, startup_complete, statistics, unscaled, version, weights_loaded, world,
};
use super::readings::RankLine;
use super::settings::{Trust, read_arguments, read_banner, read_command, read_namespace};
use super::trouble;
use crate::engine::facts::EngineStep::{self, *};
use crate::engine::facts::{FactKey, key};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::table::Form::{self, *};
use crate::engine::log::table::{Row, Table};
use Target::*;
use Trust::*;
use std::sync::LazyLock;

/// What becomes of a value.
#[derive(Clone, Copy)]
pub enum Target {
    /// A figure of each rank: of several a list, equal or not.
    PerRank(FactKey),
    /// A figure of the engine, which a list shows only where ranks differ.
    Common(FactKey),
    /// The same, but the first line counts.
    First(FactKey),
    /// A figure that replaces all earlier ones.
    Replace(FactKey),
    /// A setting, and how well the line knows it.
    Setting(FactKey, Trust),
    /// The step begins; the first line counts.
    Begins(EngineStep),
    /// The step ends; the line of the last rank counts.
    Ends(EngineStep),
    /// A step that shows between the memory profile and the end of graph capture.
    Within(EngineStep),
    /// Evidence of the engine's generation, and its weight.
    Generation(u8, &'static str),
    /// A message that needs more than a row; the text is what follows its sign.
    Read(fn(&mut VllmLog, &RankLine<'_>, &str, &mut Sheet)),
}

/// The messages, with the search for them.
pub static TABLE: LazyLock<Table<Target>> =
    LazyLock::new(|| Table::new(MESSAGES, trouble::WATCHED, BUSY));

/// Lines that the log of a serving engine is full of; those of statistics are looked at apart.
const BUSY: &[&str] = &[
    "INFO:     127.0.0.1:34574 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK",
    "Processed prompts:  80%|████  | 32/40 [00:00<00:00, 3.47it/s, est. speed input: 505.70 toks/s, output: 2.85 toks/s]",
    "(APIServer pid=1) INFO 11-21 01:33:08 [logger.py:40] Received request cmpl-1: prompt: 'Hello', params: SamplingParams(n=1, presence_penalty=0.0, temperature=1.0, top_p=1.0, stop_token_ids=[], max_tokens=128, skip_special_tokens=True), prompt_token_ids: None, lora_request: None.",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]",
];

const ON_START: &str = "Free memory on device";
const BY_HAND: &str = "memory for KV Cache as specified by";
const CPU_POOL: &str = ") GiB for KV cache";
const CPU_NODE: &str = "Available memory on node ";
const PLAN: &str = "Applying persisted startup plan";
const FIT: &str = "--kv-cache-memory=";
const SPACE: &str = "VLLM_CPU_KVCACHE_SPACE";
const DISAGREES: &str = "Error in memory profiling. Initial free memory ";
const RESULTS: &str = "Memory profiling results: ";

const fn row(sign: &'static str, form: Form, target: Target) -> Row<Target> {
    Row::new(sign, form, target)
}

/// The rows, in the order in which those of one line are read. Sources: vLLM 0.4 to 0.33 and its
/// plugins. vLLM's `GB` is bytes / 2^30 like its `GiB`.
#[rustfmt::skip]
pub const MESSAGES: &[Row<Target>] = &[
    // Who wrote the log.
    row("api_server.py", Flag, Read(server)),
    row("API server version", Flag, Read(server)),
    row("vLLM server version", Flag, Read(server)),
    row("Started server process", Flag, Read(server)),
    row("vLLM API server version ", Flag, Read(server_version)),
    row("vLLM server version ", Flag, Read(server_version)),
    row(", serving model ", Text(|t| Some(t.trim())), Setting(key::model, Command)),
    row("version ", Flag, Read(logo)),
    row("  model ", Flag, Read(logo)),
    row("LLM engine (v", Text(version), Setting(key::version_in_banner, Banner)).when("Initializing a"),
    row("Starting to load model ", Text(model_name), Setting(key::model, Mentioned)),
    row("Resolved model: ", Text(model_name), Setting(key::model, Mentioned)),
    row("Automatically detected platform ", Text(platform), Setting(key::platform, Used)),
    row("V1 LLM engine (", Flag, Generation(3, "V1")).when("Initializing a"),
    row("V0 LLM engine (", Flag, Generation(3, "V0")).when("Initializing a"),
    row("an LLM engine (", Flag, Generation(3, "V0")).when("Initializing a"),
    row("the current vLLM instance can use", Flag, Generation(2, "V0")),
    row("Swapped: ", Flag, Generation(2, "V0")),
    row(" blocks: ", Flag, Generation(2, "V0")).when(", # CPU blocks: "),
    row("Loading model weights took", Flag, Generation(0, "V0")).when("model_runner.py"),
    row(RESULTS, Flag, Generation(2, "V0")),
    row("maximum number of tokens that can be stored", Flag, Generation(2, "V0")),
    row("Available KV cache memory: ", Flag, Generation(2, "V1")),
    row("KV cache size: ", Flag, Generation(2, "V1")),
    row(ON_START, Flag, Generation(2, "V1")),
    row("To serve at least one request", Flag, Generation(2, "V1")),
    row("Error in memory profiling", Flag, Generation(1, "V1")).when("GiB"),
    row(" backend", Flag, Read(attention)),
    row("Using FlashAttention version ", Flag, Read(attention)),
    row(" in world size ", Flag, Read(world)).when("is assigned as DP rank"),
    row("[nvfp4.py:", Is("nvfp4"), Setting(key::quantization, Inferred)),
    row("Kernel for ", Text(quantized_for), Setting(key::quantization, Inferred)),
    row(" data type to store kv cache", WordBefore, Setting(key::kv_cache_dtype, Mentioned)).when("Using "),
    row(" KV cache format.", WordBefore, Setting(key::kv_cache_format, Used)).when("Using "),

    // Its start arguments.
    row("LLM engine (", Flag, Read(read_banner)).when("Initializing a"),
    row("non-default args: ", Flag, Read(read_arguments)),
    row("args: Namespace(", Flag, Read(read_namespace)),
    row("vllm serve ", Flag, Read(read_command)),

    // Its steps.
    row("server version ", Flag, Begins(Started)),
    row("non-default args: ", Flag, Begins(Started)),
    row("args: Namespace(", Flag, Begins(Started)),
    row("LLM engine (v", Flag, Begins(Started)),
    row("Starting to load model", Flag, Begins(LoadingWeights)),
    row("Loading model from scratch", Flag, Begins(LoadingWeights)),
    row("Model loading took ", Flag, Ends(WeightsLoaded)),
    row("Loading model weights took ", Flag, Ends(WeightsLoaded)),
    row("Available KV cache memory: ", Flag, Ends(Profiled)),
    row("memory reserved for KV Cache is ", Flag, Ends(Profiled)),
    row(RESULTS, Flag, Ends(Profiled)),
    row("After memory profiling run", Flag, Ends(Profiled)),
    row("Model profiling run took ", Flag, Ends(Profiled)),
    row("GiB for KV cache on node", Flag, Ends(Profiled)),
    row(BY_HAND, Flag, Ends(Profiled)),
    // The pool's size is printed just before it is allocated.
    row("KV cache size: ", Flag, Ends(Profiled)),
    row(" blocks: ", Flag, Ends(Profiled)).when("# "),
    row("Graph capturing finished", Flag, Ends(GraphsCaptured)),
    // Seconds, not memory; the CPU backend prints nothing else about the end of loading.
    row("Loading weights took ", Flag, Begins(WeightsLoaded)),
    // The allocation itself prints nothing: these follow it.
    row("Capturing CUDA graph", Flag, Within(KvCacheAllocated)),
    row("Capturing cudagraphs", Flag, Within(KvCacheAllocated)),
    row("init engine (", Flag, Within(KvCacheAllocated)),
    row("init engine (", Flag, Read(started_up)),
    row("Application startup complete", Flag, Read(startup_complete)),
    row("Shutting down", Flag, Begins(Stopping)).shown("hut"),
    row("[shutdown]", Flag, Begins(Stopping)).shown("hut"),
    row("SIGTERM", Flag, Begins(Stopping)).shown("hut"),

    // Weights.
    row("Model loading took ", Gib, PerRank(key::weights_gib)),
    row("Loading model weights took in total ", Gib, PerRank(key::weights_gib)),
    row("Loading model weights took ", Gib, PerRank(key::weights_gib)),
    // On disk; a draft model's is printed second.
    row("Checkpoint size: ", Gib, First(key::checkpoint_size_gib)),
    row("Sleep mode freed ", Gib, Common(key::sleep_freed_gib)),
    row("Sleep mode freed ", Gib, Common(key::sleep_in_use_gib)).then(&["memory, "]),
    row("MemAllocator: sleep freed ", Gib, Common(key::sleep_on_host_gib)).then(&["of which "]),
    // `--load-format ipc_cache`, and the process of `vllm preload` that holds the weights for it (0.32).
    row("Weights are held outside this process: of the ", Gib, PerRank(key::external_weights_gib)).then(&["budget, "]),
    row("Weight cache ", Gib, PerRank(key::weights_gib)).then(&[" loaded model ("]),

    // Caches in the host's memory: of each worker, or of all together (0.32); LMCache's own (0.5.6).
    row("SimpleCPUOffloadWorker [CPU]: ", Gib, PerRank(key::kv_offload_gib)).then(&[" CPU blocks ("]),
    row("Created mmap file ", DecimalGb, Common(key::kv_offload_shared_gib)).then(&[" ("]),
    row("LMCache Configuration: ", Gib, Common(key::lmcache_host_gib)).then(&["'max_local_cpu_size': '"]),

    // The memory profile, releases up to 0.6.
    row("total_gpu_memory (", Gib, Common(key::total_gpu_memory_gib)),
    row("model weights take ", Gib, PerRank(key::weights_gib_in_summary_line)),
    row("non_torch_memory takes ", Gib, PerRank(key::non_torch_gib)),
    row("PyTorch activation peak memory takes ", Gib, PerRank(key::activation_peak_gib)),
    row("memory reserved for KV Cache is ", Gib, PerRank(key::kv_cache_gib)),
    row("gpu_memory_utilization (", Gib, Common(key::requested_gib)).then(&[") = "]),
    row(RESULTS, Gib, Common(key::total_gpu_memory_gib)).then(&["total_gpu_memory="]),
    row(RESULTS, Gib, Common(key::initial_memory_usage_gib)).then(&["initial_memory_usage="]),
    // Includes weights, so it is not an activation peak.
    row(RESULTS, Gib, PerRank(key::peak_torch_memory_gib)).then(&["peak_torch_memory="]),
    row(RESULTS, Gib, PerRank(key::non_torch_gib)).then(&["non_torch_memory="]),
    row(RESULTS, Gib, PerRank(key::kv_cache_gib)).then(&["kv_cache_size="]),

    // The memory profile since 0.8.
    row("Available KV cache memory: ", Gib, PerRank(key::kv_cache_gib)),
    row("Total non KV cache memory: ", Gib, PerRank(key::non_kv_cache_gib)),
    row("torch peak memory increase: ", Gib, PerRank(key::activation_peak_gib)),
    row("non-torch forward increase memory: ", Gib, PerRank(key::non_torch_gib)),
    row("weights memory: ", Gib, PerRank(key::weights_gib_in_summary_line)),
    row("total consumed (from mem_get_info): ", Gib, PerRank(key::consumed_gib)),
    row("Free memory after profiling: ", Gib, Common(key::free_after_profile_gib)),
    row("Initial free memory: ", Gib, Common(key::free_at_start_gib)),
    row("requested GPU memory: ", Gib, Common(key::requested_gib)),
    row("Peak GPU memory after loading weights: ", Gib, Common(key::peak_loading_gib)),
    row("Requested memory: ", Gib, Common(key::requested_gib)).then(&["(util), "]),
    // Another process gave memory back while this one was measured; bytes before 0.9.1.
    row(DISAGREES, Gib, Common(key::free_at_start_gib)),
    row(DISAGREES, Bytes, Common(key::free_at_start_bytes)),
    row(DISAGREES, Gib, Common(key::free_after_profile_gib)).then(&["current free memory "]),
    row(DISAGREES, Bytes, Common(key::free_after_profile_bytes)).then(&["current free memory "]),

    // The budget after warm-up, or the refusal to start. Newer releases name the device first:
    // `Free memory on device cuda:0 (a/b GiB) on startup. Desired GPU memory utilization is (u, r GiB). …`.
    row(ON_START, Float, Common(key::free_at_start_gib)).then(&["("]),
    row(ON_START, Float, Common(key::total_gpu_memory_gib)).then(&["(", "/"]),
    row(ON_START, Gib, Common(key::requested_gib)).then(&["memory utilization ", "(", ", "]),
    row(" GiB for weight", FloatBefore, PerRank(key::weights_gib_in_summary_line)).when(ON_START),
    row(" GiB for consumed memory", FloatBefore, PerRank(key::consumed_gib)).when(ON_START),
    row(" GiB for peak activation", FloatBefore, PerRank(key::activation_peak_gib)).when(ON_START),
    row(" GiB for non-torch memory", FloatBefore, PerRank(key::non_torch_gib)).when(ON_START),
    row(" GiB for CUDAGraph memory", FloatBefore, PerRank(key::cuda_graph_gib_in_summary_line)).when(ON_START),
    row(FIT, Count, Common(key::suggested_kv_cache_memory_bytes)).when(ON_START),
    row(FIT, Count, Common(key::suggested_kv_cache_memory_bytes_full)).then(&[FIT]).when(ON_START).shown("to fully utilize"),
    row("kv cache memory in use is ", Gib, Common(key::kv_cache_in_use_gib)).when(ON_START),
    row("kv cache memory in use is ", Bytes, Common(key::kv_cache_in_use_bytes)).when(ON_START),

    // The pool's size was given, so nothing was measured; or it was changed after measuring.
    row(BY_HAND, Gib, PerRank(key::kv_cache_gib)).behind(&["reserved "]),
    row(BY_HAND, Gib, Common(key::free_at_start_gib)).behind(&["Initial free memory "]),
    row(PLAN, Gib, PerRank(key::kv_cache_gib)).then(&["kv_cache_memory_bytes=", "("]),
    row(PLAN, Count, Setting(key::kv_cache_memory_bytes, Adjusted)).then(&["kv_cache_memory_bytes="]),
    row("KV cache memory reduced to ", Gib, Replace(key::kv_cache_gib)),

    // The CPU backend: `Auto set (a/b) GiB for KV cache on node 0, with r GiB requested memory, …`.
    row(CPU_POOL, Float, PerRank(key::kv_cache_gib)).behind(&[" set ("]),
    row(CPU_POOL, Float, Common(key::cpu_node_memory_gib)).behind(&[" set (", "/"]),
    row(CPU_POOL, Gib, Common(key::requested_gib)).then(&[", with "]),
    row(" GiB memory was consumed by non-kv usages", FloatBefore, PerRank(key::non_kv_cache_gib)),
    row(CPU_NODE, Float, Common(key::free_at_start_gib)).then(&["("]).when(" on startup"),
    row(CPU_NODE, Float, Common(key::free_at_kv_allocation_gib)).then(&["("]).when(" on kv cache allocation"),
    row(CPU_NODE, Float, Common(key::cpu_node_memory_gib)).then(&["(", "/"]),
    row(CPU_NODE, Gib, Common(key::requested_gib)).then(&["memory utilization (", ", "]),
    row(CPU_NODE, Gib, Common(key::kv_cache_needed_gib)).then(&["requested memory for kv ("]),
    row(SPACE, Number, Common(key::cpu_kvcache_space_gib)).then(&["not set", "using "]),
    row(SPACE, Number, Common(key::cpu_kvcache_space_gib)).then(&["not set", "Using "]),

    // Other devices. PyTorch's own words (`capacty` in old releases) when an allocation fails.
    row("has a total capac", Gib, Common(key::total_gpu_memory_gib_in_error)).then(&[" of "]),
    // Gaudi: `took x of device memory (a GiB/b GiB used)`.
    row("of device memory (", Gib, Common(key::total_gpu_memory_gib)).then(&["/"]),
    row("reserved for KV cache", GibBefore, PerRank(key::kv_cache_gib)).when("Free device memory: "),
    // Intel GPUs print MB and mean MiB.
    row("Before memory profiling run, total GPU memory: ", Gib, Common(key::total_gpu_memory_gib)),
    row("Before memory profiling run, ", Gib, PerRank(key::weights_gib_in_summary_line)).then(&["model load takes "]),
    row("After memory profiling run, peak memory usage is ", Gib, PerRank(key::peak_memory_gib)),
    row("After memory profiling run, ", Gib, PerRank(key::non_torch_gib)).then(&["non-torch mem is "]),

    row("gpu_memory_utilization (", Float, Setting(key::gpu_memory_utilization, Used)),
    row("GPU memory utilization is (", Float, Setting(key::gpu_memory_utilization, Used)),
    row("GPU memory utilization (", Float, Setting(key::gpu_memory_utilization, Used)),
    row("CPU memory utilization (", Float, Setting(key::gpu_memory_utilization, Used)),
    row("The current --gpu-memory-utilization=", Float, Setting(key::gpu_memory_utilization, Used)),
    row("increase --gpu-memory-utilization from ", Float, Setting(key::gpu_memory_utilization, Used)),
    row("usable (gpu_memory_utilization=", Float, Setting(key::gpu_memory_utilization, Used)),
    row("GiB gpu_memory_utilization=", Float, Setting(key::gpu_memory_utilization, Used)),

    // The KV pool.
    row("KV cache size: ", Flag, Read(kv_tokens)),
    row("Maximum concurrency for ", Flag, Read(concurrency)),
    row(" blocks: ", Flag, Read(blocks)),
    row("after num_gpu_blocks is: ", Flag, Read(blocks_of_engine)),
    row("Overriding num_gpu_blocks=", Flag, Read(blocks_forced)),
    row(" padding layers, may waste", CountBefore, Setting(key::padding_layers, Used)),
    row("etting kv cache block size to ", Count, Setting(key::block_size, Adjusted)),
    row("Forcing kv cache block size to ", Count, Setting(key::block_size, Adjusted)),
    row("Block size is set to ", Count, Setting(key::block_size, Used)),
    row(" optimal block size is ", Count, Setting(key::block_size, Used)),
    row("--block-size ", Count, Setting(key::block_size, Command)),
    row("etting attention block size to ", Count, Setting(key::attention_block_size, Used)),
    row("Padding mamba page size by ", Float, Setting(key::mamba_page_padding_pct, Used)),
    row("Multiplying the GPU KV cache size by the ", Flag, Setting(key::kv_cache_tokens_of_all_ranks, Used)),
    row(" GiB KV cache is needed", FloatBefore, Common(key::kv_cache_needed_gib)),
    row(" GB KV cache is needed", FloatBefore, Common(key::kv_cache_needed_gib)),
    row("available KV cache memory (", Gib, Common(key::kv_cache_gib_in_error)),
    row("stored in KV cache (", Count, Common(key::kv_cache_tokens_in_error)),
    row("estimated maximum model length is ", Count, Common(key::estimated_max_model_len)),
    row("max seq len (", Count, Setting(key::max_model_len, Mentioned)),
    row("Auto-fit max_model_len: reduced from ", Count, Setting(key::max_model_len, Adjusted)).then(&[" to "]),
    row("Using max model len ", Count, Setting(key::max_model_len, Used)),
    row("Chunked prefill is enabled with max_num_batched_tokens=", Count, Setting(key::max_num_batched_tokens, Used)),

    // CUDA graphs. A difference of free memory, so it can be negative; before 0.6.4 only the time
    // is printed.
    row("Graph capturing finished in ", Gib, PerRank(key::cuda_graph_gib)).then(&["took "]),
    row("Estimated CUDA graph memory: ", Gib, Common(key::cuda_graph_estimated_gib)),
    row("CUDA graph pool memory: ", Gib, Common(key::cuda_graph_pool_actual_gib)),
    // The estimate again; the only time where the line above is missing.
    row("CUDA graph pool memory: ", Gib, Common(key::cuda_graph_estimated_gib_in_pool_line)).then(&["(actual), "]),

    // While it serves.
    row("total_num_cumulative_preemption=", Flag, Read(preempted)),
    row("KV cache usage: ", Flag, Read(statistics)),
    row(", Preemptions: ", Flag, Read(statistics)),
    row(" MiB", Flag, Read(smi_row)),
    row("Using KV cache scaling factor 1.0 for fp8", Flag, Read(unscaled)),
    row("Compiling model again due to a load failure", Flag, Read(compiled_again)),
    row("100% Completed", Flag, Read(weights_loaded)),
    row("Loading drafter model", Flag, Read(weights_loaded)),
];
