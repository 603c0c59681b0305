//! What was calculated of a deployment, item by item, and how near to a measurement it comes.

use crate::estimate::{Component, Term, Unknown};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is calculated and measured. The order is the order in which people read it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
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
    /// Every item.
    pub const ALL: [Item; 9] = [
        Item::Weights,
        Item::KvPool,
        Item::KvTokens,
        Item::KvUsed,
        Item::Activation,
        Item::CudaGraphs,
        Item::NonTorch,
        Item::Overhead,
        Item::Total,
    ];

    /// As people read it.
    pub fn label(self) -> &'static str {
        match self {
            Item::Weights => "Weights",
            Item::KvPool => "KV pool",
            Item::KvTokens => "KV pool, tokens",
            Item::KvUsed => "KV in use",
            Item::Activation => "Activation peak",
            Item::CudaGraphs => "CUDA graphs",
            Item::NonTorch => "Non-torch",
            Item::Overhead => "Overhead",
            Item::Total => "Total",
        }
    }

    /// Its name in documents.
    pub fn key(self) -> &'static str {
        match self {
            Item::Weights => "weights",
            Item::KvPool => "kv_pool",
            Item::KvTokens => "kv_tokens",
            Item::KvUsed => "kv_used",
            Item::Activation => "activation",
            Item::CudaGraphs => "cuda_graphs",
            Item::NonTorch => "non_torch",
            Item::Overhead => "overhead",
            Item::Total => "total",
        }
    }

    /// How far a calculation may be off, percent of what was measured: the accuracy that those who
    /// compared calculators with engines expect of each part.
    pub fn tolerance(self) -> f64 {
        match self {
            Item::Weights => 2.0,
            Item::KvPool | Item::KvTokens | Item::KvUsed => 15.0,
            Item::Activation => 30.0,
            Item::CudaGraphs | Item::NonTorch | Item::Overhead => 40.0,
            Item::Total => 10.0,
        }
    }
}

/// One calculated figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Bytes or tokens, or why there is none.
    pub value: Result<u64, String>,
    /// Where nine of ten measurements are said to lie, in the same unit.
    pub band: Option<(u64, u64)>,
}

impl Claim {
    /// Without a band.
    pub fn of(value: Result<u64, String>) -> Claim {
        Claim { value, band: None }
    }
}

/// What was calculated of one deployment; bytes on the GPU that needs most, and tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Calculated {
    /// What the calculation rests on, as `config.json of the run, vLLM 0.11.0, H100`.
    pub basis: String,
    /// Weights.
    pub weights: Claim,
    /// The KV pool as reserved.
    pub kv_pool: Claim,
    /// Its tokens.
    pub kv_tokens: Claim,
    /// KV of the load.
    pub kv_used: Claim,
    /// The peak of the engine's profile run.
    pub activation: Claim,
    /// CUDA graphs.
    pub cuda_graphs: Claim,
    /// Outside torch.
    pub non_torch: Claim,
    /// All of it.
    pub total: Claim,
}

impl Calculated {
    /// Nothing, for one reason.
    pub fn nothing(why: &str) -> Calculated {
        let none = || Claim::of(Err(why.to_owned()));
        Calculated {
            basis: String::new(),
            weights: none(),
            kv_pool: none(),
            kv_tokens: none(),
            kv_used: none(),
            activation: none(),
            cuda_graphs: none(),
            non_torch: none(),
            total: none(),
        }
    }

    /// From the terms of an estimate, its pool (bytes and tokens) and its sum.
    ///
    /// A term that is not among them is unknown; a draft model's weights count as weights.
    pub fn of_terms(
        basis: String,
        terms: &[Term],
        pool: Result<(u64, u64), &Unknown>,
        total: Result<u64, &Unknown>,
    ) -> Calculated {
        let term = |component: Component| {
            let Some(term) = terms.iter().find(|t| t.component == component) else {
                return Claim::of(Err("the estimate does not name it".into()));
            };
            Claim {
                value: term.bytes.clone().map_err(|u| u.to_string()),
                band: term.band.as_ref().map(|b| (b.low, b.high)),
            }
        };
        let mut weights = term(Component::Weights);
        if let Some(draft) = terms.iter().find(|t| t.component == Component::Draft) {
            weights = match (weights.value, &draft.bytes) {
                (Ok(main), Ok(draft)) => Claim::of(Ok(main.saturating_add(*draft))),
                (Ok(_), Err(why)) => Claim::of(Err(why.to_string())),
                (why, _) => Claim::of(why),
            };
        }
        let mut kv_pool = term(Component::KvCache);
        if let Ok((bytes, _)) = pool {
            kv_pool.value = Ok(bytes);
        }
        Calculated {
            basis,
            weights,
            kv_pool,
            kv_tokens: Claim::of(pool.map(|(_, tokens)| tokens).map_err(Unknown::to_string)),
            kv_used: Claim::of(Err(
                "how much of the load is in flight at once is known of the latency bench only"
                    .into(),
            )),
            activation: term(Component::Activation),
            cuda_graphs: term(Component::CudaGraphs),
            non_torch: term(Component::NonTorch),
            total: Claim::of(total.map_err(Unknown::to_string)),
        }
    }

    /// One figure of it.
    pub fn claim(&self, item: Item) -> Claim {
        match item {
            Item::Weights => self.weights.clone(),
            Item::KvPool => self.kv_pool.clone(),
            Item::KvTokens => self.kv_tokens.clone(),
            Item::KvUsed => self.kv_used.clone(),
            Item::Activation => self.activation.clone(),
            Item::CudaGraphs => self.cuda_graphs.clone(),
            Item::NonTorch => self.non_torch.clone(),
            Item::Total => self.total.clone(),
            Item::Overhead => Claim::of(match (&self.cuda_graphs.value, &self.non_torch.value) {
                (Ok(graphs), Ok(rest)) => Ok(graphs.saturating_add(*rest)),
                (Err(why), _) | (_, Err(why)) => Err(why.clone()),
            }),
        }
    }
}

/// How good a calculation is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
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
    pub fn of(error_pct: f64) -> Grade {
        match error_pct.abs() {
            e if e <= 2.0 => Grade::Excellent,
            e if e <= 5.0 => Grade::Good,
            e if e <= 10.0 => Grade::Acceptable,
            e if e <= 20.0 => Grade::Fair,
            _ => Grade::Poor,
        }
    }

    /// As people read it.
    pub fn label(self) -> &'static str {
        match self {
            Grade::Excellent => "Excellent",
            Grade::Good => "Good",
            Grade::Acceptable => "Acceptable",
            Grade::Fair => "Fair",
            Grade::Poor => "Poor",
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_end_where_they_are_said_to() {
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
            assert_eq!(Grade::of(error), grade, "{error}");
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
        let c = Calculated::of_terms("b".into(), &terms, Ok((7, 70)), Err(&missing()));
        assert_eq!((c.weights.value, c.kv_pool.value), (Ok(13), Ok(7)));
        assert_eq!(c.kv_tokens.value, Ok(70));
        assert_eq!(c.cuda_graphs.value, Err("the GPU is not known".into()));
        assert_eq!(c.total.value, Err("the GPU is not known".into()));
        assert!(c.non_torch.value.is_err());
    }

    #[test]
    fn an_overhead_of_which_a_part_is_unknown_is_unknown() {
        let mut c = Calculated::nothing("no");
        c.cuda_graphs = Claim::of(Ok(5));
        assert_eq!(c.claim(Item::Overhead).value, Err("no".into()));
        c.non_torch = Claim::of(Ok(6));
        assert_eq!(c.claim(Item::Overhead).value, Ok(11));
    }
}
