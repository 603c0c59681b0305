//! Words in a picture: made harmless, measured with the widths of the font, cut and broken.

use crate::report::layout;
use unicode_width::UnicodeWidthChar as _;

/// The families that a picture asks for: the one that is drawn with here, then those of nearly the
/// same widths that systems have.
pub const FAMILY: &str = "Noto Sans, Open Sans, Segoe UI, Helvetica Neue, Arial, sans-serif";

/// Characters of a text that are looked at: what is longer is cut before anything else is done.
const LONGEST: usize = 400;

/// Widths of U+0020 to U+007E in thousandths of the size, in the plain font of `font/`.
const PLAIN: [u16; 95] = [
    260, 269, 408, 646, 572, 831, 732, 225, 300, 300, 551, 572, 268, 322, 268, 372, 572, 572, 572,
    572, 572, 572, 572, 572, 572, 572, 268, 268, 572, 572, 572, 434, 899, 639, 650, 632, 730, 556,
    519, 728, 741, 339, 273, 619, 524, 907, 760, 781, 605, 781, 622, 549, 556, 731, 600, 930, 586,
    566, 572, 329, 372, 329, 572, 444, 580, 561, 615, 480, 615, 564, 344, 615, 618, 258, 258, 534,
    258, 935, 618, 605, 615, 615, 413, 479, 361, 618, 508, 786, 529, 510, 470, 380, 551, 380, 572,
];

/// How much wider bold letters are, at most, over a word.
pub const BOLD: f64 = 1.08;

/// Text from outside as it may stand in a picture: on one line, nothing that turns the reading
/// order or that XML has no place for, and of bounded length.
pub fn harmless_text(text: &str) -> String {
    let start: String = text.chars().take(LONGEST + 1).collect();
    let mut clean = layout::clean_text(&start, true);
    clean.retain(|c| {
        !matches!(
            c,
            '\u{61c}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        ) && !matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff)
            && !matches!(c, '\u{e0000}'..='\u{e0fff}')
    });
    if let Some((end, _)) = clean.char_indices().nth(LONGEST) {
        clean.replace_range(end.., "…");
    }
    clean
}

/// A unit from outside: harmless, and short, because it is behind every figure.
pub fn harmless_unit(text: &str) -> String {
    harmless_text(text).chars().take(16).collect()
}

/// Text between tags or in an attribute. What is harmless already only has its signs escaped.
pub fn escape_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Width of a text in letters of `size`.
pub fn text_width(text: &str, size: f64) -> f64 {
    let thousandths: u32 = text.chars().map(|c| u32::from(advance(c))).sum();
    f64::from(thousandths) / 1000.0 * size
}

/// Width of the widest of several texts.
pub fn widest_text<S: AsRef<str>>(texts: impl IntoIterator<Item = S>, size: f64) -> f64 {
    let widths = (texts.into_iter()).map(|text| text_width(text.as_ref(), size));
    widths.fold(0.0, f64::max)
}

fn advance(c: char) -> u16 {
    match u32::from(c) {
        code @ 0x20..=0x7e => PLAIN[code as usize - 0x20],
        0xb7 => 268,
        0x2013 => 500,
        0x2026 => 818,
        // Not worth a table: wide enough for Latin, Greek and Cyrillic letters on the whole.
        _ => match c.width().unwrap_or(0) {
            0 => 0,
            1 => 660,
            _ => 1000,
        },
    }
}

/// A text cut to `room`, with an ellipsis where something was cut; empty where not even one letter
/// has room.
pub fn fit_text(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let room = room - text_width("…", size);
    let mut cut = String::new();
    let mut used = 0.0;
    for c in text.chars() {
        used += f64::from(advance(c)) / 1000.0 * size;
        if used > room {
            break;
        }
        cut.push(c);
    }
    cut.truncate(cut.trim_end().len());
    if !cut.is_empty() {
        cut.push('…');
    }
    cut
}

/// A text broken at spaces into at most `most` lines of `room`; the last one is cut.
pub fn wrap_lines(text: &str, size: f64, room: f64, most: usize) -> Vec<String> {
    let widths = |line: &str, word: &str| [line, " ", word].map(|part| text_width(part, size));
    let mut lines = layout::wrap_words(text, |line, word| {
        widths(line, word).iter().sum::<f64>() <= room
    });
    if lines.len() > most {
        let rest = lines.split_off(most.max(1) - 1).join(" ");
        lines.push(rest);
    }
    lines
        .iter()
        .map(|line| fit_text(line, size, room))
        .collect()
}

/// A word for an `id` in XML: letters, digits and hyphens.
pub fn safe_identifier(text: &str) -> String {
    let mut id = String::from("c-");
    for c in text.chars().take(80) {
        match c {
            c if c.is_ascii_alphanumeric() || c == '-' => id.push(c),
            '_' => id.push('_'),
            // Two ids that differ in such letters alone stay apart.
            c => id.push_str(&format!(".{:x}", u32::from(c))),
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_harmless() {
        let evil = "a</text><script>\u{202e}b\u{7}\u{feff}\u{ffff}c\nd";
        assert_eq!(harmless_text(evil), "a</text><script>bc d");
        assert_eq!(
            escape_text("a</text> & \"b'"),
            "a&lt;/text&gt; &amp; &quot;b&#39;"
        );
        assert_eq!(
            harmless_text(&"x".repeat(1 << 20)).chars().count(),
            LONGEST + 1
        );
        assert_eq!(
            safe_identifier("fig 1/../\"é"),
            "c-fig.201.2f.2e.2e.2f.22.e9"
        );
    }

    #[test]
    fn texts_are_cut_and_broken_to_their_room() {
        assert_eq!(fit_text("short", 12.0, 100.0), "short");
        let cut = fit_text("a label that is too long", 12.0, 60.0);
        assert!(
            cut.ends_with('…') && text_width(&cut, 12.0) <= 60.0,
            "{cut}"
        );
        assert_eq!(fit_text("wide", 12.0, 5.0), "");
        let lines = wrap_lines("one two three four five six seven", 12.0, 60.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(
            lines.iter().all(|l| text_width(l, 12.0) <= 60.0),
            "{lines:?}"
        );
        assert!(lines[1].ends_with('…'));
    }
}
