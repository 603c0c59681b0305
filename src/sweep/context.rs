//! What all parts of a running sweep share: the daemon, the settings, the folder, who watches.

use super::folder::Folder;
use super::journal::Journal;
use crate::collect::StopSignal;
use crate::container::Runtime;
use crate::error::Failure;
use crate::matrix::{Cell, CellRow, GroupId};
use crate::progress::{Progress, Sink};
use crate::sync::lock_data;
use crate::telemetry::BackendChoice;
use std::collections::BTreeSet;
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
    /// The way in for its news.
    fn sink(&self) -> Sink;
}

/// Whether a cell is to be measured, asked just before.
pub type WantedCells<'a> = &'a (dyn Fn(&Cell) -> bool + Send + Sync);

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
    /// Which cells are still wanted when their turn comes; `None`: all.
    pub(super) wanted: Option<WantedCells<'a>>,
    journal: Mutex<Journal>,
    /// Starts of engines that the forecast has not learnt yet, seconds.
    starts: Mutex<Vec<(GroupId, f64)>>,
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
            wanted: None,
            journal: Mutex::new(journal),
            starts: Mutex::default(),
        }
    }

    /// Leaves out cells that are no longer wanted when their turn comes, by the rows of those before them: these are
    /// written by then. They get no row.
    pub fn measure_wanted(mut self, wanted: WantedCells<'a>) -> SweepContext<'a> {
        self.wanted = Some(wanted);
        self
    }

    /// The journal; groups that run side by side write to it in turn.
    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        lock_data(&self.journal)
    }

    /// Notes how long an engine took until it served.
    pub fn note_start(&self, group: &GroupId, took_s: f64) {
        let mut starts = lock_data(&self.starts);
        starts.push((group.clone(), took_s));
    }

    /// The starts since the last question.
    pub fn take_starts(&self) -> Vec<(GroupId, f64)> {
        let mut starts = lock_data(&self.starts);
        std::mem::take(&mut starts)
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
    let told: Mutex<BTreeSet<String>> = Mutex::default();
    Arc::new(move |news| {
        if let Progress::Warning(text) | Progress::Note(text) = &news {
            let mut told = lock_data(&told);
            if !told.insert(text.clone()) {
                return;
            }
        }
        sink(news);
    })
}
