//! What a sweep shows, on a terminal and off it.

use super::*;
use crate::console::tests::{off_terminal, terminal_of, without_times};
use crate::error::Failure;
use crate::progress::Stage;
use indicatif::InMemoryTerm;
use std::time::Duration;

/// A board that is drawn only when asked: what is on the screen does not hang on the hour.
fn board_on(
    size: (u16, u16),
    same: fn() -> (usize, usize),
    unicode: bool,
) -> (Console, InMemoryTerm) {
    terminal_of(size, same, unicode, Duration::ZERO)
}

fn wide() -> (Console, InMemoryTerm) {
    board_on((24, 100), || (24, 100), true)
}

/// The screen, with everything on it as it is now.
fn screen(board: &SweepBoard, term: &InMemoryTerm) -> Vec<String> {
    {
        let drawn = lock_data(&board.0.drawn);
        for bar in drawn.lanes.values().chain(&drawn.overall) {
            bar.force_draw();
        }
    }
    lines(term)
}

fn lines(term: &InMemoryTerm) -> Vec<String> {
    let text = without_times(&term.contents());
    text.lines().map(str::to_owned).collect()
}

fn row(done: u64, status: RowStatus, detail: &str) -> CellLine {
    CellLine {
        done,
        of: 18,
        label: "llama-8b in 256 out 128 batch 8".into(),
        status,
        detail: detail.into(),
    }
}

/// What is drawn for a lane, without its spinner.
fn lane_of<'a>(screen: &'a [String], label: &str) -> &'a str {
    let line = screen.iter().find(|line| line.contains(label));
    line.unwrap_or_else(|| panic!("no lane {label}: {screen:#?}"))
        .trim_start_matches(|c: char| !c.is_ascii_alphanumeric())
}

#[test]
fn two_lanes_stand_above_the_overall_bar_and_do_not_tangle() {
    let (console, term) = wide();
    let board = console.show_sweep(18, 6);
    let one = board.open_lane("llama-8b tp2 on gpu 0,1");
    let two = board.open_lane("qwen-1b on gpu 2");
    one.begin_cell("in 256 out 128 batch 8");
    two.begin_cell("in 512 out 128");
    let (first, second) = (one.sink(), two.sink());
    first(Progress::Stage(Stage::Bench { repeat: 1, of: 2 }));
    second(Progress::Stage(Stage::WaitHealthy));
    second(Progress::Memory(3 << 30));
    first(Progress::Memory(3 << 29));
    first(Progress::Step { done: 5, of: 10 });
    board.set_forecast(Some(7650.0));
    let shown = screen(&board, &term);
    assert_eq!(shown.len(), 3, "{shown:#?}");
    assert_eq!(
        lane_of(&shown[..1], "llama"),
        "llama-8b tp2 on gpu 0,1 · in 256 out 128 batch 8 · bench 1/2 · _ s · peak 1.50 GiB"
    );
    assert_eq!(
        lane_of(&shown[1..2], "qwen"),
        "qwen-1b on gpu 2 · in 512 out 128 · wait until healthy · _ s · peak 3.00 GiB"
    );
    assert_eq!(
        shown[2],
        "sweep  ━━━━━━━━╸                 6/18  33 %  eta 2h 07m"
    );

    // The next stage has other figures; another lane keeps its own.
    first(Progress::Stage(Stage::Derive));
    drop(two);
    let shown = screen(&board, &term);
    assert_eq!(shown.len(), 2, "{shown:#?}");
    assert_eq!(
        lane_of(&shown, "llama"),
        "llama-8b tp2 on gpu 0,1 · in 256 out 128 batch 8 · derive · _ s"
    );
    // The sink of a lane that is gone draws nothing.
    second(Progress::Stage(Stage::Cleanup));
    assert_eq!(screen(&board, &term).len(), 2);
}

#[test]
fn the_step_of_a_bench_is_a_bar_where_there_is_room() {
    let (console, term) = wide();
    let board = console.show_sweep(18, 0);
    let lane = board.open_lane("llama-8b");
    lane.begin_cell("in 256 out 128");
    let sink = lane.sink();
    sink(Progress::Stage(Stage::Bench { repeat: 1, of: 1 }));
    sink(Progress::Step { done: 5, of: 0 });
    sink(Progress::Step { done: 5, of: 10 });
    assert_eq!(
        lane_of(&screen(&board, &term), "llama"),
        "llama-8b · in 256 out 128 · bench 1/1 · _ s  ━━━━━━╸       5/10"
    );
}

#[test]
fn finished_cells_stay_and_failed_ones_are_counted() {
    let (console, term) = wide();
    let board = console.show_sweep(18, 6);
    let lane = board.open_lane("llama-8b");
    board.cell_done(&row(7, RowStatus::Done, "peak 12.3 GiB, 812 tok/s"));
    board.cell_done(&row(8, RowStatus::Failed, "the engine ran\nout of memory"));
    board.cell_done(&row(
        9,
        RowStatus::Skipped,
        "needs no less than one that did not fit",
    ));
    let shown = screen(&board, &term);
    assert_eq!(
        shown[..3],
        [
            "✓  7/18  llama-8b in 256 out 128 batch 8  peak 12.3 GiB, 812 tok/s",
            "✗  8/18  llama-8b in 256 out 128 batch 8  the engine ran out of memory",
            "-  9/18  llama-8b in 256 out 128 batch 8  needs no less than one that did not fit",
        ],
        "{shown:#?}"
    );
    assert!(shown[3].contains("llama-8b · _ s"), "{shown:#?}");
    assert_eq!(
        shown[4],
        "sweep  ━━━━━━━━━━━━╸             9/18  50 %  1 failed  1 skipped  eta ?"
    );
    assert_eq!(shown.len(), 5, "{shown:#?}");
    drop(lane);
}

#[test]
fn a_time_that_is_not_known_or_has_passed_is_no_zero() {
    let (console, term) = wide();
    let board = console.show_sweep(18, 0);
    for unknown in [
        None,
        Some(f64::NAN),
        Some(f64::INFINITY),
        Some(-3.0),
        Some(0.0),
    ] {
        board.set_forecast(Some(200.0));
        assert!(screen(&board, &term)[0].contains("eta 3m "));
        board.set_forecast(unknown);
        let shown = screen(&board, &term);
        assert!(
            shown[0].ends_with("0/18  0 %  eta ?"),
            "{unknown:?}: {shown:#?}"
        );
    }
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    let mut counts = BoardCounts {
        of: 18,
        forecast: Some((59.0, long_ago)),
        ..BoardCounts::default()
    };
    assert_eq!(counts.eta_text().as_deref(), Some("eta ?"));
    counts.forecast = Some((630.0, long_ago));
    assert!(counts.eta_text().unwrap().starts_with("eta 9m "));
    counts.done = 18;
    assert_eq!(counts.eta_text(), None);
}

#[test]
fn a_board_that_ends_in_the_middle_leaves_nothing_drawn() {
    // With pictures that come on their own: after the end none may come.
    let (console, term) = terminal_of((24, 100), || (24, 100), true, Duration::from_millis(1));
    let board = console.show_sweep(18, 0);
    let (one, two) = (board.open_lane("llama-8b"), board.open_lane("qwen-1b"));
    let sink = one.sink();
    sink(Progress::Stage(Stage::Start));
    board.cell_done(&row(1, RowStatus::Failed, "interrupted"));
    board.finish_board();
    board.finish_board();
    sink(Progress::Stage(Stage::Cleanup));
    sink(Progress::Memory(1 << 30));
    sink(Progress::Warning("a container stays".into()));
    two.begin_cell("in 1 out 1");
    board.set_forecast(Some(10.0));
    let late = board.open_lane("late");
    board.cell_done(&row(2, RowStatus::Done, "peak 1.0 GiB"));
    drop((one, two, late, board));
    assert_eq!(
        lines(&term),
        [
            "✗  1/18  llama-8b in 256 out 128 batch 8  interrupted",
            "✗ sweep: 1 of 18 cells, 1 failed",
            "warning: llama-8b: a container stays",
            "✓  2/18  llama-8b in 256 out 128 batch 8  peak 1.0 GiB",
        ]
    );
}

#[test]
fn the_cause_of_a_failure_wraps_below_its_cell() {
    let (console, term) = board_on((24, 60), || (24, 60), true);
    let board = console.show_sweep(18, 17);
    let cause = "engine_failed: the engine ended before it served; the last line of its log is `out of memory`";
    board.cell_done(&row(18, RowStatus::Failed, cause));
    board.finish_board();
    assert_eq!(
        lines(&term),
        [
            "✗ 18/18  llama-8b in 256 out 128 batch 8",
            "    engine_failed: the engine ended before it served; the",
            "    last line of its log is `out of memory`",
            "✗ sweep: 18 of 18 cells, 1 failed",
        ]
    );
}

#[test]
fn an_error_ends_the_board_before_it_is_printed() {
    let (console, term) = wide();
    let board = console.show_sweep(2, 0);
    let lane = board.open_lane("llama-8b");
    console.print_error(&Failure::environment("no space left").into());
    assert_eq!(
        screen(&board, &term),
        ["- sweep: 0 of 2 cells", "error: no space left"]
    );
    drop(lane);
}

#[test]
fn a_dropped_board_has_ended() {
    let (console, term) = wide();
    let sink = {
        let board = console.show_sweep(1, 0);
        let lane = board.open_lane("llama-8b");
        board.cell_done(&row(1, RowStatus::Done, "peak 1.0 GiB"));
        lane.sink()
    };
    sink(Progress::Stage(Stage::Cleanup));
    assert_eq!(lines(&term)[1..], ["✓ sweep: 1 of 1 cells"]);
}

#[test]
fn off_a_terminal_a_cell_is_two_lines_and_its_stages_are_none() {
    let (console, captured) = off_terminal(false);
    console.sink()(Progress::Stage(Stage::Inspect));
    let board = console.show_sweep(18, 6);
    let one = board.open_lane("llama-8b tp2 on gpu 0,1");
    let two = board.open_lane("qwen-1b on gpu 2");
    one.begin_cell("in 256 out 128");
    two.begin_cell("in 512 out 128");
    for progress in [
        Progress::Stage(Stage::Baseline),
        Progress::Stage(Stage::Bench { repeat: 1, of: 1 }),
        Progress::Step { done: 1, of: 4 },
        Progress::Memory(1 << 30),
        Progress::Note("its image has no `rm`".into()),
    ] {
        one.sink()(progress);
    }
    board.cell_done(&row(7, RowStatus::Done, "peak 12.3 GiB, 812 tok/s"));
    board.set_forecast(Some(7650.0));
    drop(two);
    board.cell_done(&row(8, RowStatus::Failed, "the engine died"));
    drop(one);
    board.finish_board();
    console.finish_drawing();
    assert_eq!(
        without_times(&captured.text()),
        "[    _ s] inspect\n\
         [    _ s] sweep: 18 cells, 6 of them done before\n\
         [    _ s] llama-8b tp2 on gpu 0,1: begin\n\
         [    _ s] qwen-1b on gpu 2: begin\n\
         [    _ s] llama-8b tp2 on gpu 0,1: in 256 out 128\n\
         [    _ s] qwen-1b on gpu 2: in 512 out 128\n\
         llama-8b tp2 on gpu 0,1, in 256 out 128: its image has no `rm`\n\
         [    _ s]  7/18 done    llama-8b in 256 out 128 batch 8: peak 12.3 GiB, 812 tok/s (eta ?)\n\
         [    _ s] qwen-1b on gpu 2: end\n\
         [    _ s]  8/18 failed  llama-8b in 256 out 128 batch 8: the engine died (eta 2h 07m)\n\
         [    _ s] llama-8b tp2 on gpu 0,1: end\n\
         [    _ s] sweep: 8 of 18 cells, 1 failed\n"
    );
}

#[test]
fn a_note_of_every_cell_is_printed_once_and_counted() {
    let (console, captured) = off_terminal(true);
    let board = console.show_sweep(3, 0);
    let lane = board.open_lane("llama-8b");
    for cell in ["batch 1", "batch 2", "batch 4"] {
        lane.begin_cell(cell);
        lane.sink()(Progress::Warning("`--seed` has no effect".into()));
        lane.sink()(Progress::Note("a note".into()));
    }
    lane.sink()(Progress::Warning("GPU 0 was in use\n\u{1b}[2J".into()));
    board.cell_done(&row(1, RowStatus::Failed, "out of memory"));
    board.set_forecast(None);
    drop(lane);
    board.finish_board();
    // Quiet: warnings, and nothing else.
    assert_eq!(
        captured.text(),
        "warning: llama-8b, batch 1: `--seed` has no effect\n\
         warning: llama-8b, batch 4: GPU 0 was in use [2J\n\
         warning: llama-8b: came 2 times more: `--seed` has no effect\n"
    );
}

#[test]
fn long_names_are_cut_to_the_terminal_in_ascii_where_it_has_no_more() {
    let (console, term) = board_on((10, 60), || (10, 60), false);
    let board = console.show_sweep(10_000, 0);
    let name = format!("{}\u{1b}[2J\n量-7b", "very-long-".repeat(20));
    let lane = board.open_lane(&name);
    lane.begin_cell("in 256 out 128");
    lane.sink()(Progress::Stage(Stage::Bench { repeat: 1, of: 1 }));
    lane.sink()(Progress::Step { done: 5, of: 10 });
    lane.sink()(Progress::Warning("odd".into()));
    board.cell_done(&CellLine {
        label: format!("{name} in 256 out 128"),
        ..row(1, RowStatus::Done, "peak 1 GiB")
    });
    board.set_forecast(Some(7650.0));
    let shown = screen(&board, &term);
    assert!(shown.iter().all(|line| line.is_ascii()), "{shown:#?}");
    assert_eq!(
        shown[..3],
        [
            "warning: very-lo...g-very-long-[2J ?-7b, in 256 out 128: odd",
            "*  1/18  very-long-ve...ng-very-long-[2J ?-7b in 256 out 128",
            "    peak 1 GiB",
        ],
        "{shown:#?}"
    );
    assert!(
        shown[3].ends_with("?-7b - in 256 out 128 - bench 1/1 - _ s"),
        "{shown:#?}"
    );
    assert_eq!(
        shown[4],
        "sweep  >                         1/10000  0 %  eta 2h 07m"
    );
    assert_eq!(shown.len(), 5, "{shown:#?}");
}

#[test]
fn memory_is_visible_in_a_narrow_window() {
    let (console, term) = board_on((24, 60), || (24, 60), true);
    let board = console.show_sweep(18, 0);
    let lane = board.open_lane("llama-8b tp2 on gpu 0,1");
    lane.begin_cell("in 256 out 128 batch 8");
    lane.sink()(Progress::Stage(Stage::Bench { repeat: 1, of: 1 }));
    lane.sink()(Progress::Memory(12 << 30));
    assert_eq!(
        lane_of(&screen(&board, &term), "llama"),
        "llama-8… · in 256 out 128 ba… · bench 1/1 · peak 12.00 GiB"
    );
}

#[test]
fn the_overall_bar_is_kept_in_a_low_window() {
    let (console, term) = board_on((4, 40), || (4, 40), true);
    let board = console.show_sweep(18, 9);
    let lanes: Vec<BoardLine> = (0..6)
        .map(|i| board.open_lane(&format!("gpu {i}")))
        .collect();
    board.set_forecast(Some(7650.0));
    let shown = screen(&board, &term);
    assert!(
        shown.last().is_some_and(|line| line.starts_with("sweep")),
        "{shown:#?}"
    );
    assert!(shown[0].contains("gpu 0"), "{shown:#?}");
    drop(lanes);
    assert_eq!(screen(&board, &term).len(), 1);
}

#[test]
fn lanes_come_and_go_at_once() {
    let (console, term) = terminal_of((24, 100), || (24, 100), true, Duration::from_millis(1));
    let board = console.show_sweep(64, 0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let board = board.clone();
            scope.spawn(move || {
                for group in 0..4 {
                    let lane = board.open_lane(&format!("worker {worker} group {group}"));
                    let sink = lane.sink();
                    for cell in 0..4 {
                        lane.begin_cell(&format!("batch {cell}"));
                        sink(Progress::Stage(Stage::Bench { repeat: 1, of: 1 }));
                        sink(Progress::Memory(cell));
                        board.cell_done(&row(1, RowStatus::Done, "peak 1.0 GiB"));
                        board.set_forecast(Some(10.0));
                    }
                }
            });
        }
    });
    board.finish_board();
    let shown = lines(&term);
    let (last, cells) = shown.split_last().unwrap();
    assert_eq!(last, "✓ sweep: 64 of 64 cells");
    assert!(
        cells
            .iter()
            .all(|line| line == "✓  1/18  llama-8b in 256 out 128 batch 8  peak 1.0 GiB"),
        "{shown:#?}"
    );
}
