//! The load line by calculation: every limit on the requests in flight, with its formula and where
//! its figures come from. The least of them is the prediction.

use crate::compare::deployment::deployment_of;
use crate::compare::settings::{self, ProfileSettings};
use crate::engine::limits::{LoadLimits, Resource, UnsetSequences};
use crate::estimate::{Model, Version, engines};
use crate::profile::Profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long every request is, tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenLengths {
    /// Prompt.
    pub input: u64,
    /// Output.
    pub output: u64,
}

impl TokenLengths {
    /// Both together.
    pub fn total_tokens(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// What runs out.
    pub resource: Resource,
    /// Requests in flight at most.
    pub concurrency: u64,
    /// With its figures: `floor(1023 blocks / 3 blocks a request)`.
    pub formula: String,
    /// Where the figures come from.
    pub source: String,
}

/// All limits, and the least.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Requests in flight, all of them at their longest at once; null where no limit is known.
    pub concurrency: Option<u64>,
    /// What runs out there.
    pub resource: Option<Resource>,
    /// Every limit that is known, the least first.
    pub limits: Vec<ResourceLimit>,
    /// Requests that the pool holds on average where they are out of step, each half through its
    /// output. Not the line: requests that start together are at their longest together.
    pub out_of_step: Option<u64>,
    /// What the prediction does not cover, sentences.
    pub notes: Vec<String>,
}

impl Prediction {
    /// The limit by a resource.
    pub fn limit_for(&self, resource: Resource) -> Option<&ResourceLimit> {
        self.limits.iter().find(|l| l.resource == resource)
    }
}

/// What is predicted of the engine of this profile. `model` completes what the flags leave to the
/// engine's defaults.
pub fn predict_concurrency(
    profile: &Profile,
    model: Option<&Model>,
    lengths: TokenLengths,
) -> Prediction {
    let settings = settings::settings_of_profile(profile);
    let about = PredictionInput {
        profile,
        engine: LoadLimits::of_engine(&profile.engine_metadata.engine_type),
        settings: &settings,
        model,
        lengths,
    };
    let mut prediction = Prediction::default();
    about.predict_pool_limit(&mut prediction);
    prediction
        .limits
        .extend(about.sequences(&mut prediction.notes));
    prediction.limits.extend(about.batch_tokens());
    prediction.limits.extend(about.connections());
    prediction.limits.extend(about.length());
    // Where nothing fits, the length is the reason.
    prediction
        .limits
        .sort_by_key(|l| (l.concurrency, l.resource != Resource::Length));
    if let Some(least) = prediction.limits.first() {
        prediction.concurrency = Some(least.concurrency);
        prediction.resource = Some(least.resource);
    }
    prediction
}

/// What the limits are read from.
struct PredictionInput<'a> {
    profile: &'a Profile,
    engine: LoadLimits,
    settings: &'a ProfileSettings,
    model: Option<&'a Model>,
    lengths: TokenLengths,
}

impl PredictionInput<'_> {
    fn setting_count(&self, name: &str) -> Option<u64> {
        let text = self.settings.get(name)?.trim();
        text.parse().ok().filter(|n| *n > 0)
    }

    /// Engines beside each other, each with a pool and a scheduler of its own.
    fn replicas(&self) -> u64 {
        self.setting_count("data_parallel_size").unwrap_or(1)
    }

    /// Tokens that a request keeps at its longest: nothing is computed of the last token that is
    /// sampled, for none follows it.
    fn kept_tokens(&self) -> u64 {
        (self.lengths.total_tokens()).saturating_sub(self.engine.unkept_tokens)
    }

    /// The pool, and what of it is not certain.
    fn predict_pool_limit(&self, to: &mut Prediction) {
        let metrics = &self.profile.vllm_internal_metrics;
        let (kept, replicas) = (self.kept_tokens().max(1), self.replicas());
        let block = metrics.block_size.filter(|b| *b > 0);
        let tokens = metrics.total_gpu_kv_cache_tokens.filter(|t| *t > 0);
        let half = self.lengths.input + self.lengths.output / 2;
        if let (Some(blocks), Some(block)) = (metrics.num_gpu_blocks.filter(|b| *b > 0), block) {
            let plain = blocks.saturating_mul(block);
            if tokens.is_none_or(|t| self.is_plain(t, plain, block)) {
                let null = replicas.saturating_mul(self.engine.empty_blocks);
                let (usable, each) = (blocks.saturating_sub(null), kept.div_ceil(block));
                let less = match null {
                    0 => String::new(),
                    n => format!("; {usable} = {blocks} less {n} that vLLM keeps empty"),
                };
                to.limits.push(ResourceLimit {
                    resource: Resource::KvPool,
                    concurrency: usable / each,
                    formula: format!(
                        "floor({usable} blocks / {each} a request); {each} = ceil({kept} tokens / {block} of a block){less}"
                    ),
                    source: "num_gpu_blocks and block_size, as the engine reports them".into(),
                });
                to.out_of_step = Some(usable / half.div_ceil(block).max(1));
                return;
            }
        }
        let Some(tokens) = tokens else {
            to.notes.push(self.engine.unknown_pool.into());
            return;
        };
        let each = match block {
            Some(block) => kept.div_ceil(block).saturating_mul(block),
            None => kept,
        };
        to.limits.push(ResourceLimit {
            resource: Resource::KvPool,
            concurrency: tokens / each,
            formula: format!("floor({tokens} tokens / {each} a request)"),
            source: "the pool's tokens, as the engine reports them".into(),
        });
        to.out_of_step = Some(tokens / half.max(1));
        if metrics.num_gpu_blocks.is_some() && block.is_some() {
            to.notes.push(
                "the layers keep different things of a token (windows, states): the pool's tokens are those of requests of full length, and shorter ones may take more or less than their share".into(),
            );
        }
    }

    /// Whether every block holds tokens of all layers. Newer vLLM prints the requests of full length
    /// that fit times that length, which is less than the blocks hold where it fills none to its end;
    /// layers of several kinds, with blocks of their own, make it less by far.
    fn is_plain(&self, tokens: u64, plain: u64, block: u64) -> bool {
        let longest = self.profile.vllm_internal_metrics.max_model_len;
        let printed = match longest.filter(|n| *n > 0) {
            Some(n) => plain as f64 * n as f64 / (n.div_ceil(block) * block) as f64,
            None => plain as f64,
        };
        let (least, most) = (printed.min(plain as f64) * 0.98, plain as f64 * 1.01);
        (least..=most).contains(&(tokens as f64))
    }

    fn sequences(&self, notes: &mut Vec<String>) -> Option<ResourceLimit> {
        let named = self.engine.sequences?;
        let limit = |n: u64, source: String| {
            let replicas = if self.engine.per_replica {
                self.replicas()
            } else {
                1
            };
            let formula = match replicas {
                1 => format!("{named} = {n}"),
                r => format!("{named} = {n}, times {r} engines"),
            };
            ResourceLimit {
                resource: Resource::Sequences,
                concurrency: n.saturating_mul(replicas),
                formula,
                source,
            }
        };
        if let Some(n) = self.setting_count(named) {
            return Some(limit(n, "the engine's settings".into()));
        }
        match self.engine.unset_sequences {
            UnsetSequences::DefaultOfVersion => {}
            UnsetSequences::NoLimit => return None,
            UnsetSequences::Unknown => {
                notes.push(format!(
                    "{named} is not reported: it may be lower than the prediction"
                ));
                return None;
            }
        }
        let deployment = deployment_of(self.profile).ok()?;
        let version = deployment.version;
        let version_name = version.map_or("the newest version".to_owned(), |v| {
            format!("{}.{}.{}", v.major, v.minor, v.patch)
        });
        if deployment.on_cpu {
            // `EngineArgs.get_batch_defaults`: this many for each process of a server on CPUs.
            let n = 128 * deployment.tp.max(1) * deployment.pp.max(1);
            if version.is_some_and(|v| v < Version::new(0, 11, 0)) {
                notes.push(
                    "max_num_seqs is not reported, and the default of this version is unknown"
                        .into(),
                );
                return None;
            }
            return Some(limit(
                n,
                format!("the default of vLLM {version_name} on CPUs"),
            ));
        }
        let rule = engines::settings(self.model?, &deployment);
        Some(limit(
            rule.sequences,
            format!("the default of vLLM {version_name} on this GPU"),
        ))
    }

    fn batch_tokens(&self) -> Option<ResourceLimit> {
        let tokens = self.setting_count("max_batch_total_tokens")?;
        let each = self.lengths.total_tokens().max(1);
        Some(ResourceLimit {
            resource: Resource::BatchTokens,
            concurrency: tokens / each,
            formula: format!("floor(max_batch_total_tokens {tokens} / {each} tokens a request)"),
            source: "the engine's endpoints".into(),
        })
    }

    fn connections(&self) -> Option<ResourceLimit> {
        let n = self.setting_count("max_concurrent_requests")?;
        Some(ResourceLimit {
            resource: Resource::Connections,
            concurrency: n,
            formula: format!("max_concurrent_requests = {n}"),
            source: "the engine's settings".into(),
        })
    }

    /// A request that is longer than the engine takes fits no time.
    fn length(&self) -> Option<ResourceLimit> {
        let longest = self.profile.vllm_internal_metrics.max_model_len;
        let longest = longest.or_else(|| self.setting_count("max_model_len"))?;
        let whole = self.lengths.total_tokens();
        (whole > longest).then(|| ResourceLimit {
            resource: Resource::Length,
            concurrency: 0,
            formula: format!("{whole} tokens of a request > {longest} of a sequence at most"),
            source: "the engine's longest sequence".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Capture;
    use crate::profile::derive_profile;
    use proptest::prelude::*;

    fn profile(engine: &str, pool: [Option<u64>; 3], settings: &[(&str, &str)]) -> Profile {
        let capture = Capture {
            engine: engine.into(),
            ..Capture::default()
        };
        let mut profile = derive_profile(&capture, [], []);
        profile.engine_metadata.engine_type = engine.into();
        let metrics = &mut profile.vllm_internal_metrics;
        [
            metrics.num_gpu_blocks,
            metrics.block_size,
            metrics.total_gpu_kv_cache_tokens,
        ] = pool;
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        profile.configuration.effective = settings.iter().map(owned).collect();
        profile
    }

    const LENGTHS: TokenLengths = TokenLengths {
        input: 128,
        output: 256,
    };

    #[test]
    fn the_pool_of_vllm_in_whole_blocks() {
        let p = profile(
            "vllm",
            [Some(97), Some(128), Some(97 * 128)],
            &[("max_num_seqs", "64")],
        );
        let prediction = predict_concurrency(&p, None, LENGTHS);
        // 383 tokens take 3 blocks of 128, and one block of the 97 is never given away.
        assert_eq!(
            (prediction.concurrency, prediction.resource),
            (Some(32), Some(Resource::KvPool))
        );
        assert_eq!(
            prediction
                .limit_for(Resource::Sequences)
                .map(|l| l.concurrency),
            Some(64)
        );
        assert_eq!(prediction.out_of_step, Some(48));
        let longer = TokenLengths {
            input: 130,
            ..LENGTHS
        };
        assert_eq!(
            predict_concurrency(&p, None, longer).concurrency,
            Some(24),
            "385 tokens take 4 blocks"
        );
    }

    #[test]
    fn the_least_limit_is_the_prediction() {
        let pool = [Some(1000), Some(16), None];
        let p = profile(
            "vllm",
            pool,
            &[("max_num_seqs", "8"), ("data_parallel_size", "2")],
        );
        let prediction = predict_concurrency(&p, None, LENGTHS);
        assert_eq!(
            (prediction.concurrency, prediction.resource),
            (Some(16), Some(Resource::Sequences))
        );
        let p = profile(
            "vllm",
            pool,
            &[("max_num_seqs", "8"), ("max_model_len", "300")],
        );
        let prediction = predict_concurrency(&p, None, LENGTHS);
        assert_eq!(
            (prediction.concurrency, prediction.resource),
            (Some(0), Some(Resource::Length))
        );
    }

    #[test]
    fn engines_by_their_own_words() {
        let tgi = profile(
            "tgi",
            [None; 3],
            &[
                ("max_batch_total_tokens", "7680"),
                ("max_concurrent_requests", "128"),
            ],
        );
        let prediction = predict_concurrency(&tgi, None, LENGTHS);
        assert_eq!(
            (prediction.concurrency, prediction.resource),
            (Some(20), Some(Resource::BatchTokens))
        );
        let sglang = profile(
            "sglang",
            [None, Some(1), Some(3830)],
            &[("max_running_requests", "64")],
        );
        let prediction = predict_concurrency(&sglang, None, LENGTHS);
        assert_eq!(
            (prediction.concurrency, prediction.resource),
            (Some(10), Some(Resource::KvPool))
        );
        let llama = profile("llama.cpp", [None; 3], &[("parallel", "4")]);
        let prediction = predict_concurrency(&llama, None, LENGTHS);
        assert_eq!(
            (prediction.concurrency, prediction.resource),
            (Some(4), Some(Resource::Sequences))
        );
        let notes = prediction.notes.concat();
        assert!(notes.contains("slot"), "{notes}");
    }

    #[test]
    fn pools_that_are_not_counted_in_tokens_are_caveats_and_unknown_is_no_number() {
        let hybrid = profile("vllm", [Some(1000), Some(16), Some(9000)], &[]);
        let prediction = predict_concurrency(&hybrid, None, LENGTHS);
        assert_eq!(prediction.concurrency, Some(9000 / 384));
        let notes = prediction.notes.concat();
        assert!(notes.contains("windows"), "{notes}");
        let dark = predict_concurrency(&profile("tensorrt-llm", [None; 3], &[]), None, LENGTHS);
        assert_eq!((dark.concurrency, dark.resource), (None, None));
        assert!(dark.notes.iter().any(|n| n.contains("KV pool")), "{dark:?}");
    }

    proptest! {
        #[test]
        fn so_many_requests_fit_and_not_one_more(blocks in 2..100_000u64, block in 1..256u64, input in 1..5000u64, output in 1..5000u64) {
            let p = profile("vllm", [Some(blocks), Some(block), None], &[]);
            let prediction = predict_concurrency(&p, None, TokenLengths { input, output });
            let each = (input + output - 1).div_ceil(block);
            let n = prediction.limit_for(Resource::KvPool).unwrap().concurrency;
            prop_assert!(n * each < blocks && (n + 1) * each > blocks - 1);
        }
    }
}
