//! What the engine was told to use: the flags of its memory and times, and the same as JSON for a test to compare with.

use crate::args::{Args, Flag, Kind, Stop};
use crate::device::Device;
use crate::json;

/// Tokens per KV block, as in most engines.
pub const BLOCK_TOKENS: u64 = 16;

pub const FLAGS: &[Flag] = &[
    Flag::required("model", "name of the model that is said to be served"),
    Flag::new("weights", Kind::Pages, "512MiB", "bytes of weights"),
    Flag::new("kv-pool", Kind::Pages, "256MiB", "bytes of the KV cache pool"),
    Flag::new("kv-bytes-per-token", Kind::Count, "2048", "KV bytes per token: the pool's capacity, not its size"),
    Flag::new("activation", Kind::Pages, "128MiB", "height of an activation spike"),
    Flag::new("activation-ms", Kind::Count, "30", "time that a spike stands at full height"),
    Flag::new("start-ms", Kind::Count, "200", "plateau before anything is loaded: the baseline"),
    Flag::new("load-ms", Kind::Count, "200", "time over which the weights are touched"),
    Flag::new("settle-ms", Kind::Count, "300", "plateau after the weights, and again after the KV pool"),
    Flag::new("compile-ms", Kind::Count, "0", "time of compiling, unless the result lies in $REFERENCE_CACHE_DIR"),
    Flag::new("device", Kind::Text, "cpu", "whose memory: cpu, or the first GPU by cuda or hip (dynamic build only)"),
    Flag::new("token-us", Kind::Count, "200", "time per output token"),
];

#[derive(Clone)]
pub struct Truth {
    pub model: String,
    pub weights_bytes: usize,
    pub kv_pool_bytes: usize,
    pub kv_bytes_per_token: u64,
    pub activation_bytes: usize,
    pub activation_ms: u64,
    pub start_ms: u64,
    pub load_ms: u64,
    pub settle_ms: u64,
    pub pause_ms: u64,
    pub compile_ms: u64,
    pub token_us: u64,
    pub device: Device,
}

/// How many times slower than a real machine this one is, as $REFERENCE_SLOWNESS says: emulated ones read lines late.
pub fn slowness() -> u64 {
    let word = std::env::var("REFERENCE_SLOWNESS").ok();
    word.and_then(|w| w.parse().ok()).unwrap_or(1).max(1)
}

impl Truth {
    pub fn read(args: &Args) -> Result<Truth, Stop> {
        let slowness = slowness();
        let time = |name: &str| Ok(args.count(name)?.saturating_mul(slowness));
        Ok(Truth {
            model: args.text("model")?.to_string(),
            weights_bytes: args.pages("weights")?,
            kv_pool_bytes: args.pages("kv-pool")?,
            kv_bytes_per_token: args.count("kv-bytes-per-token")?.max(1),
            activation_bytes: args.pages("activation")?,
            activation_ms: time("activation-ms")?,
            // Longer still: nothing is sampled before the daemon has answered that the container runs.
            start_ms: time("start-ms")?.saturating_mul(slowness),
            load_ms: time("load-ms")?,
            settle_ms: time("settle-ms")?,
            // Time to read the line before the loading that it announces begins.
            pause_ms: (slowness - 1).saturating_mul(100),
            compile_ms: args.count("compile-ms")?,
            token_us: args.count("token-us")?,
            device: Truth::device(args.text("device")?)?,
        })
    }

    fn device(word: &str) -> Result<Device, Stop> {
        let refused = || Stop::Usage(format!("argument --device: invalid choice: '{word}' (cpu, cuda, hip)"));
        Device::named(word).ok_or_else(refused)
    }

    pub fn kv_blocks(&self) -> u64 {
        self.kv_pool_bytes as u64 / (self.kv_bytes_per_token * BLOCK_TOKENS)
    }

    /// What the kernel adds by itself, in tables that map the pages: 8 bytes per page.
    fn page_table_bytes(bytes: usize) -> usize {
        let page = crate::memory::page_bytes();
        (bytes / page * 8).next_multiple_of(page)
    }

    /// `slowdown`: times as slow as the best settings of the latency model would be.
    pub fn to_json(&self, slowdown: f64) -> String {
        let Truth { weights_bytes, kv_pool_bytes, activation_bytes, .. } = *self;
        let steady = weights_bytes + kv_pool_bytes;
        format!(
            "{{\"model\":{model},\"simulated\":true,\"device\":\"{device}\",\"page_bytes\":{page},\
             \"weights_bytes\":{weights_bytes},\"kv_pool_bytes\":{kv_pool_bytes},\
             \"activation_bytes\":{activation_bytes},\"steady_bytes\":{steady},\"peak_bytes\":{peak},\
             \"page_table_bytes\":{{\"weights\":{tables_w},\"kv_pool\":{tables_k},\"activation\":{tables_a}}},\
             \"kv_bytes_per_token\":{per_token},\"block_size\":{BLOCK_TOKENS},\"num_blocks\":{blocks},\
             \"activation_ms\":{activation_ms},\"start_ms\":{start_ms},\"load_ms\":{load_ms},\"settle_ms\":{settle_ms},\
             \"token_us\":{token_us},\"slowdown\":{slowdown}}}",
            slowdown = json::number(slowdown),
            model = json::string(&self.model),
            page = crate::memory::page_bytes(),
            peak = steady + activation_bytes,
            tables_w = Self::page_table_bytes(weights_bytes),
            tables_k = Self::page_table_bytes(kv_pool_bytes),
            tables_a = Self::page_table_bytes(activation_bytes),
            per_token = self.kv_bytes_per_token,
            blocks = self.kv_blocks(),
            activation_ms = self.activation_ms,
            start_ms = self.start_ms,
            load_ms = self.load_ms,
            settle_ms = self.settle_ms,
            token_us = self.token_us,
            device = self.device.name(),
        )
    }
}
