//! The figures of a chart as tables: for readers who cannot see it, and for formats without
//! pictures.

use crate::report::chart::{Axis, Bars, Chart, Curves, Heat, Plot, Timeline};
use crate::report::content::{Cell, Column, Grid};
use crate::report::layout::{count, figure};

/// The figures of a chart.
pub fn of_chart(chart: &Chart) -> Grid {
    let mut grid = match &chart.plot {
        Plot::Bars(bars) => of_bars(bars),
        Plot::Curves(curves) => of_curves(curves),
        Plot::Heat(heat) => of_heat(heat),
    };
    grid.id = format!("{}-figures", chart.id);
    grid.caption = chart.title.clone();
    grid
}

/// What a timeline shows in few lines: its lanes, then its phases and events in order of time.
pub fn of_timeline(timeline: &Timeline) -> [Grid; 2] {
    let lanes = timeline.lanes.iter().map(|lane| {
        let low = lane.stretches.iter().map(|s| s.low).reduce(f64::min);
        let high = lane.stretches.iter().map(|s| s.high).reduce(f64::max);
        let last = lane.stretches.last().map(|s| s.high);
        let none = "nothing was sampled";
        vec![
            Cell::text(&lane.label),
            Cell::text(&lane.unit),
            value(low, none),
            value(high, none),
            value(last, none),
            value(lane.capacity, "not known"),
            Cell::number(lane.samples as f64, count(lane.samples)),
        ]
    });
    let phases = timeline.phases.iter().map(|phase| {
        let words = format!("{} begins", phase.label);
        (phase.from_s, [words, format!("until {:.3} s", phase.to_s)])
    });
    let events = timeline.events.iter().map(|event| {
        let bad = if event.bad { "trouble" } else { "" };
        (event.at_s, [event.label.clone(), bad.to_owned()])
    });
    let mut moments: Vec<_> = phases.chain(events).collect();
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    let moments = moments.into_iter().map(|(at, [what, more])| {
        vec![
            Cell::number(at, format!("{at:.3}")),
            Cell::text(what),
            Cell::text(more),
        ]
    });
    [
        Grid {
            id: format!("{}-lanes", timeline.id),
            caption: format!("{}: lowest and highest", timeline.title),
            columns: columns(&[
                ("", false),
                ("unit", false),
                ("lowest", true),
                ("highest", true),
                ("last", true),
                ("device has", true),
                ("samples", true),
            ]),
            rows: lanes.collect(),
        },
        Grid {
            id: format!("{}-moments", timeline.id),
            caption: format!("{}: phases and events", timeline.title),
            columns: columns(&[("second", true), ("what", false), ("", false)]),
            rows: moments.collect(),
        },
    ]
}

fn of_bars(bars: &Bars) -> Grid {
    let head = with_unit("value", &bars.axis.unit);
    let mut rows = Vec::new();
    for bar in &bars.bars {
        for segment in &bar.segments {
            let part = bars.parts.get(segment.part).map_or("", String::as_str);
            let mut cell = value(Some(segment.value), "");
            cell.source = segment.source;
            let confidence = segment.confidence.clone().unwrap_or_default();
            rows.push(vec![
                Cell::text(&bar.label),
                Cell::text(part),
                cell,
                Cell::text(confidence),
            ]);
        }
        if let Some((limit, words)) = &bar.limit {
            let cell = value(Some(*limit), "");
            rows.push(vec![
                Cell::text(&bar.label),
                Cell::text(words),
                cell,
                Cell::default(),
            ]);
        }
    }
    Grid {
        columns: columns(&[
            ("", false),
            ("part", false),
            (&head, true),
            ("confidence", false),
        ]),
        rows,
        ..Grid::default()
    }
}

fn of_curves(curves: &Curves) -> Grid {
    let mut rows = Vec::new();
    for curve in &curves.curves {
        for dot in &curve.points {
            rows.push(vec![
                Cell::text(&curve.label),
                on(&curves.x, dot.x),
                on(&curves.y, dot.y),
                value(dot.range.map(|r| r.0), "no spread was measured"),
                value(dot.range.map(|r| r.1), "no spread was measured"),
                Cell::text(dot.label.clone().unwrap_or_default()),
            ]);
        }
    }
    for (level, words) in &curves.levels {
        let mut row = vec![Cell::text(words), Cell::default(), value(Some(*level), "")];
        row.resize(6, Cell::default());
        rows.push(row);
    }
    let mut grid = Grid {
        columns: columns(&[
            ("", false),
            (&with_unit(&curves.x.title, &curves.x.unit), true),
            (&with_unit(&curves.y.title, &curves.y.unit), true),
            ("lowest", true),
            ("highest", true),
            ("run", false),
        ]),
        rows,
        ..Grid::default()
    };
    // Columns that nothing fills say nothing.
    for column in (3..grid.columns.len()).rev() {
        if grid.rows.iter().all(|row| row[column].text.is_empty()) {
            grid.columns.remove(column);
            grid.rows
                .iter_mut()
                .for_each(|row| drop(row.remove(column)));
        }
    }
    grid
}

fn of_heat(heat: &Heat) -> Grid {
    let Axis { title, unit, .. } = &heat.figure;
    let corner = format!(
        "{} by {} and {}",
        with_unit(title, unit),
        heat.y.0,
        heat.x.0
    );
    let mut heads = vec![Column {
        title: corner,
        ..Column::default()
    }];
    heads.extend(heat.x.1.iter().map(|word| Column {
        title: word.clone(),
        key: word.clone(),
        numeric: true,
    }));
    let rows = heat.squares.iter().enumerate().map(|(i, squares)| {
        let label = heat.y.1.get(i).map_or("", String::as_str);
        let cells = squares.iter().map(|square| match square.value {
            Some(v) if square.text.is_empty() => value(Some(v), ""),
            Some(v) => Cell::number(v, &square.text),
            None if square.text.is_empty() => Cell::missing("not asked for"),
            None => Cell::text(&square.text),
        });
        let mut row: Vec<Cell> = std::iter::once(Cell::text(label)).chain(cells).collect();
        row.resize(heads.len(), Cell::missing("not asked for"));
        row
    });
    let rows = rows.collect();
    Grid {
        columns: heads,
        rows,
        ..Grid::default()
    }
}

/// A value of an axis: a count has no decimals.
fn on(axis: &Axis, at: f64) -> Cell {
    if axis.unit.is_empty() && at.fract() == 0.0 && (0.0..1e15).contains(&at) {
        Cell::number(at, count(at as u64))
    } else {
        value(Some(at), "")
    }
}

fn value(value: Option<f64>, why: &str) -> Cell {
    match value.filter(|v| v.is_finite()) {
        Some(v) => Cell::number(v, figure(v)),
        None => Cell::missing(why),
    }
}

fn with_unit(title: &str, unit: &str) -> String {
    match unit {
        "" => title.to_owned(),
        unit => format!("{title}, {unit}"),
    }
}

fn columns(heads: &[(&str, bool)]) -> Vec<Column> {
    let column = |&(title, numeric): &(&str, bool)| Column {
        title: title.to_owned(),
        key: title.to_owned(),
        numeric,
    };
    heads.iter().map(column).collect()
}
