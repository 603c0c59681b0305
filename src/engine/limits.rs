//! What limits an engine's concurrent requests, and the settings that raise each limit.

use super::EngineId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// The KV pool.
    KvPool,
    /// Concurrent sequences of the scheduler.
    Sequences,
    /// Tokens per batch (TGI).
    BatchTokens,
    /// Concurrent requests that the server accepts.
    Connections,
    /// The longest sequence that the engine accepts.
    Length,
    /// Prefill: requests wait for the prompts of others.
    Prefill,
    /// A limit on latency.
    Latency,
    /// Requests fail.
    Errors,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

impl Resource {
    /// The name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Resource::KvPool => "KV pool",
            Resource::Sequences => "sequence slots",
            Resource::BatchTokens => "batch token budget",
            Resource::Connections => "server request limit",
            Resource::Length => "context length",
            Resource::Prefill => "prefill compute",
            Resource::Latency => "latency limit",
            Resource::Errors => "errors",
        }
    }
}

/// An engine's default number of concurrent sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsetSequences {
    /// A default that the estimator knows.
    DefaultOfVersion,
    /// As many as its other limits allow.
    NoLimit,
    /// Not known.
    Unknown,
}

/// What one engine keeps of a request, and the settings that limit its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadLimits {
    /// The setting that limits concurrent sequences; `None` for an engine without one.
    pub sequences: Option<&'static str>,
    /// The limit if it is not set.
    pub unset_sequences: UnsetSequences,
    /// Whether the limit applies to each data-parallel replica.
    pub per_replica: bool,
    /// Tokens at the end of a request without KV: no token follows the last sampled one.
    pub unkept_tokens: u64,
    /// Blocks of the pool that each replica never fills.
    pub empty_blocks: u64,
    /// Why the pool's tokens are unknown, as a sentence.
    pub unknown_pool: &'static str,
    /// The settings that raise a limit, the most effective first.
    pub raised_by: &'static [(Resource, &'static [&'static str])],
    /// Settings that differ when the engine runs on CPU; all others are as on a GPU.
    pub raised_on_cpu_by: &'static [(Resource, &'static [&'static str])],
}

impl LoadLimits {
    /// Limits of an unknown engine.
    pub const UNKNOWN: LoadLimits = LoadLimits {
        sequences: None,
        unset_sequences: UnsetSequences::Unknown,
        per_replica: false,
        unkept_tokens: 0,
        empty_blocks: 0,
        unknown_pool: "the engine does not report the tokens of its KV pool",
        raised_by: &[],
        raised_on_cpu_by: &[],
    };

    /// Those of the engine of this name.
    pub fn of_engine(name: &str) -> LoadLimits {
        EngineId::from_name(name).map_or(LoadLimits::UNKNOWN, |engine| engine.load_limits)
    }

    /// The settings that raise the limit of `resource`, sentences.
    pub fn advice(&self, resource: Resource, on_cpu: bool) -> Vec<String> {
        let table = |table: &[(Resource, &'static [&'static str])]| {
            table.iter().find(|(r, _)| *r == resource).map(|(_, s)| *s)
        };
        let on_cpu = on_cpu.then_some(self.raised_on_cpu_by);
        let found = on_cpu.and_then(table).or_else(|| table(self.raised_by));
        let sentences = found.unwrap_or(match resource {
            Resource::Errors => {
                &["see the engine's log in the capture of that round for the failed requests"]
            }
            _ => &[],
        });
        sentences.iter().map(|s| (*s).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_the_engines_own() {
        let first = |engine: EngineId, resource, on_cpu| {
            let advice = engine.load_limits.advice(resource, on_cpu);
            advice.first().cloned().unwrap_or_default()
        };
        use Resource::*;
        for (engine, resource, on_cpu, words) in [
            (EngineId::Vllm, KvPool, true, "VLLM_CPU_KVCACHE_SPACE"),
            (EngineId::Vllm, KvPool, false, "--gpu-memory-utilization"),
            (EngineId::Vllm, Sequences, true, "--max-num-seqs"),
            (EngineId::Sglang, KvPool, false, "--mem-fraction-static"),
            (
                EngineId::Tgi,
                Connections,
                false,
                "--max-concurrent-requests",
            ),
            (EngineId::LlamaCpp, Sequences, true, "--parallel"),
            (EngineId::TensorRtLlm, Sequences, false, "--max_batch_size"),
            (EngineId::Transformers, Errors, false, "failed requests"),
        ] {
            let advice = first(engine, resource, on_cpu);
            assert!(advice.contains(words), "{engine:?} {resource:?}: {advice}");
        }
        assert!(first(EngineId::Transformers, KvPool, false).is_empty());
    }
}
