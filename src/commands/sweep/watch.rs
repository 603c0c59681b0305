//! A sweep's news on the console's board.

use crate::console::{CellLine, Console, Lane, SweepBoard};
use crate::matrix::{Cell, Figures, Row, Status};
use crate::progress::Sink;
use crate::report::layout::duration;
use crate::sweep::{LaneWatcher, Watcher};
use crate::units::Bytes;

/// The text for a cell that has ended: its name, and its figures or why there are none.
type Words = Box<dyn Fn(&Cell, &Row) -> (String, String) + Send + Sync>;

/// Hands a sweep's news to the board.
pub struct BoardWatcher {
    console: Console,
    board: SweepBoard,
    words: Words,
}

impl BoardWatcher {
    /// For this board.
    pub fn new(console: Console, board: SweepBoard) -> BoardWatcher {
        BoardWatcher::telling(console, board, |cell, row| {
            let label = format!("{} {}", cell.server.model, cell.words());
            (label, detail(row))
        })
    }

    /// The same in other words.
    pub fn telling(
        console: Console,
        board: SweepBoard,
        words: impl Fn(&Cell, &Row) -> (String, String) + Send + Sync + 'static,
    ) -> BoardWatcher {
        BoardWatcher {
            console,
            board,
            words: Box::new(words),
        }
    }
}

impl Watcher for BoardWatcher {
    fn lane(&self, label: &str) -> Box<dyn LaneWatcher> {
        Box::new(BoardLane(self.board.lane(label)))
    }

    fn row(&self, cell: &Cell, row: &Row, done: u64, of: u64) {
        let (label, detail) = (self.words)(cell, row);
        self.board.cell_done(&CellLine {
            done,
            of,
            label,
            status: row.status,
            detail,
        });
    }

    fn left(&self, seconds: Option<f64>) {
        self.board.forecast(seconds);
    }

    fn note(&self, text: &str) {
        self.console.note(text);
    }

    fn warning(&self, text: &str) {
        self.console.warning(text);
    }
}

struct BoardLane(Lane);

impl LaneWatcher for BoardLane {
    fn cell(&self, words: &str) {
        self.0.cell(words);
    }

    fn sink(&self) -> Sink {
        self.0.sink()
    }
}

/// `peak 12.30 GiB, 812 tok/s, 14.2 s`, or why there are no figures.
fn detail(row: &Row) -> String {
    if row.status != Status::Done {
        let cause = row.cause.map_or("unknown", |c| c.as_str());
        let message = row.message.as_deref().unwrap_or_default();
        return format!("{cause}: {message}");
    }
    let Figures {
        peak_bytes,
        tokens_per_second,
        ..
    } = row.figures;
    let peak = peak_bytes.map(|b| format!("peak {}", Bytes(b)));
    let speed = tokens_per_second.map(|t| format!("{t:.0} tok/s"));
    let parts = [peak, speed, Some(duration(row.took_s))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
