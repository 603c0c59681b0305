//! Memory outside the pool: the engine's parts, the PyTorch backend's profile, the whole device.

use crate::engine::facts::{Fact, FactKey, FactValue, key};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, gib, number};
use crate::engine::log::sheet::Sheet;
use crate::units::GIB;

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
struct Printed(Vec<Fact>);

impl Printed {
    fn add(&mut self, value: f64, line: &Line<'_>, needle: &str) {
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(line.fact(FactValue::Float(value), needle));
    }

    /// One figure as itself, of several at most the last `most` as a list.
    fn write(&self, key: FactKey, most: usize, sheet: &mut Sheet) {
        let last = &self.0[self.0.len().saturating_sub(most)..];
        if let Some(fact) = Fact::of_ranks(last) {
            sheet.conclude(key, fact);
        }
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
    /// A serialised engine.
    pub fn engine_size(&mut self, line: &Line<'_>, rest: &str) {
        if let Some((size, _)) = gib(rest) {
            self.engine.add(size, line, "Loaded engine size");
        }
    }

    /// A part of an engine.
    pub fn allocated(&mut self, line: &Line<'_>, rest: &str) {
        let Some((size, rest)) = amount(rest) else {
            return;
        };
        let figures = [&mut self.context, &mut self.buffers, &mut self.decoder];
        for (sign, printed) in ALLOCATED.into_iter().zip(figures) {
            if rest.starts_with(sign) {
                printed.add(size, line, sign);
            }
        }
    }

    /// What TensorRT holds now.
    pub fn managed(&mut self, line: &Line<'_>, rest: &str) {
        if let Some(size) = now_on_gpu(rest) {
            let printed = if rest.starts_with("engine deserialization") {
                &mut self.deserialised
            } else {
                &mut self.contexts
            };
            printed.add(size, line, "now: ");
        }
    }

    /// Writes the facts that are one for each rank.
    pub fn conclude(&self, ranks: u64, sheet: &mut Sheet) {
        for (printed, key) in [
            (&self.engine, key::engine_size_gib),
            (&self.context, key::execution_context_gib),
            (&self.buffers, key::runtime_buffers_gib),
            (&self.decoder, key::decoder_gib),
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
            key::tensorrt_managed_gib,
            ranks.clamp(1, MOST as u64) as usize,
            sheet,
        );
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
        (_, Some(_)) => (GIB, &rest[1..]),
        _ => return None,
    };
    Some((n.value / scale, rest))
}

/// `…, now: CPU 0, GPU 774 (MiB)`.
pub fn now_on_gpu(text: &str) -> Option<f64> {
    let rest = after(after(text, "now: ")?, "GPU ")?;
    let (n, rest) = number(rest)?;
    rest.trim_start()
        .starts_with("(MiB)")
        .then_some(n.value / 1024.0)
}
