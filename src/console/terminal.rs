//! What the terminal can show: width, colour, characters beyond ASCII.

use super::ColorChoice;
use anstream::stream::RawStream;
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// Width of text that goes to no terminal, and to none through a pipe.
const PLAIN_WIDTH: usize = 88;
/// A page wider than this is no longer read at a glance.
const WIDEST: usize = 110;

/// Cells for a summary on stdout: the terminal's, off a terminal those of `COLUMNS`, else those of the terminal that stderr
/// has, where a pager or `tail` shows it.
pub(super) fn stdout_width() -> usize {
    let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = match terminal_size(&std::io::stdout()) {
        Some((_, columns)) => columns,
        None => {
            let beside = || terminal_size(&std::io::stderr()).map(|(_, columns)| columns);
            let asked = asked().filter(|n| *n > 0);
            asked.or_else(beside).unwrap_or(PLAIN_WIDTH)
        }
    };
    columns.min(WIDEST)
}

/// Rows and columns of a stream's terminal, 24 by 80 where it does not report them; `None` off a
/// terminal.
pub(super) fn terminal_size(stream: &(impl IsTerminal + AsFd)) -> Option<(usize, usize)> {
    stream.is_terminal().then(|| {
        rustix::termios::tcgetwinsize(stream)
            .ok()
            .map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)))
            .filter(|(rows, columns)| *rows > 0 && *columns > 0)
            .unwrap_or((24, 80))
    })
}

/// Rows and columns of what is drawn on stderr.
pub(super) fn stderr_size() -> (usize, usize) {
    terminal_size(&std::io::stderr()).unwrap_or((24, 80))
}

/// Cells of a line on stderr; off a terminal a line has no end.
pub(super) fn stderr_width() -> usize {
    terminal_size(&std::io::stderr()).map_or(usize::MAX, |(_, columns)| columns)
}

/// Whether what was drawn on a stream can be drawn over.
pub(super) fn can_draw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Whether to colour what goes to this stream. `NO_COLOR`, `CLICOLOR` and `TERM` count as
/// everywhere.
pub(super) fn wants_color(choice: ColorChoice, stream: &impl RawStream) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
    }
}

/// Whether the locale's characters are UTF-8. No locale is the C locale: ASCII.
pub(super) fn locale_is_utf8(var: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| var(name).filter(|v| !v.is_empty()))
        .is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        let utf8 = |set: &[(&str, &str)]| {
            locale_is_utf8(|name| {
                set.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| (*v).to_owned())
            })
        };
        assert!(utf8(&[("LANG", "en_US.UTF-8")]));
        assert!(utf8(&[("LC_ALL", ""), ("LANG", "C.utf8")]));
        assert!(!utf8(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!utf8(&[]));
    }
}
