//! `plimsoll run`: a container of our own, started, profiled when it serves, stopped and removed.

use super::load::{
    bench_kind, conclude, engine_named, found_with, lock, obey_signals, open_backend, open_results,
    request, run_id, tokio, unless_stopped,
};
use crate::capture::{ContainerFacts, Mode};
use crate::cli::RunArgs;
use crate::clock::Clock;
use crate::collect::{self, Deadline, Health, Instruments, Plan, Stop};
use crate::console::Console;
use crate::container::Runtime;
use crate::container::launch::{GpuRequest, LaunchSpec};
use crate::engine::{self, Engine, ServeJob};
use crate::error::{ExitCode, Failure};
use crate::preset::{self, Preset};
use crate::progress::{Progress, Stage};
use crate::redact::Secrets;
use crate::telemetry::Target;
use crate::units::Bytes;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// An engine that is asked to stop may finish its requests for so long.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// Tokens that are passed on from this shell, so that gated models load.
const TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

pub fn run(console: &Console, args: RunArgs) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    tokio()?.block_on(async {
        obey_signals(&stop, console)?;
        launch_and_profile(console, args, &stop).await
    })
}

async fn launch_and_profile(
    console: &Console,
    args: RunArgs,
    stop: &Stop,
) -> anyhow::Result<ExitCode> {
    let news = console.sink();
    news(Progress::Stage(Stage::Inspect));
    let preset = args
        .preset
        .as_deref()
        .map(preset::load)
        .transpose()?
        .unwrap_or_default();
    let run_id = run_id();
    let mut load = args.load.clone();
    load.model = load.model.or_else(|| preset.model.clone());
    let model = load
        .model
        .clone()
        .ok_or_else(|| Failure::usage("say which model to serve").hint("--model MODEL"))?;
    let image = args
        .image
        .clone()
        .or_else(|| preset.image.clone())
        .ok_or_else(|| Failure::usage("say which image to start").hint("--image IMAGE"))?;
    let engine = engine_of(&load.engine, &preset, &image)?;
    let kind = bench_kind(load.bench, engine, Mode::Started, &image)?;
    if let Some(kind) = kind.filter(|k| !k.needs_server()) {
        return Err(Failure::usage(format!(
            "`run` serves, and --bench {} wants an idle container",
            kind.as_str()
        ))
        .hint("start one with `docker run … sleep infinity`, then `plimsoll profile` it")
        .into());
    }
    let mut request = request(&load, kind)?;
    request
        .extra_engine_args
        .splice(0..0, preset.engine_args.iter().cloned());
    let port = engine.default_port();
    let serve = engine.serve(&ServeJob {
        model: &model,
        port,
        settings: &request.settings,
        extra_engine_args: &request.extra_engine_args,
    });
    let port = told_port(engine, &serve).unwrap_or(port);
    let spec = spec(&args, &preset, &image, &run_id, port, &serve)?;
    if load.dry_run {
        let secrets = Secrets::gather([], &spec.cmd);
        console.data(
            format!(
                "would start {image} as {} with: {}\n",
                spec.name,
                secrets.redactor().argv(&spec.cmd).join(" ")
            )
            .as_bytes(),
        )?;
        return Ok(ExitCode::Done);
    }

    let _deadline = Deadline::start(load.timeout.as_secs_f64(), stop);
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    if unless_stopped(stop, runtime.image_id(&image))
        .await?
        .is_none()
    {
        if !args.pull {
            return Err(Failure::environment(format!("image `{image}` is not here"))
                .hint(format!("`docker pull {image}`, or --pull"))
                .into());
        }
        news(Progress::Stage(Stage::Pull));
        unless_stopped(stop, runtime.pull(&image, |line| log::info!("{line}"))).await?;
    }
    // A bad place for the results must be told before anything is started.
    let (paths, writer) = open_results(&load, &model)?;
    news(Progress::Stage(Stage::Start));
    let clock = Clock::start();
    // Before it is there: who leaves meanwhile must know of it too.
    stop.started(Some(&spec.name));
    let found = match runtime.launch(&spec).await {
        Ok(found) => found,
        Err(failure) => {
            stop.started(None);
            // Nothing was seen, so nothing is kept.
            let _ = std::fs::remove_dir_all(&paths.capture);
            return Err(failure.into());
        }
    };
    let id = found.facts.id.clone();
    let plan = Plan {
        run_id,
        found: found_with(found, &request),
        engine,
        engine_evidence: format!("started by plimsoll as {}", engine.name()),
        mode: Mode::Started,
        request,
        kind,
        repeats: load.repeats,
        baseline: load.baseline,
        watch: load.duration,
        health: Some(Health {
            path: serve.health_path,
            timeout: args.health_timeout,
        }),
    };
    let profiled = async {
        let _lock = lock(&plan.found.facts)?;
        let memory = open_backend(&load, &clock, &Target::of(&plan.found.facts))?;
        let tools = Instruments::start(&clock, memory, &plan, writer, stop, news.clone())?;
        Ok::<_, Failure>(collect::collect(&runtime, &plan, None, tools).await)
    };
    // A bug of ours must not leave somebody's GPU with a container that nobody watches.
    let profiled = AssertUnwindSafe(profiled).catch_unwind().await;
    let cleaned = clean_up(console, &runtime, &id, &spec.name, args.keep).await;
    if cleaned.is_ok() {
        stop.started(None);
    }
    let concluded = profiled
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(anyhow::Error::from)
        .and_then(|collected| conclude(console, &load, &paths, collected));
    // The run's own failure is the news; that of the cleaning is told beside it.
    match (concluded, cleaned) {
        (Ok(_), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            console.warning(&failure.to_string());
            Err(error)
        }
        (concluded, Ok(())) => concluded,
    }
}

/// The port that the command asks for, when the extra arguments name another.
fn told_port(engine: &dyn Engine, serve: &engine::ServePlan) -> Option<u16> {
    let argv = [engine.name().to_owned(), "serve".to_owned()].into_iter();
    let facts = ContainerFacts {
        argv: argv.chain(serve.cmd.iter().cloned()).collect(),
        ..Default::default()
    };
    engine.settings(&facts).port
}

async fn clean_up(
    console: &Console,
    runtime: &Runtime,
    id: &str,
    name: &str,
    keep: bool,
) -> Result<(), Failure> {
    if keep {
        console.note(&format!("container `{name}` keeps running (--keep)"));
        return Ok(());
    }
    (console.sink())(Progress::Stage(Stage::Cleanup));
    runtime.stop(id, STOP_GRACE).await?;
    runtime.remove(id).await
}

fn engine_of(
    named: &Option<String>,
    preset: &Preset,
    image: &str,
) -> Result<&'static dyn Engine, Failure> {
    if let Some(name) = named.as_ref().or(preset.engine.as_ref()) {
        return engine_named(name);
    }
    let facts = ContainerFacts {
        image: image.into(),
        ..Default::default()
    };
    engine::recognise(&facts)
        .map(|(engine, _)| engine)
        .ok_or_else(|| {
            let names: Vec<&str> = engine::ALL.iter().map(|e| e.name()).collect();
            Failure::usage(format!("which engine is in image `{image}`?"))
                .hint(format!("name it with --engine: {}", names.join(", ")))
        })
}

fn spec(
    args: &RunArgs,
    preset: &Preset,
    image: &str,
    run_id: &str,
    port: u16,
    serve: &engine::ServePlan,
) -> Result<LaunchSpec, Failure> {
    let size = |flag: &str, text: Option<&String>| -> Result<Option<u64>, Failure> {
        text.map(|t| {
            t.parse::<Bytes>()
                .map(|b| b.0)
                .map_err(|e| Failure::usage(format!("{flag}: {e}")))
        })
        .transpose()
    };
    let mut env: BTreeMap<String, String> = serve.env.iter().cloned().collect();
    env.extend(preset.env.clone());
    for name in TOKENS {
        if let Ok(token) = std::env::var(name) {
            env.insert(name.into(), token);
        }
    }
    for entry in &args.env {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (
                entry.clone(),
                std::env::var(entry).map_err(|_| {
                    Failure::usage(format!("--env {entry}: this shell has no such variable"))
                })?,
            ),
        };
        env.insert(name, value);
    }
    let mut mounts = preset.volumes.clone();
    mounts.extend(args.volume.iter().cloned());
    if let Some(cache) = &args.hf_cache {
        let cache = std::fs::canonicalize(cache).map_err(|e| {
            Failure::usage(format!("--hf-cache {}: no such folder", cache.display())).caused_by(e)
        })?;
        mounts.push(format!("{}:/root/.cache/huggingface", cache.display()));
    }
    Ok(LaunchSpec {
        name: args
            .name
            .clone()
            .unwrap_or_else(|| format!("plimsoll-{run_id}")),
        image: image.into(),
        run_id: run_id.into(),
        cmd: serve.cmd.clone(),
        env,
        gpus: gpus(args.gpus.as_deref().or(preset.gpus.as_deref()))?,
        amd: preset.amd,
        shm_size_bytes: size(
            "--shm-size",
            args.shm_size.as_ref().or(preset.shm_size.as_ref()),
        )?,
        ipc_host: args.ipc_host || preset.ipc_host,
        mounts,
        ports: BTreeMap::from([(port, 0)]),
        memory_bytes: size("--memory", args.memory.as_ref().or(preset.memory.as_ref()))?,
        init: true,
        ..Default::default()
    })
}

/// `none`, `all`, a count, or ids. A single number is a count, as in docker's `--gpus`; ids are
/// written `0,` or `device=0`.
fn gpus(text: Option<&str>) -> Result<GpuRequest, Failure> {
    let ids = |list: &str| -> Result<GpuRequest, Failure> {
        let ids: Vec<String> = list
            .split(',')
            .map(str::trim)
            .filter(|i| !i.is_empty())
            .map(str::to_owned)
            .collect();
        if ids.is_empty() {
            Err(Failure::usage("--gpus names no GPU"))
        } else {
            Ok(GpuRequest::Ids(ids))
        }
    };
    match text.map(str::trim) {
        None | Some("none" | "0") => Ok(GpuRequest::None),
        Some("all") => Ok(GpuRequest::All),
        Some(t) => match (t.strip_prefix("device="), t.parse::<u32>()) {
            (Some(list), _) => ids(list),
            (None, Ok(count)) => Ok(GpuRequest::Count(count)),
            (None, Err(_)) => ids(t),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_asked_for_as_docker_does() {
        assert_eq!(gpus(None).unwrap(), GpuRequest::None);
        assert_eq!(gpus(Some("all")).unwrap(), GpuRequest::All);
        assert_eq!(gpus(Some("2")).unwrap(), GpuRequest::Count(2));
        assert_eq!(
            gpus(Some("0,2")).unwrap(),
            GpuRequest::Ids(vec!["0".into(), "2".into()])
        );
        assert_eq!(
            gpus(Some("device=1")).unwrap(),
            GpuRequest::Ids(vec!["1".into()])
        );
        assert_eq!(
            gpus(Some("GPU-1f")).unwrap(),
            GpuRequest::Ids(vec!["GPU-1f".into()])
        );
        assert!(gpus(Some(",")).is_err());
    }
}
