//! Buffers: weights, KV cache, recurrent state, compute and output, device by device.
//!
//! A model is loaded, then contexts are created for it. What a load or a context prints again
//! replaces the earlier values; within one, pieces on a device add up (files mapped one by one, two
//! caches of a model with sliding windows), but compute buffers are reserved in several passes and
//! the last one counts.

use crate::engine::facts::{FactKey, FactValue, key, known_entries};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, gib, gib_after, number, number_before};
use crate::engine::log::sheet::Sheet;
use std::collections::BTreeMap;

/// Facts of a context.
const OF_CONTEXT: &[FactKey] = &[
    key::kv_cache_gib,
    key::kv_total_gib,
    key::kv_k_gib,
    key::kv_v_gib,
    key::kv_pools,
    key::kv_cache_dtype,
    key::recurrent_state_gib,
    key::recurrent_state,
    key::activation_peak_gib,
    key::output_gib,
    key::pinned_kv_cache_gib,
    key::pinned_activation_peak_gib,
    key::pinned_output_gib,
    key::pinned_recurrent_state_gib,
];

/// Kinds of buffers, the key of each on a device and in host memory that a device reads, and
/// whether pieces on one device add up.
const KINDS: &[(&str, FactKey, FactKey, bool)] = &[
    ("model", key::weights_gib, key::pinned_weights_gib, true),
    ("KV", key::kv_cache_gib, key::pinned_kv_cache_gib, true),
    (
        "RS",
        key::recurrent_state_gib,
        key::pinned_recurrent_state_gib,
        true,
    ),
    (
        "compute",
        key::activation_peak_gib,
        key::pinned_activation_peak_gib,
        false,
    ),
    ("output", key::output_gib, key::pinned_output_gib, false),
    ("LoRA", key::lora_gib, key::lora_gib, true),
];

/// One cache as printed on its `size = …` line.
#[derive(Debug, Clone, Default)]
struct Cache {
    cells: Option<u64>,
    streams: Option<u64>,
    gib: f64,
    k: Option<f64>,
    v: Option<f64>,
}

/// Where in its loads the engine is.
#[derive(Debug, Clone, Default)]
pub struct Buffers {
    /// A load has begun and none of its buffers was printed yet.
    load_begins: bool,
    context_begins: bool,
    /// The model being loaded is the draft model of speculative decoding.
    draft: bool,
    caches: Vec<Cache>,
    /// Of the target model only: tokens of its longest cache, and its streams.
    tokens: Option<u64>,
    streams: u64,
}

impl Buffers {
    /// A model begins to load.
    pub fn load_begins(&mut self) {
        self.load_begins = true;
    }

    /// A context is made.
    pub fn context_begins(&mut self) {
        self.context_begins = true;
    }

    /// Whether the next lines belong to a draft model.
    pub fn set_draft(&mut self, draft: bool) {
        self.draft = draft;
    }

    /// The name of a fact of the model that is being loaded.
    pub fn key(&self, key: FactKey) -> FactKey {
        if self.draft { key.of_draft() } else { key }
    }

    fn in_load(&mut self, sheet: &mut Sheet) {
        if std::mem::take(&mut self.load_begins) {
            for key in [key::weights_gib, key::pinned_weights_gib] {
                sheet.take(self.key(key));
            }
            self.context_begins = true;
            self.in_context(sheet);
        }
    }

    fn in_context(&mut self, sheet: &mut Sheet) {
        if std::mem::take(&mut self.context_begins) {
            for key in OF_CONTEXT {
                sheet.take(self.key(*key));
            }
            self.caches.clear();
        }
    }

    /// `{function}: {device} {what} buffer size = {x} MiB`: `prefix` ends before `buffer`, `rest`
    /// begins after `size`. Returns the kind of buffer.
    pub fn buffer<'a>(
        &mut self,
        prefix: &'a str,
        rest: &str,
        line: &Line<'_>,
        sheet: &mut Sheet,
    ) -> Option<&'a str> {
        let value = rest.trim_start();
        let value = ["=", "is", "of"]
            .iter()
            .find_map(|word| value.strip_prefix(word))?;
        let (value, _) = gib(value)?;
        let mut words = prefix.split_whitespace().rev();
        let last = words.next()?;
        let (device, what) = if KINDS.iter().any(|(kind, ..)| *kind == last) {
            (words.next()?, last)
        } else {
            // Until October 2024 those of the weights had no name.
            (last, "model")
        };
        let function = words.next().unwrap_or_default().trim_end_matches(':');
        if !is_device(device) || (last == device && !function.ends_with("load_tensors")) {
            return None;
        }
        // The file is mapped, not copied, but still counts as host memory.
        let device = match device {
            "CPU_Mapped" => "CPU",
            other => other,
        };
        // Of the separate image encoder.
        if what == "compute" && function.ends_with("compute_meta") {
            sheet.entry(
                key::mmproj_compute_gib,
                device,
                FactValue::Float(value),
                line,
            );
            return Some(what);
        }
        let (_, key, pinned, adds_up) = KINDS.iter().find(|(kind, ..)| *kind == what)?;
        // Host memory that a device reads is not device memory.
        let key = if device.ends_with("_Host") {
            pinned
        } else {
            key
        };
        let key = self.key(*key);
        match what {
            "LoRA" => {}
            "model" => self.in_load(sheet),
            _ => self.in_context(sheet),
        }
        if *adds_up {
            sheet.entry_more(key, device, value, line);
        } else {
            sheet.entry(key, device, FactValue::Float(value), line);
        }
        Some(what)
    }

    /// `size = {x} MiB ({n} cells, {l} layers, {s}/{u} seqs), K ({t}): {k} MiB, V ({t}): {v} MiB`,
    /// and of a recurrent state `R (…)`, `S (…)`; until May 2025 `KV self size  = {x} MiB, K …`.
    /// Returns whether it was a cache's.
    pub fn total(&mut self, rest: &str, line: &Line<'_>, sheet: &mut Sheet) -> bool {
        let value = rest.trim_start();
        let Some((total, tail)) = value.strip_prefix('=').and_then(gib) else {
            return false;
        };
        // `(  1024 cells`
        let count = |word: &str| {
            let n = number_before(tail, word).filter(|n| n.whole && n.value >= 0.0)?;
            Some(n.value as u64)
        };
        if let Some(r) = typed(tail, "R") {
            self.in_context(sheet);
            let s = typed(tail, "S").map(|(gib, _)| gib);
            let mut state = BTreeMap::from([("r_gib".to_owned(), FactValue::Float(r.0))]);
            state.extend(s.map(|v| ("s_gib".to_owned(), FactValue::Float(v))));
            let cells = count(" cells").and_then(FactValue::count);
            state.extend(cells.map(|cells| ("cells".to_owned(), cells)));
            let key = self.key(key::recurrent_state);
            sheet.set(key, FactValue::Record(state), line, "size");
            return true;
        }
        let k = typed(tail, "K").or_else(|| typed(tail, "c^KV"));
        let v = typed(tail, "V");
        // Cut off before the cells' type, so their cache is unknown.
        let is_cut_off = k.is_none() && tail.contains(" cells");
        if is_cut_off || self.caches.len() >= 16 {
            return false;
        }
        self.in_context(sheet);
        self.caches.push(Cache {
            cells: count(" cells"),
            streams: streams(tail),
            gib: total,
            k: k.map(|(gib, _)| gib),
            v: v.map(|(gib, _)| gib),
        });
        let kind = match (k, v) {
            (Some((_, k)), Some((_, v))) if k != v => Some(format!("K {k}, V {v}")),
            (Some((_, k)), _) => Some(k.to_owned()),
            _ => None,
        };
        if let Some(kind) = kind {
            sheet.text(self.key(key::kv_cache_dtype), &kind, line, "K (");
        }
        if !self.draft {
            let tokens = |c: &Cache| c.cells?.checked_mul(c.streams.unwrap_or(1).max(1));
            self.tokens = self.caches.iter().filter_map(tokens).max();
            self.streams = self
                .caches
                .iter()
                .filter_map(|c| c.streams)
                .max()
                .unwrap_or(1);
        }
        self.write_caches(line, sheet);
        true
    }

    fn write_caches(&self, line: &Line<'_>, sheet: &mut Sheet) {
        let sum = |part: fn(&Cache) -> Option<f64>| self.caches.iter().map(part).sum();
        let sums: [(FactKey, Option<f64>); 3] = [
            (key::kv_total_gib, sum(|c| Some(c.gib))),
            (key::kv_k_gib, sum(|c| c.k)),
            (key::kv_v_gib, sum(|c| c.v)),
        ];
        for (key, value) in sums {
            if let Some(value) = value {
                let key = self.key(key);
                let mut fact = line.fact(FactValue::Float(value), "size");
                // A sum quotes the lines of its parts.
                if let Some(mut before) = sheet.take(key) {
                    before.quote.append(&mut fact.quote);
                    fact.quote = before.quote;
                }
                sheet.conclude(key, fact);
            }
        }
        if let [.., last] = self.caches.as_slice() {
            if self.caches.len() > 1 {
                let rows = match self.caches.len() {
                    2 => self.caches.iter().collect(),
                    _ => vec![last],
                };
                for cache in rows {
                    sheet.row(self.key(key::kv_pools), cache.row(), line);
                }
            }
        }
    }

    /// Tokens that the model's cache holds, by the longest of its parts: cells times streams.
    pub fn tokens(&self) -> Option<u64> {
        self.tokens
    }

    /// Streams of the model's cache, each with all of its cells.
    pub fn streams(&self) -> u64 {
        self.streams.max(1)
    }
}

impl Cache {
    fn row(&self) -> BTreeMap<String, FactValue> {
        known_entries([
            ("size", Some(FactValue::Float(self.gib))),
            ("tokens", self.cells.and_then(FactValue::count)),
            ("k", self.k.map(FactValue::Float)),
            ("v", self.v.map(FactValue::Float)),
        ])
    }
}

/// `CUDA0`, `CUDA0_Split`, `CPU_REPACK`, `RPC[10.0.0.1:50052]`.
fn is_device(word: &str) -> bool {
    word.len() < 64
        && !word.ends_with(':')
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_[]:.-".contains(c))
}

/// `K (f16):   64.00 MiB` → GiB and type.
fn typed<'a>(text: &'a str, name: &str) -> Option<(f64, &'a str)> {
    let inside = after(text, &format!(" {name} ("))?;
    let (kind, rest) = inside.split_once(')')?;
    Some((gib_after(rest, ":")?, kind.trim()))
}

/// ` 2/2 seqs` → 2; with only ` 2 seqs` the number of streams is unknown.
fn streams(text: &str) -> Option<u64> {
    let head = text.split_once(" seqs")?.0;
    let (_, streams) = head.rsplit_once([',', '('])?.1.split_once('/')?;
    number(streams).map(|(n, _)| n.value as u64)
}
