//! One term of an estimate: bytes, or why they are unknown; the formula; the band around it.

use crate::engine::UnknownEngine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A part of a GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Weights, with what the engine keeps beside them.
    Weights,
    /// The pool of keys and values.
    KvCache,
    /// The peak of a forward pass or of the sampler.
    Activation,
    /// CUDA graphs.
    CudaGraphs,
    /// The driver's context, the libraries' and NCCL's buffers.
    NonTorch,
    /// A draft model for speculative decoding.
    Draft,
}

impl Component {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Component::Weights => "weights",
            Component::KvCache => "KV cache",
            Component::Activation => "activations",
            Component::CudaGraphs => "CUDA graphs",
            Component::NonTorch => "non-torch",
            Component::Draft => "draft model",
        }
    }
}

/// One term of an estimate, on the GPU that needs most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "TermRecord", into = "TermRecord")]
pub struct Term {
    /// Which part it is.
    pub component: Component,
    /// Bytes, or what is missing.
    pub bytes: Result<u64, Unknown>,
    /// Bytes that it takes at least, where they are not known and something not modelled raises them.
    pub at_least: Option<u64>,
    /// How it is computed, in the inputs' names: `2 * kv_heads / tp * head_dim * bytes`.
    pub formula: String,
    /// The inputs, by the names in the formula; bytes, tokens or counts.
    pub inputs: Map<String, Value>,
    /// Where nine of ten measurements lie; `None` where there is no data.
    pub band: Option<Band>,
}

impl Term {
    /// Bytes at the upper end of its band; `None` where they are unknown.
    pub fn upper(&self) -> Option<u64> {
        let bytes = *self.bytes.as_ref().ok()?;
        Some(self.band.as_ref().map_or(bytes, |b| b.high.max(bytes)))
    }

    /// One with a figure and nothing else.
    pub fn of(component: Component, bytes: Result<u64, Unknown>) -> Term {
        Term {
            component,
            bytes,
            at_least: None,
            formula: String::new(),
            inputs: Map::new(),
            band: None,
        }
    }
}

/// A term as it is written: what is unknown is null, with the reason beside it.
#[derive(Serialize, Deserialize)]
struct TermRecord {
    component: Component,
    bytes: Option<u64>,
    at_least: Option<u64>,
    unknown: Option<String>,
    hint: Option<String>,
    formula: String,
    inputs: Map<String, Value>,
    band: Option<Band>,
}

impl From<Term> for TermRecord {
    fn from(term: Term) -> TermRecord {
        let (bytes, unknown, hint) = match term.bytes {
            Ok(bytes) => (Some(bytes), None, None),
            Err(why) => (None, Some(why.what), why.hint),
        };
        TermRecord {
            component: term.component,
            bytes,
            at_least: term.at_least,
            unknown,
            hint,
            formula: term.formula,
            inputs: term.inputs,
            band: term.band,
        }
    }
}

impl From<TermRecord> for Term {
    fn from(record: TermRecord) -> Term {
        let (what, hint) = (record.unknown.unwrap_or_default(), record.hint);
        Term {
            component: record.component,
            bytes: record.bytes.ok_or(Unknown { what, hint }),
            at_least: record.at_least,
            formula: record.formula,
            inputs: record.inputs,
            band: record.band,
        }
    }
}

/// Where nine of ten measurements lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Bytes.
    pub low: u64,
    /// Bytes.
    pub high: u64,
    /// Measurements that it is drawn from.
    pub cases: u64,
    /// Their source: `shipped: vLLM on H100, 28 runs`, or the user's own runs.
    pub source: String,
}

impl Band {
    /// From its ends, bytes.
    pub fn new(low: u64, high: u64, cases: u64, source: impl Into<String>) -> Band {
        Band {
            low,
            high,
            cases,
            source: source.into(),
        }
    }

    /// As much wider at both ends.
    pub fn widened(self, bytes: u64) -> Band {
        Band {
            low: self.low.saturating_sub(bytes),
            high: self.high.saturating_add(bytes),
            ..self
        }
    }
}

/// Why something is unknown, and what would make it known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Unknown {
    /// One sentence, lower case, no full stop: `the architecture `foo` is not known`.
    pub what: String,
    /// How to make it known: `give --num-layers …`.
    pub hint: Option<String>,
}

impl From<UnknownEngine> for Unknown {
    fn from(unknown: UnknownEngine) -> Unknown {
        Unknown::new(unknown.to_string()).hint(unknown.hint())
    }
}

impl Unknown {
    /// Without advice.
    pub fn new(what: impl Into<String>) -> Self {
        Unknown {
            what: what.into(),
            hint: None,
        }
    }

    /// With advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
