//! The load that was asked for.

use super::null_for_zero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The load to put on the engine. `None` leaves a value to the engine's bench.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Prompt tokens per request; null where a prompt was given instead (0 in the type: no bench
    /// takes a prompt of nothing).
    #[serde(default, with = "null_for_zero")]
    #[schemars(with = "Option<u32>")]
    pub input_len: u32,
    /// Generated tokens per request.
    pub output_len: u32,
    /// Sequences per batch (latency bench).
    pub batch_size: Option<u32>,
    /// Measured iterations (latency bench).
    pub num_iters: Option<u32>,
    /// Warm-up iterations (latency bench) or requests (serve bench).
    pub num_iters_warmup: Option<u32>,
    /// Requests (throughput and serve bench).
    pub num_prompts: Option<u32>,
    /// Requests in flight at most (serve bench).
    pub max_concurrency: Option<u32>,
    /// Requests per second (serve bench); `None` is as fast as possible.
    pub request_rate: Option<f64>,
    /// Random seed handed to the bench.
    pub seed: Option<u64>,
    /// Text of the prompt (transformers probe); `None` is `input_len` random tokens.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Whether operators and layers are reported (transformers probe).
    #[serde(default)]
    pub per_layer: bool,
    /// The other prompts of a mixture, where `input_len` is the length of the long ones (builtin).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_prompts: Option<ShortPrompts>,
}

/// Short prompts among long ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShortPrompts {
    /// Tokens of a short prompt.
    pub input_len: u32,
    /// Share of the requests that have one, 0 to 1. Which they are follows from the seed.
    pub share: f64,
}
