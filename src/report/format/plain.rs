//! A report as plain text, for a terminal and for mail.

use super::{File, Format, figures, words};
use crate::engine::facts::Severity;
use crate::report::RenderError;
use crate::report::content::{Block, Cell, Chapter, Grid, Note, Report};
use crate::report::layout::{Align, Table, truncate};
use crate::report::page::Page;
use crate::report::text::TextOptions;
use std::collections::BTreeMap;

/// Cells of words in a table; figures are never cut.
const WORDS: usize = 48;

/// Lines of a chart's figures: more are for the formats that can fold them.
const FIGURES: usize = 40;

/// One text.
pub struct Plain;

impl Format for Plain {
    fn name(&self) -> &'static str {
        "txt"
    }

    fn files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        Ok(vec![File {
            stem: "report".into(),
            bytes: text(report).into_bytes(),
        }])
    }
}

fn text(report: &Report) -> String {
    let mut page = Page::new(TextOptions {
        width: 100,
        color: false,
        unicode: true,
    });
    page.sentence(0, &words::line(&report.title));
    if let Some(what) = &report.simulated {
        page.sentence(0, &format!("SIMULATED: {}", words::line(what)));
    }
    for (label, value) in &report.about {
        page.aside(&format!("{}: {}", words::line(label), words::line(value)));
    }
    for chapter in &report.chapters {
        self::chapter(&mut page, chapter);
    }
    sources(&mut page, report);
    page.into_text()
}

fn chapter(page: &mut Page, chapter: &Chapter) {
    page.title(&words::line(&chapter.title).to_uppercase());
    for (i, block) in chapter.blocks.iter().enumerate() {
        // Notes stand together; other things stand apart.
        let notes = |b: Option<&Block>| matches!(b, Some(Block::Note(_)));
        if i > 0 && !(notes(chapter.blocks.get(i - 1)) && notes(Some(block))) {
            page.line("");
        }
        self::block(page, block);
    }
}

fn block(page: &mut Page, block: &Block) {
    match block {
        Block::Text(text) => page.aside(&words::line(text)),
        Block::Note(of) => note(page, of),
        Block::Table(of) => grid(page, of, usize::MAX),
        Block::Chart(chart) => {
            grid(page, &figures::of_chart(chart), FIGURES);
            remark(page, chart.simulated, chart.note.as_deref());
        }
        Block::Timeline(timeline) => {
            let [lanes, moments] = figures::of_timeline(timeline);
            grid(page, &lanes, FIGURES);
            grid(page, &moments, FIGURES);
            remark(page, timeline.simulated, timeline.note.as_deref());
        }
        Block::Listing(listing) => {
            page.aside(&words::line(&listing.title));
            for line in words::listing(&listing.text).lines() {
                page.line(&format!("    {line}"));
            }
        }
    }
}

fn note(page: &mut Page, note: &Note) {
    let word = match note.severity {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let code = note.code.as_ref().map(|c| format!(" [{}]", words::line(c)));
    page.aside(&format!(
        "{word}: {}{}",
        words::line(&note.message),
        code.unwrap_or_default()
    ));
    if let Some(quote) = &note.quote {
        page.line(&format!("    | {}", truncate(&words::line(quote), 92, "…")));
    }
}

fn grid(page: &mut Page, grid: &Grid, most: usize) {
    if !grid.caption.is_empty() {
        page.aside(&words::line(&grid.caption));
    }
    if grid.rows.is_empty() {
        page.aside("(no rows)");
        return;
    }
    let titles: Vec<String> = grid.columns.iter().map(|c| words::line(&c.title)).collect();
    let columns: Vec<(&str, Align)> = titles
        .iter()
        .zip(&grid.columns)
        .map(|(title, column)| {
            if column.numeric {
                (title.as_str(), Align::Right)
            } else {
                (title.as_str(), Align::Left)
            }
        })
        .collect();
    let mut table = Table::new(&columns);
    for row in grid.rows.iter().take(most) {
        table.row(row.iter().map(cell).collect());
    }
    page.table(&table);
    if let Some(more) = grid.rows.len().checked_sub(most).filter(|n| *n > 0) {
        page.aside(&format!("and {more} more rows"));
    }
    for (why, columns) in missing(grid) {
        page.aside(&format!("— {columns}: {why}"));
    }
}

fn cell(cell: &Cell) -> String {
    match (&cell.missing, cell.number) {
        (Some(_), _) if cell.text.is_empty() => "—".into(),
        (_, Some(_)) => words::line(&cell.text),
        _ => truncate(&words::line(&cell.text), WORDS, "…"),
    }
}

/// Why cells of a table are empty, and in which columns.
pub(super) fn missing(grid: &Grid) -> BTreeMap<String, String> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &grid.rows {
        for (cell, column) in row.iter().zip(&grid.columns) {
            let Some(why) = cell.missing.as_ref().filter(|_| cell.text.is_empty()) else {
                continue;
            };
            let columns = reasons.entry(words::line(why)).or_default();
            let title = words::line(&column.title);
            if !columns.contains(&title) {
                columns.push(title);
            }
        }
    }
    let joined = |(why, columns): (String, Vec<String>)| match columns.len() {
        0..=3 => (why, columns.join("; ")),
        n => (why, format!("{} and {} other columns", columns[0], n - 1)),
    };
    reasons.into_iter().map(joined).collect()
}

fn remark(page: &mut Page, simulated: bool, note: Option<&str>) {
    if simulated {
        page.aside("Simulated.");
    }
    if let Some(note) = note {
        page.aside(&words::line(note));
    }
}

fn sources(page: &mut Page, report: &Report) {
    if report.sources.is_empty() {
        return;
    }
    page.title("SOURCES");
    for source in &report.sources {
        let confidence = source.confidence.as_ref();
        let sure = confidence.map(|c| format!(", {}", words::line(c)));
        page.aside(&format!(
            "{}: {}{}",
            words::line(&source.title),
            words::line(&source.value),
            sure.unwrap_or_default()
        ));
        for witness in &source.witnesses {
            let used = if witness.used { "" } else { " (not used)" };
            let place = witness.place.as_ref();
            let place = place.map(|p| format!(", {}", words::line(p)));
            page.sentence(
                4,
                &format!(
                    "{}{used}: {}{}",
                    words::line(&witness.kind),
                    words::line(&witness.value),
                    place.unwrap_or_default()
                ),
            );
            if !witness.quote.is_empty() {
                page.line(&format!(
                    "      | {}",
                    truncate(&words::line(&witness.quote), 90, "…")
                ));
            }
        }
    }
}
