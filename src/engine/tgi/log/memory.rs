//! Capacity: the pool's blocks, the router's tokens, CUDA graphs, free memory.

use crate::engine::facts::{Fact, FactValue, Severity};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, gib, gib_after, number, number_after};
use crate::engine::log::said::{text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;

/// TGI divides by 1e9 and writes `GB`.
const DECIMAL_GB_IN_GIB: f64 = 1e9 / 1_073_741_824.0;

/// Lines that the router prints after the warm-up. A capacity alone may be a quotation; followed by
/// one of these, it is the router's.
pub const ROUTER_GOES_ON: &[&str] = &[
    "Connected",
    "Using backend V",
    "Using scheduler V",
    "Model supports prefill chunking",
    "Maximum input tokens defaulted to ",
    "Maximum total tokens defaulted to ",
    "Invalid hostname, defaulting to ",
];

/// What later lines need of earlier ones.
#[derive(Default)]
pub struct Memory {
    /// Free memory before the first graph, GiB, with its line.
    before_graphs: Option<(f64, String)>,
}

impl Memory {
    /// Reads one line.
    pub fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        capacity(line, sheet);
        graphs(line, sheet);
        limits(line, sheet);
        self.free(line, sheet);
    }

    /// The engine failed: announced graphs may not exist.
    pub fn failed(&mut self, sheet: &mut Sheet) {
        if sheet.get("max_batch_total_tokens").is_none() {
            sheet.take("cuda_graphs");
        }
    }

    /// `Free memory 21.50GB , (real: 23.10GB` and `Free RAM before cuda graph 32 20.10GB`.
    fn free(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        if let Some(rest) = text_after_sign(line.text, "Free memory on device") {
            // Gaudi writes its own units: `Free memory on device hpu: 40.1 GiB used_for_graph: …`.
            if let Some((value, _)) = rest.split_once(": ").and_then(|(_, r)| gib(r)) {
                sheet.figure("free_memory_gib", value, line, "Free memory");
            }
            if let Some(value) = gib_after(rest, "used_for_graph: ") {
                sheet.figure("hpu_graph_reserved_gib", value, line, "used_for_graph");
            }
            return;
        }
        if let Some(rest) = text_after_sign(line.text, "Free memory ") {
            if let Some(value) = decimal_gb(rest) {
                sheet.figure("free_memory_gib", value, line, "Free memory ");
            }
            if let Some(value) = after(rest, "(real: ").and_then(decimal_gb) {
                sheet.figure("free_memory_real_gib", value, line, "(real: ");
            }
        }
        if let Some(rest) = text_after_sign(line.text, "Free RAM before cuda graph ") {
            if let Some((_, rest)) = number(rest) {
                if let Some(value) = decimal_gb(rest) {
                    if self.before_graphs.is_none() {
                        self.before_graphs = Some((value, line.quote("Free RAM")));
                    }
                }
            }
        }
        if let Some(rest) = text_after_sign(line.text, "Free RAM after cuda graphs ") {
            if let Some(after) = decimal_gb(rest) {
                if let Some((before, quote)) = &self.before_graphs {
                    // The figure is clamped at 0 and then omits part of the graphs' memory.
                    if after > 0.0 && before - after >= 0.0 {
                        sheet.figure("cuda_graph_gib", before - after, line, "Free RAM");
                        if let Some(mut fact) = sheet.take("cuda_graph_gib") {
                            fact.quote.insert(0, quote.clone());
                            sheet.conclude("cuda_graph_gib", fact);
                        }
                    }
                }
            }
        }
    }
}

fn decimal_gb(text: &str) -> Option<f64> {
    let (n, rest) = number(text)?;
    rest.trim_start()
        .starts_with("GB")
        .then_some(n.value * DECIMAL_GB_IN_GIB)
}

/// A whole number that a line gives.
fn count(text: &str) -> Option<(u64, &str)> {
    let (n, rest) = number(text)?;
    (n.whole && n.value >= 0.0).then_some((n.value as u64, rest))
}

fn capacity(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    if let Some(rest) = text_after_sign(text, "KV-cache blocks: ") {
        if let Some((blocks, rest)) = count(rest) {
            sheet.count("num_gpu_blocks", blocks, line, "KV-cache blocks");
            if let Some((size, _)) = after(rest, "size: ").and_then(count) {
                sheet.count("block_size", size, line, "KV-cache blocks");
                if let Some(tokens) = blocks.checked_mul(size) {
                    sheet.count("kv_cache_tokens_rank0", tokens, line, "KV-cache blocks");
                }
            }
            // The router's line may come before the launcher's, which forwards the shard's.
            if let Some(used) = sheet.get("max_batch_total_tokens").cloned() {
                pool_of(used, sheet);
            }
        }
    }
    let unknown = "Model does not support automatic max batch total tokens";
    if text_after_sign(text, unknown).is_some() {
        sheet.flag("max_batch_total_tokens_inferred", false, line, unknown);
        sheet.finding(
            "capacity_is_a_default",
            Severity::Warning,
            "the model cannot tell how many tokens fit: max_batch_total_tokens is a default, no measurement",
            line,
            unknown,
        );
    }
    let inferred = "Inferred max batch total tokens: ";
    if text_after_sign(text, inferred).is_some_and(|rest| count(rest).is_some()) {
        sheet.flag("max_batch_total_tokens_inferred", true, line, inferred);
    }
    let used = "Setting max batch total tokens to ";
    if let Some((tokens, _)) = text_after_sign(text, used).and_then(count) {
        sheet.count("max_batch_total_tokens", tokens, line, used);
        if sheet.get("num_gpu_blocks").is_some() {
            if let Some(used) = sheet.get("max_batch_total_tokens").cloned() {
                pool_of(used, sheet);
            }
        }
        if text.contains("text_generation_router") {
            sheet.enough_memory(line, used);
        }
    } else if sheet.get("max_batch_total_tokens").is_some() {
        if let Some((needle, _)) = text_after_any(text, ROUTER_GOES_ON) {
            sheet.enough_memory(line, needle);
        }
    }
}

/// A pool of blocks was announced and the router uses `used` tokens: they are the pool's, and they
/// were measured. The blocks are rank 0's; the router uses the smallest shard.
fn pool_of(used: Fact, sheet: &mut Sheet) {
    let inferred = "max_batch_total_tokens_inferred";
    if sheet.get(inferred).is_none() {
        let measured = Fact {
            value: FactValue::Bool(true),
            ..used.clone()
        };
        sheet.conclude(inferred, measured);
    }
    sheet.conclude("kv_cache_tokens", used);
}

fn graphs(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    let enabled = "Cuda Graphs are enabled for sizes ";
    if let Some(sizes) = text_after_sign(text, enabled).and_then(list) {
        // With speculation, a batch smaller than its tokens has no graph.
        let least = sheet.number("speculate").map_or(0.0, |n| n + 1.0);
        let captured = sizes.iter().filter(|size| **size >= least).count();
        sheet.count("cuda_graphs", captured as u64, line, enabled);
        sheet.set("cuda_graph_sizes", FactValue::List(sizes), line, enabled);
    }
    let disabled = "Cuda Graphs are disabled";
    if text_after_sign(text, disabled).is_some() {
        sheet.count("cuda_graphs", 0, line, disabled);
    }
    if let Some((needle, sizes)) =
        text_after_any(text, &["Using default cuda graphs ", "Using cuda graphs "])
            .and_then(|(needle, rest)| Some((needle, list(rest)?)))
    {
        let sizes = FactValue::List(sizes);
        sheet.set("cuda_graph_sizes_configured", sizes, line, needle);
    }
    let failed = "Decode cuda graph warmup failed";
    if text.contains(failed) {
        // The number captured before the failure is not printed.
        sheet.take("cuda_graphs");
        sheet.finding(
            "cuda_graphs_failed",
            Severity::Warning,
            "the capture of CUDA graphs failed; the server goes on without the rest of them",
            line,
            failed,
        );
    }
}

/// `[32, 16]`, whole.
fn list(text: &str) -> Option<Vec<f64>> {
    let (inside, _) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let mut sizes = Vec::new();
    for word in inside.split(',').filter(|w| !w.trim().is_empty()) {
        sizes.push(word.trim().parse::<u32>().ok()?.into());
        if sizes.len() > 4096 {
            return None;
        }
    }
    Some(sizes)
}

/// Limits with messages of their own.
pub const LIMITS: &[(&str, &str)] = &[
    (
        "Default `max_batch_prefill_tokens` to ",
        "max_batch_prefill_tokens",
    ),
    ("Default `max_input_tokens` to ", "max_input_tokens"),
    ("Default `max_input_length` to ", "max_input_tokens"),
    ("Default `max_total_tokens` to ", "max_total_tokens"),
    ("Maximum input tokens defaulted to ", "max_input_tokens"),
    ("Maximum total tokens defaulted to ", "max_total_tokens"),
];

/// Limits in the span of a warm-up.
pub const WARM_UP: &[(&str, &str)] = &[
    ("max_input_length=", "max_input_tokens"),
    ("max_input_tokens=", "max_input_tokens"),
    ("max_prefill_tokens=", "max_batch_prefill_tokens"),
    ("max_total_tokens=", "max_total_tokens"),
    ("max_batch_size=", "max_batch_size"),
];

fn limits(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    for (needle, key) in LIMITS {
        if let Some((tokens, _)) = text_after_sign(text, needle).and_then(count) {
            sheet.count(key, tokens, line, needle);
        }
    }
    // The router's warm-up request to the shards, in the span of any of their messages:
    // `warmup{max_input_length=Some(5) …}`, without `Some` before 3.0.
    let Some(span) = after(text, "warmup{").and_then(|rest| Some(rest.split_once('}')?.0)) else {
        return;
    };
    for (field, key) in WARM_UP {
        let given = after(span, field).map(|v| v.strip_prefix("Some(").unwrap_or(v));
        if let Some((value, _)) = given.and_then(count) {
            if let Ok(value) = i64::try_from(value) {
                sheet.set_first(key, FactValue::Int(value), line, field);
            }
        }
    }
}

/// Limits that a refusal for lack of memory names.
pub const REFUSED: &[(&str, &str)] = &[
    ("Not enough memory to handle ", "max_batch_prefill_tokens"),
    ("`max_total_tokens=", "max_total_tokens"),
];

/// Reads the limits that a refusal for lack of memory names.
pub fn refused_limits(line: &Line<'_>, sheet: &mut Sheet) {
    for (needle, key) in REFUSED {
        if let Some(n) = number_after(line.text, needle).filter(|n| n.whole && n.value >= 0.0) {
            sheet.set_first(key, FactValue::Int(n.value as i64), line, needle);
        }
    }
}
