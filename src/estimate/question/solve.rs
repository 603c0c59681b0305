//! The largest, or the least, of one setting with which a deployment fits, all others as given.

use super::search::largest;
use super::{fits_at, longest};
use crate::estimate::{Deployment, EngineId, Model, Unknown, pooling};
use serde::Serialize;
use strum::IntoStaticStr;

/// Longest sequence that is looked for where the model names none, tokens.
const LONGEST: u64 = 1 << 27;
/// Most sequences that are looked for.
const MOST_SEQUENCES: u64 = 1 << 20;
/// GPUs of one machine: beyond it pipeline parallelism comes before more tensor parallelism.
pub(super) const MACHINE: u64 = 8;
/// Most GPUs that are looked for.
const MOST_GPUS: u64 = 512;

/// What can be solved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum What {
    /// Requests of the longest length at once.
    MaxConcurrency,
    /// The longest sequence, tokens.
    MaxModelLen,
    /// The most sequences that the engine may take at once so that all of them fit.
    MaxBatch,
    /// GPUs of one kind.
    MinGpus,
    /// Share of the memory.
    GpuMemoryUtilization,
}

crate::wording::as_written!(What);

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// What was solved for.
    pub what: What,
    /// The answer: a count, tokens, or a share from 0 to 1; `None` where nothing fits.
    pub value: Option<f64>,
    /// The deployment with the answer in it; as it was asked where there is none.
    pub deployment: Deployment,
    /// What bounds it: a sentence's end, as in `the model reads no more`.
    pub bound: String,
}

/// How many requests of the longest length a deployment holds at once; below 1 the engine does not
/// start with that length.
pub type Holds<'a> = dyn Fn(&Deployment) -> Result<f64, Unknown> + 'a;

/// Solves for one setting so that `concurrency` requests of the longest length fit at once.
///
/// # Errors
/// The missing input.
pub fn solve(
    what: What,
    model: &Model,
    asked: &Deployment,
    concurrency: u64,
    holds: &Holds<'_>,
) -> Result<Solution, Unknown> {
    let concurrency = concurrency.max(1);
    let keeps_nothing = pooling::keeps_nothing(model, asked);
    let limit = |setting: &str| {
        if keeps_nothing {
            format!("{setting} allows no more")
        } else {
            "more does not fit into the memory".to_owned()
        }
    };
    let (found, bound): (Option<(f64, Deployment)>, String) = match what {
        What::MaxConcurrency => {
            longest(model, asked)?;
            let at_once = holds(asked)?;
            let whole = (at_once >= 1.0).then(|| at_once.min(1e15).floor());
            (whole.map(|n| (n, asked.clone())), limit("--max-num-seqs"))
        }
        What::MaxModelLen => {
            let with = |n| Deployment {
                max_model_len: Some(n),
                ..asked.clone()
            };
            let most = model.max_positions.unwrap_or(LONGEST);
            let found = largest(1, most, |n| fits_at(holds(&with(n)), concurrency))?;
            let bound = match (found, model.max_positions) {
                (Some(n), Some(most)) if n == most => "the model reads no more".to_owned(),
                _ => limit("--max-num-batched-tokens"),
            };
            (found.map(|n| (n as f64, with(n))), bound)
        }
        What::MaxBatch => {
            longest(model, asked)?;
            let with = |n| Deployment {
                max_seqs: Some(n),
                ..asked.clone()
            };
            let found = largest(1, MOST_SEQUENCES, |n| fits_at(holds(&with(n)), n))?;
            let bound = limit("--max-num-batched-tokens");
            (found.map(|n| (n as f64, with(n))), bound)
        }
        What::MinGpus => {
            longest(model, asked)?;
            let (mut found, mut unknown) = (None, None);
            for with in parallel(model, asked) {
                match fits_at(holds(&with), concurrency) {
                    Ok(true) => {
                        found = Some((with.gpus() as f64, with));
                        break;
                    }
                    Ok(false) => {}
                    Err(why) => unknown = unknown.or(Some(why)),
                }
            }
            match (&found, unknown) {
                (None, Some(why)) => return Err(why),
                (_, None) => (found, "fewer do not hold it".into()),
                (_, Some(_)) => (found, "fewer do not hold it, as far as is known".into()),
            }
        }
        What::GpuMemoryUtilization => {
            if asked.kv_cache_memory.is_some() {
                return Err(Unknown::new(
                    "--kv-cache-memory-bytes overrides the share of the memory",
                )
                .hint("leave --kv-cache-memory-bytes out"));
            }
            longest(model, asked)?;
            let with = |n: u64| Deployment {
                memory_fraction: Some(n as f64 / 100.0),
                ..asked.clone()
            };
            // Each is tried: a share holds from some point on, and no more above what is free.
            let mut found = None;
            for n in 1..=100 {
                if fits_at(holds(&with(n)), concurrency)? {
                    found = Some(n);
                    break;
                }
            }
            let bound = "with less it does not fit".to_owned();
            (found.map(|n| (n as f64 / 100.0, with(n))), bound)
        }
    };
    let (value, deployment, bound) = match found {
        Some((value, deployment)) => (Some(value), deployment, bound),
        None => (None, asked.clone(), "no value of it fits".into()),
    };
    Ok(Solution {
        what,
        value,
        deployment,
        bound,
    })
}

/// More and more GPUs: each tensor parallelism that divides the heads and one machine has, with each pipeline parallelism;
/// of as many GPUs the fewest stages first. Only vLLM's stages are computed: others have theirs on top of the widest.
pub fn parallel(model: &Model, asked: &Deployment) -> Vec<Deployment> {
    let tensor = tensor_sizes(model, MACHINE);
    let widest = tensor.last().copied().unwrap_or(1);
    let layers = model.mixers.len().max(1) as u64;
    let mut all = Vec::new();
    for tp in tensor {
        let is_staged = asked.engine == EngineId::Vllm || tp == widest;
        let most = if is_staged { layers } else { 1 };
        let stages = (1..=most).take_while(|pp| tp.saturating_mul(*pp) <= MOST_GPUS);
        all.extend(stages.map(|pp| asked.spread_over(tp, pp)));
    }
    all.sort_by_key(|d| (d.tp.saturating_mul(d.pp), d.pp));
    all
}

/// Powers of two up to `most` that divide the attention heads.
pub fn tensor_sizes(model: &Model, most: u64) -> Vec<u64> {
    let powers = std::iter::successors(Some(1_u64), |n| n.checked_mul(2));
    powers
        .take_while(|n| *n <= most)
        .filter(|n| model.heads % *n == 0)
        .collect()
}
