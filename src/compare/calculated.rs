//! What was calculated of a deployment, item by item, and how near to a measurement it comes.

use crate::estimate::{Component, Term, Unknown};
use crate::profile::stats::{arithmetic_mean, quantile_of_sorted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::{IntoStaticStr, VariantArray};

/// What is calculated and measured. The order is the order in which people read it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// Weights, bytes per GPU.
    Weights,
    /// The KV pool as reserved, bytes per GPU.
    KvPool,
    /// The KV pool as reserved, tokens.
    KvTokens,
    /// KV in use at most, bytes per GPU.
    KvUsed,
    /// The peak of the engine's own profile run, bytes per GPU.
    Activation,
    /// CUDA graphs, bytes per GPU.
    CudaGraphs,
    /// The engine's memory outside torch, bytes per GPU.
    NonTorch,
    /// CUDA graphs and all that is neither weights nor KV nor activations, bytes per GPU.
    Overhead,
    /// All of it, bytes per GPU.
    Total,
}

impl Item {
    /// Its name in documents, as people read it, and how far a calculation may be off, percent of what was measured:
    /// the accuracy that comparisons of calculators with engines expect of each part.
    fn item_facts(self) -> (&'static str, &'static str, f64) {
        match self {
            Item::Weights => ("weights", "Weights", 2.0),
            Item::KvPool => ("kv_pool", "KV pool", 15.0),
            Item::KvTokens => ("kv_tokens", "KV pool, tokens", 15.0),
            Item::KvUsed => ("kv_used", "KV in use", 15.0),
            Item::Activation => ("activation", "Activation peak", 30.0),
            Item::CudaGraphs => ("cuda_graphs", "CUDA graphs", 40.0),
            Item::NonTorch => ("non_torch", "Non-torch", 40.0),
            Item::Overhead => ("overhead", "Overhead", 40.0),
            Item::Total => ("total", "Total", 10.0),
        }
    }

    /// Its name in documents.
    pub fn document_key(self) -> &'static str {
        self.item_facts().0
    }

    /// As people read it.
    pub fn display_label(self) -> &'static str {
        self.item_facts().1
    }

    /// How far a calculation may be off, percent.
    pub fn tolerance_percent(self) -> f64 {
        self.item_facts().2
    }
}

/// One calculated figure.
#[derive(Debug, Clone, PartialEq)]
pub struct CalculatedFigure {
    /// Bytes or tokens, or why there is none.
    pub value: Result<u64, String>,
    /// The 90 % interval of measurements, in the same unit.
    pub band: Option<(u64, u64)>,
}

// Without a band.
impl From<Result<u64, String>> for CalculatedFigure {
    fn from(value: Result<u64, String>) -> CalculatedFigure {
        CalculatedFigure { value, band: None }
    }
}

/// What was calculated of one deployment; bytes on the GPU that needs most, and tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calculated {
    /// What the calculation rests on, as `config.json of the run, vLLM 0.11.0, H100`.
    pub basis: String,
    claims: BTreeMap<Item, CalculatedFigure>,
    /// Bytes per GPU in none of the parts, which a measurement of the GPU sees: the driver's context.
    outside: u64,
    /// Why any other item has no figure.
    missing: String,
}

impl Calculated {
    /// Nothing, for one reason.
    pub fn nothing_calculated(why: &str) -> Calculated {
        Calculated {
            missing: why.into(),
            ..Calculated::default()
        }
    }

    /// From the terms of an estimate, its pool (bytes and tokens), its sum, and what lies outside of that.
    ///
    /// A term that is not among them is unknown; a draft model's weights count as weights.
    pub fn of_terms(
        basis: String,
        terms: &[Term],
        pool: Result<(u64, u64), &Unknown>,
        total: Result<u64, &Unknown>,
        outside: u64,
    ) -> Calculated {
        let term = |component: Component| {
            let term = terms.iter().find(|t| t.component == component);
            term.map_or_else(
                || Err(UNNAMED.into()).into(),
                |term| CalculatedFigure {
                    value: term.bytes.clone().map_err(|u| u.to_string()),
                    band: term.band.as_ref().map(|b| (b.low, b.high)),
                },
            )
        };
        let mut weights = term(Component::Weights);
        if let Some(draft) = terms.iter().find(|t| t.component == Component::Draft) {
            weights = match (weights.value, &draft.bytes) {
                (Ok(main), Ok(draft)) => Ok(main.saturating_add(*draft)),
                (Ok(_), Err(why)) => Err(why.to_string()),
                (why, _) => why,
            }
            .into();
        }
        let mut kv_pool = term(Component::KvCache);
        if let Ok((bytes, _)) = pool {
            kv_pool.value = Ok(bytes);
        }
        let kv_used = "the number of concurrent requests is known for the latency bench only";
        let tokens = pool.map(|(_, tokens)| tokens);
        let total = total.map(|bytes| bytes.saturating_add(outside));
        let claims = [
            (Item::Weights, weights),
            (Item::KvPool, kv_pool),
            (Item::KvTokens, tokens.map_err(Unknown::to_string).into()),
            (Item::KvUsed, Err(kv_used.to_owned()).into()),
            (Item::Activation, term(Component::Activation)),
            (Item::CudaGraphs, term(Component::CudaGraphs)),
            (Item::NonTorch, term(Component::NonTorch)),
            (Item::Total, total.map_err(Unknown::to_string).into()),
        ];
        Calculated {
            basis,
            claims: claims.into(),
            outside,
            missing: UNNAMED.into(),
        }
    }

    /// Replaces one figure.
    pub fn set_claim(&mut self, item: Item, claim: CalculatedFigure) {
        self.claims.insert(item, claim);
    }

    /// One figure of it.
    pub fn claim_for(&self, item: Item) -> CalculatedFigure {
        if item == Item::Overhead {
            let parts = [Item::CudaGraphs, Item::NonTorch].map(|part| self.claim_for(part).value);
            return match parts {
                [Ok(graphs), Ok(rest)] => {
                    Ok(graphs.saturating_add(rest).saturating_add(self.outside))
                }
                [Err(why), _] | [_, Err(why)] => Err(why),
            }
            .into();
        }
        let claim = self.claims.get(&item).cloned();
        claim.unwrap_or_else(|| Err(self.missing.clone()).into())
    }
}

/// Reason of an item that the estimate lacks.
const UNNAMED: &str = "the estimate does not name it";

/// How good a calculation is.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// At most 2 % off.
    Excellent,
    /// At most 5 % off.
    Good,
    /// At most 10 % off.
    Acceptable,
    /// At most 20 % off.
    Fair,
    /// More.
    Poor,
}

impl Grade {
    /// Of an error in percent, of either sign.
    pub fn grade_of_error(error_pct: f64) -> Grade {
        match error_pct.abs() {
            e if e <= 2.0 => Grade::Excellent,
            e if e <= 5.0 => Grade::Good,
            e if e <= 10.0 => Grade::Acceptable,
            e if e <= 20.0 => Grade::Fair,
            _ => Grade::Poor,
        }
    }

    /// As people read it.
    pub fn display_label(self) -> &'static str {
        self.into()
    }
}

/// By how much percent of what was measured a calculation is off; too much is positive. `None`
/// where something was calculated and nothing was there.
pub fn error_pct(calculated: f64, measured: f64) -> Option<f64> {
    if calculated == measured {
        return Some(0.0);
    }
    let error = (calculated - measured) / measured.abs() * 100.0;
    (measured != 0.0 && error.is_finite()).then_some(error)
}

/// The median of errors, and the mean of their sizes.
pub(super) fn median_and_size(mut errors: Vec<f64>) -> (Option<f64>, Option<f64>) {
    errors.sort_by(f64::total_cmp);
    let sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    (quantile_of_sorted(&errors, 0.5), arithmetic_mean(&sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_end_at_their_limits() {
        for (error, grade) in [
            (0.0, Grade::Excellent),
            (-2.0, Grade::Excellent),
            (2.01, Grade::Good),
            (5.0, Grade::Good),
            (-10.0, Grade::Acceptable),
            (20.0, Grade::Fair),
            (20.1, Grade::Poor),
            (f64::INFINITY, Grade::Poor),
        ] {
            assert_eq!(Grade::grade_of_error(error), grade, "{error}");
        }
    }

    #[test]
    fn an_error_is_of_what_was_measured() {
        assert_eq!(error_pct(12.0, 10.0), Some(20.0));
        assert_eq!(error_pct(0.0, 10.0), Some(-100.0));
        assert_eq!(error_pct(0.0, 0.0), Some(0.0));
        assert_eq!(error_pct(1.0, 0.0), None);
        // An overhead can be negative; too much is positive all the same.
        assert_eq!(error_pct(1.0, -1.0), Some(200.0));
    }

    #[test]
    fn the_terms_of_an_estimate_are_taken_as_they_are() {
        let term = |component, bytes| Term {
            component,
            at_least: None,
            bytes,
            formula: String::new(),
            inputs: serde_json::Map::new(),
            band: None,
        };
        let missing = || Unknown::new("the GPU is not known");
        let terms = [
            term(Component::Weights, Ok(10)),
            term(Component::Draft, Ok(3)),
            term(Component::CudaGraphs, Err(missing())),
        ];
        let c = Calculated::of_terms("b".into(), &terms, Ok((7, 70)), Err(&missing()), 0);
        let value = |item| c.claim_for(item).value;
        assert_eq!((value(Item::Weights), value(Item::KvPool)), (Ok(13), Ok(7)));
        assert_eq!(value(Item::KvTokens), Ok(70));
        assert_eq!(value(Item::CudaGraphs), Err("the GPU is not known".into()));
        assert_eq!(value(Item::Total), Err("the GPU is not known".into()));
        assert!(value(Item::NonTorch).is_err());
    }

    #[test]
    fn an_overhead_of_which_a_part_is_unknown_is_unknown() {
        let mut c = Calculated::nothing_calculated("no");
        c.set_claim(Item::CudaGraphs, Ok(5).into());
        assert_eq!(c.claim_for(Item::Overhead).value, Err("no".into()));
        c.set_claim(Item::NonTorch, Ok(6).into());
        assert_eq!(c.claim_for(Item::Overhead).value, Ok(11));
    }
}
