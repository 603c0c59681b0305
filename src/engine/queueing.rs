//! How long requests waited in an engine's queue, from the histogram in its metrics.

use super::prometheus::samples;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A histogram of waiting times since the engine's start, or between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueTimes {
    /// Requests counted.
    pub count: u64,
    /// Total waiting time, seconds.
    pub sum_s: f64,
    /// Cumulative buckets: upper edge, seconds → requests that waited no longer. Without the
    /// infinite bucket.
    pub within: Vec<(f64, u64)>,
}

impl QueueTimes {
    /// Reads the histogram `name` (without `_sum`, `_count`, `_bucket`), summed over all label
    /// sets; `None` if the text has none.
    pub fn read(metrics: &str, name: &str) -> Option<QueueTimes> {
        let mut times = QueueTimes::default();
        // Keyed by the edge's bits: edges are above 0, where these have the numbers' order.
        let mut within: BTreeMap<u64, u64> = BTreeMap::new();
        let mut has_samples = false;
        for sample in samples(metrics) {
            let Some(part) = sample.name.strip_prefix(name) else {
                continue;
            };
            if !sample.value.is_finite() || sample.value < 0.0 {
                continue;
            }
            match part {
                "_count" => {
                    has_samples = true;
                    times.count = times.count.saturating_add(sample.value as u64);
                }
                "_sum" => times.sum_s += sample.value,
                "_bucket" => {
                    let edge = sample.label("le").and_then(|le| le.parse::<f64>().ok());
                    if let Some(edge) = edge.filter(|e| e.is_finite() && *e > 0.0) {
                        let n = within.entry(edge.to_bits()).or_default();
                        *n = n.saturating_add(sample.value as u64);
                    }
                }
                _ => {}
            }
        }
        times.within = within
            .into_iter()
            .map(|(edge, n)| (f64::from_bits(edge), n))
            .collect();
        has_samples.then_some(times)
    }

    /// The histogram between an earlier reading and this one; `None` if the engine restarted in
    /// between.
    pub fn since(&self, earlier: &QueueTimes) -> Option<QueueTimes> {
        let count = self.count.checked_sub(earlier.count)?;
        let mut within = Vec::with_capacity(self.within.len());
        for (edge, n) in &self.within {
            let before = earlier.within.iter().find(|(e, _)| e == edge);
            within.push((*edge, n.checked_sub(before.map_or(0, |(_, n)| *n))?));
        }
        Some(QueueTimes {
            count,
            sum_s: (self.sum_s - earlier.sum_s).max(0.0),
            within,
        })
    }

    /// Mean waiting time of a request, seconds.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_s / self.count as f64)
    }

    /// Requests that waited for at least `seconds`: those beyond the first edge that is not below
    /// it.
    pub fn at_least(&self, seconds: f64) -> u64 {
        let edge = self.within.iter().find(|(edge, _)| *edge >= seconds);
        edge.map_or(0, |(_, n)| self.count.saturating_sub(*n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VLLM: &str = "vllm:request_queue_time_seconds";

    fn text(counts: [u64; 4], sum: f64) -> String {
        let [a, b, c, all] = counts;
        format!(
            "x_bucket{{le=\"0.5\"}} {a}\nx_bucket{{le=\"1.0\"}} {b}\nx_bucket{{le=\"10.0\"}} {c}\n\
             x_bucket{{le=\"+Inf\"}} {all}\nx_count {all}\nx_sum {sum}\n"
        )
    }

    #[test]
    fn a_real_reply() {
        let text = include_str!("../../tests/fixtures/vllm/metrics/metrics-after-bench.prom");
        let times = QueueTimes::read(text, VLLM).unwrap();
        assert!(times.count > 0 && times.within.len() > 5, "{times:?}");
        assert!(times.within.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert!(times.mean_s().unwrap() >= 0.0);
        assert_eq!(QueueTimes::read(text, "vllm:no_such_thing"), None);
    }

    #[test]
    fn what_came_between_two_readings() {
        let before = QueueTimes::read(&text([2, 2, 2, 2], 0.1), "x").unwrap();
        let after = QueueTimes::read(&text([5, 6, 7, 8], 30.1), "x").unwrap();
        let between = after.since(&before).unwrap();
        assert_eq!(between.count, 6);
        assert_eq!(between.mean_s(), Some(5.0));
        // Of six, three waited at most 0.5 s, four at most 1 s, five at most 10 s.
        assert_eq!(
            [0.2, 0.5, 0.7, 5.0, 60.0].map(|s| between.at_least(s)),
            [3, 3, 2, 1, 0]
        );
        assert_eq!(before.since(&after), None, "it was started again");
    }
}
