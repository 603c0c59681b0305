//! One group from its first cell to its last: an engine for as many of them as it serves, another
//! where it ended, and a row for each cell whatever happens.

use super::context::{LaneWatcher, SweepContext, without_repeats};
use super::engine::{self, EngineNeed, RunningEngine, now_rfc3339};
use super::journal::CellBegin;
use super::measure::{CellAttempt, CellMeasurement, measure_cell};
use super::release::{self, UnsettledMemory};
use super::request::load_kind;
use super::trouble::CellTrouble;
use crate::collect;
use crate::engine::LoadKind;
use crate::error::Failure;
use crate::matrix::{
    BenchWord, Cell, CellGroup, CellId, CellRow, EnginePlace, OomMemory, OomRecord, RowCause,
    RowPhase, RowStatus,
};
use crate::preset::Preset;
use crate::progress::Sink;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::time::Instant;

/// A group on its devices.
pub struct GroupRunner<'a> {
    /// Shared by all.
    pub context: &'a SweepContext<'a>,
    /// What to run.
    pub group: &'a CellGroup,
    /// The group's container with the GPUs that were chosen for it.
    pub preset: Option<Preset>,
    /// How often each cell was begun before.
    pub attempts: &'a HashMap<CellId, u32>,
    /// Takes a row; it is in the journal then.
    pub take: &'a (dyn Fn(&Cell, CellRow) -> Result<(), Failure> + Sync),
}

/// What keeps engines from starting, by what they were needed for. A container that serves cannot
/// run a bench that loads the engine itself, and serves others.
#[derive(Default)]
struct StartBlockers {
    of_need: Vec<(EngineNeed, CellTrouble)>,
    /// Memory of another group's engine was not given back.
    before: Option<CellTrouble>,
    /// That of its own.
    unsettled: Option<UnsettledMemory>,
}

impl StartBlockers {
    fn blocker_for(&self, need: EngineNeed) -> Option<&CellTrouble> {
        let own = self.unsettled.as_ref().map(|u| &u.trouble);
        let found = self.of_need.iter().find(|(of, _)| *of == need);
        let held = self.before.as_ref().or(own);
        held.or(found.map(|(_, trouble)| trouble))
    }

    /// An engine has ended; its memory may not be given back.
    fn note_unsettled(&mut self, held: Option<UnsettledMemory>) {
        self.unsettled = self.unsettled.take().or(held);
    }
}

impl GroupRunner<'_> {
    /// Runs every cell that is left. `Err`: the sweep cannot go on. `hopeless`: known reasons why
    /// an engine did not start for a cell of this group. `before`: an earlier engine still holds
    /// memory on its devices. Also returns the memory that its own engine still holds.
    pub async fn run_cells(
        &self,
        watcher: &dyn LaneWatcher,
        known: &OomMemory,
        hopeless: Vec<(&Cell, CellTrouble)>,
        before: Option<CellTrouble>,
    ) -> (Result<(), Failure>, Option<UnsettledMemory>) {
        let of = |(cell, trouble)| (self.need(cell), trouble);
        let mut hopeless = StartBlockers {
            of_need: hopeless.into_iter().map(of).collect(),
            before,
            unsettled: None,
        };
        let progress = without_repeats(watcher.sink());
        let mut running = None;
        let ended = self
            .run_each_cell(watcher, &progress, known, &mut hopeless, &mut running)
            .await;
        // The last cell needs the engine no more either.
        let last = async {
            match ended? {
                Some(last) => last.await,
                None => Ok(()),
            }
        };
        let end = async {
            match running {
                Some(running) => release::end_engine(self.context, running, &progress).await,
                None => None,
            }
        };
        let (ended, held) = tokio::join!(last, end);
        hopeless.note_unsettled(held);
        (ended, hopeless.unsettled)
    }

    /// Gives what is left to do of the last cell.
    async fn run_each_cell<'l>(
        &'l self,
        watcher: &dyn LaneWatcher,
        progress: &'l Sink,
        known: &OomMemory,
        // What keeps the engine from starting keeps it from every cell.
        hopeless: &mut StartBlockers,
        running: &mut Option<RunningEngine>,
    ) -> Result<Option<BoxFuture<'l, Result<(), Failure>>>, Failure> {
        let mut ooms = known.clone();
        let mut before: Option<BoxFuture<'l, Result<(), Failure>>> = None;
        let mut left: Vec<&Cell> = self.group.cells.iter().collect();
        loop {
            if self.context.stop.stop_reason().is_some() {
                break;
            }
            if self.context.choice.is_some() {
                // The choice follows from the row of the cell before.
                if let Some(before) = before.take() {
                    before.await?;
                }
            }
            let Some(place) = self.context.next_cell(self.group, &left) else {
                break;
            };
            let cell = left.remove(place);
            let number = self.attempts.get(&cell.id).copied().unwrap_or(0) + 1;
            let mut attempt = CellAttempt {
                cell,
                number,
                run_id: String::new(),
                began: Instant::now(),
                followed: !self.context.options.fresh
                    && (left.first()).is_some_and(|next| self.need(next) == self.need(cell)),
            };
            if let Some(trouble) = hopeless.blocker_for(self.need(cell)) {
                let row = match trouble.cause {
                    RowCause::Oom => {
                        attempt.skipped_row(RowCause::ImpliedOom, trouble.message.clone())
                    }
                    _ => attempt.failed_row(trouble),
                };
                (self.take)(cell, row)?;
                continue;
            }
            if let Some(oom) = ooms.record_covering(cell) {
                let load = oom.load.describe_load();
                let why = format!(
                    "another cell, which needs no more memory than this one, ran out of memory: {load}"
                );
                (self.take)(cell, attempt.skipped_row(RowCause::ImpliedOom, why))?;
                continue;
            }
            watcher.begin_cell(&cell.load.spell_load());
            // What is left to do of the cell before needs no engine: it is done beside this one.
            let measured = match before.take() {
                None => {
                    self.tries(&mut attempt, running, hopeless, progress)
                        .await?
                }
                Some(before) => {
                    let now = self.tries(&mut attempt, running, hopeless, progress);
                    let (written, measured) = tokio::join!(before, now);
                    written?;
                    measured?
                }
            };
            let row = match measured {
                CellMeasurement::Row(row) => *row,
                CellMeasurement::Loaded(unwritten) => {
                    before = Some(Box::pin(async move {
                        let row = unwritten
                            .write_results(self.context, &attempt, progress)
                            .await?;
                        self.keep_row(cell, row)
                    }));
                    continue;
                }
            };
            if row.cause == Some(RowCause::Oom) {
                ooms.add_record(OomRecord::of_row(cell, &row));
            }
            self.keep_row(cell, row)?;
        }
        Ok(before)
    }

    /// Takes a row. Where results cannot be written the sweep ends: every further cell would be
    /// measured for nothing, and this one is still to be measured.
    fn keep_row(&self, cell: &Cell, row: CellRow) -> Result<(), Failure> {
        match row.cause {
            Some(RowCause::Storage) => {
                let why = row.message.unwrap_or_default();
                Err(Failure::environment(why).hint("make room, then go on with --resume"))
            }
            _ => (self.take)(cell, row),
        }
    }

    /// Tries a cell until it fares well, or ill for a reason that does not pass.
    async fn tries(
        &self,
        attempt: &mut CellAttempt<'_>,
        running: &mut Option<RunningEngine>,
        hopeless: &mut StartBlockers,
        progress: &Sink,
    ) -> Result<CellMeasurement, Failure> {
        let mut left = self.context.options.retries;
        loop {
            attempt.run_id = collect::run_id();
            let begin = CellBegin {
                cell: attempt.cell.id.clone(),
                attempt: attempt.number,
                run_id: attempt.run_id.clone(),
                at: now_rfc3339(),
            };
            self.context.journal().write_begin(begin)?;
            let measured = self.attempt(attempt, running, hopeless, progress).await?;
            let row = match &measured {
                CellMeasurement::Row(row)
                    if row.cause.is_some_and(RowCause::is_transient) && left > 0 =>
                {
                    row
                }
                _ => return Ok(measured),
            };
            left -= 1;
            hopeless.of_need.clear();
            let why = row.message.as_deref().unwrap_or_default();
            let words = attempt.cell.describe_load();
            (self.context.watcher).note(&format!("{words}: tried again: {why}"));
            self.context.wait_for_docker().await?;
            attempt.number += 1;
            attempt.began = Instant::now();
        }
    }

    /// One try at a cell, with an engine for it.
    async fn attempt(
        &self,
        attempt: &mut CellAttempt<'_>,
        running: &mut Option<RunningEngine>,
        hopeless: &mut StartBlockers,
        progress: &Sink,
    ) -> Result<CellMeasurement, Failure> {
        let context = self.context;
        let need = self.need(attempt.cell);
        if let Some(other) = running.take_if(|r| r.need != need || r.shared.server_end().is_some())
        {
            hopeless.note_unsettled(release::end_engine(context, other, progress).await);
        }
        if running.is_none() && hopeless.blocker_for(need).is_none() {
            let preset = self.preset.as_ref();
            let started =
                engine::start_engine(context, self.group, preset, need, &attempt.run_id, progress);
            match started.await {
                Ok(ready) => {
                    *running = Some(ready);
                    // The journal counts the start by itself.
                    attempt.began = Instant::now();
                }
                Err(_) if context.stop.stop_reason().is_some() => {
                    return Err(context.stop.stop_failure());
                }
                Err(trouble) => {
                    let trouble = self.or_docker(trouble).await;
                    hopeless.of_need.push((need, trouble));
                }
            }
        }
        let Some(ready) = running.as_mut() else {
            let trouble = hopeless.blocker_for(need);
            let row = trouble.map_or_else(
                || attempt.skipped_row(RowCause::NotReady, "there is no engine".into()),
                |t| attempt.failed_row(t),
            );
            return Ok(CellMeasurement::Row(Box::new(row)));
        };
        let kind = load_kind(
            attempt.cell.load.bench,
            ready.attached.engine,
            need == EngineNeed::Idle,
        );
        let mut measured = match self.fits(kind, need, ready) {
            Ok(()) => measure_cell(context, ready, attempt, kind, progress).await?,
            Err(failure) => {
                let row = attempt.failed_row(&CellTrouble::while_preparing(&failure));
                CellMeasurement::Row(Box::new(row))
            }
        };
        let spent = match &mut measured {
            // The way of one process for each cell.
            CellMeasurement::Loaded(_) => context.options.fresh,
            CellMeasurement::Row(row) => {
                if row.status == RowStatus::Failed && !context.runtime.daemon_answers().await {
                    row.cause = Some(RowCause::Docker);
                }
                // A server that was loaded beyond its limits may hang.
                row.cause != Some(RowCause::Refused)
            }
        };
        if spent {
            if let Some(used) = running.take() {
                hopeless.note_unsettled(release::end_engine(context, used, progress).await);
            }
        }
        Ok(measured)
    }

    /// A daemon that is away explains every other trouble.
    async fn or_docker(&self, trouble: CellTrouble) -> CellTrouble {
        if self.context.runtime.daemon_answers().await {
            trouble
        } else {
            CellTrouble {
                cause: RowCause::Docker,
                phase: RowPhase::Start,
                ..trouble
            }
        }
    }

    fn need(&self, cell: &Cell) -> EngineNeed {
        let fresh = self.context.options.fresh
            && cell.load.bench == BenchWord::Auto
            && matches!(self.group.server.place, EnginePlace::Container(_));
        if fresh || cell.load.bench.in_process() {
            EngineNeed::Idle
        } else {
            EngineNeed::Server
        }
    }

    /// Whether the engine's way of benching goes with how it runs.
    fn fits(&self, kind: LoadKind, need: EngineNeed, ready: &RunningEngine) -> Result<(), Failure> {
        if kind.needs_server() == (need == EngineNeed::Server) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "the engine {} has no {} bench that does what this sweep needs",
            ready.attached.engine.shown(),
            kind.as_str()
        ))
        .hint("choose another with `bench:`, or leave out --fresh"))
    }
}
