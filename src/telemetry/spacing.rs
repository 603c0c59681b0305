//! When a costly reading is due: at an interval, and within its share of the time.

use crate::capture::AtNs;

/// The times of one kind of reading; all in nanoseconds.
#[derive(Debug)]
pub struct Spacing {
    /// Shortest interval.
    every_ns: i64,
    /// Shortest interval on request, at the edge of a phase.
    on_request_ns: i64,
    /// A reading takes at most one of this many parts of the time.
    cost_factor: i64,
    last: Option<AtNs>,
    cost_ns: i64,
}

impl Spacing {
    /// For readings at these intervals that may take one of `cost_factor` parts of the time.
    pub const fn new(every_ns: i64, on_request_ns: i64, cost_factor: i64) -> Spacing {
        Spacing {
            every_ns,
            on_request_ns,
            cost_factor,
            last: None,
            cost_ns: 0,
        }
    }

    /// Whether the next reading is due.
    pub fn is_due(&self, now: AtNs, on_request: bool) -> bool {
        let every = if on_request {
            self.on_request_ns
        } else {
            self.every_ns
        };
        let every = every.max(self.cost_ns.saturating_mul(self.cost_factor));
        self.last.is_none_or(|at| now - at >= every)
    }

    /// Notes a reading from `start` to `end`, and returns how long it took.
    pub fn note(&mut self, start: AtNs, end: AtNs) -> i64 {
        self.last = Some(start);
        self.cost_ns = end - start;
        self.cost_ns
    }
}
