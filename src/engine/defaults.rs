//! The default load of a bench: enough to reach the peak of memory,
//! little enough for a CPU. Lengths always come from the request.

/// Measured iterations of a latency bench. vLLM's own 30 take long and show no higher memory.
pub const NUM_ITERS: u32 = 10;
/// Warm-up iterations (latency) or requests (serve).
pub const NUM_WARMUPS: u32 = 3;
/// Requests of a throughput or serve bench; vLLM's own are 1000.
pub const NUM_PROMPTS: u32 = 32;
