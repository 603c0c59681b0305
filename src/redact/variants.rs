//! A known secret as others write it: encoded for a URL, escaped in JSON, as base64 of `user:secret`,
//! a line at a time. All encoders stand in the tables here.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::collections::HashSet;

/// A line of a secret of many lines that is searched for by itself, bytes at least.
const SHORTEST_LINE: usize = 16;
/// A piece of base64 that is searched for, characters at least: less matches by chance.
const SHORTEST_PIECE: usize = 8;
/// A text by which a line is chosen for a closer look, bytes at least.
const SHORTEST_ANCHOR: usize = 4;

/// A longer value is searched for in one spelling at a time, bytes: few are spelt twice, and each pair
/// of spellings takes memory.
const LONGEST_SPELT_TWICE: usize = 512;

/// How a value may be written.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    /// The value and all of its other spellings: also one spelling in another, as a line of JSON in
    /// a URL is.
    pub all: Vec<String>,
    /// Short texts; each spelling contains one of them, so a line without any needs no further
    /// search.
    pub anchors: Vec<String>,
}

/// Every spelling of a value that is long enough to be searched for.
pub(super) fn spellings_of(value: &str, is_searched: impl Fn(&str) -> bool) -> Spellings {
    let mut found = Spellings::default();
    let mut add = |value: &str, twice: bool| {
        let mut all = spelt(value);
        if twice {
            let again: Vec<String> = all.iter().flat_map(|once| spelt(once)).collect();
            all.extend(again);
        }
        let mut all = each_once(all);
        all.retain(|spelling| is_searched(spelling));
        found.anchors.extend(anchors(value, &all));
        found.all.extend(all);
    };
    add(value, value.len() <= LONGEST_SPELT_TWICE);
    // A log prints a private key line by line.
    if value.contains('\n') {
        let lines = value.lines().map(str::trim);
        let lines = lines.filter(|l| l.len() >= SHORTEST_LINE && !l.starts_with("-----"));
        lines.for_each(|line| add(line, false));
    }
    found
}

/// No text encoding changes letters and digits, so each encoding contains the value's longest word;
/// hex and base64 encodings of the value contain those of that word.
fn anchors(value: &str, spellings: &[String]) -> Vec<String> {
    let mut all = vec![longest_word(value)];
    for _ in 0..2 {
        let next: Vec<String> = all
            .iter()
            .flat_map(|a| binary(a, SHORTEST_ANCHOR))
            .collect();
        all.extend(next.iter().map(|text| longest_word(text)));
    }
    let mut all = each_once(all);
    all.retain(|anchor| anchor.len() >= SHORTEST_ANCHOR);
    let of_each = spellings.iter().map(|spelling| {
        let known = all.iter().find(|anchor| spelling.contains(*anchor));
        known.unwrap_or(spelling).clone()
    });
    each_once(of_each.collect())
}

fn longest_word(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.max_by_key(|w| w.len()).unwrap_or_default().to_owned()
}

fn each_once(mut texts: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    texts
}

/// What stays as it is in a URL besides letters and digits: for most encoders, Python's `quote`,
/// JavaScript's `encodeURIComponent` and its `encodeURI`.
const KEPT_IN_URLS: [&str; 4] = ["-._~", "-._~/", "-._~!*'()", "-._~!*'();/?:@&=+$,#"];

/// How a language writes a character that it escapes by its number.
type EscapeNotation = fn(char) -> String;

/// Backslash escapes: the quotes to escape, and the notation for everything except printable ASCII
/// (`None`: unchanged). JSON and C, shells and Python's `repr` with either quotes.
const ESCAPED: [&str; 4] = ["\"", "", "'", "\"'"];
const NUMBERS: [Option<EscapeNotation>; 5] = [
    None,
    Some(|c| units(c, false)),
    Some(fewest_digits),
    Some(|c| of_bytes(c, |b| format!("\\x{b:02x}"))),
    Some(|c| of_bytes(c, |b| format!("\\{b:03o}"))),
];

/// Further replacements in JSON, pairs of a character and its replacement: slashes (PHP, and by number), markup (Go),
/// and all that .NET escapes.
const IN_JSON: [&str; 5] = [
    r"/ \/",
    r"/ \u002f",
    r"/ \u002F",
    r"& \u0026 < \u003c > \u003e",
    r"& \u0026 < \u003C > \u003E ' \u0027 + \u002B ` \u0060",
];

/// What is replaced elsewhere: in a shell's quotes, in YAML's, and in HTML with both quotes, one or none.
const REPLACED: [&str; 10] = [
    r"' '\''",
    r#"' '"'"'"#,
    "' ''",
    "& &amp; < &lt; > &gt;",
    r#"& &amp; < &lt; > &gt; " &quot;"#,
    r#"& &amp; < &lt; > &gt; " &quot; ' &#39;"#,
    r#"& &amp; < &lt; > &gt; " &quot; ' &#x27;"#,
    r#"& &amp; < &lt; > &gt; " &quot; ' &apos;"#,
    r#"& &amp; < &lt; > &gt; " &#34; ' &#39;"#,
    r#"& &amp; < &lt; > &gt; " &quot; ' &#x27; / &#x2F;"#,
];

/// The value as each encoder writes it.
fn spelt(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    for kept in KEPT_IN_URLS {
        let kept = |b: u8| b.is_ascii_alphanumeric() || kept.as_bytes().contains(&b);
        for percent in [|b| format!("%{b:02X}"), |b| format!("%{b:02x}")] {
            let encoded = encoded(value, kept, percent);
            all.push(encoded.replace("%20", "+"));
            all.push(encoded);
        }
    }
    for quotes in ESCAPED {
        all.extend(NUMBERS.map(|number| escaped(value, quotes, number)));
    }
    for json in [None, NUMBERS[1], Some(|c| units(c, true))] {
        let json = escaped(value, "\"", json);
        all.extend(IN_JSON.map(|pairs| replaced(&json, pairs)));
    }
    // .NET writes a double quote by its number, too.
    let net = escaped(value, "", Some(|c| units(c, true)));
    all.push(replaced(&net, IN_JSON[4]).replace('"', "\\u0022"));
    all.extend(REPLACED.map(|pairs| replaced(value, pairs)));
    // Quoted-printable.
    let printable = |b: u8| (b' '..=b'~').contains(&b) && b != b'=';
    all.push(encoded(value, printable, |b| format!("={b:02X}")));
    all.extend(binary(value, SHORTEST_PIECE));
    each_once(all)
}

/// In hex and in base64, which change every character.
fn binary(value: &str, shortest: usize) -> Vec<String> {
    let none = |_| false;
    let mut all = vec![
        encoded(value, none, |b| format!("{b:02x}")),
        encoded(value, none, |b| format!("{b:02X}")),
    ];
    all.extend((0..3).flat_map(|before| pieces(value.as_bytes(), before, shortest)));
    all
}

/// With the bytes that are not kept written otherwise.
fn encoded(value: &str, kept: impl Fn(u8) -> bool, other: impl Fn(u8) -> String) -> String {
    let mut out = String::new();
    for c in value.chars() {
        let mut bytes = [0; 4];
        for b in c.encode_utf8(&mut bytes).bytes() {
            if b.is_ascii() && kept(b) {
                out.push(char::from(b))
            } else {
                out.push_str(&other(b))
            }
        }
    }
    out
}

/// Replaces characters by `pairs`: words, in turn a character and its replacement.
fn replaced(value: &str, pairs: &str) -> String {
    let words: Vec<&str> = pairs.split(' ').collect();
    let mut out = String::new();
    for c in value.chars() {
        match words.chunks(2).find(|pair| pair[0].starts_with(c)) {
            Some(pair) => out.push_str(pair[1]),
            None => out.push(c),
        }
    }
    out
}

/// A value as written between quotes with backslash escapes.
fn escaped(value: &str, quotes: &str, number: Option<EscapeNotation>) -> String {
    let mut out = String::new();
    for c in value.chars() {
        match (c, number) {
            ('\n', _) => out.push_str("\\n"),
            ('\r', _) => out.push_str("\\r"),
            ('\t', _) => out.push_str("\\t"),
            ('\\', _) => out.push_str("\\\\"),
            (c, _) if quotes.contains(c) => out.extend(['\\', c]),
            (' '..='~', _) => out.push(c),
            (c, Some(number)) => out.push_str(&number(c)),
            (c, None) if c.is_ascii() => out.push_str(&units(c, false)),
            (c, None) => out.push(c),
        }
    }
    out
}

/// `\u00e4`, as JSON has it: two of them for what is beyond.
fn units(c: char, upper: bool) -> String {
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units).iter();
    let each = units.map(|unit| {
        if upper {
            format!("\\u{unit:04X}")
        } else {
            format!("\\u{unit:04x}")
        }
    });
    each.collect()
}

/// `\xe4`, `\u20ac` or `\U0001f511`, as Python has it.
fn fewest_digits(c: char) -> String {
    match u32::from(c) {
        n @ ..0x100 => format!("\\x{n:02x}"),
        n @ ..0x1_0000 => format!("\\u{n:04x}"),
        n => format!("\\U{n:08x}"),
    }
}

/// `\303\244` or `\xc3\xa4`, as C and Python's bytes have it.
fn of_bytes(c: char, each: fn(u8) -> String) -> String {
    let mut bytes = [0; 4];
    c.encode_utf8(&mut bytes).bytes().map(each).collect()
}

/// Decodes the percent signs of a URL. Invalid sequences are kept.
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

/// The characters that a value has in every base64 text in which this many bytes (modulo three)
/// precede it, whatever they are and whatever follows.
fn pieces(value: &[u8], before: usize, shortest: usize) -> Vec<String> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    // A character is six bits: those that share bits with a neighbour are left out.
    let from = (before * 8).div_ceil(6);
    let to = bytes.len() * 8 / 6;
    [STANDARD_NO_PAD, URL_SAFE_NO_PAD]
        .iter()
        .filter_map(|engine| Some(engine.encode(&bytes).get(from..to)?.to_owned()))
        .filter(|piece| piece.len() >= shortest)
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
            let pieces = pieces(value.as_bytes(), before.len() % 3, SHORTEST_PIECE);
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
        let all = spelt("a b/c\"d'e");
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
        let all = spelt("it's é€🔑\\");
        for spelling in [
            "it's \\u00e9\\u20ac\\ud83d\\udd11\\\\",
            "it's \\xe9\\u20ac\\U0001f511\\\\",
            "it\\'s \\xe9\\u20ac\\U0001f511\\\\",
            "it's \\xc3\\xa9\\xe2\\x82\\xac\\xf0\\x9f\\x94\\x91\\\\",
        ] {
            assert!(all.iter().any(|s| s == spelling), "{spelling}: {all:?}");
        }
        let plain = spelt("plain-word");
        assert_eq!(plain.iter().filter(|s| *s == "plain-word").count(), 1);
    }
}
