//! The figures of a chart as tables: for readers who cannot see it, and for formats without
//! pictures.

use crate::report::chart::front::is_on_front;
use crate::report::chart::{Bars, Chart, ChartAxis, ChartTimeline, Curves, Heat, Plot};
use crate::report::content::{Grid, TableCell, TableColumn, number_column, text_column};
use crate::report::figures::count_cell;
use crate::report::layout::{format_figure, grouped_count, with_unit};
use crate::report::tables::TableBuilder;

/// The tables with the figures of a chart; none of a waterfall, for the table beside it has them.
pub fn of_chart(chart: &Chart) -> Vec<Grid> {
    let grid = match &chart.plot {
        Plot::Bars(bars) if bars.is_waterfall() => return Vec::new(),
        Plot::Bars(bars) => of_bars(bars),
        Plot::Curves(curves) => of_curves(curves),
        Plot::Heat(heat) => of_heat(heat),
        Plot::Timeline(timeline) => return of_timeline(chart, timeline),
    };
    let named = Grid {
        id: format!("{}-figures", chart.id),
        caption: chart.title.clone(),
        ..grid
    };
    [named].into_iter().filter(|g| !g.rows.is_empty()).collect()
}

/// What a timeline shows in few lines: its lanes, then its phases and events in order of time.
fn of_timeline(chart: &Chart, timeline: &ChartTimeline) -> Vec<Grid> {
    let seen = |value: Option<f64>| value_cell(value, "nothing was sampled");
    let lanes = TableBuilder::of_items(&timeline.lanes)
        .words("", "", |lane| &lane.label)
        .words("unit", "unit", |lane| &lane.unit)
        .figures("lowest", "lowest", |lane| {
            seen(lane.stretches.iter().map(|s| s.low).reduce(f64::min))
        })
        .figures("highest", "highest", |lane| {
            seen(lane.stretches.iter().map(|s| s.high).reduce(f64::max))
        })
        .figures("last", "last", |lane| {
            seen(lane.stretches.last().map(|s| s.high))
        })
        .figures("device has", "device has", |lane| {
            value_cell(lane.capacity, "not known")
        })
        .figures("samples", "samples", |lane| count_cell(lane.samples))
        .grid_of_rows(
            format!("{}-lanes", chart.id),
            format!("{}: lowest and highest", chart.title),
        );
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
    let moments = TableBuilder::of_items(&moments)
        .figures("second", "second", |(at, _)| {
            TableCell::number_cell(*at, format!("{at:.3}"))
        })
        .words("what", "what", |(_, [what, _])| what)
        .words("", "", |(_, [_, more])| more)
        .grid_of_rows(
            format!("{}-moments", chart.id),
            format!("{}: phases and events", chart.title),
        );
    lanes.into_iter().chain(moments).collect()
}

fn of_bars(bars: &Bars) -> Grid {
    let head = with_unit("value", &bars.axis.unit);
    let mut rows = Vec::new();
    for bar in &bars.bars {
        for segment in &bar.segments {
            let part = bars.parts.get(segment.part).map_or("", |p| &p.label);
            let mut cell = value_cell(Some(segment.value), "");
            cell.source = segment.source;
            let confidence = segment.confidence.clone().unwrap_or_default();
            rows.push(vec![
                TableCell::text_cell(&bar.label),
                TableCell::text_cell(part),
                cell,
                TableCell::text_cell(confidence),
            ]);
        }
        if let Some((limit, words)) = &bar.limit {
            let cell = value_cell(Some(*limit), "");
            rows.push(vec![
                TableCell::text_cell(&bar.label),
                TableCell::text_cell(words),
                cell,
                TableCell::default(),
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
        // A vertical line marks a place; the heights of its ends are no figures.
        let (points, is_mark) = match curve.points.as_slice() {
            [low, high] if low.x == high.x && low.label.is_none() => (&curve.points[..1], true),
            points => (points, false),
        };
        for dot in points {
            rows.push(vec![
                TableCell::text_cell(&curve.label),
                axis_cell(&curves.x, dot.x),
                if is_mark {
                    TableCell::default()
                } else {
                    axis_cell(&curves.y, dot.y)
                },
                value_cell(dot.range.map(|r| r.0), "no spread was measured"),
                value_cell(dot.range.map(|r| r.1), "no spread was measured"),
                TableCell::text_cell(dot.label.clone().unwrap_or_default()),
                TableCell::text_cell(if is_on_front(&curves.front, dot) {
                    "yes"
                } else {
                    ""
                }),
            ]);
        }
    }
    for (level, words) in &curves.levels {
        let mut row = vec![
            TableCell::text_cell(words),
            TableCell::default(),
            value_cell(Some(*level), ""),
        ];
        row.resize(7, TableCell::default());
        rows.push(row);
    }
    let mut grid = Grid {
        columns: columns(&[
            ("", false),
            (&with_unit(&curves.x.title, &curves.x.unit), true),
            (&with_unit(&curves.y.title, &curves.y.unit), true),
            ("lowest", true),
            ("highest", true),
            (
                if curves.front.is_empty() {
                    "run"
                } else {
                    "load"
                },
                false,
            ),
            ("on the Pareto front", false),
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
    let ChartAxis { title, unit, .. } = &heat.figure;
    let corner = format!(
        "{} by {} and {}",
        with_unit(title, unit),
        heat.y.0,
        heat.x.0
    );
    let mut heads = vec![TableColumn {
        title: corner,
        ..TableColumn::default()
    }];
    heads.extend(heat.x.1.iter().map(|word| number_column(word, word)));
    let rows = heat.squares.iter().enumerate().map(|(i, squares)| {
        let label = heat.y.1.get(i).map_or("", String::as_str);
        let cells = squares.iter().map(|square| match square.value {
            Some(v) if square.text.is_empty() => value_cell(Some(v), ""),
            Some(v) => TableCell::number_cell(v, &square.text),
            None if square.text.is_empty() => TableCell::missing_cell("not asked for"),
            None => TableCell::text_cell(&square.text),
        });
        let mut row: Vec<TableCell> = std::iter::once(TableCell::text_cell(label))
            .chain(cells)
            .collect();
        row.resize(heads.len(), TableCell::missing_cell("not asked for"));
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
fn axis_cell(axis: &ChartAxis, at: f64) -> TableCell {
    if axis.unit.is_empty() && at.fract() == 0.0 && (0.0..1e15).contains(&at) {
        TableCell::number_cell(at, grouped_count(at as u64))
    } else {
        value_cell(Some(at), "")
    }
}

fn value_cell(value: Option<f64>, why: &str) -> TableCell {
    match value.filter(|v| v.is_finite()) {
        Some(v) => TableCell::number_cell(v, format_figure(v)),
        None => TableCell::missing_cell(why),
    }
}

fn columns(heads: &[(&str, bool)]) -> Vec<TableColumn> {
    let column = |&(title, numeric): &(&str, bool)| {
        if numeric {
            number_column(title, title)
        } else {
            text_column(title, title)
        }
    };
    heads.iter().map(column).collect()
}
