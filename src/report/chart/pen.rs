//! Writes the elements of a picture: coordinates rounded, colours after the look, words escaped.

use super::lettering::{FAMILY, escaped, harmless};
use super::palette::{Ink, paint};
use super::svg::Look;
use crate::report::content::SourceId;
use std::fmt::Write as _;

/// A picture that is being drawn.
#[derive(Debug)]
pub struct Pen {
    out: String,
    look: Look,
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
pub struct Mark<'a> {
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
pub enum Pattern {
    /// Less than sure.
    Hatch,
    /// A colour met for the second time.
    Dots,
    /// Where there is no figure.
    Void,
}

impl Pen {
    /// A new sheet.
    pub fn new(look: Look, id: String) -> Pen {
        Pen {
            out: String::new(),
            look,
            id,
        }
    }

    /// What was drawn.
    pub fn finish(self) -> String {
        self.out
    }

    /// A colour as an attribute's value.
    pub fn paint(&self, ink: Ink) -> String {
        paint(ink, self.look).into_owned()
    }

    /// The id of a part of this picture.
    pub fn id(&self, part: &str) -> String {
        format!("{}-{part}", self.id)
    }

    /// A pattern as an attribute's value.
    pub fn pattern(&self, pattern: Pattern) -> String {
        format!("url(#{})", self.id(pattern.word()))
    }

    /// Text as it is; must be well formed.
    pub fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Opens a group. `attributes` must be well formed.
    pub fn open(&mut self, attributes: &str) {
        self.put(format_args!("<g {attributes}>"));
    }

    /// Closes it.
    pub fn close(&mut self) {
        self.out.push_str("</g>");
    }

    /// A rectangle.
    pub fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str) {
        self.put(format_args!(
            r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{fill}"/>"#,
            n(x),
            n(y),
            n(w.max(0.0)),
            n(h.max(0.0)),
        ));
    }

    /// A rectangle with a tooltip.
    pub fn marked_rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, mark: &Mark<'_>) {
        self.put(format_args!(
            r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{fill}""#,
            n(at.0),
            n(at.1),
            n(size.0.max(0.0)),
            n(size.1.max(0.0)),
        ));
        self.mark(mark);
        self.out.push_str("</rect>");
    }

    /// A path with a tooltip. `attributes` must be well formed.
    pub fn marked_path(&mut self, d: &str, attributes: &str, mark: &Mark<'_>) {
        self.put(format_args!(r#"<path d="{d}" {attributes}"#));
        self.mark(mark);
        self.out.push_str("</path>");
    }

    /// A path. `attributes` must be well formed.
    pub fn path(&mut self, d: &str, attributes: &str) {
        self.put(format_args!(r#"<path d="{d}" {attributes}/>"#));
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink, attributes: &str) {
        let stroke = self.paint(ink);
        let gap = if attributes.is_empty() { "" } else { " " };
        self.put(format_args!(
            r#"<path d="{}{}" stroke="{stroke}"{gap}{attributes}/>"#,
            go('M', from),
            go('L', to),
        ));
    }

    /// Words. The uncut text is their tooltip.
    pub fn text(
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
        self.put(format_args!(
            r#"<text x="{}" y="{}" font-size="{}"{anchor} fill="{fill}">"#,
            n(x),
            n(y),
            n(size),
        ));
        if shown != whole {
            self.put(format_args!("<title>{}</title>", escaped(whole)));
        }
        self.put(format_args!("{}</text>", escaped(shown)));
    }

    /// Words in a colour of the palette.
    pub fn words(&mut self, at: (f64, f64), size: f64, anchor: Anchor, ink: Ink, words: &str) {
        let fill = self.paint(ink);
        self.text(at, size, anchor, &fill, words, words);
    }

    /// The patterns, for the definitions of a picture.
    pub fn patterns(&mut self) {
        let ground = self.paint(Ink::Ground);
        let muted = self.paint(Ink::Muted);
        let band = self.paint(Ink::Band);
        let ids = [Pattern::Hatch, Pattern::Dots, Pattern::Void].map(|p| self.id(p.word()));
        self.put(format_args!(
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
    pub fn sheet(&mut self, class: &str, (width, height): (f64, f64), title: &str, desc: &str) {
        let (titled, told) = (self.id("title"), self.id("desc"));
        self.put(format_args!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" class="chart {}" role="img" "#,
                r#"aria-labelledby="{} {}" viewBox="0 0 {} {}" width="{}" height="{}" "#,
                r#"font-family="{}"><title id="{}">{}</title><desc id="{}">{}</desc>"#
            ),
            class,
            titled,
            told,
            n(width),
            n(height),
            n(width),
            n(height),
            FAMILY,
            titled,
            escaped(title),
            told,
            escaped(desc),
        ));
        self.patterns();
        if self.look == Look::Standalone {
            self.put(format_args!("{}", super::svg::MARK));
            let ground = self.paint(Ink::Ground);
            self.rect((0.0, 0.0), (width, height), &ground);
        }
    }

    /// Attributes and title of a mark; ends its start tag.
    fn mark(&mut self, mark: &Mark<'_>) {
        if self.look == Look::Inline {
            self.put(format_args!(
                r#" class="mark" data-label="{}" data-value="{}""#,
                escaped(&mark.label),
                escaped(&mark.value),
            ));
            if let Some(number) = mark.number.filter(|n| n.is_finite()) {
                self.put(format_args!(r#" data-number="{number}""#));
            }
            if !mark.unit.is_empty() {
                self.put(format_args!(
                    r#" data-unit="{}""#,
                    escaped(&harmless(mark.unit))
                ));
            }
            if let Some(more) = &mark.more {
                self.put(format_args!(r#" data-more="{}""#, escaped(more)));
            }
            if let Some(SourceId(source)) = mark.source {
                self.put(format_args!(r#" data-source="{source}""#));
            }
        }
        self.put(format_args!("><title>{}", escaped(&mark.label)));
        if !mark.value.is_empty() {
            self.put(format_args!(": {}", escaped(&mark.value)));
        }
        if let Some(more) = &mark.more {
            self.put(format_args!(" ({})", escaped(more)));
        }
        self.out.push_str("</title>");
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let written = self.out.write_fmt(text);
        // Writing to a string cannot fail.
        debug_assert!(written.is_ok());
    }
}

impl Pattern {
    fn word(self) -> &'static str {
        match self {
            Pattern::Hatch => "hatch",
            Pattern::Dots => "dots",
            Pattern::Void => "void",
        }
    }
}

/// A coordinate: a tenth of a unit is finer than what is seen.
pub fn n(value: f64) -> String {
    let tenths = (value * 10.0).round();
    if tenths.is_finite() {
        // No -0.
        format!("{}", tenths / 10.0 + 0.0)
    } else {
        "0".into()
    }
}

/// A step of a path.
pub fn go(step: char, (x, y): (f64, f64)) -> String {
    format!("{step}{} {}", n(x), n(y))
}
