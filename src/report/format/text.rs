//! A report as text: what answers the first questions for a terminal, and all of it for mail.

use super::columns::{ColumnOrder, WIDE};
use super::{figures, words};
use crate::breakdown::Component;
use crate::engine::facts::Severity;
use crate::profile::MemoryGauge;
use crate::report::chart::palette::component_colour;
use crate::report::content::{
    Answer, AnswerState, Chapter, ContentBlock, Grid, KeyFigure, Note, Report, TableCell,
};
use crate::report::layout::{Align, distinct_items, text_width, truncate_text};
use crate::report::page::{ColumnFit, StyledCell, TextOptions, TextPage, TextTable, paint_text};
use crate::units::Bytes;
use anstyle::{AnsiColor, Style};
use std::collections::BTreeMap;

/// Lines of a chart's figures: more are for the formats that can fold them.
const FIGURES: usize = 40;
/// Cells of a bar beside a share.
const BAR: usize = 20;
/// Terminals that have room for bars, cells.
const BARS_FROM: usize = 72;
/// Cells that a column of words keeps before columns at its right are left out.
const WORDS: usize = 16;
/// Cells that a text is in from the edge.
const INDENT: usize = 2;

/// How much of a report is on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageDetail {
    /// What answers the first questions, the answer at the end: for a terminal.
    Essential,
    /// Everything, the answer at the beginning: for a file.
    Full,
}

/// The whole report as a file of text.
pub fn file_text(report: &Report) -> String {
    let options = TextOptions {
        width: 100,
        ..TextOptions::default()
    };
    render_page(report, options, PageDetail::Full)
}

/// The report as a page of text.
pub fn render_page(report: &Report, options: TextOptions, detail: PageDetail) -> String {
    let mut writer = PageWriter {
        page: TextPage::new(options),
        options,
        detail,
    };
    writer.write_head(report);
    for chapter in &report.chapters {
        writer.write_chapter(chapter);
    }
    match (&report.answer, detail) {
        (Some(answer), PageDetail::Essential) => {
            writer.page.write_line("");
            writer.write_answer(answer);
        }
        (None, PageDetail::Essential) => {}
        (_, PageDetail::Full) => writer.write_sources(report),
    }
    writer.page.into_text()
}

struct PageWriter {
    page: TextPage,
    options: TextOptions,
    detail: PageDetail,
}

impl PageWriter {
    fn write_head(&mut self, report: &Report) {
        let title = words::one_line(&report.title);
        self.page.write_styled(Style::new().bold(), &title);
        if let Some(what) = &report.simulated {
            let what = format!("SIMULATED: {}", words::one_line(what));
            let style = AnsiColor::Yellow.on_default().bold();
            self.page.write_styled(style, &what);
        }
        if self.detail == PageDetail::Essential {
            return;
        }
        if let Some(answer) = &report.answer {
            self.page.write_line("");
            self.write_answer(answer);
        }
        self.page.write_line("");
        for (label, value) in &report.about {
            self.write_text(&format!("{label}: {value}"));
        }
    }

    /// The answer: verdict, gauge, main figures, what to change.
    fn write_answer(&mut self, answer: &Answer) {
        let colour = match answer.state {
            AnswerState::Safe => AnsiColor::Green,
            AnswerState::Tight => AnsiColor::Yellow,
            AnswerState::Critical | AnswerState::Failed => AnsiColor::Red,
            AnswerState::Unknown => AnsiColor::Cyan,
        };
        let style = colour.on_default().bold();
        self.page
            .write_styled(style, &words::one_line(&answer.verdict));
        answer.gauges().for_each(|gauge| self.write_gauge(gauge));
        if let Some(unknown) = answer.unknown_headroom() {
            self.write_text(&unknown);
        }
        let figures: Vec<String> = answer.figures.iter().map(figure_text).collect();
        if !figures.is_empty() {
            let between = if self.options.unicode { " · " } else { " | " };
            self.write_text(&figures.join(between));
        }
        for action in &answer.actions {
            self.write_text(&format!("→ {}", action.action_text()));
        }
    }

    /// `████░░░░ 57 % of 4.00 GiB, container`; where that is too wide, the words are below the bar.
    fn write_gauge(&mut self, gauge: &MemoryGauge) {
        let words = gauge_words(gauge);
        let width = self.options.width;
        let room = width.saturating_sub(text_width(&words) + INDENT + 1);
        if room >= 10 {
            let bar = self.gauge_cells(gauge, room.min(40));
            self.page.write_rendered(&[format!("  {bar} {words}")]);
        } else {
            let bar = self.gauge_cells(gauge, width.saturating_sub(INDENT).clamp(10, 40));
            self.page.write_rendered(&[format!("  {bar}")]);
            self.write_text(&words);
        }
    }

    /// The bar of a gauge: each component in its colour where the page has colours.
    fn gauge_cells(&self, gauge: &MemoryGauge, cells: usize) -> String {
        let plain = gauge_bar(gauge.used_percent(), cells, self.options.unicode);
        if !self.options.color || gauge.parts.is_empty() {
            return plain;
        }
        let place = |bytes: u64| {
            let share = bytes as f64 / gauge.total_bytes.max(1) as f64;
            (share.min(1.0) * cells as f64).round() as usize
        };
        let (mut bar, mut bytes) = (String::new(), 0u64);
        let glyphs: Vec<char> = plain.chars().collect();
        for (component, size) in &gauge.parts {
            let from = place(bytes);
            bytes = bytes.saturating_add(*size);
            let part: String = glyphs[from..place(bytes).max(from)].iter().collect();
            let style = Style::new().fg_color(Some(colour_of(*component)));
            bar.push_str(&paint_text(style, &part, self.options));
        }
        bar.extend(&glyphs[place(bytes)..]);
        bar
    }

    fn write_chapter(&mut self, chapter: &Chapter) {
        let all = matches!(self.detail, PageDetail::Full);
        let shown = |block: &&ContentBlock| match block {
            ContentBlock::Chart(_) => all,
            ContentBlock::Listing(listing) => all || !listing.folded,
            ContentBlock::Table(_) | ContentBlock::Text(_) | ContentBlock::Note(_) => true,
        };
        let details = chapter.details.iter().filter(|_| all);
        let blocks: Vec<&ContentBlock> =
            chapter.blocks.iter().chain(details).filter(shown).collect();
        if blocks.is_empty() {
            return;
        }
        let title = words::one_line(&chapter.title);
        let title = if all { title.to_uppercase() } else { title };
        self.page.write_title(&title);
        let is_table = |b: &&&ContentBlock| matches!(b, ContentBlock::Table(_));
        let several = blocks.iter().filter(is_table).count() > 1;
        for (i, block) in blocks.iter().enumerate() {
            // Tables have air around them; sentences and notes follow each other.
            let is_wide =
                |b: &ContentBlock| !matches!(b, ContentBlock::Text(_) | ContentBlock::Note(_));
            if i > 0 && (is_wide(block) || (all && is_wide(blocks[i - 1]))) {
                self.page.write_line("");
            }
            self.write_block(block, all || several);
        }
    }

    fn write_block(&mut self, block: &ContentBlock, captions: bool) {
        match block {
            ContentBlock::Text(text) => self.write_text(text),
            ContentBlock::Note(note) => self.write_note(note),
            ContentBlock::Table(grid) => self.write_grid(grid, usize::MAX, captions),
            ContentBlock::Chart(chart) => {
                for grid in figures::of_chart(chart) {
                    self.write_grid(&grid, FIGURES, true);
                }
                if chart.simulated {
                    self.write_text("Simulated.");
                }
                chart.note.iter().for_each(|note| self.write_text(note));
            }
            ContentBlock::Listing(listing) => {
                self.write_text(&listing.title);
                for line in words::clean_listing(&listing.text).lines() {
                    let line = format!("    {}", line.trim_end());
                    self.page.write_rendered(&[line]);
                }
            }
        }
    }

    fn write_text(&mut self, text: &str) {
        self.page.write_sentence(INDENT, &words::one_line(text));
    }

    fn write_note(&mut self, note: &Note) {
        let (word, style) = match note.severity {
            Severity::Info => ("note", Style::new().dimmed()),
            Severity::Warning => ("warning", AnsiColor::Yellow.on_default()),
            Severity::Error => ("error", AnsiColor::Red.on_default().bold()),
        };
        let code = note.code.as_ref().map(|c| format!(" [{c}]"));
        let sentence = format!("{}{}", note.message, code.unwrap_or_default());
        let head = format!("  {word:7}  ");
        self.page
            .write_under_styled(style, &head, &words::one_line(&sentence));
        // Two witnesses are quoted one below the other.
        for quote in note.quote.iter().flat_map(|q| q.split(" | ")) {
            self.write_quote(text_width(&head), quote);
        }
    }

    /// A quoted line: whole in a file, cut at the edge of a terminal.
    fn write_quote(&mut self, indent: usize, quote: &str) {
        let quote = words::one_line(quote);
        let head = format!("{:indent$}| ", "");
        if self.detail == PageDetail::Full {
            return self.page.write_under(&head, &quote);
        }
        let room = self.options.width.saturating_sub(indent + 2).max(24);
        let ellipsis = if self.options.unicode { "…" } else { "..." };
        let cut = truncate_text(message_of_line(&quote), room, ellipsis);
        self.page
            .write_styled(Style::new().dimmed(), &format!("{head}{cut}"));
    }

    fn write_grid(&mut self, grid: &Grid, most: usize, caption: bool) {
        // A waterfall has its figures in the table beside it.
        if grid.rows.is_empty() {
            return;
        }
        let order = ColumnOrder::arrange_columns(grid);
        if caption && !grid.caption.is_empty() {
            self.write_text(&grid.caption);
        }
        for line in order.caption_lines(grid) {
            self.write_text(&line);
        }
        let left_out = self.write_rows(grid, &order.shown, most);
        if let Some(more) = grid.rows.len().checked_sub(most).filter(|n| *n > 0) {
            self.write_text(&format!("and {more} more rows"));
        }
        if !left_out.is_empty() {
            let more = left_out.join("; ");
            self.write_text(&format!("A wider terminal also shows: {more}."));
        }
        for (why, columns) in missing_reasons(grid) {
            self.write_text(&format!("— {columns}: {why}"));
        }
    }

    /// Writes the rows; the columns at the right that a terminal has no room for are given back. In
    /// a file nothing is left out: a table that is too wide is wider than the page.
    fn write_rows(&mut self, grid: &Grid, order: &[usize], most: usize) -> Vec<String> {
        let texts: Vec<Vec<String>> = (grid.rows.iter().take(most))
            .map(|row| row.iter().map(cell_text).collect())
            .collect();
        // In a table of many columns the head of a figure wraps before a column is left out.
        let wraps = self.detail == PageDetail::Essential && grid.columns.len() > 2 * WIDE;
        let widths: Vec<usize> = (grid.columns.iter().enumerate())
            .map(|(n, column)| {
                let cells = texts.iter().filter_map(|row| row.get(n));
                let widest = cells.map(|text| text_width(text)).max().unwrap_or(0);
                let title = words::one_line(&column.title);
                let head = if column.numeric && wraps {
                    title.split_whitespace().map(text_width).max().unwrap_or(0)
                } else {
                    text_width(&title)
                };
                widest.max(head)
            })
            .collect();
        // A terminal shows shares as bars before it shows what is least important.
        let bars = self.detail == PageDetail::Essential && self.options.width >= BARS_FROM;
        let bar_after = |n: usize| bars && grid.columns[n].is_share;
        let least = |n: usize| {
            let bar = if bar_after(n) { BAR + 2 } else { 0 };
            let is_numeric = grid.columns[n].numeric;
            widths[n].min(if is_numeric { usize::MAX } else { WORDS }) + bar
        };
        let least_of = |shown: &[usize]| {
            let cells: usize = shown.iter().map(|n| least(*n) + 2).sum();
            (INDENT + cells).saturating_sub(2)
        };
        let mut shown = order.to_vec();
        let mut options = self.options;
        let is_file = self.detail == PageDetail::Full;
        while !is_file && shown.len() > 2 && least_of(&shown) > options.width {
            shown.pop();
        }
        if is_file && least_of(&shown) > options.width {
            options.width = usize::MAX;
        }
        let columns = shown.iter().flat_map(|n| {
            let column = &grid.columns[*n];
            let (align, fit) = if !column.numeric {
                (Align::Left, ColumnFit::Wrap)
            } else if wraps {
                (Align::Right, ColumnFit::WrapHead)
            } else {
                (Align::Right, ColumnFit::Whole)
            };
            let head = (words::one_line(&column.title), align, fit);
            let bar = bar_after(*n).then(|| (String::new(), Align::Left, ColumnFit::Whole));
            std::iter::once(head).chain(bar)
        });
        let mut table = TextTable::new(columns);
        for (row, texts) in grid.rows.iter().zip(texts) {
            let cells = shown.iter().flat_map(|n| {
                let text = texts.get(*n).cloned().unwrap_or_default();
                let bar = bar_after(*n).then(|| share_bar(row, *n, options));
                std::iter::once(StyledCell::from(text)).chain(bar)
            });
            table.add_row(cells.collect());
        }
        let lines = table.render_rows(INDENT, options).concat();
        self.page.write_rendered(&lines);
        let left_out = order.iter().filter(|n| !shown.contains(n));
        left_out
            .map(|n| words::one_line(&grid.columns[*n].title))
            .collect()
    }

    fn write_sources(&mut self, report: &Report) {
        if report.sources.is_empty() {
            return;
        }
        self.page.write_title("SOURCES");
        for source in &report.sources {
            let sure = source.confidence.as_ref().map(|c| format!(", {c}"));
            let sure = sure.unwrap_or_default();
            self.write_text(&format!("{}: {}{sure}", source.title, source.value));
            for witness in &source.witnesses {
                let used = if witness.used { "" } else { " (not used)" };
                let place = witness.place.as_ref().map(|p| format!(", {p}"));
                let place = place.unwrap_or_default();
                let line = format!("{}{used}: {}{place}", witness.kind, witness.value);
                self.page.write_sentence(4, &words::one_line(&line));
                if !witness.quote.is_empty() {
                    self.write_quote(6, &witness.quote);
                }
            }
        }
    }
}

/// The colour of a component, as on a dark page.
fn colour_of(component: Component) -> anstyle::Color {
    let (red, green, blue) = component_colour(component, true);
    anstyle::RgbColor(red, green, blue).into()
}

/// The share in a cell as a bar, in the colour of the component that its row names.
fn share_bar(row: &[TableCell], n: usize, options: TextOptions) -> StyledCell {
    let share = row.get(n).and_then(|cell| cell.number).unwrap_or(0.0) / 100.0;
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let bar = if options.unicode {
        let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        format!("{}{rest}", "█".repeat(eighths / 8))
    } else {
        "#".repeat((eighths + 4) / 8)
    };
    let component = row.iter().find_map(|cell| cell.swatch);
    let colour = component.map(colour_of);
    StyledCell::new(bar, Style::new().fg_color(colour))
}

/// The bar of a gauge in text, `cells` wide.
pub(super) fn gauge_bar(percent: f64, cells: usize, unicode: bool) -> String {
    let full = ((percent / 100.0).clamp(0.0, 1.0) * cells as f64).round() as usize;
    let (used, free) = if unicode { ("█", "░") } else { ("#", "-") };
    format!("{}{}", used.repeat(full), free.repeat(cells - full))
}

/// `57 % of 4.00 GiB, Container`, and by how much it is over.
pub(super) fn gauge_words(gauge: &MemoryGauge) -> String {
    let total = Bytes(gauge.total_bytes);
    let over = (gauge.used_bytes > gauge.total_bytes).then(|| gauge.describe_rest());
    let over = over.map_or(String::new(), |over| format!(", {over}"));
    let (percent, label) = (gauge.used_percent(), &gauge.label);
    words::one_line(&format!("{percent:.0} % of {total}{over}, {label}"))
}

/// `Model weights 14.96 GiB`.
pub(super) fn figure_text(figure: &KeyFigure) -> String {
    format!("{} {} {}", figure.label, figure.value.text, figure.unit)
}

/// A log line without the prefix of its message: process, level, time and `[file.py:12]`.
fn message_of_line(line: &str) -> &str {
    let prefix = line.find(".py:").and_then(|at| {
        let end = line[at..].find("] ")?;
        Some(at + end + 2)
    });
    prefix.map_or(line, |at| &line[at..])
}

fn cell_text(cell: &TableCell) -> String {
    if cell.text.is_empty() && cell.missing.is_some() {
        "—".into()
    } else {
        words::one_line(&cell.text)
    }
}

/// Why cells of a table are empty, and which: the row's name where it is one row, else the columns.
pub(super) fn missing_reasons(grid: &Grid) -> BTreeMap<String, String> {
    let mut reasons: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    for (n, row) in grid.rows.iter().enumerate() {
        for (cell, column) in row.iter().zip(&grid.columns) {
            let Some(why) = cell.missing.as_ref().filter(|_| cell.text.is_empty()) else {
                continue;
            };
            let cells = reasons.entry(words::one_line(why)).or_default();
            cells.push((n, words::one_line(&column.title)));
        }
    }
    let name_of = |n: usize| {
        let first = grid.rows.get(n)?.first()?;
        let is_name = first.number.is_none() && !first.text.is_empty();
        is_name.then(|| words::one_line(&first.text))
    };
    let joined = |(why, cells): (String, Vec<(usize, String)>)| {
        let row = cells.first().map_or(0, |(row, _)| *row);
        let one_row = grid.rows.len() > 1 && cells.iter().all(|(n, _)| *n == row);
        if let Some(name) = name_of(row).filter(|_| one_row) {
            return (why, name);
        }
        let columns = distinct_items(cells.into_iter().map(|(_, title)| title));
        match columns.len() {
            0..=3 => (why, columns.join("; ")),
            n => (why, format!("{} and {} other columns", columns[0], n - 1)),
        }
    };
    reasons.into_iter().map(joined).collect()
}
