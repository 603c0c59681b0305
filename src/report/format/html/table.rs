//! A table of the page: swatches, sources, and for wide tables an order that brings the figures
//! into view. CSV keeps every column as it came.

use super::super::columns::{ColumnOrder, PROSE, WIDE};
use super::markup::Markup;
use crate::report::chart::palette;
use crate::report::content::{Grid, Report, TableCell};

/// Rows above which a table scrolls in its own box.
const TALL: usize = 30;

/// Tables that still have more columns than this are set smaller and break their words; long texts
/// behind the figures stay on one line, so that rows stay low.
const DENSE: usize = 12;

/// Writes it in its own box, which scrolls.
pub fn write_table(html: &mut Markup, grid: &Grid, report: &Report) {
    let order = ColumnOrder::arrange_columns(grid);
    let wide = grid.columns.len() > WIDE;
    html.write_raw("<div role=\"region\" tabindex=\"0\"");
    let label = match grid.caption.as_str() {
        "" => "Table",
        caption => caption,
    };
    html.write_attribute("aria-label", label);
    html.write_raw(" class=\"box");
    for (applies, class) in [
        (grid.rows.len() > TALL, " tall"),
        (wide, " wide"),
        (order.shown.len() > DENSE, " dense"),
    ] {
        html.write_raw(if applies { class } else { "" });
    }
    html.write_raw("\"><table>");
    write_caption(html, grid, &order);
    // Labels and values have no heads.
    let heads = order.shown.iter().filter_map(|n| grid.columns.get(*n));
    let has_heads = heads.clone().any(|column| !column.title.is_empty());
    html.write_raw(if has_heads { "<thead><tr>" } else { "" });
    for column in heads.filter(|_| has_heads) {
        html.write_raw(if column.numeric {
            "<th scope=\"col\" class=\"number\">"
        } else {
            "<th scope=\"col\">"
        });
        html.write_text(&column.title).write_raw("</th>");
    }
    html.write_raw(if has_heads { "</tr></thead>" } else { "" });
    html.write_raw("<tbody>\n");
    for row in &grid.rows {
        html.write_raw("<tr>");
        for (place, n) in order.shown.iter().enumerate() {
            let Some(cell) = row.get(*n) else { continue };
            let numeric = grid.columns.get(*n).is_some_and(|c| c.numeric);
            // The first word of a row is its name.
            let name = place == 0 && cell.number.is_none() && !cell.text.is_empty();
            let id = order.ids.contains(n);
            html.write_raw(if name { "<th scope=\"row\"" } else { "<td" });
            html.write_raw(match (name, numeric) {
                (false, true) => " class=\"number\"",
                _ if id => " class=\"id\"",
                _ if !wide => "",
                _ if cell.text.chars().count() > PROSE => " class=\"prose\"",
                _ => " class=\"word\"",
            });
            if id {
                html.write_attribute("title", &cell.text);
            }
            if let Some(number) = cell.number.filter(|n| n.is_finite()) {
                html.write_raw(" data-number=\"")
                    .write_number(number)
                    .write_raw("\"");
            }
            html.write_raw(">");
            write_cell(html, cell, report);
            html.write_raw(if name { "</th>" } else { "</td>" });
        }
        html.write_raw("</tr>\n");
    }
    html.write_raw("</tbody></table></div>\n");
}

/// The content of a cell: a figure with a source is a link to it.
pub fn write_cell(html: &mut Markup, cell: &TableCell, report: &Report) {
    if let Some(component) = cell.swatch {
        let class = format!("swatch {}", palette::part_class(component));
        html.write_raw("<span")
            .write_attribute("class", &class)
            .write_raw(" aria-hidden=\"true\"></span>");
    }
    let source = cell
        .source
        .and_then(|id| Some((id, report.sources.get(id.0)?)));
    match (&cell.missing, source) {
        (Some(why), _) if cell.text.is_empty() => {
            html.write_raw("<span class=\"missing\"")
                .write_attribute("title", why);
            html.write_raw(
                "><span aria-hidden=\"true\">—</span><span class=\"spoken\">not known: ",
            );
            html.write_text(why).write_raw("</span></span>");
        }
        (_, Some((id, source))) if !cell.text.is_empty() => {
            let name = format!("{}, source of {}", cell.text, source.title);
            html.write_raw("<a class=\"sourced\"");
            html.write_attribute("href", &format!("#source-{}", id.0))
                .write_attribute("aria-label", &name)
                .write_attribute("title", "Show the source");
            html.write_element(">", &cell.text, "</a>");
        }
        _ => {
            html.write_text(&cell.text);
        }
    }
}

/// The caption, and what leaves the table as lines of it.
fn write_caption(html: &mut Markup, grid: &Grid, order: &ColumnOrder) {
    let same = order.caption_lines(grid);
    if grid.caption.is_empty() && same.is_empty() {
        return;
    }
    html.write_raw("<caption>").write_text(&grid.caption);
    for line in same {
        html.write_element("<span class=\"same\">", &line, "</span>");
    }
    html.write_raw("</caption>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::content::{FigureSource, SourceId, TableColumn};

    fn wide_grid() -> Grid {
        let column = |title: &str, numeric| TableColumn {
            title: title.into(),
            key: title.into(),
            numeric,
            is_share: false,
        };
        let row = |cell: &str, load: &str, peak: f64| {
            vec![
                TableCell::text_cell(cell),
                TableCell::text_cell("vLLM 0.32"),
                TableCell::number_cell(peak, format!("{peak:.2}")),
                TableCell::text_cell(load),
                TableCell::missing_cell("no probe ran"),
                TableCell::number_cell(2.0, "2.00").from(SourceId(0)),
                TableCell::number_cell(8.0, "8"),
            ]
        };
        Grid {
            id: "cells".into(),
            caption: "All cells".into(),
            columns: vec![
                column("cell", false),
                column("engine", false),
                column("peak, GiB", true),
                column("load", false),
                column("tensors, GiB", true),
                column("weights, GiB", true),
                column("batch", true),
            ],
            rows: vec![
                row("12b1238b9fbd-b1", "short", 1.0),
                row("9fbd12b1238b-b2", "long", 3.0),
            ],
        }
    }

    #[test]
    fn what_varies_comes_first_and_what_is_the_same_leaves_the_table() {
        let order = ColumnOrder::arrange_columns(&wide_grid());
        let titles = |places: &[usize]| -> Vec<String> {
            let title = |n: &usize| wide_grid().columns[*n].title.clone();
            places.iter().map(title).collect()
        };
        assert_eq!(
            titles(&order.shown),
            ["load", "peak, GiB", "weights, GiB", "cell"]
        );
        assert_eq!(titles(&order.same), ["engine", "tensors, GiB", "batch"]);
        let mut html = Markup::default();
        let report = Report {
            sources: vec![FigureSource {
                title: "Model weights".into(),
                ..FigureSource::default()
            }],
            ..Report::default()
        };
        write_table(&mut html, &wide_grid(), &report);
        let html = html.into_text();
        assert!(
            html.contains("Same in all rows: engine vLLM 0.32, batch 8<"),
            "{html}"
        );
        assert!(
            html.contains("Not known in any row: tensors, GiB: no probe ran<"),
            "{html}"
        );
        assert!(
            html.contains("aria-label=\"2.00, source of Model weights\""),
            "{html}"
        );
        assert!(
            html.contains("<th scope=\"row\" class=\"word\">short</th>"),
            "{html}"
        );
    }

    #[test]
    fn narrow_tables_and_single_rows_keep_their_columns() {
        let mut one = wide_grid();
        one.rows.pop();
        assert!(ColumnOrder::arrange_columns(&one).same.is_empty());
        let mut narrow = wide_grid();
        narrow.columns.pop();
        let order = ColumnOrder::arrange_columns(&narrow);
        assert_eq!(order.shown, [0, 1, 2, 3, 4, 5]);
    }
}
