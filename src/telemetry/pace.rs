//! When readings are made: full readings less often than requested if they are slow and more often
//! for a moment at phase boundaries, cheap probes in between, and costly readings within their share
//! of the time.

use super::MemoryBackend;
use super::sampler::SamplerOptions;
use crate::capture::{AtNs, MemorySample};
use crate::clock::{Clock, to_nanos};
use std::time::Duration;

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

/// How many of the last costs are kept.
const KEPT_COSTS: usize = 15;

/// How long the last readings took, nanoseconds.
#[derive(Debug, Default)]
struct LastCosts {
    costs: [i64; KEPT_COSTS],
    noted: usize,
}

impl LastCosts {
    fn note_cost(&mut self, cost_ns: i64) {
        self.costs[self.noted % KEPT_COSTS] = cost_ns;
        self.noted += 1;
    }

    fn last(&self) -> i64 {
        self.costs[self.noted.saturating_sub(1) % KEPT_COSTS]
    }

    /// The median, as an interrupted reading takes longer but does not cost more; `None` of fewer than `least`.
    fn median_of(&self, least: usize) -> Option<i64> {
        let mut costs = self.costs;
        let known = &mut costs[..self.noted.min(KEPT_COSTS)];
        (known.len() >= least).then(|| *known.select_nth_unstable(known.len() / 2).1)
    }
}

/// Decides when the next full reading is made.
#[derive(Debug)]
pub struct Pace {
    interval_ns: i64,
    costs: LastCosts,
    burst_until: AtNs,
}

impl Pace {
    /// For ticks at this interval.
    pub fn new(interval_ns: i64) -> Pace {
        Pace {
            interval_ns,
            costs: LastCosts::default(),
            burst_until: AtNs::MIN,
        }
    }

    /// Records how long a full reading took.
    pub fn note_cost(&mut self, cost_ns: i64) {
        self.costs.note_cost(cost_ns);
    }

    /// Take every Nth tick; 1 takes all.
    pub fn tick_stretch(&self) -> i64 {
        let Some(median) = self.costs.median_of(ENOUGH) else {
            return 1;
        };
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
        let cheap = self.costs.last().saturating_mul(COST_FACTOR) <= BURST_EVERY_NS;
        // A reading right before the tick would add nothing.
        (cheap && at <= self.burst_until && at + BURST_EVERY_NS / 2 <= due).then_some(at)
    }
}

/// Probing takes at most one hundredth of the time: a slow probe (many GPUs, a busy driver) is made
/// less often.
const PROBE_COST_FACTOR: i64 = 100;

/// The cheap readings between two full ones.
pub struct Probing {
    /// The initial interval; `None` forbids probing.
    base_ns: Option<i64>,
    tick_ns: i64,
    /// The interval now, nanoseconds.
    pub interval_ns: i64,
    /// Whether any probe succeeded.
    pub used: bool,
    costs: LastCosts,
    /// Ticks without probes, because a probe takes too long.
    rested: u32,
    /// Lowest and highest usage since the last sample, per device.
    range: Vec<Option<(u64, u64)>>,
    values: Vec<u64>,
}

/// Splits a tick into equal parts, none longer than `longest` if parts of at least `floor` allow
/// it, with a probe at the end of each part but the last. `None` where there is no room for one.
/// Parts of a fixed length would leave a longer gap before the full reading.
fn split_tick(tick_ns: i64, longest: i64, floor: i64) -> Option<i64> {
    let wanted = tick_ns.saturating_add(longest - 1) / longest;
    let parts = wanted.min(tick_ns / floor);
    (parts >= 2).then(|| tick_ns / parts)
}

impl Probing {
    /// For a backend that may be probed every `floor`.
    pub fn new(floor: Option<Duration>, options: SamplerOptions, devices: usize) -> Probing {
        let tick_ns = to_nanos(options.interval);
        let base_ns = floor.and_then(|floor| {
            split_tick(
                tick_ns,
                to_nanos(options.probe_interval).max(1),
                to_nanos(floor).max(1),
            )
        });
        Probing {
            base_ns,
            tick_ns,
            interval_ns: base_ns.unwrap_or_default(),
            used: false,
            costs: LastCosts::default(),
            rested: 0,
            range: vec![None; devices],
            values: Vec::with_capacity(devices),
        }
    }

    /// When to probe next, with a full reading coming at `due`.
    pub fn next(&mut self, now: AtNs, due: AtNs) -> Option<AtNs> {
        self.base_ns?;
        let mut interval = self.interval_ns;
        if interval * 2 > self.tick_ns {
            // Too expensive now; retried once in a while.
            self.rested += 1;
            if self.rested % 16 != 0 {
                return None;
            }
            interval = self.tick_ns / 2;
        }
        // A probe right before the full reading would add nothing.
        Some(now + interval).filter(|at| at + interval / 2 <= due)
    }

    /// Makes one probe.
    pub fn make_probe(&mut self, backend: &mut dyn MemoryBackend, clock: &Clock) {
        let start = clock.now();
        // A failure shows at the next full reading, where it is counted.
        if backend.probe(&mut self.values).is_ok() {
            for (range, value) in self.range.iter_mut().zip(&self.values) {
                // 0 is a device that could not be read.
                if *value > 0 {
                    let (low, high) = range.unwrap_or((*value, *value));
                    *range = Some((low.min(*value), high.max(*value)));
                }
            }
            self.used = true;
        }
        self.costs.note_cost(clock.now() - start);
        if let (Some(base), Some(median)) = (self.base_ns, self.costs.median_of(KEPT_COSTS)) {
            self.interval_ns = median.saturating_mul(PROBE_COST_FACTOR).max(base);
        }
    }

    /// Adds to a sample the lowest and highest usage of its device since its previous sample.
    pub fn note_range(&mut self, sample: &mut MemorySample) {
        let range = self
            .range
            .get_mut(sample.device as usize)
            .and_then(Option::take);
        // A backend with its own range (a replay) keeps it.
        if let Some((low, high)) = range {
            let (own_low, own_high) = (sample.low_bytes, sample.high_bytes);
            sample.low_bytes = Some(low.min(own_low.unwrap_or(u64::MAX)).min(sample.used_bytes));
            sample.high_bytes = Some(high.max(own_high.unwrap_or(0)).max(sample.used_bytes));
        }
    }
}

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
    pub fn note_reading(&mut self, start: AtNs, end: AtNs) -> i64 {
        self.last = Some(start);
        self.cost_ns = end - start;
        self.cost_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn slow_readings_are_made_less_often_and_quick_ones_as_asked() {
        let mut pace = Pace::new(100 * MS);
        assert_eq!(pace.tick_stretch(), 1);
        for _ in 0..4 {
            pace.note_cost(70 * MS);
        }
        assert_eq!(pace.tick_stretch(), 1, "too few to judge by");
        pace.note_cost(70 * MS);
        assert_eq!(pace.tick_stretch(), 7, "a tenth of the time");
        for _ in 0..20 {
            pace.note_cost(MS);
        }
        assert_eq!(pace.tick_stretch(), 1);
        pace.note_cost(900 * MS);
        assert_eq!(pace.tick_stretch(), 1, "one that was interrupted");
        for _ in 0..20 {
            pace.note_cost(i64::MAX);
        }
        assert_eq!(pace.tick_stretch(), 100);
    }

    #[test]
    fn a_burst_ends_and_leaves_room_for_the_ticks() {
        let mut pace = Pace::new(100 * MS);
        pace.note_cost(MS / 10);
        assert_eq!(pace.burst_due(0, 100 * MS), None);
        pace.begin_burst(0);
        assert_eq!(pace.burst_due(0, 100 * MS), Some(10 * MS));
        assert_eq!(pace.burst_due(90 * MS, 100 * MS), None);
        assert_eq!(pace.burst_due(295 * MS, 400 * MS), None);
        pace.note_cost(5 * MS);
        assert_eq!(pace.burst_due(0, 100 * MS), None, "too dear");
        let mut fast = Pace::new(10 * MS);
        fast.begin_burst(0);
        assert_eq!(fast.burst_due(0, 100 * MS), None, "it is one already");
    }
}
