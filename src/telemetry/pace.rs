//! How often full readings are made: less often than requested when they are slow, more often for a
//! moment at phase boundaries.

use crate::capture::AtNs;

/// Full readings take at most one tenth of the time. Slow ones hold locks that users of the GPU
/// need too.
const COST_FACTOR: i64 = 10;
/// Longest delay of a tick, nanoseconds.
const LONGEST_NS: i64 = 10_000_000_000;
/// Minimum number of readings for an estimate.
const ENOUGH: usize = 5;
/// Length of a burst after a phase boundary, nanoseconds: loading weights or allocating a pool
/// begins.
const BURST_NS: i64 = 300_000_000;
/// Interval of readings in a burst, nanoseconds.
const BURST_EVERY_NS: i64 = 10_000_000;

/// Decides when the next full reading is made.
#[derive(Debug)]
pub struct Pace {
    interval_ns: i64,
    /// How long the last readings took, nanoseconds.
    costs: [i64; 15],
    readings: usize,
    burst_until: AtNs,
}

impl Pace {
    /// For ticks at this interval.
    pub fn new(interval_ns: i64) -> Pace {
        Pace {
            interval_ns,
            costs: [0; 15],
            readings: 0,
            burst_until: AtNs::MIN,
        }
    }

    /// Records how long a full reading took.
    pub fn note(&mut self, cost_ns: i64) {
        self.costs[self.readings % self.costs.len()] = cost_ns;
        self.readings += 1;
    }

    /// Take every Nth tick; 1 takes all. Uses the median of the last readings, because an
    /// interrupted one is not representative.
    pub fn stretch(&self) -> i64 {
        let mut costs = self.costs;
        let known = &mut costs[..self.readings.min(self.costs.len())];
        if known.len() < ENOUGH {
            return 1;
        }
        let (_, median, _) = known.select_nth_unstable(known.len() / 2);
        let wanted = median.saturating_mul(COST_FACTOR).min(LONGEST_NS);
        (wanted + self.interval_ns - 1)
            .div_euclid(self.interval_ns)
            .max(1)
    }

    /// Begins a burst, if the ticks are far enough apart to leave room for one.
    pub fn begin_burst(&mut self, now: AtNs) {
        if self.interval_ns >= 2 * BURST_EVERY_NS {
            self.burst_until = now + BURST_NS;
        }
    }

    /// When the next reading of a burst is due, with a tick coming at `due`.
    pub fn burst_due(&self, now: AtNs, due: AtNs) -> Option<AtNs> {
        let at = now + BURST_EVERY_NS;
        let cost = self.costs[self.readings.saturating_sub(1) % self.costs.len()];
        let cheap = cost.saturating_mul(COST_FACTOR) <= BURST_EVERY_NS;
        // A reading right before the tick would add nothing.
        (cheap && at <= self.burst_until && at + BURST_EVERY_NS / 2 <= due).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn slow_readings_are_made_less_often_and_quick_ones_as_asked() {
        let mut pace = Pace::new(100 * MS);
        assert_eq!(pace.stretch(), 1);
        for _ in 0..4 {
            pace.note(70 * MS);
        }
        assert_eq!(pace.stretch(), 1, "too few to judge by");
        pace.note(70 * MS);
        assert_eq!(pace.stretch(), 7, "a tenth of the time");
        for _ in 0..20 {
            pace.note(MS);
        }
        assert_eq!(pace.stretch(), 1);
        pace.note(900 * MS);
        assert_eq!(pace.stretch(), 1, "one that was interrupted");
        for _ in 0..20 {
            pace.note(i64::MAX);
        }
        assert_eq!(pace.stretch(), 100);
    }

    #[test]
    fn a_burst_ends_and_leaves_room_for_the_ticks() {
        let mut pace = Pace::new(100 * MS);
        pace.note(MS / 10);
        assert_eq!(pace.burst_due(0, 100 * MS), None);
        pace.begin_burst(0);
        assert_eq!(pace.burst_due(0, 100 * MS), Some(10 * MS));
        assert_eq!(pace.burst_due(90 * MS, 100 * MS), None);
        assert_eq!(pace.burst_due(295 * MS, 400 * MS), None);
        pace.note(5 * MS);
        assert_eq!(pace.burst_due(0, 100 * MS), None, "too dear");
        let mut fast = Pace::new(10 * MS);
        fast.begin_burst(0);
        assert_eq!(fast.burst_due(0, 100 * MS), None, "it is one already");
    }
}
