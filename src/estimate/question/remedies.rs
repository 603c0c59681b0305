//! Settings that make a deployment fit, or that give memory back. Each is estimated with its new value before it is
//! named: one that does not help, or of which that is unknown, is left out.

use super::Reading;
use super::search::largest;
use super::solve::{Holds, MACHINE, What, solve, tensor_sizes};
use crate::engine::settings::{Setting, argument_text};
use crate::estimate::engines::llama_cpp;
use crate::estimate::weights::shard;
use crate::estimate::{
    Component, Deployment, EngineId, Model, Unknown, estimate, fits, shared_host,
};
use std::cmp::Reverse;

/// The largest share of a GPU that is advised: the driver's context and what the engine does not count lie beside it.
const MOST_SHARE: f64 = 0.95;
/// A context below this many tokens is not offered in place of a longer one.
const LEAST_TOKENS: u64 = 1024;
/// Sequences that keep a state each are advised in whole steps of this many.
const SEQUENCES: u64 = 16;
/// Two changes at once that are named at most: where a single one helps on more GPUs, it is named beside them.
const MOST_PAIRS: usize = 2;

/// Changes of settings, mostly one, after which a deployment fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// The arguments as a person types them, one of each setting: `--max-model-len 32992`.
    pub arguments: Vec<String>,
    /// The deployment with them.
    pub deployment: Deployment,
    /// Requests of the longest length that it then holds at once.
    pub concurrency: f64,
}

impl Remedy {
    /// Its arguments on one line.
    pub fn argument(&self) -> String {
        self.arguments.join(" ")
    }
}

/// A deployment with another value of one setting, and the argument for it.
type Change = (String, Deployment);
/// The same of several settings.
type Changes = (Vec<String>, Deployment);

/// The engine's share of the GPU changed to this many percent, no more than is ever advised; `None` where the deployment would not hold one request, or the engine has no such share.
pub fn change_share(present: &Deployment, percent: f64, holds: &Holds<'_>) -> Option<Remedy> {
    let (argument, deployment) = with_share(present, percent)?;
    let concurrency = holds(&deployment).ok()?;
    (percent > 0.0 && concurrency >= 1.0).then_some(Remedy {
        arguments: vec![argument],
        deployment,
        concurrency,
    })
}

fn with_share(present: &Deployment, percent: f64) -> Option<Change> {
    let share = (percent / 100.0).min(MOST_SHARE);
    let value = format!("{share:.2}");
    let argument = argument_text(present.engine, "gpu_memory_utilization", &value)?;
    let deployment = Deployment {
        memory_fraction: Some(share),
        ..present.clone()
    };
    Some((argument, deployment))
}

/// What makes a deployment hold `concurrency` requests of the longest length that it does not hold, or not surely: one
/// change, else two at once. Where none holds them with every term at the upper end of its band, what holds them by the
/// estimate alone.
pub fn find_remedies(
    model: &Model,
    asked: &Deployment,
    concurrency: u64,
    read: &dyn Fn(&Deployment) -> Result<Reading, Unknown>,
) -> Vec<Remedy> {
    let wanted = concurrency.max(1);
    // What may add memory and is not modelled leaves every change unknown.
    let moved = estimate(model, asked).unmodelled;
    let mut named = asked.unmodelled.iter();
    if named.any(|u| u.moves.adds() && moved.contains(u)) {
        return Vec::new();
    }
    // Only what is known to fit is a remedy.
    let by_estimate = |d: &Deployment| read(d).ok()?.on.map(|on| on.concurrency);
    let surely = |d: &Deployment| Ok(read(d).map_or(0.0, |reading| reading.surely_holds()));
    let possibly = |d: &Deployment| Ok(by_estimate(d).unwrap_or(0.0));
    let present = read(asked).ok();
    let is_risky = present.is_some_and(|reading| reading.fits(wanted) == Some(true));
    let rules: [&Holds<'_>; 2] = [&surely, &possibly];
    // What fits by the estimate needs no change that is no surer.
    let rules = rules.into_iter().take(if is_risky { 1 } else { 2 });
    let mut found = rules.map(|holds| {
        let search = Search {
            model,
            wanted,
            holds,
        };
        let single = search.single_changes(asked);
        let single = single.map(|(argument, with)| (vec![argument], with));
        let is_wider = |(_, with): &Changes| with.gpus() > asked.gpus();
        let (wider, mut found): (Vec<_>, Vec<_>) = single.partition(is_wider);
        // Two changes before more GPUs and before a context that is cut most.
        let longest = found.iter().map(|(_, with)| length_of(with)).max();
        let keeps_length = longest.is_some_and(|tokens| tokens >= length_of(asked));
        if !keeps_length {
            let gpus = wider.iter().map(|(_, with)| with.gpus()).min();
            let pairs = search.pairs(asked, gpus.unwrap_or(u64::MAX));
            let is_longer = |(_, with): &Changes| Some(length_of(with)) > longest;
            let longer = pairs.into_iter().filter(is_longer);
            let most = MOST_PAIRS.saturating_sub(found.len());
            found.extend(longer.take(most));
        }
        found.extend(wider);
        found
    });
    let found = found.find(|found| !found.is_empty());
    let remedies = found.into_iter().flatten().map(|(arguments, deployment)| {
        let concurrency = by_estimate(&deployment).unwrap_or(0.0);
        Remedy {
            arguments,
            deployment,
            concurrency,
        }
    });
    remedies.collect()
}

/// A search for settings with which `wanted` requests of the longest length fit, as `holds` says.
struct Search<'a> {
    model: &'a Model,
    wanted: u64,
    holds: &'a Holds<'a>,
}

impl Search<'_> {
    /// Single changes after which it fits, one of each setting: the mildest first.
    fn single_changes(&self, asked: &Deployment) -> impl Iterator<Item = Change> {
        let kinds: [fn(&Self, &Deployment) -> Option<Change>; 7] = [
            |search, asked| search.checked(with_whole_experts(search.model, asked)),
            Self::sequences,
            Self::share,
            Self::context,
            Self::cache,
            Self::experts_on_host,
            |search, asked| search.checked(without_graphs(asked)),
        ];
        let wider = move |with: Change| self.checked(Some(with));
        let more = std::iter::once_with(move || more_gpus(self.model, asked).find_map(wider));
        let single = kinds.into_iter().map(move |kind| kind(self, asked));
        single.chain(more).flatten()
    }

    /// Two changes at once, on fewer GPUs than this many: one that has few values, and what fits after it.
    fn pairs(&self, asked: &Deployment, gpus: u64) -> Vec<Changes> {
        let widest = with_share(asked, (self.most_share(asked) * 100.0).floor());
        let is_more = |(_, with): &Change| with.memory_fraction > Some(self.present_share(asked));
        let on_these = [
            with_whole_experts(self.model, asked),
            with_small_cache(asked),
            widest.filter(is_more),
            without_graphs(asked),
        ];
        let first = on_these.into_iter().flatten();
        let wider = more_gpus(self.model, asked).filter(|(_, with)| with.gpus() < gpus);
        let first = first.chain(wider);
        let second: [fn(&Self, &Deployment) -> Option<Change>; 5] = [
            Self::sequences,
            Self::share,
            Self::context,
            Self::cache,
            Self::experts_on_host,
        ];
        let mut pairs: Vec<Changes> = Vec::new();
        for (argument, with) in first {
            if pairs.len() >= MOST_PAIRS && with.gpus() > asked.gpus() {
                break;
            }
            let found = second.iter().filter_map(|kind| kind(self, &with));
            let both = found.map(|(other, both)| (vec![argument.clone(), other], both));
            // The same two in the other order are no other advice.
            let is_new = |both: &Changes| pairs.iter().all(|known| !has_same_flags(known, both));
            let new: Vec<_> = both.filter(is_new).collect();
            pairs.extend(new);
        }
        // What keeps the asked length, or most of it, first.
        pairs.sort_by_key(|(_, with)| (with.gpus(), Reverse(length_of(with))));
        pairs.truncate(MOST_PAIRS);
        pairs
    }

    fn fits(&self, deployment: &Deployment) -> bool {
        (self.holds)(deployment).is_ok_and(|held| held >= self.wanted as f64)
    }

    fn checked(&self, change: Option<Change>) -> Option<Change> {
        change.filter(|(_, with)| self.fits(with))
    }

    fn present_share(&self, asked: &Deployment) -> f64 {
        estimate(self.model, asked).settings.fraction
    }

    /// The largest share that is advised: of SGLang its default, which holds back what its activations and graphs take
    /// outside.
    fn most_share(&self, asked: &Deployment) -> f64 {
        let default = Deployment {
            memory_fraction: None,
            ..asked.clone()
        };
        match asked.engine {
            EngineId::Sglang => self.present_share(&default).min(MOST_SHARE),
            _ => MOST_SHARE,
        }
    }

    /// States of sequences that are never there at once keep an engine from starting. Each has a block also where the pool
    /// is at the lower end of its interval.
    fn sequences(&self, asked: &Deployment) -> Option<Change> {
        let found = estimate(self.model, asked);
        let kept = fits::sequences_with_states(&found, asked)?;
        let with = |steps: u64| Deployment {
            max_seqs: Some(steps * SEQUENCES),
            ..asked.clone()
        };
        let blocks = |with: &Deployment| {
            let found = estimate(self.model, with);
            let low = found.term(Component::KvCache)?.band.as_ref()?.low;
            let longest = found.settings.max_model_len;
            Some(found.layout.ok()?.pool(low, longest).blocks)
        };
        let fits = |steps: u64| {
            let with = with(steps);
            let has_blocks = blocks(&with).is_none_or(|n| n >= steps * SEQUENCES);
            Ok::<_, Unknown>(has_blocks && self.fits(&with))
        };
        let most = kept.saturating_sub(1) / SEQUENCES;
        let steps = largest(1, most, fits).ok()??;
        let value = Some(steps * SEQUENCES).filter(|n| *n >= self.wanted)?;
        let argument = argument_text(asked.named(), "max_num_seqs", &value.to_string())?;
        Some((argument, with(steps)))
    }

    /// The share next to the present one: less of it is the change where the rest of the GPU has no room.
    fn share(&self, asked: &Deployment) -> Option<Change> {
        if asked.kv_cache_memory.is_some() {
            return None;
        }
        let found = estimate(self.model, asked);
        let present = found.settings.fraction;
        // Of a memory that the host shares the most that leaves it enough, where more is asked for.
        if let Some(most) = shared_host::safe_share(asked).filter(|most| present > *most) {
            return self.checked(with_share(asked, most * 100.0));
        }
        let percent = (present * 100.0).round() as u64;
        let most = (self.most_share(asked) * 100.0) as u64;
        let with = |n: u64| self.checked(with_share(asked, n as f64));
        if let Some(larger) = (percent + 1..=most).find_map(with) {
            return Some(larger);
        }
        let request = found.settings.max_model_len.and_then(|n| found.request(n));
        let needed = request?.saturating_mul(self.wanted);
        let has_room = found.pool.map_or(true, |pool| pool.bytes >= needed);
        let less = 1..percent.min(most + 1).max(1);
        has_room.then(|| less.rev().find_map(with))?
    }

    fn context(&self, asked: &Deployment) -> Option<Change> {
        let whole = match asked.engine {
            EngineId::LlamaCpp => llama_cpp::PADDING,
            _ => 16,
        };
        let with = |n: u64| Deployment {
            max_model_len: Some(n * whole),
            ..asked.clone()
        };
        let present = estimate(self.model, asked).settings.max_model_len?;
        // Most engines refuse a length beyond the model's positions.
        let most = self.model.max_positions.unwrap_or(u64::MAX);
        let shorter = present.checked_sub(1)?.min(most) / whole;
        let fits = |n| Ok::<_, Unknown>(self.fits(&with(n)));
        let n = largest(LEAST_TOKENS / whole, shorter, fits).ok()??;
        let tokens = (n * whole).to_string();
        let argument = argument_text(asked.named(), "max_model_len", &tokens)?;
        Some((argument, with(n)))
    }

    fn cache(&self, asked: &Deployment) -> Option<Change> {
        self.checked(with_small_cache(asked))
    }

    /// The fewest layers whose experts llama.cpp keeps in the host's memory.
    fn experts_on_host(&self, asked: &Deployment) -> Option<Change> {
        self.model.experts_per_token?;
        let kept = asked.llama.host_experts;
        let layers = self.model.mixers.len() as u64;
        let more = layers.checked_sub(kept).filter(|_| asked.gpus() == 1)?;
        let with = |n: u64| {
            let mut with = asked.clone();
            with.llama.host_experts = n;
            with
        };
        let fits = |spared| Ok::<_, Unknown>(self.fits(&with(layers - spared)));
        let spared = largest(0, more.checked_sub(1)?, fits).ok()??;
        let n = layers - spared;
        let argument = argument_text(asked.named(), "n_cpu_moe", &n.to_string())?;
        Some((argument, with(n)))
    }
}

/// The longest sequence that is asked for, tokens: the model's is the longest of all.
fn length_of(deployment: &Deployment) -> u64 {
    deployment.max_model_len.unwrap_or(u64::MAX)
}

/// Whether these change the same settings, in any order.
fn has_same_flags((some, _): &Changes, (others, _): &Changes) -> bool {
    let flag = |argument: &String| argument.split(' ').next().map(str::to_owned);
    let is_among = |own: &String| others.iter().any(|other| flag(own) == flag(other));
    some.iter().all(is_among)
}

/// A cache of 8 bits, where it has 16.
fn with_small_cache(asked: &Deployment) -> Option<Change> {
    let is_whole = matches!(
        asked.kv_dtype.as_deref(),
        None | Some("auto" | "bfloat16" | "float16")
    );
    let counted = matches!(
        asked.engine,
        EngineId::Vllm | EngineId::TensorRtLlm | EngineId::Sglang | EngineId::LlamaCpp
    );
    let setting = Setting::named("kv_cache_dtype").filter(|_| is_whole && counted)?;
    let value = setting.engine_value(asked.named(), "fp8");
    let with = Deployment {
        kv_dtype: Some(value.into()),
        ..asked.clone()
    };
    Some((argument_text(asked.named(), "kv_cache_dtype", value)?, with))
}

/// vLLM without CUDA graphs: of other engines their memory is not computed.
fn without_graphs(asked: &Deployment) -> Option<Change> {
    let captures = asked.engine == EngineId::Vllm && asked.eager != Some(true);
    let with = Deployment {
        eager: Some(true),
        ..asked.clone()
    };
    let argument = argument_text(asked.named(), "enforce_eager", "")?;
    captures.then_some((argument, with))
}

/// Whole experts on each GPU, where the engine refuses parts of them.
fn with_whole_experts(model: &Model, asked: &Deployment) -> Option<Change> {
    let ranks = asked.expert_ranks();
    shard::refused_blocks(model, asked)?;
    let argument = argument_text(asked.named(), "enable_expert_parallel", "")
        .or_else(|| argument_text(asked.named(), "expert_parallel_size", &ranks.to_string()));
    let with = Deployment {
        ep: ranks,
        ..asked.clone()
    };
    Some((argument?, with))
}

/// More GPUs of one machine, by tensor parallelism.
fn more_gpus(model: &Model, asked: &Deployment) -> impl Iterator<Item = Change> {
    let sizes = tensor_sizes(model, MACHINE).into_iter();
    sizes.filter(|tp| *tp > asked.tp).filter_map(|tp| {
        let argument = argument_text(asked.named(), "tensor_parallel_size", &tp.to_string())?;
        Some((argument, asked.spread_over(tp, asked.pp)))
    })
}

/// The smallest share of the GPU, in whole percents, that still holds `concurrency` requests of `tokens`, where it is
/// less than the present one by five percent or more.
///
/// Only engines that take a fixed share of the GPU at their start: a smaller share of others frees no memory.
pub fn find_smaller_share(
    model: &Model,
    present: &Deployment,
    concurrency: u64,
    holds: &Holds<'_>,
) -> Option<Remedy> {
    let share = present.memory_fraction?;
    let what = What::GpuMemoryUtilization;
    let found = solve(what, model, present, concurrency, holds).ok()?;
    let value = found.value.filter(|value| *value + 0.05 <= share)?;
    change_share(present, (value * 100.0).round(), holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Gpu;
    use crate::estimate::model::from_config;
    use crate::estimate::question::Risk;
    use serde_json::json;

    /// Llama of 8 billion parameters: 15 GiB of bfloat16, 128 KiB a token.
    fn llama() -> Model {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
        });
        from_config("llama", &config, "test").unwrap()
    }

    fn on(engine: EngineId, gib: u64) -> Deployment {
        Deployment {
            gpu: Some(Gpu {
                name: "NVIDIA GeForce RTX 4090".into(),
                total: gib << 30,
                in_use: 0,
            }),
            ..Deployment::with_defaults(engine)
        }
    }

    #[test]
    fn every_remedy_fits_by_the_estimate_of_its_own_deployment() {
        let model = llama();
        let read = |d: &Deployment| Reading::of(&model, d, &estimate(&model, d));
        for engine in [
            EngineId::Vllm,
            EngineId::Sglang,
            EngineId::TensorRtLlm,
            EngineId::LlamaCpp,
        ] {
            for gib in [12, 20, 24, 32] {
                for wanted in [1, 4] {
                    let asked = on(engine, gib);
                    for remedy in find_remedies(&model, &asked, wanted, &read) {
                        let reading = read(&remedy.deployment).unwrap();
                        assert_eq!(reading.fits(wanted), Some(true), "{remedy:?}");
                        assert!(remedy.arguments[0].starts_with('-'), "{remedy:?}");
                    }
                }
            }
        }
        // A little in use, as on every real GPU, takes no share away but the highest.
        let mut used = Deployment {
            memory_fraction: Some(0.5),
            max_model_len: Some(8192),
            ..on(EngineId::Vllm, 24)
        };
        used.gpu.as_mut().unwrap().in_use = 300 << 20;
        let share = find_remedies(&model, &used, 1, &read)
            .remove(0)
            .arguments
            .remove(0);
        assert!(share.starts_with("--gpu-memory-utilization 0."), "{share}");
        let found = find_remedies(&model, &on(EngineId::Vllm, 24), 1, &read);
        let arguments: Vec<&str> = found.iter().map(|r| r.arguments[0].as_str()).collect();
        assert!(
            arguments.iter().any(|a| a.starts_with("--max-model-len ")),
            "{arguments:?}"
        );
        assert!(
            arguments.contains(&"--tensor-parallel-size 2"),
            "{arguments:?}"
        );
        // Weights of 15 GiB stay larger than a GPU of 12, whatever the cache is.
        let small = find_remedies(&model, &on(EngineId::Vllm, 12), 1, &read);
        assert!(
            small
                .iter()
                .all(|r| r.arguments[0].starts_with("--tensor-parallel-size")),
            "{small:?}"
        );
    }

    #[test]
    fn two_changes_are_tried_where_no_single_one_suffices() {
        let model = llama();
        let asked = on(EngineId::Vllm, 19);
        let reads = std::cell::Cell::new(0);
        let read = |d: &Deployment| {
            reads.set(reads.get() + 1);
            Reading::of(&model, d, &estimate(&model, d))
        };
        let found = find_remedies(&model, &asked, 1, &read);
        // An estimate takes half a millisecond.
        assert!(reads.get() < 300, "{}", reads.get());
        let (single, pairs): (Vec<_>, Vec<_>) = found.iter().partition(|r| r.arguments.len() == 1);
        assert_eq!(pairs.len(), MOST_PAIRS, "{found:?}");
        let gpus = single.iter().map(|r| r.deployment.gpus()).min();
        for remedy in &pairs {
            let with = &remedy.deployment;
            assert!(read(with).unwrap().surely_holds() >= 1.0, "{remedy:?}");
            assert!(Some(with.gpus()) < gpus, "{remedy:?}");
            // Each is needed.
            let length = Deployment {
                max_model_len: with.max_model_len,
                ..asked.clone()
            };
            let rest = Deployment {
                max_model_len: None,
                ..with.clone()
            };
            let alone = [length, rest].map(|d| read(&d).unwrap().surely_holds() >= 1.0);
            assert!(
                with.max_model_len.is_none() || alone == [false; 2],
                "{remedy:?}"
            );
        }
    }

    #[test]
    fn what_fits_by_the_estimate_alone_is_changed_as_little_as_makes_it_sure() {
        let model = llama();
        let read = |d: &Deployment| Reading::of(&model, d, &estimate(&model, d));
        let with = |share| Deployment {
            memory_fraction: Some(share),
            max_model_len: Some(8192),
            ..on(EngineId::Vllm, 24)
        };
        // The driver's context has no room beside this share.
        let over = with(0.99);
        assert_eq!(read(&over).unwrap().risk(1), Some(Risk::High));
        let found = find_remedies(&model, &over, 1, &read);
        let arguments: Vec<&str> = found.iter().map(|r| r.arguments[0].as_str()).collect();
        let share: f64 = arguments[0].split_once(' ').unwrap().1.parse().unwrap();
        assert!((0.90..0.99).contains(&share), "{arguments:?}");
        assert!(read(&with(share)).unwrap().risk(1) < Some(Risk::High));
        assert!(
            read(&with(share + 0.01)).unwrap().risk(1) == Some(Risk::High) || share >= MOST_SHARE
        );
    }

    #[test]
    fn a_smaller_share_still_holds_what_is_wanted() {
        let model = llama();
        let holds = |d: &Deployment| {
            Ok(Reading::of(&model, d, &estimate(&model, d))?
                .on
                .map_or(0.0, |on| on.concurrency))
        };
        let roomy = Deployment {
            memory_fraction: Some(0.92),
            max_model_len: Some(4096),
            ..on(EngineId::Vllm, 80)
        };
        let found = find_smaller_share(&model, &roomy, 8, &holds).unwrap();
        let share = found.deployment.memory_fraction.unwrap();
        assert!(share <= 0.87 && found.concurrency >= 8.0, "{found:?}");
        let tight = Deployment {
            memory_fraction: Some(share + 0.01),
            ..roomy
        };
        assert_eq!(find_smaller_share(&model, &tight, 8, &holds), None);
    }
}
