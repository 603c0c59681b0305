//! Texts of a report made harmless, and its names made fit for links and files: for every format.

use crate::report::layout::clean_text;
use std::collections::HashSet;

/// Bytes of a line that are shown: more is a dump, not a line.
pub const LINE: usize = 4 * 1024;

/// Bytes of a listing that are shown.
pub const LISTING: usize = 256 * 1024;

/// One line: no control characters, nothing that turns the reading order, no dump.
pub fn one_line(text: &str) -> String {
    cut_text(text, LINE, |part| clean_text(part, true))
}

/// Lines as they are, each one harmless and their whole bounded.
pub fn clean_listing(text: &str) -> String {
    let text = text.trim_end_matches(['\n', '\r']);
    cut_text(text, LISTING, |part| {
        let lines: Vec<String> = part
            .lines()
            .map(|l| one_line(&l.replace('\t', "    ")))
            .collect();
        lines.join("\n")
    })
}

/// The first `most` bytes, made harmless, and how many more there were.
fn cut_text(text: &str, most: usize, harmless: impl Fn(&str) -> String) -> String {
    if text.len() <= most {
        return harmless(text);
    }
    let kept = (0..=most)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!(
        "{}… ({} more bytes)",
        harmless(&text[..kept]),
        text.len() - kept
    )
}

/// A name fit for a link and a file: letters, digits, `-` and `_`.
pub fn file_name(id: &str) -> String {
    let fit = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
        _ => '-',
    };
    let name: String = id.chars().take(80).map(fit).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name
    } else {
        format!("x{name}")
    }
}

/// Names that are given out once: the second `a` is `a-2`.
#[derive(Debug, Default)]
pub struct UsedNames(HashSet<String>);

impl UsedNames {
    /// The name for `id`.
    pub fn take_name(&mut self, id: &str) -> String {
        let name = file_name(id);
        let numbered = (2..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone())
            .chain(numbered)
            .find(|n| !self.0.contains(n))
            .unwrap_or(name);
        self.0.insert(free.clone());
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_no_dump() {
        assert_eq!(
            one_line("a\u{202e}b\u{61c}c\nd\u{2028}e\x1b[2J"),
            "abc d e[2J"
        );
        let long = one_line(&"é".repeat(500_000));
        assert!(
            long.ends_with("é… (995904 more bytes)"),
            "{}",
            &long[4000..]
        );
    }

    #[test]
    fn a_secret_goes_before_a_formats_escapes_hide_it() {
        let line = one_line("from postgres://me:pa\x1bss@db");
        assert_eq!(line, "from postgres://[redacted]@db");
    }

    #[test]
    fn a_listing_keeps_its_lines() {
        assert_eq!(clean_listing("a\tb\r\n\x07c\n\n"), "a    b\nc");
        let long = clean_listing(&format!("{}\nnext\n", "x".repeat(5000)));
        assert!(long.ends_with("x… (904 more bytes)\nnext"));
        assert!(clean_listing(&"line\n".repeat(1_000_000)).len() < LISTING + 64);
    }

    #[test]
    fn names_are_fit_for_files_and_unique() {
        let mut names = UsedNames::default();
        assert_eq!(names.take_name("../../etc/passwd"), "x------etc-passwd");
        assert_eq!(names.take_name("a b"), "a-b");
        assert_eq!(names.take_name("a/b"), "a-b-2");
        assert_eq!(names.take_name(""), "x");
    }
}
