//! Where an experiment runs: in an existing container, or in one that is started for it.

use crate::capture::Request;
use crate::cli::{ExperimentFlags, HEALTH_TIMEOUT, STARTING, flags_under_headings};
use crate::collect::{AttachedEngine, CaptureSession, StopSignal};
use crate::commands::load::engine_settings;
use crate::commands::start::{StartTarget, merged_preset};
use crate::console::Console;
use crate::container::Runtime;
use crate::engine::LoadKind;
use crate::error::Failure;
use crate::matrix::{BenchWord, EnginePlace, ServerConfig};
use crate::preset::Preset;
use crate::progress::{Progress, Stage};
use std::collections::BTreeMap;

/// The engine that the levels share.
pub struct ExperimentTarget {
    /// What the cells are of.
    pub server: ServerConfig,
    /// What puts the load on.
    pub bench: BenchWord,
    /// Whether each level has a process of its own.
    pub fresh: bool,
}

/// Checks the place, so that an error is reported before a folder is made.
pub async fn resolve_target(
    console: &Console,
    flags: &ExperimentFlags,
    runtime: &Runtime,
    stop: &StopSignal,
) -> Result<ExperimentTarget, Failure> {
    let (settings, engine_args) = engine_settings(&flags.settings)?;
    let server = ServerConfig {
        model: String::new(),
        engine: flags.engine.clone(),
        place: EnginePlace::Container(String::new()),
        settings,
        engine_args,
        architecture: BTreeMap::new(),
    };
    match flags.container() {
        Some(name) => attached(console, flags, name, server, runtime, stop).await,
        None if flags.image.is_some() || flags.preset.is_some() => {
            resolve_started(console, flags, server, runtime, stop).await
        }
        None => Err(Failure::usage("say where to measure")
            .hint("name a container: plimsoll experiment concurrency CONTAINER --levels 1 2 4 8")
            .hint("or have one started: --image IMAGE --model MODEL, or --preset NAME")),
    }
}

/// In an existing container.
async fn attached(
    console: &Console,
    flags: &ExperimentFlags,
    name: &str,
    server: ServerConfig,
    runtime: &Runtime,
    stop: &StopSignal,
) -> Result<ExperimentTarget, Failure> {
    refuse_flags_of_a_start(flags)?;
    (console.sink())(Progress::Stage(Stage::Inspect));
    let attached = AttachedEngine::find(runtime, name, flags.engine.as_ref(), stop).await?;
    let (container, engine, serves) = (attached.name(), attached.engine, attached.is_serving());
    if serves && flags.start.health_timeout.is_some() {
        return Err(Failure::usage(format!(
            "--health-timeout is for an engine that is started, and the one in container `{}` serves already",
            container
        ))
        .hint("leave it out"));
    }
    let probe = !serves && engine.default_bench(false) == LoadKind::Probe;
    let settings = (engine.settings)(&attached.found.facts);
    let configured = settings.model.filter(|_| serves);
    let model = match flags.model.clone().or(configured) {
        Some(model) => model,
        None if serves => reported_model(console, &attached, stop).await?,
        None => {
            return Err(Failure::usage(format!(
                "container `{container}` is idle: say which model to load in it"
            ))
            .hint("--model MODEL, an id or a path inside the container"));
        }
    };
    let asked = flags.bench;
    if probe && asked == BenchWord::Builtin {
        console.print_note(&format!(
            "engine {} has no server in this container: its probe runs instead, a process for each level",
            engine.shown()
        ));
    }
    Ok(ExperimentTarget {
        server: ServerConfig {
            model,
            place: EnginePlace::Container(container.to_owned()),
            ..server
        },
        bench: if probe { BenchWord::Auto } else { asked },
        fresh: probe,
    })
}

/// The model that a server reports where its command does not name it.
async fn reported_model(
    console: &Console,
    attached: &AttachedEngine,
    stop: &StopSignal,
) -> Result<String, Failure> {
    let plan = attached.plan_capture(None, Request::default());
    let setup = CaptureSession::begin_session(stop, console.sink(), None)
        .inspect_engine(&plan)
        .await?;
    setup.model.ok_or_else(|| {
        Failure::usage(format!(
            "the engine in container `{}` does not say which model it serves",
            attached.name()
        ))
        .hint("name it with --model")
    })
}

/// In a container that is started for it.
async fn resolve_started(
    console: &Console,
    flags: &ExperimentFlags,
    server: ServerConfig,
    runtime: &Runtime,
    stop: &StopSignal,
) -> Result<ExperimentTarget, Failure> {
    let target = StartTarget::resolve_flags(
        flags.preset.as_deref(),
        flags.model.as_ref(),
        flags.image.as_ref(),
        flags.engine.as_ref(),
    )?;
    target
        .ensure_image(runtime, flags.start.pull, stop, &console.sink())
        .await?;
    let preset = merged_preset(&flags.start, &target)?;
    let mut engine_args = target.preset_arguments(&server.settings);
    engine_args.extend(server.engine_args);
    Ok(ExperimentTarget {
        server: ServerConfig {
            model: target.model,
            engine: target.engine_name,
            place: EnginePlace::Image(Box::new(Preset {
                image: Some(target.image),
                engine_args: Vec::new(),
                ..preset
            })),
            engine_args,
            ..server
        },
        bench: flags.bench,
        fresh: false,
    })
}

/// Flags of a start do not apply to an existing container.
fn refuse_flags_of_a_start(flags: &ExperimentFlags) -> Result<(), Failure> {
    let given = flags_under_headings(std::env::args_os(), &[STARTING], &[]);
    if let Some(flag) = given.iter().find(|flag| *flag != HEALTH_TIMEOUT) {
        return Err(Failure::usage(format!(
            "{flag} is for a container that is started, but container `{}` exists",
            flags.container().unwrap_or_default()
        ))
        .hint("leave it out, or start a container with --image or --preset"));
    }
    Ok(())
}
