//! The JSON documents in a tool's output: after banners, warnings and coloured text, one or more in
//! a row, the last one possibly truncated.

use serde_json::Value;

/// A document.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonDocument {
    /// Its contents; for a truncated document, the complete part of it.
    pub value: Value,
    /// Whether it was there to its end.
    pub whole: bool,
}

/// Every document in the text, in order.
pub fn find_documents(text: &str) -> Vec<JsonDocument> {
    let text = without_colours(text);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = next_start(&text, at) {
        let rest = &text[start..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                at = start + stream.byte_offset().max(1);
                found.push(JsonDocument { value, whole: true });
            }
            _ => {
                let (salvaged, end) = salvage(rest);
                at = start + end.max(1);
                // Of prose that only looks like a document nothing is left.
                if let Some(value) = salvaged.filter(|v| !is_empty(v)) {
                    found.push(JsonDocument {
                        value,
                        whole: false,
                    });
                }
            }
        }
    }
    found
}

/// Where the next document may begin: at a bracket that is the first on its line. Those within
/// prose begin none.
fn next_start(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    // Right behind a document another may follow on the same line.
    let mut fresh = true;
    while at < bytes.len() {
        match bytes[at] {
            b'[' | b'{' if fresh => return Some(at),
            b'\n' => fresh = true,
            b' ' | b'\t' | b'\r' => {}
            _ => fresh = false,
        }
        at += 1;
    }
    None
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().all(is_empty),
        Value::Object(map) => map.is_empty(),
        // A list of bare numbers is prose in brackets.
        _ => true,
    }
}

/// The text without terminal control sequences: they hold brackets.
pub fn without_colours(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            clean.push(c);
            continue;
        }
        if chars.next_if_eq(&'[').is_some() {
            // Parameters, then one letter.
            while chars
                .next_if(|c| matches!(c, '0'..='9' | ';' | '?' | ':'))
                .is_some()
            {}
            let _ = chars.next_if(char::is_ascii_alphabetic);
        }
    }
    clean
}

/// The complete part at the beginning of a truncated or malformed document, and where reading
/// ended.
fn salvage(text: &str) -> (Option<Value>, usize) {
    // The last place up to which everything is complete, with the brackets open there.
    let mut complete: (usize, Vec<u8>) = (0, Vec::new());
    let mut open: Vec<u8> = Vec::new();
    let mut quoted = false;
    let mut escaped = false;
    let mut end = text.len();
    for (at, byte) in text.bytes().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                // No string of a tool goes over its line.
                b'\n' => {
                    end = at;
                    break;
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => {
                if open.len() >= 100 {
                    end = at;
                    break;
                }
                open.push(if byte == b'{' { b'}' } else { b']' });
                complete = (at + 1, open.clone());
            }
            b'}' | b']' => {
                if open.pop() != Some(byte) {
                    end = at;
                    break;
                }
                complete = (at + 1, open.clone());
                if open.is_empty() {
                    end = at + 1;
                    break;
                }
            }
            b',' => complete = (at, open.clone()),
            // What a document holds outside of its texts: numbers, `true`, `null`, and the `…`
            // that people write for what they left out, which ends it.
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b':' => {}
            b'.' if !text[at..].starts_with("...") => {}
            byte if byte.is_ascii_whitespace() => {}
            _ => {
                end = at;
                break;
            }
        }
    }
    let (upto, open) = complete;
    let mut whole = text[..upto.min(end)].to_owned();
    whole.extend(open.iter().rev().map(|b| char::from(*b)));
    (serde_json::from_str(&whole).ok(), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn values(text: &str) -> Vec<Value> {
        find_documents(text).into_iter().map(|d| d.value).collect()
    }

    #[test]
    fn documents_are_found_behind_banners_and_one_another() {
        let text = "'CTRL' + 'C' to stop watching output:\n[\n {\"gpu\": 0}\n]\n[{\"gpu\": 1}]\n{\"gpu_data\": []}";
        assert_eq!(
            values(text),
            [
                json!([{"gpu": 0}]),
                json!([{"gpu": 1}]),
                json!({"gpu_data": []})
            ]
        );
        assert_eq!(values("{\"a\":{\"b\":1}}[{\"gpu\":2}]").len(), 2);
        let warned = "/x.py:3: SyntaxWarning: 'return' in [finally]\n  return d\n{\"gpu_data\": [{\"gpu\": 0}]}";
        assert_eq!(values(warned), [json!({"gpu_data": [{"gpu": 0}]})]);
    }

    #[test]
    fn prose_holds_no_document() {
        for prose in [
            "",
            "'CTRL' + 'C' to stop watching output:\n",
            "\u{1b}[33mPlease see the guide.\u{1b}[0m\n",
            "[root@host ~]# rocm-smi --json\nWARNING: No JSON data to report\n",
            "[rc=0]\n[stdout]\n[stderr]\n",
            "[1, 2]x\n",
        ] {
            assert!(
                find_documents(prose)
                    .iter()
                    .all(|d| d.whole && is_empty(&d.value)),
                "{prose}: {:?}",
                find_documents(prose)
            );
        }
    }

    #[test]
    fn a_document_that_is_cut_off_keeps_what_is_complete() {
        let cut = "[\n {\"gpu\": 0, \"usage\": {\"gfx\": {\"value\": 42, \"unit\": \"%\"}, \"jp";
        assert_eq!(
            find_documents(cut),
            [JsonDocument {
                value: json!([{"gpu": 0, "usage": {"gfx": {"value": 42, "unit": "%"}}}]),
                whole: false
            }]
        );
        let elided = "{\"gpu_data\": [{\"gpu\": 0, \"limit\": {\"max\": 1},\n ...\n}]}";
        assert_eq!(
            values(elided),
            [json!({"gpu_data": [{"gpu": 0, "limit": {"max": 1}}]})]
        );
        // The number at the cut may go on; it does not count.
        assert_eq!(values("{\"gpu\": 1, \"pid\": 12"), [json!({"gpu": 1})]);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(\\PC|[\\[\\]{}\",:\\n\\x1b0-9 .])*") {
            let _ = find_documents(&text);
        }

        #[test]
        fn every_cut_of_a_document_is_survived(cut in 0usize..120) {
            let text = "banner\n[{\"gpu\": 0, \"a\": \"x\\\"y\", \"b\": [1, {\"value\": 2, \"unit\": \"W\"}]}, {\"gpu\": 1}]";
            let cut = cut.min(text.len());
            for document in find_documents(&text[..cut]) {
                prop_assert!(document.value.is_array());
                prop_assert_eq!(document.whole, cut == text.len());
            }
        }
    }
}
