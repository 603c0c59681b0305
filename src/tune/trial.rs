//! One start of an engine: the loads that it was measured under, what they are worth for the goal, and which of the
//! limits each keeps.

use crate::capture::DeviceKind;
use crate::loadline::{Objective, Objectives};
use crate::profile::stats::arithmetic_mean;
use crate::profile::{MemoryGauge, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use strum::IntoStaticStr;

/// What is to be as high as the limits allow.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TuningGoal {
    /// Generated tokens per second.
    #[default]
    Throughput,
    /// Generated tokens per second of each GPU: the price of a token falls as it rises.
    Cost,
    /// Concurrent requests.
    Concurrency,
}

crate::wording::as_written!(TuningGoal);

impl TuningGoal {
    /// The unit of its score.
    pub fn score_unit(self) -> &'static str {
        match self {
            TuningGoal::Throughput => "generated tokens/s",
            TuningGoal::Cost => "generated tokens/s per GPU",
            TuningGoal::Concurrency => "concurrent requests",
        }
    }
}

/// What a load must keep.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TuningLimits {
    /// Limits on latency.
    pub objectives: Objectives,
    /// Memory that must stay free, percent of the device that is fullest.
    pub headroom_percent: f64,
}

/// One repeat of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatFigures {
    /// Generated tokens per second; null where unknown.
    pub tokens_per_second: Option<f64>,
    /// Milliseconds by limit: `ttft p95`. What was not measured is missing.
    pub latency_ms: BTreeMap<String, f64>,
}

/// A load as it was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadFigures {
    /// Concurrent requests.
    pub concurrency: u32,
    /// Each repeat of the load.
    pub repeats: Vec<RepeatFigures>,
    /// Mean over the repeats; null where unknown.
    pub tokens_per_second: Option<f64>,
    /// Mean over the repeats, milliseconds by limit.
    pub latency_ms: BTreeMap<String, f64>,
    /// Requests that failed.
    pub failed: u64,
    /// GPUs that were measured; 0 on a CPU.
    pub gpus: u32,
    /// Peak of all devices, bytes; null where unknown.
    pub peak_bytes: Option<u64>,
    /// How full the device that came nearest to its limit was; null where there is no limit.
    pub fullest_device: Option<MemoryGauge>,
    /// Its profile.
    pub profile: String,
}

/// A part of the goal that a load missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissedLimit {
    /// Which: `ttft p95`, `headroom`, `failed requests`.
    pub part: String,
    /// The limit, in the part's unit.
    pub limit: f64,
    /// What was measured, in the same unit; null where nothing was.
    pub measured: Option<f64>,
    /// `ms`, `%`, or nothing for a count.
    pub unit: String,
    /// Times the limit, above 1.
    pub excess: f64,
}

impl fmt::Display for MissedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.unit.is_empty() { "" } else { " " };
        let MissedLimit {
            part, limit, unit, ..
        } = self;
        match self.measured {
            None => write!(f, "{part} was not measured"),
            Some(measured) => write!(
                f,
                "{part} is {measured:.1}{space}{unit}, the limit is {limit}{space}{unit}"
            ),
        }
    }
}

/// `ttft p95`: the key of a limit's figure.
pub fn objective_key(objective: &Objective) -> String {
    format!("{} {}", objective.metric.as_str(), objective.statistic)
}

/// An unmeasured figure counts as this many times its limit, failed requests as at least that.
const UNMEASURED_EXCESS: f64 = 10.0;

impl LoadFigures {
    /// Of the profile of a load.
    pub fn figures_of_profile(
        concurrency: u32,
        limits: &TuningLimits,
        profile: &Profile,
        path: String,
    ) -> LoadFigures {
        let stats = profile.latency_stats.as_ref();
        let results = || stats.iter().flat_map(|s| &s.repeats).map(|r| &r.result);
        let objectives = limits.objectives.0.iter();
        let repeats: Vec<RepeatFigures> = results()
            .map(|result| {
                let figures = objectives
                    .clone()
                    .filter_map(|o| Some((objective_key(o), o.measured_figure(result)?)));
                RepeatFigures {
                    tokens_per_second: result.output_tokens_per_second,
                    latency_ms: figures.collect(),
                }
            })
            .collect();
        let mean = |figure: &dyn Fn(&RepeatFigures) -> Option<f64>| {
            arithmetic_mean(&repeats.iter().filter_map(figure).collect::<Vec<f64>>())
        };
        let latency_ms = objectives.clone().filter_map(|o| {
            let key = objective_key(o);
            let mean = mean(&|repeat| repeat.latency_ms.get(&key).copied())?;
            Some((key, mean))
        });
        let devices = profile.gpu_info.devices.iter();
        let gpus = devices.filter(|d| d.kind == DeviceKind::Gpu).count();
        LoadFigures {
            concurrency,
            tokens_per_second: mean(&|repeat| repeat.tokens_per_second),
            latency_ms: latency_ms.collect(),
            failed: results().filter_map(|r| r.failed).sum(),
            gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
            peak_bytes: profile.memory_breakdown.total_measured_bytes,
            fullest_device: profile.fullest_device().map(|device| device.gauge),
            profile: path,
            repeats,
        }
    }

    /// The limits that it missed, the worst first.
    pub fn missed_limits(&self, limits: &TuningLimits) -> Vec<MissedLimit> {
        let mut missed: Vec<MissedLimit> = limits
            .objectives
            .0
            .iter()
            .filter_map(|objective| {
                let key = objective_key(objective);
                let measured = self.latency_ms.get(&key).copied();
                let excess = measured.map_or(UNMEASURED_EXCESS, |ms| ms / objective.limit_ms);
                (excess > 1.0).then(|| MissedLimit {
                    part: key,
                    limit: objective.limit_ms,
                    measured,
                    unit: "ms".into(),
                    excess,
                })
            })
            .collect();
        if self.failed > 0 {
            missed.push(MissedLimit {
                part: "failed requests".into(),
                limit: 0.0,
                measured: Some(self.failed as f64),
                unit: String::new(),
                excess: UNMEASURED_EXCESS,
            });
        }
        if let Some(free) = self.free_percent().filter(|p| *p < limits.headroom_percent) {
            missed.push(MissedLimit {
                part: "headroom".into(),
                limit: limits.headroom_percent,
                measured: Some(free),
                unit: "%".into(),
                excess: (100.0 - free) / (100.0 - limits.headroom_percent),
            });
        }
        missed.sort_by(|a, b| b.excess.total_cmp(&a.excess));
        missed
    }

    /// Memory that stayed free on the fullest device, percent; `None` where there is no limit.
    pub fn free_percent(&self) -> Option<f64> {
        let gauge = self.fullest_device.as_ref().filter(|g| g.total_bytes > 0)?;
        Some(gauge.free_bytes() as f64 / gauge.total_bytes as f64 * 100.0)
    }

    /// What it is worth for the goal, whatever limits it keeps; `None` where it was not measured.
    pub fn goal_score(&self, goal: TuningGoal) -> Option<f64> {
        let score = match goal {
            TuningGoal::Throughput => self.tokens_per_second?,
            TuningGoal::Cost => self.tokens_per_second? / f64::from(self.gpus.max(1)),
            TuningGoal::Concurrency => f64::from(self.concurrency),
        };
        Some(score).filter(|s| s.is_finite() && *s > 0.0)
    }
}

/// How a start ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Its long load was measured.
    Measured,
    /// Its short load showed that it cannot win: no long load was sent.
    Stopped,
    /// Nothing was measured.
    #[default]
    Failed,
}

/// One start of an engine with one candidate's settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Which candidate.
    #[serde(skip)]
    pub candidate: usize,
    /// The settings that differ, by name.
    pub settings: BTreeMap<String, String>,
    /// Short loads, from few concurrent requests to many.
    pub short_loads: Vec<LoadFigures>,
    /// Long loads, in the order in which they were sent.
    pub long_loads: Vec<LoadFigures>,
    /// What the surrogate expected of its score; null for the first, and of an earlier process of a part.
    pub predicted_score: Option<f64>,
    /// Whether all its figures are of an earlier run: no engine was started for it.
    pub measured_before: bool,
    /// How it ended.
    pub state: TrialState,
    /// Why it was stopped, or failed; a clause.
    pub reason: Option<String>,
    /// What it took, with the start of its engine, seconds.
    pub took_s: f64,
}

/// The flag that an engine refused, by the advice of `configs/causes.yaml` for an unknown one.
pub fn refused_flag(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("leave out `")?;
    let (flag, rest) = rest.split_once('`')?;
    rest.contains("refuses it").then_some(flag)
}

/// A score that keeps the limits, or how far it is from them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialScore {
    /// In the goal's unit. Of loads that miss a limit it is made smaller by how far they miss it, so that a search
    /// is led back to what keeps it.
    pub score: f64,
    /// Whether all limits are kept.
    pub keeps_limits: bool,
}

impl Trial {
    /// The best of some loads: one that keeps the limits, else the one that is nearest to them.
    pub fn best_load<'a>(
        loads: &'a [LoadFigures],
        goal: TuningGoal,
        limits: &TuningLimits,
    ) -> Option<(&'a LoadFigures, TrialScore)> {
        let scored = loads.iter().filter_map(|load| {
            let score = load.goal_score(goal)?;
            let excess = load.missed_limits(limits).first().map(|m| m.excess);
            let scored = TrialScore {
                score: excess.map_or(score, |excess| score / (excess * excess)),
                keeps_limits: excess.is_none(),
            };
            Some((load, scored))
        });
        scored.max_by(|(a, x), (b, y)| {
            let speed = |load: &LoadFigures| load.tokens_per_second.unwrap_or(0.0);
            (x.keeps_limits.cmp(&y.keeps_limits))
                .then(x.score.total_cmp(&y.score))
                .then(speed(a).total_cmp(&speed(b)))
        })
    }

    /// What its short loads are worth.
    pub fn short_score(&self, goal: TuningGoal, limits: &TuningLimits) -> Option<TrialScore> {
        Some(Trial::best_load(&self.short_loads, goal, limits)?.1)
    }

    /// Its load that counts and what that is worth: of the long loads where one was measured.
    pub fn final_load(
        &self,
        goal: TuningGoal,
        limits: &TuningLimits,
    ) -> Option<(&LoadFigures, TrialScore)> {
        let long = Trial::best_load(&self.long_loads, goal, limits);
        long.or_else(|| Trial::best_load(&self.short_loads, goal, limits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_the_engine_refused_is_found_in_the_reason() {
        let reason = "engine_died at 1 concurrent: the engine ended (exit 2): error: unrecognized arguments: --maxnumseqs 1 (correct or leave out `--maxnumseqs`: this release of the engine refuses it)";
        assert_eq!(refused_flag(reason), Some("--maxnumseqs"));
        assert_eq!(refused_flag("dominated: its short load scored 4.0"), None);
    }
}
