//! The model and the deployment that the flags of `estimate` and the engine's command line describe.

use super::super::calibrate;
use super::sharing::warn_of_others;
use super::{gpu, launched, model};
use crate::cli::EstimateArgs;
use crate::console::Console;
use crate::engine::settings::SETTINGS;
use crate::error::Failure;
use crate::estimate::engines::llama_cpp;
use crate::estimate::question::{self, What};
use crate::estimate::{
    Deployment, EngineId, Estimate, Model, Unknown, Unmodelled, check, draft, engines::tgi,
    format::contradiction, headers::Headers, kv, own_runs::OwnRuns, refused_length,
    settings::IllegalValue, unmodelled, weights, with_weights,
};
use crate::launch::{Launch, recipe};
use crate::models::relatives::{has_usual_tag, keeps_format, named_quantization};
use crate::preset::GpuRequest;
use crate::report::layout::grouped_count;
use std::collections::BTreeMap;
use std::path::Path;

/// More GPUs than any cluster has: a larger product of the parallel sizes is a typing error.
const MOST_GPUS: u64 = 1 << 20;

/// What a tag of Ollama's library holds where it names no format (llama3.1, qwen3, gemma3 and mistral of 2025 and 2026;
/// those before 2024 have Q4_0), and which file of a repository llama.cpp takes where none is named (common/arg.cpp, `-hf`).
const USUAL_FORMAT: &str = "Q4_K_M";

/// The least context that it shortens to, tokens (`--fit-ctx`).
const LEAST_FITTED: u64 = 4096;

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
    /// The longest request, tokens, where the engine fits it to the memory.
    pub fitted_length: Option<u64>,
}

impl Asked {
    /// What the flags mean.
    ///
    /// # Errors
    /// A model, an engine or a GPU that is not known, or a deployment that cannot be.
    pub fn of(console: &Console, args: &EstimateArgs) -> Result<Asked, Failure> {
        let launches = launched::read_launches(args)?;
        let chosen = launched::choose(&launches, args)?;
        let mut asked = Asked::of_launch(console, args, chosen)?;
        if let Some(chosen) = chosen {
            asked.warnings.extend(warn_of_others(&launches, chosen));
        }
        Ok(asked)
    }

    /// The same of this one of all that the flags name.
    ///
    /// # Errors
    /// As [`Asked::of`].
    pub fn of_launch(
        console: &Console,
        args: &EstimateArgs,
        launch: Option<&Launch>,
    ) -> Result<Asked, Failure> {
        let words = Words::read(args, launch)?;
        let mut deployment = words.deployment;
        let mut warnings = words.warnings;
        let name = (args.model_word.as_ref())
            .or(args.model.as_ref())
            .or(words.model.as_ref());
        let lacks_file = |name: &&String| {
            let small = name.to_ascii_lowercase();
            matches!(deployment.named(), EngineId::LlamaCpp | EngineId::Ollama)
                && deployment.quantization.is_none()
                && small.ends_with("-gguf")
                && !keeps_format(name)
                && named_quantization(name).is_none()
                && !Path::new(name.as_str()).exists()
        };
        let tagged = name.filter(lacks_file).map(|name| {
            let format = words.file.as_deref().and_then(named_quantization);
            let format = format.unwrap_or_else(|| {
                warnings.push(format!(
                    "no file of `{name}` is named: counted as {USUAL_FORMAT}, which {} takes where it is there",
                    deployment.named().shown()
                ));
                USUAL_FORMAT.to_owned()
            });
            format!("{name}:{format}")
        });
        // Ollama's deepseek-r1 is not the model of that name.
        let usual = || {
            let is_usual = |name: &&String| {
                deployment.named() == EngineId::Ollama
                    && has_usual_tag(name)
                    && !Path::new(name.as_str()).exists()
            };
            name.filter(is_usual).map(|name| format!("{name}:latest"))
        };
        let tagged = tagged.or_else(usual);
        let name = tagged.as_ref().or(name);
        let draft = match args.draft_model.as_ref().or(words.draft.as_ref()) {
            Some(name) => Some(model::find(name, args.online)?.model),
            None => None,
        };
        let loaded = model::of(args, name.map(String::as_str)).map_err(|why| {
            match (&words.flag_file, name, launch) {
                (Some(file), None, _) => why.hint(format!("`--config {file}` cannot be read here")),
                (None, None, Some(_)) => {
                    why.hint("or in front of the line: `plimsoll estimate MODEL --gpu H100 -- …`")
                }
                _ => why,
            }
        })?;
        warnings.extend(loaded.warnings);
        let model = loaded.model;
        let format_is_named = loaded.quantization.is_some();
        let of_nvidia = name.is_some_and(|n| n.starts_with("nvidia/"));
        let follows = kv::follows_checkpoint(&model, &deployment);
        if format_is_named && of_nvidia && follows && deployment.kv_dtype.is_none() {
            warnings.push(format!(
                "checkpoints of nvidia/ often name 8 bits for the cache, which {} follows: the pool then holds twice the tokens, as with --kv-cache-dtype fp8",
                deployment.engine.shown()
            ));
        }
        // Where the flag names several formats, the copy's name decides.
        if let Some(named) = &loaded.quantization {
            deployment.quantization = deployment
                .quantization
                .filter(|asked| !contradiction::reads_named(asked, named));
        }
        // The model that is named in front is the geometry of the file that the line names.
        let of_file = || {
            let is_llama = deployment.named() == EngineId::LlamaCpp;
            let file = words.file.as_deref().or(words.model.as_deref());
            named_quantization(file.filter(|_| is_llama)?)
        };
        let named = (loaded.quantization.clone())
            .or_else(of_file)
            .filter(|_| deployment.quantization.is_none());
        if let Some(asked) = &deployment.quantization {
            if let Some(own) = contradiction::of(&model, deployment.engine, asked) {
                return Err(Failure::usage(format!(
                "`--quantization {asked}` contradicts the model's own configuration (`{own}`): the engine refuses that"
            ))
            .hint("remove --quantization: the configuration's format is used"));
            }
            if launch.is_some()
                && !format_is_named
                && contradiction::lacks_format(&model, deployment.engine, asked)
            {
                let problem = format!(
                    "`--quantization {asked}` needs weights in that format, and this model has none: vLLM refuses to start"
                );
                return Err(Failure::usage(problem)
                    .hint("name a quantized copy of the model, or remove --quantization"));
            }
        }
        if named.is_some() {
            deployment.quantization = named;
        }
        // GGUF has no 8-bit floats: what is stored so is converted. gpt-oss keeps its MXFP4.
        let says_format = deployment.quantization.is_some()
            || loaded.headers.is_some()
            || model.quant_method() == Some("mxfp4");
        if deployment.named() == EngineId::Ollama && !says_format {
            deployment.quantization = Some(USUAL_FORMAT.to_owned());
            warnings.push(format!(
                "no format is named: counted as {USUAL_FORMAT}, as most of Ollama's default tags are; --quantization F16 counts another"
            ));
        }
        if let Some(draft) = &draft {
            if draft.vocab.min(model.vocab) > 0 && draft.vocab != model.vocab {
                warnings.push(format!(
                "the draft model has a vocabulary of {} entries and the model one of {}: engines want the same of both",
                grouped_count(draft.vocab),
                grouped_count(model.vocab)
            ));
            }
        }
        warnings.extend(model.warnings.iter().cloned());
        let (gpu, notes) = gpu::of(args, deployment.gpus(), &words.gpus)?;
        warnings.extend(notes);
        deployment.gpu = gpu;
        check(&model, &deployment).map_err(|mut why| {
            let layers = model.mixers.len().max(1);
            if deployment.pp as usize > layers {
                let hint = || format!("--pipeline-parallel-size is {layers} at most here");
                why.hint.get_or_insert_with(hint);
            }
            usage(why)
        })?;
        let is_refused = refused_length(&model, &deployment).is_some();
        let most = model.longest().or(model.max_positions);
        if let (Some(asked), Some(most), false) = (deployment.max_model_len, most, is_refused) {
            let each = llama_cpp::slot_length(&deployment, asked);
            if each > most {
                let then = match deployment.named() {
                    EngineId::Ollama => "Ollama takes the model's",
                    EngineId::LlamaCpp => "llama-server limits each request to the model's",
                    _ if model.lends_positions => {
                        "it is that of a similar model, and this one may have more"
                    }
                    _ => "what it writes beyond them may be wrong",
                };
                warnings.push(format!(
                    "{each} tokens are more than the {most} positions of the model's configuration: {then}"
                ));
            }
        }
        if !args.no_calibration {
            if let Some(learned) =
                calibrate::read_calibration(console, args.calibration.as_deref())?
            {
                deployment.own = OwnRuns::of(&learned, &model, &deployment);
            }
        }
        // Ollama allocates a context for each request at once (llm/server.go, `KvSize`).
        let at_once = (deployment.max_seqs).filter(|_| deployment.named() == EngineId::Ollama);
        let concurrency = args.concurrency.first().copied().or(at_once).unwrap_or(1);
        let mut asked = Asked {
            model,
            headers: loaded.headers,
            draft,
            deployment,
            concurrency,
            warnings,
            fitted_length: None,
        };
        asked.fit_length();
        Ok(asked)
    }

    /// Takes the longest length that fits, where the engine does so: vLLM's `--max-model-len auto`, TGI from 2.4.1 (launcher,
    /// `max_total_tokens`) and llama.cpp's `--fit` (common/arg.cpp) where no length is given.
    fn fit_length(&mut self) {
        let fitted = Unmodelled::fitted_length();
        let mut exact = self.deployment.clone();
        exact.unmodelled.retain(|u| *u != fitted);
        let is_given = self.deployment.max_model_len.is_some();
        let (margin, words) = match self.deployment.named() {
            EngineId::Vllm if exact != self.deployment => (0, "--max-model-len auto: vLLM"),
            EngineId::Tgi if !is_given && !self.deployment.is_before(tgi::FITS_LENGTH) => {
                (0, "TGI")
            }
            EngineId::LlamaCpp if !is_given && !self.deployment.llama.whole_context => {
                (llama_cpp::FIT_MARGIN, "llama.cpp's --fit")
            }
            _ => return,
        };
        let holds = |d: &Deployment| Ok(self.reading(d)?.on.map_or(0.0, |on| on.concurrency));
        let mut with_margin = exact.clone();
        let Some(gpu) = &mut with_margin.gpu else {
            return;
        };
        gpu.in_use = gpu.in_use.saturating_add(margin);
        let found = question::solve(What::MaxModelLen, &self.model, &with_margin, 1, &holds);
        let Some(length) = found.ok().and_then(|f| f.value) else {
            // Not even that: then it lays layers on the processor, with the least that it takes for a context.
            if self.deployment.engine == EngineId::LlamaCpp {
                let most = self.model.max_positions.unwrap_or(LEAST_FITTED);
                exact.max_model_len = Some(most.min(LEAST_FITTED));
                self.deployment = exact;
            }
            return;
        };
        let cut = |most: u64| self.model.max_positions.is_none_or(|all| most < all);
        let length = match (self.deployment.engine, length as u64) {
            (EngineId::LlamaCpp, most) if cut(most) => {
                most / llama_cpp::PADDING * llama_cpp::PADDING
            }
            (_, most) => most,
        };
        if self.model.max_positions.is_none_or(|most| length < most) {
            self.warnings.push(format!(
                "{words} takes the longest length that fits: {} tokens",
                grouped_count(length)
            ));
            exact.max_model_len = Some(length);
            self.fitted_length = Some(length);
        } else if self.deployment.engine == EngineId::Vllm {
            exact.max_model_len = Some(length);
            self.fitted_length = Some(length);
        }
        self.deployment = exact;
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

    /// The same, with the error as a failure.
    ///
    /// # Errors
    /// As [`Asked::estimated`].
    pub fn estimate(&self, deployment: &Deployment) -> Result<Estimate, Failure> {
        self.estimated(deployment).map_err(super::unknown)
    }
}

/// The deployment that the engine's own command line describes, and the flags, which win over it.
struct Words {
    deployment: Deployment,
    model: Option<String>,
    draft: Option<String>,
    gpus: GpuRequest,
    /// The file of its `--config`, where that could not be read.
    flag_file: Option<String>,
    /// The file of a repository: llama.cpp's `--hf-file`.
    file: Option<String>,
    warnings: Vec<String>,
}

impl Words {
    fn read(args: &EstimateArgs, launch: Option<&Launch>) -> Result<Words, Failure> {
        let (engine, own) = own_settings(args, launch)?;
        let rules = Deployment::of_engine(engine).map_err(usage)?.engine;
        let mut values = own.values.clone();
        for setting in SETTINGS.iter() {
            if let Some(value) = args.settings.0.get(&setting.name) {
                setting.replace(rules, &mut values, value);
            }
        }
        if args.settings.0.contains_key("max_lora_rank") {
            values.insert("enable_lora".into(), "true".into());
        }
        if let (EngineId::Transformers, Some(n)) = (rules, args.concurrency.first()) {
            values.entry("max_num_seqs".into()).or_insert(n.to_string());
        }
        let (mut deployment, draft) =
            Deployment::from_settings(engine, &values, &own.values, IllegalValue::IsRefused)
                .map_err(usage)?;
        if deployment.gpus() > MOST_GPUS {
            let needed = deployment.gpus();
            return Err(Failure::usage(format!(
                "requires {needed} GPUs; {MOST_GPUS} are the most that are estimated"
            ))
            .hint("check the parallel sizes: their product is the number of GPUs"));
        }
        deployment.given_gpus = given_gpus(rules, &own);
        let memory_env = recipe::recipe_of(engine.name).map(|r| r.memory_env.as_slice());
        let names_setting = |open: &str| {
            let variable = open.strip_suffix(" (from the shell)");
            open.starts_with("--env-file ")
                || open.starts_with("env_file ")
                || variable
                    .zip(memory_env)
                    .is_some_and(|(v, all)| all.iter().any(|m| m == v))
        };
        let open = launch.into_iter().flat_map(|l| &l.unresolved);
        for open in open.filter(|open| names_setting(open)) {
            let name = format!("{open}, which cannot be read here");
            deployment.unmodelled.push(Unmodelled::unread(name));
        }
        let version = args.engine_version.as_ref().or(own.version.as_ref());
        let mut warnings = own.warnings;
        warnings.extend(version.and_then(|v| deployment.set_version(v)));
        let version = deployment.version;
        let lacking = |sure| unmodelled::foreign_flags(engine, version, &own.values, sure);
        if version.is_some() && deployment.versions.is_none() {
            deployment.lacking_flags = lacking(true);
            // Of which patch on a flag is gone is not known.
            let is_sure = |flag: &String| deployment.lacking_flags.contains(flag);
            warnings.extend(lacking(false).into_iter().filter(|flag| !is_sure(flag)));
        } else {
            deployment.doubtful_flags = lacking(false);
        }
        Ok(Words {
            deployment,
            model: own.model,
            gpus: own.gpus,
            flag_file: own.values.get("config").cloned(),
            file: own.values.get("hf_file").cloned(),
            draft,
            warnings,
        })
    }
}

/// How many GPUs the container gets; `None` where its line does not say, where other containers share the
/// parallel sizes, or where the engine takes what it gets.
fn given_gpus(engine: EngineId, own: &OwnSettings) -> Option<u64> {
    const SEVERAL: [&str; 7] = [
        "nnodes",
        "node_rank",
        "headless",
        "data_parallel_size_local",
        "data_parallel_rank",
        "data_parallel_address",
        "dist_init_addr",
    ];
    let ray = own.values.get("distributed_executor_backend");
    let several = SEVERAL.iter().any(|name| own.values.contains_key(*name));
    if several || ray.is_some_and(|b| b == "ray") || takes_what_it_gets(engine) {
        return None;
    }
    let given = match &own.gpus {
        GpuRequest::Count(n) => Some(u64::from(*n)),
        GpuRequest::Ids(ids) => Some(ids.len() as u64),
        GpuRequest::None | GpuRequest::All => None,
    };
    given.into_iter().chain(own.visible_gpus).min()
}

fn takes_what_it_gets(engine: EngineId) -> bool {
    matches!(
        engine,
        EngineId::LlamaCpp | EngineId::Ollama | EngineId::Transformers
    )
}

/// A sentence where a line of `docker run` gives an engine that needs a GPU none.
fn lacks_gpu(args: &EstimateArgs, launch: &Launch, engine: EngineId) -> Option<String> {
    let image = launch.image.as_deref().filter(|_| !args.words.is_empty())?;
    let other = ["cpu", "tpu", "xpu", "hpu", "rocm", "gaudi", "neuron"];
    let given = launch.gpus.is_some()
        || launch.amd
        || launch.runtime.is_some()
        || launch.env.contains_key("NVIDIA_VISIBLE_DEVICES")
        || launch.unresolved.iter().any(|u| u.ends_with("(the GPUs)"))
        || other.iter().any(|kind| image.contains(kind));
    (!given && !takes_what_it_gets(engine))
        .then(|| "the line gives the container no GPU: add --gpus all before the image".to_owned())
}

/// The engine, and what its own command line sets where one is given.
fn own_settings(
    args: &EstimateArgs,
    launch: Option<&Launch>,
) -> Result<(EngineId, OwnSettings), Failure> {
    let Some(launch) = launch else {
        let engine = EngineId::from_name(&args.engine)?;
        return Ok((engine, OwnSettings::default()));
    };
    let server = launch
        .server()
        .ok_or_else(|| launched::no_engine(std::slice::from_ref(launch)))?;
    let Some(engine) = server.reader.filter(|_| server.missing.is_none()) else {
        let why = server.why_not_estimated();
        return Err(Failure::usage(why.unwrap_or_else(|| {
            format!("the memory of {} cannot be estimated", server.engine)
        }))
        .hint("`plimsoll estimate MODEL --engine vllm` estimates it as if vLLM served the model; --show-settings --json prints what was read of your line"));
    };
    Ok((
        engine,
        OwnSettings {
            model: launch.host_model(server.settings.model),
            values: server.settings.values,
            version: server.version,
            gpus: launch.gpus.clone().unwrap_or_default(),
            visible_gpus: launch.visible_gpus(),
            warnings: [
                launch.warnings.clone(),
                server.warnings,
                lacks_gpu(args, launch, engine).into_iter().collect(),
            ]
            .concat(),
        },
    ))
}

/// What a command line sets.
#[derive(Default)]
struct OwnSettings {
    model: Option<String>,
    values: BTreeMap<String, String>,
    version: Option<String>,
    gpus: GpuRequest,
    visible_gpus: Option<u64>,
    warnings: Vec<String>,
}

/// The failure for a deployment that cannot exist.
fn usage(why: Unknown) -> Failure {
    let failure = Failure::usage(why.what);
    why.hint.into_iter().fold(failure, Failure::hint)
}
