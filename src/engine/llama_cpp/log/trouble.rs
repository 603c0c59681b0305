//! Failures of llama.cpp: out of memory, survived or not, and other causes.

use crate::engine::facts::{FactKey, Severity, key};
use crate::engine::log::Line;
use crate::engine::log::figures::{gib_after, number_after};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::sheet::Weight;

/// Messages that report a device or the host out of memory.
pub const LACK: &[&str] = &[
    "Malloc failed: out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "ROCm error: out of memory",
    "MUSA error: out of memory",
    "ErrorOutOfDeviceMemory",
    "ErrorOutOfHostMemory",
    "OUT_OF_DEVICE_MEMORY",
    "OUT_OF_HOST_MEMORY",
    "CallbackErrorOutOfMemory",
    "error: Insufficient Memory",
    "failed to allocate compute",
    "failed to allocate buffer",
    "failed to allocate backend buffer",
    "Device memory allocation of size",
    "insufficient memory (attempted to allocate",
    "Bytes of memory on device",
    "mmap failed: Cannot allocate memory",
    "std::bad_alloc",
];

/// Similar messages about another kind of memory.
const HARMLESS: &[&str] = &["pinned memory", "mlock", "failed to find a memory slot"];

/// Out-of-memory events so far.
#[derive(Debug, Clone, Default)]
pub struct Trouble {
    /// The engine announced a retry with less memory.
    retrying: bool,
}

impl Trouble {
    /// Notes the failure that a line reports, if any.
    pub fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let text = line.text;
        if HARMLESS.iter().any(|sign| text.contains(sign)) {
            return;
        }
        if text.contains("compute buffer allocation failed, retrying") {
            sheet.tries_again();
            self.retrying = true;
            return;
        }
        let buffer = (text.contains("failed to allocate ") && text.contains(" buffer of size "))
            || (text.contains("unable to allocate ") && text.contains(" buffer"));
        let sign = LACK.iter().find(|sign| text.contains(**sign)).copied();
        if let Some(sign) = sign.or(buffer.then_some("allocate ")) {
            if std::mem::take(&mut self.retrying) {
                sheet.take(key::oom_requested_gib);
            }
            sheet.out_of_memory_in(phase(text, sheet), line, sign);
            requested(line, sheet);
            return;
        }
        for (sign, weight) in [
            ("error loading model: ", Weight::Cause),
            ("CUDA error: ", Weight::Cause),
            ("failed to create context", Weight::Consequence),
            ("GGML_ASSERT", Weight::Death),
            ("GGML_ABORT", Weight::Death),
            ("terminate called", Weight::Death),
            ("failed to load model", Weight::Consequence),
        ] {
            if text.contains(sign) {
                sheet.cause(weight, line, sign);
                return;
            }
        }
        if text.contains("failed to find free space in the KV cache")
            || text.contains("the KV cache is full")
        {
            let text = "the KV cache was full while it served";
            sheet.finding("kv_cache_full", Severity::Warning, text, line, "KV cache");
        }
    }

    /// Notes an out-of-memory error before this reader began; it is survived once a line shows that
    /// all memory was allocated.
    pub fn lacked_before(&mut self) {
        self.retrying = true;
    }

    /// Notes a line that shows that all memory was allocated.
    pub fn enough(&mut self, line: &Line<'_>, needle: &str, sheet: &mut Sheet) {
        if sheet.get(key::oom).is_some() {
            return;
        }
        sheet.enough_memory(line, needle);
        if std::mem::take(&mut self.retrying) {
            sheet.flag(key::oom_recovered, true, line, needle);
            let text = "memory lacked for a buffer; the engine tried again and goes on";
            sheet.finding(
                "out_of_memory_recovered",
                Severity::Warning,
                text,
                line,
                needle,
            );
        }
    }
}

/// What the engine was doing. It captures no graphs: allocations after the cache are scratch. Where
/// a log begins late and lacks the first milestones, the buffers decide.
fn phase(text: &str, sheet: &Sheet) -> &'static str {
    let has = |key: FactKey| sheet.get(key).is_some();
    match sheet.phase() {
        "start" if has(key::kv_cache_gib) => "kv_cache_allocation",
        "start"
            if has(key::weights_gib)
                || has(key::pinned_weights_gib)
                || text.contains("alloc_tensor_range") =>
        {
            "loading_weights"
        }
        "graph_capture" => "compute_buffers",
        other => other,
    }
}

/// The requested amount: MiB in one message, bytes in the one that follows it.
fn requested(line: &Line<'_>, sheet: &mut Sheet) {
    if sheet.get(key::oom_requested_gib).is_some() {
        return;
    }
    let whole = |needle: &str| {
        let n = number_after(line.text, needle).filter(|n| n.whole)?;
        Some(n.value / f64::from(1 << 30))
    };
    let mib = ["allocating ", "attempted to allocate ", "buffer, size = "]
        .iter()
        .find_map(|needle| gib_after(line.text, needle));
    let gib = mib
        .or_else(|| whole("can't allocate "))
        .or_else(|| whole(" buffer of size "))
        .or_else(|| whole("memory allocation of size "));
    if let Some(gib) = gib {
        sheet.figure(key::oom_requested_gib, gib, line, "alloc");
    }
}
