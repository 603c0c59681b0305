//! The figures of a chart as tables: for readers who cannot see it, and for formats without
//! pictures.

use crate::report::chart::front::is_on_front;
use crate::report::chart::{
    Bars, Chart, ChartAxis, ChartTimeline, Curves, Dot, Heat, Plot, Segment, Square,
};
use crate::report::content::{Grid, TableCell};
use crate::report::figures::count_cell;
use crate::report::layout::{format_figure, grouped_count, with_unit};
use crate::report::tables::TableBuilder;

/// The tables with the figures of a chart; none of a waterfall, for the table beside it has them.
pub fn of_chart(chart: &Chart) -> Vec<Grid> {
    let (id, title) = (format!("{}-figures", chart.id), &chart.title);
    let grid = match &chart.plot {
        Plot::Bars(bars) if bars.is_waterfall() => None,
        Plot::Bars(bars) => of_bars(bars).grid_of_rows(id, title),
        Plot::Curves(curves) => (of_curves(curves).grid_of_rows(id, title)).map(drop_empty_columns),
        Plot::Heat(heat) => of_heat(heat).grid_of_rows(id, title),
        Plot::Timeline(timeline) => return of_timeline(chart, timeline),
    };
    grid.into_iter().collect()
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

fn of_bars(bars: &Bars) -> TableBuilder<(&str, &str, f64, Option<&Segment>)> {
    let head = with_unit("value", &bars.axis.unit);
    let rows = bars.bars.iter().flat_map(|bar| {
        let segments = bar.segments.iter().map(|segment| {
            let part = bars.parts.get(segment.part);
            let part = part.map_or("", |p| p.label.as_str());
            (bar.label.as_str(), part, segment.value, Some(segment))
        });
        let limit = bar.limit.iter();
        segments
            .chain(limit.map(|(limit, words)| (bar.label.as_str(), words.as_str(), *limit, None)))
    });
    TableBuilder::of_items(rows)
        .words("", "", |(bar, ..)| bar)
        .words("part", "part", |(_, part, ..)| part)
        .figures(&head, &head, |(.., value, segment)| TableCell {
            source: segment.and_then(|s| s.source),
            ..value_cell(Some(value), "")
        })
        .known_words("confidence", "confidence", |(.., segment)| {
            segment.and_then(|s| s.confidence.as_deref())
        })
}

/// A row for each point and for each level, which has a height alone.
fn of_curves(curves: &Curves) -> TableBuilder<(&str, Option<&Dot>, Option<f64>)> {
    let points = curves.curves.iter().flat_map(|curve| {
        // A vertical line marks a place; the heights of its ends are no figures.
        let (points, is_mark) = match curve.points.as_slice() {
            [low, high] if low.x == high.x && low.label.is_none() => (&curve.points[..1], true),
            points => (points, false),
        };
        let height = move |dot: &Dot| Some(dot.y).filter(|_| !is_mark);
        (points.iter()).map(move |dot| (curve.label.as_str(), Some(dot), height(dot)))
    });
    let levels = curves.levels.iter();
    let levels = levels.map(|(level, words)| (words.as_str(), None, Some(*level)));
    let range = |dot: Option<&Dot>, pick: fn((f64, f64)) -> f64| {
        let cell = |dot: &Dot| value_cell(dot.range.map(pick), "no spread was measured");
        dot.map(cell).unwrap_or_default()
    };
    let across = with_unit(&curves.x.title, &curves.x.unit);
    let up = with_unit(&curves.y.title, &curves.y.unit);
    let names = if curves.front.is_empty() {
        "run"
    } else {
        "load"
    };
    let front = "on the Pareto front";
    TableBuilder::of_items(points.chain(levels))
        .words("", "", |(label, ..)| label)
        .figures(&across, &across, |(_, dot, _)| {
            let cell = dot.map(|dot| axis_cell(&curves.x, dot.x));
            cell.unwrap_or_default()
        })
        .figures(&up, &up, |(_, dot, height)| match (dot, height) {
            (Some(_), Some(height)) => axis_cell(&curves.y, height),
            (None, Some(level)) => value_cell(Some(level), ""),
            (_, None) => TableCell::default(),
        })
        .figures("lowest", "lowest", |(_, dot, _)| range(dot, |r| r.0))
        .figures("highest", "highest", |(_, dot, _)| range(dot, |r| r.1))
        .known_words(names, names, |(_, dot, _)| {
            dot.and_then(|d| d.label.as_deref())
        })
        .known_words(front, front, |(_, dot, _)| {
            dot.filter(|d| is_on_front(&curves.front, d)).map(|_| "yes")
        })
}

/// Columns behind the values of both axes that nothing fills say nothing.
fn drop_empty_columns(mut grid: Grid) -> Grid {
    for column in (3..grid.columns.len()).rev() {
        if grid.rows.iter().all(|row| row[column].text.is_empty()) {
            grid.columns.remove(column);
            (grid.rows.iter_mut()).for_each(|row| drop(row.remove(column)));
        }
    }
    grid
}

fn of_heat(heat: &Heat) -> TableBuilder<(&str, &[Square])> {
    let figure = with_unit(&heat.figure.title, &heat.figure.unit);
    let corner = format!("{figure} by {} and {}", heat.y.0, heat.x.0);
    let names = heat.y.1.iter().map(String::as_str);
    let rows = (names.chain(std::iter::repeat(""))).zip(heat.squares.iter().map(Vec::as_slice));
    let table = TableBuilder::of_items(rows).words(&corner, "", |(name, _)| name);
    (heat.x.1.iter().enumerate()).fold(table, |table, (n, word)| {
        table.figures(word, word, |(_, squares)| {
            let Some(Square { value, text }) = squares.get(n) else {
                return TableCell::missing_cell("not asked for");
            };
            match value {
                Some(v) if text.is_empty() => value_cell(Some(*v), ""),
                Some(v) => TableCell::number_cell(*v, text),
                None if text.is_empty() => TableCell::missing_cell("not asked for"),
                None => TableCell::text_cell(text),
            }
        })
    })
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
