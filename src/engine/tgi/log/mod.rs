//! The log of TGI, 0.9 to 3.3: capacities in tokens, the launcher's arguments, failures.
//!
//! TGI prints no bytes at INFO. Messages are recognised by their words, not by `file.rs:line`,
//! which changes with every release.
//!
//! | key | meaning, and the line that states it |
//! |---|---|
//! | `num_gpu_blocks`, `block_size` | blocks of rank 0 and tokens in each: `KV-cache blocks: N, size: B` (since 2.4) |
//! | `kv_cache_tokens_rank0` | their product |
//! | `max_batch_total_tokens` | what the router uses, the smallest over the shards: `Setting max batch total tokens to N` |
//! | `kv_cache_tokens` | the same, where a pool of blocks was announced |
//! | `max_batch_total_tokens_inferred` | false: a default, as the model cannot report it; true: measured |
//! | `max_batch_total_tokens_requested` | what the arguments ask for |
//! | `cuda_graphs`, `cuda_graph_sizes` | how many graphs, and their batch sizes; `…_configured`: the launcher's default |
//! | `cuda_graph_gib` | free memory before the first graph less that after the last (DEBUG) |
//! | `free_memory_gib`, `free_memory_real_gib` | what is left for the pool, with and without the margin (DEBUG; Gaudi: INFO) |
//! | `hpu_graph_reserved_gib` | Gaudi: kept for graphs |
//! | `max_input_tokens`, `max_total_tokens`, `max_batch_prefill_tokens`, `max_batch_size` | limits in force |
//! | `attention_backend`, `rocm_flash_attention`, `prefix_caching`, `prefill_chunking`, `tunable_op`, `scheduler` | how it computes |
//! | `tensor_parallel_size` | shards |
//! | `model`, `model_family`, `dtype`, `quantization`, `kv_cache_dtype`, `speculate`, `cuda_memory_fraction`, … | from `Args {…}`, `GET /info` and the router |
//! | `oom`, `oom_phase`, `oom_requested_gib`, … | as in every engine ([`crate::engine::log::torch`]) |

mod args;
mod table;
mod trouble;

use crate::engine::facts::{EngineStep, Fact, FactKey, FactValue, Severity, key};
use crate::engine::log::figures::{after, decimal_gb, number, whole, whole_after};
use crate::engine::log::heads::text_after_sign;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::table::{counts, read_values};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use serde_json::{Map, Value};
use table::TABLE;

/// A parser of TGI's log.
pub type TgiLogParser = SheetParser<TgiMessages>;

/// More shards than any host has GPUs; a higher rank is invalid.
const MOST_SHARDS: u64 = 4096;

/// Every sign of the tables of this log.
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let mut signs = table::watched();
    signs.extend(table::MESSAGES.iter().map(|row| row.sign));
    for rows in [table::WARM_UP, table::REFUSED] {
        signs.extend(rows.iter().map(|row| row.sign));
    }
    signs.extend(args::FIELDS.iter().map(|(name, _, _)| *name));
    signs
}

/// State of the reader of TGI's messages.
#[derive(Default)]
pub struct TgiMessages {
    args: args::Block,
    /// Free memory before the first graph, GiB, with its line.
    before_graphs: Option<(f64, String)>,
    /// The highest rank that was ready, with the number of shards that it shows.
    highest: Option<(u64, Fact)>,
    /// Whether rank 0 was started.
    zero_started: bool,
    /// Whether rank 0 was ready.
    zero_ready: bool,
}

impl Messages for TgiMessages {
    const ENGINE: &'static str = "tgi";

    fn words() -> &'static Words {
        TABLE.gate()
    }

    fn awaits_more(&self) -> bool {
        self.args.is_open()
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let inner = line.text.trim_matches(|c| c == '│' || c == '┃' || c == ' ');
        let line = &Line {
            text: inner,
            ..*line
        };
        let text = line.text;
        // A launcher starts after another one in the same log.
        let starts_again = || text_after_sign(text, "Starting shard").and_then(rank) == Some(0);
        if args::begins(text) && !sheet.is_empty() || self.zero_ready && starts_again() {
            sheet.restart();
            *self = TgiMessages::default();
        }
        if self.args.read(line, sheet) || read_info(line, sheet) {
            return;
        }
        if trouble::in_warm_up(text) && !sheet.ready() {
            sheet.step(EngineStep::WeightsLoaded, line, "armup");
        }
        if trouble::read(line, sheet) && sheet.get(key::max_batch_total_tokens).is_none() {
            // Announced graphs may not exist.
            sheet.take(key::cuda_graphs);
        }
        for sign in ENDS {
            if text_after_sign(text, sign).is_some() {
                sheet.step(EngineStep::Stopping, line, sign);
            }
        }
        // Once the server is ready, such lines can only be text of requests.
        if sheet.ready() {
            return;
        }
        TABLE.read_message(self, line, sheet);
        if let Some(span) = after(text, "warmup{") {
            self.all_shards_ready(line, "", sheet);
            // The router's warm-up request to the shards, in the span of any of their messages:
            // `warmup{max_input_length=Some(5) …}`, without `Some` before 3.0.
            if let Some((span, _)) = span.split_once('}') {
                read_values(table::WARM_UP, &span.replace("Some(", ""), line, sheet);
            }
        }
        let failed = "Decode cuda graph warmup failed";
        if text.contains(failed) {
            // The number captured before the failure is not printed.
            sheet.take(key::cuda_graphs);
            let message =
                "the capture of CUDA graphs failed; the server goes on without the rest of them";
            sheet.finding(
                "cuda_graphs_failed",
                Severity::Warning,
                message,
                line,
                failed,
            );
        }
    }
}

/// Messages of a server that ends.
const ENDS: &[&str] = &[
    "Shutting down shards",
    "signal received, starting graceful shutdown",
];

impl TgiMessages {
    fn shard_starts(&mut self, _: &Line<'_>, rest: &str, _: &mut Sheet) {
        self.zero_started |= rank(rest) == Some(0);
    }

    fn shard_ready(&mut self, line: &Line<'_>, rest: &str, _: &mut Sheet) {
        let Some(rank) = rank(rest) else { return };
        self.zero_ready |= rank == 0;
        if self.highest.as_ref().is_none_or(|(h, _)| rank > *h) {
            let fact = line.fact(FactValue::Int(rank as i64 + 1), "Shard ready in ");
            self.highest = Some((rank, fact));
        }
    }

    /// The web server and the warm-up come when every shard is ready, and so does what the warm-up
    /// finds: a log may lack the lines before.
    fn all_shards_ready(&mut self, line: &Line<'_>, _: &str, sheet: &mut Sheet) {
        let Some((rank, fact)) = &self.highest else {
            return;
        };
        if sheet.get(key::tensor_parallel_size).is_some() {
            return;
        }
        let quote = fact.quote.first().cloned().unwrap_or_default();
        sheet.conclude(key::tensor_parallel_size, fact.clone());
        if *rank > 0 {
            let quoted = Line {
                text: &quote,
                ..*line
            };
            let message =
                "tensor_parallel_size was concluded from the highest shard that was ready";
            let code = "parallel_size_inferred";
            sheet.finding(code, Severity::Info, message, &quoted, "rank=");
        }
    }

    /// Shards print these while they import their models. The process that downloads the models
    /// imports the same and holds no device memory.
    fn imports(&mut self, line: &Line<'_>, _: &str, sheet: &mut Sheet) {
        if self.zero_started && !sheet.passed(EngineStep::WeightsLoaded) {
            sheet.step(EngineStep::LoadingWeights, line, "");
        }
    }

    fn blocks(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let Some((blocks, rest)) = whole(rest) else {
            return;
        };
        sheet.count(key::num_gpu_blocks, blocks, line, "KV-cache blocks");
        if let Some((size, _)) = after(rest, "size: ").and_then(whole) {
            sheet.count(key::block_size, size, line, "KV-cache blocks");
            if let Some(tokens) = blocks.checked_mul(size) {
                sheet.count(key::kv_cache_tokens_rank0, tokens, line, "KV-cache blocks");
            }
        }
        // The router's line may come before the launcher's, which forwards the shard's.
        pool_of_blocks(sheet);
    }

    fn capacity_unknown(&mut self, line: &Line<'_>, _: &str, sheet: &mut Sheet) {
        let message =
            "the engine could not measure how many tokens fit: max_batch_total_tokens is a default";
        let code = "capacity_is_a_default";
        sheet.finding(code, Severity::Warning, message, line, "Model does not");
    }

    fn warmed_up(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let sign = "Setting max batch total tokens to ";
        if let Some((tokens, _)) = whole(rest) {
            sheet.count(key::max_batch_total_tokens, tokens, line, sign);
            pool_of_blocks(sheet);
            if line.text.contains("text_generation_router") {
                sheet.enough_memory(line, sign);
            }
        }
        sheet.step(EngineStep::KvCacheAllocated, line, sign);
        if sheet.get(key::cuda_graphs).is_some() {
            sheet.step(EngineStep::GraphsCaptured, line, sign);
        }
    }

    fn graphs(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let Some(sizes) = counts(rest) else { return };
        let sign = "Cuda Graphs are enabled for sizes ";
        // With speculation, a batch smaller than its tokens has no graph.
        let least = sheet.number(key::speculate).map_or(0.0, |n| n + 1.0);
        let captured = sizes.iter().filter(|size| **size >= least).count();
        sheet.count(key::cuda_graphs, captured as u64, line, sign);
        sheet.set(key::cuda_graph_sizes, FactValue::List(sizes), line, sign);
    }

    /// `Free RAM before cuda graph 32 20.10GB`
    fn free_before_graphs(&mut self, line: &Line<'_>, rest: &str, _: &mut Sheet) {
        if let (Some(free), None) = (
            number(rest).and_then(|(_, r)| decimal_gb(r)),
            &self.before_graphs,
        ) {
            self.before_graphs = Some((free, line.quote("Free RAM")));
        }
    }

    fn free_after_graphs(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if let (Some(after), Some((before, quote))) = (decimal_gb(rest), &self.before_graphs) {
            // The figure is clamped at 0 and then omits part of the graphs' memory.
            if after > 0.0 && before - after >= 0.0 {
                let mut fact = line.fact(FactValue::Float(before - after), "Free RAM");
                fact.quote.insert(0, quote.clone());
                sheet.conclude(key::cuda_graph_gib, fact);
            }
        }
    }

    fn connected(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if rest.trim().is_empty() {
            sheet.step(EngineStep::Ready, line, "Connected");
        }
    }
}

fn rank(text: &str) -> Option<u64> {
    whole_after(text, "rank=").filter(|rank| *rank < MOST_SHARDS)
}

/// Once a pool of blocks was announced and the router named the tokens that it uses: they are the
/// pool's, and they were measured. The blocks are rank 0's; the router uses the smallest shard.
fn pool_of_blocks(sheet: &mut Sheet) {
    let used = sheet.get(key::max_batch_total_tokens).cloned();
    let Some(used) = used.filter(|_| sheet.get(key::num_gpu_blocks).is_some()) else {
        return;
    };
    let inferred = key::max_batch_total_tokens_inferred;
    if sheet.get(inferred).is_none() {
        let measured = Fact {
            value: FactValue::Bool(true),
            ..used.clone()
        };
        sheet.conclude(inferred, measured);
    }
    sheet.conclude(key::kv_cache_tokens, used);
}

/// Reads the body of `GET /info`, if the line is one.
fn read_info(line: &Line<'_>, sheet: &mut Sheet) -> bool {
    if !line.text.starts_with('{') || !line.text.contains("\"model_id\"") {
        return false;
    }
    let Ok(info) = serde_json::from_str::<Map<String, Value>>(line.text) else {
        return false;
    };
    if !is_info(&info) {
        return false;
    }
    for (name, value) in &info {
        let needle = format!("\"{name}\"");
        if let ("version", Value::String(v)) = (name.as_str(), value) {
            sheet.version(v);
        }
        let Some(key) = FactKey::named(info_key(name)) else {
            continue;
        };
        match value {
            Value::String(v) => sheet.text(key, v, line, &needle),
            Value::Number(n) => match (n.as_u64(), n.as_f64()) {
                (Some(count), _) => sheet.count(key, count, line, &needle),
                (None, Some(figure)) => sheet.figure(key, figure, line, &needle),
                _ => {}
            },
            _ => {}
        }
    }
    true
}

/// Whether a JSON object is TGI's description of itself: others have a `model_id` too.
pub(in crate::engine::tgi) fn is_info(info: &Map<String, Value>) -> bool {
    info.get("model_id").is_some_and(Value::is_string)
        && [
            "max_best_of",
            "docker_label",
            "max_client_batch_size",
            "validation_workers",
            "router",
        ]
        .iter()
        .any(|key| info.contains_key(*key))
}

/// The key of a fact for a key of `/info`, which changed its words at 2.1.
pub(in crate::engine::tgi) fn info_key(name: &str) -> &str {
    match name {
        "model_id" => "model",
        "model_dtype" => "dtype",
        "model_device_type" => "device",
        "max_input_length" => "max_input_tokens",
        other => other,
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
