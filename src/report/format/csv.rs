//! A report's tables as CSV: a file each. Figures are unrounded, and what is not known is empty.

use super::File;
use super::words::{self, UsedNames};
use crate::report::content::{Chapter, ContentBlock, Grid, Report, TableCell, TableColumn};
use crate::report::spreadsheet;

/// A file for each table.
pub(super) fn render_tables(report: &Report) -> Vec<File> {
    let mut names = UsedNames::default();
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    let grids = blocks.filter_map(|block| match block {
        ContentBlock::Table(grid) => Some(grid),
        _ => None,
    });
    grids
        .map(|grid| File {
            stem: names.take_name(&grid.id),
            bytes: grid_csv(grid, report.simulated.as_deref()),
        })
        .collect()
}

/// The last argument: what of the report is simulated. A table travels alone, so each row of it carries that, unless it has a
/// column for that.
fn grid_csv(grid: &Grid, simulated: Option<&str>) -> Vec<u8> {
    const SIMULATED: &str = "simulated";
    let simulated = simulated.filter(|_| grid.columns.iter().all(|c| c.key != SIMULATED));
    let mut heads: Vec<String> = grid.columns.iter().map(column_head).collect();
    heads.extend(simulated.map(|_| SIMULATED.to_owned()));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = grid.rows.iter().map(|row| {
        let mut cells: Vec<String> = row.iter().map(cell_text).collect();
        cells.resize(grid.columns.len(), String::new());
        cells.extend(simulated.map(|what| spreadsheet::harmless_field(words::one_line(what))));
        cells
    });
    spreadsheet::write_table(&heads, &rows.collect::<Vec<_>>())
}

fn column_head(column: &TableColumn) -> String {
    spreadsheet::harmless_field(words::one_line(if column.key.is_empty() {
        &column.title
    } else {
        &column.key
    }))
}

fn cell_text(cell: &TableCell) -> String {
    match cell.number {
        Some(number) => spreadsheet::figure_cell(Some(number).filter(|n| n.is_finite())),
        None => words::one_line(&cell.text),
    }
}
