//! Files of cells from one folder to another: linked where they can be, copied where not.

use crate::error::Failure;
use crate::matrix::CellId;
use crate::store::{bounded, private, write_atomically};
use crate::sweep::folder::CELLS_FOLDER;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What lies in the folder of a run's cells, by cell.
pub(super) struct CellFiles(HashMap<String, Vec<PathBuf>>);

impl CellFiles {
    /// Of a run. Names begin with the id of their cell.
    pub(super) fn of(run: &Path) -> CellFiles {
        let mut files: HashMap<String, Vec<PathBuf>> = HashMap::new();
        for entry in fs::read_dir(run.join(CELLS_FOLDER)).into_iter().flatten() {
            let Ok(entry) = entry else { continue };
            if let Some((id, _)) = entry.file_name().to_str().and_then(|n| n.split_once('-')) {
                files.entry(id.to_owned()).or_default().push(entry.path());
            }
        }
        CellFiles(files)
    }

    /// Of one cell, all attempts.
    pub(super) fn of_cell(&self, cell: &CellId) -> &[PathBuf] {
        self.0.get(&cell.0).map_or(&[], Vec::as_slice)
    }
}

/// Brings files, and folders with files, into another folder. Nothing but these is followed: a
/// link could lead anywhere.
pub(super) fn link_all(files: &[PathBuf], to: &Path) -> Result<(), Failure> {
    for from in files {
        link(from, to).map_err(|e| {
            let (from, to) = (from.display(), to.display());
            Failure::environment(format!("cannot copy `{from}` to `{to}`")).caused_by(e)
        })?;
    }
    Ok(())
}

/// A folder that each run may have: with its number where several have it. Gives the names, by the
/// paths of before.
pub(super) fn link_each(
    runs: &[&Path],
    name: &str,
    to: &Path,
) -> Result<HashMap<PathBuf, PathBuf>, Failure> {
    let mut names = HashMap::new();
    let mut there = numbered_files(runs, name);
    there.retain(|path| path.is_dir());
    for (i, path) in there.iter().enumerate() {
        let new = match there.len() {
            1 => PathBuf::from(name),
            _ => PathBuf::from(format!("{name}-{}", i + 1)),
        };
        let folder = to.join(&new);
        names.insert(path.clone(), new);
        let made = || -> io::Result<Vec<PathBuf>> {
            private::create_folder(&folder)?;
            let entries = fs::read_dir(path)?;
            entries.map(|entry| Ok(entry?.path())).collect()
        };
        let files = made().map_err(|e| {
            let message = format!("cannot copy `{}` to `{}`", path.display(), to.display());
            Failure::environment(message).caused_by(e)
        })?;
        link_all(&files, &folder)?;
    }
    Ok(names)
}

fn link(from: &Path, folder: &Path) -> io::Result<()> {
    let Some(name) = from.file_name() else {
        return Ok(());
    };
    let to = folder.join(name);
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        private::create_folder(&to)?;
        for entry in fs::read_dir(from)? {
            link(&entry?.path(), &to)?;
        }
    } else if kind.is_file() && fs::hard_link(from, &to).is_err() {
        // Another file system, or one without links.
        private::copy_file(from, &to)?;
    }
    Ok(())
}

/// A file that each run has: once where all are alike, else one for each, with its number.
pub(super) fn same_texts(runs: &[&Path], name: &str, to: &Path) -> Result<(), Failure> {
    let paths = numbered_files(runs, name);
    let texts: Vec<Vec<u8>> = paths
        .iter()
        .filter_map(|p| bounded::read_document(p).ok())
        .collect();
    let Some(first) = texts.first() else {
        return Ok(());
    };
    if texts.iter().all(|text| text == first) {
        return write_atomically(&to.join(name), first);
    }
    let (stem, ending) = halves(name);
    for (i, text) in texts.iter().enumerate() {
        write_atomically(&to.join(format!("{stem}-{}{ending}", i + 1)), text)?;
    }
    Ok(())
}

/// What runs have by this name, and joined runs by this name and a number.
pub fn numbered_files(runs: &[&Path], name: &str) -> Vec<PathBuf> {
    let (stem, ending) = halves(name);
    let number = |path: &Path| -> Option<u32> {
        let rest = path.file_name()?.to_str()?.strip_prefix(stem)?;
        match rest.strip_suffix(ending)? {
            "" => Some(0),
            number => number.strip_prefix('-')?.parse().ok(),
        }
    };
    let mut found = Vec::new();
    for run in runs {
        let entries = fs::read_dir(run).into_iter().flatten().flatten();
        let mut here: Vec<(u32, PathBuf)> = entries
            .filter(|entry| entry.file_type().is_ok_and(|t| !t.is_symlink()))
            .filter_map(|entry| Some((number(&entry.path())?, entry.path())))
            .collect();
        here.sort();
        found.extend(here.into_iter().map(|(_, path)| path));
    }
    found
}

/// `config.resolved.yaml` → `config.resolved` and `.yaml`.
fn halves(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('.').unwrap_or(name.len()))
}
