//! A private key that a log prints a line at a time: its lines say nothing by themselves.

use super::REDACTED;
use std::borrow::Cow;

/// Maximum number of lines of a key block; a block without an end stops here.
const LONGEST: u32 = 400;
/// Minimum length of a word of a key, characters; only the last may be shorter, and is then alone.
const LONG_WORD: usize = 20;

/// Where a stream of lines is: in a key, or not. Lines of other streams may stand between.
#[derive(Debug, Clone, Default)]
pub struct KeyBlock {
    left: u32,
}

impl KeyBlock {
    /// Whether a key begins, goes on or ends with this line, as it was before it was redacted.
    /// Gives the line, which was redacted by its own look already, without its part of the key.
    pub fn filter_line<'t>(&mut self, raw: &str, redacted: Cow<'t, str>) -> Cow<'t, str> {
        let inside = self.left > 0;
        self.left = self.left.saturating_sub(1);
        if raw.contains("PRIVATE KEY") && raw.contains("-----") {
            let ends = raw.rfind("-----END ") > raw.rfind("-----BEGIN ");
            self.left = if ends { 0 } else { LONGEST };
        }
        if inside
            && redacted
                .split(stands_between)
                .any(|w| is_of_a_key(w, alone(&redacted)))
        {
            Cow::Owned(without(&redacted))
        } else {
            redacted
        }
    }
}

/// What ends a word: blanks, and what JSON puts around a text.
fn stands_between(c: char) -> bool {
    c.is_whitespace() || "\"'\\{}[],".contains(c)
}

/// A line's text, also if it is the only string in a JSON line (`{"m":"…\n"}`).
fn alone(line: &str) -> &str {
    let bare = line.trim_matches(stands_between);
    let value = bare.split_once("\":").map_or(bare, |(_, value)| value);
    let text = value.trim_matches(stands_between);
    text.strip_suffix("\\n").unwrap_or(text)
}

fn is_of_a_key(word: &str, alone: &str) -> bool {
    let base64 = |w: &str| {
        w.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
    };
    base64(word) && (word.len() >= LONG_WORD || (word.len() >= 2 && word == alone))
}

fn without(line: &str) -> String {
    let alone = alone(line);
    line.split_inclusive(stands_between)
        .map(|part| {
            let word = part.trim_end_matches(stands_between);
            if is_of_a_key(word, alone) {
                format!("{REDACTED}{}", &part[word.len()..])
            } else {
                part.to_owned()
            }
        })
        .collect()
}
