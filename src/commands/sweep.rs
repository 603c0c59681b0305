//! `plimsoll sweep`: a matrix of models and settings, each cell measured, whatever happens.

pub(super) mod fit;
pub(super) mod place;
pub(super) mod remote;
pub(super) mod results;
pub(super) mod slurm;
pub(super) mod source;
pub(super) mod watch;

use super::load::{exit_code_of, live_backend, max_log_bytes, quote_path, run_stoppable};
use crate::cli::{SweepArgs, SweepCommand, SweepRunArgs, words_to_pass_on};
use crate::collect::{StopSignal, unless_stopped};
use crate::console::Console;
use crate::container::Runtime;
use crate::error::{ExitCode, Failure};
use crate::matrix::{
    Cell, CellGroup, CellId, CellRow, Forecast, OomMemory, OomRecord, PlanOptions, RowCause, Shard,
    SweepDefinition, SweepPlan, interpolate_cells, next_deciding_cell,
};
use crate::report::format::text::{PageDetail, render_page};
use crate::report::layout::{counted_noun, format_duration};
use crate::report::sweep::StatusCounts;
use crate::report::sweep::plan::{plan_json, plan_report};
use crate::sweep::oom::{machine_bytes, present_limits};
use crate::sweep::{
    Folder, Journal, OomFile, SweepContext, SweepHistory, SweepOptions, SweepSession, SweepWork,
    earlier, preflight,
};
use place::RunPlace;
use remote::RemoteRun;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use watch::BoardWatcher;

/// Default time limit of a cell.
const CELL_TIMEOUT: Duration = Duration::from_secs(3600);
/// Default time limit for an engine to serve.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(20 * 60);

pub fn run_sweep_command(console: &Console, args: SweepArgs) -> anyhow::Result<ExitCode> {
    if let Some(SweepCommand::Merge(args)) = args.command {
        results::joined(console, &args.dirs, args.output.as_deref())?;
        return Ok(ExitCode::Done);
    }
    let args = args.run;
    let (sweep, text) = source::read_source(&args)?;
    let place = RunPlace {
        verb: "sweep",
        name: &sweep.name,
        runs: args.results.dir.clone(),
        resume: args.resume.as_ref(),
        output_dir: args.output_dir.as_ref(),
        retry_failed: args.retry_failed,
        shard: RunPlace::parse_shard(&args.machines)?,
        machines: &args.machines,
    };
    let options = sweep_options(&args, &sweep)?;
    run_stoppable(console, async |stop| {
        if args.machines.submit.is_some() {
            return slurm::submit_sweep(console, &place, &args, &sweep, text.as_deref(), stop)
                .await;
        }
        if let Some(url) = &args.machines.docker_host {
            let asked = RemoteRun {
                words: passed_words(&sweep),
                text: text.as_deref(),
                dry_run: args.dry_run,
                json: args.json,
                go_on: &|here| go_on(&args, here),
            };
            return remote::run_remotely(console, url, &place, &asked, stop).await;
        }
        if args.dry_run {
            return dry_run(console, &args, &sweep, &place, &options, stop).await;
        }
        sweep_through(console, &args, &sweep, &place, &options, stop).await
    })
}

/// What is asked of the plimsoll that runs a sweep elsewhere; the copy of its file has another name.
fn passed_words(sweep: &SweepDefinition) -> Vec<String> {
    let mut words = words_to_pass_on(std::env::args_os());
    words.push(format!("--name={}", sweep.name));
    words
}

fn sweep_options(args: &SweepRunArgs, sweep: &SweepDefinition) -> Result<SweepOptions, Failure> {
    Ok(SweepOptions {
        fresh: args.fresh,
        fresh_client: args.fresh_client,
        compile_cache: args.compile_cache,
        memory: live_backend(&args.memory_backend, "a sweep")?,
        sample_interval: args.sample_interval,
        baseline: args.baseline,
        timeout: args.timeout.or(sweep.timeout).unwrap_or(CELL_TIMEOUT),
        health_timeout: (args.health_timeout.or(sweep.health_timeout)).unwrap_or(HEALTH_TIMEOUT),
        settle_timeout: args.settle_timeout,
        max_log: max_log_bytes(&args.max_log)?,
        retries: args.retries,
    })
}

fn plan_sweep(
    args: &SweepRunArgs,
    sweep: &SweepDefinition,
    shard: Option<Shard>,
    known_oom: &OomMemory,
) -> Result<SweepPlan, Failure> {
    SweepPlan::for_sweep(
        sweep,
        &PlanOptions {
            fresh: args.fresh,
            shard,
            only: &args.only,
            known_oom,
            retry_oom: args.retry_oom,
        },
    )
}

async fn dry_run(
    console: &Console,
    args: &SweepRunArgs,
    sweep: &SweepDefinition,
    place: &RunPlace<'_>,
    options: &SweepOptions,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let history = match place.earlier_run()? {
        Some(folder) => {
            let history = SweepHistory::read_journal(&folder)?;
            same_run(&history, &sweep.name, args.fresh, place.shard, &folder)?;
            history
        }
        None => SweepHistory::default(),
    };
    let known = OomFile::open_for_sweep(&args.results.dir, &sweep.name)?;
    // The plan is shown even where Docker is absent.
    let runtime = unless_stopped(stop, Runtime::connect()).await;
    let limits = match &runtime {
        Ok(runtime) => present_limits(runtime, &sweep.cells).await,
        Err(_) => HashMap::new(),
    };
    let known = known.memory.clone().on_devices_of(machine_bytes(), &limits);
    let mut plan = plan_sweep(args, sweep, place.shard, &known)?;
    let verdicts = fit::ask_estimates(&plan, runtime.as_ref().ok(), options.memory, stop).await;
    plan.apply_verdicts(verdicts, |group| args.run_anyway || history.measured(group));
    let forecast = earlier::forecast_from_runs(&args.results.dir, &sweep.name, None);
    let all = (plan.planned_cells().count() + plan.skipped.len()) as u64;
    plan = work_left(args, &plan, &history).plan_left();
    if place.goes_on() {
        let left = (plan.planned_cells().count() + plan.skipped.len()) as u64;
        console.print_note(&format!("{} of {all} cells have their row", all - left));
    }
    if args.json {
        console.write_data(&plan_json(&plan, &forecast)?)?;
    } else {
        console.print_report(&plan_report(&plan, &forecast, console.is_verbose()))?;
    }
    if let Some(percent) = args.adaptive {
        console.print_note(&format!(
            "--adaptive leaves out cells that their neighbours give within {percent} %: these are the most"
        ));
    }
    let runtime = runtime?;
    let look = preflight::check_needs(&runtime, &plan, options.memory, &args.results.dir, stop);
    let found = look.await?;
    found.notes.iter().for_each(|n| console.print_note(n));
    found.warnings.iter().for_each(|w| console.print_warning(w));
    let Some((_, first, hints)) = found.problems.first() else {
        return Ok(ExitCode::Done);
    };
    for (group, words, _) in &found.problems {
        console.print_warning(&format!("group {group} cannot be measured: {words}"));
    }
    let failure = Failure::environment(match found.problems.len() {
        1 => first.clone(),
        n => format!(
            "{n} of {} groups of cells cannot be measured, each for the reason above",
            plan.groups.len()
        ),
    });
    Err(hints.iter().cloned().fold(failure, Failure::hint).into())
}

fn work_left<'a>(
    args: &SweepRunArgs,
    plan: &'a SweepPlan,
    history: &'a SweepHistory,
) -> SweepWork<'a> {
    SweepWork {
        plan,
        history,
        retry_failed: args.retry_failed,
        retry_oom: args.retry_oom,
    }
}

/// The plan of what is left: a line, or with -v the page.
fn note_plan(console: &Console, plan: &SweepPlan, forecast: &Forecast) {
    if console.is_verbose() {
        let report = plan_report(plan, forecast, true);
        let page = render_page(&report, console.text_options(), PageDetail::Essential);
        return page.lines().for_each(|line| console.print_note(line));
    }
    let skipped = match plan.skipped.len() {
        0 => String::new(),
        n => format!(" ({n} skipped)"),
    };
    if plan.groups.is_empty() {
        let name = &plan.name;
        return console.print_note(&format!("sweep {name}: nothing left to measure{skipped}"));
    }
    console.print_note(&format!(
        "sweep {}: {}{skipped} in {}, {}, about {}; -v shows the plan",
        plan.name,
        counted_noun(plan.planned_cells().count(), "cell"),
        counted_noun(plan.groups.len(), "group"),
        counted_noun(plan.engine_starts(), "engine start"),
        format_duration(forecast.estimate_plan(plan).seconds),
    ));
}

/// Refuses to mix what cannot stand in one table: another sweep, another part of it, or another way
/// of measuring.
pub(super) fn same_run(
    history: &SweepHistory,
    name: &str,
    fresh: bool,
    shard: Option<Shard>,
    folder: &Path,
) -> Result<(), Failure> {
    let Some(first) = history.sessions.first() else {
        return Ok(());
    };
    let shown = folder.display();
    if first.name != name {
        return Err(Failure::usage(format!(
            "`{shown}` holds a run of sweep `{}`, and this is sweep `{name}`",
            first.name
        ))
        .hint("name the folder of this one, or leave out --resume"));
    }
    if first.shard != shard {
        let words = |part: Option<Shard>| part.map_or("the whole".into(), |s| format!("part {s}"));
        return Err(Failure::usage(format!(
            "the run in `{shown}` was begun as {} of the sweep, and this is {}",
            words(first.shard),
            words(shard)
        ))
        .hint("resume it with the same --shard, or leave out --resume to begin a new run"));
    }
    if first.fresh != fresh {
        let with = if first.fresh { "with" } else { "without" };
        return Err(Failure::usage(format!("the run in `{shown}` was begun {with} --fresh, and its cells would not compare with others"))
        .hint("resume it as it was begun, or leave out --resume to begin a new run"));
    }
    Ok(())
}

/// The command that goes on with a run.
fn go_on(args: &SweepRunArgs, folder: &Path) -> String {
    let file = args.file.as_deref().or(args.config.as_deref());
    let file = file.map(quote_path);
    let mut words = vec![file.unwrap_or_else(|| "…".into())];
    // Without these it would be another run.
    words.extend(
        args.machines
            .shard
            .as_ref()
            .map(|part| format!("--shard={part}")),
    );
    words.extend(args.fresh.then(|| "--fresh".into()));
    words.extend(args.adaptive.map(|percent| format!("--adaptive={percent}")));
    let host = args.machines.docker_host.as_ref();
    words.extend(host.map(|url| format!("--docker-host={url}")));
    words.push(format!("--resume={}", quote_path(folder)));
    format!("go on with `plimsoll sweep {}`", words.join(" "))
}

/// Gives the cells that needed no measurement their rows.
fn write_interpolated(folder: &Folder, plan: &SweepPlan, tolerance: f64) -> Result<(), Failure> {
    let (mut journal, history) = Journal::open_folder(folder.path())?;
    let when = jiff::Timestamp::now().to_string();
    let groups = plan.groups.iter();
    let mut rows =
        groups.flat_map(|group| interpolate_cells(group, &history.rows, tolerance, &when));
    rows.try_for_each(|row| journal.write_end(&row))
}

async fn sweep_through(
    console: &Console,
    args: &SweepRunArgs,
    sweep: &SweepDefinition,
    place: &RunPlace<'_>,
    options: &SweepOptions,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let shard = place.shard;
    // A mistyped id must leave no folder behind that would be the latest run.
    plan_sweep(args, sweep, shard, &OomMemory::default())?;
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    let (folder, resumed) = place.open_folder(console)?;
    let (mut journal, history) = Journal::open_folder(folder.path())?;
    let ooms = OomFile::open_for_sweep(&args.results.dir, &sweep.name)?;
    same_run(&history, &sweep.name, args.fresh, shard, folder.path())?;
    let warnings = history.warnings.iter().chain(&ooms.warnings);
    warnings.for_each(|w| console.print_warning(w));
    // What ran out of memory in this run itself makes other cells implied, not known.
    let of_this_run = |record: &OomRecord| {
        let row = history.rows.get(&record.cell);
        row.is_some_and(|row| row.cause == Some(RowCause::Oom) && row.ended == record.when)
    };
    let limits = present_limits(&runtime, &sweep.cells).await;
    let remembered = ooms.memory.clone().on_devices_of(machine_bytes(), &limits);
    let mut plan = plan_sweep(args, sweep, shard, &remembered.without_records(of_this_run))?;
    let verdicts = fit::ask_estimates(&plan, Some(&runtime), options.memory, stop).await;
    plan.apply_verdicts(verdicts, |group| args.run_anyway || history.measured(group));
    let so_far = Some((folder.path(), &history));
    let forecast = earlier::forecast_from_runs(&args.results.dir, &sweep.name, so_far);
    let work = work_left(args, &plan, &history);
    let rest = work.plan_left();
    note_plan(console, &rest, &forecast);
    let total = (plan.planned_cells().count() + plan.skipped.len()) as u64;
    let left = (rest.planned_cells().count() + rest.skipped.len()) as u64;
    if resumed {
        console.print_note(&format!(
            "going on in {}: {} of {total} cells have their row",
            folder.path().display(),
            total - left
        ));
    }
    let session = SweepSession::new(
        &plan.name,
        jiff::Timestamp::now().to_string(),
        args.fresh,
        shard,
    );
    journal.write_session(&session)?;
    results::write_head(&folder, &plan, &runtime)?;
    let board = console.show_sweep(total, total - left);
    let skipped = plan.skipped.iter().map(|skip| &skip.cell);
    let cells = plan.planned_cells().chain(skipped);
    let watcher = BoardWatcher::new(console.clone(), board.clone(), cells);
    // The curves of a group are those of the plan, whatever of it has its row already.
    let tolerance = args.adaptive.map(|percent| percent / 100.0);
    let deciding = |group: &CellGroup, left: &[&Cell], rows: &HashMap<CellId, CellRow>| {
        let whole = plan.groups.iter().find(|other| other.id == group.id)?;
        next_deciding_cell(whole, left, rows, tolerance?)
    };
    let mut context = SweepContext::new(&runtime, options, &folder, stop, &watcher, journal);
    if tolerance.is_some() {
        context = context.choose_cells(&deciding);
    }
    let ended = crate::sweep::run_sweep(&context, &work, forecast, ooms).await;
    board.finish_board();
    drop(context);
    let ended = match tolerance {
        Some(tolerance) => ended.and_then(|()| write_interpolated(&folder, &plan, tolerance)),
        None => ended,
    };
    // Whatever happened: what was done is written.
    let counts = results::write_results(console, args, &folder, &plan);
    console.print_note(&format!("results: {}", folder.path().display()));
    if let Err(failure) = ended {
        if let Err(e) = counts {
            console.print_warning(&e.to_string());
        }
        return Err(failure.hint(go_on(args, folder.path())).into());
    }
    Ok(exit_code_of_sweep(&counts?))
}

/// Where all was skipped there are no figures either.
fn exit_code_of_sweep(counts: &StatusCounts) -> ExitCode {
    match (counts.done, counts.skipped) {
        (0, 1..) => ExitCode::RunFailed,
        _ => exit_code_of(counts.done, counts.failed + counts.not_run),
    }
}
