//! Why TensorRT-LLM failed: out of memory in its own words and its libraries', and the refusal that
//! lists each component's memory.

use crate::engine::facts::{Fact, FactValue, key};
use crate::engine::log::Line;
use crate::engine::log::figures::number;
use crate::engine::log::heads::{belongs_to_request, text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::sheet::{Weight, is_exception};
use crate::engine::log::text::bare;
use crate::engine::log::torch;
use crate::units::GIB;

/// Longest refusal, lines.
const MOST_LINES: u32 = 200;

const REFUSED: &str = "Executor creation failed due to insufficient GPU memory";
const FAILED: &str = "The following component could not be created: ";
const FREE: &str = "Free GPU memory before component creation attempt (GiB): ";
const BEFORE: &str =
    "Previously created components and free GPU memory before/after creation (GiB)";

/// The libraries' out-of-memory messages.
pub const LACK: &[&str] = &[
    "Cuda Runtime (out of memory)",
    "Requested amount of GPU memory (",
];

/// The engine's own errors.
pub const CAUSES: &[&str] = &[
    "Executor creation failed with NCCL error",
    "[TensorRT-LLM][ERROR]",
    "Executor worker initialization error",
    "Failed to initialize executor",
];

/// What other processes print after one has failed.
pub const CONSEQUENCES: &[&str] = &["MPI_ABORT was invoked", "Executor worker died"];

/// Parts of a refusal.
pub const REFUSAL: &[&str] = &[REFUSED, FAILED, FREE, BEFORE];

/// A refusal being read. Only a refusal, and so only a failure, lists the components' memory.
#[derive(Default)]
pub struct Refusal {
    open: bool,
    lines: u32,
    /// Whether the list of components has begun.
    listing: bool,
    done: bool,
    /// The component that failed, until another line shows that its name is complete.
    failed: Option<Fact>,
}

impl Refusal {
    /// Whether more lines of it may come.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Reads one line; returns whether it was part of a refusal.
    pub fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) -> bool {
        let text = line.text;
        if text.contains(REFUSED)
            && !belongs_to_request(text.split(REFUSED).next().unwrap_or_default())
        {
            sheet.out_of_memory(line, REFUSED);
            // Every rank refuses, and the parent repeats it: the first one is read.
            self.open = !self.done;
            self.done = true;
            return true;
        }
        if !self.open {
            return false;
        }
        self.lines += 1;
        self.open = self.lines < MOST_LINES;
        if let Some(name) = text_after_sign(text, FAILED)
            .map(str::trim)
            .filter(|n| !n.is_empty())
        {
            self.failed = Some(line.fact(FactValue::Text(name.to_owned()), FAILED));
            return true;
        }
        if let Some(fact) = self.failed.take() {
            sheet.conclude(key::oom_component, fact);
        }
        for (needle, key) in [
            ("Total GPU memory (GiB): ", key::device_total_gib),
            (FREE, key::free_before_failed_component_gib),
        ] {
            if let Some((n, _)) = text_after_sign(text, needle).and_then(number) {
                sheet.figure(key, n.value, line, needle);
                return true;
            }
        }
        if text_after_sign(text, BEFORE).is_some() {
            self.listing = true;
            return true;
        }
        let component = self.listing.then(|| component(bare(text))).flatten();
        if let Some((name, before, after)) = component {
            let levels = FactValue::List(vec![before, after]);
            sheet.entry(key::components_free_gib, name, levels, line);
            return true;
        }
        false
    }
}

/// `Model: 94.30 / 47.83`, and nothing more.
fn component(text: &str) -> Option<(&str, f64, f64)> {
    let (name, levels) = text.rsplit_once(": ")?;
    let (before, after) = levels.split_once(" / ")?;
    let named = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.len() <= 120
        && !name.contains(['[', '"']);
    named.then_some((
        name,
        before.trim().parse().ok()?,
        after.trim().parse().ok()?,
    ))
}

/// Reads one line; returns whether it reports an out-of-memory error.
pub fn read(line: &Line<'_>, sheet: &mut Sheet) -> bool {
    let text = line.text;
    if let Some((needle, at)) = LACK.iter().find_map(|n| Some((*n, text.find(n)?))) {
        if !is_request_text(&text[..at]) {
            sheet.out_of_memory(line, needle);
            if let Some((n, rest)) = number(&text[at + needle.len()..]) {
                if rest.starts_with(" bytes)") {
                    sheet.figure(key::oom_requested_gib, n.value / GIB, line, needle);
                }
            }
            return true;
        }
    }
    // `CUDA runtime error in ::cudaMallocAsync(…): out of memory`.
    if let Some(at) = text.find("CUDA runtime error in ") {
        if text[at..].contains("out of memory") && !is_request_text(&text[..at]) {
            sheet.out_of_memory(line, "CUDA runtime error in ");
            return true;
        }
    }
    let sign = torch::LACK.iter().find_map(|s| text.find(s));
    if sign.is_some_and(|at| !is_request_text(&text[..at])) {
        return torch::read(line, sheet);
    }
    if sheet.ready() {
        return false;
    }
    if let Some(needle) = CAUSES.iter().find(|n| text.contains(**n)) {
        sheet.cause(Weight::Cause, line, needle);
    } else if let Some((needle, _)) = text_after_any(text, CONSEQUENCES) {
        sheet.cause(Weight::Consequence, line, needle);
    } else {
        let message = text_after_sign(text, "[E] ").unwrap_or_else(|| bare(text));
        if is_exception(message.trim()) {
            sheet.cause(Weight::Cause, line, "");
        }
    }
    false
}

/// Whether the text before belongs to a prompt. Arguments in an error are quoted too:
/// `Error executing load_single_module with args ('model.layers.1', Linear()): CUDA out of …`.
fn is_request_text(before: &str) -> bool {
    let failed = ["[E] ", "[ERROR]", "Error"]
        .iter()
        .any(|own| before.contains(own));
    belongs_to_request(before) && !failed
}
