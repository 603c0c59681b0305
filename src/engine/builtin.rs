//! plimsoll's own load client as engines and profiles use it: when it runs, which protocol it
//! speaks, and how its result is read.

use super::vllm::read_bench_result;
use super::{BenchKind, BenchResult, ReadError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who puts the load on an engine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// The engine's latency bench.
    Latency,
    /// The engine's throughput bench.
    Throughput,
    /// The engine's serve bench.
    Serve,
    /// plimsoll's own client, from the host.
    Builtin,
    /// plimsoll's own script in the container, which loads the model and looks from inside.
    Probe,
}

impl LoadKind {
    /// All of them.
    pub const ALL: [LoadKind; 5] = [
        LoadKind::Latency,
        LoadKind::Throughput,
        LoadKind::Serve,
        LoadKind::Builtin,
        LoadKind::Probe,
    ];

    /// `latency`, `throughput`, `serve`, `builtin`, `probe`.
    pub fn as_str(self) -> &'static str {
        self.of_engine().map_or("builtin", BenchKind::as_str)
    }

    /// The engine's bench; `None` for plimsoll's own client.
    pub fn of_engine(self) -> Option<BenchKind> {
        match self {
            LoadKind::Latency => Some(BenchKind::Latency),
            LoadKind::Throughput => Some(BenchKind::Throughput),
            LoadKind::Serve => Some(BenchKind::Serve),
            LoadKind::Probe => Some(BenchKind::Probe),
            LoadKind::Builtin => None,
        }
    }

    /// Whether requests go to a server that runs already.
    pub fn needs_server(self) -> bool {
        matches!(self, LoadKind::Serve | LoadKind::Builtin)
    }
}

/// Protocol of the built-in client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's `/v1/completions`.
    #[default]
    Completions,
    /// OpenAI's `/v1/chat/completions`.
    Chat,
    /// Text Generation Inference's `/generate_stream`.
    Tgi,
}

/// Reads the built-in client's result, which has the keys of `vllm bench serve`.
pub fn read_builtin(result: &str) -> Result<BenchResult, ReadError> {
    read_bench_result(BenchKind::Serve, result)
}

/// The built-in client's notes on its own figures, as sentences.
pub fn read_builtin_notes(result: &str) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_str(result).unwrap_or_default();
    let notes = value["notes"].as_array().into_iter().flatten();
    notes
        .filter_map(|n| n.as_str().map(str::to_owned))
        .collect()
}
