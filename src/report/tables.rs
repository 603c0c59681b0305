//! Tables column by column, and figures that several tables and charts show with one name and unit.

use super::chart::{ChartAxis, Scale};
use super::content::{Grid, TableCell, TableColumn, number_column, text_column};
use super::figures::{cell_by, count_cell};
use super::layout::{format_figure, unsigned_zero, with_unit};

/// A table that gets one column after the other.
pub(super) struct TableBuilder<T> {
    items: Vec<T>,
    grid: Grid,
}

impl<T: Copy> TableBuilder<T> {
    /// A table with a row for each item.
    pub(super) fn of_items(items: impl IntoIterator<Item = T>) -> TableBuilder<T> {
        let items: Vec<T> = items.into_iter().collect();
        let rows = vec![Vec::new(); items.len()];
        let grid = Grid {
            rows,
            ..Grid::default()
        };
        TableBuilder { items, grid }
    }

    /// A column, with how an item fills its cell.
    pub(super) fn column(
        mut self,
        column: TableColumn,
        mut fill: impl FnMut(T) -> TableCell,
    ) -> Self {
        self.grid.columns.push(column);
        for (row, item) in self.grid.rows.iter_mut().zip(&self.items) {
            row.push(fill(*item));
        }
        self
    }

    /// A column of words.
    pub(super) fn words<W: Into<String>>(
        self,
        title: &str,
        key: &str,
        mut fill: impl FnMut(T) -> W,
    ) -> Self {
        self.column(text_column(title, key), |t| TableCell::text_cell(fill(t)))
    }

    /// A column of words that not every item has.
    pub(super) fn known_words(
        self,
        title: &str,
        key: &str,
        mut fill: impl FnMut(&T) -> Option<&str>,
    ) -> Self {
        self.words(title, key, |t| fill(&t).unwrap_or_default().to_owned())
    }

    /// A column of words, some of which may be missing.
    pub(super) fn cells(self, title: &str, key: &str, fill: impl FnMut(T) -> TableCell) -> Self {
        self.column(text_column(title, key), fill)
    }

    /// A column of figures.
    pub(super) fn figures(self, title: &str, key: &str, fill: impl FnMut(T) -> TableCell) -> Self {
        self.column(number_column(title, key), fill)
    }

    /// A column of counts.
    pub(super) fn counts(self, title: &str, key: &str, mut fill: impl FnMut(T) -> usize) -> Self {
        self.figures(title, key, |item| count_cell(fill(item) as u64))
    }

    /// The table under its id and caption.
    pub(super) fn grid(self, id: impl Into<String>, caption: impl Into<String>) -> Grid {
        Grid {
            id: id.into(),
            caption: caption.into(),
            ..self.grid
        }
    }

    /// The same; `None` without rows.
    pub(super) fn grid_of_rows(
        self,
        id: impl Into<String>,
        caption: impl Into<String>,
    ) -> Option<Grid> {
        (!self.items.is_empty()).then(|| self.grid(id, caption))
    }
}

/// Words, or why there are none.
pub(super) fn word_or_reason(word: Option<impl Into<String>>, why: &str) -> TableCell {
    match word {
        Some(word) => TableCell::text_cell(word),
        None => TableCell::missing_cell(why),
    }
}

/// A figure of the items of a document: of cells, levels, rounds or runs.
#[derive(Debug)]
pub(super) struct ItemFigure<T: 'static> {
    /// Key in CSV.
    pub key: &'static str,
    /// Words.
    pub title: &'static str,
    /// Unit; empty for a count.
    pub unit: &'static str,
    pick: fn(&T) -> Option<f64>,
}

impl<T> ItemFigure<T> {
    /// Of its key in CSV, words and unit; `pick` is its value in that unit.
    pub(super) const fn new(
        key: &'static str,
        title: &'static str,
        unit: &'static str,
        pick: fn(&T) -> Option<f64>,
    ) -> ItemFigure<T> {
        ItemFigure {
            key,
            title,
            unit,
            pick,
        }
    }

    /// Its value.
    pub(super) fn value_of(&self, item: &T) -> Option<f64> {
        (self.pick)(item).filter(|v| v.is_finite())
    }

    /// Words with the unit: `peak, GiB`.
    pub(super) fn column_head(&self) -> String {
        with_unit(self.title, self.unit)
    }

    /// The head of its column.
    pub(super) fn table_column(&self) -> TableColumn {
        number_column(self.column_head(), self.key)
    }

    /// A value as a cell, or why there is none.
    pub(super) fn table_cell(&self, value: Option<f64>, why: &str) -> TableCell {
        cell_by(value, why, |v| format_in_unit(v, self.unit))
    }

    /// The axis of a chart of it.
    pub(super) fn chart_axis(&self) -> ChartAxis {
        ChartAxis::new_axis(self.title, self.unit, Scale::FromZero)
    }
}

/// A value with the decimals of its unit: a count has none.
pub(super) fn format_in_unit(value: f64, unit: &str) -> String {
    match unit {
        "GiB" => unsigned_zero(format!("{value:.3}")),
        "tokens" => unsigned_zero(format!("{value:.0}")),
        "" if value.fract() == 0.0 && value.abs() < 1e15 => unsigned_zero(format!("{value:.0}")),
        _ => format_figure(value),
    }
}
