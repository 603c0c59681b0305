//! Finds where an engine's message begins in a line: behind any prefix, but never inside quotes or
//! the text of a request, since logs contain prompts and responses too.

use super::words::Words;

/// Longest prefix of a message, bytes: date, ranks, a collector's fields, a progress bar.
const LONGEST_PREFIX: usize = 512;

/// The beginnings of messages, each with its kind.
pub struct Heads<K: 'static> {
    words: Words,
    table: &'static [(&'static str, K)],
}

/// A message that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a, K> {
    /// Kind, from the table.
    pub kind: K,
    /// Text before the message.
    pub prefix: &'a str,
    /// Its beginning, as in the table.
    pub head: &'static str,
    /// What follows its beginning.
    pub rest: &'a str,
}

impl<K: Copy> Heads<K> {
    /// A search for the beginnings in `table`; of two that begin at one place the earlier in the
    /// table wins. At least four bytes each and at most 64 of them, as [`Words`] requires.
    pub fn new(table: &'static [(&'static str, K)]) -> Heads<K> {
        let words: Vec<&str> = table.iter().map(|(head, _)| *head).collect();
        Heads {
            words: Words::new(&words),
            table,
        }
    }

    /// The beginnings that it searches for.
    pub fn signs(&self) -> impl Iterator<Item = &'static str> {
        self.table.iter().map(|(head, _)| *head)
    }

    /// The first message of a line.
    pub fn find<'a>(&self, text: &'a str) -> Option<Message<'a, K>> {
        let (index, end) = self.words.find(text.as_bytes())?;
        let (head, kind) = self.table.get(index)?;
        let prefix = text.get(..end.checked_sub(head.len())?)?;
        let quoted = prefix.contains(['"', '\'', '`', '{']);
        (prefix.len() <= LONGEST_PREFIX && !quoted).then_some(Message {
            kind: *kind,
            prefix,
            head,
            rest: text.get(end..)?,
        })
    }
}

/// Words before a text that a request contained or a model generated.
const QUOTED: &[&str] = &[
    "Input:", "inputs:", "Output:", "prompt", "Prompt", "content:", "messages",
];

/// The text after `needle` where `needle` begins a message: at the start of the line or after a log
/// prefix (level, time, place, carrier's name), and not in quotes.
pub fn text_after_sign<'a>(text: &'a str, needle: &str) -> Option<&'a str> {
    let at = memchr::memmem::find(text.as_bytes(), needle.as_bytes())?;
    begins_message(&text[..at]).then(|| &text[at + needle.len()..])
}

/// Whether a message of the engine may begin after `before`.
pub fn begins_message(before: &str) -> bool {
    let before = before.trim_end();
    ends_prefix(before) && !belongs_to_request(before)
}

/// Whether the text before a message shows that it belongs to a request or a response.
pub fn belongs_to_request(before: &str) -> bool {
    before.contains(['"', '\'', '`']) || QUOTED.iter().any(|word| before.contains(word))
}

/// Whether `before` ends as the prefix of a log line does.
fn ends_prefix(before: &str) -> bool {
    let Some(last) = before.chars().next_back() else {
        return true;
    };
    let word = before.rsplit(' ').next().unwrap_or_default();
    matches!(last, ':' | ']' | '|' | '│' | '>' | ')' | '-' | '}')
        || matches!(word, "TRACE" | "DEBUG" | "INFO" | "WARN" | "WARNING" | "ERROR")
        // A time, or a Kubernetes carrier's `F`.
        || (word.starts_with(|c: char| c.is_ascii_digit()) && word.contains(':'))
}

/// The first text after any of `needles`, with the needle.
pub fn text_after_any<'a>(
    text: &'a str,
    needles: &[&'static str],
) -> Option<(&'static str, &'a str)> {
    needles
        .iter()
        .find_map(|needle| Some((*needle, text_after_sign(text, needle)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_prefix_and_not_inside_quotes() {
        let heads = Heads::new(&[("Load weight end", 1), ("Load weight", 2)]);
        let found = |text| heads.find(text).map(|m| (m.kind, m.prefix, m.rest));
        assert_eq!(
            found("[10:00 TP1] Load weight end. x"),
            Some((1, "[10:00 TP1] ", ". x"))
        );
        assert_eq!(found("Load weight begin"), Some((2, "", " begin")));
        assert_eq!(found("Receive: text='Load weight end. x'"), None);
        assert_eq!(found("{\"prompt\": Load weight"), None);
        assert_eq!(found("é Load weight é"), Some((2, "é ", " é")));
        assert_eq!(found(""), None);
        assert_eq!(found(&("x".repeat(600) + "Load weight end")), None);
    }

    #[test]
    fn a_message_begins_behind_what_logs_put_before_it() {
        for text in [
            "Blocks: 5",
            "web-1  | Blocks: 5",
            "│ 2026-01-01T00:00:00.1Z  INFO launcher: Blocks: 5",
            "[TRT-LLM] [I] Blocks: 5",
            "2026-01-01T00:00:00.1Z Blocks: 5",
            "INFO Blocks: 5",
            "a_b::c: src/d.rs:12: Blocks: 5",
        ] {
            assert_eq!(text_after_sign(text, "Blocks: "), Some("5"), "{text}");
        }
        for text in [
            "they say Blocks: 5",
            "\"Blocks: 5\"",
            "DEBUG router: src/server.rs:9: Input: Blocks: 5",
            "request 7: prompt: Blocks: 5",
            "{stop: [\"x\"]}: Blocks: 5",
            "nothing",
        ] {
            assert_eq!(text_after_sign(text, "Blocks: "), None, "{text}");
        }
        assert_eq!(text_after_any("b 1", &["a ", "b "]), Some(("b ", "1")));
    }
}
