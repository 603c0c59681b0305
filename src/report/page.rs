//! Pages that are no wider than their terminal: lines and sentences wrap at words, tables give up
//! columns or wrap cells. A page of unlimited width, as for a pipe, holds everything on its lines.

use super::layout::{
    Align, clean_text, pad_left_aligned, pad_right_aligned, text_width, truncate_middle, wrap_line,
    wrap_within,
};
use anstyle::Style;
use std::borrow::Cow;

/// How a page of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Cells per line; tables without a column that gives way are wider.
    pub width: usize,
    /// ANSI colour and weight. The page has the same text without.
    pub color: bool,
    /// Lines and marks beyond ASCII.
    pub unicode: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            width: 88,
            color: false,
            unicode: true,
        }
    }
}

/// Cells between two columns.
const GAP: usize = 2;
/// Cells that a column keeps, cut and wrapped, before columns beside it are left out.
const BEFORE_CUT: usize = 18;
const BEFORE_WRAP: usize = 30;
/// Cells that a column keeps where nothing else is left to give up.
const NARROWEST: usize = 6;

/// What a column does where the page is too narrow. A column whose cells are all empty is left out
/// on every page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnFit {
    /// It stays as wide as its widest cell.
    Whole,
    /// It stays as wide as its widest figure; its head wraps at words.
    WrapHead,
    /// Its cells wrap at words.
    Wrap,
    /// Its cells are cut: one line a row matters more, as in a live view.
    Cut,
    /// It is left out; the highest rank first.
    Drop(u8),
}

/// A cell of a table, with its style.
#[derive(Debug, Clone, Default)]
pub struct StyledCell {
    text: String,
    style: Style,
}

impl StyledCell {
    /// Text in this style.
    pub fn new(text: impl Into<String>, style: Style) -> StyledCell {
        StyledCell {
            text: text.into(),
            style,
        }
    }
}

impl<T: Into<String>> From<T> for StyledCell {
    fn from(text: T) -> StyledCell {
        StyledCell::new(text, Style::new())
    }
}

/// Rows in columns, two cells apart, as wide as the page allows.
pub struct TextTable {
    columns: Vec<(Cow<'static, str>, Align, ColumnFit)>,
    rows: Vec<Vec<StyledCell>>,
}

impl TextTable {
    /// A table with these columns: head, alignment, and what it does on a narrow page. Without any
    /// head there is no line for heads.
    pub fn new<H: Into<Cow<'static, str>>>(
        columns: impl IntoIterator<Item = (H, Align, ColumnFit)>,
    ) -> TextTable {
        let columns = columns.into_iter();
        TextTable {
            columns: (columns.map(|(head, align, fit)| (head.into(), align, fit))).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, a cell for each column; those that are missing at its end are empty.
    pub fn add_row(&mut self, cells: Vec<StyledCell>) {
        self.rows.push(cells);
    }

    /// The lines of each row, the head first where there is one, each `indent` cells in. Without
    /// rows there is no head.
    pub fn render_rows(&self, indent: usize, options: TextOptions) -> Vec<Vec<String>> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let head: Vec<StyledCell> = (self.columns.iter())
            .map(|(head, ..)| StyledCell::new(head.as_ref(), Style::new().bold()))
            .collect();
        let has_head = head.iter().any(|cell| !cell.text.is_empty());
        let cleaned: Vec<Vec<StyledCell>> = has_head
            .then_some(&head)
            .into_iter()
            .chain(&self.rows)
            .map(|row| row.iter().map(|cell| clean_cell(cell, options)).collect())
            .collect();
        let body = &cleaned[usize::from(has_head)..];
        let room = options.width.saturating_sub(indent);
        let widths = self.column_widths(&cleaned, body, room);
        let line_of = |row: &Vec<StyledCell>| self.row_lines(row, &widths, indent, options);
        cleaned.iter().map(line_of).collect()
    }

    /// The width of each column; `None` for one that is left out.
    fn column_widths(
        &self,
        rows: &[Vec<StyledCell>],
        body: &[Vec<StyledCell>],
        room: usize,
    ) -> Vec<Option<usize>> {
        let widest = |rows: &[Vec<StyledCell>], column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widths = cells.flat_map(|cell| cell.text.split('\n').map(text_width));
            widths.max().unwrap_or(0)
        };
        let fit = |column: usize| self.columns[column].2;
        let mut widths: Vec<Option<usize>> = (0..self.columns.len())
            .map(|column| {
                let empty = widest(body, column) == 0;
                (!empty).then(|| widest(rows, column))
            })
            .collect();
        // What a column is narrowed to at most, with its words whole or cut; `None` where it gives nothing.
        let narrowest = |column: usize, whole: bool| match fit(column) {
            ColumnFit::Wrap if whole => {
                let cells = body.iter().filter_map(|row| row.get(column));
                let word = cells.map(|cell| longest_word(&cell.text)).max();
                Some(word.unwrap_or(0).max(NARROWEST))
            }
            ColumnFit::Wrap | ColumnFit::Cut => Some(NARROWEST),
            ColumnFit::WrapHead => {
                Some(longest_word(&self.columns[column].0).max(widest(body, column)))
            }
            ColumnFit::Whole | ColumnFit::Drop(_) => None,
        };
        let total = |widths: &[Option<usize>], least: &dyn Fn(usize) -> usize| -> usize {
            let shown = widths.iter().enumerate();
            let cells = shown.filter_map(|(i, w)| Some(GAP + (*w)?.min(least(i))));
            cells.sum::<usize>().saturating_sub(GAP)
        };
        let keeps = |column: usize| match fit(column) {
            ColumnFit::Cut => BEFORE_CUT,
            ColumnFit::Wrap => BEFORE_WRAP,
            ColumnFit::Whole | ColumnFit::WrapHead | ColumnFit::Drop(_) => usize::MAX,
        };
        while total(&widths, &keeps) > room {
            let rank = |column: usize| match (fit(column), widths[column]) {
                (ColumnFit::Drop(rank), Some(_)) => Some(rank),
                _ => None,
            };
            let next = (0..widths.len()).filter(|c| rank(*c).is_some());
            let Some(next) = next.max_by_key(|c| rank(*c)) else {
                break;
            };
            widths[next] = None;
        }
        // The widest gives first, cell by cell.
        while total(&widths, &|_| usize::MAX) > room {
            let widest_of = |whole: bool| {
                (0..widths.len())
                    .filter(|c| widths[*c] > narrowest(*c, whole).or(Some(usize::MAX)))
                    .max_by_key(|c| widths[*c])
            };
            let next = widest_of(true).or_else(|| widest_of(false));
            match next.and_then(|next| widths[next].as_mut()) {
                Some(width) => *width -= 1,
                None => break,
            }
        }
        widths
    }

    fn row_lines(
        &self,
        row: &[StyledCell],
        widths: &[Option<usize>],
        indent: usize,
        options: TextOptions,
    ) -> Vec<String> {
        let ellipsis = if options.unicode { "…" } else { "..." };
        let shown: Vec<(usize, Align, Style, Vec<String>)> = row
            .iter()
            .zip(&self.columns)
            .zip(widths)
            .filter_map(|((cell, (_, align, fit)), width)| {
                let width = (*width)?;
                let parts = match fit {
                    ColumnFit::Cut => vec![truncate_middle(&cell.text, width, ellipsis)],
                    _ => wrap_cell(&cell.text, width),
                };
                Some((width, *align, cell.style, parts))
            })
            .collect();
        let height = shown.iter().map(|(.., parts)| parts.len()).max();
        (0..height.unwrap_or(0))
            .map(|i| {
                // Spaces at the end are left out, and a style spans words only.
                let mut line = String::new();
                let mut blank = indent;
                for (width, align, style, parts) in &shown {
                    let text = parts.get(i).map_or("", String::as_str);
                    let padded = match align {
                        Align::Left => pad_left_aligned(text, *width),
                        Align::Right => pad_right_aligned(text, *width),
                    };
                    let word = padded.trim();
                    let before = padded.len() - padded.trim_start().len();
                    let after = padded.len() - before.min(padded.len()) - word.len();
                    if word.is_empty() {
                        blank += text_width(&padded) + GAP;
                        continue;
                    }
                    line.extend(std::iter::repeat_n(' ', blank + before));
                    line.push_str(&paint_text(*style, word, options));
                    blank = after + GAP;
                }
                line
            })
            .collect()
    }
}

fn longest_word(text: &str) -> usize {
    let words = text.split_whitespace().map(text_width);
    words.max().unwrap_or(0)
}

fn clean_cell(cell: &StyledCell, options: TextOptions) -> StyledCell {
    let lines: Vec<String> = (cell.text.split('\n'))
        .map(|line| clean_text(line, options.unicode))
        .collect();
    StyledCell::new(lines.join("\n"), cell.style)
}

/// The lines of a cell: its own, each wrapped.
fn wrap_cell(text: &str, width: usize) -> Vec<String> {
    text.split('\n')
        .flat_map(|line| {
            if text_width(line) <= width {
                vec![line.to_owned()]
            } else {
                wrap_within(line, width)
            }
        })
        .collect()
}

/// The text in a style, where the page has colours.
pub fn paint_text(style: Style, text: &str, options: TextOptions) -> String {
    if options.color && style != Style::new() {
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

/// Lines that are no wider than the page.
pub struct TextPage {
    text: String,
    options: TextOptions,
}

impl TextPage {
    /// An empty page.
    pub fn new(options: TextOptions) -> TextPage {
        TextPage {
            text: String::new(),
            options,
        }
    }

    /// A line, wrapped where it is too wide.
    pub fn write_line(&mut self, line: &str) {
        self.write_styled(Style::new(), line);
    }

    /// A title after an empty line.
    pub fn write_title(&mut self, title: &str) {
        self.push("");
        self.write_styled(Style::new().bold(), title);
    }

    /// A sentence, its first line as far in as `indent`, the others two further.
    pub fn write_sentence(&mut self, indent: usize, text: &str) {
        let indent = " ".repeat(indent);
        self.write_line(&format!("{indent}{}", text.trim_start()));
    }

    /// A line in a style.
    pub fn write_styled(&mut self, style: Style, line: &str) {
        let line = clean_text(line, self.options.unicode);
        for part in wrap_line(line.trim_end(), self.options.width) {
            self.push(&paint_text(style, &part, self.options));
        }
    }

    /// A sentence, wrapped under what it begins with.
    pub fn write_under(&mut self, head: &str, sentence: &str) {
        self.write_under_styled(Style::new(), head, sentence);
    }

    /// As [`TextPage::write_under`], what it begins with in a style.
    pub fn write_under_styled(&mut self, style: Style, head: &str, sentence: &str) {
        let sentence = clean_text(sentence, self.options.unicode);
        let indent = text_width(head);
        let room = self.options.width.saturating_sub(indent);
        let head = paint_text(style, head, self.options);
        for (i, part) in wrap_within(&sentence, room).iter().enumerate() {
            match i {
                0 => self.push(&format!("{head}{part}")),
                _ => self.push(&format!("{}{part}", " ".repeat(indent))),
            }
        }
    }

    /// A table, each line `indent` cells in.
    pub fn write_table(&mut self, indent: usize, table: &TextTable) {
        for line in table.render_rows(indent, self.options).concat() {
            self.push(&line);
        }
    }

    /// Lines that fit already, as [`TextTable::render_rows`] makes them.
    pub fn write_rendered(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.push(line));
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

/// For the tests of pages: none is wider than its terminal, and a wide one cuts nothing.
#[cfg(test)]
pub(crate) fn assert_fits(render: impl Fn(TextOptions) -> String) {
    let page = |width| {
        render(TextOptions {
            width,
            color: false,
            unicode: true,
        })
    };
    for width in [60, 80, 120, 200] {
        let text = page(width);
        for line in text.lines() {
            assert!(text_width(line) <= width, "{width}: {line}");
        }
        assert!(!text.contains('\x1b'), "no colour was asked for");
    }
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (wide, all) = (page(200), page(usize::MAX));
    assert_eq!(words(&wide), words(&all), "200 columns hold every word");
    let colour = render(TextOptions {
        width: 80,
        color: true,
        unicode: true,
    });
    assert!(colour.contains('\x1b'), "a terminal has colour");
    assert_eq!(anstream::adapter::strip_str(&colour).to_string(), page(80));
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstyle::AnsiColor;
    use proptest::prelude::*;

    fn options(width: usize) -> TextOptions {
        TextOptions {
            width,
            color: false,
            unicode: true,
        }
    }

    fn table() -> TextTable {
        let mut table = TextTable::new([
            ("NAME", Align::Left, ColumnFit::Cut),
            ("USED", Align::Right, ColumnFit::Whole),
            ("POWER", Align::Right, ColumnFit::Drop(1)),
            ("TEMP", Align::Right, ColumnFit::Drop(2)),
            ("LIMIT", Align::Right, ColumnFit::Drop(0)),
        ]);
        for (name, temp) in [("NVIDIA H100 80GB HBM3", "66 C"), ("short", "")] {
            let cells = [name, "70.00 GiB", "690 W", temp, ""];
            table.add_row(cells.into_iter().map(StyledCell::from).collect());
        }
        table
    }

    fn lines(table: &TextTable, width: usize) -> Vec<String> {
        table.render_rows(0, options(width)).concat()
    }

    #[test]
    fn a_wide_page_shows_every_column_that_has_a_cell() {
        assert_eq!(
            lines(&table(), usize::MAX),
            [
                "NAME                        USED  POWER  TEMP",
                "NVIDIA H100 80GB HBM3  70.00 GiB  690 W  66 C",
                "short                  70.00 GiB  690 W",
            ]
        );
    }

    #[test]
    fn a_narrow_page_leaves_columns_out_before_it_cuts_names() {
        assert_eq!(
            lines(&table(), 39),
            [
                "NAME                        USED  POWER",
                "NVIDIA H100 80GB HBM3  70.00 GiB  690 W",
                "short                  70.00 GiB  690 W",
            ]
        );
        assert_eq!(
            lines(&table(), 30),
            [
                "NAME                      USED",
                "NVIDI…100 80GB HBM3  70.00 GiB",
                "short                70.00 GiB",
            ]
        );
    }

    #[test]
    fn cells_wrap_at_words_and_long_words_after_a_separator() {
        let mut table = TextTable::new([
            ("", Align::Left, ColumnFit::Whole),
            ("", Align::Left, ColumnFit::Wrap),
        ]);
        let text = "cannot open /nowhere/lib/x86_64-linux-gnu/nvml.so: no such file\nnext";
        table.add_row(vec![StyledCell::from("--"), StyledCell::from(text)]);
        assert_eq!(
            lines(&table, 26),
            [
                "--  cannot open",
                "    /nowhere/lib/",
                "    x86_64-linux-gnu/",
                "    nvml.so:",
                "    no such file",
                "    next",
            ]
        );
    }

    #[test]
    fn a_style_changes_no_width() {
        let mut table = TextTable::new([
            ("", Align::Right, ColumnFit::Whole),
            ("", Align::Left, ColumnFit::Whole),
        ]);
        let red = AnsiColor::Red.on_default();
        table.add_row(vec![StyledCell::new("1", red), "a".into()]);
        table.add_row(vec!["22".into(), "b".into()]);
        let colour = TextOptions {
            color: true,
            ..options(80)
        };
        assert_eq!(
            table.render_rows(1, colour).concat(),
            [format!("  {red}1{red:#}  a"), " 22  b".to_owned()]
        );
        let plain = table.render_rows(1, options(80)).concat();
        assert_eq!(plain, ["  1  a", " 22  b"]);
    }

    #[test]
    fn a_line_that_fits_is_kept_and_a_longer_one_is_wrapped_below_itself() {
        let mut page = TextPage::new(options(20));
        page.write_line("  a   b");
        page.write_line("  one two three four five");
        page.write_under("note: ", "one two three four");
        assert_eq!(
            page.into_text(),
            "  a   b\n  one two three\n    four five\nnote: one two three\n      four\n"
        );
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_page(
            cells in proptest::collection::vec("[a-z/ -]{0,70}", 1..8),
            sentence in "\\PC{0,120}",
            width in 40usize..200,
        ) {
            let mut table = TextTable::new([
                ("NAME", Align::Left, ColumnFit::Cut),
                ("TEXT", Align::Left, ColumnFit::Wrap),
                ("FIGURE", Align::Right, ColumnFit::Drop(0)),
            ]);
            for cell in &cells {
                table.add_row(vec![cell.as_str().into(), cell.as_str().into(), cell.as_str().into()]);
            }
            let mut page = TextPage::new(options(width));
            page.write_table(2, &table);
            page.write_line(&sentence);
            page.write_under("  cleaned   ", &sentence);
            for line in page.into_text().lines() {
                prop_assert!(text_width(line) <= width, "{line:?}");
            }
        }

        #[test]
        fn an_unlimited_page_cuts_nothing(cell in "[a-z/-]{1,70}") {
            let mut table = TextTable::new([
                ("NAME", Align::Left, ColumnFit::Cut),
                ("TEXT", Align::Left, ColumnFit::Wrap),
            ]);
            table.add_row(vec![cell.as_str().into(), cell.as_str().into()]);
            let lines = lines(&table, usize::MAX);
            prop_assert_eq!(lines[1].matches(&cell).count(), 2);
        }
    }
}
