//! A private key that a log prints a line at a time: its lines say nothing by themselves.

use super::REDACTED;
use std::borrow::Cow;

/// A key has fewer lines. One whose end never comes is over then.
const LONGEST: u32 = 400;
/// A word of a key is as long, characters; only the last may be shorter, and stands alone.
const LONG_WORD: usize = 20;

/// Where a stream of lines is: in a key, or not. Lines of other streams may stand between.
#[derive(Debug, Clone, Default)]
pub struct KeyBlock {
    left: u32,
}

impl KeyBlock {
    /// Whether a key begins, goes on or ends with this line, as it was before it was redacted.
    /// Gives the line, which was redacted by its own look already, without its part of the key.
    pub fn line<'t>(&mut self, raw: &str, redacted: Cow<'t, str>) -> Cow<'t, str> {
        let inside = self.left > 0;
        self.left = self.left.saturating_sub(1);
        if raw.contains("PRIVATE KEY") && raw.contains("-----") {
            let ends = raw.rfind("-----END ") > raw.rfind("-----BEGIN ");
            self.left = if ends { 0 } else { LONGEST };
        }
        match inside
            && redacted
                .split_whitespace()
                .any(|w| is_of_a_key(w, &redacted))
        {
            true => Cow::Owned(without(&redacted)),
            false => redacted,
        }
    }
}

fn is_of_a_key(word: &str, line: &str) -> bool {
    let base64 = |w: &str| {
        w.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
    };
    base64(word) && (word.len() >= LONG_WORD || (word.len() >= 2 && word == line.trim()))
}

fn without(line: &str) -> String {
    line.split_inclusive(char::is_whitespace)
        .map(|part| {
            let word = part.trim_end();
            match is_of_a_key(word, line) {
                true => format!("{REDACTED}{}", &part[word.len()..]),
                false => part.to_owned(),
            }
        })
        .collect()
}
