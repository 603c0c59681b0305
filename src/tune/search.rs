//! The search: which settings are started next, which of them get a long load, and when it ends.
//!
//! The method is successive halving in its asynchronous form (Li and others, "A System for Massively Parallel
//! Hyperparameter Tuning", 2020): every candidate gets a short load, and one whose score is among the best third so
//! far gets the long one, at once, on the engine that runs. What a promotion would cost elsewhere, a second start, is
//! saved. Which candidate is started next is the choice of a surrogate by expected improvement
//! ([`super::surrogate`]), as in the searches that join both (Klein and others, "Model-based Asynchronous
//! Hyperparameter and Neural Architecture Search", 2020).
//!
//! Same candidates, seed and figures: same search. It claims no optimum: only what was measured is compared.

use super::space::SettingSpace;
use super::surrogate::{LEAST_NOISE, Surrogate};
use super::trial::{LoadFigures, Trial, TuningGoal, TuningLimits};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// One candidate in three gets the long load: the factor of successive halving.
const HALVING_FACTOR: usize = 3;
/// Standard deviations of the noise by which a short score may be below the best and count as good.
const NEAR_THE_BEST: f64 = 1.5;
/// Fewest starts, where there are as many candidates: fewer show no effect of any setting.
const FEWEST_STARTS: usize = 4;
/// Candidates for each start, unless the user sets the number of starts.
const CANDIDATES_PER_START: usize = 5;
/// Of the starts of a search, at most one in so many runs at a time, and two at least: more would learn too little from
/// each other. By the search's own tests.
const WAVES_OF_STARTS: usize = 4;
/// How much less than the worst measured score a candidate counts that could not be measured.
const FAILED_SHARE: f64 = 0.5;

/// Default number of starts: a fifth of the candidates, and no fewer than four.
pub fn default_starts(candidates: usize) -> usize {
    (candidates / CANDIDATES_PER_START).max(FEWEST_STARTS.min(candidates))
}

/// Starts of one part of a search that several share and learn from: its share, and one more, as parts that search at the
/// same time know less than one after the other. By the search's own tests.
pub fn starts_of_part(starts: usize, parts: u32) -> usize {
    starts.div_ceil(parts.max(1) as usize) + 1
}

/// A search over candidates.
#[derive(Debug, Clone)]
pub struct TuningSearch<'a> {
    /// What was tried: the candidates and the goal.
    pub space: &'a SettingSpace,
    /// What is to be as high as possible.
    pub goal: TuningGoal,
    limits: &'a TuningLimits,
    seed: u64,
    /// Starts at most.
    pub max_starts: usize,
    /// Candidates that are not started, and why.
    pub excluded: BTreeMap<usize, String>,
    /// Every start in its order.
    pub trials: Vec<Trial>,
    /// Trials of the other parts of the search: they teach, and are no starts of this one.
    others: Vec<Trial>,
}

/// A load to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedLoad {
    /// Concurrent requests.
    pub concurrency: u32,
    /// Whether it is the long one.
    pub is_long: bool,
}

/// A candidate to be started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextCandidate {
    /// Which.
    pub candidate: usize,
    /// What is expected of its score; `None` before anything was measured.
    pub predicted_score: Option<f64>,
}

impl<'a> TuningSearch<'a> {
    /// Before the first start. `excluded`: candidates that cannot fit, with the reason.
    pub fn new(
        space: &'a SettingSpace,
        (goal, limits): (TuningGoal, &'a TuningLimits),
        seed: u64,
        max_starts: usize,
        excluded: BTreeMap<usize, String>,
    ) -> TuningSearch<'a> {
        TuningSearch {
            space,
            goal,
            limits,
            seed,
            max_starts,
            excluded,
            trials: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Takes in what the other parts of the search measured so far, and how many starts this part has by that.
    pub fn know_others(&mut self, others: Vec<Trial>, max_starts: usize) {
        self.others = others;
        self.max_starts = max_starts;
    }

    /// The same search before its first start.
    pub fn without_trials(&self) -> TuningSearch<'a> {
        TuningSearch {
            trials: Vec::new(),
            others: Vec::new(),
            excluded: BTreeMap::new(),
            ..*self
        }
    }

    /// Every trial that teaches.
    pub(super) fn known_trials(&self) -> impl Iterator<Item = &Trial> {
        self.others.iter().chain(&self.trials)
    }

    /// The candidate to start next; `None` where all starts are used or nothing is left to try.
    pub fn next_candidate(&self) -> Option<NextCandidate> {
        self.next_beside(&[], |_| true)
    }

    /// The candidate to start beside others that run, of those that have a place: chosen as if these had scored what is
    /// expected of them, the "kriging believer" of Ginsbourger, Le Riche and Carraro, "Kriging Is Well-Suited to
    /// Parallelize Optimization", 2010.
    pub fn next_beside(
        &self,
        running: &[NextCandidate],
        has_place: impl Fn(usize) -> bool,
    ) -> Option<NextCandidate> {
        let starts = self.trials.iter().filter(|t| !t.measured_before).count();
        let most = (self.max_starts / WAVES_OF_STARTS).max(2);
        if starts + running.len() >= self.max_starts || running.len() >= most {
            return None;
        }
        let tried = self.trials.iter().map(|t| t.candidate);
        let tried: BTreeSet<usize> = tried.chain(running.iter().map(|r| r.candidate)).collect();
        let open = (0..self.space.candidates.len())
            .filter(|c| !tried.contains(c) && !self.excluded.contains_key(c) && has_place(*c));
        let mut observations = self.observations();
        let best = observations.iter().map(|(_, y)| *y).reduce(f64::max);
        // Before any figure all are expected to be equal: the next is far from those that run.
        let believed = |r: &NextCandidate| (r.candidate, r.predicted_score.map_or(0.0, f64::ln));
        observations.extend(running.iter().map(believed));
        if observations.is_empty() {
            let first = open.min_by(|a, b| {
                let place = |c: usize| (self.distance_from_middle(c), self.draw(c));
                let ((a, x), (b, y)) = (place(*a), place(*b));
                a.total_cmp(&b).then(x.cmp(&y))
            })?;
            return Some(NextCandidate {
                candidate: first,
                predicted_score: None,
            });
        }
        let surrogate = Surrogate::of_observations(self.space, &observations, self.noise_share());
        let to_beat = best.unwrap_or(0.0);
        let scored = open.map(|c| (c, surrogate.expect_candidate(c)));
        let (candidate, expected) = scored.max_by(|(a, x), (b, y)| {
            let gains = (x.improvement_over(to_beat), y.improvement_over(to_beat));
            gains
                .0
                .total_cmp(&gains.1)
                .then(self.draw(*b).cmp(&self.draw(*a)))
        })?;
        Some(NextCandidate {
            candidate,
            predicted_score: best.map(|_| expected.mean.exp()),
        })
    }

    /// Whether a candidate with this trial so far gets the long load: its short load keeps the limits, and its score
    /// is among the best third of all short scores or as good as the best.
    pub fn deserves_long_load(&self, trial: &Trial) -> Result<(), String> {
        let Some(own) = trial.short_score(self.goal, self.limits) else {
            return Err("its short load has no figures".into());
        };
        if !own.keeps_limits {
            let nearest = Trial::best_load(&trial.short_loads, self.goal, self.limits);
            let missed = nearest.and_then(|(load, _)| {
                load.missed_limits(self.limits)
                    .first()
                    .map(ToString::to_string)
            });
            return Err(missed.unwrap_or_else(|| "it misses a limit".into()));
        }
        let others = self
            .known_trials()
            .filter_map(|t| t.short_score(self.goal, self.limits));
        let others: Vec<f64> = others.filter(|s| s.keeps_limits).map(|s| s.score).collect();
        let better = others.iter().filter(|score| **score > own.score).count();
        let places = (others.len() + 1).div_ceil(HALVING_FACTOR);
        let best = others.iter().copied().fold(own.score, f64::max);
        if better < places || own.score >= best * (1.0 - NEAR_THE_BEST * self.noise_share()) {
            return Ok(());
        }
        Err(format!(
            "dominated: its short load scored {:.1}, the best so far {best:.1}",
            own.score
        ))
    }

    /// The load that a candidate is put under next, by its trial so far: short ones at each level until one misses a
    /// limit or `short_ended` says that none can follow, then a long one at the best of them. A long load that misses
    /// a limit is followed by one at the next best level. `None`: the trial is complete; its reason says whether it
    /// was stopped.
    pub fn next_load(
        &self,
        trial: &Trial,
        levels: &[u32],
        short_ended: bool,
    ) -> Result<Option<PlannedLoad>, String> {
        let missed = |load: &LoadFigures| !load.missed_limits(self.limits).is_empty();
        let over = short_ended || trial.short_loads.last().is_some_and(missed);
        if let Some(level) = levels.get(trial.short_loads.len()).filter(|_| !over) {
            return Ok(Some(PlannedLoad {
                concurrency: *level,
                is_long: false,
            }));
        }
        self.deserves_long_load(trial)?;
        if trial.long_loads.iter().any(|load| !missed(load)) {
            return Ok(None);
        }
        let tried = |load: &&LoadFigures| {
            let mut long = trial.long_loads.iter();
            long.any(|other| other.concurrency == load.concurrency)
        };
        let left = trial
            .short_loads
            .iter()
            .filter(|load| !missed(load) && !tried(load));
        let left: Vec<LoadFigures> = left.cloned().collect();
        let best = Trial::best_load(&left, self.goal, self.limits);
        Ok(best.map(|(load, _)| PlannedLoad {
            concurrency: load.concurrency,
            is_long: true,
        }))
    }

    /// Adds a start.
    pub fn record_trial(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    /// The load of a trial that counts, and its score: a long one where there is one.
    pub fn final_load<'t>(&self, trial: &'t Trial) -> Option<(&'t LoadFigures, f64)> {
        let (load, _) = trial.final_load(self.goal, self.limits)?;
        Some((load, load.goal_score(self.goal)?))
    }

    /// Leaves out a candidate that was not tried.
    pub fn exclude_candidate(&mut self, candidate: usize, why: String) {
        self.excluded.entry(candidate).or_insert(why);
    }

    /// The trial that won: the best that keeps all limits under its long load.
    pub fn winner(&self) -> Option<&Trial> {
        let long = self.trials.iter().filter_map(|trial| {
            let (load, score) = Trial::best_load(&trial.long_loads, self.goal, self.limits)?;
            let speed = load.tokens_per_second.unwrap_or(0.0);
            score.keeps_limits.then_some((trial, score.score, speed))
        });
        let best = long.max_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)));
        best.map(|(trial, ..)| trial)
    }

    /// What is expected of a candidate's score; `None` before anything was measured.
    pub fn predicted_score(&self, candidate: usize) -> Option<f64> {
        let observations = self.observations();
        if observations.is_empty() {
            return None;
        }
        let surrogate = Surrogate::of_observations(self.space, &observations, self.noise_share());
        Some(surrogate.expect_candidate(candidate).mean.exp())
    }

    /// Noise of a score, as a share of it: the standard deviation over the repeats of all long loads, pooled.
    fn noise_share(&self) -> f64 {
        let loads = self.known_trials().flat_map(|t| &t.long_loads);
        let (mut squares, mut freedom) = (0.0, 0.0);
        for load in loads {
            let speeds = load.repeats.iter().filter_map(|r| r.tokens_per_second);
            let speeds: Vec<f64> = speeds.collect();
            let mean = speeds.iter().sum::<f64>() / speeds.len().max(1) as f64;
            if mean > 0.0 {
                squares += speeds.iter().map(|s| (s / mean - 1.0).powi(2)).sum::<f64>();
                freedom += speeds.len() as f64 - 1.0;
            }
        }
        if freedom > 0.0 {
            (squares / freedom).sqrt().max(LEAST_NOISE)
        } else {
            LEAST_NOISE
        }
    }

    /// Candidates and the logarithms of their scores. What failed counts as worse than all.
    fn observations(&self) -> Vec<(usize, f64)> {
        // A score of 0 has no logarithm: it counts as failed.
        let score = |t: &Trial| {
            let score = t.final_load(self.goal, self.limits)?.1.score;
            (score > 0.0).then(|| score.ln())
        };
        let worst = self.known_trials().filter_map(score).reduce(f64::min);
        let observed = self.known_trials().filter_map(|trial| {
            let failed = || Some(worst? + FAILED_SHARE.ln());
            Some((trial.candidate, score(trial).or_else(failed)?))
        });
        observed.collect()
    }

    /// How far a candidate is from the middle of all numbers, from 0: the middle is nearest to all others.
    fn distance_from_middle(&self, candidate: usize) -> f64 {
        let places = self.space.candidates.get(candidate).into_iter().flatten();
        let each = self
            .space
            .axes
            .iter()
            .zip(places)
            .filter(|(axis, _)| axis.ordered);
        each.map(|(axis, place)| {
            let last = axis.values.len().saturating_sub(1).max(1) as f64;
            (*place as f64 / last - 0.5).abs()
        })
        .sum()
    }

    /// A number for each candidate that only the seed decides, for what is equal otherwise.
    fn draw(&self, candidate: usize) -> Vec<u8> {
        let mut digest = Sha256::new();
        digest.update(self.seed.to_le_bytes());
        digest.update((candidate as u64).to_le_bytes());
        digest.finalize().to_vec()
    }
}

#[cfg(test)]
mod tests;
