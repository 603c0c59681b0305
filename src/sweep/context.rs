//! What all parts of a running sweep share: the daemon, the settings, the folder, who watches.

use super::folder::Folder;
use super::journal::Journal;
use crate::collect::StopSignal;
use crate::container::Runtime;
use crate::error::Failure;
use crate::matrix::{Cell, CellGroup, CellId, CellRow, GroupId};
use crate::progress::{Progress, Sink};
use crate::sync::lock_data;
use crate::telemetry::BackendChoice;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Label of every container that a sweep starts: the id of the folder that it writes to.
pub const SWEEP_LABEL: &str = "plimsoll.sweep";

/// How cells are measured.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// One process for each cell.
    pub fresh: bool,
    /// A process for each run of a bench's client.
    pub fresh_client: bool,
    /// Containers of ours keep what their engines compile in a volume, from one start to the next.
    pub compile_cache: bool,
    /// What reads the memory.
    pub memory: BackendChoice,
    /// Between samples.
    pub sample_interval: Duration,
    /// Sampled before the load of a cell.
    pub baseline: Duration,
    /// Longest time for one cell.
    pub timeout: Duration,
    /// Longest time for an engine to serve.
    pub health_timeout: Duration,
    /// Longest time for memory to be given back between two engines.
    pub settle_timeout: Duration,
    /// Log kept per cell at most, bytes.
    pub max_log: u64,
    /// Further tries after a fault that passes.
    pub retries: u32,
}

/// Observer of a sweep's progress.
pub trait SweepWatcher: Send + Sync {
    /// A group begins; the result observes it until it is dropped.
    fn begin_lane(&self, label: &str) -> Box<dyn LaneWatcher>;
    /// A cell has ended, the `done`th of `of`; so much time is left as far as is known.
    fn cell_ended(&self, cell: &Cell, row: &CellRow, done: u64, of: u64);
    /// How long the rest will take, seconds.
    fn time_left(&self, seconds: Option<f64>);
    /// Something worth a line.
    fn note(&self, text: &str);
    /// Something that may spoil what comes out.
    fn warning(&self, text: &str);
}

/// Observer of one group's progress.
pub trait LaneWatcher: Send + Sync {
    /// A cell begins.
    fn begin_cell(&self, words: &str);
    /// Where it reports its progress.
    fn sink(&self) -> Sink;
}

/// Chooses which of a group's cells is measured next, by the rows so far: its place among those that are left; `None`
/// leaves them out.
pub type CellChoice<'a> =
    &'a (dyn Fn(&CellGroup, &[&Cell], &HashMap<CellId, CellRow>) -> Option<usize> + Send + Sync);

/// Shared by the groups that run.
pub struct SweepContext<'a> {
    /// The daemon.
    pub runtime: &'a Runtime,
    /// How cells are measured.
    pub options: &'a SweepOptions,
    /// Where the results go.
    pub folder: &'a Folder,
    /// Stops the sweep.
    pub stop: &'a StopSignal,
    /// Observer of the progress.
    pub watcher: &'a dyn SweepWatcher,
    /// Chooses the next cell by the rows of those before it; `None`: all in their order.
    pub(super) choice: Option<CellChoice<'a>>,
    /// The rows of this run.
    rows: Mutex<HashMap<CellId, CellRow>>,
    journal: Mutex<Journal>,
    /// Starts of engines that the forecast has not learnt yet: how long each took until it served, seconds.
    pub(super) starts: Mutex<Vec<(GroupId, f64)>>,
}

impl<'a> SweepContext<'a> {
    /// Everything together.
    pub fn new(
        runtime: &'a Runtime,
        options: &'a SweepOptions,
        folder: &'a Folder,
        stop: &'a StopSignal,
        watcher: &'a dyn SweepWatcher,
        journal: Journal,
    ) -> SweepContext<'a> {
        SweepContext {
            runtime,
            options,
            folder,
            stop,
            watcher,
            choice: None,
            rows: Mutex::default(),
            journal: Mutex::new(journal),
            starts: Mutex::default(),
        }
    }

    /// Lets cells be chosen one by one. What is left out gets no row.
    pub fn choose_cells(mut self, choice: CellChoice<'a>) -> SweepContext<'a> {
        self.choice = Some(choice);
        self
    }

    /// The place of a group's next cell among those that are left.
    pub(super) fn next_cell(&self, group: &CellGroup, left: &[&Cell]) -> Option<usize> {
        match self.choice {
            None => (!left.is_empty()).then_some(0),
            Some(choice) => choice(group, left, &lock_data(&self.rows)),
        }
    }

    /// Takes note of a row.
    pub(super) fn note_row(&self, row: &CellRow) {
        lock_data(&self.rows).insert(row.cell.clone(), row.clone());
    }

    /// The journal; groups that run side by side write to it in turn.
    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        lock_data(&self.journal)
    }

    /// Waits until the daemon answers again, or the sweep is stopped, or two minutes are over.
    pub async fn wait_for_docker(&self) -> Result<(), Failure> {
        const PATIENCE: Duration = Duration::from_secs(120);
        let back = async {
            while !self.runtime.daemon_answers().await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            back = tokio::time::timeout(PATIENCE, back) => back.map_err(|_| {
                Failure::environment("the Docker daemon did not come back within two minutes")
                    .hint("start it, then go on with --resume")
            }),
            () = self.stop.token().cancelled() => Err(self.stop.stop_failure()),
        }
    }
}

/// A sink that passes each warning and note once: the cells of a group would repeat them.
pub fn without_repeats(sink: Sink) -> Sink {
    let reported: Mutex<BTreeSet<String>> = Mutex::default();
    Arc::new(move |progress| {
        if let Progress::Warning(text) | Progress::Note(text) = &progress {
            let mut reported = lock_data(&reported);
            if !reported.insert(text.clone()) {
                return;
            }
        }
        sink(progress);
    })
}
