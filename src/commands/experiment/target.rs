//! Where an experiment runs: in a container that is there, or in one that is started for it.

use crate::capture::{Mode, Request};
use crate::cli::ExperimentFlags;
use crate::clock::Clock;
use crate::collect::{self, Plan, Stop, unless_stopped};
use crate::commands::load::settings;
use crate::commands::run::merged;
use crate::commands::sweep::source::bench;
use crate::console::Console;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::engine::{Engine, LoadKind};
use crate::error::Failure;
use crate::matrix::{BenchWord, Place, Server};
use crate::preset::{self, Preset};
use crate::progress::{Progress, Stage};
use std::collections::BTreeMap;
use std::time::Duration;

/// The engine that the levels share.
pub struct Aim {
    /// What the cells are of.
    pub server: Server,
    /// What puts the load on.
    pub bench: BenchWord,
    /// Whether each level has a process of its own.
    pub fresh: bool,
}

/// Looks at the place, so that what is not there is told before a folder is made.
pub async fn aim(
    console: &Console,
    flags: &ExperimentFlags,
    runtime: &Runtime,
    stop: &Stop,
) -> Result<Aim, Failure> {
    let (settings, engine_args) = settings(&flags.settings)?;
    let server = Server {
        model: String::new(),
        engine: flags.engine.clone(),
        place: Place::Container(String::new()),
        settings,
        engine_args,
        architecture: BTreeMap::new(),
    };
    match flags.container() {
        Some(name) => attached(console, flags, name, server, runtime, stop).await,
        None if flags.image.is_some() || flags.preset.is_some() => {
            started(console, flags, server, runtime, stop).await
        }
        None => Err(Failure::usage("say where to measure")
            .hint("name a container: plimsoll experiment concurrency CONTAINER --levels 1 2 4 8")
            .hint("or have one started: --image IMAGE --model MODEL, or --preset NAME")),
    }
}

/// In a container that is there.
async fn attached(
    console: &Console,
    flags: &ExperimentFlags,
    name: &str,
    server: Server,
    runtime: &Runtime,
    stop: &Stop,
) -> Result<Aim, Failure> {
    refuse_flags_of_a_start(flags)?;
    (console.sink())(Progress::Stage(Stage::Inspect));
    let found = unless_stopped(stop, collect::find_running(runtime, name)).await?;
    let (engine, evidence, serves) =
        collect::meet(runtime, &found, flags.engine.as_ref(), stop).await?;
    if serves && flags.start.health_timeout.is_some() {
        return Err(Failure::usage(format!(
            "--health-timeout is for an engine that is started, and the one in container `{}` serves already",
            found.facts.name
        ))
        .hint("leave it out"));
    }
    let probe = !serves && engine.default_bench(false) == LoadKind::Probe;
    let told = engine.settings(&found.facts).model.filter(|_| serves);
    let model = match flags.model.clone().or(told) {
        Some(model) => model,
        None if serves => said_model(console, &found, engine, evidence, runtime, stop).await?,
        None => {
            return Err(Failure::usage(format!(
                "container `{}` is idle: say which model to load in it",
                found.facts.name
            ))
            .hint("--model MODEL, an id or a path inside the container"));
        }
    };
    let asked = bench(flags.bench);
    if probe && asked == BenchWord::Builtin {
        console.note(&format!(
            "engine {} has no server in this container: its probe runs instead, a process for each level",
            engine.name()
        ));
    }
    Ok(Aim {
        server: Server {
            model,
            place: Place::Container(found.facts.name.clone()),
            ..server
        },
        bench: match probe {
            true => BenchWord::Auto,
            false => asked,
        },
        fresh: probe,
    })
}

/// The model that a server tells of where its command does not.
async fn said_model(
    console: &Console,
    found: &Found,
    engine: &'static dyn Engine,
    evidence: String,
    runtime: &Runtime,
    stop: &Stop,
) -> Result<String, Failure> {
    let plan = Plan {
        run_id: collect::run_id(),
        found: found.clone(),
        engine,
        engine_evidence: evidence,
        mode: Mode::Serving,
        request: Request {
            bench: "none".into(),
            sample_interval_ns: 100_000_000,
            timeout_s: 60.0,
            ..Request::default()
        },
        kind: None,
        repeats: 1,
        baseline: Duration::ZERO,
        watch: None,
        health: None,
        cooldown: Duration::ZERO,
        shared: collect::Shared::default(),
        workdir: None,
        kept: None,
        followed: false,
        made_of: None,
    };
    let setup = collect::inspect(runtime, &plan, &Clock::start(), stop, &console.sink()).await?;
    setup.model.ok_or_else(|| {
        Failure::usage(format!(
            "the engine in container `{}` does not say which model it serves",
            found.facts.name
        ))
        .hint("name it with --model")
    })
}

/// In a container that is started for it.
async fn started(
    console: &Console,
    flags: &ExperimentFlags,
    server: Server,
    runtime: &Runtime,
    stop: &Stop,
) -> Result<Aim, Failure> {
    let given = flags.preset.as_deref().map(preset::load).transpose()?;
    let preset = given.unwrap_or_default();
    let model = flags.model.clone().or_else(|| preset.model.clone());
    let model =
        model.ok_or_else(|| Failure::usage("say which model to serve").hint("--model MODEL"))?;
    let image = flags.image.clone().or_else(|| preset.image.clone());
    let image =
        image.ok_or_else(|| Failure::usage("say which image to start").hint("--image IMAGE"))?;
    let engine = flags.engine.clone().or_else(|| preset.engine.clone());
    collect::engine_of_image(engine.as_ref(), &image)?;
    let here = unless_stopped(stop, runtime.image_id(&image)).await?;
    if here.is_none() {
        if !flags.start.pull {
            return Err(Failure::environment(format!("image `{image}` is not here"))
                .hint(format!("`docker pull {image}`, or --pull")));
        }
        (console.sink())(Progress::Stage(Stage::Pull));
        unless_stopped(stop, runtime.pull(&image, |line| log::info!("{line}"))).await?;
    }
    let mut engine_args = preset.engine_args.clone();
    engine_args.extend(server.engine_args);
    Ok(Aim {
        server: Server {
            model,
            engine,
            place: Place::Image(Box::new(Preset {
                image: Some(image),
                engine_args: Vec::new(),
                ..merged(&flags.start, &preset)?
            })),
            engine_args,
            ..server
        },
        bench: bench(flags.bench),
        fresh: false,
    })
}

/// A container that is there was started by somebody else.
fn refuse_flags_of_a_start(flags: &ExperimentFlags) -> Result<(), Failure> {
    let start = &flags.start;
    for (flag, given) in [
        ("--gpus", start.gpus.is_some()),
        ("--shm-size", start.shm_size.is_some()),
        ("--memory", start.memory.is_some()),
        ("--volume", !start.volume.is_empty()),
        ("--env", !start.env.is_empty()),
        ("--ipc-host", start.ipc_host),
        ("--pull", start.pull),
    ] {
        if given {
            return Err(Failure::usage(format!(
                "{flag} is for a container that is started, and container `{}` is there already",
                flags.container().unwrap_or_default()
            ))
            .hint("leave it out, or start a container with --image or --preset"));
        }
    }
    Ok(())
}
