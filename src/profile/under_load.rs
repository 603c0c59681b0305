//! How memory moved while the load ran: steady, in spikes, or still growing.

use super::observation::CaptureObservation;
use super::stats::quantile_of_sorted;
use super::timeline::{TimelineMoment, sum_by_tick};
use crate::capture::{AtNs, Mode};
use crate::units::to_gib;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A range of at most this percent of the peak is steady.
const STEADY_PERCENT: f64 = 10.0;
/// The peak is a spike when it is above the 95th percentile by this percent of itself.
const SPIKE_PERCENT: f64 = 5.0;
/// The last quarter is above the first by this percent of the peak: growing.
const GROWTH_PERCENT: f64 = 5.0;
/// An engine that goes on serving keeps what it grew by: more than this percent of the peak.
const KEPT_PERCENT: f64 = 1.0;
/// Fewer samples than this, or a shorter load, has no shape.
pub(super) const FEWEST_SAMPLES: usize = 20;
pub(super) const SHORTEST_S: f64 = 5.0;

/// Memory of all devices while the measured part of the load ran, in the repeat that peaked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnderLoad {
    /// Samples in it.
    pub num_samples: u64,
    /// Lowest sample, GiB.
    pub min_gb: f64,
    /// 95th percentile of the samples, GiB.
    pub p95_gb: f64,
    /// Highest, by the best witness there is, GiB.
    pub peak_gb: f64,
    /// Peak less lowest, percent of the peak.
    pub range_percent: f64,
    /// What that looks like; null for fewer than 20 samples or less than 5 s.
    pub shape: Option<Shape>,
}

/// How memory moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// The range is within 10 % of the peak.
    Stable,
    /// The peak is more than 5 % above the 95th percentile: short and high.
    Spiky,
    /// The last quarter lies more than 5 % of the peak above the first, and an engine that serves
    /// on kept some of it after the load: the peak may not be reached yet.
    Growing,
    /// It comes and goes.
    Varying,
}

/// Of the repeat that peaked; `None` when no sample lies in its measured part.
pub(super) fn under_load(o: &CaptureObservation<'_>) -> Option<UnderLoad> {
    let top = o.top_repeat()?;
    let from = top.bench_at?;
    let moments: Vec<TimelineMoment> = sum_by_tick(&o.series, o.capture)
        .into_iter()
        .filter(|m| m.whole)
        .collect();
    let between = |from: AtNs, to: AtNs| {
        let inside = move |m: &&TimelineMoment| m.at_ns >= from && m.at_ns <= to;
        moments.iter().filter(inside)
    };
    let mut points: Vec<&TimelineMoment> = between(from, top.window.to).collect();
    // The engine of an in-process bench shuts down before the bench ends.
    if o.capture.mode == Mode::Idle {
        if let Some(loaded) = points.first().map(|m| m.point.memory_gb) {
            while points
                .last()
                .is_some_and(|m| m.point.memory_gb < loaded * 0.98)
            {
                points.pop();
            }
        }
    }
    let peak_gb = if top.peaks.iter().all(|p| p.nearest.at_ns >= from) {
        to_gib(top.peak_bytes()?)
    } else {
        points.iter().map(|m| m.point.high_gb).reduce(f64::max)?
    };
    let before = between(AtNs::MIN, top.window.from.saturating_sub(1)).next_back();
    let after = between(top.window.to.saturating_add(1), o.rest_until(top))
        .map(|m| m.point.memory_gb)
        .reduce(f64::min);
    let levels: Vec<f64> = points.iter().map(|m| m.point.memory_gb).collect();
    let seconds = points.last()?.at_ns.saturating_sub(points.first()?.at_ns) as f64 / 1e9;
    let kept = after.zip(before);
    let kept = kept.map(|(after, before)| after - before.point.memory_gb);
    UnderLoad::classify_load(&levels, seconds, peak_gb, kept)
}

impl UnderLoad {
    /// `kept_gb`: how much more an engine that runs before and after the load has at its end.
    fn classify_load(
        levels: &[f64],
        seconds: f64,
        peak_gb: f64,
        kept_gb: Option<f64>,
    ) -> Option<UnderLoad> {
        let sorted = |levels: &[f64]| {
            let mut sorted = levels.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted
        };
        let all = sorted(levels);
        let min_gb = *all.first()?;
        let p95_gb = quantile_of_sorted(&all, 0.95)?;
        let peak_gb = peak_gb.max(*all.last()?);
        let percent = |gb: f64| {
            if peak_gb > 0.0 {
                gb / peak_gb * 100.0
            } else {
                0.0
            }
        };
        // Floor and middle must both rise: a wave cut at another phase moves only one of them.
        let quarter = levels.len() / 4;
        let first = sorted(&levels[..quarter]);
        let last = sorted(&levels[levels.len() - quarter..]);
        let rise = |q| {
            quantile_of_sorted(&last, q)
                .zip(quantile_of_sorted(&first, q))
                .map(|(l, f)| l - f)
        };
        let growth = rise(0.0)
            .zip(rise(0.5))
            .map_or(0.0, |(floor, middle)| f64::min(floor, middle));
        let range_percent = percent(peak_gb - min_gb);
        let kept = kept_gb.is_none_or(|gb| percent(gb) > KEPT_PERCENT);
        let shape = if percent(growth) > GROWTH_PERCENT && kept {
            Shape::Growing
        } else if percent(peak_gb - p95_gb) > SPIKE_PERCENT {
            Shape::Spiky
        } else if range_percent <= STEADY_PERCENT {
            Shape::Stable
        } else {
            Shape::Varying
        };
        let long_enough = levels.len() >= FEWEST_SAMPLES && seconds >= SHORTEST_S;
        Some(UnderLoad {
            num_samples: levels.len() as u64,
            min_gb,
            p95_gb,
            peak_gb,
            range_percent,
            shape: long_enough.then_some(shape),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_derived_from_the_samples() {
        let of = |levels: &[f64], peak_gb, seconds, kept_gb| {
            UnderLoad::classify_load(levels, seconds, peak_gb, kept_gb)
        };
        let shape = |levels: &[f64], peak| of(levels, peak, 10.0, None).unwrap().shape.unwrap();
        let flat = [10.0; 40];
        assert_eq!(shape(&flat, 10.2), Shape::Stable);
        assert_eq!(
            shape(&flat, 11.0),
            Shape::Spiky,
            "a spike no sample saw counts"
        );
        let rising: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i) / 10.0).collect();
        assert_eq!(shape(&rising, 14.0), Shape::Growing);
        let waves: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i % 4)).collect();
        assert_eq!(shape(&waves, 13.0), Shape::Varying);
        assert!(of(&[], 1.0, 10.0, None).is_none());
        let kept = |gb| of(&rising, 14.0, 10.0, Some(gb)).unwrap().shape;
        assert_eq!(kept(2.0), Some(Shape::Growing));
        assert_eq!(kept(0.1), Some(Shape::Varying), "it was given back");
        let few = of(&rising[..19], 14.0, 10.0, None).unwrap();
        assert_eq!((few.shape, few.num_samples), (None, 19));
        assert_eq!(of(&rising, 14.0, 4.9, None).unwrap().shape, None);
    }
}
