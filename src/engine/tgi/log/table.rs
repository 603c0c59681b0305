//! Every message of TGI that a value or a step is read from.

use super::{ENDS, TgiMessages, trouble};
use crate::engine::facts::EngineStep::*;
use crate::engine::facts::key;
use crate::engine::log::table::Form::{self, *};
use crate::engine::log::table::Put::{self, *};
use crate::engine::log::table::{Row, Table, first_word};
use crate::engine::log::torch;
use std::sync::LazyLock;

type TgiRow = Row<Put<TgiMessages>>;

/// The messages, with the search for them.
pub static TABLE: LazyLock<Table<Put<TgiMessages>>> =
    LazyLock::new(|| Table::new(MESSAGES, &watched(), BUSY));

/// A line of a request that was answered: a serving log is full of them.
const BUSY: &[&str] = &[
    r#"2026-01-01T00:00:00.000000Z  INFO generate_stream{parameters=GenerateParameters { best_of: None, temperature: Some(0.5), repetition_penalty: None, frequency_penalty: None, top_k: None, top_p: None, typical_p: None, do_sample: false, max_new_tokens: Some(128), return_full_text: None, stop: [], truncate: None, watermark: false, details: false, decoder_input_details: false, seed: None, top_n_tokens: None, grammar: None, adapter_id: None } total_time="1.2s" validation_time="300.5µs" queue_time="50.1µs" inference_time="1.2s" time_per_token="10.3ms" seed="None"}: text_generation_router::server: router/src/server.rs:407: Success"#,
];

/// Signs that are looked for beside the rows.
pub fn watched() -> Vec<&'static str> {
    let mut signs = vec![
        "Args {",
        "\"model_id\"",
        "warmup{",
        "Decode cuda graph warmup failed",
        "panicked at",
        "Error",
        "error",
        "Exception",
    ];
    for table in [
        ENDS,
        trouble::LACK,
        trouble::CAUSES,
        trouble::CONSEQUENCES,
        trouble::IN_WARM_UP,
        torch::LACK,
    ] {
        signs.extend(table);
    }
    signs
}

const fn row(sign: &'static str, form: Form, target: Put<TgiMessages>) -> TgiRow {
    Row::new(sign, form, target)
}

/// `flashinfer`, `paged`: a word of a backend.
fn backend(text: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    first_word(text).filter(|name| name.len() < 40 && name.chars().all(plain))
}

/// `Llama(…)`: the name up to the bracket.
fn family(text: &str) -> Option<&str> {
    Some(&text[..text.find(|c: char| !c.is_alphanumeric() && c != '_')?])
}

/// The rows, in the order in which those of one line are read. Sources: TGI 0.9 to 3.3.
#[rustfmt::skip]
pub const MESSAGES: &[TgiRow] = &[
    // Shards.
    row("Sharding model on ", Positive, Last(key::tensor_parallel_size)),
    row("Starting shard", Flag, Read(TgiMessages::shard_starts)),
    row("Shard ready in ", Flag, Read(TgiMessages::shard_ready)),
    row("Starting Webserver", Flag, Read(TgiMessages::all_shards_ready)),
    row("Warming up model", Flag, Read(TgiMessages::all_shards_ready)),
    row("KV-cache blocks: ", Flag, Read(TgiMessages::all_shards_ready)),
    row("Setting max batch total tokens to ", Flag, Read(TgiMessages::all_shards_ready)),

    // What the router prints after the warm-up. A capacity alone may be a quotation; followed by one of these, it is the router's.
    row("Connected", Flag, EnoughAfter(key::max_batch_total_tokens)),
    row("Using backend V", Flag, EnoughAfter(key::max_batch_total_tokens)),
    row("Using scheduler V", Flag, EnoughAfter(key::max_batch_total_tokens)),
    row("Model supports prefill chunking", Flag, EnoughAfter(key::max_batch_total_tokens)),
    row("Maximum input tokens defaulted to ", Flag, EnoughAfter(key::max_batch_total_tokens)),
    row("Maximum total tokens defaulted to ", Flag, EnoughAfter(key::max_batch_total_tokens)),
    row("Invalid hostname, defaulting to ", Flag, EnoughAfter(key::max_batch_total_tokens)),

    // Capacity.
    row("KV-cache blocks: ", Flag, Read(TgiMessages::blocks)),
    row("Model does not support automatic max batch total tokens", Off, Last(key::max_batch_total_tokens_inferred)),
    row("Model does not support automatic max batch total tokens", Flag, Read(TgiMessages::capacity_unknown)),
    row("Inferred max batch total tokens: ", Flag, Last(key::max_batch_total_tokens_inferred)),
    row("Default `max_batch_prefill_tokens` to ", Whole, Last(key::max_batch_prefill_tokens)),
    row("Default `max_input_tokens` to ", Whole, Last(key::max_input_tokens)),
    row("Default `max_input_length` to ", Whole, Last(key::max_input_tokens)),
    row("Default `max_total_tokens` to ", Whole, Last(key::max_total_tokens)),
    row("Maximum input tokens defaulted to ", Whole, Last(key::max_input_tokens)),
    row("Maximum total tokens defaulted to ", Whole, Last(key::max_total_tokens)),
    row("Cuda Graphs are enabled for sizes ", Flag, Read(TgiMessages::graphs)),
    row("Cuda Graphs are disabled", Zero, Last(key::cuda_graphs)),
    row("Using default cuda graphs ", Counts, Last(key::cuda_graph_sizes_configured)),
    row("Using cuda graphs ", Counts, Last(key::cuda_graph_sizes_configured)),

    // `Free memory 21.50GB , (real: 23.10GB`; Gaudi: `Free memory on device hpu: 40.1 GiB used_for_graph: …`.
    row("Free memory ", DecimalGb, Last(key::free_memory_gib)),
    row("Free memory ", DecimalGb, Last(key::free_memory_real_gib)).then(&["(real: "]).shown("(real: "),
    row("Free memory on device", Gib, Last(key::free_memory_gib)).then(&[": "]).shown("Free memory"),
    row("Free memory on device", Gib, Last(key::hpu_graph_reserved_gib)).then(&["used_for_graph: "]).shown("used_for_graph"),
    row("Free RAM before cuda graph ", Flag, Read(TgiMessages::free_before_graphs)),
    row("Free RAM after cuda graphs ", Flag, Read(TgiMessages::free_after_graphs)),

    // How it computes.
    row("Using Attention = ", Text(backend), Last(key::attention_backend)).shown("sing "),
    row("Using attention ", Text(backend), Last(key::attention_backend)).shown("sing "),
    row("Using attention ", Switch, Last(key::prefix_caching)).then(&["Prefix caching "]).shown("Prefix caching "),
    row("Using prefix caching = ", Switch, Last(key::prefix_caching)),
    row("Using prefill chunking = ", Switch, Last(key::prefill_chunking)),
    row("Using experimental prefill chunking = ", Switch, Last(key::prefill_chunking)),
    row("Disabling prefix caching because ", Off, Last(key::prefix_caching)).shown("Disabling prefix caching"),
    row("ROCm: using Flash Attention 2 Composable Kernel", Is("composable_kernel"), Last(key::rocm_flash_attention)),
    row("ROCm: using Flash Attention 2 Triton", Is("triton"), Last(key::rocm_flash_attention)),
    row("Using scheduler ", Text(first_word), Last(key::scheduler)),
    row("Using backend ", Text(first_word), Last(key::scheduler)),
    row("Docker label: ", Text(first_word), Last(key::docker_label)),
    // The launcher's arguments name it better.
    row("no pipeline tag found for model ", Text(first_word), First(key::model)),
    row("Unkown compute for card ", Text(first_word), Last(key::gpu_card)),
    row("Unknown compute for card ", Text(first_word), Last(key::gpu_card)),
    row("Using config Some(", Text(family), Last(key::model_family)).shown("Using config "),
    row("PyTorch TunableOp", Flag, Last(key::tunable_op)).when("is enabled").shown("TunableOp"),

    // Its steps.
    row("Using prefix caching = ", Flag, Read(TgiMessages::imports)),
    row("Using Attention = ", Flag, Read(TgiMessages::imports)),
    row("Detected system ", Flag, Read(TgiMessages::imports)),
    row("ROCm: using ", Flag, Read(TgiMessages::imports)),
    row("Using prefill chunking = ", Flag, Step(WeightsLoaded)),
    row("Using experimental prefill chunking = ", Flag, Step(WeightsLoaded)),
    row("Server started at ", Flag, Step(WeightsLoaded)),
    row("Shard ready in ", Flag, Step(WeightsLoaded)),
    row("Warming up model", Flag, Step(WeightsLoaded)),
    // Printed before the pool is allocated.
    row("KV-cache blocks: ", Flag, Step(Profiled)),
    // The pool is allocated, graphs follow.
    row("Cuda Graphs are ", Flag, Step(KvCacheAllocated)),
    row("Free RAM before cuda graph", Flag, Step(KvCacheAllocated)),
    row("Warming up TunableOp", Flag, Step(KvCacheAllocated)),
    row("Setting max batch total tokens to ", Flag, Read(TgiMessages::warmed_up)),
    row("Connected", Flag, Read(TgiMessages::connected)),
];

/// Limits in the span of a warm-up.
#[rustfmt::skip]
pub const WARM_UP: &[TgiRow] = &[
    row("max_input_length=", Whole, First(key::max_input_tokens)),
    row("max_input_tokens=", Whole, First(key::max_input_tokens)),
    row("max_prefill_tokens=", Whole, First(key::max_batch_prefill_tokens)),
    row("max_total_tokens=", Whole, First(key::max_total_tokens)),
    row("max_batch_size=", Whole, First(key::max_batch_size)),
];

/// Limits that a refusal for lack of memory names.
#[rustfmt::skip]
pub const REFUSED: &[TgiRow] = &[
    row("Not enough memory to handle ", Whole, First(key::max_batch_prefill_tokens)),
    row("`max_total_tokens=", Whole, First(key::max_total_tokens)),
];
