//! A log line as text: colour removed, pieces of a redrawn line, level and message, quotes.

use super::words::Words;
use std::borrow::Cow;
use std::sync::LazyLock;

/// Bytes of a line that a fact quotes at most.
pub const LONGEST_QUOTE: usize = 600;

/// Level of a log record, as the engine prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// `DEBUG`, `INFO`, `WARNING`: nothing has failed.
    Quiet,
    /// `ERROR`, `CRITICAL`.
    Error,
    /// No record prefix: a traceback, a tool's own output, or a prefix that was stripped.
    Unknown,
}

/// Copies `raw` into `out` without colour and control bytes. Keeps `\r`, which separates the states
/// of a redrawn line (progress bars).
pub fn clean(raw: &[u8], out: &mut String) {
    out.clear();
    let text =
        std::str::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed);
    let bytes = text.as_bytes();
    // Control bytes, and those that a terminal sequence may begin with.
    let is_special = |b: &u8| *b < b' ' || matches!(b, b'#' | b'^' | b'[');
    let (mut from, mut at) = (0, 0);
    while let Some(next) = bytes[at..].iter().position(is_special) {
        at += next;
        let (len, instead) = match (escape_len(&bytes[at..]), bytes[at]) {
            (Some(len), _) => (len, ""),
            (None, b'\t') => (1, " "),
            (None, byte) if byte >= b' ' || byte == b'\r' => {
                at += 1;
                continue;
            }
            (None, _) => (1, ""),
        };
        out.push_str(&text[from..at]);
        out.push_str(instead);
        at = (at + len).min(bytes.len());
        from = at;
    }
    out.push_str(&text[from..]);
}

/// Length of the terminal sequence that `rest` begins with, if it begins with one.
///
/// Copies lose the ESC byte (`[1;36m`) or spell it (`#033[`, `^[[`), so those count too.
fn escape_len(rest: &[u8]) -> Option<usize> {
    let spelled = match rest {
        [0x1b, b'[', ..] => 2,
        [0x1b, b']', tail @ ..] => {
            let end = tail
                .iter()
                .take(256)
                .position(|b| *b == 0x07 || *b == 0x1b)?;
            return Some(2 + end + 1);
        }
        [0x1b, ..] => return Some(1),
        [b'#', b'0', b'3', b'3', b'[', ..] => 5,
        [b'^', b'[', b'[', ..] => 3,
        [b'[', ..] => {
            let digits = rest[1..]
                .iter()
                .take(10)
                .take_while(|b| b.is_ascii_digit() || **b == b';')
                .count();
            return (digits > 0 && rest.get(1 + digits) == Some(&b'm')).then_some(digits + 2);
        }
        _ => return None,
    };
    let parameters = rest[spelled..]
        .iter()
        .take(32)
        .take_while(|b| (0x20..0x40).contains(*b))
        .count();
    let last = rest.get(spelled + parameters)?;
    Some(spelled + parameters + usize::from((0x40..0x7f).contains(last)))
}

/// Level and message of a record: the text after `INFO 05-25 00:00:33 [file.py:12] `, in every form
/// of that prefix. Without one, the text after process prefixes and comment marks.
pub fn record(text: &str) -> (Level, &str) {
    let mut checked = [false; LEVELS.len()];
    let mut from = 0;
    while let Some((index, end)) = LEVEL_NAMES.find(&text.as_bytes()[from..]) {
        let Some((name, level)) = LEVELS.get(index) else {
            break;
        };
        from += end;
        // The first place of each name counts: a message may contain one too.
        if !checked[index] && opens_record(text, from - name.len(), name) {
            return (*level, message_after(&text[from..]));
        }
        checked[index] = true;
    }
    (Level::Unknown, bare(text))
}

/// The names of levels.
const LEVELS: [(&str, Level); 5] = [
    ("INFO", Level::Quiet),
    ("WARNING", Level::Quiet),
    ("DEBUG", Level::Quiet),
    ("ERROR", Level::Error),
    ("CRITICAL", Level::Error),
];

static LEVEL_NAMES: LazyLock<Words> = LazyLock::new(|| Words::new(&LEVELS.map(|(name, _)| name)));

/// Whether the name of a level at byte `at` is a record's own: a word, near the front, followed by
/// what follows a level.
fn opens_record(text: &str, at: usize, name: &str) -> bool {
    let before = text[..at].chars().next_back();
    let behind = &text[at + name.len()..];
    let next = behind.trim_start_matches(':').trim_start_matches(' ');
    let opens = next.starts_with('[')
        || next.starts_with(|c: char| c.is_ascii_digit())
        || next
            .split(' ')
            .next()
            .is_some_and(|w| w.contains(".py:") || w.is_empty())
        || behind.starts_with(':');
    before.is_none_or(|c| !c.is_alphanumeric()) && opens && at < 250
}

/// The text after date, time and `[file.py:12]` (or `file.py:12]`, or `file.py:12`).
fn message_after(text: &str) -> &str {
    let mut rest = text.trim_start_matches(':').trim_start();
    for separator in ['-', ':'] {
        if let Some((word, after)) = rest.split_once(' ') {
            if word.contains(separator)
                && word.chars().all(|c| c.is_ascii_digit() || c == separator)
            {
                rest = after.trim_start();
            }
        }
    }
    if let Some(inside) = rest.strip_prefix('[') {
        if let Some((place, after)) = inside.split_once(']') {
            if place.contains(':') {
                return after.trim();
            }
        }
    }
    if let Some((place, after)) = rest.split_once(' ') {
        if place.contains(".py:") {
            return after.trim();
        }
    }
    // A message on a separate line below its prefix.
    if rest.contains(".py:") && rest.ends_with(']') {
        ""
    } else {
        rest.trim()
    }
}

/// Strips the prefixes of processes and services from a line without a record prefix.
pub fn bare(text: &str) -> &str {
    let mut rest = text.trim();
    loop {
        let before = rest;
        if let Some(inside) = rest.strip_prefix('(').or_else(|| rest.strip_prefix('[')) {
            if let Some(end) = inside.find([')', ']']) {
                if inside[..end].contains("pid=") || inside.starts_with("rank") {
                    rest = inside[end + 1..].trim_start_matches(':').trim_start();
                }
            }
        }
        rest = rest.trim_start_matches(['#', '>', '|']).trim_start();
        // `docker compose logs`: `service  | message`.
        if let Some((name, message)) = rest.split_once(" | ") {
            if name.len() < 64 && !name.trim_end().contains(' ') {
                rest = message.trim_start();
            }
        }
        if rest.len() == before.len() {
            return rest;
        }
    }
}

/// `line` as a fact quotes it: trimmed, secrets masked, and when it is too long, its beginning and
/// the part around byte `focus` with `…` between.
pub fn quote(line: &str, focus: usize) -> String {
    let focus = focus.min(line.len());
    if line.trim().len() <= LONGEST_QUOTE {
        return masked(line.trim());
    }
    let head = &line[..floor(line, 160)];
    let from = floor(line, focus.saturating_sub(60)).max(head.len());
    let to = floor(line, from + LONGEST_QUOTE - 180);
    let gap = if from > head.len() { " … " } else { "" };
    let tail = if to < line.len() { " …" } else { "" };
    masked(&format!(
        "{}{gap}{}{tail}",
        head.trim_start(),
        line[from..to].trim_end()
    ))
}

/// The largest character boundary of `text` that is at most `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The argument lines of a server hold its keys: `'api_key': ['a', 'b']`, `api_key='a'`.
fn masked(text: &str) -> String {
    const NAMES: [&str; 3] = ["api_key", "hf_token", "authtoken"];
    static SEARCH: LazyLock<Words> = LazyLock::new(|| Words::new(&NAMES));
    let mut out = String::from(text);
    if !SEARCH.hold(text.as_bytes()) {
        return out;
    }
    for name in NAMES {
        let mut from = 0;
        while let Some(found) = out[from..].find(name) {
            let after = from + found + name.len();
            from = after;
            let rest = out[after..].trim_start_matches(['\'', '"']);
            let Some(rest) = rest.strip_prefix([':', '=']) else {
                continue;
            };
            let value = rest.trim_start();
            let start = out.len() - value.len();
            // A value that the quote cuts off is a value to its end.
            let len = match value.chars().next() {
                None => continue,
                Some('[') => value.find(']').map_or(value.len(), |i| i + 1),
                Some(mark @ ('\'' | '"')) => value[1..].find(mark).map_or(value.len(), |i| i + 2),
                Some(_) => value.find([',', '}', ')', ' ']).unwrap_or(value.len()),
            };
            if &value[..len] != "None" {
                out.replace_range(start..start + len, "[redacted]");
                from = start;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(raw: &str) -> String {
        let mut out = String::new();
        clean(raw.as_bytes(), &mut out);
        out
    }

    #[test]
    fn colour_goes_in_every_spelling() {
        for raw in [
            "\x1b[1;36m(Worker_TP1 pid=2)\x1b[0;0m INFO x",
            "[1;36m(Worker_TP1 pid=2)[0;0m INFO x",
            "#033[1;36m(Worker_TP1 pid=2)#033[0;0m INFO x",
            "^[[B^[[B(Worker_TP1 pid=2) INFO x",
        ] {
            assert_eq!(cleaned(raw), "(Worker_TP1 pid=2) INFO x");
        }
        // No colour: brackets that belong to the text.
        assert_eq!(
            cleaned("[core.py:12] took [5 m]"),
            "[core.py:12] took [5 m]"
        );
    }

    #[test]
    fn message_of_every_record_form() {
        for (line, message) in [
            (
                "INFO 05-25 00:00:33 model_runner.py:175] Loading",
                "Loading",
            ),
            (
                "(EngineCore pid=3) INFO 05-25 00:00:33 [core.py:1] Loading",
                "Loading",
            ),
            (
                "2026-04-19 13:07:06.315 | (EngineCore pid=3) INFO 04-19 11:07:06 [core.py:1] Loading",
                "Loading",
            ),
            ("(EngineCore) INFO [core.py:113] Loading", "Loading"),
            (
                "(EngineCore pid=258) INFO gpu_model_runner.py:4879 Loading",
                "Loading",
            ),
            ("INFO:     Loading", "Loading"),
            ("[core.py:113] Loading", "[core.py:113] Loading"),
            ("web-1  | (Worker pid=9) Loading", "Loading"),
            ("[rank0]: ValueError: Loading", "ValueError: Loading"),
        ] {
            assert_eq!(record(line).1, message, "{line}");
        }
    }

    #[test]
    fn a_level_word_inside_a_message_is_no_level() {
        assert_eq!(record("Some ERROR text").0, Level::Unknown);
        assert_eq!(
            record("INFO 05-25 00:00:33 [a.py:1] ERROR [x] y").0,
            Level::Quiet
        );
        assert_eq!(record("ERROR 05-25 00:00:33 [a.py:1] x").0, Level::Error);
    }

    #[test]
    fn a_long_quote_shows_beginning_and_figure() {
        let line = format!(
            "(EngineCore pid=3) INFO banner {} max_seq_len=4096, {}",
            "x ".repeat(900),
            "y ".repeat(900)
        );
        let quoted = quote(&line, line.find("max_seq_len").unwrap());
        assert!(quoted.len() <= LONGEST_QUOTE + 10, "{}", quoted.len());
        assert!(quoted.starts_with("(EngineCore pid=3) INFO banner"));
        assert!(quoted.contains("max_seq_len=4096"));
    }

    #[test]
    fn keys_are_masked_in_quotes() {
        assert_eq!(
            quote("args: {'api_key': ['sk-1', 'sk-2'], 'x': 1}", 0),
            "args: {'api_key': [redacted], 'x': 1}"
        );
        assert_eq!(
            quote("args: {'api_key': ['sk-1", 0),
            "args: {'api_key': [redacted]"
        );
        assert_eq!(
            quote("Namespace(api_key='sk-1', api_key=None)", 0),
            "Namespace(api_key=[redacted], api_key=None)"
        );
    }
}
