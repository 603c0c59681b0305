//! Memory over time: a lane for each device with its own height, phases behind, events above.

use super::curves::axis_words;
use super::envelope::Envelope;
use super::lettering::{escaped, fit, harmless, unit, width};
use super::palette::Ink;
use super::pen::{Anchor, Mark, Pen, go, n};
use super::scale::{Ruler, real, time, words};
use super::svg::{Drawn, Look, SIDE, WIDTH, nothing};
use super::{Event, Lane, Phase, Scale, Stretch, Timeline};

/// Size of the words of phases and events.
const SIZE: f64 = 11.0;

/// Height of a line of these.
const LINE: f64 = 15.0;

/// Lines of names of phases, and of events; what finds no room in them is not written.
const MOST_LINES: usize = 4;

/// Draws it below `top`.
pub fn draw(pen: &mut Pen, timeline: &Timeline, top: f64, look: Look) -> Drawn {
    let Some(range) = range(timeline) else {
        return nothing(pen, top);
    };
    let lanes: Vec<Drawing<'_>> = Drawing::all(timeline, range);
    let ticks = lanes.iter().flat_map(|l| &l.ruler.ticks);
    let ticks = ticks.map(|t| width(&t.1, 10.0)).fold(0.0, f64::max);
    let (left, right) = (SIDE + ticks + 8.0, WIDTH - SIDE - 6.0);
    let (x, clock) = time(range, (left, right), 10);

    let phases = Names::place(phase_names(timeline, &x), (left, right));
    let events = Names::place(event_names(timeline, &x), (left, right));
    let event_top = top + LINE * phases.lines as f64;
    let lanes_top = event_top + LINE * events.lines as f64 + if events.any { 12.0 } else { 6.0 };
    let lanes_bottom = lanes.iter().map(|l| l.below).fold(0.0, f64::max) + lanes_top;

    bands(pen, timeline, &x, (top, lanes_bottom));
    for (value, _) in &x.ticks {
        let at = x.place(*value);
        pen.line((at, lanes_top), (at, lanes_bottom), Ink::Grid, "");
    }
    marks(pen, timeline, &x, (lanes_top - 2.0, lanes_bottom));
    if look == Look::Inline {
        let (from, to) = x.ends();
        pen.open(&format!(
            r#"class="lanes" data-from="{from}" data-to="{to}" data-left="{}" data-right="{}""#,
            n(left),
            n(right),
        ));
    } else {
        pen.open("");
    }
    for lane in &lanes {
        lane.draw(pen, &x, (left, right), lanes_top, look);
    }
    pen.close();
    phases.draw(pen, top);
    events.draw(pen, event_top);
    super::curves::ticks_words(pen, &x, lanes_bottom);
    let since = match timeline.origin.as_deref().map(harmless) {
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
    Drawn {
        bottom,
        description: describe(timeline, range),
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
fn range(timeline: &Timeline) -> Option<(f64, f64)> {
    let real = |(a, b): (f64, f64)| Some((real(a)?, real(b)?));
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
struct Drawing<'a> {
    lane: &'a Lane,
    series: usize,
    stretches: Vec<Stretch>,
    ruler: Ruler,
    /// Its plot from above, below the top of all lanes.
    above: f64,
    below: f64,
}

impl<'a> Drawing<'a> {
    fn all(timeline: &'a Timeline, range: (f64, f64)) -> Vec<Drawing<'a>> {
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
                let drawing = Drawing::new(lane, series, range, (above, above + high));
                above += high + 4.0;
                drawing
            })
            .collect()
    }

    fn new(lane: &'a Lane, series: usize, range: (f64, f64), places: (f64, f64)) -> Drawing<'a> {
        let stretches = thinned(&lane.stretches, range);
        let (low, high) = stretches
            .iter()
            .map(|s| (s.low, s.high))
            .chain(lane.capacity.and_then(real).map(|c| (c, c)))
            .fold((0.0, 0.0), |(l, h): (f64, f64), (low, high)| {
                (l.min(low), h.max(high))
            });
        let (above, below) = places;
        let most = if below - above > 80.0 { 5 } else { 2 };
        // What is at the very top is seen whole.
        let high = high + (high - low) * 0.04;
        let ruler = Ruler::new(Scale::FromZero, (low, high), (below, above), most, false);
        Drawing {
            lane,
            series,
            stretches,
            ruler,
            above,
            below,
        }
    }

    fn draw(&self, pen: &mut Pen, x: &Ruler, (left, right): (f64, f64), top: f64, look: Look) {
        let label = harmless(&self.lane.label);
        let unit = unit(&self.lane.unit);
        let y = |value: f64| top + self.ruler.place(value);
        let (above, below) = (top + self.above, top + self.below);
        let (low, high) = self.ruler.ends();
        if look == Look::Inline {
            pen.open(&format!(
                concat!(
                    r#"class="lane" data-label="{}" data-unit="{}" data-top="{}" "#,
                    r#"data-bottom="{}" data-low="{}" data-high="{}""#
                ),
                escaped(&label),
                escaped(&unit),
                n(above),
                n(below),
                low,
                high,
            ));
        } else {
            pen.open("");
        }
        for (value, said) in &self.ruler.ticks {
            pen.line((left, y(*value)), (right, y(*value)), Ink::Grid, "");
            let at = (left - 6.0, y(*value) + 3.5);
            pen.words(at, 10.0, Anchor::End, Ink::Muted, said);
        }
        match extremes(&self.stretches) {
            None => {
                let middle = ((left + right) / 2.0, (above + below) / 2.0 + 4.0);
                pen.words(middle, SIZE, Anchor::Middle, Ink::Muted, "no samples");
            }
            Some((low, high)) => {
                let count = super::super::layout::count(self.lane.samples);
                let said = format!("{} to {}", words(low, ""), words(high, &unit));
                let mark = Mark {
                    label: label.clone(),
                    value: said.clone(),
                    more: (self.lane.samples > 0).then(|| format!("{count} samples")),
                    number: None,
                    unit: &unit,
                    source: None,
                };
                let colour = pen.paint(Ink::Series(self.series));
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
        if let Some(capacity) = self.lane.capacity.and_then(real) {
            let at = y(capacity);
            let attributes = r#"stroke-width="1.3" stroke-dasharray="6 3""#;
            pen.line((left, at), (right, at), Ink::Text, attributes);
        }
        pen.line((left, below), (right, below), Ink::Muted, "");
        self.name(pen, &label, &unit, (left, right), above - 6.0);
        pen.close();
    }

    /// What it is, and how much there is of it, in the line above.
    fn name(&self, pen: &mut Pen, label: &str, unit: &str, (left, right): (f64, f64), line: f64) {
        let named = super::curves::titled(label, unit);
        let (ink, ground) = (pen.paint(Ink::Text), pen.paint(Ink::Ground));
        let shown = fit(&named, 12.0, (right - left) * 0.55);
        pen.open(&format!(r#"stroke="{ground}" {HALO}"#));
        pen.text((left, line), 12.0, Anchor::Start, &ink, &shown, &named);
        if let Some(capacity) = self.lane.capacity.and_then(real) {
            let said = format!("capacity {}", words(capacity, unit));
            pen.words((right, line), SIZE, Anchor::End, Ink::Muted, &said);
        }
        pen.close();
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
        let (Some(low), Some(high)) = (real(stretch.low), real(stretch.high)) else {
            continue;
        };
        envelope.join(Stretch {
            from_s: stretch.from_s.max(from),
            to_s: stretch.to_s.min(to),
            low,
            high,
        });
    }
    envelope.finish()
}

fn extremes(stretches: &[Stretch]) -> Option<(f64, f64)> {
    let each = stretches.iter().map(|s| (s.low, s.high));
    each.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// The band between lowest and highest as a path, broken where nothing was sampled for long.
fn outline(stretches: &[Stretch], x: &Ruler, y: impl Fn(f64) -> f64) -> String {
    let (from, to) = x.ends();
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
                let (a, b) = (x.place(s.from_s), x.place(s.to_s));
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
            d.push_str(&go(if i == 0 { 'M' } else { 'L' }, (*x, *high)));
        }
        for (x, low, _) in corners.iter().rev() {
            d.push_str(&go('L', (*x, *low)));
        }
        d.push('Z');
    }
    d
}

/// Every other phase on a ground of its own, a line where each begins.
fn bands(pen: &mut Pen, timeline: &Timeline, x: &Ruler, (top, bottom): (f64, f64)) {
    for (i, phase) in phases(timeline).iter().enumerate() {
        let (from, to) = (x.place(phase.from_s), x.place(phase.to_s));
        let fill = match i % 2 {
            0 => pen.paint(Ink::Band),
            _ => "transparent".into(),
        };
        let mark = Mark {
            label: harmless(&phase.label),
            value: format!("{} s to {} s", seconds(phase.from_s), seconds(phase.to_s)),
            ..Mark::default()
        };
        pen.marked_rect(
            (from, top),
            ((to - from).max(0.5), bottom - top),
            &fill,
            &mark,
        );
        pen.line((from, top), (from, bottom), Ink::Grid, "");
    }
}

fn seconds(value: f64) -> String {
    words((value * 100.0).round() / 100.0, "")
}

/// Phases that have a place, in order of time.
fn phases(timeline: &Timeline) -> Vec<&Phase> {
    let ends = |p: &&Phase| p.from_s.is_finite() && p.to_s.is_finite() && p.from_s <= p.to_s;
    let mut phases: Vec<&Phase> = timeline.phases.iter().filter(ends).collect();
    phases.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    phases
}

/// Events that have a place, in order of time.
fn events(timeline: &Timeline) -> Vec<&Event> {
    let mut events: Vec<&Event> = timeline
        .events
        .iter()
        .filter(|e| e.at_s.is_finite())
        .collect();
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// A line through all lanes for each event, with a point above.
fn marks(pen: &mut Pen, timeline: &Timeline, x: &Ruler, (top, bottom): (f64, f64)) {
    for event in events(timeline) {
        let at = x.place(event.at_s);
        let ink = if event.bad { Ink::Bad } else { Ink::Muted };
        let stroke = pen.paint(ink);
        let mark = Mark {
            label: harmless(&event.label),
            value: format!("{} s", seconds(event.at_s)),
            number: Some(event.at_s),
            unit: "s",
            ..Mark::default()
        };
        let wide = if event.bad { "1.6" } else { "1" };
        let d = format!("{}l-4 -7h8zV{}", go('M', (at, top)), n(bottom));
        let attributes = format!(
            r#"fill="{stroke}" stroke="{stroke}" stroke-width="{wide}" stroke-opacity="0.8""#
        );
        pen.marked_path(&d, &attributes, &mark);
    }
}

/// A name that wants a place: where its thing begins, and the words.
struct Wish {
    at: f64,
    /// How wide its thing is, to stand in the middle of.
    wide: f64,
    words: String,
    ink: Ink,
}

fn phase_names(timeline: &Timeline, x: &Ruler) -> Vec<Wish> {
    let wish = |phase: &&Phase| {
        let at = x.place(phase.from_s);
        Wish {
            at,
            wide: x.place(phase.to_s) - at,
            words: harmless(&phase.label),
            ink: Ink::Muted,
        }
    };
    phases(timeline).iter().map(wish).collect()
}

fn event_names(timeline: &Timeline, x: &Ruler) -> Vec<Wish> {
    let wish = |event: &&Event| Wish {
        at: x.place(event.at_s),
        wide: 0.0,
        words: harmless(&event.label),
        ink: if event.bad { Ink::Bad } else { Ink::Text },
    };
    events(timeline).iter().map(wish).collect()
}

/// Names in lines, none over another.
struct Names {
    placed: Vec<(f64, usize, String, Wish)>,
    lines: usize,
    left_out: usize,
    any: bool,
}

impl Names {
    fn place(wishes: Vec<Wish>, (left, right): (f64, f64)) -> Names {
        let mut free = [left; MOST_LINES];
        let mut names = Names {
            placed: Vec::new(),
            lines: 0,
            left_out: 0,
            any: !wishes.is_empty(),
        };
        for wish in wishes {
            let shown = fit(&wish.words, SIZE, 190.0);
            let wide = width(&shown, SIZE);
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

    fn draw(&self, pen: &mut Pen, top: f64) {
        for (start, line, shown, wish) in &self.placed {
            let at = (*start, top + LINE * (*line as f64 + 1.0) - 4.0);
            let fill = pen.paint(wish.ink);
            pen.text(at, SIZE, Anchor::Start, &fill, shown, &wish.words);
        }
    }
}

fn describe(timeline: &Timeline, (from, to): (f64, f64)) -> String {
    let lanes: Vec<String> = timeline
        .lanes
        .iter()
        .take(16)
        .map(|lane| {
            let label = harmless(&lane.label);
            let unit = unit(&lane.unit);
            match extremes(&thinned(&lane.stretches, (from, to))) {
                Some((low, high)) => {
                    format!("{label} from {} to {}", words(low, ""), words(high, &unit))
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
    let phases = named(of.map(|p| harmless(&p.label)).collect(), "Phases");
    let of = events(timeline).into_iter().take(12);
    let events = named(of.map(|e| harmless(&e.label)).collect(), "Events");
    format!(
        "From second {} to {}: {}.{phases}{events}",
        seconds(from),
        seconds(to),
        lanes.join("; "),
    )
}
