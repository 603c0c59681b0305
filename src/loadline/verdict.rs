//! Whether a round held: without errors, preemptions and queueing, and within the limits on latency.

use super::document::LoadlineRound;
use super::objective::{Objective, Objectives};
use super::observe::RoundObservation;
use super::predict::Prediction;
use crate::engine::limits::Resource;
use serde::{Deserialize, Serialize};

/// KV usage above which the pool counts as full: engines keep the last blocks in reserve.
const FULL: f64 = 0.9;

/// The gauge of running requests is trusted after this many readings, of answers that take at least this long, seconds.
const FEWEST_READINGS: u64 = 5;
const SHORTEST_S: f64 = 0.5;

/// Of readings after which requests wait, this part is more than the moments between two steps.
const MOSTLY: f64 = 0.5;

/// Why a round did not hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RoundFailure {
    /// Requests failed, or the engine did.
    Errors {
        /// How many.
        failed: u64,
        /// The first, a sentence.
        first: Option<String>,
    },
    /// Requests lost their place in the pool and were computed again.
    Preemption {
        /// How often.
        count: u64,
    },
    /// Requests waited for others to end.
    Queueing {
        /// Most that ran at once, by the engine, or were being answered at once, by the client; null
        /// where neither is known.
        together: Option<u64>,
        /// Requests in flight.
        of: u64,
        /// Requests that waited for long, by the engine's histogram.
        queued_long: Option<u64>,
    },
    /// A limit on latency was passed.
    Latency {
        /// The limit.
        #[serde(flatten)]
        objective: Objective,
        /// The figure, milliseconds; null where none was measured.
        measured_ms: Option<f64>,
    },
}

impl RoundFailure {
    /// As people read it.
    pub fn describe_fault(&self) -> String {
        match self {
            RoundFailure::Errors { failed, first } => {
                let first = first
                    .as_ref()
                    .map(|f| format!(" ({f})"))
                    .unwrap_or_default();
                match (failed, first.as_str()) {
                    (0, first) if !first.is_empty() => format!("ended{first}"),
                    (failed, first) => format!("{failed} failed{first}"),
                }
            }
            RoundFailure::Preemption { count: 1 } => "1 preemption".into(),
            RoundFailure::Preemption { count } => format!("{count} preemptions"),
            RoundFailure::Queueing {
                together: Some(n),
                of,
                ..
            } if n < of => format!("queueing: {n} of {of} concurrent"),
            RoundFailure::Queueing {
                queued_long: Some(n),
                ..
            } if *n > 0 => format!("queueing: {n} waited long"),
            RoundFailure::Queueing { .. } => "queueing".into(),
            RoundFailure::Latency {
                objective,
                measured_ms,
            } => {
                let Objective {
                    metric,
                    statistic,
                    limit_ms,
                } = objective;
                let name = metric.as_str();
                match measured_ms {
                    Some(ms) => format!("{name} {statistic} {ms:.1} > {limit_ms} ms"),
                    None => format!("{name} {statistic} not measured"),
                }
            }
        }
    }
}

/// Most requests that the engine ran at once by its own gauges, where one reading found all of them running, or where
/// they were read often enough to see how many run. It goes before what the client saw: on a busy host a server
/// hands on late what the engine has long done, and answers seem to overlap.
fn running(round: &RoundObservation, concurrency: u64) -> Option<u64> {
    let often = round.readings >= FEWEST_READINGS;
    let long = round.generation_s.is_some_and(|s| s >= SHORTEST_S);
    (round.running_most).filter(|n| *n >= concurrency || often && long)
}

/// Most requests of a round that ran at once: by the engine, else as the client saw them.
pub fn concurrency_reached(round: &RoundObservation, concurrency: u64) -> Option<u64> {
    running(round, concurrency).or(round.together)
}

/// Everything that was wrong with a round; nothing is a round that held.
pub fn check_round(
    concurrency: u64,
    round: &RoundObservation,
    objectives: &Objectives,
) -> Vec<RoundFailure> {
    let mut faults = Vec::new();
    if round.failed > 0 || round.completed == 0 {
        faults.push(RoundFailure::Errors {
            failed: round.failed,
            first: round.first_error.clone(),
        });
    }
    if let Some(count) = round.preemptions.filter(|n| *n > 0) {
        faults.push(RoundFailure::Preemption { count });
    }
    // The requests of the first wave are sent together: where the engine runs all of them at once,
    // all are half-way at some moment.
    let together = concurrency_reached(round, concurrency);
    let apart = together.is_some_and(|n| n < concurrency);
    let long = round.queued_long.is_some_and(|n| n > 0);
    // Only where nothing finer is known: a reading finds a queue by chance.
    let mostly = together.is_none()
        && round.queued_long.is_none()
        && round.readings > 1
        && (round.readings_waiting).is_some_and(|n| n as f64 > MOSTLY * round.readings as f64);
    if apart || long || mostly {
        faults.push(RoundFailure::Queueing {
            together,
            of: concurrency,
            queued_long: round.queued_long,
        });
    }
    for objective in &objectives.0 {
        let measured_ms = objective.measured_figure(&round.result);
        if measured_ms.is_none_or(|ms| ms > objective.limit_ms) {
            faults.push(RoundFailure::Latency {
                objective: objective.clone(),
                measured_ms,
            });
        }
    }
    faults
}

/// What ran out in a round that did not hold.
pub fn ran_out(
    concurrency: u64,
    round: &RoundObservation,
    faults: &[RoundFailure],
    prediction: &Prediction,
) -> Option<Resource> {
    let has = |f: fn(&RoundFailure) -> bool| faults.iter().any(f);
    // A server that takes no more answers with errors, whatever else there was.
    let beyond = |resource| {
        prediction
            .limit_for(resource)
            .is_some_and(|limit| limit.concurrency < concurrency)
    };
    if has(|f| matches!(f, RoundFailure::Errors { .. })) {
        return Some(if beyond(Resource::Connections) {
            Resource::Connections
        } else {
            Resource::Errors
        });
    }
    if has(|f| matches!(f, RoundFailure::Preemption { .. })) {
        return Some(Resource::KvPool);
    }
    if has(|f| matches!(f, RoundFailure::Queueing { .. })) {
        // The least limit that this load is beyond; the limits are in that order. A pool that was never half full is
        // not what ran out, whatever was predicted.
        let roomy = round.kv_usage_most.is_some_and(|u| u < 0.5);
        let passed = prediction
            .limits
            .iter()
            .find(|l| l.concurrency < concurrency && !(l.resource == Resource::KvPool && roomy));
        let seen = match passed {
            Some(limit) => Some(limit.resource),
            None if round.kv_usage_most.is_some_and(|u| u >= FULL) => Some(Resource::KvPool),
            // The engine itself let requests wait, and nothing of it was used up.
            None if round.queued_long.is_some_and(|n| n > 0) => Some(Resource::Prefill),
            None => None,
        };
        if seen.is_some() {
            return seen;
        }
    }
    has(|f| matches!(f, RoundFailure::Latency { .. })).then_some(Resource::Latency)
}

/// Whether queueing of a round is seen from the client alone: the engine was read too seldom to say how many ran.
pub(super) fn is_too_short(round: &LoadlineRound) -> bool {
    let queued = |f: &RoundFailure| matches!(f, RoundFailure::Queueing { .. });
    round.seen.readings < FEWEST_READINGS
        && round.seen.result.duration_s.is_some_and(|s| s < 1.0)
        && round.faults.iter().any(queued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadline::predict::ResourceLimit;

    fn good() -> RoundObservation {
        RoundObservation {
            completed: 96,
            together: Some(32),
            generation_s: Some(4.0),
            preemptions: Some(0),
            queued_long: Some(0),
            readings: 10,
            readings_waiting: Some(2),
            running_most: Some(32),
            kv_usage_most: Some(0.8),
            ..RoundObservation::default()
        }
    }

    fn describe_fault(round: &RoundObservation) -> Vec<String> {
        let faults = check_round(32, round, &Objectives::default());
        faults.iter().map(RoundFailure::describe_fault).collect()
    }

    #[test]
    fn a_round_without_a_fault_holds_though_a_reading_found_a_queue() {
        assert_eq!(describe_fault(&good()), [""; 0]);
    }

    #[test]
    fn each_fault_is_described() {
        let round = RoundObservation {
            failed: 3,
            first_error: Some("refused: 429".into()),
            preemptions: Some(1),
            running_most: Some(28),
            ..good()
        };
        assert_eq!(
            describe_fault(&round),
            [
                "3 failed (refused: 429)",
                "1 preemption",
                "queueing: 28 of 32 concurrent"
            ]
        );
        let long = RoundObservation {
            queued_long: Some(7),
            ..good()
        };
        assert_eq!(describe_fault(&long), ["queueing: 7 waited long"]);
        let nothing = RoundObservation {
            completed: 0,
            ..good()
        };
        assert_eq!(describe_fault(&nothing), ["0 failed"]);
    }

    #[test]
    fn an_engine_that_ended_has_words_and_a_pool_with_room_did_not_run_out() {
        let ended = RoundFailure::Errors {
            failed: 0,
            first: Some("the time was up".into()),
        };
        assert_eq!(ended.describe_fault(), "ended (the time was up)");
        let waiting = RoundObservation {
            running_most: Some(28),
            kv_usage_most: Some(0.3),
            ..good()
        };
        let faults = check_round(32, &waiting, &Objectives::default());
        let prediction = Prediction {
            limits: vec![ResourceLimit {
                resource: Resource::KvPool,
                concurrency: 30,
                formula: String::new(),
                source: String::new(),
            }],
            ..Prediction::default()
        };
        assert_eq!(ran_out(32, &waiting, &faults, &prediction), None);
    }

    #[test]
    fn the_engines_word_goes_before_the_clients_where_it_was_asked_often_enough() {
        let late = RoundObservation {
            running_most: Some(24),
            ..good()
        };
        assert_eq!(describe_fault(&late), ["queueing: 24 of 32 concurrent"]);
        let seldom = RoundObservation {
            readings: 2,
            ..late.clone()
        };
        let short = RoundObservation {
            generation_s: Some(0.1),
            ..late
        };
        assert_eq!(
            (describe_fault(&seldom).len(), describe_fault(&short).len()),
            (0, 0)
        );
    }

    #[test]
    fn an_engine_that_ran_all_at_once_is_believed_however_short_the_answers() {
        let short = RoundObservation {
            generation_s: Some(0.2),
            readings: 2,
            running_most: Some(32),
            together: Some(30),
            queued_long: Some(0),
            ..good()
        };
        assert_eq!(describe_fault(&short), [""; 0]);
        let fewer = RoundObservation {
            running_most: Some(31),
            ..short
        };
        assert_eq!(describe_fault(&fewer), ["queueing: 30 of 32 concurrent"]);
    }

    #[test]
    fn an_engine_without_gauges_is_judged_by_its_answers_alone() {
        let dark = RoundObservation {
            preemptions: None,
            queued_long: None,
            readings: 0,
            readings_waiting: None,
            running_most: None,
            kv_usage_most: None,
            ..good()
        };
        assert_eq!(describe_fault(&dark), [""; 0]);
        let one_token = RoundObservation {
            together: None,
            readings: 10,
            readings_waiting: Some(9),
            ..dark
        };
        assert_eq!(describe_fault(&one_token), ["queueing"]);
    }

    #[test]
    fn a_limit_on_latency_that_was_not_measured_is_not_kept() {
        let objectives = Objectives::parse_objectives(&["ttft=500ms,itl=50ms".into()], 95).unwrap();
        let mut round = good();
        round.result.ttft_ms = [("p95".to_owned(), 499.0)].into();
        let faults = check_round(32, &round, &objectives);
        let described: Vec<String> = faults.iter().map(RoundFailure::describe_fault).collect();
        assert_eq!(described, ["itl p95 not measured"]);
        assert_eq!(
            ran_out(32, &round, &faults, &Prediction::default()),
            Some(Resource::Latency)
        );
    }

    #[test]
    fn what_ran_out_is_named_by_what_was_seen() {
        let limit = |resource, concurrency| ResourceLimit {
            resource,
            concurrency,
            formula: String::new(),
            source: String::new(),
        };
        let prediction = Prediction {
            limits: vec![limit(Resource::Sequences, 28), limit(Resource::KvPool, 40)],
            ..Prediction::default()
        };
        let out = |concurrency, round: &RoundObservation, prediction: &Prediction| {
            let faults = check_round(concurrency, round, &Objectives::default());
            ran_out(concurrency, round, &faults, prediction)
        };
        let queued = RoundObservation {
            running_most: Some(28),
            ..good()
        };
        assert_eq!(out(32, &queued, &prediction), Some(Resource::Sequences));
        assert_eq!(out(32, &queued, &Prediction::default()), None);
        let held_back = RoundObservation {
            queued_long: Some(3),
            ..queued.clone()
        };
        assert_eq!(
            out(32, &held_back, &Prediction::default()),
            Some(Resource::Prefill)
        );
        let full = RoundObservation {
            kv_usage_most: Some(0.97),
            ..queued.clone()
        };
        assert_eq!(
            out(32, &full, &Prediction::default()),
            Some(Resource::KvPool)
        );
        let preempted = RoundObservation {
            preemptions: Some(4),
            ..queued
        };
        assert_eq!(out(32, &preempted, &prediction), Some(Resource::KvPool));
        assert_eq!(out(32, &good(), &prediction), None);
    }
}
