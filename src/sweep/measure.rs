//! One cell on an engine that is ready: its run, and the row that comes of it.

use super::context::SweepContext;
use super::engine::{RunningEngine, now_rfc3339, plan_run, run_blocking};
use super::request::request_for_cell;
use super::trouble::CellTrouble;
use crate::capture::{Mode, RunEnd};
use crate::collect::{self, CapturePlan, CaptureSession, LoadedCapture, MemorySource};
use crate::engine::LoadKind;
use crate::error::Failure;
use crate::matrix::{Cell, CellRow, RowCause, RowFigures, RowPhase, RowStatus};
use crate::progress::Sink;
use crate::store::{CaptureWriter, RunPaths};
use std::time::{Duration, Instant};

/// Longest sampling after the load: what follows is the next cell's own beginning.
const COOLDOWN: Duration = Duration::from_millis(100);

/// A try at a cell.
pub struct CellAttempt<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// From 1.
    pub number: u32,
    /// The run.
    pub run_id: String,
    /// When it began.
    pub began: Instant,
    /// Whether a cell on the same engine comes after it.
    pub followed: bool,
}

impl CellAttempt<'_> {
    /// The row of a try that came to nothing.
    pub fn failed_row(&self, trouble: &CellTrouble) -> CellRow {
        let (profile, figures) = match trouble.start.as_deref() {
            Some(start) => (Some(start.profile.clone()), start.figures.clone()),
            None => (None, RowFigures::default()),
        };
        CellRow {
            profile,
            figures,
            status: RowStatus::Failed,
            cause: Some(trouble.cause),
            phase: Some(trouble.phase),
            message: Some(trouble.message.clone()),
            ..self.empty_row()
        }
    }

    /// The row of a cell that was not tried.
    pub fn skipped_row(&self, cause: RowCause, message: String) -> CellRow {
        CellRow {
            status: RowStatus::Skipped,
            cause: Some(cause),
            message: Some(message),
            ..self.empty_row()
        }
    }

    /// The row of an attempt with results that could not be kept.
    fn unstored(&self, failure: Failure) -> CellRow {
        self.failed_row(&CellTrouble::while_storing(failure))
    }

    fn empty_row(&self) -> CellRow {
        CellRow {
            cell: self.cell.id.clone(),
            group: self.cell.group.clone(),
            status: RowStatus::Done,
            attempt: self.number,
            ended: now_rfc3339(),
            took_s: self.began.elapsed().as_secs_f64(),
            ..CellRow::default()
        }
    }
}

/// How far a cell has come once the engine is done with it.
pub enum CellMeasurement {
    /// It has its row.
    Row(Box<CellRow>),
    /// Its load went well; what is left needs the engine no more.
    Loaded(Box<UnwrittenCell>),
}

impl CellMeasurement {
    fn row(row: CellRow) -> CellMeasurement {
        CellMeasurement::Row(Box::new(row))
    }
}

/// A cell with its load done and its profile still to be written.
pub struct UnwrittenCell {
    loaded: LoadedCapture,
    paths: RunPaths,
}

impl UnwrittenCell {
    /// Writes the capture and the profile down: the row.
    pub async fn write_results(
        self,
        context: &SweepContext<'_>,
        attempt: &CellAttempt<'_>,
        progress: &Sink,
    ) -> Result<CellRow, Failure> {
        let UnwrittenCell { loaded, paths } = self;
        let collected = loaded.finish().await;
        // What was interrupted, be it in its very last moments, is tried again as a whole; its
        // capture stays for who wants to look.
        let whole = collected.capture.end == RunEnd::Completed;
        if !whole && context.stop.stop_reason().is_some() {
            return Err(context.stop.stop_failure());
        }
        let profile = context.folder.relative_path(&paths.profile);
        let progress = progress.clone();
        let ended =
            run_blocking(move || collect::derive_and_store(&progress, &paths, collected)).await??;
        if let Err(failure) = ended.captured.and(ended.stored) {
            return Ok(attempt.unstored(failure));
        }
        let row = match &ended.failure {
            None => attempt.empty_row(),
            Some(failure) => attempt.failed_row(&CellTrouble::of_run(
                &ended.profile,
                failure,
                RowPhase::Bench,
            )),
        };
        Ok(CellRow {
            profile: Some(profile),
            figures: RowFigures::of_profile(&ended.profile),
            ..row
        })
    }
}

/// Puts a cell's load on the engine. `Err` only where the cell has no result at all: the sweep
/// stops.
pub async fn measure_cell(
    context: &SweepContext<'_>,
    running: &mut RunningEngine,
    attempt: &CellAttempt<'_>,
    kind: LoadKind,
    progress: &Sink,
) -> Result<CellMeasurement, Failure> {
    let options = context.options;
    let session = CaptureSession::begin_session(
        &context.stop.child_stop(),
        progress.clone(),
        Some(options.timeout),
    );
    let asked = request_for_cell(attempt.cell, kind, options.sample_interval, options.timeout);
    let mut plan = CapturePlan {
        repeats: attempt.cell.load.repeats,
        baseline: options.baseline,
        cooldown: options.baseline.min(COOLDOWN),
        followed: attempt.followed,
        ..plan_run(running, &attempt.run_id, asked, Some(kind))
    };
    let prepared = async {
        if kind.of_engine().is_some() {
            let id = &plan.facts().id;
            plan.workdir = Some(running.workdirs.next_folder(context.runtime, id).await?);
            plan.kept = running.kept_bench(context, kind, &attempt.run_id).await?;
        }
        let known = running.setups.entry(kind).or_default();
        let setup = session.inspect_once(&plan, known).await?;
        let memory = session
            .open_memory(&plan, &MemorySource::Live(options.memory))
            .await?;
        Ok::<_, Failure>((setup, memory))
    };
    let (setup, memory) = match prepared.await {
        Ok(ready) => ready,
        Err(failure) if context.stop.stop_reason().is_some() => return Err(failure),
        Err(failure) => {
            let mut trouble = CellTrouble::while_preparing(&failure);
            let state = running.attached.container_state().await;
            let lives = state.is_ok_and(|s| s.is_some_and(|s| s.status == "running"));
            if running.attached.mode == Mode::Started && !lives {
                trouble.cause = RowCause::EngineDied;
            }
            return Ok(CellMeasurement::row(attempt.failed_row(&trouble)));
        }
    };
    let places = context.folder.cell_paths(attempt.cell, attempt.number);
    let opened = places.and_then(|paths| {
        let writer = CaptureWriter::create_folder(&paths.capture, options.max_log)?;
        Ok((paths, writer))
    });
    let (paths, writer) = match opened {
        Ok(opened) => opened,
        Err(failure) => return Ok(CellMeasurement::row(attempt.unstored(failure))),
    };
    let capture = session.start_recording(plan, memory, writer)?;
    let loaded = capture.run_load(Some(setup)).await;
    let unwritten = UnwrittenCell { loaded, paths };
    if unwritten.loaded.went_well() {
        Ok(CellMeasurement::Loaded(Box::new(unwritten)))
    } else {
        // The state of the engine must be known before the next cell uses it.
        Ok(CellMeasurement::row(
            unwritten.write_results(context, attempt, progress).await?,
        ))
    }
}
