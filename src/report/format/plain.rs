//! A report as plain text, for a terminal and for mail.

use super::{File, ReportFormat, figures, words};
use crate::engine::facts::Severity;
use crate::report::RenderError;
use crate::report::content::{Chapter, ContentBlock, Grid, Note, Report, TableCell};
use crate::report::layout::{Align, TextTable, truncate_text};
use crate::report::page::TextPage;
use crate::report::text::TextOptions;
use std::collections::BTreeMap;

/// Cells of words in a table; figures are never cut.
const WORDS: usize = 48;

/// Lines of a chart's figures: more are for the formats that can fold them.
const FIGURES: usize = 40;

/// One text.
pub struct Plain;

impl ReportFormat for Plain {
    fn format_name(&self) -> &'static str {
        "txt"
    }

    fn render_files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        Ok(vec![File {
            stem: "report".into(),
            bytes: plain_text(report).into_bytes(),
        }])
    }
}

fn plain_text(report: &Report) -> String {
    let mut page = TextPage::new(TextOptions {
        width: 100,
        color: false,
        unicode: true,
    });
    page.write_sentence(0, &words::one_line(&report.title));
    if let Some(what) = &report.simulated {
        page.write_sentence(0, &format!("SIMULATED: {}", words::one_line(what)));
    }
    if let Some(answer) = &report.answer {
        page.write_line("");
        page.write_answer(answer);
        page.write_line("");
    }
    for (label, value) in &report.about {
        page.write_aside(&format!(
            "{}: {}",
            words::one_line(label),
            words::one_line(value)
        ));
    }
    for chapter in &report.chapters {
        self::chapter(&mut page, chapter);
    }
    write_sources(&mut page, report);
    page.into_text()
}

fn chapter(page: &mut TextPage, chapter: &Chapter) {
    page.write_title(&words::one_line(&chapter.title).to_uppercase());
    for (i, block) in chapter.blocks.iter().enumerate() {
        // Notes stand together; other things stand apart.
        let notes = |b: Option<&ContentBlock>| matches!(b, Some(ContentBlock::Note(_)));
        if i > 0 && !(notes(chapter.blocks.get(i - 1)) && notes(Some(block))) {
            page.write_line("");
        }
        self::block(page, block);
    }
}

fn block(page: &mut TextPage, block: &ContentBlock) {
    match block {
        ContentBlock::Text(text) => page.write_aside(&words::one_line(text)),
        ContentBlock::Note(of) => write_note(page, of),
        ContentBlock::Table(of) => grid(page, of, usize::MAX),
        ContentBlock::Chart(chart) => {
            grid(page, &figures::of_chart(chart), FIGURES);
            remark(page, chart.simulated, chart.note.as_deref());
        }
        ContentBlock::Timeline(timeline) => {
            let [lanes, moments] = figures::of_timeline(timeline);
            grid(page, &lanes, FIGURES);
            grid(page, &moments, FIGURES);
            remark(page, timeline.simulated, timeline.note.as_deref());
        }
        ContentBlock::Listing(listing) => {
            page.write_aside(&words::one_line(&listing.title));
            for line in words::clean_listing(&listing.text).lines() {
                page.write_line(&format!("    {line}"));
            }
        }
    }
}

fn write_note(page: &mut TextPage, note: &Note) {
    let word = match note.severity {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let code = note
        .code
        .as_ref()
        .map(|c| format!(" [{}]", words::one_line(c)));
    page.write_aside(&format!(
        "{word}: {}{}",
        words::one_line(&note.message),
        code.unwrap_or_default()
    ));
    if let Some(quote) = &note.quote {
        page.write_line(&format!(
            "    | {}",
            truncate_text(&words::one_line(quote), 92, "…")
        ));
    }
}

fn grid(page: &mut TextPage, grid: &Grid, most: usize) {
    if !grid.caption.is_empty() {
        page.write_aside(&words::one_line(&grid.caption));
    }
    if grid.rows.is_empty() {
        page.write_aside("(no rows)");
        return;
    }
    let titles: Vec<String> = grid
        .columns
        .iter()
        .map(|c| words::one_line(&c.title))
        .collect();
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
    let mut table = TextTable::new(&columns);
    for row in grid.rows.iter().take(most) {
        table.add_row(row.iter().map(cell_text).collect());
    }
    page.write_table(&table);
    if let Some(more) = grid.rows.len().checked_sub(most).filter(|n| *n > 0) {
        page.write_aside(&format!("and {more} more rows"));
    }
    for (why, columns) in missing_reasons(grid) {
        page.write_aside(&format!("— {columns}: {why}"));
    }
}

fn cell_text(cell: &TableCell) -> String {
    match (&cell.missing, cell.number) {
        (Some(_), _) if cell.text.is_empty() => "—".into(),
        (_, Some(_)) => words::one_line(&cell.text),
        _ => truncate_text(&words::one_line(&cell.text), WORDS, "…"),
    }
}

/// Why cells of a table are empty, and in which columns.
pub(super) fn missing_reasons(grid: &Grid) -> BTreeMap<String, String> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &grid.rows {
        for (cell, column) in row.iter().zip(&grid.columns) {
            let Some(why) = cell.missing.as_ref().filter(|_| cell.text.is_empty()) else {
                continue;
            };
            let columns = reasons.entry(words::one_line(why)).or_default();
            let title = words::one_line(&column.title);
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

fn remark(page: &mut TextPage, simulated: bool, note: Option<&str>) {
    if simulated {
        page.write_aside("Simulated.");
    }
    if let Some(note) = note {
        page.write_aside(&words::one_line(note));
    }
}

fn write_sources(page: &mut TextPage, report: &Report) {
    if report.sources.is_empty() {
        return;
    }
    page.write_title("SOURCES");
    for source in &report.sources {
        let confidence = source.confidence.as_ref();
        let sure = confidence.map(|c| format!(", {}", words::one_line(c)));
        page.write_aside(&format!(
            "{}: {}{}",
            words::one_line(&source.title),
            words::one_line(&source.value),
            sure.unwrap_or_default()
        ));
        for witness in &source.witnesses {
            let used = if witness.used { "" } else { " (not used)" };
            let place = witness.place.as_ref();
            let place = place.map(|p| format!(", {}", words::one_line(p)));
            page.write_sentence(
                4,
                &format!(
                    "{}{used}: {}{}",
                    words::one_line(&witness.kind),
                    words::one_line(&witness.value),
                    place.unwrap_or_default()
                ),
            );
            if !witness.quote.is_empty() {
                page.write_line(&format!(
                    "      | {}",
                    truncate_text(&words::one_line(&witness.quote), 90, "…")
                ));
            }
        }
    }
}
