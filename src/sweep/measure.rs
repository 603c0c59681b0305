//! One cell on an engine that is ready: its run, and the row that comes of it.

use super::context::Context;
use super::engine::{Running, blocking, now, plan};
use super::request::request;
use super::trouble::Trouble;
use crate::capture::{Mode, RunEnd};
use crate::collect::{self, Loaded, MemorySource, Plan, Session};
use crate::engine::LoadKind;
use crate::error::Failure;
use crate::matrix::{Cause, Cell, Figures, Row, RowPhase, Status};
use crate::progress::Sink;
use crate::store::{CaptureWriter, RunPaths};
use std::time::{Duration, Instant};

/// Longest sampling after the load: what follows is the next cell's own beginning.
const COOLDOWN: Duration = Duration::from_millis(100);

/// A try at a cell.
pub struct Attempt<'a> {
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

impl Attempt<'_> {
    /// The row of a try that came to nothing.
    pub fn failed(&self, trouble: &Trouble) -> Row {
        Row {
            status: Status::Failed,
            cause: Some(trouble.cause),
            phase: Some(trouble.phase),
            message: Some(trouble.message.clone()),
            ..self.row()
        }
    }

    /// The row of a cell that was not tried.
    pub fn skipped(&self, cause: Cause, message: String) -> Row {
        Row {
            status: Status::Skipped,
            cause: Some(cause),
            message: Some(message),
            ..self.row()
        }
    }

    /// The row of an attempt with results that could not be kept.
    fn unstored(&self, failure: Failure) -> Row {
        self.failed(&Trouble::storing(failure))
    }

    fn row(&self) -> Row {
        Row {
            cell: self.cell.id.clone(),
            group: self.cell.group.clone(),
            status: Status::Done,
            cause: None,
            phase: None,
            message: None,
            attempt: self.number,
            ended: now(),
            took_s: self.began.elapsed().as_secs_f64(),
            profile: None,
            figures: Figures::default(),
        }
    }
}

/// How far a cell has come once the engine is done with it.
pub enum Measured {
    /// It has its row.
    Row(Box<Row>),
    /// Its load went well; what is left needs the engine no more.
    Loaded(Box<Unwritten>),
}

impl Measured {
    fn row(row: Row) -> Measured {
        Measured::Row(Box::new(row))
    }
}

/// A cell with its load done and its profile still to be written.
pub struct Unwritten {
    loaded: Loaded,
    paths: RunPaths,
}

impl Unwritten {
    /// Writes the capture and the profile down: the row.
    pub async fn write(
        self,
        context: &Context<'_>,
        attempt: &Attempt<'_>,
        news: &Sink,
    ) -> Result<Row, Failure> {
        let Unwritten { loaded, paths } = self;
        let collected = loaded.finish().await;
        // What was interrupted, be it in its very last moments, is tried again as a whole; its
        // capture stays for who wants to look.
        let whole = collected.capture.end == RunEnd::Completed;
        if !whole && context.stop.reason().is_some() {
            return Err(context.stop.failure());
        }
        let profile = context.folder.relative(&paths.profile);
        let news = news.clone();
        let ended = blocking(move || collect::derive_and_store(&news, &paths, collected)).await??;
        if let Err(failure) = ended.captured.and(ended.stored) {
            return Ok(attempt.unstored(failure));
        }
        let row = match &ended.failure {
            None => attempt.row(),
            Some(failure) => {
                attempt.failed(&Trouble::of_run(&ended.profile, failure, RowPhase::Bench))
            }
        };
        Ok(Row {
            profile: Some(profile),
            figures: Figures::of(&ended.profile),
            ..row
        })
    }
}

/// Puts a cell's load on the engine. `Err` only where the cell has no result at all: the sweep
/// stops.
pub async fn measure(
    context: &Context<'_>,
    running: &mut Running,
    attempt: &Attempt<'_>,
    kind: LoadKind,
    news: &Sink,
) -> Result<Measured, Failure> {
    let options = context.options;
    let session = Session::begin(&context.stop.part(), news.clone(), Some(options.timeout));
    let asked = request(attempt.cell, kind, options.sample_interval, options.timeout);
    let mut plan = Plan {
        repeats: attempt.cell.load.repeats,
        baseline: options.baseline,
        cooldown: options.baseline.min(COOLDOWN),
        followed: attempt.followed,
        ..plan(running, &attempt.run_id, asked, Some(kind))
    };
    let prepared = async {
        if kind.of_engine().is_some() {
            let id = &plan.facts().id;
            plan.workdir = Some(running.workdirs.next(context.runtime, id).await?);
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
        Err(failure) if context.stop.reason().is_some() => return Err(failure),
        Err(failure) => {
            let mut trouble = Trouble::preparing(&failure);
            let state = running.attached.container_state().await;
            let lives = state.is_ok_and(|s| s.is_some_and(|s| s.status == "running"));
            if running.attached.mode == Mode::Started && !lives {
                trouble.cause = Cause::EngineDied;
            }
            return Ok(Measured::row(attempt.failed(&trouble)));
        }
    };
    let places = context.folder.cell_paths(attempt.cell, attempt.number);
    let opened = places.and_then(|paths| {
        let writer = CaptureWriter::create(&paths.capture, options.max_log)?;
        Ok((paths, writer))
    });
    let (paths, writer) = match opened {
        Ok(opened) => opened,
        Err(failure) => return Ok(Measured::row(attempt.unstored(failure))),
    };
    let capture = session.record(plan, memory, writer)?;
    let loaded = capture.load(Some(setup)).await;
    let unwritten = Unwritten { loaded, paths };
    if unwritten.loaded.went_well() {
        Ok(Measured::Loaded(Box::new(unwritten)))
    } else {
        // What became of the engine must be known before the next cell meets it.
        Ok(Measured::row(
            unwritten.write(context, attempt, news).await?,
        ))
    }
}
