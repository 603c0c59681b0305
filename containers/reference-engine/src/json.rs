//! As much JSON as this engine needs: strings out, and the members of an object in, without building a tree of it.

use std::fmt::Write;

pub fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `null` for what JSON has no number for.
pub fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "null".into() }
}

/// The object's members as (name, value text). Names with escapes keep them; none that we look for has one.
pub fn members(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut scan = Scan { text, at: 0 };
    let mut members = Vec::new();
    scan.space();
    scan.eat(b'{')?;
    scan.space();
    if scan.eat(b'}').is_none() {
        loop {
            scan.space();
            let name = scan.value(0)?;
            let name = name.strip_prefix('"')?.strip_suffix('"')?;
            scan.space();
            scan.eat(b':')?;
            scan.space();
            members.push((name, scan.value(0)?));
            scan.space();
            if scan.eat(b',').is_none() {
                scan.eat(b'}')?;
                break;
            }
        }
    }
    scan.space();
    (scan.at == text.len()).then_some(members)
}

/// How many elements an array has; None if the text is no array.
pub fn array_len(text: &str) -> Option<u64> {
    let mut scan = Scan { text, at: 0 };
    let mut count = 0;
    scan.eat(b'[')?;
    scan.space();
    while scan.peek()? != b']' {
        scan.value(1)?;
        count += 1;
        scan.space();
        if scan.eat(b',').is_some() {
            scan.space();
        }
    }
    Some(count)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|b| b" \t\r\n".contains(&b)) {
            self.at += 1;
        }
    }

    /// Steps over one value and returns its text.
    fn value(&mut self, depth: u32) -> Option<&'a str> {
        let from = self.at;
        match self.peek()? {
            b'"' => {
                self.at += 1;
                loop {
                    match self.peek()? {
                        b'"' => break,
                        b'\\' => self.at += 2,
                        _ => self.at += 1,
                    }
                }
                self.at += 1;
            }
            open @ (b'[' | b'{') => {
                if depth > 32 {
                    return None;
                }
                let close = if open == b'[' { b']' } else { b'}' };
                self.at += 1;
                self.space();
                while self.eat(close).is_none() {
                    self.value(depth + 1)?;
                    self.space();
                    // A list inside a value is stepped over, not judged.
                    if self.eat(b',').is_some() || self.eat(b':').is_some() {
                        self.space();
                    }
                }
            }
            _ => {
                while self.peek().is_some_and(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
                    self.at += 1;
                }
                if self.at == from {
                    return None;
                }
            }
        }
        self.text.get(from..self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_request() {
        let text = r#" {"model": "a\"b", "prompt": [1, [2], {"x": 3}], "stream":true,"max_tokens" : 8 } "#;
        let found = members(text).unwrap();
        let expect =
            [("model", r#""a\"b""#), ("prompt", r#"[1, [2], {"x": 3}]"#), ("stream", "true"), ("max_tokens", "8")];
        assert_eq!(found, expect);
        assert_eq!(array_len(found[1].1), Some(3));
        assert_eq!(members("{}"), Some(vec![]));
    }

    #[test]
    fn not_an_object() {
        for text in
            ["", "{", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":1", "{\"a\":1}x", "{a:1}", "{\"a\":\"\\", "{\"a\":1,}"]
        {
            assert_eq!(members(text), None, "{text}");
        }
        assert_eq!(members(&format!("{{\"a\":{}", "[".repeat(100_000))), None);
        assert_eq!(array_len("\"x\""), None);
    }

    #[test]
    fn strings() {
        assert_eq!(string("a\"\\\n"), r#""a\"\\\u000a""#);
        assert_eq!(number(f64::NAN), "null");
    }
}
