//! How long a sweep will take, by what earlier runs took.

use super::cell::{BenchWord, Cell, CellId, CellLoad, GroupId, ITERATIONS};
use super::plan::{CellGroup, SweepPlan};
use crate::profile::stats::{median_of, quantile_of_sorted};
use std::collections::HashMap;

/// Seconds that an engine is taken to need until it serves, where no start of one is known.
pub const ASSUMED_START_S: f64 = 60.0;
/// Seconds that a cell is taken to need, where none is known.
pub const ASSUMED_CELL_S: f64 = 20.0;
/// Most cells of a group that predict another one: among more the nearest is hardly nearer, and the
/// prediction is made again after every cell.
const NEIGHBOURS: usize = 256;

/// What earlier runs, or the cells so far, took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forecast {
    cells: HashMap<CellId, Vec<f64>>,
    groups: HashMap<GroupId, Vec<(CellLoad, f64)>>,
    every_cell: Vec<f64>,
    starts: HashMap<GroupId, Vec<f64>>,
    every_start: Vec<f64>,
    median_cell: Option<f64>,
    median_start: Option<f64>,
}

/// How long something will take, and how that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeEstimate {
    /// Seconds.
    pub seconds: f64,
    /// What it rests on.
    pub basis: EstimateBasis,
}

/// What an estimate rests on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EstimateBasis {
    /// Cells to be estimated.
    pub cells: usize,
    /// Of these, by cells of earlier runs.
    pub cells_known: usize,
    /// Starts of an engine to be estimated.
    pub starts: usize,
    /// Of these, by earlier starts.
    pub starts_known: usize,
    /// Cells that earlier runs measured.
    pub measured_cells: usize,
}

impl EstimateBasis {
    /// `from 12 cells of earlier runs`; or what was assumed.
    pub fn describe_basis(&self) -> String {
        let cells = self.cells_known < self.cells;
        let starts = self.starts_known < self.starts;
        let mut assumed = Vec::new();
        if starts {
            assumed.push(format!("{ASSUMED_START_S} s for each start of an engine"));
        }
        if cells {
            assumed.push(format!("{ASSUMED_CELL_S} s for each cell"));
        }
        let measured = match self.measured_cells {
            0 => None,
            1 => Some("from 1 cell of earlier runs".to_owned()),
            n => Some(format!("from {n} cells of earlier runs")),
        };
        match (measured, assumed.is_empty()) {
            (None, true) => "nothing is left to be done".into(),
            (None, false) => format!("assumed: {}", assumed.join(", ")),
            (Some(measured), true) => measured,
            (Some(measured), false) => format!("{measured}; assumed: {}", assumed.join(", ")),
        }
    }
}

impl Forecast {
    /// Learns the time of a measured cell, seconds. Cells that failed teach nothing: they ended
    /// early, or hung until the timeout.
    pub fn learn_cell(&mut self, cell: &Cell, took_s: f64) {
        if !took_s.is_finite() || took_s < 0.0 {
            return;
        }
        self.cells.entry(cell.id.clone()).or_default().push(took_s);
        let group = self.groups.entry(cell.group.clone()).or_default();
        if group.len() < NEIGHBOURS {
            group.push((cell.load.clone(), took_s));
        }
        self.median_cell = insert(&mut self.every_cell, took_s);
    }

    /// Learns the time until an engine served, seconds.
    pub fn learn_start(&mut self, group: &GroupId, took_s: f64) {
        if !took_s.is_finite() || took_s < 0.0 {
            return;
        }
        insert(self.starts.entry(group.clone()).or_default(), took_s);
        self.median_start = insert(&mut self.every_start, took_s);
    }

    /// How long a cell takes: what the same cell took; else the nearest of its group, by the
    /// tokens it generates; else the median of all. `None` where nothing is known.
    pub fn cell_seconds(&self, cell: &Cell) -> Option<f64> {
        if let Some(took) = self.cells.get(&cell.id) {
            return median_of(took.clone());
        }
        let group = self.groups.get(&cell.group).map_or(&[][..], Vec::as_slice);
        let nearest = group
            .iter()
            // What comes by a rate takes its time by the rate.
            .filter(|(load, _)| load.bench == cell.load.bench)
            .filter(|(load, _)| load.request_rate == cell.load.request_rate)
            .min_by(|a, b| distance(&a.0, &cell.load).total_cmp(&distance(&b.0, &cell.load)));
        match nearest {
            Some((load, took)) => {
                Some((took * work_of(&cell.load) / work_of(load)).max(least_seconds(&cell.load)))
            }
            None => Some(self.median_cell?.max(least_seconds(&cell.load))),
        }
    }

    /// How long an engine of this group takes until it serves; `None` where no start is known.
    pub fn start_seconds(&self, group: &GroupId) -> Option<f64> {
        match self.starts.get(group) {
            Some(took) => quantile_of_sorted(took, 0.5),
            None => self.median_start,
        }
    }

    /// How long all of a plan takes, one group after the other.
    pub fn estimate_plan(&self, plan: &SweepPlan) -> TimeEstimate {
        let starts = plan
            .groups
            .iter()
            .flat_map(|g| std::iter::repeat_n(&g.id, g.engine_starts(plan.fresh)));
        self.estimate_work(plan.planned_cells(), starts)
    }

    /// How long one group of a plan takes.
    pub fn estimate_group(&self, group: &CellGroup, fresh: bool) -> TimeEstimate {
        let starts = std::iter::repeat_n(&group.id, group.engine_starts(fresh));
        self.estimate_work(group.cells.iter(), starts)
    }

    /// How long these cells and these starts of engines take, one after the other.
    pub fn estimate_work<'a>(
        &self,
        cells: impl Iterator<Item = &'a Cell>,
        starts: impl Iterator<Item = &'a GroupId>,
    ) -> TimeEstimate {
        let mut estimate = TimeEstimate {
            seconds: 0.0,
            basis: EstimateBasis {
                measured_cells: self.every_cell.len(),
                ..EstimateBasis::default()
            },
        };
        for cell in cells {
            let known = self.cell_seconds(cell);
            let assumed = || ASSUMED_CELL_S.max(least_seconds(&cell.load));
            estimate.seconds += known.unwrap_or_else(assumed);
            estimate.basis.cells += 1;
            estimate.basis.cells_known += usize::from(known.is_some());
        }
        for group in starts {
            let known = self.start_seconds(group);
            estimate.seconds += known.unwrap_or(ASSUMED_START_S);
            estimate.basis.starts += 1;
            estimate.basis.starts_known += usize::from(known.is_some());
        }
        estimate
    }
}

/// Tokens that a load generates, one request at a time in flight.
fn work_of(load: &CellLoad) -> f64 {
    let batch = load.batch_size.unwrap_or(1).max(1);
    let rounds = match load.num_prompts {
        Some(requests) if load.bench != BenchWord::Latency => requests.div_ceil(batch),
        _ => load.num_iters.unwrap_or(ITERATIONS),
    };
    f64::from(load.output_len.max(1)) * f64::from(rounds.max(1)) * f64::from(load.repeats.max(1))
}

/// Seconds that a load takes at least: its requests come one after the other by their rate.
fn least_seconds(load: &CellLoad) -> f64 {
    let Some(rate) = load.request_rate.filter(|rate| *rate > 0.0) else {
        return 0.0;
    };
    let rounds = load.num_iters.unwrap_or(ITERATIONS);
    let batch = load.batch_size.unwrap_or(1);
    let requests = load.num_prompts.unwrap_or(batch.saturating_mul(rounds));
    f64::from(requests) / rate * f64::from(load.repeats.max(1))
}

/// How unlike two loads are: by how many times they differ, each length and number alike.
fn distance(a: &CellLoad, b: &CellLoad) -> f64 {
    let times = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
    times(a.input_len, b.input_len)
        + times(a.output_len, b.output_len)
        + times(a.batch_size.unwrap_or(1), b.batch_size.unwrap_or(1))
}

/// Puts a figure in its place among sorted ones; their median.
fn insert(sorted: &mut Vec<f64>, figure: f64) -> Option<f64> {
    let at = sorted.partition_point(|f| *f < figure);
    sorted.insert(at, figure);
    quantile_of_sorted(sorted, 0.5)
}

#[cfg(test)]
mod tests {
    use super::super::plan::PlanOptions;
    use super::super::samples::{cell, sweep};
    use super::super::{OomMemory, SweepDefinition};
    use super::*;

    fn planned(sweep: &SweepDefinition) -> SweepPlan {
        let options = PlanOptions {
            fresh: false,
            shard: None,
            only: &[],
            known_oom: &OomMemory::default(),
            retry_oom: false,
        };
        SweepPlan::for_sweep(sweep, &options).unwrap()
    }

    #[test]
    fn without_earlier_runs_the_assumptions_are_named() {
        let plan = planned(&sweep(vec![cell("a", 1, 1, 1), cell("a", 1, 1, 2)]));
        let estimate = Forecast::default().estimate_plan(&plan);
        assert_eq!(estimate.seconds, ASSUMED_START_S + 2.0 * ASSUMED_CELL_S);
        assert_eq!(
            estimate.basis.describe_basis(),
            "assumed: 60 s for each start of an engine, 20 s for each cell"
        );
    }

    #[test]
    fn what_is_known_of_a_cell_goes_before_what_is_known_of_others() {
        let mut known = Forecast::default();
        let near = cell("a", 128, 100, 8);
        for took in [3.0, 100.0, 5.0] {
            known.learn_cell(&near, took);
        }
        known.learn_cell(&cell("a", 4096, 1000, 8), 70.0);
        known.learn_cell(&cell("b", 1, 1, 1), 9.0);
        assert_eq!(known.cell_seconds(&near), Some(5.0), "its own median");
        let twice = cell("a", 128, 200, 8);
        assert_eq!(
            known.cell_seconds(&twice),
            Some(6.0),
            "the nearest, twice the tokens"
        );
        assert_eq!(
            known.cell_seconds(&cell("c", 1, 1, 1)),
            Some(9.0),
            "the median"
        );
        known.learn_cell(&near, f64::NAN);
        assert_eq!(known.cell_seconds(&near), Some(5.0));
    }

    #[test]
    fn starts_are_of_their_group_first() {
        let (a, b) = (cell("a", 1, 1, 1), cell("b", 1, 1, 1));
        let mut known = Forecast::default();
        known.learn_start(&a.group, 10.0);
        known.learn_start(&a.group, 30.0);
        assert_eq!(known.start_seconds(&a.group), Some(20.0));
        assert_eq!(known.start_seconds(&b.group), Some(20.0));
        known.learn_start(&b.group, 90.0);
        assert_eq!(known.start_seconds(&b.group), Some(90.0));
        known.learn_cell(&a, 2.0);
        let plan = planned(&sweep(vec![a.clone(), b.clone()]));
        let estimate = known.estimate_plan(&plan);
        assert_eq!(estimate.seconds, 20.0 + 90.0 + 2.0 + 2.0);
        assert_eq!(
            estimate.basis.describe_basis(),
            "from 1 cell of earlier runs"
        );
        let rest = known.estimate_work([&b].into_iter(), std::iter::empty());
        assert_eq!(rest.seconds, 2.0);
    }
}
