//! `plimsoll profile`: a container that runs already.

use super::fit;
use super::load::{
    bench_kind, check_results, conclude_run, load_request, open_results, run_stoppable,
};
use super::why::{loops, print_why};
use crate::capture::Mode;
use crate::cli::{BenchChoice, ProfileArgs};
use crate::collect::{
    AttachedEngine, CapturePlan, CaptureSession, StopSignal, describe_setup, explain_end,
};
use crate::console::Console;
use crate::container::LOST_WITHOUT_COMMANDS;
use crate::engine::LoadKind;
use crate::engine::settings::ignored_settings;
use crate::error::{ExitCode, Failure};
use crate::progress::Progress;
use std::time::Duration;

/// How long a server that loads is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(20 * 60);

pub fn run_profile(console: &Console, args: ProfileArgs) -> anyhow::Result<ExitCode> {
    run_stoppable(console, async |stop| {
        profile_container(console, args, stop).await
    })
}

async fn profile_container(
    console: &Console,
    args: ProfileArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let (load, progress) = (&args.load, console.sink());
    let target = args.process.target(args.container.as_deref(), &args.log);
    let target = target.ok_or_else(|| {
        Failure::usage("no engine is named to profile")
            .hint("name its container, as in `plimsoll profile my-vllm`; or --pid, --cgroup, --pod")
    })?;
    let attached = AttachedEngine::attach(&target, load.engine.as_ref(), stop, &progress).await;
    if attached.is_err() {
        if let Ok(runtime) = target.open_runtime(stop).await {
            print_why(console, &runtime, &target, loops).await;
        }
    }
    let mut attached = attached?;
    let wait = args.wait.unwrap_or(if console.is_terminal() {
        LONGEST_WAIT
    } else {
        Duration::ZERO
    });
    let needs_server = load.bench != BenchChoice::None && !load.dry_run;
    if attached.is_serving() && needs_server && !wait.is_zero() {
        let loaded = attached.wait_while_loading(wait, stop, &progress).await;
        if let Err(failure) = loaded {
            if stop.stop_reason().is_none() {
                print_why(console, &attached.runtime, &target, |_| true).await;
            }
            return Err(failure.into());
        }
    }
    // Its time begins when the engine serves.
    let session = CaptureSession::begin_session(stop, progress.clone(), Some(load.timeout));
    let name = attached.name().to_owned();
    let mut bench = load.bench;
    if bench == BenchChoice::Auto && !attached.runtime.has_daemon() {
        // Nothing runs inside, so its own bench cannot.
        bench = match attached.is_serving() {
            true => BenchChoice::Builtin,
            false => BenchChoice::None,
        };
    }
    let kind = bench_kind(bench, attached.engine, attached.mode, &name)?;
    if kind.is_some_and(|kind| kind != LoadKind::Builtin) && !attached.runtime.has_daemon() {
        return Err(Failure::usage(
            "without Docker plimsoll starts nothing beside the engine, so it cannot run the engine's own bench",
        )
        .hint("--bench builtin sends requests from here; --bench none only watches")
        .into());
    }
    // An in-process bench loads an engine of its own, whatever else runs in the container.
    if kind.is_some_and(|k| !k.needs_server()) {
        if attached.is_serving() {
            progress(Progress::Warning(format!(
                "container `{name}` serves already: this bench loads a second engine beside it, and both need memory; --bench serve uses the one that is there"
            )));
        }
        attached.mode = Mode::Idle;
    }
    let request = load_request(load, kind)?;
    for ignored in ignored_settings(attached.engine, attached.mode, &request.settings) {
        progress(Progress::Warning(ignored.sentence()));
    }
    let attached = attached.with_program_state().await;
    let plan = CapturePlan {
        repeats: load.repeats,
        baseline: load.baseline,
        watch: load.duration,
        ..attached.plan_capture(kind, request)
    };
    // Before the questions: an engine's bench takes a while to list its flags.
    let mut _lock = None;
    if !load.dry_run {
        _lock = Some(attached.take_lock()?);
        check_results(load)?;
        let ended = attached.runtime.clear_dead(plan.facts()).await;
        if ended > 0 {
            console.print_note(&format!(
                "{ended} processes that a dead plimsoll left in container `{name}` are ended"
            ));
        }
    }
    // Before any program of the engine runs, where the model is known.
    let named = plan.request.model.is_some();
    let checks_fit = plan.attached.mode == Mode::Idle && !load.dry_run;
    let fit = |model: Option<&str>| {
        fit::check_idle(
            console,
            &plan.attached,
            &plan.request,
            model,
            args.run_anyway,
        )
    };
    if checks_fit && named {
        fit(plan.request.model.as_deref())?;
    }
    let setup = match session.inspect_engine(&plan).await {
        Ok(setup) => setup,
        Err(failure) if failure.code == ExitCode::Environment => {
            let explained = explain_end(&attached.runtime, &attached.found, failure).await;
            return Err(explained.into());
        }
        Err(failure) => return Err(failure.into()),
    };
    if checks_fit && !named {
        fit(setup.model.as_deref())?;
    }
    if load.dry_run {
        console.write_data(describe_setup(&plan, &setup)?.as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let memory = session.open_memory(&plan, &load.memory_backend).await?;
    let (paths, writer) = open_results(load, setup.model.as_deref().unwrap_or(&name))?;
    let capture = session.start_recording(plan, memory, writer)?;
    let collected = capture.collect_capture(Some(setup)).await;
    if attached.runtime.is_read_only() && attached.runtime.has_daemon() {
        progress(Progress::Warning(format!(
            "Docker's socket only answers questions here (a read-only proxy?), so the profile has less: {LOST_WITHOUT_COMMANDS}"
        )));
    }
    conclude_run(console, load, &paths, collected)
}
