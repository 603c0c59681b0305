//! Several runs joined into one: the parts of a sweep, or its stages. Cells are identified by id.

mod files;

use super::cells::Cells;
use super::folder::{
    self, CELLS_FOLDER, JOURNAL_FILE_HINT, ResultPaths, STARTS_FOLDER, worked_on_by,
};
use super::journal::{self, JOURNAL_FILE, SweepHistory, SweepSession};
use super::outputs;
use crate::error::Failure;
use crate::matrix::{CellId, CellRow, RowStatus};
use crate::report::sweep::Results;
use crate::store::{free_path, private, write_atomically};
pub use files::numbered_files;
use files::{CellFiles, link_all, link_each, same_texts};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// What was joined.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The new folder.
    pub folder: PathBuf,
    /// Files of the results in it.
    pub paths: ResultPaths,
    /// All cells; `notes` has the irregularities.
    pub results: Results,
}

/// One of the runs.
struct MergeSource {
    path: PathBuf,
    history: SweepHistory,
    cells: Cells,
}

/// Joins runs in a new folder, which can be resumed and joined again. A cell that was measured goes
/// before one that failed, and that before one that was skipped; of two alike the later is kept.
/// The folder appears whole or not at all.
pub fn merge_runs(dirs: &[PathBuf], output: &Path, now: &jiff::Zoned) -> Result<Merged, Failure> {
    let sources = read_sources(dirs)?;
    let parent = must_be_new(output)?;
    let mut notes = notes_on(&sources);
    let mut chosen = choose(&sources, &mut notes);

    let unwritable = |e| folder::cannot_write(output, e);
    private::create_folders(parent).map_err(unwritable)?;
    let shelter = private::temporary_folder(parent, ".plimsoll-merge-").map_err(unwritable)?;
    let made = shelter.path().join("merged");
    private::create_folders(&made.join(CELLS_FOLDER)).map_err(unwritable)?;
    let paths: Vec<&Path> = sources.iter().map(|s| s.path.as_path()).collect();
    let starts = link_each(&paths, STARTS_FOLDER, &made)?;
    gather_files(&sources, &mut chosen, (&made, &starts), &mut notes)?;
    for name in [folder::CONFIG_FILE, folder::ENV_FILE] {
        same_texts(&paths, name, &made)?;
    }

    let mut cells = Cells::default();
    for source in &sources {
        cells.add_missing(source.cells.cells.iter());
    }
    cells.write_file(&made)?;
    let rows: HashMap<CellId, CellRow> = chosen
        .iter()
        .map(|c| (c.row.cell.clone(), c.row.clone()))
        .collect();
    let mut results = Results::new(&merged_name(&sources), cells.cells.iter(), &rows);
    let sessions = || sources.iter().flat_map(|s| &s.history.sessions);
    results.started = sessions().map(|s| s.started.clone()).min();
    results.took_s = Some(sources.iter().map(|s| s.history.worked_s()).sum());
    results.notes = notes;

    let fresh = sessions().next().is_some() && sessions().all(|s| s.fresh);
    let session = SweepSession {
        joined: true,
        ..SweepSession::new(&results.name, now.timestamp().to_string(), fresh, None)
    };
    let starts = sources.iter().flat_map(|s| &s.history.starts);
    let journal = journal::journal_bytes(session, starts, chosen.iter().map(|c| &c.row))
        .map_err(|e| Failure::bug("the journal of the merged run cannot be made").caused_by(e))?;
    let stamp = folder::time_stamp(now);
    outputs::write_results(&ResultPaths::in_folder(&made, &stamp), &results)?;
    write_atomically(&made.join(JOURNAL_FILE), &journal)?;
    // Onto an empty folder this is allowed; onto one that was filled meanwhile it is not.
    fs::rename(&made, output).map_err(unwritable)?;
    Ok(Merged {
        folder: output.to_owned(),
        paths: ResultPaths::in_folder(output, &stamp),
        results,
    })
}

/// Where joined results go unless a folder is named: beside the first run.
pub fn default_output(dirs: &[PathBuf], now: &jiff::Zoned) -> PathBuf {
    let beside = dirs.first().and_then(|dir| fs::canonicalize(dir).ok());
    let parent = beside.as_deref().and_then(Path::parent);
    let parent = parent.unwrap_or(Path::new("."));
    free_path(parent, &format!("merged-{}", folder::time_stamp(now)), "")
}

/// Reads every run before anything is written.
fn read_sources(dirs: &[PathBuf]) -> Result<Vec<MergeSource>, Failure> {
    let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
    let mut sources = Vec::new();
    for dir in dirs {
        let shown = dir.display();
        let real = fs::canonicalize(dir).map_err(|e| {
            Failure::usage(format!("there is no folder `{shown}`"))
                .hint("name the folder of each run, as in results/NAME/TIME")
                .caused_by(e)
        })?;
        if !seen.insert(real) {
            return Err(
                Failure::usage(format!("`{shown}` is named twice")).hint("name each run once")
            );
        }
        if !dir.join(JOURNAL_FILE).is_file() {
            return Err(Failure::usage(format!("`{shown}` holds no run of a sweep"))
                .hint(JOURNAL_FILE_HINT));
        }
        let Some(cells) = Cells::read_file(dir)? else {
            return Err(Failure::usage(format!(
                "`{shown}` does not list its cells: it has no `{}`",
                folder::CELLS_FILE
            ))
            .hint("copy the whole folder of a run, not only its journal"));
        };
        sources.push(MergeSource {
            path: dir.clone(),
            history: SweepHistory::read_journal(dir)?,
            cells,
        });
    }
    Ok(sources)
}

/// The folder that the output will lie in.
fn must_be_new(output: &Path) -> Result<&Path, Failure> {
    let empty = match fs::read_dir(output) {
        Ok(mut entries) => entries.next().is_none(),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    if !empty {
        return Err(
            Failure::usage(format!("`{}` is not empty", output.display()))
                .hint("name a new folder with --output: results are not mixed with other files"),
        );
    }
    let parent = output.parent().filter(|p| !p.as_os_str().is_empty());
    Ok(parent.unwrap_or(Path::new(".")))
}

/// The name that all have; of stages of different names both.
fn merged_name(sources: &[MergeSource]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for session in sources.iter().filter_map(|s| s.history.sessions.last()) {
        if !names.contains(&session.name.as_str()) {
            names.push(&session.name);
        }
    }
    if names.is_empty() {
        "merged".into()
    } else {
        names.join("+")
    }
}

/// What must be known of the runs before their rows are read.
fn notes_on(sources: &[MergeSource]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut parts: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for source in sources {
        let shown = source.path.display();
        if let Some(who) = worked_on_by(&source.path) {
            notes.push(format!(
                "the sweep in `{shown}` is still being run ({who}): what it finishes later is not in here"
            ));
        }
        let warnings = source.history.warnings.iter();
        notes.extend(warnings.map(|w| format!("`{shown}`: {w}")));
        let known: BTreeSet<&CellId> = source.cells.cells.iter().map(|c| &c.id).collect();
        let strange = source.history.order.iter().filter(|id| !known.contains(id));
        match strange.count() {
            0 => {}
            n => notes.push(format!(
                "`{shown}` has {n} rows of cells that it does not describe: they are in the journal and in no table"
            )),
        }
        // Any of its processes may have worked on another part.
        for shard in source.history.sessions.iter().filter_map(|s| s.shard) {
            parts.entry(shard.of).or_default().insert(shard.index);
        }
    }
    for (of, there) in parts {
        let missing: Vec<String> = (1..=of)
            .filter(|i| !there.contains(i))
            .map(|i| format!("{i}/{of}"))
            .collect();
        if !missing.is_empty() {
            notes.push(format!(
                "{} of {of} parts are here; missing: {}",
                there.len(),
                missing.join(", ")
            ));
        }
    }
    let ways: BTreeSet<bool> = sources
        .iter()
        .flat_map(|s| &s.history.sessions)
        .map(|s| s.fresh)
        .collect();
    if ways.len() > 1 {
        notes.push(
            "some runs had a process for each cell and others an engine for each group: their figures are not alike"
                .into(),
        );
    }
    notes
}

/// A row that is kept, and its source.
struct ChosenRow {
    row: CellRow,
    source: usize,
}

/// The most informative row of each cell.
fn choose(sources: &[MergeSource], notes: &mut Vec<String>) -> Vec<ChosenRow> {
    let mut chosen: Vec<ChosenRow> = Vec::new();
    let mut at: HashMap<CellId, usize> = HashMap::new();
    let mut twice: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (source, one) in sources.iter().enumerate() {
        for row in one.history.rows_in_order() {
            let next = ChosenRow {
                row: row.clone(),
                source,
            };
            let Some(known) = at.get(&row.cell).and_then(|i| chosen.get_mut(*i)) else {
                at.insert(row.cell.clone(), chosen.len());
                chosen.push(next);
                continue;
            };
            let both = known.row.status == RowStatus::Done && row.status == RowStatus::Done;
            let lost = if is_preferred(row, &known.row) {
                std::mem::replace(known, next)
            } else {
                next
            };
            if both {
                *twice.entry((known.source, lost.source)).or_default() += 1;
            }
        }
    }
    for ((kept, lost), n) in twice {
        let cells = if n == 1 { "cell was" } else { "cells were" };
        let path = |i: usize| sources[i].path.display();
        notes.push(format!(
            "{n} {cells} measured in `{}` and in `{}`: the later figures, of `{}`, are kept",
            path(kept.min(lost)),
            path(kept.max(lost)),
            path(kept)
        ));
    }
    chosen
}

/// Whether a row goes before one that came earlier on the command line.
fn is_preferred(row: &CellRow, known: &CellRow) -> bool {
    // `Status` is in the order of information: done, interpolated, failed, skipped.
    match row.status.cmp(&known.status) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => match moment(row).zip(moment(known)) {
            Some((later, earlier)) => later > earlier,
            None => row.ended > known.ended,
        },
    }
}

fn moment(row: &CellRow) -> Option<jiff::Timestamp> {
    row.ended.parse().ok()
}

/// Profiles and captures of the rows that are kept.
fn gather_files(
    sources: &[MergeSource],
    chosen: &mut [ChosenRow],
    (made, starts): (&Path, &HashMap<PathBuf, PathBuf>),
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let all: Vec<CellFiles> = sources.iter().map(|s| CellFiles::of(&s.path)).collect();
    let mut lost = 0;
    for one in chosen {
        let files = all[one.source].of_cell(&one.row.cell);
        link_all(files, &made.join(CELLS_FOLDER))?;
        let Some(profile) = one.row.profile.take() else {
            continue;
        };
        // Folders of starts may have another name now.
        let from = sources[one.source].path.join(&profile);
        let moved = |folder: &Path| Some(starts.get(folder)?.join(from.file_name()?));
        one.row.profile = match from.parent().and_then(moved) {
            Some(start) => (made.join(&start).is_file()).then(|| start.to_string_lossy().into()),
            None => files.contains(&from).then_some(profile),
        };
        lost += usize::from(one.row.profile.is_none());
    }
    if lost > 0 {
        notes.push(format!(
            "{lost} profiles are not where their rows say: the figures are here, the profiles are not"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
