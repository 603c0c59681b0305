//! A sweep or a tuning as an array job of Slurm: submitted, waited for, and its shards joined.

use super::place::{RunPlace, no_run_in};
use super::results::joined;
use super::watch::BoardWatcher;
use crate::cli::SweepRunArgs;
use crate::collect::StopSignal;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::matrix::{Cell, CellId, OomMemory, RowStatus, SweepDefinition};
use crate::report::sweep::StatusCounts;
use crate::sweep::slurm::{ShardEnd, Slurm, SlurmJob, SubmittedJob, WaitOutcome, render_script};
use crate::sweep::{SweepHistory, SweepWatcher, folder};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What the shards of a job have in common.
pub struct ShardWork<'a> {
    /// Flags of the measurement.
    pub words: Vec<String>,
    /// The file, where there is one.
    pub text: Option<&'a str>,
    /// Every cell that may be measured.
    pub cells: &'a [&'a Cell],
    /// Starts of engines, as they are dealt out.
    pub groups: usize,
    /// The results directory.
    pub results: &'a Path,
}

/// What became of a submission.
pub enum Submission {
    /// Nothing is waited for.
    Ended(ExitCode),
    /// The folders of the shards that have begun.
    Over(SubmittedJob, Vec<PathBuf>),
}

/// Submits the sweep to Slurm, waits for its shards and joins them.
pub async fn submit_sweep(
    console: &Console,
    place: &RunPlace<'_>,
    args: &SweepRunArgs,
    sweep: &SweepDefinition,
    text: Option<&str>,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let plan = super::plan_sweep(args, sweep, None, &OomMemory::default())?;
    let cells: Vec<&Cell> = plan.planned_cells().collect();
    let work = ShardWork {
        words: super::passed_words(sweep),
        text,
        cells: &cells,
        groups: plan.groups.len(),
        results: &args.results.dir,
    };
    match submit_shards(console, place, &work, stop).await? {
        Submission::Ended(code) => Ok(code),
        Submission::Over(job, dirs) => over(console, &job, &cells, &dirs),
    }
}

/// Submits the shards of a run to Slurm and waits for them.
pub async fn submit_shards(
    console: &Console,
    place: &RunPlace<'_>,
    work: &ShardWork<'_>,
    stop: &StopSignal,
) -> anyhow::Result<Submission> {
    let (machines, cells) = (place.machines, work.cells);
    let groups = u32::try_from(work.groups).unwrap_or(u32::MAX);
    let dir = absolute(&run_folder(place)?)?;
    let results = absolute(work.results)?;
    let mut words = work.words.clone();
    words.push(format!("--results-dir={}", results.display()));
    let program = std::env::current_exe().map_err(|e| {
        Failure::environment(
            "plimsoll cannot find its own program file, which the Slurm jobs start",
        )
        .hint("was it moved or updated meanwhile? start it by its full path")
        .caused_by(e)
    })?;
    let job = SlurmJob {
        program,
        tunes: place.verb == "tune",
        name: place.name.to_owned(),
        shards: parts(&dir, machines.nodes, groups)?,
        dir: dir.clone(),
        has_file: work.text.is_some(),
        words,
        partition: machines.partition.clone(),
        gres: machines.gres.clone(),
        time_limit: machines.time_limit.clone(),
        account: machines.account.clone(),
        sbatch_args: machines.sbatch_arg.clone(),
    };
    if machines.print {
        console.write_data(render_script(&job)?.as_bytes())?;
        return Ok(Submission::Ended(ExitCode::Done));
    }
    let slurm = Slurm::default();
    let progress = console.sink();
    let bytes = work.text.map(str::as_bytes);
    let submitted = slurm.submit_job(&job, bytes, &progress).await?;
    console.print_note(&format!(
        "job {}: {} shards of {} cells, in {}",
        submitted.id,
        submitted.shards,
        cells.len(),
        dir.display()
    ));
    if machines.no_wait {
        console.print_note(&submitted.describe_leaving());
        return Ok(Submission::Ended(ExitCode::Done));
    }
    let board = console.show_sweep(cells.len() as u64, 0);
    let watcher = BoardWatcher::new(console.clone(), board.clone(), cells.iter().copied());
    let mut reported = HashSet::new();
    let mut look = || report_rows(&submitted, cells, &watcher, &mut reported);
    let waited = slurm
        .wait_for_job(&submitted, &mut look, &progress, stop.token())
        .await?;
    look();
    board.finish_board();
    match waited {
        WaitOutcome::Left => {
            console.print_note(&submitted.describe_leaving());
            Ok(Submission::Ended(ExitCode::Interrupted))
        }
        WaitOutcome::Over(ends) => {
            let dirs = begun_shards(console, &submitted, &ends)?;
            Ok(Submission::Over(submitted, dirs))
        }
    }
}

/// Reports the rows that have come into the shards' journals.
fn report_rows(
    job: &SubmittedJob,
    cells: &[&Cell],
    watcher: &BoardWatcher,
    reported: &mut HashSet<CellId>,
) {
    let known: HashMap<&CellId, &Cell> = cells.iter().map(|c| (&c.id, *c)).collect();
    for shard in 1..=job.shards {
        // A journal that is being written to may be torn at its end; the next look has it whole.
        let Ok(history) = SweepHistory::read_journal(&job.shard_dir(shard)) else {
            continue;
        };
        for row in history.rows_in_order() {
            let cell = known.get(&row.cell);
            if let (Some(cell), true) = (cell, reported.insert(row.cell.clone())) {
                watcher.cell_ended(cell, row, reported.len() as u64, cells.len() as u64);
            }
        }
    }
}

/// The folders of the shards that have begun, all other ends reported.
fn begun_shards(
    console: &Console,
    job: &SubmittedJob,
    ends: &[ShardEnd],
) -> Result<Vec<PathBuf>, Failure> {
    for end in ends
        .iter()
        .filter(|e| e.state.as_deref() != Some("completed"))
    {
        let state = end
            .state
            .as_deref()
            .unwrap_or("ended, Slurm does not say how");
        console.print_note(&format!(
            "shard {}: {state}; all that it printed is in {}",
            end.shard,
            job.shard_log(end.shard).display()
        ));
    }
    let dirs: Vec<PathBuf> = (1..=job.shards)
        .map(|n| job.shard_dir(n))
        .filter(|dir| folder::has_journal(dir))
        .collect();
    if dirs.is_empty() {
        return Err(Failure::run("none of the jobs on Slurm measured anything")
            .hint(format!("what the jobs printed is in {}", job.dir.display())));
    }
    Ok(dirs)
}

/// Joins what the shards have measured, and reports what is missing.
fn over(
    console: &Console,
    job: &SubmittedJob,
    cells: &[&Cell],
    dirs: &[PathBuf],
) -> anyhow::Result<ExitCode> {
    let joined = joined(console, dirs, None)?;
    // The shards may hold other cells, of a job before this one.
    let status: HashMap<&CellId, Option<RowStatus>> = (joined.cells.iter())
        .map(|o| (&o.cell.id, o.row.as_ref().map(|row| row.status)))
        .collect();
    let asked = cells.iter().map(|c| status.get(&c.id).copied().flatten());
    let counts = StatusCounts::count_cells(asked);
    let missing = counts.not_run;
    if missing > 0 {
        console.print_warning(&format!(
            "{missing} cells were not run: submit again with --output-dir={} to run only these",
            job.dir.display()
        ));
    }
    Ok(super::exit_code_of_sweep(&counts))
}

/// The folder of this run: the one that was named, the latest where it is resumed, or a new name.
fn run_folder(place: &RunPlace<'_>) -> Result<PathBuf, Failure> {
    let in_shards = |path: &Path| !folder::list_shards(path).is_empty();
    match place.named_folder() {
        Some(path) if place.goes_on() && !in_shards(path) => Err(no_run_in(path)),
        Some(path) => Ok(path.clone()),
        None if place.goes_on() => place.latest_run(in_shards),
        None => {
            let time = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S").to_string();
            Ok(folder::of_name(&place.runs, place.name).join(time))
        }
    }
}

/// Into how many parts the sweep is divided: a run that goes on keeps to those that it was begun in.
fn parts(dir: &Path, nodes: Option<u32>, groups: u32) -> Result<u32, Failure> {
    // A shard without a group would have nothing to do.
    let wanted = nodes.unwrap_or(groups).min(groups).max(1);
    let shards = folder::list_shards(dir);
    let mut begun = shards
        .iter()
        .filter_map(|dir| SweepHistory::first_session(dir));
    let Some(of) = begun.find_map(|session| Some(session.shard?.of)) else {
        return Ok(wanted);
    };
    match nodes {
        Some(nodes) if nodes != of && wanted != of => Err(Failure::usage(format!(
            "the run in `{}` was begun in {of} parts, and --nodes asks for {nodes}",
            dir.display()
        ))
        .hint("leave out --nodes, or begin a new run")),
        _ => Ok(of),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| {
        Failure::environment(format!(
            "the absolute path of `{}` cannot be found",
            path.display()
        ))
        .caused_by(e)
    })
}
