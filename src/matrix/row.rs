//! The result of a cell: one row of the results.

use super::cell::{CellId, GroupId};
use crate::breakdown::Component;
use crate::engine::facts::Finding;
use crate::profile::MemoryGauge;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// The result of one cell. Journal, CSV and JSON hold the same rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellRow {
    /// The cell.
    pub cell: CellId,
    /// Its group.
    pub group: GroupId,
    /// Whether there are figures.
    pub status: RowStatus,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RowCause>,
    /// Where in the cell's run that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RowPhase>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often the cell was begun, this time included.
    pub attempt: u32,
    /// When it ended, RFC 3339, UTC.
    pub ended: String,
    /// From its beginning to its end, seconds; the start of an engine that serves is not part of it,
    /// a failed start is: the journal has the starts by themselves.
    pub took_s: f64,
    /// Its profile, or that of the failed start, relative to the folder of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Figures of the profile.
    #[serde(default)]
    pub figures: RowFigures,
}

/// How a cell ended.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RowStatus {
    /// Measured.
    #[default]
    Done,
    /// Not measured: its figures lie between those of its neighbours.
    Interpolated,
    /// Tried, without figures.
    Failed,
    /// Not tried.
    Skipped,
}

/// Why a cell has no figures.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RowCause {
    /// The engine or its bench ran out of memory.
    Oom,
    /// A cell that needs no more than this one ran out of memory in this run (skipped).
    ImpliedOom,
    /// The same in an earlier run (skipped).
    KnownOom,
    /// By the estimate its engine cannot start on the GPUs that are here (skipped).
    DoesNotFit,
    /// The engine or its container ended.
    EngineDied,
    /// The bench failed, or most of its requests did.
    BenchFailed,
    /// The time of the cell was up.
    Timeout,
    /// The engine did not serve in its time.
    NotReady,
    /// The engine or its bench refused the settings.
    Refused,
    /// A container, an image or a model that is not there.
    Missing,
    /// Memory of the engine before was not given back in time.
    MemoryHeld,
    /// Another plimsoll works on the container.
    Busy,
    /// Docker did not answer, or failed.
    Docker,
    /// The results could not be written.
    Storage,
}

impl RowCause {
    /// Whether the cause is in the surroundings and not in the cell: a resumed run tries such cells
    /// again. What does not fit may fit on the GPUs of then.
    pub fn is_environmental(self) -> bool {
        matches!(
            self,
            RowCause::DoesNotFit
                | RowCause::Missing
                | RowCause::MemoryHeld
                | RowCause::Busy
                | RowCause::Docker
                | RowCause::Storage
        )
    }

    /// Whether memory ran out: in this cell, or in one that needs no more.
    pub fn is_out_of_memory(self) -> bool {
        matches!(
            self,
            RowCause::Oom | RowCause::ImpliedOom | RowCause::KnownOom
        )
    }

    /// Whether the same cell may fare better at once: not the cell's fault, nor the engine's.
    pub fn is_transient(self) -> bool {
        matches!(self, RowCause::Docker)
    }
}

/// Where in a cell's run it failed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RowPhase {
    /// Before anything was started.
    Prepare,
    /// The engine started.
    Start,
    /// The load ran.
    Bench,
    /// The results were written.
    Store,
}

crate::wording::as_written!(RowStatus, RowCause, RowPhase);

/// Figures of a profile. Unknown is `None`; the profile has the reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowFigures {
    /// Peak of all devices, bytes.
    pub peak_bytes: Option<u64>,
    /// How full the device that came nearest to its limit was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullest_device: Option<MemoryGauge>,
    /// Limit of the container, where memory ran out by it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_reached_bytes: Option<u64>,
    /// Memory that was in use before, bytes.
    pub baseline_bytes: Option<u64>,
    /// Model weights, bytes.
    pub model_weights_bytes: Option<u64>,
    /// KV cache in the peak, bytes.
    pub kv_cache_bytes: Option<u64>,
    /// KV pool that the engine reserved, bytes.
    pub kv_pool_bytes: Option<u64>,
    /// Tokens that the pool holds.
    pub kv_pool_tokens: Option<u64>,
    /// KV in use at most while the load ran, by the engine, bytes.
    pub kv_used_bytes: Option<u64>,
    /// Activations, bytes.
    pub activations_bytes: Option<u64>,
    /// Overhead of known components: runtime, graphs and the like, bytes.
    pub overhead_bytes: Option<u64>,
    /// What nothing explains, bytes; negative where the parts claim more than the peak.
    pub unexplained_bytes: Option<i64>,
    /// Mean latency, milliseconds.
    pub mean_latency_ms: Option<f64>,
    /// Standard deviation of it over the repeats, milliseconds; unknown for one repeat.
    pub mean_latency_stddev_ms: Option<f64>,
    /// Generated tokens per second.
    pub tokens_per_second: Option<f64>,
    /// Standard deviation of it over the repeats; unknown for one repeat.
    pub tokens_per_second_stddev: Option<f64>,
    /// Standard deviation of the peak over the repeats, bytes; unknown for one repeat.
    pub peak_stddev_bytes: Option<f64>,
    /// Requests per second.
    pub requests_per_second: Option<f64>,
    /// Mean time to first token, milliseconds.
    pub ttft_mean_ms: Option<f64>,
    /// Mean time per output token after the first, milliseconds.
    pub tpot_mean_ms: Option<f64>,
    /// Requests that succeeded.
    pub completed: Option<u64>,
    /// Requests that failed.
    pub failed: Option<u64>,
    /// Which backend measured the memory; `simulated` is part of the name where it is.
    pub memory_backend: Option<String>,
    /// The engine that was recognised.
    pub engine: Option<String>,
    /// Version of the engine.
    pub engine_version: Option<String>,
    /// The bench that ran: what `auto` came to.
    pub bench: Option<String>,
    /// Parts of the peak whose figures are of low confidence; the profile has the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub low_confidence: Vec<Component>,
    /// What the profile warns of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Finding>,
    /// True for a simulated engine or device.
    pub simulated: bool,
}
