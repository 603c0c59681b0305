//! Whether memory grows over a long time: drift, a step, or neither.
//!
//! The slope is Theil and Sen's (the median of the slopes of all pairs), its interval Sen's of 1968
//! by Kendall's variance, at 95 %. Readings that follow each other are not independent, so the
//! interval is a little too narrow, and one steady series of 40 lies above 0 by chance. Growth below
//! [`LEAST_SHARE`], or below the spread of the readings around the slope, is therefore none.

use crate::capture::{DeviceFacts, MemorySample};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bins of a series; of more, neighbours are joined.
const MOST_BINS: usize = 256;
/// Width of a bin at first, seconds.
const FIRST_WIDTH_S: f64 = 1.0;
/// This part of a series is warm-up.
const WARM_UP: f64 = 0.25;
/// A shorter series has no verdict, seconds.
const LEAST_SPAN_S: f64 = 600.0;
/// Growth below this share of what is in use is none.
const LEAST_SHARE: f64 = 0.01;
/// Nor is growth of less than this, bytes.
const LEAST_BYTES: f64 = (8 << 20) as f64;
/// Where the slope explains less than this part of the growth, it was a step: at most half of all
/// pairs lie on both sides of one.
const DRIFT_SHARE: f64 = 0.5;
/// Quantile of the normal distribution for 95 %.
const Z_95: f64 = 1.96;

/// Memory in use over a long time. Of each bin of time the least counts: what is given back is no
/// growth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GrowthSeries {
    /// Time of its first reading in seconds, and the least of its bytes.
    bins: Vec<(f64, u64)>,
    width_s: f64,
}

/// Growth of each device that samples name.
#[derive(Debug, Default)]
pub struct DeviceGrowth(BTreeMap<u32, GrowthSeries>);

impl DeviceGrowth {
    /// Takes a sample; page cache does not count.
    pub fn add_sample(&mut self, sample: &MemorySample) {
        let series = self.0.entry(sample.device).or_default();
        series.add_reading(sample.at_ns as f64 / 1e9, sample.held_bytes());
    }

    /// A sentence for each device that was sampled long enough.
    pub fn describe_devices(&self, devices: &[DeviceFacts]) -> Vec<String> {
        let describe = |device: &DeviceFacts| {
            let growth = self.0.get(&device.index)?.find_growth()?;
            let text = growth.describe_growth(device.total_bytes);
            Some(format!("{} {text}", device.name))
        };
        devices.iter().filter_map(describe).collect()
    }
}

/// How memory grew after its warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryGrowth {
    /// Bytes per hour: the slope, and its interval of 95 %.
    pub per_hour: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Bytes at the end, less those at the end of the warm-up: medians of an eighth of the time each.
    pub total: f64,
    /// Bytes in which the middle 80 % of the readings lie around the slope.
    pub spread: f64,
    /// Bytes at the end.
    pub last: u64,
    /// Seconds that were looked at.
    pub span_s: f64,
}

/// Kinds of growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthKind {
    /// None beyond noise.
    Flat,
    /// Mostly one rise.
    Step,
    /// It goes on.
    Drift,
}

impl GrowthSeries {
    /// Takes a reading; times ascend.
    pub fn add_reading(&mut self, at_s: f64, bytes: u64) {
        let width_s = self.width_s.max(FIRST_WIDTH_S);
        match self.bins.last_mut() {
            Some((begin, least)) if at_s < *begin + width_s => *least = bytes.min(*least),
            _ => self.bins.push((at_s, bytes)),
        }
        if self.bins.len() > MOST_BINS {
            let joined = self.bins.chunks(2).map(|pair| {
                let least = pair.iter().map(|(_, bytes)| *bytes).min();
                (pair[0].0, least.unwrap_or(0))
            });
            self.bins = joined.collect();
            self.width_s = width_s * 2.0;
        }
    }

    /// The growth after the warm-up; `None` where the series is too short.
    pub fn find_growth(&self) -> Option<MemoryGrowth> {
        let (begin, end) = (self.bins.first()?.0, self.bins.last()?.0);
        let warm = begin + (end - begin) * WARM_UP;
        let bins: Vec<(f64, f64)> = (self.bins.iter())
            .filter(|(at, _)| *at >= warm)
            .map(|(at, bytes)| (*at, *bytes as f64))
            .collect();
        let span_s = end - bins.first()?.0;
        if end - begin < LEAST_SPAN_S || bins.len() < 8 {
            return None;
        }
        let mut slopes = Vec::with_capacity(bins.len() * (bins.len() - 1) / 2);
        for (place, (at, bytes)) in bins.iter().enumerate() {
            let later = bins[place + 1..].iter();
            slopes.extend(later.map(|(then, more)| (more - bytes) / (then - at) * 3600.0));
        }
        slopes.sort_by(f64::total_cmp);
        let (pairs, n) = (slopes.len() as f64, bins.len() as f64);
        let width = Z_95 * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
        let at = |place: f64| slopes[(place.max(0.0) as usize).min(slopes.len() - 1)];
        let per_hour = at(pairs / 2.0);
        let quantile = |mut bytes: Vec<f64>, part: f64| {
            bytes.sort_by(f64::total_cmp);
            bytes[(bytes.len() as f64 * part) as usize]
        };
        let median =
            |bins: &[(f64, f64)]| quantile(bins.iter().map(|(_, bytes)| *bytes).collect(), 0.5);
        let eighth = bins.len() / 8;
        let around: Vec<f64> = bins
            .iter()
            .map(|(at, bytes)| bytes - per_hour * at / 3600.0)
            .collect();
        Some(MemoryGrowth {
            per_hour,
            low: at((pairs - width) / 2.0),
            high: at((pairs + width) / 2.0),
            total: median(&bins[bins.len() - eighth..]) - median(&bins[..eighth]),
            spread: quantile(around.clone(), 0.9) - quantile(around, 0.1),
            last: self.bins.last()?.1,
            span_s,
        })
    }
}

impl MemoryGrowth {
    /// Which kind it is.
    pub fn growth_kind(&self) -> GrowthKind {
        let counts = LEAST_BYTES.max(self.last as f64 * LEAST_SHARE);
        if self.total < counts {
            GrowthKind::Flat
        } else if self.per_hour * self.span_s / 3600.0 < DRIFT_SHARE * self.total {
            GrowthKind::Step
        } else if self.low > 0.0 && self.total > self.spread {
            GrowthKind::Drift
        } else {
            GrowthKind::Flat
        }
    }

    /// As a sentence's end: `grows by 120.00 MiB an hour (110.00 to 130.00), and reaches its limit
    /// of 8.00 GiB in 12 h`. `limit`: bytes.
    pub fn describe_growth(&self, limit: Option<u64>) -> String {
        let bytes = |value: f64| Bytes(value.max(0.0) as u64);
        let minutes = self.span_s / 60.0;
        match self.growth_kind() {
            GrowthKind::Flat => format!("does not grow after its warm-up ({minutes:.0} min)"),
            GrowthKind::Step => format!(
                "rose by {} after its warm-up ({minutes:.0} min), mostly at once: a step, no drift",
                bytes(self.total)
            ),
            GrowthKind::Drift => {
                let rest = limit.and_then(|limit| limit.checked_sub(self.last));
                let reached = rest.map_or(String::new(), |rest| {
                    let hours = rest as f64 / self.per_hour.max(1.0);
                    format!(", and reaches its limit in {hours:.1} h at this rate")
                });
                format!(
                    "grows by {} an hour ({} to {}, over {minutes:.0} min){reached}",
                    bytes(self.per_hour),
                    bytes(self.low),
                    bytes(self.high)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hash::{DefaultHasher, Hash, Hasher};

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    /// Readings of `hours`, one in ten seconds.
    fn series(hours: f64, bytes: impl Fn(f64) -> u64) -> GrowthSeries {
        let mut series = GrowthSeries::default();
        for place in 0..(hours * 360.0) as u64 {
            let at_s = place as f64 * 10.0;
            series.add_reading(at_s, bytes(at_s));
        }
        series
    }

    /// Noise of up to `most` bytes upwards, the same at each run of a `seed`.
    fn noise(at_s: f64, seed: u64, most: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (at_s as u64, seed).hash(&mut hasher);
        hasher.finish() % most
    }

    proptest! {
        #[test]
        fn a_leak_is_found_with_its_rate_under_noise(rate_mib in 20_u64..500, most_mib in 1_u64..200, seed: u64) {
            let leak = |at_s: f64| GIB + (rate_mib as f64 * at_s / 3600.0) as u64 * MIB + noise(at_s, seed, most_mib * MIB);
            let found = series(12.0, leak).find_growth().unwrap();
            let rate = rate_mib as f64 * MIB as f64;
            prop_assert!((found.per_hour - rate).abs() < rate * 0.1 + MIB as f64, "{found:?}");
            prop_assert_eq!(found.growth_kind(), GrowthKind::Drift);
        }

        #[test]
        fn noise_and_warm_up_are_no_leak(most_mib in 1_u64..500, warm_up_gib in 0_u64..8, seed: u64) {
            let steady = |at_s: f64| {
                let rising = (at_s / 1800.0).min(1.0) * (warm_up_gib * GIB) as f64;
                GIB + rising as u64 + noise(at_s, seed, most_mib * MIB)
            };
            let found = series(6.0, steady).find_growth().unwrap();
            prop_assert_ne!(found.growth_kind(), GrowthKind::Drift, "{:?}", found);
        }
    }

    #[test]
    fn page_cache_is_no_growth() {
        let mut growth = DeviceGrowth::default();
        for place in 0..2_000 {
            let read = place * MIB;
            growth.add_sample(&MemorySample {
                at_ns: place as i64 * 1_000_000_000,
                used_bytes: GIB + read,
                host: Some(crate::capture::HostSplit {
                    file_bytes: Some(read),
                    ..Default::default()
                }),
                ..MemorySample::default()
            });
        }
        let device = DeviceFacts {
            name: "container memory".into(),
            ..DeviceFacts::default()
        };
        let [sentence] = &growth.describe_devices(&[device])[..] else {
            panic!("{growth:?}")
        };
        assert!(
            sentence.starts_with("container memory does not grow"),
            "{sentence}"
        );
    }

    #[test]
    fn a_step_is_no_drift_and_a_limit_has_its_hour() {
        let step = |at_s: f64| GIB + if at_s > 15_000.0 { 2 * GIB } else { 0 };
        let found = series(6.0, step).find_growth().unwrap();
        assert_eq!(found.growth_kind(), GrowthKind::Step);
        let leak = |at_s: f64| GIB + (at_s / 36.0) as u64 * MIB;
        let found = series(6.0, leak).find_growth().unwrap();
        let text = found.describe_growth(Some(found.last + 200 * MIB));
        assert!(text.contains("reaches its limit in 2.0 h"), "{text}");
        assert_eq!(series(0.1, leak).find_growth(), None, "too short to tell");
    }
}
