//! Stacked bars: from zero to the right, what is below zero to the left of it.

use super::curves::axis_words;
use super::legend::{self, Sign};
use super::lettering::{fit_text, harmless_text, harmless_unit, text_width, widest_text};
use super::palette::Ink;
use super::pen::{Anchor, ChartMark, SvgWriter, format_number, path_step};
use super::scale::{AxisScale, finite_value, short_value, value_with_unit};
use super::svg::{DrawnPlot, SIDE, WIDTH, draw_nothing, left_out};
use super::{Bar, Bars, Scale};
use crate::breakdown::Component;
use crate::wording::count_noun;

/// Longest label before a bar.
const LABEL: f64 = 230.0;

/// A segment with its place on the axis.
struct BarPiece {
    part: usize,
    from: f64,
    to: f64,
    index: usize,
}

/// By its component, and without one by its place.
fn ink_of_part(bars: &Bars, part: usize) -> Ink {
    let component = bars.parts.get(part).and_then(|p| p.component);
    component.map_or(Ink::Series(part), Ink::Part)
}

/// Draws them below `top`.
pub fn draw_bars(pen: &mut SvgWriter, bars: &Bars, top: f64) -> DrawnPlot {
    if bars.bars.is_empty() {
        return draw_nothing(pen, top);
    }
    let unit = harmless_unit(&bars.axis.unit);
    let pieces: Vec<Vec<BarPiece>> = bars.bars.iter().map(pieces).collect();
    let every = || bars.bars.iter().flat_map(|b| &b.segments);
    let missing = every().filter(|s| finite_value(s.value).is_none()).count();

    let entries: Vec<(Sign, String)> = (bars.parts.iter().enumerate())
        .filter(|(part, _)| pieces.iter().flatten().any(|p| p.part == *part))
        .map(|(part, of)| {
            let mut label = harmless_text(&of.label);
            let unsure = every().any(|s| s.part == part && s.unsure);
            if unsure && of.component != Some(Component::Unexplained) {
                label.push_str(" (low confidence)");
            }
            (Sign::Square(ink_of_part(bars, part)), label)
        })
        .collect();
    let top = legend::draw_legend(pen, &entries, top) + 4.0;

    let rows = BarRows::lay_out_rows(bars);
    let common = common_limit(&bars.bars);
    let first = top + common.map_or(4.0, |_| 18.0);
    let bottom = first + rows.every * bars.bars.len() as f64;
    let labels = bars.bars.iter().map(|b| harmless_text(&b.label));
    let label = widest_text(labels, rows.letters).min(LABEL);
    let left = SIDE + if label > 0.0 { label + 10.0 } else { 0.0 };
    let (ruler, sums) = lay_out(bars, &pieces, left, &unit, rows.letters);

    grid(pen, &ruler, (first - 2.0, bottom), bars.bars.len() > 40);
    for (i, bar) in bars.bars.iter().enumerate() {
        let y = first + rows.every * i as f64;
        let name = harmless_text(&bar.label);
        let line = y + rows.above + rows.thick / 2.0 + rows.letters * 0.35;
        let room = (rows.letters, label + 0.5);
        pen.draw_fitted((left - 10.0, line), room, Anchor::End, Ink::Text, &name);
        let row = BarRow {
            bars,
            bar,
            name: &name,
            unit: &unit,
            ruler: &ruler,
            y: y + rows.above,
            thick: rows.thick,
        };
        for piece in &pieces[i] {
            row.piece(pen, piece);
        }
        let end = right_end(&pieces[i]);
        if rows.thick >= 12.0 {
            let wide = text_width(&sums[i], rows.letters);
            let at = beyond(&ruler, end, bar, wide);
            pen.with_halo(Ink::Ground, |pen| {
                pen.draw_words((at, line), rows.letters, Anchor::Start, Ink::Text, &sums[i]);
            });
        }
        let own = bar.limit.as_ref().filter(|_| common.is_none());
        let own = own.and_then(|(value, words)| Some((finite_value(*value)?, words.as_str())));
        if let Some(limit) = own {
            let (from, to) = (row.y - 3.0, row.y + row.thick + 3.0);
            let above = (rows.above >= 12.0).then_some((row.y - 5.0, 10.0));
            let width = r#"stroke-width="2""#;
            draw_limit(pen, &ruler, limit, &unit, (from, to), width, above);
        }
    }
    if let Some(limit) = common {
        let attributes = r#"stroke-width="1.6" stroke-dasharray="6 3""#;
        let (ends, above) = ((first - 8.0, bottom), Some((first - 12.0, 12.0)));
        draw_limit(pen, &ruler, limit, &unit, ends, attributes, above);
    }
    let (zero, end) = (ruler.place_of(0.0), rows.above + rows.thick);
    for (i, pair) in bars.bars.windows(2).enumerate() {
        let [bar, next] = pair else { continue };
        // The first bar ends where the first change begins, the last one where the last change ends.
        let level = finite_value(bar.end()).filter(|_| bar.is_change() || next.is_change());
        if let Some(level) = level {
            let (x, y) = (ruler.place_of(level), first + rows.every * i as f64);
            let attributes = r#"stroke-width="1" stroke-dasharray="2 2""#;
            let to = y + rows.every + rows.above;
            pen.draw_line((x, y + end), (x, to), Ink::Muted, attributes);
        }
    }
    pen.draw_line((zero, first - 4.0), (zero, bottom), Ink::Muted, "");
    let bottom = draw_axis(pen, &ruler, &harmless_text(&bars.axis.title), &unit, bottom);
    DrawnPlot {
        bottom,
        description: describe_bars(bars, entries.len()),
        remarks: left_out(missing).into_iter().collect(),
    }
}

/// How thick bars are, and what is between them.
struct BarRows {
    every: f64,
    thick: f64,
    above: f64,
    letters: f64,
}

impl BarRows {
    fn lay_out_rows(bars: &Bars) -> BarRows {
        let (thick, gap, letters) = match bars.bars.len() {
            0..=3 => (32.0, 14.0, 13.0),
            4..=12 => (24.0, 10.0, 13.0),
            13..=40 => (14.0, 6.0, 11.0),
            _ => (9.0, 3.0, 9.0),
        };
        let labelled = common_limit(&bars.bars).is_none()
            && thick >= 14.0
            && bars.bars.iter().any(|b| b.limit.is_some());
        let above = if labelled { 13.0 } else { 0.0 };
        BarRows {
            every: thick + gap + above,
            thick,
            above,
            letters,
        }
    }
}

/// One bar where it is drawn.
struct BarRow<'a> {
    bars: &'a Bars,
    bar: &'a Bar,
    name: &'a str,
    unit: &'a str,
    ruler: &'a AxisScale,
    y: f64,
    thick: f64,
}

impl BarRow<'_> {
    fn piece(&self, pen: &mut SvgWriter, piece: &BarPiece) {
        let segment = &self.bar.segments[piece.index];
        let [a, b] = [piece.from, piece.to].map(|value| self.ruler.place_of(value));
        let (x, wide) = (a.min(b), (a - b).abs());
        // A line of the ground's colour parts neighbours; what is thin keeps all its width.
        let shown = if wide > 3.0 {
            wide - 1.5
        } else {
            wide.max(0.6)
        };
        let part = self.bars.parts.get(piece.part);
        let part = part.map(|p| harmless_text(&p.label));
        let part = part.unwrap_or_else(|| "?".into());
        let value = signed_value(self.bar, segment.value, self.unit);
        let mark = ChartMark {
            label: match self.name {
                "" => part,
                name if name == part => part,
                name => format!("{name}, {part}"),
            },
            value: value.clone(),
            more: segment.confidence.as_deref().map(harmless_text),
            number: Some(segment.value),
            unit: self.unit,
            source: segment.source,
        };
        let of = ink_of_part(self.bars, piece.part);
        let ground = pen.paint_for(of);
        pen.marked_rect((x, self.y), (shown, self.thick), &ground, &mark);
        if let Some(pattern) = of.pattern() {
            let fill = pen.pattern_url(pattern);
            let attributes = format!(r#"fill="{fill}" pointer-events="none""#);
            let (wide, high) = (format_number(shown), format_number(self.thick));
            let corner = path_step('M', (x, self.y));
            pen.draw_path(&format!("{corner}h{wide}v{high}h-{wide}Z"), &attributes);
        }
        // The size of a change is beside it; a segment that is cut would seem smaller than it is.
        let cut = piece.from.min(piece.to) < self.ruler.end_values().0;
        let is_named = !self.bar.is_change() && !cut && self.thick >= 14.0;
        let (size, short) = (11.0, short_value(segment.value));
        if is_named && text_width(&short, size) + 8.0 <= shown {
            let at = (x + shown / 2.0, self.y + self.thick / 2.0 + size * 0.35);
            let around = if of.pattern().is_some() {
                format!(
                    r#" stroke="{ground}" stroke-width="4" paint-order="stroke" stroke-linejoin="round""#
                )
            } else {
                String::new()
            };
            pen.open_group(&format!(r#"pointer-events="none"{around}"#));
            pen.draw_words(at, size, Anchor::Middle, of.of_words(), &short);
            pen.close_group();
        }
    }
}

/// Segments end to end: those above zero to the right, those below to the left.
fn pieces(bar: &Bar) -> Vec<BarPiece> {
    let start = finite_value(bar.start).unwrap_or(0.0);
    let (mut right, mut left) = (start, start);
    let mut pieces = Vec::new();
    for (index, segment) in bar.segments.iter().enumerate() {
        let Some(value) = finite_value(segment.value).filter(|v| *v != 0.0) else {
            continue;
        };
        let end = if value > 0.0 { &mut right } else { &mut left };
        let from = *end;
        *end += value;
        pieces.push(BarPiece {
            part: segment.part,
            from,
            to: *end,
            index,
        });
    }
    pieces
}

/// Where the segments of a bar end at the right.
fn right_end(pieces: &[BarPiece]) -> f64 {
    pieces.iter().map(|p| p.to.max(p.from)).fold(0.0, f64::max)
}

/// The axis, with room behind the bars for their sums, and these in words.
fn lay_out(
    bars: &Bars,
    pieces: &[Vec<BarPiece>],
    left: f64,
    unit: &str,
    letters: f64,
) -> (AxisScale, Vec<String>) {
    let ends = pieces.iter().flatten().flat_map(|p| [p.from, p.to]);
    let limits = (bars.bars.iter()).filter_map(|b| finite_value(b.limit.as_ref()?.0));
    // A waterfall may leave out what all of its bars have in common.
    let scale = match bars.axis.scale {
        Scale::Linear => Scale::Linear,
        _ => Scale::FromZero,
    };
    let of_changes = (bars.bars.iter().filter(|b| b.is_change()))
        .flat_map(|b| [b.start, b.end()])
        .filter_map(finite_value);
    let lowest = (of_changes.reduce(f64::min)).filter(|_| scale == Scale::Linear);
    let (low, high) = ends
        .chain(limits)
        .fold((0.0, 0.0), |(l, h): (f64, f64), v| (l.min(v), h.max(v)));
    // Room below the lowest, in which the whole bars are seen to go on.
    let low = lowest.map_or(low, |lowest| (lowest - (high - lowest) * 0.4).max(low));
    let right = WIDTH - SIDE - 4.0;
    // A unit of a broken document may be wider than the picture.
    let room = (right - left) / 2.0 - 16.0;
    let sum_of = |(pieces, bar): (&Vec<BarPiece>, &Bar)| {
        if pieces.is_empty() {
            return "–".to_owned();
        }
        let sum = pieces.iter().map(|p| p.to - p.from).sum();
        fit_text(&signed_value(bar, sum, unit), letters, room)
    };
    let sums: Vec<String> = pieces.iter().zip(&bars.bars).map(sum_of).collect();
    let ruler = |right| AxisScale::new(scale, (low, high), (left, right), 8, false);
    let wide = ruler(right);
    let each = pieces.iter().zip(&bars.bars).zip(&sums);
    let too_far = each.map(|((pieces, bar), sum)| {
        let sum = text_width(sum, letters);
        beyond(&wide, right_end(pieces), bar, sum) + 2.0 + sum - right
    });
    let too_far = too_far.fold(0.0, f64::max);
    (ruler(right - too_far.min((right - left) / 2.0)), sums)
}

/// A value in words: a change has its sign.
fn signed_value(bar: &Bar, value: f64, unit: &str) -> String {
    let words = value_with_unit(value, unit);
    if bar.is_change() && value > 0.0 {
        format!("+{words}")
    } else {
        words
    }
}

/// Where the sum of a bar begins: behind its end, and not across its limit.
fn beyond(ruler: &AxisScale, end: f64, bar: &Bar, wide: f64) -> f64 {
    let at = ruler.place_of(end) + 6.0;
    match bar.limit.as_ref().and_then(|l| finite_value(l.0)) {
        Some(limit) if (at - 4.0..at + wide + 3.0).contains(&ruler.place_of(limit)) => {
            ruler.place_of(limit) + 6.0
        }
        _ => at,
    }
}

/// The limit that all bars have, where it is one.
fn common_limit(bars: &[Bar]) -> Option<(f64, &str)> {
    let (value, words) = bars.first()?.limit.as_ref()?;
    let same = bars.iter().all(|b| b.limit == bars[0].limit);
    (same && value.is_finite()).then_some((finite_value(*value)?, words.as_str()))
}

/// A line across at a limit, and over it its words with their height and size, kept within the picture.
fn draw_limit(
    pen: &mut SvgWriter,
    ruler: &AxisScale,
    (value, words): (f64, &str),
    unit: &str,
    (from, to): (f64, f64),
    attributes: &str,
    above: Option<(f64, f64)>,
) {
    let x = ruler.place_of(value);
    let mark = ChartMark::of_figure(&harmless_text(words), value, unit);
    let stroke = pen.paint_for(Ink::Text);
    let d = format!("{}V{}", path_step('M', (x, from)), format_number(to));
    pen.marked_path(&d, &format!(r#"stroke="{stroke}" {attributes}"#), &mark);
    let Some((y, size)) = above else { return };
    let half = text_width(&fit_text(&mark.label, size, WIDTH / 2.0), size) / 2.0;
    let x = x.clamp(SIDE + half, (WIDTH - SIDE - half).max(SIDE + half));
    let room = (size, WIDTH / 2.0);
    pen.draw_fitted((x, y), room, Anchor::Middle, Ink::Text, &mark.label);
}

fn grid(pen: &mut SvgWriter, ruler: &AxisScale, (top, bottom): (f64, f64), named_above: bool) {
    for (value, words) in &ruler.ticks {
        let x = ruler.place_of(*value);
        pen.draw_line((x, top), (x, bottom), Ink::Grid, "");
        if named_above {
            pen.draw_words((x, top - 4.0), 11.0, Anchor::Middle, Ink::Muted, words);
        }
    }
}

/// The axis below: ticks, words, unit; where it ends.
fn draw_axis(pen: &mut SvgWriter, ruler: &AxisScale, title: &str, unit: &str, bottom: f64) -> f64 {
    for (value, words) in &ruler.ticks {
        let at = (ruler.place_of(*value), bottom + 15.0);
        pen.draw_words(at, 11.0, Anchor::Middle, Ink::Muted, words);
    }
    axis_words(pen, title, unit, (WIDTH / 2.0, bottom + 33.0))
}

fn describe_bars(bars: &Bars, kinds: usize) -> String {
    let count = bars.bars.len();
    if bars.is_waterfall() {
        let unit = harmless_unit(&bars.axis.unit);
        let steps = bars.bars.iter().take(16).map(|bar| {
            let value = finite_value(bar.end() - bar.start).unwrap_or(0.0);
            let (label, value) = (harmless_text(&bar.label), signed_value(bar, value, &unit));
            format!("{label} {value}")
        });
        return format!("Waterfall: {}.", steps.collect::<Vec<_>>().join(", "));
    }
    let names = bars.bars.iter().take(8).map(|b| harmless_text(&b.label));
    let names = names.collect::<Vec<_>>().join(", ");
    let more = if count > 8 { " and more" } else { "" };
    let count = count_noun(count, "stacked bar");
    format!("{count} of {kinds} kinds of parts: {names}{more}.")
}
