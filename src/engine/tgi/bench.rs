//! Why TGI's own bench is not run.

use crate::engine::{BenchKind, PlanError};

/// The refusal, with its reason.
///
/// `text-generation-benchmark` draws on a terminal, ends at a key press and writes no file. It also
/// talks to the shards' sockets, past the router that admits requests, which can crash a live
/// server for lack of memory (huggingface/text-generation-inference issues 1286, 1831, 2952).
pub fn none(kind: BenchKind) -> PlanError {
    PlanError::NoSuchBench {
        engine: "tgi",
        kind: kind.as_str(),
        reason: match kind {
            BenchKind::Serve => {
                "text-generation-benchmark needs a terminal, writes no result and goes past the \
                 router's admission, which can end a live server"
            }
            BenchKind::Probe => crate::engine::NO_PROBE,
            BenchKind::Latency | BenchKind::Throughput => {
                "nothing of it loads a model within a bench; load the running server instead"
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_says_why() {
        let text = none(BenchKind::Serve).to_string();
        assert!(
            text.starts_with("engine `tgi` has no serve bench: "),
            "{text}"
        );
        assert!(text.contains("terminal"), "{text}");
    }
}
