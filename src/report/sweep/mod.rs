//! A sweep for people and programs: its plan, and its results as a table, a document and a page.

pub mod csv;
pub mod json;
pub mod plan;

use crate::engine::shown_name;
use crate::matrix::{Cell, CellId, CellRow, EnginePlace, GroupId, RowStatus, ServerConfig};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Results of a sweep so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// Its name.
    pub name: String,
    /// When it began, RFC 3339, UTC.
    pub started: Option<String>,
    /// How long was worked on it, seconds.
    pub took_s: Option<f64>,
    /// What must be known of it; sentences.
    pub notes: Vec<String>,
    /// Every cell, with its row where it has one.
    pub cells: Vec<CellOutcome>,
}

/// A cell, and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct CellOutcome {
    /// The cell, without secrets.
    pub cell: Cell,
    /// `None`: not run yet.
    pub row: Option<CellRow>,
}

/// How many cells ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StatusCounts {
    /// All.
    pub cells: usize,
    /// Measured.
    pub done: usize,
    /// Not measured, with figures from their neighbours.
    #[serde(skip_serializing_if = "is_zero")]
    pub interpolated: usize,
    /// Tried in vain.
    pub failed: usize,
    /// Left out for a reason.
    pub skipped: usize,
    /// Not run yet.
    pub not_run: usize,
}

/// Runs that measure every cell have no such count.
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl StatusCounts {
    /// Of cells, by their status; `None`: not run yet.
    pub fn count_cells(cells: impl Iterator<Item = Option<RowStatus>>) -> StatusCounts {
        let mut counts = StatusCounts::default();
        for status in cells {
            counts.cells += 1;
            match status {
                Some(RowStatus::Done) => counts.done += 1,
                Some(RowStatus::Interpolated) => counts.interpolated += 1,
                Some(RowStatus::Failed) => counts.failed += 1,
                Some(RowStatus::Skipped) => counts.skipped += 1,
                None => counts.not_run += 1,
            }
        }
        counts
    }
}

impl Results {
    /// Cells with their rows. Secrets in the cells are left out.
    pub fn new<'a>(
        name: &str,
        cells: impl Iterator<Item = &'a Cell>,
        rows: &HashMap<CellId, CellRow>,
    ) -> Results {
        let mut servers: HashMap<GroupId, Arc<ServerConfig>> = HashMap::new();
        let outcome = |cell: &Cell| {
            let server = servers
                .entry(cell.group.clone())
                .or_insert_with(|| Arc::new(cell.server.redacted()));
            CellOutcome {
                row: rows.get(&cell.id).cloned(),
                cell: Cell {
                    server: server.clone(),
                    ..cell.clone()
                },
            }
        };
        Results {
            name: name.to_owned(),
            cells: cells.map(outcome).collect(),
            ..Results::default()
        }
    }

    /// How many cells ended how.
    pub fn cell_counts(&self) -> StatusCounts {
        StatusCounts::count_cells(self.cells.iter().map(CellOutcome::status))
    }

    /// Cells with a simulated engine or device.
    pub fn count_simulated(&self) -> usize {
        self.cells.iter().filter(|o| o.count_simulated()).count()
    }
}

impl CellOutcome {
    fn status(&self) -> Option<RowStatus> {
        self.row.as_ref().map(|row| row.status)
    }

    fn count_simulated(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.figures.simulated)
    }

    /// `done`, `interpolated`, `failed`, `skipped`, `not_run`.
    fn status_word(&self) -> &'static str {
        self.status().map_or("not_run", RowStatus::as_str)
    }
}

/// The model and where it runs: `org/Tiny-1B in container llm (vllm)`.
fn server_title(server: &ServerConfig) -> String {
    let place = match &server.place {
        EnginePlace::Container(name) => format!("container {name}"),
        EnginePlace::Image(_) => format!("image {}", server.place.place_name()),
    };
    let engine = server.engine.as_deref();
    let engine = engine.map_or(String::new(), |e| format!(" ({})", shown_name(e)));
    format!("{} in {place}{engine}", server.model)
}

/// The settings that the file names: `dtype bfloat16, tensor_parallel_size 2, --enforce-eager`.
fn server_settings(server: &ServerConfig) -> String {
    let set = server.settings.named().into_iter();
    let mut words: Vec<String> = set
        .map(|(name, value)| match value.as_str() {
            "true" => name.to_owned(),
            value => format!("{name} {value}"),
        })
        .collect();
    if !server.engine_args.is_empty() {
        words.push(server.engine_args.join(" "));
    }
    words.join(", ")
}
