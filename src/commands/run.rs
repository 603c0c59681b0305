//! `plimsoll run`: a container of our own, started, profiled when it serves, stopped and removed.

use super::estimate::launched::read_line;
use super::fit;
use super::load::{bench_kind, conclude_run, load_request, open_results, run_stoppable};
use super::start::{StartTarget, merged_preset};
use crate::capture::{Mode, Request, RunEnd};
use crate::cli::{RunArgs, WrittenForm};
use crate::collect::{
    self, AttachedEngine, CapturePlan, CaptureSession, Collected, Deadline, HealthCheck, Launch,
    StopSignal, Turn, run_id, unless_stopped,
};
use crate::console::Console;
use crate::container::launch::LaunchSpec;
use crate::container::{KEEP_LABEL, Runtime};
use crate::engine::LoadKind;
use crate::engine::settings::{arguments_of, ignored_settings};
use crate::error::{ExitCode, Failure};
use crate::estimate::question::order_by_needs;
use crate::launch::{self, LaunchEntrypoint};
use crate::progress::{Progress, Sink, Stage};
use crate::store::CaptureWriter;
use crate::sync::lock_data;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
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

/// A container of ours, and what came of its capture.
struct StartedRun {
    name: String,
    id: String,
    captured: std::thread::Result<Result<Collected, Failure>>,
}

async fn launch_and_profile(
    console: &Console,
    args: RunArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let progress = console.sink();
    progress(Progress::Stage(Stage::Inspect));
    let mut planned = plan_launches(&args, &progress)?;
    for launched in &planned {
        launched.warn_ignored(&launched.progress(console, &Arc::default()));
    }
    if args.load.dry_run {
        console.write_data(describe_launches(&args, &planned).as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let _deadline = Deadline::start(args.load.timeout, stop);
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    if !runtime.is_remote() {
        let specs: Vec<_> = planned.iter().map(|l| (&l.spec, l.own())).collect();
        let order = fit::check_specs(console, &specs, &args.beside, args.run_anyway)?;
        planned = in_order(planned, order);
    }
    for launched in &planned {
        let target = &launched.target;
        target
            .ensure_image(&runtime, args.start.pull, stop, &progress)
            .await?;
    }
    // A bad place for the results must be reported before anything is started.
    let models = planned.iter().map(|launched| &launched.target.model);
    let places = models.map(|model| open_results(&args.load, model));
    let (paths, writers): (Vec<_>, Vec<_>) =
        places.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let whole = stop.child_stop();
    let speaker = Arc::default();
    let first_failed = OnceLock::new();
    let services: Vec<Option<String>> = planned.iter().map(|l| l.own().service.clone()).collect();
    let turns = Turn::of_runs(planned.len());
    let runs = planned.into_iter().zip(turns).zip(writers).enumerate();
    let runs = runs.map(async |(n, ((launched, turn), writer))| {
        let name = launched.spec.name.clone();
        let progress = launched.progress(console, &speaker);
        let started = launched
            .start(&runtime, turn, &whole.child_stop(), progress, writer)
            .await;
        let serves = |run: &StartedRun| match &run.captured {
            Ok(Ok(collected)) => matches!(
                collected.capture.end,
                RunEnd::Completed | RunEnd::BenchFailed(_)
            ),
            _ => false,
        };
        // A load that failed is no reason to end the others.
        if !started.as_ref().is_ok_and(serves) {
            let _ = first_failed.set(n);
            whole.stop_because(RunEnd::Failed(format!(
                "container `{name}` beside it ended"
            )));
        }
        started
    });
    let ended = futures::future::join_all(runs).await;
    let mut failures = Vec::new();
    // Those that were started last may need the others.
    for run in ended.iter().flatten().rev() {
        match clean_up(console, &runtime, &run.id, &run.name, args.keep).await {
            Ok(()) => stop.note_settled(&run.name),
            Err(failure) => failures.push(anyhow::Error::from(failure)),
        }
    }
    for (n, (started, paths)) in ended.into_iter().zip(&paths).enumerate() {
        let concluded = match started {
            Ok(run) => (run.captured)
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .map_err(anyhow::Error::from)
                .and_then(|collected| conclude_run(console, &args.load, paths, collected)),
            Err(failure) => {
                // Nothing was seen, so nothing is kept.
                let _ = std::fs::remove_dir_all(&paths.capture);
                Err(failure.into())
            }
        };
        let Err(error) = concluded else { continue };
        let stopped = stop.stop_reason().is_some();
        let error = of_service(services[n].as_deref().filter(|_| !stopped), error);
        if first_failed.get() == Some(&n) {
            // The run's own failure is the result; a failed cleanup is an additional warning.
            failures.insert(0, error);
        } else if !stopped {
            failures.push(error);
        }
    }
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else {
        return Ok(ExitCode::Done);
    };
    for other in failures {
        let hints = other.downcast_ref::<Failure>().map(|f| f.hints.join("; "));
        console.print_warning(&match hints.filter(|h| !h.is_empty()) {
            Some(hints) => format!("{other} ({hints})"),
            None => other.to_string(),
        });
    }
    Err(first)
}

/// A failure with the service that it is of.
fn of_service(service: Option<&str>, error: anyhow::Error) -> anyhow::Error {
    match (service, error.downcast::<Failure>()) {
        (Some(service), Ok(failure)) => {
            let message = format!("service `{service}`: {failure}");
            Failure { message, ..failure }.into()
        }
        (None, Ok(failure)) => failure.into(),
        (_, Err(error)) => error,
    }
}

/// All that is to be started, each after those that it needs.
fn plan_launches<'a>(args: &'a RunArgs, progress: &Sink) -> Result<Vec<Launched<'a>>, Failure> {
    let load = &args.load;
    let targets = if let Some(file) = &args.compose {
        StartTarget::of_compose(file, &args.service, load.engine.as_ref(), progress)?
    } else if args.words.is_empty() {
        vec![StartTarget::resolve_flags(
            args.preset.as_deref(),
            load.model.as_ref(),
            args.image.as_ref(),
            load.engine.as_ref(),
        )?]
    } else {
        let line = read_line(&args.words);
        vec![StartTarget::of_launch(line, load.engine.as_ref())?]
    };
    let planned: Result<Vec<_>, _> = targets.into_iter().map(|t| plan_launch(args, t)).collect();
    let mut planned = planned?;
    let name = |l: &Launched<'_>| {
        let service = l.own().service.as_deref().unwrap_or_default();
        format!("{service}: {}", l.target.model)
    };
    let names: Vec<String> = planned.iter().map(name).collect();
    for (n, launched) in planned.iter_mut().enumerate() {
        let others = names.iter().enumerate().filter(|(other, _)| *other != n);
        let others = others.map(|(_, name)| name);
        launched.request.beside = args.beside.iter().chain(others).cloned().collect();
    }
    let written = (0..planned.len()).collect();
    Ok(in_order(planned, written))
}

/// These in this order, but each after those that it needs.
fn in_order(planned: Vec<Launched<'_>>, order: Vec<usize>) -> Vec<Launched<'_>> {
    let needs = |n: usize, other: usize| {
        let other = planned[other].own().service.as_ref();
        other.is_some_and(|other| planned[n].own().after.contains(other))
    };
    let order = order_by_needs(order, &needs);
    let mut planned: Vec<_> = planned.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|n| planned[n].take())
        .collect()
}

/// What is to be measured of one.
fn plan_launch(args: &RunArgs, target: StartTarget) -> Result<Launched<'_>, Failure> {
    let load = &args.load;
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
    let service = target.line.as_ref().and_then(|l| l.service.as_ref());
    let (mut spec, health_path) = collect::launch_spec(Launch {
        name: args.name.clone().unwrap_or_else(|| match service {
            Some(service) => format!("plimsoll-{run_id}-{service}"),
            None => format!("plimsoll-{run_id}"),
        }),
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

fn describe_launches(args: &RunArgs, planned: &[Launched<'_>]) -> String {
    let specs = planned.iter().map(|launched| &launched.spec);
    match args.written_as {
        None => specs.map(LaunchSpec::description).collect(),
        Some(WrittenForm::DockerRun) => specs.map(LaunchSpec::docker_line).collect(),
        Some(WrittenForm::Compose) => {
            let head = "services:\n";
            let files = specs.map(LaunchSpec::compose_file);
            let services = files.map(|f| f.trim_start_matches(head).to_owned());
            head.to_owned() + &services.collect::<String>()
        }
    }
}

impl Launched<'_> {
    /// The line or service that it is of.
    fn own(&self) -> &launch::Launch {
        static NONE: LazyLock<launch::Launch> = LazyLock::new(launch::Launch::default);
        self.target.line.as_ref().unwrap_or(&NONE)
    }

    /// Warns of what the container will not have.
    fn warn_ignored(&self, progress: &Sink) {
        let warn = |text: String| progress(Progress::Warning(text));
        let own = self.own();
        for left in &own.left_out {
            warn(format!(
                "`{left}` is not used: plimsoll sets it itself, or has nothing like it"
            ));
        }
        for open in &own.unresolved {
            warn(format!(
                "{open} has no value in this shell; what depends on it is left out. Set it, or write the value"
            ));
        }
        let absent = own
            .secrets
            .iter()
            .filter(|s| !self.spec.env.contains_key(*s));
        for secret in absent {
            warn(format!(
                "{secret} is left out: this shell has no such variable"
            ));
        }
        for ignored in ignored_settings(self.target.engine, Mode::Started, &self.request.settings) {
            warn(ignored.sentence());
        }
    }

    /// Its progress, with its service's name. Side by side only the service that reported last shows its stages.
    fn progress(&self, console: &Console, speaker: &Arc<Mutex<String>>) -> Sink {
        let (all, speaker) = (console.sink(), Arc::clone(speaker));
        let Some(service) = self.own().service.clone() else {
            return all;
        };
        Arc::new(move |progress| match progress {
            Progress::Note(text) => all(Progress::Note(format!("{service}: {text}"))),
            Progress::Warning(text) => all(Progress::Warning(format!("{service}: {text}"))),
            Progress::Stage(stage) => {
                let before = std::mem::replace(&mut *lock_data(&speaker), service.clone());
                if before != service {
                    all(Progress::Note(format!("service `{service}`")));
                }
                all(Progress::Stage(stage));
            }
            other if *lock_data(&speaker) == service => all(other),
            _ => {}
        })
    }

    /// Starts its container when its turn comes, and captures the engine from its start until all loads are over.
    async fn start(
        self,
        runtime: &Runtime,
        turn: Turn,
        stop: &StopSignal,
        progress: Sink,
        writer: CaptureWriter,
    ) -> Result<StartedRun, Failure> {
        turn.start(stop).await;
        if stop.stop_reason().is_some() {
            return Err(stop.stop_failure());
        }
        progress(Progress::Stage(Stage::Start));
        let session = CaptureSession::begin_session(stop, progress, None);
        let name = self.spec.name.clone();
        // Before it is there: who leaves meanwhile must know of it too.
        stop.note_started(&name);
        let launched = collect::launch_container(runtime, &self.spec).await;
        let found = launched.inspect_err(|_| stop.note_settled(&name))?;
        let id = found.facts.id.clone();
        let attached = AttachedEngine::started(runtime, found, self.target.engine);
        let captured = self.capture(&session, attached, turn, writer);
        // A bug of ours must not leave a user's GPU with a container that is not watched.
        let captured = AssertUnwindSafe(captured).catch_unwind().await;
        Ok(StartedRun { name, id, captured })
    }

    async fn capture(
        self,
        session: &CaptureSession,
        attached: AttachedEngine,
        turn: Turn,
        writer: CaptureWriter,
    ) -> Result<Collected, Failure> {
        let load = &self.args.load;
        let attached = attached.with_program_state().await;
        let plan = CapturePlan {
            run_id: self.run_id,
            repeats: load.repeats,
            baseline: load.baseline,
            watch: load.duration,
            health: Some(self.health),
            turn: Some(turn),
            ..attached.plan_capture(self.kind, self.request)
        };
        let _lock = attached.take_lock()?;
        let memory = session.open_memory(&plan, &load.memory_backend).await?;
        Ok(session
            .start_recording(plan, memory, writer)?
            .collect_capture(None)
            .await)
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
