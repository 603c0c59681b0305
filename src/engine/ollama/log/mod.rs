//! The log of Ollama, 0.1 to 0.33: its own lines, and those of the llama.cpp runner below it.
//!
//! Models are loaded on demand and unloaded later. The report describes the last load; facts of the
//! server (devices, host memory, version) persist. Amounts are rounded to one decimal.
//!
//! | key | from |
//! |---|---|
//! | `estimate` {weights_gib, kv_gib, graph_full_gib, graph_partial_gib, required_full_gib, required_partial_gib, allocations_gib, available_gib, gpu_overhead_gib, projector_weights_gib, projector_graph_gib, weights_repeating_gib, weights_nonrepeating_gib, layers_model, layers_offload, layers_requested, layers_split} | `msg=offload`, `msg="offload to cuda"`: before loading, no allocation |
//! | `weights_gib`, `kv_cache_gib`, `activation_peak_gib` by device, `total_memory_gib` | `model weights`, `kv cache`, `compute graph`, `total memory` of the new engine; the last pass counts |
//! | the same and more | the runner's lines, as llama.cpp's |
//! | `n_ctx`, `n_batch`, `n_gpu_layers`, `n_seq_max`, `model_blob` | the runner's command line, or the new engine's load request |
//! | `layers_offloaded` | `offloaded 41/41 layers to GPU` |
//! | `devices` {id, name, library, compute, total_gib, available_gib} | `inference compute` |
//! | `host_total_gib`, `host_free_gib`, `host_free_swap_gib` | `system memory` |
//! | `default_num_ctx`, `total_vram_gib` | `vram-based default context` |
//! | `load_seconds`, `model_loads` | `llama runner started in`, how many loads the log shows |
//! | `oom` | true by a lack; false once a runner started, weights and cache were taken, or requests were answered with the weights in memory |

mod logfmt;

use crate::engine::facts::{EngineStep, FactKey, FactValue, Severity, key};
use crate::engine::llama_cpp::log::{LlamaCpp, WORDS};
use crate::engine::log::figures::{gib, number_after};
use crate::engine::log::heads::text_after_sign;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::sheet::Weight;
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser};
use logfmt::Record;
use logfmt::Written::{self, *};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Reads Ollama's log.
pub type OllamaLogParser = SheetParser<Ollama>;

/// Facts of the server rather than of a load.
const OF_SERVER: &[FactKey] = &[
    key::devices,
    key::host_total_gib,
    key::host_free_gib,
    key::host_free_swap_gib,
    key::default_num_ctx,
    key::total_vram_gib,
    key::model_loads,
];

/// State of the reader of Ollama's messages.
#[derive(Debug, Clone)]
pub struct Ollama {
    runner: LlamaCpp,
    loads: u64,
    /// `loads` includes the current load.
    counted: bool,
    /// A load ran out of memory and none has succeeded since.
    lacked: bool,
    /// The next memory lines of the new engine replace the earlier ones.
    pass_ended: bool,
}

impl Default for Ollama {
    fn default() -> Ollama {
        Ollama {
            runner: LlamaCpp::of_child(),
            loads: 0,
            counted: false,
            lacked: false,
            pass_ended: false,
        }
    }
}

impl Ollama {
    /// Discards what the previous load reported.
    fn load_is_over(&mut self, sheet: &mut Sheet) {
        let enough = sheet.get(key::oom).is_some() && !sheet.lacked_memory();
        let lacked = sheet.lacked_memory() || (self.lacked && !enough);
        sheet.begin_again(OF_SERVER);
        *self = Ollama {
            loads: self.loads,
            lacked,
            ..Ollama::default()
        };
        if lacked {
            self.runner.lacked_before();
        }
    }

    /// A load begins.
    fn load_begins(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        self.load_is_over(sheet);
        sheet.step(EngineStep::LoadingWeights, line, "msg");
        self.count(line, sheet);
    }

    fn count(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        self.counted = true;
        self.loads = self.loads.saturating_add(1);
        sheet.count(key::model_loads, self.loads, line, "msg");
    }

    /// Notes a line of a load; the line that starts its runner may be missing from the log.
    fn load_shows(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        if sheet.passed(EngineStep::Ready) {
            self.load_begins(line, sheet);
        } else if !self.counted {
            self.count(line, sheet);
        }
    }

    fn record(&mut self, r: &Record, line: &Line<'_>, sheet: &mut Sheet) {
        let msg = r.get("msg").unwrap_or_default();
        match msg {
            "offload" | "offload to gpu" | "offload to cuda" | "offload to rocm"
            | "offload to metal" | "offload to cpu" | "offload to oneapi" => {
                // After the end of a load, an estimate belongs to the next one.
                if sheet.passed(EngineStep::Ready) || sheet.failed() {
                    self.load_is_over(sheet);
                }
                let estimate = entries(ESTIMATE, r);
                if !estimate.is_empty() {
                    sheet.set(key::estimate, FactValue::Record(estimate), line, "memory.");
                }
            }
            "starting llama server"
            | "starting runner"
            | "starting llama-server"
            | "starting llama runner"
            | "starting ollama runner" => {
                let estimate = sheet.take(key::estimate);
                self.load_begins(line, sheet);
                if let Some(fact) = estimate {
                    sheet.conclude(key::estimate, fact);
                }
                command(r.get("cmd").unwrap_or_default(), line, sheet);
            }
            "model weights" => {
                self.load_shows(line, sheet);
                self.device(key::weights_gib, r, line, sheet);
            }
            "kv cache" => {
                self.device(key::kv_cache_gib, r, line, sheet);
                sheet.step(EngineStep::KvCacheAllocated, line, msg);
            }
            "compute graph" => self.device(key::activation_peak_gib, r, line, sheet),
            "total memory" => {
                if let Some(v) = r.gib("size") {
                    sheet.figure(key::total_memory_gib, v, line, msg);
                    self.pass_ended = true;
                }
            }
            "load" => {
                let asked = r.get("request").unwrap_or_default();
                // At its end a model is closed by the same words.
                if !asked.contains("Operation:close") {
                    self.load_shows(line, sheet);
                }
                request(asked, line, sheet);
            }
            "inference compute" => {
                let device = entries(DEVICE, r);
                if !device.is_empty() {
                    sheet.row(key::devices, device, line);
                }
            }
            "system memory" => write_fields(SYSTEM, r, line, sheet),
            "vram-based default context" => write_fields(DEFAULT_CONTEXT, r, line, sheet),
            "Load failed" => failed(r.get("error").unwrap_or_default(), line, sheet),
            _ => self.sentence(msg, r, line, sheet),
        }
    }

    fn sentence(&mut self, msg: &str, r: &Record, line: &Line<'_>, sheet: &mut Sheet) {
        if let Some(split) = msg
            .strip_prefix("offloaded ")
            .and_then(|m| m.strip_suffix(" layers to GPU"))
        {
            self.load_shows(line, sheet);
            sheet.text(key::layers_offloaded, split, line, "offloaded");
        } else if msg.starts_with("llama runner started in ") {
            // The runner reports its own readiness before this line of the same load.
            match sheet.get(key::load_seconds).is_some() {
                true => self.load_begins(line, sheet),
                false if !self.counted => self.count(line, sheet),
                false => {}
            }
            if let Some(n) = number_after(msg, "started in ") {
                sheet.figure(key::load_seconds, n.value, line, "started in");
            }
            self.runner.enough(line, "started in", sheet);
            sheet.step(EngineStep::Ready, line, "started in");
        } else if msg.starts_with("Listening on ") {
            if sheet.passed(EngineStep::Started) {
                sheet.restart();
                *self = Ollama::default();
            }
            let version = msg.split_once("(version ").map(|(_, v)| v);
            sheet.version(version.unwrap_or_default().trim_end_matches(')'));
            sheet.step(EngineStep::Started, line, "Listening");
        } else if msg.contains("no per-device buffer sizes were parsed") {
            let text = "Ollama could not read its runner's memory; `size_vram` is a guess";
            sheet.finding("size_vram_unknown", Severity::Warning, text, line, "VRAM");
        } else if lacks(msg) {
            failed(msg, line, sheet);
        } else if matches!(r.get("level"), Some("ERROR"))
            || msg.starts_with("llama runner process has terminated")
        {
            let error = r.get("error").or(r.get("err")).unwrap_or_default();
            if lacks(error) {
                failed(error, line, sheet)
            } else {
                sheet.cause(Weight::Consequence, line, "msg")
            }
        }
    }

    /// `msg="model weights" device=CUDA0 size="11.5 GiB"`, until 0.11 `buffer=`, and of compute
    /// graphs `buffer_type=`.
    fn device(&mut self, key: FactKey, r: &Record, line: &Line<'_>, sheet: &mut Sheet) {
        let device = ["device", "buffer", "buffer_type", "backend"]
            .iter()
            .find_map(|name| r.get(name));
        let (Some(device), Some(v)) = (device, r.gib("size")) else {
            return;
        };
        if std::mem::take(&mut self.pass_ended) {
            for key in [
                key::weights_gib,
                key::kv_cache_gib,
                key::activation_peak_gib,
            ] {
                sheet.take(key);
            }
        }
        sheet.entry(key, device, FactValue::Float(v), line);
    }
}

/// Fields of a record, the fact or entry of each, and how its value is written.
type Fields<K> = [(&'static str, K, Written)];

/// An estimate. 0.1 has one amount where later releases have a list.
#[rustfmt::skip]
const ESTIMATE: &Fields<&str> = &[
    ("memory.weights.total", "weights_gib", Gib),
    ("memory.weights.repeating", "weights_repeating_gib", Gib),
    ("memory.weights.nonrepeating", "weights_nonrepeating_gib", Gib),
    ("memory.required.kv", "kv_gib", Gib),
    ("memory.graph.full", "graph_full_gib", Gib),
    ("memory.graph.partial", "graph_partial_gib", Gib),
    ("memory.required.full", "required_full_gib", Gib),
    ("memory.required.partial", "required_partial_gib", Gib),
    ("memory.gpu_overhead", "gpu_overhead_gib", Gib),
    ("projector.weights", "projector_weights_gib", Gib),
    ("projector.graph", "projector_graph_gib", Gib),
    ("memory.required.allocations", "allocations_gib", GibList),
    ("memory.available", "available_gib", GibList),
    ("layers.model", "layers_model", Whole),
    ("layers.offload", "layers_offload", Whole),
    ("layers.estimate", "layers_offload", Whole),
    ("layers.requested", "layers_requested", Whole),
    ("layers.real", "layers_requested", Whole),
    ("layers.split", "layers_split", Text),
];

/// A device.
#[rustfmt::skip]
const DEVICE: &Fields<&str> = &[
    ("id", "id", Text),
    ("name", "name", Text),
    ("library", "library", Text),
    ("compute", "compute", Text),
    ("description", "description", Text),
    ("total", "total_gib", Gib),
    ("available", "available_gib", Gib),
];

/// The host's memory.
const SYSTEM: &Fields<FactKey> = &[
    ("total", key::host_total_gib, Gib),
    ("free", key::host_free_gib, Gib),
    ("free_swap", key::host_free_swap_gib, Gib),
];

/// What the context length follows from.
const DEFAULT_CONTEXT: &Fields<FactKey> = &[
    ("total_vram", key::total_vram_gib, Gib),
    ("default_num_ctx", key::default_num_ctx, Whole),
];

/// Writes each field as a fact.
fn write_fields(fields: &Fields<FactKey>, r: &Record, line: &Line<'_>, sheet: &mut Sheet) {
    for (field, key, written) in fields {
        if let Some(value) = r.value(field, *written) {
            sheet.set(*key, value, line, field);
        }
    }
}

/// The fields as entries of one fact; of two fields for one entry the first counts.
fn entries(fields: &Fields<&str>, r: &Record) -> BTreeMap<String, FactValue> {
    let mut entries = BTreeMap::new();
    for (field, key, written) in fields {
        if let Some(value) = r.value(field, *written) {
            entries.entry((*key).to_owned()).or_insert(value);
        }
    }
    entries
}

/// The runner's command line.
fn command(cmd: &str, line: &Line<'_>, sheet: &mut Sheet) {
    let words: Vec<&str> = cmd.split_whitespace().collect();
    for pair in words.windows(2) {
        let [flag, value] = pair else { continue };
        let key = match *flag {
            "--ctx-size" | "-c" => key::n_ctx,
            "--batch-size" | "-b" => key::n_batch,
            "--n-gpu-layers" | "-ngl" => key::n_gpu_layers,
            "--parallel" | "-np" => key::n_seq_max,
            "--kv-cache-type" | "--cache-type-k" => {
                sheet.text(key::kv_cache_dtype, value, line, flag);
                continue;
            }
            "--model" | "-m" if !value.starts_with('[') => {
                sheet.text(key::model_blob, value, line, flag);
                continue;
            }
            _ => continue,
        };
        if let Ok(n) = value.parse::<u64>() {
            sheet.count(key, n, line, flag);
        }
    }
}

/// `{Operation:commit … Parallel:1 BatchSize:512 FlashAttention:true KvSize:8192 KvCacheType: …}`
fn request(request: &str, line: &Line<'_>, sheet: &mut Sheet) {
    for (name, key) in [
        ("KvSize:", key::n_ctx),
        ("BatchSize:", key::n_batch),
        ("Parallel:", key::n_seq_max),
    ] {
        if let Some(n) = number_after(request, name).filter(|n| n.whole && n.value > 0.0) {
            sheet.count(key, n.value as u64, line, name);
        }
    }
    let kind = request.split_once("KvCacheType:").map(|(_, k)| k);
    let kind = kind.and_then(|k| k.split([' ', '}']).next());
    if let Some(kind) = kind.filter(|k| !k.is_empty()) {
        sheet.text(key::kv_cache_dtype, kind, line, "KvCacheType:");
    }
}

/// Of a refusal. The client prints it without a record around it.
const MORE_MEMORY: &str = "requires more system memory";

/// Error texts that report an out-of-memory error.
const LACK: &[&str] = &[
    MORE_MEMORY,
    "cudaMalloc failed",
    "out of memory",
    "unable to allocate ",
    "failed to allocate ",
];

fn lacks(text: &str) -> bool {
    LACK.iter().any(|sign| text.contains(sign))
}

/// Notes an error: `model requires more system memory (5.6 GiB) than is available (3.2 GiB)`, or
/// the runner's last message.
fn failed(error: &str, line: &Line<'_>, sheet: &mut Sheet) {
    if !lacks(error) {
        return sheet.cause(Weight::Cause, line, "error");
    }
    sheet.out_of_memory(line, "error");
    if let Some((needed, has)) = error
        .split_once("system memory (")
        .map(|(_, t)| t)
        .and_then(|t| t.split_once(") than is available ("))
    {
        for (key, text) in [
            (key::oom_requested_gib, needed),
            (key::host_available_gib, has),
        ] {
            if let Some((v, _)) = gib(text) {
                sheet.figure(key, v, line, "system memory");
            }
        }
    }
}

/// Ollama's own lines contain one of these; other lines are its runner's.
const OWN: &[&str] = &["msg=", "[GIN] ", MORE_MEMORY];

/// Every sign of this log.
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    [OWN, WORDS, LACK].concat()
}

impl Messages for Ollama {
    const ENGINE: &'static str = "ollama";

    fn words() -> &'static Words {
        static SEARCH: LazyLock<Words> = LazyLock::new(|| Words::new(&[OWN, WORDS].concat()));
        &SEARCH
    }

    fn is_stale(&self, raw: &[u8], sheet: &Sheet) -> bool {
        // Requests that were served prove that memory sufficed; once is enough.
        sheet.get(key::oom).is_some() && memchr::memmem::find(raw, b"[GIN] ").is_some()
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        if line.text.contains("[GIN] ") {
            // `[GIN] 2031/01/02 - 03:04:05 | 200 | 1.5ms | 192.0.2.7 | GET "/api/ps"`
            let access = line.text.split_once("[GIN] ").map(|(_, a)| a);
            let status = access.and_then(|a| a.split('|').nth(1)).map(str::trim);
            if sheet.get(key::oom).is_none()
                && status.is_some_and(|s| s.starts_with('2'))
                && sheet.get(key::weights_gib).is_some()
            {
                self.runner.enough(line, "[GIN]", sheet);
            }
            return;
        }
        match Record::read(line.text) {
            Some(record) => self.record(&record, line, sheet),
            None if text_after_sign(line.text, "Error: ")
                .is_some_and(|e| e.contains(MORE_MEMORY)) =>
            {
                failed(line.text, line, sheet);
            }
            None => {
                // A model loaded only for its vocabulary has none of these lines.
                if line.text.contains("load_tensors: ") {
                    self.load_shows(line, sheet);
                }
                self.runner.read(line, sheet);
            }
        }
    }

    fn conclude(&self, sheet: &mut Sheet) {
        self.runner.conclude(sheet);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
