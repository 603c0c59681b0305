//! Messages about CUDA graphs.

use super::readings::{Line, Readings};
use crate::engine::log::figures::{after, gib, gib_after, holds};

/// Reads the graph memory of `line`.
pub fn read(line: &Line<'_>, readings: &mut Readings) {
    if !holds(line.text, &["raph"]) {
        return;
    }
    let finished = "Graph capturing finished in ";
    if let Some(rest) = after(line.text, finished) {
        // A difference of free memory, so it can be negative. Before 0.6.4 only the time is printed.
        readings.figure("cuda_graph_gib", gib_after(rest, "took "), line, finished);
    }
    let estimated = "Estimated CUDA graph memory: ";
    readings.figure(
        "cuda_graph_estimated_gib",
        gib_after(line.text, estimated),
        line,
        estimated,
    );
    let pool = "CUDA graph pool memory: ";
    if let Some((actual, rest)) = after(line.text, pool).and_then(gib) {
        readings.figure("cuda_graph_pool_actual_gib", Some(actual), line, pool);
        // Said a second time here; the only time when the first line is missing.
        readings.figure(
            "cuda_graph_estimated_gib_in_pool_line",
            gib_after(rest, "(actual), "),
            line,
            pool,
        );
    }
}
