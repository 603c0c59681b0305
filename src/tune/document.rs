//! The document of a tuning: the best settings, what each was worth, everything that was tried and what was not.

use super::search::TuningSearch;
use super::space::SettingAxis;
use super::trial::{LoadFigures, MissedLimit, Trial, TuningGoal, TuningLimits};
use crate::capture::RunEnd;
use crate::compare::validate::ItemRow;
use crate::loadline::{Objectives, TokenLengths};
use crate::profile::stats::arithmetic_mean;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the document.
pub const TUNING_VERSION: &str = "1.0";

/// The value of `document`.
pub const TUNING_DOCUMENT: &str = "tune";

/// Which settings serve most within the limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tuning {
    /// [`TUNING_DOCUMENT`].
    pub document: String,
    /// [`TUNING_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Start, RFC 3339, UTC.
    pub timestamp: String,
    /// Worked on it in all, seconds.
    pub took_s: f64,
    /// How it ended.
    pub outcome: RunEnd,
    /// True when an engine or a device is simulated.
    pub simulated: bool,
    /// The model; null where the candidates have several.
    pub model: Option<String>,
    /// Container or image; null where the candidates have several.
    pub place: Option<String>,
    /// The engine; null where nothing was measured.
    pub engine: Option<String>,
    /// Its version.
    pub engine_version: Option<String>,
    /// What was to be as high as possible.
    pub goal: TuningGoal,
    /// Limits on latency.
    pub objectives: Objectives,
    /// Memory that must stay free, percent of the fullest device.
    pub headroom_percent: f64,
    /// Random seed of the search and of the prompts.
    pub seed: u64,
    /// Length of every request, tokens.
    pub lengths: TokenLengths,
    /// Concurrent requests of the loads.
    pub levels: Vec<u32>,
    /// Repeats of a long load.
    pub repeats: u32,
    /// Settings to choose among.
    pub settings: Vec<SettingAxis>,
    /// Combinations of them.
    pub candidates: u64,
    /// Starts at most.
    pub max_starts: u32,
    /// Time at most, seconds; null without a limit.
    pub budget_s: Option<f64>,
    /// Engines that were started.
    pub starts: u32,
    /// The best of what was measured; null where nothing keeps the limits.
    pub best: Option<BestSettings>,
    /// What came nearest, where nothing keeps the limits.
    pub nearest: Option<NearestSettings>,
    /// One setting changed at a time, from the best.
    pub worth: Vec<SettingWorth>,
    /// Every start, in its order.
    pub trials: Vec<Trial>,
    /// What was not tried, and why.
    pub not_tried: Vec<UntriedSettings>,
    /// What must be known of these figures, sentences.
    pub notes: Vec<String>,
}

/// The best of what was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BestSettings {
    /// The settings that differ, by name.
    pub settings: BTreeMap<String, String>,
    /// The line that starts it; null where it is unknown.
    pub command: Option<String>,
    /// A Compose file of the same; null where the engine runs in a container of the user's.
    pub compose: Option<String>,
    /// In the unit of the goal.
    pub score: f64,
    /// Its load, with every repeat.
    pub load: LoadFigures,
    /// Largest less smallest throughput of the repeats, percent of their mean; null for a single one.
    pub spread_percent: Option<f64>,
    /// Memory that stayed free on the fullest device, percent; null where there is no limit.
    pub free_percent: Option<f64>,
    /// What the surrogate expected before it was started; null for the first start, and where parts were joined.
    pub predicted_score: Option<f64>,
    /// Expected less measured, percent of what was measured.
    pub prediction_error_percent: Option<f64>,
    /// The memory estimate against its measurement, item by item; empty where the engine's memory is not computed.
    pub estimate: Vec<ItemRow>,
}

/// What came nearest to the limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NearestSettings {
    /// The settings that differ, by name.
    pub settings: BTreeMap<String, String>,
    /// Concurrent requests.
    pub concurrency: u32,
    /// What it missed, the worst first.
    pub missed: Vec<MissedLimit>,
}

/// One setting with another value than the best has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingWorth {
    /// Its name.
    pub setting: String,
    /// The value of the best.
    pub best_value: String,
    /// The other value.
    pub value: String,
    /// Change of the score with the other value, percent; null where it is unknown.
    pub change_percent: Option<f64>,
    /// Whether that was measured; else the surrogate expects it.
    pub measured: bool,
    /// What else must be known, a clause: a limit that it misses, why it failed.
    pub remark: Option<String>,
}

/// A combination that was not tried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UntriedSettings {
    /// The settings that differ, by name.
    pub settings: BTreeMap<String, String>,
    /// Why, a clause.
    pub reason: String,
    /// What the surrogate expects of its score; null before anything was measured.
    pub predicted_score: Option<f64>,
}

impl Tuning {
    /// Settings that score less than the best by no more than its repeats lie apart.
    pub fn equal_to_best(&self) -> Vec<&Trial> {
        let spread = self.best.as_ref().and_then(|b| b.spread_percent);
        let (Some(best), Some(spread)) = (&self.best, spread) else {
            return Vec::new();
        };
        let limits = TuningLimits {
            objectives: self.objectives.clone(),
            headroom_percent: self.headroom_percent,
        };
        let least = best.score * (1.0 - spread / 100.0);
        let is_equal = |trial: &&Trial| {
            let own = Trial::best_load(&trial.long_loads, self.goal, &limits);
            trial.settings != best.settings
                && own.is_some_and(|(_, own)| own.keeps_limits && own.score >= least)
        };
        // A number of requests has no noise.
        let noisy = self.goal != TuningGoal::Concurrency;
        self.trials
            .iter()
            .filter(|_| noisy)
            .filter(is_equal)
            .collect()
    }

    /// Draws the conclusions of a search. `head` has what is known beside the trials, `ended_by` why the search ended
    /// before all candidates were tried, a clause, and `winner` how it is started and its estimate.
    pub fn conclude_search(
        head: Tuning,
        ended_by: &str,
        search: &TuningSearch<'_>,
        (goal, limits): (TuningGoal, &TuningLimits),
        winner: BestSettings,
    ) -> Tuning {
        let space = search.space;
        let trials = &search.trials;
        let best = search
            .winner()
            .and_then(|trial| best_settings(trial, goal, limits, winner));
        let nearest = match best {
            Some(_) => None,
            None => nearest_settings(trials, goal, limits),
        };
        let tried: Vec<usize> = trials.iter().map(|t| t.candidate).collect();
        let untried = (0..space.candidates.len()).filter(|c| !tried.contains(c));
        let not_tried = untried.map(|candidate| {
            let excluded = search.excluded.get(&candidate);
            UntriedSettings {
                settings: space.values_of(candidate),
                reason: excluded.map_or_else(|| ended_by.to_owned(), String::clone),
                predicted_score: search.predicted_score(candidate),
            }
        });
        let starts = trials.iter().filter(|t| !t.measured_before).count();
        Tuning {
            document: TUNING_DOCUMENT.into(),
            schema_version: TUNING_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            goal,
            objectives: limits.objectives.clone(),
            headroom_percent: limits.headroom_percent,
            settings: space.axes.clone(),
            candidates: space.candidates.len() as u64,
            starts: u32::try_from(starts).unwrap_or(u32::MAX),
            worth: match search.winner() {
                Some(winner) => worth_of_settings(search, winner, goal, limits),
                None => Vec::new(),
            },
            best,
            nearest,
            trials: trials.to_vec(),
            not_tried: not_tried.collect(),
            ..head
        }
    }
}

fn best_settings(
    trial: &Trial,
    goal: TuningGoal,
    limits: &TuningLimits,
    winner: BestSettings,
) -> Option<BestSettings> {
    let (load, score) = Trial::best_load(&trial.long_loads, goal, limits)?;
    let score = score.score;
    Some(BestSettings {
        settings: trial.settings.clone(),
        score,
        spread_percent: spread_percent(load),
        free_percent: load.free_percent(),
        load: load.clone(),
        predicted_score: trial.predicted_score,
        prediction_error_percent: trial.predicted_score.map(|p| (p - score) / score * 100.0),
        ..winner
    })
}

/// Largest less smallest throughput of the repeats, percent of their mean.
fn spread_percent(load: &LoadFigures) -> Option<f64> {
    let speeds: Vec<f64> = load
        .repeats
        .iter()
        .filter_map(|r| r.tokens_per_second)
        .collect();
    let mean = arithmetic_mean(&speeds).filter(|m| *m > 0.0 && speeds.len() > 1)?;
    let highest = speeds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
    Some((highest - lowest) / mean * 100.0)
}

/// The load of all that missed its limits by least.
fn nearest_settings(
    trials: &[Trial],
    goal: TuningGoal,
    limits: &TuningLimits,
) -> Option<NearestSettings> {
    let loads = trials.iter().flat_map(|trial| {
        let loads = trial.short_loads.iter().chain(&trial.long_loads);
        loads.map(move |load| (trial, load))
    });
    let missed = loads.filter_map(|(trial, load)| {
        load.goal_score(goal)?;
        let missed = load.missed_limits(limits);
        Some((missed.first()?.excess, trial, load, missed))
    });
    let (_, trial, load, missed) = missed.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(NearestSettings {
        settings: trial.settings.clone(),
        concurrency: load.concurrency,
        missed,
    })
}

/// Each setting with each other value: measured where that was started, else as the surrogate expects it.
fn worth_of_settings(
    search: &TuningSearch<'_>,
    winner: &Trial,
    goal: TuningGoal,
    limits: &TuningLimits,
) -> Vec<SettingWorth> {
    let space = search.space;
    let Some(places) = space.candidates.get(winner.candidate) else {
        return Vec::new();
    };
    let mut worth = Vec::new();
    for (at, axis) in space.axes.iter().enumerate() {
        // The surrogate expects the same of all values of a setting that it saw one value of.
        let is_learnt = search.known_trials().any(|trial| {
            let own = space.candidates.get(trial.candidate);
            own.is_some_and(|own| own.get(at) != places.get(at))
        });
        for (place, value) in axis.values.iter().enumerate() {
            let mut other = places.clone();
            if std::mem::replace(&mut other[at], place) == place {
                continue;
            }
            let Some(candidate) = space.candidates.iter().position(|own| *own == other) else {
                continue;
            };
            let trial = search.trials.iter().find(|t| t.candidate == candidate);
            let (change_percent, remark) = match trial {
                Some(trial) => measured_change(trial, winner, goal, limits),
                None if !is_learnt => {
                    let why = "no start had another value of it";
                    (None, Some(why.to_owned()))
                }
                None => {
                    let of = |candidate| search.predicted_score(candidate);
                    let change = of(candidate).zip(of(winner.candidate));
                    (change.map(|(a, b)| (a - b) / b * 100.0), None)
                }
            };
            worth.push(SettingWorth {
                setting: axis.name.clone(),
                best_value: axis.values.get(places[at]).cloned().unwrap_or_default(),
                value: value.clone(),
                change_percent,
                measured: trial.is_some(),
                remark,
            });
        }
    }
    worth
}

/// How far a trial's score is from the winner's, both under long loads where both had one, else both under short ones.
fn measured_change(
    trial: &Trial,
    winner: &Trial,
    goal: TuningGoal,
    limits: &TuningLimits,
) -> (Option<f64>, Option<String>) {
    let long = (
        Trial::best_load(&trial.long_loads, goal, limits),
        Trial::best_load(&winner.long_loads, goal, limits),
    );
    let short = || {
        let own = Trial::best_load(&trial.short_loads, goal, limits);
        own.zip(Trial::best_load(&winner.short_loads, goal, limits))
    };
    let both = match long {
        (Some(own), Some(best)) => Some((own, best)),
        _ => short(),
    };
    let Some(((load, _), (best_load, _))) = both else {
        return (None, trial.reason.clone());
    };
    let scores = load.goal_score(goal).zip(best_load.goal_score(goal));
    let missed = load.missed_limits(limits).first().map(ToString::to_string);
    (
        scores.map(|(own, best)| (own - best) / best * 100.0),
        missed,
    )
}
