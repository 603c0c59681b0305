//! A figure for each pair of two settings, as coloured squares.

use super::curves::axis_words;
use super::legend::{self, Sign};
use super::lettering::{fit_text, harmless_text, harmless_unit, text_width, widest_text};
use super::palette::{self, Ink};
use super::pen::{Anchor, ChartMark, FillPattern, SvgWriter, format_number};
use super::scale::{AxisScale, range_of, scaled_value, value_with_unit};
use super::svg::{DrawnPlot, SIDE, WIDTH, draw_nothing};
use super::{Heat, Scale, Square};

/// Longest label of a row.
const LABEL: f64 = 170.0;

/// Widest square.
const WIDEST: f64 = 180.0;

/// A spread below this share of the largest figure counts as equal: one colour for all.
const LEAST_SPREAD: f64 = 0.05;

/// In the legend of such a map.
const NO_DIFFERENCE: &str = "no difference above 5 %";

/// Draws them below `top`.
pub fn draw_heat(pen: &mut SvgWriter, heat: &Heat, top: f64) -> DrawnPlot {
    let columns = heat.squares.iter().map(Vec::len).max().unwrap_or(0);
    let columns = columns.max(heat.x.1.len());
    let rows = heat.squares.len().max(heat.y.1.len());
    if columns == 0 || rows == 0 {
        return draw_nothing(pen, top);
    }
    let unit = harmless_unit(&heat.figure.unit);
    let shades = Shades::shades_of_heat(heat);
    let top = draw_colour_key(pen, heat, &shades, &unit, top);

    let titles = (harmless_text(&heat.x.0), harmless_text(&heat.y.0));
    let squares = Squares::new(heat, &shades, &unit, (columns, rows), top + 20.0);
    let room = (12.0, WIDTH - 2.0 * SIDE);
    let at = (SIDE, top + 8.0);
    pen.draw_fitted(at, room, Anchor::Start, Ink::Muted, &titles.1);
    for row in 0..rows {
        squares.name_row(pen, row);
    }
    let each = |draw: &mut dyn FnMut(&Square, (usize, usize))| {
        for (row, line) in heat.squares.iter().enumerate() {
            for (column, square) in line.iter().enumerate() {
                // What was never asked for is an empty place.
                if square.value.is_some() || !square.text.is_empty() {
                    draw(square, (row, column));
                }
            }
        }
    };
    each(&mut |square, place| squares.draw_heat(pen, square, place));
    pen.open_group(r#"pointer-events="none""#);
    each(&mut |square, place| squares.write_value(pen, square, place));
    pen.close_group();
    let below = squares.name_columns(pen, columns);
    let bottom = axis_words(pen, &titles.0, "", (squares.middle(columns), below + 16.0));
    DrawnPlot {
        bottom,
        description: describe_heat(heat, rows, columns, &shades, &unit),
        remarks: Vec::new(),
    }
}

/// From a figure to its colour.
struct Shades {
    ruler: Option<AxisScale>,
    range: (f64, f64),
    scale: Scale,
    high_is_bad: bool,
}

impl Shades {
    fn shades_of_heat(heat: &Heat) -> Shades {
        let scale = heat.figure.scale;
        let figures = heat.squares.iter().flatten().filter_map(|s| s.value);
        let range = range_of(figures.filter_map(|v| scaled_value(scale, v)));
        let range = range.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
        // Colours distinguish squares, so they begin at the lowest whatever the axis.
        let largest = range.0.abs().max(range.1.abs());
        let differ = range.0 < range.1 && range.1 - range.0 >= largest * LEAST_SPREAD;
        let ends = match scale {
            Scale::Log2 => (range.0.log2(), range.1.log2()),
            _ => range,
        };
        let ruler = differ.then(|| AxisScale::plain_ruler(ends, (0.0, 1.0), Vec::new()));
        Shades {
            ruler,
            range,
            scale,
            high_is_bad: heat.high_is_bad,
        }
    }

    fn colour(&self, value: f64) -> (String, &'static str) {
        let share = match (&self.ruler, self.scale) {
            (None, _) => 0.3,
            (Some(ruler), Scale::Log2) => ruler.place_of(value.log2()),
            (Some(ruler), _) => ruler.place_of(value),
        };
        palette::heat_colour(share, self.high_is_bad)
    }

    /// Whether figures differ too little for different colours.
    fn is_flat(&self) -> bool {
        self.ruler.is_none() && self.range.0 < self.range.1
    }

    fn any(&self) -> bool {
        self.range.0 <= self.range.1
    }
}

/// What colours mean, above; where it ends.
fn draw_colour_key(pen: &mut SvgWriter, heat: &Heat, shades: &Shades, unit: &str, top: f64) -> f64 {
    const STEPS: usize = 9;
    const STEP: f64 = 18.0;
    // Room for the words: of the figure, and of its lowest and highest.
    const FIGURE: f64 = 300.0;
    const BOUND: f64 = 140.0;
    let mut at = SIDE;
    let middle = top + 10.0;
    if shades.any() {
        let figure = harmless_text(&heat.figure.title);
        let mut put = |pen: &mut SvgWriter, words: &str, room: f64| {
            let room = (12.0, room);
            match pen.draw_fitted((at, middle), room, Anchor::Start, Ink::Text, words) {
                0.0 => {}
                wide => at += wide + 8.0,
            }
            at
        };
        put(pen, &figure, FIGURE);
        let low = put(pen, &value_with_unit(shades.range.0, unit), BOUND);
        if shades.is_flat() {
            let (fill, _) = shades.colour(shades.range.0);
            pen.draw_rect((low, top), (STEP, 13.0), &fill);
            let words = format!("{}, {NO_DIFFERENCE}", value_with_unit(shades.range.1, unit));
            let beside = low + STEP + 8.0;
            pen.draw_words((beside, middle), 12.0, Anchor::Start, Ink::Text, &words);
            at = beside + text_width(&words, 12.0);
        }
        if shades.ruler.is_some() {
            for step in 0..STEPS {
                let share = step as f64 / (STEPS - 1) as f64;
                let (fill, _) = palette::heat_colour(share, shades.high_is_bad);
                pen.draw_rect((low + STEP * step as f64, top), (STEP, 13.0), &fill);
            }
            let high = low + STEP * STEPS as f64 + 8.0;
            let words = value_with_unit(shades.range.1, unit);
            let room = (12.0, BOUND);
            at = high + pen.draw_fitted((high, middle), room, Anchor::Start, Ink::Text, &words);
        }
    }
    let is_void = |s: &Square| figure_of(heat, s).is_none() && !s.text.is_empty();
    if heat.squares.iter().flatten().any(is_void) {
        let (sign, words) = (Sign::Void, "no figure, and why");
        let beside = at + 24.0 + 24.0 + text_width(words, 12.0) <= WIDTH - SIDE;
        let place = match (shades.any(), beside) {
            (true, true) => (at + 24.0, middle),
            (true, false) => (SIDE, middle + 22.0),
            (false, _) => (SIDE, middle),
        };
        legend::draw_entry(pen, sign, words, place);
        return place.1 + 16.0;
    }
    let bottom = if shades.any() { top + 24.0 } else { top };
    bottom + 2.0
}

/// The figure of a square that has a place on the scale.
fn figure_of(heat: &Heat, square: &Square) -> Option<f64> {
    square
        .value
        .and_then(|v| scaled_value(heat.figure.scale, v))
}

/// Where squares stand.
struct Squares<'a> {
    heat: &'a Heat,
    shades: &'a Shades,
    unit: &'a str,
    left: f64,
    top: f64,
    wide: f64,
    high: f64,
    rows: usize,
    letters: f64,
}

impl<'a> Squares<'a> {
    fn new(
        heat: &'a Heat,
        shades: &'a Shades,
        unit: &'a str,
        (columns, rows): (usize, usize),
        top: f64,
    ) -> Squares<'a> {
        let named = heat.y.1.iter().map(|l| harmless_text(l));
        let label = widest_text(named, 12.0).min(LABEL);
        let left = SIDE + if label > 0.0 { label + 10.0 } else { 0.0 };
        let room = WIDTH - SIDE - left;
        let wide = (room / columns as f64).min(WIDEST);
        let high = match rows {
            0..=8 => 40.0,
            9..=14 => 30.0,
            15..=40 => 22.0,
            _ => 12.0f64,
        };
        // Squares do not become towers.
        let high = high.min((wide * 1.2).max(8.0));
        let letters = (high * 0.5).clamp(7.0, 13.0).min((wide * 0.42).max(8.5));
        Squares {
            heat,
            shades,
            unit,
            left,
            top,
            wide,
            high,
            rows,
            letters,
        }
    }

    /// Where a square is, and how large.
    fn place_of_square(&self, (row, column): (usize, usize)) -> ((f64, f64), (f64, f64)) {
        let is_large = self.wide > 8.0 && self.high > 8.0;
        let gap = if is_large { 1.5 } else { 0.0 };
        let (x, y) = (self.wide * column as f64, self.high * row as f64);
        let size = (self.wide - gap, self.high - gap);
        ((self.left + x, self.top + y), size)
    }

    /// The coloured square.
    fn draw_heat(&self, pen: &mut SvgWriter, square: &Square, place: (usize, usize)) {
        let (heat, unit) = (self.heat, self.unit);
        let (at, size) = self.place_of_square(place);
        let value = figure_of(heat, square);
        let fill = match value {
            Some(value) => self.shades.colour(value).0,
            None => pen.pattern_url(FillPattern::Void),
        };
        let setting = |(title, values): &(String, Vec<String>), n: usize| {
            let value = values.get(n).map(|v| harmless_text(v)).unwrap_or_default();
            let setting = format!("{} {value}", harmless_text(title));
            setting.trim().to_owned()
        };
        let text = harmless_text(&square.text);
        let (across, up) = (setting(&heat.x, place.1), setting(&heat.y, place.0));
        let mark = ChartMark {
            label: format!("{across}, {up}"),
            value: match value {
                Some(value) => value_with_unit(value, unit),
                None if text.is_empty() => "no figure".into(),
                None => text,
            },
            number: value,
            unit,
            ..ChartMark::default()
        };
        pen.marked_rect(at, size, &fill, &mark);
    }

    /// Its content.
    fn write_value(&self, pen: &mut SvgWriter, square: &Square, place: (usize, usize)) {
        let (at, size) = self.place_of_square(place);
        let value = figure_of(self.heat, square);
        let text = harmless_text(&square.text);
        let words = match value {
            Some(value) if text.is_empty() => value_with_unit(value, ""),
            _ => text,
        };
        let room = size.0 - 3.0;
        let mut sizes = [self.letters, self.letters - 1.5].into_iter();
        let fits = sizes.find(|s| text_width(&words, *s) <= room);
        let letters = fits.unwrap_or(self.letters - 1.5);
        // A figure is whole or not there; a word may be cut.
        let shown = match (fits, value) {
            (Some(_), _) => words.clone(),
            (None, Some(_)) => String::new(),
            (None, None) => fit_text(&words, letters, room),
        };
        if self.high < 11.0 {
            return;
        }
        let middle = (at.0 + size.0 / 2.0, at.1 + size.1 / 2.0 + letters * 0.36);
        match value {
            Some(value) => {
                let ink = self.shades.colour(value).1;
                pen.draw_text(middle, letters, Anchor::Middle, ink, &shown, &words);
            }
            None => {
                let ink = pen.paint_for(Ink::Text);
                pen.with_halo(Ink::Band, |pen| {
                    pen.draw_text(middle, letters, Anchor::Middle, &ink, &shown, &words);
                });
            }
        }
    }

    /// The middle of all columns.
    fn middle(&self, columns: usize) -> f64 {
        self.left + self.wide * columns as f64 / 2.0
    }

    fn name_row(&self, pen: &mut SvgWriter, row: usize) {
        let letters = (self.high * 0.8).clamp(7.0, 12.0);
        // Rows lower than their words name every other one.
        let every = (letters / self.high).ceil().max(1.0) as usize;
        if row % every != 0 {
            return;
        }
        let label = self.heat.y.1.get(row);
        let label = label.map(|l| harmless_text(l)).unwrap_or_default();
        let middle = self.top + self.high * (row as f64 + 0.5) + letters * 0.3;
        let (at, room) = ((self.left - 9.0, middle), (letters, LABEL));
        pen.draw_fitted(at, room, Anchor::End, Ink::Text, &label);
    }

    /// Labels of the columns; where they end. Those that are wider than a square are turned.
    fn name_columns(&self, pen: &mut SvgWriter, columns: usize) -> f64 {
        const SIZE: f64 = 11.0;
        let bottom = self.top + self.high * self.rows as f64;
        let labels = self.heat.x.1.iter().take(columns);
        let labels: Vec<String> = labels.map(|l| harmless_text(l)).collect();
        let widest = widest_text(&labels, SIZE);
        if widest == 0.0 {
            return bottom;
        }
        let turned = widest > self.wide - 3.0;
        let every = if turned {
            ((SIZE + 3.0) / self.wide).ceil().max(1.0) as usize
        } else {
            1
        };
        for (column, label) in labels.iter().enumerate().step_by(every) {
            let x = self.left + self.wide * (column as f64 + 0.5);
            if turned {
                let (x, y) = (format_number(x + SIZE * 0.35), format_number(bottom + 7.0));
                pen.open_group(&format!(r#"transform="translate({x} {y}) rotate(-90)""#));
                pen.draw_fitted((0.0, 0.0), (SIZE, 110.0), Anchor::End, Ink::Text, label);
                pen.close_group();
            } else {
                pen.draw_words((x, bottom + 15.0), SIZE, Anchor::Middle, Ink::Text, label);
            }
        }
        let below = widest.min(110.0) + 8.0;
        bottom + if turned { below } else { 18.0 }
    }
}

fn describe_heat(heat: &Heat, rows: usize, columns: usize, shades: &Shades, unit: &str) -> String {
    let (low, high) = shades.range;
    let mut from = String::new();
    if shades.any() {
        let (low, high) = (value_with_unit(low, unit), value_with_unit(high, unit));
        from = format!(" from {low} to {high}");
    }
    if shades.is_flat() {
        from.push_str(&format!(" ({NO_DIFFERENCE})"));
    }
    let void = heat.squares.iter().flatten();
    let void = void.filter(|s| s.value.is_none() && !s.text.is_empty());
    let failed = match void.count() {
        0 => String::new(),
        n => format!("; {n} without a figure"),
    };
    format!(
        "{}{from} for {columns} values of {} and {rows} of {}{failed}.",
        match harmless_text(&heat.figure.title) {
            title if title.is_empty() => "Figures".into(),
            title => title,
        },
        harmless_text(&heat.x.0),
        harmless_text(&heat.y.0),
    )
}
