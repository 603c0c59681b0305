//! `plimsoll top`: memory of the GPUs by owner, live on a terminal, once as text, or as JSON.

use super::load::run_until_stopped;
use crate::cli::TopArgs;
use crate::collect::StopSignal;
use crate::console::Console;
use crate::console::screen::{OpenScreen, ScreenEvent};
use crate::error::ExitCode;
use crate::live::ledger::{LEDGER_FILE, WatchLedger};
use crate::live::screen::TopScreen;
use crate::live::{MemoryScan, MemoryWatcher, render};
use crate::store::SharedFile;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Between two readings of what `watch` remembers.
const LEDGER_EVERY: Duration = Duration::from_secs(5);

pub fn run_top(console: &Console, args: &TopArgs) -> anyhow::Result<ExitCode> {
    run_until_stopped(console, None, async |stop| top(console, args, stop).await)
}

async fn top(console: &Console, args: &TopArgs, stop: &StopSignal) -> anyhow::Result<ExitCode> {
    let mut watcher = match &args.replay {
        Some(path) => MemoryWatcher::open_recording(path)?,
        None => MemoryWatcher::open().await,
    };
    if let Some(failure) = watcher.why_blind() {
        return Err(failure.into());
    }
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if !args.once && !args.json && console.has_screen() {
        let mut screen = TopScreen::with_color(console.page_options().color);
        let mut open = console.open_screen()?;
        return show_screen(&mut open, &mut screen, &mut watcher, ticks, stop).await;
    }
    loop {
        tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            _ = ticks.tick() => {}
        }
        let look = tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            look = watcher.scan_memory() => look,
        };
        if !write_scan(console, args, &look)? || args.once {
            return Ok(ExitCode::Done);
        }
    }
}

/// Draws scan after scan until `q` or a signal.
async fn show_screen(
    open: &mut OpenScreen,
    screen: &mut TopScreen,
    watcher: &mut MemoryWatcher,
    mut ticks: Interval,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let mut ledger: Option<(Instant, WatchLedger)> = None;
    loop {
        let event = tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            event = open.next_event() => event,
            _ = ticks.tick() => {
                let scan = watcher.scan_memory().await;
                ledger = ledger.filter(|(read_at, _)| read_at.elapsed() < LEDGER_EVERY);
                let (_, known) = ledger.get_or_insert_with(|| (Instant::now(), read_ledger()));
                screen.take_scan(scan, known.clone());
                Some(ScreenEvent::Resize)
            }
        };
        let goes_on = match event {
            Some(ScreenEvent::Key(key)) => screen.press_key(key),
            Some(ScreenEvent::Resize) => true,
            Some(ScreenEvent::Interrupt) | None => false,
        };
        if !goes_on {
            return Ok(ExitCode::Done);
        }
        open.draw_screen(screen)?;
    }
}

/// What `watch` remembers, where this user runs it.
fn read_ledger() -> WatchLedger {
    let bytes = SharedFile::read_unlocked(LEDGER_FILE).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Writes a scan to stdout; false once its reader is gone.
fn write_scan(console: &Console, args: &TopArgs, look: &MemoryScan) -> anyhow::Result<bool> {
    if !args.json {
        let page = render::render_text(look, console.page_options());
        return Ok(console.stream_data(page.as_bytes())?);
    }
    // A document a line, so that a stream of them can be read line by line.
    let mut text = if args.once {
        serde_json::to_vec_pretty(look)?
    } else {
        serde_json::to_vec(look)?
    };
    text.push(b'\n');
    Ok(console.stream_data(&text)?)
}
