//! What one round showed: what the client saw of its requests, and what the engine reported meanwhile.

use crate::capture::{AtNs, Capture, Phase, Probe, RequestRow, TokenSource};
use crate::engine::queueing::QueueTimes;
use crate::engine::{BenchResult, EngineId};
use crate::profile::{MemoryGauge, Profile};
use serde::{Deserialize, Serialize};

/// A round's figures; null where unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundObservation {
    /// Requests that were answered whole.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The first failure, a sentence.
    pub first_error: Option<String>,
    /// Most requests that were being answered at the same moment, each counted in the middle half of
    /// its answer; null where answers of one token leave nothing to see.
    pub together: Option<u64>,
    /// Median time over which an answer was generated, first token to last, seconds.
    pub generation_s: Option<f64>,
    /// Mean tokens of a prompt as the server counted them.
    pub input_tokens: Option<f64>,
    /// Mean tokens of an answer, where each reports them.
    #[serde(default)]
    pub output_tokens: Option<f64>,
    /// Preemptions during the round.
    pub preemptions: Option<u64>,
    /// Mean waiting in the engine's queue, seconds.
    pub queue_mean_s: Option<f64>,
    /// Requests that waited there for at least half of `generation_s`.
    pub queued_long: Option<u64>,
    /// Readings of the gauges during the load.
    pub readings: u64,
    /// Readings that found requests waiting.
    pub readings_waiting: Option<u64>,
    /// Most requests that a reading found running.
    pub running_most: Option<u64>,
    /// How full the device that came nearest to its limit was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fullest_device: Option<MemoryGauge>,
    /// Highest use of the KV pool that a reading found, 0 to 1.
    pub kv_usage_most: Option<f64>,
    /// Latency and throughput, as the client measured them.
    pub result: BenchResult,
}

impl RoundObservation {
    /// From a capture, the requests of its client and the profile that was derived of it.
    pub fn observe_round(
        capture: &Capture,
        rows: &[RequestRow],
        profile: &Profile,
    ) -> RoundObservation {
        let engine = EngineId::from_name(&capture.engine).ok();
        let whole: Vec<&RequestRow> = rows.iter().filter(|r| r.is_ok()).collect();
        let failed: Vec<&RequestRow> = rows.iter().filter(|r| r.has_failed()).collect();
        let generation_s = generation_s(&whole);
        let queue = engine.and_then(|e| queue(e, &capture.probes));
        let during: Vec<_> = match load_window(capture) {
            Some((from, to)) => (capture.gauges.iter())
                .filter(|g| g.at_ns >= from && g.at_ns <= to)
                .collect(),
            None => Vec::new(),
        };
        let waiting = during.iter().filter_map(|g| g.requests_waiting);
        let result = profile
            .latency_stats
            .as_ref()
            .and_then(|s| s.repeats.first())
            .map(|r| r.result.clone())
            .unwrap_or_default();
        RoundObservation {
            completed: whole.len() as u64,
            failed: failed.len() as u64,
            first_error: failed
                .iter()
                .find_map(|r| r.error.as_ref())
                .map(|e| format!("{}: {}", e.kind.as_str(), e.message)),
            together: together(&whole),
            generation_s,
            input_tokens: input_tokens(&whole),
            output_tokens: output_tokens(&whole),
            preemptions: engine.and_then(|e| preemptions(e, capture)),
            queue_mean_s: queue.as_ref().and_then(QueueTimes::mean_s),
            queued_long: queue
                .as_ref()
                .zip(generation_s)
                .map(|(q, s)| q.at_least(s / 2.0)),
            readings: during.len() as u64,
            readings_waiting: waiting
                .clone()
                .next()
                .is_some()
                .then(|| waiting.filter(|n| *n > 0).count() as u64),
            running_most: during.iter().filter_map(|g| g.requests_running).max(),
            fullest_device: profile.fullest_device().map(|device| device.gauge),
            kv_usage_most: (during.iter().filter_map(|g| g.kv_cache_usage)).reduce(f64::max),
            result,
        }
    }
}

/// The measured part of the load.
fn load_window(capture: &Capture) -> Option<(AtNs, AtNs)> {
    let at = |phase: Phase| (capture.marks.iter()).find(|m| m.phase == phase);
    let from = at(Phase::Bench)?.at_ns;
    let to = (capture.marks.iter())
        .find(|m| m.phase == Phase::Cooldown && m.at_ns >= from)
        .map_or(capture.ended_at_ns, |m| m.at_ns);
    Some((from, to))
}

/// Most answers in the making at one moment. Of each only the middle half counts: where the client
/// is starved, the last words of one arrive after the first of the next, which waited for its end.
fn together(whole: &[&RequestRow]) -> Option<u64> {
    let mut edges: Vec<(AtNs, i64)> = Vec::new();
    for row in whole {
        let (Some(first), Some(last)) = (row.first_at_ns, row.last_at_ns) else {
            continue;
        };
        let quarter = (last - first) / 4;
        if quarter > 0 {
            edges.extend([(first + quarter, 1), (last - quarter, -1)]);
        }
    }
    // At one moment ends come before beginnings.
    edges.sort_unstable();
    let mut now = 0;
    let most = edges.iter().map(|(_, step)| {
        now += step;
        now
    });
    most.max().and_then(|n| u64::try_from(n).ok())
}

fn generation_s(whole: &[&RequestRow]) -> Option<f64> {
    let all = (whole.iter())
        .filter_map(|r| Some((r.last_at_ns? - r.first_at_ns?) as f64 / 1e9))
        .filter(|s| *s > 0.0);
    crate::profile::stats::median_of(all.collect())
}

fn input_tokens(whole: &[&RequestRow]) -> Option<f64> {
    let counted: Vec<f64> = (whole.iter())
        .filter_map(|r| r.input_tokens.or(r.input_counted))
        .map(|n| n as f64)
        .collect();
    crate::profile::stats::arithmetic_mean(&counted)
}

/// Mean tokens of an answer; null where the server does not report them for each: a client that counts events counts too
/// few where some have several.
fn output_tokens(whole: &[&RequestRow]) -> Option<f64> {
    let reported_tokens = |r: &&RequestRow| {
        let by_server = r.output_source == Some(TokenSource::Usage);
        r.output_tokens.filter(|_| by_server).map(|n| n as f64)
    };
    let all: Option<Vec<f64>> = whole.iter().map(reported_tokens).collect();
    crate::profile::stats::arithmetic_mean(&all?)
}

/// The queue's histogram at the end less that at the beginning. A reading from before the load has
/// at most the requests of others in it.
fn queue(engine: EngineId, probes: &[Probe]) -> Option<QueueTimes> {
    let name = engine.queue_histogram?;
    let path = engine.gauges_endpoint()?;
    let mut replies = probes
        .iter()
        .filter(|p| p.path == path && p.status == Some(200))
        .filter_map(|p| QueueTimes::read(&p.body, name));
    let first = replies.next()?;
    replies.next_back()?.since(&first)
}

/// Preemptions between the first reading and the last.
fn preemptions(engine: EngineId, capture: &Capture) -> Option<u64> {
    let path = engine.gauges_endpoint()?;
    let asked = (capture.probes.iter())
        .filter(|p| p.path == path)
        .filter_map(|p| (engine.read_probes)(std::slice::from_ref(p)).preemptions);
    let read = capture.gauges.iter().filter_map(|g| g.preemptions);
    let all: Vec<u64> = asked.chain(read).collect();
    // It only grows while the engine lives.
    Some(all.iter().max()? - all.iter().min()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::reply;

    fn row(first: i64, last: i64) -> RequestRow {
        RequestRow {
            sent_at_ns: Some(0),
            first_at_ns: Some(first),
            last_at_ns: Some(last),
            ended_at_ns: last,
            input_tokens: Some(9),
            ..RequestRow::default()
        }
    }

    #[test]
    fn answers_in_the_making_are_counted() {
        let count = |rows: &[RequestRow]| together(&rows.iter().collect::<Vec<_>>());
        let wave = [row(1, 10), row(2, 11), row(3, 12)];
        assert_eq!(count(&wave), Some(3));
        // The third begins when the first has ended: it had to wait, though a little overlaps.
        let queued = [row(1, 10), row(2, 11), row(9, 19)];
        assert_eq!(count(&queued), Some(2));
        assert_eq!(count(&[row(5, 5), row(5, 5)]), None);
    }

    #[test]
    fn counters_are_taken_from_before_and_after() {
        let text = |preempted: u64, waited: u64| {
            format!(
                "vllm:num_preemptions_total {preempted}\nvllm:request_queue_time_seconds_count {waited}\n\
                 vllm:request_queue_time_seconds_sum 8\nvllm:request_queue_time_seconds_bucket{{le=\"1.0\"}} 2\n"
            )
        };
        let capture = Capture {
            engine: "vllm".into(),
            probes: vec![
                reply("/metrics", &text(4, 2)),
                reply("/metrics", &text(7, 6)),
            ],
            ..Capture::default()
        };
        let profile = crate::profile::derive_profile(&capture, [], []);
        let rows = [row(0, 2_000_000_000), row(0, 2_000_000_000)];
        let round = RoundObservation::observe_round(&capture, &rows, &profile);
        assert_eq!(round.preemptions, Some(3));
        assert_eq!(
            round.queued_long,
            Some(4),
            "beyond the bucket of half of two seconds"
        );
        assert_eq!((round.input_tokens, round.completed), (Some(9.0), 2));
        let silent = Capture {
            engine: "vllm".into(),
            ..Capture::default()
        };
        let round = RoundObservation::observe_round(&silent, &rows, &profile);
        assert_eq!(
            (round.preemptions, round.queued_long, round.readings_waiting),
            (None, None, None)
        );
    }
}
