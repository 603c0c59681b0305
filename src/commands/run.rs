//! `plimsoll run`: a container of our own, started, profiled when it serves, stopped and removed.

use super::load::{bench_kind, conclude, obey_signals, open_backend, open_results, request, tokio};
use crate::capture::Mode;
use crate::cli::{RunArgs, StartArgs};
use crate::clock::Clock;
use crate::collect::{
    self, Deadline, Health, Instruments, Launch, Plan, Stop, found_with, lock, run_id,
    unless_stopped,
};
use crate::console::Console;
use crate::container::{KEEP_LABEL, Runtime};
use crate::engine::ServeJob;
use crate::error::{ExitCode, Failure};
use crate::preset::{self, Preset};
use crate::progress::{Progress, Stage};
use crate::redact::Secrets;
use crate::telemetry::Target;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// An engine that is asked to stop may finish its requests for so long.
const STOP_GRACE: Duration = Duration::from_secs(30);

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
    let engine = collect::engine_of_image(load.engine.as_ref().or(preset.engine.as_ref()), &image)?;
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
    let port = collect::told_port(engine, &serve).unwrap_or(port);
    let name = args.name.clone();
    let mut spec = collect::launch_spec(Launch {
        name: name.unwrap_or_else(|| format!("plimsoll-{run_id}")),
        image: &image,
        run_id: &run_id,
        preset: &merged(&args.start, &preset)?,
        port,
        serve: &serve,
        // What is kept is wanted for as long as the user says.
        longest: (!args.keep).then_some(load.timeout + STOP_GRACE),
    })?;
    if args.keep {
        spec.labels.insert(KEEP_LABEL.into(), "true".into());
    }
    if load.dry_run {
        let secrets = Secrets::gather([], &spec.cmd);
        console.data(
            format!(
                "would start {image} as {} with: {}\nGPUs: {}\n",
                spec.name,
                secrets.redactor().argv(&spec.cmd).join(" "),
                spec.gpus
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
        if !args.start.pull {
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
    stop.started(&spec.name);
    let found = match collect::launch(&runtime, &spec).await {
        Ok(found) => found,
        Err(failure) => {
            stop.settled(&spec.name);
            // Nothing was seen, so nothing is kept.
            let _ = std::fs::remove_dir_all(&paths.capture);
            return Err(failure.into());
        }
    };
    let id = found.facts.id.clone();
    let made_of = collect::program_state(&runtime, &found.facts).await;
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
            timeout: args.start.health_timeout(),
        }),
        cooldown: collect::COOLDOWN,
        shared: collect::Shared::default(),
        workdir: None,
        kept: None,
        followed: false,
        made_of,
    };
    let profiled = async {
        let _lock = lock(&plan.found.facts)?;
        let target = Target::of(&plan.found.facts);
        let open = || open_backend(&load, &clock, &target);
        let memory = collect::open_memory(&runtime, &plan.found, open).await?;
        let tools = Instruments::start(&clock, memory, &plan, writer, stop, news.clone())?;
        Ok::<_, Failure>(collect::collect(&runtime, &plan, None, tools).await)
    };
    // A bug of ours must not leave somebody's GPU with a container that nobody watches.
    let profiled = AssertUnwindSafe(profiled).catch_unwind().await;
    let cleaned = clean_up(console, &runtime, &id, &spec.name, args.keep).await;
    if cleaned.is_ok() {
        stop.settled(&spec.name);
    }
    let concluded = profiled
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(anyhow::Error::from)
        .and_then(|collected| conclude(console, &load, &paths, collected));
    // The run's own failure is the news; that of the cleaning is told beside it.
    match (concluded, cleaned) {
        (Ok(_), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            console.warning(&format!("{failure} ({})", failure.hints.join("; ")));
            Err(error)
        }
        (concluded, Ok(())) => concluded,
    }
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
    let ended = collect::end(runtime, id, STOP_GRACE).await;
    ended.map_err(|failure| {
        let message = format!("container `{name}` could not be removed: {failure}");
        Failure { message, ..failure }
            .hint("`plimsoll clean --apply` removes it once Docker answers again")
    })
}

/// The preset with what the flags say in its place.
pub(super) fn merged(args: &StartArgs, preset: &Preset) -> Result<Preset, Failure> {
    let or = |flag: &Option<String>, preset: &Option<String>| flag.clone().or(preset.clone());
    let mut env = preset.env.clone();
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
    let mut volumes = preset.volumes.clone();
    volumes.extend(args.volume.iter().cloned());
    if let Some(cache) = &args.hf_cache {
        let cache = std::fs::canonicalize(cache).map_err(|e| {
            Failure::usage(format!("--hf-cache {}: no such folder", cache.display())).caused_by(e)
        })?;
        volumes.push(format!("{}:/root/.cache/huggingface", cache.display()));
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
