//! Cost of each kind of backend call, counted in bounded memory.

use super::jitter::Histogram;
use crate::capture::CallCost;

/// Wall times of calls, by kind.
#[derive(Debug, Default)]
pub struct Ledger(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    name: &'static str,
    calls: u64,
    sum_ns: u64,
    max_ns: u64,
    histogram: Histogram,
}

impl Ledger {
    /// Records a call of this duration, nanoseconds; negative (clock stepped back) counts as 0.
    pub fn note(&mut self, name: &'static str, ns: i64) {
        let ns = ns.max(0).unsigned_abs();
        let entry = match self.0.iter().position(|e| e.name == name) {
            Some(place) => &mut self.0[place],
            None => {
                self.0.push(Entry {
                    name,
                    calls: 0,
                    sum_ns: 0,
                    max_ns: 0,
                    histogram: Histogram::default(),
                });
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
        };
        entry.calls += 1;
        entry.sum_ns = entry.sum_ns.saturating_add(ns);
        entry.max_ns = entry.max_ns.max(ns);
        entry.histogram.add(ns);
    }

    /// The costs so far.
    pub fn report(&self) -> Vec<CallCost> {
        let cost = |e: &Entry| CallCost {
            name: e.name.to_owned(),
            calls: e.calls,
            mean_ns: e.sum_ns / e.calls.max(1),
            // The end of a bucket can exceed the longest call.
            p99_ns: e.histogram.quantile(0.99).unwrap_or(0).min(e.max_ns),
            max_ns: e.max_ns,
        };
        self.0.iter().map(cost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_kind() {
        let mut ledger = Ledger::default();
        assert!(ledger.report().is_empty());
        (0..99).for_each(|_| ledger.note("memory", 10_000));
        ledger.note("memory", 2_000_000);
        ledger.note("processes", -5);
        let [memory, processes] = &ledger.report()[..] else {
            panic!("{ledger:?}")
        };
        assert_eq!((memory.calls, memory.mean_ns), (100, 29_900));
        assert!((10_000..12_000).contains(&memory.p99_ns), "{memory:?}");
        assert_eq!(memory.max_ns, 2_000_000);
        assert_eq!((processes.calls, processes.max_ns), (1, 0));
    }
}
