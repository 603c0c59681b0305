//! A stretch of time in the columns of a terminal: what was seen in each, lowest and highest.

use crate::report::chart::TimelineLane;

/// Seconds over columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// First moment, seconds.
    pub from_s: f64,
    /// Last moment, seconds.
    pub to_s: f64,
    /// Columns.
    pub columns: usize,
}

impl Span {
    /// The column of a moment; those outside are in none.
    pub fn column_at(&self, at_s: f64) -> Option<usize> {
        let inside = at_s >= self.from_s && at_s <= self.to_s && self.columns > 0;
        inside.then(|| self.nearest_column(at_s))
    }

    /// The same, moments outside at the edges.
    pub fn nearest_column(&self, at_s: f64) -> usize {
        let length = self.to_s - self.from_s;
        let share = (at_s - self.from_s) / length;
        let share = if length > 0.0 { share } else { 0.0 };
        // NaN is the left edge.
        let column = (share.clamp(0.0, 1.0) * self.columns as f64).floor() as usize;
        column.min(self.columns.saturating_sub(1))
    }

    /// The moment at the middle of a column.
    fn middle(&self, column: usize) -> f64 {
        let share = (column as f64 + 0.5) / self.columns.max(1) as f64;
        self.from_s + (self.to_s - self.from_s) * share
    }
}

/// What was seen in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ColumnRange {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

/// Between two samples that are further apart than this many intervals nothing is drawn.
const HOLE: f64 = 4.0;

/// What a lane has in each column. Columns between two samples that follow each other hold the
/// level of the one before; where sampling stopped there is nothing.
pub(super) fn lane_columns(lane: &TimelineLane, span: Span) -> Vec<Option<ColumnRange>> {
    let mut columns: Vec<Option<ColumnRange>> = vec![None; span.columns];
    for s in lane.stretches.iter().filter(|s| s.is_known()) {
        if s.to_s < span.from_s || s.from_s > span.to_s {
            continue;
        }
        let (first, last) = (span.nearest_column(s.from_s), span.nearest_column(s.to_s));
        for column in columns.iter_mut().take(last + 1).skip(first) {
            let (low, high) = column.map_or((s.low, s.high), |old| (old.low, old.high));
            *column = Some(ColumnRange {
                low: low.min(s.low),
                high: high.max(s.high),
            });
        }
    }
    let usual = usual_gap(lane);
    let pairs = lane.stretches.iter().zip(lane.stretches.iter().skip(1));
    for (before, after) in pairs {
        if after.from_s < span.from_s || before.to_s > span.to_s {
            continue;
        }
        let hole = after.from_s - before.to_s > usual * HOLE;
        if hole || !before.is_known() || !after.is_known() {
            continue;
        }
        let held = ColumnRange {
            low: before.low,
            high: before.low,
        };
        let (first, last) = (
            span.nearest_column(before.to_s),
            span.nearest_column(after.from_s),
        );
        for (i, column) in columns.iter_mut().enumerate().take(last + 1).skip(first) {
            let between = span.middle(i) > before.to_s && span.middle(i) < after.from_s;
            if column.is_none() && between {
                *column = Some(held);
            }
        }
    }
    columns
}

/// The usual time from one stretch to the next, seconds.
fn usual_gap(lane: &TimelineLane) -> f64 {
    let pairs = lane.stretches.iter().zip(lane.stretches.iter().skip(1));
    let gaps = pairs.map(|(a, b)| b.from_s - a.to_s);
    crate::profile::stats::median_of(gaps.collect()).unwrap_or(0.0)
}
