//! What ran out of memory in earlier runs of a sweep: one file for all runs of a name.

use super::folder::{OOM_FILE, of_name};
use crate::container::Runtime;
use crate::error::Failure;
use crate::matrix::{Cell, CellId, CellLoad, EnginePlace, GroupId, OomMemory, OomRecord};
use crate::store::{append_shared, private, read_lines};
use crate::telemetry;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OomLine {
    /// This ran out of memory.
    Oom(OomRecord),
    /// This did not, though something no larger had.
    Fitted {
        group: GroupId,
        load: CellLoad,
        cell: CellId,
        when: String,
    },
}

/// Memory of this machine's GPUs, bytes in all; where there is none, the host's own. What ran out
/// of memory on a machine of another size does not apply to this one.
pub fn machine_bytes() -> Option<u64> {
    let gpus = telemetry::open_host().ok().and_then(|backend| {
        let totals = backend.devices().into_iter().map(|d| d.total_bytes);
        totals.sum::<Option<u64>>()
    });
    gpus.or_else(|| crate::host::read_facts().memory_bytes)
}

/// Memory that the container of each group may have now, bytes; without a limit all there is. What is not
/// known is left out.
pub async fn present_limits(runtime: &Runtime, cells: &[Cell]) -> HashMap<GroupId, u64> {
    let mut limits = HashMap::new();
    for cell in cells {
        if limits.contains_key(&cell.group) {
            continue;
        }
        let limit = match &cell.server.place {
            EnginePlace::Image(preset) => {
                let limit = preset.memory.as_ref().and_then(|text| text.parse().ok());
                limit.and_then(|Bytes(bytes)| Some(bytes).filter(|b| *b > 0))
            }
            EnginePlace::Container(name) => match runtime.inspect_container(name).await {
                Ok(Some(found)) => found.facts.memory_limit_bytes,
                _ => continue,
            },
        };
        limits.insert(cell.group.clone(), limit.unwrap_or(u64::MAX));
    }
    limits
}

/// The memory of a sweep, kept beside the folders of its runs.
#[derive(Debug)]
pub struct OomFile {
    path: PathBuf,
    /// What is remembered.
    pub memory: OomMemory,
    /// Lines that could not be read; sentences.
    pub warnings: Vec<String>,
}

impl OomFile {
    /// Reads what the runs of this name remember. Lines that cannot be read are left out, with a
    /// warning: at worst a cell runs out of memory once more.
    pub fn open_for_sweep(results: &Path, name: &str) -> Result<OomFile, Failure> {
        OomFile::open_in_folder(&of_name(results, name))
    }

    /// The same in a folder: of a run that no other run is to learn of.
    pub fn open_in_folder(folder: &Path) -> Result<OomFile, Failure> {
        let path = folder.join(OOM_FILE);
        let found = read_lines::<OomLine>(&path)?;
        let mut memory = OomMemory::default();
        for line in found.records {
            match line {
                OomLine::Oom(record) => memory.add_record(record),
                OomLine::Fitted { group, load, .. } => {
                    memory.forget_fitted(&group, &load);
                }
            }
        }
        Ok(OomFile {
            path,
            memory,
            warnings: found.warnings,
        })
    }

    /// A cell ran out of memory.
    pub fn add_record(&mut self, record: OomRecord) -> Result<(), Failure> {
        self.append(&OomLine::Oom(record.clone()))?;
        self.memory.add_record(record);
        Ok(())
    }

    /// A cell was measured. Where it is remembered otherwise (the devices have more room now), that
    /// is taken back.
    pub fn forget_fitted(
        &mut self,
        group: &GroupId,
        load: &CellLoad,
        cell: &CellId,
        when: &str,
    ) -> Result<(), Failure> {
        if !self.memory.forget_fitted(group, load) {
            return Ok(());
        }
        self.append(&OomLine::Fitted {
            group: group.clone(),
            load: load.clone(),
            cell: cell.clone(),
            when: when.to_owned(),
        })
    }

    fn append(&self, line: &OomLine) -> Result<(), Failure> {
        if let Some(folder) = self.path.parent() {
            private::create_folders(folder).map_err(|e| {
                Failure::environment(format!("cannot write `{}`", self.path.display())).caused_by(e)
            })?;
        }
        append_shared(&self.path, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::samples::{cell, record};
    use std::io::Write;

    #[test]
    fn what_ran_out_of_memory_is_known_to_the_next_run_until_it_fits() {
        let dir = tempfile::tempdir().unwrap();
        let open = || OomFile::open_for_sweep(dir.path(), "s").unwrap();
        let (small, large) = (cell("m", 1, 1, 8), cell("m", 1, 1, 64));
        let mut first = open();
        assert!(first.memory.records().next().is_none());
        first.add_record(record(&large)).unwrap();
        assert_eq!(open().memory, first.memory);
        assert!(open().memory.record_covering(&large).is_some());
        assert!(
            OomFile::open_for_sweep(dir.path(), "other")
                .unwrap()
                .memory
                .records()
                .next()
                .is_none()
        );

        let mut second = open();
        second
            .forget_fitted(&small.group, &small.load, &small.id, "today")
            .unwrap();
        assert!(
            open().memory.record_covering(&large).is_some(),
            "less fitted"
        );
        second
            .forget_fitted(&large.group, &large.load, &large.id, "today")
            .unwrap();
        assert!(open().memory.records().next().is_none());
    }

    #[test]
    fn a_torn_line_costs_no_more_than_itself() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = OomFile::open_for_sweep(dir.path(), "s").unwrap();
        let (a, b) = (cell("a", 1, 1, 1), cell("b", 1, 1, 1));
        file.add_record(record(&a)).unwrap();
        let path = of_name(dir.path(), "s").join(OOM_FILE);
        let mut raw = std::fs::File::options().append(true).open(path).unwrap();
        raw.write_all(b"{\"oom\":{\"gro").unwrap();
        let mut next = OomFile::open_for_sweep(dir.path(), "s").unwrap();
        assert_eq!(next.warnings.len(), 1);
        next.add_record(record(&b)).unwrap();
        let read = OomFile::open_for_sweep(dir.path(), "s").unwrap();
        assert!(
            read.memory.record_covering(&a).is_some() && read.memory.record_covering(&b).is_some()
        );
        assert!(read.warnings.is_empty());
    }
}
