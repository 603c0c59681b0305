//! `plimsoll top`: memory of the GPUs by owner, live, once, or for Prometheus.

use super::load::run_until_stopped;
use crate::cli::TopArgs;
use crate::collect::StopSignal;
use crate::console::Console;
use crate::error::ExitCode;
use crate::live::render::ScanDetail;
use crate::live::serve::MetricsServer;
use crate::live::{MemoryScan, MemoryWatcher, metrics, render};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

pub fn run_top(console: &Console, args: &TopArgs) -> anyhow::Result<ExitCode> {
    run_until_stopped(console, None, async |stop| top(console, args, stop).await)
}

async fn top(console: &Console, args: &TopArgs, stop: &StopSignal) -> anyhow::Result<ExitCode> {
    // A bad address must be reported before anything else is done.
    let door = match args.listen {
        Some(address) => Some(MetricsServer::open(address).await?),
        None => None,
    };
    let mut watcher = MemoryWatcher::open().await;
    if let Some(failure) = watcher.why_blind() {
        return Err(failure.into());
    }
    let pages = door.map(|door| {
        let (sender, pages) = watch::channel(String::new());
        if let Some(address) = door.local_address() {
            console.print_note(&format!("serving http://{address}/metrics"));
        }
        tokio::spawn(door.serve_pages(pages));
        sender
    });
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            _ = ticks.tick() => {}
        }
        let look = tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            look = watcher.scan_memory() => look,
        };
        match &pages {
            Some(pages) => {
                // The receiver lives as long as the door is served.
                let _ = pages.send(metrics::metrics_text(&look));
            }
            None => {
                if !show(console, args, &look)? {
                    return Ok(ExitCode::Done);
                }
            }
        }
        if args.once {
            return Ok(ExitCode::Done);
        }
    }
}

/// Shows a look; false once the reader of stdout is gone.
fn show(console: &Console, args: &TopArgs, look: &MemoryScan) -> anyhow::Result<bool> {
    if args.json {
        // A document a line, so that a stream of them can be read line by line.
        let mut text = if args.once {
            serde_json::to_vec_pretty(look)?
        } else {
            serde_json::to_vec(look)?
        };
        text.push(b'\n');
        Ok(console.stream_data(&text)?)
    } else {
        let detail = match console.page_size() {
            // The cursor is below the page.
            Some((rows, _)) if !args.once => ScanDetail::Screen { rows: rows - 1 },
            Some(_) => ScanDetail::Screen { rows: usize::MAX },
            None => ScanDetail::Everything,
        };
        let page = render::render_text(look, console.page_options(), detail);
        if args.once {
            Ok(console.stream_data(page.as_bytes())?)
        } else {
            Ok(console.redraw_page(&page)?)
        }
    }
}
