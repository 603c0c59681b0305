//! Stacked bars: from zero to the right, what is below zero to the left of it.

use super::curves::axis_words;
use super::legend::{self, Sign};
use super::lettering::{fit, harmless, unit, width};
use super::palette::{Ink, SERIES};
use super::pen::{Anchor, Mark, Pattern, Pen};
use super::scale::{Ruler, real, short, words};
use super::svg::{Drawn, SIDE, WIDTH, left_out, nothing};
use super::{Bar, Bars, Scale};
use crate::wording::counted;

/// Longest label before a bar.
const LABEL: f64 = 230.0;

/// A segment with its place on the axis.
struct Piece {
    part: usize,
    from: f64,
    to: f64,
    index: usize,
}

/// Draws them below `top`.
pub fn draw(pen: &mut Pen, bars: &Bars, top: f64) -> Drawn {
    if bars.bars.is_empty() {
        return nothing(pen, top);
    }
    let unit = unit(&bars.axis.unit);
    let pieces: Vec<Vec<Piece>> = bars.bars.iter().map(pieces).collect();
    let every = || bars.bars.iter().flat_map(|b| &b.segments);
    let missing = every().filter(|s| real(s.value).is_none()).count();

    let mut entries: Vec<(Sign, String)> = (0..bars.parts.len())
        .filter(|part| pieces.iter().flatten().any(|p| p.part == *part))
        .map(|part| (Sign::Square(part), harmless(&bars.parts[part])))
        .collect();
    if every().any(|s| s.unsure) {
        let sign = Sign::Pattern(Pattern::Hatch);
        entries.push((sign, "hatched: less than sure".into()));
    }
    let top = legend::draw(pen, &entries, top) + 4.0;

    let rows = Rows::of(bars);
    let common = common_limit(&bars.bars);
    let first = match common {
        Some(_) => top + 18.0,
        None => top + 4.0,
    };
    let bottom = first + rows.every * bars.bars.len() as f64;
    let label = bars
        .bars
        .iter()
        .map(|b| width(&harmless(&b.label), rows.letters))
        .fold(0.0, f64::max)
        .min(LABEL);
    let left = SIDE + if label > 0.0 { label + 10.0 } else { 0.0 };
    let (ruler, sums) = lay_out(bars, &pieces, left, &unit, rows.letters);

    grid(pen, &ruler, (first - 2.0, bottom), bars.bars.len() > 40);
    for (i, bar) in bars.bars.iter().enumerate() {
        let y = first + rows.every * i as f64;
        let name = harmless(&bar.label);
        let middle = y + rows.above + rows.thick / 2.0;
        let ink = pen.paint(Ink::Text);
        let shown = fit(&name, rows.letters, label + 0.5);
        pen.text(
            (left - 10.0, middle + rows.letters * 0.35),
            rows.letters,
            Anchor::End,
            &ink,
            &shown,
            &name,
        );
        let row = Row {
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
        let end = pieces[i]
            .iter()
            .map(|p| p.to.max(p.from))
            .fold(0.0, f64::max);
        if rows.thick >= 12.0 {
            let wide = width(&sums[i], rows.letters);
            let at = beyond(&ruler, end, bar, wide);
            halo(
                pen,
                (at, middle + rows.letters * 0.35),
                rows.letters,
                &sums[i],
            );
        }
        if common.is_none() {
            row.limit(pen, rows.above >= 12.0);
        }
    }
    if let Some((value, said)) = common {
        limit_of_all(pen, &ruler, (value, said), &unit, (first, bottom));
    }
    let zero = ruler.place(0.0);
    pen.line((zero, first - 4.0), (zero, bottom), Ink::Muted, "");
    let bottom = axis(pen, &ruler, &harmless(&bars.axis.title), &unit, bottom);
    Drawn {
        bottom,
        description: describe(bars, entries.len()),
        told: left_out(missing).into_iter().collect(),
    }
}

/// How thick bars are, and what is between them.
struct Rows {
    every: f64,
    thick: f64,
    above: f64,
    letters: f64,
}

impl Rows {
    fn of(bars: &Bars) -> Rows {
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
        Rows {
            every: thick + gap + above,
            thick,
            above,
            letters,
        }
    }
}

/// One bar where it is drawn.
struct Row<'a> {
    bars: &'a Bars,
    bar: &'a Bar,
    name: &'a str,
    unit: &'a str,
    ruler: &'a Ruler,
    y: f64,
    thick: f64,
}

impl Row<'_> {
    fn piece(&self, pen: &mut Pen, piece: &Piece) {
        let segment = &self.bar.segments[piece.index];
        let (a, b) = (self.ruler.place(piece.from), self.ruler.place(piece.to));
        let (x, wide) = (a.min(b), (a - b).abs());
        // A line of the ground's colour parts neighbours; what is thin keeps all its width.
        let shown = if wide > 3.0 {
            wide - 1.0
        } else {
            wide.max(0.6)
        };
        let part = self.bars.parts.get(piece.part).map(|p| harmless(p));
        let part = part.unwrap_or_else(|| "?".into());
        let value = words(segment.value, self.unit);
        let mark = Mark {
            label: match self.name {
                "" => part,
                name => format!("{name}, {part}"),
            },
            value: value.clone(),
            more: segment.confidence.as_deref().map(harmless),
            number: Some(segment.value),
            unit: self.unit,
            source: segment.source,
        };
        let fill = pen.paint(Ink::Series(piece.part));
        pen.marked_rect((x, self.y), (shown, self.thick), &fill, &mark);
        let over = [
            (piece.part >= SERIES, Pattern::Dots),
            (segment.unsure, Pattern::Hatch),
        ];
        for (_, pattern) in over.iter().filter(|o| o.0) {
            let fill = pen.pattern(*pattern);
            let attributes = format!(r#"fill="{fill}" pointer-events="none""#);
            let d = format!(
                "{}h{}v{}h-{}Z",
                super::pen::go('M', (x, self.y)),
                super::pen::n(shown),
                super::pen::n(self.thick),
                super::pen::n(shown)
            );
            pen.path(&d, &attributes);
        }
        let short = short(segment.value);
        let size = 11.0;
        if self.thick >= 14.0 && width(&short, size) + 8.0 <= shown {
            let at = (x + shown / 2.0, self.y + self.thick / 2.0 + size * 0.35);
            let (ink, ground) = (
                Ink::OnSeries(piece.part),
                pen.paint(Ink::Series(piece.part)),
            );
            let halo = segment.unsure || piece.part >= SERIES;
            let around = if halo {
                format!(
                    r#" stroke="{ground}" stroke-width="4" paint-order="stroke" stroke-linejoin="round""#
                )
            } else {
                String::new()
            };
            pen.open(&format!(r#"pointer-events="none"{around}"#));
            pen.words(at, size, Anchor::Middle, ink, &short);
            pen.close();
        }
    }

    /// The line across this bar alone.
    fn limit(&self, pen: &mut Pen, labelled: bool) {
        let Some((value, said)) = &self.bar.limit else {
            return;
        };
        let Some(value) = real(*value) else {
            return;
        };
        let x = self.ruler.place(value);
        let (from, to) = (self.y - 3.0, self.y + self.thick + 3.0);
        let said = harmless(said);
        let mark = Mark {
            label: said.clone(),
            value: words(value, self.unit),
            number: Some(value),
            unit: self.unit,
            ..Mark::default()
        };
        let stroke = pen.paint(Ink::Text);
        pen.marked_path(
            &format!("{}V{}", super::pen::go('M', (x, from)), super::pen::n(to)),
            &format!(r#"stroke="{stroke}" stroke-width="2""#),
            &mark,
        );
        if labelled {
            beside(pen, x, self.y - 5.0, 10.0, &said);
        }
    }
}

/// Segments end to end: those above zero to the right, those below to the left.
fn pieces(bar: &Bar) -> Vec<Piece> {
    let (mut right, mut left) = (0.0, 0.0);
    let mut pieces = Vec::new();
    for (index, segment) in bar.segments.iter().enumerate() {
        let Some(value) = real(segment.value).filter(|v| *v != 0.0) else {
            continue;
        };
        let end = if value > 0.0 { &mut right } else { &mut left };
        let from = *end;
        *end += value;
        pieces.push(Piece {
            part: segment.part,
            from,
            to: *end,
            index,
        });
    }
    pieces
}

/// The axis, with room behind the bars for their sums, and these in words.
fn lay_out(
    bars: &Bars,
    pieces: &[Vec<Piece>],
    left: f64,
    unit: &str,
    letters: f64,
) -> (Ruler, Vec<String>) {
    let ends = pieces.iter().flatten().map(|p| p.to);
    let limits = bars.bars.iter().filter_map(|b| real(b.limit.as_ref()?.0));
    let (low, high) = ends
        .clone()
        .chain(limits)
        .fold((0.0, 0.0), |(l, h): (f64, f64), v| (l.min(v), h.max(v)));
    let sums: Vec<String> = pieces
        .iter()
        .map(|pieces| {
            if pieces.is_empty() {
                "–".into()
            } else {
                words(pieces.iter().map(|p| p.to - p.from).sum(), unit)
            }
        })
        .collect();
    let ruler = |right| Ruler::new(Scale::FromZero, (low, high), (left, right), 8, false);
    let right = WIDTH - SIDE - 4.0;
    let wide = ruler(right);
    let too_far = pieces
        .iter()
        .zip(&bars.bars)
        .zip(&sums)
        .map(|((pieces, bar), sum)| {
            let end = pieces.iter().map(|p| p.to).fold(0.0, f64::max);
            let sum = width(sum, letters);
            beyond(&wide, end, bar, sum) + 2.0 + sum - right
        })
        .fold(0.0, f64::max);
    (ruler(right - too_far.min((right - left) / 2.0)), sums)
}

/// Where the sum of a bar begins: behind its end, and not across its limit.
fn beyond(ruler: &Ruler, end: f64, bar: &Bar, wide: f64) -> f64 {
    let at = ruler.place(end) + 6.0;
    match bar.limit.as_ref().and_then(|l| real(l.0)) {
        Some(limit) if (at - 4.0..at + wide + 3.0).contains(&ruler.place(limit)) => {
            ruler.place(limit) + 6.0
        }
        _ => at,
    }
}

/// The limit that all bars have, where it is one.
fn common_limit(bars: &[Bar]) -> Option<(f64, &str)> {
    let (value, said) = bars.first()?.limit.as_ref()?;
    let same = bars
        .iter()
        .all(|b| b.limit.as_ref() == Some(&(*value, said.clone())));
    (same && value.is_finite()).then_some((real(*value)?, said.as_str()))
}

fn limit_of_all(
    pen: &mut Pen,
    ruler: &Ruler,
    (value, said): (f64, &str),
    unit: &str,
    (top, bottom): (f64, f64),
) {
    let x = ruler.place(value);
    let said = harmless(said);
    let mark = Mark {
        label: said.clone(),
        value: words(value, unit),
        number: Some(value),
        unit,
        ..Mark::default()
    };
    let stroke = pen.paint(Ink::Text);
    pen.marked_path(
        &format!(
            "{}V{}",
            super::pen::go('M', (x, top - 8.0)),
            super::pen::n(bottom)
        ),
        &format!(r#"stroke="{stroke}" stroke-width="1.6" stroke-dasharray="6 3""#),
        &mark,
    );
    beside(pen, x, top - 12.0, 12.0, &said);
}

/// Words over a line at `x`, kept within the picture.
fn beside(pen: &mut Pen, x: f64, y: f64, size: f64, said: &str) {
    let shown = fit(said, size, WIDTH / 2.0);
    let half = width(&shown, size) / 2.0;
    let x = x.clamp(SIDE + half, (WIDTH - SIDE - half).max(SIDE + half));
    let ink = pen.paint(Ink::Text);
    pen.text((x, y), size, Anchor::Middle, &ink, &shown, said);
}

/// Words that may stand on lines.
fn halo(pen: &mut Pen, at: (f64, f64), size: f64, said: &str) {
    let ground = pen.paint(Ink::Ground);
    pen.open(&format!(
        r#"stroke="{ground}" stroke-width="3" paint-order="stroke" stroke-linejoin="round""#
    ));
    pen.words(at, size, Anchor::Start, Ink::Text, said);
    pen.close();
}

fn grid(pen: &mut Pen, ruler: &Ruler, (top, bottom): (f64, f64), named_above: bool) {
    for (value, said) in &ruler.ticks {
        let x = ruler.place(*value);
        pen.line((x, top), (x, bottom), Ink::Grid, "");
        if named_above {
            pen.words((x, top - 4.0), 11.0, Anchor::Middle, Ink::Muted, said);
        }
    }
}

/// The axis below: ticks, words, unit; where it ends.
fn axis(pen: &mut Pen, ruler: &Ruler, title: &str, unit: &str, bottom: f64) -> f64 {
    for (value, said) in &ruler.ticks {
        let at = (ruler.place(*value), bottom + 15.0);
        pen.words(at, 11.0, Anchor::Middle, Ink::Muted, said);
    }
    axis_words(pen, title, unit, (WIDTH / 2.0, bottom + 33.0))
}

fn describe(bars: &Bars, kinds: usize) -> String {
    let count = bars.bars.len();
    let names: Vec<String> = bars
        .bars
        .iter()
        .take(8)
        .map(|b| harmless(&b.label))
        .collect();
    let more = if count > 8 { " and more" } else { "" };
    format!(
        "{} of {kinds} kinds of parts: {}{more}.",
        counted(count, "stacked bar"),
        names.join(", ")
    )
}
