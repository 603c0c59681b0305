//! What the flags of `estimate`, or an engine's command line, ask about: a model and a deployment.

use super::super::calibrate;
use super::{gpu, model};
use crate::capture::ContainerFacts;
use crate::cli::EstimateArgs;
use crate::console::Console;
use crate::engine;
use crate::error::Failure;
use crate::estimate::{
    Deployment, EngineId, Estimate, Lora, Model, Unknown, case, check, draft,
    format::contradiction, headers::Headers, own_runs::OwnRuns, settings::IllegalValue, unmodelled,
    weights, with_weights,
};
use crate::report::layout::count;
use crate::units::{Bytes, ParseBytesError};

/// What is asked about.
pub struct Asked {
    /// The model.
    pub model: Model,
    /// What its files hold, where they lie here.
    headers: Option<Headers>,
    /// The draft model.
    draft: Option<Model>,
    /// How it is to be served.
    pub deployment: Deployment,
    /// Requests of the longest length at once.
    pub concurrency: u64,
    /// Sentences.
    pub warnings: Vec<String>,
}

impl Asked {
    /// What the flags mean.
    ///
    /// # Errors
    /// A model, an engine or a GPU that is not known, or a deployment that cannot be.
    pub fn of(console: &Console, args: &EstimateArgs) -> Result<Asked, Failure> {
        let words = Words::read(args)?;
        let mut deployment = words.deployment;
        let mut warnings = Vec::new();
        flags(args, &mut deployment, &mut warnings)?;
        let name = (args.model_word.as_ref())
            .or(args.model.as_ref())
            .or(words.model.as_ref());
        let draft = match args.draft_model.as_ref().or(words.draft.as_ref()) {
            Some(name) => Some(model::find(name, args.online)?.model),
            None => None,
        };
        let loaded = model::of(args, name.map(String::as_str))?;
        warnings.extend(loaded.warnings);
        let model = loaded.model;
        if let Some(told) = &deployment.quantization {
            if let Some(own) = contradiction::of(&model, deployment.engine, told) {
                return Err(Failure::usage(format!(
                "`--quantization {told}` contradicts the model's own configuration, which says `{own}`: the engine refuses that"
            ))
            .hint("leave --quantization out: what the configuration says is computed with"));
            }
        }
        if let Some(draft) = &draft {
            if draft.vocab.min(model.vocab) > 0 && draft.vocab != model.vocab {
                warnings.push(format!(
                "the draft model has a vocabulary of {} entries and the model one of {}: engines want the same of both",
                count(draft.vocab),
                count(model.vocab)
            ));
            }
        }
        warnings.extend(model.warnings.iter().cloned());
        let (gpu, notes) = gpu::of(args, deployment.gpus())?;
        warnings.extend(notes);
        deployment.gpu = gpu;
        check(&model, &deployment).map_err(|why| {
            let failure = Failure::usage(why.what);
            let layers = model.mixers.len().max(1);
            let hint = why.hint.or_else(|| {
                (deployment.pp as usize > layers)
                    .then(|| format!("--pipeline-parallel-size is {layers} at most here"))
            });
            hint.into_iter().fold(failure, Failure::hint)
        })?;
        if let (Some(asked), Some(most)) = (deployment.max_model_len, model.max_positions) {
            if asked > most {
                warnings.push(format!(
                "{asked} tokens are more than the {most} positions that the model's configuration names: an engine refuses them unless told otherwise"
            ));
            }
        }
        if !args.no_calibration {
            if let Some(learned) = calibrate::learned(console, args.calibration.as_deref())? {
                deployment.own = OwnRuns::of(&learned, &model, &deployment);
            }
        }
        let concurrency = args.concurrency.first().copied().unwrap_or(1);
        Ok(Asked {
            model,
            headers: loaded.headers,
            draft,
            deployment,
            concurrency,
            warnings,
        })
    }

    /// The estimate of a deployment of this model.
    ///
    /// # Errors
    /// What the draft model takes is not known.
    pub fn estimated(&self, deployment: &Deployment) -> Result<Estimate, Unknown> {
        let loaded = weights::best(&self.model, self.headers.as_ref(), deployment);
        match &self.draft {
            Some(draft) => draft::beside(&self.model, draft, deployment, loaded),
            None => Ok(with_weights(&self.model, deployment, loaded)),
        }
    }

    /// The same, told as a failure.
    ///
    /// # Errors
    /// As [`Asked::estimated`].
    pub fn estimate(&self, deployment: &Deployment) -> Result<Estimate, Failure> {
        self.estimated(deployment).map_err(super::unknown)
    }
}

/// What the engine's own command line says.
struct Words {
    deployment: Deployment,
    model: Option<String>,
    draft: Option<String>,
}

impl Words {
    fn read(args: &EstimateArgs) -> Result<Words, Failure> {
        if args.words.is_empty() {
            return Ok(Words {
                deployment: Deployment::of_engine(EngineId::from_name(&args.engine)?)
                    .map_err(usage)?,
                model: None,
                draft: None,
            });
        }
        let facts = ContainerFacts {
            argv: args.words.clone(),
            ..ContainerFacts::default()
        };
        let Some((own, seen)) = engine::recognise(&facts).filter(|(_, seen)| seen.serving) else {
            return Err(
                Failure::usage("the command after -- starts no engine that is known")
                    .hint("as in `plimsoll estimate --gpu H100 -- vllm serve Qwen/Qwen3-8B -tp 2`"),
            );
        };
        log::debug!("{}: {}", own.name(), seen.evidence);
        let told = own.settings(&facts);
        let (deployment, draft) =
            Deployment::from_settings(own, &told.values, &told.values, IllegalValue::IsRefused)
                .map_err(usage)?;
        Ok(Words {
            deployment,
            model: told.model,
            draft,
        })
    }
}

/// What is asked for cannot be.
fn usage(why: Unknown) -> Failure {
    let failure = Failure::usage(why.what);
    why.hint.into_iter().fold(failure, Failure::hint)
}

/// Puts the flags in; they win over the engine's own command line.
fn flags(
    args: &EstimateArgs,
    d: &mut Deployment,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    if let Some(said) = &args.engine_version {
        let (version, exact) = case::version_of(said, d.engine);
        d.version = version;
        if !exact {
            warnings.push(match version {
                Some(v) => format!(
                    "`{said}` is no exact version: the rules of {}.{}.{} are used",
                    v.major, v.minor, v.patch
                ),
                None => {
                    d.unmodelled.push(unmodelled::unclear_version(said));
                    format!("`{said}` is no version that is known: the newest rules are used")
                }
            });
        }
    }
    d.tp = args.tensor_parallel_size.unwrap_or(d.tp);
    d.pp = args.pipeline_parallel_size.unwrap_or(d.pp);
    d.dp = args.data_parallel_size.unwrap_or(d.dp);
    d.dcp = args.decode_context_parallel_size.unwrap_or(d.dcp);
    if args.enable_expert_parallel || d.ep > 1 {
        d.ep = d.tp.saturating_mul(d.dp);
    }
    if d.gpus() > 1 << 20 {
        return Err(Failure::usage("so many GPUs are not to be had")
            .hint("check the parallel sizes: their product is the number of GPUs"));
    }
    let word = |text: &Option<String>| text.clone().filter(|t| t != "auto");
    d.dtype = word(&args.dtype).or(d.dtype.take());
    d.quantization = word(&args.quantization).or(d.quantization.take());
    d.kv_dtype = word(&args.kv_cache_dtype).or(d.kv_dtype.take());
    d.max_model_len = args.max_model_len.or(d.max_model_len);
    d.memory_fraction = args.gpu_memory_utilization.or(d.memory_fraction);
    d.max_batched_tokens = args.max_num_batched_tokens.or(d.max_batched_tokens);
    d.max_seqs = args.max_num_seqs.or(d.max_seqs);
    d.block_size = args.block_size.or(d.block_size);
    d.eager = args.enforce_eager.then_some(true).or(d.eager);
    if let Some(rank) = args.max_lora_rank {
        d.lora = Some(Lora {
            rank,
            slots: args.max_loras.unwrap_or(1),
        });
    }
    if let Some(text) = &args.kv_cache_memory_bytes {
        let bytes: Bytes = text.parse().map_err(|e: ParseBytesError| {
            Failure::usage(format!("--kv-cache-memory-bytes: {e}"))
        })?;
        d.kv_cache_memory = Some(bytes.0);
    }
    if d.engine == EngineId::Transformers && d.max_seqs.is_none() {
        d.max_seqs = args.concurrency.first().copied();
    }
    Ok(())
}
