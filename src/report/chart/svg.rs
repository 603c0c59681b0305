//! A chart as SVG: its heading, what it shows, and the notes beneath.

use super::lettering::{BOLD, harmless_text, safe_identifier, text_width, wrap_lines};
use super::palette::Ink;
use super::pen::{Anchor, SvgWriter};
use super::{Chart, Plot, bars, curves, heat, lanes};

/// By this a file is known as ours when it is about to be written over.
pub const MARK: &str = "<metadata>plimsoll</metadata>";

/// Width of every picture, in units of its view box.
pub const WIDTH: f64 = 860.0;

/// What is left free at the sides.
pub const SIDE: f64 = 20.0;

/// How a picture is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChartStyle {
    /// A file of its own: a light ground and fixed colours.
    Standalone,
    /// Within a page: colours are custom properties (`palette::properties`), and marks say in
    /// `data-` attributes what they stand for.
    Inline,
}

/// What a plot has drawn.
#[derive(Debug, Default)]
pub struct DrawnPlot {
    /// Where it ends.
    pub bottom: f64,
    /// For those who cannot see it: what kind of picture it is, and of what.
    pub description: String,
    /// Sentences for beneath it: what was left out.
    pub remarks: Vec<String>,
}

/// A chart. The same chart gives the same bytes.
pub fn chart_svg(chart: &Chart, look: ChartStyle) -> String {
    let id = safe_identifier(&chart.id);
    let mut body = SvgWriter::new(look, id.clone());
    let top = draw_heading(&mut body, chart);
    let (class, drawn) = match &chart.plot {
        Plot::Bars(b) => ("chart-bars", bars::draw_bars(&mut body, b, top)),
        Plot::Curves(c) => ("chart-curves", curves::draw_curves(&mut body, c, top)),
        Plot::Heat(h) => ("chart-heat", heat::draw_heat(&mut body, h, top)),
        Plot::Timeline(t) => ("chart-timeline", lanes::draw_lanes(&mut body, t, top)),
    };
    let mut bottom = drawn.bottom;
    let wrapped = |sentence: &String| wrap_lines(sentence, 11.0, WIDTH - 2.0 * SIDE, 4);
    for line in drawn.remarks.iter().flat_map(wrapped) {
        bottom += 16.0;
        body.draw_words((SIDE, bottom), 11.0, Anchor::Start, Ink::Muted, &line);
    }
    let title = harmless_text(&chart.title);
    let simulated = chart.simulated.then_some("Simulated engine or device.");
    let note = chart.note.as_deref().map(harmless_text);
    let sentences = [Some(drawn.description.as_str()), simulated, note.as_deref()];
    let sentences = sentences
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty());
    let description: Vec<&str> = sentences.collect();
    let mut sheet = SvgWriter::new(look, id);
    let description = description.join(" ");
    sheet.write_sheet(class, (WIDTH, bottom + 14.0), (&title, &description));
    sheet.write_raw(&body.into_text());
    sheet.write_raw("</svg>\n");
    sheet.into_text()
}

/// The note on what was left out because it has no place in a picture.
pub fn left_out(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 value has no place on the axis and is left out.".into()),
        n => Some(format!(
            "{n} values have no place on the axis and are left out."
        )),
    }
}

/// A plot without anything in it.
pub fn draw_nothing(pen: &mut SvgWriter, top: f64) -> DrawnPlot {
    let size = (WIDTH - 2.0 * SIDE, 90.0);
    let band = pen.paint_for(Ink::Band);
    pen.draw_rect((SIDE, top), size, &band);
    let middle = (WIDTH / 2.0, top + size.1 / 2.0 + 4.0);
    pen.draw_words(middle, 13.0, Anchor::Middle, Ink::Muted, "nothing to show");
    DrawnPlot {
        bottom: top + size.1,
        description: "Nothing to show.".into(),
        remarks: Vec::new(),
    }
}

/// Title, note and the word that nothing here is real; where they end.
fn draw_heading(pen: &mut SvgWriter, chart: &Chart) -> f64 {
    const TITLE: f64 = 16.0;
    const NOTE: f64 = 12.0;
    let mut room = WIDTH - 2.0 * SIDE;
    if chart.simulated {
        let wide = text_width("SIMULATED", 11.0) * BOLD + 16.0;
        let at = WIDTH - SIDE - wide;
        let bad = pen.paint_for(Ink::Bad);
        pen.write_raw(&format!(
            r#"<rect x="{at:.1}" y="12.5" width="{wide:.1}" height="18" rx="3" fill="none" stroke="{bad}"/>"#
        ));
        pen.open_group(r#"font-weight="700""#);
        let middle = (at + wide / 2.0, 25.5);
        pen.draw_words(middle, 11.0, Anchor::Middle, Ink::Bad, "SIMULATED");
        pen.close_group();
        room -= wide + 16.0;
    }
    let mut bottom = 8.0;
    let title = harmless_text(&chart.title);
    pen.open_group(r#"font-weight="700""#);
    for line in wrap_lines(&title, TITLE * 1.08, room, 2) {
        bottom += 20.0;
        pen.draw_words((SIDE, bottom), TITLE, Anchor::Start, Ink::Text, &line);
    }
    pen.close_group();
    bottom = bottom.max(28.0);
    let note = harmless_text(chart.note.as_deref().unwrap_or_default());
    for line in wrap_lines(&note, NOTE, WIDTH - 2.0 * SIDE, 3) {
        bottom += 17.0;
        pen.draw_words((SIDE, bottom), NOTE, Anchor::Start, Ink::Muted, &line);
    }
    bottom + 14.0
}
