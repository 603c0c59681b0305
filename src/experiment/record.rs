//! One row for each request, as tables and other programs want them.

use super::level::{LevelRun, tokens_per_s};
use super::{Experiment, ExperimentLevel};
use crate::capture::RequestRow;
use serde::{Deserialize, Serialize};

/// One request. Null is not known; the document of the experiment has the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Unique within the experiment: its level, its repeat, its number in it.
    pub request_id: String,
    /// Name of its level.
    pub level: String,
    /// Tokens of the prompt: as counted by the server, else as asked for.
    pub seq_prompt: u64,
    /// Generated tokens.
    pub seq_generate: Option<u64>,
    /// From the moment that it was to be sent to its last token, or to its end where it failed,
    /// seconds.
    pub total_latency_s: f64,
    /// Time to first token, seconds.
    pub ttft_s: Option<f64>,
    /// Generated tokens per second; null where it failed.
    pub tokens_per_s: Option<f64>,
    /// Most that torch had allocated in its level, bytes.
    pub peak_alloc_bytes: Option<u64>,
    /// Most that torch had reserved in its level, bytes.
    pub peak_reserved_bytes: Option<u64>,
    /// The engine.
    pub backend: Option<String>,
    /// The model.
    pub model: String,
    /// When it was to be sent, RFC 3339, UTC.
    pub timestamp: Option<String>,
    /// Why it failed; null where it was answered whole.
    pub error: Option<String>,
}

impl Experiment {
    /// One row for each request of these runs, in the order of the levels and of the requests.
    pub fn request_records(&self, runs: &[LevelRun]) -> Vec<RequestRecord> {
        let of = |level: &'_ ExperimentLevel| runs.iter().find(|r| r.name == level.name);
        let levels = self.levels.iter().filter_map(|l| Some((l, of(l)?)));
        levels
            .flat_map(|(level, run)| {
                // When the sequences of a batch were sent is not known.
                let wall_start_ns = if run.requests.is_empty() {
                    0
                } else {
                    run.wall_start_ns
                };
                let rows = run.request_rows().into_owned().into_iter();
                rows.map(move |row| record_of_request(self, level, wall_start_ns, &row))
            })
            .collect()
    }
}

fn record_of_request(
    experiment: &Experiment,
    level: &ExperimentLevel,
    wall_ns: i64,
    row: &RequestRow,
) -> RequestRecord {
    let at_ns = i128::from(wall_ns) + i128::from(row.intended_at_ns);
    let at = jiff::Timestamp::from_nanosecond(at_ns).ok();
    let prompt = row.input_tokens.or(row.input_counted);
    RequestRecord {
        request_id: format!("{}-r{}-{}", level.name, row.repeat, row.number),
        level: level.name.clone(),
        seq_prompt: prompt.unwrap_or(u64::from(row.input_asked)),
        seq_generate: row.output_tokens,
        total_latency_s: row.e2e_ms() / 1e3,
        ttft_s: row.ttft_ms().map(|ms| ms / 1e3),
        tokens_per_s: tokens_per_s(row).filter(|_| row.is_ok()),
        peak_alloc_bytes: level.peak_alloc_bytes,
        peak_reserved_bytes: level.peak_reserved_bytes,
        backend: experiment.engine.clone(),
        model: experiment.model.clone(),
        // Milliseconds are precise enough, and every reader takes them.
        timestamp: at.filter(|_| wall_ns > 0).map(|t| format!("{t:.3}")),
        error: row
            .error
            .as_ref()
            .map(|e| format!("{}: {}", e.kind.as_str(), e.message)),
    }
}
