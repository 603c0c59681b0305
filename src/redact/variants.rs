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
    for hex in [b"0123456789ABCDEF", b"0123456789abcdef"] {
        let encoded = percent(value, hex);
        add(encoded.replace("%20", "+"));
        add(encoded);
    }
    let json = in_json(value);
    add(json.replace('/', "\\/"));
    add(in_json(&json));
    add(json);
    add(value.replace('\\', "\\\\").replace('\'', "\\'"));
    add(value.replace('\'', "'\\''"));
    add(value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;"));
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

fn percent(value: &str, hex: &[u8; 16]) -> String {
    let mut out = String::new();
    for b in value.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
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
    fn each_spelling_is_there_once() {
        let all = of("a b/c\"d'e");
        for spelling in [
            "a%20b%2Fc%22d%27e",
            "a+b%2fc%22d%27e",
            "a b\\/c\\\"d'e",
            "a b/c&quot;d&#39;e",
        ] {
            assert!(all.iter().any(|s| s == spelling), "{spelling}: {all:?}");
        }
        let plain = of("plain-word");
        assert_eq!(plain.iter().filter(|s| *s == "plain-word").count(), 1);
    }
}
