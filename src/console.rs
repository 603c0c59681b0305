//! Everything that a person sees on a terminal: stages, notes, warnings, errors, log lines.
//!
//! stdout is data, stderr is talk. On a terminal the running stage is drawn and finished stages
//! stay as one line each; elsewhere each stage is one plain line. Nothing is ever only drawn.

mod logger;
mod look;
mod question;
pub mod screen;
mod stage;
mod sweep;
mod terminal;

use crate::error::{ExitCode, Failure, exit_verdict};
use crate::progress::{Progress, Sink};
use crate::redact::{redact_bytes, redact_distinct};
use crate::report::content::Report;
use crate::report::format::text::{PageDetail, render_page};
use crate::report::json::json_bytes;
use crate::report::layout::{clean_text, wrap_line};
use crate::report::page::TextOptions;
use crate::sync::lock_data;
use anstyle::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use look::{ResultMark, TerminalStyle};
use stage::RunningStage;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use sweep::Board;
pub use sweep::{BoardLine, BoardWords, CellLine, SweepBoard};

/// Between two pictures of what is drawn: spinners turn, and figures are fresh.
const TICK: Duration = Duration::from_millis(120);

/// When to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How much to say, and in which colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// No stages, no notes. Warnings and errors are still printed.
    pub quiet: bool,
    /// 0: warnings of the program itself; 1: what it does; 2 and more: every detail.
    pub verbose: u8,
    /// Colour.
    pub color: ColorChoice,
}

/// The one that talks. Cheap to clone; every clone talks to the same terminal.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    quiet: bool,
    verbose: u8,
    look: TerminalStyle,
    summary: TextOptions,
    /// What is drawn; `None` off a terminal and when quiet.
    drawing: Option<DrawingState>,
    began: Instant,
    running: Mutex<Option<RunningStage>>,
    /// The sweep that is shown.
    board: Mutex<Weak<Board>>,
    /// Cells of a line on stderr now.
    width: LineWidth,
    /// Where lines go. indicatif's own `println` prints nothing when its target is hidden.
    out: Mutex<Box<dyn Write + Send>>,
}

/// Asked for each message: a window changes its size while a run goes on.
type LineWidth = Box<dyn Fn() -> usize + Send + Sync>;

/// Where and how often is drawn.
struct DrawingState {
    bars: MultiProgress,
    /// Rows and columns of the terminal.
    size: fn() -> (usize, usize),
    /// Time between two pictures; none are drawn on their own when it is zero.
    tick: Duration,
}

impl DrawingState {
    /// Draws this bar from now on.
    fn start_bar(&self, bar: &ProgressBar, style: ProgressStyle) {
        bar.set_style(style);
        bar.enable_steady_tick(self.tick);
    }

    /// Takes a bar off the terminal. What is done to it later draws nothing.
    fn erase(&self, bar: &ProgressBar) {
        bar.finish_and_clear();
        self.bars.remove(bar);
    }
}

impl Console {
    /// A console on this process' stdout and stderr.
    pub fn new(options: ConsoleOptions) -> Console {
        let unicode = terminal::locale_is_utf8(|name| std::env::var(name).ok());
        let look = TerminalStyle {
            unicode,
            color: terminal::wants_color(options.color, &io::stderr()),
        };
        let summary = TextOptions {
            width: terminal::stdout_width(),
            color: terminal::wants_color(options.color, &io::stdout()),
            unicode,
        };
        let drawing = (!options.quiet && terminal::can_draw(&io::stderr())).then(|| DrawingState {
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            size: terminal::stderr_size,
            tick: TICK,
        });
        let width = Box::new(terminal::stderr_width);
        Console::with_parts(
            options,
            look,
            summary,
            drawing,
            (width, Box::new(io::stderr())),
        )
    }

    fn with_parts(
        options: ConsoleOptions,
        look: TerminalStyle,
        summary: TextOptions,
        drawing: Option<DrawingState>,
        (width, out): (LineWidth, Box<dyn Write + Send>),
    ) -> Console {
        Console(Arc::new(Inner {
            quiet: options.quiet,
            verbose: options.verbose,
            look,
            summary,
            drawing,
            began: Instant::now(),
            running: Mutex::new(None),
            board: Mutex::new(Weak::new()),
            width,
            out: Mutex::new(out),
        }))
    }

    /// Whether a person watches what goes on.
    pub fn is_terminal(&self) -> bool {
        std::io::IsTerminal::is_terminal(&std::io::stderr())
    }

    /// Whether every detail is wanted.
    pub fn is_verbose(&self) -> bool {
        self.0.verbose > 0
    }

    /// How a summary should look on this process' stdout.
    pub fn text_options(&self) -> TextOptions {
        self.0.summary
    }

    /// How a page of lines and tables should look on stdout: as wide as the terminal is now, off a
    /// terminal of unlimited width.
    pub fn page_options(&self) -> TextOptions {
        TextOptions {
            width: self.page_size().map_or(usize::MAX, |(_, columns)| columns),
            ..self.0.summary
        }
    }

    /// Rows and columns of the terminal on stdout; `None` off a terminal.
    pub fn page_size(&self) -> Option<(usize, usize)> {
        terminal::terminal_size(&io::stdout())
    }

    /// Sends the `log` messages of this program and its libraries here. Once per process; later
    /// calls change nothing.
    pub fn install_logger(&self) {
        logger::install_logger(self.clone(), self.0.verbose);
    }

    /// Where a run reports its progress.
    pub fn sink(&self) -> Sink {
        let console = self.clone();
        Arc::new(move |progress| console.take_progress(progress))
    }

    /// Something worth a line.
    pub fn print_note(&self, text: &str) {
        if !self.0.quiet {
            self.print_text(text);
        }
    }

    /// Something that may spoil what comes out.
    pub fn print_warning(&self, text: &str) {
        self.labelled("warning", AnsiColor::Yellow.on_default().bold(), text);
    }

    /// A line printed by another plimsoll: it has its own label, and its verbosity was set there. It is wrapped at words
    /// where it is wider than the terminal.
    pub fn print_text(&self, text: &str) {
        let text = clean_text(text, self.0.look.unicode);
        self.print_line(&wrap_line(&text, (self.0.width)()).join("\n"));
    }

    /// Prints an error once, with its causes and hints, and returns its exit code. A running stage
    /// is shown as failed.
    pub fn print_error(&self, error: &anyhow::Error) -> ExitCode {
        self.end_board();
        self.end_stage(ResultMark::Failed);
        let (code, hints) = exit_verdict(error);
        let style = AnsiColor::Red.on_default().bold();
        self.labelled("error", style, &chain(error));
        if !hints.is_empty() {
            self.print_line("");
        }
        for hint in hints {
            let style = AnsiColor::Cyan.on_default().bold();
            self.labelled("hint", style, &hint);
        }
        code
    }

    /// Ends the running stage as done.
    pub fn finish_drawing(&self) {
        self.end_board();
        if self.end_stage(ResultMark::Done) && self.0.drawing.is_none() {
            self.print_plain("done");
        }
    }

    /// Ends the running stage as done; what follows is printed below its line.
    pub fn finish_stage(&self) {
        self.end_stage(ResultMark::Done);
    }

    /// Writes data to stdout. A reader that went away (`
    ///  head`) is not an error.
    pub fn write_data(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.finish_drawing();
        self.stream_data(bytes).map(drop)
    }

    /// Writes a document to stdout as JSON, with a newline at its end.
    ///
    /// # Errors
    /// It cannot be written as JSON, or stdout cannot be written to.
    pub fn print_json(&self, document: &impl serde::Serialize) -> anyhow::Result<()> {
        Ok(self.write_data(&json_bytes(document)?)?)
    }

    /// Writes a document to stdout: as JSON, or as the page of its report.
    ///
    /// # Errors
    /// As [`Console::print_json`].
    pub fn show_document(
        &self,
        json: bool,
        document: &impl serde::Serialize,
        report: impl FnOnce() -> anyhow::Result<Report>,
    ) -> anyhow::Result<()> {
        if json {
            return self.print_json(document);
        }
        self.print_report(&report()?)
    }

    /// Writes a document to stdout: as JSON, or as the page that `render` makes of it.
    ///
    /// # Errors
    /// As [`Console::print_json`].
    pub fn show_page(
        &self,
        json: bool,
        document: &impl serde::Serialize,
        render: impl FnOnce(TextOptions) -> String,
    ) -> anyhow::Result<()> {
        if json {
            return self.print_json(document);
        }
        Ok(self.write_data(render(self.page_options()).as_bytes())?)
    }

    /// A report on stdout, as it suits a terminal.
    ///
    /// # Errors
    /// As [`Console::write_data`].
    pub fn print_report(&self, report: &Report) -> anyhow::Result<()> {
        let page = render_page(report, self.text_options(), PageDetail::Essential);
        Ok(self.write_data(page.as_bytes())?)
    }

    /// As [`Console::write_data`], of which there will be more. False once the reader is gone.
    pub fn stream_data(&self, bytes: &[u8]) -> Result<bool, Failure> {
        let bytes = redact_bytes(bytes);
        let write = || {
            let mut stdout = io::stdout().lock();
            until_broken_pipe(stdout.write_all(&bytes).and_then(|()| stdout.flush()))
        };
        let written = match &self.0.drawing {
            Some(drawing) => drawing.bars.suspend(write),
            None => write(),
        };
        written.map_err(|e| Failure::environment("cannot write to standard output").caused_by(e))
    }

    /// Whether a page on stdout can be drawn over.
    pub fn draws_pages(&self) -> bool {
        terminal::can_draw(&io::stdout())
    }

    /// Shows a page in place of the one before; off a terminal one below the other. False once the
    /// reader is gone.
    pub fn redraw_page(&self, page: &str) -> Result<bool, Failure> {
        if terminal::can_draw(&io::stdout()) {
            // Home, each line to its end, then whatever is left below.
            let page = page.replace('\n', "\x1b[K\n");
            self.stream_data(format!("\x1b[H{page}\x1b[J").as_bytes())
        } else {
            self.stream_data(format!("{page}\n").as_bytes())
        }
    }
}

/// Prints the message of the argument parser: a mistake, else the help or the version. A mistake
/// quotes an argument, and that may be a secret.
pub fn about_arguments(mistake: bool, plain: &str, coloured: &str) {
    let (mut out, color): (Box<dyn Write>, bool) = if mistake {
        let color = terminal::wants_color(ColorChoice::Auto, &io::stderr());
        (Box::new(io::stderr()), color)
    } else {
        let color = terminal::wants_color(ColorChoice::Auto, &io::stdout());
        (Box::new(io::stdout()), color)
    };
    let text = if color { coloured } else { plain };
    let _ = out.write_all(redact_distinct(text).as_bytes());
    let _ = out.flush();
}

/// Whether there is still a reader.
fn until_broken_pipe(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// The error and its causes on one line. A cause that its parent has quoted is not repeated.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for link in error.chain() {
        let link = link.to_string();
        if text.is_empty() {
            text = link;
        } else if !text.ends_with(&link) {
            text = format!("{text}: {link}");
        }
    }
    text
}

impl Console {
    fn take_progress(&self, progress: Progress) {
        match progress {
            Progress::Stage(stage) => self.begin_stage(stage),
            Progress::StageFailed => {
                self.end_stage(ResultMark::Failed);
            }
            Progress::Step { done, of } => self.set_step(done, of),
            Progress::Memory(bytes) => self.set_memory(bytes),
            Progress::Note(text) => self.print_note(&text),
            Progress::Warning(text) => self.print_warning(&text),
        }
    }

    fn labelled(&self, label: &str, style: Style, text: &str) {
        let label = format!("{label}:");
        let text = clean_text(&format!("{label} {text}"), self.0.look.unicode);
        let mut lines = wrap_line(&text, (self.0.width)());
        if let Some(rest) = lines.first().and_then(|line| line.strip_prefix(&label)) {
            lines[0] = format!("{}{rest}", self.0.look.paint_text(style, &label));
        }
        self.print_line(&lines.join("\n"));
    }

    /// Whole lines to stderr, above whatever is drawn. A failure to write cannot be reported.
    fn print_line(&self, line: &str) {
        let write = || {
            let mut out = lock_data(&self.0.out);
            let _ = out.write_all(format!("{}\n", redact_distinct(line)).as_bytes());
            let _ = out.flush();
        };
        match &self.0.drawing {
            Some(drawing) => drawing.bars.suspend(write),
            None => write(),
        }
    }

    /// Something that happened off a terminal: when, since the console began, and what.
    fn print_plain(&self, text: &str) {
        let at = self.0.began.elapsed().as_secs_f64();
        self.print_text(&format!("[{at:>7.1} s] {text}"));
    }
}

#[cfg(test)]
mod tests;
