//! A `log` backend to stderr: warnings always, what the program does with `-v`, details with `-vv`.

use super::Console;
use anstyle::{AnsiColor, Style};
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Logger {
    console: Console,
    level: LevelFilter,
}

/// Levels by `-v`.
fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    }
}

/// Libraries that write whole requests into their log: bodies and environments can hold tokens,
/// so they never say more than warnings.
fn limit_for_target(target: &str, level: LevelFilter) -> LevelFilter {
    let library = target.split("::").next().unwrap_or(target);
    match library {
        "bollard" | "bollard_stubs" | "hyper" | "hyper_util" | "h2" => level.min(LevelFilter::Warn),
        _ => level,
    }
}

pub(super) fn install_logger(console: Console, verbose: u8) {
    let level = level(verbose);
    if log::set_boxed_logger(Box::new(Logger { console, level })).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= limit_for_target(metadata.target(), self.level)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (label, style) = match record.level() {
            Level::Error => ("error", AnsiColor::Red.on_default()),
            Level::Warn => ("warning", AnsiColor::Yellow.on_default()),
            Level::Info => ("info", Style::new().dimmed()),
            Level::Debug | Level::Trace => ("debug", Style::new().dimmed()),
        };
        let text = format!("{} ({})", record.args(), record.target());
        self.console.labelled(label, style, &text);
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_log_requests_stay_at_warnings() {
        assert_eq!(
            limit_for_target("bollard::uri", level(2)),
            LevelFilter::Warn
        );
        assert_eq!(
            limit_for_target("hyper_util::client", level(2)),
            LevelFilter::Warn
        );
        assert_eq!(
            limit_for_target("plimsoll::collect", level(2)),
            LevelFilter::Debug
        );
        assert_eq!(limit_for_target("hyperfine", level(1)), LevelFilter::Info);
        assert_eq!(level(0), LevelFilter::Warn);
    }
}
