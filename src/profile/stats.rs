//! Plain statistics over a list of figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mean and spread of repeated measurements, in the unit of the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// How many figures.
    pub n: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n − 1); null for one figure.
    pub stddev: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Of these figures; `None` when there are none.
    pub fn spread_of(figures: &[f64]) -> Option<Spread> {
        let n = figures.len();
        let mean = arithmetic_mean(figures)?;
        let stddev = (n > 1).then(|| {
            (figures.iter().map(|f| (f - mean).powi(2)).sum::<f64>() / (n - 1) as f64).sqrt()
        });
        Some(Spread {
            n: n as u64,
            mean,
            stddev,
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Sum of bytes, at most what the type holds.
pub fn saturating_sum(bytes: impl IntoIterator<Item = u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

/// Arithmetic mean; `None` of nothing.
pub fn arithmetic_mean(figures: &[f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

/// Population standard deviation; `None` of nothing.
pub fn population_stddev(figures: &[f64]) -> Option<f64> {
    let mean = arithmetic_mean(figures)?;
    Some((figures.iter().map(|f| (f - mean).powi(2)).sum::<f64>() / figures.len() as f64).sqrt())
}

/// The `q` quantile (0 to 1) of sorted figures, linear between neighbours as numpy's default;
/// `None` of nothing.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64))
}

/// The median of figures in any order; `None` of nothing.
pub fn median_of(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    quantile_of_sorted(&figures, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_between_neighbours() {
        let figures = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile_of_sorted(&figures, 0.5), Some(2.5));
        assert_eq!(quantile_of_sorted(&figures, 1.0), Some(4.0));
        assert_eq!(quantile_of_sorted(&figures, 0.0), Some(1.0));
        assert_eq!(quantile_of_sorted(&[], 0.5), None);
        assert_eq!(quantile_of_sorted(&[7.0], 0.95), Some(7.0));
    }

    #[test]
    fn spread_of_one_repeat_has_no_deviation() {
        let one = Spread::spread_of(&[5.0]).unwrap();
        assert_eq!((one.n, one.stddev), (1, None));
        assert_eq!(
            Spread::spread_of(&[1.0, 3.0]).unwrap().stddev,
            Some(2f64.sqrt())
        );
        assert_eq!(Spread::spread_of(&[]), None);
    }
}
