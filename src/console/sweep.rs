//! The board of a sweep: how much of it is done, and a line for each group that runs now.
//!
//! Locks are taken in one order: what is drawn, then indicatif's own, then what is shown. The
//! pictures are made inside indicatif's locks, so no bar is changed while `Counts` or `Now` is
//! held.

mod picture;

use super::Console;
use super::look::ResultMark;
use crate::matrix::RowStatus;
use crate::progress::{Progress, Sink};
use crate::report::layout::{clean_text, text_width, wrap_within};
use crate::sync::lock_data;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
pub use picture::BoardWords;
use picture::{BoardCounts, LaneState, lane_line, overall_line};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What became of one cell, for its line.
#[derive(Debug, Clone, PartialEq)]
pub struct CellLine {
    /// Cells that are done with it, this one included.
    pub done: u64,
    /// Cells in all.
    pub of: u64,
    /// Its model and words.
    pub label: String,
    /// How it ended.
    pub status: RowStatus,
    /// Its figures, `peak 12.3 GiB, 812 tok/s, 14.2 s`, or why there are none.
    pub detail: String,
}

/// The sweep that is shown. Cheap to clone; the last clone that goes ends it.
#[derive(Clone)]
pub struct SweepBoard(Arc<Board>);

/// One group that runs now. Its line ends when it is dropped.
pub struct BoardLine {
    board: Arc<Board>,
    number: u64,
    messages: Arc<LaneMessages>,
}

pub(super) struct Board {
    console: Console,
    counts: Arc<Mutex<BoardCounts>>,
    drawn: Mutex<DrawnBars>,
}

/// What is on the terminal now.
#[derive(Default)]
struct DrawnBars {
    overall: Option<ProgressBar>,
    /// By the number of their lane.
    lanes: BTreeMap<u64, ProgressBar>,
    next: u64,
    ended: bool,
}

/// State of a lane, and the messages it has printed.
struct LaneMessages {
    console: Console,
    now: Arc<Mutex<LaneState>>,
    /// Notes and warnings that came, and how often. Each cell of a group may bring the same.
    lines: Mutex<BTreeMap<(MessageKind, String), u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MessageKind {
    Note,
    Warning,
}

impl Console {
    /// Shows a sweep of `cells` cells, of which some were done in an earlier run. Ends the running
    /// stage as done.
    pub fn show_sweep(&self, cells: u64, already_done: u64) -> SweepBoard {
        self.show_board(BoardWords::SWEEP, cells, already_done)
    }

    /// The same in other words.
    pub fn show_board(&self, words: BoardWords, cells: u64, already_done: u64) -> SweepBoard {
        self.end_board();
        self.end_stage(ResultMark::Done);
        let counts = Arc::new(Mutex::new(BoardCounts {
            done: already_done.min(cells),
            of: cells,
            words,
            ..BoardCounts::default()
        }));
        let overall = self.0.drawing.as_ref().map(|drawing| {
            let bar = drawing.bars.add(ProgressBar::new_spinner());
            let (counts, look, size) = (counts.clone(), self.0.look, drawing.size);
            let picture = move || overall_line(&lock_data(&counts).clone(), size().1, look);
            drawing.start_bar(&bar, style(self, "{line}", picture));
            bar
        });
        let board = Arc::new(Board {
            console: self.clone(),
            counts,
            drawn: Mutex::new(DrawnBars {
                overall,
                ..DrawnBars::default()
            }),
        });
        *lock_data(&self.0.board) = Arc::downgrade(&board);
        let before = match already_done {
            0 => String::new(),
            n => format!(", {n} of them done before"),
        };
        board.print_plain(|| format!("{}: {cells} {}{before}", words.whole, words.parts));
        SweepBoard(board)
    }
}

impl SweepBoard {
    /// A line for one group that runs from now on, `llama-8b tp2 on gpu 0,1`.
    pub fn open_lane(&self, label: &str) -> BoardLine {
        let board = &self.0;
        let console = &board.console;
        let now = Arc::new(Mutex::new(LaneState {
            label: clean_text(label, console.0.look.unicode),
            cell: String::new(),
            stage: None,
            since: Instant::now(),
            peak: None,
            step: None,
        }));
        let number = board.draw_lane(&now);
        let messages = LaneMessages {
            console: console.clone(),
            now,
            lines: Mutex::default(),
        };
        board.print_plain(|| format!("{}: begin", messages.shown_label()));
        BoardLine {
            board: board.clone(),
            number,
            messages: Arc::new(messages),
        }
    }

    /// How many seconds the sweep will still take; `None` while that is not known.
    pub fn set_forecast(&self, seconds_left: Option<f64>) {
        let seconds = seconds_left.filter(|s| s.is_finite() && *s > 0.0);
        lock_data(&self.0.counts).forecast = seconds.map(|s| (s, Instant::now()));
    }

    /// Counts a cell that has ended, and prints a line for it that stays.
    pub fn cell_done(&self, row: &CellLine) {
        let counts = {
            let mut counts = lock_data(&self.0.counts);
            counts.done = (counts.done + 1).min(counts.of);
            match row.status {
                RowStatus::Done | RowStatus::Interpolated => {}
                RowStatus::Failed => counts.failed += 1,
                RowStatus::Skipped => counts.skipped += 1,
            }
            counts.clone()
        };
        self.0.cell_line(row, &counts);
    }

    /// Ends what is drawn. Lines that come later still come, each by itself.
    pub fn finish_board(&self) {
        self.0.end_drawing();
    }
}

impl BoardLine {
    /// Where this group's runs report their progress.
    pub fn sink(&self) -> Sink {
        let messages = self.messages.clone();
        Arc::new(move |progress| messages.take_progress(progress))
    }

    /// Which cell runs from now on.
    pub fn begin_cell(&self, words: &str) {
        let words = clean_text(words, self.board.console.0.look.unicode);
        {
            let mut now = lock_data(&self.messages.now);
            now.cell.clone_from(&words);
            now.begin_stage(None);
        }
        self.board
            .print_plain(|| format!("{}: {words}", self.messages.shown_label()));
    }
}

impl Drop for BoardLine {
    fn drop(&mut self) {
        let bar = lock_data(&self.board.drawn).lanes.remove(&self.number);
        if let (Some(bar), Some(drawing)) = (bar, &self.board.console.0.drawing) {
            drawing.erase(&bar);
        }
        self.messages.sum_up();
        self.board
            .print_plain(|| format!("{}: end", self.messages.shown_label()));
    }
}

impl Board {
    /// Gives a lane its line above the overall bar, and a number. The overall bar is drawn last, so
    /// lanes that would push it out of the window get none.
    fn draw_lane(&self, now: &Arc<Mutex<LaneState>>) -> u64 {
        let mut drawn = lock_data(&self.drawn);
        let number = drawn.next;
        drawn.next += 1;
        if let (Some(drawing), Some(overall)) = (&self.console.0.drawing, &drawn.overall) {
            if drawn.lanes.len() + 2 < (drawing.size)().0 {
                let bar = ProgressBar::new_spinner();
                let bar = drawing.bars.insert_before(overall, bar);
                let (now, look, size) = (now.clone(), self.console.0.look, drawing.size);
                // The spinner takes two.
                let room = move || size().1.saturating_sub(2);
                let picture = move || lane_line(&lock_data(&now).clone(), room(), look);
                drawing.start_bar(&bar, style(&self.console, "{spinner} {line}", picture));
                drawn.lanes.insert(number, bar);
            }
        }
        number
    }

    /// A line off a terminal.
    fn print_plain(&self, text: impl FnOnce() -> String) {
        if !self.console.0.quiet && self.console.0.drawing.is_none() {
            self.console.print_plain(&text());
        }
    }

    fn cell_line(&self, row: &CellLine, counts: &BoardCounts) {
        let look = self.console.0.look;
        let label = clean_text(&row.label, look.unicode);
        let detail = clean_text(&row.detail, look.unicode);
        let of = row.of.to_string();
        let count = format!("{:>1$}/{of}", row.done, of.len());
        let Some(drawing) = &self.console.0.drawing else {
            self.print_plain(|| {
                let eta = counts
                    .eta_text()
                    .map_or(String::new(), |eta| format!(" ({eta})"));
                format!("{count} {:<7} {label}: {detail}{eta}", row.status.as_str())
            });
            return;
        };
        let mark = look.mark_sign(match row.status {
            RowStatus::Done | RowStatus::Interpolated => ResultMark::Done,
            RowStatus::Failed => ResultMark::Failed,
            RowStatus::Skipped => ResultMark::Skipped,
        });
        // What does not fit behind the name goes below it.
        let columns = (drawing.size)().1;
        let head = text_width(&count) + 4;
        let label = look.cut_middle(&label, columns.saturating_sub(head));
        let paint = |detail: &str| match row.status {
            RowStatus::Failed => detail.to_owned(),
            RowStatus::Done | RowStatus::Interpolated | RowStatus::Skipped => look.dim_text(detail),
        };
        let mut text = format!("{mark} {count}  {label}");
        if head + text_width(&label) + 2 + text_width(&detail) <= columns {
            text.push_str(&format!("  {}", paint(&detail)));
        } else {
            let below = wrap_within(&detail, columns.saturating_sub(4));
            text.extend(below.iter().map(|line| format!("\n    {}", paint(line))));
        }
        self.console.print_line(&text);
    }

    /// Takes everything off the terminal, and prints how far the sweep came. Once.
    pub(super) fn end_drawing(&self) {
        let (lanes, overall) = {
            let mut drawn = lock_data(&self.drawn);
            if std::mem::replace(&mut drawn.ended, true) {
                return;
            }
            (std::mem::take(&mut drawn.lanes), drawn.overall.take())
        };
        if let Some(drawing) = &self.console.0.drawing {
            for bar in lanes.values().chain(&overall) {
                drawing.erase(bar);
            }
        }
        if self.console.0.quiet {
            return;
        }
        let counts = lock_data(&self.counts).clone();
        let text = format!(
            "{}: {} of {} {}{}",
            counts.words.whole,
            counts.done,
            counts.of,
            counts.words.parts,
            counts.fault_text(", ")
        );
        if self.console.0.drawing.is_none() {
            self.console.print_plain(&text);
        } else {
            let mark = match counts.failed {
                0 if counts.done == counts.of => ResultMark::Done,
                0 => ResultMark::Skipped,
                _ => ResultMark::Failed,
            };
            self.console
                .print_line(&format!("{} {text}", self.console.0.look.mark_sign(mark)));
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.end_drawing();
    }
}

impl Console {
    /// Ends the sweep that is shown, if one is.
    pub(super) fn end_board(&self) {
        // The lock is gone before the board ends: to end is to talk.
        let board = lock_data(&self.0.board).upgrade();
        if let Some(board) = board {
            board.end_drawing();
        }
    }
}

impl LaneMessages {
    fn take_progress(&self, progress: Progress) {
        match progress {
            Progress::Stage(stage) => {
                let mut now = lock_data(&self.now);
                if now.stage != Some(stage) {
                    now.begin_stage(Some(stage));
                }
            }
            Progress::Step { done, of } if of > 0 => {
                lock_data(&self.now).step = Some((done.min(of), of));
            }
            // The line of the cell reports how it failed.
            Progress::Step { .. } | Progress::StageFailed => {}
            Progress::Memory(bytes) => {
                let mut now = lock_data(&self.now);
                now.peak = now.peak.max(Some(bytes));
            }
            Progress::Note(text) => self.print_once(MessageKind::Note, text),
            Progress::Warning(text) => self.print_once(MessageKind::Warning, text),
        }
    }

    /// Prints a message with the lane and its cell, the first time that it comes.
    fn print_once(&self, kind: MessageKind, text: String) {
        let cell = lock_data(&self.now).cell.clone();
        let at = if cell.is_empty() {
            self.shown_label()
        } else {
            format!("{}, {cell}", self.shown_label())
        };
        let line = format!("{at}: {text}");
        let times = {
            let mut lines = lock_data(&self.lines);
            let times = lines.entry((kind, text)).or_default();
            *times += 1;
            *times
        };
        match kind {
            _ if times > 1 => {}
            MessageKind::Note => self.console.print_note(&line),
            MessageKind::Warning => self.console.print_warning(&line),
        }
    }

    /// Prints for each warning how often it came again.
    fn sum_up(&self) {
        for ((kind, text), times) in std::mem::take(&mut *lock_data(&self.lines)) {
            if kind == MessageKind::Warning && times > 1 {
                let again = match times - 1 {
                    1 => "once more".to_owned(),
                    n => format!("{n} times more"),
                };
                let line = format!("{}: came {again}: {text}", self.shown_label());
                self.console.print_warning(&line);
            }
        }
    }

    /// The lane's name, cut so that a message has room beside it on a terminal.
    fn shown_label(&self) -> String {
        let label = lock_data(&self.now).label.clone();
        match &self.console.0.drawing {
            Some(drawing) => self
                .console
                .0
                .look
                .cut_middle(&label, (drawing.size)().1 / 2),
            None => label,
        }
    }
}

/// A style that draws what `picture` gives at that moment.
fn style(
    console: &Console,
    template: &str,
    picture: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> ProgressStyle {
    console.style_from_template(template).with_key(
        "line",
        move |_: &ProgressState, line: &mut dyn fmt::Write| {
            // A failure to draw a picture is ignored.
            let _ = line.write_str(&picture());
        },
    )
}

#[cfg(test)]
mod tests;
