//! The document of a load line: predicted, measured, and every round.

use super::objective::Objectives;
use super::observe::RoundObservation;
use super::predict::{Prediction, TokenLengths};
use super::search::SearchOutcome;
use super::verdict::{RoundFailure, is_too_short, ran_out};
use crate::capture::{DeviceKind, RunEnd};
use crate::engine::limits::{LoadLimits, Resource};
use crate::profile::Profile;
use serde::{Deserialize, Serialize};

/// Version of the document.
pub const LOADLINE_VERSION: &str = "1.0";

/// How much load one engine holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loadline {
    /// `loadline`.
    pub document: String,
    /// [`LOADLINE_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Start, RFC 3339, UTC.
    pub timestamp: String,
    /// True when an engine or a device is simulated.
    pub simulated: bool,
    /// The container's name.
    pub container: String,
    /// Its image.
    pub image: String,
    /// The engine.
    pub engine: String,
    /// Its version; null where it is unknown.
    pub engine_version: Option<String>,
    /// The model; null where it is unknown.
    pub model: Option<String>,
    /// Length of every request, tokens.
    pub lengths: TokenLengths,
    /// Requests of a round for each in flight.
    pub waves: u32,
    /// How near to each other what holds and what fails must be, percent of the line.
    pub tolerance_percent: f64,
    /// Rounds at most.
    pub max_rounds: u32,
    /// Requests in flight at most.
    pub max_concurrency: u32,
    /// Limits on latency.
    pub objectives: Objectives,
    /// What was calculated.
    pub prediction: Prediction,
    /// What was measured; null where no round was made.
    pub measured: Option<MeasuredLine>,
    /// Measured less predicted, percent of what was predicted; null where either is unknown, or
    /// where limits on latency were asked for, which are not predicted.
    pub difference_percent: Option<f64>,
    /// What ran out, measured where it was, else predicted; null where a measured line was limited by nothing known.
    pub limiting: Option<Resource>,
    /// The setting to change, sentences.
    pub advice: Vec<String>,
    /// Every round in its order.
    pub rounds: Vec<LoadlineRound>,
    /// What must be known of these figures, sentences.
    pub notes: Vec<String>,
    /// How it ended.
    pub outcome: RunEnd,
}

/// The measured line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLine {
    /// The largest number of requests in flight that a round held; 0 where a single request was not held, null where
    /// none was held and fewer were not tried.
    pub concurrency: Option<u32>,
    /// The smallest above it that a round did not hold; null where every round held.
    pub fails_at: Option<u32>,
    /// Whether the two are within the tolerance: else the line lies somewhere between.
    pub closed: bool,
    /// What ran out where it failed.
    pub limiting: Option<Resource>,
}

/// One round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadlineRound {
    /// From 1.
    pub number: u32,
    /// Requests in flight.
    pub concurrency: u32,
    /// Requests in all.
    pub requests: u32,
    /// Whether it was made before and failed.
    pub again: bool,
    /// Whether it held.
    pub held: bool,
    /// Why not.
    pub faults: Vec<RoundFailure>,
    /// What ran out.
    pub ran_out: Option<Resource>,
    /// What the round measured.
    pub seen: RoundObservation,
    /// File name of its profile, beside the document; the capture lies with it.
    pub profile: String,
}

impl Loadline {
    /// What is known before the first round, from the profile of a look at the engine.
    pub fn begin_document(look: &Profile, timestamp: String, lengths: TokenLengths) -> Loadline {
        Loadline {
            document: "loadline".into(),
            schema_version: LOADLINE_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            timestamp,
            simulated: look.metadata.simulated,
            container: look.metadata.container.name.clone(),
            image: look.metadata.container.image.clone(),
            engine: look.engine_metadata.engine_type.clone(),
            engine_version: look.engine_metadata.engine_version.clone(),
            model: look.model_info.name.clone(),
            lengths,
            ..Loadline::default()
        }
    }

    /// Adds a round and what ran out in it.
    pub fn add_round(&mut self, mut round: LoadlineRound) {
        round.ran_out = ran_out(
            u64::from(round.concurrency),
            &round.seen,
            &round.faults,
            &self.prediction,
        );
        self.rounds.push(round);
    }

    /// Draws the conclusions. `look`: the profile that the prediction is of.
    pub fn conclude_search(&mut self, look: &Profile, outcome: SearchOutcome) {
        if outcome.holds > 0 || outcome.fails.is_some() {
            let failed = self
                .rounds
                .iter()
                .filter(|r| Some(r.concurrency) == outcome.fails);
            self.measured = Some(MeasuredLine {
                concurrency: (outcome.holds > 0 || outcome.fails == Some(1))
                    .then_some(outcome.holds),
                fails_at: outcome.fails,
                closed: outcome.closed,
                limiting: failed.filter(|r| !r.held).find_map(|r| r.ran_out),
            });
        }
        // Of an open search the line lies somewhere between: there is nothing to compare.
        let closed = self
            .measured
            .as_ref()
            .filter(|m| m.closed && m.fails_at.is_some());
        self.difference_percent = closed
            .and_then(|m| m.concurrency)
            .filter(|_| self.objectives.0.is_empty())
            .zip(self.prediction.concurrency.filter(|p| *p > 0))
            .map(|(held, p)| (f64::from(held) - p as f64) / p as f64 * 100.0);
        let measured = self.measured.as_ref();
        // What was predicted did not limit a line that was measured.
        self.limiting = match measured {
            Some(line) if line.fails_at.is_some() => line.limiting,
            _ => self.prediction.resource,
        };
        let on_cpu = (look.gpu_info.devices.iter()).all(|d| d.kind != DeviceKind::Gpu);
        if measured.is_some_and(|m| m.fails_at.is_none()) {
            let more = format!(
                "--max-concurrency {}: all that was tried was sustained",
                u64::from(outcome.holds) * 2
            );
            self.advice = vec![more];
        } else if let Some(resource) = self.limiting {
            self.advice = LoadLimits::of_engine(&self.engine).advice(resource, on_cpu);
        }
        self.note_missing_figures();
    }

    fn note_missing_figures(&mut self) {
        let Some(first) = self.rounds.first().map(|r| &r.seen) else {
            return;
        };
        let counted = first.input_tokens.filter(|n| {
            let asked = self.lengths.input as f64;
            (n - asked).abs() > asked * 0.02
        });
        let uncounted = first.preemptions.is_none()
            && first.queued_long.is_none()
            && first.readings_waiting.is_none();
        let mut notes = Vec::new();
        let others = |r: &LoadlineRound| {
            r.seen
                .running_most
                .is_some_and(|n| n > u64::from(r.concurrency))
        };
        if self.rounds.iter().any(others) {
            notes.push("more requests ran than were sent: others use this engine, and the line is what it holds beside their load".into());
        }
        let short = self.rounds.iter().filter(|r| is_too_short(r));
        let short: Vec<String> = short.map(|r| r.number.to_string()).collect();
        if !short.is_empty() {
            notes.push(format!(
                "too short to see a queue in the engine: round {}; that requests waited was seen by the client alone; larger --waves or --output-len make rounds longer",
                short.join(", ")
            ));
        }
        if let Some(n) = counted {
            notes.push(format!(
                "the server counts {n:.0} tokens in a prompt of {}: the prediction is for what it counts",
                self.lengths.input
            ));
        }
        let asked = self.lengths.output as f64;
        let short = self.rounds.iter().filter_map(|r| r.seen.output_tokens);
        if let Some(n) = short.filter(|n| *n < asked * 0.98).reduce(f64::min) {
            notes.push(format!(
                "answers ended after {n:.0} tokens on average, not after the {asked:.0} that were asked for: the measured line is one of shorter requests than the predicted one"
            ));
        }
        if uncounted {
            notes.push("the engine reports neither preemptions nor queues: rounds are judged by errors, by concurrent answers and by latency".into());
        } else if first.preemptions.is_none() {
            notes.push("the engine reports no preemptions: they show only as latency".into());
        }
        self.notes.extend(notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Capture;
    use crate::loadline::predict::ResourceLimit;

    fn line(rounds: &[(u32, bool)], outcome: SearchOutcome) -> Loadline {
        let capture = Capture {
            engine: "vllm".into(),
            ..Capture::default()
        };
        let look = crate::profile::derive_profile(&capture, [], []);
        let lengths = TokenLengths {
            input: 128,
            output: 256,
        };
        let mut line = Loadline::begin_document(&look, String::new(), lengths);
        line.prediction = Prediction {
            concurrency: Some(32),
            resource: Some(Resource::KvPool),
            limits: vec![ResourceLimit {
                resource: Resource::KvPool,
                concurrency: 32,
                formula: String::new(),
                source: String::new(),
            }],
            ..Prediction::default()
        };
        for (number, (concurrency, held)) in (1..).zip(rounds) {
            let preempted = RoundFailure::Preemption { count: 2 };
            line.add_round(LoadlineRound {
                number,
                concurrency: *concurrency,
                requests: concurrency * 3,
                again: false,
                held: *held,
                faults: if *held { Vec::new() } else { vec![preempted] },
                ran_out: None,
                seen: RoundObservation::default(),
                profile: String::new(),
            });
        }
        line.conclude_search(&look, outcome);
        line
    }

    #[test]
    fn predicted_against_measured() {
        let outcome = SearchOutcome {
            holds: 30,
            fails: Some(31),
            closed: true,
        };
        let line = line(&[(32, false), (30, true), (31, false)], outcome);
        assert_eq!(line.difference_percent, Some(-6.25));
        assert_eq!(line.limiting, Some(Resource::KvPool));
        assert_eq!(
            line.measured.as_ref().unwrap().limiting,
            Some(Resource::KvPool)
        );
        assert!(line.advice[0].contains("VLLM_CPU_KVCACHE_SPACE"));
        assert!(
            line.notes
                .iter()
                .any(|n| n.contains("neither preemptions nor queues"))
        );
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Loadline>(&text).unwrap(), line);
    }

    /// No more is claimed than what was tried.
    #[test]
    fn a_search_that_ended_early_claims_no_figure() {
        let failed_once = SearchOutcome {
            holds: 0,
            fails: Some(17),
            closed: false,
        };
        let early = line(&[(17, false)], failed_once);
        let measured = early.measured.as_ref().unwrap();
        assert_eq!((measured.concurrency, measured.fails_at), (None, Some(17)));
        assert_eq!(early.difference_percent, None);
        let alone = SearchOutcome {
            holds: 0,
            fails: Some(1),
            closed: true,
        };
        let none = line(&[(1, false)], alone);
        assert_eq!(none.measured.as_ref().unwrap().concurrency, Some(0));
        assert_eq!(none.difference_percent, Some(-100.0));
        let between = SearchOutcome {
            holds: 5,
            fails: Some(10),
            closed: false,
        };
        let between = line(&[(5, true), (10, false)], between);
        assert_eq!(between.difference_percent, None, "the line may be 8");
    }

    #[test]
    fn answers_that_end_early_are_noted() {
        let mut line = line(
            &[(1, false)],
            SearchOutcome {
                holds: 0,
                fails: Some(1),
                closed: true,
            },
        );
        line.rounds[0].seen.output_tokens = Some(16.0);
        line.note_missing_figures();
        assert!(
            line.notes.iter().any(|n| n.contains("after 16 tokens")),
            "{:?}",
            line.notes
        );
    }

    #[test]
    fn a_queue_in_a_round_that_was_too_short_is_noted() {
        let none = SearchOutcome {
            holds: 0,
            fails: Some(7),
            closed: false,
        };
        let mut line = line(&[(7, false)], none);
        let round = &mut line.rounds[0];
        round.seen.result.duration_s = Some(0.2);
        round.faults = vec![RoundFailure::Queueing {
            together: Some(2),
            of: 7,
            queued_long: None,
        }];
        line.note_missing_figures();
        let notes = line.notes.join("; ");
        assert!(
            notes.contains("too short to see a queue in the engine: round 1;"),
            "{notes}"
        );
    }

    #[test]
    fn what_was_not_bracketed_has_no_difference() {
        let open = SearchOutcome {
            holds: 64,
            fails: None,
            closed: false,
        };
        let open = line(&[(32, true), (64, true)], open);
        assert_eq!(open.difference_percent, None);
        assert_eq!(open.limiting, Some(Resource::KvPool), "predicted at least");
        let none = SearchOutcome {
            holds: 0,
            fails: None,
            closed: false,
        };
        assert_eq!(line(&[], none).measured, None);
    }
}
