//! Writes the elements of a picture: coordinates rounded, colours after the look, words escaped.

use super::lettering::{FAMILY, escape_text, fit_text, harmless_text, text_width};
use super::palette::{Ink, paint_for};
use super::scale::value_with_unit;
use super::svg::ChartStyle;
use crate::report::content::SourceId;
use std::fmt::Write as _;

/// A picture that is being drawn.
#[derive(Debug)]
pub struct SvgWriter {
    out: String,
    look: ChartStyle,
    /// Begins every id, so that pictures in one page do not share them.
    id: String,
}

/// Where words stand to their point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// They begin at it.
    Start,
    /// It is their middle.
    Middle,
    /// They end at it.
    End,
}

/// Tooltip of a mark.
#[derive(Debug, Clone, Default)]
pub struct ChartMark<'a> {
    /// Of what it is: `GPU 0, weights`.
    pub label: String,
    /// The figure in words, with its unit.
    pub value: String,
    /// What else there is to say.
    pub more: Option<String>,
    /// The figure, unrounded.
    pub number: Option<f64>,
    /// Its unit.
    pub unit: &'a str,
    /// Where it comes from.
    pub source: Option<SourceId>,
}

/// A pattern over a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillPattern {
    /// Unexplained memory.
    Hatch,
    /// A colour used for the second time.
    Dots,
    /// Where there is no figure.
    Void,
}

impl SvgWriter {
    /// A new sheet.
    pub fn new(look: ChartStyle, id: String) -> SvgWriter {
        SvgWriter {
            out: String::new(),
            look,
            id,
        }
    }

    /// What was drawn.
    pub fn into_text(self) -> String {
        self.out
    }

    /// A colour as an attribute's value.
    pub fn paint_for(&self, ink: Ink) -> String {
        paint_for(ink, self.look)
    }

    /// The id of a part of this picture.
    pub fn scoped_id(&self, part: &str) -> String {
        format!("{}-{part}", self.id)
    }

    /// A pattern as an attribute's value.
    pub fn pattern_url(&self, pattern: FillPattern) -> String {
        format!("url(#{})", self.scoped_id(pattern.pattern_name()))
    }

    /// Text as it is; must be well formed.
    pub fn write_raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Opens a group. `attributes` must be well formed.
    pub fn open_group(&mut self, attributes: &str) {
        self.put_arguments(format_args!("<g {attributes}>"));
    }

    /// Opens a group whose attributes are for the script of the page alone.
    pub fn open_data_group(&mut self, attributes: &str) {
        let inline = self.look == ChartStyle::Inline;
        self.open_group(if inline { attributes } else { "" });
    }

    /// Closes it.
    pub fn close_group(&mut self) {
        self.out.push_str("</g>");
    }

    /// A rectangle.
    pub fn draw_rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str) {
        self.begin_rect(at, size, fill);
        self.out.push_str("/>");
    }

    /// A rectangle with a tooltip.
    pub fn marked_rect(
        &mut self,
        at: (f64, f64),
        size: (f64, f64),
        fill: &str,
        mark: &ChartMark<'_>,
    ) {
        self.begin_rect(at, size, fill);
        self.draw_mark(mark);
        self.out.push_str("</rect>");
    }

    fn begin_rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str) {
        self.put_arguments(format_args!(
            r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{fill}""#,
            format_number(x),
            format_number(y),
            format_number(w.max(0.0)),
            format_number(h.max(0.0)),
        ));
    }

    /// A path with a tooltip. `attributes` must be well formed.
    pub fn marked_path(&mut self, d: &str, attributes: &str, mark: &ChartMark<'_>) {
        self.put_arguments(format_args!(r#"<path d="{d}" {attributes}"#));
        self.draw_mark(mark);
        self.out.push_str("</path>");
    }

    /// A path. `attributes` must be well formed.
    pub fn draw_path(&mut self, d: &str, attributes: &str) {
        self.put_arguments(format_args!(r#"<path d="{d}" {attributes}/>"#));
    }

    /// A path along which a line of this colour is drawn. `attributes` must be well formed.
    pub fn draw_stroke(&mut self, d: &str, ink: Ink, attributes: &str) {
        let stroke = self.paint_for(ink);
        self.draw_path(d, &format!(r#"stroke="{stroke}" {attributes}"#));
    }

    /// A straight line.
    pub fn draw_line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink, attributes: &str) {
        let stroke = self.paint_for(ink);
        let gap = if attributes.is_empty() { "" } else { " " };
        self.put_arguments(format_args!(
            r#"<path d="{}{}" stroke="{stroke}"{gap}{attributes}/>"#,
            path_step('M', from),
            path_step('L', to),
        ));
    }

    /// Words. The uncut text is their tooltip.
    pub fn draw_text(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        fill: &str,
        shown: &str,
        whole: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        if shown.is_empty() {
            return;
        }
        self.put_arguments(format_args!(
            r#"<text x="{}" y="{}" font-size="{}"{anchor} fill="{fill}">"#,
            format_number(x),
            format_number(y),
            format_number(size),
        ));
        if shown != whole {
            self.put_arguments(format_args!("<title>{}</title>", escape_text(whole)));
        }
        self.put_arguments(format_args!("{}</text>", escape_text(shown)));
    }

    /// Words in a colour of the palette, cut to the room behind their size; how wide they are. The uncut text is their
    /// tooltip.
    pub fn draw_fitted(
        &mut self,
        at: (f64, f64),
        (size, room): (f64, f64),
        anchor: Anchor,
        ink: Ink,
        words: &str,
    ) -> f64 {
        let (fill, shown) = (self.paint_for(ink), fit_text(words, size, room));
        self.draw_text(at, size, anchor, &fill, &shown, words);
        text_width(&shown, size)
    }

    /// Draws words that may stand on lines: with a ground around their letters.
    pub fn with_halo<T>(&mut self, ground: Ink, draw: impl FnOnce(&mut SvgWriter) -> T) -> T {
        let ground = self.paint_for(ground);
        self.open_group(&format!(
            r#"stroke="{ground}" stroke-width="3" paint-order="stroke" stroke-linejoin="round""#
        ));
        let drawn = draw(self);
        self.close_group();
        drawn
    }

    /// Words in a colour of the palette.
    pub fn draw_words(&mut self, at: (f64, f64), size: f64, anchor: Anchor, ink: Ink, words: &str) {
        let fill = self.paint_for(ink);
        self.draw_text(at, size, anchor, &fill, words, words);
    }

    /// The patterns, for the definitions of a picture.
    pub fn write_patterns(&mut self) {
        let ground = self.paint_for(Ink::Ground);
        let muted = self.paint_for(Ink::Muted);
        let band = self.paint_for(Ink::Band);
        let ids = [FillPattern::Hatch, FillPattern::Dots, FillPattern::Void]
            .map(|p| self.scoped_id(p.pattern_name()));
        self.put_arguments(format_args!(
            concat!(
                r#"<defs><pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" "#,
                r#"patternTransform="rotate(45)"><path d="M1.5 0V6" stroke="{}" "#,
                r#"stroke-width="2.2" stroke-opacity="0.6"/></pattern>"#,
                r#"<pattern id="{}" width="5" height="5" patternUnits="userSpaceOnUse">"#,
                r#"<path d="M1 1h1.6v1.6H1z" fill="{}" fill-opacity="0.8"/></pattern>"#,
                r#"<pattern id="{}" width="7" height="7" patternUnits="userSpaceOnUse" "#,
                r#"patternTransform="rotate(-45)"><path d="M0 0h7v7H0z" fill="{}"/>"#,
                r#"<path d="M1 0V7" stroke="{}" stroke-width="0.8" stroke-opacity="0.5"/>"#,
                r#"</pattern></defs>"#
            ),
            ids[0], ground, ids[1], ground, ids[2], band, muted,
        ));
    }

    /// The start of the picture: its size, its names for those who cannot see it.
    pub fn write_sheet(
        &mut self,
        class: &str,
        (width, height): (f64, f64),
        (title, desc): (&str, &str),
    ) {
        let (titled, described) = (self.scoped_id("title"), self.scoped_id("desc"));
        let (wide, high) = (format_number(width), format_number(height));
        let (title, desc) = (escape_text(title), escape_text(desc));
        self.put_arguments(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="chart {class}" role="img" "#
        ));
        self.put_arguments(format_args!(
            r#"aria-labelledby="{titled} {described}" viewBox="0 0 {wide} {high}" "#
        ));
        self.put_arguments(format_args!(
            r#"width="{wide}" height="{high}" font-family="{FAMILY}">"#
        ));
        self.put_arguments(format_args!(
            r#"<title id="{titled}">{title}</title><desc id="{described}">{desc}</desc>"#
        ));
        self.write_patterns();
        if self.look == ChartStyle::Standalone {
            self.put_arguments(format_args!("{}", super::svg::MARK));
            let ground = self.paint_for(Ink::Ground);
            self.draw_rect((0.0, 0.0), (width, height), &ground);
        }
    }

    /// Attributes and title of a mark; ends its start tag.
    fn draw_mark(&mut self, mark: &ChartMark<'_>) {
        if self.look == ChartStyle::Inline {
            self.put_arguments(format_args!(
                r#" class="mark" data-label="{}" data-value="{}""#,
                escape_text(&mark.label),
                escape_text(&mark.value),
            ));
            if let Some(number) = mark.number.filter(|n| n.is_finite()) {
                self.put_arguments(format_args!(r#" data-number="{number}""#));
            }
            if !mark.unit.is_empty() {
                let unit = escape_text(&harmless_text(mark.unit));
                self.put_arguments(format_args!(r#" data-unit="{unit}""#));
            }
            if let Some(more) = &mark.more {
                self.put_arguments(format_args!(r#" data-more="{}""#, escape_text(more)));
            }
            if let Some(SourceId(source)) = mark.source {
                self.put_arguments(format_args!(r#" data-source="{source}""#));
            }
        }
        self.put_arguments(format_args!("><title>{}", escape_text(&mark.label)));
        if !mark.value.is_empty() {
            self.put_arguments(format_args!(": {}", escape_text(&mark.value)));
        }
        if let Some(more) = &mark.more {
            self.put_arguments(format_args!(" ({})", escape_text(more)));
        }
        self.out.push_str("</title>");
    }

    fn put_arguments(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

impl<'a> ChartMark<'a> {
    /// A figure with its unit.
    pub fn of_figure(label: &str, value: f64, unit: &'a str) -> ChartMark<'a> {
        ChartMark {
            label: label.to_owned(),
            value: value_with_unit(value, unit),
            number: Some(value),
            unit,
            ..ChartMark::default()
        }
    }
}

impl FillPattern {
    fn pattern_name(self) -> &'static str {
        match self {
            FillPattern::Hatch => "hatch",
            FillPattern::Dots => "dots",
            FillPattern::Void => "void",
        }
    }
}

/// A coordinate: a tenth of a unit is finer than what is seen.
pub fn format_number(value: f64) -> String {
    let tenths = (value * 10.0).round();
    if tenths.is_finite() {
        // No -0.
        format!("{}", tenths / 10.0 + 0.0)
    } else {
        "0".into()
    }
}

/// A step of a path.
pub fn path_step(step: char, (x, y): (f64, f64)) -> String {
    format!("{step}{} {}", format_number(x), format_number(y))
}

/// Points joined by straight lines, as a path.
pub fn polyline<'a>(points: impl IntoIterator<Item = &'a (f64, f64)>) -> String {
    let steps = std::iter::once('M').chain(std::iter::repeat('L'));
    let steps = steps.zip(points);
    steps.map(|(step, at)| path_step(step, *at)).collect()
}
