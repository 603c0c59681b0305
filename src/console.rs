//! Everything that a person sees on a terminal: stages, notes, warnings, errors, log lines.
//!
//! stdout is data, stderr is talk. On a terminal the running stage is drawn and finished stages
//! stay as one line each; elsewhere each stage is one plain line. Nothing is ever only drawn.

mod logger;
mod terminal;

use crate::error::{ExitCode, Failure, verdict};
use crate::progress::{Progress, Sink, Stage};
use crate::report::layout::{clean, duration};
use crate::report::text::TextOptions;
use crate::units::Bytes;
use anstyle::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` says otherwise.
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
    /// No stages, no notes. Warnings and errors are still told.
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
    look: Look,
    summary: TextOptions,
    /// What is drawn; `None` off a terminal and when quiet.
    bars: Option<MultiProgress>,
    began: Instant,
    running: Mutex<Option<Running>>,
    /// Where lines go. indicatif's own `println` prints nothing when its target is hidden.
    out: Mutex<Box<dyn Write + Send>>,
}

/// Colours and marks on stderr.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    unicode: bool,
    color: bool,
}

struct Running {
    stage: Stage,
    since: Instant,
    bar: Option<ProgressBar>,
    memory: Option<u64>,
}

/// How a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    Failed,
}

impl Console {
    /// A console on this process' stdout and stderr.
    pub fn new(options: ConsoleOptions) -> Console {
        let unicode = terminal::locale_is_utf8(|name| std::env::var(name).ok());
        let look = Look {
            unicode,
            color: terminal::color(options.color, &io::stderr()),
        };
        let summary = TextOptions {
            width: terminal::stdout_width(),
            color: terminal::color(options.color, &io::stdout()),
            unicode,
        };
        let bars = (!options.quiet && terminal::stderr_can_draw())
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Console::with_parts(options, look, summary, bars, Box::new(io::stderr()))
    }

    fn with_parts(
        options: ConsoleOptions,
        look: Look,
        summary: TextOptions,
        bars: Option<MultiProgress>,
        out: Box<dyn Write + Send>,
    ) -> Console {
        Console(Arc::new(Inner {
            quiet: options.quiet,
            verbose: options.verbose,
            look,
            summary,
            bars,
            began: Instant::now(),
            running: Mutex::new(None),
            out: Mutex::new(out),
        }))
    }

    /// How a summary should look on this process' stdout.
    pub fn text_options(&self) -> TextOptions {
        self.0.summary
    }

    /// Sends the `log` messages of this program and its libraries here. Once per process; later
    /// calls change nothing.
    pub fn install_logger(&self) {
        logger::install(self.clone(), self.0.verbose);
    }

    /// The way in for a run's news.
    pub fn sink(&self) -> Sink {
        let console = self.clone();
        Arc::new(move |news| console.0.take(news))
    }

    /// Something worth a line.
    pub fn note(&self, text: &str) {
        self.0.note(text);
    }

    /// Something that may spoil what comes out.
    pub fn warning(&self, text: &str) {
        self.0.warning(text);
    }

    /// Tells an error once, with its causes and advice, and gives its exit code. A stage that was
    /// running is told as failed.
    pub fn error(&self, error: &anyhow::Error) -> ExitCode {
        self.0.end_stage(Ended::Failed);
        let (code, hints) = verdict(error);
        let style = AnsiColor::Red.on_default().bold();
        self.0.labelled("error", style, &chain(error));
        if !hints.is_empty() {
            self.0.line("");
        }
        for hint in hints {
            let style = AnsiColor::Cyan.on_default().bold();
            self.0.labelled("hint", style, &hint);
        }
        code
    }

    /// Ends the running stage as done. Call it before data goes out.
    pub fn finish(&self) {
        if self.0.end_stage(Ended::Done) && self.0.bars.is_none() {
            self.0.plain_stage("done");
        }
    }

    /// Writes data to stdout. A reader that went away (`| head`) is no error.
    pub fn data(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream(bytes).map(drop)
    }

    /// As [`Console::data`], of which there will be more. False when nobody reads it any more.
    pub fn stream(&self, bytes: &[u8]) -> Result<bool, Failure> {
        let write = || {
            let mut stdout = io::stdout().lock();
            until_broken_pipe(stdout.write_all(bytes).and_then(|()| stdout.flush()))
        };
        let written = match &self.0.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        };
        written.map_err(|e| Failure::environment("cannot write to standard output").caused_by(e))
    }
}

impl Console {
    /// Shows a page in place of the one before; off a terminal one below the other. False when
    /// nobody reads it any more.
    pub fn redraw(&self, page: &str) -> Result<bool, Failure> {
        if terminal::stdout_can_draw() {
            // Home, each line to its end, then whatever is left below.
            let page = page.replace('\n', "\x1b[K\n");
            self.stream(format!("\x1b[H{page}\x1b[J").as_bytes())
        } else {
            self.stream(format!("{page}\n").as_bytes())
        }
    }
}

/// Whether there is still a reader.
fn until_broken_pipe(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// The error and its causes on one line. A cause that its parent has quoted is not told twice.
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

impl Inner {
    fn take(&self, news: Progress) {
        match news {
            Progress::Stage(stage) => self.begin_stage(stage),
            Progress::Step { done, of } => self.step(done, of),
            Progress::Memory(bytes) => self.memory(bytes),
            Progress::Note(text) => self.note(&text),
            Progress::Warning(text) => self.warning(&text),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_stage(&self, stage: Stage) {
        if self.quiet || self.running().as_ref().is_some_and(|r| r.stage == stage) {
            return;
        }
        self.end_stage(Ended::Done);
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner());
            bar.set_style(self.spinner());
            bar.set_prefix(stage.label());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            // Told at its start: a run that hangs must say where.
            self.plain_stage(&stage.label());
        }
        *self.running() = Some(Running {
            stage,
            since: Instant::now(),
            bar,
            memory: None,
        });
    }

    /// Ends the running stage; false when there was none.
    fn end_stage(&self, ended: Ended) -> bool {
        let Some(running) = self.running().take() else {
            return false;
        };
        let label = running.stage.label();
        let Some(bar) = running.bar else {
            // The next stage's line says when this one ended.
            if ended == Ended::Failed {
                self.plain_stage(&format!("{label}: failed"));
            }
            return true;
        };
        bar.finish_and_clear();
        if let Some(bars) = &self.bars {
            bars.remove(&bar);
        }
        let (mark, style) = match (ended, self.look.unicode) {
            (Ended::Done, true) => ("✓", AnsiColor::Green.on_default()),
            (Ended::Done, false) => ("*", AnsiColor::Green.on_default()),
            (Ended::Failed, true) => ("✗", AnsiColor::Red.on_default()),
            (Ended::Failed, false) => ("x", AnsiColor::Red.on_default()),
        };
        let mark = self.paint(style, mark);
        let elapsed = duration(running.since.elapsed().as_secs_f64());
        let detail = format!("{elapsed}  {}", detail(running.memory));
        let detail = self.paint(Style::new().dimmed(), detail.trim_end());
        self.line(&format!("{mark} {label:<18}  {detail}"));
        true
    }

    /// A stage off a terminal: when, since the console began, and what.
    fn plain_stage(&self, text: &str) {
        let at = self.began.elapsed().as_secs_f64();
        self.line(&format!("[{at:>7.1} s] {text}"));
    }

    fn step(&self, done: u64, of: u64) {
        let mut running = self.running();
        if let Some(Running {
            bar: Some(bar),
            memory,
            ..
        }) = running.as_mut()
            && of > 0
        {
            if bar.length() != Some(of) {
                bar.set_style(self.bar());
                bar.set_length(of);
            }
            bar.set_position(done.min(of));
            bar.set_message(detail(*memory));
        }
    }

    fn memory(&self, bytes: u64) {
        let mut running = self.running();
        if let Some(running) = running.as_mut() {
            running.memory = Some(bytes);
            if let Some(bar) = &running.bar {
                bar.set_message(detail(running.memory));
            }
        }
    }

    fn spinner(&self) -> ProgressStyle {
        let style = self.template("{spinner} {prefix:18}  {elapsed}  {msg}");
        if self.look.unicode {
            style.tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ")
        } else {
            style.tick_chars("-\\|/ ")
        }
    }

    fn bar(&self) -> ProgressStyle {
        let style = self.template("{spinner} {prefix:18}  {elapsed}  {bar:24}  {pos}/{len}  {msg}");
        if self.look.unicode {
            style.tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ").progress_chars("━╸ ")
        } else {
            style.tick_chars("-\\|/ ").progress_chars("=> ")
        }
    }

    fn template(&self, template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            self.line(&clean(text, self.look.unicode));
        }
    }

    fn warning(&self, text: &str) {
        self.labelled("warning", AnsiColor::Yellow.on_default().bold(), text);
    }

    fn labelled(&self, label: &str, style: Style, text: &str) {
        let label = self.paint(style, &format!("{label}:"));
        self.line(&format!("{label} {}", clean(text, self.look.unicode)));
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.look.color {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    /// One whole line to stderr, above whatever is drawn. Nobody is left to be told of a failure.
    fn line(&self, line: &str) {
        let write = || {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = out.write_all(format!("{line}\n").as_bytes());
            let _ = out.flush();
        };
        match &self.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }
}

fn detail(memory: Option<u64>) -> String {
    memory.map_or_else(String::new, |b| Bytes(b).to_string())
}

#[cfg(test)]
mod tests;
