//! Memory over time: a lane for each device with its own height, phases behind, events above.

use super::curves::axis_words;
use super::envelope::Envelope;
use super::lettering::{escape_text, fit_text, harmless_text, harmless_unit, text_width};
use super::palette::Ink;
use super::pen::{Anchor, ChartMark, SvgWriter, format_number, path_step};
use super::scale::{AxisScale, finite_value, time_ruler, value_with_unit};
use super::svg::{ChartStyle, DrawnPlot, SIDE, WIDTH, draw_nothing};
use super::{ChartTimeline, Scale, Stretch, TimelineEvent, TimelineLane, TimelinePhase};

/// Size of the words of phases and events.
const SIZE: f64 = 11.0;

/// Height of a line of these.
const LINE: f64 = 15.0;

/// Lines of names of phases, and of events; what finds no room in them is not written.
const MOST_LINES: usize = 4;

/// Draws it below `top`.
pub fn draw_lanes(
    pen: &mut SvgWriter,
    timeline: &ChartTimeline,
    top: f64,
    look: ChartStyle,
) -> DrawnPlot {
    let Some(range) = time_range(timeline) else {
        return draw_nothing(pen, top);
    };
    let lanes: Vec<LaneDrawing<'_>> = LaneDrawing::drawings_of_timeline(timeline, range);
    let ticks = lanes.iter().flat_map(|l| &l.ruler.ticks);
    let ticks = ticks.map(|t| text_width(&t.1, 10.0)).fold(0.0, f64::max);
    let (left, right) = (SIDE + ticks + 8.0, WIDTH - SIDE - 6.0);
    let (x, clock) = time_ruler(range, (left, right), 10);

    let phases = PlacedNames::place_names(phase_names(timeline, &x), (left, right));
    let events = PlacedNames::place_names(event_names(timeline, &x), (left, right));
    let event_top = top + LINE * phases.lines as f64;
    let lanes_top = event_top + LINE * events.lines as f64 + if events.any { 12.0 } else { 6.0 };
    let lanes_bottom = lanes.iter().map(|l| l.below).fold(0.0, f64::max) + lanes_top;

    bands(pen, timeline, &x, (top, lanes_bottom));
    for (value, _) in &x.ticks {
        let at = x.place_of(*value);
        pen.draw_line((at, lanes_top), (at, lanes_bottom), Ink::Grid, "");
    }
    marks(pen, timeline, &x, (lanes_top - 2.0, lanes_bottom));
    if look == ChartStyle::Inline {
        let (from, to) = x.end_values();
        pen.open_group(&format!(
            r#"class="lanes" data-from="{from}" data-to="{to}" data-left="{}" data-right="{}""#,
            format_number(left),
            format_number(right),
        ));
    } else {
        pen.open_group("");
    }
    for lane in &lanes {
        lane.draw_lanes(pen, &x, (left, right), lanes_top, look);
    }
    pen.close_group();
    phases.draw(pen, top);
    events.draw(pen, event_top);
    super::curves::ticks_words(pen, &x, lanes_bottom);
    let since = match timeline.origin.as_deref().map(harmless_text) {
        Some(origin) if !origin.is_empty() => format!("time since {origin}"),
        _ => "time".into(),
    };
    let bottom = axis_words(
        pen,
        &since,
        clock,
        ((left + right) / 2.0, lanes_bottom + 33.0),
    );
    let unnamed = phases.left_out + events.left_out;
    DrawnPlot {
        bottom,
        description: describe_lanes(timeline, range),
        told: match unnamed {
            0 => Vec::new(),
            1 => vec!["The name of one phase or event has no room and is not written.".into()],
            n => vec![format!(
                "The names of {n} phases and events have no room and are not written."
            )],
        },
    }
}

/// First and last moment; from its content where none is given.
fn time_range(timeline: &ChartTimeline) -> Option<(f64, f64)> {
    let real = |(a, b): (f64, f64)| Some((finite_value(a)?, finite_value(b)?));
    let said = real(timeline.range_s).filter(|r| r.0 < r.1);
    said.or_else(|| {
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
    series: usize,
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
        let high = match timeline.lanes.len() {
            0..=1 => 220.0,
            2 => 130.0,
            3..=4 => 90.0,
            5..=8 => 58.0,
            9..=16 => 44.0,
            _ => 30.0,
        };
        let mut units: Vec<&str> = Vec::new();
        let mut above = 0.0;
        timeline
            .lanes
            .iter()
            .map(|lane| {
                let known = units.iter().position(|u| *u == lane.unit);
                let series = known.unwrap_or_else(|| {
                    units.push(&lane.unit);
                    units.len() - 1
                });
                above += 20.0;
                let drawing = LaneDrawing::new(lane, series, range, (above, above + high));
                above += high + 4.0;
                drawing
            })
            .collect()
    }

    fn new(
        lane: &'a TimelineLane,
        series: usize,
        range: (f64, f64),
        places: (f64, f64),
    ) -> LaneDrawing<'a> {
        let stretches = thinned(&lane.stretches, range);
        let (low, high) = stretches
            .iter()
            .map(|s| (s.low, s.high))
            .chain(lane.capacity.and_then(finite_value).map(|c| (c, c)))
            .fold((0.0, 0.0), |(l, h): (f64, f64), (low, high)| {
                (l.min(low), h.max(high))
            });
        let (above, below) = places;
        let most = if below - above > 80.0 { 5 } else { 2 };
        // What is at the very top is seen whole.
        let high = high + (high - low) * 0.04;
        let ruler = AxisScale::new(Scale::FromZero, (low, high), (below, above), most, false);
        LaneDrawing {
            lane,
            series,
            stretches,
            ruler,
            above,
            below,
        }
    }

    fn draw_lanes(
        &self,
        pen: &mut SvgWriter,
        x: &AxisScale,
        (left, right): (f64, f64),
        top: f64,
        look: ChartStyle,
    ) {
        let label = harmless_text(&self.lane.label);
        let unit = harmless_unit(&self.lane.unit);
        let y = |value: f64| top + self.ruler.place_of(value);
        let (above, below) = (top + self.above, top + self.below);
        let (low, high) = self.ruler.end_values();
        if look == ChartStyle::Inline {
            pen.open_group(&format!(
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
        } else {
            pen.open_group("");
        }
        for (value, said) in &self.ruler.ticks {
            pen.draw_line((left, y(*value)), (right, y(*value)), Ink::Grid, "");
            let at = (left - 6.0, y(*value) + 3.5);
            pen.draw_words(at, 10.0, Anchor::End, Ink::Muted, said);
        }
        match extremes(&self.stretches) {
            None => {
                let middle = ((left + right) / 2.0, (above + below) / 2.0 + 4.0);
                pen.draw_words(middle, SIZE, Anchor::Middle, Ink::Muted, "no samples");
            }
            Some((low, high)) => {
                let count = super::super::layout::grouped_count(self.lane.samples);
                let said = format!(
                    "{} to {}",
                    value_with_unit(low, ""),
                    value_with_unit(high, &unit)
                );
                let mark = ChartMark {
                    label: label.clone(),
                    value: said.clone(),
                    more: (self.lane.samples > 0).then(|| format!("{count} samples")),
                    number: None,
                    unit: &unit,
                    source: None,
                };
                let colour = pen.paint_for(Ink::Series(self.series));
                pen.marked_path(
                    &outline(&self.stretches, x, y),
                    &format!(
                        concat!(
                            r#"fill="{}" fill-opacity="0.45" stroke="{}" "#,
                            r#"stroke-width="1.2" stroke-linejoin="round""#
                        ),
                        colour, colour
                    ),
                    &mark,
                );
            }
        }
        if let Some(capacity) = self.lane.capacity.and_then(finite_value) {
            let at = y(capacity);
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
        let named = super::curves::axis_title(label, unit);
        let (ink, ground) = (pen.paint_for(Ink::Text), pen.paint_for(Ink::Ground));
        let shown = fit_text(&named, 12.0, (right - left) * 0.55);
        pen.open_group(&format!(r#"stroke="{ground}" {HALO}"#));
        pen.draw_text((left, line), 12.0, Anchor::Start, &ink, &shown, &named);
        if let Some(capacity) = self.lane.capacity.and_then(finite_value) {
            let said = format!("capacity {}", value_with_unit(capacity, unit));
            pen.draw_words((right, line), SIZE, Anchor::End, Ink::Muted, &said);
        }
        pen.close_group();
    }
}

/// A phase or an event goes through words that stand on nothing.
const HALO: &str = r#"stroke-width="3" paint-order="stroke" stroke-linejoin="round""#;

/// No more stretches than can be distinguished across the picture.
fn thinned(stretches: &[Stretch], (from, to): (f64, f64)) -> Vec<Stretch> {
    let mut envelope = Envelope::new((from, to), WIDTH as usize);
    for stretch in stretches {
        if stretch.from_s > to || stretch.to_s < from {
            continue;
        }
        let (Some(low), Some(high)) = (finite_value(stretch.low), finite_value(stretch.high))
        else {
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
    let each = stretches.iter().map(|s| (s.low, s.high));
    each.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// The band between lowest and highest as a path, broken where nothing was sampled for long.
fn outline(stretches: &[Stretch], x: &AxisScale, y: impl Fn(f64) -> f64) -> String {
    let (from, to) = x.end_values();
    let mut gaps: Vec<f64> = stretches
        .windows(2)
        .map(|w| w[1].from_s - w[0].to_s)
        .collect();
    gaps.sort_by(f64::total_cmp);
    let usual = gaps.get(gaps.len() / 2).copied().unwrap_or(0.0);
    let long = (usual * 10.0).max((to - from) * 0.01);
    let mut d = String::new();
    for run in stretches.chunk_by(|a, b| b.from_s - a.to_s <= long) {
        let corners: Vec<(f64, f64, f64)> = run
            .iter()
            .flat_map(|s| {
                let (a, b) = (x.place_of(s.from_s), x.place_of(s.to_s));
                let (low, high) = (y(s.low), y(s.high));
                if b - a > 1.5 || run.len() == 1 {
                    // Even a moment is seen.
                    vec![(a, low, high), (b.max(a + 1.0), low, high)]
                } else {
                    vec![((a + b) / 2.0, low, high)]
                }
            })
            .collect();
        for (i, (x, _, high)) in corners.iter().enumerate() {
            d.push_str(&path_step(if i == 0 { 'M' } else { 'L' }, (*x, *high)));
        }
        for (x, low, _) in corners.iter().rev() {
            d.push_str(&path_step('L', (*x, *low)));
        }
        d.push('Z');
    }
    d
}

/// Every other phase on a ground of its own, a line where each begins.
fn bands(pen: &mut SvgWriter, timeline: &ChartTimeline, x: &AxisScale, (top, bottom): (f64, f64)) {
    for (i, phase) in phases(timeline).iter().enumerate() {
        let (from, to) = (x.place_of(phase.from_s), x.place_of(phase.to_s));
        let fill = match i % 2 {
            0 => pen.paint_for(Ink::Band),
            _ => "transparent".into(),
        };
        let mark = ChartMark {
            label: harmless_text(&phase.label),
            value: format!(
                "{} s to {} s",
                format_seconds(phase.from_s),
                format_seconds(phase.to_s)
            ),
            ..ChartMark::default()
        };
        pen.marked_rect(
            (from, top),
            ((to - from).max(0.5), bottom - top),
            &fill,
            &mark,
        );
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
    let mut events: Vec<&TimelineEvent> = timeline
        .events
        .iter()
        .filter(|e| e.at_s.is_finite())
        .collect();
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
        let d = format!(
            "{}l-4 -7h8zV{}",
            path_step('M', (at, top)),
            format_number(bottom)
        );
        let attributes = format!(
            r#"fill="{stroke}" stroke="{stroke}" stroke-width="{wide}" stroke-opacity="0.8""#
        );
        pen.marked_path(&d, &attributes, &mark);
    }
}

/// A name that wants a place: where its thing begins, and the words.
struct NameRequest {
    at: f64,
    /// How wide its thing is, to stand in the middle of.
    wide: f64,
    words: String,
    ink: Ink,
}

fn phase_names(timeline: &ChartTimeline, x: &AxisScale) -> Vec<NameRequest> {
    let wish = |phase: &&TimelinePhase| {
        let at = x.place_of(phase.from_s);
        NameRequest {
            at,
            wide: x.place_of(phase.to_s) - at,
            words: harmless_text(&phase.label),
            ink: Ink::Muted,
        }
    };
    phases(timeline).iter().map(wish).collect()
}

fn event_names(timeline: &ChartTimeline, x: &AxisScale) -> Vec<NameRequest> {
    let wish = |event: &&TimelineEvent| NameRequest {
        at: x.place_of(event.at_s),
        wide: 0.0,
        words: harmless_text(&event.label),
        ink: if event.bad { Ink::Bad } else { Ink::Text },
    };
    visible_events(timeline).iter().map(wish).collect()
}

/// Names in lines, none over another.
struct PlacedNames {
    placed: Vec<(f64, usize, String, NameRequest)>,
    lines: usize,
    left_out: usize,
    any: bool,
}

impl PlacedNames {
    fn place_names(wishes: Vec<NameRequest>, (left, right): (f64, f64)) -> PlacedNames {
        let mut free = [left; MOST_LINES];
        let mut names = PlacedNames {
            placed: Vec::new(),
            lines: 0,
            left_out: 0,
            any: !wishes.is_empty(),
        };
        for wish in wishes {
            let shown = fit_text(&wish.words, SIZE, 190.0);
            let wide = text_width(&shown, SIZE);
            if shown.is_empty() {
                continue;
            }
            let start = if wish.wide >= wide + 6.0 {
                wish.at + (wish.wide - wide) / 2.0
            } else {
                (wish.at + 2.0).min(right - wide)
            };
            match free.iter().position(|f| *f <= start) {
                Some(line) => {
                    free[line] = start + wide + 8.0;
                    names.lines = names.lines.max(line + 1);
                    names.placed.push((start, line, shown, wish));
                }
                None => names.left_out += 1,
            }
        }
        names
    }

    fn draw(&self, pen: &mut SvgWriter, top: f64) {
        for (start, line, shown, wish) in &self.placed {
            let at = (*start, top + LINE * (*line as f64 + 1.0) - 4.0);
            let fill = pen.paint_for(wish.ink);
            pen.draw_text(at, SIZE, Anchor::Start, &fill, shown, &wish.words);
        }
    }
}

fn describe_lanes(timeline: &ChartTimeline, (from, to): (f64, f64)) -> String {
    let lanes: Vec<String> = timeline
        .lanes
        .iter()
        .take(16)
        .map(|lane| {
            let label = harmless_text(&lane.label);
            let unit = harmless_unit(&lane.unit);
            match extremes(&thinned(&lane.stretches, (from, to))) {
                Some((low, high)) => {
                    format!(
                        "{label} from {} to {}",
                        value_with_unit(low, ""),
                        value_with_unit(high, &unit)
                    )
                }
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
    format!(
        "From second {} to {}: {}.{phases}{events}",
        format_seconds(from),
        format_seconds(to),
        lanes.join("; "),
    )
}
