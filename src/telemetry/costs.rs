//! Cost of each kind of backend call, and the histogram of durations behind it, in bounded memory.

use crate::capture::CallCost;

/// Wall times of calls, by kind.
#[derive(Debug, Default)]
pub struct CallLedger(Vec<CallEntry>);

#[derive(Debug)]
struct CallEntry {
    name: &'static str,
    calls: u64,
    sum_ns: u64,
    max_ns: u64,
    histogram: Histogram,
}

impl CallLedger {
    /// Records a call of this duration, nanoseconds; negative (clock stepped back) counts as 0.
    pub fn note_call(&mut self, name: &'static str, ns: i64) {
        let ns = ns.max(0).unsigned_abs();
        let entry = match self.0.iter().position(|e| e.name == name) {
            Some(place) => &mut self.0[place],
            None => {
                self.0.push(CallEntry {
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
        entry.histogram.add_duration(ns);
    }

    /// The costs so far.
    pub fn report_costs(&self) -> Vec<CallCost> {
        let cost = |e: &CallEntry| CallCost {
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

/// Buckets per doubling: a percentile is at most an eighth too high.
const STEPS: u32 = 8;

/// Counts durations in buckets that widen with the duration.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: [u64; (STEPS * 62) as usize],
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: [0; (STEPS * 62) as usize],
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration, nanoseconds.
    pub fn add_duration(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
    }

    /// The duration that this share (0 to 1) of all does not exceed, nanoseconds; `None` without
    /// any. It is the upper end of a bucket: at most an eighth too high.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut counted = 0;
        self.counts
            .iter()
            .position(|n| {
                counted += n;
                counted >= rank
            })
            .map(upper_end)
    }
}

fn bucket(ns: u64) -> usize {
    if ns < u64::from(STEPS) {
        return ns as usize;
    }
    let power = ns.ilog2();
    let step = (ns >> (power - STEPS.ilog2())) as u32 - STEPS;
    ((power - STEPS.ilog2() + 1) * STEPS + step) as usize
}

fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let steps = u64::from(STEPS);
    if bucket < steps {
        return bucket;
    }
    let (power, step) = (bucket / steps - 1, bucket % steps);
    // The last bucket ends at u64::MAX, one below a power of two that does not fit.
    (u128::from(steps + step + 1) << power)
        .saturating_sub(1)
        .min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_kind() {
        let mut ledger = CallLedger::default();
        assert!(ledger.report_costs().is_empty());
        (0..99).for_each(|_| ledger.note_call("memory", 10_000));
        ledger.note_call("memory", 2_000_000);
        ledger.note_call("processes", -5);
        let [memory, processes] = &ledger.report_costs()[..] else {
            panic!("{ledger:?}")
        };
        assert_eq!((memory.calls, memory.mean_ns), (100, 29_900));
        assert!((10_000..12_000).contains(&memory.p99_ns), "{memory:?}");
        assert_eq!(memory.max_ns, 2_000_000);
        assert_eq!((processes.calls, processes.max_ns), (1, 0));
    }
}

#[cfg(test)]
mod jitter_tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_of_known_durations() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.99), None);
        h.add_duration(5);
        assert_eq!(
            (h.quantile(0.0), h.quantile(0.99), h.quantile(1.0)),
            (Some(5), Some(5), Some(5))
        );
        for _ in 0..98 {
            h.add_duration(5);
        }
        h.add_duration(1_000_000);
        assert_eq!(h.quantile(0.99), Some(5));
        let top = h.quantile(1.0).unwrap();
        assert!((1_000_000..=1_125_000).contains(&top), "{top}");
    }

    proptest! {
        #[test]
        fn a_bucket_holds_what_is_put_in(ns in any::<u64>()) {
            let end = upper_end(bucket(ns));
            prop_assert!(end >= ns && end - ns <= ns / 8, "{ns} {end}");
        }
    }

    #[test]
    fn the_ends_of_the_scale_have_buckets() {
        for ns in [0, 7, 8, 9, 15, 16, u64::MAX - 1, u64::MAX] {
            assert!(upper_end(bucket(ns)) >= ns, "{ns}");
        }
    }
}
