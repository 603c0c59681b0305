//! A draft model beside the model: its weights on every GPU, its layers in the same cache.

use super::{Component, Deployment, Estimate, Model, Split, Tensor, Term, Unknown, weights};
use serde_json::json;

/// The role of what stands for a draft model's weights.
const ROLE: &str = "draft";

/// Bytes of the values that stand for them.
const VALUE: u64 = 4;

/// The model with its draft: what the draft's weights take on one GPU stands in one tensor, so that
/// its own quantisation counts; its layers keep their part of each token.
///
/// # Errors
/// What the draft's weights take is not known.
pub fn with(model: &Model, draft: &Model, deployment: &Deployment) -> Result<Model, Unknown> {
    let own = Deployment {
        quantization: None,
        lora: None,
        ..deployment.clone()
    };
    let bytes = weights::of(draft, &own)
        .map_err(|why| Unknown {
            what: format!("draft model `{}`: {}", draft.name, why.what),
            hint: why.hint,
        })?
        .bytes;
    let mut both = model.clone();
    both.tensors.push(Tensor {
        role: ROLE,
        rows: bytes.div_ceil(VALUE),
        columns: 1,
        count: 1,
        layer: None,
        split: Split::Replicated,
        quantizable: false,
        float32: true,
    });
    both.mixers.extend(draft.mixers.iter().cloned());
    Ok(both)
}

/// Tells the draft's weights apart from the model's, in an estimate of [`with`].
pub fn tell_apart(estimate: &mut Estimate, both: &Model, draft: &Model) {
    let stands = both.tensors.iter().find(|t| t.role == ROLE);
    let bytes = stands.map_or(0, |t| t.values().saturating_mul(VALUE));
    let Some(weights) = estimate
        .terms
        .iter_mut()
        .find(|t| t.component == Component::Weights)
    else {
        return;
    };
    if let Ok(all) = &mut weights.bytes {
        *all = all.saturating_sub(bytes);
    }
    if let Some(band) = &mut weights.band {
        band.low = band.low.saturating_sub(bytes);
        band.high = band.high.saturating_sub(bytes);
    }
    if weights.inputs.contains_key("parameters") {
        let own = both.parameters().saturating_sub(bytes / VALUE);
        weights.inputs.insert("parameters".into(), json!(own));
    }
    estimate.terms.push(Term {
        component: Component::Draft,
        bytes: Ok(bytes),
        formula: "weights of the draft model, split as the model's are; its layers keep their part of the cache".into(),
        inputs: [
            ("model".to_owned(), json!(draft.name)),
            ("parameters".to_owned(), json!(draft.parameters())),
        ]
        .into_iter()
        .collect(),
        band: None,
    });
}
