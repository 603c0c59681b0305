//! One estimate: every term of a deployment's memory, what is left for the cache, and whether it fits.

use super::{
    Band, Component, Deployment, EngineId, Mixer, Model, Term, Unknown, activation, bands,
    compute_buffer,
    encoder::{self, Encoder},
    engines::{self, Settings, llama_cpp, tgi, vllm},
    graphs,
    host_memory::{self, HostPart},
    kv, non_torch,
    pool::{self, Layout, Pool},
    pooling, shared_host,
    unmodelled::{self, Moves, Unmodelled},
    warnings, weights,
};
use super::{
    explain::{cache_formula, cache_inputs, graph_term, inputs},
    fits::{self, verdict},
};
use serde_json::json;

/// What a deployment will need, per GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The settings that it runs with.
    pub settings: Settings,
    /// Weights, cache, activation, CUDA graphs, the rest: in this order.
    pub terms: Vec<Term>,
    /// Bytes that one token adds on one GPU.
    pub kv_bytes_per_token: Result<u64, Unknown>,
    /// How the cache is laid out.
    pub layout: Result<Layout, Unknown>,
    /// The cache.
    pub pool: Result<Pool, Unknown>,
    /// Requests of the longest length that the cache holds at once.
    pub max_concurrency: Result<f64, Unknown>,
    /// Sum of the terms, bytes.
    pub total: Result<u64, Unknown>,
    /// What the engine lets itself take of the GPU, bytes.
    pub budget: Option<u64>,
    /// Outside the engine's share and in none of the terms, bytes: the driver's context, NCCL, a sampler's warm-up.
    pub outside: u64,
    /// Of these the sampler's warm-up, which comes after the pool was sized.
    pub warm_up: u64,
    /// Starts, and holds one request of the longest length; `None` where that is unknown.
    pub fits: Option<bool>,
    /// The engine refuses to start whatever the memory is.
    pub refused: bool,
    /// Why it fits, does not, or is unknown: a sentence.
    pub reason: String,
    /// The engine's CUDA graphs are taken of what its share of the GPU leaves, and their amount is not known.
    pub lacks_graphs: bool,
    /// What moves the terms and is not modelled.
    pub unmodelled: Vec<Unmodelled>,
    /// Memory of the host, all GPUs of a replica together.
    pub host: Vec<HostPart>,
    /// What to know about the figures, sentences.
    pub warnings: Vec<String>,
}

impl Estimate {
    /// The term of a component.
    pub fn term(&self, component: Component) -> Option<&Term> {
        self.terms.iter().find(|t| t.component == component)
    }

    /// The same, to be changed.
    pub(super) fn term_mut(&mut self, component: Component) -> Option<&mut Term> {
        self.terms.iter_mut().find(|t| t.component == component)
    }

    /// Bytes of a component; `None` where unknown.
    pub fn bytes(&self, component: Component) -> Option<u64> {
        self.term(component)?.bytes.as_ref().ok().copied()
    }

    /// Bytes of all terms but the cache; and the same at the upper ends of their bands.
    pub fn besides(&self) -> Option<(u64, u64)> {
        self.terms
            .iter()
            .filter(|t| t.component != Component::KvCache)
            // Graphs that the engine does not count in its share have a note of their own.
            .filter(|t| {
                let uncounted = self.lacks_graphs && t.bytes.is_err();
                t.component != Component::CudaGraphs || !uncounted
            })
            .try_fold((0u64, 0u64), |(sum, high), t| {
                let bytes = *t.bytes.as_ref().ok()?;
                Some((sum.saturating_add(bytes), high.saturating_add(t.upper()?)))
            })
    }

    /// Bytes of each GPU that are gone once the engine serves; `None` where a term is unknown.
    pub fn held(&self) -> Option<u64> {
        let (besides, _) = self.besides()?;
        let cache = self.bytes(Component::KvCache)?;
        Some(besides.saturating_add(cache).saturating_add(self.outside))
    }

    /// Bytes per GPU that one request of `tokens` takes of the cache.
    pub fn request(&self, tokens: u64) -> Option<u64> {
        Some(self.layout.as_ref().ok()?.bytes_of(tokens))
    }

    /// Bytes per GPU that no start goes without: each part at the lower end of its band; nothing for one of which
    /// nothing was measured, and for CUDA graphs, which some versions take beyond the budget.
    pub fn least(&self, deployment: &Deployment) -> u64 {
        let parts = self.terms.iter().map(|term| match &term.bytes {
            Err(_) => term.at_least.unwrap_or(0),
            Ok(bytes) => match (&term.band, term.component) {
                (Some(band), _) => band.low.min(*bytes),
                // Computed, not measured: exact but for what a loader rounds.
                (None, Component::Weights) => bytes - bytes / 20,
                (None, _) => 0,
            },
        });
        let needed = |term: &Term| match term.component {
            Component::Weights => true,
            Component::Activation | Component::NonTorch => deployment.engine == EngineId::Vllm,
            Component::KvCache | Component::CudaGraphs | Component::Draft => false,
        };
        let parts = self.terms.iter().zip(parts).filter(|(t, _)| needed(t));
        let shorter = self.unmodelled.iter().any(|u| {
            u.moves.lowers() && (u.terms.is_empty() || u.terms.contains(&Component::KvCache))
        });
        // vLLM refuses a length of which the cache does not hold one request; others shorten it.
        let request = match deployment.engine {
            // Not where less may be kept of it than is computed.
            _ if shorter => 0,
            EngineId::Vllm if !vllm::is_v0(deployment) => self.least_cache(deployment),
            _ => 0,
        };
        parts.fold(request, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    /// Bytes of the cache without which vLLM does not start: one request of the longest length, and a block for the
    /// states of each sequence.
    pub fn least_cache(&self, deployment: &Deployment) -> u64 {
        let longest = self.settings.max_model_len;
        let request = longest.and_then(|n| self.request(n)).unwrap_or(0);
        let block = self.layout.as_ref().map_or(0, |layout| layout.block_bytes);
        let states = fits::sequences_with_states(self, deployment).unwrap_or(0);
        request.max(states.saturating_mul(block))
    }

    /// Whether the least that it can need is more than the engine lets itself take. An engine that moves layers to the
    /// host's memory by itself is not kept from starting.
    pub fn cannot_start(&self, deployment: &Deployment) -> bool {
        let exceeds = |budget| self.least(deployment) > budget;
        !deployment.engine.takes_what_is_asked() && self.budget.is_some_and(exceeds)
    }

    /// Leaves open whether it fits, where the pool's interval holds both answers.
    fn doubt(&mut self, deployment: &Deployment) {
        let pool = self.term(Component::KvCache).and_then(|t| t.band.clone());
        let (Some(band), Some(_), Ok(_)) = (pool, self.settings.max_model_len, &self.layout) else {
            return;
        };
        let needed = self.least_cache(deployment);
        let open = match self.fits {
            Some(true) => band.low < needed,
            // Weights that exceed the share are no matter of the pool.
            Some(false) => band.high >= needed && self.bytes(Component::Weights) < self.budget,
            None => false,
        };
        if open {
            let other = match (self.fits, deployment.engine) {
                (Some(true), EngineId::Vllm) => "does not start",
                (Some(true), _) => "does not hold one",
                (_, EngineId::Vllm) => "starts",
                _ => "holds one",
            };
            self.fits = None;
            self.reason = format!(
                "{}; {} runs like it were measured, and their spread leaves open that it {other}",
                self.reason, band.cases
            );
        }
    }

    /// Less than a tenth of the budget is left beside one request where every part is at the upper end of its band.
    fn is_tight(&self, forecast: bool) -> bool {
        let counted = |t: &&Term| match t.component {
            Component::KvCache => false,
            Component::CudaGraphs => forecast,
            _ => true,
        };
        let request = self.settings.max_model_len.and_then(|n| self.request(n));
        let parts = self.terms.iter().filter(counted).filter_map(Term::upper);
        let most = parts.fold(request.unwrap_or(0), u64::saturating_add);
        self.budget
            .is_some_and(|budget| most > budget - budget / 10)
    }
}

/// What cannot be served at all, whatever the memory is.
///
/// # Errors
/// What is wrong with the deployment for this model.
pub fn check(model: &Model, deployment: &Deployment) -> Result<(), Unknown> {
    let tp = deployment.tp;
    if tp == 0 || deployment.pp == 0 || deployment.ep == 0 || deployment.dcp == 0 {
        return Err(Unknown::new("a parallel size of 0 is invalid"));
    }
    let splits = !deployment.engine.takes_what_is_asked();
    if splits && tp > 1 && model.heads > 0 && model.heads % tp != 0 {
        return Err(Unknown::new(format!(
            "tensor parallelism of {tp} does not divide the {} attention heads",
            model.heads
        ))
        .hint("give a --tp that divides them"));
    }
    let odd = model.mixers.iter().find_map(|m| match *m {
        Mixer::Attention { kv_heads, .. } => {
            let even = kv_heads == 0 || kv_heads % tp == 0 || tp % kv_heads == 0;
            (!even).then_some(kv_heads)
        }
        _ => None,
    });
    if let Some(kv_heads) = odd.filter(|_| splits && tp > 1) {
        return Err(Unknown::new(format!(
            "tensor parallelism of {tp} neither divides the {kv_heads} key and value heads nor is a multiple of them"
        ))
        .hint("choose a --tp that divides it"));
    }
    if tp % deployment.dcp != 0 {
        return Err(Unknown::new(format!(
            "decode context parallelism of {} does not divide the tensor parallelism of {tp}",
            deployment.dcp
        ))
        .hint("give a --dcp that divides --tp"));
    }
    // vLLM 0.11, config/model.py, `verify_with_parallel_config`: ranks that hold the same heads share their tokens.
    let shared_heads = model.mixers.iter().find_map(|m| match *m {
        Mixer::Attention { kv_heads, .. } if kv_heads > 0 => Some(kv_heads),
        _ => None,
    });
    if let Some(kv_heads) = shared_heads.filter(|_| deployment.dcp > 1) {
        let most = tp / kv_heads;
        let queries = model.heads / kv_heads;
        if tp <= kv_heads || deployment.dcp > most || queries % deployment.dcp != 0 {
            return Err(Unknown::new(format!(
                "decode context parallelism of {} needs as many ranks for each of the {kv_heads} key and value heads, and --tp {tp} has {}",
                deployment.dcp,
                most.max(1)
            ))
            .hint("raise --tp, or leave --dcp out"));
        }
    }
    let spread = deployment.expert_ranks();
    if spread % deployment.ep != 0 {
        return Err(Unknown::new(format!(
            "expert parallelism of {} does not divide the {spread} GPUs of a stage",
            deployment.ep
        )));
    }
    if deployment.pp as usize > model.mixers.len().max(1) {
        return Err(Unknown::new(format!(
            "pipeline parallelism of {} is more than the {} layers",
            deployment.pp,
            model.mixers.len()
        )));
    }
    if let (Some(asked), Some(most)) = (deployment.max_model_len, model.max_positions) {
        if asked > most.saturating_mul(64) {
            return Err(Unknown::new(format!(
                "{asked} tokens are far beyond the {most} positions of the model"
            )));
        }
    }
    Ok(())
}

/// Estimates a deployment. Never fails: an unknown term holds the reason.
pub fn estimate(model: &Model, deployment: &Deployment) -> Estimate {
    with_weights(model, deployment, weights::of(model, deployment))
}

/// The same with weights that are known better than from the configuration: from the files' headers.
///
/// Where the release is not named, the intervals hold the answers of the oldest and the newest that it may be.
pub fn with_weights(
    model: &Model,
    deployment: &Deployment,
    loaded: Result<weights::Weights, Unknown>,
) -> Estimate {
    let mut estimate = of_release(model, deployment, loaded.clone());
    for version in deployment.versions.into_iter().flatten() {
        let other = Deployment {
            version: Some(version),
            ..deployment.clone()
        };
        widen(&mut estimate, &of_release(model, &other, loaded.clone()));
    }
    estimate
}

/// Takes the answers of another release into the intervals; the verdict is unknown where they differ.
fn widen(estimate: &mut Estimate, other: &Estimate) {
    for (term, theirs) in estimate.terms.iter_mut().zip(&other.terms) {
        let (Some(band), Some(own)) = (&mut term.band, &theirs.band) else {
            term.band = None;
            continue;
        };
        band.low = band.low.min(own.low);
        band.high = band.high.max(own.high);
        band.cases = band.cases.min(own.cases);
    }
    if estimate.fits != other.fits {
        estimate.fits = None;
        estimate.reason = format!(
            "the version names no release, and they differ: {}; {}",
            estimate.reason, other.reason
        );
    }
}

/// The estimate by the rules of one release.
fn of_release(
    model: &Model,
    deployment: &Deployment,
    loaded: Result<weights::Weights, Unknown>,
) -> Estimate {
    let settings = engines::settings(model, deployment);
    if let Err(wrong) = check(model, deployment) {
        return impossible(settings, wrong);
    }
    let loaded = loaded.map(|w| host_memory::keep(w, deployment));
    let weights = loaded.as_ref().map(|w| w.bytes).map_err(Clone::clone);
    let activation = activation::of(model, deployment, &settings);
    let peak = match (activation.encoder, model.vocab) {
        (Encoder::Undescribed, _) => Err(no_encoder(model)),
        (_, 0) => Err(no_vocabulary()),
        _ => Ok(activation.peak()),
    };
    let graphs = graphs::of(model, deployment, &settings);
    let mut rest = non_torch::of(deployment);
    if let Some(own) = &deployment.own.non_torch {
        rest.counted = own.bytes;
    }
    let cached = pool::of(model, deployment, &settings);
    let (cache, layout) = match cached {
        Ok((cache, layout)) => (Some(cache), Ok(layout)),
        Err(why) => (kv::of(model, deployment).ok(), Err(why)),
    };
    let budget = budget(model, deployment, &settings);
    let asked = asked(deployment, &settings, layout.as_ref().ok(), cache.as_ref());
    // What takes the cache that is asked for takes it beside weights of any size.
    let counted = match &weights {
        Err(_) if deployment.engine.takes_what_is_asked() => Ok(0),
        counted => counted.clone(),
    };
    let for_cache: Result<i128, Unknown> = counted.and_then(|w| {
        for_cache(
            model,
            deployment,
            &settings,
            Parts {
                weights: w,
                first: (layout.as_ref()).map_or(0, |l| l.bytes_of(settings.batched_tokens)),
                activation: &peak,
                forecast: graphs.map_or(0, |g| g.forecast),
                rest,
            },
            budget,
            asked,
        )
    });
    // SGLang keeps states of sequences in a pool beside that of keys and values.
    let (for_cache, states) = match (for_cache, &cache) {
        (Ok(left), Some(cache)) if deployment.engine == EngineId::Sglang => {
            let states = engines::sglang::states(deployment, cache.bytes_per_sequence(), left);
            (Ok(left - states), u64::try_from(states).unwrap_or(0))
        }
        (left, _) => (left, 0),
    };
    // SGLang's pool holds as many tokens as were asked for, where there is room for them.
    let most = match (&layout, deployment.pool_tokens) {
        (Ok(layout), Some(tokens)) => Some(layout.bytes_of(tokens)),
        _ => None,
    };
    let for_cache = for_cache.map(|left| left.min(most.map_or(left, i128::from)));
    let pool = match (&for_cache, &layout) {
        (Ok(bytes), Ok(layout)) => Ok(layout.pool(
            u64::try_from((*bytes).max(0)).unwrap_or(u64::MAX),
            settings.max_model_len,
        )),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    let max_concurrency = match (&pool, &layout, settings.max_model_len) {
        (Ok(pool), Ok(layout), Some(longest)) => Ok(layout.concurrency(pool, longest)),
        (Ok(_), Ok(_), None) => {
            Err(Unknown::new("the longest length is not known").hint("give --max-model-len"))
        }
        (Err(why), ..) | (_, Err(why), _) => Err(why.clone()),
    };

    let keeps_nothing = layout.as_ref().is_ok_and(Layout::keeps_nothing);
    let pool_bytes = pool.as_ref().map(|p| p.bytes).map_err(Clone::clone);
    let mut terms = vec![
        match &loaded {
            Ok(loaded) => loaded.term(),
            Err(why) => Term::of(Component::Weights, Err(why.clone())),
        },
        Term {
            formula: if keeps_nothing {
                "none: attention in both directions keeps nothing of a token".into()
            } else {
                cache_formula(deployment)
            },
            inputs: cache_inputs(
                &settings,
                cache.as_ref(),
                layout.as_ref().ok(),
                pool.as_ref().ok(),
            ),
            band: keeps_nothing.then(|| {
                let source = "vLLM makes no cache for attention in both directions";
                Band::new(0, 0, 0, source)
            }),
            ..Term::of(Component::KvCache, pool_bytes.clone())
        },
        activation_term(model, &settings, &activation, peak),
        graph_term(graphs.as_ref(), deployment),
        Term {
            formula: "measured: by GPU, tensor parallelism and version".into(),
            inputs: inputs([
                ("runs", json!(rest.runs)),
                ("taken_before_the_engine_looks", json!(rest.before)),
            ]),
            ..Term::of(Component::NonTorch, Ok(rest.counted))
        },
    ];
    deployment.own.put(&mut terms);
    let forecast = unmodelled::forecasts(deployment);
    let counted = forecast && graphs.is_some_and(|g| g.forecast > 0);
    bands::put(
        &mut terms,
        deployment,
        &settings,
        &activation,
        rest,
        counted,
    );
    let of_pool = terms.iter_mut().find(|t| t.component == Component::KvCache);
    if let (Some(band), Some(most)) = (of_pool.and_then(|t| t.band.as_mut()), most) {
        band.high = band.high.min(most);
    }
    // What an engine makes beside its weights without counting it (LoRA's slots) is there all the same.
    let beside = loaded
        .as_ref()
        .map_or(0, |w| w.beside)
        .saturating_add(states);
    let total = terms.iter().try_fold(beside, |sum, t| {
        t.bytes.clone().map(|b| sum.saturating_add(b))
    });
    let outside = rest.before.saturating_add(activation.warm_up);
    let from_files = loaded.as_ref().is_ok_and(|w| w.from_files);
    let unmodelled = unmodelled::of(model, deployment, &settings, &activation, from_files);
    let lacks_graphs = lacks_graphs(deployment, &settings);
    let warnings = warnings::of(
        model,
        deployment,
        &settings,
        loaded.as_ref().ok(),
        &activation,
    );
    let mut estimate = Estimate {
        kv_bytes_per_token: cache
            .as_ref()
            .map(kv::Cache::bytes_per_token)
            .ok_or_else(|| match &layout {
                Err(why) => why.clone(),
                Ok(_) => Unknown::new("the cache of the model is not known"),
            }),
        settings,
        terms,
        layout,
        pool,
        max_concurrency,
        total,
        budget,
        outside,
        warm_up: activation.warm_up,
        fits: None,
        refused: false,
        reason: String::new(),
        lacks_graphs,
        unmodelled,
        host: host_memory::of(deployment, loaded.as_ref().ok(), pool_bytes.ok()),
        warnings,
    };
    (estimate.fits, estimate.reason) = verdict(&estimate, deployment, &for_cache, rest.before);
    let margin = llama_cpp::fit_margin(deployment, estimate.total.as_ref().ok(), budget);
    estimate.warnings.extend(margin);
    // A GPU of an unknown kind has the bands of others.
    let foreign = deployment.gpu.is_some()
        && engines::gpu_model(deployment).is_none()
        && !deployment.on_cpu
        && deployment.kv_cache_memory.is_none();
    if foreign && estimate.fits == Some(true) && estimate.is_tight(forecast) {
        let name = "a GPU of unknown kind, with less than a tenth to spare";
        let foreign = Unmodelled::new(name, Moves::Up, unmodelled::RUNNING);
        estimate.unmodelled.push(foreign);
    }
    unmodelled::apply(&mut estimate, deployment, forecast);
    if bands::is_extrapolated(deployment) {
        estimate.doubt(deployment);
    }
    shared_host::judge_rest(&mut estimate, deployment);
    let mut doubtful = deployment.doubtful_flags.iter();
    if estimate.fits == Some(true) {
        if let Some(flag) = doubtful.next() {
            estimate.fits = None;
            estimate.reason = format!("{flag}; --engine-version names another release");
        }
    }
    estimate.warnings.extend(doubtful.cloned());
    if let Some(why) = fits::refusal(model, deployment) {
        estimate.fits = Some(false);
        estimate.refused = true;
        estimate.max_concurrency = Ok(0.0);
        estimate.reason = why;
    }
    let sentences = estimate.unmodelled.iter().map(Unmodelled::sentence);
    estimate.warnings.extend(sentences);
    let host = estimate.host.iter().map(HostPart::sentence);
    estimate.warnings.extend(host);
    estimate
}

/// Whether graphs are taken that are in none of the terms.
fn lacks_graphs(deployment: &Deployment, settings: &Settings) -> bool {
    let captures = matches!(
        deployment.engine,
        EngineId::Sglang | EngineId::Tgi | EngineId::TensorRtLlm
    );
    captures && !settings.eager && deployment.own.cuda_graphs.is_none()
}

fn activation_term(
    model: &Model,
    settings: &Settings,
    activation: &activation::Activation,
    peak: Result<u64, Unknown>,
) -> Term {
    Term {
        formula: match (
            activation.encoding > 0,
            activation.compiling > activation.warm_peak(),
        ) {
            (_, true) => "compiling".into(),
            (true, _) => "max(max(forward, sampler) + kept, encoding)".into(),
            _ => "max(forward, sampler) + kept".into(),
        },
        inputs: inputs([
            ("forward", json!(activation.forward)),
            ("sampler", json!(activation.sampler)),
            ("kept", json!(activation.kept)),
            ("encoding", json!(activation.encoding)),
            ("compiling", json!(activation.compiling)),
            ("sampler_kind", json!(activation.kind)),
            ("max_num_batched_tokens", json!(settings.batched_tokens)),
            ("max_num_seqs", json!(settings.sequences)),
            ("vocab", json!(model.vocab)),
        ]),
        band: activation.range.map(|range| match activation.encoder {
            Encoder::Counted => {
                bands::of_encoder(range, encoder::is_unmeasured(encoder::kind(model)))
            }
            _ if activation.compiling > 0 => bands::of_compiling(range),
            _ => compute_buffer::band(range),
        }),
        ..Term::of(Component::Activation, peak)
    }
}

/// An estimate of what cannot be served.
fn impossible(settings: Settings, wrong: Unknown) -> Estimate {
    let term = |component: &Component| Term::of(*component, Err(wrong.clone()));
    Estimate {
        settings,
        terms: unmodelled::ALL.iter().map(term).collect(),
        kv_bytes_per_token: Err(wrong.clone()),
        layout: Err(wrong.clone()),
        pool: Err(wrong.clone()),
        max_concurrency: Err(wrong.clone()),
        total: Err(wrong.clone()),
        budget: None,
        outside: 0,
        warm_up: 0,
        fits: None,
        refused: false,
        reason: wrong.what.clone(),
        lacks_graphs: false,
        unmodelled: Vec::new(),
        host: Vec::new(),
        warnings: wrong.hint.iter().cloned().collect(),
    }
}

/// A configuration that leaves out an encoder that all of its kind have: neither its weights nor its peak are known.
fn no_encoder(model: &Model) -> Unknown {
    let kind: String = encoder::kind(model).chars().take(40).collect();
    Unknown::new(format!(
        "the configuration does not describe the encoder of images that a `{kind}` has"
    ))
    .hint("give the model's whole config.json")
}

/// The sampler's part, often the largest, is of the vocabulary.
fn no_vocabulary() -> Unknown {
    Unknown::new("the vocabulary is not known, and the sampler works on all of it")
        .hint("give --vocab-size")
}

/// What is known when the rest is asked for.
#[derive(Clone, Copy)]
struct Parts<'a> {
    weights: u64,
    /// The cache of one full step.
    first: u64,
    activation: &'a Result<u64, Unknown>,
    forecast: u64,
    rest: non_torch::NonTorch,
}

/// What the engine lets itself take of the GPU; for TensorRT-LLM and the engines that take what is asked for, all.
fn budget(model: &Model, deployment: &Deployment, settings: &Settings) -> Option<u64> {
    let gpu = deployment.gpu.as_ref()?;
    Some(match deployment.engine {
        // Its share bounds the cache alone, and it makes none.
        _ if pooling::keeps_nothing(model, deployment) => gpu.total.saturating_sub(gpu.in_use),
        EngineId::Tgi if tgi::is_old(deployment) => tgi::share(deployment, gpu.total),
        EngineId::Vllm | EngineId::Tgi | EngineId::Sglang => {
            (gpu.total as f64 * settings.fraction) as u64
        }
        _ => gpu.total.saturating_sub(gpu.in_use),
    })
}

/// The cache of the engines that take what is asked for: sequences of the longest length.
fn asked(
    deployment: &Deployment,
    settings: &Settings,
    layout: Option<&Layout>,
    cache: Option<&kv::Cache>,
) -> Option<u64> {
    let longest = settings.max_model_len?;
    // A model of states alone has no layout.
    let bytes = || Some(layout.map_or(cache?.bytes_per_sequence(), |l| l.bytes_of(longest)));
    match deployment.engine {
        // `-c` is the cells of all sequences together, Ollama's context those of one; windows keep what they reach.
        EngineId::LlamaCpp => Some(bytes()?.saturating_mul(llama_cpp::whole_requests(deployment))),
        EngineId::Transformers => Some(bytes()?.saturating_mul(settings.sequences)),
        _ => None,
    }
}

/// Bytes for the cache by the engine's own rule; below 0 where there is no room.
fn for_cache(
    model: &Model,
    deployment: &Deployment,
    settings: &Settings,
    parts: Parts<'_>,
    budget: Option<u64>,
    asked: Option<u64>,
) -> Result<i128, Unknown> {
    if pooling::keeps_nothing(model, deployment) {
        return Ok(0);
    }
    if let Some(bytes) = deployment.kv_cache_memory {
        return Ok(i128::from(bytes));
    }
    if deployment.engine.takes_what_is_asked() {
        return asked.map(i128::from).ok_or_else(|| {
            Unknown::new("the longest length is not known").hint("give --max-model-len")
        });
    }
    let (Some(gpu), Some(budget)) = (&deployment.gpu, budget) else {
        return Err(Unknown::new("the GPU is not known").hint("give --gpu"));
    };
    let counted = parts.rest.counted;
    let activation = parts.activation.as_ref().map_or(0, |bytes| *bytes);
    let share = |bytes: i128| (bytes as f64 * settings.fraction) as i128;
    let whole = |bytes: u64| i128::from(bytes);
    let free = gpu.total.saturating_sub(gpu.in_use);
    let taken = whole(parts.weights) + whole(activation) + whole(counted);
    let left = match deployment.engine {
        // Part of the free memory before the weights.
        EngineId::Sglang => {
            let images = engines::sglang::image_cache(model, deployment);
            share(whole(free.saturating_sub(counted))) - whole(parts.weights) - whole(images)
        }
        // Part of what is free after a prefill, besides the cache that the prefill had.
        EngineId::Tgi if tgi::is_old(deployment) => {
            tgi::left_by_warm_up(deployment, gpu.total, gpu.in_use, taken, parts.first)
        }
        EngineId::Tgi => share(whole(free)) - taken,
        // Part of what the engine, its activations and its buffers leave free.
        EngineId::TensorRtLlm => share(whole(gpu.total) - whole(gpu.in_use) - taken),
        _ => {
            let besides = match vllm::rule(deployment) {
                vllm::Rule::SnapshotAndGraphs => parts.forecast,
                vllm::Rule::Absolute | vllm::Rule::FreeMemory => gpu.in_use,
                vllm::Rule::Increase | vllm::Rule::Snapshot => 0,
            };
            whole(budget) - taken - whole(besides)
        }
    };
    // SGLang does not count it. Where even without it there is no room, that much is sure.
    match parts.activation {
        Err(why) if deployment.engine != EngineId::Sglang && left > 0 => Err(why.clone()),
        _ => Ok(left),
    }
}
