//! Memory over time: a lane for each device with its own height, phases behind, events above.

use super::curves::{axis_words, draw_grid_across, ticks_words};
use super::envelope::Envelope;
use super::legend::{Sign, draw_legend};
use super::lettering::{
    escape_text, fit_text, harmless_text, harmless_unit, text_width, widest_text,
};
use super::palette::Ink;
use super::pen::{Anchor, ChartMark, SvgWriter, format_number, path_step, polyline};
use super::scale::{
    AxisScale, finite_value, range_of, range_with_unit, time_ruler, value_with_unit,
};
use super::svg::{DrawnPlot, SIDE, WIDTH, draw_nothing};
use super::{
    ChartTimeline, MemoryLayer, Scale, Stretch, TimelineEvent, TimelineLane, TimelinePhase,
};
use crate::breakdown::Component;
use crate::report::layout::distinct_items;

/// Size of the words of phases and events.
const SIZE: f64 = 11.0;

/// Height of a line of these.
const LINE: f64 = 15.0;

/// Lines of names of events; what finds no room in them is not written.
const MOST_LINES: usize = 4;

/// A layer has a line at its upper edge where it is thicker than this, and what is above too.
const THICK: f64 = 3.0;

/// Draws it below `top`.
pub fn draw_lanes(pen: &mut SvgWriter, timeline: &ChartTimeline, top: f64) -> DrawnPlot {
    let Some(range) = time_range(timeline) else {
        return draw_nothing(pen, top);
    };
    let lanes: Vec<LaneDrawing<'_>> = LaneDrawing::drawings_of_timeline(timeline, range);
    let ticks = lanes.iter().flat_map(|l| &l.ruler.ticks);
    let ticks = widest_text(ticks.map(|t| &t.1), 10.0);
    let (left, right) = (SIDE + ticks + 8.0, WIDTH - SIDE - 6.0);
    let (x, clock) = time_ruler(range, (left, right), 10);

    let top = draw_layer_legend(pen, timeline, top);
    let phases = PhaseNames::place_phases(timeline, &x, right);
    let events = PlacedNames::place_events(timeline, &x, (left, right));
    let event_top = top + if phases.placed.is_empty() { 0.0 } else { LINE };
    let lanes_top = event_top + LINE * events.lines as f64 + if events.any { 12.0 } else { 6.0 };
    let lanes_bottom = lanes.iter().map(|l| l.below).fold(0.0, f64::max) + lanes_top;

    bands(pen, timeline, &x, (top, lanes_bottom));
    draw_grid_across(pen, &x, (lanes_top, lanes_bottom));
    marks(pen, timeline, &x, (lanes_top - 2.0, lanes_bottom));
    let (from, to) = x.end_values();
    pen.open_data_group(&format!(
        r#"class="lanes" data-from="{from}" data-to="{to}" data-left="{}" data-right="{}""#,
        format_number(left),
        format_number(right),
    ));
    for lane in &lanes {
        lane.draw_lanes(pen, &x, (left, right), lanes_top);
    }
    pen.close_group();
    phases.draw(pen, top);
    events.draw(pen, event_top);
    ticks_words(pen, &x, lanes_bottom);
    let since = match timeline.origin.as_deref().map(harmless_text) {
        Some(origin) if !origin.is_empty() => format!("time since {origin}"),
        _ => "time".into(),
    };
    let below = ((left + right) / 2.0, lanes_bottom + 33.0);
    let bottom = axis_words(pen, &since, clock, below);
    let unnamed = match events.left_out {
        0 => None,
        1 => Some("The name of one event has no room and is not written.".to_owned()),
        n => Some(format!(
            "The names of {n} events have no room and are not written."
        )),
    };
    DrawnPlot {
        bottom,
        description: describe_lanes(timeline, range),
        remarks: phases.listed.into_iter().chain(unnamed).collect(),
    }
}

/// First and last moment; from its content where none is given.
fn time_range(timeline: &ChartTimeline) -> Option<(f64, f64)> {
    let real = |(a, b): (f64, f64)| Some((finite_value(a)?, finite_value(b)?));
    let given = real(timeline.range_s).filter(|r| r.0 < r.1);
    given.or_else(|| {
        let stretches = timeline.lanes.iter().flat_map(|l| &l.stretches);
        let moments = stretches
            .map(|s| (s.from_s, s.to_s))
            .chain(timeline.phases.iter().map(|p| (p.from_s, p.to_s)))
            .chain(timeline.events.iter().map(|e| (e.at_s, e.at_s)));
        moments
            .filter_map(real)
            .reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    })
}

/// A lane with its place.
struct LaneDrawing<'a> {
    lane: &'a TimelineLane,
    stretches: Vec<Stretch>,
    ruler: AxisScale,
    /// Its plot from above, below the top of all lanes.
    above: f64,
    below: f64,
}

impl<'a> LaneDrawing<'a> {
    fn drawings_of_timeline(
        timeline: &'a ChartTimeline,
        range: (f64, f64),
    ) -> Vec<LaneDrawing<'a>> {
        let tall = timeline.lanes.iter().filter(|l| l.memory).count();
        let others = timeline.lanes.len() - tall;
        let mut above = 0.0;
        timeline
            .lanes
            .iter()
            .map(|lane| {
                let high = if lane.memory {
                    memory_height(tall)
                } else {
                    gauge_height(others)
                };
                above += 20.0;
                let drawing = LaneDrawing::new(lane, range, (above, above + high));
                above += high + 4.0;
                drawing
            })
            .collect()
    }

    fn new(lane: &'a TimelineLane, range: (f64, f64), places: (f64, f64)) -> LaneDrawing<'a> {
        let stretches = thinned(&lane.stretches, range);
        let limit = lane.limit_place().filter(|l| !l.1);
        let seen = stretches.iter().flat_map(|s| [s.low, s.high]);
        let all = seen.chain(limit.map(|l| l.0)).chain([0.0]);
        let (low, high) = range_of(all).unwrap_or_default();
        let (above, below) = places;
        let most = if below - above > 80.0 { 5 } else { 2 };
        let high = match lane.unit.as_str() {
            // A share is one of the whole.
            "%" => high.max(100.0),
            // What is at the very top is seen whole.
            _ => high + (high - low) * 0.04,
        };
        let ruler = AxisScale::new(Scale::FromZero, (low, high), (below, above), most, false);
        LaneDrawing {
            lane,
            stretches,
            ruler,
            above,
            below,
        }
    }

    /// The colour of its line.
    fn ink(&self) -> Ink {
        match self.lane.component {
            Some(component) => Ink::Part(component),
            None if self.lane.memory => Ink::Text,
            None => Ink::Muted,
        }
    }

    fn draw_lanes(&self, pen: &mut SvgWriter, x: &AxisScale, (left, right): (f64, f64), top: f64) {
        let label = harmless_text(&self.lane.label);
        let unit = harmless_unit(&self.lane.unit);
        let y = |value: f64| top + self.ruler.place_of(value);
        let (above, below) = (top + self.above, top + self.below);
        let (low, high) = self.ruler.end_values();
        pen.open_data_group(&format!(
            concat!(
                r#"class="lane" data-label="{}" data-unit="{}" data-top="{}" "#,
                r#"data-bottom="{}" data-low="{}" data-high="{}""#
            ),
            escape_text(&label),
            escape_text(&unit),
            format_number(above),
            format_number(below),
            low,
            high,
        ));
        for (value, words) in &self.ruler.ticks {
            pen.draw_line((left, y(*value)), (right, y(*value)), Ink::Grid, "");
            let at = (left - 6.0, y(*value) + 3.5);
            pen.draw_words(at, 10.0, Anchor::End, Ink::Muted, words);
        }
        match extremes(&self.stretches) {
            None => {
                let middle = ((left + right) / 2.0, (above + below) / 2.0 + 4.0);
                pen.draw_words(middle, SIZE, Anchor::Middle, Ink::Muted, "no samples");
            }
            Some((low, high)) => {
                let count = super::super::layout::grouped_count(self.lane.samples);
                let mark = ChartMark {
                    label: label.clone(),
                    value: range_with_unit((low, high), &unit),
                    more: (self.lane.samples > 0).then(|| format!("{count} samples")),
                    unit: &unit,
                    ..ChartMark::default()
                };
                let colour = pen.paint_for(self.ink());
                let parts = continuous_parts(&self.stretches, x);
                // Over layers the line is their upper edge, and the range below it stays pale.
                let (fill, stroke) = if self.lane.layers.is_empty() {
                    let area = areas(&parts, |c| y(c.high), |_| y(0.0));
                    pen.draw_path(&area, &format!(r#"fill="{colour}" fill-opacity="0.22""#));
                    ("0.45", "1")
                } else {
                    for part in &parts {
                        self.draw_layers(pen, part, x, y, &unit);
                    }
                    ("0.15", "0")
                };
                let area = areas(&parts, |c| y(c.high), |c| y(c.low));
                let paint = format!(r#"fill="{colour}" fill-opacity="{fill}" stroke="{colour}""#);
                let line = r#"stroke-width="1.2" stroke-linejoin="round""#;
                let attributes = format!(r#"{paint} stroke-opacity="{stroke}" {line}"#);
                pen.marked_path(&area, &attributes, &mark);
                let upper = |c: &LaneCorner| (c.px, y(c.high));
                let line = parts.iter().map(|part| line_path(part.iter().map(upper)));
                let line: String = line.collect();
                let attributes = r#"fill="none" stroke-width="1.4" pointer-events="none""#;
                pen.draw_stroke(&line, self.ink(), attributes);
            }
        }
        if let Some((limit, false)) = self.lane.limit_place() {
            let at = y(limit);
            let attributes = r#"stroke-width="1.3" stroke-dasharray="6 3""#;
            pen.draw_line((left, at), (right, at), Ink::Text, attributes);
        }
        pen.draw_line((left, below), (right, below), Ink::Muted, "");
        self.draw_lane_name(pen, &label, &unit, (left, right), above - 6.0);
        pen.close_group();
    }

    /// What it is, and how much there is of it, in the line above.
    fn draw_lane_name(
        &self,
        pen: &mut SvgWriter,
        label: &str,
        unit: &str,
        (left, right): (f64, f64),
        line: f64,
    ) {
        let named = crate::report::layout::with_unit(label, unit);
        let limit = limit_words(self.lane, unit);
        let far = self.lane.limit_place().is_some_and(|l| l.1);
        let end = if far { right - 10.0 } else { right };
        pen.with_halo(Ink::Ground, |pen| {
            let room = (12.0, (right - left) * 0.55);
            pen.draw_fitted((left, line), room, Anchor::Start, Ink::Text, &named);
            if let Some(words) = &limit {
                pen.draw_words((end, line), SIZE, Anchor::End, Ink::Text, words);
            }
        });
        if far {
            let ink = pen.paint_for(Ink::Text);
            let d = format!("{}l3.5 -8l3.5 8Z", path_step('M', (right - 7.0, line)));
            pen.draw_path(&d, &format!(r#"fill="{ink}""#));
        }
    }

    /// The known components of one continuous part, cut at the measured line, and the rest above.
    fn draw_layers(
        &self,
        pen: &mut SvgWriter,
        part: &[LaneCorner],
        x: &AxisScale,
        y: impl Fn(f64) -> f64 + Copy,
        unit: &str,
    ) {
        let layers = &self.lane.layers;
        let corners = with_layer_edges(part, layers, x);
        // The upper edge of a layer: the sum up to it, and never above what was measured.
        let edge = |corner: &LaneCorner, n: usize| match layers.get(..n) {
            Some(below) => {
                let sum: f64 = below.iter().map(|l| l.size_at(corner.at_s)).sum();
                y(sum.min(corner.high))
            }
            None => y(corner.high),
        };
        for n in 0..=layers.len() {
            let is_thick = |c: &LaneCorner| edge(c, n) - edge(c, n + 1) >= 0.5;
            let first = corners.iter().position(is_thick);
            let Some((first, last)) = first.zip(corners.iter().rposition(is_thick)) else {
                continue;
            };
            // With the corners beside, at which it begins and ends.
            let thick = corners.get(first.saturating_sub(1)..(last + 2).min(corners.len()));
            let part = [thick.unwrap_or_default().to_vec()];
            let (component, value) = match layers.get(n) {
                Some(layer) => (layer.component, value_with_unit(layer.value, unit)),
                None => (Component::Unexplained, String::new()),
            };
            let of = Ink::Part(component);
            let area = areas(&part, |c| edge(c, n + 1), |c| edge(c, n));
            let mark = ChartMark {
                label: component.display_label().to_owned(),
                value,
                unit,
                ..ChartMark::default()
            };
            let fill = pen.paint_for(of);
            pen.marked_path(&area, &format!(r#"fill="{fill}""#), &mark);
            if let Some(pattern) = of.pattern() {
                let over = pen.pattern_url(pattern);
                pen.draw_path(&area, &format!(r#"fill="{over}" pointer-events="none""#));
            }
        }
        for n in 1..=layers.len() {
            // Thin layers between two thick ones have no lines of their own.
            let both_thick = |c: &LaneCorner| {
                let at = edge(c, n);
                edge(c, n - 1) - at > THICK && at - y(c.high) > THICK
            };
            let mut d = String::new();
            for run in corners.chunk_by(|a, b| both_thick(a) == both_thick(b)) {
                if run.len() > 1 && run.first().is_some_and(both_thick) {
                    d.push_str(&line_path(run.iter().map(|c| (c.px, edge(c, n)))));
                }
            }
            if !d.is_empty() {
                let attributes = r#"stroke-width="1.5" fill="none" pointer-events="none""#;
                pen.draw_stroke(&d, Ink::Ground, attributes);
            }
        }
    }
}

/// Height of the lanes of memory: the subject of the picture.
fn memory_height(count: usize) -> f64 {
    match count {
        0..=1 => 260.0,
        2 => 180.0,
        3..=4 => 120.0,
        5..=8 => 80.0,
        _ => 50.0,
    }
}

/// Height of the lanes beside the memory.
fn gauge_height(count: usize) -> f64 {
    match count {
        0..=6 => 52.0,
        7..=16 => 40.0,
        _ => 30.0,
    }
}

/// The limit in words; one that is far above has no line.
pub fn limit_words(lane: &TimelineLane, unit: &str) -> Option<String> {
    let (limit, far) = lane.limit_place()?;
    let above = if far { ", above" } else { "" };
    Some(format!("limit {}{above}", value_with_unit(limit, unit)))
}

/// What the colours of layers are, above; where it ends.
fn draw_layer_legend(pen: &mut SvgWriter, timeline: &ChartTimeline, top: f64) -> f64 {
    let each = timeline.lanes.iter().flat_map(|l| l.shown_components());
    let mut shown = distinct_items(each);
    // What no layer explains is above all layers.
    shown.sort_by_key(|c| *c == Component::Unexplained);
    let entries = shown.into_iter().map(|c| {
        let sign = Sign::Square(Ink::Part(c));
        (sign, c.display_label().to_owned())
    });
    let entries: Vec<(Sign, String)> = entries.collect();
    if entries.is_empty() {
        top
    } else {
        draw_legend(pen, &entries, top) + 2.0
    }
}

/// No more stretches than can be distinguished across the picture.
fn thinned(stretches: &[Stretch], (from, to): (f64, f64)) -> Vec<Stretch> {
    let mut envelope = Envelope::new((from, to), WIDTH as usize);
    for stretch in stretches {
        let ends = finite_value(stretch.low).zip(finite_value(stretch.high));
        let inside = |_: &(f64, f64)| !(stretch.from_s > to || stretch.to_s < from);
        let Some((low, high)) = ends.filter(inside) else {
            continue;
        };
        envelope.add_stretch(Stretch {
            from_s: stretch.from_s.max(from),
            to_s: stretch.to_s.min(to),
            low,
            high,
        });
    }
    envelope.into_stretches()
}

fn extremes(stretches: &[Stretch]) -> Option<(f64, f64)> {
    range_of(stretches.iter().flat_map(|s| [s.low, s.high]))
}

/// A point of a lane: its place, its moment, and what was seen there.
#[derive(Debug, Clone, Copy)]
struct LaneCorner {
    px: f64,
    at_s: f64,
    low: f64,
    high: f64,
}

/// The corners of a lane, in parts: broken where nothing was sampled for long.
fn continuous_parts(stretches: &[Stretch], x: &AxisScale) -> Vec<Vec<LaneCorner>> {
    let (from, to) = x.end_values();
    let gaps = stretches.windows(2).map(|w| w[1].from_s - w[0].to_s);
    let mut gaps: Vec<f64> = gaps.collect();
    gaps.sort_by(f64::total_cmp);
    let usual = gaps.get(gaps.len() / 2).copied().unwrap_or(0.0);
    let long = (usual * 10.0).max((to - from) * 0.01);
    let parts = stretches.chunk_by(|a, b| b.from_s - a.to_s <= long);
    parts
        .map(|part| {
            let corners = part.iter().flat_map(|s| {
                let corner = |px, at_s| LaneCorner {
                    px,
                    at_s,
                    low: s.low,
                    high: s.high,
                };
                let (a, b) = (x.place_of(s.from_s), x.place_of(s.to_s));
                if b - a > 1.5 || part.len() == 1 {
                    // Even a moment is seen.
                    vec![corner(a, s.from_s), corner(b.max(a + 1.0), s.to_s)]
                } else {
                    vec![corner((a + b) / 2.0, (s.from_s + s.to_s) / 2.0)]
                }
            });
            corners.collect()
        })
        .collect()
}

/// The same corners, and two more where a layer begins or ends: just before, and at the moment.
fn with_layer_edges(part: &[LaneCorner], layers: &[MemoryLayer], x: &AxisScale) -> Vec<LaneCorner> {
    let mut edges: Vec<f64> = layers.iter().flat_map(|l| [l.from_s, l.to_s]).collect();
    edges.retain(|e| e.is_finite());
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    let mut all = Vec::new();
    for (n, corner) in part.iter().enumerate() {
        all.push(*corner);
        let Some(next) = part.get(n + 1) else { break };
        let between = |e: &&f64| corner.at_s < **e && **e < next.at_s;
        for edge in edges.iter().filter(between) {
            let share = (edge - corner.at_s) / (next.at_s - corner.at_s);
            let between = |a: f64, b: f64| a + (b - a) * share;
            let at = LaneCorner {
                px: x.place_of(*edge).clamp(corner.px, next.px),
                at_s: *edge,
                low: between(corner.low, next.low),
                high: between(corner.high, next.high),
            };
            let before = LaneCorner {
                at_s: edge - edge.abs().max(1.0) * f64::EPSILON,
                ..at
            };
            all.extend([before, at]);
        }
    }
    all
}

/// The areas between two edges as a path, one for each part.
fn areas(
    parts: &[Vec<LaneCorner>],
    above: impl Fn(&LaneCorner) -> f64,
    below: impl Fn(&LaneCorner) -> f64,
) -> String {
    let mut d = String::new();
    for part in parts {
        let there = part.iter().map(|c| (c.px, above(c)));
        let back = part.iter().rev().map(|c| (c.px, below(c)));
        let path = line_path(there.chain(back));
        d.push_str(&path);
        if !path.is_empty() {
            d.push('Z');
        }
    }
    d
}

/// Points as a path; those on a level line between two others are left out.
fn line_path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points: Vec<(f64, f64)> = points.collect();
    let is_corner = |n: usize, (px, py): (f64, f64)| {
        let level = |other: Option<&(f64, f64)>| other.is_some_and(|o| (o.1 - py).abs() < 0.05);
        let before = n.checked_sub(1).and_then(|n| points.get(n));
        let turns = before
            .zip(points.get(n + 1))
            .is_some_and(|(a, b)| (a.0 <= px) != (px <= b.0));
        !level(before) || !level(points.get(n + 1)) || turns
    };
    let each = points.iter().enumerate();
    let corners = each.filter(|(n, at)| is_corner(*n, **at));
    polyline(corners.map(|(_, at)| at))
}

/// Every other phase on a ground of its own, a line where each begins.
fn bands(pen: &mut SvgWriter, timeline: &ChartTimeline, x: &AxisScale, (top, bottom): (f64, f64)) {
    for (i, phase) in phases(timeline).iter().enumerate() {
        let (from, to) = (x.place_of(phase.from_s), x.place_of(phase.to_s));
        let fill = match i % 2 {
            0 => pen.paint_for(Ink::Band),
            _ => "transparent".into(),
        };
        let (begin, end) = (format_seconds(phase.from_s), format_seconds(phase.to_s));
        let mark = ChartMark {
            label: harmless_text(&phase.label),
            value: format!("{begin} s to {end} s"),
            ..ChartMark::default()
        };
        let size = ((to - from).max(0.5), bottom - top);
        pen.marked_rect((from, top), size, &fill, &mark);
        pen.draw_line((from, top), (from, bottom), Ink::Grid, "");
    }
}

fn format_seconds(value: f64) -> String {
    value_with_unit((value * 100.0).round() / 100.0, "")
}

/// Phases that have a place, in order of time.
fn phases(timeline: &ChartTimeline) -> Vec<&TimelinePhase> {
    let ends =
        |p: &&TimelinePhase| p.from_s.is_finite() && p.to_s.is_finite() && p.from_s <= p.to_s;
    let mut phases: Vec<&TimelinePhase> = timeline.phases.iter().filter(ends).collect();
    phases.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    phases
}

/// Events that have a place, in order of time.
fn visible_events(timeline: &ChartTimeline) -> Vec<&TimelineEvent> {
    let events = timeline.events.iter().filter(|e| e.at_s.is_finite());
    let mut events: Vec<&TimelineEvent> = events.collect();
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// A line through all lanes for each event, with a point above.
fn marks(pen: &mut SvgWriter, timeline: &ChartTimeline, x: &AxisScale, (top, bottom): (f64, f64)) {
    for event in visible_events(timeline) {
        let at = x.place_of(event.at_s);
        let ink = if event.bad { Ink::Bad } else { Ink::Muted };
        let stroke = pen.paint_for(ink);
        let mark = ChartMark {
            label: harmless_text(&event.label),
            value: format!("{} s", format_seconds(event.at_s)),
            number: Some(event.at_s),
            unit: "s",
            ..ChartMark::default()
        };
        let wide = if event.bad { "1.6" } else { "1" };
        let (point, foot) = (path_step('M', (at, top)), format_number(bottom));
        let d = format!("{point}l-4 -7h8zV{foot}");
        let attributes = format!(
            r#"fill="{stroke}" stroke="{stroke}" stroke-width="{wide}" stroke-opacity="0.8""#
        );
        pen.marked_path(&d, &attributes, &mark);
    }
}

/// Names of phases: a phase that is too narrow for its name has a number, and a line in a list.
struct PhaseNames {
    placed: Vec<(f64, String)>,
    listed: Option<String>,
}

impl PhaseNames {
    fn place_phases(timeline: &ChartTimeline, x: &AxisScale, right: f64) -> PhaseNames {
        let (mut placed, mut listed) = (Vec::new(), Vec::new());
        let mut free = 0.0;
        for (n, phase) in phases(timeline).iter().enumerate() {
            let (from, to) = (x.place_of(phase.from_s), x.place_of(phase.to_s).min(right));
            let label = harmless_text(&phase.label);
            let number = (n + 1).to_string();
            let fits = text_width(&label, SIZE) + 4.0 <= to - from;
            let shown = if fits { &label } else { &number };
            let wide = text_width(shown, SIZE);
            let start = ((from + to - wide) / 2.0).min(right - wide);
            if start >= free && !shown.is_empty() {
                placed.push((start, shown.clone()));
                free = start + wide + 3.0;
            }
            if !fits && listed.len() < MOST_LISTED {
                let label = fit_text(&label, SIZE, 190.0);
                let (from, to) = (format_seconds(phase.from_s), format_seconds(phase.to_s));
                listed.push(format!("{number} {label} ({from} to {to} s)"));
            }
        }
        PhaseNames {
            placed,
            listed: (!listed.is_empty()).then(|| format!("Phases: {}.", listed.join(", "))),
        }
    }

    fn draw(&self, pen: &mut SvgWriter, top: f64) {
        for (start, shown) in &self.placed {
            let at = (*start, top + LINE - 4.0);
            pen.draw_words(at, SIZE, Anchor::Start, Ink::Muted, shown);
        }
    }
}

/// Phases in the list under the picture.
const MOST_LISTED: usize = 24;

/// Room for the name of an event.
const EVENT_ROOM: f64 = 190.0;

/// Names in lines, none over another.
struct PlacedNames {
    /// Each with where it begins, its line and its colour.
    placed: Vec<(f64, usize, String, Ink)>,
    lines: usize,
    left_out: usize,
    any: bool,
}

impl PlacedNames {
    fn place_events(
        timeline: &ChartTimeline,
        x: &AxisScale,
        (left, right): (f64, f64),
    ) -> PlacedNames {
        let events = visible_events(timeline);
        let mut free = [left; MOST_LINES];
        let mut names = PlacedNames {
            placed: Vec::new(),
            lines: 0,
            left_out: 0,
            any: !events.is_empty(),
        };
        for event in events {
            let words = harmless_text(&event.label);
            let shown = fit_text(&words, SIZE, EVENT_ROOM);
            let wide = text_width(&shown, SIZE);
            if shown.is_empty() {
                continue;
            }
            let start = (x.place_of(event.at_s) + 2.0).min(right - wide);
            match free.iter().position(|f| *f <= start) {
                Some(line) => {
                    free[line] = start + wide + 8.0;
                    names.lines = names.lines.max(line + 1);
                    let ink = if event.bad { Ink::Bad } else { Ink::Text };
                    names.placed.push((start, line, words, ink));
                }
                None => names.left_out += 1,
            }
        }
        names
    }

    fn draw(&self, pen: &mut SvgWriter, top: f64) {
        for (start, line, words, ink) in &self.placed {
            let at = (*start, top + LINE * (*line as f64 + 1.0) - 4.0);
            pen.draw_fitted(at, (SIZE, EVENT_ROOM), Anchor::Start, *ink, words);
        }
    }
}

fn describe_lanes(timeline: &ChartTimeline, (from, to): (f64, f64)) -> String {
    let lanes: Vec<String> = (timeline.lanes.iter().take(16))
        .map(|lane| {
            let label = harmless_text(&lane.label);
            let unit = harmless_unit(&lane.unit);
            match extremes(&thinned(&lane.stretches, (from, to))) {
                Some(ends) => format!("{label} from {}", range_with_unit(ends, &unit)),
                None => format!("{label} without samples"),
            }
        })
        .collect();
    let named = |labels: Vec<String>, what: &str| {
        if labels.is_empty() {
            String::new()
        } else {
            format!(" {what}: {}.", labels.join(", "))
        }
    };
    let of = phases(timeline).into_iter().take(12);
    let phases = named(of.map(|p| harmless_text(&p.label)).collect(), "Phases");
    let of = visible_events(timeline).into_iter().take(12);
    let events = named(of.map(|e| harmless_text(&e.label)).collect(), "Events");
    let (from, to) = (format_seconds(from), format_seconds(to));
    let lanes = lanes.join("; ");
    format!("From second {from} to {to}: {lanes}.{phases}{events}")
}
