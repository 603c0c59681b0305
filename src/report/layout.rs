//! Text in columns: display width, padding, wrapping, tables, and figures as people read them.

use crate::redact::redact_distinct;
use crate::wording::plural_noun;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use unicode_width::UnicodeWidthStr as _;

/// Cells that a text takes on a terminal.
pub fn text_width(text: &str) -> usize {
    text.width()
}

/// Pads on the right to `cells`.
pub fn pad_left_aligned(text: &str, cells: usize) -> String {
    let blank = " ".repeat(cells.saturating_sub(text_width(text)));
    format!("{text}{blank}")
}

/// Pads on the left to `cells`.
pub fn pad_right_aligned(text: &str, cells: usize) -> String {
    let blank = " ".repeat(cells.saturating_sub(text_width(text)));
    format!("{blank}{text}")
}

/// Text from outside (names, log lines) made harmless: no control characters that would move the
/// cursor, no invisible characters that would turn the reading order; in ASCII where the reader
/// has nothing else. A secret goes here already: behind a format's own escapes the last net would
/// not know it.
pub fn clean_text(text: &str, unicode: bool) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => cleaned.push(' '),
            c if c.is_control() => {}
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => {}
            '\u{61c}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}' => {}
            c if unicode || c.is_ascii() => cleaned.push(c),
            '—' | '–' | '−' => cleaned.push('-'),
            '×' => cleaned.push('x'),
            '…' => cleaned.push_str("..."),
            '·' => cleaned.push(','),
            '→' => cleaned.push_str("->"),
            '±' => cleaned.push_str("+/-"),
            '°' => {}
            '‘' | '’' => cleaned.push('\''),
            '“' | '”' | '„' => cleaned.push('"'),
            _ => cleaned.push('?'),
        }
    }
    redact_distinct(&cleaned).into_owned()
}

/// Cuts to at most `cells`, ending in `ellipsis` where something was cut.
pub fn truncate_text(text: &str, cells: usize, ellipsis: &str) -> String {
    if text_width(text) <= cells {
        return text.to_owned();
    }
    let room = cells.saturating_sub(text_width(ellipsis));
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if text_width(&cut) > room {
            cut.pop();
            break;
        }
    }
    cut.truncate(cut.trim_end().len());
    cut.push_str(ellipsis);
    cut
}

/// Cuts to at most `cells` in the middle, where there is room for it: names that begin alike differ
/// at their ends.
pub fn truncate_middle(text: &str, cells: usize, ellipsis: &str) -> String {
    let room = cells.saturating_sub(text_width(ellipsis));
    if text_width(text) <= cells || room < 8 {
        return truncate_text(text, cells, ellipsis);
    }
    let end = room * 3 / 4;
    let starts = text.char_indices().rev().map(|(at, _)| at);
    let from = starts.take_while(|at| text_width(&text[*at..]) <= end);
    let ending = &text[from.last().unwrap_or(text.len())..];
    let beginning = truncate_text(text, cells - text_width(ending), ellipsis);
    format!("{beginning}{}", ending.trim_start())
}

/// Breaks at spaces into lines of at most `cells`; a longer word has a line of its own.
pub fn wrap_text(text: &str, cells: usize) -> Vec<String> {
    wrap_words(text, |line, word| {
        text_width(line) + 1 + text_width(word) <= cells
    })
}

/// The same, where `fits` decides whether a line has room for a further word.
pub(super) fn wrap_words(text: &str, fits: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if fits(line, word) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Breaks a line at words so that no part is wider than `cells`. A line that fits stays as it is;
/// the further parts begin two cells further in than the line. A longer word breaks after a
/// separator, as a path does after `/`.
pub fn wrap_line(line: &str, cells: usize) -> Vec<String> {
    if text_width(line) <= cells {
        return vec![line.to_owned()];
    }
    let indent = line.len() - line.trim_start_matches(' ').len();
    let parts = wrap_within(line, cells.saturating_sub(indent + 2));
    let further = |i: usize| if i == 0 { 0 } else { 2 };
    let indented =
        |(i, part): (usize, String)| format!("{}{part}", " ".repeat(indent + further(i)));
    parts.into_iter().enumerate().map(indented).collect()
}

/// [`wrap_text`] whose longer words are broken, too: no line is wider than `cells`.
pub fn wrap_within(text: &str, cells: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in wrap_text(text, cells) {
        let mut rest = line.as_str();
        while text_width(rest) > cells.max(2) {
            let at = break_after(rest, cells.max(2));
            lines.push(rest[..at].to_owned());
            rest = &rest[at..];
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// Where a word that is too long ends on this line: after its last `/` that fits, else its last
/// other separator, if that leaves no half of the line empty. At least one character.
fn break_after(word: &str, cells: usize) -> usize {
    let mut end = 0;
    let (mut slash, mut separator) = (None, None);
    for (at, c) in word.char_indices() {
        let next = at + c.len_utf8();
        let width = text_width(&word[..next]);
        if end > 0 && width > cells {
            break;
        }
        end = next;
        match c {
            _ if width * 2 <= cells => {}
            '/' => slash = Some(next),
            ',' | ';' | ':' | '=' | '-' | '_' | '@' => separator = Some(next),
            _ => {}
        }
    }
    slash.or(separator).unwrap_or(end)
}

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// `1 run`, `1,200 runs`.
pub fn counted_noun(n: usize, noun: &str) -> String {
    counted_words(n, noun, &plural_noun(noun))
}

/// `1 run is`, `3 runs are`.
pub fn counted_words(n: usize, one: &str, more: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{} {more}", grouped_count(n as u64)),
    }
}

/// A title with its unit: `peak, GiB`.
pub fn with_unit(title: &str, unit: &str) -> String {
    match (title, unit) {
        (title, "") => title.to_owned(),
        ("", unit) => unit.to_owned(),
        (title, unit) => format!("{title}, {unit}"),
    }
}

/// Sentences as one text; `None` without any.
pub fn join_sentences<S: AsRef<str>>(sentences: impl IntoIterator<Item = S>) -> Option<String> {
    let all: Vec<S> = sentences.into_iter().collect();
    let texts: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// The words of the first items, then `more` of the number of those left out.
pub(super) fn join_first<T>(
    items: &[T],
    most: usize,
    between: &str,
    word: impl Fn(&T) -> String,
    more: impl Fn(usize) -> String,
) -> String {
    let first: Vec<String> = items.iter().take(most).map(word).collect();
    let rest = items.len().saturating_sub(most);
    let rest = (rest > 0).then(|| more(rest));
    first.join(between) + &rest.unwrap_or_default()
}

/// The items without repetitions, in the order of their first occurrence.
pub(super) fn distinct_items<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// The items by their keys, in the order in which these first come.
pub(super) fn group_items<T, K: Eq + Hash + Clone>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    let mut places = HashMap::new();
    for item in items {
        let key = key(&item);
        let at = *places.entry(key.clone()).or_insert(groups.len());
        if at == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[at].1.push(item);
    }
    groups
}

/// How often each word comes, the most frequent first; of equals by alphabet.
pub(super) fn count_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counts
}

/// A moment without the parts of its second: `2026-11-23T09:42:27Z`.
pub fn format_moment(timestamp: &str) -> String {
    match timestamp.split_once('.') {
        Some((second, rest)) => {
            let zone = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{second}{zone}")
        }
        None => timestamp.to_owned(),
    }
}

/// With a capital letter in front.
pub fn capitalize_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// A count with thousands apart: `117,216`.
pub fn grouped_count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A figure as text: nothing is negative zero.
pub fn unsigned_zero(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        _ => text,
    }
}

/// A figure with the decimals that its size deserves: `1,234`, `123.4`, `12.34`, `0.512`.
pub fn format_figure(value: f64) -> String {
    unsigned_zero(match value.abs() {
        m if !m.is_finite() => "?".into(),
        m if m >= 999.5 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped_count(m.round() as u64))
        }
        m if m >= 99.95 => format!("{value:.1}"),
        m if m >= 0.9995 || m == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    })
}

/// A length of time: `0.8 s`, `42.0 s`, `3 min 05 s`, `2 h 07 min`.
pub fn format_duration(seconds: f64) -> String {
    // The sum of nothing is -0.0.
    let seconds = seconds.max(0.0) + 0.0;
    let whole = seconds.round() as u64;
    match whole {
        0..=59 if seconds < 59.95 => format!("{seconds:.1} s"),
        0..=3599 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_move_the_cursor() {
        assert_eq!(clean_text("a\x1b[2Jb\u{202e}c\td", true), "a[2Jbc d");
        assert_eq!(clean_text("8 × 2 — ü", false), "8 x 2 - ?");
    }

    #[test]
    fn long_text_is_cut_or_wrapped() {
        assert_eq!(truncate_text("abcdef", 4, "…"), "abc…");
        assert_eq!(truncate_text("abcd", 4, "…"), "abcd");
        assert_eq!(truncate_text("量子計算", 5, "…"), "量子…");
        assert_eq!(wrap_text("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_text("unbreakable ab", 4), ["unbreakable", "ab"]);
    }

    #[test]
    fn a_line_is_wrapped_below_itself_and_a_long_word_after_a_separator() {
        assert_eq!(wrap_line("  a   b", 7), ["  a   b"]);
        assert_eq!(
            wrap_line("  one two three four", 13),
            ["  one two", "    three", "    four"]
        );
        assert_eq!(wrap_within("/usr/lib/nvml.so", 9), ["/usr/lib/", "nvml.so"]);
        assert_eq!(wrap_within("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap_within("量子計算", 3), ["量", "子", "計", "算"]);
        assert!(wrap_within("", 3).is_empty());
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(grouped_count(117_216), "117,216");
        assert_eq!(grouped_count(999), "999");
        assert_eq!(format_figure(1234.4), "1,234");
        assert_eq!(format_figure(999.7), "1,000");
        assert_eq!(format_figure(12.345), "12.35");
        assert_eq!(format_figure(0.0), "0.00");
        assert_eq!(format_figure(-0.0001), "0.000");
        assert_eq!(format_figure(-0.5), "-0.500");
        assert_eq!(format_duration(59.96), "1 min 00 s");
        assert_eq!(format_duration(0.84), "0.8 s");
        assert_eq!(format_duration(7620.0), "2 h 07 min");
    }
}
