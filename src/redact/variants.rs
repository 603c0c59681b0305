//! A known secret as others write it: encoded for a URL, escaped in JSON, as base64 of `user:secret`,
//! a line at a time.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// A line of a secret of many lines that is searched for by itself, bytes at least.
const SHORTEST_LINE: usize = 16;
/// A piece of base64 that is searched for, characters at least: less is met by chance.
const SHORTEST_PIECE: usize = 8;

/// The value and all of its other spellings, each once.
pub(super) fn of(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    let mut add = |spelling: String| {
        if !all.contains(&spelling) {
            all.push(spelling);
        }
    };
    // A log prints a private key line by line.
    if value.contains('\n') {
        for line in value.lines().map(str::trim) {
            if line.len() >= SHORTEST_LINE && !line.starts_with("-----") {
                add(line.to_owned());
            }
        }
    }
    // As most encode for a URL, as Python's `quote` does, and as JavaScript's `encodeURIComponent`.
    for kept in ["-._~", "-._~/", "-._~!*'()"] {
        for hex in [b"0123456789ABCDEF", b"0123456789abcdef"] {
            let encoded = percent(value, kept.as_bytes(), hex);
            add(encoded.replace("%20", "+"));
            add(encoded);
        }
    }
    let json = in_json(value);
    for json in [ascii(&json, &four_digits), json] {
        add(json.replace('/', "\\/"));
        add(in_json(&json));
        add(json);
    }
    // Python's `repr`, in either quotes: of a text, of one for ASCII only, and of its bytes.
    let doubled = value.replace('\\', "\\\\");
    for quoted in [doubled.replace('\'', "\\'"), doubled] {
        add(ascii(&quoted, &fewest_digits));
        add(ascii(&quoted, &|c| {
            let mut bytes = [0; 4];
            let bytes = c.encode_utf8(&mut bytes).bytes();
            bytes.map(|b| format!("\\x{b:02x}")).collect()
        }));
        add(quoted);
    }
    add(value.replace('\'', "'\\''"));
    for apostrophe in ["&#39;", "&#x27;"] {
        add(value
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', apostrophe));
    }
    for before in 0..3 {
        for piece in pieces(value.as_bytes(), before) {
            add(piece);
        }
    }
    all
}

/// As it stands between the quotes of a string of JSON.
fn in_json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// With all that is not ASCII escaped.
fn ascii(value: &str, escape: &dyn Fn(char) -> String) -> String {
    let each = value.chars().map(|c| match c.is_ascii() {
        true => c.to_string(),
        false => escape(c),
    });
    each.collect()
}

/// `\u00e4`, as JSON has it: two of them for what is beyond.
fn four_digits(c: char) -> String {
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units).iter();
    units.map(|unit| format!("\\u{unit:04x}")).collect()
}

/// `\xe4`, `\u20ac` or `\U0001f511`, as Python has it.
fn fewest_digits(c: char) -> String {
    match u32::from(c) {
        n @ ..0x100 => format!("\\x{n:02x}"),
        n @ ..0x1_0000 => format!("\\u{n:04x}"),
        n => format!("\\U{n:08x}"),
    }
}

/// Without the percent signs of a URL. What is no encoding stays.
pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits
            .filter(|d| first == b'%' && d.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn percent(value: &str, kept: &[u8], hex: &[u8; 16]) -> String {
    let mut out = String::new();
    for b in value.bytes() {
        if b.is_ascii_alphanumeric() || kept.contains(&b) {
            out.push(char::from(b));
        } else {
            out.push('%');
            out.push(char::from(hex[usize::from(b >> 4)]));
            out.push(char::from(hex[usize::from(b & 15)]));
        }
    }
    out
}

/// The characters that a value has in every base64 in which so many bytes (modulo three) stand
/// before it, whatever they are and whatever follows.
fn pieces(value: &[u8], before: usize) -> Vec<String> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    // A character is six bits: those that share bits with a neighbour are left out.
    let from = (before * 8).div_ceil(6);
    let to = bytes.len() * 8 / 6;
    [STANDARD_NO_PAD, URL_SAFE_NO_PAD]
        .iter()
        .filter_map(|engine| Some(engine.encode(&bytes).get(from..to)?.to_owned()))
        .filter(|piece| piece.len() >= SHORTEST_PIECE)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn base64_of_it_has_a_piece_whatever_stands_around(
            value in "[ -~]{8,40}",
            before in "[ -~]{0,9}",
            after in "[ -~]{0,9}",
        ) {
            let encoded = STANDARD.encode(format!("{before}{value}{after}"));
            let pieces = pieces(value.as_bytes(), before.len() % 3);
            prop_assert!(pieces.iter().any(|p| encoded.contains(p)), "{encoded} {pieces:?}");
        }
    }

    #[test]
    fn percent_signs_go_where_they_encode() {
        assert_eq!(percent_decoded("p%40ss%2fw%C3%b6rd"), "p@ss/wörd");
        assert_eq!(percent_decoded("100%, %zz %+1 %4"), "100%, %zz %+1 %4");
    }

    #[test]
    fn each_spelling_is_there_once() {
        let all = of("a b/c\"d'e");
        for spelling in [
            "a%20b%2Fc%22d%27e",
            "a+b%2fc%22d%27e",
            "a b\\/c\\\"d'e",
            "a b/c&quot;d&#39;e",
            "a b/c&quot;d&#x27;e",
            "a%20b/c%22d%27e",
            "a%20b%2Fc%22d'e",
        ] {
            assert!(all.iter().any(|s| s == spelling), "{spelling}: {all:?}");
        }
        let all = of("it's é€🔑\\");
        for spelling in [
            "it's \\u00e9\\u20ac\\ud83d\\udd11\\\\",
            "it's \\xe9\\u20ac\\U0001f511\\\\",
            "it\\'s \\xe9\\u20ac\\U0001f511\\\\",
            "it's \\xc3\\xa9\\xe2\\x82\\xac\\xf0\\x9f\\x94\\x91\\\\",
        ] {
            assert!(all.iter().any(|s| s == spelling), "{spelling}: {all:?}");
        }
        let plain = of("plain-word");
        assert_eq!(plain.iter().filter(|s| *s == "plain-word").count(), 1);
    }
}
