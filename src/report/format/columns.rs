//! The order of a wide table's columns, the same on the page and in a terminal: what varies first, what
//! is the same in all rows in the caption. CSV keeps every column as it came.

use crate::report::content::{Grid, TableCell};

/// Tables with more columns than this are arranged for their width.
pub(super) const WIDE: usize = 6;

/// A text longer than this is prose: it comes after the figures.
pub(super) const PROSE: usize = 40;

/// Hexadecimal digits in a row that make a word an id or a hash.
const HASH_DIGITS: usize = 10;

/// The columns of a table, as places in its grid.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnOrder {
    /// Those of the table, a word first, prose behind the others, ids last.
    pub(super) shown: Vec<usize>,
    /// Those of them that are ids or hashes.
    pub(super) ids: Vec<usize>,
    /// Those with one value in all rows.
    pub(super) same: Vec<usize>,
}

impl ColumnOrder {
    /// A narrow table keeps its columns.
    pub(super) fn arrange_columns(grid: &Grid) -> ColumnOrder {
        let all: Vec<usize> = (0..grid.columns.len()).collect();
        if all.len() <= WIDE {
            return ColumnOrder {
                shown: all,
                ..ColumnOrder::default()
            };
        }
        let cells = |n: usize| grid.rows.iter().filter_map(move |row| row.get(n));
        let (same, mut shown): (Vec<usize>, Vec<usize>) = all.into_iter().partition(|n| {
            grid.rows.len() >= 2 && cells(*n).count() == grid.rows.len() && is_one_value(cells(*n))
        });
        let is_numeric = |n: &usize| grid.columns.get(*n).is_some_and(|c| c.numeric);
        let is_id = |n: &usize| {
            let mut texts = cells(*n).filter(|c| !c.text.is_empty()).peekable();
            !is_numeric(n) && texts.peek().is_some() && texts.all(|c| has_hash(&c.text))
        };
        let ids: Vec<usize> = shown.iter().copied().filter(is_id).collect();
        let is_prose = |n: &usize| cells(*n).any(|c| c.text.chars().count() > PROSE);
        shown.sort_by_key(|n| match () {
            () if ids.contains(n) => 2,
            // The first column names the row, however long.
            () if *n > 0 && is_prose(n) => 1,
            () => 0,
        });
        // A row begins with the word that identifies it.
        if let Some(at) = shown.iter().position(|n| !is_numeric(n)) {
            shown[..=at].rotate_right(1);
        }
        if shown.is_empty() {
            return ColumnOrder {
                shown: same,
                ..ColumnOrder::default()
            };
        }
        ColumnOrder { shown, ids, same }
    }

    /// What leaves the table, as lines of its caption.
    pub(super) fn caption_lines(&self, grid: &Grid) -> Vec<String> {
        let cell = |n: &usize| Some((grid.columns.get(*n)?, grid.rows.first()?.get(*n)?));
        let (known, unknown): (Vec<_>, Vec<_>) = (self.same.iter())
            .filter_map(cell)
            .partition(|(_, cell)| !cell.text.is_empty());
        let known = known
            .iter()
            .map(|(c, cell)| format!("{} {}", c.title, cell.text));
        let unknown = (unknown.iter())
            .filter_map(|(c, cell)| Some(format!("{}: {}", c.title, cell.missing.as_ref()?)));
        let line = |head: &str, words: Vec<String>| {
            (!words.is_empty()).then(|| format!("{head}: {}", words.join(", ")))
        };
        let lines = [
            line("Same in all rows", known.collect()),
            line("Not known in any row", unknown.collect()),
        ];
        lines.into_iter().flatten().collect()
    }
}

/// Whether all cells say the same, or nothing. Figures with sources of their own stay in the table.
fn is_one_value<'a>(mut cells: impl Iterator<Item = &'a TableCell>) -> bool {
    let Some(first) = cells.next() else {
        return false;
    };
    first.source.is_none()
        && cells.all(|c| c.text == first.text && c.missing == first.missing && c.source.is_none())
}

/// Whether a word has the digits of an id: digits and letters in a row.
fn has_hash(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_hexdigit()).any(|run| {
        run.len() >= HASH_DIGITS
            && run.contains(|c: char| c.is_ascii_digit())
            && run.contains(|c: char| c.is_ascii_alphabetic())
    })
}
