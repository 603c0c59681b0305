//! What an engine's log reports about memory: named values, each with its source lines.

use crate::capture::AtNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value read from a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FactValue {
    /// A flag.
    Bool(bool),
    /// A count, or bytes.
    Int(i64),
    /// A figure in the unit that its key names (`_gib`).
    Float(f64),
    /// A name.
    Text(String),
    /// One figure per rank or engine, where they were printed one by one.
    List(Vec<f64>),
    /// One value per rank, device or buffer, where the log names them: `{"CUDA0": 5.3}`.
    Record(BTreeMap<String, FactValue>),
    /// A table.
    Rows(Vec<BTreeMap<String, FactValue>>),
}

impl FactValue {
    /// A count; `None` beyond 63 bits.
    pub fn count(count: u64) -> Option<FactValue> {
        i64::try_from(count).ok().map(FactValue::Int)
    }

    /// A figure or count; `None` for everything else.
    pub fn number(&self) -> Option<f64> {
        match self {
            FactValue::Int(v) => Some(*v as f64),
            FactValue::Float(v) => Some(*v),
            _ => None,
        }
    }

    /// The figures of a list, or of the entries of a record, or the one figure.
    #[cfg(test)]
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            FactValue::List(v) => v.clone(),
            FactValue::Record(r) => r.values().filter_map(FactValue::number).collect(),
            other => other.number().into_iter().collect(),
        }
    }
}

/// The known entries of a record or a row.
pub fn known_entries<const N: usize>(
    entries: [(&str, Option<FactValue>); N],
) -> BTreeMap<String, FactValue> {
    let entries = entries.into_iter();
    let known = entries.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    known.collect()
}

impl std::fmt::Display for FactValue {
    /// As a person reads it: `1, 2` for a list, `CUDA0 5.3, CPU 1` for a record.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let record = |entries: &BTreeMap<String, FactValue>| {
            let pairs: Vec<String> = entries.iter().map(|(k, v)| format!("{k} {v}")).collect();
            pairs.join(", ")
        };
        match self {
            FactValue::Bool(v) => write!(f, "{v}"),
            FactValue::Int(v) => write!(f, "{v}"),
            FactValue::Float(v) => write!(f, "{v}"),
            FactValue::Text(v) => f.write_str(v),
            FactValue::List(v) => {
                let all: Vec<String> = v.iter().map(f64::to_string).collect();
                f.write_str(&all.join(", "))
            }
            FactValue::Record(entries) => f.write_str(&record(entries)),
            FactValue::Rows(rows) => {
                let all: Vec<String> = rows.iter().map(record).collect();
                f.write_str(&all.join("; "))
            }
        }
    }
}

/// A value with its witness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// The value.
    pub value: FactValue,
    /// The lines that say so, without colour and trimmed; one for each rank that printed its own.
    /// Empty where no line shows it (`oom` is false).
    pub quote: Vec<String>,
    /// When the first of them was written, on the capture's clock; `None` when read from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<AtNs>,
}

impl Fact {
    /// What ranks print one by one: one figure as itself, more of them as a list.
    pub fn of_ranks(facts: &[Fact]) -> Option<Fact> {
        let value = match facts {
            [] => return None,
            [one] => one.value.clone(),
            all => FactValue::List(all.iter().filter_map(|f| f.value.number()).collect()),
        };
        let mut quote: Vec<String> = facts.iter().flat_map(|f| f.quote.clone()).collect();
        quote.dedup();
        quote.truncate(64);
        Some(Fact::new(value, quote, facts[0].at_ns))
    }

    /// A fact with the lines that show it.
    pub fn new(value: FactValue, quote: Vec<String>, at_ns: Option<AtNs>) -> Fact {
        Fact {
            value,
            quote,
            at_ns,
        }
    }
}

/// A milestone of an engine's life, seen in its log. Not every engine prints every one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EngineStep {
    /// The process announces itself.
    Started,
    /// Weights begin to load: everything before is the engine's own run-time.
    LoadingWeights,
    /// Weights are in memory.
    WeightsLoaded,
    /// The memory profile (dummy run) is done; the KV pool is about to be allocated.
    Profiled,
    /// The KV pool is allocated.
    KvCacheAllocated,
    /// CUDA graphs are captured.
    GraphsCaptured,
    /// Ready for requests.
    Ready,
    /// Shutting down.
    Stopping,
}

/// A milestone and when it was passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepMark {
    /// Which.
    pub step: EngineStep,
    /// When, on the capture's clock; `None` when read from a file.
    pub at_ns: Option<AtNs>,
    /// The line.
    pub quote: String,
}

/// A note without a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Machine-readable, snake_case: `preemption_seen`, `oom`, `engine_died`, ….
    pub code: String,
    /// `info`, `warning` or `error`.
    pub severity: Severity,
    /// One sentence, no full stop.
    pub message: String,
    /// The line or figure it rests on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quote: Option<String>,
}

/// Code of the finding for a log without `gpu_memory_utilization` among the arguments: the
/// release's default applies.
pub const DEFAULT_UTILIZATION: &str = "gpu_memory_utilization_default";

/// How much a finding matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// The numbers must be read with care.
    Warning,
    /// The run failed, or a number is wrong.
    Error,
}

/// What a fact is of. Each is declared once, in [`key`], so that no reader asks for a fact that no parser writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FactKey(&'static str);

impl FactKey {
    /// Its name in documents, with the unit: `weights_gib`.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// The fact of this name.
    pub fn named(name: &str) -> Option<FactKey> {
        key::ALL.iter().find(|key| key.0 == name).copied()
    }

    /// The same fact of the draft model of speculative decoding.
    pub fn of_draft(self) -> FactKey {
        let draft = key::ALL.iter().copied();
        let mut draft = draft.filter(|key| key.0.strip_prefix("draft_") == Some(self.0));
        draft.next().unwrap_or(self)
    }
}

impl std::fmt::Display for FactKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.0)
    }
}

impl std::borrow::Borrow<str> for FactKey {
    fn borrow(&self) -> &str {
        self.0
    }
}

/// The names of facts: the unit is the end of the name (GiB = 2^30, MiB = 2^20). What a name means for one engine alone
/// is in the table at the head of that engine's parser.
///
/// A figure that ranks printed one by one is a list, equal or not. `kv_pool_tokens`, `kv_pool_gib` and
/// `kv_pool_blocks` are what can be used of it: the smallest over the ranks of an engine; a list of them means
/// data-parallel engines, with pools that add up. `…_in_summary_line`: from the engine's closing summary. `oom` is
/// always there for vLLM, for others once a line shows it.
#[allow(non_upper_case_globals, missing_docs)]
pub mod key {
    use super::FactKey;

    macro_rules! keys {
        ($($name:ident)*) => {
            $(pub const $name: FactKey = FactKey(stringify!($name));)*
            /// All of them.
            pub(super) const ALL: &[FactKey] = &[$($name),*];
        };
    }

    keys! {
        // Of the draft model of speculative decoding.
        draft_activation_peak_gib draft_architecture draft_checkpoint_size_gib draft_cuda_graph_gib draft_cuda_graphs
        draft_file_type draft_flash_attn draft_kv_blocks_estimation draft_kv_cache_dtype draft_kv_cache_gib
        draft_kv_cache_tokens draft_kv_k_gib draft_kv_pools draft_kv_size draft_kv_total_gib draft_kv_unified
        draft_kv_v_gib draft_layers_offloaded draft_model draft_model_name draft_model_params draft_n_batch
        draft_n_ctx draft_n_seq_max draft_n_ubatch draft_num_gpu_blocks draft_output_gib
        draft_pinned_activation_peak_gib draft_pinned_kv_cache_gib draft_pinned_output_gib
        draft_pinned_recurrent_state_gib draft_pinned_weights_gib draft_quantization draft_recurrent_state
        draft_recurrent_state_gib draft_weights_gib
        // Amounts of memory, GiB.
        activation_peak_gib avail_after_graph_gib avail_after_kv_sizing_gib avail_after_load_gib avail_after_pool_gib
        avail_after_start_gib avail_before_graph_gib avail_before_load_gib build_activation_gib build_scratch_gib
        build_weights_gib checkpoint_size_gib components_free_gib consumed_gib conv_gib cpu_kvcache_space_gib
        cpu_mem_usage_gib cpu_node_memory_gib cuda_free_gib cuda_graph_estimated_gib
        cuda_graph_estimated_gib_in_pool_line cuda_graph_estimated_gib_per_rank cuda_graph_gib
        cuda_graph_gib_in_summary_line cuda_graph_pool_actual_gib cuda_graph_pool_actual_gib_per_rank
        cuda_graph_prefill_gib decoder_gib device_free_gib device_limit_gib device_total_gib device_used_gib
        distributed_init_gib dsv4_available_gib engine_size_gib execution_context_gib external_weights_gib
        free_after_profile_gib
        free_at_kv_allocation_gib free_at_start_gib free_before_failed_component_gib free_memory_gib
        free_memory_real_gib gpu_mem_usage_gib gpu_total_gib hicache_host_gib host_available_gib host_free_gib
        host_free_swap_gib host_total_gib hpu_graph_reserved_gib initial_memory_usage_gib intermediate_conv_gib
        intermediate_ssm_gib kv_available_gib kv_cache_gib kv_cache_gib_in_error kv_cache_in_use_gib
        kv_cache_needed_gib kv_estimated_gib kv_k_gib kv_offload_gib kv_offload_shared_gib kv_pool_gib kv_total_gib
        kv_v_gib lmcache_host_gib lora_gib mmproj_compute_gib
        mmproj_weights_gib non_kv_cache_gib non_torch_gib oom_requested_gib output_gib peak_loading_gib
        peak_memory_gib peak_torch_memory_gib pinned_activation_peak_gib pinned_kv_cache_gib pinned_mem_usage_gib
        pinned_output_gib pinned_recurrent_state_gib pinned_weights_gib process_used_gib processes_gib
        replay_gib
         profiled_peak_gib prompt_cache_gib prompt_cache_limit_gib recurrent_state_gib requested_gib
         runtime_buffers_gib sleep_freed_gib sleep_in_use_gib sleep_on_host_gib
        ssm_gib temporary_kv_gib tensorrt_managed_gib torch_allocated_gib torch_memory_limit_gib
        torch_reserved_unallocated_gib total_gpu_memory_gib total_gpu_memory_gib_in_error total_memory_gib
        total_vram_gib weights_gib weights_gib_in_summary_line weights_outside_torch_gib
        // Amounts of memory in the unit of the name.
        cpu_offload_gb free_after_profile_bytes free_at_start_bytes kv_cache_in_use_bytes kv_cache_memory_bytes
        nvidia_smi_used_mib_per_gpu suggested_kv_cache_memory_bytes suggested_kv_cache_memory_bytes_full
        weights_hint_gb
        // CUDA graphs.
        cuda_graph_batch_sizes cuda_graph_batch_sizes_configured cuda_graph_draft_lens cuda_graph_max_bs
        cuda_graph_prefill_sizes_configured cuda_graph_sizes cuda_graph_sizes_configured cuda_graphs
        cuda_graphs_piecewise cuda_graphs_planned cuda_graphs_prefill cuda_graphs_skipped enable_cuda_graphs
        use_cuda_graph
        // Pools in tokens and blocks.
        attention_block_size block_size dsv4_pool_tokens free_num_blocks full_tokens kv_bytes_per_token kv_cache_dtype
        kv_cache_format kv_cache_tokens kv_cache_tokens_in_error kv_cache_tokens_of_all_ranks kv_cache_tokens_rank0
        kv_cache_usage_peak_pct kv_logical_tokens kv_pool_blocks kv_pool_tokens kv_pools kv_size kv_unified
        max_batch_prefill_tokens max_batch_tokens max_batch_total_tokens max_concurrency max_concurrency_tokens
        max_concurrent_requests max_input_tokens max_num_batched_tokens max_num_tokens max_prefill_tokens
        max_total_num_tokens max_total_tokens max_waiting_tokens num_cpu_blocks num_device_blocks num_gpu_blocks
        num_gpu_blocks_override profiled_max_total_tokens swa_tokens used_num_blocks
        // Trouble.
        failure oom oom_component oom_phase oom_recovered preemptions_cumulative retracted_requests
        // Settings and the rest.
        architecture attention_backend backend chunked_prefill_size context_length cuda_memory_fraction
        data_parallel_size decode_context_parallel_size default_num_ctx device device_label devices
        disable_custom_kernels docker_label dp_attention_size dsv4_bytes_per_full_token dtype enable_chunked_prefill
        enable_dp_attention enable_prefix_caching enforce_eager engine_build_version engine_generation estimate
        estimated_max_model_len estimation_pool expert_parallel_size file_type flash_attn free_gpu_memory_fraction
        gpu_card gpu_memory_utilization gpu_names layers_offloaded load_seconds mamba mamba_page_padding_pct
        max_batch_size max_batch_total_tokens_inferred max_batch_total_tokens_requested max_beam_width max_best_of
        max_client_batch_size max_model_len max_num_requests max_num_seqs max_num_sequences max_running_requests
        max_seq_len max_stop_sequences max_tokens_requested max_total_tokens_asked mem_fraction_static
        memory_breakdown model model_blob model_dtype model_family model_loads model_name model_params
        model_pipeline_tag model_sha n_batch n_ctx n_ctx_slot n_gpu_layers n_seq_max n_slots n_ubatch nnodes node_rank
        padding_layers page_size pipeline_parallel_size platform port prefill_chunking prefix_caching projection
        prometheus_port quantization rank_gpus recurrent_state revision rocm_flash_attention rope_factor rope_scaling
        router scheduler served_model_name sha sharded slots speculate speculative_algorithm swap_space
        tensor_parallel_size torch_memory_fraction trust_remote_code tunable_op validation_workers version_in_banner
        waiting_served_ratio weights_print_count_true world_size
    }
}

/// The contents of a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LogReport {
    /// `vllm`, ….
    pub engine: String,
    /// As the log announces it; banners of forks can be wrong.
    pub engine_version: Option<String>,
    /// Values with their lines. A key that is absent was not in the log.
    pub facts: BTreeMap<FactKey, Fact>,
    /// Milestones in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepMark>,
    /// Things worth telling.
    pub findings: Vec<Finding>,
}

impl LogReport {
    /// A fact of the log.
    pub fn fact(&self, key: FactKey) -> Option<&Fact> {
        self.facts.get(&key)
    }

    /// Whether the log has a fact.
    pub fn has(&self, key: FactKey) -> bool {
        self.facts.contains_key(&key)
    }

    /// A figure in its own unit, when it is one figure.
    pub fn number(&self, key: FactKey) -> Option<f64> {
        self.fact(key)?.value.number()
    }

    /// A text value.
    pub fn text(&self, key: FactKey) -> Option<&str> {
        match &self.fact(key)?.value {
            FactValue::Text(v) => Some(v),
            _ => None,
        }
    }

    /// When a milestone was first passed.
    pub fn step_at(&self, step: EngineStep) -> Option<AtNs> {
        self.steps
            .iter()
            .find(|m| m.step == step)
            .and_then(|m| m.at_ns)
    }
}
