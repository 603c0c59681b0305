//! One group from its first cell to its last: an engine for as many of them as it serves, another
//! where it ended, and a row for each cell whatever happens.

use super::context::{Context, LaneWatcher, told_once};
use super::engine::{self, Need, Running, now};
use super::journal::Begin;
use super::measure::{Attempt, Measured, measure};
use super::release::{self, Unsettled};
use super::request::load_kind;
use super::trouble::Trouble;
use crate::collect;
use crate::engine::LoadKind;
use crate::error::Failure;
use crate::matrix::{
    BenchWord, Cause, Cell, CellId, Group, OomMemory, OomRecord, Place, Row, RowPhase, Status,
};
use crate::preset::Preset;
use crate::progress::Sink;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::time::Instant;

/// A group on its devices.
pub struct Lane<'a> {
    /// Shared by all.
    pub context: &'a Context<'a>,
    /// What to run.
    pub group: &'a Group,
    /// The group's container with the GPUs that were chosen for it.
    pub preset: Option<Preset>,
    /// How often each cell was begun before.
    pub attempts: &'a HashMap<CellId, u32>,
    /// Takes a row; it is in the journal then.
    pub take: &'a (dyn Fn(&Cell, Row) -> Result<(), Failure> + Sync),
}

/// What keeps engines from starting, by what they were needed for. A container that serves cannot
/// run a bench that loads the engine itself, and serves others.
#[derive(Default)]
struct Hopeless {
    of_need: Vec<(Need, Trouble)>,
    /// Memory of another group's engine was not given back.
    before: Option<Trouble>,
    /// That of its own.
    unsettled: Option<Unsettled>,
}

impl Hopeless {
    fn of(&self, need: Need) -> Option<&Trouble> {
        let own = self.unsettled.as_ref().map(|u| &u.trouble);
        let found = self.of_need.iter().find(|(of, _)| *of == need);
        let held = self.before.as_ref().or(own);
        held.or(found.map(|(_, trouble)| trouble))
    }

    /// An engine has ended; its memory may not be given back.
    fn ended(&mut self, held: Option<Unsettled>) {
        self.unsettled = self.unsettled.take().or(held);
    }
}

impl Lane<'_> {
    /// Runs every cell that is left. `Err`: the sweep cannot go on. `hopeless`: known reasons why
    /// an engine did not start for a cell of this group. `before`: an earlier engine still holds
    /// memory on its devices. Also returns the memory that its own engine still holds.
    pub async fn run(
        &self,
        watcher: &dyn LaneWatcher,
        known: &OomMemory,
        hopeless: Vec<(&Cell, Trouble)>,
        before: Option<Trouble>,
    ) -> (Result<(), Failure>, Option<Unsettled>) {
        let of = |(cell, trouble)| (self.need(cell), trouble);
        let mut hopeless = Hopeless {
            of_need: hopeless.into_iter().map(of).collect(),
            before,
            unsettled: None,
        };
        let news = told_once(watcher.sink());
        let mut running = None;
        let ended = self
            .cells(watcher, &news, known, &mut hopeless, &mut running)
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
                Some(running) => release::end(self.context, running, &news).await,
                None => None,
            }
        };
        let (ended, held) = tokio::join!(last, end);
        hopeless.ended(held);
        (ended, hopeless.unsettled)
    }

    /// Gives what is left to do of the last cell.
    async fn cells<'l>(
        &'l self,
        watcher: &dyn LaneWatcher,
        news: &'l Sink,
        known: &OomMemory,
        // What keeps the engine from starting keeps it from every cell.
        hopeless: &mut Hopeless,
        running: &mut Option<Running>,
    ) -> Result<Option<BoxFuture<'l, Result<(), Failure>>>, Failure> {
        let mut ooms = known.clone();
        let mut before: Option<BoxFuture<'l, Result<(), Failure>>> = None;
        let cells = &self.group.cells;
        for (cell, next) in cells
            .iter()
            .zip(cells.iter().skip(1).map(Some).chain([None]))
        {
            if self.context.stop.reason().is_some() {
                break;
            }
            let number = self.attempts.get(&cell.id).copied().unwrap_or(0) + 1;
            let mut attempt = Attempt {
                cell,
                number,
                run_id: String::new(),
                began: Instant::now(),
                followed: !self.context.options.fresh
                    && next.is_some_and(|next| self.need(next) == self.need(cell)),
            };
            if let Some(trouble) = hopeless.of(self.need(cell)) {
                let row = match trouble.cause {
                    Cause::Oom => attempt.skipped(Cause::ImpliedOom, trouble.message.clone()),
                    _ => attempt.failed(trouble),
                };
                (self.take)(cell, row)?;
                continue;
            }
            if let Some(oom) = ooms.covers(cell) {
                let load = oom.load.words();
                let why = format!("a cell that needs no more ran out of memory: {load}");
                (self.take)(cell, attempt.skipped(Cause::ImpliedOom, why))?;
                continue;
            }
            watcher.cell(&cell.words());
            // What is left to do of the cell before needs no engine: it is done beside this one.
            let measured = match before.take() {
                None => self.tries(&mut attempt, running, hopeless, news).await?,
                Some(before) => {
                    let now = self.tries(&mut attempt, running, hopeless, news);
                    let (written, measured) = tokio::join!(before, now);
                    written?;
                    measured?
                }
            };
            let row = match measured {
                Measured::Row(row) => *row,
                Measured::Loaded(unwritten) => {
                    before = Some(Box::pin(async move {
                        let row = unwritten.write(self.context, &attempt, news).await?;
                        self.keep(cell, row)
                    }));
                    continue;
                }
            };
            if row.cause == Some(Cause::Oom) {
                ooms.add(OomRecord::of(cell, &row));
            }
            self.keep(cell, row)?;
        }
        Ok(before)
    }

    /// Takes a row. Where results cannot be written the sweep ends: every further cell would be
    /// measured for nothing, and this one is still to be measured.
    fn keep(&self, cell: &Cell, row: Row) -> Result<(), Failure> {
        match row.cause {
            Some(Cause::Storage) => {
                let why = row.message.unwrap_or_default();
                Err(Failure::environment(why).hint("make room, then go on with --resume"))
            }
            _ => (self.take)(cell, row),
        }
    }

    /// Tries a cell until it fares well, or ill for a reason that does not pass.
    async fn tries(
        &self,
        attempt: &mut Attempt<'_>,
        running: &mut Option<Running>,
        hopeless: &mut Hopeless,
        news: &Sink,
    ) -> Result<Measured, Failure> {
        let mut left = self.context.options.retries;
        loop {
            attempt.run_id = collect::run_id();
            let begin = Begin {
                cell: attempt.cell.id.clone(),
                attempt: attempt.number,
                run_id: attempt.run_id.clone(),
                at: now(),
            };
            self.context.journal().begin(begin)?;
            let measured = self.attempt(attempt, running, hopeless, news).await?;
            let row = match &measured {
                Measured::Row(row) if row.cause.is_some_and(Cause::passes) && left > 0 => row,
                _ => return Ok(measured),
            };
            left -= 1;
            hopeless.of_need.clear();
            let why = row.message.as_deref().unwrap_or_default();
            let words = attempt.cell.words();
            (self.context.watcher).note(&format!("{words}: tried again: {why}"));
            self.context.wait_for_docker().await?;
            attempt.number += 1;
            attempt.began = Instant::now();
        }
    }

    /// One try at a cell, with an engine for it.
    async fn attempt(
        &self,
        attempt: &mut Attempt<'_>,
        running: &mut Option<Running>,
        hopeless: &mut Hopeless,
        news: &Sink,
    ) -> Result<Measured, Failure> {
        let context = self.context;
        let need = self.need(attempt.cell);
        if let Some(other) = running.take_if(|r| r.need != need || r.server_ended().is_some()) {
            hopeless.ended(release::end(context, other, news).await);
        }
        if running.is_none() && hopeless.of(need).is_none() {
            let preset = self.preset.as_ref();
            let started = engine::start(context, self.group, preset, need, &attempt.run_id, news);
            match started.await {
                Ok(ready) => *running = Some(ready),
                Err(_) if context.stop.reason().is_some() => return Err(context.stop.failure()),
                Err(trouble) => {
                    let trouble = self.or_docker(trouble).await;
                    hopeless.of_need.push((need, trouble));
                }
            }
            // The journal counts the start by itself.
            attempt.began = Instant::now();
        }
        let Some(ready) = running.as_mut() else {
            let trouble = hopeless.of(need);
            let row = trouble.map_or_else(
                || attempt.skipped(Cause::NotReady, "there is no engine".into()),
                |t| attempt.failed(t),
            );
            return Ok(Measured::Row(Box::new(row)));
        };
        let kind = load_kind(
            attempt.cell.load.bench,
            ready.attached.engine,
            need == Need::Idle,
        );
        let mut measured = match self.fits(kind, need, ready) {
            Ok(()) => measure(context, ready, attempt, kind, news).await?,
            Err(failure) => {
                let row = attempt.failed(&Trouble::preparing(&failure));
                Measured::Row(Box::new(row))
            }
        };
        let spent = match &mut measured {
            // The way of one process for each cell.
            Measured::Loaded(_) => context.options.fresh,
            Measured::Row(row) => {
                if row.status == Status::Failed && !context.runtime.answers().await {
                    row.cause = Some(Cause::Docker);
                }
                // A server that was loaded beyond its limits may hang.
                row.cause != Some(Cause::Refused)
            }
        };
        if spent {
            if let Some(used) = running.take() {
                hopeless.ended(release::end(context, used, news).await);
            }
        }
        Ok(measured)
    }

    /// A daemon that is away explains every other trouble.
    async fn or_docker(&self, trouble: Trouble) -> Trouble {
        if self.context.runtime.answers().await {
            trouble
        } else {
            Trouble {
                cause: Cause::Docker,
                phase: RowPhase::Start,
                ..trouble
            }
        }
    }

    fn need(&self, cell: &Cell) -> Need {
        let fresh = self.context.options.fresh
            && cell.load.bench == BenchWord::Auto
            && matches!(self.group.server.place, Place::Container(_));
        if fresh || cell.load.bench.in_process() {
            Need::Idle
        } else {
            Need::Server
        }
    }

    /// Whether the engine's way of benching goes with how it runs.
    fn fits(&self, kind: LoadKind, need: Need, ready: &Running) -> Result<(), Failure> {
        if kind.needs_server() == (need == Need::Server) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "engine {} has no {} bench for this",
            ready.attached.engine.name(),
            kind.as_str()
        ))
        .hint("choose another with `bench:`, or leave out --fresh"))
    }
}
