//! Kinds of SGLang's messages: how each begins, and which it prints while it serves.

use super::bare;
use crate::engine::log::heads::{Heads, Message};
use crate::engine::log::sheet::is_exception;
use crate::engine::log::torch;
use std::sync::LazyLock;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Arguments,
    Init,
    LoadBegin,
    LoadEnd,
    KvDtype,
    Kv,
    /// A pool of no memory.
    KvSkipped,
    /// A pool sized after graph capture.
    LateKv,
    /// The sum of a pool with sliding windows.
    SwaSum,
    /// The lengths of its parts.
    Windows,
    Mamba,
    /// Buffers beside the states of a recurrent model.
    ReplayBuffers,
    /// More tokens were requested than fit.
    Profiled,
    /// Memory per token.
    Dsv4Budget,
    /// Pools of a compressed cache.
    Dsv4Pools,
    /// The pools of a model are allocated.
    PoolEnd,
    /// The scheduler's closing line.
    Limits,
    Capture,
    Bar,
    /// The attention backend, where the arguments leave it open.
    Attention,
    HostCache,
    Ready,
    Retract,
    Batch,
    RequestLog,
    NotEnough,
    Unbalanced,
    Stop,
    ChildDied,
}

/// The beginnings of messages.
pub static HEADS: LazyLock<Heads<Kind>> = LazyLock::new(|| {
    Heads::new(&[
        ("server_args=", Kind::Arguments),
        ("Init torch distributed end", Kind::Init),
        ("Memory baseline taken", Kind::Init),
        ("oad weight begin", Kind::LoadBegin),
        ("oad weight end", Kind::LoadEnd),
        ("Using KV cache dtype: ", Kind::KvDtype),
        ("KV Cache is allocated.", Kind::Kv),
        ("KV Cache skipped", Kind::KvSkipped),
        ("Post-capture KV sizing: ", Kind::LateKv),
        ("SWAKVPool ", Kind::SwaSum),
        ("Use sliding window memory pool", Kind::Windows),
        ("Mamba Cache is allocated.", Kind::Mamba),
        ("ReplaySSM ring buffers allocated", Kind::ReplayBuffers),
        ("max_total_tokens=", Kind::Profiled),
        ("DSV4 memory calculation:", Kind::Dsv4Budget),
        ("DSV4 pool sizes:", Kind::Dsv4Pools),
        ("Memory pool end.", Kind::PoolEnd),
        ("max_total_num_token", Kind::Limits),
        ("Capture ", Kind::Capture),
        ("Capturing batches", Kind::Bar),
        ("Allocating ", Kind::HostCache),
        ("The server is fired up and ready to roll", Kind::Ready),
        ("KV cache pool is full. Retract", Kind::Retract),
        ("Decode batch", Kind::Batch),
        ("Prefill batch", Kind::Batch),
        ("Receive: ", Kind::RequestLog),
        ("Finish: ", Kind::RequestLog),
        ("Attention backend not specified. Use ", Kind::Attention),
        ("Attention backend forced to ", Kind::Attention),
        ("Not enough memory. Please try", Kind::NotEnough),
        ("Loaded weights leave no GPU memory", Kind::NotEnough),
        ("Prefill out of memory. Try", Kind::NotEnough),
        ("Decode out of memory. Try", Kind::NotEnough),
        ("The memory capacity is unbalanced", Kind::Unbalanced),
        ("Gracefully exiting", Kind::Stop),
        ("SIGTERM received", Kind::Stop),
        ("Received sigquit from a child", Kind::ChildDied),
    ])
});

/// Whether a message of a serving server can be new. Its figures are settled, and a prompt can
/// contain any words: only messages on serving, shutdown or a restart count, and only at the start
/// of a line.
pub fn counts_while_serving(m: &Message<'_, Kind>) -> bool {
    let counts = matches!(
        m.kind,
        Kind::Arguments
            | Kind::Ready
            | Kind::Retract
            | Kind::Batch
            | Kind::NotEnough
            | Kind::Stop
            | Kind::ChildDied
    );
    // Progress bars and logged requests only decide how the rest of the line is read.
    matches!(m.kind, Kind::Bar | Kind::RequestLog)
        || counts && (opens_line(m.prefix) || raised(m.prefix))
}

/// Whether an out-of-memory error in a line of a serving server is its own: at the beginning of a
/// message, or of an exception.
pub fn lacks_while_serving(text: &str) -> bool {
    let message = bare(text);
    is_exception(message)
        || torch::LACK.iter().any(|sign| message.starts_with(sign))
        || message.starts_with("terminate called")
        || message.starts_with("what():")
}

/// `RuntimeError: `, before the message of an exception.
fn raised(prefix: &str) -> bool {
    is_exception(bare(prefix))
}

/// Whether `prefix` consists of dates, levels, tags or a container's name.
fn opens_line(prefix: &str) -> bool {
    let prefix = match prefix.split_once(" | ") {
        Some((name, rest)) if !name.trim_end().contains(' ') => rest,
        _ => prefix,
    };
    let mut tag = false;
    prefix.split_whitespace().all(|word| {
        let inside = tag || word.starts_with('[');
        tag = inside && !word.contains(']');
        inside || word == "Rank" || !word.contains(|c: char| c.is_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_distinguished_from_prose() {
        for prefix in [
            "",
            "[2031-01-02 03:04:05 TP0] ",
            "[2031-01-02 03:04:05] INFO: ",
            "sglang-1  | [2031-01-02 03:04:05 DP0 TP1] ",
            "2031-01-02T03:04:05.678Z [gpu_id=1] ",
            "Rank 1: ",
        ] {
            assert!(opens_line(prefix), "{prefix}");
        }
        for prefix in ["[x] INFO: user says: ", "say ", "[x] it said [y] "] {
            assert!(!opens_line(prefix), "{prefix}");
        }
    }
}
