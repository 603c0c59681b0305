//! One request of plimsoll's own load client, as it went.

use super::AtNs;
use serde::{Deserialize, Serialize};

/// One request, a line of `requests.jsonl` in the capture. Everything that a report wants of a
/// request comes from these moments; latencies begin at the intended one, so that a
/// request that had to wait for its turn counts with its waiting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// Repeat number, from 1.
    pub repeat: u32,
    /// Which request of its repeat, from 0.
    pub number: u64,
    /// When it was to be sent: its moment in the schedule (open loop), or when its turn came
    /// (closed loop).
    pub intended_at_ns: AtNs,
    /// When it was sent; `None` when it never was.
    pub sent_at_ns: Option<AtNs>,
    /// When the first event with content was in.
    pub first_at_ns: Option<AtNs>,
    /// When the last event with content was in.
    pub last_at_ns: Option<AtNs>,
    /// When it was over, one way or the other.
    pub ended_at_ns: AtNs,
    /// Length of the prompt that was asked for, in `input_unit`.
    pub input_asked: u32,
    /// What `input_asked` counts.
    pub input_unit: LengthUnit,
    /// Tokens of the prompt as the server's tokenizer counted them beforehand.
    pub input_counted: Option<u64>,
    /// Tokens of the prompt as the server reports them with its answer.
    pub input_tokens: Option<u64>,
    /// Tokens of output asked for.
    pub output_asked: u32,
    /// Tokens of output; `None` if no source reports them.
    pub output_tokens: Option<u64>,
    /// Source of `output_tokens`.
    pub output_source: Option<TokenSource>,
    /// Events that carried content. Fewer than tokens where the server puts several into one.
    pub events: u64,
    /// Time between each two of these events, microseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps_us: Vec<u64>,
    /// Why the server ended it, its own word (`length`, `stop`).
    pub finish_reason: Option<String>,
    /// HTTP status; `None` when nothing answered.
    pub status: Option<u16>,
    /// What went wrong; `None` for a request that was answered whole.
    pub error: Option<RequestError>,
}

/// What a length counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LengthUnit {
    /// Tokens, as the server counts them.
    #[default]
    Tokens,
    /// Words: the server does not offer its tokenizer.
    Words,
}

/// Who counted tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The server's own `usage` (or details).
    Usage,
    /// plimsoll, one for each event with content: a lower bound where events carry several.
    Events,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestError {
    /// Kind.
    pub kind: ErrorKind,
    /// A sentence, at most some hundred characters, redacted.
    pub message: String,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// No connection, or it broke before an answer came.
    Connect,
    /// Not done within the time for one request.
    Timeout,
    /// Another HTTP status than 200.
    Status,
    /// The response is not an event stream of this protocol.
    Garbage,
    /// The stream ended before the answer did.
    Cut,
    /// More came than was asked for, and no end.
    TooLong,
    /// The server reported an error within the stream.
    Server,
    /// The run was stopped meanwhile. No failure of the server.
    Cancelled,
}

impl ErrorKind {
    /// As written in the file, with spaces.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Connect => "no connection",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Status => "refused",
            ErrorKind::Garbage => "no event stream",
            ErrorKind::Cut => "cut off",
            ErrorKind::TooLong => "too long",
            ErrorKind::Server => "error in the stream",
            ErrorKind::Cancelled => "cancelled",
        }
    }
}

impl RequestRow {
    /// Whether it was answered whole.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }

    /// Whether it counts as failed: not where the run was stopped under it.
    pub fn has_failed(&self) -> bool {
        self.error
            .as_ref()
            .is_some_and(|e| e.kind != ErrorKind::Cancelled)
    }

    /// Time to first token, milliseconds.
    pub fn ttft_ms(&self) -> Option<f64> {
        Some(ms(self.first_at_ns? - self.intended_at_ns))
    }

    /// From the intended moment to the last content, milliseconds; to the end where none came.
    pub fn e2e_ms(&self) -> f64 {
        ms(self.last_at_ns.unwrap_or(self.ended_at_ns) - self.intended_at_ns)
    }

    /// Time per output token after the first, milliseconds; `None` of one token or none.
    pub fn tpot_ms(&self) -> Option<f64> {
        let more = self.output_tokens?.checked_sub(1).filter(|n| *n > 0)?;
        Some((self.e2e_ms() - self.ttft_ms()?) / more as f64)
    }

    /// The same row on a clock with its zero at `zero_ns`.
    pub fn moved_to(mut self, zero_ns: AtNs) -> RequestRow {
        for at in [
            Some(&mut self.intended_at_ns),
            Some(&mut self.ended_at_ns),
            self.sent_at_ns.as_mut(),
            self.first_at_ns.as_mut(),
            self.last_at_ns.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            *at = at.saturating_add(zero_ns);
        }
        self
    }
}

fn ms(ns: AtNs) -> f64 {
    ns as f64 / 1e6
}
