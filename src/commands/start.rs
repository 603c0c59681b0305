//! What `run` and `experiment` start: image, model and engine from flags and a preset.

use crate::capture::{ContainerFacts, RequestedSettings};
use crate::cli::StartArgs;
use crate::collect::{self, StopSignal, unless_stopped};
use crate::commands::estimate::{engines_of, read_compose};
use crate::container::Runtime;
use crate::engine::EngineId;
use crate::engine::settings::arguments_of;
use crate::error::Failure;
use crate::launch::{self, recipe::cache_mount};
use crate::matrix::take_out_flag;
use crate::preset::{self, Preset};
use crate::progress::{Progress, Sink, Stage};
use std::path::Path;

/// An engine's container to start, as far as flags and preset name it; flags win.
pub struct StartTarget {
    pub preset: Preset,
    pub model: String,
    pub image: String,
    /// The engine's name, where it is given.
    pub engine_name: Option<String>,
    pub engine: EngineId,
    /// The line of `docker run`, or the service, that starts it, where it is given so.
    pub line: Option<launch::Launch>,
}

impl StartTarget {
    pub fn resolve_flags(
        preset: Option<&str>,
        model: Option<&String>,
        image: Option<&String>,
        engine: Option<&String>,
    ) -> Result<StartTarget, Failure> {
        let preset = preset
            .map(preset::load_preset)
            .transpose()?
            .unwrap_or_default();
        let or = |flag: Option<&String>, preset: &Option<String>| flag.or(preset.as_ref()).cloned();
        let model = or(model, &preset.model)
            .ok_or_else(|| Failure::usage("say which model to serve").hint("--model MODEL"))?;
        let image = or(image, &preset.image)
            .ok_or_else(|| Failure::usage("say which image to start").hint("--image IMAGE"))?;
        let engine_name = or(engine, &preset.engine);
        let engine = collect::engine_of_image(engine_name.as_ref(), &image)?;
        Ok(StartTarget {
            preset,
            model,
            image,
            engine_name,
            engine,
            line: None,
        })
    }

    /// What the services of a Compose file start: those of these names, else each that starts an engine.
    pub fn of_compose(
        file: &Path,
        services: &[String],
        engine: Option<&String>,
        news: &Sink,
    ) -> Result<Vec<StartTarget>, Failure> {
        let launches = read_compose(file)?;
        if !services.is_empty() {
            let named = engines_of(&launches, services)?.into_iter().cloned();
            return named
                .map(|launch| StartTarget::of_launch(launch, engine))
                .collect();
        }
        let mut targets = Vec::new();
        for launch in launches {
            let service = launch.service.clone().unwrap_or_default();
            // Other services of the file may be no engines.
            let is_engine = launch.server().is_some_and(|s| s.reader.is_some());
            match StartTarget::of_launch(launch, engine.filter(|_| is_engine)) {
                Ok(target) => targets.push(target),
                Err(why) => {
                    let left = format!("service `{service}` is not started: {why}");
                    news(Progress::Warning(left));
                }
            }
        }
        if targets.is_empty() {
            let message = format!("`{}` starts no engine that can be profiled", file.display());
            return Err(Failure::usage(message));
        }
        Ok(targets)
    }

    /// What a line of `docker run`, or a service, starts; `--engine` wins over what is recognised.
    pub fn of_launch(
        line: launch::Launch,
        engine: Option<&String>,
    ) -> Result<StartTarget, Failure> {
        let Some(image) = line.image.clone() else {
            return Err(match &line.service {
                Some(service) => Failure::usage(format!("service `{service}` names no image"))
                    .hint("build it, then name its image in the file"),
                None => Failure::usage("the command after -- starts no container")
                    .hint("as in `plimsoll run -- docker run --gpus all vllm/vllm-openai:latest --model Qwen/Qwen3-8B`"),
            });
        };
        let server = line.server();
        let named = engine.map(|name| EngineId::from_name(name)).transpose()?;
        let known = named.or_else(|| server.as_ref().and_then(|s| s.reader));
        let engine = known.ok_or_else(|| {
            Failure::usage(format!(
                "no engine that can be profiled is known in `{image}`"
            ))
            .hint(format!("name it with --engine: {}", EngineId::all_names()))
        })?;
        let model = server.and_then(|s| s.settings.model).or_else(|| {
            let facts = ContainerFacts {
                image: image.clone(),
                argv: line.argv.clone(),
                env: line.env.clone(),
                ..ContainerFacts::default()
            };
            (engine.settings)(&facts).model
        });
        Ok(StartTarget {
            preset: line.preset(),
            model: model.unwrap_or_default(),
            image,
            engine_name: Some(engine.name.to_owned()),
            engine,
            line: Some(line),
        })
    }

    /// The preset's arguments without those that these settings set: engines take the last of two.
    pub fn preset_arguments(&self, settings: &RequestedSettings) -> Vec<String> {
        let mut args = self.preset.engine_args.clone();
        for words in arguments_of(self.engine, settings) {
            take_out_flag(&mut args, &words[0]);
        }
        args
    }

    /// Pulls the image where it is not on this host; without `pull` that is refused.
    pub async fn ensure_image(
        &self,
        runtime: &Runtime,
        pull: bool,
        stop: &StopSignal,
        progress: &Sink,
    ) -> Result<(), Failure> {
        let image = &self.image;
        if unless_stopped(stop, runtime.image_id(image))
            .await?
            .is_some()
        {
            return Ok(());
        }
        if !pull {
            return Err(Failure::environment(format!("image `{image}` is not here"))
                .hint(format!("`docker pull {image}`, or --pull")));
        }
        progress(Progress::Stage(Stage::Pull));
        unless_stopped(stop, runtime.pull_image(image, |line| log::info!("{line}"))).await
    }
}

/// The preset with what the flags say in its place.
pub fn merged_preset(args: &StartArgs, target: &StartTarget) -> Result<Preset, Failure> {
    let preset = &target.preset;
    let or = |flag: &Option<String>, preset: &Option<String>| flag.clone().or(preset.clone());
    let mut env = preset.env.clone();
    for entry in &args.env {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (
                entry.clone(),
                std::env::var(entry).map_err(|_| {
                    Failure::usage(format!("--env {entry}: this shell has no such variable"))
                        .hint(format!("export it, or give the value: --env {entry}=VALUE"))
                })?,
            ),
        };
        env.insert(name, value);
    }
    let mut volumes = preset.volumes.clone();
    volumes.extend(args.volume.iter().cloned());
    if let Some(cache) = &args.hf_cache {
        let cache = std::fs::canonicalize(cache).map_err(|e| {
            Failure::usage(format!("--hf-cache {}: no such folder", cache.display())).caused_by(e)
        })?;
        volumes.push(cache_mount(&target.image, &cache.display().to_string()));
    }
    Ok(Preset {
        gpus: or(&args.gpus, &preset.gpus),
        shm_size: or(&args.shm_size, &preset.shm_size),
        memory: or(&args.memory, &preset.memory),
        ipc_host: args.ipc_host || preset.ipc_host,
        env,
        volumes,
        ..preset.clone()
    })
}
