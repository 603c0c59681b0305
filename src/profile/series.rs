//! Memory samples as a series to ask: how much at this moment, how much at most.

use super::columns::{SampleColumns, SampleRows};
pub use crate::breakdown::PeakSource;
use crate::capture::{AtNs, MemorySample};
use std::sync::LazyLock;

/// More than any device holds, bytes (1 PiB), and than any run takes, nanoseconds (a century). A
/// damaged capture may say anything; below these every sum and difference fits its type.
pub const MOST_BYTES: u64 = 1 << 50;
const MOST_NS: u64 = 100 * 366 * 86_400 * 1_000_000_000;
/// More devices than any host has.
const MOST_DEVICES: usize = 1024;

/// Samples of all devices, each device's in order of time.
#[derive(Debug, Clone, Default)]
pub struct SampleSeries {
    devices: Vec<SampleColumns>,
    /// The median time between two readings of each device, nanoseconds; `None` with fewer than two.
    usual_gaps: Vec<Option<AtNs>>,
    /// Samples left out because nothing like them can have been read.
    pub impossible: u64,
}

/// The highest use of a device in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePeakReading {
    /// Bytes.
    pub bytes: u64,
    /// The sample nearest to it.
    pub nearest: MemorySample,
    /// How it was seen.
    pub source: PeakSource,
}

impl SampleSeries {
    /// Sorts samples into devices. What a driver keeps for itself counts as in use: no process
    /// can have it, and used + free = total holds only so.
    pub fn new(samples: impl IntoIterator<Item = MemorySample>) -> SampleSeries {
        let mut devices: Vec<SampleColumns> = Vec::new();
        // Out of order, by device: a damaged capture has some.
        let mut late: Vec<Vec<MemorySample>> = Vec::new();
        let (mut impossible, mut late_count) = (0, 0);
        for mut sample in samples {
            if !is_possible(&sample) {
                impossible += 1;
                continue;
            }
            let reserved = sample.reserved_bytes.unwrap_or(0);
            sample.used_bytes += reserved;
            sample.low_bytes = sample.low_bytes.map(|l| l + reserved);
            sample.high_bytes = sample.high_bytes.map(|h| h + reserved);
            let index = sample.device as usize;
            if devices.len() <= index {
                devices.resize_with(index + 1, SampleColumns::default);
                late.resize_with(index + 1, Vec::new);
            }
            if devices[index]
                .last_at()
                .is_some_and(|last| last > sample.at_ns)
            {
                late_count += 1;
                if late_count <= MOST_LATE {
                    late[index].push(sample)
                } else {
                    impossible += 1
                }
            } else {
                devices[index].push(sample);
            }
        }
        for (columns, late) in devices.iter_mut().zip(late) {
            if !late.is_empty() {
                *columns = in_order(columns, late);
            }
        }
        SampleSeries {
            usual_gaps: devices.iter().map(|d| median_gap(d.all_rows())).collect(),
            devices,
            impossible,
        }
    }

    /// Number of devices that were ever sampled.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Samples of one device in time order.
    pub fn rows_of_device(&self, device: usize) -> SampleRows<'_> {
        self.between(device, 0, usize::MAX)
    }

    /// The median time between two readings of one device, nanoseconds.
    pub fn usual_gap(&self, device: usize) -> Option<AtNs> {
        *self.usual_gaps.get(device)?
    }

    /// Least memory of the host that was available at a sample of one device, bytes.
    pub fn least_available_bytes(&self, device: usize) -> Option<u64> {
        self.devices.get(device)?.least_available_bytes()
    }

    /// Samples of one device between two moments, both inclusive.
    pub fn rows_in_window(&self, device: usize, from: AtNs, to: AtNs) -> SampleRows<'_> {
        let count = |at, inclusive| {
            let columns = self.devices.get(device);
            columns.map_or(0, |c| c.count_before(at, inclusive))
        };
        self.between(device, count(from, false), count(to, true))
    }

    fn between(&self, device: usize, from: usize, to: usize) -> SampleRows<'_> {
        SampleRows::rows_between(self.devices.get(device).unwrap_or(&NOTHING), from, to)
    }

    /// The first sample at or after a moment, else the last before it.
    pub fn sample_at(&self, device: usize, at: AtNs) -> Option<MemorySample> {
        self.rows_in_window(device, at, AtNs::MAX)
            .first()
            .or_else(|| self.rows_of_device(device).last())
    }

    /// The last sample before a moment.
    pub fn sample_before(&self, device: usize, at: AtNs) -> Option<MemorySample> {
        self.rows_in_window(device, AtNs::MIN, at.checked_sub(1)?)
            .last()
    }

    /// The level reached by a moment and held until `next`: the first sample between them.
    pub fn level_between(&self, device: usize, at: AtNs, next: AtNs) -> Option<MemorySample> {
        self.sample_at(device, at)
            .filter(|s| s.at_ns >= at && s.at_ns < next)
    }

    /// The lowest use of a device that each sample of a window knows of, its own or a probe's
    /// before it. The first sample's probes lie before the window.
    pub fn lowest_readings(
        &self,
        device: usize,
        from: AtNs,
        to: AtNs,
    ) -> impl Iterator<Item = (u64, MemorySample)> {
        self.rows_in_window(device, from, to)
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let low = s.low_bytes.filter(|_| i > 0).unwrap_or(u64::MAX);
                (low.min(s.used_bytes), s)
            })
    }

    /// The sample with the middle `used_bytes` of a window. Bursts crowd at its edges and would
    /// outweigh the rest.
    pub fn median_sample(&self, device: usize, from: AtNs, to: AtNs) -> Option<MemorySample> {
        let window = self.rows_in_window(device, from, to);
        let mut places: Vec<usize> = (0..window.len()).filter(|i| !window.is_burst(*i)).collect();
        places.sort_by_key(|i| window.used_bytes()[*i]);
        window.get(*places.get(places.len().checked_sub(1)? / 2)?)
    }

    /// The highest use of a device in a window, by the best witness there is.
    pub fn peak_in_window(&self, device: usize, from: AtNs, to: AtNs) -> Option<DevicePeakReading> {
        let window = self.rows_in_window(device, from, to);
        let places = 0..window.len();
        let sampled = window.get(places.clone().max_by_key(|i| window.used_bytes()[*i])?)?;
        // What is seen after the fact was reached since the sample before: the higher of the two is
        // nearer to it, and made of the same parts.
        let around = |place: usize| {
            let both = place.saturating_sub(1)..=place;
            window.get(both.max_by_key(|i| window.used_bytes()[*i])?)
        };
        let mut peak = DevicePeakReading {
            bytes: sampled.used_bytes,
            nearest: sampled,
            source: PeakSource::Sample,
        };
        // A probe's high belongs to the stretch before its sample, which must lie in the window.
        if let Some(probed) = places
            .clone()
            .skip(1)
            .max_by_key(|i| window.high_bytes_at(*i))
        {
            if let Some(high) = window.high_bytes_at(probed) {
                if high > peak.bytes {
                    peak = DevicePeakReading {
                        bytes: high,
                        nearest: around(probed)?,
                        source: PeakSource::Probe,
                    };
                }
            }
        }
        // The kernel's mark counts since the container began: it is this window's only when it
        // rose within it.
        if let (Some(before), Some(after)) = (
            window.kernel_peak(0),
            window.kernel_peak(window.len().saturating_sub(1)),
        ) {
            if after > before && after >= peak.bytes {
                if let Some(reached) = places
                    .into_iter()
                    .find(|i| window.kernel_peak(*i) == Some(after))
                {
                    peak = DevicePeakReading {
                        bytes: after,
                        nearest: around(reached)?,
                        source: PeakSource::KernelPeak,
                    };
                }
            }
        }
        Some(peak)
    }
}

fn median_gap(rows: SampleRows<'_>) -> Option<AtNs> {
    let times = rows.sample_times();
    let mut gaps: Vec<AtNs> = times.windows(2).map(|t| t[1] - t[0]).collect();
    let middle = gaps.len().checked_sub(1)? / 2;
    Some(*gaps.select_nth_unstable(middle).1)
}

/// At most this many samples may be out of order: real damage is smaller.
const MOST_LATE: usize = 100_000;

/// Samples in the order of time, with those that came late.
fn in_order(columns: &SampleColumns, mut late: Vec<MemorySample>) -> SampleColumns {
    late.sort_by_key(|s| s.at_ns);
    let mut late = late.into_iter().peekable();
    let mut all = SampleColumns::default();
    for sample in columns.all_rows().iter() {
        while let Some(before) = late.next_if(|s| s.at_ns < sample.at_ns) {
            all.push(before);
        }
        all.push(sample);
    }
    late.for_each(|s| all.push(s));
    all
}

/// A device that was never sampled.
static NOTHING: LazyLock<SampleColumns> = LazyLock::new(SampleColumns::default);

fn is_possible(s: &MemorySample) -> bool {
    let host = s.host.unwrap_or_default();
    let bytes = [
        Some(s.used_bytes),
        s.low_bytes,
        s.high_bytes,
        s.kernel_peak_bytes,
        s.reserved_bytes,
        s.bench_client_bytes,
        host.file_bytes,
        host.swap_bytes,
    ];
    (s.device as usize) < MOST_DEVICES
        && s.at_ns.unsigned_abs() <= MOST_NS
        && bytes.into_iter().flatten().all(|b| b <= MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_between_two_samples_is_made_of_the_parts_of_the_higher() {
        let sample = |at_ns, used_bytes, client: Option<u64>, kernel| MemorySample {
            at_ns,
            used_bytes,
            bench_client_bytes: client,
            kernel_peak_bytes: Some(kernel),
            ..MemorySample::default()
        };
        // The machine stood still between the last two; the client has ended meanwhile.
        let series = SampleSeries::new([
            sample(0, 100, None, 100),
            sample(1, 500, Some(300), 500),
            sample(2, 150, None, 600),
        ]);
        let peak = series.peak_in_window(0, 0, 3).unwrap();
        assert_eq!((peak.bytes, peak.source), (600, PeakSource::KernelPeak));
        assert_eq!(peak.nearest.bench_client_bytes, Some(300));
    }

    fn sample(at_ns: AtNs, used: u64, high: Option<u64>, kernel: Option<u64>) -> MemorySample {
        MemorySample {
            at_ns,
            used_bytes: used,
            high_bytes: high,
            kernel_peak_bytes: kernel,
            ..Default::default()
        }
    }

    #[test]
    fn a_spike_between_two_samples_is_the_peak() {
        let series = SampleSeries::new([
            sample(0, 100, None, None),
            sample(100, 100, Some(228), None),
            sample(200, 101, Some(101), None),
        ]);
        let peak = series.peak_in_window(0, 0, 200).unwrap();
        assert_eq!((peak.bytes, peak.source), (228, PeakSource::Probe));
        // Seen from the second sample on, the spike lies before the window.
        assert_eq!(series.peak_in_window(0, 100, 200).unwrap().bytes, 101);
    }

    #[test]
    fn an_old_kernel_peak_is_not_this_windows() {
        let before = SampleSeries::new([
            sample(0, 100, None, Some(900)),
            sample(100, 120, None, Some(900)),
        ]);
        let peak = before.peak_in_window(0, 0, 100).unwrap();
        assert_eq!((peak.bytes, peak.source), (120, PeakSource::Sample));
        let rose = SampleSeries::new([
            sample(0, 100, None, Some(900)),
            sample(100, 120, None, Some(950)),
        ]);
        let peak = rose.peak_in_window(0, 0, 100).unwrap();
        assert_eq!((peak.bytes, peak.source), (950, PeakSource::KernelPeak));
    }

    #[test]
    fn a_moment_between_samples_takes_the_next_one() {
        let series = SampleSeries::new([sample(0, 1, None, None), sample(100, 2, None, None)]);
        assert_eq!(series.sample_at(0, 50).unwrap().used_bytes, 2);
        assert_eq!(series.sample_at(0, 500).unwrap().used_bytes, 2);
        assert!(series.sample_at(1, 0).is_none());
        assert!(series.peak_in_window(0, 200, 300).is_none());
    }

    #[test]
    fn what_cannot_have_been_read_is_left_out_and_counted() {
        let far = |at_ns, device, used_bytes| MemorySample {
            device,
            ..sample(at_ns, used_bytes, None, None)
        };
        let series = SampleSeries::new([
            far(0, 0, u64::MAX),
            far(i64::MIN, 0, 1),
            far(0, u32::MAX, 1),
            far(0, 0, 7),
        ]);
        assert_eq!((series.device_count(), series.impossible), (1, 3));
        assert_eq!(series.rows_of_device(0).used_bytes()[0], 7);
    }
}
