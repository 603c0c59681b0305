//! The start of an engine that several captures share.

use super::AtNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An engine was started once for several captures: its start-up was observed before this one, and
/// its samples are part of this capture too, at negative moments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedStart {
    /// Run that observed it.
    pub run_id: String,
    /// When the engine was started.
    pub began_at_ns: AtNs,
    /// When it served; between this and the capture's own beginning nothing was sampled.
    pub served_at_ns: AtNs,
}
