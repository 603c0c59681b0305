//! The whole of a sweep: groups on free devices, side by side, until every cell has its row.

use super::context::SweepContext;
use super::engine::now_rfc3339;
use super::journal::SweepHistory;
use super::lane::GroupRunner;
use super::leftovers;
use super::oom::{OomFile, machine_bytes};
use super::release::MemoryDebts;
use super::schedule::{DeviceClaim, DeviceClaims, HOST};
use super::trouble::CellTrouble;
use crate::error::Failure;
use crate::matrix::{
    Cell, CellGroup, CellId, CellRow, EnginePlace, Forecast, GroupId, OomMemory, OomRecord,
    RowCause, RowStatus, SweepPlan,
};
use crate::preset::Preset;
use crate::sync::lock_data;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// What is left to do of a plan.
pub struct SweepWork<'a> {
    /// The plan.
    pub plan: &'a SweepPlan,
    /// What was done before.
    pub history: &'a SweepHistory,
    /// Whether cells that failed before are tried again.
    pub retry_failed: bool,
    /// Whether what ran out of memory before is tried again, and what was skipped for it.
    pub retry_oom: bool,
}

impl SweepWork<'_> {
    /// Whether a cell has its row already.
    pub fn is_finished(&self, cell: &Cell) -> bool {
        self.history
            .rows
            .get(&cell.id)
            .filter(|row| row.status != RowStatus::Interpolated)
            .is_some_and(|row| match row.cause {
                None => true,
                Some(cause) => !self.asked_again(cause) && !cause.is_environmental(),
            })
    }

    /// Whether cells that have no figures for this reason are to be tried again.
    fn asked_again(&self, cause: RowCause) -> bool {
        self.retry_failed || self.retry_oom && cause.is_out_of_memory()
    }

    /// The groups with the cells that are left.
    pub fn groups_left(&self) -> Vec<CellGroup> {
        let left = |group: &CellGroup| CellGroup {
            cells: (group.cells.iter())
                .filter(|c| !self.is_finished(c))
                .cloned()
                .collect(),
            ..group.clone()
        };
        let groups = self.plan.groups.iter().map(left);
        groups.filter(|g| !g.cells.is_empty()).collect()
    }

    /// The plan of what has no row yet.
    pub fn plan_left(&self) -> SweepPlan {
        let skipped = self.plan.skipped.iter();
        SweepPlan {
            groups: self.groups_left(),
            skipped: (skipped.filter(|s| !self.is_finished(&s.cell)).cloned()).collect(),
            ..self.plan.clone()
        }
    }

    /// What ran out of memory in this run, by its rows, where it is not tried again.
    fn ooms(&self) -> Vec<OomRecord> {
        let cells = self
            .plan
            .planned_cells()
            .filter(|cell| self.is_finished(cell));
        let records = cells.filter_map(|cell| {
            let row = self.history.rows.get(&cell.id)?;
            (row.cause == Some(RowCause::Oom)).then(|| OomRecord::of_row(cell, row))
        });
        records.collect()
    }

    /// Whether this run itself recorded it. What earlier runs recorded has left the plan already, unless
    /// it is to be tried again.
    fn is_own(&self, record: &OomRecord) -> bool {
        let row = self.history.rows.get(&record.cell);
        let oom = row.is_some_and(|row| row.cause == Some(RowCause::Oom));
        oom && !self.asked_again(RowCause::Oom)
    }

    /// What kept a group's engine from starting in an earlier process, for which cells: others fail
    /// by it as they would have.
    fn hopeless(&self, group: &CellGroup) -> Vec<(&Cell, CellTrouble)> {
        let all = self.plan.groups.iter().filter(|g| g.id == group.id);
        let cells = all.flat_map(|g| &g.cells);
        let row = |c: &Cell| self.history.rows.get(&c.id);
        cells
            .filter_map(|c| Some((c, CellTrouble::of_start(row(c)?)?)))
            .filter(|(_, trouble)| !self.asked_again(trouble.cause))
            .collect()
    }
}

/// Runs what is left. `Err`: it was stopped, or cannot go on; what was done is in the journal.
pub async fn run_sweep(
    context: &SweepContext<'_>,
    work: &SweepWork<'_>,
    forecast: Forecast,
    mut ooms: OomFile,
) -> Result<(), Failure> {
    leftovers::end_leftovers(context, work.plan, work.history).await?;
    // A row is written before the file that all runs share: that may lack the last.
    for record in work.ooms() {
        if !ooms.memory.records().any(|r| r.cell == record.cell) {
            ooms.add_record(record)?;
        }
    }
    let earlier = ooms.memory.clone().without_records(|r| !work.is_own(r));
    let groups = work.groups_left();
    work.history
        .rows
        .values()
        .for_each(|row| context.note_row(row));
    let ledger = RowLedger::new(context, work, &groups, forecast, ooms);
    for skip in work
        .plan
        .skipped
        .iter()
        .filter(|s| !work.is_finished(&s.cell))
    {
        let mut row = untried(&skip.cell, RowStatus::Skipped, skip.cause, skip.why.clone());
        row.figures.limit_reached_bytes = skip.limit_bytes;
        ledger.take_row(&skip.cell, row)?;
    }
    let mut waiting = Vec::new();
    let mut claims = DeviceClaims::new(context.runtime, context.options.memory);
    for group in &groups {
        match claims.claim_of(&group.server.place).await {
            Ok(claim) => waiting.push((group, claim)),
            Err(_) if context.stop.stop_reason().is_some() => {
                return Err(context.stop.stop_failure());
            }
            Err(failure) => {
                let trouble = CellTrouble::while_preparing(&failure);
                for cell in &group.cells {
                    let message = trouble.message.clone();
                    let row = untried(cell, RowStatus::Failed, trouble.cause, message);
                    let phase = Some(trouble.phase);
                    ledger.take_row(cell, CellRow { phase, ..row })?;
                }
            }
        }
    }
    let ended = side_by_side(context, work, &earlier, waiting, &ledger).await;
    // What the daemon was still creating for the process before may have come after the first look.
    if let Err(failure) = leftovers::end_leftovers(context, work.plan, work.history).await {
        context.watcher.warning(&failure.to_string());
    }
    ended
}

async fn side_by_side(
    context: &SweepContext<'_>,
    work: &SweepWork<'_>,
    earlier: &OomMemory,
    mut waiting: Vec<(&CellGroup, DeviceClaim)>,
    ledger: &RowLedger<'_>,
) -> Result<(), Failure> {
    let mut busy: BTreeSet<String> = BTreeSet::new();
    let mut debts = MemoryDebts::default();
    let mut running = FuturesUnordered::new();
    let mut ended = Ok(());
    loop {
        // After a failure nothing new is begun, and what runs is let end.
        let mut at = 0;
        while ended.is_ok() && at < waiting.len() && context.stop.stop_reason().is_none() {
            let Some(taken) = waiting[at].1.try_take(&busy) else {
                at += 1;
                continue;
            };
            let (group, _) = waiting.remove(at);
            busy.extend(taken.taken.iter().cloned());
            let preset = with_gpus(group, &taken.chosen);
            let hopeless = work.hopeless(group);
            let before = debts.trouble_on(&taken.taken, context.stop.token()).await;
            running.push(async move {
                let lane = GroupRunner {
                    context,
                    group,
                    preset,
                    attempts: &work.history.attempts,
                    take: &|cell, row| ledger.take_row(cell, row),
                };
                let watcher = context
                    .watcher
                    .begin_lane(&group_label(group, &taken.chosen));
                let (ended, held) = lane.run_cells(&*watcher, earlier, hopeless, before).await;
                (taken.taken, ended, held)
            });
        }
        let Some((mut taken, lane, held)) = running.next().await else {
            break;
        };
        busy.retain(|device| !taken.contains(device));
        // Memory of one container does not concern the others on the same host.
        taken.remove(HOST);
        debts.add_debt(taken, held);
        ended = ended.and(lane);
    }
    match context.stop.stop_reason() {
        Some(_) => Err(context.stop.stop_failure()),
        None => ended,
    }
}

/// `llama-8b in container c`, with the GPUs that were chosen.
fn group_label(group: &CellGroup, gpus: &[String]) -> String {
    let server = &group.server;
    let mut words = match &server.place {
        EnginePlace::Container(name) => format!("{} in {name}", server.model),
        EnginePlace::Image(_) => format!("{} on {}", server.model, server.place.place_name()),
    };
    if let Some(tp) = server.settings.tensor_parallel_size.filter(|tp| *tp > 1) {
        words.push_str(&format!(" tp {tp}"));
    }
    if !gpus.is_empty() {
        words.push_str(&format!(" ({} GPUs)", gpus.len()));
    }
    words
}

/// The group's container with the GPUs that were chosen for it, where it asked for a number.
fn with_gpus(group: &CellGroup, chosen: &[String]) -> Option<Preset> {
    match &group.server.place {
        EnginePlace::Image(preset) if !chosen.is_empty() => Some(Preset {
            gpus: Some(format!("device={}", chosen.join(","))),
            ..(**preset).clone()
        }),
        _ => None,
    }
}

/// The row of a cell that was not begun.
fn untried(cell: &Cell, status: RowStatus, cause: RowCause, message: String) -> CellRow {
    CellRow {
        cell: cell.id.clone(),
        group: cell.group.clone(),
        status,
        cause: Some(cause),
        message: Some(message),
        ended: now_rfc3339(),
        ..CellRow::default()
    }
}

/// Takes rows from the groups: first to the disk, then to who watches.
struct RowLedger<'a> {
    context: &'a SweepContext<'a>,
    of: u64,
    state: Mutex<LedgerState>,
}

struct LedgerState {
    done: u64,
    /// Cells that are left.
    left: BTreeMap<CellId, Cell>,
    /// Groups of which a cell has ended.
    begun: BTreeSet<GroupId>,
    forecast: Forecast,
    ooms: OomFile,
    machine_bytes: Option<u64>,
}

impl LedgerState {
    /// The starts of engines that are still to come, now that a cell of `group` has ended.
    fn waiting(&mut self, group: &GroupId, fresh: bool) -> Vec<GroupId> {
        self.begun.insert(group.clone());
        let groups = self.left.values().map(|c| c.group.clone());
        if fresh {
            return groups.collect();
        }
        let waiting: BTreeSet<GroupId> = groups.filter(|g| !self.begun.contains(g)).collect();
        waiting.into_iter().collect()
    }
}

impl<'a> RowLedger<'a> {
    fn new(
        context: &'a SweepContext<'a>,
        work: &SweepWork<'_>,
        groups: &[CellGroup],
        forecast: Forecast,
        ooms: OomFile,
    ) -> RowLedger<'a> {
        let skipped = work.plan.skipped.iter().map(|s| &s.cell);
        let of = work.plan.planned_cells().count() + work.plan.skipped.len();
        let left: BTreeMap<CellId, Cell> = groups
            .iter()
            .flat_map(|g| &g.cells)
            .chain(skipped.filter(|c| !work.is_finished(c)))
            .map(|c| (c.id.clone(), c.clone()))
            .collect();
        RowLedger {
            context,
            of: of as u64,
            state: Mutex::new(LedgerState {
                done: (of - left.len()) as u64,
                left,
                begun: BTreeSet::new(),
                forecast,
                ooms,
                machine_bytes: machine_bytes(),
            }),
        }
    }

    fn take_row(&self, cell: &Cell, row: CellRow) -> Result<(), Failure> {
        self.context.journal().write_end(&row)?;
        self.context.note_row(&row);
        let mut state = lock_data(&self.state);
        if row.cause == Some(RowCause::Oom) {
            let record = OomRecord {
                device_total_bytes: state.machine_bytes,
                ..OomRecord::of_row(cell, &row)
            };
            state.ooms.add_record(record)?;
        }
        for (group, took_s) in lock_data(&self.context.starts).drain(..) {
            state.forecast.learn_start(&group, took_s);
        }
        if row.status == RowStatus::Done {
            let ooms = &mut state.ooms;
            ooms.forget_fitted(&cell.group, &cell.load, &cell.id, &row.ended)?;
        }
        state.done += 1;
        state.left.remove(&cell.id);
        if row.status == RowStatus::Done {
            state.forecast.learn_cell(cell, row.took_s);
        }
        // A group that has begun has its engine.
        let fresh = self.context.options.fresh;
        let starts = state.waiting(&cell.group, fresh);
        let left = state
            .forecast
            .estimate_work(state.left.values(), starts.iter())
            .seconds;
        self.context.watcher.time_left((left > 0.0).then_some(left));
        self.context
            .watcher
            .cell_ended(cell, &row, state.done, self.of);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::samples::{cell, row, sweep};
    use crate::matrix::{PlanOptions, RowPhase};

    #[test]
    fn what_lacked_memory_is_left_only_when_it_is_asked_for_again() {
        let causes = [
            (None, false),
            (Some(RowCause::Oom), true),
            (Some(RowCause::ImpliedOom), true),
            (Some(RowCause::KnownOom), true),
            (Some(RowCause::Timeout), false),
        ];
        let cells: Vec<Cell> = (1..=5).map(|n| cell("m", 128, 64, n)).collect();
        let plan = SweepPlan::for_sweep(
            &sweep(cells.clone()),
            &PlanOptions {
                fresh: false,
                shard: None,
                only: &[],
                known_oom: &OomMemory::default(),
                retry_oom: true,
            },
        )
        .unwrap();
        let mut history = SweepHistory::default();
        for (cell, (cause, _)) in cells.iter().zip(causes) {
            let status = cause.map_or(RowStatus::Done, |_| RowStatus::Failed);
            let phase = cause.map(|_| RowPhase::Start);
            let row = CellRow {
                cause,
                phase,
                ..row(cell, status)
            };
            history.rows.insert(cell.id.clone(), row);
        }
        let left = |retry_oom| {
            let work = SweepWork {
                plan: &plan,
                history: &history,
                retry_failed: false,
                retry_oom,
            };
            let left = work.groups_left();
            let cells = left.iter().flat_map(|g| &g.cells);
            let hopeless = work.hopeless(&plan.groups[0]).into_iter();
            (
                cells.map(|c| c.id.clone()).collect::<Vec<_>>(),
                hopeless.map(|(_, t)| t.cause).collect::<Vec<_>>(),
                work.ooms().len(),
            )
        };
        let again = cells.iter().zip(causes).filter(|(_, (_, again))| *again);
        let again: Vec<CellId> = again.map(|(cell, _)| cell.id.clone()).collect();
        assert_eq!(left(true), (again, vec![RowCause::Timeout], 0));
        let (none, hopeless, ooms) = left(false);
        assert_eq!((none.len(), hopeless.len(), ooms), (0, 4, 1));
    }
}
