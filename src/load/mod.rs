//! The built-in load client: sends requests to a server by a plan, and returns the result of each.
//! It knows no container and writes no file.

mod answer;
mod arrivals;
mod client;
mod lengths;
mod prepare;
mod prompts;
mod protocol;
mod punctuality;
mod random;
mod sse;
pub mod stats;

pub use arrivals::Arrivals;
pub use lengths::{Length, LengthMix};

use crate::capture::{ErrorKind, RequestError, RequestRow};
use crate::engine::Dialect;
use crate::error::Failure;
use crate::redact::Redactor;
use answer::ResponseRecord;
use bytes::Bytes;
use client::HttpClient;
use prepare::Prepared;
use punctuality::{Lateness, LatenessWatch};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Where the requests go.
#[derive(Clone)]
pub struct LoadTarget {
    /// `host:port`.
    pub address: String,
    /// What is spoken there.
    pub dialect: Dialect,
    /// Name of the model.
    pub model: String,
    /// The server's API key: sent as a header only.
    pub key: Option<String>,
    /// Removes secrets from the server's messages.
    pub redactor: Redactor,
}

impl fmt::Debug for LoadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("address", &self.address)
            .field("dialect", &self.dialect)
            .field("model", &self.model)
            .field("key", &self.key.as_ref().map(|_| "…"))
            .finish()
    }
}

impl LoadTarget {
    /// Path of the requests.
    pub fn request_path(&self) -> &'static str {
        protocol::request_path(self.dialect)
    }
}

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Requests that are measured.
    pub requests: u32,
    /// Warm-up requests, sent one after the other; at least one, which probes what the server
    /// accepts.
    pub warmups: u32,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// How long they are.
    pub lengths: LengthMix,
    /// The text of each prompt, instead of ones that are made to a length.
    pub prompt: Option<String>,
    /// Seed of prompts, lengths and times.
    pub seed: u64,
    /// Number of the first prompt. A plan uses one number per request, and the next plan continues
    /// there, so that no prompt is repeated.
    pub first_prompt: u64,
    /// Time for one request.
    pub patience: Duration,
    /// Earliest time of a request; the prompts are made before.
    pub not_before: Option<Instant>,
}

impl LoadPlan {
    /// Number of warm-up and measured requests.
    pub fn prompt_count(&self) -> u64 {
        u64::from(self.requests) + u64::from(self.warmups.max(1))
    }
}

/// Progress of a run.
#[derive(Debug)]
pub enum LoadProgress<'a> {
    /// The prompts are made, and the first request is sent.
    WarmingUp,
    /// The measured part begins: all times in rows count from now.
    Measuring,
    /// A request is over.
    Row {
        /// How it went.
        row: &'a RequestRow,
        /// How many are over.
        done: u64,
        /// How many there will be.
        of: u64,
    },
}

/// Result of a run.
#[derive(Debug, Clone, Default)]
pub struct LoadOutcome {
    /// The measured requests in order; times count from the start of the measured part.
    pub requests: Vec<RequestRow>,
    /// Notes on deviations from the plan: sentences.
    pub notes: Vec<String>,
    /// How late this host woke the client; `None` if the load was too short to measure it.
    pub lateness: Option<Lateness>,
    /// Whether it was cancelled: requests are missing or have the corresponding error.
    pub cancelled: bool,
}

impl LoadOutcome {
    /// The result as JSON, with the keys of `vllm bench serve`.
    pub fn to_document(&self) -> serde_json::Value {
        let mut document = stats::result_document(&self.requests, &self.notes);
        document["client_late_ms"] = self
            .lateness
            .map(|late| serde_json::json!({"p99": late.p99_ms, "max": late.max_ms}))
            .into();
        document
    }
}

/// Sends the load to the server. Fails if no request at all can be made; errors of single requests
/// are in their rows. After `cancel` fires it ends soon, with the results so far.
pub async fn run_load(
    target: &LoadTarget,
    plan: &LoadPlan,
    cancel: &CancellationToken,
    mut progress: impl FnMut(LoadProgress<'_>),
) -> Result<LoadOutcome, Failure> {
    let http = HttpClient::new(&target.address, target.key.as_deref(), &target.redactor)
        .map_err(Failure::usage)?;
    let prepared = tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        prepared = prepare::prepare_prompts(&http, target, plan, || progress(LoadProgress::WarmingUp)) => Some(prepared?),
    };
    let Some(Prepared {
        prompts,
        extras,
        mut notes,
    }) = prepared
    else {
        return Ok(LoadOutcome {
            cancelled: true,
            ..LoadOutcome::default()
        });
    };

    let watch = LatenessWatch::start();
    let zero = Instant::now();
    progress(LoadProgress::Measuring);
    let prompts = Arc::new(prompts);
    let shared = Arc::new((http, target.clone(), cancel.clone()));
    let (n, patience) = (prompts.len(), plan.patience);
    let mut rows: Vec<RequestRow> = Vec::with_capacity(n);
    arrivals::drive_requests(
        plan.arrivals,
        n,
        plan.seed,
        zero,
        cancel,
        |i, intended| {
            let (shared, prompts) = (Arc::clone(&shared), Arc::clone(&prompts));
            async move {
                let (http, target, cancel) = &*shared;
                let prompt = &prompts[i];
                let body = Bytes::from(prompt.request_body(target, extras));
                let at = intended.saturating_duration_since(zero).as_nanos();
                let mut row = prompt.request_row(i as u64);
                row.intended_at_ns = i64::try_from(at).unwrap_or(i64::MAX);
                exchange(http, target.dialect, body, zero, patience, cancel, row).await
            }
        },
        |row: RequestRow| {
            rows.push(row);
            if let Some(row) = rows.last() {
                progress(LoadProgress::Row {
                    row,
                    done: rows.len() as u64,
                    of: n as u64,
                });
            }
        },
    )
    .await;
    let lateness = watch.end();
    rows.sort_by_key(|r| r.number);
    notes.extend(stats::result_notes(&rows));
    notes.extend(lateness.and_then(Lateness::lateness_note));
    Ok(LoadOutcome {
        requests: rows,
        notes,
        lateness,
        cancelled: cancel.is_cancelled(),
    })
}

/// Sends one request, until its end or until `cancel` fires.
async fn exchange(
    http: &HttpClient,
    dialect: Dialect,
    body: Bytes,
    zero: Instant,
    patience: Duration,
    cancel: &CancellationToken,
    row: RequestRow,
) -> RequestRow {
    let mut answer = ResponseRecord::to_request(row);
    tokio::select! {
        biased;
        () = http.post_and_stream(dialect, body, zero, patience, &mut answer) => {}
        () = cancel.cancelled() => {
            let at = i64::try_from(zero.elapsed().as_nanos()).unwrap_or(i64::MAX);
            let stopped = RequestError {
                kind: ErrorKind::Cancelled,
                message: "the run was stopped".into(),
            };
            answer.note_end(at, Some(stopped));
        }
    }
    answer.into_row()
}
