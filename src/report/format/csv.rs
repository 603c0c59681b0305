//! A report's tables as CSV: a file each. Figures are unrounded, and what is not known is empty.

use super::words::{self, Names};
use super::{File, Format};
use crate::report::RenderError;
use crate::report::content::{Block, Cell, Column, Grid, Report};
use crate::report::spreadsheet;

/// A file for each table.
pub struct Csv;

impl Format for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn files(&self, report: &Report) -> Result<Vec<File>, RenderError> {
        let mut names = Names::default();
        let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
        let grids = blocks.filter_map(|block| match block {
            Block::Table(grid) => Some(grid),
            _ => None,
        });
        grids
            .map(|grid| {
                Ok(File {
                    stem: names.take(&grid.id),
                    bytes: table(grid)?,
                })
            })
            .collect()
    }
}

fn table(grid: &Grid) -> Result<Vec<u8>, RenderError> {
    let heads: Vec<String> = grid.columns.iter().map(head).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = grid.rows.iter().map(|row| {
        let mut cells: Vec<String> = row.iter().map(cell).collect();
        cells.resize(grid.columns.len(), String::new());
        cells
    });
    spreadsheet::table(&heads, &rows.collect::<Vec<_>>())
}

fn head(column: &Column) -> String {
    spreadsheet::harmless(words::line(match column.key.is_empty() {
        true => &column.title,
        false => &column.key,
    }))
}

fn cell(cell: &Cell) -> String {
    match cell.number {
        Some(number) => spreadsheet::cell(Some(number).filter(|n| n.is_finite())),
        None => words::line(&cell.text),
    }
}
