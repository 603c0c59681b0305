//! One estimate of one deployment, as far as questions need it; and how great the risk is.

use super::longest;
use crate::estimate::arithmetic::sum;
use crate::estimate::{
    Component, Deployment, EngineId, Estimate, Model, Unknown, bands, unmodelled,
};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Figures of one estimate, bytes on the GPU that needs most.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Reading {
    /// All terms but the cache.
    pub besides: u64,
    /// The same at the upper ends of the bands.
    pub besides_high: u64,
    /// Bytes that must be free outside the engine's share.
    #[serde(default)]
    pub outside: u64,
    /// What one request of the longest length keeps in the cache.
    pub request: u64,
    /// Bytes of the cache without which the engine does not start, however few requests there are.
    #[serde(default)]
    pub least_cache: u64,
    /// Bytes that CUDA graphs may take beyond their figure, where nothing is held back for them.
    #[serde(default)]
    pub more_graphs: u64,
    /// The engine's CUDA graphs are taken and in none of these, as their amount is not known.
    pub lacks_graphs: bool,
    /// Few runs like it were measured: the bands are of others.
    #[serde(default)]
    pub extrapolated: bool,
    /// No run of the engine was measured.
    #[serde(default)]
    pub unmeasured: bool,
    /// The upper end of the pool's interval, bytes; 0 where nothing more can be left for it.
    #[serde(default)]
    pub pool_high: u64,
    /// The engine refuses to start whatever the memory is.
    #[serde(default)]
    pub refused: bool,
    /// The engine starts with a pool of less than one request of the longest length, and refuses longer ones.
    #[serde(default)]
    pub serves_shorter: bool,
    /// The engine shortens the longest request to what fits.
    #[serde(default)]
    pub is_fitted: bool,
    /// The engine keeps layers on the processor where the GPU has no room for all.
    #[serde(default)]
    pub moves_layers: bool,
    /// On a GPU that is known.
    pub on: Option<OnGpu>,
}

/// What a known GPU makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct OnGpu {
    /// Its memory as its driver reports it, less what others hold.
    pub free: u64,
    /// What the engine lets itself take.
    pub budget: u64,
    /// The pool that is left for the cache.
    pub pool: u64,
    /// The cache is as large as is asked for: the pool and the requests are what the GPU has room for.
    pub grows: bool,
    /// Requests of the longest length at once, blocks and groups counted; below 1 the engine does
    /// not start with that length, and 0 where it does not start at all.
    pub concurrency: f64,
}

/// How likely it is that memory runs out.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Risk {
    /// It fits with a tenth of the memory to spare, also where every term is at its band's upper end.
    Low,
    /// It fits, also where every term is at its band's upper end.
    Medium,
    /// It fits by the estimate, and not where every term is at its band's upper end.
    High,
    /// It does not fit by the estimate.
    DoesNotFit,
}

crate::wording::as_written!(Risk);

/// Share of the engine's memory that is to be left for a low risk.
const SPARE: f64 = 0.10;

impl Risk {
    /// What the word means, the end of a sentence. `requests`: those that are asked for, in words.
    pub fn meaning(self, requests: &str, several: bool) -> String {
        let verb = |one: &str, more: &str| if several { more } else { one }.to_owned();
        match self {
            Risk::Low => format!(
                "with every term at its highest, a tenth of the engine's memory is left beside {requests}"
            ),
            Risk::Medium => format!(
                "with every term at its highest, {requests} {} with less than a tenth of the engine's memory to spare",
                verb("fits", "fit")
            ),
            Risk::High => format!(
                "with every term at its highest, {requests} {} not fit",
                verb("does", "do")
            ),
            Risk::DoesNotFit => "what is needed is more than there is".into(),
        }
    }
}

impl Reading {
    /// Of one estimate of a deployment.
    ///
    /// # Errors
    /// A term, or the longest length, is not known.
    pub fn of(
        model: &Model,
        deployment: &Deployment,
        estimate: &Estimate,
    ) -> Result<Reading, Unknown> {
        let is_settled = estimate.unmodelled.is_empty();
        let unknown = estimate.refused && estimate.besides().is_none();
        let refused = estimate.fits == Some(false) && (!is_settled || unknown);
        if deployment.gpu.is_some() && refused {
            return Ok(Reading::of_least(deployment, estimate));
        }
        let unknown = || {
            let why = estimate.terms.iter().find_map(|t| t.bytes.as_ref().err());
            why.cloned()
                .unwrap_or_else(|| Unknown::new("a term is not known"))
        };
        let (besides, besides_high) = estimate.besides().ok_or_else(unknown)?;
        let longest = estimate
            .settings
            .max_model_len
            .map_or_else(|| longest(model, deployment), Ok)?;
        let layout = estimate.layout.as_ref().map_err(Clone::clone)?;
        let request = layout.bytes_of(longest);
        let mut reading = Reading {
            besides,
            besides_high,
            request,
            least_cache: estimate.least_cache(deployment),
            more_graphs: more_graphs(deployment, estimate),
            lacks_graphs: estimate.lacks_graphs,
            extrapolated: bands::has_few_runs(model, deployment),
            unmeasured: bands::has_no_runs(deployment),
            pool_high: pool_high(deployment, estimate),
            refused: estimate.refused,
            moves_layers: deployment.moves_layers,
            ..Reading::default()
        };
        let (Some(gpu), Some(budget)) = (&deployment.gpu, estimate.budget) else {
            return Ok(reading);
        };
        let free = gpu.total.saturating_sub(gpu.in_use);
        reading.outside = estimate.outside;
        // These take what is asked for: what they could take is the rest of the GPU.
        let grows = deployment.engine.takes_what_is_asked();
        let (pool, at_once, refused) = if grows {
            let pool = budget.saturating_sub(besides);
            // What is refused does not start with layers on the processor either.
            let refused = estimate.fits == Some(false) && estimate.max_concurrency == Ok(0.0);
            reading.moves_layers &= !refused;
            (pool, pool as f64 / request.max(1) as f64, refused)
        } else {
            let pool = estimate.pool.as_ref().map_err(Clone::clone)?.bytes;
            let at_once = estimate.max_concurrency.clone()?;
            // What is not modelled may also take less.
            if estimate.fits.is_none() && (at_once >= 1.0 || !is_settled) {
                return Err(Unknown::new(estimate.reason.clone()));
            }
            (
                pool,
                at_once,
                estimate.fits == Some(false) && at_once >= 1.0,
            )
        };
        // SGLang takes any pool; its scheduler bounds requests by it (`max_req_len`).
        reading.serves_shorter =
            deployment.engine == EngineId::Sglang && estimate.fits.is_none() && pool > 0;
        reading.on = Some(OnGpu {
            free,
            // Bytes that were asked for are taken of the whole GPU.
            budget: deployment.kv_cache_memory.map_or(budget, |_| free),
            pool,
            grows,
            concurrency: if refused { 0.0 } else { at_once },
        });
        Ok(reading)
    }

    /// A deployment that needs at least more than there is: nothing else of it need be known.
    fn of_least(deployment: &Deployment, estimate: &Estimate) -> Reading {
        let least = estimate.least(deployment);
        let gpu = deployment.gpu.as_ref();
        let free = gpu.map_or(0, |g| g.total.saturating_sub(g.in_use));
        Reading {
            besides: least,
            besides_high: least,
            on: Some(OnGpu {
                free,
                budget: estimate.budget.unwrap_or(free),
                ..OnGpu::default()
            }),
            moves_layers: deployment.moves_layers && !estimate.refused,
            refused: estimate.refused,
            ..Reading::default()
        }
    }

    /// What `requests` requests of the longest length need in all, by their plain sum: blocks that an
    /// engine leaves half empty are not in it.
    pub fn needed(&self, concurrency: u64) -> u64 {
        sum([self.besides, self.request.saturating_mul(concurrency)])
    }

    /// Whether `requests` requests fit; `None` without a GPU.
    pub fn fits(&self, concurrency: u64) -> Option<bool> {
        Some(self.on?.concurrency >= concurrency.max(1) as f64)
    }

    /// Requests of the longest length that it holds with every term at the upper end of its band.
    pub fn surely_holds(&self) -> f64 {
        let Some(on) = self.on.filter(|on| !self.is_over(*on)) else {
            return 0.0;
        };
        let left = on.budget.saturating_sub(self.besides_high);
        let sure = if left < self.least_cache.min(on.pool) {
            0.0
        } else {
            on.concurrency * (left as f64 / on.pool.max(1) as f64).min(1.0)
        };
        // What the engine shortens fits once.
        let shortens = self.is_fitted && on.concurrency >= 1.0;
        if shortens { sure.max(1.0) } else { sure }
    }

    /// Whether it holds these requests at the upper end of the pool's interval, and not by the estimate.
    pub fn may_hold(&self, concurrency: u64) -> bool {
        let requests = self.request.saturating_mul(concurrency.max(1));
        let needed = requests.max(self.least_cache);
        let lacks = self.on.is_some_and(|on| on.pool < needed);
        lacks && self.pool_high >= needed && self.fits(concurrency) == Some(false)
    }

    /// How great the risk is; `None` without a GPU.
    pub fn risk(&self, concurrency: u64) -> Option<Risk> {
        let on = self.on?;
        let wanted = concurrency.max(1);
        if on.concurrency < wanted as f64 {
            let starts = self.moves_layers;
            return Some(if starts { Risk::High } else { Risk::DoesNotFit });
        }
        // What requests take of the pool as the engine lays it out, blocks and all.
        let cache = on.pool as f64 * (wanted as f64 / on.concurrency).min(1.0);
        let cache = cache.max(self.least_cache.min(on.pool) as f64);
        let high = self.besides_high as f64 + cache;
        let risk = if self.surely_holds() < wanted as f64 {
            Risk::High
        } else if high > on.budget as f64 * (1.0 - SPARE) {
            Risk::Medium
        } else {
            Risk::Low
        };
        Some(risk.max(self.least_risk()))
    }

    /// Whether the pool and what lies outside the share are more than the GPU has.
    fn is_over(&self, on: OnGpu) -> bool {
        !on.grows && sum([self.besides, on.pool, self.outside, self.more_graphs]) > on.free
    }

    /// The least risk where something is not known.
    fn least_risk(&self) -> Risk {
        if self.lacks_graphs || self.extrapolated || self.unmeasured {
            Risk::Medium
        } else {
            Risk::Low
        }
    }

    /// What a risk means here, the end of a sentence. `requests`: those that are asked for, in words.
    pub fn meaning(&self, risk: Risk, requests: &str, several: bool) -> String {
        if risk == Risk::High && self.on.is_some_and(|on| self.is_over(on)) {
            "with what lies outside the engine's share it is more than the GPU has".into()
        } else if risk == Risk::High && !several && self.least_cache > self.request {
            "with every term at its highest, the cache has too few blocks for the states of the model: see --max-num-seqs".into()
        } else if self.is_fitted && risk == Risk::Medium && !several {
            "with less memory than estimated the engine takes shorter requests".into()
        } else if self.lacks_graphs && risk == self.least_risk() {
            "the memory of its CUDA graphs is unknown and not included".into()
        } else if self.unmeasured && risk == self.least_risk() {
            "it rests on no measurements of this engine".into()
        } else if self.extrapolated && risk == self.least_risk() {
            "few runs like it were measured".into()
        } else {
            risk.meaning(requests, several)
        }
    }
}

/// The upper end of the pool's interval, where the rest leaves it room.
fn pool_high(deployment: &Deployment, estimate: &Estimate) -> u64 {
    let pool = estimate.term(Component::KvCache);
    let band = pool.and_then(|t| t.band.as_ref());
    let has_room = !estimate.refused
        && !estimate.cannot_start(deployment)
        && estimate.bytes(Component::Weights) < estimate.budget;
    band.filter(|_| has_room).map_or(0, |band| band.high)
}

/// What vLLM's CUDA graphs may take beyond their figure, where its pool leaves nothing for them.
fn more_graphs(deployment: &Deployment, estimate: &Estimate) -> u64 {
    let graphs = estimate.term(Component::CudaGraphs);
    let more = graphs.and_then(|t| {
        let band = t.band.as_ref()?;
        Some(band.high.saturating_sub(*t.bytes.as_ref().ok()?))
    });
    let held = deployment.engine != EngineId::Vllm || unmodelled::forecasts(deployment);
    more.filter(|_| !held).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn reading(besides: u64, high: u64, budget: u64) -> Reading {
        let pool = budget.saturating_sub(besides) * GIB;
        Reading {
            besides: besides * GIB,
            besides_high: high * GIB,
            outside: 0,
            request: GIB,
            least_cache: 0,
            more_graphs: 0,
            lacks_graphs: false,
            extrapolated: false,
            unmeasured: false,
            pool_high: 0,
            refused: false,
            serves_shorter: false,
            is_fitted: false,
            moves_layers: false,
            on: Some(OnGpu {
                free: (budget + 8) * GIB,
                budget: budget * GIB,
                pool,
                grows: false,
                concurrency: pool as f64 / GIB as f64,
            }),
        }
    }

    #[test]
    fn risk_grows_with_the_load_and_with_what_is_not_known() {
        let roomy = reading(16, 17, 72);
        assert_eq!(roomy.risk(1), Some(Risk::Low));
        assert_eq!(roomy.risk(47), Some(Risk::Low), "17 + 47 = 64 of 64.8");
        assert_eq!(roomy.risk(50), Some(Risk::Medium));
        assert_eq!(roomy.risk(56), Some(Risk::High), "17 + 56 = 73 of 72");
        assert_eq!(roomy.risk(57), Some(Risk::DoesNotFit));
        assert_eq!(reading(70, 90, 72).risk(1), Some(Risk::High));
        assert_eq!(reading(80, 81, 72).risk(1), Some(Risk::DoesNotFit));
        let without_graphs = Reading {
            lacks_graphs: true,
            extrapolated: false,
            unmeasured: false,
            pool_high: 0,
            refused: false,
            serves_shorter: false,
            is_fitted: false,
            moves_layers: false,
            ..roomy
        };
        assert_eq!(without_graphs.risk(1), Some(Risk::Medium));
        assert_eq!(without_graphs.risk(57), Some(Risk::DoesNotFit));
        // The share leaves too little for what lies outside it.
        let over = Reading {
            outside: 9 * GIB,
            ..roomy
        };
        assert_eq!(over.risk(1), Some(Risk::High));
        let nowhere = Reading { on: None, ..roomy };
        assert_eq!((nowhere.risk(1), nowhere.fits(1)), (None, None));
        assert_eq!(nowhere.needed(4), 20 * GIB);
    }
}
