//! The files of a sweep beside its journal: what is to be run, what it runs on, and the results, also
//! of several runs as one.

use crate::cli::SweepRunArgs;
use crate::console::Console;
use crate::container::Runtime;
use crate::error::Failure;
use crate::matrix::{Cell, SweepPlan, resolved_yaml};
use crate::report::json::json_bytes;
use crate::report::sweep::{Results, StatusCounts, json};
use crate::store::write_atomically;
use crate::sweep::folder::{CONFIG_FILE, ENV_FILE};
use crate::sweep::merge::{default_output, merge_runs};
use crate::sweep::{Cells, Folder, SweepHistory, outputs};
use crate::telemetry;
use std::path::{Path, PathBuf};

/// Writes what is to be run and what it runs on, before anything runs.
pub fn write_head(folder: &Folder, plan: &SweepPlan, runtime: &Runtime) -> Result<(), Failure> {
    // A run that goes on may have other cells now; those of before keep their place.
    let mut cells = Cells::read_file(folder.path())?.unwrap_or_default();
    let now = Cells::of_plan(plan);
    cells.add_missing(now.cells.iter());
    cells.write_file(folder.path())?;
    let yaml = resolved_yaml(&plan.name, &cells.cells)
        .map_err(|e| unwritten("the resolved configuration", e))?;
    write_atomically(&folder.path().join(CONFIG_FILE), yaml.as_bytes())?;
    write_environment(folder, runtime)
}

/// Writes what a sweep or an experiment runs on.
pub fn write_environment(folder: &Folder, runtime: &Runtime) -> Result<(), Failure> {
    let env = read_environment(runtime);
    let bytes = json_bytes(&env).map_err(|e| unwritten("the environment", e))?;
    write_atomically(&folder.path().join(ENV_FILE), &bytes)
}

/// What this host is.
pub fn read_environment(runtime: &Runtime) -> serde_json::Value {
    let mut host = crate::host::read_facts();
    host.docker_version = Some(runtime.version().server.clone());
    host.docker_api_version = Some(runtime.version().api.clone());
    let (gpus, no_gpus) = match telemetry::open_host() {
        Ok(backend) => (
            Some(serde_json::json!({"backend": backend.facts(), "devices": backend.devices()})),
            None,
        ),
        Err(why) => (None, Some(why.to_string())),
    };
    serde_json::json!({
        "plimsoll_version": env!("CARGO_PKG_VERSION"),
        "host": host,
        "gpus": gpus,
        "gpus_unknown": no_gpus,
    })
}

/// Writes the results of all cells that have a row and shows them; gives how many ended how.
pub fn write_results(
    console: &Console,
    args: &SweepRunArgs,
    folder: &Folder,
    plan: &SweepPlan,
) -> anyhow::Result<StatusCounts> {
    let history = SweepHistory::read_journal(folder.path())?;
    let cells = Cells::read_file(folder.path())?.unwrap_or_default();
    let mut results = Results::new(&plan.name, cells.cells.iter(), &history.rows);
    results.started = history.sessions.first().map(|s| s.started.clone());
    results.took_s = Some(history.worked_s());
    outputs::write_results(&folder.result_paths(), &results)?;
    if args.json {
        console.print_json(&json::results_document(&results))?;
    } else {
        console.print_report(&outputs::results_report(&results)?)?;
    }
    let planned = plan
        .planned_cells()
        .chain(plan.skipped.iter().map(|s| &s.cell));
    let status = |cell: &Cell| history.rows.get(&cell.id).map(|row| row.status);
    Ok(StatusCounts::count_cells(planned.map(status)))
}

/// Joins runs and shows the results.
pub fn joined(
    console: &Console,
    dirs: &[PathBuf],
    output: Option<&Path>,
) -> anyhow::Result<Results> {
    let now = jiff::Zoned::now();
    let output = match output {
        Some(output) => output.to_owned(),
        None => default_output(dirs, &now),
    };
    let merged = merge_runs(dirs, &output, &now)?;
    console.print_report(&outputs::results_report(&merged.results)?)?;
    merged
        .results
        .notes
        .iter()
        .for_each(|n| console.print_note(n));
    console.print_note(&format!("results: {}", merged.folder.display()));
    Ok(merged.results)
}

fn unwritten(what: &str, e: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::bug(format!("{what} cannot be written as JSON")).caused_by(e)
}
