//! Memory and power over time, summed over the devices.

use super::columns::SampleRows;
use super::observation::CaptureObservation;
use super::series::SampleSeries;
use super::stats::{arithmetic_mean, quantile_of_sorted};
use super::ticks::{DeviceTick, group_into_ticks};
use super::under_load::{FEWEST_SAMPLES, SHORTEST_S, UnderLoad};
use super::unknown::{NullReasons, null_reasons};
use crate::capture::{AtNs, Capture};
use crate::units::to_gib;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Points kept of the timeline; more are thinned, each keeping its stretch's highest.
pub const MAX_TIMELINE_POINTS: usize = 2000;

/// Memory over time, summed over the devices; GiB. Devices are read one after the other; readings
/// of one tick make one point. The statistics are over the points that have every device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Lowest sample.
    pub min_gb: Option<f64>,
    /// Highest sample; the peak itself can lie between two samples and be higher.
    pub max_gb: Option<f64>,
    /// Mean of the samples.
    pub mean_gb: Option<f64>,
    /// Median of the samples.
    pub median_gb: Option<f64>,
    /// 95th percentile of the samples, linear between neighbours.
    pub p95_gb: Option<f64>,
    /// Least memory of the host that was available to all processes (`MemAvailable`), bytes; of container memory only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_available_bytes: Option<u64>,
    /// Samples of every device: what the statistics rest on.
    pub num_samples: u64,
    /// Interval between samples, seconds.
    pub sample_interval_s: f64,
    /// How it moved while the load ran; null when no sample lies in the measured part.
    pub under_load: Option<UnderLoad>,
    /// The samples, thinned to at most 2000. Where a device was lost (finding `device_lost`), the
    /// later ones are sums over the others.
    pub timeline: Vec<TimelinePoint>,
    /// Power and temperature; null where the backend has none.
    pub extended: Option<Extended>,
}

/// One moment of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelinePoint {
    /// Seconds since the Unix epoch.
    pub timestamp: f64,
    /// Memory in use, GiB.
    pub memory_gb: f64,
    /// Highest since the point before, GiB.
    pub high_gb: f64,
    /// Page cache in it, GiB (container memory only).
    pub file_gb: Option<f64>,
    /// Power draw of all devices, watts: read with this sample, or at most 2 s before it.
    pub power_w: Option<f64>,
    /// Hottest device, °C: read with this sample, or at most 2 s before it.
    pub temp_c: Option<f64>,
}

/// Power and temperature over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Extended {
    /// Power draw of all devices, watts.
    pub power: Option<PowerRange>,
    /// Hottest device, °C.
    pub temperature: Option<TemperatureRange>,
}

/// Range of power draw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PowerRange {
    /// Lowest, watts.
    pub min_w: f64,
    /// Highest, watts.
    pub max_w: f64,
    /// Mean, watts: from the counter of energy where the GPU has one, else of the readings.
    pub mean_w: f64,
}

/// Range of temperature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemperatureRange {
    /// Lowest, °C.
    pub min_c: f64,
    /// Highest, °C.
    pub max_c: f64,
    /// Mean, °C.
    pub mean_c: f64,
}

/// The timeline of a series.
pub(super) fn build_timeline(
    series: &SampleSeries,
    capture: &Capture,
    under_load: Option<UnderLoad>,
) -> Timeline {
    let moments = sum_by_tick(series, capture);
    let points: Vec<&TimelinePoint> = moments
        .iter()
        .filter(|m| m.whole)
        .map(|m| &m.point)
        .collect();
    let mut sorted: Vec<f64> = points.iter().map(|p| p.memory_gb).collect();
    sorted.sort_by(f64::total_cmp);
    let of = |pick: fn(&TimelinePoint) -> Option<f64>| -> Option<(f64, f64, f64)> {
        let figures: Vec<f64> = points.iter().filter_map(|p| pick(p)).collect();
        let mean = arithmetic_mean(&figures)?;
        Some((
            figures.iter().copied().fold(f64::INFINITY, f64::min),
            figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean,
        ))
    };
    let power = of(|p| p.power_w).map(|(min_w, max_w, mean_w)| PowerRange {
        min_w,
        max_w,
        mean_w: power_by_energy(series).unwrap_or(mean_w),
    });
    let temperature = of(|p| p.temp_c).map(|(min_c, max_c, mean_c)| TemperatureRange {
        min_c,
        max_c,
        mean_c,
    });
    Timeline {
        min_gb: sorted.first().copied(),
        max_gb: sorted.last().copied(),
        mean_gb: arithmetic_mean(&sorted),
        median_gb: quantile_of_sorted(&sorted, 0.5),
        p95_gb: quantile_of_sorted(&sorted, 0.95),
        least_available_bytes: series.least_available_bytes(0),
        num_samples: points.len() as u64,
        sample_interval_s: capture.sampling.interval_ns as f64 / 1e9,
        under_load,
        extended: (power.is_some() || temperature.is_some())
            .then_some(Extended { power, temperature }),
        timeline: thin(hold_gauges(moments), MAX_TIMELINE_POINTS),
    }
}

impl Timeline {
    pub(super) fn note_null_reasons(&self, o: &CaptureObservation<'_>, out: &mut NullReasons) {
        let sampled = |otherwise: &str| {
            if o.capture.sampling.ticks == 0 {
                return o.not_sampled();
            }
            otherwise.to_owned()
        };
        let (no_gauges, at) = (
            "the backend reads neither power nor temperature",
            "memory_timeline",
        );
        null_reasons!(out, at, self;
            min_gb, max_gb, mean_gb, median_gb, p95_gb => o.not_sampled();
            under_load => o.no_bench_or(|| o.no_load("no sample of every device is in the measured part of the bench: use a longer load (--num-iters, --num-prompts) or a shorter --sample-interval"));
            extended => sampled(no_gauges);
        );
        if let Some(load) = &self.under_load {
            null_reasons!(out, "memory_timeline.under_load", load;
                shape => format!(
                    "the load was too short: a shape shows in {FEWEST_SAMPLES} samples over {SHORTEST_S} s at least"
                );
            );
        }
        if let Some(extended) = &self.extended {
            null_reasons!(out, "memory_timeline.extended", extended;
                power => sampled("the backend reads no power");
                temperature => sampled("the backend reads no temperature");
            );
        }
        let not_read = if self.extended.is_none() {
            no_gauges
        } else {
            "not read in the 2 s before this sample"
        };
        for point in &self.timeline {
            null_reasons!(out, "memory_timeline.timeline[]", point;
                power_w, temp_c => sampled(not_read);
                file_gb => sampled(&o.host_or("not reported by the kernel", "the device is a GPU"));
            );
        }
    }
}

/// A point of the timeline, and whether every device is in its sums.
pub(super) struct TimelineMoment {
    pub at_ns: AtNs,
    pub point: TimelinePoint,
    pub whole: bool,
}

/// The devices' samples summed up tick by tick.
pub(super) fn sum_by_tick(series: &SampleSeries, capture: &Capture) -> Vec<TimelineMoment> {
    let sum =
        |tick: &DeviceTick, pick: &dyn Fn(SampleRows<'_>, usize) -> Option<u64>| -> Option<u64> {
            let figures = tick.samples.iter().filter_map(|(device, place)| {
                pick(series.rows_of_device(*device as usize), *place as usize)
            });
            figures.reduce(u64::saturating_add)
        };
    // Power is read less often than memory, and not of every device at the same tick.
    let mut power: Vec<Option<u64>> = vec![None; series.device_count()];
    group_into_ticks(series, capture.sampling.interval_ns)
        .into_iter()
        .map(|tick| {
            let (mut read, mut hottest) = (false, None);
            for (device, place) in &tick.samples {
                let gauges = series
                    .rows_of_device(*device as usize)
                    .gauges_at(*place as usize);
                if let (Some(mw), Some(last)) = (gauges.0, power.get_mut(*device as usize)) {
                    (*last, read) = (Some(mw.into()), true);
                }
                hottest = hottest.max(gauges.1);
            }
            let all_power = power.iter().copied().sum::<Option<u64>>().filter(|_| read);
            let point = TimelinePoint {
                timestamp: epoch_seconds(capture, tick.at_ns),
                memory_gb: sum(&tick, &|rows, i| Some(rows.used_bytes()[i])).map_or(0.0, to_gib),
                high_gb: sum(&tick, &|rows, i| {
                    rows.high_bytes_at(i).max(Some(rows.used_bytes()[i]))
                })
                .map_or(0.0, to_gib),
                file_gb: sum(&tick, &|rows, i| rows.file_bytes(i)).map(to_gib),
                power_w: all_power.map(|mw| mw as f64 / 1e3),
                temp_c: hottest.map(f64::from),
            };
            TimelineMoment {
                at_ns: tick.at_ns,
                whole: tick.whole,
                point,
            }
        })
        .collect()
}

/// How long a reading of power or temperature is valid, nanoseconds: they are read less often than memory.
const GAUGE_HOLDS_NS: AtNs = 2_000_000_000;

/// The points, each with the last valid reading of power and temperature.
fn hold_gauges(moments: Vec<TimelineMoment>) -> Vec<TimelinePoint> {
    let (mut power, mut temperature) = (None, None);
    let held = |at_ns: AtNs, now: &mut Option<f64>, last: &mut Option<(AtNs, f64)>| match *now {
        Some(value) => *last = Some((at_ns, value)),
        None => {
            *now = last
                .filter(|(at, _)| at_ns - at <= GAUGE_HOLDS_NS)
                .map(|(_, v)| v)
        }
    };
    let points = moments.into_iter().map(|mut m| {
        held(m.at_ns, &mut m.point.power_w, &mut power);
        held(m.at_ns, &mut m.point.temp_c, &mut temperature);
        m.point
    });
    points.collect()
}

/// A moment of the capture in seconds since the Unix epoch.
pub(super) fn epoch_seconds(capture: &Capture, at: AtNs) -> f64 {
    capture.wall_start_ns.saturating_add(at) as f64 / 1e9
}

/// Thins to at most `most` points: of each stretch the point with the highest memory stays.
fn thin(points: Vec<TimelinePoint>, most: usize) -> Vec<TimelinePoint> {
    if points.len() <= most {
        return points;
    }
    let stretch = points.len().div_ceil(most);
    points
        .chunks(stretch)
        .filter_map(|chunk| {
            let mut top = chunk
                .iter()
                .max_by(|a, b| a.memory_gb.total_cmp(&b.memory_gb))?
                .clone();
            top.high_gb = chunk.iter().map(|p| p.high_gb).fold(top.high_gb, f64::max);
            Some(top)
        })
        .collect()
}

/// Mean power of all devices over the time that their counters of energy cover, watts. Readings of
/// power are themselves means over some window and sampled, the counter misses nothing.
fn power_by_energy(series: &SampleSeries) -> Option<f64> {
    let mean = |device: usize| {
        let mut readings = series.rows_of_device(device).energy_readings();
        let (from, first) = readings.next()?;
        // A driver that was loaded anew counts from zero, and where it stood is not known.
        let (to, last) = readings.try_fold((from, first), |before, next| {
            (next.1 >= before.1).then_some(next)
        })?;
        // The counter moves every 100 ms or so.
        let used = last - first;
        (to - from >= ENOUGH_FOR_ENERGY_NS).then(|| used as f64 / 1e3 / ((to - from) as f64 / 1e9))
    };
    (0..series.device_count()).map(mean).sum()
}

/// Over a shorter time the steps of the counter show, nanoseconds.
const ENOUGH_FOR_ENERGY_NS: AtNs = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::MemorySample;

    fn at(ms: i64, device: u32, used_bytes: u64) -> MemorySample {
        MemorySample {
            at_ns: ms * 1_000_000,
            device,
            used_bytes,
            ..MemorySample::default()
        }
    }

    #[test]
    fn devices_read_one_after_the_other_make_a_tick() {
        const GB: u64 = 1 << 30;
        let mut burst = at(150, 0, GB);
        burst.burst = true;
        let mut powered = at(100, 0, GB);
        powered.power_mw = Some(300_000);
        let mut later = at(201, 1, 3 * GB);
        later.power_mw = Some(100_000);
        let series = SampleSeries::new([
            at(0, 0, GB),
            at(1, 1, 2 * GB),
            // Device 1 stumbled here, device 0 at the tick after.
            powered,
            burst,
            at(151, 1, 9 * GB),
            at(200, 0, GB),
            later,
            at(300, 0, GB),
            at(301, 1, 4 * GB),
        ]);
        let capture = Capture {
            sampling: crate::capture::SamplingFacts {
                interval_ns: 100_000_000,
                ..Default::default()
            },
            ..Default::default()
        };
        let points = sum_by_tick(&series, &capture);
        let sums: Vec<f64> = points.iter().map(|p| p.point.memory_gb).collect();
        assert_eq!(sums, [3.0, 10.0, 4.0, 5.0]);
        // Device 0 reported its power earlier; the sum begins when both have.
        let power: Vec<_> = points.iter().map(|p| p.point.power_w).collect();
        assert_eq!(power, [None, None, Some(400.0), None]);
        // The next row has the reading before it; one that is too old does not count.
        let mut moments = points;
        moments.push(TimelineMoment {
            at_ns: 2_300_000_000,
            whole: true,
            point: moments[0].point.clone(),
        });
        let power: Vec<_> = hold_gauges(moments).iter().map(|p| p.power_w).collect();
        assert_eq!(power, [None, None, Some(400.0), Some(400.0), None]);
    }

    #[test]
    fn mean_power_comes_from_energy() {
        let with = |ms, device, energy_mj, power_mw| MemorySample {
            energy_mj,
            power_mw,
            ..at(ms, device, 1)
        };
        let series = SampleSeries::new([
            with(0, 0, Some(5_000), Some(1)),
            with(0, 1, Some(7_000), Some(1)),
            with(2_000, 0, None, Some(1)),
            with(4_000, 0, Some(805_000), Some(1)),
            with(4_000, 1, Some(407_000), Some(1)),
        ]);
        // 800 J and 400 J in 4 s.
        assert_eq!(power_by_energy(&series), Some(300.0));
        let one_without = SampleSeries::new([
            with(0, 0, Some(5), None),
            with(4_000, 0, Some(9), None),
            with(0, 1, None, None),
        ]);
        assert_eq!(power_by_energy(&one_without), None);
        let counted_anew =
            SampleSeries::new([with(0, 0, Some(5), None), with(4_000, 0, Some(1), None)]);
        assert_eq!(power_by_energy(&counted_anew), None);
    }

    #[test]
    fn thinning_keeps_the_spike() {
        let points: Vec<TimelinePoint> = (0..10_000)
            .map(|i| TimelinePoint {
                timestamp: i as f64,
                memory_gb: if i == 4321 { 9.0 } else { 1.0 },
                high_gb: if i == 7 { 11.0 } else { 1.0 },
                file_gb: None,
                power_w: None,
                temp_c: None,
            })
            .collect();
        let thinned = thin(points, 2000);
        assert!(thinned.len() <= 2000);
        assert!(
            thinned
                .iter()
                .any(|p| p.memory_gb == 9.0 && p.timestamp == 4321.0)
        );
        assert!(thinned.iter().any(|p| p.high_gb == 11.0));
    }
}
