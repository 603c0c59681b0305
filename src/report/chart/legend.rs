//! The legend above a plot: what the colours mean, in as many lines as it takes.

use super::lettering::{fit_text, text_width};
use super::palette::Ink;
use super::pen::{Anchor, FillPattern, SvgWriter, format_number, path_step, polyline};
use super::svg::{SIDE, WIDTH};

/// Size of its letters.
const SIZE: f64 = 12.0;

/// Longest entry.
const LONGEST: f64 = 300.0;

/// Most entries that are shown, so that the picture keeps its room.
const MOST: usize = 40;

/// The marker before the words of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// A square with this colour.
    Square(Ink),
    /// A line of this series with its marker; or the marker alone.
    Curve(usize, bool),
    /// A square where there is no figure.
    Void,
    /// A ring: the Pareto front.
    Ring,
}

/// Draws it, and returns where it ends.
pub fn draw_legend(pen: &mut SvgWriter, entries: &[(Sign, String)], top: f64) -> f64 {
    let mut at = (SIDE, top + 10.0);
    for (n, (sign, label)) in entries.iter().enumerate() {
        let words = match n {
            MOST => format!("and {} more", entries.len() - MOST),
            _ => fit_text(label, SIZE, LONGEST),
        };
        let wide = 24.0 + text_width(&words, SIZE);
        if at.0 > SIDE && at.0 + wide > WIDTH - SIDE {
            at = (SIDE, at.1 + 19.0);
        }
        if n == MOST {
            pen.draw_words(at, SIZE, Anchor::Start, Ink::Muted, &words);
            break;
        }
        draw_entry(pen, *sign, label, at);
        at.0 += wide + 20.0;
    }
    match entries {
        [] => top,
        _ => at.1 + 14.0,
    }
}

/// Draws one entry of a legend: its sign, and right of it the text. `at`: left end of the base line.
pub fn draw_entry(pen: &mut SvgWriter, sign: Sign, label: &str, at: (f64, f64)) {
    let (x, middle) = (at.0, at.1 - 4.0);
    let square = ((x + 3.0, middle - 6.0), (13.0, 12.0));
    match sign {
        Sign::Square(of) => {
            let fill = pen.paint_for(of);
            pen.draw_rect(square.0, square.1, &fill);
            if let Some(pattern) = of.pattern() {
                let over = pen.pattern_url(pattern);
                pen.draw_rect(square.0, square.1, &over);
            }
        }
        Sign::Curve(n, joined) => {
            if joined {
                let dashes = dash_pattern(n);
                let attributes = format!(r#"stroke-width="2"{dashes}"#);
                let ends = ((x, middle), (x + 19.0, middle));
                pen.draw_line(ends.0, ends.1, Ink::Series(n), &attributes);
            }
            let fill = pen.paint_for(Ink::Series(n));
            let marker = marker_path(n, (x + 9.5, middle), 4.0);
            pen.draw_path(&marker, &format!(r#"fill="{fill}""#));
        }
        Sign::Ring => {
            let ring = marker_path(0, (x + 9.5, middle), 5.5);
            pen.draw_stroke(&ring, Ink::Text, r#"fill="none" stroke-width="1.5""#);
        }
        Sign::Void => {
            let fill = pen.pattern_url(FillPattern::Void);
            pen.draw_rect(square.0, square.1, &fill);
        }
    }
    let (beside, room) = ((at.0 + 24.0, at.1), (SIZE, LONGEST));
    pen.draw_fitted(beside, room, Anchor::Start, Ink::Text, label);
}

/// How the line of a series is broken, as an attribute: whole until colours begin again.
pub fn dash_pattern(series: usize) -> &'static str {
    match series / super::palette::SERIES {
        0 => "",
        1 => r#" stroke-dasharray="7 3""#,
        2 => r#" stroke-dasharray="2 3""#,
        _ => r#" stroke-dasharray="9 3 2 3""#,
    }
}

/// The marker of a series as a path: shapes differ where colours are hard to distinguish.
pub fn marker_path(series: usize, (x, y): (f64, f64), r: f64) -> String {
    let shape = |points: &[(f64, f64)]| {
        let corners: Vec<(f64, f64)> = (points.iter())
            .map(|(dx, dy)| (x + dx * r, y + dy * r))
            .collect();
        polyline(&corners) + "Z"
    };
    match series % 6 {
        0 => {
            let left = path_step('M', (x - r, y));
            let (wide, r) = (format_number(2.0 * r), format_number(r));
            format!("{left}a{r} {r} 0 1 1 {wide} 0a{r} {r} 0 1 1 -{wide} 0Z")
        }
        1 => shape(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => shape(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
        3 => shape(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => shape(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
        _ => shape(&[
            (-0.4, -1.2),
            (0.4, -1.2),
            (0.4, -0.4),
            (1.2, -0.4),
            (1.2, 0.4),
            (0.4, 0.4),
            (0.4, 1.2),
            (-0.4, 1.2),
            (-0.4, 0.4),
            (-1.2, 0.4),
            (-1.2, -0.4),
            (-0.4, -0.4),
        ]),
    }
}
