//! Moments of all devices together: which readings belong to one tick, and which devices are in it.

use super::series::SampleSeries;
use crate::capture::AtNs;

/// Reading all devices once takes no longer than this, or than the interval between readings.
const READING_NS: AtNs = 50_000_000;

/// A device is lost when the others were read on for this long, and for this many intervals.
const LOST_AFTER_NS: AtNs = 1_000_000_000;
const LOST_AFTER_INTERVALS: AtNs = 5;

/// One reading of the devices. Each is read at its own moment, one after the other.
#[derive(Debug)]
pub struct DeviceTick {
    /// When the first was read.
    pub at_ns: AtNs,
    /// A sample of each device that was still read: the device, and the sample's place among the
    /// device's.
    pub samples: Vec<(u32, u32)>,
    /// Whether every device is in it, so that a sum over it is the whole memory.
    pub whole: bool,
}

/// The ticks of a series in order of time. A tick that misses a device is left out, unless that
/// device was lost before it.
pub fn group_into_ticks(series: &SampleSeries, interval_ns: u64) -> Vec<DeviceTick> {
    let interval = AtNs::try_from(interval_ns).unwrap_or(AtNs::MAX);
    let longest = interval.max(READING_NS);
    let read = (0..series.device_count())
        .filter(|d| !series.rows_of_device(*d).is_empty())
        .count();
    let lost = lost_devices(series, interval_ns);
    let mut samples: Vec<(AtNs, u32, u32)> = (0..series.device_count())
        .flat_map(|d| {
            let rows = series.rows_of_device(d);
            // Bursts crowd at the edges of phases: means over time would lean towards those.
            let places = (0..rows.len()).filter(move |i| !rows.is_burst(*i));
            places.map(move |i| (rows.sample_times()[i], d as u32, i as u32))
        })
        .collect();
    samples.sort();

    let mut ticks: Vec<DeviceTick> = Vec::new();
    for (at_ns, device, place) in samples {
        // Devices are read in their order.
        match ticks.last_mut().filter(|t| {
            t.samples.last().is_some_and(|s| s.0 < device)
                && at_ns.saturating_sub(t.at_ns) < longest
        }) {
            Some(tick) => tick.samples.push((device, place)),
            None => ticks.push(DeviceTick {
                at_ns,
                samples: vec![(device, place)],
                whole: false,
            }),
        }
    }
    ticks.retain_mut(|tick| {
        tick.whole = tick.samples.len() == read;
        let gone = lost.iter().filter(|(_, at)| *at < tick.at_ns).count();
        tick.samples.len() + gone >= read
    });
    ticks
}

/// Devices with readings that ended for good while others went on, with the last moment they were
/// read.
pub fn lost_devices(series: &SampleSeries, interval_ns: u64) -> Vec<(u32, AtNs)> {
    let interval = AtNs::try_from(interval_ns).unwrap_or(AtNs::MAX);
    let patience = LOST_AFTER_NS.max(interval.saturating_mul(LOST_AFTER_INTERVALS));
    let last = |d: usize| Some((d as u32, series.rows_of_device(d).last()?.at_ns));
    let ends: Vec<(u32, AtNs)> = (0..series.device_count()).filter_map(last).collect();
    let end = ends.iter().map(|e| e.1).max().unwrap_or(AtNs::MIN);
    ends.into_iter()
        .filter(|(_, at)| end.saturating_sub(*at) > patience)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::capture::MemorySample;

    const MS: AtNs = 1_000_000;
    const INTERVAL: u64 = 100_000_000;

    fn sample(at_ns: AtNs, device: u32) -> MemorySample {
        MemorySample {
            at_ns,
            device,
            used_bytes: 1,
            ..Default::default()
        }
    }

    #[test]
    fn every_device_has_its_own_stamp() {
        let series = SampleSeries::new((0..20).flat_map(|i| {
            let at = i * 100 * MS;
            [sample(at, 0), sample(at + 123_413, 1), sample(at + MS, 2)]
        }));
        let ticks = group_into_ticks(&series, INTERVAL);
        assert_eq!(ticks.len(), 20);
        assert!(ticks.iter().all(|t| t.whole && t.samples.len() == 3));
    }

    #[test]
    fn a_reading_that_failed_does_not_mix_moments() {
        let mut samples: Vec<MemorySample> = (0..10)
            .flat_map(|i| [sample(i * 100 * MS, 0), sample(i * 100 * MS + MS, 1)])
            .collect();
        // Device 0 fails once; right after it an extra reading is taken at the edge of a phase.
        samples.remove(6);
        samples.extend([sample(305 * MS, 0), sample(306 * MS, 1)]);
        let series = SampleSeries::new(samples);
        let ticks = group_into_ticks(&series, INTERVAL);
        assert_eq!(ticks.len(), 10);
        for tick in ticks {
            let at = |(device, place): (u32, u32)| {
                series.rows_of_device(device as usize).sample_times()[place as usize]
            };
            assert_eq!(at(tick.samples[1]) - at(tick.samples[0]), MS);
        }
    }

    #[test]
    fn a_lost_device_leaves_the_others() {
        let until = |ms| move |s: &MemorySample| s.device == 0 || s.at_ns < ms * MS;
        let samples = |ms| {
            (0..50)
                .flat_map(|i| [sample(i * 100 * MS, 0), sample(i * 100 * MS + MS, 1)])
                .filter(until(ms))
        };
        let lost_one = SampleSeries::new(samples(2_000));
        assert_eq!(lost_devices(&lost_one, INTERVAL), [(1, 1_901 * MS)]);
        let all = group_into_ticks(&lost_one, INTERVAL);
        assert_eq!(all.len(), 50);
        assert_eq!(all.iter().filter(|t| t.whole).count(), 20);
        // A device that misses the last readings is not lost, and its ticks are incomplete.
        let late = SampleSeries::new(samples(4_500));
        assert_eq!(lost_devices(&late, INTERVAL), []);
        assert_eq!(group_into_ticks(&late, INTERVAL).len(), 45);
    }

    #[test]
    fn a_device_that_was_never_read_is_not_waited_for() {
        let series = SampleSeries::new((0..5).map(|i| sample(i * 100 * MS, 1)));
        assert_eq!(group_into_ticks(&series, INTERVAL).len(), 5);
        assert!(group_into_ticks(&series, INTERVAL).iter().all(|t| t.whole));
    }
}
