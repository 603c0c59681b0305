//! `plimsoll run`: a container of our own, started, profiled when it serves, stopped and removed.

use super::fit;
use super::load::{
    bench_kind, conclude_run, load_request, memory_source, open_results, run_stoppable,
};
use super::start::{StartTarget, merged_preset};
use crate::capture::{Mode, Request};
use crate::cli::{RunArgs, WrittenForm};
use crate::collect::{
    self, AttachedEngine, CapturePlan, CaptureSession, Collected, Deadline, HealthCheck, Launch,
    StopSignal, run_id, unless_stopped,
};
use crate::console::Console;
use crate::container::launch::LaunchSpec;
use crate::container::{KEEP_LABEL, Runtime};
use crate::engine::LoadKind;
use crate::engine::settings::{arguments_of, ignored_settings};
use crate::error::{ExitCode, Failure};
use crate::launch::LaunchEntrypoint;
use crate::progress::{Progress, Stage};
use crate::store::CaptureWriter;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Time for an engine to finish its requests when it is asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(30);

pub fn run_run(console: &Console, args: RunArgs) -> anyhow::Result<ExitCode> {
    run_stoppable(console, async |stop| {
        launch_and_profile(console, args, stop).await
    })
}

/// What is started, and what is measured of it.
struct Launched<'a> {
    args: &'a RunArgs,
    run_id: String,
    target: StartTarget,
    kind: Option<LoadKind>,
    request: Request,
    spec: LaunchSpec,
    health: HealthCheck,
}

async fn launch_and_profile(
    console: &Console,
    args: RunArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let progress = console.sink();
    progress(Progress::Stage(Stage::Inspect));
    let planned = plan_launch(&args)?;
    for left in planned.target.line.iter().flat_map(|l| &l.left_out) {
        progress(Progress::Warning(format!(
            "`{left}` of your line is not used: plimsoll sets it itself, or has nothing like it"
        )));
    }
    for open in planned.target.line.iter().flat_map(|l| &l.unresolved) {
        progress(Progress::Warning(format!(
            "{open} has no value in this shell; what depends on it is left out. Set it, or write the value"
        )));
    }
    let settings = &planned.request.settings;
    for ignored in ignored_settings(planned.target.engine, Mode::Started, settings) {
        progress(Progress::Warning(ignored.sentence()));
    }
    if args.load.dry_run {
        console.write_data(describe_launch(&planned).as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let _deadline = Deadline::start(args.load.timeout, stop);
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    if !runtime.is_remote() {
        fit::check_spec(console, &planned.spec, &args.beside, args.run_anyway)?;
    }
    let target = &planned.target;
    target
        .ensure_image(&runtime, args.start.pull, stop, &progress)
        .await?;
    // A bad place for the results must be reported before anything is started.
    let (paths, writer) = open_results(&args.load, &target.model)?;
    progress(Progress::Stage(Stage::Start));
    let session = CaptureSession::begin_session(stop, progress, None);
    let name = planned.spec.name.clone();
    // Before it is there: who leaves meanwhile must know of it too.
    stop.note_started(&name);
    let found = match collect::launch_container(&runtime, &planned.spec).await {
        Ok(found) => found,
        Err(failure) => {
            stop.note_settled(&name);
            // Nothing was observed, so nothing is kept.
            let _ = std::fs::remove_dir_all(&paths.capture);
            return Err(failure.into());
        }
    };
    let id = found.facts.id.clone();
    let attached = AttachedEngine::started(&runtime, found, target.engine);
    let captured = capture(&session, attached, planned, writer);
    // A bug of ours must not leave a user's GPU with a container that is not watched.
    let captured = AssertUnwindSafe(captured).catch_unwind().await;
    let cleaned = clean_up(console, &runtime, &id, &name, args.keep).await;
    if cleaned.is_ok() {
        stop.note_settled(&name);
    }
    let concluded = captured
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(anyhow::Error::from)
        .and_then(|collected| conclude_run(console, &args.load, &paths, collected));
    // The run's own failure is the result; a failed cleanup is an additional warning.
    match (concluded, cleaned) {
        (Ok(_), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            console.print_warning(&format!("{failure} ({})", failure.hints.join("; ")));
            Err(error)
        }
        (concluded, Ok(())) => concluded,
    }
}

/// What is to be started, and what is to be measured of it.
fn plan_launch(args: &RunArgs) -> Result<Launched<'_>, Failure> {
    let load = &args.load;
    let target = if args.words.is_empty() {
        StartTarget::resolve_flags(
            args.preset.as_deref(),
            load.model.as_ref(),
            args.image.as_ref(),
            load.engine.as_ref(),
        )?
    } else {
        StartTarget::of_line(&args.words)?
    };
    let kind = bench_kind(load.bench, target.engine, Mode::Started, &target.image)?;
    if let Some(kind) = kind.filter(|k| !k.needs_server()) {
        return Err(Failure::usage(format!(
            "`run` starts a server, but --bench {} needs an idle container",
            kind.as_str()
        ))
        .hint("start one with `docker run … sleep infinity`, then `plimsoll profile` it"));
    }
    let mut request = load_request(load, kind)?;
    request.model = Some(target.model.clone());
    let preset_args = target.preset_arguments(&request.settings);
    request.extra_engine_args.splice(0..0, preset_args);
    let run_id = run_id();
    let (mut spec, health_path) = collect::launch_spec(Launch {
        name: args
            .name
            .clone()
            .unwrap_or_else(|| format!("plimsoll-{run_id}")),
        image: &target.image,
        run_id: &run_id,
        preset: &merged_preset(&args.start, &target)?,
        engine: target.engine,
        model: &target.model,
        settings: &request.settings,
        engine_args: &request.extra_engine_args,
        // A kept container has no deadline.
        longest: (!args.keep).then_some(load.timeout + STOP_GRACE),
    })?;
    if args.keep {
        spec.labels.insert(KEEP_LABEL.into(), "true".into());
    }
    if let Some(line) = &target.line {
        // Its own words, and what the flags here add.
        let further = arguments_of(target.engine, &request.settings).concat();
        let words = line.argv.iter().chain(&further);
        spec.cmd = words.chain(&request.extra_engine_args).cloned().collect();
        spec.entrypoint = line.entrypoint.as_ref().map(LaunchEntrypoint::words);
        spec.whole_cmd = Vec::new();
        // Others are reached by the container's address.
        spec.ports = line.published_ports();
        for name in &line.secrets {
            match std::env::var(name) {
                Ok(value) => spec.env.insert(name.clone(), value),
                // Written by its name alone.
                Err(_) if load.dry_run => spec.env.insert(name.clone(), String::new()),
                Err(_) => None,
            };
        }
    }
    Ok(Launched {
        args,
        run_id,
        target,
        kind,
        request,
        spec,
        health: HealthCheck {
            path: health_path,
            timeout: args.start.health_timeout(),
        },
    })
}

fn describe_launch(planned: &Launched<'_>) -> String {
    let spec = &planned.spec;
    match planned.args.written_as {
        None => spec.description(),
        Some(WrittenForm::DockerRun) => spec.docker_line(),
        Some(WrittenForm::Compose) => spec.compose_file(),
    }
}

/// Captures the engine from its start to the end of the load.
async fn capture(
    session: &CaptureSession,
    attached: AttachedEngine,
    planned: Launched<'_>,
    writer: CaptureWriter,
) -> Result<Collected, Failure> {
    let load = &planned.args.load;
    let attached = attached.with_program_state().await;
    let plan = CapturePlan {
        run_id: planned.run_id,
        repeats: load.repeats,
        baseline: load.baseline,
        watch: load.duration,
        health: Some(planned.health),
        ..attached.plan_capture(planned.kind, planned.request)
    };
    let _lock = attached.take_lock()?;
    let memory = session
        .open_memory(&plan, &memory_source(&load.memory_backend))
        .await?;
    Ok(session
        .start_recording(plan, memory, writer)?
        .collect_capture(None)
        .await)
}

async fn clean_up(
    console: &Console,
    runtime: &Runtime,
    id: &str,
    name: &str,
    keep: bool,
) -> Result<(), Failure> {
    if keep {
        console.print_note(&format!("container `{name}` keeps running (--keep)"));
        return Ok(());
    }
    (console.sink())(Progress::Stage(Stage::Cleanup));
    let ended = collect::end_container(runtime, id, STOP_GRACE).await;
    ended.map_err(|failure| {
        let message = format!("container `{name}` could not be removed: {failure}");
        Failure { message, ..failure }
            .hint("`plimsoll clean --apply` removes it once Docker answers again")
    })
}
