//! Blocks of a report as HTML.

use super::super::{figures, words, words::UsedNames};
use super::table::{write_cell, write_table};
use super::{looking, markup::Markup};
use crate::engine::facts::Severity;
use crate::profile::MemoryGauge;
use crate::report::chart::gauge::gauge_svg;
use crate::report::chart::palette;
use crate::report::chart::svg::{self, ChartStyle};
use crate::report::chart::{Chart, Plot};
use crate::report::content::{Answer, ContentBlock, Listing, Note, Report};
use crate::units::Bytes;

/// One block.
pub fn write_block(
    html: &mut Markup,
    block: &ContentBlock,
    report: &Report,
    names: &mut UsedNames,
) {
    match block {
        ContentBlock::Text(text) => {
            html.write_element("<p>", text, "</p>\n");
        }
        ContentBlock::Note(of) => write_note(html, of),
        ContentBlock::Table(grid) => {
            html.write_raw("<figure")
                .write_attribute("id", &names.take_name(&grid.id))
                .write_raw(" class=\"table\">");
            write_table(html, grid, report);
            html.write_raw("</figure>\n");
        }
        ContentBlock::Chart(of) => chart(html, of, report, names),
        ContentBlock::Listing(of) => listing(html, of),
    }
}

fn write_note(html: &mut Markup, note: &Note) {
    html.write_raw(match note.severity {
        Severity::Info => "<aside class=\"note info\"><p><strong>Note</strong> ",
        Severity::Warning => "<aside class=\"note warning\"><p><strong>Warning</strong> ",
        Severity::Error => "<aside class=\"note error\"><p><strong>Error</strong> ",
    });
    html.write_text(&note.message);
    if let Some(code) = &note.code {
        html.write_element(" <code>", code, "</code>");
    }
    html.write_raw("</p>");
    if let Some(quote) = &note.quote {
        html.write_raw("<pre tabindex=\"0\">")
            .write_listing(quote)
            .write_raw("</pre>");
    }
    html.write_raw("</aside>\n");
}

fn listing(html: &mut Markup, listing: &Listing) {
    html.write_raw(if listing.folded {
        "<details class=\"listing\"><summary>"
    } else {
        "<details class=\"listing\" open><summary>"
    });
    html.write_text(&listing.title)
        .write_raw("</summary><pre tabindex=\"0\">");
    html.write_listing(&listing.text)
        .write_raw("</pre></details>\n");
}

/// The answer: verdict, gauge, main figures, what to change.
pub fn write_answer(html: &mut Markup, answer: &Answer, report: &Report) {
    html.write_raw("<section id=\"answer\"")
        .write_attribute("class", &format!("answer {}", answer.state.as_str()));
    html.write_element("><p class=\"verdict\">", &answer.verdict, "</p>");
    answer.gauges().for_each(|gauge| write_gauge(html, gauge));
    if let Some(unknown) = answer.unknown_headroom() {
        html.write_element("<p class=\"gauge unknown\">", &unknown, "</p>");
    }
    if !answer.figures.is_empty() {
        html.write_raw("<dl class=\"cards\">");
        for figure in &answer.figures {
            html.write_raw("<div><dt>").write_text(&figure.label);
            html.write_raw("</dt><dd><span class=\"value\">");
            write_cell(html, &figure.value, report);
            html.write_element(
                "</span> <span class=\"unit\">",
                &figure.unit,
                "</span></dd></div>",
            );
        }
        html.write_raw("</dl>");
    }
    if !answer.actions.is_empty() {
        html.write_raw("<h2>What to change</h2><ul class=\"actions\">");
        for action in &answer.actions {
            html.write_raw("<li>");
            if !action.setting.is_empty() {
                html.write_element("<code>", &action.setting, "</code> ");
            }
            html.write_text(&action.effect).write_raw("</li>");
        }
        html.write_raw("</ul>");
    }
    html.write_raw("</section>\n");
}

/// A bar of what is in use by component and what is free, with its words.
fn write_gauge(html: &mut Markup, gauge: &MemoryGauge) {
    let percent = gauge.used_percent();
    let words = format!(
        "{}: {} of {} in use ({percent:.0} %), {}",
        gauge.label,
        Bytes(gauge.used_bytes),
        Bytes(gauge.total_bytes),
        gauge.describe_rest()
    );
    html.write_raw("<figure class=\"gauge\"")
        .write_attribute("aria-label", &words)
        .write_raw(">");
    html.write_drawing(&gauge_svg(gauge));
    html.write_raw("<figcaption>").write_text(&words);
    for (component, bytes) in &gauge.parts {
        html.write_raw("<span class=\"key\"><span");
        let class = format!("swatch {}", palette::part_class(*component));
        html.write_attribute("class", &class).write_element(
            " aria-hidden=\"true\"></span>",
            &format!("{} {}", component.display_label(), Bytes(*bytes)),
            "</span>",
        );
    }
    html.write_raw("</figcaption></figure>");
}

/// Title, note and the word that it is simulated stand in the drawing.
fn chart(html: &mut Markup, chart: &Chart, report: &Report, names: &mut UsedNames) {
    let timeline = match &chart.plot {
        Plot::Timeline(timeline) => Some(timeline),
        _ => None,
    };
    html.write_raw("<figure")
        .write_attribute("id", &names.take_name(&chart.id))
        .write_attribute("class", timeline.map_or("chart", |_| "timeline"))
        .write_attribute("aria-label", &chart.title)
        .write_raw("><div class=\"picture\">")
        .write_drawing(&svg::chart_svg(chart, ChartStyle::Inline))
        .write_raw("</div>");
    if let Some(timeline) = timeline {
        html.write_raw("<script type=\"application/json\">")
            .write_data(&looking::timeline_data(chart, timeline, words::one_line))
            .write_raw("</script>");
    }
    let figures = figures::of_chart(chart);
    if timeline.is_some() || !figures.is_empty() {
        html.write_raw("<details class=\"figures\"><summary>")
            .write_raw(timeline.map_or("Figures of this chart", |_| "Figures, phases and events"))
            .write_raw("</summary>");
        for grid in &figures {
            write_table(html, grid, report);
        }
        html.write_raw("</details>");
    }
    html.write_raw("</figure>\n");
}
