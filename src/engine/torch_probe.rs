//! What a probe inside a torch process saw: weights, cache and activations by torch's own account, or
//! by the process' resident memory on CPU. The words of `scripts/probes/transformers_memory.py`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The probe's result: its memory, and the table of layers where that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct TorchReport {
    /// Memory and load.
    #[serde(flatten)]
    pub memory: TorchMemory,
    /// Operators and layers.
    pub layer_profile: Option<LayerProfile>,
}

/// What measured the activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// torch's allocator on GPUs: exact.
    CudaAllocator,
    /// Resident memory of the process, read from the kernel: on CPU torch has no account of its own.
    #[default]
    Rss,
}

/// Memory of a model while it generates, seen from inside its process. Bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchMemory {
    /// What measured the activations.
    pub measured_by: MeasuredBy,
    /// Libraries in the process.
    pub versions: TorchVersions,
    /// The model as it was loaded.
    pub model: TorchModel,
    /// The load as it was: counted, not asked for.
    pub load: TorchLoad,
    /// Weights.
    pub weights: TorchWeights,
    /// The cache at the end of generate.
    pub kv_cache: TorchCache,
    /// The GPUs, or the one entry `cpu`.
    pub devices: Vec<TorchDevice>,
    /// Resident memory of the process.
    pub rss: TorchRss,
    /// Highest of the iterations less weights and cache, all devices together. Null on CPU where
    /// memory that was free in the process already was used again.
    pub activation_peak_bytes: Option<i64>,
    /// The same for the prompt alone.
    pub prefill_activation_peak_bytes: Option<i64>,
    /// What the model takes on its GPUs together less what it would take on one: every context,
    /// cache of an allocator and activation buffer but the largest.
    pub multi_gpu_overhead_bytes: Option<i64>,
    /// The measured iterations.
    pub iterations: Vec<TorchIteration>,
    /// How long they took.
    pub latency: TorchLatency,
    /// What the probe has to say; sentences.
    pub notes: Vec<String>,
}

/// Libraries in the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchVersions {
    /// Python.
    pub python: Option<String>,
    /// torch.
    pub torch: Option<String>,
    /// transformers.
    pub transformers: Option<String>,
    /// accelerate, which spreads a model over several GPUs.
    pub accelerate: Option<String>,
    /// CUDA that torch was built for, where it sees a GPU.
    pub cuda: Option<String>,
    /// HIP that torch was built for.
    pub hip: Option<String>,
}

/// The model as it was loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchModel {
    /// Class, `LlamaForCausalLM`.
    pub class: Option<String>,
    /// `model_type` of its configuration.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Type of most weights.
    pub dtype: Option<String>,
    /// Parameters, those that several modules share counted once.
    pub num_parameters: Option<u64>,
    /// Layers.
    pub num_layers: Option<u64>,
    /// Quantization method.
    pub quantization: Option<String>,
    /// Built from a configuration, with no weights loaded.
    #[serde(default)]
    pub random_weights: bool,
    /// Module → device, where the model is spread over several.
    pub devices: Option<BTreeMap<String, String>>,
}

/// The load as it was: counted, not asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchLoad {
    /// Sequences.
    pub batch_size: u64,
    /// `given` or `random`.
    pub prompt: String,
    /// Prompt tokens per sequence.
    pub prompt_tokens: u64,
    /// Generated tokens per sequence.
    pub generated_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Iterations before measuring.
    pub warmup: u64,
    /// Measured iterations.
    pub iterations: u64,
}

/// Weights, memory that several names share counted once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchWeights {
    /// Parameters and buffers.
    pub bytes: u64,
    /// Parameters.
    pub parameter_bytes: u64,
    /// Buffers that are no parameters.
    pub buffer_bytes: u64,
    /// By type.
    pub by_dtype: BTreeMap<String, u64>,
    /// Names beyond the first for the same memory (tied weights).
    pub tied_tensors: u64,
    /// Not in memory: loaded anew for every step.
    pub offloaded_bytes: u64,
    /// Pages of the checkpoint's own files, on CPU: the kernel counts them as page cache.
    pub file_mapped_bytes: Option<u64>,
    /// What torch's allocator held after loading less what it held before.
    pub allocator_bytes: Option<i64>,
    /// That less the weights on GPUs: rounding, and what loading left.
    pub allocator_difference_bytes: Option<i64>,
}

/// The cache at the end of generate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchCache {
    /// Its own tensors.
    pub bytes: u64,
    /// The memory behind them: more where a tensor is a view.
    pub held_bytes: u64,
    /// Its own tensors after the prompt.
    pub prefill_bytes: u64,
    /// Tokens per sequence. The last generated token is in no cache.
    pub tokens: Option<u64>,
    /// Growth per token of one sequence.
    pub bytes_per_token: Option<f64>,
    /// Type.
    pub dtype: Option<String>,
    /// Class.
    pub class: Option<String>,
    /// Tensors.
    pub tensors: u64,
}

/// One device as the process sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchDevice {
    /// `cuda:0`, `cpu`.
    pub device: String,
    /// The measured device that it is; filled in by plimsoll.
    #[serde(default)]
    pub gpu_id: Option<u32>,
    /// Product.
    pub name: Option<String>,
    /// UUID, without the driver's prefix.
    pub uuid: Option<String>,
    /// PCI address.
    pub pci_bus_id: Option<String>,
    /// Size.
    pub total_bytes: Option<u64>,
    /// Weights on it.
    pub weights_bytes: u64,
    /// Memory behind the cache's tensors on it.
    pub kv_cache_bytes: u64,
    /// Allocated after loading.
    pub loaded_bytes: Option<u64>,
    /// What loading allocated less the weights.
    pub allocator_difference_bytes: Option<i64>,
    /// Highest allocated; on CPU the process' highest resident memory.
    pub peak_bytes: Option<u64>,
    /// Highest reserved by the allocator.
    pub peak_reserved_bytes: Option<u64>,
    /// The one less the other.
    pub reserved_minus_allocated_bytes: Option<i64>,
    /// Peak less what was loaded less the cache.
    pub activation_peak_bytes: Option<i64>,
    /// The same for the prompt alone.
    pub prefill_activation_peak_bytes: Option<i64>,
    /// In use on the whole device at the end, by whomever.
    pub used_bytes: Option<u64>,
    /// That less what this allocator reserves: driver, context, libraries, other processes.
    pub non_torch_bytes: Option<i64>,
    /// The same before the model was loaded.
    pub non_torch_before_load_bytes: Option<i64>,
    /// Other processes on it, as far as the container is shown any.
    pub other_processes: Option<u64>,
}

/// Resident memory of the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchRss {
    /// Before any import.
    pub start_bytes: Option<u64>,
    /// After torch and transformers were imported.
    pub imported_bytes: Option<u64>,
    /// After the model was loaded.
    pub loaded_bytes: Option<u64>,
    /// Anonymous memory of that.
    pub loaded_anon_bytes: Option<u64>,
    /// Pages of files of that.
    pub loaded_file_bytes: Option<u64>,
    /// Before the iteration that peaked.
    pub before_bytes: Option<u64>,
    /// Its peak.
    pub peak_bytes: Option<u64>,
    /// `high_water_mark` (the kernel's, set back before it) or `sampling`.
    pub peak_by: Option<String>,
}

/// One measured iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchIteration {
    /// Duration, milliseconds.
    pub ms: f64,
    /// Peak over all devices.
    pub peak_bytes: Option<u64>,
    /// Activations over all devices.
    pub activation_peak_bytes: Option<i64>,
}

/// Durations of generate, milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TorchLatency {
    /// Median.
    pub median_ms: f64,
    /// Shortest.
    pub min_ms: f64,
    /// Longest.
    pub max_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// Of one token: the prompt, in effect.
    pub prefill_ms: Option<f64>,
    /// Generated tokens per second, all sequences, by the median.
    pub tokens_per_second: f64,
}

/// Where within the model memory and time go (`--per-layer`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerProfile {
    /// Tokens that were generated under torch.profiler.
    pub tokens: u64,
    /// Operators that allocate most, by torch.profiler.
    pub operators_by_memory: Vec<Operator>,
    /// Operators that take longest.
    pub operators_by_time: Vec<Operator>,
    /// Layers and what lies beside them, in order, from one pass over the prompt.
    pub layers: Vec<Layer>,
}

/// An operator, all its calls together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operator {
    /// `aten::mm`.
    pub name: String,
    /// Calls.
    pub calls: u64,
    /// What it allocated itself less what it freed, over all calls: on the GPU where there is one.
    pub self_memory_bytes: Option<i64>,
    /// Time on the CPU without the operators it calls, milliseconds.
    pub self_cpu_ms: Option<f64>,
    /// The same on the GPU.
    pub self_device_ms: Option<f64>,
}

/// A layer, or a module beside the layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// `model.layers.0`.
    pub name: String,
    /// Class.
    pub class: String,
    /// Device of its weights.
    pub device: Option<String>,
    /// Parameters and buffers.
    pub parameter_bytes: u64,
    /// Its output.
    pub output_bytes: Option<u64>,
    /// Outputs of all innermost modules in it, most of which are freed within the pass.
    pub inner_bytes: Option<u64>,
    /// Highest allocated while it ran, less what was allocated before (GPU).
    pub peak_bytes: Option<u64>,
}
