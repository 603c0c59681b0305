//! What the console prints, on a terminal and off it.

use super::*;
use crate::error::Failure;
use crate::progress::Stage;
use anyhow::Context as _;
use indicatif::{InMemoryTerm, TermLike as _};

#[derive(Clone, Default)]
pub(super) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines that go to the same screen as what is drawn.
struct Screen(InMemoryTerm);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).unwrap().replace('\n', "\r\n");
        self.0.write_str(&text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

pub(super) fn off_terminal(quiet: bool) -> (Console, Captured) {
    let captured = Captured::default();
    let options = ConsoleOptions {
        quiet,
        ..Default::default()
    };
    let console = Console::with_parts(
        options,
        TerminalStyle::default(),
        TextOptions::default(),
        None,
        (Box::new(|| usize::MAX), Box::new(captured.clone())),
    );
    (console, captured)
}

fn on_terminal() -> (Console, InMemoryTerm) {
    terminal_of((24, 100), || (24, 100), true, TICK)
}

/// A console on a terminal in memory; both sizes are the same.
pub(super) fn terminal_of(
    (rows, columns): (u16, u16),
    size: fn() -> (usize, usize),
    unicode: bool,
    tick: Duration,
) -> (Console, InMemoryTerm) {
    let term = InMemoryTerm::new(rows, columns);
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(term.clone()), 200);
    let look = TerminalStyle {
        unicode,
        color: false,
    };
    let console = Console::with_parts(
        ConsoleOptions::default(),
        look,
        TextOptions::default(),
        Some(DrawingState {
            bars: MultiProgress::with_draw_target(target),
            size,
            tick,
        }),
        (Box::new(move || size().1), Box::new(Screen(term.clone()))),
    );
    (console, term)
}

/// Times are not the same twice.
pub(super) fn without_times(text: &str) -> String {
    regex::Regex::new(r"\d+(\.\d)? ?s\b")
        .unwrap()
        .replace_all(text, "_ s")
        .into_owned()
}

#[test]
fn off_a_terminal_each_stage_is_one_line_and_nothing_is_lost() {
    let (console, captured) = off_terminal(false);
    let sink = console.sink();
    for progress in [
        Progress::Stage(Stage::Inspect),
        Progress::Stage(Stage::Bench { repeat: 1, of: 2 }),
        Progress::Stage(Stage::Bench { repeat: 1, of: 2 }),
        Progress::Step { done: 1, of: 4 },
        Progress::Memory(1 << 30),
        Progress::Note("bench help is cached".into()),
        Progress::Warning("the log\u{1b}[2J outgrew its cap".into()),
        Progress::Stage(Stage::Derive),
    ] {
        sink(progress);
    }
    console.finish_drawing();
    console.finish_drawing();
    assert_eq!(
        without_times(&captured.text()),
        "[    _ s] inspect\n\
         [    _ s] bench 1/2\n\
         bench help is cached\n\
         warning: the log[2J outgrew its cap\n\
         [    _ s] derive\n\
         [    _ s] done\n"
    );
}

#[test]
fn quiet_silences_stages_and_notes_only() {
    let (console, captured) = off_terminal(true);
    let sink = console.sink();
    sink(Progress::Stage(Stage::Baseline));
    sink(Progress::Note("a note".into()));
    sink(Progress::Warning("a warning".into()));
    console.finish_drawing();
    console.print_error(&anyhow::anyhow!("an error"));
    let text = captured.text();
    assert!(
        text.starts_with("warning: a warning\nerror: an error\n"),
        "{text}"
    );
    assert!(!text.contains("note") && !text.contains("baseline"));
}

#[test]
fn on_a_terminal_finished_stages_stay_and_the_running_one_is_drawn() {
    let (console, term) = on_terminal();
    let sink = console.sink();
    sink(Progress::Stage(Stage::Inspect));
    sink(Progress::Stage(Stage::Baseline));
    sink(Progress::Memory(3 << 29));
    // The process has ended: the peak stays.
    sink(Progress::Memory(1 << 20));
    std::thread::sleep(Duration::from_millis(60));
    sink(Progress::Stage(Stage::Bench { repeat: 1, of: 1 }));
    sink(Progress::Warning("another process entered device 0".into()));
    sink(Progress::Step { done: 5, of: 10 });
    std::thread::sleep(Duration::from_millis(300));
    let screen = without_times(&term.contents());
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(
        lines[0], "✓ baseline            _ s  peak 1.50 GiB",
        "no time was spent on inspect: {screen}"
    );
    assert_eq!(lines[1], "warning: another process entered device 0");
    assert!(
        lines[2].contains("bench 1/1") && lines[2].contains("5/10") && lines[2].contains('━'),
        "{screen}"
    );
    let code = console.print_error(&Failure::run("the bench exited with 1").into());
    assert_eq!(code, ExitCode::RunFailed);
    let screen = without_times(&term.contents());
    assert!(screen.contains("✗ bench 1/1           _ s"), "{screen}");
    assert!(
        screen.contains("error: the bench exited with 1"),
        "{screen}"
    );
    assert!(!screen.contains("5/10"), "what was drawn is gone: {screen}");
}

#[test]
fn messages_wrap_at_words_within_the_terminal() {
    let (console, term) = terminal_of((24, 60), || (24, 60), true, TICK);
    let path = "/data/results/sweeps/a-long-name/20261123_214500/engine.log";
    console.print_note(&format!("all that the engine printed is in `{path}`"));
    console.print_warning("the engine in container `llm` logs later than it works");
    let failure = Failure::run("the engine ended before it served: out of memory");
    console.print_error(
        &failure
            .hint("give it more memory with --memory, or a smaller model")
            .into(),
    );
    assert_eq!(
        term.contents().lines().collect::<Vec<_>>(),
        [
            "all that the engine printed is in",
            "  `/data/results/sweeps/a-long-name/20261123_214500/",
            "  engine.log`",
            "warning: the engine in container `llm` logs later than it",
            "  works",
            "error: the engine ended before it served: out of memory",
            "",
            "hint: give it more memory with --memory, or a smaller model",
        ]
    );
}

#[test]
fn an_error_is_printed_once_with_its_causes_and_advice() {
    let (console, captured) = off_terminal(false);
    let failure = Failure::environment("cannot reach Docker")
        .caused_by("permission denied")
        .hint("add yourself to the group `docker`");
    let error = Err::<(), _>(anyhow::Error::from(failure))
        .context("cannot profile `llm`")
        .unwrap_err();
    assert_eq!(console.print_error(&error), ExitCode::Environment);
    assert_eq!(
        captured.text(),
        "error: cannot profile `llm`: cannot reach Docker: permission denied\n\n\
         hint: add yourself to the group `docker`\n"
    );
}

#[test]
fn a_cause_that_was_quoted_already_is_not_repeated() {
    let error = anyhow::anyhow!("no such file").context("cannot read x.json: no such file");
    assert_eq!(chain(&error), "cannot read x.json: no such file");
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let gone = io::Error::from(io::ErrorKind::BrokenPipe);
    assert!(until_broken_pipe(Err(gone)).is_ok());
    let full = io::Error::from(io::ErrorKind::StorageFull);
    assert!(until_broken_pipe(Err(full)).is_err());
}

#[test]
fn a_stage_that_did_not_reach_its_end_has_a_cross_and_a_later_one_has_not() {
    let (console, term) = on_terminal();
    let sink = console.sink();
    sink(Progress::Stage(Stage::WaitHealthy));
    sink(Progress::Memory(1 << 30));
    sink(Progress::StageFailed);
    sink(Progress::Stage(Stage::Cleanup));
    sink(Progress::Memory(1 << 30));
    std::thread::sleep(Duration::from_millis(60));
    console.finish_stage();
    let screen = without_times(&term.contents());
    assert_eq!(
        screen.lines().collect::<Vec<_>>(),
        [
            "✗ wait until healthy  _ s  peak 1.00 GiB",
            "✓ clean up            _ s",
        ]
    );
}
