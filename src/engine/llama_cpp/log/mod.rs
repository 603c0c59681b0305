//! The log of llama.cpp's server, 2024 to 2026, and of its fork ik_llama.cpp, by the shape of its
//! messages: the functions that print them were renamed many times. Sizes are MiB of 2^20.
//!
//! | key | from |
//! |---|---|
//! | `weights_gib` by device | `{device} [model ]buffer size`; files mapped from disk (`CPU_Mapped`) count as `CPU` |
//! | `pinned_weights_gib`, `pinned_activation_peak_gib`, … | the same in `CUDA_Host`, `ROCm_Host`: host memory that a device reads |
//! | `kv_cache_gib` by device, `kv_total_gib`, `kv_k_gib`, `kv_v_gib`, `kv_cache_dtype` | `{device} KV buffer size`, `KV self size`, `size = … cells`; the caches of one context add up |
//! | `kv_pools`, `full_tokens`, `swa_tokens` | the two caches of a model with sliding windows |
//! | `kv_cache_tokens` | `n_ctx`, once a cache is there; else cells × streams; else slots × `n_ctx_slot` |
//! | `recurrent_state_gib` by device, `recurrent_state` {cells, r_gib, s_gib} | `RS buffer size`, `size = … R (…), S (…)` |
//! | `activation_peak_gib` by device | `{device} compute buffer size`: planned scratch, the last pass counts |
//! | `output_gib`, `lora_gib`, `mmproj_compute_gib`, `mmproj_weights_gib` | the other buffers |
//! | `draft_…` | the same of the draft model of speculative decoding |
//! | `layers_offloaded`, `n_ctx`, `n_ctx_slot`, `n_slots`, `n_batch`, `n_ubatch`, `n_seq_max`, `kv_unified`, `flash_attn` | in the engine's words |
//! | `projection` | a dry run's table and sums: nothing is allocated |
//! | `memory_breakdown` | the same table of an engine that ended |
//! | `avail_before_load_gib`, `gpu_names` by device | `using device`, `Device 0: …` |
//! | `checkpoint_size_gib`, `model_params`, `file_type`, `quantization` (where it is one), `model`, `model_name`, `architecture` | `print_info` and the loader |
//! | `prompt_cache_gib`, `prompt_cache_limit_gib` | `cache state: N prompts, …`, the last counts; `prompt cache is enabled, size limit` |
//! | `oom`, `oom_requested_gib`, `oom_recovered` | a lack; false once weights and cache, or more, were taken |
//!
//! CUDA graphs are built inside ggml, and neither count nor bytes are logged; `graph nodes` is
//! something else.

mod breakdown;
mod buffers;
pub(in crate::engine) mod trouble;

use crate::engine::facts::{EngineStep, FactKey, FactValue, key};
use crate::engine::llama_cpp::is_quantized;
use crate::engine::log::figures::{after, gib, gib_after, number};
use crate::engine::log::heads::{Heads, Message};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::table::Form::{Count, Text};
use crate::engine::log::table::Put::{self, Last};
use crate::engine::log::table::{Row, read_values};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use breakdown::Breakdown;
use buffers::Buffers;
use std::sync::LazyLock;
use trouble::Trouble;

/// Reads llama.cpp's log.
pub type LlamaCppLogParser = SheetParser<LlamaCpp>;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Kind {
    Build,
    Buffer,
    KvSelf,
    KvSize,
    Size,
    Caches,
    Setting,
    Context,
    LoadBegin,
    Loaded,
    Offloaded,
    Device,
    Using,
    Found,
    Info,
    Graph,
    Table,
    FitBegin,
    FitEnd,
    Fit,
    Loading,
    Slots,
    Ready,
    Stop,
    Draft,
    Encoder,
    PromptCache,
    PromptCacheLimit,
}

pub(in crate::engine) static HEADS: LazyLock<Heads<Kind>> = LazyLock::new(|| {
    Heads::new(&[
        ("build_info: ", Kind::Build),
        ("build: ", Kind::Build),
        ("build = ", Kind::Build),
        ("buffer size", Kind::Buffer),
        ("KV self size", Kind::KvSelf),
        (" size = ", Kind::Size),
        ("non-SWA KV cache, size = ", Kind::Caches),
        ("SWA KV cache, size = ", Kind::Caches),
        ("n_ctx ", Kind::Setting),
        ("kv_size = ", Kind::KvSize),
        ("n_batch ", Kind::Setting),
        ("n_ubatch ", Kind::Setting),
        ("n_seq_max ", Kind::Setting),
        ("flash_attn ", Kind::Setting),
        ("kv_unified ", Kind::Setting),
        ("constructing llama_context", Kind::Context),
        ("loaded meta data with ", Kind::LoadBegin),
        ("loading model tensors", Kind::LoadBegin),
        ("ggml ctx size =", Kind::LoadBegin),
        ("offloaded ", Kind::Offloaded),
        ("Device ", Kind::Device),
        ("using device ", Kind::Using),
        ("ggml_cuda_init: found ", Kind::Found),
        ("print_info: ", Kind::Info),
        ("llm_load_print_meta: ", Kind::Info),
        ("graph nodes ", Kind::Graph),
        ("graph splits ", Kind::Graph),
        ("memory_breakdown_print: ", Kind::Table),
        ("fitting params to device memory", Kind::FitBegin),
        ("successfully fit params", Kind::FitEnd),
        ("failed to fit params", Kind::FitEnd),
        ("fitting params to free memory took", Kind::FitEnd),
        ("params_fit_impl: ", Kind::Fit),
        ("loading draft model", Kind::Draft),
        ("draft context", Kind::Draft),
        ("loading model '", Kind::Loading),
        ("initializing, n_slots = ", Kind::Slots),
        ("model loaded", Kind::Loaded),
        ("server is listening on", Kind::Ready),
        ("listening on http", Kind::Ready),
        ("all slots are idle", Kind::Ready),
        ("cleaning up before exit", Kind::Stop),
        ("load_hparams: model size:", Kind::Encoder),
        (" - cache state: ", Kind::PromptCache),
        (
            "prompt cache is enabled, size limit: ",
            Kind::PromptCacheLimit,
        ),
    ])
});

/// State of the reader of llama.cpp's messages.
#[derive(Debug, Clone, Default)]
pub struct LlamaCpp {
    buffers: Buffers,
    breakdown: Breakdown,
    trouble: Trouble,
    /// Runs under another engine, which reports the runner's restarts itself.
    child: bool,
    /// `CUDA`, `ROCm`: the backend of the numbered device list.
    devices: Option<String>,
    full_cells: Option<u64>,
    swa_cells: Option<u64>,
}

/// Every sign of this log.
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    HEADS
        .signs()
        .chain([trouble::LACK, WORDS].concat())
        .collect()
}

/// Every line of interest contains one of these words.
pub const WORDS: &[&str] = &[
    "build_info: ",
    "build: ",
    "build = ",
    "buffer size",
    " size = ",
    "KV self size",
    "kv_size = ",
    "n_ctx ",
    "n_batch ",
    "n_ubatch ",
    "n_seq_max ",
    "flash_attn ",
    "kv_unified ",
    "llama_context",
    "loaded meta data",
    "loading ",
    "offloaded ",
    "Device ",
    "using device",
    "_init: found ",
    "print_info: ",
    "print_meta: ",
    "graph nodes",
    "graph splits",
    "breakdown_print",
    "fit params",
    "fitting params",
    "params_fit",
    "draft context",
    "n_slots = ",
    "model loaded",
    "listening on",
    "slots are idle",
    "cleaning up",
    "model size:",
    "ut of memory",
    "OUT_OF_",
    "OutOf",
    "Insufficient Memory",
    "to allocate",
    "t allocate",
    "memory allocation of",
    "bad_alloc",
    "error loading model",
    "GGML_A",
    "failed to load",
    "failed to create context",
    "terminate called",
    "CUDA error",
    "retrying without",
    "KV cache",
    "cache state",
    "prompt cache is",
];

impl LlamaCpp {
    /// A reader of the lines of a runner under another engine.
    pub fn of_child() -> LlamaCpp {
        LlamaCpp {
            child: true,
            ..LlamaCpp::default()
        }
    }

    /// The load before this runner's ran out of memory.
    pub fn lacked_before(&mut self) {
        self.trouble.lacked_before();
    }

    /// Notes that all memory was allocated.
    pub fn enough(&mut self, line: &Line<'_>, needle: &str, sheet: &mut Sheet) {
        self.trouble.enough(line, needle, sheet);
    }

    fn message(&mut self, m: &Message<'_, Kind>, line: &Line<'_>, sheet: &mut Sheet) {
        let rest = m.rest;
        match m.kind {
            Kind::Build => self.build(rest, line, sheet),
            Kind::FitBegin => self.breakdown.fit_begins(),
            Kind::FitEnd => self.breakdown.fitting = false,
            Kind::Fit => self.breakdown.projection(rest, line, sheet),
            Kind::Table => {
                let allocated = sheet.get(key::weights_gib).is_some()
                    || sheet.passed(EngineStep::Ready)
                    || sheet.get(key::kv_cache_gib).is_some();
                self.breakdown.table(rest, line, allocated);
            }
            // A dry run prints a projection.
            _ if self.breakdown.fitting => {
                if matches!(m.kind, Kind::Ready | Kind::Slots | Kind::Loaded) {
                    self.breakdown.fitting = false;
                    self.message(m, line, sheet);
                }
            }
            Kind::Buffer => {
                if self.buffers.buffer(m.prefix, rest, line, sheet) == Some("compute") {
                    self.trouble.enough(line, m.head, sheet);
                }
            }
            Kind::KvSelf | Kind::Size => {
                let rest = match m.kind {
                    Kind::KvSelf => rest.to_owned(),
                    // The head holds the sign.
                    _ => format!("= {rest}"),
                };
                let named = m.kind == Kind::KvSelf || rest.contains(" cells");
                if named && self.buffers.total(&rest, line, sheet) {
                    sheet.step(EngineStep::KvCacheAllocated, line, m.head);
                    // Weights and cache; scratch is planned last and is the least of the three.
                    if sheet.get(key::weights_gib).is_some()
                        || sheet.get(key::kv_cache_gib).is_some()
                    {
                        self.trouble.enough(line, m.head, sheet);
                    }
                }
            }
            // Printed before its buffers; padded to whole blocks.
            Kind::KvSize => {
                if let Some((n, _)) = number(rest).filter(|(n, _)| n.whole && n.value > 0.0) {
                    sheet.count(self.buffers.key(key::kv_size), n.value as u64, line, m.head);
                }
            }
            Kind::Caches => {
                let cells = number(rest).filter(|(_, tail)| tail.starts_with(" cells"));
                let cells = cells.map(|(n, _)| n.value as u64);
                let full = m.head.starts_with("non-SWA") || m.prefix.ends_with("non-");
                if full {
                    self.full_cells = cells.or(self.full_cells)
                } else {
                    self.swa_cells = cells.or(self.swa_cells)
                }
            }
            Kind::Setting => self.setting(m, line, sheet),
            Kind::Context => {
                self.buffers.context_begins();
                sheet.step(EngineStep::WeightsLoaded, line, m.head);
            }
            Kind::LoadBegin => {
                self.buffers.load_begins();
                sheet.step(EngineStep::LoadingWeights, line, m.head);
                // `… from /models/x.gguf (version GGUF V3 (latest))`
                if let Some((path, _)) = after(rest, " tensors from ")
                    .and_then(|p| p.rsplit_once(" (version "))
                    .filter(|(path, _)| path.len() < 512)
                {
                    sheet.text(self.buffers.key(key::model), path, line, "tensors from");
                }
            }
            Kind::Offloaded => {
                let split = rest.split_once(" layers to GPU").map(|(n, _)| n.trim());
                let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
                if let Some(split) = split {
                    if split
                        .split_once('/')
                        .is_some_and(|(a, b)| digits(a) && digits(b))
                    {
                        sheet.text(self.buffers.key(key::layers_offloaded), split, line, m.head);
                    }
                }
            }
            Kind::Found => {
                let kind = rest.split(' ').nth(1).filter(|k| k.len() < 16);
                self.devices = kind.map(str::to_owned);
            }
            Kind::Device => self.device(rest, line, sheet),
            Kind::Using => using(rest, line, sheet),
            Kind::Info => self.info(rest, line, sheet),
            Kind::Graph => self.trouble.enough(line, m.head, sheet),
            Kind::Loading => {
                if sheet.passed(EngineStep::Ready) && !self.child {
                    self.restart(sheet);
                }
                self.buffers.set_draft(false);
                sheet.step(EngineStep::LoadingWeights, line, m.head);
                if let Some((path, _)) = rest.split_once('\'') {
                    sheet.text(key::model, path, line, m.head);
                }
            }
            // Host memory, kept for prompts that may come again: it grows to its limit while the server runs.
            Kind::PromptCache => {
                if let Some(held) = gib_after(rest, " prompts, ") {
                    sheet.figure(key::prompt_cache_gib, held, line, m.head);
                }
            }
            Kind::PromptCacheLimit => {
                if let Some((limit, _)) = gib(rest) {
                    sheet.figure(key::prompt_cache_limit_gib, limit, line, m.head);
                }
            }
            Kind::Draft => {
                self.buffers.set_draft(true);
                self.buffers.load_begins();
            }
            Kind::Slots => {
                if let Some((n, _)) = number(rest) {
                    sheet.count(key::n_slots, n.value as u64, line, m.head);
                }
                read_values(SLOTS, rest, line, sheet);
                self.trouble.enough(line, m.head, sheet);
            }
            Kind::Loaded | Kind::Ready => {
                // `main: model loaded`, and no sentence about one.
                let prefix = m.prefix.trim_end();
                if m.kind == Kind::Ready
                    || prefix.is_empty()
                    || prefix.ends_with(':')
                    || prefix.ends_with("INFO")
                {
                    self.trouble.enough(line, m.head, sheet);
                    sheet.step(EngineStep::Ready, line, m.head);
                }
            }
            Kind::Stop => sheet.step(EngineStep::Stopping, line, m.head),
            Kind::Encoder => {
                if let Some((v, _)) = gib(rest) {
                    sheet.figure(key::mmproj_weights_gib, v, line, m.head);
                }
            }
        }
    }

    fn restart(&mut self, sheet: &mut Sheet) {
        sheet.restart();
        *self = LlamaCpp {
            child: self.child,
            ..LlamaCpp::default()
        };
    }

    /// `b6123-0123abc`, `6123 (0123abc) with …`.
    fn build(&mut self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        let word = rest.split([' ', ',']).next().unwrap_or_default();
        let number = word.trim_start_matches('b').split('-').next();
        let Some(number) = number.and_then(|n| n.parse::<u32>().ok()) else {
            return;
        };
        if !self.child && (sheet.passed(EngineStep::LoadingWeights) || sheet.failed()) {
            self.restart(sheet);
        }
        sheet.step(EngineStep::Started, line, "build");
        // Built without its history it calls itself 0.
        if number > 0 {
            sheet.version(&format!("b{number}"));
        }
    }

    /// `llama_context: n_ctx = 4096`: a name at the message's beginning.
    fn setting(&mut self, m: &Message<'_, Kind>, line: &Line<'_>, sheet: &mut Sheet) {
        let prefix = m.prefix.trim_end();
        let Some(value) = m.rest.trim_start().strip_prefix('=') else {
            return;
        };
        if !(prefix.is_empty() || prefix.ends_with(':')) || value.contains(',') {
            return;
        }
        let name = m.head.trim_end();
        let value = value.trim();
        if name == "n_ctx" {
            self.buffers.context_begins();
            sheet.step(EngineStep::WeightsLoaded, line, name);
        }
        let Some(key) = FactKey::named(name).map(|key| self.buffers.key(key)) else {
            return;
        };
        match value.parse::<u64>() {
            Ok(n) if !matches!(name, "flash_attn" | "kv_unified") => {
                sheet.count(key, n, line, name);
            }
            _ if !value.is_empty() && value.len() < 32 => sheet.text(key, value, line, name),
            _ => {}
        }
    }

    /// `0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes`
    fn device(&self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        let Some((number, name)) = rest.split_once(": ") else {
            return;
        };
        let Some((name, more)) = name.split_once(", ") else {
            return;
        };
        if number.parse::<u32>().is_err() || !more.contains("VMM") && !more.contains("compute") {
            return;
        }
        let label = format!("{}{number}", self.devices.as_deref().unwrap_or_default());
        sheet.entry(
            key::gpu_names,
            &label,
            FactValue::Text(name.to_owned()),
            line,
        );
        if let Some(total) = gib_after(more, "VRAM: ") {
            sheet.entry(key::gpu_total_gib, &label, FactValue::Float(total), line);
        }
    }

    /// `file size   = 5.01 GiB (4.89 BPW)`
    fn info(&self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
        let Some((name, value)) = rest.split_once('=') else {
            return;
        };
        let (name, value) = (name.trim(), value.trim());
        let Some((_, key)) = INFO.iter().find(|(known, _)| *known == name) else {
            return;
        };
        let draft_key = self.buffers.key(*key);
        if *key == key::checkpoint_size_gib {
            if let Some((v, _)) = gib(value) {
                sheet.figure(draft_key, v, line, name);
            }
        } else if !value.is_empty() && value.len() < 256 {
            sheet.text(draft_key, value, line, name);
            if *key == key::file_type && is_quantized(value) {
                sheet.text(self.buffers.key(key::quantization), value, line, name);
            }
        }
    }
}

/// Names in the description of a model, and their facts.
const INFO: &[(&str, FactKey)] = &[
    ("file size", key::checkpoint_size_gib),
    ("model size", key::checkpoint_size_gib),
    ("model params", key::model_params),
    ("file type", key::file_type),
    ("model ftype", key::file_type),
    ("general.name", key::model_name),
    ("arch", key::architecture),
];

/// Values of the line on slots.
#[rustfmt::skip]
const SLOTS: &[Row<Put<LlamaCpp>>] = &[
    Row::new("n_ctx_slot = ", Count, Last(key::n_ctx_slot)).shown("n_ctx_slot"),
    Row::new("kv_unified = ", Text(|w| Some(w.trim_matches('\''))), Last(key::kv_unified)).shown("kv_unified"),
];

/// `CUDA0 (NVIDIA GeForce RTX 4090) (0000:01:00.0) - 23306 MiB free`
fn using(rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
    let Some((device, rest)) = rest.split_once(' ') else {
        return;
    };
    let Some((head, free)) = rest.rsplit_once(" - ") else {
        return;
    };
    if device.len() > 64 {
        return;
    }
    if let Some((v, tail)) = gib(free) {
        if tail.trim_start().starts_with("free") {
            sheet.entry(
                key::avail_before_load_gib,
                device,
                FactValue::Float(v),
                line,
            );
        }
    }
    if let Some(name) = head.strip_prefix('(') {
        let name = name.split(')').next().unwrap_or_default().to_owned();
        sheet.entry(key::gpu_names, device, FactValue::Text(name), line);
    }
}

impl Messages for LlamaCpp {
    const ENGINE: &'static str = "llama_cpp";

    fn words() -> &'static Words {
        static SEARCH: LazyLock<Words> = LazyLock::new(|| Words::new(WORDS));
        &SEARCH
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        if let Some(m) = HEADS.find(line.text) {
            self.message(&m, line, sheet);
        }
        // Texts of requests and responses are in quotes or braces.
        if !line.text.contains(['"', '{']) || line.text.contains("GGML_A") {
            self.trouble.read(line, sheet);
        }
    }

    fn conclude(&self, sheet: &mut Sheet) {
        self.breakdown.conclude(sheet);
        let copy = |sheet: &mut Sheet, from: FactKey, key: FactKey, value: Option<FactValue>| {
            if let Some(mut fact) = sheet.get(from).cloned() {
                fact.value = value.unwrap_or(fact.value);
                sheet.conclude(key, fact);
            }
        };
        if sheet.get(key::kv_cache_gib).is_none() {
            copy(sheet, key::kv_total_gib, key::kv_cache_gib, None);
        }
        if sheet.get(key::kv_cache_gib).is_some() || sheet.get(key::kv_total_gib).is_some() {
            if sheet.get(key::n_ctx).is_some() {
                copy(sheet, key::n_ctx, key::kv_cache_tokens, None);
            } else if let Some(tokens) = self.buffers.tokens().and_then(FactValue::count) {
                copy(sheet, key::kv_total_gib, key::kv_cache_tokens, Some(tokens));
            }
        }
        for (key, cells) in [
            (key::full_tokens, self.full_cells),
            (key::swa_tokens, self.swa_cells),
        ] {
            let tokens = cells.and_then(|n| n.checked_mul(self.buffers.streams()));
            if let Some(tokens) = tokens.and_then(FactValue::count) {
                copy(sheet, key::kv_total_gib, key, Some(tokens));
            }
        }
        if sheet.get(key::kv_cache_tokens).is_none() {
            copy(sheet, key::kv_size, key::kv_cache_tokens, None);
        }
        if sheet.get(key::kv_cache_tokens).is_none() {
            if let (Some(slots), Some(each)) =
                (sheet.number(key::n_slots), sheet.number(key::n_ctx_slot))
            {
                let unified = sheet.get(key::kv_unified).map(|f| &f.value);
                let unified = matches!(unified, Some(FactValue::Text(word)) if word == "true");
                let tokens = if unified { each } else { slots * each };
                copy(
                    sheet,
                    key::n_ctx_slot,
                    key::kv_cache_tokens,
                    FactValue::count(tokens as u64),
                );
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
