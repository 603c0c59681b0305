//! The surrogate: predicts candidates from those that were measured. A Gaussian process over the settings, with a kernel
//! that adds one term for each setting (Duvenaud, Nickisch, Rasmussen, "Additive Gaussian Processes", 2011).

use super::space::SettingSpace;

/// Standard deviation of the logarithm of a score over all candidates, before any is measured. Settings of a server
/// move its throughput by a third or so.
const SPREAD: f64 = 0.3;
/// Standard deviation of the logarithm of a score over repeats of one measurement, where no more was seen.
pub const LEAST_NOISE: f64 = 0.02;
/// How far a value predicts its neighbours, as a share of the axis from its lowest to its highest value.
const REACH: f64 = 0.5;
/// Correlation of two values of a category, 0 to 1.
const CATEGORY_LIKENESS: f64 = 0.3;
/// Share of the kernel that adds settings; the rest multiplies them, for settings that act together.
const ADDITIVE_SHARE: f64 = 0.9;

/// What is expected of a candidate, in logarithms of a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expectation {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Expectation {
    /// How much better than `best` it is expected to be: the expected improvement of Jones, Schonlau and Welch,
    /// "Efficient Global Optimization of Expensive Black-Box Functions", 1998.
    pub fn improvement_over(&self, best: f64) -> f64 {
        let gain = self.mean - best;
        let z = gain / self.deviation;
        gain * normal_below(z) + self.deviation * normal_density(z)
    }
}

/// The surrogate of some observations.
#[derive(Debug, Clone)]
pub struct Surrogate<'a> {
    space: &'a SettingSpace,
    observed: Vec<usize>,
    mean: f64,
    /// Lower triangle of the Cholesky factor of the covariance.
    factor: Vec<Vec<f64>>,
    /// The factor's solution for the observations.
    solved: Vec<f64>,
}

impl<'a> Surrogate<'a> {
    /// Of candidates and the logarithms of their scores. `noise`: standard deviation of these over repeats.
    pub fn of_observations(
        space: &'a SettingSpace,
        observations: &[(usize, f64)],
        noise: f64,
    ) -> Self {
        let count = observations.len();
        let mean = observations.iter().map(|(_, y)| y).sum::<f64>() / count.max(1) as f64;
        let observed: Vec<usize> = observations
            .iter()
            .map(|(candidate, _)| *candidate)
            .collect();
        let mut factor: Vec<Vec<f64>> = Vec::with_capacity(count);
        for (i, a) in observed.iter().enumerate() {
            let mut row: Vec<f64> = Vec::with_capacity(i + 1);
            for (j, b) in observed.iter().enumerate().take(i + 1) {
                let noise = if i == j { noise * noise } else { 0.0 };
                let known: f64 = match factor.get(j) {
                    Some(other) => row.iter().zip(other).map(|(x, y)| x * y).sum(),
                    None => row.iter().map(|x| x * x).sum(),
                };
                let rest = covariance(space, *a, *b) + noise - known;
                row.push(match factor.get(j).and_then(|other| other.last()) {
                    Some(diagonal) => rest / diagonal,
                    None => rest.max(f64::EPSILON).sqrt(),
                });
            }
            factor.push(row);
        }
        let centred: Vec<f64> = observations.iter().map(|(_, y)| y - mean).collect();
        let solved = solve_lower(&factor, &centred);
        Surrogate {
            space,
            observed,
            mean,
            factor,
            solved,
        }
    }

    /// What is expected of a candidate.
    pub fn expect_candidate(&self, candidate: usize) -> Expectation {
        let shared: Vec<f64> = (self.observed.iter())
            .map(|other| covariance(self.space, candidate, *other))
            .collect();
        let shared = solve_lower(&self.factor, &shared);
        let moved: f64 = shared.iter().zip(&self.solved).map(|(a, b)| a * b).sum();
        let known: f64 = shared.iter().map(|a| a * a).sum();
        Expectation {
            mean: self.mean + moved,
            deviation: (SPREAD * SPREAD - known)
                .max(LEAST_NOISE * LEAST_NOISE / 4.0)
                .sqrt(),
        }
    }
}

/// Covariance of the logarithms of two candidates' scores.
fn covariance(space: &SettingSpace, a: usize, b: usize) -> f64 {
    let (Some(a), Some(b)) = (space.candidates.get(a), space.candidates.get(b)) else {
        return 0.0;
    };
    let likeness = space
        .axes
        .iter()
        .zip(a.iter().zip(b))
        .map(|(axis, (a, b))| {
            if axis.ordered {
                let steps = axis.values.len().saturating_sub(1).max(1) as f64;
                let apart = a.abs_diff(*b) as f64 / steps / REACH;
                (-apart * apart / 2.0).exp()
            } else if a == b {
                1.0
            } else {
                CATEGORY_LIKENESS
            }
        });
    let likeness: Vec<f64> = likeness.collect();
    let added = likeness.iter().sum::<f64>() / likeness.len().max(1) as f64;
    let multiplied: f64 = likeness.iter().product();
    SPREAD * SPREAD * (ADDITIVE_SHARE * added + (1.0 - ADDITIVE_SHARE) * multiplied)
}

/// Solves `factor * x = right` for a lower triangle.
fn solve_lower(factor: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(right.len());
    for (row, right) in factor.iter().zip(right) {
        let known: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
        let diagonal = row.last().copied().unwrap_or(1.0);
        solved.push((right - known) / diagonal);
    }
    solved
}

fn normal_density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

/// The normal distribution below `z`, to 1e-7 (Abramowitz and Stegun, 26.2.17).
fn normal_below(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let terms = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let above = normal_density(z) * sum;
    if z < 0.0 { above } else { 1.0 - above }
}

#[cfg(test)]
mod tests {
    use super::super::space::SettingAxis;
    use super::*;

    fn line(values: usize) -> SettingSpace {
        SettingSpace {
            axes: vec![SettingAxis {
                name: "n".into(),
                values: (0..values).map(|n| n.to_string()).collect(),
                ordered: true,
            }],
            candidates: (0..values).map(|n| vec![n]).collect(),
        }
    }

    #[test]
    fn what_was_measured_is_expected_again_and_the_rest_is_uncertain() {
        let space = line(5);
        let surrogate = Surrogate::of_observations(&space, &[(0, 1.0), (2, 1.4)], LEAST_NOISE);
        for (candidate, y) in [(0, 1.0), (2, 1.4)] {
            let known = surrogate.expect_candidate(candidate);
            assert!((known.mean - y).abs() < 0.02, "{candidate}: {known:?}");
            assert!(known.deviation < 0.03, "{candidate}: {known:?}");
        }
        let between = surrogate.expect_candidate(1);
        assert!(between.mean > 1.1 && between.mean < 1.4, "{between:?}");
        assert!(surrogate.expect_candidate(4).deviation > between.deviation);
    }

    #[test]
    fn improvement_is_positive_and_grows_with_mean_and_doubt() {
        let of = |mean, deviation| Expectation { mean, deviation }.improvement_over(1.0);
        assert!((of(1.0, 0.1) - 0.1 / std::f64::consts::TAU.sqrt()).abs() < 1e-6);
        assert!(of(1.1, 0.1) > of(1.0, 0.1) && of(1.0, 0.2) > of(1.0, 0.1));
        assert!(of(0.0, 0.01).abs() < 1e-6);
        assert!((normal_below(1.96) - 0.975).abs() < 1e-4);
    }
}
