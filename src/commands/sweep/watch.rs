//! A sweep's progress on the console's board.

use crate::console::{BoardLine, CellLine, Console, SweepBoard};
use crate::matrix::{Cell, CellRow, EnginePlace, RowFigures, RowStatus};
use crate::progress::Sink;
use crate::report::layout::format_duration;
use crate::sweep::{LaneWatcher, SweepWatcher};
use crate::sync::lock_data;
use crate::units::Bytes;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The text for a cell that has ended: its name, and its figures or why there are none.
type CellText = Box<dyn Fn(&Cell, &CellRow) -> (String, String) + Send + Sync>;

/// Hands a sweep's progress to the board.
pub struct BoardWatcher {
    console: Console,
    board: SweepBoard,
    words: CellText,
    /// Warnings so far: what holds at the sweep's begin and end is printed once.
    warnings: Mutex<BTreeSet<String>>,
}

impl BoardWatcher {
    /// For this board of these cells.
    pub fn new<'c>(
        console: Console,
        board: SweepBoard,
        cells: impl IntoIterator<Item = &'c Cell>,
    ) -> BoardWatcher {
        let place = |cell: &Cell| cell.server.place.place_name().to_owned();
        let places: BTreeSet<String> = cells.into_iter().map(place).collect();
        let several = places.len() > 1;
        BoardWatcher::with_text(console, board, move |cell, row| {
            (name_cell(cell, several), detail(row))
        })
    }

    /// The same in other words.
    pub fn with_text(
        console: Console,
        board: SweepBoard,
        words: impl Fn(&Cell, &CellRow) -> (String, String) + Send + Sync + 'static,
    ) -> BoardWatcher {
        BoardWatcher {
            console,
            board,
            words: Box::new(words),
            warnings: Mutex::default(),
        }
    }
}

impl SweepWatcher for BoardWatcher {
    fn begin_lane(&self, label: &str) -> Box<dyn LaneWatcher> {
        Box::new(BoardLane(self.board.open_lane(label)))
    }

    fn cell_ended(&self, cell: &Cell, row: &CellRow, done: u64, of: u64) {
        let (label, detail) = (self.words)(cell, row);
        self.board.cell_done(&CellLine {
            done,
            of,
            label,
            status: row.status,
            detail,
        });
    }

    fn time_left(&self, seconds: Option<f64>) {
        self.board.set_forecast(seconds);
    }

    fn note(&self, text: &str) {
        self.console.print_note(text);
    }

    fn warning(&self, text: &str) {
        if lock_data(&self.warnings).insert(text.to_owned()) {
            self.console.print_warning(text);
        }
    }
}

struct BoardLane(BoardLine);

impl LaneWatcher for BoardLane {
    fn begin_cell(&self, words: &str) {
        self.0.begin_cell(words);
    }

    fn sink(&self) -> Sink {
        self.0.sink()
    }
}

/// `llama-8b in box-1, input 256, output 128 tokens, batch 8`: with its container or image where
/// the sweep has several.
fn name_cell(cell: &Cell, several_places: bool) -> String {
    let server = &cell.server;
    let mut words = server.model.clone();
    if several_places {
        let at = match &server.place {
            EnginePlace::Container(_) => "in",
            EnginePlace::Image(_) => "on",
        };
        words.push_str(&format!(" {at} {}", server.place.place_name()));
    }
    format!("{words}, {}", cell.load.spell_load())
}

/// `peak 12.30 GiB, 812 tok/s, 14.2 s`, or why there are no figures.
fn detail(row: &CellRow) -> String {
    if row.status != RowStatus::Done {
        return row.describe_cause();
    }
    let RowFigures {
        peak_bytes,
        tokens_per_second,
        ..
    } = row.figures;
    let peak = peak_bytes.map(|b| format!("peak {}", Bytes(b)));
    let speed = tokens_per_second.map(|t| format!("{t:.0} tok/s"));
    let parts = [peak, speed, Some(format_duration(row.took_s))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_its_place_where_there_are_several() {
        let text = "models:\n  - model_id: alpha\n    container_name: box-1\n    input_len: 32\n    output_len: 16\n";
        let sweep =
            crate::matrix::read_sweep("s.yaml", text, &|_| None, &crate::preset::load_preset);
        let cell = sweep.unwrap().cells.remove(0);
        let load = "input 32, output 16 tokens, batch 1";
        assert_eq!(name_cell(&cell, true), format!("alpha in box-1, {load}"));
        assert_eq!(name_cell(&cell, false), format!("alpha, {load}"));
    }
}
