//! What each cell of a folder was: `cells.json`, beside the journal, which names cells by id alone.

use super::folder::CELLS_FILE;
use crate::error::Failure;
use crate::matrix::{Cell, CellId, CellLoad, GroupId, ServerConfig, SweepPlan};
use crate::store::{bounded, write_atomically};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Version of the file. A reader refuses a newer one.
const CELLS_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct CellsDocument {
    cells_version: u32,
    servers: BTreeMap<GroupId, ServerConfig>,
    cells: Vec<CellEntry>,
}

#[derive(Serialize, Deserialize)]
struct CellEntry {
    id: CellId,
    group: GroupId,
    load: CellLoad,
}

/// The cells that a folder's rows speak of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cells {
    /// Each once, in the order in which they were planned.
    pub cells: Vec<Cell>,
}

impl Cells {
    /// The cells of a plan, those that are skipped too, without secrets.
    pub fn of_plan(plan: &SweepPlan) -> Cells {
        let skipped = plan.skipped.iter().map(|skip| &skip.cell);
        let mut cells = Cells::default();
        cells.add_missing(plan.planned_cells().chain(skipped));
        cells
    }

    /// Adds cells that are not there yet.
    pub fn add_missing<'a>(&mut self, cells: impl Iterator<Item = &'a Cell>) {
        let mut known: HashSet<CellId> = self.cells.iter().map(|c| c.id.clone()).collect();
        let mut servers: BTreeMap<GroupId, Arc<ServerConfig>> = BTreeMap::new();
        for cell in cells {
            if known.insert(cell.id.clone()) {
                let server = servers
                    .entry(cell.group.clone())
                    .or_insert_with(|| Arc::new(cell.server.redacted()));
                self.cells.push(Cell {
                    server: server.clone(),
                    ..cell.clone()
                });
            }
        }
    }

    /// Reads a folder's; `None` where it has none.
    pub fn read_file(folder: &Path) -> Result<Option<Cells>, Failure> {
        let path = folder.join(CELLS_FILE);
        let bytes = match bounded::read_document(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(bounded::unreadable_file(&path, e)),
        };
        let document: CellsDocument = bounded::parse_json(&bytes).map_err(|e| {
            Failure::usage(format!(
                "`{}`, the list of the sweep's cells, cannot be read",
                path.display()
            ))
            .hint("copy the sweep's folder again, or begin a new run")
            .caused_by(e)
        })?;
        if document.cells_version > CELLS_VERSION {
            return Err(crate::store::newer_plimsoll(&path, "written"));
        }
        let servers: BTreeMap<GroupId, Arc<ServerConfig>> = document
            .servers
            .into_iter()
            .map(|(id, server)| (id, Arc::new(server)))
            .collect();
        let cells = document.cells.into_iter().filter_map(|entry| {
            Some(Cell {
                server: servers.get(&entry.group)?.clone(),
                id: entry.id,
                group: entry.group,
                load: entry.load,
            })
        });
        Ok(Some(Cells {
            cells: cells.collect(),
        }))
    }

    /// Writes them to a folder; what was there before is replaced.
    pub fn write_file(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(CELLS_FILE);
        let servers = self.cells.iter();
        let document = CellsDocument {
            cells_version: CELLS_VERSION,
            servers: servers
                .map(|c| (c.group.clone(), ServerConfig::clone(&c.server)))
                .collect(),
            cells: self
                .cells
                .iter()
                .map(|c| CellEntry {
                    id: c.id.clone(),
                    group: c.group.clone(),
                    load: c.load.clone(),
                })
                .collect(),
        };
        let mut bytes = serde_json::to_vec(&document).map_err(|e| {
            Failure::environment(format!("cannot write `{}`", path.display())).caused_by(e)
        })?;
        bytes.push(b'\n');
        write_atomically(&path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::EnginePlace;
    use crate::matrix::samples::{cell, server};
    use crate::preset::Preset;

    #[test]
    fn cells_are_read_back_as_they_were_but_for_their_secrets() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Cells::read_file(dir.path()).unwrap(), None);
        let mut secretive = ServerConfig::clone(&server("m"));
        let mut preset = Preset {
            image: Some("llm:1".into()),
            ..Preset::default()
        };
        preset.env.insert("HF_TOKEN".into(), "swordfish-42".into());
        preset.env.insert("OMP_NUM_THREADS".into(), "4".into());
        secretive.place = EnginePlace::Image(Box::new(preset));
        secretive.engine_args = vec!["--api-key".into(), "open-sesame-1".into()];
        let load = cell("m", 1, 2, 3).load;
        let all = [cell("m", 1, 2, 3), Cell::new(Arc::new(secretive), load)];
        let mut cells = Cells::default();
        cells.add_missing(all.iter());
        cells.write_file(dir.path()).unwrap();

        let text = std::fs::read_to_string(dir.path().join(CELLS_FILE)).unwrap();
        assert!(
            !text.contains("swordfish") && !text.contains("sesame"),
            "{text}"
        );
        assert!(text.contains(r#""OMP_NUM_THREADS":"4""#), "{text}");
        let mut read = Cells::read_file(dir.path()).unwrap().unwrap();
        assert_eq!(read, cells);
        assert_eq!(read.cells[0], all[0]);
        assert_eq!(read.cells[1].id, all[1].id);
        read.add_missing(all.iter());
        assert_eq!(read, cells, "each is there once");
    }
}
