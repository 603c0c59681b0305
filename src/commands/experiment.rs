//! `plimsoll experiment`: one thing varied over a few levels, on one start of one engine.

mod levels;
mod results;
pub(super) mod target;

use super::load::{live_backend, max_log_bytes, run_stoppable};
use super::sweep::results::write_environment;
use super::sweep::watch::BoardWatcher;
use crate::cli::{ExperimentArgs, ExperimentFlags};
use crate::collect::{StopSignal, unless_stopped};
use crate::console::{BoardWords, Console};
use crate::container::Runtime;
use crate::error::{ExitCode, Failure};
use crate::experiment::ExperimentKind;
use crate::matrix::{
    BenchWord, Cell, CellId, CellRow, Forecast, OomMemory, PlanOptions, RowStatus, SweepDefinition,
    SweepPlan,
};
use crate::report::experiment::level_line;
use crate::store::free_path;
use crate::sweep::{
    Cells, Folder, Journal, OomFile, SweepContext, SweepOptions, SweepSession, SweepWork,
};
use levels::ExperimentLevels;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use target::ExperimentTarget;

/// Longest time for memory to be given back by an engine before.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Further tries of a level after a fault that passes.
const RETRIES: u32 = 2;

pub fn run_experiment(console: &Console, args: ExperimentArgs) -> anyhow::Result<ExitCode> {
    let levels = ExperimentLevels::of_command(&args.command)?;
    run_stoppable(console, async |stop| {
        experiment(console, &levels, stop).await
    })
}

async fn experiment(
    console: &Console,
    levels: &ExperimentLevels<'_>,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let flags = levels.flags;
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    let target = target::resolve_target(console, flags, &runtime, stop).await?;
    let options = sweep_options(flags, target.fresh, "an experiment")?;
    let cells = level_cells(levels, &target)?;
    if flags.dry_run {
        if flags.json {
            return Err(
                Failure::usage("--dry-run shows the levels of an experiment as text only")
                    .hint("leave --json out")
                    .into(),
            );
        }
        console.write_data(described(levels, &target).as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let plan = SweepPlan::for_sweep(
        &SweepDefinition {
            name: format!("experiment-{}", levels.kind.as_str()),
            cells: cells.clone(),
            ..SweepDefinition::default()
        },
        &PlanOptions {
            fresh: target.fresh,
            shard: None,
            only: &[],
            known_oom: &OomMemory::default(),
            retry_oom: false,
        },
    )?;
    let folder = new_folder(levels)?;
    let (mut journal, history) = Journal::open_folder(folder.path())?;
    let started = jiff::Timestamp::now().to_string();
    journal.write_session(&SweepSession::new(&plan.name, started, target.fresh, None))?;
    Cells::of_plan(&plan).write_file(folder.path())?;
    write_environment(&folder, &runtime)?;
    let work = SweepWork {
        plan: &plan,
        history: &history,
        retry_failed: false,
        retry_oom: false,
    };
    let ooms = OomFile::open_in_folder(folder.path())?;
    let board = console.show_board(BoardWords::EXPERIMENT, cells.len() as u64, 0);
    let watcher =
        BoardWatcher::with_text(console.clone(), board.clone(), level_lines(levels, &cells));
    let context = SweepContext::new(&runtime, &options, &folder, stop, &watcher, journal);
    let ended = crate::sweep::run_sweep(&context, &work, Forecast::default(), ooms).await;
    board.finish_board();
    drop(context);
    // Whatever happened: what was measured is written.
    let written = results::write_results(console, levels, &cells, &folder, ended.is_err());
    if let Err(failure) = ended {
        if let Err(e) = written {
            console.print_warning(&e.to_string());
        }
        let shown = folder.path().display();
        return Err(without_resume(failure)
            .hint(format!("the levels that were measured are in {shown}"))
            .into());
    }
    Ok(results::exit_code(&written?))
}

/// How the loads are measured; `what` is measured, as in "an experiment".
pub(super) fn sweep_options(
    flags: &ExperimentFlags,
    fresh: bool,
    what: &str,
) -> Result<SweepOptions, Failure> {
    Ok(SweepOptions {
        fresh,
        fresh_client: false,
        compile_cache: false,
        memory: live_backend(&flags.memory_backend, what)?,
        sample_interval: flags.sample_interval,
        baseline: flags.baseline,
        timeout: flags.timeout,
        health_timeout: flags.start.health_timeout(),
        settle_timeout: SETTLE_TIMEOUT,
        max_log: max_log_bytes(&flags.max_log)?,
        retries: RETRIES,
    })
}

/// A cell for each level, in their order.
/// Seeds are less than this: benches take no more than 32 bits.
const SEEDS: u64 = 1 << 32;

fn level_cells(
    levels: &ExperimentLevels<'_>,
    target: &ExperimentTarget,
) -> Result<Vec<Cell>, Failure> {
    let server = Arc::new(target.server.clone());
    if levels.kind == ExperimentKind::Concurrency && target.bench == BenchWord::Throughput {
        return Err(Failure::usage(
            "--bench throughput sends all requests at once, so it cannot test several levels of concurrency",
        )
        .hint("leave out --bench, or use --bench latency, whose batch size is the concurrency"));
    }
    // No level has prompts of another's, and no experiment those of one before: the engine's cache of prefixes would
    // answer for them.
    let base = (levels.flags.seed)
        .unwrap_or_else(|| jiff::Timestamp::now().as_millisecond().unsigned_abs());
    let cells = levels.levels.iter().zip(0..).map(|((_, asked), i)| {
        if asked.short_prompts.is_some() && target.bench != BenchWord::Builtin {
            return Err(Failure::usage(
                "only plimsoll's own client sends a mixture of prompt lengths, and it needs a server",
            )
            .hint("leave out --bench, and name a container in which the engine serves"));
        }
        let load = levels.cell_load(asked, target.bench, Some(base.wrapping_add(i) % SEEDS));
        Ok(Cell::new(server.clone(), load))
    });
    cells.collect()
}

/// The folder of this experiment: named by the user, or by kind and time.
fn new_folder(levels: &ExperimentLevels<'_>) -> Result<Folder, Failure> {
    let now = jiff::Zoned::now();
    if let Some(path) = &levels.flags.output_dir {
        return Folder::create_at(path, &now).map_err(without_resume);
    }
    let kind = levels.kind.as_str();
    let stem = format!("{kind}-{}", now.strftime("%Y%m%d_%H%M%S"));
    let experiments = levels.flags.results.dir.join("experiments");
    Folder::create_at(&free_path(&experiments, &stem, ""), &now).map_err(without_resume)
}

/// An experiment is not gone on with: it is short.
fn without_resume(mut failure: Failure) -> Failure {
    failure.hints.retain(|hint| !hint.contains("--resume"));
    failure
}

/// What is varied with its level, as a line has it.
fn name_level(kind: ExperimentKind, level: &str) -> String {
    match kind {
        ExperimentKind::Concurrency => format!("concurrency {level}"),
        ExperimentKind::Seqlen => format!("prompts of {level} tokens"),
        ExperimentKind::Mixed => format!("{level} prompts"),
    }
}

/// The line when a level ends: its name, and its figures or why there are none.
fn level_lines(
    levels: &ExperimentLevels<'_>,
    cells: &[Cell],
) -> impl Fn(&Cell, &CellRow) -> (String, String) + Send + Sync + 'static {
    let names: HashMap<CellId, (String, u64)> = cells
        .iter()
        .zip(&levels.levels)
        .map(|(cell, (name, asked))| (cell.id.clone(), (name.clone(), asked.all_requests())))
        .collect();
    let kind = levels.kind;
    move |cell, row| {
        let (name, asked) = names.get(&cell.id).cloned().unwrap_or_default();
        let detail = match row.status {
            RowStatus::Done => level_line(&row.figures, asked),
            _ => row.describe_cause(),
        };
        (name_level(kind, &name), detail)
    }
}

/// What would be run.
fn described(levels: &ExperimentLevels<'_>, target: &ExperimentTarget) -> String {
    let server = target.server.redacted();
    let mut text = format!(
        "experiment {}: {} in {}, {} levels\n",
        levels.kind.as_str(),
        server.model,
        server.place.place_name(),
        levels.levels.len()
    );
    for (name, asked) in &levels.levels {
        let words = levels
            .cell_load(asked, target.bench, levels.flags.seed)
            .spell_load();
        text.push_str(&format!("  level {name}: {words}\n"));
    }
    text
}
