//! A draft model beside the model: its weights on every GPU, its layers in the same cache.

use super::{Component, Deployment, Estimate, Model, Term, Unknown, weights, with_weights};
use serde_json::json;

/// The estimate of a model with a draft beside it. `loaded` are the model's own weights.
///
/// # Errors
/// What the draft's weights take is not known.
pub fn beside(
    model: &Model,
    draft: &Model,
    deployment: &Deployment,
    loaded: Result<weights::Weights, Unknown>,
) -> Result<Estimate, Unknown> {
    // Flags for the model are not for its draft.
    let own = Deployment {
        quantization: None,
        lora: None,
        ..deployment.clone()
    };
    let theirs = weights::of(draft, &own).map_err(|why| Unknown {
        what: format!("draft model `{}`: {}", draft.name, why.what),
        hint: why.hint,
    })?;
    // The engine counts both as one, so both are subtracted before the pool is sized.
    let both = loaded.map(|mut w| {
        w.bytes = w.bytes.saturating_add(theirs.bytes);
        w
    });
    let mut with = model.clone();
    with.mixers.extend(draft.mixers.iter().cloned());
    let mut estimate = with_weights(&with, deployment, both);
    if let Some(term) = estimate.term_mut(Component::Weights) {
        let known = term.bytes.as_mut().ok().into_iter();
        let all = known.chain(&mut term.at_least);
        all.for_each(|all| *all = all.saturating_sub(theirs.bytes));
    }
    let mut term = theirs.term();
    term.inputs.insert("model".into(), json!(draft.name));
    estimate.terms.push(Term {
        component: Component::Draft,
        formula: format!("{}; its layers keep their part of the cache", term.formula),
        ..term
    });
    Ok(estimate)
}
