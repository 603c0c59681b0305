//! `plimsoll profile`: a container that runs already.

use super::load::{
    bench_kind, check_results, conclude, obey_signals, open_backend, open_results, request, tokio,
};
use crate::capture::Mode;
use crate::cli::ProfileArgs;
use crate::clock::Clock;
use crate::collect::{
    self, Deadline, Instruments, Plan, Stop, found_with, lock, meet, run_id, unless_stopped,
};
use crate::console::Console;
use crate::container::Runtime;
use crate::error::ExitCode;
use crate::progress::{Progress, Stage};
use crate::telemetry::Target;

pub fn run(console: &Console, args: ProfileArgs) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    tokio()?.block_on(async {
        obey_signals(&stop, console)?;
        profile(console, args, &stop).await
    })
}

async fn profile(console: &Console, args: ProfileArgs, stop: &Stop) -> anyhow::Result<ExitCode> {
    let news = console.sink();
    news(Progress::Stage(Stage::Inspect));
    let clock = Clock::start();
    let _deadline = Deadline::start(args.load.timeout.as_secs_f64(), stop);
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    let found = unless_stopped(stop, collect::find_running(&runtime, &args.container)).await?;
    let name = found.facts.name.clone();
    let (engine, evidence, serving) =
        meet(&runtime, &found, args.load.engine.as_ref(), stop).await?;
    let mode = if serving { Mode::Serving } else { Mode::Idle };
    let kind = bench_kind(args.load.bench, engine, mode, &name)?;
    // An in-process bench loads an engine of its own, whatever else runs in the container.
    let in_process = kind.is_some_and(|k| !k.needs_server());
    if serving && in_process {
        news(Progress::Warning(format!(
            "container `{name}` serves already: the bench loads a second engine beside it"
        )));
    }
    let mode = if in_process { Mode::Idle } else { mode };
    let request = request(&args.load, kind)?;
    let made_of = collect::program_state(&runtime, &found.facts).await;
    let plan = Plan {
        run_id: run_id(),
        found: found_with(found, &request),
        engine,
        engine_evidence: evidence,
        mode,
        request,
        kind,
        repeats: args.load.repeats,
        baseline: args.load.baseline,
        watch: args.load.duration,
        health: None,
        cooldown: collect::COOLDOWN,
        shared: collect::Shared::default(),
        workdir: None,
        kept: None,
        followed: false,
        made_of,
    };
    // Before the questions: an engine's bench takes a while to tell its flags.
    let _lock = match args.load.dry_run {
        true => None,
        false => Some(lock(&plan.found.facts)?),
    };
    if !args.load.dry_run {
        check_results(&args.load)?;
        let ended = runtime.clear_dead(&plan.found.facts).await;
        if ended > 0 {
            console.note(&format!(
                "{ended} processes that a dead plimsoll left in container `{name}` are ended"
            ));
        }
    }
    let setup = match collect::inspect(&runtime, &plan, &clock, stop, &news).await {
        Ok(setup) => setup,
        Err(failure) if failure.code == ExitCode::Environment => {
            return Err(collect::explain_end(&runtime, &plan.found, failure)
                .await
                .into());
        }
        Err(failure) => return Err(failure.into()),
    };
    if args.load.dry_run {
        console.data(collect::describe(&plan, &setup)?.as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let memory = open_backend(&args.load, &clock, &Target::of(&plan.found.facts))?;
    let (paths, writer) = open_results(&args.load, setup.model.as_deref().unwrap_or(&name))?;
    let tools = Instruments::start(&clock, memory, &plan, writer, stop, news)?;
    let collected = collect::collect(&runtime, &plan, Some(setup), tools).await;
    conclude(console, &args.load, &paths, collected)
}
