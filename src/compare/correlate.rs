//! Whether figures move together: Pearson's and Spearman's coefficients, over runs and within them.

use crate::profile::Profile;
use crate::profile::stats::{arithmetic_mean, median_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the document.
pub const CORRELATIONS_VERSION: &str = "1.0";

/// Fewer points than this correlate with anything.
pub const FEWEST_POINTS: u64 = 3;

/// What moves with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Correlations {
    /// `correlations`.
    pub document: String,
    /// [`CORRELATIONS_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Profiles looked at.
    pub profiles: u64,
    /// One point for each run.
    pub across_runs: Vec<Correlation>,
    /// One point for each moment of a run; the coefficients are medians over the runs.
    pub within_runs: Vec<Correlation>,
}

/// Two figures, and how they move together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Correlation {
    /// The first, with its unit.
    pub x: String,
    /// The second, with its unit.
    pub y: String,
    /// Points (within runs: all of them).
    pub n: u64,
    /// Runs that have a coefficient.
    pub runs: u64,
    /// How near to a line, -1 to 1; null where there is no data.
    pub pearson: Option<f64>,
    /// How near to any order, -1 to 1; null where there is no data.
    pub spearman: Option<f64>,
    /// Why there is no coefficient.
    pub unknown: Option<String>,
}

/// A figure of a run: its name with its unit, and where it is.
type RunFigure = (&'static str, fn(&Profile) -> Option<f64>);

const PEAK: RunFigure = ("peak memory, GiB", |p| p.memory_breakdown.total_measured_gb);
/// Sequences at once: the batch, else the requests that may be in flight.
const BATCH: RunFigure = ("batch", |p| {
    let load = p.parameters.effective_load();
    load.batch_size.or(load.max_concurrency).map(f64::from)
});
const OVERHEAD: RunFigure = ("framework overhead, GiB", |p| {
    p.memory_breakdown.framework_overhead_gb
});
const WEIGHTS: RunFigure = ("model weights, GiB", |p| {
    p.memory_breakdown.model_weights_gb
});
const ACTIVATIONS: RunFigure = ("activations, GiB", |p| p.memory_breakdown.activations_gb);
const KV_USED: RunFigure = ("KV in use, GiB", |p| {
    p.vllm_internal_metrics.kv_cache_used_gb
});
const KV_USAGE: RunFigure = ("KV usage, share of the pool", |p| {
    p.vllm_internal_metrics.kv_cache_usage_peak
});
const PARAMETERS: RunFigure = ("parameters", |p| {
    p.model_info.num_parameters.map(|n| n as f64)
});
const POWER: RunFigure = ("mean power, W", |p| {
    Some(p.memory_timeline.extended.as_ref()?.power.as_ref()?.mean_w)
});
const HEAT: RunFigure = ("mean temperature, °C", |p| {
    let gauges = p.memory_timeline.extended.as_ref()?;
    Some(gauges.temperature.as_ref()?.mean_c)
});

const ACROSS: &[(RunFigure, RunFigure)] = &[
    (PEAK, POWER),
    (PEAK, HEAT),
    (PEAK, BATCH),
    (PEAK, KV_USED),
    (KV_USAGE, BATCH),
    (ACTIVATIONS, BATCH),
    (OVERHEAD, WEIGHTS),
    (OVERHEAD, PARAMETERS),
];

impl Correlations {
    /// Over these profiles.
    pub fn correlate_profiles(profiles: &[&Profile]) -> Correlations {
        let across = ACROSS.iter().map(|((x, of_x), (y, of_y))| {
            let points = (profiles.iter()).filter_map(|p| of_x(p).zip(of_y(p)));
            let points: Vec<(f64, f64)> = points.collect();
            let n = points.len() as u64;
            Correlation::new((x, y), n, n, correlation_coefficients(&points))
        });
        Correlations {
            document: "correlations".into(),
            schema_version: CORRELATIONS_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            profiles: profiles.len() as u64,
            across_runs: across.collect(),
            within_runs: vec![
                within(profiles, "mean power, W", |p| p.power_w),
                within(profiles, "temperature, °C", |p| p.temp_c),
            ],
        }
    }
}

impl Correlation {
    fn new((x, y): (&str, &str), n: u64, runs: u64, both: Result<(f64, f64), String>) -> Self {
        Correlation {
            x: x.into(),
            y: y.into(),
            n,
            runs,
            pearson: both.as_ref().ok().map(|b| b.0),
            spearman: both.as_ref().ok().map(|b| b.1),
            unknown: both.err(),
        }
    }
}

/// Memory with another figure, moment by moment in each run.
fn within(
    profiles: &[&Profile],
    y: &str,
    pick: fn(&crate::profile::TimelinePoint) -> Option<f64>,
) -> Correlation {
    let (mut n, mut lines, mut orders, mut why) = (0, Vec::new(), Vec::new(), None);
    for profile in profiles {
        let points: Vec<(f64, f64)> = (profile.memory_timeline.timeline.iter())
            .filter_map(|p| Some((p.memory_gb, pick(p)?)))
            .collect();
        n += points.len() as u64;
        match correlation_coefficients(&points) {
            Ok((pearson, spearman)) => {
                lines.push(pearson);
                orders.push(spearman);
            }
            Err(reason) => why = Some(reason),
        }
    }
    let runs = lines.len() as u64;
    let both = median_of(lines).zip(median_of(orders));
    let both = both.ok_or_else(|| why.unwrap_or_else(|| "no run".into()));
    Correlation::new(("memory, GiB", y), n, runs, both)
}

/// Pearson's and Spearman's coefficients of points.
///
/// # Errors
/// Why there are none: too few points, or a figure that is always the same.
pub fn correlation_coefficients(points: &[(f64, f64)]) -> Result<(f64, f64), String> {
    let is_known = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
    let points: Vec<(f64, f64)> = points.iter().filter(is_known).copied().collect();
    let n = points.len() as u64;
    if n < FEWEST_POINTS {
        return Err(format!(
            "no data: {n} points, and it needs at least {FEWEST_POINTS}"
        ));
    }
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
    let still = || "no data: one of them is always the same".to_owned();
    let line = pearson(&xs, &ys).ok_or_else(still)?;
    let order = pearson(&rank_figures(&xs), &rank_figures(&ys)).ok_or_else(still)?;
    Ok((line, order))
}

/// `None` where one does not vary.
fn pearson(xs: &[f64], ys: &[f64]) -> Option<f64> {
    // Scaled, so that squares of large figures stay numbers.
    let scaled = |figures: &[f64]| -> Option<Vec<f64>> {
        let most = figures.iter().fold(0f64, |m, f| m.max(f.abs()));
        let most = if most > 0.0 { most } else { 1.0 };
        let figures: Vec<f64> = figures.iter().map(|f| f / most).collect();
        let mean = arithmetic_mean(&figures)?;
        Some(figures.iter().map(|f| f - mean).collect())
    };
    let varies = |figures: &[f64]| figures.windows(2).any(|w| w[0] != w[1]);
    if !varies(xs) || !varies(ys) {
        return None;
    }
    let (xs, ys) = (scaled(xs)?, scaled(ys)?);
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let r = sum(&xs, &ys) / (sum(&xs, &xs).sqrt() * sum(&ys, &ys).sqrt());
    r.is_finite().then(|| r.clamp(-1.0, 1.0))
}

/// Ranks from 1; equal figures share the mean of theirs.
fn rank_figures(figures: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|a, b| figures[*a].total_cmp(&figures[*b]));
    let mut ranks = vec![0.0; figures.len()];
    let mut from = 0;
    while from < order.len() {
        let equal = order[from..]
            .iter()
            .take_while(|i| figures[**i] == figures[order[from]]);
        let to = from + equal.count().max(1);
        let rank = (from + 1 + to) as f64 / 2.0;
        for i in &order[from..to] {
            ranks[*i] = rank;
        }
        from = to;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_one_and_an_order_need_not_be_a_line() {
        let line: Vec<(f64, f64)> = (0..9)
            .map(|x| (f64::from(x), -2.0 * f64::from(x)))
            .collect();
        let (pearson, spearman) = correlation_coefficients(&line).unwrap();
        assert!((pearson + 1.0).abs() < 1e-12 && (spearman + 1.0).abs() < 1e-12);
        let cube: Vec<(f64, f64)> = (0..9)
            .map(|x| (f64::from(x), f64::from(x * x * x)))
            .collect();
        let (pearson, spearman) = correlation_coefficients(&cube).unwrap();
        assert!(pearson < 0.95 && (spearman - 1.0).abs() < 1e-12);
        // Worked by hand: ranks 1 2 3 4 5 and 2 1 4 3 5.
        let hand = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 9.0)];
        assert!((correlation_coefficients(&hand).unwrap().1 - 0.8).abs() < 1e-12);
    }

    #[test]
    fn ties_share_a_rank() {
        assert_eq!(rank_figures(&[5.0, 1.0, 5.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn too_little_is_no_data() {
        for points in [
            &[][..],
            &[(1.0, 2.0), (2.0, 3.0)],
            &[(1.0, 2.0), (f64::NAN, 3.0), (2.0, 2.0)],
        ] {
            assert!(
                correlation_coefficients(points)
                    .unwrap_err()
                    .starts_with("no data")
            );
        }
        let still = [(1.0, 2.0), (1.0, 3.0), (1.0, 9.0)];
        assert!(
            correlation_coefficients(&still)
                .unwrap_err()
                .contains("always the same")
        );
    }

    proptest! {
        #[test]
        fn coefficients_are_symmetric_and_in_bounds(points in proptest::collection::vec((-1e300..1e300f64, -1e3..1e3f64), 0..40)) {
            let swapped: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*y, *x)).collect();
            match (correlation_coefficients(&points), correlation_coefficients(&swapped)) {
                (Ok(a), Ok(b)) => {
                    prop_assert!(a.0.abs() <= 1.0 && a.1.abs() <= 1.0);
                    prop_assert!((a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9);
                }
                (a, b) => prop_assert_eq!(a.is_err(), b.is_err()),
            }
        }
    }
}
