//! The log of SGLang, 0.1 to 0.5.23, by the shape of its messages.
//!
//! Its `GB` are GiB. `avail mem` and `mem usage` are of the whole device, other processes
//! included, and `mem usage` is a difference of two such readings.
//!
//! | key | from |
//! |---|---|
//! | `distributed_init_gib` | `Init torch distributed ends`, `Memory baseline taken` |
//! | `avail_before_load_gib`, `avail_after_load_gib`, `avail_after_pool_gib`, `avail_before_graph_gib`, `avail_after_graph_gib`, `avail_after_kv_sizing_gib`, `avail_after_start_gib` | `avail mem=`, `available_gpu_mem=` at that moment |
//! | `weights_gib` | `Load weight end … mem usage=` of the model; a second one of a rank, or one after its pool, is the draft's |
//! | `kv_cache_gib`, `kv_k_gib`, `kv_v_gib`, `kv_cache_tokens`, `kv_pools` | `KV Cache is allocated`, `SWAKVPool`, `Post-capture KV sizing`; never `VA upper bound` (address space) |
//! | `full_tokens`, `swa_tokens` | `SWAKVPool`, `Use sliding window memory pool` |
//! | `mamba` {slots, conv_gib, ssm_gib, intermediate_ssm_gib, intermediate_conv_gib, replay_gib} | `Mamba Cache is allocated`, `GDN ReplaySSM ring buffers allocated` |
//! | `cuda_graph_gib`, `cuda_graphs` | `Capture … end` of the model's decode or verify graphs; the count once that ended |
//! | `cuda_graph_prefill_gib`, `draft_cuda_graph_gib`, `draft_weights_gib`, `draft_kv_cache_gib`, `draft_kv_cache_tokens` | the further series of piecewise capture and of speculative decoding |
//! | `cuda_graph_batch_sizes_configured` | the list of sizes to capture |
//! | `max_total_num_tokens`, `max_running_requests`, `chunked_prefill_size`, `max_model_len` | the scheduler's closing line |
//! | `profiled_max_total_tokens` | `… is larger than the profiled value`; below zero: it does not fit |
//! | `hicache_host_gib` | `Allocating … GB host memory`, each pool's (printed in 10^9) |
//! | `dsv4_bytes_per_full_token`, `dsv4_available_gib`, `dsv4_pool_tokens` | `DSV4 …` |
//! | `kv_logical_tokens` | `KV Cache skipped (no-op pool)` |
//! | `kv_cache_usage_peak_pct`, `retracted_requests` | batches while it serves |
//! | `oom` | true by a lack; false by the scheduler's closing line or readiness |
//!
//! With tags (`TP1`, `DP0 TP1`) a figure is a record by tag; of a single rank it is the figure,
//! and free memory at a moment a list of one; of `[gpu_id=1]` a list in that order.

mod graphs;
pub(in crate::engine) mod kinds;
mod pool;
mod ranks;
pub(super) mod server_args;

use crate::engine::facts::{EngineStep, FactKey, FactValue, Severity, key};
use crate::engine::log::figures::{after, gib_after, number_after, number_before};
use crate::engine::log::heads::Message;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::sheet::{Weight, is_exception};
use crate::engine::log::table::Form::*;
use crate::engine::log::table::Put::{self, Last};
use crate::engine::log::table::{Row, read_values, record_of};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser, torch};
use graphs::Graphs;
use kinds::{HEADS, Kind};
use pool::{Pools, windows};
use ranks::{ByRank, RankId, Shape};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Reads SGLang's log.
pub type SglangLogParser = SheetParser<Sglang>;

/// Ranks kept.
const MOST_RANKS: usize = 1024;

/// State of the reader of SGLang's messages, rank by rank.
#[derive(Debug, Clone, Default)]
pub struct Sglang {
    figures: BTreeMap<FactKey, ByRank>,
    pools: BTreeMap<RankId, Pools>,
    /// Models that each rank has loaded, including a target before the log began.
    loads: BTreeMap<RankId, u32>,
    graphs: Graphs,
    windows: Option<(u64, u64)>,
    /// Highest use of the pool, hundredths of a percent: batches are logged all the time.
    usage: u64,
    retracted: u64,
}

/// Figures that are free memory at a moment.
const LISTED: &[FactKey] = &[
    key::distributed_init_gib,
    key::avail_before_load_gib,
    key::avail_after_load_gib,
    key::avail_after_pool_gib,
    key::avail_after_kv_sizing_gib,
];

impl Sglang {
    fn figure(&mut self, key: FactKey, rank: &RankId, value: Option<f64>, line: &Line<'_>) {
        if let Some(value) = value {
            self.put(key, rank, FactValue::Float(value), line, true);
        }
    }

    /// The amount of memory after `needle` as a figure of the rank.
    fn gib(&mut self, key: FactKey, rank: &RankId, rest: &str, needle: &str, line: &Line<'_>) {
        self.figure(key, rank, gib_after(rest, needle), line);
    }

    fn put(&mut self, key: FactKey, rank: &RankId, value: FactValue, line: &Line<'_>, first: bool) {
        let by_rank = self.figures.entry(key).or_default();
        let known = by_rank.contains_key(rank);
        if (known && first) || (!known && by_rank.len() >= MOST_RANKS) {
            return;
        }
        by_rank.insert(rank.clone(), line.fact(value, ""));
    }

    fn message(&mut self, m: &Message<'_, Kind>, line: &Line<'_>, sheet: &mut Sheet) {
        let rank = RankId::of(m.prefix);
        let rest = m.rest;
        match m.kind {
            Kind::Arguments => {
                if sheet.passed(EngineStep::LoadingWeights) || sheet.failed() {
                    sheet.restart();
                    *self = Sglang::default();
                }
                sheet.step(EngineStep::Started, line, m.head);
                server_args::read(rest, line, sheet);
            }
            Kind::Init => self.gib(key::distributed_init_gib, &rank, rest, "mem usage=", line),
            Kind::LoadBegin => {
                sheet.step(EngineStep::LoadingWeights, line, m.head);
                if let Some(pools) = self.pools.get_mut(&rank) {
                    pools.close();
                }
                if !self.loads.contains_key(&rank) {
                    self.gib(key::avail_before_load_gib, &rank, rest, "avail mem=", line);
                }
            }
            Kind::LoadEnd => self.loaded(&rank, rest, line, sheet),
            Kind::KvDtype => kv_dtype(rest, line, sheet),
            Kind::Kv => {
                if let Some(dtype) = after(rest, "dtype: ") {
                    kv_dtype(dtype, line, sheet);
                }
                // `Full KV Cache is allocated`: a word between the tag and the message.
                let label = m.prefix.trim_end().rsplit([' ', ']']).next();
                let label = label.filter(|l| matches!(*l, "Full" | "SWA" | "full" | "swa"));
                if let Some(pools) = of_rank(&mut self.pools, &rank) {
                    pools.allocated(label.unwrap_or_default(), rest, line);
                }
            }
            Kind::LateKv => self.sized_late(&rank, rest, line, sheet),
            Kind::SwaSum | Kind::Windows => {
                self.read_windows(rest, m.head, line, sheet);
                if let (Kind::SwaSum, Some(pools)) = (m.kind, of_rank(&mut self.pools, &rank)) {
                    pools.swa_sum(rest, line);
                }
            }
            Kind::Mamba => self.mamba(&rank, rest, line),
            Kind::ReplayBuffers => self.replay_buffers(&rank, rest, line),
            Kind::Profiled => {
                if let Some(n) = number_after(rest, "larger than the profiled value ") {
                    let value = FactValue::Int(n.value as i64);
                    sheet.set(key::profiled_max_total_tokens, value, line, "profiled");
                    if n.value < 0.0 {
                        sheet.cause(Weight::Cause, line, m.head);
                    }
                }
            }
            Kind::KvSkipped | Kind::Dsv4Budget => read_values(VALUES, rest, line, sheet),
            Kind::Dsv4Pools => {
                for name in ["full", "swa", "c4", "c128"] {
                    if let Some(n) = number_after(rest, &format!(" {name}=")) {
                        let value = FactValue::Int(n.value as i64);
                        sheet.entry(key::dsv4_pool_tokens, name, value, line);
                    }
                }
            }
            Kind::PoolEnd => {
                sheet.step(EngineStep::KvCacheAllocated, line, m.head);
                self.gib(key::avail_after_pool_gib, &rank, rest, "avail mem=", line);
                // Its model was loaded, seen or not.
                if let Some(loads) = of_rank(&mut self.loads, &rank) {
                    *loads = (*loads).max(1);
                }
                if let Some(pools) = self.pools.get_mut(&rank) {
                    pools.close();
                }
            }
            Kind::Limits => self.limits(rest, line, sheet),
            Kind::Capture => {
                if rest.contains(" graph failed") {
                    sheet.cause(Weight::Cause, line, m.head);
                } else {
                    self.graphs.message(rest, &rank, line, sheet);
                }
            }
            Kind::Bar => self.graphs.bar(rest, line),
            Kind::Attention => {
                let name = rest.split([' ', ',']).next().unwrap_or_default();
                let name = name.trim_end_matches('.');
                if !name.is_empty() && name.len() < 64 {
                    sheet.text(key::attention_backend, name, line, m.head);
                }
            }
            Kind::HostCache => {
                // `MHA hierarchical KV host pool: 720000 tokens, 106.17 GB host memory` (0.5.23); recurrent states, indexers and
                // the like have pools of their own beside it (`mem_cache/pool_host/`).
                if let Some(gb) = number_before(rest, " GB host memory") {
                    let pools = self.figures.get(&key::hicache_host_gib);
                    let before = pools.and_then(|by_rank| by_rank.get(&rank)?.value.number());
                    // The one figure of the log in decimal units.
                    let gib = before.unwrap_or(0.0) + gb.value * 1e9 / f64::from(1 << 30);
                    self.put(
                        key::hicache_host_gib,
                        &rank,
                        FactValue::Float(gib),
                        line,
                        false,
                    );
                }
            }
            Kind::Ready => {
                sheet.step(EngineStep::Ready, line, m.head);
                sheet.enough_memory(line, m.head);
            }
            Kind::Retract => self.retract(rest, line, sheet),
            Kind::Batch => self.batch(rest, line, sheet),
            Kind::RequestLog => {}
            Kind::NotEnough => sheet.out_of_memory(line, m.head),
            Kind::Unbalanced => {
                sheet.cause(Weight::Cause, line, m.head);
                let text = "the GPUs do not have equally much free memory";
                sheet.finding("memory_unbalanced", Severity::Warning, text, line, m.head);
            }
            Kind::Stop => sheet.step(EngineStep::Stopping, line, m.head),
            Kind::ChildDied => sheet.cause(Weight::Consequence, line, m.head),
        }
    }

    fn loaded(&mut self, rank: &RankId, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        // Weights that are filled in after graph capture: the line has no sizes.
        if rest.contains("Committed real weights") {
            return;
        }
        sheet.step(EngineStep::WeightsLoaded, line, "oad weight end");
        if let Some(pools) = self.pools.get_mut(rank) {
            pools.close();
        }
        if let Some(loads) = of_rank(&mut self.loads, rank) {
            *loads = loads.saturating_add(1);
        }
        let draft = self.loads.get(rank).is_some_and(|n| *n > 1);
        let used = gib_after(rest, "mem usage=");
        if draft {
            if let Some(used) = used {
                let before = self
                    .figures
                    .get(&key::draft_weights_gib)
                    .and_then(|by_rank| by_rank.get(rank)?.value.number());
                let value = FactValue::Float(before.unwrap_or(0.0) + used);
                self.put(key::draft_weights_gib, rank, value, line, false);
            }
            return;
        }
        self.gib(key::avail_after_load_gib, rank, rest, "avail mem=", line);
        self.figure(key::weights_gib, rank, used, line);
        for (name, key) in LOADED {
            let value = word(rest, name).filter(|v| !matches!(*v, "None" | "auto"));
            if let Some(value) = value {
                sheet.text(*key, value.trim_start_matches("torch."), line, name);
            }
        }
    }

    fn read_windows(&mut self, rest: &str, needle: &str, line: &Line<'_>, sheet: &mut Sheet) {
        if let Some((full, swa)) = windows(rest) {
            self.windows = Some((full, swa));
            sheet.count(key::full_tokens, full, line, needle);
            sheet.count(key::swa_tokens, swa, line, needle);
        }
    }

    fn sized_late(&mut self, rank: &RankId, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        self.read_windows(rest, "full_layer", line, sheet);
        let draft = rest.starts_with("draft ");
        if !rest.contains("KV cache allocated") {
            return;
        }
        if let Some(dtype) = after(rest, "dtype: ") {
            kv_dtype(dtype, line, sheet);
        }
        if !draft {
            self.gib(
                key::avail_after_kv_sizing_gib,
                rank,
                rest,
                "avail mem=",
                line,
            );
        }
        if let Some(pools) = of_rank(&mut self.pools, rank) {
            pools.sized_late(draft, rest, line);
        }
    }

    fn mamba(&mut self, rank: &RankId, rest: &str, line: &Line<'_>) {
        let record = record_of(MAMBA, rest);
        if !record.is_empty() {
            self.put(key::mamba, rank, FactValue::Record(record), line, true);
        }
    }

    /// What a recurrent model keeps so that rejected tokens can be undone (0.5.23), behind the line
    /// of its states: `(record_len=8, fold=True): d=0.250GB, k=0.125GB, g=0.010GB rawv=…`.
    fn replay_buffers(&mut self, rank: &RankId, rest: &str, line: &Line<'_>) {
        let sizes = [" d=", " k=", " g=", " rawv=", " rawk=", " beta="];
        let gib: f64 = sizes.iter().filter_map(|name| gib_after(rest, name)).sum();
        let states = self.figures.get_mut(&key::mamba);
        let Some(states) = states.and_then(|ranks| ranks.get_mut(rank)) else {
            return;
        };
        let name = key::replay_gib.name();
        match &mut states.value {
            FactValue::Record(record) if !record.contains_key(name) => {
                record.insert(name.to_owned(), FactValue::Float(gib));
                states.quote.push(line.quote("ReplaySSM"));
            }
            _ => {}
        }
    }

    fn retract(&mut self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        let counted = number_after(rest, "#retracted_reqs: ")
            .or_else(|| number_after(rest, "#retracted_reqs="))
            .map_or(1, |n| n.value.max(1.0) as u64);
        self.retracted = self.retracted.saturating_add(counted);
        sheet.count(key::retracted_requests, self.retracted, line, "Retract");
        let text = "the KV pool was full, and running requests were put back";
        sheet.finding("preemption_seen", Severity::Warning, text, line, "Retract");
    }

    fn batch(&mut self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        let mut left = rest;
        while let Some(behind) = after(left, "token usage: ") {
            left = behind;
            let share = number_after(behind, "").map_or(0.0, |n| n.value);
            if !(0.0..=1.0).contains(&share) {
                continue;
            }
            let hundredths = (share * 10_000.0).round() as u64;
            if hundredths > self.usage {
                self.usage = hundredths;
                let percent = hundredths as f64 / 100.0;
                sheet.figure(key::kv_cache_usage_peak_pct, percent, line, "token usage");
            }
        }
    }

    fn limits(&self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        let values = rest.strip_prefix('s').unwrap_or(rest);
        let number = values.strip_prefix('=').unwrap_or_default();
        if number.starts_with(|c: char| c.is_ascii_digit()) {
            read_values(LIMITS, values, line, sheet);
            // The scheduler's last line before it serves: weights, pools and graphs are allocated.
            sheet.enough_memory(line, "max_total_num_token");
        }
    }

    fn shape(&self, sheet: &Sheet) -> Shape {
        let size = |key: FactKey| sheet.number(key).map(|n| n.max(1.0) as u64);
        let world = size(key::tensor_parallel_size)
            .map(|tp| tp * size(key::pipeline_parallel_size).unwrap_or(1))
            .map(|n| n * size(key::data_parallel_size).unwrap_or(1));
        let ranks = self.figures.values().flat_map(BTreeMap::keys);
        let ranks = ranks.chain(self.pools.keys()).chain(self.loads.keys());
        Shape::of(
            ranks
                .chain(self.graphs.ranks())
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter(),
            world,
        )
    }
}

/// The word after `needle`, up to a comma; the `type=` inside `dtype=` does not match.
fn word<'a>(text: &'a str, needle: &str) -> Option<&'a str> {
    let at = text.match_indices(needle).find_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        before
            .is_none_or(|c| !c.is_alphanumeric() && c != '_')
            .then_some(at)
    })?;
    let (word, _) = text[at + needle.len()..].split_once(',')?;
    (!word.is_empty() && word.len() < 128).then_some(word)
}

fn kv_dtype(text: &str, line: &Line<'_>, sheet: &mut Sheet) {
    let name = text.split(',').next().unwrap_or_default().trim();
    let name = name.trim_start_matches("torch.");
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.is_empty() && name.len() < 64 && name.chars().all(plain) {
        sheet.text(key::kv_cache_dtype, name, line, name);
    }
}

fn of_rank<'a, V: Default>(
    by_rank: &'a mut BTreeMap<RankId, V>,
    rank: &RankId,
) -> Option<&'a mut V> {
    if by_rank.len() >= MOST_RANKS && !by_rank.contains_key(rank) {
        return None;
    }
    Some(by_rank.entry(rank.clone()).or_default())
}

type SglangRow = Row<Put<Sglang>>;

/// Values that stand alone in their messages.
#[rustfmt::skip]
const VALUES: &[SglangRow] = &[
    Row::new("#tokens: ", CompleteCount, Last(key::kv_logical_tokens)).shown("#tokens"),
    Row::new("bytes_per_full_token=", Float, Last(key::dsv4_bytes_per_full_token)),
    Row::new("available_bytes=", Gib, Last(key::dsv4_available_gib)),
];

/// The scheduler's closing line, `max_total_num_tokens=473854, chunked_prefill_size=8192, …`.
#[rustfmt::skip]
const LIMITS: &[SglangRow] = &[
    Row::new("=", Whole, Last(key::max_total_num_tokens)),
    Row::new("chunked_prefill_size=", Whole, Last(key::chunked_prefill_size)),
    Row::new("max_prefill_tokens=", Whole, Last(key::max_prefill_tokens)),
    Row::new("max_running_requests=", Whole, Last(key::max_running_requests)),
    Row::new("context_len=", Whole, Last(key::max_model_len)),
    Row::new("available_gpu_mem=", Gib, Last(key::avail_after_start_gib)),
    Row::new("available_cpu_mem=", Gib, Last(key::avail_after_start_gib)),
];

/// The states of a recurrent model.
#[rustfmt::skip]
const MAMBA: &[SglangRow] = &[
    Row::new("max_mamba_cache_size: ", CompleteCount, Last(key::slots)),
    Row::new(" conv_state size: ", Gib, Last(key::conv_gib)),
    Row::new(" ssm_state size: ", Gib, Last(key::ssm_gib)),
    Row::new("intermediate_ssm_state_cache size: ", Gib, Last(key::intermediate_ssm_gib)),
    Row::new("intermediate_conv_window_cache size: ", Gib, Last(key::intermediate_conv_gib)),
];

/// Words of the line on a loaded model.
const LOADED: &[(&str, FactKey)] = &[
    ("type=", key::architecture),
    ("dtype=", key::dtype),
    ("quant=", key::quantization),
];

/// Every sign of this log.
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let rows = [VALUES, LIMITS, MAMBA].concat();
    let words = LOADED.iter().map(|(word, _)| *word);
    (HEADS.signs().chain(rows.iter().map(|row| row.sign)))
        .chain(words)
        .chain(torch::LACK.iter().copied())
        .collect()
}

impl Messages for Sglang {
    const ENGINE: &'static str = "sglang";

    fn words() -> &'static Words {
        static SIGNS: LazyLock<Words> = LazyLock::new(|| {
            // The texts of requests that are logged are not looked at for their own sake.
            let logged = |sign: &&str| matches!(*sign, "Receive: " | "Finish: ");
            let heads = HEADS.signs().filter(|sign| !logged(sign));
            let failures = torch::LACK.iter().copied().chain(["Error", "Exception"]);
            Words::new(&heads.chain(failures).collect::<Vec<_>>())
        });
        &SIGNS
    }

    fn is_stale(&self, raw: &[u8], _sheet: &Sheet) -> bool {
        // A line with nothing but a batch that uses no more of the pool than an earlier one.
        let find = |word: &[u8]| memchr::memmem::find(raw, word);
        if find(b" batch. ").is_none() || memchr::memchr(b'\r', raw).is_some() {
            return false;
        }
        const USAGE: &[u8] = b"token usage: ";
        let mut readings = memchr::memmem::find_iter(raw, USAGE).peekable();
        readings.peek().is_some()
            && readings.all(|at| {
                let digits = &raw[at + USAGE.len()..];
                let end = digits.iter().take(12).position(|b| *b == b',').unwrap_or(0);
                std::str::from_utf8(&digits[..end])
                    .ok()
                    .and_then(|text| text.trim().parse::<f64>().ok())
                    .is_some_and(|share| share * 10_000.0 <= self.usage as f64)
            })
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let mut text = line.text;
        // A progress bar may precede a message on one line.
        while let Some(m) = HEADS.find(text) {
            if !sheet.passed(EngineStep::Ready) || kinds::counts_while_serving(&m) {
                self.message(&m, line, sheet);
            }
            match m.kind {
                Kind::RequestLog => return,
                Kind::Bar => text = m.rest,
                _ => break,
            }
        }
        if ["Receive: ", "Finish: ", "obj=", "text="]
            .iter()
            .any(|sign| line.text.contains(sign))
        {
            return;
        }
        // A prompt may mention memory too.
        if sheet.passed(EngineStep::Ready) && !kinds::lacks_while_serving(line.text) {
            return;
        }
        if !torch::read(line, sheet) && is_exception(bare(line.text)) {
            sheet.cause(Weight::Cause, line, "");
        }
    }

    fn conclude(&self, sheet: &mut Sheet) {
        // Data-parallel attention shares the tensor-parallel ranks out; it adds none.
        if matches!(
            sheet.get(key::enable_dp_attention).map(|f| &f.value),
            Some(FactValue::Bool(true))
        ) {
            if let Some(fact) = sheet.take(key::data_parallel_size) {
                sheet.conclude(key::dp_attention_size, fact);
            }
        }
        let shape = self.shape(sheet);
        for (key, by_rank) in &self.figures {
            shape.write_figures(sheet, *key, by_rank, LISTED.contains(key));
        }
        pool::conclude(&self.pools, self.windows, shape, sheet);
        self.graphs.conclude(shape, sheet);
        // Without tokens in a pool line, or without any pool line: the scheduler's own count.
        if sheet.get(key::kv_cache_tokens).is_none() && self.windows.is_none() {
            if let Some(fact) = sheet.get(key::max_total_num_tokens).cloned() {
                sheet.conclude(key::kv_cache_tokens, fact);
            }
        }
    }
}

/// A line without the tag of its rank.
fn bare(text: &str) -> &str {
    let text = crate::engine::log::text::bare(text);
    match text.strip_prefix('[').and_then(|t| t.split_once("] ")) {
        Some((tag, message)) if tag.len() < 80 => message.trim_start(),
        _ => text,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
