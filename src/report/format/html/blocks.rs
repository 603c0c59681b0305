//! Blocks of a report as HTML.

use super::super::{figures, words, words::UsedNames};
use super::table::{write_cell, write_table};
use super::{looking, markup::Markup};
use crate::engine::facts::Severity;
use crate::profile::MemoryGauge;
use crate::report::chart::gauge::gauge_svg;
use crate::report::chart::palette;
use crate::report::chart::svg::{self, ChartStyle};
use crate::report::chart::{Chart, ChartTimeline};
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
            html.write_raw("<p>").write_text(text).write_raw("</p>\n");
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
        ContentBlock::Timeline(of) => timeline(html, of, report, names),
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
        html.write_raw(" <code>")
            .write_text(code)
            .write_raw("</code>");
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
    html.write_raw("><p class=\"verdict\">")
        .write_text(&answer.verdict)
        .write_raw("</p>");
    answer.gauges().for_each(|gauge| write_gauge(html, gauge));
    if let Some(why) = answer.no_gauge.as_ref().filter(|_| answer.gauge.is_none()) {
        html.write_raw("<p class=\"gauge unknown\">")
            .write_text(&format!("Headroom unknown: {why}."))
            .write_raw("</p>");
    }
    if !answer.figures.is_empty() {
        html.write_raw("<dl class=\"cards\">");
        for figure in &answer.figures {
            html.write_raw("<div><dt>").write_text(&figure.label);
            html.write_raw("</dt><dd><span class=\"value\">");
            write_cell(html, &figure.value, report);
            html.write_raw("</span> <span class=\"unit\">")
                .write_text(&figure.unit)
                .write_raw("</span></dd></div>");
        }
        html.write_raw("</dl>");
    }
    if !answer.actions.is_empty() {
        html.write_raw("<h2>What to change</h2><ul class=\"actions\">");
        for action in &answer.actions {
            html.write_raw("<li>");
            if !action.setting.is_empty() {
                html.write_raw("<code>")
                    .write_text(&action.setting)
                    .write_raw("</code> ");
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
        html.write_attribute("class", &class)
            .write_raw(" aria-hidden=\"true\"></span>");
        html.write_text(&format!("{} {}", component.display_label(), Bytes(*bytes)))
            .write_raw("</span>");
    }
    html.write_raw("</figcaption></figure>");
}

fn chart(html: &mut Markup, chart: &Chart, report: &Report, names: &mut UsedNames) {
    let id = names.take_name(&chart.id);
    figure_head(html, &id, &chart.title, "chart");
    html.write_raw("<div class=\"picture\">")
        .write_drawing(&svg::chart_svg(chart, ChartStyle::Inline))
        .write_raw("</div>");
    let figures = figures::of_chart(chart);
    if !figures.rows.is_empty() {
        html.write_raw("<details class=\"figures\"><summary>Figures of this chart</summary>");
        write_table(html, &figures, report);
        html.write_raw("</details>");
    }
    html.write_raw("</figure>\n");
}

fn timeline(html: &mut Markup, timeline: &ChartTimeline, report: &Report, names: &mut UsedNames) {
    let id = names.take_name(&timeline.id);
    figure_head(html, &id, &timeline.title, "timeline");
    html.write_raw("<div class=\"picture\">")
        .write_drawing(&svg::timeline_svg(timeline, ChartStyle::Inline))
        .write_raw("</div>");
    html.write_raw("<script type=\"application/json\">");
    html.write_data(&looking::timeline_data(timeline, words::one_line))
        .write_raw("</script>");
    html.write_raw("<details class=\"figures\"><summary>Figures, phases and events</summary>");
    for grid in figures::of_timeline(timeline)
        .iter()
        .filter(|g| !g.rows.is_empty())
    {
        write_table(html, grid, report);
    }
    html.write_raw("</details></figure>\n");
}

/// Title, note and the word that it is simulated stand in the drawing.
fn figure_head(html: &mut Markup, id: &str, title: &str, class: &'static str) {
    html.write_raw("<figure")
        .write_attribute("id", id)
        .write_attribute("class", class);
    html.write_attribute("aria-label", title).write_raw(">");
}
