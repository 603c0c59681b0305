//! Whether a text is the engine's own message or a quotation: logs contain prompts too.

/// Words before a text that a request contained or a model generated.
const QUOTED: &[&str] = &[
    "Input:", "inputs:", "Output:", "prompt", "Prompt", "content:", "messages",
];

/// The text after `needle` where `needle` begins a message: at the start of the line or after a log
/// prefix (level, time, place, carrier's name), and not in quotes.
pub fn text_after_sign<'a>(text: &'a str, needle: &str) -> Option<&'a str> {
    let at = memchr::memmem::find(text.as_bytes(), needle.as_bytes())?;
    let before = text[..at].trim_end();
    (begins(before) && !belongs_to_request(before)).then(|| &text[at + needle.len()..])
}

/// Whether the text before a message shows that it belongs to a request or a response.
pub fn belongs_to_request(before: &str) -> bool {
    before.contains(['"', '\'', '`']) || QUOTED.iter().any(|word| before.contains(word))
}

/// Whether a message may begin after `before`.
fn begins(before: &str) -> bool {
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
