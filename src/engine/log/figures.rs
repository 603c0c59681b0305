//! Reading figures out of a sentence: numbers with commas, signs and units.

use crate::units::GIB;

/// A number as it was printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its value.
    pub value: f64,
    /// Whether it was printed without a fraction.
    pub whole: bool,
}

/// The text after the first `needle`.
pub fn after<'a>(text: &'a str, needle: &str) -> Option<&'a str> {
    memchr::memmem::find(text.as_bytes(), needle.as_bytes()).map(|at| &text[at + needle.len()..])
}

/// The number that `text` begins with (spaces skipped), and the text after it. Accepts a minus sign
/// and thousands commas; a comma without three digits after it ends the number.
pub fn number(text: &str) -> Option<(Number, &str)> {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let mut printed = String::new();
    let mut at = 0;
    if bytes.first() == Some(&b'-') {
        printed.push('-');
        at = 1;
    }
    let mut whole = true;
    let mut digits = 0;
    while let Some(&byte) = bytes.get(at) {
        let three_follow = || {
            bytes
                .get(at + 1..at + 4)
                .is_some_and(|b| b.iter().all(u8::is_ascii_digit))
                && !bytes.get(at + 4).is_some_and(u8::is_ascii_digit)
        };
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                printed.push(char::from(byte));
            }
            b',' if whole && digits > 0 && three_follow() => {}
            b'.' if whole && digits > 0 && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                whole = false;
                printed.push('.');
            }
            _ => break,
        }
        at += 1;
    }
    // More digits than any count has: not a figure.
    if digits == 0 || digits > 25 {
        return None;
    }
    let value: f64 = printed.parse().ok()?;
    Some((Number { value, whole }, &text[at..]))
}

/// The number after `needle`.
pub fn number_after(text: &str, needle: &str) -> Option<Number> {
    number(after(text, needle)?).map(|(n, _)| n)
}

/// A whole number that `text` begins with, and the text after it; more than any count is none.
pub fn whole(text: &str) -> Option<(u64, &str)> {
    let (n, rest) = number(text)?;
    (n.whole && (0.0..9e15).contains(&n.value)).then_some((n.value as u64, rest))
}

/// The whole number after `needle`.
pub fn whole_after(text: &str, needle: &str) -> Option<u64> {
    whole(after(text, needle)?).map(|(n, _)| n)
}

/// A count that `text` begins with and that something follows: one that ends its line may have been
/// cut off.
pub fn complete_count(text: &str) -> Option<u64> {
    let (n, rest) = number(text)?;
    (n.whole && n.value >= 0.0 && rest.starts_with([',', ' ', ')'])).then_some(n.value as u64)
}

/// The number that ends just before `needle`.
pub fn number_before(text: &str, needle: &str) -> Option<Number> {
    let head = text[..text.find(needle)?].trim_end();
    let start = head.len()
        - head
            .trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-'))
            .len();
    number(head[head.len() - start..].trim_start_matches([',', '.'])).map(|(n, _)| n)
}

/// The amount of memory that `text` begins with, GiB, and the text after it. vLLM's `GB` is bytes /
/// 2^30 as well; `MB` is bytes / 2^20. `None` without a unit.
pub fn gib(text: &str) -> Option<(f64, &str)> {
    let (n, rest) = number(text)?;
    let unit = rest.trim_start();
    for (name, scale) in [
        ("Gi", 1.0),
        ("GB", 1.0),
        ("Mi", 1024.0),
        ("MB", 1024.0),
        ("Ki", 1024.0 * 1024.0),
        ("Ti", 1.0 / 1024.0),
    ] {
        if let Some(rest) = unit.strip_prefix(name) {
            return Some((n.value / scale, rest.trim_start_matches(['b', 'B'])));
        }
    }
    None
}

/// The amount of memory after `needle`, GiB.
pub fn gib_after(text: &str, needle: &str) -> Option<f64> {
    gib(after(text, needle)?).map(|(v, _)| v)
}

/// An amount in units of 10^9 bytes, printed as `GB`, at the beginning of `text`: GiB.
pub fn decimal_gb(text: &str) -> Option<f64> {
    let (n, rest) = number(text)?;
    let is_gb = rest.trim_start().starts_with("GB");
    is_gb.then_some(n.value * (1e9 / GIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_engines_print_them() {
        let value = |text| number(text).map(|(n, rest)| (n.value, n.whole, rest));
        assert_eq!(
            value("1,640,160 tokens"),
            Some((1_640_160.0, true, " tokens"))
        );
        assert_eq!(value("12344, # CPU"), Some((12344.0, true, ", # CPU")));
        assert_eq!(value(" -0.53 GiB"), Some((-0.53, false, " GiB")));
        assert_eq!(value("15.40x"), Some((15.4, false, "x")));
        assert_eq!(value("128."), Some((128.0, true, ".")));
        assert_eq!(value("5,12"), Some((5.0, true, ",12")));
        assert_eq!(value("x"), None);
        assert_eq!(value(&"9".repeat(400)), None);
    }

    #[test]
    fn memory_needs_a_unit() {
        assert_eq!(gib("7.4829 GB").map(|p| p.0), Some(7.4829));
        assert_eq!(gib("14.56GiB) x").map(|p| p.0), Some(14.56));
        assert_eq!(gib("0.39Gib non").map(|p| p.0), Some(0.39));
        assert_eq!(gib("512 MiB of").map(|p| p.0), Some(0.5));
        assert_eq!(gib("405.34 seconds"), None);
    }

    #[test]
    fn number_before_a_word() {
        let text = "is 14.08 GiB for weight, 1.97 GiB for peak";
        assert_eq!(
            number_before(text, " GiB for peak").map(|n| n.value),
            Some(1.97)
        );
        assert_eq!(
            number_before(text, " GiB for weight").map(|n| n.value),
            Some(14.08)
        );
    }
}
