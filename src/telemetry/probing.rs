//! Cheap readings between two full ones, as often as their cost permits.

use super::MemoryBackend;
use super::sampler::Options;
use crate::capture::{AtNs, MemorySample};
use crate::clock::{Clock, nanos};
use std::time::Duration;

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
    /// How long the last probes took, nanoseconds.
    costs: [i64; 15],
    probes: usize,
    /// Ticks without probes, because a probe takes too long.
    rested: u32,
    /// Lowest and highest usage since the last sample, per device.
    range: Vec<Option<(u64, u64)>>,
    values: Vec<u64>,
}

/// Splits a tick into equal parts, none longer than `longest` if parts of at least `floor` allow
/// it, with a probe at the end of each part but the last. `None` where there is no room for one.
/// Parts of a fixed length would leave a longer gap before the full reading.
fn share(tick_ns: i64, longest: i64, floor: i64) -> Option<i64> {
    let wanted = tick_ns.saturating_add(longest - 1) / longest;
    let parts = wanted.min(tick_ns / floor);
    (parts >= 2).then(|| tick_ns / parts)
}

impl Probing {
    /// For a backend that may be probed every `floor`.
    pub fn new(floor: Option<Duration>, options: Options, devices: usize) -> Probing {
        let tick_ns = nanos(options.interval);
        let base_ns = floor.and_then(|floor| {
            share(
                tick_ns,
                nanos(options.probe_interval).max(1),
                nanos(floor).max(1),
            )
        });
        Probing {
            base_ns,
            tick_ns,
            interval_ns: base_ns.unwrap_or_default(),
            used: false,
            costs: [0; 15],
            probes: 0,
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
    pub fn probe(&mut self, backend: &mut dyn MemoryBackend, clock: &Clock) {
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
        self.costs[self.probes % self.costs.len()] = clock.now() - start;
        self.probes += 1;
        if let Some(base) = self.base_ns {
            if self.probes >= self.costs.len() {
                // The median: an interrupted probe took longer, but did not cost more.
                let mut costs = self.costs;
                let (_, median, _) = costs.select_nth_unstable(self.costs.len() / 2);
                self.interval_ns = median.saturating_mul(PROBE_COST_FACTOR).max(base);
            }
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
