//! Lines and points over a number, with whiskers and levels.

use super::front::is_on_front;
use super::legend::{self, Sign, dash_pattern, marker_path};
use super::lettering::{fit_text, harmless_text, harmless_unit, text_width, widest_text};
use super::palette::Ink;
use super::pen::{Anchor, ChartMark, SvgWriter, format_number, path_step, polyline};
use super::scale::{AxisScale, range_of, range_with_unit, scaled_value, value_with_unit};
use super::svg::{DrawnPlot, SIDE, WIDTH, draw_nothing, left_out};
use super::{Curve, Curves, Dot};
use crate::report::layout::with_unit;
use std::collections::BTreeSet;

/// Height of the plot.
const HEIGHT: f64 = 330.0;

/// Points that each say what they are; of more, only the shape is drawn.
const POINTED_AT: usize = 1500;

/// Points that have their words beside them, where there is room.
const NAMED: usize = 24;

/// A point that has a place.
struct Spot<'a> {
    at: (f64, f64),
    dot: &'a Dot,
}

/// Draws them below `top`.
pub fn draw_curves<'a>(pen: &mut SvgWriter, curves: &'a Curves, top: f64) -> DrawnPlot {
    let every = || curves.curves.iter().flat_map(|c| &c.points);
    let kept = every().filter_map(|d| placed(curves, (d.x, d.y)));
    let kept: Vec<(f64, f64)> = kept.collect();
    let missing = every().count() - kept.len();
    let remarks = left_out(missing).into_iter().collect();
    if kept.is_empty() {
        return DrawnPlot {
            remarks,
            ..draw_nothing(pen, top)
        };
    }
    let units = (harmless_unit(&curves.x.unit), harmless_unit(&curves.y.unit));
    let entries = entries(curves);
    let top = legend::draw_legend(pen, &entries, top);
    let y_words = with_unit(&harmless_text(&curves.y.title), &units.1);
    let plot_top = top + if y_words.is_empty() { 8.0 } else { 24.0 };
    let plot_bottom = plot_top + HEIGHT;
    let heights = range_of(heights(curves)).unwrap_or_default();
    let y = AxisScale::new(curves.y.scale, heights, (plot_bottom, plot_top), 6, true);
    let ticks = widest_text(y.ticks.iter().map(|t| &t.1), 11.0);
    let (left, right) = (SIDE + ticks + 8.0, WIDTH - SIDE - 6.0);
    let across = range_of(kept.iter().map(|at| at.0)).unwrap_or_default();
    let x = if curves.x_names.is_empty() {
        AxisScale::new(curves.x.scale, across, (left, right), 12, true)
    } else {
        named_ruler(&curves.x_names, across, (left, right))
    };

    let room = (12.0, WIDTH - 2.0 * SIDE);
    pen.draw_fitted((SIDE, top + 9.0), room, Anchor::Start, Ink::Muted, &y_words);
    for (value, words) in &y.ticks {
        let at = y.place_of(*value);
        pen.draw_line((left, at), (right, at), Ink::Grid, "");
        pen.draw_words((left - 7.0, at + 4.0), 11.0, Anchor::End, Ink::Muted, words);
    }
    draw_grid_across(pen, &x, (plot_top, plot_bottom));
    ticks_words(pen, &x, plot_bottom);
    pen.draw_line((left, plot_bottom), (right, plot_bottom), Ink::Muted, "");
    let below = ((left + right) / 2.0, plot_bottom + 33.0);
    let bottom = axis_words(pen, &harmless_text(&curves.x.title), &units.0, below);

    let mut taken = draw_levels(pen, curves, &y, (left, right), &units.1);
    let pointed_at = kept.len() <= POINTED_AT;
    let spot = |dot: &'a Dot| {
        let (at_x, at_y) = placed(curves, (dot.x, dot.y))?;
        let at = (x.place_of(at_x), y.place_of(at_y));
        Some(Spot { at, dot })
    };
    let spots: Vec<Vec<Option<Spot<'_>>>> = (curves.curves.iter())
        .map(|curve| curve.points.iter().map(spot).collect())
        .collect();
    let front = curves.front.iter().filter_map(|at| {
        let (at_x, at_y) = placed(curves, *at)?;
        Some((x.place_of(at_x), y.place_of(at_y)))
    });
    let front: Vec<(f64, f64)> = front.collect();
    draw_front_line(pen, &front);
    for (series, curve) in curves.curves.iter().enumerate() {
        if curve.joined {
            join(pen, series, &spots[series]);
        }
    }
    for (series, curve) in curves.curves.iter().enumerate() {
        whiskers(pen, curves, series, &spots[series], &y);
        if pointed_at {
            points(pen, series, curve, &spots[series], &units)
        } else {
            shape(pen, series, &spots[series])
        }
    }
    draw_front_rings(pen, &front);
    let plot = (left, right, plot_top, plot_bottom);
    name_points(pen, curves, &spots, plot, &mut taken);
    DrawnPlot {
        bottom,
        description: describe_curves(curves, across, heights, &units),
        remarks,
    }
}

/// A horizontal axis of named values, with half a step of room at its ends.
fn named_ruler(
    names: &[(f64, String)],
    (from, to): (f64, f64),
    (left, right): (f64, f64),
) -> AxisScale {
    let room = ((right - left) / names.len() as f64 - 8.0).clamp(60.0, 240.0);
    let ticks = (names.iter())
        .filter(|(value, _)| (from..=to).contains(value))
        .map(|(value, name)| (*value, fit_text(&harmless_text(name), 11.0, room)));
    AxisScale::plain_ruler((from - 0.5, to + 0.5), (left, right), ticks.collect())
}

/// Words of an axis below it, around `at`; where they end.
pub fn axis_words(pen: &mut SvgWriter, title: &str, unit: &str, (middle, line): (f64, f64)) -> f64 {
    let words = with_unit(title, unit);
    if words.is_empty() {
        return line - 12.0;
    }
    let shown = fit_text(&words, 12.0, WIDTH - 2.0 * SIDE);
    let half = text_width(&shown, 12.0) / 2.0;
    let middle = middle.clamp(SIDE + half - 0.5, WIDTH - SIDE - half + 0.5);
    let room = (12.0, WIDTH - 2.0 * SIDE);
    pen.draw_fitted((middle, line), room, Anchor::Middle, Ink::Muted, &words);
    line + 6.0
}

/// A point's values, where both have a place.
fn placed(curves: &Curves, (x, y): (f64, f64)) -> Option<(f64, f64)> {
    scaled_value(curves.x.scale, x).zip(scaled_value(curves.y.scale, y))
}

/// All that the upward axis must have a place for.
fn heights(curves: &Curves) -> impl Iterator<Item = f64> {
    let dots = curves.curves.iter().flat_map(|c| &c.points);
    dots.filter(|d| placed(curves, (d.x, d.y)).is_some())
        .flat_map(|d| [Some(d.y), d.range.map(|r| r.0), d.range.map(|r| r.1)])
        .flatten()
        .chain(curves.levels.iter().map(|l| l.0))
        .filter_map(|v| scaled_value(curves.y.scale, v))
}

fn entries(curves: &Curves) -> Vec<(Sign, String)> {
    let labelled = (curves.curves.iter().enumerate())
        .filter(|(_, c)| !c.label.is_empty())
        .map(|(series, c)| (Sign::Curve(series, c.joined), harmless_text(&c.label)));
    let front = (!curves.front.is_empty()).then(|| (Sign::Ring, "Pareto front".to_owned()));
    labelled.chain(front).collect()
}

/// A line from above to below at each tick of an axis across.
pub fn draw_grid_across(pen: &mut SvgWriter, x: &AxisScale, (top, bottom): (f64, f64)) {
    for (value, _) in &x.ticks {
        let at = x.place_of(*value);
        pen.draw_line((at, top), (at, bottom), Ink::Grid, "");
    }
}

/// Words of the ticks of an axis across, as many as have room.
pub fn ticks_words(pen: &mut SvgWriter, x: &AxisScale, bottom: f64) {
    let mut free = f64::NEG_INFINITY;
    for (value, words) in &x.ticks {
        let half = text_width(words, 11.0) / 2.0;
        let at = x.place_of(*value).clamp(half + 2.0, WIDTH - half - 2.0);
        if at - half >= free {
            pen.draw_words((at, bottom + 16.0), 11.0, Anchor::Middle, Ink::Muted, words);
            free = at + half + 8.0;
        }
    }
}

/// A place that words have taken: left, top, right, bottom.
type PixelSpan = (f64, f64, f64, f64);

/// Lines right across, each with its words at the right end, none over another's.
fn draw_levels(
    pen: &mut SvgWriter,
    curves: &Curves,
    y: &AxisScale,
    (left, right): (f64, f64),
    unit: &str,
) -> Vec<PixelSpan> {
    let levels = curves.levels.iter().filter_map(|(value, words)| {
        let value = scaled_value(curves.y.scale, *value)?;
        Some((y.place_of(value), value, harmless_text(words)))
    });
    let mut levels: Vec<(f64, f64, String)> = levels.collect();
    levels.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, value, words) in &levels {
        let mark = ChartMark::of_figure(words, *value, unit);
        let stroke = pen.paint_for(Ink::Text);
        let d = format!("{}H{}", path_step('M', (left, *at)), format_number(right));
        let attributes = format!(r#"stroke="{stroke}" stroke-width="1.4" stroke-dasharray="6 3""#);
        pen.marked_path(&d, &attributes, &mark);
    }
    let mut taken: Vec<PixelSpan> = Vec::new();
    let mut free = f64::NEG_INFINITY;
    for (at, _, words) in levels {
        // Above its line, or below it where another's words or line are above.
        let line = if at - 16.0 >= free {
            at - 5.0
        } else {
            (at + 12.0).max(free + 13.0).min(WIDTH)
        };
        free = line.max(at);
        let room = (11.0, (right - left) * 0.6);
        // High throughput at high latency is at the right, where most points of a Pareto chart are.
        let (from, to) = if curves.front.is_empty() {
            let at = (right - 4.0, line);
            let wide = draw_over_lines(pen, at, room, Anchor::End, &words);
            (right - 4.0 - wide, right)
        } else {
            let at = (left + 4.0, line);
            let wide = draw_over_lines(pen, at, room, Anchor::Start, &words);
            (left, left + 8.0 + wide)
        };
        taken.push((from, line - 10.0, to, line + 3.0));
    }
    taken
}

/// Words over lines.
fn draw_over_lines(
    pen: &mut SvgWriter,
    at: (f64, f64),
    room: (f64, f64),
    anchor: Anchor,
    words: &str,
) -> f64 {
    pen.with_halo(Ink::Ground, |pen| {
        pen.draw_fitted(at, room, anchor, Ink::Text, words)
    })
}

/// The line through the points, broken where one has no place.
fn join(pen: &mut SvgWriter, series: usize, spots: &[Option<Spot<'_>>]) {
    let mut d = String::new();
    let mut last: Option<(i64, i64)> = None;
    for spot in spots {
        let Some(spot) = spot else {
            last = None;
            continue;
        };
        let here = pixel(spot.at);
        if last != Some(here) {
            d.push_str(&path_step(if last.is_none() { 'M' } else { 'L' }, spot.at));
        }
        last = Some(here);
    }
    let stroke = pen.paint_for(Ink::Series(series));
    let dashes = dash_pattern(series);
    let attributes = format!(
        r#"fill="none" stroke="{stroke}" stroke-width="2" stroke-linejoin="round"{dashes}"#
    );
    pen.draw_path(&d, &attributes);
}

fn whiskers(
    pen: &mut SvgWriter,
    curves: &Curves,
    series: usize,
    spots: &[Option<Spot<'_>>],
    y: &AxisScale,
) {
    let mut d = String::new();
    let mut seen = BTreeSet::new();
    for spot in spots.iter().flatten() {
        let place = |value| scaled_value(curves.y.scale, value);
        let ends = (spot.dot.range).and_then(|(low, high)| place(low).zip(place(high)));
        let Some((low, high)) = ends else { continue };
        let (x, from, to) = (spot.at.0, y.place_of(low), y.place_of(high));
        if (from - to).abs() < 0.5 || !seen.insert((pixel((x, from)), pixel((x, to)))) {
            continue;
        }
        d.push_str(&format!(
            "{}h8{}V{}{}h8",
            path_step('M', (x - 4.0, from)),
            path_step('M', (x, from)),
            format_number(to),
            path_step('M', (x - 4.0, to)),
        ));
    }
    if !d.is_empty() {
        let stroke = pen.paint_for(Ink::Series(series));
        let attributes = format!(r#"fill="none" stroke="{stroke}" stroke-width="1.3""#);
        pen.draw_path(&d, &attributes);
    }
}

/// The Pareto front below the curves.
fn draw_front_line(pen: &mut SvgWriter, front: &[(f64, f64)]) {
    if front.len() > 1 {
        let attributes = concat!(
            r#"fill="none" stroke-width="9" stroke-opacity="0.28" "#,
            r#"stroke-linejoin="round" stroke-linecap="round" pointer-events="none""#
        );
        pen.draw_stroke(&polyline(front), Ink::Muted, attributes);
    }
}

/// A ring around each of its points.
fn draw_front_rings(pen: &mut SvgWriter, front: &[(f64, f64)]) {
    let d: String = front.iter().map(|at| marker_path(0, *at, 7.5)).collect();
    if !d.is_empty() {
        let attributes = r#"fill="none" stroke-width="1.5" pointer-events="none""#;
        pen.draw_stroke(&d, Ink::Text, attributes);
    }
}

/// Each point with its tooltip.
fn points(
    pen: &mut SvgWriter,
    series: usize,
    curve: &Curve,
    spots: &[Option<Spot<'_>>],
    units: &(String, String),
) {
    let [fill, ground] = [Ink::Series(series), Ink::Ground].map(|ink| pen.paint_for(ink));
    let radius = match spots.len() {
        0..=60 => 4.0,
        61..=250 => 3.0,
        _ => 2.0,
    };
    pen.open_group(&format!(
        r#"fill="{fill}" stroke="{ground}" stroke-width="0.8""#
    ));
    for spot in spots.iter().flatten() {
        let dot = spot.dot;
        let names = [Some(curve.label.as_str()), dot.label.as_deref()].into_iter();
        let names = names.flatten().filter(|l| !l.is_empty()).map(harmless_text);
        let named: Vec<String> = names.chain([value_with_unit(dot.x, &units.0)]).collect();
        let range = dot.range.filter(|r| r.0.is_finite() && r.1.is_finite());
        let mark = ChartMark {
            more: range.map(|ends| range_with_unit(ends, &units.1)),
            ..ChartMark::of_figure(&named.join(", "), dot.y, &units.1)
        };
        pen.marked_path(&marker_path(series, spot.at, radius), "", &mark);
    }
    pen.close_group();
}

/// All points at once, one for each place.
fn shape(pen: &mut SvgWriter, series: usize, spots: &[Option<Spot<'_>>]) {
    let places: BTreeSet<(i64, i64)> = spots.iter().flatten().map(|s| pixel(s.at)).collect();
    let mut d = String::new();
    for (x, y) in places {
        d.push_str(&format!("M{} {}h2v2h-2z", x - 1, y - 1));
    }
    let fill = pen.paint_for(Ink::Series(series));
    pen.draw_path(&d, &format!(r#"fill="{fill}" fill-opacity="0.8""#));
}

fn pixel((x, y): (f64, f64)) -> (i64, i64) {
    (x.round() as i64, y.round() as i64)
}

/// Words beside single points, where they cover nothing; of many only beside those on the Pareto front.
fn name_points(
    pen: &mut SvgWriter,
    curves: &Curves,
    spots: &[Vec<Option<Spot<'_>>>],
    (left, right, top, bottom): PixelSpan,
    taken: &mut Vec<PixelSpan>,
) {
    const SIZE: f64 = 10.5;
    let pairs = curves.curves.iter().zip(spots);
    let mut alone: Vec<&Spot<'_>> = pairs
        .filter(|(c, _)| !c.joined || !curves.front.is_empty())
        .flat_map(|(_, s)| s.iter().flatten())
        .filter(|s| s.dot.label.as_ref().is_some_and(|l| !l.is_empty()))
        .collect();
    if alone.len() > NAMED {
        alone.retain(|s| is_on_front(&curves.front, s.dot));
        if alone.len() > NAMED {
            return;
        }
    }
    // Those on the front have the first choice of a place.
    alone.sort_by_key(|s| !is_on_front(&curves.front, s.dot));
    for spot in spots.iter().flatten().flatten() {
        let (x, y) = spot.at;
        let on_front = is_on_front(&curves.front, spot.dot);
        let r = if on_front { 8.0 } else { 5.0 };
        taken.push((x - r, y - r, x + r, y + r));
    }
    for (_, line) in curves.curves.iter().zip(spots).filter(|(c, _)| c.joined) {
        for pair in line.windows(2) {
            if let [Some(a), Some(b)] = pair {
                taken.extend(along(a.at, b.at));
            }
        }
    }
    for spot in alone {
        let whole = harmless_text(spot.dot.label.as_deref().unwrap_or_default());
        let shown = fit_text(&whole, SIZE, 150.0);
        let wide = text_width(&shown, SIZE);
        let (x, y) = spot.at;
        // Beyond its ring.
        let on_front = is_on_front(&curves.front, spot.dot);
        let more = if on_front { 5.0 } else { 0.0 };
        let places = [
            (x + 8.0 + more, y + 4.0),
            (x - 8.0 - more - wide, y + 4.0),
            (x - wide / 2.0, y - 9.0 - more),
            (x - wide / 2.0, y + 17.0 + more),
        ];
        let fits = |(at, line): &(f64, f64)| {
            let own = (*at, line - 9.0, at + wide, line + 3.0);
            let inside = own.0 >= left && own.2 <= right && own.1 >= top && own.3 <= bottom;
            let apart = |o: &PixelSpan| own.2 < o.0 || own.0 > o.2 || own.3 < o.1 || own.1 > o.3;
            inside && taken.iter().all(apart)
        };
        if let Some((at, line)) = places.into_iter().find(fits) {
            taken.push((at, line - 9.0, at + wide, line + 3.0));
            draw_over_lines(pen, (at, line), (SIZE, 150.0), Anchor::Start, &whole);
        }
    }
}

/// Places that a line takes.
fn along(a: (f64, f64), b: (f64, f64)) -> impl Iterator<Item = PixelSpan> {
    let (across, up) = (b.0 - a.0, b.1 - a.1);
    let steps = (across.hypot(up) / 8.0).ceil().max(1.0);
    (0..=steps as usize).map(move |i| {
        let share = i as f64 / steps;
        let (x, y) = (a.0 + across * share, a.1 + up * share);
        (x - 1.5, y - 1.5, x + 1.5, y + 1.5)
    })
}

fn describe_curves(
    curves: &Curves,
    (from, to): (f64, f64),
    (low, high): (f64, f64),
    units: &(String, String),
) -> String {
    let named = curves.curves.iter().filter(|c| !c.label.is_empty());
    let named: Vec<String> = named.take(8).map(|c| harmless_text(&c.label)).collect();
    let of = match named.as_slice() {
        [] => String::new(),
        named => format!(" of {}", named.join(", ")),
    };
    let or = |title: &str, other: &str| match title {
        "" => other.to_owned(),
        title => harmless_text(title),
    };
    format!(
        "{}{of} from {} to {} over {} from {} to {}.",
        or(&curves.y.title, "values"),
        value_with_unit(low, &units.1),
        value_with_unit(high, &units.1),
        or(&curves.x.title, "a number"),
        value_with_unit(from, &units.0),
        value_with_unit(to, &units.0),
    )
}
