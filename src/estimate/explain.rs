//! The formulas of an estimate's terms in words, with their inputs.

use super::{
    Component, Deployment, EngineId, Term, Unknown,
    engines::{Settings, vllm},
    graphs, kv,
    pool::{Layout, Pool},
};
use serde_json::{Map, Value, json};

/// Inputs of a formula.
pub(super) fn inputs<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .filter(|(_, v)| !v.is_null())
        .map(|(k, v)| (k.to_owned(), v))
        .collect()
}

/// The rule of the cache's size, in words.
pub(super) fn cache_formula(deployment: &Deployment) -> String {
    match deployment.engine {
        _ if deployment.kv_cache_memory.is_some() => "as requested".into(),
        EngineId::Vllm => match vllm::rule(deployment) {
            vllm::Rule::SnapshotAndGraphs => {
                "fraction * total - weights - activation - non_torch - forecast of the CUDA graphs"
            }
            vllm::Rule::Absolute | vllm::Rule::FreeMemory => {
                "fraction * total - weights - activation - all that PyTorch does not hold"
            }
            _ => "fraction * total - weights - activation - non_torch",
        }
        .into(),
        EngineId::Sglang => "fraction * (total - context) - weights".into(),
        EngineId::Tgi => "fraction * total - weights - prefill - context".into(),
        EngineId::TensorRtLlm => "fraction * (total - weights - activation - context)".into(),
        EngineId::LlamaCpp => "cells * bytes of a token".into(),
        _ => "sequences * tokens * bytes of a token".into(),
    }
}

/// The inputs of the cache's term.
pub(super) fn cache_inputs(
    settings: &Settings,
    cache: Option<&kv::Cache>,
    layout: Option<&Layout>,
    pool: Option<&Pool>,
) -> Map<String, Value> {
    inputs([
        ("fraction", json!(settings.fraction)),
        ("max_model_len", json!(settings.max_model_len)),
        (
            "bytes_per_token",
            json!(cache.map(kv::Cache::bytes_per_token)),
        ),
        (
            "bytes_per_sequence",
            json!(cache.map(kv::Cache::bytes_per_sequence).filter(|b| *b > 0)),
        ),
        ("value", json!(cache.map(kv::Cache::value_words))),
        ("block_tokens", json!(layout.map(|l| l.block_tokens))),
        ("block_bytes", json!(layout.map(|l| l.block_bytes))),
        ("groups", json!(layout.map(|l| l.groups))),
        ("blocks", json!(pool.map(|p| p.blocks))),
        ("tokens", json!(pool.map(|p| p.tokens))),
    ])
}

/// The term of the CUDA graphs.
pub(super) fn graph_term(graphs: Option<&graphs::Graphs>, deployment: &Deployment) -> Term {
    let Some(g) = graphs else {
        let none = matches!(
            deployment.engine,
            EngineId::Transformers | EngineId::LlamaCpp
        ) || deployment.eager == Some(true);
        let unknown = Unknown::new("the memory of the engine's CUDA graphs is not known")
            .hint("calibrate from a start of your own");
        let bytes = if none { Ok(0) } else { Err(unknown) };
        return Term::of(Component::CudaGraphs, bytes);
    };
    Term {
        formula: "start + captures * (layers + routed layers) + splits of attention's accumulators"
            .into(),
        inputs: inputs([
            ("layers", json!(g.layers)),
            ("routed_layers", json!(g.routed)),
            ("captures_in_pieces", json!(g.captures.piecewise)),
            ("captures_whole", json!(g.captures.full)),
            ("largest_tokens", json!(g.captures.largest)),
            ("splits_gib", json!(g.splits)),
            ("forecast", json!(g.forecast)),
            ("runs", json!(g.runs)),
        ]),
        ..Term::of(Component::CudaGraphs, Ok(g.bytes))
    }
}
