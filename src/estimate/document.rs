//! An estimate as `plimsoll estimate --json` prints it.

use super::{Component, Estimate, Unknown};
use crate::units::to_gib;
use serde_json::{Map, Value, json};

/// The document of an estimate; what is unknown is null, and its term has the reason.
pub fn of(id: &str, estimate: &Estimate) -> Value {
    let term = |component| gib(estimate.bytes(component));
    json!({
        "id": id,
        "per_gpu": {
            "weights_gib": term(Component::Weights),
            "kv_bytes_per_token": estimate.kv_bytes_per_token.as_ref().ok(),
            "kv_pool_gib": term(Component::KvCache),
            "kv_pool_tokens": estimate.pool.as_ref().ok().map(|p| p.tokens),
            "activation_gib": term(Component::Activation),
            "cuda_graph_gib": term(Component::CudaGraphs),
            "non_torch_gib": term(Component::NonTorch),
            "total_gib": gib(estimate.total.as_ref().ok().copied()),
            "outside_gib": gib(Some(estimate.outside)),
        },
        "bands": bands(estimate),
        "fits": estimate.fits,
        "reason": estimate.reason,
        "max_concurrency": estimate.max_concurrency.as_ref().ok().map(|c| round(*c, 2)),
        "terms": estimate.terms,
        "unmodelled": estimate.unmodelled,
        "host": estimate.host,
        "warnings": estimate.warnings,
    })
}

/// The line of a case that cannot be answered.
pub fn of_error(id: &str, why: &Unknown) -> Value {
    json!({"id": id, "error": why.what, "hint": why.hint})
}

/// GiB with five digits: a hundredth of a MiB.
fn gib(bytes: Option<u64>) -> Value {
    bytes.map_or(Value::Null, |b| json!(round(to_gib(b), 5)))
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The name of a component's figure.
fn key(component: Component) -> &'static str {
    match component {
        Component::Weights => "weights_gib",
        Component::KvCache => "kv_pool_gib",
        Component::Activation => "activation_gib",
        Component::CudaGraphs => "cuda_graph_gib",
        Component::NonTorch => "non_torch_gib",
        Component::Draft => "draft_gib",
    }
}

/// The bands, under the names of the figures; null: no data.
fn bands(estimate: &Estimate) -> Map<String, Value> {
    let mut bands: Map<String, Value> = estimate
        .terms
        .iter()
        .map(|t| {
            let band = t.band.as_ref().map_or(Value::Null, |b| {
                json!({
                    "low": gib(Some(b.low)),
                    "high": gib(Some(b.high)),
                    "cases": b.cases,
                    "source": b.source,
                })
            });
            (key(t.component).to_owned(), band)
        })
        .collect();
    // Tokens go with the cache's bytes: the same band, in the layout's measure.
    let tokens = estimate
        .term(Component::KvCache)
        .and_then(|t| t.band.as_ref())
        .zip(estimate.layout.as_ref().ok())
        .map_or(Value::Null, |(band, layout)| {
            let longest = estimate.settings.max_model_len;
            json!({
                "low": layout.pool(band.low, longest).tokens,
                "high": layout.pool(band.high, longest).tokens,
                "cases": band.cases,
                "source": band.source,
            })
        });
    bands.insert("kv_pool_tokens".into(), tokens);
    bands
}
