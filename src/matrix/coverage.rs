//! Which loads of a group decide: measured are the ends and the middle of a curve, then the gaps in which memory runs
//! out or an end lies beside the line of its neighbours; the others are interpolated.
//!
//! The method is bisection with the error of interpolation as its test, as in adaptive quadrature (Kuncir, "Simpson's
//! Rule Integrator", 1962) and in adaptive sampling of functions (Nijholt and others, "Adaptive: parallel active
//! learning of mathematical functions", 2019). Load and figures are taken as logarithms: a curve without a bend, as
//! throughput that grows with the load or has come to its limit, is a line then.

use super::cell::{Cell, CellLoad};
use super::plan::CellGroup;
use super::row::{CellRow, RowCause, RowFigures, RowStatus};
use super::{CellId, RowPhase};
use std::collections::{BTreeSet, HashMap};

/// Curves of fewer loads are measured whole: with its ends and its middle nothing is left.
const FEWEST_LOADS: usize = 4;

/// A number of a load that makes curves.
type LoadAxis = (
    &'static str,
    fn(&CellLoad) -> Option<f64>,
    fn(&mut CellLoad),
);

/// In a group the one with the most values is the axis of its curves.
static LOAD_AXES: [LoadAxis; 4] = [
    (
        "batch",
        |load| load.batch_size.map(f64::from),
        |load| load.batch_size = None,
    ),
    (
        "rate",
        |load| load.request_rate,
        |load| load.request_rate = None,
    ),
    (
        "input",
        |load| Some(f64::from(load.input_len)),
        |load| load.input_len = 0,
    ),
    (
        "output",
        |load| Some(f64::from(load.output_len)),
        |load| load.output_len = 0,
    ),
];

/// Figures by which a curve is judged, and which are interpolated.
type CurveFigure = (
    fn(&RowFigures) -> Option<f64>,
    fn(&mut RowFigures, Option<f64>),
);

static CURVE_FIGURES: [CurveFigure; 6] = [
    (
        |f| f.peak_bytes.map(|bytes| bytes as f64),
        |f, value| f.peak_bytes = value.map(|bytes| bytes.round() as u64),
    ),
    (
        |f| f.tokens_per_second,
        |f, value| f.tokens_per_second = value,
    ),
    (
        |f| f.requests_per_second,
        |f, value| f.requests_per_second = value,
    ),
    (|f| f.mean_latency_ms, |f, value| f.mean_latency_ms = value),
    (|f| f.ttft_mean_ms, |f, value| f.ttft_mean_ms = value),
    (|f| f.tpot_mean_ms, |f, value| f.tpot_mean_ms = value),
];

/// The rows of a run.
type Rows = HashMap<CellId, CellRow>;

/// Cells that differ in one number of their load, from small to large.
struct LoadCurve<'a> {
    axis: &'static str,
    levels: Vec<f64>,
    cells: Vec<&'a Cell>,
}

impl<'a> LoadCurve<'a> {
    /// The curves of a group.
    fn of_group(group: &'a CellGroup) -> Vec<LoadCurve<'a>> {
        let values = |(_, level, _): &LoadAxis| {
            let levels = group.cells.iter().filter_map(|cell| level(&cell.load));
            levels.map(f64::to_bits).collect::<BTreeSet<_>>().len()
        };
        // The first of equals.
        let axis = LOAD_AXES.iter().rev().max_by_key(|axis| values(axis));
        let Some((name, level, clear)) = axis else {
            return Vec::new();
        };
        let mut curves: Vec<(CellLoad, Vec<(f64, &Cell)>)> = Vec::new();
        for cell in &group.cells {
            let mut others = cell.load.clone();
            clear(&mut others);
            let point = (level(&cell.load).unwrap_or(f64::INFINITY), cell);
            match curves.iter_mut().find(|(load, _)| *load == others) {
                Some((_, points)) => points.push(point),
                None => curves.push((others, vec![point])),
            }
        }
        let sorted = curves.into_iter().map(|(_, mut points)| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (levels, cells) = points.into_iter().unzip();
            LoadCurve {
                axis: name,
                levels,
                cells,
            }
        });
        sorted.collect()
    }

    /// The row of a cell that was measured, or tried.
    fn row<'r>(&self, at: usize, rows: &'r Rows) -> Option<&'r CellRow> {
        let row = rows.get(&self.cells.get(at)?.id)?;
        (row.status != RowStatus::Interpolated).then_some(row)
    }

    /// The places that are known, in their order.
    fn known(&self, rows: &Rows) -> Vec<usize> {
        let places = 0..self.cells.len();
        places.filter(|at| self.row(*at, rows).is_some()).collect()
    }

    /// The figures of a cell that was measured.
    fn figures<'r>(&self, at: usize, rows: &'r Rows) -> Option<&'r RowFigures> {
        let row = self.row(at, rows)?;
        (row.status == RowStatus::Done).then_some(&row.figures)
    }

    /// The place to measure next; `None`: the others follow from what is known.
    fn next_place(&self, rows: &Rows, tolerance: f64) -> Option<usize> {
        let last = self.cells.len().checked_sub(1)?;
        let is_open = |at: &usize| self.row(*at, rows).is_none();
        if self.cells.len() < FEWEST_LOADS {
            return (0..=last).find(|at| is_open(at));
        }
        if let Some(first) = [0, last / 2, last].into_iter().find(|at| is_open(at)) {
            return Some(first);
        }
        let known = self.known(rows);
        let gaps = known.windows(2).filter_map(|ends| match ends {
            [a, b] if b - a > 1 => {
                let undecided = self.is_undecided(&known, (*a, *b), rows, tolerance);
                undecided.then_some((*a, *b))
            }
            _ => None,
        });
        let width = |(a, b): &(usize, usize)| self.levels[*b] / self.levels[*a];
        let (a, b) = gaps.max_by(|x, y| width(x).total_cmp(&width(y)))?;
        let middle = (self.levels[a] * self.levels[b]).sqrt();
        let distance = |at: &usize| (self.levels[*at] / middle).ln().abs();
        (a + 1..b).min_by(|x, y| distance(x).total_cmp(&distance(y)))
    }

    /// Whether what lies between two known places does not follow from them.
    fn is_undecided(
        &self,
        known: &[usize],
        (a, b): (usize, usize),
        rows: &Rows,
        tolerance: f64,
    ) -> bool {
        match (self.figures(a, rows), self.figures(b, rows)) {
            (None, None) => false,
            (Some(_), Some(_)) => self
                .gap_error(known, a, b, rows)
                .is_none_or(|error| error > tolerance),
            _ => true,
        }
    }

    /// How far the ends of a gap lie beside the line between their neighbours, a share; `None`: neither has two.
    fn gap_error(&self, known: &[usize], a: usize, b: usize, rows: &Rows) -> Option<f64> {
        let error = |end: usize| {
            let at = known.iter().position(|place| *place == end)?;
            let (before, after) = (*known.get(at.checked_sub(1)?)?, *known.get(at + 1)?);
            let measured = self.figures(end, rows)?;
            let expected = self.line_at(before, after, end, rows)?;
            let errors = CURVE_FIGURES.iter().filter_map(|(pick, _)| {
                Some((pick(&expected)? / pick(measured).filter(|m| *m > 0.0)? - 1.0).abs())
            });
            errors.reduce(f64::max)
        };
        [error(a), error(b)].into_iter().flatten().reduce(f64::max)
    }

    /// The figures at a place on the line between two that were measured.
    fn line_at(&self, a: usize, b: usize, at: usize, rows: &Rows) -> Option<RowFigures> {
        let (from, to) = (self.figures(a, rows)?, self.figures(b, rows)?);
        let [x, low, high] = [at, a, b].map(|place| self.levels[place].ln());
        let share = (x - low) / (high - low);
        if !share.is_finite() {
            return None;
        }
        let same = |pick: fn(&RowFigures) -> &Option<String>| {
            pick(from).clone().filter(|_| pick(from) == pick(to))
        };
        let mut figures = RowFigures {
            engine: same(|f| &f.engine),
            engine_version: same(|f| &f.engine_version),
            bench: same(|f| &f.bench),
            memory_backend: same(|f| &f.memory_backend),
            simulated: from.simulated || to.simulated,
            ..RowFigures::default()
        };
        for (pick, put) in &CURVE_FIGURES {
            let ends = pick(from).zip(pick(to));
            let ends = ends.filter(|(a, b)| *a > 0.0 && *b > 0.0);
            put(
                &mut figures,
                ends.map(|(a, b)| (a.ln() + share * (b.ln() - a.ln())).exp()),
            );
        }
        Some(figures)
    }

    /// The row of a cell that was not measured, from its neighbours.
    fn row_between(&self, at: usize, rows: &Rows, when: &str) -> Option<CellRow> {
        let cell = self.cells.get(at)?;
        let known = self.known(rows);
        let a = *known.iter().rfind(|place| **place < at)?;
        let b = *known.iter().find(|place| **place > at)?;
        let between = format!(
            "between {axis} {} and {axis} {}",
            self.levels[a],
            self.levels[b],
            axis = self.axis
        );
        let (status, cause, phase, message, figures) = match self.line_at(a, b, at, rows) {
            Some(figures) => {
                let off = self.gap_error(&known, a, b, rows).unwrap_or_default() * 100.0;
                let message = format!("{between}; the line is off by {off:.1} % beside them");
                (RowStatus::Interpolated, None, None, message, figures)
            }
            None => {
                let failed = self.row(a, rows)?;
                let cause = failed.cause.map(|cause| match cause {
                    RowCause::Oom => RowCause::ImpliedOom,
                    other => other,
                });
                let message = format!("{between}, which both have no figures");
                let phase: Option<RowPhase> = failed.phase;
                (
                    RowStatus::Skipped,
                    cause,
                    phase,
                    message,
                    RowFigures::default(),
                )
            }
        };
        Some(CellRow {
            cell: cell.id.clone(),
            group: cell.group.clone(),
            status,
            cause,
            phase,
            message: Some(message),
            ended: when.to_owned(),
            figures,
            ..CellRow::default()
        })
    }
}

/// The cell of a group that is to be measured next, as its place among those that are left; `None`: the others follow
/// from what is known. `tolerance`: share by which a figure may lie beside the line between its neighbours.
pub fn next_deciding_cell(
    group: &CellGroup,
    left: &[&Cell],
    rows: &Rows,
    tolerance: f64,
) -> Option<usize> {
    LoadCurve::of_group(group).iter().find_map(|curve| {
        let cell = curve.cells.get(curve.next_place(rows, tolerance)?)?;
        left.iter().position(|other| other.id == cell.id)
    })
}

/// Rows for the cells of a group that need no measurement, with the tolerance of [`next_deciding_cell`]. `when`: RFC 3339.
pub fn interpolate_cells(
    group: &CellGroup,
    rows: &Rows,
    tolerance: f64,
    when: &str,
) -> Vec<CellRow> {
    let curves = LoadCurve::of_group(group);
    let done = curves
        .iter()
        .filter(|curve| curve.next_place(rows, tolerance).is_none());
    let filled = done.flat_map(|curve| {
        let open = (0..curve.cells.len()).filter(|at| curve.row(*at, rows).is_none());
        open.filter_map(|at| curve.row_between(at, rows, when))
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{load, row, server};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    const TOLERANCE: f64 = 0.1;
    const WHEN: &str = "2026-11-26T12:00:00Z";
    const LEVELS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

    fn group(levels: &[u32]) -> CellGroup {
        let server = server("m");
        let cells = levels
            .iter()
            .map(|n| Cell::new(Arc::clone(&server), load(128, 64, *n)));
        let cells: Vec<Cell> = cells.collect();
        CellGroup {
            id: cells[0].group.clone(),
            server,
            cells,
        }
    }

    /// Measures what is asked for; gives the rows and the levels in the order of asking. `None`: memory runs out.
    fn run(group: &CellGroup, speed: impl Fn(f64) -> Option<f64>) -> (Rows, Vec<u32>) {
        let (mut rows, mut order) = (Rows::new(), Vec::new());
        loop {
            let left: Vec<&Cell> = group.cells.iter().collect();
            let left: Vec<&Cell> = left
                .into_iter()
                .filter(|c| !rows.contains_key(&c.id))
                .collect();
            let Some(place) = next_deciding_cell(group, &left, &rows, TOLERANCE) else {
                break;
            };
            let cell = left[place];
            let level = cell.load.batch_size.unwrap();
            order.push(level);
            let known = match speed(f64::from(level)) {
                Some(speed) => {
                    let mut known = row(cell, RowStatus::Done);
                    known.figures.tokens_per_second = Some(speed);
                    known
                }
                None => row(cell, RowStatus::Failed),
            };
            rows.insert(cell.id.clone(), known);
        }
        for filled in interpolate_cells(group, &rows, TOLERANCE, WHEN) {
            rows.insert(filled.cell.clone(), filled);
        }
        (rows, order)
    }

    #[test]
    fn a_straight_curve_needs_three_loads_and_a_bend_those_around_it() {
        let group = group(&LEVELS);
        let (rows, order) = run(&group, |n| Some(100.0 * n));
        assert_eq!(order, [1, 16, 256]);
        let filled = &rows[&group.cells[3].id];
        assert_eq!(filled.status, RowStatus::Interpolated);
        assert!((filled.figures.tokens_per_second.unwrap() - 800.0).abs() < 1e-6);
        assert_eq!(filled.figures.peak_bytes, Some(3 << 30));
        assert!(
            filled
                .message
                .as_ref()
                .unwrap()
                .contains("batch 1 and batch 16")
        );

        // It grows to 32 and no further.
        let (rows, order) = run(&group, |n| Some(100.0 * n.min(32.0)));
        assert!(
            order.contains(&32) && order.len() < LEVELS.len(),
            "{order:?}"
        );
        for (cell, level) in group.cells.iter().zip(LEVELS) {
            let speed = rows[&cell.id].figures.tokens_per_second.unwrap();
            let truth = 100.0 * f64::from(level.min(32));
            assert!((speed / truth - 1.0).abs() < TOLERANCE, "{level}: {speed}");
        }
    }

    #[test]
    fn the_load_at_which_memory_runs_out_is_found_exactly() {
        let group = group(&LEVELS);
        let (rows, _) = run(&group, |n| (n <= 32.0).then_some(100.0 * n));
        let status = |level: u32| {
            let at = LEVELS.iter().position(|n| *n == level).unwrap();
            let row = &rows[&group.cells[at].id];
            (row.status, row.cause)
        };
        assert_eq!(status(32), (RowStatus::Done, None));
        assert_eq!(status(64), (RowStatus::Failed, Some(RowCause::Oom)));
        assert_eq!(
            status(128),
            (RowStatus::Skipped, Some(RowCause::ImpliedOom))
        );
    }

    #[test]
    fn short_curves_and_loads_without_figures_are_measured_whole() {
        assert_eq!(run(&group(&[1, 8, 64]), Some).1, [1, 8, 64]);
        let (rows, order) = run(&group(&LEVELS), |_| None);
        assert_eq!(order, [1, 16, 256]);
        assert!(
            rows.values()
                .all(|row| row.status != RowStatus::Interpolated)
        );
    }

    proptest! {
        #[test]
        fn every_cell_has_one_row_and_none_is_measured_twice(
            speeds in proptest::collection::vec(proptest::option::of(1.0f64..1e6), LEVELS.len()),
        ) {
            let group = group(&LEVELS);
            let speed = |n: f64| {
                let at = LEVELS.iter().position(|level| f64::from(*level) == n);
                at.and_then(|at| speeds[at])
            };
            let (rows, order) = run(&group, speed);
            prop_assert_eq!(rows.len(), LEVELS.len());
            prop_assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len());
            for filled in rows.values().filter(|row| row.status == RowStatus::Interpolated) {
                let speed = filled.figures.tokens_per_second.unwrap();
                let known = rows.values().filter(|row| row.status == RowStatus::Done);
                let known: Vec<f64> = known.filter_map(|row| row.figures.tokens_per_second).collect();
                let low = known.iter().copied().fold(f64::INFINITY, f64::min);
                let high = known.iter().copied().fold(0.0, f64::max);
                prop_assert!(speed >= low * 0.999 && speed <= high * 1.001);
            }
        }
    }
}
