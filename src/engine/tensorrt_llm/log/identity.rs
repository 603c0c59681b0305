//! Version, ranks, limits and backend; and the body of `GET /metrics`.

use super::whole;
use crate::engine::facts::FactValue;
use crate::engine::log::Line;
use crate::engine::log::figures::after;
use crate::engine::log::said::{text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;
use serde_json::Value;

const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// Reads one line. Returns a lower bound of the number of ranks.
pub fn read(line: &Line<'_>, sheet: &mut Sheet) -> u64 {
    let text = line.text;
    let version = text_after_any(text, &["TensorRT-LLM version: ", "TensorRT-LLM Version: "]);
    if let Some(word) = version.and_then(|(_, rest)| rest.split_whitespace().next()) {
        sheet.version(word.trim_end_matches(','));
    }
    let reduced = "maxSequenceLen";
    let rest = after(text, reduced).and_then(|rest| after(rest, "reduced to "));
    if let Some(n) = rest.and_then(whole) {
        sheet.count("max_seq_len", n, line, reduced);
    }
    config(line, sheet);
    ranks(line, sheet)
}

fn ranks(line: &Line<'_>, sheet: &mut Sheet) -> u64 {
    let text = line.text;
    if let Some(n) = text_after_sign(text, "MPI size: ")
        .and_then(whole)
        .filter(|n| (1..=65_536).contains(n))
    {
        sheet.count("world_size", n, line, "MPI size: ");
        return n;
    }
    if let Some(rest) = text_after_sign(text, "Rank ") {
        if let Some(gpu) = after(rest, " is using GPU ").and_then(whole) {
            if let Some(rank) = whole(rest).filter(|n| *n < 65_536) {
                if let Ok(gpu) = i64::try_from(gpu) {
                    sheet.entry(
                        "rank_gpus",
                        &format!("rank{rank}"),
                        FactValue::Int(gpu),
                        line,
                    );
                    return rank + 1;
                }
            }
        }
    }
    0
}

/// Names of the configuration.
pub const CONFIG: &[(&str, &str)] = &[
    ("attn_backend=", "attention_backend"),
    ("kv_cache_dtype=", "kv_cache_dtype"),
];

/// `PyTorchConfig(…, attn_backend='TRTLLM', use_cuda_graph=True, cuda_graph_batch_sizes=[1, 2], …)`
/// and the arguments that later releases print instead.
fn config(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    if !(text.contains("PyTorchConfig(") || text.contains("Args(") || text.contains("LLM Args")) {
        return;
    }
    for (name, key) in CONFIG {
        let quoted = after(text, name).and_then(|rest| rest.strip_prefix(['\'', '"']));
        if let Some((word, _)) = quoted.and_then(|rest| rest.split_once(['\'', '"'])) {
            if word.len() < 64 {
                sheet.text(key, word, line, name);
            }
        }
    }
    for (name, on) in [
        ("use_cuda_graph=True", true),
        ("use_cuda_graph=False", false),
    ] {
        if text.contains(name) {
            sheet.flag("use_cuda_graph", on, line, name);
        }
    }
    if let Some((inside, _)) =
        after(text, "cuda_graph_batch_sizes=[").and_then(|rest| rest.split_once(']'))
    {
        let sizes: Option<Vec<f64>> = inside
            .split(',')
            .map(|w| w.trim().parse::<u32>().ok().map(f64::from))
            .collect();
        if let Some(sizes) = sizes.filter(|s| s.len() <= 4096) {
            sheet.set(
                "cuda_graph_sizes_configured",
                FactValue::List(sizes),
                line,
                "cuda_graph_batch_sizes=",
            );
        }
    }
}

/// Reads the body of `GET /metrics`, a list of iterations, if the line is one: the last of them.
pub fn metrics(line: &Line<'_>, sheet: &mut Sheet) -> bool {
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
        ("/gpuMemUsage", "gpu_mem_usage_gib"),
        ("/cpuMemUsage", "cpu_mem_usage_gib"),
        ("/pinnedMemUsage", "pinned_mem_usage_gib"),
    ] {
        if let Some(bytes) = last.pointer(pointer).and_then(Value::as_u64) {
            sheet.figure(key, bytes as f64 / BYTES_PER_GIB, line, &pointer[1..]);
        }
    }
    for (pointer, key) in [
        ("/kvCacheStats/maxNumBlocks", "num_gpu_blocks"),
        ("/kvCacheStats/tokensPerBlock", "block_size"),
        ("/kvCacheStats/freeNumBlocks", "free_num_blocks"),
        ("/kvCacheStats/usedNumBlocks", "used_num_blocks"),
        ("/maxBatchSizeRuntime", "max_batch_size"),
        ("/maxNumTokensRuntime", "max_num_tokens"),
    ] {
        if let Some(n) = last.pointer(pointer).and_then(Value::as_u64) {
            sheet.count(key, n, line, "kvCacheStats");
        }
    }
    true
}

/// The latest iteration of a body: the last of a list, or the one.
pub fn iteration(body: &Value) -> Option<&Value> {
    let one = match body {
        Value::Array(all) => all.last()?,
        one => one,
    };
    one.is_object().then_some(one)
}
