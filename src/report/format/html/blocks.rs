//! Blocks of a report as HTML.

use super::super::{figures, words, words::Names};
use super::{looking, markup::Markup};
use crate::engine::facts::Severity;
use crate::report::chart::svg::{self, Look};
use crate::report::chart::{Chart, Timeline};
use crate::report::content::{Block, Cell, Grid, Listing, Note, Report};

/// Rows above which a table scrolls in its own box.
const TALL: usize = 30;

/// Columns above which a table scrolls sideways instead of breaking its words into narrow lines.
const WIDE: usize = 6;

/// The table of which the page shows a few figures large: the name of a figure, the figure, its
/// unit.
const FIGURES: &str = "figures";

/// Which of them, where they are known; the next take the place of what is not.
const FOREMOST: [&str; 5] = [
    "Peak",
    "Model weights",
    "KV cache pool",
    "Throughput",
    "Mean latency",
];

/// How many.
const CARDS: usize = 4;

/// One block.
pub fn block(html: &mut Markup, block: &Block, report: &Report, names: &mut Names) {
    match block {
        Block::Text(text) => {
            html.raw("<p>").text(text).raw("</p>\n");
        }
        Block::Note(of) => note(html, of),
        Block::Table(grid) => {
            if grid.id == FIGURES {
                cards(html, grid, report);
            }
            html.raw("<figure")
                .attribute("id", &names.take(&grid.id))
                .raw(" class=\"table\">");
            table(html, grid, report);
            html.raw("</figure>\n");
        }
        Block::Chart(of) => chart(html, of, report, names),
        Block::Timeline(of) => timeline(html, of, report, names),
        Block::Listing(of) => listing(html, of),
    }
}

fn note(html: &mut Markup, note: &Note) {
    html.raw(match note.severity {
        Severity::Info => "<aside class=\"note info\"><p><strong>Note</strong> ",
        Severity::Warning => "<aside class=\"note warning\"><p><strong>Warning</strong> ",
        Severity::Error => "<aside class=\"note error\"><p><strong>Error</strong> ",
    });
    html.text(&note.message);
    if let Some(code) = &note.code {
        html.raw(" <code>").text(code).raw("</code>");
    }
    html.raw("</p>");
    if let Some(quote) = &note.quote {
        html.raw("<pre tabindex=\"0\">")
            .listing(quote)
            .raw("</pre>");
    }
    html.raw("</aside>\n");
}

fn listing(html: &mut Markup, listing: &Listing) {
    html.raw(if listing.folded {
        "<details class=\"listing\"><summary>"
    } else {
        "<details class=\"listing\" open><summary>"
    });
    html.text(&listing.title)
        .raw("</summary><pre tabindex=\"0\">");
    html.listing(&listing.text).raw("</pre></details>\n");
}

fn table(html: &mut Markup, grid: &Grid, report: &Report) {
    html.raw("<div role=\"region\" tabindex=\"0\"");
    html.attribute("aria-label", &grid.caption);
    html.raw(match (grid.rows.len() > TALL, grid.columns.len() > WIDE) {
        (true, true) => " class=\"box tall wide\"><table><caption>",
        (true, false) => " class=\"box tall\"><table><caption>",
        (false, true) => " class=\"box wide\"><table><caption>",
        (false, false) => " class=\"box\"><table><caption>",
    });
    html.text(&grid.caption).raw("</caption><thead><tr>");
    for column in &grid.columns {
        html.raw(if column.numeric {
            "<th scope=\"col\" class=\"number\">"
        } else {
            "<th scope=\"col\">"
        });
        html.text(&column.title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>\n");
    for row in &grid.rows {
        html.raw("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let column = grid.columns.get(i);
            // The first word of a row is its name.
            let name = i == 0 && cell.number.is_none() && !cell.text.is_empty();
            html.raw(match (name, column.is_some_and(|c| c.numeric)) {
                (true, _) => "<th scope=\"row\"",
                (false, true) => "<td class=\"number\"",
                (false, false) => "<td",
            });
            if let Some(number) = cell.number.filter(|n| n.is_finite()) {
                html.raw(" data-number=\"").number(number).raw("\"");
            }
            html.raw(">");
            self::cell(html, cell, report);
            html.raw(if name { "</th>" } else { "</td>" });
        }
        html.raw("</tr>\n");
    }
    html.raw("</tbody></table></div>\n");
}

/// A few figures large. They stand in the table below it as well.
fn cards(html: &mut Markup, grid: &Grid, report: &Report) {
    let known = |row: &&Vec<Cell>| row.get(1).is_some_and(|c| c.number.is_some());
    let place = |row: &Vec<Cell>| FOREMOST.iter().position(|w| row[0].text == *w);
    let mut rows: Vec<&Vec<Cell>> = grid.rows.iter().filter(known).collect();
    rows.sort_by_key(|row| place(row).unwrap_or(FOREMOST.len()));
    if rows.is_empty() {
        return;
    }
    html.raw("<dl class=\"cards\">");
    for row in rows.into_iter().take(CARDS) {
        html.raw("<div><dt>").text(&row[0].text);
        html.raw("</dt><dd><span class=\"value\">");
        cell(html, &row[1], report);
        html.raw("</span> ");
        if let Some(unit) = row.get(2) {
            html.raw("<span class=\"unit\">")
                .text(&unit.text)
                .raw("</span>");
        }
        html.raw("</dd></div>");
    }
    html.raw("</dl>\n");
}

/// The content of a cell: a figure with a source is a link to it.
fn cell(html: &mut Markup, cell: &Cell, report: &Report) {
    match (&cell.missing, cell.source) {
        (Some(why), _) if cell.text.is_empty() => {
            html.raw("<span class=\"missing\"").attribute("title", why);
            html.raw("><span aria-hidden=\"true\">—</span><span class=\"spoken\">not known: ");
            html.text(why).raw("</span></span>");
        }
        (_, Some(source)) if source.0 < report.sources.len() && !cell.text.is_empty() => {
            html.raw("<a class=\"sourced\"");
            html.attribute("href", &format!("#source-{}", source.0));
            html.raw(">").text(&cell.text).raw("</a>");
        }
        _ => {
            html.text(&cell.text);
        }
    }
}

fn chart(html: &mut Markup, chart: &Chart, report: &Report, names: &mut Names) {
    let id = names.take(&chart.id);
    figure_head(html, &id, &chart.title, "chart");
    html.raw("<div class=\"picture\">")
        .drawing(&svg::chart(chart, Look::Inline))
        .raw("</div>");
    html.raw("<details class=\"figures\"><summary>Figures of this chart</summary>");
    table(html, &figures::of_chart(chart), report);
    html.raw("</details></figure>\n");
}

fn timeline(html: &mut Markup, timeline: &Timeline, report: &Report, names: &mut Names) {
    let id = names.take(&timeline.id);
    figure_head(html, &id, &timeline.title, "timeline");
    html.raw("<div class=\"picture\">")
        .drawing(&svg::timeline(timeline, Look::Inline))
        .raw("</div>");
    html.raw("<script type=\"application/json\">");
    html.data(&looking::data(timeline, words::line))
        .raw("</script>");
    html.raw("<details class=\"figures\"><summary>Figures, phases and events</summary>");
    for grid in figures::of_timeline(timeline)
        .iter()
        .filter(|g| !g.rows.is_empty())
    {
        table(html, grid, report);
    }
    html.raw("</details></figure>\n");
}

/// Title, note and the word that it is simulated stand in the drawing.
fn figure_head(html: &mut Markup, id: &str, title: &str, class: &'static str) {
    html.raw("<figure")
        .attribute("id", id)
        .attribute("class", class);
    html.attribute("aria-label", title).raw(">");
}
