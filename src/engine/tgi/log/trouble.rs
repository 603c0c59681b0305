//! Why TGI failed: out of memory in its own words and PyTorch's, and the consequences.

use super::table::REFUSED;
use crate::engine::log::Line;
use crate::engine::log::heads::{belongs_to_request, text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::sheet::{Weight, is_exception};
use crate::engine::log::table::read_values;
use crate::engine::log::torch;

/// TGI's own out-of-memory messages.
pub const LACK: &[&str] = &["Not enough memory to handle ", "NotEnoughMemory("];

/// What a shard or the router prints after another one has failed.
pub const CONSEQUENCES: &[&str] = &[
    "Server error: CANCELLED",
    "Webserver Crashed",
    "Method Warmup encountered an error",
    "Method Prefill encountered an error",
    "Method Decode encountered an error",
    "Shard complete standard error output",
    "Shard process was signaled to shutdown",
    "Error: WebserverFailed",
    "Error: ShardCannotStart",
    "Error: ShardFailed",
    "Error: DownloadError",
    "Error: WebServer",
    "Error: Backend",
];

/// TGI's own errors.
pub const CAUSES: &[&str] = &[
    "Error when initializing model",
    "Unable to warmup model",
    "Error: ArgumentValidation",
    "error: invalid value",
    "error: unexpected argument",
    "error: the following required",
];

/// Reads one line; returns whether it reports an out-of-memory error.
pub fn read(line: &Line<'_>, sheet: &mut Sheet) -> bool {
    if let Some(needle) = own_lack(line.text) {
        sheet.out_of_memory(line, needle);
        read_values(REFUSED, line.text, line, sheet);
        return true;
    }
    let sign = torch::LACK.iter().find_map(|s| line.text.find(s));
    if sign.is_some_and(|at| !is_request_text(&line.text[..at])) {
        return torch::read(line, sheet);
    }
    let message = message(line.text);
    if let Some((needle, _)) = text_after_any(line.text, CONSEQUENCES) {
        let killed = line.text.contains("signaled to shutdown with signal");
        let weight = if killed {
            Weight::Death
        } else {
            Weight::Consequence
        };
        sheet.cause(weight, line, needle);
    } else if let Some((needle, _)) = text_after_any(line.text, CAUSES) {
        sheet.cause(Weight::Cause, line, needle);
    } else if !sheet.ready() && (is_exception(message) || line.text.contains("panicked at ")) {
        // While it serves, an error concerns one request and does not end the server.
        sheet.cause(Weight::Cause, line, "");
    }
    false
}

/// Parts of a message that only a warm-up prints.
pub const IN_WARM_UP: &[&str] = &[
    "warmup{",
    "Unable to warmup model",
    "Method Warmup encountered",
];

/// Whether the line is of a warm-up that fails: the weights are loaded then.
pub fn in_warm_up(text: &str) -> bool {
    IN_WARM_UP.iter().any(|sign| {
        text.find(sign)
            .is_some_and(|at| !belongs_to_request(&text[..at]))
    })
}

fn own_lack(text: &str) -> Option<&'static str> {
    let (needle, at) = LACK.iter().find_map(|n| Some((*n, text.find(n)?)))?;
    (!is_request_text(&text[..at])).then_some(needle)
}

/// Whether the text before belongs to a prompt or a response. The quotes of a Rust error do not:
/// `Generation("Not enough memory …`.
fn is_request_text(before: &str) -> bool {
    let failed = ["Unable to warmup", "Server error: ", "(\"", "Error: "]
        .iter()
        .any(|own| before.contains(own));
    belongs_to_request(before) && !failed
        || before.contains("Input: ")
        || before.contains("Output: ")
}

/// The text without the launcher's prefix of a shard's line.
fn message(text: &str) -> &str {
    ["text_generation_launcher: ", " | "]
        .iter()
        .find_map(|prefix| text_after_sign(text, prefix))
        .unwrap_or(text)
        .trim()
}
