//! Memory outside the pool: the engine's parts, the PyTorch backend's profile, the whole device.

use super::table;
use crate::engine::facts::{Fact, FactValue, Severity};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, gib, gib_after, number, number_after};
use crate::engine::log::said::text_after_sign;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::table::read_message;

const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// Figures of one kind kept.
const MOST: usize = 1024;

/// What an engine allocates, in the order of the figures of [`Memory`].
pub const ALLOCATED: [&str; 3] = [
    " for execution context memory",
    " GPU memory for runtime buffers",
    " GPU memory for decoder",
];

/// A figure that each rank prints, without its number.
#[derive(Default)]
struct Printed(Vec<(f64, String, Option<i64>)>);

impl Printed {
    fn add(&mut self, value: f64, line: &Line<'_>, needle: &str) {
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push((value, line.quote(needle), line.at));
    }

    /// One figure as itself, of several at most the last `most` as a list.
    fn write(&self, key: &str, most: usize, sheet: &mut Sheet) {
        let last = &self.0[self.0.len().saturating_sub(most)..];
        let value = match last {
            [] => return,
            [(one, _, _)] => FactValue::Float(*one),
            all => FactValue::List(all.iter().map(|(v, _, _)| *v).collect()),
        };
        let mut quote: Vec<String> = last.iter().map(|(_, q, _)| q.clone()).collect();
        quote.dedup();
        quote.truncate(64);
        let at_ns = last.first().and_then(|(_, _, at)| *at);
        sheet.conclude(
            key,
            Fact {
                value,
                quote,
                at_ns,
            },
        );
    }
}

/// What ranks print one by one.
#[derive(Default)]
pub struct Memory {
    engine: Printed,
    context: Printed,
    buffers: Printed,
    decoder: Printed,
    /// What TensorRT holds after it read an engine, and after it made a context of it.
    deserialised: Printed,
    contexts: Printed,
}

impl Memory {
    /// Reads one line.
    pub fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        self.engine(line, sheet);
        read_message(table::MESSAGES, line, sheet);
        profile(line, sheet);
        checkpoint(line, sheet);
    }

    /// Writes the facts that are one for each rank.
    pub fn conclude(&self, ranks: u64, sheet: &mut Sheet) {
        for (printed, key) in [
            (&self.engine, "engine_size_gib"),
            (&self.context, "execution_context_gib"),
            (&self.buffers, "runtime_buffers_gib"),
            (&self.decoder, "decoder_gib"),
        ] {
            printed.write(key, MOST, sheet);
        }
        // Totals of a process: the last one of each rank.
        let last = if self.contexts.0.is_empty() {
            &self.deserialised
        } else {
            &self.contexts
        };
        last.write(
            "tensorrt_managed_gib",
            ranks.clamp(1, MOST as u64) as usize,
            sheet,
        );
    }

    fn engine(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let text = line.text;
        if let Some((size, _)) = text_after_sign(text, "Loaded engine size: ").and_then(gib) {
            self.engine.add(size, line, "Loaded engine size");
        }
        let figures = [&mut self.context, &mut self.buffers, &mut self.decoder];
        for (needle, printed) in ALLOCATED.into_iter().zip(figures) {
            if let Some((size, rest)) = text_after_sign(text, "Allocated ").and_then(amount) {
                if rest.starts_with(needle) {
                    printed.add(size, line, needle);
                }
            }
        }
        if let Some(rest) =
            text_after_sign(text, "[MemUsageChange] TensorRT-managed allocation in ")
        {
            if let Some(size) = now_on_gpu(rest) {
                let printed = if rest.starts_with("engine deserialization") {
                    &mut self.deserialised
                } else {
                    &mut self.contexts
                };
                printed.add(size, line, "now: ");
            }
        }
        // Of the whole device, including other processes.
        if let Some(size) = text_after_sign(text, "[MemUsageChange] Init ").and_then(now_on_gpu) {
            sheet.figure("device_used_gib", size, line, "now: ");
        }
    }
}

/// An amount in any of the units of `MemoryCounters`, which count in 1024: GiB.
fn amount(text: &str) -> Option<(f64, &str)> {
    if let Some(read) = gib(text) {
        return Some(read);
    }
    let (n, rest) = number(text)?;
    let rest = rest.trim_start();
    let (scale, rest) = match (rest.strip_prefix("KB"), rest.strip_prefix("B ")) {
        (Some(_), _) => (1024.0 * 1024.0, &rest[2..]),
        (_, Some(_)) => (BYTES_PER_GIB, &rest[1..]),
        _ => return None,
    };
    Some((n.value / scale, rest))
}

/// `…, now: CPU 0, GPU 774 (MiB)`.
fn now_on_gpu(text: &str) -> Option<f64> {
    let rest = after(after(text, "now: ")?, "GPU ")?;
    let (n, rest) = number(rest)?;
    rest.trim_start()
        .starts_with("(MiB)")
        .then_some(n.value / 1024.0)
}

/// Findings of the PyTorch backend's profile run.
fn profile(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    if text_after_sign(text, table::WEIGHTS)
        .and_then(gib)
        .is_some()
    {
        sheet.finding(
            "weights_upper_bound",
            Severity::Info,
            "weights_gib is an upper bound: workspaces of the warm-up are in it",
            line,
            table::WEIGHTS,
        );
    }
    if let Some(size) = gib_after(text, "temporary kv cache memory during profiling ")
        .or(gib_after(text, "tmp kv_mem "))
    {
        if text_after_sign(text, "Peak memory during memory usage profiling").is_some() {
            sheet.figure("temporary_kv_gib", size, line, "kv");
            if size > 0.0 {
                sheet.finding(
                "profile_holds_temporary_kv",
                Severity::Info,
                "non_torch_gib was measured with the temporary KV pool of the profile (temporary_kv_gib) in place",
                line,
                "Peak memory",
            );
            }
        }
    }
}

/// `Use 63.32 GB for model weights.` and `Rank 0 uses 8.46 GB for model weights.`: the checkpoint,
/// before it is loaded. Whether these GB count in 1000 or 1024 is not known.
fn checkpoint(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    if !text.contains(" GB for model weights") {
        return;
    }
    if let Some((n, _)) = text_after_sign(text, "Use ").and_then(number) {
        sheet.figure("weights_hint_gb", n.value, line, "Use ");
    } else if let Some((rank, rest)) = text_after_sign(text, "Rank ").and_then(number) {
        if let Some(n) = number_after(rest, " uses ").filter(|_| rank.whole) {
            let label = format!("rank{}", rank.value as u64);
            sheet.entry("weights_hint_gb", &label, FactValue::Float(n.value), line);
        }
    }
}
